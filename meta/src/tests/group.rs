//! Three metas in one process: who leads, what the others know, and what becomes of the cluster's nodes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use partita_proto::id::{PartitionId, ReplicaId};
use partita_proto::label::Labels;
use partita_proto::member::Registration;
use partita_proto::service::{AdminOrder, ClusterService, DataNodes, MetaService, RequestId};
use partita_raft::transport::memory::MemoryNetwork;
use partita_raft::{Host, HostOptions};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::changes::hurry;
use super::nodes::{FakeNodes, Held, Kind};
use super::*;
use crate::node::{Meta, MetaOptions};
use crate::scheduler::Patience;

/// How long a test waits for what must come: elections take up to 2.4 s, on machines that are not busy.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often nodes say how they are.
const BEAT: Duration = Duration::from_millis(50);

/// A member that runs.
struct Member {
    host: Arc<Host>,
    meta: Arc<Meta>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Three members, some nodes, and the way between them.
pub(super) struct Trio {
    dir: TempDir,
    network: Arc<MemoryNetwork>,
    pub(super) nodes: Arc<FakeNodes>,
    members: Vec<Option<Member>>,
    /// The metas that nodes speak to.
    heard_by: Arc<Mutex<Vec<Arc<Meta>>>>,
    beats: JoinHandle<()>,
    repair_after: Duration,
    patience: Patience,
    _turn: tokio::sync::MutexGuard<'static, ()>,
}

/// Elections are a matter of time: the groups of these tests take turns, so that each has the machine.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// As patient as the cluster needs it.
fn patience() -> Patience {
    let reshape = Duration::from_secs(120);
    Patience { lease: Duration::from_secs(3), undurable_max: 8, reshape, ..hurry() }
}

impl Trio {
    /// Starts three members; as many nodes make themselves known.
    pub(super) async fn start(nodes: u64) -> Self {
        Self::start_with(nodes, Duration::from_secs(600)).await
    }

    pub(super) async fn start_with(nodes: u64, repair_after: Duration) -> Self {
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
            _turn: turn,
        };
        for at in 0..3 {
            trio.open(at).await;
        }
        let leader = trio.leader().await;
        for node in trio.nodes.all() {
            let (identity, address) = (node.0, format!("node{node}"));
            let labels = Labels::default();
            let wish = Registration { identity, node: None, address, labels };
            assert_eq!(trio.meta(leader).register(wish).await, Ok(node));
        }
        trio
    }

    /// Starts a member that does not run.
    pub(super) async fn open(&mut self, at: usize) {
        let id = NodeId(at as u64 + 1);
        let dir = self.dir.path().join(format!("meta{id}"));
        let options = HostOptions {
            segment_bytes: 256 << 10,
            // From the half of it on, the log is given up.
            log_budget_bytes: 2 << 20,
            ..HostOptions::new(dir.join("log"), id)
        };
        let host = Host::open_linked(options, self.network.transport(id)).await.unwrap();
        self.network.attach(&host);
        let options = MetaOptions {
            members: (1..=3).map(|id| (ReplicaId(id), NodeId(id))).collect(),
            replication_factor: 3,
            repair_after: self.repair_after,
            ..MetaOptions::alone(dir.join("meta"), Arc::new(TestClock))
        };
        let meta = self.open_meta(options, &host).await;
        let stop = CancellationToken::new();
        let (running, stopped) = (Arc::clone(&meta), stop.clone());
        let task = tokio::spawn(async move { running.run(stopped).await });
        self.heard_by.lock().push(Arc::clone(&meta));
        self.members[at] = Some(Member { host, meta, stop, task });
    }

    async fn open_meta(&self, options: MetaOptions, host: &Arc<Host>) -> Arc<Meta> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (host, nodes) = (Arc::clone(host), Arc::clone(&self.nodes) as _);
            let opened = Meta::open_patient(options.clone(), host, nodes, self.patience.clone());
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

    fn sees(&self, at: usize, name: &str) -> bool {
        self.meta(at).catalog().borrow().table("public", name).is_some()
    }

    /// Ends a member as far as that can be done within a process: nothing is synced or handed over.
    pub(super) async fn kill(&mut self, at: usize) {
        let member = self.members[at].take().unwrap();
        self.heard_by.lock().retain(|meta| !Arc::ptr_eq(meta, &member.meta));
        member.task.abort();
        drop(member.task.await);
        member.host.shutdown().await.unwrap();
    }

