//! INSERT ... ON CONFLICT, and UPSERT of a part of a row: rows whose key is free are inserted, and the others left out, or
//! changed as an UPDATE changes them.
//!
//! ```text
//!   rows ── read their keys ──┬─ free ──▶ stored, if the key is still free ──┐
//!     ▲                       └─ taken ─▶ nothing, or an UPDATE ─────────────┤
//!     └──────────── again, for those that were refused or are gone ──────────┘
//! ```
//!
//! Both are writes under conditions: of two clients that insert one key, one stores its row and the other finds it.

use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::compute::{filter_record_batch, not};
use arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use partita_proto::access::Permit;
use partita_proto::catalog::Table;
use partita_proto::service::WriteKind;
use partita_sql::statement::{Insert, OnConflict, Update};
use partita_sql::update_rows::key_condition;
use tokio::time::Instant;

use super::returning::Returned;
use super::round::{
    Addition, CONTENDED_MAX, KeySet, NAMED_KEYS_MAX, Pass, Round, altered, contended, given_keys,
    key_values,
};
use crate::copies::refused::check_no_copy;
use crate::error::SqlError;
use crate::ingest::plan::{Completed, TablePlan};
use crate::reads::Reads;
use crate::session::Session;
use crate::supplied::SuppliedRows;

/// SQLSTATE of a row that a statement would change twice.
const CARDINALITY_VIOLATION: &str = "21000";
/// Kind of the statement in causes of load.
const INSERT: &str = "INSERT";

/// An INSERT with ON CONFLICT while its rows are written.
pub(super) struct Conflicts<'a> {
    insert: &'a Insert,
    on_conflict: OnConflict,
    parameters: Option<&'a [ScalarValue]>,
    permit: &'a Permit,
    /// Keys of the rows so far: DO UPDATE changes no row twice.
    keys: KeySet,
    /// Rows that were stored or changed.
    pub(super) written: u64,
    pub(super) returned: Option<Returned>,
}

impl<'a> Conflicts<'a> {
    pub(super) fn new(
        insert: &'a Insert,
        on_conflict: OnConflict,
        parameters: Option<&'a [ScalarValue]>,
        permit: &'a Permit,
    ) -> Self {
        let returned = insert.returning.as_ref().map(|_| Returned::default());
        Self { insert, on_conflict, parameters, permit, keys: KeySet::new(), written: 0, returned }
    }
}

impl Session {
    /// Writes rows, with columns by SQL name, of an INSERT with ON CONFLICT.
    pub(super) async fn insert_or(
        &self,
        conflicts: &mut Conflicts<'_>,
        table: &Table,
        rows: &RecordBatch,
    ) -> Result<(), SqlError> {
        let (table, plan) = self.changing(table)?;
        check_no_copy(&self.catalog(), &table)?;
        conflicts.on_conflict.check(&table)?;
        let schema = &table.schema;
        if schema.options.append_mode || schema.is_keyless() {
            return self.insert_all(conflicts, &table, rows).await;
        }
        let completed = plan.complete(rows)?;
        self.frontend().router().count(&table, &completed);
        let (completed, rows_max) = conflicts.distinct(&table, &plan, completed.rows)?;
        for start in (0..completed.num_rows()).step_by(rows_max) {
            let rows = rows_max.min(completed.num_rows() - start);
            let rows = completed.slice(start, rows);
            let place = (Arc::clone(&table), Arc::clone(&plan));
            Box::pin(self.insert_some(conflicts, place, rows)).await?;
        }
        Ok(())
    }

    /// Writes all rows into a table in which none is in conflict with another.
    async fn insert_all(
        &self,
        conflicts: &mut Conflicts<'_>,
        table: &Arc<Table>,
        rows: &RecordBatch,
    ) -> Result<(), SqlError> {
        let cause = || self.cause(INSERT, &conflicts.insert.text);
        let frontend = self.frontend();
        let written = frontend.ingest_kept(conflicts.permit, table, rows.clone(), cause);
        let (table, written, _) = Box::pin(written).await?;
        conflicts.written += written.num_rows() as u64;
        match &mut conflicts.returned {
            Some(returned) => returned.keep(&table, &written),
            None => Ok(()),
        }
    }

