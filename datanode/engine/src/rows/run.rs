//! A sorted run: rows in memory, in key order, with their keys. Memtables consist of runs.
//!
//! Invariants:
//! - rows are sorted by key, and rows with one key from the oldest to the newest;
//! - in a table that folds, keys are unique;
//! - the batch has the columns of its writes (not always all columns of a wide table), then `__seq`, then `__op` if any
//!   row is not a put.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt8Array, UInt32Array, UInt64Array};
use arrow::compute::{max, min, take, take_record_batch};
use arrow::datatypes::{DataType, Int64Type, Schema, UInt64Type};
use arrow::record_batch::RecordBatch;
use partita_proto::key::Keys;
use partita_proto::lists::gathered;
use partita_proto::range::KeyRange;
use partita_proto::schema::ColumnType;
use partita_proto::service::WriteKind;
use partita_proto::size::array_bytes;

use crate::error::{EngineError, Result};
use crate::rows::fold::{DELETE, PUT};
use crate::rows::layout::{Layout, OP_COLUMN, SEQ_COLUMN, TimeColumn};
use crate::rows::merge::{Gather, Sorted, field_columns, merged, view_buffers};

/// Factor of wasted memory: rows that keep more than this many times their own size alive are copied.
const WASTE_FACTOR_MAX: usize = 2;
/// Maximum buffers of a column, unless each has that many rows to itself: merging and sending rows visits all of them.
const BUFFERS_MAX: usize = 32;
const BUFFER_ROWS_MIN: usize = 1024;

/// Rows in key order. Immutable.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) sorted: Sorted,
    /// First and last value of the time index.
    pub(crate) time: Option<(i64, i64)>,
    /// Bytes of memory that the run keeps alive.
    pub(crate) bytes: u64,
}

