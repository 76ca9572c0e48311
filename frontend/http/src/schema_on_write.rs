//! Creates the databases, tables and columns that line protocol refers to.
//!
//! The key of a table created by line protocol is its tags, by name, then the time; it keeps the newest value of each
//! field. Many writers may create the same table or column at once: each creates it "if not exists", and inspects the
//! result. When the table differs from the one that the rows were read for ([`Outcome::Changed`]), the rows are read
//! again.

use std::sync::Arc;

use partita_frontend::{Frontend, SqlError};
use partita_proto::access::Permit;
use partita_proto::catalog::Table;
use partita_proto::id::{ColumnId, RoleId, SchemaVersion};
use partita_proto::placement::Placement;
use partita_proto::schema::{Column, ColumnType, Semantic, TableOptions, TableSchema, Unit};
use partita_proto::service::{Ddl, NewTable, TableChange};

use crate::hints::Hints;
use crate::line_protocol::TableRows;

/// Maximum length of a database name in bytes.
const DATABASE_NAME_BYTES_MAX: usize = 64;

/// The state of a table that rows need.
pub(crate) enum Outcome {
    /// It can take the rows.
    Ready(Arc<Table>),
    /// Another writer changed it: the rows must be read again.
    Changed,
}

/// Checks the name of a database that a write may create.
///
/// # Errors
/// A message when it is empty, too long, or has characters other than letters, digits, `_`, `/`, `-`.
pub(crate) fn check_database_name(name: &str) -> Result<(), String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'/' | b'-');
    if name.is_empty() || name.len() > DATABASE_NAME_BYTES_MAX || !name.bytes().all(allowed) {
        return Err(format!(
            "invalid database name \"{name}\": it must be 1 to {DATABASE_NAME_BYTES_MAX} letters, \
             digits, '_', '-' or '/'"
        ));
    }
    Ok(())
}

/// Creates a database unless it exists.
///
/// # Errors
/// Those of meta.
pub(crate) async fn make_database(
    frontend: &Frontend,
    permit: &Permit,
    name: &str,
) -> Result<(), SqlError> {
    if frontend.catalog().databases.contains_key(name) {
        return Ok(());
    }
    let ddl = Ddl::CreateDatabase {
        name: name.to_owned(),
        if_not_exists: true,
        ttl: None,
        owner: permit.role(),
    };
    frontend.change(permit, ddl).await?;
    Ok(())
}

/// Creates or extends a table so that rows fit. `permit` is the permit to write the rows.
///
/// # Errors
/// Errors of meta, unless another writer has changed the table since the rows were read ([`Outcome::Changed`]).
pub(crate) async fn make_table(
    frontend: &Frontend,
    permit: &Permit,
    database: &str,
    hints: &Hints,
    rows: &TableRows,
) -> Result<Outcome, SqlError> {
    // The table, or the columns that it lacks.
    let missing = match &rows.table {
        Some(table) if rows.new_tags.is_empty() && rows.new_fields.is_empty() => {
            return Ok(Outcome::Ready(Arc::clone(table)));
        }
        Some(_) => Ddl::AlterTable {
            database: database.to_owned(),
            name: rows.name.clone(),
            change: TableChange::AddColumns { columns: new_columns(rows), if_not_exists: true },
        },
        None => Ddl::CreateTable {
            table: Box::new(new_table(database, permit.role(), hints, rows)),
            if_not_exists: true,
        },
    };
    // Another writer may have been faster; the catalog shows the result.
    let changed = frontend.change(permit, missing).await;
    let catalog = frontend.catalog();
    let table = catalog.table(database, &rows.name);
    match (changed, table) {
        (Ok(_), Some(table)) if rows.fits(&table.schema) => Ok(Outcome::Ready(Arc::clone(table))),
        (Ok(_), _) => Ok(Outcome::Changed),
        (Err(error), table) => {
            // An error stands only if nothing changed meanwhile.
            let same = match (&rows.table, table) {
                (None, None) => true,
                (Some(previous), Some(current)) => {
                    previous.id == current.id && previous.schema.version == current.schema.version
                }
                _ => false,
            };
            if same || error.retryable { Err(error) } else { Ok(Outcome::Changed) }
        }
    }
}

fn column(id: u32, name: &str, column_type: ColumnType, semantic: Semantic) -> Column {
    Column {
        id: ColumnId(id),
        name: name.to_owned(),
        storage_name: name.to_owned(),
        column_type,
        nullable: semantic != Semantic::TimeIndex,
        semantic,
        default: None,
        generated: None,
        missing: None,
        length: None,
        json: None,
        indexes: Vec::new(),
        comment: None,
    }
}

