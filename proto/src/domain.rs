//! Domains: what a predicate leaves of a column.
//!
//! A [`Domain`] is a set of values, NULL or not, as ranges; [`Domains`] is one for each of several
//! columns, all to hold at once. They prune partitions, files and row groups, and filter rows.
//!
//! Invariants:
//! - intervals are not empty, ascending, and no two of them touch;
//! - all their bounds compare with each other. Values that do not (a string and a number) never
//!   meet in a domain: an operation that would mix them leaves more values in, never fewer.
//!
//! A domain does not know its column's type. Its bounds may be any literals of the column; where it
//! meets a column or a schema, [`Domain::typed`] first brings them to the type, exactly: `x < 300`
//! is everything in a TINYINT column, `x > 2.5` is `x >= 3` in an integer one.
//!
//! Floats: the order is the total one, in which `-0.0 < 0.0` and NaN has a place. SQL's comparisons
//! take both zeros for one value, and so do [`Domain::compare`] and [`Domain::point`].

mod columns;
mod mask;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::fmt;
use std::ops::Bound;

pub use self::columns::Domains;
use crate::error::Error;
use crate::literal::{Fit, fit};
use crate::neighbour::{is_stepped, least, predecessor, successor};
use crate::rule::Comparison;
use crate::schema::ColumnType;
use crate::value::Value;

/// A range of values that are not NULL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Where it begins.
    pub low: Bound<Value>,
    /// Where it ends.
    pub high: Bound<Value>,
}

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

    /// Nothing.
    pub fn none() -> Self {
        Self { null: false, intervals: Vec::new() }
    }

    /// NULL alone.
    pub fn null_only() -> Self {
        Self { null: true, intervals: Vec::new() }
    }

    /// Every value but NULL.
    pub fn not_null() -> Self {
        Self { null: false, intervals: vec![Interval::ALL] }
    }

    /// What equals a value: NULL alone for NULL, both zeros for a float zero.
    pub fn point(value: Value) -> Self {
        if value.is_null() { Self::null_only() } else { Self::compare(Comparison::Equal, value) }
    }

    /// What equals one of the values; NULL may be among them.
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

    /// The values `x` of which `x comparison value` is true. NULL never is, on either side.
    pub fn compare(comparison: Comparison, value: Value) -> Self {
        // The first and the last of what counts as equal to the value.
        let (first, last) = match value {
            Value::Null => return Self::none(),
            Value::Float(v) if v == 0.0 => (Value::Float(-0.0), Value::Float(0.0)),
            other => (other.clone(), other),
        };
        let below = |high| Interval { low: Bound::Unbounded, high };
        let above = |low| Interval { low, high: Bound::Unbounded };
        let intervals = match comparison {
            Comparison::Equal => {
                vec![Interval { low: Bound::Included(first), high: Bound::Included(last) }]
            }
            Comparison::NotEqual => {
                vec![below(Bound::Excluded(first)), above(Bound::Excluded(last))]
            }
            Comparison::Less => vec![below(Bound::Excluded(first))],
            Comparison::LessOrEqual => vec![below(Bound::Included(last))],
            Comparison::Greater => vec![above(Bound::Excluded(last))],
            Comparison::GreaterOrEqual => vec![above(Bound::Included(first))],
        };
        Self { null: false, intervals }
    }

    /// The values between two bounds, in the total order; not NULL.
    pub fn interval(low: Bound<Value>, high: Bound<Value>) -> Self {
        Self::from_intervals(false, vec![Interval { low, high }])
    }

    /// The union of intervals, and NULL or not. Bounds that are NULL count as the end on their side.
    pub fn from_intervals(null: bool, intervals: Vec<Interval>) -> Self {
        let unbound_null = |bound: Bound<Value>| match bound {
            Bound::Included(Value::Null) | Bound::Excluded(Value::Null) => Bound::Unbounded,
            other => other,
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

    /// The same values, and NULL if asked for.
    #[must_use]
    pub fn with_null(mut self, null: bool) -> Self {
        self.null = null;
        self
    }

    /// What both hold (or more, when their values do not compare with each other).
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let null = self.null && other.null;
        if !self.compares_with(other) {
            return Self { null, intervals: self.intervals.clone() };
        }
        let mut intervals = Vec::new();
        let (mut left, mut right) = (self.intervals.iter(), other.intervals.iter());
        let (mut a, mut b) = (left.next(), right.next());
        while let (Some(x), Some(y)) = (a, b) {
            let low = if order_lows(&x.low, &y.low).is_lt() { &y.low } else { &x.low };
            let x_ends_first = order_highs(&x.high, &y.high).is_lt();
            let high = if x_ends_first { &x.high } else { &y.high };
            let both = Interval { low: low.clone(), high: high.clone() };
            if !both.is_empty() {
                intervals.push(both);
            }
            if x_ends_first {
                a = left.next();
            } else {
                b = right.next();
            }
        }
        Self { null, intervals }
    }

    /// What one of them holds (or more, when their values do not compare with each other).
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let intervals = self.intervals.iter().chain(&other.intervals).cloned().collect();
        Self::from_intervals(self.null || other.null, intervals)
    }

    /// The values that it does not hold; never NULL.
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

    /// Whether it holds a value. One that does not compare with its bounds counts as held.
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

    /// Whether it holds everything, NULL too.
    pub fn is_all(&self) -> bool {
        self.null && self.intervals.first() == Some(&Interval::ALL)
    }

    /// Whether it holds nothing.
    pub fn is_none(&self) -> bool {
        !self.null && self.intervals.is_empty()
    }

    /// Whether it holds NULL.
    pub fn allows_null(&self) -> bool {
        self.null
    }

    /// The values that it holds, if they are finitely many and at most `max`, NULL first. Ranges
    /// of more than one value (`x > 3 AND x < 5`) count as infinite: see [`Domain::points_of`].
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

    /// The values of a column type that it holds, if they are at most `max`, NULL first. Counts
    /// through short ranges of integers, dates and other types whose values come in steps.
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
                // What follows the last one; past the end of the interval or of the type, it is all.
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

    /// Its ranges, ascending.
    pub fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    /// Whether a set of values with these statistics may hold one of the domain. `None`: unknown.
    /// `min` and `max` are over the values that are neither NULL nor NaN, because that is how
    /// Parquet keeps them; a NaN may be present whatever they say.
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
        let range = Interval { low: bound(min), high: bound(max) };
        let float = range.values().any(|value| matches!(value, Value::Float(_)));
        let range = Self { null: false, intervals: vec![range] };
        if !self.compares_with(&range) {
            return !self.intervals.is_empty();
        }
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

    /// The same set as values of a column type. For types whose values come in steps, bounds become
    /// inclusive; what the type has no value for is gone.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when a bound does not compare with the type.
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
        // Two that are apart as numbers may be next to each other in the type: [1, 2] and [3, 4].
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

    fn kind(&self) -> Option<Kind> {
        self.intervals.iter().flat_map(Interval::values).map(Kind::of).next()
    }

    fn compares_with(&self, other: &Self) -> bool {
        one_kind(self.kind().into_iter().chain(other.kind())).is_ok()
    }
}

