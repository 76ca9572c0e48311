//! The gRPC transport over loopback: peers that are slow, hang, die, come back, or speak another version.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use partita_proto::wire::pb::raft_message::Body;
use partita_proto::wire::pb::raft_server::{Raft, RaftServer};
use partita_proto::wire::pb::{RaftBeat, RaftFrame, RaftHello};
use partita_tls::Links;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use super::calm::{ensure, undisturbed};
use super::cluster::turn;
use super::recorder::Recorder;
use crate::greeting::Manners;
use crate::log::simulated::SimulatedDisk;
use crate::peer::{CallError, Lane, Peers, Route};
use crate::transport::grpc::{Grpc, Service};
use crate::{GroupId, Host, HostOptions, NodeId, RaftError, ReplicaId, Start};

const GROUP: GroupId = GroupId(7);
const ROUTE: Route = Route { group: GroupId(0), from: ReplicaId(0), to: ReplicaId(0) };
const PATIENCE: Duration = Duration::from_secs(30);

/// Where nodes listen; a node that is not here is not known.
type Book = Arc<Mutex<BTreeMap<NodeId, SocketAddr>>>;

fn manners(node: u64) -> Manners {
    Manners::new(NodeId(node), 0)
}

fn grpc(book: &Book) -> Arc<Grpc> {
    let book = Arc::clone(book);
    Grpc::new(Links::plain(), Arc::new(move |node| book.lock().get(&node).map(ToString::to_string)))
}

/// A node that listens.
struct Node {
    host: Arc<Host>,
    machine: Arc<Recorder>,
    disk: SimulatedDisk,
    address: SocketAddr,
    server: JoinHandle<()>,
}

async fn listen(host: &Arc<Host>, listener: TcpListener) -> JoinHandle<()> {
    let service = Service::server(Arc::clone(host));
    tokio::spawn(async move {
        let incoming = TcpListenerStream::new(listener);
        Server::builder().add_service(service).serve_with_incoming(incoming).await.unwrap();
    })
}

async fn open(id: NodeId, disk: &SimulatedDisk, book: &Book) -> Arc<Host> {
    let options = HostOptions {
        segment_bytes: 16 << 20,
        log_budget_bytes: 256 << 20,
        ..HostOptions::new("/simulated", id)
    };
    Host::open_on(Arc::new(disk.clone()), &options, grpc(book)).await.unwrap()
}

fn members() -> BTreeMap<ReplicaId, NodeId> {
    (1..=3).map(|id| (ReplicaId(70 + id), NodeId(id))).collect()
}

impl Node {
    async fn start(id: u64, book: &Book) -> Self {
        let disk = SimulatedDisk::default();
        let host = open(NodeId(id), &disk, book).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = listen(&host, listener).await;
        book.lock().insert(NodeId(id), address);
        let machine = Recorder::new();
        let start = Start::Create { members: members() };
        host.start_group(GROUP, ReplicaId(70 + id), Arc::clone(&machine) as _, start)
            .await
            .unwrap();
        Self { host, machine, disk, address, server }
    }

    /// Ends as a killed process does: its connections are reset, its port is closed.
    async fn kill(&mut self) {
        self.server.abort();
        self.host.shutdown().await.unwrap();
    }

