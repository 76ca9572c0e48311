//! The scheduler: keeps the state of tables, nodes, partitions and their load, and proposes splits, merges, moves and
//! remedies. The rules themselves are in `split.rs`, `merge.rs`, `balance.rs`, `feedback.rs` and `forecast.rs`.
//!
//! ```text
//!   set_table, set_node, set_partitions ──▶ ┌──────────┐
//!   observe(report) ───────────────────────▶ │          │ ──▶ tick(now, judge) ──▶ actions ──▶ the owner
//!   done / failed (action) ────────────────▶ └──────────┘           ▲                            │
//!        ▲                                        judge: the detector, for hot partitions         │
//!        └────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The owner (meta, or a virtual cluster) records an action, carries it out, and reports its end. Other changes (a
//! table altered, a partition split by hand, a node gone) are reported as facts.
//!
//! Invariants:
//! - deterministic: the same calls give the same actions; no clock, and the seed only breaks ties;
//! - a partition is part of at most one action at a time, and at most [`SPLITS_MAX`] splits, [`MERGES_MAX`] merges,
//!   [`TRANSFERS_MAX`] transfers and [`REPLICA_MOVES_MAX`] moves of replicas are in progress;
//! - a table is split by load no faster than its budget allows (`max(2, 5 %)` a minute, and two more for each split
//!   that proved useful), a descent no faster than its backoff;
//! - a report costs a look-up and a few additions; a tick costs time for hot and large partitions, for each node, and
//!   for a fixed part of all partitions ([`ROUND_S`]).

mod ahead;
mod heat;
mod index;
mod moves;
mod orders;
mod past;
mod places;
mod rounds;
mod show;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::action::{Action, ActionId, SplitOutcome};
use crate::facts::{NodeFacts, NodeId, PartitionFacts, PartitionId, TableFacts, TableId};
use crate::rotation::Rotation;
use crate::tokens::Tokens;
use crate::verdict::Verdict;
use crate::window::{HOT_PRESSURE, PartitionReport};
use ahead::Ahead;
use heat::Heat;
use orders::{Order, Watch};
use past::Past;
use places::{HAS_PAST, HOT, LARGE, NONE, Places, WATCHED};

pub use show::{HotPartition, NodeUse, Totals};

/// Maximum concurrent splits, in all.
pub const SPLITS_MAX: usize = 64;
/// Maximum concurrent merges, in all; one per table.
pub const MERGES_MAX: usize = 16;
/// Maximum concurrent transfers of leaders, in all.
pub const TRANSFERS_MAX: usize = 64;
/// Maximum concurrent moves of replicas, in all; their bytes have a budget, too.
pub const REPLICA_MOVES_MAX: usize = 8;
/// Interval in seconds in which all partitions are examined for merges once: candidates are at least ten minutes old
/// anyway.
pub const ROUND_S: u64 = 600;
/// Number of partitions that are looked up at a time.
const LOOK_UP: usize = 16;
/// Maximum outcomes of splits that are kept until they are fetched.
const OUTCOMES_MAX: usize = 4096;

/// The detector, as the scheduler calls it: it classifies the load of hot partitions.
pub trait Judge {
    /// The current verdict; `None` when there are too few samples. Called every few seconds for partitions that are hot
    /// for 8 of 10 seconds, or too large.
    fn judge(&mut self, partition: PartitionId, now_ms: u64) -> Option<Verdict>;

    /// Drops the detector's state of a partition, because a verdict on it proved wrong (a split in vain).
    fn forget(&mut self, _partition: PartitionId) {}
}

impl<F: FnMut(PartitionId, u64) -> Option<Verdict>> Judge for F {
    fn judge(&mut self, partition: PartitionId, now_ms: u64) -> Option<Verdict> {
        self(partition, now_ms)
    }
}

/// Options of the scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Bytes per second that moves of replicas may copy, over the whole cluster.
    pub move_bytes_per_s: u64,
    /// True if leaders and replicas are moved to balance load.
    pub balance: bool,
}

impl Default for Options {
    /// 64 MiB/s: about half of a gigabit link, so that the rest serves requests.
    fn default() -> Self {
        Self { move_bytes_per_s: 64 << 20, balance: true }
    }
}

