//! `partita lab sim`: runs a workload in a virtual cluster, under our split policy and others, and compares them.
//!
//! Invariant: output follows from the options, except for the running times.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use serde::Serialize;

use crate::cluster::{Cluster, Fault, FaultKind, Options as ClusterOptions, Policy};
use crate::metrics::{Summary, csv};
use crate::report::{Page, Shown, align, fan_out_lines, lines, page};
use crate::workload::{Design, Knobs, all, find};
use partita_load::Remedy;

/// Options of `sim`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Workload: W1 to W15, or one of their variants (`--list` shows all).
    #[arg(long, default_value = "W1")]
    pub workload: String,
    /// Key designs, for workloads that do not fix one; several for a comparison.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ts-uid")]
    pub design: Vec<Design>,
    /// Split policies; several for a comparison.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "ours,size-only,ydb-like,tikv-like,crdb-like"
    )]
    pub policy: Vec<Policy>,
    /// Number of nodes.
    #[arg(long, default_value_t = 3)]
    pub nodes: usize,
    /// Partitions of the whole cluster: other tables, with constant load, have those that the workload's tables do not
    /// need.
    #[arg(long, default_value_t = 0)]
    pub partitions: u32,
    /// Initial partitions of the workload's table.
    #[arg(long, default_value_t = 8)]
    pub start_partitions: u32,
    /// Virtual hours to run.
    #[arg(long, default_value_t = 0.1)]
    pub hours: f64,
    /// Rows per second; by default a tenth of a lane for each node, and at least three lanes.
    #[arg(long)]
    pub rate: Option<f64>,
    /// Rows per second that one partition's lane writes.
    #[arg(long, default_value_t = 20_000.0)]
    pub partition_rate: f64,
    /// Number of users, hosts or sensors.
    #[arg(long, default_value_t = 10_000)]
    pub entities: u64,
    /// Zipf exponent of the activity of users, hosts or sensors: 0 is even, 0.99 is YCSB's.
    #[arg(long, default_value_t = 0.5)]
    pub zipf: f64,
    /// Maximum delay between writers, in milliseconds.
    #[arg(long, default_value_t = 50)]
    pub disorder_ms: u64,
    /// Share of rows that are up to ten minutes late.
    #[arg(long, default_value_t = 0.0)]
    pub late: f64,
    /// Let the scheduler give append-only tables hash buckets.
    #[arg(long)]
    pub remedy_auto: bool,
    /// Share of heartbeats that are lost.
    #[arg(long, default_value_t = 0.0)]
    pub beats_lost: f64,
    /// Second at which a node crashes; it returns five minutes later.
    #[arg(long)]
    pub crash_at: Option<u64>,
    /// Second at which a node slows down to a third of its speed.
    #[arg(long)]
    pub slow_at: Option<u64>,
    /// Seed of all pseudo-random choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Folder for report.json, report.html, and the seconds of each run as JSONL and CSV.
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// List the workloads and exit.
    #[arg(long)]
    pub list: bool,
    /// Run W1 with each key design and policy of the reference table; replaces `--workload`, `--design` and
    /// `--policy`.
    #[arg(long)]
    pub reference: bool,
}

/// One run of a report.
#[derive(Debug, Serialize)]
struct Run {
    name: String,
    wall_s: f64,
    cpu_s: f64,
    times_real: f64,
    events: u64,
    summary: Summary,
}

impl Options {
    fn knobs(&self, design: Design) -> Knobs {
        let lanes = (self.nodes as f64 / 10.0).max(3.0);
        Knobs {
            rate: self.rate.unwrap_or(lanes * self.partition_rate),
            entities: self.entities.max(1),
            theta: self.zipf,
            disorder_us: self.disorder_ms * 1_000,
            late_share: self.late,
            partitions: self.start_partitions.max(1),
            ..Knobs::of(design, 0.0)
        }
    }

    fn cluster(&self, policy: Policy, loads: usize) -> ClusterOptions {
        let mut faults = Vec::new();
        if let Some(at_s) = self.crash_at {
            faults.push(Fault { at_s, node: 0, kind: FaultKind::Crash });
            faults.push(Fault { at_s: at_s + 300, node: 0, kind: FaultKind::Return });
        }
        if let Some(at_s) = self.slow_at {
            faults.push(Fault { at_s, node: 1, kind: FaultKind::Speed(1.0 / 3.0) });
        }
        let table_partitions =
            u32::try_from(loads).unwrap_or(u32::MAX).saturating_mul(self.start_partitions);
        ClusterOptions {
            nodes: self.nodes.max(1),
            lane_rows_per_s: self.partition_rate,
            background: self.partitions.saturating_sub(table_partitions),
            beats_lost: self.beats_lost,
            policy,
            faults,
            picture_every_s: if self.out.is_some() { (self.seconds() / 400).max(1) } else { 0 },
            seed: self.seed,
            ..ClusterOptions::default()
        }
    }

    fn seconds(&self) -> u64 {
        crate::number::whole(self.hours * 3_600.0)
    }
}

