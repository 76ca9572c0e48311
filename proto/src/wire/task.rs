//! Tasks, the steps of their runs, and changes of them.

use std::fmt;
use std::sync::Arc;

use super::{Wire, all, missing, pb, required};
use crate::error::Error;
use crate::id::{DatabaseId, RoleId, TaskId};
use crate::task::{
    Lease, NewTask, Remote, Run, RunOutcome, Schedule, Task, TaskChange, TaskEdit, TaskEntry,
    TaskState, TaskStep, Window,
};

fn schedule(text: &str) -> Result<Schedule, Error> {
    Schedule::parse(text).map_err(|error| Error::Corrupted(format!("a task has {error}")))
}

impl Wire for Window {
    type Message = pb::TaskWindow;

    fn to_wire(&self) -> pb::TaskWindow {
        pb::TaskWindow { start_ms: self.start_ms, stop_ms: self.stop_ms }
    }

    fn from_wire(message: pb::TaskWindow) -> Result<Self, Error> {
        Ok(Self { start_ms: message.start_ms, stop_ms: message.stop_ms })
    }
}

impl fmt::Debug for pb::TaskRemote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskRemote").finish_non_exhaustive()
    }
}

impl Wire for Remote {
    type Message = pb::TaskRemote;

    fn to_wire(&self) -> pb::TaskRemote {
        pb::TaskRemote {
            url: self.url.clone(),
            token: self.token.clone(),
            measurement: self.measurement.clone(),
            tags: self.tags.clone(),
        }
    }

    fn from_wire(message: pb::TaskRemote) -> Result<Self, Error> {
        Ok(Self {
            url: message.url,
            token: message.token,
            measurement: message.measurement,
            tags: message.tags,
        })
    }
}

impl Wire for Task {
    type Message = pb::Task;

    fn to_wire(&self) -> pb::Task {
        pb::Task {
            id: self.id.0,
            database: self.database.0,
            name: self.name.clone(),
            owner: self.owner.0,
            schedule: self.schedule.to_string(),
            statement: self.statement.clone(),
            enabled: self.enabled,
            catch_up: self.catch_up,
            definition: self.definition,
            created_ms: self.created_ms,
            remote: self.remote.as_ref().map(Wire::to_wire),
        }
    }

    fn from_wire(message: pb::Task) -> Result<Self, Error> {
        Ok(Self {
            id: TaskId(message.id),
            database: DatabaseId(message.database),
            name: message.name,
            owner: RoleId(message.owner),
            schedule: schedule(&message.schedule)?,
            statement: message.statement,
            remote: message.remote.map(Wire::from_wire).transpose()?,
            enabled: message.enabled,
            catch_up: message.catch_up,
            definition: message.definition,
            created_ms: message.created_ms,
        })
    }
}

impl Wire for Lease {
    type Message = pb::TaskLease;

    fn to_wire(&self) -> pb::TaskLease {
        pb::TaskLease {
            runner: self.runner,
            beat: self.beat,
            window: Some(self.window.to_wire()),
            began_ms: self.began_ms,
        }
    }

    fn from_wire(message: pb::TaskLease) -> Result<Self, Error> {
        Ok(Self {
            runner: message.runner,
            beat: message.beat,
            window: required(message.window, "window")?,
            began_ms: message.began_ms,
        })
    }
}

fn outcome_to_wire(outcome: RunOutcome) -> i32 {
    match outcome {
        RunOutcome::Succeeded => pb::TaskOutcome::Succeeded,
        RunOutcome::Failed => pb::TaskOutcome::Failed,
        RunOutcome::Skipped => pb::TaskOutcome::Skipped,
        RunOutcome::Abandoned => pb::TaskOutcome::Abandoned,
    }
    .into()
}

fn outcome_from_wire(message: i32) -> Result<RunOutcome, Error> {
    Ok(match pb::TaskOutcome::try_from(message) {
        Ok(pb::TaskOutcome::Succeeded) => RunOutcome::Succeeded,
        Ok(pb::TaskOutcome::Failed) => RunOutcome::Failed,
        Ok(pb::TaskOutcome::Skipped) => RunOutcome::Skipped,
        Ok(pb::TaskOutcome::Abandoned) => RunOutcome::Abandoned,
        Ok(pb::TaskOutcome::Unspecified) | Err(_) => return Err(missing("outcome of a run")),
    })
}

impl Wire for Run {
    type Message = pb::TaskRun;

    fn to_wire(&self) -> pb::TaskRun {
        pb::TaskRun {
            window: Some(self.window.to_wire()),
            began_ms: self.began_ms,
            ended_ms: self.ended_ms,
            runner: self.runner,
            epoch: self.epoch,
            attempt: self.attempt,
            outcome: outcome_to_wire(self.outcome),
            rows: self.rows,
            error: self.error.clone(),
        }
    }

    fn from_wire(message: pb::TaskRun) -> Result<Self, Error> {
        Ok(Self {
            window: required(message.window, "window")?,
            began_ms: message.began_ms,
            ended_ms: message.ended_ms,
            runner: message.runner,
            epoch: message.epoch,
            attempt: message.attempt,
            outcome: outcome_from_wire(message.outcome)?,
            rows: message.rows,
            error: message.error,
        })
    }
}

impl Wire for TaskState {
    type Message = pb::TaskState;

    fn to_wire(&self) -> pb::TaskState {
        pb::TaskState {
            task: self.task.0,
            epoch: self.epoch,
            lease: self.lease.as_ref().map(Wire::to_wire),
            done_ms: self.done_ms,
            attempts: self.attempts,
            runs: self.runs.iter().map(Wire::to_wire).collect(),
        }
    }

