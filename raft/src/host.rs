//! All groups of one node, over one log.
//!
//! ```text
//! Host::open -> known_groups -> start_group(Restart) each     start_group(Create)    destroy_group
//!                                        \                        |                 /
//!                                         Group ... Group ... Group
//!                                             \       |       /
//!                                          one log, one writer thread
//! ```
//!
//! Invariants:
//! - a group runs at most once;
//! - messages never create a group; only [`Host::start_group`] does;
//! - a restarted leader never leads without a new election, so that it cannot serve reads from a state that is older
//!   than the writes it had acknowledged. A replica that was just seeded has acknowledged nothing, and its state is
//!   complete;
//! - a group is seeded once: a replica that is in the log may have given a vote.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::blocking;
use partita_proto::generation::Claim;
use partita_proto::id::{GroupId, NodeId, ReplicaId};
use partita_proto::wire::pb::raft_message::Body;
use partita_proto::wire::pb::{RaftBeat, RaftFrame};
use tokio::sync::{Semaphore, mpsc, watch};

use crate::beat;
use crate::error::RaftError;
use crate::fault::OnFailure;
use crate::greeting::{Acquaintances, Manners};
use crate::group::{Group, IN_FLIGHT_UNIT, RaftHandle, is_alone};
use crate::hold::Awaited;
use crate::log::disk::{Disk, StdDisk};
use crate::log::simulated::SimulatedDisk;
use crate::log::{Log, LogOptions, LogStats, Seeded};
use crate::machine::Machine;
use crate::network::Net;
use crate::pace::Pace;
use crate::peer::{Lane, Peers, Route};
use crate::planted::{self, Plant};
use crate::read_point::{self, ReadPoints};
use crate::server;
use crate::settings::config;
use crate::snapshot::Outgoing;
use crate::state::{Gate, StateMachine};
use crate::store::GroupStore;
use crate::transport::{FRAME_BYTES_MAX, FRAMES_WAITING, Frames, Nowhere, Transport};
use crate::types::{Mark, Member, log_id};

/// Maximum bytes of in-flight proposals on the node, or a quarter of a segment if that is less: then all of them fit
/// into the current segment when the disk turns out to be full.
const IN_FLIGHT_BYTES_MAX: usize = 64 << 20;

/// Maximum time to wait for the answer to a greeting.
const GREET_WAIT: Duration = Duration::from_secs(2);

/// Directory, limits and callbacks of a [`Host`].
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Directory of the log; created if it does not exist.
    pub dir: PathBuf,
    /// Id of this node.
    pub node: NodeId,
    /// Random number of the data directory, sent in greetings; 0: none.
    pub identity: u64,
    /// Bytes of log above which groups are asked to flush. At twice that, proposals are refused.
    pub log_budget_bytes: u64,
    /// Bytes of recent entries kept in memory.
    pub cache_bytes: u64,
    /// Bytes of one segment. A command may take a quarter of that.
    pub segment_bytes: u64,
    /// Bytes per second of all snapshot transfers to other replicas together.
    pub snapshot_bytes_per_second: u64,
    /// Callback for a failure of the log.
    pub on_log_failure: OnFailure,
    /// Callback for a panic of a group's task.
    pub on_panic: OnFailure,
    /// Groups whose damaged log is accepted: entries that cannot be read are given up.
    pub accepted: BTreeSet<GroupId>,
}

impl HostOptions {
    /// The defaults: a budget of 1 GiB in segments of 64 MiB, 64 MiB of recent entries in memory, 64 MiB of snapshots
    /// per second.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, node: NodeId) -> Self {
        Self {
            dir: dir.into(),
            node,
            identity: 0,
            log_budget_bytes: 1 << 30,
            cache_bytes: 64 << 20,
            segment_bytes: 64 << 20,
            snapshot_bytes_per_second: 64 << 20,
            on_log_failure: OnFailure::default(),
            on_panic: OnFailure::default(),
            accepted: BTreeSet::new(),
        }
    }
}