/// The columns that a table lacks; meta assigns their ids.
fn new_columns(rows: &TableRows) -> Vec<Column> {
    tags_and_fields(&rows.new_tags, &rows.new_fields)
}

/// Columns as line protocol makes them, without ids.
pub(crate) fn tags_and_fields(tags: &[String], fields: &[(String, ColumnType)]) -> Vec<Column> {
    let tags = tags.iter().map(|name| column(0, name, ColumnType::String, Semantic::Tag));
    let fields =
        fields.iter().map(|(name, column_type)| column(0, name, *column_type, Semantic::Field));
    tags.chain(fields).collect()
}

fn new_table(database: &str, owner: RoleId, hints: &Hints, rows: &TableRows) -> NewTable {
    let definition = Definition {
        database,
        name: &rows.name,
        time_column: &hints.time_column,
        tags: &rows.new_tags,
        fields: &rows.new_fields,
        options: TableOptions {
            append_mode: hints.append_mode,
            merge_mode: hints.merge_mode,
            ..TableOptions::default()
        },
        schema_on_write: true,
    };
    definition.into_table(owner)
}

/// A table of line protocol.
pub(crate) struct Definition<'a> {
    pub(crate) database: &'a str,
    pub(crate) name: &'a str,
    pub(crate) time_column: &'a str,
    pub(crate) tags: &'a [String],
    pub(crate) fields: &'a [(String, ColumnType)],
    pub(crate) options: TableOptions,
    /// True if lines may add columns.
    pub(crate) schema_on_write: bool,
}

impl Definition<'_> {
    /// The table, whose key is the tags, then the time.
    pub(crate) fn into_table(self, owner: RoleId) -> NewTable {
        let mut columns = tags_and_fields(self.tags, self.fields);
        let time = ColumnType::Timestamp(Unit::Nanosecond, false);
        let tags = self.tags.len();
        columns.insert(tags, column(0, self.time_column, time, Semantic::TimeIndex));
        let mut next = 1;
        for column in &mut columns {
            column.id = ColumnId(next);
            next += 1;
        }
        let schema = TableSchema {
            version: SchemaVersion(1),
            // Tags by name, then the time, which follows them.
            key: columns[..=tags].iter().map(|column| column.id).collect(),
            columns,
            options: self.options,
            next_column: ColumnId(next),
            schema_on_write: self.schema_on_write,
            checks: Vec::new(),
            view: None,
        };
        NewTable {
            database: self.database.to_owned(),
            name: self.name.to_owned(),
            schema,
            placement: Placement::Range,
            cuts: Vec::new(),
            owner,
            copy_of: None,
            rekeys: false,
            sequences: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;
    use partita_proto::catalog::Catalog;
    use partita_proto::id::BOOTSTRAP_ROLE;
    use partita_proto::schema::MergeMode;

    use super::*;
    use crate::line_protocol::{Precision, ReadOptions, read};

    #[test]
    fn a_new_table_is_keyed_by_its_tags_by_name_then_the_time() {
        let catalog = Catalog::default();
        let options = ReadOptions {
            catalog: &catalog,
            database: "b",
            precision: Precision::Nanosecond,
            now: 0,
            time_column: "time",
            columns_max: 200,
            string_bytes_max: 1000,
        };
        let lines = read("home,room=k,area=x t=1,b=2i 1", &options).unwrap();
        let hints = Hints::of(&HeaderMap::new(), "time").unwrap();
        let table = new_table("b", BOOTSTRAP_ROLE, &hints, &lines.tables[0]);
        table.schema.validate().unwrap();
        let names: Vec<_> = table.schema.columns.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["area", "room", "time", "b", "t"]);
        let key: Vec<_> = table.schema.key_columns().map(|c| c.name.as_str()).collect();
        assert_eq!(key, ["area", "room", "time"]);
        assert_eq!(table.schema.options.merge_mode, MergeMode::LastNonNull);
        assert!(lines.tables[0].fits(&table.schema));
    }

    #[test]
    fn database_names_are_checked() {
        assert!(check_database_name("my-db_1/rp").is_ok());
        assert!(check_database_name("").is_err());
        assert!(check_database_name("a b").is_err());
        assert!(check_database_name(&"x".repeat(65)).is_err());
    }
}
