//! COPY's binary format, output. Types that PostgreSQL does not have are sent as its next larger type, as in query
//! results: small unsigned integers as signed ones of twice the width, the largest as `numeric`.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, FieldRef, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, IntervalMonthDayNanoType, IntervalUnit, Schema, Time64MicrosecondType,
    TimeUnit, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::record_batch::RecordBatch;
use partita_proto::schema::{JsonType, UUID, Unit};
use partita_worker::value_text::nearest_micros;

use super::WriteRow;
use super::binary::{EPOCH_DAYS, EPOCH_MICROS, JSONB_VERSION};
use super::numeric::write_numeric;
use super::text_out::ticks;
use crate::column_builder::{DATETIME_OVERFLOW, rescale};
use crate::error::SqlError;

pub(super) struct BinaryEncoder {
    /// Number of fields of a row, in the format's width.
    width: i16,
    /// True for each column that is JSONB.
    jsonb: Vec<bool>,
}

impl BinaryEncoder {
    pub(super) fn new(schema: &Schema) -> Result<Self, SqlError> {
        for field in schema.fields() {
            if !has_form(field.data_type()) {
                return Err(SqlError::unsupported(format!(
                    "COPY in binary of column \"{}\" of type {}",
                    field.name(),
                    field.data_type()
                ))
                .with_hint("use the text format"));
            }
        }
        let width = i16::try_from(schema.fields().len())
            .map_err(|_| SqlError::new("54011", "too many columns for COPY in binary"))?;
        let is_jsonb = |field: &FieldRef| JsonType::of_field(field) == Some(JsonType::Jsonb);
        let jsonb = schema.fields().iter().map(is_jsonb).collect();
        Ok(Self { width, jsonb })
    }

    pub(super) fn batch<'a>(&'a self, batch: &'a RecordBatch) -> Result<WriteRow<'a>, SqlError> {
        Ok(Box::new(move |row, message| {
            message.extend_from_slice(&self.width.to_be_bytes());
            for (array, is_jsonb) in batch.columns().iter().zip(&self.jsonb) {
                if array.is_null(row) {
                    message.extend_from_slice(&(-1_i32).to_be_bytes());
                    continue;
                }
                let start = message.len();
                message.extend_from_slice(&[0; 4]);
                if *is_jsonb {
                    message.push(JSONB_VERSION);
                }
                write_value(array.as_ref(), row, message)?;
                let length = i32::try_from(message.len() - start - 4)
                    .map_err(|_| SqlError::new("54000", "a value of more than 2 GiB"))?;
                message[start..start + 4].copy_from_slice(&length.to_be_bytes());
            }
            Ok(())
        }))
    }
}

fn has_form(data_type: &DataType) -> bool {
    matches!(
        data_type,
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
            | DataType::Time64(TimeUnit::Microsecond)
            | DataType::Interval(IntervalUnit::MonthDayNano)
            | DataType::Timestamp(..)
    ) || *data_type == UUID
        || matches!(data_type, DataType::List(item) if element_oid(item.data_type()).is_some())
}

/// Object id of PostgreSQL's type of the elements of arrays that have a binary form.
fn element_oid(data_type: &DataType) -> Option<u32> {
    Some(match data_type {
        DataType::Boolean => 16,
        DataType::Int64 => 20,
        DataType::Int16 => 21,
        DataType::Int32 => 23,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => 25,
        DataType::Float32 => 700,
        DataType::Float64 => 701,
        DataType::Date32 => 1082,
        DataType::Timestamp(_, None) => 1114,
        DataType::Timestamp(_, Some(_)) => 1184,
        DataType::Decimal128(..) => 1700,
        &UUID => 2950,
        _ => return None,
    })
}

