//! The hash that places rows of hash-partitioned tables, and that SQL knows as `hash64`.
//!
//! xxh3-64 over the values' encodings one after the other. **Fixed for ever**: stored rows lie where
//! it once put them. The golden vectors in this file's test must never change.
//!
//! Each value is a tag byte, then:
//!
//! | value | tag | bytes (little-endian) |
//! |---|---|---|
//! | NULL | 0 | |
//! | BOOLEAN | 1 | 1: 0 or 1 |
//! | integer below zero | 2 | 8, two's complement |
//! | integer from zero on | 3 | 8 |
//! | REAL, DOUBLE | 4 | 8: the bits of the 64-bit float |
//! | DECIMAL | 5 | 16: the unscaled number, two's complement |
//! | STRING | 6 | 8: its length, then its UTF-8 |
//! | BINARY | 7 | 8: its length, then itself |
//! | DATE | 8 | 8: days since 1970-01-01, two's complement |
//! | TIMESTAMP | 9 | 8: ticks of the column's unit, two's complement |
//!
//! Invariants: the encoding delimits itself, so that `('a', 'b')` and `('ab', '')` differ; integers
//! that are equal as numbers hash alike whatever their width and sign; so do REAL and DOUBLE, both
//! zeros, and all NaNs (what SQL may take for equal must lie together).

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BooleanArray, PrimitiveArray, StringViewArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Date32Type, Decimal128Type, Float64Type, Int64Type, UInt64Type};
use xxhash_rust::xxh3::xxh3_64;

use crate::array::{arrow_error, column_type_of};
use crate::error::Error;
use crate::schema::ColumnType;
use crate::value::Value;

/// The hash of each row of some columns of equal length, in their order.
///
/// # Errors
/// [`Error::Unsupported`] for a type that no column has, [`Error::Internal`] when the columns differ
/// in length or there are none.
pub fn hash64(columns: &[ArrayRef]) -> Result<Vec<u64>, Error> {
    let Some(first) = columns.first() else {
        return Err(Error::Internal("a hash over no columns".to_owned()));
    };
    let rows = first.len();
    if let Some(odd) = columns.iter().find(|column| column.len() != rows) {
        return Err(Error::Internal(format!(
            "a hash over columns of {rows} and of {} rows",
            odd.len()
        )));
    }
    let columns: Vec<Column> = columns.iter().map(Column::new).collect::<Result<_, _>>()?;
    let mut bytes = Vec::with_capacity(64);
    let hash_row = |row| {
        bytes.clear();
        columns.iter().for_each(|column| column.encode(row, &mut bytes));
        xxh3_64(&bytes)
    };
    Ok((0..rows).map(hash_row).collect())
}

/// The hash of one row, the same as [`hash64`] of columns with these values. Values must be of their
/// columns' types: a timestamp does not hash like a bare number.
pub fn hash_values(values: &[Value]) -> u64 {
    let mut bytes = Vec::with_capacity(64);
    values.iter().for_each(|value| Item::of(value).encode(&mut bytes));
    xxh3_64(&bytes)
}

/// The placement of a hash: its top 16 bits, so that buckets are ranges of hashes.
pub fn bucket(hash: u64) -> u16 {
    let [first, second, ..] = hash.to_be_bytes();
    u16::from_be_bytes([first, second])
}

/// One value to be encoded.
enum Item<'a> {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f64),
    Decimal(i128),
    String(&'a str),
    Binary(&'a [u8]),
    Date(i32),
    Timestamp(i64),
}

impl<'a> Item<'a> {
    fn of(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(v) => Self::Bool(*v),
            Value::Int(v) => Self::Int(*v),
            Value::UInt(v) => Self::UInt(*v),
            Value::Float(v) => Self::Float(*v),
            Value::Decimal(v) => Self::Decimal(*v),
            Value::String(v) => Self::String(v),
            Value::Binary(v) => Self::Binary(v),
            Value::Date(v) => Self::Date(*v),
            Value::Timestamp(v) => Self::Timestamp(*v),
        }
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Null => bytes.push(0),
            Self::Bool(v) => bytes.extend([1, u8::from(*v)]),
            Self::Int(v) => {
                bytes.push(if *v < 0 { 2 } else { 3 });
                bytes.extend(v.to_le_bytes());
            }
            Self::UInt(v) => {
                bytes.push(3);
                bytes.extend(v.to_le_bytes());
            }
            Self::Float(v) => {
                bytes.push(4);
                bytes.extend(canonical_bits(*v).to_le_bytes());
            }
            Self::Decimal(v) => {
                bytes.push(5);
                bytes.extend(v.to_le_bytes());
            }
            Self::String(v) => {
                bytes.push(6);
                encode_bytes(v.as_bytes(), bytes);
            }
            Self::Binary(v) => {
                bytes.push(7);
                encode_bytes(v, bytes);
            }
            Self::Date(v) => {
                bytes.push(8);
                bytes.extend(i64::from(*v).to_le_bytes());
            }
            Self::Timestamp(v) => {
                bytes.push(9);
                bytes.extend(v.to_le_bytes());
            }
        }
    }
}

