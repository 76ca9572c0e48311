//! Decides which step a frontend makes for a task at a time, by the leases that it has seen. Nothing here reads a clock.
//!
//! ```text
//!   lease ──▶ no new beat for SILENCE_MAX? ──▶ Abandon, otherwise wait
//!   none ───▶ window due? ──▶ Begin, with the windows that are skipped; otherwise wait
//! ```
//!
//! Times of windows are those of the wall clock, and the silence of a holder is measured by a clock that only runs
//! forward.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use partita_proto::id::TaskId;
use partita_proto::task::{TaskEntry, TaskStep, Window};

/// Time without a new beat after which a lease is taken away.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Time for which a holder goes on after it has sent a renewal that was recorded.
pub(crate) const HOLD_MAX: Duration = Duration::from_secs(20);
/// Interval of renewals.
pub(crate) const RENEW_EVERY: Duration = Duration::from_secs(5);
/// Pause between two steps for one task, whatever their result.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause before a window is run again, for each run that it had.
const RETRY_MS: i64 = 10_000;

/// Next action for a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing before this time has passed, or the task changes; `None`: nothing before it changes.
    Wait(Option<Duration>),
    /// Record this step. [`TaskStep::Begin`]: then run the window.
    Make(TaskStep),
}

/// The time now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Milliseconds since 1970.
    pub(crate) wall_ms: i64,
    /// Time since the process began, by a clock that only runs forward.
    pub(crate) elapsed: Duration,
}

/// A lease as it was seen first.
#[derive(Clone, Copy, Debug)]
struct Seen {
    epoch: u64,
    beat: u64,
    since: Duration,
}

/// Decides about tasks, and remembers what it has seen of leases.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Random number of the frontend.
    runner: u64,
    leases: HashMap<TaskId, Seen>,
    /// Times before which no further step is made.
    pauses: HashMap<TaskId, Duration>,
}

impl Turns {
    pub(crate) fn new(runner: u64) -> Self {
        Self { runner, leases: HashMap::new(), pauses: HashMap::new() }
    }

    /// Forgets tasks that are gone.
    pub(crate) fn retain(&mut self, tasks: &BTreeMap<TaskId, Arc<TaskEntry>>) {
        self.leases.retain(|id, _| tasks.contains_key(id));
        self.pauses.retain(|id, _| tasks.contains_key(id));
    }

    /// Decides about a task that this frontend does not run at present.
    pub(crate) fn turn(&mut self, entry: &TaskEntry, time: Now) -> Turn {
        let id = entry.task.id;
        let turn = match entry.state.lease {
            Some(lease) => self.watch(id, entry.state.epoch, lease.beat, time),
            None => {
                self.leases.remove(&id);
                self.next(entry, time)
            }
        };
        if !matches!(turn, Turn::Make(_)) {
            return turn;
        }
        if let Some(end) = self.pauses.get(&id).filter(|end| **end > time.elapsed) {
            return Turn::Wait(Some(*end - time.elapsed));
        }
        self.pauses.insert(id, time.elapsed + PAUSE);
        turn
    }

    /// Watches a lease of another frontend, or one that this frontend held before it lost sight of its run.
    fn watch(&mut self, id: TaskId, epoch: u64, beat: u64, time: Now) -> Turn {
        let is_same = |former: &&Seen| (former.epoch, former.beat) == (epoch, beat);
        let Some(former) = self.leases.get(&id).filter(is_same) else {
            self.leases.insert(id, Seen { epoch, beat, since: time.elapsed });
            return Turn::Wait(Some(SILENCE_MAX));
        };
        let silence = time.elapsed.saturating_sub(former.since);
        match SILENCE_MAX.checked_sub(silence).filter(|rest| !rest.is_zero()) {
            Some(rest) => Turn::Wait(Some(rest)),
            None => Turn::Make(TaskStep::Abandon { epoch, beat, now_ms: time.wall_ms }),
        }
    }

    fn next(&self, entry: &TaskEntry, time: Now) -> Turn {
        if !entry.task.enabled {
            return Turn::Wait(None);
        }
        match due(entry, time.wall_ms) {
            Due::At(due_ms) => Turn::Wait(wait(due_ms, time.wall_ms)),
            Due::Never => Turn::Wait(None),
            Due::Now { window, skipped } => {
                if let Some(rest) = retry_in(entry, time.wall_ms).filter(|_| skipped.is_none()) {
                    return Turn::Wait(Some(rest));
                }
                Turn::Make(TaskStep::Begin {
                    epoch: entry.state.epoch,
                    definition: entry.task.definition,
                    runner: self.runner,
                    window,
                    skipped,
                    now_ms: time.wall_ms,
                })
            }
        }
    }
}

