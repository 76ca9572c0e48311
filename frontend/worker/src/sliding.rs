//! Aggregates over sliding windows that do not subtract.
//!
//! A sliding window gains rows at its end and loses them at its start. DataFusion subtracts the lost rows, which leaves
//! NaN after an infinity, and loses small numbers to the rounding of a large one. Here values are kept in two stacks:
//!
//! ```text
//!   front: for each value, the total from it to the last of its stack     back: values, and their total
//! ```
//!
//! The oldest value is at the top of the front stack. When the front is empty, the back is moved over in reverse; each
//! value moves once, so that a step costs the same for any length of the window.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::Float64Type;
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;

/// A queue of values that knows their total.
#[derive(Debug)]
pub(crate) struct TwoStacks<T> {
    front: Vec<T>,
    back: Vec<T>,
    back_total: Option<T>,
    combine: fn(T, T) -> T,
}

impl<T: Copy> TwoStacks<T> {
    /// An empty queue. `combine` must be associative; its first argument is the older one.
    pub(crate) fn new(combine: fn(T, T) -> T) -> Self {
        Self { front: Vec::new(), back: Vec::new(), back_total: None, combine }
    }

    pub(crate) fn push(&mut self, value: T) {
        self.back.push(value);
        let total = self.back_total.map_or(value, |total| (self.combine)(total, value));
        self.back_total = Some(total);
    }

    /// Removes the oldest value.
    pub(crate) fn pop(&mut self) {
        if self.front.is_empty() {
            let mut total = None;
            while let Some(value) = self.back.pop() {
                let combined = total.map_or(value, |total| (self.combine)(value, total));
                self.front.push(combined);
                total = Some(combined);
            }
            self.back_total = None;
        }
        self.front.pop();
    }

    pub(crate) fn len(&self) -> usize {
        self.front.len() + self.back.len()
    }

    /// The total of all values; `None` if there are none.
    pub(crate) fn total(&self) -> Option<T> {
        match (self.front.last(), self.back_total) {
            (Some(front), Some(back)) => Some((self.combine)(*front, back)),
            (front, back) => front.copied().or(back),
        }
    }

    pub(crate) fn allocated(&self) -> usize {
        (self.front.capacity() + self.back.capacity()) * size_of::<T>()
    }
}

/// The sum or the average of doubles in a sliding window.
#[derive(Debug)]
pub(crate) struct SlidingDoubles {
    values: TwoStacks<f64>,
    average: bool,
}

impl SlidingDoubles {
    pub(crate) fn new(average: bool) -> Self {
        Self { values: TwoStacks::new(|older, newer| older + newer), average }
    }
}

impl Accumulator for SlidingDoubles {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in values[0].as_primitive::<Float64Type>().iter().flatten() {
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
        #[expect(clippy::cast_precision_loss, reason = "a window has fewer than 2^53 rows")]
        let count = if self.average { self.values.len() as f64 } else { 1.0 };
        Ok(ScalarValue::Float64(self.values.total().map(|sum| sum / count)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.allocated()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        exec_err!("a window has no partial state")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        exec_err!("a window has no partial state")
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }
}

/// The values that have to be true: all or any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Holds {
    OfAll,
    OfAny,
}

/// `bool_and` and `bool_or` in a sliding window, by counting values.
#[derive(Debug)]
pub(crate) struct SlidingTruth {
    holds: Holds,
    trues: usize,
    falses: usize,
}

impl SlidingTruth {
    pub(crate) fn new(holds: Holds) -> Self {
        Self { holds, trues: 0, falses: 0 }
    }
}

/// Number of values that are true, and number that are false.
fn counted(values: &[ArrayRef]) -> (usize, usize) {
    let values = values[0].as_boolean();
    let trues = values.true_count();
    (trues, values.len() - values.null_count() - trues)
}

impl Accumulator for SlidingTruth {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (trues, falses) = counted(values);
        self.trues += trues;
        self.falses += falses;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (trues, falses) = counted(values);
        self.trues = self.trues.saturating_sub(trues);
        self.falses = self.falses.saturating_sub(falses);
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let holds = match self.holds {
            Holds::OfAll => self.falses == 0,
            Holds::OfAny => self.trues > 0,
        };
        Ok(ScalarValue::Boolean((self.trues + self.falses > 0).then_some(holds)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        exec_err!("a window has no partial state")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        exec_err!("a window has no partial state")
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_total_is_that_of_what_is_there(steps in prop::collection::vec(any::<Option<i32>>(), 0..200)) {
            // The first and the last value present: the order of arguments matters.
            let mut ends = TwoStacks::new(|a: (i32, i32), b: (i32, i32)| (a.0, b.1));
            let mut sums = TwoStacks::new(|a: i64, b: i64| a + b);
            let mut all = std::collections::VecDeque::new();
            for step in steps {
                match step {
                    Some(value) => {
                        ends.push((value, value));
                        sums.push(i64::from(value));
                        all.push_back(value);
                    }
                    None => {
                        ends.pop();
                        sums.pop();
                        all.pop_front();
                    }
                }
                prop_assert_eq!(sums.len(), all.len());
                prop_assert_eq!(ends.total(), all.front().copied().zip(all.back().copied()));
                prop_assert_eq!(sums.total(), all.iter().copied().map(i64::from).reduce(|a, b| a + b));
            }
        }
    }

    #[test]
    fn truth_is_that_of_the_values_that_are_there() {
        let array = |values: &[Option<bool>]| -> [ArrayRef; 1] {
            [std::sync::Arc::new(arrow::array::BooleanArray::from(values.to_vec()))]
        };
        let mut all = SlidingTruth::new(Holds::OfAll);
        let mut any = SlidingTruth::new(Holds::OfAny);
        let mut step = |come: &[Option<bool>], gone: &[Option<bool>]| {
            [&mut all, &mut any].map(|truth| {
                truth.update_batch(&array(come)).unwrap();
                truth.retract_batch(&array(gone)).unwrap();
                match truth.evaluate().unwrap() {
                    ScalarValue::Boolean(holds) => holds,
                    other => panic!("{other}"),
                }
            })
        };
        assert_eq!(step(&[None], &[]), [None, None]);
        assert_eq!(step(&[Some(true), Some(false)], &[None]), [Some(false), Some(true)]);
        assert_eq!(step(&[None], &[Some(true)]), [Some(false), Some(false)]);
        assert_eq!(step(&[Some(true)], &[Some(false)]), [Some(true), Some(true)]);
    }

    #[test]
    fn an_infinity_that_is_gone_leaves_nothing() {
        let mut doubles = SlidingDoubles::new(true);
        let array = |values: &[f64]| -> ArrayRef {
            std::sync::Arc::new(arrow::array::Float64Array::from(values.to_vec()))
        };
        doubles.update_batch(&[array(&[f64::INFINITY, f64::NAN, 1e300, 1.0])]).unwrap();
        doubles.retract_batch(&[array(&[f64::INFINITY, f64::NAN, 1e300])]).unwrap();
        doubles.update_batch(&[array(&[2.0])]).unwrap();
        assert_eq!(doubles.evaluate().unwrap(), ScalarValue::Float64(Some(1.5)));
        doubles.retract_batch(&[array(&[1.0, 2.0])]).unwrap();
        assert_eq!(doubles.evaluate().unwrap(), ScalarValue::Float64(None));
    }
}
