//! COPY's text and CSV formats, out. Values look as PostgreSQL prints them.

use std::fmt::Write as _;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Schema, TimeUnit, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::BytesMut;
use partita_worker::{Zone, civil};

use super::WriteRow;
use crate::error::SqlError;
use crate::sql::bytes::write_bytea;
use crate::sql::decimal::write_decimal;
use crate::sql::shown_names::shown_name;
use crate::sql::statement::{CopyFormat, CopyHeader, CopyOptions};

pub(super) struct TextEncoder {
    csv: bool,
    options: CopyOptions,
    zone: Zone,
    /// By column.
    force_quote: Vec<bool>,
}

impl TextEncoder {
    pub(super) fn new(
        schema: &Schema,
        format: CopyFormat,
        options: &CopyOptions,
        zone: Zone,
    ) -> Self {
        let force = |field: &std::sync::Arc<arrow::datatypes::Field>| {
            options.force_quote.contains(shown_name(field))
        };
        Self {
            csv: format == CopyFormat::Csv,
            options: options.clone(),
            zone,
            force_quote: schema.fields().iter().map(force).collect(),
        }
    }

    /// The line of names, if one is wanted.
    pub(super) fn header(&self, schema: &Schema) -> Option<Vec<u8>> {
        if self.options.header == CopyHeader::None {
            return None;
        }
        let mut line = Vec::new();
        for (at, field) in schema.fields().iter().enumerate() {
            if at > 0 {
                line.push(self.options.delimiter);
            }
            self.value(shown_name(field), false, &mut line);
        }
        line.push(b'\n');
        Some(line)
    }

    pub(super) fn batch<'a>(&'a self, batch: &'a RecordBatch) -> Result<WriteRow<'a>, SqlError> {
        let columns = batch
            .columns()
            .iter()
            .map(|array| Printer::new(array.as_ref(), self.zone))
            .collect::<Result<Vec<_>, _>>()?;
        let mut text = String::new();
        Ok(Box::new(move |row, line| {
            for (at, column) in columns.iter().enumerate() {
                if at > 0 {
                    line.push(self.options.delimiter);
                }
                if column.array.is_null(row) {
                    line.extend_from_slice(self.options.null.as_bytes());
                    continue;
                }
                text.clear();
                column.print(row, &mut text)?;
                self.value(&text, self.force_quote[at], line);
            }
            line.push(b'\n');
            Ok(())
        }))
    }

    fn value(&self, text: &str, force_quote: bool, line: &mut Vec<u8>) {
        if self.csv { self.csv_value(text, force_quote, line) } else { self.text_value(text, line) }
    }

    fn csv_value(&self, text: &str, force_quote: bool, line: &mut Vec<u8>) {
        let CopyOptions { delimiter, quote, escape, null, .. } = &self.options;
        let special =
            |byte: u8| byte == *delimiter || byte == *quote || byte == b'\n' || byte == b'\r';
        if !force_quote && text != null && text != "\\." && !text.bytes().any(special) {
            line.extend_from_slice(text.as_bytes());
            return;
        }
        line.push(*quote);
        for byte in text.bytes() {
            if byte == *quote || byte == *escape {
                line.push(*escape);
            }
            line.push(byte);
        }
        line.push(*quote);
    }

    fn text_value(&self, text: &str, line: &mut Vec<u8>) {
        for byte in text.bytes() {
            let letter = match byte {
                8 => b'b',
                12 => b'f',
                b'\n' => b'n',
                b'\r' => b'r',
                b'\t' => b't',
                11 => b'v',
                b'\\' => b'\\',
                byte if byte == self.options.delimiter => byte,
                byte => {
                    line.push(byte);
                    continue;
                }
            };
            line.extend_from_slice(&[b'\\', letter]);
        }
    }
}

/// Prints the values of an array.
struct Printer<'a> {
    array: &'a dyn Array,
    zone: Zone,
    /// For types that have no form of their own in PostgreSQL.
    other: Option<ArrayFormatter<'a>>,
}

impl<'a> Printer<'a> {
    fn new(array: &'a dyn Array, zone: Zone) -> Result<Self, SqlError> {
        let known = matches!(
            array.data_type(),
            DataType::Boolean
                | DataType::Int8
                | DataType::Int16
                | DataType::Int32
                | DataType::Int64
                | DataType::UInt8
                | DataType::UInt16
                | DataType::UInt32
                | DataType::UInt64
                | DataType::Float32
                | DataType::Float64
                | DataType::Decimal128(..)
                | DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::Date32
                | DataType::Timestamp(..)
        );
        static FORMAT: FormatOptions<'static> = FormatOptions::new();
        let other = if known { None } else { Some(ArrayFormatter::try_new(array, &FORMAT)?) };
        Ok(Self { array, zone, other })
    }

