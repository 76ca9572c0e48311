//! Measures of batches, and of what they merge into.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::arbitrary::{TYPES, batch, nullable, table};
use crate::schema::Unit;
use crate::value::Value;

type Row = Vec<Value>;

const MILLIS: ColumnType = ColumnType::Timestamp(Unit::Millisecond, false);

/// `a` (tag, 1), `b` (time index in milliseconds, 2), `c` (BIGINT, 3), `d` (STRING, 4); key (a, b).
fn series_schema() -> TableSchema {
    let mut schema = table(&[ColumnType::String, MILLIS, ColumnType::Int64, ColumnType::String]);
    schema.key.truncate(2);
    schema.columns[1].semantic = Semantic::TimeIndex;
    for column in &mut schema.columns[2..] {
        column.semantic = Semantic::Field;
    }
    schema
}

fn row(tag: &str, ticks: i64, number: Option<i64>, text: Option<&str>) -> Row {
    vec![
        Value::String(tag.to_owned()),
        Value::Timestamp(ticks),
        number.map_or(Value::Null, Value::Int),
        text.map_or(Value::Null, |text| Value::String(text.to_owned())),
    ]
}

fn measured(schema: &TableSchema, rows: &[Row]) -> TableMeasures {
    let mut measures = TableMeasures::default();
    measures.add_rows(schema, &batch(schema, rows)).unwrap();
    measures
}

/// The measures without the figures that compare neighbouring rows.
fn of_rows(mut measures: TableMeasures) -> TableMeasures {
    measures.intervals = Intervals::default();
    measures.split_rows = 0;
    for column in measures.columns.values_mut() {
        (column.ascending, column.compared) = (0, 0);
    }
    measures
}

/// The batch with one more column.
fn with_column(rows: &RecordBatch, name: &str, column: ArrayRef) -> RecordBatch {
    let mut columns: Vec<(String, ArrayRef)> = rows
        .schema_ref()
        .fields()
        .iter()
        .zip(rows.columns())
        .map(|(field, column)| (field.name().clone(), Arc::clone(column)))
        .collect();
    columns.push((name.to_owned(), column));
    RecordBatch::try_from_iter(columns).unwrap()
}

#[test]
fn series_are_measured() {
    let rows = [
        row("x", 0, Some(1), None),
        row("x", 10_000, Some(2), None),
        row("x", 10_500, None, Some("t")),
        row("x", 20_000, Some(3), Some("t")),
        row("y", 20_000, None, Some("u")),
        row("y", 20_900, None, Some("u")),
    ];
    let measures = measured(&series_schema(), &rows);
    assert_eq!((measures.rows, measures.deletes, measures.unmeasured), (6, 0, 0));
    let tag = &measures.columns[&ColumnId(1)];
    assert_eq!((tag.values, tag.nulls, tag.distinct.count(), tag.bytes), (6, 0, 2, 6));
    let number = &measures.columns[&ColumnId(3)];
    assert_eq!((number.values, number.nulls, number.distinct.count()), (3, 3, 3));
    assert_eq!((&number.min, &number.max), (&Some(Value::Int(1)), &Some(Value::Int(3))));
    assert_eq!(measures.shapes, BTreeMap::from([(0b01, 2), (0b10, 3), (0b11, 1)]));
    // 10,000, 500 and 9,500 of x, 900 of y.
    assert_eq!((measures.intervals.count(), measures.intervals.sum), (4, 20_900));
    assert_eq!(measures.split_rows, 1, "x at 10,500");
    assert_eq!(measures.row_bytes_max, 18, "x at 20,000");
    assert!(measures.size_bytes() > 0);
}

#[test]
fn a_table_without_time_index_has_no_intervals() {
    let mut schema = series_schema();
    schema.columns[1].semantic = Semantic::Tag;
    let measures = measured(&schema, &[row("x", 1, Some(1), None), row("x", 2, None, Some("t"))]);
    assert_eq!((measures.rows, measures.intervals.count(), measures.split_rows), (2, 0, 0));
    assert_eq!(measures.shapes, BTreeMap::from([(0b01, 1), (0b10, 1)]));
}

