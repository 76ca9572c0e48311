//! One pass of an UPDATE over its rows: which rows it changes, what they become, and which it has to read again.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, BooleanArray, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Field, Schema};
use arrow::record_batch::RecordBatch;
use partita_proto::access::Permit;
use partita_proto::catalog::Table;
use partita_proto::key::{Keys, PLACEMENT_COLUMN};
use partita_proto::schema::Column;
use partita_proto::value::Value;
use partita_sql::statement::Update;
use partita_sql::update_rows::key_condition;
use partita_worker::Zone;

use super::assigned::assignable;
use super::joined_returning::{JoinedReturning, JoinedRows};
use super::returning::Returned;
use crate::error::{PROGRAM_LIMIT_EXCEEDED, SqlError};
use crate::ingest::plan::TablePlan;
use crate::reads::Reads;
use crate::router::place;
use crate::supplied::SuppliedRows;

/// Time after which a statement gives up that could not change any of its rows, because others change them.
pub(super) const CONTENDED_MAX: Duration = Duration::from_mins(1);
/// Maximum rows that a statement keeps to read them again.
const REFUSED_MAX: usize = 1 << 20;
/// Maximum rows that a statement may change which reads other tables too.
const JOINED_MAX: usize = 1 << 22;
/// Maximum keys by which a query is restricted; one of more keys reads all rows.
pub(super) const NAMED_KEYS_MAX: usize = 64;
/// SQLSTATE of rows that others keep changing.
const SERIALIZATION_FAILURE: &str = "40001";

/// Encoded keys.
pub(super) type KeySet = HashSet<Box<[u8]>>;

/// Rows that a statement has still to change.
pub(super) struct Pending {
    keys: KeySet,
    /// Condition that these rows satisfy, in SQL, if there are few.
    condition: Option<String>,
    /// The table and the plan by which the keys are encoded. The table may have been re-keyed since.
    table: Arc<Table>,
    plan: Arc<TablePlan>,
}

impl Pending {
    /// One of the keys.
    pub(super) fn first(&self) -> Option<&[u8]> {
        self.keys.iter().next().map(AsRef::as_ref)
    }

    /// Keys of rows, as those that are pending.
    fn keys_of(&self, rows: &RecordBatch) -> Result<Keys, SqlError> {
        encoded(&self.table, &self.plan, rows)
    }
}

/// Encoded keys of rows with columns by storage name, with their placement in the table or without.
fn encoded(table: &Table, plan: &TablePlan, rows: &RecordBatch) -> Result<Keys, SqlError> {
    if rows.column_by_name(PLACEMENT_COLUMN).is_some() {
        return Ok(plan.codec.encode(rows)?);
    }
    Ok(plan.codec.encode(&place(table, rows.clone())?)?)
}

/// Effect of a statement on its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Update,
    Delete,
}

impl Action {
    /// Name of the statement, in tags and in causes of load.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }

    /// A participle for rows that are done, in details of errors.
    pub(super) const fn verb(self) -> &'static str {
        match self {
            Self::Update => "updated",
            Self::Delete => "deleted",
        }
    }
}

/// A table as it is read and written once.
#[derive(Clone, Copy)]
pub(super) struct Pass<'a> {
    pub(super) table: &'a Arc<Table>,
    pub(super) plan: &'a Arc<TablePlan>,
    pub(super) reads: &'a Arc<Reads>,
}

impl Pass<'_> {
    /// Encoded keys of rows with columns by storage name, with their placement or without.
    pub(super) fn keys(self, rows: &RecordBatch) -> Result<Keys, SqlError> {
        encoded(self.table, self.plan, rows)
    }
}

/// Additions to the query of an UPDATE.
pub(super) struct Addition {
    /// Condition in SQL.
    pub(super) condition: String,
    /// Rows that stand in FROM.
    pub(super) supplied: SuppliedRows,
    /// True if SELECT is not needed.
    pub(super) is_unread: bool,
}

