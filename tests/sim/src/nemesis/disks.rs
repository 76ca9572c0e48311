//! Disks that come back without some of what was written: empty ones, and ones with a damaged Parquet file.
//!
//! Each counts as the loss of a disk, of which a run has one at most.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use partita_proto::id::NodeId;

use super::{replace_node, start_data, until_spared};
use crate::cluster::Cluster;
use crate::nodes;
use crate::random::Random;

/// Empties the disks of a node or damages one of its files after `wait`, unless `lost` says that a disk was lost already.
pub(super) async fn harm(
    cluster: Arc<Cluster>,
    mut random: Random,
    wait: Duration,
    lost: Arc<AtomicBool>,
) {
    tokio::time::sleep(wait).await;
    let up: Vec<NodeId> = cluster.data_up().into_iter().map(|(node, _)| node).collect();
    let Some(node) = random.pick(&up) else { return };
    if lost.swap(true, Ordering::Relaxed) {
        return;
    }
    match random.once_in(2) {
        true => empty(&cluster, node, random).await,
        false => damage(&cluster, node, random).await,
    }
}

/// A node returns with empty disks. It has forgotten its votes, so it must not be admitted under its old number; it
/// joins as a new node.
async fn empty(cluster: &Arc<Cluster>, node: NodeId, mut random: Random) {
    if !until_spared(cluster, node, &mut random).await
        || !nodes::crash_data(cluster, node, random.clone()).await
    {
        return;
    }
    cluster.history.note(format_args!("node {node} has empty disks"));
    match nodes::register_empty(cluster, node).await {
        Ok(()) => cluster
            .history
            .violation(format!("node {node} is registered under its number without its data")),
        Err(error) => cluster.history.note(format_args!("node {node} is not admitted: {error}")),
    }
    replace_node(cluster, node, &mut random).await;
}

/// A node returns with a Parquet file that ends half-way or is gone. Others replace the replica that it belongs to;
/// until then nothing may be read without its rows.
async fn damage(cluster: &Arc<Cluster>, node: NodeId, mut random: Random) {
    if !until_spared(cluster, node, &mut random).await
        || !nodes::crash_data(cluster, node, random.clone()).await
    {
        return;
    }
    if let Some(node) = cluster.data.lock().get_mut(&node) {
        let file = node.files.damage(|bound| random.below(bound));
        node.rotten = true;
        cluster.history.note(format_args!("node {} has a damaged file: {file:?}", node.id));
    }
    tokio::time::sleep(random.millis(5, 3000)).await;
    start_data(cluster, node).await;
}
