//! Inspects the cluster once a second while this process leads, and carries out the plan.
//!
//! Invariants: a change of replicas is recorded before any node is ordered to make it; leader transfers and removals of
//! unknown replicas are not, because repeating or omitting them breaks nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use partita_proto::error::Error;
use partita_proto::id::{NodeId, PartitionId, ReplicaId};
use partita_proto::member::Members;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Mover;
use super::plan::{NodeView, PartitionView, Step, View, plan};
use super::presence::Reports;
use crate::catalog::{NodeRecord, PartitionRecord, State, Step as CatalogStep};
use crate::core::Core;
use crate::load::Driver;
use crate::plan::Action;
use crate::reshape::{Reshaper, holder, may_go};
use crate::transition::{Command, Progress};
use crate::zones::zone_of;

/// Maximum time that a live node may be without a replica that it should have: after that the replica counts as
/// missing, as nothing will bring it back.
const MISSING_AFTER: Duration = Duration::from_secs(10);
/// Time for which a partition's leader stays after a transfer.
const TRANSFER_PAUSE: Duration = Duration::from_secs(10);
/// Time after which the removal of a replica is ordered again.
const REMOVAL_PAUSE: Duration = Duration::from_secs(10);
/// Maximum unrecorded orders (transfers, removals) under way.
const ORDERS_MAX: usize = 32;

/// The task that watches the nodes of the cluster.
pub(crate) struct Supervisor {
    core: Arc<Core>,
    mover: Mover,
    reshaper: Reshaper,
    driver: Driver,
    /// Replicas that their node should have and did not report, and since when.
    missing: BTreeMap<(PartitionId, ReplicaId), Instant>,
    /// Partitions whose leader was moved, when, and to which node.
    transferred: BTreeMap<PartitionId, (Instant, NodeId)>,
    removing: BTreeMap<(PartitionId, ReplicaId, NodeId), Instant>,
    orders: JoinSet<()>,
}

