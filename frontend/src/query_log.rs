//! The last statements and their cost: `sys.query_log`.
//!
//! Without MONITOR an identity sees its own statements only: those of the same role, and of the same token.
//!
//! A ring of bounded length that drops the oldest entries. Texts are cut to [`TEXT_BYTES_MAX`].

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, StringViewArray, TimestampMillisecondArray, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;
use parking_lot::Mutex;
use partita_proto::access::Identity;
use partita_proto::id::TableId;
use partita_proto::index::IndexKind;

use crate::error::SqlError;

/// Maximum bytes of a statement's text; longer ones are cut.
pub const TEXT_BYTES_MAX: usize = 4 << 10;

/// A kind of index as a bit.
pub(crate) const fn kind_bit(kind: IndexKind) -> u8 {
    match kind {
        IndexKind::Inverted => 1,
        IndexKind::Skipping => 2,
        IndexKind::Fulltext => 4,
    }
}

/// Names of the kinds of indexes in some bits; `None` of no bit.
pub(crate) fn kinds(bits: u8) -> Option<&'static str> {
    const NAMES: [&str; 7] = [
        "inverted",
        "skipping",
        "inverted,skipping",
        "fulltext",
        "inverted,fulltext",
        "skipping,fulltext",
        "inverted,skipping,fulltext",
    ];
    NAMES.get(usize::from(bits).checked_sub(1)?).copied()
}

/// A statement that has ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryLogEntry {
    /// Start time in milliseconds since 1970-01-01T00:00:00Z.
    pub started_ms: i64,
    /// Current database of the session.
    pub database: String,
    /// Name of the session's user.
    pub user: String,
    /// Identity of the session; `None`: of no client.
    pub identity: Option<Identity>,
    /// Kind of statement: `SELECT`, `INSERT` and so on.
    pub kind: &'static str,
    /// Text, cut to [`TEXT_BYTES_MAX`].
    pub text: String,
    /// Partitions of the tables that the statement reads or writes.
    pub partitions_total: u64,
    /// Partitions that the statement read or wrote.
    pub partitions_touched: u64,
    /// Table of each scan, and the number of partitions that it read.
    pub fan_out: Vec<(TableId, u64)>,
    /// Rows decoded by the statement's scans.
    pub rows_scanned: u64,
    /// Bytes decoded by the statement's scans.
    pub bytes_scanned: u64,
    /// Files that the statement's scans opened.
    pub files_read: u64,
    /// Files that the statement's scans skipped.
    pub files_pruned: u64,
    /// True if the statement touched at most one partition.
    pub fast_path: bool,
    /// Kinds of the indexes that the statement's scans asked, separated by commas; `None`: no index.
    pub index_used: Option<&'static str>,
    /// Rows about which indexes were asked.
    pub index_rows_examined: u64,
    /// Rows that indexes excluded.
    pub index_rows_skipped: u64,
    /// Scans of partitions that followers answered.
    pub partitions_by_followers: u64,
    /// Duration in milliseconds, including the time in which the client reads.
    pub milliseconds: f64,
    /// Rows returned or affected.
    pub rows: u64,
    /// SQLSTATE and message of a failed statement.
    pub error: Option<String>,
}

impl QueryLogEntry {
    /// True if the identity began its session as the same role, and with the same token or none.
    fn is_of(&self, identity: &Identity) -> bool {
        let is_same =
            |owner: Identity| (owner.login, owner.token) == (identity.login, identity.token);
        self.identity.is_some_and(is_same)
    }
}

/// Log of the last statements; see the head of the file.
#[derive(Debug)]
pub struct QueryLog {
    entries: Mutex<VecDeque<Arc<QueryLogEntry>>>,
    len_max: usize,
}

impl QueryLog {
    /// A log of at most `len_max` entries.
    pub fn new(len_max: usize) -> Self {
        Self { entries: Mutex::new(VecDeque::new()), len_max }
    }

    /// Adds an entry; drops the oldest ones beyond the maximum.
    pub fn add(&self, mut entry: QueryLogEntry) {
        if self.len_max == 0 {
            return;
        }
        if entry.text.len() > TEXT_BYTES_MAX {
            let end = entry.text.floor_char_boundary(TEXT_BYTES_MAX);
            entry.text.truncate(end);
        }
        let mut entries = self.entries.lock();
        while entries.len() >= self.len_max {
            entries.pop_front();
        }
        entries.push_back(Arc::new(entry));
    }

    /// All entries, oldest first.
    pub fn entries(&self) -> Vec<Arc<QueryLogEntry>> {
        self.entries.lock().iter().map(Arc::clone).collect()
    }

