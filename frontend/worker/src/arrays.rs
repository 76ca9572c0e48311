//! Array functions of PostgreSQL that DataFusion lacks.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt64Array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::logical_expr::ScalarUDF;

use crate::bounded::{check_size, check_total};
use crate::error::{NULL_NOT_ALLOWED, SqlError};
use crate::plain::{Plain, Texts, is_whole, wholes};

/// The functions to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [&FILL, &TRIM, &DIMS].into_iter().map(Plain::function)
}

fn is_array(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_))
}

/// Approximate bytes of an element.
const ELEMENT_BYTES: u64 = 16;

/// `array_fill(value, dimensions)`: an array of one repeated value. Only one dimension is supported.
static FILL: Plain = Plain {
    name: "array_fill",
    takes: |types| match types {
        [value, DataType::List(counts)] if is_whole(counts.data_type()) && !is_array(value) => {
            let counts = Arc::new(Field::new_list_field(DataType::Int64, true));
            Some(vec![value.clone(), DataType::List(counts)])
        }
        _ => None,
    },
    gives: |types| {
        let item = types.first().cloned().unwrap_or(DataType::Null);
        DataType::List(Arc::new(Field::new_list_field(item, true)))
    },
    run: |arguments| {
        let counts = arguments[1].as_list::<i32>();
        let (mut indices, mut offsets, mut nulls) = (Vec::new(), vec![0_i32], Vec::new());
        for row in 0..counts.len() {
            let count = if counts.is_null(row) {
                None
            } else {
                let dimensions = counts.value(row);
                let dimensions = dimensions.as_primitive::<Int64Type>();
                match dimensions.len() {
                    0 => Some(0),
                    1 if dimensions.is_null(0) => {
                        let message = "dimension values cannot be null";
                        return Err(SqlError::new(NULL_NOT_ALLOWED, message).into());
                    }
                    1 => Some(dimensions.value(0)),
                    _ => {
                        let feature = "array_fill of more than one dimension";
                        return Err(SqlError::unsupported(feature).into());
                    }
                }
            };
            let elements = u64::try_from(count.unwrap_or(0)).unwrap_or(0);
            check_size("array_fill", elements.saturating_mul(ELEMENT_BYTES))?;
            let total = (indices.len() as u64).saturating_add(elements);
            check_total("array_fill()", counts.len(), total.saturating_mul(ELEMENT_BYTES))?;
            indices.extend((0..elements).map(|_| row as u64));
            offsets.push(i32::try_from(indices.len()).unwrap_or(i32::MAX));
            nulls.push(count.is_some());
        }
        // The repeated value itself may be large.
        let indices = UInt64Array::from(indices);
        let size = arguments[0].get_array_memory_size() as u64 / arguments[0].len().max(1) as u64;
        let size = size.saturating_mul(indices.len() as u64);
        check_total("array_fill()", counts.len(), size)?;
        let values = take(&arguments[0], &indices, None)?;
        let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
        let offsets = OffsetBuffer::new(offsets.into());
        Ok(Arc::new(ListArray::try_new(field, offsets, values, Some(NullBuffer::from(nulls)))?))
    },
};

/// `trim_array(array, n)`: the array without its last n elements.
static TRIM: Plain = Plain {
    name: "trim_array",
    takes: |types| match types {
        [array, count] if is_array(array) && is_whole(count) => {
            Some(vec![array.clone(), DataType::Int64])
        }
        _ => None,
    },
    gives: |types| types.first().cloned().unwrap_or(DataType::Null),
    run: |arguments| {
        let (arrays, counts) = (arguments[0].as_list::<i32>(), wholes(&arguments[1])?);
        let mut indices = Vec::new();
        let (mut offsets, mut nulls) = (vec![0_i32], Vec::with_capacity(arrays.len()));
        for row in 0..arrays.len() {
            let is_null = arrays.is_null(row) || counts.is_null(row);
            if !is_null {
                let (start, end) = (arrays.value_offsets()[row], arrays.value_offsets()[row + 1]);
                let count = i32::try_from(counts.value(row)).ok();
                let count = count.filter(|count| (0..=end - start).contains(count));
                let count = count.ok_or_else(|| {
                    let length = end - start;
                    let message =
                        format!("number of elements to trim must be between 0 and {length}");
                    SqlError::new("2202E", message)
                })?;
                indices.extend((start..end - count).map(|index| u64::try_from(index).unwrap_or(0)));
            }
            offsets.push(i32::try_from(indices.len()).unwrap_or(i32::MAX));
            nulls.push(!is_null);
        }
        let values = take(arrays.values(), &UInt64Array::from(indices), None)?;
        let DataType::List(field) = arrays.data_type() else {
            return Ok(Arc::clone(&arguments[0]));
        };
        let offsets = OffsetBuffer::new(offsets.into());
        let nulls = Some(NullBuffer::from(nulls));
        Ok(Arc::new(ListArray::try_new(Arc::clone(field), offsets, values, nulls)?))
    },
};

/// `array_dims(array)`: the bounds of the dimensions as a text, `[1:2][1:3]`.
static DIMS: Plain = Plain {
    name: "array_dims",
    takes: |types| match types {
        [array] if is_array(array) => Some(vec![array.clone()]),
        [DataType::LargeList(item) | DataType::FixedSizeList(item, _)] => {
            Some(vec![DataType::List(Arc::clone(item))])
        }
        _ => None,
    },
    gives: |_| DataType::Utf8,
    run: |arguments| {
        let mut dimensions = Texts::new("array_dims", arguments[0].len());
        for row in 0..arguments[0].len() {
            let mut text = String::new();
            let mut array: ArrayRef = arguments[0].slice(row, 1);
            while let Some(lists) = array.as_list_opt::<i32>() {
                if lists.is_empty() || lists.is_null(0) {
                    break;
                }
                let inner = lists.value(0);
                if inner.is_empty() {
                    break;
                }
                text.push_str(&format!("[1:{}]", inner.len()));
                array = inner;
            }
            dimensions.push((!text.is_empty()).then_some(text))?;
        }
        Ok(dimensions.finish())
    },
};

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, types::Int32Type};

    use super::*;

    fn shown(of: &ArrayRef) -> String {
        arrow::util::display::array_value_to_string(of, 0).unwrap()
    }

    #[test]
    fn arrays_are_filled_trimmed_and_measured() {
        let list = |values: &[i32]| -> ArrayRef {
            let values = values.iter().copied().map(Some).collect::<Vec<_>>();
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some(values)]))
        };
        let whole = |number: i64| -> ArrayRef { Arc::new(Int64Array::from(vec![number])) };
        let trimmed = (TRIM.run)(&[list(&[1, 2, 3]), whole(1)]).unwrap();
        assert_eq!(shown(&trimmed), "[1, 2]");
        assert!((TRIM.run)(&[list(&[1]), whole(2)]).is_err());
        assert_eq!(shown(&(DIMS.run)(&[list(&[4, 5])]).unwrap()), "[1:2]");
        let counts: ArrayRef =
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(3)])]));
        assert_eq!(shown(&(FILL.run)(&[whole(7), counts]).unwrap()), "[7, 7, 7]");
        let counts: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some(
            vec![Some(2_000_000_000)],
        )]));
        let error = (FILL.run)(&[whole(7), counts]).unwrap_err();
        assert_eq!(SqlError::from(error).sqlstate, "54000");
    }
}
