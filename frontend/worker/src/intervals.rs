//! `INTERVAL '1 second' * n`, `n * INTERVAL '1 second'`, `INTERVAL '1 hour' / n` and `(b.ts - a.ts) / n`.
//!
//! DataFusion adds intervals but does not scale them. Clients of PostgreSQL scale them to express "the last `$1`
//! minutes", and to read times that are stored as numbers (`to_timestamp(0) + ms * INTERVAL '1 millisecond'`).
//! [`ScaledIntervals`] replaces the operator by a function while the statement is planned; it runs at a node too, and a
//! constant call becomes an ordinary interval before files are pruned. The difference of two times is a duration: a
//! quotient stays one, a product is that of its days and its time (`differences.rs`).
//!
//! Invariants:
//! - multiplication by a whole number is exact: months, days and nanoseconds are multiplied separately;
//! - the fraction of a month or of a day that another factor leaves goes to the next smaller unit, where a month is 30
//!   days and a day 24 hours, as in PostgreSQL;
//! - a result that does not fit is an error with SQLSTATE 22008, and a division by zero one with 22012.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Field, Float64Type, Int64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit,
};
use arrow::error::ArrowError;
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Placeholder, ScalarFunction};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::error::datetime_overflow;
use crate::functions::REGISTRY;
use crate::plain::{Plain, is_whole};

/// Type of intervals.
pub(crate) const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const DAYS_OF_MONTH: f64 = 30.0;
const SECONDS_OF_DAY: f64 = 86_400.0;
const NANOS_OF_SECOND: f64 = 1e9;
const NANOS_OF_TICK: f64 = 1e3;
/// Days and seconds are rounded to this fraction, so that the binary 0.1 month is exactly three days.
const PART: f64 = 1e6;

/// Name of the cast to `INTERVAL(digits)`; nodes know it too.
pub const ROUNDED_INTERVAL: &str = "interval_rounded";
/// Digits of a second that nanoseconds are.
const NANO_DIGITS: i64 = 9;
/// Nanoseconds of PostgreSQL's smallest interval.
const NANOS_OF_MICRO: i64 = 1_000;

/// Functions that replace operators and casts.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    let scaled = [Scale::Multiply, Scale::Divide].into_iter().map(|scale| {
        let signature = Signature::any(2, Volatility::Immutable);
        ScalarUDF::from(Scaled { scale, signature })
    });
    scaled.chain([ROUNDED.function()])
}

/// `interval_rounded(interval, digits)`: as a cast to `INTERVAL(digits)`.
static ROUNDED: Plain = Plain {
    name: ROUNDED_INTERVAL,
    takes: |types| match types {
        [DataType::Interval(_) | DataType::Null, digits] if is_whole(digits) => {
            Some(vec![INTERVAL, DataType::Int64])
        }
        _ => None,
    },
    gives: |_| INTERVAL,
    run: |arguments| {
        let intervals = arguments[0].as_primitive::<IntervalMonthDayNanoType>();
        let digits = arguments[1].as_primitive::<Int64Type>();
        let rows = intervals.iter().zip(digits.iter()).map(|(interval, digits)| {
            let row = interval.zip(digits);
            row.map(|(interval, digits)| with_digits(interval, digits)).transpose()
        });
        let rounded: PrimitiveArray<IntervalMonthDayNanoType> =
            rows.collect::<Result<_, ArrowError>>()?;
        Ok(Arc::new(rounded))
    },
};

/// Rounds the seconds of an interval; a half goes away from zero.
fn with_digits(
    interval: IntervalMonthDayNano,
    digits: i64,
) -> Result<IntervalMonthDayNano, ArrowError> {
    let zeros = u32::try_from((NANO_DIGITS - digits).clamp(0, NANO_DIGITS)).unwrap_or(0);
    let unit = 10_i64.pow(zeros);
    let half = interval.nanoseconds.signum() * (unit / 2);
    let nanoseconds = interval.nanoseconds.checked_add(half).ok_or_else(out_of_range)?;
    Ok(IntervalMonthDayNano { nanoseconds: nanoseconds / unit * unit, ..interval })
}

/// Operation on an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Scale {
    Multiply,
    Divide,
}

