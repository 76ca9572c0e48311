//! The hash that places rows of hash-partitioned tables; SQL's `hash64`.
//!
//! xxh3-64 over the concatenated encodings of the values. **Fixed for ever**: stored rows lie where it has placed them.
//! The golden vectors in this file's test must never change.
//!
//! Each value is a tag byte, then:
//!
//! | value | tag | bytes (little-endian) |
//! |---|---|---|
//! | NULL | 0 | |
//! | BOOLEAN | 1 | 1: 0 or 1 |
//! | integer below zero | 2 | 8, two's complement |
//! | integer from zero on; TIME: its microseconds | 3 | 8 |
//! | REAL, DOUBLE | 4 | 8: the bits of the 64-bit float |
//! | DECIMAL | 5 | 16: the unscaled number, two's complement |
//! | STRING | 6 | 8: its length, then its UTF-8 |
//! | BINARY, UUID | 7 | 8: its length, then itself |
//! | DATE | 8 | 8: days since 1970-01-01, two's complement |
//! | TIMESTAMP | 9 | 8: ticks of the column's unit, two's complement |
//!
//! Invariants: the encoding is self-delimiting, so that `('a', 'b')` and `('ab', '')` differ; integers that are equal
//! as numbers hash alike whatever their width and sign; so do REAL and DOUBLE, both zeros, and all NaNs (values that
//! SQL may treat as equal must be placed together).

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

/// The hash of one row, equal to [`hash64`] of columns with these values. Values must be of their columns' types: a
/// timestamp does not hash like a bare number.
pub fn hash_values(values: &[Value]) -> u64 {
    let mut bytes = Vec::with_capacity(64);
    values.iter().for_each(|value| Item::of(value).encode(&mut bytes));
    xxh3_64(&bytes)
}

/// The hash of an encoded key. Partitions keep such hashes beside their files.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// The bucket of a hash: its top 16 bits, so that buckets are ranges of hashes.
pub fn bucket(hash: u64) -> u16 {
    let [first, second, ..] = hash.to_be_bytes();
    u16::from_be_bytes([first, second])
}

/// A value to be encoded.
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
        // The tags of the table above. Integers share theirs, so that equal numbers hash alike in every width.
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

/// The bits of a float, with one pattern for all NaNs, and one for both zeros.
fn canonical_bits(value: f64) -> u64 {
    if value.is_nan() {
        0x7FF8_0000_0000_0000
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    }
}

