//! Keys that may have a wanted row, found by indexes on fields before versions are merged.
//!
//! ```text
//!   files: rows that may pass, by index ── their keys ──┐
//!                                                       ├── candidates ── all versions of these keys are merged
//!   runs: rows that pass, by evaluation ── their keys ──┘
//! ```
//!
//! A test on a field must not select versions: it would bring back older ones. But it may select keys, because no key
//! is left out whose merged row passes:
//! - where the newest row counts ([`Policy::LastRow`]), it passes all tests by itself, so it is a candidate in its
//!   source;
//! - where fields merge ([`Policy::LastNonNull`]), a field's value comes from some version. For a test that depends on
//!   one column that version is a candidate. (If the value is NULL, it is NULL in the newest version.) Two tests may be
//!   passed by two versions neither of which passes both, so only one test on fields is used.
//!
//! Tests on the key's columns are passed by all versions of a key or by none, so all of them are used in both cases.
//!
//! A file has a key once at most. So where its rows of candidates are known, they are read by their numbers, and only
//! the candidates of other sources are looked for by key ([`Located`]).
//!
//! Of a key that is no candidate files yield nothing, but runs may: the merged row then consists of versions that fail
//! a test that was used, and fails it too. The caller evaluates all predicates and drops it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, BooleanArray};
use arrow::compute::and_kleene;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use futures::TryStreamExt;
use partita_proto::domain::{Domain, Domains};
use partita_proto::key::Keys;
use partita_proto::range::KeyRange;
use partita_proto::schema::ColumnType;
use partita_proto::value::Value;

use crate::error::Result;
use crate::file::overlaps;
use crate::read::plan::Unit;
use crate::read::questions::Prepared;
use crate::read::reader::FileReader;
use crate::read::source::{Piece, with_keys};
use crate::rows::fold::Policy;
use crate::rows::layout::Layout;

/// Maximum candidate rows of a unit. With more of them all rows are read.
pub(crate) const CANDIDATES_MAX: usize = if cfg!(test) { 64 } else { 100_000 };
/// Maximum bytes of the candidates' keys.
const KEY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum keys that become a range each, and domains of the key's columns.
const POINTS_MAX: usize = if cfg!(test) { 16 } else { 4096 };
/// Maximum values of a key's column that become points; with more of them, one interval contains them.
const VALUES_MAX: usize = if cfg!(test) { 4 } else { 256 };

/// Numbers of the candidate rows of each file of a unit.
type FileRows = Vec<Vec<u32>>;

/// The candidates of a unit.
pub(crate) struct Found {
    /// Their keys, ascending.
    pub(crate) keys: Keys,
    /// Where each file of the unit may have them.
    pub(crate) files: Vec<Located>,
}

/// Places of candidates in a file.
pub(crate) struct Located {
    /// Numbers of rows that hold all candidates but `others`: ascending, disjoint.
    pub(crate) rows: Vec<Range<usize>>,
    /// Keys of candidates of other sources, ascending: they may be in any row.
    pub(crate) others: Keys,
}

/// Tests that select candidates, and the candidates that they select in files.
struct Selected {
    tests: Vec<Arc<Prepared>>,
    files: FileRows,
}

/// Keys of a unit that may have a wanted row; `None`: not known, or too many.
///
/// # Errors
/// When files cannot be read.
pub(crate) async fn keys(
    reader: &FileReader,
    layout: &Arc<Layout>,
    unit: &Unit,
    tests: &[Arc<Prepared>],
    key_domains: &Domains,
) -> Result<Option<Found>> {
    // Without a file there is nothing to be left out.
    if unit.files.is_empty() {
        return Ok(None);
    }
    let Some(selected) = select(reader, layout, unit, tests).await? else { return Ok(None) };
    let mut keys = Candidates::default();
    let key_schema = schema_of(layout, layout.key_names());
    // Keys by file, in order of its rows.
    let mut of_files = vec![Keys::from_encoded::<&[u8]>([]); unit.files.len()];
    for (number, ((file, _), rows)) in unit.files.iter().zip(&selected.files).enumerate() {
        if rows.is_empty() {
            continue;
        }
        let start = keys.keys.len();
        let bounds = file.bounds(&unit.range);
        let mut batches = reader.open_rows(file, Arc::clone(&key_schema), rows).await?;
        while let Some(batch) = batches.try_next().await? {
            let sorted = with_keys(layout, batch, bounds.as_ref())?;
            if !keys.add(&sorted.keys, None, &unit.ranges) {
                return Ok(None);
            }
        }
        of_files[number] = Keys::from_encoded(&keys.keys[start..]);
    }
    let columns: BTreeSet<&str> = selected.tests.iter().flat_map(|test| test.columns()).collect();
    let fields = columns.into_iter().filter(|name| !layout.is_key(name));
    let run_schema = schema_of(layout, layout.key_names().chain(fields));
    for piece in &unit.runs {
        let schema = Arc::clone(&run_schema);
        let piece = Piece::clone(piece);
        let mut rows = piece.read(Arc::clone(layout), schema, key_domains.clone(), None);
        while let Some(sorted) = rows.try_next().await? {
            let mask = mask(&selected.tests, &sorted.batch)?;
            if !keys.add(&sorted.keys, mask.as_ref(), &unit.ranges) {
                return Ok(None);
            }
        }
    }
    let keys = keys.finish();
    let files = of_files.iter().zip(&selected.files).map(|(of_file, rows)| Located {
        rows: ranges_of(rows),
        others: difference(&keys, of_file),
    });
    Ok(Some(Found { files: files.collect(), keys }))
}

