//! `date_trunc(unit, interval)`.
//!
//! As in PostgreSQL, intervals are truncated toward zero, and days are not converted to hours, nor months to days.
//! Weeks are refused, because months have fractional weeks.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;

use crate::differences::intervals_of_spans;
use crate::error::{FEATURE_NOT_SUPPORTED, INVALID_PARAMETER_VALUE, SqlError};

/// Type of the result.
pub(crate) const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

const MONTHS_OF_YEAR: i32 = 12;
const NANOS_OF_MICROSECOND: i64 = 1_000;
const NANOS_OF_SECOND: i64 = 1_000_000_000;

/// Precision to which an interval is truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Precision {
    /// Multiples of this number of months.
    Months(i32),
    Days,
    /// Multiples of this number of nanoseconds.
    Nanos(i64),
}

impl Precision {
    fn named(unit: &str) -> Result<Self, SqlError> {
        let unit = unit.to_ascii_lowercase();
        // PostgreSQL's names and abbreviations of units.
        Ok(match unit.as_str() {
            "millennium" | "millennia" | "mil" | "mils" => Self::Months(1000 * MONTHS_OF_YEAR),
            "century" | "centuries" | "cent" | "c" => Self::Months(100 * MONTHS_OF_YEAR),
            "decade" | "decades" | "dec" | "decs" => Self::Months(10 * MONTHS_OF_YEAR),
            "year" | "years" | "yr" | "yrs" | "y" => Self::Months(MONTHS_OF_YEAR),
            "quarter" | "qtr" => Self::Months(3),
            "month" | "months" | "mon" | "mons" => Self::Months(1),
            "day" | "days" | "d" => Self::Days,
            "hour" | "hours" | "hr" | "hrs" | "h" => Self::Nanos(3_600 * NANOS_OF_SECOND),
            "minute" | "minutes" | "min" | "mins" | "m" => Self::Nanos(60 * NANOS_OF_SECOND),
            "second" | "seconds" | "sec" | "secs" | "s" => Self::Nanos(NANOS_OF_SECOND),
            "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => {
                Self::Nanos(1_000 * NANOS_OF_MICROSECOND)
            }
            "microsecond" | "microseconds" | "usec" | "usecs" | "us" => {
                Self::Nanos(NANOS_OF_MICROSECOND)
            }
            "week" | "weeks" | "w" => {
                let message = format!("unit \"{unit}\" not supported for type interval");
                return Err(SqlError::new(FEATURE_NOT_SUPPORTED, message)
                    .with_detail("Months usually have fractional weeks."));
            }
            _ => {
                let message = format!("unit \"{unit}\" not recognized for type interval");
                return Err(SqlError::new(INVALID_PARAMETER_VALUE, message));
            }
        })
    }

    fn cut(self, interval: IntervalMonthDayNano) -> IntervalMonthDayNano {
        let IntervalMonthDayNano { months, days, nanoseconds } = interval;
        match self {
            Self::Months(step) => IntervalMonthDayNano::new(months - months % step, 0, 0),
            Self::Days => IntervalMonthDayNano::new(months, days, 0),
            Self::Nanos(step) => {
                IntervalMonthDayNano::new(months, days, nanoseconds - nanoseconds % step)
            }
        }
    }
}

/// Truncates the intervals of a call's second argument to the unit of its first.
pub(crate) fn truncated(
    unit: &ColumnarValue,
    intervals: &ColumnarValue,
    rows: usize,
) -> Result<ColumnarValue> {
    let constant =
        [unit, intervals].iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
    let rows = if constant { 1 } else { rows };
    let units = cast(&unit.to_array(rows)?, &DataType::Utf8)?;
    let intervals = intervals_of_spans(&intervals.to_array(rows)?)?;
    let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
    let values = units.as_string::<i32>().iter().zip(intervals).map(|(unit, interval)| {
        unit.zip(interval)
            .map(|(unit, interval)| Precision::named(unit).map(|precision| precision.cut(interval)))
            .transpose()
    });
    let values: arrow::array::IntervalMonthDayNanoArray =
        values.collect::<Result<_, SqlError>>()?;
    let values: ArrayRef = Arc::new(values);
    debug_assert_eq!(values.len(), rows);
    if constant {
        return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&values, 0)?));
    }
    Ok(ColumnarValue::Array(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_cut_toward_zero() {
        let of = |months, days, nanos| IntervalMonthDayNano::new(months, days, nanos);
        let all = of(14, 40, 90_061_234_567_000);
        for (unit, expected) in [
            ("year", of(12, 0, 0)),
            ("Years", of(12, 0, 0)),
            ("quarter", of(12, 0, 0)),
            ("month", of(14, 0, 0)),
            ("day", of(14, 40, 0)),
            ("hour", of(14, 40, 90_000_000_000_000)),
            ("minute", of(14, 40, 90_060_000_000_000)),
            ("second", of(14, 40, 90_061_000_000_000)),
            ("milliseconds", of(14, 40, 90_061_234_000_000)),
            ("microseconds", of(14, 40, 90_061_234_567_000)),
            ("decade", of(0, 0, 0)),
        ] {
            assert_eq!(Precision::named(unit).unwrap().cut(all), expected, "{unit}");
        }
        assert_eq!(Precision::named("year").unwrap().cut(of(-14, -3, 0)), of(-12, 0, 0));
        assert_eq!(Precision::named("hour").unwrap().cut(of(0, 0, -1)), of(0, 0, 0));
        assert_eq!(Precision::named("week").unwrap_err().sqlstate, "0A000");
        assert_eq!(Precision::named("moon").unwrap_err().sqlstate, "22023");
    }
}
