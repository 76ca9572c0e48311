//! Materialized copies: tables with the rows of another one, in the order of another key.
//!
//! ```text
//!   log of a source's partition ─ capture ─▶ changes after an index ─ frontends ─▶ rows with their ship ─▶ copy
//! ```
//!
//! A copy has the columns, the key columns and the options of its source; the order of the key, the placement and the
//! partitions are its own. Each source partition numbers its changes by its own log. Each partition of the copy
//! remembers, for every source partition, the position up to which it took rows: so rows that come twice, from any
//! number of frontends, are taken once and in order.
//!
//! A re-keying is a copy that takes the place of its source: it is filled and kept in step as any copy, then the source's
//! partitions are closed ([`Capture::Close`]), and one change of the catalog exchanges the partitions of the two tables
//! ([`CopyChange::Exchange`]). The table keeps its id and everything that goes by it. A table without a key gets its
//! first one in the same way ([`is_first_key`]), but its copy follows no changes: the frontend that fills it proves that
//! there were none until the partitions were closed, or closes them before it fills.

use arrow::record_batch::RecordBatch;

use crate::id::{ColumnId, Epoch, PartitionId, TableId};
use crate::schema::{Semantic, TableSchema};
use crate::service::WriteKind;

/// Maximum number of copies of a table.
pub const COPIES_MAX: usize = 8;

/// Position in the changes of a source partition: of its log, and of the rows that it had when the capture began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Raft index in the source partition's log.
    pub index: u64,
    /// Number among the batches at that index, from 1; 0: nothing of them.
    pub part: u64,
}

/// Rows of a source partition, for a partition of its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ship {
    /// Partition from which the rows come.
    pub source: PartitionId,
    /// Position after which the rows begin.
    pub from: Position,
    /// Position of the last of the rows.
    pub to: Position,
}

/// State of a copy, as meta records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// Rows of its source are still missing.
    Filling,
    /// Every acknowledged row of its source is in the copy.
    InStep,
    /// Rows are missing, for ever: a new table takes the copy's place.
    Lost,
    /// The partitions of its source are being closed, so that the copy can take their place.
    Switching,
    /// The switch was given up, and the partitions of its source are being opened again. It is as good as lost.
    Reopening,
    /// It has the former partitions of its source, which are closed: they only tell which writes they took.
    Retired,
}

impl CopyState {
    /// The state as system tables show it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Filling => "filling",
            Self::InStep => "in step",
            Self::Lost => "lost",
            Self::Switching => "switching",
            Self::Reopening => "reopening",
            Self::Retired => "retired",
        }
    }

    /// True if such a copy will never have all rows of its source: writes do not wait for it.
    #[must_use]
    pub const fn is_given_up(self) -> bool {
        matches!(self, Self::Lost | Self::Reopening)
    }
}

/// Settings and progress of a copy that is to take the place of its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rekeying {
    /// True if no rows are copied, and the tables are not exchanged.
    pub is_paused: bool,
    /// Maximum rows that are copied per second while the copy is being filled; 0: unlimited.
    pub rows_per_second: u64,
    /// Rows copied so far, without later changes, as the filler told last.
    pub rows: u64,
}

/// An operator's order about a re-keying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// Copies no more rows until it is resumed.
    Pause,
    /// Goes on.
    Resume,
    /// Bounds the rows that are copied per second; 0: unlimited.
    Throttle(u64),
    /// Gives the re-keying up. Not possible any more once the source's partitions are being closed.
    Cancel,
}

/// Source and state of a table that is a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOf {
    /// Table whose rows the copy has.
    pub source: TableId,
    /// State of the copy.
    pub state: CopyState,
    /// Random number of the frontend that fills the copy; 0: none.
    pub filler: u64,
    /// Number of the last sign of life of the filler.
    pub beat: u64,
    /// Reason of the loss, of this table or of the one that it replaced.
    pub reason: Option<String>,
    /// Number of this fill: 1 for the first table of the copy.
    pub fills: u32,
    /// Settings and progress, if the copy is to take the place of its source.
    pub rekeying: Option<Rekeying>,
}

impl CopyOf {
    /// State of a new copy of a table.
    #[must_use]
    pub const fn new(source: TableId, rekeying: Option<Rekeying>) -> Self {
        Self {
            source,
            state: CopyState::Filling,
            filler: 0,
            beat: 0,
            reason: None,
            fills: 1,
            rekeying,
        }
    }

    /// True if the copy is to take the place of its source, or has done so.
    #[must_use]
    pub const fn is_rekeying(&self) -> bool {
        self.rekeying.is_some()
    }