impl Supervisor {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        let mover = Mover::new(Arc::clone(&core));
        let reshaper = Reshaper::new(Arc::clone(&core));
        let driver = Driver::new(Arc::clone(&core));
        Self {
            core,
            mover,
            reshaper,
            driver,
            missing: BTreeMap::new(),
            transferred: BTreeMap::new(),
            removing: BTreeMap::new(),
            orders: JoinSet::new(),
        }
    }

    /// Runs until stopped.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut applied = self.core.machine.applied();
        let mut tick = tokio::time::interval(self.core.patience.tick);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = tick.tick() => {
                    self.plan_and_begin().await;
                    self.driver.tick();
                }
                changed = applied.changed() => if changed.is_err() { break },
            }
            self.core.publish_members();
            self.mover.keep_up();
            self.reshaper.keep_up();
            while self.orders.try_join_next().is_some() {}
        }
        self.orders.shutdown().await;
        self.mover.stop().await;
        self.reshaper.stop().await;
        self.driver.stop().await;
    }

    /// Makes a plan and begins its steps.
    async fn plan_and_begin(&mut self) {
        let core = Arc::clone(&self.core);
        let reports = core.presence.reports();
        // Plan on a snapshot of catalog and reports; the lock is released before anything is proposed.
        let (steps, removable, moving) = {
            let state = core.machine.state();
            self.note_missing(&state, &reports);
            let removable = state
                .reshaping()
                .filter_map(|record| Some((record.id, may_go(&state, &reports, record)?)));
            let removable: Vec<_> = removable.collect();
            let moving =
                state.moving().filter_map(|record| Some((record.id, record.target.as_ref()?.step)));
            let moving: BTreeMap<PartitionId, CatalogStep> = moving.collect();
            (plan(&self.view(&state, &reports)), removable, moving)
        };
        // Merged partitions whose replicas no node needs any more.
        for (partition, step) in removable {
            if let Err(error) = core.advance_at(partition, step, Progress::Left).await {
                warn!(%partition, %error, "recording the removal of a merged partition failed");
                return;
            }
            info!(%partition, "released the replicas of a merged partition");
        }
        // Carry the plan out; after a proposal that fails, the next tick makes a new plan.
        for step in steps {
            match step {
                Step::Move { partition, add, remove, why } => {
                    let replaces = moving.get(&partition).copied();
                    let command = Command::Move { partition, add, remove, replaces };
                    info!(%partition, ?why, ?command, "changing replicas");
                    if let Err(error) = self.core.propose(&command).await {
                        warn!(%partition, %error, "recording a change of replicas failed");
                        return;
                    }
                }
                Step::Renumber { partition, replicas } => {
                    let Some(step) = moving.get(&partition).copied() else { continue };
                    warn!(%partition, ?replicas, "renumbering new replicas that were lost");
                    let command = Command::Renumber { partition, step, replicas };
                    if let Err(error) = self.core.propose(&command).await {
                        warn!(%partition, %error, "recording new numbers of replicas failed");
                        return;
                    }
                }
                Step::Transfer { partition, from: source, to: destination } => {
                    self.transfer(partition, source, destination)
                }
                Step::GiveUp { partition } => {
                    let Some((holder, step)) = holder(&core.machine.state(), partition) else {
                        continue;
                    };
                    warn!(%partition, "giving up a split or merge: a replica is lost");
                    if let Err(error) = core.advance_at(holder, step, Progress::GiveUp).await {
                        warn!(%partition, %error, "recording that a split or merge is given up failed");
                        return;
                    }
                }
                Step::Remove { partition, replica, node } => self.remove(partition, replica, node),
            }
        }
    }

    fn note_missing(&mut self, state: &State, reports: &Reports) {
        let mut missing = BTreeSet::new();
        for partition in state.partitions() {
            // Members of the group, and replicas that it may have made members already.
            let created = partition.target.iter().flat_map(|target| {
                target
                    .created
                    .iter()
                    .filter_map(move |replica| target.replicas.get_key_value(replica))
            });
            for (replica, node) in partition.replicas.iter().chain(created) {
                let Some(statuses) = reports.replicas(*node).filter(|_| reports.is_live(*node))
                else {
                    continue;
                };
                // A replica that has failed contributes nothing to its group.
                let is_working = statuses.iter().any(|status| {
                    status.partition == partition.id
                        && status.replica == *replica
                        && status.failure.is_none()
                });
                if !is_working {
                    missing.insert((partition.id, *replica));
                }
            }
        }
        self.missing.retain(|key, _| missing.contains(key));
        for key in missing {
            self.missing.entry(key).or_insert(reports.now);
        }
    }

    fn view(&self, state: &State, reports: &Reports) -> View {
        let repair_after = self.core.options.repair_after;
        let node = |record: &NodeRecord| {
            let id = record.id;
            let statuses = reports.replicas(id);
            let has = statuses.unwrap_or_default().iter();
            NodeView {
                live: reports.is_live(id),
                lost: reports.silent_for(id) >= repair_after,
                draining: record.draining,
                zone: zone_of(&record.labels).map(str::to_owned),
                has: has.map(|status| (status.partition, status.replica)).collect(),
                reported: statuses.is_some(),
            }
        };
        let nodes = state.nodes().map(|record| (record.id, node(record)));
        let is_overdue = |start: &Instant| reports.now - *start >= repair_after.min(MISSING_AFTER);
        let mut observed = Seen::new(reports);
        let (load, now_ms) = (self.core.load.lock(), self.core.now_ms());
        let partitions = state.partitions().map(|record| {
            let (leader, bytes) = observed.take(record.id);
            let is_missing = |replica: &ReplicaId| {
                self.missing.get(&(record.id, *replica)).is_some_and(&is_overdue)
            };
            let missing = record.replicas.keys().copied().filter(&is_missing);
            let created = record.target.iter().flat_map(|target| target.created.iter().copied());
            let vanished = created.filter(&is_missing);
            let table = state.table(record.table);
            // The replicas' reports may be older than the transfer.
            let recent = self.transferred.get(&record.id);
            let recent = recent.filter(|(instant, _)| instant.elapsed() < TRANSFER_PAUSE);
            PartitionView {
                id: record.id,
                replicas: record.replicas.clone(),
                target: record.target.as_ref().map(|target| target.replicas.clone()),
                wanted: table.map_or(record.replicas.len(), |table| {
                    self.core.options.replicas_of(&table.schema.options)
                }),
                missing: missing.collect(),
                vanished: vanished.collect(),
                leader: recent.map(|(_, node)| *node).or(leader),
                settling: recent.is_some() || load.is_busy(record.id, now_ms),
                bytes,
                in_use: !record.is_leaving() && table.is_some_and(|table| table.is_visible()),
                reshaping: record.reshaping.is_some(),
            }
        });
        let child_replicas = state.splits_in_progress().flat_map(|split| {
            split.replicas.iter().map(|(replica, node)| (split.child, *replica, *node))
        });
        let awaited = self.missing.iter().filter(|(_, start)| !is_overdue(start));
        let awaited = awaited.filter_map(|((partition, replica), _)| {
            state.partition(*partition)?.replicas.get(replica).copied()
        });
        View {
            nodes: nodes.collect(),
            partitions: partitions.collect(),
            child_replicas: child_replicas.collect(),
            awaited: awaited.collect(),
        }
    }

    fn transfer(&mut self, partition: PartitionId, source: NodeId, destination: NodeId) {
        if self.orders.len() >= ORDERS_MAX {
            return;
        }
        self.transferred.retain(|_, (instant, _)| instant.elapsed() < TRANSFER_PAUSE);
        self.transferred.insert(partition, (Instant::now(), destination));
        let Some(record) = self.record(partition) else { return };
        let core = Arc::clone(&self.core);
        self.orders.spawn(async move {
            match core.tell_leader(&record, Action::Transfer(destination)).await {
                Ok(()) => info!(%partition, from = %source, to = %destination, "transferred leadership"),
                Err(error) => warn!(%partition, from = %source, to = %destination, %error, "transferring leadership failed"),
            }
        });
    }

    fn record(&self, partition: PartitionId) -> Option<Arc<PartitionRecord>> {
        self.core.machine.state().partition(partition).map(Arc::clone)
    }

    fn remove(&mut self, partition: PartitionId, replica: ReplicaId, node: NodeId) {
        self.removing.retain(|_, instant| instant.elapsed() < REMOVAL_PAUSE);
        let key = (partition, replica, node);
        if self.orders.len() >= ORDERS_MAX || self.removing.contains_key(&key) {
            return;
        }
        self.removing.insert(key, Instant::now());
        let core = Arc::clone(&self.core);
        self.orders.spawn(async move {
            match core.remove_unknown(partition, replica, node).await {
                Ok(()) => info!(%partition, %replica, %node, "removed an unknown replica"),
                Err(error) => {
                    warn!(%partition, %replica, %node, %error, "removing an unknown replica failed")
                }
            }
        });
    }
}

