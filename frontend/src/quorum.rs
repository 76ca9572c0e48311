//! Explains a partition without a leader by missing replicas.
//!
//! "Not the leader", from one replica after another, does not help the user. The error should say that nodes are
//! missing, which ones, and how many are required.
//!
//! Invariant: the explanation is given only if meta itself gets no heartbeats from the missing nodes. A replica that
//! cannot lead for a moment, or a node that meta has not reported yet, does not count as missing.

use partita_proto::Error;
use partita_proto::id::NodeId;
use partita_proto::member::Members;
use partita_proto::route::Route;

/// Replaces an error that is caused by too few available replicas; `None` if it has another cause.
pub(crate) fn lost(table: &str, route: &Route, members: &Members, error: &Error) -> Option<Error> {
    if !matches!(error, Error::NotLeader { .. } | Error::Unavailable(_) | Error::Timeout(_)) {
        return None;
    }
    let total = route.replicas.len();
    let required = total / 2 + 1;
    let is_away = |node: &NodeId| members.get(node).is_some_and(|member| !member.live);
    let mut away: Vec<NodeId> = route.replicas.values().copied().filter(is_away).collect();
    let available = total - away.len();
    if total == 0 || available >= required {
        return None;
    }
    away.sort_unstable();
    let nodes: Vec<String> = away.iter().map(ToString::to_string).collect();
    Some(Error::Unavailable(format!(
        "too few replicas of table \"{table}\", partition {} are available: {available} of {total}, {required} \
        required; no heartbeat from {} {}",
        route.partition,
        if nodes.len() == 1 { "node" } else { "nodes" },
        nodes.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use partita_proto::id::{Epoch, PartitionId, ReplicaId};
    use partita_proto::member::Member;
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

    fn members(live: &[u64], silent: &[u64]) -> Members {
        let of = |nodes: &[u64], live| {
            let member = Member { live, ..Member::default() };
            nodes.iter().map(move |node| (NodeId(*node), member.clone())).collect::<Vec<_>>()
        };
        of(live, true).into_iter().chain(of(silent, false)).collect()
    }

    fn not_leader() -> Error {
        Error::NotLeader { partition: PartitionId(4), leader: None }
    }

    #[test]
    fn a_partition_without_its_majority_is_told_with_the_nodes_that_are_away() {
        let said = lost("cpu", &route(&[1, 2, 3]), &members(&[2, 4], &[1, 3]), &not_leader());
        assert_eq!(
            said,
            Some(Error::Unavailable(
                "too few replicas of table \"cpu\", partition 4 are available: 1 of 3, 2 required; \
                no heartbeat from nodes 1, 3"
                    .to_owned()
            ))
        );
        let alone = lost("cpu", &route(&[1]), &members(&[2], &[1]), &not_leader());
        assert!(alone.is_some_and(|error| error.to_string().ends_with("node 1")));
    }

    #[test]
    fn nothing_is_said_while_a_majority_is_there_or_something_else_is_wrong() {
        let three = route(&[1, 2, 3]);
        assert_eq!(lost("cpu", &three, &members(&[1, 2], &[3]), &not_leader()), None);
        assert_eq!(lost("cpu", &three, &members(&[], &[3]), &not_leader()), None);
        let full = Error::DiskFull("on node 1".to_owned());
        assert_eq!(lost("cpu", &three, &members(&[], &[1, 2, 3]), &full), None);
    }
}
