//! Meta in a process: opening, running and stopping it.
//!
//! On disk, below its directory: `state/`, the applied catalog, `copies/` of it (`opening.rs`), and `load/`, what it knows
//! of load (`load/files.rs`). Its log is in the node's shared log, under group 0.
//!
//! Order of the start: the host; meta (the catalog can be read from then on); the datanode with the replicas on its
//! disk; at last [`Meta::run`], which sends pending orders. Changes wait until it runs.
//!
//! With several members, only the group's leader does this; the work of [`Meta::run`] begins with an election and
//! ends with the next one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::generation::Generation;
use partita_proto::history::{PerMille, ReshapeEvent};
use partita_proto::id::{META_GROUP, NodeId, ReplicaId};
use partita_proto::member::Heartbeat;
use partita_proto::service::{DataNodes, PartitionSpec};
use partita_raft::{Host, RaftError, Start};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::catalog::Step;
use crate::cluster::{Presence, Supervisor};
use crate::core::{Core, MetaOptions};
use crate::ddl_driver::DdlDriver;
use crate::error::MetaError;
use crate::leadership::OwnLeadership;
use crate::load::{self, Keeper, LoadFiles};
use crate::machine::CatalogMachine;
use crate::membership::MetaPeers;
use crate::memory_store::MemoryStore;
use crate::opening::{Opened, StoreOpening};
use crate::patience::Patience;
use crate::plan;
use crate::progress::Progress;

/// Replica number of meta's only member; partitions' replicas have other numbers.
const REPLICA: ReplicaId = ReplicaId(1);
/// Seed of choices between equally good partitions and nodes.
const SEED: u64 = 1;
/// Interval at which a member checks whether it leads.
const LEADERSHIP_POLL: Duration = Duration::from_millis(20);
/// Interval at which the leader has a majority confirm it, and maximum time without confirmation: a leader that is
/// cut off would not learn of its successor, and clients that still reach it would wait for nothing.
const CONFIRM_INTERVAL: Duration = Duration::from_secs(1);
const UNCONFIRMED_MAX: Duration = Duration::from_secs(4);

/// The meta service in this process.
pub struct Meta {
    pub(crate) core: Arc<Core>,
}

impl Meta {
    /// Opens the catalog, or creates one. When it returns, everything that was acknowledged is in
    /// [`partita_proto::service::MetaService::catalog`].
    ///
    /// # Errors
    /// [`MetaError::Corrupted`] if catalog or log are damaged or do not belong together,
    /// [`MetaError::Incompatible`], [`MetaError::Io`], and those of the group.
    pub async fn open(
        options: MetaOptions,
        host: Arc<Host>,
        nodes: Arc<dyn DataNodes>,
    ) -> Result<Arc<Self>, MetaError> {
        let store = StoreOpening::begin(&options.dir);
        Self::open_begun(store, options, host, nodes).await
    }

    /// As [`Meta::open`], over the store of `options.dir`, which began to open while the log was opened.
    ///
    /// # Errors
    /// As [`Meta::open`].
    pub async fn open_begun(
        store: StoreOpening,
        options: MetaOptions,
        host: Arc<Host>,
        nodes: Arc<dyn DataNodes>,
    ) -> Result<Arc<Self>, MetaError> {
        Self::open_patient(store, options, host, nodes, Patience::default()).await
    }

    /// As [`Meta::open`], with the catalog in memory: for simulations. It is made durable after every few entries,
    /// so that members which lag behind get a snapshot.
    ///
    /// # Errors
    /// As [`Meta::open`].
    pub async fn open_in_memory(
        options: MetaOptions,
        host: Arc<Host>,
        nodes: Arc<dyn DataNodes>,
        store: Arc<MemoryStore>,
    ) -> Result<Arc<Self>, MetaError> {
        let patience = Patience { undurable_max: 16, ..Patience::default() };
        let opened = Opened { machine: CatalogMachine::open(store)?, set_aside: None };
        Self::start(opened, options, host, nodes, patience).await
    }

    pub(crate) async fn open_patient(
        store: StoreOpening,
        options: MetaOptions,
        host: Arc<Host>,
        nodes: Arc<dyn DataNodes>,
        patience: Patience,
    ) -> Result<Arc<Self>, MetaError> {
        let log = known_replica(&host).map(|_| host.log_given_up(META_GROUP));
        let opened = store.open_catalog(log).await?;
        Self::start(opened, options, host, nodes, patience).await
    }

