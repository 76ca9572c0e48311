//! Input of a history: the load of each partition of a table in a span of time, and its distribution inside the
//! partition.
//!
//! Invariant: keys are opaque bytes whose order is the order of the values. The empty key is below all others.

use std::sync::Arc;

use crate::metric::METRICS;
use crate::number::narrow;

/// An encoded key: opaque bytes in the order of the values.
pub type Key = Arc<[u8]>;

/// Minimum share of the samples for a key to get its own bucket: a hot key must not blur into its neighbours.
const HEAVY_SHARE: f64 = 0.1;

/// Minimum number of such samples; without it, a partition with few samples would consist of hot keys only.
const HEAVY_COUNT: usize = 3;

/// The key written in hexadecimal by [`crate::Row::key`]; `None` if the text is not hexadecimal.
#[must_use]
pub fn key_of_hex(text: &str) -> Option<Key> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?);
    text.as_bytes().chunks(2).map(pair).collect()
}

/// The load of a whole table in a span of time. A partition that is missing had no load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Start of the span, seconds since the Unix epoch.
    pub from: u64,
    /// Length of the span, seconds; 0 counts as 1.
    pub seconds: u32,
    /// Ascending by range, without overlaps.
    pub partitions: Vec<PartitionLoad>,
}

/// Rates of one partition, and the distribution of its load over its keys.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionLoad {
    /// Partition id.
    pub id: u64,
    /// Node of the leader, if known.
    pub leader: Option<u64>,
    /// First key; empty for the first partition.
    pub start: Key,
    /// End of the keys, exclusive; `None` for the last partition.
    pub end: Option<Key>,
    /// Rate of each of [`crate::Metric::ALL`], per second.
    pub rates: [f32; METRICS],
    /// Distribution of the writes over the keys.
    pub writes: Shares,
    /// Distribution of the reads over the keys.
    pub reads: Shares,
}

/// Distribution of an operation's load inside a partition: buckets in ascending order of keys, each with its share.
/// A bucket ends at the next one's key, the last at the end of the partition. Without buckets the distribution is
/// unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares(pub Vec<(Key, f32)>);

impl Shares {
    /// Buckets between sampled keys. Half of a sample's weight counts to each side of it, and nothing outside the
    /// samples, so that a moving tail leaves no trace on keys that it has not reached. A key with many samples gets
    /// its own bucket.
    #[must_use]
    pub fn of_samples(mut samples: Vec<Key>) -> Self {
        samples.sort_unstable();
        let total = samples.len();
        let mut keys: Vec<(Key, usize)> = Vec::new();
        for key in samples {
            match keys.last_mut() {
                Some((last, count)) if *last == key => *count += 1,
                _ => keys.push((key, 1)),
            }
        }
        let heavy = |count: usize| {
            keys.len() == 1 || (count >= HEAVY_COUNT && count as f64 >= HEAVY_SHARE * total as f64)
        };
        let mut buckets: Vec<(Key, f32)> = Vec::with_capacity(2 * keys.len());
        let weight = |count: f64| narrow(count / total as f64);
        // Weight that the key before left for the space between it and this one.
        let mut carried = 0.0;
        for (index, (key, count)) in keys.iter().enumerate() {
            let amount = *count as f64;
            let (key_weight, left_weight, right_weight) =
                match (heavy(*count), index, keys.len() - 1 - index) {
                    (true, _, _) => (amount, 0.0, 0.0),
                    (false, 0, _) => (0.0, 0.0, amount),
                    (false, _, 0) => (0.0, amount, 0.0),
                    (false, _, _) => (0.0, amount / 2.0, amount / 2.0),
                };
            if let Some((_, share)) = buckets.last_mut() {
                *share = weight(carried + left_weight);
            }
            if key_weight > 0.0 {
                buckets.push((Arc::clone(key), weight(key_weight)));
                buckets.push((after(key), 0.0));
            } else {
                buckets.push((Arc::clone(key), 0.0));
            }
            carried = right_weight;
        }
        Self(buckets)
    }
}

/// The smallest key above another.
fn after(key: &Key) -> Key {
    key.iter().copied().chain([0]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: &[u8]) -> Key {
        Arc::from(bytes)
    }

    #[test]
    fn shares_of_samples_add_up_to_one_and_leave_the_outside_empty() {
        let samples = [5, 9, 7, 7, 20].map(|byte| key(&[byte])).to_vec();
        let Shares(buckets) = Shares::of_samples(samples);
        assert!((buckets.iter().map(|(_, share)| share).sum::<f32>() - 1.0).abs() < 1e-6);
        assert_eq!(buckets.first().unwrap().0, key(&[5]));
        assert_eq!(*buckets.last().unwrap(), (key(&[20]), 0.0));
    }

    #[test]
    fn a_heavy_key_has_a_bucket_of_its_own() {
        let mut samples = vec![key(&[7]); 16];
        samples.extend((0..16).map(|byte| key(&[byte * 8])));
        let Shares(buckets) = Shares::of_samples(samples);
        let index = buckets.iter().position(|(start, _)| *start == key(&[7])).unwrap();
        assert!((buckets[index].1 - 0.5).abs() < 1e-6);
        assert_eq!(buckets[index + 1].0, key(&[7, 0]));
        assert!((buckets.iter().map(|(_, share)| share).sum::<f32>() - 1.0).abs() < 1e-6);
    }

    #[test]
    fn one_key_alone_takes_everything() {
        let Shares(buckets) = Shares::of_samples(vec![key(b"k")]);
        assert_eq!(buckets, [(key(b"k"), 1.0), (key(b"k\0"), 0.0)]);
        assert_eq!(Shares::of_samples(Vec::new()), Shares::default());
    }
}
