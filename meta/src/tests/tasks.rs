//! Tasks: their changes, their records, and histories in which frontends race for leases.

use partita_proto::access::AccessChange;
use partita_proto::id::{DatabaseId, RoleId, TaskId};
use partita_proto::task::{
    NewTask, RunOutcome, Schedule, TaskChange, TaskEdit, TaskEntry, TaskStep, Window,
};
use proptest::prelude::*;

use super::access::{create_role, world};
use super::model::hex;
use super::*;
use crate::memory_store::MemoryStore;
use crate::record;
use crate::store::StateStore;

const RUNNER: u64 = 0x0102_0304_0506_0708;
const FIVE_MINUTES: i64 = 300_000;

fn new(name: &str, owner: RoleId) -> NewTask {
    NewTask {
        database: DatabaseId(1),
        name: name.to_owned(),
        owner,
        schedule: Schedule::parse("every 5m offset 10s").unwrap(),
        statement: "INSERT INTO a SELECT 1".to_owned(),
        remote: None,
        enabled: true,
        catch_up: 10,
        now_ms: 1_000,
    }
}

fn ddl(change: TaskChange) -> Ddl {
    Ddl::Task(Box::new(change))
}

fn create_task(task: NewTask) -> Ddl {
    ddl(TaskChange::Create { task: Box::new(task), if_not_exists: false })
}

fn step(task: TaskId, step: TaskStep) -> Ddl {
    ddl(TaskChange::Step { task, step })
}

/// Takes the lease for the next window of a task as a frontend that has seen this entry.
fn begin(entry: &TaskEntry) -> TaskStep {
    let start_ms = entry.state.done_ms;
    let window = Window { start_ms, stop_ms: start_ms + FIVE_MINUTES };
    TaskStep::Begin {
        epoch: entry.state.epoch,
        definition: entry.task.definition,
        runner: RUNNER,
        window,
        skipped: None,
        now_ms: window.stop_ms + 1_000,
    }
}

fn entry(world: &World, id: u32) -> Arc<TaskEntry> {
    Arc::clone(&world.catalog.tasks[&TaskId(id)])
}

#[test]
fn a_task_is_created_altered_and_dropped() {
    let mut world = world();
    world.change(Ddl::Access(Box::new(create_role("ada")))).unwrap();
    world.change(create_task(new("down", RoleId(1)))).unwrap();
    let twin = Err(Error::AlreadyExists { kind: "task", name: "down".to_owned() });
    assert_eq!(world.change(create_task(new("down", RoleId(1)))), twin);
    let (task, if_not_exists) = (Box::new(new("down", RoleId(1))), true);
    assert_eq!(world.change(ddl(TaskChange::Create { task, if_not_exists })), Ok(Reply::Unchanged));
    invalid(world.change(create_task(NewTask { catch_up: 0, ..new("x", RoleId(1)) })));
    invalid(world.change(create_task(new("", RoleId(1)))));
    assert!(world.change(create_task(new("x", RoleId(9)))).is_err());
    let elsewhere = NewTask { database: DatabaseId(9), ..new("x", RoleId(1)) };
    assert!(world.change(create_task(elsewhere)).is_err());
    // The owner stays as long as the task.
    let drop_owner = Ddl::Access(Box::new(AccessChange::DropRole { role: RoleId(1) }));
    let error = world.change(drop_owner.clone()).unwrap_err();
    assert!(error.to_string().contains("owner of task down"), "{error}");
    let edit = TaskEdit { enabled: Some(false), ..TaskEdit::default() };
    let alter = ddl(TaskChange::Alter { task: TaskId(1), edit });
    assert!(matches!(world.change(alter.clone()), Ok(Reply::Changed { .. })));
    assert_eq!(world.change(alter), Ok(Reply::Unchanged));
    let altered = entry(&world, 1);
    assert_eq!((altered.task.enabled, altered.task.definition), (false, world.state.version()));
    world.change(ddl(TaskChange::Drop { task: TaskId(1) })).unwrap();
    assert!(world.catalog.tasks.is_empty());
    assert!(world.change(ddl(TaskChange::Drop { task: TaskId(1) })).is_err());
    world.change(drop_owner).unwrap();
    // Numbers are not given again.
    world.change(create_task(new("down", BOOTSTRAP_ROLE))).unwrap();
    assert_eq!(entry(&world, 2).task.id, TaskId(2));
}

#[test]
fn tasks_go_with_their_database() {
    let mut world = world();
    world.change(create_database("d")).unwrap();
    let database = world.catalog.databases["d"].id;
    world.change(create_task(NewTask { database, ..new("down", BOOTSTRAP_ROLE) })).unwrap();
    world.change(create_task(new("down", BOOTSTRAP_ROLE))).unwrap();
    world.change(Ddl::DropDatabase { name: "d".to_owned(), if_exists: false }).unwrap();
    assert_eq!(world.catalog.tasks.keys().copied().collect::<Vec<_>>(), [TaskId(2)]);
}

