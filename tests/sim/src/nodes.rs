//! The lives of nodes: start, crash, and restart with the data that the disk kept.
//!
//! All nodes share one runtime, so a crash cannot end their tasks. Instead it first takes away the network, the
//! log's disk and the files; the tasks left can then neither reach another node nor change anything, and are
//! stopped.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use partita_datanode::generation::{Age, GenerationKeeper};
use partita_datanode::{Datanode, EngineOptions, NodeOptions};
use partita_meta::{MemoryStore, Meta, MetaOptions};
use partita_proto::clock::Clock;
use partita_proto::error::Error;
use partita_proto::generation::{Generations, Renewal, Renewed};
use partita_proto::id::{NodeId, PartitionId, ReplicaId};
use partita_proto::label::Labels;
use partita_proto::member::{Heartbeat, Registration};
use partita_proto::service::{ClusterService, DataNodes, DataService, ReplicaStatus};
use partita_raft::{Host, HostOptions, OnFailure, RaftError, SimulatedDisk};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::claims::SimClaims;
use crate::cluster::Cluster;
use crate::files::SimFiles;
use crate::random::Random;
use crate::remote::Remotes;

/// Time limit for the tasks left by a crash to stop.
const STOP_WAIT: Duration = Duration::from_secs(60);
/// Interval of heartbeats, and the time limit for an answer to one.
const BEAT: Duration = Duration::from_secs(1);
const BEAT_WAIT: Duration = Duration::from_secs(3);
/// Attempts of a node without data to register under its old number.
const EMPTY_ATTEMPTS: u32 = 30;
/// Time without a heartbeat after which a node's replicas are replaced.
pub(crate) const REPAIR_AFTER: Duration = Duration::from_secs(8);
/// Interval at which a data directory gets a new generation.
const RENEW_INTERVAL: Duration = Duration::from_secs(4);
/// Node ids of the metas.
pub(crate) const METAS: std::ops::RangeInclusive<u64> = 101..=103;

/// A node's wall clock: simulated time plus an error.
#[derive(Default)]
pub(crate) struct SimClock {
    pub(crate) wrong_by_ms: AtomicI64,
}

impl Clock for SimClock {
    fn now_ms(&self) -> i64 {
        let passed = tokio::time::Instant::now().duration_since(crate::history::start());
        let passed = i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
        1_767_268_800_000 + passed + self.wrong_by_ms.load(Ordering::Relaxed)
    }
}

/// Sizes for all nodes of a run, small enough that everything that happens on large nodes happens here, too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) segment_bytes: u64,
    pub(crate) log_bytes: u64,
    pub(crate) memtable_bytes: u64,
}

/// A datanode and its storage.
pub(crate) struct DataNode {
    pub(crate) id: NodeId,
    pub(crate) disk: SimulatedDisk,
    pub(crate) files: SimFiles,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) claims: SimClaims,
    /// Bits of its log were flipped, so the next start may find damage.
    pub(crate) rotten: bool,
    /// The disks were restored from a copy, which the next start must detect.
    pub(crate) older: bool,
    /// A start is in progress.
    starting: bool,
    pub(crate) up: Option<DataLife>,
}

/// A copy of a datanode's storage at one moment.
pub(crate) struct DataCopy {
    disk: SimulatedDisk,
    files: SimFiles,
    claims: SimClaims,
    /// Replicas on the node at that moment.
    replicas: BTreeSet<(PartitionId, ReplicaId)>,
}

/// A copy of a meta's storage at one moment.
pub(crate) struct MetaCopy {
    disk: SimulatedDisk,
    store: MemoryStore,
    claims: SimClaims,
}

/// A running datanode, from its start to its crash.
#[derive(Clone)]
pub(crate) struct DataLife {
    pub(crate) node: Arc<Datanode>,
    pub(crate) host: Arc<Host>,
    stop: CancellationToken,
}

