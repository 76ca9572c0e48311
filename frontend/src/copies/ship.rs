//! Ships the changes of source partitions to copies, and settles the debts of writes.
//!
//! ```text
//!   drain(partition, copy, up to an index) ──┐
//!   drain(..)                                ├─ one worker: changes after what is shipped ─▶ every partition of the copy
//!   drain(..)                                ┘              ▲                                        │
//!                                                           └──── next batch ◀── all have taken it ──┘
//! ```
//!
//! A batch has the changes of consecutive indexes. The position of a change is the index and its number among the
//! changes of that index, so every frontend cuts at the same positions, and a partition that took a batch from another
//! frontend ignores it.
//!
//! Invariants:
//! - one batch has been taken by all partitions of the copy before the next one is sent;
//! - the source partition is told of an index only when all partitions of the copy have everything up to it;
//! - the changes of a partition that was split off are shipped only after those that its parent made before.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arrow::compute::concat_batches;
use arrow::record_batch::RecordBatch;
use futures::future::{BoxFuture, try_join_all};
use parking_lot::Mutex;
use partita_proto::Error;
use partita_proto::catalog::Table;
use partita_proto::id::{PartitionId, TableId};
use partita_proto::materialized::{
    Capture, CaptureOrder, Change, Changes, ChangesRequest, CopyChange, CopyState, Position, Ship,
};
use partita_proto::service::{DataService, Ddl, WriteKind};
use partita_proto::size::batch_bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::warn;

use super::Copies;
use super::leader::SourcePartition;
use crate::error::SqlError;
use crate::home::at_home;
use crate::router::Debt;
use crate::router::ship::Unshipped;

/// Time within which a copy must have the rows of a write; after that it is lost.
pub(super) const COPY_WAIT: Duration = Duration::from_secs(10);
/// Maximum time for one step of a worker; then the next worker tries again.
const STEP_WAIT: Duration = Duration::from_secs(5);
/// Maximum time to record that a copy is lost. (Unit tests wait less.)
const META_WAIT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });
/// Pause after a worker that failed.
const PAUSE: Duration = Duration::from_millis(50);
/// Bytes of changes that are read at a time.
const READ_BYTES: usize = 4 << 20;
/// Bytes of changes from which on a request takes no more.
const BATCH_BYTES: usize = 2 << 20;
/// Index after which there are no changes: for requests that read the state of a capture only.
pub(super) const NO_CHANGES: u64 = u64::MAX;

/// Reason for which a copy does not have changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotShipped {
    /// A later attempt may succeed.
    Late(String),
    /// The catalog does not have the copy.
    Missing,
    /// No attempt can succeed.
    Never(String),
}

impl NotShipped {
    /// The reason why a copy is lost.
    pub(super) fn reason(self) -> String {
        match self {
            Self::Late(reason) | Self::Never(reason) => reason,
            Self::Missing => "the copy is gone".to_owned(),
        }
    }
}

impl From<Error> for NotShipped {
    fn from(error: Error) -> Self {
        match &error {
            // A partition that is gone takes its changes along.
            Error::NotFound { kind: "capture" | "partition", .. } | Error::Gap { .. } => {
                Self::Never(error.to_string())
            }
            _ => Self::Late(error.to_string()),
        }
    }
}

/// Progress of the workers of one source partition and copy.
#[derive(Clone, Debug, Default)]
struct Progress {
    /// Index up to which the copy has all changes, as far as this frontend knows.
    shipped: u64,
    /// Number of workers that have ended.
    ended: u64,
    /// Failure of the last one.
    failure: Option<NotShipped>,
}

#[derive(Debug, Default)]
struct Demand {
    /// Largest index that somebody waits for.
    wanted: u64,
    /// Number of the worker that runs, or of the next one; from 1.
    worker: u64,
    is_running: bool,
}

/// Changes of one source partition on their way to a copy.
#[derive(Debug)]
struct Drain {
    demand: Mutex<Demand>,
    progress: watch::Sender<Progress>,
}

/// All drains of a frontend.
#[derive(Debug, Default)]
pub(super) struct Drains(Mutex<HashMap<(PartitionId, TableId), Arc<Drain>>>);

