//! Refuses times without a calendar date.
//!
//! A 64-bit number of seconds reaches beyond any calendar: such a time could be stored, but not shown.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{cast, max, min};
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use partita_worker::civil::has_date;

use crate::error::SqlError;

/// Refuses times outside of the calendar.
///
/// # Errors
/// SQLSTATE 22008, with the column's name.
pub(crate) fn check(array: &ArrayRef, column: &str) -> Result<(), SqlError> {
    let DataType::Timestamp(unit, _) = array.data_type() else { return Ok(()) };
    if *unit == TimeUnit::Nanosecond {
        return Ok(());
    }
    let ticks = cast(array, &DataType::Int64)?;
    let ticks = ticks.as_primitive::<Int64Type>();
    if [min(ticks), max(ticks)].into_iter().flatten().all(|ticks| has_date(ticks, *unit)) {
        return Ok(());
    }
    let row = ticks.iter().position(|ticks| ticks.is_some_and(|ticks| !has_date(ticks, *unit)));
    let row = row.map_or(0, |row| row + 1);
    Err(SqlError::new("22008", format!("timestamp out of range in column \"{column}\""))
        .with_detail(format!("row {row} has a time outside of the calendar")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{TimestampMicrosecondArray, TimestampSecondArray};

    use super::*;

    #[test]
    fn times_without_a_date_are_refused() {
        let seconds =
            |ticks: Vec<Option<i64>>| -> ArrayRef { Arc::new(TimestampSecondArray::from(ticks)) };
        check(&seconds(vec![Some(0), None, Some(8_210_266_876_799)]), "ts").unwrap();
        check(&seconds(vec![None]), "ts").unwrap();
        for ticks in [i64::MAX, i64::MIN, 8_210_266_876_800] {
            let error = check(&seconds(vec![Some(0), Some(ticks)]), "ts").unwrap_err();
            assert_eq!(error.sqlstate, "22008");
            assert_eq!(error.detail.as_deref(), Some("row 2 has a time outside of the calendar"));
        }
        let micros: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![i64::MAX]));
        check(&micros, "ts").unwrap_err();
    }
}
