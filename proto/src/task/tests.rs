//! Schedules against a search by minutes, and histories of a task's steps.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// 2026-03-01T00:00:00Z, a Sunday.
const MARCH: i64 = 1_772_323_200_000;

fn schedule(text: &str) -> Schedule {
    Schedule::parse(text).unwrap()
}

#[test]
fn schedules_have_their_moments() {
    for (text, before, after) in [
        ("every 5m", MARCH, MARCH + 5 * MINUTE),
        ("EVERY  1h30m offset 10s", MARCH, MARCH + HOUR + HOUR / 2),
        ("* * * * *", MARCH, MARCH + MINUTE),
        ("@hourly", MARCH, MARCH + HOUR),
        ("@daily", MARCH, MARCH + DAY),
        ("@weekly", MARCH, MARCH + 7 * DAY),
        ("@monthly", MARCH, MARCH + 31 * DAY),
        ("30 2 * * *", MARCH - 21 * HOUR - HOUR / 2, MARCH + 2 * HOUR + HOUR / 2),
        ("*/20 1-3 * * *", MARCH - DAY + 3 * HOUR + 40 * MINUTE, MARCH + HOUR),
        ("0 12 * * mon-fri", MARCH - 2 * DAY + 12 * HOUR, MARCH + DAY + 12 * HOUR),
        ("0 0 * * 7", MARCH, MARCH + 7 * DAY),
        ("0 0 15 mar *", MARCH - 351 * DAY, MARCH + 14 * DAY),
        // Either day suffices: the 3rd, or a Sunday.
        ("0 0 3 * sun", MARCH, MARCH + 2 * DAY),
        ("0 0 29 2 *", MARCH - 731 * DAY, MARCH + 730 * DAY),
    ] {
        let schedule = schedule(text);
        assert_eq!(schedule.at_or_before(MARCH), Some(before), "{text}");
        assert_eq!(schedule.after(MARCH), Some(after), "{text}");
    }
    let shown = schedule("EVERY 1h30m  OFFSET 90s");
    assert_eq!(
        (shown.to_string().as_str(), shown.offset_ms()),
        ("every 1h30m offset 1m30s", 90_000)
    );
}

#[test]
fn texts_without_moments_are_refused() {
    for text in [
        "",
        "every",
        "every 0s",
        "every 5",
        "every m",
        "every 367d",
        "every 5m offset",
        "5m",
        "every 5m offset 8d",
        "* * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "5-1 * * * *",
        "1, * * * *",
        "- * * * *",
        "0 0 30 2 *",
        "@sometimes",
        "every -5m",
        "* * * * * *",
    ] {
        assert!(matches!(Schedule::parse(text), Err(Error::InvalidInput(_))), "{text}");
    }
}

/// Fields of cron, and a schedule with an interval.
fn schedules() -> impl Strategy<Value = String> {
    let minute = select(vec!["*", "0", "*/7", "5,50", "10-20/3", "59"]);
    let hour = select(vec!["*", "0", "*/5", "3-9", "23"]);
    let day = select(vec!["*", "1", "13", "*/10", "28-31"]);
    let month = select(vec!["*", "1-6", "jan,dec", "*/2"]);
    let weekday = select(vec!["*", "0", "mon-fri", "7", "2,4"]);
    let cron = (minute, hour, day, month, weekday)
        .prop_map(|(m, h, d, month, w)| format!("{m} {h} {d} {month} {w}"));
    prop_oneof![cron, (1_i64..5_000).prop_map(|minutes| format!("every {minutes}m"))]
}

proptest! {
    #[test]
    fn the_moment_after_is_the_next_one_that_is_at_itself(
        text in schedules(),
        time in -4_000_000_000_000_i64..8_000_000_000_000,
    ) {
        let schedule = schedule(&text);
        let after = schedule.after(time).unwrap();
        prop_assert!(after > time);
        prop_assert_eq!(schedule.at_or_before(after), Some(after));
        let before = schedule.at_or_before(time).unwrap();
        prop_assert!(before <= time);
        // There is none between.
        prop_assert_eq!(schedule.at_or_before(after - 1), Some(before));
        prop_assert_eq!(schedule.after(before), Some(after));
        prop_assert_eq!(&Schedule::parse(&schedule.to_string()).unwrap(), &schedule);
    }

    #[test]
    fn any_text_is_parsed_without_a_panic(text in "(every )?[*@/,0-9smhdwa-z -]{0,30}") {
        if let Ok(schedule) = Schedule::parse(&text) {
            prop_assert!(schedule.after(0).is_some());
            let _far = (schedule.after(i64::MAX), schedule.at_or_before(i64::MIN));
        }
    }
}

fn new() -> NewTask {
    NewTask {
        database: DatabaseId(1),
        name: "down".to_owned(),
        owner: RoleId(0),
        schedule: schedule("every 1h"),
        statement: "INSERT INTO a SELECT * FROM b".to_owned(),
        remote: None,
        enabled: true,
        catch_up: 3,
        now_ms: MARCH + 5 * MINUTE,
    }
}

fn window(start: i64, stop: i64) -> Window {
    Window { start_ms: MARCH + start * HOUR, stop_ms: MARCH + stop * HOUR }
}