#[test]
fn deletes_have_no_values() {
    let schema = series_schema();
    let rows = batch(&schema, &[row("x", 1, Some(1), None), row("x", 2, None, None)]);
    let operations: ArrayRef = Arc::new(arrow::array::UInt8Array::from(vec![0, DELETED]));
    let rows = with_column(&rows, OPERATION_COLUMN, operations);
    let mut measures = TableMeasures::default();
    measures.add_rows(&schema, &rows).unwrap();
    assert_eq!((measures.rows, measures.deletes), (1, 1));
    assert_eq!(measures.columns[&ColumnId(3)].nulls, 0);
    assert_eq!(measures.columns[&ColumnId(4)].nulls, 1);
    assert_eq!(measures.intervals.count(), 0);
}

#[test]
fn absent_columns_are_null_and_other_types_are_converted() {
    let schema = series_schema();
    let rows = batch(&schema, &[row("x", 1, Some(1), Some("t")), row("x", 2, Some(5), None)]);
    let numbers = cast(rows.column(2), &DataType::Int32).unwrap();
    let rows = rows.project(&[0, 1]).unwrap();
    let rows = with_column(&rows, &schema.columns[2].storage_name, numbers);
    let mut measures = TableMeasures::default();
    measures.add_rows(&schema, &rows).unwrap();
    let (number, text) = (&measures.columns[&ColumnId(3)], &measures.columns[&ColumnId(4)]);
    assert_eq!((number.values, &number.max), (2, &Some(Value::Int(5))));
    assert_eq!((text.values, text.nulls, text.distinct.count()), (0, 2, 0));
    assert_eq!(measures.shapes, BTreeMap::from([(0b01, 2)]));
}

#[test]
fn values_are_compared_in_the_order_of_the_log() {
    // The number falls in the order of the key, and grows in that of the log.
    let schema = series_schema();
    let rows: Vec<Row> = (0..4).map(|ticks| row("x", ticks, Some(10 - ticks), None)).collect();
    let rows = batch(&schema, &rows);
    let mut unlogged = TableMeasures::default();
    unlogged.add_rows(&schema, &rows).unwrap();
    let figures = |measures: &TableMeasures, column: u32| {
        let column = &measures.columns[&ColumnId(column)];
        (column.ascending, column.compared)
    };
    assert_eq!((figures(&unlogged, 2), figures(&unlogged, 3)), ((3, 3), (0, 3)));
    let sequence: ArrayRef = Arc::new(arrow::array::UInt64Array::from(vec![9, 8, 7, 7]));
    let logged = with_column(&rows, SEQUENCE_COLUMN, sequence);
    let mut measures = TableMeasures::default();
    measures.add_rows(&schema, &logged).unwrap();
    // Rows of one entry have no order.
    assert_eq!((figures(&measures, 2), figures(&measures, 3)), ((0, 2), (2, 2)));
}

#[test]
fn a_wide_table_is_measured_as_far_as_the_bound() {
    let mut schema = table(&[ColumnType::Int64; 300]);
    schema.key = vec![ColumnId(300)];
    for column in &mut schema.columns[..299] {
        column.semantic = Semantic::Field;
    }
    let measures = measured(&schema, &[vec![Value::Int(1); 300]]);
    assert_eq!(measures.columns.len(), COLUMNS_MEASURED_MAX);
    assert!(measures.columns.contains_key(&ColumnId(300)), "the key");
    assert!(measures.columns.contains_key(&ColumnId(255)));
    assert!(!measures.columns.contains_key(&ColumnId(256)));
    assert_eq!(measures.shapes, BTreeMap::from([(u64::MAX, 1)]));
}

#[test]
fn the_most_frequent_shapes_are_kept() {
    let mut measures = TableMeasures::default();
    measures.add_shapes((1..=20).map(|shape| (shape, shape)));
    measures.add_shapes([(1, 100)]);
    let shapes: Vec<u64> = measures.shapes.keys().copied().collect();
    assert_eq!(shapes, std::iter::once(1).chain(6..=20).collect::<Vec<_>>());
    assert_eq!(measures.shapes[&1], 100, "the first rows of it are forgotten");
}

