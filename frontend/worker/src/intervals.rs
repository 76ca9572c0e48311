//! `INTERVAL '1 second' * n`, `n * INTERVAL '1 second'`, `INTERVAL '1 hour' / n` and `(b.ts - a.ts) / n`.
//!
//! DataFusion adds intervals and does not scale them; clients of PostgreSQL do, to say "the last `$1` minutes" and to
//! read times that are stored as numbers (`to_timestamp(0) + ms * INTERVAL '1 millisecond'`). [`ScaledIntervals`] puts
//! a function in the operator's place while the statement is planned; it runs at a node too, and what is constant is an
//! ordinary interval before rows are looked for. The difference of two times is a duration, and stays one.
//!
//! Invariants:
//! - a whole number multiplies exactly: months, days and nanoseconds, each by itself;
//! - what is left of a month or of a day by another number goes to the next smaller unit, a month being 30 days and a
//!   day 24 hours, as in PostgreSQL;
//! - what does not fit is an error with SQLSTATE 22003, and a division by zero one with 22012.

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

use crate::functions::REGISTRY;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const DAYS_OF_MONTH: f64 = 30.0;
const SECONDS_OF_DAY: f64 = 86_400.0;
const NANOS_OF_SECOND: f64 = 1e9;
/// Binary fractions of days and seconds are rounded to this part of one, so that 0.1 months are three days.
const PART: f64 = 1e6;

/// The functions that stand for operators.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [Scale::Multiply, Scale::Divide].into_iter().map(|scale| {
        let signature = Signature::any(2, Volatility::Immutable);
        ScalarUDF::from(Scaled { scale, signature })
    })
}

/// What is done to an interval.
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

    /// Row by row, as the number's type asks for; `by` is of 64-bit integers or of doubles.
    fn each<T: ArrowPrimitiveType>(
        self,
        of: &dyn Array,
        by: &dyn Array,
        exactly: fn(Self, T::Native, i64) -> Result<T::Native, ArrowError>,
        about: fn(Self, T::Native, f64) -> Result<T::Native, ArrowError>,
    ) -> Result<ArrayRef, ArrowError> {
        let of = of.as_primitive::<T>().iter();
        let scaled: Result<PrimitiveArray<T>, ArrowError> = match by.data_type() {
            DataType::Int64 => of
                .zip(by.as_primitive::<Int64Type>())
                .map(|(of, by)| of.zip(by).map(|(of, by)| exactly(self, of, by)).transpose())
                .collect(),
            _ => of
                .zip(by.as_primitive::<Float64Type>())
                .map(|(of, by)| of.zip(by).map(|(of, by)| about(self, of, by)).transpose())
                .collect(),
        };
        Ok(Arc::new(scaled?))
    }

    fn scaled(self, part: f64, by: f64) -> Result<f64, ArrowError> {
        match self {
            Self::Multiply => Ok(part * by),
            Self::Divide if by == 0.0 => Err(ArrowError::DivideByZero),
            Self::Divide => Ok(part / by),
        }
    }

    /// Of a duration.
    fn count_exactly(self, of: i64, by: i64) -> Result<i64, ArrowError> {
        let scaled = match self {
            Self::Multiply => of.checked_mul(by),
            Self::Divide if by == 0 => return Err(ArrowError::DivideByZero),
            Self::Divide => of.checked_div(by),
        };
        scaled.ok_or_else(out_of_range)
    }

    fn count_about(self, of: i64, by: f64) -> Result<i64, ArrowError> {
        #[expect(clippy::cast_precision_loss, reason = "as exact as the number it is scaled by")]
        large(self.scaled(of as f64, by)?.round())
    }

    fn exactly(
        self,
        of: IntervalMonthDayNano,
        by: i64,
    ) -> Result<IntervalMonthDayNano, ArrowError> {
        if self == Self::Divide {
            #[expect(
                clippy::cast_precision_loss,
                reason = "a divisor of 16 digits is near enough"
            )]
            return self.about(of, by as f64);
        }
        let by = i128::from(by);
        let months = i32::try_from(i128::from(of.months) * by);
        let days = i32::try_from(i128::from(of.days) * by);
        let nanoseconds = i64::try_from(i128::from(of.nanoseconds) * by);
        match (months, days, nanoseconds) {
            (Ok(months), Ok(days), Ok(nanoseconds)) => {
                Ok(IntervalMonthDayNano { months, days, nanoseconds })
            }
            _ => Err(out_of_range()),
        }
    }

    fn about(self, of: IntervalMonthDayNano, by: f64) -> Result<IntervalMonthDayNano, ArrowError> {
        let months = self.scaled(f64::from(of.months), by)?;
        let days = self.scaled(f64::from(of.days), by)?;
        #[expect(clippy::cast_precision_loss, reason = "as exact as the number it is scaled by")]
        let nanoseconds = self.scaled(of.nanoseconds as f64, by)?;
        let days_of_months = rounded(months.fract() * DAYS_OF_MONTH);
        let seconds = rounded((days.fract() + days_of_months.fract()) * SECONDS_OF_DAY);
        let carried = (seconds / SECONDS_OF_DAY).trunc();
        let nanoseconds = nanoseconds + (seconds - carried * SECONDS_OF_DAY) * NANOS_OF_SECOND;
        Ok(IntervalMonthDayNano {
            months: small(months.trunc())?,
            days: small(days.trunc() + days_of_months.trunc() + carried)?,
            nanoseconds: large(nanoseconds.round())?,
        })
    }
}

