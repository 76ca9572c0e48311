//! Texts that stand for times of day, as in PostgreSQL: `TIME '04:05 PM'`, `t > '04:05'`.
//!
//! Arrow reads fewer forms, and cuts digits that PostgreSQL rounds. [`ReadTimes`] replaces its casts of texts; literals
//! are read while a statement is planned. Times have microseconds, as columns of TIME have.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, IntervalMonthDayNanoArray, Time64MicrosecondArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    Time64MicrosecondType, TimeUnit,
};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use partita_proto::time_of_day::{TimeError, parse};

use crate::error::SqlError;
use crate::functions::REGISTRY;
use crate::plain::{Plain, is_whole};

const TIME: DataType = DataType::Time64(TimeUnit::Microsecond);
const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
/// Name of the function; nodes know it too.
const NAME: &str = "time_in";
/// Maximum characters of a text in an error.
const EXCERPT: usize = 100;

/// Name of the cast of an interval; nodes know it too.
const TIME_OF_INTERVAL: &str = "time_of_interval";
/// Name of the cast of a time to an interval; nodes know it too.
pub(crate) const INTERVAL_OF_TIME: &str = "interval_of_time";
/// Name of the function that rounds a time to some digits of a second; nodes know it too.
pub const ROUNDED_TIME: &str = "time_rounded";
/// Digits of a second that times have.
const DIGITS: i64 = 6;
const NANOS_OF_MICRO: i64 = 1_000;
const MICROS_OF_DAY: i64 = 86_400_000_000;

/// The functions to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    let read = ScalarUDF::from(Read { signature: Signature::any(1, Volatility::Immutable) });
    [read, OF_INTERVAL.function(), AS_INTERVAL.function(), ROUNDED.function()].into_iter()
}

/// The part of an interval that is less than a day; what is negative is counted back from midnight.
static OF_INTERVAL: Plain = Plain {
    name: TIME_OF_INTERVAL,
    takes: |types| match types {
        [DataType::Interval(_) | DataType::Null] => Some(vec![INTERVAL]),
        _ => None,
    },
    gives: |_| TIME,
    run: |arguments| {
        let intervals = arguments[0].as_primitive::<IntervalMonthDayNanoType>();
        let times: Time64MicrosecondArray = intervals.unary(|interval| {
            interval.nanoseconds.div_euclid(NANOS_OF_MICRO).rem_euclid(MICROS_OF_DAY)
        });
        Ok(Arc::new(times))
    },
};

/// `time_rounded(time, digits)`: as a cast to `TIME(digits)`.
static ROUNDED: Plain = Plain {
    name: ROUNDED_TIME,
    takes: |types| match types {
        [DataType::Time32(_) | DataType::Time64(_) | DataType::Null, digits]
            if is_whole(digits) =>
        {
            Some(vec![TIME, DataType::Int64])
        }
        _ => None,
    },
    gives: |_| TIME,
    run: |arguments| {
        let times = arguments[0].as_primitive::<Time64MicrosecondType>();
        let digits = arguments[1].as_primitive::<Int64Type>();
        let rows = times.iter().zip(digits.iter());
        let times = rows.map(|(time, digits)| match time.zip(digits) {
            Some((time, digits)) => rounded(time, digits).map(Some),
            None => Ok(None),
        });
        Ok(Arc::new(times.collect::<Result<Time64MicrosecondArray, SqlError>>()?))
    },
};

/// Microseconds since midnight, rounded to some digits of a second.
fn rounded(micros: i64, digits: i64) -> Result<i64, SqlError> {
    let zeros = u32::try_from(DIGITS - digits).unwrap_or(0);
    let unit = 10_i64.checked_pow(zeros).unwrap_or(1);
    let rounded = (micros + unit / 2) / unit * unit;
    if rounded >= MICROS_OF_DAY {
        return Err(SqlError::new("22008", "time out of range"));
    }
    Ok(rounded)
}

/// The time since midnight.
static AS_INTERVAL: Plain = Plain {
    name: INTERVAL_OF_TIME,
    takes: |types| match types {
        [DataType::Time32(_) | DataType::Time64(_) | DataType::Null] => Some(vec![TIME]),
        _ => None,
    },
    gives: |_| INTERVAL,
    run: |arguments| {
        let times = arguments[0].as_primitive::<Time64MicrosecondType>();
        let intervals: IntervalMonthDayNanoArray =
            times.unary(|micros| IntervalMonthDayNano::new(0, 0, micros * NANOS_OF_MICRO));
        Ok(Arc::new(intervals))
    },
};

/// The error of a text with a part out of its range.
#[must_use]
pub fn time_out_of_range(text: &str) -> SqlError {
    SqlError::new("22008", format!("date/time field value out of range: \"{}\"", excerpt(text)))
}

fn excerpt(text: &str) -> String {
    text.chars().take(EXCERPT).collect()
}

