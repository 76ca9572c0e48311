//! The pickers' answers, and their report.
//!
//! Invariants: one outcome for each seed, in order of seeds.

use partita_hotspot::streams::Kind;
use partita_load::Class;

use crate::IN_VAIN;

/// Answer of one picker for one stream.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) seed: u64,
    pub(crate) class: Class,
    /// When the first verdict held, seconds.
    pub(crate) after_s: u64,
    /// If a cut was proposed: the share of the larger side in the minute after it.
    pub(crate) future: Option<f64>,
}

/// One picker on one stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    pub(crate) outcomes: Vec<Outcome>,
}

/// All pickers on one stream.
pub(crate) struct Row {
    pub(crate) kind: Kind,
    pub(crate) ours: Cell,
    pub(crate) finder: Cell,
    pub(crate) recorder: Cell,
    pub(crate) key_sample: Cell,
    pub(crate) size_only: Cell,
}

impl Row {
    /// A row in which nobody else was asked.
    pub(crate) fn of_ours(kind: Kind, ours: Cell) -> Self {
        let none = Cell::default;
        let (finder, recorder, key_sample, size_only) = (none(), none(), none(), none());
        Self { kind, ours, finder, recorder, key_sample, size_only }
    }
}

impl Cell {
    pub(crate) fn cuts(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.future.is_some()).count()
    }

    pub(crate) fn vain(&self) -> usize {
        let vain = |outcome: &&Outcome| outcome.future.is_some_and(|future| future > IN_VAIN);
        self.outcomes.iter().filter(vain).count()
    }

    fn median_future(&self) -> Option<f64> {
        let mut futures: Vec<f64> =
            self.outcomes.iter().filter_map(|outcome| outcome.future).collect();
        futures.sort_by(f64::total_cmp);
        futures.get(futures.len() / 2).copied()
    }

    /// Cuts, the median share of their larger side afterwards, and how many were in vain.
    pub(crate) fn text(&self) -> String {
        let Some(median) = self.median_future() else { return "none".to_owned() };
        match self.vain() {
            0 => format!("{} {median:.2}", self.cuts()),
            vain => format!("{} {median:.2} ({vain}!)", self.cuts()),
        }
    }

    /// Counts of the classes that were answered.
    fn classes(&self) -> String {
        let mut counts = std::collections::BTreeMap::new();
        for outcome in &self.outcomes {
            *counts.entry(outcome.class).or_insert(0) += 1;
        }
        let texts: Vec<_> =
            counts.iter().map(|(class, count)| format!("{class:?} {count}")).collect();
        texts.join(", ")
    }

    /// The longest time until a verdict held.
    fn slowest_s(&self) -> u64 {
        self.outcomes.iter().map(|outcome| outcome.after_s).max().unwrap_or(0)
    }
}

pub(crate) fn print(rows: &[Row]) {
    println!("cuts, median share of the larger side in the minute after them, (in vain!)");
    println!(
        "{:24} {:38} {:>4} {:14} {:14} {:14} {:14} {:14}",
        "stream", "our verdicts", "s", "ours", "crdb-like", "tikv-like", "ydb-like", "size-only"
    );
    for row in rows {
        println!(
            "{:24} {:38} {:>4} {:14} {:14} {:14} {:14} {:14}",
            row.kind.name,
            row.ours.classes(),
            row.ours.slowest_s(),
            row.ours.text(),
            row.finder.text(),
            row.recorder.text(),
            row.key_sample.text(),
            row.size_only.text(),
        );
    }
}
