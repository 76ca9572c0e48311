//! Checks a filter of a request, and compiles its patterns.

use std::fmt;
use std::ops::Bound;

use bytes::Bytes;
use prost::Message;

use super::pattern::{COMPILED_BYTES_MAX, Pattern};
use super::{ByteRange, Filter, Node, TimeRange};
use crate::api::data::column_range::{EndQualifier, StartQualifier};
use crate::api::data::row_filter::{Condition, Filter as Kind};
use crate::api::data::value_range::{EndValue, StartValue};
use crate::api::data::{ColumnRange, RowFilter, TimestampRange, ValueRange};

/// Maximum serialized bytes of a filter.
const BYTES_MAX: usize = 20_480;
/// Maximum depth of filters in filters.
const DEPTH_MAX: usize = 20;
/// Maximum letters of a label.
const LABEL_LETTERS_MAX: usize = 15;
/// Bytes that any pattern may have when it is compiled, however many there are.
const COMPILED_BYTES_LEAST: usize = 64 << 10;

/// Reason for which a filter is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidFilter(String);

impl fmt::Display for InvalidFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "invalid filter: {}", self.0)
    }
}

impl std::error::Error for InvalidFilter {}

impl Filter {
    /// Compiles a filter. The seed decides which rows its samples contain.
    ///
    /// # Errors
    /// When the filter is too large or too deep, or a part of it is not valid.
    pub fn new(filter: &RowFilter, seed: u64) -> Result<Self, InvalidFilter> {
        let bytes = filter.encoded_len();
        if bytes > BYTES_MAX {
            return Err(InvalidFilter(format!("{bytes} bytes exceed the maximum of {BYTES_MAX}")));
        }
        let mut compiler = Compiler { samples: 0, patterns: 0 };
        let root = compiler.node(filter, Place { depth: 0, in_condition: false });
        Ok(Self { root: root.map_err(InvalidFilter)?, seed })
    }
}

/// Position of a filter in the tree.
#[derive(Clone, Copy)]
struct Place {
    depth: usize,
    in_condition: bool,
}

impl Place {
    /// The position of the filters within a compound filter.
    fn inner(self) -> Result<Self, String> {
        if self.depth == DEPTH_MAX {
            return Err(format!("filters are nested deeper than {DEPTH_MAX}"));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }
}

struct Compiler {
    /// Number of samples so far.
    samples: u64,
    /// Number of patterns so far.
    patterns: usize,
}

impl Compiler {
    fn node(&mut self, filter: &RowFilter, place: Place) -> Result<Node, String> {
        let Some(kind) = &filter.filter else {
            return Err("a filter is empty or of a kind that is not supported".to_owned());
        };
        Ok(match kind {
            Kind::Chain(chain) => {
                let nodes = self.nodes(&chain.filters, place)?;
                if nodes.iter().filter(|node| node.has_label()).count() > 1 {
                    return Err("a chain applies more than one label to a cell".to_owned());
                }
                Node::Chain(nodes)
            }
            Kind::Interleave(interleave) => {
                Node::Interleave(self.nodes(&interleave.filters, place)?)
            }
            Kind::Condition(condition) => self.condition(condition, place)?,
            Kind::Sink(is_set) => {
                must_be_set("sink", *is_set)?;
                if place.in_condition {
                    return Err("a sink must not be within a condition".to_owned());
                }
                Node::Sink
            }
            Kind::PassAllFilter(is_set) => {
                must_be_set("pass_all_filter", *is_set)?;
                Node::Pass
            }
            Kind::BlockAllFilter(is_set) => {
                must_be_set("block_all_filter", *is_set)?;
                Node::Block
            }
            Kind::RowSampleFilter(share) => self.sample(*share)?,
            Kind::RowKeyRegexFilter(text) => Node::RowKey(self.pattern(text)?),
            Kind::FamilyNameRegexFilter(text) => {
                if text.contains(':') {
                    return Err("a pattern of families must not contain a colon".to_owned());
                }
                Node::Family(self.pattern(text.as_bytes())?)
            }
            Kind::ColumnQualifierRegexFilter(text) => Node::Qualifier(self.pattern(text)?),
            Kind::ColumnRangeFilter(range) => columns(range)?,
            Kind::TimestampRangeFilter(range) => Node::Times(times(range)?),
            Kind::ValueRegexFilter(text) => Node::Value(self.pattern(text)?),
            Kind::ValueRangeFilter(range) => Node::Values(values(range)?),
            Kind::ValueBitmaskFilter(bitmask) => Node::Mask(bitmask.mask.clone()),
            Kind::CellsPerRowOffsetFilter(number) => {
                Node::RowOffset(count("cells_per_row_offset_filter", *number)?)
            }
            Kind::CellsPerRowLimitFilter(number) => {
                Node::RowLimit(count("cells_per_row_limit_filter", *number)?)
            }
            Kind::CellsPerColumnLimitFilter(number) => {
                Node::ColumnLimit(count("cells_per_column_limit_filter", *number)?)
            }
            Kind::StripValueTransformer(is_set) => {
                must_be_set("strip_value_transformer", *is_set)?;
                Node::Strip
            }
            Kind::ApplyLabelTransformer(label) => Node::Label(checked_label(label)?.into()),
        })
    }

    fn nodes(&mut self, filters: &[RowFilter], place: Place) -> Result<Vec<Node>, String> {
        if filters.is_empty() {
            return Err("a chain or interleave has no filters".to_owned());
        }
        let place = place.inner()?;
        filters.iter().map(|filter| self.node(filter, place)).collect()
    }

