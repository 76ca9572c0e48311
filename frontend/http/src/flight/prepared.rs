//! Prepared statements of Flight SQL clients.
//!
//! The protocol has no connections, so a client that disconnects without closing its statements leaves them behind.
//! Their number and size are bounded; the least recently used are dropped first, and their clients get an error and
//! prepare again.
//!
//! Invariant: a handle means nothing to another identity than the one that prepared the statement.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use datafusion::common::ScalarValue;
use parking_lot::Mutex;
use partita_frontend::{Prepared, Session};
use partita_proto::access::Identity;
use uuid::Uuid;

/// A client's statement, and the values that are bound to it.
#[derive(Clone)]
pub(crate) struct Statement {
    /// Identity that prepared the statement.
    pub(crate) owner: Identity,
    pub(crate) session: Arc<Session>,
    pub(crate) prepared: Arc<Prepared>,
    /// Length of the text in bytes.
    pub(crate) text_bytes: usize,
    /// The values of one execution each; empty: executed once, without values.
    pub(crate) bound: Arc<Vec<Vec<ScalarValue>>>,
}

/// Approximate bytes of a plan for each byte of the statement's text.
const PLAN_RATIO: usize = 32;
/// Minimum bytes of a statement.
const STATEMENT_BYTES: usize = 4 << 10;

impl Statement {
    /// Approximate memory of the statement in bytes.
    fn bytes(&self) -> usize {
        let values = self.bound.iter().flatten().map(ScalarValue::size);
        let values = values.fold(0, usize::saturating_add);
        let text = self.text_bytes.saturating_mul(PLAN_RATIO);
        STATEMENT_BYTES.saturating_add(text).saturating_add(values)
    }
}

struct Entry {
    statement: Statement,
    /// Bytes that it is counted with.
    bytes: usize,
    /// The last use, by a count of uses.
    used: u64,
}

#[derive(Default)]
struct Entries {
    by_handle: HashMap<Uuid, Entry>,
    /// The handles in the order of their last use.
    by_use: BTreeMap<u64, Uuid>,
    uses: u64,
    /// Total bytes of all statements.
    bytes: usize,
}

/// The prepared statements of all clients.
pub(crate) struct Statements {
    entries: Mutex<Entries>,
    max: usize,
    bytes_max: usize,
}

impl Statements {
    /// Room for `max` statements that occupy `bytes_max` bytes in total.
    pub(crate) fn new(max: usize, bytes_max: usize) -> Self {
        Self { entries: Mutex::default(), max: max.max(1), bytes_max }
    }

    /// Stores a statement. Returns its handle, which cannot be guessed; `None` when it is too large by itself.
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

    /// The statement with a handle; `None` if an identity has none.
    pub(crate) fn get(&self, identity: &Identity, handle: &[u8]) -> Option<Statement> {
        let handle = Uuid::from_slice(handle).ok()?;
        let mut entries = self.entries.lock();
        let previous_use = entries.owned(identity, handle)?.used;
        entries.by_use.remove(&previous_use);
        let used = entries.next_use(handle);
        let entry = entries.by_handle.get_mut(&handle)?;
        entry.used = used;
        Some(entry.statement.clone())
    }

    /// Binds other values to a statement.
    pub(crate) fn bind(
        &self,
        identity: &Identity,
        handle: &[u8],
        bound: Vec<Vec<ScalarValue>>,
    ) -> Binding {
        let Ok(handle) = Uuid::from_slice(handle) else { return Binding::Unknown };
        let mut entries = self.entries.lock();
        if entries.owned(identity, handle).is_none() {
            return Binding::Unknown;
        }
        // Taken out, so that it is not dropped to make room for itself.
        let Some(mut entry) = entries.take(handle) else { return Binding::Unknown };
        let previous_values = std::mem::replace(&mut entry.statement.bound, Arc::new(bound));
        let mut binding = Binding::Bound;
        entry.bytes = entry.statement.bytes();
        if entry.bytes > self.bytes_max {
            entry.statement.bound = previous_values;
            entry.bytes = entry.statement.bytes();
            binding = Binding::TooLarge;
        }
        entries.make_room(self.max - 1, self.bytes_max.saturating_sub(entry.bytes));
        entry.used = entries.next_use(handle);
        entries.bytes += entry.bytes;
        entries.by_handle.insert(handle, entry);
        binding
    }

