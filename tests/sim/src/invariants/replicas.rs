//! Replicas of a partition that have applied the same part of its log hold the same rows.

use std::collections::BTreeMap;

use partita_proto::id::{NodeId, PartitionId};
use xxhash_rust::xxh3::xxh3_64;

use crate::cluster::Cluster;
use crate::{tables, wide_rows};

/// Contents of replicas seen so far.
#[derive(Default)]
pub(crate) struct Replicas {
    known: BTreeMap<(PartitionId, u64), (NodeId, u64)>,
    /// Number of comparisons of two replicas.
    pub(crate) compared: u64,
}

/// The content of a replica at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) applied: u64,
    pub(crate) checksum: u64,
    pub(crate) rows: usize,
}

/// Reads the content of a replica; `None` if it cannot be read.
pub(crate) async fn read(cluster: &Cluster, node: NodeId, partition: PartitionId) -> Option<Seen> {
    let datanode = cluster.datanode(node)?;
    let content = match datanode.content(partition).await {
        Ok(content) => content,
        Err(partita_proto::error::Error::Corrupted(why)) => {
            cluster.history.violation(format!("node {node}, partition {partition}: {why}"));
            return None;
        }
        // The replica is being dropped, or its node has lost its power.
        Err(_) => return None,
    };
    let pairs = tables::pairs(&content.rows);
    let mut bytes: Vec<u8> =
        pairs.iter().flat_map(|(id, v)| [id.to_le_bytes(), v.to_le_bytes()].concat()).collect();
    let mut rows = pairs.len();
    for (row, cells) in wide_rows::cells(&content.rows) {
        bytes.extend(format!("{row} {cells:?}").bytes());
        rows += cells.len();
    }
    Some(Seen { applied: content.applied, checksum: xxh3_64(&bytes), rows })
}

impl Replicas {
    /// Reads all replicas that are up and compares each with earlier ones at the same index.
    pub(crate) async fn look(&mut self, cluster: &Cluster) {
        for partition in cluster.partitions() {
            for (node, _) in cluster.data_up() {
                if let Some(content) = read(cluster, node, partition).await {
                    self.note(cluster, partition, node, content);
                }
            }
        }
    }

    fn note(&mut self, cluster: &Cluster, partition: PartitionId, node: NodeId, content: Seen) {
        let place = (partition, content.applied);
        let (first_node, checksum) = *self.known.entry(place).or_insert((node, content.checksum));
        if first_node != node {
            self.compared += 1;
        }
        if checksum != content.checksum {
            cluster.history.violation(format!(
                "nodes {first_node} and {node} have different rows of partition {partition} at index {}",
                content.applied
            ));
        }
    }
}
