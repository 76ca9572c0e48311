//! Carries out the turns of tasks: records steps, runs windows as their owners, and keeps leases.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use partita_proto::access::{Door, Identity};
use partita_proto::id::TaskId;
use partita_proto::task::{Remote, Task, TaskEntry, TaskStep, Window};
use partita_sql::task_grammar::text_of;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::fence::Fence;
use super::lines;
use super::outlet::Outlet;
use super::turn::{HOLD_MAX, Now, RENEW_EVERY, Turn, Turns};
use crate::access::random;
use crate::access::viewer::now_ms;
use crate::error::SqlError;
use crate::frontend::Frontend;
use crate::output::{Output, RowStream};
use crate::session::SessionOptions;

/// Maximum windows that one frontend runs at a time.
const RUNNING_MAX: usize = 8;
/// Maximum time without a look at the clock, which may be set.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Attempts to record the end of a run, and the pause between them.
const END_ATTEMPTS: u32 = 5;
const END_PAUSE: Duration = Duration::from_secs(1);
/// Bytes of lines that make one request to another server.
const LINES_BYTES: usize = 1 << 20;

/// Windows that this frontend runs, and steps that it records.
#[derive(Default)]
struct Runs {
    work: JoinSet<()>,
    tasks: HashMap<Id, TaskId>,
    /// Task that got the last turn; the search goes on behind it, so that every task gets one.
    last: TaskId,
}

impl Runs {
    fn holds(&self, task: TaskId) -> bool {
        self.tasks.values().any(|held| *held == task)
    }

    /// Waits for the end of one of them; for ever if there is none.
    async fn ended(&mut self) {
        match self.work.join_next_with_id().await {
            Some(Ok((id, ()))) => drop(self.tasks.remove(&id)),
            Some(Err(error)) => {
                warn!(%error, "a run of a task was broken off");
                self.tasks.remove(&error.id());
            }
            None => std::future::pending().await,
        }
    }
}

