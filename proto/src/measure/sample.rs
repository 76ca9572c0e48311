//! Hashes of values, and the sample of the values with the smallest ones.
//!
//! Equal values have equal hashes, in every process: measures of different nodes merge. The sample of merged rows
//! consists of values that were in the samples of their parts, so that it depends on the set of values only.

use xxhash_rust::xxh3::xxh3_64;

use crate::value::Value;

/// Maximum number of values in the sample of a column.
pub const SAMPLE_MAX: usize = 32;

/// Odd number that keeps the hashes of small numbers apart.
const SALT: u64 = 0x9e37_79b9_7f4a_7c15;
/// Upper half of a hash.
const UPPER: u64 = 0xffff_ffff_0000_0000;
/// Lower half of all hashes that are counted: with a bit that is set, so that no hash ends the counting of zeros.
const LOWER: u64 = 0x8000_0000;
/// Number of hashes that are remembered.
const REMEMBERED: usize = 256;

/// A value in a sample, with its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// Hash of the whole value.
    pub hash: u64,
    /// Value; a long text or byte string is cut.
    pub value: Value,
}

/// Adds a value to a sample, which is in the order of hashes, if its hash is among the smallest.
pub(crate) fn add_sampled(sample: &mut Vec<Sampled>, hash: u64, value: impl FnOnce() -> Value) {
    let is_full = sample.len() >= SAMPLE_MAX;
    if is_full && sample.last().is_some_and(|last| last.hash < hash) {
        return;
    }
    let Err(position) = sample.binary_search_by_key(&hash, |sampled| sampled.hash) else { return };
    sample.insert(position, Sampled { hash, value: value() });
    sample.truncate(SAMPLE_MAX);
}

/// Hash of a value of up to 64 bits: the finalizer of SplitMix64 (Steele, Lea, Flood, 2014).
pub(crate) fn hash_word(word: u64) -> u64 {
    let mut mixed = word.wrapping_add(SALT);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Hash of a value of any length.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// The part of a hash by which values are counted: half of it suffices for a billion values, and takes half the space.
pub(crate) fn counted(hash: u64) -> u64 {
    (hash & UPPER) | LOWER
}

/// The upper half of a counted hash.
pub(crate) fn upper_half(counted: u64) -> u32 {
    u32::try_from(counted >> 32).unwrap_or(u32::MAX)
}

/// The counted hash with this upper half.
pub(crate) fn hash_of_upper(upper: u32) -> u64 {
    (u64::from(upper) << 32) | LOWER
}

/// Hashes that were seen last: most values of a column with few different ones are found here.
pub(crate) struct Recent([u64; REMEMBERED]);

impl Default for Recent {
    fn default() -> Self {
        Self([0; REMEMBERED])
    }
}

impl Recent {
    /// Remembers a hash; false if it was remembered already.
    pub(crate) fn is_new(&mut self, hash: u64) -> bool {
        let [place, ..] = hash.to_le_bytes();
        let slot = &mut self.0[usize::from(place)];
        // A free place has 0.
        let is_new = *slot != hash || hash == 0;
        *slot = hash;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_hashes_are_kept_in_order() {
        let mut sample = Vec::new();
        for number in (0..100_u64).rev().chain(0..100) {
            add_sampled(&mut sample, number, || Value::UInt(number));
        }
        let hashes: Vec<u64> = sample.iter().map(|sampled| sampled.hash).collect();
        assert_eq!(hashes, (0..SAMPLE_MAX as u64).collect::<Vec<_>>());
        assert_eq!(sample[7].value, Value::UInt(7));
    }

    #[test]
    fn a_counted_hash_comes_back_from_its_upper_half() {
        for hash in [0, 1, u64::MAX, hash_word(5), hash_bytes(b"a")] {
            assert_eq!(hash_of_upper(upper_half(counted(hash))), counted(hash));
        }
    }

    #[test]
    fn hashes_are_remembered_until_others_take_their_place() {
        let mut recent = Recent::default();
        assert!(recent.is_new(0) && recent.is_new(0), "0 is never remembered");
        assert!(recent.is_new(5) && !recent.is_new(5));
        assert!(recent.is_new(256 + 5) && recent.is_new(5));
    }
}
