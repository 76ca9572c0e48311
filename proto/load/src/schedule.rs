//! The scheduler: holds what is known of tables, nodes, partitions and their load, and proposes splits, merges, moves
//! and remedies. The rules themselves stand in `split.rs`, `merge.rs`, `balance.rs` and `feedback.rs`.
//!
//! ```text
//!   set_table, set_node, set_partitions ──▶ ┌──────────┐
//!   observe(report) ───────────────────────▶ │          │ ──▶ tick(now, judge) ──▶ actions ──▶ the owner
//!   done / failed (action) ────────────────▶ └──────────┘           ▲                            │
//!        ▲                                        judge: the detector, asked for hot partitions   │
//!        └────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The owner (meta, or a virtual cluster) records an action, carries it out, and says how it ended. What it learns
//! otherwise (a table altered, a partition cut by hand, a node gone) it tells as facts.
//!
//! Invariants:
//! - deterministic: the same calls give the same actions; no clock, and the seed is used to break ties only;
//! - a partition is part of at most one action at a time, and no more than [`SPLITS_MAX`] splits, [`MERGES_MAX`] merges,
//!   [`TRANSFERS_MAX`] transfers and [`REPLICA_MOVES_MAX`] moves of replicas are under way;
//! - a table is cut by load no faster than its budget allows (`max(2, 5 %)` a minute, and two more for each split that
//!   proved useful), a descent no faster than its back-off;
//! - a report costs a look-up and a few additions; a tick costs what is hot, what is large, the number of nodes, and a
//!   fixed part of all partitions ([`ROUND_S`]).

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
use crate::tokens::Tokens;
use crate::verdict::Verdict;
use crate::window::{HOT_PRESSURE, PartitionReport};
use heat::Heat;
use orders::{Order, Watch};
use past::Past;
use places::{HAS_PAST, HOT, LARGE, NONE, Places, WATCHED};

pub use show::{HotPartition, NodeUse, Totals};

/// Splits under way at once, in all.
pub const SPLITS_MAX: usize = 64;
/// Merges under way at once, in all; one per table.
pub const MERGES_MAX: usize = 16;
/// Transfers of leaders under way at once, in all.
pub const TRANSFERS_MAX: usize = 64;
/// Moves of replicas under way at once, in all; their bytes are budgeted, too.
pub const REPLICA_MOVES_MAX: usize = 8;
/// All partitions are looked at for merges once in so many seconds: one of them is at least ten minutes old anyway.
pub const ROUND_S: u64 = 600;
/// Partitions that are looked up at a time.
const LOOK_UP: usize = 16;
/// Outcomes of splits that are kept until they are fetched.
const OUTCOMES_MAX: usize = 4096;

/// Who knows the class of a hot partition's load.
pub trait Judge {
    /// What the detector says now; nothing when it has not seen enough. Asked every few seconds for partitions that
    /// are hot for 8 of 10 seconds, or too large.
    fn judge(&mut self, partition: PartitionId, now_ms: u64) -> Option<Verdict>;

    /// What was said of the partition proved wrong (a split in vain): nothing of it may be relied on any more.
    fn forget(&mut self, _partition: PartitionId) {}
}

impl<F: FnMut(PartitionId, u64) -> Option<Verdict>> Judge for F {
    fn judge(&mut self, partition: PartitionId, now_ms: u64) -> Option<Verdict> {
        self(partition, now_ms)
    }
}

/// What may be chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Bytes a second that moves of replicas may copy, over the whole cluster.
    pub move_bytes_per_s: u64,
    /// Whether leaders and replicas are moved at all.
    pub balance: bool,
}

impl Default for Options {
    /// 64 MiB/s: about half of a gigabit, so that serving goes on.
    fn default() -> Self {
        Self { move_bytes_per_s: 64 << 20, balance: true }
    }
}

/// See the head of the file.
#[derive(Debug)]
pub struct Scheduler {
    options: Options,
    seed: u64,
    places: Places,
    heat: BTreeMap<u32, Heat>,
    large: BTreeSet<u32>,
    /// Partitions that do not serve all that they should.
    failed: BTreeSet<PartitionId>,
    pasts: BTreeMap<u32, Past>,
    orders: BTreeMap<ActionId, Order>,
    watches: BTreeMap<ActionId, Watch>,
    /// Which watches a partition's work counts for, and on which side (0 left, 1 right).
    watched: BTreeMap<u32, Vec<(ActionId, usize)>>,
    outcomes: VecDeque<SplitOutcome>,
    next_action: u64,
    move_tokens: Tokens,
    /// Where the walk over all partitions stands, and the search for replicas to move.
    cursor: usize,
    search: usize,
    round_ms: Option<u64>,
    balanced_ms: Option<u64>,
    mean_used: f64,
    totals: Totals,
}

