//! Clients that send statements in an open loop.
//!
//! A statement is due when its last row, or its read, arrives, and its latency counts from then, however late it is
//! sent: waiting for a slow store is part of the latency. A thread draws the operations and makes the statements;
//! each connection takes the next one and retries it until it succeeds or the run is over.
//!
//! Invariants: statements are taken in the order in which they are due; a statement that is not answered when the
//! run ends counts as not served; each connection has at most one statement in flight, and a bounded number of
//! statements is made ahead.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::bail;
use parking::Lock;
use partita_hotspot::workload::{Row, SqlTable};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_postgres::Client;

use super::offer::{Batch, Batcher, Offer, insert};
use crate::door::postgres;
use crate::latency::Latencies;

/// Pause before a rejected batch is retried.
const PAUSE: Duration = Duration::from_millis(50);
/// Batches made ahead for each connection.
const AHEAD: usize = 2;
/// Maximum wait, after the end of a run, for statements in flight.
const LAST_WAIT: Duration = Duration::from_secs(15);
/// Maximum number of distinct messages that are kept.
const MESSAGES_MAX: usize = 3;
/// Maximum time to load initial rows before the clock starts.
const LOAD_WAIT: Duration = Duration::from_secs(1_800);
/// Rows per INSERT of the initial load.
const LOAD_ROWS: usize = 200;

/// A std mutex without poisoning: it guards counters only.
mod parking {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// See the module.
    #[derive(Debug, Default)]
    pub(super) struct Lock<T>(Mutex<T>);

    impl<T> Lock<T> {
        pub(super) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

/// Counters of all clients.
#[derive(Debug, Default)]
pub(super) struct Counts {
    stored: AtomicU64,
    answered: AtomicU64,
    unsaid: AtomicU64,
    refused: AtomicU64,
    latencies: Lock<Latencies>,
    messages: Lock<Vec<String>>,
    failure: Lock<Option<String>>,
}

impl Counts {
    /// Number of stored rows.
    pub(super) fn stored(&self) -> u64 {
        self.stored.load(Ordering::Relaxed)
    }

    /// Number of answered reads.
    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Operations that cannot be expressed as a statement.
    pub(super) fn unsaid(&self) -> u64 {
        self.unsaid.load(Ordering::Relaxed)
    }

    /// Number of rejected requests.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Latencies since the last call.
    pub(super) fn latencies(&self) -> Latencies {
        std::mem::take(&mut *self.latencies.lock())
    }

    /// Messages of rejected requests, without duplicates.
    pub(super) fn messages(&self) -> Vec<String> {
        self.messages.lock().clone()
    }

    /// An error that a retry does not resolve.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    fn fail(&self, message: String) {
        *self.failure.lock() = Some(message);
    }

    fn turned_away(&self, message: String) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let mut messages = self.messages.lock();
        if messages.len() < MESSAGES_MAX && !messages.iter().any(|earlier| alike(earlier, &message))
        {
            messages.push(message);
        }
    }
}

/// True if two texts differ only in their digits.
fn alike(first: &str, second: &str) -> bool {
    let letters = |text: &str| -> String { text.chars().filter(|c| !c.is_ascii_digit()).collect() };
    letters(first) == letters(second)
}

/// Statements to send, and their servers.
pub(super) struct Plan {
    /// The first table is measured; the others get the same rows.
    pub(super) tables: Vec<SqlTable>,
    pub(super) offer: Offer,
    pub(super) batch: usize,
    /// Connection strings; clients are distributed over them.
    pub(super) servers: Vec<String>,
    pub(super) connections: usize,
    pub(super) seconds: u64,
}

/// Running clients, with their counts.
pub(super) struct Drive {
    pub(super) counts: Arc<Counts>,
    clients: JoinSet<()>,
}

impl Drive {
    /// Connects, and starts to send at `begin`.
    ///
    /// # Errors
    /// If a server cannot be reached.
    pub(super) async fn start(plan: Plan, begin: Instant) -> anyhow::Result<Self> {
        let span = (begin, begin + Duration::from_secs(plan.seconds));
        let servers = (plan.servers.clone(), plan.connections);
        Self::of(&servers.0, servers.1, span, move |sender, counts| make(&plan, sender, counts))
            .await
    }

