//! Encodes rows for clients. Internally, strings and bytes are views; many clients (pandas through pyarrow, ADBC
//! drivers) do not support views yet, so they are sent as plain strings and bytes, at any depth.

use std::sync::Arc;

use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::IpcWriteOptions;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::{FlightData, IpcMessage, SchemaAsIpc};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use partita_frontend::{RowStream, Session};
use tonic::Status;

use super::Answers;
use super::status::{arrow_status, status_of};

/// The schema that is sent to clients.
pub(crate) fn outer_schema(schema: &Schema) -> SchemaRef {
    let fields: Vec<_> = schema.fields().iter().map(outer_field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The schema of a statement's rows, before and after it has run. Every column may be NULL: the optimizer may find that a
/// column has no NULL, and clients refuse rows with another schema than they were told before.
pub(crate) fn rows_schema(schema: &Schema) -> SchemaRef {
    let nullable = |field: &FieldRef| {
        let outer = outer_field(field);
        if outer.is_nullable() {
            outer
        } else {
            Arc::new(outer.as_ref().clone().with_nullable(true))
        }
    };
    let fields: Vec<_> = schema.fields().iter().map(nullable).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn outer_field(field: &FieldRef) -> FieldRef {
    let outer = outer_type(field.data_type());
    if outer == *field.data_type() {
        return Arc::clone(field);
    }
    Arc::new(field.as_ref().clone().with_data_type(outer))
}

fn outer_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Dictionary(_, values) => outer_type(values),
        DataType::List(field) => DataType::List(outer_field(field)),
        DataType::LargeList(field) => DataType::LargeList(outer_field(field)),
        DataType::FixedSizeList(field, len) => DataType::FixedSizeList(outer_field(field), *len),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(outer_field).collect()),
        DataType::Map(field, sorted) => DataType::Map(outer_field(field), *sorted),
        data_type => data_type.clone(),
    }
}

/// The rows that are sent to clients.
fn outer_batch(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let columns = batch
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| {
            if column.data_type() == field.data_type() {
                Ok(Arc::clone(column))
            } else {
                cast(column, field.data_type())
            }
        })
        .collect::<Result<Vec<_>, _>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &rows)
}

/// A result as the messages of a DoGet, with the schema that its client knows. The session lives as long as the messages.
pub(crate) fn messages(
    schema: SchemaRef,
    rows: RowStream,
    session: Option<Arc<Session>>,
) -> Answers<FlightData> {
    let batches = rows.map({
        let schema = Arc::clone(&schema);
        move |batch| {
            let _alive = &session;
            let batch = batch.map_err(|error| FlightError::from(status_of(&error)))?;
            outer_batch(&schema, &batch).map_err(FlightError::Arrow)
        }
    });
    let encoded = FlightDataEncoderBuilder::new().with_schema(schema).build(batches);
    Box::pin(encoded.map_err(|error| match error {
        FlightError::Tonic(status) => *status,
        FlightError::Arrow(error) => arrow_status(error),
        error => Status::internal(error.to_string()),
    }))
}

/// A schema in the encoding of Flight SQL's messages.
pub(crate) fn schema_bytes(schema: &Schema) -> Result<Bytes, ArrowError> {
    let options = IpcWriteOptions::default();
    let IpcMessage(bytes) = SchemaAsIpc::new(schema, &options).try_into()?;
    Ok(bytes)
}

/// The schema of a statement's parameters, whose names are numbers.
pub(crate) fn parameter_schema(types: &[DataType]) -> Schema {
    let fields = types.iter().enumerate().map(|(index, data_type)| {
        Field::new(format!("${}", index + 1), outer_type(data_type), true)
    });
    Schema::new(fields.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, DictionaryArray, StringViewArray};
    use arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn views_leave_as_plain_strings_at_any_depth() {
        let item = Arc::new(Field::new_list_field(DataType::Utf8View, true));
        let list = DataType::List(Arc::clone(&item));
        assert_eq!(outer_type(&list).to_string(), "List(Utf8)");
        let strings: ArrayRef = Arc::new(StringViewArray::from(vec![Some("x"), None]));
        let words: DictionaryArray<Int32Type> = vec![Some("a"), Some("a")].into_iter().collect();
        let batch =
            RecordBatch::try_from_iter([("s", strings), ("d", Arc::new(words) as ArrayRef)]);
        let batch = batch.unwrap();
        let outer = outer_batch(&outer_schema(&batch.schema()), &batch).unwrap();
        assert_eq!(outer.column(0).as_string::<i32>().value(0), "x");
        assert_eq!(outer.column(1).as_string::<i32>().value(1), "a");
    }
}
