//! Meta in a process: opens, runs and stops it.
//!
//! On disk, below its directory: `state/`, the applied catalog, and `copies/` of it (`opening.rs`). Its log is in the
//! node's shared log, under group 0.
//!
//! Start, in this order: the host, meta (the catalog can be read then), the datanode with the
//! replicas on its disk, and at last [`Meta::run`], which sends what is still to be ordered. A
//! change waits for that.
//!
//! With several members, the one that leads the group does all of this; [`Meta::run`] begins when it
//! is elected and ends when another is.

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
use crate::reshapes::Reshapes;
use crate::scheduler::{Patience, Scheduler};
use crate::transition::{Command, Reply};

/// Meta's only replica; those of partitions have other numbers.
const REPLICA: ReplicaId = ReplicaId(1);
/// Decides between partitions and nodes that are equally good.
const SEED: u64 = 1;
/// How often it is looked who leads.
const LEADERSHIP_POLL: Duration = Duration::from_millis(20);
/// How often whoever leads has a majority confirm it, and how long it goes on without: one that is cut
/// off would not learn of its successor, and those that still reach it would wait for nothing.
const CONFIRM_INTERVAL: Duration = Duration::from_secs(1);
const UNCONFIRMED_MAX: Duration = Duration::from_secs(4);

/// Tables of a database unless an option says otherwise. A name that is written wrong by a program, as one with a number
/// in it, then ends in an error and not in a catalog that every node carries.
pub const TABLES_PER_DATABASE: u32 = 500;

/// What meta is opened with.
#[derive(Clone)]
pub struct MetaOptions {
    /// Its directory.
    pub dir: PathBuf,
    /// The members of its group and their nodes, the same for all of them; empty: this one alone. Only
    /// the first start looks at it.
    pub members: BTreeMap<ReplicaId, NodeId>,
    /// How many replicas a partition has when its table does not say.
    pub replication_factor: u32,
    /// How many tables a database may have for another one to be made.
    pub tables_per_database: u32,
    /// How long nothing is heard of a node before its replicas are made anew elsewhere.
    pub repair_after: Duration,
    /// Where the nodes are published as they come and go.
    pub nodes: watch::Sender<Arc<Members>>,
    /// Tells when something happened, to those who look back.
    pub clock: Arc<dyn Clock>,
    /// The random number of its data directory, by which the other members know it; 0: it has none.
    pub identity: u64,
    /// Whether it lost its data, and is to join its group again as a new member. One that has come back is a member like
    /// the others, whatever this says.
    pub rejoins: bool,
    /// A random number of this start of the process, from which the numbers of its leaderships are made.
    pub incarnation: u64,
    /// The generations of its data directory, by which the others notice an older copy of it; `None`: it has none.
    pub generations: Option<Arc<Generations>>,
    /// How old a generation becomes before the next one is made.
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
    /// For one process that is everything: one member, one replica of each partition.
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

    /// How many replicas the partitions of a table with these options should have.
    pub(crate) fn replicas_of(&self, options: &TableOptions) -> usize {
        options.replication_factor.unwrap_or(self.replication_factor).max(1) as usize
    }
}

/// The catalog's keeper in this process.
pub struct Meta {
    pub(crate) core: Arc<Core>,
}

/// What meta's parts share.
pub(crate) struct Core {
    pub(crate) host: Arc<Host>,
    pub(crate) group: Arc<Group>,
    /// The other members of the group, as they greeted.
    pub(crate) peers: Arc<MetaPeers>,
    pub(crate) machine: Arc<CatalogMachine>,
    pub(crate) nodes: Arc<dyn DataNodes>,
    pub(crate) options: MetaOptions,
    /// What nodes said, while this process leads.
    pub(crate) presence: Presence,
    /// What is known of load; decided on while this process leads.
    pub(crate) load: Mutex<Keeper>,
    /// The nodes as everybody is told of them.
    pub(crate) members: watch::Sender<Arc<Members>>,
    /// Whether this process leads and knows everything.
    pub(crate) leads: watch::Sender<bool>,
    pub(crate) leadership: OwnLeadership,
    pub(crate) progress: Progress,
    pub(crate) reshapes: Arc<Reshapes>,
    pub(crate) patience: Patience,
    /// No more orders are sent.
    pub(crate) stopping: CancellationToken,
}

