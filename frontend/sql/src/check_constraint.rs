//! CHECK constraints of tables: their grammar, their names, and the columns that they use.
//!
//! ```text
//! [CONSTRAINT name] CHECK (condition) [NOT VALID]
//! ```
//!
//! A condition is stored as text, like the expression of a generated column, and has the same parts.

use datafusion::sql::sqlparser::tokenizer::Token;
use partita_proto::schema::Check;

use super::column::columns_within;
use super::statement::{CheckDefinition, ColumnDefinition};
use super::tokens::Tokens;
use crate::error::{SqlError, UNDEFINED_COLUMN};

/// Name of a condition in errors.
const KIND: &str = "a check constraint";

impl Tokens<'_> {
    /// Takes `CHECK (condition)`, after the name. `column` is the column whose definition has it.
    pub(super) fn check_constraint(
        &mut self,
        name: Option<String>,
        column: Option<String>,
    ) -> Result<CheckDefinition, SqlError> {
        self.expect("check")?;
        self.expect_mark(&Token::LParen)?;
        let position = self.position();
        let expression = self.expression()?.to_string();
        self.expect_mark(&Token::RParen)?;
        columns_within(&expression, KIND).map_err(|error| error.with_position(position))?;
        if self.take(&["no", "inherit"]) {
            return Err(self.unsupported("CHECK ... NO INHERIT"));
        }
        if self.at("enforced") || self.at("not") && self.at_nth(1, "enforced") {
            return Err(self.unsupported("CHECK ... ENFORCED"));
        }
        let not_valid = self.take(&["not", "valid"]);
        Ok(CheckDefinition { name, column, expression, not_valid })
    }
}

/// Checks that the columns of a condition exist.
pub(super) fn check_columns(
    definition: &CheckDefinition,
    columns: &[ColumnDefinition],
) -> Result<(), SqlError> {
    for name in columns_within(&definition.expression, KIND)? {
        if !columns.iter().any(|column| column.name == name) {
            let message = format!("column \"{name}\" does not exist");
            return Err(SqlError::new(UNDEFINED_COLUMN, message));
        }
    }
    Ok(())
}

/// The constraint with its name: the given one, or as in PostgreSQL one of the table and the only column.
///
/// # Errors
/// 42710 if another constraint of the table has the name.
pub(super) fn named_check(
    table: &str,
    definition: &CheckDefinition,
    present: &[Check],
) -> Result<Check, SqlError> {
    let is_taken = |name: &str| present.iter().any(|check| check.name == name);
    let expression = definition.expression.clone();
    if let Some(name) = &definition.name {
        if is_taken(name) {
            let message = format!("constraint \"{name}\" for relation \"{table}\" already exists");
            return Err(SqlError::new("42710", message));
        }
        return Ok(Check { name: name.clone(), expression });
    }
    let columns = columns_within(&expression, KIND)?;
    let column = match (&definition.column, columns.as_slice()) {
        (Some(column), _) => Some(column),
        (None, [column]) => Some(column),
        (None, _) => None,
    };
    let stem = match column {
        Some(column) => format!("{table}_{column}_check"),
        None => format!("{table}_check"),
    };
    let mut name = stem.clone();
    let mut number = 0;
    while is_taken(&name) {
        number += 1;
        name = format!("{stem}{number}");
    }
    Ok(Check { name, expression })
}

/// Names of the constraints that use a column.
pub(super) fn using(checks: &[Check], column: &str) -> Result<Vec<String>, SqlError> {
    let mut names = Vec::new();
    for check in checks {
        if columns_within(&check.expression, KIND)?.iter().any(|used| used == column) {
            names.push(check.name.clone());
        }
    }
    Ok(names)
}
