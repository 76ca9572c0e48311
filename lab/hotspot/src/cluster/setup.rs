//! Initial state of a cluster: tables, the placement of their partitions, and the scheduler's facts.
//!
//! Invariant: leaders and followers are distributed by hash, so that the order of tables favours no node.

use std::collections::BTreeMap;

use partita_load::{
    Forecaster, NodeFacts, Options as SchedulerOptions, PartitionFacts, Random, Scheduler, TableId,
    mix,
};

use super::events::{Event, Events};
use super::parts::{NONE, Node, Partition};
use super::{BEGIN_MS, Cluster, Options, Pickers, Policy, Table};
use crate::metrics::Books;
use crate::number::small;
use crate::workload::{Spread, TableLoad, background};

/// Maximum partitions of one background table.
const BACKGROUND_TABLE: u32 = 1_000;
/// Size of a background partition: full, so that none are merged.
const BACKGROUND_BYTES: f64 = 400.0 * 1_048_576.0;

impl Cluster {
    /// Creates a cluster with a table for each load; results are measured for the first table.
    #[must_use]
    pub fn new(options: Options, loads: Vec<TableLoad>) -> Self {
        let node = Node { up: true, speed: 1.0, factor: 1.0, ..Node::default() };
        let mut cluster = Self {
            scheduler: Scheduler::new(SchedulerOptions::default(), options.seed),
            now_ms: BEGIN_MS,
            tables: Vec::new(),
            parts: Vec::new(),
            nodes: vec![node; options.nodes],
            pickers: Pickers::new(options.policy, options.seed),
            books: Books::new(options.picture_every_s),
            forecaster: Forecaster::default(),
            forecast_due_ms: 0,
            pace_ms: 1_000,
            events: Events::default(),
            under_way: BTreeMap::new(),
            late: BTreeMap::new(),
            reports: Vec::new(),
            next_order: 1 << 40,
            random: Random::new(options.seed),
            hash: 0,
            events_done: 0,
            options,
        };
        // Add the nodes first, then the tables whose partitions are on them.
        for index in 0..cluster.nodes.len() {
            let facts = NodeFacts { capacity: cluster.options.cores, ..NodeFacts::default() };
            cluster.scheduler.set_node(Self::node_id(small(index)), facts);
        }
        for load in loads {
            cluster.add_table(load, true);
        }
        // The rest of a large cluster: tables with constant load.
        let rows = cluster.options.background_busy * cluster.options.lane_rows_per_s;
        let mut remaining = cluster.options.background;
        while remaining > 0 {
            let count = remaining.min(BACKGROUND_TABLE);
            let load = background("background", count, rows * f64::from(count));
            cluster.add_table(load, false);
            remaining -= count;
        }
        cluster.begin();
        cluster
    }

    fn begin(&mut self) {
        self.events.add(BEGIN_MS, Event::Flow);
        self.events.add(BEGIN_MS + 1_000, Event::Tick);
        for node in 0..self.nodes.len() as u64 {
            let phase = node * 7_919 % 1_000;
            self.events.add(
                BEGIN_MS + 1_000 + phase,
                Event::Beat { node: small(usize::try_from(node).unwrap_or(0)) },
            );
        }
        for (number, fault) in self.options.faults.iter().enumerate() {
            self.events.add(BEGIN_MS + fault.at_s * 1_000, Event::Fault { number: small(number) });
        }
    }

    /// Nodes for a partition's replicas, the leader's first: three, or all if there are fewer.
    pub(crate) fn voters(&self, table: u64, part: u64, spread: Spread) -> [u32; 3] {
        let nodes = self.nodes.len() as u64;
        let mut voters = [NONE; 3];
        let first = match spread {
            Spread::Even => mix(table << 32 ^ part ^ self.options.seed) % nodes,
            Spread::OneNode => 0,
        };
        let mut count = 0;
        for draw in 0_u64.. {
            let node = if draw == 0 {
                first
            } else {
                mix(first ^ part << 20 ^ table << 44 ^ draw) % nodes
            };
            let node = u32::try_from(node).unwrap_or(NONE);
            if !voters.contains(&node) {
                voters[count] = node;
                count += 1;
            }
            if count == voters.len().min(self.nodes.len()) {
                break;
            }
        }
        voters
    }

