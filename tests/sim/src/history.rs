//! What clients did and saw, in the order in which it happened.
//!
//! Invariant: a number of the one sequence is drawn before anything is sent, and another after the answer has come, so
//! that "over before the other began" is a comparison of numbers.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// What an operation on a key did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Set the value, or removed it.
    Write(Option<i64>),
    /// Saw this value.
    Read(Option<i64>),
}

/// An operation on one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) client: u64,
    pub(crate) key: i64,
    pub(crate) action: Action,
    pub(crate) begun: u64,
    /// `None`: nobody knows whether it took effect, or whether it will.
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

/// All that is known of a run.
#[derive(Default)]
pub(crate) struct History(Mutex<State>);

impl History {
    /// An empty one; `print`: events are shown as they happen.
    pub(crate) fn new(print: bool) -> Self {
        Self(Mutex::new(State { print, ..State::default() }))
    }

    fn tick(state: &mut State) -> u64 {
        state.clock += 1;
        state.clock
    }

    /// Begins an operation; the answer is its place.
    pub(crate) fn begin(&self, client: u64, key: i64, action: Action) -> usize {
        let mut state = self.0.lock();
        let begun = Self::tick(&mut state);
        state.operations.push(Operation { client, key, action, begun, ended: None });
        state.operations.len() - 1
    }

    /// Ends it; a read's action is known only now.
    pub(crate) fn end(&self, place: usize, action: Action) {
        let mut state = self.0.lock();
        let ended = Self::tick(&mut state);
        if let Some(operation) = state.operations.get_mut(place) {
            operation.ended = Some(ended);
            operation.action = action;
        }
    }

    /// Rows are about to be appended.
    pub(crate) fn attempt(&self, rows: &[i64]) {
        self.0.lock().attempted.extend(rows);
    }

    /// They were acknowledged.
    pub(crate) fn acknowledge(&self, rows: &[i64]) {
        self.0.lock().acknowledged.extend(rows);
    }

    pub(crate) fn acknowledged(&self) -> BTreeSet<i64> {
        self.0.lock().acknowledged.clone()
    }

    pub(crate) fn attempted(&self) -> BTreeSet<i64> {
        self.0.lock().attempted.clone()
    }

    /// A partition was cut.
    pub(crate) fn split(&self) {
        self.0.lock().splits += 1;
    }

    pub(crate) fn splits(&self) -> u64 {
        self.0.lock().splits
    }

    /// Two partitions became one.
    pub(crate) fn merged(&self) {
        self.0.lock().merges += 1;
    }

    pub(crate) fn merges(&self) -> u64 {
        self.0.lock().merges
    }

    pub(crate) fn operations(&self) -> Vec<Operation> {
        self.0.lock().operations.clone()
    }

    /// Something that must never happen.
    pub(crate) fn violation(&self, what: String) {
        self.note(format!("VIOLATION {what}"));
        self.0.lock().violations.push(what);
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.0.lock().violations.clone()
    }

    /// Something that happened; it goes into the digest.
    pub(crate) fn note(&self, what: impl std::fmt::Display) {
        let now = tokio::time::Instant::now();
        let line = format!("{:>10.6} {what}", now.duration_since(start()).as_secs_f64());
        let mut state = self.0.lock();
        state.digest = xxhash_rust::xxh3::xxh3_64_with_seed(line.as_bytes(), state.digest);
        if state.print {
            eprintln!("{line}");
        }
        state.trace.push(line);
    }

    /// A number that differs when anything was different.
    pub(crate) fn digest(&self) -> u64 {
        self.0.lock().digest
    }

    /// The last events.
    pub(crate) fn tail(&self, lines: usize) -> Vec<String> {
        let state = self.0.lock();
        state.trace[state.trace.len().saturating_sub(lines)..].to_vec()
    }
}

static START: std::sync::OnceLock<tokio::time::Instant> = std::sync::OnceLock::new();

/// When the run began.
pub(crate) fn start() -> tokio::time::Instant {
    *START.get_or_init(tokio::time::Instant::now)
}
