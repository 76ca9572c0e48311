//! `partita lab score`: a page with the score of each stream of the catalogue in a virtual cluster, on request of those that
//! write rows and of filed workloads on a real one, and with the confusion matrix of all verdicts.
//!
//! Invariant: a workload without a hot partition has no verdict that could be judged, so the matrix does not count it.

use std::path::PathBuf;

use anyhow::{Context, bail};
use partita_hotspot::score::{Judged, Score, Scored, StreamOptions, confusion, page, scoreboard};

use crate::experiment::trial::{LoadOptions, Outcome, SECONDS, measure, table};
use crate::experiment::{SiteOptions, filed, streams};
use crate::report::{progress, say};

/// Options of `score`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    streams: StreamOptions,
    /// Also run these streams, those that write rows, and the workloads of `experiment filed` on a real cluster.
    #[arg(long)]
    real: bool,
    /// PostgreSQL addresses of a running cluster's frontends; by default a cluster of three datanodes is started
    /// for the duration of the run.
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT", requires = "real")]
    connect: Vec<String>,
    /// Seconds of each workload on the real cluster.
    #[arg(long, default_value_t = SECONDS, value_parser = clap::value_parser!(u64).range(2..=3_600), requires = "real")]
    seconds: u64,
    /// Cases of `experiment filed` to run; all by default.
    #[arg(long, value_delimiter = ',', requires = "real")]
    cases: Vec<String>,
    /// Write the page, in Markdown, to this file instead of standard output.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Scores the streams and the workloads, and prints or writes the page.
///
/// # Errors
/// If no stream is chosen, a case does not exist, the cluster cannot be started or reached, or the page cannot be written.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    // A wrong name is told before the work begins.
    let cases = filed::trials(&options.cases)?;
    let scored = scoreboard(&options.streams, progress);
    if scored.is_empty() {
        bail!("no stream's name contains {}", options.streams.only);
    }
    let outcomes = match options.real {
        true => {
            let site = SiteOptions::at(options.connect.clone());
            let load = LoadOptions::of(options.seconds);
            let mut trials = streams::trials(&options.streams.only, &site, &load);
            trials.extend(cases);
            Some(Box::pin(measure(&site, &load, trials)).await?)
        }
        false => None,
    };
    progress("");
    let text = scoreboard_page(&scored, outcomes.as_deref());
    match &options.out {
        Some(path) => {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        }
        None => say(&text),
    }
}

fn scoreboard_page(scored: &[Scored], outcomes: Option<&[Outcome]>) -> String {
    let scores: Vec<Score> = scored.iter().map(|stream| stream.score.clone()).collect();
    let of_stream = |stream: &Scored| Judged {
        expected: stream.expected.clone(),
        verdict: stream.score.verdict,
    };
    let mut judged: Vec<Judged> = scored.iter().map(of_stream).collect();
    let mut text = format!("# Scoreboard\n\n## Streams in a virtual cluster\n\n{}", page(&scores));
    if let Some(outcomes) = outcomes {
        let verdicts = outcomes.iter().filter(|outcome| outcome.verdict.is_some());
        judged.extend(verdicts.map(|outcome| Judged {
            expected: outcome.expected.to_vec(),
            verdict: outcome.class(),
        }));
        text.push_str("\n## Workloads on a real cluster\n\n");
        text.push_str(&markdown(&table(outcomes)));
    }
    text.push_str("\n## Expected classes and named ones\n\n");
    text.push_str(&confusion(&judged));
    text
}

/// A table in Markdown; its first line is the header.
fn markdown(lines: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        text.push_str(&format!("| {} |\n", line.join(" | ")));
        if number == 0 {
            text.push_str(&format!("|{}\n", "---|".repeat(line.len())));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use partita_load::Class;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn scored(verdict: Class) -> Scored {
        let score = Score {
            stream: "one key 80 %",
            verdict,
            verdict_s: Some(9),
            relief_s: None,
            cuts: 0,
            in_vain: 0,
            predicted_n_eff: None,
            actual_n_eff: None,
            carries: false,
            served_after_advice: None,
            served_after_auto: 0.4,
        };
        Scored { score, expected: vec![Class::HotKey] }
    }

    #[test]
    fn a_page_has_all_lines_and_one_matrix() {
        let outcome = |verdict: Option<&str>| Outcome {
            name: "crdb-134561",
            verdict: verdict.map(str::to_owned),
            verdict_s: verdict.map(|_| 12.0),
            expected: &[Class::MovingRight],
            cuts: 0.0,
            in_vain: 0.0,
            partitions: 1.0,
            per_s: 100.0,
            served: Some(0.4),
            failed: 0,
            messages: Vec::new(),
        };
        let outcomes = [outcome(Some("MOVING_RIGHT")), outcome(None)];
        let text = scoreboard_page(&[scored(Class::Sweep)], Some(&outcomes));
        for line in [
            "\n| one key 80 % | SWEEP | 9 |  | 0 | 0 |",
            "\n|---|---|---|---|---|---|---|---|---|\n| crdb-134561 | MOVING_RIGHT | 12 | 0 | 0 | 1 | 100 | 0.40 | 0 |\n",
            "\n| crdb-134561 | - | - | 0 | 0 | 1 | 100 | 0.40 | 0 |\n",
            "\n| expected \\ named | MOVING_RIGHT | SWEEP |\n",
            "\n1 of 2 classes are wrong.\n",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        let virtual_only = scoreboard_page(&[scored(Class::HotKey)], None);
        assert!(!virtual_only.contains("real"), "{virtual_only}");
        assert!(virtual_only.ends_with("\n0 of 1 classes are wrong.\n"), "{virtual_only}");
    }

    #[test]
    fn options_of_the_real_cluster_need_it() {
        let refused = Line::try_parse_from(["line", "--seconds", "10"]).unwrap_err().to_string();
        assert!(refused.contains("--real"), "{refused}");
        let line = Line::parse_from(["line", "--real", "--seconds", "10", "--only", "one key"]);
        assert_eq!((line.options.seconds, line.options.streams.only.as_str()), (10, "one key"));
        assert!(Line::try_parse_from(["line"]).is_ok());
    }
}