/// The next window of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// It can be run, after others that are skipped.
    Now { window: Window, skipped: Option<Window> },
    /// It can be run at this time.
    At(i64),
    /// There is none within the range of 64 bits.
    Never,
}

/// The next window of a task at a time.
fn due(entry: &TaskEntry, now_ms: i64) -> Due {
    let (schedule, done_ms) = (&entry.task.schedule, entry.state.done_ms);
    let newest = schedule.at_or_before(now_ms.saturating_sub(schedule.offset_ms()));
    let Some(newest) = newest.filter(|newest| *newest > done_ms) else {
        let next = schedule.after(done_ms);
        let due = next.and_then(|next| next.checked_add(schedule.offset_ms()));
        return due.map_or(Due::Never, Due::At);
    };
    // From the newest end of a window back, as far as the task is to catch up.
    let mut stop_ms = newest;
    let mut start_ms = schedule.at_or_before(newest - 1);
    for _ in 1..entry.task.catch_up {
        let Some(earlier) = start_ms.filter(|start_ms| *start_ms > done_ms) else { break };
        stop_ms = earlier;
        start_ms = schedule.at_or_before(earlier - 1);
    }
    match start_ms.filter(|start_ms| *start_ms > done_ms) {
        Some(start_ms) => Due::Now {
            window: Window { start_ms, stop_ms },
            skipped: Some(Window { start_ms: done_ms, stop_ms: start_ms }),
        },
        None => Due::Now { window: Window { start_ms: done_ms, stop_ms }, skipped: None },
    }
}

/// Time before a window is run again; `None` if it may be run now.
fn retry_in(entry: &TaskEntry, now_ms: i64) -> Option<Duration> {
    let run = entry.state.runs.last().filter(|_| entry.state.attempts > 0)?;
    let pause_ms = RETRY_MS * i64::from(entry.state.attempts);
    let rest = wait(run.ended_ms.saturating_add(pause_ms), now_ms)?;
    // The clock of another frontend may have run ahead.
    Some(rest.min(Duration::from_millis(pause_ms.unsigned_abs()))).filter(|rest| !rest.is_zero())
}

