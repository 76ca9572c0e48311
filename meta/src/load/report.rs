//! Reports of load to clients: the keeper's state, with keys as typed values.
//!
//! Invariant: a report does not change what decisions are based on.

use std::collections::BTreeMap;
use std::time::Duration;

use partita_load::{HotPartition, Rates as LoadRates, Sketch, capacity, offered};
use partita_proto::beat;
use partita_proto::history::{PerMille, ReshapeEvent, ReshapeKind, ReshapeOutcome};
use partita_proto::id::{NodeId, PartitionId, TableId};
use partita_proto::key::KeyCodec;
use partita_proto::load::{
    BalanceEvent, BalanceKind as ShownKind, Busy, Evidence, HotCause, HotKey, Instant, KeySample,
    Latency, LoadReport, LoadRequest, NodeLoad, OfferedRows, PartitionLoad, Rates, ShownReason,
    SplitEvent, TableRotation, Verdict,
};
use partita_proto::service::ReplicaStatus;

use super::balances::{Balance, BalanceKind};
use super::causes::{Suspect, hot_causes};
use super::facts::{node_of, partition_id, partition_of};
use super::keeper::Keeper;
use crate::catalog::{PartitionRecord, State};
use crate::cluster::Reports;
use crate::core::Core;

/// Minimum share of its partition's load for a key to be reported.
const HOT_KEY_SHARE: f64 = 0.05;
/// Maximum hot keys reported per partition.
const HOT_KEYS_PER_PARTITION: usize = 8;
/// Seconds over which a key's rate is averaged.
const KEY_RATE_S: u64 = 10;

impl Core {
    /// Report on all tables, or on one.
    pub(crate) fn load_report(&self, request: &LoadRequest) -> LoadReport {
        let now_ms = self.now_ms();
        let reports = self.presence.reports();
        let state = self.machine.state();
        let keeper = self.load.lock();
        let selected = |record: &PartitionRecord| {
            let matches = request.table.is_none_or(|table| table == record.table);
            matches && state.table(record.table).is_some_and(|table| table.is_visible())
        };
        // Verdicts that the scheduler works with take precedence over the shown ones.
        let hot: BTreeMap<PartitionId, HotPartition> = keeper
            .scheduler()
            .hot(now_ms)
            .into_iter()
            .map(|hot| (partition_of(hot.partition), hot))
            .collect();
        let led = led(&reports);
        let mut partitions = Vec::new();
        for record in state.partitions().filter(|record| selected(record)) {
            let status = led.get(&record.id).map(|(_, status)| *status);
            let mut load = partition(&keeper, record, status, hot.get(&record.id), now_ms);
            load.leader = led.get(&record.id).map(|(node, _)| *node);
            if request.samples {
                load.samples = samples(&keeper, record.id);
            }
            partitions.push(load);
        }
        // Shares, capacities and hot keys need the rates of all partitions.
        share_out(&mut partitions);
        set_capacities(&keeper, &mut partitions, now_ms);
        let hot_partitions = partitions.iter().filter(|load| load.is_hot());
        let hot_causes = hot_partitions
            .flat_map(|load| causes(&keeper, load.partition, hot.get(&load.partition), now_ms))
            .collect();
        let hot_keys = partitions.iter().flat_map(|load| hot_keys(&keeper, load)).collect();
        let mut report = LoadReport {
            at: Instant(now_ms),
            nodes: nodes(&state, &reports, &partitions, &keeper),
            splits: self.reshapes.all().iter().map(split).collect(),
            balances: keeper.balances.iter().map(balance).collect(),
            hot_keys,
            history: Vec::new(),
            hot_causes,
            rotations: rotations(&keeper, request.table),
            forecasts: keeper.forecasts(request.table),
            partitions,
        };
        // Filter the events; nodes show everything.
        if let Some(table) = request.table {
            report.splits.retain(|event| event.table == table);
            let of_table = |id| state.partition(id).is_some_and(|record| record.table == table);
            report.balances.retain(|event| of_table(event.partition));
        }
        if let Some(start) = request.history_since {
            report.history = keeper.history.since(start.0, request.table);
        }
        report.hot_keys.sort_by(|a, b| b.share.total_cmp(&a.share));
        report
    }
}