impl Interval {
    const ALL: Self = Self { low: Bound::Unbounded, high: Bound::Unbounded };

    fn values(&self) -> impl Iterator<Item = &Value> {
        [&self.low, &self.high].into_iter().filter_map(|bound| match bound {
            Bound::Included(value) | Bound::Excluded(value) => Some(value),
            Bound::Unbounded => None,
        })
    }

    fn is_empty(&self) -> bool {
        match (&self.low, &self.high) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(low), Bound::Included(high)) => order(low, high).is_gt(),
            (
                Bound::Included(low) | Bound::Excluded(low),
                Bound::Included(high) | Bound::Excluded(high),
            ) => order(low, high).is_ge(),
        }
    }

    /// Whether no value of the type lies in it, both bounds being of the type.
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

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.low {
            Bound::Unbounded => f.write_str("(..")?,
            Bound::Included(low) => write!(f, "[{low}")?,
            Bound::Excluded(low) => write!(f, "({low}")?,
        }
        match &self.high {
            Bound::Unbounded => f.write_str(", ..)"),
            Bound::Included(high) => write!(f, ", {high}]"),
            Bound::Excluded(high) => write!(f, ", {high})"),
        }
    }
}

impl fmt::Display for Domain {
    /// Like `NULL | [1, 5) | (7, ..)`; `none` when it is empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("none");
        }
        let null = self.null.then(|| "NULL".to_owned());
        let parts = null.into_iter().chain(self.intervals.iter().map(Interval::to_string));
        f.write_str(&parts.collect::<Vec<_>>().join(" | "))
    }
}

/// Values that compare with each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    /// Integers of either sign, and ticks: a bare number stands for ticks of the column's unit.
    Integer,
    Float,
    Decimal,
    String,
    Binary,
    Date,
}

impl Kind {
    fn of(value: &Value) -> Self {
        match value {
            // NULL is never a bound; see `Domain::from_intervals`.
            Value::Null | Value::Bool(_) => Self::Bool,
            Value::Int(_) | Value::UInt(_) | Value::Timestamp(_) => Self::Integer,
            Value::Float(_) => Self::Float,
            Value::Decimal(_) => Self::Decimal,
            Value::String(_) => Self::String,
            Value::Binary(_) => Self::Binary,
            Value::Date(_) => Self::Date,
        }
    }
}

