//! The datanode: opens, runs and stops its replicas, and serves requests to them.
//!
//! On disk, below its directory: `partitions/<id>/` for each replica (`files.rs`). The directory's name
//! is the partition's number and never anything that a user wrote.
//!
//! Invariants:
//! - a replica is created only by an order ([`DataService::open_partition`]), never by a message; it
//!   begins together with the group's other members, or empty, to get everything from their leader;
//! - a replica whose files say that it had a log, but whose log is gone, is not opened;
//! - a replica whose files or log cannot be trusted is never served: it keeps the node from starting, or,
//!   where others can replace it ([`NodeOptions::put_aside`]), is put aside as `<id>.damaged-<n>`;
//! - memtables together stay below [`NodeOptions::memtables_bytes_max`] times two; writes wait, then
//!   are refused, beyond that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use object_store::ObjectStore;
use parking_lot::RwLock;
use partita_engine::{EngineError, EngineOptions, Partition};
use partita_proto::clock::Clock;
use partita_proto::error::Error;
use partita_proto::id::{GroupId, NodeId, PartitionId, ReplicaId};
use partita_proto::schema::TableSchema;
use partita_proto::service::{
    DataService, PartitionSpec, ReplicaStatus, RequestId, ScanReply, ScanRequest, WriteReply,
    WriteRequest,
};
use partita_raft::{Host, Start};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use crate::files::{Files, LocalFiles};
use crate::machine::PartitionMachine;
use crate::maintenance::{self, View};
use crate::raft_error;
use crate::replica::Replica;

/// Where partitions live below the node's directory.
const PARTITIONS: &str = "partitions";
/// How long a write waits for memtables to be flushed before it is refused.
const MEMTABLE_WAIT: Duration = Duration::from_secs(10);
/// How often it looks.
const MEMTABLE_POLL: Duration = Duration::from_millis(5);

/// What a datanode needs to know.
pub struct NodeOptions {
    /// The node's number.
    pub node: NodeId,
    /// Its directory.
    pub dir: PathBuf,
    /// Bytes that all memtables together may have before the largest is flushed.
    pub memtables_bytes_max: u64,
    /// Options of every partition.
    pub engine: EngineOptions,
    /// Whether a damaged replica is put aside at the start, for meta to have it made anew. Otherwise the
    /// node does not start.
    pub put_aside: bool,
}

