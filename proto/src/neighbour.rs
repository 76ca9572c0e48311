//! Neighbours of a value among all values of its column's type.
//!
//! Every type here is a total order in which each value has a next one: integers and decimals by counting, floats by
//! their bits, UUIDs by counting their digits, strings and bytes by appending a zero byte. So `a > 9 AND a < 10` is
//! empty for an integer but not for a float, and a set of ranges can be checked exactly for gaps. Most types also have
//! a greatest value, which has no successor.

use crate::schema::ColumnType;
use crate::uuid::UUID_BYTES;
use crate::value::Value;

/// The range of an integer type, if it is one.
pub(crate) fn integer_range(column_type: ColumnType) -> Option<(i128, i128)> {
    Some(match column_type {
        ColumnType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        ColumnType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        ColumnType::Int32 => (i32::MIN.into(), i32::MAX.into()),
        ColumnType::Int64 => (i64::MIN.into(), i64::MAX.into()),
        ColumnType::UInt8 => (u8::MIN.into(), u8::MAX.into()),
        ColumnType::UInt16 => (u16::MIN.into(), u16::MAX.into()),
        ColumnType::UInt32 => (u32::MIN.into(), u32::MAX.into()),
        ColumnType::UInt64 => (u64::MIN.into(), u64::MAX.into()),
        _ => return None,
    })
}

/// The largest unscaled value of a decimal precision.
pub(crate) fn decimal_max(precision: u8) -> i128 {
    // Arrow's decimals have at most 38 digits, which i128 represents; more cannot be declared.
    10_i128.checked_pow(u32::from(precision)).map_or(i128::MAX, |power| power - 1)
}

/// True for types whose values are counted in steps: between two values there are finitely many, few enough that "the
/// next value" means something to a person.
pub(crate) fn is_stepped(column_type: ColumnType) -> bool {
    !matches!(
        column_type,
        ColumnType::Float32
            | ColumnType::Float64
            | ColumnType::String
            | ColumnType::Binary
            | ColumnType::Uuid
    )
}

/// The smallest value of a type.
pub(crate) fn least(column_type: ColumnType) -> Value {
    if let Some((min, _)) = integer_range(column_type) {
        return integer(min, column_type);
    }
    match column_type {
        ColumnType::Float32 => Value::Float(f32_of_rank(i32::MIN)),
        ColumnType::Float64 => Value::Float(f64_of_rank(i64::MIN)),
        ColumnType::Decimal(precision, _) => Value::Decimal(-decimal_max(precision)),
        ColumnType::String => Value::String(String::new()),
        ColumnType::Binary => Value::Binary(Vec::new()),
        ColumnType::Date => Value::Date(i32::MIN),
        ColumnType::Timestamp(..) => Value::Timestamp(i64::MIN),
        ColumnType::Uuid => Value::Binary(vec![0; UUID_BYTES]),
        // Numbers beyond a day are not written, but have their place.
        ColumnType::Time => Value::Int(i64::MIN),
        _ => Value::Bool(false),
    }
}

/// The next greater value; `None` for the greatest, and for a value that is not of the type.
pub(crate) fn successor(value: &Value, column_type: ColumnType) -> Option<Value> {
    Some(match (value, column_type) {
        (Value::Bool(false), ColumnType::Bool) => Value::Bool(true),
        (Value::Int(v), ColumnType::Time) => Value::Int(v.checked_add(1)?),
        (Value::Int(_) | Value::UInt(_), _) => {
            let (_, max) = integer_range(column_type)?;
            let next = integer_value(value)? + 1;
            (next <= max).then(|| integer(next, column_type))?
        }
        (Value::Float(v), ColumnType::Float32) => {
            Value::Float(f32_of_rank(f32_rank(*v).checked_add(1)?))
        }
        (Value::Float(v), ColumnType::Float64) => {
            Value::Float(f64_of_rank(f64_rank(*v).checked_add(1)?))
        }
        (Value::Decimal(v), ColumnType::Decimal(precision, _)) => {
            (*v < decimal_max(precision)).then(|| Value::Decimal(v + 1))?
        }
        (Value::String(v), ColumnType::String) => Value::String(format!("{v}\0")),
        (Value::Binary(v), ColumnType::Binary) => {
            let mut next = v.clone();
            next.push(0);
            Value::Binary(next)
        }
        (Value::Date(v), ColumnType::Date) => Value::Date(v.checked_add(1)?),
        (Value::Timestamp(v), ColumnType::Timestamp(..)) => Value::Timestamp(v.checked_add(1)?),
        (Value::Binary(v), ColumnType::Uuid) => uuid(uuid_number(v)?.checked_add(1)?),
        _ => return None,
    })
}

