//! Encoded batches for sending.
//!
//! ```text
//! generator ──> encoder ──> prepared, up to a budget of bytes   (before the clock starts)
//!                   └─────> a bounded queue                     (a thread of its own, beside the clock)
//! ```
//!
//! All workers take batches from one source, in the order of the data set, like TSBS's loaders. CPU time of
//! encoding while the clock runs, and the time for which workers wait for it, are reported: a driver that cannot
//! keep up would otherwise look like a slow server.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use arrow_flight::FlightData;
use bytes::Bytes;
use tokio::sync::{Mutex, mpsc};

use super::Door;
use crate::cpu::{Generator, Host, Rows};
use crate::door::flight::flight_message;
use crate::encode::arrow::Batches;
use crate::encode::{BINARY_END, BINARY_HEAD, Encoder, Format};
use crate::meter::thread_cpu_s;

/// Maximum batches in the queue while the clock runs.
const QUEUE_BATCHES: usize = 64;

/// Encoded form of a batch.
#[derive(Clone, Debug)]
pub(crate) enum Payload {
    Bytes(Bytes),
    Flight(Box<FlightData>),
    Rows(Box<Rows>),
}

/// Rows acknowledged together.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    /// Position in the data set.
    pub(crate) number: u64,
    /// Rows of all batches before it.
    pub(crate) rows_before: u64,
    pub(crate) rows: u64,
    /// Bytes sent over the wire, without the protocol's own.
    pub(crate) bytes: u64,
    pub(crate) payload: Payload,
}

/// Divides a data set into encoded batches.
pub(crate) struct Maker {
    generator: Generator,
    batch_rows: usize,
    shape: Shape,
    made: u64,
    made_rows: u64,
}

enum Shape {
    Bytes(Format, Box<Encoder>),
    Flight(Batches),
    Rows,
}

impl Maker {
    pub(crate) fn new(door: Door, generator: Generator, hosts: &[Host], batch_rows: usize) -> Self {
        let bytes = |format| Shape::Bytes(format, Box::new(Encoder::new(format, hosts)));
        let shape = match door {
            Door::LineProtocol => bytes(Format::LineProtocol),
            Door::CopyText | Door::TabSeparated => bytes(Format::CopyText),
            Door::CopyBinary => bytes(Format::CopyBinary),
            Door::Flight => Shape::Flight(Batches::new(hosts)),
            Door::Insert => Shape::Rows,
        };
        Self { generator, batch_rows, shape, made: 0, made_rows: 0 }
    }

    /// The next batch; `None` after the last one.
    fn next(&mut self) -> anyhow::Result<Option<Batch>> {
        let Some(rows) = self.generator.next(self.batch_rows) else { return Ok(None) };
        let count = rows.len() as u64;
        let (bytes, payload) = match &mut self.shape {
            Shape::Bytes(format, encoder) => {
                let mut buffer = Vec::with_capacity(rows.len() * 384);
                let binary = *format == Format::CopyBinary;
                if binary {
                    buffer.extend_from_slice(&BINARY_HEAD);
                }
                encoder.append(&rows, &mut buffer);
                if binary {
                    buffer.extend_from_slice(&BINARY_END);
                }
                buffer.shrink_to_fit();
                (buffer.len(), Payload::Bytes(buffer.into()))
            }
            Shape::Flight(batches) => {
                let message = flight_message(&batches.of(rows)?)?;
                let bytes = message.data_header.len() + message.data_body.len();
                (bytes, Payload::Flight(Box::new(message)))
            }
            // 11 numbers and about 90 characters of tags.
            Shape::Rows => (rows.len() * (11 * 8 + 90), Payload::Rows(Box::new(rows))),
        };
        let (number, rows_before) = (self.made, self.made_rows);
        self.made += 1;
        self.made_rows += count;
        Ok(Some(Batch { number, rows_before, rows: count, bytes: bytes as u64, payload }))
    }
}

/// Cost of encoding while the clock runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beside {
    /// CPU seconds.
    pub(crate) cpu_s: f64,
    /// Number of encoded rows.
    pub(crate) rows: u64,
}

/// The source of batches for all workers.
pub(crate) struct Source {
    prepared: Mutex<VecDeque<Batch>>,
    /// Rows encoded before the clock starts.
    pub(crate) prepared_rows: u64,
    queue: Mutex<mpsc::Receiver<Batch>>,
    thread: std::sync::Mutex<Option<std::thread::JoinHandle<anyhow::Result<Beside>>>>,
    stop: Arc<AtomicBool>,
}

