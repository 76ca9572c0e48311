//! Random values, tables and rows for property tests, in which edge cases are frequent: ends of ranges, both zeros,
//! NaN, empty strings, zero bytes.

use std::sync::Arc;

use arrow::datatypes::Schema;
use arrow::record_batch::RecordBatch;
use proptest::prelude::*;
use proptest::sample::select;

use crate::array::array_of;
use crate::id::{ColumnId, SchemaVersion};
use crate::neighbour::{decimal_max, integer, integer_range, narrow, widen};
use crate::schema::{Column, ColumnType, Semantic, TableOptions, TableSchema, Unit};
use crate::time_of_day::DAY_MICROS;
use crate::value::Value;

/// One column type of each kind.
pub(crate) const TYPES: [ColumnType; 22] = [
    ColumnType::Bool,
    ColumnType::Int8,
    ColumnType::Int16,
    ColumnType::Int32,
    ColumnType::Int64,
    ColumnType::UInt8,
    ColumnType::UInt16,
    ColumnType::UInt32,
    ColumnType::UInt64,
    ColumnType::Float32,
    ColumnType::Float64,
    ColumnType::Decimal(5, 2),
    ColumnType::Decimal(38, 10),
    ColumnType::String,
    ColumnType::Binary,
    ColumnType::Date,
    ColumnType::Uuid,
    ColumnType::Time,
    ColumnType::Timestamp(Unit::Second, false),
    ColumnType::Timestamp(Unit::Millisecond, true),
    ColumnType::Timestamp(Unit::Microsecond, true),
    ColumnType::Timestamp(Unit::Nanosecond, false),
];

pub(crate) fn column_type() -> impl Strategy<Value = ColumnType> {
    select(TYPES.to_vec())
}

/// A value of the type that is not NULL. Drawn from few distinct values, so that equal ones are frequent.
pub(crate) fn value(column_type: ColumnType) -> BoxedStrategy<Value> {
    // Integers: mostly small ones, some at the ends of the type's range, some anywhere.
    if let Some((min, max)) = integer_range(column_type) {
        let low = (-3_i128).max(min);
        let ends = vec![min, min + 1, max - 1, max];
        return prop_oneof![4 => low..=5, 1 => select(ends), 1 => min..=max]
            .prop_map(move |number| integer(number, column_type))
            .boxed();
    }
    // The other types in the same proportions.
    let ticks = || prop_oneof![4 => -3..=5_i64, 1 => select(vec![i64::MIN, i64::MAX])];
    match column_type {
        ColumnType::Float32 => floats().prop_map(|v| Value::Float(widen(narrow(v)))).boxed(),
        ColumnType::Float64 => floats().prop_map(Value::Float).boxed(),
        ColumnType::Decimal(precision, _) => {
            let max = decimal_max(precision);
            prop_oneof![4 => -3..=5_i128, 1 => select(vec![-max, max]), 1 => -max..=max]
                .prop_map(Value::Decimal)
                .boxed()
        }
        ColumnType::String => {
            prop_oneof![4 => "[ab\0]{0,3}", 1 => "[é'\"A-Z]{0,20}"].prop_map(Value::String).boxed()
        }
        ColumnType::Binary => {
            prop::collection::vec(select(vec![0_u8, 1, 255]), 0..4).prop_map(Value::Binary).boxed()
        }
        ColumnType::Time => prop_oneof![
            4 => 0..=5_i64, 1 => select(vec![0, DAY_MICROS - 1]), 1 => 0..DAY_MICROS
        ]
        .prop_map(Value::Int)
        .boxed(),
        ColumnType::Uuid => {
            let numbers = vec![0, 1, 0xFF, 0x100, u128::MAX - 1, u128::MAX];
            prop_oneof![4 => select(numbers), 1 => any::<u128>()]
                .prop_map(|number| Value::Binary(number.to_be_bytes().to_vec()))
                .boxed()
        }
        ColumnType::Date => prop_oneof![4 => -3..=5_i32, 1 => select(vec![i32::MIN, i32::MAX])]
            .prop_map(Value::Date)
            .boxed(),
        ColumnType::Timestamp(..) => ticks().prop_map(Value::Timestamp).boxed(),
        _ => any::<bool>().prop_map(Value::Bool).boxed(),
    }
}

fn floats() -> impl Strategy<Value = f64> {
    let special = vec![
        0.0,
        -0.0,
        f64::NAN,
        -f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MIN_POSITIVE,
        f64::MAX,
        f64::MIN,
    ];
    prop_oneof![
        3 => (-6..=10_i32).prop_map(|v| f64::from(v) / 2.0),
        2 => select(special),
        1 => any::<u64>().prop_map(f64::from_bits),
        1 => select(vec![0x7FF0_0000_0000_0001, u64::MAX, 0xFFF8_0000_2000_0000]).prop_map(f64::from_bits),
    ]
}

/// A value of the type, or NULL.
pub(crate) fn nullable(column_type: ColumnType) -> impl Strategy<Value = Value> {
    prop_oneof![1 => Just(Value::Null), 5 => value(column_type)]
}

/// A table of nullable columns `a`, `b`, ...; the storage names are `a#1`, `b#2`, ...
pub(crate) fn table(types: &[ColumnType]) -> TableSchema {
    let columns: Vec<Column> = (1..)
        .zip('a'..)
        .zip(types)
        .map(|((id, name), column_type)| Column {
            id: ColumnId(id),
            name: name.to_string(),
            storage_name: format!("{name}#{id}"),
            column_type: *column_type,
            nullable: true,
            semantic: Semantic::Tag,
            default: None,
            generated: None,
            missing: None,
            length: None,
            json: None,
            indexes: Vec::new(),
            comment: None,
        })
        .collect();
    TableSchema {
        version: SchemaVersion(1),
        key: columns.iter().map(|column| column.id).collect(),
        next_column: ColumnId(u32::try_from(columns.len()).unwrap() + 1),
        columns,
        options: TableOptions::default(),
        schema_on_write: false,
        checks: Vec::new(),
        view: None,
    }
}

/// Rows, each a value for every column, as a batch by storage name.
pub(crate) fn batch(schema: &TableSchema, rows: &[Vec<Value>]) -> RecordBatch {
    let arrays = schema.columns.iter().enumerate().map(|(position, column)| {
        let values: Vec<Value> = rows.iter().map(|row| row[position].clone()).collect();
        array_of(column.column_type, &values).unwrap()
    });
    let arrays = arrays.collect();
    let fields: Vec<_> = schema.columns.iter().map(Column::storage_field).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

/// A table of one to three columns, and rows of it.
pub(crate) fn table_and_rows() -> impl Strategy<Value = (TableSchema, Vec<Vec<Value>>)> {
    prop::collection::vec(column_type(), 1..=3).prop_flat_map(|types| {
        let row: Vec<_> = types.iter().map(|column_type| nullable(*column_type)).collect();
        (Just(table(&types)), prop::collection::vec(row, 1..20))
    })
}