impl Run {
    /// The run of one write, and the keys of its rows in order: of rows with one key, a table that folds keeps one.
    ///
    /// # Errors
    /// [`EngineError::InvalidInput`] when the rows do not fit the table.
    pub(crate) fn of_write(
        layout: &Layout,
        index: u64,
        kind: WriteKind,
        rows: &RecordBatch,
    ) -> Result<(Self, Keys)> {
        let batch = stored_columns(layout, kind, rows)?;
        let count = batch.num_rows();
        let (keys, order) = layout.codec.encode_sorted(&batch)?;
        let mut fields = batch.schema().fields().to_vec();
        let mut columns = batch.columns().to_vec();
        fields.extend(layout.field(SEQ_COLUMN));
        columns.push(Arc::new(UInt64Array::from_value(index, count)));
        if kind == WriteKind::Delete {
            fields.extend(layout.field(OP_COLUMN));
            columns.push(Arc::new(UInt8Array::from_value(DELETE, count)));
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?;
        let batch = match order {
            Some(order) => take_record_batch(&batch, &order)?,
            None => batch,
        };
        let sorted = folded(layout, Sorted { batch, keys: keys.clone() })?;
        let (first, last) = (sorted.keys.first(), sorted.keys.last());
        first.into_iter().chain(last).try_for_each(|key| check_range(layout, key))?;
        Ok((Self::new(layout, sorted)?, keys))
    }

    /// Checks that [`Run::of_write`] would accept these rows; does not sort them.
    pub(crate) fn check_write(layout: &Layout, kind: WriteKind, rows: &RecordBatch) -> Result<()> {
        let batch = stored_columns(layout, kind, rows)?;
        if layout.range == KeyRange::all() && !layout.codec.placed() {
            return Ok(());
        }
        let keys = layout.codec.encode(&batch)?;
        keys.iter().try_for_each(|key| check_range(layout, key))
    }

    /// Merges runs, oldest first, into one.
    pub(crate) fn merged(layout: &Layout, runs: &[Arc<Self>]) -> Result<Self> {
        let mut names = BTreeMap::new();
        for run in runs {
            for field in run.sorted.batch.schema_ref().fields() {
                names.insert(order_of(layout, field.name()), Arc::clone(field));
            }
        }
        let schema = Arc::new(Schema::new(names.into_values().collect::<Vec<_>>()));
        let source = |run: &Arc<Self>| {
            let Sorted { batch, keys } = &run.sorted;
            Ok(Sorted { batch: layout.adapt(batch, &schema)?, keys: keys.clone() })
        };
        let sources = runs.iter().map(source).collect::<Result<Vec<_>>>()?;
        Self::new(layout, merged(layout, &schema, sources)?)
    }

    /// The same rows under a layout with another key codec (the order of rows is the same in both).
    pub(crate) fn rekeyed(&self, layout: &Layout) -> Result<Self> {
        let keys = layout.codec.encode_ordered(&self.sorted.batch)?;
        debug_assert!(keys.is_sorted(), "adding a key column keeps the order of rows");
        Self::new(layout, Sorted { batch: self.sorted.batch.clone(), keys })
    }

    fn new(layout: &Layout, mut sorted: Sorted) -> Result<Self> {
        let value_bytes = own_bytes(&sorted.batch);
        let mut held_bytes = kept_bytes(sorted.batch.columns());
        if held_bytes > wasteful(value_bytes) || is_scattered(&sorted.batch) {
            sorted.batch = copied(&sorted.batch)?;
            held_bytes = kept_bytes(sorted.batch.columns());
        }
        let time = match &layout.time {
            Some(time) => span(&ticks(&sorted.batch, time)?),
            None => None,
        };
        let bytes = (held_bytes + sorted.keys.size_bytes()) as u64;
        Ok(Self { sorted, time, bytes })
    }

    pub(crate) fn rows(&self) -> usize {
        self.sorted.batch.num_rows()
    }

    /// First and last key; a run is never empty.
    pub(crate) fn span(&self) -> (&[u8], &[u8]) {
        let keys = &self.sorted.keys;
        (keys.first().unwrap_or_default(), keys.last().unwrap_or_default())
    }

    /// True if the run has the operation column.
    pub(crate) fn has_op(&self) -> bool {
        self.sorted.batch.schema_ref().index_of(OP_COLUMN).is_ok()
    }

    /// The rows in any of `ranges`, which are sorted and disjoint; without copying.
    pub(crate) fn within(&self, ranges: &[KeyRange]) -> Vec<Sorted> {
        let keys = &self.sorted.keys;
        let row_of = |bound: &[u8]| keys.lower_bound(bound);
        let mut slices: Vec<(usize, usize)> = Vec::new();
        for range in ranges {
            let start = row_of(&range.start);
            let end = range.end.as_ref().map_or(keys.len(), |end| row_of(end));
            match slices.last_mut() {
                Some(last) if last.1 == start => last.1 = last.1.max(end),
                _ if start < end => slices.push((start, end)),
                _ => {}
            }
        }
        slices.into_iter().map(|(start, end)| self.sorted.slice(start, end)).collect()
    }
}

fn check_range(layout: &Layout, key: &[u8]) -> Result<()> {
    if layout.range.contains(key) {
        return Ok(());
    }
    Err(EngineError::InvalidInput(format!(
        "a row with key {:?} is outside of partition {}",
        layout.codec.decode(key)?,
        layout.config.partition
    )))
}

/// The ticks of a batch's time index.
pub(crate) fn ticks(batch: &RecordBatch, time: &TimeColumn) -> Result<arrow::array::Int64Array> {
    let column = batch.column_by_name(&time.name).ok_or_else(|| {
        EngineError::InvalidInput(format!("rows have no time index \"{}\"", time.name))
    })?;
    let plain = arrow::compute::cast(column, &DataType::Int64)?;
    Ok(plain.as_primitive::<Int64Type>().clone())
}

/// Smallest and largest tick.
pub(crate) fn span(ticks: &arrow::array::Int64Array) -> Option<(i64, i64)> {
    Some((min(ticks)?, max(ticks)?))
}

/// Lowest and highest log index of a batch.
pub(crate) fn seq_span(batch: &RecordBatch) -> Option<(u64, u64)> {
    let seq = batch.column_by_name(SEQ_COLUMN)?.as_primitive::<UInt64Type>();
    Some((min(seq)?, max(seq)?))
}

/// The columns of a write that the table stores, in the table's order and types. Columns that the table does not have
/// were dropped since the write was made, and are left out.
fn stored_columns(layout: &Layout, kind: WriteKind, rows: &RecordBatch) -> Result<RecordBatch> {
    let schema = rows.schema();
    // A delete stores only the key.
    let is_stored = |name: &str| {
        schema.index_of(name).is_ok() && (kind == WriteKind::Put || layout.is_key(name))
    };
    if kind == WriteKind::Delete && !layout.policy.folds() {
        return Err(EngineError::Unsupported("DELETE from an append-mode table".to_owned()));
    }
    let fields: Vec<_> =
        layout.columns.fields().iter().filter(|field| is_stored(field.name())).cloned().collect();
    // Types must be the table's, or those that it had when the write was made; and every row needs a value of the time
    // index.
    for field in &fields {
        let data_type = schema.field_with_name(field.name())?.data_type();
        let types =
            ColumnType::from_arrow(data_type).zip(ColumnType::from_arrow(field.data_type()));
        if data_type != field.data_type()
            && types.is_none_or(|(row_type, column_type)| !row_type.widens_to(column_type))
        {
            return Err(EngineError::InvalidInput(format!(
                "column \"{}\" has type {data_type}, expected {}",
                field.name(),
                field.data_type()
            )));
        }
    }
    if let Some(time) = &layout.time
        && rows.column_by_name(&time.name).is_none_or(|column| column.null_count() > 0)
    {
        return Err(EngineError::InvalidInput(format!(
            "a row has no value for its time index \"{}\"",
            time.name
        )));
    }
    layout.adapt(rows, &Arc::new(Schema::new(fields)))
}

/// Folds equal keys if the table folds; rows are in the order of their keys.
fn folded(layout: &Layout, sorted: Sorted) -> Result<Sorted> {
    let keys = &sorted.keys;
    let repeats = (1..keys.len()).any(|row| keys.get(row - 1) == keys.get(row));
    if !repeats || !layout.policy.folds() {
        return Ok(sorted);
    }
    let schema = sorted.batch.schema();
    let fields = field_columns(layout, &schema);
    let op_column = schema.index_of(OP_COLUMN).ok();
    let mut gather = Gather::default();
    let buffer = gather.add(&sorted.batch);
    let mut newest = Vec::new();
    let mut start = 0;
    while start < keys.len() {
        let same = (start + 1..keys.len()).take_while(|row| keys.get(*row) == keys.get(start));
        let end = start + 1 + same.count();
        if end - start == 1 {
            gather.take(buffer, start, 1);
        } else {
            let versions: Vec<_> = (start..end).map(|row| (buffer, row)).collect();
            gather.take_folded(layout.policy, &versions, &fields, op_column);
        }
        newest.push(u32::try_from(end - 1).map_err(|_| too_many_rows())?);
        start = end;
    }
    let folded_keys = keys.take(&UInt32Array::from(newest))?;
    // Folding last_non_null over a delete gives a replace, which needs the operation column; the delete has brought it.
    Ok(Sorted { batch: gather.finish(&schema)?, keys: folded_keys })
}

/// Sort position of a column in a batch: the table's order, then the internal columns.
fn order_of<'a>(layout: &Layout, name: &'a str) -> (usize, &'a str) {
    let place = match name {
        SEQ_COLUMN => usize::MAX - 1,
        OP_COLUMN => usize::MAX,
        // A column that was dropped stays with its rows until they are flushed.
        name => layout.columns.index_of(name).unwrap_or(usize::MAX - 2),
    };
    (place, name)
}