    /// Asks a member to stop.
    async fn stop(&mut self, at: usize) {
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

    /// The members that say they lead.
    fn leading(&self) -> Vec<usize> {
        let mut running = self.running();
        running.retain(|at| *self.meta(*at).leads().borrow());
        running
    }

    /// The member that leads, once there is one.
    pub(super) async fn leader(&self) -> usize {
        self.until("somebody leads", || !self.leading().is_empty()).await;
        self.leading()[0]
    }

    /// The member that leads, once every node was heard by it.
    pub(super) async fn leader_that_hears(&self) -> usize {
        let leader = self.leader().await;
        let meta = self.meta(leader);
        self.until("the nodes are heard", || meta.core.presence.reports().reports.len() >= 3).await;
        leader
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

    /// Waits until all members that run know the same.
    pub(super) async fn agree(&self) {
        let running = self.running();
        let leader = self.leader().await;
        self.until("all know the same", || {
            running.iter().all(|at| self.state(*at) == self.state(leader))
        })
        .await;
        let of = |at: usize| Arc::clone(&self.meta(at).catalog().borrow());
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

/// Nodes say how they are, to whoever listens.
async fn beat(nodes: Arc<FakeNodes>, metas: Arc<Mutex<Vec<Arc<Meta>>>>) {
    loop {
        for heartbeat in nodes.heartbeats() {
            let metas = metas.lock().clone();
            for meta in metas {
                // Only the one that leads hears it.
                drop(meta.heartbeat(heartbeat.clone()).await);
            }
        }
        tokio::time::sleep(BEAT).await;
    }
}

fn whole(name: &str) -> NewTable {
    NewTable { cuts: vec![], ..new_table(name) }
}

fn truncate(name: &str) -> Ddl {
    Ddl::TruncateTable { database: "public".to_owned(), name: name.to_owned() }
}

/// The nodes of a table's first partition, as is recorded.
fn places(state: &State, name: &str) -> (PartitionId, BTreeMap<ReplicaId, NodeId>) {
    let database = state.database_named("public").unwrap().id;
    let table = state.table_named(database, name).unwrap();
    let partition = state.partitions_of(table).next().unwrap();
    (partition.id, partition.replicas.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_leader_ends_another_leads_and_changes_go_on() {
    let mut trio = Trio::start(3).await;
    let first = trio.leader_that_hears().await;
    trio.until("it alone leads", || trio.leading() == [first]).await;
    assert_eq!(trio.meta(first).change(create(new_table("t"))).await, Ok(true));
    assert!(trio.nodes.all().iter().all(|node| trio.nodes.one(node.0).held.lock().len() == 3));
    trio.agree().await;
    trio.kill(first).await;
    let second = trio.leader_that_hears().await;
    assert_ne!(first, second);
    trio.until("it alone leads", || trio.leading() == [second]).await;
    assert!(trio.sees(second, "t"));
    assert_eq!(trio.meta(second).change(create(new_table("u"))).await, Ok(true));
    assert_eq!(trio.meta(second).change(alter("t", add(vec![field("x")]))).await, Ok(true));
    trio.open(first).await;
    trio.agree().await;
    assert!(trio.sees(first, "u"));
    // Asked to stop, the second makes way too, and says so.
    let leads = trio.meta(second).leads();
    trio.stop(second).await;
    assert!(!*leads.borrow());
    let third = trio.leader_that_hears().await;
    assert_eq!(trio.meta(third).change(drop_table("u")).await, Ok(true));
    trio.open(second).await;
    trio.agree().await;
    assert!(!trio.sees(second, "u") && trio.sees(second, "t"));
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_cut_off_says_that_it_leads_no_more() {
    let trio = Trio::start(3).await;
    let first = trio.leader_that_hears().await;
    trio.network.isolate(NodeId(first as u64 + 1));
    trio.until("another leads", || trio.leading().iter().any(|at| *at != first)).await;
    trio.until("the first one does not", || !trio.leading().contains(&first)).await;
    let refused = trio.meta(first).change(create(new_table("t"))).await;
    assert!(refused.as_ref().is_err_and(Error::is_retryable), "{refused:?}");
    trio.network.heal();
    let second = trio.leader_that_hears().await;
    assert_eq!(trio.meta(second).change(create(new_table("t"))).await, Ok(true));
    trio.agree().await;
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_that_do_not_lead_say_who_does() {
    let trio = Trio::start(3).await;
    let leader = trio.leader_that_hears().await;
    let told = |result: Result<(), Error>| match result {
        Err(Error::NotLeader { partition: PartitionId(0), leader }) => leader,
        other => panic!("{other:?}"),
    };
    let expected = Some(NodeId(leader as u64 + 1));
    for at in trio.running().into_iter().filter(|at| *at != leader) {
        let meta = trio.meta(at);
        let heartbeat = trio.nodes.heartbeats().remove(0);
        trio.until("it knows who leads", || meta.core.group.status().leader.is_some()).await;
        assert_eq!(told(meta.heartbeat(heartbeat).await), expected);
        let (address, labels) = ("a".to_owned(), Labels::default());
        let wish = Registration { identity: 99, node: None, address, labels };
        assert_eq!(told(meta.register(wish).await.map(drop)), expected);
        assert_eq!(told(meta.change(create(new_table("t"))).await.map(drop)), expected);
        let drain = AdminOrder::Drain { node: NodeId(1), on: true };
        assert_eq!(told(meta.administer(drain).await), expected);
        assert!(meta.core.presence.reports().reports.is_empty());
    }
    // Whoever leads (an election may come in between) does not hear strangers.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let beat = trio.nodes.heartbeats().remove(0);
        let stranger = partita_proto::member::Heartbeat { identity: 99, ..beat };
        match trio.meta(trio.leader().await).heartbeat(stranger).await {
            Err(Error::NotFound { kind: "node", .. }) => break,
            Err(Error::NotLeader { .. }) if Instant::now() < deadline => {}
            other => panic!("{other:?}"),
        }
    }
    trio.end().await;
}

/// A table that takes up room in the log.
fn bulky(name: &str) -> Ddl {
    let mut table = whole(name);
    table.schema.columns[2].comment = Some("x".repeat(50_000));
    create(table)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_was_away_for_longer_than_the_log_reaches_back_gets_the_catalog() {
    let mut trio = Trio::start(3).await;
    let leader = trio.leader_that_hears().await;
    let away = (leader + 1) % 3;
    trio.meta(leader).change(create(whole("old"))).await.unwrap();
    trio.agree().await;
    let applied = trio.meta(away).core.group.status().applied;
    trio.kill(away).await;
    for number in 0..40 {
        let name = format!("t{number}");
        trio.meta(leader).change(bulky(&name)).await.unwrap();
        if number % 4 > 0 {
            trio.meta(leader).change(drop_table(&name)).await.unwrap();
        }
    }
    trio.meta(leader).change(drop_table("old")).await.unwrap();
    // Also the one that does not lead gives up what it has made durable.
    for at in trio.running() {
        let purged = || trio.meta(at).core.group.status().purged;
        trio.until("the log is purged", || purged() > applied).await;
    }
    trio.open(away).await;
    trio.agree().await;
    assert!(trio.sees(away, "t36") && !trio.sees(away, "old"));
    // The entries are nowhere any more, so it was the catalog that came; what it says of its own log may come later.
    let purged = || trio.meta(away).core.group.status().purged;
    trio.until("it did not get the entries", || purged() > applied).await;
    let state = trio.state(away);
    // What it got is on its disk, and of use to others.
    trio.kill(leader).await;
    let second = trio.leader_that_hears().await;
    assert_eq!(trio.state(second), state);
    assert_eq!(trio.meta(second).change(create(whole("new"))).await, Ok(true));
    let other = 3 - leader - away;
    trio.kill(away).await;
    trio.kill(other).await;
    trio.open(away).await;
    trio.open(leader).await;
    let third = trio.leader_that_hears().await;
    assert!(trio.sees(third, "new"));
    assert_eq!(trio.meta(third).change(create(whole("newer"))).await, Ok(true));
    trio.open(other).await;
    trio.agree().await;
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_keep_their_numbers_when_all_of_meta_ends() {
    let mut trio = Trio::start(3).await;
    let leader = trio.leader().await;
    let wish = |address: &str| {
        let (address, labels) = (address.to_owned(), Labels::default());
        Registration { identity: 50, node: None, address, labels }
    };
    assert_eq!(trio.meta(leader).register(wish("a:1")).await, Ok(NodeId(4)));
    for at in 0..3 {
        trio.kill(at).await;
    }
    for at in 0..3 {
        trio.open(at).await;
    }
    let leader = trio.leader().await;
    let meta = trio.meta(leader);
    assert_eq!(meta.register(wish("b:2")).await, Ok(NodeId(4)));
    let other = Registration { identity: 51, ..wish("c:3") };
    assert_eq!(meta.register(other).await, Ok(NodeId(5)));
    trio.agree().await;
    let members = trio.meta(leader).members();
    trio.until("it is told", || {
        members.borrow().get(&NodeId(4)).is_some_and(|member| member.address == "b:2")
    })
    .await;
    // The nodes that speak are live, those that do not are not for long.
    trio.until("nodes are live or not", || {
        let members = members.borrow();
        (1..=3).all(|node| members[&NodeId(node)].live) && !members[&NodeId(4)].live
    })
    .await;
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_answer_was_lost_is_made_once() {
    let mut trio = Trio::start(3).await;
    let first = trio.leader_that_hears().await;
    let id = |sequence| RequestId { client: 5, sequence };
    let lost = trio.meta(first).change_once(id(1), create(whole("t"))).await.unwrap();
    trio.meta(first).change_once(id(2), truncate("t")).await.unwrap();
    // The third is under way when the leader ends.
    trio.nodes.fail(Kind::Truncate, usize::MAX, Error::Unavailable("away".to_owned()));
    let told = trio.nodes.count(Kind::Truncate);
    let meta = Arc::clone(trio.meta(first));
    let third = tokio::spawn(async move { meta.change_once(id(3), truncate("t")).await });
    trio.until("it is ordered", || trio.nodes.count(Kind::Truncate) > told).await;
    trio.kill(first).await;
    third.abort();
    drop(third.await);
    trio.nodes.heal();
    let second = trio.leader_that_hears().await;
    let meta = Arc::clone(trio.meta(second));
    // The one that is not over first: others of the table wait for it.
    assert!(meta.change_once(id(3), truncate("t")).await.unwrap().changed);
    let version = trio.state(second).version();
    let again = meta.change_once(id(1), create(whole("t"))).await.unwrap();
    assert!(again.changed && again.version >= lost.version);
    assert!(meta.change_once(id(2), truncate("t")).await.unwrap().changed);
    assert_eq!(trio.state(second).version(), version, "nothing was changed again");
    let held = trio.nodes.held();
    assert_eq!(held.len(), 1);
    let truncations: Vec<_> =
        trio.nodes.all().iter().map(|node| truncations(&trio.nodes, node.0)).collect();
    // Its leader got them: each of both once, however often it was told.
    assert_eq!(truncations.iter().max(), Some(&2), "{truncations:?}");
    assert!(meta.change_once(id(4), truncate("t")).await.unwrap().changed);
    assert!(trio.state(second).version() > version);
    trio.end().await;
}

fn truncations(nodes: &FakeNodes, node: u64) -> usize {
    nodes.one(node).held.lock().values().map(|held| held.truncated.len()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_replicas_of_a_node_that_is_lost_are_made_anew_elsewhere() {
    let trio = Trio::start_with(4, Duration::from_secs(4)).await;
    let leader = trio.leader_that_hears().await;
    let meta = trio.meta(leader);
    trio.until("four are live", || meta.core.presence.reports().reports.len() == 4).await;
    meta.change(create(whole("t"))).await.unwrap();
    let (partition, before) = places(&trio.state(leader), "t");
    let lost = *before.values().next().unwrap();
    let free = (1..=4).map(NodeId).find(|node| !before.values().any(|at| at == node)).unwrap();
    trio.nodes.one(lost.0).silence(true);
    trio.until("the free node has it", || {
        let (_, replicas) = places(&trio.state(leader), "t");
        let has = |node| replicas.values().any(|at| *at == node);
        has(free) && !has(lost) && trio.nodes.one(free.0).holds(partition)
    })
    .await;
    assert!(trio.nodes.one(free.0).held.lock()[&partition].spec.join, "it joins a group that runs");
    let route = {
        let catalog = meta.catalog();
        let table = Arc::clone(catalog.borrow().table("public", "t").unwrap());
        table.partitions.routes()[0].replicas.clone()
    };
    assert_eq!(route, places(&trio.state(leader), "t").1);
    // It comes back with what is nobody's now, and does not get it again.
    assert!(trio.nodes.one(lost.0).holds(partition));
    trio.nodes.one(lost.0).silence(false);
    trio.until("it is removed", || !trio.nodes.one(lost.0).holds(partition)).await;
    assert_eq!(places(&trio.state(leader), "t").1, route);
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_nobodys_is_removed() {
    let trio = Trio::start(3).await;
    let leader = trio.leader_that_hears().await;
    trio.meta(leader).change(create(whole("t"))).await.unwrap();
    let (partition, _) = places(&trio.state(leader), "t");
    let known = trio.nodes.one(2).held.lock()[&partition].clone();
    // Of a partition that never was; and of one that is, but another replica than is recorded.
    let mut stranger = Held::clone(&known);
    stranger.spec.partition = PartitionId(77);
    trio.nodes.one(2).held.lock().insert(PartitionId(77), stranger);
    let mut older = known.clone();
    older.spec.replica = ReplicaId(999);
    trio.nodes.one(3).held.lock().insert(partition, older);
    trio.until("both are gone", || {
        !trio.nodes.one(2).holds(PartitionId(77)) && !trio.nodes.one(3).holds(partition)
    })
    .await;
    assert!(trio.nodes.one(2).holds(partition) && trio.nodes.one(1).holds(partition));
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_drained_is_empty_in_the_end() {
    let mut trio = Trio::start(4).await;
    let leader = trio.leader_that_hears().await;
    trio.until("four are live", || trio.meta(leader).core.presence.reports().reports.len() == 4)
        .await;
    for name in ["a", "b", "c"] {
        trio.meta(leader).change(create(new_table(name))).await.unwrap();
    }
    assert!(!trio.nodes.one(1).held.lock().is_empty());
    let drain = |on| AdminOrder::Drain { node: NodeId(1), on };
    trio.meta(leader).administer(drain(true)).await.unwrap();
    // In the middle of it, another takes over.
    trio.kill(leader).await;
    let second = trio.leader_that_hears().await;
    trio.until("node 1 is empty", || trio.nodes.one(1).held.lock().is_empty()).await;
    let spread = |state: &State| {
        let nodes = state.partitions().map(|one| one.replicas.values().copied().collect());
        nodes.collect::<Vec<BTreeSet<NodeId>>>()
    };
    for nodes in spread(&trio.state(second)) {
        assert_eq!(nodes, BTreeSet::from([NodeId(2), NodeId(3), NodeId(4)]));
    }
    trio.meta(second).change(create(new_table("d"))).await.unwrap();
    assert!(trio.nodes.one(1).held.lock().is_empty(), "nothing new is put there");
    let nowhere = AdminOrder::Drain { node: NodeId(9), on: true };
    let refused = trio.meta(second).administer(nowhere).await;
    assert!(matches!(refused, Err(Error::NotFound { kind: "node", .. })), "{refused:?}");
    trio.meta(second).administer(drain(false)).await.unwrap();
    trio.until("node 1 gets its share", || trio.nodes.one(1).held.lock().len() > 4).await;
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_moves_a_replica_and_a_leader() {
    let trio = Trio::start(4).await;
    let leader = trio.leader_that_hears().await;
    let meta = trio.meta(leader);
    trio.until("four are live", || meta.core.presence.reports().reports.len() == 4).await;
    meta.change(create(whole("t"))).await.unwrap();
    let (partition, before) = places(&trio.state(leader), "t");
    let from = *before.values().next().unwrap();
    let to = (1..=4).map(NodeId).find(|node| !before.values().any(|at| at == node)).unwrap();
    let move_it = |from, to| AdminOrder::MoveReplica { partition, from, to };
    for (from, to) in [(to, NodeId(9)), (from, from)] {
        let refused = meta.administer(move_it(from, to)).await;
        assert!(matches!(refused, Err(Error::InvalidInput(_))), "{refused:?}");
    }
    meta.administer(move_it(from, to)).await.unwrap();
    trio.until("it is there", || {
        let (_, replicas) = places(&trio.state(leader), "t");
        replicas.values().any(|node| *node == to)
    })
    .await;
    trio.until("it is gone", || !trio.nodes.one(from.0).holds(partition)).await;
    let transfer = |to| AdminOrder::TransferLeader { partition, to };
    meta.administer(transfer(to)).await.unwrap();
    assert!(trio.nodes.leads(to.0, partition));
    let refused = meta.administer(transfer(from)).await;
    assert!(matches!(refused, Err(Error::InvalidInput(_))), "{refused:?}");
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_follow_the_factor_of_their_table() {
    let trio = Trio::start(3).await;
    let leader = trio.leader_that_hears().await;
    let meta = trio.meta(leader);
    meta.change(create(whole("t"))).await.unwrap();
    let (partition, _) = places(&trio.state(leader), "t");
    let factor = |factor| {
        let options = TableOptions { replication_factor: Some(factor), ..TableOptions::default() };
        alter("t", TableChange::SetOptions(options))
    };
    let holding = || (1..=3).filter(|node| trio.nodes.one(*node).holds(partition)).count();
    for count in [1, 3, 2] {
        meta.change(factor(count)).await.unwrap();
        trio.until("as many as wanted", || {
            let (_, replicas) = places(&trio.state(leader), "t");
            replicas.len() == count as usize && holding() == count as usize
        })
        .await;
    }
    trio.end().await;
}
