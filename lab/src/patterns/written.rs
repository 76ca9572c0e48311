//! Report of the patterns: tables on standard output, `report.json`, and `report.html` with pictures.
//!
//! Invariants: the page is one file and loads nothing; claims stand beside the figures that decide them, also those that do
//! not hold.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use partita_heatmap::Heatmap;
use partita_hotspot::report::{Bar, Bars, bars, document, pictures, plain, table};
use serde::Serialize;

use super::balloons::{Data, KeyOrder, Pattern};
use super::drive::Effort;
use super::figures::{Asked, Measured, Stored};
use crate::claim::{Claim, Verdict};
use crate::latency::Summary;
use crate::report::{align, say, short};

/// A finished run.
pub(super) struct Outcome {
    pub(super) data: Data,
    pub(super) effort: Effort,
    pub(super) measured: Measured,
    /// Heatmaps of the loads, where they are known.
    pub(super) heatmaps: Vec<(Pattern, Heatmap)>,
}

#[derive(Serialize)]
struct Report<'a> {
    what: &'static str,
    about: &'a str,
    cores: usize,
    data: &'a Data,
    clients: u32,
    events_per_insert: u64,
    patterns: Vec<StoredPart<'a>>,
    questions: Vec<AskedPart<'a>>,
    claims: &'a [Claim],
}

#[derive(Serialize)]
struct StoredPart<'a> {
    events_per_s: f64,
    cells_per_s: f64,
    bytes_per_event: f64,
    #[serde(flatten)]
    stored: &'a Stored,
}

#[derive(Serialize)]
struct AskedPart<'a> {
    question: &'static str,
    pattern: Pattern,
    sql: &'a str,
    rows: u64,
    rounds_ms: &'a [f64],
    latency: Summary,
}

