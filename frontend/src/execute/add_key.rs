//! ALTER TABLE ... ADD PRIMARY KEY, of a table without a key: its rows are written to a table with the key.
//!
//! ```text
//!   t ─▶ t$keyed, empty ─▶ all rows of t ─▶ as many rows as t? ─▶ t$keyed takes the place of t, which is dropped
//!                                │ fails          │ no
//!                                └────────────────┴─▶ t$keyed is dropped again, t stays as it was
//! ```
//!
//! Two rows with the same key become one, so the numbers of rows differ then. Nothing locks the table: rows that other
//! sessions write meanwhile are counted before the switch, and the statement fails if their number has changed.
//!
//! Invariant: until meta switches the tables in one step, `t` has all of its rows.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use futures::StreamExt;
use partita_proto::access::{Action, Need, Object, Permit};
use partita_proto::catalog::Table;
use partita_proto::service::{Ddl, TableChange};
use partita_sql::Notice;
use partita_sql::identifier::quote;
use partita_sql::parser;
use partita_sql::show::create_table_sql_unplaced;
use partita_sql::statement::{CreateTable, Insert, InsertSource, Query, Statement, TableName};

use super::create_as::Unfilled;
use super::define::WRONG_OBJECT_TYPE;
use super::query::{Source, Target};
use crate::error::{DUPLICATE_COLUMN, SqlError};
use crate::information::{has_key, key_name};
use crate::output::Output;
use crate::privileges::table_acl;
use crate::session::Session;

const TAG: &str = "ALTER TABLE";
/// SQLSTATE of a definition of a table that contradicts the one it has.
const INVALID_TABLE_DEFINITION: &str = "42P16";
/// SQLSTATE of two rows with the same key.
const UNIQUE_VIOLATION: &str = "23505";
/// SQLSTATE of a statement that can succeed when it is repeated.
const SERIALIZATION_FAILURE: &str = "40001";

impl Session {
    /// Gives a table a key of these columns, whose constraint may have been given a name.
    pub(super) async fn add_key(
        &self,
        table: &Table,
        (columns, constraint): (&[String], Option<&str>),
    ) -> Result<Output, SqlError> {
        self.check_keyable(table, columns)?;
        let create = self.with_key(table, columns)?;
        let catalog = self.catalog();
        let database = catalog.databases.get(&table.database);
        let database = database.ok_or_else(|| SqlError::undefined_table(&table.name))?;
        let needs = [Need::new(Action::Create, Object::Database(Arc::clone(database)))];
        let permit = self.viewer().check(&needs)?;
        let notices = Box::pin(self.make_table(&create, &permit)).await?;
        // The permit was for the database; from here on it is for the new table.
        let catalog = self.catalog();
        let keyed = catalog.table(&table.database, &create.table.name);
        let keyed = keyed.ok_or_else(|| SqlError::undefined_table(&create.table.name))?;
        let ownership = Need::new(Action::Own, self.viewer().object(keyed)?);
        let insertion = Need::new(Action::Insert, self.viewer().object(keyed)?);
        let permit = self.viewer().check(&[ownership, insertion])?;
        let noun = "the new table with the key";
        let mut unfilled = Unfilled::new(self.frontend(), keyed, permit.clone(), noun);
        if let Err(error) = Box::pin(self.fill_keyed(table, keyed, &permit)).await {
            return Err(unfilled.drop_table(error).await);
        }
        let (database, name) = (keyed.database.clone(), keyed.name.clone());
        let change = TableChange::TakePlace(table.id);
        let ddl = Ddl::AlterTable { database, name, change };
        if let Err(error) = self.frontend().change(&permit, ddl).await {
            return Err(unfilled.drop_table(error).await);
        }
        unfilled.keep();
        let mut notices = notices.unwrap_or_default();
        let key = key_name(table);
        if let Some(name) = constraint.filter(|name| *name != key) {
            let message = format!("the constraint is named \"{key}\" instead of \"{name}\"");
            notices.push(Notice::notice(message));
        }
        Ok(Output::done_with(TAG, notices))
    }

    /// Refuses a key for a table that cannot get one.
    fn check_keyable(&self, table: &Table, columns: &[String]) -> Result<(), SqlError> {
        let name = &table.name;
        if table.schema.view.is_some() {
            let message = format!("\"{name}\" is not a table");
            return Err(SqlError::new(WRONG_OBJECT_TYPE, message));
        }
        if has_key(table) {
            let message = format!("multiple primary keys for table \"{name}\" are not allowed");
            return Err(SqlError::new(INVALID_TABLE_DEFINITION, message).with_hint(
                "ALTER TABLE ... PRIMARY KEY (columns) changes the order of the key's columns",
            ));
        }
        if !table.schema.is_keyless() {
            let feature = format!("ADD PRIMARY KEY to append-only table \"{name}\"");
            return Err(SqlError::unsupported(feature));
        }
        if self.viewer().temporary().get(&table.database, name).is_some() {
            let feature = format!("ADD PRIMARY KEY to temporary table \"{name}\"");
            return Err(SqlError::unsupported(feature).with_hint("declare it in CREATE TABLE"));
        }
        if table_acl(self.viewer(), table).is_some() {
            let feature = format!("ADD PRIMARY KEY to table \"{name}\" with granted privileges");
            return Err(SqlError::unsupported(feature)
                .with_hint("revoke them, and grant them again after the change"));
        }
        let mut known = BTreeSet::new();
        for column in columns {
            if !table.schema.shown().any(|present| present.name == *column) {
                return Err(SqlError::undefined_column(column, name));
            }
            if !known.insert(column) {
                let message =
                    format!("column \"{column}\" appears twice in primary key constraint");
                return Err(SqlError::new(DUPLICATE_COLUMN, message));
            }
        }
        Ok(())
    }

