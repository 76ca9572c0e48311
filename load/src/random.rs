//! Reproducible pseudo-random numbers: xoshiro256++, seeded through splitmix64, and draws from it.
//!
//! Invariants: the same seed gives the same numbers on every machine; no entropy of the machine is used. Not for
//! secrets.

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

/// One step of splitmix64: also a good hash of a number.
#[must_use]
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The integral part of a non-negative number.
///
/// Saturates at the largest `u64`; NaN gives 0.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
pub(crate) fn whole(value: f64) -> u64 {
    value as u64
}

impl Random {
    /// A generator seeded with `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut counter = seed;
        let state = std::array::from_fn(|_| {
            counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(counter)
        });
        Self { state }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// Uniform from 0 (inclusive) to 1 (exclusive).
    pub fn unit(&mut self) -> f64 {
        // The upper 53 bits: a double holds no more.
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform from 0 to `end` (exclusive); 0 if `end` is 0. The bias is below `end` / 2^64.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// As [`Random::below`], for positions in a list.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// True with probability `share`.
    pub fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_another_does_not() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..8).map(|_| random.bits()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn numbers_below_an_end_are_even() {
        let mut random = Random::new(1);
        let mut seen = [0_u32; 10];
        for _ in 0..100_000 {
            seen[random.index(10)] += 1;
        }
        // Six standard deviations of a binomial(100,000, 0.1) are 569.
        assert!(seen.iter().all(|&count| (9_431..=10_569).contains(&count)), "{seen:?}");
    }

    #[test]
    fn units_lie_between_nought_and_one() {
        let mut random = Random::new(2);
        let sum: f64 =
            (0..10_000).map(|_| random.unit()).inspect(|u| assert!((0.0..1.0).contains(u))).sum();
        assert!((sum / 10_000.0 - 0.5).abs() < 0.02, "{sum}");
    }
}
