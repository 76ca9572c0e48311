//! The object of a change by name: the one that was checked, or none.
//!
//! ```text
//!   check of "t" ─▶ table 7        DROP TABLE t, CREATE TABLE t        change of "t", checked as table 7
//!                                  by another client ─▶ table 9        ─▶ refused: "t" does not exist
//! ```
//!
//! A frontend checks rights on the object that has the name in its catalog, and meta changes the object that has the
//! name when the entry is applied. Only here both are known.

use partita_proto::error::Error;
use partita_proto::service::{CheckedDdl, Ddl, NamedObject};

use super::database::database;
use super::table::{shown_name, table};
use crate::catalog::State;

/// Checks that the name in a change belongs to the object that was checked. A table whose rows are placed otherwise
/// since then is the same table to its clients, although its successor has the name and an id of its own.
///
/// # Errors
/// [`Error::NotFound`] when no object has the name, or another one.
pub(super) fn check_object(state: &State, checked: &CheckedDdl) -> Result<(), Error> {
    match checked.ddl.body() {
        // Objects that do not exist yet, or are named by their ids.
        Ddl::CreateDatabase { .. }
        | Ddl::Access(_)
        | Ddl::Task(_)
        | Ddl::Sequence(_)
        | Ddl::Copy(_)
        | Ddl::Checked(_) => Ok(()),
        Ddl::AlterDatabase { name, .. }
        | Ddl::MakeExplicit { name }
        | Ddl::CommentDatabase { name, .. }
        | Ddl::DropDatabase { name, .. } => check_database(state, name, checked.object),
        Ddl::CreateTable { table, .. } => check_database(state, &table.database, checked.object),
        Ddl::DropTable { database, name, .. }
        | Ddl::TruncateTable { database, name }
        | Ddl::AlterTable { database, name, .. } => {
            check_table(state, (database, name), checked.object)
        }
    }
}

fn check_database(state: &State, name: &str, object: NamedObject) -> Result<(), Error> {
    match object == NamedObject::Database(database(state, name)?.id) {
        true => Ok(()),
        false => Err(Error::NotFound { kind: "database", name: name.to_owned() }),
    }
}

fn check_table(
    state: &State,
    (database, name): (&str, &str),
    object: NamedObject,
) -> Result<(), Error> {
    let record = table(state, database, name)?;
    // After a change of the placement the name belongs to the successor, and the checked table is its former table.
    let is_checked = |id| object == NamedObject::Table(id);
    match is_checked(record.id) || record.former.is_some_and(is_checked) {
        true => Ok(()),
        false => Err(Error::NotFound { kind: "table", name: shown_name(database, name) }),
    }
}
