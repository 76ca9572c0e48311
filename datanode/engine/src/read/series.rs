//! Finds the last row of each series of a sorted source.
//!
//! A *series* is all rows whose keys differ in nothing but the time index, the last cell of their keys. In key order a
//! series is a run of rows, and the last of them is the newest. In a file these positions do not change as long as the
//! partition's range is the same: they are found once, by reading the columns of the key, and cached. Rows of the file
//! outside of the range do not count.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, UInt32Array};
use arrow::datatypes::Schema;
use futures::TryStreamExt;
use partita_proto::domain::Domains;
use partita_proto::id::{Epoch, SchemaVersion};
use partita_proto::key::Keys;
use partita_proto::range::KeyRange;

use crate::error::Result;
use crate::file::cache::Recent;
use crate::file::{FileEntry, FileId};
use crate::read::reader::{FileReader, Read};
use crate::rows::layout::Layout;

/// Minimum rows per series, in files with more series than [`SERIES_FEW`], for the ends to be kept.
const ROWS_PER_SERIES_MIN: u64 = 4;
/// Number of series that are kept for any file.
const SERIES_FEW: u64 = if cfg!(test) { 4 } else { 8192 };
/// Number of reads of a file's row groups after which its ends are found for optional use. That reads all columns of
/// the key: about as much as was spent on single columns by then.
const ASKED_MIN: usize = if cfg!(test) { 1 } else { 3 };
/// Reciprocal of the share of the cache that one file may take.
const CACHE_SHARE: u64 = 4;

/// The last row of each series of a source, in key order.
#[derive(Debug)]
pub(crate) struct SeriesEnds {
    /// Row numbers.
    pub(crate) rows: UInt32Array,
    pub(crate) keys: Keys,
}

/// Cached result for a file, under one version of the schema and in one range.
#[derive(Debug)]
pub(crate) struct Found {
    version: (SchemaVersion, Epoch),
    known: Known,
}

/// Knowledge about a file's series.
#[derive(Clone, Debug)]
enum Known {
    /// Unknown; the number of row groups read by requests for it so far.
    Asked(usize),
    Ends(Arc<SeriesEnds>),
    /// There are too many series.
    Many,
}

/// Cache of the series of files.
pub(crate) type SeriesCache = Recent<FileId, Arc<Found>>;

impl SeriesEnds {
    /// The ends in sorted rows whose keys' last `tail` bytes are the time index.
    pub(crate) fn of(keys: &Keys, tail: usize) -> Result<Self> {
        let rows = ends(keys, tail).into_iter().map(number);
        let rows = UInt32Array::from_iter_values(rows);
        Ok(Self { keys: keys.take(&rows)?, rows })
    }

    /// Row numbers of a series, by its position; the first series' rows include those before it that do not count.
    pub(crate) fn rows_of(&self, place: usize) -> Range<usize> {
        let rows = self.rows.values();
        let start = place.checked_sub(1).map_or(0, |previous| rows[previous] as usize + 1);
        start..rows[place] as usize + 1
    }

    fn bytes(&self) -> u64 {
        (self.keys.size_bytes() + self.rows.get_array_memory_size()) as u64
    }
}

/// Row numbers have 32 bits: callers leave out batches and files with more rows.
fn number(row: usize) -> u32 {
    u32::try_from(row).unwrap_or(u32::MAX)
}

/// Ends of rows that arrive batch by batch.
#[derive(Default)]
struct Growing {
    rows: Vec<u32>,
    keys: Vec<Box<[u8]>>,
    key_bytes: usize,
    /// Number of the next row.
    next: usize,
}

