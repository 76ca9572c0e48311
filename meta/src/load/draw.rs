//! Draws the keeper's data into the heatmaps of tables: rates and samples once a second, verdicts on hot
//! partitions, and events.
//!
//! Invariants: rates are those of one second, so that nothing is drawn where nothing happens; the distribution of load
//! within a partition comes from the last seconds in which it was sampled, and the load of a hot key lies evenly on it;
//! idle tables without a picture are left out; texts name keys and kinds of statements, and nobody.

use std::collections::{BTreeMap, BTreeSet};

use partita_heatmap::{Event, Finding, Key, MarkKind, Metric, PartitionLoad, Shares};
use partita_load::{Class, Evidence, Rates, Sketch, Standing, Verdict};
use partita_proto::history::{ReshapeEvent, ReshapeKind, ReshapeOutcome};
use partita_proto::id::{PartitionId, TableId};

use super::balances::{Balance, BalanceKind};
use super::causes::kinds_text;
use super::facts::{partition_id, partition_of};
use super::keeper::Keeper;
use super::key_text::key_text;
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
/// Minimum share of a hot key for it to be drawn as one level line.
const LEVEL_SHARE: f64 = 0.5;

/// A verdict that the picture of its table may show.
struct Shown<'k> {
    partition: PartitionId,
    rates: Rates,
    verdict: &'k Verdict,
    since_ms: u64,
}

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
        let mut hot = self.findings(now_ms);
        // One record per table for the time since the last call.
        let mut tables = BTreeMap::new();
        for (table, members) in members {
            let load = TableNow {
                operations: members.iter().map(|(_, rates)| operations(rates)).sum(),
                capacity: capacity(members.iter().map(|(_, rates)| rates)),
                findings: hot.remove(&table).unwrap_or_default(),
                partitions: self.partitions(&members, now_ms / 1_000),
            };
            tables.insert(table, load);
        }
        self.pictures.note(now_ms, tables);
    }

    /// Verdicts on hot partitions, by table.
    fn findings(&self, now_ms: u64) -> BTreeMap<TableId, Vec<(Class, Finding)>> {
        let hot = self.scheduler().hot(now_ms);
        let judged: BTreeMap<PartitionId, _> =
            hot.iter().map(|hot| (partition_of(hot.partition), hot)).collect();
        let mut findings: BTreeMap<TableId, Vec<(Class, Finding)>> = BTreeMap::new();
        for (id, watched) in &self.watched {
            // A partition that was hot is shown until the scheduler has lost interest in it.
            let judged = judged.get(id);
            let is_hot = self.standing(*id, now_ms) == Standing::Hot
                || (judged.is_some() && self.pictures.finds(watched.table, &watched.range.start));
            if !is_hot {
                continue;
            }
            let of_hot = judged.and_then(|hot| Some((hot.verdict.as_ref()?, hot.verdict_since_ms)));
            let Some((verdict, since_ms)) = of_hot.or_else(|| self.verdict(*id)) else { continue };
            let rates = self.scheduler().rates(partition_id(*id), now_ms).unwrap_or_default();
            let candidate = Shown { partition: *id, rates, verdict, since_ms };
            if let Some(finding) = self.finding(&candidate, now_ms) {
                findings.entry(watched.table).or_default().push(finding);
            }
        }
        findings
    }

    /// Class and description of a hot partition; `None` while the verdict is unknown.
    fn finding(&self, candidate: &Shown<'_>, now_ms: u64) -> Option<(Class, Finding)> {
        let Shown { partition, rates, verdict, since_ms } = candidate;
        let watched = self.watched(*partition)?;
        if !verdict.class.is_finding() {
            return None;
        }
        let evidence = &verdict.evidence;
        let hot_key = verdict.hot_key.as_ref().zip(self.codec(watched.table));
        let hot_key = hot_key.map(|(key, codec)| key_text(codec, key));
        let mut text = format!(
            "{} busy with writes, {} with reads, {:.0} rows/s; {}",
            percent(rates.rho_10),
            percent(rates.reads_10),
            rates.write_rows + rates.read_rows,
            sentence(verdict.class, evidence, hot_key.as_deref()),
        );
        if let Some(kinds) = kinds_text(&self.blame, *partition, verdict, now_ms / 1_000) {
            text = format!("{text}; {kinds}");
        }
        let finding = Finding {
            partition: Some(partition.0),
            since: since_ms / 1_000,
            until: None,
            start: Key::from(watched.range.start.as_ref()),
            end: watched.range.end.as_deref().map(Key::from),
            class: verdict.class.to_string(),
            evidence: format!("{text}; {} s of samples", evidence.window_s),
            advice: String::new(),
        };
        Some((verdict.class, finding))
    }

    fn partitions(&self, members: &[(PartitionId, Rates)], second: u64) -> Vec<PartitionLoad> {
        let samples_max = (SAMPLES_MAX / members.len().max(1)).max(SAMPLES_MIN);
        let load = |(id, _): &(PartitionId, Rates)| {
            let watched = self.watched(*id)?;
            let verdict = self.verdict(*id).map(|(verdict, _)| verdict);
            let (start, end) = (&watched.range.start[..], watched.range.end.as_deref());
            let samples = |sketch: &Sketch, read: bool| {
                let keys = keys(sketch, samples_max);
                match verdict.and_then(|verdict| level_of(verdict, read)) {
                    Some(prefix) => Shares::with_level(keys, prefix, (start, end)),
                    None => Shares::of_samples(keys),
                }
            };
            let (writes, reads) = match &watched.rings {
                Some(rings) => (samples(&rings.writes, false), samples(&rings.reads, true)),
                None => Default::default(),
            };
            Some(PartitionLoad {
                id: id.0,
                leader: self.leader(*id).map(|node| node.0),
                start: Key::from(watched.range.start.as_ref()),
                end: watched.range.end.as_deref().map(Key::from),
                rates: watched.rates_before(second).map(narrow),
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

/// The hot key, or leading part of one, that a verdict on writes or on reads names, if it has enough of the load to be
/// drawn as one level line.
fn level_of(verdict: &Verdict, read: bool) -> Option<&[u8]> {
    let is_hot_key = matches!(verdict.class, Class::HotKey | Class::ReadHot)
        && verdict.evidence.reads == read
        && verdict.evidence.hot_share >= LEVEL_SHARE;
    verdict.hot_key.as_deref().filter(|_| is_hot_key)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Numbers behind a verdict, in a sentence of its class.
fn sentence(class: Class, evidence: &Evidence, hot_key: Option<&str>) -> String {
    let one_sided = || format!("the best cut leaves {} on one side", percent(evidence.p_out));
    let kind = if evidence.reads { "reads" } else { "writes" };
    match class {
        Class::HotKey | Class::ReadHot => match hot_key {
            Some(key) => format!("{} of the {kind} are of {key}", percent(evidence.hot_share)),
            None => one_sided(),
        },
        Class::MovingRight => {
            format!("{} of the {kind} go above all before them", percent(evidence.append_high))
        }
        Class::MovingLeft => {
            format!("{} of the {kind} go below all before them", percent(evidence.append_low))
        }
        Class::MovingWithin => {
            let front = percent(evidence.front);
            let passes = evidence.passes_in_s.map_or_else(
                || "will not reach the end of the keys soon".to_owned(),
                |seconds| format!("reach the end of the keys in {seconds:.0} s"),
            );
            format!("{front} of the newer {kind} go between two older keys, and {passes}")
        }
        Class::Rotating => format!(
            "one part of the keys has {} of a second's load, and another one soon after",
            percent(evidence.concentration)
        ),
        Class::Sweep => {
            format!("newer keys are above older ones in {}", percent(evidence.auc))
        }
        Class::ScanBound => {
            format!(
                "{} of the operations are scans that no cut separates",
                percent(evidence.contained)
            )
        }
        Class::StaticRange | Class::MultiTail | Class::Unsplittable | Class::Unknown => one_sided(),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a picture needs three digits")]
fn narrow(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_a_sentence_with_its_numbers() {
        let evidence = Evidence {
            p_out: 0.55,
            auc: 0.9,
            append_high: 0.98,
            append_low: 0.01,
            hot_share: 0.93,
            front: 0.7,
            passes_in_s: Some(900.0),
            concentration: 0.97,
            ..Evidence::default()
        };
        let cases = [
            (Class::HotKey, "93 % of the writes are of (7)"),
            (Class::MovingRight, "98 % of the writes go above all before them"),
            (Class::MovingLeft, "1 % of the writes go below all before them"),
            (
                Class::MovingWithin,
                "70 % of the newer writes go between two older keys, \
                 and reach the end of the keys in 900 s",
            ),
            (Class::StaticRange, "the best cut leaves 55 % on one side"),
        ];
        for (class, expected) in cases {
            assert_eq!(sentence(class, &evidence, Some("(7)")), expected, "{class}");
        }
        let reads = Evidence { reads: true, ..evidence };
        let shown = sentence(Class::ReadHot, &reads, Some("(7)"));
        assert_eq!(shown, "93 % of the reads are of (7)");
        assert_eq!(sentence(Class::ReadHot, &reads, None), "the best cut leaves 55 % on one side");
    }
}
