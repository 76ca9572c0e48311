//! Like TiKV's split of regions with many reads: 20 sampled ranges of each of 10 seconds; the ends of 20 of those 200
//! are candidates, judged on all 200.
//!
//! Invariants: candidates are judged on the very samples from which they come.

use partita_load::{Class, Cut, Random, Reservoir, Slot};

use crate::baseline::{Tally, side};
use crate::picker::{Answer, Picker};
use crate::streams::{Op, SECOND_US};

/// Number of ranges kept of each second, and of candidates taken from all of them.
const SAMPLE: usize = 20;
const TICKS: usize = 10;
const SAMPLES_MIN: u32 = 100;
const IMBALANCE_MAX: f64 = 0.8;
const CONTAINED_MAX: f64 = 0.5;

/// Chooses the best of candidates that are judged on their own sample.
pub struct Recorder {
    random: Random,
    second: u64,
    open: Reservoir,
    ticks: Vec<Vec<Op>>,
}

impl Recorder {
    /// Creates a recorder without samples.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            second: 0,
            open: Reservoir::new(SAMPLE),
            ticks: Vec::new(),
        }
    }

    fn close(&mut self, second: u64) {
        if second > self.second {
            let op = |slot: &&Slot| Op { key: slot.key.clone(), end: slot.end.clone() };
            let tick: Vec<Op> = self.open.in_order().iter().map(op).collect();
            if !tick.is_empty() && self.ticks.len() < TICKS {
                self.ticks.push(tick);
            }
            self.open.clear();
            self.second = second;
        }
    }
}

impl Picker for Recorder {
    fn name(&self) -> &'static str {
        "tikv-like"
    }

    fn rate(&self) -> u64 {
        // More than are kept of each second.
        200
    }

    fn observe(&mut self, at_us: u64, op: &Op) {
        self.close(at_us / SECOND_US);
        self.open.offer(1, &mut self.random, |_, slot| {
            slot.key.clone_from(&op.key);
            slot.end.clone_from(&op.end);
        });
    }

    fn poll(&mut self, at_us: u64) -> Answer {
        self.close(at_us / SECOND_US);
        if self.ticks.len() < TICKS {
            return Answer::Wait;
        }
        // Candidates are the ends of some of the samples.
        let samples: Vec<&Op> = self.ticks.iter().flatten().collect();
        let mut chosen = Reservoir::new(SAMPLE);
        let mut candidates = Vec::new();
        chosen.offer(samples.len() as u64, &mut self.random, |_, _| ());
        for slot in chosen.in_order() {
            let op = samples[usize::try_from(slot.arrival).unwrap_or(0)];
            candidates.push(&op.key);
            candidates.extend(op.end.as_ref().filter(|end| !end.is_empty()));
        }
        // Each is judged on all samples, by imbalance and by the ranges across it.
        let mut best: Option<(f64, Cut)> = None;
        for key in candidates {
            let mut tally = Tally::default();
            samples.iter().for_each(|op| tally.count(side(op, key)));
            let (imbalance, contained) = (tally.imbalance(), tally.contained_share());
            let score = imbalance + contained;
            if tally.all() >= SAMPLES_MIN
                && imbalance < IMBALANCE_MAX
                && contained < CONTAINED_MAX
                && best.as_ref().is_none_or(|(least, _)| score < *least)
            {
                let cut = Cut { key: key.as_slice().into(), larger_share: tally.larger_share() };
                best = Some((score, cut));
            }
        }
        best.map_or(Answer::Stay(Class::Unknown), |(_, cut)| Answer::Cut(Class::StaticRange, cut))
    }
}