    async fn restart(&mut self, book: &Book) {
        let node = self.host.node();
        self.disk = self.disk.copy();
        self.host = open(node, &self.disk, book).await;
        let deadline = Instant::now() + PATIENCE;
        let listener = loop {
            match TcpListener::bind(self.address).await {
                Ok(listener) => break listener,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        self.server = listen(&self.host, listener).await;
        self.machine = self.machine.restarted();
        let (replica, machine) = (ReplicaId(70 + node.0), Arc::clone(&self.machine));
        self.host.start_group(GROUP, replica, machine, Start::Restart).await.unwrap();
    }
}

/// Proposes to whichever of the nodes leads, until it is done; how often it may have been done before.
async fn propose(nodes: &[&Node], row: &Bytes) -> usize {
    let deadline = Instant::now() + PATIENCE;
    let mut unknown = 0;
    loop {
        for node in nodes {
            let group = node.host.group(GROUP).unwrap();
            if group.status().is_leader {
                match group.propose(row.clone()).await {
                    Ok(_) => return unknown,
                    Err(error) => {
                        assert!(error.is_retryable(), "{error}");
                        unknown += usize::from(matches!(error, RaftError::OutcomeUnknown(_)));
                    }
                }
            }
        }
        assert!(Instant::now() < deadline, "no leader takes it");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until the nodes have applied all rows, and the same; so many of them may be there twice.
async fn until_applied(nodes: &[&Node], rows: usize, twice: usize) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let have: Vec<_> = nodes.iter().map(|node| node.machine.rows()).collect();
        let counts: Vec<_> = have.iter().map(Vec::len).collect();
        assert!(counts.iter().all(|count| *count <= rows + twice), "{counts:?} of {rows}");
        if counts.iter().all(|count| *count >= rows) && have.iter().all(|rows| *rows == have[0]) {
            return;
        }
        assert!(Instant::now() < deadline, "{counts:?} of {rows}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_of_every_size_are_replicated_and_a_killed_node_catches_up() {
    let _turn = turn().await;
    let book = Book::default();
    let (mut one, two, three) =
        (Node::start(1, &book).await, Node::start(2, &book).await, Node::start(3, &book).await);
    let largest = one.host.group(GROUP).unwrap().command_bytes_max();
    let sizes = [0, 1, 1000, 100_000, largest];
    let mut twice = 0;
    for size in sizes {
        twice += propose(&[&one, &two, &three], &Bytes::from(vec![7; size])).await;
    }
    until_applied(&[&one, &two, &three], sizes.len(), twice).await;
    one.kill().await;
    for size in sizes {
        twice += propose(&[&two, &three], &Bytes::from(vec![8; size])).await;
    }
    one.restart(&book).await;
    until_applied(&[&one, &two, &three], 2 * sizes.len(), twice).await;
    for mut node in [one, two, three] {
        node.kill().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_hangs_or_is_slow_holds_nobody_up() {
    let _turn = turn().await;
    let book = Book::default();
    let (one, two) = (Node::start(1, &book).await, Node::start(2, &book).await);
    // The third takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    book.lock().insert(NodeId(3), silent.local_addr().unwrap());
    let mut twice = 0;
    for _ in 0..20 {
        twice += propose(&[&one, &two], &Bytes::from(vec![1; 10_000])).await;
    }
    // Then it works, but everything to it goes through a thin pipe.
    let three = Node::start(3, &book).await;
    let pipe = thin_pipe(three.address).await;
    book.lock().insert(NodeId(3), pipe);
    drop(silent);
    let begun = Instant::now();
    for _ in 0..100 {
        twice += propose(&[&one, &two, &three], &Bytes::from(vec![2; 10_000])).await;
    }
    // Through the pipe alone this would take more than a minute.
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    until_applied(&[&one, &two], 120, twice).await;
    for mut node in [one, two, three] {
        node.kill().await;
    }
}

/// Passes connections on to an address, at no more than 15 kB/s each way.
async fn thin_pipe(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((from, _)) = listener.accept().await {
            let Ok(to) = TcpStream::connect(to).await else { continue };
            let ((read_a, write_a), (read_b, write_b)) = (from.into_split(), to.into_split());
            for (mut read, mut write) in [(read_a, write_b), (read_b, write_a)] {
                tokio::spawn(async move {
                    let mut bytes = [0; 1000];
                    while let Ok(count @ 1..) = read.read(&mut bytes).await {
                        if write.write_all(&bytes[..count]).await.is_err() {
                            return;
                        }
                        tokio::time::sleep(Duration::from_millis(65)).await;
                    }
                });
            }
        }
    });
    address
}

async fn beat(peers: &Peers, node: u64, wait: Duration) -> Result<Body, CallError> {
    peers.peer(NodeId(node)).call(Lane::Control, ROUTE, Body::Beat(RaftBeat::default()), wait).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_ends_when_its_time_is_up_or_its_node_is_known_to_be_gone() {
    let book = Book::default();
    let peers = Peers::new(manners(1), grpc(&book));
    let error = beat(&peers, 2, PATIENCE).await.unwrap_err();
    assert!(matches!(&error, CallError::Unreachable(why) if why.contains("not known")), "{error}");

    let hung = TcpListener::bind("127.0.0.1:0").await.unwrap();
    book.lock().insert(NodeId(3), hung.local_addr().unwrap());
    undisturbed(async |_| {
        let begun = Instant::now();
        let error = beat(&peers, 3, Duration::from_millis(200)).await.unwrap_err();
        let in_time = begun.elapsed() < Duration::from_secs(1);
        ensure(in_time && error == CallError::TimedOut(Duration::from_millis(200)), || {
            format!("{error} after {:?}", begun.elapsed())
        })
    })
    .await;
    let error = beat(&peers, 3, PATIENCE).await.unwrap_err();
    assert!(matches!(error, CallError::Unreachable(_)), "{error}");

    // A port that is taken, so that nobody else gets it, and where nobody listens.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    book.lock().insert(NodeId(4), closed.local_addr().unwrap());
    let error = beat(&peers, 4, PATIENCE).await.unwrap_err();
    assert!(
        matches!(&error, CallError::Unreachable(why) if why.contains("refused")),
        "the reason is kept: {error}"
    );
}

/// A node of a version to come.
struct Stranger;

#[async_trait]
impl Raft for Stranger {
    type LinkStream = Pin<Box<dyn Stream<Item = Result<RaftFrame, Status>> + Send>>;

    async fn link(
        &self,
        _request: Request<Streaming<RaftFrame>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        let hello = RaftHello { version: 99, node: 2, peer: 1, ..RaftHello::default() };
        let frame = RaftFrame { hello: Some(hello), messages: Vec::new() };
        let frames = futures::stream::iter([Ok(frame)]).chain(futures::stream::pending());
        Ok(Response::new(Box::pin(frames)))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_different_versions_or_with_mixed_up_addresses_part_with_a_reason() {
    let book = Book::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    book.lock().insert(NodeId(2), listener.local_addr().unwrap());
    let incoming = TcpListenerStream::new(listener);
    let stranger = Server::builder().add_service(RaftServer::new(Stranger));
    let stranger = tokio::spawn(stranger.serve_with_incoming(incoming));
    let peers = Peers::new(manners(1), grpc(&book));
    let error = beat(&peers, 2, PATIENCE).await.unwrap_err();
    assert!(
        matches!(&error, CallError::Unreachable(why) if why.contains("speaks version 99")),
        "{error}"
    );
    stranger.abort();

    // Node 5 is held to be where node 1 is.
    let mut one = Node::start(1, &book).await;
    let address = one.address;
    book.lock().insert(NodeId(5), address);
    let error = beat(&peers, 5, PATIENCE).await.unwrap_err();
    assert!(
        matches!(&error, CallError::Unreachable(why) if why.contains("of node 5 belongs to node 1")),
        "{error}"
    );
    // And the other way round: a stranger comes, hears who we are, and is not served.
    let hello = RaftHello { version: 99, node: 2, peer: 1, ..RaftHello::default() };
    let frame = RaftFrame { hello: Some(hello), messages: Vec::new() };
    let frames = futures::stream::iter([Ok(frame)]).chain(futures::stream::pending());
    let mut answers = one.host.accept(frames.boxed());
    assert_eq!(answers.recv().await.unwrap().hello.unwrap().version, 1);
    assert!(answers.recv().await.is_none());
    one.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_for_a_replica_that_is_not_here_is_refused_and_makes_none() {
    let book = Book::default();
    let mut one = Node::start(1, &book).await;
    let peers = Peers::new(manners(2), grpc(&book));
    let peer = peers.peer(NodeId(1));
    let vote = || Body::Vote(Default::default());
    for (group, to) in [(GroupId(8), ReplicaId(71)), (GROUP, ReplicaId(79))] {
        let route = Route { group, from: ReplicaId(72), to };
        let error = peer.call(Lane::Control, route, vote(), PATIENCE).await.unwrap_err();
        assert!(
            matches!(&error, CallError::Refused(why) if why.contains("is not on node 1")),
            "{error}"
        );
    }
    // One that is here refuses what it does not understand.
    let route = Route { group: GROUP, from: ReplicaId(72), to: ReplicaId(71) };
    let error = peer.call(Lane::Control, route, vote(), PATIENCE).await.unwrap_err();
    assert!(matches!(&error, CallError::Refused(why) if why.contains("without a vote")), "{error}");
    assert_eq!(one.host.known_groups().len(), 1);
    one.kill().await;
}
