//! A simulated table under load: partitions that serve up to their capacity, a detector with fixed answers, and the
//! splits that would follow. It stands in for a cluster and shows nothing of how Partita decides.

use partita_heatmap::{Event, Finding, History, Key, MarkKind, PartitionLoad, Report, Shares};

use crate::design::{Design, Kind, Random, START, zipf};

/// Rows per second that the clients offer.
const OFFERED: f32 = 12_000.0;

/// Capacity of one partition, rows per second.
pub(crate) const CAPACITY: f32 = 4_000.0;

/// Keys drawn per second; each stands for several rows.
const DRAWN: usize = 1500;

/// Samples in a partition's report for one second.
const SAMPLES: usize = 32;

/// Seconds at capacity before the detector reports a finding.
const VERDICT_AFTER: u64 = 18;

struct Partition {
    id: u64,
    leader: u64,
    start: Key,
    hot_since: Option<u64>,
}

pub(crate) struct Table {
    design: Design,
    random: Random,
    zipf: Vec<f64>,
    partitions: Vec<Partition>,
}

impl Table {
    pub(crate) fn new(design: Design) -> Self {
        let starts = design.partitions().into_iter().zip(1..);
        let partition = |(start, id)| Partition { id, leader: id % 3 + 1, start, hot_since: None };
        Self {
            design,
            random: Random(7),
            zipf: zipf(),
            partitions: starts.map(partition).collect(),
        }
    }

    /// Simulates one second of load and records it in the history.
    pub(crate) fn run(&mut self, second: u64, history: &mut History) {
        // All keys of the second, ascending, so that each partition's keys are one slice.
        let mut keys: Vec<Key> =
            (0..DRAWN).map(|_| self.design.key(second, &mut self.random, &self.zipf)).collect();
        keys.sort_unstable();
        let time = START + second;
        let mut loads = Vec::new();
        let mut hot = Vec::new();
        // Each partition serves up to its capacity; after some seconds at capacity it gets a verdict.
        for index in 0..self.partitions.len() {
            let end = self.partitions.get(index + 1).map(|next| Key::clone(&next.start));
            let partition = &mut self.partitions[index];
            let keys_start = keys.partition_point(|key| *key < partition.start);
            let keys_end =
                end.as_ref().map_or(keys.len(), |end| keys.partition_point(|key| key < end));
            let partition_keys = &keys[keys_start..keys_end];
            let offered = OFFERED * partition_keys.len() as f32 / DRAWN as f32;
            let served = offered.min(CAPACITY);
            partition.hot_since =
                (offered >= CAPACITY).then(|| partition.hot_since.unwrap_or(time));
            if let Some(hot_since) =
                partition.hot_since.filter(|hot_since| time >= hot_since + VERDICT_AFTER)
            {
                hot.push((index, hot_since, partition_keys.get(partition_keys.len() / 2).cloned()));
            }
            let samples = partition_keys
                .iter()
                .step_by((partition_keys.len() / SAMPLES).max(1))
                .cloned()
                .collect();
            loads.push(PartitionLoad {
                id: partition.id,
                leader: Some(partition.leader),
                start: Key::clone(&partition.start),
                end,
                rates: [served, 0.0, served * 90.0, served / CAPACITY],
                writes: Shares::of_samples(samples),
                reads: Shares::default(),
            });
        }
        // Verdicts come after the report, from the right: a split moves the indexes of the partitions to its right.
        history.push(&Report { from: time, seconds: 1, partitions: loads });
        for (index, hot_since, middle) in hot.into_iter().rev() {
            self.react(time, index, hot_since, middle, history);
        }
        // A monotonic key fills the last partition, which is then cut by size in front of the keys to come.
        if self.design.kind == Kind::Monotonic && second % 60 == 44 {
            let last = self.partitions.len() - 1;
            let tail = Key::from(((time + 1) * 1_000_000).to_be_bytes());
            self.split(time, last, tail, "by size, at the right edge", history);
        }
    }

    fn react(
        &mut self,
        time: u64,
        index: usize,
        hot_since: u64,
        middle: Option<Key>,
        history: &mut History,
    ) {
        // The detector's answer is fixed for each design.
        let start = Key::clone(&self.partitions[index].start);
        let end = self.partitions.get(index + 1).map(|next| Key::clone(&next.start));
        let (class, evidence, advice) = match self.design.kind {
            Kind::Monotonic => (
                "MOVING_RIGHT",
                "append_high 1.00, AUC 1.00, best cut leaves 1.00 on one side: every cut would be in vain; \
                 ceiling now 4k rows/s, one partition's capacity",
                "ALTER TABLE events SET ('hash_buckets' = '8');  -- predicted N_eff 7.9, read fan-out by time 8",
            ),
            Kind::HotKey => (
                "HOT_KEY",
                "top key userid=3217 has 0.85 of the writes; a key cannot be divided",
                "write deltas to counters_log PRIMARY KEY (userid, ts, source) PARTITION BY HASH (userid, source), and sum on read",
            ),
            Kind::UserFirst | Kind::Hashed => (
                "STATIC_RANGE",
                "best cut leaves 0.55 on one side, judged on the newer half; busy 1.00 for 18 s",
                "",
            ),
        };
        history.find(Finding {
            partition: None,
            since: hot_since + VERDICT_AFTER,
            until: None,
            start: Key::clone(&start),
            end,
            class: class.to_owned(),
            evidence: evidence.to_owned(),
            advice: advice.to_owned(),
        });
        // Only a static hot range gains from a split; the other findings stay.
        if matches!(self.design.kind, Kind::UserFirst | Kind::Hashed) {
            if let Some(middle) = middle.filter(|middle| *middle > start) {
                self.split(time, index, middle, "by load, predicted 0.55", history);
            }
            history.clear(&start, time + 1);
            self.partitions[index].hot_since = None;
        }
    }

    fn split(&mut self, time: u64, index: usize, key: Key, why: &str, history: &mut History) {
        let parent = self.partitions[index].id;
        let id = self.partitions.iter().map(|partition| partition.id).max().unwrap_or(0) + 1;
        let leader = id % 3 + 1;
        let text = format!("partition {parent} cut, {id} on its right; {why}");
        history.mark(Event { at: time + 1, key: Key::clone(&key), kind: MarkKind::Split, text });
        let text = format!("partition {id} is led by node {leader}");
        history.mark(Event { at: time + 2, key: Key::clone(&key), kind: MarkKind::Transfer, text });
        history.clear(&Key::clone(&self.partitions[index].start), time + 1);
        let hot_since = None;
        self.partitions.insert(index + 1, Partition { id, leader, start: key, hot_since });
    }
}