/// Leader of each partition, and its status; of several claims the one with the newest term.
fn led(reports: &Reports) -> BTreeMap<PartitionId, (NodeId, &ReplicaStatus)> {
    let mut led: BTreeMap<PartitionId, (NodeId, &ReplicaStatus)> = BTreeMap::new();
    for (node, report) in reports.reports.iter().filter(|(node, _)| reports.is_live(**node)) {
        for status in report.replicas.iter().filter(|status| status.leader) {
            let newest = led.entry(status.partition).or_insert((*node, status));
            if newest.1.term < status.term {
                *newest = (*node, status);
            }
        }
    }
    led
}

fn partition(
    keeper: &Keeper,
    record: &PartitionRecord,
    status: Option<&ReplicaStatus>,
    hot: Option<&HotPartition>,
    now_ms: u64,
) -> PartitionLoad {
    let id = partition_id(record.id);
    let rates = keeper.scheduler().rates(id, now_ms).unwrap_or_default();
    // A hot partition's verdict comes from the scheduler, another's from the keeper.
    let of_hot = hot.and_then(|hot| Some((hot.verdict.as_ref()?, hot.verdict_since_ms)));
    let verdict = of_hot.or_else(|| keeper.verdict(record.id));
    let watched = keeper.watched(record.id);
    let codec = watched.and_then(|watched| keeper.codec(watched.table));
    let verdict =
        verdict.zip(codec).map(|((verdict, since_ms), codec)| shown(verdict, since_ms, codec));
    let latency = watched.map(|watched| watched.writes).filter(|writes| writes.count > 0);
    let offer = offered(&rates);
    PartitionLoad {
        table: record.table,
        partition: record.id,
        range: record.range.clone(),
        leader: None,
        epoch: record.epoch,
        age: Duration::from_millis(
            watched.map_or(0, |watched| now_ms.saturating_sub(watched.since_ms)),
        ),
        busy: Busy {
            s10: rates.rho_10,
            s60: rates.rho_60,
            s600: rates.rho_600,
            max: rates.rho_max,
        },
        rates: shown_rates(&rates, watched.map_or((0.0, 0.0), |watched| watched.read_rates)),
        queue: watched.map_or(0, |watched| u64::from(watched.queue_depth)),
        size_bytes: rates.size_bytes.max(status.map_or(0, |status| status.file_bytes)),
        rows: status.map_or(0, |status| status.rows),
        write_latency: latency.map(latency_of),
        share: 0.0,
        verdict,
        samples: Vec::new(),
        standing: keeper.standing(record.id, now_ms),
        reads_busy: rates.reads_10,
        offered: OfferedRows { rows_per_s: offer.rows_per_s, is_floor: offer.is_floor },
        read_share: 0.0,
        capacity: (0.0, false),
    }
}

/// Sets the capacity of a partition of its table, as all of the table's partitions tell.
fn set_capacities(keeper: &Keeper, partitions: &mut [PartitionLoad], now_ms: u64) {
    let mut rates: BTreeMap<TableId, Vec<LoadRates>> = BTreeMap::new();
    for load in partitions.iter() {
        let current = keeper.scheduler().rates(partition_id(load.partition), now_ms);
        rates.entry(load.table).or_default().extend(current);
    }
    let capacities: BTreeMap<TableId, _> =
        rates.iter().map(|(table, rates)| (*table, capacity(rates))).collect();
    for load in partitions {
        if let Some(capacity) = capacities.get(&load.table) {
            load.capacity = (capacity.rows_per_s, capacity.is_measured);
        }
    }
}

/// Causes of a hot partition and of its hot keys.
fn causes(
    keeper: &Keeper,
    partition: PartitionId,
    hot: Option<&HotPartition>,
    now_ms: u64,
) -> Vec<HotCause> {
    let Some(watched) = keeper.watched(partition) else { return Vec::new() };
    let judged = hot.and_then(|hot| hot.verdict.as_ref());
    let suspect = Suspect {
        table: watched.table,
        partition,
        verdict: judged.or_else(|| keeper.verdict(partition).map(|(verdict, _)| verdict)),
        rings: watched.rings.as_ref(),
        codec: keeper.codec(watched.table),
    };
    hot_causes(&keeper.blame, &suspect, now_ms / 1_000)
}

