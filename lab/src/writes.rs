//! `partita lab writes`: small durable writes by many concurrent clients, each waiting for its answer: the
//! throughput of a replicated log. Against Partita, PostgreSQL, or etcd with its own protocol.
//!
//! Closed loop: a client writes the next row when the previous one is acknowledged. Every row has a key of its own.
//! Clients are distributed over the addresses in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use prost::Message;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_postgres::{Client, Statement};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use crate::door::postgres;
use crate::latency::{Latencies, Summary};
use crate::random::Random;
use crate::report::{align, say, say_json, short};

/// The written table.
const TABLE: &str = "lab_writes";
/// Maximum messages of failed writes that are reported.
const MESSAGES_MAX: usize = 3;

/// Options of `writes`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// PostgreSQL connection string of a server; may be given several times.
    #[arg(long, required_unless_present = "etcd", conflicts_with = "etcd")]
    postgres: Vec<String>,
    /// etcd address, `host:port`; may be given several times.
    #[arg(long)]
    etcd: Vec<String>,
    /// Number of concurrent clients.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,
    /// Measured seconds, after a warm-up of a tenth of them.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Bytes of each row's value.
    #[arg(long, default_value_t = 256)]
    bytes: usize,
    /// Number of partitions of the table, by hash (Partita only; PostgreSQL gets a plain table).
    #[arg(long, default_value_t = 1)]
    partitions: u32,
    /// Create a plain table, for servers other than Partita.
    #[arg(long)]
    plain: bool,
    /// Print the result as one line of JSON.
    #[arg(long)]
    json: bool,
}

/// Result of the run.
#[derive(Clone, Debug, Serialize)]
struct Report {
    server: &'static str,
    clients: u32,
    partitions: u32,
    bytes: usize,
    seconds: f64,
    writes: u64,
    per_second: f64,
    failed: u64,
    messages: Vec<String>,
    latency: Summary,
}

/// etcd's `etcdserverpb.PutRequest`, with the two fields that are used.
#[derive(Clone, PartialEq, Message)]
struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// The response to it; its fields are not used.
#[derive(Clone, PartialEq, Message)]
struct PutResponse {}

/// Connection of one client.
enum Writer {
    Postgres { client: Client, insert: Statement },
    Etcd(tonic::client::Grpc<Channel>),
}

impl Writer {
    async fn postgres(address: &str) -> anyhow::Result<Self> {
        let client = postgres::connect(address, "public").await?;
        let text = format!("INSERT INTO {TABLE} (id, value) VALUES ($1, $2)");
        let insert = client.prepare(&text).await.context("cannot prepare the INSERT")?;
        Ok(Self::Postgres { client, insert })
    }

    async fn etcd(address: &str) -> anyhow::Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true);
        let channel =
            endpoint.connect().await.with_context(|| format!("cannot reach {address}"))?;
        Ok(Self::Etcd(tonic::client::Grpc::new(channel)))
    }

    async fn write(&mut self, id: i64, value: &str) -> Result<(), String> {
        match self {
            Self::Postgres { client, insert } => client
                .execute(insert, &[&id, &value])
                .await
                .map(drop)
                .map_err(|error| postgres::failure(&error).message),
            Self::Etcd(grpc) => {
                grpc.ready().await.map_err(|error| error.to_string())?;
                let put =
                    PutRequest { key: id.to_be_bytes().to_vec(), value: value.as_bytes().to_vec() };
                let path = PathAndQuery::from_static("/etcdserverpb.KV/Put");
                let codec: ProstCodec<PutRequest, PutResponse> = ProstCodec::default();
                let answer = grpc.unary(tonic::Request::new(put), path, codec).await;
                answer.map(drop).map_err(|status| status.message().to_owned())
            }
        }
    }
}

/// Results of one client.
#[derive(Default)]
struct Counted {
    latencies: Latencies,
    failed: u64,
    messages: Vec<String>,
}

