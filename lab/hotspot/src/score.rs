//! The scoreboard: each stream overloads one partition of a virtual table, the scheduler acts, and the advice is followed
//! in thought.
//!
//! ```text
//!   stream ──▶ partitions: a lane and a detector each ──▶ reports ──▶ scheduler ──▶ splits, or buckets by hash
//!      │                                                  verdicts ──▶
//!      └──▶ rows: older ones ─▶ the advised design and its prediction; later ones ─▶ what comes of it
//! ```
//!
//! Invariants: no clock and no chance but the seed; splits and buckets are there at once, so times are those of
//! decisions. A scan counts where it begins.

mod matrix;
mod world;

use std::fmt::Write as _;

use partita_load::{Class, Design, Question, Reads, SampledRow, advise};

use crate::streams::{Kind, Op, SECOND_US, all, prefix_ends};
pub use matrix::{Judged, confusion};
use world::World;

/// Operations per second that each stream offers.
const RATE: u64 = 600;
/// Operations per second that a lane serves.
const CAPACITY: u64 = 240;
/// Length of a run, seconds.
const RUN_S: u64 = 150;
/// Last seconds of a run, in which the served share is taken.
const SERVED_S: u64 = 30;
/// Second up to which rows lead to a design, and second from which they judge it.
const SAMPLED_UNTIL_S: u64 = 40;
const JUDGED_FROM_S: u64 = 90;
/// One of so many rows is kept.
const ROWS_STEP: u64 = 11;
/// Number of nodes for the advice.
const NODES: usize = 8;
/// Minimum kept rows for an advice.
const ROWS_MIN: usize = 400;

/// Result of one stream with one seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// Name of the stream.
    pub stream: &'static str,
    /// Verdict on the only partition, before anything was done about it.
    pub verdict: Class,
    /// Seconds from the beginning of the stream to the verdict, if there was one.
    pub verdict_s: Option<u64>,
    /// Seconds from the verdict until 95 % and more were served in every second; `None` if that did not happen, or
    /// nothing had to be done.
    pub relief_s: Option<u64>,
    /// Splits by load, and around hot keys.
    pub cuts: usize,
    /// Splits by load of which the scheduler found a minute later that they had not helped.
    pub in_vain: usize,
    /// Number of equal partitions that the best design would have, by the sample; `None` with too few rows.
    pub predicted_n_eff: Option<f64>,
    /// The same of rows that came later.
    pub actual_n_eff: Option<f64>,
    /// True if the design was predicted to carry the load.
    pub carries: bool,
    /// Share of the later rows that it would have served.
    pub served_after_advice: Option<f64>,
    /// Share that was served at the end, after all that the scheduler did by itself.
    pub served_after_auto: f64,
}

/// The streams to score, as options.
#[derive(Clone, Debug, clap::Args)]
pub struct StreamOptions {
    /// Number of seeds of each stream.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub seeds: u64,
    /// Only streams whose names contain this word.
    #[arg(long, default_value = "")]
    pub only: String,
}

/// A stream with its score.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// Score of the stream.
    pub score: Score,
    /// Right classes; any is right where there are none.
    pub expected: Vec<Class>,
}

/// Scores all streams that the options name, one after the other; `progress` gets the name of each before it runs.
pub fn scoreboard(options: &StreamOptions, mut progress: impl FnMut(&str)) -> Vec<Scored> {
    let mut scored = Vec::new();
    for kind in all().iter().filter(|kind| kind.name.contains(&options.only)) {
        progress(kind.name);
        let expected = kind.classes.to_vec();
        let scores = (0..options.seeds).map(|seed| score(kind, seed));
        scored.extend(scores.map(|score| Scored { score, expected: expected.clone() }));
    }
    scored
}

/// Runs a stream that offers two and a half times what one partition serves.
#[must_use]
pub fn score(kind: &Kind, seed: u64) -> Score {
    run(kind, seed, CAPACITY)
}

/// Runs a stream that one partition carries with ease.
#[must_use]
pub fn healthy(kind: &Kind, seed: u64) -> Score {
    run(kind, seed, RATE * 20)
}

