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
    /// Rates per second of rows written, rows read and bytes written, and the busy share.
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

    /// As [`Shares::of_samples`], but all keys that begin with `prefix` are one bucket, on which the load lies evenly: a
    /// hot value is a level line, whatever comes behind it. The bucket lies between the partition's first key and its
    /// end.
    #[must_use]
    pub fn with_level(
        samples: Vec<Key>,
        prefix: &[u8],
        (start, end): (&[u8], Option<&[u8]>),
    ) -> Self {
        let total = samples.len() as f64;
        let (level, outside): (Vec<_>, Vec<_>) =
            samples.into_iter().partition(|key| key.starts_with(prefix));
        if level.is_empty() {
            return Self::of_samples(outside);
        }
        let (lower, higher): (Vec<_>, Vec<_>) =
            outside.into_iter().partition(|key| key[..] < *prefix);
        let part = |samples: Vec<Key>| {
            let weight = samples.len() as f64 / total;
            let Self(buckets) = Self::of_samples(samples);
            let scaled = move |(key, share)| (key, narrow(f64::from(share) * weight));
            buckets.into_iter().map(scaled).collect::<Vec<_>>()
        };
        let (share, higher) = (narrow(level.len() as f64 / total), part(higher));
        let mut buckets = part(lower);
        buckets.push((Key::from(prefix.max(start)), share));
        let is_inside = |key: &Key| {
            end.is_none_or(|end| key[..] < *end)
                && higher.first().is_none_or(|(next, _)| next != key)
        };
        buckets.extend(behind(prefix).filter(is_inside).map(|key| (key, 0.0)));
        buckets.extend(higher);
        Self(buckets)
    }
}

/// The smallest key above all that begin with these bytes; `None` if there is none.
fn behind(prefix: &[u8]) -> Option<Key> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut bytes = prefix[..=last].to_vec();
    bytes[last] += 1;
    Some(Key::from(bytes))
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
    fn a_hot_value_is_level_whatever_comes_behind_it() {
        let mut samples: Vec<Key> = (0..30).map(|byte| key(&[7, byte])).collect();
        samples.extend([key(&[1]), key(&[3]), key(&[8, 1]), key(&[9])]);
        let Shares(buckets) = Shares::with_level(samples.clone(), &[7], (&[], None));
        let shares: Vec<_> = buckets.iter().map(|(key, share)| (key.to_vec(), *share)).collect();
        let part = |count: f32| count / 34.0;
        let expected = [
            (vec![1], part(2.0)),
            (vec![3], 0.0),
            (vec![7], part(30.0)),
            (vec![8], 0.0),
            (vec![8, 1], part(2.0)),
            (vec![9], 0.0),
        ];
        assert_eq!(shares.len(), expected.len(), "{shares:?}");
        for ((key, share), (expected_key, expected_share)) in shares.iter().zip(&expected) {
            assert_eq!(key, expected_key);
            assert!((share - expected_share).abs() < 1e-6, "{shares:?}");
        }
        // Without a sample of it, and where nothing comes behind it.
        assert_eq!(
            Shares::with_level(samples.clone(), &[5], (&[], None)),
            Shares::of_samples(samples)
        );
        let Shares(buckets) = Shares::with_level(vec![key(&[255, 1])], &[255], (&[], None));
        assert_eq!(buckets, [(key(&[255]), 1.0)]);
        // A partition may begin or end within the value.
        let within = (&[7, 2][..], Some(&[7, 9][..]));
        let Shares(buckets) = Shares::with_level(vec![key(&[7, 3])], &[7], within);
        assert_eq!(buckets, [(key(&[7, 2]), 1.0)]);
    }

    #[test]
    fn one_key_alone_takes_everything() {
        let Shares(buckets) = Shares::of_samples(vec![key(b"k")]);
        assert_eq!(buckets, [(key(b"k"), 1.0), (key(b"k\0"), 0.0)]);
        assert_eq!(Shares::of_samples(Vec::new()), Shares::default());
    }
}
