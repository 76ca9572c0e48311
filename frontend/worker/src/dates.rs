//! Sums and differences of dates, as in PostgreSQL.
//!
//! In DataFusion, a date plus an interval is a date, which drops the hours, and the difference of two dates is a
//! duration. [`DateArithmetic`] plans them otherwise:
//!
//! ```text
//!   date + interval, interval + date, date - interval    a timestamp
//!   date - date                                          a whole number of days
//!   time of seconds + interval with fractions of them    a time of microseconds
//!   date + time of day, time of day + date               a timestamp
//!   time of day - time of day                            an interval
//! ```
//!
//! A text or a parameter without a type is an interval beside an interval, and where it is added to a time; subtracted
//! from a time it is a time.
//!
//! A date in such a sum is cast to microseconds: their range holds every date, that of nanoseconds does not.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use arrow::error::ArrowError;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, Operator};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::interval_text;

const TIME: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
/// A time of day.
const OF_DAY: DataType = DataType::Time64(TimeUnit::Microsecond);
const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Plans sums and differences of dates; see the head of the file.
#[derive(Debug)]
pub struct DateArithmetic;

impl ExprPlanner for DateArithmetic {
    fn plan_binary_op(
        &self,
        mut raw: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let minus = match raw.op {
            BinaryOperator::Plus => false,
            BinaryOperator::Minus => true,
            _ => return Ok(PlannerResult::Original(raw)),
        };
        if is_untyped(&raw.right) {
            if let Some(data_type) = beside(raw.left.get_type(schema), minus) {
                raw.right = typed(raw.right, data_type)?;
            }
        } else if is_untyped(&raw.left)
            && let Some(data_type) = beside(raw.right.get_type(schema), minus)
        {
            raw.left = typed(raw.left, data_type)?;
        }
        // A chain of operators nests on the left, so the type of the left operand is computed only where it matters.
        let right = raw.right.get_type(schema);
        let left = match right {
            Ok(
                DataType::Date32
                | DataType::Interval(_)
                | DataType::Timestamp(..)
                | DataType::Time64(_),
            ) => raw.left.get_type(schema),
            _ => return Ok(PlannerResult::Original(raw)),
        };
        match (left, right) {
            (Ok(DataType::Date32), Ok(DataType::Interval(_))) => raw.left = cast(raw.left, TIME),
            (Ok(DataType::Interval(_)), Ok(DataType::Date32)) if !minus => {
                raw.right = cast(raw.right, TIME);
            }
            // A coarse time plus an interval with finer parts: the sum needs the finer unit.
            (Ok(DataType::Timestamp(unit, zone)), Ok(DataType::Interval(_)))
                if is_finer(&raw.right, unit) =>
            {
                raw.left = cast(raw.left, DataType::Timestamp(TimeUnit::Microsecond, zone));
            }
            (Ok(DataType::Interval(_)), Ok(DataType::Timestamp(unit, zone)))
                if !minus && is_finer(&raw.left, unit) =>
            {
                raw.right = cast(raw.right, DataType::Timestamp(TimeUnit::Microsecond, zone));
            }
            (Ok(DataType::Date32), Ok(DataType::Date32)) if minus => {
                let days = |date| Box::new(cast(date, DataType::Int32));
                let difference = BinaryExpr::new(days(raw.left), Operator::Minus, days(raw.right));
                return Ok(PlannerResult::Planned(Expr::BinaryExpr(difference)));
            }
            (Ok(DataType::Date32), Ok(OF_DAY)) if !minus => {
                (raw.left, raw.right) = (cast(raw.left, TIME), since_midnight(raw.right));
            }
            (Ok(OF_DAY), Ok(DataType::Date32)) if !minus => {
                (raw.left, raw.right) = (since_midnight(raw.left), cast(raw.right, TIME));
            }
            (Ok(OF_DAY), Ok(OF_DAY)) if minus => {
                let micros = |time| Box::new(cast(time, DataType::Int64));
                let (left, right) = (micros(raw.left), micros(raw.right));
                let difference = Expr::BinaryExpr(BinaryExpr::new(left, Operator::Minus, right));
                let span = cast(difference, DataType::Duration(TimeUnit::Microsecond));
                return Ok(PlannerResult::Planned(cast(span, INTERVAL)));
            }
            _ => {}
        }
        Ok(PlannerResult::Original(raw))
    }
}

