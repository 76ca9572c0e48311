//! Row sets as sorted spans of keys that do not overlap.

use bytes::Bytes;
use tonic::Status;

use crate::api::data::row_range::{EndKey, StartKey};
use crate::api::data::{RowRange, RowSet};

/// Keys from a start, before an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySpan {
    /// First key.
    pub start: Bytes,
    /// First key after the span; `None` for no bound.
    pub end: Option<Bytes>,
}

impl KeySpan {
    /// All keys.
    #[must_use]
    pub fn all() -> Self {
        Self { start: Bytes::new(), end: None }
    }

    /// A single key.
    #[must_use]
    pub fn key(key: &[u8]) -> Self {
        Self { start: Bytes::copy_from_slice(key), end: Some(following(key)) }
    }

    /// The keys that begin with a prefix.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        // The last byte that can be greater is raised, and those after it are dropped.
        let last = prefix.iter().rposition(|byte| *byte != u8::MAX);
        let end = last.map(|last| {
            let mut end = prefix[..=last].to_vec();
            end[last] += 1;
            Bytes::from(end)
        });
        Self { start: Bytes::copy_from_slice(prefix), end }
    }

    /// Returns true if a key lies in the span.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= &self.start[..] && self.end.as_ref().is_none_or(|end| key < &end[..])
    }

    /// Keys that two spans share; `None` if there are none.
    #[must_use]
    pub fn intersect(&self, span: &Self) -> Option<Self> {
        let start = self.start.clone().max(span.start.clone());
        let end = match (&self.end, &span.end) {
            (Some(first), Some(second)) => Some(first.min(second).clone()),
            (first, second) => first.as_ref().or(second.as_ref()).cloned(),
        };
        let span = Self { start, end };
        (!span.is_empty()).then_some(span)
    }

    fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }
}

