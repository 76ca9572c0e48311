//! Checks for values that cannot be written as text, and the texts of those that Arrow would write otherwise.
//!
//! A time beyond the calendar has no text, and Arrow's writers would write an error text in its place, as if it were
//! the value. Here it is an error of the response.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, RecordBatchOptions, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::BytesMut;
use partita_frontend::value_text::TextColumn;
use partita_frontend::{SqlError, Zone, uuid_texts};
use partita_proto::schema::UUID;

/// Refuses rows with a value that cannot be written as text.
///
/// # Errors
/// Those of Arrow, which name the value.
pub(crate) fn check_shown(batch: &RecordBatch) -> Result<(), ArrowError> {
    batch.columns().iter().try_for_each(check)
}

/// The rows with UUIDs as texts, also within arrays: Arrow's writers know only their bytes.
///
/// # Errors
/// Those of Arrow, which do not occur.
pub(crate) fn with_texts(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    changed(batch, |column| match column.data_type() {
        &UUID => Ok(Some(uuid_texts(column.as_ref()))),
        DataType::List(item) if *item.data_type() == UUID => {
            let lists = column.as_list::<i32>();
            let texts = uuid_texts(lists.values().as_ref());
            let item = Arc::new(Field::new_list_field(DataType::Utf8View, true));
            let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
            let lists: ArrayRef = Arc::new(ListArray::try_new(item, offsets, texts, nulls)?);
            Ok(Some(lists))
        }
        _ => Ok(None),
    })
}

/// The rows with arrays as texts in PostgreSQL's form, for formats of plain values.
///
/// # Errors
/// Those of a value that has no text.
pub(crate) fn with_array_texts(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    changed(batch, |column| match column.data_type() {
        DataType::List(_) => array_texts(column)
            .map(Some)
            .map_err(|error| ArrowError::ExternalError(Box::new(error))),
        _ => Ok(None),
    })
}

fn array_texts(lists: &ArrayRef) -> Result<ArrayRef, SqlError> {
    let written = TextColumn::new(lists, Zone::UTC)?;
    let mut texts = StringViewBuilder::with_capacity(lists.len());
    let mut text = BytesMut::new();
    for row in 0..lists.len() {
        if lists.is_null(row) {
            texts.append_null();
            continue;
        }
        text.clear();
        written.write(row, &mut text)?;
        let text = std::str::from_utf8(&text)
            .map_err(|_| SqlError::internal("a value's text is not UTF-8"))?;
        texts.append_value(text);
    }
    Ok(Arc::new(texts.finish()))
}

/// The rows with some columns in another form.
fn changed(
    batch: &RecordBatch,
    change: impl Fn(&ArrayRef) -> Result<Option<ArrayRef>, ArrowError>,
) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    let changes = batch.columns().iter().map(change).collect::<Result<Vec<_>, _>>()?;
    if changes.iter().all(Option::is_none) {
        return Ok(batch.clone());
    }
    let pair = |((field, column), change): ((&FieldRef, &ArrayRef), Option<ArrayRef>)| {
        let Some(column) = change else { return (Arc::clone(field), Arc::clone(column)) };
        let field = field.as_ref().clone().with_data_type(column.data_type().clone());
        (Arc::new(field), column)
    };
    let (fields, columns): (Vec<FieldRef>, Vec<ArrayRef>) =
        schema.fields().iter().zip(batch.columns()).zip(changes).map(pair).unzip();
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
        Date32Array, FixedSizeBinaryBuilder, Int32Builder, ListBuilder, TimestampNanosecondArray,
        TimestampSecondArray,
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
    fn arrays_are_texts_in_postgresql_s_form_where_values_are_plain() {
        let mut numbers = ListBuilder::new(Int32Builder::new());
        numbers.append_value([Some(1), None]);
        numbers.append_null();
        numbers.append_value(std::iter::empty::<Option<i32>>());
        let numbers: ArrayRef = Arc::new(numbers.finish());
        let mut uuids = ListBuilder::new(FixedSizeBinaryBuilder::new(16));
        for _ in 0..3 {
            uuids.values().append_value([0xA0; 16]).unwrap();
            uuids.append(true);
        }
        let uuids: ArrayRef = Arc::new(uuids.finish());
        let batch = RecordBatch::try_from_iter([("n", numbers), ("u", uuids)]).unwrap();
        let texts = |batch: &RecordBatch, column: usize| -> Vec<Option<String>> {
            let texts = batch.column(column).as_string_view();
            texts.iter().map(|text| text.map(str::to_owned)).collect()
        };
        let plain = with_array_texts(&batch).unwrap();
        let expected = [Some("{1,NULL}".to_owned()), None, Some("{}".to_owned())];
        assert_eq!(texts(&plain, 0), expected);
        let uuid = "a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0";
        assert_eq!(texts(&plain, 1)[2], Some(format!("{{{uuid}}}")));
        // In JSON they stay arrays.
        let nested = with_texts(&batch).unwrap();
        assert_eq!(nested.column(0).data_type(), batch.column(0).data_type());
        let uuids = nested.column(1).as_list::<i32>().value(1);
        assert_eq!(uuids.as_string_view().value(0), uuid);
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
