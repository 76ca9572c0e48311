//! The largest rows of a wide table, by the bytes of their stored cells.
//!
//! The cells of a row follow each other in a file, and a row may have cells in many files: sums are added up, of the
//! [`LARGE_ROWS_MAX`] largest rows. A row that is far from the largest ones may be forgotten between two files; then its
//! sum begins anew, so a sum may be too small, and never too large.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef};

use super::sizes::RowSizes;
use crate::error::Error;
use crate::value::Value;

/// Maximum number of rows that are kept.
pub const LARGE_ROWS_MAX: usize = 32;
/// Bytes of a sum, beside its row key, in messages.
const SUM_BYTES: usize = 32;

/// Stored cells of a row, old versions and garbage included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowSize {
    /// Bytes of all columns of the cells, uncompressed.
    pub bytes: u64,
    /// Number of cells.
    pub cells: u64,
}

/// The largest rows, by row key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LargeRows(BTreeMap<Value, RowSize>);

impl LargeRows {
    /// The rows and their sizes, by row key.
    pub fn iter(&self) -> impl Iterator<Item = (&Value, &RowSize)> {
        self.0.iter()
    }

    /// Adds the cells of a batch in the order of the key, by their row keys and sizes.
    pub(super) fn add_cells(&mut self, row_keys: &ArrayRef, sizes: &RowSizes) -> Result<(), Error> {
        let mut current: Option<(Value, RowSize)> = None;
        for row in 0..row_keys.len() {
            let row_key = Value::from_array(row_keys.as_ref(), row)?;
            let cell = RowSize { bytes: sizes.of_row(row), cells: 1 };
            match &mut current {
                Some((key, size)) if *key == row_key => size.add(cell),
                _ => {
                    if let Some((key, size)) = current.replace((row_key, cell)) {
                        self.add(key, size);
                    }
                }
            }
        }
        if let Some((key, size)) = current {
            self.add(key, size);
        }
        Ok(())
    }

    /// Adds the rows of others.
    pub fn merge(&mut self, other: &Self) {
        for (row_key, size) in &other.0 {
            self.0.entry(row_key.clone()).or_default().add(*size);
        }
        self.shrink(LARGE_ROWS_MAX);
    }

    /// Adds cells of a row.
    pub(crate) fn add(&mut self, row_key: Value, size: RowSize) {
        self.0.entry(row_key).or_default().add(size);
        // Seldom, since it sorts all.
        if self.0.len() > 2 * LARGE_ROWS_MAX {
            self.shrink(LARGE_ROWS_MAX);
        }
    }

    /// Approximate bytes in messages.
    pub(super) fn size_bytes(&self) -> usize {
        let key = |row_key: &Value| match row_key {
            Value::String(text) => text.len(),
            Value::Binary(bytes) => bytes.len(),
            _ => 0,
        };
        self.0.keys().map(|row_key| SUM_BYTES + key(row_key)).sum()
    }

    /// Keeps so many of the largest rows.
    fn shrink(&mut self, rows_max: usize) {
        if self.0.len() <= rows_max {
            return;
        }
        let mut rows: Vec<(Value, RowSize)> = std::mem::take(&mut self.0).into_iter().collect();
        rows.sort_by_key(|(_, size)| Reverse(size.bytes));
        rows.truncate(rows_max);
        self.0 = rows.into_iter().collect();
    }
}

impl RowSize {
    fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.cells = self.cells.saturating_add(other.cells);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BinaryViewArray, StringViewArray};

    use super::*;

    /// Cells of rows, each with a row key of two bytes and a value of some bytes.
    fn added(rows: &mut LargeRows, cells: &[(&str, usize)]) {
        let keys: ArrayRef =
            Arc::new(StringViewArray::from_iter_values(cells.iter().map(|cell| cell.0)));
        let values = cells.iter().map(|cell| vec![7_u8; cell.1]);
        let mut sizes = RowSizes::new(cells.len());
        sizes.add(keys.as_ref());
        sizes.add(&BinaryViewArray::from_iter_values(values));
        rows.add_cells(&keys, &sizes).unwrap();
    }

    fn size_of(rows: &LargeRows, row_key: &str) -> Option<(u64, u64)> {
        let row_key = Value::String(row_key.to_owned());
        rows.iter().find(|(key, _)| **key == row_key).map(|(_, size)| (size.bytes, size.cells))
    }

    #[test]
    fn cells_of_a_row_add_up_over_batches_and_files() {
        let mut rows = LargeRows::default();
        added(&mut rows, &[("r1", 10), ("r1", 0), ("r2", 3)]);
        added(&mut rows, &[("r2", 5)]);
        assert_eq!((size_of(&rows, "r1"), size_of(&rows, "r2")), (Some((14, 2)), Some((12, 2))));
        let mut both = rows.clone();
        both.merge(&rows);
        assert_eq!(size_of(&both, "r1"), Some((28, 4)));
    }

    #[test]
    fn only_the_largest_rows_are_kept() {
        let mut rows = LargeRows::default();
        let names: Vec<String> = (10..99).map(|number| number.to_string()).collect();
        for (position, name) in names.iter().enumerate() {
            added(&mut rows, &[(name.as_str(), 10 * position)]);
        }
        rows.merge(&LargeRows::default());
        assert_eq!(rows.iter().count(), LARGE_ROWS_MAX);
        assert_eq!(size_of(&rows, "98"), Some((882, 1)));
        assert_eq!(size_of(&rows, "10"), None);
    }
}
