//! `avg` of intervals, which DataFusion does not have: the sum of all, divided as `/` divides an interval.
//!
//! Invariant: months, days and nanoseconds are added exactly; a sum that is no interval is an error with SQLSTATE 22008.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute;
use arrow::datatypes::{IntervalMonthDayNano, IntervalMonthDayNanoType, UInt64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;

use crate::error::datetime_overflow;
use crate::intervals::divided;

/// The average of intervals; its partial state is a count and a sum.
#[derive(Debug, Default)]
pub(crate) struct IntervalAverage {
    count: u64,
    months: i64,
    days: i64,
    nanoseconds: i128,
}

impl IntervalAverage {
    /// Adds all intervals of an array `sign` times.
    fn add(&mut self, intervals: &ArrayRef, sign: i64) {
        for interval in intervals.as_primitive::<IntervalMonthDayNanoType>().iter().flatten() {
            self.months += sign * i64::from(interval.months);
            self.days += sign * i64::from(interval.days);
            self.nanoseconds += i128::from(sign) * i128::from(interval.nanoseconds);
        }
    }

    /// The sum; `None` of no intervals.
    fn sum(&self) -> Result<Option<IntervalMonthDayNano>> {
        if self.count == 0 {
            return Ok(None);
        }
        let months = i32::try_from(self.months);
        let days = i32::try_from(self.days);
        let nanoseconds = i64::try_from(self.nanoseconds);
        match (months, days, nanoseconds) {
            (Ok(months), Ok(days), Ok(nanoseconds)) => {
                Ok(Some(IntervalMonthDayNano { months, days, nanoseconds }))
            }
            _ => Err(datetime_overflow("interval").into()),
        }
    }
}

/// Values of an array that are not NULL.
fn known(values: &ArrayRef) -> u64 {
    (values.len() - values.null_count()) as u64
}

impl Accumulator for IntervalAverage {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count += known(&values[0]);
        self.add(&values[0], 1);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count -= known(&values[0]);
        self.add(&values[0], -1);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.count += compute::sum(states[0].as_primitive::<UInt64Type>()).unwrap_or_default();
        self.add(&states[1], 1);
        Ok(())
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let sum = ScalarValue::IntervalMonthDayNano(self.sum()?);
        Ok(vec![ScalarValue::UInt64(Some(self.count)), sum])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let average = self.sum()?.map(|sum| divided(sum, self.count)).transpose()?;
        Ok(ScalarValue::IntervalMonthDayNano(average))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::IntervalMonthDayNanoArray;

    use super::*;

    fn intervals(values: &[Option<(i32, i32, i64)>]) -> Vec<ArrayRef> {
        let interval =
            |(months, days, nanoseconds)| IntervalMonthDayNano { months, days, nanoseconds };
        let values: IntervalMonthDayNanoArray =
            values.iter().map(|value| value.map(interval)).collect();
        vec![Arc::new(values)]
    }

    fn average(months: i32, days: i32, nanoseconds: i64) -> ScalarValue {
        let average = IntervalMonthDayNano { months, days, nanoseconds };
        ScalarValue::IntervalMonthDayNano(Some(average))
    }

    #[test]
    fn the_fraction_of_a_month_becomes_days() {
        let mut accumulator = IntervalAverage::default();
        assert_eq!(accumulator.evaluate().unwrap(), ScalarValue::IntervalMonthDayNano(None));
        accumulator.update_batch(&intervals(&[Some((1, 0, 6)), None, Some((2, 3, 4))])).unwrap();
        assert_eq!(accumulator.evaluate().unwrap(), average(1, 16, 43_200_000_000_005));
        accumulator.retract_batch(&intervals(&[Some((1, 0, 6))])).unwrap();
        assert_eq!(accumulator.evaluate().unwrap(), average(2, 3, 4));
    }

    #[test]
    fn partial_states_are_merged() {
        let mut part = IntervalAverage::default();
        part.update_batch(&intervals(&[Some((0, 2, 0)), Some((0, 4, 0))])).unwrap();
        let state: Vec<ArrayRef> =
            part.state().unwrap().iter().map(|value| value.to_array().unwrap()).collect();
        let mut accumulator = IntervalAverage::default();
        accumulator.merge_batch(&state).unwrap();
        accumulator.merge_batch(&state).unwrap();
        assert_eq!((accumulator.count, accumulator.evaluate().unwrap()), (4, average(0, 3, 0)));
    }

    #[test]
    fn a_sum_that_is_no_interval_is_an_error() {
        let mut accumulator = IntervalAverage::default();
        accumulator.update_batch(&intervals(&[Some((i32::MAX, 0, 0)), Some((1, 0, 0))])).unwrap();
        assert!(accumulator.evaluate().is_err());
    }
}
