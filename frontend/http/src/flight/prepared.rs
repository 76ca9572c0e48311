//! Prepared statements of Flight SQL clients.
//!
//! The protocol has no connections, so a client that goes away without closing its statements leaves
//! them behind. There is room for a bounded number, and a bounded size; the longest unused go first, and their owners
//! are told to prepare again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use datafusion::common::ScalarValue;
use parking_lot::Mutex;
use partita_frontend::{Prepared, Session};
use uuid::Uuid;

/// A statement of a client, and the values that it has bound.
#[derive(Clone)]
pub(crate) struct Statement {
    pub(crate) session: Arc<Session>,
    pub(crate) prepared: Arc<Prepared>,
    /// Bytes of its text.
    pub(crate) text_bytes: usize,
    /// The values of one execution each; none: executed once, without values.
    pub(crate) bound: Arc<Vec<Vec<ScalarValue>>>,
}

/// What a plan takes for each byte of the text that it was made of, about.
const PLAN_RATIO: usize = 32;
/// What a statement takes at least.
const STATEMENT_BYTES: usize = 4 << 10;

impl Statement {
    /// The memory that it takes, about.
    fn bytes(&self) -> usize {
        let values = self.bound.iter().flatten().map(ScalarValue::size);
        let values = values.fold(0, usize::saturating_add);
        let text = self.text_bytes.saturating_mul(PLAN_RATIO);
        STATEMENT_BYTES.saturating_add(text).saturating_add(values)
    }
}

struct Entry {
    statement: Statement,
    /// What it counts for.
    bytes: usize,
    /// When it was used last, by a count of uses.
    used: u64,
}

#[derive(Default)]
struct Entries {
    by_handle: HashMap<Uuid, Entry>,
    /// The handles in the order of their last use.
    by_use: BTreeMap<u64, Uuid>,
    uses: u64,
    /// What all of them take.
    bytes: usize,
}

/// All of them.
pub(crate) struct Statements {
    entries: Mutex<Entries>,
    max: usize,
    bytes_max: usize,
}

impl Statements {
    /// Room for `max` statements that take `bytes_max` bytes together.
    pub(crate) fn new(max: usize, bytes_max: usize) -> Self {
        Self { entries: Mutex::default(), max: max.max(1), bytes_max }
    }

    /// Keeps a statement. Returns its handle, which nobody can guess; `None` when it is too large by itself.
    pub(crate) fn add(&self, statement: Statement) -> Option<Bytes> {
        let bytes = statement.bytes();
        if bytes > self.bytes_max {
            return None;
        }
        let handle = Uuid::new_v4();
        let mut entries = self.entries.lock();
        entries.make_room(self.max - 1, self.bytes_max - bytes);
        let used = entries.next_use(handle);
        entries.bytes += bytes;
        entries.by_handle.insert(handle, Entry { statement, bytes, used });
        Some(Bytes::copy_from_slice(handle.as_bytes()))
    }

    /// The statement of a handle.
    pub(crate) fn get(&self, handle: &[u8]) -> Option<Statement> {
        let handle = Uuid::from_slice(handle).ok()?;
        let mut entries = self.entries.lock();
        let before = entries.by_handle.get(&handle)?.used;
        entries.by_use.remove(&before);
        let used = entries.next_use(handle);
        let entry = entries.by_handle.get_mut(&handle)?;
        entry.used = used;
        Some(entry.statement.clone())
    }

    /// Gives a statement other values.
    pub(crate) fn bind(&self, handle: &[u8], bound: Vec<Vec<ScalarValue>>) -> Binding {
        let Ok(handle) = Uuid::from_slice(handle) else { return Binding::Unknown };
        let mut entries = self.entries.lock();
        // Taken out, so that it does not make room for itself.
        let Some(mut entry) = entries.take(handle) else { return Binding::Unknown };
        let before = std::mem::replace(&mut entry.statement.bound, Arc::new(bound));
        let mut binding = Binding::Bound;
        entry.bytes = entry.statement.bytes();
        if entry.bytes > self.bytes_max {
            entry.statement.bound = before;
            entry.bytes = entry.statement.bytes();
            binding = Binding::TooLarge;
        }
        entries.make_room(self.max - 1, self.bytes_max.saturating_sub(entry.bytes));
        entry.used = entries.next_use(handle);
        entries.bytes += entry.bytes;
        entries.by_handle.insert(handle, entry);
        binding
    }

