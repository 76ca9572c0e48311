//! What all who pick split keys have in common, so that they can be compared on the same streams; and ours as one.
//!
//! Invariants: a picker sees operations in order of time, and nothing else. Its answers are its own: whoever asks
//! decides when, and what to do with them.

use std::sync::Arc;

use crate::detect::{SHARE_MAX, classify, confirm};
use crate::features::Options;
use crate::sampler::{Columns, Sampler};
use crate::streams::{Op, SECOND_US};
use crate::verdict::{Class, Cut, Verdict};

/// What a picker says.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It has not seen enough.
    Wait,
    /// Split here; with the share of the larger side that it expects.
    Cut(Class, Cut),
    /// Do not split, because the load is of this class ([`Class::Unknown`] if it cannot say).
    Stay(Class),
}

/// Picks a split key for one partition.
pub trait Picker {
    /// Its name in tables.
    fn name(&self) -> &'static str;

    /// Operations a second that it has to see; a uniform sample of more of them gives the same answers.
    fn rate(&self) -> u64;

    /// Takes note of an operation at a time (microseconds).
    fn observe(&mut self, at_us: u64, op: &Op);

    /// What it says now.
    fn poll(&mut self, at_us: u64) -> Answer;
}

/// Ours: samples, verdicts on a window, and what at least two of three of them say.
pub struct Detector {
    sampler: Sampler,
    columns: Columns,
    options: Options,
    verdicts: Vec<Verdict>,
}

/// Verdicts that are remembered: more than are needed to confirm one, for who wants to see how it came about.
const VERDICTS_MAX: usize = 16;
/// The window that is asked for, seconds.
pub const WINDOW_S: u32 = 20;
/// The ring is looked at as a whole: the detector decides how much of it it needs.
const RING_S: u64 = crate::sampler::RING_ENGAGED_S;

impl Detector {
    /// A detector for keys whose columns end where `columns` says.
    #[must_use]
    pub fn new(seed: u64, columns: Columns, options: Options) -> Self {
        let mut sampler = Sampler::new(seed).with_columns(Arc::clone(&columns));
        sampler.engage(true);
        Self { sampler, columns, options, verdicts: Vec::new() }
    }

    /// Tells which keys the partition holds, at least.
    pub fn set_edges(&mut self, low: &[u8], high: &[u8]) {
        self.sampler.set_edges(Some(low), Some(high));
    }

    /// The newest verdicts, oldest first, each as it was before it was confirmed.
    #[must_use]
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }
}

impl Picker for Detector {
    fn name(&self) -> &'static str {
        "ours"
    }

    fn rate(&self) -> u64 {
        // More than are kept of each second.
        10 * crate::sampler::SAMPLES_PER_SECOND as u64
    }

    fn observe(&mut self, at_us: u64, op: &Op) {
        // Second 0 is the one that a sampler begins in.
        let second = at_us / SECOND_US + 1;
        match &op.end {
            None => self.sampler.observe(second, 1, |_| &op.key),
            Some(end) => self.sampler.observe_scan(second, &op.key, end),
        }
    }

    fn poll(&mut self, at_us: u64) -> Answer {
        let sketch = self.sampler.sketch(at_us / SECOND_US + 1, RING_S);
        self.verdicts.push(classify(&sketch, WINDOW_S, &*self.columns, &self.options));
        let spare = self.verdicts.len().saturating_sub(VERDICTS_MAX);
        self.verdicts.drain(..spare);
        let verdict = confirm(&self.verdicts);
        match (verdict.class, verdict.cut) {
            (Class::Unknown, _) => Answer::Wait,
            (class, Some(cut)) if cut.larger_share <= SHARE_MAX => Answer::Cut(class, cut),
            (class, _) => Answer::Stay(class),
        }
    }
}
