//! `partita lab hotspot`: the same rows under different key designs, on a real cluster, beside each other.
//!
//! ```text
//!   workload (lab/hotspot) ─▶ drive: INSERTs in an open loop ─▶ a cluster: embedded, or any
//!                             watch: what the store says each second ◀─┘
//!                             ask: why, what would help, the picture, what queries touch
//!   the same workload ──────▶ twin: the virtual cluster           ─▶ report: terminal, html, json
//! ```
//!
//! Invariants: each design runs by itself, in a table of its own, and on the same rows; what the store cannot do is said
//! in the report and not shown otherwise.

mod ask;
mod drive;
mod live;
mod table;
mod twin;
mod watch;
mod written;

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use partita_hotspot::metrics::{Second, Summary, Told};
use partita_hotspot::report::{Shown, pictures};
use partita_hotspot::workload::{Design, Knobs, Rows, TableLoad, find};
use tokio::time::Instant;
use tokio_postgres::Client;

use crate::door::http::HttpDoor;
use crate::door::postgres::{self, connection, rows};
use crate::embedded::{Embedded, NODES};
use crate::stop::stopped;
use drive::{Drive, Plan};
use live::Live;
use watch::Watch;

/// Without a bound of its own, a partition of the embedded cluster takes so many rows a second: so few that two cores bear
/// what three partitions take, with all replicas, clients and the report.
const PARTITION_RATE: f64 = 1_000.0;
/// Partitions' worth of rows that are written: one partition cannot take them, and eight can.
const LANES: f64 = 3.0;
/// Before the first row, so that all writers are there.
const LEAD: Duration = Duration::from_millis(500);
/// Seconds between pictures in the terminal.
const PICTURE_EVERY_S: u64 = 2;

/// Options of `hotspot`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// A running cluster's frontends, by their PostgreSQL addresses; without it a cluster of three datanodes is started
    /// here for as long as it takes.
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT")]
    connect: Vec<String>,
    /// The running cluster's HTTP address, for pictures.
    #[arg(long, default_value = "127.0.0.1:4000", value_name = "HOST:PORT")]
    http: String,
    /// How keys are made; each runs by itself.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "ts-uid,uid-ts,hash-uid,hash-all,single"
    )]
    design: Vec<Design>,
    /// Seconds for each design.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(2..=86_400))]
    seconds: u64,
    /// Rows a second that one partition of the cluster that is started here takes at most: 1000, unless this or
    /// --no-partition-rate says otherwise. Of a running cluster: what its nodes were started with.
    #[arg(long)]
    partition_rate: Option<f64>,
    /// Let partitions take what the machine bears.
    #[arg(long, conflicts_with = "partition_rate")]
    no_partition_rate: bool,
    /// Rows a second; by default what three partitions take.
    #[arg(long)]
    rate: Option<f64>,
    /// Rows of an INSERT.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// Connections; each has one INSERT in flight.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    connections: u32,
    /// Partitions that a table begins with.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    start_partitions: u32,
    /// Users.
    #[arg(long, default_value_t = 10_000)]
    users: u64,
    /// How unevenly they write: 0 for evenly, 0.99 as YCSB does.
    #[arg(long, default_value_t = 0.5)]
    zipf: f64,
    /// Writers are behind each other by up to this, milliseconds.
    #[arg(long, default_value_t = 50)]
    disorder_ms: u64,
    /// The seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for report.html, report.json, and the seconds of each run as JSONL and CSV.
    #[arg(long, default_value = "hotspot-report")]
    out: PathBuf,
    /// Folder below which the cluster that is started here keeps its data; by default the system's for temporary files.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// The binary that the cluster is made of; by default this one.
    #[arg(long)]
    binary: Option<PathBuf>,
}

impl Options {
    fn check(&self) -> anyhow::Result<()> {
        let positive = |rate: Option<f64>| rate.is_none_or(|rate| rate.is_finite() && rate > 0.0);
        if !positive(self.rate) || !positive(self.partition_rate) {
            bail!("rates are rows a second, more than 0");
        }
        if self.design.is_empty() {
            bail!("--design names none");
        }
        Ok(())
    }

