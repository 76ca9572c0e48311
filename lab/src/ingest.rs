//! `partita lab ingest`: loads a data set into a server and measures it.
//!
//! Batches are encoded before the clock starts, up to a memory budget. The clock runs from the first batch to the
//! last acknowledgement. With `--settle`, the lab also waits for the server's background work (files, compaction),
//! and counts its CPU.

pub(crate) mod background;
mod report;
mod source;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::sync::Mutex;

use crate::cpu::{Generator, TABLE, hosts};
use crate::data::Data;
use crate::door::copy::CopyDoor;
use crate::door::flight::FlightDoor;
use crate::door::http::HttpDoor;
use crate::door::insert::{InsertDoor, Tags};
use crate::door::postgres;
use crate::meter::{Meter, disk, own_cpu_s};
use crate::pace::Pace;
use crate::server::{Server, Target};
use report::Report;
use source::{Maker, Source};
use worker::{Load, Sender, Tally};

/// Protocol for rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Door {
    /// InfluxDB's line protocol over HTTP.
    LineProtocol,
    /// COPY ... FROM STDIN, text; one statement per batch.
    CopyText,
    /// COPY ... FROM STDIN, binary; one statement per batch.
    CopyBinary,
    /// Arrow Flight DoPut.
    Flight,
    /// Single-row INSERT through a prepared statement.
    Insert,
    /// TabSeparated over HTTP, for ClickHouse.
    TabSeparated,
}

/// Options of `ingest`.
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    data: Data,
    /// Protocol for rows.
    #[arg(long, value_enum, default_value = "line-protocol")]
    door: Door,
    /// Rows acknowledged together; always 1 for inserts.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: u32,
    /// Connections; each has one batch in flight.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Total number of rows, instead of those of the span.
    #[arg(long)]
    rows: Option<u64>,
    /// Stop after this time, with as many rows as it takes: 30s, 5m.
    #[arg(long, value_parser = crate::civil::parse_span)]
    duration: Option<Duration>,
    /// Rows per second (open loop); by default each connection sends when the previous batch is answered.
    #[arg(long)]
    rate: Option<f64>,
    /// Drop the table (InfluxDB: the database) first.
    #[arg(long)]
    drop: bool,
    /// Do not create the table. By default it is created, except for line protocol into Partita, which creates it
    /// by itself.
    #[arg(long, conflicts_with = "create")]
    no_create: bool,
    /// Create the table in any case.
    #[arg(long)]
    create: bool,
    /// SQL after CREATE TABLE, such as PARTITION BY HASH (hostname) PARTITIONS 4.
    #[arg(long, default_value = "")]
    table_suffix: String,
    /// MiB of batches encoded before the clock starts; a separate thread encodes the rest.
    #[arg(long, default_value_t = 3_072)]
    prepare_mb: u64,
    #[command(flatten)]
    metering: Metering,
    /// Wait for this time after the last acknowledgement, and measure the server again.
    #[arg(long, value_parser = crate::civil::parse_span)]
    settle: Option<Duration>,
    /// Print a line of JSON each time this number of rows is stored.
    #[arg(long)]
    report_every: Option<u64>,
    /// Print the result as one line of JSON.
    #[arg(long)]
    json: bool,
    /// Label of the run in the result.
    #[arg(long, default_value = "")]
    label: String,
}

/// Measurements of the server.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Metering {
    /// Process of the server, to measure its CPU, memory and bytes written.
    #[arg(long)]
    pub(crate) server_pid: Vec<u32>,
    /// Include the descendants of these processes.
    #[arg(long)]
    pub(crate) server_pid_tree: bool,
    /// Folder of the server, to measure its size on disk.
    #[arg(long)]
    pub(crate) data_dir: Vec<PathBuf>,
}

/// Loads, and prints the result.
///
/// # Errors
/// If the server cannot be reached, or rows were rejected.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    if options.rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
        bail!("--rate must be above 0 rows per second");
    }
    let loaded = load(options).await?;
    let report = Report::of(options, &loaded);
    report.print(options.json)?;
    if loaded.tally.rejected_batches > 0 || loaded.tally.workers_lost > 0 {
        bail!(
            "{} batches ({} rows) were not stored",
            loaded.tally.rejected_batches,
            loaded.tally.rejected_rows
        );
    }
    Ok(())
}