    /// True if queries may read the copy in place of its source. One that is to take that place is not read before.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.state == CopyState::InStep && !self.is_rekeying()
    }
}

/// Change of captures, through the source partition's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// Changes after this entry are captured. Keeps a capture that exists.
    Begin,
    /// Writes after this entry are not acknowledged before the copy has them.
    Sync,
    /// The copy has everything up to this index.
    Shipped(u64),
    /// The partition takes no writes and answers no scans after this entry, because the copy is to take its place. It
    /// still tells whether it took a write before.
    Close,
    /// Changes are captured no longer. A partition that is closed stays so.
    End,
    /// A closed partition takes writes and answers scans again, and its changes are captured no longer.
    Reopen,
    /// Sent to a partition of the copy itself, when that has taken the place of its source: it takes no rows by their
    /// positions any more. All that may still come were taken before.
    Detach,
}

/// Order to a source partition about the capture for one copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureOrder {
    /// Copy for which changes are captured.
    pub copy: TableId,
    /// Change of the capture.
    pub capture: Capture,
}

/// Request for the changes of a source partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangesRequest {
    /// Partition of the source.
    pub partition: PartitionId,
    /// The epoch of the sender's route.
    pub epoch: Epoch,
    /// Copy whose capture is read.
    pub copy: TableId,
    /// Raft index after which the changes begin.
    pub after: u64,
    /// Bytes of rows after which no further index is begun. The changes of one index are never cut.
    pub bytes_max: usize,
}

/// Changes of a source partition after an index.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes {
    /// Index up to which these are all changes. No more than asked for.
    pub to: u64,
    /// Largest captured index.
    pub last: u64,
    /// Index up to which the copy has all rows.
    pub shipped: u64,
    /// True if writes wait for the copy.
    pub sync: bool,
    /// Partition whose changes up to an index are to be shipped first.
    pub after: Option<(PartitionId, u64)>,
    /// The changes, in the order in which they were made.
    pub entries: Vec<Change>,
}

/// One change of a source partition. Several may share an index.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Raft index at which the change was made.
    pub index: u64,
    /// Effect of the rows.
    pub kind: WriteKind,
    /// Rows by storage name, as the partition took them.
    pub rows: RecordBatch,
}

/// Change of the catalog about a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyChange {
    /// Takes a copy that nobody fills. Changes nothing if somebody does, or while the source is being truncated: that
    /// ends captures.
    Take {
        /// Copy to fill.
        copy: TableId,
        /// Random number of the frontend, not 0.
        filler: u64,
    },
    /// A sign of life of the filler.
    Beat {
        /// Copy that is being filled.
        copy: TableId,
        /// Frontend that fills it.
        filler: u64,
        /// Number of the sign, larger than that of the one before.
        beat: u64,
        /// Rows copied so far.
        rows: u64,
    },
    /// All rows are there: the copy is in step. Changes nothing unless the partitions include all those that the source
    /// has now, and none of these is being split or truncated.
    Finish {
        /// Copy that is full.
        copy: TableId,
        /// Frontend that filled it.
        filler: u64,
        /// Partitions of the source that wait for the copy, and whose changes it has.
        partitions: Vec<PartitionId>,
    },
    /// The copy lacks rows, for ever, or cannot take its source's place. Changes nothing if it is lost or gone, which is no
    /// error. One that was switching is reopening then.
    Lose {
        /// Copy that lacks rows.
        copy: TableId,
        /// Message that says why.
        reason: String,
    },
    /// A lost copy is replaced by a new, empty table of its name.
    Replace {
        /// Copy to replace.
        copy: TableId,
        /// Last sign of life of a filler that has gone: then a copy that is being filled is replaced, if there was none
        /// since.
        beat: Option<u64>,
    },
    /// An order about a re-keying. Changes nothing if it is too late for it.
    Steer {
        /// Copy that is to take the place of its source.
        copy: TableId,
        /// The order.
        steering: Steering,
    },
    /// The source's partitions may be closed. Changes nothing unless the copy is in step and not paused, and both tables
    /// are ready, without a partition that is being split.
    Switch {
        /// Copy that is to take the place of its source.
        copy: TableId,
    },
    /// Exchanges key, placement and partitions of the copy and its source; the copy is retired then. Changes nothing
    /// unless the partitions include all those that the source has, and both tables are ready.
    Exchange {
        /// Copy that takes the place of its source.
        copy: TableId,
        /// Partitions of the source that are closed, and whose last changes the copy has.
        partitions: Vec<PartitionId>,
    },
    /// The source's partitions are open again: the copy is lost. Changes nothing unless these include all that the source
    /// has.
    Reopened {
        /// Copy that was to take the place of its source.
        copy: TableId,
        /// Partitions of the source that are open.
        partitions: Vec<PartitionId>,
    },
    /// Drops a retired copy, with the former partitions.
    Discard {
        /// The retired copy.
        copy: TableId,
    },
}

