//! A cluster that is computed: nodes, partitions and orders under a virtual clock, decided over by the real scheduler.
//!
//! ```text
//!   TableLoad ──share of each range──▶ flow (every second) ──▶ counters ──▶ beats (every node, every second, by its phase)
//!        └──keys drawn for hot partitions──▶ policy: detector, or another's picker       │ late, or lost
//!                                                  │                                     ▼
//!   events: heap by (time, number) ◀── orders ◀── tick ◀──────────────────────────── Scheduler
//! ```
//!
//! Load is a fluid: a lane serves up to its capacity, a node up to its cores (a leader counts 1, a follower 0.4). Orders
//! take time. Partitions whose load never changes (the rest of a large cluster) are counted when they report, the others
//! every second.
//!
//! Invariants: single-threaded, no clock; the same options and seed give the same log of events, and its hash.

mod beats;
mod events;
mod faults;
mod flow;
mod orders;
mod parts;
mod policy;
mod setup;
mod water;

use std::collections::BTreeMap;

use partita_load::{Action, ActionId, NodeId, PartitionId, Random, Scheduler, TableId};

use crate::metrics::Books;
use crate::workload::TableLoad;
use events::{Event, Events};
pub use faults::{Fault, FaultKind};
pub(crate) use orders::AFTERWARDS;
use parts::{Node, Partition};
use policy::Pickers;
pub use policy::Policy;

/// When virtual time begins, milliseconds since the Unix epoch.
pub(crate) const BEGIN_MS: u64 = crate::workload::BEGIN_S * 1_000;

/// What a cluster is made of, and what things cost.
#[derive(Clone, Debug)]
pub struct Options {
    /// Nodes.
    pub nodes: usize,
    /// Cores of each.
    pub cores: f64,
    /// Rows a second that one partition's lane writes on one core.
    pub lane_rows_per_s: f64,
    /// What a follower's copy costs, in the leader's work.
    pub follower_cost: f64,
    /// Partitions of other tables.
    pub background: u32,
    /// The share of a lane that one of them bears.
    pub background_busy: f64,
    /// How long a split takes, and how long its range stands still, milliseconds.
    pub split_ms: (u64, u64),
    /// The same of a transfer of a leader.
    pub transfer_ms: (u64, u64),
    /// Bytes a second of one move of a replica.
    pub move_bytes_per_s: f64,
    /// The share of beats that is lost.
    pub beats_lost: f64,
    /// How long the others are under way at most, milliseconds.
    pub beat_delay_ms: u64,
    /// Whether what is not served is asked for again, by clients that each wait for one request: they hold back what
    /// goes to other partitions, too, while one of them is full. Otherwise it is given up.
    pub patient: bool,
    /// Who decides where to cut.
    pub policy: Policy,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// Seconds between two columns of the picture; 0 for none.
    pub picture_every_s: u64,
    /// Everything that looks random follows from it.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 3,
            cores: 4.0,
            lane_rows_per_s: 20_000.0,
            follower_cost: 0.4,
            background: 0,
            background_busy: 0.006,
            split_ms: (500, 50),
            transfer_ms: (200, 200),
            move_bytes_per_s: 64e6,
            beats_lost: 0.0,
            beat_delay_ms: 20,
            patient: false,
            policy: Policy::Ours,
            faults: Vec::new(),
            picture_every_s: 0,
            seed: 1,
        }
    }
}

/// A table and its partitions in key order.
pub(crate) struct Table {
    pub(crate) load: TableLoad,
    /// Those that rows go to.
    pub(crate) order: Vec<u32>,
    /// Those of an older placement, which nothing is written to any more.
    pub(crate) past: Vec<u32>,
    /// Counted every second, or when they report.
    pub(crate) live: bool,
    pub(crate) key_epoch: u16,
    /// Rows that its clients ask for in this second, and those that they still wait to ask for (see [`Options::patient`]).
    pub(crate) offered: f64,
    pub(crate) backlog: f64,
}

/// See the head of the file.
pub struct Cluster {
    pub(crate) options: Options,
    pub(crate) scheduler: Scheduler,
    pub(crate) now_ms: u64,
    pub(crate) tables: Vec<Table>,
    pub(crate) parts: Vec<Partition>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) pickers: Pickers,
    pub(crate) books: Books,
    events: Events,
    under_way: BTreeMap<ActionId, Action>,
    late: BTreeMap<u64, (u32, Vec<partita_load::PartitionReport>)>,
    reports: Vec<partita_load::PartitionReport>,
    next_order: u64,
    random: Random,
    hash: u64,
    events_done: u64,
}

impl Cluster {
    /// Microseconds since the begin.
    pub(crate) fn at_us(&self) -> u64 {
        (self.now_ms - BEGIN_MS) * 1_000
    }

    /// Runs until so many seconds after the begin.
    pub fn run(&mut self, until_s: u64) {
        let until_ms = BEGIN_MS + until_s * 1_000;
        while let Some((at_ms, event)) = self.events.pop_until(until_ms) {
            self.now_ms = at_ms;
            self.events_done += 1;
            match event {
                Event::Flow => self.on_flow(),
                Event::Beat { node } => self.on_beat(node),
                Event::Late { beat } => self.on_late(beat),
                Event::Tick => self.on_tick(),
                Event::End { order } => self.on_end(ActionId(order)),
                Event::Fault { number } => self.on_fault(number),
                Event::Elect { node } => self.on_elect(node),
            }
        }
    }

    /// Adds to the hash of the log.
    pub(crate) fn note(&mut self, values: &[u64]) {
        for value in std::iter::once(&self.now_ms).chain(values) {
            self.hash = partita_load::mix(self.hash ^ value);
        }
    }

    /// The hash of all that happened so far.
    #[must_use]
    pub fn log_hash(&self) -> u64 {
        self.hash
    }

    /// Events that were taken from the heap so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events_done
    }

    /// What was counted.
    #[must_use]
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// The real scheduler, to be looked at.
    #[must_use]
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Partitions of the first table, now.
    #[must_use]
    pub fn partitions(&self) -> usize {
        self.tables[0].order.len()
    }

    /// First keys of the first table's partitions, in order.
    #[must_use]
    pub fn bounds(&self) -> Vec<&[u8]> {
        self.tables[0].order.iter().map(|id| &*self.parts[*id as usize].low).collect()
    }

    /// The first table's load.
    #[must_use]
    pub fn load(&self) -> &TableLoad {
        &self.tables[0].load
    }

    fn partition_id(id: u32) -> PartitionId {
        PartitionId(u64::from(id))
    }

    fn slot(id: PartitionId) -> u32 {
        u32::try_from(id.0).unwrap_or(u32::MAX)
    }

    pub(crate) fn table_id(table: usize) -> TableId {
        TableId(crate::number::small(table))
    }

    pub(crate) fn node_id(node: u32) -> NodeId {
        NodeId(node)
    }
}
