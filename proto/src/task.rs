//! Tasks: statements that the cluster runs on a schedule, each time for one window of time.
//!
//! ```text
//!   done ──▶ │ window │ window │ window │ ...      windows follow each other without gaps
//!
//!   no lease ──Begin──▶ lease (epoch + 1) ──Renew──▶ lease (beat + 1)
//!      ▲                   │ End: the window is done, or is tried again
//!      └───────────────────┴ Abandon: another frontend has not seen a beat for too long
//! ```
//!
//! Meta records each step if it fits what is recorded, and nothing otherwise. A lease has an epoch, and only the holder
//! of the newest epoch can end a run. No step depends on a clock of meta: frontends compare beats, by their own clocks.
//!
//! Invariants:
//! - a task has at most one lease; its epoch grows with each run and is never used twice;
//! - a window that is done is never run again;
//! - windows are done in their order; those that are too many after a pause are recorded as skipped;
//! - the history of a task is bounded.

mod remote;
mod schedule;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use self::remote::Remote;
pub use self::schedule::Schedule;
use crate::error::Error;
use crate::id::{DatabaseId, RoleId, TaskId};

/// Maximum ended runs that are kept of a task.
pub const RUNS_MAX: usize = 16;
/// Maximum runs of one window; then it is done whatever the result.
pub const ATTEMPTS_MAX: u32 = 3;
/// Maximum bytes of a task's statement.
pub const STATEMENT_BYTES_MAX: usize = 64 << 10;
/// Windows that are run after a pause, unless the task says otherwise.
pub const CATCH_UP_DEFAULT: u32 = 10;
/// Maximum windows that a task may run after a pause.
pub const CATCH_UP_MAX: u32 = 1_000;
/// Maximum bytes of a recorded error.
pub const ERROR_BYTES_MAX: usize = 1_024;

/// A span of time, in milliseconds since 1970; the end is not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// First millisecond.
    pub start_ms: i64,
    /// First millisecond after the window.
    pub stop_ms: i64,
}

/// Definition of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Task id.
    pub id: TaskId,
    /// Database of the task's name, and of unqualified names in its statement.
    pub database: DatabaseId,
    /// Task name, unique in its database.
    pub name: String,
    /// Role as which the task runs.
    pub owner: RoleId,
    /// Moments at which windows end.
    pub schedule: Schedule,
    /// INSERT ... SELECT with placeholders for the window; only the SELECT if there is a remote server.
    pub statement: String,
    /// Server that gets the rows; `None`: the statement writes to a table.
    pub remote: Option<Remote>,
    /// False while no run begins.
    pub enabled: bool,
    /// Maximum windows that are run after a pause.
    pub catch_up: u32,
    /// Version of the catalog that changed the definition last.
    pub definition: u64,
    /// Time of the creation, milliseconds since 1970.
    pub created_ms: i64,
}

/// The right to run a window of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Random number of the frontend that holds it.
    pub runner: u64,
    /// Number of renewals.
    pub beat: u64,
    /// Window that is run.
    pub window: Window,
    /// Begin of the run by the holder's clock, milliseconds since 1970.
    pub began_ms: i64,
}

/// Result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunOutcome {
    /// The statement has succeeded.
    Succeeded,
    /// The statement has failed.
    Failed,
    /// The window was not run, because too many were due.
    Skipped,
    /// The holder of the lease has not renewed it.
    Abandoned,
}

impl RunOutcome {
    /// Name in system tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Abandoned => "abandoned",
        }
    }
}

/// A run that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Window of the run; several joined ones if they were skipped.
    pub window: Window,
    /// Begin, milliseconds since 1970.
    pub began_ms: i64,
    /// End, milliseconds since 1970.
    pub ended_ms: i64,
    /// Random number of the frontend.
    pub runner: u64,
    /// Epoch of the lease.
    pub epoch: u64,
    /// Number of the run among those of its window, from 1; 0 for a skipped one.
    pub attempt: u32,
    /// Result.
    pub outcome: RunOutcome,
    /// Rows written.
    pub rows: u64,
    /// SQLSTATE and message of a failure.
    pub error: Option<String>,
}

/// Progress of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskState {
    /// Task id.
    pub task: TaskId,
    /// Epoch of the newest lease; 0 before the first.
    pub epoch: u64,
    /// Lease of the run under way.
    pub lease: Option<Lease>,
    /// End of the last window that is done or skipped, milliseconds since 1970.
    pub done_ms: i64,
    /// Runs of the window that begins there.
    pub attempts: u32,
    /// Ended runs, oldest first; at most [`RUNS_MAX`].
    pub runs: Vec<Run>,
}

/// A task and its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEntry {
    /// Definition.
    pub task: Arc<Task>,
    /// Progress.
    pub state: Arc<TaskState>,
}

