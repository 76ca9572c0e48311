//! Differences of times as intervals.
//!
//! The difference of two times is a duration, which counts ticks. PostgreSQL's has days and a time, `57 days 04:30:00`, and
//! so results show it. Where a difference becomes an interval, it gets its days as well:
//!
//! ```text
//!   (a - b) + INTERVAL '1 year'     interval_of_difference(a - b) + ..       coercion casts it (`interval_text.rs`)
//!   justify_days(a - b)             justify_days(interval_of_difference(a - b))
//!   sum(a - b), avg(a - b)          days and times are added each on its own ([`SummedDifferences`])
//! ```

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, IntervalMonthDayNanoArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNano, IntervalUnit};
use arrow::error::ArrowError;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, ScalarUDF};

use crate::civil::per_second;
use crate::error::datetime_overflow;
use crate::plain::Plain;

/// Name of the function that replaces casts; nodes know it too.
pub(crate) const OF_DIFFERENCE: &str = "interval_of_difference";

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const SECONDS_OF_DAY: i64 = 86_400;
const NANOS_OF_SECOND: i64 = 1_000_000_000;

/// The function to register.
pub(crate) fn function() -> ScalarUDF {
    AS_INTERVAL.function()
}

/// `interval_of_difference(duration)`: an interval of days and a time.
static AS_INTERVAL: Plain = Plain {
    name: OF_DIFFERENCE,
    takes: |types| match types {
        [duration @ DataType::Duration(_)] => Some(vec![duration.clone()]),
        _ => None,
    },
    gives: |_| INTERVAL,
    run: |arguments| intervals_of_spans(&arguments[0]),
};

/// Intervals from durations and from intervals of any unit. The days and the time of a duration have its sign.
///
/// # Errors
/// When the values have another type, or a duration has more days than an interval.
pub(crate) fn intervals_of_spans(spans: &ArrayRef) -> Result<ArrayRef> {
    let DataType::Duration(unit) = spans.data_type() else { return Ok(cast(spans, &INTERVAL)?) };
    let second = per_second(*unit);
    let day = second * SECONDS_OF_DAY;
    let interval = |ticks: i64| match i32::try_from(ticks / day) {
        Ok(days) => {
            let nanoseconds = ticks % day * (NANOS_OF_SECOND / second);
            Ok(IntervalMonthDayNano::new(0, days, nanoseconds))
        }
        Err(_) => Err(datetime_overflow("interval")),
    };
    let ticks = cast(spans, &DataType::Int64)?;
    let intervals = ticks.as_primitive::<Int64Type>().iter();
    let intervals = intervals.map(|ticks| ticks.map(interval).transpose());
    Ok(Arc::new(intervals.collect::<Result<IntervalMonthDayNanoArray, ArrowError>>()?))
}

/// Makes sums and averages of differences of times those of intervals; to be applied before types are coerced.
#[derive(Debug)]
pub struct SummedDifferences;

impl FunctionRewrite for SummedDifferences {
    fn name(&self) -> &'static str {
        "summed_differences"
    }

    fn rewrite(
        &self,
        expression: Expr,
        schema: &DFSchema,
        _: &ConfigOptions,
    ) -> Result<Transformed<Expr>> {
        Ok(match expression {
            Expr::AggregateFunction(mut call) => {
                // DISTINCT takes no intervals.
                let is_summed = is_sum(call.func.name()) && !call.params.distinct;
                let changed = is_summed && cast_differences(&mut call.params.args, schema);
                Transformed::new_transformed(Expr::AggregateFunction(call), changed)
            }
            Expr::WindowFunction(mut call) => {
                let is_summed = is_sum(call.fun.name()) && !call.params.distinct;
                let changed = is_summed && cast_differences(&mut call.params.args, schema);
                Transformed::new_transformed(Expr::WindowFunction(call), changed)
            }
            expression => Transformed::no(expression),
        })
    }
}

fn is_sum(name: &str) -> bool {
    matches!(name, "avg" | "sum")
}

/// Casts durations to intervals; returns true if there is one.
fn cast_differences(arguments: &mut [Expr], schema: &DFSchema) -> bool {
    let mut changed = false;
    for argument in arguments {
        let data_type = argument.get_type(schema);
        if data_type.is_ok_and(|data_type| matches!(data_type, DataType::Duration(_))) {
            *argument = Expr::Cast(Cast::new(Box::new(argument.clone()), INTERVAL));
            changed = true;
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use arrow::array::{DurationMillisecondArray, DurationSecondArray};
    use arrow::datatypes::IntervalMonthDayNanoType;

    use super::*;

    #[test]
    fn a_duration_has_days_and_a_time() {
        let millis = [Some(4_941_000_001), Some(-90_000_500), Some(86_399_999), Some(0), None];
        let durations: ArrayRef = Arc::new(DurationMillisecondArray::from(millis.to_vec()));
        let intervals = intervals_of_spans(&durations).unwrap();
        let intervals: Vec<_> =
            intervals.as_primitive::<IntervalMonthDayNanoType>().iter().collect();
        let expected = [
            Some(IntervalMonthDayNano::new(0, 57, 16_200_001_000_000)),
            Some(IntervalMonthDayNano::new(0, -1, -3_600_500_000_000)),
            Some(IntervalMonthDayNano::new(0, 0, 86_399_999_000_000)),
            Some(IntervalMonthDayNano::new(0, 0, 0)),
            None,
        ];
        assert_eq!(intervals, expected);
    }

    #[test]
    fn more_days_than_an_interval_has_are_an_error() {
        let durations: ArrayRef = Arc::new(DurationSecondArray::from(vec![i64::MAX]));
        assert!(intervals_of_spans(&durations).is_err());
    }
}
