//! Domains as sets of values of one column type.
//!
//! A literal without a value in the type becomes the equivalent bound: no value is lost or added, so that the result
//! may place rows as well as prune.

use std::ops::Bound;

use super::{Domain, Interval};
use crate::error::Error;
use crate::literal::{Fit, fit};
use crate::neighbour::{is_stepped, least, predecessor, successor};
use crate::schema::ColumnType;
use crate::value::Value;

impl Domain {
    /// The same set as values of a column type. For types whose values come in steps, bounds become inclusive; values
    /// that the type does not have are dropped.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when a bound is not comparable with the type.
    pub fn typed(&self, column_type: ColumnType) -> Result<Self, Error> {
        let mut intervals = Vec::with_capacity(self.intervals.len());
        for interval in &self.intervals {
            let low = typed_low(&interval.low, column_type)?;
            let high = typed_high(&interval.high, column_type)?;
            if let (Some(low), Some(high)) = (low, high) {
                let interval = Interval { low, high };
                if !interval.has_no_value_of(column_type) {
                    intervals.push(interval);
                }
            }
        }
        // Intervals that are apart as numbers may be adjacent in the type: [1, 2] and [3, 4].
        let mut joined: Vec<Interval> = Vec::with_capacity(intervals.len());
        for interval in intervals {
            match joined.last_mut() {
                Some(last) if follows(&last.high, &interval.low, column_type) => {
                    last.high = interval.high;
                }
                _ => joined.push(interval),
            }
        }
        Ok(Self::from_intervals(self.null, joined))
    }

    /// The domain's values of a column type, NULL first, if they are at most `max`. Enumerates short ranges of
    /// integers, dates and other types whose values come in steps.
    ///
    /// # Errors
    /// As [`Domain::typed`].
    pub fn points_of(
        &self,
        column_type: ColumnType,
        max: usize,
    ) -> Result<Option<Vec<Value>>, Error> {
        let typed = self.typed(column_type)?;
        if !is_stepped(column_type) {
            return Ok(typed.as_points(max));
        }
        Ok(typed.enumerate(max, |interval| {
            let first = match &interval.low {
                Bound::Included(low) => low.clone(),
                Bound::Excluded(low) => successor(low, column_type)?,
                Bound::Unbounded => least(column_type),
            };
            let mut values = vec![first];
            while values.len() <= max {
                // The successor of the last value; beyond the end of the interval or of the type, the list is complete.
                let next = successor(values.last()?, column_type);
                match (next, &interval.high) {
                    (Some(next), Bound::Included(high)) if next <= *high => values.push(next),
                    (Some(next), Bound::Excluded(high)) if next < *high => values.push(next),
                    (Some(next), Bound::Unbounded) => values.push(next),
                    _ => return Some(values),
                }
            }
            None
        }))
    }
}

impl Interval {
    /// True if no value of the type lies in the interval; both bounds are of the type.
    fn has_no_value_of(&self, column_type: ColumnType) -> bool {
        let first = match &self.low {
            Bound::Unbounded => least(column_type),
            Bound::Included(low) => low.clone(),
            Bound::Excluded(low) => match successor(low, column_type) {
                Some(next) => next,
                None => return true,
            },
        };
        match &self.high {
            Bound::Unbounded => false,
            Bound::Included(high) => first > *high,
            Bound::Excluded(high) => first >= *high,
        }
    }
}

/// True if the next value of the type after an interval's end is the beginning of another interval, or lies behind it.
fn follows(high: &Bound<Value>, low: &Bound<Value>, column_type: ColumnType) -> bool {
    match (high, low) {
        (Bound::Included(high), Bound::Included(low)) => {
            successor(high, column_type).is_some_and(|next| next >= *low)
        }
        _ => false,
    }
}

/// A lower bound in a type; `None` when no value of the type is above it.
fn typed_low(bound: &Bound<Value>, ty: ColumnType) -> Result<Option<Bound<Value>>, Error> {
    let (value, included) = match bound {
        Bound::Unbounded => return Ok(Some(Bound::Unbounded)),
        Bound::Included(value) => (value, true),
        Bound::Excluded(value) => (value, false),
    };
    Ok(match fit(value, ty)? {
        Fit::Below => Some(Bound::Unbounded),
        Fit::Above => None,
        Fit::After(floor) => after(floor, ty),
        Fit::Exact(exact) => {
            // A zero that was not a float before equals both float zeros.
            let zero = !matches!(value, Value::Float(_)) && is_float_zero(&exact);
            match (included, zero) {
                (true, true) => Some(Bound::Included(Value::Float(-0.0))),
                (true, false) => Some(Bound::Included(exact)),
                (false, true) => Some(Bound::Excluded(Value::Float(0.0))),
                (false, false) => after(exact, ty),
            }
        }
    })
}

/// The lower bound just above a value of a type; `None` if the type has no greater value.
fn after(value: Value, column_type: ColumnType) -> Option<Bound<Value>> {
    if is_stepped(column_type) {
        successor(&value, column_type).map(Bound::Included)
    } else {
        Some(Bound::Excluded(value))
    }
}

/// An upper bound in a type; `None` when no value of the type is below it.
fn typed_high(bound: &Bound<Value>, ty: ColumnType) -> Result<Option<Bound<Value>>, Error> {
    let (value, included) = match bound {
        Bound::Unbounded => return Ok(Some(Bound::Unbounded)),
        Bound::Included(value) => (value, true),
        Bound::Excluded(value) => (value, false),
    };
    Ok(match fit(value, ty)? {
        Fit::Below => None,
        Fit::Above => Some(Bound::Unbounded),
        Fit::After(floor) => Some(Bound::Included(floor)),
        Fit::Exact(exact) => {
            let zero = !matches!(value, Value::Float(_)) && is_float_zero(&exact);
            match (included, zero) {
                (true, true) => Some(Bound::Included(Value::Float(0.0))),
                (true, false) => Some(Bound::Included(exact)),
                (false, true) => Some(Bound::Excluded(Value::Float(-0.0))),
                (false, false) if is_stepped(ty) => predecessor(&exact, ty).map(Bound::Included),
                (false, false) => Some(Bound::Excluded(exact)),
            }
        }
    })
}

fn is_float_zero(value: &Value) -> bool {
    matches!(value, Value::Float(v) if *v == 0.0)
}
