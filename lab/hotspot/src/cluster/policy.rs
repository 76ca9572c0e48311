//! Policies that decide where to split: our detector behind the scheduler, or one of the others alone.
//!
//! The other policies decide by themselves when a lane is half busy, as their documents say, as often as their
//! picker answers, and without feedback. Splits by size, moves of leaders and merges are the scheduler's in all
//! cases, so that only the decision to split by load differs.
//!
//! Invariants: pickers see only keys of hot partitions, drawn from the same distributions as the load; everything
//! repeats with the seed.

use std::collections::{BTreeMap, BTreeSet};

use partita_load::{At, Judge, PartitionId, SAMPLES_PER_SECOND, Verdict, confirm};

use super::Cluster;
use super::water::draw;
use crate::baseline::{Finder, KeySample, Recorder};
use crate::number::whole;
use crate::picker::{Answer, Detector, Picker};
use crate::streams::Op;
use crate::workload::{SECOND_US, Shape};

/// Split policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Our detector, evaluated on later samples, with feedback.
    Ours,
    /// No splits by load, only by size.
    SizeOnly,
    /// YDB: the median of a sample of 100 keys, after 15 and 60 s; at most 50 partitions.
    YdbLike,
    /// TiKV: the best end of the sampled ranges, after ten hot seconds.
    TikvLike,
    /// CockroachDB: the best of 20 sampled keys, evaluated on later operations: sought while the partition is hot,
    /// and reported at most once a minute.
    CrdbLike,
}

impl Policy {
    /// All policies, ours first.
    pub const ALL: [Self; 5] =
        [Self::Ours, Self::SizeOnly, Self::YdbLike, Self::TikvLike, Self::CrdbLike];

    /// Name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::SizeOnly => "size-only",
            Self::YdbLike => "ydb-like",
            Self::TikvLike => "tikv-like",
            Self::CrdbLike => "crdb-like",
        }
    }

    /// Number of partitions of a table above which it does not split by load.
    fn partitions_max(self) -> usize {
        if self == Self::YdbLike { 50 } else { 4_096 }
    }

    /// Microseconds for which it pauses after an answer.
    fn rest_us(self) -> u64 {
        if self == Self::CrdbLike { 60 * SECOND_US } else { 0 }
    }
}

/// Busy share at which the others begin.
const OTHERS_RHO: f64 = 0.5;
/// Maximum operations per second of a partition shown to the others: enough for the one that wants to see all.
const OTHERS_RATE_MAX: f64 = 4_000.0;

struct Watcher<P> {
    picker: P,
    begun_us: u64,
}

/// The pickers of hot partitions.
pub(crate) struct Pickers {
    pub(super) policy: Policy,
    seed: u64,
    ours: BTreeMap<u32, Watcher<Detector>>,
    others: BTreeMap<u32, Watcher<Box<dyn Picker>>>,
    /// Time until which a partition's picker pauses.
    resting_us: BTreeMap<u32, u64>,
}

impl Pickers {
    pub(super) fn new(policy: Policy, seed: u64) -> Self {
        Self {
            policy,
            seed,
            ours: BTreeMap::new(),
            others: BTreeMap::new(),
            resting_us: BTreeMap::new(),
        }
    }

    pub(super) fn forget_both(&mut self, parts: [u32; 2]) {
        for part in parts {
            self.ours.remove(&part);
            self.others.remove(&part);
        }
    }

    fn other(&self, part: u32, shape: &Shape) -> Box<dyn Picker> {
        let seed = self.seed ^ u64::from(part);
        match self.policy {
            Policy::YdbLike => Box::new(KeySample::new(seed, shape.columns())),
            Policy::TikvLike => Box::new(Recorder::new(seed)),
            Policy::CrdbLike | Policy::Ours | Policy::SizeOnly => Box::new(Finder::new(seed)),
        }
    }
}

impl Judge for Pickers {
    fn judge(&mut self, partition: PartitionId, now_ms: u64) -> Option<Verdict> {
        let part = u32::try_from(partition.0).ok()?;
        let watcher = self.ours.get_mut(&part)?;
        let at_us = (now_ms - super::BEGIN_MS) * 1_000;
        watcher.picker.poll(at_us.saturating_sub(watcher.begun_us));
        Some(confirm(watcher.picker.verdicts()))
    }

