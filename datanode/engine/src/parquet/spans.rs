//! Intervals in files. Parquet has no type of them with nanoseconds, so they are 16 bytes there, all little-endian:
//! months (4), days (4), nanoseconds (8). The schema that Parquet keeps says bytes; the table's says what they are.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeBinaryArray, IntervalMonthDayNanoArray};
use arrow::buffer::Buffer;
use arrow::datatypes::{
    DataType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, Schema, SchemaRef,
};
use arrow::error::ArrowError;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
/// Bytes of an interval.
const WIDTH: i32 = 16;

/// The schema of a file for rows of a schema.
pub(crate) fn schema_in_file(schema: SchemaRef) -> SchemaRef {
    if schema.fields().iter().all(|field| *field.data_type() != INTERVAL) {
        return schema;
    }
    let fields = schema.fields().iter().map(|field| match field.data_type() {
        &INTERVAL => {
            let bytes = DataType::FixedSizeBinary(WIDTH);
            Arc::new(field.as_ref().clone().with_data_type(bytes))
        }
        _ => Arc::clone(field),
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// A column as it is in a file.
///
/// # Errors
/// Those of Arrow, which do not occur.
pub(crate) fn in_file(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let Some(intervals) = column.as_primitive_opt::<IntervalMonthDayNanoType>() else {
        return Ok(Arc::clone(column));
    };
    let mut bytes = Vec::with_capacity(intervals.len() * 16);
    for interval in intervals.values() {
        bytes.extend(interval.months.to_le_bytes());
        bytes.extend(interval.days.to_le_bytes());
        bytes.extend(interval.nanoseconds.to_le_bytes());
    }
    let nulls = intervals.nulls().cloned();
    Ok(Arc::new(FixedSizeBinaryArray::try_new(WIDTH, Buffer::from_vec(bytes), nulls)?))
}

/// The intervals of a file's column; `None` if they are not asked for, or the column has other values.
pub(crate) fn from_file(column: &ArrayRef, wanted: &DataType) -> Option<ArrayRef> {
    if *wanted != INTERVAL || *column.data_type() != DataType::FixedSizeBinary(WIDTH) {
        return None;
    }
    let interval = |bytes: &[u8]| {
        let (months, rest) = bytes.split_first_chunk::<4>()?;
        let (days, rest) = rest.split_first_chunk::<4>()?;
        let nanoseconds = i64::from_le_bytes(*rest.first_chunk::<8>()?);
        let (months, days) = (i32::from_le_bytes(*months), i32::from_le_bytes(*days));
        Some(IntervalMonthDayNano { months, days, nanoseconds })
    };
    let bytes = column.as_fixed_size_binary();
    let intervals = bytes.iter().map(|bytes| bytes.and_then(interval));
    Some(Arc::new(intervals.collect::<IntervalMonthDayNanoArray>()))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;

    use super::*;

    #[test]
    fn intervals_have_these_bytes_and_come_back() {
        let intervals: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(vec![
            Some(IntervalMonthDayNano { months: 1, days: -1, nanoseconds: 256 }),
            None,
        ]));
        let bytes = in_file(&intervals).unwrap();
        let expected = [1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(bytes.as_fixed_size_binary().value(0), expected);
        assert!(bytes.is_null(1));
        assert_eq!(&from_file(&bytes, &INTERVAL).unwrap(), &intervals);
        // UUIDs are as many bytes.
        assert!(from_file(&bytes, &DataType::FixedSizeBinary(16)).is_none());
        let schema = Arc::new(Schema::new(vec![
            Field::new("a", INTERVAL, true),
            Field::new("b", DataType::Int64, false),
        ]));
        let stored = schema_in_file(schema);
        assert_eq!(stored.field(0).data_type(), bytes.data_type());
        assert_eq!(stored.field(1).data_type(), &DataType::Int64);
    }
}
