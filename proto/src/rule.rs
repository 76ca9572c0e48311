//! Partition expressions.

use serde::{Deserialize, Serialize};

use crate::id::ColumnId;
use crate::value::Value;

/// A comparison operator of a partition expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`, `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// A boolean expression over columns and literals. NULL sorts before every value, as in the key:
/// `a < 1` is true of NULL, `a >= 1` is not, so that rules can cover every row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rule {
    /// `column op literal`; the literal is of the column's type and not NULL.
    Compare {
        /// The column.
        column: ColumnId,
        /// The operator.
        comparison: Comparison,
        /// The literal.
        value: Value,
    },
    /// All of them (an empty one is true).
    And(Vec<Rule>),
    /// Any of them (an empty one is false).
    Or(Vec<Rule>),
}
