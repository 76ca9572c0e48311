//! Roles and privileges as system tables and functions show them.
//!
//! A viewer sees the roles that its organisation allows. A token that may use only a part of its owner's rights sees
//! the owner alone: its neighbours in a database may be other customers. Grants that name a role that is not seen are
//! not listed, and functions answer for it as for a role that does not exist.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use partita_proto::access::{
    Access, Action, Actions, Door, Grant, GrantEntry, Grantee, Identity, Mode, Need, Object,
    Permission, Role, Scope, Sight, Target, Token, check,
};
use partita_proto::catalog::{Catalog, Database, Table};
use partita_proto::id::{BOOTSTRAP_ROLE, DatabaseId, RoleId, SequenceId, TableId};
use partita_proto::sequence::Sequence;

use crate::access::viewer::{Viewer, now_ms};
use crate::error::SqlError;
use crate::virtual_table::{Cell, Kind, batch, schema};

/// Columns of `sys.roles`.
pub(crate) const ROLES: &[(&str, Kind)] = &[
    ("role", Kind::Text),
    ("role_id", Kind::Count),
    ("login", Kind::Flag),
    ("superuser", Kind::Flag),
    ("create_db", Kind::Flag),
    ("create_role", Kind::Flag),
    ("admin", Kind::Flag),
    ("organisation", Kind::Text),
    ("has_password", Kind::Flag),
    ("valid_until", Kind::Time),
    ("member_of", Kind::Text),
];

/// Columns of `sys.grants`.
pub(crate) const GRANTS: &[(&str, Kind)] = &[
    ("object", Kind::Text),
    ("database", Kind::Text),
    ("table", Kind::Text),
    ("grantee", Kind::Text),
    ("grantor", Kind::Text),
    ("privilege", Kind::Text),
    ("grantable", Kind::Flag),
];

/// Columns of `sys.tokens`.
pub(crate) const TOKENS: &[(&str, Kind)] = &[
    ("token_id", Kind::Text),
    ("description", Kind::Text),
    ("owner", Kind::Text),
    ("organisation", Kind::Text),
    ("permissions", Kind::Text),
    ("created", Kind::Time),
    ("expires", Kind::Time),
    ("enabled", Kind::Flag),
];

/// Letters of PostgreSQL's access lists. TASK is not among PostgreSQL's privileges.
const LETTERS: [(Action, char); 9] = [
    (Action::Insert, 'a'),
    (Action::Select, 'r'),
    (Action::Update, 'w'),
    (Action::Delete, 'd'),
    (Action::Truncate, 'D'),
    (Action::Maintain, 'm'),
    (Action::Create, 'C'),
    (Action::Connect, 'c'),
    (Action::Task, 'k'),
];

/// Letters of the access lists of sequences.
const SEQUENCE_LETTERS: [(Action, char); 3] =
    [(Action::Select, 'r'), (Action::Update, 'w'), (Action::Connect, 'U')];

/// Actions by which a sequence exists for an identity.
pub(crate) const VISIBLE_BY: [Action; 4] =
    [Action::Own, Action::Select, Action::Update, Action::Connect];

/// Rights of one grantee on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privilege {
    /// Role that has the rights; `None`: PUBLIC.
    pub grantee: Option<RoleId>,
    /// Role that granted them; the owner for its own.
    pub grantor: RoleId,
    /// Rights of the grantee.
    pub actions: Actions,
    /// Those of them that it may grant to others.
    pub grantable: Actions,
}

impl From<&GrantEntry> for Privilege {
    fn from(entry: &GrantEntry) -> Self {
        let grantee = match entry.grantee {
            Grantee::Public => None,
            Grantee::Role(role) => Some(role),
        };
        let GrantEntry { actions, grantable, grantor, .. } = *entry;
        Self { grantee, grantor, actions, grantable }
    }
}

/// Current role of a viewer.
pub fn current_role(viewer: &Viewer) -> RoleId {
    let identity = viewer.identity();
    identity.acting.unwrap_or(identity.login)
}

/// Name of a role; as in PostgreSQL, `unknown (OID=7)` for one that was dropped.
pub fn role_name(access: &Access, role: RoleId) -> String {
    let record = access.role(role);
    record.map_or_else(|| format!("unknown (OID={role})"), |role| role.name.clone())
}

/// True if the viewer may know that the role exists.
pub fn shows_role(viewer: &Viewer, role: &Role) -> bool {
    let identity = viewer.identity();
    if let Some(id) = identity.token {
        let access = viewer.access();
        if !access.token(id).is_some_and(|token| token.is_unrestricted()) {
            return role.id == identity.login;
        }
    }
    let object = Object::Role { id: role.id, name: role.name.clone() };
    viewer.check(&[Need::new(Action::Select, object)]).is_ok()
}