/// Time from one moment to a later one; none is 0.
fn wait(moment_ms: i64, now_ms: i64) -> Option<Duration> {
    let rest = moment_ms.checked_sub(now_ms)?.max(0);
    Some(Duration::from_millis(rest.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use partita_proto::id::{DatabaseId, RoleId};
    use partita_proto::task::{NewTask, RunOutcome, Schedule, TaskEdit};
    use proptest::prelude::*;

    use super::*;

    const MINUTE: i64 = 60_000;

    fn entry(schedule: &str, catch_up: u32) -> TaskEntry {
        let new = NewTask {
            database: DatabaseId(1),
            name: "down".to_owned(),
            owner: RoleId(0),
            schedule: Schedule::parse(schedule).unwrap(),
            statement: "INSERT INTO a SELECT 1".to_owned(),
            remote: None,
            enabled: true,
            catch_up,
            now_ms: 0,
        };
        new.entry(TaskId(1), 1)
    }

    fn at(wall_ms: i64) -> Now {
        Now { wall_ms, elapsed: Duration::from_millis(wall_ms.unsigned_abs()) }
    }

    fn window(start: i64, stop: i64) -> Window {
        Window { start_ms: start * MINUTE, stop_ms: stop * MINUTE }
    }

    /// Makes a step of a task, which must be recorded.
    fn make(entry: &mut TaskEntry, step: &TaskStep) {
        entry.state = Arc::new(entry.after(step).unwrap().unwrap());
    }

    fn begun(turn: &Turn) -> (Window, Option<Window>) {
        match turn {
            Turn::Make(TaskStep::Begin { window, skipped, .. }) => (*window, *skipped),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_window_is_run_after_its_end_and_offset() {
        let mut turns = Turns::new(7);
        let mut entry = entry("every 5m offset 10s", 10);
        let rest = Turn::Wait(Some(Duration::from_secs(10)));
        assert_eq!(turns.turn(&entry, at(5 * MINUTE)), rest);
        let turn = turns.turn(&entry, at(5 * MINUTE + 10_000));
        assert_eq!(begun(&turn), (window(0, 5), None));
        // A step that was not recorded is not repeated at once.
        let outcome = turns.turn(&entry, at(5 * MINUTE + 10_400));
        assert_eq!(outcome, Turn::Wait(Some(Duration::from_millis(600))));
        let Turn::Make(step) = turn else { panic!("no step") };
        make(&mut entry, &step);
        make(&mut entry, &TaskStep::End { epoch: 1, rows: 0, error: None, now_ms: 0 });
        let rest = Turn::Wait(Some(Duration::from_secs(5 * 60)));
        assert_eq!(turns.turn(&entry, at(5 * MINUTE + 10_000)), rest);
        let off = TaskEdit { enabled: Some(false), ..TaskEdit::default() };
        assert_eq!(turns.turn(&entry.edited(&off, 2).unwrap(), at(99 * MINUTE)), Turn::Wait(None));
    }

    #[test]
    fn after_a_pause_the_newest_windows_are_run() {
        let mut turns = Turns::new(7);
        let entry = entry("every 5m", 3);
        assert_eq!(begun(&turns.turn(&entry, at(14 * MINUTE))), (window(0, 5), None));
        assert_eq!(begun(&turns.turn(&entry, at(15 * MINUTE))), (window(0, 5), None));
        let skipped = Some(window(0, 85));
        assert_eq!(begun(&turns.turn(&entry, at(100 * MINUTE))), (window(85, 90), skipped));
        // A schedule that changes leaves no gap.
        let edit = TaskEdit {
            schedule: Some(Schedule::parse("every 7m").unwrap()),
            ..TaskEdit::default()
        };
        let mut moved = entry.edited(&edit, 2).unwrap();
        Arc::make_mut(&mut moved.state).done_ms = 5 * MINUTE;
        assert_eq!(begun(&turns.turn(&moved, at(8 * MINUTE + 200 * MINUTE))).0, window(182, 189));
        assert_eq!(due(&moved, 8 * MINUTE), Due::Now { window: window(5, 7), skipped: None });
    }

    #[test]
    fn a_lease_is_taken_away_after_silence_only() {
        let mut turns = Turns::new(7);
        let mut entry = entry("every 5m", 10);
        let Turn::Make(step) = turns.turn(&entry, at(5 * MINUTE)) else { panic!("no step") };
        make(&mut entry, &step);
        let began = 6 * MINUTE;
        for beat in 0..5 {
            let now = began + 29_000 * beat;
            if beat > 0 {
                make(&mut entry, &TaskStep::Renew { epoch: 1, beat: beat.unsigned_abs() });
            }
            assert_eq!(turns.turn(&entry, at(now)), Turn::Wait(Some(SILENCE_MAX)));
        }
        let last = began + 29_000 * 4;
        let rest = Turn::Wait(Some(Duration::from_millis(1)));
        assert_eq!(turns.turn(&entry, at(last + 29_999)), rest);
        let now_ms = last + 30_000;
        let abandon = TaskStep::Abandon { epoch: 1, beat: 4, now_ms };
        assert_eq!(turns.turn(&entry, at(now_ms)), Turn::Make(abandon.clone()));
        make(&mut entry, &abandon);
        // The window is run again, after a pause.
        let rest = Turn::Wait(Some(Duration::from_secs(10)));
        assert_eq!(turns.turn(&entry, at(now_ms)), rest);
        assert_eq!(begun(&turns.turn(&entry, at(now_ms + 10_000))), (window(0, 5), None));
        turns.retain(&BTreeMap::new());
        assert!(turns.leases.is_empty() && turns.pauses.is_empty());
    }

    #[test]
    fn the_holder_stops_before_another_begins() {
        // A margin for clocks that run at different speeds, and for writes on their way.
        assert!(HOLD_MAX + Duration::from_secs(5) <= SILENCE_MAX);
        assert!(RENEW_EVERY * 3 <= HOLD_MAX);
    }

    proptest! {
        #[test]
        fn windows_follow_each_other_whenever_a_frontend_looks(
            schedule in proptest::sample::select(vec![
                "every 5m", "every 7m offset 3m", "*/10 * * * *", "30 1 * * 1-5", "@daily",
            ]),
            catch_up in 1..6_u32,
            pauses in proptest::collection::vec((0..10_000_i64, any::<bool>()), 1..40),
        ) {
            let mut entry = entry(schedule, catch_up);
            let mut turns = Turns::new(7);
            let mut now = 0;
            for (pause, fails) in pauses {
                now += pause * MINUTE;
                // As long as windows are due; the pause between steps is over each time.
                for _ in 0..=catch_up * 3 {
                    now += 40_000;
                    let done = entry.state.done_ms;
                    let Turn::Make(step) = turns.turn(&entry, at(now)) else { break };
                    let (window, skipped) = begun(&Turn::Make(step.clone()));
                    prop_assert_eq!(skipped.unwrap_or(window).start_ms, done);
                    prop_assert!(window.stop_ms + entry.task.schedule.offset_ms() <= now);
                    make(&mut entry, &step);
                    let error = fails.then(|| "22012".to_owned());
                    let epoch = entry.state.epoch;
                    make(&mut entry, &TaskStep::End { epoch, rows: 0, error, now_ms: now });
                }
            }
            let skips = entry.state.runs.iter().filter(|run| run.outcome == RunOutcome::Skipped);
            prop_assert!(skips.map(|run| run.window).all(|window| window.start_ms < window.stop_ms));
        }
    }
}
