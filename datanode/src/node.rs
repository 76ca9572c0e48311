//! The datanode: runs its replicas and serves requests to them. (`start.rs` opens, makes and removes them.)
//!
//! On disk, below its directory: `partitions/<id>/` for each replica, and `CATALOG` (`files.rs`). The directory's name
//! is the partition's number, and never text from a user.
//!
//! Invariants:
//! - memtables together stay below [`NodeOptions::memtables_bytes_max`] times two; above that, writes wait and are then
//!   refused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};
use partita_engine::EngineOptions;
use partita_proto::beat::{FollowerReads, LoadBeat};
use partita_proto::catalog_history::CatalogHistory;
use partita_proto::clock::Clock;
use partita_proto::error::Error;
use partita_proto::health::Ailment;
use partita_proto::id::{Epoch, GroupId, NodeId, PartitionId, ReplicaId, TableId};
use partita_proto::materialized::{CaptureOrder, Changes, ChangesRequest};
use partita_proto::range::Bound;
use partita_proto::reshape::{Reshape, Reshaped};
use partita_proto::schema::TableSchema;
use partita_proto::service::{
    DataService, PartitionSpec, ReplicaStatus, RequestId, ScanReply, ScanRequest, WriteReply,
    WriteRequest,
};
use partita_raft::Host;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::aside::Aside;
use crate::files::{Files, LocalFiles};
use crate::followed::Followed;
use crate::maintenance;
use crate::making::Making;
use crate::older::Older;
use crate::replica::Replica;
use crate::surroundings::Surroundings;

/// Maximum wait of a stopping node for an order that creates or drops a replica.
const LAST_ORDER_WAIT: Duration = Duration::from_secs(10);
/// Maximum bytes of the sketches of series, or of the measures, in one report.
const SKETCH_BYTES_MAX: usize = 16 << 20;
/// Maximum time that a write waits for memtables to be flushed, before it is refused.
const MEMTABLE_WAIT: Duration = Duration::from_secs(10);
/// Polling interval of that wait.
const MEMTABLE_POLL: Duration = Duration::from_millis(5);
/// Maximum age of the known sum of memtable bytes. A node may have a thousand memtables, and the writes of a
/// millisecond are small compared with their budget.
const MEMTABLES_KNOWN: Duration = Duration::from_millis(1);

/// Options of a datanode.
pub struct NodeOptions {
    /// Node id.
    pub node: NodeId,
    /// Data directory.
    pub dir: PathBuf,
    /// Bytes of all memtables together above which the largest is flushed.
    pub memtables_bytes_max: u64,
    /// Options of every partition.
    pub engine: EngineOptions,
    /// If true, a damaged replica that others can replace is put aside at the start, for meta to recreate it. Otherwise
    /// its intact files are served, or nothing of it if its manifest or its log is damaged.
    pub put_aside: bool,
    /// True if the directory is an older copy that was restored: none of its replicas is served.
    pub older: bool,
    /// Partitions whose only replicas are served although they are of an older copy.
    pub accepted: BTreeSet<PartitionId>,
    /// Time for which the files of a dropped replica are kept (`trash.rs`); zero: not at all.
    pub trash_keep: Duration,
    /// Maximum rows per second of one partition, more than 0: for experiments (`lane.rs`).
    pub partition_rows_per_s: Option<f64>,
}

/// A replica that is not served.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) why: String,
    /// Replica id, if its files tell it.
    pub(crate) replica: Option<ReplicaId>,
    /// True if, as far as this replica knows, other replicas exist, which can serve clients instead.
    pub(crate) has_others: bool,
}