/// Name of a role for a viewer; as in PostgreSQL, `unknown (OID=7)` for one that the viewer may not know.
pub fn shown_role_name(viewer: &Viewer, role: RoleId) -> String {
    let access = viewer.access();
    let record = access.role(role).filter(|role| shows_role(viewer, role));
    record.map_or_else(|| format!("unknown (OID={role})"), |role| role.name.clone())
}

/// Roles that the viewer may know, by id.
pub fn visible_roles(viewer: &Viewer) -> Vec<Arc<Role>> {
    let access = viewer.access();
    access.roles().values().filter(|role| shows_role(viewer, role)).map(Arc::clone).collect()
}

/// The role, and those that it is a member of: with `inherited`, only those whose rights it has without SET ROLE.
pub fn role_closure(access: &Access, role: RoleId, inherited: bool) -> BTreeSet<RoleId> {
    let mut reached = BTreeSet::from([role]);
    let mut pending = vec![role];
    while let Some(id) = pending.pop() {
        let Some(role) = access.role(id) else { continue };
        for membership in role.member_of.iter().filter(|item| item.inherit || !inherited) {
            if access.role(membership.role).is_some() && reached.insert(membership.role) {
                pending.push(membership.role);
            }
        }
    }
    reached
}

/// True if a role may do something: the viewer itself for `None` and for its current role, else a role that the viewer
/// sees, without the restrictions of a token.
pub fn may(viewer: &Viewer, role: Option<RoleId>, need: Need) -> bool {
    let Some(role) = role.filter(|role| *role != current_role(viewer)) else {
        return viewer.check(&[need]).is_ok();
    };
    let access = viewer.access();
    // A superuser may become every role, those without LOGIN included.
    let Some(superuser) = access.role(BOOTSTRAP_ROLE) else { return false };
    let identity = Identity {
        login: superuser.id,
        acting: Some(role),
        token: None,
        secret_version: superuser.secret_version,
        org: superuser.org,
        door: Door::Internal,
    };
    check(&access, &identity, now_ms(), &[need]).is_ok()
}

/// A sequence as the object of a need.
///
/// # Errors
/// 42P01 when its database was dropped.
pub fn sequence_object(catalog: &Catalog, sequence: &Sequence) -> Result<Object, SqlError> {
    let mut databases = catalog.databases.values();
    let database = databases.find(|database| database.id == sequence.database);
    let database = database.ok_or_else(|| SqlError::undefined_table(&sequence.name))?;
    let table = sequence.column.and_then(|column| catalog.table_by_id(column.table));
    Ok(Object::Sequence {
        id: sequence.id,
        database: Arc::clone(database),
        table: table.map(Arc::clone),
        name: sequence.name.clone(),
        owner: sequence.owner,
    })
}

/// Sequences that a viewer may do something with, by the names of their databases.
pub fn shown_sequences(viewer: &Viewer) -> Vec<(String, Arc<Sequence>)> {
    let catalog = viewer.catalog();
    let mut entries = Vec::new();
    for sequence in catalog.sequences.values() {
        let Ok(object) = sequence_object(&catalog, sequence) else { continue };
        let Object::Sequence { database, .. } = &object else { continue };
        let name = database.name.clone();
        let needs = VISIBLE_BY.map(|action| Need::new(action, object.clone()));
        if needs.into_iter().any(|need| viewer.check(&[need]).is_ok()) {
            entries.push((name, Arc::clone(sequence)));
        }
    }
    entries
}

/// All rights on an object: those of the owner, then those granted to others.
fn privileges(
    viewer: &Viewer,
    owner: RoleId,
    of_owner: Actions,
    grant: Option<&Arc<Grant>>,
) -> Vec<Privilege> {
    let owner_privilege =
        Privilege { grantee: Some(owner), grantor: owner, actions: of_owner, grantable: of_owner };
    let access = viewer.access();
    let is_shown = |role: RoleId| access.role(role).is_some_and(|role| shows_role(viewer, role));
    let entries = grant.into_iter().flat_map(|grant| grant.entries()).map(Privilege::from);
    let entries = std::iter::once(owner_privilege).chain(entries);
    entries
        .filter(|privilege| is_shown(privilege.grantor) && privilege.grantee.is_none_or(is_shown))
        .collect()
}

