//! `extract` and `date_part` with fractions of seconds.
//!
//! DataFusion cuts seconds, milliseconds and microseconds to whole numbers, and computes the epoch as a double. Here they
//! come from the ticks: `extract` gives decimals and `date_part` doubles, the types that both have in PostgreSQL.
//!
//! ```text
//!   extract(second FROM '00:00:01.25')      1.250000 (nine digits of times in nanoseconds)
//!   date_part('second', '00:00:01.25')      1.25
//!   extract(epoch FROM INTERVAL '1 year')   31557600: a year has 365.25 days, a month 30
//! ```
//!
//! Invariants:
//! - a time zone moves whole seconds, so that the fraction is that of the ticks, and the rest is DataFusion's;
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

/// The name under which `extract` is found, at a node too.
const EXTRACT: &str = "extract";
/// Digits of whole parts.
const WHOLE: DataType = DataType::Decimal128(10, 0);
/// Digits behind the point of times that are not in nanoseconds.
const MICRO_DIGITS: i8 = 6;
const NANO_DIGITS: i8 = 9;
/// Digits of the longest interval in seconds, before the point.
const SECONDS_DIGITS: u8 = 19;
const NANOS_OF_SECOND: i128 = 1_000_000_000;
const NANOS_OF_DAY: i128 = 86_400 * NANOS_OF_SECOND;
const SECONDS_OF_YEAR: i128 = 31_557_600;
const SECONDS_OF_MONTH: i128 = 2_592_000;

/// The functions.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [true, false]
        .into_iter()
        .map(|exact| ScalarUDF::from(Parts { inner: date_part(), exact, no_aliases: Vec::new() }))
}

/// Plans `extract(..)` as the function that gives decimals.
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
    /// Whether the parts are decimals.
    exact: bool,
    no_aliases: Vec<String>,
}

/// A part of a time, by what it is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Seconds with their fraction, times ten to the power of this.
    Seconds(i8),
    /// Seconds since 1970, or of a span.
    Epoch,
    /// So many years are one.
    Years(i32),
    Months,
    Quarter,
    Days,
    Hours,
    Minutes,
    /// Anything else that DataFusion knows.
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

    /// The name that DataFusion computes the part from.
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

/// Digits behind the point of seconds of a type.
fn digits(of: &DataType) -> i8 {
    match of {
        DataType::Timestamp(TimeUnit::Nanosecond, _)
        | DataType::Time64(TimeUnit::Nanosecond)
        | DataType::Duration(TimeUnit::Nanosecond)
        | DataType::Interval(_) => NANO_DIGITS,
        _ => MICRO_DIGITS,
    }
}

/// The decimal that a part of a type is.
fn decimal(part: Part, of: &DataType) -> DataType {
    let days = matches!(of, DataType::Date32 | DataType::Date64);
    match part {
        Part::Seconds(power) if !days => {
            let digits = digits(of);
            DataType::Decimal128(digits.unsigned_abs() + 3, digits - power)
        }
        Part::Epoch if days => DataType::Decimal128(SECONDS_DIGITS, 0),
        Part::Epoch => {
            let digits = digits(of);
            DataType::Decimal128(SECONDS_DIGITS + digits.unsigned_abs(), digits)
        }
        _ => WHOLE,
    }
}

