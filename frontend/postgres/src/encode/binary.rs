//! Values in the binary format.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DecimalType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use bytes::{BufMut, BytesMut};
use partita_frontend::civil::{EPOCH_DAYS, EPOCH_MICROS, per_second};
use partita_frontend::value_text::{ValueWriter, bytes_of, interval_parts, shown, strings, ticks};
use partita_frontend::{SqlError, Zone};
use pgwire::api::Type;

use super::Column;
use crate::types;

const MILLIS_PER_DAY: i64 = 86_400_000;
/// Decimal digits in one digit of a numeric.
const NUMERIC_DIGITS: usize = 4;
const NUMERIC_NEGATIVE: u16 = 0x4000;

macro_rules! number {
    ($array:expr, $of:ty, $put:ident, $as:ty) => {{
        let array = $array.as_primitive::<$of>().clone();
        Box::new(move |row, out: &mut BytesMut| {
            out.$put(<$as>::from(array.value(row)));
            Ok(())
        })
    }};
}

/// A function that writes the values of a column.
pub(super) fn writer(array: &ArrayRef, zone: Zone) -> Result<ValueWriter, SqlError> {
    Ok(match array.data_type() {
        DataType::Boolean => {
            let array = array.as_boolean().clone();
            Box::new(move |row, buffer| {
                buffer.put_u8(u8::from(array.value(row)));
                Ok(())
            })
        }
        DataType::Int8 => number!(array, Int8Type, put_i16, i16),
        DataType::Int16 => number!(array, Int16Type, put_i16, i16),
        DataType::UInt8 => number!(array, UInt8Type, put_i16, i16),
        DataType::Int32 => number!(array, Int32Type, put_i32, i32),
        DataType::UInt16 => number!(array, UInt16Type, put_i32, i32),
        DataType::Int64 => number!(array, Int64Type, put_i64, i64),
        DataType::UInt32 => number!(array, UInt32Type, put_i64, i64),
        DataType::UInt64 => {
            let array = array.as_primitive::<UInt64Type>().clone();
            Box::new(move |row, buffer| numeric(buffer, &array.value(row).to_string()))
        }
        DataType::Float16 => number!(array, Float16Type, put_f32, f32),
        DataType::Float32 => number!(array, Float32Type, put_f32, f32),
        DataType::Float64 => number!(array, Float64Type, put_f64, f64),
        DataType::Decimal32(..) => decimal::<Decimal32Type>(array),
        DataType::Decimal64(..) => decimal::<Decimal64Type>(array),
        DataType::Decimal128(..) => decimal::<Decimal128Type>(array),
        DataType::Decimal256(..) => decimal::<Decimal256Type>(array),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => strings(array)?,
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => {
            let value = bytes_of(array)?;
            Box::new(move |row, buffer| {
                value(row, &mut |bytes| buffer.extend_from_slice(bytes));
                Ok(())
            })
        }
        DataType::Date32 => {
            let array = array.as_primitive::<Date32Type>().clone();
            Box::new(move |row, buffer| date(buffer, i64::from(array.value(row))))
        }
        DataType::Date64 => {
            let array = array.as_primitive::<Date64Type>().clone();
            Box::new(move |row, buffer| date(buffer, array.value(row).div_euclid(MILLIS_PER_DAY)))
        }
        DataType::Timestamp(unit, _) => {
            let per_second = per_second(*unit);
            let ticks = ticks(array)?;
            Box::new(move |row, buffer| timestamp(buffer, ticks.value(row), per_second))
        }
        DataType::Time32(unit) | DataType::Time64(unit) => {
            let per_second = i128::from(per_second(*unit));
            let ticks = ticks(array)?;
            Box::new(move |row, buffer| {
                let micros = i128::from(ticks.value(row)) * 1_000_000 / per_second;
                buffer.put_i64(i64::try_from(micros).map_err(|_| out_of_range("time"))?);
                Ok(())
            })
        }
        DataType::Interval(_) | DataType::Duration(_) => {
            let parts = interval_parts(array)?;
            Box::new(move |row, buffer| {
                let (months, days, micros) = parts(row);
                buffer.put_i64(micros);
                buffer.put_i32(days);
                buffer.put_i32(months);
                Ok(())
            })
        }
        DataType::List(item) => list(array, &types::of_field(item), zone)?,
        // Every value is NULL, so nothing is ever written.
        DataType::Null => Box::new(|_, _| Ok(())),
        _ => shown(array)?,
    })
}

fn out_of_range(kind: &str) -> SqlError {
    SqlError::new("22008", format!("{kind} out of range in the binary format"))
        .with_hint("request the result in the text format")
}

fn date(buffer: &mut BytesMut, days: i64) -> Result<(), SqlError> {
    let days = i32::try_from(days - i64::from(EPOCH_DAYS)).map_err(|_| out_of_range("date"))?;
    buffer.put_i32(days);
    Ok(())
}

