//! Encodes keys of rows that share series.
//!
//! A series is all of a key except its last column, with the placement, if the table has one. Measurements repeat the
//! same series, and a series is mostly text, which is slow to encode: here each is encoded once per batch, and the keys
//! are assembled from it and the last column's cells. Every row has a short number that sorts like its key, so that
//! rows are sorted before any key is made. Rows in key order, as in files, are not even hashed: those of a series are
//! consecutive.
//!
//! Invariants:
//! - the keys are, byte for byte, those of encoding row by row;
//! - rows share a series only if all their values are equal: a hash proposes, a comparison decides.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, UInt32Array};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow::compute::take;
use arrow::datatypes::{DataType, UInt16Type};
use arrow::row::RowConverter;

use super::{Keys, internal, sort_field, too_large};
use crate::error::Error;
use crate::schema::ColumnType;
use crate::size::view_length;

/// Minimum rows of a batch; smaller ones are encoded row by row.
const ROWS_MIN: usize = 64;
/// Minimum mean rows per series for which encoding by series pays.
const ROWS_PER_SERIES_MIN: usize = 4;
/// The same minimum for consecutive rows, whose series are found almost for free.
const ROWS_PER_RUN_MIN: usize = 2;
/// Maximum bytes of a last cell: it fits into the number that sorts like the key, behind the series' rank.
const LAST_CELL_BYTES_MAX: usize = 12;
/// Maximum bytes of a text that is stored in its view.
const INLINE_BYTES: usize = 12;
/// An odd number with its bits well spread (the fraction of the golden ratio).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Encodes keys of one table by series.
#[derive(Debug)]
pub(super) struct SeriesCodec {
    series: RowConverter,
    last: RowConverter,
}

/// Rows among which a series is shared.
#[derive(Clone, Copy, Debug)]
pub(super) enum Share {
    /// All rows of a batch.
    Anywhere,
    /// Consecutive rows only: in another order a series is encoded repeatedly.
    Neighbours,
}

/// Assignment of rows to series. One series may occur more than once, under several codes.
struct Grouped {
    codes: Vec<u32>,
    /// The first row of each series.
    first: Vec<u32>,
}

/// Keys in two parts: encoded series, and the last cell of each row.
pub(super) struct Parts {
    prefixes: Vec<Vec<u8>>,
    /// Index of each row's prefix.
    codes: Vec<u32>,
    /// Last cell of each row, which follows the prefix.
    cells: BinaryArray,
    /// Bytes of all keys.
    total: usize,
}

impl Parts {
    /// The keys, in the order of the rows.
    pub(super) fn keys(&self) -> Result<Keys, Error> {
        self.put_together(0..self.codes.len())
    }

    /// The rows in the order of their keys, if they are not in it; rows with equal keys keep their order.
    pub(super) fn order(&self) -> Option<Vec<u32>> {
        let ranks = ranks(&self.prefixes);
        let number = |row: usize| number(ranks[self.codes[row] as usize], self.cells.value(row));
        let numbers = (0..self.codes.len()).map(number);
        if numbers.clone().is_sorted() {
            return None;
        }
        let mut rows: Vec<(u128, u32)> = numbers.zip(0..).collect();
        rows.sort_unstable();
        Some(rows.into_iter().map(|(_, row)| row).collect())
    }

    /// The keys of some rows, in this order.
    pub(super) fn put_together(
        &self,
        rows: impl ExactSizeIterator<Item = usize>,
    ) -> Result<Keys, Error> {
        let mut bytes = Vec::with_capacity(self.total);
        let mut lengths = Vec::with_capacity(rows.len());
        for row in rows {
            let prefix = &self.prefixes[self.codes[row] as usize];
            let cell = self.cells.value(row);
            bytes.extend_from_slice(prefix);
            bytes.extend_from_slice(cell);
            lengths.push(prefix.len() + cell.len());
        }
        let offsets = OffsetBuffer::from_lengths(lengths);
        let array =
            BinaryArray::try_new(offsets, Buffer::from_vec(bytes), None).map_err(internal)?;
        Ok(Keys::new(array))
    }
}

