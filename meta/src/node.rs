//! Meta in a process: opening, running and stopping it.
//!
//! On disk, below its directory: `state/`, the applied catalog, and `copies/` of it (`opening.rs`). Its log is in the
//! node's shared log, under group 0.
//!
//! Order of the start: the host; meta (the catalog can be read from then on); the datanode with the replicas on its
//! disk; at last [`Meta::run`], which sends pending orders. Changes wait until it runs.
//!
//! With several members, only the group's leader does this; the work of [`Meta::run`] begins with an election and
//! ends with the next one.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::clock::Clock;
use partita_proto::error::Error;
use partita_proto::generation::{Generation, Generations, RENEW_INTERVAL};
use partita_proto::history::{PerMille, ReshapeEvent};
use partita_proto::id::{META_GROUP, NodeId, PartitionId, ReplicaId};
use partita_proto::member::{Heartbeat, Members};
use partita_proto::schema::TableOptions;
use partita_proto::service::{DataNodes, PartitionSpec};
use partita_raft::{Group, Host, RaftError, Start};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::catalog::Step;
use crate::cluster::{Presence, Supervisor};
use crate::command::decode_reply;
use crate::error::MetaError;
use crate::leadership::OwnLeadership;
use crate::load::Keeper;
use crate::machine::CatalogMachine;
use crate::membership::MetaPeers;
use crate::memory_store::MemoryStore;
use crate::opening::{Opened, open_catalog};
use crate::plan;
use crate::progress::Progress;
use crate::reshape::Reshapes;
use crate::scheduler::{Patience, Scheduler};
use crate::transition::{Command, Reply};

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

/// Default limit of tables per database. A program that creates tables under wrong names, such as with a number in
/// them, then gets an error, instead of a huge catalog on every node.
pub const TABLES_PER_DATABASE: u32 = 500;

/// Options of [`Meta::open`].
#[derive(Clone)]
pub struct MetaOptions {
    /// Meta's directory.
    pub dir: PathBuf,
    /// Members of the group and their nodes, the same for all members; empty: this one alone. Used at the first
    /// start only.
    pub members: BTreeMap<ReplicaId, NodeId>,
    /// Default number of replicas of a partition, if the table does not set it.
    pub replication_factor: u32,
    /// Maximum tables of a database; further ones are refused.
    pub tables_per_database: u32,
    /// Time without a heartbeat after which a node's replicas are recreated elsewhere.
    pub repair_after: Duration,
    /// Receives the members of the cluster whenever they change.
    pub nodes: watch::Sender<Arc<Members>>,
    /// Source of the timestamps of events.
    pub clock: Arc<dyn Clock>,
    /// Random number of the data directory, by which the other members know it; 0: none.
    pub identity: u64,
    /// True if this member lost its data and is to rejoin its group as a new member. Ignored once it has rejoined.
    pub rejoins: bool,
    /// Random number of this start of the process, from which leaderships' nonces are made.
    pub incarnation: u64,
    /// Generations of the data directory, by which the others notice an older copy of it; `None`: none.
    pub generations: Option<Arc<Generations>>,
    /// Maximum age of a generation; then the next one is made.
    pub renew_every: Duration,
}

impl fmt::Debug for MetaOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dir, members, replication_factor, repair_after, .. } = self;
        f.debug_struct("MetaOptions")
            .field("dir", dir)
            .field("members", members)
            .field("replication_factor", replication_factor)
            .field("repair_after", repair_after)
            .finish_non_exhaustive()
    }
}

impl MetaOptions {
    /// Options of a cluster of one process: one member, and one replica of each partition.
    #[must_use]
    pub fn alone(dir: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self {
            dir: dir.into(),
            members: BTreeMap::new(),
            replication_factor: 1,
            tables_per_database: TABLES_PER_DATABASE,
            repair_after: Duration::from_secs(300),
            nodes: watch::Sender::default(),
            clock,
            identity: 0,
            rejoins: false,
            incarnation: 0,
            generations: None,
            renew_every: RENEW_INTERVAL,
        }
    }

    /// Number of replicas for the partitions of a table with these options.
    pub(crate) fn replicas_of(&self, options: &TableOptions) -> usize {
        options.replication_factor.unwrap_or(self.replication_factor).max(1) as usize
    }
}

/// The meta service in this process.
pub struct Meta {
    pub(crate) core: Arc<Core>,
}

