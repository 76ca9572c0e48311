//! Planned changes of a group's members and of its leader.
//!
//! ```text
//!   no member --add_learner--> learner --set_voters--> voter --set_voters--> no member
//!                                 \--remove_learners--> no member
//! ```
//!
//! Invariants:
//! - a change of voters goes through both sets at once (joint consensus): at no moment can the old and the new voters
//!   decide separately;
//! - leadership is handed only to a voter that has the whole log: until it has taken over, the group has no leader.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use openraft::async_runtime::WatchReceiver;
use openraft::errors::ClientWriteError;
use openraft::{ChangeMembers, Instant as _};
use partita_proto::id::{NodeId, ReplicaId};
use tokio::time::Instant;

use crate::error::RaftError;
use crate::group::{Group, Patience};
use crate::types::{Member, Types};

/// Maximum time that a change of members waits for its quorum.
const CHANGE_WAIT: Duration = Duration::from_secs(10);
/// Maximum time that the future leader may take to receive the last entries.
const CATCH_UP_WAIT: Duration = Duration::from_secs(2);
/// Maximum time that the election of the future leader may take after that.
const HAND_OVER_WAIT: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A member of a group, as its leader sees it; a follower knows less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// The member.
    pub replica: ReplicaId,
    /// The node that holds it.
    pub node: NodeId,
    /// True for a voter, false for a learner.
    pub voter: bool,
    /// Index up to which the member has the leader's log on disk. Known to the leader only.
    pub matched: Option<u64>,
    /// Time since the member last answered the leader. Known to the leader only; grows while a group sleeps.
    pub silent_for: Option<Duration>,
}

type Written<T> = Result<T, openraft::errors::RaftError<Types, ClientWriteError<Types>>>;

impl Group {
    /// Members of the group, learners included.
    #[must_use]
    pub fn members(&self) -> Vec<MemberStatus> {
        let metrics = self.raft().metrics();
        let metrics = metrics.borrow_watched();
        let membership = metrics.membership_config.membership();
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        let matched = metrics.replication.as_ref();
        let answered = metrics.heartbeat.as_ref();
        let status = |(replica, member): (&u64, &Member)| MemberStatus {
            replica: ReplicaId(*replica),
            node: member.node,
            voter: voters.contains(replica),
            matched: matched
                .and_then(|progress| progress.get(replica)?.as_ref())
                .map(|id| id.index),
            silent_for: answered
                .and_then(|progress| progress.get(replica)?.as_ref())
                .map(|time| time.elapsed()),
        };
        membership.nodes().map(status).collect()
    }

    /// True while a change of voters is under way: decisions then need a quorum of both the old and the new voters. A
    /// change that was cut short stays so until the voters are set again.
    #[must_use]
    pub fn is_changing(&self) -> bool {
        let metrics = self.raft().metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.membership().get_joint_config().len() > 1
    }

    /// Adds a replica that receives everything and does not vote. Call it on the leader, when the replica has been
    /// started with [`Start::Join`](crate::Start::Join) or is about to be. Completes when the change is committed; the
    /// learner's progress shows in [`Group::members`]. Adding a member again changes nothing.
    ///
    /// # Errors
    /// As [`Group::propose`]; [`RaftError::InvalidInput`] if the replica is a member on another node.
    pub async fn add_learner(&self, replica: ReplicaId, node: NodeId) -> Result<(), RaftError> {
        if let Some(present) = self.members().iter().find(|member| member.replica == replica) {
            if present.node == node {
                return Ok(());
            }
            return Err(RaftError::InvalidInput(format!(
                "replica {replica} of group {} is on node {}, not on node {node}",
                self.id(),
                present.node
            )));
        }
        self.change(|| {
            self.raft().add_learner(replica.0, Member { node }, false).map_ok(drop).boxed()
        })
        .await
    }

    /// Makes these members the voters. A previous voter that is not among them leaves the group.
    ///
    /// # Errors
    /// As [`Group::propose`]; [`RaftError::InvalidInput`] for a replica that is no member.
    pub async fn set_voters(&self, voters: BTreeSet<ReplicaId>) -> Result<(), RaftError> {
        let voters: BTreeSet<u64> = voters.into_iter().map(|replica| replica.0).collect();
        self.change(|| self.changed(voters.clone())).await
    }

    /// Removes learners from the group.
    ///
    /// # Errors
    /// As [`Group::propose`]; [`RaftError::InvalidInput`] for a voter.
    pub async fn remove_learners(&self, learners: BTreeSet<ReplicaId>) -> Result<(), RaftError> {
        let learners: BTreeSet<u64> = learners.into_iter().map(|replica| replica.0).collect();
        self.change(|| self.changed(ChangeMembers::RemoveNodes(learners.clone()))).await
    }

