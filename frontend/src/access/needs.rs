//! Needs of a statement: what its identity must be allowed to do before it runs.
//!
//! ```text
//!   statement ─▶ needs ────────────▶ Viewer::check ─▶ Permit ─▶ execution   (execute/permit.rs)
//!   its query ─▶ plan ─▶ tables ───▶ Viewer::check              (execute/query.rs)
//! ```
//!
//! Tables that a query reads are known when it is planned, subqueries included; they are checked then, before the plan
//! is optimized. EXECUTE is checked by the statement that was prepared, and FETCH by the tables of its cursor.
//!
//! Rules beyond those of `proto/src/access/check.rs`:
//! - INSERT needs INSERT although a row replaces the one with its key; UPSERT, which keeps columns of it, UPDATE too;
//! - DELETE with a predicate needs SELECT on its table too, as in PostgreSQL, except for tokens and a predicate that
//!   compares key columns with literals: to InfluxDB's clients such a delete is a write;
//! - UPDATE needs SELECT on its table too, as in PostgreSQL, unless it sets all rows to constants;
//! - RETURNING needs SELECT on the table, and so does ON CONFLICT that names the key; DO UPDATE needs UPDATE too;
//! - to read a materialized copy is to read its source: SELECT is needed on that (`Viewer::check`);
//! - to read a view, SELECT on the view is needed, and its owner needs SELECT on what the view reads: `catalog.rs` checks
//!   the one, `execute/query.rs` the other;
//! - CREATE TABLE ... AS needs CREATE on the database, and SELECT on what its query reads; LIKE needs SELECT on the table;
//! - a database may be used as soon as anything in it is visible;
//! - SHOW PARTITIONS and EXPLAIN HOTSPOT show keys of all rows: they need SELECT without a row predicate.
//!
//! Names resolve in the visible catalog, so an object that is hidden is an object that does not exist.

use std::sync::Arc;

use partita_proto::access::{Action, Need, Object};
use partita_proto::catalog::Table;
use partita_sql::Repartition;
use partita_sql::statement::{
    Admin, CommentObject, CreateTable, DropIndex, Insert, Rekey, Show, Statement, TableName,
};

use super::viewer::Viewer;
use crate::catalog::{INFORMATION, SYSTEM};
use crate::error::{SqlError, UNDEFINED_TABLE};

