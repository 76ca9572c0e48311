//! A table as DataFusion sees it.
//!
//! A scan turns its filters into domains, adds what they say of generated columns, and asks only the
//! partitions that can hold such rows. Filters stay in the plan above ([`Inexact`]): domains may hold
//! more rows than the filters do.
//!
//! A table whose rows were placed otherwise once is scanned together with its former table, whose rows are its rows: a
//! union of two scans, each with its own placement. Columns that came since have in the former one the value that they
//! were added with. A table whose rows are about to be placed otherwise is scanned together with the one that takes
//! over.
//!
//! [`Inexact`]: TableProviderFilterPushDown::Inexact

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Constraint, Constraints, ScalarValue};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    Column as PhysicalColumn, Literal as PhysicalLiteral,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;
use partita_proto::array::array_of;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::domain::Domains;
use partita_proto::schema::{Column, Semantic};
use partita_proto::value::Value;

use crate::error::SqlError;
use crate::ingest::plan::TablePlan;
use crate::predicate;
use crate::router::Router;
use crate::scan::{PartitionScanExec, ScanSpec};

/// Rows for which one more output is worth what it costs the plan: an exchange between tasks.
const ROWS_PER_OUTPUT: usize = 64 * 1024;
/// A guess, for how many values the first column of a key has.
const LEADING_VALUES: usize = 64;

/// A table at one version of its schema and one map of its partitions.
pub(crate) struct PartitionedTable {
    table: Arc<Table>,
    /// With the rows from before they were placed otherwise, or those from then on.
    other: Option<Box<PartitionedTable>>,
    router: Arc<Router>,
    state: Arc<SessionState>,
    schema: SchemaRef,
    constraints: Constraints,
}

impl fmt::Debug for PartitionedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartitionedTable({}.{})", self.table.database, self.table.name)
    }
}

impl PartitionedTable {
    /// A table of a catalog.
    pub(crate) fn of(
        catalog: &Catalog,
        table: &Arc<Table>,
        router: &Arc<Router>,
        state: &Arc<SessionState>,
    ) -> Self {
        let new = |table: &Arc<Table>| {
            Self::new(Arc::clone(table), Arc::clone(router), Arc::clone(state))
        };
        let other = catalog.read_along(table);
        Self { other: other.map(|other| Box::new(new(other))), ..new(table) }
    }

    fn new(table: Arc<Table>, router: Arc<Router>, state: Arc<SessionState>) -> Self {
        let schema = &table.schema;
        // Rows in append mode may share a key.
        let key: Vec<usize> =
            schema.key_columns().filter_map(|column| schema.index_of(&column.name)).collect();
        let unique = !schema.options.append_mode && !key.is_empty();
        let constraints = if unique { vec![Constraint::PrimaryKey(key)] } else { Vec::new() };
        Self {
            schema: schema.arrow(),
            constraints: Constraints::new_unverified(constraints),
            other: None,
            table,
            router,
            state,
        }
    }

    /// The columns to ask for; when no column is wanted, one that is cheap to read counts the rows.
    fn columns(&self, projection: &[usize]) -> SchemaRef {
        let columns = &self.table.schema.columns;
        let of = |positions: &[usize]| -> SchemaRef {
            let fields: Vec<_> =
                positions.iter().map(|position| columns[*position].storage_field()).collect();
            Arc::new(Schema::new(fields))
        };
        if !projection.is_empty() {
            return of(projection);
        }
        let cost = |column: &Column| {
            let width = match column.column_type.arrow() {
                DataType::Boolean => 1,
                other => other.primitive_width().unwrap_or(64),
            };
            // Any column that is NULL throughout is cheaper still, but the time index is in every file.
            (column.semantic == Semantic::Field, width)
        };
        let cheapest = (0..columns.len()).min_by_key(|position| cost(&columns[*position]));
        of(cheapest.as_slice())
    }

    /// About how many rows some partitions have, if anybody said.
    fn rows(&self, touched: &[usize]) -> Option<usize> {
        let counts = self.router.row_counts();
        let routes = self.table.partitions.routes();
        // Partitions that nobody spoke of yet are new and small.
        let known = touched.iter().filter_map(|at| counts.get(&routes[*at].partition));
        let any = known.clone().next().is_some();
        any.then(|| usize::try_from(known.sum::<u64>()).unwrap_or(usize::MAX))
    }

