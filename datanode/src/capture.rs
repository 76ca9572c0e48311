//! Captures of a partition's changes for the copies of its table, and these changes.
//!
//! ```text
//!   applied entry ── rows that took effect ──▶ tail ── changes after an index ──▶ frontends ──▶ copies
//!                                               ▲                                     │
//!                                               └────────── shipped up to an index ◀──┘
//! ```
//!
//! Captures belong to the replicated state ([`crate::requests`]); every replica keeps the tail in memory by itself. Both
//! change under the lock of the requests, together with the engine's version.
//!
//! Invariants:
//! - the tail has all changes after its base, in order, and none that had no effect;
//! - changes after an index are given completely or not at all: after a restart or an overflow they are a [`Gap`],
//!   unless it is certain that none is missing;
//! - changes leave the tail only when every copy has them, or when there is no room for them;
//! - that a copy has rows stays true, so what frontends tell is used before the log has it;
//! - while the partition is closed, because a copy is to take its place, no entry changes its rows: so what it remembers
//!   of the writes that it took is the whole truth about them, on every replica.

use std::collections::{BTreeMap, VecDeque};

use arrow::record_batch::RecordBatch;
use partita_proto::id::{PartitionId, TableId};
use partita_proto::key::PLACEMENT_COLUMN;
use partita_proto::materialized::{Capture, CaptureOrder, Change};
use partita_proto::service::WriteKind;
use partita_proto::size::batch_bytes;
use prost::Message;

/// Maximum bytes of the changes that a replica keeps. A copy that takes longer to fill, or is away for longer, is filled
/// anew.
pub(crate) const TAIL_BYTES_MAX: usize = 256 << 20;
/// Bytes of a change besides its values, in memory and in a message, each time with a schema of its own.
const CHANGE_BYTES: usize = 512;
/// Bytes of each of its columns besides the values.
const COLUMN_BYTES: usize = 384;

/// The capture for one copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CaptureState {
    /// Index of the entry with which the capture began; 0 if it began in the parent's log, before a split.
    pub(crate) begin: u64,
    /// Index up to which the copy has all rows, by the log.
    shipped: u64,
    /// As `shipped`, told to this replica and perhaps not in the log yet.
    reported: u64,
    /// True if writes wait for the copy.
    pub(crate) sync: bool,
    /// Parent whose changes up to an index go before this partition's.
    parent: Option<(PartitionId, u64)>,
    /// True if the partition is closed, because the copy is to take its place.
    closes: bool,
}

impl CaptureState {
    /// Index up to which the copy has all rows.
    pub(crate) fn shipped(&self) -> u64 {
        self.shipped.max(self.reported)
    }

    /// Index up to which the copy needs no changes: it has them, or gets their rows when it is filled.
    pub(crate) fn floor(&self) -> u64 {
        self.begin.max(self.shipped())
    }

    /// Parent whose changes up to an index are to be shipped first. Once anything of this partition is in the copy,
    /// they are.
    pub(crate) fn parent(&self) -> Option<(PartitionId, u64)> {
        self.parent.filter(|_| self.shipped() == 0)
    }

    /// True if the log must have the next report at once: it tells that the copy has the rows with which it is filled.
    /// These have positions at one index, and no change up to there may be shipped any more.
    pub(crate) fn awaits_rows(&self) -> bool {
        self.begin > 0 && self.shipped == 0
    }

    /// True if the log lacks a report that tells more than the log does, given the index of the last change.
    fn is_unrecorded(&self, last_change: u64) -> bool {
        let matters = self.shipped < last_change || (self.shipped == 0 && self.parent.is_some());
        self.reported > self.shipped && matters
    }
}

/// The captures of a partition, by copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Captures {
    by_copy: BTreeMap<TableId, CaptureState>,
}

/// Stored form of the capture for one copy.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StoredCapture {
    #[prost(uint32, tag = "1")]
    copy: u32,
    #[prost(uint64, tag = "2")]
    begin: u64,
    #[prost(uint64, tag = "3")]
    shipped: u64,
    #[prost(bool, tag = "4")]
    sync: bool,
    /// 0: none.
    #[prost(uint64, tag = "5")]
    after_partition: u64,
    #[prost(uint64, tag = "6")]
    after_index: u64,
    #[prost(bool, tag = "7")]
    closes: bool,
}

