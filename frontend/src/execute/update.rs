//! UPDATE: a query finds the rows with their new values, which are written as they stream in.
//!
//! ```text
//!   query ── rows, new values ──▶ whole rows ── condition: not changed since ──▶ partitions
//!     ▲                                                                             │
//!     └──────────────── again, for the rows that were refused ──────────────────────┘
//! ```
//!
//! A row is written under the condition that nobody has written it since the query read it, which the log of its
//! partition decides. So the new value of a row is always made of its last one: two statements that add to a counter
//! both count. Rows that were refused are read again, and changed if the predicate still holds for them, as in
//! PostgreSQL at READ COMMITTED. Statements that had rows refused take turns from then on.
//!
//! All scans of the table are opened before the first row is written, as for a DELETE.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use datafusion::common::ScalarValue;
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;
use partita_proto::access::Permit;
use partita_proto::catalog::Table;
use partita_proto::schema::Column;
use partita_proto::service::WriteKind;
use partita_sql::statement::{Delete, Query, Update};
use tokio::time::Instant;

use super::delete::after;
use super::executed::Executed;
use super::query::{Source, Target};
use super::returning::{Returned, ReturningOf};
use super::round::{Action, CONTENDED_MAX, Pending, Round, altered, contended, present, stored};
use crate::copies::refused::check_no_copy;
use crate::error::SqlError;
use crate::ingest::plan::Completed;
use crate::ingest::{check_delete, check_update};
use crate::output::Output;
use crate::reads::Reads;
use crate::scan::Usage;
use crate::session::Session;

/// Maximum rows of a request in the second round; a quarter of it in each further one.
const RETRIED_ROWS: usize = 1_024;

impl Session {
    pub(super) async fn update(
        &self,
        update: &Update,
        parameters: Option<&[ScalarValue]>,
        permit: &Permit,
    ) -> Result<Executed, SqlError> {
        let table = self.table(&update.table)?;
        check_update(&table)?;
        self.check_identities(update, &table)?;
        self.change(update, Action::Update, parameters, permit).await
    }

    /// A DELETE that finds whole rows: it returns of each row its last version, which no other statement returns too.
    pub(super) async fn delete_found(
        &self,
        delete: &Delete,
        parameters: Option<&[ScalarValue]>,
        permit: &Permit,
    ) -> Result<Executed, SqlError> {
        let table = self.table(&delete.table)?;
        check_delete(&table)?;
        self.change(&delete.as_update(), Action::Delete, parameters, permit).await
    }

    async fn change(
        &self,
        update: &Update,
        action: Action,
        parameters: Option<&[ScalarValue]>,
        permit: &Permit,
    ) -> Result<Executed, SqlError> {
        let table = self.table(&update.table)?;
        check_no_copy(&self.catalog(), &table)?;
        let clause = update.returning.as_ref().map(|returning| ReturningOf {
            returning,
            table: &update.table,
            alias: update.alias.as_deref(),
            found: Some(&update.source),
            text: &update.text,
        });
        let mut returned = clause.map(|_| Returned::default());
        let joined = match clause {
            Some(clause) if update.has_from() => {
                Some(Box::pin(self.joined_returning(clause)).await?)
            }
            _ => None,
        };
        let mut pending: Option<Pending> = None;
        let mut updated = 0;
        let mut rows_max = usize::MAX;
        let mut deadline = Instant::now() + CONTENDED_MAX;
        loop {
            // Statements that were refused take turns.
            let turns = self.frontend().turns();
            let _turn = match pending.as_ref().and_then(Pending::first) {
                Some(key) => Some(turns.take(key).await),
                None => None,
            };
            let mut round = self.round(update, permit, &table, pending.take(), rows_max)?;
            (round.action, round.returned) = (action, returned.take());
            round.joined = joined.as_ref();
            let ran = Box::pin(self.run_round(&mut round, parameters)).await;
            let ran = ran.map_err(|error| self.of_former_key(&table, error));
            updated += round.changed;
            returned = round.returned.take();
            let plan = ran.map_err(|error| after(error, updated, action.verb()))?;
            if round.is_complete() {
                match action {
                    Action::Update => self.count_written(&table, updated),
                    Action::Delete => self.frontend().view().metrics().rows_deleted.add(updated),
                }
                let output = match (returned, clause, &joined) {
                    (Some(rows), _, Some(joined)) => {
                        Box::pin(self.joined_output(joined, rows, parameters)).await?
                    }
                    (Some(rows), Some(clause), None) => {
                        Box::pin(self.returned(clause, rows, parameters)).await?
                    }
                    _ => Output::affected(action.name(), updated),
                };
                return Ok(Executed { output, plan: Some(plan), usage: Usage::default() });
            }
            if round.changed > 0 {
                deadline = Instant::now() + CONTENDED_MAX;
            } else if Instant::now() >= deadline {
                return Err(after(contended(&table), updated, action.verb()));
            }
            rows_max = (rows_max / 4).clamp(1, RETRIED_ROWS);
            pending = Some(round.into_pending());
        }
    }

