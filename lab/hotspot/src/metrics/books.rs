//! Records of a running cluster.
//!
//! Invariants: splits and merges are counted for the first table only, moves for all; a split by load is judged by
//! the load's distributions, not by what later splits leave of its parts.

use std::collections::BTreeMap;

use partita_heatmap::{Event, Finding, History, Key, MarkKind};
use partita_load::{Class, SplitWhy, Verdict};

use super::second::Second;
use crate::cluster::BEGIN_MS;
use crate::workload::TableLoad;

/// A split is judged at these seconds of the minute after it.
const LOOKS: [u64; 6] = [10, 20, 30, 40, 50, 60];
const IN_VAIN_SHARE: f64 = 0.9;
const FLAP_MS: u64 = 3_600_000;
const THRASH_MS: u64 = 600_000;
/// Maximum outcomes that are kept for reports.
const OUTCOMES_MAX: usize = 10_000;

/// A split by load, observed for a minute.
#[derive(Clone, Debug)]
struct Watch {
    done_ms: u64,
    low: Box<[u8]>,
    key: Box<[u8]>,
    high: Option<Box<[u8]>>,
    looks: usize,
    left: f64,
    right: f64,
}

/// See the head of the file.
#[derive(Debug, Default)]
pub struct Books {
    /// Every second of the run.
    pub seconds: Vec<Second>,
    /// Second at which a partition of the table was first reported as hot.
    pub detected_s: Option<u64>,
    /// Second and evidence of the detector's first named class.
    pub verdict: Option<(u64, Verdict)>,
    /// Number of times that a partition changed to each class.
    pub classes: BTreeMap<Class, u64>,
    /// Second at which new rows were placed into buckets, and the number of buckets.
    pub rekeyed: Option<(u64, u32)>,
    /// Splits by load after the first verdict of moving keys.
    pub load_splits_after_moving: u64,
    /// Share of the busier part of each judged split.
    pub outcomes: Vec<f64>,
    /// The heatmap.
    pub(crate) history: Option<History>,
    pub(crate) every_s: u64,
    pub(crate) counts: Second,
    /// Hot partitions, with the classes of their verdicts.
    pub(crate) said: BTreeMap<u32, Option<Class>>,
    watches: Vec<Watch>,
    moved_ms: BTreeMap<u32, Vec<u64>>,
}

fn second_of(now_ms: u64) -> u64 {
    now_ms / 1_000
}

impl Books {
    pub(crate) fn new(picture_every_s: u64) -> Self {
        let history = (picture_every_s > 0).then(History::default);
        Self { history, every_s: picture_every_s.max(1), ..Self::default() }
    }

    fn mark(&mut self, now_ms: u64, key: &[u8], kind: MarkKind, text: String) {
        if let Some(history) = &mut self.history {
            history.mark(Event { at: second_of(now_ms), key: Key::from(key), kind, text });
        }
    }

    pub(crate) fn was_split(
        &mut self,
        now_ms: u64,
        why: SplitWhy,
        low: Box<[u8]>,
        key: Box<[u8]>,
        high: Option<Box<[u8]>>,
    ) {
        let text = match why {
            SplitWhy::Load => "by load",
            SplitWhy::Size => "by size",
            SplitWhy::RightEdge | SplitWhy::LeftEdge => "by size, at the edge that grows",
            SplitWhy::IsolateKey => "around a hot key",
            SplitWhy::Forecast => "ahead of a peak",
        };
        self.mark(now_ms, &key, MarkKind::Split, text.to_owned());
        // Splits by load are observed for a minute, to see whether they helped.
        match why {
            SplitWhy::Load => {
                self.counts.splits_load += 1;
                self.load_splits_after_moving +=
                    u64::from(self.classes.keys().any(|class| class.is_moving()));
                self.watches.push(Watch {
                    done_ms: now_ms,
                    low,
                    key,
                    high,
                    looks: 0,
                    left: 0.0,
                    right: 0.0,
                });
            }
            SplitWhy::IsolateKey => self.counts.splits_isolate += 1,
            SplitWhy::Forecast => self.counts.splits_forecast += 1,
            SplitWhy::Size | SplitWhy::RightEdge | SplitWhy::LeftEdge => {
                self.counts.splits_size += 1
            }
        }
    }

    pub(crate) fn was_merged(&mut self, now_ms: u64, cut_ms: u64, key: &[u8]) {
        self.mark(now_ms, key, MarkKind::Merge, "merged".to_owned());
        self.counts.merges += 1;
        self.counts.flaps += u64::from(cut_ms > 0 && now_ms - cut_ms < FLAP_MS);
    }

    fn note_move(&mut self, now_ms: u64, id: u32) {
        let moved = self.moved_ms.entry(id).or_default();
        moved.retain(|time_ms| now_ms - time_ms < THRASH_MS);
        moved.push(now_ms);
        self.counts.thrashed += u64::from(moved.len() >= 3);
    }

    pub(crate) fn was_transferred(&mut self, now_ms: u64, id: u32, node: u32, key: Option<&[u8]>) {
        self.counts.transfers += 1;
        self.note_move(now_ms, id);
        if let Some(key) = key {
            self.mark(
                now_ms,
                key,
                MarkKind::Transfer,
                format!("partition {id} is led by node {node}"),
            );
        }
    }

    pub(crate) fn was_moved(
        &mut self,
        now_ms: u64,
        id: u32,
        node: u32,
        bytes: f64,
        key: Option<&[u8]>,
    ) {
        self.counts.moves += 1;
        self.counts.moved_bytes += bytes;
        self.note_move(now_ms, id);
        if let Some(key) = key {
            self.mark(
                now_ms,
                key,
                MarkKind::Move,
                format!("a replica of partition {id} went to node {node}"),
            );
        }
    }

    pub(crate) fn was_rekeyed(&mut self, at_s: u64, buckets: u32) {
        self.rekeyed = Some((at_s, buckets));
    }

    /// Records the detector's verdict on a partition; called once per change.
    pub(crate) fn was_judged(&mut self, now_ms: u64, verdict: &Verdict, finding: Finding) {
        let at_s = (now_ms - BEGIN_MS) / 1_000;
        *self.classes.entry(verdict.class).or_default() += 1;
        self.verdict.get_or_insert_with(|| (at_s, verdict.clone()));
        if let Some(history) = &mut self.history {
            history.find(finding);
        }
    }

    /// Evaluates the splits of the last minute.
    pub(crate) fn judge_splits(&mut self, now_ms: u64, load: &TableLoad) {
        let at_us = (now_ms - BEGIN_MS) * 1_000;
        for watch in &mut self.watches {
            while watch.looks < LOOKS.len() && now_ms >= watch.done_ms + LOOKS[watch.looks] * 1_000
            {
                watch.looks += 1;
                let offered = load.offered(at_us);
                watch.left += offered * load.share(at_us, &watch.low, Some(&watch.key));
                watch.right += offered * load.share(at_us, &watch.key, watch.high.as_deref());
            }
        }
        let (finished, going): (Vec<_>, Vec<_>) = std::mem::take(&mut self.watches)
            .into_iter()
            .partition(|watch| watch.looks == LOOKS.len());
        self.watches = going;
        for watch in finished {
            let total = watch.left + watch.right;
            if total > 0.0 {
                let share = watch.left.max(watch.right) / total;
                self.counts.splits_in_vain += u64::from(share > IN_VAIN_SHARE);
                if self.outcomes.len() < OUTCOMES_MAX {
                    self.outcomes.push(share);
                }
            }
        }
    }
}