/// The scheduler's state. See the head of the file.
#[derive(Debug)]
pub struct Scheduler {
    options: Options,
    seed: u64,
    places: Places,
    heat: BTreeMap<u32, Heat>,
    large: BTreeSet<u32>,
    /// Partitions that do not serve all of their rows.
    failed: BTreeSet<PartitionId>,
    /// Tables whose load rotates over their partitions, with the time since when each does without a rest.
    rotating: BTreeMap<TableId, Option<u64>>,
    pasts: BTreeMap<u32, Past>,
    /// Times until which partitions stay apart from their left neighbours.
    pins: BTreeMap<u32, u64>,
    ahead: Ahead,
    orders: BTreeMap<ActionId, Order>,
    watches: BTreeMap<ActionId, Watch>,
    /// Watches to which a partition's work counts, each with the side (0 left, 1 right).
    watched: BTreeMap<u32, Vec<(ActionId, usize)>>,
    outcomes: VecDeque<SplitOutcome>,
    next_action: u64,
    move_tokens: Tokens,
    /// Position of the walk over all partitions; `search`: of the search for replicas to move.
    cursor: usize,
    search: usize,
    round_ms: Option<u64>,
    balanced_ms: Option<u64>,
    mean_used: f64,
    totals: Totals,
}

impl Scheduler {
    /// A scheduler without any facts.
    pub fn new(options: Options, seed: u64) -> Self {
        Self {
            options,
            seed,
            places: Places::default(),
            heat: BTreeMap::new(),
            large: BTreeSet::new(),
            failed: BTreeSet::new(),
            rotating: BTreeMap::new(),
            pasts: BTreeMap::new(),
            pins: BTreeMap::new(),
            ahead: Ahead::default(),
            orders: BTreeMap::new(),
            watches: BTreeMap::new(),
            watched: BTreeMap::new(),
            outcomes: VecDeque::new(),
            next_action: 1,
            move_tokens: Tokens::default(),
            cursor: 0,
            search: 0,
            round_ms: None,
            balanced_ms: None,
            mean_used: 0.0,
            totals: Totals::default(),
        }
    }

    /// Adds a table, or changes its options.
    pub fn set_table(&mut self, table: TableId, facts: TableFacts) {
        self.places.set_table(table, facts);
        // With a smaller split size more partitions are large.
        for slot in self.places.slots_of(table) {
            self.note_size(slot);
        }
    }

    /// Removes a table and its partitions.
    pub fn drop_table(&mut self, table: TableId) {
        for slot in self.places.slots_of(table) {
            self.forget(slot);
        }
        self.places.drop_table(table);
        self.rotating.remove(&table);
    }

    /// Adds a node, or changes its facts. At most 65,535 nodes.
    pub fn set_node(&mut self, node: NodeId, facts: NodeFacts) {
        if let Some(index) = self.places.know_node(node) {
            self.places.node_mut(index).facts = facts;
        }
    }

    /// Sets the partitions of a table, in key order. Known ones keep their load and history; those not named are
    /// removed. Calls for unknown tables are ignored.
    pub fn set_partitions(&mut self, table: TableId, partitions: &[PartitionFacts]) {
        if self.places.table(table).is_none() {
            return;
        }
        let previous = self.places.slots_of(table);
        let mut slots = Vec::with_capacity(partitions.len());
        let mut left_slot = NONE;
        for facts in partitions {
            // Numbers are never reused; a partition known under another table no longer belongs to that table.
            let existing = self.places.slot(facts.id);
            let foreign = existing.filter(|slot| self.places.table_of(*slot).id != table);
            if let Some(foreign) = foreign {
                self.forget(foreign);
            }
            let existing = existing.filter(|_| foreign.is_none());
            let slot = if let Some(slot) = existing {
                self.places.set_voters(slot, &facts.voters);
                self.places.part_mut(slot).key_epoch = facts.key_epoch;
                slot
            } else {
                self.places.insert(table, left_slot, facts)
            };
            if facts.pinned_until_ms > 0 {
                self.pins.insert(slot, facts.pinned_until_ms);
            } else {
                self.pins.remove(&slot);
            }
            slots.push(slot);
            left_slot = slot;
        }
        let remaining: BTreeSet<u32> = slots.iter().copied().collect();
        for dropped in previous.into_iter().filter(|slot| !remaining.contains(slot)) {
            self.forget(dropped);
        }
        self.places.relink(table, &slots);
    }

    /// Sets the nodes of a partition's replicas, after a change that was not proposed here.
    pub fn set_voters(&mut self, partition: PartitionId, voters: &[NodeId]) {
        if let Some(slot) = self.places.slot(partition) {
            self.places.set_voters(slot, voters);
        }
    }

    /// Replaces the set of partitions that do not serve all of their rows. They are neither split nor merged, nor is
    /// another partition merged with them.
    pub fn set_failed(&mut self, failed: BTreeSet<PartitionId>) {
        self.failed = failed;
    }

