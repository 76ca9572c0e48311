//! Keys of a batch of rows: comparable bytes, concatenated in one buffer.

use std::ops::Range;

use arrow::array::{Array, AsArray, BinaryArray, UInt32Array};
use arrow::buffer::{Buffer, OffsetBuffer};
use arrow::compute;

use crate::error::Error;
use crate::range::KeyRange;

/// Encoded keys, one per row. Cheap to clone and to slice: the bytes are shared.
#[derive(Clone, Debug, PartialEq)]
pub struct Keys {
    array: BinaryArray,
}

impl Keys {
    /// Wraps an array without NULL.
    pub(super) fn new(array: BinaryArray) -> Self {
        debug_assert_eq!(array.null_count(), 0);
        Self { array }
    }

    /// Keys that are already encoded. Panics when they exceed one batch (2 GiB).
    pub fn from_encoded<T: AsRef<[u8]>>(keys: impl IntoIterator<Item = T>) -> Self {
        let mut bytes = Vec::new();
        let lengths = keys.into_iter().map(|key| {
            bytes.extend_from_slice(key.as_ref());
            key.as_ref().len()
        });
        let offsets = OffsetBuffer::from_lengths(lengths.collect::<Vec<_>>());
        Self::new(BinaryArray::new(offsets, Buffer::from_vec(bytes), None))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.array.len()
    }

    /// True if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.array.is_empty()
    }

    /// The key of a row. Panics when there is no such row.
    pub fn get(&self, row: usize) -> &[u8] {
        self.array.value(row)
    }

    /// The first key.
    pub fn first(&self) -> Option<&[u8]> {
        (!self.is_empty()).then(|| self.get(0))
    }

    /// The last key.
    pub fn last(&self) -> Option<&[u8]> {
        self.len().checked_sub(1).map(|row| self.get(row))
    }

    /// All keys, in the order of the rows.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + DoubleEndedIterator {
        (0..self.len()).map(|row| self.get(row))
    }

    /// True if no key is smaller than the previous one.
    pub fn is_sorted(&self) -> bool {
        (1..self.len()).all(|row| self.get(row - 1) <= self.get(row))
    }

    /// Positions of the first key in a range and of the first one behind it; the keys must be sorted.
    pub fn within(&self, range: &KeyRange) -> (usize, usize) {
        let start = self.lower_bound(&range.start);
        let end = range.end.as_ref().map_or(self.len(), |end| self.lower_bound(end));
        (start, end.max(start))
    }

    /// Number of keys before the first one that is not smaller; the keys must be sorted.
    pub fn lower_bound(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.get(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The rows in the order of their keys; rows with equal keys keep their order. Batches have fewer than 2^32 rows.
    pub fn sort_indices(&self) -> UInt32Array {
        let count = u32::try_from(self.len()).expect("offsets of 32 bits count at most 2^31 rows");
        if self.is_sorted() {
            return UInt32Array::from_iter_values(0..count);
        }
        // Most comparisons end within the eight bytes after the prefix that all keys share (placement, a common first
        // column): keep those in the array that is sorted.
        let first = self.get(0);
        let shared = self.iter().fold(first.len(), |shared, key| {
            let same = key.iter().zip(&first[..shared]).take_while(|(a, b)| a == b).count();
            same.min(shared)
        });
        let mut rows: Vec<(u64, u32)> =
            self.iter().zip(0..count).map(|(key, row)| (head(&key[shared..]), row)).collect();
        // A stable sort, because it merges runs that are sorted already; the order itself is total.
        rows.sort_by(|(head_a, a), (head_b, b)| {
            head_a
                .cmp(head_b)
                .then_with(|| self.get(*a as usize).cmp(self.get(*b as usize)))
                .then_with(|| a.cmp(b))
        });
        UInt32Array::from_iter_values(rows.into_iter().map(|(_, row)| row))
    }

    /// Copies the keys of some rows.
    ///
    /// # Errors
    /// [`Error::Internal`] when there is no such row, or the keys exceed one batch (2 GiB).
    pub fn take(&self, rows: &UInt32Array) -> Result<Self, Error> {
        let array = compute::take(&self.array, rows, None).map_err(internal)?;
        Ok(Self::new(array.as_binary().clone()))
    }

    /// The keys of a run of rows; the bytes stay shared. Panics when the run leaves the batch.
    #[must_use]
    pub fn slice(&self, rows: Range<usize>) -> Self {
        Self::new(self.array.slice(rows.start, rows.len()))
    }

    /// Copies the keys of runs of rows of several batches, concatenated.
    ///
    /// # Errors
    /// [`Error::Internal`] when they exceed one batch (2 GiB).
    pub fn gather<'a>(
        parts: impl Iterator<Item = (&'a Self, Range<usize>)> + Clone,
    ) -> Result<Self, Error> {
        let (mut total, mut count) = (0, 0);
        for (keys, rows) in parts.clone() {
            total += keys.bytes_of(rows.clone()).len();
            count += rows.len();
        }
        if i32::try_from(total).is_err() {
            return Err(Error::Internal(format!("{total} bytes of keys do not fit in one batch")));
        }
        let mut bytes = Vec::with_capacity(total);
        let mut lengths = Vec::with_capacity(count);
        for (keys, rows) in parts {
            bytes.extend_from_slice(keys.bytes_of(rows.clone()));
            lengths.extend(rows.map(|row| keys.get(row).len()));
        }
        let offsets = OffsetBuffer::from_lengths(lengths);
        Ok(Self::new(BinaryArray::new(offsets, Buffer::from_vec(bytes), None)))
    }

    /// The bytes of a run of keys, concatenated. Panics when the run leaves the batch.
    fn bytes_of(&self, rows: Range<usize>) -> &[u8] {
        let place = |row: usize| usize::try_from(self.array.value_offsets()[row]).unwrap_or(0);
        &self.array.value_data()[place(rows.start)..place(rows.end)]
    }

    /// Bytes of the keys themselves.
    fn bytes(&self) -> usize {
        let offsets = self.array.value_offsets();
        match (offsets.first(), offsets.last()) {
            (Some(first), Some(last)) => usize::try_from(last - first).unwrap_or(0),
            _ => 0,
        }
    }

    /// Bytes of memory for these keys; for a slice, its own part only.
    pub fn size_bytes(&self) -> usize {
        self.bytes() + size_of_val(self.array.value_offsets())
    }
}

/// The first eight bytes as a number with the same order; a shorter key is padded with zeros, so that equal heads need
/// the full comparison.
fn head(key: &[u8]) -> u64 {
    let mut head = [0; 8];
    let length = key.len().min(8);
    head[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(head)
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn internal(error: arrow::error::ArrowError) -> Error {
    Error::Internal(format!("keys cannot be gathered: {error}"))
}
