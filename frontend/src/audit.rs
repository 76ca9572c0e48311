//! The audit: who did what, as log lines and as `sys.audit`.
//!
//! ```text
//!   Frontend::change, administer ─── begin ─▶ Pending ─ end ─┐
//!   end of a statement ─── statement: refused, or all ───────┤         ┌─▶ ring ─▶ sys.audit
//!   Frontend::authorize ── refused ──▶ repeats ──────────────┼─▶ entry ┤
//!   Authenticator ──────── sign_in ──▶ repeats ──────────────┘         └─▶ log line, target `audit`
//! ```
//!
//! Sign-ins and refusals may come by the thousand: those of one kind are counted within a window (module `repeats`), and
//! they never drop changes from the ring (module `ring`). A count is logged with the first entry after the window has ended, and
//! shown in `sys.audit` at once.
//!
//! Invariants:
//! - what was begun has an entry, also when its caller stops waiting for it;
//! - recording never fails: a log that cannot be written loses its lines, and nothing else;
//! - memory is bounded: by [`AuditOptions`] for the ring, by constants for the windows.

mod description;
mod entry;
mod repeats;
mod ring;
pub(crate) mod table;

use std::fmt;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use partita_proto::access::{Access, Door};
use partita_proto::id::TokenId;

use self::entry::{is_refusal, now_ms};
use self::repeats::Repeats;
use self::ring::Ring;
use crate::error::SqlError;

pub(crate) use self::description::Description;
pub(crate) use self::entry::Origin;
pub use self::entry::{AuditEntry, Event, Outcome};

/// Default number of entries of `sys.audit`.
pub const ENTRIES_MAX: usize = 10_000;
/// Default size of the entries of `sys.audit` in bytes.
const BYTES_MAX: usize = 16 << 20;
/// Classes of entries, each of which keeps its share of the ring: changes and orders, sign-ins, failed sign-ins and
/// refusals, statements.
const CLASSES: usize = 4;
/// Window in which successful sign-ins of one identity from one address are counted. HTTP signs in with each request.
const SIGN_IN_WINDOW: Duration = Duration::from_secs(600);
/// Maximum identities and addresses of that window.
const SIGN_IN_KINDS: usize = 1_024;
/// Window in which failed sign-ins and refusals of one kind are counted.
const FAILURE_WINDOW: Duration = Duration::from_secs(10);
/// Maximum kinds of that window: at most 7 entries a second.
const FAILURE_KINDS: usize = 32;
/// Action of a sign-in.
const SIGN_IN: &str = "SIGN IN";

/// Settings of the audit.
#[derive(Clone, Copy, Debug)]
pub struct AuditOptions {
    /// True to record every statement.
    pub statements: bool,
    /// Maximum entries of `sys.audit`; with 0 there are log lines only.
    pub entries_max: usize,
    /// Maximum size of these entries in bytes.
    pub bytes_max: usize,
}

impl Default for AuditOptions {
    fn default() -> Self {
        Self { statements: false, entries_max: ENTRIES_MAX, bytes_max: BYTES_MAX }
    }
}

/// Name of a client that failed to sign in: only a name that exists, because anything else may be a secret in the wrong
/// place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct KnownName {
    /// Name of a role.
    pub(crate) user: Option<String>,
    /// Id of a token.
    pub(crate) token: Option<TokenId>,
}

impl KnownName {
    /// The name that a client gave, if a role or a token has it.
    pub(crate) fn of(access: &Access, name: &str) -> Self {
        if let Some(role) = access.role_by_name(name) {
            return Self { user: Some(role.name.clone()), token: None };
        }
        let token = name.parse::<TokenId>().ok().filter(|token| access.token(*token).is_some());
        Self { user: None, token }
    }
}

/// A statement that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedStatement<'a> {
    /// Current database of the session.
    pub(crate) database: &'a str,
    /// Kind of statement: `SELECT`, `INSERT` and so on.
    pub(crate) tag: &'static str,
    /// Redacted text, if the statement keeps one.
    pub(crate) text: Option<&'a str>,
    /// Error of a statement that failed.
    pub(crate) error: Option<&'a SqlError>,
}

type Sink = Box<dyn Fn(&AuditEntry) + Send + Sync>;

/// Recorder of one frontend; see the head of the file.
pub struct Audit {
    statements: bool,
    sink: Sink,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ring: Ring<Arc<AuditEntry>, CLASSES>,
    sign_ins: Repeats<Origin>,
    /// By the entries without their times.
    failures: Repeats<AuditEntry>,
    refusals: Repeats<AuditEntry>,
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Audit")
    }
}

