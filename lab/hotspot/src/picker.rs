//! The common interface of all pickers of split keys, for comparison on the same streams; and ours as one of them.
//!
//! Invariants: a picker sees operations in order of time, and nothing else. The caller decides when to poll, and how to
//! use the answers.

use std::sync::Arc;

use partita_load::{
    Class, Columns, Cut, DetectOptions, RING_ENGAGED_S, SAMPLES_PER_SECOND, SHARE_MAX, Sampler,
    Verdict, WINDOW_S, classify, confirm, of_reads,
};

use crate::streams::{Op, SECOND_US};

/// Answer of a picker.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Not enough operations seen.
    Wait,
    /// Split here; with the predicted share of the larger side.
    Cut(Class, Cut),
    /// Do not split, because the load is of this class ([`Class::Unknown`] if it cannot be classified).
    Stay(Class),
}

/// Picks a split key for one partition.
pub trait Picker {
    /// Name in tables.
    fn name(&self) -> &'static str;

    /// Number of operations per second that it has to see; a uniform sample of more gives the same answers.
    fn rate(&self) -> u64;

    /// Observes an operation at a time (microseconds).
    fn observe(&mut self, at_us: u64, op: &Op);

    /// The current answer.
    fn poll(&mut self, at_us: u64) -> Answer;
}

/// Our picker: samples, verdicts on a window, and the verdict on which at least two of three agree.
pub struct Detector {
    sampler: Sampler,
    columns: Columns,
    options: DetectOptions,
    reads: bool,
    verdicts: Vec<Verdict>,
}

/// Number of verdicts that are kept: more than are needed to confirm one, to show how it came about.
const VERDICTS_MAX: usize = 16;
/// The whole ring is passed: the detector decides how much of it it needs.
const RING_S: u64 = RING_ENGAGED_S;

impl Detector {
    /// A detector for keys whose columns end where `columns` says.
    #[must_use]
    pub fn new(seed: u64, columns: Columns, options: DetectOptions) -> Self {
        let mut sampler = Sampler::new(seed).with_columns(Arc::clone(&columns));
        sampler.engage(true);
        Self { sampler, columns, options, reads: false, verdicts: Vec::new() }
    }

    /// Judges the operations as reads if `reads` is true.
    #[must_use]
    pub fn with_reads(mut self, reads: bool) -> Self {
        self.reads = reads;
        self
    }

    /// Sets the lowest and the highest key that the partition is known to hold.
    pub fn set_edges(&mut self, low: &[u8], high: &[u8]) {
        self.sampler.set_edges(Some(low), Some(high));
    }

    /// The newest verdicts, oldest first, each before confirmation.
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
        10 * SAMPLES_PER_SECOND as u64
    }

    fn observe(&mut self, at_us: u64, op: &Op) {
        // Second 0 is the initial one of a sampler.
        let second = at_us / SECOND_US + 1;
        match &op.end {
            None => self.sampler.observe(second, 1, |_| &op.key),
            Some(end) => self.sampler.observe_scan(second, &op.key, end),
        }
    }

    fn poll(&mut self, at_us: u64) -> Answer {
        let sketch = self.sampler.sketch(at_us / SECOND_US + 1, RING_S);
        let verdict = classify(&sketch, WINDOW_S, &*self.columns, &self.options);
        self.verdicts.push(if self.reads { of_reads(verdict) } else { verdict });
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
