//! The lists of Arrow that columns of arrays have: their own elements, and sizes.
//!
//! A slice of lists keeps all elements of the whole; what is sent, kept or counted is only those of its own rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::DataType;

use crate::array::arrow_error;
use crate::error::Error;
use crate::schema::UUID;
use crate::size::view_length;
use crate::uuid::UUID_BYTES;

/// Bytes by which an element counts more than its value: an array of NULLs has a size too.
const PLACE_BYTES: usize = 1;

/// The elements from that of the first row to that of the last.
pub(crate) fn own_values(lists: &ListArray) -> ArrayRef {
    let offsets = lists.value_offsets();
    let at = |offset: Option<&i32>| offset.map_or(0, |offset| position(*offset));
    let (first, last) = (at(offsets.first()), at(offsets.last()));
    lists.values().slice(first, last - first)
}

/// The same lists over elements of their own, whose texts lie in no memory of others.
///
/// # Errors
/// Internal errors of Arrow, which do not occur.
pub fn gathered(lists: &ListArray) -> Result<ArrayRef, Error> {
    let DataType::List(item) = lists.data_type() else {
        return Err(Error::Internal("a list without a type of its elements".to_owned()));
    };
    let values = own_values(lists);
    let values = match values.data_type() {
        DataType::Utf8View => Arc::new(values.as_string_view().gc()) as ArrayRef,
        _ => values,
    };
    let offsets = OffsetBuffer::from_lengths(lists.offsets().lengths());
    ListArray::try_new(Arc::clone(item), offsets, values, lists.nulls().cloned())
        .map(|lists| Arc::new(lists) as ArrayRef)
        .map_err(|error| arrow_error(&error))
}

/// Bytes of the value of each row; NULL has none.
pub fn row_bytes(lists: &ListArray) -> Vec<usize> {
    let values = lists.values();
    let width = match values.data_type() {
        &UUID => UUID_BYTES,
        other => other.primitive_width().unwrap_or(1),
    };
    let views = values.as_string_view_opt().map(|texts| &texts.views()[..]);
    let bytes = |row: usize| {
        let offsets = lists.value_offsets();
        let range = position(offsets[row])..position(offsets[row + 1]);
        let count = range.len();
        let content = match views {
            Some(views) => views[range].iter().map(|view| view_length(*view)).sum(),
            None => width * count,
        };
        if lists.is_null(row) { 0 } else { content + PLACE_BYTES * count }
    };
    (0..lists.len()).map(bytes).collect()
}

/// An offset, which is never negative.
fn position(offset: i32) -> usize {
    usize::try_from(offset).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, StringViewArray};
    use arrow::buffer::NullBuffer;

    use super::*;
    use crate::element::Element;
    use crate::size::array_bytes;

    fn lists(element: Element, values: ArrayRef, lengths: [usize; 4]) -> ListArray {
        let nulls = NullBuffer::from(vec![true, true, false, true]);
        let offsets = OffsetBuffer::from_lengths(lengths);
        ListArray::new(Arc::new(element.field()), offsets, values, Some(nulls))
    }

    #[test]
    fn a_slice_has_the_elements_and_the_bytes_of_its_rows() {
        let texts = StringViewArray::from(vec![
            Some("a text of more than twelve bytes"),
            None,
            Some("b"),
            Some("behind a NULL"),
            Some("cc"),
        ]);
        let whole = lists(Element::String, Arc::new(texts), [1, 2, 1, 1]);
        assert_eq!(row_bytes(&whole), [33, 3, 0, 3]);
        let slice = whole.slice(1, 3);
        assert_eq!(row_bytes(&slice), [3, 0, 3]);
        assert_eq!(own_values(&slice).len(), 4);
        let own = gathered(&slice).unwrap();
        assert_eq!(own.as_list::<i32>(), &slice);
        assert_eq!(own.as_list::<i32>().values().len(), 4);
        let (slice, whole): (ArrayRef, ArrayRef) = (Arc::new(slice), Arc::new(whole));
        assert!(array_bytes(&slice) + 32 <= array_bytes(&whole));
    }

    #[test]
    fn numbers_count_by_their_width() {
        let numbers = Int32Array::from(vec![Some(1), None, Some(3)]);
        let whole = lists(Element::Int32, Arc::new(numbers), [2, 0, 0, 1]);
        assert_eq!(row_bytes(&whole), [10, 0, 0, 5]);
        assert_eq!(row_bytes(&whole.slice(0, 0)), [0; 0]);
        assert_eq!(gathered(&whole.slice(0, 0)).unwrap().len(), 0);
    }
}
