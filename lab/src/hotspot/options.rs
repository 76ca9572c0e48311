//! Options of `partita lab hotspot`.

use std::path::PathBuf;

use anyhow::bail;
use partita_hotspot::workload::{Design, Knobs};

/// Default maximum rows per second of a partition in the embedded cluster: low enough for two cores to serve three
/// such partitions with all replicas, clients and the report.
pub(super) const PARTITION_RATE: f64 = 1_000.0;
/// The same for workloads with reads: each read is a statement of its own, and costs the machine as much as dozens
/// of inserted rows.
pub(super) const PARTITION_RATE_READS: f64 = 150.0;

/// Options of `hotspot`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// PostgreSQL addresses of a running cluster's frontends; by default a cluster of three datanodes is started
    /// for the duration of the run.
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT")]
    pub(super) connect: Vec<String>,
    /// HTTP address of the running cluster, for heatmaps.
    #[arg(long, default_value = "127.0.0.1:4000", value_name = "HOST:PORT")]
    pub(super) http: String,
    /// Workloads of the catalogue: W6:latest selects that one, W6 it with its variants, W6: it alone, all selects
    /// all; each runs separately, under each design if it leaves that open. By default, user events.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(super) workload: Vec<String>,
    /// List the workloads and exit.
    #[arg(long)]
    pub(super) list: bool,
    /// Judge the claims about key designs by runs that show them: a key with time first is one hotspot and is
    /// reported, and repartitions itself if allowed; static loads are split usefully and at once; daily cycles
    /// cause no useless splits; many lukewarm partitions on one node are moved. Ends with an error if a claim
    /// fails. Takes eleven minutes.
    #[arg(long, conflicts_with_all = ["workload", "design", "record", "replay", "guide", "rate", "start_partitions"])]
    pub(super) claims: bool,
    /// Key designs; each runs separately.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "ts-uid,ts-uid-auto,uid-ts,hash-uid,hash-all,single"
    )]
    pub(super) design: Vec<Design>,
    /// Seconds for each run; twice as many if a table is to repartition itself.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..=86_400))]
    pub(super) seconds: u64,
    /// Maximum rows per second of one partition in the cluster started here; by default 1000 (150 if a workload
    /// reads). For a running cluster: the value that its nodes were started with.
    #[arg(long)]
    pub(super) partition_rate: Option<f64>,
    /// Do not limit the rate of partitions.
    #[arg(long, conflicts_with = "partition_rate")]
    pub(super) no_partition_rate: bool,
    /// Rows (or reads) per second; by default the maximum of three partitions.
    #[arg(long)]
    pub(super) rate: Option<f64>,
    /// Rows per INSERT.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) batch: u32,
    /// Connections; each has one statement in flight.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(super) connections: u32,
    /// Initial partitions of a table.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(super) start_partitions: u32,
    /// Number of users (hosts, sensors ...), if the workload leaves it open.
    #[arg(long, default_value_t = 10_000)]
    pub(super) users: u64,
    /// Records of W6 and W7; if they are read, they are loaded before the clock starts.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    pub(super) records: u64,
    /// Zipf exponent of the users' activity: 0 is even, 0.99 is YCSB's.
    #[arg(long, default_value_t = 0.5)]
    pub(super) zipf: f64,
    /// Maximum delay between writers, in milliseconds.
    #[arg(long, default_value_t = 50)]
    pub(super) disorder_ms: u64,
    /// Seed of all pseudo-random choices.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Record the operations of one run to this file, for replay.
    #[arg(long, value_name = "FILE")]
    pub(super) record: Option<PathBuf>,
    /// Replay a recorded file: it contains its workload, design, rate and length.
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
    /// Folder for a page that explains the heatmaps to first-time readers: README.md and SVGs, as code hosts show
    /// them.
    #[arg(long, value_name = "DIR")]
    pub(super) guide: Option<PathBuf>,
    /// Folder below which the cluster started here keeps its data; by default the system's folder for temporary
    /// files.
    #[arg(long)]
    pub(super) data_dir: Option<PathBuf>,
    /// Binary for the cluster's processes; by default this one.
    #[arg(long)]
    pub(super) binary: Option<PathBuf>,
}

impl Options {
    /// Checks the options beyond their types.
    ///
    /// # Errors
    /// If a rate is invalid, or no design is given.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let positive = |rate: Option<f64>| rate.is_none_or(|rate| rate.is_finite() && rate > 0.0);
        if !positive(self.rate) || !positive(self.partition_rate) {
            bail!("rates must be above 0 rows per second");
        }
        if self.design.is_empty() {
            bail!("--design must name at least one design");
        }
        Ok(())
    }

    /// Maximum rows per second of a partition, if known; `reads`: some of the runs read.
    pub(super) fn bound(&self, reads: bool) -> Option<f64> {
        match self.partition_rate {
            Some(rate) => Some(rate),
            None if self.no_partition_rate || !self.connect.is_empty() => None,
            None if reads => Some(PARTITION_RATE_READS),
            None => Some(PARTITION_RATE),
        }
    }

    /// Parameters of a workload at a rate. Long periods are shortened to fit into a run: a day lasts as long as a
    /// run, an hour half of it, and a crowd comes after a third.
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