/// Way in which a group starts on this node.
#[derive(Clone, Debug)]
pub enum Start {
    /// A new group. All its members start with the same list.
    Create {
        /// The replicas and their nodes; this node is among them.
        members: BTreeMap<ReplicaId, NodeId>,
    },
    /// A new replica of a group that runs elsewhere: it starts empty, and receives everything once the leader adds it.
    Join,
    /// A group in the log: one of [`Host::known_groups`].
    Restart,
    /// A group that [`Host::seed_group`] has put into the log since this host was opened, and that has not run yet. The
    /// machine has everything up to the seed. The replica that the seed names as the leader leads at once.
    Seeded,
}

enum Slot {
    /// Being started or destroyed.
    Busy,
    Running(Arc<Group>),
}

/// All groups of one node, their log, and the links to other nodes.
///
/// It must be shut down before it is dropped: otherwise the groups' tasks keep the log open.
pub struct Host {
    node: NodeId,
    log: Arc<Log>,
    groups: Mutex<BTreeMap<GroupId, Slot>>,
    in_flight: Arc<Semaphore>,
    in_flight_max: usize,
    peers: Arc<Peers>,
    manners: Manners,
    outgoing: Arc<Outgoing>,
    stopped: watch::Sender<bool>,
}

impl Host {
    /// Opens the log, and reads it back if there is one. No group runs yet. Without links to other nodes every group
    /// has one member.
    ///
    /// # Errors
    /// [`RaftError::InvalidInput`] for bad options or a directory in use, [`RaftError::Incompatible`] for a directory
    /// of another version, [`RaftError::Corrupted`], [`RaftError::DiskFull`], [`RaftError::Io`].
    pub async fn open(options: HostOptions) -> Result<Arc<Self>, RaftError> {
        Self::open_linked(options, Arc::new(Nowhere)).await
    }

    /// As [`Host::open`], with links to other nodes. Hand links that other nodes open to [`Host::accept`].
    ///
    /// # Errors
    /// As [`Host::open`].
    pub async fn open_linked(
        options: HostOptions,
        transport: Arc<dyn Transport>,
    ) -> Result<Arc<Self>, RaftError> {
        let disk: Arc<dyn Disk> = Arc::new(StdDisk::open(&options.dir)?);
        Self::open_on(disk, &options, transport).await
    }

    /// As [`Host::open_linked`], over a simulated disk.
    ///
    /// # Errors
    /// As [`Host::open`].
    pub async fn open_simulated(
        disk: &SimulatedDisk,
        options: &HostOptions,
        transport: Arc<dyn Transport>,
    ) -> Result<Arc<Self>, RaftError> {
        Self::open_on(Arc::new(disk.clone()), options, transport).await
    }

    pub(crate) async fn open_on(
        disk: Arc<dyn Disk>,
        options: &HostOptions,
        transport: Arc<dyn Transport>,
    ) -> Result<Arc<Self>, RaftError> {
        let segment_bytes = u32::try_from(options.segment_bytes).map_err(|_| {
            RaftError::InvalidInput(format!(
                "a segment of {} bytes is too large",
                options.segment_bytes
            ))
        })?;
        if segment_bytes as usize / 4 > FRAME_BYTES_MAX / 2 {
            return Err(RaftError::InvalidInput(format!(
                "a segment of {segment_bytes} bytes: a command of a quarter of that is too large for the network"
            )));
        }
        // Read the log back; that blocks.
        let log_options = LogOptions {
            segment_bytes,
            budget_bytes: options.log_budget_bytes,
            cache_bytes: options.cache_bytes,
        };
        let on_failure = options.on_log_failure.clone();
        let accepted = options.accepted.clone();
        let opened =
            blocking::spawn(move || Log::open_watched(disk, log_options, on_failure, &accepted));
        let log = opened.await.map_err(|error| {
            RaftError::Unavailable(format!("opening the log was interrupted: {error}"))
        })??;
        let in_flight_max =
            (IN_FLIGHT_BYTES_MAX.min(segment_bytes as usize / 4) / IN_FLIGHT_UNIT).max(1);
        let manners = Manners::new(options.node, options.identity);
        let host = Arc::new(Self {
            node: options.node,
            log,
            groups: Mutex::default(),
            in_flight: Arc::new(Semaphore::new(in_flight_max)),
            in_flight_max,
            peers: Arc::new(Peers::new(manners.clone(), transport)),
            manners,
            outgoing: Arc::new(Outgoing::new(options.snapshot_bytes_per_second)),
            stopped: watch::Sender::new(false),
        });
        tokio::spawn(beat::keep_pace(Arc::downgrade(&host), options.on_panic.clone()));
        Ok(host)
    }