/// Results of a load.
struct Loaded {
    tally: Tally,
    elapsed: Duration,
    encoded_before_s: f64,
    prepared_rows: u64,
    beside: source::Beside,
    client_cpu_s: f64,
    server: report::ServerUsage,
}

async fn load(options: &Options) -> anyhow::Result<Loaded> {
    make_table(options).await?;
    // The data set, and the host tags that single-row inserts need.
    let rows = match (options.rows, options.duration) {
        (Some(rows), _) => Some(rows),
        (None, Some(_)) => Some(u64::MAX),
        (None, None) => None,
    };
    let spec = options.data.spec(rows);
    let hosts = hosts(&spec);
    let batch = if options.door == Door::Insert { 1 } else { options.batch as usize };
    let tags: Tags = Arc::new(match options.door {
        Door::Insert => {
            hosts.iter().map(|host| host.tags().map(|tag| tag.into_owned().into())).collect()
        }
        _ => Vec::new(),
    });
    // Encoding before the clock starts is accounted separately.
    let maker = Maker::new(options.door, Generator::new(spec), &hosts, batch);
    drop(hosts);
    let budget = options.prepare_mb << 20;
    let cpu_before = own_cpu_s();
    let source = tokio::task::spawn_blocking(move || Source::prepare(maker, budget)).await??;
    let encoded_before_s = own_cpu_s() - cpu_before;

    let mut senders = Vec::new();
    for _ in 0..options.connections {
        senders.push(connect(&options.target, options.door, &tags).await?);
    }
    // The server is metered from here on.
    let mut meter =
        Meter::new(options.metering.server_pid.clone(), options.metering.server_pid_tree);
    let usage_before = meter.read()?;
    let cpu_before = own_cpu_s();
    let began = Instant::now();
    let load = Arc::new(Load {
        pace: Pace::new(options.rate),
        ends: options.duration.map(|duration| began + duration),
        stopped: AtomicBool::new(false),
        began,
        prepared_rows: source.prepared_rows,
        source,
        report_every: options.report_every,
        meter: Mutex::new(meter),
        before: usage_before,
        stored: AtomicU64::new(0),
    });
    let tally = worker::run(&load, senders).await?;
    let elapsed = began.elapsed();
    let client_cpu_s = own_cpu_s() - cpu_before;
    let encoded_beside = load.source.finish().await?;
    // The settled usage includes the server's background work.
    let mut server = report::ServerUsage::new(usage_before, load.usage().await?);
    if let Some(settle) = options.settle {
        tokio::time::sleep(settle).await;
        server.settled(load.usage().await?);
    }
    server.disk = disk(&options.metering.data_dir);
    let prepared_rows = load.prepared_rows;
    Ok(Loaded {
        tally,
        elapsed,
        encoded_before_s,
        prepared_rows,
        beside: encoded_beside,
        client_cpu_s,
        server,
    })
}

async fn make_table(options: &Options) -> anyhow::Result<()> {
    if options.drop {
        options.target.drop_table().await.context("cannot drop the table")?;
    }
    let by_rows = options.door == Door::LineProtocol && options.target.server == Server::Partita;
    if options.create || !(options.no_create || by_rows) {
        let suffix = &options.table_suffix;
        options.target.create_table(suffix).await.context("cannot make the table")?;
    }
    Ok(())
}

async fn connect(target: &Target, door: Door, tags: &Tags) -> anyhow::Result<Sender> {
    let database = || postgres::connect(&target.pg, &target.db);
    let http = || HttpDoor::new(&target.url);
    Ok(match door {
        Door::LineProtocol => Sender::Http(http(), target.line_path()?),
        Door::TabSeparated => Sender::Http(http(), target.tab_separated_path()?),
        Door::CopyText => Sender::Copy(CopyDoor::new(database().await?, TABLE, false)),
        Door::CopyBinary => Sender::Copy(CopyDoor::new(database().await?, TABLE, true)),
        Door::Flight => {
            let path = vec![target.db.clone(), TABLE.to_owned()];
            Sender::Flight(FlightDoor::connect(&target.url, path).await?)
        }
        Door::Insert => {
            let door = InsertDoor::new(database().await?, TABLE, Arc::clone(tags)).await?;
            Sender::Insert(Box::new(door))
        }
    })
}
