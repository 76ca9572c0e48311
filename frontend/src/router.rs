//! Sends rows to the leaders of their partitions.
//!
//! ```text
//!   completed rows ── place ── encode keys ── cut ──┬─ part ── leader
//!                                                   └─ part ── leader
//! ```
//!
//! Invariants:
//! - every row is sent to exactly one partition of the map in use;
//! - a part has one [`RequestId`] for ever: however often and wherever it is sent again, it takes effect once. A part
//!   that is cut again, because its partition was split, becomes parts with ids of their own, which also name the
//!   earlier id: both halves of a split remember the requests of the whole, and after a merge the requests of one half
//!   are not taken for those of the other;
//! - a part that may have taken effect in a partition that its table has no longer, because it was re-keyed, is sent
//!   elsewhere only after that partition has said that it never took it ([`Error::NeverTaken`]): no other answer is about
//!   earlier attempts;
//! - an error of a write of which some rows may have taken effect says so;
//! - the bytes in flight are bounded, and further writes wait; so is the time for which a write is retried.
//!
//! Rows that were read to be changed carry the condition that follows from their [`Reads`]. A part that a node refuses by
//! its condition has no effect; its rows go back to the statement, which reads them again.
//!
//! Small parts of several writes may be sent together (`router/together.rs`).
//!
//! A node may answer that materialized copies lack the rows of a part: these [`Debt`]s go to the caller, who must not
//! acknowledge the write before they are settled. Rows for a copy are sent by [`Router::ship`], as one request for each
//! of the copy's partitions, which takes them by their position.
//!
//! The cells of a row of a wide table are sent in one request (`router/whole.rs`).
//!
//! A write to several partitions is not atomic: if some parts fail, the error says which.

mod coalesce;
pub(crate) mod ship;
mod together;
mod whole;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, RecordBatchOptions, UInt16Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use datafusion::execution::SessionState;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use partita_proto::Error;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::{NodeId, PartitionId, TableId};
use partita_proto::key::{Keys, PLACEMENT_COLUMN};
use partita_proto::materialized::Ship;
use partita_proto::route::{Cut, Route};
use partita_proto::service::{DataService, RequestId, WriteKind, WriteReply, WriteRequest};
use partita_proto::size::batch_bytes;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::error::{PROGRAM_LIMIT_EXCEEDED, SqlError};
use crate::home::at_home;
use crate::ingest::plan::{Completed, TablePlan};
use crate::ingest::size::slices;
use crate::leaders::is_absent;
use crate::load::{Loads, overload};
use crate::reads::Reads;
use crate::stalls::Stalls;
use crate::view::{ClusterView, newest_in};
use together::{SMALL_BYTES, Together};
use whole::whole_rows;

/// Maximum bytes of an encoded key.
pub(crate) const KEY_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of one request; more rows are sent as several requests, each of which is atomic. It is twice what
/// the log syncs at once.
pub(crate) const REQUEST_BYTES_MAX: usize = 8 << 20;
/// Bytes of one permit of the in-flight limit.
const PERMIT_BYTES: usize = 1 << 10;
/// Maximum parts of one write in flight.
const PARTS_MAX: usize = 64;
/// First pause before a part is sent again; each is twice the previous one.
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// Maximum pause before a part is sent again.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Time for which a partition that a node does not have yet is asked for at the first pace: after a split its replicas
/// begin within milliseconds.
const BEGINS_WITHIN: Duration = Duration::from_millis(200);
/// Hint of a write that had no effect.
const NO_EFFECT: &str = "retry the write";
/// Hint of a write that failed without a final answer of each partition.
const UNKNOWN_OUTCOME: &str = "the write may or may not have taken effect";
/// Maximum hints to another leader that a part follows before it pauses.
const HOPS_MAX: u32 = 3;

/// Sends rows to the leaders of their partitions, and follows leaders when they move.
pub(crate) struct Router {
    view: Arc<ClusterView>,
    loads: Arc<Loads>,
    stalls: Arc<Stalls>,
    client: u64,
    sequence: AtomicU64,
    in_flight: Semaphore,
    in_flight_max: u32,
    together: Together,
}