/// Rights on a table that the viewer may know: those of the owner, then those granted to others.
pub fn privileges_of(viewer: &Viewer, table: &Table) -> Vec<Privilege> {
    let access = viewer.access();
    privileges(viewer, table.owner, Actions::TABLE, access.grant(Target::Table(table.id)))
}

/// Access list of a table as PostgreSQL writes it; `None` when only the owner has rights.
pub fn table_acl(viewer: &Viewer, table: &Table) -> Option<Vec<String>> {
    let access = viewer.access();
    access.grant(Target::Table(table.id))?;
    Some(texts(&access, &privileges_of(viewer, table), &LETTERS))
}

/// Access list of a sequence as PostgreSQL writes it; `None` when only the owner has rights.
pub fn sequence_acl(viewer: &Viewer, sequence: &Sequence) -> Option<Vec<String>> {
    let access = viewer.access();
    let grant = access.grant(Target::Sequence(sequence.id))?;
    let entries = privileges(viewer, sequence.owner, Actions::SEQUENCE, Some(grant));
    Some(texts(&access, &entries, &SEQUENCE_LETTERS))
}

/// Access list of a database as PostgreSQL writes it; `None` when only the owner has rights.
pub fn database_acl(viewer: &Viewer, database: &Database) -> Option<Vec<String>> {
    let access = viewer.access();
    let grant = access.grant(Target::Database(database.id))?;
    let entries = privileges(viewer, database.owner, Actions::DATABASE, Some(grant));
    Some(texts(&access, &entries, &LETTERS))
}

fn texts(access: &Access, privileges: &[Privilege], letters: &[(Action, char)]) -> Vec<String> {
    privileges.iter().map(|privilege| acl_text(access, privilege, letters)).collect()
}

/// One item of an access list: `grantee=ar*/grantor`, with `*` after rights that may be granted on. PUBLIC is empty.
fn acl_text(access: &Access, privilege: &Privilege, letters: &[(Action, char)]) -> String {
    let grantee = privilege.grantee.map(|role| quoted(&role_name(access, role)));
    let mut text = grantee.unwrap_or_default();
    text.push('=');
    for &(action, letter) in letters {
        if privilege.actions.contains(action) {
            text.push(letter);
            if privilege.grantee != Some(privilege.grantor) && privilege.grantable.contains(action)
            {
                text.push('*');
            }
        }
    }
    text.push('/');
    text.push_str(&quoted(&role_name(access, privilege.grantor)));
    text
}

/// A name of an access list, in quotation marks unless it has letters, digits and underscores only.
fn quoted(name: &str) -> String {
    if name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn time(milliseconds: Option<i64>) -> Cell {
    Cell::Time(milliseconds)
}

/// Rows of `sys.roles`.
pub(crate) fn roles(viewer: &Viewer) -> Result<RecordBatch, SqlError> {
    let access = viewer.access();
    let row = |role: &Arc<Role>| {
        let groups = role.member_of.iter().filter_map(|membership| access.role(membership.role));
        let groups: Vec<String> = groups
            .filter(|group| shows_role(viewer, group))
            .map(|group| group.name.clone())
            .collect();
        let org = role.org.and_then(|org| access.org(org));
        vec![
            role.name.as_str().into(),
            u64::from(role.id.0).into(),
            role.login.into(),
            role.superuser.into(),
            role.create_db.into(),
            role.create_role.into(),
            role.admin.into(),
            org.map(|org| org.name.clone()).into(),
            role.verifier.is_some().into(),
            time(role.valid_until_ms),
            groups.join(", ").into(),
        ]
    };
    batch(&schema(ROLES), visible_roles(viewer).iter().map(row).collect())
}

/// Names of the objects that a viewer sees, by id: a look-up does not search the catalog.
pub(crate) struct ObjectNames {
    databases: HashMap<DatabaseId, Arc<Database>>,
    tables: HashMap<TableId, Arc<Table>>,
    /// Sequences with the names of their databases.
    sequences: HashMap<SequenceId, (String, Arc<Sequence>)>,
    shows_cluster: bool,
}

/// An object of grants as system tables name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectName<'a> {
    /// `cluster`, `database`, `table` or `sequence`.
    pub(crate) kind: &'static str,
    /// Name of the database, or of that of the table or sequence.
    pub(crate) database: Option<&'a str>,
    /// Name of the table or sequence; `None` for other objects.
    pub(crate) table: Option<&'a str>,
}

impl ObjectNames {
    pub(crate) fn new(viewer: &Viewer) -> Self {
        let sequences = shown_sequences(viewer).into_iter();
        let sequences = sequences.map(|(database, sequence)| (sequence.id, (database, sequence)));
        Self {
            sequences: sequences.collect(),
            ..Self::of_catalog(&viewer.catalog(), viewer.monitors())
        }
    }

