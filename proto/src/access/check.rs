//! The check: may this identity do these things now?
//!
//! ```text
//!   Identity ─▶ alive? ─▶ current role ─▶ roles whose rights it inherits
//!                 │                                  │
//!               Ended       owner or grants ─────────┤
//!                           within its organisation ─┤
//!                           within its token ────────┴─▶ actions on the object ─▶ allowed, refused or hidden
//! ```
//!
//! Rules, as in PostgreSQL unless they say otherwise:
//! - a superuser may do everything; the attribute counts for the current role only;
//! - the owner of an object has all rights on it, and so has every role that inherits the owner's rights;
//! - the owner of a database also owns, for this check, the tables in it, and rights granted on a database hold for its
//!   tables: a database is what InfluxDB's clients call a bucket;
//! - any right on a database includes CONNECT; a right on a table needs none on its database;
//! - ADMIN includes MONITOR;
//! - an object on which an identity has no right at all does not exist for it, and neither does an object that is owned
//!   in another organisation;
//! - a token that is restricted to rows of databases may do nothing else, whatever its owner may;
//! - a view is read by the rights of its owner, within the token of who reads it ([`check_through`]).
//!
//! Invariants: a [`Permit`] is made here only; a pair of action and object that is not named here is refused.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::grant::{Action, Actions, Target};
use super::predicate::RowPredicate;
use super::role::{self, Role};
use super::token::Token;
use super::{Access, Grant};
use crate::catalog::{Catalog, Database, Table};
use crate::error::Error;
use crate::id::{BOOTSTRAP_ROLE, DatabaseId, OrgId, RoleId, SequenceId, TableId, TokenId};

/// Protocol by which an identity came, for logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Door {
    /// PostgreSQL's protocol.
    Postgres,
    /// HTTP, its pages included.
    Http,
    /// Arrow Flight and Flight SQL.
    Flight,
    /// No client: work of the cluster for a role, such as a task.
    Internal,
}

impl Door {
    /// Name in logs and system tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Http => "http",
            Self::Flight => "flight",
            Self::Internal => "internal",
        }
    }
}

/// An authenticated identity. Doors make it after they have verified a secret; it names everything that must still be
/// true later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Role that the session began as; for a token, its owner.
    pub login: RoleId,
    /// Role of SET ROLE; `None`: the role that the session began as.
    pub acting: Option<RoleId>,
    /// Token that the client authenticated with.
    pub token: Option<TokenId>,
    /// Version of the role's password at the beginning of the session, or the one that the session made itself; unused
    /// with a token. A later one ends the session.
    pub secret_version: u64,
    /// Organisation of the token, or of the role without one.
    pub org: Option<OrgId>,
    /// Protocol of the client.
    pub door: Door,
}

impl Identity {
    /// The identity of a client that authenticated as a role.
    #[must_use]
    pub fn of_role(role: &Role, door: Door) -> Self {
        Self {
            login: role.id,
            acting: None,
            token: None,
            secret_version: role.secret_version,
            org: role.org,
            door,
        }
    }

    /// The identity of a client that presented a token.
    #[must_use]
    pub fn of_token(token: &Token, door: Door) -> Self {
        Self {
            login: token.owner,
            acting: None,
            token: Some(token.id),
            secret_version: 0,
            org: token.org,
            door,
        }
    }

    /// The bootstrap superuser; `None` before meta has made it.
    #[must_use]
    pub fn bootstrap(access: &Access, door: Door) -> Option<Self> {
        access.role(BOOTSTRAP_ROLE).map(|role| Self::of_role(role, door))
    }
}

