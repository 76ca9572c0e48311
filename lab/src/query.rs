//! `partita lab query`: runs the fifteen queries of TSBS on a server and measures them.
//!
//! A latency runs from sending the question (open loop: from when it was due) until the last byte of the answer has
//! arrived; the answer is parsed afterwards. The numbers of rows and the sums of all numbers are reported, so that
//! answers of servers can be compared: each gets the same questions.
//!
//! ```text
//!   questions ──┬── the server, alone                              ──┐
//!               ├── plain DataFusion, in turns with it (--yardstick) ├── report
//!               └── the server, while rows come (--while-ingesting) ─┘
//! ```

pub(crate) mod answer;
mod asker;
mod report;
mod text;
mod tsbs;
mod yardstick;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::bail;
use tokio::task::JoinSet;

use crate::data::Data;
use crate::ingest::Metering;
use crate::ingest::background::Background;
use crate::latency::Latencies;
use crate::meter::{Meter, own_cpu_s};
use crate::pace::Pace;
use crate::report::{progress, say};
use crate::server::{Server, Target};
use answer::{Answer, Digest, digest};
use asker::{Asker, dialect_of};
use report::{Report, Reports, Result};
use text::{Dialect, text};
use tsbs::{Query, Question, named};
use yardstick::{Yardstick, YardstickOptions};

/// Maximum messages of failed runs kept for each query.
const MESSAGES_MAX: usize = 3;
/// Time between the start of the background load and the first question.
const LEAD: Duration = Duration::from_secs(2);

/// Protocol for queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Door {
    /// PostgreSQL's simple protocol.
    Postgres,
    /// The server's own HTTP interface.
    Http,
}

/// Options of `query`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    data: Data,
    /// Protocol for queries; by default PostgreSQL's if the server supports it.
    #[arg(long, value_enum)]
    door: Option<Door>,
    /// Query language; by default the server's own.
    #[arg(long, value_enum)]
    dialect: Option<Dialect>,
    /// Queries by name, separated by commas; all, light and heavy select several.
    #[arg(long, default_value = "all")]
    query: String,
    /// Measured runs of each query.
    #[arg(long, default_value_t = 10)]
    runs: u64,
    /// Unmeasured runs of each query before that.
    #[arg(long, default_value_t = 1)]
    warmup: u64,
    /// Connections; each has one query in flight.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Queries per second (open loop); by default each connection sends a query when the previous one has ended.
    #[arg(long)]
    rate: Option<f64>,
    /// Seed of time windows and hosts.
    #[arg(long, default_value_t = 42)]
    query_seed: u64,
    #[command(flatten)]
    yardstick: YardstickOptions,
    /// Then repeat all queries while this many rows per second are loaded (open loop), which continue the data set.
    #[arg(long, value_name = "ROWS_PER_SECOND")]
    while_ingesting: Option<f64>,
    #[command(flatten)]
    metering: Metering,
    /// Print the texts of the first run instead of running them.
    #[arg(long)]
    show: bool,
    /// Print the result as one line of JSON.
    #[arg(long)]
    json: bool,
    /// Label of the run in the result.
    #[arg(long, default_value = "")]
    label: String,
}

impl Options {
    fn dialect(&self) -> Dialect {
        self.dialect.unwrap_or_else(|| dialect_of(self.target.server))
    }

    fn door(&self) -> Door {
        self.door.unwrap_or(match self.target.server {
            Server::Partita | Server::PostgreSql => Door::Postgres,
            Server::Influxdb | Server::VictoriaMetrics | Server::ClickHouse => Door::Http,
        })
    }
}

