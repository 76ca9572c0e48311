//! Statements about who may do what: roles, rights, owners and tokens, as written.
//!
//! Names of roles and objects are resolved when the statement runs, against the catalog of that time.
//!
//! Invariant: the text of a password is in [`Password`] only, which `Debug` does not show.

use std::fmt;

use partita_proto::access::{Actions, Mode, Profile, RowPredicate};
use partita_proto::id::TokenId;

use crate::table_name::TableName;

/// A statement about roles, rights, owners or tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum AccessStatement {
    /// CREATE ROLE, USER or GROUP.
    CreateRole(Box<CreateRole>),
    /// ALTER ROLE, USER or GROUP.
    AlterRole {
        /// Role to change.
        role: RoleName,
        /// The one change of the statement.
        change: Box<RoleChange>,
    },
    /// DROP ROLE, USER or GROUP.
    DropRole {
        /// Roles to drop.
        names: Vec<String>,
        /// No error when one does not exist.
        if_exists: bool,
    },
    /// GRANT role TO role, and ALTER GROUP ... ADD USER.
    GrantRole(GrantRole),
    /// REVOKE role FROM role, and ALTER GROUP ... DROP USER.
    RevokeRole(RevokeRole),
    /// GRANT of rights on objects.
    Grant(GrantRights),
    /// REVOKE of rights on objects.
    Revoke(RevokeRights),
    /// ALTER TABLE or DATABASE ... OWNER TO.
    SetOwner {
        /// Object that gets another owner.
        object: OwnedObject,
        /// New owner.
        owner: RoleName,
    },
    /// REASSIGN OWNED BY roles TO role.
    ReassignOwned {
        /// Former owners.
        owners: Vec<RoleName>,
        /// New owner of all their databases and tables.
        successor: RoleName,
    },
    /// DROP OWNED BY roles.
    DropOwned {
        /// Owners of the databases, tables and tokens to drop; rights that were granted to them end.
        owners: Vec<RoleName>,
        /// True if a database is dropped with the tables of other roles in it.
        cascade: bool,
    },
    /// CREATE TOKEN, which answers with a row.
    CreateToken(Box<CreateToken>),
    /// ALTER TOKEN by id.
    AlterToken {
        /// Token to change.
        id: TokenId,
        /// Changes of the token.
        options: TokenOptions,
    },
    /// DROP TOKEN of one or more tokens.
    DropToken {
        /// Tokens to drop.
        ids: Vec<TokenId>,
        /// No error when one does not exist.
        if_exists: bool,
    },
    /// CREATE ORGANISATION.
    CreateOrg {
        /// Organisation name.
        name: String,
        /// Limits; a name in it is ignored.
        options: OrgOptions,
    },
    /// ALTER ORGANISATION.
    AlterOrg {
        /// Organisation to change.
        name: String,
        /// Properties that change.
        options: OrgOptions,
    },
    /// DROP ORGANISATION.
    DropOrg {
        /// Organisation to drop.
        name: String,
        /// No error when it does not exist.
        if_exists: bool,
    },
    /// SHOW GRANTS of one role or all.
    ShowGrants {
        /// Role whose rights are shown; `None`: those of all roles.
        role: Option<RoleName>,
    },
    /// SHOW TOKENS that the client may manage.
    ShowTokens,
}

impl AccessStatement {
    /// Returns true if it only reads.
    pub fn reads(&self) -> bool {
        matches!(self, Self::ShowGrants { .. } | Self::ShowTokens)
    }

    /// PostgreSQL's command tag.
    pub fn tag(&self) -> &'static str {
        match self {
            Self::CreateRole(_) => "CREATE ROLE",
            Self::AlterRole { .. } => "ALTER ROLE",
            Self::DropRole { .. } => "DROP ROLE",
            Self::GrantRole(_) => "GRANT ROLE",
            Self::RevokeRole(_) => "REVOKE ROLE",
            Self::Grant(_) => "GRANT",
            Self::Revoke(_) => "REVOKE",
            Self::SetOwner { object: OwnedObject::Table { .. }, .. } => "ALTER TABLE",
            Self::SetOwner { object: OwnedObject::Database(_), .. } => "ALTER DATABASE",
            Self::SetOwner { object: OwnedObject::Sequence { .. }, .. } => "ALTER SEQUENCE",
            Self::ReassignOwned { .. } => "REASSIGN OWNED",
            Self::DropOwned { .. } => "DROP OWNED",
            Self::CreateToken(_) => "CREATE TOKEN",
            Self::AlterToken { .. } => "ALTER TOKEN",
            Self::DropToken { .. } => "DROP TOKEN",
            Self::CreateOrg { .. } => "CREATE ORGANISATION",
            Self::AlterOrg { .. } => "ALTER ORGANISATION",
            Self::DropOrg { .. } => "DROP ORGANISATION",
            Self::ShowGrants { .. } | Self::ShowTokens => "SHOW",
        }
    }
}

