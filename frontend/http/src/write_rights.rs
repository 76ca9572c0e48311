//! Rights that rows need whose tables a request names without a statement: line protocol and Flight's bulk rows.
//!
//! | rows | rights |
//! |---|---|
//! | of a table that exists | INSERT on the table |
//! | with new columns | besides, ownership of the table or CREATE on its database |
//! | of a table that does not exist | CREATE on the database |
//! | of a database that does not exist | CREATE on the cluster |
//!
//! Invariant: for an identity without CREATE, the error of a table or database that it may not see is that of one that
//! does not exist.

use std::slice;
use std::sync::Arc;

use partita_frontend::{Frontend, SqlError};
use partita_proto::access::{Action, Identity, Need, Object, Permit, Sight};
use partita_proto::catalog::{Database, Table};

/// The permit to create a database; `None` if it exists.
///
/// # Errors
/// As for a database that does not exist, when the identity may neither see nor create it.
pub(crate) fn database_permit(
    frontend: &Frontend,
    identity: Identity,
    name: &str,
) -> Result<Option<Permit>, SqlError> {
    // From before the visible catalog, so that a database that is created meanwhile is not taken for a hidden one.
    let exists = frontend.catalog().databases.contains_key(name);
    if frontend.viewer(identity).catalog().databases.contains_key(name) {
        return Ok(None);
    }
    let permit = frontend.authorize(&identity, &[Need::new(Action::Create, Object::Cluster)]);
    match permit {
        Ok(permit) if !exists => Ok(Some(permit)),
        Err(error) if has_ended(&error) => Err(error),
        _ => Err(SqlError::undefined_database(name)),
    }
}

/// The permit to write the rows of a request to a table, which is created or extended for them if necessary.
///
/// # Errors
/// When a right is missing.
pub(crate) fn rows_permit(
    frontend: &Frontend,
    identity: Identity,
    (database, name): (&str, &str),
    extends: bool,
) -> Result<Permit, SqlError> {
    let catalog = frontend.catalog();
    let parent = catalog.databases.get(database).cloned();
    let parent = parent.ok_or_else(|| SqlError::undefined_database(database))?;
    let create = Need::new(Action::Create, Object::Database(Arc::clone(&parent)));
    let Some(table) = catalog.table(database, name) else {
        return frontend.authorize(&identity, &[create]);
    };
    if frontend.viewer(identity).sight(&parent, table) == Sight::None {
        // Without CREATE, the error of a table that does not exist.
        let _permit = frontend.authorize(&identity, &[create])?;
        return Err(SqlError::new("42501", format!("permission denied for table {name}")));
    }
    let object = table_object(parent, table);
    let insert = Need::new(Action::Insert, object.clone());
    if !extends {
        return frontend.authorize(&identity, slice::from_ref(&insert));
    }
    let own = Need::new(Action::Own, object);
    // Those who do not own the table may have CREATE: only the second refusal is one.
    let owner = frontend.viewer(identity).check(&[insert.clone(), own]);
    owner.or_else(|error| frontend.authorize(&identity, &[insert, create]).map_err(|_| error))
}

/// The permit to write rows to a table that exists.
///
/// # Errors
/// When INSERT is missing.
pub(crate) fn insert_permit(
    frontend: &Frontend,
    identity: Identity,
    table: &Arc<Table>,
) -> Result<Permit, SqlError> {
    let need = need_of(frontend, Action::Insert, table)?;
    frontend.authorize(&identity, &[need])
}

/// The need of an action on a table.
///
/// # Errors
/// When its database was dropped.
pub(crate) fn need_of(
    frontend: &Frontend,
    action: Action,
    table: &Arc<Table>,
) -> Result<Need, SqlError> {
    let parent = frontend.catalog().databases.get(&table.database).cloned();
    let parent = parent.ok_or_else(|| SqlError::undefined_database(&table.database))?;
    Ok(Need::new(action, table_object(parent, table)))
}

/// True if the error says that the identity is no longer valid.
pub(crate) fn has_ended(error: &SqlError) -> bool {
    error.sqlstate.starts_with("28")
}

fn table_object(database: Arc<Database>, table: &Arc<Table>) -> Object {
    Object::Table { database, table: Arc::clone(table) }
}
