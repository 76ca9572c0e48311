//! Intervals between neighbouring rows of one tag set.

/// Number of buckets of a histogram: bucket b counts intervals of b bits.
pub(crate) const BUCKETS: usize = 64;

/// Intervals in ticks: a histogram, their sum, and the sum of their squares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals {
    /// Number of intervals by their number of bits: bucket 0 has the intervals of 0 ticks, bucket b those from 2^(b - 1)
    /// to 2^b - 1. Either 64 buckets or, without intervals, none.
    pub histogram: Vec<u64>,
    /// Sum in ticks.
    pub sum: u128,
    /// Sum of the squares; it ends at its largest value.
    pub squares: u128,
}

impl Intervals {
    pub(crate) fn add(&mut self, ticks: u64) {
        self.histogram.resize(BUCKETS, 0);
        let bits = (u64::BITS - ticks.leading_zeros()) as usize;
        if let Some(count) = self.histogram.get_mut(bits.min(BUCKETS - 1)) {
            *count += 1;
        }
        let ticks = u128::from(ticks);
        self.sum = self.sum.saturating_add(ticks);
        self.squares = self.squares.saturating_add(ticks * ticks);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.histogram.resize(self.histogram.len().max(other.histogram.len()), 0);
        for (count, added) in self.histogram.iter_mut().zip(&other.histogram) {
            *count = count.saturating_add(*added);
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.squares = self.squares.saturating_add(other.squares);
    }

    /// Number of intervals.
    pub fn count(&self) -> u64 {
        self.histogram.iter().fold(0_u64, |sum, count| sum.saturating_add(*count))
    }

    /// Mean in ticks; `None` without intervals.
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum as f64 / count as f64)
    }

    /// Standard deviation in ticks; `None` without intervals.
    pub fn deviation(&self) -> Option<f64> {
        let mean = self.mean()?;
        let mean_square = self.squares as f64 / self.count() as f64;
        // Rounding may make the difference negative.
        Some((mean_square - mean * mean).max(0.0).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation_are_those_of_the_intervals() {
        let mut intervals = Intervals::default();
        assert_eq!((intervals.mean(), intervals.deviation()), (None, None));
        [2, 4, 4, 4, 5, 5, 7, 9].into_iter().for_each(|ticks| intervals.add(ticks));
        assert_eq!(intervals.count(), 8);
        assert_eq!((intervals.mean(), intervals.deviation()), (Some(5.0), Some(2.0)));
        assert_eq!(intervals.histogram[..5], [0, 0, 1, 6, 1]);
    }

    #[test]
    fn the_longest_intervals_do_not_overflow() {
        let mut intervals = Intervals::default();
        intervals.add(0);
        (0..5).for_each(|_| intervals.add(u64::MAX));
        assert_eq!(intervals.squares, u128::MAX);
        let copy = intervals.clone();
        intervals.merge(&copy);
        assert_eq!((intervals.histogram[0], intervals.histogram[63]), (2, 10));
        assert_eq!(intervals.count(), 12);
    }
}
