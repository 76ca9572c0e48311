//! What ingest knows of a table at one schema version: how to complete rows and where they go.
//!
//! Invariants of completed rows:
//! - columns go by storage name and have the table's types;
//! - all key columns are there, every other column that is not NULL throughout, and those that rows
//!   from before the column was added have a value in;
//! - generated columns are computed, never taken from outside;
//! - no NULL in a column that takes none.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatchOptions, new_null_array};
use arrow::compute::{and, is_null};
use arrow::datatypes::{FieldRef, Schema};
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
use super::expression::{DefaultValue, Generated};
use super::size::{longer_than, oversized_row};
use crate::error::{DUPLICATE_COLUMN, GENERATED_ALWAYS, PROGRAM_LIMIT_EXCEEDED, SqlError};

/// The largest row.
pub(crate) const ROW_BYTES_MAX: usize = 16 << 20;
/// A key column longer than this is counted: it makes every file and every scan of the key heavy.
pub(crate) const KEY_COLUMN_BYTES_SOFT_MAX: usize = 2 << 10;
/// Points of a column that a generated column is computed for when a predicate binds its inputs.
const POINTS_MAX: usize = 1024;

/// How rows of one table are completed.
pub(crate) struct TablePlan {
    pub(crate) schema: Arc<TableSchema>,
    pub(crate) codec: KeyCodec,
    state: Arc<SessionState>,
    table: String,
    /// By position.
    defaults: Vec<DefaultValue>,
    generated: Vec<Generated>,
    /// By position: the column under its storage name.
    fields: Vec<FieldRef>,
}

