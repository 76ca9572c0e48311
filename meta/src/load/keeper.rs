//! Keeps the load that nodes report, judges it, and proposes actions.
//!
//! Invariants: there is no clock, the caller passes the time; memory is bounded by [`RINGS_MAX`] and by the number
//! of partitions in the catalog.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use partita_load::{
    Action, ActionId, BlameBook, Class, Counters, DetectOptions, Done, Evidence, Failed,
    Forecaster, Judge, Options, PartitionFacts, PartitionReport, Rotation, Scheduler, Standing,
    Tail, Tick, Verdict, WINDOW_S, classify, confirm, of_reads, rotating, standing,
};
use partita_proto::beat::{FollowerReads, Latency, LoadBeat};
use partita_proto::blame::BlameReport;
use partita_proto::history::{Cause, ReshapeEvent, ReshapeKind, ReshapeOutcome};
use partita_proto::id::{NodeId, PartitionId, SchemaVersion, TableId};
use partita_proto::key::KeyCodec;
use partita_proto::load::Rates;
use partita_proto::range::KeyRange;

use super::balances::Balances;
use super::facts::{self, Ties};
use super::followers::Followers;
use super::history::{History, Now};
use super::pictures::Pictures;
use super::rings::Rings;
use super::rotations::{Operations, Rotations};
use crate::catalog::{State, TableRecord};
use crate::zones::{Zones, zone_of};

/// Maximum partitions whose samples are kept, those with the most operations. About 150 KB each at most.
const RINGS_MAX: usize = 256;
/// A partition busier than this is balanced by load, others by number.
const BUSY_RHO: f64 = 0.05;
/// A partition with fewer operations per second is left out of the history.
const QUIET: f64 = 0.01;
/// Interval at which a verdict that is only shown is renewed.
const JUDGED_AGAIN_MS: u64 = 2_000;
/// Maximum renewed verdicts per call (once a second): about a millisecond each.
const JUDGED_AT_ONCE: usize = 32;
/// Time without a heartbeat after which a partition's rates are unknown.
const SILENT_MS: u64 = 3_000;

/// Load state of this process.
pub(crate) struct Keeper {
    pub(super) scheduler: Scheduler,
    pub(super) watched: BTreeMap<PartitionId, Watched>,
    tables: BTreeMap<TableId, Keyed>,
    /// Catalog version that was learnt last.
    version: u64,
    /// Catalog version that the content of files is about. An earlier one lacks tables that are in them: after a crash the
    /// catalog is applied again.
    pub(super) restored_version: u64,
    /// Newest event whose operator-ordered split was reported to the scheduler.
    told: u64,
    /// Partitions whose growing end was cut off: they are not split again for their size.
    full: BTreeSet<PartitionId>,
    pub(super) balances: Balances,
    pub(super) history: History,
    pub(crate) pictures: Pictures,
    rotations: Rotations,
    pub(crate) blame: BlameBook,
    pub(super) forecaster: Forecaster,
    /// Tables whose load is forecast; true if they may be cut ahead of a peak.
    pub(super) forecast_tables: BTreeMap<TableId, bool>,
    /// Time of the next forecast, milliseconds.
    pub(super) forecast_due_ms: u64,
    /// True if the cluster forecasts the load of tables.
    forecasts_load: bool,
}

/// Key codec and detection options of a table.
struct Keyed {
    version: SchemaVersion,
    codec: KeyCodec,
    options: DetectOptions,
}

impl Keyed {
    fn of(table: &TableRecord) -> Option<Self> {
        let schema = &table.schema;
        let codec = KeyCodec::new(schema, &table.placement).ok()?;
        let placement = usize::from(codec.placed());
        let time = schema.time_index();
        let time = time.and_then(|time| schema.key.iter().position(|id| *id == time.id));
        let time_column = time.map(|position| position + placement);
        let keep_together = match schema.options.partitioning.keep_together {
            0 => 0,
            columns => columns as usize + placement,
        };
        let options = DetectOptions { keep_together, placement, time_column };
        Some(Self { version: schema.version, codec, options })
    }
}