/// The next smaller value; `None` for the smallest, for a string that has none (there is no greatest string below
/// `'b'`), and for a value that is not of the type.
pub(crate) fn predecessor(value: &Value, column_type: ColumnType) -> Option<Value> {
    Some(match (value, column_type) {
        (Value::Bool(true), ColumnType::Bool) => Value::Bool(false),
        (Value::Int(v), ColumnType::Time) => Value::Int(v.checked_sub(1)?),
        (Value::Int(_) | Value::UInt(_), _) => {
            let (min, _) = integer_range(column_type)?;
            let next = integer_value(value)? - 1;
            (next >= min).then(|| integer(next, column_type))?
        }
        (Value::Float(v), ColumnType::Float32) => {
            Value::Float(f32_of_rank(f32_rank(*v).checked_sub(1)?))
        }
        (Value::Float(v), ColumnType::Float64) => {
            Value::Float(f64_of_rank(f64_rank(*v).checked_sub(1)?))
        }
        (Value::Decimal(v), ColumnType::Decimal(precision, _)) => {
            (*v > -decimal_max(precision)).then(|| Value::Decimal(v - 1))?
        }
        (Value::String(v), ColumnType::String) => Value::String(v.strip_suffix('\0')?.to_owned()),
        (Value::Binary(v), ColumnType::Binary) => Value::Binary(v.strip_suffix(&[0])?.to_vec()),
        (Value::Date(v), ColumnType::Date) => Value::Date(v.checked_sub(1)?),
        (Value::Timestamp(v), ColumnType::Timestamp(..)) => Value::Timestamp(v.checked_sub(1)?),
        (Value::Binary(v), ColumnType::Uuid) => uuid(uuid_number(v)?.checked_sub(1)?),
        _ => return None,
    })
}

/// The number whose digits a UUID has.
fn uuid_number(bytes: &[u8]) -> Option<u128> {
    Some(u128::from_be_bytes(bytes.try_into().ok()?))
}

fn uuid(number: u128) -> Value {
    Value::Binary(number.to_be_bytes().to_vec())
}

/// The number of an integer value.
pub(crate) fn integer_value(value: &Value) -> Option<i128> {
    match value {
        Value::Int(v) => Some(i128::from(*v)),
        Value::UInt(v) => Some(i128::from(*v)),
        _ => None,
    }
}

/// An integer in the type's range, as a value of the type.
pub(crate) fn integer(number: i128, column_type: ColumnType) -> Value {
    let unsigned = matches!(
        column_type,
        ColumnType::UInt8 | ColumnType::UInt16 | ColumnType::UInt32 | ColumnType::UInt64
    );
    if unsigned {
        Value::UInt(u64::try_from(number).expect("the caller checked the type's range"))
    } else {
        Value::Int(i64::try_from(number).expect("the caller checked the type's range"))
    }
}

/// Rank of a float in the total order. Self-inverse on bits: for negative numbers all other bits are inverted.
fn f64_rank(value: f64) -> i64 {
    let bits = value.to_bits().cast_signed();
    if bits < 0 { bits ^ i64::MAX } else { bits }
}

fn f64_of_rank(rank: i64) -> f64 {
    let bits = if rank < 0 { rank ^ i64::MAX } else { rank };
    f64::from_bits(bits.cast_unsigned())
}

/// As `f64_rank`, for a value that fits into a 32-bit float.
fn f32_rank(value: f64) -> i32 {
    let bits = narrow(value).to_bits().cast_signed();
    if bits < 0 { bits ^ i32::MAX } else { bits }
}

fn f32_of_rank(rank: i32) -> f64 {
    let bits = if rank < 0 { rank ^ i32::MAX } else { rank };
    widen(f32::from_bits(bits.cast_unsigned()))
}