/// The replicas of a node.
pub struct Datanode {
    /// Self-reference, for orders that must run to the end even when the caller stops waiting.
    me: Weak<Self>,
    options: NodeOptions,
    host: Arc<Host>,
    /// Resources that the replicas' machines may use.
    pub(crate) near: Arc<Surroundings>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) replicas: RwLock<BTreeMap<PartitionId, Arc<Replica>>>,
    /// Partitions whose replicas here are not served: they are damaged and have no other replica, or are of an older
    /// copy.
    pub(crate) refused: RwLock<BTreeMap<PartitionId, Refused>>,
    /// Replicas of an older copy.
    pub(crate) older: Older,
    /// Held by the one order at a time that creates or drops replicas.
    pub(crate) orders: tokio::sync::Mutex<()>,
    /// The catalog that gives orders to this node.
    followed: Followed,
    /// Sum of memtable bytes, and the time at which it was computed.
    memtables: Mutex<Option<(Instant, u64)>>,
    /// Reason why the last flush failed, if the disk was full.
    disk_full: Mutex<Option<String>>,
    tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl Datanode {
    /// Opens every replica that is on disk and starts the background work.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when files that should be there are missing, [`Error::Unavailable`] when the directory
    /// cannot be used.
    pub async fn open(
        options: NodeOptions,
        host: Arc<Host>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, Error> {
        let files = LocalFiles::open(&options.dir)?;
        Self::open_over(options, host, clock, Arc::new(files)).await
    }

    /// As [`Datanode::open`], over another implementation of [`Files`].
    ///
    /// # Errors
    /// As [`Datanode::open`].
    pub async fn open_over(
        options: NodeOptions,
        host: Arc<Host>,
        clock: Arc<dyn Clock>,
        files: Arc<dyn Files>,
    ) -> Result<Arc<Self>, Error> {
        // Read what the node has recorded about its catalog, and about replicas of an older copy or put aside.
        let followed = Followed::open(Arc::clone(&files))?;
        let older = Older::open(Arc::clone(&files))?;
        let aside = Aside::open(Arc::clone(&files))?;
        let node = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            options,
            near: Arc::new(Surroundings {
                node: Weak::clone(me),
                host: Arc::clone(&host),
                store: files.store(),
                files,
                aside,
                making: Making::default(),
                partitions: RwLock::default(),
            }),
            host,
            clock,
            replicas: RwLock::default(),
            refused: RwLock::default(),
            older,
            orders: tokio::sync::Mutex::new(()),
            followed,
            memtables: Mutex::default(),
            disk_full: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        // Background work begins once all replicas are open.
        node.open_all().await?;
        node.tasks.spawn(maintenance::run(Arc::clone(&node), node.stop.child_token()));
        Ok(node)
    }

    /// The node's options.
    pub fn options(&self) -> &NodeOptions {
        &self.options
    }

    /// Tracker of the node's tasks, all of which end before the node does.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Opens links to the other members of a replica's group, in the background. A partition is flushed before it is split,
    /// and then its new half may be led from a node that has led nothing before: its first entry would wait for links.
    fn link_members(&self, replica: &Replica) {
        for node in replica.other_voters() {
            let (host, stop) = (Arc::clone(&self.host), self.stop.clone());
            self.tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = host.greet(node) => {}
                }
            });
        }
    }

    /// Groups that prevent the log from being reclaimed.
    pub(crate) fn pressure(&self) -> watch::Receiver<Vec<GroupId>> {
        self.host.pressure()
    }

    pub(crate) fn replica(&self, partition: PartitionId) -> Result<Arc<Replica>, Error> {
        if let Some(replica) = self.replicas.read().get(&partition) {
            return Ok(Arc::clone(replica));
        }
        let refused = self.refused.read();
        Err(match refused.get(&partition) {
            Some(Refused { why, has_others, .. }) => {
                let text = format!("partition {partition} is not served: {why}");
                if *has_others { Error::Unavailable(text) } else { Error::Corrupted(text) }
            }
            None => Error::NotFound { kind: "partition", name: partition.to_string() },
        })
    }

    /// Reason why a partition that is here is not served; `None` if it is served, or not here.
    pub(crate) fn refusal(&self, partition: PartitionId) -> Option<String> {
        self.refused.read().get(&partition).map(|refused| refused.why.clone())
    }

    pub(crate) fn replicas(&self) -> Vec<Arc<Replica>> {
        self.replicas.read().values().cloned().collect()
    }

    /// Current load of the partitions that are led here.
    pub fn loads(&self) -> Vec<LoadBeat> {
        self.replicas().iter().filter_map(|replica| replica.beat()).collect()
    }

    /// Reads that replicas here answered while they did not lead.
    pub fn follower_reads(&self) -> Vec<FollowerReads> {
        self.replicas().iter().filter_map(|replica| replica.follower_reads()).collect()
    }

    /// Partitions whose replicas here do not serve, with reasons.
    pub fn ailments(&self) -> Vec<Ailment> {
        let failed = self.replicas().into_iter().filter_map(|replica| {
            let reason = replica.failure().or_else(|| replica.stuck())?;
            Some(Ailment::new(format!("partition {}", replica.id()), reason))
        });
        let refused = self.refused.read();
        let refused = refused.iter().map(|(partition, Refused { why, .. })| {
            Ailment::new(format!("partition {partition}"), format!("not served: {why}"))
        });
        failed.chain(refused).collect()
    }

    /// Records that a flush failed on a full disk.
    pub(crate) fn flush_failed(&self, error: &Error) {
        if let Error::DiskFull(why) = error {
            *self.disk_full.lock() = Some(why.clone());
        }
    }

    /// Records that a flush has found space.
    pub(crate) fn flush_succeeded(&self) {
        *self.disk_full.lock() = None;
    }

    pub(crate) fn trash_keep_ms(&self) -> i64 {
        i64::try_from(self.options.trash_keep.as_millis()).unwrap_or(i64::MAX)
    }

    /// Removes files of replicas dropped long enough ago, or as many as are needed to free space.
    pub(crate) async fn sweep_trash(&self) {
        let (files, now_ms) = (Arc::clone(&self.near.files), self.clock.now_ms());
        let full = self.disk_full.lock().is_some();
        let keep_ms = if full { 0 } else { self.trash_keep_ms() };
        let swept = partita_proto::blocking::spawn(move || files.sweep(now_ms, keep_ms)).await;
        match swept {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "the trash was not swept"),
            Err(error) => warn!(%error, "sweeping the trash was interrupted"),
        }
    }

    /// Waits while memtables are over twice their budget, because flushing cannot keep up. On a full disk waiting would
    /// be useless, so the write is refused.
    async fn wait_for_memory(&self, replica: &Replica) -> Result<(), Error> {
        let limit = self.options.memtables_bytes_max.saturating_mul(2);
        if self.memtable_bytes(MEMTABLES_KNOWN) <= limit {
            return Ok(());
        }
        let used = || self.memtable_bytes(Duration::ZERO);
        let started = Instant::now();
        while used() > limit {
            if let Some(why) = self.disk_full.lock().clone() {
                replica.reject();
                return Err(Error::DiskFull(why));
            }
            if started.elapsed() >= MEMTABLE_WAIT {
                replica.reject();
                return Err(Error::Overloaded(format!(
                    "partition {}: memtables hold {} bytes and cannot be flushed fast enough (limit {limit}); \
                     try again later, and check the disk",
                    replica.id(),
                    used()
                )));
            }
            tokio::time::sleep(MEMTABLE_POLL).await;
        }
        replica.load().held_back(started.elapsed());
        Ok(())
    }

    /// Bytes of all memtables together; the sum is at most `age_max` old.
    fn memtable_bytes(&self, age_max: Duration) -> u64 {
        let mut cached = self.memtables.lock();
        let time = Instant::now();
        if let Some((instant, bytes)) = *cached
            && time.saturating_duration_since(instant) < age_max
        {
            return bytes;
        }
        let replicas = self.replicas.read();
        let bytes = replicas.values().map(|replica| replica.partition().memtable_bytes()).sum();
        *cached = Some((time, bytes));
        bytes
    }

    /// Stops accepting requests, flushes every memtable and stops the groups.
    ///
    /// # Errors
    /// The first failed flush or stop; the rest is stopped all the same. Rows that were not flushed are still in the
    /// log.
    pub async fn shutdown(&self) -> Result<(), Error> {
        let mut first = Ok(());
        // An order in progress ends first: a replica that is being dropped has a stopped group and cannot be flushed.
        let last_order = tokio::time::timeout(LAST_ORDER_WAIT, self.orders.lock()).await;
        for replica in self.replicas() {
            if let Err(error) = replica.flush().await {
                warn!(partition = %replica.id(), %error, "flush at shutdown failed; the log still has the rows");
                first = first.and(Err(error));
            }
        }
        self.stop.cancel();
        drop(last_order);
        for replica in self.replicas() {
            first = first.and(replica.shutdown().await);
        }
        self.tasks.close();
        self.tasks.wait().await;
        self.replicas.write().clear();
        first
    }

    /// Waits for earlier orders that create or drop replicas; the next such order waits until the guard is dropped.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the node is stopping.
    pub(crate) async fn next_order(&self) -> Result<tokio::sync::MutexGuard<'_, ()>, Error> {
        let guard = self.orders.lock().await;
        if self.stop.is_cancelled() { Err(stopping()) } else { Ok(guard) }
    }
}

