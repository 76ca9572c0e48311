//! Three metas in one process and the nodes that they look after, for tests: members are cut off, killed and started
//! again, and the leader is called as clients call it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use partita_proto::generation::{Claim, ClaimFile, Generations};
use partita_proto::id::ReplicaId;
use partita_proto::label::Labels;
use partita_proto::member::Registration;
use partita_proto::service::{
    AdminOrder, Changed, ClusterService, DataNodes, MetaService, RequestId,
};
use partita_raft::transport::memory::MemoryNetwork;
use partita_raft::{Host, HostOptions};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::changes::{PATIENCE, hurry};
use super::nodes::{FakeNodes, Kind};
use super::*;
use crate::core::MetaOptions;
use crate::node::Meta;
use crate::opening::StoreOpening;
use crate::patience::Patience;

/// Time after which a node counts as lost, in tests of that: machines can stall for some seconds.
pub(super) const LOST_AFTER: Duration = Duration::from_secs(8);
/// Interval between heartbeats.
const BEAT: Duration = Duration::from_millis(50);

/// A running member.
struct Member {
    host: Arc<Host>,
    meta: Arc<Meta>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Generations of a data directory, in memory.
#[derive(Default)]
pub(super) struct MemoryClaims(Mutex<Claim>);

impl ClaimFile for MemoryClaims {
    fn read(&self) -> Result<Claim, Error> {
        Ok(*self.0.lock())
    }

    fn write(&self, claim: &Claim) -> Result<(), Error> {
        *self.0.lock() = *claim;
        Ok(())
    }
}

/// Three members, some nodes, and the network between them.
pub(super) struct Trio {
    dir: TempDir,
    pub(super) network: Arc<MemoryNetwork>,
    pub(super) nodes: Arc<FakeNodes>,
    members: Vec<Option<Member>>,
    /// The metas that get heartbeats.
    heard_by: Arc<Mutex<Vec<Arc<Meta>>>>,
    beats: JoinHandle<()>,
    repair_after: Duration,
    patience: Patience,
    /// Random numbers of the members' data directories.
    pub(super) identities: [u64; 3],
    /// True if members start with the order to join again after a loss of their data.
    pub(super) rejoins: bool,
    /// The generations of the members' data directories, in tests of them.
    claims: Option<[Arc<MemoryClaims>; 3]>,
    /// Number of starts of members.
    starts: u64,
    /// Number of changes requested.
    asked: AtomicU64,
    _turn: tokio::sync::MutexGuard<'static, ()>,
}

/// Elections depend on time: the groups of these tests run one after the other, so that each has the machine for
/// itself.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Time limits that suit these groups.
fn patience() -> Patience {
    Patience { lease: Duration::from_secs(6), undurable_max: 8, reshape: 2 * PATIENCE, ..hurry() }
}

impl Trio {
    /// Starts three members, and registers this many nodes.
    pub(super) async fn start(nodes: u64) -> Self {
        Self::start_with(nodes, Duration::from_secs(600)).await
    }

    /// Like [`Trio::start`], with members whose data directories have generations.
    pub(super) async fn start_aging(nodes: u64) -> Self {
        Self::start_as(nodes, Duration::from_secs(600), Some(Default::default())).await
    }

    pub(super) async fn start_with(nodes: u64, repair_after: Duration) -> Self {
        Self::start_as(nodes, repair_after, None).await
    }

    async fn start_as(
        nodes: u64,
        repair_after: Duration,
        claims: Option<[Arc<MemoryClaims>; 3]>,
    ) -> Self {
        let turn = TURN.lock().await;
        let heard_by = Arc::new(Mutex::new(Vec::new()));
        let nodes = FakeNodes::new(nodes);
        let beats = tokio::spawn(beat(Arc::clone(&nodes), Arc::clone(&heard_by)));
        let mut trio = Self {
            dir: tempfile::tempdir().unwrap(),
            network: MemoryNetwork::new(1),
            nodes,
            members: vec![None, None, None],
            heard_by,
            beats,
            repair_after,
            patience: patience(),
            identities: [71, 72, 73],
            rejoins: false,
            claims,
            starts: 0,
            asked: AtomicU64::new(0),
            _turn: turn,
        };
        for at in 0..3 {
            trio.open(at).await;
        }
        for node in trio.nodes.all() {
            let (identity, address) = (node.0, format!("node{node}"));
            let labels = Labels::default();
            let wish = Registration { identity, node: None, address, labels };
            assert_eq!(trio.register(wish).await, Ok(node));
        }
        trio
    }

