//! One replica: a partition of the engine behind its Raft group.
//!
//! Invariants:
//! - a write is answered after it is applied here; a scan starts after a read barrier, at a follower after the read point
//!   of its leader;
//! - a request for another epoch has no effect: it is refused before it reaches the log, or when it is applied;
//! - the rows of a scan are of the epoch that the scan names;
//! - once a storage error has stopped the group, every request gets that error;
//! - a replica whose files are damaged reports it, and leaves reads to the other replicas if there are any.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use futures::TryStreamExt;
use parking_lot::Mutex;
use partita_engine::{EngineError, Partition, PartitionConfig, Scan, Scanned};
use partita_proto::beat::{FollowerReads, LoadBeat};
use partita_proto::cardinality::SeriesSketch;
use partita_proto::error::Error;
use partita_proto::id::{Epoch, NodeId, PartitionId, ReplicaId, SchemaVersion};
use partita_proto::measure::PartitionMeasures;
use partita_proto::range::Bound;
use partita_proto::reshape::{Reshape, Reshaped};
use partita_proto::schema::{ColumnType, TableSchema};
use partita_proto::service::{
    ReadFrom, ReplicaStatus, RequestId, RowStream, ScanReply, ScanRequest, WriteReply, WriteRequest,
};
use partita_proto::wide::Wide;
use partita_proto::wire::Command;
use partita_raft::{Group, ReadBy};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::closed;
use crate::full_rows::FullRows;
use crate::group_error;
use crate::lane::Lane;
use crate::leadership;
use crate::load::Load;
use crate::machine::PartitionMachine;
use crate::metered::Meter;
use crate::obstacle::{FROZEN_MAX, frozen, obstacle};
use crate::reconfigure;
use crate::reply::Outcome;
use crate::reshape::bound_to_copies;
use crate::writer::{QUEUE_MAX, Waiting, Writer};

/// Maximum time that a request waits for a group without a leader, as right after a start.
const LEADER_WAIT: Duration = Duration::from_secs(5);
/// Epoch of a newly created partition.
const FIRST_EPOCH: Epoch = Epoch(1);
/// Schema of a new table.
const FIRST_SCHEMA: SchemaVersion = SchemaVersion(1);
/// Polling interval while a request waits for a leader.
const LEADER_POLL: Duration = Duration::from_millis(2);
/// Maximum entries that a replica may lack, and maximum time since its last answer, to lead a new partition from its
/// first entry on: if it were late, nobody would lead until an election.
const NEAR_ENTRIES: u64 = 1_000;
const FRESH: Duration = Duration::from_millis(750);

/// Interval at which garbage of wide tables is removed from files that are not merged for another reason.
const COLLECT_INTERVAL: Duration = Duration::from_hours(24);

/// True if the range or the schema of a partition is another one than that of the first entries of its log, as far as its
/// numbers tell.
pub(crate) fn is_changed(config: &PartitionConfig) -> bool {
    config.epoch > FIRST_EPOCH || config.schema.version > FIRST_SCHEMA
}

/// One replica on this node.
pub(crate) struct Replica {
    partition: Arc<Partition>,
    pub(crate) machine: Arc<PartitionMachine>,
    pub(crate) group: Arc<Group>,
    load: Arc<Load>,
    writes: mpsc::Sender<Waiting>,
    stop: CancellationToken,
    /// Time at which the partition was first seen frozen.
    frozen_since: Mutex<Option<Instant>>,
    /// Held by the one order at a time that changes the members.
    changing: tokio::sync::Mutex<()>,
    requests: AtomicU64,
    scans: AtomicU64,
    rejected: AtomicU64,
    /// True if files hold entries whose durability the group has not recorded yet. Locked during a flush.
    unreported_flush: tokio::sync::Mutex<bool>,
    /// Description of the damage found in the partition's files.
    damage: Arc<OnceLock<String>>,
    /// Rows of a wide table that take no more cells.
    full_rows: FullRows,
    /// Time since which no garbage of a wide table was removed.
    uncollected_since: Mutex<Option<Instant>>,
}

