//! The part of a table that a filter can have output of, so that scans read no more.
//!
//! Only the first filters of a chain count, up to the first one whose output depends on cells beside those that it
//! outputs (limits, interleave, condition) or that has two outputs (sink).

use std::ops::Bound;

use bytes::Bytes;

use super::{ByteRange, Filter, Node, TimeRange};

/// Cells that a reader needs. A source may return others too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Narrowing {
    /// Bytes that the row keys begin with.
    pub key_prefix: Bytes,
    /// Only family; `None` for all.
    pub family: Option<String>,
    /// Qualifiers of the columns.
    pub qualifiers: ByteRange,
    /// Timestamps of the cells.
    pub times: TimeRange,
    /// Most cells of a column, the newest ones within the other bounds; `None` for all.
    pub versions: Option<usize>,
}

impl Narrowing {
    /// All cells.
    #[must_use]
    pub fn none() -> Self {
        Self {
            key_prefix: Bytes::new(),
            family: None,
            qualifiers: ByteRange::all(),
            times: TimeRange::ALL,
            versions: None,
        }
    }

    /// Returns true if a column lies within the bounds.
    #[must_use]
    pub fn has_column(&self, family: &str, qualifier: &[u8]) -> bool {
        self.family.as_ref().is_none_or(|name| name == family)
            && self.qualifiers.contains(qualifier)
    }
}

impl Filter {
    /// The cells that the filter needs.
    #[must_use]
    pub fn narrowing(&self) -> Narrowing {
        let mut narrower = Narrower { narrowing: Narrowing::none(), by_value: false };
        narrower.add(&self.root);
        narrower.narrowing
    }
}

struct Narrower {
    narrowing: Narrowing,
    /// True after a filter by values. A limit of versions after it counts only the cells that it outputs, so the scan
    /// cannot apply that limit first.
    by_value: bool,
}

impl Narrower {
    /// Narrows by a filter; returns false if nothing after it may narrow.
    fn add(&mut self, node: &Node) -> bool {
        match node {
            Node::Chain(nodes) => return nodes.iter().all(|node| self.add(node)),
            Node::Pass | Node::Sample { .. } | Node::Strip | Node::Label(_) => {}
            Node::RowKey(pattern) => self.add_prefix(pattern.prefix()),
            Node::Family(pattern) => {
                if let Some(family) = pattern.literal() {
                    self.add_family(&String::from_utf8_lossy(family));
                }
            }
            Node::Qualifier(pattern) => {
                if let Some(qualifier) = pattern.literal() {
                    let bound = Bound::Included(Bytes::copy_from_slice(qualifier));
                    self.add_qualifiers(&ByteRange { start: bound.clone(), end: bound });
                }
            }
            Node::Columns { family, qualifiers } => {
                self.add_family(family);
                self.add_qualifiers(qualifiers);
            }
            Node::Times(times) => self.narrowing.times = self.narrowing.times.intersect(times),
            Node::Value(_) | Node::Values(_) | Node::Mask(_) => self.by_value = true,
            Node::ColumnLimit(count) => {
                if !self.by_value {
                    self.narrowing.versions = Some(*count);
                }
                return false;
            }
            Node::Block
            | Node::Sink
            | Node::Interleave(_)
            | Node::Condition { .. }
            | Node::RowOffset(_)
            | Node::RowLimit(_) => return false,
        }
        true
    }

    /// Keeps the longer of two prefixes. If they exclude each other, the filter outputs nothing when it is evaluated.
    fn add_prefix(&mut self, prefix: &[u8]) {
        if prefix.len() > self.narrowing.key_prefix.len() {
            self.narrowing.key_prefix = Bytes::copy_from_slice(prefix);
        }
    }

    fn add_family(&mut self, family: &str) {
        self.narrowing.family.get_or_insert_with(|| family.to_owned());
    }

    /// Takes the later start and the earlier end.
    fn add_qualifiers(&mut self, range: &ByteRange) {
        let qualifiers = &mut self.narrowing.qualifiers;
        if begins_later(&range.start, &qualifiers.start) {
            qualifiers.start = range.start.clone();
        }
        if ends_earlier(&range.end, &qualifiers.end) {
            qualifiers.end = range.end.clone();
        }
    }
}

fn begins_later(first: &Bound<Bytes>, second: &Bound<Bytes>) -> bool {
    match (first, second) {
        (Bound::Unbounded, _) => false,
        (_, Bound::Unbounded) => true,
        (Bound::Excluded(first), Bound::Included(second)) => first >= second,
        (
            Bound::Included(first) | Bound::Excluded(first),
            Bound::Included(second) | Bound::Excluded(second),
        ) => first > second,
    }
}

fn ends_earlier(first: &Bound<Bytes>, second: &Bound<Bytes>) -> bool {
    match (first, second) {
        (Bound::Unbounded, _) => false,
        (_, Bound::Unbounded) => true,
        (Bound::Excluded(first), Bound::Included(second)) => first <= second,
        (
            Bound::Included(first) | Bound::Excluded(first),
            Bound::Included(second) | Bound::Excluded(second),
        ) => first < second,
    }
}
