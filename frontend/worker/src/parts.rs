//! `extract` and `date_part` with fractions of seconds.
//!
//! DataFusion truncates seconds, milliseconds and microseconds to whole numbers, and computes the epoch as a double.
//! Here they are computed from the ticks: `extract` returns decimals and `date_part` doubles, as in PostgreSQL.
//!
//! ```text
//!   extract(second FROM '00:00:01.25')      1.250000 (nine digits for times in nanoseconds)
//!   date_part('second', '00:00:01.25')      1.25
//!   extract(epoch FROM INTERVAL '1 year')   31557600: a year has 365.25 days, a month 30
//! ```
//!
//! Invariants:
//! - a time zone's offset is whole seconds, so that the fraction comes from the ticks, and DataFusion computes the rest;
//! - a difference of times has days of 24 hours and no months.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Float64Array};
use arrow::compute::{binary, cast};
use arrow::datatypes::{
    DataType, Decimal128Type, Float64Type, Int32Type, Int64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::functions::datetime::date_part;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult};
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, lit,
};

use crate::doubles::nearest;
use crate::error::SqlError;
use crate::functions::REGISTRY;

/// Name of the function for `extract`; nodes know it too.
const EXTRACT: &str = "extract";
/// Type of whole parts.
const WHOLE: DataType = DataType::Decimal128(10, 0);
/// Digits after the point of times that are not in nanoseconds.
const MICRO_DIGITS: i8 = 6;
const NANO_DIGITS: i8 = 9;
/// Digits before the point of the longest interval in seconds.
const SECONDS_DIGITS: u8 = 19;
const NANOS_OF_SECOND: i128 = 1_000_000_000;
const NANOS_OF_DAY: i128 = 86_400 * NANOS_OF_SECOND;
const SECONDS_OF_YEAR: i128 = 31_557_600;
const SECONDS_OF_MONTH: i128 = 2_592_000;

/// The functions to register.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [true, false]
        .into_iter()
        .map(|exact| ScalarUDF::from(Parts { inner: date_part(), exact, no_aliases: Vec::new() }))
}

/// Plans `extract(..)` as the function that returns decimals.
#[derive(Debug)]
pub struct ExactParts;

impl ExprPlanner for ExactParts {
    fn plan_extract(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        let Some(function) = REGISTRY.scalar.get(EXTRACT) else {
            return exec_err!("{EXTRACT} is not registered");
        };
        let call = ScalarFunction::new_udf(Arc::clone(function), args);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }
}

/// `extract` or `date_part`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Parts {
    inner: Arc<ScalarUDF>,
    /// True for `extract`, whose parts are decimals.
    exact: bool,
    no_aliases: Vec<String>,
}

/// A part of a time, by what it is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Seconds with their fraction, multiplied by this power of ten.
    Seconds(i8),
    /// Seconds since 1970, or the length of an interval in seconds.
    Epoch,
    /// Years, divided by this number.
    Years(i32),
    Months,
    Quarter,
    Days,
    Hours,
    Minutes,
    /// Any other part, computed by DataFusion.
    Other,
}

impl Part {
    fn named(name: &str) -> Self {
        match normalized(name).as_str() {
            "second" | "seconds" | "sec" | "secs" | "s" => Self::Seconds(0),
            "millisecond" | "milliseconds" | "msec" | "msecs" | "ms" => Self::Seconds(3),
            "microsecond" | "microseconds" | "usec" | "usecs" | "us" => Self::Seconds(6),
            "epoch" => Self::Epoch,
            "year" | "years" | "yr" | "yrs" | "y" => Self::Years(1),
            "decade" | "decades" | "dec" | "decs" => Self::Years(10),
            "century" | "centuries" | "cent" | "c" => Self::Years(100),
            "millennium" | "millennia" | "mil" | "mils" => Self::Years(1000),
            "month" | "months" | "mon" | "mons" => Self::Months,
            "quarter" | "qtr" => Self::Quarter,
            "day" | "days" | "d" => Self::Days,
            "hour" | "hours" | "hr" | "hrs" | "h" => Self::Hours,
            "minute" | "minutes" | "min" | "mins" | "m" => Self::Minutes,
            _ => Self::Other,
        }
    }

