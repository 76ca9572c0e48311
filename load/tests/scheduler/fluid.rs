//! A cluster whose load is a fluid: partitions have rates, nodes have capacity, orders take time. It drives a
//! [`Scheduler`], carries out its proposals, and keeps the statistics that the tests check.
//!
//! A table's keys are the numbers from 0 to 1, written as 8 bytes; its load between two of them at a time is a function
//! that the test gives. The detector is an oracle that knows that function; how it answers is the test's choice, too.
//!
//! Invariants that are checked at every tick: no partition is in two actions at once; no more is under way than may
//! be; splits by load keep within their table's budget; no partition moves three times within ten minutes.

use std::collections::{BTreeMap, BTreeSet};

use partita_load::{
    Action, ActionId, At, Class, Counters, Cut, Done, Evidence, Failed, MERGES_MAX, NodeFacts,
    NodeId, Options, PartitionFacts, PartitionId, PartitionReport, REPLICA_MOVES_MAX, SPLITS_MAX,
    Scheduler, SplitOutcome, SplitWhy, Step, TRANSFERS_MAX, TableFacts, TableId, Verdict,
};

use crate::flows::{Flow, key, number, whole};

pub(crate) const START_MS: u64 = 1_700_000_000_000;
const THRASH_MS: u64 = 600_000;

/// Oracle's answer for a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Oracle {
    /// The cut that halves the load.
    Halves,
    /// A class that no cut helps.
    Says(Class),
    /// A cut at a twentieth of the range that is promised to halve the load.
    Lies,
    /// One key is hot, with this share.
    HotKey(f64, f64),
}

pub(crate) struct Table {
    pub(crate) flow: Flow,
    pub(crate) oracle: Oracle,
    pub(crate) facts: TableFacts,
    /// Bytes that a busy lane writes a second.
    pub(crate) bytes_per_s: f64,
    /// Splits by load proposed so far, and how many the budget may have allowed.
    proposed: f64,
    allowed: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct Partition {
    pub(crate) table: u32,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) leader: u32,
    pub(crate) voters: Vec<u32>,
    pub(crate) bytes: f64,
    term: u64,
    since_ms: u64,
    counters: Counters,
    split_by_load_ms: u64,
    moved_ms: Vec<u64>,
}

pub(crate) struct World {
    pub(crate) scheduler: Scheduler,
    pub(crate) now_ms: u64,
    pub(crate) tables: BTreeMap<u32, Table>,
    pub(crate) partitions: BTreeMap<u64, Partition>,
    pub(crate) nodes: Vec<NodeFacts>,
    /// Shares of orders that fail, and of reports that are lost or come late.
    pub(crate) failing: f64,
    pub(crate) losing: f64,
    /// Loads swing by this share from second to second.
    pub(crate) noise: f64,
    /// If true, load beyond a lane's capacity waits instead of being refused.
    pub(crate) waiting: bool,
    pub(crate) log: Vec<(u64, Action)>,
    pub(crate) outcomes: Vec<SplitOutcome>,
    /// Merges of what load had cut less than an hour before.
    pub(crate) flaps: u32,
    pub(crate) thrashed: u32,
    under_way: BTreeMap<ActionId, (u64, Action)>,
    late: Vec<(u64, u32, PartitionReport)>,
    next_partition: u64,
    random: u64,
}

/// Node id of the node with this index.
fn node_id(node: u32) -> NodeId {
    NodeId(u64::from(node))
}

/// Index of the node with this id.
fn node_index(id: NodeId) -> u32 {
    u32::try_from(id.0).unwrap()
}

