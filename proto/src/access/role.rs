//! Roles and their memberships.
//!
//! ```text
//!   alice ──inherit──▶ readers ──inherit──▶ staff      alice has the rights of readers and staff
//!     └─────SET──────▶ admins                          and those of admins after SET ROLE admins only
//! ```
//!
//! Invariants:
//! - memberships have no cycle: meta checks each new one with [`would_cycle`]. Walks end in any case;
//! - attributes (superuser, create_db, create_role, admin) are those of the current role and never inherited;
//! - a membership in a role that does not exist means nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use super::chunks::Chunks;
use crate::error::Error;
use crate::id::{BOOTSTRAP_ROLE, OrgId, RoleId};
use crate::schema::validate_name;

/// All roles, by id.
pub type RoleMap = Chunks<RoleId, Role>;

/// Names that mean something else in SQL.
const RESERVED_NAMES: [&str; 2] = ["public", "none"];
/// Beginning of names that PostgreSQL keeps for its own roles.
const RESERVED_PREFIX: &str = "pg_";
const SCHEME: &str = "SCRAM-SHA-256$";
/// Maximum bytes of a verifier; PostgreSQL's have 133.
const VERIFIER_BYTES_MAX: usize = 512;
/// Length in base64 of a key, which has 32 bytes.
const KEY_LENGTH: usize = 44;

/// A SCRAM-SHA-256 verifier, as PostgreSQL keeps it: `SCRAM-SHA-256$4096:salt$StoredKey:ServerKey`, the last three in
/// base64. A password can be checked with it, but not computed from it. Never shown.
///
/// Comparing two verifiers takes a time that depends on them; it is for records, not for what a client sent.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier(String);

impl Verifier {
    /// The text, for authentication and storage only.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for Verifier {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.len() <= VERIFIER_BYTES_MAX && is_verifier(text) {
            return Ok(Self(text.to_owned()));
        }
        // Without the text: it may be a password.
        Err(Error::InvalidInput("the text is not a SCRAM-SHA-256 verifier".to_owned()))
    }
}

fn is_verifier(text: &str) -> bool {
    let parts = text.strip_prefix(SCHEME).and_then(|rest| {
        let (parameters, keys) = rest.split_once('$')?;
        Some((parameters.split_once(':')?, keys.split_once(':')?))
    });
    let Some(((iterations, salt), (stored_key, server_key))) = parts else { return false };
    let is_key = |key: &str| key.len() == KEY_LENGTH && key.ends_with('=') && is_base64(key);
    iterations.bytes().all(|byte| byte.is_ascii_digit())
        && iterations.parse::<u32>().is_ok_and(|iterations| iterations > 0)
        && !salt.is_empty()
        && is_base64(salt)
        && is_key(stored_key)
        && is_key(server_key)
}

fn is_base64(text: &str) -> bool {
    let digits = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    text.len().is_multiple_of(4) && digits.bytes().all(is_digit)
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier(..)")
    }
}

/// Membership of one role in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Role whose member this is.
    pub role: RoleId,
    /// True if the member may grant the role to others.
    pub admin_option: bool,
    /// True if the member has the role's rights without SET ROLE; otherwise with SET ROLE only.
    pub inherit: bool,
}

/// A user, or a group of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// Role id.
    pub id: RoleId,
    /// Role name, case-sensitive and unique.
    pub name: String,
    /// True if sessions may begin as the role. Without it, its tokens are not valid either.
    pub login: bool,
    /// True if every check passes.
    pub superuser: bool,
    /// True if the role may create databases.
    pub create_db: bool,
    /// True if the role may create roles, and change those for which it has the admin option.
    pub create_role: bool,
    /// True if the role may give orders to the cluster and monitor it.
    pub admin: bool,
    /// Organisation that the role belongs to.
    pub org: Option<OrgId>,
    /// Verifier of the password; `None`: no password is right.
    pub verifier: Option<Verifier>,
    /// Version of the password; grows when it is changed, and ends the sessions that began with an earlier one.
    pub secret_version: u64,
    /// Time at which the role, its sessions and its tokens end, milliseconds since 1970; `None`: never.
    pub valid_until_ms: Option<i64>,
    /// Roles that this one is a member of, each once.
    pub member_of: Vec<Membership>,
    /// Defaults of the settings of the role's sessions, by name.
    pub settings: BTreeMap<String, String>,
}