impl Default for Audit {
    fn default() -> Self {
        Self::new(AuditOptions::default())
    }
}

impl Drop for Audit {
    /// Logs what was counted in windows that have not ended.
    fn drop(&mut self) {
        for entry in self.state.get_mut().open() {
            self.write(&entry);
        }
    }
}

impl Audit {
    /// An audit that writes log lines with the target `audit`.
    pub fn new(options: AuditOptions) -> Self {
        Self::with_sink(options, Box::new(log))
    }

    fn with_sink(options: AuditOptions, sink: Sink) -> Self {
        let state = State {
            ring: Ring::new(options.entries_max, options.bytes_max),
            sign_ins: Repeats::new(SIGN_IN_WINDOW, SIGN_IN_KINDS),
            failures: Repeats::new(FAILURE_WINDOW, FAILURE_KINDS),
            refusals: Repeats::new(FAILURE_WINDOW, FAILURE_KINDS),
        };
        Self { statements: options.statements, sink, state: Mutex::new(state) }
    }

    /// All entries, those of windows that have not ended last.
    pub fn entries(&self) -> Vec<Arc<AuditEntry>> {
        let state = self.state.lock();
        let mut entries = state.ring.items();
        entries.extend(state.open().into_iter().map(Arc::new));
        entries
    }

    /// Begins something that a client may do. It is recorded when it ends.
    pub(crate) fn begin(
        &self,
        access: &Access,
        origin: Origin,
        description: Description,
    ) -> Pending<'_> {
        let Description { event, action, database, object, detail } = description;
        let entry = AuditEntry::new(access, origin, event, action);
        Pending { audit: self, entry: Some(AuditEntry { database, object, detail, ..entry }) }
    }

    /// True if a statement with this outcome is recorded.
    pub(crate) fn includes(&self, error: Option<&SqlError>) -> bool {
        self.statements || error.is_some_and(is_refusal)
    }

    /// Records a statement, if it was refused or all are recorded.
    pub(crate) fn statement(&self, access: &Access, origin: Origin, statement: EndedStatement<'_>) {
        let EndedStatement { database, tag, text, error } = statement;
        if !self.statements {
            if let Some(error) = error {
                self.refused(access, origin, (tag, Some(database)), error);
            }
            return;
        }
        let entry = AuditEntry {
            database: Some(database.to_owned()),
            detail: text.map(str::to_owned),
            ..AuditEntry::new(access, origin, Event::Statement, tag)
        };
        self.record(entry.ended(error));
    }

    /// Counts an action in a database for which a right is missing; other errors are not recorded.
    pub(crate) fn refused(
        &self,
        access: &Access,
        origin: Origin,
        (action, database): (&'static str, Option<&str>),
        error: &SqlError,
    ) {
        if !is_refusal(error) {
            return;
        }
        let entry = AuditEntry {
            database: database.map(str::to_owned),
            // The message names the object and the right.
            detail: Some(error.message.clone()),
            ..AuditEntry::new(access, origin, Event::Statement, action)
        };
        let entry = entry.ended(Some(error)).shortened();
        self.add(|state, time| {
            let kind = AuditEntry { at_ms: 0, ..entry.clone() };
            state.refusals.note(kind, time, || entry)
        });
    }

    /// Counts a sign-in that was right.
    pub(crate) fn signed_in(&self, access: &Access, origin: Origin) {
        let make = || AuditEntry::new(access, origin, Event::SignIn, SIGN_IN).ended(None);
        self.add(|state, time| state.sign_ins.note(origin, time, make));
    }

    /// Counts a sign-in that failed, or that the limiter refused.
    pub(crate) fn sign_in_failed(
        &self,
        (door, peer): (Door, IpAddr),
        name: KnownName,
        (error, is_limited): (&SqlError, bool),
    ) {
        let KnownName { user, token } = name;
        let entry = AuditEntry::unauthenticated(Event::SignIn, SIGN_IN, door, Some(peer));
        let mut entry = AuditEntry { user, token, ..entry.ended(Some(error)) };
        if is_limited {
            entry.outcome = Outcome::Limited;
        }
        self.add(|state, time| {
            let kind = AuditEntry { at_ms: 0, ..entry.clone() };
            state.failures.note(kind, time, || entry)
        });
    }

    fn record(&self, entry: AuditEntry) {
        self.add(|_, _| Some(entry));
    }

    /// Keeps and logs an entry, after those of windows that have ended.
    fn add(&self, note: impl FnOnce(&mut State, (Instant, i64)) -> Option<AuditEntry>) {
        let time = (Instant::now(), now_ms());
        let mut recorded = Vec::new();
        {
            let mut state = self.state.lock();
            let mut entries = state.close(time.0);
            entries.extend(note(&mut state, time));
            for entry in entries {
                recorded.push(state.keep(entry));
            }
        }
        for entry in recorded {
            self.write(&entry);
        }
    }

    /// Logs an entry. Statements do not fail with their log.
    fn write(&self, entry: &AuditEntry) {
        let _lost = catch_unwind(AssertUnwindSafe(|| (self.sink)(entry)));
    }
}