/// One pass over the rows.
pub(super) struct Round<'a> {
    pub(super) update: &'a Update,
    pub(super) permit: &'a Permit,
    pub(super) table: Arc<Table>,
    pub(super) plan: Arc<TablePlan>,
    pub(super) action: Action,
    pub(super) addition: Option<Addition>,
    /// The rows as they were written or removed, if they are returned.
    pub(super) returned: Option<Returned>,
    /// RETURNING over other tables too, and what was joined to the rows that are being written.
    pub(super) joined: Option<&'a JoinedReturning>,
    joined_rows: Option<JoinedRows>,
    /// Columns that the statement sets, by their positions.
    targets: Vec<usize>,
    pub(super) reads: Arc<Reads>,
    /// Rows that are left to change; `None`: all.
    wanted: Option<Pending>,
    /// Keys that were changed, if the query may return a row several times.
    seen: Option<KeySet>,
    /// Number of rows that were changed.
    pub(super) changed: u64,
    /// Keys of the rows to read again.
    refused: KeySet,
    /// Values of these keys, as long as they are few.
    named: Vec<Vec<Value>>,
}

/// Refuses to change rows that others keep changing.
pub(super) fn contended(table: &Table) -> SqlError {
    let error =
        SqlError::new(SERIALIZATION_FAILURE, "could not serialize access due to concurrent update");
    SqlError { retryable: true, ..error }.with_detail(format!(
        "other statements keep changing the same rows of table \"{}\"",
        table.name
    ))
}

/// Refuses to go on with rows that were made for an earlier schema.
pub(super) fn altered(table: &Table) -> SqlError {
    let message = "could not serialize access due to concurrent ALTER TABLE";
    let error = SqlError::new(SERIALIZATION_FAILURE, message);
    SqlError { retryable: true, ..error }
        .with_detail(format!("the columns of table \"{}\" have changed", table.name))
}

/// The columns of a table that are given when a row is written.
pub(super) fn stored(table: &Table) -> Vec<&Column> {
    table.schema.columns.iter().filter(|column| column.generated.is_none()).collect()
}

/// The columns of a batch of the query as they are now, by their SQL names.
pub(super) fn present(columns: &[&Column], batch: &RecordBatch) -> Result<RecordBatch, SqlError> {
    let values = columns.iter().copied().zip(batch.columns().iter().map(Arc::clone));
    named(values, batch.num_rows())
}

/// A batch of columns by their SQL names.
fn named<'c>(
    values: impl Iterator<Item = (&'c Column, ArrayRef)>,
    rows: usize,
) -> Result<RecordBatch, SqlError> {
    let field = |(column, values): (&Column, ArrayRef)| {
        (Field::new(&column.name, values.data_type().clone(), true), values)
    };
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = values.map(field).unzip();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?)
}

impl<'a> Round<'a> {
    /// A pass over the pending rows, or over all.
    ///
    /// # Errors
    /// As [`Update::targets`].
    pub(super) fn new(
        update: &'a Update,
        permit: &'a Permit,
        (table, plan): (Arc<Table>, Arc<TablePlan>),
        pending: Option<Pending>,
        reads: Reads,
    ) -> Result<Self, SqlError> {
        Ok(Self {
            update,
            permit,
            action: Action::Update,
            addition: None,
            returned: None,
            joined: None,
            joined_rows: None,
            targets: update.targets(&table.schema)?,
            reads: Arc::new(reads),
            seen: (update.has_from() && pending.is_none()).then(KeySet::new),
            wanted: pending,
            changed: 0,
            refused: KeySet::new(),
            named: Vec::new(),
            table,
            plan,
        })
    }

