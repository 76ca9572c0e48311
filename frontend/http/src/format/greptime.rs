//! The JSON formats of GreptimeDB's SQL endpoint: rows as arrays of plain values.
//!
//! Timestamps and dates are integers in the column's unit, which the schema names; integers are written exactly (also
//! those beyond 2^53, which JavaScript reads inexactly); NaN and infinities, which JSON does not have, are NULL;
//! decimals and UUIDs are strings, arrays are arrays.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowNativeType, DataType, Date32Type, Float32Type, Float64Type, Int64Type, SchemaRef,
    TimeUnit, UInt64Type,
};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use partita_frontend::uuid_texts;
use partita_proto::schema::UUID;

use super::Encoder;

/// `{"records":{"schema":{...},"rows":[...],"total_rows":n}}`.
#[derive(Default)]
pub(crate) struct GreptimeRows {
    rows: usize,
}

impl Encoder for GreptimeRows {
    fn begin(&mut self, schema: &SchemaRef) -> Result<Vec<u8>, ArrowError> {
        let columns: Vec<_> = schema
            .fields()
            .iter()
            .map(|field| {
                serde_json::json!({
                    "name": field.name(),
                    "data_type": type_name(field.data_type()),
                })
            })
            .collect();
        let columns = serde_json::Value::from(columns);
        let text =
            format!("{{\"records\":{{\"schema\":{{\"column_schemas\":{columns}}},\"rows\":[");
        Ok(text.into_bytes())
    }

    fn rows(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        let text = rows_as_arrays(batch, self.rows > 0)?;
        self.rows += batch.num_rows();
        Ok(text.into_bytes())
    }

    fn end(&mut self) -> Result<Vec<u8>, ArrowError> {
        Ok(format!("],\"total_rows\":{}}}}}", self.rows).into_bytes())
    }
}

/// `{"series":[{"name":"","columns":[...],"values":[[...]]}]}`.
#[derive(Default)]
pub(crate) struct InfluxV1Rows {
    rows_before: bool,
}

impl Encoder for InfluxV1Rows {
    fn begin(&mut self, schema: &SchemaRef) -> Result<Vec<u8>, ArrowError> {
        let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let names = serde_json::Value::from(names);
        Ok(format!("{{\"series\":[{{\"name\":\"\",\"columns\":{names},\"values\":[").into_bytes())
    }

    fn rows(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        let text = rows_as_arrays(batch, self.rows_before)?;
        self.rows_before |= batch.num_rows() > 0;
        Ok(text.into_bytes())
    }

    fn end(&mut self) -> Result<Vec<u8>, ArrowError> {
        Ok(b"]}]}".to_vec())
    }
}

/// GreptimeDB's name of a type.
fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "String".to_owned(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "Binary".to_owned(),
        DataType::Date32 | DataType::Date64 => "Date".to_owned(),
        &UUID => "Uuid".to_owned(),
        DataType::Timestamp(unit, _) => format!("Timestamp{}", unit_name(*unit)),
        DataType::Duration(unit) => format!("Duration{}", unit_name(*unit)),
        DataType::Decimal128(precision, scale) => format!("Decimal128({precision}, {scale})"),
        DataType::Dictionary(_, values) => type_name(values),
        data_type => data_type.to_string(),
    }
}

fn unit_name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "Second",
        TimeUnit::Millisecond => "Millisecond",
        TimeUnit::Microsecond => "Microsecond",
        TimeUnit::Nanosecond => "Nanosecond",
    }
}

