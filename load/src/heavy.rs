//! Tracks the most frequent keys of a partition, and the most frequent values of their leading columns, in little
//! memory (`SpaceSaving`, Metwally et al.) and with decaying weights.
//!
//! Invariants: at most [`SLOTS`] counters for each number of leading columns; an estimate is never below the true
//! weight, and exceeds it by at most total / `SLOTS`; reported shares have that excess subtracted, so that they never
//! promise more than there is. Weights decay by half every [`HALF_LIFE_S`] seconds.

use crate::random::mix;

/// Counters for each number of leading columns: keys above 1/64 of the load are never missed.
pub(crate) const SLOTS: usize = 64;
/// Half-life of weights, seconds.
const HALF_LIFE_S: f64 = 30.0;
/// Maximum number of leading columns that are tracked separately; longer keys are also counted as a whole.
pub(crate) const PREFIXES_MAX: usize = 4;
/// Minimum share of a key in a report.
const SHARE_MIN: f64 = 0.01;
/// Number of half-lives after which all weights count as zero (which keeps numbers finite).
const FORGOTTEN_HALF_LIVES: f64 = 500.0;
/// Weight above which all weights are scaled down.
const WEIGHT_MAX: f64 = 1e12;

/// Counters of one kind, in columns: a search reads 64 numbers in a row.
#[derive(Clone, Debug, Default)]
struct Counters {
    hashes: Vec<u64>,
    keys: Vec<Vec<u8>>,
    weights: Vec<f64>,
    /// Weight of each counter when its present key took it over: the maximum by which its weight may be too high.
    excesses: Vec<f64>,
    total: f64,
}

/// A hash of all bytes, eight at a time. Two keys with one hash would be counted as one: with 64 counters, once in 2^58
/// new keys.
fn hash(key: &[u8]) -> u64 {
    key.chunks(8).fold(key.len() as u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(hash ^ u64::from_be_bytes(word))
    })
}

impl Counters {
    fn add(&mut self, key: &[u8], weight: f64) {
        self.total += weight;
        let hash = hash(key);
        if let Some(index) = self.hashes.iter().position(|candidate| *candidate == hash) {
            self.weights[index] += weight;
        } else if self.keys.len() < SLOTS {
            self.hashes.push(hash);
            self.keys.push(key.to_vec());
            self.weights.push(weight);
            self.excesses.push(0.0);
        } else {
            let mut least = 0;
            for index in 1..SLOTS {
                if self.weights[index] < self.weights[least] {
                    least = index;
                }
            }
            self.hashes[least] = hash;
            self.keys[least].clear();
            self.keys[least].extend_from_slice(key);
            self.excesses[least] = self.weights[least];
            self.weights[least] += weight;
        }
    }

    fn scale(&mut self, factor: f64) {
        self.total *= factor;
        self.weights.iter_mut().chain(&mut self.excesses).for_each(|number| *number *= factor);
    }

    fn shares(&self) -> impl Iterator<Item = (Box<[u8]>, f64)> + '_ {
        let total = self.total.max(f64::MIN_POSITIVE);
        let sure = self.weights.iter().zip(&self.excesses).map(|(weight, excess)| weight - excess);
        self.keys.iter().zip(sure).map(move |(key, sure)| (key.as_slice().into(), sure / total))
    }
}

/// The frequent keys of one kind of operation on one partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heavy {
    whole: Counters,
    /// Counters by number of leading columns, less one.
    leading: Vec<Counters>,
    /// The second whose operations weigh 1; later ones weigh more (instead of reducing older weights).
    origin: Option<u64>,
}

impl Heavy {
    /// Counts a key that represents `operations` operations of `second`; `ends` are the ends of its columns.
    pub(crate) fn add(&mut self, second: u64, key: &[u8], ends: &[usize], operations: f64) {
        let origin = *self.origin.get_or_insert(second);
        let age = second.saturating_sub(origin) as f64;
        if age > HALF_LIFE_S * FORGOTTEN_HALF_LIVES {
            *self = Self::default();
            return self.add(second, key, ends, operations);
        }
        let weight = operations * (age / HALF_LIFE_S).exp2();
        self.whole.add(key, weight);
        let leading = ends.iter().filter(|end| **end < key.len()).take(PREFIXES_MAX);
        for (level, end) in leading.enumerate() {
            if self.leading.len() == level {
                self.leading.push(Counters::default());
            }
            self.leading[level].add(&key[..*end], weight);
        }
        if self.whole.total > WEIGHT_MAX {
            let factor = (-age / HALF_LIFE_S).exp2();
            self.whole.scale(factor);
            self.leading.iter_mut().for_each(|counters| counters.scale(factor));
            self.origin = Some(second);
        }
    }

    /// Keys and leading columns with their shares of the load, descending; ties by key.
    pub(crate) fn shares(&self) -> Vec<(Box<[u8]>, f64)> {
        let mut shares: Vec<(Box<[u8]>, f64)> = self
            .leading
            .iter()
            .chain([&self.whole])
            .flat_map(Counters::shares)
            .filter(|(_, share)| *share >= SHARE_MIN)
            .collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn a_frequent_key_is_found_among_many_rare_ones() {
        let mut random = Random::new(9);
        let mut heavy = Heavy::default();
        for second in 0..60 {
            for _ in 0..32 {
                let user: u64 = if random.chance(0.3) { 7 } else { random.below(1_000_000) + 100 };
                let mut key = user.to_be_bytes().to_vec();
                key.extend_from_slice(&random.bits().to_be_bytes());
                heavy.add(second, &key, &[8, 16], 100.0);
            }
        }
        let shares = heavy.shares();
        assert_eq!(*shares[0].0, 7_u64.to_be_bytes());
        assert!((shares[0].1 - 0.3).abs() < 0.08, "{shares:?}");
        assert!(shares.len() < 5, "rare keys are left out: {shares:?}");
    }

    #[test]
    fn what_was_hot_an_hour_ago_is_forgotten() {
        let mut heavy = Heavy::default();
        (0..100).for_each(|second| heavy.add(second, b"old", &[], 1e9));
        (3_600..3_700).for_each(|second| heavy.add(second, b"new", &[], 1.0));
        let shares = heavy.shares();
        assert_eq!(*shares[0].0, *b"new");
        assert!(shares[0].1 > 0.99 && shares.len() == 1, "{shares:?}");
    }
}
