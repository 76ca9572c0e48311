//! Orders to nodes as a pure function of the catalog, and the choice of nodes for new partitions.
//!
//! Invariants: an order may be sent any number of times; orders of one step may be sent in any order and at once;
//! orders of two steps of one table are never under way together (`ddl_driver.rs` makes sure of that).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use partita_proto::error::Error;
use partita_proto::id::{Epoch, NodeId, PartitionId, ReplicaId};
use partita_proto::schema::TableSchema;
use partita_proto::service::{PartitionSpec, RequestId};

use crate::catalog::{PartitionRecord, Phase, State, TableRecord, Target, Work};
use crate::reshape::Splitting;
use crate::zones::{Zones, zone_of};

/// Client id of meta's own requests. Frontends draw random ids of 64 bits.
const META_CLIENT: u64 = 0;

/// One order to one node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Order {
    pub(crate) partition: PartitionId,
    pub(crate) replica: ReplicaId,
    pub(crate) node: NodeId,
    /// For an order to the partition's leader, the nodes that may lead. Empty: the order is for `node`.
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) action: Action,
}

/// Content of an order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Create or open the replica.
    Open(Box<PartitionSpec>),
    /// Remove the replica.
    Drop,
    /// Take this schema through the partition's log.
    Alter(Arc<TableSchema>),
    /// Remove all rows through the partition's log.
    Truncate(RequestId),
    /// Make these replicas the voters.
    Reconfigure(BTreeMap<ReplicaId, NodeId>),
    /// Transfer leadership to a node.
    Transfer(NodeId),
    /// Advance from this epoch to the next, without freezing.
    Fence(Epoch),
}

/// Orders of a table's present step; none if it is ready.
pub(crate) fn orders(state: &State, table: &TableRecord) -> Vec<Order> {
    let partitions = state.partitions_of(table);
    match &table.phase {
        Phase::Ready => Vec::new(),
        Phase::Creating => {
            let schema = ordered_schema(&table.schema, table.ordered_ttl);
            let open = |partition: &PartitionRecord, replica| {
                Action::Open(Box::new(spec(table, &schema, partition, replica)))
            };
            partitions.flat_map(|partition| to_replicas(partition, open)).collect()
        }
        Phase::Dropping => {
            let affected = partitions.map(Arc::as_ref).chain(state.leaving(table.id));
            affected
                .flat_map(|partition| {
                    let drops = to_replicas(partition, |_, _| Action::Drop);
                    drops.into_iter().chain(partition.splitting().into_iter().flat_map(drop_child))
                })
                // A node that was removed from the cluster has no replicas.
                .filter(|order| !state.is_removed(order.node))
                .collect()
        }
        Phase::Altering(Work::Schema(next)) => {
            let schema = ordered_schema(next, table.ordered_ttl);
            let alter = Action::Alter(schema);
            partitions.filter_map(|partition| to_group(partition, alter.clone())).collect()
        }
        Phase::Altering(Work::Truncate) => {
            let id = RequestId { client: META_CLIENT, sequence: table.step.0 };
            let truncate = Action::Truncate(id);
            partitions.filter_map(|partition| to_group(partition, truncate.clone())).collect()
        }
        Phase::Altering(Work::Succeed) => {
            let former = table.former.and_then(|former| state.table(former));
            let partitions = former.into_iter().flat_map(|former| state.partitions_of(former));
            let fence = |partition: &Arc<PartitionRecord>| {
                to_group(partition, Action::Fence(partition.epoch))
            };
            partitions.filter_map(fence).collect()
        }
    }
}

/// Orders to remove the replicas of a split's child: some nodes may have created theirs already.
fn drop_child(split: &Splitting) -> Vec<Order> {
    let to_one = |(replica, node): (&ReplicaId, &NodeId)| Order {
        partition: split.child,
        replica: *replica,
        node: *node,
        nodes: Vec::new(),
        action: Action::Drop,
    };
    split.replicas.iter().map(to_one).collect()
}

/// An order to each replica's node.
fn to_replicas(
    partition: &PartitionRecord,
    action: impl Fn(&PartitionRecord, ReplicaId) -> Action,
) -> Vec<Order> {
    let to_one = |(replica, node): (&ReplicaId, &NodeId)| Order {
        partition: partition.id,
        replica: *replica,
        node: *node,
        nodes: Vec::new(),
        action: action(partition, *replica),
    };
    partition.all_replicas().iter().map(to_one).collect()
}

/// An order to the partition's leader.
pub(crate) fn to_group(partition: &PartitionRecord, action: Action) -> Option<Order> {
    let (replica, node) = partition.replicas.first_key_value()?;
    let nodes = partition.all_replicas().into_values().collect();
    Some(Order { partition: partition.id, replica: *replica, node: *node, nodes, action })
}