    /// Forgets a statement; none is no error.
    pub(crate) fn remove(&self, handle: &[u8]) {
        let Ok(handle) = Uuid::from_slice(handle) else { return };
        drop(self.entries.lock().take(handle));
    }
}

/// What became of values for a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    /// It has them.
    Bound,
    /// It keeps those that it had: these take more than all statements may.
    TooLarge,
    /// There is no such statement.
    Unknown,
}

impl Entries {
    /// Forgets the longest unused ones until no more than `count` are left, which take no more than `bytes`.
    fn make_room(&mut self, count: usize, bytes: usize) {
        while (self.by_handle.len() > count || self.bytes > bytes)
            && let Some((_, oldest)) = self.by_use.first_key_value()
        {
            let oldest = *oldest;
            drop(self.take(oldest));
        }
    }

    fn take(&mut self, handle: Uuid) -> Option<Entry> {
        let entry = self.by_handle.remove(&handle)?;
        self.by_use.remove(&entry.used);
        self.bytes -= entry.bytes;
        Some(entry)
    }

    fn next_use(&mut self, handle: Uuid) -> u64 {
        self.uses += 1;
        self.by_use.insert(self.uses, handle);
        self.uses
    }
}

#[cfg(test)]
mod tests {
    use partita_frontend::fake::Fake;
    use partita_frontend::{FrontendOptions, SessionOptions};

    use super::*;

    #[tokio::test]
    async fn the_longest_unused_statement_goes_first() {
        let frontend = Fake::new(1).frontend(FrontendOptions::default()).unwrap();
        let session = frontend.session(SessionOptions::default());
        let parsed = session.parse("SELECT 1").await.unwrap().remove(0);
        let prepared = session.prepare(parsed, &[]).await.unwrap();
        let statement = Statement { session, prepared, text_bytes: 8, bound: Arc::default() };
        let statements = Statements::new(2, 1 << 20);
        let first = statements.add(statement.clone()).unwrap();
        let second = statements.add(statement.clone()).unwrap();
        assert!(statements.get(&first).is_some());
        let one = vec![vec![ScalarValue::Int64(Some(1))]];
        assert_eq!(statements.bind(&first, one), Binding::Bound);
        let third = statements.add(statement).unwrap();
        assert!(statements.get(&second).is_none(), "the second was not used since");
        assert_eq!(statements.get(&first).unwrap().bound.len(), 1);
        statements.remove(&third);
        assert!(statements.get(&third).is_none());
        assert!(statements.get(b"nonsense").is_none());
        assert_eq!(statements.bind(&second, Vec::new()), Binding::Unknown);
        assert_eq!(statements.entries.lock().by_use.len(), 1);
        statements.remove(&first);
        assert_eq!(statements.entries.lock().bytes, 0);
    }

    #[tokio::test]
    async fn statements_are_bounded_by_their_size_too() {
        let frontend = Fake::new(1).frontend(FrontendOptions::default()).unwrap();
        let session = frontend.session(SessionOptions::default());
        let parsed = session.parse("SELECT 1").await.unwrap().remove(0);
        let prepared = session.prepare(parsed, &[]).await.unwrap();
        let of = |text_bytes| Statement {
            session: Arc::clone(&session),
            prepared: Arc::clone(&prepared),
            text_bytes,
            bound: Arc::default(),
        };
        let statements = Statements::new(1000, 1 << 20);
        assert!(statements.add(of(1 << 20)).is_none(), "larger than all of them may be");
        let handles: Vec<_> = (0..100).map(|_| statements.add(of(1000)).unwrap()).collect();
        let kept = handles.iter().filter(|handle| statements.get(handle).is_some()).count();
        assert!((10..40).contains(&kept), "{kept} of 36 KB each in a MiB");
        let value = |len| vec![vec![ScalarValue::from("x".repeat(len))]];
        let last = handles.last().unwrap();
        assert_eq!(statements.bind(last, value(2 << 20)), Binding::TooLarge);
        assert_eq!(statements.get(last).unwrap().bound.len(), 0);
        assert_eq!(statements.bind(last, value(900 << 10)), Binding::Bound);
        assert!(statements.entries.lock().bytes <= 1 << 20);
        assert!(statements.entries.lock().by_handle.len() < 5, "the others made room");
    }
}
