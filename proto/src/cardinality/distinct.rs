//! Counts distinct 64-bit hashes in bounded memory.
//!
//! The first hashes are kept, and their number is exact. When there are more than an eighth of the number of registers,
//! they become registers of HyperLogLog (Flajolet, Fusy, Gandouet, Meunier: "HyperLogLog: the analysis of a near-optimal
//! cardinality estimation algorithm", 2007). The estimate is Ertl's improved raw estimator (Otmar Ertl: "New cardinality
//! estimation algorithms for HyperLogLog sketches", arXiv:1702.01284, algorithm 6): it needs no tables, no thresholds
//! and no correction for small or large numbers.
//!
//! Invariant: the state depends on the set of hashes only, not on their order or on how sketches were merged.

use crate::error::Error;

/// 1 / (2 ln 2), the constant of the estimator for many registers.
const ALPHA: f64 = 0.721_347_520_444_481_7;
/// Smallest and largest number of bits that select a register.
const PRECISIONS: std::ops::RangeInclusive<u32> = 4..=16;
/// One more than the largest value of a register at any precision.
const RANKS: usize = 62;

/// Sketch of a set of hashes. The standard error of its size is 1.04 divided by the root of the number of registers:
/// 1.6 % for a precision of 12, 3.3 % for 10.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distinct {
    /// Number of bits of a hash that select its register.
    precision: u32,
    kept: Kept,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kept {
    /// All hashes, ascending.
    Hashes(Vec<u64>),
    /// The largest rank of the hashes of each register.
    Registers(Vec<u8>),
}

impl Distinct {
    /// The sketch of no hashes, which will have 2 to the power of `precision` registers. A precision outside 4 to 16
    /// is taken for the nearest one inside.
    pub fn new(precision: u32) -> Self {
        let precision = precision.clamp(*PRECISIONS.start(), *PRECISIONS.end());
        Self { precision, kept: Kept::Hashes(Vec::new()) }
    }

    /// Maximum number of hashes that are counted exactly.
    fn exact_max(&self) -> usize {
        1 << (self.precision - 3)
    }

    /// Adds a hash. The bits of hashes must be evenly distributed.
    pub fn add(&mut self, hash: u64) {
        let exact_max = self.exact_max();
        match &mut self.kept {
            Kept::Registers(registers) => raise(registers, self.precision, hash),
            Kept::Hashes(hashes) => {
                let Err(position) = hashes.binary_search(&hash) else { return };
                hashes.insert(position, hash);
                if hashes.len() > exact_max {
                    self.kept = Kept::Registers(registers(hashes, self.precision));
                }
            }
        }
    }

    /// Adds all hashes of another sketch of the same precision.
    pub fn merge(&mut self, other: &Self) {
        debug_assert_eq!(self.precision, other.precision, "sketches of one precision");
        match &other.kept {
            Kept::Hashes(hashes) => hashes.iter().for_each(|hash| self.add(*hash)),
            Kept::Registers(others) => {
                if let Kept::Hashes(hashes) = &self.kept {
                    self.kept = Kept::Registers(registers(hashes, self.precision));
                }
                if let Kept::Registers(registers) = &mut self.kept {
                    for (register, other) in registers.iter_mut().zip(others) {
                        *register = (*register).max(*other);
                    }
                }
            }
        }
    }

    /// Number of distinct hashes: exact, or estimated.
    pub fn count(&self) -> u64 {
        match &self.kept {
            Kept::Hashes(hashes) => hashes.len() as u64,
            Kept::Registers(registers) => estimate(registers, self.precision),
        }
    }

    /// True if no hash was added.
    pub fn is_empty(&self) -> bool {
        matches!(&self.kept, Kept::Hashes(hashes) if hashes.is_empty())
    }

    /// True if the count is exact.
    pub fn is_exact(&self) -> bool {
        matches!(self.kept, Kept::Hashes(_))
    }

    /// Bytes of the hashes or registers.
    pub(crate) fn size_bytes(&self) -> usize {
        match &self.kept {
            Kept::Hashes(hashes) => 8 * hashes.len(),
            Kept::Registers(registers) => registers.len(),
        }
    }

    /// The kept hashes and the registers; one of them is empty.
    pub(crate) fn parts(&self) -> (&[u64], &[u8]) {
        match &self.kept {
            Kept::Hashes(hashes) => (hashes, &[]),
            Kept::Registers(registers) => (&[], registers),
        }
    }

    /// The sketch with these parts.
    ///
    /// # Errors
    /// [`Error::Corrupted`] if no sketch of this precision has them.
    pub(crate) fn of_parts(
        precision: u32,
        hashes: Vec<u64>,
        registers: Vec<u8>,
    ) -> Result<Self, Error> {
        let mut sketch = Self::new(precision);
        if registers.is_empty() {
            let ascend = hashes.windows(2).all(|pair| pair[0] < pair[1]);
            if hashes.len() > sketch.exact_max() || !ascend {
                return Err(malformed());
            }
            sketch.kept = Kept::Hashes(hashes);
            return Ok(sketch);
        }
        let rank_max = rank_max(sketch.precision);
        let fits = registers.len() == 1 << sketch.precision
            && registers.iter().all(|rank| u32::from(*rank) <= rank_max);
        if !fits || !hashes.is_empty() {
            return Err(malformed());
        }
        sketch.kept = Kept::Registers(registers);
        Ok(sketch)
    }
}

fn malformed() -> Error {
    Error::Corrupted("a sketch of distinct values is malformed".to_owned())
}

