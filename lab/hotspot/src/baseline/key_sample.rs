//! Like YDB's row tables: after an assessment of 15 s, a minute of sampling 100 keys, and the median of the shortest
//! leading columns whose median differs from both the 10 % and the 90 % quantile.
//!
//! Invariants: the cut is judged on the very keys from which it was chosen.

use partita_load::{Class, Columns, Cut, Random, Reservoir};

use crate::picker::{Answer, Picker};
use crate::streams::{Op, SECOND_US};

const SAMPLE: usize = 100;
const ASSESSMENT_US: u64 = 15 * SECOND_US;
const SAMPLING_US: u64 = 60 * SECOND_US;

/// Chooses the median of a sample, without judging it on other keys.
pub struct KeySample {
    random: Random,
    columns: Columns,
    sample: Reservoir,
}

impl KeySample {
    /// Creates a picker for keys whose columns end where `columns` says.
    #[must_use]
    pub fn new(seed: u64, columns: Columns) -> Self {
        Self { random: Random::new(seed), columns, sample: Reservoir::new(SAMPLE) }
    }
}

/// The first `depth` columns of a key, or all if it has fewer.
fn prefix<'k>(key: &'k [u8], columns: &Columns, depth: usize) -> &'k [u8] {
    columns(key).get(depth - 1).and_then(|end| key.get(..*end)).unwrap_or(key)
}

impl Picker for KeySample {
    fn name(&self) -> &'static str {
        "ydb-like"
    }

    fn rate(&self) -> u64 {
        // 9,000 in a minute, of which 100 are taken.
        150
    }

    fn observe(&mut self, at_us: u64, op: &Op) {
        if (ASSESSMENT_US..ASSESSMENT_US + SAMPLING_US).contains(&at_us) {
            self.sample.offer(1, &mut self.random, |_, slot| slot.key.clone_from(&op.key));
        }
    }

    fn poll(&mut self, at_us: u64) -> Answer {
        if at_us < ASSESSMENT_US + SAMPLING_US {
            return Answer::Wait;
        }
        let slots = self.sample.in_order();
        let mut keys: Vec<&[u8]> = slots.iter().map(|slot| slot.key.as_slice()).collect();
        keys.sort_unstable();
        let depths = keys.iter().map(|key| (self.columns)(key).len()).max().unwrap_or(0);
        let quantile = |tenths: usize, depth| {
            prefix(keys[(keys.len() * tenths / 10).min(keys.len() - 1)], &self.columns, depth)
        };
        let divides = |depth: &usize| {
            quantile(5, *depth) > quantile(1, *depth) && quantile(5, *depth) < quantile(9, *depth)
        };
        match (1..=depths).find(divides) {
            Some(depth) => {
                let cut = quantile(5, depth);
                let left_count = keys.partition_point(|key| *key < cut);
                let larger_share =
                    left_count.max(keys.len() - left_count) as f64 / keys.len() as f64;
                Answer::Cut(Class::StaticRange, Cut { key: cut.into(), larger_share })
            }
            None => Answer::Stay(Class::Unknown),
        }
    }
}
