//! The key codec: encodes a row's position in its table's key space as bytes that compare like the key.
//!
//! ```text
//!   key = placement (u16, big-endian; only for tables placed by hash or rules)
//!      ++ one cell per key column (arrow's row format: ascending, NULL first; timestamps of a wide table's cells descend)
//! ```
//!
//! Invariants:
//! - keys compare as bytes exactly like their tuples of values compare;
//! - a cell is self-delimiting, so the encoding of the first n columns is a byte prefix of the whole, no cell is a
//!   prefix of another, and a prefix sorts before every key that begins with it;
//! - every cell of NULL begins with 0, every other cell with 1 or more.
//!
//! Encoded keys exist in memory only. Stored and sent is the typed form ([`Bound`]), which stays valid when a column is
//! added to the key.

mod cell;
mod keys;
mod ranges;
mod series;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, UInt32Array, new_null_array};
use arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{CastOptions, SortOptions, cast_with_options};
use arrow::datatypes::{DataType, UInt16Type};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use arrow::row::{RowConverter, SortField};
use bytes::Bytes;

use self::cell::CellOrder;
pub use self::keys::Keys;
pub use self::ranges::{KEY_RANGES_MAX, only_placement};
use self::series::{SeriesCodec, Share};
use crate::error::Error;
use crate::placement::Placement;
use crate::range::{Bound, KeyRange, TypedRange};
use crate::schema::{ColumnType, TableSchema, UUID};
use crate::size::view_length;
use crate::uuid::UUID_BYTES;
use crate::value::Value;

/// Name of the placement's column: UInt16 without NULL, the first column of write batches, memtables and files of
/// tables placed by hash or rules.
pub const PLACEMENT_COLUMN: &str = "__placement";

/// Bytes of a placement.
const PLACEMENT_BYTES: usize = 2;
/// Upper bound of a cell's length beyond its value and an eighth of it: text is padded to blocks of eight bytes with
/// one more each, longer text to blocks of 32.
const CELL_BYTES: usize = 64;

/// Encodes and decodes keys of one table at one schema version. Cheap to clone.
#[derive(Clone, Debug)]
pub struct KeyCodec {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    placed: bool,
    /// Storage names of the key columns.
    names: Vec<String>,
    /// Types of the key columns.
    types: Vec<ColumnType>,
    /// Position of the column in whose descending order keys are.
    descending: Option<usize>,
    converter: RowConverter,
    /// Codec for batches whose rows share series.
    series: Option<SeriesCodec>,
}

impl KeyCodec {
    /// The codec of a table.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when the key names a column that the schema does not have.
    pub fn new(schema: &TableSchema, placement: &Placement) -> Result<Self, Error> {
        let mut names = Vec::with_capacity(schema.key.len());
        let mut types = Vec::with_capacity(schema.key.len());
        for id in &schema.key {
            let column = schema.column_by_id(*id).ok_or_else(|| {
                Error::InvalidInput(format!("the key names column {id}, which does not exist"))
            })?;
            names.push(column.storage_name.clone());
            types.push(column.column_type);
        }
        let descending = schema.key.iter().position(|id| schema.descends(*id));
        let fields = types.iter().enumerate();
        let fields = fields
            .map(|(position, column_type)| sort_field(*column_type, Some(position) == descending));
        let converter = RowConverter::new(fields.collect()).map_err(internal)?;
        let placed = !matches!(placement, Placement::Range);
        let last = types.len().checked_sub(1);
        let series = SeriesCodec::new(&types, descending.is_some() && descending == last)?;
        Ok(Self { inner: Arc::new(Inner { placed, names, types, descending, converter, series }) })
    }

    /// True if keys begin with a placement.
    pub fn placed(&self) -> bool {
        self.inner.placed
    }

    /// The storage names of the key columns, most significant first (the placement is not one).
    pub fn key_columns(&self) -> &[String] {
        &self.inner.names
    }

    /// The types of the key columns.
    pub fn key_types(&self) -> &[ColumnType] {
        &self.inner.types
    }

    /// Encodes the key of every row. Columns are found by storage name; a key column that the batch
    /// does not have is NULL in every row, as in files older than the column. Other columns are
    /// ignored.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when a placed table's batch has no placement, or a key column has
    /// another type than the schema says.
    pub fn encode(&self, rows: &RecordBatch) -> Result<Keys, Error> {
        self.encode_by(rows, Share::Anywhere)
    }

