//! Who may call what: the table against the .proto files, and refusals over real connections.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use partita_proto::Error;
use partita_proto::id::{PartitionId, ReplicaId};
use partita_proto::service::DataService;
use partita_proto::wire::pb;
use partita_tls::issue::{Request as CertificateRequest, init, issue};
use partita_tls::{IdentityFiles, Links, Role};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::service::Routes;
use tonic::{Code, Request, Status};

use super::{FakeNode, NODE, PATIENCE, Served, served_over};
use crate::channel::channel;
use crate::rights::{CALLS, Caller, Callers, calls, check, needs_access};
use crate::{DataClient, DataServer};

const PARTITION: PartitionId = PartitionId(1);

/// Paths of all calls that the .proto files declare.
fn declared() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../partita");
    let mut paths = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let mut service = String::new();
        for line in text.lines() {
            let line = line.trim();
            if let Some(name) = line.strip_prefix("service ") {
                service = name.trim_end_matches(['{', ' ']).to_owned();
            } else if let Some((name, _)) =
                line.strip_prefix("rpc ").and_then(|rest| rest.split_once('('))
            {
                paths.insert(format!("/partita.v1.{service}/{}", name.trim()));
            }
        }
    }
    paths
}

#[test]
fn each_call_of_each_service_is_in_the_table_once() {
    let declared = declared();
    assert!(declared.len() >= 25, "only {declared:?} were found");
    let listed: BTreeSet<String> = CALLS
        .iter()
        .map(|(path, _)| (*path).to_owned())
        .filter(|path| path.starts_with("/partita.v1."))
        .collect();
    let missing: Vec<_> = declared.difference(&listed).collect();
    assert!(missing.is_empty(), "proto/rpc/src/rights.rs lacks {missing:?}");
    let gone: Vec<_> = listed.difference(&declared).collect();
    assert!(gone.is_empty(), "no service has {gone:?}");
    let distinct: BTreeSet<_> = CALLS.iter().map(|(path, _)| path).collect();
    assert_eq!(distinct.len(), CALLS.len());
    assert!(CALLS.iter().all(|(_, callers)| *callers != Callers::Of(&[])));
}

/// Roles that may make a call to a server with a role.
fn allowed(server: Role, path: &str) -> Vec<Role> {
    let may_call = |role: &Role| check(server, Some(Caller(Some(*role))), path).is_ok();
    Role::ALL.into_iter().filter(may_call).collect()
}

#[test]
fn the_list_of_calls_has_the_roles_that_the_check_allows() {
    for server in Role::ALL {
        let listed = calls(server);
        assert_eq!(listed.len(), CALLS.len());
        for (path, roles) in listed {
            assert_eq!(roles, allowed(server, path), "{path} of {server}");
        }
    }
}

#[test]
fn orders_to_a_node_come_from_meta_only() {
    let orders = [
        "OpenPartition",
        "DropPartition",
        "Reconfigure",
        "TransferLeader",
        "Reshape",
        "TruncatePartition",
        "AlterPartition",
    ];
    for order in orders {
        let path = format!("/partita.v1.Data/{order}");
        assert_eq!(allowed(Role::Datanode, &path), [Role::Meta], "{order}");
    }
}

#[test]
fn nobody_votes_in_a_group_of_another_role() {
    for role in [Role::Meta, Role::Datanode] {
        assert_eq!(allowed(role, "/partita.v1.Raft/Link"), [role]);
    }
}

#[test]
fn verifiers_and_tokens_are_sent_to_frontends_only() {
    let roles: Vec<_> =
        Role::ALL.into_iter().filter(|role| needs_access(Some(Caller(Some(*role))))).collect();
    assert_eq!(roles, [Role::Frontend]);
    assert!(needs_access(None) && needs_access(Some(Caller(None))));
}

#[test]
fn a_caller_without_a_role_and_a_call_without_a_rule_are_refused() {
    for caller in [None, Some(Caller(None))] {
        let error = check(Role::Meta, caller, "/partita.v1.Meta/Watch").unwrap_err();
        assert!(matches!(error, Error::Unauthenticated(_)), "{error:?}");
    }
    for path in ["/partita.v1.Meta/Other", "/partita.v1.Meta", "/", ""] {
        let error = check(Role::Meta, Some(Caller(Some(Role::Meta))), path).unwrap_err();
        assert!(matches!(error, Error::Unsupported(_)), "{error:?}");
    }
}

/// A directory with an authority.
fn authority() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    init(dir.path()).unwrap();
    dir
}

/// Links of a process with a new certificate.
fn links(dir: &TempDir, role: Role) -> Links {
    let name = role.as_str().to_owned();
    let request = CertificateRequest { role, name, hosts: Vec::new(), days: 30 };
    let member = issue(dir.path(), &request).unwrap();
    Links::load(&IdentityFiles::of(&member), Some(role)).unwrap()
}

fn serve_node(links: Links, node: &Arc<FakeNode>) -> Served {
    let service = DataServer::server(NODE, Arc::clone(node) as Arc<dyn DataService>);
    served_over(links, "127.0.0.1:0", Routes::new(service))
}