/// A meta and its storage.
pub(crate) struct MetaNode {
    pub(crate) id: NodeId,
    pub(crate) disk: SimulatedDisk,
    pub(crate) store: Arc<MemoryStore>,
    /// Random number of its data directory.
    identity: u64,
    claims: SimClaims,
    /// True if it starts with the order to rejoin after a loss of its data.
    rejoins: bool,
    /// The disk was restored from a copy.
    older: bool,
    pub(crate) up: Option<MetaLife>,
}

/// A running meta, from its start to its crash.
#[derive(Clone)]
pub(crate) struct MetaLife {
    pub(crate) meta: Arc<Meta>,
    pub(crate) host: Arc<Host>,
    stop: CancellationToken,
    running: Arc<tokio::sync::Mutex<Option<JoinHandle<()>>>>,
}

fn raft_failed(error: RaftError) -> Error {
    match error {
        RaftError::DiskFull(why) => Error::DiskFull(why),
        RaftError::Corrupted(why) => Error::Corrupted(why),
        error => Error::Unavailable(error.to_string()),
    }
}

impl DataNode {
    pub(crate) fn new(id: NodeId) -> Self {
        Self {
            id,
            disk: SimulatedDisk::default(),
            files: SimFiles::new(),
            clock: Arc::default(),
            claims: SimClaims::default(),
            rotten: false,
            older: false,
            starting: false,
            up: None,
        }
    }

    /// A copy of the storage; `None` if the node is down.
    pub(crate) fn copy(&self) -> Option<DataCopy> {
        let groups = self.up.as_ref()?.host.known_groups().into_iter();
        Some(DataCopy {
            disk: self.disk.copy(),
            files: self.files.copy(),
            claims: self.claims.survivor(),
            replicas: groups.map(|(group, replica)| (PartitionId(group.0), replica)).collect(),
        })
    }

    /// Replaces the storage by a copy, while the node is down.
    pub(crate) fn put_back(&mut self, copy: &DataCopy) {
        self.disk = copy.disk.copy();
        self.files = copy.files.copy();
        self.claims = copy.claims.survivor();
        self.older = true;
    }
}

impl DataCopy {
    /// True if meta has acknowledged a newer generation than the copy's, as far as this node knows.
    pub(crate) fn is_outlived(&self, node: &DataNode) -> bool {
        self.claims.claim().is_older(node.claims.claim().acknowledged)
    }

    /// A replica of the copy that the node serves, according to its status.
    pub(crate) fn served(&self, statuses: &[ReplicaStatus]) -> Option<(PartitionId, ReplicaId)> {
        let serves = statuses.iter().filter(|status| status.failure.is_none());
        let mut served = serves.map(|status| (status.partition, status.replica));
        served.find(|replica| self.replicas.contains(replica))
    }
}

impl MetaNode {
    pub(crate) fn new(id: NodeId) -> Self {
        Self {
            id,
            disk: SimulatedDisk::default(),
            store: Arc::default(),
            identity: id.0 * 1000 + 7,
            claims: SimClaims::default(),
            rejoins: false,
            older: false,
            up: None,
        }
    }

    /// A copy of the storage.
    pub(crate) fn copy(&self) -> MetaCopy {
        let (disk, store) = (self.disk.copy(), self.store.survivor());
        MetaCopy { disk, store, claims: self.claims.survivor() }
    }

    /// Replaces the storage by a copy, while the meta is down.
    pub(crate) fn put_back(&mut self, copy: MetaCopy) {
        let MetaCopy { disk, store, claims } = copy;
        (self.disk, self.store, self.claims) = (disk, Arc::new(store), claims);
        self.older = true;
    }
}

impl MetaCopy {
    /// True if a newer generation than the copy's is recorded, as far as this member knows.
    pub(crate) fn is_outlived(&self, id: NodeId, member: &Meta) -> bool {
        self.claims.claim().is_older(member.generation_of(id))
    }
}

fn host_options(node: NodeId, sizes: Sizes) -> HostOptions {
    HostOptions {
        segment_bytes: sizes.segment_bytes,
        log_budget_bytes: sizes.log_bytes,
        cache_bytes: sizes.segment_bytes,
        snapshot_bytes_per_second: 4 << 20,
        ..HostOptions::new("/simulated", node)
    }
}

