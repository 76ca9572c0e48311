//! Values as *ordered bytes*: compared bytewise they have the order of [`Value`], within one column type.
//!
//! | value | bytes |
//! |---|---|
//! | BOOLEAN | 1: 0 or 1 |
//! | signed integer, DATE, TIME, TIMESTAMP | 8: the 64-bit number, sign flipped, big-endian |
//! | unsigned integer | 8: the 64-bit number, big-endian |
//! | REAL, DOUBLE | 8: bits of the 64-bit float, all flipped below zero, else the sign, big-endian |
//! | DECIMAL | 16: the unscaled number, sign flipped, big-endian |
//! | STRING, BINARY, UUID | themselves |

use arrow::array::{Array, ArrowPrimitiveType, AsArray};
use arrow::datatypes::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time64MicrosecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use partita_proto::schema::{ColumnType, Unit};
use partita_proto::value::Value;

use crate::error::Result;

/// Appends the ordered bytes of a value; NULL has none.
pub(crate) fn push(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Null => {}
        Value::Bool(v) => bytes.push(u8::from(*v)),
        Value::Int(v) | Value::Timestamp(v) => bytes.extend(integer(*v)),
        Value::UInt(v) => bytes.extend(v.to_be_bytes()),
        Value::Float(v) => bytes.extend(float(*v)),
        Value::Decimal(v) => bytes.extend(decimal(*v)),
        Value::String(v) => bytes.extend_from_slice(v.as_bytes()),
        Value::Binary(v) => bytes.extend_from_slice(v),
        Value::Date(v) => bytes.extend(integer(i64::from(*v))),
    }
}

/// Calls `each` with the ordered bytes of every row (`None`: NULL), without allocating for each row.
///
/// # Errors
/// For an Arrow type that no column has.
pub(crate) fn each_row(column: &dyn Array, mut each: impl FnMut(Option<&[u8]>)) -> Result<()> {
    let each: &mut dyn FnMut(Option<&[u8]>) = &mut each;
    let column_type = ColumnType::from_arrow(column.data_type());
    let Some(column_type) = column_type.filter(|kind| kind.arrow() == *column.data_type()) else {
        return each_value(column, each);
    };
    match column_type {
        ColumnType::Bool => {
            for value in column.as_boolean() {
                each(value.map(|value| [u8::from(value)]).as_ref().map(<[u8; 1]>::as_slice));
            }
        }
        ColumnType::Int8 => numbers::<Int8Type, 8>(column, |v| integer(v.into()), each),
        ColumnType::Int16 => numbers::<Int16Type, 8>(column, |v| integer(v.into()), each),
        ColumnType::Int32 => numbers::<Int32Type, 8>(column, |v| integer(v.into()), each),
        ColumnType::Int64 => numbers::<Int64Type, 8>(column, integer, each),
        ColumnType::UInt8 => {
            numbers::<UInt8Type, 8>(column, |v| u64::from(v).to_be_bytes(), each);
        }
        ColumnType::UInt16 => {
            numbers::<UInt16Type, 8>(column, |v| u64::from(v).to_be_bytes(), each);
        }
        ColumnType::UInt32 => {
            numbers::<UInt32Type, 8>(column, |v| u64::from(v).to_be_bytes(), each);
        }
        ColumnType::UInt64 => numbers::<UInt64Type, 8>(column, u64::to_be_bytes, each),
        ColumnType::Float32 => {
            // Only `Value` knows which 64-bit NaN a 32-bit one is.
            if column.as_primitive::<Float32Type>().iter().flatten().any(f32::is_nan) {
                return each_value(column, each);
            }
            numbers::<Float32Type, 8>(column, |v| float(v.into()), each);
        }
        ColumnType::Float64 => numbers::<Float64Type, 8>(column, float, each),
        ColumnType::Decimal(..) => numbers::<Decimal128Type, 16>(column, decimal, each),
        ColumnType::String => {
            column.as_string_view().iter().for_each(|value| each(value.map(str::as_bytes)));
        }
        ColumnType::Binary => column.as_binary_view().iter().for_each(each),
        ColumnType::Time => numbers::<Time64MicrosecondType, 8>(column, integer, each),
        ColumnType::Uuid => column.as_fixed_size_binary().iter().for_each(each),
        // They have no indexes; this is the error that says so.
        ColumnType::Array(_) | ColumnType::Interval => return each_value(column, each),
        ColumnType::Date => numbers::<Date32Type, 8>(column, |v| integer(v.into()), each),
        ColumnType::Timestamp(unit, _) => match unit {
            Unit::Second => numbers::<TimestampSecondType, 8>(column, integer, each),
            Unit::Millisecond => numbers::<TimestampMillisecondType, 8>(column, integer, each),
            Unit::Microsecond => numbers::<TimestampMicrosecondType, 8>(column, integer, each),
            Unit::Nanosecond => numbers::<TimestampNanosecondType, 8>(column, integer, each),
        },
    }
    Ok(())
}

/// As [`each_row`], for columns in another form than rows have inside, such as dictionaries, and for rare values.
fn each_value(column: &dyn Array, each: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
    let mut bytes = Vec::new();
    for row in 0..column.len() {
        let value = Value::from_array(column, row)?;
        bytes.clear();
        push(&value, &mut bytes);
        each((!value.is_null()).then_some(bytes.as_slice()));
    }
    Ok(())
}

fn numbers<T: ArrowPrimitiveType, const N: usize>(
    column: &dyn Array,
    bytes_of: impl Fn(T::Native) -> [u8; N],
    each: &mut dyn FnMut(Option<&[u8]>),
) {
    for value in column.as_primitive::<T>().iter() {
        match value {
            Some(value) => each(Some(&bytes_of(value))),
            None => each(None),
        }
    }
}