    fn of_catalog(catalog: &Catalog, shows_cluster: bool) -> Self {
        let databases = catalog.databases.values();
        let tables = catalog.tables.values().flat_map(BTreeMap::values);
        Self {
            databases: databases.map(|database| (database.id, Arc::clone(database))).collect(),
            tables: tables.map(|table| (table.id, Arc::clone(table))).collect(),
            sequences: HashMap::new(),
            shows_cluster,
        }
    }

    /// The object of grants; `None` for one that the viewer does not see.
    pub(crate) fn of(&self, target: Target) -> Option<ObjectName<'_>> {
        Some(match target {
            // What roles may do to the cluster is for those who monitor it.
            Target::Cluster if !self.shows_cluster => return None,
            Target::Cluster => ObjectName { kind: "cluster", database: None, table: None },
            Target::Database(id) => {
                ObjectName { kind: "database", database: Some(self.database(id)?), table: None }
            }
            Target::Table(id) => {
                let table = self.tables.get(&id)?;
                let (database, table) = (Some(table.database.as_str()), Some(table.name.as_str()));
                ObjectName { kind: "table", database, table }
            }
            Target::Sequence(id) => {
                let (database, sequence) = self.sequences.get(&id)?;
                let (database, table) = (Some(database.as_str()), Some(sequence.name.as_str()));
                ObjectName { kind: "sequence", database, table }
            }
        })
    }

    fn database(&self, id: DatabaseId) -> Option<&str> {
        self.databases.get(&id).map(|database| database.name.as_str())
    }
}

/// Roles that are shown to a viewer; each is checked once.
struct ShownRoles<'a> {
    viewer: &'a Viewer,
    access: &'a Access,
    answers: HashMap<RoleId, bool>,
}

impl ShownRoles<'_> {
    fn contains(&mut self, role: RoleId) -> bool {
        let (viewer, access) = (self.viewer, self.access);
        let is_shown = || access.role(role).is_some_and(|role| shows_role(viewer, role));
        *self.answers.entry(role).or_insert_with(is_shown)
    }

    /// True if grantor and grantee are shown.
    fn shows(&mut self, privilege: &Privilege) -> bool {
        self.contains(privilege.grantor)
            && privilege.grantee.is_none_or(|grantee| self.contains(grantee))
    }
}

/// Rows of `sys.grants`: one for each right.
pub(crate) fn grants(viewer: &Viewer) -> Result<RecordBatch, SqlError> {
    let access = viewer.access();
    let names = ObjectNames::new(viewer);
    let mut roles = ShownRoles { viewer, access: &access, answers: HashMap::new() };
    let mut rows = Vec::new();
    let text = |name: Option<&str>| Cell::Text(name.map(str::to_owned));
    for grant in access.grants() {
        let Some(object) = names.of(grant.target()) else { continue };
        for privilege in grant.entries().iter().map(Privilege::from) {
            if !roles.shows(&privilege) {
                continue;
            }
            let grantee = privilege.grantee.map(|role| role_name(&access, role));
            let grantee = grantee.unwrap_or_else(|| "PUBLIC".to_owned());
            for action in privilege.actions.iter() {
                rows.push(vec![
                    object.kind.into(),
                    text(object.database),
                    text(object.table),
                    grantee.as_str().into(),
                    role_name(&access, privilege.grantor).into(),
                    grant.target().name_of(action).into(),
                    privilege.grantable.contains(action).into(),
                ]);
            }
        }
    }
    batch(&schema(GRANTS), rows)
}

/// A permission as text: `read bucket "metrics" where "area" = 'A'`. Databases that the viewer does not see have their
/// id in place of the name.
fn permission_text(names: &ObjectNames, permission: &Permission) -> String {
    let mode = match permission.mode {
        Mode::Read => "read",
        Mode::Write => "write",
        Mode::Both => "read and write",
    };
    match &permission.scope {
        Scope::Everything => format!("{mode} everything"),
        Scope::AllBuckets => format!("{mode} all buckets"),
        Scope::Bucket { database, rows } => {
            let name = names.database(*database);
            let name = name.map_or_else(|| database.to_string(), |name| format!("\"{name}\""));
            let rows = rows.as_ref().map(|rows| format!(" where {rows}")).unwrap_or_default();
            format!("{mode} bucket {name}{rows}")
        }
    }
}

