//! API tokens: a part of their owner's rights, for programs.
//!
//! The text of a token is random, shown once and not kept. The record has its SHA-256, by which HTTP and Flight find
//! it, and a SCRAM verifier, by which it is a password for PostgreSQL's clients. A random text needs no slow hash.
//!
//! Invariants:
//! - a token may do what its owner may do and its permissions name, never more;
//! - a row predicate restricts reads of its database, whatever else the token names. It never comes with a write: rows
//!   that are written are not checked against it.

use std::fmt;

use super::TokenHash;
use super::grant::{Action, Actions};
use super::predicate::RowPredicate;
use super::role::Verifier;
use crate::error::Error;
use crate::id::{DatabaseId, OrgId, RoleId, TokenId};

/// Maximum permissions of a token.
const PERMISSIONS_MAX: usize = 1024;
/// Actions of a permission to read.
const READ: Actions = Actions::of(&[Action::Select, Action::Connect]);
/// Actions of a permission to write. Line protocol creates the tables that it writes to.
const WRITE: Actions = Actions::of(&[
    Action::Insert,
    Action::Update,
    Action::Delete,
    Action::Truncate,
    Action::Create,
    Action::Connect,
]);

/// Direction of a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Rows may be read.
    Read,
    /// Rows may be written and deleted, and tables created.
    Write,
    /// Reads and writes.
    Both,
}

impl Mode {
    fn reads(self) -> bool {
        matches!(self, Self::Read | Self::Both)
    }

    fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Both)
    }

    fn actions(self) -> Actions {
        match self {
            Self::Read => READ,
            Self::Write => WRITE,
            Self::Both => READ.union(WRITE),
        }
    }
}

/// Objects of a permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All rights of the owner, those on the cluster, roles and tokens included; for both directions only.
    Everything,
    /// The rows of every database, later ones included.
    AllBuckets,
    /// The rows of one database.
    Bucket {
        /// Database that InfluxDB's clients call a bucket.
        database: DatabaseId,
        /// Rows that may be read; `None`: all of them.
        rows: Option<RowPredicate>,
    },
}

/// One permission of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// Direction of the permission.
    pub mode: Mode,
    /// Objects of the permission.
    pub scope: Scope,
}

impl Permission {
    /// True if the permission names the rows of the database.
    fn covers(&self, database: DatabaseId) -> bool {
        match &self.scope {
            Scope::Everything | Scope::AllBuckets => true,
            Scope::Bucket { database: bucket, .. } => *bucket == database,
        }
    }

    fn rows(&self) -> Option<&RowPredicate> {
        match &self.scope {
            Scope::Everything | Scope::AllBuckets => None,
            Scope::Bucket { rows, .. } => rows.as_ref(),
        }
    }
}

/// An API token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Token id.
    pub id: TokenId,
    /// SHA-256 of the token's text.
    pub sha256: TokenHash,
    /// Verifier of the text as a password.
    pub verifier: Verifier,
    /// Text for people; may be empty.
    pub description: String,
    /// Role whose rights the token may use.
    pub owner: RoleId,
    /// Organisation whose objects the token may name; `None`: that of no organisation and of every one.
    pub org: Option<OrgId>,
    /// Time of the creation, milliseconds since 1970.
    pub created_ms: i64,
    /// Time at which the token ends, milliseconds since 1970; `None`: never.
    pub expires_ms: Option<i64>,
    /// False while the token is switched off.
    pub enabled: bool,
    /// Rights of the owner that the token may use.
    pub permissions: Vec<Permission>,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("id", &self.id)
            .field("description", &self.description)
            .field("owner", &self.owner)
            .field("org", &self.org)
            .field("created_ms", &self.created_ms)
            .field("expires_ms", &self.expires_ms)
            .field("enabled", &self.enabled)
            .field("permissions", &self.permissions)
            .finish_non_exhaustive()
    }
}

impl Token {
    /// True if the token may do everything that its owner may.
    #[must_use]
    pub fn is_unrestricted(&self) -> bool {
        let is_whole = |permission: &Permission| {
            permission.mode == Mode::Both && permission.scope == Scope::Everything
        };
        self.permissions.iter().any(is_whole)
    }

    /// Actions that the token may do with a database and its tables, if its owner may.
    #[must_use]
    pub fn actions(&self, database: DatabaseId) -> Actions {
        if self.is_unrestricted() {
            return Actions::ALL;
        }
        // A permission that `validate` refuses allows nothing.
        let is_sound = |permission: &&Permission| {
            permission.covers(database)
                && permission.scope != Scope::Everything
                && (permission.rows().is_none() || permission.mode == Mode::Read)
        };
        let permissions = self.permissions.iter().filter(is_sound);
        permissions
            .fold(Actions::NONE, |actions, permission| actions.union(permission.mode.actions()))
    }

    /// Rows of the database that the token may read; `None`: all of them, if it may read at all.
    #[must_use]
    pub fn rows(&self, database: DatabaseId) -> Option<RowPredicate> {
        let covering = self.permissions.iter().filter(|permission| permission.covers(database));
        let mut predicates = covering.filter_map(Permission::rows);
        let first = predicates.next()?.clone();
        Some(predicates.fold(first, |narrowed, predicate| narrowed.and(predicate)))
    }

