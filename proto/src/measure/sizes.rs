//! Sizes of the rows of a batch: the bytes of their values, uncompressed. NULL has none.

use arrow::array::{Array, AsArray, GenericByteViewArray};
use arrow::datatypes::{BinaryViewType, ByteViewType, DataType, StringViewType};

use crate::lists::row_bytes;
use crate::schema::UUID;
use crate::uuid::UUID_BYTES;

/// Sizes of the rows of a batch.
pub(super) struct RowSizes {
    /// Bytes that every row has.
    common: u64,
    /// Further bytes of each row.
    rows: Vec<u64>,
}

impl RowSizes {
    /// Sizes of so many rows without a column.
    pub(super) fn new(count: usize) -> Self {
        Self { common: 0, rows: vec![0; count] }
    }

    /// Adds the values of a column.
    pub(super) fn add(&mut self, array: &dyn Array) {
        match array.data_type() {
            DataType::Utf8View => self.add_texts(array.as_byte_view::<StringViewType>()),
            DataType::BinaryView => self.add_texts(array.as_byte_view::<BinaryViewType>()),
            &UUID => self.add_fixed(array, UUID_BYTES as u64),
            DataType::List(_) => {
                let sizes = row_bytes(array.as_list::<i32>());
                self.rows.iter_mut().zip(sizes).for_each(|(size, bytes)| *size += bytes as u64);
            }
            // A Boolean counts as a byte.
            other => self.add_fixed(array, other.primitive_width().unwrap_or(1) as u64),
        }
    }

    fn add_texts<T: ByteViewType>(&mut self, array: &GenericByteViewArray<T>) {
        for (row, (size, length)) in self.rows.iter_mut().zip(array.lengths()).enumerate() {
            if array.is_valid(row) {
                *size += u64::from(length);
            }
        }
    }

    fn add_fixed(&mut self, array: &dyn Array, width: u64) {
        if array.null_count() == 0 {
            self.common += width;
            return;
        }
        for (row, size) in self.rows.iter_mut().enumerate() {
            if array.is_valid(row) {
                *size += width;
            }
        }
    }

    /// Size of a row.
    pub(super) fn of_row(&self, row: usize) -> u64 {
        self.common + self.rows.get(row).copied().unwrap_or_default()
    }

    /// Size of the largest row; 0 without rows.
    pub(super) fn largest(&self) -> u64 {
        self.rows.iter().max().map_or(0, |size| self.common + size)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{BinaryViewArray, BooleanArray, Int32Array, StringViewArray};

    use super::*;

    #[test]
    fn the_largest_row_is_that_of_the_most_bytes() {
        let mut sizes = RowSizes::new(3);
        assert_eq!(sizes.largest(), 0);
        sizes.add(&Int32Array::from(vec![1, 2, 3]));
        assert_eq!(sizes.largest(), 4);
        sizes.add(&BooleanArray::from(vec![None, Some(true), None]));
        assert_eq!(sizes.largest(), 5);
        let texts: StringViewArray =
            [Some("a text of some bytes"), None, Some("short")].into_iter().collect();
        sizes.add(&texts);
        assert_eq!(sizes.largest(), 24);
        sizes.add(&BinaryViewArray::from_iter_values([[7_u8; 40]; 3]));
        assert_eq!(sizes.largest(), 64);
        assert_eq!(RowSizes::new(0).largest(), 0);
    }
}