/// Bytes that the rows of a batch need.
pub(crate) fn own_bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(column_bytes).sum()
}

fn column_bytes(column: &ArrayRef) -> usize {
    if matches!(column.data_type(), DataType::List(_)) {
        return array_bytes(column);
    }
    let text_bytes: usize = match column.data_type() {
        DataType::Utf8View => long_bytes(column.as_string_view().views()),
        DataType::BinaryView => long_bytes(column.as_binary_view().views()),
        _ => 0,
    };
    column.to_data().get_slice_memory_size().unwrap_or_default() + text_bytes
}

/// Bytes that views reference outside themselves: every value longer than twelve bytes.
fn long_bytes(views: &[u128]) -> usize {
    // The low four bytes of a view are its length.
    let lengths = views.iter().map(|view| (*view & u128::from(u32::MAX)) as usize);
    lengths.filter(|length| *length > 12).sum()
}

/// Bytes of all allocations that columns keep alive, each counted once.
fn kept_bytes(columns: &[ArrayRef]) -> usize {
    let mut allocations: BTreeMap<usize, usize> = BTreeMap::new();
    let mut parts: Vec<_> = columns.iter().map(Array::to_data).collect();
    while let Some(data) = parts.pop() {
        // The elements of arrays.
        parts.extend(data.child_data().iter().cloned());
        let nulls = data.nulls().map(|nulls| nulls.inner().inner());
        for buffer in data.buffers().iter().chain(nulls) {
            let place = buffer.data_ptr().as_ptr() as usize;
            // Memory that arrow did not allocate has no known capacity: only its visible part counts.
            let bytes = buffer.capacity().max(buffer.ptr_offset() + buffer.len());
            let allocation = allocations.entry(place).or_default();
            *allocation = bytes.max(*allocation);
        }
    }
    allocations.into_values().sum()
}

