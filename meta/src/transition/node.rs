//! Commands on nodes and on the placement of replicas.
//!
//! A partition's replicas change in three entries: one sets the target, one records that the new replicas were
//! created, and one that the target is reached. From the second one on, the group may have either set; after an entry
//! that replaces the target, it may have any of them, and is ordered to take the last one.
//!
//! A removed node's number and identity are never used again. The log does not know whether a node is live; the
//! caller checks that before it proposes the removal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use partita_proto::error::Error;
use partita_proto::id::{NodeId, PartitionId, ReplicaId};
use partita_proto::member::Registration;
use partita_raft::planted::{self, Plant};

use super::draft::{Draft, Outcome, Reply};
use crate::catalog::{Edit, NodeRecord, PartitionRecord, State, Step, Target};

/// Maximum number of registered nodes.
const NODES_MAX: u64 = 10_000;

/// Gives a node its number, or records its new address and labels.
pub(super) fn register(state: &State, wish: &Registration) -> Result<Outcome, Error> {
    // A known directory keeps its number, and may report a new address or labels.
    if let Some(current) = state.node_of(wish.identity) {
        if wish.node.is_some_and(|node| node != current.id) {
            return Err(Error::InvalidInput(format!(
                "this data directory belongs to node {}, not to node {}",
                current.id,
                wish.node.unwrap_or_default()
            )));
        }
        if current.address == wish.address && current.labels == wish.labels {
            return Ok(Outcome::without_edits(Reply::Unchanged));
        }
        let (address, labels) = (wish.address.clone(), wish.labels.clone());
        let mut draft = Draft::new(state);
        let record = NodeRecord { address, labels, ..NodeRecord::clone(current) };
        draft.edits.push(Edit::Node(Arc::new(record)));
        return Ok(draft.done());
    }
    // A removed directory is never registered again.
    if let Some(removed) = state.removed_of(wish.identity) {
        return Err(was_removed(removed));
    }
    // A new directory gets the number that it requests, or the next one.
    let next = state.counters().node;
    let id = wish.node.unwrap_or(next);
    if id == NodeId::default() || id.0 > NODES_MAX {
        return Err(Error::InvalidInput(format!(
            "node {id}: nodes have numbers from 1 to {NODES_MAX}"
        )));
    }
    if let Some(holder) = state.node(id)
        && !planted::is(Plant::TakeOver)
    {
        return Err(Error::InvalidInput(format!(
            "node {id} is registered with another data directory, last seen at {}; a directory that lost its data \
             gets a new number",
            holder.address
        )));
    }
    if state.is_removed(id) {
        return Err(Error::InvalidInput(format!(
            "node {id} was removed and its number is not given again; omit the number or choose another"
        )));
    }
    let mut draft = Draft::new(state);
    draft.counters.node = next.max(NodeId(id.0 + 1));
    draft.edits.push(Edit::Node(Arc::new(NodeRecord {
        id,
        identity: wish.identity,
        address: wish.address.clone(),
        draining: false,
        labels: wish.labels.clone(),
        generation: None,
    })));
    Ok(draft.done())
}

/// The node that is registered with a number and an identity.
///
/// # Errors
/// [`Error::NotFound`] if there is none, [`Error::InvalidInput`] if it was removed.
pub(crate) fn registered(
    state: &State,
    node: NodeId,
    identity: u64,
) -> Result<&Arc<NodeRecord>, Error> {
    let record = state.node(node).filter(|record| record.identity == identity);
    record.ok_or_else(|| match state.removed_of(identity) {
        Some(removed) => was_removed(removed),
        None => Error::NotFound { kind: "node", name: node.to_string() },
    })
}

/// Error for a removed node.
fn was_removed(node: NodeId) -> Error {
    Error::InvalidInput(format!(
        "this data directory belongs to node {node}, which was removed from the cluster; to rejoin, start with a new data \
         directory (this one was not changed)"
    ))
}