fn micros_of(text: &str) -> Result<i64, SqlError> {
    parse(text).map_err(|error| match error {
        TimeError::OutOfRange => time_out_of_range(text),
        TimeError::Syntax => {
            let message = format!("invalid input syntax for type time: \"{}\"", excerpt(text));
            SqlError::new("22007", message)
        }
    })
}

/// The time of a text.
///
/// # Errors
/// SQLSTATE 22007 when the text is not one of a time, 22008 when a part is out of its range.
pub fn time_of(text: &str) -> Result<ScalarValue, SqlError> {
    Ok(ScalarValue::Time64Microsecond(Some(micros_of(text)?)))
}

/// The times of texts.
///
/// # Errors
/// As [`time_of`].
pub fn times_of(texts: &ArrayRef) -> Result<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8View)?;
    let times = texts.as_string_view().iter().map(|text| text.map(micros_of).transpose());
    Ok(Arc::new(times.collect::<Result<Time64MicrosecondArray, SqlError>>()?))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Read {
    signature: Signature,
}

impl ScalarUDFImpl for Read {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type] if data_type.is_string() => Ok(TIME),
            _ => exec_err!("{NAME} does not take {types:?}"),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [argument] = args.args.as_slice() else {
            return exec_err!("{NAME} takes one argument");
        };
        let constant = matches!(argument, ColumnarValue::Scalar(_));
        let times = times_of(&argument.to_array(if constant { 1 } else { args.number_rows })?)?;
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&times, 0)?));
        }
        Ok(ColumnarValue::Array(times))
    }
}

/// Replaces casts of texts and intervals to times by functions; to be applied once types are coerced.
#[derive(Debug)]
pub struct ReadTimes;

impl FunctionRewrite for ReadTimes {
    fn name(&self) -> &'static str {
        "read_times"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        let Expr::Cast(Cast { expr, field }) = expression else {
            return Ok(Transformed::no(expression));
        };
        let name = match expr.get_type(schema) {
            Ok(source) if *field.data_type() == TIME && source.is_string() => NAME,
            Ok(DataType::Interval(_)) if *field.data_type() == TIME => TIME_OF_INTERVAL,
            _ => return Ok(Transformed::no(Expr::Cast(Cast { expr, field }))),
        };
        if let Expr::Literal(value, _) = expr.as_ref()
            && let Some(Some(text)) = value.try_as_str()
        {
            return Ok(Transformed::yes(Expr::Literal(time_of(text)?, None)));
        }
        let Some(function) = REGISTRY.scalar.get(name) else {
            return exec_err!("{name} is not registered");
        };
        let call = ScalarFunction::new_udf(Arc::clone(function), vec![*expr]);
        Ok(Transformed::yes(Expr::ScalarFunction(call)))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::StringViewArray;

    use super::*;

    #[test]
    fn intervals_have_a_time_of_day_and_times_are_intervals() {
        let interval =
            |days, hours: i64| IntervalMonthDayNano::new(1, days, hours * 3_600 * 1_000_000_000);
        let intervals: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(vec![
            Some(interval(1, 2)),
            Some(interval(0, -1)),
            Some(interval(0, 25)),
            None,
        ]));
        let hour = 3_600_000_000;
        let expected =
            Time64MicrosecondArray::from(vec![Some(2 * hour), Some(23 * hour), Some(hour), None]);
        let times = (OF_INTERVAL.run)(&[intervals]).unwrap();
        assert_eq!(times.as_primitive::<Time64MicrosecondType>(), &expected);
        let again = (AS_INTERVAL.run)(&[times]).unwrap();
        let first = again.as_primitive::<IntervalMonthDayNanoType>().value(0);
        assert_eq!(first, IntervalMonthDayNano::new(0, 0, 2 * hour * NANOS_OF_MICRO));
    }

    #[test]
    fn times_are_rounded_to_digits_of_a_second() {
        let micros = 3_723_650_000;
        for (digits, expected) in [(0, 3_724_000_000), (1, 3_723_700_000), (3, micros), (6, micros)]
        {
            assert_eq!(rounded(micros, digits).unwrap(), expected, "{digits}");
        }
        assert_eq!(rounded(MICROS_OF_DAY - 1, 0).unwrap_err().sqlstate, "22008");
    }

    #[test]
    fn texts_are_read_and_others_are_refused() {
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec![Some("04:05 PM"), None]));
        let expected = Time64MicrosecondArray::from(vec![Some(57_900_000_000), None]);
        let times = times_of(&texts).unwrap();
        assert_eq!(times.as_primitive::<Time64MicrosecondType>(), &expected);
        for (text, sqlstate) in [("abc", "22007"), ("25:00", "22008")] {
            let texts: ArrayRef = Arc::new(StringViewArray::from(vec![text]));
            let error = SqlError::from(times_of(&texts).unwrap_err());
            assert_eq!(error.sqlstate, sqlstate, "{text}");
        }
    }
}