/// Object of a need.
#[derive(Clone, Debug)]
pub enum Object {
    /// The whole cluster.
    Cluster,
    /// A database of the catalog.
    Database(Arc<Database>),
    /// A table of the catalog, with its database.
    Table {
        /// Database that the table is in.
        database: Arc<Database>,
        /// Definition with the owner and the key.
        table: Arc<Table>,
    },
    /// A table of the system, by name. SELECT is for everybody, because its rows are those that the identity may see;
    /// MONITOR is for tables that show the work of others.
    SystemTable(String),
    /// A setting: SELECT and MAINTAIN for the session's own value, ADMIN for the cluster's.
    Setting(String),
    /// A role. LOGIN: become it by SET ROLE. ADMIN: grant membership in it. CREATE ROLE: alter or drop it. MAINTAIN:
    /// change its password. MANAGE TOKEN: create a token that it owns.
    Role {
        /// Role id.
        id: RoleId,
        /// Text by which the client named it.
        name: String,
    },
    /// A token: MANAGE TOKEN to list, change or drop it.
    Token(TokenId),
    /// An organisation.
    Org {
        /// Organisation id.
        id: OrgId,
        /// Text by which the client named it.
        name: String,
    },
    /// A task that exists. To create one, TASK on the cluster or its database.
    Task {
        /// Task name.
        name: String,
        /// Role as which the task runs.
        owner: RoleId,
    },
    /// A sequence. OWN: alter or drop it. CONNECT: use its numbers. The actions are those granted on it, and those on the
    /// table of its column, or on its database; INSERT there includes CONNECT here.
    Sequence {
        /// Sequence id.
        id: SequenceId,
        /// Database that the sequence is in.
        database: Arc<Database>,
        /// Table of the column that owns it.
        table: Option<Arc<Table>>,
        /// Sequence name.
        name: String,
        /// Role that owns the sequence.
        owner: RoleId,
    },
    /// A session of a role. MONITOR: see its statements. MAINTAIN: cancel or end it.
    Session {
        /// Role that the session began as.
        role: RoleId,
    },
}

impl Object {
    fn kind(&self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Database(_) => "database",
            Self::Table { .. } | Self::SystemTable(_) => "table",
            Self::Setting(_) => "setting",
            Self::Role { .. } => "role",
            Self::Token(_) => "token",
            Self::Org { .. } => "organisation",
            Self::Task { .. } => "task",
            Self::Sequence { .. } => "sequence",
            Self::Session { .. } => "session",
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Cluster => String::new(),
            Self::Database(database) => database.name.clone(),
            Self::Table { table, .. } => table.name.clone(),
            Self::SystemTable(name)
            | Self::Setting(name)
            | Self::Role { name, .. }
            | Self::Org { name, .. }
            | Self::Task { name, .. }
            | Self::Sequence { name, .. } => name.clone(),
            Self::Token(id) => id.to_string(),
            Self::Session { role } => role.to_string(),
        }
    }
}

/// One thing that a statement or a request does.
#[derive(Clone, Debug)]
pub struct Need {
    /// Action that is done.
    pub action: Action,
    /// Object that it is done to.
    pub object: Object,
}

impl Need {
    /// The need of an action on an object.
    #[must_use]
    pub fn new(action: Action, object: Object) -> Self {
        Self { action, object }
    }
}

/// Reason for which an identity is no longer valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EndReason {
    /// The role was dropped.
    RoleDropped,
    /// The role may not log in any more.
    LoginRevoked,
    /// The role's time is over.
    RoleExpired,
    /// The role has another password since the session began.
    SecretChanged,
    /// The role or the token belongs to another organisation since.
    OrgChanged,
    /// The role may not be what SET ROLE made it any more.
    ActingRevoked,
    /// The token was dropped, or given to another role.
    TokenDropped,
    /// The token is switched off.
    TokenDisabled,
    /// The token's time is over.
    TokenExpired,
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RoleDropped => "the role was dropped",
            Self::LoginRevoked => "the role is not permitted to log in",
            Self::RoleExpired => "the role has expired",
            Self::SecretChanged => "the password was changed",
            Self::OrgChanged => "the organisation was changed",
            Self::ActingRevoked => "the membership used by SET ROLE was revoked",
            Self::TokenDropped => "the token was dropped",
            Self::TokenDisabled => "the token is disabled",
            Self::TokenExpired => "the token has expired",
        })
    }
}

/// Refusal of a need. [`Error::sqlstate`] chooses the code of the error that it becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The object does not exist for the identity; the error is that of an object that does not exist at all.
    NotVisible {
        /// Kind of the object, as in [`Error::NotFound`].
        kind: &'static str,
        /// Name of the object.
        name: String,
    },
    /// The identity may see the object, but not do this.
    NotAllowed {
        /// Action that was refused.
        action: Action,
        /// Kind of the object.
        kind: &'static str,
        /// Name of the object; empty for the cluster.
        name: String,
    },
    /// The identity is no longer valid: the session ends.
    Ended(EndReason),
}

impl fmt::Display for Denied {
    /// In the words of PostgreSQL, where it has any.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotVisible { kind, name } => write!(f, "{kind} \"{name}\" does not exist"),
            Self::NotAllowed { action, kind, name } => match (*kind, *action) {
                ("cluster", Action::Create) => f.write_str("permission denied to create database"),
                ("cluster", Action::CreateRole) => f.write_str("permission denied to create role"),
                ("cluster", action) => {
                    write!(f, "permission denied: {} is required", action.name())
                }
                (kind, Action::Own) => write!(f, "must be owner of {kind} {name}"),
                (kind, _) => write!(f, "permission denied for {kind} {name}"),
            },
            Self::Ended(reason) => write!(f, "authentication is no longer valid: {reason}"),
        }
    }
}