    /// The table, as it is read and written in this pass.
    pub(super) fn pass(&self) -> Pass<'_> {
        Pass { table: &self.table, plan: &self.plan, reads: &self.reads }
    }

    /// Condition of the rows that are left to change, if there are few, or the one that was added.
    pub(super) fn condition(&self) -> Option<&str> {
        match &self.addition {
            Some(addition) => Some(&addition.condition),
            None => self.wanted.as_ref()?.condition.as_deref(),
        }
    }

    /// Keys of the rows to read again.
    pub(super) fn take_refused(&mut self) -> KeySet {
        std::mem::take(&mut self.refused)
    }

    /// Keys of the rows that the query has found, if it reads other tables too.
    pub(super) fn take_seen(&mut self) -> KeySet {
        self.seen.take().unwrap_or_default()
    }

    /// True if no row has to be read again.
    pub(super) fn is_complete(&self) -> bool {
        self.refused.is_empty()
    }

    /// True if the statement sets a column that the key depends on.
    pub(super) fn may_move(&self) -> bool {
        let of_key = self.plan.delete_columns();
        let columns = &self.table.schema.columns;
        self.targets.iter().any(|target| of_key.contains(&columns[*target].name))
    }

    /// As [`Pass::keys`].
    pub(super) fn keys(&self, rows: &RecordBatch) -> Result<Keys, SqlError> {
        self.pass().keys(rows)
    }

    /// The columns of rows, by storage name, that identify them.
    pub(super) fn key_columns(&self, rows: &RecordBatch) -> Result<RecordBatch, SqlError> {
        let schema = rows.schema_ref();
        let key = self.table.schema.key_columns();
        let positions = key.map(|column| schema.index_of(&column.storage_name));
        Ok(rows.project(&positions.collect::<Result<Vec<_>, _>>()?)?)
    }

    /// The rows of a batch that are to be changed in this pass, each once; `None` if there are none.
    pub(super) fn select(
        &mut self,
        columns: &[&Column],
        batch: RecordBatch,
    ) -> Result<Option<RecordBatch>, SqlError> {
        if self.wanted.is_none() && self.seen.is_none() {
            return Ok(Some(batch));
        }
        let old = self.plan.complete_keys(&present(columns, &batch)?)?.rows;
        let keys = match &self.wanted {
            Some(pending) => pending.keys_of(&old)?,
            None => self.keys(&old)?,
        };
        let is_new = |key: &[u8]| match (&mut self.wanted, &mut self.seen) {
            (Some(pending), _) => pending.keys.remove(key),
            (None, Some(seen_keys)) => seen_keys.insert(key.into()),
            (None, None) => true,
        };
        let mask: Vec<bool> = keys.iter().map(is_new).collect();
        if self.seen.as_ref().is_some_and(|keys| keys.len() > JOINED_MAX) {
            let clause = match self.action {
                Action::Update => "UPDATE ... FROM",
                Action::Delete => "DELETE ... USING",
            };
            let message = format!("{clause} cannot change more than {JOINED_MAX} rows");
            return Err(SqlError::new(PROGRAM_LIMIT_EXCEEDED, message));
        }
        let mask = BooleanArray::from(mask);
        let rows = match mask.true_count() {
            0 => return Ok(None),
            count if count == mask.len() => batch,
            _ => filter_record_batch(&batch, &mask)?,
        };
        Ok(Some(rows))
    }

    /// The rows of a batch with their new values, by SQL name; columns that are set to DEFAULT are left out.
    pub(super) fn new_rows(
        &self,
        columns: &[&Column],
        batch: &RecordBatch,
        zone: Zone,
    ) -> Result<RecordBatch, SqlError> {
        let schema = &self.table.schema;
        let mut values: Vec<(&Column, ArrayRef)> = Vec::with_capacity(columns.len());
        for (position, column) in columns.iter().copied().enumerate() {
            let mut set = self.targets.iter().zip(&self.update.values);
            let set = set.find(|(target, _)| schema.columns[**target].id == column.id);
            match set {
                None => values.push((column, Arc::clone(batch.column(position)))),
                Some((_, None)) => {}
                Some((_, Some(item))) => {
                    let value = Arc::clone(batch.column(columns.len() + item));
                    let assigned = assignable(&[value], &[column], zone)?;
                    values.extend(assigned.into_iter().map(|value| (column, value)));
                }
            }
        }
        named(values.into_iter(), batch.num_rows())
    }

    /// Keeps the keys of rows, with columns by storage name, to read them again.
    pub(super) fn refuse(&mut self, rows: &RecordBatch) -> Result<(), SqlError> {
        let keys = self.keys(rows)?;
        self.refused.extend(keys.iter().map(Box::<[u8]>::from));
        if self.refused.len() > REFUSED_MAX {
            return Err(contended(&self.table));
        }
        if self.named.len() <= NAMED_KEYS_MAX {
            let few = rows.slice(0, rows.num_rows().min(NAMED_KEYS_MAX + 1));
            self.named.extend(key_values(&given_keys(&self.table), &few)?);
        }
        Ok(())
    }

    /// Notes that rows, with columns by storage name, were written or removed, except those that were refused, which are
    /// read again.
    pub(super) fn settle(
        &mut self,
        rows: &RecordBatch,
        refused: &[RecordBatch],
    ) -> Result<(), SqlError> {
        self.changed += rows.num_rows() as u64;
        let mut keys = KeySet::new();
        for refused in refused {
            self.changed -= refused.num_rows() as u64;
            self.refuse(refused)?;
            if self.returned.is_some() {
                keys.extend(self.keys(refused)?.iter().map(Box::<[u8]>::from));
            }
        }
        if self.returned.is_none() {
            return Ok(());
        }
        let is_done: BooleanArray =
            self.keys(rows)?.iter().map(|key| Some(!keys.contains(key))).collect();
        self.keep(rows, &is_done)
    }

    /// Keeps the rows, by storage name, for which `is_done` is true, if rows are returned.
    pub(super) fn keep(
        &mut self,
        rows: &RecordBatch,
        is_done: &BooleanArray,
    ) -> Result<(), SqlError> {
        if self.returned.is_none() {
            return Ok(());
        }
        let rows = filter_record_batch(rows, is_done)?;
        let others = match &self.joined_rows {
            Some(joined) => Some(joined.beside(&self.keys(&rows)?)?),
            None => None,
        };
        let Some(returned) = &mut self.returned else { return Ok(()) };
        match others {
            Some(others) => returned.keep_joined(&self.table, &rows, others),
            None => returned.keep(&self.table, &rows),
        }
    }

    /// Notes what other tables joined to a batch of the query, for the rows, by storage name, that it becomes.
    pub(super) fn note_joined(
        &mut self,
        batch: &RecordBatch,
        rows: &RecordBatch,
    ) -> Result<(), SqlError> {
        if let Some(joined) = self.joined {
            self.joined_rows = Some(JoinedRows::new(joined, batch, &self.keys(rows)?)?);
        }
        Ok(())
    }

    /// The rows for the next pass.
    pub(super) fn into_pending(self) -> Pending {
        let name = self.update.alias.as_ref().unwrap_or(&self.table.name);
        let condition = match self.named.len() <= NAMED_KEYS_MAX {
            true => key_condition(name, &given_keys(&self.table), &self.named),
            false => None,
        };
        Pending { keys: self.refused, condition, table: self.table, plan: self.plan }
    }
}

/// Values of columns, for each of some rows with columns by storage name.
pub(super) fn key_values(
    columns: &[&Column],
    rows: &RecordBatch,
) -> Result<Vec<Vec<Value>>, SqlError> {
    let row = |row: usize| {
        let value = |column: &&Column| match rows.column_by_name(&column.storage_name) {
            Some(array) => Value::from_array(array, row),
            None => Ok(Value::Null),
        };
        Ok(columns.iter().map(value).collect::<Result<Vec<_>, _>>()?)
    };
    (0..rows.num_rows()).map(row).collect()
}

/// The columns of a table's key that are given when a row is written.
pub(super) fn given_keys(table: &Table) -> Vec<&Column> {
    table.schema.key_columns().filter(|column| column.generated.is_none()).collect()
}