/// Starts a datanode with its current storage, unless it is up or another start is in progress.
pub(crate) async fn start_data(cluster: &Arc<Cluster>, id: NodeId) -> Result<(), Error> {
    {
        let mut nodes = cluster.data.lock();
        let node = nodes.get_mut(&id).filter(|node| node.up.is_none() && !node.starting);
        let Some(node) = node else { return Ok(()) };
        node.starting = true;
    }
    let started = start_data_alone(cluster, id).await;
    if let Some(node) = cluster.data.lock().get_mut(&id) {
        node.starting = false;
    }
    started
}

async fn start_data_alone(cluster: &Arc<Cluster>, id: NodeId) -> Result<(), Error> {
    let (disk, files, claims, clock, rotten, older) = {
        let nodes = cluster.data.lock();
        let Some(node) = nodes.get(&id) else { return Ok(()) };
        let (disk, files, claims) = (node.disk.clone(), node.files.clone(), node.claims.clone());
        (disk, files, claims, Arc::clone(&node.clock), node.rotten, node.older)
    };
    // Register, and let meta check the generation of the data directory.
    let metas = Metas::new(cluster, id);
    while let Err(error) = metas.register(identity(id)).await {
        cluster.history.note(format_args!("node {id} is not registered yet: {error}"));
        tokio::time::sleep(BEAT).await;
    }
    let generations = Generations::open(Arc::new(claims))?;
    let chance = Arc::new(move || incarnation(id));
    let mut keeper = GenerationKeeper::new(generations, (id, identity(id)), chance, RENEW_INTERVAL);
    let renew = |renewal: Renewal| metas.renew(renewal);
    let recorded = match keeper.confirm(&[], renew).await? {
        Age::Older { recorded, .. } => Some(recorded),
        Age::Current { .. } | Age::Unknown => None,
    };
    if recorded.is_some() != older {
        cluster.history.violation(format!(
            "node {id} was {} an older copy",
            if older { "not recognized as" } else { "mistaken for" }
        ));
    }
    // Open the log; its failure ends the node.
    let failed = CancellationToken::new();
    let on_log_failure = {
        let failed = failed.clone();
        OnFailure::new(move |_| failed.cancel())
    };
    let options = HostOptions { on_log_failure, ..host_options(id, cluster.sizes) };
    let host = Host::open_simulated(&disk, &options, cluster.net.raft.transport(id)).await;
    let host = host.map_err(raft_failed)?;
    if let Some((group, damage)) = host.damaged().into_iter().next().filter(|_| !rotten) {
        let why = format!("node {id} finds damage that no fault caused: group {group}: {damage}");
        cluster.history.violation(why);
    }
    // Small sizes and short times, so that flushes and compactions happen within a run.
    let engine = EngineOptions {
        memtable_bytes_max: cluster.sizes.memtable_bytes,
        flush_age: Duration::from_secs(10),
        compaction_runs: 3,
        compaction_runs_busy: 4,
        ..EngineOptions::default()
    };
    let options = NodeOptions {
        node: id,
        dir: "/simulated".into(),
        memtables_bytes_max: 4 * cluster.sizes.memtable_bytes,
        engine,
        // Without flipped bits there is no damage: any found is a bug.
        put_aside: rotten,
        older: recorded.is_some(),
        accepted: BTreeSet::new(),
        trash_keep: Duration::ZERO,
        partition_rows_per_s: None,
    };
    // The groups of this node elect leaders while others are still being opened.
    cluster.net.raft.attach(&host);
    let opened = Datanode::open_over(options, Arc::clone(&host), clock, Arc::new(files)).await;
    let node = match opened {
        Ok(node) => node,
        Err(error) => {
            if let Err(second) = host.shutdown().await {
                cluster.history.note(format_args!("node {id} did not stop: {second}"));
            }
            return Err(error);
        }
    };
    let started = match recorded {
        Some(recorded) => keeper.begin_anew(recorded, renew).await,
        None => Ok(()),
    };
    // The node is up: it serves, sends heartbeats, and ends when its log fails.
    cluster.net.join(id);
    let stop = CancellationToken::new();
    let life = DataLife { node, host, stop: stop.clone() };
    tokio::spawn(beat(metas, Arc::clone(&life.node), keeper, stop.clone()));
    tokio::spawn(supervise(Arc::clone(cluster), id, failed, stop));
    if let Some(node) = cluster.data.lock().get_mut(&id) {
        (node.rotten, node.older) = (false, false);
        node.up = Some(life);
    }
    started
}