    /// Name of the part from which DataFusion computes this one.
    fn inner_name(self, name: &str) -> String {
        match self {
            Self::Seconds(_) => "second".to_owned(),
            Self::Years(_) => "year".to_owned(),
            Self::Months => "month".to_owned(),
            Self::Days => "day".to_owned(),
            Self::Hours => "hour".to_owned(),
            Self::Minutes => "minute".to_owned(),
            Self::Quarter => "quarter".to_owned(),
            Self::Epoch | Self::Other => normalized(name),
        }
    }
}

fn normalized(name: &str) -> String {
    name.trim_matches(|c| c == '\'' || c == '"').to_ascii_lowercase()
}

/// Digits after the point of seconds of a type.
fn digits(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Timestamp(TimeUnit::Nanosecond, _)
        | DataType::Time64(TimeUnit::Nanosecond)
        | DataType::Duration(TimeUnit::Nanosecond)
        | DataType::Interval(_) => NANO_DIGITS,
        _ => MICRO_DIGITS,
    }
}

/// Type of a part of a type, as a decimal.
fn decimal(part: Part, data_type: &DataType) -> DataType {
    let days = matches!(data_type, DataType::Date32 | DataType::Date64);
    match part {
        Part::Seconds(power) if !days => {
            let digits = digits(data_type);
            DataType::Decimal128(digits.unsigned_abs() + 3, digits - power)
        }
        Part::Epoch if days => DataType::Decimal128(SECONDS_DIGITS, 0),
        Part::Epoch => {
            let digits = digits(data_type);
            DataType::Decimal128(SECONDS_DIGITS + digits.unsigned_abs(), digits)
        }
        _ => WHOLE,
    }
}

/// Ticks of a type in a second.
fn ticks_of_second(data_type: &DataType) -> Option<i64> {
    match data_type {
        DataType::Timestamp(unit, _)
        | DataType::Time32(unit)
        | DataType::Time64(unit)
        | DataType::Duration(unit) => Some(match unit {
            TimeUnit::Second => 1,
            TimeUnit::Millisecond => 1_000,
            TimeUnit::Microsecond => 1_000_000,
            TimeUnit::Nanosecond => 1_000_000_000,
        }),
        DataType::Date64 => Some(1_000),
        _ => None,
    }
}

/// Ticks of times, as integers of 64 bits.
fn ticks(times: &ArrayRef) -> Result<ArrayRef> {
    let narrow = match times.data_type() {
        DataType::Time32(_) | DataType::Date32 => cast(times, &DataType::Int32)?,
        _ => Arc::clone(times),
    };
    Ok(cast(&narrow, &DataType::Int64)?)
}

impl Parts {
    fn inner(&self) -> &dyn ScalarUDFImpl {
        self.inner.inner().as_ref()
    }

    /// Computes a part with DataFusion's function, in whole numbers.
    fn plain(
        &self,
        name: String,
        values: &ArrayRef,
        args: &ScalarFunctionArgs,
    ) -> Result<ArrayRef> {
        let name = ScalarValue::Utf8(Some(name));
        let fields = args.arg_fields.clone();
        let return_field = self.inner().return_field_from_args(ReturnFieldArgs {
            arg_fields: &fields,
            scalar_arguments: &[Some(&name), None],
        })?;
        let rows = values.len();
        let args = ScalarFunctionArgs {
            args: vec![ColumnarValue::Scalar(name), ColumnarValue::Array(Arc::clone(values))],
            arg_fields: fields,
            number_rows: rows,
            return_field,
            config_options: Arc::clone(&args.config_options),
        };
        self.inner().invoke_with_args(args)?.into_array(rows)
    }

