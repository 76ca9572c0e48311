//! One group on this node: propose, read barrier, status, flush.
//!
//! Invariants:
//! - a command is refused before openraft sees it if the log could not take it: once accepted, an entry must be
//!   written, because openraft regards a failed append as the end of the group;
//! - a command that was refused with [`RaftError::NotLeader`], [`RaftError::Unavailable`], [`RaftError::DiskFull`] or
//!   [`RaftError::InvalidInput`] has no effect, now or later;
//! - after [`Group::shutdown`] the machine is not called any more.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use openraft::async_runtime::WatchReceiver;
use openraft::errors::{
    ChangeMembershipError, ClientWriteError, Fatal, ForwardToLeader, LinearizableReadError,
};
use openraft::{LinearizerOption, Raft, RaftMetrics};
use partita_proto::id::{GroupId, NodeId, ReplicaId};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::error::RaftError;
use crate::hold::Awaited;
use crate::log::Log;
use crate::machine::Machine;
use crate::pace::Pace;
use crate::read_point::ReadPoints;
use crate::snapshot::Receiving;
use crate::state::{Gate, StateMachine};
use crate::types::{Command, RaftLogId, Types};

/// Maximum time that a proposal or a read waits for an election; longer than an election takes.
const LEADER_WAIT: Duration = Duration::from_secs(4);
/// Maximum time that a proposal waits for its reply. After that its outcome is unknown.
const PROPOSE_WAIT: Duration = Duration::from_secs(30);
/// Maximum time that a read waits for a quorum to confirm this replica's leadership.
const READ_WAIT: Duration = Duration::from_secs(2);
/// Initial pause before a refused call is repeated; doubled each time.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// Maximum time that starting a group of one member waits for it to lead.
const LEAD_WAIT: Duration = Duration::from_secs(10);
/// Unit in which the bytes of in-flight proposals are counted.
pub(crate) const IN_FLIGHT_UNIT: usize = 1024;

pub(crate) type RaftHandle = Raft<Types, StateMachine>;

/// An applied command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Index of the command's entry in the group's log.
    pub index: u64,
    /// Reply of the machine.
    pub reply: Bytes,
}

/// State of a group, as one of its replicas knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// Group id.
    pub group: GroupId,
    /// Id of this replica.
    pub replica: ReplicaId,
    /// The leader and its node, as far as this replica knows.
    pub leader: Option<(ReplicaId, NodeId)>,
    /// True if this replica leads.
    pub is_leader: bool,
    /// Current term. Unlike in the Raft paper, a term may have several leaders, one after the other (openraft's
    /// `leader_id_adv`): compare leaders by term, then by replica id.
    pub term: u64,
    /// Index of the last entry in this replica's log.
    pub last_index: Option<u64>,
    /// Index of the last entry known to be committed.
    pub committed: Option<u64>,
    /// Index of the last entry applied.
    pub applied: Option<u64>,
    /// Term of the last applied entry, and the replica that proposed it.
    pub applied_from: Option<(u64, ReplicaId)>,
    /// Index up to which the machine's own storage is durable.
    pub flushed: Option<u64>,
    /// Index up to which the log was purged.
    pub purged: Option<u64>,
    /// The reason why the group has stopped, if it has.
    pub stopped: Option<String>,
}

/// One group's replica on this node.
pub struct Group {
    id: GroupId,
    replica: ReplicaId,
    raft: RaftHandle,
    pace: Pace,
    log: Arc<Log>,
    machine: Arc<dyn Machine>,
    gate: Gate,
    in_flight: Arc<Semaphore>,
    in_flight_max: usize,
    flushing: tokio::sync::Mutex<()>,
    receiving: tokio::sync::Mutex<Option<Receiving>>,
    read_points: ReadPoints,
    awaited: Arc<Awaited>,
}

impl Group {
    pub(crate) fn new(
        (id, replica): (GroupId, ReplicaId),
        raft: RaftHandle,
        (pace, read_points, awaited): (Pace, ReadPoints, Arc<Awaited>),
        log: Arc<Log>,
        machine: Arc<dyn Machine>,
        gate: Gate,
        (in_flight, in_flight_max): (Arc<Semaphore>, usize),
    ) -> Self {
        Self {
            id,
            replica,
            raft,
            pace,
            log,
            machine,
            gate,
            in_flight,
            in_flight_max,
            flushing: tokio::sync::Mutex::default(),
            receiving: tokio::sync::Mutex::default(),
            read_points,
            awaited,
        }
    }

    /// The group's id.
    #[must_use]
    pub fn id(&self) -> GroupId {
        self.id
    }

    /// This replica's id.
    #[must_use]
    pub fn replica(&self) -> ReplicaId {
        self.replica
    }