/// Effect and condition of rows.
#[derive(Clone)]
pub(crate) struct WriteMode {
    pub(crate) kind: WriteKind,
    /// Reads of the rows: they take effect only where they have not changed since, and a put replaces whole
    /// rows.
    pub(crate) reads: Option<Arc<Reads>>,
}

impl From<WriteKind> for WriteMode {
    fn from(kind: WriteKind) -> Self {
        Self { kind, reads: None }
    }
}

/// Rows of one partition, under one identity.
struct Part {
    table: Arc<Table>,
    route: Route,
    id: RequestId,
    /// Earlier ids of the part's rows, shared with other rows.
    earlier: Vec<RequestId>,
    mode: WriteMode,
    rows: RecordBatch,
    /// Origin of rows for a copy.
    ship: Option<Ship>,
    /// True if an attempt ended without an answer and may have taken effect.
    uncertain: AtomicBool,
    /// True if an attempt found the partition's replica missing, or not leading.
    misrouted: AtomicBool,
}

/// Rows that took effect and that materialized copies of their table lack.
#[derive(Clone, Debug)]
pub(crate) struct Debt {
    /// Table of the rows.
    pub(crate) table: Arc<Table>,
    /// Partition that stored them.
    pub(crate) partition: PartitionId,
    /// Raft index of the write in the partition's log.
    pub(crate) index: u64,
    /// Copies that lack the rows.
    pub(crate) copies: Vec<TableId>,
}

/// Outcome of a write.
#[derive(Debug)]
pub(crate) struct Written {
    /// Number of partitions that stored rows.
    pub(crate) partitions: Result<u64, SqlError>,
    /// Debts of the parts that took effect, also of a write that failed in others.
    pub(crate) debts: Vec<Debt>,
}

/// A part of which at least some rows did not take effect.
#[derive(Clone, Debug)]
struct Failed {
    /// Target partition.
    partition: PartitionId,
    error: SqlError,
    /// True if some of the rows may have taken effect.
    perhaps: bool,
    /// True if a partition of a copy has some of the rows already.
    is_ahead: bool,
    /// Debts of rows that took effect.
    debts: Vec<Debt>,
}

impl Failed {
    /// Returns true if no row took effect, and a retry would not help.
    fn is_refusal(&self) -> bool {
        !self.perhaps && !self.error.retryable
    }
}

impl Part {
    /// The debt of a part that took effect.
    fn debt(&self, reply: WriteReply) -> Option<Debt> {
        let WriteReply { index, owed: copies } = reply;
        (!copies.is_empty()).then(|| Debt {
            table: Arc::clone(&self.table),
            partition: self.route.partition,
            index,
            copies,
        })
    }
}

/// Identities of rows that are cut.
enum Identities {
    /// The rows were not sent before.
    New,
    /// The last identity under which they were sent, and earlier ones.
    Sent(RequestId, Vec<RequestId>),
    /// The rows are for a copy, which knows them by their position.
    Shipped(Ship),
}

/// Outcome of an attempt.
enum Attempt {
    Done(Option<Debt>),
    /// The rows may have changed since they were read.
    Refused,
    /// A partition of a copy has some of the rows already.
    Ahead(Error),
    /// The route or the schema is out of date: look up the new one and cut again.
    Stale(Error),
}

