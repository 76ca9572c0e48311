//! Figures of the patterns, and the document's claims about them.
//!
//! Invariants: pure; a claim about a pattern that was not tried is open; latencies are compared round by round.

use std::time::Duration;

use serde::Serialize;

use super::balloons::{Data, Pattern};
use super::questions::{Question, Scope};
use crate::claim::{Claim, Unit};
use crate::latency::{Latencies, Summary};
use crate::report::short;
use crate::statistics::{Spread, median};

const MISSING: &str = "it takes both patterns";

/// A pattern after the load.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Stored {
    pub(super) pattern: Pattern,
    /// The CREATE TABLE statement.
    pub(super) create: String,
    pub(super) events: u64,
    pub(super) cells_written: u64,
    pub(super) load_s: f64,
    /// Latency of an INSERT.
    pub(super) latency: Summary,
    /// Share of the rows that went to the hottest partition at a time.
    pub(super) hotspot_share: Option<f64>,
    pub(super) rows: u64,
    pub(super) cells: u64,
    /// Bytes of all files.
    pub(super) bytes: u64,
    pub(super) partitions: u64,
    pub(super) tick: Option<Tick>,
}

#[expect(clippy::cast_precision_loss, reason = "cells of a run fit 53 bits")]
impl Stored {
    /// A pattern of which nothing is known yet.
    pub(super) fn new(pattern: Pattern) -> Self {
        Self {
            pattern,
            create: String::new(),
            events: 0,
            cells_written: 0,
            load_s: 0.0,
            latency: Summary::default(),
            hotspot_share: None,
            rows: 0,
            cells: 0,
            bytes: 0,
            partitions: 0,
            tick: None,
        }
    }

    pub(super) fn events_per_s(&self) -> f64 {
        self.events as f64 / self.load_s.max(1e-9)
    }

    pub(super) fn cells_per_s(&self) -> f64 {
        self.cells_written as f64 / self.load_s.max(1e-9)
    }

    pub(super) fn bytes_per_event(&self) -> f64 {
        self.bytes as f64 / (self.events as f64).max(1.0)
    }
}

/// Ticks at which all balloons write at once.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Tick {
    /// Share of the rows that went to the hottest partition.
    pub(super) hotspot_share: Option<f64>,
    /// Latency of an event, from the tick.
    pub(super) latency: Summary,
    /// Median time until all balloons had written.
    pub(super) done_ms: f64,
}

impl Tick {
    /// Ticks with these times until all balloons had written.
    pub(super) fn new(hotspot_share: Option<f64>, latency: Summary, done_ms: &[f64]) -> Self {
        Self { hotspot_share, latency, done_ms: median(done_ms) }
    }
}

/// A question as one pattern answered it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) question: Question,
    pub(super) pattern: Pattern,
    /// Statement of the first balloon.
    pub(super) sql: String,
    /// Rows of its answer.
    pub(super) rows: u64,
    pub(super) rounds_ms: Vec<f64>,
    latencies: Latencies,
}

impl Asked {
    /// A question that was not asked yet.
    pub(super) fn new(question: Question, pattern: Pattern, data: &Data) -> Self {
        Self {
            question,
            pattern,
            sql: question.sql(pattern, data, 0),
            rows: question.expected(pattern, data, 0),
            rounds_ms: Vec::new(),
            latencies: Latencies::default(),
        }
    }

    pub(super) fn record(&mut self, took: Duration) {
        self.rounds_ms.push(took.as_secs_f64() * 1e3);
        self.latencies.record(took);
    }

    pub(super) fn summary(&self) -> Summary {
        self.latencies.summary()
    }
}

/// All figures.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) stored: Vec<Stored>,
    pub(super) asked: Vec<Asked>,
}

impl Measured {
    fn stored(&self, pattern: Pattern) -> Option<&Stored> {
        self.stored.iter().find(|stored| stored.pattern == pattern)
    }

    /// Claims that the first pattern has less of a figure than the second.
    fn less(
        &self,
        claim: &str,
        patterns: [Pattern; 2],
        unit: &str,
        figure: impl Fn(&Stored) -> f64,
    ) -> Claim {
        let [Some(first), Some(second)] = patterns.map(|pattern| self.stored(pattern).map(&figure))
        else {
            return Claim::open(claim, MISSING);
        };
        let measured = format!("{} and {} {unit}", short(first), short(second));
        Claim::judged(claim, measured, first < second)
    }

