//! Values formatted as by PostgreSQL's output functions, for each type.
//!
//! The PostgreSQL protocol sends values in this form, and casts to TEXT, `||`, `concat` and `array_to_string` use it
//! too (`value_texts.rs`).

use std::fmt::{Display, LowerExp, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DecimalType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use bytes::{BufMut, BytesMut};
use partita_proto::schema::UUID;
use partita_proto::uuid;

use crate::civil;
use crate::error::SqlError;
use crate::zone::Zone;

const MILLIS_PER_DAY: i64 = 86_400_000;
const MICROS_PER_DAY: i128 = 86_400_000_000;

/// Digits above which PostgreSQL writes a double, or a real, with an exponent.
const FLOAT8_DIGITS: i32 = 15;
const FLOAT4_DIGITS: i32 = 6;
/// Writes the value of one row, which is not NULL.
pub type ValueWriter = Box<dyn Fn(usize, &mut BytesMut) -> Result<(), SqlError> + Send>;

/// Passes the bytes of one row, which is not NULL, to a function.
pub type BytesReader = Box<dyn Fn(usize, &mut dyn FnMut(&[u8])) + Send>;

/// Returns months, days and microseconds of one row.
pub type IntervalReader = Box<dyn Fn(usize) -> (i32, i32, i64) + Send>;

/// A column that can be written as text.
pub struct TextColumn {
    nulls: Option<NullBuffer>,
    write: ValueWriter,
}

impl std::fmt::Debug for TextColumn {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("TextColumn").field("nulls", &self.nulls).finish_non_exhaustive()
    }
}

impl TextColumn {
    /// A column whose instants are shown in `zone`.
    ///
    /// # Errors
    /// When Arrow cannot show the type.
    pub fn new(array: &ArrayRef, zone: Zone) -> Result<Self, SqlError> {
        let array = plain(array)?;
        let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        let write = writer(&array, zone)?;
        Ok(Self { nulls, write })
    }

    /// Returns true if a row is NULL.
    pub fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Writes the value of a row, which is not NULL.
    ///
    /// # Errors
    /// When the value has no text.
    pub fn write(&self, row: usize, buffer: &mut BytesMut) -> Result<(), SqlError> {
        (self.write)(row, buffer)
    }
}

