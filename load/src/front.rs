//! The front of a load that moves: the gap between keys into which its new keys go, its speed, and the growth of one side
//! of a cut.
//!
//! ```text
//!   keys of the older half    │ │ │ │ │                 │  │
//!   keys of the newer half               │││││││││││
//!                                        └── one gap has them all, and they go on to the right
//! ```
//!
//! Invariants: pure; times are seconds of the samples, and shares are weighted by the operations that samples represent.

use std::collections::BTreeMap;

use crate::rows::{Half, Row, share_of};
use crate::span::place;

/// Older keys' worth of operations that one gap has by chance.
const CHANCE_KEYS: f64 = 3.0;
/// Parts of a half between which the front's speed is measured.
const PARTS: usize = 4;
/// Time in which a cut proves its worth, seconds.
const HORIZON_S: f64 = 60.0;
/// Standard deviations up to which growth counts as chance.
const CHANCE_SIGMAS: f64 = 3.0;

/// The lowest and the highest key that are known.
pub(crate) type KnownEdges<'s> = Option<(&'s [u8], &'s [u8])>;

/// The front of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Front {
    /// Share of the newer half in one gap between neighbouring keys of the older half, beyond chance.
    pub(crate) share: f64,
    /// Seconds until it reaches the known edge; `None` if there is no edge, or if it does not move.
    pub(crate) passes_in_s: Option<f64>,
}

impl Front {
    /// The front between the halves of a window, each `half_s` seconds long.
    pub(crate) fn of(
        old: &Half<'_, '_>,
        new: &Half<'_, '_>,
        edges: KnownEdges<'_>,
        half_s: f64,
    ) -> Self {
        let mut older: Vec<&[u8]> = old.keys().collect();
        older.dedup();
        // The number of a gap is that of the older keys below it. What is on an older key is in no gap.
        let gap_of = |row: &Row<'_>| older.binary_search(&row.key).err();
        let (mut gaps, mut total) = (BTreeMap::<usize, f64>::new(), 0.0);
        for row in new.rows {
            total += row.weight;
            if let Some(gap) = gap_of(row) {
                *gaps.entry(gap).or_default() += row.weight;
            }
        }
        let most = gaps.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let Some((gap, weight)) = most.filter(|_| total > 0.0) else { return Self::default() };
        let chance = CHANCE_KEYS / older.len().max(1) as f64;
        let share = (weight / total - chance).max(0.0);
        let rows: Vec<&Row<'_>> = new.rows.iter().filter(|row| gap_of(row) == Some(gap)).collect();
        let passes_in_s = edges.and_then(|(low, high)| passes_in_s(&rows, low, high, half_s));
        Self { share, passes_in_s }
    }
}

/// Seconds until rows (ascending by second, of `half_s` seconds) that move have reached the edge before them; `None` if
/// they do not move.
fn passes_in_s(rows: &[&Row<'_>], low: &[u8], high: &[u8], half_s: f64) -> Option<f64> {
    let median = |rows: &[&Row<'_>]| {
        let mut keys: Vec<&[u8]> = rows.iter().map(|row| row.key).collect();
        keys.sort_unstable();
        keys.get(keys.len() / 2).map(|key| place(low, high, key))
    };
    let part_rows = rows.len().div_ceil(PARTS).max(1);
    let places: Vec<f64> = rows.chunks(part_rows).filter_map(median).collect();
    let end = *places.last()?;
    // The middle one of the steps: where a number that is written as text gets another first digit, one step is huge.
    let mut steps: Vec<f64> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
    steps.sort_by(f64::total_cmp);
    let speed = steps.get(steps.len() / 2)? / (half_s / PARTS as f64);
    // A front that falls passes at the lower edge.
    let rest = if speed > 0.0 { 1.0 - end } else { end };
    (speed != 0.0).then(|| rest / speed.abs())
}

/// Motion of all samples that there are, from their oldest third to their newest one.
#[derive(Clone, Debug)]
pub(crate) struct Thirds<'r, 's> {
    oldest: &'r [Row<'s>],
    newest: &'r [Row<'s>],
    /// Length of all three, seconds.
    span_s: f64,
}

/// Growth of the right side of a cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Growth {
    /// Change of the right side's share beyond chance, from the oldest third to the newest; negative if the left side
    /// grows.
    pub(crate) sure: f64,
    /// Share of the side that grows in the minute to come, if it continues.
    pub(crate) predicted: f64,
}

