//! `(start, end) OVERLAPS (start, end)` of times, of which one end may be NULL.
//!
//! A period is from the earlier of its ends, which belongs to it, to the later one, which does not; one of a single time is
//! that time. Where an end is NULL the answer is known only if the other three decide it.

use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::error::Result;
use datafusion::logical_expr::ScalarUDF;

use crate::plain::{Plain, is_text};

/// The function.
pub(crate) fn function() -> ScalarUDF {
    OVERLAPS.function()
}

static OVERLAPS: Plain = Plain {
    name: "overlaps",
    takes: |of| {
        let is_time = |of: &DataType| matches!(of, DataType::Timestamp(..) | DataType::Date32);
        let is_zoned = |of: &DataType| matches!(of, DataType::Timestamp(_, Some(_)));
        let fits = |of: &DataType| is_time(of) || is_text(of);
        if of.len() != 4 || !of.iter().all(fits) || !of.iter().any(is_time) {
            return None;
        }
        let zone = of.iter().any(is_zoned).then(|| Arc::from("UTC"));
        Some(vec![DataType::Timestamp(TimeUnit::Microsecond, zone); 4])
    },
    gives: |_| DataType::Boolean,
    run: |of| {
        let ticks = of.iter().map(|of| -> Result<Int64Array> {
            let ticks = cast(of, &DataType::Int64)?;
            Ok(ticks.as_primitive::<Int64Type>().clone())
        });
        let ticks: Vec<Int64Array> = ticks.collect::<Result<_>>()?;
        let rows = ticks.first().map_or(0, Array::len);
        let at = |end: usize, row: usize| ticks[end].is_valid(row).then(|| ticks[end].value(row));
        let overlap = |row: usize| overlap((at(0, row), at(1, row)), (at(2, row), at(3, row)));
        Ok(Arc::new((0..rows).map(overlap).collect::<BooleanArray>()))
    },
};

type Ends = (Option<i64>, Option<i64>);

/// The earlier end of a period, which is known, and the later one; `None` when neither is known.
fn in_order(ends: Ends) -> Option<(i64, Option<i64>)> {
    match ends {
        (None, None) => None,
        (Some(one), None) | (None, Some(one)) => Some((one, None)),
        (Some(one), Some(other)) => Some((one.min(other), Some(one.max(other)))),
    }
}

/// Whether two periods have a time in common; `None` when that is not known.
fn overlap(one: Ends, other: Ends) -> Option<bool> {
    let (one, other) = (in_order(one)?, in_order(other)?);
    if one.0 == other.0 {
        return (one.1.is_some() && other.1.is_some()).then_some(true);
    }
    let (earlier, later) = if one.0 < other.0 { (one, other) } else { (other, one) };
    if later.0 < earlier.1? {
        return Some(true);
    }
    later.1.map(|_| false)
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