/// Rows of `sys.tokens`: those that the viewer may manage, without secrets.
pub(crate) fn tokens(viewer: &Viewer) -> Result<RecordBatch, SqlError> {
    let access = viewer.access();
    let mut visible_tokens: Vec<_> = access
        .tokens()
        .filter(|token| viewer.check(&[Need::new(Action::Select, Object::Token(token.id))]).is_ok())
        .collect();
    visible_tokens.sort_by_key(|token| (token.created_ms, token.id));
    let names = ObjectNames::new(viewer);
    let row = |token: &&Arc<Token>| {
        let permissions = token.permissions.iter();
        let permissions: Vec<String> =
            permissions.map(|permission| permission_text(&names, permission)).collect();
        let org = token.org.and_then(|org| access.org(org));
        vec![
            token.id.to_string().into(),
            token.description.as_str().into(),
            role_name(&access, token.owner).into(),
            org.map(|org| org.name.clone()).into(),
            permissions.join(", ").into(),
            time(Some(token.created_ms)),
            time(token.expires_ms),
            token.enabled.into(),
        ]
    };
    batch(&schema(TOKENS), visible_tokens.iter().map(row).collect())
}

/// True if the viewer sees the whole of a table, so that figures about it may be shown.
pub fn sees_all(viewer: &Viewer, table: TableId) -> bool {
    viewer.sight_of(table) == Sight::All
}

#[cfg(test)]
mod tests {
    use partita_proto::access::{Membership, Secrets};

    use super::*;

    fn access() -> Access {
        let mut access = Access::bootstrap("partita", Secrets::default());
        access.put_role(Role::new(RoleId(1), "staff"));
        access.put_role(Role::new(RoleId(2), "night shift"));
        let membership = |role, inherit| Membership { role, admin_option: false, inherit };
        let member_of = vec![membership(RoleId(1), true), membership(RoleId(2), false)];
        access.put_role(Role { member_of, ..Role::new(RoleId(3), "ada") });
        access
    }

    #[test]
    fn access_lists_are_written_as_postgresql_writes_them() {
        let access = access();
        let rights = Actions::of(&[Action::Select, Action::Insert]);
        let select = Actions::of(&[Action::Select]);
        let privilege = |grantee, grantor: u32, actions, grantable| Privilege {
            grantee,
            grantor: RoleId(grantor),
            actions,
            grantable,
        };
        for (privilege, text) in [
            (privilege(Some(RoleId(1)), 0, rights, select), "staff=ar*/partita"),
            (privilege(None, 2, select, Actions::NONE), "=r/\"night shift\""),
            (
                privilege(Some(RoleId(0)), 0, Actions::TABLE, Actions::TABLE),
                "partita=arwdDm/partita",
            ),
            (privilege(Some(RoleId(9)), 0, select, select), "\"unknown (OID=9)\"=r*/partita"),
        ] {
            assert_eq!(acl_text(&access, &privilege, &LETTERS), text);
        }
        let usage = Actions::of(&[Action::Connect, Action::Select]);
        let of_sequence = privilege(Some(RoleId(1)), 0, usage, Actions::NONE);
        assert_eq!(acl_text(&access, &of_sequence, &SEQUENCE_LETTERS), "staff=rU/partita");
    }

    #[test]
    fn objects_are_found_by_their_ids() {
        let database = Database {
            id: DatabaseId(7),
            name: "d".to_owned(),
            ttl: None,
            owner: BOOTSTRAP_ROLE,
            explicit: false,
            comment: None,
        };
        let databases = BTreeMap::from([("d".to_owned(), Arc::new(database))]);
        let catalog = Catalog { databases, ..Catalog::default() };
        let names = ObjectNames::of_catalog(&catalog, true);
        let database = ObjectName { kind: "database", database: Some("d"), table: None };
        assert_eq!(names.of(Target::Database(DatabaseId(7))), Some(database));
        assert_eq!(names.of(Target::Database(DatabaseId(8))), None);
        assert_eq!(names.of(Target::Table(TableId(7))), None);
        let cluster = ObjectName { kind: "cluster", database: None, table: None };
        assert_eq!(names.of(Target::Cluster), Some(cluster));
        assert_eq!(ObjectNames::of_catalog(&catalog, false).of(Target::Cluster), None);
    }

    #[test]
    fn memberships_without_inheritance_need_set_role() {
        let access = access();
        let reached = |inherited| -> Vec<u32> {
            role_closure(&access, RoleId(3), inherited).into_iter().map(|role| role.0).collect()
        };
        assert_eq!(reached(true), [1, 3]);
        assert_eq!(reached(false), [1, 2, 3]);
    }
}