impl State {
    fn close(&mut self, now: Instant) -> Vec<AuditEntry> {
        let mut entries = self.sign_ins.close(now);
        entries.extend(self.failures.close(now));
        entries.extend(self.refusals.close(now));
        entries
    }

    fn open(&self) -> Vec<AuditEntry> {
        let mut entries = self.sign_ins.open();
        entries.extend(self.failures.open());
        entries.extend(self.refusals.open());
        entries
    }

    fn keep(&mut self, entry: AuditEntry) -> Arc<AuditEntry> {
        let entry = Arc::new(entry.shortened());
        self.ring.push(class_of(&entry), entry.bytes(), Arc::clone(&entry));
        entry
    }
}

/// The class of an entry in the ring.
fn class_of(entry: &AuditEntry) -> usize {
    match (entry.event, entry.outcome) {
        (Event::Ddl | Event::Access | Event::Admin, _) => 0,
        (Event::SignIn, Outcome::Done) => 1,
        (Event::SignIn, _) | (Event::Statement, Outcome::Refused) => 2,
        (Event::Statement, _) => 3,
    }
}

/// Something that a client does. Without an end it is recorded with an unknown outcome.
#[must_use = "without its end the outcome is unknown"]
pub(crate) struct Pending<'a> {
    audit: &'a Audit,
    entry: Option<AuditEntry>,
}

impl Pending<'_> {
    /// Records it as done, or with its error.
    pub(crate) fn end(mut self, error: Option<&SqlError>) {
        if let Some(entry) = self.entry.take() {
            self.audit.record(entry.ended(error));
        }
    }

    /// Records nothing: there was nothing to do.
    pub(crate) fn forget(mut self) {
        self.entry = None;
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.audit.record(AuditEntry { at_ms: now_ms(), ..entry });
        }
    }
}