fn begin(epoch: u64, window: Window) -> TaskStep {
    let now_ms = window.stop_ms;
    TaskStep::Begin { epoch, definition: 7, runner: 1, window, skipped: None, now_ms }
}

fn end(epoch: u64, error: Option<&str>) -> TaskStep {
    TaskStep::End { epoch, rows: 5, error: error.map(str::to_owned), now_ms: MARCH }
}

/// Makes a step; true if it was recorded.
fn step(entry: &mut TaskEntry, step: &TaskStep) -> bool {
    match entry.after(step).unwrap() {
        Some(state) => {
            entry.state = Arc::new(state);
            true
        }
        None => false,
    }
}

#[test]
fn only_the_newest_epoch_ends_a_run() {
    let mut entry = new().entry(TaskId(1), 7);
    assert_eq!(entry.state.done_ms, MARCH);
    assert!(step(&mut entry, &begin(0, window(0, 1))));
    // Another frontend that saw the same comes too late.
    assert!(!step(&mut entry, &begin(0, window(0, 1))));
    assert!(!step(&mut entry, &begin(1, window(0, 1))));
    assert!(step(&mut entry, &TaskStep::Renew { epoch: 1, beat: 1 }));
    assert!(!step(&mut entry, &TaskStep::Renew { epoch: 1, beat: 1 }));
    // A beat that was seen before the renewal takes nothing away.
    assert!(!step(&mut entry, &TaskStep::Abandon { epoch: 1, beat: 0, now_ms: MARCH }));
    assert!(step(&mut entry, &TaskStep::Abandon { epoch: 1, beat: 1, now_ms: MARCH }));
    assert!(!step(&mut entry, &end(1, None)));
    assert_eq!(entry.state.done_ms, MARCH);
    assert!(step(&mut entry, &begin(1, window(0, 1))));
    assert!(!step(&mut entry, &end(1, None)));
    assert!(step(&mut entry, &end(2, None)));
    assert_eq!(entry.state.done_ms, window(0, 1).stop_ms);
    let outcomes: Vec<_> = entry.state.runs.iter().map(|run| (run.outcome, run.attempt)).collect();
    assert_eq!(outcomes, [(RunOutcome::Abandoned, 1), (RunOutcome::Succeeded, 2)]);
    // A window that is done is not run again.
    assert!(entry.after(&begin(2, window(0, 1))).is_err());
    assert!(entry.after(&begin(2, window(2, 3))).is_err());
}

#[test]
fn a_window_that_fails_is_given_up_after_some_attempts() {
    let mut entry = new().entry(TaskId(1), 7);
    for attempt in 1..=u64::from(ATTEMPTS_MAX) {
        assert_eq!(entry.state.done_ms, MARCH);
        assert!(step(&mut entry, &begin(attempt - 1, window(0, 1))));
        assert!(step(&mut entry, &end(attempt, Some(&"ä".repeat(2_000)))));
    }
    assert_eq!((entry.state.done_ms, entry.state.attempts), (window(0, 1).stop_ms, 0));
    assert!(entry.state.runs[0].error.as_ref().is_some_and(|text| text.len() <= ERROR_BYTES_MAX));
}

#[test]
fn skipped_windows_are_recorded_and_the_history_is_bounded() {
    let mut entry = new().entry(TaskId(1), 7);
    let (skipped, now_ms) = (Some(window(0, 40)), MARCH);
    let first = window(40, 41);
    let late =
        TaskStep::Begin { epoch: 0, definition: 7, runner: 1, window: first, skipped, now_ms };
    assert!(step(&mut entry, &late));
    assert_eq!(entry.state.runs[0].outcome, RunOutcome::Skipped);
    assert!(step(&mut entry, &end(1, None)));
    for hour in 41..80 {
        let epoch = entry.state.epoch;
        assert!(step(&mut entry, &begin(epoch, window(hour, hour + 1))));
        assert!(step(&mut entry, &end(epoch + 1, None)));
    }
    assert_eq!(entry.state.runs.len(), RUNS_MAX);
}

#[test]
fn an_edit_makes_steps_of_the_former_definition_void() {
    let entry = new().entry(TaskId(1), 7);
    let off = TaskEdit { enabled: Some(false), ..TaskEdit::default() };
    let mut disabled = entry.edited(&off, 8).unwrap();
    assert_eq!(disabled.edited(&off, 9), None);
    assert!(!step(&mut disabled, &begin(0, window(0, 1))));
    // Windows of the pause are not made up for.
    let on = TaskEdit { enabled: Some(true), now_ms: MARCH + 5 * HOUR, ..TaskEdit::default() };
    let mut enabled = disabled.edited(&on, 9).unwrap();
    assert_eq!(enabled.state.done_ms, MARCH + 5 * HOUR);
    assert!(!step(&mut enabled, &begin(0, window(5, 6))));
    let daily = TaskEdit { schedule: Some(schedule("@daily")), ..TaskEdit::default() };
    let daily = entry.edited(&daily, 8).unwrap();
    assert_eq!(daily.state.done_ms, entry.state.done_ms);
}
