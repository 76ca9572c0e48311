//! Who leads partitions, as far as answers told: meta's catalog says where replicas are, the replicas
//! say who of them leads.
//!
//! A guess that is wrong costs a detour and no more: a replica that does not lead says so.

use std::collections::HashMap;

use parking_lot::RwLock;
use partita_proto::Error;
use partita_proto::id::{NodeId, PartitionId};
use partita_proto::route::Route;

use crate::router::is_absent;

/// Partitions remembered; beyond that all are forgotten and learned again.
const REMEMBERED_MAX: usize = 1 << 20;

/// The leaders that answered last.
#[derive(Debug, Default)]
pub(crate) struct Leaders {
    known: RwLock<HashMap<PartitionId, NodeId>>,
}

impl Leaders {
    /// The node to ask first: who led last, else any of the replicas, which will name the leader.
    pub(crate) fn first(&self, route: &Route) -> Option<NodeId> {
        self.known(route).or_else(|| {
            // Not always the same node: what is asked first is asked most.
            let turn = usize::try_from(route.partition.0).unwrap_or_default();
            route.replicas.values().nth(turn % route.replicas.len().max(1)).copied()
        })
    }

    fn known(&self, route: &Route) -> Option<NodeId> {
        let known = self.known.read().get(&route.partition).copied();
        let there = known.filter(|known| route.replicas.values().any(|node| node == known));
        route.leader.or(there)
    }

    /// Whom to ask after a node failed: who is known to lead by now, else the next replica, if
    /// another might do better.
    pub(crate) fn next(
        &self,
        route: &Route,
        asked: Option<NodeId>,
        error: &Error,
    ) -> Option<NodeId> {
        let elsewhere = is_absent(error)
            || matches!(error, Error::NotLeader { .. } | Error::Unavailable(_) | Error::Timeout(_));
        let known = self.known(route).filter(|known| !elsewhere || Some(*known) != asked);
        known
            .or_else(|| {
                let nodes: Vec<NodeId> = route.replicas.values().copied().collect();
                let at = nodes.iter().position(|node| Some(*node) == asked);
                at.and_then(|at| nodes.get((at + 1) % nodes.len()).copied())
            })
            .or_else(|| self.first(route))
    }

    /// A node answered as the leader.
    pub(crate) fn answered(&self, partition: PartitionId, node: Option<NodeId>) {
        let Some(node) = node else { return };
        if self.known.read().get(&partition) == Some(&node) {
            return;
        }
        let mut known = self.known.write();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(partition, node);
    }

    /// A node did not answer as the leader.
    pub(crate) fn failed(&self, partition: PartitionId, node: Option<NodeId>) {
        let mut known = self.known.write();
        if known.get(&partition).copied() == node {
            known.remove(&partition);
        }
    }
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
    fn every_replica_gets_its_turn() {
        let leaders = Leaders::default();
        let route = route(&[1, 2, 3]);
        let away = Error::Unavailable(String::new());
        let mut asked = leaders.first(&route);
        let mut all = Vec::new();
        for _ in 0..4 {
            all.extend(asked);
            leaders.failed(route.partition, asked);
            asked = leaders.next(&route, asked, &away);
        }
        assert_eq!(all, [2, 3, 1, 2].map(NodeId));
        // What is wrong with the request is wrong everywhere.
        leaders.answered(route.partition, Some(NodeId(1)));
        let full = Error::Overloaded(String::new());
        assert_eq!(leaders.next(&route, Some(NodeId(1)), &full), Some(NodeId(1)));
    }
}
