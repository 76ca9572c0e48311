//! Gives a table without a key its first one: a copy with the key takes its place, as when it gets another key.
//!
//! ```text
//!   begin captures ─▶ fill, count ─▶ close the partitions ─▶ no change since the fill? ─▶ exchange
//!                                                               │ some: open them again, drop the copy; then
//!   begin captures ─▶ close the partitions ─▶ fill, count ─▶ exchange
//! ```
//!
//! Changes name rows by the hidden key, by which the copy cannot find them, so it follows none. The first attempt holds
//! no writer up and succeeds if there are none; in the second one, writers wait for the fill, as in PostgreSQL.
//!
//! Invariants:
//! - the tables are exchanged only if no entry of a source partition's log between the rows of the fill and the close
//!   changed rows: every acknowledged row is in the copy;
//! - a closed partition stores nothing, and says so: the write fails with an error that asks to repeat it;
//! - as many keys are in the copy as rows were filled: no two rows have one key, and no key has a NULL.
//!
//! Only the frontend of the statement does this. If that frontend ends, any other one opens the table and drops the
//! copy (`sweep.rs`).

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use futures::StreamExt;
use futures::future::try_join_all;
use partita_proto::Error;
use partita_proto::catalog::Table;
use partita_proto::domain::Domains;
use partita_proto::id::{Epoch, PartitionId, TableId};
use partita_proto::materialized::{Capture, CopyChange, CopyState, Position, Steering};
use partita_proto::schema::{Column, ROW_COLUMN};
use partita_proto::service::{DataService, Ddl, ReadFrom, ScanReply, ScanRequest};
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use super::Copies;
use super::leader::SourcePartition;
use super::pace::Pace;
use super::ship::NO_CHANGES;
use crate::access::random;
use crate::error::SqlError;
use crate::home::at_home;
use crate::router::check_keys;

/// Maximum time for which writers wait while a closed table is filled.
pub(super) const CLOSED_MAX: Duration = Duration::from_secs(20);
/// Maximum time for one step.
const STEP_WAIT: Duration = Duration::from_secs(10);
/// Pause before a step is tried again.
const PAUSE: Duration = Duration::from_millis(20);
/// Attempts at a step that passes when other changes have ended.
const ATTEMPTS: u32 = 50;
/// SQLSTATE of a NULL where none may be.
const NOT_NULL_VIOLATION: &str = "23502";

/// Reason for which a table did not get its key. It is as it was before.
#[derive(Debug)]
pub(crate) enum Unkeyed {
    /// It was changed meanwhile: a later attempt may succeed.
    Changed,
    /// Two rows have the same key.
    Duplicate,
    /// Any other error.
    Failed(SqlError),
}

impl From<SqlError> for Unkeyed {
    fn from(error: SqlError) -> Self {
        Self::Failed(error)
    }
}

impl From<Error> for Unkeyed {
    fn from(error: Error) -> Self {
        match error {
            // The partition was split, or the table truncated or dropped.
            Error::Gap { .. } | Error::NotFound { .. } => Self::Changed,
            error => Self::Failed(error.into()),
        }
    }
}

/// True if a copy is to give its source the first key.
pub(super) fn is_first_key(source: &Table, copy: &Table) -> bool {
    source.schema.is_keyless() && !copy.schema.is_keyless()
}

impl Copies {
    /// Fills a copy that is to give its source the first key, and has it take that place. `closes_first`: no row of the
    /// source is written meanwhile. If that fails, the source is as before, and the copy is dropped.
    ///
    /// # Errors
    /// [`Unkeyed`] says whether another attempt may succeed.
    pub(crate) async fn add_first_key(
        self: &Arc<Self>,
        copy: &Arc<Table>,
        closes_first: bool,
    ) -> Result<(), Unkeyed> {
        let (copies, copy) = (Arc::clone(self), Arc::clone(copy));
        at_home(self.view.home(), async move {
            let added = Box::pin(copies.try_add(&copy, closes_first)).await;
            if added.is_err() {
                copies.give_up_first_key(copy).await;
            }
            added
        })
        .await
    }