impl<'r, 's> Thirds<'r, 's> {
    /// The thirds of rows, ascending by second, up to the second `end`.
    pub(crate) fn of(rows: &'r [Row<'s>], end: u64) -> Self {
        let first = rows.first().map_or(end, |row| row.second);
        let span = end.saturating_sub(first);
        let third = span / 3;
        let oldest_end = rows.partition_point(|row| row.second < first + third);
        let newest_start = rows.partition_point(|row| row.second < end - third);
        Self {
            oldest: &rows[..oldest_end],
            newest: &rows[newest_start.max(oldest_end)..],
            span_s: span as f64,
        }
    }

    /// Share of the newest third above all of the oldest one, and below all of it; 0 if one of them is empty.
    pub(crate) fn lead(&self) -> (f64, f64) {
        let keys = || self.oldest.iter().map(|row| row.key);
        let (Some(low), Some(high)) = (keys().min(), keys().max()) else { return (0.0, 0.0) };
        (share_of(self.newest, |row| row.key > high), share_of(self.newest, |row| row.key < low))
    }

    /// Growth of the right side of a cut.
    pub(crate) fn growth(&self, cut: &[u8]) -> Growth {
        let right = |rows: &[Row<'_>]| share_of(rows, |row| row.key >= cut);
        let (before, after) = (right(self.oldest), right(self.newest));
        let grown = after - before;
        let (old, new) = (effective(self.oldest), effective(self.newest));
        let share = (before * old + after * new) / (old + new).max(f64::MIN_POSITIVE);
        let sigma = (share * (1.0 - share)).max(0.0).sqrt()
            * (1.0 / old.max(1.0) + 1.0 / new.max(1.0)).sqrt();
        let sure = grown.signum() * (grown.abs() - CHANCE_SIGMAS * sigma).max(0.0);
        // From the middle of the newest third to the middle of the minute, in steps from third to third.
        let third_s = self.span_s / 3.0;
        let steps = (HORIZON_S / 2.0 + third_s / 2.0) / (2.0 * third_s).max(1.0);
        let larger = if grown < 0.0 { 1.0 - after } else { after };
        Growth { sure, predicted: (larger + sure.abs() * steps).clamp(0.0, 1.0) }
    }
}

/// Number of samples of equal weight with the same significance.
fn effective(rows: &[Row<'_>]) -> f64 {
    let (sum, squares) = rows
        .iter()
        .fold((0.0, 0.0), |sums, row| (sums.0 + row.weight, sums.1 + row.weight * row.weight));
    sum * sum / f64::max(squares, f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, Sketch, Tick};

    /// Samples of ten keys a second.
    fn sketch(seconds: u64, key: impl Fn(u64, u64) -> u64) -> Sketch {
        let sample = |key: u64| Sample {
            key: Box::from(key.to_be_bytes()),
            end: None,
            above: false,
            below: false,
        };
        let tick = |second| Tick {
            second,
            count: 100,
            samples: (0..10).map(|number| sample(key(second, number))).collect(),
        };
        Sketch { ticks: (0..seconds).map(tick).collect(), ..Sketch::default() }
    }

    fn front(sketch: &Sketch, edges: (u64, u64)) -> Front {
        let rows = crate::rows::rows_of(sketch, &|_| Vec::new());
        let (old, new) = rows.split_at(rows.partition_point(|row| row.second < 10));
        let (low, high) = (edges.0.to_be_bytes(), edges.1.to_be_bytes());
        Front::of(&Half::new(old), &Half::new(new), Some((&low[..], &high[..])), 10.0)
    }

    #[test]
    fn a_front_is_known_by_its_gap_and_its_speed() {
        let rising = sketch(20, |second, number| 5_000 + second * 10 + number);
        let found = front(&rising, (0, 10_000));
        assert!(found.share > 0.9, "{found:?}");
        // 480 seconds remain at ten keys a second.
        let passes_in_s = found.passes_in_s.unwrap();
        assert!((460.0..500.0).contains(&passes_in_s), "{found:?}");
        // Numbers as text: the first digit changes within the newer half.
        let digits = |number: u64| {
            u64::from_be_bytes(format!("{number:08}").into_bytes().try_into().unwrap())
        };
        let text = sketch(20, |second, number| digits(29_998_550 + second * 100 + number));
        let found = front(&text, (digits(0), digits(99_999_999)));
        assert!(found.passes_in_s.unwrap() > 100_000.0, "{found:?}");
        let falling = sketch(20, |second, number| 5_000 - second * 10 - number);
        let passes_in_s = front(&falling, (0, 10_000)).passes_in_s.unwrap();
        assert!((460.0..500.0).contains(&passes_in_s));
        let still = sketch(20, |second, number| crate::random::mix(second * 10 + number) >> 20);
        assert!(front(&still, (0, u64::MAX)).share < 0.2);
        let same = sketch(20, |_, _| 7);
        assert_eq!(front(&same, (0, 10)), Front::default());
    }

    #[test]
    fn growth_is_measured_from_third_to_third() {
        let rising = sketch(60, |second, number| second * 10 + number);
        let rows = crate::rows::rows_of(&rising, &|_| Vec::new());
        let thirds = Thirds::of(&rows, 60);
        assert_eq!(thirds.lead(), (1.0, 0.0));
        let growth = thirds.growth(&500_u64.to_be_bytes());
        assert!(growth.sure > 0.3 && growth.predicted > 0.7, "{growth:?}");
        let even = sketch(60, |second, number| crate::random::mix(second * 10 + number));
        let rows = crate::rows::rows_of(&even, &|_| Vec::new());
        let growth = Thirds::of(&rows, 60).growth(&(1_u64 << 63).to_be_bytes());
        assert!(growth.sure.abs() < 0.1 && growth.predicted < 0.7, "{growth:?}");
        let empty = Thirds::of(&[], 60);
        assert_eq!(empty.lead(), (0.0, 0.0));
        assert!(empty.growth(&[1]).sure.abs() < 1e-9);
    }
}
