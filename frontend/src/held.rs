//! What a session holds under names: prepared statements and cursors, as `pg_prepared_statements` and `pg_cursors` list them.
//!
//! Statements of the protocol are held by the connection; the list says which of them a client may still name. DEALLOCATE
//! only takes them off the list, and the connection gives up what is not on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::datatypes::DataType;
use parking_lot::Mutex;

/// Types of the parameters of a prepared statement.
#[derive(Clone, Debug)]
pub enum ParameterTypes {
    /// As PREPARE or the planner found them.
    Arrow(Vec<DataType>),
    /// SQL names of those that the client was told.
    Named(Vec<String>),
}

/// A prepared statement.
#[derive(Clone, Debug)]
pub struct HeldStatement {
    /// The text, as the client sent it.
    pub text: String,
    /// Time of preparation, in milliseconds since 1970.
    pub since_ms: i64,
    /// Types of `$1`, `$2` and so on.
    pub parameter_types: ParameterTypes,
    /// True for PREPARE, false for a statement of the protocol.
    pub is_sql: bool,
}

/// An open cursor.
#[derive(Clone, Debug)]
pub struct HeldCursor {
    /// The text of its query.
    pub text: String,
    /// Time of DECLARE, in milliseconds since 1970.
    pub since_ms: i64,
    /// True if it outlives its transaction.
    pub is_holdable: bool,
    /// True if its rows can be fetched in any direction.
    pub is_scrollable: bool,
}

/// Milliseconds since 1970.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The lists of a session, by name.
#[derive(Debug, Default)]
pub struct Held {
    statements: Mutex<BTreeMap<String, HeldStatement>>,
    cursors: Mutex<BTreeMap<String, HeldCursor>>,
    /// True if statements of the protocol were taken off the list since the connection looked.
    is_reduced: AtomicBool,
}

impl Held {
    /// The prepared statements.
    pub fn statements(&self) -> BTreeMap<String, HeldStatement> {
        self.statements.lock().clone()
    }

    /// The open cursors.
    pub fn cursors(&self) -> BTreeMap<String, HeldCursor> {
        self.cursors.lock().clone()
    }

    /// True if a prepared statement has this name.
    pub fn has_statement(&self, name: &str) -> bool {
        self.statements.lock().contains_key(name)
    }

    /// Adds a prepared statement.
    pub fn add_statement(
        &self,
        name: &str,
        text: &str,
        parameter_types: ParameterTypes,
        is_sql: bool,
    ) {
        let text = text.to_owned();
        let statement = HeldStatement { text, since_ms: now_ms(), parameter_types, is_sql };
        self.statements.lock().insert(name.to_owned(), statement);
    }

    /// Removes a prepared statement; an unknown name is no error.
    pub fn remove_statement(&self, name: &str) {
        self.statements.lock().remove(name);
    }

    /// True if DEALLOCATE took statements of the protocol off the list since the last call.
    pub fn take_reduced(&self) -> bool {
        self.is_reduced.swap(false, Ordering::Relaxed)
    }

    /// Takes a statement of the protocol off the list; false if there is none of this name.
    pub(crate) fn deallocate(&self, name: &str) -> bool {
        let mut statements = self.statements.lock();
        if statements.get(name).is_none_or(|statement| statement.is_sql) {
            return false;
        }
        statements.remove(name);
        self.is_reduced.store(true, Ordering::Relaxed);
        true
    }

    /// Takes all statements off the list.
    pub(crate) fn deallocate_all(&self) {
        self.statements.lock().clear();
        self.is_reduced.store(true, Ordering::Relaxed);
    }

    /// Lists a cursor until the result is dropped.
    pub(crate) fn list_cursor(
        self: &Arc<Self>,
        name: &str,
        text: &str,
        is_holdable: bool,
        is_scrollable: bool,
    ) -> Listed {
        let text = text.to_owned();
        let cursor = HeldCursor { text, since_ms: now_ms(), is_holdable, is_scrollable };
        self.cursors.lock().insert(name.to_owned(), cursor);
        Listed { held: Arc::clone(self), name: name.to_owned() }
    }
}

/// A cursor on the list.
#[derive(Debug)]
pub(crate) struct Listed {
    held: Arc<Held>,
    name: String,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.held.cursors.lock().remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(held: &Held) -> Vec<String> {
        held.statements().into_keys().collect()
    }

    #[test]
    fn deallocated_statements_of_the_protocol_are_given_up_once() {
        let session = Held::default();
        session.add_statement(
            "wire",
            "SELECT $1",
            ParameterTypes::Named(vec!["text".into()]),
            false,
        );
        session.add_statement(
            "sql",
            "PREPARE sql AS SELECT 1",
            ParameterTypes::Arrow(vec![]),
            true,
        );
        assert!(!session.deallocate("sql") && !session.deallocate("none"));
        assert!(!session.take_reduced());
        assert!(session.deallocate("wire"));
        assert_eq!(names(&session), ["sql"]);
        assert!(session.take_reduced() && !session.take_reduced());
        session.deallocate_all();
        assert!(names(&session).is_empty() && session.take_reduced());
    }

    #[test]
    fn a_cursor_is_listed_until_it_is_dropped() {
        let session = Arc::new(Held::default());
        let listed = session.list_cursor("c", "SELECT 1", false, true);
        assert!(session.cursors()["c"].is_scrollable);
        drop(listed);
        assert!(session.cursors().is_empty());
    }
}