/// Returns true for a text and for a parameter whose type is not known.
fn is_untyped(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.data_type().is_string(),
        Expr::Placeholder(placeholder) => placeholder.field.is_none(),
        _ => false,
    }
}

/// Type of an operand without one, by the type of the other operand.
fn beside(other: Result<DataType>, minus: bool) -> Option<DataType> {
    match other {
        Ok(DataType::Interval(_)) => Some(INTERVAL),
        Ok(DataType::Timestamp(..)) if !minus => Some(INTERVAL),
        Ok(time @ DataType::Timestamp(..)) => Some(time),
        _ => None,
    }
}

/// A text or a parameter with a type.
fn typed(expr: Expr, data_type: DataType) -> Result<Expr> {
    match expr {
        Expr::Placeholder(Placeholder { id, field: None }) => {
            let field = Arc::new(Field::new(&id, data_type, true));
            Ok(Expr::Placeholder(Placeholder::new_with_field(id, Some(field))))
        }
        Expr::Literal(ref value, _) if data_type == INTERVAL => {
            let Some(Some(text)) = value.try_as_str() else { return Ok(cast(expr, data_type)) };
            let Some(interval) = interval_text::parse(text) else {
                let message = format!("invalid input syntax for type interval: \"{text}\"");
                return Err(ArrowError::ParseError(message).into());
            };
            Ok(Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), None))
        }
        expr => Ok(cast(expr, data_type)),
    }
}

/// The span from midnight to a time of day.
fn since_midnight(time: Expr) -> Expr {
    cast(cast(time, DataType::Int64), DataType::Duration(TimeUnit::Microsecond))
}

/// Returns true if an interval may have parts finer than the unit of a time.
fn is_finer(interval: &Expr, unit: TimeUnit) -> bool {
    let nanos = match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond | TimeUnit::Nanosecond => return false,
    };
    match interval {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _) => {
            interval.nanoseconds % nanos != 0
        }
        _ => true,
    }
}

fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr), data_type))
}

#[cfg(test)]
mod tests {
    use arrow::util::display::array_value_to_string;
    use datafusion::execution::SessionStateBuilder;
    use datafusion::prelude::SessionContext;

    use super::*;

    #[tokio::test]
    async fn a_date_and_an_interval_are_a_time_and_two_dates_are_days() {
        let state = SessionStateBuilder::new()
            .with_expr_planners(vec![Arc::new(DateArithmetic)])
            .with_default_features()
            .build();
        let sql = "SELECT DATE '2024-12-31' + INTERVAL '36 hours', INTERVAL '1 month' + DATE '2024-01-31', \
                   DATE '2024-12-31' - INTERVAL '1 minute', DATE '9999-12-31' + INTERVAL '1 day', \
                   DATE '2024-03-01' - DATE '2024-02-01', DATE '2024-02-28' + 2";
        let rows = SessionContext::new_with_state(state).sql(sql).await.unwrap();
        let rows = rows.collect().await.unwrap();
        let values = rows[0].columns().iter();
        let values: Vec<_> =
            values.map(|column| array_value_to_string(column, 0).unwrap()).collect();
        let expected = [
            "2025-01-01T12:00:00",
            "2024-02-29T00:00:00",
            "2024-12-30T23:59:00",
            "+10000-01-01T00:00:00",
            "29",
            "2024-03-01",
        ];
        assert_eq!(values, expected);
    }
}
