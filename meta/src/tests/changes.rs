//! Changes over the real log and store, with nodes that obey, fail or take their time.

use std::path::Path;
use std::time::{Duration, Instant};

use partita_proto::label::Labels;
use partita_proto::member::Registration;
use partita_proto::service::{ClusterService, DataNodes, MetaService};
use partita_raft::{Host, HostOptions};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::nodes::{FakeNodes, Kind};
use super::*;
use crate::core::MetaOptions;
use crate::error::MetaError;
use crate::machine::CatalogMachine;
use crate::node::Meta;
use crate::opening::{Opened, StoreOpening};
use crate::patience::Patience;
use crate::store::StateStore;

/// Meta and its log in a directory.
pub(super) struct Server {
    pub(super) host: Arc<Host>,
    pub(super) meta: Arc<Meta>,
    running: Option<(CancellationToken, JoinHandle<()>)>,
}

/// Maximum wait for an expected event, on slow and busy machines.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Short pauses between tries and a long time limit: tests of giving up set a limit of their own.
pub(super) fn hurry() -> Patience {
    Patience {
        order: PATIENCE,
        create: PATIENCE,
        change: 2 * PATIENCE,
        drop: PATIENCE,
        drain: Duration::from_millis(200),
        pause_min: Duration::from_millis(5),
        pause_max: Duration::from_millis(50),
        undurable_max: 1024,
        reshape: PATIENCE,
        lease: Duration::from_secs(600),
        tick: Duration::from_millis(20),
    }
}

impl Server {
    /// Opens meta, without the DDL driver.
    pub(super) async fn open(dir: &Path, nodes: &Arc<FakeNodes>) -> Self {
        Self::open_patient(dir, nodes, hurry()).await
    }