/// Replicas that a node should hold, of tables in use. Tables being created are left out: their orders are still
/// under way, and may turn out to be impossible.
pub(crate) fn partitions_of(state: &State, node: NodeId) -> Vec<PartitionSpec> {
    let mut specs = Vec::new();
    for table in state.tables().filter(|table| table.is_visible()) {
        let schema = ordered_schema(&table.schema, table.ordered_ttl);
        for partition in state.partitions_of(table) {
            let replicas = partition.replicas.iter().filter(|(_, holder)| **holder == node);
            specs.extend(replicas.map(|(replica, _)| spec(table, &schema, partition, *replica)));
        }
    }
    specs
}

fn spec(
    table: &TableRecord,
    schema: &Arc<TableSchema>,
    partition: &PartitionRecord,
    replica: ReplicaId,
) -> PartitionSpec {
    PartitionSpec {
        partition: partition.id,
        table: table.id,
        epoch: partition.epoch,
        replica,
        members: partition.replicas.clone(),
        range: partition.range.clone(),
        placement: table.placement.clone(),
        schema: Arc::clone(schema),
        join: false,
    }
}

/// Specification of a replica that joins a partition's group.
///
/// # Errors
/// [`Error::NotFound`] if the table is gone.
pub(crate) fn joining(
    state: &State,
    partition: &PartitionRecord,
    target: &Target,
    replica: ReplicaId,
) -> Result<PartitionSpec, Error> {
    let table = state.table(partition.table).filter(|table| table.is_visible());
    let table = table
        .ok_or_else(|| Error::NotFound { kind: "table", name: partition.table.to_string() })?;
    let schema = ordered_schema(&table.schema, table.ordered_ttl);
    let spec = spec(table, &schema, partition, replica);
    Ok(PartitionSpec { members: target.replicas.clone(), join: true, ..spec })
}

/// The schema as sent to nodes: with the table's effective `ttl`, because nodes do not know databases.
fn ordered_schema(schema: &Arc<TableSchema>, ttl: Option<Duration>) -> Arc<TableSchema> {
    if schema.options.ttl == ttl {
        return Arc::clone(schema);
    }
    let mut effective = TableSchema::clone(schema);
    effective.options.ttl = ttl;
    Arc::new(effective)
}

/// Number of partitions on each node that can take more, and the nodes' zones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    partitions: BTreeMap<NodeId, usize>,
    zones: Zones,
}

impl View {
    /// Counts the replicas of all tables that are not being dropped.
    pub(crate) fn new(state: &State, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let mut partitions: BTreeMap<_, _> = nodes.into_iter().map(|node| (node, 0)).collect();
        for partition in state.partitions() {
            if !state.table(partition.table).is_some_and(|table| table.is_named()) {
                continue;
            }
            for node in partition.all_replicas().values() {
                if let Some(count) = partitions.get_mut(node) {
                    *count += 1;
                }
            }
        }
        let zones = Zones::new(state.nodes().map(|node| (node.id, zone_of(&node.labels))));
        Self { partitions, zones }
    }

    /// Nodes for `count` new partitions with `replicas` replicas each: spread over as many zones as possible, and of
    /// the nodes of a zone those with the fewest partitions. With fewer nodes than replicas, every node gets one, as
    /// long as they are a majority of the wanted number.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when there are too few nodes.
    pub(crate) fn choose_many(
        mut self,
        count: usize,
        replicas: usize,
    ) -> Result<Vec<Vec<NodeId>>, Error> {
        let nodes = self.partitions.len();
        let quorum = replicas / 2 + 1;
        if nodes < quorum {
            return Err(Error::Unavailable(match nodes {
                0 => "no datanode is known to be live".to_owned(),
                _ => format!(
                    "{replicas} replicas need at least {quorum} live datanodes, but there are only {nodes}"
                ),
            }));
        }
        Ok((0..count).map(|_| self.choose(replicas)).collect())
    }

    /// The nodes for the next partition.
    fn choose(&mut self, replicas: usize) -> Vec<NodeId> {
        let mut chosen = Vec::with_capacity(replicas);
        while chosen.len() < replicas {
            let free = self.partitions.iter().filter(|(node, _)| !chosen.contains(*node));
            let best = free
                .min_by_key(|(node, count)| (self.zones.company(**node, &chosen), **count, **node));
            let Some((node, _)) = best else { break };
            let node = *node;
            *self.partitions.entry(node).or_default() += 1;
            chosen.push(node);
        }
        chosen
    }
}
