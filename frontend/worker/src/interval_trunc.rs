//! `date_trunc(unit, interval)`.
//!
//! As in PostgreSQL the units are cut toward zero, days are not made of hours nor months of days, and weeks, of which a
//! month has no whole number, are refused.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::ColumnarValue;

use crate::error::{FEATURE_NOT_SUPPORTED, INVALID_PARAMETER_VALUE, SqlError};

/// The type of what is made.
pub(crate) const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

const MONTHS_OF_YEAR: i32 = 12;
const NANOS_OF_MICROSECOND: i64 = 1_000;
const NANOS_OF_SECOND: i64 = 1_000_000_000;

/// What is left of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// Multiples of so many months.
    Months(i32),
    Days,
    /// Multiples of so many nanoseconds.
    Nanos(i64),
}

impl Kept {
    fn named(unit: &str) -> Result<Self, SqlError> {
        let unit = unit.to_ascii_lowercase();
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

    fn cut(self, of: IntervalMonthDayNano) -> IntervalMonthDayNano {
        let IntervalMonthDayNano { months, days, nanoseconds } = of;
        match self {
            Self::Months(step) => IntervalMonthDayNano::new(months - months % step, 0, 0),
            Self::Days => IntervalMonthDayNano::new(months, days, 0),
            Self::Nanos(step) => {
                IntervalMonthDayNano::new(months, days, nanoseconds - nanoseconds % step)
            }
        }
    }
}

/// The intervals of a call's second argument, cut to the unit of its first.
pub(crate) fn truncated(
    unit: &ColumnarValue,
    of: &ColumnarValue,
    rows: usize,
) -> Result<ColumnarValue> {
    let constant = [unit, of].iter().all(|of| matches!(of, ColumnarValue::Scalar(_)));
    let rows = if constant { 1 } else { rows };
    let units = cast(&unit.to_array(rows)?, &DataType::Utf8)?;
    let intervals = cast(&of.to_array(rows)?, &INTERVAL)?;
    let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
    let made = units.as_string::<i32>().iter().zip(intervals).map(|(unit, of)| {
        unit.zip(of).map(|(unit, of)| Kept::named(unit).map(|kept| kept.cut(of))).transpose()
    });
    let made: arrow::array::IntervalMonthDayNanoArray = made.collect::<Result<_, SqlError>>()?;
    let made: ArrayRef = Arc::new(made);
    debug_assert_eq!(made.len(), rows);
    if constant {
        return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?));
    }
    Ok(ColumnarValue::Array(made))
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
            assert_eq!(Kept::named(unit).unwrap().cut(all), expected, "{unit}");
        }
        assert_eq!(Kept::named("year").unwrap().cut(of(-14, -3, 0)), of(-12, 0, 0));
        assert_eq!(Kept::named("hour").unwrap().cut(of(0, 0, -1)), of(0, 0, 0));
        assert_eq!(Kept::named("week").unwrap_err().sqlstate, "0A000");
        assert_eq!(Kept::named("moon").unwrap_err().sqlstate, "22023");
    }
}
