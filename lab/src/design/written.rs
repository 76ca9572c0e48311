//! Report of demonstrations: tables on standard output, `report.json`, and `report.html` with a picture of each figure.
//!
//! Invariants: the page is one file and loads nothing; claims stand beside the figures that decide them, also those
//! that do not hold.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use partita_hotspot::report::{Bar, Bars, bars, document, plain, table};
use serde::Serialize;

use super::figures::{Asked, Loaded, Measured};
use super::model::{Advice, Data, Demonstration, Design, float};
use super::runner::Rounds;
use crate::claim::{Claim, Verdict};
use crate::report::{align, mib, say, short};

/// A finished demonstration.
pub(super) struct Outcome {
    demonstration: &'static Demonstration,
    data: Data,
    designs: Vec<Design>,
    measured: Measured,
    claims: Vec<Claim>,
}

#[derive(Serialize)]
struct Report<'a> {
    cores: usize,
    runs: u32,
    demonstrations: Vec<Part<'a>>,
}

#[derive(Serialize)]
struct Part<'a> {
    name: &'a str,
    document: &'a str,
    says: &'a [&'a str],
    records: u64,
    seed: u64,
    designs: Vec<DesignPart<'a>>,
    loaded: &'a [Loaded],
    questions: &'a [Asked],
    claims: &'a [Claim],
}

#[derive(Serialize)]
struct DesignPart<'a> {
    name: &'a str,
    description: &'a str,
    tables: Vec<&'a str>,
}

fn heads(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// A size in the unit that makes it short.
fn size(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{} KiB", short(float(bytes) / 1_024.0)),
        _ => mib(bytes),
    }
}

impl Outcome {
    pub(super) fn new(
        demonstration: &'static Demonstration,
        data: Data,
        measured: Measured,
    ) -> Self {
        let claims = (demonstration.judge)(&data, &measured);
        Self { demonstration, data, designs: (demonstration.designs)(), measured, claims }
    }

    /// Table of the designs after the load.
    fn loads(&self) -> Vec<Vec<String>> {
        let mut facts: Vec<&str> =
            self.designs.iter().flat_map(|design| &design.facts).map(|fact| fact.name).collect();
        facts.sort_unstable();
        facts.dedup();
        let mut head = heads(&[
            "design",
            "rows",
            "rows/s",
            "COPY s",
            "files s",
            "disk",
            "memory",
            "peak",
            "files",
            "partitions",
        ]);
        head.extend(facts.iter().map(|name| (*name).to_owned()));
        let mut lines = vec![head];
        for loaded in &self.measured.loaded {
            let mut line = vec![
                loaded.design.clone(),
                loaded.rows.to_string(),
                format!("{:.0}", loaded.rows_per_s()),
                short(loaded.load_s),
                short(loaded.files_s),
                size(loaded.disk_bytes),
                mib(loaded.memory_bytes),
                mib(loaded.memory_peak_bytes),
                loaded.files.to_string(),
                loaded.partitions.to_string(),
            ];
            line.extend(facts.iter().map(|name| {
                loaded.facts.get(*name).map_or_else(|| "-".to_owned(), |fact| format!("{fact:.0}"))
            }));
            lines.push(line);
        }
        lines
    }

    /// Table of the questions.
    fn questions(&self) -> Vec<Vec<String>> {
        let mut lines = vec![heads(&[
            "question",
            "design",
            "rows read",
            "bytes read",
            "ms",
            "partitions",
            "index",
            "answer",
        ])];
        let mut former = "";
        for reply in &self.measured.asked {
            let name = if reply.question == former { "" } else { reply.question.as_str() };
            former = &reply.question;
            lines.push(vec![
                name.to_owned(),
                reply.design.clone(),
                reply.rows_read.to_string(),
                size(reply.bytes_read),
                short(reply.median_ms),
                format!("{} of {}", reply.partitions_touched, reply.partitions_total),
                reply.index_used.clone().unwrap_or_else(|| "-".to_owned()),
                format!("{} rows", reply.answer_rows),
            ]);
        }
        lines
    }

    /// Claims of the document with their verdicts.
    fn verdicts(&self) -> Vec<String> {
        let verdict = |claim: &Claim| match claim.verdict {
            Verdict::Holds => "holds",
            Verdict::Fails => "does not hold",
            Verdict::Open => "open",
        };
        let line =
            |claim: &Claim| format!("{}: {} ({})", verdict(claim), claim.claim, claim.measured);
        self.claims.iter().map(line).collect()
    }

    fn heading(&self) -> String {
        format!("{}: {}", self.demonstration.name, self.demonstration.title)
    }

    /// The terminal's text.
    pub(super) fn text(&self) -> String {
        let records = format!("{} records, seed {}", self.data.rows, self.data.seed);
        format!(
            "{}\n{}; {records}\n\n{}\n\n{}\n\n{}\n",
            self.heading(),
            self.demonstration.document,
            align(&self.loads()),
            align(&self.questions()),
            self.verdicts().join("\n")
        )
    }

