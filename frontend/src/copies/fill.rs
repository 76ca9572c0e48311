//! Fills a copy with the rows that its source has.
//!
//! ```text
//!   take ─▶ each source partition: begin ─▶ rows at one moment ─▶ changes since ─▶ sync ─▶ changes since ─┐
//!             ▲                                                                                           │
//!             └──────────────── partitions that were split off meanwhile ◀────────────────────────────────┤
//!                                                                                     finish ◀── none ────┘
//! ```
//!
//! A partition that was split off after its capture had begun inherits it, and its rows are among those of the parent:
//! it has no rows of its own to fill, only changes.
//!
//! Invariants:
//! - one frontend fills a copy, once: when that breaks off, the copy is lost, and another table is filled in its place. Rows
//!   that were read a second time could be cut otherwise, and be taken twice or not at all;
//! - changes of a partition are shipped only after its rows, and those of one that was split off after those of all
//!   partitions of the round in which its parent was filled;
//! - the copy is finished with the partitions that wait for it, and whose last change after they began to wait is in it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use futures::{StreamExt, TryStreamExt};
use partita_proto::Error;
use partita_proto::catalog::Table;
use partita_proto::domain::Domains;
use partita_proto::id::{Epoch, PartitionId, TableId};
use partita_proto::materialized::{Capture, CaptureOrder, CopyChange, CopyState, Position, Ship};
use partita_proto::service::{DataService, Ddl, ReadFrom, ScanReply, ScanRequest, WriteKind};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::Copies;
use super::leader::SourcePartition;
use super::pace::Pace;
use super::ship::{NO_CHANGES, NotShipped, failure_of};
use crate::access::random;
use crate::ingest::size::slices;
use crate::router::ship::Unshipped;

/// Interval of the signs of life.
const BEAT_EVERY: Duration = Duration::from_secs(5);
/// Source partitions that are filled at a time.
const PARTITIONS_AT_A_TIME: usize = 4;
/// Maximum time for one step of the work on a partition.
const STEP_WAIT: Duration = Duration::from_secs(30);
/// Bytes of rows that make one request.
const ROWS_BYTES: usize = 4 << 20;
/// Writes begin to wait for the copy when the changes since the last look were shipped within this time, or after so many
/// looks.
const CAUGHT_UP: Duration = Duration::from_millis(500);
const LOOKS_MAX: u32 = 20;
/// The same for a re-keying, for so many looks: writers should not notice it.
const CAUGHT_UP_CLOSELY: Duration = Duration::from_millis(20);
const CLOSE_LOOKS_MAX: u32 = 15;
/// Pause before meta is asked again to finish a copy. (Unit tests do not wait.)
const FINISH_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 500 });

/// Time within which changes must have been shipped, for writes to begin to wait for the copy after this look.
fn caught_up(is_rekeying: bool, look: u32) -> Duration {
    if is_rekeying && look < CLOSE_LOOKS_MAX { CAUGHT_UP_CLOSELY } else { CAUGHT_UP }
}

