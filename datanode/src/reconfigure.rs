//! Carries out meta's order to change the members of a partition's group, and its leader, step by step.
//!
//! ```text
//!   add missing replicas as learners ── wait until they are near ── voters: exactly the targets ── remove learners
//!                                                               \
//!                      the leader is to leave: voters: both sets ── hand over; the new leader continues
//! ```
//!
//! A pure function, [`choose`], decides the next step from the state of the group. So an order that ended early, at any
//! step, continues when it is repeated, on whichever replica leads then.
//!
//! Invariants:
//! - a replica that lags far behind never becomes a voter: the group would have to wait for it;
//! - no change begins whose new voters mostly lag far behind, or are unreachable: it could neither be completed nor
//!   undone.

use std::collections::{BTreeMap, BTreeSet};

use partita_proto::error::Error;
use partita_proto::id::{NodeId, PartitionId, ReplicaId};
use partita_raft::{Group, MemberStatus};

use crate::group_error;

/// Maximum number of entries that a learner may lack and still become a voter: it gets them in a moment.
const NEAR_ENTRIES: u64 = 1_000;
/// Maximum steps of one order, besides one per learner to be added.
const STEPS_MAX: usize = 16;

/// State of a group, as its leader reports it for a decision.
struct View<'a> {
    me: ReplicaId,
    members: &'a [MemberStatus],
    /// True while a change of voters has begun and not ended.
    changing: bool,
    /// Index of the last entry of the leader's log.
    last: u64,
}

/// Change of the group's members, or reason to end an order.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Done,
    AddLearner(ReplicaId, NodeId),
    /// A replica is too far behind.
    Wait {
        replica: ReplicaId,
        matched: Option<u64>,
    },
    /// Too few of the future voters are reachable to form a quorum.
    Away(BTreeSet<ReplicaId>),
    SetVoters(BTreeSet<ReplicaId>),
    RemoveLearners(BTreeSet<ReplicaId>),
    HandOver(ReplicaId),
}

/// The next step towards a group whose voters are exactly `targets`, and which has no other member.
fn choose(view: &View<'_>, targets: &BTreeSet<(ReplicaId, NodeId)>) -> Step {
    let member = |replica| view.members.iter().find(|member| member.replica == replica);
    let missing = targets.iter().find(|(replica, _)| member(*replica).is_none());
    if let Some((replica, node)) = missing {
        return Step::AddLearner(*replica, *node);
    }
    let replicas: BTreeSet<ReplicaId> = targets.iter().map(|(replica, _)| *replica).collect();
    let coming = view.members.iter().filter(|m| !m.voter && replicas.contains(&m.replica));
    let near = |matched: Option<u64>| {
        matched.is_some_and(|matched| matched.saturating_add(NEAR_ENTRIES) >= view.last)
    };
    if let Some(far) = coming.clone().find(|member| !near(member.matched)) {
        return Step::Wait { replica: far.replica, matched: far.matched };
    }
    let voters: BTreeSet<ReplicaId> =
        view.members.iter().filter(|m| m.voter).map(|m| m.replica).collect();
    // A change that has begun can only be completed.
    let set = |voters: BTreeSet<ReplicaId>| {
        let is_present = |replica: &&ReplicaId| {
            **replica == view.me || member(**replica).is_some_and(|member| near(member.matched))
        };
        let enough = 2 * voters.iter().filter(is_present).count() > voters.len();
        if enough || view.changing { Step::SetVoters(voters) } else { Step::Away(voters) }
    };
    if !replicas.contains(&view.me) {
        if view.changing || !replicas.is_subset(&voters) {
            return set(&voters | &replicas);
        }
        let candidates = view.members.iter().filter(|member| replicas.contains(&member.replica));
        let best =
            candidates.max_by_key(|member| (member.matched, std::cmp::Reverse(member.replica)));
        return best.map_or(Step::Done, |best| Step::HandOver(best.replica));
    }
    if view.changing || voters != replicas {
        return set(replicas);
    }
    let surplus: BTreeSet<ReplicaId> =
        view.members.iter().map(|m| m.replica).filter(|id| !replicas.contains(id)).collect();
    if surplus.is_empty() { Step::Done } else { Step::RemoveLearners(surplus) }
}

/// Returns an error that names the leader, if this replica does not lead.
fn check_leads(partition: PartitionId, group: &Group) -> Result<(), Error> {
    let status = group.status();
    if let Some(failure) = status.stopped {
        return Err(Error::Storage(format!("partition {partition} has stopped: {failure}")));
    }
    if status.is_leader {
        return Ok(());
    }
    Err(Error::NotLeader { partition, leader: status.leader.map(|(_, node)| node) })
}

