//! Ranges of values, and the order of their ends.
//!
//! Bounds are ordered by the value set that they begin or end: `>= 3` begins before `> 3`, `< 3` ends
//! before `<= 3`. Only bounds of one [`Kind`] have an order.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Bound;

use crate::value::Value;

/// A range of values that are not NULL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Lower bound.
    pub low: Bound<Value>,
    /// Upper bound.
    pub high: Bound<Value>,
}

impl Interval {
    pub(super) const ALL: Self = Self { low: Bound::Unbounded, high: Bound::Unbounded };

    pub(super) fn values(&self) -> impl Iterator<Item = &Value> {
        [&self.low, &self.high].into_iter().filter_map(|bound| match bound {
            Bound::Included(value) | Bound::Excluded(value) => Some(value),
            Bound::Unbounded => None,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        match (&self.low, &self.high) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(low), Bound::Included(high)) => order(low, high).is_gt(),
            (
                Bound::Included(low) | Bound::Excluded(low),
                Bound::Included(high) | Bound::Excluded(high),
            ) => order(low, high).is_ge(),
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

/// Kinds of values; values of one kind are comparable with each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
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
    pub(super) fn of(value: &Value) -> Self {
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

/// The one kind of all; `None` if there are none, an error if there are several.
pub(super) fn one_kind(kinds: impl Iterator<Item = Kind>) -> Result<Option<Kind>, ()> {
    let mut common = None;
    for kind in kinds {
        if *common.get_or_insert(kind) != kind {
            return Err(());
        }
    }
    Ok(common)
}

/// The order of two values of one [`Kind`].
pub(super) fn order(a: &Value, b: &Value) -> Ordering {
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

pub(super) fn order_lows(a: &Bound<Value>, b: &Bound<Value>) -> Ordering {
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

pub(super) fn order_highs(a: &Bound<Value>, b: &Bound<Value>) -> Ordering {
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

/// True if nothing lies between an interval's end and the beginning of another interval that does not begin before it.
pub(super) fn meets(high: &Bound<Value>, low: &Bound<Value>) -> bool {
    match (high, low) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
        (Bound::Excluded(high), Bound::Excluded(low)) => order(low, high).is_lt(),
        (
            Bound::Included(high) | Bound::Excluded(high),
            Bound::Included(low) | Bound::Excluded(low),
        ) => order(low, high).is_le(),
    }
}
