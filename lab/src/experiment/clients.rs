//! Clients in closed loops: each sends the next request when the previous one is answered, as in the published
//! experiments, or some time after that.
//!
//! A span is the work of all clients between two measurements. A request counts in the span in which it ends, so
//! that consecutive spans lose none; a request that began in an earlier span has a latency that includes that time.
//!
//! Invariants: each client has at most one statement in flight; a rejected request is retried after a pause and
//! counts as failed, not as served; a read that finds no row has failed, because only existing keys are read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use crate::door::postgres;
use crate::latency::Latencies;
use crate::random::Random;

/// Pause before a rejected request is retried.
const PAUSE: Duration = Duration::from_millis(20);
/// Maximum wait for requests in flight at the end.
const LAST_WAIT: Duration = Duration::from_secs(15);
/// Maximum number of distinct messages that are kept.
const MESSAGES_MAX: usize = 3;

/// A parameter of a statement.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Int(i64),
    Text(String),
    Time(SystemTime),
}

impl Value {
    fn as_sql(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Int(value) => value,
            Self::Text(value) => value,
            Self::Time(value) => value,
        }
    }
}

/// Draws random parameters for a statement.
pub(super) type Draw = Arc<dyn Fn(&mut Random) -> Vec<Value> + Send + Sync>;

/// A statement and the source of its parameters.
#[derive(Clone)]
pub(super) struct Ask {
    pub(super) text: String,
    pub(super) draw: Draw,
}

/// Work of the clients.
#[derive(Clone)]
pub(super) struct Work {
    /// Reads one row by its key.
    pub(super) read: Option<Ask>,
    /// Writes one row.
    pub(super) write: Option<Ask>,
    /// Share of reads if there are both.
    pub(super) reads: f64,
    /// Mean think time between an answer and the next request; exponentially distributed.
    pub(super) thinks: Duration,
}

impl Work {
    /// Work that only reads.
    pub(super) fn reading(read: Ask) -> Self {
        Self { read: Some(read), write: None, reads: 1.0, thinks: Duration::ZERO }
    }

    /// Work that only writes.
    pub(super) fn writing(write: Ask) -> Self {
        Self { read: None, write: Some(write), reads: 0.0, thinks: Duration::ZERO }
    }

    /// A random think time.
    fn pause(&self, random: &mut Random) -> Duration {
        self.thinks.mul_f64(-(1.0 - random.unit()).ln())
    }

    /// Kind of the next statement.
    fn next(&self, random: &mut Random) -> Kind {
        match (&self.read, &self.write) {
            (Some(_), None) => Kind::Read,
            (None, _) => Kind::Write,
            (Some(_), Some(_)) if random.unit() < self.reads => Kind::Read,
            (Some(_), Some(_)) => Kind::Write,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
}

/// Work between two measurements.
#[derive(Clone, Debug, Default)]
pub(super) struct Span {
    pub(super) seconds: f64,
    pub(super) reads: Latencies,
    pub(super) writes: Latencies,
    /// Rejected requests, and reads without a row.
    pub(super) failed: u64,
    /// Their messages, without duplicates.
    pub(super) messages: Vec<String>,
}

#[expect(clippy::cast_precision_loss, reason = "requests of a run fit 53 bits")]
impl Span {
    /// Reads a second.
    pub(super) fn reads_per_s(&self) -> f64 {
        self.reads.count() as f64 / self.seconds.max(1e-3)
    }

    /// Writes a second.
    pub(super) fn writes_per_s(&self) -> f64 {
        self.writes.count() as f64 / self.seconds.max(1e-3)
    }
}

#[derive(Default)]
struct Shared {
    tally: Mutex<Span>,
    failure: Mutex<Option<String>>,
    stop: AtomicBool,
}

/// The mutexes guard counters only, so poisoning does not matter.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn failed(&self, message: String) {
        let mut tally = lock(&self.tally);
        tally.failed += 1;
        if tally.messages.len() < MESSAGES_MAX && !tally.messages.contains(&message) {
            tally.messages.push(message);
        }
    }
}

/// Running clients; they end when this is dropped.
pub(super) struct Clients {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
    looked: Instant,
}

impl Clients {
    /// Connects this number of clients, distributed over the servers, and starts them.
    ///
    /// # Errors
    /// If a server cannot be reached, or refuses the statements.
    pub(super) async fn start(
        servers: &[String],
        count: u32,
        work: &Work,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let mut ready = Vec::new();
        for (number, server) in (0..u64::from(count)).zip(servers.iter().cycle()) {
            let client = postgres::connect(server, "public").await?;
            let statements = Statements::of(&client, work).await?;
            ready.push(Worker {
                client,
                statements,
                work: work.clone(),
                random: Random::new(seed, number),
            });
        }
        let shared = Arc::new(Shared::default());
        let mut tasks = JoinSet::new();
        for worker in ready {
            tasks.spawn(worker.run(Arc::clone(&shared)));
        }
        Ok(Self { shared, tasks, looked: Instant::now() })
    }

    /// Work since the last measurement.
    ///
    /// # Errors
    /// If a client had an error that a retry does not resolve.
    pub(super) fn look(&mut self) -> anyhow::Result<Span> {
        if let Some(failure) = lock(&self.shared.failure).take() {
            bail!("{failure}");
        }
        let mut span = std::mem::take(&mut *lock(&self.shared.tally));
        let time = Instant::now();
        span.seconds = time.duration_since(self.looked).as_secs_f64();
        self.looked = time;
        Ok(span)
    }

