//! What `partita lab hotspot` is told.

use std::path::PathBuf;

use anyhow::bail;
use partita_hotspot::workload::{Design, Knobs};

/// Without a bound of its own, a partition of the embedded cluster takes so many rows a second: so few that two cores bear
/// what three partitions take, with all replicas, clients and the report.
pub(super) const PARTITION_RATE: f64 = 1_000.0;
/// The same where something reads: each read is a statement of its own, and costs the machine what dozens of rows of an
/// INSERT do.
pub(super) const PARTITION_RATE_READS: f64 = 150.0;

/// Options of `hotspot`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// A running cluster's frontends, by their PostgreSQL addresses; without it a cluster of three datanodes is started
    /// here for as long as it takes.
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT")]
    pub(super) connect: Vec<String>,
    /// The running cluster's HTTP address, for pictures.
    #[arg(long, default_value = "127.0.0.1:4000", value_name = "HOST:PORT")]
    pub(super) http: String,
    /// Workloads of the catalogue: W6:latest is that, W6 is it with its variants, W6: it alone, all is all; each runs by
    /// itself, under each design where it leaves that open. Without it, user events.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(super) workload: Vec<String>,
    /// Print the workloads, and do nothing.
    #[arg(long)]
    pub(super) list: bool,
    /// Judge what is claimed of key designs, by runs that show it: time first is one hotspot and is named, cures itself
    /// where it may, loads that stay are cut usefully and at once, days and nights cut nothing in vain, and one node's many
    /// lukewarm partitions move. Ends with an error where a claim fails. Eleven minutes.
    #[arg(long, conflicts_with_all = ["workload", "design", "record", "replay", "guide", "rate", "start_partitions"])]
    pub(super) claims: bool,
    /// How keys are made; each runs by itself.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "ts-uid,ts-uid-auto,uid-ts,hash-uid,hash-all,single"
    )]
    pub(super) design: Vec<Design>,
    /// Seconds for each run; twice as many where a table is to cure itself.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..=86_400))]
    pub(super) seconds: u64,
    /// Rows a second that one partition of the cluster that is started here takes at most: 1000 (150 where a workload
    /// reads), unless this or --no-partition-rate says otherwise. Of a running cluster: what its nodes were started with.
    #[arg(long)]
    pub(super) partition_rate: Option<f64>,
    /// Let partitions take what the machine bears.
    #[arg(long, conflicts_with = "partition_rate")]
    pub(super) no_partition_rate: bool,
    /// Rows (or reads) a second; by default what three partitions take.
    #[arg(long)]
    pub(super) rate: Option<f64>,
    /// Rows of an INSERT.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) batch: u32,
    /// Connections; each has one statement in flight.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(super) connections: u32,
    /// Partitions that a table begins with.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(super) start_partitions: u32,
    /// Users (hosts, sensors ...), where the workload leaves that open.
    #[arg(long, default_value_t = 10_000)]
    pub(super) users: u64,
    /// Records of W6 and W7; where they are read they are loaded before the clock starts.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    pub(super) records: u64,
    /// How unevenly they write: 0 for evenly, 0.99 as YCSB does.
    #[arg(long, default_value_t = 0.5)]
    pub(super) zipf: f64,
    /// Writers are behind each other by up to this, milliseconds.
    #[arg(long, default_value_t = 50)]
    pub(super) disorder_ms: u64,
    /// The seed.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Write what is asked of the cluster into a file, to be played again; of one run.
    #[arg(long, value_name = "FILE")]
    pub(super) record: Option<PathBuf>,
    /// Play a file that was recorded: its workload, design, rate and length are in it.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "workload", "design", "seconds", "rate", "start_partitions", "users", "records", "zipf", "disorder_ms",
            "seed", "record"
        ]
    )]
    pub(super) replay: Option<PathBuf>,
    /// Folder for report.html, report.json, and the seconds of each run as JSONL and CSV.
    #[arg(long, default_value = "hotspot-report")]
    pub(super) out: PathBuf,
    /// Folder for a page that walks through the pictures, for who sees them for the first time: README.md and SVGs, as
    /// code hosts show them.
    #[arg(long, value_name = "DIR")]
    pub(super) guide: Option<PathBuf>,
    /// Folder below which the cluster that is started here keeps its data; by default the system's for temporary files.
    #[arg(long)]
    pub(super) data_dir: Option<PathBuf>,
    /// The binary that the cluster is made of; by default this one.
    #[arg(long)]
    pub(super) binary: Option<PathBuf>,
}

impl Options {
    /// Checks what the types do not.
    ///
    /// # Errors
    /// When a rate is none, or no design is named.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let positive = |rate: Option<f64>| rate.is_none_or(|rate| rate.is_finite() && rate > 0.0);
        if !positive(self.rate) || !positive(self.partition_rate) {
            bail!("rates are rows a second, more than 0");
        }
        if self.design.is_empty() {
            bail!("--design names none");
        }
        Ok(())
    }

    /// Rows a second that a partition takes at most, as far as that is known, in runs of which some read or none does.
    pub(super) fn bound(&self, reads: bool) -> Option<f64> {
        match self.partition_rate {
            Some(rate) => Some(rate),
            None if self.no_partition_rate || !self.connect.is_empty() => None,
            None if reads => Some(PARTITION_RATE_READS),
            None => Some(PARTITION_RATE),
        }
    }

    /// A workload's knobs at a rate. What takes longer than a run is made to fit into it: a day is a run, an hour half of
    /// one, and a crowd comes after a third.
    pub(super) fn knobs(&self, design: Design, rate: f64) -> Knobs {
        Knobs {
            design,
            rate,
            entities: self.users.max(1),
            theta: self.zipf,
            disorder_us: self.disorder_ms * 1_000,
            late_share: 0.0,
            partitions: self.start_partitions,
            day_s: self.seconds,
            hour_s: (self.seconds / 2).max(1),
            crowd_s: self.seconds / 3,
            records: self.records,
        }
    }
}