/// Facts of partitions that the catalog does not have.
struct Learnt {
    /// Birth of those that are new to the scheduler.
    born_ms: u64,
    /// Tables that have materialized copies, or former partitions.
    sources: BTreeSet<TableId>,
    /// Those that are being re-keyed, or have been a moment ago.
    rekeyed: BTreeSet<TableId>,
}

/// Counters of a partition's last heartbeat.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    term: u64,
    at_ms: u64,
    counters: Counters,
}

/// State of a partition besides its rates.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) table: TableId,
    pub(crate) range: KeyRange,
    pub(crate) rings: Option<Rings>,
    /// Reads at other replicas than the leader.
    followers: Followers,
    pub(crate) highest: Option<Bytes>,
    pub(crate) queue_depth: u32,
    pub(crate) writes: Latency,
    pub(crate) reads: Latency,
    /// Recent point reads and scans per second.
    pub(crate) read_rates: (f64, f64),
    /// Rates between the last two heartbeats: rows written and read, bytes written, and busy share of the lane.
    per_second: [f64; 4],
    /// Time of the last heartbeat, by the clock of this process.
    heard_ms: u64,
    /// Time from which the partition is watched, in milliseconds.
    pub(crate) since_ms: u64,
    last: Marks,
    judged_ms: u64,
    /// Latest verdict, and the time from which its class holds.
    verdict: Option<(Verdict, u64)>,
}

impl Watched {
    fn new(table: TableId, range: KeyRange, since_ms: u64) -> Self {
        Self {
            table,
            range,
            rings: None,
            followers: Followers::default(),
            highest: None,
            queue_depth: 0,
            writes: Latency::default(),
            reads: Latency::default(),
            read_rates: (0.0, 0.0),
            per_second: [0.0; 4],
            heard_ms: 0,
            since_ms,
            last: Marks::default(),
            judged_ms: 0,
            verdict: None,
        }
    }

    /// Updates the rates from the counters of two successive heartbeats.
    fn note_rates(&mut self, beat: &LoadBeat, now_ms: u64) {
        let marks = Marks { term: beat.term, at_ms: beat.at_ms, counters: beat.counters };
        let Marks { term, at_ms, counters: previous } = std::mem::replace(&mut self.last, marks);
        self.heard_ms = now_ms;
        let seconds = beat.at_ms.saturating_sub(at_ms) as f64 / 1_000.0;
        if at_ms == 0 || !(0.5..60.0).contains(&seconds) {
            return;
        }
        // Counters of another term began at zero.
        let previous = if term == beat.term { previous } else { Counters::default() };
        let rate = |current: u64, previous: u64| current.saturating_sub(previous) as f64 / seconds;
        let current = &beat.counters;
        self.per_second = [
            rate(current.write_rows, previous.write_rows),
            rate(current.read_rows, previous.read_rows),
            rate(current.write_bytes, previous.write_bytes),
            (rate(current.busy_ns, previous.busy_ns) / 1e9).min(1.0),
        ];
        let fade = |old: f64, new: f64| old * 0.9 + new * 0.1;
        let scans = |counters: &Counters| counters.range_reads + counters.scans;
        let (point_reads, range_reads) = self.read_rates;
        self.read_rates = (
            fade(point_reads, rate(current.point_reads, previous.point_reads)),
            fade(range_reads, rate(scans(current), scans(&previous))),
        );
    }

    /// Rates in the second before `second`: rows written as they were counted in it, where that is known, otherwise as
    /// in the last heartbeat. Zero while the leader is silent.
    pub(crate) fn rates_before(&self, second: u64) -> [f64; 4] {
        if second * 1_000 > self.heard_ms + SILENT_MS {
            return [0.0; 4];
        }
        let [latest_rows, other_rates @ ..] = self.per_second;
        let ticks = self.rings.as_ref().map_or(&[][..], |rings| &rings.writes.ticks[..]);
        let tick = ticks.iter().rev().find(|tick| tick.second + 1 == second);
        let rows = tick.map_or(latest_rows, |tick| tick.count as f64);
        let [read_rows, write_bytes, busy] = other_rates;
        [rows, read_rows, write_bytes, busy]
    }
}

