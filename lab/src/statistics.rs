//! What rounds say together: their median, and between which bounds it lies as far as so few rounds can tell.
//!
//! The bounds are two of the values themselves, counted from either end: whatever the values are distributed like, the
//! true median lies between the k-th from below and the k-th from above unless fewer than k of the rounds fell on one
//! side of it, which is a matter of tossing coins. Nothing is assumed of what else the machine did.
//!
//! Invariants: pure; values that are no numbers are not passed; no values give zeros and a confidence of zero.

use serde::Serialize;

/// Bounds are as narrow as they can be at this confidence; with four rounds or fewer it cannot be had, and they are the
/// least and the greatest.
const CONFIDENCE: f64 = 0.9;

/// The middle of some values; the mean of both middles of an even number.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

/// A median and its sampling error.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Of the true median being between the two.
    pub(crate) confidence: f64,
    pub(crate) rounds: usize,
}

impl Spread {
    /// Of rounds that are worth the same.
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let rounds = sorted.len();
        let (Some(least), Some(greatest)) = (sorted.first(), sorted.last()) else {
            return Self::default();
        };
        let mut spread = Self {
            median: median(&sorted),
            low: *least,
            high: *greatest,
            confidence: confidence(rounds, 1),
            rounds,
        };
        let narrower = (2..=rounds / 2).map(|from_end| (from_end, confidence(rounds, from_end)));
        for (from_end, confidence) in narrower.take_while(|(_, sure)| *sure >= CONFIDENCE) {
            (spread.low, spread.high) = (sorted[from_end - 1], sorted[rounds - from_end]);
            spread.confidence = confidence;
        }
        spread
    }

    /// Of what each round says of two things that were measured next to each other in it.
    pub(crate) fn of_pairs(of: &[f64], to: &[f64], each: impl Fn(f64, f64) -> f64) -> Self {
        let pairs = of.iter().zip(to).filter(|(_, to)| **to > 0.0);
        let each: Vec<f64> = pairs.map(|(of, to)| each(*of, *to)).collect();
        Self::of(&each)
    }
}

/// How surely the median is between the k-th value from below and the k-th from above.
fn confidence(rounds: usize, from_end: usize) -> f64 {
    // Coins: the share of all outcomes in which fewer than k fall on one side, twice.
    let mut outcomes = 1.0;
    let mut outside = 0.0;
    for fallen in 0..from_end.min(rounds) {
        outside += outcomes;
        outcomes *= count(rounds - fallen) / count(fallen + 1);
    }
    (1.0 - 2.0 * outside / 2_f64.powf(count(rounds))).max(0.0)
}

#[expect(clippy::cast_precision_loss, reason = "rounds that somebody waits for")]
fn count(of: usize) -> f64 {
    of as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn bounds_are_as_sure_as_the_binomial_distribution_says() {
        for (rounds, from_end, sure) in
            [(5, 1, 0.9375), (5, 2, 0.625), (9, 2, 0.9609), (9, 3, 0.8203), (1, 1, 0.0)]
        {
            let told = confidence(rounds, from_end);
            assert!((told - sure).abs() < 1e-4, "{told} for {rounds}, {from_end}");
        }
    }

    #[test]
    fn one_round_that_went_wrong_widens_nothing_when_there_are_enough() {
        let spread = Spread::of(&[1.0, 1.1, 0.9, 1.0, 50.0, 1.2, 0.8, 1.0, 1.0]);
        assert_eq!((spread.median, spread.low, spread.high), (1.0, 0.9, 1.2));
        assert!(spread.confidence > 0.95 && spread.rounds == 9);
        let few = Spread::of(&[1.0, 2.0, 9.0]);
        assert_eq!((few.low, few.median, few.high), (1.0, 2.0, 9.0));
        assert!((few.confidence - 0.75).abs() < 1e-9);
        assert_eq!(Spread::of(&[]), Spread::default());
    }

    #[test]
    fn pairs_are_judged_round_by_round() {
        // The machine was half as fast in the second round: for both.
        let spread = Spread::of_pairs(&[90.0, 45.0], &[100.0, 50.0], |of, to| 1.0 - of / to);
        assert!((spread.median - 0.1).abs() < 1e-9 && (spread.high - spread.low).abs() < 1e-9);
        assert_eq!(Spread::of_pairs(&[1.0], &[0.0], |of, to| of / to).rounds, 0);
    }
}
