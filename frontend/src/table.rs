//! DataFusion's table provider for tables.
//!
//! A scan turns its filters into domains, derives domains of generated columns, and reads only the partitions that
//! may hold such rows; what indexes can test beside domains travels as probes. Filters stay in the plan above
//! ([`Inexact`]): domains and probes may include more rows than the filters.
//!
//! A table whose placement was changed is scanned together with its former table, which holds its older rows: a union
//! of two scans, each with its own placement. Columns added since then have their default for older rows in the
//! former table. A table whose placement is about to change is scanned together with its successor.
//!
//! A copy of the table is scanned in its place if that touches fewer partitions, and the statement has meta's word that the
//! copy is in step ([`Readable`]).
//!
//! A row predicate restricts the scans of both: their domains, and a filter in the scan itself ([`RowFilter`]). If one of
//! the tables lacks a column of the predicate, the scan fails.
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
    CastExpr, Column as PhysicalColumn, Literal as PhysicalLiteral,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;
use partita_proto::access::RowPredicate;
use partita_proto::array::array_of;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::domain::Domains;
use partita_proto::id::{RoleId, TableId};
use partita_proto::schema::{Column, Semantic};
use partita_proto::value::Value;

use crate::copies::choose::{Readable, choose};
use crate::error::SqlError;
use crate::ingest::plan::TablePlan;
use crate::predicate;
use crate::scan::{PartitionScanExec, Reading, RowFilter, ScanSpec};
use crate::view::ClusterView;

/// Rows that justify another output: each costs the plan an exchange between tasks.
const ROWS_PER_OUTPUT: usize = 64 * 1024;
/// Assumed number of values of a key's first column.
const LEADING_VALUES: usize = 64;

/// View through which a table or another view is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Through {
    /// Owner of the view that names the table: by the rights of this role it is read.
    pub(crate) owner: RoleId,
    /// View that the statement names, which may read the table through others.
    pub(crate) view: TableId,
    /// Number of views between the statement and the table.
    pub(crate) depth: usize,
}

/// A table at one schema version and one partition map.
pub(crate) struct PartitionedTable {
    table: Arc<Table>,
    /// The former table or the successor, whose rows are included.
    companion: Option<Box<PartitionedTable>>,
    /// The table that is named, if this is a copy that is scanned in its place.
    source: Option<Arc<Table>>,
    /// True if the table was re-keyed a short while ago.
    was_rekeyed: bool,
    /// Rows that may be read; `None`: all of them.
    rows: Option<RowPredicate>,
    /// View through which the table is read.
    through: Option<Through>,
    view: Arc<ClusterView>,
    state: Arc<SessionState>,
    schema: SchemaRef,
    /// Positions of these columns among those of the table.
    shown: Vec<usize>,
    constraints: Constraints,
}

impl fmt::Debug for PartitionedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartitionedTable({}.{})", self.table.database, self.table.name)
    }
}

impl PartitionedTable {
    /// The table with the rows that are included in it; of all of them, only those that `rows` allows.
    pub(crate) fn of(
        catalog: &Catalog,
        table: &Arc<Table>,
        view: &Arc<ClusterView>,
        state: &Arc<SessionState>,
        rows: Option<RowPredicate>,
    ) -> Self {
        let new = |table: &Arc<Table>| {
            let table = Self::new(Arc::clone(table), Arc::clone(view), Arc::clone(state));
            Self { rows: rows.clone(), ..table }
        };
        let companion = catalog.read_along(table);
        Self {
            companion: companion.map(|table| Box::new(new(table))),
            was_rekeyed: catalog.was_rekeyed(table.id),
            ..new(table)
        }
    }

    /// The table as a view reads it.
    pub(crate) fn read_through(self, through: Option<Through>) -> Self {
        Self { through, ..self }
    }

    /// View through which the table is read; `None`: the statement names the table itself.
    pub(crate) fn through(&self) -> Option<Through> {
        self.through
    }