impl Scale {
    fn name(self) -> &'static str {
        match self {
            Self::Multiply => "interval_multiply",
            Self::Divide => "interval_divide",
        }
    }

    /// Scales row by row, exactly for factors of type Int64, in doubles for Float64.
    fn each<T: ArrowPrimitiveType>(
        self,
        values: &dyn Array,
        factors: &dyn Array,
        exactly: fn(Self, T::Native, i64) -> Result<T::Native, ArrowError>,
        rounded: fn(Self, T::Native, f64) -> Result<T::Native, ArrowError>,
    ) -> Result<ArrayRef, ArrowError> {
        let values = values.as_primitive::<T>().iter();
        let scaled: Result<PrimitiveArray<T>, ArrowError> = match factors.data_type() {
            DataType::Int64 => values
                .zip(factors.as_primitive::<Int64Type>())
                .map(|(value, factor)| {
                    value
                        .zip(factor)
                        .map(|(value, factor)| exactly(self, value, factor))
                        .transpose()
                })
                .collect(),
            _ => values
                .zip(factors.as_primitive::<Float64Type>())
                .map(|(value, factor)| {
                    value
                        .zip(factor)
                        .map(|(value, factor)| rounded(self, value, factor))
                        .transpose()
                })
                .collect(),
        };
        Ok(Arc::new(scaled?))
    }

    fn scaled(self, part: f64, factor: f64) -> Result<f64, ArrowError> {
        match self {
            Self::Multiply => Ok(part * factor),
            Self::Divide if factor == 0.0 => Err(ArrowError::DivideByZero),
            Self::Divide => Ok(part / factor),
        }
    }

    /// Scales the ticks of a duration exactly, a quotient to the nearest tick.
    fn count_exactly(self, ticks: i64, factor: i64) -> Result<i64, ArrowError> {
        let scaled = match self {
            Self::Multiply => ticks.checked_mul(factor),
            Self::Divide if factor == 0 => return Err(ArrowError::DivideByZero),
            Self::Divide => {
                let (ticks, factor) = (i128::from(ticks), i128::from(factor));
                i64::try_from((ticks + ticks.signum() * (factor.abs() / 2)) / factor).ok()
            }
        };
        scaled.ok_or_else(out_of_range)
    }

    fn count_about(self, ticks: i64, factor: f64) -> Result<i64, ArrowError> {
        #[expect(clippy::cast_precision_loss, reason = "as exact as the factor")]
        large(self.scaled(ticks as f64, factor)?.round())
    }

    fn exactly(
        self,
        interval: IntervalMonthDayNano,
        factor: i64,
    ) -> Result<IntervalMonthDayNano, ArrowError> {
        if self == Self::Divide {
            #[expect(
                clippy::cast_precision_loss,
                reason = "a double keeps 16 digits of the divisor"
            )]
            return self.about(interval, factor as f64);
        }
        let factor = i128::from(factor);
        let months = i32::try_from(i128::from(interval.months) * factor);
        let days = i32::try_from(i128::from(interval.days) * factor);
        let nanoseconds = i64::try_from(i128::from(interval.nanoseconds) * factor);
        match (months, days, nanoseconds) {
            (Ok(months), Ok(days), Ok(nanoseconds)) => {
                Ok(IntervalMonthDayNano { months, days, nanoseconds })
            }
            _ => Err(out_of_range()),
        }
    }

    fn about(
        self,
        interval: IntervalMonthDayNano,
        factor: f64,
    ) -> Result<IntervalMonthDayNano, ArrowError> {
        let months = self.scaled(f64::from(interval.months), factor)?;
        let days = self.scaled(f64::from(interval.days), factor)?;
        #[expect(clippy::cast_precision_loss, reason = "as exact as the factor")]
        let nanoseconds = self.scaled(interval.nanoseconds as f64, factor)?;
        let days_of_months = rounded(months.fract() * DAYS_OF_MONTH);
        let seconds = rounded((days.fract() + days_of_months.fract()) * SECONDS_OF_DAY);
        let carried = (seconds / SECONDS_OF_DAY).trunc();
        let nanoseconds = nanoseconds + (seconds - carried * SECONDS_OF_DAY) * NANOS_OF_SECOND;
        // As in PostgreSQL the result has microseconds, unless the interval itself is finer.
        let is_fine = interval.nanoseconds % NANOS_OF_MICRO != 0;
        let tick = if is_fine { 1.0 } else { NANOS_OF_TICK };
        Ok(IntervalMonthDayNano {
            months: small(months.trunc())?,
            days: small(days.trunc() + days_of_months.trunc() + carried)?,
            nanoseconds: large((nanoseconds / tick).round() * tick)?,
        })
    }
}