    /// The definition of the table with the key: that of the table, under a free name.
    fn with_key(&self, table: &Table, columns: &[String]) -> Result<CreateTable, SqlError> {
        let text = create_table_sql_unplaced(table);
        let Some(Statement::CreateTable(mut create)) = parser::parse(&text)?.pop() else {
            return Err(SqlError::internal("the definition of a table is no CREATE TABLE"));
        };
        let catalog = self.frontend().catalog();
        let is_free = |name: &String| catalog.table(&table.database, name).is_none();
        let first = format!("{}$keyed", table.name);
        let numbered = (2..).map(|number| format!("{}$keyed{number}", table.name));
        let name = std::iter::once(first.clone()).chain(numbered).find(is_free).unwrap_or(first);
        create.table = TableName { database: Some(table.database.clone()), name };
        create.primary_key = Some(columns.to_vec());
        for definition in &mut create.columns {
            if columns.contains(&definition.name) {
                definition.nullable = Some(false);
            }
            // The names of indexes without one would be those of the other table.
            let present = table.schema.column(&definition.name);
            let indexes = present.into_iter().flat_map(|column| &column.indexes);
            definition.indexes =
                indexes.map(|index| (Some(index.name.clone()), index.options)).collect();
        }
        Ok(*create)
    }

    /// Writes all rows of a table to the one with the key.
    async fn fill_keyed(
        &self,
        table: &Table,
        keyed: &Arc<Table>,
        permit: &Permit,
    ) -> Result<(), SqlError> {
        let columns: Vec<_> =
            keyed.schema.shown().filter(|column| column.generated.is_none()).collect();
        let names: Vec<String> =
            columns.iter().map(|column| quote(&column.name).into_owned()).collect();
        let text = format!("SELECT {} FROM {}", names.join(", "), full_name(table));
        let query = query_of(&text)?;
        let target = Target { pinned: Some(table), ..Target::default() };
        let running = Box::pin(self.start(&Source::Statement(&query.statement), target)).await?;
        let insert = Insert {
            text: Arc::from(text),
            position: 0,
            table: TableName { database: Some(keyed.database.clone()), name: keyed.name.clone() },
            columns: None,
            alias: None,
            keeps: false,
            overriding: None,
            source: InsertSource::Query(Box::new(query.clone())),
            conflict: None,
            returning: None,
        };
        let columns = (columns.as_slice(), false);
        let executed =
            self.insert_running(&insert, keyed, columns, (running, None), permit).await?;
        let Output::Done { rows: Some(rows), .. } = executed.output else {
            return Err(SqlError::internal("a table was filled without a count"));
        };
        if self.row_count(keyed).await? != rows {
            let key = key_name(table);
            let message = format!("could not create unique index \"{key}\"");
            return Err(SqlError::new(UNIQUE_VIOLATION, message)
                .with_detail("two rows or more have the same key")
                .with_hint("delete or change the rows with equal keys"));
        }
        if self.row_count(table).await? != rows {
            let message = format!("table \"{}\" was written while it got its key", table.name);
            return Err(SqlError::new(SERIALIZATION_FAILURE, message)
                .with_hint("repeat the statement when no session writes to the table"));
        }
        Ok(())
    }

    /// The number of rows of a table.
    async fn row_count(&self, table: &Table) -> Result<u64, SqlError> {
        let query = query_of(&format!("SELECT count(*) FROM {}", full_name(table)))?;
        // As for a statement that writes: no acknowledged row may be missed.
        let target = Target { pinned: Some(table), ..Target::default() };
        let source = Source::Statement(&query.statement);
        let mut running = Box::pin(self.start(&source, target)).await?;
        let mut count = 0_i64;
        while let Some(batch) = running.stream.next().await {
            let batch = batch?;
            let counts = batch.column(0).as_primitive_opt::<Int64Type>();
            count += counts.map_or(0, |counts| counts.values().iter().sum::<i64>());
        }
        u64::try_from(count).map_err(|_| SqlError::internal("a count below zero"))
    }
}

fn full_name(table: &Table) -> String {
    format!("{}.{}", quote(&table.database), quote(&table.name))
}

/// A query of this file.
fn query_of(text: &str) -> Result<Query, SqlError> {
    match parser::parse(text)?.pop() {
        Some(Statement::Query(query)) => Ok(query),
        _ => Err(SqlError::internal("the query of a primary key is no query")),
    }
}
