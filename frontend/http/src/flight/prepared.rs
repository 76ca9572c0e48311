//! Prepared statements of Flight SQL clients.
//!
//! The protocol has no connections, so a client that goes away without closing its statements leaves
//! them behind. There is room for a bounded number; the longest unused go first, and their owners are
//! told to prepare again.

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
    /// The values of one execution each; none: executed once, without values.
    pub(crate) bound: Arc<Vec<Vec<ScalarValue>>>,
}

struct Entry {
    statement: Statement,
    /// When it was used last, by a count of uses.
    used: u64,
}

#[derive(Default)]
struct Entries {
    by_handle: HashMap<Uuid, Entry>,
    /// The handles in the order of their last use.
    by_use: BTreeMap<u64, Uuid>,
    uses: u64,
}

/// All of them.
pub(crate) struct Statements {
    entries: Mutex<Entries>,
    max: usize,
}

impl Statements {
    pub(crate) fn new(max: usize) -> Self {
        Self { entries: Mutex::default(), max: max.max(1) }
    }

    /// Keeps a statement. Returns its handle, which nobody can guess.
    pub(crate) fn add(&self, statement: Statement) -> Bytes {
        let handle = Uuid::new_v4();
        let mut entries = self.entries.lock();
        while entries.by_handle.len() >= self.max
            && let Some((_, oldest)) = entries.by_use.pop_first()
        {
            entries.by_handle.remove(&oldest);
        }
        let used = entries.next_use(handle);
        entries.by_handle.insert(handle, Entry { statement, used });
        Bytes::copy_from_slice(handle.as_bytes())
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

    /// Gives a statement other values. Returns whether there is one.
    pub(crate) fn bind(&self, handle: &[u8], bound: Vec<Vec<ScalarValue>>) -> bool {
        let Ok(handle) = Uuid::from_slice(handle) else { return false };
        let mut entries = self.entries.lock();
        let entry = entries.by_handle.get_mut(&handle);
        entry.map(|entry| entry.statement.bound = Arc::new(bound)).is_some()
    }

    /// Forgets a statement; none is no error.
    pub(crate) fn remove(&self, handle: &[u8]) {
        let Ok(handle) = Uuid::from_slice(handle) else { return };
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.by_handle.remove(&handle) {
            entries.by_use.remove(&entry.used);
        }
    }
}

impl Entries {
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
        let statement = Statement { session, prepared, bound: Arc::default() };
        let statements = Statements::new(2);
        let first = statements.add(statement.clone());
        let second = statements.add(statement.clone());
        assert!(statements.get(&first).is_some());
        assert!(statements.bind(&first, vec![vec![ScalarValue::Int64(Some(1))]]));
        let third = statements.add(statement);
        assert!(statements.get(&second).is_none(), "the second was not used since");
        assert_eq!(statements.get(&first).unwrap().bound.len(), 1);
        statements.remove(&third);
        assert!(statements.get(&third).is_none());
        assert!(statements.get(b"nonsense").is_none());
        assert!(!statements.bind(&second, Vec::new()));
        assert_eq!(statements.entries.lock().by_use.len(), 1);
    }
}