/// Removes a node, and keeps its number and identity as removed.
pub(super) fn remove(state: &State, node: NodeId) -> Result<Outcome, Error> {
    if state.is_removed(node) {
        return Ok(Outcome::without_edits(Reply::Unchanged));
    }
    let record =
        state.node(node).ok_or_else(|| Error::NotFound { kind: "node", name: node.to_string() })?;
    // The node in meta's own process cannot be removed, nor one that the catalog still needs.
    if record.address.is_empty() {
        return Err(Error::InvalidInput(format!(
            "node {node} is the process that keeps the catalog, and cannot be removed"
        )));
    }
    let partitions: Vec<_> = state.held_by(node).map(|partition| partition.id).collect();
    if let Some(first) = partitions.first() {
        let count = partitions.len();
        let todo = if record.draining {
            "it is being drained: wait until sys.replicas shows none of them on it (each needs another node)"
                .to_owned()
        } else {
            format!("drain it first: ADMIN drain_node({node}) moves them to other nodes")
        };
        return Err(Error::InvalidInput(format!(
            "node {node} still holds {count} {} in the catalog (partition {first}{}); {todo}",
            if count == 1 { "replica" } else { "replicas" },
            if count == 1 { "" } else { " and others" },
        )));
    }
    let mut draft = Draft::new(state);
    draft.edits.push(Edit::NodeGone(node));
    draft.edits.push(Edit::Removed(node, record.identity));
    Ok(draft.done())
}

impl State {
    /// Partitions that have, or are to have, a replica on a node. Tables being dropped do not count: their replicas
    /// are not needed, and a node that is gone for good would keep the table for ever.
    pub(crate) fn held_by(&self, node: NodeId) -> impl Iterator<Item = &Arc<PartitionRecord>> {
        let stays = |partition: &&Arc<PartitionRecord>| {
            self.table(partition.table).is_some_and(|table| table.is_named())
        };
        self.partitions().filter(stays).filter(move |partition| {
            let child_nodes =
                partition.splitting().into_iter().flat_map(|split| split.replicas.values());
            partition.all_replicas().values().chain(child_nodes).any(|holder| *holder == node)
        })
    }
}

pub(super) fn drain(state: &State, node: NodeId, draining: bool) -> Result<Outcome, Error> {
    let current =
        state.node(node).ok_or_else(|| Error::NotFound { kind: "node", name: node.to_string() })?;
    if current.draining == draining {
        return Ok(Outcome::without_edits(Reply::Unchanged));
    }
    let mut draft = Draft::new(state);
    let record = NodeRecord { draining, ..NodeRecord::clone(current) };
    draft.edits.push(Edit::Node(Arc::new(record)));
    Ok(draft.done())
}

/// Sets the target of a partition's replicas. A target set earlier is replaced.
pub(super) fn start_move(
    state: &State,
    partition: PartitionId,
    add: &[NodeId],
    remove: &[ReplicaId],
    replaces: Option<Step>,
) -> Result<Outcome, Error> {
    let record = in_use(state, partition)?;
    refuse_while_reshaping(record)?;
    // The group may be anywhere between the two sets, and may have removed for good what another target would keep.
    // Only a caller that knows that the change cannot succeed replaces it.
    if record.target.as_ref().map(|target| target.step) != replaces {
        return Err(Error::Unavailable(format!(
            "the replicas of partition {partition} are being moved; try again afterwards"
        )));
    }
    let mut draft = Draft::new(state);
    let replicas = wanted_replicas(&mut draft, record, add, remove)?;
    if replicas == record.replicas && record.target.is_none() {
        return Ok(Outcome::without_edits(Reply::Unchanged));
    }
    let created = record.target.iter().flat_map(|target| &target.created).copied();
    let created = created.filter(|replica| replicas.contains_key(replica)).collect();
    let target = Some(Target { replicas, step: draft.step(), created });
    let record = PartitionRecord { target, ..PartitionRecord::clone(record) };
    draft.edits.push(Edit::Partition(Arc::new(record)));
    Ok(draft.done())
}

/// The replicas that a partition has after additions and removals.
pub(super) fn wanted_replicas(
    draft: &mut Draft<'_>,
    record: &PartitionRecord,
    add: &[NodeId],
    remove: &[ReplicaId],
) -> Result<BTreeMap<ReplicaId, NodeId>, Error> {
    let partition = record.id;
    let unknown: Vec<_> = remove.iter().filter(|id| !record.replicas.contains_key(id)).collect();
    if let Some(unknown) = unknown.first() {
        return Err(Error::InvalidInput(format!("partition {partition} has no replica {unknown}")));
    }
    let mut replicas: BTreeMap<ReplicaId, NodeId> = record
        .replicas
        .iter()
        .filter(|(replica, _)| !remove.contains(replica))
        .map(|(replica, node)| (*replica, *node))
        .collect();
    for node in add {
        if draft.state.node(*node).is_none() {
            return Err(Error::NotFound { kind: "node", name: node.to_string() });
        }
        if replicas.values().any(|holder| holder == node) {
            return Err(Error::InvalidInput(format!(
                "partition {partition} already has a replica on node {node}"
            )));
        }
        // A new replica of the earlier target on this node is used again: it may exist already.
        let earlier = record.target.iter().flat_map(|target| &target.replicas);
        let mut half =
            earlier.filter(|(id, holder)| *holder == node && !record.replicas.contains_key(id));
        let replica = half.next().map(|(id, _)| *id).unwrap_or_else(|| draft.new_replica());
        replicas.insert(replica, *node);
    }
    if replicas.is_empty() {
        return Err(Error::InvalidInput(format!("partition {partition} would have no replica")));
    }
    Ok(replicas)
}

