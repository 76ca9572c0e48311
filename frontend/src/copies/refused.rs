//! Changes that are refused because the rows of a table are not its own: those of a materialized copy are those of its
//! source, and those of a view are the result of its query.

use partita_proto::catalog::{Catalog, Table};
use partita_proto::service::{Ddl, TableChange};

use crate::error::SqlError;

/// SQLSTATE of an object of another kind than the statement is for.
const WRONG_OBJECT_TYPE: &str = "42809";

/// Refuses to write to a copy or a view, and to change its columns.
///
/// # Errors
/// 42809 for a copy or a view.
pub(crate) fn check_no_copy(catalog: &Catalog, table: &Table) -> Result<(), SqlError> {
    if table.schema.view.is_some() {
        let message = format!("\"{}\" is a view", table.name);
        return Err(SqlError::new(WRONG_OBJECT_TYPE, message)
            .with_detail("Rows are written to the tables that its query reads."));
    }
    check_not_copied(catalog, table)
}

/// Refuses orders and advice about the partitions of a view: it has none.
///
/// # Errors
/// 42809 for a view.
pub(crate) fn check_stored(table: &Table) -> Result<(), SqlError> {
    match table.schema.view {
        None => Ok(()),
        Some(_) => {
            let message = format!("\"{}\" is not a table", table.name);
            Err(SqlError::new(WRONG_OBJECT_TYPE, message))
        }
    }
}

/// Refuses to change a copy.
///
/// # Errors
/// 42809 for a copy.
pub(crate) fn check_not_copied(catalog: &Catalog, table: &Table) -> Result<(), SqlError> {
    let Some(copy) = &table.copy else { return Ok(()) };
    let message = format!("\"{}\" is a materialized copy", table.name);
    let error = SqlError::new(WRONG_OBJECT_TYPE, message);
    Err(match catalog.table_by_id(copy.source) {
        Some(source) => {
            error.with_detail(format!("Rows are written to \"{}\", and follow here.", source.name))
        }
        None => error,
    })
}

/// Refuses a change of the catalog about the rows or the columns of a copy or a view. Both may be renamed and dropped; a
/// view may get another query, and comments.
///
/// # Errors
/// As [`check_no_copy`].
pub(crate) fn check_target(catalog: &Catalog, ddl: &Ddl) -> Result<(), SqlError> {
    let (database, name) = match ddl {
        Ddl::AlterTable {
            change: TableChange::Rename(_) | TableChange::SetView { .. }, ..
        } => {
            return Ok(());
        }
        Ddl::AlterTable {
            database,
            name,
            change:
                TableChange::SetOptions(_)
                | TableChange::ChangeOptions { .. }
                | TableChange::SetComment { .. },
        } => {
            let table = catalog.table(database, name);
            return table.map_or(Ok(()), |table| check_not_copied(catalog, table));
        }
        Ddl::AlterTable { database, name, .. } | Ddl::TruncateTable { database, name } => {
            (database, name)
        }
        _ => return Ok(()),
    };
    catalog.table(database, name).map_or(Ok(()), |table| check_no_copy(catalog, table))
}