    /// The table with its hidden columns, for statements that change rows.
    pub(crate) fn with_hidden(self) -> Self {
        let columns = &self.table.schema.columns;
        let (schema, positions) = (self.table.schema.arrow(), (0..columns.len()).collect());
        Self { schema, shown: positions, ..self }
    }

    /// Definition of the table.
    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Rows that scans return; `None`: all of them.
    pub(crate) fn rows(&self) -> Option<&RowPredicate> {
        self.rows.as_ref()
    }

    fn new(table: Arc<Table>, view: Arc<ClusterView>, state: Arc<SessionState>) -> Self {
        let schema = &table.schema;
        // Rows in append mode may share a key, so it is no constraint.
        let key: Vec<usize> =
            schema.key_columns().filter_map(|column| schema.index_of(&column.name)).collect();
        let unique = !schema.options.append_mode && !key.is_empty() && !schema.is_keyless();
        let constraints = if unique { vec![Constraint::PrimaryKey(key)] } else { Vec::new() };
        Self {
            schema: schema.shown_arrow(),
            shown: (0..schema.columns.len())
                .filter(|position| !schema.columns[*position].is_hidden())
                .collect(),
            constraints: Constraints::new_unverified(constraints),
            companion: None,
            source: None,
            was_rekeyed: false,
            rows: None,
            through: None,
            table,
            view,
            state,
        }
    }

