//! Meta: watching, and requests to the leader.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use partita_proto::Error;
use partita_proto::access::{Access, Secrets};
use partita_proto::beat::{FollowerReads, LoadBeat};
use partita_proto::blame::BlameReport;
use partita_proto::catalog::{Catalog, Database};
use partita_proto::generation::{Claim, Generation, Renewal, Renewed};
use partita_proto::id::{BOOTSTRAP_ROLE, DatabaseId, NodeId, PartitionId, TableId};
use partita_proto::label::Labels;
use partita_proto::load::{HeatmapRequest, Instant as At, LoadReport, LoadRequest, PartitionLoad};
use partita_proto::materialized::CopyState;
use partita_proto::member::{Heartbeat, Member, Members, MetaMember, MetaStanding, Registration};
use partita_proto::service::{AdminOrder, Changed, ClusterService, Ddl, MetaService, RequestId};
use partita_proto::wire::pb::meta_client::MetaClient as Generated;
use partita_proto::wire::{Wire, pb};
use partita_tls::{Links, Role};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::status::every_error;
use super::{
    NODE, PATIENCE, Served, eventually, relay, replica_status, reserved, served, served_at, silent,
    within,
};
use crate::channel::channel;
use crate::meta_client::pause;
use crate::watcher::{self, Watcher};
use crate::{MetaClient, MetaServer};

/// State on which the members of meta's group agree.
#[derive(Default)]
struct Agreed {
    answers: BTreeMap<RequestId, Changed>,
    catalog: Catalog,
}

/// One member of meta's group.
#[derive(Default)]
struct FakeMeta {
    agreed: Arc<Mutex<Agreed>>,
    catalog: watch::Sender<Arc<Catalog>>,
    members: watch::Sender<Arc<Members>>,
    leads: watch::Sender<bool>,
    asked: Mutex<Vec<String>>,
    ids: Mutex<Vec<RequestId>>,
    fails: Mutex<Option<Error>>,
    /// So many answers of changes are lost.
    lost: AtomicUsize,
    /// After a change its catalog is published so much later.
    delay: Mutex<Duration>,
    stop: CancellationToken,
}

const STANDING: MetaStanding = MetaStanding {
    node: NodeId(102),
    leads: false,
    leader: Some(NodeId(101)),
    term: 5,
    applied: u64::MAX,
};

fn catalog(version: u64, databases: &[&str]) -> Catalog {
    let database = |name: &&str| {
        let (id, name) = (DatabaseId(1), (*name).to_owned());
        let owner = BOOTSTRAP_ROLE;
        let database =
            Database { id, name: name.clone(), ttl: None, owner, explicit: false, comment: None };
        (name, Arc::new(database))
    };
    Catalog { version, databases: databases.iter().map(database).collect(), ..Catalog::default() }
}

fn create(name: &str) -> Ddl {
    let owner = BOOTSTRAP_ROLE;
    Ddl::CreateDatabase { name: name.to_owned(), if_not_exists: false, ttl: None, owner }
}

fn member(address: &str, live: bool, bytes: u64) -> Arc<Members> {
    let member = Member { address: address.to_owned(), live, bytes, ..Member::default() };
    Arc::new([(NODE, member)].into())
}

impl FakeMeta {
    /// One that leads, at version 1.
    fn leading() -> Arc<Self> {
        let meta = Self::default();
        meta.agreed.lock().catalog = catalog(1, &["public"]);
        meta.lead();
        Arc::new(meta)
    }

    /// Another member of the group; it follows.
    fn beside(&self) -> Arc<Self> {
        Arc::new(Self { agreed: Arc::clone(&self.agreed), ..Self::default() })
    }

    fn lead(&self) {
        self.publish(self.agreed.lock().catalog.clone());
        self.leads.send_replace(true);
    }

    fn publish(&self, catalog: Catalog) {
        self.catalog.send_replace(Arc::new(catalog));
    }

    async fn serve(self: &Arc<Self>) -> Served {
        self.serve_at("127.0.0.1:0").await
    }

    async fn serve_at(self: &Arc<Self>, address: &str) -> Served {
        let service = Arc::clone(self) as Arc<dyn ClusterService>;
        served_at(address, Routes::new(MetaServer::server(service, self.stop.clone()))).await
    }