/// Properties of an organisation; `None`: unchanged, or the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrgOptions {
    /// New name.
    pub name: Option<String>,
    /// Limits by contract.
    pub profile: Option<Profile>,
    /// Maximum number of series; `Some(None)`: that of the profile.
    pub series_max: Option<Option<u64>>,
}

/// A role in a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleName {
    /// A name, folded.
    Named(String),
    /// CURRENT_USER or CURRENT_ROLE.
    CurrentUser,
    /// SESSION_USER: the role that the session began as.
    SessionUser,
}

/// Receiver of rights in a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GranteeName {
    /// PUBLIC: every role.
    Public,
    /// One role, and those that inherit it.
    Role(RoleName),
}

/// The text after PASSWORD: a password, or a SCRAM-SHA-256 verifier.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Takes the text.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, to compute a verifier from it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// Options of CREATE and ALTER ROLE; `None`: not in the statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleOptions {
    /// SUPERUSER or NOSUPERUSER.
    pub superuser: Option<bool>,
    /// CREATEDB or NOCREATEDB.
    pub create_db: Option<bool>,
    /// CREATEROLE or NOCREATEROLE.
    pub create_role: Option<bool>,
    /// INHERIT or NOINHERIT, for the memberships of the statement.
    pub inherit: Option<bool>,
    /// LOGIN or NOLOGIN.
    pub login: Option<bool>,
    /// ADMIN: orders to the cluster.
    pub admin: Option<bool>,
    /// PASSWORD; `Some(None)`: PASSWORD NULL.
    pub password: Option<Option<Password>>,
    /// VALID UNTIL in milliseconds since 1970; `Some(None)`: 'infinity'.
    pub valid_until_ms: Option<Option<i64>>,
    /// ORGANISATION by name; `Some(None)`: ORGANISATION NONE.
    pub org: Option<Option<String>>,
}

impl RoleOptions {
    /// Returns true if PASSWORD is the only option, which every role may change for itself.
    pub fn is_password_only(&self) -> bool {
        self.password.is_some()
            && *self == Self { password: self.password.clone(), ..Self::default() }
    }
}

/// CREATE ROLE, USER or GROUP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateRole {
    /// Name of the new role, folded.
    pub name: String,
    /// Attributes; CREATE USER has LOGIN unless it says NOLOGIN.
    pub options: RoleOptions,
    /// IN ROLE: roles that the new one becomes a member of.
    pub in_roles: Vec<RoleName>,
    /// ROLE: members of the new role.
    pub members: Vec<RoleName>,
    /// ADMIN: members of the new role that may grant it to others.
    pub admins: Vec<RoleName>,
}

/// One change of ALTER ROLE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleChange {
    /// Attributes.
    Options(RoleOptions),
    /// RENAME TO.
    Rename(String),
    /// SET or RESET of the default of a setting, for later sessions of the role.
    Setting {
        /// Setting name, folded.
        name: String,
        /// New default; `None` removes it.
        value: Option<String>,
    },
    /// SET setting FROM CURRENT: the session's value becomes the default.
    SettingFromCurrent(String),
    /// RESET ALL: no defaults.
    ResetAll,
}

/// GRANT role TO role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRole {
    /// Roles that get members.
    pub groups: Vec<RoleName>,
    /// Roles that become members.
    pub members: Vec<RoleName>,
    /// WITH ADMIN: true if the members may grant the roles to others.
    pub admin_option: bool,
    /// WITH INHERIT: `None` keeps that of an earlier membership, or is true.
    pub inherit: Option<bool>,
    /// GRANTED BY.
    pub grantor: Option<RoleName>,
}

