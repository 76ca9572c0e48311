//! Commands on databases. A database disappears at once; its tables follow when their nodes have carried out their
//! orders.

use std::sync::Arc;
use std::time::Duration;

use partita_proto::access::Target;
use partita_proto::catalog::DEFAULT_DATABASE;
use partita_proto::error::Error;
use partita_proto::id::RoleId;
use partita_proto::schema::validate_name;

use super::draft::{Draft, Outcome, Reply, check_owner};
use super::view::{has_views, views_of};
use crate::catalog::{DatabaseRecord, Edit, Phase, State, TableRecord};
use crate::create::check_ttl;

/// Maximum databases. A safety bound, not a measured limit.
const DATABASES_MAX: usize = 1000;
/// Names of schemas that the SQL layer provides.
const RESERVED_DATABASES: [&str; 3] = ["information_schema", "pg_catalog", "sys"];

pub(super) fn create_database(
    state: &State,
    name: &str,
    if_not_exists: bool,
    ttl: Option<Duration>,
    owner: RoleId,
) -> Result<Outcome, Error> {
    validate_name("database", name)?;
    check_ttl(ttl)?;
    if RESERVED_DATABASES.iter().any(|reserved| reserved.eq_ignore_ascii_case(name)) {
        return Err(Error::InvalidInput(format!("database name \"{name}\" is reserved")));
    }
    if state.database_named(name).is_some() {
        if if_not_exists {
            return Ok(Outcome::without_edits(Reply::Unchanged));
        }
        return Err(Error::AlreadyExists { kind: "database", name: name.to_owned() });
    }
    if state.databases().count() >= DATABASES_MAX {
        return Err(Error::InvalidInput(format!(
            "there are {DATABASES_MAX} databases, which is the limit"
        )));
    }
    check_owner(state, owner)?;
    let mut draft = Draft::new(state);
    let id = draft.new_database();
    let name = name.to_owned();
    let record = DatabaseRecord { id, name, ttl, owner, explicit: false, comment: None };
    draft.edits.push(Edit::Database(Arc::new(record)));
    Ok(draft.done())
}

pub(super) fn alter_database(
    state: &State,
    name: &str,
    ttl: Option<Duration>,
) -> Result<Outcome, Error> {
    check_ttl(ttl)?;
    let old = database(state, name)?;
    if old.ttl == ttl {
        return Ok(Outcome::without_edits(Reply::Unchanged));
    }
    let record = Edit::Database(Arc::new(DatabaseRecord { ttl, ..DatabaseRecord::clone(old) }));
    let mut altered = state.clone();
    altered.apply(std::slice::from_ref(&record));
    // Decided on the state with the new `ttl`. Tables with another change under way find out when they settle, and
    // tables with partitions in a split or merge when that is over.
    let mut draft = Draft::new(&altered);
    draft.edits.push(record);
    let free = |table: &&Arc<TableRecord>| {
        table.phase == Phase::Ready && altered.reshaping_of(table.id).is_none()
    };
    for table in altered.tables_of(old.id).filter(free) {
        draft.retell(table);
    }
    Ok(draft.done())
}

/// Sets or removes the comment of a database.
pub(super) fn comment_database(
    state: &State,
    name: &str,
    comment: Option<&str>,
) -> Result<Outcome, Error> {
    let old = database(state, name)?;
    if old.comment.as_deref() == comment {
        return Ok(Outcome::without_edits(Reply::Unchanged));
    }
    let mut draft = Draft::new(state);
    let comment = comment.map(str::to_owned);
    let record = DatabaseRecord { comment, ..DatabaseRecord::clone(old) };
    draft.edits.push(Edit::Database(Arc::new(record)));
    Ok(draft.done())
}

/// Ends the creation of tables by line protocol. Tables that it created before would have no schema of their owner.
pub(super) fn make_explicit(state: &State, name: &str) -> Result<Outcome, Error> {
    let old = database(state, name)?;
    if old.explicit {
        return Ok(Outcome::without_edits(Reply::Unchanged));
    }
    if state.tables_of(old.id).next().is_some() {
        return Err(Error::InvalidInput(format!(
            "database \"{name}\" has tables, and its schema stays implicit"
        )));
    }
    let mut draft = Draft::new(state);
    let record = DatabaseRecord { explicit: true, ..DatabaseRecord::clone(old) };
    draft.edits.push(Edit::Database(Arc::new(record)));
    Ok(draft.done())
}

pub(super) fn drop_database(state: &State, name: &str, if_exists: bool) -> Result<Outcome, Error> {
    if name == DEFAULT_DATABASE {
        return Err(Error::InvalidInput(format!(
            "database \"{DEFAULT_DATABASE}\" is the default database and cannot be dropped"
        )));
    }
    let record = match database(state, name) {
        Ok(record) => record,
        Err(Error::NotFound { .. }) if if_exists => {
            return Ok(Outcome::without_edits(Reply::Unchanged));
        }
        Err(error) => return Err(error),
    };
    // The views of other databases would read what is gone.
    for table in state.tables_of(record.id) {
        if let Some(view) = views_of(state, table).find(|view| view.database != record.id) {
            return Err(has_views("drop", &format!("\"{}\"", table.name), view));
        }
    }
    let mut draft = Draft::new(state);
    for table in state.tables_of(record.id) {
        draft.enter(TableRecord::clone(table), Phase::Dropping);
    }
    draft.drop_grants(Target::Database(record.id));
    draft.drop_permissions(record.id);
    for task in state.tasks().filter(|task| task.database == record.id) {
        draft.drop_task(task.id);
    }
    draft.drop_sequences(record.id);
    draft.edits.push(Edit::DatabaseGone(record.id));
    Ok(draft.done())
}

pub(super) fn database<'a>(state: &'a State, name: &str) -> Result<&'a Arc<DatabaseRecord>, Error> {
    state
        .database_named(name)
        .ok_or_else(|| Error::NotFound { kind: "database", name: name.to_owned() })
}