/// A partition whose target was set by a step, and the target.
fn moving_at(
    state: &State,
    partition: PartitionId,
    step: Step,
) -> Option<(&Arc<PartitionRecord>, &Target)> {
    let record = state.partition(partition)?;
    let target = record.target.as_ref().filter(|target| target.step == step)?;
    Some((record, target))
}

/// Records that all new replicas of a target were created.
pub(super) fn note_created(state: &State, partition: PartitionId, step: Step) -> Outcome {
    let unchanged = Outcome::without_edits(Reply::Unchanged);
    let Some((record, target)) = moving_at(state, partition, step) else { return unchanged };
    let created: BTreeSet<ReplicaId> =
        record.new_replicas(target).map(|(replica, _)| replica).collect();
    if created == target.created {
        return unchanged;
    }
    let mut draft = Draft::new(state);
    let target = Some(Target { created, ..target.clone() });
    let record = PartitionRecord { target, ..PartitionRecord::clone(record) };
    draft.edits.push(Edit::Partition(Arc::new(record)));
    draft.done()
}

/// Gives new numbers to new replicas of a target that were lost after they had been created.
pub(super) fn renumber(
    state: &State,
    partition: PartitionId,
    step: Step,
    replicas: &[ReplicaId],
) -> Outcome {
    let mut draft = Draft::new(state);
    if let Some((record, _)) = moving_at(state, partition, step) {
        draft.renumber(record, |replica, _| replicas.contains(&replica));
    }
    if draft.edits.is_empty() {
        return Outcome::without_edits(Reply::Unchanged);
    }
    draft.done()
}

impl Draft<'_> {
    /// Gives new numbers to those of a partition's new replicas that are lost.
    pub(super) fn renumber(
        &mut self,
        record: &PartitionRecord,
        is_lost: impl Fn(ReplicaId, NodeId) -> bool,
    ) {
        let Some(target) = &record.target else { return };
        let lost: BTreeSet<ReplicaId> = record
            .new_replicas(target)
            .filter(|(replica, node)| is_lost(*replica, *node))
            .map(|(replica, _)| replica)
            .collect();
        if lost.is_empty() {
            return;
        }
        let renumbered = target.replicas.iter().map(|(replica, node)| {
            (if lost.contains(replica) { self.new_replica() } else { *replica }, *node)
        });
        let replicas = renumbered.collect();
        let created = target.created.difference(&lost).copied().collect();
        let target = Some(Target { replicas, step: self.step(), created });
        let record = PartitionRecord { target, ..record.clone() };
        self.edits.push(Edit::Partition(Arc::new(record)));
    }
}

pub(super) fn end_move(state: &State, partition: PartitionId, step: Step) -> Outcome {
    let Some((record, target)) = moving_at(state, partition, step) else {
        return Outcome::without_edits(Reply::Unchanged);
    };
    let mut draft = Draft::new(state);
    let replicas = target.replicas.clone();
    let record = PartitionRecord { replicas, target: None, ..PartitionRecord::clone(record) };
    draft.edits.push(Edit::Partition(Arc::new(record)));
    draft.done()
}

/// A partition's replicas stay unchanged while it is split or merged.
fn refuse_while_reshaping(record: &PartitionRecord) -> Result<(), Error> {
    match &record.reshaping {
        None => Ok(()),
        Some(change) => Err(Error::Unavailable(format!(
            "partition {} is {}; its replicas can be changed afterwards",
            record.id,
            change.describe()
        ))),
    }
}

/// A partition of a visible table.
pub(super) fn in_use(
    state: &State,
    partition: PartitionId,
) -> Result<&Arc<PartitionRecord>, Error> {
    let record = state.partition(partition);
    record
        .filter(|record| state.table(record.table).is_some_and(|table| table.is_visible()))
        .ok_or_else(|| Error::NotFound { kind: "partition", name: partition.to_string() })
}