/// A column in the widest form of its kind, so that few forms have to be read.
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
            ColumnType::Time => {
                let plain = cast_to(array, &column_type.arrow())?;
                Self::Int(cast_to(&plain, &DataType::Int64)?.as_primitive().clone())
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
            ColumnType::Uuid => {
                // A dictionary is unpacked first: it may not cast to bytes of any length.
                let plain = cast_to(array, &column_type.arrow())?;
                Self::Binary(cast_to(&plain, &DataType::BinaryView)?.as_binary_view().clone())
            }
            // Placements and series are of keys, which have none of them.
            ColumnType::Array(_) | ColumnType::Interval => {
                return Err(Error::Unsupported(format!("a hash of type {}", column_type.sql())));
            }
            ColumnType::Date => {
                Self::Date(cast_to(array, &DataType::Date32)?.as_primitive().clone())
            }
            ColumnType::Timestamp(..) => {
                // Unpack a dictionary first: a timestamp casts to its ticks, a dictionary may not.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int8Array, NullArray, StringArray, UInt32Array};
    use proptest::prelude::*;

    use super::*;
    use crate::arbitrary::{batch, table_and_rows};

    fn text(value: &str) -> Value {
        Value::String(value.to_owned())
    }

    /// Never change these numbers: tables lie where they say. They were computed by another
    /// implementation of xxh3-64 over the encoding that the table above describes.
    #[test]
    fn the_golden_vectors_never_change() {
        let golden: Vec<(Vec<Value>, u64)> = vec![
            (vec![Value::Null], 0xC44B_DFF4_074E_ECDB),
            (vec![Value::Bool(false)], 0xAB94_AC0A_CE72_76C0),
            (vec![Value::Bool(true)], 0x070D_80D6_A768_65F3),
            (vec![Value::Int(0)], 0xD1D3_0C5E_8136_B99D),
            (vec![Value::Int(1)], 0xA2A2_7A2A_65B0_9A01),
            (vec![Value::Int(-1)], 0x5195_7C45_5B8E_6C65),
            (vec![Value::Int(i64::MIN)], 0x0982_FC13_C6EA_C8CB),
            (vec![Value::Int(i64::MAX)], 0xFE89_0B16_DCE4_93FB),
            (vec![Value::UInt(u64::MAX)], 0x461F_577B_67B4_5767),
            (vec![Value::Float(0.0)], 0xEE53_FD1B_240E_9DC6),
            (vec![Value::Float(-1.5)], 0xFB86_9179_7B01_C2C2),
            (vec![Value::Float(f64::NAN)], 0x4540_988C_B389_0760),
            (vec![Value::Decimal(-12_345)], 0xD585_2021_91DC_EF98),
            (vec![text("")], 0xF910_C9B2_6374_10D1),
            (vec![text("a")], 0x2752_4E08_253A_03A1),
            (vec![text("device-000017")], 0xA555_9EF4_7376_1E00),
            (vec![text("Zürich")], 0x8C90_07D4_29C5_98CE),
            (vec![text(&"x".repeat(300))], 0x61F9_FE35_9746_0E16),
            (vec![Value::Binary(vec![])], 0x935C_86F6_6598_83F6),
            (vec![Value::Binary(vec![0, 255])], 0xB057_EE02_2DBA_6694),
            (vec![Value::Date(19_723)], 0x3B65_DA73_F547_B050),
            (vec![Value::Timestamp(1_704_067_200_000)], 0x920B_B376_562D_48C2),
            (vec![Value::Int(17), text("a"), Value::Null], 0x8F23_5D2C_259A_B692),
        ];
        for (values, hash) in golden {
            assert_eq!(hash_values(&values), hash, "{values:?}");
        }
    }

    #[test]
    fn equal_numbers_hash_alike_in_every_width() {
        let narrow: ArrayRef = Arc::new(Int8Array::from(vec![Some(7), None]));
        let wide: ArrayRef = Arc::new(UInt32Array::from(vec![Some(7), None]));
        assert_eq!(hash64(&[narrow]).unwrap(), hash64(&[wide]).unwrap());
        assert_eq!(hash_values(&[Value::Int(7)]), hash_values(&[Value::UInt(7)]));
        assert_ne!(hash_values(&[Value::Int(-1)]), hash_values(&[Value::UInt(u64::MAX)]));
        assert_ne!(hash_values(&[Value::Int(7)]), hash_values(&[Value::Timestamp(7)]));
        assert_eq!(hash_values(&[Value::Float(0.0)]), hash_values(&[Value::Float(-0.0)]));
        let (one, other) = (f64::NAN, f64::from_bits(0xFFF0_0000_0000_0001));
        assert_eq!(hash_values(&[Value::Float(one)]), hash_values(&[Value::Float(other)]));
    }

    #[test]
    fn the_encoding_delimits_itself() {
        assert_ne!(hash_values(&[text("a"), text("b")]), hash_values(&[text("ab"), text("")]));
        assert_ne!(hash_values(&[text("")]), hash_values(&[Value::Null]));
        assert_ne!(hash_values(&[text("a")]), hash_values(&[Value::Binary(b"a".to_vec())]));
    }

    #[test]
    fn the_form_of_a_column_does_not_matter() {
        let plain: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("a")]));
        let expected = [text("a"), Value::Null, text("a")].map(|v| hash_values(&[v]));
        assert_eq!(hash64(&[Arc::clone(&plain)]).unwrap(), expected);
        let coded = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        assert_eq!(hash64(&[cast(&plain, &coded).unwrap()]).unwrap(), expected);
        let nulls: ArrayRef = Arc::new(NullArray::new(2));
        assert_eq!(hash64(&[nulls]).unwrap(), [hash_values(&[Value::Null]); 2]);
        assert!(hash64(&[]).is_err());
        assert!(hash64(&[plain, Arc::new(NullArray::new(2))]).is_err());
    }

    #[test]
    fn buckets_are_ranges_of_hashes() {
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(0x0001_0000_0000_0000), 1);
        assert_eq!(bucket(0x0001_FFFF_FFFF_FFFF), 1);
        assert_eq!(bucket(u64::MAX), u16::MAX);
    }

    #[test]
    fn consecutive_numbers_spread_evenly() {
        let mut counts = [0_u32; 8];
        for number in 0..8_000 {
            counts[usize::from(bucket(hash_values(&[Value::Int(number)]))) / 8_192] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    proptest! {
        #[test]
        fn columns_hash_like_their_values((schema, rows) in table_and_rows()) {
            let hashes = hash64(batch(&schema, &rows).columns()).unwrap();
            let expected: Vec<u64> = rows.iter().map(|row| hash_values(row)).collect();
            prop_assert_eq!(hashes, expected);
        }
    }
}