    /// Work during this time, from now on.
    ///
    /// # Errors
    /// As [`Self::look`].
    pub(super) async fn during(&mut self, time: Duration) -> anyhow::Result<Span> {
        self.look()?;
        tokio::time::sleep(time).await;
        self.look()
    }

    /// Waits for the requests in flight, and ends the clients.
    pub(super) async fn finish(mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let remaining = async { while self.tasks.join_next().await.is_some() {} };
        // Requests without an answer by then are aborted with the set.
        tokio::time::timeout(LAST_WAIT, remaining).await.ok();
    }

    /// Work of this number of clients during this time, after a warm-up of a fifth of it.
    ///
    /// # Errors
    /// As [`Self::start`] and [`Self::look`].
    pub(super) async fn measure(
        servers: &[String],
        count: u32,
        work: &Work,
        seed: u64,
        time: Duration,
    ) -> anyhow::Result<Span> {
        let mut clients = Self::start(servers, count, work, seed).await?;
        tokio::time::sleep(time / 5).await;
        let span = clients.during(time).await?;
        clients.finish().await;
        Ok(span)
    }
}

struct Statements {
    read: Option<Statement>,
    write: Option<Statement>,
}

impl Statements {
    async fn of(client: &Client, work: &Work) -> anyhow::Result<Self> {
        Ok(Self {
            read: prepared(client, work.read.as_ref()).await?,
            write: prepared(client, work.write.as_ref()).await?,
        })
    }
}

async fn prepared(client: &Client, ask: Option<&Ask>) -> anyhow::Result<Option<Statement>> {
    let Some(ask) = ask else { return Ok(None) };
    let statement = client.prepare(&ask.text).await;
    Ok(Some(statement.with_context(|| format!("{} cannot be prepared", ask.text))?))
}

struct Worker {
    client: Client,
    statements: Statements,
    work: Work,
    random: Random,
}

impl Worker {
    async fn run(mut self, shared: Arc<Shared>) {
        while !shared.stop.load(Ordering::Relaxed) {
            let kind = self.work.next(&mut self.random);
            let (ask, statement) = match kind {
                Kind::Read => (&self.work.read, &self.statements.read),
                Kind::Write => (&self.work.write, &self.statements.write),
            };
            // Think time, then one statement.
            let (Some(ask), Some(statement)) = (ask, statement) else { return };
            if !self.work.thinks.is_zero() {
                tokio::time::sleep(self.work.pause(&mut self.random)).await;
            }
            let values = (ask.draw)(&mut self.random);
            let parameters: Vec<&(dyn ToSql + Sync)> = values.iter().map(Value::as_sql).collect();
            let start = Instant::now();
            let answer = match kind {
                Kind::Read => {
                    self.client.query(statement, &parameters).await.map(|rows| rows.len())
                }
                Kind::Write => self.client.execute(statement, &parameters).await.map(|_| 1),
            };
            let took = start.elapsed();
            // Only rows that were found or written count; a rejected request is retried.
            match (answer, kind) {
                (Ok(0), _) => shared.failed(format!("a read of {values:?} found nothing")),
                (Ok(_), Kind::Read) => lock(&shared.tally).reads.record(took),
                (Ok(_), Kind::Write) => lock(&shared.tally).writes.record(took),
                (Err(error), _) => {
                    let failure = postgres::failure(&error);
                    if failure.lost || !failure.retryable {
                        *lock(&shared.failure) = Some(failure.message);
                        return;
                    }
                    shared.failed(failure.message);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask() -> Ask {
        Ask { text: String::new(), draw: Arc::new(|_| Vec::new()) }
    }

    #[test]
    fn reads_and_writes_come_in_their_shares() {
        let mut random = Random::new(1, 0);
        let thinks = Duration::from_millis(100);
        let mix = Work { read: Some(ask()), write: Some(ask()), reads: 0.9, thinks };
        let reads = (0..10_000).filter(|_| mix.next(&mut random) == Kind::Read).count();
        assert!((8_800..9_200).contains(&reads), "{reads}");
        let thought: Duration = (0..10_000).map(|_| mix.pause(&mut random)).sum();
        assert!((950..1_050).contains(&thought.as_secs()), "{thought:?}");
        assert_eq!(Work::reading(ask()).next(&mut random), Kind::Read);
        assert_eq!(Work::writing(ask()).next(&mut random), Kind::Write);
    }

    #[test]
    fn a_span_has_rates_and_the_same_refusal_once() {
        let shared = Shared::default();
        for message in ["later", "later", "too much"] {
            shared.failed(message.to_owned());
        }
        lock(&shared.tally).writes.record(Duration::from_millis(3));
        lock(&shared.tally).reads.record(Duration::from_millis(1));
        let mut span = std::mem::take(&mut *lock(&shared.tally));
        span.seconds = 0.5;
        assert_eq!((span.reads_per_s(), span.writes_per_s(), span.failed), (2.0, 2.0, 3));
        assert_eq!(span.messages, ["later", "too much"]);
    }
}