#[tokio::test]
async fn a_node_takes_orders_from_meta_and_rows_from_frontends() {
    let dir = authority();
    let node = Arc::new(FakeNode::default());
    let served = serve_node(links(&dir, Role::Datanode), &node);
    let client = |role| DataClient::new(&links(&dir, role), NODE, &served.address);
    let replica = ReplicaId(1);
    client(Role::Meta).drop_partition(PARTITION, replica).await.unwrap();
    client(Role::Frontend).flush_partition(PARTITION).await.unwrap();
    assert_eq!(node.asked.lock().len(), 2);
    for role in [Role::Datanode, Role::Frontend, Role::Admin] {
        let error = client(role).drop_partition(PARTITION, replica).await.unwrap_err();
        let Error::NotAllowed(text) = &error else { panic!("{error:?}") };
        assert!(text.contains(role.as_str()) && text.contains("DropPartition"), "{text}");
    }
    for role in [Role::Meta, Role::Datanode, Role::Admin] {
        let error = client(role).compact_partition(PARTITION).await.unwrap_err();
        assert!(matches!(error, Error::NotAllowed(_)), "{error:?}");
    }
    assert_eq!(node.asked.lock().len(), 2, "a refused call reached the node");
}

#[tokio::test]
async fn a_process_without_a_certificate_of_the_cluster_reaches_nothing() {
    let (dir, other) = (authority(), authority());
    let node = Arc::new(FakeNode::default());
    let served = serve_node(links(&dir, Role::Datanode), &node);
    for links in [Links::plain(), links(&other, Role::Meta)] {
        let client = DataClient::new(&links, NODE, &served.address);
        let error = client.drop_partition(PARTITION, ReplicaId(1)).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    }
    // Plain bytes are answered by nothing but an alert.
    let mut stream = TcpStream::connect(&served.address).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    drop(read.expect("the server closes the connection"));
    assert!(answer.len() < 16, "{answer:?}");
    assert!(node.asked.lock().is_empty());
}

#[tokio::test]
async fn clients_that_send_nothing_delay_no_other_one() {
    let dir = authority();
    let node = Arc::new(FakeNode::default());
    let served = serve_node(links(&dir, Role::Datanode), &node);
    // More than the port lets one address have at a time.
    let mut silent = Vec::new();
    for _ in 0..150 {
        silent.push(TcpStream::connect(&served.address).await.unwrap());
    }
    let client = DataClient::new(&links(&dir, Role::Meta), NODE, &served.address);
    client.drop_partition(PARTITION, ReplicaId(1)).await.unwrap();
    // Their handshakes end: there is nothing to read but the end.
    for mut stream in silent {
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        drop(read.expect("the server closes the connection"));
        assert!(answer.is_empty(), "{answer:?}");
    }
    client.drop_partition(PARTITION, ReplicaId(2)).await.unwrap();
    assert_eq!(node.asked.lock().len(), 2);
}

#[tokio::test]
async fn a_server_that_is_no_node_gets_no_request() {
    let dir = authority();
    let node = Arc::new(FakeNode::default());
    let served = serve_node(links(&dir, Role::Frontend), &node);
    let client = DataClient::new(&links(&dir, Role::Meta), NODE, &served.address);
    let error = client.drop_partition(PARTITION, ReplicaId(1)).await.unwrap_err();
    let Error::Unavailable(text) = &error else { panic!("{error:?}") };
    assert!(text.contains("datanode.partita.internal"), "{text}");
    assert!(node.asked.lock().is_empty());
}

#[tokio::test]
async fn certificates_are_replaced_under_calls() {
    let dir = authority();
    let node = Arc::new(FakeNode::default());
    let (server, caller) = (links(&dir, Role::Datanode), links(&dir, Role::Meta));
    let served = serve_node(server.clone(), &node);
    let opened = DataClient::new(&caller, NODE, &served.address);
    opened.drop_partition(PARTITION, ReplicaId(1)).await.unwrap();
    for role in [Role::Datanode, Role::Meta] {
        let name = role.as_str().to_owned();
        let request = CertificateRequest { role, name, hosts: Vec::new(), days: 30 };
        issue(dir.path(), &request).unwrap();
    }
    assert!(server.reload().unwrap());
    assert!(caller.reload().unwrap());
    opened.drop_partition(PARTITION, ReplicaId(2)).await.unwrap();
    let new = DataClient::new(&caller, NODE, &served.address);
    new.drop_partition(PARTITION, ReplicaId(3)).await.unwrap();
    assert_eq!(node.asked.lock().len(), 3);
}

/// Counts the requests that reach it.
#[derive(Clone, Default)]
struct Reached(Arc<AtomicUsize>);

#[async_trait]
impl pb::raft_server::Raft for Reached {
    type LinkStream = futures::stream::Empty<Result<pb::RaftFrame, Status>>;

    async fn link(
        &self,
        _: Request<tonic::Streaming<pb::RaftFrame>>,
    ) -> Result<tonic::Response<Self::LinkStream>, Status> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(tonic::Response::new(futures::stream::empty()))
    }
}

/// Status of a call with an empty body to any path.
async fn call(links: &Links, server: Role, address: &str, path: &'static str) -> Code {
    let mut grpc = Grpc::new(channel(links, server, address));
    grpc.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<pb::Done, pb::Done>::default();
    let answer =
        grpc.unary(Request::new(pb::Done {}), PathAndQuery::from_static(path), codec).await;
    answer.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[tokio::test]
async fn each_call_is_refused_to_each_role_that_has_no_right_to_it() {
    let dir = authority();
    for server in [Role::Meta, Role::Datanode] {
        // It has none of the services of the table but one: what is let through is not implemented.
        let reached = Reached::default();
        let service = pb::raft_server::RaftServer::new(reached.clone());
        let served = served_over(links(&dir, server), "127.0.0.1:0", Routes::new(service));
        for role in Role::ALL {
            let caller = links(&dir, role);
            for (path, _) in CALLS {
                let code = call(&caller, server, &served.address, path).await;
                let is_allowed = allowed(server, path).contains(&role);
                assert_eq!(code != Code::PermissionDenied, is_allowed, "{role} {path}: {code}");
            }
        }
        assert_eq!(reached.0.load(Ordering::SeqCst), 1, "one role may link to {server}");
    }
}