    /// Serves a link that another node has opened: answers its requests until the link or this host ends.
    #[must_use]
    pub fn accept(self: &Arc<Self>, requests: Frames) -> mpsc::Receiver<RaftFrame> {
        let (sender, replies) = mpsc::channel(FRAMES_WAITING);
        tokio::spawn(server::serve(Arc::clone(self), requests, sender));
        replies
    }

    /// Sets the record of other nodes' identities, which decides with which nodes this one communicates. Only the first
    /// call has an effect.
    pub fn set_acquaintances(&self, acquaintances: Arc<dyn Acquaintances>) {
        self.manners.acquaintances.set(acquaintances).ok();
    }

    /// Sets whether this node greets others as one that lost its data and joins again as a new member.
    pub fn set_rejoins(&self, rejoins: bool) {
        self.manners.set_rejoins(rejoins);
    }

    /// Sets the generations of its data directory that this node greets others with.
    pub fn set_claim(&self, claim: Claim) {
        self.manners.set_claim(claim);
    }

    /// Sends a greeting to a node, also when a link to it is open. The result is not reported; it shows in the node's
    /// behaviour.
    pub async fn introduce(&self, node: NodeId) {
        if let Err(error) = self.peers.introduce(node).await {
            tracing::debug!(%node, %error, "this node was not introduced");
        }
    }

    /// Distrusts the logs of groups: they belong to an older copy of the data directory, so that they may lack entries
    /// that were acknowledged and votes that were given. Such a group cannot be started, only destroyed.
    pub fn distrust(&self, groups: &BTreeSet<GroupId>) {
        self.log.distrust(groups);
    }

    /// Opens a link to a node, if there is none, so that the node learns this node's identity. The result is not
    /// reported; it shows in the node's behaviour.
    pub async fn greet(&self, node: NodeId) {
        let route = Route { group: GroupId(0), from: ReplicaId(0), to: ReplicaId(0) };
        let body = Body::Beat(RaftBeat::default());
        let answer = self.peers.peer(node).call(Lane::Control, route, body, GREET_WAIT).await;
        if let Err(error) = answer {
            tracing::debug!(%node, %error, "a greeted node does not answer");
        }
    }

    pub(crate) fn manners(&self) -> &Manners {
        &self.manners
    }

    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// True if the log should hold no more entries than it must.
    pub(crate) fn log_is_filling(&self) -> bool {
        self.log.is_filling()
    }

    /// All running groups.
    pub(crate) fn running(&self) -> Vec<Arc<Group>> {
        let groups = self.groups.lock();
        let running = groups.values().filter_map(|slot| match slot {
            Slot::Running(running) => Some(Arc::clone(running)),
            Slot::Busy => None,
        });
        running.collect()
    }

    /// Becomes true when the host stops.
    pub(crate) fn stopped(&self) -> watch::Receiver<bool> {
        self.stopped.subscribe()
    }

    /// Id of this node.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Groups in the log, with this node's replica of each: those to be restarted.
    #[must_use]
    pub fn known_groups(&self) -> Vec<(GroupId, ReplicaId)> {
        self.log.groups()
    }

    /// Index up to which the log of a group was given up, if it was. The machine's state must reach at least as far.
    #[must_use]
    pub fn log_given_up(&self, group: GroupId) -> Option<u64> {
        Some(self.log.view(group).ok()?.purged?.index)
    }

    /// A running group; `None` if the group does not run here.
    #[must_use]
    pub fn group(&self, group: GroupId) -> Option<Arc<Group>> {
        match self.groups.lock().get(&group) {
            Some(Slot::Running(running)) => Some(Arc::clone(running)),
            Some(Slot::Busy) | None => None,
        }
    }