fn stopping() -> Error {
    Error::Unavailable("the node is stopping".to_owned())
}

impl Datanode {
    /// Ends without a flush, as a crash would; for tests and simulations.
    pub async fn abandon(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.replicas.write().clear();
    }
}

#[async_trait]
impl DataService for Datanode {
    async fn write(&self, request: WriteRequest) -> Result<WriteReply, Error> {
        let replica = self.replica(request.partition)?;
        // It needs no memory, and no disk.
        if let Some(reply) = replica.repeated(&request) {
            return Ok(reply);
        }
        self.wait_for_memory(&replica).await?;
        replica.write(request).await
    }

    async fn scan(&self, request: ScanRequest) -> Result<ScanReply, Error> {
        self.replica(request.partition)?.scan(request).await
    }

    async fn recognize(&self, catalog: Option<&CatalogHistory>) -> Result<(), Error> {
        self.followed.recognize(catalog)
    }

    async fn open_partition(&self, spec: PartitionSpec) -> Result<(), Error> {
        self.to_the_end(|node| async move { node.create(spec).await }).await
    }

    async fn drop_partition(
        &self,
        partition: PartitionId,
        replica: ReplicaId,
    ) -> Result<(), Error> {
        self.to_the_end(move |node| async move { node.remove(partition, replica).await }).await
    }

