//! Splits when there are enough rows, at the median of the stored keys.
//!
//! Invariants: a uniform sample of all rows ever written represents the stored rows. Load is ignored.

use partita_load::{Class, Cut, Random, Reservoir};

use crate::picker::{Answer, Picker};
use crate::streams::Op;

/// Size of the sample.
const SAMPLE: usize = 1_000;

/// Splits by size alone.
pub struct SizeOnly {
    random: Random,
    rows_max: u64,
    sample: Reservoir,
}

impl SizeOnly {
    /// Creates a picker that splits beyond `rows_max` observed rows.
    #[must_use]
    pub fn new(seed: u64, rows_max: u64) -> Self {
        Self { random: Random::new(seed), rows_max, sample: Reservoir::new(SAMPLE) }
    }
}

impl Picker for SizeOnly {
    fn name(&self) -> &'static str {
        "size-only"
    }

    fn rate(&self) -> u64 {
        200
    }

    fn observe(&mut self, _at_us: u64, op: &Op) {
        // Scans store no rows.
        if op.end.is_none() {
            self.sample.offer(1, &mut self.random, |_, slot| slot.key.clone_from(&op.key));
        }
    }

    fn poll(&mut self, _at_us: u64) -> Answer {
        if self.sample.count() <= self.rows_max {
            return Answer::Wait;
        }
        let mut keys: Vec<_> = self.sample.in_order().iter().map(|slot| &slot.key).collect();
        keys.sort_unstable();
        let median = keys[keys.len() / 2];
        if median == keys[0] {
            return Answer::Stay(Class::Unknown);
        }
        let left_count = keys.partition_point(|key| *key < median);
        let larger_share = left_count.max(keys.len() - left_count) as f64 / keys.len() as f64;
        Answer::Cut(Class::StaticRange, Cut { key: median.as_slice().into(), larger_share })
    }
}