    /// Starts a group. Entries after the machine's durable mark that are known to be committed are applied first. A
    /// group of one member leads when this returns.
    ///
    /// # Errors
    /// [`RaftError::InvalidInput`] if it runs already, exists (for a creation) or does not (for a restart);
    /// [`RaftError::Corrupted`] if log and machine do not fit together; errors of the log.
    pub async fn start_group(
        &self,
        group: GroupId,
        replica: ReplicaId,
        machine: Arc<dyn Machine>,
        start: Start,
    ) -> Result<Arc<Group>, RaftError> {
        let reserved = self.reserve(group)?;
        let running = self.start(group, replica, machine, start).await?;
        reserved.run(Arc::clone(&running));
        Ok(running)
    }

    async fn start(
        &self,
        group: GroupId,
        replica: ReplicaId,
        machine: Arc<dyn Machine>,
        start: Start,
    ) -> Result<Arc<Group>, RaftError> {
        match &start {
            Start::Create { members } => {
                if members.get(&replica) != Some(&self.node) {
                    return Err(RaftError::InvalidInput(format!(
                        "replica {replica} on node {} is not among the members of group {group}",
                        self.node
                    )));
                }
                self.prepare_creation(group, replica).await?;
            }
            Start::Join => self.prepare_creation(group, replica).await?,
            Start::Restart | Start::Seeded => {
                self.check_restart(group, replica, machine.as_ref())?;
            }
        }
        // A replica that has never run has promised no vote.
        let seeded = matches!(start, Start::Seeded) && self.is_as_seeded(group)?;
        let voted = self.log.view(group)?.vote.is_some() && !seeded;
        // A sole member is elected at once anyway.
        let sole_member = machine.durable_mark().is_none_or(|mark| mark.members().len() == 1);
        let gate = Gate::default();
        let state_machine = StateMachine::new(group, Arc::clone(&machine), gate.clone());
        let store = GroupStore::new(Arc::clone(&self.log), group);
        let stopped = |reason: String| RaftError::Stopped { group, reason };
        let awaited = Arc::new(Awaited::default());
        let net = Net {
            peers: Arc::clone(&self.peers),
            group,
            replica,
            machine: Arc::clone(&machine),
            outgoing: Arc::clone(&self.outgoing),
            awaited: Arc::clone(&awaited),
        };
        let raft = RaftHandle::new(
            replica.0,
            Arc::new(config(group, seeded && !sole_member)?),
            net,
            store,
            state_machine,
        )
        .await
        .map_err(|fatal| stopped(fatal.to_string()))?;
        if self.log.is_given_up(group)
            && !is_alone(&raft).await.map_err(|fatal| stopped(fatal.to_string()))?
        {
            raft.shutdown().await.map_err(|error| stopped(error.to_string()))?;
            return Err(RaftError::Corrupted(format!(
                "group {group}: entries that its damaged log lacks were given up here, but other replicas have them: \
                 this replica must be recreated"
            )));
        }
        if let Some(damage) = self.log.damage(group) {
            if !is_alone(&raft).await.map_err(|fatal| stopped(fatal.to_string()))? {
                raft.shutdown().await.map_err(|error| stopped(error.to_string()))?;
                return Err(RaftError::Corrupted(format!("group {group}: {damage}")));
            }
            tracing::warn!(%group, damage, "a damaged group of one member lacks no entry and continues");
            self.log.forget_damage(group);
        }
        // A replica that is created or joins may also have run before, in a creation that was cut short.
        let promised =
            voted && !is_alone(&raft).await.map_err(|fatal| stopped(fatal.to_string()))?;
        let pace = Pace::new(raft.clone(), group, replica, promised);
        if let Start::Create { members } = start {
            let members: BTreeMap<u64, Member> =
                members.into_iter().map(|(replica, node)| (replica.0, Member { node })).collect();
            raft.initialize(members).await.map_err(|error| stopped(error.to_string()))?;
        }
        let in_flight = (Arc::clone(&self.in_flight), self.in_flight_max);
        let log = Arc::clone(&self.log);
        let question = read_point::question(raft.clone(), Arc::clone(&self.peers), group, replica);
        let reads = (pace, ReadPoints::new(question), awaited);
        let running = Group::new((group, replica), raft, reads, log, machine, gate, in_flight);
        if let Err(error) = running.lead_if_alone().await {
            // Shut it down here: it is not among the running groups yet.
            if let Err(second) = running.shutdown().await {
                tracing::warn!(%group, error = %second, "shutting down a group that did not start");
            }
            return Err(error);
        }
        Ok(Arc::new(running))
    }