impl Captures {
    /// True if nothing is captured.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_copy.is_empty()
    }

    /// True if the partition takes no writes and answers no scans, because a copy is to take its place.
    pub(crate) fn is_closed(&self) -> bool {
        self.by_copy.values().any(|state| state.closes)
    }

    /// The capture for a copy.
    pub(crate) fn get(&self, copy: TableId) -> Option<&CaptureState> {
        self.by_copy.get(&copy)
    }

    /// Applies an order from the log; false if it needs a capture that does not exist.
    pub(crate) fn apply(&mut self, order: CaptureOrder, index: u64) -> bool {
        let CaptureOrder { copy, capture } = order;
        match capture {
            Capture::Begin => {
                let state = CaptureState { begin: index, ..CaptureState::default() };
                self.by_copy.entry(copy).or_insert(state);
                return true;
            }
            // A closed partition opens by an order of its own: an end may come late, from those who do not know.
            Capture::End => {
                self.by_copy.retain(|captured, state| *captured != copy || state.closes);
                return true;
            }
            Capture::Reopen => {
                self.by_copy.remove(&copy);
                return true;
            }
            // Of the partition of a copy, whose own changes it does not concern.
            Capture::Detach => return true,
            Capture::Sync | Capture::Shipped(_) | Capture::Close => {}
        }
        let Some(state) = self.by_copy.get_mut(&copy) else { return false };
        match capture {
            Capture::Sync => state.sync = true,
            Capture::Shipped(shipped) => state.shipped = state.shipped.max(shipped),
            Capture::Close => state.closes = true,
            Capture::Begin | Capture::End | Capture::Reopen | Capture::Detach => {}
        }
        true
    }

    /// Notes that a copy has all rows up to an index, before the log has it; false without a capture for the copy.
    pub(crate) fn report(&mut self, copy: TableId, shipped: u64) -> bool {
        let Some(state) = self.by_copy.get_mut(&copy) else { return false };
        state.reported = state.reported.max(shipped);
        true
    }

    /// Reports that the log should get, given the index of the last change.
    pub(crate) fn unrecorded(&self, last_change: u64) -> Vec<CaptureOrder> {
        let unrecorded = self.by_copy.iter().filter(|(_, state)| state.is_unrecorded(last_change));
        let order = |(copy, state): (&TableId, &CaptureState)| CaptureOrder {
            copy: *copy,
            capture: Capture::Shipped(state.reported),
        };
        unrecorded.map(order).collect()
    }

    /// The copies for which writes wait, each with the index up to which it has all rows.
    pub(crate) fn owing(&self) -> Vec<(TableId, u64)> {
        let in_sync = self.by_copy.iter().filter(|(_, state)| state.sync);
        in_sync.map(|(copy, state)| (*copy, state.shipped())).collect()
    }

    /// Index up to which no copy needs changes; `None` without a capture.
    fn floor(&self) -> Option<u64> {
        self.by_copy.values().map(CaptureState::floor).min()
    }

    /// The captures of a partition that is split off from this one, `parent`, by the entry of this index.
    pub(crate) fn of_child(&self, parent: PartitionId, index: u64) -> Self {
        let of_child = |state: &CaptureState| CaptureState {
            sync: state.sync,
            closes: state.closes,
            parent: Some((parent, index)),
            ..CaptureState::default()
        };
        let by_copy = self.by_copy.iter().map(|(copy, state)| (*copy, of_child(state)));
        Self { by_copy: by_copy.collect() }
    }

    /// The stored form.
    pub(crate) fn stored(&self) -> Vec<StoredCapture> {
        let stored = |(copy, state): (&TableId, &CaptureState)| {
            let (after_partition, after_index) =
                state.parent.map_or((0, 0), |(parent, index)| (parent.0, index));
            let CaptureState { begin, shipped, sync, closes, .. } = *state;
            StoredCapture {
                copy: copy.0,
                begin,
                shipped,
                sync,
                after_partition,
                after_index,
                closes,
            }
        };
        self.by_copy.iter().map(stored).collect()
    }

    /// The captures of a stored form.
    pub(crate) fn from_stored(stored: Vec<StoredCapture>) -> Self {
        let state = |capture: StoredCapture| {
            let parent = (PartitionId(capture.after_partition), capture.after_index);
            let state = CaptureState {
                begin: capture.begin,
                shipped: capture.shipped,
                reported: 0,
                sync: capture.sync,
                parent: (capture.after_partition != 0).then_some(parent),
                closes: capture.closes,
            };
            (TableId(capture.copy), state)
        };
        Self { by_copy: stored.into_iter().map(state).collect() }
    }

    /// Removes from the tail the changes that no copy needs.
    pub(crate) fn trim(&self, tail: &mut Tail) {
        match self.floor() {
            Some(floor) => tail.trim(floor),
            None => tail.clear(),
        }
    }
}

/// Changes after an index are not all known any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap;

/// Changes after an index, as the tail gives them.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// The changes, in order.
    pub(crate) entries: Vec<Change>,
    /// Index up to which these are all changes, if there are more.
    pub(crate) cut: Option<u64>,
}