    /// Prints a value that is not NULL. Writing to a String cannot fail.
    fn print(&self, row: usize, out: &mut String) -> Result<(), SqlError> {
        let array = self.array;
        let written = match array.data_type() {
            DataType::Boolean => {
                out.push(if array.as_boolean().value(row) { 't' } else { 'f' });
                Ok(())
            }
            DataType::Int8 => write!(out, "{}", array.as_primitive::<Int8Type>().value(row)),
            DataType::Int16 => write!(out, "{}", array.as_primitive::<Int16Type>().value(row)),
            DataType::Int32 => write!(out, "{}", array.as_primitive::<Int32Type>().value(row)),
            DataType::Int64 => write!(out, "{}", array.as_primitive::<Int64Type>().value(row)),
            DataType::UInt8 => write!(out, "{}", array.as_primitive::<UInt8Type>().value(row)),
            DataType::UInt16 => write!(out, "{}", array.as_primitive::<UInt16Type>().value(row)),
            DataType::UInt32 => write!(out, "{}", array.as_primitive::<UInt32Type>().value(row)),
            DataType::UInt64 => write!(out, "{}", array.as_primitive::<UInt64Type>().value(row)),
            DataType::Float32 => {
                let value = array.as_primitive::<Float32Type>().value(row);
                print_float(value.into(), &format!("{value}"), &format!("{value:e}"), out);
                Ok(())
            }
            DataType::Float64 => {
                let value = array.as_primitive::<Float64Type>().value(row);
                print_float(value, &format!("{value}"), &format!("{value:e}"), out);
                Ok(())
            }
            DataType::Decimal128(_, scale) => {
                write_decimal(array.as_primitive::<Decimal128Type>().value(row), *scale, out);
                Ok(())
            }
            DataType::Utf8 => {
                out.push_str(array.as_string::<i32>().value(row));
                Ok(())
            }
            DataType::LargeUtf8 => {
                out.push_str(array.as_string::<i64>().value(row));
                Ok(())
            }
            DataType::Utf8View => {
                out.push_str(array.as_string_view().value(row));
                Ok(())
            }
            DataType::Binary => {
                write_bytea(array.as_binary::<i32>().value(row), out);
                Ok(())
            }
            DataType::LargeBinary => {
                write_bytea(array.as_binary::<i64>().value(row), out);
                Ok(())
            }
            DataType::BinaryView => {
                write_bytea(array.as_binary_view().value(row), out);
                Ok(())
            }
            DataType::Date32 => {
                let day = array.as_primitive::<Date32Type>().value(row);
                with_civil(out, |text| civil::date(text, day.into()))
            }
            DataType::Timestamp(unit, zone) => {
                let (ticks, zone) = (ticks(array, *unit, row), zone.is_some().then_some(self.zone));
                with_civil(out, |text| civil::timestamp(text, ticks, *unit, zone))
            }
            _ => match &self.other {
                Some(formatter) => write!(out, "{}", formatter.value(row)),
                None => Ok(()),
            },
        };
        written.map_err(|_| SqlError::internal("a value could not be printed"))
    }
}

/// The ticks of a timestamp array's value.
pub(super) fn ticks(array: &dyn Array, unit: TimeUnit, row: usize) -> i64 {
    use arrow::datatypes::{
        TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
        TimestampSecondType,
    };
    match unit {
        TimeUnit::Second => array.as_primitive::<TimestampSecondType>().value(row),
        TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().value(row),
        TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().value(row),
        TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().value(row),
    }
}

/// Appends what is written of a date or a time.
fn with_civil(out: &mut String, write: impl FnOnce(&mut BytesMut)) -> std::fmt::Result {
    let mut text = BytesMut::new();
    write(&mut text);
    out.write_str(&String::from_utf8_lossy(&text))
}

/// A float in the fewest digits that tell it from its neighbours: plain, or with an exponent where
/// PostgreSQL takes one.
fn print_float(value: f64, plain: &str, scientific: &str, out: &mut String) {
    if value.is_nan() {
        out.push_str("NaN");
        return;
    }
    if value.is_infinite() {
        out.push_str(if value > 0.0 { "Infinity" } else { "-Infinity" });
        return;
    }
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let power: i32 = exponent.parse().unwrap_or(0);
    if (-4..15).contains(&power) {
        out.push_str(plain);
    } else {
        out.push_str(mantissa);
        out.push('e');
        out.push(if power < 0 { '-' } else { '+' });
        let digits = power.unsigned_abs().to_string();
        if digits.len() < 2 {
            out.push('0');
        }
        out.push_str(&digits);
    }
}