impl Growing {
    /// Adds a batch's keys; `leading` rows before them and `trailing` rows after them do not count.
    fn add(&mut self, keys: &Keys, tail: usize, leading: usize, trailing: usize) {
        self.next += leading;
        if let (Some(last), Some(key)) = (self.keys.last(), keys.first())
            && series(last, tail) == series(key, tail)
        {
            self.key_bytes -= last.len();
            self.keys.pop();
            self.rows.pop();
        }
        for row in ends(keys, tail) {
            self.rows.push(number(self.next + row));
            self.keys.push(keys.get(row).into());
            self.key_bytes += keys.get(row).len();
        }
        self.next += keys.len() + trailing;
    }

    fn finish(self) -> SeriesEnds {
        let keys = Keys::from_encoded(&self.keys);
        SeriesEnds { rows: UInt32Array::from(self.rows), keys }
    }
}

/// A key without its time index.
pub(crate) fn series(key: &[u8], tail: usize) -> &[u8] {
    &key[..key.len().saturating_sub(tail)]
}

/// The rows, ascending, that are the last of their series. Found from the end by galloping: a series has many rows.
fn ends(keys: &Keys, tail: usize) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut end = keys.len();
    while let Some(last) = end.checked_sub(1) {
        ends.push(last);
        let current = series(keys.get(last), tail);
        let same = |row: usize| series(keys.get(row), tail) == current;
        let mut step = 1;
        while step <= last && same(last - step) {
            step *= 2;
        }
        // The first row of the series lies behind `low`, and not behind `high`.
        let (mut low, mut high) = (last.checked_sub(step), last - step / 2);
        while low.map_or(0, |low| low + 1) < high {
            let middle = low.map_or(high / 2, |low| low + (high - low) / 2);
            if same(middle) {
                high = middle;
            } else {
                low = Some(middle);
            }
        }
        end = high;
    }
    ends.reverse();
    ends
}

/// The ends of a file; `None` when it has too many series to keep them.
pub(crate) async fn of_file(
    cache: &SeriesCache,
    reader: &FileReader,
    file: &FileEntry,
    layout: &Layout,
    tail: usize,
) -> Result<Option<Arc<SeriesEnds>>> {
    let (id, rows) = (file.meta().id, file.meta().rows);
    let version = (layout.config.schema.version, layout.config.epoch);
    match known(cache, id, version) {
        Known::Ends(ends) => return Ok(Some(ends)),
        Known::Many => return Ok(None),
        Known::Asked(_) => {}
    }
    // Read the key columns, and stop as soon as there are too many series or too many bytes of keys.
    let bytes_max = cache.bytes_max() / CACHE_SHARE;
    let fields = layout.key_names().filter_map(|name| layout.field(name));
    let read = Read {
        schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
        domains: Domains::default(),
        ranges: Arc::from([KeyRange::all()]),
        groups: 0..file.row_groups(),
        probes: Arc::from([]),
        keys: None,
    };
    let mut batches = reader.open_with(file, read, None).await?;
    let mut growing = Growing::default();
    let mut few = u32::try_from(rows).is_ok();
    while few && let Some(batch) = batches.try_next().await? {
        let keys = layout.codec.encode(&batch)?;
        let (start, end) = keys.within(&file.range);
        growing.add(&keys.slice(start..end), tail, start, keys.len() - end);
        few = growing.rows.len() as u64 <= SERIES_FEW.max(rows / ROWS_PER_SERIES_MIN)
            && growing.key_bytes as u64 <= bytes_max;
    }
    // Cache the result; also that there are too many.
    let ends = few.then(|| Arc::new(growing.finish()));
    let bytes = ends.as_ref().map_or(0, |ends| ends.bytes()) + size_of::<Found>() as u64;
    let state = ends.clone().map_or(Known::Many, Known::Ends);
    cache.insert(id, Arc::new(Found { version, known: state }), bytes);
    Ok(ends)
}

