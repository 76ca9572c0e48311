//! Sends small writes to one partition together: one request, one log entry and one network round trip for many
//! clients that write a row each.
//!
//! ```text
//!   small part ── fewer requests in flight than the limit? ─ yes ─▶ sent at once, alone
//!                        └─ no ─▶ waits ─▶ sent with all other waiting parts when a request has returned
//! ```
//!
//! A part sent alone costs each replica as much as one sent with twenty others. While few requests are in flight, no
//! part waits for company. From [`BUSY_FLIGHTS`] requests on, to any partitions, the nodes are busy: then each
//! partition has one request in flight, and when it has returned, the clients that were answered get a moment to
//! write again. Without that moment, clients that wait for each answer split into two halves, each of which waits for
//! the other's request and then for its own.
//!
//! Invariants:
//! - a part waits for the earlier request, in order, and then for a fraction of that request's duration at most;
//! - parts sent together are one [`Part`] with one identity, which is atomic; each client gets the result of the
//!   whole;
//! - of rows of one key, only the last one is sent where it replaces the others (`coalesce.rs`);
//! - if the whole is refused without effect, each part is sent alone: no client gets an error for another's rows;
//! - a client that stops waiting does not affect the other parts.

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

use super::coalesce::{last_rows, replaces};
use super::{Debt, Failed, Part, Router};

/// Maximum bytes of a small part; larger ones gain little by being sent together.
pub(super) const SMALL_BYTES: usize = 4 << 10;
/// Maximum bytes of parts sent together.
const TOGETHER_BYTES_MAX: usize = 256 << 10;
/// Maximum requests of small parts in flight to a partition. With only one, the partition would be idle while an
/// answer travels back.
const FLIGHTS_MAX: usize = 2;
/// Requests in flight to all partitions from which on each partition gets only one: its nodes are busy with the
/// others.
const BUSY_FLIGHTS: usize = 4;
/// Answered clients get `1 / GATHER_PART` of the request's duration to write again before the waiting parts are sent.
const GATHER_PART: u32 = 4;
/// Maximum time that answered clients get.
const GATHER_MAX: Duration = Duration::from_millis(5);
/// From this length on a queue is searched for cancelled parts now and then, which no longer count as bytes in
/// flight.
const TIDY_MIN: usize = 64;

/// Parts with the same target can be sent together: one schema version and one route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Target {
    partition: PartitionId,
    epoch: Epoch,
    schema: SchemaVersion,
    kind: WriteKind,
}

/// A waiting part.
struct Waiting {
    part: Part,
    bytes: usize,
    deadline: Instant,
    answer: oneshot::Sender<Result<Vec<Debt>, Failed>>,
}

#[derive(Default)]
struct Queue {
    /// Requests in flight, including one that gathers its next parts.
    flights: usize,
    waiting: VecDeque<Waiting>,
    gathering: Option<Gathering>,
}

/// A returned request that waits for the next parts.
struct Gathering {
    /// Number of parts that were answered or waiting; when as many are there again, the wait ends.
    expected: usize,
    complete: Arc<Notify>,
}

#[derive(Default)]
struct Queues {
    /// Requests in flight to all targets.
    flights: usize,
    by_target: HashMap<Target, Queue>,
}

/// Requests in flight and waiting parts, by target.
#[derive(Default)]
pub(super) struct Together {
    queues: Mutex<Queues>,
}

/// Maximum requests in flight to a partition, given those to all partitions.
fn flights_max(total_flights: usize) -> usize {
    if total_flights < BUSY_FLIGHTS { FLIGHTS_MAX } else { 1 }
}

/// Time for which a returned request gathers parts, and the number of parts that ends the wait early. `total_flights`
/// and `own_flights` are the requests in flight to all partitions and to this one, including the returned request;
/// `took` is its duration.
fn gather(
    total_flights: usize,
    own_flights: usize,
    waiting: usize,
    answered: usize,
    took: Duration,
) -> Option<(Duration, usize)> {
    let expected = waiting + answered;
    let worthwhile = total_flights >= BUSY_FLIGHTS && own_flights == 1 && expected > 1;
    worthwhile.then(|| ((took / GATHER_PART).min(GATHER_MAX), expected))
}

/// Decision about a part.
enum Turn {
    Now(Box<Part>),
    Later(oneshot::Receiver<Result<Vec<Debt>, Failed>>),
}