impl Role {
    /// A role without attributes, as CREATE ROLE makes it.
    #[must_use]
    pub fn new(id: RoleId, name: impl Into<String>) -> Self {
        Self {
            id,
            name: name.into(),
            login: false,
            superuser: false,
            create_db: false,
            create_role: false,
            admin: false,
            org: None,
            verifier: None,
            secret_version: 0,
            valid_until_ms: None,
            member_of: Vec::new(),
            settings: BTreeMap::new(),
        }
    }

    /// The superuser that exists from the start, without a password.
    #[must_use]
    pub fn bootstrap(name: impl Into<String>) -> Self {
        Self {
            login: true,
            superuser: true,
            create_db: true,
            create_role: true,
            admin: true,
            ..Self::new(BOOTSTRAP_ROLE, name)
        }
    }

    /// True if the role is a superuser that can log in at any time. A cluster keeps at least one such role.
    #[must_use]
    pub fn can_rescue(&self) -> bool {
        self.superuser && self.login && self.valid_until_ms.is_none()
    }
}

/// Checks the name of a new role.
///
/// # Errors
/// [`Error::InvalidInput`] when [`validate_name`] refuses it, or it is reserved.
pub fn validate_role_name(name: &str) -> Result<(), Error> {
    validate_name("role", name)?;
    if RESERVED_NAMES.contains(&name) || name.starts_with(RESERVED_PREFIX) {
        return Err(Error::InvalidInput(format!("role name \"{name}\" is reserved")));
    }
    Ok(())
}

/// The role, and the roles whose rights it has without SET ROLE.
#[must_use]
pub(super) fn inherited(roles: &RoleMap, role: RoleId) -> BTreeSet<RoleId> {
    closure(roles, role, |membership| membership.inherit)
}

/// The role, and every role that it may become by SET ROLE.
#[must_use]
pub(super) fn assumable(roles: &RoleMap, role: RoleId) -> BTreeSet<RoleId> {
    closure(roles, role, |_| true)
}

/// True if `member` must not become a member of `group`.
#[must_use]
pub(super) fn would_cycle(roles: &RoleMap, member: RoleId, group: RoleId) -> bool {
    assumable(roles, group).contains(&member)
}

/// True if one of these roles may grant `group` to others. No role has the admin option for itself.
#[must_use]
pub(super) fn administers(roles: &RoleMap, holders: &BTreeSet<RoleId>, group: RoleId) -> bool {
    holders.iter().filter_map(|holder| roles.get(holder)).any(|holder| {
        holder
            .member_of
            .iter()
            .any(|membership| membership.role == group && membership.admin_option)
    })
}