impl Core {
    /// Removes a replica that the catalog does not know. A read barrier of meta's group comes first, because the
    /// catalog of a deposed leader may be out of date.
    async fn remove_unknown(
        &self,
        partition: PartitionId,
        replica: ReplicaId,
        node: NodeId,
    ) -> Result<(), Error> {
        self.group.read_barrier().await.map_err(crate::core::raft_error)?;
        // The history of the catalog that does not know the replica: the node compares it with the newest history
        // that it has followed.
        let catalog = self.catalog_history()?;
        let expected = self.machine.state().is_known(partition, replica, node);
        if expected {
            return Ok(());
        }
        self.nodes.ordering(node, &catalog)?.drop_partition(partition, replica).await
    }

    /// Publishes the nodes to all subscribers, if anything about them has changed.
    pub(crate) fn publish_members(&self) {
        let members: Members = self.presence.reports().members(&self.machine.state());
        self.members.send_if_modified(|published| {
            let changed = **published != members;
            if changed {
                *published = Arc::new(members);
            }
            changed
        });
    }
}

/// Leaders and sizes of partitions, as replicas report them.
struct Seen {
    leaders: BTreeMap<PartitionId, (u64, NodeId)>,
    bytes: BTreeMap<PartitionId, u64>,
}

impl Seen {
    fn new(reports: &Reports) -> Self {
        let mut observed = Self { leaders: BTreeMap::new(), bytes: BTreeMap::new() };
        for (node, report) in reports.reports.iter().filter(|(node, _)| reports.is_live(**node)) {
            for status in report.replicas.iter() {
                let bytes = observed.bytes.entry(status.partition).or_default();
                *bytes = (*bytes).max(status.file_bytes);
                if status.leader {
                    let leader = (status.term, *node);
                    let newest = observed.leaders.entry(status.partition).or_insert(leader);
                    *newest = (*newest).max(leader);
                }
            }
        }
        observed
    }

    fn take(&mut self, partition: PartitionId) -> (Option<NodeId>, u64) {
        let leader = self.leaders.remove(&partition).map(|(_, node)| node);
        (leader, self.bytes.remove(&partition).unwrap_or(0))
    }
}
