//! Small writes to one partition that come while others are on their way to it go together: one request, one entry of
//! the log and one look at the network for many clients that write a row each.
//!
//! ```text
//!   small part ── fewer on their way than may be? ─ yes ─▶ goes at once, by itself
//!                        └─ no ─▶ waits ─▶ goes with all others that wait when one of those has come back
//! ```
//!
//! What goes by itself costs each replica as much as what goes with twenty others. While few requests are on their way,
//! nothing is held back to have company. From [`BUSY_FLIGHTS`] on, to whichever partitions, the nodes have enough to do:
//! then one request at a time is on its way to a partition, and when it has come back, those who were answered get a
//! moment to write again. Without that, clients that wait for each answer fall into two halves, of which each waits for
//! the other's request and then for its own.
//!
//! Invariants:
//! - what waits, waits for what went before it, in order, and for a part of that request's time more at most;
//! - what goes together is one [`Part`] with one identity, and takes effect as a whole; each is answered when all of it
//!   has, and by what it came to;
//! - when it is refused without having had any effect, each is sent by itself: nobody is refused for another's rows;
//! - whoever stops waiting takes nothing with him: the others' rows go all the same.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arrow::compute::concat_batches;
use datafusion::execution::SessionState;
use parking_lot::Mutex;
use partita_proto::Error;
use partita_proto::id::{Epoch, PartitionId, SchemaVersion};
use partita_proto::service::WriteKind;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

use super::{Failed, Part, Router};

/// Parts larger than this cost mostly what their rows do, and gain little by company.
pub(super) const SMALL_BYTES: usize = 4 << 10;
/// Rows that go together.
const TOGETHER_BYTES_MAX: usize = 256 << 10;
/// Requests of small parts that are on their way to a partition at the same time. With one, the partition would have
/// nothing to do while an answer is on its way back.
const FLIGHTS_MAX: usize = 2;
/// The same while so many are on their way to all partitions: their nodes have other things to do meanwhile.
const BUSY_FLIGHTS: usize = 4;
/// Those who were answered get this part of the time that it took to write again, before what waits goes on.
const GATHER_PART: u32 = 4;
/// And no longer than this.
const GATHER_MAX: Duration = Duration::from_millis(5);
/// From so many that wait on, those that have gone away are looked for now and then: what they take is no longer counted
/// among the bytes that are on their way.
const TIDY_MIN: usize = 64;

/// What may go together: rows under one schema and one route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Target {
    partition: PartitionId,
    epoch: Epoch,
    schema: SchemaVersion,
    kind: WriteKind,
}

/// A part that waits.
struct Waiting {
    part: Part,
    bytes: usize,
    deadline: Instant,
    answer: oneshot::Sender<Result<(), Failed>>,
}

#[derive(Default)]
struct Queue {
    /// Requests on their way, one that gathers its next parts among them.
    flights: usize,
    waiting: VecDeque<Waiting>,
    gathering: Option<Gathering>,
}

/// A request that has come back and is about to go on with those who wait.
struct Gathering {
    /// As many as were answered or waited then: when they are there again nobody else is waited for.
    expected: usize,
    complete: Arc<Notify>,
}

#[derive(Default)]
struct Queues {
    /// Of all targets.
    flights: usize,
    by_target: HashMap<Target, Queue>,
}

/// Where something is on its way to, and who waits.
#[derive(Default)]
pub(super) struct Together {
    queues: Mutex<Queues>,
}

/// How many requests may be on their way to a partition, given those to all.
fn flights_max(all: usize) -> usize {
    if all < BUSY_FLIGHTS { FLIGHTS_MAX } else { 1 }
}

/// For how long a request that has come back gathers others before it goes on, and with how many it goes at once; given
/// the requests on their way to all partitions and to this one (it is still among them), how many wait, how many it has
/// answered, and how long it took.
fn gather(
    all: usize,
    here: usize,
    waiting: usize,
    answered: usize,
    took: Duration,
) -> Option<(Duration, usize)> {
    let expected = waiting + answered;
    let worthwhile = all >= BUSY_FLIGHTS && here == 1 && expected > 1;
    worthwhile.then(|| ((took / GATHER_PART).min(GATHER_MAX), expected))
}