impl World {
    pub(crate) fn new(nodes: usize, capacity: f64, seed: u64) -> Self {
        let nodes = vec![NodeFacts { capacity, ..NodeFacts::default() }; nodes];
        let mut scheduler = Scheduler::new(Options::default(), seed);
        for (node, facts) in (0..).zip(&nodes) {
            scheduler.set_node(node_id(node), facts.clone());
        }
        Self {
            scheduler,
            now_ms: START_MS,
            tables: BTreeMap::new(),
            partitions: BTreeMap::new(),
            nodes,
            failing: 0.0,
            losing: 0.0,
            noise: 0.0,
            waiting: false,
            log: Vec::new(),
            outcomes: Vec::new(),
            flaps: 0,
            thrashed: 0,
            under_way: BTreeMap::new(),
            late: Vec::new(),
            next_partition: 1,
            random: seed.wrapping_mul(2).wrapping_add(1),
        }
    }

    /// A number from 0 to 1.
    pub(crate) fn draw(&mut self) -> f64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.random >> 33).unwrap()) / f64::from(1_u32 << 31)
    }

    /// Adds a table of equal ranges, its replicas on nodes chosen by `voters`.
    pub(crate) fn add_table(
        &mut self,
        id: u32,
        facts: TableFacts,
        oracle: Oracle,
        parts: u32,
        voters: impl Fn(u32) -> Vec<u32>,
        flow: Flow,
    ) {
        for part in 0..parts {
            let voters = voters(part);
            let partition = Partition {
                table: id,
                low: f64::from(part) / f64::from(parts),
                high: f64::from(part + 1) / f64::from(parts),
                leader: voters[0],
                voters,
                bytes: 0.0,
                term: 1,
                since_ms: self.now_ms,
                counters: Counters::default(),
                split_by_load_ms: 0,
                moved_ms: Vec::new(),
            };
            self.partitions.insert(self.next_partition, partition);
            self.next_partition += 1;
        }
        self.scheduler.set_table(TableId(id), facts.clone());
        let allowed = (f64::from(parts) * 0.05).max(2.0);
        let table = Table { flow, oracle, facts, bytes_per_s: 1e6, proposed: 0.0, allowed };
        self.tables.insert(id, table);
        self.tell_partitions(id);
    }

    pub(crate) fn set_facts(&mut self, table: u32, facts: TableFacts) {
        self.tables.get_mut(&table).unwrap().facts = facts.clone();
        self.scheduler.set_table(TableId(table), facts);
    }

    /// The partitions of a table in key order.
    pub(crate) fn parts_of(&self, table: u32) -> Vec<(u64, &Partition)> {
        let mut parts: Vec<(u64, &Partition)> = self
            .partitions
            .iter()
            .filter(|(_, part)| part.table == table)
            .map(|(id, part)| (*id, part))
            .collect();
        parts.sort_by(|a, b| a.1.low.total_cmp(&b.1.low).then(a.1.high.total_cmp(&b.1.high)));
        parts
    }

    /// Tells the scheduler the list of partitions, as a catalog would after a change.
    pub(crate) fn tell_partitions(&mut self, table: u32) {
        let facts: Vec<PartitionFacts> = self
            .parts_of(table)
            .into_iter()
            .map(|(id, part)| PartitionFacts {
                id: PartitionId(id),
                voters: part.voters.iter().copied().map(node_id).collect(),
                leader: Some(node_id(part.leader)),
                born_ms: self.now_ms,
                ..PartitionFacts::default()
            })
            .collect();
        self.scheduler.set_partitions(TableId(table), &facts);
    }

    fn seconds(&self) -> f64 {
        (self.now_ms - START_MS) as f64 / 1_000.0
    }

    pub(crate) fn offered(&self, part: &Partition) -> f64 {
        (self.tables[&part.table].flow)(self.seconds(), part.low, part.high)
    }

    /// Load of each node by the offered load: leaders 1, followers 0.4.
    pub(crate) fn node_loads(&self) -> Vec<f64> {
        let mut loads = vec![0.0; self.nodes.len()];
        for part in self.partitions.values() {
            let load = self.offered(part).min(1.0);
            for voter in &part.voters {
                loads[*voter as usize] += if *voter == part.leader { load } else { 0.4 * load };
            }
        }
        loads
    }

    /// Share of what is offered to a table that its lanes can serve.
    pub(crate) fn served(&self, table: u32) -> f64 {
        let loads: Vec<f64> =
            self.parts_of(table).iter().map(|(_, part)| self.offered(part)).collect();
        loads.iter().map(|load| load.min(1.0)).sum::<f64>() / loads.iter().sum::<f64>()
    }

    pub(crate) fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.second();
        }
    }

    /// One second: fluid flows, leaders report, orders end, the scheduler thinks.
    pub(crate) fn second(&mut self) {
        self.now_ms += 1_000;
        let ids: Vec<u64> = self.partitions.keys().copied().collect();
        for id in ids {
            self.flow(id);
        }
        for (_, node, report) in self.late.extract_if(.., |(due, ..)| *due <= self.now_ms) {
            self.scheduler.observe(self.now_ms, node_id(node), &report);
        }
        let ended: Vec<ActionId> = self
            .under_way
            .iter()
            .filter(|(_, (due, _))| *due <= self.now_ms)
            .map(|(id, _)| *id)
            .collect();
        for id in ended {
            let (_, action) = self.under_way.remove(&id).unwrap();
            self.end(action);
        }
        self.think();
    }

    fn flow(&mut self, id: u64) {
        let mut part = self.partitions[&id].clone();
        let swing = 1.0 + self.noise * (2.0 * self.draw() - 1.0);
        let offered = self.offered(&part) * swing;
        let served = offered.clamp(0.0, 1.0);
        let counters = &mut part.counters;
        counters.busy_ns += whole(served * 1e9);
        counters.write_rows += whole(served * 20_000.0);
        counters.write_batches += whole(served * 2_000.0);
        let too_much = whole((offered - served).max(0.0) * 2_000.0);
        let queue_depth = if self.waiting { u32::try_from(too_much).unwrap() } else { 0 };
        counters.rejected += too_much - u64::from(queue_depth);
        part.bytes += served * self.tables[&part.table].bytes_per_s;
        let report = PartitionReport {
            partition: PartitionId(id),
            term: part.term,
            since_ms: part.since_ms,
            at_ms: self.now_ms,
            counters: part.counters,
            size_bytes: whole(part.bytes),
            queue_depth,
        };
        let (leader, up) = (part.leader, self.nodes[part.leader as usize].up);
        self.partitions.insert(id, part);
        let lost = self.losing > 0.0 && self.draw() < self.losing;
        if lost {
            // Half of those that are lost come late, after others.
            if self.draw() < 0.5 {
                self.late.push((self.now_ms + 3_000, leader, report));
            }
        } else if up {
            self.scheduler.observe(self.now_ms, node_id(leader), &report);
        }
    }

    fn think(&mut self) {
        for (id, table) in &mut self.tables {
            let parts = self.partitions.values().filter(|part| part.table == *id).count();
            table.allowed += (parts as f64 * 0.05).max(2.0) / 60.0;
        }
        let verdicts: BTreeMap<u64, Verdict> = self
            .partitions
            .iter()
            .filter(|(id, _)| self.scheduler.is_hot(PartitionId(**id)))
            .map(|(id, part)| (*id, self.ask(part)))
            .collect();
        let mut judge = |partition: PartitionId, _| verdicts.get(&partition.0).cloned();
        let actions = self.scheduler.tick(self.now_ms, &mut judge);
        for outcome in self.scheduler.take_outcomes() {
            if outcome.why == SplitWhy::Load && !outcome.in_vain && outcome.actual_share.is_some() {
                self.tables.get_mut(&outcome.table.0).unwrap().allowed += 2.0;
            }
            self.outcomes.push(outcome);
        }
        for action in actions {
            self.begin(action);
        }
        let count = |which: fn(&Step) -> bool| {
            self.under_way.values().filter(|(_, action)| which(&action.step)).count()
        };
        assert!(count(|step| matches!(step, Step::Split { .. })) <= SPLITS_MAX);
        assert!(count(|step| matches!(step, Step::Merge { .. })) <= MERGES_MAX);
        assert!(count(|step| matches!(step, Step::TransferLeader { .. })) <= TRANSFERS_MAX);
        assert!(count(|step| matches!(step, Step::MoveReplica { .. })) <= REPLICA_MOVES_MAX);
    }

    fn ask(&self, part: &Partition) -> Verdict {
        let verdict = |class, cut: Option<Cut>| Verdict {
            class,
            cut,
            divisions: Vec::new(),
            hot_key: None,
            evidence: Evidence::default(),
        };
        match self.tables[&part.table].oracle {
            Oracle::Says(class) => verdict(class, None),
            Oracle::Lies => {
                let at = part.low + (part.high - part.low) / 20.0;
                verdict(Class::StaticRange, Some(Cut { key: key(at), larger_share: 0.55 }))
            }
            Oracle::Halves => {
                let flow = &self.tables[&part.table].flow;
                let (now, whole) = (self.seconds(), self.offered(part));
                let (mut low, mut high) = (part.low, part.high);
                for _ in 0..40 {
                    let middle = f64::midpoint(low, high);
                    if flow(now, part.low, middle) < whole / 2.0 {
                        low = middle
                    } else {
                        high = middle
                    }
                }
                let left = flow(now, part.low, high) / whole;
                let larger_share = left.max(1.0 - left);
                let class =
                    if larger_share <= 0.7 { Class::StaticRange } else { Class::Unsplittable };
                verdict(class, Some(Cut { key: key(high), larger_share }))
            }
            Oracle::HotKey(at, share) => {
                let mut hot = verdict(Class::HotKey, None);
                hot.hot_key = Some(key(at));
                hot.evidence.top_key = share;
                hot
            }
        }
    }

    fn begin(&mut self, action: Action) {
        let busy: BTreeSet<PartitionId> =
            self.under_way.values().flat_map(|(_, action)| action.step.partitions()).collect();
        for partition in action.step.partitions() {
            assert!(!busy.contains(&partition), "{partition:?} is in two actions: {action:?}");
            assert!(self.partitions.contains_key(&partition.0), "{partition:?} does not exist");
        }
        let takes_ms = match &action.step {
            Step::Split { partition, why, .. } => {
                if matches!(why, SplitWhy::Load | SplitWhy::IsolateKey) {
                    let table = self.tables.get_mut(&self.partitions[&partition.0].table).unwrap();
                    table.proposed += 1.0;
                    assert!(
                        table.proposed <= table.allowed + 1e-6,
                        "{} of {}",
                        table.proposed,
                        table.allowed
                    );
                }
                500
            }
            Step::Merge { .. } => 2_000,
            Step::TransferLeader { .. } => 200,
            Step::MoveReplica { partition, .. } => {
                whole(self.partitions[&partition.0].bytes / 100e3)
            }
            Step::Rekey { .. } => 1_000,
        };
        self.log.push((self.now_ms, action.clone()));
        self.under_way.insert(action.id, (self.now_ms + takes_ms, action));
    }

    fn end(&mut self, action: Action) {
        let now_ms = self.now_ms;
        if self.failing > 0.0 && self.draw() < self.failing {
            return self.scheduler.failed(action.id, Failed::Other, now_ms);
        }
        let exists = action.step.partitions().iter().all(|id| self.partitions.contains_key(&id.0));
        if !exists {
            return self.scheduler.failed(action.id, Failed::Other, now_ms);
        }
        let mut done = Done::AsProposed;
        match &action.step {
            Step::Split { partition, at, why, right_leader, .. } => {
                let leader = right_leader.map(node_index);
                match self.split(partition.0, at, *why, leader) {
                    Some(right) => done = Done::Split { right: PartitionId(right) },
                    None => return self.scheduler.failed(action.id, Failed::AtEdge, now_ms),
                }
            }
            Step::Merge { left, right, .. } => self.merge(left.0, right.0),
            Step::TransferLeader { partition, to, .. } => self.lead(partition.0, node_index(*to)),
            Step::MoveReplica { partition, from, to, .. } => {
                let (source, target) = (node_index(*from), node_index(*to));
                let part = self.partitions.get_mut(&partition.0).unwrap();
                part.voters.retain(|voter| *voter != source);
                part.voters.push(target);
                if part.leader == source {
                    self.lead(partition.0, target);
                }
            }
            Step::Rekey { .. } => {}
        }
        self.scheduler.done(action.id, done, now_ms);
    }

    /// Makes a voter lead: another term, counters from zero.
    pub(crate) fn elect(&mut self, id: u64, to: u32) {
        let part = self.partitions.get_mut(&id).unwrap();
        assert!(part.voters.contains(&to), "{to} has no replica of {id}");
        (part.leader, part.since_ms, part.counters) = (to, self.now_ms, Counters::default());
        part.term += 1;
    }

    /// The same because the scheduler said so.
    fn lead(&mut self, id: u64, to: u32) {
        self.elect(id, to);
        let now_ms = self.now_ms;
        let part = self.partitions.get_mut(&id).unwrap();
        part.moved_ms.push(now_ms);
        let lately = part.moved_ms.iter().filter(|at| now_ms - **at < THRASH_MS).count();
        self.thrashed += u32::from(lately >= 3);
    }

    /// Cuts a partition; nothing when the cut is at its edge.
    pub(crate) fn split(
        &mut self,
        id: u64,
        at: &At,
        why: SplitWhy,
        leader: Option<u32>,
    ) -> Option<u64> {
        let part = &self.partitions[&id];
        let (at, left_bytes) = match at {
            At::Key(key) => {
                let at = number(key);
                (at, part.bytes * (at - part.low) / (part.high - part.low))
            }
            At::Middle => (f64::midpoint(part.low, part.high), part.bytes / 2.0),
            // Tails of these tests move to the right end, whatever is cut off.
            At::HighWater => (f64::midpoint(part.low, part.high), part.bytes),
            At::LowWater => (f64::midpoint(part.low, part.high), 0.0),
        };
        if at <= part.low || at >= part.high {
            return None;
        }
        let mut right = part.clone();
        (right.low, right.bytes) = (at, part.bytes - left_bytes);
        (right.since_ms, right.counters) = (self.now_ms, Counters::default());
        right.leader = leader.unwrap_or(part.leader);
        right.moved_ms.clear();
        let left = self.partitions.get_mut(&id).unwrap();
        (left.high, left.bytes) = (at, left_bytes);
        if matches!(why, SplitWhy::Load | SplitWhy::IsolateKey) {
            left.split_by_load_ms = self.now_ms;
            right.split_by_load_ms = self.now_ms;
        }
        let id = self.next_partition;
        self.next_partition += 1;
        self.partitions.insert(id, right);
        Some(id)
    }

    fn merge(&mut self, left: u64, right: u64) {
        let gone = self.partitions.remove(&right).unwrap();
        let part = self.partitions.get_mut(&left).unwrap();
        assert!((part.high - gone.low).abs() < 1e-12, "{left} and {right} are no neighbours");
        let last_cut = part.split_by_load_ms.max(gone.split_by_load_ms);
        self.flaps += u32::from(last_cut > 0 && self.now_ms - last_cut < 3_600_000);
        part.high = gone.high;
        part.bytes += gone.bytes;
    }

    /// Proposals of one kind in the log since a time.
    pub(crate) fn count(&self, since_ms: u64, which: impl Fn(&Step) -> bool) -> usize {
        self.log.iter().filter(|(at, action)| *at >= since_ms && which(&action.step)).count()
    }

    /// Asserts that the scheduler knows all partitions, in order, with their leaders.
    pub(crate) fn assert_known(&self) {
        for table in self.tables.keys() {
            let there: Vec<u64> = self.parts_of(*table).iter().map(|(id, _)| *id).collect();
            let known: Vec<u64> =
                self.scheduler.table_loads(TableId(*table)).iter().map(|(id, _)| id.0).collect();
            assert_eq!(known, there, "table {table}");
        }
    }
}
