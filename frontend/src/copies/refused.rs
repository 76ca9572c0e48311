//! Changes of a materialized copy that are refused: its rows and columns are those of its source.

use partita_proto::catalog::{Catalog, Table};
use partita_proto::service::{Ddl, TableChange};

use crate::error::SqlError;

/// SQLSTATE of an object of another kind than the statement is for.
const WRONG_OBJECT_TYPE: &str = "42809";

/// Refuses to write to a copy, and to change its columns.
///
/// # Errors
/// 42809 for a copy.
pub(crate) fn check_no_copy(catalog: &Catalog, table: &Table) -> Result<(), SqlError> {
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

/// Refuses a change of the catalog about the rows or the columns of a copy. A copy may be renamed and dropped.
///
/// # Errors
/// As [`check_no_copy`].
pub(crate) fn check_target(catalog: &Catalog, ddl: &Ddl) -> Result<(), SqlError> {
    let (database, name) = match ddl {
        Ddl::AlterTable { change: TableChange::Rename(_), .. } => return Ok(()),
        Ddl::AlterTable { database, name, .. } | Ddl::TruncateTable { database, name } => {
            (database, name)
        }
        _ => return Ok(()),
    };
    catalog.table(database, name).map_or(Ok(()), |table| check_no_copy(catalog, table))
}