    async fn prepare_creation(&self, group: GroupId, replica: ReplicaId) -> Result<(), RaftError> {
        if self.log.groups().iter().any(|(id, _)| *id == group) {
            return Err(RaftError::InvalidInput(format!(
                "group {group} exists: it must be restarted or destroyed"
            )));
        }
        match self.log.replica(group) {
            // A creation that was cut short before its log held anything.
            Some(recorded) if recorded == replica => Ok(()),
            Some(_) => {
                self.log.destroy(group).await?;
                self.log.create(group, replica).await
            }
            None => self.log.create(group, replica).await,
        }
    }

    /// True if the log of a group is still as the seed has made it.
    fn is_as_seeded(&self, group: GroupId) -> Result<bool, RaftError> {
        let view = self.log.view(group)?;
        let seed = |last| Seeded::of(last);
        Ok(view.last.is_some_and(|last| {
            (view.vote, view.purged) == (Some(seed(last).vote), Some(seed(last).purged))
        }))
    }

    /// Puts a group into the log that continues another group's state: its first entry is the mark's, its members are
    /// the mark's, and the replica that the mark's position names leads. Completes when that is on disk. Returns false, and
    /// changes nothing, if the group is in the log already.
    ///
    /// # Errors
    /// [`RaftError::InvalidInput`] when the replica is not among the mark's members on this node,
    /// [`RaftError::Unavailable`] while the group is being started or destroyed; errors of the log.
    pub async fn seed_group(
        &self,
        group: GroupId,
        replica: ReplicaId,
        mark: &Mark,
    ) -> Result<bool, RaftError> {
        if mark.members().get(&replica) != Some(&self.node) {
            return Err(RaftError::InvalidInput(format!(
                "replica {replica} on node {} is not among the members that group {group} begins with",
                self.node
            )));
        }
        if self.group(group).is_some() {
            return Ok(false);
        }
        let _reserved = self.reserve(group)?;
        if self.log.groups().iter().any(|(id, _)| *id == group) {
            return Ok(false);
        }
        if self.log.replica(group).is_some() {
            // A creation that was cut short before its log held anything.
            self.log.destroy(group).await?;
        }
        self.log.seed(group, replica, mark.seed()).await?;
        Ok(true)
    }

    fn check_restart(
        &self,
        group: GroupId,
        replica: ReplicaId,
        machine: &dyn Machine,
    ) -> Result<(), RaftError> {
        if let Some(damage) = self.log.damage(group) {
            let mark = machine.durable_mark();
            let sole_member = mark.is_some_and(|mark| mark.members().into_keys().eq([replica]));
            if !self.log.is_void_damage(group, sole_member) {
                return Err(RaftError::Corrupted(format!("group {group}: {damage}")));
            }
        }
        if self.log.is_distrusted(group) && !planted::is(Plant::TrustOld) {
            return Err(RaftError::Corrupted(format!(
                "group {group}: its log belongs to an older copy of the data directory"
            )));
        }
        let recorded = self.log.groups().into_iter().find(|(id, _)| *id == group);
        match recorded {
            Some((_, recorded)) if recorded == replica => {}
            Some((_, recorded)) => {
                return Err(RaftError::InvalidInput(format!(
                    "group {group} is here as replica {recorded}, not as replica {replica}"
                )));
            }
            None => {
                return Err(RaftError::InvalidInput(format!(
                    "group {group} is not in the log of this node"
                )));
            }
        }
        let view = self.log.view(group)?;
        let durable = machine.durable_mark().map(|mark| mark.position());
        if view.purged > durable {
            return Err(RaftError::Corrupted(format!(
                "the log of group {group} begins after {:?}, but the replica's files end at {durable:?}",
                view.purged.map(log_id)
            )));
        }
        // A crash after another replica's state was installed, and before the log was given up for it, leaves this.
        // That state may date from a time when its replica was the only member.
        let sole_member =
            machine.durable_mark().is_none_or(|mark| mark.members().into_keys().eq([replica]));
        if view.last < durable && sole_member {
            return Err(RaftError::Corrupted(format!(
                "the log of group {group} ends at {:?}, but the replica's files reach to {durable:?}",
                view.last.map(log_id)
            )));
        }
        Ok(())
    }

