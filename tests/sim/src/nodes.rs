//! The life of a node: started, crashed, started again over what its disk kept.
//!
//! All nodes share one runtime, so a crash cannot take their tasks away. It takes everything else first: the network,
//! the log's disk, the files. What still runs then reaches nobody and changes nothing, and is stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use partita_datanode::{Datanode, EngineOptions, NodeOptions};
use partita_meta::{MemoryStore, Meta, MetaOptions};
use partita_proto::clock::Clock;
use partita_proto::error::Error;
use partita_proto::id::{NodeId, ReplicaId};
use partita_proto::label::Labels;
use partita_proto::member::{Heartbeat, Registration};
use partita_proto::service::{ClusterService, DataNodes, DataService};
use partita_raft::{Host, HostOptions, OnLogFailure, RaftError, SimulatedDisk};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::files::SimFiles;
use crate::random::Random;
use crate::remote::Remotes;

/// How long the leftovers of a crash may take to stop.
const STOP_WAIT: Duration = Duration::from_secs(60);
/// How often a node beats, and how long it waits for an answer.
const BEAT: Duration = Duration::from_secs(1);
const BEAT_WAIT: Duration = Duration::from_secs(3);
/// How long nothing is heard of a node before its replicas are made anew.
pub(crate) const REPAIR_AFTER: Duration = Duration::from_secs(8);
/// Metas have numbers from here on.
pub(crate) const METAS: std::ops::RangeInclusive<u64> = 101..=103;

/// A node's time of day: simulated time, and what it is wrong by.
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

/// What a run chooses for all nodes: small enough that everything that happens to large nodes happens here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) segment_bytes: u64,
    pub(crate) log_bytes: u64,
    pub(crate) memtable_bytes: u64,
}

/// A datanode and all that it keeps.
pub(crate) struct DataNode {
    pub(crate) id: NodeId,
    pub(crate) disk: SimulatedDisk,
    pub(crate) files: SimFiles,
    pub(crate) clock: Arc<SimClock>,
    /// Bad bits were made in its log, so damage may be found at the next start.
    pub(crate) rotten: bool,
    pub(crate) up: Option<DataLife>,
}

/// One life of a datanode.
#[derive(Clone)]
pub(crate) struct DataLife {
    pub(crate) node: Arc<Datanode>,
    pub(crate) host: Arc<Host>,
    stop: CancellationToken,
}

/// A meta and all that it keeps.
pub(crate) struct MetaNode {
    pub(crate) id: NodeId,
    pub(crate) disk: SimulatedDisk,
    pub(crate) store: Arc<MemoryStore>,
    /// The random number of its data directory.
    identity: u64,
    /// Whether it is told that it lost its data.
    rejoins: bool,
    pub(crate) up: Option<MetaLife>,
}

/// One life of a meta.
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
        other => Error::Unavailable(other.to_string()),
    }
}

impl DataNode {
    pub(crate) fn new(id: NodeId) -> Self {
        Self {
            id,
            disk: SimulatedDisk::default(),
            files: SimFiles::new(),
            clock: Arc::default(),
            rotten: false,
            up: None,
        }
    }
}