/// What the functions take first.
fn is_scaled(of: &DataType) -> bool {
    *of == INTERVAL || matches!(of, DataType::Duration(_))
}

fn rounded(of: f64) -> f64 {
    (of * PART).round() / PART
}

fn small(of: f64) -> Result<i32, ArrowError> {
    if !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&of) {
        return Err(out_of_range());
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked above")]
    Ok(of as i32)
}

fn large(of: f64) -> Result<i64, ArrowError> {
    // The double next to 2^63 is 2^63 itself, which does not fit any more.
    const END: f64 = 9_223_372_036_854_775_808.0;
    if !(-END..END).contains(&of) {
        return Err(out_of_range());
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked above")]
    Ok(of as i64)
}

fn out_of_range() -> ArrowError {
    ArrowError::ArithmeticOverflow("interval".to_owned())
}

/// A function that stands for an operator: an interval and a number, in this order.
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
        let [of, by] = arguments else {
            return exec_err!("{} takes two arguments", self.name());
        };
        let sign = if self.scale == Scale::Multiply { '*' } else { '/' };
        Ok(format!("{} {sign} {}", of.schema_name(), by.schema_name()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [of, DataType::Int64 | DataType::Float64] if is_scaled(of) => Ok(of.clone()),
            _ => exec_err!("{} takes an interval and a number, not {types:?}", self.name()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [of, by] = arrays.as_slice() else {
            return exec_err!("{} takes two arguments", self.name());
        };
        let scaled = match of.data_type() {
            DataType::Duration(_) => {
                let counts = cast(of, &DataType::Int64)?;
                let (exactly, about) = (Scale::count_exactly, Scale::count_about);
                let scaled = self.scale.each::<Int64Type>(&counts, by, exactly, about)?;
                cast(&scaled, of.data_type())?
            }
            _ => {
                self.scale.each::<IntervalMonthDayNanoType>(of, by, Scale::exactly, Scale::about)?
            }
        };
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&scaled, 0)?));
        }
        Ok(ColumnarValue::Array(scaled))
    }
}

/// Puts the functions in the place of operators.
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
        let is_interval = |of: &Expr| {
            of.get_type(schema)
                .is_ok_and(|of| matches!(of, DataType::Interval(_) | DataType::Duration(_)))
        };
        let (of, by) = if is_interval(&raw.left) {
            (&raw.left, &raw.right)
        } else if scale == Scale::Multiply && is_interval(&raw.right) {
            (&raw.right, &raw.left)
        } else {
            return Ok(PlannerResult::Original(raw));
        };
        let Some(by) = number(by, schema) else { return Ok(PlannerResult::Original(raw)) };
        let Some(function) = REGISTRY.scalar.get(scale.name()) else {
            return exec_err!("{} is not registered", scale.name());
        };
        let of = match of.get_type(schema)? {
            DataType::Duration(_) => of.clone(),
            _ => as_type(of.clone(), &INTERVAL, schema),
        };
        let call = ScalarFunction::new_udf(Arc::clone(function), vec![of, by]);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }
}

/// What an interval can be scaled by, as the functions take it.
fn number(of: &Expr, schema: &DFSchema) -> Option<Expr> {
    // PostgreSQL, too, takes a parameter without a type for a double here.
    if let Expr::Placeholder(Placeholder { id, field: None }) = of {
        let field = Arc::new(Field::new(id, DataType::Float64, true));
        return Some(Expr::Placeholder(Placeholder::new_with_field(id.clone(), Some(field))));
    }
    let has = of.get_type(schema).ok()?;
    if has.is_integer() {
        Some(as_type(of.clone(), &DataType::Int64, schema))
    } else if has.is_numeric() || has.is_null() {
        Some(as_type(of.clone(), &DataType::Float64, schema))
    } else {
        None
    }
}

fn as_type(of: Expr, wanted: &DataType, schema: &DFSchema) -> Expr {
    if of.get_type(schema).is_ok_and(|has| has == *wanted) {
        return of;
    }
    Expr::Cast(Cast::new(Box::new(of), wanted.clone()))
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

    /// Whether both expressions have one value.
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
        same(&format!("3 * {day}"), "TIMESTAMP '2024-01-04' - TIMESTAMP '2024-01-01'").await;
        same(&format!("{day} * 1.5"), "TIMESTAMP '2024-01-02 12:00:00' - TIMESTAMP '2024-01-01'")
            .await;
        same("NULL * INTERVAL '1 day'", "CAST(NULL AS INTERVAL)").await;
    }

    #[tokio::test]
    async fn what_does_not_fit_is_an_error_with_a_state_of_its_own() {
        for (expression, state) in [
            ("INTERVAL '1 day' * 3000000000", "22003"),
            ("INTERVAL '1 second' * 10000000000", "22003"),
            ("INTERVAL '1 month' * 1e12", "22003"),
            ("INTERVAL '1 second' * CAST('NaN' AS DOUBLE)", "22003"),
            ("INTERVAL '1 day' / 0", "22012"),
            ("INTERVAL '1 day' / 0.0", "22012"),
            ("(TIMESTAMP '2024-01-02' - TIMESTAMP '2024-01-01') / 0", "22012"),
            ("(TIMESTAMP '2024-01-02' - TIMESTAMP '2024-01-01') * 1000000", "22003"),
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