impl SeriesCodec {
    /// The codec for a key of these columns, if encoding by series pays for them: some text, then one column of a fixed
    /// width.
    pub(super) fn new(types: &[ColumnType], last_descends: bool) -> Result<Option<Self>, Error> {
        let Some((last, series)) = types.split_last() else { return Ok(None) };
        let text = |column_type: &ColumnType| {
            matches!(column_type, ColumnType::String | ColumnType::Binary)
        };
        let is_wide = matches!(last, ColumnType::Decimal(..) | ColumnType::Uuid);
        if !series.iter().any(text) || text(last) || is_wide {
            return Ok(None);
        }
        let fields = |types: &[ColumnType], descend: bool| {
            let fields = types.iter().map(|column_type| sort_field(*column_type, descend));
            RowConverter::new(fields.collect()).map_err(internal)
        };
        Ok(Some(Self { series: fields(series, false)?, last: fields(&[*last], last_descends)? }))
    }

    /// The parts of the keys; `None` if too few rows share a series.
    ///
    /// # Errors
    /// When the keys exceed one batch.
    pub(super) fn parts(
        &self,
        placement: Option<&ArrayRef>,
        columns: &[ArrayRef],
        share: Share,
    ) -> Result<Option<Parts>, Error> {
        let Some((last, series)) = columns.split_last() else { return Ok(None) };
        let rows = last.len();
        if rows < ROWS_MIN {
            return Ok(None);
        }
        // Find rows with equal leading columns.
        let leading: Option<Vec<Values>> =
            placement.into_iter().chain(series).map(Values::of).collect();
        let grouped = leading.and_then(|leading| match share {
            Share::Anywhere => group(&leading, rows),
            Share::Neighbours => runs(&leading, rows),
        });
        let Some(Grouped { codes, first }) = grouped else {
            return Ok(None);
        };
        // Encode each series once, and the last column of every row.
        let prefixes = self.prefixes(placement, series, first)?;
        let cells = self.last.convert_columns(std::slice::from_ref(last)).map_err(internal)?;
        let total: usize = codes.iter().map(|code| prefixes[*code as usize].len()).sum();
        let cells = cells.try_into_binary().map_err(|_| too_large(total))?;
        let total = total + cells.value_data().len();
        if i32::try_from(total).is_err() {
            return Err(too_large(total));
        }
        Ok(Some(Parts { prefixes, codes, cells, total }))
    }

    /// The encoded series, placement first.
    fn prefixes(
        &self,
        placement: Option<&ArrayRef>,
        series: &[ArrayRef],
        first: Vec<u32>,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let first = UInt32Array::from(first);
        let of_first = |column: &ArrayRef| take(column, &first, None).map_err(internal);
        let columns = series.iter().map(of_first).collect::<Result<Vec<_>, _>>()?;
        let cells = self.series.convert_columns(&columns).map_err(internal)?;
        let placements = placement.map(of_first).transpose()?;
        let placements =
            placements.as_ref().map(|placements| placements.as_primitive::<UInt16Type>());
        let prefix = |(index, cells): (usize, arrow::row::Row<'_>)| {
            let placement = placements.map(|placements| placements.value(index).to_be_bytes());
            let mut prefix = placement.map_or_else(Vec::new, |placement| placement.to_vec());
            prefix.extend_from_slice(cells.as_ref());
            prefix
        };
        Ok(cells.iter().enumerate().map(prefix).collect())
    }
}

/// Rank of each prefix; equal ones share theirs. No prefix begins another, so keys compare like their prefixes as long
/// as these differ.
fn ranks(prefixes: &[Vec<u8>]) -> Vec<u32> {
    let mut sorted: Vec<usize> = (0..prefixes.len()).collect();
    sorted.sort_unstable_by_key(|index| &prefixes[*index]);
    let mut ranks = vec![0; prefixes.len()];
    let mut rank = 0;
    for pair in sorted.windows(2) {
        rank += u32::from(prefixes[pair[0]] != prefixes[pair[1]]);
        ranks[pair[1]] = rank;
    }
    ranks
}