impl Drains {
    fn get(&self, partition: PartitionId, copy: TableId) -> Arc<Drain> {
        let mut drains = self.0.lock();
        let drain = drains.entry((partition, copy)).or_insert_with(|| {
            let demand = Mutex::new(Demand { worker: 1, ..Demand::default() });
            Arc::new(Drain { demand, progress: watch::Sender::default() })
        });
        Arc::clone(drain)
    }

    /// Forgets the drains of copies that are gone.
    pub(super) fn retain(&self, is_there: impl Fn(TableId) -> bool) {
        self.0.lock().retain(|(_, copy), _| is_there(*copy));
    }
}

impl Drain {
    /// Ends a worker, unless somebody has come to wait for more since its last look.
    fn end(&self, result: Result<(), NotShipped>) -> bool {
        let mut demand = self.demand.lock();
        let failure = result.err();
        if failure.is_none() && demand.wanted > self.progress.borrow().shipped {
            return false;
        }
        demand.is_running = false;
        self.progress.send_modify(|progress| {
            progress.ended = demand.worker;
            progress.failure = failure;
        });
        demand.worker += 1;
        true
    }
}

/// Changes that are sent in one request: a range of those that were read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Batch {
    range: std::ops::Range<usize>,
    from: Position,
    to: Position,
}

/// Cuts changes, which are all those of their indexes, into batches of one kind and one set of columns.
fn batches(changes: &[Change], bytes_max: usize) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    let mut bytes = 0;
    let mut position = Position::default();
    for (number, change) in changes.iter().enumerate() {
        let part = if change.index == position.index { position.part + 1 } else { 1 };
        position = Position { index: change.index, part };
        let previous = number.checked_sub(1).and_then(|previous| changes.get(previous));
        let is_alike = previous.is_some_and(|previous| {
            previous.kind == change.kind && previous.rows.schema_ref() == change.rows.schema_ref()
        });
        let size = batch_bytes(&change.rows);
        match batches.last_mut() {
            Some(last) if is_alike && bytes + size <= bytes_max => {
                last.range.end = number + 1;
                last.to = position;
                bytes += size;
            }
            _ => {
                let from = Position { part: part - 1, ..position };
                batches.push(Batch { range: number..number + 1, from, to: position });
                bytes = size;
            }
        }
    }
    batches
}

impl Copies {
    /// Waits until the copies have the rows of a write, or are lost. Then the write may be acknowledged.
    ///
    /// # Errors
    /// When a copy lacks rows and meta does not record that: the client must not take the write for acknowledged.
    pub(crate) async fn settle(self: &Arc<Self>, debts: Vec<Debt>) -> Result<(), SqlError> {
        let began = Instant::now();
        // The last write of a partition includes the others.
        let mut latest: BTreeMap<(PartitionId, TableId), (TableId, u64)> = BTreeMap::new();
        for debt in &debts {
            for copy in &debt.copies {
                let last = latest.entry((debt.partition, *copy)).or_insert((debt.table.id, 0));
                last.1 = last.1.max(debt.index);
            }
        }
        let copies = Arc::clone(self);
        let settled = at_home(self.view.home(), async move {
            let work = latest.into_iter().map(|((partition, copy), (table, index))| {
                copies.settle_one(SourcePartition { table, partition }, copy, index)
            });
            try_join_all(work).await.map(drop)
        });
        let settled = settled.await;
        let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.view.metrics().copy_waits.add(1);
        self.view.metrics().copy_wait_us.add(us);
        settled
    }

    async fn settle_one(
        self: &Arc<Self>,
        source: SourcePartition,
        copy: TableId,
        index: u64,
    ) -> Result<(), SqlError> {
        let deadline = Instant::now() + COPY_WAIT;
        let reason = loop {
            // The table has all changes of its former partitions.
            if self.state_of(copy) == Some(CopyState::Retired)
                || self.is_lost(source.table, copy).await
            {
                return Ok(());
            }
            match self.drain(source, copy, index, deadline).await {
                Ok(()) => return Ok(()),
                Err(_) if self.state_of(copy) == Some(CopyState::Retired) => return Ok(()),
                Err(NotShipped::Missing) if Instant::now() < deadline => {
                    // The catalog is about to show the copy.
                    let version = self.view.catalog().version;
                    self.view.newer_catalog(version, deadline).await;
                }
                Err(failure) => break failure.reason(),
            }
        };
        self.lose(copy, reason).await
    }

