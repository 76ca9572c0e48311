//! `partita lab stages`: CPU cost per row of each piece of the write path, and the share of the total that they
//! explain.
//!
//! ```text
//!   cargo bench  ──> target/criterion/*/*/new/*.json ──┐
//!   lab ingest --json ──> lines of results             ├── a table: pieces down, doors across
//!                                                      ┘
//! ```
//!
//! A line of the table is a piece on a row's way into the store; its figure is CPU time in microseconds per row,
//! which equals CPU seconds per million rows. Below are their sum, the server's usage in a whole load, and the
//! remainder: connections and the kernel's part of them, bookkeeping of requests, hand-overs between threads, and
//! the compaction during the load.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::report::{align, say, short};
use crate::statistics::median;

/// The pieces in the order of the path: a title, and criterion's name, which [`bench`] completes.
const PIECES: [(&str, &str); 7] = [
    ("decode the request", "decode/"),
    ("complete, place, cut", "ingest/1 partition"),
    ("encode a log entry", "entry/encode"),
    ("append it to the log", "append CPU/batch, synced"),
    ("decode it to apply it", "entry/decode"),
    ("sort it into the memtable", "apply/batch"),
    ("flush it to a file", "flush/memtable"),
];
/// Costs outside the sum: one that a row causes later, a varying number of times, and one that is a part of a flush and of
/// each compaction.
const BESIDE: [(&str, &str); 2] = [
    ("compact it, each time", "compact/4 runs"),
    ("of flush and compaction: measure it", "measures/batch"),
];
/// Doors by their names in results; the pieces have the same names.
const DOORS: [&str; 4] = ["line-protocol", "copy-text", "copy-binary", "flight"];

/// Options of `stages`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Results of loads of 100 hosts: lines of JSON from `ingest --json`. By default only the pieces are shown.
    loads: Vec<PathBuf>,
    /// Folder of criterion's measurements.
    #[arg(long, default_value = "target/criterion")]
    criterion: PathBuf,
}

/// Microseconds per row, by criterion's names.
type Costs = BTreeMap<String, f64>;

/// Server CPU of loads through one door, in microseconds per row.
#[derive(Clone, Debug, Default, PartialEq)]
struct Whole {
    acknowledged: Vec<f64>,
    settled: Vec<f64>,
}

/// Reads the measurements, adds them up, and prints the table.
///
/// # Errors
/// If there are no measurements.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mut costs = Costs::new();
    collect(&options.criterion, &mut costs)
        .with_context(|| format!("cannot read {}", options.criterion.display()))?;
    if costs.is_empty() {
        bail!("there are no measurements below {}", options.criterion.display());
    }
    let mut wholes = BTreeMap::new();
    for path in &options.loads {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        text.lines().try_for_each(|line| add_load(line, &mut wholes))?;
    }
    say("CPU of each piece of the write path, microseconds per row:")?;
    say(&align(&lines(&costs, &wholes)))
}

/// Criterion's description of a bench.
#[derive(Deserialize)]
struct Benchmark {
    full_id: String,
    /// `{"Elements": 5000}`, or another unit, or null.
    throughput: serde_json::Value,
}

#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    /// Time in nanoseconds.
    point_estimate: f64,
}

/// Collects the newest measurement of each bench that counts rows.
fn collect(folder: &Path, costs: &mut Costs) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if !path.is_dir() {
            continue;
        }
        let description_path = path.join("benchmark.json");
        if path.file_name().is_none_or(|name| name != "new") || !description_path.exists() {
            collect(&path, costs)?;
            continue;
        }
        let read = |path: &Path| {
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let description: Benchmark = serde_json::from_slice(&read(&description_path)?)?;
        let estimates: Estimates = serde_json::from_slice(&read(&path.join("estimates.json"))?)?;
        if let Some(rows) = description.throughput["Elements"].as_f64().filter(|rows| *rows > 0.0) {
            costs.insert(description.full_id, estimates.median.point_estimate / rows / 1e3);
        }
    }
    Ok(())
}

/// The needed fields of a line of results.
#[derive(Deserialize)]
struct Line {
    what: String,
    server: String,
    door: Option<String>,
    metered: Option<bool>,
    server_cpu_s_per_mrow: Option<f64>,
    server_cpu_settled_s_per_mrow: Option<f64>,
}

/// Adds a result if it is a metered load into Partita; CPU seconds per million rows equal microseconds per row.
fn add_load(line: &str, wholes: &mut BTreeMap<String, Whole>) -> anyhow::Result<()> {
    // Points of a time series are not results.
    if line.trim().is_empty() || !line.contains("\"what\"") {
        return Ok(());
    }
    let line: Line = serde_json::from_str(line).context("not a result")?;
    let is_load = line.what == "ingest" && line.server == "partita" && line.metered == Some(true);
    if let (true, Some(door), Some(acknowledged), Some(settled)) =
        (is_load, line.door, line.server_cpu_s_per_mrow, line.server_cpu_settled_s_per_mrow)
    {
        let whole = wholes.entry(door).or_default();
        whole.acknowledged.push(acknowledged);
        whole.settled.push(settled);
    }
    Ok(())
}

