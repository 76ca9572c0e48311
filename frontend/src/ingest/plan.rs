//! The ingest plan of a table at one schema version: completes rows and encodes their keys.
//!
//! Invariants of completed rows:
//! - columns go by storage name and have the table's types;
//! - all key columns are present, and so is every other column that is not entirely NULL or in which older rows have
//!   a default;
//! - generated columns are computed, never taken from the client;
//! - rows of a table without a key have the hidden one that they were given first (`row_ids.rs`);
//! - NOT NULL columns have no NULL, and no CHECK constraint is false.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatchOptions, new_null_array};
use arrow::compute::{and, is_null};
use arrow::datatypes::{Field, FieldRef, Schema};
use arrow::record_batch::RecordBatch;
use datafusion::execution::SessionState;
use parking_lot::Mutex;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::domain::{Domain, Domains};
use partita_proto::id::{SchemaVersion, TableId};
use partita_proto::key::KeyCodec;
use partita_proto::schema::{Semantic, TableSchema};
use partita_proto::value::Value;

use super::calendar;
use super::cast::assign;
use super::cells;
use super::expression::{Condition, DefaultValue, Generated};
use super::row_ids;
use super::size::{larger_rows, longer_than, oversized_row};
use crate::error::{DUPLICATE_COLUMN, GENERATED_ALWAYS, PROGRAM_LIMIT_EXCEEDED, SqlError};

/// SQLSTATE of a row that a constraint does not allow.
pub(crate) const CHECK_VIOLATION: &str = "23514";
/// Maximum bytes of a row.
pub(crate) const ROW_BYTES_MAX: usize = 16 << 20;
/// Larger rows are counted as a warning, since a batch of few rows then takes much memory.
pub(crate) const ROW_BYTES_SOFT_MAX: usize = 8 << 20;
/// Longer key columns are counted as a warning, since they make files and scans of the key slow.
pub(crate) const KEY_COLUMN_BYTES_SOFT_MAX: usize = 2 << 10;
/// Maximum values of a generated column that are computed from the inputs that a predicate binds.
const POINTS_MAX: usize = 1024;

/// Completes rows of one table.
pub(crate) struct TablePlan {
    pub(crate) schema: Arc<TableSchema>,
    pub(crate) codec: KeyCodec,
    state: Arc<SessionState>,
    table: String,
    /// By column position.
    defaults: Vec<DefaultValue>,
    generated: Vec<Generated>,
    checks: Vec<Condition>,
    /// By column position, under storage names.
    fields: Vec<FieldRef>,
}

/// Rows in the form that partitions store.
#[derive(Debug)]
pub(crate) struct Completed {
    pub(crate) rows: RecordBatch,
    /// Number of rows with a key column above the soft limit.
    pub(crate) long_keys: u64,
    /// Number of rows above the soft limit of their size.
    pub(crate) large_rows: u64,
}

impl Completed {
    /// Rows whose length was counted before.
    pub(crate) fn counted(rows: RecordBatch) -> Self {
        Self { rows, long_keys: 0, large_rows: 0 }
    }
}

impl TablePlan {
    pub(crate) fn new(state: &Arc<SessionState>, table: &Table) -> Result<Self, SqlError> {
        let schema = Arc::clone(&table.schema);
        let defaults = schema
            .columns
            .iter()
            .map(|column| DefaultValue::new(state, column))
            .collect::<Result<_, _>>()?;
        let generated = (0..schema.columns.len())
            .filter_map(|position| Generated::new(state, &schema, position).transpose())
            .collect::<Result<_, _>>()?;
        let new_check = |check| Condition::new(state, &schema, check);
        let checks = schema.checks.iter().map(new_check).collect::<Result<_, _>>()?;
        let fields = schema.columns.iter().map(|column| Arc::new(column.storage_field())).collect();
        Ok(Self {
            codec: KeyCodec::new(&schema, &table.placement)?,
            schema,
            state: Arc::clone(state),
            table: table.name.clone(),
            defaults,
            generated,
            checks,
            fields,
        })
    }

