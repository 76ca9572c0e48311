//! Figures of a demonstration, and claims about them.
//!
//! Invariants: pure; a claim about a figure that was not measured is open; latencies are compared round by round, and
//! such a claim is open if the confidence interval of their ratio contains 1.

use std::collections::BTreeMap;

use serde::Serialize;

use super::model::float;
use crate::claim::{Claim, Unit};
use crate::door::postgres::Cells;
use crate::report::{mib, short};
use crate::statistics::Spread;

const MISSING: &str = "it was not measured";

/// A design after the load.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Loaded {
    pub(super) design: String,
    /// Rows written to all its tables.
    pub(super) rows: u64,
    /// Seconds of COPY.
    pub(super) load_s: f64,
    /// Seconds of writing files, with their indexes, and of merging them.
    pub(super) files_s: f64,
    /// Bytes of all files.
    pub(super) disk_bytes: u64,
    pub(super) files: u64,
    pub(super) partitions: u64,
    /// Bytes of the server's memory after the load.
    pub(super) memory_bytes: u64,
    /// Maximum bytes of the server's memory until the end.
    pub(super) memory_peak_bytes: u64,
    pub(super) facts: BTreeMap<String, f64>,
}

impl Loaded {
    /// Rows per second, until they are in files.
    pub(super) fn rows_per_s(&self) -> f64 {
        float(self.rows) / (self.load_s + self.files_s).max(1e-9)
    }
}

/// A question as one design answered it.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Asked {
    pub(super) question: String,
    pub(super) design: String,
    pub(super) sql: String,
    /// Milliseconds of each round.
    pub(super) rounds_ms: Vec<f64>,
    pub(super) median_ms: f64,
    pub(super) rows_read: u64,
    pub(super) bytes_read: u64,
    pub(super) partitions_touched: u64,
    pub(super) partitions_total: u64,
    pub(super) files_read: u64,
    /// Kinds of the indexes that were asked.
    pub(super) index_used: Option<String>,
    pub(super) index_rows_skipped: u64,
    pub(super) answer_rows: u64,
    /// First row of the answer.
    pub(super) first: Vec<Option<String>>,
}

impl Asked {
    /// Takes an answer over.
    pub(super) fn answered(&mut self, answer: &Cells) {
        self.answer_rows = answer.len() as u64;
        self.first = answer.first().cloned().unwrap_or_default();
    }

    /// A number in the first row of the answer.
    pub(super) fn number(&self, column: usize) -> Option<f64> {
        self.first.get(column)?.as_deref()?.parse().ok()
    }
}

/// All figures of a demonstration.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Measured {
    pub(super) loaded: Vec<Loaded>,
    pub(super) asked: Vec<Asked>,
}

impl Measured {
    pub(super) fn loaded(&self, design: &str) -> Option<&Loaded> {
        self.loaded.iter().find(|loaded| loaded.design == design)
    }

    pub(super) fn asked(&self, question: &str, design: &str) -> Option<&Asked> {
        self.asked.iter().find(|reply| reply.question == question && reply.design == design)
    }

    /// A fact about a design.
    pub(super) fn fact(&self, design: &str, name: &str) -> Option<f64> {
        self.loaded(design)?.facts.get(name).copied()
    }

    /// Claims that the second design reads fewer rows for a question, by at least a factor.
    pub(super) fn fewer_rows(
        &self,
        claim: &str,
        question: &str,
        designs: [&str; 2],
        factor: f64,
    ) -> Claim {
        let figure = |design| Some(float(self.asked(question, design)?.rows_read));
        less(claim, designs, designs.map(figure), factor, &|rows| format!("{rows:.0} rows"))
    }

    /// Claims that the second design reads fewer bytes for a question, by at least a factor.
    pub(super) fn fewer_bytes(
        &self,
        claim: &str,
        question: &str,
        designs: [&str; 2],
        factor: f64,
    ) -> Claim {
        let figure = |design| Some(float(self.asked(question, design)?.bytes_read));
        less(claim, designs, designs.map(figure), factor, &|bytes| format!("{bytes:.0} bytes"))
    }

    /// Claims that the second design needs less disk space.
    pub(super) fn smaller(&self, claim: &str, designs: [&str; 2]) -> Claim {
        let figure = |design| Some(float(self.loaded(design)?.disk_bytes));
        less(claim, designs, designs.map(figure), 1.0, &bytes)
    }

    /// Claims that the second design needs less memory at its peak.
    pub(super) fn leaner(&self, claim: &str, designs: [&str; 2]) -> Claim {
        let figure = |design| Some(float(self.loaded(design)?.memory_peak_bytes));
        less(claim, designs, designs.map(figure), 1.0, &bytes)
    }

    /// Claims that the records get into files of the second design in less time.
    pub(super) fn loads_faster(&self, claim: &str, designs: [&str; 2]) -> Claim {
        let figure = |design| self.loaded(design).map(|loaded| loaded.load_s + loaded.files_s);
        less(claim, designs, designs.map(figure), 1.0, &|seconds| format!("{} s", short(seconds)))
    }

    /// Claims that the second design answers a question in less time: by the confidence interval of the ratio, which is
    /// open where it contains 1.
    pub(super) fn faster(&self, claim: &str, question: &str, designs: [&str; 2]) -> Claim {
        let [slow, fast] = designs.map(|design| self.asked(question, design));
        let (Some(slow), Some(fast)) = (slow, fast) else { return Claim::open(claim, MISSING) };
        let ratio = |slow: f64, fast: f64| slow / fast;
        let spread = Spread::of_pairs(&slow.rounds_ms, &fast.rounds_ms, ratio);
        let mut judged = Claim::above(claim, &spread, 1.0, Unit::Times);
        judged.measured = format!(
            "{} {} ms, {} {} ms; {}",
            designs[0],
            short(slow.median_ms),
            designs[1],
            short(fast.median_ms),
            judged.measured
        );
        judged
    }
}