/// A rank and a cell as one number with the same order: all cells of a fixed-width type have the same length.
fn number(rank: u32, cell: &[u8]) -> u128 {
    debug_assert!(cell.len() <= LAST_CELL_BYTES_MAX);
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&rank.to_be_bytes());
    bytes[4..4 + cell.len()].copy_from_slice(cell);
    u128::from_be_bytes(bytes)
}

/// Groups consecutive equal rows into series; `None` when there are hardly any.
fn runs(columns: &[Values], rows: usize) -> Option<Grouped> {
    let runs_max = rows / ROWS_PER_RUN_MIN;
    let mut starts = vec![false; rows];
    *starts.first_mut()? = true;
    for column in columns {
        column.mark(&mut starts);
        if starts.iter().filter(|start| **start).count() > runs_max {
            return None;
        }
    }
    let mut codes = Vec::with_capacity(rows);
    let mut first = Vec::new();
    let mut code = 0;
    for (row, start) in (0_u32..).zip(starts) {
        if start {
            code = u32::try_from(first.len()).ok()?;
            first.push(row);
        }
        codes.push(code);
    }
    Some(Grouped { codes, first })
}

/// Groups rows into series; `None` when they hardly share any, or hashes collide.
fn group(columns: &[Values], rows: usize) -> Option<Grouped> {
    let mut hashes = vec![0_u64; rows];
    let series_max = rows / ROWS_PER_SERIES_MIN;
    for column in columns {
        column.mix(&mut hashes);
        // Mostly one column identifies series, and comes first.
        if differ_at_least(&hashes) > series_max {
            return None;
        }
    }
    let mut codes_by_hash: HashMap<u64, u32, BuildHasherDefault<Hashed>> = HashMap::default();
    let mut codes: Vec<u32> = Vec::with_capacity(rows);
    let mut first = Vec::new();
    for (row, hash) in (0_u32..).zip(&hashes) {
        let next = u32::try_from(first.len()).ok()?;
        let code = *codes_by_hash.entry(*hash).or_insert(next);
        if code == next {
            if first.len() == series_max {
                return None;
            }
            first.push(row);
        }
        codes.push(code);
    }
    let same = |column: &Values| {
        let first_of = codes.iter().map(|code| first[*code as usize] as usize);
        first_of.enumerate().all(|(row, first)| column.same(row, first))
    };
    columns.iter().all(same).then_some(Grouped { codes, first })
}

/// A lower bound of the number of distinct hashes: they are spread over a limited number of bits.
fn differ_at_least(hashes: &[u64]) -> usize {
    const BITS_PER_HASH: usize = 2;
    let words = (hashes.len() * BITS_PER_HASH / 64).next_power_of_two();
    let mut bitmap = vec![0_u64; words];
    for hash in hashes {
        // Any bits are good: the hash is a folded product.
        let (word, bit) = (*hash >> 6, *hash & 63);
        #[expect(clippy::cast_possible_truncation, reason = "a few low bits are wanted")]
        let word = word as usize & (words - 1);
        bitmap[word] |= 1 << bit;
    }
    bitmap.iter().map(|word| word.count_ones() as usize).sum()
}

/// A column's values in a form that is quick to hash and to compare.
struct Values {
    plain: Plain,
    nulls: Option<NullBuffer>,
}

enum Plain {
    Views(BinaryViewArray),
    Words(Vec<u64>),
}

impl Values {
    /// `None` for types that are not used in series.
    fn of(column: &ArrayRef) -> Option<Self> {
        let plain = match column.data_type() {
            DataType::Utf8View => Plain::Views(column.as_string_view().clone().to_binary_view()),
            DataType::BinaryView => Plain::Views(column.as_binary_view().clone()),
            fixed => Plain::Words(words(column, fixed.primitive_width()?)?),
        };
        Some(Self { plain, nulls: column.nulls().filter(|nulls| nulls.null_count() > 0).cloned() })
    }

    fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Marks rows whose value may differ from the previous row's. Within one array equal views are equal values; equal
    /// values with different views are treated as different.
    fn mark(&self, starts: &mut [bool]) {
        fn differ<T: PartialEq>(values: &[T], starts: &mut [bool]) {
            for (start, pair) in starts.iter_mut().skip(1).zip(values.windows(2)) {
                *start |= pair[0] != pair[1];
            }
        }
        match &self.plain {
            Plain::Views(views) => differ(views.views(), starts),
            Plain::Words(words) => differ(words, starts),
        }
        if let Some(nulls) = &self.nulls {
            for (row, start) in starts.iter_mut().enumerate().skip(1) {
                *start |= nulls.is_null(row) != nulls.is_null(row - 1);
            }
        }
    }

    /// Mixes the values into the hashes of their rows.
    fn mix(&self, hashes: &mut [u64]) {
        match &self.plain {
            Plain::Views(views) => {
                for (row, (hash, view)) in hashes.iter_mut().zip(views.views()).enumerate() {
                    #[expect(clippy::cast_possible_truncation, reason = "a view in two halves")]
                    let (low, high) = (*view as u64, (*view >> 64) as u64);
                    let word = match inline(*view) {
                        _ if self.is_null(row) => SPREAD,
                        true => low ^ high.wrapping_mul(SPREAD),
                        false => xxhash_rust::xxh3::xxh3_64(views.value(row)),
                    };
                    *hash = mixed(*hash, word);
                }
            }
            Plain::Words(words) => {
                for (row, (hash, word)) in hashes.iter_mut().zip(words).enumerate() {
                    *hash = mixed(*hash, if self.is_null(row) { SPREAD } else { *word });
                }
            }
        }
    }

    fn same(&self, a: usize, b: usize) -> bool {
        if self.nulls.is_some() && (self.is_null(a) || self.is_null(b)) {
            return self.is_null(a) && self.is_null(b);
        }
        match &self.plain {
            Plain::Views(array) => {
                let views = array.views();
                views[a] == views[b] || (!inline(views[a]) && array.value(a) == array.value(b))
            }
            Plain::Words(words) => words[a] == words[b],
        }
    }
}

/// True if a view contains its value.
fn inline(view: u128) -> bool {
    view_length(view) <= INLINE_BYTES
}

/// The bits of fixed-width values.
fn words(column: &ArrayRef, width: usize) -> Option<Vec<u64>> {
    let data = column.to_data();
    let bytes = data.buffers().first()?.as_slice();
    let bytes = bytes.get(data.offset() * width..(data.offset() + data.len()) * width)?;
    fn read<const N: usize>(bytes: &[u8]) -> Vec<u64> {
        let (values, _) = bytes.as_chunks::<N>();
        let word = |value: &[u8; N]| {
            let mut word = [0; 8];
            word[..N].copy_from_slice(value);
            u64::from_le_bytes(word)
        };
        values.iter().map(word).collect()
    }
    Some(match width {
        1 => read::<1>(bytes),
        2 => read::<2>(bytes),
        4 => read::<4>(bytes),
        8 => read::<8>(bytes),
        _ => return None,
    })
}

fn mixed(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash.rotate_left(29) ^ word).wrapping_mul(u128::from(SPREAD));
    #[expect(clippy::cast_possible_truncation, reason = "both halves are folded into one")]
    let folded = (product as u64) ^ ((product >> 64) as u64);
    folded
}

/// A hasher that passes a hash through.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = mixed(self.0, u64::from(*byte));
        }
    }

    fn write_u64(&mut self, hash: u64) {
        // The hash map takes its control bits from the top, where a product is mixed best.
        self.0 = hash.wrapping_mul(SPREAD);
    }
}