    /// Starts the group over an opened catalog.
    pub(crate) async fn start(
        opened: Opened,
        options: MetaOptions,
        host: Arc<Host>,
        nodes: Arc<dyn DataNodes>,
        patience: Patience,
    ) -> Result<Arc<Self>, MetaError> {
        // A log without the group is only right for a catalog that has applied nothing.
        let (replica, start) = match known_replica(&host) {
            Some(replica) => (replica, Start::Restart),
            None if opened.machine.has_applied() => {
                return Err(MetaError::Corrupted(
                    "the log has no entries of meta's group; the log directory belongs to the catalog \
                     and must be kept with it. If the log is lost for good and the other members of the group have \
                     theirs, start this one with an empty data directory and --rejoin"
                        .to_owned(),
                ));
            }
            None => first_start(&options, host.node())?,
        };
        // Other members must find this one's identity and generation before the group starts.
        let machine = opened.machine;
        let peers = MetaPeers::new(Arc::clone(&machine), options.generations.clone());
        host.set_acquaintances(Arc::clone(&peers) as _);
        if let Some(generations) = &options.generations {
            host.set_claim(generations.claim());
        }
        host.set_rejoins(options.rejoins && !machine.belongs(host.node(), options.identity));
        let started = host.start_group(META_GROUP, replica, Arc::clone(&machine) as _, start).await;
        let group = started.map_err(|error| match opened.set_aside {
            Some(damage) => MetaError::Corrupted(format!("{damage}; from the log: {error}")),
            None => MetaError::Raft(error),
        })?;
        // A single member waits for no other: the barrier applies all acknowledged entries.
        if group.members().len() == 1 {
            group.read_barrier().await?;
        }
        let mut keeper = Keeper::new(SEED).with_forecasts(options.forecast);
        if let Some(dir) = &options.load_dir {
            load::restore(&mut keeper, dir).await;
        }
        let core = Core {
            host,
            group,
            peers,
            reshapes: machine.reshapes(),
            machine,
            nodes,
            members: options.nodes.clone(),
            presence: Presence::new(patience.lease),
            load: Mutex::new(keeper),
            load_files: options.load_dir.clone().map(|dir| Arc::new(LoadFiles::new(dir))),
            options,
            leads: watch::Sender::new(false),
            leadership: OwnLeadership::default(),
            progress: Progress::new(),
            patience,
            stopping: CancellationToken::new(),
        };
        Ok(Arc::new(Self { core: Arc::new(core) }))
    }

    /// Runs meta until `stop` is cancelled. Changes wait until it runs; to be called once.
    pub async fn run(&self, stop: CancellationToken) {
        tokio::select! {
            () = self.lead_when_elected(&stop) => {}
            () = self.core.keep_durable() => {}
            () = self.core.look_on() => {}
            () = self.rejoin() => {}
            () = self.core.keep_generation() => {}
            () = self.core.keep_load() => {}
        }
        self.core.stopping.cancel();
    }

    /// Greets the other members until this one is readmitted. Does not return.
    async fn rejoin(&self) {
        self.core.ask_to_rejoin().await;
        std::future::pending().await
    }

    /// Number of members of meta's group whose data directories are recorded.
    pub fn knows_members(&self) -> usize {
        self.core.machine.state().metas().count()
    }

    /// Newest generation of a member's data directory, as far as this member knows.
    pub fn generation_of(&self, member: NodeId) -> Option<Generation> {
        self.core.machine.state().meta(member)?.generation
    }

    /// Waits until another member of meta's group refuses this one, and returns the reason. Only if this member's
    /// data directory has never belonged to a group that had a leader, or is an older copy. The process should end
    /// then.
    pub async fn refused(&self) -> String {
        self.core.refused().await
    }

    async fn lead_when_elected(&self, stop: &CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.core.elected() => {}
            }
            info!("this process leads meta");
            // Orders need a recorded leadership; if recording fails, it is retried below.
            let recorded = tokio::select! {
                () = stop.cancelled() => return,
                recorded = self.core.begin_leadership() => recorded,
            };
            if let Err(error) = recorded {
                warn!(%error, "recording the leadership of meta failed; no orders are sent until it is recorded");
            }
            // Soft state of an earlier leadership is dropped before requests are served.
            self.core.presence.begin();
            self.core.load.lock().begin(SEED);
            self.core.publish_members();
            self.core.leads.send_replace(true);
            // The work ends with the leadership; requests are refused first.
            let end = stop.child_token();
            let (ddl_driver, supervisor) = (Arc::clone(&self.core), Arc::clone(&self.core));
            let work = async {
                tokio::join!(
                    DdlDriver::new(ddl_driver).run(end.clone()),
                    Supervisor::new(supervisor).run(end.clone()),
                    self.core.keep_leadership_recorded(&end),
                    self.core.keep_members(&end),
                )
            };
            let watch = async {
                self.core.replaced(&end).await;
                self.core.leads.send_replace(false);
                if stop.is_cancelled() {
                    self.core.stopping.cancel();
                }
                end.cancel();
            };
            tokio::join!(work, watch);
        }
    }

    /// The replicas that a node should hold, of tables in use.
    pub fn partitions_of(&self, node: NodeId) -> Vec<PartitionSpec> {
        plan::partitions_of(&self.core.machine.state(), node)
    }

    /// Splits and merges since this process began: the last thousand, oldest first.
    pub fn reshape_events(&self) -> Vec<ReshapeEvent> {
        self.core.reshapes.all()
    }

    /// Records the effect of a split or merge: the share of the load that its right side got, and whether it was
    /// useless. True if the event is still remembered.
    pub fn judge_reshape(&self, id: u64, actual_larger: Option<PerMille>, in_vain: bool) -> bool {
        self.core.reshapes.judged(Step(id), actual_larger, in_vain)
    }

    /// Error that stopped this member: its storage failed, or its group has stopped. `None` if only the disk is
    /// full.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let failure = self.core.machine.failure();
        failure.or_else(|| self.core.group.status().stopped)
    }

    /// Makes everything durable and stops the group. [`Meta::run`] must have ended.
    ///
    /// # Errors
    /// If the catalog could not be made durable; nothing is lost, because the log has it.
    pub async fn shutdown(&self) -> Result<(), MetaError> {
        self.core.stopping.cancel();
        self.core.save_load().await;
        let synced = self.core.sync().await;
        let stopped = self.core.group.shutdown().await;
        synced?;
        Ok(stopped?)
    }
}