    async fn try_add(
        self: &Arc<Self>,
        copy: &Arc<Table>,
        closes_first: bool,
    ) -> Result<(), Unkeyed> {
        let Some(source) = copy.copy.as_ref().map(|state| state.source) else {
            return Err(Unkeyed::Changed);
        };
        let filler = random::bytes::<8>()?;
        let filler = u64::from_le_bytes(filler).max(1);
        if !self.meta.change(Ddl::Copy(CopyChange::Take { copy: copy.id, filler })).await? {
            return Err(Unkeyed::Changed);
        }
        let partitions = self.partitions_of(source);
        let mut begun = Vec::with_capacity(partitions.len());
        for partition in &partitions {
            // A partition that inherits its capture was split off a moment ago.
            let epoch = self.begin(copy.id, *partition).await?.ok_or(Unkeyed::Changed)?;
            begun.push((*partition, epoch));
        }
        let pace = Pace::new();
        if closes_first {
            self.close_all(copy.id, filler, &partitions).await?;
            let filled = timeout(CLOSED_MAX, self.fill_and_count(copy, &begun, &pace)).await;
            filled.map_err(|_| Unkeyed::Changed)??;
        } else {
            let filled = tokio::select! {
                filled = self.fill_and_count(copy, &begun, &pace) => filled?,
                _reason = self.beat(copy.id, filler, &pace) => return Err(Unkeyed::Changed),
            };
            self.close_all(copy.id, filler, &partitions).await?;
            for (partition, index) in filled {
                let changes = self.changes(partition, copy.id, (NO_CHANGES, 0)).await?;
                if changes.last > index {
                    return Err(Unkeyed::Changed);
                }
            }
        }
        let closed = partitions.iter().map(|source| source.partition).collect();
        self.exchange_tables(copy.id, closed).await?;
        self.await_key(source).await;
        Ok(())
    }

    /// Closes the partitions of the source, by meta's leave.
    async fn close_all(
        &self,
        copy: TableId,
        filler: u64,
        sources: &[SourcePartition],
    ) -> Result<(), Unkeyed> {
        let partitions: Vec<_> = sources.iter().map(|source| source.partition).collect();
        let steps = [CopyChange::Finish { copy, filler, partitions }, CopyChange::Switch { copy }];
        for step in steps {
            let mut is_done = false;
            for _ in 0..ATTEMPTS {
                is_done = self.meta.change(Ddl::Copy(step.clone())).await?;
                if is_done {
                    break;
                }
                // A partition may be being split.
                sleep(PAUSE).await;
            }
            if !is_done {
                return Err(Unkeyed::Changed);
            }
        }
        let closed = sources.iter().map(|source| self.capture(*source, copy, Capture::Close));
        try_join_all(closed).await?;
        Ok(())
    }

    /// Fills the copy with all rows of its source, and counts them there. Returns up to which index of each log these are
    /// all rows.
    async fn fill_and_count(
        &self,
        copy: &Arc<Table>,
        begun: &[(SourcePartition, Epoch)],
        pace: &Pace,
    ) -> Result<Vec<(SourcePartition, u64)>, Unkeyed> {
        let mut indexes = Vec::with_capacity(begun.len());
        let mut filled = 0;
        for (source, epoch) in begun {
            let (index, rows) = self.fill_keyed(copy, *source, *epoch, pace).await?;
            indexes.push((*source, index));
            filled += rows;
        }
        match self.count(copy).await? == filled {
            true => Ok(indexes),
            false => Err(Unkeyed::Duplicate),
        }
    }

    /// Ships the rows of a source partition. Returns the index up to which these are all, and their number.
    async fn fill_keyed(
        &self,
        copy: &Arc<Table>,
        source: SourcePartition,
        epoch: Epoch,
        pace: &Pace,
    ) -> Result<(u64, u64), Unkeyed> {
        let plan = self.view.plan(&self.state, copy)?;
        let name = self.name_of(source.table);
        let (index, reply) = self.rows(copy.id, source, epoch).await?;
        let (mut part, mut count) = (0, 0);
        for mut rows in reply.streams {
            while let Some(batch) = rows.next().await {
                let mut batch = batch?;
                if let Ok(hidden) = batch.schema_ref().index_of(ROW_COLUMN) {
                    batch.remove_column(hidden);
                }
                check_nulls(copy, &name, &batch)?;
                check_keys(&plan.codec.encode(&batch).map_err(SqlError::from)?, &name)?;
                count += batch.num_rows() as u64;
                let start = Position { index, part };
                let shipped =
                    self.ship_slices(copy.id, batch, (source.partition, start), pace).await;
                part = shipped.map_err(Error::Unavailable)?;
            }
        }
        Ok((index, count))
    }

    fn name_of(&self, table: TableId) -> String {
        let catalog = self.view.catalog();
        catalog.table_by_id(table).map(|table| table.name.clone()).unwrap_or_default()
    }

    /// The number of keys in a copy.
    async fn count(&self, copy: &Arc<Table>) -> Result<u64, Unkeyed> {
        let first_of_key = copy.schema.key_columns().take(1).map(Column::storage_field);
        let columns: SchemaRef = Arc::new(Schema::new(first_of_key.collect::<Vec<_>>()));
        for _ in 0..ATTEMPTS {
            let partitions = self.partitions_of(copy.id);
            let mut count = 0;
            for partition in &partitions {
                let reply = self.scan_leader(*partition, &columns).await?;
                for mut rows in reply.streams {
                    while let Some(batch) = rows.next().await {
                        count += batch?.num_rows() as u64;
                    }
                }
            }
            // One that was split meanwhile was counted in part.
            if self.partitions_of(copy.id) == partitions {
                return Ok(count);
            }
        }
        Err(Unkeyed::Changed)
    }

