//! Values in the text format.

use std::fmt::{Display, LowerExp, Write};

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DecimalType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use bytes::{BufMut, BytesMut};
use partita_frontend::{SqlError, Zone, civil};

use super::{Column, Writer, interval_parts, shown};
use pgwire::api::results::FieldFormat;

const MILLIS_PER_DAY: i64 = 86_400_000;

/// Above this, PostgreSQL writes a double with an exponent; of a real it is 6 digits.
const FLOAT8_DIGITS: i32 = 15;
const FLOAT4_DIGITS: i32 = 6;

/// Writes the values of a column.
pub(super) fn writer(array: &ArrayRef, zone: Zone) -> Result<Writer, SqlError> {
    Ok(match array.data_type() {
        DataType::Boolean => {
            let array = array.as_boolean().clone();
            Box::new(move |row, out| {
                out.put_u8(if array.value(row) { b't' } else { b'f' });
                Ok(())
            })
        }
        DataType::Int8 => number::<Int8Type>(array),
        DataType::Int16 => number::<Int16Type>(array),
        DataType::Int32 => number::<Int32Type>(array),
        DataType::Int64 => number::<Int64Type>(array),
        DataType::UInt8 => number::<UInt8Type>(array),
        DataType::UInt16 => number::<UInt16Type>(array),
        DataType::UInt32 => number::<UInt32Type>(array),
        DataType::UInt64 => number::<UInt64Type>(array),
        DataType::Float16 => {
            let array = array.as_primitive::<Float16Type>().clone();
            Box::new(move |row, out| float(out, f32::from(array.value(row)), FLOAT4_DIGITS))
        }
        DataType::Float32 => {
            let array = array.as_primitive::<Float32Type>().clone();
            Box::new(move |row, out| float(out, array.value(row), FLOAT4_DIGITS))
        }
        DataType::Float64 => {
            let array = array.as_primitive::<Float64Type>().clone();
            Box::new(move |row, out| float(out, array.value(row), FLOAT8_DIGITS))
        }
        DataType::Decimal32(..) => decimal::<Decimal32Type>(array),
        DataType::Decimal64(..) => decimal::<Decimal64Type>(array),
        DataType::Decimal128(..) => decimal::<Decimal128Type>(array),
        DataType::Decimal256(..) => decimal::<Decimal256Type>(array),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => strings(array)?,
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => {
            let value = super::binary::bytes_of(array)?;
            Box::new(move |row, out| {
                value(row, &mut |bytes| hex(out, bytes));
                Ok(())
            })
        }
        DataType::Date32 => {
            let array = array.as_primitive::<Date32Type>().clone();
            Box::new(move |row, out| {
                civil::date(out, i64::from(array.value(row)));
                Ok(())
            })
        }
        DataType::Date64 => {
            let array = array.as_primitive::<Date64Type>().clone();
            Box::new(move |row, out| {
                civil::date(out, array.value(row).div_euclid(MILLIS_PER_DAY));
                Ok(())
            })
        }
        DataType::Timestamp(unit, named) => {
            let (unit, zone) = (*unit, named.as_ref().map(|_| zone));
            let ticks = ticks(array)?;
            Box::new(move |row, out| {
                civil::timestamp(out, ticks.value(row), unit, zone);
                Ok(())
            })
        }
        DataType::Time32(unit) | DataType::Time64(unit) => {
            let unit = *unit;
            let ticks = ticks(array)?;
            Box::new(move |row, out| {
                civil::time(out, ticks.value(row), unit);
                Ok(())
            })
        }
        DataType::Interval(_) | DataType::Duration(_) => {
            let parts = interval_parts(array)?;
            Box::new(move |row, out| {
                let (months, days, micros) = parts(row);
                civil::interval(out, months, days, micros);
                Ok(())
            })
        }
        DataType::List(_) => list(array, zone)?,
        DataType::Struct(_) => record(array, zone)?,
        // Every value is NULL, so nothing is ever written.
        DataType::Null => Box::new(|_, _| Ok(())),
        _ => shown(array)?,
    })
}

/// The ticks of timestamps and times, whatever their unit.
pub(super) fn ticks(array: &ArrayRef) -> Result<arrow::array::Int64Array, SqlError> {
    let array = match array.data_type() {
        DataType::Time32(_) => {
            let narrow = arrow::compute::cast(array, &DataType::Int32)?;
            arrow::compute::cast(&narrow, &DataType::Int64)?
        }
        _ => arrow::compute::cast(array, &DataType::Int64)?,
    };
    Ok(array.as_primitive::<Int64Type>().clone())
}

/// Text into a buffer that grows.
fn put(out: &mut BytesMut, text: std::fmt::Arguments<'_>) -> Result<(), SqlError> {
    out.write_fmt(text).map_err(|_| SqlError::internal("a buffer did not grow"))
}

fn number<T>(array: &ArrayRef) -> Writer
where
    T: ArrowPrimitiveType,
    T::Native: Display + Send,
{
    let array = array.as_primitive::<T>().clone();
    Box::new(move |row, out| put(out, format_args!("{}", array.value(row))))
}

