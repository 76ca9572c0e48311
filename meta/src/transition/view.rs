//! Views in the catalog: what they read must exist, and stays while they do.
//!
//! A view is a table without partitions, so that no node gets an order about it. It names what it reads, so that
//! neither a table nor a column that it uses can be renamed or dropped; a table is dropped with its views by CASCADE.
//!
//! Invariant: the names that the views of the catalog read have no circle.

use std::collections::BTreeSet;
use std::sync::Arc;

use partita_proto::error::Error;
use partita_proto::id::TableId;
use partita_proto::service::TableChange;
use partita_proto::stored_view::{RelationName, ViewDefinition};

use super::draft::refusal;
use super::table::shown_name;
use crate::catalog::{State, TableRecord};
use crate::expression::mentions;

/// SQLSTATE of an object of another kind than the change is for.
const WRONG_OBJECT_TYPE: &str = "42809";
/// SQLSTATE of a view that reads itself.
const INVALID_OBJECT_DEFINITION: &str = "42P17";

/// Checks that what the query of a view reads exists, and is not the view itself. `view` is the one that gets the query,
/// if it exists.
///
/// # Errors
/// [`Error::NotFound`] for what does not exist, [`Error::Unsupported`] for a re-keying, and 42P17 for a circle.
pub(super) fn check_reads(
    state: &State,
    definition: &ViewDefinition,
    view: Option<&TableRecord>,
) -> Result<(), Error> {
    let mut pending: Vec<&RelationName> = definition.reads.iter().collect();
    let mut visited = BTreeSet::new();
    while let Some(read) = pending.pop() {
        if !visited.insert(read) {
            continue;
        }
        let database = state.database_named(&read.database);
        let record = database.and_then(|database| state.table_named(database.id, &read.name));
        let Some(record) = record.filter(|record| record.is_published()) else {
            let name = shown_name(&read.database, &read.name);
            return Err(Error::NotFound { kind: "table", name });
        };
        // It is dropped when its table has its key, whatever reads it.
        if record.is_rekeying() {
            let feature = format!("a view of \"{}\", the re-keying of a table,", record.name);
            return Err(Error::Unsupported(feature));
        }
        if view.is_some_and(|view| view.id == record.id) {
            let message =
                format!("infinite recursion detected in rules for relation \"{}\"", record.name);
            return Err(refusal(INVALID_OBJECT_DEFINITION, message));
        }
        pending.extend(record.schema.view.iter().flat_map(|view| &view.reads));
    }
    Ok(())
}

/// The views that read a table or view.
pub(super) fn views_of<'a>(
    state: &'a State,
    table: &'a TableRecord,
) -> impl Iterator<Item = &'a Arc<TableRecord>> {
    let database = state.database(table.database).map(|database| database.name.as_str());
    state.tables().filter(move |view| {
        let definition = view.schema.view.as_ref().filter(|_| view.is_named());
        definition.zip(database).is_some_and(|(view, database)| view.reads(database, &table.name))
    })
}

/// The views that read a table or view, or one of these views, and so on.
pub(super) fn dependent_views<'a>(
    state: &'a State,
    table: &'a Arc<TableRecord>,
) -> Vec<&'a Arc<TableRecord>> {
    let mut views: Vec<&Arc<TableRecord>> = Vec::new();
    let mut ids: BTreeSet<TableId> = BTreeSet::from([table.id]);
    let mut pending = vec![table];
    while let Some(next) = pending.pop() {
        for view in views_of(state, next) {
            if ids.insert(view.id) {
                views.push(view);
                pending.push(view);
            }
        }
    }
    views
}

/// Error for a table or view that is to be changed in a way that its views do not allow.
pub(super) fn has_views(verb: &str, object: &str, view: &TableRecord) -> Error {
    Error::Dependents {
        message: format!("cannot {verb} {object} because view \"{}\" depends on it", view.name),
        hint: "Drop the view, and create it again after the change.".to_owned(),
    }
}

/// Checks a change of a view, or of a table that views read.
///
/// # Errors
/// 42809 for a change that the kind of the table does not allow, [`Error::Dependents`] for one that a view would not
/// survive.
pub(super) fn check_change(
    state: &State,
    table: &TableRecord,
    change: &TableChange,
) -> Result<(), Error> {
    let is_view = table.schema.view.is_some();
    match change {
        TableChange::SetView { definition, .. } if is_view => {
            return check_reads(state, definition, Some(table));
        }
        TableChange::SetView { .. } => {
            let message = format!("\"{}\" is not a view", table.name);
            return Err(refusal(WRONG_OBJECT_TYPE, message));
        }
        TableChange::Rename(_) => {
            let object = format!("\"{}\"", table.name);
            let mut views = views_of(state, table);
            return views.next().map_or(Ok(()), |view| Err(has_views("rename", &object, view)));
        }
        TableChange::SetOptions(_) | TableChange::SetComment { .. } => return Ok(()),
        _ if is_view => {
            let message =
                format!("ALTER action cannot be performed on relation \"{}\"", table.name);
            return Err(refusal(WRONG_OBJECT_TYPE, message));
        }
        _ => {}
    }
    let (verb, column) = match change {
        TableChange::DropColumn(name) => ("drop", name),
        TableChange::RenameColumn { from: name, .. } => ("rename", name),
        TableChange::SetType { column: name, .. } => ("alter type of", name),
        _ => return Ok(()),
    };
    let mut views = views_of(state, table);
    match views.find(|view| uses_column(view, column)) {
        None => Ok(()),
        Some(view) => {
            let object = format!("column {column} of table \"{}\"", table.name);
            Err(has_views(verb, &object, view))
        }
    }
}

/// True if a view may use a column of a table that it reads: its query names the column, or a wildcard in the query
/// makes it a column of the view. A column of the same name in another table counts too.
fn uses_column(view: &TableRecord, column: &str) -> bool {
    let is_shown = view.schema.columns.iter().any(|output| output.storage_name == column);
    let is_named = |definition: &ViewDefinition| mentions(&definition.query, column);
    is_shown || view.schema.view.as_ref().is_some_and(is_named)
}
