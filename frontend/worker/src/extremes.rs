//! `max` and `min`, `greatest` and `least` of floats and of intervals.
//!
//! In PostgreSQL, NaN equals itself and is greater than any number, whatever its sign. DataFusion's groups compare by
//! `>`, which is false for NaN, so that the order of rows decides; its windows and totals compare by bits, where a
//! negative NaN is the least value and -0 is less than 0. Intervals compare by their length (`interval_order.rs`). Here
//! groups, totals and sliding windows all compare in PostgreSQL's order.
//!
//! Invariant: names, types and partial states are DataFusion's.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Float32Type, Float64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    Accumulator, ColumnarValue, GroupsAccumulator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

use crate::differences::intervals_of_spans;
use crate::interval_order::total;
use crate::sliding::TwoStacks;

/// The end of an order that an aggregate selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    Max,
    Min,
}

/// Types that are compared in this file.
trait Ordered: ArrowPrimitiveType<Native: fmt::Debug> + fmt::Debug {
    /// Values that no value is before, and that no value is after.
    const ENDS: (Self::Native, Self::Native);

    fn is_less(a: Self::Native, b: Self::Native) -> bool;
}

macro_rules! ordered_floats {
    ($($float:ty)*) => {
        $(
            impl Ordered for $float {
                const ENDS: (Self::Native, Self::Native) =
                    (Self::Native::NEG_INFINITY, Self::Native::NAN);

                fn is_less(a: Self::Native, b: Self::Native) -> bool {
                    a < b || (b.is_nan() && !a.is_nan())
                }
            }
        )*
    };
}

ordered_floats! { Float32Type Float64Type }

impl Ordered for IntervalMonthDayNanoType {
    const ENDS: (IntervalMonthDayNano, IntervalMonthDayNano) = (
        IntervalMonthDayNano { months: i32::MIN, days: i32::MIN, nanoseconds: i64::MIN },
        IntervalMonthDayNano { months: i32::MAX, days: i32::MAX, nanoseconds: i64::MAX },
    );

    fn is_less(a: IntervalMonthDayNano, b: IntervalMonthDayNano) -> bool {
        total(a) < total(b)
    }
}

impl End {
    /// Returns true if `a` is nearer to this end than `b`.
    fn is_nearer<T: Ordered>(self, a: T::Native, b: T::Native) -> bool {
        match self {
            Self::Max => T::is_less(b, a),
            Self::Min => T::is_less(a, b),
        }
    }

    fn farthest<T: Ordered>(self) -> T::Native {
        match self {
            Self::Max => T::ENDS.0,
            Self::Min => T::ENDS.1,
        }
    }

    /// Returns a function that selects the nearer of two values; the first if they are equal.
    fn nearer<T: Ordered>(self) -> fn(T::Native, T::Native) -> T::Native {
        match self {
            Self::Max => |a, b| if Self::Max.is_nearer::<T>(b, a) { b } else { a },
            Self::Min => |a, b| if Self::Min.is_nearer::<T>(b, a) { b } else { a },
        }
    }

    /// Accumulator of groups of a type; `None` where DataFusion's is correct.
    pub(crate) fn groups(self, data_type: &DataType) -> Option<Box<dyn GroupsAccumulator>> {
        fn made<T: Ordered + Send>(end: End, data_type: &DataType) -> Box<dyn GroupsAccumulator> {
            let take = move |value: &mut T::Native, candidate| {
                if end.is_nearer::<T>(candidate, *value) {
                    *value = candidate;
                }
            };
            let groups = PrimitiveGroupsAccumulator::<T, _>::new(data_type, take);
            Box::new(groups.with_starting_value(end.farthest::<T>()))
        }
        Some(match data_type {
            DataType::Float32 => made::<Float32Type>(self, data_type),
            DataType::Float64 => made::<Float64Type>(self, data_type),
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                made::<IntervalMonthDayNanoType>(self, data_type)
            }
            _ => return None,
        })
    }

    /// Accumulator of all rows of a type; `None` where DataFusion's is correct.
    pub(crate) fn total(self, data_type: &DataType) -> Option<Box<dyn Accumulator>> {
        Some(match data_type {
            DataType::Float32 => Box::new(Total::<Float32Type>::new(self, data_type)),
            DataType::Float64 => Box::new(Total::<Float64Type>::new(self, data_type)),
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                Box::new(Total::<IntervalMonthDayNanoType>::new(self, data_type))
            }
            _ => return None,
        })
    }

    /// Accumulator of a sliding window; `None` where DataFusion's is correct.
    pub(crate) fn sliding(self, data_type: &DataType) -> Option<Box<dyn Accumulator>> {
        Some(match data_type {
            DataType::Float32 => Box::new(Sliding::<Float32Type>::new(self, data_type)),
            DataType::Float64 => Box::new(Sliding::<Float64Type>::new(self, data_type)),
            DataType::Interval(IntervalUnit::MonthDayNano) => {
                Box::new(Sliding::<IntervalMonthDayNanoType>::new(self, data_type))
            }
            _ => return None,
        })
    }
}