    /// Starts a member that is down.
    pub(super) async fn open(&mut self, at: usize) {
        let id = NodeId(at as u64 + 1);
        let dir = self.dir.path().join(format!("meta{id}"));
        let options = HostOptions {
            segment_bytes: 256 << 10,
            // From the half of it on, the log is given up.
            log_budget_bytes: 2 << 20,
            identity: self.identities[at],
            ..HostOptions::new(dir.join("log"), id)
        };
        let host = Host::open_linked(options, self.network.transport(id)).await.unwrap();
        self.network.attach(&host);
        self.starts += 1;
        let options = MetaOptions {
            members: (1..=3).map(|id| (ReplicaId(id), NodeId(id))).collect(),
            replication_factor: 3,
            repair_after: self.repair_after,
            identity: self.identities[at],
            rejoins: self.rejoins,
            incarnation: self.starts,
            generations: self.claims.as_ref().map(|claims| {
                let claims = Arc::<MemoryClaims>::clone(&claims[at]);
                Arc::new(Generations::open(claims).unwrap())
            }),
            ..MetaOptions::alone(dir.join("meta"), Arc::new(TestClock))
        };
        let meta = self.open_meta(options, &host).await;
        let stop = CancellationToken::new();
        let (running, stopped) = (Arc::clone(&meta), stop.clone());
        let task = tokio::spawn(async move { Box::pin(running.run(stopped)).await });
        self.heard_by.lock().push(Arc::clone(&meta));
        self.members[at] = Some(Member { host, meta, stop, task });
    }

    async fn open_meta(&self, options: MetaOptions, host: &Arc<Host>) -> Arc<Meta> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (host, nodes) = (Arc::clone(host), Arc::clone(&self.nodes) as _);
            let (store, options) = (StoreOpening::begin(&options.dir), options.clone());
            let opened = Meta::open_patient(store, options, host, nodes, self.patience.clone());
            match opened.await {
                Ok(meta) => return meta,
                // A sync that was under way at the kill still has the files of the one before.
                Err(error) => assert!(
                    error.to_string().contains("lock") && Instant::now() < deadline,
                    "{error}"
                ),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(super) fn meta(&self, at: usize) -> &Arc<Meta> {
        &self.members[at].as_ref().unwrap().meta
    }

    pub(super) fn state(&self, at: usize) -> State {
        self.meta(at).core.machine.state().clone()
    }

    pub(super) fn sees(&self, at: usize, name: &str) -> bool {
        self.meta(at).catalog().borrow().table("public", name).is_some()
    }

    /// Ends a member like a kill, as far as possible within a process: nothing is synced or handed over.
    pub(super) async fn kill(&mut self, at: usize) {
        let member = self.members[at].take().unwrap();
        self.heard_by.lock().retain(|meta| !Arc::ptr_eq(meta, &member.meta));
        member.task.abort();
        drop(member.task.await);
        member.host.shutdown().await.unwrap();
    }

    /// Removes all data of a member that is down, and gives it a data directory with another random number.
    pub(super) fn wipe(&mut self, at: usize) {
        let dir = self.dir.path().join(format!("meta{}", at + 1));
        // sled may still be at work behind a member that was killed.
        let aside = self.dir.path().join(format!("wiped{}", self.identities[at]));
        std::fs::rename(dir, aside).unwrap();
        self.identities[at] += 100;
        if let Some(claims) = &self.claims {
            *claims[at].0.lock() = Claim::default();
        }
    }

    /// A copy of the data of a member that is down.
    pub(super) fn copy(&self, at: usize) -> (PathBuf, Claim) {
        let copied = self.dir.path().join(format!("copy{}", self.starts));
        let from = self.dir.path().join(format!("meta{}", at + 1));
        let done = Command::new("cp").arg("-a").arg(from).arg(&copied).status();
        assert!(done.unwrap().success());
        (copied, *self.claims.as_ref().unwrap()[at].0.lock())
    }

    /// Replaces the data of a member that is down by a copy.
    pub(super) fn put_back(&self, at: usize, (copied, claim): (PathBuf, Claim)) {
        let dir = self.dir.path().join(format!("meta{}", at + 1));
        // sled may still be at work behind a member that was killed.
        std::fs::rename(&dir, self.dir.path().join(format!("replaced{}", self.starts))).unwrap();
        std::fs::rename(copied, dir).unwrap();
        *self.claims.as_ref().unwrap()[at].0.lock() = claim;
    }

    /// Stops a member in an orderly way.
    pub(super) async fn stop(&mut self, at: usize) {
        let member = self.members[at].take().unwrap();
        self.heard_by.lock().retain(|meta| !Arc::ptr_eq(meta, &member.meta));
        member.stop.cancel();
        member.task.await.unwrap();
        member.meta.shutdown().await.unwrap();
        member.host.shutdown().await.unwrap();
    }

    pub(super) fn running(&self) -> Vec<usize> {
        (0..3).filter(|at| self.members[*at].is_some()).collect()
    }

    /// The members that claim to lead.
    pub(super) fn leading(&self) -> Vec<usize> {
        let mut running = self.running();
        running.retain(|at| *self.meta(*at).leads().borrow());
        running
    }

    /// The leader, as soon as there is one.
    pub(super) async fn leader(&self) -> usize {
        self.until("somebody leads", || !self.leading().is_empty()).await;
        self.leading()[0]
    }

    /// The leader, after it has had heartbeats of all three nodes.
    pub(super) async fn leader_that_hears(&self) -> usize {
        self.leader_that_hears_of(3).await
    }

    /// The leader, after it has had heartbeats of this many nodes.
    pub(super) async fn leader_that_hears_of(&self, nodes: usize) -> usize {
        let hears = |at: &usize| self.meta(*at).core.presence.reports().reports.len() >= nodes;
        let found = || self.leading().into_iter().find(|at| hears(at));
        let leader = Mutex::new(None);
        self.until("the nodes are heard", || {
            *leader.lock() = found();
            leader.lock().is_some()
        })
        .await;
        leader.into_inner().unwrap()
    }

    /// State of the leading member.
    pub(super) async fn known(&self) -> State {
        self.state(self.leader().await)
    }

    /// True if a condition holds for the state of a member that claims to lead.
    pub(super) fn holds(&self, holds: impl Fn(&State) -> bool) -> bool {
        self.leading().into_iter().any(|at| holds(&self.state(at)))
    }

    /// Calls the leader as clients do: after a retryable error again, and the leader at that time.
    pub(super) async fn ask<T>(
        &self,
        ask: impl AsyncFn(Arc<Meta>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let leader = self.leader_that_hears().await;
            match ask(Arc::clone(self.meta(leader))).await {
                Err(error) if error.is_retryable() && Instant::now() < deadline => {}
                answer => return answer,
            }
        }
    }

    /// A change with an identity: made once, even if it is requested several times.
    pub(super) async fn change_once(&self, id: RequestId, ddl: Ddl) -> Result<Changed, Error> {
        self.ask(async |meta| meta.change_once(id, ddl.clone()).await).await
    }

    pub(super) async fn change(&self, ddl: Ddl) -> Result<bool, Error> {
        let sequence = self.asked.fetch_add(1, Ordering::Relaxed);
        let id = RequestId { client: 1_000, sequence };
        self.change_once(id, ddl).await.map(|answer| answer.changed)
    }

    pub(super) async fn administer(&self, order: AdminOrder) -> Result<(), Error> {
        self.ask(async |meta| meta.administer(order.clone()).await).await
    }

    pub(super) async fn register(&self, wish: Registration) -> Result<NodeId, Error> {
        let leader = || async {
            let leader = self.leader().await;
            self.meta(leader).register(wish.clone()).await
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            match leader().await {
                Err(error) if error.is_retryable() && Instant::now() < deadline => {}
                answer => return answer,
            }
        }
    }

    /// Begins a request at the leader and waits until it has caused an order of this kind. Returns the leader and the
    /// pending answer.
    pub(super) async fn begin<T: Send + 'static>(
        &self,
        kind: Kind,
        ask: impl Fn(Arc<Meta>) -> BoxFuture<'static, Result<T, Error>>,
    ) -> (usize, JoinHandle<Result<T, Error>>) {
        let told = self.nodes.count(kind);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let leader = self.leader_that_hears().await;
            let asked = tokio::spawn(ask(Arc::clone(self.meta(leader))));
            let ordered = || self.nodes.count(kind) > told;
            self.until("it is ordered", || ordered() || asked.is_finished()).await;
            if ordered() {
                return (leader, asked);
            }
            // An election came in between.
            let refused = asked.await.unwrap();
            let again = refused.as_ref().is_err_and(Error::is_retryable);
            assert!(again && Instant::now() < deadline, "{:?}", refused.err());
        }
    }

