//! Domains: the set of values of a column that a predicate allows.
//!
//! A [`Domain`] is a set of values as ranges, with or without NULL; [`Domains`] is a conjunction of domains of several
//! columns. They prune partitions, files and row groups, and filter rows.
//!
//! Invariants:
//! - intervals are not empty, ascending, and no two of them touch;
//! - all their bounds are comparable with each other. Values that are not (a string and a number) never occur in one
//!   domain: an operation that would mix them returns a larger set, never a smaller one.
//!
//! A domain does not know its column's type. Its bounds may be literals whose own order equals the column's, such as
//! bare numbers for any numeric or timestamp column; text that represents a number or a moment has another order
//! (`'9' > '10'`) and has to be coerced first ([`Value::coerce`]). Where a domain is applied to a column or a schema,
//! [`Domain::typed`] converts it to the type, exactly: `x < 300` is everything in a TINYINT column, `x > 2.5` is
//! `x >= 3` in an integer one.
//!
//! Floats: the order is the total one, in which `-0.0 < 0.0` and NaN has a place. SQL's comparisons treat both zeros as
//! one value, and so do [`Domain::compare`] and [`Domain::point`].

mod columns;
mod interval;
mod mask;
#[cfg(test)]
mod tests;
mod typed;

use std::fmt;
use std::ops::Bound;

pub use self::columns::Domains;
pub use self::interval::Interval;
use self::interval::{Kind, meets, one_kind, order, order_highs, order_lows};
use crate::rule::Comparison;
use crate::value::Value;

/// A set of values of one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    null: bool,
    intervals: Vec<Interval>,
}

impl Domain {
    /// Every value, and NULL.
    pub fn all() -> Self {
        Self { null: true, intervals: vec![Interval::ALL] }
    }

    /// The empty set.
    pub fn none() -> Self {
        Self { null: false, intervals: Vec::new() }
    }

    /// NULL alone.
    pub fn null_only() -> Self {
        Self { null: true, intervals: Vec::new() }
    }

    /// Every value except NULL.
    pub fn not_null() -> Self {
        Self { null: false, intervals: vec![Interval::ALL] }
    }

    /// The values equal to `value`: NULL alone for NULL, both zeros for a float zero.
    pub fn point(value: Value) -> Self {
        if value.is_null() { Self::null_only() } else { Self::compare(Comparison::Equal, value) }
    }

    /// The values equal to one of `values`; NULL may be among them.
    pub fn points(values: impl IntoIterator<Item = Value>) -> Self {
        let mut null = false;
        let mut intervals = Vec::new();
        for value in values {
            let point = Self::point(value);
            null |= point.null;
            intervals.extend(point.intervals);
        }
        Self::from_intervals(null, intervals)
    }

    /// The values `x` for which `x comparison value` is true. NULL never is, on either side.
    pub fn compare(comparison: Comparison, value: Value) -> Self {
        // First and last value that count as equal to the value.
        let (first, last) = match value {
            Value::Null => return Self::none(),
            Value::Float(0.0) => (Value::Float(-0.0), Value::Float(0.0)),
            value => (value.clone(), value),
        };
        let ending_at = |high| Interval { low: Bound::Unbounded, high };
        let beginning_at = |low| Interval { low, high: Bound::Unbounded };
        let intervals = match comparison {
            Comparison::Equal => {
                vec![Interval { low: Bound::Included(first), high: Bound::Included(last) }]
            }
            Comparison::NotEqual => {
                vec![ending_at(Bound::Excluded(first)), beginning_at(Bound::Excluded(last))]
            }
            Comparison::Less => vec![ending_at(Bound::Excluded(first))],
            Comparison::LessOrEqual => vec![ending_at(Bound::Included(last))],
            Comparison::Greater => vec![beginning_at(Bound::Excluded(last))],
            Comparison::GreaterOrEqual => vec![beginning_at(Bound::Included(first))],
        };
        Self { null: false, intervals }
    }

    /// The values between two bounds, in the total order; not NULL.
    pub fn interval(low: Bound<Value>, high: Bound<Value>) -> Self {
        Self::from_intervals(false, vec![Interval { low, high }])
    }

