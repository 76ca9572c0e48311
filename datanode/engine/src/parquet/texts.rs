//! Encodes a chunk of a column of texts (or of binary values) with a dictionary.
//!
//! Rows come in key order, so texts come in runs or repeat a few values. A row costs one comparison of its view with
//! the previous one while a run lasts; a new run costs a lookup of the view: for [`MAX_INLINE_VIEW_LEN`] bytes and less
//! the view is the value, and no byte of it is touched. All other work is done per run (indices, levels, lengths) or
//! once for each value in each page (statistics). As long as values ascend, as those of a key's first column do, a new
//! one is compared with the last one and is known to be new: nothing is hashed.
//!
//! Invariants:
//! - A hash proposes, a comparison decides: rows have the same entry only if their bytes are equal. (Equal bytes may
//!   have two entries; that costs only space.)
//! - Pages end after as many rows as the file's properties say, and no run crosses the end of a page.
//! - The dictionary stays below its limit. A row that would exceed it is not taken; then [`Texts::into_arrays`] returns
//!   all rows taken so far, to be written in another way: no row is ever in two encodings.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ByteView, GenericByteViewArray, MAX_INLINE_VIEW_LEN,
    NullBufferBuilder,
};
use arrow::buffer::Buffer;
use arrow::datatypes::{BinaryViewType, ByteViewType, DataType, StringViewType};
use bytes::Bytes;
use hashbrown::HashTable;
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterPropertiesPtr;
use parquet::schema::types::ColumnDescPtr;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::parquet::chunk::{ChunkWriter, Codec, Rows};
use crate::parquet::hybrid::{Hybrid, bits_of};

/// Bytes of texts for each byte of their dictionary, at least, where texts count as repeated.
const REPEATED_BYTES: u64 = 2;
/// Stands for NULL, which has no entry.
const NULL: u32 = u32::MAX;

/// True if columns of this type are encoded here.
pub(crate) fn encodes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8View | DataType::BinaryView)
}

/// Encodes one column chunk.
pub(crate) struct Texts {
    dictionary: Dictionary,
    /// All rows so far.
    runs: Vec<Run>,
    /// Position of the current page's first run.
    page: usize,
    page_rows: usize,
    page_rows_max: usize,
    /// Number of the current page, from 1.
    page_number: u32,
    chunk: ChunkWriter,
}

/// Consecutive rows with one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Entry in the dictionary, or [`NULL`].
    entry: u32,
    rows: u32,
}

/// The distinct values, in order of their first occurrence.
struct Dictionary {
    /// The values, each after its length in four bytes: Parquet's plain encoding.
    plain: Vec<u8>,
    bytes_max: usize,
    entries: Vec<Entry>,
    /// `None` as long as each value is greater than the previous one.
    by_hash: Option<HashTable<u32>>,
    /// The entry found last; while values ascend that is the last one.
    last: u32,
    seeds: [u64; 2],
}

#[derive(Clone, Copy)]
struct Entry {
    /// View of the value; for a long value only the half with length and prefix.
    view: u128,
    /// Hash of the value, once it has been looked up by hash.
    hash: u64,
    /// Offset of the value's bytes.
    start: usize,
    /// Number of the last page with this value.
    page: u32,
}

impl Texts {
    /// Creates a chunk whose dictionary may have as many bytes as the properties allow.
    pub(crate) fn new(descr: ColumnDescPtr, properties: WriterPropertiesPtr) -> Self {
        let bytes_max = properties.column_dictionary_page_size_limit(descr.path());
        Self {
            dictionary: Dictionary::new(bytes_max),
            runs: Vec::new(),
            page: 0,
            page_rows: 0,
            page_rows_max: properties.data_page_row_count_limit(),
            page_number: 1,
            chunk: ChunkWriter::new(descr, properties),
        }
    }

    /// Approximate bytes of the chunk so far.
    pub(crate) fn bytes(&self) -> usize {
        let bits = self.dictionary.bits() as usize;
        let page = (self.runs.len() - self.page) * bits / 8;
        self.dictionary.plain.len() + self.chunk.bytes() + page
    }

    /// True if the texts so far repeat, so that their dictionary has half of their bytes at most.
    pub(crate) fn repeats(&self) -> bool {
        let runs = self.runs.iter().filter(|run| run.entry != NULL);
        let length = |run: &Run| u64::from(self.dictionary.length(run.entry));
        let bytes: u64 = runs.map(|run| u64::from(run.rows) * length(run)).sum();
        bytes >= REPEATED_BYTES * self.dictionary.plain.len() as u64
    }