    /// Claims that the first pattern answers a question faster than the second.
    fn faster(&self, claim: &str, question: Question, patterns: [Pattern; 2]) -> Claim {
        let rounds = |pattern: Pattern| {
            let is_asked = |reply: &&Asked| reply.question == question && reply.pattern == pattern;
            self.asked.iter().find(is_asked).map(|reply| reply.rounds_ms.as_slice())
        };
        let [Some(first), Some(second)] = patterns.map(rounds) else {
            return Claim::open(claim, MISSING);
        };
        let ratios = Spread::of_pairs(second, first, |second, first| second / first);
        Claim::above(claim, &ratios, 1.0, Unit::Times)
    }

    /// The document's claims, judged.
    pub(super) fn claims(&self) -> Vec<Claim> {
        let (buckets, narrow) = (Pattern::NewCells, Pattern::Unserialized);
        let week = |is_whole| Question { scope: Scope::Week, all: is_whole };
        let hour = Question { scope: Scope::Hour, all: true };
        vec![
            self.less(
                "measurements are written faster into one row (2) than into a row each (4)",
                [buckets, narrow],
                "µs an event",
                |stored| 1e6 / stored.events_per_s().max(1e-9),
            ),
            self.faster(
                "a week is read faster from one row (2) than from a row for each event (4)",
                week(true),
                [buckets, narrow],
            ),
            self.faster(
                "one column of a week is read faster unserialized (2) than serialized (5)",
                week(false),
                [buckets, Pattern::SerializedCells],
            ),
            self.faster(
                "all columns of an hour are read faster serialized (3) than not (4)",
                hour,
                [Pattern::Serialized, narrow],
            ),
            self.less(
                "time buckets (2) need less space than a row for each event (4)",
                [buckets, narrow],
                "bytes an event",
                Stored::bytes_per_event,
            ),
            self.less(
                "serialized events (3) need less space than others (4)",
                [Pattern::Serialized, narrow],
                "bytes an event",
                Stored::bytes_per_event,
            ),
            self.less(
                "measurements in the names of columns (1) need less space than as values (2)",
                [Pattern::NewColumns, buckets],
                "bytes an event",
                Stored::bytes_per_event,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::balloons::KeyOrder;
    use super::*;
    use crate::claim::Verdict;

    fn stored(pattern: Pattern, load_s: f64, bytes: u64) -> Stored {
        Stored { events: 1_000, cells_written: 4_000, load_s, bytes, ..Stored::new(pattern) }
    }

    fn asked(pattern: Pattern, all: bool, ms: u64) -> Asked {
        let data =
            Data { balloons: 1, minutes: 60, seed: 1, key_order: KeyOrder::Balloon, partitions: 1 };
        let mut reply = Asked::new(Question { scope: Scope::Week, all }, pattern, &data);
        (0..5).for_each(|_| reply.record(Duration::from_millis(ms)));
        reply
    }

    #[test]
    fn claims_are_judged_where_both_patterns_were_tried() {
        use Verdict::{Fails, Holds, Open};
        let measured = Measured {
            stored: vec![
                stored(Pattern::NewCells, 1.0, 9_000),
                stored(Pattern::Unserialized, 2.0, 20_000),
                stored(Pattern::Serialized, 1.0, 30_000),
            ],
            asked: vec![
                asked(Pattern::NewCells, true, 5),
                asked(Pattern::Unserialized, true, 10),
                asked(Pattern::NewCells, false, 8),
                asked(Pattern::SerializedCells, false, 4),
            ],
        };
        let verdicts: Vec<Verdict> = measured.claims().iter().map(|claim| claim.verdict).collect();
        assert_eq!(verdicts, [Holds, Holds, Fails, Open, Holds, Fails, Open]);
        let claims = measured.claims();
        assert_eq!(claims[0].measured, "1000 and 2000 µs an event");
        assert_eq!(claims[4].measured, "9.00 and 20.0 bytes an event");
    }

    #[test]
    fn rates_and_sizes_are_those_of_events_and_cells() {
        let stored = stored(Pattern::NewCells, 2.0, 9_000);
        assert_eq!((stored.events_per_s(), stored.cells_per_s()), (500.0, 2_000.0));
        assert_eq!(stored.bytes_per_event(), 9.0);
        assert_eq!(Tick::new(None, Summary::default(), &[3.0, 1.0, 2.0]).done_ms, 2.0);
        let summary = asked(Pattern::NewCells, true, 5).summary();
        assert_eq!(summary.count, 5);
    }
}
