//! Measures of the rows of a table: how many values each column has and of which kind, without reading a row.
//!
//! ```text
//!   rows ── TableMeasures (one per file and memtable) ── merge ── per partition, per table ── sys.columns, advice
//! ```
//!
//! Measures have a bounded size, whatever they have seen, and two of them merge into the measures of all rows of both.
//! They count every stored row, old versions of a key included. Deletes are counted apart: a delete has no values, and
//! its columns are not NULLs.
//!
//! Invariants:
//! - measures do not depend on the order in which they are merged, as long as there are at most [`SHAPES_MAX`] shapes, and
//!   rows of a wide table that are among the largest ones;
//! - only neighbouring rows of one batch are compared with each other (intervals, split rows, ascending values), so that
//!   nothing but batches that are in the order of the key gives these figures.

mod column;
mod fields;
mod intervals;
mod large;
mod lengths;
mod sample;
mod sizes;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::{DataType, Int64Type, UInt8Type, UInt64Type};
use arrow::record_batch::RecordBatch;

pub use self::column::ColumnMeasures;
pub(crate) use self::column::DISTINCT_PRECISION;
use self::fields::FieldSets;
pub(crate) use self::intervals::BUCKETS as INTERVAL_BUCKETS;
pub use self::intervals::Intervals;
pub use self::large::{LARGE_ROWS_MAX, LargeRows, RowSize};
pub(crate) use self::lengths::BUCKETS as LENGTH_BUCKETS;
pub use self::sample::{SAMPLE_MAX, Sampled};
pub(crate) use self::sample::{hash_of_upper, upper_half};
use self::sizes::RowSizes;
use crate::array::arrow_error;
use crate::error::Error;
use crate::id::ColumnId;
use crate::index::IndexKind;
use crate::schema::{Column, ColumnType, Semantic, TableSchema};

/// Maximum number of shapes that are kept.
pub const SHAPES_MAX: usize = 16;
/// Maximum number of measured columns: those of the key, then the others by id.
pub const COLUMNS_MEASURED_MAX: usize = 256;
/// Column with the operation of a stored row; a batch without it has no deletes.
pub const OPERATION_COLUMN: &str = "__op";
/// Value of [`OPERATION_COLUMN`] in a delete.
pub const DELETED: u8 = 1;
/// Column with the log index that wrote a stored row.
pub const SEQUENCE_COLUMN: &str = "__seq";

/// Rows for each one whose values are compared with those of an earlier row.
const ROWS_PER_COMPARED: usize = 64;
/// Minimum and maximum number of compared rows of a batch.
const COMPARED: (usize, usize) = (8, 32);

/// Measures of some rows of one table; two of them merge. Bounded in size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableMeasures {
    /// Stored rows without deletes; old versions count.
    pub rows: u64,
    /// Stored deletes.
    pub deletes: u64,
    /// Measured columns; one that was added after the rows were written is missing.
    pub columns: BTreeMap<ColumnId, ColumnMeasures>,
    /// Rows by the set of fields that have a value: bit i stands for the i-th field by id, of the first 64. Only the
    /// [`SHAPES_MAX`] most frequent sets.
    pub shapes: BTreeMap<u64, u64>,
    /// Intervals between neighbouring rows of a tag set, in ticks of the time index.
    pub intervals: Intervals,
    /// Rows at most one second after the previous row of their tag set, with values in other fields only.
    pub split_rows: u64,
    /// Bytes of the values of the largest row, uncompressed; 0 if it is not known, as of files of earlier versions.
    pub row_bytes_max: u64,
    /// Files without measures, whose rows are missing in all figures.
    pub unmeasured: u64,
    /// The largest rows of a wide table, each of many stored cells.
    pub large_rows: LargeRows,
}