    /// Takes rows. Returns their number; it is lower than the column's if the dictionary is full.
    pub(crate) fn write(&mut self, codec: &mut Codec, column: &ArrayRef) -> Result<usize> {
        match column.data_type() {
            DataType::Utf8View => self.take(codec, column.as_string_view()),
            DataType::BinaryView => self.take(codec, column.as_binary_view()),
            data_type => {
                Err(ParquetError::General(format!("{data_type} is not encoded as a text")))
            }
        }
    }

    fn take<T: ByteViewType>(
        &mut self,
        codec: &mut Codec,
        column: &GenericByteViewArray<T>,
    ) -> Result<usize> {
        let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) else {
            return self.take_values(codec, column, 0..column.len());
        };
        if !self.chunk.nullable() {
            return Err(ParquetError::General("NULL in a column that has none".to_owned()));
        }
        let mut position = 0;
        for (start, end) in nulls.valid_slices() {
            self.repeat(codec, NULL, start - position)?;
            let count = self.take_values(codec, column, start..end)?;
            if count < end - start {
                return Ok(start + count);
            }
            position = end;
        }
        self.repeat(codec, NULL, column.len() - position)?;
        Ok(column.len())
    }

    /// Takes rows none of which is NULL.
    fn take_values<T: ByteViewType>(
        &mut self,
        codec: &mut Codec,
        column: &GenericByteViewArray<T>,
        rows: Range<usize>,
    ) -> Result<usize> {
        let views = column.views();
        let mut row = rows.start;
        while row < rows.end {
            let view = views[row];
            // Within one array equal views are equal values, however long.
            let more = views[row + 1..rows.end].iter().take_while(|next| **next == view).count();
            let value = || -> &[u8] { column.value(row).as_ref() };
            let Some(entry) = self.dictionary.entry(view, value)? else {
                return Ok(row - rows.start);
            };
            self.repeat(codec, entry, 1 + more)?;
            row += 1 + more;
        }
        Ok(rows.len())
    }

    /// Appends `rows` rows with this entry.
    fn repeat(&mut self, codec: &mut Codec, entry: u32, mut rows: usize) -> Result<()> {
        while rows > 0 {
            let length = rows.min(self.page_rows_max - self.page_rows);
            let count = u32::try_from(length)?;
            match self.runs[self.page..].last_mut() {
                Some(run) if run.entry == entry => run.rows += count,
                _ => self.runs.push(Run { entry, rows: count }),
            }
            self.page_rows += length;
            rows -= length;
            if self.page_rows == self.page_rows_max {
                self.end_page(codec)?;
            }
        }
        Ok(())
    }

    fn end_page(&mut self, codec: &mut Codec) -> Result<()> {
        let bits = self.dictionary.bits();
        // Indices and levels go by runs; NULLs have a level and no index.
        let mut indices = Hybrid::new(bits, vec![bits.to_le_bytes()[0]]);
        let mut levels = self.chunk.nullable().then(|| Hybrid::new(1, Vec::new()));
        let (mut rows, mut nulls, mut bytes) = (0, 0, 0);
        let mut bounds: Option<(u32, u32)> = None;
        for run in &self.runs[self.page..] {
            rows += run.rows;
            let valid = run.entry != NULL;
            if let Some(levels) = &mut levels {
                levels.push(valid.into(), run.rows as usize);
            }
            if !valid {
                nulls += run.rows;
                continue;
            }
            indices.push(run.entry, run.rows as usize);
            bytes += i64::from(run.rows) * i64::from(self.dictionary.length(run.entry));
            // Each value is compared with the bounds once per page.
            if self.dictionary.first_in(self.page_number, run.entry) {
                let value = self.dictionary.value(run.entry);
                let (min, max) = bounds.get_or_insert((run.entry, run.entry));
                if value < self.dictionary.value(*min) {
                    *min = run.entry;
                } else if value > self.dictionary.value(*max) {
                    *max = run.entry;
                }
            }
        }
        let bounds =
            bounds.map(|(min, max)| (self.dictionary.value(min), self.dictionary.value(max)));
        let levels = levels.map(Hybrid::finish).unwrap_or_default();
        let indices = indices.finish();
        self.chunk.page(codec, Rows { rows, nulls, levels, indices, bounds, bytes })?;
        self.page = self.runs.len();
        self.page_rows = 0;
        self.page_number += 1;
        Ok(())
    }

    /// Encodes the chunk and its metadata.
    pub(crate) fn finish(mut self, codec: &mut Codec) -> Result<(Bytes, ColumnCloseResult)> {
        if self.page_rows > 0 {
            self.end_page(codec)?;
        }
        self.chunk.finish(codec, &self.dictionary.plain, self.dictionary.entries.len())
    }

    /// All rows taken, in arrays that end at page boundaries, in the type of their column.
    pub(crate) fn into_arrays(self, data_type: &DataType) -> Result<Vec<ArrayRef>> {
        match data_type {
            DataType::Utf8View => self.arrays::<StringViewType>(),
            _ => self.arrays::<BinaryViewType>(),
        }
    }

    fn arrays<T: ByteViewType>(self) -> Result<Vec<ArrayRef>> {
        let views = self.dictionary.views()?;
        let values = Buffer::from_vec(self.dictionary.plain);
        let (mut arrays, mut runs) = (Vec::new(), &self.runs[..]);
        while !runs.is_empty() {
            let mut rows = 0;
            let ends = runs.iter().position(|run| {
                rows += run.rows as usize;
                rows == self.page_rows_max
            });
            let (page, rest) = runs.split_at(ends.map_or(runs.len(), |last| last + 1));
            runs = rest;
            let mut page_views = Vec::with_capacity(rows);
            let mut nulls = NullBufferBuilder::new(rows);
            for run in page {
                let count = run.rows as usize;
                // The view of a NULL does not matter.
                let view = views.get(run.entry as usize).copied().unwrap_or_default();
                page_views.resize(page_views.len() + count, view);
                if run.entry == NULL {
                    nulls.append_n_nulls(count);
                } else {
                    nulls.append_n_non_nulls(count);
                }
            }
            let buffers = vec![values.clone()];
            let array =
                GenericByteViewArray::<T>::try_new(page_views.into(), buffers, nulls.finish())?;
            arrays.push(Arc::new(array) as ArrayRef);
        }
        Ok(arrays)
    }
}

