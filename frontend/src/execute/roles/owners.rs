//! OWNER TO, REASSIGN OWNED and DROP OWNED.

use std::collections::BTreeSet;
use std::sync::Arc;

use partita_proto::access::{AccessChange, Action, Grantee, Object, Revocation, Target};
use partita_proto::catalog::Catalog;
use partita_proto::id::{BOOTSTRAP_ROLE, RoleId};
use partita_proto::sequence::SequenceChange;
use partita_proto::service::{Ddl, NamedObject};
use partita_proto::task::TaskChange;
use partita_sql::access_statement::{OwnedObject, RoleName};

use super::attributes::{access, required};
use super::names::{Names, role_object};
use super::plan::{DEPENDENT_OBJECTS, Plan};
use crate::error::{FEATURE_NOT_SUPPORTED, SqlError, UNDEFINED_TABLE};
use crate::session::Session;

pub(super) fn set_owner(
    names: &Names<'_>,
    object: &OwnedObject,
    owner: &RoleName,
) -> Result<Plan, SqlError> {
    let mut plan = Plan::default();
    let owner = names.role(owner)?;
    let (object, former_owner, target) = match object {
        OwnedObject::Table { name, if_exists } => match names.table(name) {
            Ok(Object::Table { database, table }) => {
                // A former table, which has a part of the rows, follows it.
                let (owner, target) = (table.owner, Target::Table(table.id));
                (Object::Table { database, table }, owner, target)
            }
            Ok(_) => return Err(SqlError::internal("a table is another object")),
            Err(error) if *if_exists && error.sqlstate == UNDEFINED_TABLE => {
                plan.notice(format!("relation \"{}\" does not exist, skipping", name.name));
                return Ok(plan);
            }
            Err(error) => return Err(error),
        },
        OwnedObject::Database(name) => {
            let database = names.database(name)?;
            plan.need(Action::Create, Object::Cluster);
            let (owner, target) = (database.owner, Target::Database(database.id));
            (Object::Database(database), owner, target)
        }
        OwnedObject::Sequence { name, if_exists } => match names.sequence(name) {
            Ok(Object::Sequence { table: Some(table), .. }) => {
                let message = format!("cannot change owner of sequence \"{}\"", name.name);
                let detail =
                    format!("Sequence \"{}\" is linked to table \"{}\".", name.name, table.name);
                return Err(SqlError::new(FEATURE_NOT_SUPPORTED, message).with_detail(detail));
            }
            Ok(Object::Sequence { id, database, table, name, owner }) => {
                let object = Object::Sequence { id, database, table, name, owner };
                (object, owner, Target::Sequence(id))
            }
            Ok(_) => return Err(SqlError::internal("a sequence is another object")),
            Err(error) if *if_exists && error.sqlstate == UNDEFINED_TABLE => {
                plan.notice(format!("relation \"{}\" does not exist, skipping", name.name));
                return Ok(plan);
            }
            Err(error) => return Err(error),
        },
    };
    plan.need(Action::Own, object);
    plan.need(Action::Login, role_object(&owner));
    if former_owner != owner.id {
        plan.changes.push(access(AccessChange::SetOwner { target, owner: owner.id }));
    }
    Ok(plan)
}

/// The former owners of a statement, with the right to become each of them.
fn former_owners(
    names: &Names<'_>,
    plan: &mut Plan,
    owners: &[RoleName],
) -> Result<BTreeSet<RoleId>, SqlError> {
    let mut ids = BTreeSet::new();
    for role in names.roles(owners)? {
        if role.id == BOOTSTRAP_ROLE {
            return Err(required(&role));
        }
        plan.need(Action::Login, role_object(&role));
        ids.insert(role.id);
    }
    Ok(ids)
}

/// The whole catalog: what a role owns is changed also where the current role sees nothing of it.
fn catalog_of(names: &Names<'_>, session: Option<&Session>) -> Arc<Catalog> {
    session.map_or_else(|| Arc::clone(&names.catalog), |session| session.frontend().catalog())
}