    pub(super) async fn open_patient(
        dir: &Path,
        nodes: &Arc<FakeNodes>,
        patience: Patience,
    ) -> Self {
        let host = host(dir).await;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let options = MetaOptions::alone(dir.join("meta"), Arc::new(TestClock));
            let store = StoreOpening::begin(&options.dir);
            let (log, all) = (Arc::clone(&host), Arc::clone(nodes) as _);
            match Meta::open_patient(store, options, log, all, patience.clone()).await {
                Ok(meta) => {
                    let server = Self { host, meta, running: None };
                    server.register(nodes).await;
                    return server;
                }
                // A sync that was under way at the kill still has the files of the one before.
                Err(MetaError::Io { source, .. }) if source.to_string().contains("lock") => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
        panic!("the catalog stays locked");
    }

    /// Opens meta over a store of the test's.
    pub(super) async fn open_over(
        dir: &Path,
        store: Arc<dyn StateStore>,
        nodes: &Arc<FakeNodes>,
        patience: Patience,
    ) -> Self {
        let host = host(dir).await;
        let opened = Opened { machine: CatalogMachine::open(store).unwrap(), set_aside: None };
        let all = Arc::clone(nodes) as _;
        let options = MetaOptions::alone(dir.join("meta"), Arc::new(TestClock));
        let meta = Meta::start(opened, options, Arc::clone(&host), all, patience).await.unwrap();
        let server = Self { host, meta, running: None };
        server.register(nodes).await;
        server
    }

    /// Registers the nodes, and ignores those that fail.
    async fn register(&self, nodes: &FakeNodes) {
        for node in nodes.all() {
            let address = format!("node{node}");
            let (identity, node, labels) = (node.0, Some(node), Labels::default());
            let wish = Registration { identity, node, address, labels };
            drop(self.meta.register(wish).await);
        }
    }

    pub(super) fn run(&mut self) {
        let stop = CancellationToken::new();
        let (meta, stopped) = (Arc::clone(&self.meta), stop.clone());
        let task = tokio::spawn(async move { Box::pin(meta.run(stopped)).await });
        self.running = Some((stop, task));
    }

    pub(super) async fn start(dir: &Path, nodes: &Arc<FakeNodes>) -> Self {
        let mut server = Self::open(dir, nodes).await;
        server.run();
        server
    }

    pub(super) async fn stop(mut self) {
        if let Some((stop, task)) = self.running.take() {
            stop.cancel();
            task.await.unwrap();
        }
        self.meta.shutdown().await.unwrap();
        self.host.shutdown().await.unwrap();
    }

    /// Ends the process like a kill, as far as possible within one: nothing is synced or waited for.
    pub(super) async fn kill(mut self) {
        if let Some((_, task)) = self.running.take() {
            task.abort();
            drop(task.await);
        }
        self.host.shutdown().await.unwrap();
    }

    pub(super) fn phase(&self, name: &str) -> Option<Phase> {
        let state = self.meta.core.machine.state();
        let database = state.database_named("public")?.id;
        state.table_named(database, name).map(|table| table.phase.clone())
    }

    pub(super) fn state(&self) -> State {
        self.meta.core.machine.state().clone()
    }

    pub(super) fn sees(&self, name: &str) -> bool {
        self.meta.catalog().borrow().table("public", name).is_some()
    }
}

pub(super) async fn host(dir: &Path) -> Arc<Host> {
    let options =
        HostOptions { segment_bytes: 1 << 20, ..HostOptions::new(dir.join("log"), NodeId(1)) };
    Host::open(options).await.unwrap()
}

/// Waits until a condition holds.
pub(super) async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_change_is_seen_and_carried_out_when_it_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(2);
    let server = Server::start(dir.path(), &nodes).await;
    let meta = &server.meta;
    assert_eq!(meta.change(create(new_table("t"))).await, Ok(true));
    assert!(server.sees("t"));
    let held = nodes.held();
    assert_eq!(held.len(), 3);
    assert_eq!(nodes.one(1).held.lock().len(), 2, "spread over the nodes");
    let table = Arc::clone(meta.catalog().borrow().table("public", "t").unwrap());
    for route in table.partitions.routes() {
        let spec = &held[&route.partition].spec;
        assert_eq!(
            (&spec.range, spec.epoch, &spec.members),
            (&route.range, route.epoch, &route.replicas)
        );
        assert_eq!((spec.table, &spec.schema), (table.id, &table.schema));
    }
    assert_eq!(meta.partitions_of(NodeId(1)).len(), 2);
    assert_eq!(meta.partitions_of(NodeId(3)).len(), 0);

    assert_eq!(meta.change(alter("t", add(vec![field("x")]))).await, Ok(true));
    assert!(nodes.held().values().all(|held| held.schema.version == SchemaVersion(2)));
    let truncate = Ddl::TruncateTable { database: "public".to_owned(), name: "t".to_owned() };
    for times in 1..=2 {
        assert_eq!(meta.change(truncate.clone()).await, Ok(true));
        assert!(nodes.held().values().all(|held| held.truncated.len() == times));
    }
    let ttl = Some(Duration::from_secs(3600));
    let database = Ddl::AlterDatabase { name: "public".to_owned(), ttl };
    assert_eq!(meta.change(database).await, Ok(true));
    assert!(nodes.held().values().all(|held| held.schema.options.ttl == ttl));
    assert_eq!(meta.change(drop_table("t")).await, Ok(true));
    assert!(!server.sees("t"));
    assert!(nodes.held().is_empty());
    assert_eq!(server.state().table_count(), 0);
    server.stop().await;
}