impl Copies {
    /// Fills a copy, if nobody else does. Ends when the copy is in step or lost, or is another frontend's.
    pub(super) async fn fill(self: Arc<Self>, copy: Arc<Table>) {
        let filler = match random::bytes::<8>() {
            Ok(bytes) => u64::from_le_bytes(bytes).max(1),
            Err(error) => {
                warn!(%error, "materialized copies are not filled by this frontend");
                return;
            }
        };
        let take = Ddl::Copy(CopyChange::Take { copy: copy.id, filler });
        match self.meta.change(take).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                warn!(copy = %copy.name, id = %copy.id, %error, "could not take a copy to fill");
                return;
            }
        }
        info!(copy = %copy.name, id = %copy.id, "filling a materialized copy");
        self.filled.lock().insert(copy.id, 0);
        let pace = Pace::new();
        let result = tokio::select! {
            result = self.fill_all(&copy, filler, &pace) => result,
            reason = self.beat(copy.id, filler, &pace) => Err(reason),
        };
        match result {
            Ok(()) => {
                info!(copy = %copy.name, id = %copy.id, "a materialized copy is in step");
                if copy.copy.as_ref().is_some_and(|copy| copy.is_rekeying()) {
                    Arc::clone(&self).switch(Arc::clone(&copy)).await;
                }
            }
            Err(reason) => {
                // Without meta's word, the copy is replaced when its filler has been silent for a while.
                if let Err(error) = self.lose(copy.id, reason).await {
                    warn!(copy = %copy.name, id = %copy.id, %error, "could not give up a copy");
                }
            }
        }
        self.filled.lock().remove(&copy.id);
    }

    /// Gives signs of life until meta no longer takes them. Returns the reason.
    pub(super) async fn beat(&self, copy: TableId, filler: u64, pace: &Pace) -> String {
        loop {
            sleep(BEAT_EVERY).await;
            match self.tell_progress(copy, filler, pace).await {
                // Meta may answer in time the next time.
                Ok(true) | Err(_) => {}
                Ok(false) => break,
            }
        }
        "the copy is no longer filled by this frontend".to_owned()
    }

    async fn fill_all(
        self: &Arc<Self>,
        copy: &Arc<Table>,
        filler: u64,
        pace: &Pace,
    ) -> Result<(), String> {
        let source = copy.copy.as_ref().map(|state| state.source);
        let source = source.ok_or_else(|| "the table is no copy".to_owned())?;
        let is_rekeying = copy.copy.as_ref().is_some_and(|copy| copy.is_rekeying());
        let mut waiting: BTreeSet<PartitionId> = BTreeSet::new();
        loop {
            let catalog = self.view.catalog();
            let table = catalog.table_by_id(source);
            let table = table.ok_or_else(|| "the source was dropped".to_owned())?;
            if self.state_of(copy.id) == Some(CopyState::Lost) {
                return Err("another frontend found the copy lost".to_owned());
            }
            let partitions = table.partitions.routes().iter().map(|route| route.partition);
            let new: Vec<SourcePartition> = partitions
                .filter(|partition| !waiting.contains(partition))
                .map(|partition| SourcePartition { table: source, partition })
                .collect();
            if new.is_empty() {
                if is_rekeying {
                    // The number of all rows. Without it, that of a few seconds ago is shown.
                    let _shown = self.tell_progress(copy.id, filler, pace).await.is_ok();
                }
                let partitions = waiting.iter().copied().collect();
                let finish = CopyChange::Finish { copy: copy.id, filler, partitions };
                match self.meta.change(Ddl::Copy(finish)).await {
                    Ok(true) => return Ok(()),
                    // Partitions are being split, or have come.
                    Ok(false) => {}
                    Err(error) if error.is_retryable() => {}
                    Err(error) => return Err(error.to_string()),
                }
                sleep(FINISH_PAUSE).await;
                self.view.newer_catalog(catalog.version, Instant::now() + FINISH_PAUSE).await;
                continue;
            }
            // The rows of all of them come before the changes of any.
            self.each(&new, |source| self.fill_partition(copy, source, pace)).await?;
            self.each(&new, |source| self.put_in_step(copy.id, source, is_rekeying)).await?;
            waiting.extend(new.iter().map(|source| source.partition));
            self.filled.lock().insert(copy.id, waiting.len() as u64);
        }
    }

    /// Does some work for each of the partitions, for a few at a time.
    async fn each<F>(
        &self,
        partitions: &[SourcePartition],
        work: impl Fn(SourcePartition) -> F,
    ) -> Result<(), String>
    where
        F: Future<Output = Result<(), String>>,
    {
        let work = partitions.iter().copied().map(|source| Ok::<_, String>(work(source)));
        let work = futures::stream::iter(work);
        work.try_buffer_unordered(PARTITIONS_AT_A_TIME).try_collect::<()>().await
    }

    /// Begins the capture of a source partition, and ships its rows.
    async fn fill_partition(
        &self,
        copy: &Arc<Table>,
        source: SourcePartition,
        pace: &Pace,
    ) -> Result<(), String> {
        let Some(epoch) = self.begin(copy.id, source).await.map_err(|error| error.to_string())?
        else {
            return Ok(());
        };
        let (index, reply) =
            self.rows(copy.id, source, epoch).await.map_err(|error| error.to_string())?;
        let mut part = 0;
        for mut rows in reply.streams {
            while let Some(batch) = rows.next().await {
                let batch = batch.map_err(|error| error.to_string())?;
                let start = Position { index, part };
                part = self.ship_slices(copy.id, batch, (source.partition, start), pace).await?;
            }
        }
        let report = self.tell_shipped(source, copy.id, index).await;
        report.map_err(|error| error.to_string())
    }

    /// Ships rows that a source partition has, from a position on. Returns the part of the last of them.
    pub(super) async fn ship_slices(
        &self,
        copy: TableId,
        batch: RecordBatch,
        (source, start): (PartitionId, Position),
        pace: &Pace,
    ) -> Result<u64, String> {
        let Position { index, mut part } = start;
        for rows in slices(batch, ROWS_BYTES) {
            let mut first = 0;
            while first < rows.num_rows() {
                let count = pace.request_rows().min(rows.num_rows() - first);
                self.take_turn(copy, pace, count as u64).await;
                let from = Position { index, part };
                part += 1;
                let ship = Ship { source, from, to: Position { index, part } };
                let start = Instant::now();
                self.ship_rows(copy, rows.slice(first, count), ship).await?;
                pace.took(count, start.elapsed());
                first += count;
            }
        }
        Ok(part)
    }

    /// Begins the capture of a source partition. Returns the epoch at which it did; `None` if the capture is that of its
    /// parent.
    pub(super) async fn begin(
        &self,
        copy: TableId,
        source: SourcePartition,
    ) -> Result<Option<Epoch>, Error> {
        let partition = source.partition;
        let order = CaptureOrder { copy, capture: Capture::Begin };
        let request = |service: Arc<dyn DataService>, epoch: Epoch| async move {
            Ok::<_, Error>((service.capture(partition, epoch, order).await?, epoch))
        };
        let deadline = Instant::now() + STEP_WAIT;
        let (index, epoch) = self.at_leader(source, deadline, request).await?;
        Ok((index > 0).then_some(epoch))
    }

    /// Opens the rows of a source partition whose capture began at an epoch. At another one, rows have left it.
    pub(super) async fn rows(
        &self,
        copy: TableId,
        source: SourcePartition,
        begun_at: Epoch,
    ) -> Result<(u64, ScanReply), Error> {
        let partition = source.partition;
        let catalog = self.view.catalog();
        let table = catalog.table_by_id(source.table);
        let columns = table.map(|table| table.schema.storage());
        let columns = columns
            .ok_or_else(|| Error::NotFound { kind: "partition", name: partition.to_string() })?;
        let request = |service: Arc<dyn DataService>, epoch: Epoch| {
            let columns = Arc::clone(&columns);
            async move {
                if epoch != begun_at {
                    return Err(Error::Gap { partition });
                }
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
                service.fill(copy, scan).await
            }
        };
        self.at_leader(source, Instant::now() + STEP_WAIT, request).await
    }

    /// Ships rows, with new attempts for a while.
    async fn ship_rows(&self, copy: TableId, rows: RecordBatch, ship: Ship) -> Result<(), String> {
        let deadline = Instant::now() + STEP_WAIT;
        loop {
            // The copy's partitions may have been split since the last request.
            let table = self.view.catalog().table_by_id(copy).map(Arc::clone);
            let table = table.ok_or_else(|| NotShipped::Missing.reason())?;
            match self.ship(&table, (WriteKind::Put, rows.clone()), ship).await {
                Ok(()) => return Ok(()),
                Err(Unshipped::Failed(_)) if Instant::now() < deadline => sleep(FINISH_PAUSE).await,
                Err(unshipped) => return Err(failure_of(unshipped).reason()),
            }
        }
    }

    /// Ships the changes of a source partition until few are left, has its writes wait for the copy, and ships the rest.
    async fn put_in_step(
        self: &Arc<Self>,
        copy: TableId,
        source: SourcePartition,
        is_rekeying: bool,
    ) -> Result<(), String> {
        for look in 0..LOOKS_MAX {
            let began = Instant::now();
            self.catch_up(copy, source).await.map_err(NotShipped::reason)?;
            if began.elapsed() < caught_up(is_rekeying, look) {
                break;
            }
        }
        let sync = self.capture(source, copy, Capture::Sync).await;
        sync.map_err(|error| error.to_string())?;
        // From here on a write is acknowledged only when the copy has it: what was written before is shipped now.
        match self.catch_up(copy, source).await.map_err(NotShipped::reason)? {
            true => Ok(()),
            false => Err("the writes of the source do not wait for the copy".to_owned()),
        }
    }

    /// Ships the changes of a source partition up to its last one now. Returns whether its writes wait for the copy.
    pub(super) async fn catch_up(
        self: &Arc<Self>,
        copy: TableId,
        source: SourcePartition,
    ) -> Result<bool, NotShipped> {
        let changes = self.changes(source, copy, (NO_CHANGES, 0)).await?;
        // Of a partition that was split off and has no changes yet, the parent ships all there is.
        if changes.shipped < changes.last {
            let deadline = Instant::now() + STEP_WAIT;
            self.drain(source, copy, changes.last, deadline).await?;
        }
        Ok(changes.sync)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_of_a_table_that_is_rekeyed_wait_less_if_that_can_be_had() {
        assert_eq!(caught_up(false, 0), CAUGHT_UP);
        assert_eq!(caught_up(true, 0), CAUGHT_UP_CLOSELY);
        // A cluster that is slow, or busy, gets there too.
        assert_eq!(caught_up(true, LOOKS_MAX - 1), CAUGHT_UP);
    }
}
