//! Statistics over rounds: the median, and a confidence interval from few rounds.
//!
//! The bounds are two of the values themselves, counted from either end: whatever the distribution, the true median
//! lies between the k-th value from below and the k-th from above, unless fewer than k of the rounds fell on one
//! side of it, which is a binomial probability with p = 1/2. Nothing is assumed about disturbances of the machine.
//!
//! Invariants: pure; values must not be NaN; no values give zeros and a confidence of zero.

use serde::Serialize;

/// Bounds are as narrow as possible at this confidence; four rounds or fewer cannot reach it, and the bounds are
/// the minimum and maximum.
const CONFIDENCE: f64 = 0.9;

/// The median; the mean of the middle two if the number is even; 0 if there are no values.
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

/// A median with its confidence interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Probability that the true median is between the bounds.
    pub(crate) confidence: f64,
    pub(crate) rounds: usize,
}

impl Spread {
    /// Statistics of rounds with equal weight.
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

    /// Statistics of a figure computed in each round from two measurements; rounds with a base of 0 are left out.
    pub(crate) fn of_pairs(
        values: &[f64],
        bases: &[f64],
        figure: impl Fn(f64, f64) -> f64,
    ) -> Self {
        let pairs = values.iter().zip(bases).filter(|(_, base)| **base > 0.0);
        let figures: Vec<f64> = pairs.map(|(value, base)| figure(*value, *base)).collect();
        Self::of(&figures)
    }
}

/// Probability that the median is between the k-th value from below and the k-th from above.
fn confidence(rounds: usize, from_end: usize) -> f64 {
    // Fewer than k coin tosses of `rounds` fall on one side, for either side.
    let mut outcomes = 1.0;
    let mut outside = 0.0;
    for fallen in 0..from_end.min(rounds) {
        outside += outcomes;
        outcomes *= count(rounds - fallen) / count(fallen + 1);
    }
    (1.0 - 2.0 * outside / 2_f64.powf(count(rounds))).max(0.0)
}

#[expect(clippy::cast_precision_loss, reason = "the number of rounds is small")]
fn count(number: usize) -> f64 {
    number as f64
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
            let probability = confidence(rounds, from_end);
            assert!((probability - sure).abs() < 1e-4, "{probability} for {rounds}, {from_end}");
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
        // The machine was half as fast in the second round, for both measurements.
        let spread =
            Spread::of_pairs(&[90.0, 45.0], &[100.0, 50.0], |value, base| 1.0 - value / base);
        assert!((spread.median - 0.1).abs() < 1e-9 && (spread.high - spread.low).abs() < 1e-9);
        assert_eq!(Spread::of_pairs(&[1.0], &[0.0], |value, base| value / base).rounds, 0);
    }
}