    fn forget(&mut self, partition: PartitionId) {
        if let Ok(part) = u32::try_from(partition.0) {
            self.ours.remove(&part);
        }
    }
}

impl Cluster {
    /// Shows the last second's keys to the pickers, and asks those that decide by themselves.
    pub(super) fn feed_pickers(&mut self) {
        let at_us = self.at_us();
        if at_us < SECOND_US || self.pickers.policy == Policy::SizeOnly {
            return;
        }
        let ours = self.pickers.policy == Policy::Ours;
        let hot: BTreeSet<u32> = self
            .scheduler
            .hot(self.now_ms)
            .into_iter()
            .filter(|hot| ours || hot.rates.rho_10 >= OTHERS_RHO || hot.rates.pressure >= 0.01)
            .map(|hot| Self::slot(hot.partition))
            .filter(|id| self.tables[self.parts[*id as usize].table as usize].live)
            .collect();
        self.pickers.ours.retain(|id, _| hot.contains(id));
        self.pickers.others.retain(|id, _| hot.contains(id));
        for id in hot {
            if ours { self.show_ours(id, at_us) } else { self.show_other(id, at_us) }
        }
    }

    /// Draws operations of the last second on a partition.
    fn show(&mut self, id: u32, at_us: u64, count: u64, mut see: impl FnMut(u64, &Op)) {
        let part = &self.parts[id as usize];
        let table = &self.tables[part.table as usize];
        let mut op = Op::default();
        for number in 0..count {
            let op_us = at_us - SECOND_US + number * SECOND_US / count;
            let range = (&*part.low, part.high.as_deref());
            if draw(table, op_us, range, &mut self.random, &mut op) {
                see(op_us, &op);
            }
        }
    }

    fn show_ours(&mut self, id: u32, at_us: u64) {
        let watcher = self.pickers.ours.remove(&id);
        let mut watcher = watcher.unwrap_or_else(|| {
            let part = &self.parts[id as usize];
            let shape = &self.tables[part.table as usize].load.shape;
            let mut picker =
                Detector::new(self.options.seed ^ u64::from(id), shape.columns(), shape.options);
            // The key range of its files: from its first key to its last, or to the newest if it grows.
            let (low, high) = (part.low.clone(), part.high.clone());
            let low = if low.is_empty() {
                self.cut_key(id, &At::LowWater).map(|(key, _)| key)
            } else {
                Some(low)
            };
            let high = high.or_else(|| self.cut_key(id, &At::HighWater).map(|(key, _)| key));
            if let (Some(low), Some(high)) = (low, high) {
                picker.set_edges(&low, &high);
            }
            Watcher { picker, begun_us: at_us - SECOND_US }
        });
        let begun_us = watcher.begun_us;
        self.show(id, at_us, SAMPLES_PER_SECOND as u64, |op_us, op| {
            watcher.picker.observe(op_us - begun_us, op)
        });
        self.pickers.ours.insert(id, watcher);
    }

    fn show_other(&mut self, id: u32, at_us: u64) {
        if self.pickers.resting_us.get(&id).is_some_and(|end_us| at_us < *end_us) {
            return;
        }
        let watcher = self.pickers.others.remove(&id);
        let mut watcher = watcher.unwrap_or_else(|| {
            let shape = &self.tables[self.parts[id as usize].table as usize].load.shape;
            Watcher { picker: self.pickers.other(id, shape), begun_us: at_us - SECOND_US }
        });
        let served = whole(self.parts[id as usize].served_rows.min(OTHERS_RATE_MAX)).max(1);
        let begun_us = watcher.begun_us;
        let count = watcher.picker.rate().min(served);
        self.show(id, at_us, count, |op_us, op| watcher.picker.observe(op_us - begun_us, op));
        let policy = self.pickers.policy;
        match watcher.picker.poll(at_us - begun_us) {
            Answer::Wait => {
                self.pickers.others.insert(id, watcher);
            }
            // This policy continues with its samples while the partition is hot; the others begin again.
            Answer::Stay(_) if policy == Policy::CrdbLike => {
                self.pickers.others.insert(id, watcher);
            }
            Answer::Stay(_) => {}
            Answer::Cut(_, cut) => {
                self.pickers.resting_us.insert(id, at_us + policy.rest_us());
                let table = self.parts[id as usize].table as usize;
                if self.tables[table].order.len() < policy.partitions_max() {
                    self.begin_foreign_split(id, cut.key);
                }
            }
        }
    }
}
