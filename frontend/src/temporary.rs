//! Temporary tables: those of one session, in the memory of its frontend.
//!
//! ```text
//!   CREATE TEMP TABLE ─▶ Registry: a number, memory ─▶ TemporaryTable ─▶ TemporaryTables of the session's viewer
//!   name in a statement ─▶ TemporaryTables, before the catalog   (`access/needs.rs`, `catalog.rs`)
//!   rows ─▶ Registry, by the number of the table                 (`ingest.rs`)
//! ```
//!
//! Invariants:
//! - a table lives as long as its session names it, or a statement holds it; its memory is that of queries, from whose pool
//!   it is taken before rows are kept;
//! - no row keeps the bytes of rows that are gone, which would not be counted;
//! - rows of one key are one row, as in stored tables; a statement reads the rows from before it.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arrow::array::{BooleanArray, new_null_array};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use arrow::row::{RowConverter, SortField};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::Result as PlanResult;
use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use partita_proto::catalog::Table;
use partita_proto::id::{Epoch, PartitionId, TableId};
use partita_proto::key::KeyCodec;
use partita_proto::route::PartitionMap;
use partita_proto::service::NewTable;
use partita_proto::size::batch_bytes;
use partita_proto::wire::ipc;

use crate::error::{PROGRAM_LIMIT_EXCEEDED, SqlError};
use crate::ingest::plan::TablePlan;

/// The first number of a temporary table; meta gives out lower ones.
const FIRST: u32 = 1 << 31;
/// Maximum temporary tables of a session.
const TABLES_MAX: usize = 256;
/// Bytes of memory for each remembered key, beside the key.
const KEY_BYTES: usize = 48;

/// Encoded key of a row.
type Key = Vec<u8>;

/// A session's table in memory, with its rows.
pub(crate) struct TemporaryTable {
    table: Arc<Table>,
    plan: Arc<TablePlan>,
    /// The columns under their SQL names, with the hidden one, which is the last.
    schema: SchemaRef,
    rows: Mutex<Rows>,
}

struct Rows {
    batches: Vec<RecordBatch>,
    /// Keys of all rows; empty if rows do not replace others.
    keys: HashSet<Key>,
    key_bytes: usize,
    reservation: MemoryReservation,
}

impl Rows {
    /// Keeps other rows in place of these, if there is memory for them and their keys.
    fn replace(&mut self, batches: Vec<RecordBatch>, key_bytes: usize) -> Result<(), SqlError> {
        let bytes = batches.iter().map(batch_bytes).sum::<usize>() + key_bytes;
        self.reservation.try_resize(bytes)?;
        (self.batches, self.key_bytes) = (batches, key_bytes);
        Ok(())
    }
}

impl TemporaryTable {
    /// Definition of the table, without partitions that anybody may ask.
    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The plan by which its rows are completed.
    pub(crate) fn plan(&self) -> &Arc<TablePlan> {
        &self.plan
    }

    /// Writes rows under SQL names; returns them as completed.
    ///
    /// # Errors
    /// Errors of the rows, and 53200 without memory for them.
    pub(crate) fn insert(&self, rows: &RecordBatch) -> Result<RecordBatch, SqlError> {
        let completed = self.plan.complete(rows)?.rows;
        self.store(&completed)?;
        Ok(completed)
    }

    /// Writes completed rows.
    ///
    /// # Errors
    /// 53200 without memory for them.
    pub(crate) fn store(&self, completed: &RecordBatch) -> Result<(), SqlError> {
        match completed.num_rows() {
            0 => Ok(()),
            _ => self.keep(&self.whole(completed)?),
        }
    }

    /// Completed rows with all columns.
    fn whole(&self, completed: &RecordBatch) -> Result<RecordBatch, SqlError> {
        let columns = self.table.schema.columns.iter().map(|column| {
            let array = completed.column_by_name(&column.storage_name);
            let null = || new_null_array(&column.column_type.arrow(), completed.num_rows());
            array.map_or_else(null, Arc::clone)
        });
        let rows = RecordBatch::try_new(Arc::clone(&self.schema), columns.collect())?;
        Ok(ipc::compacted(&rows)?)
    }

    /// Adds rows, in place of those with the same keys.
    fn keep(&self, batch: &RecordBatch) -> Result<(), SqlError> {
        let mut rows = self.rows.lock();
        let mut batches = rows.batches.clone();
        if self.table.schema.is_keyless() {
            batches.push(batch.clone());
            self.join_small(&mut batches)?;
            return rows.replace(batches, 0);
        }
        // The last row of a key stays.
        let keys = self.keys(batch)?;
        let last: HashMap<&Key, usize> =
            keys.iter().enumerate().map(|(row, key)| (key, row)).collect();
        let is_last = keys.iter().enumerate().map(|(row, key)| last.get(key) == Some(&row));
        let is_last = BooleanArray::from(is_last.collect::<Vec<bool>>());
        let new_keys = last.keys().filter(|key| !rows.keys.contains(**key));
        let new_bytes: usize = new_keys.map(|key| key.len() + KEY_BYTES).sum();
        let replaced: HashSet<Key> =
            last.keys().filter(|key| rows.keys.contains(**key)).map(|key| (*key).clone()).collect();
        if !replaced.is_empty() {
            batches = self.without(&batches, &replaced)?;
        }
        batches.push(ipc::compacted(&filter_record_batch(batch, &is_last)?)?);
        self.join_small(&mut batches)?;
        drop(last);
        let key_bytes = rows.key_bytes + new_bytes;
        rows.replace(batches, key_bytes)?;
        rows.keys.extend(keys);
        Ok(())
    }