    /// Encodes the key of every row as [`KeyCodec::encode`] does. Optimized for rows in key order: the rows of a series
    /// are consecutive, so no search for equal series is needed.
    ///
    /// # Errors
    /// As [`KeyCodec::encode`].
    pub fn encode_ordered(&self, rows: &RecordBatch) -> Result<Keys, Error> {
        self.encode_by(rows, Share::Neighbours)
    }

    fn encode_by(&self, rows: &RecordBatch, share: Share) -> Result<Keys, Error> {
        let columns = self.columns(rows)?;
        let placement = self.placement(rows)?;
        if let Some(series) = &self.inner.series
            && let Some(parts) = series.parts(placement, &columns, share)?
        {
            return parts.keys();
        }
        self.encode_rows(placement, &columns, rows.num_rows())
    }

    /// Encodes the key of every row as [`KeyCodec::encode`] does, and sorts the keys. Returns the rows' numbers in that
    /// order, unless they are in order already; rows with equal keys keep their order.
    ///
    /// # Errors
    /// As [`KeyCodec::encode`].
    pub fn encode_sorted(&self, rows: &RecordBatch) -> Result<(Keys, Option<UInt32Array>), Error> {
        let columns = self.columns(rows)?;
        let placement = self.placement(rows)?;
        if let Some(series) = &self.inner.series
            && let Some(parts) = series.parts(placement, &columns, Share::Anywhere)?
        {
            let Some(order) = parts.order() else { return Ok((parts.keys()?, None)) };
            let keys = parts.put_together(order.iter().map(|row| *row as usize))?;
            return Ok((keys, Some(UInt32Array::from(order))));
        }
        let keys = self.encode_rows(placement, &columns, rows.num_rows())?;
        if keys.is_sorted() {
            return Ok((keys, None));
        }
        let order = keys.sort_indices();
        Ok((keys.take(&order)?, Some(order)))
    }

    /// Upper bound of the length of these rows' keys; `None` when it is not cheap to compute.
    pub fn length_bound(&self, rows: &RecordBatch) -> Option<usize> {
        let mut bound = if self.inner.placed { PLACEMENT_BYTES } else { 0 };
        for name in &self.inner.names {
            let Some(column) = rows.column_by_name(name) else {
                bound += CELL_BYTES;
                continue;
            };
            let longest = |views: &[u128]| views.iter().map(|view| view_length(*view)).max();
            let longest = match column.data_type() {
                DataType::Utf8View => longest(column.as_string_view().views()),
                DataType::BinaryView => longest(column.as_binary_view().views()),
                &UUID => Some(UUID_BYTES),
                fixed => Some(fixed.primitive_width()?),
            };
            let longest = longest.unwrap_or(0);
            bound += CELL_BYTES + longest + longest / 8;
        }
        Some(bound)
    }

    /// Encodes keys row by row.
    fn encode_rows(
        &self,
        placement: Option<&ArrayRef>,
        columns: &[ArrayRef],
        count: usize,
    ) -> Result<Keys, Error> {
        let cells = self.cells(columns, count)?;
        let Some(placement) = placement else { return Ok(Keys::new(cells)) };
        let placements = placement.as_primitive::<UInt16Type>();
        let total = cells.value_data().len() + PLACEMENT_BYTES * count;
        if i32::try_from(total).is_err() {
            return Err(too_large(total));
        }
        let mut bytes = Vec::with_capacity(total);
        let mut lengths = Vec::with_capacity(count);
        for (row, placement) in placements.values().iter().enumerate() {
            let cells = cells.value(row);
            bytes.extend_from_slice(&placement.to_be_bytes());
            bytes.extend_from_slice(cells);
            lengths.push(PLACEMENT_BYTES + cells.len());
        }
        let offsets = OffsetBuffer::from_lengths(lengths);
        let keys =
            BinaryArray::try_new(offsets, Buffer::from_vec(bytes), None).map_err(internal)?;
        Ok(Keys::new(keys))
    }