fn rotations(keeper: &Keeper, table: Option<TableId>) -> Vec<TableRotation> {
    let selected = keeper.rotations().filter(|(id, _)| table.is_none_or(|table| table == *id));
    let rotations = selected.map(|(table, rotation)| TableRotation {
        table,
        concentration: rotation.concentration,
        n_eff_second: rotation.n_eff_second,
        n_eff_mean: rotation.n_eff_mean,
        spells: rotation.spells,
        spell_s: rotation.spell_s,
    });
    rotations.collect()
}

fn shown_rates(rates: &LoadRates, (point_reads, scans): (f64, f64)) -> Rates {
    Rates {
        write_rows: rates.write_rows,
        write_bytes: rates.write_bytes,
        read_rows: rates.read_rows,
        point_reads,
        scans,
        rejected: rates.pressure,
    }
}

fn latency_of(latency: beat::Latency) -> Latency {
    Latency { p50: latency.p50, p99: latency.p99, p999: latency.p999, max: latency.max }
}

/// Sets each partition's shares of its table's written and read rows.
fn share_out(partitions: &mut [PartitionLoad]) {
    let mut sums: BTreeMap<_, (f64, f64)> = BTreeMap::new();
    for load in partitions.iter() {
        let (written, read) = sums.entry(load.table).or_default();
        *written += load.rates.write_rows;
        *read += load.rates.read_rows;
    }
    let share = |part: f64, sum: f64| if sum > 0.0 { part / sum } else { 0.0 };
    for load in partitions {
        let (written, read) = sums.get(&load.table).copied().unwrap_or_default();
        load.share = share(load.rates.write_rows, written);
        load.read_share = share(load.rates.read_rows, read);
    }
}

fn shown(verdict: &partita_load::Verdict, since_ms: u64, codec: &KeyCodec) -> Verdict {
    let evidence = &verdict.evidence;
    let cut = verdict.cut.as_ref();
    Verdict {
        class: verdict.class,
        since: Instant(since_ms),
        evidence: Evidence {
            samples_old: evidence.samples.0,
            samples_new: evidence.samples.1,
            window: Duration::from_secs(u64::from(evidence.window_s)),
            p_out: evidence.p_out,
            auc: evidence.auc,
            append_high: evidence.append_high,
            append_low: evidence.append_low,
            top_key: evidence.top_key,
            top_prefix: evidence.top_prefix.clone(),
            distinct_prefix: evidence.distinct_prefix.clone(),
            contained: evidence.contained,
            shift: evidence.shift,
            hot_share: evidence.hot_share,
            lead: evidence.lead,
            front: evidence.front,
            passes_in_s: evidence.passes_in_s,
            concentration: evidence.concentration,
            reads: evidence.reads,
        },
        cut: cut.and_then(|cut| Some((codec.decode(&cut.key).ok()?, cut.larger_share))),
        hot_key: verdict.hot_key.as_ref().and_then(|key| codec.decode(key).ok()),
    }
}

fn samples(keeper: &Keeper, partition: PartitionId) -> Vec<KeySample> {
    let Some(watched) = keeper.watched(partition) else { return Vec::new() };
    let (Some(rings), Some(codec)) = (&watched.rings, keeper.codec(watched.table)) else {
        return Vec::new();
    };
    let samples_of = |sketch: &Sketch, read: bool| {
        let mut samples = Vec::new();
        for tick in &sketch.ticks {
            let weight = tick.count as f64 / tick.samples.len().max(1) as f64;
            for sample in &tick.samples {
                if let Ok(key) = codec.decode(&sample.key) {
                    let time = Instant(tick.second * 1_000);
                    samples.push(KeySample { at: time, key, weight, read });
                }
            }
        }
        samples
    };
    let mut samples = samples_of(&rings.writes, false);
    samples.extend(samples_of(&rings.reads, true));
    samples
}

