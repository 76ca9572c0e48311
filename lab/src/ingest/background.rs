//! A load in the background of another measurement.
//!
//! An open loop: rows are due at a fixed rate, whatever the server does. They continue the data set after its end,
//! so that queries on it keep their answers (except for the newest rows), and they use the server's usual protocol
//! for bulk rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, bail};
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::source::{Maker, Source};
use super::worker::{Load, Tally, drive};
use super::{Door, connect};
use crate::civil::SECOND_NS;
use crate::cpu::{Generator, hosts};
use crate::data::Data;
use crate::latency::Summary;
use crate::meter::{Meter, Usage};
use crate::pace::Pace;
use crate::report::short;
use crate::server::{Server, Target};

/// Maximum rows of a batch, as in `lab ingest`.
const BATCH_ROWS_MAX: f64 = 5_000.0;
/// Minimum batches per second, so that a low rate is evenly distributed.
const BATCHES_PER_SECOND: f64 = 20.0;
/// Number of connections: enough to keep the rate while one waits for a sync.
const CONNECTIONS: u32 = 4;

/// A running background load.
pub(crate) struct Background {
    load: Arc<Load>,
    working: JoinHandle<anyhow::Result<Tally>>,
    door: Door,
    rate: f64,
}

/// Results of the background load.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ingested {
    door: String,
    connections: u32,
    batch_rows: usize,
    asked_rows_per_s: f64,
    rows_per_s: f64,
    rows: u64,
    seconds: f64,
    /// Latency of a batch, from when it was due to its acknowledgement.
    latency: Summary,
    rejected_batches: u64,
    messages: Vec<String>,
}

impl Ingested {
    /// One line of text.
    pub(crate) fn line(&self) -> String {
        let (rate, requested) = (short(self.rows_per_s), short(self.asked_rows_per_s));
        let (p50, p99) = (short(self.latency.p50_ms), short(self.latency.p99_ms));
        let refused = match self.rejected_batches {
            0 => String::new(),
            count => format!(", {count} batches refused: {}", self.messages.join("; ")),
        };
        format!(
            "meanwhile {} rows were loaded in {} s by {}: {rate} of {requested} rows/s, \
             batch latency p50 {p50} ms, p99 {p99} ms{refused}",
            self.rows,
            short(self.seconds),
            self.door
        )
    }
}

/// Usual protocol for bulk rows of a server.
fn door_of(server: Server) -> Door {
    match server {
        Server::Partita | Server::Influxdb | Server::VictoriaMetrics => Door::LineProtocol,
        Server::PostgreSql => Door::CopyText,
        Server::ClickHouse => Door::TabSeparated,
    }
}

/// Rows of a batch at a rate in rows per second.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between one and thousands"
)]
fn batch_rows(rate: f64) -> usize {
    (rate / BATCHES_PER_SECOND).clamp(1.0, BATCH_ROWS_MAX) as usize
}

impl Background {
    /// Starts to load at a rate in rows per second.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub(crate) async fn start(target: &Target, data: &Data, rate: f64) -> anyhow::Result<Self> {
        let door = door_of(target.server);
        let mut spec = data.spec(Some(u64::MAX));
        let span = i64::try_from(data.span.as_secs()).context("the span is too long")?;
        spec.start_ns = spec.start_ns.saturating_add(span.saturating_mul(SECOND_NS));
        let hosts = hosts(&spec);
        let maker = Maker::new(door, Generator::new(spec), &hosts, batch_rows(rate));
        // Nothing is encoded ahead, because the number of rows is not known.
        let source = tokio::task::spawn_blocking(move || Source::prepare(maker, 0)).await??;
        let mut senders = Vec::new();
        for _ in 0..CONNECTIONS {
            senders.push(connect(target, door, &Arc::default()).await?);
        }
        let load = Arc::new(Load {
            pace: Pace::new(Some(rate)),
            ends: None,
            stopped: AtomicBool::new(false),
            began: Instant::now(),
            prepared_rows: 0,
            source,
            report_every: None,
            meter: Mutex::new(Meter::default()),
            before: Usage::default(),
            stored: AtomicU64::new(0),
        });
        let working = tokio::spawn({
            let load = Arc::clone(&load);
            async move { drive(&load, senders).await }
        });
        Ok(Self { load, working, door, rate })
    }

    /// Ends the load, and returns its results.
    ///
    /// # Errors
    /// If no rows were stored: then the other measurement ran without the load.
    #[expect(clippy::cast_precision_loss, reason = "results, rounded")]
    pub(crate) async fn stop(self) -> anyhow::Result<Ingested> {
        self.load.stopped.store(true, Ordering::Relaxed);
        let tally = self.working.await??;
        let seconds = self.load.began.elapsed().as_secs_f64();
        self.load.source.finish().await?;
        if tally.rows == 0 {
            bail!("no rows were loaded meanwhile: {}", tally.messages.join("; "));
        }
        let door = clap::ValueEnum::to_possible_value(&self.door);
        Ok(Ingested {
            door: door.map_or_else(String::new, |value| value.get_name().to_owned()),
            connections: CONNECTIONS,
            batch_rows: batch_rows(self.rate),
            asked_rows_per_s: self.rate,
            rows_per_s: tally.rows as f64 / seconds,
            rows: tally.rows,
            seconds,
            latency: tally.latencies.summary(),
            rejected_batches: tally.rejected_batches,
            messages: tally.messages,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_rows_come_in_small_batches() {
        for (rate, rows) in [(1.0, 1), (100.0, 5), (40_000.0, 2_000), (400_000.0, 5_000)] {
            assert_eq!(batch_rows(rate), rows);
        }
    }

    #[test]
    fn refused_batches_are_told() {
        let ingested = Ingested {
            door: "copy-text".to_owned(),
            connections: 4,
            batch_rows: 5,
            asked_rows_per_s: 100.0,
            rows_per_s: 99.0,
            rows: 990,
            seconds: 10.0,
            latency: Summary::default(),
            rejected_batches: 0,
            messages: Vec::new(),
        };
        assert!(
            ingested
                .line()
                .starts_with("meanwhile 990 rows were loaded in 10.0 s by copy-text: 99.0")
        );
        let messages = vec!["the disk is full".to_owned()];
        let refused = Ingested { rejected_batches: 2, messages, ..ingested };
        assert!(refused.line().ends_with("2 batches refused: the disk is full"));
    }
}