    /// The error of a statement that began before its table got a key: there is no hidden key any more, by which it
    /// finds its rows.
    fn of_former_key(&self, table: &Table, error: SqlError) -> SqlError {
        let catalog = self.frontend().catalog();
        let newest = catalog.table_by_id(table.id);
        let has_key = newest.is_some_and(|newest| !newest.schema.is_keyless());
        if table.schema.is_keyless() && has_key { altered(table) } else { error }
    }

    /// The query that finds the rows to change, with their new values.
    pub(super) fn update_query(&self, update: &Update) -> Result<Query, SqlError> {
        let table = self.table(&update.table)?;
        check_no_copy(&self.catalog(), &table)?;
        check_update(&table)?;
        update.rows_query(&table, &stored(&table), None)
    }

    /// The next pass, over all rows or the pending ones, by the newest schema.
    fn round<'a>(
        &self,
        update: &'a Update,
        permit: &'a Permit,
        table: &Table,
        pending: Option<Pending>,
        rows_max: usize,
    ) -> Result<Round<'a>, SqlError> {
        let (table, plan) = self.changing(table)?;
        let reads = Reads::new(table.schema.version, rows_max);
        Round::new(update, permit, (table, plan), pending, reads)
    }

    /// Reads the rows and writes what they become. Returns the plan of the query.
    pub(super) async fn run_round(
        &self,
        round: &mut Round<'_>,
        parameters: Option<&[ScalarValue]>,
    ) -> Result<Arc<dyn ExecutionPlan>, SqlError> {
        let (table, reads) = (Arc::clone(&round.table), Arc::clone(&round.reads));
        let columns = stored(&table);
        let mut query = round.update.rows_query(&table, &columns, round.condition())?;
        if let Some(joined) = round.joined {
            joined.extend(&mut query)?;
        }
        let source = match parameters {
            Some(parameters) => Source::WithParameters(&query.statement, parameters),
            None => Source::Statement(&query.statement),
        };
        // Rows that are replaced by constants are not read, as in PostgreSQL.
        let supplied = round.addition.as_ref().map(|addition| addition.supplied.clone());
        let is_unread = round.addition.as_ref().is_some_and(|addition| addition.is_unread);
        let unread = (is_unread || round.update.reads_nothing()).then_some(table.id);
        let target = Target {
            pinned: Some(&table),
            reads: Some(&reads),
            unread,
            // As DELETE without RETURNING: garbage that stays could become visible.
            deletes: round.action == Action::Delete,
            supplied: supplied.as_ref(),
            ..Target::default()
        };
        let mut running = self.start(&source, target).await?;
        if let Some(temporary) = self.frontend().temporary().get(table.id) {
            let stream = &mut running.stream;
            self.change_temporary(round, &temporary, &columns, stream).await?;
            return Ok(running.plan);
        }
        while let Some(batch) = running.stream.next().await {
            let batch = batch?;
            if batch.num_rows() == 0 {
                continue;
            }
            self.check_fence()?;
            self.write_changes(round, &columns, batch).await?;
        }
        Ok(running.plan)
    }

    /// Writes the rows of a batch of the query.
    async fn write_changes(
        &self,
        round: &mut Round<'_>,
        columns: &[&Column],
        batch: RecordBatch,
    ) -> Result<(), SqlError> {
        let Some(batch) = round.select(columns, batch)? else { return Ok(()) };
        if round.action == Action::Delete {
            return self.remove_rows(round, columns, &batch).await;
        }
        let new_rows = round.new_rows(columns, &batch, self.zone())?;
        let completed = round.plan.complete(&new_rows)?;
        round.note_joined(&batch, &completed.rows)?;
        if !round.may_move() {
            return self.write_rows(round, completed).await;
        }
        let old = round.plan.complete_keys(&present(columns, &batch)?)?.rows;
        self.move_rows(round, old, completed).await
    }

    /// Replaces rows by others with the same keys.
    pub(super) async fn write_rows(
        &self,
        round: &mut Round<'_>,
        completed: Completed,
    ) -> Result<(), SqlError> {
        let (rows, reads) = (completed.rows.clone(), Arc::clone(&round.reads));
        self.write_under(round, WriteKind::Put, completed, &reads).await?;
        round.settle(&rows, &reads.take_refused())
    }

    /// Removes the rows of a batch of the query.
    async fn remove_rows(
        &self,
        round: &mut Round<'_>,
        columns: &[&Column],
        batch: &RecordBatch,
    ) -> Result<(), SqlError> {
        let present = present(columns, batch)?;
        let keys = round.plan.complete_keys(&present)?;
        let rows = round.plan.complete_stored(&present)?.rows;
        round.note_joined(batch, &rows)?;
        let reads = Arc::clone(&round.reads);
        self.write_under(round, WriteKind::Delete, keys, &reads).await?;
        round.settle(&rows, &reads.take_refused())
    }

    /// Writes rows under the conditions of reads, which get those that are refused.
    pub(super) async fn write_under(
        &self,
        round: &Round<'_>,
        kind: WriteKind,
        completed: Completed,
        reads: &Arc<Reads>,
    ) -> Result<(), SqlError> {
        let cause = || self.cause(round.action.name(), &round.update.text);
        let place = (&round.table, &round.plan);
        self.frontend().ingest_if(round.permit, place, (kind, completed), reads, cause).await
    }
}