/// Ascending row numbers as ranges.
fn ranges_of(rows: &[u32]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for row in rows.iter().map(|row| *row as usize) {
        match ranges.last_mut() {
            Some(last) if last.end == row => last.end += 1,
            _ => ranges.push(row..row + 1),
        }
    }
    ranges
}

/// The keys that are not among some others; both ascend.
fn difference(keys: &Keys, others: &Keys) -> Keys {
    let mut position = 0;
    let remaining = keys.iter().filter(|key| {
        while position < others.len() && others.get(position) < *key {
            position += 1;
        }
        position == others.len() || others.get(position) != *key
    });
    Keys::from_encoded(remaining)
}

/// Chooses the tests that select candidates, and asks the indexes of the files; `None` if one of them cannot tell, or
/// there are too many candidates.
async fn select(
    reader: &FileReader,
    layout: &Layout,
    unit: &Unit,
    tests: &[Arc<Prepared>],
) -> Result<Option<Selected>> {
    match layout.policy {
        // Versions are not merged.
        Policy::Append => Ok(None),
        Policy::LastRow => {
            let files = rows_of_files(reader, unit, tests).await?;
            Ok(files.map(|files| Selected { tests: tests.to_vec(), files }))
        }
        Policy::LastNonNull => {
            let (on_key, on_fields): (Vec<_>, Vec<_>) =
                tests.iter().map(Arc::clone).partition(|test| test.is_on_key(layout));
            let mut fewest: Option<(usize, Selected)> = None;
            for test in on_fields.into_iter().filter(|test| test.is_per_column()) {
                let mut tests = on_key.clone();
                tests.push(test);
                let Some(files) = rows_of_files(reader, unit, &tests).await? else { continue };
                let count: usize = files.iter().map(Vec::len).sum();
                if fewest.as_ref().is_none_or(|(least, _)| count < *least) {
                    fewest = Some((count, Selected { tests, files }));
                }
            }
            Ok(fewest.map(|(_, selected)| selected))
        }
    }
}

/// The rows of each file of a unit that may pass all tests; `None` if a file cannot tell, or there are too many.
async fn rows_of_files(
    reader: &FileReader,
    unit: &Unit,
    tests: &[Arc<Prepared>],
) -> Result<Option<FileRows>> {
    let (mut files, mut count) = (FileRows::with_capacity(unit.files.len()), 0);
    for (file, groups) in &unit.files {
        let rows = reader.candidate_rows(file, &unit.ranges, groups, tests).await?;
        let Some(rows) = rows else { return Ok(None) };
        count += rows.len();
        if count > CANDIDATES_MAX {
            return Ok(None);
        }
        files.push(rows);
    }
    Ok(Some(files))
}

/// Mask of the rows that pass all tests; `None` if any row may.
fn mask(tests: &[Arc<Prepared>], rows: &RecordBatch) -> Result<Option<BooleanArray>> {
    let mut conjunction: Option<BooleanArray> = None;
    for test in tests {
        let Some(mask) = test.mask(rows)? else { continue };
        conjunction = Some(match conjunction {
            Some(previous) => and_kleene(&previous, &mask)?,
            None => mask,
        });
    }
    Ok(conjunction)
}

fn schema_of<'a>(layout: &Layout, names: impl Iterator<Item = &'a str>) -> SchemaRef {
    Arc::new(Schema::new(names.filter_map(|name| layout.field(name)).collect::<Vec<_>>()))
}

/// Keys that were collected, in no order.
#[derive(Default)]
struct Candidates {
    keys: Vec<Box<[u8]>>,
    bytes: usize,
}

impl Candidates {
    /// Adds the keys in `ranges` of the rows that `mask` lets pass; false if there are too many.
    fn add(&mut self, keys: &Keys, mask: Option<&BooleanArray>, ranges: &[KeyRange]) -> bool {
        for (row, key) in keys.iter().enumerate() {
            let passes = mask.is_none_or(|mask| mask.is_valid(row) && mask.value(row));
            if passes && overlaps((key, key), ranges) {
                self.bytes += key.len();
                self.keys.push(key.into());
            }
        }
        self.keys.len() <= CANDIDATES_MAX && self.bytes <= KEY_BYTES_MAX
    }

    fn finish(mut self) -> Keys {
        self.keys.sort_unstable();
        self.keys.dedup();
        Keys::from_encoded(self.keys)
    }
}