    /// Removes a statement; an unknown handle is no error.
    pub(crate) fn remove(&self, identity: &Identity, handle: &[u8]) {
        let Ok(handle) = Uuid::from_slice(handle) else { return };
        let mut entries = self.entries.lock();
        if entries.owned(identity, handle).is_some() {
            drop(entries.take(handle));
        }
    }
}

/// The result of binding values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    /// The values are bound.
    Bound,
    /// The previous values stay: the new ones exceed the limit for all statements.
    TooLarge,
    /// The statement does not exist.
    Unknown,
}

impl Entries {
    /// The entry with a handle, if it is the identity's.
    fn owned(&self, identity: &Identity, handle: Uuid) -> Option<&Entry> {
        self.by_handle.get(&handle).filter(|entry| entry.statement.owner == *identity)
    }

    /// Drops the least recently used statements until at most `count` remain, which occupy at most `bytes`.
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
        let owner = session.identity();
        let statement =
            Statement { owner, session, prepared, text_bytes: 8, bound: Arc::default() };
        let statements = Statements::new(2, 1 << 20);
        let first = statements.add(statement.clone()).unwrap();
        let second = statements.add(statement.clone()).unwrap();
        assert!(statements.get(&owner, &first).is_some());
        let single_row = vec![vec![ScalarValue::Int64(Some(1))]];
        assert_eq!(statements.bind(&owner, &first, single_row), Binding::Bound);
        let third = statements.add(statement).unwrap();
        assert!(statements.get(&owner, &second).is_none(), "the second was not used since");
        assert_eq!(statements.get(&owner, &first).unwrap().bound.len(), 1);
        statements.remove(&owner, &third);
        assert!(statements.get(&owner, &third).is_none());
        assert!(statements.get(&owner, b"nonsense").is_none());
        assert_eq!(statements.bind(&owner, &second, Vec::new()), Binding::Unknown);
        assert_eq!(statements.entries.lock().by_use.len(), 1);
        statements.remove(&owner, &first);
        assert_eq!(statements.entries.lock().bytes, 0);
    }

    #[tokio::test]
    async fn statements_are_bounded_by_their_size_too() {
        let frontend = Fake::new(1).frontend(FrontendOptions::default()).unwrap();
        let session = frontend.session(SessionOptions::default());
        let parsed = session.parse("SELECT 1").await.unwrap().remove(0);
        let prepared = session.prepare(parsed, &[]).await.unwrap();
        let owner = session.identity();
        let of = |text_bytes| Statement {
            owner,
            session: Arc::clone(&session),
            prepared: Arc::clone(&prepared),
            text_bytes,
            bound: Arc::default(),
        };
        let statements = Statements::new(1000, 1 << 20);
        assert!(statements.add(of(1 << 20)).is_none(), "larger than all of them may be");
        let handles: Vec<_> = (0..100).map(|_| statements.add(of(1000)).unwrap()).collect();
        let kept = handles.iter().filter(|handle| statements.get(&owner, handle).is_some()).count();
        assert!((10..40).contains(&kept), "{kept} of 36 KB each in a MiB");
        let value = |len| vec![vec![ScalarValue::from("x".repeat(len))]];
        let last = handles.last().unwrap();
        assert_eq!(statements.bind(&owner, last, value(2 << 20)), Binding::TooLarge);
        assert_eq!(statements.get(&owner, last).unwrap().bound.len(), 0);
        assert_eq!(statements.bind(&owner, last, value(900 << 10)), Binding::Bound);
        assert!(statements.entries.lock().bytes <= 1 << 20);
        assert!(statements.entries.lock().by_handle.len() < 5, "the others made room");
    }

    #[tokio::test]
    async fn a_handle_means_nothing_to_another_identity() {
        let frontend = Fake::new(1).frontend(FrontendOptions::default()).unwrap();
        let session = frontend.session(SessionOptions::default());
        let parsed = session.parse("SELECT 1").await.unwrap().remove(0);
        let prepared = session.prepare(parsed, &[]).await.unwrap();
        let owner = session.identity();
        let foreign = Identity { secret_version: owner.secret_version + 1, ..owner };
        let statement =
            Statement { owner, session, prepared, text_bytes: 8, bound: Arc::default() };
        let statements = Statements::new(2, 1 << 20);
        let handle = statements.add(statement).unwrap();
        assert!(statements.get(&foreign, &handle).is_none());
        assert_eq!(statements.bind(&foreign, &handle, Vec::new()), Binding::Unknown);
        statements.remove(&foreign, &handle);
        assert!(statements.get(&owner, &handle).is_some());
    }
}
