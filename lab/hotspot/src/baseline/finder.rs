//! Like CockroachDB's split by load: a reservoir of 20 keys; each later request is counted as left or right of each of
//! them. After 10 s the most even of those with 100 counts is taken.
//!
//! Invariants: a key is judged on requests after it was sampled. That refuses a stream in perfect order, and is misled
//! as soon as the disorder of writers is about as deep as the required number of counts.

use partita_load::{Class, Cut, Random};

use crate::baseline::{Side, Tally, side};
use crate::picker::{Answer, Picker};
use crate::streams::{Op, SECOND_US};

const SLOTS: usize = 20;
const RECORDING_US: u64 = 10 * SECOND_US;
const COUNTS_MIN: u32 = 100;
const IMBALANCE_MAX: f64 = 0.25;
const CONTAINED_MAX: f64 = 0.5;

/// Chooses the best of sampled keys, each judged on the requests after it.
pub struct Finder {
    random: Random,
    count: u64,
    slots: Vec<Slot>,
    /// It looks after every request, and keeps the first cut that it finds.
    found: Option<Cut>,
}

struct Slot {
    /// The first bytes of the key, as a number: they decide most comparisons.
    head: u128,
    key: Vec<u8>,
    tally: Tally,
}

fn head(key: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let len = key.len().min(bytes.len());
    bytes[..len].copy_from_slice(&key[..len]);
    u128::from_be_bytes(bytes)
}

impl Slot {
    fn count(&mut self, op: &Op, op_head: u128) {
        // A request for one key is compared by its first bytes; ranges and equal heads need whole keys.
        let side = match &op.end {
            None if op_head < self.head => Side::Left,
            None if op_head > self.head => Side::Right,
            _ => side(op, &self.key),
        };
        self.tally.count(side);
    }

    fn score(&self) -> f64 {
        self.tally.imbalance() + self.tally.contained_share()
    }

    fn fits(&self) -> bool {
        self.tally.all() >= COUNTS_MIN
            && self.tally.imbalance() < IMBALANCE_MAX
            && self.tally.contained_share() < CONTAINED_MAX
    }
}

impl Finder {
    /// Creates a finder without samples.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), count: 0, slots: Vec::new(), found: None }
    }

    fn find(&self) -> Option<Cut> {
        let fitting = self.slots.iter().filter(|slot| slot.fits());
        let best = fitting.min_by(|a, b| a.score().total_cmp(&b.score()))?;
        Some(Cut { key: best.key.as_slice().into(), larger_share: best.tally.larger_share() })
    }
}

impl Picker for Finder {
    fn name(&self) -> &'static str {
        "crdb-like"
    }

    fn rate(&self) -> u64 {
        // The depth of the disorder in requests is decisive: all have to be seen.
        u64::MAX
    }

    fn observe(&mut self, at_us: u64, op: &Op) {
        if self.found.is_some() {
            return;
        }
        let position = if self.slots.len() < SLOTS {
            self.slots.push(Slot { head: 0, key: Vec::new(), tally: Tally::default() });
            self.slots.len() - 1
        } else {
            usize::try_from(self.random.below(self.count)).unwrap_or(SLOTS)
        };
        self.count += 1;
        let head = head(&op.key);
        if let Some(slot) = self.slots.get_mut(position) {
            slot.head = head;
            slot.key.clone_from(&op.key);
            slot.tally = Tally::default();
        } else {
            for slot in &mut self.slots {
                slot.count(op, head);
            }
        }
        if at_us >= RECORDING_US {
            self.found = self.find();
        }
    }

    fn poll(&mut self, at_us: u64) -> Answer {
        match &self.found {
            Some(cut) => Answer::Cut(Class::StaticRange, cut.clone()),
            None if at_us < RECORDING_US => Answer::Wait,
            None => Answer::Stay(Class::Unknown),
        }
    }
}
