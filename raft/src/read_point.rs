//! Reads at followers: the point of the log that a replica must have applied before it answers.
//!
//! ```text
//!   reads ──> waiting ──> one question in flight ──> leader: lease or quorum
//!                                                       │ index
//!   answer <── the machine <── applied here up to it <──┘
//! ```
//!
//! The index is the one of ReadIndex in Raft (Ongaro's thesis, section 6.4): the leader confirms that it leads, and names
//! its commit index, at least that of the first entry of its term.
//!
//! Invariants:
//! - a read takes part only in a question that is sent after the read arrived;
//! - each replica has at most one question in flight;
//! - the age of a point counts from before its question was sent, by the clock of this node alone: all commands that
//!   were acknowledged before then are at or below its index.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use parking_lot::Mutex;
use partita_proto::id::{GroupId, NodeId, ReplicaId};
use partita_proto::wire::pb::RaftReadIndex;
use partita_proto::wire::pb::raft_message::Body;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::RaftError;
use crate::group::{Group, RaftHandle, leader_of};
use crate::peer::{Lane, Peers, Route};
use crate::planted::{self, Plant};
use crate::sense;

/// Maximum time that the leader may take to answer. It may have to hear from a quorum.
const QUESTION_WAIT: Duration = Duration::from_secs(1);
/// Maximum time that a read waits for the log to be applied up to its point. Another replica is tried after that.
const APPLY_WAIT: Duration = Duration::from_millis(500);

/// Asks the leader for the index of a read point.
pub(crate) type Ask =
    Box<dyn Fn() -> BoxFuture<'static, Result<u64, RaftError>> + Send + Sync + 'static>;

/// Replica that has answered a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadBy {
    /// The replica that takes the writes.
    Leader,
    /// Any other replica.
    Follower,
}

/// An index that all commands are at or below which were acknowledged before a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadPoint {
    /// Time just before the question was sent.
    asked: Instant,
    index: u64,
}

#[derive(Default)]
struct State {
    /// Reads that the next question serves.
    waiting: Vec<oneshot::Sender<Result<ReadPoint, RaftError>>>,
    /// True if the next question is to be asked even if no read waits for it.
    renew: bool,
    /// True while a task asks.
    asking: bool,
    newest: Option<ReadPoint>,
}

struct Shared {
    ask: Ask,
    state: Mutex<State>,
}

/// The read points of one replica.
pub(crate) struct ReadPoints(Arc<Shared>);

impl ReadPoints {
    pub(crate) fn new(ask: Ask) -> Self {
        Self(Arc::new(Shared { ask, state: Mutex::default() }))
    }

    /// The newest point, if its age at `time` is below `age_max`. Asks for another one without waiting when half of
    /// that has passed, so that frequent reads never wait.
    fn within(&self, time: Instant, age_max: Duration) -> Option<ReadPoint> {
        let mut state = self.0.state.lock();
        let newest = state.newest?;
        let age = time.saturating_duration_since(newest.asked);
        if age >= age_max {
            return None;
        }
        if age >= age_max / 2 && !state.asking {
            state.renew = true;
            self.start(&mut state);
        }
        Some(newest)
    }

    /// A point whose question is sent after the call.
    async fn next(&self) -> Result<ReadPoint, RaftError> {
        let (sender, answer) = oneshot::channel();
        {
            let mut state = self.0.state.lock();
            state.waiting.push(sender);
            self.start(&mut state);
        }
        answer.await.unwrap_or_else(|_| {
            Err(RaftError::Unavailable("the question for a read point was given up".to_owned()))
        })
    }

    /// Starts the task that asks, unless it runs.
    fn start(&self, state: &mut State) {
        if !std::mem::replace(&mut state.asking, true) {
            tokio::spawn(ask_for_all(Arc::clone(&self.0)));
        }
    }
}

/// The task that asks. When it ends with its runtime, reads that wait are given up, and the next read starts another one.
struct Asking {
    shared: Arc<Shared>,
    is_done: bool,
}

impl Asking {
    /// The reads that the next question serves; `None` if there is nothing to ask.
    fn take(&mut self) -> Option<Vec<oneshot::Sender<Result<ReadPoint, RaftError>>>> {
        let mut state = self.shared.state.lock();
        // Reads of cancelled statements need no answer.
        state.waiting.retain(|read| !read.is_closed());
        if state.waiting.is_empty() && !state.renew {
            state.asking = false;
            self.is_done = true;
            return None;
        }
        state.renew = false;
        Some(std::mem::take(&mut state.waiting))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.is_done {
            let mut state = self.shared.state.lock();
            state.asking = false;
            state.waiting.clear();
        }
    }
}