/// Microseconds since 2000; finer digits are cut off towards the past.
fn timestamp(buffer: &mut BytesMut, ticks: i64, per_second: i64) -> Result<(), SqlError> {
    let micros = (i128::from(ticks) * 1_000_000).div_euclid(i128::from(per_second));
    let micros =
        i64::try_from(micros - i128::from(EPOCH_MICROS)).map_err(|_| out_of_range("timestamp"))?;
    buffer.put_i64(micros);
    Ok(())
}

fn decimal<T: DecimalType>(array: &ArrayRef) -> ValueWriter
where
    T::Native: Send,
{
    let array = array.as_primitive::<T>().clone();
    Box::new(move |row, buffer| numeric(buffer, &array.value_as_string(row)))
}

/// Writes a numeric from its decimal digits: groups of four, with the weight of the first.
pub(crate) fn numeric(buffer: &mut BytesMut, text: &str) -> Result<(), SqlError> {
    let internal = || SqlError::internal(format!("{text} is no number"));
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.trim_start_matches('0');
    // Padded with zeros at both ends, so that the point lies between groups.
    let mut padded = String::with_capacity(whole.len() + fraction.len() + 2 * NUMERIC_DIGITS);
    let whole_groups = whole.len().div_ceil(NUMERIC_DIGITS);
    padded.extend(std::iter::repeat_n('0', whole_groups * NUMERIC_DIGITS - whole.len()));
    padded.push_str(whole);
    padded.push_str(fraction);
    let missing = padded.len().next_multiple_of(NUMERIC_DIGITS) - padded.len();
    padded.extend(std::iter::repeat_n('0', missing));

    let groups = padded
        .as_bytes()
        .chunks(NUMERIC_DIGITS)
        .map(|group| std::str::from_utf8(group).ok().and_then(|group| group.parse::<i16>().ok()))
        .collect::<Option<Vec<i16>>>()
        .ok_or_else(internal)?;
    // Zero groups at either end are omitted.
    let first = groups.iter().position(|group| *group != 0).unwrap_or(groups.len());
    let last = groups.iter().rposition(|group| *group != 0).map_or(first, |last| last + 1);
    let significant = &groups[first..last];
    let weight = if significant.is_empty() {
        0
    } else {
        i16::try_from(whole_groups).map_err(|_| internal())?
            - 1
            - i16::try_from(first).map_err(|_| internal())?
    };
    // The header, then the groups.
    buffer.put_i16(i16::try_from(significant.len()).map_err(|_| internal())?);
    buffer.put_i16(weight);
    buffer.put_u16(if negative && !significant.is_empty() { NUMERIC_NEGATIVE } else { 0 });
    buffer.put_i16(i16::try_from(fraction.len()).map_err(|_| internal())?);
    for group in significant {
        buffer.put_i16(*group);
    }
    Ok(())
}

/// A function that writes the values of a column that was described as this type, which tells more of arrays than
/// Arrow's type does.
pub(super) fn writer_of(
    array: &ArrayRef,
    described: &Type,
    zone: Zone,
) -> Result<ValueWriter, SqlError> {
    match (types::element(described), array.data_type()) {
        (Some(element), DataType::List(_)) => list(array, element, zone),
        _ if *described == Type::JSONB => Ok(versioned(writer(array, zone)?)),
        _ => writer(array, zone),
    }
}

/// Writes JSONB: the version of the form, then the text.
fn versioned(text: ValueWriter) -> ValueWriter {
    Box::new(move |row, buffer| {
        buffer.put_u8(types::JSONB_VERSION);
        text(row, buffer)
    })
}

/// Writes arrays: dimensions, whether there is a NULL, the type of the elements, then the elements.
fn list(array: &ArrayRef, element: &Type, zone: Zone) -> Result<ValueWriter, SqlError> {
    let lists = array.as_list::<i32>().clone();
    if matches!(lists.values().data_type(), DataType::List(_)) {
        return Err(SqlError::unsupported("a list of lists in the binary format")
            .with_hint("request the result in the text format"));
    }
    let items = Column::binary(lists.values(), element, zone)?;
    let element = element.oid();
    Ok(Box::new(move |row, buffer| {
        // An empty array has no dimensions.
        let offsets = lists.value_offsets();
        let (start, end) = (offsets[row], offsets[row + 1]);
        if start == end {
            buffer.put_i32(0);
            buffer.put_i32(0);
            buffer.put_u32(element);
            return Ok(());
        }
        let index = |offset: i32| {
            usize::try_from(offset).map_err(|_| SqlError::internal("a list before its start"))
        };
        // One dimension, counted from 1.
        let range = index(start)?..index(end)?;
        let has_null = range.clone().any(|index| items.is_null(index));
        buffer.put_i32(1);
        buffer.put_i32(i32::from(has_null));
        buffer.put_u32(element);
        buffer.put_i32(end - start);
        buffer.put_i32(1);
        for index in range {
            items.put(index, buffer)?;
        }
        Ok(())
    }))
}
