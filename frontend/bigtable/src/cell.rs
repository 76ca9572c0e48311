//! Cells and rows as filters and stores know them.
//!
//! Invariant: the cells of a [`Row`] are in the order of [`Cell::position`]: by family, by qualifier, newest first. Only
//! filters make two of them equal in it.

use std::cmp::Reverse;
use std::sync::Arc;

use bytes::Bytes;

/// One version of a column's value in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Family that the column belongs to.
    pub family: Arc<str>,
    /// Name of the column in its family; any bytes.
    pub qualifier: Bytes,
    /// Microseconds since 1970.
    pub timestamp_us: i64,
    /// Stored bytes.
    pub value: Bytes,
    /// Label that a filter gave the cell; stores have none.
    pub label: Option<Arc<str>>,
}

impl Cell {
    /// The place of the cell in its row.
    #[must_use]
    pub fn position(&self) -> (&str, &[u8], Reverse<i64>) {
        (&self.family, &self.qualifier, Reverse(self.timestamp_us))
    }

    /// Bytes that the cell occupies in a message, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.qualifier.len() + self.value.len() + CELL_BYTES
    }
}

/// Bytes of a cell without its qualifier and value, about.
const CELL_BYTES: usize = 32;

/// Cells with one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Row key; any bytes.
    pub key: Bytes,
    /// Sorted cells. Only a row that does not exist has none.
    pub cells: Vec<Cell>,
}
