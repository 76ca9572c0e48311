//! The last statements and what they cost: `sys.query_log`.
//!
//! A ring of bounded length; the oldest entries go first. Texts are cut to [`TEXT_BYTES_MAX`].

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, StringViewArray, TimestampMillisecondArray, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;
use parking_lot::Mutex;
use partita_proto::id::TableId;

use crate::error::SqlError;

/// The longest text that is kept.
pub const TEXT_BYTES_MAX: usize = 4 << 10;

/// One statement that ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueryLogEntry {
    /// When it began: milliseconds since 1970-01-01T00:00:00Z.
    pub started_ms: i64,
    /// Its database.
    pub database: String,
    /// Its user.
    pub user: String,
    /// What kind it is: `SELECT`, `INSERT` and so on.
    pub kind: &'static str,
    /// Its text, perhaps cut.
    pub text: String,
    /// Partitions of the tables that it reads or writes.
    pub partitions_total: u64,
    /// Those of them that it asked.
    pub partitions_touched: u64,
    /// How many partitions each of its scans asked, and of which table.
    pub fan_out: Vec<(TableId, u64)>,
    /// Rows decoded by its scans.
    pub rows_scanned: u64,
    /// Bytes decoded by its scans.
    pub bytes_scanned: u64,
    /// Files that its scans opened.
    pub files_read: u64,
    /// Files that its scans skipped.
    pub files_pruned: u64,
    /// Whether it asked one partition only.
    pub fast_path: bool,
    /// Which kind of index helped; there are none yet.
    pub index_used: Option<&'static str>,
    /// How long it took, the client's reading included.
    pub milliseconds: f64,
    /// Rows returned or affected.
    pub rows: u64,
    /// What it failed with.
    pub error: Option<String>,
}

/// The last statements.
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

    /// Adds an entry, and forgets the oldest if there are too many.
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

    /// All entries, the oldest first.
    pub fn entries(&self) -> Vec<Arc<QueryLogEntry>> {
        self.entries.lock().iter().map(Arc::clone).collect()
    }

    /// The columns of `sys.query_log`.
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
            Field::new("ms", DataType::Float64, false),
            count("rows"),
            text("error", true),
        ]))
    }

    /// The rows of `sys.query_log`.
    pub(crate) fn batch(&self) -> Result<RecordBatch, SqlError> {
        let entries = self.entries();
        let text = |of: &dyn Fn(&QueryLogEntry) -> Option<String>| -> ArrayRef {
            Arc::new(entries.iter().map(|entry| of(entry)).collect::<StringViewArray>())
        };
        let count = |of: &dyn Fn(&QueryLogEntry) -> u64| -> ArrayRef {
            Arc::new(UInt64Array::from_iter_values(entries.iter().map(|entry| of(entry))))
        };
        let started =
            TimestampMillisecondArray::from_iter_values(entries.iter().map(|e| e.started_ms));
        let fast: BooleanArray = entries.iter().map(|entry| Some(entry.fast_path)).collect();
        let took = Float64Array::from_iter_values(entries.iter().map(|e| e.milliseconds));
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
            Arc::new(took),
            count(&|entry| entry.rows),
            text(&|entry| entry.error.clone()),
        ];
        Ok(RecordBatch::try_new(Self::schema(), columns)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(log.batch().unwrap().num_rows(), 2);
    }
}
