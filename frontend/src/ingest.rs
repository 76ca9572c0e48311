//! Writes rows: completes the columns that a door brings and hands them to the router.
//!
//! This is the only way into a table. `INSERT`, `COPY`, line protocol and Flight all end here with Arrow columns
//! under SQL names; nothing here loops over rows.

pub(crate) mod calendar;
pub(crate) mod cast;
mod cells;
mod counters;
pub(crate) mod expression;
mod length;
pub(crate) mod plan;
mod row_ids;
pub(crate) mod series;
pub(crate) mod size;

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use partita_load::Cause;
use partita_proto::access::{Door, Permit};
use partita_proto::catalog::Table;
use partita_proto::schema::ROW_COLUMN;
use partita_proto::service::WriteKind;

use crate::blame::cause_of;
use crate::copies::refused::check_no_copy;
use crate::error::{FEATURE_NOT_SUPPORTED, SqlError};
use crate::frontend::Frontend;
use crate::reads::Reads;
use crate::router::{WriteMode, Written};
use crate::scan::Usage;
use crate::sequences::has_counter;

impl Frontend {
    /// Writes rows. Columns are matched by SQL name; any subset of the table's columns is accepted, of any types that
    /// can be assigned. Fills in defaults and generated columns, checks NOT NULL, places, cuts, sends and retries.
    /// Returns the number of rows. `permit` is the proof that the client may insert into the table.
    ///
    /// # Errors
    /// Fails if a row does not fit the table, or could not be written within the write timeout.
    pub async fn ingest(
        &self,
        permit: &Permit,
        table: &Arc<Table>,
        rows: RecordBatch,
    ) -> Result<u64, SqlError> {
        let cause = || self.cause_without_statement(permit);
        Ok(self.ingest_counted(permit, table, rows, cause).await?.0)
    }

    /// [`Frontend::ingest`] of rows whose cause the door knows; `None`: only the permit is known.
    ///
    /// # Errors
    /// As [`Frontend::ingest`].
    pub async fn ingest_for(
        &self,
        permit: &Permit,
        table: &Arc<Table>,
        rows: RecordBatch,
        cause: Option<Cause>,
    ) -> Result<u64, SqlError> {
        let cause = || cause.unwrap_or_else(|| self.cause_without_statement(permit));
        Ok(self.ingest_counted(permit, table, rows, cause).await?.0)
    }

    /// Writes rows; returns their number and the number of partitions that stored them. `cause` is called for few
    /// writes.
    pub(crate) async fn ingest_counted(
        &self,
        permit: &Permit,
        table: &Arc<Table>,
        rows: RecordBatch,
        cause: impl FnOnce() -> Cause + Send,
    ) -> Result<(u64, Usage), SqlError> {
        let (_, rows, usage) = self.ingest_kept(permit, table, rows, cause).await?;
        Ok((rows.num_rows() as u64, usage))
    }

    /// As [`Frontend::ingest_counted`]; returns the rows as they were written, with the table's columns by storage name.
    pub(crate) async fn ingest_kept(
        &self,
        permit: &Permit,
        table: &Arc<Table>,
        mut rows: RecordBatch,
        cause: impl FnOnce() -> Cause + Send,
    ) -> Result<(Arc<Table>, RecordBatch, Usage), SqlError> {
        if let Some(temporary) = self.temporary().get(table.id) {
            if rows.column_by_name(ROW_COLUMN).is_some() {
                return Err(SqlError::undefined_column(ROW_COLUMN, &table.name));
            }
            let written = temporary.insert(&rows)?;
            return Ok((Arc::clone(table), written, Usage::default()));
        }
        let (table, plan) = self.table_plan(table)?;
        if rows.column_by_name(ROW_COLUMN).is_some() {
            return Err(SqlError::undefined_column(ROW_COLUMN, &table.name));
        }
        if table.schema.columns.iter().any(has_counter) {
            (rows, _) = Box::pin(self.numbered(permit, &table, rows)).await?;
        }
        let completed = plan.complete(&rows)?;
        drop(rows);
        self.blame().wrote(&table, &plan, &completed.rows, cause);
        let written = completed.rows.clone();
        let write =
            self.router().write(self.state(), &table, &plan, WriteKind::Put.into(), completed);
        let partitions_touched = self.settled(Box::pin(write).await).await?;
        self.view().metrics().rows_written.add(written.num_rows() as u64);
        let partitions_total = table.partitions.routes().len() as u64;
        let usage = Usage { partitions_total, partitions_touched, ..Usage::default() };
        Ok((table, written, usage))
    }