    fn check(&self, asked: String) -> Result<(), Error> {
        self.asked.lock().push(asked);
        if !*self.leads.borrow() {
            return Err(Error::NotLeader { partition: PartitionId(0), leader: None });
        }
        self.fails.lock().clone().map_or(Ok(()), Err)
    }

    fn apply(&self, id: RequestId, ddl: Ddl) -> Result<Changed, Error> {
        let mut agreed = self.agreed.lock();
        if let Some(answer) = agreed.answers.get(&id) {
            return Ok(*answer);
        }
        let Ddl::CreateDatabase { name, .. } = ddl else { panic!("{ddl:?}") };
        if agreed.catalog.databases.contains_key(&name) {
            return Err(Error::AlreadyExists { kind: "database", name });
        }
        let mut names: Vec<&str> = agreed.catalog.databases.keys().map(String::as_str).collect();
        names.push(&name);
        agreed.catalog = catalog(agreed.catalog.version + 1, &names);
        let answer = Changed { changed: true, version: agreed.catalog.version };
        agreed.answers.insert(id, answer);
        Ok(answer)
    }
}

#[async_trait]
impl MetaService for FakeMeta {
    fn catalog(&self) -> watch::Receiver<Arc<Catalog>> {
        self.catalog.subscribe()
    }

    async fn change(&self, _: Ddl) -> Result<bool, Error> {
        panic!("a change without identity")
    }

    fn members(&self) -> watch::Receiver<Arc<Members>> {
        self.members.subscribe()
    }

    async fn metas(&self) -> Vec<MetaMember> {
        panic!("whoever wants to know asks each of them")
    }

    async fn administer(&self, order: AdminOrder) -> Result<(), Error> {
        self.check(format!("{order:?}"))
    }

    /// As busy as the question says.
    async fn load(&self, request: LoadRequest) -> Result<LoadReport, Error> {
        self.check(format!("{request:?}"))?;
        let partition = PartitionLoad {
            table: request.table.unwrap_or_default(),
            share: 0.5,
            ..PartitionLoad::default()
        };
        let at = request.history_since.unwrap_or_default();
        Ok(LoadReport { at, partitions: vec![partition], ..LoadReport::default() })
    }

    /// The question itself.
    async fn heatmap(&self, request: HeatmapRequest) -> Result<Bytes, Error> {
        self.check(format!("{request:?}"))?;
        Ok(Bytes::from(format!("{} of {}", request.metric, request.table)))
    }

    /// Table 1 is filling, table 2 in step, table 3 lost; there is no other copy.
    async fn confirm(&self, copies: Vec<TableId>) -> Result<Vec<Option<CopyState>>, Error> {
        self.check(format!("confirm {copies:?}"))?;
        let state = |copy: TableId| match copy.0 {
            1 => Some(CopyState::Filling),
            2 => Some(CopyState::InStep),
            3 => Some(CopyState::Lost),
            _ => None,
        };
        Ok(copies.into_iter().map(state).collect())
    }

    async fn blame(&self, report: BlameReport) -> Result<(), Error> {
        self.check(format!("{report:?}"))
    }
}

#[async_trait]
impl ClusterService for FakeMeta {
    fn leads(&self) -> watch::Receiver<bool> {
        self.leads.subscribe()
    }

    fn standing(&self) -> Result<MetaStanding, Error> {
        Ok(MetaStanding { leads: *self.leads.borrow(), ..STANDING })
    }

