//! CREATE, ALTER and DROP ROLE.
//!
//! Beyond the needs, nobody gives an attribute that the current role lacks.

use partita_proto::access::{
    AccessChange, Action, Membership, Object, Role, RoleEdit, Verifier, validate_role_name,
};
use partita_proto::id::{BOOTSTRAP_ROLE, OrgId, RoleId};
use partita_proto::service::Ddl;
use partita_sql::access_statement::{CreateRole, Password, RoleChange, RoleName, RoleOptions};
use partita_worker::Zone;

use super::names::{Names, role_object};
use super::plan::{DEPENDENT_OBJECTS, INSUFFICIENT_PRIVILEGE, Plan};
use crate::access::authenticator::given_verifier;
use crate::access::{random, scram};
use crate::error::{FEATURE_NOT_SUPPORTED, INVALID_PARAMETER_VALUE, SqlError};
use crate::session::Session;

/// SQLSTATE of an object that is in use.
const OBJECT_IN_USE: &str = "55006";
/// SQLSTATE of a reserved name.
const RESERVED_NAME: &str = "42939";

pub(super) fn create_role(
    names: &Names<'_>,
    create: &CreateRole,
    makes_verifier: bool,
) -> Result<Plan, SqlError> {
    let mut plan = Plan::default();
    plan.need(Action::CreateRole, Object::Cluster);
    check_name(&create.name)?;
    let options = &create.options;
    check_attributes(names, options, "create")?;
    let inherit = options.inherit.unwrap_or(true);
    let mut member_of = Vec::new();
    for group in names.roles(&create.in_roles)? {
        plan.need(Action::Admin, role_object(&group));
        member_of.push(Membership { role: group.id, admin_option: false, inherit });
    }
    if !inherit && member_of.is_empty() {
        return Err(later_memberships());
    }
    let mut members: Vec<(RoleId, bool)> = Vec::new();
    for role in names.roles(&create.admins)? {
        members.push((role.id, true));
    }
    for role in names.roles(&create.members)? {
        if !members.iter().any(|(member, _)| *member == role.id) {
            members.push((role.id, false));
        }
    }
    // Who may create roles may alter those that it created, by the admin option.
    if !names.is_superuser() {
        let creator = names.current.id;
        members.retain(|(member, _)| *member != creator);
        members.push((creator, true));
    }
    for (member, _) in &members {
        if let Some(group) =
            member_of.iter().find(|group| names.access.would_cycle(*member, group.role))
        {
            return Err(cycle(names, group.role, *member));
        }
    }
    let mut edit = edit(names, &mut plan, &create.name, options, makes_verifier)?;
    if edit.org.is_none() {
        edit.org = names.identity.org.map(Some);
    }
    let name = create.name.clone();
    plan.changes.push(access(AccessChange::CreateRole { name, edit, member_of, members }));
    Ok(plan)
}

pub(super) fn alter_role(
    names: &Names<'_>,
    role: &RoleName,
    change: &RoleChange,
    session: Option<&Session>,
) -> Result<Plan, SqlError> {
    let role = names.role(role)?;
    let mut plan = Plan::default();
    // A role may change its own password and the defaults of its settings.
    let is_own = match change {
        RoleChange::Options(options) => options.is_password_only(),
        RoleChange::Rename(_) => false,
        RoleChange::Setting { .. } | RoleChange::SettingFromCurrent(_) | RoleChange::ResetAll => {
            true
        }
    };
    plan.need(if is_own { Action::Maintain } else { Action::CreateRole }, role_object(&role));
    let mut edit_of_role = RoleEdit::default();
    match change {
        RoleChange::Options(options) => {
            check_attributes(names, options, "alter")?;
            if role.id == BOOTSTRAP_ROLE && options.superuser == Some(false) {
                return Err(SqlError::new(
                    INSUFFICIENT_PRIVILEGE,
                    "permission denied to alter role",
                )
                .with_detail("The bootstrap superuser must have the SUPERUSER attribute."));
            }
            edit_of_role = edit(names, &mut plan, &role.name, options, session.is_some())?;
            if let Some(inherit) = options.inherit {
                if !inherit && role.member_of.is_empty() {
                    return Err(later_memberships());
                }
                for membership in &role.member_of {
                    plan.changes.push(access(AccessChange::GrantRole {
                        group: membership.role,
                        member: role.id,
                        admin_option: membership.admin_option,
                        inherit,
                    }));
                }
            }
        }
        RoleChange::Rename(name) => {
            check_name(name)?;
            if role.id == names.identity.login {
                let message = "session user cannot be renamed";
                return Err(SqlError::new(FEATURE_NOT_SUPPORTED, message));
            }
            edit_of_role.name = Some(name.clone());
        }
        RoleChange::Setting { name, value } => {
            if let (Some(session), Some(value)) = (session, value) {
                check_setting(session, name, value)?;
            }
            edit_of_role.settings.push((name.clone(), value.clone()));
        }
        RoleChange::SettingFromCurrent(name) => {
            if let Some(session) = session {
                let value = session.show_setting(name)?;
                check_setting(session, name, &value)?;
                edit_of_role.settings.push((name.clone(), Some(value)));
            }
        }
        RoleChange::ResetAll => {
            let settings = role.settings.keys();
            edit_of_role.settings = settings.map(|name| (name.clone(), None)).collect();
        }
    }
    if edit_of_role != RoleEdit::default() {
        let change = AccessChange::AlterRole { role: role.id, edit: edit_of_role };
        plan.changes.push(access(change));
    }
    Ok(plan)
}

