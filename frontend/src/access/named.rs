//! The object of a change by name: what was checked, and nothing else that has got the name since.
//!
//! ```text
//!   needs ─▶ Permit, by ids ─┐
//!                            ├─▶ change with the id ─▶ meta, which compares it when the change takes effect
//!   newest catalog ──────────┘   or the error of an object that does not exist
//! ```

use partita_proto::access::{Action, Permit};
use partita_proto::catalog::Catalog;
use partita_proto::service::{Ddl, NamedObject};

use crate::error::SqlError;

/// The change with the id of the object that the permit is for; `None` if there is nothing to change, and the change
/// allows that: an object to drop does not exist, or a table to create does.
///
/// # Errors
/// The error of an object that does not exist, if the name belongs to none, or to one that the permit is not for.
pub(crate) fn with_object(
    catalog: &Catalog,
    permit: &Permit,
    ddl: Ddl,
) -> Result<Option<Ddl>, SqlError> {
    let object = match &ddl {
        // Named by ids, or not there yet.
        Ddl::CreateDatabase { .. }
        | Ddl::Access(_)
        | Ddl::Task(_)
        | Ddl::Sequence(_)
        | Ddl::Copy(_)
        | Ddl::Checked(_) => {
            return Ok(Some(ddl));
        }
        Ddl::AlterDatabase { name, .. }
        | Ddl::CommentDatabase { name, .. }
        | Ddl::DropDatabase { name, .. } => database(catalog, permit, name),
        // A copy needs its source only, which is named by its id.
        Ddl::CreateTable { table, .. } if table.copy_of.is_some() => {
            let source = table.copy_of.filter(|source| permit.covers(*source, Action::Own));
            let database = source.and(catalog.databases.get(&table.database));
            let database = database.map(|database| NamedObject::Database(database.id));
            database.ok_or_else(|| SqlError::undefined_table(&table.name))
        }
        Ddl::CreateTable { table, if_not_exists } => {
            let object = database(catalog, permit, &table.database);
            // Another writer was faster, and the permit is for its table instead of the database.
            let exists = || catalog.table(&table.database, &table.name).is_some();
            if object.is_err() && *if_not_exists && exists() {
                return Ok(None);
            }
            object
        }
        Ddl::MakeExplicit { name } => {
            database(catalog, permit, name).or_else(|error| created(catalog, permit, name, error))
        }
        Ddl::DropTable { database, name, .. }
        | Ddl::TruncateTable { database, name }
        | Ddl::AlterTable { database, name, .. } => table(catalog, permit, database, name),
    };
    match object {
        Ok(object) => Ok(Some(ddl.checked(object))),
        Err(_) if ddl.allows_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

fn database(catalog: &Catalog, permit: &Permit, name: &str) -> Result<NamedObject, SqlError> {
    let holder = catalog.databases.get(name).map(|database| database.id);
    let checked = holder.filter(|id| permit.names_database(*id));
    checked.map(NamedObject::Database).ok_or_else(|| SqlError::undefined_database(name))
}

/// A database that was just created by the same permit, which could not name it.
fn created(
    catalog: &Catalog,
    permit: &Permit,
    name: &str,
    error: SqlError,
) -> Result<NamedObject, SqlError> {
    let holder = catalog.databases.get(name);
    let created =
        holder.filter(|database| !permit.names_databases() && database.owner == permit.role());
    created.map(|database| NamedObject::Database(database.id)).ok_or(error)
}

fn table(
    catalog: &Catalog,
    permit: &Permit,
    database: &str,
    name: &str,
) -> Result<NamedObject, SqlError> {
    // A table whose rows are placed otherwise since the check is the same one, under another id.
    let checked = catalog.table(database, name).filter(|table| {
        permit.names_table(table.id) || table.former.is_some_and(|id| permit.names_table(id))
    });
    checked.map(|table| NamedObject::Table(table.id)).ok_or_else(|| SqlError::undefined_table(name))
}
