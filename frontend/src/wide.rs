//! Requests that change one row of a wide table, as a whole or not at all.
//!
//! ```text
//!   cells to set ───────────────────────────────────────────────▶ one write
//!   deletes, checks, increments ── read what they depend on ────▶ one write, if no cell of the row was written since
//!                                       ▲                                       │
//!                                       └──────────────── again ────────────────┘
//! ```
//!
//! A write of one row is one entry of its partition's log, whatever it sets and deletes. One that depends on the row has a
//! condition that the log decides (`Reads::of_row`), so requests take effect one after the other, each once however often
//! it is sent.
//!
//! A request reads what it depends on (`wide/read.rs`), and sees the cells that a query sees. What it deletes takes the
//! garbage of the same columns along: no older version comes to light where a newer one is deleted.
//!
//! A row may be large: its memory counts as that of queries does, and decisions on many cells run where queries do, in a
//! lane.

mod dropped;
mod read;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow::array::{ArrayRef, BooleanArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use partita_proto::Error;
use partita_proto::access::Permit;
use partita_proto::array::array_of;
use partita_proto::catalog::Table;
use partita_proto::schema::Column;
use partita_proto::service::{REMOVED_COLUMN, WriteKind};
use partita_proto::size::batch_bytes;
use partita_proto::value::Value;
use partita_proto::wide::{
    CELL_TS_COLUMN, CellKey, CellMutation, KEY_COLUMNS, ReadModify, RowChange, RowMutation, Wide,
    check_row_key,
};
use tokio::time::Instant;

pub use self::read::Cells;
use self::read::{Stored, Wanted, row_key_value};
use crate::error::{PROGRAM_LIMIT_EXCEEDED, SqlError};
use crate::frontend::Frontend;
use crate::ingest::calendar;
use crate::ingest::plan::Completed;
use crate::reads::Reads;
use crate::router::REQUEST_BYTES_MAX;

/// Time after which a request gives up whose row others keep changing.
const CONTENDED_MAX: Duration = Duration::from_mins(1);
/// Cells of a row up to which a request is decided at once: the work of less than a millisecond.
const LIGHT_CELLS: usize = 1_024;
/// SQLSTATE of a row that others keep changing.
const SERIALIZATION_FAILURE: &str = "40001";
/// SQLSTATE of a table of another kind.
const WRONG_OBJECT_TYPE: &str = "42809";

/// Row of a wide table, as it was read.
struct Row<'w> {
    /// Families of the table.
    wide: &'w Wide,
    /// The cells that were read.
    cells: Cells,
    /// Those of them that no query returns.
    garbage: BTreeSet<CellKey>,
}

impl<'w> Row<'w> {
    /// The row of a table with its families.
    fn new(cells: Cells, wide: &'w Wide) -> Self {
        let garbage = wide.garbage(cells.keys(), now_us()).into_iter().cloned().collect();
        Self { wide, cells, garbage }
    }

    /// The cells that queries return.
    fn visible(&self) -> Cells {
        let is_visible = |(key, _): &(&CellKey, &Vec<u8>)| !self.garbage.contains(*key);
        let visible = self.cells.iter().filter(is_visible);
        visible.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// The effect of mutations, with the garbage of the columns from which they delete.
    fn changed(&self, request: &RowMutation, now_us: i64) -> Result<RowChange, Error> {
        let mut change = request.change(self.wide, (&self.cells, &self.garbage), now_us)?;
        let column = |key: &CellKey| (key.family.clone(), key.qualifier.clone());
        let columns: BTreeSet<_> = change.removed.iter().map(column).collect();
        let garbage = self.garbage.iter().filter(|key| columns.contains(&column(key)));
        let garbage = garbage.filter(|key| !change.written.contains_key(*key)).cloned();
        let garbage: Vec<CellKey> = garbage.collect();
        change.removed.extend(garbage);
        Ok(change)
    }
}

impl Frontend {
    /// Changes one row by mutations, which take effect together or not at all. `permit` is the proof that the client may
    /// insert into the table and delete from it, as far as the mutations do.
    ///
    /// # Errors
    /// Fails if the table is no wide one, a mutation does not fit it, or the row could not be written in time.
    pub async fn mutate_row(
        &self,
        permit: &Permit,
        table: &Arc<Table>,
        request: RowMutation,
    ) -> Result<(), SqlError> {
        let wide = wide_of(table)?;
        request.check(wide)?;
        let request = request.stamped(now_us());
        if request.reads() {
            let (row_key, selection) = (request.row_key.clone(), Wanted::by_mutations(&request));
            let decide =
                move |row: &Row<'_>| Ok::<_, SqlError>((row.changed(&request, now_us())?, ()));
            return self.change_row(permit, table, (&row_key, &selection), decide).await;
        }
        let (newest, _) = self.table_plan(table)?;
        let change = request.change(wide, (&Cells::new(), &BTreeSet::new()), now_us())?;
        let rows = rows_of(&newest, &request.row_key, &change, |column| column.name.clone())?;
        let cause = || self.cause_without_statement(permit);
        Box::pin(self.ingest_counted(permit, &newest, rows, cause)).await?;
        Ok(())
    }

