//! `sys.tasks` and `sys.task_runs`: tasks that the viewer may alter, all of them for those who monitor the cluster.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use partita_proto::access::{Action, Need, Object};
use partita_proto::task::{Run, Task, TaskEntry};

use crate::access::viewer::Viewer;
use crate::error::SqlError;
use crate::virtual_table::{Cell, Kind, batch, schema};

/// Columns of `sys.tasks`.
pub(crate) const TASKS: &[(&str, Kind)] = &[
    ("database", Kind::Text),
    ("task", Kind::Text),
    ("task_id", Kind::Count),
    ("owner", Kind::Text),
    ("schedule", Kind::Text),
    ("enabled", Kind::Flag),
    ("catch_up", Kind::Count),
    ("statement", Kind::Text),
    ("remote", Kind::Text),
    ("created", Kind::Time),
    ("done", Kind::Time),
    ("attempts", Kind::Count),
    ("runner", Kind::Text),
    ("running_since", Kind::Time),
    ("window_start", Kind::Time),
    ("window_stop", Kind::Time),
    ("last_outcome", Kind::Text),
    ("last_error", Kind::Text),
];

/// Columns of `sys.task_runs`.
pub(crate) const TASK_RUNS: &[(&str, Kind)] = &[
    ("database", Kind::Text),
    ("task", Kind::Text),
    ("task_id", Kind::Count),
    ("window_start", Kind::Time),
    ("window_stop", Kind::Time),
    ("attempt", Kind::Count),
    ("outcome", Kind::Text),
    ("began", Kind::Time),
    ("ended", Kind::Time),
    ("rows", Kind::Count),
    ("error", Kind::Text),
    ("runner", Kind::Text),
    ("epoch", Kind::Count),
];

/// A task as the object of a need.
pub(crate) fn task_object(task: &Task) -> Object {
    Object::Task { name: task.name.clone(), owner: task.owner }
}

/// Tasks that the viewer may see.
pub(crate) fn shown_tasks(viewer: &Viewer) -> Vec<Arc<TaskEntry>> {
    let monitors = viewer.monitors();
    let is_shown = |entry: &&Arc<TaskEntry>| {
        monitors || viewer.check(&[Need::new(Action::Task, task_object(&entry.task))]).is_ok()
    };
    viewer.catalog().tasks.values().filter(is_shown).map(Arc::clone).collect()
}

/// Name of a task's database; `None` if it is hidden.
fn database_name(viewer: &Viewer, task: &Task) -> Option<String> {
    let catalog = viewer.catalog();
    let mut databases = catalog.databases.values();
    let database = databases.find(|database| database.id == task.database);
    database.map(|database| database.name.clone())
}

fn shown_runner(runner: u64) -> String {
    format!("{runner:016x}")
}

/// Rows of `sys.tasks`.
pub(crate) fn tasks(viewer: &Viewer) -> Result<RecordBatch, SqlError> {
    let access = viewer.access();
    let row = |entry: Arc<TaskEntry>| {
        let (task, state) = (&entry.task, &entry.state);
        let lease = state.lease;
        let last = state.runs.last();
        vec![
            database_name(viewer, task).into(),
            task.name.as_str().into(),
            u64::from(task.id.0).into(),
            access.role(task.owner).map(|owner| owner.name.clone()).into(),
            task.schedule.to_string().into(),
            task.enabled.into(),
            u64::from(task.catch_up).into(),
            task.statement.as_str().into(),
            task.remote.as_ref().map(|remote| remote.origin().to_owned()).into(),
            Cell::Time(Some(task.created_ms)),
            Cell::Time(Some(state.done_ms)),
            u64::from(state.attempts).into(),
            lease.map(|lease| shown_runner(lease.runner)).into(),
            Cell::Time(lease.map(|lease| lease.began_ms)),
            Cell::Time(lease.map(|lease| lease.window.start_ms)),
            Cell::Time(lease.map(|lease| lease.window.stop_ms)),
            last.map(|run| run.outcome.name().to_owned()).into(),
            last.and_then(|run| run.error.clone()).into(),
        ]
    };
    batch(&schema(TASKS), shown_tasks(viewer).into_iter().map(row).collect())
}

/// Rows of `sys.task_runs`.
pub(crate) fn task_runs(viewer: &Viewer) -> Result<RecordBatch, SqlError> {
    let mut rows = Vec::new();
    for entry in shown_tasks(viewer) {
        let task = &entry.task;
        let database = database_name(viewer, task);
        let row = |run: &Run| {
            vec![
                database.clone().into(),
                task.name.as_str().into(),
                u64::from(task.id.0).into(),
                Cell::Time(Some(run.window.start_ms)),
                Cell::Time(Some(run.window.stop_ms)),
                u64::from(run.attempt).into(),
                run.outcome.name().into(),
                Cell::Time(Some(run.began_ms)),
                Cell::Time(Some(run.ended_ms)),
                run.rows.into(),
                run.error.clone().into(),
                shown_runner(run.runner).into(),
                run.epoch.into(),
            ]
        };
        rows.extend(entry.state.runs.iter().map(row));
    }
    batch(&schema(TASK_RUNS), rows)
}