impl Meta {
    /// Opens the catalog, or begins one. When it returns, everything that was acknowledged is in
    /// [`partita_proto::service::MetaService::catalog`].
    ///
    /// # Errors
    /// [`MetaError::Corrupted`] when catalog and log cannot be trusted or do not belong together,
    /// [`MetaError::Incompatible`], [`MetaError::Io`], and those of the group.
    pub async fn open(
        options: MetaOptions,
        host: Arc<Host>,
        nodes: Arc<dyn DataNodes>,
    ) -> Result<Arc<Self>, MetaError> {
        Self::open_patient(options, host, nodes, Patience::default()).await
    }

    /// As [`Meta::open`], with the catalog in memory: for simulations. It is made durable after every few entries, so
    /// that members which lag behind get it whole.
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
        let (replica, start) = match known_replica(&host) {
            Some(replica) => (replica, Start::Restart),
            None if opened.machine.has_applied() => {
                return Err(MetaError::Corrupted(
                    "the log does not know meta's group; the log directory belongs to the catalog \
                     and must be kept with it. If the log is lost for good and the other members of the group have \
                     theirs, start this one with an empty data directory and --rejoin"
                        .to_owned(),
                ));
            }
            None => first_start(&options, host.node())?,
        };
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

    /// Sends orders to nodes until told to stop. Changes wait for it; it is run once.
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

    /// Asks to be taken in again, as long as that takes. Does not end.
    async fn rejoin(&self) {
        self.core.ask_to_rejoin().await;
        std::future::pending().await
    }

    /// How many members of meta's group are known by their data directories.
    pub fn knows_members(&self) -> usize {
        self.core.machine.state().metas().count()
    }

    /// The newest generation of the data directory of a member of meta's group, as far as this one knows.
    pub fn generation_of(&self, member: NodeId) -> Option<Generation> {
        self.core.machine.state().meta(member)?.generation
    }

    /// Returns when another member of meta's group has refused this one, whose data directory has never belonged to a
    /// group that had a leader, or is an older copy; with the reason. The process has nothing to do then.
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
            let recorded = tokio::select! {
                () = stop.cancelled() => return,
                recorded = self.core.record_leadership() => recorded,
            };
            if let Err(error) = recorded {
                warn!(%error, "that this process leads meta is not recorded yet; it gives no orders");
            }
            self.core.presence.begin();
            self.core.load.lock().begin(SEED);
            self.core.publish_members();
            self.core.leads.send_replace(true);
            let over = stop.child_token();
            let (scheduler, supervisor) = (Arc::clone(&self.core), Arc::clone(&self.core));
            let work = async {
                tokio::join!(
                    Scheduler::new(scheduler).run(over.clone()),
                    Supervisor::new(supervisor).run(over.clone()),
                    self.core.keep_leadership_recorded(&over),
                    self.core.keep_members(&over),
                )
            };
            let watch = async {
                self.core.replaced(&over).await;
                self.core.leads.send_replace(false);
                if stop.is_cancelled() {
                    self.core.stopping.cancel();
                }
                over.cancel();
            };
            tokio::join!(work, watch);
        }
    }

    /// The replicas that a node is to hold, of tables that are in use.
    pub fn partitions_of(&self, node: NodeId) -> Vec<PartitionSpec> {
        plan::partitions_of(&self.core.machine.state(), node)
    }

    /// Splits and merges since this process began, as far as they are remembered: the last thousand, the oldest
    /// first.
    pub fn reshape_events(&self) -> Vec<ReshapeEvent> {
        self.core.reshapes.all()
    }

    /// Notes what a split or merge was good for: the share of the load that its right side got, and whether it was
    /// in vain. Returns whether it is remembered at all.
    pub fn judge_reshape(&self, id: u64, actual_larger: Option<PerMille>, in_vain: bool) -> bool {
        self.core.reshapes.judged(Step(id), actual_larger, in_vain)
    }

    /// Why this member serves no more, if the catalog's storage failed or its group has stopped. A disk that is full
    /// is no such reason.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let failure = self.core.machine.failure();
        failure.or_else(|| self.core.group.status().stopped)
    }

    /// Makes everything durable and stops the group. [`Meta::run`] has to have ended.
    ///
    /// # Errors
    /// When the catalog could not be made durable; nothing is lost then, the log has it.
    pub async fn shutdown(&self) -> Result<(), MetaError> {
        self.core.stopping.cancel();
        let synced = self.core.sync().await;
        let stopped = self.core.group.shutdown().await;
        synced?;
        Ok(stopped?)
    }
}