impl Keeper {
    /// An empty keeper; `seed` decides between equals.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            scheduler: Scheduler::new(Options::default(), seed),
            watched: BTreeMap::new(),
            tables: BTreeMap::new(),
            version: 0,
            restored_version: 0,
            told: 0,
            full: BTreeSet::new(),
            balances: Balances::default(),
            history: History::default(),
            pictures: Pictures::default(),
            rotations: Rotations::default(),
            blame: BlameBook::default(),
            forecaster: Forecaster::default(),
            forecast_tables: BTreeMap::new(),
            forecast_due_ms: 0,
            forecasts_load: true,
        }
    }

    /// The same, for a cluster that does not forecast the load of tables unless `forecasts` is true.
    pub(crate) fn with_forecasts(self, forecasts: bool) -> Self {
        Self { forecasts_load: forecasts, ..self }
    }

    /// This process begins to decide: the load state stays, but actions begun by this or another process are
    /// forgotten.
    pub(crate) fn begin(&mut self, seed: u64) {
        self.scheduler = Scheduler::new(Options::default(), seed);
        self.full.clear();
        // The new scheduler is told of them again.
        self.rotations = Rotations::default();
        // The new scheduler has to learn the whole catalog.
        self.version = 0;
    }

    /// Follows the catalog and events while another process decides.
    pub(crate) fn look_on(&mut self, state: &State, events: &[ReshapeEvent], now_ms: u64) {
        self.learn(state, |_| true, now_ms);
        self.mark_reshapes(events);
        // The deciding process reports them to its scheduler.
        self.told = events.last().map_or(self.told, |event| event.id);
        self.note(now_ms);
    }

    /// The scheduler, for queries.
    pub(crate) fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// State of a partition.
    pub(crate) fn watched(&self, partition: PartitionId) -> Option<&Watched> {
        self.watched.get(&partition)
    }

    /// Key codec of a table.
    pub(crate) fn codec(&self, table: TableId) -> Option<&KeyCodec> {
        self.tables.get(&table).map(|keyed| &keyed.codec)
    }

    /// Version of the catalog that the load is about.
    pub(super) fn known_version(&self) -> u64 {
        self.version.max(self.restored_version)
    }

    /// False while the catalog may lack tables that it will have when all of it is applied.
    pub(super) fn knows_all_tables(&self) -> bool {
        self.version >= self.restored_version
    }

    /// Learns the catalog and the liveness of nodes.
    pub(crate) fn learn(&mut self, state: &State, is_live: impl Fn(NodeId) -> bool, now_ms: u64) {
        let zones = Zones::new(state.nodes().map(|node| (node.id, zone_of(&node.labels))));
        for node in state.nodes() {
            let facts = facts::node(node, is_live(node.id), zones.number(node.id));
            self.scheduler.set_node(facts::node_id(node.id), facts);
        }
        for (node, _) in state.removed() {
            self.scheduler.set_node(facts::node_id(node), facts::removed_node());
        }
        if state.version() == self.version {
            return;
        }
        // The age of a partition that existed before this process began to decide is unknown. It counts as just born:
        // the earlier scheduler's rules against merging it are forgotten, and so is the load that it had.
        let copies = || {
            let tables = state.tables().filter(|table| table.is_named());
            tables.filter_map(|table| table.copy.as_ref())
        };
        let learnt = Learnt {
            born_ms: now_ms,
            sources: copies().map(|copy| copy.source).collect(),
            rekeyed: copies().filter(|copy| copy.is_rekeying()).map(|copy| copy.source).collect(),
        };
        self.version = state.version();
        let visible: Vec<_> = state.tables().filter(|table| table.is_visible()).collect();
        let visible_ids: BTreeSet<TableId> = visible.iter().map(|table| table.id).collect();
        let dropped: Vec<TableId> =
            self.tables.keys().filter(|table| !visible_ids.contains(table)).copied().collect();
        for table in dropped {
            self.tables.remove(&table);
            self.forecast_tables.remove(&table);
            self.scheduler.drop_table(facts::table_id(table));
        }
        if self.knows_all_tables() {
            self.pictures.retain(|table| visible_ids.contains(&table));
        }
        let mut ranges = BTreeMap::new();
        for table in visible {
            self.learn_table(state, table, &learnt, &mut ranges);
        }
        self.learn_ranges(ranges, now_ms);
    }

    fn learn_table(
        &mut self,
        state: &State,
        table: &TableRecord,
        learnt: &Learnt,
        ranges: &mut BTreeMap<PartitionId, (TableId, KeyRange)>,
    ) {
        let current = self.tables.get(&table.id);
        if current.is_none_or(|current| current.version != table.schema.version) {
            let Some(keyed) = Keyed::of(table) else { return };
            self.tables.insert(table.id, keyed);
        }
        let Some(Keyed { codec, .. }) = self.tables.get(&table.id) else { return };
        let id = facts::table_id(table.id);
        let ties = Ties {
            is_source: learnt.sources.contains(&table.id),
            is_rekeyed: learnt.rekeyed.contains(&table.id),
        };
        let facts = facts::table(table, ties);
        self.scheduler.set_table(id, facts.clone());
        if self.forecasts_load && table.schema.options.partitioning.forecast {
            self.forecast_tables.insert(table.id, facts.by_load);
        } else {
            self.forecast_tables.remove(&table.id);
        }
        let records = table.partitions.iter().filter_map(|id| state.partition(*id));
        let mut partitions = Vec::with_capacity(table.partitions.len());
        let mut key_epoch = 0;
        let last = table.partitions.last();
        for record in records {
            let Ok(range) = codec.range(&record.range) else { continue };
            ranges.insert(record.id, (table.id, range));
            // The table's owner chose the buckets and rules: idle ones are not merged.
            let start = &record.range.start;
            key_epoch += u16::from(start.placement.is_some() && start.key.is_empty());
            let behind_tail = facts.tail == Tail::Right && Some(&record.id) != last;
            let full = behind_tail || self.full.contains(&record.id);
            let watched = self.watched.get(&record.id);
            let known_since_ms = watched.map_or(learnt.born_ms, |watched| watched.since_ms);
            let expiry_s = table.schema.options.partitioning.pin_expiry_s;
            partitions.push(PartitionFacts {
                pinned_until_ms: facts::pinned_until_ms(
                    record.cut_by_hand_ms,
                    expiry_s,
                    known_since_ms,
                ),
                ..facts::partition(record, learnt.born_ms, full, key_epoch)
            });
        }
        self.scheduler.set_partitions(id, &partitions);
    }

    /// Updates the watched partitions; a partition that is new or has another range takes over the samples in its
    /// range.
    fn learn_ranges(&mut self, ranges: BTreeMap<PartitionId, (TableId, KeyRange)>, now_ms: u64) {
        let mut previous = std::mem::take(&mut self.watched);
        // A table and the copy that takes its place exchange their partitions, whose keys stay in the order that they
        // have. Pictures and forecasts begin anew: those of a table have keys in one order.
        let mut exchanged = BTreeSet::new();
        for (partition, watched) in &mut previous {
            if let Some((table, _)) = ranges.get(partition)
                && watched.table != *table
            {
                exchanged.extend([watched.table, *table]);
                watched.table = *table;
            }
        }
        self.pictures.retain(|table| !exchanged.contains(&table));
        for table in exchanged {
            self.forecaster.forget(facts::table_id(table));
        }
        // Partitions that are new or have another range.
        let changed = |partition: &PartitionId, range: &KeyRange| {
            previous.get(partition).is_none_or(|watched| watched.range != *range)
        };
        let moved: Vec<(PartitionId, TableId, KeyRange)> = ranges
            .iter()
            .filter(|(partition, (_, range))| changed(partition, range))
            .map(|(partition, (table, range))| (*partition, *table, range.clone()))
            .collect();
        let mut anew = BTreeMap::new();
        for (partition, table, range) in moved {
            // They take over the samples of all partitions that they overlap.
            let mut rings: Option<Rings> = None;
            let since_ms = previous.get(&partition).map_or(now_ms, |watched| watched.since_ms);
            let overlapping = previous
                .values()
                .filter(|watched| watched.table == table && watched.range.overlaps(&range))
                .filter_map(|watched| watched.rings.as_ref());
            for part in overlapping.map(|watched| watched.part(&range)) {
                match &mut rings {
                    Some(rings) => rings.absorb(&part),
                    None => rings = Some(part),
                }
            }
            anew.insert(partition, Watched { rings, ..Watched::new(table, range, since_ms) });
        }
        // Partitions that are gone, or replaced, are dropped.
        previous
            .retain(|partition, _| ranges.contains_key(partition) && !anew.contains_key(partition));
        previous.append(&mut anew);
        self.watched = previous;
    }

    /// Sets the partitions that do not serve all that they should: the scheduler leaves them unchanged.
    pub(crate) fn note_failed(&mut self, failed: impl Iterator<Item = PartitionId>) {
        self.scheduler.set_failed(failed.map(facts::partition_id).collect());
    }

    /// Takes a node's report of reads of the partitions that it does not lead. They count with the leader's next report.
    pub(crate) fn heard_followers(&mut self, node: NodeId, reports: &[FollowerReads]) {
        for reads in reports {
            if let Some(watched) = self.watched.get_mut(&reads.partition) {
                watched.followers.add(node, reads);
            }
        }
    }

    /// Takes a node's load report on the partitions that it leads.
    pub(crate) fn heard(&mut self, node: NodeId, beats: &[LoadBeat], now_ms: u64) {
        for beat in beats {
            let Some(watched) = self.watched.get_mut(&beat.partition) else { continue };
            // The load of a partition is that of all its replicas.
            let whole = watched.followers.with(beat.term, &beat.counters);
            let whole = whole.map(|counters| LoadBeat { counters, ..beat.clone() });
            let beat = whole.as_ref().unwrap_or(beat);
            // An empty latency keeps the one before.
            watched.queue_depth = beat.queue_depth;
            watched.note_rates(beat, now_ms);
            if beat.writes.count > 0 {
                watched.writes = beat.writes;
            }
            if beat.reads.count > 0 {
                watched.reads = beat.reads;
            }
            let is_higher =
                |highest: &Bytes| beat.highest.as_ref().is_some_and(|reported| reported > highest);
            if watched.highest.as_ref().is_none_or(is_higher) {
                watched.highest.clone_from(&beat.highest);
            }
            // Samples are kept only for partitions that have some.
            let quiet = beat.write_keys.ticks.is_empty() && beat.read_keys.ticks.is_empty();
            if !quiet || watched.rings.is_some() {
                watched.rings.get_or_insert_default().add_beat(beat, &watched.range);
            }
            // The scheduler gets the counters, with the term that orders them.
            let report = PartitionReport {
                partition: facts::partition_id(beat.partition),
                term: beat.term,
                since_ms: beat.since_ms,
                at_ms: beat.at_ms,
                counters: beat.counters,
                size_bytes: beat.size_bytes,
                queue_depth: beat.queue_depth,
            };
            self.scheduler.observe(now_ms, facts::node_id(node), &report);
        }
    }

    /// Takes a frontend's samples of what its statements write and read.
    pub(crate) fn blamed(&mut self, report: BlameReport, now_ms: u64) {
        self.blame.hear(report.source, report.taken, now_ms / 1_000);
    }

    /// Looks for tables whose load rotates over their partitions, every few seconds.
    fn note_rotations(&mut self, now_ms: u64) {
        let now_s = now_ms / 1_000;
        if !self.rotations.is_due(now_s) {
            return;
        }
        let counts =
            |ticks: &[Tick]| ticks.iter().map(|tick| (tick.second, tick.count)).collect::<Vec<_>>();
        let mut tables: BTreeMap<TableId, Vec<Operations>> = BTreeMap::new();
        for (id, watched) in &self.watched {
            let Some(rings) = &watched.rings else { continue };
            let rates = self.scheduler.rates(facts::partition_id(*id), now_ms).unwrap_or_default();
            tables.entry(watched.table).or_default().push(Operations {
                partition: *id,
                start: watched.range.start.clone(),
                busy: rates.rho_10.max(rates.reads_10),
                counts: [counts(&rings.writes.ticks), counts(&rings.reads.ticks)],
            });
        }
        // Not all leaders have reported the last second yet.
        for (table, rotation) in self.rotations.note(now_s.saturating_sub(1), tables) {
            self.scheduler.set_rotating(facts::table_id(table), rotation);
        }
    }

    /// Tables whose load rotates.
    pub(super) fn rotations(&self) -> impl Iterator<Item = (TableId, &Rotation)> {
        self.rotations.all()
    }

    /// State of a partition's load.
    pub(crate) fn standing(&self, partition: PartitionId, now_ms: u64) -> Standing {
        let rates = self.scheduler.rates(facts::partition_id(partition), now_ms);
        standing(&rates.unwrap_or_default(), self.rotates(partition))
    }

    /// True if a partition takes part in the rotation of its table's load.
    pub(super) fn rotates(&self, partition: PartitionId) -> bool {
        let watched = self.watched.get(&partition);
        watched.is_some_and(|watched| self.rotations.of(watched.table, partition).is_some())
    }

    fn note_history(&mut self, now_ms: u64) {
        let mut active = Vec::new();
        for (id, watched) in &self.watched {
            // Idle partitions are left out of the history.
            let Some(rates) = self.scheduler.rates(facts::partition_id(*id), now_ms) else {
                continue;
            };
            let (point_reads, scans) = watched.read_rates;
            if rates.write_rows + rates.read_rows + point_reads + scans < QUIET {
                continue;
            }
            let load = Now {
                table: watched.table,
                leader: self.leader(*id),
                busy: rates.rho_10,
                rates: Rates {
                    write_rows: rates.write_rows,
                    write_bytes: rates.write_bytes,
                    read_rows: rates.read_rows,
                    point_reads,
                    scans,
                    rejected: rates.pressure,
                },
                size_bytes: rates.size_bytes,
                class: watched.verdict.as_ref().map(|(verdict, _)| verdict.class),
            };
            active.push((*id, load));
        }
        self.history.note(now_ms, &active);
    }

    /// Drops the samples of the quietest partitions if there are too many.
    fn trim(&mut self) {
        let operations = |rings: &Rings| -> u64 {
            let ticks = rings.writes.ticks.iter().chain(&rings.reads.ticks);
            ticks.map(|tick| tick.count).sum()
        };
        let mut sampled: Vec<(u64, PartitionId)> = self
            .watched
            .iter()
            .filter_map(|(id, watched)| Some((operations(watched.rings.as_ref()?), *id)))
            .collect();
        if sampled.len() <= RINGS_MAX {
            return;
        }
        sampled.sort_unstable();
        for (_, partition) in &sampled[..sampled.len() - RINGS_MAX] {
            if let Some(watched) = self.watched.get_mut(partition) {
                watched.rings = None;
            }
        }
    }

    fn note(&mut self, now_ms: u64) {
        self.trim();
        self.note_rotations(now_ms);
        self.judge_some(now_ms);
        self.note_forecasts(now_ms);
        self.note_history(now_ms);
        self.draw(now_ms);
    }

    /// Updates samples, verdicts, history and pictures, and returns the actions to begin now.
    pub(crate) fn tick(&mut self, now_ms: u64) -> Vec<Action> {
        self.note(now_ms);
        let mut bench =
            Bench { watched: &mut self.watched, tables: &self.tables, rotations: &self.rotations };
        self.scheduler.tick(now_ms, &mut bench)
    }

    /// Reports an action that was carried out.
    pub(crate) fn done(&mut self, id: ActionId, outcome: Done, now_ms: u64) {
        self.scheduler.done(id, outcome, now_ms);
    }

    /// Records that a partition's growing end was cut off.
    pub(crate) fn rolled(&mut self, partition: PartitionId) {
        self.full.insert(partition);
    }

    /// Reports an action that failed.
    pub(crate) fn failed(&mut self, id: ActionId, failed: Failed, now_ms: u64) {
        self.scheduler.failed(id, failed, now_ms);
    }

    /// Reports splits that operators ordered to the scheduler, and marks all splits and merges in the pictures.
    pub(crate) fn note_splits(&mut self, events: &[ReshapeEvent], now_ms: u64) {
        self.mark_reshapes(events);
        let ended = |event: &&ReshapeEvent| event.outcome != ReshapeOutcome::UnderWay;
        let new: Vec<_> = events.iter().filter(|event| event.id > self.told).collect();
        for event in new.iter().take_while(|event| ended(event)) {
            self.told = event.id;
            let is_split =
                event.outcome == ReshapeOutcome::Done && event.kind == ReshapeKind::Split;
            if is_split && event.reason.cause == Cause::ByHand {
                let parent = facts::partition_id(event.partition);
                self.scheduler.split_by_hand(parent, facts::partition_id(event.other), now_ms);
            }
        }
    }

    /// Node that leads a partition, as far as load reports tell.
    pub(crate) fn leader(&self, partition: PartitionId) -> Option<NodeId> {
        self.scheduler.leader(facts::partition_id(partition)).map(facts::node_of)
    }

    /// True if a partition is so busy that its leader is placed by load.
    pub(crate) fn is_busy(&self, partition: PartitionId, now_ms: u64) -> bool {
        let rates = self.scheduler.rates(facts::partition_id(partition), now_ms);
        rates.is_some_and(|rates| rates.rho_60.max(rates.reads_60) >= BUSY_RHO)
    }

    /// Outcomes of splits since the last call.
    pub(crate) fn take_outcomes(&mut self) -> Vec<partita_load::SplitOutcome> {
        self.scheduler.take_outcomes()
    }

    /// Verdict on a partition's load, hot or not, and the time from which its class holds; `None` while nothing was
    /// sampled.
    pub(crate) fn verdict(&self, partition: PartitionId) -> Option<(&Verdict, u64)> {
        self.watched
            .get(&partition)?
            .verdict
            .as_ref()
            .map(|(verdict, since_ms)| (verdict, *since_ms))
    }

    /// Renews the oldest verdicts, a few at a time, so that partitions that are not hot have a verdict to show, too.
    fn judge_some(&mut self, now_ms: u64) {
        let due = |watched: &Watched| {
            watched.rings.is_some() && now_ms >= watched.judged_ms + JUDGED_AGAIN_MS
        };
        let mut oldest: Vec<(u64, PartitionId)> = self
            .watched
            .iter()
            .filter(|(_, watched)| due(watched))
            .map(|(id, watched)| (watched.judged_ms, *id))
            .collect();
        oldest.sort_unstable();
        let mut bench =
            Bench { watched: &mut self.watched, tables: &self.tables, rotations: &self.rotations };
        for (_, partition) in oldest.into_iter().take(JUDGED_AT_ONCE) {
            bench.judge(facts::partition_id(partition), now_ms);
        }
    }
}