    fn colour(&self, design: &str) -> &'static str {
        let design = self.designs.iter().find(|candidate| candidate.name == design);
        match design.map_or(Advice::Neutral, |design| design.advice) {
            Advice::Against => "var(--b)",
            Advice::Neutral => "var(--a)",
            Advice::For => "var(--c)",
        }
    }

    /// Bars of the designs for some figures of the load.
    fn load_bars(&self, name: &str, figure: impl Fn(&Loaded) -> (f64, String)) -> Bars {
        let bar = |loaded: &Loaded| {
            let (value, text) = figure(loaded);
            let colour = self.colour(&loaded.design);
            Bar { name: loaded.design.clone(), value, text, colour }
        };
        Bars { name: name.to_owned(), bars: self.measured.loaded.iter().map(bar).collect() }
    }

    /// Bars of the designs for a figure of each question.
    fn question_bars(&self, figure: impl Fn(&Asked) -> (f64, String)) -> Vec<Bars> {
        let mut groups: Vec<Bars> = Vec::new();
        for reply in &self.measured.asked {
            if groups.last().is_none_or(|group| group.name != reply.question) {
                groups.push(Bars { name: reply.question.clone(), bars: Vec::new() });
            }
            let (value, text) = figure(reply);
            let colour = self.colour(&reply.design);
            let bar = Bar { name: reply.design.clone(), value, text, colour };
            if let Some(group) = groups.last_mut() {
                group.bars.push(bar);
            }
        }
        groups
    }

    /// The demonstration's section of the page.
    fn html(&self) -> String {
        let mut html = format!("<h2>{}</h2>", plain(&self.heading()));
        // Writing to a string cannot fail.
        let _ok = write!(
            html,
            "<p>{} records, seed {}. {} says:</p><ul>",
            self.data.rows,
            self.data.seed,
            plain(self.demonstration.document)
        );
        for text in self.demonstration.says {
            let _ok = write!(html, "<li>{}</li>", plain(text));
        }
        html.push_str("</ul><p>Measured:</p><ul>");
        for text in self.verdicts() {
            let _ok = write!(html, "<li>{}</li>", plain(&text));
        }
        html.push_str("</ul>");
        // Pictures: what the questions read and took, and what the load left.
        let loads = [
            self.load_bars("disk", |loaded| (float(loaded.disk_bytes), size(loaded.disk_bytes))),
            self.load_bars("memory, peak", |loaded| {
                (float(loaded.memory_peak_bytes), mib(loaded.memory_peak_bytes))
            }),
            self.load_bars("seconds until in files", |loaded| {
                let seconds = loaded.load_s + loaded.files_s;
                (seconds, format!("{} s", short(seconds)))
            }),
        ];
        let charts = [
            bars(
                "rows read",
                &self.question_bars(|reply| (float(reply.rows_read), reply.rows_read.to_string())),
            ),
            bars(
                "bytes read",
                &self.question_bars(|reply| (float(reply.bytes_read), size(reply.bytes_read))),
            ),
            bars(
                "latency, median",
                &self.question_bars(|reply| {
                    (reply.median_ms, format!("{} ms", short(reply.median_ms)))
                }),
            ),
            bars("load", &loads),
        ];
        let _ok = write!(html, "<div class=\"charts\">{}</div>", charts.concat());
        html.push_str(&table(&self.loads()));
        html.push_str("<p></p>");
        html.push_str(&table(&self.questions()));
        for design in &self.designs {
            let _ok = write!(html, "<p>{}: {}</p>", plain(&design.name), plain(design.description));
            for table in &design.tables {
                let _ok = write!(html, "<code>{}</code>", plain(&table.create));
            }
        }
        html
    }

    fn part(&self) -> Part<'_> {
        Part {
            name: self.demonstration.name,
            document: self.demonstration.document,
            says: self.demonstration.says,
            records: self.data.rows,
            seed: self.data.seed,
            designs: self.designs.iter().map(DesignPart::of).collect(),
            loaded: &self.measured.loaded,
            questions: &self.measured.asked,
            claims: &self.claims,
        }
    }
}

impl<'a> DesignPart<'a> {
    fn of(design: &'a Design) -> Self {
        Self {
            name: &design.name,
            description: design.description,
            tables: design.tables.iter().map(|table| table.create.as_str()).collect(),
        }
    }
}

/// Writes `report.json` and `report.html` into a folder.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn write(folder: &Path, rounds: &Rounds, outcomes: &[Outcome]) -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let report = Report {
        cores,
        runs: rounds.runs,
        demonstrations: outcomes.iter().map(Outcome::part).collect(),
    };
    let note = format!(
        "Each design has a server of its own on one machine of {cores} cores, without replication, and the same records. Rows and bytes are those that scans decoded. Latency is the median of {} rounds, in which designs are asked next to each other. A bar is as long as the figure, in the scale of its group. Orange: the document advises against it; green: it recommends it; blue: neither.",
        rounds.runs
    );
    let body: String = outcomes.iter().map(Outcome::html).collect();
    let page = document("Designs of tables, measured", &note, &body);
    let json = serde_json::to_string_pretty(&report)? + "\n";
    for (name, text) in [("report.json", json), ("report.html", page)] {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    say(&format!("{} and report.json", folder.join("report.html").display()))
}