    fn condition(&mut self, condition: &Condition, place: Place) -> Result<Node, String> {
        let place = Place { in_condition: true, ..place.inner()? };
        let Some(predicate) = &condition.predicate_filter else {
            return Err("a condition has no predicate_filter".to_owned());
        };
        if condition.true_filter.is_none() && condition.false_filter.is_none() {
            return Err("a condition has neither a true_filter nor a false_filter".to_owned());
        }
        let predicate = Box::new(self.node(predicate, place)?);
        let mut branch = |filter: Option<&RowFilter>| {
            filter.map(|filter| self.node(filter, place).map(Box::new)).transpose()
        };
        let matched = branch(condition.true_filter.as_deref())?;
        let unmatched = branch(condition.false_filter.as_deref())?;
        Ok(Node::Condition { predicate, matched, unmatched })
    }

    fn sample(&mut self, share: f64) -> Result<Node, String> {
        if share <= 0.0 || share >= 1.0 || share.is_nan() {
            return Err("row_sample_filter must be greater than 0 and less than 1".to_owned());
        }
        let number = self.samples;
        self.samples += 1;
        Ok(Node::Sample { share, number })
    }

    /// Compiles a pattern. All patterns of a filter share a maximum: the second pattern may have half of it, the third
    /// a third.
    fn pattern(&mut self, text: &[u8]) -> Result<Pattern, String> {
        self.patterns += 1;
        let bytes_max = (COMPILED_BYTES_MAX / self.patterns).max(COMPILED_BYTES_LEAST);
        let invalid = |error: String| format!("pattern \"{}\": {error}", text.escape_ascii());
        Pattern::new(text, bytes_max).map_err(invalid)
    }
}

impl Node {
    /// Returns true if the filter may give a label to a cell that it outputs.
    fn has_label(&self) -> bool {
        match self {
            Self::Label(_) => true,
            Self::Chain(nodes) | Self::Interleave(nodes) => nodes.iter().any(Self::has_label),
            Self::Condition { matched, unmatched, .. } => {
                [matched, unmatched].into_iter().flatten().any(|node| node.has_label())
            }
            Self::Pass
            | Self::Block
            | Self::Sink
            | Self::RowKey(_)
            | Self::Sample { .. }
            | Self::Family(_)
            | Self::Qualifier(_)
            | Self::Columns { .. }
            | Self::Times(_)
            | Self::Value(_)
            | Self::Values(_)
            | Self::Mask(_)
            | Self::RowOffset(_)
            | Self::RowLimit(_)
            | Self::ColumnLimit(_)
            | Self::Strip => false,
        }
    }
}

fn must_be_set(name: &str, is_set: bool) -> Result<(), String> {
    if is_set { Ok(()) } else { Err(format!("{name} must be true")) }
}

fn count(name: &str, number: i32) -> Result<usize, String> {
    usize::try_from(number).map_err(|_| format!("{name} must not be negative"))
}

fn checked_label(label: &str) -> Result<&str, String> {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_valid = (1..=LABEL_LETTERS_MAX).contains(&label.len()) && label.bytes().all(is_letter);
    if is_valid {
        return Ok(label);
    }
    Err(format!(
        "label \"{label}\" is not 1 to {LABEL_LETTERS_MAX} lower-case letters, digits and hyphens"
    ))
}

fn columns(range: &ColumnRange) -> Result<Node, String> {
    if range.family_name.is_empty() {
        return Err("column_range_filter has no family_name".to_owned());
    }
    let qualifiers = checked_range(
        match &range.start_qualifier {
            None => Bound::Unbounded,
            Some(StartQualifier::StartQualifierClosed(start)) => Bound::Included(start.clone()),
            Some(StartQualifier::StartQualifierOpen(start)) => Bound::Excluded(start.clone()),
        },
        match &range.end_qualifier {
            None => Bound::Unbounded,
            Some(EndQualifier::EndQualifierClosed(end)) => Bound::Included(end.clone()),
            Some(EndQualifier::EndQualifierOpen(end)) => Bound::Excluded(end.clone()),
        },
        "column_range_filter",
    )?;
    Ok(Node::Columns { family: range.family_name.clone(), qualifiers })
}

fn values(range: &ValueRange) -> Result<ByteRange, String> {
    checked_range(
        match &range.start_value {
            None => Bound::Unbounded,
            Some(StartValue::StartValueClosed(start)) => Bound::Included(start.clone()),
            Some(StartValue::StartValueOpen(start)) => Bound::Excluded(start.clone()),
        },
        match &range.end_value {
            None => Bound::Unbounded,
            Some(EndValue::EndValueClosed(end)) => Bound::Included(end.clone()),
            Some(EndValue::EndValueOpen(end)) => Bound::Excluded(end.clone()),
        },
        "value_range_filter",
    )
}

fn checked_range(start: Bound<Bytes>, end: Bound<Bytes>, name: &str) -> Result<ByteRange, String> {
    if let (
        Bound::Included(first) | Bound::Excluded(first),
        Bound::Included(last) | Bound::Excluded(last),
    ) = (&start, &end)
        && first > last
    {
        return Err(format!("{name} ends before it starts"));
    }
    Ok(ByteRange { start, end })
}

fn times(range: &TimestampRange) -> Result<TimeRange, String> {
    let (start, end) = (range.start_timestamp_micros, range.end_timestamp_micros);
    if start < 0 || end < 0 {
        return Err("timestamp_range_filter must not be negative".to_owned());
    }
    if end != 0 && end < start {
        return Err("timestamp_range_filter ends before it starts".to_owned());
    }
    // 0 does not restrict, in either place.
    let start_us = if start == 0 { i64::MIN } else { start };
    Ok(TimeRange { start_us, end_us: (end != 0).then_some(end) })
}