impl Dictionary {
    fn new(bytes_max: usize) -> Self {
        let random = RandomState::new();
        Self {
            plain: Vec::new(),
            bytes_max,
            entries: Vec::new(),
            by_hash: None,
            last: NULL,
            seeds: [0, 1].map(|seed: u64| random.hash_one(seed)),
        }
    }

    /// The entry of a value, which is added if it is new; `None` if there is no room for it.
    fn entry<'a>(&mut self, view: u128, value: impl Fn() -> &'a [u8]) -> Result<Option<u32>> {
        let inline = ByteView::from(view).length <= MAX_INLINE_VIEW_LEN;
        // The second half of a long value's view locates its bytes, which is valid only within its array.
        let view = if inline { view } else { view & u128::from(u64::MAX) };
        if self.last != NULL && self.is(self.last, view, &value) {
            return Ok(Some(self.last));
        }
        if self.by_hash.is_none() {
            if self.last == NULL || self.value(self.last) < value() {
                return self.add(view, 0, value());
            }
            self.hash_all();
        }
        let hash = self.hash(view, &value);
        let same = |entry: &u32| {
            self.entries[*entry as usize].hash == hash && self.is(*entry, view, &value)
        };
        match self.by_hash.as_ref().and_then(|by_hash| by_hash.find(hash, same)) {
            Some(entry) => {
                self.last = *entry;
                Ok(Some(self.last))
            }
            None => self.add(view, hash, value()),
        }
    }

    /// True if the entry is this value.
    fn is<'a>(&self, entry: u32, view: u128, value: impl Fn() -> &'a [u8]) -> bool {
        self.entries[entry as usize].view == view
            && (ByteView::from(view).length <= MAX_INLINE_VIEW_LEN || self.value(entry) == value())
    }

    fn hash<'a>(&self, view: u128, value: impl Fn() -> &'a [u8]) -> u64 {
        match ByteView::from(view).length <= MAX_INLINE_VIEW_LEN {
            true => self.hash_view(view),
            false => xxh3_64_with_seed(value(), self.seeds[0]),
        }
    }

    /// Builds the hash table over all values: from now on they do not ascend.
    fn hash_all(&mut self) {
        for number in 0..self.entries.len() {
            let Entry { view, start, .. } = self.entries[number];
            let end = start + ByteView::from(view).length as usize;
            self.entries[number].hash = self.hash(view, || &self.plain[start..end]);
        }
        let entries = &self.entries;
        let mut by_hash = HashTable::with_capacity(entries.len());
        for (number, entry) in (0..).zip(entries) {
            by_hash.insert_unique(entry.hash, number, |slot: &u32| entries[*slot as usize].hash);
        }
        self.by_hash = Some(by_hash);
    }

    fn add(&mut self, view: u128, hash: u64, value: &[u8]) -> Result<Option<u32>> {
        let length = u32::try_from(value.len())?.to_le_bytes();
        if self.plain.len() + length.len() + value.len() >= self.bytes_max {
            return Ok(None);
        }
        let number = u32::try_from(self.entries.len())?;
        self.plain.extend_from_slice(&length);
        self.entries.push(Entry { view, hash, start: self.plain.len(), page: 0 });
        self.plain.extend_from_slice(value);
        let entries = &self.entries;
        if let Some(by_hash) = &mut self.by_hash {
            by_hash.insert_unique(hash, number, |entry| entries[*entry as usize].hash);
        }
        self.last = number;
        Ok(Some(number))
    }

    #[expect(clippy::cast_possible_truncation, reason = "halves of it are what is wanted")]
    fn hash_view(&self, view: u128) -> u64 {
        let [low, high] = [view as u64 ^ self.seeds[0], (view >> 64) as u64 ^ self.seeds[1]];
        let product = u128::from(low) * u128::from(high);
        product as u64 ^ (product >> 64) as u64
    }

    /// Number of bits of an index.
    fn bits(&self) -> u32 {
        bits_of(u32::try_from(self.entries.len().saturating_sub(1)).unwrap_or(u32::MAX))
    }

    fn length(&self, entry: u32) -> u32 {
        ByteView::from(self.entries[entry as usize].view).length
    }

    fn value(&self, entry: u32) -> &[u8] {
        let start = self.entries[entry as usize].start;
        &self.plain[start..start + self.length(entry) as usize]
    }

    /// True if an entry was not yet seen in the page; marks it as seen.
    fn first_in(&mut self, page: u32, entry: u32) -> bool {
        std::mem::replace(&mut self.entries[entry as usize].page, page) != page
    }

    /// Views of all values, into the plain encoding.
    fn views(&self) -> Result<Vec<u128>> {
        let view = |entry: &Entry| {
            let view = ByteView::from(entry.view);
            if view.length <= MAX_INLINE_VIEW_LEN {
                return Ok(entry.view);
            }
            let offset = u32::try_from(entry.start)?;
            Ok(view.with_buffer_index(0).with_offset(offset).as_u128())
        };
        self.entries.iter().map(view).collect()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::StringViewArray;

    use super::*;

    #[test]
    fn values_that_ascend_are_not_hashed_and_are_found_when_they_come_again() {
        let [one, two] = ["host_1 of a long name", "host_2 of a long name"];
        let texts =
            StringViewArray::from(vec!["", "a", "a", "b", one, two, two, "a", one, "", "c", two]);
        let mut dictionary = Dictionary::new(1 << 20);
        let mut entries = Vec::new();
        for (row, view) in texts.views().iter().enumerate() {
            assert_eq!(dictionary.by_hash.is_none(), row < 8, "row {row}");
            let entry = dictionary.entry(*view, || texts.value(row).as_bytes()).unwrap();
            entries.push(entry.unwrap());
        }
        assert_eq!(entries, [0, 1, 1, 2, 3, 4, 4, 1, 3, 0, 5, 4]);
        let values: Vec<_> = (0..6).map(|entry| dictionary.value(entry)).collect();
        assert_eq!(values, ["", "a", "b", one, two, "c"].map(str::as_bytes));
    }

    #[test]
    fn what_does_not_fit_is_not_taken_whether_values_ascend_or_not() {
        for texts in [["a", "b", "c"], ["b", "a", "c"]] {
            let texts = StringViewArray::from(texts.to_vec());
            let mut dictionary = Dictionary::new(11);
            let mut entry = |row: usize| {
                dictionary.entry(texts.views()[row], || texts.value(row).as_bytes()).unwrap()
            };
            assert_eq!([entry(0), entry(1), entry(2), entry(0)], [Some(0), Some(1), None, Some(0)]);
        }
    }
}
