//! What is put into a history: the load of each partition of a table in a span of time, and where in the partition it
//! lay.
//!
//! Invariant: keys are opaque bytes whose order is the order of values. The empty key is below all others.

use std::sync::Arc;

use crate::metric::METRICS;
use crate::number::narrow;

/// An encoded key.
pub type Key = Arc<[u8]>;

/// A key needs this share of the samples to be shown by itself: a hot key must not be blurred into its neighbours.
const HEAVY_SHARE: f64 = 0.1;

/// ... and as many samples, or else a partition with few samples would consist of hot keys.
const HEAVY_COUNT: usize = 3;

/// The key that [`crate::Row::key`] names in hexadecimal; nothing if it is not hexadecimal.
#[must_use]
pub fn key_of_hex(text: &str) -> Option<Key> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?);
    text.as_bytes().chunks(2).map(pair).collect()
}

/// The load of a whole table in a span of time. Partitions that are left out had no load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Beginning of the span, seconds since the Unix epoch.
    pub from: u64,
    /// Length of the span, seconds; 0 counts as 1.
    pub seconds: u32,
    /// Ascending by range, without overlaps.
    pub partitions: Vec<PartitionLoad>,
}

/// The load of one partition.
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionLoad {
    /// Its number.
    pub id: u64,
    /// The node whose replica leads, when that is known.
    pub leader: Option<u64>,
    /// Its first key; empty for the first partition.
    pub start: Key,
    /// The first key after it; nothing for the last partition.
    pub end: Option<Key>,
    /// Rate of each of [`crate::Metric::ALL`], per second.
    pub rates: [f32; METRICS],
    /// Where the writes went.
    pub writes: Shares,
    /// Where the reads went.
    pub reads: Shares,
}

/// How an operation's load is shared out inside a partition: buckets by ascending key. A bucket reaches from its key to
/// the next bucket's, the last to the end of the partition. Nothing at all means that it is not known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares(pub Vec<(Key, f32)>);

impl Shares {
    /// Buckets between sampled keys. Half of a sample's weight is counted to each side of it, and nothing outside the
    /// samples, so that a moving tail leaves no trace where it has not been yet. A key that many samples name gets a
    /// bucket of its own.
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
        // What the key before left over for the space between it and this one.
        let mut carried = 0.0;
        for (at, (key, count)) in keys.iter().enumerate() {
            let own = *count as f64;
            let (alone, left, right) = match (heavy(*count), at, keys.len() - 1 - at) {
                (true, _, _) => (own, 0.0, 0.0),
                (false, 0, _) => (0.0, 0.0, own),
                (false, _, 0) => (0.0, own, 0.0),
                (false, _, _) => (0.0, own / 2.0, own / 2.0),
            };
            if let Some((_, share)) = buckets.last_mut() {
                *share = weight(carried + left);
            }
            if alone > 0.0 {
                buckets.push((Arc::clone(key), weight(alone)));
                buckets.push((after(key), 0.0));
            } else {
                buckets.push((Arc::clone(key), 0.0));
            }
            carried = right;
        }
        Self(buckets)
    }
}

/// The least key above another.
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
        let at = buckets.iter().position(|(start, _)| *start == key(&[7])).unwrap();
        assert!((buckets[at].1 - 0.5).abs() < 1e-6);
        assert_eq!(buckets[at + 1].0, key(&[7, 0]));
        assert!((buckets.iter().map(|(_, share)| share).sum::<f32>() - 1.0).abs() < 1e-6);
    }

    #[test]
    fn one_key_alone_takes_everything() {
        let Shares(buckets) = Shares::of_samples(vec![key(b"k")]);
        assert_eq!(buckets, [(key(b"k"), 1.0), (key(b"k\0"), 0.0)]);
        assert_eq!(Shares::of_samples(Vec::new()), Shares::default());
    }
}