/// The shortest digits that give the same number back; an exponent where PostgreSQL has one.
fn float<F>(out: &mut BytesMut, value: F, digits: i32) -> Result<(), SqlError>
where
    F: Display + LowerExp + Into<f64> + Copy,
{
    let wide: f64 = value.into();
    if wide.is_nan() {
        out.extend_from_slice(b"NaN");
        return Ok(());
    }
    if wide.is_infinite() {
        out.extend_from_slice(if wide < 0.0 { b"-Infinity" } else { b"Infinity" });
        return Ok(());
    }
    let size = wide.abs();
    // Most numbers are far from both bounds.
    let plain = size == 0.0 || (1e-4..1e5).contains(&size);
    if plain {
        return put(out, format_args!("{value}"));
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return put(out, format_args!("{value}"));
    };
    let exponent: i32 =
        exponent.parse().map_err(|_| SqlError::internal("a float without an exponent"))?;
    if (-4..digits).contains(&exponent) {
        return put(out, format_args!("{value}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    put(out, format_args!("{mantissa}e{sign}{:02}", exponent.abs()))
}

fn decimal<T: DecimalType>(array: &ArrayRef) -> Writer
where
    T::Native: Send,
{
    let array = array.as_primitive::<T>().clone();
    Box::new(move |row, out| {
        out.extend_from_slice(array.value_as_string(row).as_bytes());
        Ok(())
    })
}

/// Strings are the same in both formats.
pub(super) fn strings(array: &ArrayRef) -> Result<Writer, SqlError> {
    Ok(match array.data_type() {
        DataType::Utf8 => {
            let array = array.as_string::<i32>().clone();
            Box::new(move |row, out| {
                out.extend_from_slice(array.value(row).as_bytes());
                Ok(())
            })
        }
        DataType::LargeUtf8 => {
            let array = array.as_string::<i64>().clone();
            Box::new(move |row, out| {
                out.extend_from_slice(array.value(row).as_bytes());
                Ok(())
            })
        }
        DataType::Utf8View => {
            let array = array.as_string_view().clone();
            Box::new(move |row, out| {
                out.extend_from_slice(array.value(row).as_bytes());
                Ok(())
            })
        }
        other => return Err(SqlError::internal(format!("{other} is no string"))),
    })
}

fn hex(out: &mut BytesMut, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.reserve(2 + bytes.len() * 2);
    out.extend_from_slice(b"\\x");
    for byte in bytes {
        out.put_u8(DIGITS[usize::from(byte >> 4)]);
        out.put_u8(DIGITS[usize::from(byte & 15)]);
    }
}

/// `{a,b,"c d",NULL}`.
fn list(array: &ArrayRef, zone: Zone) -> Result<Writer, SqlError> {
    let lists = array.as_list::<i32>().clone();
    let items = Column::new(lists.values(), FieldFormat::Text, zone)?;
    let nested = matches!(lists.values().data_type(), DataType::List(_));
    Ok(Box::new(move |row, out| {
        let offsets = lists.value_offsets();
        let range = (offsets[row], offsets[row + 1]);
        out.put_u8(b'{');
        let mut item = BytesMut::new();
        for at in range.0..range.1 {
            if at > range.0 {
                out.put_u8(b',');
            }
            let at =
                usize::try_from(at).map_err(|_| SqlError::internal("a list before its start"))?;
            if items.is_null(at) {
                out.extend_from_slice(b"NULL");
                continue;
            }
            item.clear();
            (items.write)(at, &mut item)?;
            if nested || !needs_quotes(&item) {
                out.extend_from_slice(&item);
                continue;
            }
            out.put_u8(b'"');
            for byte in &item {
                if matches!(byte, b'"' | b'\\') {
                    out.put_u8(b'\\');
                }
                out.put_u8(*byte);
            }
            out.put_u8(b'"');
        }
        out.put_u8(b'}');
        Ok(())
    }))
}

/// `(1,,"c d",t)`: a row, in which nothing stands for NULL.
fn record(array: &ArrayRef, zone: Zone) -> Result<Writer, SqlError> {
    let fields = array.as_struct().columns().iter();
    let fields: Vec<Column> = fields
        .map(|field| Column::new(field, FieldFormat::Text, zone))
        .collect::<Result<_, _>>()?;
    Ok(Box::new(move |row, out| {
        out.put_u8(b'(');
        let mut item = BytesMut::new();
        for (position, field) in fields.iter().enumerate() {
            if position > 0 {
                out.put_u8(b',');
            }
            if field.is_null(row) {
                continue;
            }
            item.clear();
            (field.write)(row, &mut item)?;
            let special = |byte: &u8| {
                matches!(byte, b'(' | b')' | b',' | b'"' | b'\\') || byte.is_ascii_whitespace()
            };
            if !item.is_empty() && !item.iter().any(special) {
                out.extend_from_slice(&item);
                continue;
            }
            out.put_u8(b'"');
            for byte in &item {
                if matches!(byte, b'"' | b'\\') {
                    out.put_u8(*byte);
                }
                out.put_u8(*byte);
            }
            out.put_u8(b'"');
        }
        out.put_u8(b')');
        Ok(())
    }))
}

fn needs_quotes(item: &[u8]) -> bool {
    item.is_empty()
        || item.eq_ignore_ascii_case(b"null")
        || item.iter().any(|byte| {
            matches!(byte, b'{' | b'}' | b',' | b'"' | b'\\') || byte.is_ascii_whitespace()
        })
}
