//! Tables whose rows are computed when they are read, for the identity that reads them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, StringViewArray, TimestampMillisecondArray,
    UInt64Array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use partita_proto::load::Instant;

use crate::access::viewer::{Viewer, viewer_of};
use crate::error::SqlError;

type Rows = Pin<Box<dyn Future<Output = Result<RecordBatch, SqlError>> + Send>>;

/// A table without stored rows.
pub(crate) struct VirtualTable {
    schema: SchemaRef,
    rows: Box<dyn Fn(Arc<Viewer>) -> Rows + Send + Sync>,
}

impl fmt::Debug for VirtualTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VirtualTable({})", self.schema.fields().len())
    }
}

impl VirtualTable {
    /// A table with columns, and the function that computes for each scan the rows that its viewer may see.
    pub(crate) fn new<F>(
        schema: SchemaRef,
        rows: impl Fn(Arc<Viewer>) -> F + Send + Sync + 'static,
    ) -> Arc<Self>
    where
        F: Future<Output = Result<RecordBatch, SqlError>> + Send + 'static,
    {
        Arc::new(Self { schema, rows: Box::new(move |viewer| Box::pin(rows(viewer))) })
    }
}

#[async_trait]
impl TableProvider for VirtualTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rows = (self.rows)(viewer_of(state)?).await?;
        let schema = Arc::clone(&self.schema);
        Ok(MemorySourceConfig::try_new_exec(&[vec![rows]], schema, projection.cloned())?)
    }
}

/// Values of one column of a virtual table.
pub(crate) enum Cells {
    /// Texts, as Arrow string views.
    Text(Vec<Option<String>>),
    /// Unsigned integers.
    Count(Vec<Option<u64>>),
    /// Signed integers.
    Number(Vec<Option<i64>>),
    /// Booleans.
    Flag(Vec<Option<bool>>),
    /// Floating-point numbers.
    Float(Vec<Option<f64>>),
    /// Timestamps in milliseconds since 1970.
    Time(Vec<Option<i64>>),
}

/// Type of a column of a virtual table.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Text,
    Count,
    Number,
    Flag,
    Float,
    Time,
}

/// Schema with columns of the given names and types; all are nullable.
pub(crate) fn schema(columns: &[(&str, Kind)]) -> SchemaRef {
    let field = |(name, kind): &(&str, Kind)| {
        let data_type = match kind {
            Kind::Text => DataType::Utf8View,
            Kind::Count => DataType::UInt64,
            Kind::Number => DataType::Int64,
            Kind::Flag => DataType::Boolean,
            Kind::Float => DataType::Float64,
            Kind::Time => DataType::Timestamp(TimeUnit::Millisecond, None),
        };
        Field::new(*name, data_type, true)
    };
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// A value of one row and column; NULL if `None`.
pub(crate) enum Cell {
    Text(Option<String>),
    Count(Option<u64>),
    Number(Option<i64>),
    Flag(Option<bool>),
    Float(Option<f64>),
    Time(Option<i64>),
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Self::Float(Some(value))
    }
}

impl From<Option<f64>> for Cell {
    fn from(value: Option<f64>) -> Self {
        Self::Float(value)
    }
}

impl From<Option<bool>> for Cell {
    fn from(value: Option<bool>) -> Self {
        Self::Flag(value)
    }
}

impl From<Instant> for Cell {
    fn from(value: Instant) -> Self {
        Self::Time(i64::try_from(value.0).ok())
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        Self::Text(Some(value.to_owned()))
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Self::Text(Some(value))
    }
}

impl From<Option<String>> for Cell {
    fn from(value: Option<String>) -> Self {
        Self::Text(value)
    }
}

impl From<u64> for Cell {
    fn from(value: u64) -> Self {
        Self::Count(Some(value))
    }
}

impl From<Option<u64>> for Cell {
    fn from(value: Option<u64>) -> Self {
        Self::Count(value)
    }
}

impl From<i64> for Cell {
    fn from(value: i64) -> Self {
        Self::Number(Some(value))
    }
}

impl From<Option<i64>> for Cell {
    fn from(value: Option<i64>) -> Self {
        Self::Number(value)
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Self::Flag(Some(value))
    }
}

/// Converts rows to columns of a schema. A cell of another type than its column is an error.
pub(crate) fn batch(schema: &SchemaRef, rows: Vec<Vec<Cell>>) -> Result<RecordBatch, SqlError> {
    // The schema decides the type of each column, so an empty table has columns too.
    let mut columns: Vec<Cells> = schema
        .fields()
        .iter()
        .map(|field| match field.data_type() {
            DataType::UInt64 => Cells::Count(Vec::with_capacity(rows.len())),
            DataType::Int64 => Cells::Number(Vec::with_capacity(rows.len())),
            DataType::Boolean => Cells::Flag(Vec::with_capacity(rows.len())),
            DataType::Float64 => Cells::Float(Vec::with_capacity(rows.len())),
            DataType::Timestamp(..) => Cells::Time(Vec::with_capacity(rows.len())),
            _ => Cells::Text(Vec::with_capacity(rows.len())),
        })
        .collect();
    for row in rows {
        if row.len() != columns.len() {
            return Err(SqlError::internal(format!(
                "a row of {} cells for {} columns",
                row.len(),
                columns.len()
            )));
        }
        for (column, cell) in columns.iter_mut().zip(row) {
            match (column, cell) {
                (Cells::Text(cells), Cell::Text(value)) => cells.push(value),
                (Cells::Count(cells), Cell::Count(value)) => cells.push(value),
                (Cells::Number(cells), Cell::Number(value)) => cells.push(value),
                (Cells::Flag(cells), Cell::Flag(value)) => cells.push(value),
                (Cells::Float(cells), Cell::Float(value)) => cells.push(value),
                (Cells::Time(cells), Cell::Time(value)) => cells.push(value),
                _ => return Err(SqlError::internal("a cell of another type than its column")),
            }
        }
    }
    let arrays: Vec<ArrayRef> = columns
        .into_iter()
        .map(|cells| match cells {
            Cells::Text(cells) => {
                Arc::new(cells.into_iter().collect::<StringViewArray>()) as ArrayRef
            }
            Cells::Count(cells) => Arc::new(UInt64Array::from(cells)),
            Cells::Number(cells) => Arc::new(Int64Array::from(cells)),
            Cells::Flag(cells) => Arc::new(BooleanArray::from(cells)),
            Cells::Float(cells) => Arc::new(Float64Array::from(cells)),
            Cells::Time(cells) => Arc::new(TimestampMillisecondArray::from(cells)),
        })
        .collect();
    Ok(RecordBatch::try_new(Arc::clone(schema), arrays)?)
}