/// Appends the binary form of a value that is not NULL.
fn write_value(array: &dyn Array, row: usize, message: &mut Vec<u8>) -> Result<(), SqlError> {
    match array.data_type() {
        // Numbers; unsigned ones are widened.
        DataType::Boolean => message.push(u8::from(array.as_boolean().value(row))),
        DataType::Int8 => {
            let value = i16::from(array.as_primitive::<Int8Type>().value(row));
            message.extend_from_slice(&value.to_be_bytes());
        }
        DataType::Int16 => {
            message.extend_from_slice(&array.as_primitive::<Int16Type>().value(row).to_be_bytes());
        }
        DataType::Int32 => {
            message.extend_from_slice(&array.as_primitive::<Int32Type>().value(row).to_be_bytes());
        }
        DataType::Int64 => {
            message.extend_from_slice(&array.as_primitive::<Int64Type>().value(row).to_be_bytes());
        }
        DataType::UInt8 => {
            let value = i16::from(array.as_primitive::<UInt8Type>().value(row));
            message.extend_from_slice(&value.to_be_bytes());
        }
        DataType::UInt16 => {
            let value = i32::from(array.as_primitive::<UInt16Type>().value(row));
            message.extend_from_slice(&value.to_be_bytes());
        }
        DataType::UInt32 => {
            let value = i64::from(array.as_primitive::<UInt32Type>().value(row));
            message.extend_from_slice(&value.to_be_bytes());
        }
        DataType::UInt64 => {
            write_numeric(array.as_primitive::<UInt64Type>().value(row).into(), 0, message);
        }
        DataType::Float32 => {
            message
                .extend_from_slice(&array.as_primitive::<Float32Type>().value(row).to_be_bytes());
        }
        DataType::Float64 => {
            message
                .extend_from_slice(&array.as_primitive::<Float64Type>().value(row).to_be_bytes());
        }
        DataType::Decimal128(_, scale) => {
            write_numeric(array.as_primitive::<Decimal128Type>().value(row), *scale, message);
        }
        // Texts and bytes are sent as they are.
        DataType::Utf8 => message.extend_from_slice(array.as_string::<i32>().value(row).as_bytes()),
        DataType::LargeUtf8 => {
            message.extend_from_slice(array.as_string::<i64>().value(row).as_bytes())
        }
        DataType::Utf8View => {
            message.extend_from_slice(array.as_string_view().value(row).as_bytes())
        }
        DataType::Binary => message.extend_from_slice(array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => message.extend_from_slice(array.as_binary::<i64>().value(row)),
        DataType::BinaryView => message.extend_from_slice(array.as_binary_view().value(row)),
        DataType::Time64(TimeUnit::Microsecond) => {
            let micros = array.as_primitive::<Time64MicrosecondType>().value(row);
            message.extend_from_slice(&micros.to_be_bytes());
        }
        &UUID => message.extend_from_slice(array.as_fixed_size_binary().value(row)),
        // Times count from 2000.
        DataType::Date32 => {
            let day = array.as_primitive::<Date32Type>().value(row).checked_sub(EPOCH_DAYS);
            message.extend_from_slice(&day.ok_or_else(out_of_range)?.to_be_bytes());
        }
        DataType::Timestamp(unit, _) => write_timestamp(ticks(array, *unit, row), *unit, message)?,
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let interval = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
            message.extend_from_slice(&nearest_micros(interval.nanoseconds).to_be_bytes());
            message.extend_from_slice(&interval.days.to_be_bytes());
            message.extend_from_slice(&interval.months.to_be_bytes());
        }
        DataType::List(item) if let Some(oid) = element_oid(item.data_type()) => {
            write_array(array.as_list::<i32>().value(row).as_ref(), oid, message)?;
        }
        data_type => {
            return Err(SqlError::unsupported(format!("COPY in binary of type {data_type}")));
        }
    }
    Ok(())
}

/// Appends an array by its elements; an empty one has no dimensions.
fn write_array(elements: &dyn Array, oid: u32, message: &mut Vec<u8>) -> Result<(), SqlError> {
    let too_large = |_| SqlError::new("54000", "a value of more than 2 GiB");
    let dimensions = i32::from(!elements.is_empty());
    message.extend_from_slice(&dimensions.to_be_bytes());
    message.extend_from_slice(&i32::from(elements.null_count() > 0).to_be_bytes());
    message.extend_from_slice(&oid.to_be_bytes());
    if elements.is_empty() {
        return Ok(());
    }
    let count = i32::try_from(elements.len()).map_err(too_large)?;
    message.extend_from_slice(&count.to_be_bytes());
    message.extend_from_slice(&1_i32.to_be_bytes());
    for position in 0..elements.len() {
        if elements.is_null(position) {
            message.extend_from_slice(&(-1_i32).to_be_bytes());
            continue;
        }
        let start = message.len();
        message.extend_from_slice(&[0; 4]);
        write_value(elements, position, message)?;
        let length = i32::try_from(message.len() - start - 4).map_err(too_large)?;
        message[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}

fn write_timestamp(ticks: i64, unit: TimeUnit, message: &mut Vec<u8>) -> Result<(), SqlError> {
    let micros = rescale(ticks.into(), Unit::from(unit), Unit::Microsecond)
        .and_then(|micros| micros.checked_sub(EPOCH_MICROS))
        .ok_or_else(out_of_range)?;
    message.extend_from_slice(&micros.to_be_bytes());
    Ok(())
}

fn out_of_range() -> SqlError {
    SqlError::new(DATETIME_OVERFLOW, "timestamp or date out of range for the binary format")
}
