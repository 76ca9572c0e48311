//! Ranges of the key space, as partitions own them.
//!
//! A range is half-open, `[start, end)`. Its bounds exist in two forms: as typed tuples ([`Bound`], for storage,
//! messages and display) and encoded ([`KeyRange`], for comparison).

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::id::ColumnId;
use crate::value::Value;

/// A typed bound: the placement (for schemes that have one), then values of a prefix of the key's columns. An empty
/// bound is the end of the key space: as a start before every key, as an end after every key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// The placement, for tables placed by hash or rules.
    pub placement: Option<u16>,
    /// Values of the first key columns; fewer than the key has is a prefix.
    pub key: Vec<Value>,
}

impl Bound {
    /// The first key of a placement.
    pub fn placed(placement: u16) -> Self {
        Self { placement: Some(placement), key: Vec::new() }
    }

    /// True if the bound is an end of the key space.
    pub fn is_empty(&self) -> bool {
        self.placement.is_none() && self.key.is_empty()
    }

    /// The same bound after a column, which is NULL in all existing rows, has been added to the key at this position:
    /// every key that was below the bound still is, every other still is not.
    #[must_use]
    pub fn with_key_column(mut self, position: usize) -> Self {
        if position < self.key.len() {
            self.key.insert(position, Value::Null);
        }
        self
    }
}

impl fmt::Display for Bound {
    /// For people: `(7, 'berlin', NULL)`, the placement first; `()` for an end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        let mut separator = "";
        if let Some(placement) = self.placement {
            write!(f, "{placement}")?;
            separator = ", ";
        }
        for value in &self.key {
            write!(f, "{separator}{value}")?;
            separator = ", ";
        }
        f.write_str(")")
    }
}

/// A partition's range as typed bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypedRange {
    /// Inclusive; empty: from the beginning.
    pub start: Bound,
    /// Exclusive; empty: to the end.
    pub end: Bound,
}

impl TypedRange {
    /// The same range after a column has been added to the key: see [`Bound::with_key_column`].
    #[must_use]
    pub fn with_key_column(self, position: usize) -> Self {
        Self {
            start: self.start.with_key_column(position),
            end: self.end.with_key_column(position),
        }
    }

    /// The same range after columns have been added to the key: from `old` to `new`, which contains the old ones.
    #[must_use]
    pub fn rekeyed(&self, old: &[ColumnId], new: &[ColumnId]) -> Self {
        let added = new.iter().enumerate().filter(|(_, id)| !old.contains(id));
        added.fold(self.clone(), |range, (position, _)| range.with_key_column(position))
    }
}

impl fmt::Display for TypedRange {
    /// `[start, end)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}

/// A half-open range of encoded keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyRange {
    /// Inclusive; empty: from the beginning.
    pub start: Bytes,
    /// Exclusive; `None`: to the end.
    pub end: Option<Bytes>,
}

impl KeyRange {
    /// The whole key space.
    pub fn all() -> Self {
        Self { start: Bytes::new(), end: None }
    }

    /// True if the range contains a key.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_ref() <= key && self.end.as_ref().is_none_or(|end| key < end.as_ref())
    }

    /// True if the two ranges share a key (both assumed non-empty).
    pub fn overlaps(&self, other: &Self) -> bool {
        self.end.as_ref().is_none_or(|end| other.start < *end)
            && other.end.as_ref().is_none_or(|end| self.start < *end)
    }

    /// True if the range contains no key.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// The intersection of both ranges.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let end = match (&self.end, &other.end) {
            (Some(a), Some(b)) => Some(a.min(b).clone()),
            (a, b) => a.as_ref().or(b.as_ref()).cloned(),
        };
        Self { start: self.start.clone().max(other.start.clone()), end }
    }
}