    /// Writes few rows, in as many rounds as it takes.
    async fn insert_some(
        &self,
        conflicts: &mut Conflicts<'_>,
        (mut table, mut plan): (Arc<Table>, Arc<TablePlan>),
        mut rows: RecordBatch,
    ) -> Result<(), SqlError> {
        let view = self.frontend().view();
        let deadline = Instant::now() + CONTENDED_MAX;
        loop {
            let reads = Arc::new(Reads::new(table.schema.version, usize::MAX));
            let pass = Pass { table: &table, plan: &plan, reads: &reads };
            let taken_keys = self.taken(pass, &rows).await?;
            let is_taken = mask(pass, &rows, |key| taken_keys.contains(key))?;
            let mut refused = KeySet::new();
            if is_taken.false_count() > 0 {
                let free = filter_record_batch(&rows, &not(&is_taken)?)?;
                refused.extend(self.store(conflicts, pass, &free).await?);
            }
            if is_taken.true_count() > 0
                && let Some(update) = conflicts.on_conflict.update.clone()
            {
                let rows = filter_record_batch(&rows, &is_taken)?;
                refused.extend(self.change_taken(conflicts, pass, &update, &rows).await?);
            }
            if refused.is_empty() {
                return Ok(());
            }
            let newest = view.newest(&table).filter(|newest| takes_rows_of(newest, &table));
            let Some(newest) = newest else { return Err(altered(&table)) };
            if Instant::now() >= deadline {
                return Err(contended(&table));
            }
            let is_left = mask(pass, &rows, |key| refused.contains(key))?;
            rows = filter_record_batch(&rows, &is_left)?;
            plan = view.plan(self.frontend().state(), &newest)?;
            table = newest;
        }
    }

    /// Keys of rows that exist.
    async fn taken(&self, pass: Pass<'_>, rows: &RecordBatch) -> Result<KeySet, SqlError> {
        let columns = given_keys(pass.table);
        let values = key_values(&columns, rows)?;
        let condition = key_condition(&pass.table.name, &columns, &values);
        let mut taken_keys = KeySet::new();
        for keys in self.keys_where(pass, condition.as_deref()).await? {
            taken_keys.extend(keys.iter().map(Box::<[u8]>::from));
        }
        Ok(taken_keys)
    }

    /// Stores rows whose keys were free; returns the keys of those that no longer are, or may not be.
    async fn store(
        &self,
        conflicts: &mut Conflicts<'_>,
        pass: Pass<'_>,
        rows: &RecordBatch,
    ) -> Result<KeySet, SqlError> {
        let cause = || self.cause(INSERT, &conflicts.insert.text);
        let completed = Completed::counted(rows.clone());
        let frontend = self.frontend();
        let (place, write) = ((pass.table, pass.plan), (WriteKind::Put, completed));
        frontend.ingest_if(conflicts.permit, place, write, pass.reads, cause).await?;
        let mut refused = KeySet::new();
        for rows in pass.reads.take_refused() {
            refused.extend(pass.keys(&rows)?.iter().map(Box::<[u8]>::from));
        }
        let stored = mask(pass, rows, |key| !refused.contains(key))?;
        conflicts.written += stored.true_count() as u64;
        self.count_written(pass.table, stored.true_count() as u64);
        if let Some(returned) = &mut conflicts.returned {
            returned.keep(pass.table, &filter_record_batch(rows, &stored)?)?;
        }
        Ok(refused)
    }