    pub(super) async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            let states = self.running().into_iter().map(|at| self.meta(at).core.group.status());
            let states: Vec<_> = states.collect();
            assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}: {states:#?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until all running members have the same catalog.
    pub(super) async fn agree(&self) {
        let running = self.running();
        let leader = self.leader().await;
        let of = |at: usize| Arc::clone(&self.meta(at).catalog().borrow());
        // What is known is published a moment later.
        self.until("all know the same", || {
            let (state, version) = (self.state(leader), of(leader).version);
            let same = |at: &usize| self.state(*at) == state && of(*at).version == version;
            version == state.version() && running.iter().all(same)
        })
        .await;
        for at in running {
            assert_same(&of(at), &of(leader));
        }
    }

    pub(super) async fn end(mut self) {
        self.beats.abort();
        for at in self.running() {
            self.stop(at).await;
        }
    }
}

/// Sends the heartbeats of all nodes to all members.
async fn beat(nodes: Arc<FakeNodes>, metas: Arc<Mutex<Vec<Arc<Meta>>>>) {
    loop {
        for heartbeat in nodes.heartbeats() {
            let metas = metas.lock().clone();
            for meta in metas {
                // Only the leader accepts it.
                drop(meta.heartbeat(heartbeat.clone()).await);
            }
        }
        tokio::time::sleep(BEAT).await;
    }
}
