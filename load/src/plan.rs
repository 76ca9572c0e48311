//! Cuts that are decided together: a partition that is offered more than it can serve is cut into several parts at once.
//!
//! ```text
//!   shares of the load   0 ····· .17 ··· .33 ··· .5 ··· .67 ··· .83 ····· 1      six parts: five cuts
//!   first                                        |                               one cut of the partition,
//!   then, at once                        |              |                        one of each part that has cuts left,
//!   and                          |                             |                 until none has
//! ```
//!
//! Halving alone takes a rest of half a minute after each cut, because the detector needs a window of the parts' own load.
//! Here it is not asked again: its samples of the whole say where all cuts are.
//!
//! Invariants: pure; cuts are ascending; a part is cut only inside its own share of the load; a plan that was not carried
//! out in time is void, because the load may be another by then.

use crate::verdict::Division;

/// Time after which a plan is void: each round of its cuts takes a second or two.
const KEPT_MS: u64 = 30_000;
/// Maximum distance of a cut from its place, relative to the size of a part ...
const OFF_PLACE_MAX: f64 = 0.4;
/// ... and minimum distance of two cuts: of two parts beside each other, none has much more than three quarters of both.
const GAP_MIN: f64 = 0.6;
/// Among divisions about as far from the place, the shortest key: it keeps related rows together.
const ABOUT: f64 = 0.02;

/// Cuts of a partition that were decided together with one that is done or being made.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    cuts: Vec<Division>,
    /// Shares of the whole load below the partition, and below its end.
    low: f64,
    high: f64,
    void_ms: u64,
}

impl Plan {
    /// Cuts that divide a load into about equal parts. Empty if fewer than two cuts do: then no plan is needed.
    pub(crate) fn of(divisions: &[Division], parts: usize) -> Self {
        let mut cuts: Vec<Division> = Vec::new();
        for number in 1..parts {
            let place = number as f64 / parts as f64;
            let (distance_max, gap_min) = (OFF_PLACE_MAX / parts as f64, GAP_MIN / parts as f64);
            let distance = |division: &Division| (division.left_share - place).abs();
            let is_above = |division: &&Division| {
                cuts.last().is_none_or(|last| {
                    let gap = division.left_share - last.left_share;
                    division.key > last.key && gap >= gap_min
                })
            };
            let candidates = || divisions.iter().filter(is_above);
            let nearest = candidates().map(distance).fold(f64::INFINITY, f64::min);
            if nearest > distance_max {
                continue;
            }
            let nearby = candidates().filter(|division| distance(division) <= nearest + ABOUT);
            let best = nearby.min_by_key(|division| division.key.len()).cloned();
            cuts.extend(best);
        }
        if cuts.len() < 2 {
            return Self::default();
        }
        Self { cuts, low: 0.0, high: 1.0, void_ms: u64::MAX }
    }

    /// The same plan, decided now.
    pub(crate) fn decided(self, now_ms: u64) -> Self {
        Self { void_ms: now_ms + KEPT_MS, ..self }
    }

    /// True if nothing is planned, or not any more.
    pub(crate) fn is_over(&self, now_ms: u64) -> bool {
        self.cuts.is_empty() || now_ms >= self.void_ms
    }

    /// The cut that comes next, the one nearest to the middle, and the share of the partition's load behind it.
    pub(crate) fn next_cut(&self) -> Option<(&[u8], f64)> {
        let middle = f64::midpoint(self.low, self.high);
        let distance = |division: &&Division| (division.left_share - middle).abs();
        let next = self.cuts.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
        let right_share = (self.high - next.left_share) / (self.high - self.low);
        Some((&next.key, right_share.clamp(0.0, 1.0)))
    }

    /// Cuts that are left on both sides of a cut that was made.
    pub(crate) fn beside(&self, key: &[u8]) -> (Self, Self) {
        let Some(division) = self.cuts.iter().find(|cut| *cut.key == *key) else {
            return (Self::default(), Self::default());
        };
        let side = |is_below: bool, low: f64, high: f64| {
            let cuts =
                self.cuts.iter().filter(|cut| *cut.key != *key && (*cut.key < *key) == is_below);
            Self { cuts: cuts.cloned().collect(), low, high, void_ms: self.void_ms }
        };
        (side(true, self.low, division.left_share), side(false, division.left_share, self.high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divisions(shares: &[(&str, f64)]) -> Vec<Division> {
        let division = |(key, left_share): &(&str, f64)| Division {
            key: Box::from(key.as_bytes()),
            left_share: *left_share,
        };
        shares.iter().map(division).collect()
    }

    fn keys(plan: &Plan) -> Vec<String> {
        plan.cuts.iter().map(|cut| cut.key.escape_ascii().to_string()).collect()
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn cuts_lie_at_equal_shares_and_short_keys_are_preferred() {
        let all = divisions(&[
            ("bb", 0.24),
            ("c", 0.26),
            ("cc", 0.40),
            ("m", 0.51),
            ("pp", 0.74),
            ("q", 0.80),
        ]);
        assert_eq!(keys(&Plan::of(&all, 4)), names(&["c", "m", "pp"]));
        assert_eq!(keys(&Plan::of(&all, 2)), names(&[]), "one cut needs no plan");
        assert_eq!(keys(&Plan::of(&all[..1], 4)), names(&[]));
        // Two cuts beside each other would make a part of next to nothing.
        let close = divisions(&[("b", 0.16), ("c", 0.17), ("d", 0.28), ("e", 0.5)]);
        assert_eq!(keys(&Plan::of(&close, 8)), names(&["b", "d", "e"]));
        // Where a key has much of the load there is no place for some cuts.
        let uneven = divisions(&[("b", 0.05), ("c", 0.12), ("d", 0.79), ("e", 0.9)]);
        assert_eq!(keys(&Plan::of(&uneven, 8)), names(&["c", "d", "e"]));
    }

    #[test]
    fn a_plan_is_carried_out_from_the_middle_by_the_parts_themselves() {
        let all = divisions(&[("c", 0.16), ("f", 0.33), ("m", 0.5), ("q", 0.67), ("u", 0.84)]);
        let plan = Plan::of(&all, 6).decided(1_000);
        let next = |plan: &Plan| plan.next_cut().map(|(key, right)| (key.to_vec(), right));
        let (key, right) = next(&plan).unwrap();
        assert!(key == b"m" && (right - 0.5).abs() < 1e-9, "{right}");
        let (left, right) = plan.beside(b"m");
        assert_eq!((keys(&left), keys(&right)), (names(&["c", "f"]), names(&["q", "u"])));
        let (key, right) = next(&left).unwrap();
        assert!(key == b"f" && (right - 0.34).abs() < 1e-9, "{right}");
        let (left, middle) = left.beside(b"f");
        assert_eq!((keys(&left), keys(&middle)), (names(&["c"]), names(&[])));
        assert!(middle.next_cut().is_none() && middle.is_over(1_000));
        assert!(!left.is_over(1_000) && left.is_over(1_000 + KEPT_MS));
        // Somebody else cut it elsewhere.
        assert_eq!(plan.beside(b"n"), (Plan::default(), Plan::default()));
    }
}
