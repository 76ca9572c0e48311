//! Report of all runs: tables on standard output, and `report.html`, `report.json`, and the seconds as files.
//!
//! Invariants: the same report as the virtual cluster's; it names the limit per partition, the number of cores, and
//! features that the store lacks.

use std::path::Path;

use anyhow::Context;
use partita_hotspot::metrics::{Summary, csv};
use partita_hotspot::report::{
    Advised, Guide, Guided, Page, Section, align, fan_out_lines, guide, lines, page,
};
use partita_hotspot::workload::Design;
use serde::Serialize;

use super::case::{Case, Cases};
use super::claims::{Judged, claims};
use super::watch::Reshaped;
use super::{Options, Run, last, twin};
use crate::claim::{Claim, failure};
use crate::embedded::NODES;
use crate::report::say;

#[derive(Serialize)]
struct Written<'a> {
    about: &'a str,
    bound_rows_per_s: Option<f64>,
    /// Rate of the first run.
    rows_per_s: f64,
    seconds: u64,
    embedded: bool,
    cores: usize,
    runs: Vec<WrittenRun<'a>>,
    not_yet: &'a [String],
    /// Claims with their verdicts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    claims: Vec<Claim>,
}

#[derive(Serialize)]
struct WrittenRun<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    workload: Option<&'a str>,
    design: Option<Design>,
    rows_per_s: f64,
    about: &'a str,
    summary: &'a Summary,
    virtual_summary: Option<&'a Summary>,
    splits_by_load_s: &'a [u64],
    cuts_and_merges: &'a [Reshaped],
    findings: &'a [String],
    advice: &'a [Advised],
    note: &'a str,
    not_yet: &'a [String],
}

impl<'a> WrittenRun<'a> {
    fn of(run: &'a Run) -> Self {
        let Run {
            shown: section, splits_at, reshaped, twin, workload, design, rate, lacking, ..
        } = run;
        Self {
            name: &section.name,
            workload: *workload,
            design: *design,
            rows_per_s: *rate,
            about: &section.about,
            summary: &section.summary,
            virtual_summary: twin.as_ref().map(|(summary, _)| summary),
            splits_by_load_s: splits_at,
            cuts_and_merges: reshaped,
            findings: &section.findings,
            advice: &section.advice,
            note: &section.note,
            not_yet: lacking,
        }
    }
}

/// Description of all runs.
fn about(options: &Options, cases: &Cases, cores: usize) -> String {
    // The cluster and the limit of its partitions.
    let cluster = match options.connect.is_empty() {
        true => format!(
            "A cluster of {NODES} datanodes, three replicas of each partition, on one machine of {cores} cores, shared with the writers."
        ),
        false => "A running cluster.".to_owned(),
    };
    let bound = match (cases.bound, options.connect.is_empty()) {
        (Some(rate), true) => format!(
            "Each partition was limited to {rate:.0} rows/s, as if it had a small core of its own; otherwise so few cores would not show the difference."
        ),
        (Some(rate), false) => {
            format!("Each partition is limited to {rate:.0} rows/s, according to --partition-rate.")
        }
        (None, true) => "Partitions were not limited; they share the machine.".to_owned(),
        (None, false) => "The limits of its partitions are unknown.".to_owned(),
    };
    // The load, and where it came from.
    let (seconds, batch) = (cases.seconds, options.batch);
    let load = match &options.replay {
        Some(path) => format!(
            "The operations recorded in {} were replayed for {seconds} s, in INSERTs of up to {batch} rows and one statement per read",
            path.display()
        ),
        None if options.workload.is_empty() => format!(
            "{:.0} rows/s were written for {seconds} s under each design{}, in INSERTs of {batch} rows",
            rows_per_s(cases),
            longer(cases)
        ),
        None => format!(
            "Each workload was run for {seconds} s{} ({}), in INSERTs of up to {batch} rows and one statement per read; a day takes {} s and an hour {} s",
            longer(cases),
            rates(cases),
            seconds,
            (seconds / 2).max(1)
        ),
    };
    let users = match &options.replay {
        Some(_) => String::new(),
        None => format!(" {} users, Zipf {}.", options.users, options.zipf),
    };
    let unit = if cases.all.iter().any(Case::reads) { "a request" } else { "an INSERT" };
    format!(
        "{cluster} {bound} {load}, in an open loop: latency counts from the due time of {unit}.{users} Figures are means over the last fifth of a run."
    )
}

/// Runs that take longer than the others; empty if none does.
fn longer(cases: &Cases) -> String {
    let mut designs: Vec<(&str, u64)> = Vec::new();
    for case in cases.all.iter().filter(|case| case.seconds != cases.seconds) {
        let name = match case.design {
            Some(design) => design.name(),
            None => case.name.as_str(),
        };
        if !designs.contains(&(name, case.seconds)) {
            designs.push((name, case.seconds));
        }
    }
    designs.iter().map(|(name, seconds)| format!(" ({seconds} s under {name})")).collect()
}

/// Rows per second of the first run.
fn rows_per_s(cases: &Cases) -> f64 {
    cases.all.first().map_or(0.0, |case| case.knobs.rate)
}

/// Demand of each workload.
fn rates(cases: &Cases) -> String {
    let mut texts: Vec<String> = Vec::new();
    for case in &cases.all {
        let workload = case.workload.unwrap_or(&case.name);
        let unit = if case.reads() { "operations" } else { "rows" };
        let text = format!("{workload}: {:.0} {unit}/s", case.knobs.rate);
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts.join(", ")
}

/// Aspects that were not shown, by workload, without duplicates.
fn not_yet(runs: &[Run]) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for run in runs {
        let labelled = |text: &String| match run.workload {
            Some(name) => format!("{name}: {text}"),
            None => text.clone(),
        };
        for text in run.lacking.iter().map(labelled) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
    }
    texts
}

