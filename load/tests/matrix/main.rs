//! Ours and four others on every stream, 30 seeds each: what they say, and what a cut is worth in the minute after it.
//!
//! The table is printed (`cargo test -p partita-load --test matrix -- --nocapture`). To look at one run again:
//! `MATRIX_STREAM='two tails' MATRIX_SEED=7 cargo test -p partita-load --test matrix -- --nocapture`.
//! `MATRIX_SEEDS=300` widens it, `MATRIX_OURS=1` leaves the others out.

#![allow(clippy::print_stdout, reason = "the table is what the test is for")]

mod report;
mod run;

use partita_hotspot::streams::{Kind, Truth, all};
use partita_load::Class;

use report::{Cell, Outcome, Row};

/// A cut is in vain if one side keeps more than this.
const IN_VAIN: f64 = 0.9;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// The seeds that are run, and the streams.
fn scope() -> (Vec<u64>, Vec<Kind>) {
    let seeds = match number("MATRIX_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("MATRIX_SEEDS").unwrap_or(30)).collect(),
    };
    let wanted = std::env::var("MATRIX_STREAM").ok();
    let kinds: Vec<_> = all()
        .into_iter()
        .filter(|kind| wanted.as_ref().is_none_or(|name| name == kind.name))
        .collect();
    assert!(!kinds.is_empty(), "no such stream");
    (seeds, kinds)
}

/// Command that repeats a run.
fn again(kind: &Kind, seed: u64) -> String {
    format!(
        "MATRIX_STREAM='{}' MATRIX_SEED={seed} cargo test -p partita-load --test matrix -- --nocapture",
        kind.name
    )
}

/// Runs every stream, two at a time.
fn rows(seeds: &[u64], kinds: &[Kind]) -> Vec<Row> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(kind) = kinds.get(at) else { return done };
            done.push((at, run::row(kind, seeds)));
        }
    };
    let mut rows: Vec<_> = std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let mut rows = work();
        rows.extend(other.join().expect("the other half of the streams"));
        rows
    });
    rows.sort_by_key(|(at, _)| *at);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Faults of our column of a row, each with the command that shows it.
fn faults(row: &Row) -> Vec<String> {
    let kind = &row.kind;
    let mut faults = Vec::new();
    let mut fault = |what: String, seed: u64| {
        faults.push(format!("{}: {what}; {}", kind.name, again(kind, seed)));
    };
    let mut wrong = Vec::new();
    for outcome in &row.ours.outcomes {
        if kind.truth == Truth::Stay && outcome.future.is_some() {
            fault("a cut was proposed".to_owned(), outcome.seed);
        }
        if !kind.classes.is_empty() && !kind.classes.contains(&outcome.class) {
            wrong.push(outcome);
        }
    }
    // One of thirty may err.
    if wrong.len() * 30 > row.ours.outcomes.len() {
        let said: Vec<Class> = wrong.iter().map(|outcome| outcome.class).collect();
        fault(format!("{} wrong classes {said:?}", wrong.len()), wrong[0].seed);
    }
    faults
}

#[test]
fn streams_are_told_apart_and_nothing_is_split_in_vain() {
    let (seeds, kinds) = scope();
    let rows = rows(&seeds, &kinds);
    report::print(&rows);
    let mut faults: Vec<String> = rows.iter().flat_map(faults).chain(claims(&rows)).collect();

    let (mut cuts, mut in_vain) = (0_usize, 0_usize);
    for row in rows.iter().filter(|row| row.kind.truth == Truth::Cut) {
        cuts += row.ours.cuts();
        in_vain += row.ours.vain();
        let vain = |outcome: &&Outcome| outcome.future.is_some_and(|future| future > IN_VAIN);
        row.ours.outcomes.iter().filter(vain).for_each(|outcome| {
            println!("in vain: {}", again(&row.kind, outcome.seed));
        });
    }
    println!("{cuts} cuts of loads that stand still, {in_vain} of them in vain");
    if in_vain * 1_000 > cuts {
        faults.push(format!("{in_vain} of {cuts} cuts in vain"));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The others have to fail where they are known to, or the comparison is with straw men.
fn claims(rows: &[Row]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut claim =
        |stream: &str, what: &str, cell: fn(&Row) -> &Cell, holds: fn(&Cell) -> bool| {
            let Some(row) = rows.iter().find(|row| row.kind.name == stream) else { return };
            if !cell(row).outcomes.is_empty() && !holds(cell(row)) {
                faults.push(format!("{stream}: {what}, but {}", cell(row).text()));
            }
        };
    let all_vain: fn(&Cell) -> bool = |cell| cell.vain() == cell.outcomes.len();
    let all_useful: fn(&Cell) -> bool =
        |cell| cell.cuts() == cell.outcomes.len() && cell.vain() == 0;
    let never: fn(&Cell) -> bool = |cell| cell.cuts() == 0;
    // It looks after every request, so it is fooled sooner or later: half of the seeds within two seconds.
    let often_vain: fn(&Cell) -> bool =
        |cell| cell.cuts() * 2 >= cell.outcomes.len() && cell.vain() == cell.cuts();
    for stream in ["ts,uid 50 ms", "ts,uid 500 ms", "ts desc,uid"] {
        claim(stream, "the finder is fooled by disorder", |row| &row.finder, often_vain);
        claim(stream, "the recorder splits in vain", |row| &row.recorder, all_vain);
        claim(stream, "the key sample splits in vain", |row| &row.key_sample, all_vain);
    }
    claim("ts,uid in order", "the finder refuses perfect order", |row| &row.finder, never);
    claim("ts,uid in order", "the recorder splits in vain", |row| &row.recorder, all_vain);
    claim("one key 80 %", "the finder refuses a key", |row| &row.finder, never);
    claim(
        "one key 80 %",
        "the key sample hardly cuts a key",
        |row| &row.key_sample,
        |cell| cell.cuts() * 10 <= cell.outcomes.len(),
    );
    for stream in ["uniform", "zipf scrambled", "hot range 90/1"] {
        claim(stream, "the finder divides it", |row| &row.finder, all_useful);
        claim(stream, "the recorder divides it", |row| &row.recorder, all_useful);
        claim(stream, "the key sample divides it", |row| &row.key_sample, all_useful);
    }
    faults
}
