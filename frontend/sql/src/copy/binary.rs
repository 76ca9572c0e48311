//! COPY's binary format, input: a signature, then for each row the number of its fields, and for each field its length
//! and the bytes of its type's binary form.
//!
//! Integers are accepted in two, four or eight bytes whatever the column's width, because clients send the width of
//! their own type; the range is checked. Unsigned eight-byte columns accept `int8` and `numeric`.

use partita_proto::schema::{ColumnType, Unit};
use partita_proto::uuid::UUID_BYTES;
use partita_worker::bytes::sent_text;

use super::numeric::{NumericError, read_numeric};
use super::rows::Rows;
use super::{BAD_COPY_FORMAT, Decoded};
use crate::column_builder::{ColumnBuilder, DATETIME_OVERFLOW, Integer, rescale};
use crate::error::{NUMERIC_OUT_OF_RANGE, SqlError};

const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";
/// Flags of the header that a reader must know. The only one ever defined was for row ids, which no longer exist.
const CRITICAL_FLAGS: u32 = 0xffff_0000;
/// Version of the form of JSONB, its first byte.
pub(super) const JSONB_VERSION: u8 = 1;
/// Bytes of an array before its first element.
const ARRAY_HEADER_BYTES: usize = 20;
/// Days from 1970-01-01 to 2000-01-01, PostgreSQL's epoch.
pub(super) const EPOCH_DAYS: i32 = 10_957;
/// The same span in microseconds.
pub(super) const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// The header of an outgoing stream.
pub(super) fn header() -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    header.extend_from_slice(&[0; 8]);
    header
}

#[derive(Default)]
pub(super) struct BinaryDecoder {
    begun: bool,
}

impl BinaryDecoder {
    /// Decodes the header or the row at the start of the bytes.
    pub(super) fn decode(&mut self, bytes: &[u8], rows: &mut Rows) -> Result<Decoded, SqlError> {
        if !self.begun {
            return self.header(bytes, rows);
        }
        // The number of fields, or the trailer.
        let Some(count) = bytes.first_chunk::<2>() else { return Ok(Decoded::Partial) };
        let count = i16::from_be_bytes(*count);
        if count == -1 {
            return Ok(Decoded::End(2));
        }
        if usize::try_from(count).ok() != Some(rows.width()) {
            return Err(malformed(
                rows,
                &format!("row field count is {count}, expected {}", rows.width()),
            ));
        }
        // A row is decoded once all its bytes have arrived.
        let Some(used) = row_length(bytes, rows)? else { return Ok(Decoded::Partial) };
        let mut offset = 2;
        for column in 0..rows.width() {
            let length = length_at(bytes, offset).unwrap_or(-1);
            offset += 4;
            let Ok(length) = usize::try_from(length) else {
                rows.append_null(column);
                continue;
            };
            let value = &bytes[offset..offset + length];
            offset += length;
            let is_jsonb = rows.is_jsonb(column);
            rows.append(column, |builder| {
                let value = if is_jsonb { without_version(value)? } else { value };
                read_value(value, builder)
            })?;
        }
        rows.end_row(used, 1)?;
        Ok(Decoded::Used(used))
    }

    fn header(&mut self, bytes: &[u8], rows: &Rows) -> Result<Decoded, SqlError> {
        let length_to_check = bytes.len().min(SIGNATURE.len());
        if bytes[..length_to_check] != SIGNATURE[..length_to_check] {
            return Err(malformed(rows, "COPY file signature not recognized"));
        }
        let word =
            |offset: usize| Some(u32::from_be_bytes(*bytes.get(offset..)?.first_chunk::<4>()?));
        let (Some(flags), Some(extension)) = (word(11), word(15)) else {
            return Ok(Decoded::Partial);
        };
        if flags & CRITICAL_FLAGS != 0 {
            return Err(malformed(rows, "unrecognized critical flags in COPY file header"));
        }
        let length = usize::try_from(extension)
            .ok()
            .filter(|length| *length <= super::ROW_BYTES_MAX)
            .ok_or_else(|| malformed(rows, "invalid COPY file header (wrong length)"))?;
        let used = 19 + length;
        if bytes.len() < used {
            return Ok(Decoded::Partial);
        }
        self.begun = true;
        Ok(Decoded::Used(used))
    }
}