/// The newest changes of a partition that is captured.
#[derive(Debug)]
pub(crate) struct Tail {
    /// Changes with their indexes, which ascend; several may share one.
    entries: VecDeque<(u64, WriteKind, RecordBatch)>,
    bytes: usize,
    bytes_max: usize,
    /// All changes after this index are here, as long as something is captured.
    base: u64,
    /// Index of the last change up to `base`.
    last_before: u64,
}

impl Tail {
    /// An empty tail that has all changes after `base`; `last_before` is the index of the last change up to there.
    pub(crate) fn new(base: u64, last_before: u64, bytes_max: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, bytes_max, base, last_before }
    }

    /// Begins anew after an index; `last_before` as for [`Tail::new`].
    pub(crate) fn reopen(&mut self, base: u64, last_before: u64) {
        *self = Self::new(base, last_before, self.bytes_max);
    }

    fn clear(&mut self) {
        self.reopen(self.base, self.last_before);
    }

    /// Appends the rows of an entry that took effect. Forgets the oldest changes if there is no room.
    pub(crate) fn push(&mut self, index: u64, writes: &[(WriteKind, RecordBatch)]) {
        for (kind, rows) in writes.iter().filter(|(_, rows)| rows.num_rows() > 0) {
            let mut rows = rows.clone();
            // Each table has a placement of its own.
            if let Ok(placement) = rows.schema_ref().index_of(PLACEMENT_COLUMN) {
                rows.remove_column(placement);
            }
            self.bytes += change_bytes(&rows);
            self.entries.push_back((index, *kind, rows));
        }
        while self.bytes > self.bytes_max
            && let Some(oldest) = self.entries.front().map(|(index, ..)| *index)
        {
            self.remove(oldest);
        }
    }

    /// Removes changes up to an index, which every copy has.
    fn trim(&mut self, index: u64) {
        let count = self.entries.partition_point(|(change, ..)| *change <= index);
        let newest = count.checked_sub(1).and_then(|position| self.entries.get(position));
        if let Some(newest) = newest.map(|(change, ..)| *change) {
            self.remove(newest);
        }
    }

    /// Removes the changes up to that of an index, which becomes the base.
    fn remove(&mut self, index: u64) {
        let count = self.entries.partition_point(|(change, ..)| *change <= index);
        let removed: usize =
            self.entries.drain(..count).map(|(.., rows)| change_bytes(&rows)).sum();
        self.bytes = self.bytes.saturating_sub(removed);
        (self.base, self.last_before) = (index, index);
    }

    /// The changes after an index: all of them, or those of so many indexes that their rows have `bytes_max` bytes. The
    /// changes of one index stay together.
    ///
    /// # Errors
    /// [`Gap`] when some of them may be missing.
    pub(crate) fn after(&self, start: u64, bytes_max: usize) -> Result<Piece, Gap> {
        if start < self.base && start < self.last_before {
            return Err(Gap);
        }
        let first = self.entries.partition_point(|(change, ..)| *change <= start);
        let mut piece = Piece { entries: Vec::new(), cut: None };
        let (mut bytes, mut previous) = (0, start);
        for (index, kind, rows) in self.entries.range(first..) {
            if *index != previous && bytes >= bytes_max {
                piece.cut = Some(previous);
                break;
            }
            bytes += change_bytes(rows);
            previous = *index;
            piece.entries.push(Change { index: *index, kind: *kind, rows: rows.clone() });
        }
        Ok(piece)
    }
}

