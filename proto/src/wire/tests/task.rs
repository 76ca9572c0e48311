//! Forms of tasks and of their changes.

use proptest::sample::select;

use super::*;
use crate::catalog::Catalog;
use crate::id::TaskId;
use crate::task::{
    Lease, NewTask, Remote, Run, RunOutcome, Schedule, Task, TaskChange, TaskEdit, TaskEntry,
    TaskState, TaskStep, Window,
};

const RUNNER: u64 = 0x0102_0304_0506_0708;

fn schedule() -> impl Strategy<Value = Schedule> {
    let texts = vec!["every 5m offset 10s", "@daily", "*/5 1-3 * jan *"];
    select(texts).prop_map(|text| Schedule::parse(text).unwrap())
}

fn window() -> impl Strategy<Value = Window> {
    (any::<i64>(), any::<i64>()).prop_map(|(start_ms, stop_ms)| Window { start_ms, stop_ms })
}

fn remote() -> impl Strategy<Value = Remote> {
    (name(), option::of(name()), name(), vec(name(), 0..3))
        .prop_map(|(url, token, measurement, tags)| Remote { url, token, measurement, tags })
}

fn new_task() -> impl Strategy<Value = NewTask> {
    let numbers = (any::<u32>(), any::<u32>(), any::<u32>(), any::<i64>());
    (name(), (name(), option::of(remote())), schedule(), any::<bool>(), numbers).prop_map(
        |(name, (statement, remote), schedule, enabled, (database, owner, catch_up, now_ms))| {
            NewTask {
                database: DatabaseId(database),
                name,
                owner: RoleId(owner),
                schedule,
                statement,
                remote,
                enabled,
                catch_up,
                now_ms,
            }
        },
    )
}

fn step() -> impl Strategy<Value = TaskStep> {
    let numbers = || (any::<u64>(), any::<u64>(), any::<i64>());
    let windows = (window(), option::of(window()));
    prop_oneof![
        (numbers(), any::<u64>(), windows).prop_map(
            |((epoch, definition, now_ms), runner, (window, skipped))| TaskStep::Begin {
                epoch,
                definition,
                runner,
                window,
                skipped,
                now_ms,
            }
        ),
        numbers().prop_map(|(epoch, beat, _)| TaskStep::Renew { epoch, beat }),
        (numbers(), option::of(name())).prop_map(|((epoch, rows, now_ms), error)| TaskStep::End {
            epoch,
            rows,
            error,
            now_ms,
        }),
        numbers().prop_map(|(epoch, beat, now_ms)| TaskStep::Abandon { epoch, beat, now_ms }),
    ]
}

pub(super) fn change() -> impl Strategy<Value = TaskChange> {
    let id = || any::<u32>().prop_map(TaskId);
    prop_oneof![
        (new_task(), any::<bool>()).prop_map(|(task, if_not_exists)| TaskChange::Create {
            task: Box::new(task),
            if_not_exists,
        }),
        (id(), option::of(any::<bool>()), option::of(schedule()), any::<i64>()).prop_map(
            |(task, enabled, schedule, now_ms)| TaskChange::Alter {
                task,
                edit: TaskEdit { enabled, schedule, now_ms },
            }
        ),
        id().prop_map(|task| TaskChange::Drop { task }),
        (id(), step()).prop_map(|(task, step)| TaskChange::Step { task, step }),
    ]
}