/// Ends a datanode when its log has failed, like its process would, and restarts it.
fn supervise(
    cluster: Arc<Cluster>,
    id: NodeId,
    failed: CancellationToken,
    stop: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = failed.cancelled() => {}
        }
        let mut random = Random::new(id.0, 11);
        if !crash_data(&cluster, id, random.clone()).await {
            return;
        }
        cluster.history.note(format_args!("node {id} has ended: its log failed"));
        tokio::time::sleep(random.millis(200, 3000)).await;
        if let Err(error) = start_data(&cluster, id).await {
            cluster.history.note(format_args!("node {id} does not start: {error}"));
        }
    })
}

/// The disk after a power loss. Each unsynced block is kept or lost at random, or none is kept, or all are. Without
/// the first case no record would be torn; without the second, missing syncs would mostly show as damage, not as
/// silent loss.
fn survivor(disk: &SimulatedDisk, random: &mut Random) -> SimulatedDisk {
    match random.below(4) {
        0 => disk.survivor(|| false),
        1 => disk.survivor(|| true),
        _ => disk.survivor(|| random.once_in(2)),
    }
}

/// Takes a datanode's power; the seed decides which unsynced data its disks keep. False if it is down already: then
/// the cause of that restarts it.
pub(crate) async fn crash_data(cluster: &Arc<Cluster>, id: NodeId, mut random: Random) -> bool {
    let (life, disk, files) = {
        let mut nodes = cluster.data.lock();
        let Some(node) = nodes.get_mut(&id) else { return false };
        let Some(life) = node.up.take() else { return false };
        cluster.net.leave(id);
        node.disk.cut();
        node.files.cut();
        node.claims.cut();
        let (disk, files) = (node.disk.clone(), node.files.clone());
        (life, disk, files)
    };
    life.stop.cancel();
    let stopped = async {
        // Errors are expected on a node without power.
        life.host.shutdown().await.ok();
        life.node.abandon().await;
    };
    if tokio::time::timeout(STOP_WAIT, stopped).await.is_err() {
        cluster.history.violation(format!("the tasks of node {id} did not stop after its crash"));
    }
    let disk = survivor(&disk, &mut random);
    if let Some(node) = cluster.data.lock().get_mut(&id) {
        node.disk = disk;
        node.files = files.survivor();
        node.claims = node.claims.survivor();
    }
    true
}

/// Random number of a datanode's data directory.
fn identity(id: NodeId) -> u64 {
    id.0 * 1000 + 7
}

/// Asks meta to register an empty data directory under the number of a node that has lost its own; returns the answer.
///
/// # Errors
/// The refusal; [`Error::Unavailable`] if no meta answers.
pub(crate) async fn register_empty(cluster: &Arc<Cluster>, id: NodeId) -> Result<(), Error> {
    let metas = Metas::new(cluster, id);
    for _ in 0..EMPTY_ATTEMPTS {
        match metas.register(identity(id) + 1).await {
            Err(error) if error.is_retryable() => tokio::time::sleep(BEAT).await,
            answer => return answer,
        }
    }
    Err(Error::Unavailable("no meta has answered".to_owned()))
}

/// Meta's members, as a datanode calls them.
#[derive(Clone)]
struct Metas {
    cluster: Arc<Cluster>,
    id: NodeId,
    /// The member to ask next: the leader, as far as known.
    next: Arc<AtomicU64>,
}

impl Metas {
    fn new(cluster: &Arc<Cluster>, id: NodeId) -> Self {
        let next = Arc::new(AtomicU64::new(*METAS.start()));
        Self { cluster: Arc::clone(cluster), id, next }
    }