    fn add_table(&mut self, mut load: TableLoad, live: bool) {
        let table = self.tables.len();
        // Other policies split by themselves, so the scheduler must not.
        if live && self.options.policy != Policy::Ours {
            load.facts.by_load = false;
        }
        self.scheduler.set_table(Self::table_id(table), load.facts.clone());
        let mut entry = Table {
            load,
            order: Vec::new(),
            past: Vec::new(),
            live,
            key_epoch: 0,
            offered: 0.0,
            backlog: 0.0,
        };
        // One partition below the first cut and one above each cut.
        let cuts = std::mem::take(&mut entry.load.cuts);
        let spread = entry.load.spread;
        let lows = std::iter::once(Vec::new()).chain(cuts.iter().cloned());
        let highs = cuts.iter().cloned().map(Some).chain(std::iter::once(None));
        for (index, (low, high)) in lows.zip(highs).enumerate() {
            let voters = self.voters(table as u64, index as u64, spread);
            let high = high.map(Vec::into_boxed_slice);
            let mut part = Partition::new(small(table), low.into(), high, voters, BEGIN_MS);
            part.row_bytes = if live { entry.load.row_bytes } else { 0.0 };
            part.lane_rows_per_s = self.options.lane_rows_per_s;
            // The load of a background partition is computed once.
            if !live {
                part.bytes = BACKGROUND_BYTES;
                let share = entry.load.share(0, &part.low, part.high.as_deref());
                part.offered = share * entry.load.offered(0) / self.options.lane_rows_per_s;
                part.busy = part.offered.min(1.0);
                part.served_rows = part.busy * self.options.lane_rows_per_s;
            }
            entry.order.push(self.add_part(part, live));
        }
        entry.load.cuts = cuts;
        self.tables.push(entry);
        self.tell_partitions(table);
    }

    /// Adds a partition to the list and to its nodes.
    pub(crate) fn add_part(&mut self, part: Partition, live: bool) -> u32 {
        let id = small(self.parts.len());
        self.parts.push(part);
        self.join_nodes(id, live, 1.0);
        id
    }

    /// Adds (1) or subtracts (-1) a partition's load at its nodes.
    pub(crate) fn join_nodes(&mut self, id: u32, live: bool, sign: f64) {
        let part = &self.parts[id as usize];
        let leader = part.leader;
        if !live {
            for voter in part.voters() {
                let weight = if voter == leader { 1.0 } else { self.options.follower_cost };
                self.nodes[voter as usize].still_load += sign * weight * part.busy;
            }
        }
        let node = &mut self.nodes[leader as usize];
        let list = if live { &mut node.live } else { &mut node.still };
        if sign > 0.0 {
            list.push(id);
        } else if let Some(index) = list.iter().position(|candidate| *candidate == id) {
            list.swap_remove(index);
        }
    }

    /// Sends the scheduler a table's partitions, as a catalog would.
    pub(crate) fn tell_partitions(&mut self, table: usize) {
        let entry = &self.tables[table];
        let fact = |id: u32, key_epoch: u16| {
            let part = &self.parts[id as usize];
            PartitionFacts {
                id: Self::partition_id(id),
                voters: part.voters().map(Self::node_id).collect(),
                leader: Some(Self::node_id(part.leader)),
                born_ms: part.begun_ms,
                key_epoch,
                ..PartitionFacts::default()
            }
        };
        let past = entry.past.iter().map(|id| fact(*id, 0));
        let facts: Vec<PartitionFacts> =
            past.chain(entry.order.iter().map(|id| fact(*id, entry.key_epoch))).collect();
        self.scheduler.set_partitions(TableId(small(table)), &facts);
    }
}