impl Core {
    /// Keeps what is known of load up to date while another process leads. Does not end.
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

    /// Takes note of the load that a node reports to whoever leads.
    pub(crate) fn overhear(&self, heartbeat: &Heartbeat) {
        let state = self.machine.state();
        if state.node(heartbeat.node).is_some_and(|node| node.identity == heartbeat.identity) {
            self.load.lock().heard(heartbeat.node, &heartbeat.loads, self.now_ms());
        }
    }

    /// Returns when this process leads and has applied all that was ever acknowledged.
    async fn elected(&self) {
        loop {
            if self.group.status().is_leader && self.group.read_barrier().await.is_ok() {
                return;
            }
            tokio::time::sleep(LEADERSHIP_POLL).await;
        }
    }

    /// Returns when this process leads no more, cannot know whether it does, or is to stop.
    async fn replaced(&self, stop: &CancellationToken) {
        let (mut confirmed, mut asked) = (Instant::now(), Instant::now());
        while self.group.status().is_leader {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LEADERSHIP_POLL) => {}
            }
            if asked.elapsed() < CONFIRM_INTERVAL {
                continue;
            }
            let barrier = tokio::time::timeout(CONFIRM_INTERVAL, self.group.read_barrier());
            if matches!(barrier.await, Ok(Ok(()))) {
                confirmed = Instant::now();
            } else if confirmed.elapsed() >= UNCONFIRMED_MAX {
                warn!("no majority of meta confirms that this process leads it");
                return;
            }
            asked = Instant::now();
        }
        warn!("another process leads meta now");
    }

    /// Puts a command into the log and applies it.
    pub(crate) async fn propose(&self, command: &Command) -> Result<Reply, Error> {
        if !self.machine.has_room() {
            return Err(Error::DiskFull(
                "meta's disk is nearly full; rows are not concerned, changes of tables are refused"
                    .to_owned(),
            ));
        }
        self.propose_anyway(command).await
    }

    /// As [`Core::propose`], also when the disk is nearly full: for what others could not work without.
    pub(crate) async fn propose_anyway(&self, command: &Command) -> Result<Reply, Error> {
        let applied = self.group.propose(command.encode()).await.map_err(raft_error)?;
        decode_reply(applied.reply)
    }

    /// Makes the catalog durable when much was applied, or when the log asks for room. Every member does,
    /// whoever leads: each has a log of its own to give up. Does not end.
    async fn keep_durable(&self) {
        let mut applied = self.machine.applied();
        let mut pressure = self.host.pressure();
        pressure.mark_changed();
        // The sender may go before we do, when the host is shut down first.
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

    /// Makes what is applied durable, and gives up the log before it.
    pub(crate) async fn sync(&self) -> Result<(), MetaError> {
        let machine = Arc::clone(&self.machine);
        let synced = partita_proto::blocking::spawn(move || machine.sync());
        synced.await.map_err(|error| {
            MetaError::io("syncing the catalog", std::io::Error::other(error))
        })??;
        Ok(self.group.flushed().await?)
    }
}

/// How a member begins that has nothing yet.
fn first_start(options: &MetaOptions, node: NodeId) -> Result<(ReplicaId, Start), MetaError> {
    if options.members.is_empty() {
        return Ok((REPLICA, Start::Create { members: BTreeMap::from([(REPLICA, node)]) }));
    }
    let mine = options.members.iter().find(|(_, at)| **at == node);
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

/// Meta's replica in a node's log, if it is there.
fn known_replica(host: &Host) -> Option<ReplicaId> {
    let known = host.known_groups().into_iter().find(|(group, _)| *group == META_GROUP);
    known.map(|(_, replica)| replica)
}

/// What a failure of meta's group means to whoever wanted a change.
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
        // This member ends, or has failed: the others can tell whether they have it.
        RaftError::Stopped { .. } => {
            Error::Timeout(format!("meta: {error}; the change may or may not take effect"))
        }
        RaftError::Io { .. } => Error::Storage(format!("meta: {error}")),
        RaftError::Incompatible(_) => Error::Internal(format!("meta: {error}")),
    }
}
