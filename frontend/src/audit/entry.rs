//! Entries of the audit: who did what, from where, and the outcome.
//!
//! Invariant: an entry has names and counts only, never a password, a token's text or a value of a row; the text of a
//! statement was redacted before it comes here.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use partita_proto::access::{Access, Door, Identity, Permit};
use partita_proto::id::{RoleId, TokenId};

use crate::error::SqlError;

/// SQLSTATE of success.
const SUCCESSFUL_COMPLETION: &str = "00000";
/// SQLSTATE of an action that is not permitted.
const INSUFFICIENT_PRIVILEGE: &str = "42501";
/// Maximum bytes of one text of an entry; longer ones are cut.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// Kind of a recorded event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A client presented a password, a token or a certificate.
    SignIn,
    /// A change of databases or tables.
    Ddl,
    /// A change of roles, rights, tokens or organisations.
    Access,
    /// An order to the cluster.
    Admin,
    /// A statement or a request.
    Statement,
}

impl Event {
    /// Name in logs and in `sys.audit`.
    pub fn name(self) -> &'static str {
        match self {
            Self::SignIn => "sign-in",
            Self::Ddl => "ddl",
            Self::Access => "access",
            Self::Admin => "admin",
            Self::Statement => "statement",
        }
    }
}

/// Outcome of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It took effect.
    Done,
    /// It ended with an error.
    Failed,
    /// A right is missing.
    Refused,
    /// The limiter of failed sign-ins refused it before the secret was tested.
    Limited,
    /// The client stopped waiting; it may have taken effect.
    Unknown,
}

impl Outcome {
    /// Name in logs and in `sys.audit`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Limited => "limited",
            Self::Unknown => "unknown",
        }
    }
}

/// True if a right is missing.
pub(crate) fn is_refusal(error: &SqlError) -> bool {
    error.sqlstate == INSUFFICIENT_PRIVILEGE
}

/// Identity of a client, and the address from which it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// Identity of the client.
    pub(crate) identity: Identity,
    /// Address of the client, if it is known.
    pub(crate) peer: Option<IpAddr>,
}

impl From<&Permit> for Origin {
    fn from(permit: &Permit) -> Self {
        Self { identity: *permit.identity(), peer: permit.peer() }
    }
}

/// Something that was done, or attempted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AuditEntry {
    /// Time of the end in milliseconds since 1970-01-01T00:00:00Z; of the last one if it stands for several.
    pub at_ms: i64,
    /// Kind of the event.
    pub event: Event,
    /// Role and token of the client, by which it finds its own entries; `None`: not authenticated.
    pub owner: Option<(RoleId, Option<TokenId>)>,
    /// Name of the role that the session began as. Of a failed sign-in: the name that was given, if a role has it.
    pub user: Option<String>,
    /// Name of the current role.
    pub role: Option<String>,
    /// Token of the client.
    pub token: Option<TokenId>,
    /// Protocol of the client.
    pub door: Door,
    /// Address of the client.
    pub peer: Option<IpAddr>,
    /// Database of the object, or of the session.
    pub database: Option<String>,
    /// Action, in the words of SQL.
    pub action: &'static str,
    /// Kind and name of the object.
    pub object: Option<String>,
    /// More about the action.
    pub detail: Option<String>,
    /// Result of the action.
    pub outcome: Outcome,
    /// SQLSTATE; `None` while the outcome is unknown.
    pub sqlstate: Option<String>,
    /// Number of events that the entry stands for.
    pub count: u64,
}

impl AuditEntry {
    /// An entry about a client that is not authenticated, with an unknown outcome.
    pub(crate) fn unauthenticated(
        event: Event,
        action: &'static str,
        door: Door,
        peer: Option<IpAddr>,
    ) -> Self {
        Self {
            at_ms: now_ms(),
            event,
            owner: None,
            user: None,
            role: None,
            token: None,
            door,
            peer,
            database: None,
            action,
            object: None,
            detail: None,
            outcome: Outcome::Unknown,
            sqlstate: None,
            count: 1,
        }
    }

    /// An entry about an authenticated client, with an unknown outcome.
    pub(crate) fn new(access: &Access, origin: Origin, event: Event, action: &'static str) -> Self {
        let Origin { identity, peer } = origin;
        let name = |role: RoleId| access.role(role).map(|role| role.name.clone());
        Self {
            owner: Some((identity.login, identity.token)),
            user: name(identity.login),
            role: name(identity.acting.unwrap_or(identity.login)),
            token: identity.token,
            ..Self::unauthenticated(event, action, identity.door, peer)
        }
    }

    /// The same with the outcome of what has ended now.
    pub(crate) fn ended(self, error: Option<&SqlError>) -> Self {
        let (outcome, sqlstate) = match error {
            None => (Outcome::Done, SUCCESSFUL_COMPLETION),
            Some(error) if is_refusal(error) => (Outcome::Refused, error.sqlstate.as_str()),
            Some(error) => (Outcome::Failed, error.sqlstate.as_str()),
        };
        Self { at_ms: now_ms(), outcome, sqlstate: Some(sqlstate.to_owned()), ..self }
    }

    /// The same for events of several clients together.
    pub(crate) fn of_several(self) -> Self {
        let Self { event, action, door, outcome, sqlstate, .. } = self;
        Self {
            detail: Some("further clients or objects".to_owned()),
            outcome,
            sqlstate,
            ..Self::unauthenticated(event, action, door, None)
        }
    }

    /// The same with texts of bounded length.
    pub(crate) fn shortened(mut self) -> Self {
        let texts = [
            &mut self.user,
            &mut self.role,
            &mut self.database,
            &mut self.object,
            &mut self.detail,
            &mut self.sqlstate,
        ];
        for text in texts.into_iter().flatten() {
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        }
        self
    }

    /// Memory of the entry in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let texts =
            [&self.user, &self.role, &self.database, &self.object, &self.detail, &self.sqlstate];
        let lengths = texts.into_iter().flatten().map(String::len);
        size_of::<Self>() + lengths.sum::<usize>()
    }
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> AuditEntry {
        AuditEntry::unauthenticated(Event::Ddl, "CREATE TABLE", Door::Http, None)
    }

    #[test]
    fn an_outcome_follows_from_the_error() {
        let outcome = |error: Option<&SqlError>| {
            let ended = entry().ended(error);
            (ended.outcome, ended.sqlstate.unwrap())
        };
        assert_eq!(outcome(None), (Outcome::Done, "00000".to_owned()));
        let refused = SqlError::new("42501", "permission denied for table t");
        assert_eq!(outcome(Some(&refused)), (Outcome::Refused, "42501".to_owned()));
        let failed = SqlError::undefined_table("t");
        assert_eq!(outcome(Some(&failed)), (Outcome::Failed, "42P01".to_owned()));
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let long = AuditEntry { detail: Some("ä".repeat(TEXT_BYTES_MAX)), ..entry() };
        let short = long.shortened();
        let bytes = short.detail.as_ref().unwrap().len();
        assert!(bytes <= TEXT_BYTES_MAX && bytes > TEXT_BYTES_MAX - 2);
        assert_eq!(short.bytes(), size_of::<AuditEntry>() + bytes);
    }

    #[test]
    fn an_entry_of_several_clients_names_none() {
        let peer = Some("192.0.2.1".parse().unwrap());
        let user = Some("ann".to_owned());
        let several = AuditEntry { user, peer, ..entry() }.of_several();
        assert_eq!((several.user, several.peer), (None, None));
        assert_eq!((several.event, several.action), (Event::Ddl, "CREATE TABLE"));
    }
}
