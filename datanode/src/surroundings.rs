//! Resources besides its own partition that a replica's machine may use when the partition's range changes: the log
//! shared with the node's other groups, and the adjoining partitions.
//!
//! Invariants:
//! - a replica that was split off has files before it is in the log, and is in the log before its parent's manifest
//!   gives up the child's range: after a crash at any time one of the two has the rows;
//! - no other task creates or removes the files of a partition from the moment of the split until it is in the log;
//! - a replica of a child is made once: the one that is here, or was and is damaged, is left alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::RwLock;
use partita_engine::{EngineError, Offspring, Origin, Partition, Unrecorded};
use partita_proto::error::Error;
use partita_proto::id::{GroupId, PartitionId, ReplicaId};
use partita_proto::service::PartitionSpec;
use partita_raft::{Host, MachineError, Mark};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::aside::Aside;
use crate::files::Files;
use crate::machine::{failed, remembered};
use crate::making::{Hold, Making};
use crate::node::Datanode;
use crate::requests::Requests;

/// Pause between attempts on a full disk or without open files.
const SPACE_WAIT: Duration = Duration::from_millis(200);

/// The node, as its machines see it.
pub(crate) struct Surroundings {
    pub(crate) node: Weak<Datanode>,
    pub(crate) host: Arc<Host>,
    pub(crate) files: Arc<dyn Files>,
    /// Replicas that are never made here again.
    pub(crate) aside: Aside,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) making: Making,
    /// Partitions that are open, whether started or not yet.
    pub(crate) partitions: RwLock<BTreeMap<PartitionId, Arc<Partition>>>,
}

/// A partition that is being split off.
pub(crate) struct Birth {
    pub(crate) offspring: Offspring,
    pub(crate) partition: PartitionId,
    pub(crate) replica: ReplicaId,
    pub(crate) mark: Mark,
    pub(crate) origin: Origin,
    /// Keeps other tasks from creating or removing the new partition.
    pub(crate) hold: Hold,
}

impl Surroundings {
    /// The replica id under which the log knows a partition's group.
    pub(crate) fn in_log(&self, partition: PartitionId) -> Option<ReplicaId> {
        let groups = self.host.known_groups().into_iter();
        let mut groups = groups.filter(|(group, _)| *group == GroupId::from(partition));
        groups.next().map(|(_, replica)| replica)
    }

    /// A partition that is open here.
    pub(crate) fn partition(&self, partition: PartitionId) -> Option<Arc<Partition>> {
        self.partitions.read().get(&partition).cloned()
    }

    /// True if the parent of a partition is here and has not durably applied the split yet.
    pub(crate) fn awaits(&self, origin: Origin) -> bool {
        let parent = self.partition(origin.parent);
        let durable = |parent: Arc<Partition>| parent.durable_mark().map_or(0, |(index, _)| index);
        parent.is_some_and(|parent| durable(parent) < origin.index)
    }

    /// Creates the replica of a split-off partition, durably: first its files, then its group. Remains of a crash are
    /// used or replaced; a replica that is here for another reason is left alone. Returns true if the replica is to be
    /// started.
    async fn bear(&self, birth: Birth, stop: &CancellationToken) -> Result<bool, MachineError> {
        let started = Instant::now();
        let Birth { offspring, partition, replica, mark, origin, hold: _hold } = birth;
        let existing = self.partition(partition);
        if let Some(conflicting) =
            existing.as_ref().filter(|existing| existing.origin() != Some(origin))
            && mark.members().len() == 1
        {
            // No other replica has the rows that this one lacks.
            return Err(MachineError(format!(
                "partition {partition} cannot be split off from partition {} as of entry {}, because it exists here \
                 with another origin: {:?}",
                origin.parent,
                origin.index,
                conflicting.origin()
            )));
        }
        if existing.is_some() || self.in_log(partition).is_some() {
            return Ok(false);
        }
        if mark.members().len() > 1 && self.aside.has(partition, replica) {
            // It has run, and its votes are forgotten: others replace it.
            return Ok(false);
        }
        loop {
            match Partition::origin_at(&self.store, &root_of(partition)).await {
                Ok(Some(Some(recorded))) if recorded == origin => break,
                // It was created by an order, to receive everything from its leader.
                Ok(Some(_)) => return Ok(false),
                Ok(None) | Err(EngineError::Corrupted(_)) => {
                    self.remove(partition)?;
                    match offspring.make().await {
                        Ok(()) => break,
                        Err(error) => self.wait_for_space(partition, error, stop).await?,
                    }
                }
                Err(error) => self.wait_for_space(partition, error, stop).await?,
            }
        }
        let seeded = self.host.seed_group(partition.into(), replica, &mark).await;
        let seeded = seeded.map_err(|error| MachineError(error.to_string()))?;
        let took = started.elapsed();
        info!(%partition, %replica, parent = %origin.parent, upto = origin.index, ?took, "partition split off");
        Ok(seeded)
    }

