//! Carries out pending work on tables: plans the orders of each table that is not ready, sends them, and records
//! the step as finished.
//!
//! Invariants:
//! - at most one job works on a table at a time. If its step is superseded (a DROP during an ALTER), it stops
//!   sending, and the next job waits for the answers in flight, so that no node gets orders of two steps mixed;
//! - orders that were carried out are not sent again for the same step by the same process; after a restart all are
//!   sent again, which is harmless: a node that has put a replica aside does not create it again, the table is used
//!   without it, and the plan replaces it under another number;
//! - a table that cannot be created is given up and dropped again; all other work is retried with backoff until it
//!   succeeds or the table is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{StreamExt, stream};
use partita_proto::error::Error;
use partita_proto::id::{NodeId, ReplicaId, TableId};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::catalog::{Phase, State, TableRecord};
use crate::core::Core;
use crate::patience::Patience;
use crate::plan::{Action, Order, orders};
use crate::progress::Job;
use crate::transition::Command;

/// Maximum tables worked on at once.
const JOBS_MAX: usize = 32;
/// Maximum of them whose last attempt failed: a node that hangs must not delay changes of tables on other nodes.
const RETRIES_MAX: usize = 16;
/// Maximum orders in flight for one table.
const ORDERS_MAX: usize = 16;

/// Orders that were carried out, by replica and node.
type Done = BTreeSet<(ReplicaId, NodeId)>;

/// State of a job that is kept between attempts.
#[derive(Clone)]
struct Attempt {
    done: Done,
    failures: u32,
    since: Instant,
    not_before: Instant,
}

impl Attempt {
    fn first() -> Self {
        let start = Instant::now();
        Self { done: Done::new(), failures: 0, since: start, not_before: start }
    }
}

/// Result of an attempt.
struct Ended {
    done: Done,
    result: Result<(), Error>,
}

/// The task that works on the tables of one meta process.
pub(crate) struct DdlDriver {
    core: Arc<Core>,
    /// Failed jobs, until their next attempt.
    failed: BTreeMap<Job, Attempt>,
    /// Running jobs, by task.
    running: BTreeMap<tokio::task::Id, (Job, Attempt)>,
    jobs: JoinSet<Ended>,
}

impl DdlDriver {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, failed: BTreeMap::new(), running: BTreeMap::new(), jobs: JoinSet::new() }
    }

    /// Runs until stopped; then waits for the orders in flight.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut applied = self.core.machine.applied();
        while !stop.is_cancelled() {
            applied.mark_unchanged();
            let next = self.start_due();
            tokio::select! {
                () = stop.cancelled() => break,
                ended = self.jobs.join_next_with_id(), if !self.jobs.is_empty() => self.ended(ended),
                _ = applied.changed() => {}
                () = tokio::time::sleep_until(next) => {}
            }
        }
        if !self.core.group.status().is_leader {
            // The new leader sends the pending orders again.
            self.jobs.shutdown().await;
            return;
        }
        let drained = timeout(self.core.patience.drain, async {
            while self.jobs.join_next().await.is_some() {}
        });
        if drained.await.is_err() {
            warn!(
                jobs = self.jobs.len(),
                "orders in flight were not answered; the next leader sends them again"
            );
            self.jobs.shutdown().await;
        }
    }

    /// Starts the jobs that are due; returns the latest time for the next call.
    fn start_due(&mut self) -> Instant {
        let time = Instant::now();
        let core = Arc::clone(&self.core);
        let state = core.machine.state();
        // Retries that are due come first, but at most `RETRIES_MAX` run at once.
        self.failed.retain(|job, _| is_current(&state, *job));
        let mut busy: BTreeSet<TableId> = self.running.values().map(|((id, _), _)| *id).collect();
        let mut retries = self.running.values().filter(|(_, attempt)| attempt.failures > 0).count();
        let mut next = time + core.patience.pause_max;
        let mut due: Vec<(Job, Attempt)> = Vec::new();
        for (job, attempt) in &self.failed {
            if attempt.not_before > time {
                next = next.min(attempt.not_before);
            } else if retries < RETRIES_MAX && busy.insert(job.0) {
                retries += 1;
                due.push((*job, attempt.clone()));
            }
        }
        // The remaining places go to tables whose current step was never tried.
        for table in state.pending() {
            if busy.len() >= JOBS_MAX {
                break;
            }
            let job = (table.id, table.step);
            if !self.failed.contains_key(&job) && busy.insert(table.id) {
                due.push((job, Attempt::first()));
            }
        }
        // The lock is released before tasks start.
        drop(state);
        for (job, attempt) in due {
            self.failed.remove(&job);
            let (core, finished, start) = (Arc::clone(&core), attempt.done.clone(), attempt.since);
            let task = self.jobs.spawn(async move { core.work(job, finished, start).await });
            self.running.insert(task.id(), (job, attempt));
        }
        next
    }

    fn ended(&mut self, ended: Option<Result<(tokio::task::Id, Ended), JoinError>>) {
        let (task, ended) = match ended {
            None => return,
            Some(Ok(ended)) => ended,
            Some(Err(panic)) => {
                let error = Error::Internal(format!("a job on a table panicked: {panic}"));
                (panic.id(), Ended { done: Done::new(), result: Err(error) })
            }
        };
        let Some((job, mut attempt)) = self.running.remove(&task) else { return };
        let Err(error) = ended.result else { return };
        let patience = &self.core.patience;
        let doubled = 2_u32.saturating_pow(attempt.failures);
        let pause = patience.pause_min.saturating_mul(doubled).min(patience.pause_max);
        attempt.done = ended.done;
        attempt.failures += 1;
        attempt.not_before = Instant::now() + pause;
        let (table, step) = job;
        warn!(%table, step = step.0, failures = attempt.failures, ?pause, %error, "changing a table failed; it will be retried");
        self.failed.insert(job, attempt);
        self.core.progress.failed(job, error);
    }
}

