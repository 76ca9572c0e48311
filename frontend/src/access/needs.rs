//! Needs of a statement: what its identity must be allowed to do before it runs.
//!
//! ```text
//!   statement ─▶ needs ────────────▶ Viewer::check ─▶ Permit ─▶ execution
//!   its query ─▶ plan ─▶ tables ───▶ Viewer::check              (execute/query.rs)
//! ```
//!
//! Tables that a query reads are known when it is planned, subqueries included; they are checked then, before the plan
//! is optimized. EXECUTE is checked by the statement that was prepared, and FETCH by the tables of its cursor.
//!
//! Rules beyond those of `proto/src/access/check.rs`:
//! - INSERT needs INSERT although a row replaces the one with its key; UPSERT, which keeps columns of it, UPDATE too;
//! - DELETE with a predicate needs SELECT on its table too, as in PostgreSQL, except for tokens: to InfluxDB's clients
//!   a delete is a write;
//! - a database may be used as soon as anything in it is visible;
//! - SHOW PARTITIONS and EXPLAIN HOTSPOT show keys of all rows: they need SELECT without a row predicate.
//!
//! Names resolve in the visible catalog, so an object that is hidden is an object that does not exist.

use std::sync::Arc;

use partita_proto::access::{Action, Need, Object, Permit};
use partita_proto::catalog::Table;
use partita_sql::statement::{Admin, Show, Statement, TableName};

use crate::error::{SqlError, UNDEFINED_TABLE};
use crate::execute::roles;
use crate::session::Session;

/// SQLSTATE of an action that is not permitted.
const INSUFFICIENT_PRIVILEGE: &str = "42501";

/// Needs of a statement, without those of the tables that its query reads.
///
/// # Errors
/// Errors of objects that do not exist for the session.
pub(crate) fn needs(session: &Session, statement: &Statement) -> Result<Vec<Need>, SqlError> {
    let table = |action: Action, name: &TableName| on_table(session, action, name);
    let database = |action: Action, name: &str| on_database(session, action, name);
    let setting =
        |action: Action, name: &str| vec![Need::new(action, Object::Setting(name.to_owned()))];
    Ok(match statement {
        // By the tables of the plan, of the cursor, or of the prepared statement.
        Statement::Query(_)
        | Statement::CopyTo(_)
        | Statement::Declare(_)
        | Statement::Fetch(_)
        | Statement::Execute(_) => Vec::new(),
        // A statement is prepared by anybody who sees its tables, and checked each time that it runs.
        Statement::Prepare(_) => Vec::new(),
        Statement::Explain(explain) => needs(session, &explain.statement)?,
        Statement::ExplainHotspot(name) => vec![table(Action::Select, name)?],
        Statement::Insert(insert) => {
            let mut list = vec![table(Action::Insert, &insert.table)?];
            if insert.keeps {
                list.push(table(Action::Update, &insert.table)?);
            }
            list
        }
        Statement::Delete(delete) => vec![table(Action::Delete, &delete.table)?],
        Statement::CopyFrom(copy) => vec![table(Action::Insert, &copy.table)?],
        Statement::CreateDatabase(_) => vec![Need::new(Action::Create, Object::Cluster)],
        Statement::AlterDatabase(alter) => vec![database(Action::Own, &alter.name)?],
        Statement::DropDatabase(drop) => {
            let need = database(Action::Own, &drop.name);
            if drop.if_exists { need.into_iter().collect() } else { vec![need?] }
        }
        Statement::CreateTable(create) => {
            let name = create.table.database.clone().unwrap_or_else(|| session.database());
            vec![database(Action::Create, &name)?]
        }
        Statement::AlterTable(alter) => {
            unless_missing(table(Action::Own, &alter.table), alter.if_exists)?
        }
        Statement::Repartition(repartition) => {
            unless_missing(table(Action::Own, &repartition.table), repartition.if_exists)?
        }
        Statement::DropTable(drop) => {
            let mut list = Vec::with_capacity(drop.tables.len());
            for name in &drop.tables {
                list.extend(unless_missing(table(Action::Own, name), drop.if_exists)?);
            }
            list
        }
        Statement::Truncate(names) => {
            names.iter().map(|name| table(Action::Truncate, name)).collect::<Result<_, _>>()?
        }
        Statement::Show(show) => match show {
            Show::Partitions(name) => vec![table(Action::Select, name)?],
            Show::Variable(name) => setting(Action::Select, name),
            // Lists and definitions of what is visible.
            Show::Databases { .. }
            | Show::Tables { .. }
            | Show::CreateTable(_)
            | Show::Columns(_)
            | Show::TagKeys(_)
            | Show::FieldKeys(_)
            | Show::Measurements { .. }
            | Show::All => Vec::new(),
        },
        // The definition of a visible table, or the use of a visible database.
        Statement::Describe(_) | Statement::Use(_) => Vec::new(),
        Statement::Set(set) => setting(Action::Maintain, &set.name),
        Statement::Admin(admin) => match admin {
            Admin::FlushTable(name) | Admin::CompactTable(name) => {
                vec![table(Action::Maintain, name)?]
            }
            Admin::Order(_) => vec![Need::new(Action::Admin, Object::Cluster)],
        },
        Statement::Access(statement) => roles::needs(session.viewer(), statement)?,
        // Membership is checked when the role is known.
        Statement::SetRole(_) => Vec::new(),
        // The session's own state.
        Statement::ResetAll
        | Statement::Transaction(_)
        | Statement::Deallocate(_)
        | Statement::Close(_)
        | Statement::Discard(_)
        | Statement::Unlisten
        | Statement::Empty => Vec::new(),
    })
}

fn on_table(session: &Session, action: Action, name: &TableName) -> Result<Need, SqlError> {
    let table = session.table(name)?;
    Ok(Need::new(action, session.viewer().object(&table)?))
}

fn on_database(session: &Session, action: Action, name: &str) -> Result<Need, SqlError> {
    let catalog = session.catalog();
    let database = catalog.databases.get(name).ok_or_else(|| SqlError::undefined_database(name))?;
    Ok(Need::new(action, Object::Database(Arc::clone(database))))
}

/// The need; none for a missing table with IF EXISTS, which the statement skips.
fn unless_missing(need: Result<Need, SqlError>, if_exists: bool) -> Result<Vec<Need>, SqlError> {
    match need {
        Err(error) if if_exists && error.sqlstate == UNDEFINED_TABLE => Ok(Vec::new()),
        need => Ok(vec![need?]),
    }
}

/// Refuses what shows keys or figures of all rows of a table to an identity that may read some of them only.
///
/// # Errors
/// 42501 when the permit restricts the rows.
pub(crate) fn check_all_rows(permit: &Permit, table: &Table) -> Result<(), SqlError> {
    match permit.rows(table.id) {
        None => Ok(()),
        Some(_) => {
            let message = format!("permission denied for table {}", table.name);
            Err(SqlError::new(INSUFFICIENT_PRIVILEGE, message)
                .with_detail("the token is restricted to some rows of the table"))
        }
    }
}
