//! `partita lab query`: the fifteen queries of TSBS against a server, measured.
//!
//! A latency runs from asking (open loop: from when the question was due) until the last byte of the
//! answer has come; the answer is taken apart after the clock. The rows and the sum of all numbers of
//! all runs are told, so that servers can be compared for equality: each is asked the same.

pub(crate) mod answer;
mod asker;
mod text;
mod tsbs;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::bail;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::data::Data;
use crate::ingest::Metering;
use crate::latency::{Latencies, Summary};
use crate::meter::{Meter, own_cpu_s};
use crate::pace::Pace;
use crate::report::{align, mib, progress, say, say_json, short};
use crate::server::{Server, Target};
use answer::{Digest, digest};
use asker::{Asker, dialect_of};
use text::{Dialect, text};
use tsbs::{Query, named};

/// Messages of failed runs that are kept for each query.
const MESSAGES_MAX: usize = 3;

/// Which way questions go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Door {
    /// PostgreSQL's simple protocol.
    Postgres,
    /// The server's own way of HTTP.
    Http,
}

/// Options of `query`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    data: Data,
    /// Which way questions go; by default PostgreSQL's protocol where the server speaks it.
    #[arg(long, value_enum)]
    door: Option<Door>,
    /// The language; by default the server's own.
    #[arg(long, value_enum)]
    dialect: Option<Dialect>,
    /// Queries by name, with commas between; all, light and heavy are several.
    #[arg(long, default_value = "all")]
    query: String,
    /// Measured runs of each query.
    #[arg(long, default_value_t = 10)]
    runs: u64,
    /// Runs of each query before, which are not measured.
    #[arg(long, default_value_t = 1)]
    warmup: u64,
    /// Connections, each with one question in flight.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Questions a second (open loop); without it, each connection asks when it is answered.
    #[arg(long)]
    rate: Option<f64>,
    /// Seed of windows and hosts.
    #[arg(long, default_value_t = 42)]
    query_seed: u64,
    #[command(flatten)]
    metering: Metering,
    /// Print the texts of the first run instead of asking.
    #[arg(long)]
    show: bool,
    /// Print the result as one line of JSON.
    #[arg(long)]
    json: bool,
    /// A name for the run that the result bears.
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

/// What became of the runs of a query.
#[derive(Debug, Serialize)]
struct Result {
    name: &'static str,
    latency: Summary,
    /// Rows and sum of all runs' answers.
    answer: Digest,
    failed: u64,
    messages: Vec<String>,
    server_cpu_s: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    what: &'static str,
    label: String,
    server: &'static str,
    door: String,
    hosts: u32,
    connections: u32,
    runs: u64,
    rate: Option<f64>,
    queries: Vec<Result>,
    client_cpu_s: f64,
    metered: bool,
    server_memory_bytes: u64,
    server_memory_peak_bytes: u64,
}

/// Asks, prints the result.
///
/// # Errors
/// When the server cannot be reached, or could not answer a question.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    if options.rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
        bail!("--rate is questions a second, more than 0");
    }
    let queries = named(&options.query)?;
    if options.show {
        return show(options, &queries);
    }
    let mut askers = Vec::new();
    for _ in 0..options.connections {
        askers.push(Asker::connect(&options.target, options.door()).await?);
    }
    let mut meter =
        Meter::new(options.metering.server_pid.clone(), options.metering.server_pid_tree);
    let cpu_before = own_cpu_s();
    let mut results = Vec::new();
    for query in queries {
        progress(query.name);
        let first = query.question(&options.data, options.query_seed, 0);
        if text(&first, options.dialect()).is_none() {
            continue;
        }
        let result;
        (askers, result) = measure(options, query, askers, &mut meter).await?;
        results.push(result);
    }
    progress("");
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
    };
    if options.json {
        say_json(&report)?
    } else {
        report.print()?
    }
    let failed: u64 = report.queries.iter().map(|result| result.failed).sum();
    if failed > 0 {
        bail!("{failed} questions were not answered");
    }
    Ok(())
}