fn scalar<T: Ordered>(value: Option<T::Native>, data_type: &DataType) -> Result<ScalarValue> {
    let array: ArrayRef =
        Arc::new(PrimitiveArray::<T>::from_iter([value]).with_data_type(data_type.clone()));
    ScalarValue::try_from_array(&array, 0)
}

/// Selects the value nearest to an end, of the current one and those of an array.
fn nearest<T: Ordered>(
    current: Option<T::Native>,
    values: &PrimitiveArray<T>,
    is_nearer: impl Fn(T::Native, T::Native) -> bool,
) -> Option<T::Native> {
    let nearer = |best, value| if is_nearer(value, best) { value } else { best };
    if values.null_count() > 0 {
        return current.into_iter().chain(values.iter().flatten()).reduce(nearer);
    }
    current.into_iter().chain(values.values().iter().copied()).reduce(nearer)
}

/// The extreme of all rows.
#[derive(Debug)]
struct Total<T: Ordered> {
    end: End,
    data_type: DataType,
    value: Option<T::Native>,
}

impl<T: Ordered> Total<T> {
    fn new(end: End, data_type: &DataType) -> Self {
        Self { end, data_type: data_type.clone(), value: None }
    }
}

impl<T: Ordered> Accumulator for Total<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let values = values[0].as_primitive::<T>();
        self.value = match self.end {
            End::Max => nearest::<T>(self.value, values, |a, b| T::is_less(b, a)),
            End::Min => nearest::<T>(self.value, values, T::is_less),
        };
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        scalar::<T>(self.value, &self.data_type)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}

/// The extreme of a window that slides.
#[derive(Debug)]
struct Sliding<T: Ordered> {
    data_type: DataType,
    values: TwoStacks<T::Native>,
}

impl<T: Ordered> Sliding<T> {
    fn new(end: End, data_type: &DataType) -> Self {
        Self { data_type: data_type.clone(), values: TwoStacks::new(end.nearer::<T>()) }
    }
}

impl<T: Ordered> Accumulator for Sliding<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<T>().iter().flatten() {
            self.values.push(value);
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for _ in 0..values[0].len() - values[0].null_count() {
            self.values.pop();
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        scalar::<T>(self.values.total(), &self.data_type)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.allocated()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }
}

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// `greatest` and `least` of intervals, under names of their own.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    [End::Max, End::Min].into_iter().map(|end| {
        let signature = Signature::variadic_any(Volatility::Immutable);
        ScalarUDF::from(OfIntervals { end, signature })
    })
}

/// Name of the function of intervals that replaces `greatest` or `least`.
pub(crate) fn of_intervals(name: &str) -> &'static str {
    if name == "greatest" { End::Max.function() } else { End::Min.function() }
}

impl End {
    fn function(self) -> &'static str {
        match self {
            Self::Max => "interval_greatest",
            Self::Min => "interval_least",
        }
    }
}

/// The extreme of each row's floats, the first of equal ones; NULL where all are NULL.
pub(crate) fn of_floats(
    end: End,
    arguments: &[ArrayRef],
    data_type: &DataType,
) -> Result<ArrayRef> {
    fn rows<T: Ordered>(
        end: End,
        arguments: &[ArrayRef],
        data_type: &DataType,
    ) -> Result<ArrayRef> {
        let nearer = end.nearer::<T>();
        let mut extremes: Vec<Option<T::Native>> =
            vec![None; arguments.first().map_or(0, Array::len)];
        for argument in arguments {
            let values = cast(argument, data_type)?;
            for (extreme, value) in extremes.iter_mut().zip(values.as_primitive::<T>()) {
                *extreme = extreme.take().into_iter().chain(value).reduce(nearer);
            }
        }
        Ok(Arc::new(PrimitiveArray::<T>::from_iter(extremes)))
    }
    match data_type {
        DataType::Float32 => rows::<Float32Type>(end, arguments, data_type),
        DataType::Float64 => rows::<Float64Type>(end, arguments, data_type),
        _ => exec_err!("{data_type} is not a float type"),
    }
}

/// The extreme of some intervals; NULL where all are NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfIntervals {
    end: End,
    signature: Signature,
}

