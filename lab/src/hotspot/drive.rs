//! Writers: rows in batches, in an open loop.
//!
//! A batch is due when its last row arrives, and its latency counts from then, however late it is sent: rows that wait
//! because the store is behind show that wait. A thread draws the rows and makes the statements; each connection takes the
//! next one and sends it again until it is stored or the run is over.
//!
//! Invariants: batches are taken in the order in which they are due; what is not stored when the run ends counts as not
//! served; at most as many batches are in flight as there are connections, and as many more are made ahead.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking::Lock;
use partita_hotspot::workload::{Row, Rows, TableLoad};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_postgres::Client;

use crate::door::postgres;
use crate::latency::Latencies;

/// Before a batch that was turned away is sent again.
const PAUSE: Duration = Duration::from_millis(50);
/// Batches that are made ahead for each connection.
const AHEAD: usize = 2;
/// How long a write that is under way when the run ends may take.
const LAST_WAIT: Duration = Duration::from_secs(15);
/// Different messages that are kept.
const MESSAGES_MAX: usize = 3;
/// Bytes of a row's text, about as much as the event of a user takes.
const EVENT: &str = "opened the page of an item, looked at it, and went on to ";

/// A std mutex whose poison nobody cares about: what it guards are counters.
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

/// What writers counted.
#[derive(Debug, Default)]
pub(super) struct Counts {
    stored: AtomicU64,
    refused: AtomicU64,
    latencies: Lock<Latencies>,
    messages: Lock<Vec<String>>,
    failure: Lock<Option<String>>,
}

impl Counts {
    /// Rows that are stored.
    pub(super) fn stored(&self) -> u64 {
        self.stored.load(Ordering::Relaxed)
    }

    /// Requests that were turned away.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Latencies since this was last asked.
    pub(super) fn latencies(&self) -> Latencies {
        std::mem::take(&mut *self.latencies.lock())
    }

    /// What those who were turned away were told, each once.
    pub(super) fn messages(&self) -> Vec<String> {
        self.messages.lock().clone()
    }

    /// What no attempt can mend.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    fn turned_away(&self, message: String) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let mut messages = self.messages.lock();
        if messages.len() < MESSAGES_MAX && !messages.iter().any(|own| alike(own, &message)) {
            messages.push(message);
        }
    }
}

/// Whether texts are the same but for their numbers.
fn alike(one: &str, other: &str) -> bool {
    let letters = |text: &str| -> String { text.chars().filter(|c| !c.is_ascii_digit()).collect() };
    letters(one) == letters(other)
}

/// A statement, the rows that it brings, and when it is due.
struct Batch {
    text: String,
    rows: u64,
    due: Duration,
}

/// How to write.
pub(super) struct Plan {
    pub(super) table: String,
    pub(super) load: TableLoad,
    pub(super) seed: u64,
    pub(super) batch: usize,
    /// Connection strings; writers are dealt out over them.
    pub(super) servers: Vec<String>,
    pub(super) connections: usize,
    /// The begin, as microseconds since the Unix epoch.
    pub(super) begin_us: i64,
    pub(super) seconds: u64,
}

/// Writers at work.
pub(super) struct Drive {
    pub(super) counts: Arc<Counts>,
    writers: JoinSet<()>,
}

impl Drive {
    /// Connects, and begins at `begin`.
    ///
    /// # Errors
    /// When a server cannot be reached.
    pub(super) async fn start(plan: Plan, begin: Instant) -> anyhow::Result<Self> {
        let mut clients = Vec::with_capacity(plan.connections);
        for server in plan.servers.iter().cycle().take(plan.connections) {
            clients.push((postgres::connect(server, "public").await?, server.clone()));
        }
        let counts = Arc::new(Counts::default());
        let (made, batches) = mpsc::channel(AHEAD * clients.len());
        let batches = Arc::new(Mutex::new(batches));
        let end = begin + Duration::from_secs(plan.seconds);
        let mut writers = JoinSet::new();
        for (client, server) in clients {
            let (batches, counts) = (Arc::clone(&batches), Arc::clone(&counts));
            writers.spawn(work(client, server, batches, counts, begin, end));
        }
        // It ends with the writers, who close the channel.
        std::thread::spawn(move || make(&plan, &made));
        Ok(Self { counts, writers })
    }

    /// Waits until the writes that were under way are answered.
    pub(super) async fn finish(mut self) -> Arc<Counts> {
        let all = async { while self.writers.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_WAIT, all).await.is_err() {
            self.writers.abort_all();
        }
        self.counts
    }
}

fn make(plan: &Plan, made: &mpsc::Sender<Batch>) {
    let Some(rows) = Rows::of(&plan.load, plan.seed) else { return };
    let mut waiting: Vec<Row> = Vec::with_capacity(plan.batch);
    for row in rows {
        if row.at_us >= plan.seconds * 1_000_000 {
            return;
        }
        waiting.push(row);
        if waiting.len() == plan.batch {
            let text = statement(&plan.table, plan.begin_us, &waiting);
            let due = Duration::from_micros(row.at_us);
            let batch = Batch { text, rows: waiting.len() as u64, due };
            waiting.clear();
            if made.blocking_send(batch).is_err() {
                return;
            }
        }
    }
}

fn statement(table: &str, begin_us: i64, rows: &[Row]) -> String {
    let mut text = format!("INSERT INTO {table} (ts, userid, event) VALUES ");
    for (at, row) in rows.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ok = write!(
            text,
            "{comma}({}, {}, '{EVENT}{}')",
            begin_us + row.time_us,
            row.entity,
            row.at_us % 10_000
        );
    }
    text
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
        // The lock is released before the work: whoever comes next takes the next batch.
        let Some(batch) = batches.lock().await.recv().await else { return };
        let due = begin + batch.due;
        tokio::time::sleep_until(due).await;
        loop {
            if Instant::now() >= end {
                return;
            }
            let Err(error) = client.batch_execute(&batch.text).await else {
                let now = Instant::now();
                // What is answered after the end was not served within the run.
                if now < end {
                    counts.latencies.lock().record(now - due);
                }
                counts.stored.fetch_add(batch.rows, Ordering::Relaxed);
                break;
            };
            let failure = postgres::failure(&error);
            counts.turned_away(failure.message.clone());
            if failure.lost {
                match postgres::connect(&server, "public").await {
                    Ok(again) => client = again,
                    Err(error) => {
                        *counts.failure.lock() = Some(format!("{error:#}"));
                        return;
                    }
                }
            } else if !failure.retryable {
                *counts.failure.lock() = Some(failure.message);
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
    fn a_statement_has_all_rows_at_their_times() {
        let row = |at_us, time_us, entity| Row { at_us, time_us, entity };
        let text = statement("t", 1_000, &[row(5, 3, 7), row(9, -4, 8)]);
        let event = EVENT;
        let expected = format!(
            "INSERT INTO t (ts, userid, event) VALUES (1003, 7, '{event}5'), (996, 8, '{event}9')"
        );
        assert_eq!(text, expected);
    }

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