/// Part of a membership that REVOKE takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipPart {
    /// All of it.
    Whole,
    /// ADMIN OPTION FOR: the right to grant the role.
    AdminOption,
    /// INHERIT OPTION FOR.
    Inherit,
}

/// REVOKE role FROM role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokeRole {
    /// Roles that lose members.
    pub groups: Vec<RoleName>,
    /// Roles that are no longer members.
    pub members: Vec<RoleName>,
    /// Part that is taken away.
    pub part: MembershipPart,
    /// GRANTED BY.
    pub grantor: Option<RoleName>,
}

/// Objects of GRANT and REVOKE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantObjects {
    /// ON CLUSTER.
    Cluster,
    /// DATABASE or SCHEMA, by name.
    Databases(Vec<String>),
    /// TABLE, which may be left out.
    Tables(Vec<TableName>),
    /// ALL TABLES IN SCHEMA or DATABASE: those that exist.
    AllTablesIn(Vec<String>),
    /// SEQUENCE, by name.
    Sequences(Vec<TableName>),
    /// ALL SEQUENCES IN SCHEMA or DATABASE: those that exist.
    AllSequencesIn(Vec<String>),
}

/// Privileges of GRANT and REVOKE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privileges {
    /// ALL PRIVILEGES: those of the kind of object.
    All,
    /// The listed ones.
    Listed(Actions),
}

/// GRANT of rights on objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRights {
    /// Rights that are granted.
    pub privileges: Privileges,
    /// Objects of the rights.
    pub objects: GrantObjects,
    /// Receivers of the rights.
    pub grantees: Vec<GranteeName>,
    /// WITH GRANT OPTION.
    pub grant_option: bool,
    /// GRANTED BY.
    pub grantor: Option<RoleName>,
}

/// REVOKE of rights on objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokeRights {
    /// Rights that are taken away.
    pub privileges: Privileges,
    /// Objects of the rights.
    pub objects: GrantObjects,
    /// Roles that lose the rights.
    pub grantees: Vec<GranteeName>,
    /// GRANT OPTION FOR: the rights stay.
    pub options_only: bool,
    /// CASCADE: rights that were granted by lost options go, too.
    pub cascade: bool,
    /// GRANTED BY.
    pub grantor: Option<RoleName>,
}

/// Object of OWNER TO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedObject {
    /// TABLE, with its former table.
    Table {
        /// Name of the table.
        name: TableName,
        /// No error when it does not exist.
        if_exists: bool,
    },
    /// A database, by name.
    Database(String),
    /// A sequence that no column owns.
    Sequence {
        /// Name of the sequence.
        name: TableName,
        /// No error when it does not exist.
        if_exists: bool,
    },
}

/// SET ROLE and RESET ROLE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetRole {
    /// Role to become; `None`: the one that the session began as.
    pub role: Option<String>,
    /// True for the forms of RESET, whose tag it is.
    pub is_reset: bool,
}

/// Databases of a token's permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenScope {
    /// ALL: the rights of the owner.
    Everything,
    /// ALL DATABASES, later ones included.
    AllDatabases,
    /// DATABASE, SCHEMA or BUCKET.
    Database {
        /// Name of the database.
        name: String,
        /// Rows that may be read; `None`: all of them.
        rows: Option<RowPredicate>,
    },
}

/// Rights that a token takes from its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenPermission {
    /// Direction of the permission.
    pub mode: Mode,
    /// Databases of the permission.
    pub scope: TokenScope,
}

/// End of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenExpiry {
    /// NEVER, or 'infinity'.
    Never,
    /// A time, in milliseconds since 1970.
    At(i64),
    /// Duration in milliseconds, counted from the statement.
    After(i64),
}

/// Options of a token that can change later; `None`: not in the statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenOptions {
    /// Comment on the token, for people who list tokens.
    pub description: Option<String>,
    /// End of the validity.
    pub expires: Option<TokenExpiry>,
    /// ENABLED or DISABLED.
    pub enabled: Option<bool>,
}

/// CREATE TOKEN as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateToken {
    /// Permissions, at least one.
    pub permissions: Vec<TokenPermission>,
    /// Description, end and state.
    pub options: TokenOptions,
    /// OWNER; `None`: the current role.
    pub owner: Option<RoleName>,
    /// ORGANISATION by name; `None`: that of the client or of the owner.
    pub org: Option<String>,
}
