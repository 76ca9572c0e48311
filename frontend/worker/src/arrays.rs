//! Array functions of PostgreSQL that DataFusion lacks, and those that replace aggregates over ordered sets.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListArray, UInt64Array};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{partition, take};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type};
use datafusion::logical_expr::ScalarUDF;
use partita_proto::size::array_bytes;

use crate::bounded::{check_size, check_total};
use crate::error::{NULL_NOT_ALLOWED, NUMERIC_OUT_OF_RANGE, SqlError};
use crate::interval_order::totals;
use crate::plain::{Plain, Texts, is_number, is_whole, wholes};

/// The functions to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    // All names of DataFusion's function, or it would take the first one back (`renamed.rs`).
    let dimensions = DIMS.function().with_aliases(["list_dims"]);
    let count = NDIMS.function().with_aliases(["list_ndims"]);
    [&FILL, &TRIM, &AT, &MOST].into_iter().map(Plain::function).chain([dimensions, count])
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
        let size = array_bytes(&arguments[0]) as u64 / arguments[0].len().max(1) as u64;
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

/// Types of a function that measures an array.
fn measured(types: &[DataType]) -> Option<Vec<DataType>> {
    match types {
        [array] if is_array(array) => Some(vec![array.clone()]),
        [DataType::LargeList(item) | DataType::FixedSizeList(item, _)] => {
            Some(vec![DataType::List(Arc::clone(item))])
        }
        _ => None,
    }
}

/// Lengths of an array in a row and of its first elements; none of an empty array, which has no dimensions.
fn lengths(arrays: &ArrayRef, row: usize) -> Vec<usize> {
    let mut lengths = Vec::new();
    let mut array: ArrayRef = arrays.slice(row, 1);
    while let Some(lists) = array.as_list_opt::<i32>() {
        if lists.is_empty() || lists.is_null(0) {
            break;
        }
        let inner = lists.value(0);
        if inner.is_empty() {
            break;
        }
        lengths.push(inner.len());
        array = inner;
    }
    lengths
}

/// `array_dims(array)`: the bounds of the dimensions as a text, `[1:2][1:3]`.
static DIMS: Plain = Plain {
    name: "array_dims",
    takes: measured,
    gives: |_| DataType::Utf8,
    run: |arguments| {
        let mut dimensions = Texts::new("array_dims", arguments[0].len());
        for row in 0..arguments[0].len() {
            let lengths = lengths(&arguments[0], row);
            let text: String = lengths.iter().map(|length| format!("[1:{length}]")).collect();
            dimensions.push((!text.is_empty()).then_some(text))?;
        }
        Ok(dimensions.finish())
    },
};

/// `array_ndims(array)`: the number of dimensions.
static NDIMS: Plain = Plain {
    name: "array_ndims",
    takes: measured,
    gives: |_| DataType::Int32,
    run: |arguments| {
        let counts = (0..arguments[0].len()).map(|row| {
            let count = i32::try_from(lengths(&arguments[0], row).len()).ok();
            count.filter(|count| *count > 0)
        });
        Ok(Arc::new(counts.collect::<Int32Array>()))
    },
};

/// Name of the function that is `percentile_disc` of a sorted array; nodes know it too.
pub const AT_FRACTION: &str = "sorted_at_fraction";
/// Name of the function that is `mode` of a sorted array; nodes know it too.
pub const MOST_FREQUENT: &str = "sorted_most_frequent";

fn element(types: &[DataType]) -> DataType {
    match types.first() {
        Some(DataType::List(item)) => item.data_type().clone(),
        _ => DataType::Null,
    }
}

/// `sorted_at_fraction(array, fraction)`: the first element at which this fraction of the array is reached.
static AT: Plain = Plain {
    name: AT_FRACTION,
    takes: |types| match types {
        [array, fraction] if is_array(array) && is_number(fraction) => {
            Some(vec![array.clone(), DataType::Float64])
        }
        _ => None,
    },
    gives: element,
    run: |arguments| {
        let fractions = arguments[1].as_primitive::<Float64Type>();
        chosen(&arguments[0], |row, values| {
            if fractions.is_null(row) {
                return Ok(None);
            }
            let fraction = fractions.value(row);
            if !(0.0..=1.0).contains(&fraction) {
                let message = format!("percentile value {fraction} is not between 0 and 1");
                return Err(SqlError::new(NUMERIC_OUT_OF_RANGE, message));
            }
            let count = u32::try_from(values.len())
                .map_err(|_| SqlError::internal("an array of too many elements"))?;
            let (mut least, mut most) = (1, count);
            while least < most {
                let middle = least + (most - least) / 2;
                if f64::from(middle) >= fraction * f64::from(count) {
                    most = middle;
                } else {
                    least = middle + 1;
                }
            }
            Ok(usize::try_from(least - 1).ok())
        })
    },
};

