//! One replica: a partition of the engine behind its Raft group.
//!
//! Invariants:
//! - a write is answered after it is applied here, a scan starts after a read barrier;
//! - a request for another epoch is refused before it reaches the log;
//! - once a storage error has stopped the group, every request gets that error;
//! - a replica that found its files damaged says so, and leaves reading to the others if there are any.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use futures::TryStreamExt;
use partita_engine::{Partition, Scan};
use partita_proto::error::Error;
use partita_proto::id::{Epoch, NodeId, PartitionId, ReplicaId};
use partita_proto::schema::TableSchema;
use partita_proto::service::{
    ReplicaStatus, RequestId, RowStream, ScanReply, ScanRequest, WriteReply, WriteRequest,
};
use partita_proto::wire::Command;
use partita_raft::Group;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::leadership;
use crate::machine::PartitionMachine;
use crate::raft_error;
use crate::reconfigure;
use crate::writer::{QUEUE_MAX, Waiting, Writer};

/// How long a request waits for a group that has no leader yet, as right after a start.
const LEADER_WAIT: Duration = Duration::from_secs(5);
/// How often it looks.
const LEADER_POLL: Duration = Duration::from_millis(2);

/// One replica on this node.
pub(crate) struct Replica {
    partition: Arc<Partition>,
    machine: Arc<PartitionMachine>,
    group: Arc<Group>,
    writes: mpsc::Sender<Waiting>,
    stop: CancellationToken,
    /// One order at a time changes the members.
    changing: tokio::sync::Mutex<()>,
    requests: AtomicU64,
    scans: AtomicU64,
    rejected: AtomicU64,
    /// What of its files turned out not to be what was written.
    damage: Arc<OnceLock<String>>,
}