fn change_bytes(rows: &RecordBatch) -> usize {
    batch_bytes(rows) + CHANGE_BYTES + COLUMN_BYTES * rows.num_columns()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array, ArrayRef, Int64Array, UInt16Array};

    use super::*;

    const COPIES: [TableId; 2] = [TableId(5), TableId(6)];

    fn batch(values: &[i64]) -> RecordBatch {
        let values: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
        let placement: ArrayRef = Arc::new(UInt16Array::from_value(3, values.len()));
        RecordBatch::try_from_iter([(PLACEMENT_COLUMN, placement), ("v", values)]).unwrap()
    }

    fn push(tail: &mut Tail, index: u64) {
        tail.push(index, &[(WriteKind::Put, batch(&[1])), (WriteKind::Delete, batch(&[2]))]);
    }

    fn order(copy: TableId, capture: Capture) -> CaptureOrder {
        CaptureOrder { copy, capture }
    }

    /// Indexes of the changes after one, and where they are cut.
    fn after(tail: &Tail, start: u64, bytes_max: usize) -> Result<(Vec<u64>, Option<u64>), Gap> {
        let piece = tail.after(start, bytes_max)?;
        Ok((piece.entries.iter().map(|change| change.index).collect(), piece.cut))
    }

    #[test]
    fn changes_of_one_entry_stay_together_and_have_the_columns_of_the_table() {
        let mut tail = Tail::new(0, 0, TAIL_BYTES_MAX);
        tail.push(3, &[(WriteKind::Put, batch(&[]))]);
        for index in [4, 6] {
            push(&mut tail, index);
        }
        assert_eq!(after(&tail, 0, 1), Ok((vec![4, 4], Some(4))));
        assert_eq!(after(&tail, 0, 0), Ok((vec![], Some(0))));
        assert_eq!(after(&tail, 4, 1), Ok((vec![6, 6], None)));
        assert_eq!(after(&tail, 0, TAIL_BYTES_MAX), Ok((vec![4, 4, 6, 6], None)));
        assert_eq!(after(&tail, 6, 0), Ok((vec![], None)));
        let piece = tail.after(4, 1).unwrap();
        assert_eq!(piece.entries[0].rows.schema_ref().fields().len(), 1);
        assert_eq!(
            [piece.entries[0].kind, piece.entries[1].kind],
            [WriteKind::Put, WriteKind::Delete]
        );
    }

    #[test]
    fn changes_before_the_base_are_missing_unless_there_were_none() {
        // Files reach up to 20, the last change before was 15.
        let mut tail = Tail::new(20, 15, TAIL_BYTES_MAX);
        push(&mut tail, 22);
        assert_eq!(after(&tail, 14, 1), Err(Gap));
        for start in [15, 17, 20, 21] {
            assert_eq!(after(&tail, start, 1), Ok((vec![22, 22], None)), "{start}");
        }
    }

    #[test]
    fn a_tail_without_room_forgets_the_oldest_entries_as_a_whole() {
        let mut tail = Tail::new(0, 0, 5 * (CHANGE_BYTES + COLUMN_BYTES));
        for index in 1..=3 {
            push(&mut tail, index);
        }
        assert_eq!(after(&tail, 0, TAIL_BYTES_MAX), Err(Gap));
        assert_eq!(after(&tail, 1, TAIL_BYTES_MAX), Ok((vec![2, 2, 3, 3], None)));
        assert!(tail.bytes <= tail.bytes_max);
        let mut narrow = Tail::new(0, 0, CHANGE_BYTES);
        push(&mut narrow, 7);
        assert_eq!(after(&narrow, 6, 1), Err(Gap));
        assert_eq!((after(&narrow, 7, 1), narrow.bytes), (Ok((vec![], None)), 0));
    }

    #[test]
    fn changes_are_kept_until_the_slowest_copy_has_them() {
        let (mut captures, mut tail) = (Captures::default(), Tail::new(0, 0, TAIL_BYTES_MAX));
        let [first, second] = COPIES;
        assert!(!captures.apply(order(first, Capture::Shipped(3)), 1));
        assert!(captures.apply(order(first, Capture::Begin), 1));
        assert!(captures.apply(order(second, Capture::Begin), 2));
        for index in 3..=6 {
            push(&mut tail, index);
        }
        assert!(captures.report(first, 6));
        captures.trim(&mut tail);
        assert_eq!(after(&tail, 2, TAIL_BYTES_MAX).unwrap().0.len(), 8);
        assert!(captures.apply(order(second, Capture::Shipped(4)), 7));
        captures.trim(&mut tail);
        assert_eq!(after(&tail, 3, 1), Err(Gap));
        assert_eq!(after(&tail, 4, TAIL_BYTES_MAX), Ok((vec![5, 5, 6, 6], None)));
        assert!(captures.apply(order(second, Capture::End), 8));
        captures.trim(&mut tail);
        assert_eq!(tail.entries.len(), 0);
    }

    #[test]
    fn a_report_goes_to_the_log_once_if_it_tells_of_changes() {
        let mut captures = Captures::default();
        let [copy, _] = COPIES;
        assert!(!captures.report(copy, 9));
        assert!(captures.apply(order(copy, Capture::Begin), 1));
        assert!(captures.report(copy, 9));
        assert!(captures.report(copy, 8), "late");
        let expected = order(copy, Capture::Shipped(9));
        assert_eq!(captures.unrecorded(5), [expected]);
        assert!(captures.get(copy).unwrap().awaits_rows());
        assert!(captures.apply(expected, 10));
        assert!(!captures.get(copy).unwrap().awaits_rows());
        assert_eq!(captures.unrecorded(5), []);
        // The report's own entry is no change, and no reason for another report.
        assert!(captures.report(copy, 10));
        assert_eq!(captures.unrecorded(5), []);
        assert_eq!(captures.unrecorded(11), [order(copy, Capture::Shipped(10))]);
        // That the parent's changes are in the copy matters without any change.
        let mut child = captures.of_child(PartitionId(7), 20);
        assert!(!child.get(copy).unwrap().awaits_rows(), "its parent has them");
        assert!(child.report(copy, 20));
        assert_eq!(child.unrecorded(0), [order(copy, Capture::Shipped(20))]);
    }
}