/// The length of the row in bytes; `None` while it is incomplete.
fn row_length(bytes: &[u8], rows: &Rows) -> Result<Option<usize>, SqlError> {
    let mut end = 2_usize;
    for _ in 0..rows.width() {
        let Some(length) = length_at(bytes, end) else { return Ok(None) };
        end += 4;
        match usize::try_from(length) {
            Ok(length) if length > super::ROW_BYTES_MAX => {
                return Err(malformed(rows, "invalid field size"));
            }
            Ok(length) => end += length,
            Err(_) if length == -1 => {}
            Err(_) => return Err(malformed(rows, "invalid field size")),
        }
    }
    Ok((end <= bytes.len()).then_some(end))
}

fn length_at(bytes: &[u8], offset: usize) -> Option<i32> {
    Some(i32::from_be_bytes(*bytes.get(offset..)?.first_chunk::<4>()?))
}

fn malformed(rows: &Rows, message: &str) -> SqlError {
    rows.located(SqlError::new(BAD_COPY_FORMAT, message))
}

/// The error of bytes with the wrong length or content for the column.
fn wrong(column_type: ColumnType, length: usize) -> SqlError {
    SqlError::new(
        "22P03",
        format!("incorrect binary data format: {length} bytes for type {}", column_type.sql()),
    )
}

fn integer(value: &[u8]) -> Option<i64> {
    Some(match value {
        [a, b] => i16::from_be_bytes([*a, *b]).into(),
        [a, b, c, d] => i32::from_be_bytes([*a, *b, *c, *d]).into(),
        value => i64::from_be_bytes(*<&[u8; 8]>::try_from(value).ok()?),
    })
}

/// The text of a JSONB in its binary form.
fn without_version(value: &[u8]) -> Result<&[u8], SqlError> {
    match value.split_first() {
        Some((&JSONB_VERSION, text)) => Ok(text),
        _ => {
            Err(SqlError::new("22P03", "incorrect binary data format: unknown version of a jsonb"))
        }
    }
}

