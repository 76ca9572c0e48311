//! Checks for values that cannot be written as text, and the texts of those that Arrow would write otherwise.
//!
//! A time beyond the calendar has no text, and Arrow's writers would write an error text in its place, as if it were
//! the value. Here it is an error of the response.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Int64Type, Schema};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use partita_frontend::uuid_texts;
use partita_proto::schema::UUID;

/// Refuses rows with a value that cannot be written as text.
///
/// # Errors
/// Those of Arrow, which name the value.
pub(crate) fn check_shown(batch: &RecordBatch) -> Result<(), ArrowError> {
    batch.columns().iter().try_for_each(check)
}

/// The rows with UUIDs as texts: Arrow's writers know only their bytes.
///
/// # Errors
/// Those of Arrow, which do not occur.
pub(crate) fn with_texts(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    if schema.fields().iter().all(|field| *field.data_type() != UUID) {
        return Ok(batch.clone());
    }
    let pair = |(field, column): (&FieldRef, &ArrayRef)| {
        if *field.data_type() != UUID {
            return (Arc::clone(field), Arc::clone(column));
        }
        let field = field.as_ref().clone().with_data_type(DataType::Utf8View);
        (Arc::new(field), uuid_texts(column.as_ref()))
    };
    let (fields, columns): (Vec<FieldRef>, Vec<ArrayRef>) =
        schema.fields().iter().zip(batch.columns()).map(pair).unzip();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
}

fn check(array: &ArrayRef) -> Result<(), ArrowError> {
    let rows: Vec<usize> = match array.data_type() {
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 | DataType::Time64(_) => {
            extremes(array)?
        }
        data_type if data_type.is_nested() && may_hold_times(data_type) => {
            (0..array.len()).collect()
        }
        _ => return Ok(()),
    };
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(array.as_ref(), &options)?;
    rows.into_iter().try_for_each(|row| formatter.value(row).try_to_string().map(drop))
}

/// The rows with the smallest and the largest value: the calendar has no gaps between them.
fn extremes(array: &ArrayRef) -> Result<Vec<usize>, ArrowError> {
    let numbers = match array.data_type() {
        DataType::Date32 => cast(&cast(array, &DataType::Int32)?, &DataType::Int64)?,
        _ => cast(array, &DataType::Int64)?,
    };
    let numbers = numbers.as_primitive::<Int64Type>();
    let non_null = || numbers.iter().enumerate().filter_map(|(row, number)| Some((number?, row)));
    Ok(non_null().min().into_iter().chain(non_null().max()).map(|(_, row)| row).collect())
}

fn may_hold_times(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 | DataType::Time64(_) => true,
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => may_hold_times(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| may_hold_times(field.data_type())),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Date32Array, FixedSizeBinaryBuilder, TimestampNanosecondArray, TimestampSecondArray,
    };

    use super::*;

    fn shown(array: impl Array + 'static) -> bool {
        let array: ArrayRef = Arc::new(array);
        check_shown(&RecordBatch::try_from_iter([("a", array)]).unwrap()).is_ok()
    }

    #[test]
    fn uuids_are_texts_and_other_columns_stay() {
        let mut uuids = FixedSizeBinaryBuilder::new(16);
        uuids.append_value([0xA0; 16]).unwrap();
        uuids.append_null();
        let columns: [(&str, ArrayRef); 2] =
            [("id", Arc::new(uuids.finish())), ("d", Arc::new(Date32Array::from(vec![1, 2])))];
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns.map(|(name, column)| (name, column, true)),
        );
        let batch = with_texts(&batch.unwrap()).unwrap();
        let texts: Vec<_> = batch.column(0).as_string_view().iter().collect();
        assert_eq!(texts, [Some("a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0"), None]);
        assert_eq!(batch.column(1).data_type(), &DataType::Date32);
    }

    #[test]
    fn times_beyond_the_calendar_are_refused_wherever_they_are() {
        assert!(shown(TimestampSecondArray::from(vec![Some(1), None, Some(-1)])));
        assert!(shown(TimestampSecondArray::from(vec![None])));
        assert!(!shown(TimestampSecondArray::from(vec![Some(1), Some(i64::MAX), None, Some(2)])));
        assert!(!shown(TimestampSecondArray::from(vec![Some(1), Some(i64::MIN), Some(2)])));
        assert!(shown(TimestampNanosecondArray::from(vec![i64::MIN, i64::MAX])));
        assert!(shown(Date32Array::from(vec![0])));
        assert!(!shown(Date32Array::from(vec![0, i32::MAX])));
    }
}
