//! The keys of a partition's newest writes, by which conditions of writes are decided ([`Condition`]).
//!
//! ```text
//!   log:     .. track .. write .. write .. write .. conditional write, read as of R
//!                 |        |                  |
//!               floor      └── hash of key -> newest index ──┘     refused if R < floor, or a key's index > R
//! ```
//!
//! Part of the replicated state, as the remembered requests are: every replica decides alike, whatever it has flushed.
//! A decision looks at memory only, because entries are applied without waiting for a disk; so the keys are those of the
//! newest writes, and a condition that was read before them is refused. Keys are kept as hashes: two keys with one hash
//! cost a refusal, and never let a write pass.
//!
//! A partition tracks keys from the first scan for an update on, until many rows have been written without a condition,
//! or its range or schema changes: tables that only get inserts have no cost.
//!
//! A statement that writes many rows would push its own scan out of the window. Its writes are kept as one index for
//! the statement, which refuses all conditions of others that were read before it.
//!
//! Invariants:
//! - of every entry behind the floor, the hashes of all keys are here, or its statement is;
//! - what is refused stays refused: the floor and the indexes of a key only grow, and tracking begins again at the end
//!   of the log.

use std::collections::{BTreeMap, HashMap, VecDeque};

use partita_proto::hash::hash_bytes;
use partita_proto::service::Condition;
use prost::Message;

/// Maximum keys. About 3 MiB of memory when full, and 700 KiB beside the files.
const KEYS_MAX: usize = 65_536;
/// Rows written without a condition, since the last scan or write with one, after which tracking ends.
const IDLE_ROWS_MAX: u64 = 4 * KEYS_MAX as u64;
/// Maximum statements of many rows.
const STATEMENTS_MAX: usize = 64;

/// The keys of the writes since an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tracked {
    /// Index of the last entry of which keys may be missing.
    floor: u64,
    /// Hash of each written row's key and index of its entry, oldest first.
    order: VecDeque<(u64, u64)>,
    /// Newest index of each hash in `order`.
    newest: HashMap<u64, u64>,
    /// Newest index of each statement that writes many rows.
    statements: BTreeMap<u64, u64>,
    /// Rows written without a condition since the last use.
    idle_rows: u64,
}

/// The stored form.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StoredTracked {
    #[prost(uint64, tag = "1")]
    floor: u64,
    /// Two parallel lists, oldest first; an index is the difference to the previous one.
    #[prost(fixed64, repeated, tag = "2")]
    hashes: Vec<u64>,
    #[prost(uint64, repeated, tag = "3")]
    indexes: Vec<u64>,
    /// Two parallel lists.
    #[prost(fixed64, repeated, tag = "4")]
    statements: Vec<u64>,
    #[prost(uint64, repeated, tag = "5")]
    statement_indexes: Vec<u64>,
    #[prost(uint64, tag = "6")]
    idle_rows: u64,
}

impl Tracked {
    /// Begins at an entry: its keys and those before it are not known.
    pub(crate) fn since(index: u64) -> Self {
        Self { floor: index, ..Self::default() }
    }

    /// Notes that conditions are in use.
    pub(crate) fn used(&mut self) {
        self.idle_rows = 0;
    }

    /// True while conditions are in use.
    pub(crate) fn is_used(&self) -> bool {
        self.idle_rows <= IDLE_ROWS_MAX
    }

