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
use partita_proto::hash::hash_bytes;
use partita_proto::id::{Epoch, PartitionId, SchemaVersion};
use partita_proto::route::Route;
use partita_proto::service::Condition;
use tokio::sync::MutexGuard;

/// Number of turns; keys that share one wait for each other in vain.
const TURNS: usize = 256;
/// Rows of a statement whose keys a partition keeps one by one; those of later writes count as one.
const SINGLE_ROWS_MAX: u64 = 4_096;

/// Positions as of which a statement has read, and the rows that it must read again.
#[derive(Debug)]
pub(crate) struct Reads {
    positions: Mutex<HashMap<PartitionId, (Epoch, u64)>>,
    refused: Mutex<Vec<RecordBatch>>,
    /// Entries by which the partitions took rows.
    stored: Mutex<HashMap<PartitionId, (Epoch, u64)>>,
    /// Version of the schema by which it reads.
    schema: SchemaVersion,
    /// Random number of the statement.
    statement: u64,
    /// Rows that were written.
    written: AtomicU64,
    /// Maximum rows of one request.
    rows_max: usize,
    /// True if the rows for a partition are sent in one request, however large they are.
    is_whole: bool,
    /// True if no cell of the rows of a wide table may have been written.
    by_row: bool,
}

impl Reads {
    /// `rows_max`: maximum rows of one request. A request is refused as a whole, so rows that others change too should
    /// travel in small ones.
    pub(crate) fn new(schema: SchemaVersion, rows_max: usize) -> Self {
        Self {
            positions: Mutex::default(),
            refused: Mutex::default(),
            stored: Mutex::default(),
            schema,
            // The standard library's hashers are seeded with random keys.
            statement: RandomState::new().build_hasher().finish(),
            written: AtomicU64::new(0),
            rows_max: rows_max.max(1),
            is_whole: false,
            by_row: false,
        }
    }

    /// Reads of all cells of a row of a wide table: the row is written whole, where no cell of it was written since.
    pub(crate) fn of_row(schema: SchemaVersion) -> Self {
        Self { is_whole: true, by_row: true, ..Self::new(schema, usize::MAX) }
    }

    /// The same reads, for writes whose refused rows are kept apart and that are sent whole.
    pub(crate) fn fork(&self) -> Self {
        Self::of(self.positions.lock().clone(), self)
    }

    /// The state after the writes: conditions hold for rows that nobody has written since.
    pub(crate) fn after_writes(&self) -> Self {
        Self::of(self.stored.lock().clone(), self)
    }

    fn of(positions: HashMap<PartitionId, (Epoch, u64)>, reads: &Self) -> Self {
        Self {
            positions: Mutex::new(positions),
            refused: Mutex::default(),
            stored: Mutex::default(),
            schema: reads.schema,
            statement: reads.statement,
            written: AtomicU64::new(reads.written.load(Ordering::Relaxed)),
            rows_max: usize::MAX,
            is_whole: true,
            by_row: reads.by_row,
        }
    }

    /// Notes that a partition was read as of an entry of its log.
    pub(crate) fn note(&self, partition: PartitionId, epoch: Epoch, index: u64) {
        keep_first(&mut self.positions.lock(), partition, (epoch, index));
    }

    /// Notes that a partition took rows by an entry of its log.
    pub(crate) fn store(&self, partition: PartitionId, epoch: Epoch, index: u64) {
        keep_first(&mut self.stored.lock(), partition, (epoch, index));
    }

    /// Condition of rows for the partition of a route. It does not hold for one that was not read.
    pub(crate) fn condition(&self, route: &Route) -> Condition {
        let position = self.positions.lock().get(&route.partition).copied();
        let (epoch, index) = position.unwrap_or((Epoch(0), 0));
        let is_bulk = self.written.load(Ordering::Relaxed) > SINGLE_ROWS_MAX;
        let bulk = is_bulk.then_some(self.statement);
        Condition { epoch, index, bulk, schema: self.schema, by_row: self.by_row }
    }

    /// True if the rows for a partition are sent in one request: a new row and its former key.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
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

/// Keeps the earliest position of each partition.
fn keep_first(
    positions: &mut HashMap<PartitionId, (Epoch, u64)>,
    partition: PartitionId,
    position: (Epoch, u64),
) {
    let first = positions.entry(partition).or_insert(position);
    *first = (*first).min(position);
}

/// Turns of statements that had rows refused: of those that change the same rows, one at a time reads and writes. Without
/// turns all of them would read the same state, and all but one would do so in vain.
#[derive(Debug)]
pub(crate) struct Turns(Vec<tokio::sync::Mutex<()>>);

impl Default for Turns {
    fn default() -> Self {
        Self((0..TURNS).map(|_| tokio::sync::Mutex::default()).collect())
    }
}

impl Turns {
    /// Waits for the turn of statements that change a key. The statement gives up its place meanwhile.
    pub(crate) async fn take(&self, key: &[u8]) -> MutexGuard<'_, ()> {
        let number = hash_bytes(key) % self.0.len() as u64;
        let turn = &self.0[usize::try_from(number).unwrap_or_default()];
        let pause = partita_lanes::pause();
        let guard = turn.lock().await;
        pause.end().await;
        guard
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
        let reads = Reads::new(SchemaVersion(5), 0);
        reads.note(PartitionId(1), Epoch(3), 20);
        reads.note(PartitionId(1), Epoch(3), 10);
        reads.note(PartitionId(1), Epoch(3), 30);
        let condition = reads.condition(&route(1));
        let schema = SchemaVersion(5);
        let expected = Condition { epoch: Epoch(3), index: 10, bulk: None, schema, by_row: false };
        assert_eq!(condition, expected);
        assert!(Reads::of_row(schema).condition(&route(1)).by_row);
        let unread = reads.condition(&route(2));
        assert_eq!((unread.epoch, unread.index), (Epoch(0), 0));
        reads.sent(5_000);
        assert!(reads.condition(&route(1)).bulk.is_some());
        assert_eq!(reads.rows_max(), 1);
        let fork = reads.fork();
        assert_eq!(fork.condition(&route(1)).index, 10);
        assert!(fork.is_whole() && !reads.is_whole());
        fork.store(PartitionId(2), Epoch(3), 40);
        let back = fork.after_writes();
        assert_eq!((back.condition(&route(2)).index, back.condition(&route(1)).index), (40, 0));
    }

    #[tokio::test]
    async fn statements_that_change_one_key_take_turns() {
        let turns = Turns::default();
        let first = turns.take(b"a").await;
        let second = turns.take(b"a");
        tokio::pin!(second);
        let waits = tokio::time::timeout(std::time::Duration::from_millis(20), &mut second).await;
        assert!(waits.is_err());
        drop(first);
        drop(second.await);
    }
}
