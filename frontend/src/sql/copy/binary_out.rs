//! COPY's binary format, out. Types that PostgreSQL does not have go as the next larger that it has,
//! as in query results: small unsigned integers as the signed ones of twice the width, the largest as
//! `numeric`.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Schema, TimeUnit, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::record_batch::RecordBatch;
use partita_proto::schema::Unit;

use super::WriteRow;
use super::binary::{EPOCH_DAYS, EPOCH_MICROS};
use super::numeric::write_numeric;
use super::text_out::ticks;
use crate::error::SqlError;
use crate::sql::column_builder::{DATETIME_OVERFLOW, rescale};

pub(super) struct BinaryEncoder {
    /// Fields of a row, as the format counts them.
    width: i16,
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
        Ok(Self { width })
    }

    pub(super) fn batch<'a>(&'a self, batch: &'a RecordBatch) -> Result<WriteRow<'a>, SqlError> {
        Ok(Box::new(move |row, out| {
            out.extend_from_slice(&self.width.to_be_bytes());
            for array in batch.columns() {
                if array.is_null(row) {
                    out.extend_from_slice(&(-1_i32).to_be_bytes());
                    continue;
                }
                let at = out.len();
                out.extend_from_slice(&[0; 4]);
                write_value(array.as_ref(), row, out)?;
                let length = i32::try_from(out.len() - at - 4)
                    .map_err(|_| SqlError::new("54000", "a value of more than 2 GiB"))?;
                out[at..at + 4].copy_from_slice(&length.to_be_bytes());
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
            | DataType::Timestamp(..)
    )
}

/// Writes a value that is not NULL.
fn write_value(array: &dyn Array, row: usize, out: &mut Vec<u8>) -> Result<(), SqlError> {
    match array.data_type() {
        DataType::Boolean => out.push(u8::from(array.as_boolean().value(row))),
        DataType::Int8 => {
            let value = i16::from(array.as_primitive::<Int8Type>().value(row));
            out.extend_from_slice(&value.to_be_bytes());
        }
        DataType::Int16 => {
            out.extend_from_slice(&array.as_primitive::<Int16Type>().value(row).to_be_bytes());
        }
        DataType::Int32 => {
            out.extend_from_slice(&array.as_primitive::<Int32Type>().value(row).to_be_bytes());
        }
        DataType::Int64 => {
            out.extend_from_slice(&array.as_primitive::<Int64Type>().value(row).to_be_bytes());
        }
        DataType::UInt8 => {
            let value = i16::from(array.as_primitive::<UInt8Type>().value(row));
            out.extend_from_slice(&value.to_be_bytes());
        }
        DataType::UInt16 => {
            let value = i32::from(array.as_primitive::<UInt16Type>().value(row));
            out.extend_from_slice(&value.to_be_bytes());
        }
        DataType::UInt32 => {
            let value = i64::from(array.as_primitive::<UInt32Type>().value(row));
            out.extend_from_slice(&value.to_be_bytes());
        }
        DataType::UInt64 => {
            write_numeric(array.as_primitive::<UInt64Type>().value(row).into(), 0, out);
        }
        DataType::Float32 => {
            out.extend_from_slice(&array.as_primitive::<Float32Type>().value(row).to_be_bytes());
        }
        DataType::Float64 => {
            out.extend_from_slice(&array.as_primitive::<Float64Type>().value(row).to_be_bytes());
        }
        DataType::Decimal128(_, scale) => {
            write_numeric(array.as_primitive::<Decimal128Type>().value(row), *scale, out);
        }
        DataType::Utf8 => out.extend_from_slice(array.as_string::<i32>().value(row).as_bytes()),
        DataType::LargeUtf8 => {
            out.extend_from_slice(array.as_string::<i64>().value(row).as_bytes())
        }
        DataType::Utf8View => out.extend_from_slice(array.as_string_view().value(row).as_bytes()),
        DataType::Binary => out.extend_from_slice(array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => out.extend_from_slice(array.as_binary::<i64>().value(row)),
        DataType::BinaryView => out.extend_from_slice(array.as_binary_view().value(row)),
        DataType::Date32 => {
            let day = array.as_primitive::<Date32Type>().value(row).checked_sub(EPOCH_DAYS);
            out.extend_from_slice(&day.ok_or_else(out_of_range)?.to_be_bytes());
        }
        DataType::Timestamp(unit, _) => write_timestamp(ticks(array, *unit, row), *unit, out)?,
        other => {
            return Err(SqlError::unsupported(format!("COPY in binary of type {other}")));
        }
    }
    Ok(())
}

fn write_timestamp(ticks: i64, unit: TimeUnit, out: &mut Vec<u8>) -> Result<(), SqlError> {
    let micros = rescale(ticks.into(), Unit::from(unit), Unit::Microsecond)
        .and_then(|micros| micros.checked_sub(EPOCH_MICROS))
        .ok_or_else(out_of_range)?;
    out.extend_from_slice(&micros.to_be_bytes());
    Ok(())
}

fn out_of_range() -> SqlError {
    SqlError::new(DATETIME_OVERFLOW, "a moment is beyond what the binary format can hold")
}