    /// Calls one member, and determines the next one to ask from the answer.
    async fn ask<T, F>(&self, ask: impl FnOnce(Arc<Meta>) -> F + Send + 'static) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let member = NodeId(self.next.load(Ordering::Relaxed));
        let meta = self.cluster.meta(member);
        let call = self.cluster.net.call(self.id, member, BEAT_WAIT, async move {
            ask(meta.ok_or_else(|| Error::Unavailable("the meta is down".to_owned()))?).await
        });
        let answer = call.await;
        let next = match &answer {
            Ok(_) | Err(Error::NotFound { .. } | Error::InvalidInput(_)) => member,
            Err(Error::NotLeader { leader: Some(leader), .. }) if *leader != member => *leader,
            Err(_) if member.0 < *METAS.end() => NodeId(member.0 + 1),
            Err(_) => NodeId(*METAS.start()),
        };
        self.next.store(next.0, Ordering::Relaxed);
        answer
    }

    /// Registers a data directory with this random number under the node's id.
    async fn register(&self, identity: u64) -> Result<(), Error> {
        let (node, address, labels) = (Some(self.id), address(self.id), Labels::default());
        let directory = Registration { identity, node, address, labels };
        self.ask(|meta| async move { meta.register(directory).await.map(drop) }).await
    }

    async fn renew(&self, renewal: Renewal) -> Result<Renewed, Error> {
        self.ask(|meta| async move { meta.renew(renewal).await }).await
    }
}

fn address(id: NodeId) -> String {
    format!("node-{id}:1")
}

/// Sends a heartbeat to meta every second and renews the node's generation.
async fn beat(
    metas: Metas,
    node: Arc<Datanode>,
    mut keeper: GenerationKeeper,
    stop: CancellationToken,
) {
    let (id, history) = (metas.id, &metas.cluster.history);
    loop {
        if stop.is_cancelled() {
            return;
        }
        // The generation is renewed first: an outdated one ends the node.
        let renewed = keeper.renew_when_due(|renewal| metas.renew(renewal));
        let renewed = tokio::select! {
            () = stop.cancelled() => return,
            renewed = renewed => renewed,
        };
        if let Err(error @ Error::InvalidInput(_)) = renewed {
            history.violation(format!("node {id} must end: {error}"));
            return;
        }
        // The heartbeat carries the state of all replicas and the current generation.
        let (mine, claim) = (Arc::clone(&node), keeper.claim());
        let reply = metas.ask(move |meta| async move {
            let heartbeat = Heartbeat {
                node: id,
                identity: identity(id),
                address: address(id),
                replicas: mine.status().await?,
                loads: mine.loads(),
                labels: Labels::default(),
                cpu_ms: None,
                claim,
                follower_reads: mine.follower_reads(),
                names_leader: true,
            };
            meta.heartbeat(heartbeat).await
        });
        // After a hint to the leader the heartbeat is sent again at once.
        match reply.await {
            Err(Error::NotLeader { leader: Some(_), .. }) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            Err(error @ Error::InvalidInput(_)) if !stop.is_cancelled() => {
                history.violation(format!("node {id} must end: {error}"));
                return;
            }
            Ok(()) | Err(_) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(BEAT) => {}
        }
    }
}

/// A number that differs from those of all other starts of nodes in the run.
fn incarnation(id: NodeId) -> u64 {
    let passed = tokio::time::Instant::now().duration_since(crate::history::start());
    u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX).wrapping_mul(1024).wrapping_add(id.0)
}