    /// Connects, and sends the batches that `make` produces, between two times.
    async fn of(
        servers: &[String],
        connections: usize,
        (begin, end): (Instant, Instant),
        make: impl FnOnce(&mpsc::Sender<Batch>, &Counts) + Send + 'static,
    ) -> anyhow::Result<Self> {
        let mut connected = Vec::with_capacity(connections);
        for server in servers.iter().cycle().take(connections) {
            connected.push((postgres::connect(server, "public").await?, server.clone()));
        }
        let counts = Arc::new(Counts::default());
        let (sender, batches) = mpsc::channel(AHEAD * connected.len());
        let batches = Arc::new(Mutex::new(batches));
        let mut clients = JoinSet::new();
        for (client, server) in connected {
            let (batches, counts) = (Arc::clone(&batches), Arc::clone(&counts));
            clients.spawn(work(client, server, batches, counts, begin, end));
        }
        // The thread ends with the clients, which close the channel.
        let noted = Arc::clone(&counts);
        std::thread::spawn(move || make(&sender, &noted));
        Ok(Self { counts, clients })
    }

    /// Waits for the answers of statements in flight.
    pub(super) async fn finish(mut self) -> Arc<Counts> {
        let remaining = async { while self.clients.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_WAIT, remaining).await.is_err() {
            self.clients.abort_all();
        }
        self.counts
    }
}

/// Loads rows into a table before the measurement, as fast as the table accepts them.
///
/// # Errors
/// If a server cannot be reached, or not all rows were accepted.
pub(super) async fn load(
    table: SqlTable,
    rows: Vec<Row>,
    servers: &[String],
    connections: usize,
) -> anyhow::Result<()> {
    let total = rows.len() as u64;
    let begin = Instant::now();
    let make = move |sender: &mpsc::Sender<Batch>, _: &Counts| {
        for rows in rows.chunks(LOAD_ROWS) {
            let text = insert(std::slice::from_ref(&table), rows);
            let batch = Batch { text, rows: rows.len() as u64, due: Duration::ZERO };
            if sender.blocking_send(batch).is_err() {
                return;
            }
        }
    };
    let mut drive = Drive::of(servers, connections, (begin, begin + LOAD_WAIT), make).await?;
    while drive.clients.join_next().await.is_some() {}
    let stored = drive.counts.stored();
    match drive.counts.failure() {
        Some(failure) => bail!("{failure}"),
        None if stored < total => {
            bail!("only {stored} of {total} rows were loaded within {LOAD_WAIT:?}")
        }
        None => Ok(()),
    }
}

fn make(plan: &Plan, sender: &mpsc::Sender<Batch>, counts: &Counts) {
    let mut batcher = Batcher::new(&plan.tables, plan.batch);
    let outcome = plan.offer.each(plan.seconds, |at_us, kind, op| {
        for batch in batcher.take(at_us, kind, op).into_iter().flatten() {
            if sender.blocking_send(batch).is_err() {
                return ControlFlow::Break(());
            }
        }
        counts.unsaid.store(batcher.unsaid, Ordering::Relaxed);
        ControlFlow::Continue(())
    });
    if let Err(error) = outcome {
        counts.fail(format!("{error:#}"));
    }
}

async fn work(
    mut client: Client,
    server: String,
    batches: Arc<Mutex<mpsc::Receiver<Batch>>>,
    counts: Arc<Counts>,
    begin: Instant,
    end: Instant,
) {
    loop {
        // The lock is released before the statement runs, so that other clients can take the next batch.
        let Some(batch) = batches.lock().await.recv().await else { return };
        let due = begin + batch.due;
        tokio::time::sleep_until(due).await;
        loop {
            if Instant::now() >= end {
                return;
            }
            let Err(error) = client.batch_execute(&batch.text).await else {
                let answer_time = Instant::now();
                // A statement answered after the end was not served within the run.
                if answer_time < end {
                    counts.latencies.lock().record(answer_time - due);
                }
                if batch.rows > 0 {
                    counts.stored.fetch_add(batch.rows, Ordering::Relaxed);
                } else {
                    counts.answered.fetch_add(1, Ordering::Relaxed);
                }
                break;
            };
            let failure = postgres::failure(&error);
            counts.turned_away(failure.message.clone());
            if failure.lost {
                match postgres::connect(&server, "public").await {
                    Ok(new_client) => client = new_client,
                    Err(error) => {
                        counts.fail(format!("{error:#}"));
                        return;
                    }
                }
            } else if !failure.retryable {
                counts.fail(failure.message);
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_refusal_is_told_once() {
        let counts = Counts::default();
        for message in ["partition 7 is 99 % busy", "partition 7 is 100 % busy", "no"] {
            counts.turned_away(message.to_owned());
        }
        assert_eq!(counts.messages(), ["partition 7 is 99 % busy", "no"]);
        assert_eq!(counts.refused(), 3);
    }
}