    /// Creates an empty replica of a split-off partition, durably, because the parent's replica here will not apply the
    /// split; its leader sends it everything. Remains of a crash are replaced; a replica that is here for another reason
    /// is left alone.
    pub(crate) async fn create_empty(
        &self,
        spec: PartitionSpec,
        origin: Origin,
        stop: &CancellationToken,
    ) -> Result<(), MachineError> {
        let partition = spec.partition;
        let stopping = || MachineError("the node is stopping".to_owned());
        let node = self.node.upgrade().ok_or_else(stopping)?;
        let _hold = self.making.hold(partition).await;
        let is_here = self.partition(partition).is_some()
            || self.in_log(partition).is_some()
            || node.refusal(partition).is_some()
            || self.aside.has(partition, spec.replica);
        if is_here {
            return Ok(());
        }
        let root = root_of(partition);
        let engine = loop {
            match Partition::origin_at(&self.store, &root).await {
                Ok(None) => {}
                // A crash cut the split short: the replica is not in the log, so it has never run.
                Ok(Some(Some(recorded))) if recorded == origin => {}
                Ok(Some(_)) => return Ok(()),
                Err(EngineError::Corrupted(why)) => {
                    warn!(%partition, why, "files of an unknown replica prevent the creation of an empty one");
                    return Ok(());
                }
                Err(error) => {
                    self.wait_for_space(partition, error, stop).await?;
                    continue;
                }
            }
            self.remove(partition)?;
            let (store, clock) = (Arc::clone(&self.store), Arc::clone(&node.clock));
            let options = node.options().engine.clone();
            match Partition::create(store, root.clone(), spec.clone(), options, clock).await {
                Ok(engine) => break engine,
                Err(error) => {
                    self.remove(partition)?;
                    self.wait_for_space(partition, error, stop).await?;
                }
            }
        };
        // Until the parent's new state is durable, this may come again; an order may have removed the replica by then.
        while let Err(error) = self.aside.add(partition, spec.replica) {
            let error = match error {
                Error::DiskFull(why) => EngineError::DiskFull(why),
                error => EngineError::Storage(error.to_string()),
            };
            self.wait_for_space(partition, error, stop).await?;
        }
        self.partitions.write().insert(partition, Arc::clone(&engine));
        info!(%partition, replica = %spec.replica, parent = %origin.parent, upto = origin.index, "created an empty replica of a partition whose split was skipped");
        let tasks = node.tasks().clone();
        tasks.spawn(async move { node.begin_empty(engine).await });
        Ok(())
    }

    fn remove(&self, partition: PartitionId) -> Result<(), MachineError> {
        self.files.remove(partition).map_err(|error| MachineError(error.to_string()))
    }

    /// Waits before an operation that failed on a full disk, or because too many files were open, is repeated. Until
    /// it succeeds no entry is applied: a replica cannot skip what the others do.
    pub(crate) async fn wait_for_space(
        &self,
        partition: PartitionId,
        error: EngineError,
        stop: &CancellationToken,
    ) -> Result<(), MachineError> {
        let passes = matches!(error, EngineError::DiskFull(_) | EngineError::OutOfFiles(_));
        if !passes || stop.is_cancelled() {
            return Err(failed(error));
        }
        warn!(%partition, %error, "a change of the partition's range waits for disk space or open files");
        tokio::select! {
            () = stop.cancelled() => Err(failed(error)),
            () = tokio::time::sleep(SPACE_WAIT) => Ok(()),
        }
    }

    /// Makes the partition's new range durable.
    pub(crate) async fn record(
        &self,
        unrecorded: &mut Unrecorded,
        partition: PartitionId,
        stop: &CancellationToken,
    ) -> Result<(), MachineError> {
        while let Err(error) = unrecorded.record().await {
            self.wait_for_space(partition, error, stop).await?;
        }
        Ok(())
    }

    /// Makes the partition's new range durable after a split, in the background, while the partition continues.
    pub(crate) fn record_later(
        self: &Arc<Self>,
        birth: Option<Birth>,
        mut unrecorded: Unrecorded,
        partition: PartitionId,
        stop: CancellationToken,
    ) {
        // Without the node nothing continues: the log repeats the change at the next start.
        let Some(node) = self.node.upgrade() else { return };
        let near = Arc::clone(self);
        node.tasks().spawn(async move {
            // The child first: it must be in the log before the parent's manifest gives up its range.
            let work = async {
                if let Some(birth) = birth {
                    let child = birth.partition;
                    if near.bear(birth, &stop).await? {
                        near.begin(child);
                    }
                }
                near.record(&mut unrecorded, partition, &stop).await
            };
            if let Err(error) = work.await {
                error!(%partition, %error, "a change of the partition's range was not recorded");
            }
        });
    }

    /// The replica here of a frozen partition, and the requests it remembers. The error says why it is not in the state
    /// in which another partition can absorb it.
    pub(crate) fn frozen(
        &self,
        partition: PartitionId,
        frozen: u64,
    ) -> Result<(Arc<Partition>, Requests), MachineError> {
        let engine = self.partition(partition).ok_or_else(|| {
            MachineError(format!(
                "partition {partition}, which is to be absorbed, is not on this node"
            ))
        })?;
        let upto = engine.durable_mark().map_or(0, |(index, _)| index);
        let requests = remembered(&engine.state())?;
        if upto < frozen || !requests.is_frozen() {
            return Err(MachineError(format!(
                "partition {partition}, which is to be absorbed as of entry {frozen}, is not frozen here: its files \
                 are as of entry {upto}"
            )));
        }
        Ok((engine, requests))
    }

    /// Starts a replica that was split off. Not awaited, because a group that starts applies its own log.
    fn begin(&self, partition: PartitionId) {
        if let Some(node) = self.node.upgrade() {
            let tasks = node.tasks().clone();
            tasks.spawn(async move { node.begin(partition).await });
        }
    }
}

/// Path of a partition's files in the node's store.
pub(crate) fn root_of(partition: PartitionId) -> Path {
    Path::from(partition.to_string())
}