    /// Columns that identify a row to delete: the key columns that are not generated, and the inputs of those that
    /// are.
    pub(crate) fn delete_columns(&self) -> Vec<String> {
        let columns = &self.schema.columns;
        let mut positions: BTreeSet<usize> = BTreeSet::new();
        for (position, column) in columns.iter().enumerate() {
            if !self.schema.is_key(column.id) {
                continue;
            }
            match self.generated.iter().find(|generated| generated.column == position) {
                Some(generated) => positions.extend(&generated.inputs),
                None => {
                    positions.insert(position);
                }
            }
        }
        positions.into_iter().map(|position| columns[position].name.clone()).collect()
    }

    /// Completes rows with columns under SQL names.
    pub(crate) fn complete(&self, rows: &RecordBatch) -> Result<Completed, SqlError> {
        let columns = self.filled(rows)?;
        self.check_not_null(&columns, rows.num_rows())?;
        self.check_some_field(&columns, rows.num_rows())?;
        self.check_conditions(&columns, rows.num_rows())?;
        if let Some(wide) = &self.schema.options.wide {
            cells::check(wide, &columns, rows.num_rows())?;
        }
        self.finish(columns, rows.num_rows(), |_| true)
    }

    /// As [`TablePlan::complete`], for rows that are there already: they may be older than a constraint.
    pub(crate) fn complete_stored(&self, rows: &RecordBatch) -> Result<Completed, SqlError> {
        let columns = self.filled(rows)?;
        self.finish(columns, rows.num_rows(), |_| true)
    }

    /// The columns of rows under SQL names, by position, with defaults and generated ones.
    fn filled(&self, rows: &RecordBatch) -> Result<Vec<Option<ArrayRef>>, SqlError> {
        let mut columns = self.given(rows)?;
        for (position, column) in self.schema.columns.iter().enumerate() {
            if let Some(values) = &columns[position] {
                calendar::check(values, &column.name)?;
            }
            if columns[position].is_none() && column.is_hidden() {
                columns[position] = Some(Arc::new(row_ids::next(rows.num_rows())));
            }
            let default = &self.defaults[position];
            // Without an explicit NULL, readers would fill a later column with the value for older rows.
            let is_needed = !default.is_null() || column.missing.is_some();
            if columns[position].is_none() && column.generated.is_none() && is_needed {
                columns[position] = Some(default.array(&self.state, column, rows.num_rows())?);
            }
        }
        self.generate(&mut columns, rows.num_rows())?;
        Ok(columns)
    }

    /// Completes keys with columns under SQL names, for a delete: key columns only.
    pub(crate) fn complete_keys(&self, rows: &RecordBatch) -> Result<Completed, SqlError> {
        let mut columns = self.given(rows)?;
        let is_key: Vec<bool> =
            self.schema.columns.iter().map(|column| self.schema.is_key(column.id)).collect();
        for (position, column) in self.schema.columns.iter().enumerate() {
            if is_key[position] && columns[position].is_none() && column.generated.is_none() {
                return Err(SqlError::undefined_column(&column.name, &self.table)
                    .with_detail("a delete by key requires all key columns"));
            }
        }
        self.generate(&mut columns, rows.num_rows())?;
        self.finish(columns, rows.num_rows(), |position| is_key[position])
    }