    /// Columns of `sys.query_log`.
    pub(crate) fn schema() -> SchemaRef {
        let text = |name: &str, nullable| Field::new(name, DataType::Utf8View, nullable);
        let count = |name: &str| Field::new(name, DataType::UInt64, false);
        let started = DataType::Timestamp(TimeUnit::Millisecond, None);
        Arc::new(Schema::new(vec![
            Field::new("started", started, false),
            text("database", false),
            text("user", false),
            text("kind", false),
            text("text", false),
            count("partitions_total"),
            count("partitions_touched"),
            count("rows_scanned"),
            count("bytes_scanned"),
            count("files_read"),
            count("files_pruned"),
            Field::new("fast_path", DataType::Boolean, false),
            text("index_used", true),
            count("index_rows_examined"),
            count("index_rows_skipped"),
            count("partitions_by_followers"),
            Field::new("ms", DataType::Float64, false),
            count("rows"),
            text("error", true),
        ]))
    }

    /// Rows of `sys.query_log`: all of them, or those of an identity.
    pub(crate) fn batch(&self, owner: Option<Identity>) -> Result<RecordBatch, SqlError> {
        let mut entries = self.entries();
        entries.retain(|entry| owner.is_none_or(|owner| entry.is_of(&owner)));
        let text = |read: &dyn Fn(&QueryLogEntry) -> Option<String>| -> ArrayRef {
            Arc::new(entries.iter().map(|entry| read(entry)).collect::<StringViewArray>())
        };
        let count = |read: &dyn Fn(&QueryLogEntry) -> u64| -> ArrayRef {
            Arc::new(UInt64Array::from_iter_values(entries.iter().map(|entry| read(entry))))
        };
        let started =
            TimestampMillisecondArray::from_iter_values(entries.iter().map(|e| e.started_ms));
        let fast: BooleanArray = entries.iter().map(|entry| Some(entry.fast_path)).collect();
        let took = Float64Array::from_iter_values(entries.iter().map(|e| e.milliseconds));
        // The order is that of the schema above.
        let columns: Vec<ArrayRef> = vec![
            Arc::new(started),
            text(&|entry| Some(entry.database.clone())),
            text(&|entry| Some(entry.user.clone())),
            text(&|entry| Some(entry.kind.to_owned())),
            text(&|entry| Some(entry.text.clone())),
            count(&|entry| entry.partitions_total),
            count(&|entry| entry.partitions_touched),
            count(&|entry| entry.rows_scanned),
            count(&|entry| entry.bytes_scanned),
            count(&|entry| entry.files_read),
            count(&|entry| entry.files_pruned),
            Arc::new(fast),
            text(&|entry| entry.index_used.map(str::to_owned)),
            count(&|entry| entry.index_rows_examined),
            count(&|entry| entry.index_rows_skipped),
            count(&|entry| entry.partitions_by_followers),
            Arc::new(took),
            count(&|entry| entry.rows),
            text(&|entry| entry.error.clone()),
        ];
        Ok(RecordBatch::try_new(Self::schema(), columns)?)
    }
}

#[cfg(test)]
mod tests {
    use partita_proto::access::Door;
    use partita_proto::id::{RoleId, TokenId};

    use super::*;

    #[test]
    fn the_kinds_in_every_set_of_bits_are_named_in_order() {
        for bits in 0..8 {
            let included = IndexKind::ALL.into_iter().filter(|kind| bits & kind_bit(*kind) != 0);
            let names: Vec<&str> = included.map(IndexKind::method).collect();
            let expected = (!names.is_empty()).then(|| names.join(","));
            assert_eq!(kinds(bits).map(str::to_owned), expected, "{bits}");
        }
    }

    #[test]
    fn the_oldest_entries_go_first_and_texts_are_cut() {
        let log = QueryLog::new(2);
        for number in 0..3_u64 {
            log.add(QueryLogEntry {
                text: "ä".repeat(TEXT_BYTES_MAX),
                rows: number,
                ..QueryLogEntry::default()
            });
        }
        let entries = log.entries();
        assert_eq!(entries.iter().map(|entry| entry.rows).collect::<Vec<_>>(), [1, 2]);
        assert!(entries[0].text.len() <= TEXT_BYTES_MAX);
        assert_eq!(log.batch(None).unwrap().num_rows(), 2);
    }

    #[test]
    fn an_identity_sees_the_statements_of_its_role_and_token() {
        let identity = |role: u32, token: Option<u64>| Identity {
            login: RoleId(role),
            acting: None,
            token: token.and_then(TokenId::new),
            secret_version: 0,
            org: None,
            door: Door::Postgres,
        };
        let log = QueryLog::new(10);
        for identity in [Some(identity(1, None)), Some(identity(1, Some(7))), None] {
            log.add(QueryLogEntry { identity, ..QueryLogEntry::default() });
        }
        let shown = |owner| log.batch(owner).unwrap().num_rows();
        assert_eq!(shown(None), 3);
        // After SET ROLE too.
        let acting = Identity { acting: Some(RoleId(2)), ..identity(1, None) };
        assert_eq!((shown(Some(identity(1, None))), shown(Some(acting))), (1, 1));
        assert_eq!((shown(Some(identity(1, Some(7)))), shown(Some(identity(1, Some(8))))), (1, 0));
        assert_eq!(shown(Some(identity(2, None))), 0);
    }
}
