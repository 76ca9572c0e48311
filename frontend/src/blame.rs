//! Samples of the rows that statements write and read, with their causes: who makes a partition hot.
//!
//! ```text
//!   ingest ─── wrote ─┐
//!                     ├─ some statements of a second ── Intake: some of their rows ── every 5 s ──▶ meta
//!   observer ── read ─┘
//! ```
//!
//! Invariants: a sample neither fails nor delays a statement; work and memory are bounded by the number of samples, not
//! by that of statements or rows; no literal of a statement is in a cause, but keys of rows are in samples.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow::record_batch::RecordBatch;
use parking_lot::Mutex;
use partita_load::{Cause, Intake, Intaken, PartitionId as Sampled};
use partita_proto::blame::BlameReport;
use partita_proto::catalog::Table;
use partita_proto::id::PartitionId;
use partita_proto::service::MetaService;
use partita_sql::fingerprint::fingerprint;
use tokio_util::sync::CancellationToken;

use crate::ingest::plan::TablePlan;
use crate::router::place;
use crate::stalls::Stalls;

/// Interval between reports to meta, which judges spans of a minute.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// Statements of a second that are looked at, about: of more, an even part is.
const STATEMENTS_MAX: u64 = 1_024;
/// Bytes of a statement from which its shape is made; a long one is mostly rows.
const STATEMENT_BYTES: usize = 1 << 10;
/// Maximum bytes of a shape in a cause.
const SHAPE_BYTES_MAX: usize = 200;
/// Maximum bytes of the names of a user and of an application.
const NAME_BYTES_MAX: usize = 64;
/// Longer keys are left out of samples, which keep their partition.
const KEY_BYTES_MAX: usize = 1 << 10;

/// The cause of rows that a statement of a kind writes or reads. The text may have literals, the cause has none.
pub(crate) fn cause_of(
    (kind, text): (&str, &str),
    user: &str,
    application: &str,
    peer: Option<IpAddr>,
) -> Cause {
    let (_, shape) = fingerprint(short(text, STATEMENT_BYTES));
    Cause {
        statement: short(&shape, SHAPE_BYTES_MAX).to_owned(),
        kind: kind.to_owned(),
        user: short(user, NAME_BYTES_MAX).to_owned(),
        application: short(application, NAME_BYTES_MAX).to_owned(),
        client: peer.map(|peer| peer.to_string()).unwrap_or_default(),
    }
}

fn short(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Seconds since 1970.
fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Takes the samples of one process, and sends them to meta.
pub(crate) struct Blame {
    meta: Arc<dyn MetaService>,
    /// Random number of the process.
    source: u64,
    taking: Mutex<Taking>,
    stalls: Arc<Stalls>,
}

struct Taking {
    intake: Intake,
    writes: Thinning,
    reads: Thinning,
}

/// Chooses statements at random, so that many small ones cost no more than some: making a cause costs more than writing
/// a row.
#[derive(Debug)]
struct Thinning {
    second: u64,
    /// Statements of the second so far.
    seen: u64,
    /// One of so many statements is chosen.
    every: u64,
    state: u64,
}

impl Thinning {
    fn new(seed: u64) -> Self {
        Self { second: 0, seen: 0, every: 1, state: seed }
    }

    /// Number of statements that this one stands for; `None` if it is not chosen.
    fn weight(&mut self, second: u64) -> Option<u64> {
        if second != self.second {
            // The second before is the best guess of how many will come.
            self.every = (self.seen / STATEMENTS_MAX).max(1);
            (self.second, self.seen) = (second, 0);
        }
        self.seen += 1;
        (self.every == 1 || self.random().is_multiple_of(self.every)).then_some(self.every)
    }

    /// The next number of a splitmix64 sequence.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Blame {
    pub(crate) fn new(meta: Arc<dyn MetaService>, stalls: Arc<Stalls>) -> Self {
        // The standard library's hashers are seeded with random keys.
        let random = || RandomState::new().build_hasher().finish();
        let taking = Taking {
            intake: Intake::new(random()),
            writes: Thinning::new(random()),
            reads: Thinning::new(random()),
        };
        Self { meta, source: random(), taking: Mutex::new(taking), stalls }
    }

    /// Takes samples of completed rows on their way to a table.
    pub(crate) fn wrote(
        &self,
        table: &Table,
        plan: &TablePlan,
        rows: &RecordBatch,
        cause: impl FnOnce() -> Cause,
    ) {
        let second = now_s();
        let count = rows.num_rows() as u64;
        let Some(weight) = self.taking.lock().writes.weight(second).filter(|_| count > 0) else {
            return;
        };
        let cause = cause();
        let pick = |number: u64| row_at(table, plan, rows, number / weight);
        let mut taking = self.taking.lock();
        taking.intake.offer(second, false, count.saturating_mul(weight), &cause, pick);
    }

    /// Takes samples of the rows that a statement has read: for each of its scans the partitions, and the number of
    /// rows.
    pub(crate) fn read(
        &self,
        scans: impl FnOnce() -> Vec<(Vec<PartitionId>, u64)>,
        cause: impl FnOnce() -> Cause,
    ) {
        let second = now_s();
        let Some(weight) = self.taking.lock().reads.weight(second) else { return };
        let mut scans = scans();
        scans.retain(|(partitions, _)| !partitions.is_empty());
        if scans.is_empty() {
            return;
        }
        let cause = cause();
        let mut taking = self.taking.lock();
        for (partitions, rows) in scans {
            // A read that finds nothing is work, too.
            let total = partitions.len() as u64;
            let count = rows.max(total).saturating_mul(weight);
            let pick = |number: u64| {
                let position = usize::try_from(number / weight % total).ok()?;
                partitions.get(position).map(|partition| (Sampled(partition.0), None))
            };
            taking.intake.offer(second, true, count, &cause, pick);
        }
    }

    /// Samples of the seconds before this one since the last call.
    pub(crate) fn take(&self, second: u64) -> Intaken {
        self.taking.lock().intake.take(second)
    }

    /// Sends samples to meta until it is stopped.
    pub(crate) async fn tell(&self, stop: &CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(TELL_EVERY) => self.tell_once(now_s()).await,
            }
        }
    }

    /// Sends the samples of the seconds before this one and the stalls of writes, if there are any.
    pub(crate) async fn tell_once(&self, second: u64) {
        let (samples, stalls) = (self.take(second), self.stalls.take());
        if samples.seconds.is_empty() && stalls.is_empty() {
            return;
        }
        // Samples are worth nothing later, and a meta of an earlier version takes none.
        let report = BlameReport { source: self.source, taken: samples, stalls };
        if let Err(error) = self.meta.blame(report).await {
            tracing::debug!(%error, "meta did not take samples of causes");
        }
    }
}