/// Asks one question after the other, each for all reads that wait by then, until none waits.
async fn ask_for_all(shared: Arc<Shared>) {
    let mut asking = Asking { shared, is_done: false };
    while let Some(waiting) = asking.take() {
        let start = Instant::now();
        let answer = (asking.shared.ask)().await;
        let answer = answer.map(|index| ReadPoint { asked: start, index });
        if let Ok(point) = &answer {
            asking.shared.state.lock().newest = Some(*point);
        }
        for read in waiting {
            // The read may have been given up.
            read.send(answer.clone()).ok();
        }
    }
}

/// The question to the leader of a group, over the link to its node.
pub(crate) fn question(
    raft: RaftHandle,
    peers: Arc<Peers>,
    group: GroupId,
    replica: ReplicaId,
) -> Ask {
    Box::new(move || {
        let (raft, peers) = (raft.clone(), Arc::clone(&peers));
        Box::pin(async move { ask_leader(&raft, &peers, group, replica).await })
    })
}

async fn ask_leader(
    raft: &RaftHandle,
    peers: &Peers,
    group: GroupId,
    replica: ReplicaId,
) -> Result<u64, RaftError> {
    let (leader, applied) = leader_and_applied(raft);
    // A replica that leads by now answers as the leader.
    let (receiver, node) =
        leader.filter(|(leader, _)| *leader != replica).ok_or(RaftError::NotLeader { leader })?;
    let route = Route { group, from: replica, to: receiver };
    let body = Body::ReadIndex(RaftReadIndex { applied });
    let answer = peers.peer(node).call(Lane::Control, route, body, QUESTION_WAIT).await;
    let unavailable = |why: &dyn std::fmt::Display| {
        RaftError::Unavailable(format!("group {group}: no read point from node {node}: {why}"))
    };
    let answer = answer.map_err(|error| unavailable(&error))?;
    // The term is not part of the answer.
    sense::check(&answer, 0)?;
    match answer {
        Body::ReadPoint(point) => Ok(point.index),
        _ => Err(unavailable(&"an answer of an unknown kind")),
    }
}

/// The leader and its node, and the index up to which the log is applied here.
fn leader_and_applied(raft: &RaftHandle) -> (Option<(ReplicaId, NodeId)>, u64) {
    let metrics = raft.metrics();
    let metrics = metrics.borrow_watched();
    (leader_of(&metrics), metrics.last_applied.as_ref().map_or(0, |id| id.index))
}

impl Group {
    /// Returns once a read of the machine here sees every command that was acknowledged more than `staleness_max`
    /// before the call; with zero, every one that was acknowledged before the call.
    ///
    /// At the leader this is [`Group::read_barrier`]. Another replica asks the leader for a read point, unless it has
    /// one that is new enough, and waits until the log is applied up to there.
    ///
    /// # Errors
    /// [`RaftError::NotLeader`] or [`RaftError::Unavailable`]: try the leader, or another replica. Other errors are
    /// final for this replica.
    pub async fn read_barrier_anywhere(
        &self,
        staleness_max: Duration,
    ) -> Result<ReadBy, RaftError> {
        let arrival = Instant::now();
        self.check_running()?;
        let leads = self.raft().metrics().borrow_watched().state == ServerState::Leader;
        if leads {
            return self.read_barrier().await.map(|()| ReadBy::Leader);
        }
        if planted::is(Plant::ReadUnasked) {
            return Ok(ReadBy::Follower);
        }
        let point = match self.read_points().within(arrival, staleness_max) {
            Some(point) => point,
            None => self.read_points().next().await?,
        };
        self.apply_up_to(point.index).await.map(|()| ReadBy::Follower)
    }

