//! Bigtable's filter language: a checked tree of filters, and their output for the cells of a row.
//!
//! ```text
//!   RowFilter ── compile.rs: limits, patterns ──▶ Filter ─┬─ run.rs: row ─▶ row
//!                     │                                   └─ narrow.rs: what a scan may leave out
//!                     └─ pattern.rs: RE2 over bytes
//! ```
//!
//! No I/O, no clock, no state: equal rows and seeds give equal results.

mod compile;
mod narrow;
mod pattern;
mod run;
#[cfg(test)]
mod tests;

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use self::pattern::Pattern;

pub use self::compile::InvalidFilter;
pub use self::narrow::Narrowing;
pub use self::run::TooManyCopies;

/// A checked filter.
#[derive(Clone, Debug)]
pub struct Filter {
    root: Node,
    /// Seed of the samples of rows.
    seed: u64,
}

/// Node of the tree of filters.
#[derive(Clone, Debug)]
enum Node {
    Pass,
    Block,
    /// Moves cells to the output of the whole filter.
    Sink,
    Chain(Vec<Node>),
    Interleave(Vec<Node>),
    Condition {
        predicate: Box<Node>,
        matched: Option<Box<Node>>,
        unmatched: Option<Box<Node>>,
    },
    RowKey(Pattern),
    Sample {
        share: f64,
        /// Number of the sample in the filter, so that two samples are independent.
        number: u64,
    },
    Family(Pattern),
    Qualifier(Pattern),
    Columns {
        family: String,
        qualifiers: ByteRange,
    },
    Times(TimeRange),
    Value(Pattern),
    Values(ByteRange),
    /// Values of the mask's length that have all its bits.
    Mask(Bytes),
    RowOffset(usize),
    RowLimit(usize),
    ColumnLimit(usize),
    Strip,
    Label(Arc<str>),
}

/// Bytes between two bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// Lower bound.
    pub start: Bound<Bytes>,
    /// Upper bound.
    pub end: Bound<Bytes>,
}

impl ByteRange {
    /// The range that has all bytes.
    #[must_use]
    pub fn all() -> Self {
        Self { start: Bound::Unbounded, end: Bound::Unbounded }
    }

    /// Returns true if bytes lie within the bounds.
    #[must_use]
    pub fn contains(&self, bytes: &[u8]) -> bool {
        let after_start = match &self.start {
            Bound::Included(start) => bytes >= &start[..],
            Bound::Excluded(start) => bytes > &start[..],
            Bound::Unbounded => true,
        };
        let before_end = match &self.end {
            Bound::Included(end) => bytes <= &end[..],
            Bound::Excluded(end) => bytes < &end[..],
            Bound::Unbounded => true,
        };
        after_start && before_end
    }
}

/// Timestamps from a start, before an end, in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// First timestamp.
    pub start_us: i64,
    /// First timestamp after the range; `None` for no bound.
    pub end_us: Option<i64>,
}

impl TimeRange {
    /// All timestamps.
    pub const ALL: Self = Self { start_us: i64::MIN, end_us: None };

    /// Returns true if a timestamp lies in the range.
    #[must_use]
    pub fn contains(&self, timestamp_us: i64) -> bool {
        timestamp_us >= self.start_us && self.end_us.is_none_or(|end| timestamp_us < end)
    }

    /// Timestamps that two ranges share.
    #[must_use]
    pub fn intersect(&self, range: &Self) -> Self {
        let end_us = match (self.end_us, range.end_us) {
            (Some(first), Some(second)) => Some(first.min(second)),
            (first, second) => first.or(second),
        };
        Self { start_us: self.start_us.max(range.start_us), end_us }
    }
}
