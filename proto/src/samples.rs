//! Random keys, domains and tables of them for property tests. Strings have shared prefixes and lengths around the
//! block sizes of keys, so that every path of the encoder is taken.

use std::ops::Bound as Limit;
use std::sync::Arc;

use arrow::array::{ArrayRef, UInt16Array};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::arbitrary::{self, column_type};
use crate::array::array_of;
use crate::domain::Domain;
use crate::id::{ColumnId, SchemaVersion};
use crate::key::PLACEMENT_COLUMN;
use crate::placement::Placement;
use crate::range::Bound;
use crate::rule::Comparison;
use crate::schema::{Column, ColumnType, Semantic, TableOptions, TableSchema};
use crate::value::Value;

/// A value of the type, one in eight NULL.
pub(crate) fn value(column_type: ColumnType) -> BoxedStrategy<Value> {
    prop_oneof![1 => Just(Value::Null), 7 => not_null(column_type)].boxed()
}

fn not_null(column_type: ColumnType) -> BoxedStrategy<Value> {
    match column_type {
        ColumnType::String => {
            let letter = select(vec!['\0', 'a', 'b', '\u{ff}', '\u{10ffff}']);
            text(letter.boxed()).prop_map(|v| Value::String(v.into_iter().collect())).boxed()
        }
        ColumnType::Binary => {
            let byte = select(vec![0, 1, b'a', 254, 255_u8]);
            text(byte.boxed()).prop_map(Value::Binary).boxed()
        }
        _ => arbitrary::value(column_type),
    }
}

/// Mostly short texts; some with lengths around the ends of the encoder's blocks, with a common beginning.
fn text<T: Clone + std::fmt::Debug + 'static>(
    letter: BoxedStrategy<T>,
) -> impl Strategy<Value = Vec<T>> {
    let lengths = vec![7, 8, 9, 16, 31, 32, 33, 63, 64, 65, 100_usize];
    let long = (select(lengths), vec(letter.clone(), 2)).prop_map(|(length, letters)| {
        let mut text = vec![letters[0].clone(); length - 1];
        text.push(letters[1].clone());
        text
    });
    prop_oneof![3 => vec(letter, 0..4), 1 => long]
}

/// A domain around values of the type.
pub(crate) fn domain(column_type: ColumnType) -> BoxedStrategy<Domain> {
    let comparison = select(vec![
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Less,
        Comparison::LessOrEqual,
        Comparison::Greater,
        Comparison::GreaterOrEqual,
    ]);
    let compared = (comparison, not_null(column_type)).prop_map(|(c, v)| Domain::compare(c, v));
    let points = vec(value(column_type), 1..5).prop_map(Domain::points);
    let intervals =
        (limit(column_type), limit(column_type)).prop_map(|(a, b)| Domain::interval(a, b));
    let simple =
        prop_oneof![2 => points, 2 => compared, 2 => intervals, 1 => Just(Domain::null_only())];
    prop_oneof![
        4 => simple.clone(),
        1 => (simple.clone(), simple.clone()).prop_map(|(a, b)| a.union(&b)),
        1 => (simple.clone(), simple).prop_map(|(a, b)| a.intersect(&b)),
    ]
    .boxed()
}

fn limit(column_type: ColumnType) -> impl Strategy<Value = Limit<Value>> {
    (0..3, not_null(column_type)).prop_map(|(kind, value)| match kind {
        0 => Limit::Included(value),
        1 => Limit::Excluded(value),
        _ => Limit::Unbounded,
    })
}

/// A table whose key is columns `k0`, `k1`, ... of these types, and which has one field `f`.
pub(crate) fn schema(types: &[ColumnType]) -> TableSchema {
    let column = |id: u32, name: String, column_type, semantic| Column {
        id: ColumnId(id),
        storage_name: name.clone(),
        name,
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
    };
    // The columns of the key, then the field.
    let mut columns: Vec<Column> = (0..)
        .zip(types)
        .map(|(id, column_type)| column(id, format!("k{id}"), *column_type, Semantic::Tag))
        .collect();
    let key: Vec<ColumnId> = columns.iter().map(|column| column.id).collect();
    let next = u32::try_from(types.len()).unwrap();
    columns.push(column(next, "f".to_owned(), ColumnType::Float64, Semantic::Field));
    TableSchema {
        version: SchemaVersion(1),
        columns,
        key,
        options: TableOptions::default(),
        next_column: ColumnId(next + 1),
        schema_on_write: false,
        checks: Vec::new(),
        view: None,
    }
}

/// A placement that needs no rules to be placed, for tests that place rows themselves.
pub(crate) fn placement(placed: bool) -> Placement {
    if placed { Placement::Hash { columns: vec![ColumnId(0)] } } else { Placement::Range }
}

/// The rows of full-length bounds, as a batch of the key's columns, with the placement or without.
pub(crate) fn batch(schema: &TableSchema, placed: bool, rows: &[Bound]) -> RecordBatch {
    let mut fields = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    if placed {
        fields.push(Field::new(PLACEMENT_COLUMN, DataType::UInt16, false));
        let placements = rows.iter().map(|row| row.placement.unwrap());
        columns.push(Arc::new(UInt16Array::from_iter_values(placements)));
    }
    for (position, column) in schema.key_columns().enumerate() {
        let values: Vec<Value> = rows.iter().map(|row| row.key[position].clone()).collect();
        fields.push(column.storage_field());
        columns.push(array_of(column.column_type, &values).unwrap());
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options).unwrap()
}

/// Types of a key and rows of it: each a full-length bound.
pub(crate) fn keyed_rows(
    placed: impl Strategy<Value = bool>,
    rows: std::ops::Range<usize>,
) -> impl Strategy<Value = (Vec<ColumnType>, bool, Vec<Bound>)> {
    (vec(column_type(), 1..4), placed, rows).prop_flat_map(|(types, placed, count)| {
        let row = bound(&types, placed);
        (Just(types), Just(placed), vec(row, count))
    })
}

/// A full-length bound.
pub(crate) fn bound(types: &[ColumnType], placed: bool) -> impl Strategy<Value = Bound> + use<> {
    let key: Vec<_> = types.iter().map(|column_type| value(*column_type)).collect();
    let placement = prop_oneof![0..4_u16, any::<u16>()];
    (placement, key)
        .prop_map(move |(placement, key)| Bound { placement: placed.then_some(placement), key })
}