    /// Checks the permissions of a new token.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when there are none or too many, the scope of everything is not for both directions,
    /// or a row predicate comes with a write, or with another permission to read the same database.
    pub fn validate(&self) -> Result<(), Error> {
        let invalid = |message: &str| Err(Error::InvalidInput(message.to_owned()));
        if self.permissions.is_empty() {
            return invalid("a token needs a permission");
        }
        if self.permissions.len() > PERMISSIONS_MAX {
            return Err(Error::InvalidInput(format!(
                "{} permissions exceed the limit of {PERMISSIONS_MAX} per token",
                self.permissions.len()
            )));
        }
        for permission in &self.permissions {
            if permission.scope == Scope::Everything && permission.mode != Mode::Both {
                return invalid("a permission for everything must be for reads and writes");
            }
            let Scope::Bucket { database, rows: Some(_) } = permission.scope else { continue };
            if permission.mode.writes() {
                return invalid("a row predicate is for reads only");
            }
            let reads =
                |candidate: &&Permission| candidate.mode.reads() && candidate.covers(database);
            if self.permissions.iter().filter(reads).count() > 1 {
                return invalid("a row predicate must be the only permission to read its bucket");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::predicate::Term;
    use super::super::tests::{VERIFIER, token};
    use super::*;
    use crate::value::Value;

    const BUCKET: DatabaseId = DatabaseId(1);
    const OTHER: DatabaseId = DatabaseId(2);

    fn rows(value: i64) -> RowPredicate {
        let term = Term { column: "k0".to_owned(), values: vec![Value::Int(value)] };
        RowPredicate::new(vec![term]).unwrap()
    }

    fn bucket(mode: Mode, rows: Option<RowPredicate>) -> Permission {
        Permission { mode, scope: Scope::Bucket { database: BUCKET, rows } }
    }

    fn everywhere(mode: Mode, scope: Scope) -> Permission {
        Permission { mode, scope }
    }

    #[test]
    fn permissions_add_up() {
        let write = everywhere(Mode::Write, Scope::AllBuckets);
        let mixed = token(7, 1, vec![bucket(Mode::Read, None), write]);
        assert_eq!(mixed.validate(), Ok(()));
        assert_eq!(mixed.actions(BUCKET), READ.union(WRITE));
        assert_eq!(mixed.actions(OTHER), WRITE);
        assert_eq!(mixed.rows(BUCKET), None);
        assert!(!mixed.is_unrestricted());
        let whole = token(7, 1, vec![everywhere(Mode::Both, Scope::Everything)]);
        assert_eq!((whole.actions(OTHER), whole.is_unrestricted()), (Actions::ALL, true));
    }

    #[test]
    fn a_predicate_restricts_reads_and_nothing_widens_it() {
        let narrow = token(7, 1, vec![bucket(Mode::Read, Some(rows(1)))]);
        assert_eq!(narrow.validate(), Ok(()));
        assert_eq!((narrow.actions(BUCKET), narrow.rows(BUCKET)), (READ, Some(rows(1))));
        assert_eq!((narrow.actions(OTHER), narrow.rows(OTHER)), (Actions::NONE, None));
        // Records that were never valid allow the smaller set.
        let refused = [
            vec![bucket(Mode::Read, Some(rows(1))), bucket(Mode::Both, None)],
            vec![bucket(Mode::Read, Some(rows(1))), everywhere(Mode::Read, Scope::AllBuckets)],
            vec![bucket(Mode::Read, Some(rows(1))), everywhere(Mode::Both, Scope::Everything)],
        ];
        for permissions in refused {
            let token = token(7, 1, permissions);
            assert!(token.validate().is_err());
            assert_eq!(token.rows(BUCKET), Some(rows(1)));
        }
        let twice =
            token(7, 1, vec![bucket(Mode::Read, Some(rows(1))), bucket(Mode::Read, Some(rows(2)))]);
        assert_eq!(
            (twice.validate().is_err(), twice.rows(BUCKET)),
            (true, Some(rows(1).and(&rows(2))))
        );
    }

    #[test]
    fn invalid_permissions_are_refused_and_allow_nothing() {
        let invalid = [
            vec![],
            vec![bucket(Mode::Write, Some(rows(1)))],
            vec![bucket(Mode::Both, Some(rows(1)))],
            vec![everywhere(Mode::Read, Scope::Everything)],
        ];
        for permissions in invalid {
            let token = token(7, 1, permissions);
            assert!(token.validate().is_err());
            assert_eq!(token.actions(BUCKET), Actions::NONE);
        }
        let many = token(7, 1, vec![bucket(Mode::Read, None); 1025]);
        assert!(many.validate().is_err());
    }

    #[test]
    fn a_token_never_shows_its_hash_or_verifier() {
        let mut token = token(0xab, 1, vec![bucket(Mode::Read, None)]);
        token.sha256 = [0xee; 32];
        let shown = format!("{token:?}");
        assert!(shown.contains("TokenId(00000000000000ab)"), "{shown}");
        assert!(!shown.contains("238") && !shown.contains(&VERIFIER[20..40]), "{shown}");
    }
}