    fn from_wire(message: pb::TaskState) -> Result<Self, Error> {
        Ok(Self {
            task: TaskId(message.task),
            epoch: message.epoch,
            lease: message.lease.map(Wire::from_wire).transpose()?,
            done_ms: message.done_ms,
            attempts: message.attempts,
            runs: all(message.runs)?,
        })
    }
}

impl Wire for TaskEntry {
    type Message = pb::TaskEntry;

    fn to_wire(&self) -> pb::TaskEntry {
        pb::TaskEntry { task: Some(self.task.to_wire()), state: Some(self.state.to_wire()) }
    }

    fn from_wire(message: pb::TaskEntry) -> Result<Self, Error> {
        Ok(Self {
            task: Arc::new(required(message.task, "task")?),
            state: Arc::new(required(message.state, "state of a task")?),
        })
    }
}

impl Wire for NewTask {
    type Message = pb::NewTask;

    fn to_wire(&self) -> pb::NewTask {
        pb::NewTask {
            database: self.database.0,
            name: self.name.clone(),
            owner: self.owner.0,
            schedule: self.schedule.to_string(),
            statement: self.statement.clone(),
            enabled: self.enabled,
            catch_up: self.catch_up,
            now_ms: self.now_ms,
            remote: self.remote.as_ref().map(Wire::to_wire),
        }
    }

    fn from_wire(message: pb::NewTask) -> Result<Self, Error> {
        Ok(Self {
            database: DatabaseId(message.database),
            name: message.name,
            owner: RoleId(message.owner),
            schedule: schedule(&message.schedule)?,
            statement: message.statement,
            remote: message.remote.map(Wire::from_wire).transpose()?,
            enabled: message.enabled,
            catch_up: message.catch_up,
            now_ms: message.now_ms,
        })
    }
}

fn step_to_wire(task: TaskId, step: &TaskStep) -> pb::TaskStep {
    use pb::task_step::Kind;
    let kind = match step {
        TaskStep::Begin { epoch, definition, runner, window, skipped, now_ms } => {
            Kind::Begin(pb::BeginTask {
                epoch: *epoch,
                definition: *definition,
                runner: *runner,
                window: Some(window.to_wire()),
                skipped: skipped.as_ref().map(Wire::to_wire),
                now_ms: *now_ms,
            })
        }
        TaskStep::Renew { epoch, beat } => {
            Kind::Renew(pb::RenewTask { epoch: *epoch, beat: *beat })
        }
        TaskStep::End { epoch, rows, error, now_ms } => Kind::End(pb::EndTask {
            epoch: *epoch,
            rows: *rows,
            error: error.clone(),
            now_ms: *now_ms,
        }),
        TaskStep::Abandon { epoch, beat, now_ms } => {
            Kind::Abandon(pb::AbandonTask { epoch: *epoch, beat: *beat, now_ms: *now_ms })
        }
    };
    pb::TaskStep { task: task.0, kind: Some(kind) }
}

fn step_from_wire(kind: Option<pb::task_step::Kind>) -> Result<TaskStep, Error> {
    use pb::task_step::Kind;
    Ok(match kind.ok_or_else(|| missing("step of a task"))? {
        Kind::Begin(begin) => TaskStep::Begin {
            epoch: begin.epoch,
            definition: begin.definition,
            runner: begin.runner,
            window: required(begin.window, "window")?,
            skipped: begin.skipped.map(Wire::from_wire).transpose()?,
            now_ms: begin.now_ms,
        },
        Kind::Renew(renewal) => TaskStep::Renew { epoch: renewal.epoch, beat: renewal.beat },
        Kind::End(end) => {
            TaskStep::End { epoch: end.epoch, rows: end.rows, error: end.error, now_ms: end.now_ms }
        }
        Kind::Abandon(abandon) => {
            TaskStep::Abandon { epoch: abandon.epoch, beat: abandon.beat, now_ms: abandon.now_ms }
        }
    })
}

impl Wire for TaskChange {
    type Message = pb::TaskChange;

    fn to_wire(&self) -> pb::TaskChange {
        use pb::task_change::Kind;
        let kind = match self {
            Self::Create { task, if_not_exists } => Kind::Create(pb::CreateTask {
                task: Some(task.to_wire()),
                if_not_exists: *if_not_exists,
            }),
            Self::Alter { task, edit } => Kind::Alter(pb::AlterTask {
                task: task.0,
                enabled: edit.enabled,
                schedule: edit.schedule.as_ref().map(ToString::to_string),
                now_ms: edit.now_ms,
            }),
            Self::Drop { task } => Kind::Drop(pb::DropTask { task: task.0 }),
            Self::Step { task, step } => Kind::Step(step_to_wire(*task, step)),
        };
        pb::TaskChange { kind: Some(kind) }
    }

    fn from_wire(message: pb::TaskChange) -> Result<Self, Error> {
        use pb::task_change::Kind;
        Ok(match message.kind.ok_or_else(|| missing("change of a task"))? {
            Kind::Create(create) => Self::Create {
                task: Box::new(required(create.task, "task")?),
                if_not_exists: create.if_not_exists,
            },
            Kind::Alter(alter) => Self::Alter {
                task: TaskId(alter.task),
                edit: TaskEdit {
                    enabled: alter.enabled,
                    schedule: alter.schedule.as_deref().map(schedule).transpose()?,
                    now_ms: alter.now_ms,
                },
            },
            Kind::Drop(drop) => Self::Drop { task: TaskId(drop.task) },
            Kind::Step(step) => {
                Self::Step { task: TaskId(step.task), step: step_from_wire(step.kind)? }
            }
        })
    }
}
