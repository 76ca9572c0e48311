//! Runs and stops the clock of a group.
//!
//! openraft needs ticks, and they cost more than anything else in an idle group: hundreds of idle groups would keep a
//! core busy. So ticks stop where no timeout is running.
//!
//! ```text
//!            gets a second member              idle, and all members have everything
//!   Still  ----------------------->  Awake  ------------------------------------------>  Asleep
//!          <-----------------------   ^  ^  <------------------------------------------
//!            leads, and is alone      |  |     a proposal, any message of the group, silence of the leader's node
//!                                     |
//!   Held  ----------------------------+
//!     the promises from before the restart have run out
//! ```
//!
//! A leader that sleeps sends no heartbeats. Instead its node's beats, one message for all groups that a pair of nodes
//! shares, name the group: as long as they do, its followers sleep too.
//!
//! Invariants:
//! - a follower sleeps only while its leader's node names the group, with the leader, term and index that the follower
//!   itself has: all of the log is committed and applied on both sides;
//! - sleep never extends a lease. A leader that slept contacts a quorum before it serves a read or takes a command;
//! - a replica that restarted neither votes nor stands for election before the leases have expired to which it may have
//!   contributed: openraft forgets at a restart what it had promised.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::{Instant as _, ServerState};
use parking_lot::Mutex;
use partita_proto::id::{GroupId, NodeId, ReplicaId};
use partita_proto::wire::pb::RaftAsleep;
use tokio::time::Instant;

use crate::group::{RaftHandle, end_of};
use crate::settings::{ELECTION_MAX_MS, ELECTION_MIN_MS, HEARTBEAT_MS};

/// Idle time before a leader sleeps. Long compared with a heartbeat: waking costs a round of messages.
const IDLE: Duration = Duration::from_secs(2);
/// Maximum time since a member's last answer for the member to count as present.
const FRESH: Duration = Duration::from_millis(3 * HEARTBEAT_MS);
/// Time for which a leader serves reads after a quorum has answered it.
const LEASE: Duration = Duration::from_millis(ELECTION_MAX_MS);
/// Minimum time that a sleeping follower waits for the next beat.
const PATIENCE_MIN: Duration = Duration::from_millis(ELECTION_MIN_MS);
/// Per-replica jitter of that time, so that the replicas of a group do not all stand for election at once.
const SPREAD_MS: u64 = ELECTION_MAX_MS - ELECTION_MIN_MS;

/// State of a group on which sleeping depends.
#[derive(Clone, Debug, PartialEq, Eq)]
struct View {
    /// True if the group has no other member.
    sole_member: bool,
    leads: bool,
    place: Place,
    /// True if all of the log is committed and applied here.
    settled: bool,
    /// True if all other members have all of the log, and answered recently. Known to the leader only.
    caught_up: bool,
}

/// Fingerprint of the group's state: while it stays the same, the group is idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    term: u64,
    leader: Option<u64>,
    last: Option<u64>,
    membership: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Still,
    Held { until: Instant },
    Awake,
    Asleep,
}

#[derive(Clone, Copy, Debug)]
struct State {
    mode: Mode,
    place: Place,
    /// Time since when the place has been the same.
    since: Instant,
    /// Time when the leader's node last named the group in a beat.
    heard: Instant,
}

/// Next mode of a group's clock.
fn decide(state: &State, view: &View, busy: bool, patience: Duration, time: Instant) -> Mode {
    let unchanged = view.place == state.place;
    match state.mode {
        Mode::Held { until: expiry } if time < expiry => state.mode,
        Mode::Still if view.sole_member => Mode::Still,
        Mode::Still | Mode::Held { .. } => Mode::Awake,
        Mode::Awake if view.sole_member && view.leads => Mode::Still,
        Mode::Awake => {
            let idle = unchanged && time - state.since >= IDLE && !busy;
            if view.leads && view.settled && view.caught_up && idle {
                Mode::Asleep
            } else {
                Mode::Awake
            }
        }
        Mode::Asleep => {
            let called_for = view.leads || time - state.heard <= patience;
            if unchanged && view.settled && !busy && called_for {
                Mode::Asleep
            } else {
                Mode::Awake
            }
        }
    }
}

/// The clock of one group.
pub(crate) struct Pace {
    raft: RaftHandle,
    group: GroupId,
    replica: ReplicaId,
    state: Mutex<State>,
    /// Copy of the mode in `state`, readable without a lock.
    asleep: AtomicBool,
    /// Number of in-flight proposals.
    busy: AtomicU64,
    /// Time until which this replica gives no vote.
    promised_until: Option<Instant>,
}

/// Counts as one in-flight proposal while it lives.
pub(crate) struct Busy<'a>(&'a AtomicU64);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pace {
    /// Clock of a group that has just been started; `promised`: the replica may have run before, and may have promised
    /// its vote to a leader's lease.
    pub(crate) fn new(
        raft: RaftHandle,
        group: GroupId,
        replica: ReplicaId,
        promised: bool,
    ) -> Self {
        let time = Instant::now();
        let promised_until = promised.then(|| time + LEASE);
        let mode = promised_until
            .map_or(Mode::Still, |expiry| Mode::Held { until: expiry + spread(group, replica) });
        let state = State { mode, place: Place::default(), since: time, heard: time };
        Self {
            raft,
            group,
            replica,
            state: Mutex::new(state),
            asleep: AtomicBool::new(false),
            busy: AtomicU64::new(0),
            promised_until,
        }
    }