/// The 32-bit float nearest to a 64-bit one; of a NaN the sign and the leading bits.
#[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest is what it is for")]
pub(crate) fn narrow(value: f64) -> f32 {
    if !value.is_nan() {
        return value as f32;
    }
    let bits = value.to_bits();
    let mantissa = ((bits >> MANTISSA_SHIFT) & 0x007F_FFFF) as u32;
    // With all bits zero it would be an infinity.
    let mantissa = if mantissa == 0 { 1 << 22 } else { mantissa };
    f32::from_bits(((bits >> 63) as u32) << 31 | 0x7F80_0000 | mantissa)
}

/// The same number as a 64-bit float. Unlike arithmetic, this keeps the bits of a NaN, so that a value survives a round
/// trip through a column.
pub(crate) fn widen(value: f32) -> f64 {
    if !value.is_nan() {
        return f64::from(value);
    }
    let bits = u64::from(value.to_bits());
    let mantissa = (bits & 0x007F_FFFF) << MANTISSA_SHIFT;
    f64::from_bits((bits >> 31) << 63 | 0x7FF0_0000_0000_0000 | mantissa)
}

/// Shift between the mantissas: a 64-bit float has 52 bits, a 32-bit one 23.
const MANTISSA_SHIFT: u32 = 29;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_lie_next_to_each_other() {
        let cases = [
            (Value::Int(-1), ColumnType::Int8, Value::Int(0)),
            (Value::UInt(254), ColumnType::UInt8, Value::UInt(255)),
            (Value::Float(-0.0), ColumnType::Float64, Value::Float(0.0)),
            (Value::Float(-0.0), ColumnType::Float32, Value::Float(0.0)),
            (Value::Float(f64::from(f32::MAX)), ColumnType::Float32, Value::Float(f64::INFINITY)),
            (Value::Decimal(9), ColumnType::Decimal(2, 1), Value::Decimal(10)),
            (Value::String(String::new()), ColumnType::String, Value::String("\0".to_owned())),
            (Value::Binary(vec![255]), ColumnType::Binary, Value::Binary(vec![255, 0])),
            (Value::Date(-1), ColumnType::Date, Value::Date(0)),
            (uuid(0xFF), ColumnType::Uuid, uuid(0x100)),
            (Value::Int(-1), ColumnType::Time, Value::Int(0)),
        ];
        for (low, column_type, high) in cases {
            assert_eq!(successor(&low, column_type), Some(high.clone()));
            assert_eq!(predecessor(&high, column_type), Some(low));
        }
    }

    #[test]
    fn every_32_bit_float_keeps_its_bits_and_its_order() {
        let ranks = [i32::MIN, -0x7F80_0001, -0x7F80_0000, -1, 0, 0x7F7F_FFFF, 0x7F80_0000];
        for rank in ranks.into_iter().chain(0x7FBF_FFF0..0x7FC0_0010) {
            let (value, next) = (f32_of_rank(rank), f32_of_rank(rank + 1));
            assert_eq!(f32_rank(value), rank);
            assert_eq!(value.total_cmp(&next), std::cmp::Ordering::Less, "{rank:#x}");
        }
        assert!(narrow(f64::from_bits(0x7FF0_0000_0000_0001)).is_nan());
    }

    #[test]
    fn the_ends_of_a_type_have_no_neighbour_beyond() {
        assert_eq!(successor(&Value::Int(127), ColumnType::Int8), None);
        assert_eq!(successor(&Value::UInt(u64::MAX), ColumnType::UInt64), None);
        assert_eq!(successor(&Value::Bool(true), ColumnType::Bool), None);
        assert_eq!(successor(&Value::Decimal(99), ColumnType::Decimal(2, 0)), None);
        assert_eq!(successor(&Value::Timestamp(i64::MAX), ColumnType::Date), None);
        assert_eq!(successor(&uuid(u128::MAX), ColumnType::Uuid), None);
        assert_eq!(successor(&Value::Binary(vec![1]), ColumnType::Uuid), None);
        for column_type in [
            ColumnType::Bool,
            ColumnType::Int64,
            ColumnType::UInt16,
            ColumnType::Float32,
            ColumnType::Float64,
            ColumnType::Decimal(38, 2),
            ColumnType::String,
            ColumnType::Binary,
            ColumnType::Date,
            ColumnType::Uuid,
            ColumnType::Time,
        ] {
            assert_eq!(predecessor(&least(column_type), column_type), None, "{column_type:?}");
        }
    }
}
