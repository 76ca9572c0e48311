//! `sys.nodes`, `sys.replicas` and `sys.metas`: the cluster as meta and the nodes report it.
//!
//! Every replica of the catalog is listed; it is `absent` if its node does not have it or does not answer. Replicas
//! that a node has beyond the catalog are listed too. A node without heartbeats shows no leaders, whatever it
//! reported last.

use std::collections::{BTreeMap, HashMap};

use arrow::record_batch::RecordBatch;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::{NodeId, PartitionId, ReplicaId};
use partita_proto::member::{Members, MetaMember};
use partita_proto::service::ReplicaStatus;

use crate::error::SqlError;
use crate::statuses::statuses;
use crate::view::ClusterView;
use crate::virtual_table::{Cell, Kind, batch, schema};

/// The columns of `sys.nodes`.
pub(crate) const NODES: &[(&str, Kind)] = &[
    ("node", Kind::Count),
    ("address", Kind::Text),
    ("live", Kind::Flag),
    ("draining", Kind::Flag),
    ("replicas", Kind::Count),
    ("leaders", Kind::Count),
    ("bytes", Kind::Count),
    ("missing_replicas", Kind::Count),
    ("labels", Kind::Text),
];

/// The columns of `sys.metas`.
pub(crate) const METAS: &[(&str, Kind)] = &[
    ("address", Kind::Text),
    ("meta", Kind::Count),
    ("answers", Kind::Flag),
    ("leads", Kind::Flag),
    ("leader", Kind::Count),
    ("term", Kind::Count),
    ("applied_index", Kind::Count),
];

/// The columns of `sys.replicas`.
pub(crate) const REPLICAS: &[(&str, Kind)] = &[
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("partition", Kind::Count),
    ("replica", Kind::Count),
    ("node", Kind::Count),
    ("role", Kind::Text),
    ("term", Kind::Count),
    ("applied_index", Kind::Count),
    ("flushed_index", Kind::Count),
    ("rows", Kind::Count),
    ("bytes", Kind::Count),
    ("memtable_bytes", Kind::Count),
    ("files", Kind::Count),
    ("failure", Kind::Text),
];

/// Rows of `sys.nodes`.
pub(crate) fn nodes(members: &Members) -> Result<RecordBatch, SqlError> {
    let row = |(node, member): (&NodeId, &partita_proto::member::Member)| {
        vec![
            node.0.into(),
            member.address.as_str().into(),
            member.live.into(),
            member.draining.into(),
            member.replicas.into(),
            // A silent node has lost its leaderships to others, which report them.
            (if member.live { member.leaders } else { 0 }).into(),
            member.bytes.into(),
            member.missing.into(),
            member.labels.to_string().into(),
        ]
    };
    batch(&schema(NODES), members.iter().map(row).collect())
}

/// Rows of `sys.metas`; the columns of a member that does not answer are NULL.
pub(crate) fn metas(members: &[MetaMember]) -> Result<RecordBatch, SqlError> {
    let row = |member: &MetaMember| {
        let standing = member.standing;
        vec![
            member.address.as_str().into(),
            Cell::Count(standing.map(|standing| standing.node.0)),
            standing.is_some().into(),
            Cell::Flag(standing.map(|standing| standing.leads)),
            Cell::Count(standing.and_then(|standing| standing.leader).map(|leader| leader.0)),
            Cell::Count(standing.map(|standing| standing.term)),
            Cell::Count(standing.map(|standing| standing.applied)),
        ]
    };
    batch(&schema(METAS), members.iter().map(row).collect())
}

/// Rows of `sys.replicas`: the replicas of the tables of a catalog.
pub(crate) async fn replicas(
    view: &ClusterView,
    catalog: &Catalog,
) -> Result<RecordBatch, SqlError> {
    let statuses = statuses(view.nodes().as_ref()).await;
    let mut rows = Vec::new();
    for table in catalog.tables.values().flat_map(BTreeMap::values) {
        for route in table.partitions.routes() {
            for (replica, node, status) in
                seen(&route.replicas, statuses.get(&route.partition).map_or(&[][..], Vec::as_slice))
            {
                rows.push(replica_row(table, route.partition, replica, node, status));
            }
        }
    }
    batch(&schema(REPLICAS), rows)
}

/// Replicas of a partition: those of the catalog, and those that only nodes report.
fn seen<'a>(
    recorded: &BTreeMap<ReplicaId, NodeId>,
    statuses: &'a [(NodeId, ReplicaStatus)],
) -> Vec<(ReplicaId, NodeId, Option<&'a ReplicaStatus>)> {
    let reported: HashMap<(ReplicaId, NodeId), &ReplicaStatus> =
        statuses.iter().map(|(node, status)| ((status.replica, *node), status)).collect();
    let mut replicas: Vec<_> = recorded
        .iter()
        .map(|(replica, node)| (*replica, *node, reported.get(&(*replica, *node)).copied()))
        .collect();
    let unrecorded = statuses
        .iter()
        .filter(|(node, status)| recorded.get(&status.replica) != Some(node))
        .map(|(node, status)| (status.replica, *node, Some(status)));
    replicas.extend(unrecorded);
    replicas.sort_unstable_by_key(|(replica, node, _)| (*replica, *node));
    replicas
}

/// Role of a replica in its group, as the replica itself reports it.
fn role(status: Option<&ReplicaStatus>) -> &'static str {
    match status {
        None => "absent",
        Some(status) if status.failure.is_some() => "failed",
        Some(status) if status.leader => "leader",
        Some(status) if status.voters.contains(&status.replica) => "follower",
        Some(status) if status.learners.contains(&status.replica) => "learner",
        Some(_) => "outside",
    }
}

fn replica_row(
    table: &Table,
    partition: PartitionId,
    replica: ReplicaId,
    node: NodeId,
    status: Option<&ReplicaStatus>,
) -> Vec<Cell> {
    let count = |read: &dyn Fn(&ReplicaStatus) -> u64| Cell::Count(status.map(read));
    vec![
        table.database.as_str().into(),
        table.name.as_str().into(),
        partition.0.into(),
        replica.0.into(),
        node.0.into(),
        role(status).into(),
        count(&|status| status.term),
        count(&|status| status.applied),
        count(&|status| status.flushed),
        count(&|status| status.rows),
        count(&|status| status.file_bytes),
        count(&|status| status.memtable_bytes),
        count(&|status| status.files),
        status.and_then(|status| status.failure.clone()).into(),
    ]
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::UInt64Type;
    use partita_proto::member::Member;

    use super::*;

    #[test]
    fn a_node_that_is_not_heard_of_leads_nothing() {
        let member = |live| Member { live, leaders: 3, ..Member::default() };
        let members = Members::from([(NodeId(1), member(true)), (NodeId(2), member(false))]);
        let batch = nodes(&members).unwrap();
        let leaders = batch.column_by_name("leaders").unwrap();
        assert_eq!(leaders.as_primitive::<UInt64Type>().values(), &[3, 0]);
    }
}