#[tokio::test]
async fn a_bad_wish_does_not_get_into_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &FakeNodes::new(1)).await;
    let index = || server.meta.core.group.status().last_index;
    // What the nodes' registration and the leader put there shows a moment later.
    until("it leads", || *server.meta.leads().borrow()).await;
    server.meta.core.group.read_barrier().await.unwrap();
    let settled = || {
        let status = server.meta.core.group.status();
        status.last_index.is_some() && status.applied == status.last_index
    };
    until("all is applied", settled).await;
    let before = index();
    let missing = server.meta.change(drop_table("t")).await;
    assert_eq!(missing.unwrap_err().sqlstate(), "42P01");
    let exists = Ddl::CreateDatabase {
        name: "public".to_owned(),
        if_not_exists: true,
        ttl: None,
        owner: BOOTSTRAP_ROLE,
    };
    assert_eq!(server.meta.change(exists).await, Ok(false));
    assert_eq!(index(), before);
    server.stop().await;
}

#[tokio::test]
async fn no_table_is_created_without_a_node() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &FakeNodes::new(0)).await;
    let result = server.meta.change(create(new_table("t"))).await;
    assert!(matches!(result, Err(Error::Unavailable(_))), "{result:?}");
    assert_eq!(server.phase("t"), None);
    server.stop().await;
}

#[tokio::test]
async fn a_creation_that_a_node_refuses_is_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let server = Server::start(dir.path(), &nodes).await;
    let full = Error::DiskFull("/data".to_owned());
    nodes.fail(Kind::Open, 1, full.clone());
    assert_eq!(server.meta.change(create(new_table("t"))).await, Err(full));
    assert!(!server.sees("t"));
    until("the replicas are gone", || nodes.held().is_empty()).await;
    assert_eq!(server.meta.change(create(new_table("t"))).await, Ok(true));
    server.stop().await;
}

#[tokio::test]
async fn a_creation_outlives_failures_that_pass() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let server = Server::start(dir.path(), &nodes).await;
    nodes.fail(Kind::Open, 4, Error::Unavailable("restarting".to_owned()));
    assert_eq!(server.meta.change(create(new_table("t"))).await, Ok(true));
    assert_eq!(nodes.count(Kind::Open), 3 + 4, "what was done is not ordered again");
    server.stop().await;
}

#[tokio::test]
async fn a_creation_is_given_up_when_the_node_stays_away() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let patience = Patience { create: Duration::from_millis(400), ..hurry() };
    let mut server = Server::open_patient(dir.path(), &nodes, patience).await;
    server.run();
    let away = Error::Unavailable("node 1 is away".to_owned());
    nodes.fail(Kind::Open, usize::MAX, away.clone());
    assert_eq!(server.meta.change(create(new_table("t"))).await, Err(away));
    until("the table is gone", || server.state().table_count() == 0).await;
    server.stop().await;
}

#[tokio::test]
async fn a_node_that_hangs_is_asked_again() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let patience = Patience { order: Duration::from_millis(50), ..hurry() };
    let mut server = Server::open_patient(dir.path(), &nodes, patience).await;
    server.run();
    nodes.delay(10 * PATIENCE);
    let meta = Arc::clone(&server.meta);
    let change = tokio::spawn(async move { meta.change(create(new_table("t"))).await });
    until("it was asked twice", || nodes.count(Kind::Open) >= 6).await;
    nodes.delay(Duration::ZERO);
    assert_eq!(change.await.unwrap(), Ok(true));
    server.stop().await;
}

#[tokio::test]
async fn a_drop_does_not_wait_for_a_node_that_is_away() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let patience = Patience { drop: Duration::from_millis(500), ..hurry() };
    let mut server = Server::open_patient(dir.path(), &nodes, patience).await;
    server.run();
    server.meta.change(create(new_table("t"))).await.unwrap();
    nodes.fail(Kind::Drop, usize::MAX, Error::Unavailable("away".to_owned()));
    assert_eq!(server.meta.change(drop_table("t")).await, Ok(true));
    assert!(!server.sees("t"));
    assert_eq!(nodes.held().len(), 3);
    nodes.heal();
    until("the replicas are gone", || nodes.held().is_empty()).await;
    until("the table is gone", || server.state().table_count() == 0).await;
    server.stop().await;
}

