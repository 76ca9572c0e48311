//! The leaf of a fragment: reads the streams of one scan and renames their columns to SQL names.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use futures::StreamExt;
use parking_lot::Mutex;
use partita_proto::service::RowStream;

use crate::error::SqlError;

/// Renames columns from storage names to SQL names.
#[derive(Clone, Debug)]
pub struct Renamed {
    schema: SchemaRef,
    columns: SchemaRef,
}

impl Renamed {
    /// `schema` has the SQL names of the first of `columns`, in the same order; further columns are dropped.
    pub fn new(schema: SchemaRef, columns: SchemaRef) -> Self {
        Self { schema, columns }
    }

    /// Renames the columns of a batch.
    ///
    /// # Errors
    /// When a column is missing, or a NOT NULL column has a NULL.
    pub fn rows(&self, batch: &RecordBatch) -> Result<RecordBatch, SqlError> {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for (position, field) in self.schema.fields().iter().enumerate() {
            let column = self.columns.field(position);
            let array = match batch.schema_ref().index_of(column.name()) {
                Ok(index) => Arc::clone(batch.column(index)),
                Err(_) => {
                    return Err(SqlError::internal(format!(
                        "the scan did not return column \"{}\"",
                        field.name()
                    )));
                }
            };
            if !field.is_nullable() && array.null_count() > 0 {
                return Err(SqlError::new(
                    "XX001",
                    format!(
                        "column \"{}\" is NOT NULL but a stored row has no value",
                        field.name()
                    ),
                ));
            }
            columns.push(array);
        }
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

/// The leaf of a fragment. Where a fragment is made, it only stands for the scan; where it runs, it receives the scan's
/// streams, one for each partition of the plan.
#[derive(Debug)]
pub struct LeafExec {
    schema: SchemaRef,
    streams: Mutex<Streams>,
    properties: Arc<PlanProperties>,
}

struct Streams {
    remaining: Vec<Option<RowStream>>,
    columns: Option<SchemaRef>,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} streams", self.remaining.len())
    }
}

impl LeafExec {
    /// A leaf for rows with this schema, for up to `streams` streams.
    pub fn new(schema: SchemaRef, streams: usize) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            Partitioning::UnknownPartitioning(streams.max(1)),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            schema,
            streams: Mutex::new(Streams { remaining: Vec::new(), columns: None }),
            properties: Arc::new(properties),
        }
    }

    /// Provides streams of rows with these columns, one for each partition in order.
    pub(crate) fn give(&self, streams: Vec<RowStream>, columns: &SchemaRef) {
        let remaining = streams.into_iter().map(Some).collect();
        *self.streams.lock() = Streams { remaining, columns: Some(Arc::clone(columns)) };
    }
}

impl DisplayAs for LeafExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeafExec")
    }
}

impl ExecutionPlan for LeafExec {
    fn name(&self) -> &'static str {
        "LeafExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let mut streams = self.streams.lock();
        let stream = streams.remaining.get_mut(partition).and_then(Option::take);
        let (Some(rows), Some(columns)) = (stream, streams.columns.clone()) else {
            return Err(
                SqlError::internal("query fragment reads a stream that it was not given").into()
            );
        };
        let renamed = Renamed::new(Arc::clone(&self.schema), columns);
        let rows = rows.then(move |batch| {
            let rows = match batch {
                Ok(batch) => renamed.rows(&batch).map_err(DataFusionError::from),
                Err(error) => Err(DataFusionError::External(Box::new(error))),
            };
            async move {
                // The node has other work: yield after each batch.
                tokio::task::yield_now().await;
                rows
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows)))
    }
}