    async fn change_once(&self, id: RequestId, ddl: Ddl) -> Result<Changed, Error> {
        self.ids.lock().push(id);
        self.check(format!("{ddl:?}"))?;
        let answer = self.apply(id, ddl)?;
        let published = self.agreed.lock().catalog.clone();
        let (catalog, delay) = (self.catalog.clone(), *self.delay.lock());
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            catalog.send_replace(Arc::new(published));
        });
        if self.lost.load(Ordering::SeqCst) > 0 {
            self.lost.fetch_sub(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        Ok(answer)
    }

    async fn register(&self, registration: Registration) -> Result<NodeId, Error> {
        self.check(format!("{registration:?}")).map(|()| NODE)
    }

    /// Records the requested generation.
    async fn renew(&self, renewal: Renewal) -> Result<Renewed, Error> {
        self.check(format!("{renewal:?}"))?;
        let recorded = renewal.claim.pending.unwrap_or_default();
        Ok(Renewed { recorded, alone: renewal.accepted })
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<(), Error> {
        self.check(format!("{heartbeat:?}"))
    }
}

fn connect(addresses: &[&str]) -> Arc<MetaClient> {
    let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
    MetaClient::connect(&Links::plain(), addresses, CancellationToken::new())
}

async fn ready(client: &MetaClient) {
    tokio::time::timeout(PATIENCE, client.ready()).await.unwrap();
}

fn heartbeat() -> Heartbeat {
    Heartbeat {
        node: NODE,
        identity: u64::MAX,
        address: "host:1".to_owned(),
        replicas: vec![replica_status()],
        loads: vec![LoadBeat { partition: PartitionId(9), term: 3, ..LoadBeat::default() }],
        labels: labels(),
        cpu_ms: Some(70),
        claim: claim(),
        follower_reads: vec![FollowerReads { since_ms: 4, ..FollowerReads::default() }],
        names_leader: true,
    }
}

fn blame_report() -> BlameReport {
    let cause = pb::BlameCause {
        statement: "INSERT INTO t VALUES (?)".to_owned(),
        kind: "INSERT".to_owned(),
        user: "app".to_owned(),
        application: "loader".to_owned(),
        client: "10.0.0.7".to_owned(),
    };
    let sample = pb::BlameSample { partition: 9, key: Some(vec![1, 2]), cause: 0, weight: 4.0 };
    let second = pb::BlameSecond { second: 7, read: true, samples: vec![sample] };
    let stall = pb::BlameStall { partition: 9, time_us: 12_000, ago_us: 70 };
    let (causes, seconds, stalls) = (vec![cause], vec![second], vec![stall]);
    let message = pb::BlameReport { source: u64::MAX, causes, seconds, stalls };
    BlameReport::from_wire(message).unwrap()
}

fn claim() -> Claim {
    let generation = |number| Some(Generation { number, nonce: u64::MAX });
    Claim { acknowledged: generation(7), pending: generation(8) }
}

fn renewal() -> Renewal {
    let (claim, accepted) = (claim(), vec![PartitionId(9)]);
    Renewal { node: NODE, identity: u64::MAX, claim, set_aside: true, accepted }
}

fn labels() -> Labels {
    "rack=r1,zone=a".parse().unwrap()
}

fn registration() -> Registration {
    let address = "host:1".to_owned();
    Registration { identity: u64::MAX, node: Some(NODE), address, labels: labels() }
}

#[tokio::test]
async fn every_call_arrives_as_it_was_made() {
    let meta = FakeMeta::leading();
    let served = meta.serve().await;
    let client = connect(&[&served.address]);
    let orders = [
        AdminOrder::Drain { node: NODE, on: true },
        AdminOrder::MoveReplica { partition: PartitionId(1), from: NODE, to: NodeId(3) },
        AdminOrder::TransferLeader { partition: PartitionId(1), to: NODE },
        AdminOrder::RemoveNode { node: NODE },
    ];
    for order in orders.clone() {
        client.administer(order).await.unwrap();
    }
    let question =
        LoadRequest { table: Some(TableId(7)), history_since: Some(At(9)), samples: true };
    let report = client.load(question).await.unwrap();
    assert_eq!((report.at, report.partitions.len()), (At(9), 1));
    assert_eq!((report.partitions[0].table, report.partitions[0].share), (TableId(7), 0.5));
    let picture = HeatmapRequest {
        table: TableId(7),
        metric: "busy".to_owned(),
        since_s: 60,
        until_s: Some(9),
        rows: 3,
        columns: 4,
        from_key: Bytes::from_static(&[1]),
        to_key: Some(Bytes::from_static(&[2])),
    };
    let drawn = client.heatmap(picture.clone()).await.unwrap();
    assert_eq!(drawn, format!("busy of {}", TableId(7)));
    let copies: Vec<_> = [3, 9, 1, 2].map(TableId).into();
    let states = client.confirm(copies.clone()).await.unwrap();
    let (lost, filling) = (Some(CopyState::Lost), Some(CopyState::Filling));
    assert_eq!(states, [lost, None, filling, Some(CopyState::InStep)]);
    assert_eq!(client.register(registration()).await, Ok(NODE));
    let recorded = claim().pending.unwrap();
    let renewed = Renewed { recorded, alone: vec![PartitionId(9)] };
    assert_eq!(client.renew(renewal()).await, Ok(renewed));
    client.heartbeat(heartbeat()).await.unwrap();
    client.blame(blame_report()).await.unwrap();
    assert_eq!(client.change(create("a")).await, Ok(true));
    let mut expected: Vec<String> = orders.iter().map(|order| format!("{order:?}")).collect();
    expected.push(format!("{question:?}"));
    expected.push(format!("{picture:?}"));
    expected.push(format!("confirm {copies:?}"));
    expected.push(format!("{:?}", registration()));
    expected.push(format!("{:?}", renewal()));
    expected.push(format!("{:?}", heartbeat()));
    expected.push(format!("{:?}", blame_report()));
    expected.push(format!("{:?}", create("a")));
    assert_eq!(*meta.asked.lock(), expected);
}

#[tokio::test]
async fn a_heartbeat_is_overheard_by_those_that_do_not_lead_and_nobody_waits_for_them() {
    let leads = FakeMeta::leading();
    let follows = leads.beside();
    let (one, other) = (leads.serve().await, follows.serve().await);
    // One of them takes connections and says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = silent.local_addr().unwrap().to_string();
    let client = connect(&[&other.address, &nobody, &one.address]);
    ready(&client).await;
    let heard = |meta: &FakeMeta| {
        meta.asked.lock().iter().filter(|asked| **asked == format!("{:?}", heartbeat())).count()
    };
    for _ in 0..3 {
        tokio::time::timeout(PATIENCE / 4, client.heartbeat(heartbeat())).await.unwrap().unwrap();
    }
    assert_eq!(heard(&leads), 3);
    let deadline = Instant::now() + PATIENCE;
    while heard(&follows) == 0 {
        assert!(Instant::now() < deadline, "it is not overheard");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_report_of_causes_reaches_all_members() {
    let leads = FakeMeta::leading();
    let follows = leads.beside();
    let (one, other) = (leads.serve().await, follows.serve().await);
    let client = connect(&[&other.address, &one.address]);
    ready(&client).await;
    let expected = format!("{:?}", blame_report());
    let heard = |meta: &FakeMeta| meta.asked.lock().contains(&expected);
    client.blame(blame_report()).await.unwrap();
    assert!(heard(&leads));
    let deadline = Instant::now() + PATIENCE;
    while !heard(&follows) {
        assert!(Instant::now() < deadline, "it does not arrive");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn every_member_says_how_it_is_whether_it_leads_or_not() {
    let (leads, follows) = (FakeMeta::leading(), FakeMeta::leading());
    follows.leads.send_replace(false);
    let (one, other) = (leads.serve().await, follows.serve().await);
    let client = connect(&[&one.address, "127.0.0.1:1", &other.address]);
    let expected = [
        MetaMember {
            address: one.address.clone(),
            standing: Some(MetaStanding { leads: true, ..STANDING }),
        },
        MetaMember { address: "127.0.0.1:1".to_owned(), standing: None },
        MetaMember {
            address: other.address.clone(),
            standing: Some(MetaStanding { leads: false, ..STANDING }),
        },
    ];
    assert_eq!(client.metas().await, expected);
}

#[tokio::test]
async fn a_definite_error_arrives_as_it_was_sent_and_ends_the_matter() {
    let meta = FakeMeta::leading();
    let served = meta.serve().await;
    let client = connect(&[&served.address]);
    let definite = |error: &Error| {
        !matches!(error, Error::NotLeader { .. } | Error::Unavailable(_) | Error::Timeout(_))
    };
    for error in every_error().into_iter().filter(definite) {
        *meta.fails.lock() = Some(error.clone());
        meta.asked.lock().clear();
        assert_eq!(client.change(create("a")).await, Err(error.clone()));
        assert_eq!(client.heartbeat(heartbeat()).await, Err(error.clone()));
        assert_eq!(client.register(registration()).await, Err(error));
        assert_eq!(meta.asked.lock().len(), 3);
    }
}

#[tokio::test]
async fn catalog_and_members_are_followed() {
    let meta = FakeMeta::leading();
    meta.members.send_replace(member("host:1", true, 1));
    let served = meta.serve().await;
    let client = connect(&[&served.address]);
    assert_eq!(client.catalog().borrow().version, 0);
    ready(&client).await;
    assert!(*client.leads().borrow());
    assert_eq!(**client.members().borrow(), *member("host:1", true, 1));
    assert!(client.catalog().borrow().databases.contains_key("public"));
    meta.publish(catalog(2, &["other"]));
    meta.members.send_replace(member("host:2", false, 1));
    eventually("the catalog arrived", || client.catalog().borrow().version == 2).await;
    let known: Vec<String> = client.catalog().borrow().databases.keys().cloned().collect();
    assert_eq!(known, ["other"]);
    eventually("the members arrived", || {
        **client.members().borrow() == *member("host:2", false, 1)
    })
    .await;
}

#[tokio::test]
async fn roles_are_for_those_who_ask_for_them() {
    let meta = FakeMeta::leading();
    let access = Access::bootstrap("partita", Secrets { cookies: [7; 32], ..Secrets::default() });
    let with_roles = Catalog { access: Arc::new(access.clone()), ..catalog(2, &["public"]) };
    meta.publish(with_roles.clone());
    let served = meta.serve().await;
    let frontend = connect(&[&served.address]);
    let addresses = vec![served.address.clone()];
    let datanode =
        MetaClient::connect_without_access(&Links::plain(), addresses, CancellationToken::new());
    ready(&frontend).await;
    ready(&datanode).await;
    assert_eq!(*frontend.catalog().borrow().access, access);
    assert_eq!(*datanode.catalog().borrow().access, Access::default());
    let mut changed = access;
    changed.drop_role(BOOTSTRAP_ROLE);
    changed.version = 3;
    let catalog = Catalog { version: 3, access: Arc::new(changed.clone()), ..with_roles };
    meta.publish(catalog);
    for (client, expected) in [(&frontend, changed), (&datanode, Access::default())] {
        eventually("the catalog arrived", || client.catalog().borrow().version == 3).await;
        assert_eq!(*client.catalog().borrow().access, expected);
    }
}

#[tokio::test]
async fn a_change_is_in_the_catalog_when_it_is_answered() {
    let meta = FakeMeta::leading();
    let served = meta.serve().await;
    let client = connect(&[&served.address]);
    *meta.delay.lock() = Duration::from_millis(300);
    for name in ["a", "b"] {
        client.change(create(name)).await.unwrap();
        assert!(client.catalog().borrow().databases.contains_key(name));
    }
    let answer = client.change(create("b")).await.unwrap_err();
    assert!(matches!(answer, Error::AlreadyExists { kind: "database", .. }), "{answer}");
    let ids = meta.ids.lock().clone();
    assert_eq!(ids.len(), 3);
    assert!(ids[0] != ids[1] && ids[1] != ids[2], "each change has its own identity");
}

#[tokio::test]
async fn the_client_goes_where_leadership_goes_and_its_catalog_never_goes_back() {
    let one = FakeMeta::leading();
    let two = one.beside();
    let (at_one, at_two) = (one.serve().await, two.serve().await);
    let client = connect(&[&at_two.address, &at_one.address]);
    ready(&client).await;
    let mut catalogs = client.catalog();
    let versions = tokio::spawn(async move {
        let mut versions = vec![catalogs.borrow_and_update().version];
        while catalogs.changed().await.is_ok() {
            versions.push(catalogs.borrow_and_update().version);
        }
        versions
    });
    for round in 0..3 {
        client.change(create(&format!("one {round}"))).await.unwrap();
        one.leads.send_replace(false);
        two.lead();
        // Asked while the client still believes in the other.
        client.change(create(&format!("two {round}"))).await.unwrap();
        two.leads.send_replace(false);
        one.lead();
    }
    eventually("all is there", || client.catalog().borrow().databases.len() == 7).await;
    let asked = one.asked.lock().len() + two.asked.lock().len();
    assert!(asked <= 6 * 4, "asked {asked} times for six changes");
    drop(client);
    let versions = versions.await.unwrap();
    assert!(versions.is_sorted(), "{versions:?}");
}

#[tokio::test]
async fn an_older_catalog_is_not_made_known_but_a_newer_one_of_the_same_meta_is() {
    let meta = FakeMeta::leading();
    meta.publish(catalog(10, &["public"]));
    let served = meta.serve().await;
    let client = connect(&[&served.address]);
    ready(&client).await;
    meta.leads.send_replace(false);
    eventually("nobody leads", || !*client.leads().borrow()).await;
    assert_eq!(client.catalog().borrow().version, 10, "what is known stays");
    meta.publish(catalog(8, &["restored"]));
    meta.leads.send_replace(true);
    eventually("somebody leads", || *client.leads().borrow()).await;
    meta.publish(catalog(9, &["restored", "more"]));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(client.catalog().borrow().version, 10);
    assert!(client.catalog().borrow().databases.contains_key("public"));
    meta.publish(catalog(11, &["restored", "more", "most"]));
    eventually("the newer one is known", || client.catalog().borrow().version == 11).await;
    let known: Vec<String> = client.catalog().borrow().databases.keys().cloned().collect();
    assert_eq!(known, ["more", "most", "restored"]);
}

#[tokio::test]
async fn an_answer_that_was_lost_is_asked_for_again_under_the_same_identity() {
    let meta = FakeMeta::leading();
    let (_reserved, address) = reserved();
    let mut served = meta.serve_at(&address).await;
    let client = connect(&[&address]);
    ready(&client).await;
    meta.lost.store(2, Ordering::SeqCst);
    let changes = tokio::spawn({
        let client = Arc::clone(&client);
        async move { client.change(create("a")).await }
    });
    for left in [1, 0] {
        eventually("the change was made", || meta.lost.load(Ordering::SeqCst) == left).await;
        // The connection is cut, and the server comes back.
        served.task.abort();
        eventually("the server is gone", || served.task.is_finished()).await;
        served = meta.serve_at(&address).await;
    }
    assert_eq!(changes.await.unwrap(), Ok(true));
    let ids = meta.ids.lock().clone();
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(meta.agreed.lock().catalog.version, 2);
    assert!(client.catalog().borrow().databases.contains_key("a"));
}

#[tokio::test]
async fn a_change_that_waits_at_a_meta_that_lost_goes_to_the_one_that_leads() {
    let one = FakeMeta::leading();
    let two = one.beside();
    let (at_one, at_two) = (one.serve().await, two.serve().await);
    let client = connect(&[&at_one.address, &at_two.address]);
    ready(&client).await;
    one.lost.store(1, Ordering::SeqCst);
    let changes = tokio::spawn({
        let client = Arc::clone(&client);
        async move { client.change(create("a")).await }
    });
    eventually("the change was made", || one.lost.load(Ordering::SeqCst) == 0).await;
    one.leads.send_replace(false);
    two.lead();
    let answer = tokio::time::timeout(PATIENCE, changes).await.unwrap().unwrap();
    assert_eq!(answer, Ok(true));
    assert_eq!(two.agreed.lock().catalog.version, 2);
    // A former leader may be asked once more, by a client that does not know of the change yet.
    let (first, second) = (one.ids.lock().clone(), two.ids.lock().clone());
    assert!(first.iter().chain(&second).all(|id| *id == first[0]), "{first:?} {second:?}");
    assert_eq!(second.len(), 1);
}

#[tokio::test]
async fn a_change_waits_for_a_leader_to_come() {
    let meta = FakeMeta::leading();
    meta.leads.send_replace(false);
    let served = meta.serve().await;
    let client = connect(&["127.0.0.1:1", &served.address]);
    let changes = tokio::spawn({
        let client = Arc::clone(&client);
        async move { client.change(create("a")).await }
    });
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(!changes.is_finished());
    meta.lead();
    let answer = tokio::time::timeout(PATIENCE, changes).await.unwrap().unwrap();
    assert_eq!(answer, Ok(true));
}

#[tokio::test]
async fn a_meta_that_hangs_does_not_keep_the_client_from_the_others() {
    let meta = FakeMeta::leading();
    let served = meta.serve().await;
    let (silent, _task) = silent().await;
    let client = connect(&[&silent, &served.address]);
    ready(&client).await;
    let made = AtomicUsize::new(0);
    within(Duration::from_secs(2), async || {
        let begun = Instant::now();
        let number = made.fetch_add(1, Ordering::SeqCst);
        client.change(create(&format!("{number}"))).await.unwrap();
        match client.heartbeat(heartbeat()).await {
            // It is not sent for ever.
            Ok(()) | Err(Error::Timeout(_)) => begun.elapsed(),
            Err(error) => panic!("{error}"),
        }
    })
    .await;
}

#[tokio::test]
async fn a_meta_that_stops_while_it_leads_is_left_within_seconds() {
    let one = FakeMeta::leading();
    let two = one.beside();
    let (at_one, at_two) = (one.serve().await, two.serve().await);
    let stop = CancellationToken::new();
    let relayed = relay(&at_one.address, stop.clone()).await;
    let client = connect(&[&relayed, &at_two.address]);
    ready(&client).await;
    stop.cancel();
    two.lead();
    let begun = Instant::now();
    assert_eq!(client.change(create("a")).await, Ok(true));
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    assert!(client.catalog().borrow().databases.contains_key("a"));
}

#[tokio::test]
async fn a_heartbeat_is_not_sent_for_ever() {
    let client = connect(&["127.0.0.1:1", "127.0.0.1:2"]);
    let begun = Instant::now();
    let error = client.heartbeat(heartbeat()).await.unwrap_err();
    assert!(matches!(error, Error::Timeout(_)), "{error}");
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    let nobody = connect(&[]).heartbeat(heartbeat()).await.unwrap_err();
    assert!(matches!(nobody, Error::Unavailable(_)), "{nobody}");
}

#[tokio::test]
async fn a_meta_that_stops_leading_says_so_to_its_watchers() {
    let meta = FakeMeta::leading();
    let served = meta.serve().await;
    let mut client = Generated::new(channel(&Links::plain(), Role::Meta, &served.address));
    let request = pb::WatchRequest { version: 1, access: false };
    let mut frames = client.watch(request).await.unwrap().into_inner();
    let first = frames.message().await.unwrap().unwrap();
    assert!(matches!(first.kind, Some(pb::watch_frame::Kind::Members(_))), "{first:?}");
    let nothing = tokio::time::timeout(Duration::from_millis(100), frames.message()).await;
    assert!(nothing.is_err(), "version 1 was sent to who has it");
    meta.leads.send_replace(false);
    let peer = crate::status::Peer { node: None, address: String::new() };
    let not_leader = Error::NotLeader { partition: PartitionId(0), leader: None };
    let ended = frames.message().await.unwrap_err();
    assert_eq!(crate::status::from_status(&peer, ended), not_leader);
    let refused = client.watch(request).await.unwrap_err();
    assert_eq!(crate::status::from_status(&peer, refused), not_leader);
}

#[tokio::test]
async fn watchers_do_not_keep_a_server_from_stopping() {
    // What is under way would be waited for that long.
    within(Duration::from_secs(2), async || {
        let meta = FakeMeta::leading();
        let mut served = meta.serve().await;
        let client = connect(&[&served.address]);
        ready(&client).await;
        let begun = Instant::now();
        meta.stop.cancel();
        served.stop.cancel();
        assert_eq!((&mut served.task).await.unwrap(), Ok(()));
        let took = begun.elapsed();
        eventually("it is not followed", || !*client.leads().borrow()).await;
        took
    })
    .await;
}

#[tokio::test]
async fn a_slow_watcher_gets_the_newest_and_not_each_step() {
    let meta = FakeMeta::leading();
    let mut watcher =
        Watcher::new(meta.as_ref(), pb::WatchRequest::default(), CancellationToken::new());
    let mut next = async || watcher.next().await.unwrap().kind.unwrap();
    assert!(matches!(next().await, pb::watch_frame::Kind::Members(_)));
    let pb::watch_frame::Kind::Catalog(part) = next().await else { panic!() };
    assert_eq!((part.version, part.reset), (1, true));
    for version in 2..=50 {
        meta.publish(catalog(version, &["public", &format!("database {version}")]));
    }
    let pb::watch_frame::Kind::Catalog(part) = next().await else { panic!() };
    assert_eq!((part.version, part.reset), (50, false));
    assert_eq!((part.databases.len(), part.databases_gone.len()), (1, 0));
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_not_sent_each_step_over_the_network_either() {
    let meta = FakeMeta::leading();
    let served = meta.serve().await;
    let mut client = Generated::new(channel(&Links::plain(), Role::Meta, &served.address));
    let watch = client.watch(pb::WatchRequest::default()).await.unwrap();
    let mut frames = watch.into_inner();
    for version in 2..=200 {
        // 400 KB each.
        meta.publish(catalog(version, &[&format!("{version}{}", " ".repeat(400_000))]));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let mut versions = Vec::new();
    while versions.last() != Some(&200) {
        if let Some(pb::watch_frame::Kind::Catalog(part)) =
            frames.message().await.unwrap().unwrap().kind
        {
            versions.push(part.version);
        }
    }
    assert!(versions.len() < 60, "{versions:?}");
}

#[tokio::test]
async fn sizes_of_members_are_told_five_times_a_second_and_their_going_at_once() {
    let meta = FakeMeta::leading();
    let served = meta.serve().await;
    let client = connect(&[&served.address]);
    ready(&client).await;
    let mut members = client.members();
    let told = Arc::new(AtomicUsize::new(0));
    let so_far = Arc::clone(&told);
    let counted = tokio::spawn(async move {
        let mut count = 0;
        while members.changed().await.is_ok() {
            count += 1;
            so_far.store(count, Ordering::SeqCst);
            if members.borrow_and_update().get(&NODE).is_some_and(|node| !node.live) {
                break;
            }
        }
        count
    });
    let begun = Instant::now();
    let mut bytes = 0;
    // They are told again and again, on a slow machine a little later.
    while bytes < 50 || told.load(Ordering::SeqCst) < 3 {
        assert!(begun.elapsed() < PATIENCE, "told {told:?} times");
        meta.members.send_replace(member("host:1", true, bytes));
        tokio::time::sleep(Duration::from_millis(20)).await;
        bytes += 1;
    }
    meta.members.send_replace(member("host:1", false, 50));
    let gone = tokio::time::timeout(PATIENCE, counted).await;
    let count = gone.expect("told that it is gone").unwrap();
    let most = usize::try_from(begun.elapsed().as_millis() / 200 + 3).unwrap();
    assert!((3..=most).contains(&count), "told {count} times, {most} at most");
}

#[test]
fn members_are_due_by_what_changed() {
    let now = tokio::time::Instant::now();
    let told = (member("host:1", true, 1), now);
    let later = now + Duration::from_millis(70);
    let due = |members| watcher::due(Some(&told), &members, later);
    assert_eq!(watcher::due(None, &told.0, later), Some(later));
    assert_eq!(due(member("host:1", true, 1)), None);
    assert_eq!(due(member("host:1", true, 2)), Some(now + Duration::from_millis(200)));
    assert_eq!(due(member("host:1", false, 1)), Some(later));
    assert_eq!(due(member("host:2", true, 1)), Some(later));
    assert_eq!(due(Arc::default()), Some(later));
}

#[test]
fn pauses_grow_within_their_bounds() {
    for random in [0, 1, 77, u64::MAX] {
        for rounds in [0, 1, 2, 10, usize::MAX] {
            let pause = pause(rounds, random).as_millis();
            assert!((50..=500).contains(&pause), "{pause}");
        }
        assert!(pause(0, random).as_millis() <= 100);
    }
}

#[tokio::test]
async fn the_watch_ends_with_the_client() {
    let meta = FakeMeta::leading();
    let served = served(Routes::new(MetaServer::server(
        Arc::clone(&meta) as Arc<dyn ClusterService>,
        CancellationToken::new(),
    )))
    .await;
    let client = connect(&[&served.address]);
    ready(&client).await;
    eventually("it is watched", || meta.catalog.receiver_count() == 1).await;
    drop(client);
    eventually("it is not watched", || meta.catalog.receiver_count() == 0).await;
}