impl Replica {
    /// Assembles the replica and starts its writer.
    pub(crate) fn start(
        partition: Arc<Partition>,
        machine: Arc<PartitionMachine>,
        group: Arc<Group>,
        load: Arc<Load>,
        rows_per_s: Option<f64>,
        tasks: &TaskTracker,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let (writes, queue) = mpsc::channel(QUEUE_MAX);
        let writer = Writer {
            partition: partition.config().partition,
            group: Arc::clone(&group),
            requests: Arc::clone(&machine.requests),
            load: Arc::clone(&load),
            queue,
            lane: rows_per_s.map(Lane::new),
            stop: stop.clone(),
        };
        tasks.spawn(writer.run());
        Arc::new(Self {
            partition,
            machine,
            group,
            load,
            writes,
            stop,
            frozen_since: Mutex::default(),
            changing: tokio::sync::Mutex::new(()),
            requests: AtomicU64::new(0),
            scans: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            unreported_flush: tokio::sync::Mutex::new(false),
            damage: Arc::default(),
            full_rows: FullRows::default(),
            uncollected_since: Mutex::default(),
        })
    }

    /// True if the files of a wide table are due for a merge that only removes garbage: [`COLLECT_INTERVAL`] has passed
    /// since the last one. The next interval starts when this returns true.
    pub(crate) fn is_collection_due(&self) -> bool {
        let config = self.partition.config();
        let wide = config.schema.options.wide.as_ref();
        if !wide.is_some_and(Wide::collects) || self.partition.stats().files == 0 {
            return false;
        }
        let mut start = self.uncollected_since.lock();
        let is_due = start.get_or_insert_with(Instant::now).elapsed() >= COLLECT_INTERVAL;
        if is_due {
            *start = Some(Instant::now());
        }
        is_due
    }

