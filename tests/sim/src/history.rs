//! Operations and observations of the clients, in order.
//!
//! Invariant: an operation takes a number from one sequence before anything is sent and another after the answer
//! has arrived, so that "ended before the other began" is a comparison of numbers.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// An operation on a key with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The value written; `None` for a delete.
    Write(Option<i64>),
    /// The value read; `None` if there was no row.
    Read(Option<i64>),
    /// The value read, and the one written under the condition that nobody has written the key since.
    Exchange(Option<i64>, Option<i64>),
}

/// An operation on one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) client: u64,
    pub(crate) key: i64,
    pub(crate) action: Action,
    pub(crate) begun: u64,
    /// `None` if it is unknown whether the operation has taken or will take effect.
    pub(crate) ended: Option<u64>,
}

#[derive(Default)]
struct State {
    clock: u64,
    operations: Vec<Operation>,
    attempted: BTreeSet<i64>,
    acknowledged: BTreeSet<i64>,
    splits: u64,
    merges: u64,
    violations: Vec<String>,
    trace: Vec<String>,
    digest: u64,
    print: bool,
}

/// The record of a run.
#[derive(Default)]
pub(crate) struct History(Mutex<State>);

impl History {
    /// An empty history; `print` shows events as they happen.
    pub(crate) fn new(print: bool) -> Self {
        Self(Mutex::new(State { print, ..State::default() }))
    }

    fn tick(state: &mut State) -> u64 {
        state.clock += 1;
        state.clock
    }

    /// Begins an operation; returns its index.
    pub(crate) fn begin(&self, client: u64, key: i64, action: Action) -> usize {
        let mut state = self.0.lock();
        let sequence = Self::tick(&mut state);
        state.operations.push(Operation { client, key, action, begun: sequence, ended: None });
        state.operations.len() - 1
    }

    /// Ends an operation; the result of a read is known only now.
    pub(crate) fn end(&self, place: usize, action: Action) {
        let mut state = self.0.lock();
        let ended = Self::tick(&mut state);
        if let Some(operation) = state.operations.get_mut(place) {
            operation.ended = Some(ended);
            operation.action = action;
        }
    }

    /// Records that an operation had no effect and never will: as a read without an answer.
    pub(crate) fn cancel(&self, place: usize) {
        if let Some(operation) = self.0.lock().operations.get_mut(place) {
            operation.action = Action::Read(None);
        }
    }

    /// Records row numbers whose append begins.
    pub(crate) fn attempt(&self, rows: &[i64]) {
        self.0.lock().attempted.extend(rows);
    }

    /// Records row numbers as acknowledged.
    pub(crate) fn acknowledge(&self, rows: &[i64]) {
        self.0.lock().acknowledged.extend(rows);
    }

    pub(crate) fn acknowledged(&self) -> BTreeSet<i64> {
        self.0.lock().acknowledged.clone()
    }

    pub(crate) fn attempted(&self) -> BTreeSet<i64> {
        self.0.lock().attempted.clone()
    }

    /// Counts a split of a partition.
    pub(crate) fn split(&self) {
        self.0.lock().splits += 1;
    }

    pub(crate) fn splits(&self) -> u64 {
        self.0.lock().splits
    }

    /// Counts a merge of two partitions.
    pub(crate) fn merged(&self) {
        self.0.lock().merges += 1;
    }

    pub(crate) fn merges(&self) -> u64 {
        self.0.lock().merges
    }

    pub(crate) fn operations(&self) -> Vec<Operation> {
        self.0.lock().operations.clone()
    }

    /// Records a violation of an invariant.
    pub(crate) fn violation(&self, text: String) {
        self.note(format!("VIOLATION {text}"));
        self.0.lock().violations.push(text);
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.0.lock().violations.clone()
    }

    /// Records an event, which also goes into the digest.
    pub(crate) fn note(&self, event: impl std::fmt::Display) {
        let time = tokio::time::Instant::now();
        let line = format!("{:>10.6} {event}", time.duration_since(start()).as_secs_f64());
        let mut state = self.0.lock();
        state.digest = xxhash_rust::xxh3::xxh3_64_with_seed(line.as_bytes(), state.digest);
        if state.print {
            eprintln!("{line}");
        }
        state.trace.push(line);
    }

    /// A hash of all events, to compare runs.
    pub(crate) fn digest(&self) -> u64 {
        self.0.lock().digest
    }

    /// The last `lines` events.
    pub(crate) fn tail(&self, lines: usize) -> Vec<String> {
        let state = self.0.lock();
        state.trace[state.trace.len().saturating_sub(lines)..].to_vec()
    }
}

static START: std::sync::OnceLock<tokio::time::Instant> = std::sync::OnceLock::new();

/// The start of the run in simulated time.
pub(crate) fn start() -> tokio::time::Instant {
    *START.get_or_init(tokio::time::Instant::now)
}