impl MetaNode {
    pub(crate) fn new(id: NodeId) -> Self {
        Self {
            id,
            disk: SimulatedDisk::default(),
            store: Arc::default(),
            identity: id.0 * 1000 + 7,
            rejoins: false,
            up: None,
        }
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

/// Starts a datanode over what it has.
pub(crate) async fn start_data(cluster: &Arc<Cluster>, id: NodeId) -> Result<(), Error> {
    let (disk, files, clock, rotten) = {
        let nodes = cluster.data.lock();
        let Some(node) = nodes.get(&id).filter(|node| node.up.is_none()) else { return Ok(()) };
        (node.disk.clone(), node.files.clone(), Arc::clone(&node.clock), node.rotten)
    };
    let failed = CancellationToken::new();
    let on_log_failure = {
        let failed = failed.clone();
        OnLogFailure::new(move |_| failed.cancel())
    };
    let options = HostOptions { on_log_failure, ..host_options(id, cluster.sizes) };
    let host = Host::open_simulated(&disk, &options, cluster.net.raft.transport(id)).await;
    let host = host.map_err(raft_failed)?;
    if let Some((group, damage)) = host.damaged().into_iter().next().filter(|_| !rotten) {
        let why = format!("node {id} finds damage that nobody made: group {group}: {damage}");
        cluster.history.violation(why);
    }
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
        // Without bad bits nothing is damaged: what seems so is a mistake of ours.
        put_aside: rotten,
        trash_keep: Duration::ZERO,
        partition_rows_per_s: None,
    };
    // Its groups elect leaders while the others are still being opened.
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
    cluster.net.join(id);
    let stop = CancellationToken::new();
    let life = DataLife { node, host, stop: stop.clone() };
    tokio::spawn(beat(Arc::clone(cluster), id, Arc::clone(&life.node), stop.clone()));
    tokio::spawn(supervise(Arc::clone(cluster), id, failed, stop));
    if let Some(node) = cluster.data.lock().get_mut(&id) {
        node.rotten = false;
        node.up = Some(life);
    }
    Ok(())
}

/// Ends a datanode when its log has failed, as its process would, and starts it again.
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

/// What a disk has kept of its unsynced blocks when the power is back: each or not, none, or all. Without the first no
/// record would be torn; without the second, what was not synced would mostly be noticed as damage, instead of being
/// silently absent.
fn survivor(disk: &SimulatedDisk, random: &mut Random) -> SimulatedDisk {
    match random.below(4) {
        0 => disk.survivor(|| false),
        1 => disk.survivor(|| true),
        _ => disk.survivor(|| random.once_in(2)),
    }
}

/// Takes a datanode's power. What its disks keep follows from the seed. False when it is down already: whoever took its
/// power starts it again.
pub(crate) async fn crash_data(cluster: &Arc<Cluster>, id: NodeId, mut random: Random) -> bool {
    let (life, disk, files) = {
        let mut nodes = cluster.data.lock();
        let Some(node) = nodes.get_mut(&id) else { return false };
        let Some(life) = node.up.take() else { return false };
        cluster.net.leave(id);
        node.disk.cut();
        node.files.cut();
        let (disk, files) = (node.disk.clone(), node.files.clone());
        (life, disk, files)
    };
    life.stop.cancel();
    let stopped = async {
        // Errors are what a node without power has to expect.
        life.host.shutdown().await.ok();
        life.node.abandon().await;
    };
    if tokio::time::timeout(STOP_WAIT, stopped).await.is_err() {
        cluster.history.violation(format!("what was left of node {id} did not stop"));
    }
    let disk = survivor(&disk, &mut random);
    if let Some(node) = cluster.data.lock().get_mut(&id) {
        node.disk = disk;
        node.files = files.survivor();
    }
    true
}

/// Registers, then tells meta once a second how it is.
async fn beat(cluster: Arc<Cluster>, id: NodeId, node: Arc<Datanode>, stop: CancellationToken) {
    let (address, labels) = (format!("node-{id}:1"), Labels::default());
    let me = Registration { identity: id.0 * 1000 + 7, node: Some(id), address, labels };
    let mut registered = false;
    let mut asked = METAS.map(NodeId).cycle();
    let mut leader = NodeId(*METAS.start());
    loop {
        if stop.is_cancelled() {
            return;
        }
        let (to, meta) = (leader, cluster.meta(leader));
        let (me, mine) = (me.clone(), Arc::clone(&node));
        let said = cluster.net.call(id, to, BEAT_WAIT, async move {
            let meta = meta.ok_or_else(|| Error::Unavailable("it is down".to_owned()))?;
            if !registered {
                return meta.register(me).await.map(drop);
            }
            let replicas = mine.status().await?;
            let heartbeat = Heartbeat {
                node: id,
                identity: me.identity,
                address: me.address,
                replicas,
                loads: mine.loads(),
                labels: me.labels,
                cpu_ms: None,
            };
            meta.heartbeat(heartbeat).await
        });
        match said.await {
            Ok(()) if !registered => {
                registered = true;
                continue;
            }
            Ok(()) => {}
            Err(Error::NotLeader { leader: Some(other), .. }) if other != leader => {
                leader = other;
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            Err(Error::NotFound { .. }) => registered = false,
            Err(_) => leader = asked.next().unwrap_or(leader),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(BEAT) => {}
        }
    }
}

/// A number that no other start of a node in the same run has.
fn incarnation(id: NodeId) -> u64 {
    let passed = tokio::time::Instant::now().duration_since(crate::history::start());
    u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX).wrapping_mul(1024).wrapping_add(id.0)
}

/// Starts a meta over what it has.
pub(crate) async fn start_meta(cluster: &Arc<Cluster>, id: NodeId) -> Result<(), Error> {
    let (disk, store, identity, rejoins) = {
        let metas = cluster.metas.lock();
        let Some(node) = metas.get(&id).filter(|node| node.up.is_none()) else { return Ok(()) };
        (node.disk.clone(), Arc::clone(&node.store), node.identity, node.rejoins)
    };
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
        ..MetaOptions::alone("/simulated", Arc::<SimClock>::default())
    };
    let nodes: Arc<dyn DataNodes> = Arc::new(Remotes::new(cluster, id));
    cluster.net.raft.attach(&host);
    let opened = Meta::open_in_memory(options, Arc::clone(&host), nodes, store).await;
    let meta = opened.map_err(|error| Error::Unavailable(error.to_string()))?;
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (meta, stop) = (Arc::clone(&meta), stop.clone());
        async move { meta.run(stop).await }
    });
    cluster.net.join(id);
    let running = Arc::new(tokio::sync::Mutex::new(Some(running)));
    let life = MetaLife { meta, host, stop, running };
    if let Some(node) = cluster.metas.lock().get_mut(&id) {
        node.up = Some(life);
    }
    Ok(())
}

/// Takes the disk of a meta that is down, and gives it an empty one: it starts as one that never was, or is told that it
/// lost its data.
pub(crate) fn wipe_meta(cluster: &Cluster, id: NodeId, rejoins: bool) {
    if let Some(node) = cluster.metas.lock().get_mut(&id).filter(|node| node.up.is_none()) {
        node.disk = SimulatedDisk::default();
        node.store = Arc::default();
        node.identity += 1_000_000;
        node.rejoins = rejoins;
    }
}

/// Takes a meta's power. False when it is down already.
pub(crate) async fn crash_meta(cluster: &Arc<Cluster>, id: NodeId, mut random: Random) -> bool {
    let (life, disk, store) = {
        let mut metas = cluster.metas.lock();
        let Some(node) = metas.get_mut(&id) else { return false };
        let Some(life) = node.up.take() else { return false };
        cluster.net.leave(id);
        node.disk.cut();
        let kept = node.store.survivor();
        (life, node.disk.clone(), kept)
    };
    life.stop.cancel();
    let stopped = async {
        life.host.shutdown().await.ok();
        let running = life.running.lock().await.take();
        if let Some(running) = running {
            running.await.ok();
        }
    };
    if tokio::time::timeout(STOP_WAIT, stopped).await.is_err() {
        cluster.history.violation(format!("what was left of meta {id} did not stop"));
    }
    let disk = survivor(&disk, &mut random);
    if let Some(node) = cluster.metas.lock().get_mut(&id) {
        node.disk = disk;
        node.store = Arc::new(store);
    }
    true
}
