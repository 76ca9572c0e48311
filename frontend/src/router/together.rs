//! Small writes to one partition that come while others are on their way to it go together: one request, one entry of
//! the log and one look at the network for many clients that write a row each.
//!
//! ```text
//!   small part ── fewer than FLIGHTS_MAX on their way? ─ yes ─▶ goes at once, by itself
//!                        └─ no ─▶ waits ─▶ goes with all others that wait when one of those has come back
//! ```
//!
//! Invariants:
//! - nothing is held back to have company: what waits, waits for what went before it, in order;
//! - what goes together is one [`Part`] with one identity, and takes effect as a whole; each is answered when all of it
//!   has, and by what it came to;
//! - when it is refused without having had any effect, each is sent by itself: nobody is refused for another's rows;
//! - whoever stops waiting takes nothing with him: the others' rows go all the same.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow::compute::concat_batches;
use datafusion::execution::SessionState;
use parking_lot::Mutex;
use partita_proto::Error;
use partita_proto::id::{Epoch, PartitionId, SchemaVersion};
use partita_proto::service::WriteKind;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Failed, Part, Router};

/// Parts larger than this cost mostly what their rows do, and gain little by company.
pub(super) const SMALL_BYTES: usize = 4 << 10;
/// Rows that go together.
const TOGETHER_BYTES_MAX: usize = 256 << 10;
/// Requests of small parts that are on their way to a partition at the same time. With one, the partition would have
/// nothing to do while an answer is on its way back.
const FLIGHTS_MAX: usize = 2;
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
    flights: usize,
    waiting: VecDeque<Waiting>,
}

/// Where something is on its way to, and who waits.
#[derive(Default)]
pub(super) struct Together {
    queues: Mutex<HashMap<Target, Queue>>,
}

/// How a part goes on.
enum Turn {
    Now(Box<Part>),
    Later(oneshot::Receiver<Result<(), Failed>>),
}

impl Together {
    fn enter(&self, target: Target, part: Part, bytes: usize, deadline: Instant) -> Turn {
        let mut queues = self.queues.lock();
        let queue = queues.entry(target).or_default();
        if queue.flights < FLIGHTS_MAX {
            queue.flights += 1;
            return Turn::Now(Box::new(part));
        }
        let (answer, answered) = oneshot::channel();
        queue.waiting.push_back(Waiting { part, bytes, deadline, answer });
        if queue.waiting.len() >= TIDY_MIN && queue.waiting.len().is_power_of_two() {
            queue.waiting.retain(|waiting| !waiting.answer.is_closed());
        }
        Turn::Later(answered)
    }

    /// One has come back: those who go next, in order. When nobody waits, that flight is over.
    fn leave(&self, target: Target) -> Vec<Waiting> {
        let mut queues = self.queues.lock();
        let Some(queue) = queues.get_mut(&target) else { return Vec::new() };
        let (mut next, mut bytes) = (Vec::new(), 0);
        while let Some(first) = queue.waiting.front()
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
                queues.remove(&target);
            }
        }
        next
    }
}

#[cfg(test)]
impl Router {
    /// Parts that wait for others.
    pub(crate) fn waiting(&self) -> usize {
        self.together.queues.lock().values().map(|queue| queue.waiting.len()).sum()
    }
}

/// A request that is on its way. When it comes back, or whoever sent it goes away, those who wait go on.
struct Flight {
    router: Arc<Router>,
    state: Arc<SessionState>,
    target: Target,
}

impl Drop for Flight {
    fn drop(&mut self) {
        let next = self.router.together.leave(self.target);
        if next.is_empty() {
            return;
        }
        // Without a runtime everything ends, and they are told so by what they wait for.
        if let Ok(runtime) = Handle::try_current() {
            let (router, state) = (Arc::clone(&self.router), Arc::clone(&self.state));
            let target = self.target;
            runtime.spawn(async move {
                let flight = Flight { router, state, target };
                flight.router.send_together(&flight.state, next).await;
            });
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
                let (router, state) = (Arc::clone(self), Arc::clone(state));
                let flight = Flight { router, state, target };
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