    async fn reconfigure(
        &self,
        partition: PartitionId,
        voters: BTreeMap<ReplicaId, NodeId>,
    ) -> Result<(), Error> {
        let replica = self.replica(partition)?;
        self.to_the_end(move |_| async move { replica.reconfigure(voters).await }).await
    }

    async fn transfer_leader(&self, partition: PartitionId, node: NodeId) -> Result<(), Error> {
        let replica = self.replica(partition)?;
        self.to_the_end(move |_| async move { replica.transfer_leader(node).await }).await
    }

    async fn reshape(&self, order: Reshape) -> Result<Reshaped, Error> {
        let replica = self.replica(order.partition())?;
        self.to_the_end(move |_| async move { replica.reshape(order).await }).await
    }

    async fn middle_key(&self, partition: PartitionId) -> Result<Option<Bound>, Error> {
        self.replica(partition)?.middle_key().await
    }

    async fn capture(
        &self,
        partition: PartitionId,
        epoch: Epoch,
        order: CaptureOrder,
    ) -> Result<u64, Error> {
        self.replica(partition)?.capture(epoch, order).await
    }

    async fn changes(&self, request: ChangesRequest) -> Result<Changes, Error> {
        self.replica(request.partition)?.changes(&request).await
    }

    async fn fill(&self, copy: TableId, scan: ScanRequest) -> Result<(u64, ScanReply), Error> {
        self.replica(scan.partition)?.fill(copy, &scan).await
    }

    async fn truncate_partition(&self, partition: PartitionId, id: RequestId) -> Result<(), Error> {
        self.replica(partition)?.truncate(id).await
    }

    async fn alter_partition(
        &self,
        partition: PartitionId,
        schema: Arc<TableSchema>,
    ) -> Result<(), Error> {
        self.replica(partition)?.alter(schema).await
    }

    async fn flush_partition(&self, partition: PartitionId) -> Result<(), Error> {
        let replica = self.replica(partition)?;
        self.link_members(&replica);
        replica.flush().await
    }

    async fn compact_partition(&self, partition: PartitionId) -> Result<(), Error> {
        self.replica(partition)?.compact(true).await.map(drop)
    }

    async fn status(&self) -> Result<Vec<ReplicaStatus>, Error> {
        let mut statuses: Vec<_> = self.replicas().iter().map(|replica| replica.status()).collect();
        for (partition, refused) in self.refused.read().iter() {
            // No order can name a replica without an id.
            let Some(replica) = self.near.in_log(*partition).or(refused.replica) else { continue };
            let failure = Some(refused.why.clone());
            let partition = *partition;
            statuses.push(ReplicaStatus {
                partition,
                replica,
                failure,
                ..ReplicaStatus::default()
            });
        }
        Ok(statuses)
    }

    async fn series_status(&self) -> Result<Vec<ReplicaStatus>, Error> {
        let mut statuses = self.status().await?;
        let mut bytes = 0;
        for status in statuses.iter_mut().filter(|status| status.leader) {
            let Ok(replica) = self.replica(status.partition) else { continue };
            match replica.series().await {
                Ok(sketch) => {
                    bytes += sketch.size_bytes();
                    // The rest is left out, so that the reply stays far below the limit of messages.
                    if bytes > SKETCH_BYTES_MAX {
                        break;
                    }
                    status.series = Some(sketch);
                }
                Err(error) => {
                    warn!(partition = %status.partition, %error, "could not read the series of a partition");
                }
            }
        }
        Ok(statuses)
    }

    async fn measured_status(&self) -> Result<Vec<ReplicaStatus>, Error> {
        let mut statuses = self.status().await?;
        let mut bytes = 0;
        for status in statuses.iter_mut().filter(|status| status.leader) {
            let Ok(replica) = self.replica(status.partition) else { continue };
            match replica.measures().await {
                Ok(measures) => {
                    bytes += measures.measures.size_bytes();
                    // The rest is left out, so that the reply stays far below the limit of messages.
                    if bytes > SKETCH_BYTES_MAX {
                        break;
                    }
                    status.measures = Some(measures);
                }
                Err(error) => {
                    warn!(partition = %status.partition, %error, "could not read the measures of a partition");
                }
            }
        }
        Ok(statuses)
    }
}

impl Datanode {
    /// Runs an order in a task of its own, so that it completes even when its caller times out.
    async fn to_the_end<T, F>(&self, order: impl FnOnce(Arc<Self>) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let Some(node) = self.me.upgrade() else {
            return Err(stopping());
        };
        tokio::spawn(order(node))
            .await
            .unwrap_or_else(|error| Err(Error::Internal(format!("an order failed: {error}"))))
    }
}