impl TableMeasures {
    /// Adds rows in the order of the key. Columns are found by storage name; one that is absent is NULL.
    ///
    /// # Errors
    /// When a column cannot be converted to the table's type.
    pub fn add_rows(&mut self, schema: &TableSchema, rows: &RecordBatch) -> Result<(), Error> {
        let (rows, deletes) = without_deletes(rows)?;
        self.deletes += deletes;
        let count = rows.num_rows();
        if count == 0 {
            return Ok(());
        }
        self.rows += count as u64;
        let compared = compared_rows(&rows);
        // Rows at which a tag set begins.
        let mut starts = vec![false; count];
        let mut fields = Vec::new();
        let mut sizes = RowSizes::new(count);
        for column in measured_columns(schema) {
            let array = stored(&rows, column)?;
            let measures = self.columns.entry(column.id).or_default();
            let marked: &mut [bool] =
                if column.semantic == Semantic::Tag { &mut starts } else { &mut [] };
            match &array {
                Some(array) => {
                    measures.add(column.column_type, array.as_ref(), marked);
                    sizes.add(array.as_ref());
                    measures.compare(array.as_ref(), &compared)?;
                }
                None => measures.nulls += count as u64,
            }
            if column.semantic == Semantic::Field {
                fields.push(array);
            }
        }
        self.row_bytes_max = self.row_bytes_max.max(sizes.largest());
        if schema.options.wide.is_some()
            && let Some(row_key) = schema.key_columns().next()
            && let Some(row_keys) = stored(&rows, row_key)?
        {
            self.large_rows.add_cells(&row_keys, &sizes)?;
        }
        let sets = FieldSets::new(fields.iter().map(Option::as_ref), count);
        if !fields.is_empty() {
            self.add_shapes(sets.counts(count));
        }
        let Some((time, unit)) = time_of(schema) else { return Ok(()) };
        if let Some(times) = stored(&rows, time)? {
            let ticks = cast(&times, &DataType::Int64).map_err(|error| arrow_error(&error))?;
            self.add_neighbours(ticks.as_primitive::<Int64Type>().values(), &starts, &sets, unit);
        }
        Ok(())
    }

    /// Adds intervals between rows of one tag set; `second` is in ticks.
    fn add_neighbours(&mut self, ticks: &[i64], starts: &[bool], sets: &FieldSets, second: u64) {
        let pairs = ticks.windows(2).zip(starts.iter().skip(1));
        for (row, (pair, starts_here)) in pairs.enumerate() {
            // Times descend only where the time index is not the end of the key.
            let interval = pair[1].checked_sub(pair[0]).and_then(|ticks| u64::try_from(ticks).ok());
            let Some(interval) = interval.filter(|_| !*starts_here) else { continue };
            self.intervals.add(interval);
            self.split_rows += u64::from(interval <= second && sets.are_disjoint(row, row + 1));
        }
    }

    fn add_shapes(&mut self, counts: impl IntoIterator<Item = (u64, u64)>) {
        for (shape, rows) in counts {
            let count = self.shapes.entry(shape).or_default();
            *count = count.saturating_add(rows);
        }
        if self.shapes.len() > SHAPES_MAX {
            let mut counts: Vec<(u64, u64)> =
                std::mem::take(&mut self.shapes).into_iter().collect();
            counts.sort_unstable_by_key(|(shape, rows)| (Reverse(*rows), *shape));
            counts.truncate(SHAPES_MAX);
            self.shapes = counts.into_iter().collect();
        }
    }

    /// Adds all rows of other measures of the same table.
    pub fn merge(&mut self, other: &Self) {
        self.rows = self.rows.saturating_add(other.rows);
        self.deletes = self.deletes.saturating_add(other.deletes);
        for (column, measures) in &other.columns {
            self.columns.entry(*column).or_default().merge(measures);
        }
        self.add_shapes(other.shapes.iter().map(|(shape, rows)| (*shape, *rows)));
        self.intervals.merge(&other.intervals);
        self.split_rows = self.split_rows.saturating_add(other.split_rows);
        self.row_bytes_max = self.row_bytes_max.max(other.row_bytes_max);
        self.unmeasured = self.unmeasured.saturating_add(other.unmeasured);
        self.large_rows.merge(&other.large_rows);
    }

    /// Notes that a file has no measures, so that its rows are missing in these.
    pub fn add_unmeasured(&mut self) {
        self.unmeasured += 1;
    }

    /// Approximate bytes of the measures in messages.
    pub fn size_bytes(&self) -> usize {
        const FIGURES_BYTES: usize = 256;
        let columns: usize = self.columns.values().map(ColumnMeasures::size_bytes).sum();
        FIGURES_BYTES + columns + 16 * self.shapes.len() + self.large_rows.size_bytes()
    }
}

/// Report of a partition's leader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartitionMeasures {
    /// Measures of the rows in files and memtables.
    pub measures: TableMeasures,
    /// Progress of the table's indexes.
    pub indexes: Vec<IndexBuild>,
    /// Compressed bytes of each column in files (from footers).
    pub column_bytes: BTreeMap<ColumnId, u64>,
    /// Rows with a key that an older file has, dropped by merges since the start.
    pub folded: u64,
}

