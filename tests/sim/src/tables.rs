//! The tables of a simulation, and their rows as batches.
//!
//! `keyed (id BIGINT, v BIGINT, pad STRING, PRIMARY KEY (id))` holds one value per key; `events` has the same
//! columns in append mode. The padding fills the log faster. `counters` is like `keyed`: every [`CLAIMS`]th key is a
//! counter, and those between two counters are claimed by clients, each by one.

use std::sync::Arc;

use arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use partita_proto::error::Error;
use partita_proto::id::{BOOTSTRAP_ROLE, ColumnId, DatabaseId, SchemaVersion};
use partita_proto::placement::Placement;
use partita_proto::range::Bound;
use partita_proto::schema::{Column, ColumnType, Semantic, TableOptions, TableSchema};
use partita_proto::sequence::{NewSequence, SequenceChange, SequenceOptions, SequenceType};
use partita_proto::service::{Ddl, NewTable};
use partita_proto::value::Value;

use crate::wide_rows::{self, WIDE};

pub(crate) const DATABASE: &str = "public";
pub(crate) const KEYED: &str = "keyed";
pub(crate) const EVENTS: &str = "events";
pub(crate) const COUNTERS: &str = "counters";
pub(crate) const SEQUENCE: &str = "numbers";
/// Number of keys; they are 0 to this, exclusive.
pub(crate) const KEYS: i64 = 8;
/// Distance of the keys of two counters.
pub(crate) const CLAIMS: i64 = 1000;

fn column(id: u32, name: &str, column_type: ColumnType, semantic: Semantic) -> Column {
    Column {
        id: ColumnId(id),
        name: name.to_owned(),
        storage_name: name.to_owned(),
        column_type,
        nullable: true,
        semantic,
        default: None,
        generated: None,
        missing: None,
        length: None,
        json: None,
        indexes: Vec::new(),
        comment: None,
    }
}

/// The options of a table with this replication factor.
pub(crate) fn options(table: &str, replicas: u32) -> TableOptions {
    let mut options = TableOptions {
        append_mode: table == EVENTS,
        replication_factor: Some(replicas),
        ..TableOptions::default()
    };
    if table == WIDE {
        options.partitioning.keep_together = 1;
        options.wide = Some(wide_rows::families());
    }
    options
}

/// Creates a table with partition bounds at these keys.
pub(crate) fn create(table: &str, replicas: u32, cuts: &[i64]) -> Ddl {
    let schema = TableSchema {
        version: SchemaVersion(1),
        columns: vec![
            column(1, "id", ColumnType::Int64, Semantic::Tag),
            column(2, "v", ColumnType::Int64, Semantic::Field),
            column(3, "pad", ColumnType::String, Semantic::Field),
        ],
        key: vec![ColumnId(1)],
        options: options(table, replicas),
        next_column: ColumnId(4),
        schema_on_write: false,
        checks: Vec::new(),
        view: None,
    };
    create_by(table, schema, cuts.iter().map(|key| Value::Int(*key)).collect())
}

/// Creates a table of this schema with partition bounds at these values of its first key column.
pub(crate) fn create_by(table: &str, schema: TableSchema, cuts: Vec<Value>) -> Ddl {
    let cut = |key: Value| Bound { placement: None, key: vec![key] };
    let table = NewTable {
        database: DATABASE.to_owned(),
        name: table.to_owned(),
        schema,
        placement: Placement::Range,
        cuts: cuts.into_iter().map(cut).collect(),
        owner: BOOTSTRAP_ROLE,
        copy_of: None,
        rekeys: false,
        sequences: Vec::new(),
    };
    Ddl::CreateTable { table: Box::new(table), if_not_exists: true }
}

/// Creates the sequence.
pub(crate) fn create_sequence(database: DatabaseId) -> Ddl {
    let sequence = NewSequence {
        database,
        name: SEQUENCE.to_owned(),
        owner: BOOTSTRAP_ROLE,
        options: SequenceOptions::new(SequenceType::Big),
        column: None,
    };
    Ddl::Sequence(Box::new(SequenceChange::Create { sequence, if_not_exists: true }))
}

/// Rows for a put.
pub(crate) fn rows(rows: &[(i64, i64)], padding: usize) -> Result<RecordBatch, Error> {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("v", DataType::Int64, true),
        Field::new("pad", DataType::Utf8View, true),
    ]);
    let pad = ".".repeat(padding);
    let ids = Int64Array::from_iter_values(rows.iter().map(|row| row.0));
    let values = Int64Array::from_iter_values(rows.iter().map(|row| row.1));
    let pads = StringViewArray::from_iter_values(rows.iter().map(|_| pad.as_str()));
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(ids), Arc::new(values), Arc::new(pads)])
        .map_err(|error| Error::Internal(error.to_string()))
}

/// Keys for a delete.
pub(crate) fn keys(keys: &[i64]) -> Result<RecordBatch, Error> {
    let schema = Schema::new(vec![Field::new("id", DataType::Int64, true)]);
    let ids = Int64Array::from_iter_values(keys.iter().copied());
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(ids)])
        .map_err(|error| Error::Internal(error.to_string()))
}

/// Keys and values of batches, sorted; a missing value is `i64::MIN`.
pub(crate) fn pairs(batches: &[RecordBatch]) -> Vec<(i64, i64)> {
    let mut pairs = Vec::new();
    for batch in batches {
        let column =
            |name| batch.column_by_name(name).map(|column| column.as_primitive::<Int64Type>());
        let (Some(ids), Some(values)) = (column("id"), column("v")) else { continue };
        for row in 0..batch.num_rows() {
            let value = if values.is_null(row) { i64::MIN } else { values.value(row) };
            pairs.push((ids.value(row), value));
        }
    }
    pairs.sort_unstable();
    pairs
}