    pub(crate) fn raft(&self) -> &RaftHandle {
        &self.raft
    }

    pub(crate) fn machine(&self) -> &dyn Machine {
        self.machine.as_ref()
    }

    /// Lock that is held while a snapshot is being made.
    pub(crate) fn flushing(&self) -> &tokio::sync::Mutex<()> {
        &self.flushing
    }

    /// Snapshot that is being received from another replica, if any.
    pub(crate) fn receiving(&self) -> &tokio::sync::Mutex<Option<Receiving>> {
        &self.receiving
    }

    pub(crate) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Read points of this replica, for while it follows.
    pub(crate) fn read_points(&self) -> &ReadPoints {
        &self.read_points
    }

    /// Maximum bytes of a command that [`Group::propose`] accepts.
    #[must_use]
    pub fn command_bytes_max(&self) -> usize {
        self.log.payload_bytes_max()
    }

    /// Puts a command into the group's log and applies it. Returns when a quorum has it on disk and this replica has
    /// applied it.
    ///
    /// Waits while too many bytes of proposals are in flight on this node, and during an election. Dropping the future
    /// does not withdraw the command.
    ///
    /// # Errors
    /// [`RaftError::NotLeader`], [`RaftError::Unavailable`] and [`RaftError::DiskFull`]: nothing happened, try again.
    /// [`RaftError::OutcomeUnknown`]: try again with the same request identity. Other errors are final.
    pub async fn propose(&self, payload: Bytes) -> Result<Applied, RaftError> {
        let max = self.command_bytes_max();
        if payload.len() > max {
            return Err(RaftError::InvalidInput(format!(
                "a command of {} bytes for group {} is over the limit of {max}",
                payload.len(),
                self.id
            )));
        }
        // Wait for room among the node's in-flight bytes, then wake a sleeping group.
        let units = payload.len().div_ceil(IN_FLIGHT_UNIT).clamp(1, self.in_flight_max);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let _permit = self
            .in_flight
            .acquire_many(units)
            .await
            .map_err(|_| self.stopped("the node shuts down"))?;
        let _busy = self.pace.busy();
        self.pace.stir().await;
        // Propose; repeat while the group has no leader. The limit on the whole loop makes the outcome unknown, since
        // the last attempt may still be applied.
        let mut patience = Patience::new();
        let proposal = tokio::time::timeout(PROPOSE_WAIT, async {
            loop {
                self.admit()?;
                match self.raft.client_write(Command(payload.clone())).await {
                    Ok(response) => {
                        return Ok(Applied {
                            index: response.log_id.index,
                            reply: response.data.0,
                        });
                    }
                    Err(error) => {
                        self.after_refusal(self.write_error(error), &mut patience).await?
                    }
                }
            }
        });
        proposal.await.unwrap_or_else(|_| {
            Err(RaftError::OutcomeUnknown(format!(
                "group {} did not answer within {} seconds",
                self.id,
                PROPOSE_WAIT.as_secs()
            )))
        })
    }

    /// As [`Group::propose`], for a command that followers should apply at once: they are told of its commit without
    /// delay.
    ///
    /// # Errors
    /// As [`Group::propose`].
    pub async fn propose_at_once(&self, payload: Bytes) -> Result<Applied, RaftError> {
        self.awaited.hurry();
        self.propose(payload).await
    }

    /// Returns once a read of the machine sees every write that was acknowledged before the call.
    ///
    /// Needs no message while the leader's lease holds; otherwise one round trip to a quorum. Right after a start it
    /// waits until the log is applied.
    ///
    /// # Errors
    /// [`RaftError::NotLeader`] or [`RaftError::Unavailable`]: try again, perhaps at another replica. Other errors are
    /// final.
    pub async fn read_barrier(&self) -> Result<(), RaftError> {
        if self.leads_alone() {
            return Ok(());
        }
        let mut patience = Patience::new();
        loop {
            let option = LinearizerOption::new(None, true).with_wait_timeout(READ_WAIT);
            match self.raft.ensure_linearizable(option).await {
                Ok(_) => return Ok(()),
                Err(error) => self.after_refusal(self.read_error(error), &mut patience).await?,
            }
        }
    }

    /// The index that another replica must have applied before it answers a read that arrived there before the call. The
    /// other replica has applied the log up to `applied`.
    ///
    /// # Errors
    /// [`RaftError::NotLeader`] or [`RaftError::Unavailable`]: this replica does not lead, or cannot confirm it.
    pub(crate) async fn read_index(&self, applied: u64) -> Result<u64, RaftError> {
        let option = LinearizerOption::new(None, true).with_wait_timeout(READ_WAIT);
        let answer = self.raft.get_read_log_id(option).await;
        let (point, _) = answer.map_err(|error| self.read_error(error))?;
        if applied < point.index() {
            self.awaited.note();
        }
        Ok(point.index())
    }

