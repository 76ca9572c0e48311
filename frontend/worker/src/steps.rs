//! `date_trunc` and `date_bin` over the ticks of any unit (`ticks.rs`), by stretches where times ascend.
//!
//! Both are step functions: a time between two times of one step belongs to that step. Times come in key order, so they
//! ascend through many rows of one step, and the first and the last row of such a stretch decide for all. A division
//! for each row took a quarter of an hourly average.
//!
//! Invariants:
//! - the value of a stretch is that of its first and its last time;
//! - time zones whose days differ in length, and columns with NULLs, are computed row by row;
//! - times of day, and bins of months, are left to DataFusion.

use std::sync::Arc;

use arrow::array::{Array, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, TimeUnit};
use datafusion::common::types::{NativeType, logical_date, logical_string};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::functions::datetime::{date_bin, date_trunc};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    Coercion, ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, TypeSignature, TypeSignatureClass, Volatility,
};

use crate::inner::like_inner;
use crate::interval_trunc::{INTERVAL, truncated};
use crate::ticks::{Bins, Step};
use crate::zone::Zone;

/// Rows of a stretch, of which the first and the last are computed.
const STRETCH: usize = 32;
/// Minimum rows of a batch for stretches to pay off.
const ROWS_MIN: usize = 256;
const NANOS_OF_DAY: i128 = 86_400_000_000_000;

/// Functions to register, under DataFusion's names.
pub(crate) fn functions() -> impl Iterator<Item = ScalarUDF> {
    let truncation = ScalarUDF::from(Truncation::new(date_trunc()));
    [truncation, ScalarUDF::from(Binning { inner: date_bin() })].into_iter()
}

/// Truncation of a call that is computed here.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Trunc(Step, Zone),
    Bin(Bins),
}

impl Cut {
    fn ticks(self, ticks: &Int64Array, unit: TimeUnit) -> Result<Int64Array> {
        Ok(match self {
            Self::Trunc(step, zone) => step.cut(ticks, unit, zone)?,
            Self::Bin(bins) => bins.cut(ticks, unit)?,
        })
    }

    /// Returns true if all times between two of one step belong to that step.
    fn is_even(self) -> bool {
        match self {
            Self::Trunc(step, zone) => step.is_even(zone),
            Self::Bin(_) => true,
        }
    }

    /// Truncates the times of a call's second argument.
    fn times(self, times: &ColumnarValue, unit: TimeUnit) -> Result<ColumnarValue> {
        let array = times.to_array(1)?;
        let ticks = cast(&array, &DataType::Int64)?;
        let ticks = ticks.as_primitive::<Int64Type>();
        let by_stretches = (self.is_even() && ticks.null_count() == 0 && ticks.len() >= ROWS_MIN)
            .then(|| self.by_stretches(ticks.values(), unit))
            .transpose()?
            .flatten();
        let results = match by_stretches {
            Some(results) => results,
            None => self.ticks(ticks, unit)?,
        };
        let results = cast(&results, array.data_type())?;
        Ok(match times {
            ColumnarValue::Scalar(_) => {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&results, 0)?)
            }
            ColumnarValue::Array(_) => ColumnarValue::Array(results),
        })
    }

    /// Steps of ascending times; `None` if too few of them are adjacent.
    fn by_stretches(self, times: &[i64], unit: TimeUnit) -> Result<Option<Int64Array>> {
        // Compute both ends of each ascending stretch.
        let ascending: Vec<bool> = times.chunks(STRETCH).map(<[i64]>::is_sorted).collect();
        let ends = times.chunks(STRETCH).zip(&ascending).filter(|(_, ascending)| **ascending);
        let ends: Vec<i64> =
            ends.flat_map(|(stretch, _)| [stretch[0], stretch[stretch.len() - 1]]).collect();
        let few = |stretches: usize| stretches < ascending.len().div_ceil(2);
        if few(ends.len() / 2) {
            return Ok(None);
        }
        let ends = self.ticks(&Int64Array::from(ends), unit)?;
        // Step of each stretch, if both ends agree.
        let mut ends = ends.values().as_chunks::<2>().0.iter();
        let of_one = ascending.iter().map(|ascending| match ascending {
            true => ends.next().filter(|[first, last]| first == last).map(|[step, _]| *step),
            false => None,
        });
        let of_one: Vec<Option<i64>> = of_one.collect();
        if few(of_one.iter().flatten().count()) {
            return Ok(None);
        }
        // Compute the other stretches row by row, and put all in order.
        let uneven = times.chunks(STRETCH).zip(&of_one).filter(|(_, step)| step.is_none());
        let uneven: Vec<i64> = uneven.flat_map(|(stretch, _)| stretch.iter().copied()).collect();
        let uneven = self.ticks(&Int64Array::from(uneven), unit)?;
        let mut uneven = uneven.values().iter().copied();
        let mut steps = Vec::with_capacity(times.len());
        for (stretch, step) in times.chunks(STRETCH).zip(of_one) {
            match step {
                Some(step) => steps.resize(steps.len() + stretch.len(), step),
                None => steps.extend(uneven.by_ref().take(stretch.len())),
            }
        }
        Ok(Some(Int64Array::from(steps)))
    }
}

