//! What a statement has read of the table that it changes: as of which entry of each partition's log. From this follow
//! the conditions of its writes, and the rows that it must read again are those that were refused.
//!
//! ```text
//!   scan for an update ── partition, epoch, index ──▶ Reads ──▶ condition of each part ──▶ leader
//!                                                       ▲                                   │
//!                                                       └──────── refused rows ─────────────┘
//! ```
//!
//! A partition that was read several times, or split since, gets the earliest condition: at worst it refuses rows that
//! have not changed.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::record_batch::RecordBatch;
use parking_lot::Mutex;
use partita_proto::id::{Epoch, PartitionId};
use partita_proto::route::Route;
use partita_proto::service::Condition;

/// Rows of a statement whose keys a partition keeps one by one; those of later writes count as one.
const SINGLE_ROWS_MAX: u64 = 4_096;

/// What a statement has read, and the rows that it must read again.
#[derive(Debug)]
pub(crate) struct Reads {
    positions: Mutex<HashMap<PartitionId, (Epoch, u64)>>,
    refused: Mutex<Vec<RecordBatch>>,
    /// Random number of the statement.
    statement: u64,
    /// Rows that were written.
    written: AtomicU64,
    /// Maximum rows of one request.
    rows_max: usize,
}

impl Reads {
    /// `rows_max`: maximum rows of one request. A request is refused as a whole, so rows that others change too should
    /// travel in small ones.
    pub(crate) fn new(rows_max: usize) -> Self {
        Self {
            positions: Mutex::default(),
            refused: Mutex::default(),
            // The standard library's hashers are seeded with random keys.
            statement: RandomState::new().build_hasher().finish(),
            written: AtomicU64::new(0),
            rows_max: rows_max.max(1),
        }
    }

    /// Notes that a partition was read as of an entry of its log.
    pub(crate) fn note(&self, partition: PartitionId, epoch: Epoch, index: u64) {
        let mut positions = self.positions.lock();
        let position = positions.entry(partition).or_insert((epoch, index));
        *position = (*position).min((epoch, index));
    }

    /// Condition of rows for the partition of a route. It does not hold for one that was not read.
    pub(crate) fn condition(&self, route: &Route) -> Condition {
        let position = self.positions.lock().get(&route.partition).copied();
        let (epoch, index) = position.unwrap_or((Epoch(0), 0));
        let is_bulk = self.written.load(Ordering::Relaxed) > SINGLE_ROWS_MAX;
        Condition { epoch, index, bulk: is_bulk.then_some(self.statement) }
    }

    /// Maximum rows of one request.
    pub(crate) fn rows_max(&self) -> usize {
        self.rows_max
    }

    /// Notes rows that are sent.
    pub(crate) fn sent(&self, rows: usize) {
        self.written.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Keeps rows that were refused.
    pub(crate) fn refuse(&self, rows: RecordBatch) {
        self.refused.lock().push(rows);
    }

    /// The rows that were refused since the last call.
    pub(crate) fn take_refused(&self) -> Vec<RecordBatch> {
        std::mem::take(&mut *self.refused.lock())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use partita_proto::range::{KeyRange, TypedRange};

    use super::*;

    #[test]
    fn a_partition_has_the_earliest_condition_and_one_that_was_not_read_has_none_that_holds() {
        let route = |partition| Route {
            partition: PartitionId(partition),
            range: TypedRange::default(),
            keys: KeyRange::all(),
            epoch: Epoch(3),
            replicas: BTreeMap::new(),
            leader: None,
        };
        let reads = Reads::new(0);
        reads.note(PartitionId(1), Epoch(3), 20);
        reads.note(PartitionId(1), Epoch(3), 10);
        reads.note(PartitionId(1), Epoch(3), 30);
        let condition = reads.condition(&route(1));
        assert_eq!(condition, Condition { epoch: Epoch(3), index: 10, bulk: None });
        let unread = reads.condition(&route(2));
        assert_eq!((unread.epoch, unread.index), (Epoch(0), 0));
        reads.sent(5_000);
        assert!(reads.condition(&route(1)).bulk.is_some());
        assert_eq!(reads.rows_max(), 1);
    }
}
