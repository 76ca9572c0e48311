//! The work of a statement: needs to check, changes for meta, and messages or rows for the client.

use partita_proto::access::{Action, Need, Object};
use partita_proto::service::Ddl;
use partita_sql::Notice;

/// SQLSTATE of a missing right.
pub(super) const INSUFFICIENT_PRIVILEGE: &str = "42501";
/// SQLSTATE of an object that others depend on.
pub(super) const DEPENDENT_OBJECTS: &str = "2BP01";

/// The work of a statement.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) needs: Vec<Need>,
    /// Changes for meta, in order.
    pub(super) changes: Vec<Ddl>,
    pub(super) notices: Vec<Notice>,
    /// Rows for the client.
    pub(super) rows: Option<Rows>,
}

/// A small table for the client.
pub(super) struct Rows {
    pub(super) columns: &'static [&'static str],
    pub(super) cells: Vec<Vec<Option<String>>>,
}

impl Plan {
    pub(super) fn need(&mut self, action: Action, object: Object) {
        self.needs.push(Need::new(action, object));
    }

    pub(super) fn notice(&mut self, message: String) {
        self.notices.push(Notice::notice(message));
    }

    /// A warning with a code of its own.
    pub(super) fn warning(&mut self, code: &str, message: String) {
        self.notices.push(Notice { code: code.to_owned(), ..Notice::warning(message) });
    }
}