    /// Changes the rows with the keys of others; returns the keys of those that were refused, or are gone.
    async fn change_taken(
        &self,
        conflicts: &mut Conflicts<'_>,
        pass: Pass<'_>,
        update: &Update,
        rows: &RecordBatch,
    ) -> Result<KeySet, SqlError> {
        let mut supplied = Returned::default();
        supplied.keep(pass.table, rows)?;
        let update = update.beside_excluded(pass.table)?;
        let columns = given_keys(pass.table);
        let name = update.alias.as_ref().unwrap_or(&pass.table.name);
        let values = key_values(&columns, rows)?;
        let keys = key_condition(name, &columns, &values);
        let same_key = update.same_key(pass.table);
        let condition = match keys {
            Some(keys) => format!("{same_key} AND {keys}"),
            None => same_key,
        };
        let place = (Arc::clone(pass.table), Arc::clone(pass.plan));
        let reads = Reads::new(pass.table.schema.version, usize::MAX);
        let mut round = Round::new(&update, conflicts.permit, place, None, reads)?;
        round.addition = Some(Addition {
            condition,
            supplied: SuppliedRows(supplied.into_rows()),
            is_unread: conflicts.insert.keeps,
        });
        round.returned = conflicts.returned.take();
        let ran = Box::pin(self.run_round(&mut round, conflicts.parameters)).await;
        conflicts.returned = round.returned.take();
        conflicts.written += round.changed;
        ran?;
        self.count_written(pass.table, round.changed);
        let mut refused = round.take_refused();
        // A row that the query did not find either fails the condition, or is gone.
        let seen_keys = round.take_seen();
        let unseen = mask(pass, rows, |key| !seen_keys.contains(key))?;
        if unseen.true_count() > 0 {
            let unseen = filter_record_batch(rows, &unseen)?;
            let taken_keys = self.taken(pass, &unseen).await?;
            let keys = pass.keys(&unseen)?;
            refused.extend(
                keys.iter().filter(|key| !taken_keys.contains(*key)).map(Box::<[u8]>::from),
            );
        }
        Ok(refused)
    }
}

impl Conflicts<'_> {
    /// The rows with keys that no earlier row of the statement has, and the maximum number of them that are written at
    /// once. Of rows of an UPSERT with one key, all are written in turn.
    ///
    /// # Errors
    /// 21000 if DO UPDATE would change a row twice.
    fn distinct(
        &mut self,
        table: &Arc<Table>,
        plan: &Arc<TablePlan>,
        rows: RecordBatch,
    ) -> Result<(RecordBatch, usize), SqlError> {
        let reads = Arc::new(Reads::new(table.schema.version, usize::MAX));
        let pass = Pass { table, plan, reads: &reads };
        let keys = pass.keys(&rows)?;
        let is_new: Vec<bool> = keys.iter().map(|key| self.keys.insert(key.into())).collect();
        let is_new = BooleanArray::from(is_new);
        if is_new.false_count() == 0 {
            return Ok((rows, NAMED_KEYS_MAX));
        }
        if self.insert.keeps {
            return Ok((rows, 1));
        }
        if self.on_conflict.update.is_some() {
            let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
            return Err(SqlError::new(CARDINALITY_VIOLATION, message).with_hint(
                "no rows proposed for insertion within the same command may have the same key",
            ));
        }
        Ok((filter_record_batch(&rows, &is_new)?, NAMED_KEYS_MAX))
    }
}

/// True if rows that were completed for a table are those that its newest version would be given: it was not altered, or
/// it was re-keyed.
fn takes_rows_of(newest: &Table, table: &Table) -> bool {
    let (newest, table) = (&newest.schema, &table.schema);
    let are_alike = || newest.columns == table.columns && newest.checks == table.checks;
    newest.version == table.version
        || are_alike() && newest.options.append_mode == table.options.append_mode
}

/// True for each row, with columns by storage name, whose key satisfies a condition.
fn mask(
    pass: Pass<'_>,
    rows: &RecordBatch,
    condition: impl Fn(&[u8]) -> bool,
) -> Result<BooleanArray, SqlError> {
    let values: Vec<bool> = pass.keys(rows)?.iter().map(condition).collect();
    Ok(BooleanArray::from(values))
}