/// An interval divided by a number of rows, as by `/`.
pub(crate) fn divided(
    interval: IntervalMonthDayNano,
    rows: u64,
) -> Result<IntervalMonthDayNano, ArrowError> {
    Scale::Divide.exactly(interval, i64::try_from(rows).map_err(|_| out_of_range())?)
}

/// Returns true for types that the functions scale.
fn is_scaled(data_type: &DataType) -> bool {
    *data_type == INTERVAL || matches!(data_type, DataType::Duration(_))
}

fn rounded(value: f64) -> f64 {
    (value * PART).round() / PART
}

fn small(value: f64) -> Result<i32, ArrowError> {
    if !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&value) {
        return Err(out_of_range());
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked above")]
    Ok(value as i32)
}

fn large(value: f64) -> Result<i64, ArrowError> {
    // The double next to 2^63 is 2^63 itself, which does not fit.
    const END: f64 = 9_223_372_036_854_775_808.0;
    if !(-END..END).contains(&value) {
        return Err(out_of_range());
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked above")]
    Ok(value as i64)
}

fn out_of_range() -> ArrowError {
    datetime_overflow("interval")
}

/// A function that replaces an operator: it takes an interval and a number, in this order.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Scaled {
    scale: Scale,
    signature: Signature,
}

impl ScalarUDFImpl for Scaled {
    fn name(&self) -> &str {
        self.scale.name()
    }

    fn schema_name(&self, arguments: &[Expr]) -> Result<String> {
        let [interval, factor] = arguments else {
            return exec_err!("{} takes two arguments", self.name());
        };
        let sign = if self.scale == Scale::Multiply { '*' } else { '/' };
        Ok(format!("{} {sign} {}", interval.schema_name(), factor.schema_name()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [data_type, DataType::Int64 | DataType::Float64] if is_scaled(data_type) => {
                Ok(data_type.clone())
            }
            _ => exec_err!("{} takes an interval and a number, not {types:?}", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [intervals, factors] = arrays.as_slice() else {
            return exec_err!("{} takes two arguments", self.name());
        };
        let scaled = match intervals.data_type() {
            DataType::Duration(_) => {
                let counts = cast(intervals, &DataType::Int64)?;
                let (exactly, rounded) = (Scale::count_exactly, Scale::count_about);
                let scaled = self.scale.each::<Int64Type>(&counts, factors, exactly, rounded)?;
                cast(&scaled, intervals.data_type())?
            }
            _ => self.scale.each::<IntervalMonthDayNanoType>(
                intervals,
                factors,
                Scale::exactly,
                Scale::about,
            )?,
        };
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&scaled, 0)?));
        }
        Ok(ColumnarValue::Array(scaled))
    }
}

/// Replaces the operators by the functions.
#[derive(Debug)]
pub struct ScaledIntervals;

impl ExprPlanner for ScaledIntervals {
    fn plan_binary_op(
        &self,
        raw: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let scale = match raw.op {
            BinaryOperator::Multiply => Scale::Multiply,
            BinaryOperator::Divide => Scale::Divide,
            _ => return Ok(PlannerResult::Original(raw)),
        };
        // The interval may be on either side of `*`, but only on the left of `/`.
        let is_interval = |expr: &Expr| {
            expr.get_type(schema).is_ok_and(|data_type| {
                matches!(data_type, DataType::Interval(_) | DataType::Duration(_))
            })
        };
        let (interval, factor) = if is_interval(&raw.left) {
            (&raw.left, &raw.right)
        } else if scale == Scale::Multiply && is_interval(&raw.right) {
            (&raw.right, &raw.left)
        } else {
            return Ok(PlannerResult::Original(raw));
        };
        let Some(factor) = number(factor, schema) else { return Ok(PlannerResult::Original(raw)) };
        let Some(function) = REGISTRY.scalar.get(scale.name()) else {
            return exec_err!("{} is not registered", scale.name());
        };
        let interval = match interval.get_type(schema)? {
            DataType::Duration(_) if scale == Scale::Divide => interval.clone(),
            _ => as_type(interval.clone(), &INTERVAL, schema),
        };
        let call = ScalarFunction::new_udf(Arc::clone(function), vec![interval, factor]);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }
}