/// Returns true if steps in this zone start when they do in UTC, and days have one length.
pub fn in_utc(zone: Option<&str>) -> bool {
    zone.is_none_or(|zone| matches!(zone, "UTC" | "+00:00" | "Z"))
}

/// Returns the text of a constant argument.
fn text(argument: &ColumnarValue) -> Option<&str> {
    match argument {
        ColumnarValue::Scalar(scalar) => scalar.try_as_str().flatten(),
        ColumnarValue::Array(_) => None,
    }
}

/// Returns true for intervals and differences of times.
fn is_span(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Interval(_) | DataType::Duration(_))
}

/// `date_trunc(step, time)`, optionally with a time zone whose local time is truncated.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Truncation {
    inner: Arc<ScalarUDF>,
    signature: Signature,
}

impl Truncation {
    fn new(inner: Arc<ScalarUDF>) -> Self {
        let step = || Coercion::new_exact(TypeSignatureClass::Native(logical_string()));
        let time = || {
            Coercion::new_implicit(
                TypeSignatureClass::Timestamp,
                vec![
                    TypeSignatureClass::Native(logical_string()),
                    TypeSignatureClass::Native(logical_date()),
                ],
                NativeType::Timestamp(TimeUnit::Microsecond, None),
            )
        };
        let of_day = Coercion::new_exact(TypeSignatureClass::Time);
        let signatures = vec![
            TypeSignature::Coercible(vec![step(), time()]),
            TypeSignature::Coercible(vec![step(), time(), step()]),
            TypeSignature::Coercible(vec![step(), of_day]),
            TypeSignature::Coercible(vec![
                step(),
                Coercion::new_exact(TypeSignatureClass::Interval),
            ]),
            TypeSignature::Coercible(vec![
                step(),
                Coercion::new_exact(TypeSignatureClass::Duration),
            ]),
        ];
        Self { inner, signature: Signature::one_of(signatures, Volatility::Immutable) }
    }

    fn inner(&self) -> &dyn ScalarUDFImpl {
        self.inner.inner().as_ref()
    }

    fn cut(args: &[ColumnarValue]) -> Result<Option<(Cut, TimeUnit)>> {
        let [step, times, zones @ ..] = args else { return Ok(None) };
        let DataType::Timestamp(unit, type_zone) = times.data_type() else { return Ok(None) };
        let Some(step) = text(step) else {
            return exec_err!("date_trunc: the unit must be a constant");
        };
        let Some(step) = Step::named(step) else {
            return exec_err!("unit \"{step}\" not recognized for type timestamp");
        };
        let zone = match (zones.first(), type_zone) {
            (_, None) => Zone::UTC,
            (None, Some(type_zone)) => Zone::of_arrow(&type_zone).unwrap_or(Zone::UTC),
            (Some(zone), Some(_)) => match text(zone).map(|zone| (zone, Zone::named(zone))) {
                Some((_, Some(zone))) => zone,
                Some((name, None)) => return exec_err!("time zone \"{name}\" not recognized"),
                None => return exec_err!("date_trunc: the time zone must be a constant"),
            },
        };
        Ok(Some((Cut::Trunc(step, zone), unit)))
    }
}