/// Runs the queries, and prints the result.
///
/// # Errors
/// If the server cannot be reached, or failed to answer a question.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    let is_rate = |rate: Option<f64>| rate.is_none_or(|rate| rate.is_finite() && rate > 0.0);
    if !is_rate(options.rate) {
        bail!("--rate must be above 0 questions per second");
    }
    if !is_rate(options.while_ingesting) {
        bail!("--while-ingesting must be above 0 rows per second");
    }
    if options.yardstick.is_wanted() && (options.connections > 1 || options.rate.is_some()) {
        bail!("--yardstick needs a single connection and no --rate");
    }
    let queries = named(&options.query)?;
    if options.show {
        return show(options, &queries);
    }
    // First the server without other load, alternating with the yardstick.
    let yardstick = Yardstick::open(&options.yardstick, &options.data).await?;
    let (server_report, yardstick_report) = round(options, &queries, yardstick).await?;
    // Then the server while rows are loaded.
    let busy = match options.while_ingesting {
        None => None,
        Some(rate) => {
            let background = Background::start(&options.target, &options.data, rate).await?;
            tokio::time::sleep(LEAD).await;
            let (busy, _) = round(options, &queries, None).await?;
            let ingested = Some(background.stop().await?);
            let label = format!("{} while ingesting", busy.label).trim_start().to_owned();
            Some(Report { label, ingested, ..busy })
        }
    };
    let reports = Reports { alone: server_report, yardstick: yardstick_report, busy };
    reports.print(options.json)?;
    let failed = reports.failed();
    if failed > 0 {
        bail!("{failed} questions were not answered");
    }
    Ok(())
}

/// Runs all queries; returns the report of the server, and that of the yardstick.
async fn round(
    options: &Options,
    queries: &[Query],
    yardstick: Option<Yardstick>,
) -> anyhow::Result<(Report, Option<Report>)> {
    let yardstick = yardstick.map(Arc::new);
    let mut askers = Vec::new();
    for _ in 0..options.connections {
        askers.push(Asker::connect(&options.target, options.door()).await?);
    }
    // Query by query, on all connections; a query that the language lacks is left out.
    let mut meter =
        Meter::new(options.metering.server_pid.clone(), options.metering.server_pid_tree);
    let cpu_before = own_cpu_s();
    let (mut results, mut yardstick_results) = (Vec::new(), Vec::new());
    for query in queries {
        progress(query.name);
        let first = query.question(&options.data, options.query_seed, 0);
        if text(&first, options.dialect()).is_none() {
            continue;
        }
        let measured = measure(options, *query, askers, yardstick.as_ref(), &mut meter).await?;
        askers = measured.askers;
        results.push(measured.server);
        yardstick_results.push(measured.yardstick);
    }
    progress("");
    // The report of the server, and one of the yardstick with the same parameters.
    let usage = meter.read()?;
    let door = clap::ValueEnum::to_possible_value(&options.door());
    let report = Report {
        what: "query",
        label: options.label.clone(),
        server: options.target.server.name(),
        door: door.map_or_else(String::new, |value| value.get_name().to_owned()),
        hosts: options.data.hosts,
        connections: options.connections,
        runs: options.runs,
        rate: options.rate,
        queries: results,
        client_cpu_s: own_cpu_s() - cpu_before,
        metered: !meter.is_idle(),
        server_memory_bytes: usage.memory_bytes,
        server_memory_peak_bytes: usage.memory_peak_bytes,
        ingested: None,
    };
    let yardstick_report = yardstick.map(|_| Report {
        server: "datafusion",
        door: "in-process".to_owned(),
        queries: yardstick_results,
        // The yardstick runs within the client.
        metered: false,
        server_memory_bytes: 0,
        server_memory_peak_bytes: 0,
        ..report.clone()
    });
    Ok((report, yardstick_report))
}

fn show(options: &Options, queries: &[Query]) -> anyhow::Result<()> {
    for query in queries {
        let question = query.question(&options.data, options.query_seed, options.warmup);
        let text = text(&question, options.dialect());
        say(&format!(
            "-- {}\n{}",
            query.name,
            text.as_deref().unwrap_or("-- not expressible in this language")
        ))?;
    }
    Ok(())
}

/// Measurements of one query.
struct Measured {
    askers: Vec<Asker>,
    server: Result,
    /// The same for the yardstick; empty without one.
    yardstick: Result,
}

