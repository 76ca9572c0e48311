//! `sys.nodes`, `sys.replicas` and `sys.metas`: where things are, as meta and the nodes themselves say.
//!
//! Replicas are listed as the catalog has them, so that one which its node does not have (or whose
//! node does not answer) shows as absent; one that a node has beyond the catalog is shown too. A node that is not heard
//! of leads nothing, whatever it said last.

use std::collections::{BTreeMap, HashMap};

use arrow::record_batch::RecordBatch;
use partita_proto::catalog::Table;
use partita_proto::id::{NodeId, PartitionId, ReplicaId};
use partita_proto::member::{Members, MetaMember};
use partita_proto::service::ReplicaStatus;

use crate::error::SqlError;
use crate::router::Router;
use crate::system::statuses;
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

/// What `sys.nodes` shows.
pub(crate) fn nodes(members: &Members) -> Result<RecordBatch, SqlError> {
    let row = |(node, member): (&NodeId, &partita_proto::member::Member)| {
        vec![
            node.0.into(),
            member.address.as_str().into(),
            member.live.into(),
            member.draining.into(),
            member.replicas.into(),
            // What a node said that it led before it fell silent, others lead by now, and count.
            (if member.live { member.leaders } else { 0 }).into(),
            member.bytes.into(),
            member.missing.into(),
            member.labels.to_string().into(),
        ]
    };
    batch(&schema(NODES), members.iter().map(row).collect())
}

/// What `sys.metas` shows: what one that does not answer would say is NULL.
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

/// What `sys.replicas` shows.
pub(crate) async fn replicas(router: &Router) -> Result<RecordBatch, SqlError> {
    let statuses = statuses(router).await;
    let catalog = router.catalog();
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

/// The replicas of a partition: those of the catalog, and what nodes have besides.
fn seen<'a>(
    recorded: &BTreeMap<ReplicaId, NodeId>,
    statuses: &'a [(NodeId, ReplicaStatus)],
) -> Vec<(ReplicaId, NodeId, Option<&'a ReplicaStatus>)> {
    let found: HashMap<(ReplicaId, NodeId), &ReplicaStatus> =
        statuses.iter().map(|(node, status)| ((status.replica, *node), status)).collect();
    let mut all: Vec<_> = recorded
        .iter()
        .map(|(replica, node)| (*replica, *node, found.get(&(*replica, *node)).copied()))
        .collect();
    let strangers = statuses
        .iter()
        .filter(|(node, status)| recorded.get(&status.replica) != Some(node))
        .map(|(node, status)| (status.replica, *node, Some(status)));
    all.extend(strangers);
    all.sort_unstable_by_key(|(replica, node, _)| (*replica, *node));
    all
}

/// What a replica is to its group, as it sees that itself.
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
    let of = |count: &dyn Fn(&ReplicaStatus) -> u64| Cell::Count(status.map(count));
    vec![
        table.database.as_str().into(),
        table.name.as_str().into(),
        partition.0.into(),
        replica.0.into(),
        node.0.into(),
        role(status).into(),
        of(&|status| status.term),
        of(&|status| status.applied),
        of(&|status| status.flushed),
        of(&|status| status.rows),
        of(&|status| status.file_bytes),
        of(&|status| status.memtable_bytes),
        of(&|status| status.files),
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
        let shown = nodes(&members).unwrap();
        let leaders = shown.column_by_name("leaders").unwrap();
        assert_eq!(leaders.as_primitive::<UInt64Type>().values(), &[3, 0]);
    }
}
