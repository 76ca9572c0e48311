//! Changes of tasks, and the steps of their runs, which `partita_proto::task` decides.

use std::sync::Arc;

use partita_proto::error::Error;
use partita_proto::id::TaskId;
use partita_proto::task::{NewTask, TaskChange, TaskEntry};

use super::draft::{Draft, Outcome, Reply, check_owner};
use super::table::shown_name;
use crate::catalog::{Edit, State};

/// Maximum tasks: every frontend keeps them in memory.
const TASKS_MAX: usize = 10_000;

pub(super) fn change_task(state: &State, change: &TaskChange) -> Result<Outcome, Error> {
    match change {
        TaskChange::Create { task, if_not_exists } => create(state, task, *if_not_exists),
        TaskChange::Alter { task, edit } => {
            let entry = existing(state, *task)?;
            let mut draft = Draft::new(state);
            Ok(match entry.edited(edit, draft.step().0) {
                Some(edited) => {
                    draft.edits.push(Edit::Task(edited.task));
                    if edited.state != entry.state {
                        draft.edits.push(Edit::TaskState(edited.state));
                    }
                    draft.done()
                }
                None => Outcome::without_edits(Reply::Unchanged),
            })
        }
        TaskChange::Drop { task } => {
            existing(state, *task)?;
            let mut draft = Draft::new(state);
            draft.drop_task(*task);
            Ok(draft.done())
        }
        TaskChange::Step { task, step } => Ok(match existing(state, *task)?.after(step)? {
            Some(progress) => {
                let mut draft = Draft::new(state);
                draft.edits.push(Edit::TaskState(Arc::new(progress)));
                draft.done()
            }
            None => Outcome::without_edits(Reply::Unchanged),
        }),
    }
}

fn create(state: &State, new: &NewTask, if_not_exists: bool) -> Result<Outcome, Error> {
    new.validate()?;
    let database = state.database(new.database).ok_or_else(|| {
        let name = new.database.to_string();
        Error::NotFound { kind: "database", name }
    })?;
    if state.tasks().any(|task| task.database == new.database && task.name == new.name) {
        if if_not_exists {
            return Ok(Outcome::without_edits(Reply::Unchanged));
        }
        let name = shown_name(&database.name, &new.name);
        return Err(Error::AlreadyExists { kind: "task", name });
    }
    check_owner(state, new.owner)?;
    if state.tasks().count() >= TASKS_MAX {
        return Err(Error::LimitReached {
            message: "the limit of the number of tasks is reached".to_owned(),
            hint: "Drop tasks that are not needed.".to_owned(),
        });
    }
    let mut draft = Draft::new(state);
    let TaskEntry { task, state: progress } = new.entry(draft.new_task(), draft.step().0);
    draft.edits.push(Edit::Task(task));
    draft.edits.push(Edit::TaskState(progress));
    Ok(draft.done())
}

fn existing(state: &State, id: TaskId) -> Result<TaskEntry, Error> {
    state.task(id).ok_or_else(|| Error::NotFound { kind: "task", name: id.to_string() })
}

impl Draft<'_> {
    /// Removes a task and its progress.
    pub(super) fn drop_task(&mut self, id: TaskId) {
        self.edits.push(Edit::TaskGone(id));
        self.edits.push(Edit::TaskStateGone(id));
    }
}