/// Criterion's name for a piece on the way through a door: a name that ends with a slash is completed by the
/// door's, and the strings of Arrow clients are cast.
fn bench(name: &str, door: &str) -> String {
    match (name, door) {
        ("ingest/1 partition", "flight") => format!("{name}, cast"),
        (name, door) if name.ends_with('/') => format!("{name}{door}"),
        (name, _) => name.to_owned(),
    }
}

fn lines(costs: &Costs, wholes: &BTreeMap<String, Whole>) -> Vec<Vec<String>> {
    let cost = |name: &str, door: &str| costs.get(&bench(name, door)).copied();
    let cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), short);
    let row = |title: &str, value: &dyn Fn(&str) -> Option<f64>| {
        let values = DOORS.iter().map(|door| cell(value(door)));
        std::iter::once(title.to_owned()).chain(values).collect::<Vec<_>>()
    };
    // A sum that lacks one of its parts would look like a cheap path.
    let sum = |door: &str| PIECES.iter().map(|(_, name)| cost(name, door)).sum::<Option<f64>>();
    let acknowledged = |door: &str| middle(&wholes.get(door)?.acknowledged);
    let settled = |door: &str| middle(&wholes.get(door)?.settled);
    let mut lines = vec![row("", &|_| None)];
    lines[0].splice(1.., DOORS.map(str::to_owned));
    lines.extend(PIECES.iter().map(|(title, name)| row(title, &|door| cost(name, door))));
    lines.push(row("sum", &sum));
    lines.extend(BESIDE.iter().map(|(title, name)| row(title, &|door| cost(name, door))));
    if !wholes.is_empty() {
        lines.push(row("server, until acknowledged", &acknowledged));
        lines.push(row("server, settled", &settled));
        lines.push(row("not explained: settled - sum", &|door| Some(settled(door)? - sum(door)?)));
    }
    lines
}

/// The median; `None` without values.
fn middle(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| median(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(folder: &Path, name: &str, rows: &str, nanos: f64) {
        let folder = folder.join(name.replace(' ', "_")).join("new");
        std::fs::create_dir_all(&folder).unwrap();
        let description = format!(r#"{{"group_id":"g","full_id":"{name}","throughput":{rows}}}"#);
        std::fs::write(folder.join("benchmark.json"), description).unwrap();
        let estimates = format!(
            r#"{{"mean":{{"point_estimate":1.0}},"median":{{"point_estimate":{nanos}}},"slope":null}}"#
        );
        std::fs::write(folder.join("estimates.json"), estimates).unwrap();
    }

    #[test]
    fn what_criterion_left_is_found_and_counted_by_row() {
        let folder = tempfile::tempdir().unwrap();
        measured(folder.path(), "entry/encode", r#"{"Elements":5000}"#, 1e6);
        measured(folder.path(), "decode/line-protocol", r#"{"Elements":1}"#, 2_500.0);
        measured(folder.path(), "other/bytes", r#"{"Bytes":7}"#, 1.0);
        measured(folder.path(), "other/nothing", "null", 1.0);
        let mut costs = Costs::new();
        collect(folder.path(), &mut costs).unwrap();
        let expected = [("decode/line-protocol", 2.5), ("entry/encode", 0.2)];
        assert_eq!(costs, expected.map(|(name, cost)| (name.to_owned(), cost)).into());
        assert!(collect(&folder.path().join("nowhere"), &mut costs).is_err());
    }

    #[test]
    fn doors_have_pieces_of_their_own() {
        assert_eq!(bench("decode/", "copy-text"), "decode/copy-text");
        assert_eq!(bench("ingest/1 partition", "copy-text"), "ingest/1 partition");
        assert_eq!(bench("ingest/1 partition", "flight"), "ingest/1 partition, cast");
    }

    #[test]
    fn pieces_are_added_up_and_taken_from_the_whole() {
        let mut costs: Costs =
            PIECES.iter().skip(1).map(|(_, name)| ((*name).to_owned(), 0.1)).collect();
        costs.insert("decode/line-protocol".to_owned(), 0.4);
        let mut wholes = BTreeMap::new();
        for cpu in [1.5, 2.5, 2.0] {
            let line = format!(
                r#"{{"what":"ingest","server":"partita","door":"line-protocol","metered":true,
                "server_cpu_s_per_mrow":{cpu},"server_cpu_settled_s_per_mrow":{cpu}}}"#
            );
            add_load(&line, &mut wholes).unwrap();
        }
        add_load(r#"{"rows":5}"#, &mut wholes).unwrap();
        add_load(r#"{"what":"query","server":"partita"}"#, &mut wholes).unwrap();
        let lines = lines(&costs, &wholes);
        let cells =
            |title: &str| lines.iter().find(|line| line[0] == title).unwrap()[1..3].to_vec();
        assert_eq!(cells("sum"), ["1.00", "-"]);
        assert_eq!(cells("server, settled"), ["2.00", "-"]);
        assert_eq!(cells("not explained: settled - sum"), ["1.00", "-"]);
        assert!(lines.iter().all(|line| line.len() == 1 + DOORS.len()));
    }
}
