//! Finds loads that rotate over the partitions of a table: one has nearly everything for a few seconds, then another.
//!
//! ```text
//!   partition   1  ████        ████            in each second one of them has all of the load,
//!               2      ████            ████    and in the mean over a minute all are equal:
//!               3          ████    ████        averages hide it
//! ```
//!
//! A load that goes from each partition to the next one in the order of keys is a sweep instead.
//!
//! Invariant: pure functions of counts by second.

use crate::facts::PartitionId;
use crate::shape::Shape;
use crate::verdict::{Class, Verdict};

/// Seconds before the end that are looked at.
const WINDOW_S: u64 = 60;
/// Minimum seconds with load; fewer are not significant ...
const SECONDS_MIN: usize = 8;
/// ... and minimum operations of a second: with fewer one partition has most of them by chance.
const OPERATIONS_MIN: u64 = 8;
/// Minimum share of the busiest partition of a second, in the mean.
const CONCENTRATION_MIN: f64 = 0.6;
/// Minimum ratio of the effective number of partitions in the mean to that of a second.
const HIDDEN_MIN: f64 = 2.0;
/// Minimum number of spells, in each of which one partition is the busiest.
pub(crate) const SPELLS_MIN: u32 = 4;
/// Share of changes to the next place in order, from which a load is a sweep.
const ORDERED_MIN: f64 = 0.8;

/// A load that rotates over partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rotation {
    /// Mean over seconds of the share of the second's busiest partition.
    pub concentration: f64,
    /// Effective number of partitions within a second, in the mean.
    pub n_eff_second: f64,
    /// Effective number of partitions by their loads in the mean over all seconds.
    pub n_eff_mean: f64,
    /// Number of spells, in each of which one partition is the busiest.
    pub spells: u32,
    /// Mean length of a spell, seconds.
    pub spell_s: f64,
}

/// Looks for rotation in the operations per second of a table's partitions, which are given in key order, over the minute
/// before the second `end`. Some if one partition has at least 0.6 of a second's load in the mean, if the effective number
/// of partitions in the mean is at least twice that of a second, and if the busiest one changed at least three times, not
/// mostly to the next one in order.
///
/// With two partitions a rotation cannot be told from a sweep, and is not candidate.
#[must_use]
pub fn rotation(members: &[(PartitionId, Vec<(u64, u64)>)], end: u64) -> Option<Rotation> {
    let start = end.saturating_sub(WINDOW_S);
    let seconds = usize::try_from(end - start).unwrap_or(0);
    // Counts by second, then by partition.
    let mut counts = vec![vec![0_u64; members.len()]; seconds];
    for (member, (_, ticks)) in members.iter().enumerate() {
        for (second, count) in ticks.iter().filter(|(second, _)| (start..end).contains(second)) {
            let index = usize::try_from(second - start).unwrap_or(0);
            counts[index][member] = counts[index][member].saturating_add(*count);
        }
    }
    let mut sums = vec![0.0; members.len()];
    let (mut shares, mut effective) = (Vec::new(), 0.0);
    let mut busiest_places = Vec::new();
    for second in counts {
        let total = second.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
        if total < OPERATIONS_MIN {
            continue;
        }
        let shape = Shape::of(second.iter().map(|count| *count as f64));
        shares.push(shape.max_share);
        effective += shape.effective;
        let most = second.iter().enumerate().max_by_key(|(_, count)| **count);
        busiest_places.extend(most.map(|(place, _)| place));
        for (sum, count) in sums.iter_mut().zip(&second) {
            *sum += *count as f64;
        }
    }
    if shares.len() < SECONDS_MIN {
        return None;
    }
    let seconds = shares.len() as f64;
    let spells = Spells::of(&busiest_places);
    let candidate = Rotation {
        concentration: shares.iter().sum::<f64>() / seconds,
        n_eff_second: effective / seconds,
        n_eff_mean: Shape::of(sums).effective,
        spells: spells.count,
        spell_s: seconds / f64::from(spells.count.max(1)),
    };
    let rotates = candidate.concentration >= CONCENTRATION_MIN
        && candidate.n_eff_mean >= HIDDEN_MIN * candidate.n_eff_second
        && candidate.spells >= SPELLS_MIN
        && !spells.is_ordered(members.len(), 1);
    rotates.then_some(candidate)
}

