//! The wide table of a simulation, and its rows as batches of cells.
//!
//! `wide` has the rows `row0`, `row1`, and so on. Every change of a row writes two columns alike, [`HALVES`], with counters in
//! one of two families: [`SUM`], of which garbage collection keeps two versions, and [`TURN`], of which each change
//! deletes the former version.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, TimestampMicrosecondType};
use partita_proto::array::array_of;
use partita_proto::error::Error;
use partita_proto::id::{ColumnId, SchemaVersion};
use partita_proto::schema::{ColumnType, TableSchema};
use partita_proto::service::{Ddl, REMOVED_COLUMN};
use partita_proto::value::Value;
use partita_proto::wide::{
    CELL_TS_COLUMN, CellKey, FAMILY_COLUMN, Family, GcRule, QUALIFIER_COLUMN, ROW_KEY_COLUMN,
    RowChange, VALUE_COLUMN, Wide, columns,
};

use crate::tables;

pub(crate) const WIDE: &str = "wide";
pub(crate) const SUM: &str = "sum";
pub(crate) const TURN: &str = "turn";
/// Columns that every change of a family writes alike.
pub(crate) const HALVES: [&str; 2] = ["left", "right"];

/// Cells of one row, with their values.
pub(crate) type Cells = BTreeMap<CellKey, Vec<u8>>;

/// The key of a row.
pub(crate) fn row_key(row: i64) -> String {
    format!("row{row}")
}

/// The row with a key.
pub(crate) fn row_of(key: &str) -> Option<i64> {
    key.strip_prefix("row")?.parse().ok()
}

/// The families of the table.
pub(crate) fn families() -> Wide {
    let family = |name: &str, gc| Family { name: name.to_owned(), gc, aggregate: None };
    let families = vec![family(SUM, Some(GcRule::MaxVersions(2))), family(TURN, None)];
    Wide { families, ..Wide::default() }
}

/// Creates the table, in two partitions.
pub(crate) fn create(replicas: u32) -> Ddl {
    let schema = TableSchema {
        version: SchemaVersion(1),
        columns: columns(ColumnType::String),
        key: (0..4).map(ColumnId).collect(),
        options: tables::options(WIDE, replicas),
        next_column: ColumnId(5),
        schema_on_write: false,
        checks: Vec::new(),
        view: None,
    };
    tables::create_by(WIDE, schema, vec![Value::String(row_key(4))])
}

/// Rows for a put of a change of one row; those of removed cells are marked.
pub(crate) fn rows(row: i64, change: &RowChange) -> Result<RecordBatch, Error> {
    let RowChange { written, removed } = change;
    let mut values: [Vec<Value>; 5] = std::array::from_fn(|_| Vec::new());
    let cells = written.iter().map(|(key, value)| (key, Value::Binary(value.clone())));
    for (key, value) in cells.chain(removed.iter().map(|key| (key, Value::Null))) {
        let cell = [
            Value::String(row_key(row)),
            Value::String(key.family.clone()),
            Value::Binary(key.qualifier.clone()),
            Value::Timestamp(key.timestamp),
            value,
        ];
        values.iter_mut().zip(cell).for_each(|(values, value)| values.push(value));
    }
    let (mut fields, mut arrays) = (Vec::new(), Vec::<ArrayRef>::new());
    for (column, values) in columns(ColumnType::String).iter().zip(&values) {
        fields.push(column.storage_field());
        arrays.push(array_of(column.column_type, values)?);
    }
    if !removed.is_empty() {
        let count = written.len() + removed.len();
        let is_removed: Vec<bool> = (0..count).map(|cell| cell >= written.len()).collect();
        fields.push(Field::new(REMOVED_COLUMN, DataType::Boolean, false));
        arrays.push(Arc::new(BooleanArray::from(is_removed)));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
        .map_err(|error| Error::Internal(error.to_string()))
}

/// The cells of batches, by row key. Batches of other tables have none.
pub(crate) fn cells(batches: &[RecordBatch]) -> BTreeMap<String, Cells> {
    let mut rows: BTreeMap<String, Cells> = BTreeMap::new();
    for batch in batches {
        let texts =
            |name| batch.column_by_name(name).and_then(|column| column.as_string_view_opt());
        let binaries =
            |name| batch.column_by_name(name).and_then(|column| column.as_binary_view_opt());
        let times = batch
            .column_by_name(CELL_TS_COLUMN)
            .and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
        let (Some(keys), Some(families), Some(times)) =
            (texts(ROW_KEY_COLUMN), texts(FAMILY_COLUMN), times)
        else {
            continue;
        };
        let (Some(qualifiers), Some(values)) = (binaries(QUALIFIER_COLUMN), binaries(VALUE_COLUMN))
        else {
            continue;
        };
        for row in 0..batch.num_rows() {
            let key = CellKey {
                family: families.value(row).to_owned(),
                qualifier: qualifiers.value(row).to_vec(),
                timestamp: times.value(row),
            };
            let cells = rows.entry(keys.value(row).to_owned()).or_default();
            cells.insert(key, values.value(row).to_vec());
        }
    }
    rows
}

/// The versions of a counter in a column, oldest first. A value that is no counter counts as -1.
pub(crate) fn versions(cells: &Cells, family: &str, half: &str) -> Vec<(i64, i64)> {
    let is_wanted = |key: &CellKey| key.family == family && key.qualifier == half.as_bytes();
    let number = |value: &[u8]| <[u8; 8]>::try_from(value).map_or(-1, i64::from_be_bytes);
    let wanted = cells.iter().filter(|(key, _)| is_wanted(key));
    wanted.map(|(key, value)| (key.timestamp, number(value))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use partita_proto::wide::{CellMutation, RowMutation};

    use super::*;

    fn key(half: &str, timestamp: i64) -> CellKey {
        CellKey { family: SUM.to_owned(), qualifier: half.as_bytes().to_vec(), timestamp }
    }

    #[test]
    fn the_cells_of_a_change_are_those_of_its_rows() {
        let written = Cells::from([
            (key("left", 1), 7_i64.to_be_bytes().to_vec()),
            (key("left", 2), 8_i64.to_be_bytes().to_vec()),
        ]);
        let change = RowChange { written: written.clone(), ..RowChange::default() };
        let rows = rows(3, &change).unwrap();
        let read = cells(&[rows, tables::rows(&[(1, 2)], 0).unwrap()]);
        assert_eq!(read, BTreeMap::from([(row_key(3), written)]));
        assert_eq!(versions(&read["row3"], SUM, "left"), [(1, 7), (2, 8)]);
        assert!(versions(&read["row3"], SUM, "right").is_empty());
        assert_eq!((row_of("row3"), row_of("3")), (Some(3), None));
    }

    #[test]
    fn the_rows_of_a_change_mark_removed_cells() {
        let (family, qualifier) = (SUM.to_owned(), b"left".to_vec());
        let delete = CellMutation::DeleteFromColumn { family, qualifier, start: None, end: None };
        let request = RowMutation { row_key: b"row1".to_vec(), mutations: vec![delete] };
        let cells = Cells::from([(key("left", 1), Vec::new()), (key("right", 1), Vec::new())]);
        let change = request.change(&families(), (&cells, &BTreeSet::new()), 2).unwrap();
        let rows = rows(1, &change).unwrap();
        let removed = rows.column_by_name(REMOVED_COLUMN).unwrap().as_boolean();
        assert_eq!((rows.num_rows(), removed.value(0)), (1, true));
    }
}
