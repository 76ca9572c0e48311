//! Values as PostgreSQL writes them: what its output functions make of each type.
//!
//! The door sends values so, and casts to TEXT, `||`, `concat` and `array_to_string` use the same (`value_texts.rs`).

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

use crate::civil;
use crate::error::SqlError;
use crate::zone::Zone;

const MILLIS_PER_DAY: i64 = 86_400_000;
const MICROS_PER_DAY: i128 = 86_400_000_000;

/// Above this, PostgreSQL writes a double with an exponent; of a real it is 6 digits.
const FLOAT8_DIGITS: i32 = 15;
const FLOAT4_DIGITS: i32 = 6;
/// Writes the value of one row, which is not NULL.
pub type ValueWriter = Box<dyn Fn(usize, &mut BytesMut) -> Result<(), SqlError> + Send>;

/// Gives the bytes of one row, which is not NULL, to a function.
pub type BytesReader = Box<dyn Fn(usize, &mut dyn FnMut(&[u8])) + Send>;

/// Gives months, days and microseconds of one row.
pub type IntervalReader = Box<dyn Fn(usize) -> (i32, i32, i64) + Send>;

/// One column, ready to be written.
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

    /// Whether a row is NULL.
    pub fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Writes the value of a row, which is not NULL.
    ///
    /// # Errors
    /// When the value has no text.
    pub fn write(&self, row: usize, out: &mut BytesMut) -> Result<(), SqlError> {
        (self.write)(row, out)
    }
}

/// Writes the values of a column without dictionaries, runs and views of lists (`plain`).
///
/// # Errors
/// When Arrow cannot show the type.
pub fn writer(array: &ArrayRef, zone: Zone) -> Result<ValueWriter, SqlError> {
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
            let value = bytes_of(array)?;
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

/// Text into a buffer that grows.
fn put(out: &mut BytesMut, text: std::fmt::Arguments<'_>) -> Result<(), SqlError> {
    out.write_fmt(text).map_err(|_| SqlError::internal("a buffer did not grow"))
}

fn number<T>(array: &ArrayRef) -> ValueWriter
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

fn decimal<T: DecimalType>(array: &ArrayRef) -> ValueWriter
where
    T::Native: Send,
{
    let array = array.as_primitive::<T>().clone();
    Box::new(move |row, out| {
        out.extend_from_slice(array.value_as_string(row).as_bytes());
        Ok(())
    })
}

/// Strings are the same in the text and the binary format.
///
/// # Errors
/// For arrays of other types.
pub fn strings(array: &ArrayRef) -> Result<ValueWriter, SqlError> {
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
fn list(array: &ArrayRef, zone: Zone) -> Result<ValueWriter, SqlError> {
    let lists = array.as_list::<i32>().clone();
    let items = TextColumn::new(lists.values(), zone)?;
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
            items.write(at, &mut item)?;
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
fn record(array: &ArrayRef, zone: Zone) -> Result<ValueWriter, SqlError> {
    let fields = array.as_struct().columns().iter();
    let fields: Vec<TextColumn> =
        fields.map(|field| TextColumn::new(field, zone)).collect::<Result<_, _>>()?;
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
            field.write(row, &mut item)?;
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

/// The array without dictionaries, runs and views of lists.
///
/// # Errors
/// When a list is too large for one with offsets of 32 bits.
pub fn plain(array: &ArrayRef) -> Result<ArrayRef, SqlError> {
    let to = match array.data_type() {
        DataType::Dictionary(_, values) => values.as_ref().clone(),
        DataType::RunEndEncoded(_, values) => values.data_type().clone(),
        DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => DataType::List(Arc::clone(item)),
        _ => return Ok(Arc::clone(array)),
    };
    let array = arrow::compute::cast(array, &to)?;
    // A dictionary's values may be a list of dictionaries.
    plain(&array)
}

/// Reads the bytes of rows.
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
        other => return Err(SqlError::internal(format!("{other} is no bytes"))),
    })
}

/// Reads the months, days and microseconds of intervals and durations.
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
                (value.months, value.days, value.nanoseconds / 1_000)
            })
        }
        DataType::Duration(unit) => {
            let per_second = civil::per_second(*unit);
            let array = arrow::compute::cast(array, &DataType::Int64)?;
            let array = array.as_primitive::<Int64Type>().clone();
            Box::new(move |row| {
                let micros = i128::from(array.value(row)) * 1_000_000 / i128::from(per_second);
                // PostgreSQL's difference of two times is in days, too.
                let days = i32::try_from(micros / MICROS_PER_DAY).unwrap_or(i32::MAX);
                let rest = micros - i128::from(days) * MICROS_PER_DAY;
                (0, days, i64::try_from(rest).unwrap_or(if rest < 0 { i64::MIN } else { i64::MAX }))
            })
        }
        other => return Err(SqlError::internal(format!("{other} is no interval"))),
    })
}

/// Writes values as Arrow shows them; for types that PostgreSQL does not have.
///
/// # Errors
/// When Arrow cannot show the type.
pub fn shown(array: &ArrayRef) -> Result<ValueWriter, SqlError> {
    let array = Arc::clone(array);
    // Checked here, so that a type that cannot be shown is an error of the batch.
    arrow::util::display::ArrayFormatter::try_new(array.as_ref(), &Default::default())?;
    Ok(Box::new(move |row, out| {
        let text = arrow::util::display::array_value_to_string(array.as_ref(), row)?;
        out.extend_from_slice(text.as_bytes());
        Ok(())
    }))
}