/// Largest rank of a hash.
fn rank_max(precision: u32) -> u32 {
    64 - precision + 1
}

fn registers(hashes: &[u64], precision: u32) -> Vec<u8> {
    let mut registers = vec![0; 1 << precision];
    for hash in hashes {
        raise(&mut registers, precision, *hash);
    }
    registers
}

/// Raises the register of a hash to its rank: one more than the number of zeros with which the other bits begin.
fn raise(registers: &mut [u8], precision: u32, hash: u64) {
    let index = usize::try_from(hash >> (64 - precision)).unwrap_or(usize::MAX);
    let rest = hash << precision;
    let rank = if rest == 0 { rank_max(precision) } else { rest.leading_zeros() + 1 };
    let rank = u8::try_from(rank).unwrap_or(u8::MAX);
    if let Some(register) = registers.get_mut(index) {
        *register = (*register).max(rank);
    }
}

fn estimate(registers: &[u8], precision: u32) -> u64 {
    let mut counts = [0_u32; RANKS];
    for rank in registers {
        if let Some(count) = counts.get_mut(usize::from(*rank)) {
            *count += 1;
        }
    }
    let total = f64::from(1_u32 << precision);
    let share = |rank: u32| f64::from(counts.get(rank as usize).copied().unwrap_or(0));
    let top = rank_max(precision);
    let mut sum = total * tau(1.0 - share(top) / total);
    for rank in (1..top).rev() {
        sum = (sum + share(rank)) * 0.5;
    }
    sum += total * sigma(share(0) / total);
    let estimate = (ALPHA * total * total / sum).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is not negative, and casts of floats saturate"
    )]
    let estimate = estimate as u64;
    estimate
}

/// Contribution of the registers that are still zero.
fn sigma(mut share: f64) -> f64 {
    if share >= 1.0 {
        return f64::INFINITY;
    }
    let (mut weight, mut sum) = (1.0, share);
    loop {
        share *= share;
        let previous = sum;
        sum += share * weight;
        weight += weight;
        // The series ends when a term no longer changes the sum; as bits, since that is meant exactly.
        if sum.to_bits() == previous.to_bits() {
            return sum;
        }
    }
}

/// Contribution of the registers that have the largest rank.
fn tau(mut share: f64) -> f64 {
    if share <= 0.0 || share >= 1.0 {
        return 0.0;
    }
    let (mut weight, mut sum) = (1.0, 1.0 - share);
    loop {
        share = share.sqrt();
        let previous = sum;
        weight *= 0.5;
        sum -= (1.0 - share).powi(2) * weight;
        if sum.to_bits() == previous.to_bits() {
            return sum / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::hash::hash_values;
    use crate::value::Value;

    fn hashes(numbers: std::ops::Range<i64>) -> impl Iterator<Item = u64> {
        numbers.map(|number| hash_values(&[Value::Int(number)]))
    }

    fn sketch(numbers: std::ops::Range<i64>) -> Distinct {
        let mut sketch = Distinct::new(12);
        hashes(numbers).for_each(|hash| sketch.add(hash));
        sketch
    }

    #[test]
    fn small_numbers_are_exact() {
        for count in [0, 1, 2, 512] {
            let sketch = sketch(0..count);
            assert_eq!((sketch.count(), sketch.is_exact()), (count.unsigned_abs(), true));
        }
        assert!(!sketch(0..513).is_exact());
    }

    #[test]
    fn large_numbers_are_within_five_standard_errors() {
        for count in [513_i64, 1_000, 5_000, 10_000, 50_000, 1_000_000] {
            let estimate = i64::try_from(sketch(0..count).count()).unwrap();
            let allowed = count * 8 / 100;
            assert!((estimate - count).abs() <= allowed, "{estimate} for {count}");
        }
    }

    #[test]
    fn parts_that_no_sketch_has_are_refused() {
        assert!(Distinct::of_parts(4, vec![1, 2], Vec::new()).is_ok());
        assert!(Distinct::of_parts(4, vec![2, 1], Vec::new()).is_err());
        assert!(Distinct::of_parts(4, vec![1, 2, 3], Vec::new()).is_err(), "too many for hashes");
        assert!(Distinct::of_parts(4, Vec::new(), vec![61; 16]).is_ok());
        assert!(Distinct::of_parts(4, Vec::new(), vec![62; 16]).is_err());
        assert!(Distinct::of_parts(4, Vec::new(), vec![0; 15]).is_err());
        assert!(Distinct::of_parts(4, vec![1], vec![0; 16]).is_err());
    }

    proptest! {
        #[test]
        fn the_state_depends_on_the_set_only(
            parts in vec(vec(0_i64..60, 0..40), 1..5),
            precision in 4_u32..8,
        ) {
            let of = |numbers: &[i64]| {
                let mut sketch = Distinct::new(precision);
                numbers.iter().for_each(|number| sketch.add(hash_values(&[Value::Int(*number)])));
                sketch
            };
            let mut merged = Distinct::new(precision);
            parts.iter().rev().for_each(|part| merged.merge(&of(part)));
            let whole = of(&parts.concat());
            prop_assert_eq!(&merged, &whole);
            let (hashes, registers) = whole.parts();
            let again = Distinct::of_parts(precision, hashes.to_vec(), registers.to_vec()).unwrap();
            prop_assert_eq!(&again, &whole);
            if whole.is_exact() {
                let mut numbers = parts.concat();
                numbers.sort_unstable();
                numbers.dedup();
                prop_assert_eq!(whole.count(), numbers.len() as u64);
            }
        }
    }
}