    /// Rows a second that a partition takes at most, as far as that is known.
    fn bound(&self) -> Option<f64> {
        match self.partition_rate {
            Some(rate) => Some(rate),
            None if self.no_partition_rate || !self.connect.is_empty() => None,
            None => Some(PARTITION_RATE),
        }
    }

    fn rows_per_s(&self) -> f64 {
        self.rate.unwrap_or(LANES * self.bound().unwrap_or(PARTITION_RATE))
    }

    fn load(&self, design: Design) -> anyhow::Result<TableLoad> {
        let knobs = Knobs {
            design,
            rate: self.rows_per_s(),
            entities: self.users.max(1),
            theta: self.zipf,
            disorder_us: self.disorder_ms * 1_000,
            late_share: 0.0,
            partitions: self.start_partitions,
            day_s: 86_400,
        };
        let workload = find("W1").context("the workload is there")?;
        workload.tables(&knobs).into_iter().next().context("it has a table")
    }
}

/// Where to write to.
struct Target {
    /// Connection strings.
    servers: Vec<String>,
    http: HttpDoor,
    embedded: Option<Embedded>,
}

impl Target {
    async fn of(options: &Options, live: &mut Live) -> anyhow::Result<Self> {
        if options.connect.is_empty() {
            live.say(&format!("starting a cluster of {NODES} datanodes on this machine"));
            let binary = match &options.binary {
                Some(binary) => binary.clone(),
                None => std::env::current_exe().context("this binary is not to be found")?,
            };
            let below = options.data_dir.clone().unwrap_or_else(std::env::temp_dir);
            let embedded = Embedded::start(&binary, &below, options.bound()).await?;
            let servers = vec![connection(&embedded.postgres)?];
            let http = HttpDoor::new(&format!("http://{}", embedded.http));
            return Ok(Self { servers, http, embedded: Some(embedded) });
        }
        let servers: anyhow::Result<Vec<String>> =
            options.connect.iter().map(|address| connection(address)).collect();
        let http = HttpDoor::new(&format!("http://{}", options.http));
        Ok(Self { servers: servers?, http, embedded: None })
    }

    async fn client(&self) -> anyhow::Result<Client> {
        postgres::connect(&self.servers[0], "public").await
    }

    fn datanodes(&self) -> Vec<u32> {
        self.embedded.as_ref().map(Embedded::datanodes).unwrap_or_default()
    }

    fn check(&mut self) -> anyhow::Result<()> {
        self.embedded.as_mut().map_or(Ok(()), Embedded::check)
    }
}

/// A run that is over.
struct Run {
    shown: Shown,
    splits_at: Vec<u64>,
    twin: Option<(Summary, Vec<u64>)>,
    design: Design,
}

/// Runs all designs, and reports.
///
/// # Errors
/// When the cluster cannot be started or reached, or refuses the table or its rows for good.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    options.check()?;
    // Before anything runs for minutes: is there a place for the report?
    std::fs::create_dir_all(&options.out)
        .with_context(|| format!("cannot make {}", options.out.display()))?;
    tokio::select! {
        done = Box::pin(all(options)) => done,
        stopped = stopped() => {
            stopped?;
            bail!("stopped; nothing was reported");
        }
    }
}

async fn all(options: &Options) -> anyhow::Result<()> {
    let mut live = Live::new();
    let mut target = Target::of(options, &mut live).await?;
    let mut runs = Vec::new();
    for design in &options.design {
        let ran = Box::pin(one(options, *design, &mut target, &mut live)).await;
        // A process that ended says more than the connection that broke.
        target.check()?;
        let mut run = ran.with_context(|| format!("the run of {} failed", design.name()))?;
        if let Some(bound) = options.bound() {
            let load = options.load(*design)?;
            let (seconds, seed) = (options.seconds, options.seed);
            let computed = move || twin::run(load, NODES, bound, seconds, seed);
            run.twin = Some(tokio::task::spawn_blocking(computed).await?);
        }
        runs.push(run);
    }
    drop(target);
    written::write(options, &runs)
}

fn now_us() -> anyhow::Result<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros())?)
}

