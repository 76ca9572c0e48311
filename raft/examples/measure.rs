//! Measures replication: three nodes in one process, over gRPC on loopback and real files.
//!
//! ```text
//! cargo run --release -p partita-raft --example measure -- idle 500
//! cargo run --release -p partita-raft --example measure -- write 1 256 10
//! ```
//!
//! `idle GROUPS` measures the cost of idle groups of three. `write GROUPS CLIENTS SECONDS` writes rows of 256 bytes,
//! each client one at a time, spread over the groups. All three nodes share the machine.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a tool that prints, and fails loudly"
)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use partita_raft::transport::grpc::{Grpc, Service};
use partita_raft::{
    Committed, Group, GroupId, Host, HostOptions, Machine, MachineError, Mark, NodeId, ReplicaId,
    Start,
};
use partita_tls::Links;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;

const NODES: u64 = 3;
const ROW_BYTES: usize = 256;
/// Time in which groups of three elect a leader and, when idle, go to sleep.
const SETTLE: Duration = Duration::from_secs(12);

/// A machine without state.
struct Nothing;

#[async_trait]
impl Machine for Nothing {
    fn durable_mark(&self) -> Option<Mark> {
        None
    }

    async fn apply(&self, entries: Vec<Committed>) -> Result<Vec<Bytes>, MachineError> {
        let commands = entries.iter().filter(|entry| entry.payload.is_some());
        Ok(commands.map(|_| Bytes::new()).collect())
    }
}

/// Seconds of CPU that this process has used.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // utime and stime, in hundredths: the 14th and 15th field, of which two come before the bracket.
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

fn resident_mib() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    (statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096) >> 20
}

async fn start_nodes(dir: &std::path::Path) -> Vec<Arc<Host>> {
    let mut listeners = Vec::new();
    let mut addresses: BTreeMap<NodeId, SocketAddr> = BTreeMap::new();
    for id in 1..=NODES {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        addresses.insert(NodeId(id), listener.local_addr().unwrap());
        listeners.push(listener);
    }
    let addresses = Arc::new(addresses);
    let mut hosts = Vec::new();
    for (id, listener) in (1..).zip(listeners) {
        let book = Arc::clone(&addresses);
        let grpc = Grpc::new(
            Links::plain(),
            Arc::new(move |node| book.get(&node).map(ToString::to_string)),
        );
        let options = HostOptions {
            log_budget_bytes: 16 << 30,
            ..HostOptions::new(dir.join(id.to_string()), NodeId(id))
        };
        let host = Host::open_linked(options, grpc).await.unwrap();
        let server = tonic::transport::Server::builder()
            .tcp_nodelay(true)
            .add_service(Service::server(Arc::clone(&host)));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        hosts.push(host);
    }
    hosts
}

async fn start_groups(hosts: &[Arc<Host>], groups: u64) {
    let started = Instant::now();
    for group in 1..=groups {
        let replica = |node: NodeId| ReplicaId(group * 10 + (node.0 + group) % NODES);
        let members: BTreeMap<_, _> =
            hosts.iter().map(|host| (replica(host.node()), host.node())).collect();
        for host in hosts {
            let start = Start::Create { members: members.clone() };
            host.start_group(GroupId(group), replica(host.node()), Arc::new(Nothing), start)
                .await
                .unwrap();
        }
    }
    println!("{groups} groups of {NODES} created in {:.1} s", started.elapsed().as_secs_f64());
}

async fn leader(hosts: &[Arc<Host>], group: GroupId) -> Arc<Group> {
    loop {
        for host in hosts {
            let group = host.group(group).unwrap();
            if group.status().is_leader {
                return group;
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn idle(hosts: &[Arc<Host>], groups: u64) {
    for group in 1..=groups {
        leader(hosts, GroupId(group)).await;
    }
    let span = Duration::from_secs(10);
    for phase in ["a moment after their election", "later"] {
        let start_seconds = cpu_seconds();
        tokio::time::sleep(span).await;
        let used = (cpu_seconds() - start_seconds) / span.as_secs_f64() * 100.0;
        println!("{phase}: {used:.1} % of a core for all nodes, {} MiB", resident_mib());
        tokio::time::sleep(SETTLE).await;
    }
}

async fn write(hosts: &[Arc<Host>], groups: u64, clients: u64, span: Duration) {
    // Wait until every group has a leader, and the clocks have settled.
    let mut leaders = Vec::new();
    for group in 1..=groups {
        leaders.push(leader(hosts, GroupId(group)).await);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Each client writes one row after the other; the groups share the clients evenly.
    let (start_seconds, started) = (cpu_seconds(), Instant::now());
    let tasks: Vec<_> = (0..clients)
        .map(|client| {
            let group = Arc::clone(&leaders[usize::try_from(client % groups).unwrap()]);
            tokio::spawn(async move {
                let mut took = Vec::new();
                while started.elapsed() < span {
                    let request_start = Instant::now();
                    group.propose(Bytes::from(vec![7; ROW_BYTES])).await.unwrap();
                    took.push(request_start.elapsed());
                }
                took
            })
        })
        .collect();
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await.unwrap());
    }
    // Print rate, latencies and CPU.
    took.sort_unstable();
    let percentile_ms = |share: usize| took[(took.len() - 1) * share / 100].as_secs_f64() * 1000.0;
    println!(
        "{groups} groups, {clients} clients: {:.0} rows/s, p50 {:.2} ms, p99 {:.2} ms, {:.2} cores",
        took.len() as f64 / started.elapsed().as_secs_f64(),
        percentile_ms(50),
        percentile_ms(99),
        (cpu_seconds() - start_seconds) / started.elapsed().as_secs_f64()
    );
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |position: usize| arguments.get(position).and_then(|number| number.parse::<u64>().ok());
    let dir = tempfile::tempdir().unwrap();
    let hosts = start_nodes(dir.path()).await;
    match (arguments.first().map(String::as_str), number(1), number(2), number(3)) {
        (Some("idle"), Some(groups), ..) => {
            start_groups(&hosts, groups).await;
            idle(&hosts, groups).await;
        }
        (Some("write"), Some(groups), Some(clients), Some(seconds)) => {
            start_groups(&hosts, groups).await;
            write(&hosts, groups, clients, Duration::from_secs(seconds)).await;
        }
        _ => println!("idle GROUPS | write GROUPS CLIENTS SECONDS"),
    }
    for host in hosts {
        host.shutdown().await.unwrap();
    }
}