    /// Notes rows that an entry wrote without a condition.
    pub(crate) fn plain<'k>(&mut self, index: u64, keys: impl ExactSizeIterator<Item = &'k [u8]>) {
        self.idle_rows = self.idle_rows.saturating_add(keys.len() as u64);
        self.keep(index, keys);
    }

    /// Notes rows that an entry wrote under a condition.
    pub(crate) fn conditional<'k>(
        &mut self,
        index: u64,
        condition: &Condition,
        keys: impl ExactSizeIterator<Item = &'k [u8]>,
    ) {
        let Some(statement) = condition.bulk else { return self.keep(index, keys) };
        self.statements.insert(statement, index);
        if self.statements.len() <= STATEMENTS_MAX {
            return;
        }
        let oldest = self.statements.iter().min_by_key(|(_, index)| **index);
        if let Some((oldest, last)) = oldest.map(|(oldest, last)| (*oldest, *last)) {
            self.statements.remove(&oldest);
            self.floor = self.floor.max(last);
        }
    }

    /// True if none of the keys was written after the entry that the condition names.
    pub(crate) fn holds<'k>(
        &self,
        condition: &Condition,
        mut keys: impl Iterator<Item = &'k [u8]>,
    ) -> bool {
        let read = condition.index;
        let by_others =
            |(statement, index): (&u64, &u64)| *index > read && condition.bulk != Some(*statement);
        let is_newer =
            |key: &[u8]| self.newest.get(&hash_bytes(key)).is_some_and(|index| *index > read);
        read >= self.floor && !self.statements.iter().any(by_others) && !keys.any(is_newer)
    }

    fn keep<'k>(&mut self, index: u64, keys: impl ExactSizeIterator<Item = &'k [u8]>) {
        if keys.len() >= KEYS_MAX {
            self.order.clear();
            self.newest.clear();
            self.floor = index;
            return;
        }
        for key in keys {
            let hash = hash_bytes(key);
            self.order.push_back((hash, index));
            self.newest.insert(hash, index);
        }
        while self.order.len() > KEYS_MAX
            && let Some((hash, index)) = self.order.pop_front()
        {
            if self.newest.get(&hash) == Some(&index) {
                self.newest.remove(&hash);
            }
            self.floor = self.floor.max(index);
        }
    }

    pub(crate) fn stored(&self) -> StoredTracked {
        let mut stored = StoredTracked {
            floor: self.floor,
            statements: self.statements.keys().copied().collect(),
            statement_indexes: self.statements.values().copied().collect(),
            idle_rows: self.idle_rows,
            ..StoredTracked::default()
        };
        let mut previous = 0;
        for (hash, index) in &self.order {
            stored.hashes.push(*hash);
            // Entries are applied in order.
            stored.indexes.push(index.saturating_sub(previous));
            previous = *index;
        }
        stored
    }

    /// `None` if the lists differ in length.
    pub(crate) fn from_stored(stored: StoredTracked) -> Option<Self> {
        let StoredTracked { floor, hashes, indexes, statements, statement_indexes, idle_rows } =
            stored;
        if hashes.len() != indexes.len() || statements.len() != statement_indexes.len() {
            return None;
        }
        let statements = statements.into_iter().zip(statement_indexes).collect();
        let mut tracked = Self { floor, statements, idle_rows, ..Self::default() };
        let mut index: u64 = 0;
        for (hash, step) in hashes.into_iter().zip(indexes) {
            index = index.saturating_add(step);
            tracked.order.push_back((hash, index));
            tracked.newest.insert(hash, index);
        }
        Some(tracked)
    }
}

#[cfg(test)]
mod tests {
    use partita_proto::id::{Epoch, SchemaVersion};
    use proptest::prelude::*;

    use super::*;

    fn read_at(index: u64) -> Condition {
        Condition { epoch: Epoch(1), index, bulk: None, schema: SchemaVersion(1), by_row: false }
    }

    fn bulk(index: u64, statement: u64) -> Condition {
        Condition { bulk: Some(statement), ..read_at(index) }
    }

    fn keys(numbers: &[u64]) -> Vec<[u8; 8]> {
        numbers.iter().map(|number| number.to_be_bytes()).collect()
    }

    fn plain(tracked: &mut Tracked, index: u64, numbers: &[u64]) {
        tracked.plain(index, keys(numbers).iter().map(<[u8; 8]>::as_slice));
    }

    fn holds(tracked: &Tracked, condition: Condition, numbers: &[u64]) -> bool {
        tracked.holds(&condition, keys(numbers).iter().map(<[u8; 8]>::as_slice))
    }