impl Router {
    pub(crate) fn new(
        view: Arc<ClusterView>,
        loads: Arc<Loads>,
        stalls: Arc<Stalls>,
        in_flight_bytes_max: usize,
    ) -> Self {
        let permits = (in_flight_bytes_max / PERMIT_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        let in_flight_max = u32::try_from(permits).unwrap_or(u32::MAX);
        Self {
            view,
            loads,
            stalls,
            // The standard library's hashers are seeded with random keys.
            client: RandomState::new().build_hasher().finish(),
            sequence: AtomicU64::new(1),
            in_flight: Semaphore::new(in_flight_max as usize),
            in_flight_max,
            together: Together::default(),
        }
    }

    /// Sends rows to their partitions, and waits until all have taken effect. The write must not be acknowledged before
    /// its debts are settled.
    ///
    /// Rows of several writers may travel in one request, so requests are sent from the home runtime: a lane that one
    /// statement keeps busy must not delay the answers to others.
    pub(crate) async fn write(
        self: &Arc<Self>,
        state: &Arc<SessionState>,
        table: &Arc<Table>,
        plan: &Arc<TablePlan>,
        mode: WriteMode,
        completed: Completed,
    ) -> Written {
        let (router, state) = (Arc::clone(self), Arc::clone(state));
        let (table, plan) = (Arc::clone(table), Arc::clone(plan));
        let written = at_home(self.view.home(), async move {
            let mut debts = Vec::new();
            let partitions =
                router.write_here(&state, &table, &plan, mode, completed, &mut debts).await;
            Ok::<_, SqlError>(Written { partitions, debts })
        });
        match written.await {
            Ok(written) => written,
            Err(error) => Written { partitions: Err(error), debts: Vec::new() },
        }
    }

    async fn write_here(
        self: &Arc<Self>,
        state: &Arc<SessionState>,
        table: &Arc<Table>,
        plan: &Arc<TablePlan>,
        mode: WriteMode,
        completed: Completed,
        debts: &mut Vec<Debt>,
    ) -> Result<u64, SqlError> {
        let deadline = Instant::now() + self.view.timeout();
        if completed.rows.num_rows() == 0 {
            return Ok(0);
        }
        // Wait until the rows fit into the in-flight limit.
        let bytes = batch_bytes(&completed.rows);
        let permits = u32::try_from(bytes / PERMIT_BYTES + 1).unwrap_or(u32::MAX);
        let permit = tokio::time::timeout_at(
            deadline,
            self.in_flight.acquire_many(permits.min(self.in_flight_max)),
        )
        .await;
        let _permit = match permit {
            Ok(permit) => permit
                .map_err(|_| Error::Unavailable("the frontend is shutting down".to_owned()))?,
            Err(_) => {
                let full = Error::Overloaded(format!(
                    "the frontend has reached its limit of {} KiB of rows in flight",
                    self.in_flight_max
                ));
                return Err(self.with_load(full.into(), table, None).await);
            }
        };
        // One part per partition, or several for a large one.
        let parts = self.cut(table, plan, &mode, completed.rows.clone(), Identities::New)?;
        // Rows with a key that is too long are refused by now.
        self.count(table, &completed);
        drop(completed);
        // Slices of one partition are adjacent.
        let mut touched: Vec<PartitionId> = parts.iter().map(|part| part.route.partition).collect();
        touched.dedup();
        if touched.len() == 1 {
            self.view.metrics().single_partition_writes.add(1);
        } else {
            self.view.metrics().multi_partition_writes.add(1);
        }
        let outcome = self.send_all(state, parts, (bytes, deadline), debts).await;
        match &outcome {
            Ok(()) => self.view.metrics().bytes_written.add(bytes as u64),
            Err(_) => self.view.metrics().write_failures.add(1),
        }
        outcome.map(|()| touched.len() as u64)
    }

    /// Counts rows that are unusually large, and those with long keys.
    pub(crate) fn count(&self, table: &Table, completed: &Completed) {
        self.view.metrics().long_keys.add(completed.long_keys);
        self.view.metrics().large_rows.add(completed.large_rows);
        if completed.large_rows > 0 {
            let (database, name, rows) = (&table.database, &table.name, completed.large_rows);
            tracing::warn!(%database, table = %name, rows, "unusually large rows were written");
        }
    }

    /// Places rows, encodes their keys and cuts them by the table's partitions. Of rows that were sent before, a single
    /// part keeps the last identity, and several parts get new ones and keep all as earlier.
    fn cut(
        &self,
        table: &Arc<Table>,
        plan: &Arc<TablePlan>,
        mode: &WriteMode,
        rows: RecordBatch,
        identities: Identities,
    ) -> Result<Vec<Part>, SqlError> {
        let rows = place(table, rows)?;
        let routes = table.partitions.routes();
        // With one partition, keys are encoded only if one might be too long.
        let bound = || plan.codec.length_bound(&rows);
        let cut = if routes.len() == 1
            && rows.num_rows() > 0
            && bound().is_some_and(|bound| bound <= KEY_BYTES_MAX)
        {
            vec![(0, rows)]
        } else {
            let keys = plan.codec.encode(&rows)?;
            // The keys of rows for a copy were checked in their source.
            if !matches!(identities, Identities::Shipped(_)) {
                check_keys(&keys, &table.name)?;
            }
            match table.partitions.cut(&keys) {
                Cut::One(position) => vec![(position, rows)],
                Cut::Many(positions) => positions
                    .into_iter()
                    .map(|(position, indices)| Ok((position, take_record_batch(&rows, &indices)?)))
                    .collect::<Result<Vec<_>, SqlError>>()?,
            }
        };
        // A single part is the same request as before; several are new ones that know the old one.
        let is_whole = !matches!(identities, Identities::New);
        let ship = match &identities {
            Identities::Shipped(ship) => Some(*ship),
            Identities::New | Identities::Sent(..) => None,
        };
        let (last_id, earlier) = match identities {
            Identities::Sent(id, earlier) if cut.len() == 1 => (Some(id), earlier),
            Identities::Sent(id, earlier) => (None, earlier.into_iter().chain([id]).collect()),
            Identities::New | Identities::Shipped(_) => (None, Vec::new()),
        };
        let part = |position: usize, rows: RecordBatch| Part {
            table: Arc::clone(table),
            route: routes[position].clone(),
            id: last_id.unwrap_or_else(|| self.next_id()),
            earlier: earlier.clone(),
            mode: mode.clone(),
            rows,
            ship,
            uncertain: AtomicBool::new(false),
            misrouted: AtomicBool::new(false),
        };
        let mut parts = Vec::with_capacity(cut.len());
        for (position, rows) in cut {
            if is_whole || mode.reads.as_ref().is_some_and(|reads| reads.is_whole()) {
                // It was cut to size when it got its identity, or is taken whole by its position or for its condition.
                parts.push(part(position, rows));
                continue;
            }
            let is_wide = table.schema.options.wide.is_some();
            let requests = match is_wide && batch_bytes(&rows) > REQUEST_BYTES_MAX {
                true => whole_rows(&plan.codec, rows, REQUEST_BYTES_MAX)?,
                false => slices(rows, REQUEST_BYTES_MAX),
            };
            for rows in requests {
                match &mode.reads {
                    None => parts.push(part(position, rows)),
                    Some(reads) => {
                        parts.extend(runs(&rows, reads.rows_max()).map(|rows| part(position, rows)))
                    }
                }
            }
        }
        Ok(parts)
    }

    fn next_id(&self) -> RequestId {
        RequestId { client: self.client, sequence: self.sequence.fetch_add(1, Ordering::Relaxed) }
    }

    /// Sends parts of `bytes` bytes in total, several partitions at a time.
    async fn send_all(
        self: &Arc<Self>,
        state: &Arc<SessionState>,
        mut parts: Vec<Part>,
        (bytes, deadline): (usize, Instant),
        debts: &mut Vec<Debt>,
    ) -> Result<(), SqlError> {
        if parts.len() == 1
            && let Some(part) = parts.pop()
        {
            // Rows of others must not be refused with those of this write.
            let result = match bytes <= SMALL_BYTES && part.mode.reads.is_none() {
                true => self.send_small(state, part, bytes, deadline).await,
                false => self.send(state, part, deadline).await,
            };
            let result = result.map_err(|failed| {
                debts.extend(failed.debts);
                failed.error
            });
            debts.extend(result?);
            return Ok(());
        }
        let total = parts.len();
        // Slices of one partition are sent in order, so that the last version of a key wins.
        let mut groups: Vec<Vec<Part>> = Vec::new();
        for part in parts {
            match groups.last_mut() {
                Some(group) if group[0].route.partition == part.route.partition => group.push(part),
                _ => groups.push(vec![part]),
            }
        }
        let mut waiting = groups.into_iter();
        let mut running = FuturesUnordered::new();
        let mut failed: Vec<(PartitionId, SqlError)> = Vec::new();
        let mut lost = 0;
        loop {
            while running.len() < PARTS_MAX
                && let Some(group) = waiting.next()
            {
                running.push(self.send_group(state, group, deadline));
            }
            match running.next().await {
                Some(Ok(of_group)) => debts.extend(of_group),
                Some(Err((group_failed, parts))) => {
                    debts.extend(group_failed.debts);
                    failed.push((group_failed.partition, group_failed.error));
                    lost += parts;
                }
                None => break,
            }
        }
        // One error for the whole write: the first one, with all partitions in its detail.
        let Some((_, first)) = failed.first() else { return Ok(()) };
        let mut error = first.clone();
        failed.sort_by_key(|(partition, _)| *partition);
        let list: Vec<_> = failed
            .iter()
            .map(|(partition, error)| format!("partition {partition}: {error}"))
            .collect();
        if lost < total {
            error.message = format!(
                "the write took effect in only {} of its {total} parts: {}",
                total - lost,
                error.message
            );
        }
        error.detail = Some(list.join("; "));
        Err(error)
    }

    /// Sends the parts of one partition in order. The error has the number of parts without effect.
    async fn send_group(
        &self,
        state: &Arc<SessionState>,
        group: Vec<Part>,
        deadline: Instant,
    ) -> Result<Vec<Debt>, (Failed, usize)> {
        let total = group.len();
        let mut debts = Vec::new();
        for (index, mut part) in group.into_iter().enumerate() {
            // The id is newer than those of parts sent meanwhile, or the part would look like a resend.
            part.id = self.next_id();
            match self.send(state, part, deadline).await {
                Ok(of_part) => debts.extend(of_part),
                Err(mut failed) => {
                    failed.debts.append(&mut debts);
                    return Err((failed, total - index));
                }
            }
        }
        Ok(debts)
    }

    /// Sends one part until it has taken effect, following splits and merges of its partition.
    async fn send(
        &self,
        state: &Arc<SessionState>,
        part: Part,
        deadline: Instant,
    ) -> Result<Vec<Debt>, Failed> {
        let first = part.route.partition;
        let began = Instant::now();
        let mut parts = vec![part];
        let (mut perhaps, mut rerouted) = (false, false);
        let mut debts = Vec::new();
        while let Some(part) = parts.pop() {
            let partition = part.route.partition;
            let version = self.view.catalog().version;
            let attempt = self.attempt(&part, deadline).await;
            perhaps |= part.uncertain.load(Ordering::Relaxed);
            let (partition, error, is_ahead) = match attempt {
                Ok(Attempt::Done(debt)) => {
                    perhaps = true;
                    debts.extend(debt);
                    if rerouted || part.misrouted.load(Ordering::Relaxed) {
                        self.note_stall(partition, began.elapsed());
                    }
                    continue;
                }
                Ok(Attempt::Refused) => {
                    self.view.metrics().write_retries.add(1);
                    // The statement knows another placement, if the table was re-keyed since it read.
                    match (&part.mode.reads, without_placement(part.rows)) {
                        (Some(reads), Ok(rows)) => reads.refuse(rows),
                        (None, Ok(_)) => {}
                        (_, Err(error)) => {
                            let is_ahead = false;
                            return Err(Failed { partition, error, perhaps, is_ahead, debts });
                        }
                    }
                    continue;
                }
                Ok(Attempt::Ahead(error)) => (partition, error.into(), true),
                Ok(Attempt::Stale(cause)) => {
                    rerouted = true;
                    self.view.metrics().write_retries.add(1);
                    self.view.newer_catalog(version, deadline).await;
                    // One catalog, or the table could be re-keyed between the decision and the cut.
                    let catalog = self.view.catalog();
                    if Instant::now() >= deadline {
                        (partition, self.timed_out(&part, cause), false)
                    } else if is_unsettled(&catalog, &part) {
                        parts.push(part);
                        continue;
                    } else {
                        match self.cut_again(state, &catalog, part) {
                            Ok(newer_parts) => {
                                parts.extend(newer_parts);
                                continue;
                            }
                            Err(error) => (first, error, false),
                        }
                    }
                }
                Err(error) => (partition, error, false),
            };
            let error = if perhaps { of_unknown_outcome(error) } else { error };
            return Err(Failed { partition, error, perhaps, is_ahead, debts });
        }
        Ok(debts)
    }

    /// Records the duration of a write that was held up by a change of its partition.
    fn note_stall(&self, partition: PartitionId, time: Duration) {
        self.stalls.felt(partition, time);
        let metrics = self.view.metrics();
        metrics.write_stalls.add(1);
        metrics.write_stall_us.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// Cuts a part by the routes of a catalog, and completes it for the schema there.
    fn cut_again(
        &self,
        state: &Arc<SessionState>,
        catalog: &Catalog,
        part: Part,
    ) -> Result<Vec<Part>, SqlError> {
        let table = newest_in(catalog, &part.table)
            .ok_or_else(|| SqlError::undefined_table(&part.table.name))?;
        let plan = self.view.plan(state, &table)?;
        let (newest, former) = (&table.schema, &part.table.schema);
        if former.is_keyless() && !newest.is_keyless() {
            // The rows were made, or found, by the hidden key, which the table has no longer.
            let message = format!("table \"{}\" got a primary key meanwhile", table.name);
            let error = SqlError { retryable: true, ..SqlError::new("40001", message) };
            return Err(error.with_hint("repeat the statement"));
        }
        // Unchanged columns and constraints need no completion, only a new placement. Rows of a source are complete, and
        // rows under a condition are refused if the schema has changed since they were read.
        let is_complete = newest.version == former.version
            || (newest.columns == former.columns && newest.checks == former.checks)
            || part.ship.is_some()
            || part.mode.reads.is_some();
        let rows = if is_complete {
            without_placement(part.rows)?
        } else {
            let keys = part.mode.kind == WriteKind::Delete;
            plan.complete_again(&part.rows, keys)?.rows
        };
        let uncertain = part.uncertain.load(Ordering::Relaxed);
        let identities = match part.ship {
            Some(ship) => Identities::Shipped(ship),
            None => Identities::Sent(part.id, part.earlier),
        };
        let parts = self.cut(&table, &plan, &part.mode, rows, identities)?;
        for part in &parts {
            part.uncertain.store(uncertain, Ordering::Relaxed);
        }
        Ok(parts)
    }

    /// Sends a part to its partition's leader, with retries, until it has taken effect, its route is out of date, or
    /// the deadline has passed.
    async fn attempt(&self, part: &Part, deadline: Instant) -> Result<Attempt, SqlError> {
        let mut node = self.view.leaders().first(&part.route);
        let began = Instant::now();
        let mut pause = PAUSE_MIN;
        let mut hops = 0;
        loop {
            let request = WriteRequest {
                partition: part.route.partition,
                epoch: part.route.epoch,
                id: part.id,
                earlier: part.earlier.clone(),
                kind: part.mode.kind,
                rows: part.rows.clone(),
                ship: part.ship,
                condition: part.mode.reads.as_ref().map(|reads| reads.condition(&part.route)),
            };
            let error = match self.send_once(node, request, deadline).await {
                Ok(reply) => {
                    self.view.leaders().answered(part.route.partition, node);
                    // A part that was sent before may have taken effect by an entry of another log.
                    if let Some(reads) = &part.mode.reads
                        && part.earlier.is_empty()
                        && !part.uncertain.load(Ordering::Relaxed)
                    {
                        reads.store(part.route.partition, part.route.epoch, reply.index);
                    }
                    return Ok(Attempt::Done(part.debt(reply)));
                }
                Err(Error::Changed { .. }) if part.mode.reads.is_some() => {
                    return Ok(Attempt::Refused);
                }
                Err(error @ Error::ShipAhead { .. }) => return Ok(Attempt::Ahead(error)),
                Err(error @ (Error::StaleRoute { .. } | Error::StaleSchema { .. })) => {
                    return Ok(Attempt::Stale(error));
                }
                Err(error @ Error::NeverTaken { .. }) => {
                    // This settles earlier attempts, too.
                    part.uncertain.store(false, Ordering::Relaxed);
                    return Ok(Attempt::Stale(error));
                }
                Err(error) => error,
            };
            let absent = is_absent(&error);
            // The partition was merged, or its table dropped.
            if absent
                && self.view.has_changed(&part.table, &part.route)
                && !is_unsettled(&self.view.catalog(), part)
            {
                return Ok(Attempt::Stale(error));
            }
            if error.leaves_write_unknown() {
                part.uncertain.store(true, Ordering::Relaxed);
            }
            // A full disk is not retried: it will not be emptied before the deadline.
            if !(absent || error.is_retryable()) || matches!(error, Error::DiskFull(_)) {
                return Err(named(&part.table, &part.route, error.into()));
            }
            // At the deadline, an overload is explained by the state of the partition.
            if Instant::now() + pause >= deadline {
                let overloaded = matches!(error, Error::Overloaded(_));
                let timed_out = self.timed_out(part, error);
                if !overloaded {
                    return Err(timed_out);
                }
                let partition = Some(part.route.partition);
                return Err(self.with_load(timed_out, &part.table, partition).await);
            }
            self.view.metrics().write_retries.add(1);
            self.view.leaders().failed(part.route.partition, node);
            if absent || matches!(error, Error::NotLeader { .. }) {
                part.misrouted.store(true, Ordering::Relaxed);
            }
            // Follow a hint to the leader at once, but not in circles; otherwise pause and try the next node.
            let hint = match &error {
                Error::NotLeader { leader: Some(leader), .. } if Some(*leader) != node => {
                    Some(*leader)
                }
                _ => None,
            };
            if let Some(leader) = hint
                && hops < HOPS_MAX
            {
                hops += 1;
                node = Some(leader);
                continue;
            }
            tokio::time::sleep(pause).await;
            if !absent || began.elapsed() >= BEGINS_WITHIN {
                pause = (pause * 2).min(PAUSE_MAX);
            }
            hops = 0;
            node = self.next_node(part, node, &error);
        }
    }

    /// An error of overload with the state of the busy partition.
    async fn with_load(
        &self,
        error: SqlError,
        table: &Table,
        partition: Option<PartitionId>,
    ) -> SqlError {
        match self.loads.recent().await {
            Some(report) => overload::explained(error, table, partition, &report),
            None => error,
        }
    }

    /// Next node after a pause, by the newest catalog.
    fn next_node(&self, part: &Part, last_node: Option<NodeId>, error: &Error) -> Option<NodeId> {
        let newest = self.view.newest(&part.table);
        let route = newest.as_ref().and_then(|table| table.partitions.route(part.route.partition));
        let route = route.unwrap_or(&part.route);
        self.view.leaders().next(route, last_node, error)
    }

    async fn send_once(
        &self,
        node: Option<NodeId>,
        request: WriteRequest,
        deadline: Instant,
    ) -> Result<WriteReply, Error> {
        let service = self.service(node, request.partition)?;
        match tokio::time::timeout_at(deadline, service.write(request)).await {
            Ok(reply) => reply,
            Err(_) => Err(Error::Timeout("no answer from the partition's leader".to_owned())),
        }
    }

    fn service(
        &self,
        node: Option<NodeId>,
        partition: PartitionId,
    ) -> Result<Arc<dyn DataService>, Error> {
        let node = node.ok_or_else(|| {
            Error::Unavailable(format!("no node is known to hold partition {partition}"))
        })?;
        self.view.nodes().node(node)
    }

    fn timed_out(&self, part: &Part, last: Error) -> SqlError {
        let uncertain = part.uncertain.load(Ordering::Relaxed);
        self.too_late(&part.table, &part.route, uncertain, last)
    }

    fn too_late(&self, table: &Table, route: &Route, uncertain: bool, last: Error) -> SqlError {
        let error = SqlError::from(self.view.explained(table, route, last));
        let message = format!("the write did not succeed in time: {}", error.message);
        let hint = if uncertain { UNKNOWN_OUTCOME } else { NO_EFFECT };
        named(table, route, SqlError { message, retryable: true, ..error }.with_hint(hint))
    }
}

/// True if a part may have taken effect in a partition that its table has no longer in a catalog, because it was re-keyed.
fn is_unsettled(catalog: &Catalog, part: &Part) -> bool {
    let is_rekeyed = |newest: &Table| {
        let is_elsewhere = newest.partitions.route(part.route.partition).is_none();
        // After two re-keyings, the layout may be the same again.
        let is_other = || !newest.has_layout_of(&part.table) || catalog.was_rekeyed(newest.id);
        is_elsewhere && is_other()
    };
    part.uncertain.load(Ordering::Relaxed)
        && newest_in(catalog, &part.table).is_some_and(|newest| is_rekeyed(&newest))
}

/// Adds to the error of a write that some of its rows may have taken effect.
fn of_unknown_outcome(error: SqlError) -> SqlError {
    let hint = match error.hint.as_deref() {
        None | Some(NO_EFFECT) => UNKNOWN_OUTCOME.to_owned(),
        Some(hint) if hint.contains(UNKNOWN_OUTCOME) => hint.to_owned(),
        Some(hint) => format!("{}; {UNKNOWN_OUTCOME}", hint.trim_end_matches('.')),
    };
    error.with_hint(hint)
}

/// Consecutive rows of a batch, so many at a time.
fn runs(rows: &RecordBatch, rows_max: usize) -> impl Iterator<Item = RecordBatch> {
    let starts = (0..rows.num_rows()).step_by(rows_max);
    starts.map(move |start| rows.slice(start, rows_max.min(rows.num_rows() - start)))
}

fn named(table: &Table, route: &Route, error: SqlError) -> SqlError {
    let context = format!("table \"{}\", partition {}", table.name, route.partition);
    let detail = match error.detail {
        Some(detail) => format!("{context}: {detail}"),
        None => context,
    };
    SqlError { detail: Some(detail), ..error }
}

/// Adds the placement column for tables that have one.
pub(crate) fn place(table: &Table, rows: RecordBatch) -> Result<RecordBatch, SqlError> {
    let Some(placements) = table.placement.place(&table.schema, &rows)? else { return Ok(rows) };
    with_placement(&rows, placements)
}

fn with_placement(rows: &RecordBatch, placements: UInt16Array) -> Result<RecordBatch, SqlError> {
    let mut fields = Vec::with_capacity(rows.num_columns() + 1);
    fields.push(Arc::new(Field::new(PLACEMENT_COLUMN, DataType::UInt16, false)));
    fields.extend(rows.schema_ref().fields().iter().map(Arc::clone));
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(fields.len());
    columns.push(Arc::new(placements));
    columns.extend(rows.columns().iter().map(Arc::clone));
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

fn without_placement(rows: RecordBatch) -> Result<RecordBatch, SqlError> {
    let Ok(position) = rows.schema_ref().index_of(PLACEMENT_COLUMN) else { return Ok(rows) };
    let columns: Vec<usize> = (0..rows.num_columns()).filter(|index| *index != position).collect();
    let count = rows.num_rows();
    let schema = rows.schema_ref().project(&columns)?;
    let columns = columns.iter().map(|index| Arc::clone(rows.column(*index))).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    Ok(RecordBatch::try_new_with_options(Arc::new(schema), columns, &options)?)
}

/// Checks that no key is too long.
pub(crate) fn check_keys(keys: &Keys, table: &str) -> Result<(), SqlError> {
    if keys.size_bytes() <= KEY_BYTES_MAX {
        return Ok(());
    }
    match keys.iter().position(|key| key.len() > KEY_BYTES_MAX) {
        None => Ok(()),
        Some(row) => Err(SqlError::new(
            PROGRAM_LIMIT_EXCEEDED,
            format!(
                "the key of row {} of relation \"{table}\" is {} bytes long, which exceeds the limit \
                 of {KEY_BYTES_MAX} bytes",
                row + 1,
                keys.get(row).len()
            ),
        )),
    }
}
