//! Simulated logs of partitions, which decide splits, freezes and absorptions for nodes that only record orders. A
//! group applies an order at once; its replicas catch up when their node does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use partita_proto::error::Error;
use partita_proto::id::{Epoch, NodeId, PartitionId};
use partita_proto::range::{Bound, TypedRange};
use partita_proto::reshape::{Absorb, Freeze, Reshape, Reshaped, Split};

use super::nodes::Held;

/// Distance between the indexes of two entries, as if others were in between.
const STRIDE: u64 = 10;

/// The group of one partition.
#[derive(Clone, Debug)]
pub(super) struct FakeGroup {
    pub(super) epoch: Epoch,
    pub(super) range: TypedRange,
    pub(super) frozen: bool,
    /// Effects so far, in order.
    pub(super) log: Vec<(Reshape, Reshaped)>,
}

impl FakeGroup {
    pub(super) fn new(epoch: Epoch, range: TypedRange) -> Self {
        Self { epoch, range, frozen: false, log: Vec::new() }
    }
}

/// The groups of all fake nodes.
#[derive(Debug, Default)]
pub(super) struct FakeGroups {
    pub(super) groups: BTreeMap<PartitionId, FakeGroup>,
    /// Leader of each group, which tests set instead of an election.
    pub(super) leaders: BTreeMap<PartitionId, NodeId>,
    /// Voters of the groups whose members were changed.
    pub(super) voters: BTreeMap<PartitionId, BTreeSet<NodeId>>,
    /// Middle keys of the partitions that have one.
    pub(super) middles: BTreeMap<PartitionId, Bound>,
}

impl FakeGroups {
    /// Carries out an order at the group's leader; refuses it as a real group would.
    pub(super) fn reshape(
        &mut self,
        order: &Reshape,
        held: &Held,
        leader: NodeId,
    ) -> Result<Reshaped, Error> {
        let partition = order.partition();
        let missing = || Error::NotFound { kind: "partition", name: partition.to_string() };
        let group = self.groups.get(&partition).ok_or_else(missing)?;
        if let Some((_, before)) = group.log.iter().find(|(before, _)| before == order) {
            return Ok(*before);
        }
        let (requested, current) = (order.epoch(), group.epoch);
        if requested != current {
            return Err(Error::StaleRoute { partition, requested, current });
        }
        let mut group = group.clone();
        let refuse = |why: &str| Err(Error::InvalidInput(why.to_owned()));
        match order {
            Reshape::Split(Split { at, child, replicas, leader: named, .. }) => {
                let members: Vec<_> = held.spec.members.values().collect();
                if members.len() != replicas.len()
                    || !members.iter().all(|at| replicas.contains_key(at))
                {
                    return refuse("the group has other members");
                }
                if *at == group.range.start || *at == group.range.end {
                    return refuse("the cut does not lie inside the range");
                }
                let right = TypedRange { start: at.clone(), end: group.range.end.clone() };
                group.range.end = at.clone();
                let born = FakeGroup::new(current.next(), right);
                assert!(self.groups.insert(*child, born).is_none(), "born twice: {order:?}");
                self.leaders.insert(*child, named.unwrap_or(leader));
            }
            Reshape::Freeze(Freeze { on, .. }) => group.frozen = *on,
            Reshape::Absorb(Absorb { right, frozen, end, .. }) => {
                let right = self.groups.get(right).ok_or_else(missing)?;
                assert!(right.frozen, "what is in use is taken over: {order:?}");
                assert_eq!(right.log.last().map(|(_, at)| at.index), Some(*frozen));
                assert_eq!((&right.range.start, &right.range.end), (&group.range.end, end));
                group.range.end = end.clone();
            }
        }
        group.epoch = current.next();
        let index = (group.log.len() as u64 + 1) * STRIDE;
        let reshaped = Reshaped { index, stall: Duration::from_millis(7) };
        group.log.push((order.clone(), reshaped));
        self.groups.insert(partition, group);
        Ok(reshaped)
    }

    /// Brings a node's replicas to the state of their groups.
    pub(super) fn catch_up(&self, node: NodeId, all: &mut BTreeMap<PartitionId, Held>) {
        let ids: Vec<PartitionId> = all.keys().copied().collect();
        for id in ids {
            while let Some((order, at)) = self.next(all, id) {
                self.apply(node, all, id, &order, at);
            }
        }
    }

    fn next(
        &self,
        all: &BTreeMap<PartitionId, Held>,
        id: PartitionId,
    ) -> Option<(Reshape, Reshaped)> {
        let held = all.get(&id).filter(|held| held.failure.is_none())?;
        self.groups.get(&id)?.log.get(held.applied).cloned()
    }

    fn apply(
        &self,
        node: NodeId,
        all: &mut BTreeMap<PartitionId, Held>,
        id: PartitionId,
        order: &Reshape,
        at: Reshaped,
    ) {
        let Some(mut held) = all.get(&id).cloned() else { return };
        match order {
            Reshape::Split(Split { at, child, replicas, epoch, .. }) => {
                // A replica that joined or left the group after the order has no part in the split.
                if let Some(replica) = replicas.get(&node) {
                    let mut born = held.clone();
                    born.applied = 0;
                    born.spec.partition = *child;
                    born.spec.replica = *replica;
                    born.spec.epoch = epoch.next();
                    born.spec.members =
                        replicas.iter().map(|(node, replica)| (*replica, *node)).collect();
                    born.spec.range.start = at.clone();
                    all.entry(*child).or_insert(born);
                }
                held.spec.range.end = at.clone();
            }
            Reshape::Freeze(_) => {}
            Reshape::Absorb(Absorb { right, frozen, end, .. }) => {
                let there = all.get(right).is_some_and(|right| right.flushed >= *frozen);
                if !there {
                    held.failure = Some(format!("partition {right} is not here"));
                    all.insert(id, held);
                    return;
                }
                held.spec.range.end = end.clone();
            }
        }
        held.spec.epoch = order.epoch().next();
        held.applied += 1;
        held.flushed = at.index;
        all.insert(id, held);
    }
}
