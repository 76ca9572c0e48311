//! Distribution of one part of a key (one column, or two dependent ones), which may change over time.
//!
//! ```text
//!   before(t, v) = (P(part < v), P(part = v))          place(t, u) = the v that the share u of all lies below
//! ```
//!
//! Invariants: `before` never falls as `v` grows; `place` is its inverse, and returns the position of the share
//! within `P(part = v)`, from which the next part continues. If a single value has a negligible weight, nothing is
//! returned, and the next part is drawn independently.

use std::sync::Arc;

use super::listed::Listed;
use super::stamp::Stamp;
use crate::number::whole;

/// One second in microseconds, the unit of times here.
pub const SECOND_US: u64 = 1_000_000;
/// Number of values above which a single one has a negligible weight.
const VALUES_MANY: u64 = 1 << 24;

/// A part of a key.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// Even from the first value (inclusive) to the second (exclusive).
    Even(u64, u64),
    /// Values with weights.
    Listed(Arc<Listed>),
    /// The time of the row.
    Stamp(Stamp),
    /// `items` visited in order, over and over, each time in `period_us`.
    Sweep { items: u64, period_us: u64 },
    /// A counter that grows by `per_s` per second, from `first`.
    Counter { first: u64, per_s: f64 },
    /// Values behind such a counter, at listed distances.
    Latest { behind: Arc<Listed>, first: u64, per_s: f64 },
}

fn seconds(at_us: u64) -> f64 {
    at_us as f64 / SECOND_US as f64
}

/// Position of a value between two others, 0 to 1.
pub(crate) fn ramp(value: f64, start: f64, end: f64) -> f64 {
    if end <= start {
        f64::from(u8::from(value > start))
    } else {
        ((value - start) / (end - start)).clamp(0.0, 1.0)
    }
}

impl Part {
    /// Number of key columns that the part covers.
    pub(crate) fn columns(&self) -> usize {
        match self {
            Self::Listed(listed) => listed.columns(),
            _ => 1,
        }
    }

    /// True if the distribution is constant over time.
    pub(crate) fn still(&self) -> bool {
        matches!(self, Self::Even(..) | Self::Listed(_))
    }

    /// The shares below a value, and at it.
    pub(crate) fn before(&self, at_us: u64, value: &[u64]) -> (f64, f64) {
        let first = value[0];
        match self {
            Self::Even(start, end) => {
                let count = (end - start).max(1) as f64;
                let offset = first.clamp(*start, *end) - start;
                let weighs = (end - start) < VALUES_MANY && (*start..*end).contains(&first);
                (offset as f64 / count, if weighs { 1.0 / count } else { 0.0 })
            }
            Self::Listed(listed) => listed.before(value),
            Self::Stamp(stamp) => stamp.before(at_us, first),
            Self::Sweep { items, period_us } => {
                let (start, length) = sweep(at_us, *period_us);
                let share_below = |v: u64| swept(v as f64 / *items as f64, start, length);
                let (low, high) = (share_below(first), share_below(first.saturating_add(1)));
                (low, high - low)
            }
            Self::Counter { first: begin, per_s } => {
                let (old, new) = counter(at_us, *begin, *per_s);
                (ramp(first as f64, old, new), 0.0)
            }
            Self::Latest { behind: distances, first: begin, per_s } => {
                let newest = whole(counter(at_us, *begin, *per_s).1);
                let Some(rank) = newest.checked_sub(first) else { return (1.0, 0.0) };
                let (nearer, share_at) = distances.before(&[rank]);
                ((1.0 - nearer - share_at).max(0.0), share_at)
            }
        }
    }

