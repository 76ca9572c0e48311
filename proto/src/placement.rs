//! How a row finds its place in a table's key space: the function from row to placement.

use serde::{Deserialize, Serialize};

use crate::id::ColumnId;
use crate::rule::Rule;

/// A table's scheme. The placement is the first part of every key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// Nothing: the key space is the primary key's.
    Range,
    /// A u16 bucket: the top 16 bits of [`crate::hash`] over these columns.
    Hash {
        /// The hashed columns, in order.
        columns: Vec<ColumnId>,
    },
    /// A u16: the number of the one rule that the row satisfies.
    Rules {
        /// The columns that the rules may name.
        columns: Vec<ColumnId>,
        /// Together they cover every row exactly once.
        rules: Vec<Rule>,
    },
}