    /// Guard to be held while a proposal is in flight.
    pub(crate) fn busy(&self) -> Busy<'_> {
        self.busy.fetch_add(1, Ordering::Relaxed);
        Busy(&self.busy)
    }

    /// Wakes the group. A leader wakes its followers too.
    pub(crate) async fn stir(&self) {
        if !self.asleep.load(Ordering::Acquire) {
            return;
        }
        {
            let mut state = self.state.lock();
            if state.mode != Mode::Asleep {
                return;
            }
            self.enter(&mut state, Mode::Awake);
            state.since = Instant::now();
        }
        self.assert_leadership().await;
    }

    /// Makes a leader confirm its leadership with its followers at once, instead of with the next tick.
    pub(crate) async fn assert_leadership(&self) {
        let leads = self.raft.metrics().borrow_watched().state == ServerState::Leader;
        if leads && let Err(fatal) = self.raft.trigger().heartbeat().await {
            tracing::debug!(group = %self.group, %fatal, "no heartbeat");
        }
    }

    /// Reason for which this replica gives no vote now, if any. `preliminary`: a pre-vote, which only probes whether an
    /// election would succeed.
    pub(crate) fn withholds_vote(&self, preliminary: bool) -> Option<&'static str> {
        let time = Instant::now();
        if self.promised_until.is_some_and(|expiry| time < expiry) {
            return Some("it has just started, and may have promised its vote to another leader");
        }
        let state = self.state.lock();
        if preliminary && state.mode == Mode::Asleep {
            let leads = state.place.leader == Some(self.replica.0);
            if leads || time - state.heard < PATIENCE_MIN {
                return Some("its leader is asleep, not lost");
            }
        }
        None
    }

    /// Decides whether the clock runs. For a leader that sleeps, returns the content of its node's beats and the nodes
    /// to send them to.
    pub(crate) fn step(&self) -> Option<(RaftAsleep, Vec<NodeId>)> {
        let time = Instant::now();
        let view = self.view();
        let busy = self.busy.load(Ordering::Relaxed) > 0;
        let patience = PATIENCE_MIN + spread(self.group, self.replica);
        let mut state = self.state.lock();
        let mode = decide(&state, &view, busy, patience, time);
        if view.place != state.place {
            state.place = view.place;
            state.since = time;
        }
        if mode != state.mode {
            if state.mode == Mode::Asleep {
                state.since = time;
            }
            self.enter(&mut state, mode);
        }
        if mode != Mode::Asleep || !view.leads {
            return None;
        }
        let notice = RaftAsleep {
            group: self.group.0,
            term: view.place.term,
            leader: self.replica.0,
            index: view.place.last?,
        };
        Some((notice, self.others()))
    }

    /// Handles a beat in which the leader's node names this group.
    pub(crate) fn heard(&self, notice: &RaftAsleep) {
        let time = Instant::now();
        let view = self.view();
        let agrees = !view.leads
            && view.settled
            && view.place.term == notice.term
            && view.place.leader == Some(notice.leader)
            && view.place.last == Some(notice.index);
        let mut state = self.state.lock();
        if agrees && matches!(state.mode, Mode::Awake | Mode::Asleep) {
            state.heard = time;
            state.place = view.place;
            if state.mode == Mode::Awake {
                self.enter(&mut state, Mode::Asleep);
            }
        }
    }

    fn enter(&self, state: &mut State, mode: Mode) {
        tracing::trace!(group = %self.group, ?mode, "the clock");
        state.mode = mode;
        self.asleep.store(mode == Mode::Asleep, Ordering::Release);
        self.raft.runtime_config().tick(mode == Mode::Awake);
    }

    fn view(&self) -> View {
        let runs = end_of(&self.raft).is_none();
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let last = metrics.last_log_index;
        let index_is_last = |index: Option<u64>| last.is_some() && index == last;
        let mut peers = metrics
            .membership_config
            .membership()
            .nodes()
            .map(|(replica, _)| *replica)
            .filter(|replica| *replica != self.replica.0)
            .peekable();
        // Only the leader knows how far its peers are: `caught_up` needs all of the log and a recent answer from each.
        let sole_member = peers.peek().is_none();
        let matched = metrics.replication.as_ref();
        let answered = metrics.heartbeat.as_ref();
        let caught_up = peers.all(|replica| {
            let matched = matched.and_then(|matched| matched.get(&replica)?.as_ref());
            let answered = answered.and_then(|answered| answered.get(&replica)?.as_ref());
            index_is_last(matched.map(|id| id.index))
                && answered.is_some_and(|answered| answered.elapsed() <= FRESH)
        });
        View {
            sole_member,
            leads: runs && metrics.state == ServerState::Leader,
            place: Place {
                term: metrics.current_term,
                leader: metrics.current_leader,
                last,
                membership: metrics.membership_config.log_id().as_ref().map(|id| id.index),
            },
            settled: runs
                && index_is_last(metrics.local_committed.as_ref().map(|id| id.index))
                && index_is_last(metrics.last_applied.as_ref().map(|id| id.index)),
            caught_up,
        }
    }

    fn others(&self) -> Vec<NodeId> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let members = metrics.membership_config.membership().nodes();
        let peers = members.filter(|(replica, _)| **replica != self.replica.0);
        peers.map(|(_, member)| member.node).collect()
    }

    #[cfg(test)]
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Acquire)
    }
}

/// Per-replica addition to [`PATIENCE_MIN`]: constant for one replica, and different among the replicas of a group.
fn spread(group: GroupId, replica: ReplicaId) -> Duration {
    let mixed = (group.0 ^ replica.0.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Duration::from_millis((mixed >> 32) % SPREAD_MS)
}

#[cfg(test)]
mod scripts;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_of_a_group_differ_in_patience() {
        let spreads: Vec<_> = (70..73).map(|id| spread(GroupId(7), ReplicaId(id))).collect();
        assert!(spreads.iter().all(|spread| *spread < LEASE));
        assert!(spreads[0] != spreads[1] && spreads[1] != spreads[2]);
    }
}