/// Leaders and CPU usage.
fn nodes_section(runs: &[Run]) -> Section {
    let head = ["design", "rows by leading node", "cores by node", "cores in total"];
    let mut table = vec![head.map(str::to_owned).to_vec()];
    for run in runs {
        let summary = &run.shown.summary;
        let list = |values: &[f64], unit: f64, digits: usize| {
            let texts: Vec<String> =
                values.iter().map(|value| format!("{:.digits$}", value * unit)).collect();
            if texts.is_empty() { "-".to_owned() } else { texts.join(" / ") }
        };
        table.push(vec![
            run.shown.name.clone(),
            format!("{} %", list(&summary.leaders, 100.0, 0)),
            list(&summary.cpu, 1.0, 2),
            format!("{:.2}", summary.cpu.iter().sum::<f64>()),
        ]);
    }
    Section {
        title: "Leaders and cores".to_owned(),
        text: "The share of the rows that each node's leaders wrote, and the cores that each datanode used. Followers apply the same writes, so cores are more even than leaders.".to_owned(),
        lines: table,
    }
}

fn pairs(runs: &[Run]) -> Vec<twin::Pair<'_>> {
    fn pair(run: &Run) -> Option<twin::Pair<'_>> {
        let (twin, twin_splits) = run.twin.as_ref()?;
        Some(twin::Pair {
            name: &run.shown.name,
            real: &run.shown.summary,
            real_splits: &run.splits_at,
            twin,
            twin_splits,
        })
    }
    runs.iter().filter_map(pair).collect()
}

/// Prints and writes the whole report.
///
/// # Errors
/// If a file cannot be written, or a claim fails.
pub(super) fn write(options: &Options, cases: &Cases, runs: &[Run]) -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (description, not_yet) = (about(options, cases, cores), not_yet(runs));
    let rows: Vec<(String, &Summary)> =
        runs.iter().map(|run| (run.shown.name.clone(), &run.shown.summary)).collect();
    let mut sections = vec![nodes_section(runs)];
    sections.extend(twin::section(&pairs(runs)));
    let mut text = align(&lines(&rows));
    text.push('\n');
    text.push_str(&align(&fan_out_lines(&rows)));
    for section in &sections {
        text.push_str(&format!("\n{}\n{}", section.text, align(&section.lines)));
    }
    let mut pages = Page::default();
    for run in runs {
        pages.add(&run.shown);
        let name = &run.slug;
        let json: Result<Vec<String>, _> =
            run.shown.seconds.iter().map(serde_json::to_string).collect();
        put(&options.out, &format!("{name}.jsonl"), &(json?.join("\n") + "\n"))?;
        put(&options.out, &format!("{name}.csv"), &csv(&run.shown.seconds))?;
    }
    if let Some(folder) = &options.guide {
        write_guide(folder, &description, &sections, &not_yet, runs)?;
    }
    if !not_yet.is_empty() {
        let (title, text) = ("Not yet".to_owned(), not_yet.join(" "));
        sections.push(Section { title, text, lines: Vec::new() });
    }
    let html = page("What a key design does to a cluster", &description, &rows, &sections, &pages);
    put(&options.out, "report.html", &html)?;
    let written = Written {
        about: &description,
        bound_rows_per_s: cases.bound,
        rows_per_s: rows_per_s(cases),
        seconds: cases.seconds,
        embedded: options.connect.is_empty(),
        cores,
        runs: runs.iter().map(WrittenRun::of).collect(),
        not_yet: &not_yet,
        claims: runs.iter().filter_map(judged).flat_map(|judged| claims(&judged)).collect(),
    };
    put(&options.out, "report.json", &serde_json::to_string_pretty(&written)?)?;
    say(&description)?;
    say(&text)?;
    for run in runs {
        if let Some(verdict) = last(run).and_then(|second| second.verdict) {
            let first = run.shown.advice.iter().find_map(|advised| advised.ddl.as_deref());
            let advice = first.map(|ddl| format!("\n{ddl}")).unwrap_or_default();
            say(&format!("{}: {verdict}{advice}", run.shown.name))?;
        }
    }
    if let Some(folder) = &options.guide {
        say(&format!("the guide is in {}", folder.display()))?;
    }
    for claim in &written.claims {
        say(&claim.line())?;
    }
    say(&format!("written to {}", options.out.join("report.html").display()))?;
    // The report is complete before a failed claim ends the command.
    failure(&written.claims).map_or(Ok(()), |failed| Err(anyhow::anyhow!(failed)))
}

fn judged(run: &Run) -> Option<Judged<'_>> {
    Some(Judged {
        name: &run.shown.name,
        shows: run.shows?,
        summary: &run.shown.summary,
        seconds: &run.shown.seconds,
        splits_at: &run.splits_at,
        reshaped: &run.reshaped,
        advice_ran: run.advice_ran.as_ref(),
    })
}

/// Writes the page that explains the heatmaps.
fn write_guide(
    folder: &Path,
    description: &str,
    sections: &[Section],
    not_yet: &[String],
    runs: &[Run],
) -> anyhow::Result<()> {
    let mut guided = Vec::new();
    for Run { shown: section, slug, design, entity, created, .. } in runs {
        guided.push(Guided {
            shown: section,
            slug,
            design: *design,
            entity: entity.as_deref(),
            created,
        });
    }
    let command = "partita lab hotspot --guide DIR";
    for file in guide(&Guide { about: description, command, runs: &guided, sections, not_yet }) {
        put(folder, &file.name, &file.text)?;
    }
    Ok(())
}

fn put(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let path = folder.join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}