    /// True if this replica is the only member of its group, leads it, and has applied an entry of its own term: then
    /// it has applied every acknowledged command, and a read needs no round through the group's task.
    ///
    /// No other replica can lead before this changes: this replica must first add it as a member, and that shows here
    /// before the entry that adds it is committed.
    fn leads_alone(&self) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let is_of_current_term = |id: &RaftLogId| {
            id.leader_id.term == metrics.current_term && id.leader_id.node_id == self.replica.0
        };
        metrics.running_state.is_ok()
            && metrics.state == openraft::ServerState::Leader
            && metrics.last_applied.as_ref().is_some_and(is_of_current_term)
            && metrics
                .membership_config
                .membership()
                .nodes()
                .map(|(id, _)| *id)
                .eq([self.replica.0])
    }

    /// Makes a group of one member lead at once, instead of after an election timeout.
    pub(crate) async fn lead_if_alone(&self) -> Result<(), RaftError> {
        let stopped = |fatal: Fatal<Types>| self.stopped(&fatal.to_string());
        if !is_alone(&self.raft).await.map_err(stopped)? {
            return Ok(());
        }
        self.raft.trigger().elect(false).await.map_err(stopped)?;
        let wait = self.raft.wait(Some(LEAD_WAIT));
        let leads = wait.metrics(
            |metrics| {
                metrics.running_state.is_err() || metrics.current_leader == Some(self.replica.0)
            },
            "a group of one member leads",
        );
        match leads.await {
            Ok(metrics) => metrics.running_state.map_err(stopped),
            Err(error) => {
                // Possible on a full disk. The election continues; proposals wait for it or are refused.
                tracing::warn!(group = %self.id, %error, "the group does not lead yet");
                Ok(())
            }
        }
    }

    /// Current term of this replica.
    pub(crate) fn term(&self) -> u64 {
        self.raft.metrics().borrow_watched().current_term
    }

    /// State of the group as this replica knows it. Sends no message.
    #[must_use]
    pub fn status(&self) -> GroupStatus {
        let flushed = self.machine.durable_mark().map(|mark| mark.index());
        let end = end_of(&self.raft);
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        GroupStatus {
            group: self.id,
            replica: self.replica,
            leader: leader_of(&metrics),
            is_leader: end.is_none() && metrics.state == openraft::ServerState::Leader,
            term: metrics.current_term,
            last_index: metrics.last_log_index,
            committed: metrics.local_committed.as_ref().map(|id| id.index),
            applied: metrics.last_applied.as_ref().map(|id| id.index),
            applied_from: metrics
                .last_applied
                .as_ref()
                .map(|id| (id.leader_id.term, ReplicaId(id.leader_id.node_id))),
            flushed,
            purged: metrics.purged.as_ref().map(|id| id.index),
            stopped: end.map(|end| end.to_string()),
        }
    }

    /// Fails if the group's task has ended. Sends no message.
    pub(crate) fn check_running(&self) -> Result<(), RaftError> {
        end_of(&self.raft).map_or(Ok(()), |end| Err(self.stopped(&end.to_string())))
    }

    /// The error to report if the group's task has panicked; `None` if it has not.
    pub(crate) fn panic(&self) -> Option<RaftError> {
        let end = end_of(&self.raft).filter(|end| matches!(end, End::Panicked))?;
        Some(self.stopped(&end.to_string()))
    }

    /// Stops the group on this node. After it returns, the machine is not called any more.
    ///
    /// # Errors
    /// [`RaftError::Stopped`] if the group's task had panicked.
    pub async fn shutdown(&self) -> Result<(), RaftError> {
        let result = self.raft.shutdown().await;
        self.gate.close().await;
        result.map_err(|error| self.stopped(&format!("its task panicked: {error}")))
    }

    pub(crate) fn admit(&self) -> Result<(), RaftError> {
        self.log.admit().map_err(|error| match error {
            RaftError::Io { .. } | RaftError::Corrupted(_) => self.stopped(&error.to_string()),
            error => error,
        })
    }

    /// Waits before a call is repeated, if `error` says that no leader is known: an election is under way, or a quorum
    /// has yet to confirm this replica's leadership. Returns any other error, or the same one if the time is up.
    pub(crate) async fn after_refusal(
        &self,
        error: RaftError,
        patience: &mut Patience,
    ) -> Result<(), RaftError> {
        let RaftError::NotLeader { leader: None } = error else { return Err(error) };
        let remaining = patience.deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(error);
        }
        if patience.pause == PAUSE_MIN {
            self.pace.assert_leadership().await;
        }
        let wait = self.raft.wait(Some(remaining));
        let elected = wait.metrics(
            |metrics| metrics.running_state.is_err() || metrics.current_leader.is_some(),
            "a leader is known",
        );
        elected.await.map_err(|_| error)?;
        // The leader may be known a moment before it can serve: do not spin.
        tokio::time::sleep(patience.pause).await;
        patience.pause = (patience.pause * 2).min(PAUSE_MAX);
        Ok(())
    }

    pub(crate) fn write_error(
        &self,
        error: openraft::errors::RaftError<Types, ClientWriteError<Types>>,
    ) -> RaftError {
        use openraft::errors::RaftError as Raft;
        match error {
            Raft::APIError(ClientWriteError::ForwardToLeader(forward)) => not_leader(&forward),
            Raft::APIError(ClientWriteError::LogEntryDiscarded(_)) => {
                RaftError::OutcomeUnknown(format!("group {} changed its leader", self.id))
            }
            Raft::APIError(ClientWriteError::ChangeMembershipError(error)) => match error {
                ChangeMembershipError::InProgress(_)
                | ChangeMembershipError::UncommittedLeaderLog(_) => {
                    RaftError::Unavailable(format!("group {}: {error}", self.id))
                }
                error => RaftError::InvalidInput(format!("group {}: {error}", self.id)),
            },
            Raft::APIError(error @ ClientWriteError::PreconditionFailed(_)) => {
                RaftError::InvalidInput(error.to_string())
            }
            Raft::Fatal(fatal) => self.fatal(&fatal),
        }
    }

    fn read_error(
        &self,
        error: openraft::errors::RaftError<Types, LinearizableReadError<Types>>,
    ) -> RaftError {
        use openraft::errors::RaftError as Raft;
        match error {
            Raft::APIError(LinearizableReadError::ForwardToLeader(forward)) => not_leader(&forward),
            Raft::APIError(error @ LinearizableReadError::QuorumNotEnough(_)) => {
                RaftError::Unavailable(format!("group {}: {error}", self.id))
            }
            Raft::Fatal(fatal) => self.fatal(&fatal),
        }
    }

    pub(crate) fn fatal(&self, fatal: &Fatal<Types>) -> RaftError {
        // The first error explains the failure; later calls only learn that the group has stopped.
        let first = self
            .raft
            .metrics()
            .borrow_watched()
            .running_state
            .as_ref()
            .err()
            .map(ToString::to_string);
        self.stopped(&first.unwrap_or_else(|| fatal.to_string()))
    }

    fn stopped(&self, reason: &str) -> RaftError {
        RaftError::Stopped { group: self.id, reason: reason.to_owned() }
    }
}

