//! A replica never leads its group in one term in two lives of its node, and no entry is applied whose leader
//! precedes that of an entry with a lower index.
//!
//! Leaders are ordered by term and replica, as in openraft: a replica that has voted for another one may, in the
//! same term, vote for one with a greater id, and then two lead in that term, one after the other. But the earlier
//! one must not commit an entry after the later one: all replicas of a group apply the same entry at an index, and
//! the order of the entries' leaders never decreases from one index to the next.

use std::collections::BTreeMap;

use partita_proto::id::{GroupId, ReplicaId};
use partita_raft::GroupStatus;

use crate::cluster::Cluster;

/// A term and the replica that leads in it.
type Leader = (u64, ReplicaId);

/// Leaders and applied entries seen so far.
#[derive(Default)]
pub(crate) struct Leaders {
    /// The life of its node in which a replica led a term.
    led: BTreeMap<(GroupId, Leader), u64>,
    /// The leader that proposed the entry at an index.
    applied: BTreeMap<(GroupId, u64), Leader>,
}

impl Leaders {
    /// Checks all groups of all nodes.
    pub(crate) fn look(&mut self, cluster: &Cluster) {
        for (node, host) in cluster.hosts() {
            let Some(life) = cluster.net.life(node) else { continue };
            for (id, _) in host.known_groups() {
                let Some(status) = host.group(id).map(|group| group.status()) else { continue };
                for violation in self.note(life, &status) {
                    cluster.history.violation(violation);
                }
            }
        }
    }

    fn note(&mut self, life: u64, status: &GroupStatus) -> Vec<String> {
        let (group, replica, term) = (status.group, status.replica, status.term);
        let mut violations = Vec::new();
        // A replica that leads in one term in two lives has forgotten its vote.
        if status.is_leader && *self.led.entry((group, (term, replica))).or_insert(life) != life {
            violations
                .push(format!("replica {replica} of group {group} leads in term {term} again"));
        }
        // All replicas must have applied the same leader's entry at an index ...
        let (Some(index), Some(proposer)) = (status.applied, status.applied_from) else {
            return violations;
        };
        let expected = *self.applied.entry((group, index)).or_insert(proposer);
        if expected != proposer {
            violations.push(format!(
                "replica {replica} of group {group} applied entry {index} proposed by {proposer:?}, another replica the one proposed by {expected:?}"
            ));
        }
        // ... and leaders must not go backwards from lower to higher indexes.
        let previous = self.applied.range((group, 0)..(group, index)).next_back();
        if let Some(((_, earlier_index), leader)) = previous
            && *leader > proposer
        {
            violations.push(format!(
                "entry {index} of group {group} was proposed by {proposer:?}, but entry {earlier_index} by {leader:?}"
            ));
        }
        let next = self.applied.range((group, index + 1)..=(group, u64::MAX)).next();
        if let Some(((_, later_index), leader)) = next
            && *leader < proposer
        {
            violations.push(format!(
                "entry {index} of group {group} was proposed by {proposer:?}, but entry {later_index} by {leader:?}"
            ));
        }
        violations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(replica: u64, is_leader: bool, applied: (u64, Leader)) -> GroupStatus {
        GroupStatus {
            group: GroupId(1),
            replica: ReplicaId(replica),
            leader: None,
            is_leader,
            term: 3,
            last_index: None,
            committed: None,
            applied: Some(applied.0),
            applied_from: Some(applied.1),
            flushed: None,
            purged: None,
            stopped: None,
        }
    }

    fn of(term: u64, replica: u64) -> Leader {
        (term, ReplicaId(replica))
    }

    #[test]
    fn one_who_leads_in_a_term_of_an_earlier_life_is_found() {
        let mut leaders = Leaders::default();
        let entry = (9, of(2, 1));
        assert!(leaders.note(1, &status(1, true, entry)).is_empty());
        assert!(leaders.note(1, &status(1, true, entry)).is_empty());
        assert!(leaders.note(2, &status(2, true, entry)).is_empty(), "another one may follow");
        assert!(leaders.note(3, &status(1, false, entry)).is_empty());
        assert_eq!(leaders.note(3, &status(1, true, entry)).len(), 1);
    }

    #[test]
    fn entries_of_two_leaders_at_one_index_are_found() {
        let mut leaders = Leaders::default();
        assert!(leaders.note(1, &status(1, true, (9, of(3, 1)))).is_empty());
        assert!(leaders.note(1, &status(2, false, (9, of(3, 1)))).is_empty());
        assert_eq!(leaders.note(1, &status(3, false, (9, of(3, 2)))).len(), 1);
    }

    #[test]
    fn an_entry_of_an_earlier_leader_after_one_of_a_later_is_found() {
        let mut leaders = Leaders::default();
        assert!(leaders.note(1, &status(1, false, (9, of(3, 1)))).is_empty());
        assert!(leaders.note(1, &status(1, false, (12, of(3, 2)))).is_empty());
        assert!(leaders.note(1, &status(2, false, (10, of(3, 1)))).is_empty());
        assert_eq!(leaders.note(1, &status(2, false, (14, of(3, 1)))).len(), 1);
        assert_eq!(leaders.note(1, &status(2, false, (11, of(4, 1)))).len(), 1);
    }
}