pub(super) fn reassign(
    names: &Names<'_>,
    owners: &[RoleName],
    successor: &RoleName,
    session: Option<&Session>,
) -> Result<Plan, SqlError> {
    let mut plan = Plan::default();
    let owners = former_owners(names, &mut plan, owners)?;
    let successor = names.role(successor)?;
    plan.need(Action::Login, role_object(&successor));
    let catalog = catalog_of(names, session);
    let databases = catalog.databases.values();
    let databases = databases.filter(|database| owners.contains(&database.owner));
    let databases = databases.map(|database| Target::Database(database.id));
    let tables = catalog.tables.values().flat_map(|tables| tables.values());
    let tables = tables.filter(|table| owners.contains(&table.owner));
    let tables = tables.map(|table| Target::Table(table.id));
    // Those of columns go with their tables.
    let sequences = catalog.sequences.values();
    let sequences =
        sequences.filter(|sequence| sequence.column.is_none() && owners.contains(&sequence.owner));
    let sequences = sequences.map(|sequence| Target::Sequence(sequence.id));
    for target in databases.chain(tables).chain(sequences) {
        plan.changes.push(access(AccessChange::SetOwner { target, owner: successor.id }));
    }
    Ok(plan)
}

pub(super) fn drop_owned(
    names: &Names<'_>,
    owners: &[RoleName],
    cascade: bool,
    session: Option<&Session>,
) -> Result<Plan, SqlError> {
    let mut plan = Plan::default();
    let owners = former_owners(names, &mut plan, owners)?;
    let catalog = catalog_of(names, session);
    let mut dropped: BTreeSet<Target> = BTreeSet::new();
    let mut databases = Vec::new();
    for (name, tables) in &catalog.tables {
        let database = catalog.databases.get(name);
        let database = database.filter(|database| owners.contains(&database.owner));
        let is_foreign = tables.values().any(|table| !owners.contains(&table.owner));
        if database.is_some() && is_foreign && !cascade {
            let message = format!("cannot drop database {name} because other objects depend on it");
            return Err(SqlError::new(DEPENDENT_OBJECTS, message)
                .with_detail("Tables in it are owned by other roles.")
                .with_hint("use CASCADE to drop them too"));
        }
        for table in tables.values() {
            let is_owned = owners.contains(&table.owner);
            if database.is_some() || is_owned {
                dropped.insert(Target::Table(table.id));
            }
            if database.is_none() && is_owned {
                let (database, name) = (name.clone(), table.name.clone());
                let mut copies = catalog.copies_of(table.id);
                let cascade = cascade || copies.all(|copy| owners.contains(&copy.owner));
                let drop = Ddl::DropTable { database, name, if_exists: true, cascade };
                plan.changes.push(drop.checked(NamedObject::Table(table.id)));
            }
        }
    }
    for (name, database) in &catalog.databases {
        if owners.contains(&database.owner) {
            dropped.insert(Target::Database(database.id));
            let drop = Ddl::DropDatabase { name: name.clone(), if_exists: true };
            databases.push(drop.checked(NamedObject::Database(database.id)));
        }
    }
    for entry in catalog.tasks.values() {
        let (task, home) = (entry.task.id, Target::Database(entry.task.database));
        if owners.contains(&entry.task.owner) && !dropped.contains(&home) {
            plan.changes.push(Ddl::Task(Box::new(TaskChange::Drop { task })));
        }
    }
    for sequence in catalog.sequences.values() {
        let home = Target::Database(sequence.database);
        let table = sequence.column.map(|column| Target::Table(column.table));
        let goes_along =
            dropped.contains(&home) || table.is_some_and(|table| dropped.contains(&table));
        if !goes_along && table.is_none() && owners.contains(&sequence.owner) {
            let change = SequenceChange::Drop { sequence: sequence.id };
            plan.changes.push(Ddl::Sequence(Box::new(change)));
            dropped.insert(Target::Sequence(sequence.id));
        } else if goes_along {
            dropped.insert(Target::Sequence(sequence.id));
        }
    }
    plan.changes.append(&mut databases);
    for grant in names.access.grants().filter(|grant| !dropped.contains(&grant.target())) {
        for entry in grant.entries() {
            let Grantee::Role(grantee) = entry.grantee else { continue };
            if owners.contains(&grantee) {
                let revocation = Revocation {
                    grantee: entry.grantee,
                    actions: entry.actions,
                    grantor: entry.grantor,
                    options_only: false,
                    cascade: true,
                };
                let target = grant.target();
                plan.changes.push(access(AccessChange::Revoke { target, revocation }));
            }
        }
    }
    for token in names.access.tokens().filter(|token| owners.contains(&token.owner)) {
        plan.changes.push(access(AccessChange::DropToken(token.id)));
    }
    Ok(plan)
}