    #[test]
    fn a_condition_holds_for_keys_that_were_not_written_since_it_was_read() {
        let mut tracked = Tracked::since(10);
        plain(&mut tracked, 11, &[1, 2]);
        plain(&mut tracked, 12, &[2]);
        assert!(holds(&tracked, read_at(10), &[3, 4]));
        assert!(!holds(&tracked, read_at(10), &[3, 1]));
        assert!(holds(&tracked, read_at(11), &[1]));
        assert!(!holds(&tracked, read_at(11), &[2]));
        assert!(holds(&tracked, read_at(12), &[1, 2, 3]));
        assert!(!holds(&tracked, read_at(9), &[3]), "read before tracking began");
    }

    #[test]
    fn what_no_longer_is_known_is_refused() {
        let mut tracked = Tracked::since(0);
        for index in 1..=KEYS_MAX as u64 {
            plain(&mut tracked, index, &[index]);
        }
        assert!(holds(&tracked, read_at(0), &[0]));
        plain(&mut tracked, 1_000_000, &[1]);
        assert!(!holds(&tracked, read_at(0), &[0]), "the key of entry 1 is forgotten");
        assert!(holds(&tracked, read_at(1), &[0]));
        assert!(!holds(&tracked, read_at(999_999), &[1]));
        let many: Vec<u64> = (0..KEYS_MAX as u64).collect();
        plain(&mut tracked, 1_000_001, &many);
        assert!(!holds(&tracked, read_at(1_000_000), &[u64::MAX]));
        assert!(holds(&tracked, read_at(1_000_001), &[1]));
    }

    #[test]
    fn the_writes_of_a_large_statement_refuse_others_and_not_itself() {
        let mut tracked = Tracked::since(0);
        let no_keys = || std::iter::empty::<&[u8]>();
        tracked.conditional(5, &bulk(1, 77), no_keys());
        assert!(holds(&tracked, bulk(1, 77), &[9]));
        assert!(!holds(&tracked, bulk(1, 78), &[9]));
        assert!(!holds(&tracked, read_at(4), &[9]));
        assert!(holds(&tracked, read_at(5), &[9]));
        for statement in 100..100 + STATEMENTS_MAX as u64 {
            tracked.conditional(statement, &bulk(1, statement), no_keys());
        }
        assert_eq!(tracked.floor, 5, "the oldest is forgotten");
    }

    #[test]
    fn tracking_ends_after_many_rows_without_a_condition() {
        let mut tracked = Tracked::since(0);
        let many: Vec<u64> = (0..KEYS_MAX as u64).collect();
        for index in 1..=4 {
            plain(&mut tracked, index, &many);
        }
        assert!(tracked.is_used());
        plain(&mut tracked, 5, &[1]);
        assert!(!tracked.is_used());
        tracked.used();
        assert!(tracked.is_used());
    }

    proptest! {
        /// Against a model that knows every write.
        #[test]
        fn no_condition_holds_that_should_not_and_the_stored_form_decides_alike(
            writes in prop::collection::vec(prop::collection::vec(0_u64..20, 0..4), 0..40),
            read in 0_u64..40,
            asked in prop::collection::vec(0_u64..20, 0..4),
        ) {
            let mut tracked = Tracked::since(3);
            for (index, rows) in (4..).zip(&writes) {
                plain(&mut tracked, index, rows);
            }
            let newer = writes.iter().zip(4_u64..).filter(|(_, index)| *index > read);
            let is_changed = newer.flat_map(|(rows, _)| rows).any(|key| asked.contains(key));
            let expected = read >= 3 && !is_changed;
            prop_assert_eq!(holds(&tracked, read_at(read), &asked), expected);
            let stored = StoredTracked::decode(tracked.stored().encode_to_vec().as_slice()).unwrap();
            prop_assert_eq!(Tracked::from_stored(stored), Some(tracked));
        }
    }
}