/// Bytes as MiB.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes of a run, not negative"
)]
fn bytes(number: f64) -> String {
    mib(number as u64)
}

/// Claims that the second of two figures is smaller, by at least a factor.
pub(super) fn less(
    claim: &str,
    names: [&str; 2],
    figures: [Option<f64>; 2],
    factor: f64,
    text: &dyn Fn(f64) -> String,
) -> Claim {
    let [Some(large), Some(small)] = figures else { return Claim::open(claim, MISSING) };
    let measured = format!("{} {}, {} {}", names[0], text(large), names[1], text(small));
    // Equal figures are not less, also where the factor is 1.
    Claim::judged(claim, measured, small < large && small * factor <= large)
}

/// A claim about figures that must all be there.
pub(super) fn judged_if<const COUNT: usize>(
    claim: &str,
    figures: [Option<f64>; COUNT],
    judge: impl Fn([f64; COUNT]) -> (String, bool),
) -> Claim {
    if figures.iter().any(Option::is_none) {
        return Claim::open(claim, MISSING);
    }
    let (measured, holds) = judge(figures.map(Option::unwrap_or_default));
    Claim::judged(claim, measured, holds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Verdict;

    fn measured() -> Measured {
        let asked = |design: &str, rows_read, rounds_ms: [f64; 5]| Asked {
            question: "q".to_owned(),
            design: design.to_owned(),
            rows_read,
            bytes_read: rows_read * 8,
            rounds_ms: rounds_ms.to_vec(),
            median_ms: rounds_ms[2],
            ..Asked::default()
        };
        let loaded = |design: &str, disk_bytes, load_s| Loaded {
            design: design.to_owned(),
            rows: 100,
            disk_bytes,
            memory_peak_bytes: disk_bytes,
            load_s,
            files_s: 0.5,
            ..Loaded::default()
        };
        Measured {
            loaded: vec![loaded("bad", 2 << 20, 1.5), loaded("good", 1 << 20, 0.5)],
            asked: vec![asked("bad", 1_000, [4.0; 5]), asked("good", 100, [2.0; 5])],
        }
    }

    #[test]
    fn figures_decide_claims() {
        let measured = measured();
        let (down, up) = (["bad", "good"], ["good", "bad"]);
        for (claim, verdict, text) in [
            (measured.fewer_rows("c", "q", down, 10.0), Verdict::Holds, "1000 rows, good 100 rows"),
            (measured.fewer_rows("c", "q", down, 11.0), Verdict::Fails, "bad 1000 rows"),
            (measured.fewer_rows("c", "q", up, 1.0), Verdict::Fails, "good 100 rows"),
            (measured.fewer_rows("c", "q", ["bad", "bad"], 1.0), Verdict::Fails, "1000"),
            (measured.fewer_bytes("c", "q", down, 2.0), Verdict::Holds, "8000 bytes"),
            (measured.smaller("c", down), Verdict::Holds, "2.00 MiB, good 1.00 MiB"),
            (measured.leaner("c", up), Verdict::Fails, "1.00 MiB"),
            (measured.loads_faster("c", down), Verdict::Holds, "2.00 s, good 1.00 s"),
            (measured.faster("c", "q", down), Verdict::Holds, "bad 4.00 ms, good 2.00 ms; 2.00x"),
            (measured.faster("c", "q", up), Verdict::Fails, "0.50x"),
            (measured.faster("c", "other", down), Verdict::Open, MISSING),
            (measured.smaller("c", ["bad", "nothing"]), Verdict::Open, MISSING),
        ] {
            assert_eq!(claim.verdict, verdict, "{claim:?}");
            assert!(claim.measured.contains(text), "{claim:?}");
        }
        assert!((measured.loaded[0].rows_per_s() - 50.0).abs() < 1e-9);
    }

    #[test]
    fn latencies_that_do_not_differ_in_every_round_leave_a_claim_open() {
        let mut measured = measured();
        let verdict = |rounds_ms: [f64; 5], measured: &mut Measured| {
            measured.asked[0].rounds_ms = rounds_ms.to_vec();
            measured.faster("c", "q", ["bad", "good"]).verdict
        };
        assert_eq!(verdict([2.1, 2.2, 2.3, 2.2, 2.1], &mut measured), Verdict::Holds);
        assert_eq!(verdict([2.1, 2.2, 1.9, 2.2, 2.1], &mut measured), Verdict::Open);
        assert_eq!(verdict([2.0; 5], &mut measured), Verdict::Open);
        assert_eq!(verdict([1.9, 1.8, 2.1, 1.8, 1.9], &mut measured), Verdict::Open);
        assert_eq!(verdict([1.9, 1.8, 1.7, 1.8, 1.9], &mut measured), Verdict::Fails);
    }

    #[test]
    fn a_claim_needs_all_its_figures() {
        let sum = |figures: [f64; 2]| (format!("{figures:?}"), figures[0] < figures[1]);
        assert_eq!(judged_if("c", [Some(1.0), None], sum).verdict, Verdict::Open);
        assert_eq!(judged_if("c", [Some(1.0), Some(2.0)], sum).verdict, Verdict::Holds);
        assert_eq!(judged_if("c", [Some(2.0), Some(1.0)], sum).verdict, Verdict::Fails);
    }

    #[test]
    fn the_first_row_of_an_answer_is_kept() {
        let mut asked = Asked::default();
        let answer = vec![vec![Some("7".to_owned()), None], vec![Some("8".to_owned()), None]];
        asked.answered(&answer);
        assert_eq!((asked.answer_rows, asked.number(0), asked.number(1)), (2, Some(7.0), None));
    }
}
