//! `date_trunc` and `date_bin`, as DataFusion has them, but for times that ascend.
//!
//! Both are steps: what lies between two times of one step is of that step too. Times come in key order, so that they
//! ascend through many rows of one step, and of a stretch of such rows the first and the last one say it all. A division
//! a row was a quarter of an hourly average.
//!
//! Invariants:
//! - every value is one that DataFusion's function gave for the same time, or for one before and one after it;
//! - time zones in which days differ in length, NULLs and everything else but a column of times with fixed arguments are
//!   DataFusion's whole.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result;
use datafusion::functions::datetime::{date_bin, date_trunc};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use crate::inner::like_inner;

/// Rows of which the first and the last are looked at.
const STRETCH: usize = 32;
/// With fewer rows it is not worth the while.
const ROWS_MIN: usize = 256;

/// The functions, under DataFusion's names.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [date_trunc(), date_bin()].into_iter().map(|inner| ScalarUDF::from(Steps { inner }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Steps {
    inner: Arc<ScalarUDF>,
}

impl Steps {
    fn inner(&self) -> &dyn ScalarUDFImpl {
        self.inner.inner().as_ref()
    }

    /// What DataFusion makes of other times; `None` if of any of them it makes NULL.
    fn at(&self, args: &ScalarFunctionArgs, times: Vec<i64>) -> Result<Option<Stepped>> {
        let number_rows = times.len();
        let times = cast(&Int64Array::from(times), &args.args[1].data_type())?;
        let mut args = args.clone();
        args.args[1] = ColumnarValue::Array(times);
        args.number_rows = number_rows;
        let made = self.inner().invoke_with_args(args)?.into_array(number_rows)?;
        if made.null_count() > 0 || !matches!(made.data_type(), DataType::Timestamp(..)) {
            return Ok(None);
        }
        let ticks = cast(&made, &DataType::Int64)?.as_primitive::<Int64Type>().clone();
        Ok(Some(Stepped { ticks, of: made.data_type().clone() }))
    }

    /// The steps of times; `None` if too few of them lie together.
    fn of(&self, args: &ScalarFunctionArgs, times: &[i64]) -> Result<Option<ArrayRef>> {
        let ascending: Vec<bool> = times.chunks(STRETCH).map(<[i64]>::is_sorted).collect();
        let ends = times.chunks(STRETCH).zip(&ascending).filter(|(_, ascending)| **ascending);
        let ends: Vec<i64> =
            ends.flat_map(|(stretch, _)| [stretch[0], stretch[stretch.len() - 1]]).collect();
        let few = |stretches: usize| stretches < ascending.len().div_ceil(2);
        if few(ends.len() / 2) {
            return Ok(None);
        }
        let Some(Stepped { ticks: ends, of }) = self.at(args, ends)? else { return Ok(None) };
        // Of each stretch, the step that all of it is of.
        let mut ends = ends.values().as_chunks::<2>().0.iter();
        let of_one = ascending.iter().map(|ascending| match ascending {
            true => ends.next().filter(|[first, last]| first == last).map(|[step, _]| *step),
            false => None,
        });
        let of_one: Vec<Option<i64>> = of_one.collect();
        if few(of_one.iter().flatten().count()) {
            return Ok(None);
        }
        let others = times.chunks(STRETCH).zip(&of_one).filter(|(_, step)| step.is_none());
        let others: Vec<i64> = others.flat_map(|(stretch, _)| stretch.iter().copied()).collect();
        let Some(Stepped { ticks: others, .. }) = self.at(args, others)? else { return Ok(None) };
        let mut others = others.values().iter().copied();
        let mut steps = Vec::with_capacity(times.len());
        for (stretch, step) in times.chunks(STRETCH).zip(of_one) {
            match step {
                Some(step) => steps.resize(steps.len() + stretch.len(), step),
                None => steps.extend(others.by_ref().take(stretch.len())),
            }
        }
        Ok(Some(cast(&Int64Array::from(steps), &of)?))
    }
}

/// Values of a function, and their type.
struct Stepped {
    ticks: Int64Array,
    of: DataType,
}

/// Whether steps of times in this zone begin when they begin in UTC, and days are of one length.
pub fn in_utc(zone: Option<&str>) -> bool {
    zone.is_none_or(|zone| matches!(zone, "UTC" | "+00:00" | "Z"))
}

/// The times of a call of one of the functions, when nothing else differs from row to row.
fn times(args: &ScalarFunctionArgs) -> Option<Int64Array> {
    let [ColumnarValue::Scalar(_), ColumnarValue::Array(times), others @ ..] = &args.args[..]
    else {
        return None;
    };
    let fixed = others.iter().all(|other| matches!(other, ColumnarValue::Scalar(_)));
    let in_utc = match times.data_type() {
        DataType::Timestamp(_, zone) => in_utc(zone.as_deref()),
        _ => false,
    };
    if !fixed || !in_utc || times.null_count() > 0 || times.len() < ROWS_MIN {
        return None;
    }
    Some(cast(times, &DataType::Int64).ok()?.as_primitive::<Int64Type>().clone())
}

impl ScalarUDFImpl for Steps {
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(times) = times(&args)
            && let Some(steps) = self.of(&args, times.values())?
        {
            return Ok(ColumnarValue::Array(steps));
        }
        self.inner().invoke_with_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner().simplify(args, info)
    }

    like_inner!();
}

