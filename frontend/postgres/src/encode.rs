//! Result rows as messages.

use std::sync::Arc;

use arrow::datatypes::Schema;
use arrow_pg::datatypes::arrow_schema_to_pg_fields;
use arrow_pg::row_encoder::RowEncoder;
use futures::StreamExt;
use futures::stream;
use partita_frontend::RowStream;
use pgwire::api::portal::Format;
use pgwire::api::results::{FieldInfo, QueryResponse};
use pgwire::error::PgWireResult;
use pgwire::messages::data::DataRow;
use pgwire::types::format::FormatOptions;

use crate::error::to_wire;

/// The columns of a result as PostgreSQL types.
pub(crate) fn fields(
    schema: &Schema,
    format: &Format,
    options: Option<Arc<FormatOptions>>,
) -> PgWireResult<Vec<FieldInfo>> {
    arrow_schema_to_pg_fields(schema, format, options)
}

/// The rows of a result; a batch is encoded when the one before has been sent.
pub(crate) fn response(
    schema: &Schema,
    rows: RowStream,
    format: &Format,
    options: Arc<FormatOptions>,
) -> PgWireResult<QueryResponse> {
    let fields = Arc::new(fields(schema, format, Some(options))?);
    let of_rows = Arc::clone(&fields);
    let rows = rows
        .map(move |batch| {
            let rows: Box<dyn Iterator<Item = PgWireResult<DataRow>> + Send> = match batch {
                Ok(batch) => Box::new(OneByOne(RowEncoder::new(batch, Arc::clone(&of_rows)))),
                Err(error) => Box::new(std::iter::once(Err(to_wire(error)))),
            };
            stream::iter(rows)
        })
        .flatten();
    Ok(QueryResponse::new(fields, rows))
}

/// A batch's rows as an iterator that may be sent between threads.
struct OneByOne(RowEncoder);

impl Iterator for OneByOne {
    type Item = PgWireResult<DataRow>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next_row()
    }
}