impl Replica {
    /// Puts the parts together and starts the writer.
    pub(crate) fn start(
        partition: Arc<Partition>,
        machine: Arc<PartitionMachine>,
        group: Arc<Group>,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Arc<Self> {
        let stop = stop.child_token();
        let (writes, queue) = mpsc::channel(QUEUE_MAX);
        let writer = Writer {
            partition: partition.config().partition,
            group: Arc::clone(&group),
            queue,
            stop: stop.clone(),
        };
        tasks.spawn(writer.run());
        Arc::new(Self {
            partition,
            machine,
            group,
            writes,
            stop,
            changing: tokio::sync::Mutex::new(()),
            requests: AtomicU64::new(0),
            scans: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            damage: Arc::default(),
        })
    }

    pub(crate) fn id(&self) -> PartitionId {
        self.partition.config().partition
    }

    /// Which replica of the partition it is.
    pub(crate) fn number(&self) -> ReplicaId {
        self.group.replica()
    }

    pub(crate) fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    fn check_epoch(&self, requested: Epoch) -> Result<(), Error> {
        let config = self.partition.config();
        if config.epoch == requested {
            return Ok(());
        }
        Err(Error::StaleRoute { partition: config.partition, requested, current: config.epoch })
    }

    /// Refuses rows of other types than the table's before they are in the log: what cannot be applied
    /// stops the group.
    fn check_columns(&self, rows: &RecordBatch) -> Result<(), Error> {
        let config = self.partition.config();
        for field in rows.schema_ref().fields() {
            let column = config.schema.columns.iter().find(|c| c.storage_name == *field.name());
            if let Some(column) = column
                && column.column_type.arrow() != *field.data_type()
            {
                return Err(Error::InvalidInput(format!(
                    "column \"{}\" is {}, the rows have {}",
                    column.name,
                    column.column_type.sql(),
                    field.data_type()
                )));
            }
        }
        Ok(())
    }

    /// Waits until this replica leads, if there is no other, which right after a start takes a moment.
    pub(crate) async fn lead_if_alone(&self) -> Result<(), Error> {
        let members = self.group.members();
        if !members.iter().map(|member| member.replica).eq([self.group.replica()]) {
            return Ok(());
        }
        let deadline = tokio::time::Instant::now() + LEADER_WAIT;
        loop {
            let status = self.group.status();
            if let Some(failure) = status.stopped {
                return Err(Error::Internal(format!(
                    "partition {} has stopped: {failure}",
                    self.id()
                )));
            }
            if status.is_leader {
                return Ok(());
            }
            if tokio::time::Instant::now() >= deadline {
                return Err(Error::NotLeader {
                    partition: self.id(),
                    leader: status.leader.map(|(_, node)| node),
                });
            }
            tokio::time::sleep(LEADER_POLL).await;
        }
    }

    pub(crate) async fn write(&self, request: WriteRequest) -> Result<WriteReply, Error> {
        self.check_epoch(request.epoch)?;
        self.check_columns(&request.rows)?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting {
            id: request.id,
            epoch: request.epoch,
            kind: request.kind,
            rows: request.rows,
            answer,
        };
        self.writes.send(waiting).await.map_err(|_| self.stopping())?;
        answered.await.map_err(|_| self.stopping())?
    }

    /// Counts a write that a bound refused.
    pub(crate) fn reject(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    fn stopping(&self) -> Error {
        Error::Unavailable(format!("partition {} is stopping", self.id()))
    }

    pub(crate) async fn scan(&self, request: ScanRequest) -> Result<ScanReply, Error> {
        self.check_epoch(request.epoch)?;
        if let Some(damage) = self.damage.get() {
            // Others have what this one has lost, if there are others.
            leadership::give_away(self).await;
            if !self.leads() {
                return Err(Error::Unavailable(format!(
                    "replica {} of partition {} is damaged and gave leadership away: {damage}",
                    self.number(),
                    self.id()
                )));
            }
        }
        self.group.read_barrier().await.map_err(|error| raft_error(self.id(), error))?;
        self.scans.fetch_add(1, Ordering::Relaxed);
        let scanned = self
            .partition
            .scan(Scan {
                columns: request.columns,
                domains: request.domains,
                limit: request.limit,
                parallelism: request.parallelism,
                range: None,
                newest_only: request.newest_only,
            })
            .map_err(|error| self.noted(Error::from(error)))?;
        let streams = scanned.streams.into_iter().map(|stream| self.watched(stream)).collect();
        Ok(ScanReply { streams, sorted: scanned.sorted, stats: scanned.stats })
    }

    /// Remembers that files were found damaged.
    fn noted(&self, error: Error) -> Error {
        note(&self.damage, self.id(), &error);
        error
    }

    /// A stream whose errors are noted.
    fn watched(&self, stream: RowStream) -> RowStream {
        let (damage, partition) = (Arc::clone(&self.damage), self.id());
        Box::pin(stream.inspect_err(move |error| note(&damage, partition, error)))
    }

    async fn propose(&self, command: Command) -> Result<(), Error> {
        self.group
            .propose(command.encode())
            .await
            .map(drop)
            .map_err(|error| raft_error(self.id(), error))
    }

    pub(crate) async fn alter(&self, schema: Arc<TableSchema>) -> Result<(), Error> {
        if self.partition.config().schema.version >= schema.version {
            return Ok(());
        }
        self.propose(Command::Schema(schema)).await
    }

    pub(crate) async fn truncate(&self, id: RequestId) -> Result<(), Error> {
        self.propose(Command::Truncate(id)).await
    }

    /// Writes everything applied until now to files and lets the log forget it. Every replica does so by
    /// itself, whoever leads.
    pub(crate) async fn flush(&self) -> Result<(), Error> {
        self.machine.seal();
        if self.partition.flush().await.map_err(|error| self.noted(Error::from(error)))? {
            self.group.flushed().await.map_err(|error| raft_error(self.id(), error))?;
        }
        Ok(())
    }

    pub(crate) async fn compact(&self, all: bool) -> Result<bool, Error> {
        self.partition.compact(all).await.map_err(|error| self.noted(Error::from(error)))
    }

    /// Makes these replicas the voters of the group, and the only members.
    pub(crate) async fn reconfigure(
        &self,
        voters: BTreeMap<ReplicaId, NodeId>,
    ) -> Result<(), Error> {
        let _one_at_a_time = self.changing.lock().await;
        reconfigure::reconfigure(self.id(), &self.group, voters).await
    }

    /// Whether it leads.
    pub(crate) fn leads(&self) -> bool {
        self.group.status().is_leader
    }

    /// The nodes of the other replicas that may lead, those that are furthest first.
    pub(crate) fn other_voters(&self) -> Vec<NodeId> {
        let mine = self.group.replica();
        let mut others = self.group.members();
        others.retain(|member| member.voter && member.replica != mine);
        others.sort_by_key(|member| std::cmp::Reverse(member.matched));
        others.into_iter().map(|member| member.node).collect()
    }

    /// Hands leadership to the replica on another node.
    pub(crate) async fn transfer_leader(&self, to: NodeId) -> Result<(), Error> {
        let _one_at_a_time = self.changing.lock().await;
        reconfigure::transfer(self.id(), &self.group, to).await
    }

    pub(crate) fn status(&self) -> ReplicaStatus {
        let config = self.partition.config();
        let stats = self.partition.stats();
        let group = self.group.status();
        let (rows_written, bytes_written) = self.machine.written();
        let (voters, learners): (Vec<_>, Vec<_>) =
            self.group.members().into_iter().partition(|member| member.voter);
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
            failure: group.stopped.or_else(|| self.damage.get().cloned()),
        }
    }

    /// Stops the writer and the group; the files stay.
    pub(crate) async fn shutdown(&self) -> Result<(), Error> {
        self.stop.cancel();
        self.group.shutdown().await.map_err(|error| raft_error(self.id(), error))
    }
}

/// Notes what is damaged; the first finding is kept.
fn note(damage: &OnceLock<String>, partition: PartitionId, error: &Error) {
    if let Error::Corrupted(what) = error
        && damage.set(what.clone()).is_ok()
    {
        tracing::error!(%partition, what, "a replica found its files damaged");
    }
}