fn show(options: &Options, queries: &[Query]) -> anyhow::Result<()> {
    for query in queries {
        let question = query.question(&options.data, options.query_seed, options.warmup);
        let text = text(&question, options.dialect());
        say(&format!("-- {}\n{}", query.name, text.as_deref().unwrap_or("-- cannot be asked")))?;
    }
    Ok(())
}

/// Asks a query's questions through all connections.
async fn measure(
    options: &Options,
    query: Query,
    askers: Vec<Asker>,
    meter: &mut Meter,
) -> anyhow::Result<(Vec<Asker>, Result)> {
    let options = Arc::new(options.clone());
    let mut warm = Asked::default();
    for run in 0..options.warmup {
        warm.ask(&options, query, run, &askers[0], None).await;
    }
    let before = meter.read()?;
    let pace = Pace::new(options.rate);
    let next = Arc::new(AtomicU64::new(0));
    let mut workers = JoinSet::new();
    for asker in askers {
        let (options, next) = (Arc::clone(&options), Arc::clone(&next));
        workers.spawn(async move {
            let mut asked = Asked::default();
            loop {
                let run = next.fetch_add(1, Ordering::Relaxed);
                if run >= options.runs {
                    return (asker, asked);
                }
                asked.ask(&options, query, options.warmup + run, &asker, Some((pace, run))).await;
            }
        });
    }
    let (mut askers, mut all) = (Vec::new(), Asked::default());
    while let Some(worker) = workers.join_next().await {
        let (asker, asked) = worker?;
        askers.push(asker);
        all.add(asked);
    }
    let after = meter.read()?;
    let result = Result {
        name: query.name,
        latency: all.latencies.summary(),
        answer: all.digest,
        failed: all.failed,
        messages: all.messages,
        server_cpu_s: after.cpu_s - before.cpu_s,
    };
    Ok((askers, result))
}

/// What a worker asked.
#[derive(Default)]
struct Asked {
    latencies: Latencies,
    digest: Digest,
    failed: u64,
    messages: Vec<String>,
}

impl Asked {
    /// Asks once; with a pace and the number of questions before it, when it is due.
    #[expect(clippy::cast_precision_loss, reason = "a time in the end")]
    async fn ask(
        &mut self,
        options: &Options,
        query: Query,
        run: u64,
        asker: &Asker,
        paced: Option<(Pace, u64)>,
    ) {
        let question = query.question(&options.data, options.query_seed, run);
        let Some(text) = text(&question, options.dialect()) else { return };
        let from = match paced {
            Some((pace, before)) => pace.due(before as f64).await,
            None => tokio::time::Instant::now(),
        };
        let answer = asker.ask(&question, &text).await;
        let latency = from.elapsed();
        let digested = answer.map_err(anyhow::Error::from).and_then(|answer| digest(&answer));
        match digested {
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

    fn add(&mut self, other: Self) {
        self.latencies.add(&other.latencies);
        self.digest.add(other.digest);
        self.failed += other.failed;
        self.messages.extend(other.messages);
        self.messages.truncate(MESSAGES_MAX);
    }
}

impl Report {
    fn print(&self) -> anyhow::Result<()> {
        let head = ["query", "median ms", "p99 ms", "max ms", "rows", "sum", "server CPU s"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        for result in &self.queries {
            lines.push(vec![
                result.name.to_owned(),
                short(result.latency.p50_ms),
                short(result.latency.p99_ms),
                short(result.latency.max_ms),
                result.answer.rows.to_string(),
                format!("{:.3}", result.answer.sum),
                if self.metered { short(result.server_cpu_s) } else { "-".to_owned() },
            ]);
        }
        say(&align(&lines))?;
        if self.metered {
            let (now, peak) = (mib(self.server_memory_bytes), mib(self.server_memory_peak_bytes));
            say(&format!("server memory now {now}, peak {peak}"))?;
        }
        for result in self.queries.iter().filter(|result| result.failed > 0) {
            say(&format!("{}: {} failed", result.name, result.failed))?;
            for message in &result.messages {
                say(&format!("  {message}"))?;
            }
        }
        Ok(())
    }
}