    /// True if a copy is lost or gone, by a catalog or by meta's word. A catalog that does not have the copy proves
    /// nothing.
    async fn is_lost(&self, source: TableId, copy: TableId) -> bool {
        let is_lost = match self.state_of(copy) {
            Some(state) => state.is_given_up(),
            None => match self.confirmations.states(&[copy]).await {
                Ok(states) => states.get(&copy).is_none_or(|state| state.is_given_up()),
                Err(_) => false,
            },
        };
        if is_lost {
            self.ended.lock().insert(copy, source);
        }
        is_lost
    }

    /// State of a copy by the newest catalog.
    pub(super) fn state_of(&self, copy: TableId) -> Option<CopyState> {
        let catalog = self.view.catalog();
        Some(catalog.table_by_id(copy)?.copy.as_ref()?.state)
    }

    /// Has meta record that a copy lacks rows, for ever.
    ///
    /// # Errors
    /// When meta does not record it in time.
    pub(super) async fn lose(&self, copy: TableId, reason: String) -> Result<(), SqlError> {
        let deadline = Instant::now() + META_WAIT;
        let mut error = Error::Timeout("no answer from meta".to_owned());
        loop {
            let change = Ddl::Copy(CopyChange::Lose { copy, reason: reason.clone() });
            match timeout_at(deadline, self.meta.change(change)).await {
                Ok(Ok(is_changed)) => {
                    if is_changed {
                        warn!(%copy, reason, "a materialized copy is lost and will be filled anew");
                        self.view.metrics().copies_lost.add(1);
                    }
                    return Ok(());
                }
                Ok(Err(failure)) => error = failure,
                Err(_) => {}
            }
            if Instant::now() + PAUSE >= deadline {
                break;
            }
            sleep(PAUSE).await;
        }
        let message = format!(
            "a materialized copy does not have the rows ({reason}), and meta could not record that: {error}"
        );
        let error = SqlError { retryable: true, ..SqlError::new("57P03", message) };
        Err(error.with_hint("the write may or may not have taken effect"))
    }

    /// Waits until a copy has the changes of a source partition up to an index. Call it in the home runtime.
    ///
    /// # Errors
    /// At once when that cannot be any more, or the catalog lacks the copy; otherwise at the deadline.
    pub(super) async fn drain(
        self: &Arc<Self>,
        source: SourcePartition,
        copy: TableId,
        wanted: u64,
        deadline: Instant,
    ) -> Result<(), NotShipped> {
        let drain = self.drains.get(source.partition, copy);
        let mut progress = drain.progress.subscribe();
        loop {
            let (worker, begins) = {
                let mut demand = drain.demand.lock();
                demand.wanted = demand.wanted.max(wanted);
                (demand.worker, !std::mem::replace(&mut demand.is_running, true))
            };
            if begins {
                let work = Arc::clone(self).work(Arc::clone(&drain), source, copy);
                self.view.home().spawn(work);
            }
            let end = progress
                .wait_for(|progress| progress.shipped >= wanted || progress.ended >= worker);
            let failure = match timeout_at(deadline, end).await {
                Ok(Ok(progress)) if progress.shipped >= wanted => return Ok(()),
                Ok(Ok(progress)) => progress.failure.clone(),
                Ok(Err(_)) => Some(NotShipped::Late("the frontend is shutting down".to_owned())),
                Err(_) => {
                    let reason = format!(
                        "the copy did not take the changes of partition {} within {} s",
                        source.partition,
                        COPY_WAIT.as_secs()
                    );
                    return Err(NotShipped::Late(reason));
                }
            };
            match failure {
                Some(NotShipped::Late(reason)) if Instant::now() + PAUSE >= deadline => {
                    return Err(NotShipped::Late(reason));
                }
                // Another frontend may have found it lost, or had it take its source's place.
                Some(NotShipped::Late(_))
                    if self.state_of(copy).is_some_and(|state| {
                        state.is_given_up() || state == CopyState::Retired
                    }) =>
                {
                    return Err(NotShipped::Missing);
                }
                Some(NotShipped::Late(_)) => sleep(PAUSE).await,
                Some(failure) => return Err(failure),
                None => {}
            }
        }
    }