pub(super) fn drop_roles(
    names: &Names<'_>,
    roles: &[String],
    if_exists: bool,
) -> Result<Plan, SqlError> {
    let mut plan = Plan::default();
    for name in roles {
        let role = match names.role(&RoleName::Named(name.clone())) {
            Ok(role) => role,
            Err(_) if if_exists => {
                plan.notice(format!("role \"{name}\" does not exist, skipping"));
                continue;
            }
            Err(error) => return Err(error),
        };
        if role.id == names.current.id {
            return Err(SqlError::new(OBJECT_IN_USE, "current user cannot be dropped"));
        }
        if role.id == names.identity.login {
            return Err(SqlError::new(OBJECT_IN_USE, "session user cannot be dropped"));
        }
        if role.id == BOOTSTRAP_ROLE {
            return Err(required(&role));
        }
        plan.need(Action::CreateRole, role_object(&role));
        plan.changes.push(access(AccessChange::DropRole { role: role.id }));
    }
    Ok(plan)
}

/// The error of a change that would take away the bootstrap superuser or its objects.
pub(super) fn required(role: &Role) -> SqlError {
    let name = &role.name;
    let message = format!(
        "cannot drop role {name} or its objects because they are required by the database system"
    );
    SqlError::new(DEPENDENT_OBJECTS, message)
}

/// The error of a grant of `group` to `member`, which `group` is a member of.
pub(super) fn cycle(names: &Names<'_>, group: RoleId, member: RoleId) -> SqlError {
    let name =
        |id: RoleId| names.access.role(id).map_or_else(|| id.to_string(), |role| role.name.clone());
    let message = format!("role \"{}\" is a member of role \"{}\"", name(group), name(member));
    SqlError::new("0LP01", message)
}

/// A change for meta.
pub(super) fn access(change: AccessChange) -> Ddl {
    Ddl::Access(Box::new(change))
}

/// Checks the name of a new role.
fn check_name(name: &str) -> Result<(), SqlError> {
    validate_role_name(name).map_err(|error| {
        let error = SqlError::from(error);
        match error.message.ends_with("is reserved") {
            true => SqlError::new(RESERVED_NAME, error.message),
            false => error,
        }
    })
}

/// Checks that the current role has each attribute that it gives or takes.
fn check_attributes(names: &Names<'_>, options: &RoleOptions, verb: &str) -> Result<(), SqlError> {
    if names.is_superuser() {
        return Ok(());
    }
    // Grants, which end with a membership, do not become attributes, which stay.
    let current = &names.current;
    let attributes = [
        ("SUPERUSER", options.superuser, false),
        ("CREATEDB", options.create_db, current.create_db),
        ("CREATEROLE", options.create_role, current.create_role),
        ("ADMIN", options.admin, current.admin),
    ];
    for (name, value, has) in attributes {
        // A new role may be said to lack what it lacks anyway.
        let changes = value == Some(true) || value == Some(false) && verb == "alter";
        if changes && !has {
            let message = format!("permission denied to {verb} role");
            let detail = format!(
                "Only roles with the {name} attribute may {verb} roles with the {name} attribute."
            );
            return Err(SqlError::new(INSUFFICIENT_PRIVILEGE, message).with_detail(detail));
        }
    }
    Ok(())
}