/// As [`of_file`], for readers of `groups` row groups that do not depend on it: the ends are found once they have been
/// requested often.
pub(crate) async fn when_asked_often(
    cache: &SeriesCache,
    reader: &FileReader,
    file: &FileEntry,
    layout: &Layout,
    tail: usize,
    groups: usize,
) -> Result<Option<Arc<SeriesEnds>>> {
    let version = (layout.config.schema.version, layout.config.epoch);
    let id = file.meta().id;
    if let Known::Asked(requests) = known(cache, id, version)
        && requests < ASKED_MIN * file.row_groups()
    {
        let state = Known::Asked(requests + groups);
        cache.insert(id, Arc::new(Found { version, known: state }), size_of::<Found>() as u64);
        return Ok(None);
    }
    of_file(cache, reader, file, layout, tail).await
}

fn known(cache: &SeriesCache, file: FileId, version: (SchemaVersion, Epoch)) -> Known {
    let cached = cache.get(file).filter(|cached| cached.version == version);
    cached.map_or(Known::Asked(0), |cached| cached.known.clone())
}

/// For each source, the positions among its ends that are the newest rows of their series over all sources. A row in
/// several sources is chosen in each.
pub(crate) fn newest(sources: &[Arc<SeriesEnds>], tail: usize) -> Vec<Vec<usize>> {
    let mut newest: HashMap<&[u8], &[u8]> = HashMap::new();
    for key in sources.iter().flat_map(|source| source.keys.iter()) {
        let (series, time) = key.split_at(series(key, tail).len());
        let latest = newest.entry(series).or_insert(time);
        *latest = time.max(latest);
    }
    let chosen = |source: &Arc<SeriesEnds>| {
        let is_newest = |key: &[u8]| {
            let (series, time) = key.split_at(series(key, tail).len());
            newest.get(series) == Some(&time)
        };
        let keys = source.keys.iter().enumerate();
        keys.filter(|(_, key)| is_newest(key)).map(|(position, _)| position).collect()
    };
    sources.iter().map(chosen).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Keys of a series of two letters and a time of one byte.
    fn keys(rows: &[(u8, u8)]) -> Keys {
        Keys::from_encoded(rows.iter().map(|(series, time)| [b'a', *series, *time]))
    }

    proptest! {
        #[test]
        fn galloping_finds_the_last_rows_of_all_series(
            mut rows in prop::collection::vec((0_u8..5, 0_u8..40), 0..80),
            cut in any::<prop::sample::Index>(),
        ) {
            rows.sort_unstable();
            rows.dedup();
            let is_last = |at: &usize| rows.get(at + 1).is_none_or(|next| next.0 != rows[*at].0);
            let expected: Vec<u32> = (0..rows.len()).filter(is_last).map(number).collect();
            let found = SeriesEnds::of(&keys(&rows), 1).unwrap();
            prop_assert_eq!(found.rows.values(), &expected[..]);
            let cut = cut.index(rows.len() + 1);
            let mut parts = Growing::default();
            parts.add(&keys(&rows[..cut]), 1, 0, 0);
            parts.add(&keys(&rows[cut..]), 1, 0, 0);
            let parts = parts.finish();
            prop_assert_eq!(&parts.rows, &found.rows);
            prop_assert_eq!(&parts.keys, &found.keys);
        }

        #[test]
        fn the_newest_of_all_sources_is_chosen_in_each_that_has_it(
            mut sources in prop::collection::vec(
                prop::collection::vec((0_u8..4, 0_u8..6), 0..12), 0..5),
        ) {
            let all: Vec<(u8, u8)> = sources.concat();
            sources.iter_mut().for_each(|rows| rows.sort_unstable());
            let ends: Vec<_> =
                sources.iter().map(|rows| Arc::new(SeriesEnds::of(&keys(rows), 1).unwrap())).collect();
            let chosen = newest(&ends, 1);
            for (ends, chosen) in ends.iter().zip(&chosen) {
                for (at, key) in ends.keys.iter().enumerate() {
                    let newest = all.iter().filter(|row| row.0 == key[1]).map(|row| row.1).max();
                    prop_assert_eq!(chosen.contains(&at), Some(key[2]) == newest);
                }
            }
        }
    }
}
