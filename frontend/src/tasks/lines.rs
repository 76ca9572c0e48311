//! Rows of a task as line protocol for another server.
//!
//! The listed columns are tags, the first other column of type TIMESTAMP is the time, in nanoseconds, and all others are
//! fields. NULL and texts without a character are left out as tags, NULL, NaN and infinite numbers as fields; a row
//! without any field has no line. Without a column of time, and where it is NULL, the time is the start of the window: a
//! window that is sent again replaces its points.

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
    UInt64Array,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Float64Type, Int64Type, TimeUnit, TimestampNanosecondType, UInt64Type,
};
use partita_proto::task::Remote;

use crate::error::{INVALID_PARAMETER_VALUE, SqlError};

/// Values of a field.
enum Values {
    Int(Int64Array),
    UInt(UInt64Array),
    Float(Float64Array),
    Flag(BooleanArray),
    Text(StringArray),
}

impl Values {
    fn new(array: &ArrayRef) -> Result<Self, SqlError> {
        use DataType as T;
        Ok(match array.data_type() {
            T::Int8 | T::Int16 | T::Int32 | T::Int64 => {
                Self::Int(cast(array, &T::Int64)?.as_primitive::<Int64Type>().clone())
            }
            T::UInt8 | T::UInt16 | T::UInt32 | T::UInt64 => {
                Self::UInt(cast(array, &T::UInt64)?.as_primitive::<UInt64Type>().clone())
            }
            T::Float16
            | T::Float32
            | T::Float64
            | T::Decimal32(..)
            | T::Decimal64(..)
            | T::Decimal128(..)
            | T::Decimal256(..) => {
                Self::Float(cast(array, &T::Float64)?.as_primitive::<Float64Type>().clone())
            }
            T::Boolean => Self::Flag(array.as_boolean().clone()),
            _ => Self::Text(texts(array)?),
        })
    }

    /// Writes the value of a row; false if there is none.
    fn write(&self, row: usize, line: &mut String) -> bool {
        let value = match self {
            Self::Int(values) if values.is_valid(row) => format!("{}i", values.value(row)),
            Self::UInt(values) if values.is_valid(row) => format!("{}u", values.value(row)),
            Self::Float(values) if values.is_valid(row) && values.value(row).is_finite() => {
                values.value(row).to_string()
            }
            Self::Flag(values) if values.is_valid(row) => values.value(row).to_string(),
            Self::Text(values) if values.is_valid(row) => {
                format!("\"{}\"", escaped(values.value(row), &['"', '\\']))
            }
            _ => return false,
        };
        line.push_str(&value);
        true
    }
}

fn texts(array: &ArrayRef) -> Result<StringArray, SqlError> {
    Ok(cast(array, &DataType::Utf8)?.as_string::<i32>().clone())
}

/// A text with a backslash before some characters.
fn escaped(text: &str, special: &[char]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if special.contains(&c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// A name or a tag, which line breaks would end.
fn key(text: &str) -> String {
    escaped(&text.replace(['\n', '\r'], " "), &[',', '=', ' '])
}

/// Appends a line for each row with a field. Returns the number of lines.
///
/// # Errors
/// Fails if a tag is no column, or a value cannot be written as text.
pub(super) fn append(
    lines: &mut String,
    batch: &RecordBatch,
    remote: &Remote,
    start_ms: i64,
) -> Result<u64, SqlError> {
    let schema = batch.schema();
    let mut tags = Vec::with_capacity(remote.tags.len());
    for name in &remote.tags {
        let column = batch.column_by_name(name).ok_or_else(|| {
            let message = format!("tag \"{name}\" is not a column of the task's query");
            SqlError::new(INVALID_PARAMETER_VALUE, message)
        })?;
        tags.push((key(name), texts(column)?));
    }
    let mut times = None;
    let mut fields = Vec::new();
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        if remote.tags.contains(field.name()) {
            continue;
        }
        if times.is_none() && matches!(field.data_type(), DataType::Timestamp(..)) {
            let nanoseconds = cast(column, &DataType::Timestamp(TimeUnit::Nanosecond, None))?;
            times = Some(nanoseconds.as_primitive::<TimestampNanosecondType>().clone());
            continue;
        }
        fields.push((key(field.name()), Values::new(column)?));
    }
    let start = start_ms.saturating_mul(1_000_000);
    let measurement = escaped(&remote.measurement.replace(['\n', '\r'], " "), &[',', ' ']);
    let mut count = 0;
    for row in 0..batch.num_rows() {
        let mut line = measurement.clone();
        for (name, values) in &tags {
            if values.is_valid(row) && !values.value(row).is_empty() {
                line.push_str(&format!(",{name}={}", key(values.value(row))));
            }
        }
        let mut separator = ' ';
        for (name, values) in &fields {
            let length = line.len();
            line.push_str(&format!("{separator}{name}="));
            if values.write(row, &mut line) {
                separator = ',';
            } else {
                line.truncate(length);
            }
        }
        if separator == ' ' {
            continue;
        }
        let time = times.as_ref().filter(|times| times.is_valid(row));
        let time = time.map_or(start, |times| times.value(row));
        lines.push_str(&format!("{line} {time}\n"));
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int32Array, TimestampMillisecondArray};
    use arrow::datatypes::{Field, Schema};

    use super::*;

    #[test]
    fn rows_become_lines() {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("host", Arc::new(StringArray::from(vec![Some("a b"), None, Some("c")]))),
            ("ts", Arc::new(TimestampMillisecondArray::from(vec![Some(1), None, Some(3)]))),
            ("n", Arc::new(Int32Array::from(vec![Some(1), Some(2), None]))),
            ("v", Arc::new(Float64Array::from(vec![Some(1.5), Some(f64::NAN), None]))),
            ("ok", Arc::new(BooleanArray::from(vec![Some(true), None, None]))),
            ("note", Arc::new(StringArray::from(vec![Some("say \"x\""), None, None]))),
        ];
        let field =
            |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
        let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
        let arrays = columns.into_iter().map(|(_, array)| array).collect();
        let batch = RecordBatch::try_new(Arc::new(schema), arrays).unwrap();
        let mut remote = Remote {
            url: "http://a".to_owned(),
            token: None,
            measurement: "hot rows".to_owned(),
            tags: vec!["host".to_owned()],
        };
        let mut lines = String::new();
        assert_eq!(append(&mut lines, &batch, &remote, 7).unwrap(), 2);
        let expected = "hot\\ rows,host=a\\ b n=1i,v=1.5,ok=true,note=\"say \\\"x\\\"\" 1000000\n\
                        hot\\ rows n=2i 7000000\n";
        assert_eq!(lines, expected);
        remote.tags.push("area".to_owned());
        assert_eq!(append(&mut lines, &batch, &remote, 7).unwrap_err().sqlstate, "22023");
    }
}