/// A node's replicas.
pub struct Datanode {
    /// Itself, for orders that must end even when who gave them stops waiting.
    me: Weak<Self>,
    options: NodeOptions,
    host: Arc<Host>,
    files: Arc<dyn Files>,
    store: Arc<dyn ObjectStore>,
    clock: Arc<dyn Clock>,
    replicas: RwLock<BTreeMap<PartitionId, Arc<Replica>>>,
    /// One order at a time creates or drops replicas.
    orders: tokio::sync::Mutex<()>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Datanode {
    /// Opens every replica that is on disk and starts the background work.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when a replica's files or log cannot be trusted, [`Error::Unavailable`] when
    /// the directory cannot be used.
    pub async fn open(
        options: NodeOptions,
        host: Arc<Host>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, Error> {
        let files = LocalFiles::open(options.dir.join(PARTITIONS))?;
        Self::open_over(options, host, clock, Arc::new(files)).await
    }

    /// As [`Datanode::open`], over files that may be anywhere.
    ///
    /// # Errors
    /// As [`Datanode::open`].
    pub async fn open_over(
        options: NodeOptions,
        host: Arc<Host>,
        clock: Arc<dyn Clock>,
        files: Arc<dyn Files>,
    ) -> Result<Arc<Self>, Error> {
        let store = files.store();
        let node = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            options,
            host,
            files,
            store,
            clock,
            replicas: RwLock::default(),
            orders: tokio::sync::Mutex::new(()),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        node.open_all().await?;
        node.tasks.spawn(maintenance::run(Arc::clone(&node), node.stop.child_token()));
        Ok(node)
    }

    async fn open_all(&self) -> Result<(), Error> {
        let found = self.files.partitions()?;
        let known: BTreeSet<GroupId> =
            self.host.known_groups().into_iter().map(|(group, _)| group).collect();
        for group in &known {
            let partition = PartitionId(group.0);
            if *group != partita_proto::id::META_GROUP && !found.contains(&partition) {
                // Its directory went first when it was dropped.
                self.destroy_group(partition).await?;
            }
        }
        for partition in found {
            let in_log = known.contains(&GroupId::from(partition));
            match self.open_one(partition, in_log).await {
                Err(Error::Corrupted(damage)) if self.options.put_aside => {
                    self.put_aside(partition, &damage).await?;
                }
                opened => opened?,
            }
        }
        Ok(())
    }

    async fn open_one(&self, partition: PartitionId, in_log: bool) -> Result<(), Error> {
        let engine = Partition::open(
            Arc::clone(&self.store),
            root_of(partition),
            self.options.engine.clone(),
            Arc::clone(&self.clock),
        )
        .await;
        let engine = match engine {
            Ok(engine) => engine,
            // Its creation never finished, so nobody was told that it exists.
            Err(EngineError::NotFound(_)) => {
                warn!(%partition, "removing what a creation that did not finish has left");
                return self.files.remove(partition);
            }
            Err(error) => return Err(error.into()),
        };
        if !in_log && engine.durable_mark().is_some() {
            return Err(Error::Corrupted(format!(
                "partition {partition} has files but the log does not know it"
            )));
        }
        self.start(engine, in_log).await
    }

    /// Takes a damaged replica out of use. It is as if the node never had it: with its log it forgets its
    /// votes too, so it must never come back under its number. Its files are kept for people to look at.
    async fn put_aside(&self, partition: PartitionId, damage: &str) -> Result<(), Error> {
        self.destroy_group(partition).await?;
        let to = self.files.put_aside(partition)?;
        error!(%partition, damage, to, "a damaged replica was put aside");
        Ok(())
    }

    /// Starts the group of an open engine partition.
    async fn start(&self, engine: Arc<Partition>, restart: bool) -> Result<(), Error> {
        let config = engine.config();
        let partition = config.partition;
        let machine = PartitionMachine::new(Arc::clone(&engine))
            .map_err(|error| Error::Corrupted(error.to_string()))?;
        let machine = Arc::new(machine);
        let start = match (restart, config.join) {
            (true, _) => Start::Restart,
            (false, true) => Start::Join,
            (false, false) => Start::Create { members: config.members.clone() },
        };
        let as_machine: Arc<dyn partita_raft::Machine> = Arc::<PartitionMachine>::clone(&machine);
        let group = self
            .host
            .start_group(partition.into(), config.replica, as_machine, start)
            .await
            .map_err(|error| raft_error(partition, error))?;
        let replica = Replica::start(engine, machine, group, &self.tasks, &self.stop);
        self.replicas.write().insert(partition, replica);
        Ok(())
    }

    async fn destroy_group(&self, partition: PartitionId) -> Result<(), Error> {
        self.host
            .destroy_group(partition.into())
            .await
            .map_err(|error| raft_error(partition, error))
    }

    /// The node's options.
    pub fn options(&self) -> &NodeOptions {
        &self.options
    }

    /// Groups that keep the log from being reclaimed.
    pub(crate) fn pressure(&self) -> watch::Receiver<Vec<GroupId>> {
        self.host.pressure()
    }

    pub(crate) fn replica(&self, partition: PartitionId) -> Result<Arc<Replica>, Error> {
        self.replicas
            .read()
            .get(&partition)
            .cloned()
            .ok_or_else(|| Error::NotFound { kind: "partition", name: partition.to_string() })
    }

    pub(crate) fn replicas(&self) -> Vec<Arc<Replica>> {
        self.replicas.read().values().cloned().collect()
    }

    pub(crate) fn views(&self, pinning: &BTreeSet<GroupId>) -> Vec<View> {
        self.replicas()
            .iter()
            .map(|replica| View {
                partition: replica.id(),
                memtable_bytes: replica.partition().stats().memtable_bytes,
                wants_flush: replica.partition().wants_flush(),
                wants_compaction: replica.partition().wants_compaction(),
                pins_log: pinning.contains(&GroupId::from(replica.id())),
            })
            .collect()
    }

    /// Waits while memtables are over twice their budget: flushing cannot keep up.
    async fn wait_for_memory(&self, replica: &Replica) -> Result<(), Error> {
        let limit = self.options.memtables_bytes_max.saturating_mul(2);
        let used = || -> u64 {
            self.replicas.read().values().map(|one| one.partition().memtable_bytes()).sum()
        };
        if used() <= limit {
            return Ok(());
        }
        let deadline = tokio::time::Instant::now() + MEMTABLE_WAIT;
        while used() > limit {
            if tokio::time::Instant::now() >= deadline {
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
        Ok(())
    }

    /// Stops taking requests, flushes every memtable and stops the groups.
    ///
    /// # Errors
    /// The first flush or stop that failed; the rest is stopped all the same. What was not flushed is
    /// still in the log.
    pub async fn shutdown(&self) -> Result<(), Error> {
        let mut first = Ok(());
        for replica in self.replicas() {
            if let Err(error) = replica.flush().await {
                warn!(partition = %replica.id(), %error, "flush at shutdown failed; the log still has the rows");
                first = first.and(Err(error));
            }
        }
        self.stop.cancel();
        for replica in self.replicas() {
            first = first.and(replica.shutdown().await);
        }
        self.tasks.close();
        self.tasks.wait().await;
        self.replicas.write().clear();
        first
    }
}

impl Datanode {
    /// Ends as a crash would, for tests and simulations: nothing is flushed.
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
        self.wait_for_memory(&replica).await?;
        replica.write(request).await
    }

    async fn scan(&self, request: ScanRequest) -> Result<ScanReply, Error> {
        self.replica(request.partition)?.scan(request).await
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

    async fn transfer_leader(&self, partition: PartitionId, to: NodeId) -> Result<(), Error> {
        let replica = self.replica(partition)?;
        self.to_the_end(move |_| async move { replica.transfer_leader(to).await }).await
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
        self.replica(partition)?.flush().await
    }

    async fn compact_partition(&self, partition: PartitionId) -> Result<(), Error> {
        self.replica(partition)?.compact(true).await.map(drop)
    }

    async fn status(&self) -> Result<Vec<ReplicaStatus>, Error> {
        Ok(self.replicas().iter().map(|replica| replica.status()).collect())
    }
}

impl Datanode {
    /// Runs an order in a task of its own: half an order must not be left because the one who gave it
    /// timed out.
    async fn to_the_end<F: Future<Output = Result<(), Error>> + Send + 'static>(
        &self,
        order: impl FnOnce(Arc<Self>) -> F,
    ) -> Result<(), Error> {
        let Some(node) = self.me.upgrade() else {
            return Err(Error::Unavailable("the node is stopping".to_owned()));
        };
        tokio::spawn(order(node))
            .await
            .unwrap_or_else(|error| Err(Error::Internal(format!("an order failed: {error}"))))
    }

    async fn create(&self, spec: PartitionSpec) -> Result<(), Error> {
        let _one_at_a_time = self.orders.lock().await;
        let partition = spec.partition;
        if let Ok(replica) = self.replica(partition) {
            if replica.number() != spec.replica {
                return Err(Error::Unavailable(format!(
                    "partition {partition} is here as replica {}: it must be dropped before it can be \
                     replica {}",
                    replica.number(),
                    spec.replica
                )));
            }
            return replica.lead_if_alone().await;
        }
        let engine = Partition::create(
            Arc::clone(&self.store),
            root_of(partition),
            spec,
            self.options.engine.clone(),
            Arc::clone(&self.clock),
        )
        .await;
        let started = match engine {
            Ok(engine) => self.start(engine, false).await,
            Err(error) => Err(Error::from(error)),
        };
        if let Err(error) = started {
            // Nobody was told that it exists: leave nothing behind.
            self.files.remove(partition)?;
            self.destroy_group(partition).await?;
            return Err(error);
        }
        info!(%partition, "partition created");
        self.replica(partition)?.lead_if_alone().await
    }

    /// Every step may be done already by an order that failed half-way.
    async fn remove(&self, partition: PartitionId, number: ReplicaId) -> Result<(), Error> {
        let _one_at_a_time = self.orders.lock().await;
        if self.replica(partition).is_ok_and(|replica| replica.number() != number) {
            // The order is about one that was dropped before this one came.
            return Ok(());
        }
        if let Ok(replica) = self.replica(partition)
            && let Err(error) = replica.shutdown().await
        {
            warn!(%partition, %error, "group of a dropped partition did not stop cleanly");
        }
        if let Ok(replica) = self.replica(partition) {
            // A flush under way would write into the directory after it is gone.
            replica.partition().close().await;
        }
        self.files.remove(partition)?;
        let group = GroupId::from(partition);
        if self.host.known_groups().contains(&(group, number)) {
            self.destroy_group(partition).await?;
        }
        if self.replicas.write().remove(&partition).is_some() {
            info!(%partition, "partition dropped");
        }
        Ok(())
    }
}

fn root_of(partition: PartitionId) -> object_store::path::Path {
    object_store::path::Path::from(partition.to_string())
}