/// Reason why a group's task has ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The task was stopped, or its storage has failed.
    Stopped(Fatal<Types>),
    /// The task panicked: its state in memory cannot be trusted.
    Panicked,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped(fatal) => fatal.fmt(f),
            Self::Panicked => f.write_str("its task has panicked"),
        }
    }
}

/// The leader and its node, as far as a replica knows.
pub(crate) fn leader_of(metrics: &RaftMetrics<Types>) -> Option<(ReplicaId, NodeId)> {
    let leader = metrics.current_leader?;
    let member = metrics.membership_config.membership().get_node(&leader)?;
    Some((ReplicaId(leader), member.node))
}

/// Reason why the group's task has ended; `None` while it runs. Sends no message.
///
/// A task that panics cannot record its end in its metrics; it only drops their sender.
pub(crate) fn end_of(raft: &RaftHandle) -> Option<End> {
    let mut metrics = raft.metrics();
    if let Err(fatal) = &metrics.borrow_and_update().running_state {
        return Some(End::Stopped(fatal.clone()));
    }
    match metrics.changed().now_or_never() {
        Some(Err(_)) => Some(End::Panicked),
        Some(Ok(())) | None => None,
    }
}

/// Deadline of a wait for a leader, and the pause between attempts.
pub(crate) struct Patience {
    deadline: Instant,
    pause: Duration,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self { deadline: Instant::now() + LEADER_WAIT, pause: PAUSE_MIN }
    }
}

/// True if the replica knows of no other member of its group.
pub(crate) async fn is_alone(raft: &RaftHandle) -> Result<bool, Fatal<Types>> {
    let replica = *raft.node_id();
    raft.with_raft_state(move |state| {
        let membership = state.membership_state.effective().membership();
        membership.voter_ids().eq([replica]) && membership.nodes().count() == 1
    })
    .await
}

fn not_leader(forward: &ForwardToLeader<Types>) -> RaftError {
    let leader =
        forward.leader_id.and_then(|leader| Some((ReplicaId(leader), forward.leader_node?.node)));
    RaftError::NotLeader { leader }
}