    /// The copy to scan in place of the table: the one of which a scan with these filters touches the fewest partitions,
    /// if these are fewer than those of the table.
    ///
    /// # Errors
    /// Fails if the row predicate does not fit the table.
    pub(crate) fn nearer_copy<'a>(
        &self,
        copies: impl Iterator<Item = &'a Arc<Table>>,
        filters: &[Expr],
    ) -> Result<Option<Self>, SqlError> {
        let over_copy = |copy: &Arc<Table>| Self {
            source: Some(Arc::clone(&self.table)),
            rows: self.rows.clone(),
            ..Self::new(Arc::clone(copy), Arc::clone(&self.view), Arc::clone(&self.state))
        };
        let copies: Vec<Self> = copies.map(over_copy).collect();
        if copies.is_empty() || self.companion.is_some() {
            return Ok(None);
        }
        let source_touched = self.touched(filters)?;
        let mut touched = Vec::with_capacity(copies.len());
        for copy in &copies {
            touched.push((copy.table.id, copy.touched(filters)?));
        }
        let nearest = choose(source_touched, touched);
        Ok(copies.into_iter().find(|copy| Some(copy.table.id) == nearest))
    }

    /// Number of partitions that may hold rows of the filters.
    fn touched(&self, filters: &[Expr]) -> Result<usize, SqlError> {
        let plan = self.view.plan(&self.state, &self.table)?;
        let mut domains = self.domains(filters)?;
        plan.derive(&mut domains);
        let (schema, placement) = (&self.table.schema, &self.table.placement);
        let ranges = plan.codec.key_ranges(schema, placement, &domains);
        Ok(self.table.partitions.prune(&ranges).len())
    }

    /// Columns to request, by their positions in the schema; for no column, one that is cheap to read and counts the
    /// rows, unless others follow.
    fn columns(&self, projection: &[usize], others_follow: bool) -> SchemaRef {
        let columns = &self.table.schema.columns;
        let fields_at = |positions: &[usize]| -> SchemaRef {
            let fields: Vec<_> =
                positions.iter().map(|position| columns[*position].storage_field()).collect();
            Arc::new(Schema::new(fields))
        };
        if !projection.is_empty() || others_follow {
            let positions: Vec<usize> =
                projection.iter().map(|position| self.shown[*position]).collect();
            return fields_at(&positions);
        }
        let cost = |column: &Column| {
            let width = match column.column_type.arrow() {
                DataType::Boolean => 1,
                data_type => data_type.primitive_width().unwrap_or(64),
            };
            // A column of NULLs would be cheaper still, but the time index is in every file.
            (column.semantic == Semantic::Field, width)
        };
        let cheapest = (0..columns.len()).min_by_key(|position| cost(&columns[*position]));
        fields_at(cheapest.as_slice())
    }

    /// Estimated rows of some partitions; `None` without an estimate.
    fn row_count(&self, touched: &[usize]) -> Option<usize> {
        let counts = self.view.row_counts();
        let routes = self.table.partitions.routes();
        // Partitions without an estimate are new and small.
        let counts = touched.iter().filter_map(|position| counts.get(&routes[*position].partition));
        let has_counts = counts.clone().next().is_some();
        has_counts.then(|| usize::try_from(counts.sum::<u64>()).unwrap_or(usize::MAX))
    }

    /// Domains of the row predicate and of filters.
    fn domains(&self, filters: &[Expr]) -> Result<Domains, SqlError> {
        let schema = &self.table.schema;
        let of_filters = predicate::domains_of(filters, schema);
        let Some(rows) = &self.rows else { return Ok(of_filters) };
        // In this order: an intersection of values that are not comparable is the first domain.
        let mut domains = rows.domains(schema)?;
        for (column, domain) in of_filters.iter() {
            domains.restrict(column, domain.clone());
        }
        Ok(domains)
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
        let all_columns: Vec<usize> = (0..self.shown.len()).collect();
        let projection = projection.unwrap_or(&all_columns);
        let output: SchemaRef = Arc::new(self.schema.project(projection)?);
        let mut domains = self.domains(filters)?;
        plan.derive(&mut domains);
        let new_filter = |rows| RowFilter::new(rows, schema, &output);
        let row_filter = self.rows.as_ref().map(new_filter).transpose()?;
        let ranges = plan.codec.key_ranges(schema, &self.table.placement, &domains);
        let touched = self.table.partitions.prune(&ranges);
        // The figure counts the rows of others, so nothing may depend on it.
        let rows = if row_filter.is_none() { self.row_count(&touched) } else { None };
        let rows = rows.map(|rows| rows_left(rows, &domains, &self.table));
        let outputs = outputs(rows, parallelism.max(1));
        // One stream reads a series faster than several would.
        let streams = if is_one_series(&domains, &self.table) {
            1
        } else {
            outputs.div_ceil(touched.len().max(1))
        };
        Ok(ScanSpec {
            rows,
            table: Arc::clone(&self.table),
            in_place_of: self.source.clone(),
            columns: match &row_filter {
                Some(filter) => filter.requested(&self.columns(projection, true)),
                None => self.columns(projection, false),
            },
            schema: output,
            domains,
            probes: predicate::probes_of(filters, schema),
            filters: predicate::classes_of(filters, schema),
            row_filter,
            limit,
            outputs: outputs.min(touched.len() * streams).max(1),
            newest_only: false,
            reading: Reading::default(),
            first_by_time: None,
            order: None,
            at_data: None,
            streams,
            touched,
        })
    }
}

/// Value of a column in rows from before it was added.
fn missing(column: &Column) -> Result<ScalarValue, SqlError> {
    let value = column.missing.clone().unwrap_or(Value::Null);
    Ok(ScalarValue::try_from_array(&array_of(column.column_type, &[value])?, 0)?)
}

/// Number of outputs of a scan of about `rows` rows.
fn outputs(rows: Option<usize>, parallelism: usize) -> usize {
    rows.map_or(parallelism, |rows| parallelism.min(rows.div_ceil(ROWS_PER_OUTPUT)).max(1))
}

/// Estimated rows of a table after domains bind the first column of its key to some values.
fn rows_left(rows: usize, domains: &Domains, table: &Table) -> usize {
    let first = table.schema.key_columns().next();
    let tag = first.filter(|column| column.semantic != Semantic::TimeIndex);
    let domain = tag.and_then(|column| domains.get(&column.storage_name));
    match domain.and_then(|domain| domain.as_points(LEADING_VALUES)) {
        Some(points) => rows.div_ceil(LEADING_VALUES).saturating_mul(points.len()),
        None => rows,
    }
}