/// A task to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// Database of the task.
    pub database: DatabaseId,
    /// Task name.
    pub name: String,
    /// Role as which the task runs.
    pub owner: RoleId,
    /// Moments at which windows end.
    pub schedule: Schedule,
    /// INSERT ... SELECT with placeholders for the window; only the SELECT if there is a remote server.
    pub statement: String,
    /// Server that gets the rows; `None`: the statement writes to a table.
    pub remote: Option<Remote>,
    /// False to begin no run.
    pub enabled: bool,
    /// Maximum windows that are run after a pause.
    pub catch_up: u32,
    /// Time of the frontend, milliseconds since 1970.
    pub now_ms: i64,
}

/// Properties of a task that change; `None`: unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskEdit {
    /// False to begin no further run. A task that is enabled again begins with the window of that time.
    pub enabled: Option<bool>,
    /// New schedule. The next window begins where the last one has ended.
    pub schedule: Option<Schedule>,
    /// Time of the frontend, milliseconds since 1970.
    pub now_ms: i64,
}

/// A step of a task's runs, which is recorded if the task is still as the frontend has seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskStep {
    /// Takes the lease for the next window. Nothing if there is a lease, or the epoch or the definition is another.
    Begin {
        /// Epoch of the newest lease that the frontend has seen.
        epoch: u64,
        /// Definition that the frontend has seen.
        definition: u64,
        /// Random number of the frontend.
        runner: u64,
        /// Window to run.
        window: Window,
        /// Windows before it that are skipped.
        skipped: Option<Window>,
        /// Time of the frontend, milliseconds since 1970.
        now_ms: i64,
    },
    /// Renews a lease. Nothing if the lease is another, or has this beat.
    Renew {
        /// Epoch of the lease.
        epoch: u64,
        /// Number of renewals, with this one.
        beat: u64,
    },
    /// Ends a run. Nothing if the lease is another.
    End {
        /// Epoch of the lease.
        epoch: u64,
        /// Rows written.
        rows: u64,
        /// SQLSTATE and message of a failure; `None`: the run has succeeded.
        error: Option<String>,
        /// Time of the frontend, milliseconds since 1970.
        now_ms: i64,
    },
    /// Takes a lease away from a frontend that no longer renews it. Nothing if the lease is another, or has another
    /// beat.
    Abandon {
        /// Epoch of the lease.
        epoch: u64,
        /// Beat that has not changed for too long.
        beat: u64,
        /// Time of the frontend, milliseconds since 1970.
        now_ms: i64,
    },
}

/// A change of definitions, or a step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskChange {
    /// CREATE TASK; meta assigns the id.
    Create {
        /// The task to create.
        task: Box<NewTask>,
        /// True to succeed when it exists.
        if_not_exists: bool,
    },
    /// ALTER TASK.
    Alter {
        /// Task to change.
        task: TaskId,
        /// Properties that change.
        edit: TaskEdit,
    },
    /// DROP TASK. A run under way cannot end any more.
    Drop {
        /// Task to drop.
        task: TaskId,
    },
    /// A step of a run.
    Step {
        /// Task of the run.
        task: TaskId,
        /// Step of the run.
        step: TaskStep,
    },
}

impl NewTask {
    /// Checks the bounds of a definition.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when one is exceeded.
    pub fn validate(&self) -> Result<(), Error> {
        crate::schema::validate_name("task", &self.name)?;
        if self.statement.is_empty() || self.statement.len() > STATEMENT_BYTES_MAX {
            let message = format!("the statement of a task has 1 to {STATEMENT_BYTES_MAX} bytes");
            return Err(Error::InvalidInput(message));
        }
        if !(1..=CATCH_UP_MAX).contains(&self.catch_up) {
            let message = format!("a task catches up with 1 to {CATCH_UP_MAX} windows");
            return Err(Error::InvalidInput(message));
        }
        self.remote.as_ref().map_or(Ok(()), Remote::validate)
    }

    /// The task with an id and a definition's version. Its first window is the one that the time of the creation is in.
    #[must_use]
    pub fn entry(&self, id: TaskId, definition: u64) -> TaskEntry {
        let Self { database, name, owner, schedule, statement, .. } = self;
        let Self { remote, enabled, catch_up, now_ms, .. } = self;
        let task = Task {
            id,
            database: *database,
            name: name.clone(),
            owner: *owner,
            schedule: schedule.clone(),
            statement: statement.clone(),
            remote: remote.clone(),
            enabled: *enabled,
            catch_up: *catch_up,
            definition,
            created_ms: *now_ms,
        };
        let done_ms = schedule.at_or_before(*now_ms).unwrap_or(*now_ms);
        let state =
            TaskState { task: id, epoch: 0, lease: None, done_ms, attempts: 0, runs: Vec::new() };
        TaskEntry { task: Arc::new(task), state: Arc::new(state) }
    }
}

