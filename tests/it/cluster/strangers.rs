//! Processes that are none of the cluster get nowhere: without a certificate, with one of another authority, an expired
//! one, or one of a role that must not make a call. Each call that there is, at each port of each role.

use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Buf;
use hyper_util::rt::TokioIo;
use partita_rpc::calls;
use partita_tls::issue::{Request as CertificateRequest, issue_between};
use partita_tls::rustls::ClientConfig;
use partita_tls::tokio_rustls::TlsConnector;
use partita_tls::{IdentityFiles, LinkStream, Links, Role, TlsOptions, door_client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_postgres::NoTls;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::Uri;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use super::harness::{Cluster, PATIENCE};
use super::{NEVER_LOST, TABLES, count, write};
use crate::certs::Authority;
use crate::trust::Trust;

/// What a client of HTTP/2 sends first: the preface, and a frame of settings without any.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// More than an alert, and less than a server's first frames.
const ALERT_BYTES_MAX: usize = 16;
const DAY_S: u64 = 86_400;

/// How a process opens connections.
#[derive(Clone)]
enum Dialer {
    /// With its certificate, or plain.
    Links(Links),
    /// With TLS, but no certificate.
    Unnamed(Arc<ClientConfig>),
}

impl Dialer {
    async fn dial(self, server: Role, address: String) -> io::Result<LinkStream> {
        let stream = TcpStream::connect(address).await?;
        match self {
            Self::Links(links) => links.connect(stream, server).await,
            Self::Unnamed(config) => {
                let connector = TlsConnector::from(config);
                Ok(Box::new(connector.connect(server.server_name(), stream).await?))
            }
        }
    }

    fn channel(&self, server: Role, address: &str) -> Channel {
        let (dialer, address) = (self.clone(), address.to_owned());
        let connector = tower::service_fn(move |_: Uri| {
            let (dialer, address) = (dialer.clone(), address.clone());
            async move { dialer.dial(server, address).await.map(TokioIo::new) }
        });
        Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
    }

    /// The bytes that a server sends to a client that begins HTTP/2; none if there is no connection.
    async fn greeting(&self, server: Role, address: &str) -> Vec<u8> {
        let mut answer = Vec::new();
        let dialed = self.clone().dial(server, address.to_owned()).await;
        let Ok(mut stream) = dialed else { return answer };
        // With TLS 1.3 a refusal is seen by the first write or read.
        if stream.write_all(PREFACE).await.is_ok() && stream.flush().await.is_ok() {
            let read = stream.read_to_end(&mut answer);
            // A server that lets the client in keeps the connection.
            drop(
                tokio::time::timeout(PATIENCE, read)
                    .await
                    .expect("the server closes the connection"),
            );
        }
        answer
    }
}

/// Messages without content: what matters is who may send them.
#[derive(Clone, Copy)]
struct Empty;

impl Codec for Empty {
    type Encode = ();
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Empty {
    type Item = ();
    type Error = Status;

    fn encode(&mut self, (): (), _: &mut EncodeBuf<'_>) -> Result<(), Status> {
        Ok(())
    }
}

impl Decoder for Empty {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, source: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        source.advance(source.remaining());
        Ok(Some(()))
    }
}

/// Status of a call with an empty message.
async fn call(channel: &Channel, path: &'static str) -> Status {
    let mut grpc = Grpc::new(channel.clone());
    if let Err(error) = grpc.ready().await {
        return Status::unavailable(error.to_string());
    }
    let answer = grpc.unary(Request::new(()), PathAndQuery::from_static(path), Empty).await;
    match answer {
        Ok(_) => Status::ok(""),
        Err(status) => status,
    }
}

/// Links with a certificate in a directory.
fn links(dir: &std::path::Path) -> Links {
    Links::load(&IdentityFiles::of(dir), None).unwrap()
}

/// Links with a certificate that expired a day ago.
fn expired(authority: &Authority, role: Role) -> Links {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let name = format!("expired-{role}");
    let request = CertificateRequest { role, name, hosts: Vec::new(), days: 1 };
    let valid = now - 2 * DAY_S..now - DAY_S;
    links(&issue_between(authority.dir(), &request, &valid).unwrap())
}

/// Links with a new certificate of an authority.
fn issued(authority: &Authority, role: Role) -> Links {
    let name = format!("other-{role}");
    authority.issue(role.as_str(), &name);
    links(&authority.member(&name))
}

/// The port for peers of each meta and datanode.
fn ports(cluster: &Cluster) -> Vec<(Role, String)> {
    let role_of = |name: &str| match name.trim_end_matches(|last: char| last.is_ascii_digit()) {
        "meta" => Some(Role::Meta),
        "datanode" => Some(Role::Datanode),
        _ => None,
    };
    let names = cluster.names();
    let ports = names.iter().filter_map(|name| Some((role_of(name)?, cluster.peer(name))));
    ports.collect()
}

/// Every kind of process that is none of the cluster, by its name. `role`: the role of its certificate, if it has one.
fn strangers(authority: &Authority, other: &Authority, role: Role) -> Vec<(String, Dialer)> {
    let options = TlsOptions { alpn: vec![b"h2".to_vec()], ..TlsOptions::default() };
    let trusting = door_client(authority.bundle().as_ref(), &options).unwrap();
    vec![
        ("a plain one".to_owned(), Dialer::Links(Links::plain())),
        ("one without a certificate".to_owned(), Dialer::Unnamed(trusting)),
        (format!("a foreign {role}"), Dialer::Links(issued(other, role))),
        (format!("an expired {role}"), Dialer::Links(expired(authority, role))),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_can_make_no_call_at_any_port() {
    let mut cluster = Cluster::start_secured(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    client.batch_execute(TABLES).await.unwrap();
    write(&client, "keyed", 0..100).await.unwrap();
    let other_dir = tempfile::tempdir().unwrap();
    let other = Authority::create(other_dir.path().join("other"));
    let mut by_role = Vec::new();
    for role in Role::ALL {
        by_role.push((role, strangers(cluster.authority(), &other, role)));
    }

    // Peers' ports: nothing but an alert comes back, and so no call arrives.
    let mut refused = 0;
    for (server, address) in ports(&cluster) {
        for (name, dialer) in by_role.iter().flat_map(|(_, strangers)| strangers) {
            let greeting = dialer.greeting(server, &address).await;
            assert!(greeting.len() < ALERT_BYTES_MAX, "{server} answers {name}: {greeting:?}");
        }
        for (path, roles) in calls(server) {
            // With the certificate that would do if it were valid.
            let found =
                by_role.iter().find(|(role, _)| roles.first().is_none_or(|may| may == role));
            let (_, strangers) = found.expect("strangers of every role");
            for (name, dialer) in strangers {
                let status = call(&dialer.channel(server, &address), path).await;
                let transport = [Code::Unavailable, Code::Unknown, Code::Internal, Code::Cancelled];
                assert!(transport.contains(&status.code()), "{name} {path} {server}: {status:?}");
                refused += 1;
            }
        }
    }
    assert!(refused > 100, "only {refused} calls were tried");

    // Doors: no TLS certificate is asked for, and none of these services is there.
    for frontend in 0..2 {
        let address = cluster.http(frontend).await;
        for (path, _) in calls(Role::Frontend) {
            for (name, dialer) in &by_role[0].1 {
                let status = call(&dialer.channel(Role::Frontend, &address), path).await;
                assert_ne!(status.code(), Code::Ok, "{name} {path} of frontend {frontend}");
            }
        }
    }
    let door = cluster.door(0);
    let (host, port) = door.split_once(':').unwrap();
    let plain = format!("host={host} port={port} user=partita dbname=public");
    assert!(tokio_postgres::connect(&plain, NoTls).await.is_err(), "without TLS");
    let guess = format!("host=localhost hostaddr={host} port={port} user=partita dbname=public");
    for password in ["", " password=guess"] {
        let trust = Trust::of(cluster.authority().bundle().as_ref());
        let config = format!("{guess}{password} sslmode=require");
        assert!(tokio_postgres::connect(&config, trust).await.is_err(), "with{password}");
    }

    // Refusals do not fill the logs, and the cluster is as it was.
    for name in cluster.names() {
        let lines =
            cluster.logged(&name, "refused a connection") + cluster.logged(&name, "refused more");
        assert!(lines < 60, "{name} logged {lines} refused connections");
    }
    assert_eq!(count(&cluster, &client, "sys.nodes").await, "3");
    assert_eq!(count(&cluster, &client, "keyed").await, "100");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_of_the_cluster_can_make_no_call_of_another_role() {
    let cluster = Cluster::start_secured(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    client.batch_execute(TABLES).await.unwrap();
    write(&client, "keyed", 0..100).await.unwrap();
    let mut refused = 0;
    for role in Role::ALL {
        let dialer = Dialer::Links(issued(cluster.authority(), role));
        for (server, address) in ports(&cluster) {
            let channel = dialer.channel(server, &address);
            for (path, roles) in calls(server) {
                if !roles.contains(&role) {
                    let status = call(&channel, path).await;
                    assert_eq!(status.code(), Code::PermissionDenied, "{role} {path} {status:?}");
                    refused += 1;
                }
            }
            // The health check is for all of them: it was no fault of the connection.
            let status = call(&channel, "/grpc.health.v1.Health/Check").await;
            assert_eq!(status.code(), Code::Ok, "{role} at {address}: {status:?}");
        }
    }
    assert!(refused > 100, "only {refused} calls were tried");
    assert_eq!(count(&cluster, &client, "sys.nodes").await, "3");
    assert_eq!(count(&cluster, &client, "keyed").await, "100");
}