impl ScalarUDFImpl for OfIntervals {
    fn name(&self) -> &str {
        self.end.function()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let spans = |data_type: &DataType| {
            matches!(data_type, DataType::Interval(_) | DataType::Duration(_) | DataType::Null)
        };
        if types.is_empty() || !types.iter().all(spans) {
            return exec_err!("{} takes intervals, not {types:?}", self.name());
        }
        Ok(INTERVAL)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let nearer = self.end.nearer::<IntervalMonthDayNanoType>();
        let mut extremes: Vec<Option<IntervalMonthDayNano>> = vec![None; rows];
        for argument in &args.args {
            let values = intervals_of_spans(&argument.to_array(rows)?)?;
            let values = values.as_primitive::<IntervalMonthDayNanoType>().iter();
            for (extreme, value) in extremes.iter_mut().zip(values) {
                *extreme = extreme.take().into_iter().chain(value).reduce(nearer);
            }
        }
        let extremes: ArrayRef =
            Arc::new(PrimitiveArray::<IntervalMonthDayNanoType>::from_iter(extremes));
        if constant {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&extremes, 0)?));
        }
        Ok(ColumnarValue::Array(extremes))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, IntervalMonthDayNanoArray};
    use datafusion::logical_expr::EmitTo;

    use super::*;

    const NEGATIVE_NAN: f64 = -f64::NAN;

    /// The extremes of a group, of all rows, and of a window that lost its first row.
    fn extremes(end: End, values: &ArrayRef) -> [ScalarValue; 3] {
        let of = values.data_type();
        let mut groups = end.groups(of).unwrap();
        groups.update_batch(&[Arc::clone(values)], &vec![0; values.len()], None, 1).unwrap();
        let group = groups.evaluate(EmitTo::All).unwrap();
        let mut total = end.total(of).unwrap();
        total.update_batch(&[Arc::clone(values)]).unwrap();
        let mut window = end.sliding(of).unwrap();
        window.update_batch(&[Arc::clone(values)]).unwrap();
        window.retract_batch(&[values.slice(0, 1)]).unwrap();
        [
            ScalarValue::try_from_array(&group, 0).unwrap(),
            total.evaluate().unwrap(),
            window.evaluate().unwrap(),
        ]
    }

    #[test]
    fn of_equal_floats_the_first_is_taken() {
        let column = |value: Option<f64>| -> ArrayRef { Arc::new(Float64Array::from(vec![value])) };
        let extreme = |end, values: &[Option<f64>]| {
            let columns: Vec<ArrayRef> = values.iter().copied().map(column).collect();
            let found = of_floats(end, &columns, &DataType::Float64).unwrap();
            let found = found.as_primitive::<Float64Type>();
            found.is_valid(0).then(|| found.value(0).to_string())
        };
        for end in [End::Max, End::Min] {
            assert_eq!(extreme(end, &[Some(0.0), Some(-0.0)]).as_deref(), Some("0"));
            assert_eq!(extreme(end, &[None, Some(-0.0), Some(0.0)]).as_deref(), Some("-0"));
            assert_eq!(extreme(end, &[None]), None);
        }
        let nan = -f64::NAN;
        assert_eq!(extreme(End::Max, &[Some(1.0), Some(nan)]).as_deref(), Some("NaN"));
        assert_eq!(extreme(End::Min, &[Some(nan), Some(1.0)]).as_deref(), Some("1"));
    }

    #[test]
    fn nan_is_the_greatest_wherever_it_is() {
        for nan in [f64::NAN, NEGATIVE_NAN] {
            for order in [[nan, 5.0, -1.0], [5.0, nan, -1.0], [-1.0, 5.0, nan]] {
                let values: ArrayRef = Arc::new(Float64Array::from(order.to_vec()));
                let is_nan =
                    |of: &ScalarValue| matches!(of, ScalarValue::Float64(Some(v)) if v.is_nan());
                let [group, total, window] = extremes(End::Max, &values);
                assert!(is_nan(&group) && is_nan(&total), "{order:?}");
                assert_eq!(is_nan(&window), !order[0].is_nan(), "{order:?}");
                let least = ScalarValue::Float64(Some(-1.0));
                assert_eq!(extremes(End::Min, &values)[..2], [least.clone(), least], "{order:?}");
            }
            let only: ArrayRef = Arc::new(Float64Array::from(vec![None, Some(nan)]));
            assert!(!extremes(End::Min, &only).iter().any(ScalarValue::is_null));
        }
        let nothing: ArrayRef = Arc::new(Float64Array::from(vec![None, None]));
        assert!(extremes(End::Max, &nothing).iter().all(ScalarValue::is_null));
    }

    #[test]
    fn intervals_compare_by_their_length() {
        let of = |months, days, nanoseconds| IntervalMonthDayNano { months, days, nanoseconds };
        let hours = 3_600_000_000_000;
        let (month, days, long) = (of(1, 0, 0), of(0, 31, 0), of(0, 0, 30 * 24 * hours + 1));
        let values: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(vec![month, days, long]));
        let is = |of| ScalarValue::IntervalMonthDayNano(Some(of));
        assert_eq!(extremes(End::Max, &values), [is(days), is(days), is(days)]);
        assert_eq!(extremes(End::Min, &values), [is(month), is(month), is(long)]);
    }
}