impl Source {
    /// Encodes up to `budget_bytes` now, and the rest in a thread when needed.
    ///
    /// # Errors
    /// If rows cannot be encoded, or the thread cannot be started.
    pub(crate) fn prepare(mut maker: Maker, budget_bytes: u64) -> anyhow::Result<Self> {
        let (mut prepared, mut bytes, mut rows) = (VecDeque::new(), 0, 0);
        let mut whole = false;
        while bytes < budget_bytes {
            let Some(batch) = maker.next()? else {
                whole = true;
                break;
            };
            bytes += batch.bytes;
            rows += batch.rows;
            prepared.push_back(batch);
        }
        let (sender, receiver) = mpsc::channel(QUEUE_BATCHES);
        let stop = Arc::new(AtomicBool::new(false));
        // The thread is only needed if the budget did not cover the whole data set.
        let thread = if whole {
            None
        } else {
            let stop = Arc::clone(&stop);
            let run = move || encode_beside(&mut maker, &sender, &stop);
            let thread = std::thread::Builder::new().name("encoder".into()).spawn(run);
            Some(thread.context("cannot start the encoder's thread")?)
        };
        Ok(Self {
            prepared: Mutex::new(prepared),
            prepared_rows: rows,
            queue: Mutex::new(receiver),
            thread: std::sync::Mutex::new(thread),
            stop,
        })
    }

    /// The next batch, and the time for which it was waited for; `None` after the last one.
    pub(crate) async fn next(&self) -> Option<(Batch, Duration)> {
        if let Some(batch) = self.prepared.lock().await.pop_front() {
            return Some((batch, Duration::ZERO));
        }
        let began = Instant::now();
        let mut queue = self.queue.lock().await;
        if let Ok(batch) = queue.try_recv() {
            return Some((batch, Duration::ZERO));
        }
        let batch = queue.recv().await?;
        Some((batch, began.elapsed()))
    }

    /// Ends the encoding; returns its cost.
    ///
    /// # Errors
    /// If it failed.
    pub(crate) async fn finish(&self) -> anyhow::Result<Beside> {
        self.stop.store(true, Ordering::Relaxed);
        // An encoder that waits for room sees that the queue is closed.
        self.queue.lock().await.close();
        let thread = self.thread.lock().ok().and_then(|mut thread| thread.take());
        let Some(thread) = thread else { return Ok(Beside::default()) };
        match tokio::task::spawn_blocking(move || thread.join()).await? {
            Ok(cost) => cost,
            Err(_) => anyhow::bail!("the encoder's thread panicked"),
        }
    }
}

fn encode_beside(
    maker: &mut Maker,
    sender: &mpsc::Sender<Batch>,
    stop: &AtomicBool,
) -> anyhow::Result<Beside> {
    let mut rows = 0;
    while !stop.load(Ordering::Relaxed)
        && let Some(batch) = maker.next()?
    {
        rows += batch.rows;
        if sender.blocking_send(batch).is_err() {
            break;
        }
    }
    Ok(Beside { cpu_s: thread_cpu_s(), rows })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{Spec, hosts};

    async fn numbers(budget_bytes: u64) -> (Vec<(u64, u64)>, u64) {
        let spec = Spec {
            hosts: 10,
            start_ns: 0,
            interval: Duration::from_secs(10),
            rows: 1_005,
            seed: 1,
        };
        let hosts = hosts(&spec);
        let maker = Maker::new(Door::LineProtocol, Generator::new(spec), &hosts, 100);
        let source = Source::prepare(maker, budget_bytes).unwrap();
        let mut batches = Vec::new();
        while let Some((batch, _)) = source.next().await {
            batches.push((batch.number, batch.rows));
        }
        let cost = source.finish().await.unwrap();
        assert_eq!(cost.rows + source.prepared_rows, 1_005);
        (batches, cost.rows)
    }

    #[tokio::test]
    async fn batches_come_in_order_whether_prepared_or_not() {
        let expected: Vec<_> = (0..10).map(|number| (number, 100)).chain([(10, 5)]).collect();
        assert_eq!(numbers(u64::MAX).await, (expected.clone(), 0));
        assert_eq!(numbers(0).await, (expected.clone(), 1_005));
        let (batches, encoded_rows) = numbers(100_000).await;
        assert_eq!(batches, expected);
        assert!((1..1_005).contains(&encoded_rows), "{encoded_rows}");
    }

    #[tokio::test]
    async fn an_encoder_that_nobody_takes_from_ends() {
        let spec = Spec {
            hosts: 10,
            start_ns: 0,
            interval: Duration::from_secs(10),
            rows: u64::MAX,
            seed: 1,
        };
        let hosts = hosts(&spec);
        let maker = Maker::new(Door::Flight, Generator::new(spec), &hosts, 10);
        let source = Source::prepare(maker, 10_000).unwrap();
        assert!(source.next().await.is_some());
        source.finish().await.unwrap();
    }
}