#[tokio::test]
async fn an_alter_that_takes_too_long_says_so_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let server = Server::start(dir.path(), &nodes).await;
    server.meta.change(create(new_table("t"))).await.unwrap();
    server.stop().await;
    // Time enough to fail and say why.
    let patience = Patience { change: Duration::from_secs(2), ..hurry() };
    let mut server = Server::open_patient(dir.path(), &nodes, patience).await;
    server.run();
    nodes.fail(Kind::Alter, usize::MAX, Error::Unavailable("node 1 is away".to_owned()));
    let result = server.meta.change(alter("t", add(vec![field("x")]))).await;
    let Err(Error::Timeout(message)) = result else { panic!("{result:?}") };
    assert!(message.contains("\"t\"") && message.contains("node 1 is away"), "{message}");
    let second = server.meta.change(alter("t", add(vec![field("y")]))).await;
    assert!(matches!(second, Err(Error::Timeout(_))), "{second:?}");
    nodes.heal();
    until("the table has the column", || {
        let catalog = server.meta.catalog();
        let catalog = catalog.borrow();
        catalog.table("public", "t").unwrap().schema.column("x").is_some()
    })
    .await;
    server.stop().await;
}

#[tokio::test]
async fn a_stuck_alter_gives_way_to_a_drop() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let server = Server::start(dir.path(), &nodes).await;
    server.meta.change(create(new_table("t"))).await.unwrap();
    nodes.fail(Kind::Alter, usize::MAX, Error::Internal("stuck".to_owned()));
    let meta = Arc::clone(&server.meta);
    let altering =
        tokio::spawn(async move { meta.change(alter("t", add(vec![field("x")]))).await });
    until("it is being altered", || nodes.count(Kind::Alter) > 0).await;
    assert_eq!(server.meta.change(drop_table("t")).await, Ok(true));
    let altered = altering.await.unwrap();
    assert_eq!(altered, Err(Error::NotFound { kind: "table", name: "t".to_owned() }));
    until("the replicas are gone", || nodes.held().is_empty()).await;
    server.stop().await;
}

#[tokio::test]
async fn concurrent_changes_of_one_table_follow_one_another() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let server = Server::start(dir.path(), &nodes).await;
    nodes.delay(Duration::from_millis(5));
    let creations: Vec<_> = (0..8)
        .map(|number| {
            let meta = Arc::clone(&server.meta);
            let table = Box::new(new_table("t"));
            let ddl = Ddl::CreateTable { table, if_not_exists: number % 2 == 0 };
            tokio::spawn(async move { meta.change(ddl).await })
        })
        .collect();
    let mut created = 0;
    for creation in creations {
        match creation.await.unwrap() {
            Ok(changed) => created += usize::from(changed),
            Err(error) => assert_eq!(error.sqlstate(), "42P07"),
        }
        assert!(server.sees("t"));
    }
    assert_eq!(created, 1);
    let additions: Vec<_> = (0..8)
        .map(|number| {
            let meta = Arc::clone(&server.meta);
            let ddl = alter("t", add(vec![field(&format!("x{number}"))]));
            tokio::spawn(async move { meta.change(ddl).await })
        })
        .collect();
    for addition in additions {
        assert_eq!(addition.await.unwrap(), Ok(true));
    }
    let table = Arc::clone(server.meta.catalog().borrow().table("public", "t").unwrap());
    assert_eq!(table.schema.columns.len(), 3 + 8);
    assert_eq!(table.schema.version, SchemaVersion(9));
    server.stop().await;
}

