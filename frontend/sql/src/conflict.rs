//! The clauses after the rows of an INSERT: their grammar, and the change of existing rows as an UPDATE.
//!
//! ```text
//! [ON CONFLICT [(column, ..) | ON CONSTRAINT name] DO {NOTHING | UPDATE SET assignment, .. [WHERE condition]}]
//! [RETURNING item, ..]
//! ```
//!
//! UPSERT is the same: an existing row gets the columns that the statement names.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{Expr, Ident, SelectItem};
use datafusion::sql::sqlparser::tokenizer::Token;
use partita_proto::catalog::Table;

use super::hidden::supply;
use super::identifier::quote;
use super::statement::{ConflictTarget, Insert, OnConflict, Returning, Update};
use super::table_name::TableName;
use super::tokens::Tokens;
use super::update_rows::{from_item, select_of, source};
use super::values::on_duplicate;
use crate::error::SqlError;

/// Name of the row that was to be inserted.
const EXCLUDED: &str = "excluded";
/// SQLSTATE of ON CONFLICT without a constraint that it names.
const NO_CONSTRAINT: &str = "42P10";

/// The clauses after the rows.
#[derive(Default)]
pub(super) struct Clauses {
    pub(super) conflict: Option<OnConflict>,
    pub(super) returning: Option<Returning>,
}

impl Tokens<'_> {
    /// Takes the clauses up to the end of the statement, whose text is `text`.
    pub(super) fn insert_clauses(
        &mut self,
        text: &str,
        table: &TableName,
        alias: Option<&str>,
    ) -> Result<Clauses, SqlError> {
        // A query may have taken ON as the alias of its last column.
        if self.at("duplicate") || self.at("on") && self.at_nth(1, "duplicate") {
            return Err(self.located(on_duplicate()));
        }
        let conflict = match self.take(&["on", "conflict"]) || self.take(&["conflict"]) {
            true => Some(self.conflict(text, table, alias)?),
            false => None,
        };
        let returning = self.returning()?;
        self.expect_end()?;
        Ok(Clauses { conflict, returning })
    }

    fn conflict(
        &mut self,
        text: &str,
        table: &TableName,
        alias: Option<&str>,
    ) -> Result<OnConflict, SqlError> {
        let target = if matches!(self.peek().token, Token::LParen) {
            Some(ConflictTarget::Columns(self.columns()?))
        } else if self.take(&["on", "constraint"]) {
            Some(ConflictTarget::Constraint(self.name("a constraint name")?))
        } else {
            None
        };
        if self.at("where") {
            return Err(self.unsupported("ON CONFLICT (...) WHERE"));
        }
        self.expect("do")?;
        if self.take(&["nothing"]) {
            return Ok(OnConflict { target, update: None });
        }
        if !self.at("update") {
            return Err(self.unexpected("NOTHING or UPDATE"));
        }
        if target.is_none() {
            let message =
                "ON CONFLICT DO UPDATE requires inference specification or constraint name";
            let error = SqlError::syntax(message);
            return Err(self.located(error.with_hint("for example, ON CONFLICT (column_name)")));
        }
        let update = self.conflict_update(text, table, alias)?;
        Ok(OnConflict { target, update: Some(Box::new(update)) })
    }
}

impl OnConflict {
    /// Checks that the clause names the key of the table.
    ///
    /// # Errors
    /// 42P10 or 42704 when the table has no such constraint.
    pub fn check(&self, table: &Table) -> Result<(), SqlError> {
        let schema = &table.schema;
        let has_key = !schema.options.append_mode && !schema.key.is_empty() && !schema.is_keyless();
        match &self.target {
            None => Ok(()),
            Some(ConflictTarget::Columns(columns)) => {
                for column in columns {
                    if schema.column(column).is_none() {
                        return Err(SqlError::undefined_column(column, &table.name));
                    }
                }
                let mut key: Vec<&str> =
                    schema.key_columns().map(|column| column.name.as_str()).collect();
                let mut listed: Vec<&str> = columns.iter().map(String::as_str).collect();
                key.sort_unstable();
                listed.sort_unstable();
                if has_key && key == listed {
                    return Ok(());
                }
                let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
                Err(SqlError::new(NO_CONSTRAINT, message).with_hint(match has_key {
                    true => "name all columns of the key, and no others",
                    false => "the table keeps equal rows",
                }))
            }
            Some(ConflictTarget::Constraint(name)) => {
                if has_key && *name == format!("{}_pkey", table.name) {
                    return Ok(());
                }
                let message =
                    format!("constraint \"{name}\" for table \"{}\" does not exist", table.name);
                Err(SqlError::new("42704", message))
            }
        }
    }
}

impl Update {
    /// The change of rows with the keys of others, which the statement supplies as `excluded`.
    ///
    /// # Errors
    /// Errors of the parser, which do not occur.
    pub fn beside_excluded(&self, table: &Table) -> Result<Self, SqlError> {
        let mut update = self.clone();
        let mut excluded = from_item(table, Some(EXCLUDED))?;
        supply(&mut excluded);
        select_of(&mut update.source)?.from.push(excluded);
        Ok(update)
    }

    /// The condition in SQL that a row has the key of the one that was to be inserted.
    pub fn same_key(&self, table: &Table) -> String {
        let name = quote(self.alias.as_ref().unwrap_or(&table.name));
        let equal = |column: &str| {
            let column = quote(column);
            format!("{name}.{column} IS NOT DISTINCT FROM {EXCLUDED}.{column}")
        };
        let key: Vec<String> =
            table.schema.key_columns().map(|column| equal(&column.name)).collect();
        format!("({})", key.join(" AND "))
    }
}

impl Insert {
    /// UPSERT as an INSERT that changes existing rows: they get the columns that it names. `names` are the columns of its
    /// rows.
    ///
    /// # Errors
    /// Errors of the parser, which do not occur.
    pub fn upsert(&self, table: &Table, names: &[&str]) -> Result<OnConflict, SqlError> {
        let is_key = |name: &str| table.schema.key_columns().any(|column| column.name == name);
        let columns: Vec<String> =
            names.iter().copied().filter(|name| !is_key(name)).map(str::to_owned).collect();
        let excluded = |name: &String| {
            let parts = [EXCLUDED, name.as_str()].map(|part| Ident::with_quote('"', part));
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts.to_vec()))
        };
        let update = Update {
            text: Arc::clone(&self.text),
            table: self.table.clone(),
            alias: self.alias.clone(),
            values: (0..columns.len()).map(Some).collect(),
            source: source(columns.iter().map(excluded).collect(), Vec::new(), None)?,
            columns,
            returning: None,
        };
        Ok(OnConflict { target: None, update: Some(Box::new(update)) })
    }
}
