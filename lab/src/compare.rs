//! `partita lab compare`: compares the results of several runs by their medians.
//!
//! Results are lines of JSON as printed by `ingest --json` and `query --json`. Runs with the same server, door,
//! label and number of connections are rounds of one measurement. Ratios are of medians: how many times faster the
//! base (Partita) is than a peer. Runs with rejected batches are left out and counted.

mod loads;
mod queries;

use std::path::PathBuf;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::latency::Summary;
use crate::query::answer::Digest;
use crate::report::{align, say};

/// Options of `compare`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Result files, one line of JSON each.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Server that others are compared with.
    #[arg(long, default_value = "partita")]
    base: String,
    /// Write the medians and ratios as JSON to this file.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// The compared fields of a result.
#[derive(Debug, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
enum Line {
    Ingest(Box<Load>),
    Query(Asked),
}

#[derive(Clone, Debug, Deserialize)]
struct Load {
    label: String,
    server: String,
    door: String,
    connections: u32,
    rows_per_s: f64,
    latency: Summary,
    rejected_batches: u64,
    client_cpu_s: f64,
    metered: bool,
    server_usage: LoadUsage,
    server_cpu_s_per_mrow: f64,
    server_cpu_settled_s_per_mrow: f64,
    disk_bytes_per_row: f64,
    written_bytes_per_row: f64,
}

#[derive(Clone, Debug, Deserialize)]
struct LoadUsage {
    memory_peak_bytes: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct Asked {
    label: String,
    server: String,
    door: String,
    connections: u32,
    queries: Vec<AskedQuery>,
}

#[derive(Clone, Debug, Deserialize)]
struct AskedQuery {
    name: String,
    latency: Summary,
    answer: Digest,
    failed: u64,
}

/// The whole comparison.
#[derive(Debug, Serialize)]
struct Comparison {
    base: String,
    loads: Vec<loads::Medians>,
    queries: Vec<queries::Medians>,
    /// Runs left out because of rejected batches.
    left_out: usize,
}

/// Reads the results, compares them and prints the comparison.
///
/// # Errors
/// If a file cannot be read or has no results.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let (mut all_loads, mut all_asked) = (Vec::new(), Vec::new());
    for path in &options.files {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        for (index, line) in text.lines().enumerate() {
            // Points of a time series are not results.
            if line.trim().is_empty() || !line.contains("\"what\"") {
                continue;
            }
            let line = serde_json::from_str(line)
                .with_context(|| format!("{}:{}: not a result", path.display(), index + 1))?;
            match line {
                Line::Ingest(load) => all_loads.push(*load),
                Line::Query(queries) => all_asked.push(queries),
            }
        }
    }
    if all_loads.is_empty() && all_asked.is_empty() {
        bail!("there are no results in these files");
    }
    let runs = all_loads.len();
    all_loads.retain(|load| load.rejected_batches == 0);
    let comparison = Comparison {
        base: options.base.clone(),
        left_out: runs - all_loads.len(),
        loads: loads::compare(&all_loads, &options.base),
        queries: queries::compare(&all_asked, &options.base),
    };
    if let Some(path) = &options.out {
        std::fs::write(path, serde_json::to_string_pretty(&comparison)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if !comparison.loads.is_empty() {
        say(&align(&loads::lines(&comparison.loads, &options.base)))?;
    }
    if comparison.left_out > 0 {
        say(&format!("{} loads with refused batches are left out", comparison.left_out))?;
    }
    for table in queries::tables(&comparison.queries, &options.base) {
        say(&format!("\n{}", align(&table)))?;
    }
    Ok(())
}
