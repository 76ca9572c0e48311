//! Rows that a statement supplies to a query of its own: those that it has written or removed, for RETURNING.
//!
//! The query names a table of the catalog whose rows stand in the state of the session: [`SuppliedRows`] for the time of
//! this statement.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

/// Rows of a statement, in the columns that clients see.
#[derive(Clone, Debug, Default)]
pub(crate) struct SuppliedRows(pub(crate) Vec<RecordBatch>);

/// A table with the rows that the running statement supplies.
pub(crate) struct SuppliedTable {
    schema: SchemaRef,
}

impl SuppliedTable {
    pub(crate) fn new(schema: SchemaRef) -> Self {
        Self { schema }
    }
}

impl fmt::Debug for SuppliedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SuppliedTable({})", self.schema.fields().len())
    }
}

#[async_trait]
impl TableProvider for SuppliedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let supplied = state.config().get_extension::<SuppliedRows>().unwrap_or_default();
        let (rows, schema) = (supplied.0.clone(), Arc::clone(&self.schema));
        Ok(MemorySourceConfig::try_new_exec(&[rows], schema, projection.cloned())?)
    }
}