impl Core {
    /// Keeps the load state up to date while another process leads. Does not return.
    async fn look_on(&self) {
        let mut tick = tokio::time::interval(self.patience.tick);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            if !*self.leads.borrow() {
                let state = self.machine.state();
                self.load.lock().look_on(&state, &self.reshapes.all(), self.now_ms());
            }
        }
    }

    /// Records the load in a heartbeat that was sent to the leader.
    pub(crate) fn overhear(&self, heartbeat: &Heartbeat) {
        let state = self.machine.state();
        if state.node(heartbeat.node).is_some_and(|node| node.identity == heartbeat.identity) {
            let mut load = self.load.lock();
            load.heard_followers(heartbeat.node, &heartbeat.follower_reads);
            load.heard(heartbeat.node, &heartbeat.loads, self.now_ms());
        }
    }

    /// Returns when this process leads and has applied everything that was acknowledged.
    async fn elected(&self) {
        loop {
            if self.group.status().is_leader && self.group.read_barrier().await.is_ok() {
                return;
            }
            tokio::time::sleep(LEADERSHIP_POLL).await;
        }
    }

    /// Returns when this process no longer leads, cannot confirm that it does, or is to stop.
    async fn replaced(&self, stop: &CancellationToken) {
        let (mut confirmed, mut last_check) = (Instant::now(), Instant::now());
        while self.group.status().is_leader {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LEADERSHIP_POLL) => {}
            }
            if last_check.elapsed() < CONFIRM_INTERVAL {
                continue;
            }
            let barrier = tokio::time::timeout(CONFIRM_INTERVAL, self.group.read_barrier());
            if matches!(barrier.await, Ok(Ok(()))) {
                confirmed = Instant::now();
            } else if confirmed.elapsed() >= UNCONFIRMED_MAX {
                warn!("stepping down: no majority of meta's members confirms this leader");
                return;
            }
            last_check = Instant::now();
        }
        warn!("another process leads meta now");
    }

    /// Makes the catalog durable when many entries were applied, or when the log needs room. Every member does this
    /// for its own log, not only the leader. Does not return.
    async fn keep_durable(&self) {
        let mut applied = self.machine.applied();
        let mut pressure = self.host.pressure();
        pressure.mark_changed();
        // The sender may be dropped before this task ends, if the host is shut down first.
        let mut log_open = true;
        loop {
            applied.mark_unchanged();
            let mut due = self.machine.undurable() >= self.patience.undurable_max;
            if !due {
                tokio::select! {
                    _ = applied.changed() => {}
                    changed = pressure.changed(), if log_open => {
                        log_open = changed.is_ok();
                        due = pressure.borrow_and_update().contains(&META_GROUP);
                    }
                }
            }
            if due && let Err(error) = self.sync().await {
                error!(%error, "making the catalog durable failed");
                tokio::time::sleep(self.patience.pause_min).await;
            }
        }
    }
}

/// Replica number and start of a member that has no log yet.
fn first_start(options: &MetaOptions, node: NodeId) -> Result<(ReplicaId, Start), MetaError> {
    if options.members.is_empty() {
        return Ok((REPLICA, Start::Create { members: BTreeMap::from([(REPLICA, node)]) }));
    }
    let mine = options.members.iter().find(|(_, holder)| **holder == node);
    let (replica, _) = mine.ok_or_else(|| {
        MetaError::Raft(RaftError::InvalidInput(format!(
            "node {node} is not among meta's members {:?}",
            options.members
        )))
    })?;
    let start = match options.rejoins {
        true => Start::Join,
        false => Start::Create { members: options.members.clone() },
    };
    Ok((*replica, start))
}

/// Meta's replica in the node's log, if there is one.
fn known_replica(host: &Host) -> Option<ReplicaId> {
    let meta_group = host.known_groups().into_iter().find(|(group, _)| *group == META_GROUP);
    meta_group.map(|(_, replica)| replica)
}
