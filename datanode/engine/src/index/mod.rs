//! Indexes of columns, stored in the files: for each row group a *segment*, the part of an index that covers it.
//!
//! ```text
//!   rows ── build ─┬─ inverted ── dictionary, gaps     writer ──> segments between row groups, directory in the footer
//!                  ├─ bloom (hashes)
//!                  └─ text (tokens)
//!   footer ── directory ── cache ── segment ── question ──> rows of the group that may pass
//! ```
//!
//! An answer holds every row that passes a test, maybe more: indexes exclude rows, they decide nothing. Values are
//! compared as ordered bytes ([`value`]).

pub(crate) mod bloom;
pub(crate) mod build;
pub(crate) mod cache;
mod dictionary;
pub(crate) mod directory;
mod gaps;
pub(crate) mod inverted;
pub(crate) mod terms;
pub(crate) mod value;

use bytes::Bytes;
use partita_proto::domain::Domain;
use partita_proto::id::ColumnId;
use partita_proto::index::IndexOptions;
use regex::Regex;
use roaring::RoaringBitmap;

/// Maximum values of a domain that bloom filters are asked for: with more of them, some value seems to be in every
/// block.
pub(crate) const POINTS_MAX: usize = 1_000;

/// An index of a column of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Indexed {
    pub(crate) column: ColumnId,
    pub(crate) options: IndexOptions,
}

/// The part of an index that covers one row group. Rows are numbers within the group.
#[derive(Debug)]
pub(crate) enum Segment {
    Values(inverted::Inverted),
    Blooms(bloom::Filters),
    Terms(terms::Terms),
    /// The group's values exceeded the limits of the index when it was built.
    Unknown,
}

impl Segment {
    /// Decodes the segment of an index with these options. `Err`: the segment is corrupt.
    pub(crate) fn decode(bytes: &Bytes, options: &IndexOptions) -> Result<Self, String> {
        if bytes.is_empty() {
            return Ok(Self::Unknown);
        }
        // A copy, so that a cached segment does not keep the bytes around it in memory.
        let copied = || Bytes::copy_from_slice(bytes);
        Ok(match options {
            IndexOptions::Inverted => Self::Values(inverted::Inverted::decode(copied())?),
            IndexOptions::Skipping(_) => Self::Blooms(bloom::Filters::decode(bytes)?),
            IndexOptions::Fulltext(options) => {
                Self::Terms(terms::Terms::decode(copied(), *options)?)
            }
        })
    }

    /// Approximate bytes in memory.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Values(values) => values.bytes(),
            Self::Blooms(filters) => filters.bytes(),
            Self::Terms(terms) => terms.bytes(),
            Self::Unknown => size_of::<Self>() as u64,
        }
    }

    /// Rows of the group that may pass; `None` if the index cannot tell. `Err`: the segment is corrupt.
    pub(crate) fn rows(&self, question: &Question<'_>) -> Result<Option<RoaringBitmap>, String> {
        match (self, *question) {
            (Self::Values(values), Question::Within(domain)) => values.within(domain).map(Some),
            (Self::Values(values), Question::Pattern(pattern)) => {
                values.matching(pattern).map(Some)
            }
            (Self::Blooms(filters), Question::Within(domain)) => Ok(within(filters, domain)),
            (Self::Terms(index), Question::Terms { terms, folded }) => index.rows(terms, folded),
            (Self::Values(_), Question::Terms { .. })
            | (Self::Blooms(_), Question::Pattern(_) | Question::Terms { .. })
            | (Self::Terms(_), Question::Within(_) | Question::Pattern(_))
            | (Self::Unknown, _) => Ok(None),
        }
    }
}

/// Rows of the blocks that may hold a value of the domain; `None` if it is not a few values.
fn within(filters: &bloom::Filters, domain: &Domain) -> Option<RoaringBitmap> {
    let points = domain.as_points(POINTS_MAX)?;
    let values = points.iter().filter(|point| !point.is_null());
    let keys: Vec<Vec<u8>> = values
        .map(|point| {
            let mut key = Vec::new();
            value::push(point, &mut key);
            key
        })
        .collect();
    Some(filters.any_of(&keys, domain.allows_null()))
}

/// A test of one column, in the form in which segments take it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Question<'a> {
    /// A domain in the column's own type.
    Within(&'a Domain),
    /// A regular expression that finds a match in the text; its flags say whether case matters.
    Pattern(&'a Regex),
    /// All terms are in the text, in lower case if `folded`; see [`partita_proto::probe::ColumnTest::Terms`].
    Terms { terms: &'a [String], folded: bool },
}