    /// Changes one row by one of two lists of mutations: the first if its cells satisfy a predicate, else the second.
    /// Returns whether they do. Either list may be empty.
    ///
    /// # Errors
    /// As [`Frontend::mutate_row`], and those of the predicate.
    pub async fn check_and_mutate_row(
        &self,
        permit: &Permit,
        table: &Arc<Table>,
        row_key: &[u8],
        predicate: impl Fn(&Cells) -> Result<bool, SqlError> + Send + Sync + 'static,
        (if_true, if_false): (Vec<CellMutation>, Vec<CellMutation>),
    ) -> Result<bool, SqlError> {
        let wide = wide_of(table)?;
        check_row_key(row_key)?;
        let now_us = now_us();
        let request = |mutations: Vec<CellMutation>| {
            let request = RowMutation { row_key: row_key.to_vec(), mutations };
            if !request.mutations.is_empty() {
                request.check(wide)?;
            }
            Ok::<_, SqlError>(request.stamped(now_us))
        };
        let (if_true, if_false) = (request(if_true)?, request(if_false)?);
        let decide = move |row: &Row<'_>| {
            let holds = predicate(&row.visible())?;
            let request = if holds { &if_true } else { &if_false };
            Ok::<_, SqlError>((row.changed(request, now_us)?, holds))
        };
        self.change_row(permit, table, (row_key, &Wanted::all()), decide).await
    }

    /// Makes new cells of the newest ones of a row; returns them. New ones have the time in whole milliseconds, as clients
    /// of Bigtable expect.
    ///
    /// # Errors
    /// As [`Frontend::mutate_row`]; also if a value is no counter, or a counter would leave its range.
    pub async fn read_modify_row(
        &self,
        permit: &Permit,
        table: &Arc<Table>,
        request: &ReadModify,
    ) -> Result<Cells, SqlError> {
        request.check(wide_of(table)?)?;
        let request = request.clone();
        let (row_key, selection) = (request.row_key.clone(), Wanted::by_rules(&request));
        let decide = move |row: &Row<'_>| {
            let now_us = now_us();
            let written = request.change(&row.visible(), now_us - now_us.rem_euclid(1_000))?;
            let change = RowChange { written: written.clone(), removed: BTreeSet::new() };
            Ok::<_, SqlError>((change, written))
        };
        self.change_row(permit, table, (&row_key, &selection), decide).await
    }

    /// Reads a selection of a row, and writes what `decide` makes of it; again as long as others write the row meanwhile.
    async fn change_row<T>(
        &self,
        permit: &Permit,
        table: &Arc<Table>,
        (row_key, selection): (&[u8], &Wanted),
        decide: impl Fn(&Row<'_>) -> Result<(RowChange, T), SqlError> + Send + Sync + 'static,
    ) -> Result<T, SqlError>
    where
        T: Send + 'static,
    {
        let decide = Arc::new(decide);
        let deadline = Instant::now() + CONTENDED_MAX;
        let mut was_refused = false;
        loop {
            // Statements that were refused take turns.
            let _turn = match was_refused {
                true => Some(self.turns().take(row_key).await),
                false => None,
            };
            let version = self.view().catalog().version;
            let (newest, plan) = self.table_plan(table)?;
            let reads = Arc::new(Reads::of_row(newest.schema.version));
            let row = self.read_row((&newest, &plan), row_key, selection, &reads);
            let row = match Box::pin(row).await? {
                Ok(row) => row,
                Err(_) if Instant::now() < deadline => {
                    self.view().newer_catalog(version, deadline).await;
                    continue;
                }
                Err(stale) => return Err(stale.into()),
            };
            let (change, result) = self.decided(&newest, row, &decide).await?;
            if change.is_empty() {
                return Ok(result);
            }
            let rows = rows_of(&newest, row_key, &change, |column| column.storage_name.clone())?;
            let write = (WriteKind::Put, Completed::counted(rows));
            let cause = || self.cause_without_statement(permit);
            Box::pin(self.ingest_if(permit, (&newest, &plan), write, &reads, cause)).await?;
            if reads.take_refused().is_empty() {
                return Ok(result);
            }
            if Instant::now() >= deadline {
                return Err(contended(&newest));
            }
            was_refused = true;
        }
    }

    /// Decides on a row, in a lane if it has many cells.
    async fn decided<T, D>(
        &self,
        table: &Arc<Table>,
        Stored { cells, memory }: Stored,
        decide: &Arc<D>,
    ) -> Result<(RowChange, T), SqlError>
    where
        T: Send + 'static,
        D: Fn(&Row<'_>) -> Result<(RowChange, T), SqlError> + Send + Sync + 'static,
    {
        if cells.len() <= LIGHT_CELLS {
            return decide(&Row::new(cells, wide_of(table)?));
        }
        let (table, decide) = (Arc::clone(table), Arc::clone(decide));
        let work = async move {
            let decision = decide(&Row::new(cells, wide_of(&table)?));
            drop(memory);
            decision
        };
        let lane = self.lanes().enter().await?;
        lane.run(work).await?
    }
}

/// Microseconds since 1970.
fn now_us() -> i64 {
    let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX)
}