    fn spec(
        &self,
        plan: &TablePlan,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
        parallelism: usize,
    ) -> Result<ScanSpec, SqlError> {
        let schema = &self.table.schema;
        let all: Vec<usize> = (0..schema.columns.len()).collect();
        let projection = projection.unwrap_or(&all);
        let mut domains = predicate::domains_of(filters, schema);
        plan.derive(&mut domains);
        let ranges = plan.codec.key_ranges(schema, &self.table.placement, &domains);
        let touched = self.table.partitions.prune(&ranges);
        let rows = self.rows(&touched).map(|rows| rows_left(rows, &domains, &self.table));
        let outputs = outputs(rows, parallelism.max(1));
        // A series is read faster by one than split among many.
        let streams = if is_one_series(&domains, &self.table) {
            1
        } else {
            outputs.div_ceil(touched.len().max(1))
        };
        Ok(ScanSpec {
            rows,
            table: Arc::clone(&self.table),
            schema: Arc::new(self.schema.project(projection)?),
            columns: self.columns(projection),
            domains,
            limit,
            outputs: outputs.min(touched.len() * streams).max(1),
            newest_only: false,
            at_data: None,
            streams,
            touched,
        })
    }
}

/// A column's value in rows from before it was added.
fn missing(column: &Column) -> Result<ScalarValue, SqlError> {
    let value = column.missing.clone().unwrap_or(Value::Null);
    Ok(ScalarValue::try_from_array(&array_of(column.column_type, &[value])?, 0)?)
}

/// How many outputs a scan of about so many rows is given.
fn outputs(rows: Option<usize>, parallelism: usize) -> usize {
    rows.map_or(parallelism, |rows| parallelism.min(rows.div_ceil(ROWS_PER_OUTPUT)).max(1))
}

/// About how many of a table's rows are left by domains that bind the first column of its key to
/// some values.
fn rows_left(rows: usize, domains: &Domains, table: &Table) -> usize {
    let first = table.schema.key_columns().next();
    let tag = first.filter(|column| column.semantic != Semantic::TimeIndex);
    let domain = tag.and_then(|column| domains.get(&column.storage_name));
    match domain.and_then(|domain| domain.as_points(LEADING_VALUES)) {
        Some(points) => rows.div_ceil(LEADING_VALUES).saturating_mul(points.len()),
        None => rows,
    }
}

/// Whether every key column but the time index is bound to one value.
fn is_one_series(domains: &Domains, table: &Table) -> bool {
    let mut tags = table
        .schema
        .key_columns()
        .filter(|column| column.semantic != Semantic::TimeIndex)
        .peekable();
    tags.peek().is_some()
        && tags.all(|column| {
            domains.get(&column.storage_name).is_some_and(|domain| domain.as_points(1).is_some())
        })
}

#[async_trait]
impl TableProvider for PartitionedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn constraints(&self) -> Option<&Constraints> {
        Some(&self.constraints)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let schema = &self.table.schema;
        let support = |filter: &&Expr| {
            if !predicate::is_expressible(filter, schema) {
                TableProviderFilterPushDown::Unsupported
            } else if self.other.is_none() && predicate::is_exact(filter, schema) {
                TableProviderFilterPushDown::Exact
            } else {
                // What a former table lacks a column for is left to the plan above.
                TableProviderFilterPushDown::Inexact
            }
        };
        Ok(filters.iter().map(support).collect())
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let parallelism = state.config().target_partitions();
        let scan = self.scan_own(projection, filters, limit, parallelism)?;
        let Some(other) = &self.other else { return Ok(scan) };
        let along = other.scan_for(self, projection, filters, limit, parallelism)?;
        UnionExec::try_new(vec![scan, along])
    }
}

impl PartitionedTable {
    /// The rows of its own partitions.
    fn scan_own(
        &self,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
        parallelism: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.router.plan(&self.state, &self.table)?;
        let spec = self.spec(&plan, projection, filters, limit, parallelism)?;
        Ok(Arc::new(PartitionScanExec::new(spec, Arc::clone(&self.router))))
    }

    /// The rows of its partitions, with the columns of the table that it is read along with.
    fn scan_for(
        &self,
        asked: &Self,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
        parallelism: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let wanted = match projection {
            Some(projection) => Arc::new(asked.schema.project(projection)?),
            None => Arc::clone(&asked.schema),
        };
        let mut own = Vec::new();
        let mut columns: Vec<(Arc<dyn PhysicalExpr>, String)> = Vec::new();
        for field in wanted.fields() {
            let expr: Arc<dyn PhysicalExpr> = match self.table.schema.index_of(field.name()) {
                Some(position) => {
                    own.push(position);
                    Arc::new(PhysicalColumn::new(field.name(), own.len() - 1))
                }
                None => {
                    let value = asked.table.schema.column(field.name()).map(missing).transpose()?;
                    let null = || ScalarValue::try_from(field.data_type());
                    Arc::new(PhysicalLiteral::new(value.map_or_else(null, Ok)?))
                }
            };
            columns.push((expr, field.name().clone()));
        }
        // What a filter says of a column that came since is for the plan above to find out.
        let known = |filter: &&Expr| {
            filter.column_refs().iter().all(|column| self.schema.index_of(&column.name).is_ok())
        };
        let filters: Vec<Expr> = filters.iter().filter(known).cloned().collect();
        let scan = self.scan_own(Some(&own), &filters, limit, parallelism)?;
        Ok(Arc::new(ProjectionExec::try_new(columns, scan)?))
    }
}
