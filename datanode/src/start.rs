//! Creation, start and removal of a node's replicas: at its start, by order, and by a split.
//!
//! Invariants:
//! - a replica is created only by an order ([`partita_proto::service::DataService::open_partition`]), by an entry of its
//!   parent's log, or with a state of its parent from after that entry; it begins together with the group's other
//!   members, or empty, to receive everything from their leader, or with its parent's files;
//! - a replica whose files refer to a log that is gone is not opened; one that was split off and never reached the log
//!   waits until its parent has applied the split again;
//! - the log of a replica without files is removed only if the files were dropped, or if others can replace the
//!   replica: a disk that is not mounted loses no row;
//! - a replica whose manifest or log cannot be trusted is never served. Where others can replace it
//!   ([`crate::NodeOptions::put_aside`]) it is put aside as `<id>.damaged-<n>`; otherwise it stays as it is and is
//!   reported, and the node's other replicas serve;
//! - a replica with damaged files is put aside too, where others can replace it. If it is the only one, it serves the
//!   requests that do not need those files;
//! - a replica of an older copy of the directory is not started, and stays as it is (`older.rs`);
//! - a removed replica never comes back under its id: one that was split off is kept until its parent has durably
//!   applied the split, and one that was put aside is remembered (`aside.rs`);
//! - a missing replica is waited for or reported ([`Datanode::until_led`]), never recreated: it would be empty.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use partita_engine::{EngineError, Origin, Partition};
use partita_proto::error::Error;
use partita_proto::id::{META_GROUP, PartitionId, ReplicaId};
use partita_proto::service::PartitionSpec;
use partita_raft::{Mark, Start};
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::files::Found;
use crate::load::Load;
use crate::machine::PartitionMachine;
use crate::node::{Datanode, Refused};
use crate::older;
use crate::raft_error;
use crate::replica::Replica;
use crate::surroundings::root_of;

/// Maximum time that a drop waits for rows in memory to be flushed to files, which go to the trash, while other orders
/// proceed. Meta waits longer for the order.
const KEEP_ROWS_WAIT: Duration = Duration::from_secs(10);
/// Maximum time for the rows that came meanwhile: other orders wait.
const KEEP_REST_WAIT: Duration = Duration::from_secs(2);
/// Maximum time that a start waits for all partitions that parents' logs have still to split off.
const REPLAY_WAIT: Duration = Duration::from_secs(30);
/// Polling interval of that wait.
const REPLAY_POLL: Duration = Duration::from_millis(2);

impl Datanode {
    /// Waits until these partitions, which have no other replicas, are led here. A partition that was split off just
    /// before the last process ended may not be on disk yet: its parent's log recreates it.
    ///
    /// # Errors
    /// [`Error::NotFound`] when no log creates one of them; the error that keeps another from leading.
    pub async fn until_led(&self, mut partitions: Vec<PartitionId>) -> Result<(), Error> {
        let deadline = Instant::now() + REPLAY_WAIT;
        // A child has a higher number than its parent.
        partitions.sort_unstable();
        for partition in partitions {
            if self.refusal(partition).is_some() {
                // It is reported already, and requests to it get the reason.
                continue;
            }
            if self.replica(partition).is_err() {
                let cut_off = self.until_cut_off(partition);
                if let Ok(cut_off) = tokio::time::timeout_at(deadline, cut_off).await {
                    cut_off?;
                } else {
                    // It may wait for disk space; dropping another partition makes space, and needs the node to be up.
                    warn!(%partition, "not split off from its parent yet; requests to it have to wait");
                    continue;
                }
            }
            self.replica(partition)?.lead_if_alone().await?;
        }
        Ok(())
    }