/// Returns a number that can scale an interval, cast to a type that the functions take.
fn number(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    // PostgreSQL, too, reads a parameter without a type as a double here.
    if let Expr::Placeholder(Placeholder { id, field: None }) = expr {
        let field = Arc::new(Field::new(id, DataType::Float64, true));
        return Some(Expr::Placeholder(Placeholder::new_with_field(id.clone(), Some(field))));
    }
    let data_type = expr.get_type(schema).ok()?;
    if data_type.is_integer() {
        Some(as_type(expr.clone(), &DataType::Int64, schema))
    } else if data_type.is_numeric() || data_type.is_null() {
        Some(as_type(expr.clone(), &DataType::Float64, schema))
    } else {
        None
    }
}

fn as_type(expr: Expr, target: &DataType, schema: &DFSchema) -> Expr {
    if expr.get_type(schema).is_ok_and(|data_type| data_type == *target) {
        return expr;
    }
    Expr::Cast(Cast::new(Box::new(expr), target.clone()))
}

#[cfg(test)]
mod tests {
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::error::DataFusionError;
    use datafusion::execution::{FunctionRegistry, SessionStateBuilder};
    use datafusion::prelude::{SessionConfig, SessionContext};
    use proptest::prelude::{any, proptest};

    use super::*;
    use crate::SqlError;

    async fn answer(sql: &str) -> std::result::Result<String, (String, String)> {
        let mut state = SessionStateBuilder::new()
            .with_config(SessionConfig::new().with_target_partitions(1))
            .with_expr_planners(vec![Arc::new(ScaledIntervals)])
            .with_default_features()
            .build();
        for function in functions() {
            let _none = state.register_udf(Arc::new(function)).unwrap();
        }
        let told = |error: DataFusionError| {
            let error = SqlError::from(error);
            (error.sqlstate, error.message)
        };
        let frame = SessionContext::new_with_state(state).sql(sql).await.map_err(told)?;
        let batches = frame.collect().await.map_err(told)?;
        Ok(pretty_format_batches(&batches).unwrap().to_string())
    }

    /// Returns true if both expressions have the same value.
    async fn same(one: &str, other: &str) {
        let (one, other) = (format!("SELECT {one} AS a"), format!("SELECT {other} AS a"));
        let value = answer(&one).await;
        assert!(value.is_ok(), "{one}: {value:?}");
        assert_eq!(value, answer(&other).await, "{one}");
    }

    #[tokio::test]
    async fn intervals_are_scaled_as_postgresql_scales_them() {
        for (expression, interval) in [
            ("5 * INTERVAL '1 second'", "5 seconds"),
            ("INTERVAL '1 day' * 3", "3 days"),
            ("INTERVAL '1 month 2 days 3 hours' * -2", "-2 months -4 days -6 hours"),
            ("1.5 * INTERVAL '1 month 1 day'", "1 month 16 days 12 hours"),
            ("INTERVAL '1 month' * 0.1", "3 days"),
            ("INTERVAL '1 day' * 0.25", "6 hours"),
            ("INTERVAL '1 hour' / 2", "30 minutes"),
            ("INTERVAL '1 year' / 5", "2 months 12 days"),
            ("INTERVAL '7 days' / 2", "3 days 12 hours"),
            ("INTERVAL '5 seconds' / 3", "1.666667 seconds"),
            ("INTERVAL '5 nanoseconds' / 2", "3 nanoseconds"),
            ("interval_rounded(INTERVAL '1.23456 seconds', 2)", "1.23 seconds"),
            ("interval_rounded(INTERVAL '-1.5 seconds', 0)", "-2 seconds"),
            ("CAST(1700000000123 AS BIGINT) * INTERVAL '1 millisecond'", "1700000000.123 seconds"),
            ("CAST(2.5 AS DECIMAL(5, 1)) * INTERVAL '2 minutes'", "5 minutes"),
            ("INTERVAL '1 second' * (1 + 1) * 2", "4 seconds"),
        ] {
            same(expression, &format!("INTERVAL '{interval}'")).await;
        }
    }