impl Core {
    /// One attempt at a job.
    async fn work(&self, job: Job, mut finished: Done, start: Instant) -> Ended {
        let Some((table, orders)) = self.planned(job) else {
            return Ended { done: finished, result: Ok(()) };
        };
        let open: Vec<Order> = orders
            .into_iter()
            .filter(|order| !finished.contains(&(order.replica, order.node)))
            .collect();
        let answers = stream::iter(open).map(|order| async move {
            let result =
                if self.is_current(job) { self.order_of(job, &order).await } else { Ok(false) };
            (order, result)
        });
        let mut answers = answers.buffer_unordered(ORDERS_MAX);
        let mut failure = None;
        let mut complete = true;
        while let Some((order, result)) = answers.next().await {
            match result {
                Ok(true) => drop(finished.insert((order.replica, order.node))),
                Ok(false) => complete = false,
                Err(error) => {
                    warn!(
                        table = %table.id, name = table.name, partition = %order.partition,
                        node = %order.node, %error, "an order failed"
                    );
                    failure.get_or_insert(error);
                }
            }
        }
        let result = match failure {
            // Absent nodes get their replicas when they return, as if they had lost them.
            Some(error) if self.is_enough(&table, &finished, &error, start) => {
                self.finish(&table).await
            }
            Some(error) if give_up(&table, &error, start, &self.patience) => {
                self.abort(&table, error).await
            }
            Some(error) => Err(error),
            None if complete => self.finish(&table).await,
            // Superseded, or stopping.
            None => Ok(()),
        };
        Ended { done: finished, result }
    }

    fn planned(&self, (table, step): Job) -> Option<(Arc<TableRecord>, Vec<Order>)> {
        let state = self.machine.state();
        let table = state.table(table).filter(|table| table.step == step)?;
        Some((Arc::clone(table), orders(&state, table)))
    }

    /// True if a new table can be used although some of its replicas could not be opened: each partition has a
    /// majority of open replicas, and a quarter of `patience.create` has passed.
    fn is_enough(
        &self,
        table: &TableRecord,
        finished: &Done,
        error: &Error,
        start: Instant,
    ) -> bool {
        let is_absence = matches!(error, Error::Unavailable(_) | Error::Timeout(_));
        if table.phase != Phase::Creating
            || !is_absence
            || start.elapsed() < self.patience.create / 4
        {
            return false;
        }
        let state = self.machine.state();
        state.partitions_of(table).all(|partition| {
            let open =
                |(replica, node): &(&ReplicaId, &NodeId)| finished.contains(&(**replica, **node));
            2 * partition.replicas.iter().filter(open).count() > partition.replicas.len()
        })
    }

    fn is_current(&self, job: Job) -> bool {
        !self.stopping.is_cancelled() && is_current(&self.machine.state(), job)
    }

    /// Sends an order, and records its result at once if needed; true if it was carried out.
    async fn order_of(&self, (table, step): Job, order: &Order) -> Result<bool, Error> {
        let Action::Fence(epoch) = order.action else { return self.send(order).await };
        let partition = order.partition;
        let is_free =
            |state: &State| state.partition(partition).map(|record| record.reshaping.is_none());
        match is_free(&self.machine.state()) {
            Some(true) => {}
            Some(false) => {
                let why = format!("partition {partition} is being split or merged");
                return Err(Error::Unavailable(why));
            }
            // The partition was merged into its neighbour meanwhile.
            None => return Ok(true),
        }
        let epoch = match self.send(order).await {
            Ok(_) => epoch.next(),
            // An earlier attempt raised the epoch, and its answer was lost.
            Err(Error::StaleRoute { current, .. }) if current > epoch => current,
            Err(error) => return Err(error),
        };
        self.propose(&Command::Fenced { table, step, partition, epoch }).await?;
        Ok(true)
    }

    async fn finish(&self, table: &TableRecord) -> Result<(), Error> {
        self.progress.succeeded((table.id, table.step));
        if table.phase == Phase::Creating && table.former.is_some() {
            let (table, step) = (table.id, table.step);
            return self.propose(&Command::ReadAlong { table, step }).await.map(drop);
        }
        self.propose(&Command::Finish { table: table.id, step: table.step }).await?;
        info!(table = %table.id, name = table.name, done = phase_name(&table.phase), "table changed");
        Ok(())
    }

    async fn abort(&self, table: &TableRecord, error: Error) -> Result<(), Error> {
        warn!(table = %table.id, name = table.name, %error, "giving up creating a table");
        // Recorded before the entry: a waiting client asks for the cause as soon as the table disappears.
        self.progress.failed((table.id, table.step), error);
        self.propose(&Command::Abort { table: table.id, step: table.step }).await?;
        Ok(())
    }
}

/// True if the table is still at the step of a job.
pub(crate) fn is_current(state: &State, (table, step): Job) -> bool {
    state.table(table).is_some_and(|table| table.step == step && table.is_pending())
}

/// True if a failure ends the creation of a table: at once if a retry cannot succeed, otherwise after
/// `patience.create`.
fn give_up(table: &TableRecord, error: &Error, start: Instant, patience: &Patience) -> bool {
    let is_transient = error.is_retryable() && !matches!(error, Error::DiskFull(_));
    table.phase == Phase::Creating && (!is_transient || start.elapsed() >= patience.create)
}

fn phase_name(phase: &Phase) -> &'static str {
    match phase {
        Phase::Creating => "created",
        Phase::Ready => "ready",
        Phase::Altering(_) => "altered",
        Phase::Dropping => "dropped",
    }
}