/// Appends a value in its binary form.
fn read_value(value: &[u8], builder: &mut ColumnBuilder) -> Result<(), SqlError> {
    let column_type = builder.column_type();
    let wrong = || wrong(column_type, value.len());
    // Numbers of any width.
    match column_type {
        ColumnType::Bool => match value {
            [0] => builder.append_bool(false),
            [1] => builder.append_bool(true),
            _ => Err(wrong()),
        },
        ColumnType::Int8
        | ColumnType::Int16
        | ColumnType::Int32
        | ColumnType::Int64
        | ColumnType::UInt8
        | ColumnType::UInt16
        | ColumnType::UInt32 => builder.append_integer(integer(value).ok_or_else(wrong)?.into()),
        ColumnType::UInt64 => match integer(value) {
            Some(value) => builder.append_integer(value.into()),
            None => {
                let number = numeric(value, ColumnType::Decimal(38, 0))?;
                let magnitude = u64::try_from(number.unsigned_abs()).map_err(|_| {
                    SqlError::new(
                        NUMERIC_OUT_OF_RANGE,
                        format!("value \"{number}\" is out of range"),
                    )
                })?;
                builder.append_integer(Integer { negative: number < 0, magnitude })
            }
        },
        ColumnType::Float32 | ColumnType::Float64 => match value {
            [a, b, c, d] => builder.append_float(f32::from_be_bytes([*a, *b, *c, *d]).into()),
            value => {
                let value = <&[u8; 8]>::try_from(value).map_err(|_| wrong())?;
                builder.append_float(f64::from_be_bytes(*value))
            }
        },
        // Types with a form of their own.
        ColumnType::Decimal(..) => builder.append_decimal(numeric(value, column_type)?),
        ColumnType::String => builder.append_text(sent_text(value)?, false),
        ColumnType::Binary => builder.append_bytes(value),
        ColumnType::Uuid if value.len() == UUID_BYTES => builder.append_bytes(value),
        ColumnType::Uuid => Err(wrong()),
        ColumnType::Time => {
            let value = <&[u8; 8]>::try_from(value).map_err(|_| wrong())?;
            builder.append_time(i64::from_be_bytes(*value))
        }
        ColumnType::Array(_) => read_array(value, builder),
        ColumnType::Interval => {
            let (micros, rest) = value.split_first_chunk::<8>().ok_or_else(wrong)?;
            let (days, rest) = rest.split_first_chunk::<4>().ok_or_else(wrong)?;
            let months = <&[u8; 4]>::try_from(rest).map_err(|_| wrong())?;
            let (months, days) = (i32::from_be_bytes(*months), i32::from_be_bytes(*days));
            builder.append_interval((months, days, i64::from_be_bytes(*micros)))
        }
        // Times count from 2000; the extremes of both types mean infinity, which columns do not
        // have.
        ColumnType::Date => {
            let value = <&[u8; 4]>::try_from(value).map_err(|_| wrong())?;
            let day = i32::from_be_bytes(*value);
            let infinite = day == i32::MAX || day == i32::MIN;
            match day.checked_add(EPOCH_DAYS).filter(|_| !infinite) {
                Some(day) => builder.append_day(day),
                None => Err(SqlError::new(DATETIME_OVERFLOW, "date out of range")),
            }
        }
        ColumnType::Timestamp(unit, _) => {
            let value = <&[u8; 8]>::try_from(value).map_err(|_| wrong())?;
            let micros = i64::from_be_bytes(*value);
            let infinite = micros == i64::MAX || micros == i64::MIN;
            let since_1970 = i128::from(micros) + i128::from(EPOCH_MICROS);
            match rescale(since_1970, Unit::Microsecond, unit).filter(|_| !infinite) {
                Some(ticks) => builder.append_ticks(ticks),
                None => Err(SqlError::new(DATETIME_OVERFLOW, "timestamp out of range")),
            }
        }
    }
}

/// Appends an array in its binary form: the number of dimensions, whether there is a NULL, the type of the elements, then
/// the number of elements and that of the first, and for each its length and bytes.
fn read_array(value: &[u8], builder: &mut ColumnBuilder) -> Result<(), SqlError> {
    let column_type = builder.column_type();
    let wrong = || wrong(column_type, value.len());
    let word = |offset: usize| length_at(value, offset).ok_or_else(wrong);
    let count = match word(0)? {
        0 => 0,
        1 => usize::try_from(word(12)?).map_err(|_| wrong())?,
        2..=6 => return Err(SqlError::unsupported("an array of several dimensions")),
        _ => return Err(wrong()),
    };
    let start = if count == 0 { value.len() } else { ARRAY_HEADER_BYTES };
    let mut rest = value.get(start..).ok_or_else(wrong)?;
    builder.append_elements(|elements| {
        for _ in 0..count {
            let (length, behind) = rest.split_first_chunk::<4>().ok_or_else(wrong)?;
            rest = behind;
            let length = i32::from_be_bytes(*length);
            if length == -1 {
                elements.append_null();
                continue;
            }
            let length = usize::try_from(length).map_err(|_| wrong())?;
            let (element, behind) = rest.split_at_checked(length).ok_or_else(wrong)?;
            rest = behind;
            read_value(element, elements)?;
        }
        if rest.is_empty() { Ok(()) } else { Err(wrong()) }
    })
}

fn numeric(value: &[u8], column_type: ColumnType) -> Result<i128, SqlError> {
    read_numeric(value, column_type).map_err(|error| match error {
        NumericError::Malformed => wrong(column_type, value.len()),
        NumericError::OutOfRange => SqlError::new(
            NUMERIC_OUT_OF_RANGE,
            format!("numeric value is out of range for type {}", column_type.sql()),
        ),
    })
}