    /// Looks for rows of a wide table that are too large.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) async fn measure_rows(&self) -> Result<(), Error> {
        self.full_rows.refresh(&self.partition).await
    }

    pub(crate) fn id(&self) -> PartitionId {
        self.partition.config().partition
    }

    /// Replica id.
    pub(crate) fn number(&self) -> ReplicaId {
        self.group.replica()
    }

    pub(crate) fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    pub(crate) fn check_epoch(&self, requested: Epoch, current: Epoch) -> Result<(), Error> {
        if current == requested {
            return Ok(());
        }
        Err(Error::StaleRoute { partition: self.id(), requested, current })
    }

    /// Refuses requests while the partition is frozen for a merge.
    pub(crate) fn check_free(&self) -> Result<(), Error> {
        self.frozen_for().map_or(Ok(()), |time| Err(frozen(self.id(), time)))
    }

    /// Refuses scans while the partition is closed: the rows may have changed elsewhere.
    fn check_open(&self) -> Result<(), Error> {
        match self.machine.is_closed() {
            true => Err(Error::StaleSchema { table: self.partition.config().table }),
            false => Ok(()),
        }
    }

    /// Time for which the partition has been seen frozen; `None` if it is not frozen.
    fn frozen_for(&self) -> Option<Duration> {
        let mut start = self.frozen_since.lock();
        if !self.machine.is_frozen() {
            *start = None;
            return None;
        }
        Some(start.get_or_insert_with(Instant::now).elapsed())
    }

    /// Error of a replica that works but has been frozen for too long; `None` otherwise.
    pub(crate) fn stuck(&self) -> Option<String> {
        let time = self.frozen_for().filter(|time| *time >= FROZEN_MAX)?;
        Some(frozen(self.id(), time).to_string())
    }

    /// Refuses rows whose types are not the table's, before they are in the log: a command that cannot be applied stops
    /// the group.
    fn check_columns(&self, rows: &RecordBatch) -> Result<(), Error> {
        let config = self.partition.config();
        for field in rows.schema_ref().fields() {
            let column = config.schema.columns.iter().find(|c| c.storage_name == *field.name());
            let Some(column) = column else { continue };
            let row_type = ColumnType::from_arrow(field.data_type())
                .filter(|row_type| row_type.arrow() == *field.data_type());
            // A field may have got a wider type that the sender does not know yet.
            let is_field = !config.schema.is_key(column.id);
            let fits = row_type.is_some_and(|row_type| {
                row_type == column.column_type || is_field && row_type.widens_to(column.column_type)
            });
            if !fits {
                return Err(Error::InvalidInput(format!(
                    "column \"{}\" is of type {} but the rows have type {}",
                    column.name,
                    column.column_type.sql(),
                    field.data_type()
                )));
            }
        }
        Ok(())
    }

    /// Refuses a write that the log would accept although the files have failed: its outcome could not be reported. The
    /// group stops in a moment ([`Replica::stop_if_failed`]), and another replica leads, if there is any.
    pub(crate) fn check_files(&self) -> Result<(), Error> {
        let Some(failure) = self.partition.failure() else { return Ok(()) };
        let message = format!("partition {} has stopped: {failure}", self.id());
        Err(match self.group.members().len() {
            1 => Error::Storage(message),
            _ => Error::Unavailable(message),
        })
    }

    /// Waits until this replica leads, if it is the only one: right after a start, its election is still in progress.
    pub(crate) async fn lead_if_alone(&self) -> Result<(), Error> {
        let members = self.group.members();
        if !members.iter().map(|member| member.replica).eq([self.group.replica()]) {
            return Ok(());
        }
        let deadline = Instant::now() + LEADER_WAIT;
        loop {
            let status = self.group.status();
            if let Some(failure) = status.stopped {
                return Err(Error::Storage(format!(
                    "partition {} has stopped: {failure}",
                    self.id()
                )));
            }
            if status.is_leader {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Error::NotLeader {
                    partition: self.id(),
                    leader: status.leader.map(|(_, node)| node),
                });
            }
            tokio::time::sleep(LEADER_POLL).await;
        }
    }

    /// Answer to a write while the partition is closed; `None` if it is open.
    fn closed_answer(&self, request: &WriteRequest) -> Option<Result<WriteReply, Error>> {
        let partition = self.id();
        closed::answer(&self.machine.requests.lock(), partition, request.id, &request.earlier)
    }

    /// Reply to a write that took effect here before, whatever the partition refuses by now; `None` if this replica does
    /// not know of it, or does not lead.
    pub(crate) fn repeated(&self, request: &WriteRequest) -> Option<WriteReply> {
        // Rows of a source count by their position.
        if request.ship.is_some() {
            return None;
        }
        let reply = closed::repeated(&self.machine.requests.lock(), request.id, &request.earlier)?;
        self.leads().then_some(reply)
    }

    /// Answer to a write whose rows are refused, unless it took effect when they were not.
    async fn refuse(&self, request: &WriteRequest, refusal: Error) -> Result<WriteReply, Error> {
        if request.ship.is_some() {
            return Err(refusal);
        }
        // This replica may lack the entry by which the write took effect.
        self.read_barrier().await?;
        let requests = self.machine.requests.lock();
        closed::answer_or_refuse(&requests, request.id, &request.earlier, refusal)
    }

    /// Refuses rows that the table does not take, before they are in the log.
    fn check_rows(&self, request: &WriteRequest) -> Result<(), Error> {
        self.check_columns(&request.rows)?;
        // Rows of a source were accepted there.
        if request.ship.is_some() {
            return Ok(());
        }
        let config = self.partition.config();
        self.full_rows.check(&config.schema, request.kind, &request.rows)
    }

    pub(crate) async fn write(&self, request: WriteRequest) -> Result<WriteReply, Error> {
        if self.closed_answer(&request).is_some() {
            // This replica may lack the entry with which the partition was opened again.
            self.read_barrier().await?;
            if let Some(answer) = self.closed_answer(&request) {
                return answer;
            }
        }
        self.check_epoch(request.epoch, self.partition.config().epoch)?;
        self.check_files()?;
        self.check_free()?;
        if let Err(refusal) = self.check_rows(&request) {
            return self.refuse(&request, refusal).await;
        }
        // The keys are looked at when the entry is applied, and must not fail there.
        if request.condition.is_some()
            && let Err(error) = self.partition.check(request.kind, &request.rows)
        {
            // The range may have changed since the epoch was compared.
            self.check_epoch(request.epoch, self.partition.config().epoch)?;
            return self.refuse(&request, error.into()).await;
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        let (answer, response) = oneshot::channel();
        let waiting = Waiting {
            id: request.id,
            earlier: request.earlier,
            epoch: request.epoch,
            kind: request.kind,
            rows: request.rows,
            ship: request.ship,
            condition: request.condition,
            since: Instant::now(),
            answer,
        };
        self.writes.send(waiting).await.map_err(|_| self.stopping())?;
        response.await.map_err(|_| self.stopping())?
    }

    /// Counts a write that was refused because a bound was reached.
    pub(crate) fn reject(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        self.load.rejected();
    }

    /// Counters of the replica's load.
    pub(crate) fn load(&self) -> &Load {
        &self.load
    }

    /// Load for the heartbeat; `None` if the replica does not lead.
    pub(crate) fn beat(&self) -> Option<LoadBeat> {
        let group = self.group.status();
        if !group.is_leader {
            self.load.release();
            return None;
        }
        let stats = self.partition.stats();
        let size = stats.file_bytes + stats.memtable_bytes;
        let waiting = self.writes.max_capacity() - self.writes.capacity();
        Some(self.load.beat(self.id(), group.term, size, waiting))
    }

    /// Reads for the heartbeat; `None` if the replica leads, or has answered none lately.
    pub(crate) fn follower_reads(&self) -> Option<FollowerReads> {
        if self.leads() {
            return None;
        }
        self.load.follower_reads(self.id())
    }

    fn stopping(&self) -> Error {
        Error::Unavailable(format!("partition {} is stopping", self.id()))
    }

    pub(crate) async fn scan(&self, request: ScanRequest) -> Result<ScanReply, Error> {
        let started = Instant::now();
        let current = self.partition.config().epoch;
        if request.epoch < current {
            self.check_epoch(request.epoch, current)?;
        }
        self.give_way_if_damaged().await?;
        if request.for_update {
            self.track().await?;
        }
        let read_by = self.wait_for_writes(&request).await?;
        let ranges = self.partition.key_ranges(&request.domains)?;
        let scanned = self
            .partition
            .scan(Scan {
                columns: request.columns,
                domains: request.domains,
                limit: request.limit,
                parallelism: request.parallelism,
                range: None,
                newest_only: request.newest_only,
                probes: request.probes,
                first_by_time: request.first_by_time,
                order: request.order,
                uncollected: request.uncollected,
            })
            .map_err(|error| self.scan_error(error))?;
        // The epoch of the pinned version counts, not the one before the wait: the range may have changed meanwhile.
        self.check_epoch(request.epoch, scanned.epoch)?;
        self.check_free()?;
        self.check_open()?;
        let stats = &scanned.stats;
        stats.by_followers.store(u64::from(read_by == ReadBy::Follower), Ordering::Relaxed);
        let work = self.load.recent_work(started);
        stats
            .busy_millicores
            .store(work.write_millicores + work.read_millicores, Ordering::Relaxed);
        stats.read_millicores.store(work.read_millicores, Ordering::Relaxed);
        self.load.opened(&ranges, &self.partition.range(), started.elapsed());
        Ok(self.reply(scanned))
    }

    /// Waits until all writes are applied here that a scan must see.
    async fn wait_for_writes(&self, request: &ScanRequest) -> Result<ReadBy, Error> {
        let ReadFrom::AnyReplica { staleness_max, schema } = request.read_from else {
            return self.read_barrier().await.map(|()| ReadBy::Leader);
        };
        let config = self.partition.config();
        // The sender knows of a later state than this replica, however old the rows may be.
        let is_behind = config.epoch < request.epoch || config.schema.version < schema;
        let staleness_max = if is_behind { Duration::ZERO } else { staleness_max };
        let read_by = self.group.read_barrier_anywhere(staleness_max).await;
        read_by.map_err(|error| group_error(&self.group, error))
    }

    /// Lets another replica lead, if there is one, when files here are known to be damaged: it has the rows that this
    /// one has lost.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when another replica leads now.
    pub(crate) async fn give_way_if_damaged(&self) -> Result<(), Error> {
        let Some(damage) = self.damage.get() else { return Ok(()) };
        leadership::give_away(self).await;
        if self.leads() {
            return Ok(());
        }
        Err(Error::Unavailable(format!(
            "replica {} of partition {} is damaged and leaves reads to the other replicas: {damage}",
            self.number(),
            self.id()
        )))
    }

    /// Error of a scan that did not begin, recorded if it is damage.
    pub(crate) fn scan_error(&self, error: EngineError) -> Error {
        let error = self.record_damage(Error::from(error));
        retryable_elsewhere(error, self.number(), self.has_others())
    }

    /// Reply to a scan, whose streams are counted and watched for damage.
    pub(crate) fn reply(&self, scanned: Scanned) -> ScanReply {
        self.scans.fetch_add(1, Ordering::Relaxed);
        let meter = Meter::new(Arc::clone(&self.load), Arc::clone(&scanned.stats));
        let watched = |stream| meter.watch(self.watched(stream));
        let streams = scanned.streams.into_iter().map(watched).collect();
        let index = scanned.applied;
        ScanReply { streams, order: scanned.order, stats: scanned.stats, index }
    }

    /// Has the partition keep the keys of its writes from now on, if it does not yet.
    async fn track(&self) -> Result<(), Error> {
        self.check_files()?;
        self.check_free()?;
        match self.machine.tracks() {
            true => Ok(()),
            false => self.propose(Command::Track).await,
        }
    }

    /// Waits until every acknowledged write is applied here.
    pub(crate) async fn read_barrier(&self) -> Result<(), Error> {
        self.group.read_barrier().await.map_err(|error| group_error(&self.group, error))
    }

    /// Records the error of a read or a flush if it is damage; returns the error.
    fn record_damage(&self, error: Error) -> Error {
        note(&self.damage, self.id(), &error);
        error
    }

    /// A stream whose errors are recorded.
    fn watched(&self, stream: RowStream) -> RowStream {
        let (damage, partition) = (Arc::clone(&self.damage), self.id());
        let (replica, has_others) = (self.number(), self.has_others());
        Box::pin(stream.map_err(move |error| {
            note(&damage, partition, &error);
            retryable_elsewhere(error, replica, has_others)
        }))
    }

    /// True if another replica may lead.
    fn has_others(&self) -> bool {
        !self.other_voters().is_empty()
    }

    pub(crate) async fn propose(&self, command: Command) -> Result<(), Error> {
        let epoch = self.partition.config().epoch;
        let applied = self.group.propose(command.encode()).await;
        let applied = applied.map_err(|error| group_error(&self.group, error))?;
        match Outcome::decode(&applied.reply)? {
            Outcome::At(_) => Ok(()),
            outcome => Err(outcome.refused(self.id(), epoch)),
        }
    }

    pub(crate) async fn alter(&self, schema: Arc<TableSchema>) -> Result<(), Error> {
        if self.partition.config().schema.version >= schema.version {
            return Ok(());
        }
        self.propose(Command::Schema(schema)).await
    }

    pub(crate) async fn truncate(&self, id: RequestId) -> Result<(), Error> {
        self.check_free()?;
        self.propose(Command::Truncate(id)).await
    }

    /// Writes everything applied so far to files and lets the log purge it. Every replica flushes on its own, leader or
    /// not.
    pub(crate) async fn flush(&self) -> Result<(), Error> {
        // After a restart, changes before the files' position are known no longer: the copies should need none of them.
        self.record_reports().await;
        let mut unreported_flush = self.unreported_flush.lock().await;
        self.machine.seal();
        *unreported_flush |=
            self.partition.flush().await.map_err(|error| self.record_damage(Error::from(error)))?;
        if let Some((low, high)) = self.partition.edges() {
            self.load.edges(&low, &high);
        }
        if *unreported_flush {
            // If this fails or is cancelled, the next flush reports it, even a flush without rows.
            self.group.flushed().await.map_err(|error| group_error(&self.group, error))?;
            *unreported_flush = false;
        }
        Ok(())
    }

    /// Writes everything applied so far to files, for a replica that is being dropped; the log is not purged.
    pub(crate) async fn write_rows(&self) -> Result<(), Error> {
        self.machine.seal();
        self.partition.flush().await.map(drop).map_err(Error::from)
    }

    pub(crate) async fn compact(&self, full: bool) -> Result<bool, Error> {
        self.partition.compact(full).await.map_err(|error| self.record_damage(Error::from(error)))
    }

    /// Makes these replicas the voters of the group, and its only members.
    pub(crate) async fn reconfigure(
        &self,
        voters: BTreeMap<ReplicaId, NodeId>,
    ) -> Result<(), Error> {
        let _one_at_a_time = self.changing.lock().await;
        if self.leads() && self.is_begun_by(&voters) {
            self.forget_changes().await?;
        }
        self.record_reports().await;
        reconfigure::reconfigure(self.id(), &self.group, voters).await
    }

    /// True if one of these replicas would start from the beginning of the log. That is a replica that is not a member
    /// yet, or a learner that has no entries while this replica's log is unpurged: such a learner was added before the
    /// last change was applied here.
    fn is_begun_by(&self, voters: &BTreeMap<ReplicaId, NodeId>) -> bool {
        let members = self.group.members();
        let is_complete = self.group.status().purged.is_none();
        voters.keys().any(|replica| {
            let member = members.iter().find(|member| member.replica == *replica);
            member.is_none_or(|member| is_complete && !member.voter && member.matched.is_none())
        })
    }

    /// Purges the log up to the last change of the partition's range and schema. A new member starts with the current
    /// range and schema: it could not apply entries for earlier ones, or would decide them differently from the other
    /// members.
    async fn forget_changes(&self) -> Result<(), Error> {
        if !is_changed(&self.partition.config()) {
            return Ok(());
        }
        self.flush().await?;
        self.group.give_up_log().await.map_err(|error| group_error(&self.group, error))
    }

    /// Changes the partition's range, through its log.
    pub(crate) async fn reshape(&self, mut order: Reshape) -> Result<Reshaped, Error> {
        let busy = |change: &str| {
            Error::Unavailable(format!("the replicas of partition {} {change}", self.id()))
        };
        let _one_at_a_time = self.changing.try_lock().map_err(|_| busy("are being changed"))?;
        // A replica that has not applied the whole log may repeat an order that has taken effect.
        self.read_barrier().await?;
        if let Some(result) = self.machine.done(&order) {
            return Ok(result);
        }
        self.check_epoch(order.epoch(), self.partition.config().epoch)?;
        if let Some(damage) = obstacle(&order, |partition| self.damage_of(partition)) {
            return Err(Error::Corrupted(damage));
        }
        if let Reshape::Absorb(absorb) = &order
            && (self.machine.is_bound(self.id()) || self.machine.is_bound(absorb.right))
        {
            return Err(Error::InvalidInput(bound_to_copies(self.id(), absorb.right)));
        }
        if let Reshape::Split(split) = &order {
            if self.group.is_changing() || self.group.members().iter().any(|m| !m.voter) {
                return Err(busy("are changing their membership"));
            }
            let nodes: BTreeSet<NodeId> = self.group.members().iter().map(|m| m.node).collect();
            if !nodes.iter().eq(split.replicas.keys()) {
                return Err(Error::InvalidInput(format!(
                    "partition {} is on the nodes {nodes:?}, but the order names the nodes {:?}",
                    self.id(),
                    split.replicas.keys().collect::<Vec<_>>()
                )));
            }
        }
        // Rows flushed now need not be flushed while the order is applied, which blocks the log.
        self.flush().await?;
        if let Reshape::Split(split) = &mut order {
            split.leader = split.leader.filter(|node| self.may_lead_child(*node));
        }
        let epoch = order.epoch();
        // Followers apply it at once: requests wait for the new partition's quorum.
        let applied = self.group.propose_at_once(Command::Reshape(order).encode()).await;
        let applied = applied.map_err(|error| group_error(&self.group, error))?;
        match Outcome::decode(&applied.reply)? {
            Outcome::Reshaped(reshaped) => Ok(reshaped),
            outcome => Err(outcome.refused(self.id(), epoch)),
        }
    }

    /// True if the replica on a node, this one or another, is so near that it can lead a new partition from its first
    /// entry on.
    fn may_lead_child(&self, node: NodeId) -> bool {
        let last = self.group.status().last_index.unwrap_or_default();
        self.group.members().iter().any(|member| {
            let is_here = member.replica == self.group.replica();
            let is_near =
                member.matched.is_some_and(|matched| matched.saturating_add(NEAR_ENTRIES) >= last);
            let is_fresh = member.silent_for.is_some_and(|time| time <= FRESH);
            member.node == node && member.voter && (is_here || (is_near && is_fresh))
        })
    }

    /// The key that splits the partition best; `None` if no key leaves rows on both sides.
    pub(crate) async fn middle_key(&self) -> Result<Option<Bound>, Error> {
        self.partition.middle().await.map_err(|error| self.record_damage(Error::from(error)))
    }

    /// True if the replica leads.
    pub(crate) fn leads(&self) -> bool {
        self.group.status().is_leader
    }

    /// The nodes of the other voters, the most up-to-date first.
    pub(crate) fn other_voters(&self) -> Vec<NodeId> {
        let this_replica = self.group.replica();
        let mut voters = self.group.members();
        voters.retain(|member| member.voter && member.replica != this_replica);
        voters.sort_by_key(|member| std::cmp::Reverse(member.matched));
        voters.into_iter().map(|member| member.node).collect()
    }

    /// Hands leadership to the replica on another node.
    pub(crate) async fn transfer_leader(&self, node: NodeId) -> Result<(), Error> {
        let _one_at_a_time = self.changing.lock().await;
        self.record_reports().await;
        reconfigure::transfer(self.id(), &self.group, node).await
    }

    pub(crate) fn status(&self) -> ReplicaStatus {
        let config = self.partition.config();
        let stats = self.partition.stats();
        let group = self.group.status();
        let (rows_written, bytes_written) = self.machine.written();
        let (voters, learners): (Vec<_>, Vec<_>) =
            self.group.members().into_iter().partition(|member| member.voter);
        // The engine, the group and the counters are read one after the other, so their values may differ slightly.
        ReplicaStatus {
            partition: config.partition,
            table: config.table,
            replica: config.replica,
            leader: group.is_leader,
            leader_node: group.leader.map(|(_, node)| node),
            term: group.term,
            voters: voters.into_iter().map(|member| member.replica).collect(),
            learners: learners.into_iter().map(|member| member.replica).collect(),
            epoch: config.epoch,
            rows: stats.rows,
            file_bytes: stats.file_bytes,
            files: stats.files,
            memtable_bytes: stats.memtable_bytes,
            rows_written,
            bytes_written,
            writes: self.requests.load(Ordering::Relaxed),
            scans: self.scans.load(Ordering::Relaxed),
            rows_scanned: stats.rows_scanned,
            rejected: self.rejected.load(Ordering::Relaxed),
            applied: group.applied.unwrap_or(0),
            flushed: self.partition.durable_mark().map_or(0, |(index, _)| index),
            failure: self.failure(),
            series: None,
            measures: None,
        }
    }

    /// Sketch of the series of the partition's rows.
    pub(crate) async fn series(&self) -> Result<Arc<SeriesSketch>, Error> {
        Ok(self.partition.series_sketch().await?)
    }

    /// Measures of the partition's rows and indexes.
    pub(crate) async fn measures(&self) -> Result<Arc<PartitionMeasures>, Error> {
        Ok(self.partition.measures().await?)
    }

    /// Reason why the replica does not serve, or not completely: its files failed, its group stopped, or damage was
    /// found.
    pub(crate) fn failure(&self) -> Option<String> {
        let stopped = self.partition.failure().or_else(|| self.group.status().stopped);
        stopped.or_else(|| self.damage())
    }

    /// Stops the group once the files have failed: nothing more can be applied, so another replica should lead. The
    /// group itself would notice only at the next write.
    pub(crate) async fn stop_if_failed(&self) {
        let Some(failure) = self.partition.failure() else { return };
        if self.group.status().stopped.is_some() {
            return;
        }
        tracing::error!(partition = %self.id(), failure, "the replica stops: its files have failed");
        if let Err(error) = self.group.shutdown().await {
            tracing::warn!(partition = %self.id(), %error, "the group of a failed replica did not stop cleanly");
        }
    }

    /// Description of the known damage to the partition's files; `None` if none is known.
    fn damage(&self) -> Option<String> {
        let damage = self.damage.get().cloned();
        damage.or_else(|| {
            Some(self.partition.damage().join("; ")).filter(|damage| !damage.is_empty())
        })
    }

    /// Description of the known damage to the files of a partition here: this one, or a neighbour.
    fn damage_of(&self, partition: PartitionId) -> Option<String> {
        if partition == self.id() {
            return self.damage();
        }
        self.machine.damage_of(partition)
    }

    /// Stops the writer and the group; the files stay.
    pub(crate) async fn shutdown(&self) -> Result<(), Error> {
        self.stop.cancel();
        self.group.shutdown().await.map_err(|error| group_error(&self.group, error))
    }
}

/// Makes the error of a damaged replica retryable if other replicas have the rows: the next read goes to one of them.
fn retryable_elsewhere(error: Error, replica: ReplicaId, has_others: bool) -> Error {
    match error {
        Error::Corrupted(damage) if has_others => Error::Unavailable(format!(
            "replica {replica} found its files damaged and transfers leadership: {damage}"
        )),
        error => error,
    }
}

/// Records damage; the first finding is kept.
fn note(damage: &OnceLock<String>, partition: PartitionId, error: &Error) {
    if let Error::Corrupted(description) = error
        && damage.set(description.clone()).is_ok()
    {
        tracing::error!(%partition, damage = description, "a replica found its files damaged");
    }
}