    /// Waits until everything in the logs here is applied, and the partition that results from it runs.
    async fn until_cut_off(&self, partition: PartitionId) -> Result<(), Error> {
        info!(%partition, "waiting for the parent's log to split off the partition");
        for replica in self.replicas() {
            replica.lead_if_alone().await?;
            replica.read_barrier().await?;
        }
        // The task that creates it has held this since the split was applied.
        drop(self.near.making.hold(partition).await);
        while self.replica(partition).is_err() {
            self.near.in_log(partition).ok_or_else(|| missing(partition))?;
            tokio::time::sleep(REPLAY_POLL).await;
        }
        Ok(())
    }

    /// Starts every replica that is on disk.
    pub(crate) async fn open_all(&self) -> Result<(), Error> {
        let _one_at_a_time = self.next_order().await?;
        let on_disk = self.near.files.partitions()?;
        let groups = self.near.host.known_groups().into_iter().map(|(group, _)| group);
        let logged: BTreeSet<PartitionId> =
            groups.filter(|group| *group != META_GROUP).map(|group| PartitionId(group.0)).collect();
        self.give_up_logs(&logged, &on_disk).await?;
        self.list_older(&on_disk.here)?;
        // Before any replica applies its log: the treatment of one depends on the state of others.
        let mut opened = BTreeMap::new();
        for partition in on_disk.here {
            match self.open_files(partition, logged.contains(&partition)).await {
                Ok(Some(engine)) => match self.replaceable_damage(&engine) {
                    None => drop(opened.insert(partition, engine)),
                    Some(damage) => {
                        let damage = Error::Corrupted(damage);
                        self.put_aside_or(partition, damage, Some(&engine)).await?;
                    }
                },
                Ok(None) => {}
                Err(error) => self.put_aside_or(partition, error, None).await?,
            }
        }
        let mut starts = Vec::new();
        for (partition, engine) in &opened {
            match self.check_log(engine, logged.contains(partition), &opened).await {
                Ok(Some(start)) => starts.push((Arc::clone(engine), start)),
                Ok(None) => {}
                Err(error) => self.put_aside_or(*partition, error, Some(engine)).await?,
            }
        }
        drop(opened);
        // All replicas are registered before one applies its log, which may refer to others.
        for (engine, _) in &starts {
            self.know(engine);
        }
        for (engine, start) in starts {
            let partition = engine.config().partition;
            if let Err(error) = self.start(Arc::clone(&engine), start).await {
                self.put_aside_or(partition, error, Some(&engine)).await?;
            }
        }
        Ok(())
    }

    /// Description of the damage to a replica's files, if others can replace the replica.
    fn replaceable_damage(&self, engine: &Partition) -> Option<String> {
        let damage = engine.damage();
        let replaceable = self.options().put_aside && !is_alone(engine);
        (replaceable && !damage.is_empty()).then(|| damage.join("; "))
    }

    /// Removes the logs of replicas that have no files here, if their files were dropped or can be replaced.
    async fn give_up_logs(
        &self,
        logged: &BTreeSet<PartitionId>,
        on_disk: &Found,
    ) -> Result<(), Error> {
        let orphans: Vec<_> = logged.difference(&on_disk.here).collect();
        let mut missing = orphans.iter().filter(|partition| !on_disk.dropped.contains(partition));
        // If no files are left at all, the disk is more likely not mounted than the replicas gone.
        let replaceable = self.options().put_aside && !on_disk.here.is_empty();
        if let Some(partition) = missing.next()
            && !replaceable
        {
            return Err(without_files(**partition, missing.count()));
        }
        for partition in orphans {
            if !on_disk.dropped.contains(partition) {
                if let Some(replica) = self.near.in_log(*partition) {
                    self.near.aside.add(*partition, replica)?;
                }
                error!(%partition, "the files of a replica are missing: its log is removed, others must replace it");
            }
            self.destroy_group(*partition).await?;
        }
        // Last: these directories record what was dropped.
        for partition in on_disk.dropped.difference(&on_disk.here) {
            self.near.files.discard(*partition, self.clock.now_ms())?;
        }
        self.near.files.sweep(self.clock.now_ms(), self.trash_keep_ms())
    }