/// Needs of a statement, without those of the tables that its query reads; `database` is that of the session.
///
/// # Errors
/// Errors of objects that do not exist for the session.
pub(crate) fn needs(
    viewer: &Viewer,
    database: &str,
    statement: &Statement,
) -> Result<Vec<Need>, SqlError> {
    let table = |action: Action, name: &TableName| {
        let table = table_of(viewer, database, name)?;
        Ok::<_, SqlError>(Need::new(action, viewer.object(&table)?))
    };
    let on_tables = |action: Action, names: &[TableName]| {
        names.iter().map(|name| table(action, name)).collect::<Result<Vec<_>, SqlError>>()
    };
    let owned = |names: &[TableName], if_exists: bool| {
        let mut list = Vec::with_capacity(names.len());
        for name in names {
            list.extend(unless_missing(table(Action::Own, name), if_exists)?);
        }
        Ok::<_, SqlError>(list)
    };
    let on_database = |action: Action, name: &str| {
        let catalog = viewer.catalog();
        let entry = catalog.databases.get(name);
        let entry = entry.ok_or_else(|| SqlError::undefined_database(name))?;
        Ok::<_, SqlError>(Need::new(action, Object::Database(Arc::clone(entry))))
    };
    Ok(match statement {
        // By the tables of the plan, of the cursor, or of the prepared statement.
        Statement::Query(_)
        | Statement::Declare(_)
        | Statement::Fetch(_)
        | Statement::Execute(_) => Vec::new(),
        // A statement is prepared by anybody who sees its tables, and checked each time that it runs.
        Statement::Prepare(_) => Vec::new(),
        Statement::Explain(explain) => needs(viewer, database, &explain.statement)?,
        Statement::ExplainHotspot(name) => vec![table(Action::Select, name)?],
        Statement::Insert(insert) => actions_of(insert)
            .map(|action| table(action, &insert.table))
            .collect::<Result<_, _>>()?,
        Statement::Delete(delete) => vec![table(Action::Delete, &delete.table)?],
        Statement::Update(update) => vec![table(Action::Update, &update.table)?],
        Statement::CopyTo(copy) => of_file(copy.file.as_ref()).collect(),
        Statement::CopyFrom(copy) => {
            of_file(copy.file.as_ref()).chain([table(Action::Insert, &copy.table)?]).collect()
        }
        Statement::CreateDatabase(_) => vec![Need::new(Action::Create, Object::Cluster)],
        Statement::AlterDatabase(alter) => vec![on_database(Action::Own, &alter.name)?],
        Statement::DropDatabase(drop) => {
            let need = on_database(Action::Own, &drop.name);
            if drop.if_exists { need.into_iter().collect() } else { vec![need?] }
        }
        Statement::CreateTable(create) => {
            let created = on_database(Action::Create, create.table.database_or(database))?;
            with_likes(created, create, table)?
        }
        Statement::CreateTableAs(create) => {
            vec![on_database(Action::Create, create.table.table.database_or(database))?]
        }
        Statement::AlterTable(alter) => {
            unless_missing(table(Action::Own, &alter.table), alter.if_exists)?
        }
        Statement::Repartition(Repartition { table: name, if_exists, .. })
        | Statement::Rekey(Rekey { table: name, if_exists, .. }) => {
            unless_missing(table(Action::Own, name), *if_exists)?
        }
        Statement::DropTable(drop) => owned(&drop.tables, drop.if_exists)?,
        Statement::CreateCopy(create) => vec![table(Action::Own, &create.source)?],
        Statement::DropCopy(drop) => owned(&drop.names, drop.if_exists)?,
        // What the query reads is checked when the view is read.
        Statement::CreateView(create) => match table(Action::Own, &create.name) {
            Ok(need) if create.or_replace => vec![need],
            _ => vec![on_database(Action::Create, create.name.database_or(database))?],
        },
        Statement::DropView(drop) => owned(&drop.names, drop.if_exists)?,
        Statement::Comment(comment) => vec![match &comment.object {
            CommentObject::Database(name) => on_database(Action::Own, name)?,
            CommentObject::Table(name)
            | CommentObject::View(name)
            | CommentObject::Column { table: name, .. } => table(Action::Own, name)?,
        }],
        Statement::CreateIndex(create) => vec![table(Action::Own, &create.table)?],
        Statement::DropIndex(drop) => match &drop.table {
            Some(name) => unless_missing(table(Action::Own, name), drop.if_exists)?,
            None => of_index(viewer, database, drop)?,
        },
        // The sequences that it restarts by `execute/sequences.rs`.
        Statement::Truncate(truncate) => on_tables(Action::Truncate, &truncate.tables)?,
        Statement::Show(show) => of_show(viewer, database, show)?,
        // The tables of a database also by the plan of the query.
        Statement::SeriesCardinality(series) => on_tables(Action::Select, series.table.as_slice())?,
        // The definition of a visible table, or the use of a visible database.
        Statement::Describe(_) | Statement::Use(_) => Vec::new(),
        Statement::Set(set) => vec![on_setting(Action::Maintain, &set.name)],
        Statement::Admin(admin) => vec![of_admin(admin, table)?],
        Statement::Lock(lock) => on_tables(Action::Select, &lock.tables)?,
        Statement::Vacuum(vacuum) => on_tables(Action::Maintain, &vacuum.tables)?,
        Statement::Advise(advise) => vec![table(Action::Select, &advise.table)?],
        // By `execute/roles.rs`, which knows the roles that the statement names.
        Statement::Access(_) | Statement::SetRole(_) => Vec::new(),
        // By `execute/tasks.rs` and `execute/sequences.rs`, which know the owners of tasks and sequences.
        Statement::Task(_) | Statement::Sequence(_) => Vec::new(),
        // The session's own state.
        Statement::ResetAll
        | Statement::Transaction(_)
        | Statement::Deallocate(_)
        | Statement::Close(_)
        | Statement::Discard(_)
        | Statement::Listen
        | Statement::Notify
        | Statement::Unlisten
        | Statement::Empty => Vec::new(),
    })
}

