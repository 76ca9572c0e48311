//! How large rows are.
//!
//! Sizes are of the values, not of the buffers that happen to hold them: a slice of a large batch
//! counts for what it shows.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;

/// The bytes of all values of a batch, roughly.
pub fn batch_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(array_bytes).sum()
}

/// The bytes of all values of an array, roughly.
fn array_bytes(array: &ArrayRef) -> usize {
    let validity = array.len() / 8;
    let values = match array.data_type() {
        DataType::Utf8View => views_bytes(array.as_string_view().views()),
        DataType::BinaryView => views_bytes(array.as_binary_view().views()),
        DataType::Boolean => array.len() / 8,
        DataType::Null => 0,
        other => match other.primitive_width() {
            Some(width) => width * array.len(),
            None => array.to_data().get_slice_memory_size().unwrap_or(0),
        },
    };
    validity + values
}

/// The length of the text or bytes that a view stands for: its lowest four bytes.
pub fn view_length(view: u128) -> usize {
    (view & u128::from(u32::MAX)) as usize
}

fn views_bytes(views: &[u128]) -> usize {
    views.iter().map(|view| size_of::<u128>() + view_length(*view)).sum()
}