    /// Deletes rows by key; `keys` has the key columns under their SQL names. Returns the number of keys.
    /// `_permit` is the proof that the client may delete from the table; `cause` is called for few deletes.
    ///
    /// # Errors
    /// Fails if the table is in append mode, or the keys could not be deleted within the write timeout.
    pub async fn ingest_delete(
        &self,
        _permit: &Permit,
        table: &Arc<Table>,
        keys: RecordBatch,
        cause: impl FnOnce() -> Cause + Send,
    ) -> Result<u64, SqlError> {
        if let Some(temporary) = self.temporary().get(table.id) {
            temporary.remove(&keys)?;
            return Ok(keys.num_rows() as u64);
        }
        let (table, plan) = self.table_plan(table)?;
        check_delete(&table)?;
        let completed = plan.complete_keys(&keys)?;
        let count = keys.num_rows() as u64;
        drop(keys);
        self.blame().wrote(&table, &plan, &completed.rows, cause);
        let write =
            self.router().write(self.state(), &table, &plan, WriteKind::Delete.into(), completed);
        self.settled(Box::pin(write).await).await?;
        self.view().metrics().rows_deleted.add(count);
        Ok(count)
    }

    /// Writes rows that were read, where nobody has written them since; `reads` gets those that were refused. Puts
    /// replace whole rows. `_permit` is the proof that the client may change the table's rows.
    ///
    /// # Errors
    /// Fails if the rows could not be written within the write timeout.
    pub(crate) async fn ingest_if(
        &self,
        _permit: &Permit,
        (table, plan): (&Arc<Table>, &Arc<plan::TablePlan>),
        (kind, completed): (WriteKind, plan::Completed),
        reads: &Arc<Reads>,
        cause: impl FnOnce() -> Cause + Send,
    ) -> Result<(), SqlError> {
        if let Some(temporary) = self.temporary().get(table.id) {
            return match kind {
                WriteKind::Put => temporary.store(&completed.rows),
                WriteKind::Delete => temporary.change(&[completed.rows], &[]),
            };
        }
        check_no_copy(&self.catalog(), table)?;
        reads.sent(completed.rows.num_rows());
        self.blame().wrote(table, plan, &completed.rows, cause);
        let mode = WriteMode { kind, reads: Some(Arc::clone(reads)) };
        let write = self.router().write(self.state(), table, plan, mode, completed);
        self.settled(Box::pin(write).await).await?;
        Ok(())
    }

    /// Waits until the copies of a table have the rows that were written to it. Returns the number of partitions that
    /// stored the rows.
    async fn settled(&self, written: Written) -> Result<u64, SqlError> {
        let Written { partitions, debts } = written;
        if debts.is_empty() {
            return partitions;
        }
        let settled = Box::pin(self.copies().settle(debts)).await;
        let partitions = partitions?;
        settled?;
        Ok(partitions)
    }

    /// The cause of rows that come by a protocol without statements.
    pub(crate) fn cause_without_statement(&self, permit: &Permit) -> Cause {
        let identity = permit.identity();
        let kind = match identity.door {
            Door::Postgres => "COPY",
            Door::Http => "LINE PROTOCOL",
            Door::Flight => "FLIGHT",
            Door::Internal => "TASK",
        };
        let access = self.access();
        let user = access.role(identity.login).map_or("", |role| role.name.as_str());
        cause_of((kind, ""), user, "", permit.peer())
    }

    /// The newest version of a table, with its plan.
    pub(crate) fn table_plan(
        &self,
        table: &Arc<Table>,
    ) -> Result<(Arc<Table>, Arc<plan::TablePlan>), SqlError> {
        let table =
            self.view().newest(table).ok_or_else(|| SqlError::undefined_table(&table.name))?;
        check_no_copy(&self.catalog(), &table)?;
        let plan = self.view().plan(self.state(), &table)?;
        Ok((table, plan))
    }
}

/// Refuses deletes in append mode, where rows have no identity.
pub(crate) fn check_delete(table: &Table) -> Result<(), SqlError> {
    if table.schema.options.append_mode {
        return Err(SqlError::new(
            FEATURE_NOT_SUPPORTED,
            format!("DELETE is not supported on append-mode table \"{}\"", table.name),
        )
        .with_hint("set a 'ttl' to expire old rows, or TRUNCATE the table"));
    }
    Ok(())
}

/// Refuses updates in append mode, where rows have no identity.
pub(crate) fn check_update(table: &Table) -> Result<(), SqlError> {
    if table.schema.options.append_mode {
        return Err(SqlError::new(
            FEATURE_NOT_SUPPORTED,
            format!("UPDATE is not supported on append-mode table \"{}\"", table.name),
        )
        .with_hint("rows of an append-mode table are kept as they were written"));
    }
    Ok(())
}