    /// The placement of the rows, if the table has one.
    fn placement<'a>(&self, rows: &'a RecordBatch) -> Result<Option<&'a ArrayRef>, Error> {
        if !self.inner.placed {
            return Ok(None);
        }
        let column = rows.column_by_name(PLACEMENT_COLUMN).ok_or_else(|| {
            Error::InvalidInput(format!("rows of a placed table have no column {PLACEMENT_COLUMN}"))
        })?;
        if *column.data_type() != DataType::UInt16 || column.null_count() > 0 {
            return Err(Error::InvalidInput(format!(
                "column {PLACEMENT_COLUMN} must be UInt16 without NULL"
            )));
        }
        Ok(Some(column))
    }

    /// The key columns, without the placement.
    fn columns(&self, rows: &RecordBatch) -> Result<Vec<ArrayRef>, Error> {
        let columns = self.inner.names.iter().zip(&self.inner.types);
        columns.map(|(name, column_type)| key_column(rows, name, *column_type)).collect()
    }

    /// The cells of the key columns, without the placement.
    fn cells(&self, columns: &[ArrayRef], rows: usize) -> Result<BinaryArray, Error> {
        if columns.is_empty() {
            // A table without a key: every row has the empty key.
            let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0_i32; rows + 1]));
            return BinaryArray::try_new(offsets, Buffer::from_vec(Vec::<u8>::new()), None)
                .map_err(internal);
        }
        let encoded = self.inner.converter.convert_columns(columns).map_err(internal)?;
        let size = encoded.size();
        encoded.try_into_binary().map_err(|_| too_large(size))
    }

    /// Encodes a bound; its values are coerced to the columns' types. The empty bound becomes the empty key; as an end
    /// the caller must treat it separately ([`KeyCodec::range`] does).
    ///
    /// # Errors
    /// [`Error::InvalidInput`] when it has a placement and the table none (or values but no placement and the table has
    /// one), more values than the key has columns, or a value of another type.
    pub fn encode_bound(&self, bound: &Bound) -> Result<Bytes, Error> {
        let bound = self.coerce_bound(bound)?;
        let mut bytes = Vec::new();
        if let Some(placement) = bound.placement {
            bytes.extend_from_slice(&placement.to_be_bytes());
        }
        for (position, value) in bound.key.iter().enumerate() {
            cell::encode(&mut bytes, self.order(position)?, value)?;
        }
        Ok(bytes.into())
    }

    /// The bound with its values coerced to the columns' types: the form to store.
    ///
    /// # Errors
    /// As [`KeyCodec::encode_bound`].
    pub fn coerce_bound<'a>(&self, bound: &'a Bound) -> Result<Cow<'a, Bound>, Error> {
        if bound.placement.is_some() && !self.inner.placed {
            return Err(Error::InvalidInput(
                "a bound has a placement, but the table is placed by range".to_owned(),
            ));
        }
        if bound.placement.is_none() && self.inner.placed && !bound.key.is_empty() {
            return Err(Error::InvalidInput("a bound has key values, but no placement".to_owned()));
        }
        if bound.key.len() > self.inner.types.len() {
            return Err(Error::InvalidInput(format!(
                "a bound has {} values, but the key has {} columns",
                bound.key.len(),
                self.inner.types.len()
            )));
        }
        let typed = bound.key.iter().zip(&self.inner.types);
        if typed.clone().all(|(value, column_type)| cell::fits(value, *column_type)) {
            return Ok(Cow::Borrowed(bound));
        }
        let key = typed
            .map(|(value, column_type)| value.clone().coerce(*column_type))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Cow::Owned(Bound { placement: bound.placement, key }))
    }

    /// Encodes a range.
    ///
    /// # Errors
    /// As [`KeyCodec::encode_bound`].
    pub fn range(&self, range: &TypedRange) -> Result<KeyRange, Error> {
        let start = self.encode_bound(&range.start)?;
        let end = match range.end.is_empty() {
            true => None,
            false => Some(self.encode_bound(&range.end)?),
        };
        Ok(KeyRange { start, end })
    }

    /// Decodes a key, or a prefix of one that ends at the end of a cell.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when the bytes are not such a key.
    pub fn decode(&self, key: &[u8]) -> Result<Bound, Error> {
        let mut rest = key;
        let mut bound = Bound::default();
        if self.inner.placed && !rest.is_empty() {
            let (placement, cells) = rest
                .split_first_chunk::<PLACEMENT_BYTES>()
                .ok_or_else(|| Error::Corrupted("a key ends within its placement".to_owned()))?;
            bound.placement = Some(u16::from_be_bytes(*placement));
            rest = cells;
        }
        for position in 0..self.inner.types.len() {
            if rest.is_empty() {
                break;
            }
            bound.key.push(cell::decode(&mut rest, self.order(position)?)?);
        }
        if !rest.is_empty() {
            return Err(Error::Corrupted(format!(
                "a key has {} bytes behind its last column",
                rest.len()
            )));
        }
        Ok(bound)
    }

    /// One value of a key, by column number; the other cells are not decoded.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when the value cannot be decoded; damage to other cells may go unnoticed.
    pub fn value(&self, key: &[u8], column: usize) -> Result<Value, Error> {
        let mut rest = match self.inner.placed {
            true => key.get(PLACEMENT_BYTES..).unwrap_or_default(),
            false => key,
        };
        let order = self.order(column)?;
        for skipped in &self.inner.types[..column] {
            cell::skip(&mut rest, *skipped)?;
        }
        cell::decode(&mut rest, order)
    }

    /// The first cells of a key, with its placement.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when the key has fewer.
    pub fn first_cells<'k>(&self, key: &'k [u8], columns: usize) -> Result<&'k [u8], Error> {
        let mut rest = match self.inner.placed {
            true => key.get(PLACEMENT_BYTES..).unwrap_or_default(),
            false => key,
        };
        for column_type in self.inner.types.iter().take(columns) {
            cell::skip(&mut rest, *column_type)?;
        }
        Ok(&key[..key.len() - rest.len()])
    }

    /// Type and order of the cells of a column.
    fn order(&self, position: usize) -> Result<CellOrder, Error> {
        let missing = || Error::Corrupted(format!("a key has no column {position}"));
        let column_type = *self.inner.types.get(position).ok_or_else(missing)?;
        Ok(CellOrder { column_type, descends: self.inner.descending == Some(position) })
    }

    /// Ends of a key's cells, ascending, beginning with the placement's, if there is one. For a truncated or invalid
    /// key, the ends of the cells that can be read.
    pub fn cell_ends(&self, key: &[u8]) -> Vec<usize> {
        let mut ends = Vec::with_capacity(self.inner.types.len() + 1);
        let mut rest = key;
        if self.inner.placed {
            let Some((_, cells)) = rest.split_first_chunk::<PLACEMENT_BYTES>() else { return ends };
            rest = cells;
            ends.push(key.len() - rest.len());
        }
        for position in 0..self.inner.types.len() {
            let Ok(order) = self.order(position) else { break };
            if rest.is_empty() || cell::decode(&mut rest, order).is_err() {
                break;
            }
            ends.push(key.len() - rest.len());
        }
        ends
    }

    /// The smallest bytes greater than every key with this prefix; `None` when there are none, because the prefix
    /// consists of 0xFF only.
    pub fn successor(key: &[u8]) -> Option<Bytes> {
        let last = key.iter().rposition(|byte| *byte != u8::MAX)?;
        let mut bytes = key[..=last].to_vec();
        bytes[last] += 1;
        Some(bytes.into())
    }
}