    /// Removes the rows of some keys, whose columns have SQL names.
    ///
    /// # Errors
    /// Errors of the keys.
    pub(crate) fn remove(&self, keys: &RecordBatch) -> Result<(), SqlError> {
        let completed = self.plan.complete_keys(keys)?.rows;
        self.change(&[completed], &[])
    }

    /// Puts completed rows in place of those with the keys `old`, all at once; without new rows those are removed. No new
    /// row may have the key of one that stays, see [`TemporaryTable::occupied`].
    ///
    /// # Errors
    /// 53200 without memory for the rows, of which none is changed then.
    pub(crate) fn change(&self, old: &[RecordBatch], new: &[RecordBatch]) -> Result<(), SqlError> {
        let mut removed: HashSet<Key> = HashSet::new();
        for keys in old {
            removed.extend(self.keys(keys)?);
        }
        let mut rows = self.rows.lock();
        let mut batches = self.without(&rows.batches, &removed)?;
        let mut added: Vec<Key> = Vec::new();
        for completed in new {
            let batch = self.whole(completed)?;
            if !self.table.schema.is_keyless() {
                added.extend(self.keys(&batch)?);
            }
            batches.push(batch);
            self.join_small(&mut batches)?;
        }
        let bytes_of = |key: &Key| key.len() + KEY_BYTES;
        let present = removed.iter().filter(|key| rows.keys.contains(*key));
        let removed_bytes: usize = present.map(bytes_of).sum();
        let added_bytes: usize = added.iter().map(bytes_of).sum();
        let key_bytes = rows.key_bytes - removed_bytes + added_bytes;
        rows.replace(batches, key_bytes)?;
        rows.keys.retain(|key| !removed.contains(key));
        rows.keys.extend(added);
        Ok(())
    }

    /// The first row, by its batch and its number in it, that would get the key of another row; each row of `new` takes the
    /// place of the row with the key of the same position in `old`.
    ///
    /// # Errors
    /// Errors of the keys.
    pub(crate) fn occupied(
        &self,
        old: &[RecordBatch],
        new: &[RecordBatch],
    ) -> Result<Option<(usize, usize)>, SqlError> {
        let rows = self.rows.lock();
        let mut moved: HashSet<Key> = HashSet::new();
        for (number, (old, new)) in old.iter().zip(new).enumerate() {
            let keys = self.keys(old)?.into_iter().zip(self.keys(new)?);
            for (row, (old_key, new_key)) in keys.enumerate() {
                let moves = old_key != new_key;
                if moves && (rows.keys.contains(&new_key) || !moved.insert(new_key)) {
                    return Ok(Some((number, row)));
                }
            }
        }
        Ok(None)
    }

    /// Bytes of the buffers that the rows hold.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.rows.lock().batches.iter().map(RecordBatch::get_array_memory_size).sum()
    }

    /// Removes all rows.
    pub(crate) fn truncate(&self) {
        let mut rows = self.rows.lock();
        rows.batches.clear();
        rows.keys.clear();
        rows.key_bytes = 0;
        rows.reservation.free();
    }

    /// Encoded keys of rows.
    fn keys(&self, rows: &RecordBatch) -> Result<Vec<Key>, SqlError> {
        let mut columns = Vec::new();
        for column in self.table.schema.key_columns() {
            let values = rows.column_by_name(&column.storage_name);
            let values = values.ok_or_else(|| SqlError::internal("rows without a key"))?;
            columns.push(Arc::clone(values));
        }
        let fields = columns.iter().map(|values| SortField::new(values.data_type().clone()));
        let keys = RowConverter::new(fields.collect())?.convert_columns(&columns)?;
        Ok(keys.iter().map(|key| key.as_ref().to_vec()).collect())
    }

    /// Rows without those of some keys.
    fn without(
        &self,
        batches: &[RecordBatch],
        removed: &HashSet<Key>,
    ) -> Result<Vec<RecordBatch>, SqlError> {
        let mut remaining = Vec::with_capacity(batches.len());
        for batch in batches {
            let keys = self.keys(batch)?;
            let stays: Vec<bool> = keys.iter().map(|key| !removed.contains(key)).collect();
            let batch = filter_record_batch(batch, &BooleanArray::from(stays))?;
            if batch.num_rows() > 0 {
                remaining.push(ipc::compacted(&batch)?);
            }
        }
        Ok(remaining)
    }

    /// Joins batches at the end, so that there are few and each row is copied few times.
    fn join_small(&self, batches: &mut Vec<RecordBatch>) -> Result<(), SqlError> {
        while let [.., former, last] = batches.as_slice()
            && last.num_rows() * 2 >= former.num_rows()
        {
            let joined = concat_batches(&self.schema, [former, last])?;
            batches.truncate(batches.len() - 2);
            batches.push(joined);
        }
        Ok(())
    }
}

