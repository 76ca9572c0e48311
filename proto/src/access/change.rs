//! Changes of roles, grants, tokens and organisations, as frontends request them from meta.
//!
//! A frontend checks that the identity may make the change; meta checks that the change is valid: names, ids, cycles of
//! memberships, dependencies. A change holds verifiers and hashes only, never a password or the text of a token.

use super::grant::{GrantEntry, Revocation, Target};
use super::org::Org;
use super::role::{Membership, Verifier};
use super::token::Token;
use crate::id::{OrgId, RoleId, TokenId};

/// A change of who may do what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessChange {
    /// CREATE ROLE; meta assigns the id. Refused if the name is in use.
    CreateRole {
        /// Role name.
        name: String,
        /// Attributes of the role; a name in it is ignored.
        edit: RoleEdit,
        /// Roles that the new one becomes a member of.
        member_of: Vec<Membership>,
        /// Roles that become members of the new one, with inherited rights; true with the admin option.
        members: Vec<(RoleId, bool)>,
    },
    /// Changes attributes, the password or settings of a role.
    AlterRole {
        /// Role to change.
        role: RoleId,
        /// Attributes that change.
        edit: RoleEdit,
    },
    /// DROP ROLE, with its memberships and tokens. Refused while objects or grants depend on it.
    DropRole {
        /// Role to drop.
        role: RoleId,
    },
    /// GRANT of a role. An earlier admin option stays.
    GrantRole {
        /// Role that gets a member.
        group: RoleId,
        /// Role that becomes a member.
        member: RoleId,
        /// True if the member may grant the role to others.
        admin_option: bool,
        /// True if the member has the role's rights without SET ROLE.
        inherit: bool,
    },
    /// Ends a membership, or its admin option only.
    RevokeRole {
        /// Role that loses a member.
        group: RoleId,
        /// Role that is no longer a member.
        member: RoleId,
        /// True if the membership stays without its admin option.
        admin_option_only: bool,
    },
    /// GRANT of rights.
    Grant {
        /// Object of the rights.
        target: Target,
        /// Rights that are added.
        entry: GrantEntry,
    },
    /// REVOKE of rights.
    Revoke {
        /// Object of the rights.
        target: Target,
        /// Rights that are taken away.
        revocation: Revocation,
    },
    /// ALTER ... OWNER TO. Not for the cluster.
    SetOwner {
        /// Database or table.
        target: Target,
        /// New owner.
        owner: RoleId,
    },
    /// Creates a token. The frontend makes its id (random), hash and verifier.
    CreateToken(Box<Token>),
    /// Changes a token.
    AlterToken {
        /// Token to change.
        id: TokenId,
        /// Fields that change.
        edit: TokenEdit,
    },
    /// Removes a token.
    DropToken(TokenId),
    /// Creates an organisation. The frontend makes its id (random).
    CreateOrg(Org),
    /// Replaces the fields of the organisation with this id.
    AlterOrg(Org),
    /// Removes an organisation. Refused while roles or tokens belong to it.
    DropOrg(OrgId),
    /// Sets the password of the bootstrap superuser if it has none; otherwise changes nothing.
    SetInitialPassword(Verifier),
}

/// Attributes of a role that change; `None`: unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleEdit {
    /// New name.
    pub name: Option<String>,
    /// True if sessions may begin as the role.
    pub login: Option<bool>,
    /// True if every check passes.
    pub superuser: Option<bool>,
    /// True if the role may create databases.
    pub create_db: Option<bool>,
    /// True if the role may create roles.
    pub create_role: Option<bool>,
    /// True if the role may give orders to the cluster.
    pub admin: Option<bool>,
    /// Organisation; `Some(None)`: none.
    pub org: Option<Option<OrgId>>,
    /// Verifier of a new password; `Some(None)`: no password is right.
    pub verifier: Option<Option<Verifier>>,
    /// Time at which the role ends, milliseconds since 1970; `Some(None)`: never.
    pub valid_until_ms: Option<Option<i64>>,
    /// Defaults of settings by name; without a value, the default is removed.
    pub settings: Vec<(String, Option<String>)>,
}

/// Fields of a token that change; `None`: unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenEdit {
    /// New description.
    pub description: Option<String>,
    /// False to switch the token off.
    pub enabled: Option<bool>,
    /// Time at which the token ends, milliseconds since 1970; `Some(None)`: never.
    pub expires_ms: Option<Option<i64>>,
}