/// The one kind of all, `None` if there are none; an error if there are several.
fn one_kind(kinds: impl Iterator<Item = Kind>) -> Result<Option<Kind>, ()> {
    let mut found = None;
    for kind in kinds {
        if *found.get_or_insert(kind) != kind {
            return Err(());
        }
    }
    Ok(found)
}

/// The order of two values of one [`Kind`].
fn order(a: &Value, b: &Value) -> Ordering {
    let integer = |value: &Value| match value {
        Value::Int(v) | Value::Timestamp(v) => Some(i128::from(*v)),
        Value::UInt(v) => Some(i128::from(*v)),
        _ => None,
    };
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => a.cmp(b),
    }
}

fn order_lows(a: &Bound<Value>, b: &Bound<Value>) -> Ordering {
    match (a, b) {
        (Bound::Unbounded, Bound::Unbounded) => Ordering::Equal,
        (Bound::Unbounded, _) => Ordering::Less,
        (_, Bound::Unbounded) => Ordering::Greater,
        (Bound::Included(a), Bound::Excluded(b)) => order(a, b).then(Ordering::Less),
        (Bound::Excluded(a), Bound::Included(b)) => order(a, b).then(Ordering::Greater),
        (Bound::Included(a), Bound::Included(b)) | (Bound::Excluded(a), Bound::Excluded(b)) => {
            order(a, b)
        }
    }
}

fn order_highs(a: &Bound<Value>, b: &Bound<Value>) -> Ordering {
    match (a, b) {
        (Bound::Unbounded, Bound::Unbounded) => Ordering::Equal,
        (Bound::Unbounded, _) => Ordering::Greater,
        (_, Bound::Unbounded) => Ordering::Less,
        (Bound::Included(a), Bound::Excluded(b)) => order(a, b).then(Ordering::Greater),
        (Bound::Excluded(a), Bound::Included(b)) => order(a, b).then(Ordering::Less),
        (Bound::Included(a), Bound::Included(b)) | (Bound::Excluded(a), Bound::Excluded(b)) => {
            order(a, b)
        }
    }
}

/// Whether nothing lies between an interval's end and the beginning of one that does not begin
/// before it.
fn meets(high: &Bound<Value>, low: &Bound<Value>) -> bool {
    match (high, low) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
        (Bound::Excluded(high), Bound::Excluded(low)) => order(low, high).is_lt(),
        (
            Bound::Included(high) | Bound::Excluded(high),
            Bound::Included(low) | Bound::Excluded(low),
        ) => order(low, high).is_le(),
    }
}

/// Whether the next value of the type after an interval's end is the beginning of another.
fn follows(high: &Bound<Value>, low: &Bound<Value>, column_type: ColumnType) -> bool {
    match (high, low) {
        (Bound::Included(high), Bound::Included(low)) => {
            successor(high, column_type).is_some_and(|next| next >= *low)
        }
        _ => false,
    }
}

/// A lower bound in a type; `None` when nothing of the type is above it.
fn typed_low(bound: &Bound<Value>, ty: ColumnType) -> Result<Option<Bound<Value>>, Error> {
    let (value, included) = match bound {
        Bound::Unbounded => return Ok(Some(Bound::Unbounded)),
        Bound::Included(value) => (value, true),
        Bound::Excluded(value) => (value, false),
    };
    Ok(match fit(value, ty)? {
        Fit::Below => Some(Bound::Unbounded),
        Fit::Above => None,
        Fit::After(before) => after(before, ty),
        Fit::Exact(exact) => {
            // A zero that was not a float yet equals both of a float's.
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

/// What is above a value of a type, as a lower bound.
fn after(value: Value, column_type: ColumnType) -> Option<Bound<Value>> {
    if is_stepped(column_type) {
        successor(&value, column_type).map(Bound::Included)
    } else {
        Some(Bound::Excluded(value))
    }
}

/// An upper bound in a type; `None` when nothing of the type is below it.
fn typed_high(bound: &Bound<Value>, ty: ColumnType) -> Result<Option<Bound<Value>>, Error> {
    let (value, included) = match bound {
        Bound::Unbounded => return Ok(Some(Bound::Unbounded)),
        Bound::Included(value) => (value, true),
        Bound::Excluded(value) => (value, false),
    };
    Ok(match fit(value, ty)? {
        Fit::Below => None,
        Fit::Above => Some(Bound::Unbounded),
        Fit::After(before) => Some(Bound::Included(before)),
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