    /// Writes the columns at the share `u`; returns the position within their weight, if that is not negligible.
    pub(crate) fn place(&self, at_us: u64, u: f64, columns: &mut Vec<u64>) -> Option<f64> {
        match self {
            Self::Even(start, end) => {
                let spot = u * (end - start) as f64;
                columns.push((start + whole(spot)).min(end.saturating_sub(1)).max(*start));
                ((end - start) < VALUES_MANY).then(|| spot.fract())
            }
            Self::Listed(listed) => Some(listed.place(u, columns)),
            Self::Stamp(stamp) => stamp.place(at_us, u, columns),
            Self::Sweep { items, period_us } => {
                let (start, length) = sweep(at_us, *period_us);
                let spot = unswept(u, start, length) * *items as f64;
                columns.push(whole(spot).min(items - 1));
                (*items < VALUES_MANY).then(|| spot.fract())
            }
            Self::Counter { first, per_s } => {
                let (old, new) = counter(at_us, *first, *per_s);
                columns.push(whole(old + u * (new - old)));
                None
            }
            Self::Latest { behind: distances, first, per_s } => {
                let newest = whole(counter(at_us, *first, *per_s).1);
                let mut rank = Vec::with_capacity(1);
                let position = distances.place((1.0 - u).min(1.0 - f64::EPSILON), &mut rank);
                columns.push(newest.saturating_sub(rank[0]));
                Some(1.0 - position)
            }
        }
    }
}

/// Value of a counter a second ago, and now.
fn counter(at_us: u64, first: u64, per_s: f64) -> (f64, f64) {
    let current = first as f64 + per_s * seconds(at_us);
    ((current - per_s).max(first as f64), current)
}

/// Position of a sweep a second ago, as a share of its round, and the share that it covers in that second.
fn sweep(at_us: u64, period_us: u64) -> (f64, f64) {
    let length = (SECOND_US as f64 / period_us as f64).min(1.0);
    let position = (at_us % period_us) as f64 / period_us as f64;
    ((position - length).rem_euclid(1.0), length)
}

/// Share of an arc (of this length, from `start`, around a circle of length 1) that lies below `value`.
fn swept(value: f64, start: f64, length: f64) -> f64 {
    let value = value.min(1.0);
    let wrapped = (start + length - 1.0).max(0.0);
    let first = (value.min(start + length) - start).max(0.0);
    (first.min(length) + value.min(wrapped)) / length
}

/// The inverse of [`swept`].
fn unswept(u: f64, start: f64, length: f64) -> f64 {
    let wrapped = (start + length - 1.0).max(0.0);
    let arc = u * length;
    if arc < wrapped { arc } else { (start + arc - wrapped).min(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> Vec<Part> {
        let ranks = Arc::new(Listed::zipf(1_000, 0.99, |rank| rank));
        vec![
            Part::Even(0, u64::MAX),
            Part::Even(3, 11),
            Part::Listed(Arc::new(Listed::zipf(500, 0.99, partita_load::mix))),
            Part::Stamp(Stamp::default()),
            Part::Stamp(Stamp { late_share: 0.3, late_us: 60 * SECOND_US, ..Stamp::default() }),
            Part::Stamp(Stamp { grain_us: 10 * SECOND_US, ..Stamp::default() }),
            Part::Stamp(Stamp { descending: true, ..Stamp::default() }),
            Part::Sweep { items: 300, period_us: 10 * SECOND_US },
            Part::Counter { first: 5, per_s: 1_000.0 },
            Part::Latest { behind: ranks, first: 5_000, per_s: 150.0 },
        ]
    }

    #[test]
    fn a_placed_value_lies_where_the_share_says() {
        for part in parts() {
            for at_us in [9_700_000, 40_000_000, 3_600_000_000_u64] {
                let mut last = None;
                for step in 0..200 {
                    let u = (f64::from(step) + 0.5) / 200.0;
                    let mut value = Vec::new();
                    part.place(at_us, u, &mut value);
                    let (share_below, share_at) = part.before(at_us, &value);
                    assert!(
                        share_below <= u + 2e-3 && u <= share_below + share_at + 2e-3,
                        "{part:?} {at_us} {u} {share_below} {share_at}"
                    );
                    let wraps = matches!(part, Part::Sweep { .. });
                    assert!(wraps || last.is_none_or(|last| last <= value), "{part:?} falls");
                    last = Some(value);
                }
            }
        }
    }

    #[test]
    fn a_sweep_passes_the_end_and_begins_again() {
        let part = Part::Sweep { items: 100, period_us: 10 * SECOND_US };
        // Half a second into the next round: items 95 to 99 and 0 to 4 were visited in the last second.
        let share_below = |v| part.before(10_500_000, &[v]).0;
        assert!((share_below(5) - 0.5).abs() < 1e-9 && (share_below(95) - 0.5).abs() < 1e-9);
        assert!((share_below(100) - 1.0).abs() < 1e-9 && share_below(0) < 1e-9);
    }
}