/// Makes a writer for a column without dictionaries, runs and list views (see `plain`).
///
/// # Errors
/// When Arrow cannot show the type.
pub fn writer(array: &ArrayRef, zone: Zone) -> Result<ValueWriter, SqlError> {
    Ok(match array.data_type() {
        DataType::Boolean => {
            let array = array.as_boolean().clone();
            Box::new(move |row, buffer| {
                buffer.put_u8(if array.value(row) { b't' } else { b'f' });
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
            Box::new(move |row, buffer| float(buffer, f32::from(array.value(row)), FLOAT4_DIGITS))
        }
        DataType::Float32 => {
            let array = array.as_primitive::<Float32Type>().clone();
            Box::new(move |row, buffer| float(buffer, array.value(row), FLOAT4_DIGITS))
        }
        DataType::Float64 => {
            let array = array.as_primitive::<Float64Type>().clone();
            Box::new(move |row, buffer| float(buffer, array.value(row), FLOAT8_DIGITS))
        }
        DataType::Decimal32(..) => decimal::<Decimal32Type>(array),
        DataType::Decimal64(..) => decimal::<Decimal64Type>(array),
        DataType::Decimal128(..) => decimal::<Decimal128Type>(array),
        DataType::Decimal256(..) => decimal::<Decimal256Type>(array),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => strings(array)?,
        &UUID => {
            let value = bytes_of(array)?;
            Box::new(move |row, buffer| {
                value(row, &mut |bytes| uuid::write(bytes, |character| buffer.put_u8(character)));
                Ok(())
            })
        }
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => {
            let value = bytes_of(array)?;
            Box::new(move |row, buffer| {
                value(row, &mut |bytes| hex(buffer, bytes));
                Ok(())
            })
        }
        DataType::Date32 => {
            let array = array.as_primitive::<Date32Type>().clone();
            Box::new(move |row, buffer| {
                civil::date(buffer, i64::from(array.value(row)));
                Ok(())
            })
        }
        DataType::Date64 => {
            let array = array.as_primitive::<Date64Type>().clone();
            Box::new(move |row, buffer| {
                civil::date(buffer, array.value(row).div_euclid(MILLIS_PER_DAY));
                Ok(())
            })
        }
        DataType::Timestamp(unit, type_zone) => {
            let (unit, zone) = (*unit, type_zone.as_ref().map(|_| zone));
            let ticks = ticks(array)?;
            Box::new(move |row, buffer| {
                civil::timestamp(buffer, ticks.value(row), unit, zone);
                Ok(())
            })
        }
        DataType::Time32(unit) | DataType::Time64(unit) => {
            let unit = *unit;
            let ticks = ticks(array)?;
            Box::new(move |row, buffer| {
                civil::time(buffer, ticks.value(row), unit);
                Ok(())
            })
        }
        DataType::Interval(_) | DataType::Duration(_) => {
            let parts = interval_parts(array)?;
            Box::new(move |row, buffer| {
                let (months, days, micros) = parts(row);
                civil::interval(buffer, months, days, micros);
                Ok(())
            })
        }
        DataType::List(_) => list(array, zone)?,
        DataType::Struct(_) => record(array, zone)?,
        // Every value is NULL, so that nothing is ever written.
        DataType::Null => Box::new(|_, _| Ok(())),
        _ => shown(array)?,
    })
}

/// Ticks of timestamps and times, in their own unit.
///
/// # Errors
/// For arrays of other types.
pub fn ticks(array: &ArrayRef) -> Result<arrow::array::Int64Array, SqlError> {
    let array = match array.data_type() {
        DataType::Time32(_) => {
            let narrow = arrow::compute::cast(array, &DataType::Int32)?;
            arrow::compute::cast(&narrow, &DataType::Int64)?
        }
        _ => arrow::compute::cast(array, &DataType::Int64)?,
    };
    Ok(array.as_primitive::<Int64Type>().clone())
}

/// Writes formatted text to the buffer.
fn put(buffer: &mut BytesMut, text: std::fmt::Arguments<'_>) -> Result<(), SqlError> {
    buffer.write_fmt(text).map_err(|_| SqlError::internal("could not write to a buffer"))
}

fn number<T>(array: &ArrayRef) -> ValueWriter
where
    T: ArrowPrimitiveType,
    T::Native: Display + Send,
{
    let array = array.as_primitive::<T>().clone();
    Box::new(move |row, buffer| put(buffer, format_args!("{}", array.value(row))))
}

/// Writes the shortest digits that parse to the same number, with an exponent where PostgreSQL has one.
fn float<F>(buffer: &mut BytesMut, value: F, digits: i32) -> Result<(), SqlError>
where
    F: Display + LowerExp + Into<f64> + Copy,
{
    let wide: f64 = value.into();
    if wide.is_nan() {
        buffer.extend_from_slice(b"NaN");
        return Ok(());
    }
    if wide.is_infinite() {
        buffer.extend_from_slice(if wide < 0.0 { b"-Infinity" } else { b"Infinity" });
        return Ok(());
    }
    let size = wide.abs();
    // Most numbers are far from both bounds.
    let plain = size == 0.0 || (1e-4..1e5).contains(&size);
    if plain {
        return put(buffer, format_args!("{value}"));
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return put(buffer, format_args!("{value}"));
    };
    let exponent: i32 =
        exponent.parse().map_err(|_| SqlError::internal("a float without an exponent"))?;
    if (-4..digits).contains(&exponent) {
        return put(buffer, format_args!("{value}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    put(buffer, format_args!("{mantissa}e{sign}{:02}", exponent.abs()))
}

fn decimal<T: DecimalType>(array: &ArrayRef) -> ValueWriter
where
    T::Native: Send,
{
    let array = array.as_primitive::<T>().clone();
    Box::new(move |row, buffer| {
        buffer.extend_from_slice(array.value_as_string(row).as_bytes());
        Ok(())
    })
}

/// Makes a writer of strings, which have the same text and binary format.
///
/// # Errors
/// For arrays of other types.
pub fn strings(array: &ArrayRef) -> Result<ValueWriter, SqlError> {
    Ok(match array.data_type() {
        DataType::Utf8 => {
            let array = array.as_string::<i32>().clone();
            Box::new(move |row, buffer| {
                buffer.extend_from_slice(array.value(row).as_bytes());
                Ok(())
            })
        }
        DataType::LargeUtf8 => {
            let array = array.as_string::<i64>().clone();
            Box::new(move |row, buffer| {
                buffer.extend_from_slice(array.value(row).as_bytes());
                Ok(())
            })
        }
        DataType::Utf8View => {
            let array = array.as_string_view().clone();
            Box::new(move |row, buffer| {
                buffer.extend_from_slice(array.value(row).as_bytes());
                Ok(())
            })
        }
        data_type => return Err(SqlError::internal(format!("{data_type} is not a string type"))),
    })
}

fn hex(buffer: &mut BytesMut, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    buffer.reserve(2 + bytes.len() * 2);
    buffer.extend_from_slice(b"\\x");
    for byte in bytes {
        buffer.put_u8(DIGITS[usize::from(byte >> 4)]);
        buffer.put_u8(DIGITS[usize::from(byte & 15)]);
    }
}

/// Writes an array, as `{a,b,"c d",NULL}`.
fn list(array: &ArrayRef, zone: Zone) -> Result<ValueWriter, SqlError> {
    let lists = array.as_list::<i32>().clone();
    let items = TextColumn::new(lists.values(), zone)?;
    let nested = matches!(lists.values().data_type(), DataType::List(_));
    Ok(Box::new(move |row, buffer| {
        let offsets = lists.value_offsets();
        let range = (offsets[row], offsets[row + 1]);
        buffer.put_u8(b'{');
        let mut item = BytesMut::new();
        for position in range.0..range.1 {
            if position > range.0 {
                buffer.put_u8(b',');
            }
            let position = usize::try_from(position)
                .map_err(|_| SqlError::internal("negative list offset"))?;
            // NULL is a bare word; an element is quoted where it would not parse back.
            if items.is_null(position) {
                buffer.extend_from_slice(b"NULL");
                continue;
            }
            item.clear();
            items.write(position, &mut item)?;
            if nested || !needs_quotes(&item) {
                buffer.extend_from_slice(&item);
                continue;
            }
            buffer.put_u8(b'"');
            for byte in &item {
                if matches!(byte, b'"' | b'\\') {
                    buffer.put_u8(b'\\');
                }
                buffer.put_u8(*byte);
            }
            buffer.put_u8(b'"');
        }
        buffer.put_u8(b'}');
        Ok(())
    }))
}

/// Writes a row, as `(1,,"c d",t)`; NULL is empty.
fn record(array: &ArrayRef, zone: Zone) -> Result<ValueWriter, SqlError> {
    let fields = array.as_struct().columns().iter();
    let fields: Vec<TextColumn> =
        fields.map(|field| TextColumn::new(field, zone)).collect::<Result<_, _>>()?;
    Ok(Box::new(move |row, buffer| {
        buffer.put_u8(b'(');
        let mut item = BytesMut::new();
        for (position, field) in fields.iter().enumerate() {
            if position > 0 {
                buffer.put_u8(b',');
            }
            if field.is_null(row) {
                continue;
            }
            item.clear();
            field.write(row, &mut item)?;
            // Quotation marks and backslashes are doubled in a row.
            let special = |byte: &u8| {
                matches!(byte, b'(' | b')' | b',' | b'"' | b'\\') || byte.is_ascii_whitespace()
            };
            if !item.is_empty() && !item.iter().any(special) {
                buffer.extend_from_slice(&item);
                continue;
            }
            buffer.put_u8(b'"');
            for byte in &item {
                if matches!(byte, b'"' | b'\\') {
                    buffer.put_u8(*byte);
                }
                buffer.put_u8(*byte);
            }
            buffer.put_u8(b'"');
        }
        buffer.put_u8(b')');
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

/// Casts dictionaries, runs and list views to plain arrays.
///
/// # Errors
/// When a list is too large for offsets of 32 bits.
pub fn plain(array: &ArrayRef) -> Result<ArrayRef, SqlError> {
    let data_type = match array.data_type() {
        DataType::Dictionary(_, values) => values.as_ref().clone(),
        DataType::RunEndEncoded(_, values) => values.data_type().clone(),
        DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => DataType::List(Arc::clone(item)),
        _ => return Ok(Arc::clone(array)),
    };
    let array = arrow::compute::cast(array, &data_type)?;
    // The values of a dictionary may be dictionaries.
    plain(&array)
}

/// Makes a reader of the bytes of rows.
///
/// # Errors
/// For arrays of other types.
pub fn bytes_of(array: &ArrayRef) -> Result<BytesReader, SqlError> {
    Ok(match array.data_type() {
        DataType::Binary => {
            let array = array.as_binary::<i32>().clone();
            Box::new(move |row, take| take(array.value(row)))
        }
        DataType::LargeBinary => {
            let array = array.as_binary::<i64>().clone();
            Box::new(move |row, take| take(array.value(row)))
        }
        DataType::BinaryView => {
            let array = array.as_binary_view().clone();
            Box::new(move |row, take| take(array.value(row)))
        }
        DataType::FixedSizeBinary(_) => {
            let array = array.as_fixed_size_binary().clone();
            Box::new(move |row, take| take(array.value(row)))
        }
        data_type => return Err(SqlError::internal(format!("{data_type} is not a binary type"))),
    })
}

/// Nanoseconds of an interval to the nearest microsecond; half a one goes away from zero.
#[must_use]
pub fn nearest_micros(nanoseconds: i64) -> i64 {
    nanoseconds / 1_000 + nanoseconds % 1_000 / 500
}

/// Makes a reader of months, days and microseconds of intervals and durations.
///
/// # Errors
/// For arrays of other types.
pub fn interval_parts(array: &ArrayRef) -> Result<IntervalReader, SqlError> {
    use arrow::datatypes::{
        IntervalDayTimeType, IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType,
    };
    Ok(match array.data_type() {
        DataType::Interval(IntervalUnit::YearMonth) => {
            let array = array.as_primitive::<IntervalYearMonthType>().clone();
            Box::new(move |row| (array.value(row), 0, 0))
        }
        DataType::Interval(IntervalUnit::DayTime) => {
            let array = array.as_primitive::<IntervalDayTimeType>().clone();
            Box::new(move |row| {
                let value = array.value(row);
                (0, value.days, i64::from(value.milliseconds) * 1_000)
            })
        }
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let array = array.as_primitive::<IntervalMonthDayNanoType>().clone();
            Box::new(move |row| {
                let value = array.value(row);
                (value.months, value.days, nearest_micros(value.nanoseconds))
            })
        }
        DataType::Duration(unit) => {
            let per_second = civil::per_second(*unit);
            let array = arrow::compute::cast(array, &DataType::Int64)?;
            let array = array.as_primitive::<Int64Type>().clone();
            Box::new(move |row| {
                let micros = i128::from(array.value(row)) * 1_000_000 / i128::from(per_second);
                // PostgreSQL's difference of two times has days too.
                let days = i32::try_from(micros / MICROS_PER_DAY).unwrap_or(i32::MAX);
                let rest = micros - i128::from(days) * MICROS_PER_DAY;
                (0, days, i64::try_from(rest).unwrap_or(if rest < 0 { i64::MIN } else { i64::MAX }))
            })
        }
        data_type => {
            return Err(SqlError::internal(format!("{data_type} is not an interval type")));
        }
    })
}

/// Makes a writer with Arrow's format, for types that PostgreSQL lacks.
///
/// # Errors
/// When Arrow cannot show the type.
pub fn shown(array: &ArrayRef) -> Result<ValueWriter, SqlError> {
    let array = Arc::clone(array);
    // Checked here, so that a type that Arrow cannot show is an error of the whole batch.
    arrow::util::display::ArrayFormatter::try_new(array.as_ref(), &Default::default())?;
    Ok(Box::new(move |row, buffer| {
        let text = arrow::util::display::array_value_to_string(array.as_ref(), row)?;
        buffer.extend_from_slice(text.as_bytes());
        Ok(())
    }))
}