fn heads(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn share(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

/// Colour of a pattern: time buckets, single timestamps, the ordinary table.
fn colour(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Table => "var(--a)",
        pattern if pattern.has_buckets() => "var(--c)",
        _ => "var(--b)",
    }
}

/// Table of writes and sizes.
fn loads(stored: &[Stored]) -> Vec<Vec<String>> {
    let mut lines = vec![heads(&[
        "pattern",
        "events/s",
        "cells/s",
        "p50 ms",
        "p99 ms",
        "rows",
        "cells",
        "bytes/event",
        "partitions",
        "hotspot share",
        "tick: share",
        "p50 ms",
        "p99 ms",
        "all after ms",
    ])];
    for figures in stored {
        let mut line = vec![
            figures.pattern.name().to_owned(),
            format!("{:.0}", figures.events_per_s()),
            format!("{:.0}", figures.cells_per_s()),
            short(figures.latency.p50_ms),
            short(figures.latency.p99_ms),
            figures.rows.to_string(),
            figures.cells.to_string(),
            short(figures.bytes_per_event()),
            figures.partitions.to_string(),
            share(figures.hotspot_share),
        ];
        match &figures.tick {
            Some(tick) => line.extend([
                share(tick.hotspot_share),
                short(tick.latency.p50_ms),
                short(tick.latency.p99_ms),
                short(tick.done_ms),
            ]),
            None => line.extend(["-", "-", "-", "-"].map(str::to_owned)),
        }
        lines.push(line);
    }
    lines
}

/// Table of reads.
fn reads(replies: &[Asked]) -> Vec<Vec<String>> {
    let mut lines = vec![heads(&["question", "pattern", "rows", "p50 ms", "p99 ms", "max ms"])];
    let mut former = "";
    for reply in replies {
        let name = reply.question.name();
        let latency = reply.summary();
        lines.push(vec![
            if name == former { String::new() } else { name.to_owned() },
            reply.pattern.name().to_owned(),
            reply.rows.to_string(),
            short(latency.p50_ms),
            short(latency.p99_ms),
            short(latency.max_ms),
        ]);
        former = name;
    }
    lines
}

/// Bars of the patterns for a figure; those that lack it are left out.
fn load_bars(
    name: &str,
    stored: &[Stored],
    figure: impl Fn(&Stored) -> Option<f64>,
    text: impl Fn(f64) -> String,
) -> Bars {
    let bar = |figures: &Stored| {
        let value = figure(figures)?;
        let pattern = figures.pattern;
        Some(Bar {
            name: pattern.name().to_owned(),
            value,
            text: text(value),
            colour: colour(pattern),
        })
    };
    Bars { name: name.to_owned(), bars: stored.iter().filter_map(bar).collect() }
}

/// Bars of the patterns for each question.
fn question_bars(replies: &[Asked]) -> Vec<Bars> {
    let mut groups: Vec<Bars> = Vec::new();
    for reply in replies {
        let name = reply.question.name();
        if groups.last().is_none_or(|group| group.name != name) {
            groups.push(Bars { name: name.to_owned(), bars: Vec::new() });
        }
        let value = reply.summary().p50_ms;
        let bar = Bar {
            name: reply.pattern.name().to_owned(),
            value,
            text: format!("{} ms", short(value)),
            colour: colour(reply.pattern),
        };
        if let Some(group) = groups.last_mut() {
            group.bars.push(bar);
        }
    }
    groups
}

impl Outcome {
    /// Description of the run.
    fn about(&self, cores: usize) -> String {
        let Data { balloons, minutes, key_order, partitions, seed } = self.data;
        let order = match key_order {
            KeyOrder::Balloon => "location and balloon before the time",
            KeyOrder::Time => "the time before location and balloon",
        };
        let Effort { clients, batch, runs, .. } = self.effort;
        format!(
            "{balloons} balloons measure once a minute, {minutes} minutes long (seed {seed}). Row keys have {order}; tables have up to {partitions} partitions of as many events each. {clients} clients in closed loops insert {batch} events at a time, minute by minute; rates include the time in which they make the statements. Sizes are those of merged files. Reads are the median of {runs} rounds, in which patterns are asked next to each other, and include the transfer of all cells. The hotspot share is the share of the rows that went to the hottest partition at a time. At a tick all balloons write at once, an INSERT for each event, and latency counts from the tick. The machine has {cores} cores, shared with the clients."
        )
    }

    /// The page's pictures, tables and statements.
    fn html(&self, claims: &[Claim]) -> String {
        let Measured { stored, asked: replies } = &self.measured;
        let rate = |value: f64| format!("{value:.0}");
        let percent = |value: f64| format!("{:.0} %", value * 100.0);
        let ms = |value: f64| format!("{} ms", short(value));
        let tick_latency = |figures: &Stored| Some(figures.tick.as_ref()?.latency.p99_ms);
        let tick_share = |figures: &Stored| figures.tick.as_ref()?.hotspot_share;
        let charts = [
            bars(
                "writes",
                &[
                    load_bars("events/s", stored, |figures| Some(figures.events_per_s()), rate),
                    load_bars("cells/s", stored, |figures| Some(figures.cells_per_s()), rate),
                    load_bars("p99 of an INSERT", stored, |load| Some(load.latency.p99_ms), ms),
                    load_bars("p99 of an event of a tick", stored, tick_latency, ms),
                ],
            ),
            bars(
                "space and hotspots",
                &[
                    load_bars(
                        "bytes/event",
                        stored,
                        |figures| Some(figures.bytes_per_event()),
                        short,
                    ),
                    load_bars("hotspot share", stored, |figures| figures.hotspot_share, percent),
                    load_bars("hotspot share of a tick", stored, tick_share, percent),
                ],
            ),
            bars("latency of reads, median", &question_bars(replies)),
        ];
        let mut html = "<p>Measured:</p><ul>".to_owned();
        for claim in claims {
            let verdict = match claim.verdict {
                Verdict::Holds => "holds",
                Verdict::Fails => "does not hold",
                Verdict::Open => "open",
            };
            let text = format!("{verdict}: {} ({})", claim.claim, claim.measured);
            // Writing to a string cannot fail.
            let _ok = write!(html, "<li>{}</li>", plain(&text));
        }
        let _ok = write!(html, "</ul><div class=\"charts\">{}</div>", charts.concat());
        html.push_str(&table(&loads(stored)));
        html.push_str("<p></p>");
        html.push_str(&table(&reads(replies)));
        for figures in stored {
            let pattern = figures.pattern;
            let _ok = write!(
                html,
                "<h2>{}</h2><code>{}</code>",
                plain(pattern.name()),
                plain(&figures.create)
            );
            for (_, heatmap) in self.heatmaps.iter().filter(|(name, _)| *name == pattern) {
                let [light, dark] = pictures(heatmap);
                let _ok = write!(
                    html,
                    "<div class=\"map\"><div class=\"light\">{light}</div><div class=\"dark\">{dark}</div></div>"
                );
            }
            for reply in replies.iter().filter(|reply| reply.pattern == pattern) {
                let _ok = write!(
                    html,
                    "<p>{}</p><code>{}</code>",
                    plain(reply.question.name()),
                    plain(&reply.sql)
                );
            }
        }
        html
    }

    /// Prints the tables, and writes `report.json` and `report.html` into a folder.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (description, claims) = (self.about(cores), self.measured.claims());
        let Measured { stored, asked: replies } = &self.measured;
        let report = Report {
            what: "patterns",
            about: &description,
            cores,
            data: &self.data,
            clients: self.effort.clients,
            events_per_insert: self.effort.batch,
            patterns: stored.iter().map(StoredPart::of).collect(),
            questions: replies.iter().map(AskedPart::of).collect(),
            claims: &claims,
        };
        let json = serde_json::to_string_pretty(&report)? + "\n";
        let page = document("Patterns of time series, measured", &description, &self.html(&claims));
        for (name, text) in [("report.json", json), ("report.html", page)] {
            let path = folder.join(name);
            std::fs::write(&path, text)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        say(&format!(
            "{description}\n\n{}\n\n{}\n",
            align(&loads(stored)),
            align(&reads(replies))
        ))?;
        for claim in &claims {
            say(&claim.line())?;
        }
        say(&format!("written to {}", folder.join("report.html").display()))
    }
}

impl<'a> StoredPart<'a> {
    fn of(stored: &'a Stored) -> Self {
        Self {
            events_per_s: stored.events_per_s(),
            cells_per_s: stored.cells_per_s(),
            bytes_per_event: stored.bytes_per_event(),
            stored,
        }
    }
}

impl<'a> AskedPart<'a> {
    fn of(reply: &'a Asked) -> Self {
        Self {
            question: reply.question.name(),
            pattern: reply.pattern,
            sql: &reply.sql,
            rows: reply.rows,
            rounds_ms: &reply.rounds_ms,
            latency: reply.summary(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::figures::Tick;
    use super::super::questions::Question;
    use super::*;

    fn outcome() -> Outcome {
        let data =
            Data { balloons: 2, minutes: 60, seed: 1, key_order: KeyOrder::Balloon, partitions: 2 };
        let effort = Effort {
            clients: 1,
            batch: 10,
            runs: 1,
            warmup: 0,
            ticks: 1,
            tick_interval: Duration::from_secs(1),
        };
        let pattern = Pattern::NewCells;
        let stored = Stored {
            create: data.create(pattern),
            events: 120,
            cells_written: 480,
            load_s: 2.0,
            bytes: 1_200,
            hotspot_share: Some(0.5),
            tick: Some(Tick::new(Some(1.0), Summary::default(), &[12.0])),
            ..Stored::new(pattern)
        };
        let mut reply = Asked::new(Question::ALL[0], pattern, &data);
        reply.record(Duration::from_millis(3));
        let measured = Measured { stored: vec![stored], asked: vec![reply] };
        Outcome { data, effort, measured, heatmaps: Vec::new() }
    }

    #[test]
    fn a_report_has_tables_a_page_and_numbers_for_programs() {
        let folder = tempfile::tempdir().unwrap();
        outcome().write(folder.path()).unwrap();
        let text = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text("report.json")).unwrap();
        let pattern = &json["patterns"][0];
        assert_eq!(pattern["pattern"], "new-cells");
        assert_eq!(pattern["events_per_s"], 60.0);
        assert_eq!(pattern["cells_per_s"], 240.0);
        assert_eq!(pattern["bytes_per_event"], 10.0);
        assert_eq!(pattern["tick"]["hotspot_share"], 1.0);
        assert_eq!(json["questions"][0]["question"], "a minute");
        assert_eq!(json["claims"][0]["verdict"], "open");
        let page = text("report.html");
        for part in
            ["2 new cells", "hotspot share of a tick", "lab_patterns_2 WIDE", "60 minutes long"]
        {
            assert!(page.contains(part), "{part} in\n{page}");
        }
    }

    #[test]
    fn a_missing_figure_is_a_dash() {
        let mut outcome = outcome();
        outcome.measured.stored[0].tick = None;
        let lines = loads(&outcome.measured.stored);
        assert_eq!(lines[0].len(), lines[1].len());
        assert_eq!(lines[1][9..11], ["50 %", "-"]);
        assert_eq!(reads(&outcome.measured.asked)[1][..2], ["a minute", "2 new cells"]);
    }
}