/// How a part goes on.
enum Turn {
    Now(Box<Part>),
    Later(oneshot::Receiver<Result<(), Failed>>),
}

impl Together {
    fn enter(&self, target: Target, part: Part, bytes: usize, deadline: Instant) -> Turn {
        let mut queues = self.queues.lock();
        let limit = flights_max(queues.flights);
        let queue = queues.by_target.entry(target).or_default();
        // Nobody goes ahead of those who wait.
        if queue.flights < limit && queue.waiting.is_empty() {
            queue.flights += 1;
            queues.flights += 1;
            return Turn::Now(Box::new(part));
        }
        let (answer, answered) = oneshot::channel();
        queue.waiting.push_back(Waiting { part, bytes, deadline, answer });
        if queue.waiting.len() >= TIDY_MIN && queue.waiting.len().is_power_of_two() {
            queue.waiting.retain(|waiting| !waiting.answer.is_closed());
        }
        if let Some(gathering) = &queue.gathering
            && queue.waiting.len() >= gathering.expected
        {
            gathering.complete.notify_one();
        }
        Turn::Later(answered)
    }

    /// One has come back and has answered so many: for how long it gathers others before it leaves again, if it does,
    /// and what says that they are all there.
    fn gather(
        &self,
        target: Target,
        answered: usize,
        took: Duration,
    ) -> Option<(Duration, Arc<Notify>)> {
        let mut queues = self.queues.lock();
        let all = queues.flights;
        let queue = queues.by_target.get_mut(&target)?;
        let (time, expected) = gather(all, queue.flights, queue.waiting.len(), answered, took)?;
        let complete = Arc::new(Notify::new());
        queue.gathering = Some(Gathering { expected, complete: Arc::clone(&complete) });
        Some((time, complete))
    }

    /// One leaves again: those who go with it, in order. When nobody waits, or enough others are on their way, it is over.
    fn leave(&self, target: Target) -> Vec<Waiting> {
        let mut queues = self.queues.lock();
        let limit = flights_max(queues.flights);
        let Some(queue) = queues.by_target.get_mut(&target) else { return Vec::new() };
        queue.gathering = None;
        let (mut next, mut bytes) = (Vec::new(), 0);
        while queue.flights <= limit
            && let Some(first) = queue.waiting.front()
            && (next.is_empty() || bytes + first.bytes <= TOGETHER_BYTES_MAX)
            && let Some(first) = queue.waiting.pop_front()
        {
            // Who has gone away was told that nobody knows; it is not sent behind his back.
            if !first.answer.is_closed() {
                bytes += first.bytes;
                next.push(first);
            }
        }
        if next.is_empty() {
            queue.flights -= 1;
            if queue.flights == 0 {
                queues.by_target.remove(&target);
            }
            queues.flights -= 1;
        }
        next
    }
}

#[cfg(test)]
impl Router {
    /// Parts that wait for others.
    pub(crate) fn waiting(&self) -> usize {
        self.together.queues.lock().by_target.values().map(|queue| queue.waiting.len()).sum()
    }
}

/// A request that is on its way. When it comes back, or whoever sent it goes away, those who wait go on.
struct Flight {
    router: Arc<Router>,
    state: Arc<SessionState>,
    target: Target,
    /// How many wait for it.
    parts: usize,
    began: Instant,
}

impl Flight {
    fn new(router: &Arc<Router>, state: &Arc<SessionState>, target: Target, parts: usize) -> Self {
        let (router, state) = (Arc::clone(router), Arc::clone(state));
        Self { router, state, target, parts, began: Instant::now() }
    }