    async fn scan_leader(
        &self,
        source: SourcePartition,
        columns: &SchemaRef,
    ) -> Result<ScanReply, Error> {
        let partition = source.partition;
        let request = |service: Arc<dyn DataService>, epoch: Epoch| {
            let columns = Arc::clone(columns);
            async move {
                let scan = ScanRequest {
                    partition,
                    epoch,
                    columns,
                    domains: Domains::default(),
                    limit: None,
                    parallelism: 1,
                    newest_only: false,
                    probes: Vec::new(),
                    read_from: ReadFrom::Leader,
                    first_by_time: None,
                    order: None,
                    for_update: false,
                    uncollected: false,
                };
                service.scan(scan).await
            }
        };
        self.at_leader(source, Instant::now() + STEP_WAIT, request).await
    }

    /// Has meta exchange the tables. An answer that was lost is looked for.
    async fn exchange_tables(
        &self,
        copy: TableId,
        closed: Vec<PartitionId>,
    ) -> Result<(), Unkeyed> {
        let deadline = Instant::now() + STEP_WAIT;
        loop {
            let outcome = self.exchange(copy, closed.clone()).await;
            let states = self.confirmations.states(&[copy]).await;
            let state = states.ok().and_then(|states| states.get(&copy).copied());
            match (outcome, state) {
                (Ok(true), _) | (_, Some(CopyState::Retired)) => return Ok(()),
                (Ok(false), Some(_)) => return Err(Unkeyed::Changed),
                (Err(reason), _) if Instant::now() >= deadline => {
                    return Err(Error::Timeout(reason).into());
                }
                (Ok(false), None) if Instant::now() >= deadline => return Err(Unkeyed::Changed),
                (Ok(false) | Err(_), _) => sleep(PAUSE).await,
            }
        }
    }

    /// Waits until the catalog here shows the key.
    async fn await_key(&self, source: TableId) {
        let deadline = Instant::now() + STEP_WAIT;
        loop {
            let catalog = self.view.catalog();
            let is_keyless =
                catalog.table_by_id(source).is_some_and(|table| table.schema.is_keyless());
            if !is_keyless || Instant::now() >= deadline {
                return;
            }
            self.view.newer_catalog(catalog.version, deadline).await;
        }
    }

    /// Opens the partitions of the source again if they may be closed, and drops the copy.
    pub(super) async fn give_up_first_key(self: Arc<Self>, copy: Arc<Table>) {
        let Some(source) = copy.copy.as_ref().map(|state| state.source) else { return };
        let deadline = Instant::now() + STEP_WAIT;
        let cancel = CopyChange::Steer { copy: copy.id, steering: Steering::Cancel };
        while Instant::now() < deadline {
            let version = self.view.catalog().version;
            match self.meta.change(Ddl::Copy(cancel.clone())).await {
                Ok(true) => {
                    self.ended.lock().insert(copy.id, source);
                    self.view.newer_catalog(version, deadline).await;
                    return;
                }
                // It is switching, or nothing is left of it.
                Ok(false) => {}
                Err(error) => {
                    warn!(copy = %copy.name, %error, "a copy is not dropped yet");
                    sleep(PAUSE).await;
                    continue;
                }
            }
            let states = self.confirmations.states(&[copy.id]).await;
            match states.map(|states| states.get(&copy.id).copied()) {
                Ok(None | Some(CopyState::Retired)) => return,
                Ok(Some(CopyState::Switching)) => {
                    let reason = "the table did not get its first key".to_owned();
                    let lost = self.lose(copy.id, reason).await;
                    if let Err(error) = lost {
                        warn!(copy = %copy.name, %error, "could not give up a switch");
                    }
                }
                // It does so when the catalog here shows the state.
                Ok(Some(CopyState::Reopening)) => {
                    Arc::clone(&self).reopen(Arc::clone(&copy)).await;
                    sleep(PAUSE).await;
                }
                Ok(Some(_)) | Err(_) => sleep(PAUSE).await,
            }
        }
    }
}

/// Refuses rows without a value in a column of the key.
fn check_nulls(copy: &Table, table: &str, batch: &RecordBatch) -> Result<(), SqlError> {
    let has_null = |column: &&Column| {
        let values = batch.column_by_name(&column.storage_name);
        values.is_none_or(|values| values.null_count() > 0)
    };
    match copy.schema.key_columns().find(has_null) {
        None => Ok(()),
        Some(column) => {
            let message =
                format!("column \"{}\" of relation \"{table}\" contains null values", column.name);
            Err(SqlError::new(NOT_NULL_VIOLATION, message))
        }
    }
}