/// Starts a meta with its current storage.
pub(crate) async fn start_meta(cluster: &Arc<Cluster>, id: NodeId) -> Result<(), Error> {
    let (disk, store, identity, rejoins, claims, older) = {
        let metas = cluster.metas.lock();
        let Some(node) = metas.get(&id).filter(|node| node.up.is_none()) else { return Ok(()) };
        let (disk, store, claims) = (&node.disk, &node.store, &node.claims);
        let (disk, store, claims) = (disk.clone(), Arc::clone(store), claims.clone());
        (disk, store, node.identity, node.rejoins, claims, node.older)
    };
    // Opens the groups from the disk.
    let options = HostOptions { identity, ..host_options(id, cluster.sizes) };
    let host = Host::open_simulated(&disk, &options, cluster.net.raft.transport(id)).await;
    let host = host.map_err(raft_failed)?;
    let options = MetaOptions {
        members: METAS.map(|meta| (ReplicaId(meta), NodeId(meta))).collect(),
        replication_factor: 3,
        repair_after: REPAIR_AFTER,
        identity,
        rejoins,
        incarnation: incarnation(id),
        generations: Some(Arc::new(Generations::open(Arc::new(claims))?)),
        renew_every: RENEW_INTERVAL,
        ..MetaOptions::alone("/simulated", Arc::<SimClock>::default())
    };
    // From here on the other members reach its log ...
    let nodes: Arc<dyn DataNodes> = Arc::new(Remotes::new(cluster, id));
    cluster.net.raft.attach(&host);
    let opened = Meta::open_in_memory(options, Arc::clone(&host), nodes, store).await;
    let meta = opened.map_err(|error| Error::Unavailable(error.to_string()))?;
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (meta, stop) = (Arc::clone(&meta), stop.clone());
        async move { Box::pin(meta.run(stop)).await }
    });
    // ... and from here on all others reach the meta itself.
    cluster.net.join(id);
    tokio::spawn(heed_refusal(Arc::clone(cluster), id, Arc::clone(&meta), older, stop.clone()));
    let running = Arc::new(tokio::sync::Mutex::new(Some(running)));
    let life = MetaLife { meta, host, stop, running };
    if let Some(node) = cluster.metas.lock().get_mut(&id) {
        node.up = Some(life);
    }
    Ok(())
}

/// Reports a violation if a meta is refused as an older copy and is not one.
async fn heed_refusal(
    cluster: Arc<Cluster>,
    id: NodeId,
    meta: Arc<Meta>,
    older: bool,
    stop: CancellationToken,
) {
    let why = tokio::select! {
        () = stop.cancelled() => return,
        why = meta.refused() => why,
    };
    cluster.history.note(format_args!("meta {id} is refused: {why}"));
    if why.contains("older copy") && !older {
        cluster.history.violation(format!("meta {id} was mistaken for an older copy: {why}"));
    }
}

/// Replaces the disk of a meta that is down by an empty one. The meta then starts as a new member, or with the
/// order to rejoin.
pub(crate) fn wipe_meta(cluster: &Cluster, id: NodeId, rejoins: bool) {
    if let Some(node) = cluster.metas.lock().get_mut(&id).filter(|node| node.up.is_none()) {
        node.disk = SimulatedDisk::default();
        node.store = Arc::default();
        node.claims = SimClaims::default();
        node.identity += 1_000_000;
        (node.rejoins, node.older) = (rejoins, false);
    }
}

/// Takes a meta's power; false if it is down already.
pub(crate) async fn crash_meta(cluster: &Arc<Cluster>, id: NodeId, mut random: Random) -> bool {
    let (life, disk, store) = {
        let mut metas = cluster.metas.lock();
        let Some(node) = metas.get_mut(&id) else { return false };
        let Some(life) = node.up.take() else { return false };
        cluster.net.leave(id);
        node.disk.cut();
        node.claims.cut();
        let store = node.store.survivor();
        (life, node.disk.clone(), store)
    };
    // The power is off; the tasks left are stopped before the next life begins.
    life.stop.cancel();
    let stopped = async {
        life.host.shutdown().await.ok();
        let running = life.running.lock().await.take();
        if let Some(running) = running {
            running.await.ok();
        }
    };
    if tokio::time::timeout(STOP_WAIT, stopped).await.is_err() {
        cluster.history.violation(format!("the tasks of meta {id} did not stop after its crash"));
    }
    let disk = survivor(&disk, &mut random);
    if let Some(node) = cluster.metas.lock().get_mut(&id) {
        node.disk = disk;
        node.store = Arc::new(store);
        node.claims = node.claims.survivor();
    }
    true
}