    /// Ships what is wanted of a source partition's changes. A task of its own, so that nobody who stops waiting
    /// interrupts it.
    fn work(
        self: Arc<Self>,
        drain: Arc<Drain>,
        source: SourcePartition,
        copy: TableId,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.view.metrics().copy_drains.add(1);
            loop {
                let result = self.ship_wanted(&drain, source, copy).await;
                if drain.end(result) {
                    return;
                }
            }
        })
    }

    async fn ship_wanted(
        self: &Arc<Self>,
        drain: &Drain,
        source: SourcePartition,
        copy: TableId,
    ) -> Result<(), NotShipped> {
        // The partition answers with what follows the changes that the copy has.
        let mut start = 0;
        loop {
            let table = self.view.catalog().table_by_id(copy).map(Arc::clone);
            let table = table.ok_or(NotShipped::Missing)?;
            let changes = self.changes(source, copy, (start, READ_BYTES)).await?;
            if let Some((parent, index)) = changes.after {
                let parent = SourcePartition { partition: parent, ..source };
                let deadline = Instant::now() + STEP_WAIT;
                self.drain(parent, copy, index, deadline).await?;
            }
            for batch in batches(&changes.entries, BATCH_BYTES) {
                self.ship_batch(&table, source, &changes.entries, &batch).await?;
            }
            let end = changes.to.max(changes.shipped);
            drain.progress.send_modify(|progress| progress.shipped = progress.shipped.max(end));
            if end > changes.shipped {
                self.tell_shipped(source, copy, end).await?;
            }
            if end >= drain.demand.lock().wanted {
                return Ok(());
            }
            if end <= start {
                let reason = format!("partition {} has not applied its log yet", source.partition);
                return Err(NotShipped::Late(reason));
            }
            start = end;
        }
    }

    /// Reads changes of a source partition after an index, of about so many bytes.
    pub(super) async fn changes(
        &self,
        source: SourcePartition,
        copy: TableId,
        (after, bytes_max): (u64, usize),
    ) -> Result<Changes, Error> {
        let partition = source.partition;
        let deadline = Instant::now() + STEP_WAIT;
        let request = |service: Arc<dyn DataService>, epoch| async move {
            let request = ChangesRequest { partition, epoch, copy, after, bytes_max };
            service.changes(request).await
        };
        self.at_leader(source, deadline, request).await
    }

    /// Changes the capture of a source partition. Returns the index of the change.
    pub(super) async fn capture(
        &self,
        source: SourcePartition,
        copy: TableId,
        capture: Capture,
    ) -> Result<u64, Error> {
        let partition = source.partition;
        let order = CaptureOrder { copy, capture };
        let deadline = Instant::now() + STEP_WAIT;
        let request = |service: Arc<dyn DataService>, epoch| async move {
            service.capture(partition, epoch, order).await
        };
        self.at_leader(source, deadline, request).await
    }

    /// Tells a source partition that all partitions of a copy have everything up to an index.
    pub(super) async fn tell_shipped(
        &self,
        source: SourcePartition,
        copy: TableId,
        index: u64,
    ) -> Result<(), Error> {
        self.capture(source, copy, Capture::Shipped(index)).await.map(drop)
    }

    async fn ship_batch(
        &self,
        copy: &Arc<Table>,
        source: SourcePartition,
        changes: &[Change],
        batch: &Batch,
    ) -> Result<(), NotShipped> {
        let members = changes.get(batch.range.clone()).unwrap_or_default();
        let Some(first) = members.first() else { return Ok(()) };
        let rows =
            concat_batches(first.rows.schema_ref(), members.iter().map(|change| &change.rows));
        let rows = rows.map_err(|error| NotShipped::Never(error.to_string()))?;
        let Batch { from, to, .. } = *batch;
        let ship = Ship { source: source.partition, from, to };
        match self.ship(copy, (first.kind, rows), ship).await {
            Err(Unshipped::Ahead) => {}
            result => return result.map_err(failure_of),
        }
        // Another frontend has sent some of these changes: they are sent one by one.
        let mut position = from;
        for change in members {
            let part = if change.index == position.index { position.part + 1 } else { 1 };
            let from = Position { index: change.index, part: part - 1 };
            position = Position { index: change.index, part };
            let ship = Ship { source: source.partition, from, to: position };
            let rows = (change.kind, change.rows.clone());
            self.ship(copy, rows, ship).await.map_err(failure_of)?;
        }
        Ok(())
    }

    /// Sends rows to the partitions of a copy, and waits until all of them have taken these.
    pub(super) async fn ship(
        &self,
        copy: &Arc<Table>,
        (kind, rows): (WriteKind, RecordBatch),
        ship: Ship,
    ) -> Result<(), Unshipped> {
        let stopped = || Error::Unavailable("the frontend is shutting down".to_owned());
        let permit = self.in_flight.acquire().await;
        let _permit = permit.map_err(|_| SqlError::from(stopped()))?;
        let count = rows.num_rows() as u64;
        let deadline = Instant::now() + STEP_WAIT;
        self.router.ship(&self.state, copy, (kind, rows), ship, deadline).await?;
        self.view.metrics().copy_rows_shipped.add(count);
        Ok(())
    }
}