/// The families and limits of a table.
///
/// # Errors
/// 42809 if it is no wide table.
pub fn wide_of(table: &Table) -> Result<&Wide, SqlError> {
    table.schema.options.wide.as_ref().ok_or_else(|| {
        SqlError::new(WRONG_OBJECT_TYPE, format!("\"{}\" is not a wide table", table.name))
    })
}

/// The cells of a change as rows of their table, under names of its columns; deleted ones are marked.
fn rows_of(
    table: &Table,
    row_key: &[u8],
    change: &RowChange,
    name: impl Fn(&Column) -> String,
) -> Result<RecordBatch, SqlError> {
    let RowChange { written, removed } = change;
    // Only new cells: one that was stored before may be deleted, whatever its time.
    let times =
        TimestampMicrosecondArray::from_iter_values(written.keys().map(|key| key.timestamp));
    let times: ArrayRef = Arc::new(times);
    let time_column = table.schema.columns.get(KEY_COLUMNS - 1);
    calendar::check(&times, time_column.map_or(CELL_TS_COLUMN, |column| column.name.as_str()))?;
    let mut values: [Vec<Value>; KEY_COLUMNS + 1] = std::array::from_fn(|_| Vec::new());
    let put = written.iter().map(|(key, value)| (key, Value::Binary(value.clone())));
    for (key, value) in put.chain(removed.iter().map(|key| (key, Value::Null))) {
        let first = table.schema.columns.first();
        let first = first.ok_or_else(|| SqlError::internal("a table without columns"))?;
        let cell = [
            row_key_value(first, row_key)?,
            Value::String(key.family.clone()),
            Value::Binary(key.qualifier.clone()),
            Value::Timestamp(key.timestamp),
            value,
        ];
        values.iter_mut().zip(cell).for_each(|(values, value)| values.push(value));
    }
    let (mut fields, mut arrays) = (Vec::new(), Vec::<ArrayRef>::new());
    for (column, values) in table.schema.columns.iter().zip(&values) {
        fields.push(Field::new(name(column), column.column_type.arrow(), true));
        arrays.push(array_of(column.column_type, values)?);
    }
    if !removed.is_empty() {
        let is_removed: Vec<bool> =
            (0..written.len() + removed.len()).map(|row| row >= written.len()).collect();
        fields.push(Field::new(REMOVED_COLUMN, DataType::Boolean, false));
        arrays.push(Arc::new(BooleanArray::from(is_removed)));
    }
    let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?;
    let bytes = batch_bytes(&rows);
    if bytes > REQUEST_BYTES_MAX {
        let message = format!(
            "a request of {bytes} bytes for one row exceeds the limit of {REQUEST_BYTES_MAX} bytes"
        );
        return Err(SqlError::new(PROGRAM_LIMIT_EXCEEDED, message));
    }
    Ok(rows)
}

/// Refuses to change a row that others keep changing.
fn contended(table: &Table) -> SqlError {
    let message = "could not serialize access due to concurrent update";
    let error = SqlError::new(SERIALIZATION_FAILURE, message);
    SqlError { retryable: true, ..error }.with_detail(format!(
        "other requests keep changing the same row of table \"{}\"",
        table.name
    ))
}