impl ScalarUDFImpl for Truncation {
    fn name(&self) -> &str {
        self.inner().name()
    }

    fn aliases(&self) -> &[String] {
        self.inner().aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [_, data_type] if is_span(data_type) => Ok(INTERVAL),
            _ => self.inner().return_type(types),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match args.arg_fields {
            [_, field] if is_span(field.data_type()) => {
                Ok(Arc::new(Field::new(self.name(), INTERVAL, true)))
            }
            _ => self.inner().return_field_from_args(args),
        }
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner().documentation()
    }

    fn output_ordering(
        &self,
        inputs: &[datafusion::logical_expr::sort_properties::ExprProperties],
    ) -> Result<datafusion::logical_expr::sort_properties::SortProperties> {
        // When clocks go back, local times do not ascend with their instants.
        match inputs {
            [_, _] => self.inner().output_ordering(inputs),
            _ => Ok(datafusion::logical_expr::sort_properties::SortProperties::Unordered),
        }
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner().simplify(args, info)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let [unit, intervals] = args.args.as_slice()
            && is_span(&intervals.data_type())
        {
            return truncated(unit, intervals, args.number_rows);
        }
        match Self::cut(&args.args)? {
            Some((cut, unit)) => cut.times(&args.args[1], unit),
            None => self.inner().invoke_with_args(args),
        }
    }
}

/// `date_bin(width, time)`, optionally with the start of a bin.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Binning {
    inner: Arc<ScalarUDF>,
}

impl Binning {
    fn inner(&self) -> &dyn ScalarUDFImpl {
        self.inner.inner().as_ref()
    }

    fn cut(args: &[ColumnarValue]) -> Option<(Cut, TimeUnit)> {
        let [ColumnarValue::Scalar(width), times, origin @ ..] = args else { return None };
        let DataType::Timestamp(unit, _) = times.data_type() else { return None };
        let ScalarValue::IntervalMonthDayNano(Some(width)) = width else { return None };
        if width.months != 0 {
            return None;
        }
        let origin = match origin {
            [] => (0, TimeUnit::Second),
            [ColumnarValue::Scalar(origin), ..] => ticks_of(origin)?,
            [ColumnarValue::Array(_), ..] => return None,
        };
        let width = i128::from(width.days) * NANOS_OF_DAY + i128::from(width.nanoseconds);
        Some((Cut::Bin(Bins::new(width, origin)?), unit))
    }
}

fn ticks_of(time: &ScalarValue) -> Option<(i64, TimeUnit)> {
    match time {
        ScalarValue::TimestampSecond(ticks, _) => Some(((*ticks)?, TimeUnit::Second)),
        ScalarValue::TimestampMillisecond(ticks, _) => Some(((*ticks)?, TimeUnit::Millisecond)),
        ScalarValue::TimestampMicrosecond(ticks, _) => Some(((*ticks)?, TimeUnit::Microsecond)),
        ScalarValue::TimestampNanosecond(ticks, _) => Some(((*ticks)?, TimeUnit::Nanosecond)),
        _ => None,
    }
}

impl ScalarUDFImpl for Binning {
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match Self::cut(&args.args) {
            Some((cut, unit)) => cut.times(&args.args[1], unit),
            None => self.inner().invoke_with_args(args),
        }
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner().simplify(args, info)
    }

    like_inner!();
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, TimestampNanosecondArray};
    use arrow::datatypes::IntervalMonthDayNano;
    use datafusion::config::ConfigOptions;
    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// The result of a function of times with the given first argument.
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
                TimeUnit::Nanosecond,
                TimeUnit::Second,
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
        let hours = Cut::Trunc(Step::named("hour").unwrap(), Zone::UTC);
        let call = |times: Vec<i64>| {
            let steps = hours.by_stretches(&times, TimeUnit::Nanosecond).unwrap();
            steps.map(|steps| steps.len())
        };
        let each = |seconds: i64| (0_i64..1000).map(move |at| at * seconds * SECOND);
        assert_eq!(call(each(10).collect()), Some(1000));
        assert_eq!(call(each(10).rev().collect()), None);
        assert_eq!(call(each(600).collect()), None, "each stretch has more than one hour");
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