/// Runs one design.
async fn one(
    options: &Options,
    design: Design,
    target: &mut Target,
    live: &mut Live,
) -> anyhow::Result<Run> {
    let (load, table) = (options.load(design)?, table::name(design));
    let client = target.client().await?;
    let lead_us = i64::try_from(LEAD.as_micros())?;
    let created = table::statement(&table, &load, design, now_us()? + lead_us);
    for text in [format!("DROP TABLE IF EXISTS {table}"), created.clone()] {
        let done = client.batch_execute(&text).await;
        done.map_err(|error| anyhow::anyhow!("{}: {text}", postgres::failure(&error).message))?;
    }
    let mut watch = Watch::new(target.client().await?, &table, target.datanodes()).await?;
    let begin = Instant::now() + LEAD;
    let plan = Plan {
        table: table.clone(),
        load: load.clone(),
        seed: options.seed,
        batch: options.batch as usize,
        servers: target.servers.clone(),
        connections: options.connections as usize,
        begin_us: now_us()? + lead_us,
        seconds: options.seconds,
    };
    let drive = Drive::start(plan, begin).await?;
    let mut map = None;
    tokio::time::sleep_until(begin).await;
    watch.begin();
    for second in 1..=options.seconds {
        tokio::time::sleep_until(begin + Duration::from_secs(second)).await;
        let offered = load.offered((second - 1) * 1_000_000);
        watch.second(second, offered, &drive.counts).await;
        if live.wants_picture() && second.is_multiple_of(PICTURE_EVERY_S) {
            map = ask::picture(&target.http, &table, options.seconds).await.or(map);
        }
        if let Some(line) = watch.seconds.last() {
            live.second(design.name(), options.seconds, line, map.as_ref());
        }
        if let Some(failure) = drive.counts.failure() {
            bail!("{failure}");
        }
        target.check()?;
    }
    // While what was sampled is fresh.
    let explained = ask::explain(&client, &table).await;
    let counts = drive.finish().await;
    let map = ask::picture(&target.http, &table, options.seconds + 5).await;
    let users: Vec<i64> = Rows::of(&load, options.seed ^ 1)
        .map(|rows| rows.take(64).map(|row| row.entity).collect())
        .unwrap_or_default();
    let asked = ask::fan_out(&client, &table, &users, now_us()?).await;
    let found = rows(&client, &format!("SELECT count(*) FROM {table}")).await;
    let found = found.ok().and_then(|rows| rows.first()?.first()?.clone());
    let mut findings = explained.findings;
    findings.extend(counts.messages().into_iter().map(|text| format!("turned away: {text}")));
    if let Some((_, times)) = &asked {
        let by_user = format!("a user's rows were read in {:.0} ms (median)", times[0]);
        findings.push(by_user);
    }
    let told = Told {
        policy: "partita",
        measured: true,
        t_detect_s: watch.first.hot_s,
        t_verdict_s: watch.first.verdict_s,
        verdicts: watch.first.classes.clone(),
        load_splits_after_moving: watch.first.load_splits_after_moving,
        fan_out: asked.map(|(fan_out, _)| fan_out),
        ..Told::default()
    };
    let summary = Summary::of_seconds(&watch.seconds, told);
    let whole = watch.all.summary();
    let shown = Shown {
        name: design.name().to_owned(),
        about: table::about(design).to_owned(),
        note: format!(
            "{} rows were acknowledged, the table has {}. Latency of an INSERT of {} rows over the whole run, from when it was due: p50 {:.0} ms, p99 {:.0} ms, max {:.0} ms. {created}",
            counts.stored(),
            found.as_deref().unwrap_or("an unknown number"),
            options.batch,
            whole.p50_ms,
            whole.p99_ms,
            whole.max_ms
        ),
        pictures: map.as_ref().map(pictures),
        findings,
        advice: explained.advice,
        seconds: watch.seconds,
        summary,
    };
    if target.embedded.is_some() {
        // Its partitions are not to cost the next run anything; a run is not lost for it.
        client.batch_execute(&format!("DROP TABLE IF EXISTS {table}")).await.ok();
    }
    Ok(Run { shown, splits_at: watch.first.splits_at, twin: None, design })
}

/// The last second of each run, for a line of its own.
fn last(run: &Run) -> Option<&Second> {
    run.shown.seconds.last()
}