fn hot_keys(keeper: &Keeper, load: &PartitionLoad) -> Vec<HotKey> {
    let watched = keeper.watched(load.partition);
    let Some((rings, codec)) =
        watched.and_then(|watched| Some((watched.rings.as_ref()?, keeper.codec(watched.table)?)))
    else {
        return Vec::new();
    };
    let keys_of = |sketch: &Sketch, read: bool| -> Vec<HotKey> {
        let end = sketch.ticks.last().map_or(0, |tick| tick.second);
        let recent = sketch.ticks.iter().filter(|tick| tick.second + KEY_RATE_S > end);
        let operations: u64 = recent.map(|tick| tick.count).sum();
        let per_second = operations as f64 / KEY_RATE_S as f64;
        let heavy = sketch.heavy.iter().filter(|(key, share)| {
            // A bare bucket number is not a key of the table.
            let bucket_only = codec.placed() && key.len() <= 2;
            *share >= HOT_KEY_SHARE && !bucket_only
        });
        let keys = heavy.take(HOT_KEYS_PER_PARTITION).filter_map(|(key, share)| {
            Some(HotKey {
                table: load.table,
                partition: load.partition,
                key: codec.decode(key).ok()?,
                share: *share,
                per_second: per_second * share,
                read,
            })
        });
        keys.collect()
    };
    let mut keys = keys_of(&rings.writes, false);
    keys.extend(keys_of(&rings.reads, true));
    keys
}

fn nodes(
    state: &State,
    reports: &Reports,
    partitions: &[PartitionLoad],
    keeper: &Keeper,
) -> Vec<NodeLoad> {
    let uses: BTreeMap<NodeId, f64> = keeper
        .scheduler()
        .node_use()
        .iter()
        .map(|usage| (node_of(usage.node), usage.load))
        .collect();
    // A node's rates are those of the partitions that it leads.
    let node = |id: NodeId| {
        let statuses = reports.replicas(id).unwrap_or_default();
        let mut rates = Rates::default();
        for load in partitions.iter().filter(|load| load.leader == Some(id)) {
            rates.write_rows += load.rates.write_rows;
            rates.write_bytes += load.rates.write_bytes;
            rates.read_rows += load.rates.read_rows;
            rates.point_reads += load.rates.point_reads;
            rates.scans += load.rates.scans;
            rates.rejected += load.rates.rejected;
        }
        NodeLoad {
            node: id,
            leaders: statuses.iter().filter(|status| status.leader).count() as u64,
            replicas: statuses.len() as u64,
            busy: uses.get(&id).copied().unwrap_or(0.0),
            rates,
            cpu_cores: reports.cpu_cores(id),
        }
    };
    state.nodes().map(|record| node(record.id)).collect()
}

fn split(event: &ReshapeEvent) -> SplitEvent {
    let share = |share: PerMille| f64::from(share.get()) / 1_000.0;
    let finished = event.outcome == ReshapeOutcome::Done;
    let why = ShownReason { cause: Some(event.reason.cause), note: event.reason.note.clone() };
    SplitEvent {
        at: Instant(u64::try_from(event.at_ms).unwrap_or(0)),
        table: event.table,
        partition: event.partition,
        children: vec![event.other],
        merge: event.kind == ReshapeKind::Merge,
        key: Some(event.key.clone()),
        why,
        predicted_share: event.reason.predicted_larger.map(share),
        actual_share: event.actual_larger.map(share),
        in_vain: event.in_vain,
        stall: finished.then_some(event.stall),
        took: finished.then_some(event.duration),
        relief: event.relief,
        outcome: Some(event.outcome.clone()),
    }
}

fn balance(balance: &Balance) -> BalanceEvent {
    let kind = match balance.kind {
        BalanceKind::Leader => ShownKind::Transfer,
        BalanceKind::Replica => ShownKind::Move,
    };
    let why = match &balance.error {
        None => balance.note.clone(),
        Some(error) => format!("{}; failed: {error}", balance.note),
    };
    let source = balance.from.unwrap_or(NodeId(0));
    let (partition, destination) = (balance.partition, balance.to);
    BalanceEvent { at: Instant(balance.at_ms), partition, kind, from: source, to: destination, why }
}