/// `sorted_most_frequent(array)`: the most frequent element, the first one of several.
static MOST: Plain = Plain {
    name: MOST_FREQUENT,
    takes: |types| match types {
        [array] if is_array(array) => Some(vec![array.clone()]),
        _ => None,
    },
    gives: element,
    run: |arguments| {
        chosen(&arguments[0], |_, values| {
            // Intervals are equal by their lengths: a month is 30 days.
            let keys = match values.data_type() {
                DataType::Interval(_) => totals(values)?,
                _ => Arc::clone(values),
            };
            let mut longest: Range<usize> = 0..0;
            for run in partition(&[keys])?.ranges() {
                if run.len() > longest.len() {
                    longest = run;
                }
            }
            Ok(Some(longest.start))
        })
    },
};

/// The element of each sorted array that a function chooses by its position among those that are not NULL.
fn chosen(
    arrays: &ArrayRef,
    choose: impl Fn(usize, &ArrayRef) -> Result<Option<usize>, SqlError>,
) -> datafusion::error::Result<ArrayRef> {
    let arrays = arrays.as_list::<i32>();
    let mut indices = Vec::with_capacity(arrays.len());
    for row in 0..arrays.len() {
        let mut index = None;
        if !arrays.is_null(row) {
            let values = arrays.value(row);
            // NULLs stand at one end.
            let nulls = values.null_count();
            let start = if nulls > 0 && values.is_null(0) { nulls } else { 0 };
            if nulls < values.len() {
                let position = choose(row, &values.slice(start, values.len() - nulls))?;
                let offset = u64::try_from(arrays.value_offsets()[row]).unwrap_or(0);
                let position = position.and_then(|position| u64::try_from(start + position).ok());
                index = position.map(|position| offset + position);
            }
        }
        indices.push(index);
    }
    Ok(take(arrays.values(), &UInt64Array::from(indices), None)?)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int64Array, types::Int32Type};

    use super::*;

    #[test]
    fn elements_of_sorted_arrays_are_chosen_as_in_postgresql() {
        let arrays: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), Some(2), Some(2), Some(7), None]),
            Some(vec![None, Some(9), Some(8)]),
            Some(vec![None]),
            None,
        ]));
        let at = |fraction: f64| {
            let fractions: ArrayRef = Arc::new(Float64Array::from(vec![fraction; 4]));
            (AT.run)(&[Arc::clone(&arrays), fractions])
        };
        let numbers = |array: &ArrayRef| -> Vec<Option<i32>> {
            array.as_primitive::<Int32Type>().iter().collect()
        };
        for (fraction, expected) in [
            (0.0, [Some(1), Some(9), None, None]),
            (0.25, [Some(1), Some(9), None, None]),
            (0.5, [Some(2), Some(9), None, None]),
            (0.76, [Some(7), Some(8), None, None]),
            (1.0, [Some(7), Some(8), None, None]),
        ] {
            assert_eq!(numbers(&at(fraction).unwrap()), expected, "{fraction}");
        }
        assert_eq!(SqlError::from(at(1.5).unwrap_err()).sqlstate, "22003");
        let most = (MOST.run)(&[arrays]).unwrap();
        assert_eq!(numbers(&most), [Some(2), Some(9), None, None]);
    }

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
        assert_eq!(shown(&(NDIMS.run)(&[list(&[4, 5])]).unwrap()), "1");
        assert!((NDIMS.run)(&[list(&[])]).unwrap().is_null(0));
        let counts: ArrayRef =
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(3)])]));
        assert_eq!(shown(&(FILL.run)(&[whole(7), Arc::clone(&counts)]).unwrap()), "[7, 7, 7]");
        // A value of a large batch is as large as any other.
        let part: ArrayRef = Arc::new(Int64Array::from(vec![7; 10 << 20]).slice(5, 1));
        assert_eq!(shown(&(FILL.run)(&[part, counts]).unwrap()), "[7, 7, 7]");
        let counts: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some(
            vec![Some(2_000_000_000)],
        )]));
        let error = (FILL.run)(&[whole(7), counts]).unwrap_err();
        assert_eq!(SqlError::from(error).sqlstate, "54000");
    }
}
