//! A simulated cluster: nodes, partitions and orders under a virtual clock, controlled by the real scheduler.
//!
//! ```text
//!   TableLoad ──share of each range──▶ flow (every second) ──▶ counters ──▶ beats (every node, every second, by its phase)
//!        └──keys drawn for hot partitions──▶ policy: detector, or another's picker       │ late, or lost
//!                                                  │                                     ▼
//!   events: heap by (time, number) ◀── orders ◀── tick ◀──────────────────────────── Scheduler
//! ```
//!
//! Load is a fluid: a lane serves up to its capacity, a node up to its cores (a leader counts 1, a follower 0.4).
//! Orders take time. Partitions with constant load (the rest of a large cluster) are counted when they report, the
//! others every second.
//!
//! Invariants: single-threaded, no real clock; the same options and seed give the same event log, with the same
//! hash.

mod ahead;
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

use partita_load::{Action, ActionId, Forecaster, NodeId, PartitionId, Random, Scheduler, TableId};

use crate::metrics::Books;
use crate::workload::TableLoad;
use events::{Event, Events};
pub use faults::{Fault, FaultKind};
pub(crate) use orders::afterwards;
use parts::{Node, Partition};
use policy::Pickers;
pub use policy::Policy;

/// Begin of virtual time, in milliseconds since the Unix epoch.
pub(crate) const BEGIN_MS: u64 = crate::workload::BEGIN_S * 1_000;

/// Size, costs and faults of a simulated cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of nodes.
    pub nodes: usize,
    /// Cores of each node.
    pub cores: f64,
    /// Rows per second that one partition's lane writes on one core.
    pub lane_rows_per_s: f64,
    /// Work of a follower, relative to the leader's.
    pub follower_cost: f64,
    /// Number of partitions of other tables.
    pub background: u32,
    /// Share of its lane that each partition of these tables uses.
    pub background_busy: f64,
    /// Duration of a split, and of the write stall of its range, in milliseconds.
    pub split_ms: (u64, u64),
    /// Duration of a transfer of a leader, and of the write stall of its partition, in milliseconds.
    pub transfer_ms: (u64, u64),
    /// Bytes per second of one replica move.
    pub move_bytes_per_s: f64,
    /// Share of heartbeats that are lost.
    pub beats_lost: f64,
    /// Maximum delay of a heartbeat that is not lost, in milliseconds.
    pub beat_delay_ms: u64,
    /// True for closed-loop clients: each retries its one request until it is served, so a full partition also holds
    /// back load for other partitions. Otherwise requests that are not served are dropped.
    pub patient: bool,
    /// Policy that decides where to split.
    pub policy: Policy,
    /// True if peaks that come every day are met with cuts ahead of them.
    pub forecast: bool,
    /// Faults to inject.
    pub faults: Vec<Fault>,
    /// Seconds between two columns of the heatmap; 0: no heatmap.
    pub picture_every_s: u64,
    /// Seed of all pseudo-random choices.
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
            forecast: true,
            faults: Vec::new(),
            picture_every_s: 0,
            seed: 1,
        }
    }
}

/// A table and its partitions in key order.
pub(crate) struct Table {
    pub(crate) load: TableLoad,
    /// Partitions that rows are written to.
    pub(crate) order: Vec<u32>,
    /// Partitions of an older placement, which are not written to any more.
    pub(crate) past: Vec<u32>,
    /// True if counted every second; otherwise when they report.
    pub(crate) live: bool,
    pub(crate) key_epoch: u16,
    /// Rows that clients request in this second, and rows whose requests they still hold back (see
    /// [`Options::patient`]).
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
    pub(crate) forecaster: Forecaster,
    /// Time of the next forecast, milliseconds.
    forecast_due_ms: u64,
    /// Interval of load, reports and decisions, milliseconds: a second, and more where nothing happens.
    pub(crate) pace_ms: u64,
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

    /// Runs until this many seconds after the begin.
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

    /// Hash of all events so far.
    #[must_use]
    pub fn log_hash(&self) -> u64 {
        self.hash
    }

    /// Number of events processed so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events_done
    }

    /// Profiles and forecasts.
    #[must_use]
    pub fn forecaster(&self) -> &Forecaster {
        &self.forecaster
    }

    /// Measurements of the run.
    #[must_use]
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// The scheduler under test.
    #[must_use]
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Present number of partitions of the first table.
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
        NodeId(u64::from(node))
    }

    /// Index of a node that was given to the scheduler by [`Self::node_id`].
    fn node_index(id: NodeId) -> u32 {
        u32::try_from(id.0).unwrap_or(u32::MAX)
    }
}
