//! Converts rows of the nodes to rows of the plan.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use futures::{Stream, StreamExt};
use partita_worker::Renamed;

use super::row_filter::RowFilter;
use super::spec::ScanSpec;
use crate::error::SqlError;

/// Ends a stream after `limit` rows.
pub(super) fn limited(
    rows: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
    limit: Option<usize>,
) -> futures::stream::BoxStream<'static, Result<RecordBatch>> {
    let Some(limit) = limit else { return rows.boxed() };
    rows.scan(limit, |remaining, batch| {
        let item = match batch {
            _ if *remaining == 0 => None,
            Ok(batch) => {
                let rows = batch.num_rows().min(*remaining);
                *remaining -= rows;
                Some(Ok(if rows < batch.num_rows() { batch.slice(0, rows) } else { batch }))
            }
            Err(error) => Some(Err(error)),
        };
        futures::future::ready(item)
    })
    .boxed()
}

/// Conversion of a node's rows to the plan's columns.
pub(super) enum Shape {
    /// Rows of the table, with storage names.
    Scanned(Renamed),
    /// The same with more columns, for a row filter.
    Filtered(Renamed, RowFilter),
    /// Results of pushed-down operators: the right columns, but possibly another layout of texts.
    Made(SchemaRef),
}

impl Shape {
    pub(super) fn of(spec: &ScanSpec) -> Self {
        let renamed = |schema| Renamed::new(schema, Arc::clone(&spec.columns));
        match (&spec.at_data, &spec.row_filter) {
            // The operators have the filter below them.
            (Some(_), _) => Self::Made(spec.output_schema()),
            (None, Some(filter)) => {
                Self::Filtered(renamed(Arc::clone(filter.schema())), filter.clone())
            }
            (None, None) => Self::Scanned(renamed(spec.output_schema())),
        }
    }

    pub(super) fn give(&self, batch: &RecordBatch) -> Result<RecordBatch, SqlError> {
        let schema = match self {
            Self::Scanned(renamed) => return renamed.rows(batch),
            Self::Filtered(renamed, filter) => return filter.rows(&renamed.rows(batch)?),
            Self::Made(schema) => schema,
        };
        if batch.num_columns() != schema.fields().len() {
            return Err(SqlError::internal(format!(
                "a query fragment returned {} columns instead of {}",
                batch.num_columns(),
                schema.fields().len()
            )));
        }
        let columns = batch.columns().iter().zip(schema.fields());
        let columns = columns
            .map(|(column, field)| match field.data_type() {
                same if same == column.data_type() => Ok(Arc::clone(column)),
                data_type => cast(column, data_type),
            })
            .collect::<Result<Vec<ArrayRef>, ArrowError>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
    }
}