/// Returns true if every key column except the time index is bound to one value.
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
            let is_known =
                predicate::is_expressible(filter, schema) || predicate::is_probed(filter, schema);
            if !is_known {
                TableProviderFilterPushDown::Unsupported
            } else if self.companion.is_none() && predicate::is_exact(filter, schema) {
                TableProviderFilterPushDown::Exact
            } else {
                // The plan above filters columns that a former table does not have.
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
        let reading = state.config().get_extension::<Reading>();
        let reading = reading.map_or_else(Reading::default, |reading| *reading);
        // Rows of a copy, of two placements of a table, and of one that was a copy until a moment ago are written again
        // later than they were acknowledged.
        let is_settled = self.companion.is_none() && self.table.copy.is_none() && !self.was_rekeyed;
        let bounds = (parallelism, if is_settled { reading } else { reading.linearizable() });
        if let Some(readable) = state.config().get_extension::<Readable>()
            && let Some(copy) = self.nearer_copy(readable.of(&self.table), filters)?
        {
            self.view.metrics().copy_reads.add(1);
            let bounds = (parallelism, reading.linearizable());
            return copy.scan_own(projection, filters, limit, bounds);
        }
        let scan = self.scan_own(projection, filters, limit, bounds)?;
        let Some(companion) = &self.companion else { return Ok(scan) };
        let included = companion.scan_for(self, projection, filters, limit, bounds)?;
        UnionExec::try_new(vec![scan, included])
    }
}

impl PartitionedTable {
    /// Scans the rows of the table's own partitions.
    fn scan_own(
        &self,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
        (parallelism, reading): (usize, Reading),
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.view.plan(&self.state, &self.table)?;
        let spec = self.spec(&plan, projection, filters, limit, parallelism)?;
        let spec = ScanSpec { reading, ..spec };
        Ok(Arc::new(PartitionScanExec::new(spec, Arc::clone(&self.view))))
    }

    /// Scans the rows of the table's partitions with the columns of `reader`, the table that includes them.
    fn scan_for(
        &self,
        reader: &Self,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
        bounds: (usize, Reading),
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let reader_schema = match projection {
            Some(projection) => Arc::new(reader.schema.project(projection)?),
            None => Arc::clone(&reader.schema),
        };
        let mut positions = Vec::new();
        let mut columns: Vec<(Arc<dyn PhysicalExpr>, String)> = Vec::new();
        let own_columns = &self.table.schema.columns;
        for field in reader_schema.fields() {
            // Columns have one id in both tables; while one is renamed, it may have two names.
            let column = reader.table.schema.column(field.name());
            let position = column.and_then(|column| {
                own_columns.iter().position(|own_column| own_column.id == column.id)
            });
            let expr: Arc<dyn PhysicalExpr> = match position {
                Some(position) => {
                    positions.push(position);
                    let own_column = &own_columns[position];
                    let value = PhysicalColumn::new(&own_column.name, positions.len() - 1);
                    // While it gets a wider type, it may have two types.
                    match own_column.column_type.arrow() == *field.data_type() {
                        true => Arc::new(value),
                        false => {
                            let data_type = field.data_type().clone();
                            Arc::new(CastExpr::new(Arc::new(value), data_type, None))
                        }
                    }
                }
                None => {
                    let value = column.map(missing).transpose()?;
                    let null = || ScalarValue::try_from(field.data_type());
                    Arc::new(PhysicalLiteral::new(value.map_or_else(null, Ok)?))
                }
            };
            columns.push((expr, field.name().clone()));
        }
        // Filters on columns added since are left to the plan above.
        let is_common = |name: &str| {
            let columns = self.table.schema.column(name).zip(reader.table.schema.column(name));
            columns.is_some_and(|(own_column, column)| own_column.id == column.id)
        };
        let is_applicable =
            |filter: &&Expr| filter.column_refs().iter().all(|column| is_common(&column.name));
        let filters: Vec<Expr> = filters.iter().filter(is_applicable).cloned().collect();
        let scan = self.scan_own(Some(&positions), &filters, limit, bounds)?;
        Ok(Arc::new(ProjectionExec::try_new(columns, scan)?))
    }
}
