//! Histograms of lengths: one bucket for each number of bits.

/// Number of buckets of a histogram: bucket b counts lengths of b bits.
pub(crate) const BUCKETS: usize = 33;

/// The bucket of a length.
pub(crate) fn bucket(length: u32) -> usize {
    (u32::BITS - length.leading_zeros()) as usize
}

/// The length that a share of all lengths does not exceed: the largest length of its bucket, and at most `max`. 0 for no
/// lengths.
pub(crate) fn quantile(counts: &[u64], share: f64, max: u64) -> u64 {
    let total: u64 = counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
    let rank = (total as f64 * share.clamp(0.0, 1.0)).ceil().max(1.0);
    let mut sum = 0_u64;
    for (bits, count) in counts.iter().enumerate() {
        sum = sum.saturating_add(*count);
        if sum as f64 >= rank {
            return ((1_u64 << bits) - 1).min(max);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_has_the_lengths_of_one_number_of_bits() {
        let buckets: Vec<usize> = [0, 1, 2, 3, 4, 1023, 1024, u32::MAX].map(bucket).to_vec();
        assert_eq!(buckets, [0, 1, 2, 2, 3, 10, 11, 32]);
    }

    #[test]
    fn a_quantile_is_the_end_of_its_bucket() {
        let mut counts = vec![0; BUCKETS];
        assert_eq!(quantile(&counts, 0.5, 0), 0, "no lengths");
        counts[bucket(0)] = 1;
        assert_eq!(quantile(&counts, 0.5, 0), 0, "an empty text");
        counts[bucket(5)] = 94;
        counts[bucket(900)] = 5;
        assert_eq!(quantile(&counts, 0.0, 900), 0);
        assert_eq!(quantile(&counts, 0.5, 900), 7);
        assert_eq!(quantile(&counts, 0.95, 900), 7);
        assert_eq!(quantile(&counts, 0.96, 900), 900, "not beyond the longest");
        assert_eq!(quantile(&counts, 1.0, 2_000), 1_023);
    }
}