#[cfg(test)]
mod tests {
    use arrow::array::TimestampNanosecondArray;
    use arrow::datatypes::{Field, FieldRef, IntervalMonthDayNano};
    use datafusion::common::ScalarValue;
    use datafusion::config::ConfigOptions;
    use datafusion::logical_expr::ReturnFieldArgs;
    use proptest::prelude::*;

    use super::times as times_of;
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// What a function makes of times after the first argument.
    fn made(function: &ScalarUDF, first: &ScalarValue, times: &ArrayRef) -> Result<ArrayRef> {
        let types = [first.data_type(), times.data_type().clone()];
        let fields: Vec<FieldRef> = types
            .iter()
            .map(|of| Arc::new(Field::new("a", of.clone(), true)) as FieldRef)
            .collect();
        let return_field = function.return_field_from_args(ReturnFieldArgs {
            arg_fields: &fields,
            scalar_arguments: &[Some(first), None],
        })?;
        let args = ScalarFunctionArgs {
            args: vec![
                ColumnarValue::Scalar(first.clone()),
                ColumnarValue::Array(Arc::clone(times)),
            ],
            arg_fields: fields,
            number_rows: times.len(),
            return_field,
            config_options: Arc::new(ConfigOptions::new()),
        };
        function.invoke_with_args(args)?.into_array(times.len())
    }

    fn own(name: &str) -> ScalarUDF {
        functions().find(|function| function.name() == name).unwrap()
    }

    fn steps() -> Vec<(&'static str, ScalarValue)> {
        let granularities =
            ["microsecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year"];
        let mut steps: Vec<_> = granularities
            .into_iter()
            .map(|granularity| ("date_trunc", ScalarValue::from(granularity)))
            .collect();
        for (months, days, nanoseconds) in
            [(0, 0, 7 * SECOND), (0, 0, 3600 * SECOND), (0, 2, 1), (1, 0, 0)]
        {
            let interval = IntervalMonthDayNano::new(months, days, nanoseconds);
            steps.push(("date_bin", ScalarValue::IntervalMonthDayNano(Some(interval))));
        }
        steps
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn steps_are_those_of_datafusion(
            runs in prop::collection::vec((-90_000_i64..90_000, 0_i64..4000, 1_usize..500), 1..8),
            zone in prop::sample::select(vec![None, Some("UTC"), Some("+00:00"), Some("Europe/Berlin")]),
            unit in prop::sample::select(vec![
                arrow::datatypes::TimeUnit::Nanosecond,
                arrow::datatypes::TimeUnit::Second,
            ]),
        ) {
            let times = runs.iter().flat_map(|(from, step, length)| {
                (0_i64..).take(*length).map(move |at| (from * 3601 + at * step) * SECOND + at)
            });
            let times = TimestampNanosecondArray::from_iter_values(times);
            let times = cast(&times, &DataType::Timestamp(unit, zone.map(Arc::from))).unwrap();
            for (name, first) in steps() {
                let own = made(&own(name), &first, &times).unwrap();
                let inner = if name == "date_bin" { date_bin() } else { date_trunc() };
                let theirs = made(&inner, &first, &times).unwrap();
                prop_assert_eq!(&own, &theirs, "{} {}", name, first);
            }
        }
    }

    #[test]
    fn times_that_ascend_are_done_by_stretches_and_others_are_not() {
        let hour = ScalarValue::from("hour");
        let call = |times: Vec<i64>| {
            let inner = date_trunc();
            let rows = times.len();
            let times: ArrayRef = Arc::new(TimestampNanosecondArray::from(times));
            let fields: Vec<FieldRef> = vec![
                Arc::new(Field::new("a", DataType::Utf8, true)),
                Arc::new(Field::new("b", times.data_type().clone(), true)),
            ];
            let args = ScalarFunctionArgs {
                args: vec![ColumnarValue::Scalar(hour.clone()), ColumnarValue::Array(times)],
                return_field: Arc::clone(&fields[1]),
                arg_fields: fields,
                number_rows: rows,
                config_options: Arc::new(ConfigOptions::new()),
            };
            let times = times_of(&args)?;
            Steps { inner }.of(&args, times.values()).unwrap().map(|steps| steps.len())
        };
        let each = |seconds: i64| (0_i64..1000).map(move |at| at * seconds * SECOND);
        assert_eq!(call(each(10).collect()), Some(1000));
        assert_eq!(call(each(10).rev().collect()), None);
        assert_eq!(call(each(600).collect()), None, "each stretch has more than one hour");
        assert_eq!(call(each(10).take(100).collect()), None, "too few rows");
    }

    #[test]
    fn nulls_are_those_of_datafusion() {
        let times: TimestampNanosecondArray =
            (0..1000).map(|at| (at % 7 != 3).then_some(at * SECOND)).collect();
        let times: ArrayRef = Arc::new(times);
        let minute = ScalarValue::from("minute");
        let steps = made(&own("date_trunc"), &minute, &times).unwrap();
        assert_eq!(&steps, &made(&date_trunc(), &minute, &times).unwrap());
        assert_eq!(steps.null_count(), times.null_count());
    }
}