    /// Boxed, because otherwise a caller could not prove that the future is `Send`.
    fn changed(
        &self,
        change: impl Into<ChangeMembers<u64, Member>> + Send + 'static,
    ) -> BoxFuture<'_, Written<()>> {
        self.raft().change_membership(change, false).map_ok(drop).boxed()
    }

    async fn change<'a>(
        &'a self,
        attempt: impl Fn() -> BoxFuture<'a, Written<()>> + Send + Sync,
    ) -> Result<(), RaftError> {
        let _busy = self.pace().busy();
        self.pace().stir().await;
        let mut patience = Patience::new();
        let changed = tokio::time::timeout(CHANGE_WAIT, async {
            loop {
                self.admit()?;
                match attempt().await {
                    Ok(()) => return Ok(()),
                    Err(error) => {
                        self.after_refusal(self.write_error(error), &mut patience).await?;
                    }
                }
            }
        });
        changed.await.unwrap_or_else(|_| {
            Err(RaftError::OutcomeUnknown(format!(
                "the members of group {} did not agree within {} seconds",
                self.id(),
                CHANGE_WAIT.as_secs()
            )))
        })
    }

    /// Hands leadership to another voter, and returns when it leads. Call it on the leader.
    ///
    /// Commands and reads are refused meanwhile: for some milliseconds, or, if the other replica fails in that very
    /// moment, until an election.
    ///
    /// # Errors
    /// [`RaftError::NotLeader`]; [`RaftError::InvalidInput`] if the replica is no voter; [`RaftError::Unavailable`] if
    /// it lags behind (nothing has changed then) or did not take over in time.
    pub async fn transfer_leadership(&self, target: ReplicaId) -> Result<(), RaftError> {
        let _busy = self.pace().busy();
        self.pace().stir().await;
        self.check_may_lead(target)?;
        if target == self.replica() {
            return Ok(());
        }
        // A replica that was restarted and has received nothing since does not know how far its own log is on disk, and
        // would decline. A blank entry updates it.
        let index = self.write_blank(target).await?;
        self.wait_until_at(target, index).await?;
        let raft = self.raft();
        raft.trigger().transfer_leader(target.0).await.map_err(|fatal| self.fatal(&fatal))?;
        let wait = raft.wait(Some(HAND_OVER_WAIT));
        let leads = wait.metrics(
            |metrics| metrics.running_state.is_err() || metrics.current_leader == Some(target.0),
            "the other replica leads",
        );
        let metrics = leads.await.map_err(|_| {
            RaftError::Unavailable(format!(
                "replica {target} of group {} does not lead yet",
                self.id()
            ))
        })?;
        metrics.running_state.map_err(|fatal| self.fatal(&fatal))
    }

    /// Writes a blank entry; returns its index. If the group was asleep, a quorum confirms the leadership first.
    ///
    /// The time is limited: without a quorum the entry would wait for one, and block other changes meanwhile.
    async fn write_blank(&self, target: ReplicaId) -> Result<u64, RaftError> {
        let mut patience = Patience::new();
        let written = tokio::time::timeout(CATCH_UP_WAIT, async {
            loop {
                match self.raft().write_blank().await {
                    Ok(written) => return Ok(written.log_id.index),
                    Err(error) => {
                        self.after_refusal(self.write_error(error), &mut patience).await?;
                    }
                }
                self.check_may_lead(target)?;
            }
        });
        written.await.unwrap_or_else(|_| {
            Err(RaftError::Unavailable(format!(
                "a quorum of group {} does not answer, so its leadership cannot be transferred",
                self.id()
            )))
        })
    }

    /// Checks that this replica leads and that `target` is a voter; returns the index up to which `target` has the log.
    fn check_may_lead(&self, target: ReplicaId) -> Result<Option<u64>, RaftError> {
        let status = self.status();
        if !status.is_leader {
            return Err(RaftError::NotLeader { leader: status.leader });
        }
        let member =
            self.members().into_iter().find(|member| member.replica == target && member.voter);
        let member = member.ok_or_else(|| {
            RaftError::InvalidInput(format!("replica {target} is no voter of group {}", self.id()))
        })?;
        Ok(member.matched)
    }

    /// Waits until the other replica has the log up to an index.
    async fn wait_until_at(&self, target: ReplicaId, index: u64) -> Result<(), RaftError> {
        let deadline = Instant::now() + CATCH_UP_WAIT;
        loop {
            let matched = self.check_may_lead(target)?;
            if matched >= Some(index) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(RaftError::Unavailable(format!(
                    "replica {target} of group {} is at {matched:?}, the leader at {index}",
                    self.id()
                )));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