/// True if the values of a column lie in too many buffers.
fn is_scattered(batch: &RecordBatch) -> bool {
    batch.columns().iter().any(column_is_scattered)
}

fn column_is_scattered(column: &ArrayRef) -> bool {
    let buffers = view_buffers(column);
    buffers > BUFFERS_MAX && buffers.saturating_mul(BUFFER_ROWS_MIN) > column.len()
}

/// Copies columns that keep too much unused memory alive, or are scattered, into memory of their own. The others stay
/// in place; mostly they were made for this batch, and only longer texts still lie in the memory of their source.
fn copied(batch: &RecordBatch) -> Result<RecordBatch> {
    let rows = u32::try_from(batch.num_rows()).map_err(|_| too_many_rows())?;
    let row_numbers = UInt32Array::from_iter_values(0..rows);
    let columns = batch.columns().iter().map(|column| {
        let wastes = kept_bytes(std::slice::from_ref(column)) > wasteful(column_bytes(column));
        if !wastes && !column_is_scattered(column) {
            return Ok(Arc::clone(column));
        }
        let copy = take(column, &row_numbers, None)?;
        Ok(match copy.data_type() {
            DataType::Utf8View => Arc::new(copy.as_string_view().gc()) as ArrayRef,
            DataType::BinaryView => Arc::new(copy.as_binary_view().gc()),
            DataType::List(_) => gathered(copy.as_list::<i32>())?,
            _ => copy,
        })
    });
    Ok(RecordBatch::try_new(batch.schema(), columns.collect::<Result<_>>()?)?)
}

/// Number of bytes above which memory for `value_bytes` bytes of values is wasteful.
fn wasteful(value_bytes: usize) -> usize {
    value_bytes.saturating_mul(WASTE_FACTOR_MAX)
}

fn too_many_rows() -> EngineError {
    EngineError::InvalidInput("a batch has more than 2^32 rows".to_owned())
}

/// The operation of every row; `None` when all are puts.
pub(crate) fn ops(batch: &RecordBatch) -> Option<&UInt8Array> {
    batch.column_by_name(OP_COLUMN).map(|column| column.as_primitive())
}

/// Number of deletes in a batch.
pub(crate) fn tombstones(batch: &RecordBatch) -> usize {
    ops(batch).map_or(0, |ops| ops.values().iter().filter(|op| **op == DELETE).count())
}

/// True if a batch needs its operation column.
pub(crate) fn needs_op(batch: &RecordBatch) -> bool {
    ops(batch).is_some_and(|ops| ops.values().iter().any(|op| *op != PUT))
}