/// The verdict on a partition of a table whose load rotates: [`Class::Rotating`], without a cut.
#[must_use]
pub fn rotating(verdict: Verdict, rotation: &Rotation) -> Verdict {
    let mut evidence = verdict.evidence;
    evidence.concentration = rotation.concentration;
    Verdict { class: Class::Rotating, cut: None, divisions: Vec::new(), hot_key: None, evidence }
}

/// The spells of a load: seconds in a row in which the same place is the busiest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spells {
    /// Number of spells.
    pub(crate) count: u32,
    /// Changes between them: from a place to another.
    changes: Vec<(usize, usize)>,
}

impl Spells {
    /// The spells of the busiest places of successive seconds.
    pub(crate) fn of(busiest: &[usize]) -> Self {
        let pairs = busiest.windows(2).map(|pair| (pair[0], pair[1]));
        let changes: Vec<_> = pairs.filter(|(old, new)| old != new).collect();
        let changed = u32::try_from(changes.len()).unwrap_or(u32::MAX - 1);
        Self { count: if busiest.is_empty() { 0 } else { changed + 1 }, changes }
    }

    /// True if most changes go up by at most `step` of `places` places, or most go down, where the first place follows
    /// the last.
    pub(crate) fn is_ordered(&self, places: usize, step: usize) -> bool {
        let places = places.max(1);
        let is_up = |(old, new): &&(usize, usize)| (*new + places - *old) % places <= step;
        let is_down = |(old, new): &&(usize, usize)| (*old + places - *new) % places <= step;
        let up = self.changes.iter().filter(is_up).count();
        let down = self.changes.iter().filter(is_down).count();
        up.max(down) as f64 >= ORDERED_MIN * self.changes.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::mix;
    use crate::verdict::{Cut, Evidence};

    /// Sixty seconds of eight partitions, of which `busiest` has 97 % of 1,000 operations in a second.
    fn table(busiest: impl Fn(u64) -> u64) -> Vec<(PartitionId, Vec<(u64, u64)>)> {
        let ticks = |place: u64| {
            let count = |second| (second, if busiest(second) == place { 970 } else { 4 });
            (100..160).map(count).collect()
        };
        (0..8).map(|place| (PartitionId(place), ticks(place))).collect()
    }

    #[test]
    fn a_spot_that_changes_its_partition_is_seen_by_the_second() {
        for spell_s in [1, 3, 5] {
            let found = rotation(&table(|second| mix(second / spell_s) % 8), 160).unwrap();
            assert!(found.concentration > 0.95 && found.n_eff_second < 1.2, "{found:?}");
            assert!(found.n_eff_mean > 2.5 && found.spells >= 8, "{found:?}");
            assert!(found.spell_s >= spell_s as f64, "{found:?}");
        }
    }

    #[test]
    fn what_stays_and_what_goes_in_order_does_not_rotate() {
        assert_eq!(rotation(&table(|_| 3), 160), None, "one partition is hot");
        assert_eq!(rotation(&table(|second| second / 2 % 8), 160), None, "a sweep");
        assert_eq!(rotation(&table(|second| 7 - second / 2 % 8), 160), None, "a sweep down");
        assert_eq!(rotation(&table(|_| 99), 160), None, "an even load");
        assert_eq!(rotation(&table(|second| mix(second) % 8), 104), None, "too short");
        assert_eq!(rotation(&table(|second| mix(second) % 8), 1_000), None, "too long ago");
        assert_eq!(rotation(&[], 160), None);
    }

    #[test]
    fn a_rotating_table_has_no_partition_to_cut() {
        let verdict = Verdict {
            class: Class::StaticRange,
            cut: Some(Cut { key: Box::from([1]), larger_share: 0.5 }),
            divisions: Vec::new(),
            hot_key: None,
            evidence: Evidence { p_out: 0.5, ..Evidence::default() },
        };
        let rotation = Rotation { concentration: 0.9, ..Rotation::default() };
        let verdict = rotating(verdict, &rotation);
        assert_eq!((verdict.class, verdict.cut), (Class::Rotating, None));
        assert_eq!((verdict.evidence.concentration, verdict.evidence.p_out), (0.9, 0.5));
    }
}
