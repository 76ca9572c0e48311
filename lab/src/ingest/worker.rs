//! Work of one connection: takes a batch, sends it, counts it.
//!
//! A batch is retried a limited number of times, and only if the server allows it ([`Failure::retryable`]); any
//! other error counts as a rejection, and its message is kept. A lost connection ends its worker, since the outcome
//! of the batch in flight is unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::source::{Batch, Payload, Source};
use crate::door::Failure;
use crate::door::copy::CopyDoor;
use crate::door::flight::FlightDoor;
use crate::door::http::HttpDoor;
use crate::door::insert::InsertDoor;
use crate::latency::Latencies;
use crate::meter::{Meter, Usage};
use crate::pace::Pace;
use crate::report::{progress, say_json};

/// Maximum retries of a batch.
const RETRIES_MAX: u32 = 20;
/// Pause before the first retry; it doubles up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Maximum messages of rejected batches that are kept.
const MESSAGES_MAX: usize = 5;
/// Interval between progress reports.
const PROGRESS: Duration = Duration::from_secs(1);

/// The connection of a worker.
pub(crate) enum Sender {
    /// HTTP, with the path for batches.
    Http(HttpDoor, String),
    Copy(CopyDoor),
    Flight(FlightDoor),
    Insert(Box<InsertDoor>),
}

impl Sender {
    async fn send(&mut self, batch: &Batch) -> Result<(), Failure> {
        let stored = match (&mut *self, &batch.payload) {
            (Self::Http(door, path), Payload::Bytes(bytes)) => {
                door.post(path, "text/plain; charset=utf-8", bytes.clone()).await?;
                batch.rows
            }
            (Self::Copy(door), Payload::Bytes(bytes)) => door.send(bytes).await?,
            (Self::Flight(door), Payload::Flight(message)) => door.send(message).await?,
            (Self::Insert(door), Payload::Rows(rows)) => door.send(rows).await?,
            _ => return Err(Failure::refused("the door does not accept this form of batch")),
        };
        if stored == batch.rows {
            return Ok(());
        }
        Err(Failure::refused(format!("the server stored {stored} of {} rows", batch.rows)))
    }
}

/// Sums of all workers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) latencies: Latencies,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) retries: u64,
    pub(crate) rejected_batches: u64,
    pub(crate) rejected_rows: u64,
    /// Workers that ended because their connection was lost.
    pub(crate) workers_lost: u32,
    /// Total time for which workers waited for the encoder.
    pub(crate) waited: Duration,
    /// First messages of rejected batches.
    pub(crate) messages: Vec<String>,
}

impl Tally {
    fn add(&mut self, tally: Self) {
        self.latencies.add(&tally.latencies);
        self.rows += tally.rows;
        self.bytes += tally.bytes;
        self.retries += tally.retries;
        self.rejected_batches += tally.rejected_batches;
        self.rejected_rows += tally.rejected_rows;
        self.workers_lost += tally.workers_lost;
        self.waited += tally.waited;
        self.messages.extend(tally.messages);
        self.messages.truncate(MESSAGES_MAX);
    }
}

/// State shared by all workers of a load.
pub(crate) struct Load {
    pub(crate) source: Source,
    pub(crate) prepared_rows: u64,
    pub(crate) pace: Pace,
    pub(crate) began: Instant,
    pub(crate) ends: Option<Instant>,
    /// Set to stop sending.
    pub(crate) stopped: AtomicBool,
    pub(crate) report_every: Option<u64>,
    pub(crate) meter: Mutex<Meter>,
    pub(crate) before: Usage,
    pub(crate) stored: AtomicU64,
}

/// A line of the series printed with `--report-every`.
#[derive(Serialize)]
struct Point {
    rows: u64,
    seconds: f64,
    server_cpu_s: f64,
    server_memory_bytes: u64,
    server_written_bytes: u64,
}

impl Load {
    /// True if more batches are to be sent.
    fn should_continue(&self) -> bool {
        let is_over = self.ends.is_some_and(|end| Instant::now() >= end);
        !is_over && !self.stopped.load(Ordering::Relaxed)
    }