    #[tokio::test]
    async fn a_scaled_interval_takes_part_in_times_and_in_rows() {
        same(
            "TIMESTAMP '2024-01-01' + 90 * INTERVAL '1 minute'",
            "TIMESTAMP '2024-01-01 01:30:00'",
        )
        .await;
        let rows = "SELECT n * INTERVAL '1 minute' AS a FROM (VALUES (1), (NULL), (3)) t(n)";
        let single =
            "SELECT * FROM (VALUES (INTERVAL '1 minute'), (NULL), (INTERVAL '3 minutes')) t(a)";
        assert_eq!(answer(rows).await.unwrap(), answer(single).await.unwrap());
        let day = "(TIMESTAMP '2024-01-02' - TIMESTAMP '2024-01-01')";
        same(&format!("{day} / 4"), "TIMESTAMP '2024-01-01 06:00:00' - TIMESTAMP '2024-01-01'")
            .await;
        // Only the frontend's analysis gives the difference its days.
        same(&format!("3 * {day}"), "INTERVAL '72 hours'").await;
        same(&format!("{day} * 1.5"), "INTERVAL '36 hours'").await;
        let seconds = "(TIMESTAMP '2024-01-01 00:00:05' - TIMESTAMP '2024-01-01')";
        let rounded = "(TIMESTAMP '2024-01-01 00:00:01.666666667' - TIMESTAMP '2024-01-01')";
        same(&format!("{seconds} / 3"), rounded).await;
        same("NULL * INTERVAL '1 day'", "CAST(NULL AS INTERVAL)").await;
    }

    #[tokio::test]
    async fn what_does_not_fit_is_an_error_with_a_state_of_its_own() {
        for (expression, state) in [
            ("INTERVAL '1 day' * 3000000000", "22008"),
            ("INTERVAL '1 second' * 10000000000", "22008"),
            ("INTERVAL '1 month' * 1e12", "22008"),
            ("INTERVAL '1 second' * CAST('NaN' AS DOUBLE)", "22008"),
            ("INTERVAL '1 day' / 0", "22012"),
            ("INTERVAL '1 day' / 0.0", "22012"),
            ("(TIMESTAMP '2024-01-02' - TIMESTAMP '2024-01-01') / 0", "22012"),
            ("(TIMESTAMP '2024-01-02' - TIMESTAMP '2024-01-01') * 1000000", "22008"),
        ] {
            let (told, message) = answer(&format!("SELECT {expression}")).await.unwrap_err();
            assert_eq!(told, state, "{expression}: {message}");
        }
    }

    proptest! {
        /// Small enough for doubles to be exact.
        #[test]
        fn a_whole_number_scales_the_same_whether_it_is_an_integer_or_a_double(
            months in -1_000_i32..1_000, days in -1_000_i32..1_000,
            nanoseconds in -1_000_000_000_000_i64..1_000_000_000_000, by in -1_000_i32..1_000,
        ) {
            let of = IntervalMonthDayNano { months, days, nanoseconds };
            let exact = Scale::Multiply.exactly(of, i64::from(by)).unwrap();
            assert_eq!(Scale::Multiply.about(of, f64::from(by)).unwrap(), exact);
        }

        #[test]
        fn no_number_makes_it_panic(
            months in any::<i32>(), days in any::<i32>(), nanoseconds in any::<i64>(),
            by in any::<f64>(), whole in any::<i64>(),
        ) {
            let of = IntervalMonthDayNano { months, days, nanoseconds };
            for scale in [Scale::Multiply, Scale::Divide] {
                let _either = (scale.about(of, by), scale.exactly(of, whole));
                let _either =
                    (scale.count_about(nanoseconds, by), scale.count_exactly(nanoseconds, whole));
            }
        }
    }
}