impl std::error::Error for Denied {}

impl From<Denied> for Error {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::NotVisible { kind, name } => Self::NotFound { kind, name },
            Denied::NotAllowed { .. } => Self::NotAllowed(denied.to_string()),
            Denied::Ended(_) => Self::Unauthenticated(denied.to_string()),
        }
    }
}

/// Proof that a check allowed all needs of a statement. Functions that do what needs a right take one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a permit without use means that its work is done elsewhere, unchecked"]
pub struct Permit {
    version: u64,
    role: RoleId,
    identity: Identity,
    peer: Option<IpAddr>,
    rows: BTreeMap<TableId, RowPredicate>,
    tables: BTreeSet<(TableId, Action)>,
    databases: BTreeSet<(DatabaseId, Action)>,
}

impl Permit {
    /// Version of the [`Access`] that was checked.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Current role: the owner of what the statement creates.
    #[must_use]
    pub fn role(&self) -> RoleId {
        self.role
    }

    /// Token that was used.
    #[must_use]
    pub fn token(&self) -> Option<TokenId> {
        self.identity.token
    }

    /// Identity that was checked.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Address of the client, for logs; `None` if it is not known.
    #[must_use]
    pub fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// The same permit for a client at an address.
    pub fn at_peer(self, peer: Option<IpAddr>) -> Self {
        Self { peer, ..self }
    }

    /// Predicate that every read of the table must apply, reads of its former table included; `None`: no restriction.
    #[must_use]
    pub fn rows(&self, table: TableId) -> Option<&RowPredicate> {
        self.rows.get(&table)
    }

    /// True if this action on this table was checked. A name may mean another table since the check.
    #[must_use]
    pub fn covers(&self, table: TableId, action: Action) -> bool {
        self.tables.contains(&(table, action))
    }

    /// True if this action on this database was checked.
    #[must_use]
    pub fn covers_database(&self, database: DatabaseId, action: Action) -> bool {
        self.databases.contains(&(database, action))
    }

    /// True if any action on this table was checked.
    #[must_use]
    pub fn names_table(&self, table: TableId) -> bool {
        self.tables.iter().any(|(checked, _)| *checked == table)
    }

    /// True if any action on this database was checked.
    #[must_use]
    pub fn names_database(&self, database: DatabaseId) -> bool {
        self.databases.iter().any(|(checked, _)| *checked == database)
    }

    /// True if an action on a database was checked.
    #[must_use]
    pub fn names_databases(&self) -> bool {
        !self.databases.is_empty()
    }

    fn new(access: &Access, role: RoleId, identity: Identity) -> Self {
        Self {
            version: access.version,
            role,
            identity,
            peer: None,
            rows: BTreeMap::new(),
            tables: BTreeSet::new(),
            databases: BTreeSet::new(),
        }
    }

    /// A permit that nothing was checked for.
    #[cfg(test)]
    pub(crate) fn for_tests(role: RoleId) -> Self {
        let identity = Identity {
            login: role,
            acting: None,
            token: None,
            secret_version: 0,
            org: None,
            door: Door::Internal,
        };
        Self::new(&Access::default(), role, identity)
    }
}

/// The part of a table that an identity sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Nothing: the table is not listed.
    None,
    /// Name and columns, but no row, nor figures that rows leave in statistics.
    Names,
    /// The rows that the predicate allows, and no figures of others.
    Rows(RowPredicate),
    /// All rows.
    All,
}

/// Checks that an identity may do all of these things.
///
/// # Errors
/// [`Denied`] for the first need that is refused, or when the identity is no longer valid.
pub fn check(
    access: &Access,
    identity: &Identity,
    now_ms: i64,
    needs: &[Need],
) -> Result<Permit, Denied> {
    let subject = Subject::of(access, identity, now_ms).map_err(Denied::Ended)?;
    let mut permit = Permit::new(access, subject.role.id, *identity);
    for need in needs {
        subject.require(need)?;
        match &need.object {
            Object::Table { database, table } => {
                permit.tables.insert((table.id, need.action));
                if let Some(predicate) = subject.rows_of(database.id, table) {
                    permit.rows.insert(table.id, predicate);
                }
            }
            Object::Database(database) => {
                permit.databases.insert((database.id, need.action));
            }
            _ => {}
        }
    }
    Ok(permit)
}