fn integer(value: i64) -> [u8; 8] {
    let mut bytes = value.to_be_bytes();
    bytes[0] ^= 0x80;
    bytes
}

fn decimal(value: i128) -> [u8; 16] {
    let mut bytes = value.to_be_bytes();
    bytes[0] ^= 0x80;
    bytes
}

fn float(value: f64) -> [u8; 8] {
    const SIGN: u64 = 1 << 63;
    let bits = value.to_bits();
    (if bits & SIGN == 0 { bits | SIGN } else { !bits }).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Float32Array, StringArray};
    use arrow::compute::cast;
    use arrow::datatypes::DataType;
    use partita_proto::array::array_of;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    /// Values of a column type, in which equal ones and the ends of the type's range are frequent.
    fn value(column_type: ColumnType) -> BoxedStrategy<Value> {
        let ticks = prop_oneof![3 => -3..=3_i64, 1 => any::<i64>(),
            1 => select(vec![i64::MIN, i64::MAX])];
        match column_type {
            ColumnType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
            ColumnType::Int8 => any::<i8>().prop_map(|v| Value::Int(v.into())).boxed(),
            ColumnType::Int16 => any::<i16>().prop_map(|v| Value::Int(v.into())).boxed(),
            ColumnType::Int32 => any::<i32>().prop_map(|v| Value::Int(v.into())).boxed(),
            ColumnType::Int64 => ticks.prop_map(Value::Int).boxed(),
            ColumnType::UInt8 => any::<u8>().prop_map(|v| Value::UInt(v.into())).boxed(),
            ColumnType::UInt16 => any::<u16>().prop_map(|v| Value::UInt(v.into())).boxed(),
            ColumnType::UInt32 => any::<u32>().prop_map(|v| Value::UInt(v.into())).boxed(),
            ColumnType::UInt64 => prop_oneof![0..4_u64, any::<u64>()].prop_map(Value::UInt).boxed(),
            ColumnType::Float32 => {
                let rare = vec![0.0, -0.0, f32::INFINITY];
                prop_oneof![any::<f32>(), select(rare)]
                    .prop_filter("NaN", |v| !v.is_nan())
                    .prop_map(|v| Value::Float(v.into()))
                    .boxed()
            }
            ColumnType::Float64 => {
                let rare = vec![0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
                prop_oneof![any::<f64>(), select(rare)].prop_map(Value::Float).boxed()
            }
            ColumnType::Decimal(..) => (-99_999..=99_999_i128).prop_map(Value::Decimal).boxed(),
            ColumnType::String => "[ab\0é]{0,3}".prop_map(Value::String).boxed(),
            ColumnType::Binary => {
                vec(select(vec![0_u8, 1, 255]), 0..4).prop_map(Value::Binary).boxed()
            }
            ColumnType::Date => any::<i32>().prop_map(Value::Date).boxed(),
            ColumnType::Time => (0..86_400_000_000_i64).prop_map(Value::Int).boxed(),
            ColumnType::Uuid => any::<[u8; 16]>().prop_map(|v| Value::Binary(v.to_vec())).boxed(),
            ColumnType::Timestamp(..) => ticks.prop_map(Value::Timestamp).boxed(),
            ColumnType::Array(_) | ColumnType::Interval => unreachable!("they have no indexes"),
        }
    }

    const TYPES: [ColumnType; 21] = [
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

    fn bytes_of(value: &Value) -> Vec<u8> {
        let mut bytes = Vec::new();
        push(value, &mut bytes);
        bytes
    }

    fn rows_of(column: &dyn Array) -> Vec<Option<Vec<u8>>> {
        let mut rows = Vec::new();
        each_row(column, |row| rows.push(row.map(<[u8]>::to_vec))).unwrap();
        rows
    }

    #[test]
    fn columns_in_other_forms_have_the_same_bytes() {
        let plain: ArrayRef = Arc::new(StringArray::from(vec![Some("b"), None, Some("a")]));
        let expected = [Some(b"b".to_vec()), None, Some(b"a".to_vec())];
        assert_eq!(rows_of(plain.as_ref()), expected);
        let coded = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        assert_eq!(rows_of(cast(&plain, &coded).unwrap().as_ref()), expected);
        assert_eq!(rows_of(cast(&plain, &DataType::Utf8View).unwrap().as_ref()), expected);
    }

    #[test]
    fn every_nan_keeps_its_place() {
        let bits = [0x7FC0_0000, 0xFFC0_0000, 0x7F80_0001, 0x3F80_0000].map(f32::from_bits);
        let column = Float32Array::from(bits.to_vec());
        let expected = (0..4).map(|row| bytes_of(&Value::from_array(&column, row).unwrap()));
        let expected: Vec<_> = expected.map(Some).collect();
        assert_eq!(rows_of(&column), expected);
    }

    proptest! {
        #[test]
        fn bytes_have_the_order_of_values(
            (a, b) in select(TYPES.to_vec()).prop_flat_map(|kind| (value(kind), value(kind))),
        ) {
            prop_assert_eq!(bytes_of(&a).cmp(&bytes_of(&b)), a.cmp(&b), "{} {}", a, b);
        }

        #[test]
        fn rows_have_the_bytes_of_their_values(
            (kind, values) in select(TYPES.to_vec()).prop_flat_map(|kind| {
                let item = prop_oneof![4 => value(kind), 1 => Just(Value::Null)];
                (Just(kind), vec(item, 0..20))
            }),
        ) {
            let column = array_of(kind, &values).unwrap();
            let expected: Vec<Option<Vec<u8>>> = values
                .iter()
                .map(|value| (!value.is_null()).then(|| bytes_of(value)))
                .collect();
            prop_assert_eq!(rows_of(column.as_ref()), expected);
        }
    }
}
