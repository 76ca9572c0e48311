//! `(start, end) OVERLAPS (start, end)` of times; an end may be NULL.
//!
//! A period begins at the earlier of its ends, inclusive, and ends at the later one, exclusive; if both are equal, it
//! is that time. With a NULL end the result is NULL unless the other three ends decide it.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use crate::plain::{Plain, is_text};

/// The function to register.
pub(crate) fn function() -> ScalarUDF {
    OVERLAPS.function()
}

static OVERLAPS: Plain = Plain {
    name: "overlaps",
    takes: |types| {
        let is_time =
            |data_type: &DataType| matches!(data_type, DataType::Timestamp(..) | DataType::Date32);
        let is_zoned = |data_type: &DataType| matches!(data_type, DataType::Timestamp(_, Some(_)));
        let fits = |data_type: &DataType| is_time(data_type) || is_text(data_type);
        if types.len() != 4 || !types.iter().all(fits) || !types.iter().any(is_time) {
            return None;
        }
        let zone = types.iter().any(is_zoned).then(|| Arc::from("UTC"));
        Some(vec![DataType::Timestamp(TimeUnit::Microsecond, zone); 4])
    },
    gives: |_| DataType::Boolean,
    run: |arguments| {
        let ticks = arguments.iter().map(|argument| -> Result<Int64Array> {
            let ticks = cast(argument, &DataType::Int64)?;
            Ok(ticks.as_primitive::<Int64Type>().clone())
        });
        let ticks: Vec<Int64Array> = ticks.collect::<Result<_>>()?;
        let rows = ticks.first().map_or(0, Array::len);
        let tick = |end: usize, row: usize| ticks[end].is_valid(row).then(|| ticks[end].value(row));
        let overlap =
            |row: usize| overlap((tick(0, row), tick(1, row)), (tick(2, row), tick(3, row)));
        Ok(Arc::new((0..rows).map(overlap).collect::<BooleanArray>()))
    },
};

type Ends = (Option<i64>, Option<i64>);

/// The ends of a period in order, the earlier one known; `None` if both are NULL.
fn in_order(ends: Ends) -> Option<(i64, Option<i64>)> {
    match ends {
        (None, None) => None,
        (Some(end), None) | (None, Some(end)) => Some((end, None)),
        (Some(start), Some(end)) => Some((start.min(end), Some(start.max(end)))),
    }
}

/// Returns true if two periods have a time in common; `None` if NULL ends leave that open.
fn overlap(first: Ends, second: Ends) -> Option<bool> {
    let (first, second) = (in_order(first)?, in_order(second)?);
    if first.0 == second.0 {
        return (first.1.is_some() && second.1.is_some()).then_some(true);
    }
    let (leading, trailing) = if first.0 < second.0 { (first, second) } else { (second, first) };
    if trailing.0 < leading.1? {
        return Some(true);
    }
    trailing.1.map(|_| false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_overlap_as_in_postgresql() {
        let some = |start, end| (Some(start), Some(end));
        for (one, other, expected) in [
            (some(1, 3), some(2, 4), Some(true)),
            (some(1, 3), some(3, 4), Some(false)),
            (some(3, 1), some(4, 2), Some(true)),
            (some(1, 1), some(1, 1), Some(true)),
            (some(1, 1), some(1, 5), Some(true)),
            (some(5, 5), some(1, 5), Some(false)),
            ((Some(1), None), some(1, 2), None),
            ((None, Some(2)), some(1, 3), Some(true)),
            ((Some(1), None), some(2, 3), None),
            (some(1, 2), (Some(3), None), None),
            (some(1, 5), (Some(3), None), Some(true)),
            ((None, None), some(1, 2), None),
        ] {
            assert_eq!(overlap(one, other), expected, "{one:?} {other:?}");
            assert_eq!(overlap(other, one), expected, "{other:?} {one:?}");
        }
    }
}