/// Makes these replicas the voters of a group and its only members.
pub(crate) async fn reconfigure(
    partition: PartitionId,
    group: &Group,
    voters: BTreeMap<ReplicaId, NodeId>,
) -> Result<(), Error> {
    if voters.is_empty() {
        return Err(Error::InvalidInput(format!(
            "partition {partition} needs at least one replica"
        )));
    }
    let failed = |error| group_error(group, error);
    let targets: BTreeSet<(ReplicaId, NodeId)> = voters.into_iter().collect();
    // One step at a time: look, choose, act. Each step is a change that the group has agreed on, so a failure in
    // between leaves a state from which the repeated order continues.
    for _ in 0..STEPS_MAX + targets.len() {
        check_leads(partition, group)?;
        let members = group.members();
        let last = group.status().last_index.unwrap_or_default();
        let view =
            View { me: group.replica(), members: &members, changing: group.is_changing(), last };
        match choose(&view, &targets) {
            Step::Done => return Ok(()),
            Step::AddLearner(replica, node) => {
                tracing::info!(%partition, %replica, %node, "adding a replica to the group");
                group.add_learner(replica, node).await.map_err(failed)?;
            }
            Step::Wait { replica, matched } => {
                let matched =
                    matched.map_or_else(|| "none".to_owned(), |matched| matched.to_string());
                return Err(Error::Unavailable(format!(
                    "replica {replica} of partition {partition} is still catching up: it has entry {matched} of {last}"
                )));
            }
            Step::Away(voters) => {
                return Err(Error::Unavailable(format!(
                    "too few of the replicas {voters:?} of partition {partition} are reachable to form a quorum"
                )));
            }
            Step::SetVoters(voters) => {
                tracing::info!(%partition, ?voters, "changing the voters of the group");
                group.set_voters(voters).await.map_err(failed)?;
            }
            Step::RemoveLearners(learners) => {
                group.remove_learners(learners).await.map_err(failed)?;
            }
            Step::HandOver(replica) => {
                tracing::info!(%partition, to = %replica, "transferring leadership before leaving the group");
                group.transfer_leadership(replica).await.map_err(failed)?;
            }
        }
    }
    Err(Error::Unavailable(format!("the group of partition {partition} changes too often")))
}

/// Hands leadership to the replica on a node.
pub(crate) async fn transfer(
    partition: PartitionId,
    group: &Group,
    target: NodeId,
) -> Result<(), Error> {
    if group.status().leader.is_some_and(|(_, node)| node == target) {
        return Ok(());
    }
    check_leads(partition, group)?;
    let member = group.members().into_iter().find(|member| member.node == target && member.voter);
    let member = member.ok_or_else(|| {
        Error::InvalidInput(format!("partition {partition} has no voter on node {target}"))
    })?;
    group.transfer_leadership(member.replica).await.map_err(|error| group_error(group, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member on the node of the same number.
    fn member(replica: u64, voter: bool, matched: Option<u64>) -> MemberStatus {
        let (replica, node) = (ReplicaId(replica), NodeId(replica));
        MemberStatus { replica, node, voter, matched, silent_for: None }
    }

    fn set(replicas: &[u64]) -> BTreeSet<ReplicaId> {
        replicas.iter().copied().map(ReplicaId).collect()
    }

    fn next(members: &[MemberStatus], wanted: &[u64]) -> Step {
        let wanted = wanted.iter().map(|id| (ReplicaId(*id), NodeId(*id))).collect();
        choose(&View { me: ReplicaId(1), members, changing: false, last: 5_000 }, &wanted)
    }

    #[test]
    fn who_is_missing_learns_first_and_votes_when_he_is_near() {
        let leader = member(1, true, None);
        assert_eq!(
            next(std::slice::from_ref(&leader), &[1, 2]),
            Step::AddLearner(ReplicaId(2), NodeId(2))
        );
        for at in [None, Some(10), Some(3_999)] {
            let members = [leader.clone(), member(2, false, at)];
            assert_eq!(next(&members, &[1, 2]), Step::Wait { replica: ReplicaId(2), matched: at });
        }
        let members = [leader, member(2, false, Some(4_000))];
        assert_eq!(next(&members, &[1, 2]), Step::SetVoters(set(&[1, 2])));
    }

    #[test]
    fn a_voter_that_is_away_does_not_hold_up_the_change_of_another() {
        let members = [member(1, true, None), member(2, true, None), member(3, true, Some(5_000))];
        assert_eq!(next(&members, &[1, 3]), Step::SetVoters(set(&[1, 3])));
        assert_eq!(next(&members, &[1, 2, 3]), Step::Done);
    }

    #[test]
    fn a_group_is_not_left_to_voters_that_are_away() {
        let members = [member(1, true, None), member(2, true, None), member(3, true, Some(4_990))];
        assert_eq!(next(&members, &[1, 2]), Step::Away(set(&[1, 2])));
        let wanted = BTreeSet::from([(ReplicaId(1), NodeId(1)), (ReplicaId(2), NodeId(2))]);
        let begun = View { me: ReplicaId(1), members: &members, changing: true, last: 5_000 };
        assert_eq!(choose(&begun, &wanted), Step::SetVoters(set(&[1, 2])));
    }

    #[test]
    fn learners_that_nobody_wants_go_last() {
        let members = [member(1, true, None), member(2, true, None), member(3, false, None)];
        assert_eq!(next(&members, &[1]), Step::SetVoters(set(&[1])));
        assert_eq!(next(&members, &[1, 2]), Step::RemoveLearners(set(&[3])));
    }

    #[test]
    fn a_leader_that_is_to_go_hands_over_once_the_others_vote() {
        let members =
            [member(1, true, None), member(2, true, Some(7)), member(3, false, Some(4_999))];
        assert_eq!(next(&members, &[2, 3]), Step::SetVoters(set(&[1, 2, 3])));
        let members =
            [member(1, true, None), member(2, true, Some(7)), member(3, true, Some(4_999))];
        assert_eq!(next(&members, &[2, 3]), Step::HandOver(ReplicaId(3)));
    }

    #[test]
    fn a_change_that_was_cut_short_is_ended() {
        let members = [member(1, true, None), member(2, true, None)];
        let view = View { me: ReplicaId(1), members: &members, changing: true, last: 9 };
        let wanted = BTreeSet::from([(ReplicaId(1), NodeId(1)), (ReplicaId(2), NodeId(2))]);
        assert_eq!(choose(&view, &wanted), Step::SetVoters(set(&[1, 2])));
    }
}