    /// Lists the replicas of an older copy, and distrusts their logs.
    fn list_older(&self, present: &BTreeSet<PartitionId>) -> Result<(), Error> {
        let whole_directory = self.options().older || self.older.damaged;
        let listed = if whole_directory { present.clone() } else { &self.older.all() & present };
        let accepted = &listed & &self.options().accepted;
        for partition in &accepted {
            warn!(%partition, "serving a replica of an older copy, as its operator accepted");
        }
        let older = &listed - &accepted;
        self.near.host.distrust(&older.iter().map(|partition| (*partition).into()).collect());
        self.older.replace(older)
    }

    async fn open_files(
        &self,
        partition: PartitionId,
        in_log: bool,
    ) -> Result<Option<Arc<Partition>>, Error> {
        let engine = Partition::open(
            Arc::clone(&self.near.store),
            root_of(partition),
            self.options().engine.clone(),
            Arc::clone(&self.clock),
        );
        match engine.await {
            Ok(engine) => Ok(Some(engine)),
            // A replica is in the log only once its files are complete.
            Err(EngineError::NotFound(_)) if in_log => Err(without_files(partition, 0)),
            // Its creation never finished, so it was never reported as created.
            Err(EngineError::NotFound(_)) => {
                warn!(%partition, "removing files left by an unfinished creation");
                self.near.files.remove(partition)?;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Way to start a replica that has files; `None` if it is not to be started.
    async fn check_log(
        &self,
        engine: &Partition,
        in_log: bool,
        opened: &BTreeMap<PartitionId, Arc<Partition>>,
    ) -> Result<Option<Start>, Error> {
        let config = engine.config();
        let partition = config.partition;
        if in_log {
            return Ok(Some(Start::Restart));
        }
        if self.older.has(partition) {
            // The replica may have voted since the copy was made.
            return Err(Error::Corrupted(format!(
                "partition {partition} belongs to an older copy and is not in its log"
            )));
        }
        let Some((index, _)) = engine.durable_mark() else {
            return Ok(Some(match config.join {
                true => Start::Join,
                false => Start::Create { members: config.members.clone() },
            }));
        };
        match engine.origin() {
            Some(origin) if origin.index == index => {
                let parent = opened.get(&origin.parent).map(|parent| parent.durable_mark());
                if parent.is_some_and(|mark| mark.is_none_or(|(upto, _)| upto < index)) {
                    info!(%partition, parent = %origin.parent, "waiting until the parent is split");
                } else {
                    // The parent will not apply the split again: it was dropped, or has received the files of another
                    // replica.
                    let path = self.near.files.put_aside(partition)?;
                    warn!(%partition, parent = %origin.parent, path, "put aside a replica whose parent will not be split again");
                }
                Ok(None)
            }
            _ => Err(Error::Corrupted(format!(
                "partition {partition} has files but is not in the log"
            ))),
        }
    }

    /// Takes a damaged replica out of use. If others can replace it, the node treats it as if it had never existed:
    /// with its log its votes are forgotten too, so it must never come back under its id. Its files are kept for people
    /// to inspect. If it is the only replica, all of it stays where it is, and requests get the reason.
    async fn put_aside_or(
        &self,
        partition: PartitionId,
        error: Error,
        engine: Option<&Arc<Partition>>,
    ) -> Result<(), Error> {
        let Error::Corrupted(damage) = &error else { return Err(error) };
        self.near.partitions.write().remove(&partition);
        let replica = engine.map(|engine| engine.config().replica);
        let sole_replica = engine.is_some_and(|engine| is_alone(engine));
        let refuse = |why, has_others| {
            self.refused.write().insert(partition, Refused { why, replica, has_others })
        };
        if self.older.has(partition) {
            let why = older::describe(partition);
            error!(%partition, why, "a replica of an older copy is not served");
            refuse(why, !sole_replica);
            return Ok(());
        }
        if !self.options().put_aside || sole_replica {
            error!(%partition, damage, "a damaged replica without another replica is not served");
            refuse(damage.clone(), false);
            return Ok(());
        }
        if let Some(replica) = self.near.in_log(partition).or(replica) {
            self.near.aside.add(partition, replica)?;
        }
        self.destroy_group(partition).await?;
        let path = self.near.files.put_aside(partition)?;
        error!(%partition, damage, path, "a damaged replica was put aside");
        Ok(())
    }

    fn know(&self, engine: &Arc<Partition>) {
        let partition = engine.config().partition;
        self.near.partitions.write().insert(partition, Arc::clone(engine));
    }

    /// Starts the group of an open, registered engine partition.
    async fn start(&self, engine: Arc<Partition>, start: Start) -> Result<(), Error> {
        let config = engine.config();
        let partition = config.partition;
        let stop = self.stop.child_token();
        // The seed depends on the ids only, so a repeated run samples the same keys.
        let seed = partition.0.rotate_left(32) ^ config.replica.0;
        let rate = self.options().partition_rows_per_s;
        let load = Load::new(Arc::clone(&self.clock), &engine.codec(), seed, rate.is_some());
        if let Some((low, high)) = engine.edges() {
            load.edges(&low, &high);
        }
        let load = Arc::new(load);
        let (near, counts) = (Arc::clone(&self.near), Arc::clone(&load));
        let machine = PartitionMachine::new(Arc::clone(&engine), near, counts, stop.clone())
            .map_err(|error| Error::Corrupted(error.to_string()))?;
        let machine = Arc::new(machine);
        let as_machine: Arc<dyn partita_raft::Machine> = Arc::<PartitionMachine>::clone(&machine);
        let group = self
            .near
            .host
            .start_group(partition.into(), config.replica, as_machine, start)
            .await
            .map_err(|error| raft_error(partition, error))?;
        let replica = Replica::start(engine, machine, group, load, rate, self.tasks(), stop);
        self.replicas.write().insert(partition, replica);
        Ok(())
    }

    async fn destroy_group(&self, partition: PartitionId) -> Result<(), Error> {
        let destroyed = self.near.host.destroy_group(partition.into()).await;
        destroyed.map_err(|error| raft_error(partition, error))
    }

    /// Starts a replica that was split off.
    pub(crate) async fn begin(&self, partition: PartitionId) {
        // A node that is stopping starts it when it runs again.
        let Ok(_one_at_a_time) = self.next_order().await else { return };
        if let Err(error) = self.start_known(partition, Start::Seeded).await {
            // Its files and its log exist: the next order, or the next start of the node, starts it.
            error!(%partition, %error, "a replica that was split off did not start");
        }
    }

    /// Starts a replica that was created empty because its parent skipped the split.
    pub(crate) async fn begin_empty(&self, engine: Arc<Partition>) {
        let partition = engine.config().partition;
        // A node that is stopping starts it when it runs again.
        let Ok(_one_at_a_time) = self.next_order().await else { return };
        // An order may have removed or replaced it meanwhile.
        let is_current =
            self.near.partition(partition).is_some_and(|known| Arc::ptr_eq(&known, &engine));
        if !is_current || self.replica(partition).is_ok() {
            return;
        }
        if let Err(error) = self.start(engine, Start::Join).await {
            // Its files exist: the next start of the node starts it.
            error!(%partition, %error, "a replica that was created empty did not start");
        }
    }

    /// Starts a replica that is in the log and does not run.
    async fn start_known(&self, partition: PartitionId, start: Start) -> Result<(), Error> {
        if self.stop.is_cancelled()
            || self.replica(partition).is_ok()
            || self.near.in_log(partition).is_none()
        {
            return Ok(());
        }
        let Some(engine) = self.open_files(partition, true).await? else { return Ok(()) };
        self.know(&engine);
        let started = self.start(engine, start).await;
        if started.is_err() {
            self.near.partitions.write().remove(&partition);
        }
        started
    }

    /// Creates a replica, or makes sure that it runs.
    pub(crate) async fn create(&self, spec: PartitionSpec) -> Result<(), Error> {
        let _one_at_a_time = self.next_order().await?;
        let partition = spec.partition;
        if let Some(damage) = self.refusal(partition) {
            // It is not replaced while an operator may still need its intact rows.
            return Err(Error::Corrupted(format!(
                "partition {partition} exists here and is damaged: {damage}"
            )));
        }
        let hold = self.near.making.hold_soon(partition).await?;
        // Read now that no other task creates one: a partition split off a moment ago is in the log.
        let number = self.replica(partition).map(|replica| replica.number()).ok();
        match number.or_else(|| self.near.in_log(partition)) {
            Some(number) if number == spec.replica => {
                drop(hold);
                self.start_known(partition, Start::Restart).await?;
                return self.replica(partition)?.lead_if_alone().await;
            }
            Some(number) => {
                return Err(Error::Unavailable(format!(
                    "partition {partition} exists here as replica {number}: it must be dropped before replica {} is \
                     created",
                    spec.replica
                )));
            }
            None => {}
        }
        // A replica that joins is known to its group only after meta has recorded that it was created.
        if !spec.join && spec.members.len() > 1 && self.near.aside.has(partition, spec.replica) {
            return Err(Error::Unavailable(format!(
                "replica {} of partition {partition} was damaged and put aside here; another number must replace it",
                spec.replica
            )));
        }
        let engine = self.make(spec).await?;
        drop(hold);
        let config = engine.config();
        let start = match config.join {
            true => Start::Join,
            false => Start::Create { members: config.members.clone() },
        };
        if let Err(error) = self.start(engine, start).await {
            // Its creation was not reported to anyone: leave nothing behind.
            self.near.partitions.write().remove(&partition);
            self.near.files.begin_removal(partition)?;
            self.destroy_group(partition).await?;
            self.near.files.remove(partition)?;
            return Err(error);
        }
        info!(%partition, "partition created");
        self.replica(partition)?.lead_if_alone().await
    }

    /// Creates the files of a replica. The caller has the [`Hold`](crate::making::Hold) of its partition.
    async fn make(&self, spec: PartitionSpec) -> Result<Arc<Partition>, Error> {
        let partition = spec.partition;
        let root = root_of(partition);
        let recorded = Partition::origin_at(&self.near.store, &root).await;
        if let Ok(Some(Some(origin))) = recorded
            && self.near.awaits(origin)
        {
            return Err(Error::Unavailable(format!(
                "partition {partition} is about to be split off from partition {} here",
                origin.parent
            )));
        }
        // The replica is not in the log, so files that are here belong to none: a creation failed, or a split of the
        // parent that will not be repeated.
        self.near.files.remove(partition)?;
        self.older.forget(partition)?;
        let creation = Partition::create(
            Arc::clone(&self.near.store),
            root,
            spec,
            self.options().engine.clone(),
            Arc::clone(&self.clock),
        );
        match creation.await {
            Ok(engine) => {
                self.know(&engine);
                Ok(engine)
            }
            Err(error) => {
                self.near.files.remove(partition)?;
                Err(error.into())
            }
        }
    }

    /// The parent and index from which a replica was split off, if the replica is in the log.
    async fn origin_in_log(&self, partition: PartitionId) -> Option<Origin> {
        self.near.in_log(partition)?;
        if let Some(engine) = self.near.partition(partition) {
            return engine.origin();
        }
        let recorded = Partition::origin_at(&self.near.store, &root_of(partition)).await;
        recorded.ok().flatten().flatten()
    }

    /// Refuses to remove a replica whose parent has not durably applied the split yet.
    async fn check_cut(&self, partition: PartitionId) -> Result<(), Error> {
        if let Some(origin) = self.origin_in_log(partition).await
            && self.near.awaits(origin)
        {
            // The parent would create it again, without its votes.
            return Err(Error::Unavailable(format!(
                "partition {partition} was split off from partition {}, whose split is not durable here yet",
                origin.parent
            )));
        }
        Ok(())
    }

    /// Writes the rows of a replica that are only in memory to files, which go to the trash. Returns the reason if that
    /// fails, or takes longer than `wait`.
    async fn keep_rows(&self, replica: &Replica, wait: Duration) -> Result<(), String> {
        if self.options().trash_keep.is_zero() {
            return Ok(());
        }
        match tokio::time::timeout(wait, replica.write_rows()).await {
            Ok(written) => written.map_err(|error| error.to_string()),
            Err(_) => Err(format!("they were not written within {} seconds", wait.as_secs())),
        }
    }

    /// Removes a replica. An earlier order that failed half-way may have done some of the steps.
    pub(crate) async fn remove(
        &self,
        partition: PartitionId,
        number: ReplicaId,
    ) -> Result<(), Error> {
        // On a busy disk this takes longer than other orders can wait. Without it, the rest below is all there is.
        let rows = self.replica(partition).ok().filter(|replica| replica.number() == number);
        if let Some(replica) = rows {
            let _rest_is_kept_below = self.keep_rows(&replica, KEEP_ROWS_WAIT).await;
        }
        let _one_at_a_time = self.next_order().await?;
        let current = self.replica(partition).map(|replica| replica.number()).ok();
        if current.or_else(|| self.near.in_log(partition)).is_some_and(|current| current != number)
        {
            // The order refers to an earlier replica of the partition.
            return Ok(());
        }
        self.check_cut(partition).await?;
        if let Ok(replica) = self.replica(partition) {
            if let Err(reason) = self.keep_rows(&replica, KEEP_REST_WAIT).await {
                warn!(%partition, reason, "the newest rows of a dropped partition are missing in the trash");
            }
            if let Err(error) = replica.shutdown().await {
                warn!(%partition, %error, "group of a dropped partition did not stop cleanly");
            }
            // A flush in progress would write into the directory after it is gone.
            replica.partition().close().await;
        }
        let _hold = self.near.making.hold_soon(partition).await?;
        // A replica that was split off meanwhile was not in the log at the first check.
        self.check_cut(partition).await?;
        self.near.files.begin_removal(partition)?;
        if self.near.in_log(partition).is_some() {
            self.destroy_group(partition).await?;
        }
        self.near.files.discard(partition, self.clock.now_ms())?;
        self.older.forget(partition)?;
        self.sweep_trash().await;
        self.near.partitions.write().remove(&partition);
        self.refused.write().remove(&partition);
        if self.replicas.write().remove(&partition).is_some() {
            info!(%partition, "partition dropped");
        }
        Ok(())
    }
}

/// True if the partition has no other replicas, as far as this one knows.
fn is_alone(engine: &Partition) -> bool {
    let mark = engine.durable_mark().and_then(|(_, mark)| Mark::from_bytes(&mark).ok());
    match mark {
        Some(mark) => mark.members().len() == 1,
        None => engine.config().members.len() == 1,
    }
}

/// The error for a partition in the log whose files are missing, and `more` others like it.
fn without_files(partition: PartitionId, more: usize) -> Error {
    let suffix = match more {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Error::Corrupted(format!(
        "partition {partition}{suffix} is in the log, but its files are missing: is a disk not mounted? If they are \
         lost for good, create an empty directory {partition}.dropped beside the others to remove it from the log too"
    ))
}

fn missing(partition: PartitionId) -> Error {
    Error::NotFound {
        kind: "partition",
        name: format!("{partition} (neither on this disk nor in a log)"),
    }
}