/// The needs of a CREATE TABLE. As in PostgreSQL, only who may read a table learns of its defaults and constraints.
fn with_likes(
    created: Need,
    create: &CreateTable,
    table: impl Fn(Action, &TableName) -> Result<Need, SqlError>,
) -> Result<Vec<Need>, SqlError> {
    let mut needs = vec![created];
    for like in &create.likes {
        needs.push(table(Action::Select, &like.table)?);
    }
    Ok(needs)
}

/// The need of ADMIN; `table` makes that for a table.
fn of_admin(
    admin: &Admin,
    table: impl Fn(Action, &TableName) -> Result<Need, SqlError>,
) -> Result<Need, SqlError> {
    match admin {
        Admin::FlushTable(name) | Admin::CompactTable(name) => table(Action::Maintain, name),
        Admin::Order(_) => Ok(Need::new(Action::Admin, Object::Cluster)),
    }
}

/// The needs of SHOW.
fn of_show(viewer: &Viewer, database: &str, show: &Show) -> Result<Vec<Need>, SqlError> {
    Ok(match show {
        Show::Partitions(name) => {
            let table = table_of(viewer, database, name)?;
            vec![Need::new(Action::Select, viewer.object(&table)?)]
        }
        Show::Variable(name) => vec![on_setting(Action::Select, name)],
        // Lists and definitions of what is visible.
        Show::Databases { .. }
        | Show::Tables { .. }
        | Show::CreateTable(_)
        | Show::CreateView(_)
        | Show::Columns(_)
        | Show::Indexes(_)
        | Show::TagKeys(_)
        | Show::FieldKeys(_)
        | Show::Measurements { .. }
        | Show::All => Vec::new(),
    })
}

/// The need for a setting of sessions.
fn on_setting(action: Action, name: &str) -> Need {
    Need::new(action, Object::Setting(name.to_owned()))
}

/// The actions of an INSERT on its table.
fn actions_of(insert: &Insert) -> impl Iterator<Item = Action> {
    let (conflict, returns) = (insert.conflict.as_ref(), insert.returning.is_some());
    let changes = conflict.is_some_and(|clause| clause.update.is_some());
    let names_key = conflict.is_some_and(|clause| clause.target.is_some());
    [
        (true, Action::Insert),
        (insert.keeps || changes, Action::Update),
        (changes || names_key || returns, Action::Select),
    ]
    .into_iter()
    .filter_map(|(is_done, action)| is_done.then_some(action))
}

/// The need for a file of COPY, if there is one: files of the server are for those who administer it.
fn of_file(file: Option<&String>) -> impl Iterator<Item = Need> {
    file.map(|_| Need::new(Action::Admin, Object::Cluster)).into_iter()
}

/// The table that a name in a statement means; `database` is that of the session.
///
/// # Errors
/// 42P01 when there is none, or it is hidden; 42809 for a table of the system.
pub(crate) fn table_of(
    viewer: &Viewer,
    database: &str,
    name: &TableName,
) -> Result<Arc<Table>, SqlError> {
    let database = name.database_or(database);
    if let Some(temporary) = viewer.temporary().get(database, &name.name) {
        return Ok(Arc::clone(temporary.table()));
    }
    if let Some(table) = viewer.catalog().table(database, &name.name) {
        return Ok(Arc::clone(table));
    }
    if [SYSTEM, INFORMATION].contains(&database) {
        return Err(SqlError::new(
            "42809",
            format!("\"{database}.{}\" is not a stored table", name.name),
        ));
    }
    Err(SqlError::undefined_table(match &name.database {
        Some(database) => format!("{database}.{}", name.name),
        None => name.name.clone(),
    }))
}

/// The need for the table that has the index; none without such an index, which is an error of the statement.
fn of_index(viewer: &Viewer, database: &str, drop: &DropIndex) -> Result<Vec<Need>, SqlError> {
    match drop.find(&viewer.catalog(), database)? {
        Some(index) => Ok(vec![Need::new(Action::Own, viewer.object(&index.table)?)]),
        None => Ok(Vec::new()),
    }
}

/// The need; none for a missing table with IF EXISTS, which the statement skips.
fn unless_missing(need: Result<Need, SqlError>, if_exists: bool) -> Result<Vec<Need>, SqlError> {
    match need {
        Err(error) if if_exists && error.sqlstate == UNDEFINED_TABLE => Ok(Vec::new()),
        need => Ok(vec![need?]),
    }
}
