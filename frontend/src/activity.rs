//! What each session of this frontend does, as `pg_stat_activity` shows it.
//!
//! ```text
//!   Session ── SharedState ──▶ Activity ── Lives::activities ─▶ rows
//!      └─ statement ─▶ Running ──┘         (access/life.rs)
//! ```
//!
//! Invariants:
//! - a statement costs a copy of the beginning of its text; names and settings are looked up when they are shown;
//! - secrets in a text are hidden before it is shown.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use partita_proto::access::Door;
use partita_proto::id::RoleId;
use partita_sql::{Statement, redacted};

use crate::access::viewer::now_ms;
use crate::settings::Settings;

/// Bytes of a statement's text that are kept, as by PostgreSQL's `track_activity_query_size`.
const TEXT_BYTES_MAX: usize = 1 << 10;
/// Setting with the name that a client gives itself.
const APPLICATION_NAME: &str = "application_name";

/// State of a session that others look at.
pub(crate) struct SharedState {
    /// Name of the role that the session began as.
    pub(crate) user: String,
    /// Database of unqualified table names.
    pub(crate) database: Arc<Mutex<String>>,
    pub(crate) settings: Arc<Mutex<Settings>>,
    pub(crate) in_transaction: Arc<AtomicBool>,
}

/// A session and its last statement.
#[derive(Clone, Debug)]
pub struct SessionActivity {
    /// Number of the session, by which it is cancelled and terminated.
    pub pid: i32,
    /// Role that the session began as.
    pub login: RoleId,
    /// Name of that role.
    pub user: String,
    /// Database of unqualified table names.
    pub database: String,
    /// Name that the application gives itself; may be empty.
    pub application: String,
    /// Address of the client; `None` for work of the cluster.
    pub peer: Option<IpAddr>,
    /// Protocol of the client.
    pub door: Door,
    /// Start of the session. Times are in milliseconds since 1970.
    pub since_ms: i64,
    /// Start of the transaction, or of the statement outside of one.
    pub transaction_ms: Option<i64>,
    /// Start of the last statement; `None` before the first.
    pub query_ms: Option<i64>,
    /// Time since which the state holds.
    pub changed_ms: i64,
    /// PostgreSQL's name of the state.
    pub state: &'static str,
    /// Beginning of the running statement's text, or of the last one's.
    pub query: String,
}

/// Statements of one session.
pub(crate) struct Activity {
    state: SharedState,
    since_ms: i64,
    now: Mutex<Now>,
}

struct Now {
    /// Statements that have begun and not ended; rows of several portals may be open.
    running: usize,
    /// Beginning of the last statement's text, as the client wrote it.
    text: String,
    query_ms: Option<i64>,
    transaction_ms: Option<i64>,
    changed_ms: i64,
}

impl Activity {
    /// Activity of a session that begins.
    pub(crate) fn new(state: SharedState) -> Self {
        let since_ms = now_ms();
        let current = Now {
            running: 0,
            text: String::new(),
            query_ms: None,
            transaction_ms: None,
            changed_ms: since_ms,
        };
        Self { state, since_ms, now: Mutex::new(current) }
    }

    /// Records that a statement begins.
    pub(crate) fn begin(&self, text: &str) {
        let mut current = self.now.lock();
        current.running += 1;
        current.text.clear();
        current.text.push_str(beginning(text));
        current.changed_ms = now_ms();
        current.query_ms = Some(current.changed_ms);
    }

    /// Records that a statement has ended.
    pub(crate) fn end(&self) {
        let mut current = self.now.lock();
        current.running = current.running.saturating_sub(1);
        current.changed_ms = now_ms();
    }

    /// Records that a transaction begins.
    pub(crate) fn begin_transaction(&self) {
        let mut current = self.now.lock();
        current.transaction_ms = Some(now_ms());
    }

    /// The row of the session; `login`, `door` and `peer` are those of its identity.
    pub(crate) fn row(
        &self,
        pid: i32,
        (login, door): (RoleId, Door),
        peer: Option<IpAddr>,
    ) -> SessionActivity {
        let settings = self.state.settings.lock();
        let application = settings.get(APPLICATION_NAME).unwrap_or_default();
        drop(settings);
        let database = self.state.database.lock().clone();
        let in_transaction = self.state.in_transaction.load(Ordering::Relaxed);
        let current = self.now.lock();
        let is_active = current.running > 0;
        let state = match (is_active, in_transaction) {
            (true, _) => "active",
            (false, true) => "idle in transaction",
            (false, false) => "idle",
        };
        let transaction_ms = match in_transaction {
            true => current.transaction_ms,
            false => current.query_ms.filter(|_| is_active),
        };
        SessionActivity {
            pid,
            login,
            user: self.state.user.clone(),
            database,
            application,
            peer,
            door,
            since_ms: self.since_ms,
            transaction_ms,
            query_ms: current.query_ms,
            changed_ms: current.changed_ms,
            state,
            query: redacted(&current.text).into_owned(),
        }
    }
}

/// The text by which a statement is shown: as the client wrote it, or else its tag.
pub(crate) fn text_of(statement: &Statement) -> &str {
    statement.text().unwrap_or_else(|| statement.tag())
}

/// The part of a text that is kept.
pub(crate) fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity() -> (Activity, Arc<AtomicBool>) {
        let in_transaction = Arc::<AtomicBool>::default();
        let settings = Settings::new(None, "ada", "psql", "public");
        let state = SharedState {
            user: "ada".to_owned(),
            database: Arc::new(Mutex::new("public".to_owned())),
            settings: Arc::new(Mutex::new(settings)),
            in_transaction: Arc::clone(&in_transaction),
        };
        (Activity::new(state), in_transaction)
    }

    fn row(activity: &Activity) -> SessionActivity {
        activity.row(7, (RoleId(1), Door::Postgres), None)
    }

    #[test]
    fn a_session_is_active_until_its_last_statement_ends() {
        let (activity, in_transaction) = activity();
        let idle = row(&activity);
        assert_eq!((idle.state, idle.query_ms, idle.query.as_str()), ("idle", None, ""));
        assert_eq!((idle.user.as_str(), idle.application.as_str()), ("ada", "psql"));
        activity.begin("SELECT 1");
        activity.begin("SELECT 2");
        activity.end();
        let active = row(&activity);
        assert_eq!((active.state, active.query.as_str()), ("active", "SELECT 2"));
        assert_eq!(active.transaction_ms, active.query_ms);
        activity.end();
        assert_eq!((row(&activity).state, row(&activity).transaction_ms), ("idle", None));
        in_transaction.store(true, Ordering::Relaxed);
        activity.begin_transaction();
        let waiting = row(&activity);
        assert_eq!(waiting.state, "idle in transaction");
        assert!(waiting.transaction_ms.is_some());
    }

    #[test]
    fn texts_are_cut_and_secrets_hidden() {
        let (activity, _) = activity();
        activity.begin(&"ä".repeat(TEXT_BYTES_MAX));
        assert_eq!(row(&activity).query.len(), TEXT_BYTES_MAX);
        activity.begin("CREATE ROLE r PASSWORD 'open sesame'");
        assert!(!row(&activity).query.contains("sesame"), "{}", row(&activity).query);
    }
}