/// Runs a workload in a virtual cluster.
///
/// # Errors
/// If there is no such workload, or a file cannot be written.
pub fn run(options: &Options) -> anyhow::Result<String> {
    if options.list {
        let line = |workload: crate::workload::Workload| {
            vec![workload.name.to_owned(), workload.about.to_owned()]
        };
        return Ok(all()
            .into_iter()
            .map(line)
            .map(|line| line.join("\t"))
            .collect::<Vec<_>>()
            .join("\n"));
    }
    // One run for each design and policy, or for each reference row.
    let mut runs = Vec::new();
    let mut pages = Page::default();
    if options.reference {
        for (row_options, design, policy) in reference(options) {
            run_one(&row_options, design, policy, &mut runs, &mut pages)?;
        }
    } else {
        for design in &options.design {
            for policy in &options.policy {
                run_one(options, *design, *policy, &mut runs, &mut pages)?;
            }
        }
    }
    // The tables of all runs, then the cost of each run.
    let rows: Vec<(String, &Summary)> =
        runs.iter().map(|run| (run.name.clone(), &run.summary)).collect();
    let mut text = align(&lines(&rows));
    text.push('\n');
    text.push_str(&align(&fan_out_lines(&rows)));
    for run in &runs {
        text.push_str(&format!(
            "{}: {} events in {:.2} s of CPU time ({:.2} s of wall time), {:.0} times real time, log hash {}\n",
            run.name, run.events, run.cpu_s, run.wall_s, run.times_real, run.summary.log_hash
        ));
    }
    // Files, if a folder was given.
    if let Some(folder) = &options.out {
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        write("report.json", serde_json::to_string_pretty(&runs)?)?;
        let note = format!(
            "{} nodes, {} partitions, {:.2} virtual hours, seed {}. One lane writes {:.0} rows/s. Load is simulated; latencies are estimates.",
            options.nodes,
            options.partitions.max(options.start_partitions),
            options.hours,
            options.seed,
            options.partition_rate
        );
        write("report.html", page("What a key design does", &note, &rows, &[], &pages))?;
        text.push_str(&format!("written to {}\n", folder.display()));
    }
    Ok(text)
}

/// Runs of the reference table: (ts, uid) with splits by size, with the policies of TiKV and CockroachDB, and with ours
/// without and with hash buckets for new rows; (uid, ts) with splits by size and with ours; a hash of both with ours.
fn reference(options: &Options) -> Vec<(Options, Design, Policy)> {
    let base = Options { workload: "W1".to_owned(), ..options.clone() };
    let wide = Options { start_partitions: 64, ..base.clone() };
    let auto = Options { remedy_auto: true, ..base.clone() };
    vec![
        (base.clone(), Design::TsUid, Policy::SizeOnly),
        (base.clone(), Design::TsUid, Policy::TikvLike),
        (base.clone(), Design::TsUid, Policy::CrdbLike),
        (base, Design::TsUid, Policy::Ours),
        (auto, Design::TsUid, Policy::Ours),
        (wide.clone(), Design::UidTs, Policy::SizeOnly),
        (wide.clone(), Design::UidTs, Policy::Ours),
        (wide, Design::HashAll, Policy::Ours),
    ]
}

/// Runs one design under one policy; adds the result to `runs` and, if files are written, to `pages`.
fn run_one(
    options: &Options,
    design: Design,
    policy: Policy,
    runs: &mut Vec<Run>,
    pages: &mut Page,
) -> anyhow::Result<()> {
    let workload = find(&options.workload)
        .with_context(|| format!("there is no workload {}; --list shows all", options.workload))?;
    let mut loads = workload.tables(&options.knobs(design));
    if options.remedy_auto {
        loads.iter_mut().for_each(|load| load.facts.remedy = Remedy::Auto);
    }
    let design_label = if workload.designs { format!(" {}", design.name()) } else { String::new() };
    let remedy = if options.remedy_auto { " + auto" } else { "" };
    let name = format!("{}{design_label} {}{remedy}", workload.name, policy.name());
    let (start, cpu_before_s) = (Instant::now(), cpu_time_s());
    let tables = loads.len();
    let mut cluster = Cluster::new(options.cluster(policy, tables), loads);
    let seconds = options.seconds().max(1);
    cluster.run(seconds);
    let wall_s = start.elapsed().as_secs_f64();
    // CPU time excludes other work of the machine; without kernel statistics, wall time is used.
    let cpu_s = cpu_time_s().zip(cpu_before_s).map_or(wall_s, |(end_s, start_s)| end_s - start_s);
    let summary = Summary::of(&cluster);
    if let Some(folder) = &options.out {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let file = name.replace([' ', ':', '+'], "-").to_lowercase();
        let lines: Result<Vec<String>, _> =
            cluster.books().seconds.iter().map(serde_json::to_string).collect();
        std::fs::write(folder.join(format!("{file}.jsonl")), lines?.join("\n") + "\n")?;
        std::fs::write(folder.join(format!("{file}.csv")), csv(&cluster.books().seconds))?;
        pages.add(&Shown::of(&name, &cluster, &summary));
    }
    let times_real = seconds as f64 / cpu_s.max(1e-9);
    runs.push(Run { name, wall_s, cpu_s, times_real, events: cluster.events(), summary });
    Ok(())
}

/// CPU time of this thread in seconds, from the kernel's statistics; `None` if there are none.
fn cpu_time_s() -> Option<f64> {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: u64 = statistics.split(' ').next()?.parse().ok()?;
    Some(nanoseconds as f64 / 1e9)
}