/// The partition and the key of a row; `None` for one that cannot be placed, which the router refuses.
fn row_at(
    table: &Table,
    plan: &TablePlan,
    rows: &RecordBatch,
    number: u64,
) -> Option<(Sampled, Option<Box<[u8]>>)> {
    let position = usize::try_from(number).ok().filter(|position| *position < rows.num_rows())?;
    let row = place(table, rows.slice(position, 1)).ok()?;
    let keys = plan.codec.encode(&row).ok()?;
    let key = keys.first()?;
    let partition = table.partitions.find(key).partition;
    Some((Sampled(partition.0), (key.len() <= KEY_BYTES_MAX).then(|| key.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_statements_are_thinned_and_few_are_not() {
        let mut thinning = Thinning::new(7);
        let chosen = |thinning: &mut Thinning, second: u64, statements: u64| {
            (0..statements).filter_map(|_| thinning.weight(second)).collect::<Vec<u64>>()
        };
        assert_eq!(chosen(&mut thinning, 1, 40_960), vec![1; 40_960]);
        // One of forty stands for forty.
        let second = chosen(&mut thinning, 2, 40_960);
        assert!(second.iter().all(|weight| *weight == 40), "{second:?}");
        assert!((900..1_150).contains(&second.len()), "{}", second.len());
        // The next second is quieter, and the one after it counts each again.
        assert!(chosen(&mut thinning, 3, 10).iter().all(|weight| *weight == 40));
        assert_eq!(chosen(&mut thinning, 4, 10), vec![1; 10]);
    }

    #[test]
    fn a_cause_has_no_literal_and_is_short() {
        let text = format!("INSERT INTO t VALUES (1, 'secret{}')", "x".repeat(5_000));
        let peer = "192.0.2.7".parse().ok();
        let cause = cause_of(("INSERT", &text), &"u".repeat(100), "loader", peer);
        assert!(cause.statement.starts_with("INSERT INTO t VALUES"), "{}", cause.statement);
        assert!(!cause.statement.contains("secret"), "{}", cause.statement);
        assert_eq!((cause.user.len(), cause.application.as_str()), (64, "loader"));
        assert_eq!((cause.kind.as_str(), cause.client.as_str()), ("INSERT", "192.0.2.7"));
        let columns: Vec<String> = (0..200).map(|number| format!("column_{number}")).collect();
        let wide =
            cause_of(("SELECT", &format!("SELECT {} FROM t", columns.join(", "))), "", "", None);
        assert!(wide.statement.len() <= 200 && wide.client.is_empty(), "{}", wide.statement);
    }
}
