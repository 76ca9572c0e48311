//! Reports of the nodes about their replicas.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::{NodeId, PartitionId, TableId};
use partita_proto::service::{DataNodes, ReplicaStatus};

/// Maximum wait for a node's report of its replicas.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// Replicas of each partition, with their nodes.
pub(crate) type Statuses = HashMap<PartitionId, Vec<(NodeId, ReplicaStatus)>>;

/// Maximum wait for a report with sketches or measures, for which a node may have to read footers.
const FOOTERS_TIMEOUT: Duration = Duration::from_secs(10);

/// Parts of a report beyond the status of the replicas; the leaders add them.
#[derive(Clone, Copy)]
enum Detail {
    Plain,
    Series,
    Measures,
}

/// Reports of all nodes about their replicas, by partition. Nodes that do not answer are missing.
pub(crate) async fn statuses(nodes: &dyn DataNodes) -> Statuses {
    collected(nodes, Detail::Plain).await
}

/// The same reports with sketches of series from the leaders.
pub(crate) async fn series_statuses(nodes: &dyn DataNodes) -> Statuses {
    collected(nodes, Detail::Series).await
}

/// The same reports with measures of rows and indexes from the leaders.
pub(crate) async fn measured_statuses(nodes: &dyn DataNodes) -> Statuses {
    collected(nodes, Detail::Measures).await
}

async fn collected(nodes: &dyn DataNodes, detail: Detail) -> Statuses {
    let reports = nodes.all().into_iter().map(|id| async move {
        let status = match nodes.node(id) {
            Ok(node) => match detail {
                Detail::Plain => tokio::time::timeout(STATUS_TIMEOUT, node.status()).await,
                Detail::Series => {
                    tokio::time::timeout(FOOTERS_TIMEOUT, node.series_status()).await
                }
                Detail::Measures => {
                    tokio::time::timeout(FOOTERS_TIMEOUT, node.measured_status()).await
                }
            },
            Err(error) => Ok(Err(error)),
        };
        match status {
            Ok(Ok(status)) => Some((id, status)),
            Ok(Err(error)) => {
                tracing::warn!(node = %id, %error, "could not read the status of a node's replicas");
                None
            }
            Err(_) => {
                tracing::warn!(node = %id, "a node timed out while reporting the status of its replicas");
                None
            }
        }
    });
    let mut by_partition = Statuses::new();
    for (node, replicas) in futures::future::join_all(reports).await.into_iter().flatten() {
        for replica in replicas {
            by_partition.entry(replica.partition).or_default().push((node, replica));
        }
    }
    by_partition
}

/// The leading replica. A replaced leader may still claim to lead, so the highest term wins.
pub(crate) fn leader(replicas: &[(NodeId, ReplicaStatus)]) -> Option<&(NodeId, ReplicaStatus)> {
    replicas.iter().filter(|(_, status)| status.leader).max_by_key(|(_, status)| status.term)
}

/// Bytes stored by tables, by the reports of their leaders: files and memtables. Tables without a report are missing.
pub(crate) fn table_bytes(catalog: &Catalog, statuses: &Statuses) -> HashMap<TableId, u64> {
    let bytes = |table: &Table| {
        let routes = table.partitions.routes().iter();
        let reports = routes.filter_map(|route| leader(statuses.get(&route.partition)?));
        reports
            .map(|(_, status)| status.file_bytes + status.memtable_bytes)
            .reduce(u64::saturating_add)
    };
    let tables = catalog.tables.values().flat_map(BTreeMap::values);
    tables.filter_map(|table| Some((table.id, bytes(table)?))).collect()
}