    /// Sets if the load of a table rotates over its partitions. While it does, no partition is split by load: whichever
    /// is hot now is cold in a moment. If the table's remedy is automatic, its new rows are placed by hash after a while.
    pub fn set_rotating(&mut self, table: TableId, rotation: Option<Rotation>) {
        match rotation {
            Some(_) if self.places.table(table).is_some() => {
                self.rotating.entry(table).or_default();
            }
            Some(_) | None => {
                self.rotating.remove(&table);
            }
        }
    }

    /// Processes a leader's report. Reports on unknown partitions, late ones and repeated ones are ignored.
    pub fn observe(&mut self, now_ms: u64, node: NodeId, report: &PartitionReport) {
        if let Some(slot) = self.places.slot(report.partition) {
            self.observe_at(now_ms, node, slot, report);
        }
    }

    /// Processes a node's reports on many partitions: equivalent to one after the other, but partitions are looked up
    /// several at a time, so that a processor fetches several of them from memory at once.
    pub fn observe_all(&mut self, now_ms: u64, node: NodeId, reports: &[PartitionReport]) {
        for chunk in reports.chunks(LOOK_UP) {
            let mut slots = [NONE; LOOK_UP];
            for (slot, report) in slots.iter_mut().zip(chunk) {
                *slot = self.places.slot(report.partition).unwrap_or(NONE);
            }
            for (slot, report) in slots.iter().zip(chunk).filter(|(slot, _)| **slot != NONE) {
                self.observe_at(now_ms, node, *slot, report);
            }
        }
    }

    fn observe_at(&mut self, now_ms: u64, node: NodeId, slot: u32, report: &PartitionReport) {
        let Some(span) = self.places.change_window(slot, |window| window.accept(now_ms, report))
        else {
            return;
        };
        let leader = self.places.part(slot).leader;
        if self.places.node_id(leader) != Some(node) {
            let Some(index) = self.places.know_node(node) else { return };
            self.places.set_leader(slot, index);
        }
        let part = self.places.part(slot);
        let flags = part.flags;
        if flags & HOT == 0
            && (part.window.busy_10() >= heat::ENGAGE_RHO || part.window.pressure() >= HOT_PRESSURE)
        {
            self.engage(slot, now_ms);
        }
        if flags & WATCHED != 0 {
            self.count_work(slot, span.work_s);
        }
        self.note_size(slot);
    }

    /// Decides on actions now. Meant to be called about once a second; the returned actions are in progress until
    /// [`Scheduler::done`] or [`Scheduler::failed`] is called, or until they expire.
    pub fn tick(&mut self, now_ms: u64, judge: &mut dyn Judge) -> Vec<Action> {
        let mut actions = Vec::new();
        self.expire_orders(now_ms);
        self.judge_splits(now_ms, judge);
        self.cool_and_judge(now_ms, judge);
        self.measure_nodes(now_ms);
        self.split_hot(now_ms, &mut actions);
        self.split_ahead(now_ms, &mut actions);
        self.split_large(now_ms, &mut actions);
        self.rekey(now_ms, &mut actions);
        self.walk(now_ms, &mut actions);
        if self.options.balance {
            self.balance(now_ms, &mut actions);
            self.place_ahead(now_ms, &mut actions);
        }
        actions
    }

    /// Adds a partition to the list of large ones if it is large.
    fn note_size(&mut self, slot: u32) {
        let part = self.places.part(slot);
        let limit = part.cut_at_bytes(&self.places.table_of(slot).facts);
        if part.window.size_bytes() >= limit && !part.is(LARGE) {
            self.places.part_mut(slot).flags |= LARGE;
            self.large.insert(slot);
        }
    }

    /// The history of a partition, for changes; created if there is none.
    fn past_mut(&mut self, slot: u32) -> &mut Past {
        self.places.part_mut(slot).flags |= HAS_PAST;
        self.pasts.entry(slot).or_default()
    }

    /// The history of a partition, if there is one.
    fn past(&self, slot: u32) -> Option<&Past> {
        if self.places.part(slot).is(HAS_PAST) { self.pasts.get(&slot) } else { None }
    }

    /// Removes a partition.
    fn forget(&mut self, slot: u32) {
        self.heat.remove(&slot);
        self.large.remove(&slot);
        self.pasts.remove(&slot);
        self.pins.remove(&slot);
        self.ahead.forget(slot);
        self.watched.remove(&slot);
        self.places.remove(slot);
    }

    fn new_action(&mut self) -> ActionId {
        let id = ActionId(self.next_action);
        self.next_action += 1;
        id
    }
}