    /// Sends what comes next, if anything does.
    async fn go(router: Arc<Router>, state: Arc<SessionState>, target: Target, next: Vec<Waiting>) {
        if !next.is_empty() {
            let flight = Self::new(&router, &state, target, next.len());
            router.send_together(&flight.state, next).await;
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let runtime = self.router.home().clone();
        let (router, state) = (Arc::clone(&self.router), Arc::clone(&self.state));
        let target = self.target;
        let gather = router.together.gather(target, self.parts, self.began.elapsed());
        if let Some((time, complete)) = gather {
            runtime.spawn(async move {
                timeout(time, complete.notified()).await.ok();
                let next = router.together.leave(target);
                Self::go(router, state, target, next).await;
            });
            return;
        }
        let next = router.together.leave(target);
        if !next.is_empty() {
            runtime.spawn(Self::go(router, state, target, next));
        }
    }
}

impl Router {
    /// Sends a part of so few bytes, perhaps with others.
    pub(super) async fn send_small(
        self: &Arc<Self>,
        state: &Arc<SessionState>,
        part: Part,
        bytes: usize,
        deadline: Instant,
    ) -> Result<(), Failed> {
        let partition = part.route.partition;
        let target = Target {
            partition,
            epoch: part.route.epoch,
            schema: part.table.schema.version,
            kind: part.kind,
        };
        let (table, route) = (Arc::clone(&part.table), part.route.clone());
        match self.together.enter(target, part, bytes, deadline) {
            Turn::Now(part) => {
                let flight = Flight::new(self, state, target, 1);
                self.send(&flight.state, *part, deadline).await
            }
            Turn::Later(answered) => {
                let why = match tokio::time::timeout_at(deadline, answered).await {
                    Ok(Ok(sent)) => return sent,
                    Ok(Err(_)) => Error::Unavailable("the frontend is stopping".to_owned()),
                    Err(_) => Error::Timeout("no answer to the writes before it".to_owned()),
                };
                let error = self.too_late(&table, &route, true, why);
                Err(Failed { partition, error, perhaps: true })
            }
        }
    }

    /// Sends parts of one target as one, and answers each.
    async fn send_together(&self, state: &Arc<SessionState>, together: Vec<Waiting>) {
        let deadline = together.iter().map(|waiting| waiting.deadline).max();
        let one = match together.as_slice() {
            [] | [_] => None,
            [first, ..] => joined(self, first, &together),
        };
        if let (Some(part), Some(deadline)) = (one, deadline) {
            self.metrics.joined_writes.add(together.len() as u64);
            let sent = self.send(state, part, deadline).await;
            if !sent.as_ref().is_err_and(|failed| failed.is_refusal()) {
                for waiting in together {
                    // Who has gone away does not want to know.
                    waiting.answer.send(sent.clone()).ok();
                }
                return;
            }
        }
        for Waiting { mut part, deadline, answer, .. } in together {
            // Numbered as it sets out, which it does for the first time: one that waited must not look as if it came again.
            part.id = self.next_id();
            answer.send(self.send(state, part, deadline).await).ok();
        }
    }
}

/// All rows as one part; `None` when they do not fit together after all.
fn joined(router: &Router, first: &Waiting, together: &[Waiting]) -> Option<Part> {
    let Part { table, route, kind, rows, .. } = &first.part;
    let all = together.iter().map(|waiting| &waiting.part.rows);
    let rows = concat_batches(rows.schema_ref(), all).ok()?;
    Some(Part {
        table: Arc::clone(table),
        route: route.clone(),
        id: router.next_id(),
        earlier: Vec::new(),
        kind: *kind,
        rows,
        uncertain: AtomicBool::new(false),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_millis(8);

    #[test]
    fn nobody_is_waited_for_while_few_requests_are_on_their_way() {
        assert_eq!(gather(BUSY_FLIGHTS - 1, 1, 20, 20, ROUND), None);
        assert_eq!((flights_max(0), flights_max(BUSY_FLIGHTS - 1)), (FLIGHTS_MAX, FLIGHTS_MAX));
    }

    #[test]
    fn those_who_were_answered_are_waited_for_while_many_are() {
        assert_eq!(flights_max(BUSY_FLIGHTS), 1);
        assert_eq!(gather(BUSY_FLIGHTS, 1, 3, 2, ROUND), Some((Duration::from_millis(2), 5)));
        assert_eq!(gather(9, 1, 0, 4, 100 * ROUND), Some((GATHER_MAX, 4)));
    }

    #[test]
    fn nobody_is_waited_for_where_nobody_would_go_along() {
        assert_eq!(gather(9, 1, 0, 1, ROUND), None, "one client, and nobody else");
        assert_eq!(gather(9, 2, 3, 2, ROUND), None, "the other one takes them along");
    }
}