    /// Waits until the log is applied here up to an index.
    async fn apply_up_to(&self, index: u64) -> Result<(), RaftError> {
        let (_, applied) = leader_and_applied(self.raft());
        if applied >= index {
            return Ok(());
        }
        let wait = self.raft().wait(Some(APPLY_WAIT));
        let applied = wait.applied_index_at_least(Some(index), "a read point is applied").await;
        self.check_running()?;
        applied.map(drop).map_err(|_| {
            RaftError::Unavailable(format!(
                "replica {} of group {} has not applied entry {index} within {} ms",
                self.replica(),
                self.id(),
                APPLY_WAIT.as_millis()
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    /// A leader that answers each question with the number of questions so far, once it is let to.
    struct Leader {
        asked: AtomicU64,
        answers: Semaphore,
    }

    fn points() -> (Arc<Leader>, Arc<ReadPoints>) {
        let leader = Arc::new(Leader { asked: AtomicU64::new(0), answers: Semaphore::new(0) });
        let asked = Arc::clone(&leader);
        let ask: Ask = Box::new(move || {
            let leader = Arc::clone(&asked);
            Box::pin(async move {
                let number = leader.asked.fetch_add(1, Ordering::SeqCst) + 1;
                leader.answers.acquire().await.unwrap().forget();
                Ok(number)
            })
        });
        (leader, Arc::new(ReadPoints::new(ask)))
    }

    fn read(points: &Arc<ReadPoints>) -> tokio::task::JoinHandle<Result<ReadPoint, RaftError>> {
        let points = Arc::clone(points);
        tokio::spawn(async move { points.next().await })
    }

    /// Lets all other tasks run until they wait.
    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn one_question_serves_all_reads_that_came_before_it_was_sent() {
        let (leader, points) = points();
        let first = read(&points);
        settle().await;
        assert_eq!(leader.asked.load(Ordering::SeqCst), 1);
        // These come while the first question is in flight: its answer may be older than they are.
        let later: Vec<_> = (0..50).map(|_| read(&points)).collect();
        settle().await;
        assert_eq!(leader.asked.load(Ordering::SeqCst), 1, "one question at a time");
        leader.answers.add_permits(2);
        assert_eq!(first.await.unwrap().unwrap().index, 1);
        for read in later {
            assert_eq!(read.await.unwrap().unwrap().index, 2);
        }
        settle().await;
        assert_eq!(leader.asked.load(Ordering::SeqCst), 2);
        assert!(!points.0.state.lock().asking);
    }

    #[tokio::test]
    async fn reads_that_were_given_up_are_not_asked_for() {
        let (leader, points) = points();
        let first = read(&points);
        settle().await;
        let second = read(&points);
        settle().await;
        second.abort();
        settle().await;
        leader.answers.add_permits(1);
        assert_eq!(first.await.unwrap().unwrap().index, 1);
        settle().await;
        assert_eq!(leader.asked.load(Ordering::SeqCst), 1);
        leader.answers.add_permits(1);
        assert_eq!(read(&points).await.unwrap().unwrap().index, 2, "the next one is asked for");
    }

    #[tokio::test]
    async fn a_point_serves_while_it_is_new_enough_and_is_renewed_before_it_is_not() {
        let (leader, points) = points();
        leader.answers.add_permits(10);
        let bound = Duration::from_secs(4);
        assert_eq!(points.within(Instant::now(), bound), None, "there is none yet");
        let point = read(&points).await.unwrap().unwrap();
        settle().await;
        assert_eq!(points.within(point.asked, bound), Some(point));
        assert_eq!(points.within(point.asked, Duration::ZERO), None, "a linearizable read asks");
        assert_eq!(points.within(point.asked + bound, bound), None);
        settle().await;
        assert_eq!(leader.asked.load(Ordering::SeqCst), 1);
        assert_eq!(points.within(point.asked + bound / 2, bound), Some(point));
        settle().await;
        assert_eq!(leader.asked.load(Ordering::SeqCst), 2, "renewed, and nobody waited");
        assert_eq!(points.0.state.lock().newest.map(|point| point.index), Some(2));
    }

    #[tokio::test]
    async fn a_task_that_ends_with_its_runtime_leaves_no_read_waiting_for_ever() {
        let (leader, points) = points();
        let asking = Asking { shared: Arc::clone(&points.0), is_done: false };
        points.0.state.lock().asking = true;
        let lost = read(&points);
        settle().await;
        drop(asking);
        assert!(matches!(lost.await.unwrap(), Err(RaftError::Unavailable(_))));
        leader.answers.add_permits(1);
        assert_eq!(read(&points).await.unwrap().unwrap().index, 1);
    }

    #[tokio::test]
    async fn a_refusal_reaches_all_reads_and_leaves_no_point() {
        let ask: Ask =
            Box::new(|| Box::pin(std::future::ready(Err(RaftError::NotLeader { leader: None }))));
        let points = Arc::new(ReadPoints::new(ask));
        let reads: Vec<_> = (0..3).map(|_| read(&points)).collect();
        for read in reads {
            let refused = read.await.unwrap();
            assert!(matches!(refused, Err(RaftError::NotLeader { leader: None })), "{refused:?}");
        }
        assert_eq!(points.within(Instant::now(), Duration::from_secs(9)), None);
    }
}