/// The detector, over the kept samples.
struct Bench<'k> {
    watched: &'k mut BTreeMap<PartitionId, Watched>,
    tables: &'k BTreeMap<TableId, Keyed>,
    rotations: &'k Rotations,
}

impl Judge for Bench<'_> {
    fn judge(&mut self, partition: partita_load::PartitionId, now_ms: u64) -> Option<Verdict> {
        let watched = self.watched.get_mut(&facts::partition_of(partition))?;
        let Keyed { codec, options, .. } = self.tables.get(&watched.table)?;
        let rings = watched.rings.as_mut()?;
        let ends = |key: &[u8]| codec.cell_ends(key);
        let (sketch, is_read) = rings.heavier();
        let mut verdict = classify(sketch, WINDOW_S, &ends, options);
        // A cut at the partition's lower edge divides nothing: all samples lie on one side.
        if verdict.cut.as_ref().is_some_and(|cut| *cut.key <= *watched.range.start) {
            verdict.cut = None;
            verdict.class = Class::Unsplittable;
        }
        verdict.divisions.retain(|division| *division.key > *watched.range.start);
        let id = facts::partition_of(partition);
        if let Some(rotation) = self.rotations.of(watched.table, id) {
            verdict = rotating(verdict, rotation);
        }
        if is_read {
            verdict = of_reads(verdict);
        }
        watched.judged_ms = now_ms;
        rings.add_verdict(verdict);
        let verdict = confirm(&rings.verdicts);
        let same = watched.verdict.take().filter(|(previous, _)| previous.class == verdict.class);
        let since_ms = same.map_or(now_ms, |(_, since_ms)| since_ms);
        watched.verdict = Some((verdict.clone(), since_ms));
        let blank = Evidence { reads: verdict.evidence.reads, ..Evidence::default() };
        Some(verdict).filter(|verdict| verdict.evidence != blank)
    }

    fn forget(&mut self, partition: partita_load::PartitionId) {
        if let Some(watched) = self.watched.get_mut(&facts::partition_of(partition))
            && let Some(rings) = &mut watched.rings
        {
            *rings = Rings::default();
        }
    }
}