    /// The union of intervals, with or without NULL. A bound that is NULL counts as unbounded.
    pub fn from_intervals(null: bool, intervals: Vec<Interval>) -> Self {
        let unbound_null = |bound: Bound<Value>| match bound {
            Bound::Included(Value::Null) | Bound::Excluded(Value::Null) => Bound::Unbounded,
            bound => bound,
        };
        let mut intervals: Vec<Interval> = intervals
            .into_iter()
            .map(|i| Interval { low: unbound_null(i.low), high: unbound_null(i.high) })
            .collect();
        let kinds = intervals.iter().flat_map(Interval::values).map(Kind::of);
        if one_kind(kinds).is_err() {
            return Self { null, intervals: vec![Interval::ALL] };
        }
        intervals.retain(|interval| !interval.is_empty());
        intervals.sort_by(|a, b| order_lows(&a.low, &b.low));
        let mut merged: Vec<Interval> = Vec::with_capacity(intervals.len());
        for interval in intervals {
            match merged.last_mut() {
                Some(last) if meets(&last.high, &interval.low) => {
                    if order_highs(&last.high, &interval.high).is_lt() {
                        last.high = interval.high;
                    }
                }
                _ => merged.push(interval),
            }
        }
        Self { null, intervals: merged }
    }

    /// The same values, with or without NULL.
    #[must_use]
    pub fn with_null(mut self, null: bool) -> Self {
        self.null = null;
        self
    }