/// Checks that the owner of a view may do these things for an identity that reads the view, and returns the predicates
/// that the reads must apply, by table. The rights are those of the owner; a token of the reader limits them as it limits
/// those of its own owner.
///
/// # Errors
/// [`Denied`] for the first need that is refused, or when the identity is no longer valid. Nothing is hidden: who reads
/// the view may know what it reads.
pub fn check_through(
    access: &Access,
    identity: &Identity,
    now_ms: i64,
    owner: RoleId,
    needs: &[Need],
) -> Result<BTreeMap<TableId, RowPredicate>, Denied> {
    let reader = Subject::of(access, identity, now_ms).map_err(Denied::Ended)?;
    let subject = reader.through(owner);
    let mut rows = BTreeMap::new();
    for need in needs {
        let decision = subject.as_ref().map(|subject| subject.decide(need.action, &need.object));
        let Some((subject, Decision::Allowed)) = subject.as_ref().zip(decision) else {
            return Err(refusal(need.action, &need.object));
        };
        if let Object::Table { database, table } = &need.object
            && let Some(predicate) = subject.rows_of(database.id, table)
        {
            rows.insert(table.id, predicate);
        }
    }
    Ok(rows)
}

/// The part of a table that an identity sees through a view of `owner`, as [`check_through`] decides.
#[must_use]
pub fn sight_through(
    access: &Access,
    identity: &Identity,
    now_ms: i64,
    owner: RoleId,
    database: &Database,
    table: &Table,
) -> Sight {
    let reader = Subject::of(access, identity, now_ms).ok();
    let subject = reader.and_then(|reader| reader.through(owner));
    subject.map_or(Sight::None, |subject| subject.sight(database, table))
}

/// The part of a table that an identity sees; nothing when the identity is no longer valid.
#[must_use]
pub fn sight(
    access: &Access,
    identity: &Identity,
    now_ms: i64,
    database: &Database,
    table: &Table,
) -> Sight {
    let subject = Subject::of(access, identity, now_ms);
    subject.map_or(Sight::None, |subject| subject.sight(database, table))
}

/// The parts of all tables that an identity sees, by table; none when the identity is no longer valid.
#[must_use]
pub fn sights(
    catalog: &Catalog,
    access: &Access,
    identity: &Identity,
    now_ms: i64,
) -> HashMap<TableId, Sight> {
    let mut sights = HashMap::new();
    // The roles of the identity are the same for all tables.
    let Ok(subject) = Subject::of(access, identity, now_ms) else { return sights };
    for (name, tables) in &catalog.tables {
        let Some(database) = catalog.databases.get(name) else { continue };
        sights.extend(tables.values().map(|table| (table.id, subject.sight(database, table))));
    }
    sights
}

/// The catalog without what an identity may not see; the same one when that is nothing. Tasks and sequences stay:
/// each is checked where it is shown.
///
/// A table whose rows are included in queries of a visible table (see [`Catalog::read_along`]) stays, or its rows would
/// be missing.
#[must_use]
pub fn visible(
    catalog: &Arc<Catalog>,
    access: &Access,
    identity: &Identity,
    now_ms: i64,
) -> Arc<Catalog> {
    let Ok(subject) = Subject::of(access, identity, now_ms) else {
        return Arc::new(Catalog { version: catalog.version, ..Catalog::default() });
    };
    if subject.is_unlimited() {
        return Arc::clone(catalog);
    }
    let mut visible_ids: BTreeSet<TableId> = BTreeSet::new();
    for (name, tables) in &catalog.tables {
        let Some(database) = catalog.databases.get(name) else { continue };
        for table in tables.values() {
            if subject.sight(database, table) != Sight::None {
                visible_ids.extend(
                    [Some(table.id), table.former, table.succeeded_by].into_iter().flatten(),
                );
            }
        }
    }
    let (version, access) = (catalog.version, Arc::clone(&catalog.access));
    let (tasks, sequences) = (Arc::clone(&catalog.tasks), Arc::clone(&catalog.sequences));
    let mut reduced = Catalog { version, access, tasks, sequences, ..Catalog::default() };
    let mut hidden = false;
    for (name, tables) in &catalog.tables {
        let is_known = catalog.databases.contains_key(name);
        let remaining =
            tables.iter().filter(|(_, table)| is_known && visible_ids.contains(&table.id));
        let remaining: BTreeMap<String, Arc<Table>> =
            remaining.map(|(name, table)| (name.clone(), Arc::clone(table))).collect();
        hidden |= remaining.len() < tables.len();
        if !remaining.is_empty() {
            reduced.tables.insert(name.clone(), remaining);
        }
    }
    let sequence_homes = subject.sequence_homes(catalog);
    for (name, database) in &catalog.databases {
        let has_sequences =
            sequence_homes.contains(&database.id) && !subject.is_foreign_role(database.owner);
        let has_objects = reduced.tables.contains_key(name) || has_sequences;
        if has_objects || !subject.database_actions(database).is_empty() {
            reduced.databases.insert(name.clone(), Arc::clone(database));
        } else {
            hidden = true;
        }
    }
    if hidden { Arc::new(reduced) } else { Arc::clone(catalog) }
}

