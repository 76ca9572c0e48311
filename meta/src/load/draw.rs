//! Draws the keeper's data into the heatmaps of tables: rates and samples once a second, verdicts on hot
//! partitions, and events.
//!
//! Invariants: rates have a half-life of 10 s; the distribution of load within a partition comes from the last
//! seconds in which it was sampled; idle tables without a picture are left out.

use std::collections::{BTreeMap, BTreeSet};

use partita_heatmap::{Event, Finding, Key, MarkKind, Metric, PartitionLoad, Shares};
use partita_load::{Class, HotPartition, Rates, Sketch};
use partita_proto::history::{ReshapeEvent, ReshapeKind, ReshapeOutcome};
use partita_proto::id::{PartitionId, TableId};

use super::balances::{Balance, BalanceKind};
use super::facts::{partition_id, partition_of};
use super::keeper::{Keeper, Watched};
use super::pictures::TableNow;

/// Seconds of samples from which the distribution within a partition is taken.
const SAMPLED_S: u64 = 4;
/// Maximum samples of one table used per second, and minimum of one of its partitions.
const SAMPLES_MAX: usize = 4_096;
const SAMPLES_MIN: usize = 8;
/// A table with fewer operations per second gets no picture.
const QUIET: f64 = 0.01;
/// Minimum utilisation over a minute at which a partition's rate tells its capacity.
const MEASURED_RHO: f64 = 0.1;

impl Keeper {
    /// Counts the seconds since the last call into the pictures of tables under load.
    pub(super) fn draw(&mut self, now_ms: u64) {
        if !self.pictures.is_due(now_ms) {
            return;
        }
        // Rates of each table's partitions.
        let mut members: BTreeMap<TableId, Vec<(PartitionId, Rates)>> = BTreeMap::new();
        for (id, watched) in &self.watched {
            let rates = self.scheduler().rates(partition_id(*id), now_ms).unwrap_or_default();
            members.entry(watched.table).or_default().push((*id, rates));
        }
        // Idle tables get no picture.
        let operations = |rates: &Rates| rates.write_rows + rates.read_rows;
        members.retain(|table, rates| {
            let total: f64 = rates.iter().map(|(_, rates)| operations(rates)).sum();
            total > QUIET || self.pictures.has(*table)
        });
        // Verdicts on hot partitions, by table.
        let mut hot: BTreeMap<TableId, Vec<(Class, Finding)>> = BTreeMap::new();
        for hot_partition in self.scheduler().hot(now_ms) {
            let watched = self.watched(partition_of(hot_partition.partition));
            if let Some((watched, finding)) =
                watched.and_then(|watched| Some((watched, finding(watched, &hot_partition)?)))
            {
                hot.entry(watched.table).or_default().push(finding);
            }
        }
        // One record per table for the time since the last call.
        let mut tables = BTreeMap::new();
        for (table, members) in members {
            let load = TableNow {
                operations: members.iter().map(|(_, rates)| operations(rates)).sum(),
                capacity: capacity(members.iter().map(|(_, rates)| rates)),
                findings: hot.remove(&table).unwrap_or_default(),
                partitions: self.partitions(&members),
            };
            tables.insert(table, load);
        }
        self.pictures.note(now_ms, tables);
    }

    fn partitions(&self, members: &[(PartitionId, Rates)]) -> Vec<PartitionLoad> {
        let samples_max = (SAMPLES_MAX / members.len().max(1)).max(SAMPLES_MIN);
        let load = |(id, rates): &(PartitionId, Rates)| {
            let watched = self.watched(*id)?;
            let samples = |sketch: &Sketch| Shares::of_samples(keys(sketch, samples_max));
            let (writes, reads) = match &watched.rings {
                Some(rings) => (samples(&rings.writes), samples(&rings.reads)),
                None => Default::default(),
            };
            Some(PartitionLoad {
                id: id.0,
                leader: self.leader(*id).map(|node| node.0),
                start: Key::from(watched.range.start.as_ref()),
                end: watched.range.end.as_deref().map(Key::from),
                rates: [rates.write_rows, rates.read_rows, rates.write_bytes, rates.rho_10]
                    .map(narrow),
                writes,
                reads,
            })
        };
        let mut loads: Vec<PartitionLoad> = members.iter().filter_map(load).collect();
        loads.sort_by(|a, b| a.start.cmp(&b.start));
        loads
    }

    /// Marks finished splits and merges in the pictures of their tables.
    pub(super) fn mark_reshapes(&mut self, events: &[ReshapeEvent]) {
        // No event is marked before an earlier one of its table is over, so that none is left out.
        let mut waiting: BTreeSet<TableId> = BTreeSet::new();
        for event in events {
            let marked = self.pictures.marked(event.table);
            if marked.is_none_or(|marked| event.id <= marked) || waiting.contains(&event.table) {
                continue;
            }
            if event.outcome == ReshapeOutcome::UnderWay {
                waiting.insert(event.table);
                continue;
            }
            let succeeded = event.outcome == ReshapeOutcome::Done;
            let codec = self.codec(event.table);
            let key = codec.and_then(|codec| codec.encode_bound(&event.key).ok());
            let mark = key.filter(|_| succeeded).map(|key| Event {
                at: u64::try_from(event.at_ms).unwrap_or(0) / 1_000,
                key: Key::from(key.as_ref()),
                kind: match event.kind {
                    ReshapeKind::Split => MarkKind::Split,
                    ReshapeKind::Merge => MarkKind::Merge,
                },
                text: reshape_text(event),
            });
            self.pictures.mark(event.table, Some(event.id), mark);
        }
    }

