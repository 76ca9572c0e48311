//! Seeded random numbers with a stable algorithm: a seed identifies a data set for ever.
//!
//! SplitMix64 (Steele, Lea, Flood 2014): eight bytes of state, so that each of a million hosts has a stream of its
//! own, and its values do not depend on the number of other hosts.

/// Increment of the state: 2^64 divided by the golden ratio, odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// Number of values of an f64's mantissa.
const MANTISSA: f64 = (1_u64 << 53) as f64;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Stream number `stream` of a seed; streams of one seed are independent.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self { state: mix(seed.wrapping_add(mix(stream.wrapping_mul(STEP).wrapping_add(STEP)))) }
    }

    /// A uniform 64-bit number.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// Uniform in `[0, 1)`.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / MANTISSA
    }

    /// Uniform in `0..bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A random element; the slice must not be empty.
    #[expect(clippy::cast_possible_truncation, reason = "less than the length of a slice")]
    pub fn choose<'a, T>(&mut self, elements: &'a [T]) -> &'a T {
        &elements[self.below(elements.len() as u64) as usize]
    }

    /// Two independent numbers of the standard normal distribution (Marsaglia's polar method).
    pub fn normals(&mut self) -> [f64; 2] {
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square < 1.0 && square > 0.0 {
                let scale = (-2.0 * square.ln() / square).sqrt();
                return [x * scale, y * scale];
            }
        }
    }
}

fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_of_a_seed_never_changes() {
        let mut random = Random { state: 1_234_567 };
        // First outputs of the algorithm's reference code for this state.
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
        assert_eq!(random.next(), 9_817_491_932_198_370_423);
    }

    #[test]
    fn normals_have_mean_zero_and_variance_one() {
        let mut random = Random::new(1, 2);
        let (mut sum, mut squares, count) = (0.0, 0.0, 200_000);
        for _ in 0..count / 2 {
            for normal in random.normals() {
                sum += normal;
                squares += normal * normal;
            }
        }
        let mean = sum / f64::from(count);
        let variance = squares / f64::from(count) - mean * mean;
        assert!(mean.abs() < 0.01, "mean {mean}");
        assert!((variance - 1.0).abs() < 0.02, "variance {variance}");
    }

    #[test]
    fn choices_are_even() {
        let mut random = Random::new(7, 0);
        let mut counts = [0_u32; 5];
        for _ in 0..50_000 {
            counts[*random.choose(&[0_usize, 1, 2, 3, 4])] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }
}