/// One range for each of some ascending keys; if there are many, one that contains all.
pub(crate) fn points(keys: &Keys) -> Arc<[KeyRange]> {
    let range = |first: &[u8], last: &[u8]| {
        // The end is the smallest key behind the last one.
        let end: Vec<u8> = last.iter().copied().chain([0]).collect();
        KeyRange { start: Bytes::copy_from_slice(first), end: Some(end.into()) }
    };
    if keys.len() <= POINTS_MAX {
        return keys.iter().map(|key| range(key, key)).collect();
    }
    keys.first().zip(keys.last()).map(|(first, last)| range(first, last)).into_iter().collect()
}

/// Domains of the key's columns that contain the values of some keys, so that statistics exclude pages without them;
/// none if there are many keys.
///
/// # Errors
/// When a key cannot be decoded.
pub(crate) fn column_domains(keys: &Keys, layout: &Layout) -> Result<Domains> {
    let mut domains = Domains::default();
    if keys.is_empty() || keys.len() > POINTS_MAX {
        return Ok(domains);
    }
    let codec = &layout.codec;
    let columns = codec.key_columns().iter().zip(codec.key_types()).enumerate();
    for (position, (name, column_type)) in columns {
        // Floats compare otherwise in keys than in columns.
        if matches!(column_type, ColumnType::Float32 | ColumnType::Float64) {
            continue;
        }
        let mut values = BTreeSet::new();
        for key in keys.iter() {
            values.insert(codec.value(key, position)?);
        }
        domains.restrict(name, domain_of(values));
    }
    Ok(domains)
}

/// A domain that contains some values: exactly these, if they are few.
fn domain_of(mut values: BTreeSet<Value>) -> Domain {
    if values.len() <= VALUES_MAX {
        return Domain::points(values);
    }
    let null = values.remove(&Value::Null);
    let bound = |value: Option<&Value>| match value {
        Some(value) => std::ops::Bound::Included(value.clone()),
        None => std::ops::Bound::Unbounded,
    };
    Domain::interval(bound(values.first()), bound(values.last())).with_null(null)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(keys: impl IntoIterator<Item = u8>) -> Keys {
        Keys::from_encoded(keys.into_iter().map(|key| [b'k', key]))
    }

    #[test]
    fn each_key_becomes_a_range_as_long_as_there_are_few() {
        let few = points(&keys([1, 5]));
        assert_eq!(few.len(), 2);
        for key in 0..=u8::MAX {
            let contained = few.iter().any(|range| range.contains(&[b'k', key]));
            assert_eq!(contained, key == 1 || key == 5);
        }
        assert!(!few.iter().any(|range| range.contains(&[b'k', 1, 0])), "another key follows");
        let many = points(&keys(3..200));
        assert_eq!(many.len(), 1);
        assert!([3, 199].iter().all(|key| many[0].contains(&[b'k', *key])));
        assert!([2, 200].iter().all(|key| !many[0].contains(&[b'k', *key])));
        assert!(points(&keys([])).is_empty());
    }

    #[test]
    fn the_domain_of_values_contains_them_and_their_null() {
        let numbers = |numbers: Range<i64>| numbers.map(Value::Int).collect();
        let few: BTreeSet<Value> = numbers(1..4);
        assert_eq!(domain_of(few.clone()), Domain::points(few));
        for null in [false, true] {
            let mut values: BTreeSet<Value> = numbers(1..40);
            if null {
                values.insert(Value::Null);
            }
            let domain = domain_of(values.clone());
            assert_eq!(domain.intervals().len(), 1, "{domain}");
            assert!(values.iter().all(|value| domain.contains(value)));
            assert_eq!(domain.allows_null(), null);
            assert!(!domain.contains(&Value::Int(0)) && !domain.contains(&Value::Int(40)));
        }
    }

    #[test]
    fn keys_of_other_sources_are_those_that_a_file_does_not_name() {
        for (all, own, expected) in [
            (vec![1, 2, 5, 9], vec![2, 9], vec![1, 5]),
            (vec![1, 2], vec![], vec![1, 2]),
            (vec![1, 2], vec![1, 2], vec![]),
            (vec![3], vec![1, 2, 4], vec![3]),
        ] {
            assert_eq!(difference(&keys(all), &keys(own)), keys(expected));
        }
        assert_eq!(ranges_of(&[0, 1, 4, 6, 7]), [0..2, 4..5, 6..8]);
        assert!(ranges_of(&[]).is_empty());
    }

    #[test]
    fn only_keys_that_pass_and_lie_in_the_ranges_are_candidates() {
        let mut candidates = Candidates::default();
        let range = KeyRange { start: vec![b'k', 2].into(), end: Some(vec![b'k', 9].into()) };
        let mask = BooleanArray::from(vec![Some(true), Some(true), None, Some(false), Some(true)]);
        let ranges = std::slice::from_ref(&range);
        assert!(candidates.add(&keys([1, 3, 4, 5, 9]), Some(&mask), ranges));
        assert!(candidates.add(&keys([2, 3]), None, ranges));
        assert_eq!(candidates.finish(), keys([2, 3]));
        let mut candidates = Candidates::default();
        let all = [KeyRange::all()];
        let most = u8::try_from(CANDIDATES_MAX).unwrap();
        assert!(candidates.add(&keys(0..most), None, &all));
        assert!(!candidates.add(&keys([0]), None, &all));
    }
}
