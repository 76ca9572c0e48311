//! Sizes of rows.
//!
//! They are sizes of the values, not of the buffers that hold them: a slice of a large batch counts only its own part.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;

use crate::lists::own_values;
use crate::schema::UUID;
use crate::uuid::UUID_BYTES;

/// Approximate bytes of all values of a batch.
pub fn batch_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(array_bytes).sum()
}

/// Approximate bytes of all values of an array.
pub fn array_bytes(array: &ArrayRef) -> usize {
    let validity = array.len() / 8;
    let values = match array.data_type() {
        DataType::Utf8View => views_bytes(array.as_string_view().views()),
        DataType::BinaryView => views_bytes(array.as_binary_view().views()),
        &UUID => UUID_BYTES * array.len(),
        DataType::List(_) => {
            let values = own_values(array.as_list::<i32>());
            size_of::<i32>() * array.len() + array_bytes(&values)
        }
        DataType::Boolean => array.len() / 8,
        DataType::Null => 0,
        data_type => match data_type.primitive_width() {
            Some(width) => width * array.len(),
            None => array.to_data().get_slice_memory_size().unwrap_or(0),
        },
    };
    validity + values
}

/// Length of a view's text or bytes: its lowest four bytes.
pub fn view_length(view: u128) -> usize {
    (view & u128::from(u32::MAX)) as usize
}

fn views_bytes(views: &[u128]) -> usize {
    views.iter().map(|view| size_of::<u128>() + view_length(*view)).sum()
}