fn encode_bytes(value: &[u8], bytes: &mut Vec<u8>) {
    let length = u64::try_from(value.len()).expect("a length fits 64 bits");
    bytes.extend(length.to_le_bytes());
    bytes.extend(value);
}

/// One pattern for all NaNs, and one for both zeros.
fn canonical_bits(value: f64) -> u64 {
    if value.is_nan() {
        0x7FF8_0000_0000_0000
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    }
}

/// A column in the widest form of its kind, so that there are few forms to read.
enum Column {
    Null,
    Bool(BooleanArray),
    Int(PrimitiveArray<Int64Type>),
    UInt(PrimitiveArray<UInt64Type>),
    Float(PrimitiveArray<Float64Type>),
    Decimal(PrimitiveArray<Decimal128Type>),
    String(StringViewArray),
    Binary(BinaryViewArray),
    Date(PrimitiveArray<Date32Type>),
    Timestamp(PrimitiveArray<Int64Type>),
}

impl Column {
    fn new(array: &ArrayRef) -> Result<Self, Error> {
        if array.data_type() == &DataType::Null {
            return Ok(Self::Null);
        }
        let column_type = column_type_of(array.as_ref())?;
        let cast_to = |array: &ArrayRef, data_type: &DataType| {
            cast(array, data_type).map_err(|error| arrow_error(&error))
        };
        Ok(match column_type {
            ColumnType::Bool => {
                Self::Bool(cast_to(array, &DataType::Boolean)?.as_boolean().clone())
            }
            ColumnType::Int8 | ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64 => {
                Self::Int(cast_to(array, &DataType::Int64)?.as_primitive().clone())
            }
            ColumnType::UInt8 | ColumnType::UInt16 | ColumnType::UInt32 | ColumnType::UInt64 => {
                Self::UInt(cast_to(array, &DataType::UInt64)?.as_primitive().clone())
            }
            ColumnType::Float32 | ColumnType::Float64 => {
                Self::Float(cast_to(array, &DataType::Float64)?.as_primitive().clone())
            }
            ColumnType::Decimal(..) => {
                Self::Decimal(cast_to(array, &column_type.arrow())?.as_primitive().clone())
            }
            ColumnType::String => {
                Self::String(cast_to(array, &DataType::Utf8View)?.as_string_view().clone())
            }
            ColumnType::Binary => {
                Self::Binary(cast_to(array, &DataType::BinaryView)?.as_binary_view().clone())
            }
            ColumnType::Date => {
                Self::Date(cast_to(array, &DataType::Date32)?.as_primitive().clone())
            }
            ColumnType::Timestamp(..) => {
                // Out of a dictionary first: a timestamp casts to its ticks, a dictionary may not.
                let plain = cast_to(array, &column_type.arrow())?;
                Self::Timestamp(cast_to(&plain, &DataType::Int64)?.as_primitive().clone())
            }
        })
    }

    fn encode(&self, row: usize, bytes: &mut Vec<u8>) {
        let valid = |array: &dyn Array| array.is_valid(row);
        let item = match self {
            Self::Bool(array) if valid(array) => Item::Bool(array.value(row)),
            Self::Int(array) if valid(array) => Item::Int(array.value(row)),
            Self::UInt(array) if valid(array) => Item::UInt(array.value(row)),
            Self::Float(array) if valid(array) => Item::Float(array.value(row)),
            Self::Decimal(array) if valid(array) => Item::Decimal(array.value(row)),
            Self::String(array) if valid(array) => Item::String(array.value(row)),
            Self::Binary(array) if valid(array) => Item::Binary(array.value(row)),
            Self::Date(array) if valid(array) => Item::Date(array.value(row)),
            Self::Timestamp(array) if valid(array) => Item::Timestamp(array.value(row)),
            _ => Item::Null,
        };
        item.encode(bytes);
    }
}