/// Order of a key column for Arrow's converter; NULL comes first in either.
fn sort_field(column_type: ColumnType, descends: bool) -> SortField {
    let options = SortOptions { descending: descends, nulls_first: true };
    SortField::new_with_options(column_type.arrow(), options)
}

/// A key column of the batch in the exact type for which the converter was made.
fn key_column(rows: &RecordBatch, name: &str, column_type: ColumnType) -> Result<ArrayRef, Error> {
    let data_type = column_type.arrow();
    let Some(column) = rows.column_by_name(name) else {
        return Ok(new_null_array(&data_type, rows.num_rows()));
    };
    if *column.data_type() == data_type {
        return Ok(Arc::clone(column));
    }
    // The same values in another layout, such as a dictionary; never another type.
    if ColumnType::from_arrow(column.data_type()) != Some(column_type) {
        return Err(Error::InvalidInput(format!(
            "key column \"{name}\" has type {}, expected {}",
            column.data_type(),
            column_type.sql()
        )));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, &data_type, &options).map_err(|error| {
        Error::InvalidInput(format!("key column \"{name}\" is not {}: {error}", column_type.sql()))
    })
}

fn internal(error: ArrowError) -> Error {
    Error::Internal(format!("keys cannot be encoded: {error}"))
}

fn too_large(bytes: usize) -> Error {
    Error::InvalidInput(format!("{bytes} bytes of keys in one batch exceed the limit of 2 GiB"))
}