/// The role as which an identity grants or revokes these actions on the cluster, a database, a table or a sequence: the
/// owner if the identity has the owner's rights, otherwise a role that holds the grant options for all of them.
///
/// # Errors
/// [`Denied`] when there is none, or the identity is no longer valid.
pub fn grantor(
    access: &Access,
    identity: &Identity,
    now_ms: i64,
    object: &Object,
    actions: Actions,
) -> Result<RoleId, Denied> {
    let subject = Subject::of(access, identity, now_ms).map_err(Denied::Ended)?;
    let (target, owner) = match object {
        Object::Cluster => (Target::Cluster, BOOTSTRAP_ROLE),
        Object::Database(database) => (Target::Database(database.id), database.owner),
        Object::Table { table, .. } => (Target::Table(table.id), table.owner),
        Object::Sequence { id, owner, .. } => (Target::Sequence(*id), *owner),
        _ => return Err(refusal(Action::Own, object)),
    };
    let owns = match object {
        Object::Cluster => subject.has_whole_rights() && subject.has_rights_of(BOOTSTRAP_ROLE),
        _ => subject.decide(Action::Own, object) == Decision::Allowed,
    };
    if owns {
        return Ok(owner);
    }
    if subject.decide(Action::Own, object) == Decision::Hidden {
        return Err(absence(object));
    }
    let holds = |role: &&RoleId| {
        let grant: Option<&Grant> = access.grant(target).map(Arc::as_ref);
        grant.is_some_and(|grant| grant.options_of(**role).includes(actions))
    };
    let holder = subject.roles.iter().find(holds).filter(|_| subject.has_whole_rights());
    holder.copied().ok_or_else(|| refusal(Action::Own, object))
}

fn absence(object: &Object) -> Denied {
    Denied::NotVisible { kind: object.kind(), name: object.name() }
}

fn refusal(action: Action, object: &Object) -> Denied {
    Denied::NotAllowed { action, kind: object.kind(), name: object.name() }
}

/// Result for one need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Allowed,
    Refused,
    Hidden,
}

impl Decision {
    fn allowed_if(condition: bool) -> Self {
        if condition { Self::Allowed } else { Self::Refused }
    }

    /// The decision for an object that is hidden from those who may do nothing with it.
    fn shown_if(condition: bool) -> Self {
        if condition { Self::Allowed } else { Self::Hidden }
    }

    fn by(actions: Actions, action: Action) -> Self {
        if actions.is_empty() { Self::Hidden } else { Self::allowed_if(actions.contains(action)) }
    }
}

/// A valid identity with what its checks have in common.
struct Subject<'a> {
    access: &'a Access,
    /// Role that the session began as.
    login: &'a Role,
    /// Current role.
    role: &'a Role,
    /// Current role and those whose rights it inherits.
    roles: BTreeSet<RoleId>,
    token: Option<&'a Token>,
    org: Option<OrgId>,
}

