//! Size limits of rows, keys and requests.

use arrow::array::{Array, ArrayRef, AsArray, BinaryViewArray, StringViewArray};
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use partita_proto::lists::row_bytes;
use partita_proto::schema::UUID;
use partita_proto::size::{batch_bytes, view_length};
use partita_proto::uuid::UUID_BYTES;

/// Lengths of the texts or byte strings of a column; `None` for columns of fixed width.
fn lengths(array: &ArrayRef) -> Option<Vec<usize>> {
    let views = match array.data_type() {
        DataType::Utf8View => StringViewArray::views(array.as_string_view()),
        DataType::BinaryView => BinaryViewArray::views(array.as_binary_view()),
        _ => return None,
    };
    Some(views.iter().map(|view| view_length(*view)).collect())
}

/// The first row larger than `max` bytes, and its size.
pub(crate) fn oversized_row(batch: &RecordBatch, max: usize) -> Option<(usize, usize)> {
    // Almost every batch is small enough as a whole.
    if batch_bytes(batch) <= max {
        return None;
    }
    row_sizes(batch).into_iter().enumerate().find(|(_, size)| *size > max)
}

/// Number of rows larger than `max` bytes.
pub(crate) fn larger_rows(batch: &RecordBatch, max: usize) -> u64 {
    if batch_bytes(batch) <= max {
        return 0;
    }
    row_sizes(batch).iter().filter(|size| **size > max).count() as u64
}

/// Bytes of the values of each row.
fn row_sizes(batch: &RecordBatch) -> Vec<usize> {
    let mut sizes = vec![0_usize; batch.num_rows()];
    for column in batch.columns() {
        match lengths(column) {
            Some(lengths) => {
                sizes.iter_mut().zip(lengths).for_each(|(size, length)| *size += length);
            }
            None if let Some(lists) = column.as_list_opt::<i32>() => {
                let lengths = row_bytes(lists);
                sizes.iter_mut().zip(lengths).for_each(|(size, length)| *size += length);
            }
            None => {
                let width = match column.data_type() {
                    &UUID => UUID_BYTES,
                    fixed => fixed.primitive_width().unwrap_or(1),
                };
                sizes.iter_mut().for_each(|size| *size += width);
            }
        }
    }
    sizes
}

/// Number of values of a column that are longer than `max` bytes.
pub(crate) fn longer_than(array: &ArrayRef, max: usize) -> u64 {
    lengths(array)
        .map_or(0, |lengths| lengths.iter().filter(|length| **length > max).count() as u64)
}

/// Cuts a batch into slices of at most `max` bytes, or of one row if that alone is larger.
pub(crate) fn slices(batch: RecordBatch, max: usize) -> Vec<RecordBatch> {
    let mut slices = Vec::new();
    let mut stack = vec![batch];
    while let Some(batch) = stack.pop() {
        let rows = batch.num_rows();
        if rows <= 1 || batch_bytes(&batch) <= max {
            slices.push(batch);
            continue;
        }
        let half = rows / 2;
        stack.push(batch.slice(half, rows - half));
        stack.push(batch.slice(0, half));
    }
    slices
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;

    use super::*;

    fn batch(lengths: &[usize]) -> RecordBatch {
        let texts: StringViewArray =
            lengths.iter().map(|length| Some("x".repeat(*length))).collect();
        let numbers = Int64Array::from_iter_values(0..lengths.len() as i64);
        RecordBatch::try_from_iter([
            ("t", Arc::new(texts) as ArrayRef),
            ("n", Arc::new(numbers) as ArrayRef),
        ])
        .unwrap()
    }

    #[test]
    fn slices_keep_every_row_in_order_and_stay_below_the_bound() {
        let whole = batch(&[10, 2000, 30, 5000, 1, 1, 1]);
        let slices = slices(whole.clone(), 3000);
        assert!(slices.iter().all(|slice| slice.num_rows() == 1 || batch_bytes(slice) <= 3000));
        let joined = arrow::compute::concat_batches(&whole.schema(), &slices).unwrap();
        assert_eq!(joined, whole);
    }

    #[test]
    fn the_oversized_row_is_found() {
        let whole = batch(&[10, 2000, 30, 5000]);
        assert_eq!(oversized_row(&whole, 4000), Some((3, 5008)));
        assert_eq!(oversized_row(&whole, 10_000), None);
        assert_eq!([1_000, 4_000, 6_000, 10_000].map(|max| larger_rows(&whole, max)), [2, 1, 0, 0]);
        assert_eq!(longer_than(whole.column(0), 1999), 2);
        assert_eq!(longer_than(whole.column(1), 0), 0);
    }
}