    /// The intersection (or a superset of it, when their values are not comparable).
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let null = self.null && other.null;
        if !self.compares_with(other) {
            return Self { null, intervals: self.intervals.clone() };
        }
        let mut intervals = Vec::new();
        let (mut ours, mut theirs) = (self.intervals.iter(), other.intervals.iter());
        let (mut a, mut b) = (ours.next(), theirs.next());
        while let (Some(x), Some(y)) = (a, b) {
            let low = if order_lows(&x.low, &y.low).is_lt() { &y.low } else { &x.low };
            let x_ends_first = order_highs(&x.high, &y.high).is_lt();
            let high = if x_ends_first { &x.high } else { &y.high };
            let overlap = Interval { low: low.clone(), high: high.clone() };
            if !overlap.is_empty() {
                intervals.push(overlap);
            }
            if x_ends_first {
                a = ours.next();
            } else {
                b = theirs.next();
            }
        }
        Self { null, intervals }
    }

    /// The union (or a superset of it, when their values are not comparable).
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let intervals = self.intervals.iter().chain(&other.intervals).cloned().collect();
        Self::from_intervals(self.null || other.null, intervals)
    }

    /// The values outside the domain; never NULL.
    #[must_use]
    pub fn complement_not_null(&self) -> Self {
        let mut intervals = Vec::with_capacity(self.intervals.len() + 1);
        let mut low = Some(Bound::Unbounded);
        for interval in &self.intervals {
            let high = match &interval.low {
                Bound::Unbounded => None,
                Bound::Included(v) => Some(Bound::Excluded(v.clone())),
                Bound::Excluded(v) => Some(Bound::Included(v.clone())),
            };
            if let (Some(low), Some(high)) = (low.take(), high) {
                intervals.push(Interval { low, high });
            }
            low = match &interval.high {
                Bound::Unbounded => None,
                Bound::Included(v) => Some(Bound::Excluded(v.clone())),
                Bound::Excluded(v) => Some(Bound::Included(v.clone())),
            };
        }
        if let Some(low) = low {
            intervals.push(Interval { low, high: Bound::Unbounded });
        }
        Self { null: false, intervals }
    }

    /// True if the domain contains a value. A value that is not comparable with its bounds counts as contained.
    pub fn contains(&self, value: &Value) -> bool {
        if value.is_null() {
            return self.null;
        }
        if self.kind().is_some_and(|kind| kind != Kind::of(value)) {
            return true;
        }
        // The last interval that begins at or before the value.
        let end = self.intervals.partition_point(|interval| match &interval.low {
            Bound::Unbounded => true,
            Bound::Included(low) => order(low, value).is_le(),
            Bound::Excluded(low) => order(low, value).is_lt(),
        });
        end > 0
            && match &self.intervals[end - 1].high {
                Bound::Unbounded => true,
                Bound::Included(high) => order(value, high).is_le(),
                Bound::Excluded(high) => order(value, high).is_lt(),
            }
    }

    /// True if the domain contains every value and NULL.
    pub fn is_all(&self) -> bool {
        self.null && self.intervals.first() == Some(&Interval::ALL)
    }

    /// True if the domain is empty.
    pub fn is_none(&self) -> bool {
        !self.null && self.intervals.is_empty()
    }

    /// True if the domain contains NULL.
    pub fn allows_null(&self) -> bool {
        self.null
    }

    /// The values of the domain, NULL first, if they are at most `max`. Ranges of more than one value (`x > 3 AND x <
    /// 5`) count as infinite: see [`Domain::points_of`].
    pub fn as_points(&self, max: usize) -> Option<Vec<Value>> {
        self.enumerate(max, |interval| match (&interval.low, &interval.high) {
            (Bound::Included(low), Bound::Included(high)) if low == high => Some(vec![low.clone()]),
            (Bound::Included(Value::Float(low)), Bound::Included(Value::Float(high)))
                if *low == 0.0 && *high == 0.0 =>
            {
                Some(vec![Value::Float(-0.0), Value::Float(0.0)])
            }
            _ => None,
        })
    }

    fn enumerate(
        &self,
        max: usize,
        values_of: impl Fn(&Interval) -> Option<Vec<Value>>,
    ) -> Option<Vec<Value>> {
        let mut values = Vec::new();
        if self.null {
            values.push(Value::Null);
        }
        for interval in &self.intervals {
            if values.len() > max {
                return None;
            }
            values.extend(values_of(interval)?);
        }
        (values.len() <= max).then_some(values)
    }

    /// The intervals, ascending.
    pub fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    /// True if a set of values with these statistics may contain one of the domain; an unknown bound is `None`. `min`
    /// and `max` cover the values that are neither NULL nor NaN, as in Parquet; a NaN may be present in any case.
    pub fn may_contain(
        &self,
        min: Option<&Value>,
        max: Option<&Value>,
        may_have_null: bool,
    ) -> bool {
        if self.null && may_have_null {
            return true;
        }
        let bound = |value: Option<&Value>| match value {
            Some(value) if !value.is_null() => Bound::Included(value.clone()),
            _ => Bound::Unbounded,
        };
        // Statistics of another kind than the bounds exclude nothing.
        let range = Interval { low: bound(min), high: bound(max) };
        let float = range.values().any(|value| matches!(value, Value::Float(_)));
        let range = Self { null: false, intervals: vec![range] };
        if !self.compares_with(&range) {
            return !self.intervals.is_empty();
        }
        // Statistics omit NaN, which lies above infinity or below its negative: of floats, a domain with such values
        // may match in any case.
        let overlaps = |low: &Bound<Value>, high: &Bound<Value>| {
            self.intervals.iter().any(|interval| {
                let low = if order_lows(&interval.low, low).is_lt() { low } else { &interval.low };
                let high =
                    if order_highs(&interval.high, high).is_lt() { &interval.high } else { high };
                !Interval { low: low.clone(), high: high.clone() }.is_empty()
            })
        };
        let nan_above = Bound::Excluded(Value::Float(f64::INFINITY));
        let nan_below = Bound::Excluded(Value::Float(f64::NEG_INFINITY));
        overlaps(&range.intervals[0].low, &range.intervals[0].high)
            || float
                && (overlaps(&nan_above, &Bound::Unbounded)
                    || overlaps(&Bound::Unbounded, &nan_below))
    }

    fn kind(&self) -> Option<Kind> {
        self.intervals.iter().flat_map(Interval::values).map(Kind::of).next()
    }

    fn compares_with(&self, other: &Self) -> bool {
        one_kind(self.kind().into_iter().chain(other.kind())).is_ok()
    }
}

impl fmt::Display for Domain {
    /// For example `NULL | [1, 5) | (7, ..)`; `none` when it is empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("none");
        }
        let null = self.null.then(|| "NULL".to_owned());
        let parts = null.into_iter().chain(self.intervals.iter().map(Interval::to_string));
        f.write_str(&parts.collect::<Vec<_>>().join(" | "))
    }
}