/// The failure of a request with rows for a copy. All may pass: the partition's disk may be full, or the copy dropped.
pub(super) fn failure_of(unshipped: Unshipped) -> NotShipped {
    match unshipped {
        Unshipped::Failed(error) => NotShipped::Late(error.to_string()),
        Unshipped::Ahead => {
            NotShipped::Never("a partition of the copy took the rows at other positions".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    fn change(index: u64, kind: WriteKind, column: &str, rows: i64) -> Change {
        let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        Change { index, kind, rows: RecordBatch::try_from_iter([(column, values)]).unwrap() }
    }

    fn position(index: u64, part: u64) -> Position {
        Position { index, part }
    }

    #[test]
    fn a_change_has_the_same_position_in_every_batch() {
        let put = WriteKind::Put;
        let changes = [
            change(4, put, "a", 1),
            change(4, put, "a", 1),
            change(4, WriteKind::Delete, "a", 1),
            change(7, put, "a", 1),
            change(9, put, "b", 1),
        ];
        let batches = batches(&changes, 1 << 20);
        let cut: Vec<_> =
            batches.iter().map(|batch| (batch.range.clone(), batch.from, batch.to)).collect();
        assert_eq!(
            cut,
            [
                (0..2, position(4, 0), position(4, 2)),
                (2..3, position(4, 2), position(4, 3)),
                (3..4, position(7, 0), position(7, 1)),
                (4..5, position(9, 0), position(9, 1)),
            ]
        );
        // Whoever reads later changes only cuts where the others did.
        let later = super::batches(&changes[3..], 1 << 20);
        assert_eq!((later[0].from, later[0].to), (position(7, 0), position(7, 1)));
    }

    #[test]
    fn a_batch_is_bounded_and_a_large_change_is_one() {
        let changes: Vec<_> =
            (1..=6).map(|index| change(index, WriteKind::Put, "a", 100)).collect();
        let ends = |bytes_max| {
            let batches = batches(&changes, bytes_max);
            batches.iter().map(|batch| batch.range.end).collect::<Vec<_>>()
        };
        assert_eq!(ends(1 << 20), [6]);
        let size = batch_bytes(&changes[0].rows);
        assert_eq!(ends(2 * size), [2, 4, 6]);
        assert_eq!(ends(1), [1, 2, 3, 4, 5, 6]);
        assert!(batches(&[], 1).is_empty());
    }

    #[test]
    fn a_worker_ends_only_when_nobody_waits_for_more() {
        let drain = Drains::default().get(PartitionId(1), TableId(2));
        let mut progress = drain.progress.subscribe();
        drain.demand.lock().wanted = 5;
        drain.progress.send_modify(|progress| progress.shipped = 4);
        assert!(!drain.end(Ok(())), "somebody came since its last look");
        assert!(drain.end(Err(NotShipped::Missing)));
        assert_eq!(progress.borrow_and_update().failure, Some(NotShipped::Missing));
        drain.progress.send_modify(|progress| progress.shipped = 5);
        assert!(drain.end(Ok(())));
        assert_eq!((progress.borrow().ended, drain.demand.lock().worker), (2, 3));
    }
}