/// The attributes of options as an edit; without `makes_verifier`, passwords are left out.
fn edit(
    names: &Names<'_>,
    plan: &mut Plan,
    role: &str,
    options: &RoleOptions,
    makes_verifier: bool,
) -> Result<RoleEdit, SqlError> {
    let verifier = match &options.password {
        Some(Some(password)) if password.expose().is_empty() => {
            plan.notice("empty string is not a valid password, clearing password".to_owned());
            Some(None)
        }
        Some(Some(password)) if makes_verifier => Some(Some(verifier(password)?)),
        Some(Some(_)) | None => None,
        Some(None) => Some(None),
    };
    let org = match &options.org {
        Some(name) => Some(org(names, plan, role, name.as_deref())?),
        None => None,
    };
    Ok(RoleEdit {
        login: options.login,
        superuser: options.superuser,
        create_db: options.create_db,
        create_role: options.create_role,
        admin: options.admin,
        org,
        verifier,
        valid_until_ms: options.valid_until_ms,
        ..RoleEdit::default()
    })
}

/// The organisation of ORGANISATION, with the right to put roles into it.
fn org(
    names: &Names<'_>,
    plan: &mut Plan,
    role: &str,
    name: Option<&str>,
) -> Result<Option<OrgId>, SqlError> {
    plan.need(Action::ManageOrg, Object::Cluster);
    let Some(name) = name else {
        if names.identity.org.is_some() {
            let message =
                format!("permission denied to remove role \"{role}\" from its organisation");
            return Err(SqlError::new(INSUFFICIENT_PRIVILEGE, message));
        }
        return Ok(None);
    };
    let id = names.org(name)?;
    plan.need(Action::ManageOrg, Object::Org { id, name: name.to_owned() });
    Ok(Some(id))
}

/// The verifier of a password, or the verifier that was given in its place.
pub(super) fn verifier(password: &Password) -> Result<Verifier, SqlError> {
    let text = password.expose();
    if let Some(verifier) = given_verifier(text)? {
        return Ok(verifier);
    }
    let is_md5 =
        |digits: &str| digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if text.strip_prefix("md5").is_some_and(is_md5) {
        return Err(SqlError::unsupported("a password encrypted with MD5"));
    }
    new_verifier(text)
}

/// A new verifier of a secret.
pub(super) fn new_verifier(secret: &str) -> Result<Verifier, SqlError> {
    let salt = random::bytes::<{ scram::SALT_BYTES }>()?;
    let verifier = scram::Verifier::new(secret, salt, scram::ITERATIONS);
    let text = verifier.encode();
    text.as_str().parse::<Verifier>().map_err(SqlError::from)
}

/// Checks the default of a setting as SET would.
fn check_setting(session: &Session, name: &str, value: &str) -> Result<(), SqlError> {
    if name.starts_with("datafusion.") {
        return Err(SqlError::unsupported("a default for a setting of the planner"));
    }
    if name == "timezone" && Zone::of_setting(value.trim()).is_none() {
        let message = format!("invalid value for parameter \"TimeZone\": \"{value}\"");
        return Err(SqlError::new(INVALID_PARAMETER_VALUE, message));
    }
    let mut settings = session.settings.lock().clone();
    settings.set(name, Some(value), false)
}

fn later_memberships() -> SqlError {
    SqlError::unsupported("NOINHERIT without a membership")
        .with_detail("The rights of a group are inherited or not by each membership.")
        .with_hint("use GRANT ... WITH INHERIT FALSE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_becomes_a_verifier_with_a_salt_of_its_own() {
        let password = |text: &str| verifier(&Password::new(text.to_owned()));
        let (first, second) = (password("secret").unwrap(), password("secret").unwrap());
        assert_ne!(first.expose(), second.expose());
        assert!(first.expose().starts_with("SCRAM-SHA-256$4096:"));
        // A verifier is kept as it is.
        assert_eq!(password(first.expose()).unwrap(), first);
        let slow = first.expose().replacen("$4096:", "$100001:", 1);
        assert_eq!(password(&slow).unwrap_err().sqlstate, INVALID_PARAMETER_VALUE);
        let refused = password("md50123456789abcdef0123456789abcdef").unwrap_err();
        assert_eq!(refused.sqlstate, FEATURE_NOT_SUPPORTED);
        assert!(!refused.message.contains("0123"), "{refused}");
        assert!(password("md5 is short").is_ok());
    }

    #[test]
    fn reserved_names_have_the_code_of_postgresql() {
        let code = |name: &str| check_name(name).map_err(|error| error.sqlstate);
        assert_eq!(code("alice"), Ok(()));
        for name in ["public", "none", "pg_monitor"] {
            assert_eq!(code(name), Err(RESERVED_NAME.to_owned()), "{name}");
        }
        assert_eq!(code(""), Err(INVALID_PARAMETER_VALUE.to_owned()));
    }
}