    /// Computes a part as a decimal.
    fn computed(
        &self,
        name: &str,
        values: &ArrayRef,
        args: &ScalarFunctionArgs,
    ) -> Result<ArrayRef> {
        let part = Part::named(name);
        let data_type = decimal(part, values.data_type());
        if matches!(values.data_type(), DataType::Interval(_) | DataType::Duration(_)) {
            return of_spans(part, name, values, &data_type);
        }
        // Seconds take their fraction from the ticks; the other parts are whole numbers.
        let per_second = ticks_of_second(values.data_type());
        let scale = |digits: i8| 10_i128.pow(u32::from(digits.unsigned_abs()));
        let parts: Decimal128Array = match (part, per_second) {
            (Part::Seconds(_), Some(per_second)) => {
                let whole = self.plain(part.inner_name(name), values, args)?;
                let unit = scale(digits(values.data_type()));
                binary(
                    whole.as_primitive::<Int32Type>(),
                    ticks(values)?.as_primitive::<Int64Type>(),
                    |whole, ticks| {
                        let rest = i128::from(ticks.rem_euclid(per_second));
                        i128::from(whole) * unit + rest * unit / i128::from(per_second)
                    },
                )?
            }
            (Part::Epoch, Some(per_second)) if values.data_type() != &DataType::Date64 => {
                let unit = scale(digits(values.data_type()));
                ticks(values)?
                    .as_primitive::<Int64Type>()
                    .unary(|ticks| i128::from(ticks) * unit / i128::from(per_second))
            }
            (Part::Epoch, _) => {
                let days = cast(&cast(values, &DataType::Date32)?, &DataType::Int32)?;
                days.as_primitive::<Int32Type>().unary(|days| i128::from(days) * 86_400)
            }
            (Part::Years(years_per_unit), _) => {
                let years = self.plain(part.inner_name(name), values, args)?;
                years
                    .as_primitive::<Int32Type>()
                    .unary(|year| i128::from(group(year, years_per_unit)))
            }
            _ => {
                let whole = self.plain(part.inner_name(name), values, args)?;
                let whole = cast(&whole, &DataType::Int64)?;
                whole.as_primitive::<Int64Type>().unary(i128::from)
            }
        };
        Ok(Arc::new(parts.with_data_type(data_type)))
    }
}

/// The decade, century or millennium of a year. There is no year 0, and centuries begin with the year 1.
fn group(year: i32, years_per_unit: i32) -> i32 {
    match years_per_unit {
        1 if year <= 0 => year - 1,
        1 => year,
        10 => year.div_euclid(10),
        _ if year > 0 => (year - 1) / years_per_unit + 1,
        _ => year / years_per_unit - 1,
    }
}

