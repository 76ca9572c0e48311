//! Derives ranges of the key space from domains of columns.

use std::ops::Bound as Limit;

use bytes::Bytes;

use super::cell::CellOrder;
use super::{KeyCodec, PLACEMENT_BYTES, cell};
use crate::domain::{Domain, Domains};
use crate::placement::Placement;
use crate::range::KeyRange;
use crate::schema::TableSchema;
use crate::value::Value;

/// Maximum number of ranges. A table has at most 4096 partitions; beyond a few ranges for each of those that a
/// statement reads, more ranges exclude little and cost a comparison each.
pub const KEY_RANGES_MAX: usize = 1024;

impl KeyCodec {
    /// The ranges outside of which no row of these domains can lie: sorted, disjoint, not adjacent, at most
    /// [`KEY_RANGES_MAX`]. Empty when no row can lie anywhere. Rows in the ranges need not be in the domains.
    ///
    /// They are the placements that can hold such rows x the points that the domains leave of the leading key columns x
    /// the intervals of the first column with more than points.
    pub fn key_ranges(
        &self,
        schema: &TableSchema,
        placement: &Placement,
        domains: &Domains,
    ) -> Vec<KeyRange> {
        if domains.is_none() {
            return Vec::new();
        }
        let mut prefixes = vec![Vec::new()];
        if self.placed() {
            let Some(candidates) = placement.candidates(schema, domains) else {
                return vec![KeyRange::all()];
            };
            prefixes = candidates.iter().map(|number| number.to_be_bytes().to_vec()).collect();
        }
        // The domains of the key columns, up to the first unrestricted one.
        let restricted = self
            .key_columns()
            .iter()
            .enumerate()
            .map_while(|(position, name)| {
                let order = self.order(position).ok()?;
                let domain = domains.get(name)?.typed(order.column_type).ok()?;
                (!domain.is_all()).then_some((domain, order))
            })
            .collect::<Vec<_>>();
        for (position, (domain, order)) in restricted.iter().enumerate() {
            let room = (KEY_RANGES_MAX / prefixes.len().max(1)).max(1);
            // Points lead on to the next column; for the last one its intervals are as good.
            let points = match position + 1 < restricted.len() {
                true => point_cells(domain, *order, room),
                false => None,
            };
            if let Some(points) = points {
                prefixes = prefixes
                    .iter()
                    .flat_map(|prefix| points.iter().map(move |point| join(prefix, point)))
                    .collect();
                continue;
            }
            let spans = widen(spans(domain, *order), room);
            let ranges = prefixes
                .iter()
                .flat_map(|prefix| spans.iter().filter_map(move |span| under(prefix, span)))
                .collect();
            return widen(ranges, KEY_RANGES_MAX);
        }
        let ranges = prefixes.iter().filter_map(|prefix| under(prefix, &KeyRange::all())).collect();
        widen(ranges, KEY_RANGES_MAX)
    }
}

/// The cells of a domain that is a set of at most `most` values, possibly with NULL.
fn point_cells(domain: &Domain, order: CellOrder, most: usize) -> Option<Vec<Vec<u8>>> {
    let points = domain.points_of(order.column_type, most).ok()??;
    points.iter().map(|point| value_cell(point, order)).collect()
}

/// The cell of a value of the column's type.
fn value_cell(value: &Value, order: CellOrder) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    cell::encode(&mut bytes, order, value).ok()?;
    Some(bytes)
}

/// The cell ranges of a domain of one column. A limit without a cell is left out, which widens the range.
fn spans(domain: &Domain, order: CellOrder) -> Vec<KeyRange> {
    // Cells of NULL begin with 0, all others with more.
    let values = Bytes::from_static(&[1]);
    let mut spans = Vec::new();
    if domain.allows_null() {
        spans.push(KeyRange { start: Bytes::new(), end: Some(values.clone()) });
    }
    for interval in domain.intervals() {
        let cell = |value| value_cell(value, order);
        let (first, last) = match order.descends {
            false => (&interval.low, &interval.high),
            true => (&interval.high, &interval.low),
        };
        let start = match first {
            Limit::Included(value) => cell(value).map(Bytes::from),
            Limit::Excluded(value) => cell(value).and_then(|low| KeyCodec::successor(&low)),
            Limit::Unbounded => None,
        };
        let end = match last {
            Limit::Included(value) => cell(value).and_then(|high| KeyCodec::successor(&high)),
            Limit::Excluded(value) => cell(value).map(Bytes::from),
            Limit::Unbounded => None,
        };
        spans.push(KeyRange { start: start.unwrap_or_else(|| values.clone()), end });
    }
    spans
}

/// The range of keys that begin with the prefix and continue within the span; `None` if it is empty.
fn under(prefix: &[u8], span: &KeyRange) -> Option<KeyRange> {
    let end = match &span.end {
        Some(end) => Some(join(prefix, end).into()),
        None => KeyCodec::successor(prefix),
    };
    let range = KeyRange { start: join(prefix, &span.start).into(), end };
    (!range.is_empty()).then_some(range)
}

/// Sorts the ranges and joins those that touch; then joins neighbours until at most `most` remain.
fn widen(mut ranges: Vec<KeyRange>, most: usize) -> Vec<KeyRange> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by(|a, b| a.start.cmp(&b.start));
    let mut joined: Vec<KeyRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end.as_ref().is_none_or(|end| range.start <= *end) => {
                last.end = last.end.take().zip(range.end).map(|(a, b)| a.max(b));
            }
            _ => joined.push(range),
        }
    }
    let group = joined.len().div_ceil(most);
    if group <= 1 {
        return joined;
    }
    joined
        .chunks(group)
        .filter_map(|chunk| {
            let (first, last) = (chunk.first()?, chunk.last()?);
            Some(KeyRange { start: first.start.clone(), end: last.end.clone() })
        })
        .collect()
}

fn join(prefix: &[u8], cell: &[u8]) -> Vec<u8> {
    [prefix, cell].concat()
}

/// The placement of all keys of a partition within some ranges; `None` if there may be several.
pub fn only_placement(partition: &KeyRange, ranges: &[KeyRange]) -> Option<u16> {
    let placement = |key: &[u8]| key.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
    let mut only = None;
    for range in ranges {
        let range = range.intersect(partition);
        if range.is_empty() {
            continue;
        }
        let first = placement(&range.start[..])?;
        let end = range.end.as_ref()?;
        // A range that ends with the beginning of a placement has no row of it.
        let last = match end.len() {
            PLACEMENT_BYTES => placement(&end[..])?.checked_sub(1)?,
            _ => placement(&end[..])?,
        };
        if first != last || *only.get_or_insert(first) != first {
            return None;
        }
    }
    only
}