/// A task with every field set.
fn full_entry() -> TaskEntry {
    let window = |start_ms, stop_ms| Window { start_ms, stop_ms };
    let task = Task {
        id: TaskId(300),
        database: DatabaseId(1),
        name: "down".to_owned(),
        owner: RoleId(2),
        schedule: Schedule::parse("every 5m offset 10s").unwrap(),
        statement: "INSERT INTO a SELECT 1".to_owned(),
        remote: Some(Remote {
            url: "https://a/w".to_owned(),
            token: Some("t".to_owned()),
            measurement: "m".to_owned(),
            tags: vec!["host".to_owned()],
        }),
        enabled: true,
        catch_up: 10,
        definition: 7,
        created_ms: 1_000,
    };
    let lease =
        Lease { runner: RUNNER, beat: 3, window: window(300_000, 600_000), began_ms: 601_000 };
    let run = Run {
        window: window(0, 300_000),
        began_ms: 301_000,
        ended_ms: 302_000,
        runner: RUNNER,
        epoch: 1,
        attempt: 2,
        outcome: RunOutcome::Failed,
        rows: 9,
        error: Some("42P01 gone".to_owned()),
    };
    let state = TaskState {
        task: TaskId(300),
        epoch: 2,
        lease: Some(lease),
        done_ms: 300_000,
        attempts: 1,
        runs: vec![run],
    };
    TaskEntry { task: Arc::new(task), state: Arc::new(state) }
}

/// Changes that together have every field set.
fn full_changes() -> Vec<TaskChange> {
    let task = TaskId(300);
    let step = |step| TaskChange::Step { task, step };
    let definition = full_entry().task;
    let new = NewTask {
        database: definition.database,
        name: definition.name.clone(),
        owner: definition.owner,
        schedule: definition.schedule.clone(),
        statement: definition.statement.clone(),
        remote: definition.remote.clone(),
        enabled: true,
        catch_up: 10,
        now_ms: 1_000,
    };
    let daily = Schedule::parse("@daily").unwrap();
    let edit = TaskEdit { enabled: Some(false), schedule: Some(daily), now_ms: 2_000 };
    vec![
        TaskChange::Create { task: Box::new(new), if_not_exists: true },
        TaskChange::Alter { task, edit },
        TaskChange::Drop { task },
        step(TaskStep::Begin {
            epoch: 1,
            definition: 7,
            runner: RUNNER,
            window: Window { start_ms: 300_000, stop_ms: 600_000 },
            skipped: Some(Window { start_ms: -300_000, stop_ms: 300_000 }),
            now_ms: 601_000,
        }),
        step(TaskStep::Renew { epoch: 2, beat: 4 }),
        step(TaskStep::End {
            epoch: 2,
            rows: 5,
            error: Some("57014 late".to_owned()),
            now_ms: 602_000,
        }),
        step(TaskStep::Abandon { epoch: 2, beat: 4, now_ms: 603_000 }),
    ]
}

#[test]
fn forms_of_tasks_never_change() {
    let mut forms = String::new();
    let mut line = |name: &str, bytes: Bytes| {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        forms.push_str(&format!("{name} {hex}\n"));
    };
    line("entry", full_entry().encode_wire());
    for change in full_changes() {
        line("change", change.encode_wire());
    }
    assert_eq!(forms, include_str!("task.golden"), "got:\n{forms}");
    assert_eq!(TaskEntry::decode_wire(full_entry().encode_wire()), Ok(full_entry()));
}

#[test]
fn frontends_follow_tasks_and_other_processes_do_not_get_them() {
    let mut catalog = Catalog { version: 1, ..Catalog::default() };
    let mut follower = Follower::default();
    let mut follow = |previous: Option<&Catalog>, current: &Catalog| {
        let mut newest = None;
        for part in parts_between(previous, current) {
            newest = follower.take(part).unwrap().or(newest);
        }
        newest.unwrap()
    };
    assert!(follow(None, &catalog).tasks.is_empty());
    let mut previous = catalog.clone();
    for version in 2..5_u64 {
        let mut entry = full_entry();
        Arc::make_mut(&mut entry.state).epoch = version;
        catalog.version = version;
        Arc::make_mut(&mut catalog.tasks).insert(entry.task.id, Arc::new(entry));
        assert_eq!(follow(Some(&previous), &catalog).tasks, catalog.tasks);
        previous = catalog.clone();
    }
    let public = public_parts_between(None, &catalog);
    assert!(public.iter().all(|part| part.tasks.is_empty()));
    catalog.version = 5;
    Arc::make_mut(&mut catalog.tasks).clear();
    assert!(follow(Some(&previous), &catalog).tasks.is_empty());
}