/// Computes a part of intervals or of differences of times.
fn of_spans(part: Part, name: &str, values: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    if part == Part::Other {
        let message = format!("unit \"{}\" not supported for type interval", normalized(name));
        return Err(SqlError::new(crate::error::FEATURE_NOT_SUPPORTED, message).into());
    }
    // Each unit is the remainder of the next larger one; a difference of times has days and nanoseconds.
    let spans: Vec<Option<(i128, i128, i128)>> =
        if let Some(per_second) = ticks_of_second(values.data_type()) {
            let ticks = ticks(values)?;
            let ticks = ticks.as_primitive::<Int64Type>().iter();
            ticks
                .map(|ticks| {
                    let nanos = i128::from(ticks?) * (NANOS_OF_SECOND / i128::from(per_second));
                    Some((0, nanos / NANOS_OF_DAY, nanos % NANOS_OF_DAY))
                })
                .collect()
        } else {
            let intervals = cast(values, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>().iter();
            let parts = |interval: IntervalMonthDayNano| {
                (
                    i128::from(interval.months),
                    i128::from(interval.days),
                    i128::from(interval.nanoseconds),
                )
            };
            intervals.map(|interval| interval.map(parts)).collect()
        };
    let compute = |(months, days, nanos): (i128, i128, i128)| match part {
        Part::Seconds(_) => nanos % (60 * NANOS_OF_SECOND),
        Part::Epoch => {
            let whole = months / 12 * SECONDS_OF_YEAR + months % 12 * SECONDS_OF_MONTH;
            whole * NANOS_OF_SECOND + days * NANOS_OF_DAY + nanos
        }
        Part::Years(years) => months / 12 / i128::from(years),
        Part::Months => months % 12,
        Part::Quarter => months % 12 / 3 + 1,
        Part::Days => days,
        Part::Hours => nanos / (3_600 * NANOS_OF_SECOND),
        Part::Minutes => nanos / (60 * NANOS_OF_SECOND) % 60,
        Part::Other => 0,
    };
    // Seconds are in nanoseconds here, and may be of a coarser unit in the result.
    let finer = match part {
        Part::Seconds(_) | Part::Epoch => {
            10_i128.pow(u32::from((NANO_DIGITS - digits(values.data_type())).unsigned_abs()))
        }
        _ => 1,
    };
    let parts: Decimal128Array =
        spans.into_iter().map(|span| Some(compute(span?) / finer)).collect();
    Ok(Arc::new(parts.with_data_type(data_type.clone())))
}

/// Converts decimals to the nearest doubles.
fn doubles(decimals: &ArrayRef) -> Float64Array {
    let DataType::Decimal128(_, scale) = *decimals.data_type() else {
        return Float64Array::new_null(decimals.len());
    };
    decimals.as_primitive::<Decimal128Type>().unary::<_, Float64Type>(|value| nearest(value, scale))
}

impl ScalarUDFImpl for Parts {
    fn name(&self) -> &str {
        if self.exact { EXTRACT } else { self.inner().name() }
    }

    fn aliases(&self) -> &[String] {
        if self.exact { &self.no_aliases } else { self.inner().aliases() }
    }

    fn signature(&self) -> &Signature {
        self.inner().signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner().return_type(types)
    }

    fn return_field_from_args(
        &self,
        args: ReturnFieldArgs<'_>,
    ) -> Result<arrow::datatypes::FieldRef> {
        let name =
            args.scalar_arguments.first().copied().flatten().and_then(ScalarValue::try_as_str);
        let source_type = args.arg_fields.get(1).map(|field| field.data_type().clone());
        let name = name.flatten().map(str::to_owned);
        let field = self.inner().return_field_from_args(args)?;
        let (Some(name), Some(source_type)) = (name, source_type) else { return Ok(field) };
        let data_type =
            if self.exact { decimal(Part::named(&name), &source_type) } else { DataType::Float64 };
        Ok(Arc::new(field.as_ref().clone().with_name(self.name()).with_data_type(data_type)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(name), argument] = args.args.as_slice() else {
            return exec_err!("{} needs the name of a part as a constant", self.name());
        };
        let Some(name) = name.try_as_str().flatten() else {
            return exec_err!("{} needs the name of a part", self.name());
        };
        let constant = matches!(argument, ColumnarValue::Scalar(_));
        let rows = if constant { 1 } else { args.number_rows };
        let parts = self.computed(name, &argument.to_array(rows)?, &args)?;
        let parts = if self.exact { parts } else { Arc::new(doubles(&parts)) as ArrayRef };
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&parts, 0)?));
        }
        Ok(ColumnarValue::Array(parts))
    }

    /// DataFusion's function replaces comparisons of years by ranges of times.
    fn preimage(
        &self,
        args: &[Expr],
        literal: &Expr,
        info: &SimplifyContext,
    ) -> Result<PreimageResult> {
        let Some(year) = literal.as_literal().and_then(whole_number) else {
            return Ok(PreimageResult::None);
        };
        self.inner().preimage(args, &lit(year), info)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner().documentation()
    }
}

