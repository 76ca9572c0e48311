//! GRANT and REVOKE, of rights on objects and of roles, and SHOW GRANTS.
//!
//! As in PostgreSQL, a client without the grant options for all privileges of a statement grants or revokes those that
//! it has options for, with a warning; without a right on the object at all it is an error.

use std::collections::BTreeMap;

use partita_proto::access::{
    AccessChange, Action, Actions, Denied, GrantEntry, Grantee, Membership, Object, Revocation,
    Role, Target, grantor,
};
use partita_proto::error::Error;
use partita_proto::id::RoleId;
use partita_sql::access_statement::{
    GrantObjects, GrantRights, GrantRole, MembershipPart, Privileges, RevokeRights, RevokeRole,
    RoleName,
};

use super::attributes::{access, cycle};
use super::names::{Names, role_object};
use super::plan::{INSUFFICIENT_PRIVILEGE, Plan, Rows};
use crate::error::{FEATURE_NOT_SUPPORTED, SqlError};
use crate::privileges::ObjectNames;

/// Columns of SHOW GRANTS.
pub(super) const SHOWN: &[&str] =
    &["object_type", "object", "grantee", "privileges", "grant_options", "grantor"];

/// SQLSTATE of the warning that privileges were not granted.
const NOT_GRANTED: &str = "01007";
/// SQLSTATE of the warning that privileges were not revoked.
const NOT_REVOKED: &str = "01006";
/// SQLSTATE of a grant that contradicts others.
const INVALID_GRANT_OPERATION: &str = "0LP01";

/// Grantor of privileges on an object, and those that it may grant or revoke.
struct Chosen {
    target: Target,
    grantor: RoleId,
    actions: Actions,
}

pub(super) fn grant(names: &Names<'_>, grant: &GrantRights) -> Result<Plan, SqlError> {
    check_grantor(names, grant.grantor.as_ref())?;
    let mut plan = Plan::default();
    let mut grantees = Vec::with_capacity(grant.grantees.len());
    for name in &grant.grantees {
        grantees.push(names.grantee(name)?);
    }
    if grant.grant_option && grantees.contains(&Grantee::Public) {
        let message = "grant options can only be granted to roles";
        return Err(SqlError::new(INVALID_GRANT_OPERATION, message));
    }
    for object in objects(names, &grant.objects)? {
        let verb = (NOT_GRANTED, "were granted");
        let Some(chosen) = choose(names, &mut plan, &object, grant.privileges, verb)? else {
            continue;
        };
        let Chosen { target, grantor, actions } = chosen;
        let grantable = if grant.grant_option { actions } else { Actions::NONE };
        for grantee in &grantees {
            let entry = GrantEntry { grantee: *grantee, actions, grantable, grantor };
            plan.changes.push(access(AccessChange::Grant { target, entry }));
        }
    }
    Ok(plan)
}

pub(super) fn revoke(names: &Names<'_>, revoke: &RevokeRights) -> Result<Plan, SqlError> {
    check_grantor(names, revoke.grantor.as_ref())?;
    let mut plan = Plan::default();
    let mut grantees = Vec::with_capacity(revoke.grantees.len());
    for name in &revoke.grantees {
        grantees.push(names.grantee(name)?);
    }
    for object in objects(names, &revoke.objects)? {
        let verb = (NOT_REVOKED, "could be revoked");
        let Some(chosen) = choose(names, &mut plan, &object, revoke.privileges, verb)? else {
            continue;
        };
        let Chosen { target, grantor, actions } = chosen;
        for grantee in &grantees {
            let revocation = Revocation {
                grantee: *grantee,
                actions,
                grantor,
                options_only: revoke.options_only,
                cascade: revoke.cascade,
            };
            plan.changes.push(access(AccessChange::Revoke { target, revocation }));
        }
    }
    Ok(plan)
}

/// Objects of a statement, as they are now.
fn objects(names: &Names<'_>, objects: &GrantObjects) -> Result<Vec<Object>, SqlError> {
    match objects {
        GrantObjects::Cluster => Ok(vec![Object::Cluster]),
        GrantObjects::Databases(databases) => {
            databases.iter().map(|name| names.database(name).map(Object::Database)).collect()
        }
        GrantObjects::Tables(tables) => tables.iter().map(|name| names.table(name)).collect(),
        GrantObjects::AllTablesIn(databases) => {
            let mut tables = Vec::new();
            for name in databases {
                tables.extend(names.tables_of(name)?);
            }
            Ok(tables)
        }
        GrantObjects::Sequences(sequences) => {
            sequences.iter().map(|name| names.sequence(name)).collect()
        }
        GrantObjects::AllSequencesIn(databases) => {
            let mut sequences = Vec::new();
            for name in databases {
                sequences.extend(names.sequences_of(name)?);
            }
            Ok(sequences)
        }
    }
}