    /// Current resource usage of the server.
    pub(crate) async fn usage(&self) -> anyhow::Result<Usage> {
        self.meter.lock().await.read()
    }

    /// Counts stored rows; prints a point when their number passes a multiple of `report_every`.
    async fn count(&self, rows: u64) -> anyhow::Result<()> {
        let stored_before = self.stored.fetch_add(rows, Ordering::Relaxed);
        let Some(interval) = self.report_every.filter(|interval| *interval > 0) else {
            return Ok(());
        };
        if stored_before / interval == (stored_before + rows) / interval {
            return Ok(());
        }
        let seconds = self.began.elapsed().as_secs_f64();
        let usage = self.usage().await?;
        say_json(&Point {
            rows: stored_before + rows,
            seconds,
            server_cpu_s: usage.cpu_s - self.before.cpu_s,
            server_memory_bytes: usage.memory_bytes,
            server_written_bytes: usage.written_bytes - self.before.written_bytes,
        })
    }
}

/// Runs a worker for each connection until everything is sent or the time is over.
///
/// # Errors
/// If the server's process is gone.
pub(crate) async fn run(load: &Arc<Load>, senders: Vec<Sender>) -> anyhow::Result<Tally> {
    let watcher = tokio::spawn({
        let load = Arc::clone(load);
        async move { watch(&load).await }
    });
    let tally = drive(load, senders).await;
    watcher.abort();
    progress("");
    tally
}

/// As [`run`], without progress reports.
///
/// # Errors
/// As [`run`].
pub(crate) async fn drive(load: &Arc<Load>, senders: Vec<Sender>) -> anyhow::Result<Tally> {
    let mut workers = JoinSet::new();
    for sender in senders {
        let load = Arc::clone(load);
        workers.spawn(async move { work(&load, sender).await });
    }
    let mut tally = Tally::default();
    let mut failure = None;
    while let Some(worker) = workers.join_next().await {
        match worker? {
            Ok(worker_tally) => tally.add(worker_tally),
            Err(error) => failure = Some(error),
        }
    }
    failure.map_or(Ok(tally), Err)
}

/// Reports progress, and samples the memory of a server with several processes.
async fn watch(load: &Load) {
    let mut last = 0;
    loop {
        tokio::time::sleep(PROGRESS).await;
        let stored = load.stored.load(Ordering::Relaxed);
        let seconds = load.began.elapsed().as_secs();
        progress(&format!("{seconds} s: {stored} rows, {} rows/s", stored - last));
        last = stored;
        if load.usage().await.is_err() {
            return;
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "rows become a time")]
async fn work(load: &Load, mut sender: Sender) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    while load.should_continue() {
        let Some((batch, waited)) = load.source.next().await else { break };
        tally.waited += waited;
        let start = load.pace.due(batch.rows_before as f64).await;
        match send_with_retries(&mut sender, &batch, &mut tally.retries).await {
            Ok(()) => {
                tally.latencies.record(start.elapsed());
                tally.rows += batch.rows;
                tally.bytes += batch.bytes;
                load.count(batch.rows).await?;
            }
            Err(failure) => {
                tally.rejected_batches += 1;
                tally.rejected_rows += batch.rows;
                if tally.messages.len() < MESSAGES_MAX {
                    tally.messages.push(format!("batch {}: {failure}", batch.number));
                }
                if failure.lost {
                    tally.workers_lost += 1;
                    break;
                }
            }
        }
    }
    Ok(tally)
}

/// Sends a batch; retries with increasing pauses while the error is retryable.
async fn send_with_retries(
    sender: &mut Sender,
    batch: &Batch,
    retries: &mut u64,
) -> Result<(), Failure> {
    let mut pause = PAUSE;
    for _ in 0..RETRIES_MAX {
        match sender.send(batch).await {
            Err(failure) if failure.retryable => {
                *retries += 1;
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            result => return result,
        }
    }
    sender.send(batch).await
}
