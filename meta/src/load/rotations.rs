//! Tables whose load goes from partition to partition every few seconds: averages show it as even, and each second it
//! is on one of them.
//!
//! Invariants: looked for every [`CHECK_S`] seconds, in samples of the last minute; a table rotates only if the load of
//! all its partitions together would make one hot; partitions with little of the load take no part.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use partita_load::{Rotation, rotation};
use partita_proto::id::{PartitionId, TableId};

use super::facts;

/// Seconds between two looks.
const CHECK_S: u64 = 5;
/// Seconds that are looked at.
const WINDOW_S: u64 = 60;
/// Minimum busy share of all partitions of a table together: as much as makes one partition hot.
const BUSY_MIN: f64 = 0.5;
/// Minimum share of a partition's equal part of the load for it to take part.
const PART_MIN: f64 = 0.5;

/// Operations of one partition, as sampled.
#[derive(Clone, Debug, Default)]
pub(super) struct Operations {
    pub(super) partition: PartitionId,
    /// First key of the partition.
    pub(super) start: Bytes,
    /// Busy share of its lane, or cores busy with reads.
    pub(super) busy: f64,
    /// Seconds with their number of writes, and of reads.
    pub(super) counts: [Vec<(u64, u64)>; 2],
}

impl Operations {
    /// Writes or reads of the last minute.
    fn sum(&self, kind: usize, end: u64) -> u64 {
        let recent = self.counts[kind].iter().filter(|(second, _)| second + WINDOW_S >= end);
        recent.map(|(_, count)| count).sum()
    }
}

/// Rotation of a table, and the partitions that take part.
#[derive(Clone, Debug)]
struct Turning {
    rotation: Rotation,
    members: BTreeSet<PartitionId>,
}

/// The tables whose load rotates.
#[derive(Clone, Debug, Default)]
pub(super) struct Rotations {
    checked_s: u64,
    tables: BTreeMap<TableId, Turning>,
}

impl Rotations {
    /// True if it is time for another look; the next one is due some seconds later.
    pub(super) fn is_due(&mut self, now_s: u64) -> bool {
        let due = now_s >= self.checked_s + CHECK_S;
        if due {
            self.checked_s = now_s;
        }
        due
    }

    /// Looks at the operations of tables in the minute before a second. Returns the tables that rotate, and those that
    /// do not any more.
    pub(super) fn note(
        &mut self,
        end: u64,
        tables: BTreeMap<TableId, Vec<Operations>>,
    ) -> Vec<(TableId, Option<Rotation>)> {
        let previous = std::mem::take(&mut self.tables);
        for (table, members) in tables {
            if let Some(turning) = turning_of(members, end) {
                self.tables.insert(table, turning);
            }
        }
        let ended = previous.into_keys().filter(|table| !self.tables.contains_key(table));
        let mut changes: Vec<_> = ended.map(|table| (table, None)).collect();
        changes.extend(self.tables.iter().map(|(table, turning)| (*table, Some(turning.rotation))));
        changes
    }

    /// Rotation of the table's load, if this partition of it takes part.
    pub(super) fn of(&self, table: TableId, partition: PartitionId) -> Option<&Rotation> {
        let turning = self.tables.get(&table)?;
        turning.members.contains(&partition).then_some(&turning.rotation)
    }

    /// All tables that rotate.
    pub(super) fn all(&self) -> impl Iterator<Item = (TableId, &Rotation)> {
        self.tables.iter().map(|(table, turning)| (*table, &turning.rotation))
    }
}

/// Rotation over these partitions of a table, by their writes or by their reads, whichever are more.
fn turning_of(mut members: Vec<Operations>, end: u64) -> Option<Turning> {
    let busy: f64 = members.iter().map(|member| member.busy).sum();
    if busy < BUSY_MIN {
        return None;
    }
    members.sort_by(|a, b| a.start.cmp(&b.start));
    let total = |kind| members.iter().map(|member| member.sum(kind, end)).sum::<u64>();
    let (written, read) = (total(0), total(1));
    let (kind, total) = if read > written { (1, read) } else { (0, written) };
    let counts: Vec<_> = members
        .iter()
        .map(|member| (facts::partition_id(member.partition), member.counts[kind].clone()))
        .collect();
    let rotation = rotation(&counts, end)?;
    let least = PART_MIN * total as f64 / members.len() as f64;
    let is_member = |member: &&Operations| member.sum(kind, end) as f64 >= least;
    let members = members.iter().filter(is_member).map(|member| member.partition).collect();
    Some(Turning { rotation, members })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A minute of 1,000 writes a second; each second 93 % of them are on one of seven partitions, in no order, and
    /// the eighth has none.
    fn table(busy: f64) -> Vec<Operations> {
        let places = [3, 0, 5, 1, 6, 2, 4];
        let count = |partition: u64, second: u64| {
            let busiest = places[usize::try_from(second / 3 * 5 % 7).unwrap()];
            if busiest == partition { 930 } else { 10 }
        };
        let operations = |partition: u64| Operations {
            partition: PartitionId(partition),
            start: Bytes::copy_from_slice(&partition.to_be_bytes()),
            busy,
            counts: [(100..160).map(|second| (second, count(partition, second))).collect(), vec![]],
        };
        let mut members: Vec<_> = (0..7).map(operations).collect();
        members.push(Operations { partition: PartitionId(7), ..operations(9) });
        members[7].counts = [vec![(159, 1)], vec![]];
        members
    }

    #[test]
    fn a_table_rotates_until_it_does_not_and_only_where_it_is_busy() {
        let mut rotations = Rotations::default();
        assert!(rotations.is_due(160));
        assert!(!rotations.is_due(164) && rotations.is_due(165));
        let changes = rotations.note(160, BTreeMap::from([(TableId(1), table(0.12))]));
        let [(TableId(1), Some(found))] = &changes[..] else { panic!("{changes:?}") };
        assert!(found.concentration > 0.9 && found.n_eff_mean > 5.0, "{found:?}");
        assert_eq!(rotations.of(TableId(1), PartitionId(3)), Some(found));
        assert_eq!(rotations.of(TableId(1), PartitionId(7)), None, "it has no part of the load");
        assert_eq!(rotations.all().count(), 1);
        let changes = rotations.note(160, BTreeMap::from([(TableId(1), table(0.01))]));
        assert_eq!(changes, [(TableId(1), None)], "the lanes are idle");
        assert!(rotations.note(160, BTreeMap::new()).is_empty());
    }
}