impl TaskEntry {
    /// The task after an edit; `None` if nothing changes.
    #[must_use]
    pub fn edited(&self, edit: &TaskEdit, definition: u64) -> Option<Self> {
        let mut task = Task::clone(&self.task);
        task.enabled = edit.enabled.unwrap_or(task.enabled);
        if let Some(schedule) = &edit.schedule {
            task.schedule = schedule.clone();
        }
        if task == *self.task {
            return None;
        }
        task.definition = definition;
        let mut state = TaskState::clone(&self.state);
        let resumes = task.enabled && !self.task.enabled;
        let present = task.schedule.at_or_before(edit.now_ms).unwrap_or(state.done_ms);
        if resumes && present > state.done_ms {
            (state.done_ms, state.attempts) = (present, 0);
        }
        Some(Self { task: Arc::new(task), state: Arc::new(state) })
    }

    /// The state after a step; `None` if the step does not fit the present one.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for windows that do not follow each other.
    pub fn after(&self, step: &TaskStep) -> Result<Option<TaskState>, Error> {
        let mut state = TaskState::clone(&self.state);
        let lease = |of_epoch: u64| self.state.lease.filter(|_| self.state.epoch == of_epoch);
        match step {
            TaskStep::Begin { epoch, definition, runner, window, skipped, now_ms } => {
                let is_current = state.epoch == *epoch && self.task.definition == *definition;
                if state.lease.is_some() || !is_current || !self.task.enabled {
                    return Ok(None);
                }
                check_windows(state.done_ms, *window, *skipped)?;
                if let Some(skipped) = skipped {
                    state.attempts = 0;
                    state.done_ms = skipped.stop_ms;
                    state.record(Run {
                        window: *skipped,
                        began_ms: *now_ms,
                        ended_ms: *now_ms,
                        runner: *runner,
                        epoch: state.epoch,
                        attempt: 0,
                        outcome: RunOutcome::Skipped,
                        rows: 0,
                        error: None,
                    });
                }
                state.epoch += 1;
                state.attempts += 1;
                let (runner, window, began_ms) = (*runner, *window, *now_ms);
                state.lease = Some(Lease { runner, beat: 0, window, began_ms });
            }
            TaskStep::Renew { epoch, beat } => {
                let Some(lease) = lease(*epoch).filter(|lease| lease.beat < *beat) else {
                    return Ok(None);
                };
                state.lease = Some(Lease { beat: *beat, ..lease });
            }
            TaskStep::End { epoch, rows, error, now_ms } => {
                let Some(lease) = lease(*epoch) else { return Ok(None) };
                let outcome =
                    if error.is_some() { RunOutcome::Failed } else { RunOutcome::Succeeded };
                state.end(lease, outcome, *rows, error.clone(), *now_ms);
            }
            TaskStep::Abandon { epoch, beat, now_ms } => {
                let Some(lease) = lease(*epoch).filter(|lease| lease.beat == *beat) else {
                    return Ok(None);
                };
                let error = Some("the frontend no longer renewed its lease".to_owned());
                state.end(lease, RunOutcome::Abandoned, 0, error, *now_ms);
            }
        }
        Ok(Some(state))
    }
}

/// Checks that windows begin where the last one has ended, and follow each other.
fn check_windows(done_ms: i64, window: Window, skipped: Option<Window>) -> Result<(), Error> {
    let first = skipped.unwrap_or(window);
    let follows = skipped.is_none_or(|skipped| skipped.stop_ms == window.start_ms);
    let has_length = |window: Window| window.start_ms < window.stop_ms;
    if first.start_ms == done_ms && follows && has_length(first) && has_length(window) {
        return Ok(());
    }
    Err(Error::InvalidInput("the windows of a task must follow each other".to_owned()))
}

impl TaskState {
    fn end(
        &mut self,
        lease: Lease,
        outcome: RunOutcome,
        rows: u64,
        error: Option<String>,
        now_ms: i64,
    ) {
        self.lease = None;
        let error = error.map(|mut error| {
            error.truncate(error.floor_char_boundary(ERROR_BYTES_MAX));
            error
        });
        self.record(Run {
            window: lease.window,
            began_ms: lease.began_ms,
            ended_ms: now_ms,
            runner: lease.runner,
            epoch: self.epoch,
            attempt: self.attempts,
            outcome,
            rows,
            error,
        });
        if outcome == RunOutcome::Succeeded || self.attempts >= ATTEMPTS_MAX {
            self.done_ms = self.done_ms.max(lease.window.stop_ms);
            self.attempts = 0;
        }
    }

    fn record(&mut self, run: Run) {
        if self.runs.len() >= RUNS_MAX {
            self.runs.remove(0);
        }
        self.runs.push(run);
    }
}
