//! Messages that no correct node sends: an order from a copy of meta's catalog that was put back, and terms that no
//! election has reached.

use std::sync::Arc;
use std::time::Duration;

use partita_datanode::Datanode;
use partita_proto::catalog_history::{CatalogHistory, Leadership};
use partita_proto::id::{NodeId, PartitionId, ReplicaId};
use partita_proto::service::DataService;

use crate::cluster::Cluster;
use crate::random::Random;

/// Time limit for the catalog to go on after it was copied.
const GROWTH_WAIT: Duration = Duration::from_secs(30);
/// Frames per million with a wrong term.
const WRONG_TERMS: u32 = 20_000;

/// After `wait` meta's catalog is copied. The copy comes to life when the cluster has gone on without it, and orders a
/// node to drop a replica in use: nothing may happen.
pub(super) async fn order(cluster: Arc<Cluster>, mut random: Random, wait: Duration) {
    tokio::time::sleep(wait).await;
    let Some(copy) = cluster.ordering.lock().clone() else { return };
    let patience = tokio::time::Instant::now() + GROWTH_WAIT;
    let (datanode, (node, partition, replica)) = loop {
        tokio::time::sleep(random.millis(20, 2000)).await;
        if let Some(target) = target(&cluster, copy.version, &mut random) {
            break target;
        }
        if tokio::time::Instant::now() > patience {
            cluster.history.note("no node has followed a later catalog than the copy");
            return;
        }
    };
    let history = restored(&copy, &mut random);
    cluster.history.note(format_args!(
        "a copy of the catalog of version {} orders node {node} to drop partition {partition}",
        copy.version
    ));
    let dropped = async {
        datanode.recognize(Some(&history)).await?;
        datanode.drop_partition(partition, replica).await
    };
    match dropped.await {
        Ok(()) => cluster.history.violation(format!(
            "node {node} has dropped replica {replica} of partition {partition} for a copy of the catalog"
        )),
        Err(error) => cluster.history.note(format_args!("node {node} refuses: {error}")),
    }
}

/// The history of a copy that was put back, has elected a leader and has grown.
fn restored(copy: &CatalogHistory, random: &mut Random) -> CatalogHistory {
    let first = copy.version + 1;
    let term = copy.leaderships.last().map_or(1, |last| last.term + 1);
    let mut leaderships = copy.leaderships.clone();
    leaderships.push(Leadership { first, term, nonce: random.draw() | 1 });
    CatalogHistory { cluster: copy.cluster, version: first + 1000, leaderships }
}

/// A replica of a table on a node that has followed a later version of the catalog than `copied`.
fn target(
    cluster: &Cluster,
    copied: u64,
    random: &mut Random,
) -> Option<(Arc<Datanode>, (NodeId, PartitionId, ReplicaId))> {
    let tables = cluster.tables();
    let nodes = cluster.data.lock();
    let has_gone_on = |holder: NodeId| {
        let node = nodes.get(&holder).filter(|node| node.up.is_some());
        node.and_then(|node| node.files.followed_version()).is_some_and(|version| version > copied)
    };
    let mut replicas = Vec::new();
    for route in tables.iter().flat_map(|table| table.partitions.routes()) {
        for (replica, node) in &route.replicas {
            if has_gone_on(*node) {
                replicas.push((*node, route.partition, *replica));
            }
        }
    }
    let chosen = random.pick(&replicas)?;
    let life = nodes.get(&chosen.0)?.up.as_ref()?;
    Some((Arc::clone(&life.node), chosen))
}

/// For a while some messages between replicas carry a term that no election has reached. They count as lost.
pub(super) async fn change_terms(cluster: Arc<Cluster>, mut random: Random, wait: Duration) {
    tokio::time::sleep(wait).await;
    cluster.history.note("some messages carry wrong terms");
    cluster.net.raft.set_implausible(WRONG_TERMS);
    tokio::time::sleep(random.millis(500, 6000)).await;
    cluster.net.raft.set_implausible(0);
    cluster.history.note("all messages carry their terms");
}