    /// Records the result of a move, and marks a successful one in the table's picture.
    pub(super) fn balanced(&mut self, balance: Balance) {
        if let Some(watched) = self.watched(balance.partition).filter(|_| balance.error.is_none()) {
            let (kind, subject) = match balance.kind {
                BalanceKind::Leader => (MarkKind::Transfer, "leader"),
                BalanceKind::Replica => (MarkKind::Move, "replica"),
            };
            let source =
                balance.from.map_or_else(String::new, |source| format!(" from node {source}"));
            let event = Event {
                at: balance.at_ms / 1_000,
                key: Key::from(watched.range.start.as_ref()),
                kind,
                text: format!(
                    "{subject} of partition {}{source} to node {}: {}",
                    balance.partition, balance.to, balance.note
                ),
            };
            let table = watched.table;
            self.pictures.mark(table, None, Some(event));
        }
        self.balances.push(balance);
    }
}

fn reshape_text(event: &ReshapeEvent) -> String {
    let (partition, neighbour) = (event.partition, event.other);
    let summary = match event.kind {
        ReshapeKind::Split => format!("partition {partition} split, {neighbour} is new"),
        ReshapeKind::Merge => format!("partition {partition} merged with {neighbour}"),
    };
    let expected = event.reason.predicted_larger.map_or_else(String::new, |share| {
        format!("; {:.0} % of the load expected right of it", f64::from(share.get()) / 10.0)
    });
    let note = match event.reason.note.as_str() {
        "" => String::new(),
        note => format!(": {note}"),
    };
    format!("{summary}, by {}{note}{expected}", cause(event))
}

fn cause(event: &ReshapeEvent) -> &'static str {
    match event.reason.cause {
        partita_proto::history::Cause::ByHand => "hand",
        cause => cause.name(),
    }
}

/// Keys sampled in the last seconds of a ring, thinned out evenly to about `most`. A scan gives both of its ends,
/// so that its load lies between them.
fn keys(sketch: &Sketch, most: usize) -> Vec<Key> {
    let end = sketch.ticks.last().map_or(0, |tick| tick.second);
    let recent = sketch.ticks.iter().filter(|tick| tick.second + SAMPLED_S > end);
    let samples: Vec<_> = recent.flat_map(|tick| &tick.samples).collect();
    let step = samples.len().div_ceil(most.max(1)).max(1);
    let mut keys = Vec::with_capacity(samples.len() / step + 1);
    for sample in samples.into_iter().step_by(step) {
        keys.push(Key::from(sample.key.as_ref()));
        keys.extend(sample.end.as_deref().filter(|end| !end.is_empty()).map(Key::from));
    }
    keys
}

/// Capacity of one partition by metric, estimated from the busy ones.
fn capacity<'r>(partitions: impl Iterator<Item = &'r Rates>) -> [Option<f32>; 4] {
    // Sums of rate and of busy share over the same time, for each metric but the last, which is a share itself.
    let mut sums = [(0.0, 0.0); 3];
    for rates in partitions {
        if rates.rho_60 > MEASURED_RHO {
            sums[Metric::WriteRows.index()].0 += rates.write_rows;
            sums[Metric::WriteRows.index()].1 += rates.rho_10;
            sums[Metric::WriteBytes.index()].0 += rates.write_bytes;
            sums[Metric::WriteBytes.index()].1 += rates.rho_10;
        }
        if rates.reads_60 > MEASURED_RHO {
            sums[Metric::ReadRows.index()].0 += rates.read_rows;
            sums[Metric::ReadRows.index()].1 += rates.reads_60;
        }
    }
    let [a, b, c] = sums
        .map(|(rate, busy)| (busy > MEASURED_RHO / 2.0 && rate > 0.0).then(|| narrow(rate / busy)));
    [a, b, c, Some(1.0)]
}

/// Class and description of a hot partition; `None` while the verdict is unknown.
fn finding(watched: &Watched, hot: &HotPartition) -> Option<(Class, Finding)> {
    let verdict = hot.verdict.as_ref().filter(|verdict| verdict.class != Class::Unknown)?;
    let evidence = &verdict.evidence;
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let description = Finding {
        partition: Some(hot.partition.0),
        since: hot.verdict_since_ms / 1_000,
        until: None,
        start: Key::from(watched.range.start.as_ref()),
        end: watched.range.end.as_deref().map(Key::from),
        class: verdict.class.to_string(),
        evidence: format!(
            "busy {}, {:.0} rows/s; the best cut leaves {} on one side; newer keys are above older ones in {}; {} go above \
             all before them, {} below; the top key takes {}; {} s of samples",
            percent(hot.rates.rho_10),
            hot.rates.write_rows + hot.rates.read_rows,
            percent(evidence.p_out),
            percent(evidence.auc),
            percent(evidence.append_high),
            percent(evidence.append_low),
            percent(evidence.top_key),
            evidence.window_s,
        ),
        advice: String::new(),
    };
    Some((verdict.class, description))
}

#[expect(clippy::cast_possible_truncation, reason = "a picture needs three digits")]
fn narrow(value: f64) -> f32 {
    value as f32
}