/// The year AD that a literal stands for.
fn whole_number(literal: &ScalarValue) -> Option<i32> {
    let year = match literal {
        ScalarValue::Decimal128(Some(value), _, 0) => i32::try_from(*value).ok(),
        #[expect(clippy::cast_possible_truncation, reason = "whole and in range")]
        ScalarValue::Float64(Some(value))
            if value.fract() == 0.0 && value.abs() < f64::from(i32::MAX) =>
        {
            Some(*value as i32)
        }
        _ => None,
    };
    year.filter(|year| *year > 0)
}

#[cfg(test)]
mod tests {
    use arrow::util::display::array_value_to_string;
    use datafusion::execution::{FunctionRegistry, SessionStateBuilder};
    use datafusion::prelude::SessionContext;

    use super::*;

    /// The row of a query's result, each value as its type and its text.
    async fn answer(sql: &str) -> Vec<String> {
        let mut state = SessionStateBuilder::new()
            .with_expr_planners(vec![Arc::new(ExactParts)])
            .with_default_features()
            .build();
        for function in functions() {
            let _replaced = state.register_udf(Arc::new(function)).unwrap();
        }
        let batches =
            SessionContext::new_with_state(state).sql(sql).await.unwrap().collect().await.unwrap();
        let columns = batches[0].columns().iter();
        columns.map(|column| array_value_to_string(column, 0).unwrap()).collect()
    }

    #[tokio::test]
    async fn seconds_keep_their_fraction() {
        let answered = answer(
            "SELECT extract(second FROM t), extract(milliseconds FROM t), extract(microseconds FROM t), \
             extract(epoch FROM t), date_part('second', t), date_part('epoch', t), extract(minute FROM t) \
             FROM (SELECT arrow_cast('1969-12-31T23:59:01.2505', 'Timestamp(Microsecond, None)') AS t)",
        );
        let expected =
            ["1.250500", "1250.500", "1250500", "-58.749500", "1.2505", "-58.7495", "59"];
        assert_eq!(answered.await, expected);
    }

    #[tokio::test]
    async fn other_parts_are_whole() {
        let answered = answer(
            "SELECT extract(year FROM t), extract(decade FROM t), extract(century FROM t), \
             extract(millennium FROM t), date_part('dow', t), extract(doy FROM t), extract(isoyear FROM t) \
             FROM (SELECT TIMESTAMP '2000-12-31 10:00:00' AS t)",
        );
        assert_eq!(answered.await, ["2000", "200", "20", "2", "0.0", "366", "2000"]);
    }

    #[tokio::test]
    async fn spans_have_days_of_24_hours() {
        let answered = answer(
            "SELECT extract(epoch FROM INTERVAL '1 year 2 months 3 days 1.5 seconds'), \
             extract(second FROM INTERVAL '-61.5 seconds'), extract(hour FROM INTERVAL '30 hours'), \
             extract(month FROM INTERVAL '26 months'), date_part('epoch', b - a), extract(hour FROM b - a), \
             extract(day FROM b - a) FROM (SELECT TIMESTAMP '2024-01-01 00:00:00' AS a, \
             TIMESTAMP '2024-01-03 06:00:00.125' AS b)",
        );
        let expected = ["37000801.500000000", "-1.500000000", "30", "2", "194400.125", "6", "2"];
        assert_eq!(answered.await, expected);
    }

    #[test]
    fn centuries_begin_with_the_year_one() {
        assert_eq!([1, 100, 101, 2000, 2001].map(|year| group(year, 100)), [1, 1, 2, 20, 21]);
        assert_eq!([0, -99, -100].map(|year| group(year, 100)), [-1, -1, -2]);
        assert_eq!([-1, 0, 9].map(|year| group(year, 10)), [-1, 0, 0]);
    }
}