    /// Completes rows that have the storage names and types of an older schema version. Dropped columns are left out, new
    /// ones get their default.
    pub(crate) fn complete_again(
        &self,
        rows: &RecordBatch,
        keys: bool,
    ) -> Result<Completed, SqlError> {
        let mut fields = Vec::new();
        let mut arrays = Vec::new();
        for column in self.schema.columns.iter().filter(|column| column.generated.is_none()) {
            if let Some(array) = rows.column_by_name(&column.storage_name) {
                // The column may have a wider type now, to which the values are assigned.
                fields.push(Field::new(&column.name, array.data_type().clone(), true));
                arrays.push(Arc::clone(array));
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let rows =
            RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?;
        if keys { self.complete_keys(&rows) } else { self.complete(&rows) }
    }

    /// The client's columns by position, converted to the table's types.
    fn given(&self, rows: &RecordBatch) -> Result<Vec<Option<ArrayRef>>, SqlError> {
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.schema.columns.len()];
        for (field, array) in rows.schema_ref().fields().iter().zip(rows.columns()) {
            let position = self
                .schema
                .index_of(field.name())
                .ok_or_else(|| SqlError::undefined_column(field.name(), &self.table))?;
            let column = &self.schema.columns[position];
            if column.generated.is_some() {
                return Err(SqlError::new(
                    GENERATED_ALWAYS,
                    format!("cannot insert a value into column \"{}\"", column.name),
                )
                .with_detail(format!("column \"{}\" is a generated column", column.name)));
            }
            if columns[position].replace(assign(array, column)?).is_some() {
                return Err(SqlError::new(
                    DUPLICATE_COLUMN,
                    format!("column \"{}\" specified more than once", column.name),
                ));
            }
        }
        Ok(columns)
    }

    fn generate(&self, columns: &mut [Option<ArrayRef>], rows: usize) -> Result<(), SqlError> {
        if self.generated.is_empty() {
            return Ok(());
        }
        let columns_by_name = self.by_sql_name(columns, rows)?;
        for generated in &self.generated {
            columns[generated.column] = Some(generated.array(&self.schema, &columns_by_name)?);
        }
        Ok(())
    }

    /// All columns under SQL names; missing ones are NULL.
    fn by_sql_name(
        &self,
        columns: &[Option<ArrayRef>],
        rows: usize,
    ) -> Result<RecordBatch, SqlError> {
        let mut fields = Vec::with_capacity(columns.len());
        let mut arrays = Vec::with_capacity(columns.len());
        for (column, array) in self.schema.columns.iter().zip(columns) {
            fields.push(column.field().with_nullable(true));
            arrays.push(match array {
                Some(array) => Arc::clone(array),
                None => new_null_array(&column.column_type.arrow(), rows),
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?)
    }

    fn check_not_null(&self, columns: &[Option<ArrayRef>], rows: usize) -> Result<(), SqlError> {
        if rows == 0 {
            return Ok(());
        }
        for (column, array) in self.schema.columns.iter().zip(columns) {
            let has_null = array.as_ref().is_none_or(|array| array.null_count() > 0);
            if has_null && !column.nullable {
                let row = array
                    .as_ref()
                    .and_then(|array| (0..array.len()).find(|row| array.is_null(*row)));
                let error = SqlError::not_null(&column.name, &self.table);
                return Err(match row {
                    Some(row) if rows > 1 => error.with_detail(format!("in row {}", row + 1)),
                    _ => error,
                });
            }
        }
        Ok(())
    }

    /// Requires a non-NULL field in every row of a table with schema on write, as line protocol does; otherwise rows
    /// could exist that no line can write.
    fn check_some_field(&self, columns: &[Option<ArrayRef>], rows: usize) -> Result<(), SqlError> {
        if !self.schema.schema_on_write || rows == 0 {
            return Ok(());
        }
        let mut all_null: Option<BooleanArray> = None;
        for (column, array) in self.schema.columns.iter().zip(columns) {
            let (Semantic::Field, Some(array)) = (column.semantic, array) else { continue };
            if array.null_count() == 0 {
                return Ok(());
            }
            let null = is_null(array)?;
            all_null = Some(match all_null {
                Some(mask) => and(&mask, &null)?,
                None => null,
            });
        }
        if all_null.is_none_or(|mask| mask.true_count() > 0) {
            return Err(SqlError::new(
                CHECK_VIOLATION,
                format!(
                    "a row of relation \"{}\" must have at least one field that is not null",
                    self.table
                ),
            ));
        }
        Ok(())
    }

    /// Refuses rows that fail a CHECK constraint.
    fn check_conditions(&self, columns: &[Option<ArrayRef>], rows: usize) -> Result<(), SqlError> {
        if self.checks.is_empty() || rows == 0 {
            return Ok(());
        }
        let columns_by_name = self.by_sql_name(columns, rows)?;
        for check in &self.checks {
            if let Some(row) = check.failing_row(&columns_by_name)? {
                let message = format!(
                    "new row for relation \"{}\" violates check constraint \"{}\"",
                    self.table, check.name
                );
                let error = SqlError::new(CHECK_VIOLATION, message);
                return Err(match rows {
                    1 => error,
                    _ => error.with_detail(format!("in row {}", row + 1)),
                });
            }
        }
        Ok(())
    }

    fn finish(
        &self,
        columns: Vec<Option<ArrayRef>>,
        rows: usize,
        is_wanted: impl Fn(usize) -> bool,
    ) -> Result<Completed, SqlError> {
        let mut fields = Vec::with_capacity(columns.len());
        let mut arrays = Vec::with_capacity(columns.len());
        let mut long_keys = 0;
        for (position, array) in columns.into_iter().enumerate() {
            let is_key = self.schema.is_key(self.schema.columns[position].id);
            if !is_wanted(position) {
                continue;
            }
            // A missing key column is NULL in the key; any other is left out.
            let array = match array {
                Some(array) => array,
                None if is_key => new_null_array(self.fields[position].data_type(), rows),
                None => continue,
            };
            if is_key {
                long_keys += longer_than(&array, KEY_COLUMN_BYTES_SOFT_MAX);
            }
            fields.push(Arc::clone(&self.fields[position]));
            arrays.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let rows =
            RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?;
        // The bound holds for the stored row, defaults and generated columns included.
        if let Some((row, bytes)) = oversized_row(&rows, ROW_BYTES_MAX) {
            return Err(SqlError::new(
                PROGRAM_LIMIT_EXCEEDED,
                format!(
                    "row {} of {bytes} bytes exceeds the limit of {ROW_BYTES_MAX} bytes",
                    row + 1
                ),
            ));
        }
        let large_rows = larger_rows(&rows, ROW_BYTES_SOFT_MAX);
        Ok(Completed { rows, long_keys, large_rows })
    }

    /// Adds domains of generated columns: if all inputs of a generated column are bound to a few values, so is the
    /// column.
    pub(crate) fn derive(&self, domains: &mut Domains) {
        for generated in &self.generated {
            // A column that cannot be computed stays unrestricted; the predicate itself is checked anyway.
            if let Some(points) = self.points_of(generated, domains) {
                let column = &self.schema.columns[generated.column];
                domains.restrict(&column.storage_name, Domain::points(points));
            }
        }
    }

    fn points_of(&self, generated: &Generated, domains: &Domains) -> Option<Vec<Value>> {
        if generated.inputs.is_empty() {
            return None;
        }
        // Each combination of the inputs' values makes a row.
        let mut rows: Vec<Vec<Value>> = vec![Vec::new()];
        for input in &generated.inputs {
            let column = &self.schema.columns[*input];
            let domain = domains.get(&column.storage_name)?;
            let points = domain.points_of(column.column_type, POINTS_MAX).ok()??;
            if rows.len().checked_mul(points.len())? > POINTS_MAX {
                return None;
            }
            rows = rows
                .iter()
                .flat_map(|row| {
                    points.iter().map(move |point| {
                        let mut row = row.clone();
                        row.push(point.clone());
                        row
                    })
                })
                .collect();
        }
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.schema.columns.len()];
        for (index, input) in generated.inputs.iter().enumerate() {
            let values: Vec<Value> = rows.iter().map(|row| row[index].clone()).collect();
            let column_type = self.schema.columns[*input].column_type;
            columns[*input] = Some(partita_proto::array::array_of(column_type, &values).ok()?);
        }
        let input_rows = self.by_sql_name(&columns, rows.len()).ok()?;
        let computed = generated.array(&self.schema, &input_rows).ok()?;
        let distinct: Result<Vec<Value>, _> =
            (0..computed.len()).map(|row| Value::from_array(&computed, row)).collect();
        distinct.ok()
    }
}

/// Plans of all tables in use.
#[derive(Default)]
pub(crate) struct TablePlans {
    plans: Mutex<HashMap<TableId, (SchemaVersion, Arc<TablePlan>)>>,
}

impl TablePlans {
    /// The plan of a table at its schema version.
    pub(crate) fn get(
        &self,
        state: &Arc<SessionState>,
        catalog: &Catalog,
        table: &Table,
    ) -> Result<Arc<TablePlan>, SqlError> {
        if let Some((version, plan)) = self.plans.lock().get(&table.id)
            && *version == table.schema.version
        {
            return Ok(Arc::clone(plan));
        }
        // Built outside of the lock; concurrent builds give equal plans.
        let plan = Arc::new(TablePlan::new(state, table)?);
        let mut plans = self.plans.lock();
        if plans.len() >= 64
            && plans.len() > 2 * catalog.tables.values().map(|t| t.len()).sum::<usize>()
        {
            let existing: HashSet<TableId> =
                catalog.tables.values().flat_map(|tables| tables.values().map(|t| t.id)).collect();
            plans.retain(|id, _| existing.contains(id));
        }
        let newest =
            plans.get(&table.id).is_none_or(|(version, _)| *version <= table.schema.version);
        if newest {
            plans.insert(table.id, (table.schema.version, Arc::clone(&plan)));
        }
        Ok(plan)
    }
}
