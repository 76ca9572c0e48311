//! Evaluates domains over columns with Arrow's kernels.
//!
//! A few intervals are compared one by one, a kernel call for each bound; many (an IN list) by binary search row by
//! row. A dictionary is evaluated once per distinct value.

use std::ops::Bound;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Scalar};
use arrow::buffer::BooleanBuffer;
use arrow::compute::kernels::cmp;
use arrow::compute::{SortOptions, cast, take};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use super::{Domain, Interval};
use crate::array::{array_of, arrow_error, column_type_of};
use crate::error::Error;
use crate::schema::ColumnType;
use crate::value::Value;

/// Maximum intervals for kernels: up to here one or two kernel calls for each interval cost less than a search for each
/// row.
const KERNEL_INTERVALS_MAX: usize = 8;

impl Domain {
    /// Mask of the rows that the domain contains. The result has no NULL.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when its bounds are not comparable with the column's type, [`Error::Unsupported`] when
    /// no column of a table has that type.
    pub fn mask(&self, column: &dyn Array) -> Result<BooleanArray, Error> {
        let rows = column.len();
        if self.is_all() || self.is_none() || column.data_type() == &DataType::Null {
            let result = if self.is_none() { false } else { self.null };
            return Ok(constant(rows, result));
        }
        if let Some(dictionary) = column.as_any_dictionary_opt() {
            let distinct = self.mask(dictionary.values().as_ref())?;
            let expanded = take(&distinct, dictionary.keys(), None).map_err(|e| arrow_error(&e))?;
            return Ok(self.settle(expanded.as_boolean().values(), expanded.as_ref()));
        }
        let column_type = column_type_of(column)?;
        let typed = self.typed(column_type)?;
        let converted: ArrayRef;
        let column = if column.data_type() == &column_type.arrow() {
            column
        } else {
            converted = cast(column, &column_type.arrow()).map_err(|e| arrow_error(&e))?;
            converted.as_ref()
        };
        let matches = if typed.intervals.len() <= KERNEL_INTERVALS_MAX {
            by_kernels(&typed.intervals, column, column_type)?
        } else {
            by_search(&typed.intervals, column, column_type)?
        };
        Ok(self.settle(&matches, column))
    }

    /// Sets the result for rows that are NULL in the column.
    fn settle(&self, matches: &BooleanBuffer, column: &dyn Array) -> BooleanArray {
        let matches = match column.nulls() {
            None => matches.clone(),
            Some(nulls) if self.null => matches | &!nulls.inner(),
            Some(nulls) => matches & nulls.inner(),
        };
        BooleanArray::new(matches, None)
    }
}

/// The same result for every row.
pub(crate) fn constant(rows: usize, value: bool) -> BooleanArray {
    let buffer = if value { BooleanBuffer::new_set(rows) } else { BooleanBuffer::new_unset(rows) };
    BooleanArray::new(buffer, None)
}

/// Mask of the rows in the intervals, by kernels. The result for NULLs is meaningless.
fn by_kernels(
    intervals: &[Interval],
    column: &dyn Array,
    column_type: ColumnType,
) -> Result<BooleanBuffer, Error> {
    type Kernel = fn(&dyn arrow::array::Datum, &dyn arrow::array::Datum) -> Compared;
    type Compared = Result<BooleanArray, ArrowError>;
    let compare = |kernel: Kernel, value: &Value| -> Result<BooleanBuffer, Error> {
        let scalar = Scalar::new(array_of(column_type, std::slice::from_ref(value))?);
        let (values, _) = kernel(&column, &scalar).map_err(|e| arrow_error(&e))?.into_parts();
        Ok(values)
    };
    // The union over all intervals; a single value is one comparison, any other interval the conjunction of its bounds.
    let mut matches: Option<BooleanBuffer> = None;
    for interval in intervals {
        let low = match &interval.low {
            Bound::Unbounded => None,
            Bound::Included(low) if matches!(&interval.high, Bound::Included(h) if h == low) => {
                matches = either(matches, compare(cmp::eq, low)?);
                continue;
            }
            Bound::Included(low) => Some(compare(cmp::gt_eq, low)?),
            Bound::Excluded(low) => Some(compare(cmp::gt, low)?),
        };
        let high = match &interval.high {
            Bound::Unbounded => None,
            Bound::Included(high) => Some(compare(cmp::lt_eq, high)?),
            Bound::Excluded(high) => Some(compare(cmp::lt, high)?),
        };
        let interval_mask = match (low, high) {
            (Some(low), Some(high)) => &low & &high,
            (Some(mask), None) | (None, Some(mask)) => mask,
            (None, None) => BooleanBuffer::new_set(column.len()),
        };
        matches = either(matches, interval_mask);
    }
    Ok(matches.unwrap_or_else(|| BooleanBuffer::new_unset(column.len())))
}

fn either(accumulated: Option<BooleanBuffer>, mask: BooleanBuffer) -> Option<BooleanBuffer> {
    Some(match accumulated {
        Some(accumulated) => &accumulated | &mask,
        None => mask,
    })
}

/// Mask of the rows in the intervals, by binary search. The result for NULLs is meaningless.
fn by_search(
    intervals: &[Interval],
    column: &dyn Array,
    column_type: ColumnType,
) -> Result<BooleanBuffer, Error> {
    let bounds = |bound: fn(&Interval) -> &Bound<Value>| -> Result<ArrayRef, Error> {
        let values = intervals.iter().map(|interval| match bound(interval) {
            Bound::Unbounded => Value::Null,
            Bound::Included(value) | Bound::Excluded(value) => value.clone(),
        });
        array_of(column_type, &values.collect::<Vec<_>>())
    };
    let (lows, highs) = (bounds(|i| &i.low)?, bounds(|i| &i.high)?);
    let comparator = |bounds: &ArrayRef| {
        arrow::array::make_comparator(column, bounds.as_ref(), SortOptions::default())
            .map_err(|e| arrow_error(&e))
    };
    let (to_low, to_high) = (comparator(&lows)?, comparator(&highs)?);
    let positions: Vec<usize> = (0..intervals.len()).collect();
    Ok(BooleanBuffer::collect_bool(column.len(), |row| {
        if column.is_null(row) {
            return false;
        }
        // The last interval that begins at or before the row's value.
        let end = positions.partition_point(|&position| match intervals[position].low {
            Bound::Unbounded => true,
            Bound::Included(_) => to_low(row, position).is_ge(),
            Bound::Excluded(_) => to_low(row, position).is_gt(),
        });
        end > 0
            && match intervals[end - 1].high {
                Bound::Unbounded => true,
                Bound::Included(_) => to_high(row, end - 1).is_le(),
                Bound::Excluded(_) => to_high(row, end - 1).is_lt(),
            }
    }))
}