/// One column, with the way to write its values.
enum Cells<'a> {
    Null,
    Bool(&'a arrow::array::BooleanArray),
    Signed(ArrayRef),
    Unsigned(ArrayRef),
    Float32(&'a arrow::array::Float32Array),
    Float64(&'a arrow::array::Float64Array),
    String(ArrayRef),
    Binary(ArrayRef),
    /// The elements of arrays, one after another.
    List(&'a ListArray, Box<Self>),
    /// Written as Arrow displays it, in quotes.
    Displayed(ArrayFormatter<'a>),
}

impl<'a> Cells<'a> {
    fn of(array: &'a ArrayRef, options: &'a FormatOptions<'a>) -> Result<Self, ArrowError> {
        // Integers of all kinds, times included.
        Ok(match array.data_type() {
            DataType::Null => Self::Null,
            DataType::Boolean => Self::Bool(array.as_boolean()),
            DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Timestamp(..)
            | DataType::Duration(_)
            | DataType::Time64(_) => Self::Signed(cast(array, &DataType::Int64)?),
            DataType::Time32(_) => {
                Self::Signed(cast(&cast(array, &DataType::Int32)?, &DataType::Int64)?)
            }
            DataType::Date32 | DataType::Date64 => {
                let days = cast(array, &DataType::Date32)?;
                let days = days.as_primitive::<Date32Type>().clone();
                let days = days.unary::<_, Int64Type>(i64::from);
                Self::Signed(Arc::new(days))
            }
            DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
                Self::Unsigned(cast(array, &DataType::UInt64)?)
            }
            // Numbers and texts that need no conversion.
            DataType::Float32 => Self::Float32(array.as_primitive::<Float32Type>()),
            DataType::Float64 => Self::Float64(array.as_primitive::<Float64Type>()),
            DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Dictionary(..) => Self::String(cast(array, &DataType::Utf8View)?),
            &UUID => Self::String(uuid_texts(array.as_ref())),
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => Self::Binary(cast(array, &DataType::BinaryView)?),
            DataType::List(_) => {
                let lists = array.as_list::<i32>();
                Self::List(lists, Box::new(Self::of(lists.values(), options)?))
            }
            _ => Self::Displayed(ArrayFormatter::try_new(array.as_ref(), options)?),
        })
    }

    fn write(&self, row: usize, text: &mut String) -> Result<(), ArrowError> {
        let result = match self {
            Self::Null => text.write_str("null"),
            Self::Bool(values) => write!(text, "{}", values.value(row)),
            Self::Signed(values) => {
                write!(text, "{}", values.as_primitive::<Int64Type>().value(row))
            }
            Self::Unsigned(values) => {
                write!(text, "{}", values.as_primitive::<UInt64Type>().value(row))
            }
            Self::Float32(values) => write_float(text, values.value(row)),
            Self::Float64(values) => write_float(text, values.value(row)),
            Self::String(values) => {
                text.push_str(&json_string(values.as_string_view().value(row)));
                Ok(())
            }
            Self::Binary(values) => {
                let bytes = values.as_binary_view().value(row);
                write!(text, "{}", serde_json::Value::from(bytes))
            }
            Self::List(lists, elements) => return write_elements(lists, elements, row, text),
            Self::Displayed(values) => {
                // A value that cannot be displayed is an error, never a text about the error.
                text.push_str(&json_string(&values.value(row).try_to_string()?));
                Ok(())
            }
        };
        result.map_err(|error| ArrowError::ExternalError(Box::new(error)))
    }
}

/// `[1,null]`.
fn write_elements(
    lists: &ListArray,
    elements: &Cells<'_>,
    row: usize,
    text: &mut String,
) -> Result<(), ArrowError> {
    text.push('[');
    let first = lists.value_offsets()[row].as_usize();
    for position in first..lists.value_offsets()[row + 1].as_usize() {
        if position > first {
            text.push(',');
        }
        if lists.values().is_null(position) {
            text.push_str("null");
        } else {
            elements.write(position, text)?;
        }
    }
    text.push(']');
    Ok(())
}

/// The shortest text that reads back as the number; `null` for numbers that JSON does not have.
fn write_float<F: serde::Serialize>(text: &mut String, value: F) -> std::fmt::Result {
    match serde_json::to_string(&value) {
        Ok(number) => text.write_str(&number),
        Err(_) => text.write_str("null"),
    }
}

fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// `[1,"a"],[2,null]`, with a comma before it when rows precede.
fn rows_as_arrays(batch: &RecordBatch, rows_before: bool) -> Result<String, ArrowError> {
    let options = FormatOptions::default();
    let columns = batch
        .columns()
        .iter()
        .map(|array| Ok((array, Cells::of(array, &options)?)))
        .collect::<Result<Vec<_>, ArrowError>>()?;
    let mut text = String::with_capacity(batch.num_rows() * batch.num_columns() * 8);
    for row in 0..batch.num_rows() {
        if rows_before || row > 0 {
            text.push(',');
        }
        text.push('[');
        for (index, (array, cells)) in columns.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            if array.is_null(row) {
                text.push_str("null");
            } else {
                cells.write(row, &mut text)?;
            }
        }
        text.push(']');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BinaryViewArray, Date32Array, Float64Array, StringViewArray, TimestampMillisecondArray,
        UInt64Array,
    };
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn values_are_plain_json() {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("t", Arc::new(TimestampMillisecondArray::from(vec![Some(1_500), None]))),
            ("u", Arc::new(UInt64Array::from(vec![u64::MAX, 0]))),
            ("f", Arc::new(Float64Array::from(vec![0.1, f64::NAN]))),
            ("s", Arc::new(StringViewArray::from(vec![Some("a\"b"), None]))),
            ("b", Arc::new(BinaryViewArray::from(vec![Some(&[1_u8, 2][..]), None]))),
            ("d", Arc::new(Date32Array::from(vec![Some(-1), None]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut encoder = GreptimeRows::default();
        let mut bytes = encoder.begin(&batch.schema()).unwrap();
        bytes.extend(encoder.rows(&batch).unwrap());
        bytes.extend(encoder.rows(&batch.slice(0, 1)).unwrap());
        bytes.extend(encoder.end().unwrap());
        let value: Value = serde_json::from_slice(&bytes).unwrap();
        let records = &value["records"];
        assert_eq!(records["total_rows"], 3);
        assert_eq!(records["rows"][0], json!([1500, u64::MAX, 0.1, "a\"b", [1, 2], -1]));
        assert_eq!(records["rows"][1], json!([null, 0, null, null, null, null]));
        let types: Vec<_> = records["schema"]["column_schemas"]
            .as_array()
            .unwrap()
            .iter()
            .map(|column| column["data_type"].as_str().unwrap())
            .collect();
        assert_eq!(
            types,
            ["TimestampMillisecond", "UInt64", "Float64", "String", "Binary", "Date"]
        );
    }
}
