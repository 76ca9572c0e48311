//! Ranges of the key space: what a partition owns.
//!
//! A range is half-open, `[start, end)`. Its bounds are kept twice: as typed tuples ([`Bound`],
//! what is stored, sent and shown) and encoded ([`KeyRange`], what is compared).

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::id::ColumnId;
use crate::value::Value;

/// A typed bound: the placement (for schemes that have one), then values of a prefix of the key's
/// columns. An empty bound is the end of the key space: before everything as a start, after
/// everything as an end.
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

    /// Whether it is an end of the key space.
    pub fn is_empty(&self) -> bool {
        self.placement.is_none() && self.key.is_empty()
    }

    /// The same bound after a column has been added to the key at this position, where all rows up
    /// to now have NULL: every key that was below it still is, every other still is not.
    #[must_use]
    pub fn with_key_column(mut self, position: usize) -> Self {
        if position < self.key.len() {
            self.key.insert(position, Value::Null);
        }
        self
    }
}

impl fmt::Display for Bound {
    /// As people read it: `(7, 'berlin', NULL)`, the placement first; `()` for an end.
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

    /// The same range after the key of `old` columns has become the key of `new` ones, which are those and some more.
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

    /// Whether it holds a key.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.start.as_ref() <= key && self.end.as_ref().is_none_or(|end| key < end.as_ref())
    }

    /// Whether the two share a key (both taken as non-empty).
    pub fn overlaps(&self, other: &Self) -> bool {
        self.end.as_ref().is_none_or(|end| other.start < *end)
            && other.end.as_ref().is_none_or(|end| self.start < *end)
    }

    /// Whether it holds no key.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    /// What both hold.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        let end = match (&self.end, &other.end) {
            (Some(a), Some(b)) => Some(a.min(b).clone()),
            (a, b) => a.as_ref().or(b.as_ref()).cloned(),
        };
        Self { start: self.start.clone().max(other.start.clone()), end }
    }
}
