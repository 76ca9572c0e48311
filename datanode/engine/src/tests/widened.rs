//! Columns that get a wider type: rows from before are read as rows of it, from files and from memory, and no predicate
//! loses them or lets others through.

use partita_proto::index::{Index, IndexOptions};
use partita_proto::rule::Comparison;

use super::*;

const NAMES: [&str; 2] = ["id", "v"];

/// A type with some of its values, and a wider type with values of its own.
struct Case {
    narrow: ColumnType,
    values: Vec<Value>,
    wide: ColumnType,
    later_values: Vec<Value>,
}

fn cases() -> Vec<Case> {
    let ints = |values: &[i64]| -> Vec<Value> { values.iter().map(|v| int(*v)).collect() };
    let unsigned =
        |values: &[u64]| -> Vec<Value> { values.iter().map(|v| Value::UInt(*v)).collect() };
    let floats =
        |values: &[f64]| -> Vec<Value> { values.iter().map(|v| Value::Float(*v)).collect() };
    let decimals =
        |values: &[i128]| -> Vec<Value> { values.iter().map(|v| Value::Decimal(*v)).collect() };
    vec![
        Case {
            narrow: ColumnType::Int8,
            values: ints(&[-128, -1, 0, 5, 127]),
            wide: ColumnType::Int16,
            later_values: ints(&[-129, 5, 128]),
        },
        Case {
            narrow: ColumnType::Int32,
            values: ints(&[i32::MIN.into(), -1, 0, 5, i32::MAX.into()]),
            wide: ColumnType::Int64,
            later_values: ints(&[i64::MIN, 5, i64::MAX]),
        },
        Case {
            narrow: ColumnType::UInt16,
            values: unsigned(&[0, 5, u16::MAX.into()]),
            wide: ColumnType::UInt64,
            later_values: unsigned(&[5, u64::MAX]),
        },
        Case {
            narrow: ColumnType::Float32,
            values: floats(&[f64::from(0.1_f32), -2.5, 0.5, f64::INFINITY]),
            wide: ColumnType::Float64,
            later_values: floats(&[0.1, 0.5, 1e300]),
        },
        Case {
            narrow: ColumnType::Decimal(5, 2),
            values: decimals(&[-99_999, 0, 5, 99_999]),
            wide: ColumnType::Decimal(30, 2),
            later_values: decimals(&[5, 10_i128.pow(20)]),
        },
    ]
}

fn schema(column_type: ColumnType, indexed: bool) -> TableSchema {
    let index = Index { name: "i".to_owned(), options: IndexOptions::Inverted };
    let indexes = if indexed { vec![index] } else { Vec::new() };
    let v = column(2, "v", column_type, Semantic::Field);
    TableSchema {
        version: SchemaVersion(1),
        columns: vec![column(1, "id", ColumnType::Int64, Semantic::Tag), Column { indexes, ..v }],
        key: vec![ColumnId(1)],
        options: last_row(),
        next_column: ColumnId(3),
        schema_on_write: false,
        checks: Vec::new(),
        view: None,
    }
}

async fn check(fixture: &Fixture, expected: &[Row], when: &str) {
    assert_eq!(fixture.read(&NAMES).await, expected, "{when}");
    let comparisons = [Comparison::Equal, Comparison::Less, Comparison::GreaterOrEqual];
    for value in expected.iter().map(|row| &row[1]).filter(|value| !value.is_null()) {
        for comparison in comparisons {
            let domain = Domain::compare(comparison, value.clone());
            let matching: Vec<Row> =
                expected.iter().filter(|row| domain.contains(&row[1])).cloned().collect();
            let rows = fixture.read_where(&NAMES, &[("v", domain.clone())]).await.unwrap();
            assert_eq!(rows, matching, "{when}: {domain}");
        }
    }
}

async fn widened(Case { narrow, values, wide, later_values }: Case, indexed: bool) {
    let mut fixture = Fixture::new(config(schema(narrow, indexed), Placement::Range)).await;
    let rows = |start: i64, values: &[Value]| -> Vec<Row> {
        let values = values.iter().cloned().chain([Value::Null]);
        (start..).zip(values).map(|(id, value)| vec![int(id), value]).collect()
    };
    let (in_file, in_memory, late) = (rows(0, &values), rows(100, &values), rows(200, &values));
    fixture.put(&NAMES, &in_file);
    fixture.flush().await.unwrap();
    fixture.put(&NAMES, &in_memory);
    // A write that was on its way when the type changed: it comes after the change in the log.
    let late_batch = fixture.rows(&NAMES, &late);
    fixture.index += 1;
    let index = fixture.index;
    let next = TableSchema { version: SchemaVersion(2), ..schema(wide, indexed) };
    fixture.partition.apply_schema(index, mark(index), Arc::new(next)).unwrap();
    fixture.apply(&[(WriteKind::Put, late_batch)]).unwrap();
    let wide_rows = rows(300, &later_values);
    fixture.put(&NAMES, &wide_rows);
    let expected = [in_file, in_memory, late, wide_rows].concat();
    let when = format!("{narrow:?} to {wide:?}, indexed: {indexed}");
    check(&fixture, &expected, &format!("{when}, in a file and in memory")).await;
    fixture.flush().await.unwrap();
    check(&fixture, &expected, &format!("{when}, in files")).await;
    fixture.reopen().await;
    check(&fixture, &expected, &format!("{when}, opened again")).await;
    let measures = fixture.partition.measures().await.unwrap();
    assert_eq!(measures.measures.columns[&ColumnId(2)].nulls, 4, "{when}");
    fixture.partition.compact(true).await.unwrap();
    check(&fixture, &expected, &format!("{when}, compacted")).await;
}

#[tokio::test]
async fn rows_from_before_are_read_in_the_wider_type() {
    for indexed in [false, true] {
        for case in cases() {
            widened(case, indexed).await;
        }
    }
}

#[tokio::test]
async fn rows_of_another_type_are_refused() {
    let mut fixture =
        Fixture::new(config(schema(ColumnType::Int32, false), Placement::Range)).await;
    let wide = config(schema(ColumnType::Int64, false), Placement::Range);
    let rows = batch(&wide, &NAMES, &[vec![int(1), int(1)]]);
    let error = fixture.apply(&[(WriteKind::Put, rows)]).unwrap_err();
    assert!(error.to_string().contains("has type Int64"), "{error}");
}