/// Rows as the partitions take them.
#[derive(Debug)]
pub(crate) struct Completed {
    pub(crate) rows: RecordBatch,
    /// Rows that have a key column longer than is good.
    pub(crate) long_keys: u64,
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
        let fields = schema.columns.iter().map(|column| Arc::new(column.storage_field())).collect();
        Ok(Self {
            codec: KeyCodec::new(&schema, &table.placement)?,
            schema,
            state: Arc::clone(state),
            table: table.name.clone(),
            defaults,
            generated,
            fields,
        })
    }

    /// The columns that say which rows a delete is of: those of the key that are not generated, and
    /// what the others of the key are computed from.
    pub(crate) fn delete_columns(&self) -> Vec<String> {
        let columns = &self.schema.columns;
        let mut wanted: BTreeSet<usize> = BTreeSet::new();
        for (position, column) in columns.iter().enumerate() {
            if !self.schema.is_key(column.id) {
                continue;
            }
            match self.generated.iter().find(|generated| generated.column == position) {
                Some(generated) => wanted.extend(&generated.inputs),
                None => {
                    wanted.insert(position);
                }
            }
        }
        wanted.into_iter().map(|position| columns[position].name.clone()).collect()
    }

    /// Completes rows that go by SQL name.
    pub(crate) fn complete(&self, rows: &RecordBatch) -> Result<Completed, SqlError> {
        let mut columns = self.given(rows)?;
        for (position, column) in self.schema.columns.iter().enumerate() {
            if let Some(values) = &columns[position] {
                calendar::check(values, &column.name)?;
            }
            let default = &self.defaults[position];
            // Without NULL in its place, a column that was added would have the value of rows from before.
            let needed = !default.is_null() || column.missing.is_some();
            if columns[position].is_none() && column.generated.is_none() && needed {
                columns[position] = Some(default.array(&self.state, column, rows.num_rows())?);
            }
        }
        self.generate(&mut columns, rows.num_rows())?;
        self.check_not_null(&columns, rows.num_rows())?;
        self.check_some_field(&columns, rows.num_rows())?;
        self.finish(columns, rows.num_rows(), |_| true)
    }

    /// Completes keys that go by SQL name, for a delete: the key columns and no others.
    pub(crate) fn complete_keys(&self, rows: &RecordBatch) -> Result<Completed, SqlError> {
        let mut columns = self.given(rows)?;
        let is_key: Vec<bool> =
            self.schema.columns.iter().map(|column| self.schema.is_key(column.id)).collect();
        for (position, column) in self.schema.columns.iter().enumerate() {
            if is_key[position] && columns[position].is_none() && column.generated.is_none() {
                return Err(SqlError::undefined_column(&column.name, &self.table)
                    .with_detail("a key to delete needs all columns of the key"));
            }
        }
        self.generate(&mut columns, rows.num_rows())?;
        self.finish(columns, rows.num_rows(), |position| is_key[position])
    }

    /// Completes rows that go by the storage names of an older version of the schema. Columns that
    /// are gone are left out, those that came since get their default.
    pub(crate) fn complete_again(
        &self,
        rows: &RecordBatch,
        keys: bool,
    ) -> Result<Completed, SqlError> {
        let mut fields = Vec::new();
        let mut arrays = Vec::new();
        for column in self.schema.columns.iter().filter(|column| column.generated.is_none()) {
            if let Some(array) = rows.column_by_name(&column.storage_name) {
                fields.push(column.field().with_nullable(true));
                arrays.push(Arc::clone(array));
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let rows =
            RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?;
        if keys { self.complete_keys(&rows) } else { self.complete(&rows) }
    }

    /// The given columns by position, as values of the table's types.
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
        let all = self.by_sql_name(columns, rows)?;
        for generated in &self.generated {
            columns[generated.column] = Some(generated.array(&self.schema, &all)?);
        }
        Ok(())
    }

    /// All columns by SQL name; absent ones are NULL.
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

    /// A row of a table with schema on write has at least one field, as a point of line protocol
    /// does; without this a row could exist that no line can write.
    fn check_some_field(&self, columns: &[Option<ArrayRef>], rows: usize) -> Result<(), SqlError> {
        if !self.schema.schema_on_write || rows == 0 {
            return Ok(());
        }
        let mut none: Option<BooleanArray> = None;
        for (column, array) in self.schema.columns.iter().zip(columns) {
            let (Semantic::Field, Some(array)) = (column.semantic, array) else { continue };
            if array.null_count() == 0 {
                return Ok(());
            }
            let null = is_null(array)?;
            none = Some(match none {
                Some(before) => and(&before, &null)?,
                None => null,
            });
        }
        if none.is_none_or(|none| none.true_count() > 0) {
            return Err(SqlError::new(
                "23514",
                format!("a row of relation \"{}\" needs a field that is not null", self.table),
            ));
        }
        Ok(())
    }

    fn finish(
        &self,
        columns: Vec<Option<ArrayRef>>,
        rows: usize,
        wanted: impl Fn(usize) -> bool,
    ) -> Result<Completed, SqlError> {
        let mut fields = Vec::with_capacity(columns.len());
        let mut arrays = Vec::with_capacity(columns.len());
        let mut long_keys = 0;
        for (position, array) in columns.into_iter().enumerate() {
            let is_key = self.schema.is_key(self.schema.columns[position].id);
            if !wanted(position) {
                continue;
            }
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
        if let Some((row, bytes)) = oversized_row(&rows, ROW_BYTES_MAX) {
            return Err(SqlError::new(
                PROGRAM_LIMIT_EXCEEDED,
                format!(
                    "row {} of {bytes} bytes exceeds the limit of {ROW_BYTES_MAX} bytes",
                    row + 1
                ),
            ));
        }
        Ok(Completed { rows, long_keys })
    }

    /// Adds what the domains say of generated columns: when all inputs of one are bound to a few
    /// values, so is it.
    pub(crate) fn derive(&self, domains: &mut Domains) {
        for generated in &self.generated {
            // What cannot be computed is not restricted; the predicate itself is checked anyway.
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
        // Every combination of the inputs' values is a row.
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
        for (at, input) in generated.inputs.iter().enumerate() {
            let values: Vec<Value> = rows.iter().map(|row| row[at].clone()).collect();
            let column_type = self.schema.columns[*input].column_type;
            columns[*input] = Some(partita_proto::array::array_of(column_type, &values).ok()?);
        }
        let all = self.by_sql_name(&columns, rows.len()).ok()?;
        let computed = generated.array(&self.schema, &all).ok()?;
        let distinct: Result<Vec<Value>, _> =
            (0..computed.len()).map(|row| Value::from_array(&computed, row)).collect();
        distinct.ok()
    }
}

/// The plans of all tables in use.
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
        // Made outside of the lock; two makers make the same.
        let plan = Arc::new(TablePlan::new(state, table)?);
        let mut plans = self.plans.lock();
        if plans.len() >= 64
            && plans.len() > 2 * catalog.tables.values().map(|t| t.len()).sum::<usize>()
        {
            let known: HashSet<TableId> =
                catalog.tables.values().flat_map(|tables| tables.values().map(|t| t.id)).collect();
            plans.retain(|id, _| known.contains(id));
        }
        let newest =
            plans.get(&table.id).is_none_or(|(version, _)| *version <= table.schema.version);
        if newest {
            plans.insert(table.id, (table.schema.version, Arc::clone(&plan)));
        }
        Ok(plan)
    }
}