    /// Stops the group, if it runs, and removes it from the log. Its machine's files remain; the caller removes them.
    ///
    /// # Errors
    /// [`RaftError::InvalidInput`] while the group is being started or destroyed; errors of the log.
    pub async fn destroy_group(&self, group: GroupId) -> Result<(), RaftError> {
        let running = {
            let mut groups = self.groups.lock();
            match groups.insert(group, Slot::Busy) {
                Some(Slot::Running(running)) => Some(running),
                Some(Slot::Busy) => return Err(busy(group)),
                None => None,
            }
        };
        let _reserved = Reserved { groups: &self.groups, group };
        if let Some(running) = running
            && let Err(error) = running.shutdown().await
        {
            tracing::warn!(%group, %error, "shutting down a group to destroy it");
        }
        if self.log.replica(group).is_some() {
            self.log.destroy(group).await?;
        }
        Ok(())
    }

    /// Groups that must flush, so that the log can be reclaimed. Empty while the log is within its budget.
    #[must_use]
    pub fn pressure(&self) -> watch::Receiver<Vec<GroupId>> {
        self.log.pressure()
    }

    /// Figures of the log: size, entries, syncs.
    #[must_use]
    pub fn log_stats(&self) -> LogStats {
        self.log.stats()
    }

    /// Groups that may lack entries or votes which they have acknowledged, because the log is damaged, each with a
    /// description. They cannot be started: only destroyed, or accepted as they are ([`HostOptions::accepted`]).
    #[must_use]
    pub fn damaged(&self) -> Vec<(GroupId, String)> {
        self.log.damaged()
    }

    /// The error that made the log stop accepting writes; `None` while it works.
    #[must_use]
    pub fn log_failure(&self) -> Option<RaftError> {
        self.log.failure()
    }

    /// Stops all groups, then the log. Every acknowledged write is on disk already.
    ///
    /// # Errors
    /// The first error of a group; the others are stopped all the same.
    pub async fn shutdown(&self) -> Result<(), RaftError> {
        self.in_flight.close();
        let running: Vec<Arc<Group>> = {
            let groups = std::mem::take(&mut *self.groups.lock());
            let running = groups.into_values().filter_map(|slot| match slot {
                Slot::Running(running) => Some(running),
                Slot::Busy => None,
            });
            running.collect()
        };
        self.stopped.send_replace(true);
        self.peers.clear();
        let results = futures::future::join_all(running.iter().map(|group| group.shutdown())).await;
        let log = Arc::clone(&self.log);
        let closed = blocking::spawn(move || log.close()).await;
        closed.map_err(|error| {
            RaftError::Unavailable(format!("closing the log was interrupted: {error}"))
        })?;
        self.log.ended().await;
        results.into_iter().collect()
    }

    fn reserve(&self, group: GroupId) -> Result<Reserved<'_>, RaftError> {
        let mut groups = self.groups.lock();
        match groups.get(&group) {
            Some(Slot::Running(_)) => {
                Err(RaftError::InvalidInput(format!("group {group} runs already")))
            }
            Some(Slot::Busy) => Err(busy(group)),
            None => {
                groups.insert(group, Slot::Busy);
                Ok(Reserved { groups: &self.groups, group })
            }
        }
    }
}

fn busy(group: GroupId) -> RaftError {
    RaftError::Unavailable(format!("group {group} is being started or destroyed"))
}

/// Reserves a group's slot while it is started or destroyed; frees the slot if that fails.
struct Reserved<'a> {
    groups: &'a Mutex<BTreeMap<GroupId, Slot>>,
    group: GroupId,
}

impl Reserved<'_> {
    fn run(self, running: Arc<Group>) {
        self.groups.lock().insert(self.group, Slot::Running(running));
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut groups = self.groups.lock();
        if matches!(groups.get(&self.group), Some(Slot::Busy)) {
            groups.remove(&self.group);
        }
    }
}
