//! CREATE TABLE of wide tables.
//!
//! ```text
//! CREATE TABLE w WIDE (ROW KEY {STRING | BYTES}) FAMILIES (family [GC (rule)], ..) [clauses of CREATE TABLE]
//! CREATE TABLE w (row_key STRING) WITH (kind = 'wide', families = 'family GC (rule), ..')
//! CREATE TABLE w (five columns) WITH (kind = 'wide', families = '..')
//! ```
//!
//! All forms give the same table. Its rows are kept together, so that no split cuts one.

use datafusion::sql::sqlparser::tokenizer::Token;
use partita_proto::schema::{Column, ColumnType, TableOptions};
use partita_proto::wide::{KEY_COLUMNS, ROW_KEY_COLUMN, columns};

use super::statement::ColumnDefinition;
use super::tokens::Tokens;
use crate::error::SqlError;
use crate::notice::Notice;

impl Tokens<'_> {
    /// Takes `(ROW KEY type)`; the columns of a wide table with such keys.
    pub(super) fn wide_columns(
        &mut self,
        notices: &mut Vec<Notice>,
    ) -> Result<Vec<ColumnDefinition>, SqlError> {
        self.expect_mark(&Token::LParen)?;
        self.expect("row")?;
        self.expect("key")?;
        let position = self.position();
        let row_key = self.column_type(notices)?;
        if !matches!(row_key, ColumnType::String | ColumnType::Binary) {
            let message = format!("a row key must be STRING or BYTES, not {}", row_key.sql());
            return Err(SqlError::new("42P16", message).with_position(position));
        }
        self.expect_mark(&Token::RParen)?;
        Ok(implied(row_key))
    }
}

/// The columns that a type of row keys implies.
fn implied(row_key: ColumnType) -> Vec<ColumnDefinition> {
    let definition = |column: Column| ColumnDefinition {
        name: column.name,
        column_type: column.column_type,
        length: None,
        json: None,
        nullable: Some(false),
        default: column.default,
        generated: None,
        counter: None,
        indexes: Vec::new(),
        comment: None,
    };
    columns(row_key).into_iter().map(definition).collect()
}

/// Completes the definition of a wide table: columns that follow from the row key, the key, NOT NULL, and the options that
/// all wide tables have.
pub(super) fn complete(
    definitions: &mut Vec<ColumnDefinition>,
    primary_key: &mut Option<Vec<String>>,
    options: &mut TableOptions,
) {
    options.wide.get_or_insert_default();
    if options.partitioning.keep_together == 0 {
        options.partitioning.keep_together = 1;
    }
    if let [column] = definitions.as_slice()
        && column.name == ROW_KEY_COLUMN
    {
        *definitions = implied(column.column_type);
    }
    for column in definitions.iter_mut() {
        column.nullable.get_or_insert(false);
    }
    if primary_key.is_none() && definitions.len() > KEY_COLUMNS {
        let key = definitions.iter().take(KEY_COLUMNS).map(|column| column.name.clone());
        *primary_key = Some(key.collect());
    }
}