/// Gives out the numbers of temporary tables, and finds those that live.
pub(crate) struct Registry {
    tables: Mutex<HashMap<TableId, Weak<TemporaryTable>>>,
    next: AtomicU32,
}

impl Default for Registry {
    fn default() -> Self {
        Self { tables: Mutex::default(), next: AtomicU32::new(FIRST) }
    }
}

impl Registry {
    /// Makes a table, which lives as long as its caller holds it.
    ///
    /// # Errors
    /// Errors of the definition.
    pub(crate) fn create(
        &self,
        state: &Arc<SessionState>,
        new: NewTable,
    ) -> Result<Arc<TemporaryTable>, SqlError> {
        let id = TableId(self.next.fetch_add(1, Ordering::Relaxed) | FIRST);
        let codec = KeyCodec::new(&new.schema, &new.placement)?;
        let partitions = PartitionMap::from_cuts(&codec, &[], [PartitionId(0)], Epoch(1))?;
        let table = Table {
            id,
            database: new.database,
            name: new.name,
            schema: Arc::new(new.schema),
            placement: new.placement,
            partitions: Arc::new(partitions),
            former: None,
            succeeded_by: None,
            owner: new.owner,
            copy: None,
        };
        let pool = &state.runtime_env().memory_pool;
        let reservation = MemoryConsumer::new("temporary table").register(pool);
        let rows = Rows { batches: Vec::new(), keys: HashSet::new(), key_bytes: 0, reservation };
        let temporary = Arc::new(TemporaryTable {
            plan: Arc::new(TablePlan::new(state, &table)?),
            schema: table.schema.arrow(),
            table: Arc::new(table),
            rows: Mutex::new(rows),
        });
        let mut tables = self.tables.lock();
        tables.retain(|_, table| table.strong_count() > 0);
        tables.insert(id, Arc::downgrade(&temporary));
        Ok(temporary)
    }

    /// A table that lives, by its number.
    pub(crate) fn get(&self, id: TableId) -> Option<Arc<TemporaryTable>> {
        if !is_temporary(id) {
            return None;
        }
        self.tables.lock().get(&id)?.upgrade()
    }
}

/// True for the number of a temporary table.
pub(crate) fn is_temporary(id: TableId) -> bool {
    id.0 >= FIRST
}

/// The temporary tables of one session.
#[derive(Default)]
pub(crate) struct TemporaryTables {
    tables: Mutex<Vec<Arc<TemporaryTable>>>,
    changes: AtomicU64,
}

impl TemporaryTables {
    /// The table of a name.
    pub(crate) fn get(&self, database: &str, name: &str) -> Option<Arc<TemporaryTable>> {
        let tables = self.tables.lock();
        let is_meant = |temporary: &&Arc<TemporaryTable>| {
            (temporary.table.database.as_str(), temporary.table.name.as_str()) == (database, name)
        };
        tables.iter().find(is_meant).map(Arc::clone)
    }

    /// Adds a table whose name is free.
    ///
    /// # Errors
    /// 54000 for too many tables.
    pub(crate) fn add(&self, table: Arc<TemporaryTable>) -> Result<(), SqlError> {
        let mut tables = self.tables.lock();
        if tables.len() >= TABLES_MAX {
            let message = format!("a session can have at most {TABLES_MAX} temporary tables");
            return Err(SqlError::new(PROGRAM_LIMIT_EXCEEDED, message));
        }
        tables.push(table);
        self.changes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Forgets a table.
    pub(crate) fn remove(&self, id: TableId) {
        self.tables.lock().retain(|temporary| temporary.table.id != id);
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Forgets all tables.
    pub(crate) fn clear(&self) {
        self.tables.lock().clear();
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of changes, by which a plan is known to be old.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }
}

/// A temporary table as the planner reads it.
pub(crate) struct TemporaryProvider {
    table: Arc<TemporaryTable>,
    schema: SchemaRef,
}

impl TemporaryProvider {
    /// The table with the columns that clients see, or also with the hidden one.
    pub(crate) fn new(table: Arc<TemporaryTable>, with_hidden: bool) -> Self {
        let schema = match with_hidden {
            true => Arc::clone(&table.schema),
            false => table.table.schema.shown_arrow(),
        };
        Self { table, schema }
    }
}

impl fmt::Debug for TemporaryProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TemporaryProvider({})", self.table.table.name)
    }
}

#[async_trait]
impl TableProvider for TemporaryProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let columns = || (0..self.schema.fields().len()).collect();
        let projection = projection.cloned().unwrap_or_else(columns);
        let batches = self.table.rows.lock().batches.clone();
        let schema = Arc::clone(&self.table.schema);
        Ok(MemorySourceConfig::try_new_exec(&[batches], schema, Some(projection))?)
    }
}
