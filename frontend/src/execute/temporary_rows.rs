//! Changes of the rows of a temporary table: collected while their query runs, and made together at its end.
//!
//! The rows are those of one session, which runs one statement at a time. So no other statement changes them meanwhile,
//! and none is read again.

use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::record_batch::RecordBatch;
use futures::StreamExt;
use partita_proto::catalog::Table;
use partita_proto::schema::Column;

use super::moves::taken;
use super::round::{Action, Round, present};
use crate::error::SqlError;
use crate::ingest::plan::TablePlan;
use crate::output::RowStream;
use crate::session::Session;
use crate::temporary::{TemporaryTable, is_temporary};

impl Session {
    /// A table that a statement changes as it is now, with its plan.
    pub(super) fn changing(&self, table: &Table) -> Result<(Arc<Table>, Arc<TablePlan>), SqlError> {
        if let Some(temporary) = self.frontend().temporary().get(table.id) {
            return Ok((Arc::clone(temporary.table()), Arc::clone(temporary.plan())));
        }
        let view = self.frontend().view();
        let table = view.newest(table).ok_or_else(|| SqlError::undefined_table(&table.name))?;
        let plan = view.plan(self.frontend().state(), &table)?;
        Ok((table, plan))
    }

    /// Counts rows that were written; those of temporary tables are not stored.
    pub(super) fn count_written(&self, table: &Table, rows: u64) {
        if !is_temporary(table.id) {
            self.frontend().view().metrics().rows_written.add(rows);
        }
    }

    /// Changes the rows of a temporary table that a query finds: all of them, or after an error none.
    pub(super) async fn change_temporary(
        &self,
        round: &mut Round<'_>,
        temporary: &TemporaryTable,
        columns: &[&Column],
        stream: &mut RowStream,
    ) -> Result<(), SqlError> {
        let mut keys: Vec<RecordBatch> = Vec::new();
        let mut rows: Vec<RecordBatch> = Vec::new();
        let mut found: Vec<RecordBatch> = Vec::new();
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            if batch.num_rows() == 0 {
                continue;
            }
            let Some(batch) = round.select(columns, batch)? else { continue };
            let current = present(columns, &batch)?;
            keys.push(round.plan.complete_keys(&current)?.rows);
            rows.push(match round.action {
                Action::Update => {
                    let new_rows = round.new_rows(columns, &batch, self.zone())?;
                    round.plan.complete(&new_rows)?.rows
                }
                Action::Delete => round.plan.complete_stored(&current)?.rows,
            });
            found.push(batch);
        }
        if round.action == Action::Update
            && let Some((batch, row)) = temporary.occupied(&keys, &rows)?
        {
            return Err(taken(&round.table, &rows[batch], row)?);
        }
        // Rows that are too many to return are an error before any is changed.
        for (batch, rows) in found.iter().zip(&rows) {
            round.note_joined(batch, rows)?;
            round.keep(rows, &BooleanArray::from(vec![true; rows.num_rows()]))?;
        }
        match round.action {
            Action::Update => temporary.change(&keys, &rows)?,
            Action::Delete => temporary.change(&keys, &[])?,
        }
        round.changed += rows.iter().map(|rows| rows.num_rows() as u64).sum::<u64>();
        Ok(())
    }
}
