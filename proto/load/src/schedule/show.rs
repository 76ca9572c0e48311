//! What the scheduler knows, to be shown: rates, verdicts, nodes' loads, what came of splits.
//!
//! Invariants: reading changes nothing, but for [`Scheduler::take_outcomes`], which hands out each outcome once.

use std::collections::BTreeMap;

use super::Scheduler;
use crate::action::{Action, SplitOutcome, SplitWhy};
use crate::facts::{NodeId, PartitionId, TableId};
use crate::shape::Shape;
use crate::split::NoSplit;
use crate::verdict::Verdict;
use crate::window::Rates;

/// Counts since the scheduler began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Actions proposed.
    pub proposed: u64,
    /// Those that failed or were given up.
    pub failed: u64,
    /// Splits done, by why.
    pub splits: BTreeMap<SplitWhy, u64>,
    /// Splits by load that divided it ...
    pub useful: u64,
    /// ... and that did not.
    pub in_vain: u64,
    /// Merges done.
    pub merges: u64,
    /// Leaders transferred.
    pub transfers: u64,
    /// Replicas moved.
    pub replica_moves: u64,
    /// Tables re-keyed.
    pub rekeys: u64,
}

/// A hot partition.
#[derive(Clone, Debug, PartialEq)]
pub struct HotPartition {
    /// Which.
    pub partition: PartitionId,
    /// Its table.
    pub table: TableId,
    /// Since when it has been hot, milliseconds.
    pub since_ms: u64,
    /// What the detector says.
    pub verdict: Option<Verdict>,
    /// Since when it has said so, milliseconds.
    pub verdict_since_ms: u64,
    /// Why it is not being cut.
    pub refused: Option<NoSplit>,
    /// Until when its descent rests after splits in vain or failed, milliseconds; 0 for not at all.
    pub resting_until_ms: u64,
    /// Splits in vain in a row, in its descent.
    pub in_vain: u8,
    /// Its rates.
    pub rates: Rates,
}

/// What a node bears.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeUse {
    /// Which.
    pub node: NodeId,
    /// Cores, as measured.
    pub load: f64,
    /// Cores, with what orders under way will bring or take.
    pub expected: f64,
    /// Cores that it has.
    pub capacity: f64,
    /// Partitions that it leads.
    pub leads: usize,
    /// Since when it has borne more than its part, milliseconds.
    pub busy_since_ms: Option<u64>,
}

impl Scheduler {
    /// A partition's rates.
    pub fn rates(&self, partition: PartitionId, now_ms: u64) -> Option<Rates> {
        self.places.slot(partition).map(|slot| self.places.part(slot).window.rates(now_ms))
    }

    /// The node that leads a partition, as far as known.
    pub fn leader(&self, partition: PartitionId) -> Option<NodeId> {
        self.places
            .slot(partition)
            .and_then(|slot| self.places.node_id(self.places.part(slot).leader))
    }

    /// A table's partitions in key order, with their load: cores of the leader, half-life of 60 s.
    pub fn table_loads(&self, table: TableId) -> Vec<(PartitionId, f64)> {
        let slots = self.places.slots_of(table).into_iter();
        slots.map(|slot| self.places.part(slot)).map(|part| (part.id, part.lead_load())).collect()
    }

    /// The shape of a table's load over its partitions.
    pub fn table_shape(&self, table: TableId) -> Shape {
        Shape::of(self.table_loads(table).into_iter().map(|(_, load)| load))
    }

    /// The nodes, in the order they became known.
    pub fn node_use(&self) -> Vec<NodeUse> {
        let of = |node: &super::places::NodeState| NodeUse {
            node: node.id,
            load: node.measured(),
            expected: node.load(),
            capacity: node.facts.capacity,
            leads: node.leads.len(),
            busy_since_ms: node.busy_since_ms,
        };
        self.places.nodes.iter().map(of).collect()
    }

    /// The hot partitions, with what is said of them. Keys of these are worth sampling.
    pub fn hot(&self, now_ms: u64) -> Vec<HotPartition> {
        let of = |(slot, heat): (&u32, &super::heat::Heat)| {
            let part = self.places.part(*slot);
            let past = self.past(*slot);
            HotPartition {
                partition: part.id,
                table: self.places.table_of(*slot).id,
                since_ms: heat.since_ms,
                verdict: heat.verdict.clone(),
                verdict_since_ms: heat.verdict_since_ms,
                refused: heat.refused,
                resting_until_ms: past.map_or(0, |past| past.split_ready_ms),
                in_vain: past.map_or(0, |past| past.in_vain),
                rates: part.window.rates(now_ms),
            }
        };
        self.heat.iter().map(of).collect()
    }

    /// Whether a partition is on the list of hot ones.
    pub fn is_hot(&self, partition: PartitionId) -> bool {
        self.places.slot(partition).is_some_and(|slot| self.heat.contains_key(&slot))
    }

    /// Actions under way.
    pub fn under_way_actions(&self) -> Vec<Action> {
        self.orders.iter().map(|(id, order)| Action { id: *id, step: order.step.clone() }).collect()
    }

    /// What came of splits since this was asked last.
    pub fn take_outcomes(&mut self) -> Vec<SplitOutcome> {
        self.outcomes.drain(..).collect()
    }

    /// Counts.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Bytes kept for what grows with the number of partitions. What is kept of hot and of changed ones comes on top.
    pub fn memory_bytes(&self) -> usize {
        self.places.memory_bytes()
    }
}
