//! At most one replica of a group leads in a term.

use std::collections::BTreeMap;

use partita_proto::id::{GroupId, ReplicaId};

use crate::cluster::Cluster;

/// Who was seen to lead.
#[derive(Default)]
pub(crate) struct Leaders(BTreeMap<(GroupId, u64), ReplicaId>);

impl Leaders {
    /// Looks at all groups of all nodes.
    pub(crate) fn look(&mut self, cluster: &Cluster) {
        for (_, host) in cluster.hosts() {
            for (id, replica) in host.known_groups() {
                let Some(status) = host.group(id).map(|group| group.status()) else { continue };
                if status.is_leader
                    && let Some(other) = self.saw(id, status.term, replica)
                {
                    cluster.history.violation(format!(
                        "replicas {other} and {replica} of group {id} both lead in term {}",
                        status.term
                    ));
                }
            }
        }
    }

    /// Notes a leader; answers with another one of the same term.
    fn saw(&mut self, group: GroupId, term: u64, replica: ReplicaId) -> Option<ReplicaId> {
        let first = *self.0.entry((group, term)).or_insert(replica);
        (first != replica).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_leaders_of_one_term_are_found() {
        let mut leaders = Leaders::default();
        assert_eq!(leaders.saw(GroupId(1), 1, ReplicaId(1)), None);
        assert_eq!(leaders.saw(GroupId(1), 1, ReplicaId(1)), None);
        assert_eq!(leaders.saw(GroupId(1), 2, ReplicaId(2)), None);
        assert_eq!(leaders.saw(GroupId(2), 1, ReplicaId(3)), None);
        assert_eq!(leaders.saw(GroupId(1), 1, ReplicaId(2)), Some(ReplicaId(1)));
    }
}