#[test]
fn reports_of_partitions_add_up() {
    let build = |column, files_done| IndexBuild {
        column: ColumnId(column),
        kind: IndexKind::Inverted,
        files: 2,
        files_done,
        bytes: 10,
    };
    let mut sum = PartitionMeasures::default();
    for (number, files_done) in [(1, 2), (2, 1)] {
        let mut report = PartitionMeasures {
            indexes: vec![build(number, files_done), build(7, files_done)],
            column_bytes: BTreeMap::from([(ColumnId(number), 5), (ColumnId(9), 6)]),
            folded: 3,
            ..PartitionMeasures::default()
        };
        report.measures.add_unmeasured();
        sum.merge(&report);
    }
    assert_eq!(sum.measures.unmeasured, 2);
    let seventh = IndexBuild { files: 4, files_done: 3, bytes: 20, ..build(7, 0) };
    assert_eq!(sum.indexes, [build(1, 2), seventh, build(2, 1)]);
    let bytes = [(ColumnId(1), 5), (ColumnId(2), 5), (ColumnId(9), 12)];
    assert_eq!(sum.column_bytes, BTreeMap::from(bytes));
    assert_eq!(sum.folded, 6);
}

/// Values of every type, in rows of one column of each.
fn parts() -> impl Strategy<Value = Vec<Vec<Row>>> {
    let row: Vec<_> = TYPES.map(|column_type| nullable(column_type).boxed()).to_vec();
    vec(vec(row, 0..8), 1..4)
}

proptest! {
    #[test]
    fn measures_merge_in_any_order_and_equal_one_pass(parts in parts()) {
        // No fields, so that there is one shape only.
        let schema = table(&TYPES);
        let mut one_pass = TableMeasures::default();
        for part in &parts {
            one_pass.add_rows(&schema, &batch(&schema, part)).unwrap();
        }
        let mut forwards = TableMeasures::default();
        parts.iter().for_each(|part| forwards.merge(&measured(&schema, part)));
        let mut backwards = TableMeasures::default();
        parts.iter().rev().for_each(|part| backwards.merge(&measured(&schema, part)));
        prop_assert_eq!(&forwards, &one_pass);
        prop_assert_eq!(&backwards, &one_pass);
        // As one batch too, but for what compares neighbours.
        let whole = of_rows(measured(&schema, &parts.concat()));
        prop_assert_eq!(of_rows(one_pass), whole);
    }

    #[test]
    fn figures_are_those_of_the_values(
        rows in vec((0_u8..3, prop::option::of(-4_i64..4), prop::option::of("[ab]{0,9}")), 0..40),
    ) {
        let schema = series_schema();
        let table_rows: Vec<Row> = (0_i64..)
            .zip(&rows)
            .map(|(ticks, (tag, number, text))| {
                row(&tag.to_string(), ticks, *number, text.as_deref())
            })
            .collect();
        let measures = measured(&schema, &table_rows);
        prop_assert_eq!(measures.rows, rows.len() as u64);
        if rows.is_empty() {
            prop_assert_eq!(measures, TableMeasures::default());
            return Ok(());
        }
        let numbers: Vec<i64> = rows.iter().filter_map(|row| row.1).collect();
        let column = &measures.columns[&ColumnId(3)];
        prop_assert_eq!(column.values, numbers.len() as u64);
        prop_assert_eq!(column.values + column.nulls, rows.len() as u64);
        let distinct: std::collections::BTreeSet<i64> = numbers.iter().copied().collect();
        prop_assert_eq!(column.distinct.count(), distinct.len() as u64);
        let mut sampled: Vec<Value> =
            column.sample.iter().map(|sampled| sampled.value.clone()).collect();
        sampled.sort();
        let expected: Vec<Value> = distinct.iter().map(|number| Value::Int(*number)).collect();
        prop_assert_eq!(sampled, expected);
        prop_assert_eq!(&column.min, &distinct.first().map(|number| Value::Int(*number)));
        prop_assert_eq!(&column.max, &distinct.last().map(|number| Value::Int(*number)));
        let texts: Vec<&str> = rows.iter().filter_map(|row| row.2.as_deref()).collect();
        let column = &measures.columns[&ColumnId(4)];
        prop_assert_eq!(column.bytes, texts.iter().map(|text| text.len() as u64).sum::<u64>());
        let longest = texts.iter().map(|text| text.len() as u64).max();
        prop_assert_eq!(column.length_max, longest.unwrap_or(0));
        prop_assert_eq!(column.lengths.iter().sum::<u64>(), texts.len() as u64);
        prop_assert_eq!(measures.shapes.values().sum::<u64>(), rows.len() as u64);
        // A tag of one character, and eight bytes of time.
        let size = |(_, number, text): &(u8, Option<i64>, Option<String>)| {
            9 + number.map_or(0, |_| 8) + text.as_ref().map_or(0, |text| text.len() as u64)
        };
        prop_assert_eq!(Some(measures.row_bytes_max), rows.iter().map(size).max());
    }
}
