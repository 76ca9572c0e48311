//! Read access to the scheduler's state: rates, verdicts, nodes' loads, outcomes of splits.
//!
//! Invariants: reading changes nothing, except [`Scheduler::take_outcomes`], which returns each outcome once.

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
    /// Actions that failed or expired.
    pub failed: u64,
    /// Splits done, by reason.
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

/// A partition on the list of hot ones, with its verdict and the reason why it is not split.
#[derive(Clone, Debug, PartialEq)]
pub struct HotPartition {
    /// Partition id.
    pub partition: PartitionId,
    /// Table id.
    pub table: TableId,
    /// Time since when it has been hot, milliseconds.
    pub since_ms: u64,
    /// The detector's verdict.
    pub verdict: Option<Verdict>,
    /// Time since when the verdict has been of this class, milliseconds.
    pub verdict_since_ms: u64,
    /// Reason why it is not being split.
    pub refused: Option<NoSplit>,
    /// End of the descent's backoff after splits in vain or failed, milliseconds; 0 for none.
    pub resting_until_ms: u64,
    /// Consecutive splits in vain, in its descent.
    pub in_vain: u8,
    /// Rates of the partition.
    pub rates: Rates,
}

/// Load of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeUse {
    /// Node id.
    pub node: NodeId,
    /// Load in cores, as measured.
    pub load: f64,
    /// Load in cores, with the expected effect of orders in progress.
    pub expected: f64,
    /// Capacity in cores.
    pub capacity: f64,
    /// Number of partitions that the node leads.
    pub leads: usize,
    /// Time since when it has had more than its share of load, milliseconds.
    pub busy_since_ms: Option<u64>,
}

impl Scheduler {
    /// Rates of a partition.
    pub fn rates(&self, partition: PartitionId, now_ms: u64) -> Option<Rates> {
        self.places.slot(partition).map(|slot| self.places.part(slot).window.rates(now_ms))
    }

    /// The node that leads a partition, if known.
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

    /// The nodes, in the order in which they became known.
    pub fn node_use(&self) -> Vec<NodeUse> {
        let usage = |node: &super::places::NodeState| NodeUse {
            node: node.id,
            load: node.measured(),
            expected: node.load(),
            capacity: node.facts.capacity,
            leads: node.leads.len(),
            busy_since_ms: node.busy_since_ms,
        };
        self.places.nodes.iter().map(usage).collect()
    }

    /// The hot partitions, with their verdicts. Their keys are worth sampling.
    pub fn hot(&self, now_ms: u64) -> Vec<HotPartition> {
        let hot_partition = |(slot, heat): (&u32, &super::heat::Heat)| {
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
        self.heat.iter().map(hot_partition).collect()
    }

    /// True if a partition is on the list of hot ones.
    pub fn is_hot(&self, partition: PartitionId) -> bool {
        self.places.slot(partition).is_some_and(|slot| self.heat.contains_key(&slot))
    }

    /// Actions in progress.
    pub fn under_way_actions(&self) -> Vec<Action> {
        self.orders.iter().map(|(id, order)| Action { id: *id, step: order.step.clone() }).collect()
    }

    /// The outcomes of splits since the last call.
    pub fn take_outcomes(&mut self) -> Vec<SplitOutcome> {
        self.outcomes.drain(..).collect()
    }

    /// Counts of actions.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Bytes of memory that grow with the number of partitions, without the state of hot and of changed ones.
    pub fn memory_bytes(&self) -> usize {
        self.places.memory_bytes()
    }
}
