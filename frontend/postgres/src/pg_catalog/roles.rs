//! The tables of `pg_catalog` that describe roles.
//!
//! A verifier is never shown: where PostgreSQL has the password, there are asterisks, whether or not there is one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::temporal_conversions::timestamp_ms_to_datetime;
use partita_frontend::access::viewer::Viewer;
use partita_frontend::privileges::{current_role, shows_role, visible_roles};
use partita_proto::access::Role;
use partita_proto::id::RoleId;

use super::cells::Kind::{Bool, Int4, Oid, Oids, Text, Texts};
use super::cells::{Cell, Columns, Row};
use super::objects::{BOOTSTRAP, attribute, role_oid, role_with_oid};

/// Text in place of a password.
const HIDDEN: &str = "********";

pub(super) const PG_ROLES: Columns = &[
    ("oid", Oid),
    ("rolname", Text),
    ("rolsuper", Bool),
    ("rolinherit", Bool),
    ("rolcreaterole", Bool),
    ("rolcreatedb", Bool),
    ("rolcanlogin", Bool),
    ("rolreplication", Bool),
    ("rolconnlimit", Int4),
    ("rolpassword", Text),
    ("rolvaliduntil", Text),
    ("rolbypassrls", Bool),
    ("rolconfig", Texts),
];

pub(super) const PG_USER: Columns = &[
    ("usename", Text),
    ("usesysid", Oid),
    ("usecreatedb", Bool),
    ("usesuper", Bool),
    ("userepl", Bool),
    ("usebypassrls", Bool),
    ("passwd", Text),
    ("valuntil", Text),
    ("useconfig", Texts),
];

pub(super) const PG_AUTH_MEMBERS: Columns = &[
    ("oid", Oid),
    ("roleid", Oid),
    ("member", Oid),
    ("grantor", Oid),
    ("admin_option", Bool),
    ("inherit_option", Bool),
    ("set_option", Bool),
];

pub(super) const PG_GROUP: Columns = &[("groname", Text), ("grosysid", Oid), ("grolist", Oids)];

pub(super) const PG_DB_ROLE_SETTING: Columns =
    &[("setdatabase", Oid), ("setrole", Oid), ("setconfig", Texts)];

/// A role by its object id, if the viewer may know it. Of all roles, only this one is checked.
pub(super) fn role_by_oid(viewer: &Viewer, oid: i32) -> Option<Arc<Role>> {
    let access = viewer.access();
    let role = access.role(role_with_oid(oid)?)?;
    shows_role(viewer, role).then(|| Arc::clone(role))
}

/// A role by name, if the viewer may know it.
pub(super) fn role_by_name(viewer: &Viewer, name: &str) -> Option<Arc<Role>> {
    let access = viewer.access();
    let role = access.role_by_name(name)?;
    shows_role(viewer, role).then(|| Arc::clone(role))
}

/// The end of a role's time, in UTC.
fn valid_until(role: &Role) -> Cell {
    let time = role.valid_until_ms.and_then(timestamp_ms_to_datetime);
    time.map(|time| format!("{}+00", time.format("%Y-%m-%d %H:%M:%S"))).into()
}

/// Defaults of a role's settings; only the role itself, and those who monitor the cluster, see them.
fn config(viewer: &Viewer, role: &Role) -> Option<Vec<String>> {
    if role.settings.is_empty() || !(role.id == current_role(viewer) || viewer.monitors()) {
        return None;
    }
    Some(role.settings.iter().map(|(name, value)| format!("{name}={value}")).collect())
}

/// Rows of `pg_roles` and `pg_authid`.
pub(super) fn roles(viewer: &Viewer) -> Vec<Row> {
    let row = |role: &Arc<Role>| -> Row {
        vec![
            ("oid", role_oid(role.id).into()),
            ("rolname", role.name.as_str().into()),
            ("rolsuper", role.superuser.into()),
            ("rolinherit", role.member_of.iter().all(|membership| membership.inherit).into()),
            ("rolcreaterole", role.create_role.into()),
            ("rolcreatedb", role.create_db.into()),
            ("rolcanlogin", role.login.into()),
            ("rolreplication", false.into()),
            ("rolconnlimit", (-1).into()),
            ("rolpassword", HIDDEN.into()),
            ("rolvaliduntil", valid_until(role)),
            ("rolbypassrls", role.superuser.into()),
            ("rolconfig", config(viewer, role).into()),
        ]
    };
    visible_roles(viewer).iter().map(row).collect()
}

/// Rows of `pg_auth_members`: a member and its group, both visible.
pub(super) fn members(viewer: &Viewer) -> Vec<Row> {
    let roles = visible_roles(viewer);
    let visible: BTreeSet<_> = roles.iter().map(|role| role.id).collect();
    let mut rows: Vec<Row> = Vec::new();
    for role in &roles {
        for membership in role.member_of.iter().filter(|item| visible.contains(&item.role)) {
            rows.push(vec![
                ("oid", attribute(rows.len()).into()),
                ("roleid", role_oid(membership.role).into()),
                ("member", role_oid(role.id).into()),
                // Who granted a membership is not recorded.
                ("grantor", BOOTSTRAP.into()),
                ("admin_option", membership.admin_option.into()),
                ("inherit_option", membership.inherit.into()),
                ("set_option", true.into()),
            ]);
        }
    }
    rows
}

/// Rows of `pg_user` and `pg_shadow`: the roles that may log in.
pub(super) fn users(viewer: &Viewer) -> Vec<Row> {
    let row = |role: &Arc<Role>| -> Row {
        vec![
            ("usename", role.name.as_str().into()),
            ("usesysid", role_oid(role.id).into()),
            ("usecreatedb", role.create_db.into()),
            ("usesuper", role.superuser.into()),
            ("userepl", false.into()),
            ("usebypassrls", role.superuser.into()),
            ("passwd", HIDDEN.into()),
            ("valuntil", valid_until(role)),
            ("useconfig", config(viewer, role).into()),
        ]
    };
    visible_roles(viewer).iter().filter(|role| role.login).map(row).collect()
}

/// Rows of `pg_group`: the roles that may not log in, with their members.
pub(super) fn groups(viewer: &Viewer) -> Vec<Row> {
    let roles = visible_roles(viewer);
    let mut members: BTreeMap<RoleId, Vec<i32>> = BTreeMap::new();
    for role in &roles {
        let groups: BTreeSet<RoleId> = role.member_of.iter().map(|item| item.role).collect();
        for group in groups {
            members.entry(group).or_default().push(role_oid(role.id));
        }
    }
    let row = |group: &Arc<Role>| -> Row {
        vec![
            ("groname", group.name.as_str().into()),
            ("grosysid", role_oid(group.id).into()),
            ("grolist", members.get(&group.id).cloned().unwrap_or_default().into()),
        ]
    };
    roles.iter().filter(|role| !role.login).map(row).collect()
}

/// Rows of `pg_db_role_setting`.
pub(super) fn settings(viewer: &Viewer) -> Vec<Row> {
    let row = |role: &Arc<Role>| -> Option<Row> {
        Some(vec![
            ("setdatabase", 0.into()),
            ("setrole", role_oid(role.id).into()),
            ("setconfig", config(viewer, role)?.into()),
        ])
    };
    visible_roles(viewer).iter().filter_map(row).collect()
}