impl CopyChange {
    /// Copy that is changed.
    #[must_use]
    pub const fn copy(&self) -> TableId {
        match self {
            Self::Take { copy, .. }
            | Self::Beat { copy, .. }
            | Self::Finish { copy, .. }
            | Self::Lose { copy, .. }
            | Self::Replace { copy, .. }
            | Self::Steer { copy, .. }
            | Self::Switch { copy }
            | Self::Exchange { copy, .. }
            | Self::Reopened { copy, .. }
            | Self::Discard { copy } => *copy,
        }
    }
}

/// True if a copy of a table may have this key: its key columns, each once, in any order.
#[must_use]
pub fn copy_key_fits(source: &TableSchema, key: &[ColumnId]) -> bool {
    let sorted = |key: &[ColumnId]| {
        let mut columns = key.to_vec();
        columns.sort_unstable();
        columns
    };
    sorted(&source.key) == sorted(key)
}

/// True if this key is the first one that the clients of a table without a key give it.
#[must_use]
pub fn is_first_key(source: &TableSchema, key: &[ColumnId]) -> bool {
    let is_shown = |id: &ColumnId| source.shown().any(|column| column.id == *id);
    source.is_keyless() && !key.is_empty() && key.iter().all(is_shown)
}

/// Schema of a table without a key when it has this key: the hidden one is gone, and the columns of the key take no
/// NULL.
#[must_use]
pub fn with_first_key(source: &TableSchema, key: &[ColumnId]) -> TableSchema {
    let mut schema = TableSchema { key: key.to_vec(), ..source.clone() };
    schema.columns.retain(|column| !column.is_hidden());
    for column in schema.columns.iter_mut().filter(|column| key.contains(&column.id)) {
        column.nullable = false;
        if column.semantic == Semantic::Field {
            column.semantic = Semantic::Tag;
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::schema::{Column, ColumnType};

    #[test]
    fn a_copy_has_every_key_column_once() {
        let source = arbitrary::table(&[ColumnType::String, ColumnType::Int64, ColumnType::Date]);
        let fits = |key: &[u32]| {
            let key: Vec<_> = key.iter().copied().map(ColumnId).collect();
            copy_key_fits(&source, &key)
        };
        assert!(fits(&[3, 1, 2]) && fits(&[1, 2, 3]));
        assert!(!fits(&[3, 1]) && !fits(&[3, 1, 2, 2]) && !fits(&[3, 1, 1]) && !fits(&[3, 1, 4]));
    }

    #[test]
    fn a_table_without_a_key_gets_its_first_one_of_columns_that_clients_see() {
        let keyed = arbitrary::table(&[ColumnType::String, ColumnType::Int64]);
        let first = keyed.key.clone();
        assert!(!is_first_key(&keyed, &first), "it has a key");
        let hidden = keyed.next_column;
        let mut keyless = TableSchema { key: vec![hidden], ..keyed };
        keyless.columns.push(Column::of_rows(hidden));
        assert!(keyless.is_keyless() && is_first_key(&keyless, &first));
        assert!(!is_first_key(&keyless, &[]) && !is_first_key(&keyless, &[hidden]));
        let schema = with_first_key(&keyless, &first);
        assert!(!schema.is_keyless() && schema.columns.iter().all(|column| !column.is_hidden()));
        assert!(schema.key_columns().all(|column| !column.nullable));
        assert_eq!(schema.key, first);
    }

    #[test]
    fn only_a_copy_that_stays_one_is_read_in_place_of_its_source() {
        let states = [
            CopyState::Filling,
            CopyState::InStep,
            CopyState::Lost,
            CopyState::Switching,
            CopyState::Reopening,
            CopyState::Retired,
        ];
        for state in states {
            let of = |rekeying| CopyOf { state, ..CopyOf::new(TableId(1), rekeying) };
            assert_eq!(of(None).is_readable(), state == CopyState::InStep, "{state:?}");
            assert!(!of(Some(Rekeying::default())).is_readable(), "{state:?}");
        }
    }

    #[test]
    fn positions_are_ordered_by_index_and_then_by_part() {
        let at = |index, part| Position { index, part };
        assert!(at(1, 9) < at(2, 0) && at(2, 0) < at(2, 1));
        assert_eq!(Position::default(), at(0, 0));
    }
}