fn closure(
    roles: &RoleMap,
    role: RoleId,
    follows: impl Fn(&Membership) -> bool,
) -> BTreeSet<RoleId> {
    let mut reached = BTreeSet::from([role]);
    let mut pending = vec![role];
    while let Some(id) = pending.pop() {
        let Some(role) = roles.get(&id) else { continue };
        for membership in &role.member_of {
            let group = membership.role;
            if follows(membership) && roles.contains_key(&group) && reached.insert(group) {
                pending.push(group);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
        WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

    /// Roles 1, 2, ..., each with its memberships: the group, and whether its rights are inherited.
    fn roles(member_of: &[&[(u32, bool)]]) -> RoleMap {
        let role = |(id, groups): (u32, &&[(u32, bool)])| {
            let membership = |&(group, inherit): &(u32, bool)| Membership {
                role: RoleId(group),
                admin_option: inherit,
                inherit,
            };
            let mut role = Role::new(RoleId(id), format!("r{id}"));
            role.member_of = groups.iter().map(membership).collect();
            (role.id, Arc::new(role))
        };
        (1..).zip(member_of).map(role).collect()
    }

    fn ids(ids: &[u32]) -> BTreeSet<RoleId> {
        ids.iter().copied().map(RoleId).collect()
    }

    #[test]
    fn a_verifier_is_checked_and_never_shown() {
        let verifier: Verifier = VERIFIER.parse().unwrap();
        assert_eq!(verifier.expose(), VERIFIER);
        let mut role = Role::bootstrap("partita");
        role.verifier = Some(verifier);
        let shown = format!("{role:?}");
        assert!(shown.contains("Verifier(..)") && !shown.contains("W22Z"), "{shown}");
        let broken = [
            "",
            "password",
            "SCRAM-SHA-256$",
            &VERIFIER.replace("SHA-256", "SHA-1"),
            &VERIFIER.replace("4096", "0"),
            &VERIFIER.replace("4096", "+1"),
            &VERIFIER.replace("4096", ""),
            &VERIFIER.replace("gQ==", "gQ="),
            &VERIFIER.replace("W22Z", "W 2Z"),
            &VERIFIER.replace("4qY=", "4qYA"),
            &VERIFIER.replace("2dU=", ""),
            &VERIFIER.replace("W22Z", &"W22Z".repeat(200)),
        ];
        for text in broken {
            let error = text.parse::<Verifier>().unwrap_err();
            assert!(!error.to_string().contains("password"), "{error}");
        }
    }

    #[test]
    fn rights_come_by_inherit_and_set_role_by_any_membership() {
        // 1 inherits 2, which inherits 3; 1 may become 4, which inherits 5.
        let roles =
            roles(&[&[(2, true), (4, false)], &[(3, true)], &[], &[(5, true)], &[(99, true)]]);
        assert_eq!(inherited(&roles, RoleId(1)), ids(&[1, 2, 3]));
        assert_eq!(assumable(&roles, RoleId(1)), ids(&[1, 2, 3, 4, 5]));
        assert_eq!(inherited(&roles, RoleId(4)), ids(&[4, 5]));
        // A role that was dropped is reached by nobody.
        assert_eq!(inherited(&roles, RoleId(5)), ids(&[5]));
    }

    #[test]
    fn a_membership_that_closes_a_cycle_is_noticed() {
        let roles = roles(&[&[(2, true)], &[(3, false)], &[], &[]]);
        assert!(would_cycle(&roles, RoleId(3), RoleId(1)));
        assert!(would_cycle(&roles, RoleId(2), RoleId(1)));
        assert!(would_cycle(&roles, RoleId(1), RoleId(1)));
        assert!(!would_cycle(&roles, RoleId(1), RoleId(3)));
        assert!(!would_cycle(&roles, RoleId(4), RoleId(1)));
    }

    #[test]
    fn a_walk_ends_even_in_a_cycle() {
        let roles = roles(&[&[(2, true)], &[(1, true)]]);
        assert_eq!(inherited(&roles, RoleId(1)), ids(&[1, 2]));
    }

    #[test]
    fn the_admin_option_is_for_other_roles() {
        let roles = roles(&[&[(2, true)], &[(3, false)], &[]]);
        let holders = inherited(&roles, RoleId(1));
        assert!(administers(&roles, &holders, RoleId(2)));
        assert!(!administers(&roles, &holders, RoleId(1)));
        assert!(!administers(&roles, &holders, RoleId(3)));
    }

    #[test]
    fn names_that_mean_something_else_are_refused() {
        assert!(validate_role_name("alice").is_ok());
        for name in ["", "public", "none", "pg_monitor", "a\nb"] {
            assert!(validate_role_name(name).is_err(), "{name}");
        }
    }
}