/// The first key after a key.
fn following(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

/// The spans of a row set, in order; all keys if there is no row set.
///
/// # Errors
/// INVALID_ARGUMENT for an empty key, or a range that ends before it starts.
pub fn spans(rows: Option<&RowSet>) -> Result<Vec<KeySpan>, Status> {
    let rows = match rows {
        Some(rows) if !rows.row_keys.is_empty() || !rows.row_ranges.is_empty() => rows,
        _ => return Ok(vec![KeySpan::all()]),
    };
    let mut spans = Vec::with_capacity(rows.row_keys.len() + rows.row_ranges.len());
    for key in &rows.row_keys {
        if key.is_empty() {
            return Err(Status::invalid_argument("a row key must not be empty"));
        }
        spans.push(KeySpan::key(key));
    }
    for range in &rows.row_ranges {
        spans.push(span(range)?);
    }
    Ok(merged(spans))
}

/// The span of a range; an empty bound does not restrict.
///
/// # Errors
/// INVALID_ARGUMENT when it ends before it starts.
pub fn span(range: &RowRange) -> Result<KeySpan, Status> {
    let (start, first) = match &range.start_key {
        None => (Bytes::new(), Bytes::new()),
        Some(StartKey::StartKeyClosed(key)) => (key.clone(), key.clone()),
        Some(StartKey::StartKeyOpen(key)) if key.is_empty() => (Bytes::new(), Bytes::new()),
        Some(StartKey::StartKeyOpen(key)) => (following(key), key.clone()),
    };
    let (end, last) = match &range.end_key {
        Some(EndKey::EndKeyOpen(key)) if !key.is_empty() => (Some(key.clone()), Some(key)),
        Some(EndKey::EndKeyClosed(key)) if !key.is_empty() => (Some(following(key)), Some(key)),
        _ => (None, None),
    };
    if last.is_some_and(|last| *last < first) {
        return Err(Status::invalid_argument("a row range ends before it starts"));
    }
    Ok(KeySpan { start, end })
}

/// Sorts spans, joins those that overlap or touch, and drops empty ones.
fn merged(mut spans: Vec<KeySpan>) -> Vec<KeySpan> {
    spans.retain(|span| !span.is_empty());
    spans.sort_by(|first, second| first.start.cmp(&second.start));
    let mut joined: Vec<KeySpan> = Vec::with_capacity(spans.len());
    for span in spans {
        match joined.last_mut() {
            Some(last) if last.end.as_ref().is_none_or(|end| span.start <= *end) => {
                last.end = match (last.end.take(), span.end) {
                    (Some(first), Some(second)) => Some(first.max(second)),
                    _ => None,
                };
            }
            _ => joined.push(span),
        }
    }
    joined
}

/// The parts of spans whose keys begin with a prefix.
pub fn with_prefix(spans: &[KeySpan], prefix: &[u8]) -> Vec<KeySpan> {
    let prefix = KeySpan::prefix(prefix);
    spans.iter().filter_map(|span| span.intersect(&prefix)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(start: Option<StartKey>, end: Option<EndKey>) -> RowRange {
        RowRange { start_key: start, end_key: end }
    }

    #[test]
    fn a_row_set_without_rows_is_the_whole_table() {
        assert_eq!(spans(None).unwrap(), [KeySpan::all()]);
        assert_eq!(spans(Some(&RowSet::default())).unwrap(), [KeySpan::all()]);
        // A range without rows is no row set without rows.
        let key = || Bytes::from_static(b"k");
        let empty = range(Some(StartKey::StartKeyClosed(key())), Some(EndKey::EndKeyOpen(key())));
        let rows = RowSet { row_keys: Vec::new(), row_ranges: vec![empty] };
        assert!(spans(Some(&rows)).unwrap().is_empty());
    }

    #[test]
    fn keys_and_ranges_that_are_not_valid_are_refused() {
        let rows = RowSet { row_keys: vec![Bytes::new()], row_ranges: Vec::new() };
        assert!(spans(Some(&rows)).is_err());
        let (late, early) = (Bytes::from_static(b"b"), Bytes::from_static(b"a"));
        let inverted = range(Some(StartKey::StartKeyOpen(late)), Some(EndKey::EndKeyClosed(early)));
        let rows = RowSet { row_keys: Vec::new(), row_ranges: vec![inverted] };
        assert!(spans(Some(&rows)).is_err());
    }

    #[test]
    fn a_prefix_ends_before_the_next_one() {
        assert_eq!(KeySpan::prefix(b"a#").end, Some(Bytes::from_static(b"a$")));
        assert_eq!(KeySpan::prefix(b"a\xff").end, Some(Bytes::from_static(b"b")));
        assert_eq!(KeySpan::prefix(b"\xff\xff").end, None);
        assert_eq!(KeySpan::prefix(b""), KeySpan::all());
    }

    /// Short keys with few letters, so that they meet.
    fn key() -> impl Strategy<Value = Bytes> {
        proptest::collection::vec(0..3_u8, 0..3).prop_map(Bytes::from)
    }

    fn ranges() -> impl Strategy<Value = RowRange> {
        let start = prop_oneof![
            Just(None::<StartKey>),
            key().prop_map(|key| Some(StartKey::StartKeyClosed(key))),
            key().prop_map(|key| Some(StartKey::StartKeyOpen(key))),
        ];
        let end = prop_oneof![
            Just(None::<EndKey>),
            key().prop_map(|key| Some(EndKey::EndKeyClosed(key))),
            key().prop_map(|key| Some(EndKey::EndKeyOpen(key))),
        ];
        (start, end).prop_map(|(start_key, end_key)| RowRange { start_key, end_key })
    }

    fn is_within(range: &RowRange, key: &Bytes) -> bool {
        let starts = match &range.start_key {
            Some(StartKey::StartKeyOpen(start)) if !start.is_empty() => key > start,
            Some(StartKey::StartKeyClosed(start)) => key >= start,
            _ => true,
        };
        let ends = match &range.end_key {
            Some(EndKey::EndKeyClosed(end)) if !end.is_empty() => key <= end,
            Some(EndKey::EndKeyOpen(end)) if !end.is_empty() => key < end,
            _ => true,
        };
        starts && ends
    }

    proptest! {
        #[test]
        fn spans_have_the_rows_of_their_set_once_and_in_order(
            row_keys in proptest::collection::vec(key(), 0..4),
            row_ranges in proptest::collection::vec(ranges(), 1..4),
            probe in key(),
            prefix in key(),
        ) {
            let rows = RowSet { row_keys, row_ranges };
            let Ok(spans) = spans(Some(&rows)) else { return Ok(()) };
            let expected = rows.row_keys.contains(&probe)
                || rows.row_ranges.iter().any(|range| is_within(range, &probe));
            prop_assert_eq!(spans.iter().filter(|span| span.contains(&probe)).count(), usize::from(expected));
            for pair in spans.windows(2) {
                prop_assert!(pair[0].end.as_ref().is_some_and(|end| *end < pair[1].start));
            }
            let narrowed = with_prefix(&spans, &prefix);
            let is_left = narrowed.iter().any(|span| span.contains(&probe));
            prop_assert_eq!(is_left, expected && probe.starts_with(&prefix));
        }
    }
}