impl PartitionMeasures {
    /// Adds the report about another partition of the same table.
    pub fn merge(&mut self, other: &Self) {
        self.measures.merge(&other.measures);
        for build in &other.indexes {
            let is_same =
                |present: &IndexBuild| (present.column, present.kind) == (build.column, build.kind);
            match self.indexes.iter().position(is_same) {
                Some(position) => self.indexes[position].merge(build),
                None => self.indexes.push(build.clone()),
            }
        }
        for (column, bytes) in &other.column_bytes {
            let sum = self.column_bytes.entry(*column).or_default();
            *sum = sum.saturating_add(*bytes);
        }
        self.folded = self.folded.saturating_add(other.folded);
    }
}

/// Progress of an index: files that have it, of all files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexBuild {
    /// Indexed column.
    pub column: ColumnId,
    /// Kind of the index; a column has one of each kind at most.
    pub kind: IndexKind,
    /// Files with rows of the partition.
    pub files: u64,
    /// Files of these that have the index as it is declared.
    pub files_done: u64,
    /// Bytes of the index in files.
    pub bytes: u64,
}

impl IndexBuild {
    fn merge(&mut self, other: &Self) {
        self.files = self.files.saturating_add(other.files);
        self.files_done = self.files_done.saturating_add(other.files_done);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Columns that are measured: the key's, then the others by id, so that a new column displaces none.
fn measured_columns(schema: &TableSchema) -> impl Iterator<Item = &Column> {
    let mut fields: Vec<&Column> =
        schema.columns.iter().filter(|column| !schema.is_key(column.id)).collect();
    fields.sort_by_key(|column| column.id);
    schema.key_columns().chain(fields).take(COLUMNS_MEASURED_MAX)
}

/// The time index, with its ticks in a second.
fn time_of(schema: &TableSchema) -> Option<(&Column, u64)> {
    let column = schema.time_index()?;
    match column.column_type {
        ColumnType::Timestamp(unit, _) => Some((column, unit.per_second().unsigned_abs())),
        _ => None,
    }
}

/// The values of a column in the Arrow form of its type; `None` if the rows do not have the column.
fn stored(rows: &RecordBatch, column: &Column) -> Result<Option<ArrayRef>, Error> {
    let Some(array) = rows.column_by_name(&column.storage_name) else { return Ok(None) };
    let data_type = column.column_type.arrow();
    if *array.data_type() == data_type {
        return Ok(Some(Arc::clone(array)));
    }
    cast(array, &data_type).map(Some).map_err(|error| arrow_error(&error))
}

/// The rows that are no deletes, and the number of deletes.
fn without_deletes(rows: &RecordBatch) -> Result<(RecordBatch, u64), Error> {
    let operations = rows.column_by_name(OPERATION_COLUMN);
    let operations = operations.and_then(|array| array.as_primitive_opt::<UInt8Type>());
    let Some(operations) = operations else { return Ok((rows.clone(), 0)) };
    let alive: BooleanArray =
        operations.values().iter().map(|operation| Some(*operation != DELETED)).collect();
    let deletes = alive.false_count();
    if deletes == 0 {
        return Ok((rows.clone(), 0));
    }
    let rows = filter_record_batch(rows, &alive).map_err(|error| arrow_error(&error))?;
    Ok((rows, deletes as u64))
}

/// Pairs of rows of a sample, each with the row that follows it in the log, or in the batch if the rows are not of the
/// log. Rows of one log entry have no order.
fn compared_rows(rows: &RecordBatch) -> Vec<(usize, usize)> {
    let count = rows.num_rows();
    let sampled = (count / ROWS_PER_COMPARED).clamp(COMPARED.0, COMPARED.1).min(count);
    let positions = (0..sampled).map(|number| number * count / sampled);
    let sequence = rows.column_by_name(SEQUENCE_COLUMN);
    let sequence = sequence.and_then(|array| array.as_primitive_opt::<UInt64Type>());
    let index_of = |row: usize| match sequence {
        Some(sequence) => sequence.value(row),
        None => row as u64,
    };
    let mut places: Vec<(u64, usize)> = positions.map(|row| (index_of(row), row)).collect();
    places.sort_unstable();
    let pairs = places.windows(2).filter(|pair| pair[0].0 < pair[1].0);
    pairs.map(|pair| (pair[0].1, pair[1].1)).collect()
}

#[cfg(test)]
mod tests;