#[test]
fn of_two_frontends_one_runs_a_window() {
    let mut world = world();
    world.change(create_task(new("down", BOOTSTRAP_ROLE))).unwrap();
    let seen = entry(&world, 1);
    let id = TaskId(1);
    assert!(matches!(world.change(step(id, begin(&seen))), Ok(Reply::Changed { .. })));
    assert_eq!(world.change(step(id, begin(&seen))), Ok(Reply::Unchanged));
    let abandon = TaskStep::Abandon { epoch: 1, beat: 0, now_ms: 0 };
    assert!(matches!(world.change(step(id, abandon)), Ok(Reply::Changed { .. })));
    // The first one has lost its lease: its end is not recorded.
    let end = |epoch| TaskStep::End { epoch, rows: 1, error: None, now_ms: 0 };
    assert_eq!(world.change(step(id, end(1))), Ok(Reply::Unchanged));
    assert_eq!(entry(&world, 1).state.done_ms, 0);
    let newest = entry(&world, 1);
    world.change(step(id, begin(&newest))).unwrap();
    world.change(step(id, end(2))).unwrap();
    let state = Arc::clone(&entry(&world, 1).state);
    assert_eq!((state.done_ms, state.lease), (FIVE_MINUTES, None));
}

/// A step of one of two frontends, with the entry that it has seen last.
#[derive(Clone, Debug)]
enum Act {
    Look(usize),
    Begin(usize),
    Renew(usize),
    End(usize, bool),
    Abandon(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = (0..5_u8, 0..2_usize, any::<bool>()).prop_map(|(kind, frontend, fails)| match kind {
        0 => Act::Look(frontend),
        1 => Act::Begin(frontend),
        2 => Act::Renew(frontend),
        3 => Act::End(frontend, fails),
        _ => Act::Abandon(frontend),
    });
    proptest::collection::vec(act, 0..60)
}

proptest! {
    #[test]
    fn no_window_is_done_twice_whatever_frontends_have_seen(acts in acts()) {
        let mut world = world();
        world.change(create_task(new("down", BOOTSTRAP_ROLE))).unwrap();
        let mut seen = [entry(&world, 1), entry(&world, 1)];
        let mut done = Vec::new();
        let mut epochs = Vec::new();
        for act in acts {
            let state = |frontend: usize| &seen[frontend].state;
            let made = match act {
                Act::Look(frontend) => {
                    seen[frontend] = entry(&world, 1);
                    continue;
                }
                Act::Begin(frontend) => begin(&seen[frontend]),
                Act::Renew(frontend) => {
                    let beat = state(frontend).lease.map_or(0, |lease| lease.beat) + 1;
                    TaskStep::Renew { epoch: state(frontend).epoch, beat }
                }
                Act::End(frontend, fails) => {
                    let error = fails.then(|| "22012 division by zero".to_owned());
                    TaskStep::End { epoch: state(frontend).epoch, rows: 1, error, now_ms: 0 }
                }
                Act::Abandon(frontend) => {
                    let beat = state(frontend).lease.map_or(0, |lease| lease.beat);
                    TaskStep::Abandon { epoch: state(frontend).epoch, beat, now_ms: 0 }
                }
            };
            let earlier = entry(&world, 1);
            let reply = world.change(step(TaskId(1), made.clone()));
            let later = entry(&world, 1);
            prop_assert!(later.state.done_ms >= earlier.state.done_ms);
            let changed = matches!(reply, Ok(Reply::Changed { .. }));
            if changed && matches!(made, TaskStep::Begin { .. }) {
                epochs.push(later.state.epoch);
            }
            if changed && matches!(made, TaskStep::End { .. }) {
                let run = later.state.runs.last().unwrap();
                if run.outcome == RunOutcome::Succeeded {
                    done.push(run.window.start_ms);
                }
            }
            if !changed {
                prop_assert_eq!(&later, &earlier);
            }
        }
        prop_assert!(done.is_sorted_by(|a, b| a < b), "{done:?}");
        prop_assert!(epochs.is_sorted_by(|a, b| a < b), "{epochs:?}");
        let store = MemoryStore::default();
        store.commit(&record::changes(&world.state.all_edits()), None).unwrap();
        prop_assert_eq!(&record::state(store.load().unwrap().records).unwrap(), &world.state);
    }
}

/// Data written by earlier versions must stay readable. This test fails when a form changes; then the old bytes
/// belong into a test that reads them.
#[test]
fn entries_and_records_of_tasks_keep_their_form() {
    let change = Command::Change {
        ddl: ddl(TaskChange::Drop { task: TaskId(300) }),
        places: vec![],
        id: None,
        tables_max: None,
    };
    let mut forms = vec![format!("change {}", hex(&change.encode()))];
    let mut world = world();
    world.change(Ddl::Access(Box::new(create_role("ada")))).unwrap();
    world.change(create_task(new("down", RoleId(1)))).unwrap();
    let seen = entry(&world, 1);
    world.change(step(TaskId(1), begin(&seen))).unwrap();
    let edits = world.state.all_edits().into_iter();
    let task_edits: Vec<Edit> =
        edits.filter(|edit| matches!(edit, Edit::Task(_) | Edit::TaskState(_))).collect();
    let record = |change: crate::store::Change| {
        format!("record {} {}", hex(&change.key), hex(&change.value.unwrap()))
    };
    forms.extend(record::changes(&task_edits).into_iter().map(record));
    let forms = forms.join("\n") + "\n";
    assert_eq!(forms, include_str!("tasks.golden"), "got:\n{forms}");
}