/// Writes, and measures.
///
/// # Errors
/// If a server cannot be reached, or every write failed.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    let etcd = !options.etcd.is_empty();
    let addresses = if etcd { &options.etcd } else { &options.postgres };
    if !etcd {
        prepare(options).await?;
    }
    // Keys that no earlier run has used.
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let next = Arc::new(AtomicU64::new(u64::try_from(started.as_micros())? << 8));
    let mut writers = Vec::new();
    for address in addresses.iter().cycle().take(options.clients as usize) {
        writers.push(match etcd {
            true => Writer::etcd(address).await?,
            false => Writer::postgres(address).await?,
        });
    }
    let seconds = Duration::from_secs(u64::from(options.seconds));
    let measure_start = Instant::now() + seconds / 10;
    let measure_end = measure_start + seconds;
    let mut tasks = JoinSet::new();
    for (number, writer) in (0..).zip(writers) {
        let (next, bytes) = (Arc::clone(&next), options.bytes);
        tasks.spawn(work(writer, Random::new(7, number), next, bytes, measure_start, measure_end));
    }
    let mut totals = Counted::default();
    while let Some(counted) = tasks.join_next().await {
        let counted = counted?;
        totals.latencies.add(&counted.latencies);
        totals.failed += counted.failed;
        totals.messages.extend(counted.messages);
    }
    totals.messages.sort_unstable();
    totals.messages.dedup();
    totals.messages.truncate(MESSAGES_MAX);
    let latency = totals.latencies.summary();
    let report = Report {
        server: if etcd { "etcd" } else { "postgres" },
        clients: options.clients,
        partitions: options.partitions,
        bytes: options.bytes,
        seconds: seconds.as_secs_f64(),
        writes: latency.count,
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        per_second: latency.count as f64 / seconds.as_secs_f64(),
        failed: totals.failed,
        messages: totals.messages,
        latency,
    };
    tell(&report, options.json)?;
    if report.writes == 0 {
        bail!("no write succeeded");
    }
    Ok(())
}

/// Drops the table if it exists, and creates it.
async fn prepare(options: &Options) -> anyhow::Result<()> {
    let address = options.postgres.first().context("no server given")?;
    let client = postgres::connect(address, "public").await?;
    let partitioned = match options.plain {
        true => String::new(),
        false => format!(" PARTITION BY HASH (id) PARTITIONS {}", options.partitions),
    };
    let create =
        format!("CREATE TABLE {TABLE} (id BIGINT, value TEXT, PRIMARY KEY (id)){partitioned}");
    for text in [format!("DROP TABLE IF EXISTS {TABLE}"), create] {
        client
            .batch_execute(&text)
            .await
            .map_err(|error| anyhow::anyhow!("{}: {}", postgres::failure(&error).message, text))?;
    }
    Ok(())
}

async fn work(
    mut writer: Writer,
    mut random: Random,
    next: Arc<AtomicU64>,
    bytes: usize,
    measure_start: Instant,
    measure_end: Instant,
) -> Counted {
    let mut counted = Counted::default();
    let mut value = String::with_capacity(bytes);
    loop {
        let begin = Instant::now();
        if begin >= measure_end {
            return counted;
        }
        // A new random value for each row.
        value.clear();
        while value.len() < bytes {
            value.push(char::from(b'a' + u8::try_from(random.below(26)).unwrap_or_default()));
        }
        let id = next.fetch_add(1, Ordering::Relaxed).cast_signed();
        let written = writer.write(id, &value).await;
        let end = Instant::now();
        // Writes during the warm-up, or answered after the end, are not counted.
        match written {
            Ok(()) if begin >= measure_start && end <= measure_end => {
                counted.latencies.record(end - begin)
            }
            Ok(()) => {}
            Err(message) => {
                counted.failed += 1;
                if counted.messages.len() < MESSAGES_MAX {
                    counted.messages.push(message);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

fn tell(report: &Report, json: bool) -> anyhow::Result<()> {
    if json {
        return say_json(report);
    }
    let line = |name: &str, value: String| vec![name.to_owned(), value];
    let mut lines = vec![
        line("writes/s", short(report.per_second)),
        line("p50 ms", short(report.latency.p50_ms)),
        line("p99 ms", short(report.latency.p99_ms)),
        line("p99.9 ms", short(report.latency.p999_ms)),
        line("max ms", short(report.latency.max_ms)),
        line("failed", report.failed.to_string()),
    ];
    lines.extend(report.messages.iter().map(|message| line("", message.clone())));
    say(&align(&lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_is_what_etcd_reads() {
        let put = PutRequest { key: vec![1], value: b"ab".to_vec() };
        assert_eq!(put.encode_to_vec(), b"\x0a\x01\x01\x12\x02ab");
    }
}