/// Runs a query's questions through all connections; the yardstick alternates with the first of them.
async fn measure(
    options: &Options,
    query: Query,
    askers: Vec<Asker>,
    yardstick: Option<&Arc<Yardstick>>,
    meter: &mut Meter,
) -> anyhow::Result<Measured> {
    let options = Arc::new(options.clone());
    // Unmeasured runs fill the caches.
    let (mut warm, mut warm_yardstick) = (Asked::default(), Asked::default());
    for run in 0..options.warmup {
        warm.ask(&options, query, run, &askers[0], None).await;
        if let Some(yardstick) = yardstick {
            warm_yardstick.ask_yardstick(&options, query, run, yardstick).await;
        }
    }
    // Measured runs: each worker takes the number of the next run.
    let usage_before = meter.read()?;
    let pace = Pace::new(options.rate);
    let next = Arc::new(AtomicU64::new(0));
    let mut workers = JoinSet::new();
    for asker in askers {
        let (options, next) = (Arc::clone(&options), Arc::clone(&next));
        let yardstick = yardstick.cloned();
        workers.spawn(async move {
            let (mut by_server, mut by_yardstick) = (Asked::default(), Asked::default());
            loop {
                let run = next.fetch_add(1, Ordering::Relaxed);
                if run >= options.runs {
                    return (asker, by_server, by_yardstick);
                }
                let number = options.warmup + run;
                // The second of the two finds the caches as the first left them, so they alternate in that, too.
                let second = run % 2 == 1;
                if second && let Some(yardstick) = &yardstick {
                    by_yardstick.ask_yardstick(&options, query, number, yardstick).await;
                }
                by_server.ask(&options, query, number, &asker, Some((pace, run))).await;
                if !second && let Some(yardstick) = &yardstick {
                    by_yardstick.ask_yardstick(&options, query, number, yardstick).await;
                }
            }
        });
    }
    let (mut askers, mut server_total, mut yardstick_total) =
        (Vec::new(), Asked::default(), Asked::default());
    while let Some(worker) = workers.join_next().await {
        let (asker, by_server, by_yardstick) = worker?;
        askers.push(asker);
        server_total.add(by_server);
        yardstick_total.add(by_yardstick);
    }
    let usage_after = meter.read()?;
    Ok(Measured {
        askers,
        server: server_total.result(query, usage_after.cpu_s - usage_before.cpu_s),
        yardstick: yardstick_total.result(query, 0.0),
    })
}

/// Results of a worker.
#[derive(Default)]
struct Asked {
    latencies: Latencies,
    digest: Digest,
    failed: u64,
    messages: Vec<String>,
}

impl Asked {
    /// Runs one question; with a pace and the number of questions before it, when it is due.
    #[expect(clippy::cast_precision_loss, reason = "a time in the end")]
    async fn ask(
        &mut self,
        options: &Options,
        query: Query,
        run: u64,
        asker: &Asker,
        paced: Option<(Pace, u64)>,
    ) {
        let Some((question, text)) = asked(options, query, run, options.dialect()) else { return };
        let start = match paced {
            Some((pace, questions_before)) => pace.due(questions_before as f64).await,
            None => tokio::time::Instant::now(),
        };
        let answer = asker.ask(&question, &text).await;
        let latency = start.elapsed();
        self.take(latency, answer.map_err(anyhow::Error::from));
    }

    /// Runs one question on the yardstick.
    async fn ask_yardstick(
        &mut self,
        options: &Options,
        query: Query,
        run: u64,
        yardstick: &Yardstick,
    ) {
        let Some((_, text)) = asked(options, query, run, Dialect::Sql) else { return };
        let start = tokio::time::Instant::now();
        let answer = yardstick.ask(&text).await;
        let latency = start.elapsed();
        self.take(latency, answer);
    }

    fn take(&mut self, latency: Duration, answer: anyhow::Result<Answer>) {
        match answer.and_then(|answer| digest(&answer)) {
            Ok(digest) => {
                self.latencies.record(latency);
                self.digest.add(digest);
            }
            Err(error) => {
                self.failed += 1;
                self.messages.push(format!("{error:#}"));
                self.messages.truncate(MESSAGES_MAX);
            }
        }
    }

    fn result(self, query: Query, server_cpu_s: f64) -> Result {
        Result {
            name: query.name,
            latency: self.latencies.summary(),
            answer: self.digest,
            failed: self.failed,
            messages: self.messages,
            server_cpu_s,
        }
    }

    fn add(&mut self, results: Self) {
        self.latencies.add(&results.latencies);
        self.digest.add(results.digest);
        self.failed += results.failed;
        self.messages.extend(results.messages);
        self.messages.truncate(MESSAGES_MAX);
    }
}

/// Question of a run, and its text in a language.
fn asked(
    options: &Options,
    query: Query,
    run: u64,
    dialect: Dialect,
) -> Option<(Question, String)> {
    let question = query.question(&options.data, options.query_seed, run);
    let text = text(&question, dialect)?;
    Some((question, text))
}