fn run(kind: &Kind, seed: u64, capacity: u64) -> Score {
    let mut world = World::new(kind, seed, capacity);
    let mut stream = kind.stream(seed);
    let (mut older, mut later) = (Vec::new(), Vec::new());
    let mut op = Op::default();
    for second in 0..RUN_S {
        for number in 0..RATE {
            let at_us = second * SECOND_US + number * SECOND_US / RATE;
            if !stream.draw(at_us, &mut op) {
                continue;
            }
            world.observe(at_us, &op);
            let is_kept = (second * RATE + number).is_multiple_of(ROWS_STEP) && op.end.is_none();
            if is_kept && second < SAMPLED_UNTIL_S {
                older.push(row(kind, &op.key));
            } else if is_kept && second >= JUDGED_FROM_S {
                later.push(row(kind, &op.key));
            }
        }
        world.end_second(second, second + SERVED_S >= RUN_S);
    }
    let (verdict, verdict_s) = match world.heard() {
        Some((class, second)) => (class, Some(second)),
        None => (Class::Unknown, None),
    };
    let relieved_s = world.relieved_s().filter(|second| *second < RUN_S);
    let relief_s =
        relieved_s.zip(verdict_s).map(|(relief, verdict)| relief.saturating_sub(verdict));
    let advised = advised(kind, capacity, verdict, &older, &later);
    Score {
        stream: kind.name,
        verdict,
        verdict_s,
        relief_s,
        cuts: world.cuts(),
        in_vain: world.in_vain(),
        predicted_n_eff: advised.map(|advised| advised.predicted),
        actual_n_eff: advised.map(|advised| advised.actual),
        carries: advised.is_some_and(|advised| advised.carries),
        served_after_advice: advised.map(|advised| advised.served),
        served_after_auto: world.served(),
    }
}

/// The columns of a key.
fn row(kind: &Kind, key: &[u8]) -> SampledRow {
    let ends = prefix_ends(kind.columns, key);
    let begins = std::iter::once(0).chain(ends.iter().copied());
    begins.zip(&ends).map(|(begin, end)| key[begin..*end].to_vec()).collect()
}

/// The best design, and what it does with later rows.
#[derive(Clone, Copy)]
struct Advised {
    predicted: f64,
    actual: f64,
    carries: bool,
    served: f64,
}

fn advised(
    kind: &Kind,
    capacity: u64,
    class: Class,
    older: &[SampledRow],
    later: &[SampledRow],
) -> Option<Advised> {
    if older.len() < ROWS_MIN || later.len() < ROWS_MIN {
        return None;
    }
    let columns = kind.columns.len();
    let question = Question {
        rows: older,
        columns,
        time: kind.options.time_column,
        today: Design::Range { order: (0..columns).collect() },
        keep_together: 0,
        partitions: 1,
        nodes: NODES,
        rows_per_s: RATE as f64,
        capacity_rows_per_s: capacity as f64,
        time_range_share: 0.1,
        reads: Reads::default(),
        shapes: Vec::new(),
        hot: Some(class),
    };
    let best = advise(&question).into_iter().next()?;
    Some(Advised {
        predicted: best.effective_partitions,
        actual: question.measured(&best.design, later),
        carries: best.carries,
        served: question.served(&best.design, later),
    })
}

/// Scores as a page in Markdown.
#[must_use]
pub fn page(scores: &[Score]) -> String {
    let mut text = String::from(
        "| stream | verdict | after s | relieved after s | cuts | in vain | N_eff predicted | N_eff came \
         | served after advice | served after auto |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    let figure = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2}"));
    for score in scores {
        let seconds =
            |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
        let (delay, relief) = (seconds(score.verdict_s), seconds(score.relief_s));
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {} | {} | {delay} | {relief} | {} | {} | {} | {} | {} | {:.2} |",
            score.stream,
            score.verdict,
            score.cuts,
            score.in_vain,
            figure(score.predicted_n_eff),
            figure(score.actual_n_eff),
            figure(score.served_after_advice),
            score.served_after_auto,
        );
    }
    text
}
