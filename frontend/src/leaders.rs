//! Remembers the leaders of partitions by their answers. Meta's catalog says where replicas are, and which of them led a
//! new partition first; the replicas themselves say which of them leads.
//!
//! A wrong guess costs one more request: a replica that does not lead names the leader.

use std::collections::HashMap;

use parking_lot::RwLock;
use partita_proto::Error;
use partita_proto::id::{NodeId, PartitionId};
use partita_proto::route::Route;

/// Maximum partitions remembered; at the bound all are forgotten and learned again.
const REMEMBERED_MAX: usize = 1 << 20;

/// Leaders that answered last, by partition.
#[derive(Debug, Default)]
pub(crate) struct Leaders {
    known: RwLock<HashMap<PartitionId, NodeId>>,
}

impl Leaders {
    /// The node to ask first: the last leader, or the one that the catalog names, or any replica, which will name the
    /// leader.
    pub(crate) fn first(&self, route: &Route) -> Option<NodeId> {
        self.known(route).or(route.leader).or_else(|| {
            // Spread over replicas: the first node gets most requests.
            let turn = usize::try_from(route.partition.0).unwrap_or_default();
            route.replicas.values().nth(turn % route.replicas.len().max(1)).copied()
        })
    }

    /// The leader, as far as it is known.
    pub(crate) fn known(&self, route: &Route) -> Option<NodeId> {
        let node = self.known.read().get(&route.partition).copied();
        node.filter(|node| route.replicas.values().any(|replica| replica == node))
    }

    /// The node to ask after a failure: the leader if a different one is known, otherwise the next replica if the
    /// error may be different there.
    pub(crate) fn next(
        &self,
        route: &Route,
        failed: Option<NodeId>,
        error: &Error,
    ) -> Option<NodeId> {
        let elsewhere = is_absent(error)
            || matches!(error, Error::NotLeader { .. } | Error::Unavailable(_) | Error::Timeout(_));
        let leader = self.known(route).filter(|leader| !elsewhere || Some(*leader) != failed);
        leader
            .or_else(|| {
                let nodes: Vec<NodeId> = route.replicas.values().copied().collect();
                let position = nodes.iter().position(|node| Some(*node) == failed);
                position.and_then(|position| nodes.get((position + 1) % nodes.len()).copied())
            })
            .or_else(|| self.first(route))
    }

    /// Records that a node answered as the leader.
    pub(crate) fn answered(&self, partition: PartitionId, node: Option<NodeId>) {
        let Some(node) = node else { return };
        if self.known.read().get(&partition) == Some(&node) {
            return;
        }
        let mut leaders = self.known.write();
        if leaders.len() >= REMEMBERED_MAX {
            leaders.clear();
        }
        leaders.insert(partition, node);
    }

    /// Forgets a node that did not answer as the leader.
    pub(crate) fn failed(&self, partition: PartitionId, node: Option<NodeId>) {
        let mut leaders = self.known.write();
        if leaders.get(&partition).copied() == node {
            leaders.remove(&partition);
        }
    }
}

/// Returns true if a node does not have the requested partition. If the catalog assigns it to the node, it will
/// arrive: some nodes get a new partition earlier than others.
pub(crate) fn is_absent(error: &Error) -> bool {
    matches!(error, Error::NotFound { kind: "partition", .. })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use partita_proto::id::{Epoch, ReplicaId};
    use partita_proto::range::{KeyRange, TypedRange};

    use super::*;

    fn route(nodes: &[u64]) -> Route {
        let replicas: BTreeMap<_, _> =
            nodes.iter().map(|node| (ReplicaId(node + 10), NodeId(*node))).collect();
        Route {
            partition: PartitionId(4),
            range: TypedRange::default(),
            keys: KeyRange::all(),
            epoch: Epoch(1),
            replicas,
            leader: None,
        }
    }

    #[test]
    fn who_answered_is_asked_again_until_it_fails() {
        let leaders = Leaders::default();
        let route = route(&[1, 2, 3]);
        assert_eq!(leaders.first(&route), Some(NodeId(2)));
        leaders.answered(route.partition, Some(NodeId(3)));
        assert_eq!(leaders.first(&route), Some(NodeId(3)));
        leaders.failed(route.partition, Some(NodeId(1)));
        assert_eq!(leaders.first(&route), Some(NodeId(3)));
        leaders.failed(route.partition, Some(NodeId(3)));
        assert_eq!(leaders.first(&route), Some(NodeId(2)));
    }

    #[test]
    fn a_leader_that_has_no_replica_any_more_is_not_asked() {
        let leaders = Leaders::default();
        leaders.answered(PartitionId(4), Some(NodeId(9)));
        assert_eq!(leaders.first(&route(&[1, 2, 3])), Some(NodeId(2)));
    }

    #[test]
    fn the_first_leader_of_a_new_partition_is_asked_first_and_not_for_ever() {
        let leaders = Leaders::default();
        let route = Route { leader: Some(NodeId(3)), ..route(&[1, 2, 3]) };
        let absent = Error::NotFound { kind: "partition", name: "4".to_owned() };
        let mut asked = leaders.first(&route);
        let mut nodes = Vec::new();
        for _ in 0..4 {
            nodes.extend(asked);
            leaders.failed(route.partition, asked);
            asked = leaders.next(&route, asked, &absent);
        }
        assert_eq!(nodes, [3, 1, 2, 3].map(NodeId));
        // Who answered later is known better.
        leaders.answered(route.partition, Some(NodeId(1)));
        assert_eq!(leaders.first(&route), Some(NodeId(1)));
    }

    #[test]
    fn every_replica_gets_its_turn() {
        let leaders = Leaders::default();
        let route = route(&[1, 2, 3]);
        let away = Error::Unavailable(String::new());
        let mut asked = leaders.first(&route);
        let mut nodes = Vec::new();
        for _ in 0..4 {
            nodes.extend(asked);
            leaders.failed(route.partition, asked);
            asked = leaders.next(&route, asked, &away);
        }
        assert_eq!(nodes, [2, 3, 1, 2].map(NodeId));
        // What is wrong with the request is wrong everywhere.
        leaders.answered(route.partition, Some(NodeId(1)));
        let full = Error::Overloaded(String::new());
        assert_eq!(leaders.next(&route, Some(NodeId(1)), &full), Some(NodeId(1)));
    }
}