/// Writes an entry as a log line.
fn log(entry: &AuditEntry) {
    let token = entry.token.map(|token| token.to_string());
    let peer = entry.peer.map(|peer| peer.to_string());
    tracing::info!(
        target: "audit",
        at_ms = entry.at_ms,
        kind = entry.event.name(),
        user = entry.user.as_deref(),
        role = entry.role.as_deref(),
        token_id = token.as_deref(),
        door = entry.door.name(),
        peer = peer.as_deref(),
        database = entry.database.as_deref(),
        action = entry.action,
        object = entry.object.as_deref(),
        detail = entry.detail.as_deref(),
        outcome = entry.outcome.name(),
        sqlstate = entry.sqlstate.as_deref(),
        count = entry.count,
        "audit"
    );
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use partita_proto::access::{Identity, Secrets};
    use partita_proto::id::NodeId;
    use partita_proto::service::AdminOrder;

    use super::*;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn access() -> Access {
        Access::bootstrap("partita", Secrets::default())
    }

    fn origin(access: &Access) -> Origin {
        let identity = Identity::bootstrap(access, Door::Http).unwrap();
        Origin { identity, peer: Some(PEER) }
    }

    fn drain() -> Description {
        Description::of_order(&AdminOrder::Drain { node: NodeId(1), on: true })
    }

    fn wrong() -> SqlError {
        SqlError::new("28P01", "password authentication failed for user \"x\"")
    }

    /// An audit whose lines are kept.
    fn with_lines(options: AuditOptions) -> (Audit, Arc<Mutex<Vec<AuditEntry>>>) {
        let lines = Arc::<Mutex<Vec<AuditEntry>>>::default();
        let written = Arc::clone(&lines);
        let sink = move |entry: &AuditEntry| written.lock().push(entry.clone());
        (Audit::with_sink(options, Box::new(sink)), lines)
    }

    #[test]
    fn an_order_is_recorded_with_its_outcome() {
        let (audit, lines) = with_lines(AuditOptions::default());
        let access = access();
        audit.begin(&access, origin(&access), drain()).end(None);
        let failed = SqlError::new("55000", "not now");
        audit.begin(&access, origin(&access), drain()).end(Some(&failed));
        audit.begin(&access, origin(&access), drain()).forget();
        drop(audit.begin(&access, origin(&access), drain()));
        let outcomes: Vec<_> = audit.entries().iter().map(|entry| entry.outcome).collect();
        assert_eq!(outcomes, [Outcome::Done, Outcome::Failed, Outcome::Unknown]);
        let entry = &audit.entries()[0];
        assert_eq!(
            (entry.user.as_deref(), entry.role.as_deref()),
            (Some("partita"), Some("partita"))
        );
        assert_eq!((entry.door, entry.peer), (Door::Http, Some(PEER)));
        assert_eq!((entry.action, entry.object.as_deref()), ("DRAIN NODE", Some("node 1")));
        assert_eq!(entry.sqlstate.as_deref(), Some("00000"));
        let entries: Vec<_> = audit.entries().iter().map(|entry| entry.as_ref().clone()).collect();
        assert_eq!(*lines.lock(), entries);
    }

    #[test]
    fn a_storm_of_failed_sign_ins_keeps_the_changes() {
        let options = AuditOptions { entries_max: 100, ..AuditOptions::default() };
        let (audit, lines) = with_lines(options);
        let access = access();
        audit.begin(&access, origin(&access), drain()).end(None);
        for number in 0..10_000_u32 {
            let peer = IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number));
            let name = KnownName::of(&access, &format!("user {number}"));
            audit.sign_in_failed((Door::Http, peer), name, (&wrong(), number % 2 == 0));
        }
        assert!(lines.lock().len() < 1_000, "{} lines", lines.lock().len());
        let entries = audit.entries();
        assert!(entries.len() <= 200, "those of open windows too");
        assert_eq!(entries[0].action, "DRAIN NODE");
        let counts = entries[1..].iter().map(|entry| entry.count);
        assert_eq!(counts.sum::<u64>(), 10_000);
        assert!(entries[1..].iter().all(|entry| entry.user.is_none()));
    }

    #[test]
    fn sign_ins_of_one_client_are_counted() {
        let (audit, lines) = with_lines(AuditOptions::default());
        let access = access();
        for _ in 0..1_000 {
            audit.signed_in(&access, origin(&access));
        }
        let counts = |entries: &[Arc<AuditEntry>]| {
            entries.iter().map(|entry| entry.count).collect::<Vec<_>>()
        };
        assert_eq!(counts(&audit.entries()), [1, 999]);
        assert_eq!(lines.lock().len(), 1);
        // The rest is logged at the end.
        drop(audit);
        assert_eq!(lines.lock().last().unwrap().count, 999);
    }

    #[test]
    fn a_name_that_nobody_has_is_not_recorded() {
        let access = access();
        let role = KnownName { user: Some("partita".to_owned()), token: None };
        assert_eq!(KnownName::of(&access, "partita"), role);
        for text in ["a password in the wrong place", "00000000000000ab", ""] {
            assert_eq!(KnownName::of(&access, text), KnownName::default());
        }
    }

    #[test]
    fn only_refused_statements_are_recorded_unless_all_are() {
        let access = access();
        let refusal = SqlError::new("42501", "permission denied for table t");
        let missing = SqlError::undefined_table("t");
        let errors = [None, Some(&refusal), Some(&missing)];
        for (statements, expected) in [
            (false, vec![Outcome::Refused]),
            (true, vec![Outcome::Done, Outcome::Refused, Outcome::Failed]),
        ] {
            let audit = Audit::new(AuditOptions { statements, ..AuditOptions::default() });
            for error in errors {
                let statement = EndedStatement {
                    database: "public",
                    tag: "SELECT",
                    text: Some("SELECT * FROM t"),
                    error,
                };
                if audit.includes(error) {
                    audit.statement(&access, origin(&access), statement);
                }
            }
            let entries = audit.entries();
            let outcomes: Vec<_> = entries.iter().map(|entry| entry.outcome).collect();
            assert_eq!(outcomes, expected);
            let texts =
                entries.iter().filter(|entry| entry.detail.as_deref() == Some("SELECT * FROM t"));
            assert_eq!(texts.count(), if statements { 3 } else { 0 });
        }
    }

    #[test]
    fn a_log_that_cannot_be_written_fails_nothing() {
        fn broken(_: &AuditEntry) {
            panic!("the log is closed");
        }
        let audit = Audit::with_sink(AuditOptions::default(), Box::new(broken));
        let access = access();
        audit.begin(&access, origin(&access), drain()).end(None);
        audit.signed_in(&access, origin(&access));
        audit.signed_in(&access, origin(&access));
        assert_eq!(audit.entries().len(), 3);
    }
}
