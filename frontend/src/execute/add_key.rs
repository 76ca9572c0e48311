//! ALTER TABLE ... ADD PRIMARY KEY, of a table without a key: a copy with the key takes its place.
//!
//! The copy is made, filled and switched as `frontend/src/copies/first_key.rs` says; the statement waits for that. The
//! table keeps its id, and with it rights, sequences and views.

use std::collections::BTreeSet;

use partita_proto::access::Permit;
use partita_proto::catalog::Table;
use partita_proto::materialized::with_first_key;
use partita_proto::placement::Placement;
use partita_proto::service::{Ddl, NewTable};
use partita_sql::Notice;

use super::define::WRONG_OBJECT_TYPE;
use crate::copies::first_key::Unkeyed;
use crate::error::{DUPLICATE_COLUMN, SqlError};
use crate::information::{has_key, key_name};
use crate::output::Output;
use crate::session::Session;

const TAG: &str = "ALTER TABLE";
/// SQLSTATE of a definition of a table that contradicts the one it has.
const INVALID_TABLE_DEFINITION: &str = "42P16";
/// SQLSTATE of two rows with the same key.
const UNIQUE_VIOLATION: &str = "23505";
/// SQLSTATE of a statement that can succeed when it is repeated.
const SERIALIZATION_FAILURE: &str = "40001";

impl Session {
    /// Gives a table a key of these columns, whose constraint may have been given a name. `permit` covers the table.
    pub(super) async fn add_key(
        &self,
        table: &Table,
        (columns, constraint): (&[String], Option<&str>),
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        self.check_keyable(table, columns)?;
        let key = key_name(table);
        // The second time, writers wait.
        for closes_first in [false, true] {
            match self.try_add_key(table, columns, closes_first, permit).await {
                Ok(()) => {
                    let mut notices = Vec::new();
                    if let Some(name) = constraint.filter(|name| *name != key) {
                        let message =
                            format!("the constraint is named \"{key}\" instead of \"{name}\"");
                        notices.push(Notice::notice(message));
                    }
                    return Ok(Output::done_with(TAG, notices));
                }
                Err(Unkeyed::Changed) => {}
                Err(Unkeyed::Duplicate) => {
                    let message = format!("could not create unique index \"{key}\"");
                    return Err(SqlError::new(UNIQUE_VIOLATION, message)
                        .with_detail("two rows or more have the same key")
                        .with_hint("delete or change the rows with equal keys"));
                }
                Err(Unkeyed::Failed(error)) => return Err(error),
            }
        }
        let message = format!("table \"{}\" was changed while it got its key", table.name);
        Err(SqlError::new(SERIALIZATION_FAILURE, message)
            .with_hint("repeat the statement when fewer sessions write to the table"))
    }

    /// Makes the copy with the key, and has it take the table's place.
    async fn try_add_key(
        &self,
        table: &Table,
        columns: &[String],
        closes_first: bool,
        permit: &Permit,
    ) -> Result<(), Unkeyed> {
        let newest = self.frontend().catalog().table_by_id(table.id).cloned();
        let newest = newest.ok_or_else(|| SqlError::undefined_table(&table.name))?;
        let new = self.with_key(&newest, columns)?;
        let name = new.name.clone();
        let create = Ddl::CreateTable { table: Box::new(new), if_not_exists: false };
        self.frontend().change(permit, create).await?;
        let copy = self.frontend().catalog().table(&table.database, &name).cloned();
        let copy = copy.ok_or(Unkeyed::Changed)?;
        Box::pin(self.frontend().copies().add_first_key(&copy, closes_first)).await
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
        let mut names = BTreeSet::new();
        for column in columns {
            if !table.schema.shown().any(|present| present.name == *column) {
                return Err(SqlError::undefined_column(column, name));
            }
            if !names.insert(column) {
                let message =
                    format!("column \"{column}\" appears twice in primary key constraint");
                return Err(SqlError::new(DUPLICATE_COLUMN, message));
            }
        }
        Ok(())
    }

    /// The table with the key: the columns of the other one, under a free name.
    fn with_key(&self, table: &Table, columns: &[String]) -> Result<NewTable, SqlError> {
        let id = |name: &String| {
            let column = table.schema.column(name).map(|column| column.id);
            column.ok_or_else(|| SqlError::undefined_column(name, &table.name))
        };
        let key = columns.iter().map(id).collect::<Result<Vec<_>, SqlError>>()?;
        let schema = with_first_key(&table.schema, &key);
        schema.validate()?;
        Ok(NewTable {
            database: table.database.clone(),
            name: self.rekeyed_name(table),
            schema,
            placement: Placement::Range,
            cuts: Vec::new(),
            owner: table.owner,
            copy_of: Some(table.id),
            rekeys: true,
            sequences: Vec::new(),
        })
    }
}