/// How many ticks of a type are a second.
fn ticks_of_second(of: &DataType) -> Option<i64> {
    match of {
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

/// The ticks of times, as integers of 64 bits.
fn ticks(of: &ArrayRef) -> Result<ArrayRef> {
    let narrow = match of.data_type() {
        DataType::Time32(_) | DataType::Date32 => cast(of, &DataType::Int32)?,
        _ => Arc::clone(of),
    };
    Ok(cast(&narrow, &DataType::Int64)?)
}

impl Parts {
    fn inner(&self) -> &dyn ScalarUDFImpl {
        self.inner.inner().as_ref()
    }

    /// What DataFusion has for a part, as integers.
    fn plain(&self, name: String, of: &ArrayRef, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
        let name = ScalarValue::Utf8(Some(name));
        let fields = args.arg_fields.clone();
        let return_field = self.inner().return_field_from_args(ReturnFieldArgs {
            arg_fields: &fields,
            scalar_arguments: &[Some(&name), None],
        })?;
        let rows = of.len();
        let args = ScalarFunctionArgs {
            args: vec![ColumnarValue::Scalar(name), ColumnarValue::Array(Arc::clone(of))],
            arg_fields: fields,
            number_rows: rows,
            return_field,
            config_options: Arc::clone(&args.config_options),
        };
        self.inner().invoke_with_args(args)?.into_array(rows)
    }

    /// A part as a decimal.
    fn computed(&self, name: &str, of: &ArrayRef, args: &ScalarFunctionArgs) -> Result<ArrayRef> {
        let part = Part::named(name);
        let to = decimal(part, of.data_type());
        if matches!(of.data_type(), DataType::Interval(_) | DataType::Duration(_)) {
            return of_spans(part, name, of, &to);
        }
        let per_second = ticks_of_second(of.data_type());
        let scale = |digits: i8| 10_i128.pow(u32::from(digits.unsigned_abs()));
        let made: Decimal128Array = match (part, per_second) {
            (Part::Seconds(_), Some(per_second)) => {
                let whole = self.plain(part.inner_name(name), of, args)?;
                let unit = scale(digits(of.data_type()));
                binary(
                    whole.as_primitive::<Int32Type>(),
                    ticks(of)?.as_primitive::<Int64Type>(),
                    |whole, ticks| {
                        let rest = i128::from(ticks.rem_euclid(per_second));
                        i128::from(whole) * unit + rest * unit / i128::from(per_second)
                    },
                )?
            }
            (Part::Epoch, Some(per_second)) if of.data_type() != &DataType::Date64 => {
                let unit = scale(digits(of.data_type()));
                ticks(of)?
                    .as_primitive::<Int64Type>()
                    .unary(|ticks| i128::from(ticks) * unit / i128::from(per_second))
            }
            (Part::Epoch, _) => {
                let days = cast(&cast(of, &DataType::Date32)?, &DataType::Int32)?;
                days.as_primitive::<Int32Type>().unary(|days| i128::from(days) * 86_400)
            }
            (Part::Years(each), _) => {
                let years = self.plain(part.inner_name(name), of, args)?;
                years.as_primitive::<Int32Type>().unary(|year| i128::from(group(year, each)))
            }
            _ => {
                let whole = self.plain(part.inner_name(name), of, args)?;
                let whole = cast(&whole, &DataType::Int64)?;
                whole.as_primitive::<Int64Type>().unary(i128::from)
            }
        };
        Ok(Arc::new(made.with_data_type(to)))
    }
}

/// The decade, century or millennium of a year; there is no year 0, and centuries begin with the year 1.
fn group(year: i32, each: i32) -> i32 {
    match each {
        1 if year <= 0 => year - 1,
        1 => year,
        10 => year.div_euclid(10),
        each if year > 0 => (year - 1) / each + 1,
        each => year / each - 1,
    }
}

/// A part of intervals and of differences of times.
fn of_spans(part: Part, name: &str, of: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if part == Part::Other {
        let message = format!("unit \"{}\" not supported for type interval", normalized(name));
        return Err(SqlError::new(crate::error::FEATURE_NOT_SUPPORTED, message).into());
    }
    // Each unit as the next smaller one leaves it; the nanoseconds of a difference of times are in days.
    let spans: Vec<Option<(i128, i128, i128)>> =
        if let Some(per_second) = ticks_of_second(of.data_type()) {
            let ticks = ticks(of)?;
            let ticks = ticks.as_primitive::<Int64Type>().iter();
            ticks
                .map(|ticks| {
                    let nanos = i128::from(ticks?) * (NANOS_OF_SECOND / i128::from(per_second));
                    Some((0, nanos / NANOS_OF_DAY, nanos % NANOS_OF_DAY))
                })
                .collect()
        } else {
            let of = cast(of, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let of = of.as_primitive::<IntervalMonthDayNanoType>().iter();
            let parts = |of: IntervalMonthDayNano| {
                (i128::from(of.months), i128::from(of.days), i128::from(of.nanoseconds))
            };
            of.map(|of| of.map(parts)).collect()
        };
    let each = |(months, days, nanos): (i128, i128, i128)| match part {
        Part::Seconds(_) => nanos % (60 * NANOS_OF_SECOND),
        Part::Epoch => {
            let whole = months / 12 * SECONDS_OF_YEAR + months % 12 * SECONDS_OF_MONTH;
            whole * NANOS_OF_SECOND + days * NANOS_OF_DAY + nanos
        }
        Part::Years(each) => months / 12 / i128::from(each),
        Part::Months => months % 12,
        Part::Quarter => months % 12 / 3 + 1,
        Part::Days => days,
        Part::Hours => nanos / (3_600 * NANOS_OF_SECOND),
        Part::Minutes => nanos / (60 * NANOS_OF_SECOND) % 60,
        Part::Other => 0,
    };
    // Seconds are in nanoseconds now.
    let finer = match part {
        Part::Seconds(_) | Part::Epoch => {
            10_i128.pow(u32::from((NANO_DIGITS - digits(of.data_type())).unsigned_abs()))
        }
        _ => 1,
    };
    let made: Decimal128Array = spans.into_iter().map(|span| Some(each(span?) / finer)).collect();
    Ok(Arc::new(made.with_data_type(to.clone())))
}

/// Decimals as the doubles that are nearest to them.
fn doubles(of: &ArrayRef) -> Float64Array {
    let DataType::Decimal128(_, scale) = *of.data_type() else {
        return Float64Array::new_null(of.len());
    };
    of.as_primitive::<Decimal128Type>().unary::<_, Float64Type>(|value| nearest(value, scale))
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
        let of = args.arg_fields.get(1).map(|field| field.data_type().clone());
        let name = name.flatten().map(str::to_owned);
        let field = self.inner().return_field_from_args(args)?;
        let (Some(name), Some(of)) = (name, of) else { return Ok(field) };
        let to = if self.exact { decimal(Part::named(&name), &of) } else { DataType::Float64 };
        Ok(Arc::new(field.as_ref().clone().with_name(self.name()).with_data_type(to)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [ColumnarValue::Scalar(name), of] = args.args.as_slice() else {
            return exec_err!("{} needs the name of a part as a constant", self.name());
        };
        let Some(name) = name.try_as_str().flatten() else {
            return exec_err!("{} needs the name of a part", self.name());
        };
        let constant = matches!(of, ColumnarValue::Scalar(_));
        let rows = if constant { 1 } else { args.number_rows };
        let made = self.computed(name, &of.to_array(rows)?, &args)?;
        let made = if self.exact { made } else { Arc::new(doubles(&made)) as ArrayRef };
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?));
        }
        Ok(ColumnarValue::Array(made))
    }

    /// Years become ranges of times, as DataFusion's do.
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

/// The year AD that a literal is.
fn whole_number(of: &ScalarValue) -> Option<i32> {
    let year = match of {
        ScalarValue::Decimal128(Some(value), _, 0) => i32::try_from(*value).ok(),
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and in range")]
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

    /// The row that a query answers, each value as text behind its type.
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
