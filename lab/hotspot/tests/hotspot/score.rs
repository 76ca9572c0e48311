//! The scoreboard over all streams: classes, times, cuts in vain, and predictions of the advice.
//!
//! The page is printed (`cargo test -p partita-hotspot --test hotspot score -- --nocapture`).

use std::sync::atomic::{AtomicUsize, Ordering};

use partita_hotspot::score::{
    Judged, Score, StreamOptions, confusion, healthy, page, score, scoreboard,
};
use partita_hotspot::streams::{Kind, Truth, all};
use partita_load::Class;

const SEEDS: u64 = 3;
/// Time of a verdict, seconds: eight of them make a partition hot.
const VERDICT_S: u64 = 20;
/// The same where keys are appended, which are watched for longer.
const APPENDED_S: u64 = 60;
/// Maximum time from the verdict until a load that cuts divide is served.
const RELIEF_S: u64 = 20;
/// Streams that cuts divide into as many parts as they need.
const DIVIDED: [&str; 3] = ["uniform", "zipf scrambled", "hot range 90/1"];
/// Maximum error of a prediction.
const ERROR_MAX: f64 = 0.1;

/// Runs every stream with every seed, two at a time.
fn scores(run: fn(&Kind, u64) -> Score, seeds: u64) -> Vec<(Kind, Score)> {
    let kinds = all();
    let runs: Vec<(Kind, u64)> =
        kinds.into_iter().flat_map(|kind| (0..seeds).map(move |seed| (kind, seed))).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some((kind, seed)) = runs.get(place) else { return done };
            done.push((place, (*kind, run(kind, *seed))));
        }
    };
    let mut scores: Vec<_> = std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let mut scores = work();
        scores.extend(other.join().unwrap());
        scores
    });
    scores.sort_by_key(|(place, _)| *place);
    scores.into_iter().map(|(_, score)| score).collect()
}

/// True if a part of the load is appended somewhere, or changes its place every few seconds: both show in more than one
/// window only.
fn is_appended(kind: &Kind, class: Class) -> bool {
    class.is_moving()
        || matches!(class, Class::MultiTail | Class::Rotating)
        || kind.name.starts_with("tail ")
}

#[test]
#[allow(clippy::print_stdout, reason = "the page is what the test is for")]
fn streams_are_named_in_time_and_advice_keeps_its_promises() {
    let scores = scores(score, SEEDS);
    let rows: Vec<Score> = scores.iter().map(|(_, score)| score.clone()).collect();
    println!("{}", page(&rows));
    let judged: Vec<Judged> = scores
        .iter()
        .map(|(kind, score)| Judged { expected: kind.classes.to_vec(), verdict: score.verdict })
        .collect();
    println!("{}", confusion(&judged));
    let mut faults = Vec::new();
    let judged = scores.iter().filter(|(kind, _)| !kind.classes.is_empty());
    let (right, wrong): (Vec<_>, Vec<_>) =
        judged.partition(|(kind, score)| kind.classes.contains(&score.verdict));
    if wrong.len() * 40 > right.len() + wrong.len() {
        let of: Vec<_> = wrong.iter().map(|(kind, score)| (kind.name, score.verdict)).collect();
        faults.push(format!(
            "{} of {} classes are wrong: {of:?}",
            of.len(),
            right.len() + of.len()
        ));
    }
    for (kind, score) in &right {
        let limit = if is_appended(kind, score.verdict) { APPENDED_S } else { VERDICT_S };
        if score.verdict_s.is_none_or(|second| second > limit) {
            faults.push(format!("{}: {} after {:?} s", kind.name, score.verdict, score.verdict_s));
        }
    }
    let divided = || scores.iter().filter(|(kind, _)| DIVIDED.contains(&kind.name));
    assert_eq!(divided().count() as u64, DIVIDED.len() as u64 * SEEDS, "some have another name");
    for (kind, score) in divided() {
        if score.relief_s.is_none_or(|seconds| seconds > RELIEF_S) {
            faults.push(format!("{}: relieved after {:?} s", kind.name, score.relief_s));
        }
    }
    // Loads that change in an unpredictable way may be cut in vain.
    let steady = || scores.iter().filter(|(kind, _)| kind.truth != Truth::Open);
    let cuts: usize = steady().map(|(_, score)| score.cuts).sum();
    let in_vain: usize = steady().map(|(_, score)| score.in_vain).sum();
    assert!(cuts > 0, "nothing was ever cut");
    if in_vain * 100 > cuts {
        faults.push(format!("{in_vain} of {cuts} cuts in vain"));
    }
    let mut predictions = 0;
    for (kind, score) in steady() {
        let (Some(predicted), Some(actual)) = (score.predicted_n_eff, score.actual_n_eff) else {
            continue;
        };
        if !score.carries {
            continue;
        }
        predictions += 1;
        let error = (predicted - actual).abs() / actual;
        // A minute has only some spots or hosts of those that take turns, and the next one has others.
        let takes_turns = score.verdict == Class::Rotating || kind.name == "hosts at 15 s";
        if error > ERROR_MAX && !takes_turns {
            faults.push(format!("{}: N_eff {predicted:.2} was {actual:.2}", kind.name));
        }
        if score.served_after_advice.is_some_and(|served| served < 0.95) {
            faults.push(format!("{}: {score:?}", kind.name));
        }
    }
    assert!(predictions >= 20, "only {predictions} predictions");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_load_that_is_carried_has_no_finding() {
    for (kind, score) in scores(healthy, 1) {
        assert_eq!((score.verdict, score.verdict_s), (Class::Unknown, None), "{}", kind.name);
        assert_eq!((score.cuts, score.in_vain), (0, 0), "{}", kind.name);
        assert!((score.served_after_auto - 1.0).abs() < 1e-9, "{}", kind.name);
    }
}

#[test]
fn a_scoreboard_has_the_streams_that_were_chosen() {
    let options = StreamOptions { seeds: 2, only: "one key 80".to_owned() };
    let mut names = Vec::new();
    let scored = scoreboard(&options, |name| names.push(name.to_owned()));
    assert_eq!(names, ["one key 80 %"]);
    assert_eq!(scored.len(), 2);
    for one in &scored {
        assert_eq!(
            (one.score.stream, one.expected.as_slice()),
            ("one key 80 %", &[Class::HotKey][..])
        );
        assert_eq!(one.score.verdict, Class::HotKey);
    }
}