impl Scheduler {
    /// A scheduler that knows nothing yet.
    pub fn new(options: Options, seed: u64) -> Self {
        Self {
            options,
            seed,
            places: Places::default(),
            heat: BTreeMap::new(),
            large: BTreeSet::new(),
            failed: BTreeSet::new(),
            pasts: BTreeMap::new(),
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

    /// Makes a table known, or changes its options.
    pub fn set_table(&mut self, table: TableId, facts: TableFacts) {
        self.places.set_table(table, facts);
        // A smaller size to split at makes partitions large that were not.
        for slot in self.places.slots_of(table) {
            self.note_size(slot);
        }
    }

    /// Forgets a table and its partitions.
    pub fn drop_table(&mut self, table: TableId) {
        for slot in self.places.slots_of(table) {
            self.forget(slot);
        }
        self.places.drop_table(table);
    }

    /// Makes a node known, or changes what is known of it. At most 65,535 nodes are.
    pub fn set_node(&mut self, node: NodeId, facts: NodeFacts) {
        if let Some(at) = self.places.know_node(node) {
            self.places.node_mut(at).facts = facts;
        }
    }

    /// Says what partitions a table has, in key order. Load and memory of those known before are kept; those not named
    /// are forgotten. Unknown tables are left alone.
    pub fn set_partitions(&mut self, table: TableId, partitions: &[PartitionFacts]) {
        if self.places.table(table).is_none() {
            return;
        }
        let before = self.places.slots_of(table);
        let mut slots = Vec::with_capacity(partitions.len());
        let mut left = NONE;
        for facts in partitions {
            // Numbers are never used again; one that another table had is no longer that table's.
            let known = self.places.slot(facts.id);
            let foreign = known.filter(|slot| self.places.table_of(*slot).id != table);
            if let Some(foreign) = foreign {
                self.forget(foreign);
            }
            let known = known.filter(|_| foreign.is_none());
            let slot = if let Some(slot) = known {
                self.places.set_voters(slot, &facts.voters);
                self.places.part_mut(slot).key_epoch = facts.key_epoch;
                slot
            } else {
                self.places.insert(table, left, facts)
            };
            if facts.pinned_until_ms > 0 {
                let past = self.past_mut(slot);
                past.merge_ready_ms = past.merge_ready_ms.max(facts.pinned_until_ms);
            }
            slots.push(slot);
            left = slot;
        }
        let named: BTreeSet<u32> = slots.iter().copied().collect();
        for gone in before.into_iter().filter(|slot| !named.contains(slot)) {
            self.forget(gone);
        }
        self.places.relink(table, &slots);
    }

    /// Says where a partition's replicas are, after a change that was not proposed here.
    pub fn set_voters(&mut self, partition: PartitionId, voters: &[NodeId]) {
        if let Some(slot) = self.places.slot(partition) {
            self.places.set_voters(slot, voters);
        }
    }

    /// Says which partitions do not serve all that they should, in place of those named before. They are neither split
    /// nor merged, and are nobody's neighbour.
    pub fn set_failed(&mut self, failed: BTreeSet<PartitionId>) {
        self.failed = failed;
    }

    /// Takes in what a leader reports. Reports on unknown partitions, late ones and repeated ones are ignored.
    pub fn observe(&mut self, now_ms: u64, node: NodeId, report: &PartitionReport) {
        if let Some(slot) = self.places.slot(report.partition) {
            self.observe_at(now_ms, node, slot, report);
        }
    }

    /// Takes in what a node reports of many partitions: the same as one after the other, but partitions are looked up
    /// some at a time, so that a processor fetches several of them from memory at once.
    pub fn observe_all(&mut self, now_ms: u64, node: NodeId, reports: &[PartitionReport]) {
        for some in reports.chunks(LOOK_UP) {
            let mut slots = [NONE; LOOK_UP];
            for (slot, report) in slots.iter_mut().zip(some) {
                *slot = self.places.slot(report.partition).unwrap_or(NONE);
            }
            for (slot, report) in slots.iter().zip(some).filter(|(slot, _)| **slot != NONE) {
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
            let Some(at) = self.places.know_node(node) else { return };
            self.places.set_leader(slot, at);
        }
        let part = self.places.part(slot);
        let flags = part.flags;
        if flags & HOT == 0
            && (part.window.rho_10().max(part.window.reads_60()) >= heat::ENGAGE_RHO
                || part.window.pressure() >= HOT_PRESSURE)
        {
            self.engage(slot, now_ms);
        }
        if flags & WATCHED != 0 {
            self.count_work(slot, span.work_s);
        }
        self.note_size(slot);
    }

    /// Decides what is to be done now. Meant to be called about once a second; what it returns is under way until
    /// [`Scheduler::done`] or [`Scheduler::failed`] is told, or too long has passed.
    pub fn tick(&mut self, now_ms: u64, judge: &mut dyn Judge) -> Vec<Action> {
        let mut actions = Vec::new();
        self.expire_orders(now_ms);
        self.judge_splits(now_ms, judge);
        self.cool_and_judge(now_ms, judge);
        self.measure_nodes(now_ms);
        self.split_hot(now_ms, &mut actions);
        self.split_large(now_ms, &mut actions);
        self.rekey(now_ms, &mut actions);
        self.walk(now_ms, &mut actions);
        if self.options.balance {
            self.balance(now_ms, &mut actions);
        }
        actions
    }

    /// Puts a partition on the list of large ones if it is.
    fn note_size(&mut self, slot: u32) {
        let part = self.places.part(slot);
        let limit = part.cut_at_bytes(&self.places.table_of(slot).facts);
        if part.window.size_bytes() >= limit && !part.is(LARGE) {
            self.places.part_mut(slot).flags |= LARGE;
            self.large.insert(slot);
        }
    }

    /// What is remembered of a partition, to be added to.
    fn past_mut(&mut self, slot: u32) -> &mut Past {
        self.places.part_mut(slot).flags |= HAS_PAST;
        self.pasts.entry(slot).or_default()
    }

    /// What is remembered of a partition, if anything.
    fn past(&self, slot: u32) -> Option<&Past> {
        if self.places.part(slot).is(HAS_PAST) { self.pasts.get(&slot) } else { None }
    }

    /// Forgets a partition.
    fn forget(&mut self, slot: u32) {
        self.heat.remove(&slot);
        self.large.remove(&slot);
        self.pasts.remove(&slot);
        self.watched.remove(&slot);
        self.places.remove(slot);
    }

    fn new_action(&mut self) -> ActionId {
        let id = ActionId(self.next_action);
        self.next_action += 1;
        id
    }
}