impl<'a> Subject<'a> {
    fn of(access: &'a Access, identity: &Identity, now_ms: i64) -> Result<Self, EndReason> {
        let is_over = |end_ms: Option<i64>| end_ms.is_some_and(|end_ms| end_ms <= now_ms);
        let token: Option<&'a Token> = match identity.token {
            Some(id) => Some(access.token(id).ok_or(EndReason::TokenDropped)?),
            None => None,
        };
        if let Some(token) = token {
            if token.owner != identity.login {
                return Err(EndReason::TokenDropped);
            }
            if !token.enabled {
                return Err(EndReason::TokenDisabled);
            }
            if is_over(token.expires_ms) {
                return Err(EndReason::TokenExpired);
            }
        }
        let login: &'a Role = access.role(identity.login).ok_or(EndReason::RoleDropped)?;
        if !login.login {
            return Err(EndReason::LoginRevoked);
        }
        if is_over(login.valid_until_ms) {
            return Err(EndReason::RoleExpired);
        }
        // A session that changes its own password expects the next version.
        if token.is_none() && login.secret_version > identity.secret_version {
            return Err(EndReason::SecretChanged);
        }
        let org = token.map_or(login.org, |token| token.org);
        // A token of another organisation than its owner's, or of none, would lead out of it.
        let is_elsewhere = login.org.is_some() && org != login.org;
        if org != identity.org || is_elsewhere {
            return Err(EndReason::OrgChanged);
        }
        let role: &'a Role = match identity.acting {
            Some(acting) => {
                let role: &'a Role = access.role(acting).ok_or(EndReason::ActingRevoked)?;
                let may_act =
                    login.superuser || role::assumable(access.roles(), login.id).contains(&acting);
                if !may_act {
                    return Err(EndReason::ActingRevoked);
                }
                role
            }
            None => login,
        };
        let roles = role::inherited(access.roles(), role.id);
        Ok(Self { access, login, role, roles, token, org })
    }

    /// The owner of a view, limited by the token of this reader of the view. The owner need not be able to log in.
    fn through(&self, owner: RoleId) -> Option<Self> {
        let role: &'a Role = self.access.role(owner)?;
        Some(Self {
            access: self.access,
            login: role,
            role,
            roles: role::inherited(self.access.roles(), role.id),
            token: self.token,
            org: self.token.map_or(role.org, |token| token.org),
        })
    }

    /// True if every check passes.
    fn is_unlimited(&self) -> bool {
        let is_whole = |token: &Token| token.is_unrestricted() && token.org.is_none();
        self.role.superuser && self.token.is_none_or(is_whole)
    }

    /// True without a token, or with one that may do all that its owner may, in its owner's organisation.
    fn has_whole_rights(&self) -> bool {
        let is_whole = |token: &Token| token.is_unrestricted() && token.org == self.login.org;
        self.token.is_none_or(is_whole)
    }

    fn has_rights_of(&self, role: RoleId) -> bool {
        self.role.superuser || self.roles.contains(&role)
    }

    /// True if the organisation is another one than the identity's.
    fn is_foreign(&self, org: Option<OrgId>) -> bool {
        // Superusers stand above organisations, unless their token belongs to one.
        let is_bound = !self.role.superuser || self.token.is_some();
        matches!((self.org, org), (Some(ours), Some(theirs)) if is_bound && ours != theirs)
    }

    /// True if the role may be listed. Outside organisations, only those who manage them, or roles, know whom they have.
    fn sees_role(&self, role: &Role) -> bool {
        if self.is_foreign(role.org) {
            return false;
        }
        let is_outside = self.org.is_none() && role.org.is_some();
        let actions = self.cluster_actions();
        !is_outside
            || self.has_rights_of(role.id)
            || actions.contains(Action::CreateRole)
            || actions.contains(Action::ManageOrg)
    }

    fn is_foreign_role(&self, role: RoleId) -> bool {
        self.is_foreign(self.access.role(role).and_then(|role| role.org))
    }

    fn granted(&self, target: Target) -> Actions {
        let grant: Option<&Grant> = self.access.grant(target).map(Arc::as_ref);
        grant.map_or(Actions::NONE, |grant| grant.actions_of(&self.roles))
    }

    /// Actions on a database and its tables that the token leaves.
    fn limit(&self, database: DatabaseId) -> Actions {
        self.token.map_or(Actions::ALL, |token| token.actions(database))
    }

    fn rows(&self, database: DatabaseId) -> Option<RowPredicate> {
        self.token.and_then(|token| token.rows(database))
    }

    /// Predicate for the rows of a table; none for a view, whose tables are restricted instead.
    fn rows_of(&self, database: DatabaseId, table: &Table) -> Option<RowPredicate> {
        self.rows(database).filter(|_| table.schema.view.is_none())
    }

    fn database_actions(&self, database: &Database) -> Actions {
        if self.is_foreign_role(database.owner) {
            return Actions::NONE;
        }
        let actions = if self.has_rights_of(database.owner) {
            Actions::DATABASE.union(Actions::of(&[Action::Own]))
        } else {
            self.granted(Target::Database(database.id))
        };
        let actions = actions.intersection(self.limit(database.id));
        if actions.is_empty() { actions } else { actions.union(Actions::of(&[Action::Connect])) }
    }

    fn table_actions(&self, database: &Database, table: &Table) -> Actions {
        if self.is_foreign_role(database.owner) || self.is_foreign_role(table.owner) {
            return Actions::NONE;
        }
        let actions = if self.has_rights_of(table.owner) || self.has_rights_of(database.owner) {
            Actions::TABLE.union(Actions::of(&[Action::Own]))
        } else {
            let by_database = self.granted(Target::Database(database.id));
            self.granted(Target::Table(table.id)).union(by_database.intersection(Actions::TABLE))
        };
        let actions = actions.intersection(self.limit(database.id));
        // A predicate that says nothing about this table allows none of its rows.
        let fits = |rows: &RowPredicate| rows.domains(&table.schema).is_ok();
        if self.rows_of(database.id, table).as_ref().is_none_or(fits) {
            actions
        } else {
            actions.without(Actions::of(&[Action::Select]))
        }
    }

    fn sequence_actions(
        &self,
        database: &Database,
        table: Option<&Table>,
        (id, owner): (SequenceId, RoleId),
    ) -> Actions {
        if self.is_foreign_role(database.owner) || self.is_foreign_role(owner) {
            return Actions::NONE;
        }
        let ownership = Actions::of(&[Action::Own]);
        let actions = if self.has_rights_of(owner) || self.has_rights_of(database.owner) {
            Actions::TABLE.union(Actions::SEQUENCE).union(ownership)
        } else {
            let home = match table {
                Some(table) => self.table_actions(database, table).without(ownership),
                None => self.granted(Target::Database(database.id)).intersection(Actions::TABLE),
            };
            // Rows that are inserted get the numbers.
            let usage = match home.contains(Action::Insert) {
                true => Actions::of(&[Action::Connect]),
                false => Actions::NONE,
            };
            home.union(usage).union(self.granted(Target::Sequence(id)))
        };
        actions.intersection(self.sequence_limit(database.id))
    }

    /// Actions on the sequences of a database that the token leaves: one that only reads uses up no numbers.
    fn sequence_limit(&self, database: DatabaseId) -> Actions {
        let limit = self.limit(database);
        let usage = Actions::of(&[Action::Connect]);
        if limit.contains(Action::Insert) { limit.union(usage) } else { limit.without(usage) }
    }

    /// Databases of sequences that roles of the identity own or have grants on.
    fn sequence_homes(&self, catalog: &Catalog) -> BTreeSet<DatabaseId> {
        let sequences = catalog.sequences.values();
        let usable = sequences.filter(|sequence| {
            let held = match self.has_rights_of(sequence.owner) {
                true => Actions::TABLE.union(Actions::SEQUENCE),
                false => self.granted(Target::Sequence(sequence.id)),
            };
            let limit = self.sequence_limit(sequence.database);
            !held.intersection(limit).is_empty() && !self.is_foreign_role(sequence.owner)
        });
        usable.map(|sequence| sequence.database).collect()
    }

    fn cluster_actions(&self) -> Actions {
        if !self.has_whole_rights() {
            return Actions::NONE;
        }
        if self.role.superuser {
            return Actions::CLUSTER;
        }
        let attributes = [
            (self.role.create_db, Action::Create),
            (self.role.create_role, Action::CreateRole),
            (self.role.admin, Action::Admin),
        ];
        let mut actions = self.granted(Target::Cluster);
        for (_, action) in attributes.into_iter().filter(|(has_attribute, _)| *has_attribute) {
            actions = actions.union(Actions::of(&[action]));
        }
        if actions.contains(Action::Admin) {
            actions = actions.union(Actions::of(&[Action::Monitor]));
        }
        actions
    }

    fn sight(&self, database: &Database, table: &Table) -> Sight {
        let actions = self.table_actions(database, table);
        if actions.is_empty() {
            Sight::None
        } else if actions.contains(Action::Select) {
            self.rows_of(database.id, table).map_or(Sight::All, Sight::Rows)
        } else {
            Sight::Names
        }
    }

    fn require(&self, need: &Need) -> Result<(), Denied> {
        match self.decide(need.action, &need.object) {
            Decision::Allowed => Ok(()),
            Decision::Refused => Err(refusal(need.action, &need.object)),
            Decision::Hidden => Err(absence(&need.object)),
        }
    }

    fn decide(&self, action: Action, object: &Object) -> Decision {
        if self.is_unlimited() {
            return Decision::Allowed;
        }
        let cluster = self.cluster_actions();
        match object {
            Object::Cluster => {
                Decision::allowed_if(action == Action::Login || cluster.contains(action))
            }
            Object::Database(database) => Decision::by(self.database_actions(database), action),
            Object::Table { database, table } => {
                Decision::by(self.table_actions(database, table), action)
            }
            Object::SystemTable(_) => Decision::allowed_if(match action {
                Action::Select => true,
                Action::Monitor | Action::Admin => cluster.contains(action),
                _ => false,
            }),
            Object::Setting(_) => Decision::allowed_if(match action {
                Action::Select | Action::Maintain => true,
                Action::Admin => cluster.contains(action),
                _ => false,
            }),
            Object::Role { id, .. } => self.decide_role(action, *id),
            Object::Token(id) => Decision::shown_if(self.may_manage_token(action, *id)),
            Object::Org { id, .. } => self.decide_org(action, *id),
            Object::Task { owner, .. } => Decision::shown_if(
                action == Action::Task
                    && self.has_whole_rights()
                    && !self.is_foreign_role(*owner)
                    && self.has_rights_of(*owner),
            ),
            Object::Sequence { id, database, table, owner, .. } => {
                let table = table.as_deref();
                Decision::by(self.sequence_actions(database, table, (*id, *owner)), action)
            }
            Object::Session { role } => Decision::allowed_if(self.may_touch_session(action, *role)),
        }
    }

    fn decide_role(&self, action: Action, id: RoleId) -> Decision {
        if self.access.role(id).is_none_or(|role| !self.sees_role(role)) {
            return Decision::Hidden;
        }
        if action == Action::Select {
            return Decision::Allowed;
        }
        let roles = self.access.roles();
        // Power over a role, and over those that it may become, must not give more power than the current role has.
        let is_above = role::assumable(roles, id)
            .iter()
            .filter_map(|id| roles.get(id))
            .any(|role| role.superuser || role.admin && !self.role.admin);
        let administers =
            self.role.superuser || !is_above && role::administers(roles, &self.roles, id);
        let alters = administers && self.cluster_actions().contains(Action::CreateRole);
        let allowed = match action {
            Action::Login => {
                self.login.superuser || role::assumable(roles, self.login.id).contains(&id)
            }
            Action::Admin => administers,
            Action::CreateRole => alters,
            Action::Maintain => alters || id == self.login.id,
            // A token outlives a membership: members do not make tokens of their groups, with SET ROLE neither.
            Action::ManageToken => {
                let is_own = id == self.login.id || self.login.superuser;
                self.role.superuser || alters || id == self.role.id && is_own
            }
            _ => false,
        };
        Decision::allowed_if(allowed && self.has_whole_rights())
    }

    fn may_manage_token(&self, action: Action, id: TokenId) -> bool {
        let is_known = matches!(action, Action::Select | Action::ManageToken);
        let Some(token) = self.access.token(id) else { return false };
        let is_foreign = self.is_foreign(token.org) || self.is_foreign_role(token.owner);
        if !is_known || is_foreign || !self.has_whole_rights() {
            return false;
        }
        let is_of_superuser = self.access.role(token.owner).is_some_and(|owner| owner.superuser);
        let manages = self.cluster_actions().contains(Action::ManageToken) && !is_of_superuser;
        manages || self.has_rights_of(token.owner)
    }

    fn decide_org(&self, action: Action, id: OrgId) -> Decision {
        if self.access.org(id).is_none() || self.is_foreign(Some(id)) {
            return Decision::Hidden;
        }
        let is_own = self.org == Some(id);
        let manages = self.cluster_actions().contains(Action::ManageOrg);
        match action {
            Action::Select => Decision::shown_if(is_own || manages),
            Action::ManageOrg if is_own => Decision::allowed_if(manages),
            Action::ManageOrg => Decision::shown_if(manages),
            _ if is_own => Decision::Refused,
            _ => Decision::Hidden,
        }
    }

    fn may_touch_session(&self, action: Action, role: RoleId) -> bool {
        if self.is_foreign_role(role) || !self.has_whole_rights() {
            return false;
        }
        let cluster = self.cluster_actions();
        let is_superuser = self.access.role(role).is_some_and(|role| role.superuser);
        match action {
            Action::Monitor => self.has_rights_of(role) || cluster.contains(Action::Monitor),
            Action::Maintain => {
                self.has_rights_of(role) || cluster.contains(Action::Admin) && !is_superuser
            }
            _ => false,
        }
    }
}
