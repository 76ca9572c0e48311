//! `partita lab design`: tries the advice of documents about schemas, with their own data sets.
//!
//! ```text
//!   demonstration (a file each): records by seed, designs, questions, claims        model: their form
//!     └─▶ runner: a server for each design, the same records, the same questions in turns
//!           └─▶ figures: rows, bytes, latency, memory, disk ─▶ claims ─▶ written: terminal, JSON, HTML
//! ```
//!
//! Claims are those of the documents, so one that does not hold is a result and not an error. Different answers of
//! designs are an error.
//!
//! Invariants: demonstrations run one after another, each on servers that end with it.

mod air_sensors;
mod crypto;
mod figures;
mod health;
mod home;
mod http_logs;
mod iot;
mod metrics_events;
mod model;
mod partitions;
mod raw_logs;
mod runner;
mod system_metrics;
#[cfg(test)]
mod tests;
mod written;

use std::path::PathBuf;

use anyhow::{Context, bail};

use self::model::{Data, Demonstration};
use self::runner::Rounds;
use self::written::Outcome;
use crate::report::{align, say};
use crate::stop::stopped;

/// All demonstrations.
static DEMONSTRATIONS: [Demonstration; 10] = [
    http_logs::DEMONSTRATION,
    raw_logs::DEMONSTRATION,
    home::DEMONSTRATION,
    air_sensors::DEMONSTRATION,
    crypto::DEMONSTRATION,
    system_metrics::DEMONSTRATION,
    health::DEMONSTRATION,
    iot::DEMONSTRATION,
    partitions::DEMONSTRATION,
    metrics_events::DEMONSTRATION,
];

/// Options of `design`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Demonstrations to run, such as `http-logs`; see --list.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Run all demonstrations.
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// List the demonstrations and exit.
    #[arg(long)]
    list: bool,
    /// Print the statements of the demonstrations, all of them by default, and exit.
    #[arg(long)]
    show: bool,
    /// Records of each demonstration; by default as many as --list shows.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    rows: Option<u64>,
    /// Seed of the records.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Rounds in which each question is asked once.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Rounds before them that are not counted.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=100))]
    warmup: u32,
    /// Folder for report.html and report.json.
    #[arg(long, default_value = "design-report")]
    out: PathBuf,
    /// Folder below which the servers keep their data; by default the system's folder for temporary files.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Binary for the servers; by default this one.
    #[arg(long)]
    binary: Option<PathBuf>,
}

impl Options {
    /// The demonstrations that the options name.
    ///
    /// # Errors
    /// If a name is unknown.
    fn selected(&self) -> anyhow::Result<Vec<&'static Demonstration>> {
        if self.all {
            return Ok(DEMONSTRATIONS.iter().collect());
        }
        let find = |name: &String| {
            let entry = DEMONSTRATIONS.iter().find(|demonstration| demonstration.name == name);
            entry.with_context(|| format!("there is no demonstration {name}; see --list"))
        };
        self.names.iter().map(find).collect()
    }

    /// Records of a demonstration.
    fn data(&self, demonstration: &Demonstration) -> Data {
        Data { rows: self.rows.unwrap_or(demonstration.rows), seed: self.seed }
    }
}

/// Runs demonstrations, and reports.
///
/// # Errors
/// If a server does not start or refuses a statement, designs answer a question differently, or the report cannot be
/// written.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    if options.list {
        return say(&list());
    }
    let mut selected = options.selected()?;
    if options.show {
        if selected.is_empty() {
            selected = DEMONSTRATIONS.iter().collect();
        }
        return say(&show(options, &selected));
    }
    if selected.is_empty() {
        bail!("name a demonstration, or give --all; --list shows them");
    }
    // Checked before the runs: can the report be written?
    std::fs::create_dir_all(&options.out)
        .with_context(|| format!("cannot create {}", options.out.display()))?;
    tokio::select! {
        done = Box::pin(all(options, &selected)) => done,
        stopped = stopped() => {
            stopped?;
            bail!("stopped before the report");
        }
    }
}

async fn all(options: &Options, selected: &[&'static Demonstration]) -> anyhow::Result<()> {
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => std::env::current_exe().context("cannot find this binary")?,
    };
    let rounds = Rounds {
        runs: options.runs,
        warmup: options.warmup,
        binary,
        folder: runner::folder(options.data_dir.as_deref())?,
    };
    let mut outcomes = Vec::new();
    for demonstration in selected.iter().copied() {
        let data = options.data(demonstration);
        let measured = Box::pin(runner::run(demonstration, &data, &rounds)).await;
        let measured = measured.with_context(|| format!("{} failed", demonstration.name))?;
        let outcome = Outcome::new(demonstration, data, measured);
        say(&outcome.text())?;
        outcomes.push(outcome);
    }
    written::write(&options.out, &rounds, &outcomes)
}

/// Text of --list.
fn list() -> String {
    let head = ["demonstration", "records", "designs", "document"].map(str::to_owned);
    let mut lines = vec![head.to_vec()];
    lines.extend(DEMONSTRATIONS.iter().map(|demonstration| {
        let designs = (demonstration.designs)();
        let names: Vec<&str> = designs.iter().map(|design| design.name.as_str()).collect();
        vec![
            demonstration.name.to_owned(),
            demonstration.rows.to_string(),
            names.join(", "),
            demonstration.document.to_owned(),
        ]
    }));
    align(&lines)
}

/// Text of --show: statements that can be run as they are.
fn show(options: &Options, selected: &[&'static Demonstration]) -> String {
    let mut text = String::new();
    for demonstration in selected {
        text.push_str(&format!("-- {}: {}\n", demonstration.name, demonstration.title));
        for design in (demonstration.designs)() {
            text.push_str(&format!("-- {}: {}\n", design.name, design.description));
            for table in &design.tables {
                text.push_str(&format!("{};\n{};\n", table.create, table.freeze()));
            }
        }
        for question in (demonstration.questions)(&options.data(demonstration)) {
            text.push_str(&format!("-- {}\n", question.name));
            for ask in question.asks {
                text.push_str(&format!("{};\n", ask.sql));
            }
        }
    }
    text.trim_end().to_owned()
}
