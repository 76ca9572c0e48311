//! Another type for a column that exists, and the end of its NOT NULL: the grammar, and the changes that are sent to meta.
//!
//! ```text
//! ALTER [COLUMN] column [SET DATA] TYPE type [USING {column | column::type | CAST(column AS type)}]
//! MODIFY [COLUMN] column type [NULL | NOT NULL]
//! ```
//!
//! Stored rows stay as they are, so only types of which their values are values too can follow
//! ([`check_type_change`]).

use datafusion::sql::sqlparser::tokenizer::Token;
use partita_proto::catalog::Table;
use partita_proto::retype::check_type_change;
use partita_proto::schema::{Column, TableSchema};
use partita_proto::service::TableChange;

use super::statement::TypeChange;
use super::tokens::Tokens;
use super::types::Declared;
use crate::error::SqlError;
use crate::notice::Notice;

/// SQLSTATE of a change that does not fit the key.
const INVALID_TABLE_DEFINITION: &str = "42P16";
/// Hint of a change of a column's type that is not supported.
pub(super) const TYPE_HINT: &str = "create a table with the other type by CREATE TABLE, and copy the rows: INSERT INTO new \
                                    SELECT ..., CAST(column AS type) FROM old";

impl Tokens<'_> {
    /// Takes what follows TYPE.
    pub(super) fn new_type(
        &mut self,
        column: String,
        notices: &mut Vec<Notice>,
    ) -> Result<TypeChange, SqlError> {
        let Declared { column_type, length, json } = self.declared_type(notices)?;
        let change = TypeChange { column, column_type, length, json, nullable: None };
        let refused = self.unsupported("ALTER COLUMN ... TYPE ... USING another value");
        if self.take(&["using"]) {
            let is_plain = self.plain_value(&change, notices).unwrap_or_default();
            if !is_plain || !matches!(self.peek().token, Token::EOF | Token::Comma) {
                return Err(refused.with_hint(TYPE_HINT));
            }
        }
        Ok(change)
    }

    /// Takes what follows MODIFY COLUMN and a column's name.
    pub(super) fn modified_type(
        &mut self,
        column: String,
        notices: &mut Vec<Notice>,
    ) -> Result<TypeChange, SqlError> {
        let Declared { column_type, length, json } = self.declared_type(notices)?;
        let nullable = if self.take(&["not", "null"]) {
            Some(false)
        } else {
            self.take(&["null"]).then_some(true)
        };
        Ok(TypeChange { column, column_type, length, json, nullable })
    }

    /// Takes the value of USING; true if it is the column, with a cast to its new type or without.
    fn plain_value(
        &mut self,
        change: &TypeChange,
        notices: &mut Vec<Notice>,
    ) -> Result<bool, SqlError> {
        let is_call = self.at("cast") && matches!(self.peek_nth(1).token, Token::LParen);
        if is_call {
            self.next();
            self.next();
        }
        let mut is_plain = self.name("a column name")? == change.column;
        let is_cast = match is_call {
            true => {
                self.expect("as")?;
                true
            }
            false => self.take_mark(&Token::DoubleColon),
        };
        if is_cast {
            let Declared { column_type, length, json } = self.declared_type(notices)?;
            is_plain &=
                (column_type, length, json) == (change.column_type, change.length, change.json);
        }
        if is_call {
            self.expect_mark(&Token::RParen)?;
        }
        Ok(is_plain)
    }
}

impl TypeChange {
    /// The changes for meta; none if the column has the type.
    ///
    /// # Errors
    /// 0A000 for a type that not all values of the column have, and for NOT NULL where there was none.
    pub(super) fn to_changes(
        &self,
        table: &Table,
        existing: &Column,
    ) -> Result<Vec<TableChange>, SqlError> {
        let mut changes = Vec::new();
        match self.nullable {
            Some(false) if existing.nullable => {
                return Err(SqlError::unsupported("ALTER COLUMN ... SET NOT NULL"));
            }
            Some(true) => changes.extend(drop_not_null(existing, &table.schema)?),
            Some(false) | None => {}
        }
        let (column_type, length) = (self.column_type, self.length);
        if (column_type, length, self.json)
            == (existing.column_type, existing.length, existing.json)
        {
            return Ok(changes);
        }
        if let Some(json) = self.json {
            let (name, old_type) = (&existing.name, existing.type_sql());
            return Err(SqlError::unsupported(format!(
                "changing the type of column \"{name}\" from {old_type} to {}",
                json.sql()
            ))
            .with_hint(TYPE_HINT));
        }
        check_type_change(&table.schema, &table.placement, existing, (column_type, length))?;
        changes.push(TableChange::SetType { column: self.column.clone(), column_type, length });
        Ok(changes)
    }
}

/// The change by which a column may be NULL; `None` if it may.
///
/// # Errors
/// 42P16 for a column of the key.
pub(super) fn drop_not_null(
    column: &Column,
    schema: &TableSchema,
) -> Result<Option<TableChange>, SqlError> {
    if column.nullable {
        return Ok(None);
    }
    if schema.is_key(column.id) {
        let message = format!("column \"{}\" is in a primary key", column.name);
        return Err(SqlError::new(INVALID_TABLE_DEFINITION, message));
    }
    Ok(Some(TableChange::DropNotNull(column.name.clone())))
}