impl Together {
    fn enter(&self, target: Target, part: Part, bytes: usize, deadline: Instant) -> Turn {
        let mut queues = self.queues.lock();
        let limit = flights_max(queues.flights);
        let queue = queues.by_target.entry(target).or_default();
        // A part does not overtake waiting parts.
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

    /// A request has returned and answered `answered` parts: the time for which it gathers parts, and the
    /// notification that all are there; `None` if it does not gather.
    fn gather(
        &self,
        target: Target,
        answered: usize,
        took: Duration,
    ) -> Option<(Duration, Arc<Notify>)> {
        let mut queues = self.queues.lock();
        let total_flights = queues.flights;
        let queue = queues.by_target.get_mut(&target)?;
        let (time, expected) =
            gather(total_flights, queue.flights, queue.waiting.len(), answered, took)?;
        let complete = Arc::new(Notify::new());
        queue.gathering = Some(Gathering { expected, complete: Arc::clone(&complete) });
        Some((time, complete))
    }

    /// Takes the parts for the next request, in order. Without any, or with enough other requests in flight, the
    /// request ends.
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
            // A cancelled part was reported as uncertain; it is not sent after that.
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
    /// Number of parts that wait for a request to return.
    pub(crate) fn waiting(&self) -> usize {
        self.together.queues.lock().by_target.values().map(|queue| queue.waiting.len()).sum()
    }
}

/// A request in flight. When it returns or is dropped, the waiting parts are sent.
struct Flight {
    router: Arc<Router>,
    state: Arc<SessionState>,
    target: Target,
    /// Number of parts in the request.
    parts: usize,
    began: Instant,
}

impl Flight {
    fn new(router: &Arc<Router>, state: &Arc<SessionState>, target: Target, parts: usize) -> Self {
        let (router, state) = (Arc::clone(router), Arc::clone(state));
        Self { router, state, target, parts, began: Instant::now() }
    }

    /// Sends the next parts, if there are any.
    async fn go(router: Arc<Router>, state: Arc<SessionState>, target: Target, next: Vec<Waiting>) {
        if !next.is_empty() {
            let flight = Self::new(&router, &state, target, next.len());
            router.send_together(&flight.state, next).await;
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let runtime = self.router.view.home().clone();
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
    /// Sends a part of at most [`SMALL_BYTES`] bytes, possibly with others.
    pub(super) async fn send_small(
        self: &Arc<Self>,
        state: &Arc<SessionState>,
        part: Part,
        bytes: usize,
        deadline: Instant,
    ) -> Result<Vec<Debt>, Failed> {
        let partition = part.route.partition;
        let target = Target {
            partition,
            epoch: part.route.epoch,
            schema: part.table.schema.version,
            kind: part.mode.kind,
        };
        let (table, route) = (Arc::clone(&part.table), part.route.clone());
        match self.together.enter(target, part, bytes, deadline) {
            Turn::Now(part) => {
                let flight = Flight::new(self, state, target, 1);
                self.send(&flight.state, *part, deadline).await
            }
            Turn::Later(answered) => {
                let why = match tokio::time::timeout_at(deadline, answered).await {
                    Ok(Ok(result)) => return result,
                    Ok(Err(_)) => Error::Unavailable("the frontend is shutting down".to_owned()),
                    Err(_) => {
                        Error::Timeout("no answer to earlier writes to the partition".to_owned())
                    }
                };
                let error = self.too_late(&table, &route, true, why);
                let debts = Vec::new();
                Err(Failed { partition, error, perhaps: true, is_ahead: false, debts })
            }
        }
    }

    /// Sends waiting parts of one target as one, and answers each.
    async fn send_together(&self, state: &Arc<SessionState>, parts: Vec<Waiting>) {
        let deadline = parts.iter().map(|waiting| waiting.deadline).max();
        let whole = match parts.as_slice() {
            [] | [_] => None,
            [first, ..] => joined(self, state, first, &parts),
        };
        if let (Some(part), Some(deadline)) = (whole, deadline) {
            self.view.metrics().joined_writes.add(parts.len() as u64);
            let result = self.send(state, part, deadline).await;
            if !result.as_ref().is_err_and(|failed| failed.is_refusal()) {
                for waiting in parts {
                    // A cancelled client no longer receives its answer.
                    waiting.answer.send(result.clone()).ok();
                }
                return;
            }
        }
        for Waiting { mut part, deadline, answer, .. } in parts {
            // The part is sent for the first time; an id from before its wait would look like a resend.
            part.id = self.next_id();
            answer.send(self.send(state, part, deadline).await).ok();
        }
    }
}

/// All rows as one part, without those that later ones replace; `None` if their schemas differ after all.
fn joined(
    router: &Router,
    state: &Arc<SessionState>,
    first: &Waiting,
    parts: &[Waiting],
) -> Option<Part> {
    let Part { table, route, mode, rows, .. } = &first.part;
    let batches = parts.iter().map(|waiting| &waiting.part.rows);
    let mut rows = concat_batches(rows.schema_ref(), batches).ok()?;
    if replaces(&table.schema.options, mode.kind) {
        let plan = router.view.plan(state, table).ok()?;
        if let Some(last_rows) = last_rows(&plan.codec, &rows).ok()? {
            let replaced = rows.num_rows() - last_rows.num_rows();
            router.view.metrics().replaced_rows.add(replaced as u64);
            rows = last_rows;
        }
    }
    Some(Part {
        table: Arc::clone(table),
        route: route.clone(),
        id: router.next_id(),
        earlier: Vec::new(),
        mode: mode.clone(),
        rows,
        ship: None,
        uncertain: AtomicBool::new(false),
        misrouted: AtomicBool::new(false),
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