impl Frontend {
    /// Runs the tasks of the cluster whose leases this frontend gets, until it is stopped. Runs under way are broken off
    /// then, and another frontend runs their windows again. Rows for other servers go through the outlet.
    pub async fn run_tasks(self: Arc<Self>, outlet: Arc<dyn Outlet>, stop: CancellationToken) {
        let runner = match random::bytes::<8>() {
            Ok(bytes) => u64::from_le_bytes(bytes),
            Err(error) => {
                warn!(%error, "tasks are not run by this frontend");
                return;
            }
        };
        let mut turns = Turns::new(runner);
        let mut runs = Runs::default();
        let mut catalogs = self.watch();
        let began = Instant::now();
        loop {
            let tasks = Arc::clone(&catalogs.borrow_and_update().tasks);
            turns.retain(&tasks);
            let time = Now { wall_ms: now_ms(), elapsed: began.elapsed() };
            let wait = self.take_turns(&tasks, &mut turns, (&mut runs, &outlet), time);
            tokio::select! {
                () = stop.cancelled() => return,
                changed = catalogs.changed() => if changed.is_err() { return },
                () = runs.ended() => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// Starts what is due. Returns the time after which to look again.
    fn take_turns(
        self: &Arc<Self>,
        tasks: &BTreeMap<TaskId, Arc<TaskEntry>>,
        turns: &mut Turns,
        (runs, outlet): (&mut Runs, &Arc<dyn Outlet>),
        time: Now,
    ) -> Duration {
        let mut wait = LOOK_EVERY;
        let following = tasks.range((Bound::Excluded(runs.last), Bound::Unbounded));
        for (id, entry) in following.chain(tasks.range(..=runs.last)) {
            if runs.holds(*id) {
                continue;
            }
            if runs.work.len() >= RUNNING_MAX {
                break;
            }
            match turns.turn(entry, time) {
                Turn::Wait(rest) => wait = wait.min(rest.unwrap_or(LOOK_EVERY)),
                Turn::Make(step) => {
                    let (entry, outlet) = (Arc::clone(entry), Arc::clone(outlet));
                    let work = Arc::clone(self).make(entry, step, outlet);
                    let handle = runs.work.spawn(work);
                    runs.tasks.insert(handle.id(), *id);
                    runs.last = *id;
                }
            }
        }
        wait
    }

    /// Records a step; after the begin of a run, runs its window.
    async fn make(self: Arc<Self>, entry: Arc<TaskEntry>, step: TaskStep, outlet: Arc<dyn Outlet>) {
        let sent = Instant::now();
        let task = &entry.task;
        match self.record_step(task.id, step.clone()).await {
            // Another frontend was first, or the task has changed.
            Ok(false) => {}
            Ok(true) => match step {
                TaskStep::Begin { epoch, window, .. } => {
                    let fence = Arc::new(Fence::new(sent + HOLD_MAX));
                    self.run(task, (epoch + 1, window), &fence, outlet.as_ref()).await;
                }
                _ => info!(task = %task.name, id = %task.id, "took a lease away after silence"),
            },
            Err(error) => warn!(task = %task.name, id = %task.id, %error, "could not begin a run"),
        }
    }

    /// Runs a window under a lease, and records the end.
    async fn run(
        self: &Arc<Self>,
        task: &Task,
        (epoch, window): (u64, Window),
        fence: &Arc<Fence>,
        outlet: &dyn Outlet,
    ) {
        let result = tokio::select! {
            result = self.run_statement(task, window, fence, outlet) => result,
            () = self.keep_lease(task.id, epoch, fence) => {
                warn!(task = %task.name, id = %task.id, "broke off a run because its lease was lost");
                return;
            }
        };
        let (rows, error) = match result {
            Ok(rows) => (rows, None),
            Err(error) => {
                warn!(task = %task.name, id = %task.id, %error, "a run of a task failed");
                (0, Some(format!("{} {}", error.sqlstate, error.message)))
            }
        };
        for _ in 0..END_ATTEMPTS {
            let end = TaskStep::End { epoch, rows, error: error.clone(), now_ms: now_ms() };
            match self.record_step(task.id, end).await {
                Ok(_) => return,
                Err(error) => {
                    warn!(task = %task.name, id = %task.id, %error, "could not record the end of a run");
                    if !error.retryable {
                        return;
                    }
                }
            }
            sleep(END_PAUSE).await;
        }
    }

    /// Runs the statement of a task as its owner. Returns the number of rows written.
    async fn run_statement(
        self: &Arc<Self>,
        task: &Task,
        window: Window,
        fence: &Arc<Fence>,
        outlet: &dyn Outlet,
    ) -> Result<u64, SqlError> {
        let catalog = self.catalog();
        let mut databases = catalog.databases.values();
        let database = databases.find(|database| database.id == task.database);
        let database = database.ok_or_else(|| SqlError::undefined_database(task.database))?;
        let owner = catalog.access.role(task.owner);
        let owner = owner.ok_or_else(|| SqlError::internal("the owner of the task is gone"))?;
        let session = self.session(SessionOptions {
            database: database.name.clone(),
            user: owner.name.clone(),
            application: format!("task {}", task.name),
            identity: Identity::of_role(owner, Door::Internal),
        });
        session.bind(Arc::clone(fence));
        let mut written = 0;
        for output in session.execute(&text_of(&task.statement, window)?).await? {
            match (output, &task.remote) {
                (Output::Done { rows, .. }, None) => written += rows.unwrap_or_default(),
                (Output::Rows { stream, .. }, Some(remote)) => {
                    written += send(stream, (remote, window), fence, outlet).await?;
                }
                _ => return Err(SqlError::internal("the statement of a task is of another kind")),
            }
        }
        Ok(written)
    }

    /// Renews a lease until it is lost.
    async fn keep_lease(&self, task: TaskId, epoch: u64, fence: &Fence) {
        for beat in 1.. {
            sleep(RENEW_EVERY).await;
            let sent = Instant::now();
            let renewal = self.record_step(task, TaskStep::Renew { epoch, beat });
            match timeout_at(fence.end(), renewal).await {
                Ok(Ok(true)) => fence.extend(sent + HOLD_MAX),
                // The lease is another frontend's, or the task was dropped.
                Ok(Ok(false)) => return,
                Ok(Err(error)) if !error.retryable => return,
                // Meta may answer in time.
                Ok(Err(_)) => {}
                Err(_) => return,
            }
            if Instant::now() >= fence.end() {
                return;
            }
        }
    }
}

/// Sends rows to another server. Returns their number.
async fn send(
    mut rows: RowStream,
    (remote, window): (&Remote, Window),
    fence: &Fence,
    outlet: &dyn Outlet,
) -> Result<u64, SqlError> {
    let mut count = 0;
    let mut waiting = String::new();
    loop {
        let batch = rows.next().await.transpose()?;
        let has_ended = batch.is_none();
        if let Some(batch) = batch {
            count += lines::append(&mut waiting, &batch, remote, window.start_ms)?;
        }
        if waiting.len() >= LINES_BYTES || has_ended && !waiting.is_empty() {
            fence.check()?;
            outlet.send(remote, std::mem::take(&mut waiting)).await?;
        }
        if has_ended {
            return Ok(count);
        }
    }
}