/// Chooses the grantor for an object: the owner, or the role with most of the grant options. `None` after a warning that
/// it has none of them.
fn choose(
    names: &Names<'_>,
    plan: &mut Plan,
    object: &Object,
    privileges: Privileges,
    (code, verb): (&str, &str),
) -> Result<Option<Chosen>, SqlError> {
    let (target, kind, name) = match object {
        Object::Database(database) => {
            (Target::Database(database.id), "database", database.name.as_str())
        }
        Object::Table { table, .. } => (Target::Table(table.id), "table", table.name.as_str()),
        Object::Sequence { id, name, .. } => (Target::Sequence(*id), "sequence", name.as_str()),
        _ => (Target::Cluster, "cluster", ""),
    };
    let requested = match privileges {
        Privileges::All => target.grantable(),
        Privileges::Listed(actions) => actions,
    };
    let grantor_of =
        |actions| grantor(&names.access, &names.identity, names.now_ms, object, actions);
    match grantor_of(requested) {
        Ok(grantor) => return Ok(Some(Chosen { target, grantor, actions: requested })),
        Err(Denied::NotAllowed { .. }) => {}
        Err(denied) => return Err(Error::from(denied).into()),
    }
    let mut options: BTreeMap<RoleId, Actions> = BTreeMap::new();
    for action in requested.iter() {
        let single = Actions::of(&[action]);
        if let Ok(role) = grantor_of(single) {
            let actions = options.entry(role).or_default();
            *actions = actions.union(single);
        }
    }
    let best = options.into_iter().max_by_key(|(_, actions)| actions.bits().count_ones());
    let label = if name.is_empty() { kind } else { name };
    let Some((grantor, actions)) = best else {
        let has_right = target.grantable().iter().any(|action| names.may(action, object.clone()));
        if !has_right {
            let message = format!("permission denied for {kind} {name}").trim_end().to_owned();
            return Err(SqlError::new(INSUFFICIENT_PRIVILEGE, message));
        }
        plan.warning(code, format!("no privileges {verb} for \"{label}\""));
        return Ok(None);
    };
    if privileges != Privileges::All {
        plan.warning(code, format!("not all privileges {verb} for \"{label}\""));
    }
    Ok(Some(Chosen { target, grantor, actions }))
}

pub(super) fn grant_roles(names: &Names<'_>, grant: &GrantRole) -> Result<Plan, SqlError> {
    check_grantor(names, grant.grantor.as_ref())?;
    let mut plan = Plan::default();
    let members = names.roles(&grant.members)?;
    for group in names.roles(&grant.groups)? {
        plan.need(Action::Admin, role_object(&group));
        for member in &members {
            if names.access.would_cycle(member.id, group.id) {
                return Err(cycle(names, group.id, member.id));
            }
            let former = membership(member, group.id);
            let admin_option =
                grant.admin_option || former.is_some_and(|former| former.admin_option);
            let inherit = grant.inherit.or(former.map(|former| former.inherit)).unwrap_or(true);
            let desired = Membership { role: group.id, admin_option, inherit };
            if former == Some(desired) {
                plan.notice(format!(
                    "role \"{}\" is already a member of role \"{}\"",
                    member.name, group.name
                ));
                continue;
            }
            let (group, member) = (group.id, member.id);
            let change = AccessChange::GrantRole { group, member, admin_option, inherit };
            plan.changes.push(access(change));
        }
    }
    Ok(plan)
}

pub(super) fn revoke_roles(names: &Names<'_>, revoke: &RevokeRole) -> Result<Plan, SqlError> {
    check_grantor(names, revoke.grantor.as_ref())?;
    let mut plan = Plan::default();
    let members = names.roles(&revoke.members)?;
    for group in names.roles(&revoke.groups)? {
        plan.need(Action::Admin, role_object(&group));
        for member in &members {
            let Some(former) = membership(member, group.id) else {
                let message =
                    format!("role \"{}\" is not a member of role \"{}\"", member.name, group.name);
                plan.warning("01000", message);
                continue;
            };
            let (group, member) = (group.id, member.id);
            let change = match revoke.part {
                MembershipPart::Whole => {
                    AccessChange::RevokeRole { group, member, admin_option_only: false }
                }
                MembershipPart::AdminOption => {
                    AccessChange::RevokeRole { group, member, admin_option_only: true }
                }
                MembershipPart::Inherit => AccessChange::GrantRole {
                    group,
                    member,
                    admin_option: former.admin_option,
                    inherit: false,
                },
            };
            plan.changes.push(access(change));
        }
    }
    Ok(plan)
}

fn membership(member: &Role, group: RoleId) -> Option<Membership> {
    member.member_of.iter().find(|membership| membership.role == group).copied()
}

/// GRANTED BY names the current role only.
fn check_grantor(names: &Names<'_>, grantor: Option<&RoleName>) -> Result<(), SqlError> {
    let Some(name) = grantor else { return Ok(()) };
    if names.role(name)?.id == names.current.id {
        return Ok(());
    }
    Err(SqlError::new(FEATURE_NOT_SUPPORTED, "grantor must be current user"))
}

pub(super) fn show(names: &Names<'_>, role: Option<&RoleName>) -> Result<Plan, SqlError> {
    let filter = role.map(|name| names.role(name)).transpose()?.map(|role| role.id);
    let mut cells = Vec::new();
    let objects = ObjectNames::new(names.viewer);
    for grant in names.access.grants() {
        // Rights on what the client does not see are not shown.
        let Some(name) = objects.of(grant.target()) else { continue };
        let object = name.database.map(|database| match name.table {
            Some(table) => format!("{database}.{table}"),
            None => database.to_owned(),
        });
        for entry in grant.entries() {
            let grantee = match entry.grantee {
                Grantee::Public => Some("PUBLIC".to_owned()),
                Grantee::Role(id) if filter.is_none_or(|role| role == id) => names.shown_role(id),
                Grantee::Role(_) => None,
            };
            let Some(grantee) = grantee else { continue };
            cells.push(vec![
                Some(name.kind.to_owned()),
                object.clone(),
                Some(grantee),
                Some(grant.target().names_of(entry.actions)),
                Some(grant.target().names_of(entry.grantable)),
                names.shown_role(entry.grantor),
            ]);
        }
    }
    Ok(Plan { rows: Some(Rows { columns: SHOWN, cells }), ..Plan::default() })
}