/// State shared by meta's parts.
pub(crate) struct Core {
    pub(crate) host: Arc<Host>,
    pub(crate) group: Arc<Group>,
    /// The other members of the group, by their greetings.
    pub(crate) peers: Arc<MetaPeers>,
    pub(crate) machine: Arc<CatalogMachine>,
    pub(crate) nodes: Arc<dyn DataNodes>,
    pub(crate) options: MetaOptions,
    /// Latest reports of nodes, while this process leads.
    pub(crate) presence: Presence,
    /// Load of partitions; used for decisions while this process leads.
    pub(crate) load: Mutex<Keeper>,
    /// The nodes, as published to subscribers.
    pub(crate) members: watch::Sender<Arc<Members>>,
    /// True while this process leads and has applied everything that was acknowledged.
    pub(crate) leads: watch::Sender<bool>,
    pub(crate) leadership: OwnLeadership,
    pub(crate) progress: Progress,
    pub(crate) reshapes: Arc<Reshapes>,
    pub(crate) patience: Patience,
    /// Cancelled when no more orders are to be sent.
    pub(crate) stopping: CancellationToken,
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
        Self::open_patient(options, host, nodes, Patience::default()).await
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
        options: MetaOptions,
        host: Arc<Host>,
        nodes: Arc<dyn DataNodes>,
        patience: Patience,
    ) -> Result<Arc<Self>, MetaError> {
        let log = known_replica(&host).map(|_| host.log_given_up(META_GROUP));
        let dir = options.dir.clone();
        let opened = partita_proto::blocking::spawn(move || open_catalog(&dir, log));
        let opened = opened.await.map_err(|error| {
            MetaError::Corrupted(format!("reading it was interrupted: {error}"))
        })??;
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
        let core = Core {
            host,
            group,
            peers,
            reshapes: machine.reshapes(),
            machine,
            nodes,
            members: options.nodes.clone(),
            options,
            presence: Presence::new(patience.lease),
            load: Mutex::new(Keeper::new(SEED)),
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
                recorded = self.core.record_leadership() => recorded,
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
            let (scheduler, supervisor) = (Arc::clone(&self.core), Arc::clone(&self.core));
            let work = async {
                tokio::join!(
                    Scheduler::new(scheduler).run(end.clone()),
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
            self.load.lock().heard(heartbeat.node, &heartbeat.loads, self.now_ms());
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

    /// Appends a command to the log; returns when it is applied.
    pub(crate) async fn propose(&self, command: &Command) -> Result<Reply, Error> {
        if !self.machine.has_room() {
            return Err(Error::DiskFull(
                "meta's disk is nearly full: changes of tables are refused; rows can still be read and written"
                    .to_owned(),
            ));
        }
        self.propose_anyway(command).await
    }

    /// As [`Core::propose`], but also on a nearly full disk: for commands that others cannot work without.
    pub(crate) async fn propose_anyway(&self, command: &Command) -> Result<Reply, Error> {
        let applied = self.group.propose(command.encode()).await.map_err(raft_error)?;
        decode_reply(applied.reply)
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

    /// Makes the applied catalog durable, and releases the log before it.
    pub(crate) async fn sync(&self) -> Result<(), MetaError> {
        let machine = Arc::clone(&self.machine);
        let synced = partita_proto::blocking::spawn(move || machine.sync());
        synced.await.map_err(|error| {
            MetaError::io("syncing the catalog", std::io::Error::other(error))
        })??;
        Ok(self.group.flushed().await?)
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

/// Error for the client of a change that meta's group did not carry out.
pub(crate) fn raft_error(error: RaftError) -> Error {
    match error {
        RaftError::NotLeader { leader } => Error::NotLeader {
            partition: PartitionId(META_GROUP.0),
            leader: leader.map(|(_, node)| node),
        },
        RaftError::Unavailable(why) => Error::Unavailable(why),
        RaftError::OutcomeUnknown(why) => {
            Error::Timeout(format!("{why}; the change may or may not take effect"))
        }
        RaftError::DiskFull(why) => Error::DiskFull(why),
        RaftError::InvalidInput(why) => Error::InvalidInput(why),
        RaftError::Corrupted(why) => Error::Corrupted(why),
        // This member ends or has failed: other members can tell whether the change is in the log.
        RaftError::Stopped { .. } => {
            Error::Timeout(format!("meta: {error}; the change may or may not take effect"))
        }
        RaftError::Io { .. } => Error::Storage(format!("meta: {error}")),
        RaftError::Incompatible(_) => Error::Internal(format!("meta: {error}")),
    }
}