/// Meta decides on its state, and clients read the published catalog, which follows a moment later.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_is_told_that_a_database_exists_finds_it_in_the_catalog() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let server = Server::start(dir.path(), &nodes).await;
    for number in 0..100 {
        let creations: Vec<_> = (0..8)
            .map(|creator| {
                let meta = Arc::clone(&server.meta);
                let name = format!("d{number}");
                let (if_not_exists, owner) = (creator % 2 == 0, BOOTSTRAP_ROLE);
                let ddl =
                    Ddl::CreateDatabase { name: name.clone(), if_not_exists, ttl: None, owner };
                tokio::spawn(async move {
                    let created = meta.change(ddl).await;
                    (created, meta.catalog().borrow().databases.contains_key(&name))
                })
            })
            .collect();
        for creation in creations {
            let (created, found) = creation.await.unwrap();
            assert!(found, "{created:?}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_caller_that_goes_away_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let server = Server::start(dir.path(), &nodes).await;
    nodes.fail(Kind::Open, usize::MAX, Error::Unavailable("restarting".to_owned()));
    let meta = Arc::clone(&server.meta);
    let change = tokio::spawn(async move { meta.change(create(new_table("t"))).await });
    until("it was ordered", || nodes.count(Kind::Open) > 0).await;
    change.abort();
    assert!(change.await.unwrap_err().is_cancelled());
    nodes.heal();
    until("the table is there", || server.sees("t")).await;
    server.stop().await;
}

#[tokio::test]
async fn an_order_follows_the_leader() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(2);
    let server = Server::start(dir.path(), &nodes).await;
    let table = NewTable { cuts: vec![], ..new_table("t") };
    server.meta.change(create(table)).await.unwrap();
    let (partition, held) = nodes.held().pop_first().unwrap();
    // The other node has taken over.
    let at = held.spec.members.values().next().unwrap().0;
    nodes.one(3 - at).held.lock().insert(partition, held);
    let elsewhere = Error::NotLeader { partition, leader: Some(NodeId(3 - at)) };
    nodes.one(at).fail(Kind::Alter, usize::MAX, elsewhere);
    assert_eq!(server.meta.change(alter("t", add(vec![field("x")]))).await, Ok(true));
    assert_eq!(nodes.one(3 - at).held.lock()[&partition].schema.version, SchemaVersion(2));
    server.stop().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_node_that_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let server = Server::start(dir.path(), &nodes).await;
    nodes.delay(10 * PATIENCE);
    let meta = Arc::clone(&server.meta);
    let change = tokio::spawn(async move { meta.change(create(new_table("t"))).await });
    until("it was ordered", || nodes.count(Kind::Open) == 3).await;
    tokio::time::timeout(PATIENCE, server.stop()).await.unwrap();
    let answer = change.await.unwrap();
    assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
    nodes.delay(Duration::ZERO);
    let server = Server::start(dir.path(), &nodes).await;
    until("the table is there", || server.sees("t")).await;
    server.stop().await;
}

#[tokio::test]
async fn a_drop_waits_for_the_orders_of_an_alter_under_way() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = FakeNodes::new(1);
    let server = Server::start(dir.path(), &nodes).await;
    // More partitions than orders are sent at once.
    let cuts = (0..40).map(|number| cut(&[Value::Int(number)])).collect();
    server.meta.change(create(NewTable { cuts, ..new_table("t") })).await.unwrap();
    // Long enough for the drop to be recorded before any of these is answered.
    nodes.delay(Duration::from_secs(5));
    let meta = Arc::clone(&server.meta);
    let altering =
        tokio::spawn(async move { meta.change(alter("t", add(vec![field("x")]))).await });
    until("it is being altered", || nodes.count(Kind::Alter) > 0).await;
    let meta = Arc::clone(&server.meta);
    let dropping = tokio::spawn(async move { meta.change(drop_table("t")).await });
    until("it is to be dropped", || !server.sees("t")).await;
    nodes.delay(Duration::ZERO);
    assert_eq!(dropping.await.unwrap(), Ok(true));
    assert!(altering.await.unwrap().is_err());
    until("the replicas are gone", || nodes.held().is_empty()).await;
    assert!(nodes.one(1).mixed.lock().is_empty());
    assert!(nodes.count(Kind::Alter) <= 16, "what was not sent yet is not sent any more");
    server.stop().await;
}
