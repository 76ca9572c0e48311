//! The authority and all certificates of a running cluster are replaced, step by step, while clients write and read over
//! TLS: every statement succeeds, and new connections present the new certificates.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use partita_tls::{Identity, IdentityFiles, Role, TlsOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::harness::{Cluster, Entrance};
use super::{NEVER_LOST, TABLES, count};
use crate::server::one;

/// What a process logs for each set of files that it has loaded again.
const LOADED: &str = "loaded changed certificates";
/// Statements of a connection, so that new ones are opened all the time.
const STATEMENTS_OF_CONNECTION: u64 = 10;
/// Maximum statements of a task.
const STATEMENTS_MAX: u64 = 20_000;
const PAUSE: Duration = Duration::from_millis(10);
/// Request for TLS at a PostgreSQL port.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// Steps of a rotation: how often a meta or a datanode has loaded files after it, and a frontend, which has them for its
/// links and two doors. The doors do not need the authorities.
const STEPS: [(usize, usize); 3] = [(1, 1), (2, 4), (3, 5)];

/// Statements of several tasks, none of which may fail.
#[derive(Default)]
struct Statements {
    /// Rows that were acknowledged.
    rows: AtomicU64,
    reads: AtomicU64,
    is_over: AtomicBool,
    failures: Mutex<Vec<String>>,
}

impl Statements {
    /// One writer and one reader at each entrance.
    fn begin(self: &Arc<Self>, entrances: &[Entrance]) -> Vec<JoinHandle<()>> {
        let mut tasks = Vec::new();
        for (number, entrance) in (0..).zip(entrances) {
            tasks.push(tokio::spawn(Arc::clone(self).write(entrance.clone(), number)));
            tasks.push(tokio::spawn(Arc::clone(self).read(entrance.clone())));
        }
        tasks
    }

    fn fail(&self, what: &str, error: &tokio_postgres::Error) {
        let text = error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string);
        self.failures.lock().unwrap().push(format!("{what}: {text}"));
    }

    /// Rows of numbers that no other task has.
    async fn write(self: Arc<Self>, entrance: Entrance, task: u64) {
        let mut client = None;
        for number in 0..STATEMENTS_MAX {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            if number % STATEMENTS_OF_CONNECTION == 0 {
                client = match entrance.connect().await {
                    Ok(client) => Some(client),
                    Err(error) => return self.fail("a writer's connection", &error),
                };
            }
            let Some(client) = &client else { return };
            let id = task * STATEMENTS_MAX + number;
            let sql = format!("INSERT INTO keyed VALUES ({id}, {id})");
            if let Err(error) = client.batch_execute(&sql).await {
                return self.fail(&sql, &error);
            }
            self.rows.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// All rows are counted; those that were acknowledged before are there.
    async fn read(self: Arc<Self>, entrance: Entrance) {
        let mut client = None;
        for number in 0..STATEMENTS_MAX {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            if number % STATEMENTS_OF_CONNECTION == 0 {
                client = match entrance.connect().await {
                    Ok(client) => Some(client),
                    Err(error) => return self.fail("a reader's connection", &error),
                };
            }
            let Some(client) = &client else { return };
            let least = self.rows.load(Ordering::SeqCst);
            let found = match client.query_one("SELECT count(*) FROM keyed", &[]).await {
                Ok(row) => u64::try_from(row.get::<_, i64>(0)).unwrap(),
                Err(error) => return self.fail("a reader's query", &error),
            };
            if found < least {
                let text = format!("{found} rows were read after {least} were acknowledged");
                return self.failures.lock().unwrap().push(text);
            }
            self.reads.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn check(&self, cluster: &Cluster, step: usize) {
        let failures = self.failures.lock().unwrap();
        assert!(failures.is_empty(), "step {step}: {:#?}\n{}", *failures, cluster.logs());
    }

    /// Waits until the tasks have gone on for a while.
    async fn until_more(&self, cluster: &Cluster, step: usize) {
        let figures = || [&self.rows, &self.reads].map(|figure| figure.load(Ordering::SeqCst));
        let goals = figures().map(|figure| figure + 4 * STATEMENTS_OF_CONNECTION);
        cluster
            .until("statements go on", async || {
                self.check(cluster, step);
                figures().iter().zip(goals).all(|(figure, goal)| *figure >= goal)
            })
            .await;
    }
}

/// Certificate that a port presents to a new connection of the operator `alice`, in DER.
async fn presented(cluster: &Cluster, server: Role, address: &str, is_postgres: bool) -> Vec<u8> {
    let identity = Identity::load(&cluster.certs("alice")).unwrap();
    let client = identity.client_config(server, &TlsOptions::default()).unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    if is_postgres {
        stream.write_all(&SSL_REQUEST).await.unwrap();
        let mut answer = [0];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"S");
    }
    let stream = client.connect(stream).await.unwrap();
    let certificates = stream.get_ref().1.peer_certificates().expect("a server has a certificate");
    certificates[0].to_vec()
}

/// Certificate in the files of a member, in DER.
fn issued(dir: &Path) -> Vec<u8> {
    Identity::load(dir).unwrap().certificate().expect("a file has a certificate").to_vec()
}

/// Every port with TLS: its member, the role of the member, the address, and whether it speaks PostgreSQL.
async fn ports(cluster: &mut Cluster) -> Vec<(String, Role, String, bool)> {
    let mut ports = Vec::new();
    for (kind, role) in [("meta", Role::Meta), ("datanode", Role::Datanode)] {
        for number in 1..=3 {
            let name = format!("{kind}{number}");
            let address = cluster.peer(&name);
            ports.push((name, role, address, false));
        }
    }
    for frontend in 0..2 {
        let name = format!("frontend{}", frontend + 1);
        let http = cluster.http(frontend).await;
        ports.push((name.clone(), Role::Frontend, http, false));
        ports.push((name, Role::Frontend, cluster.door(frontend), true));
    }
    ports
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_succeeds_while_all_certificates_are_replaced() {
    let mut cluster = Cluster::start_secured(NEVER_LOST).await;
    let client = cluster.connect(0).await;
    client.batch_execute(TABLES).await.unwrap();
    cluster.until_in_order(&client, 3).await;
    cluster.authority().issue("admin", "alice");
    let former_dir = tempfile::tempdir().unwrap();
    for file in ["cert.pem", "key.pem"] {
        std::fs::copy(cluster.certs("alice").join(file), former_dir.path().join(file)).unwrap();
    }
    let ports = ports(&mut cluster).await;
    let mut before = Vec::new();
    for (name, role, address, is_postgres) in &ports {
        let certificate = presented(&cluster, *role, address, *is_postgres).await;
        assert_eq!(certificate, issued(&cluster.certs(name)), "{name} before the rotation");
        before.push(certificate);
    }

    let statements = Arc::new(Statements::default());
    let tasks = statements.begin(&[cluster.entrance(0), cluster.entrance(1)]);
    statements.until_more(&cluster, 0).await;
    for (step, (of_peer, of_frontend)) in (1..).zip(STEPS) {
        cluster.authority().run(&["rotate"]);
        let names = cluster.names();
        cluster
            .until("all processes have loaded the files", async || {
                statements.check(&cluster, step);
                names.iter().all(|name| {
                    let times = if name.starts_with("frontend") { of_frontend } else { of_peer };
                    cluster.logged(name, LOADED) >= times
                })
            })
            .await;
        statements.until_more(&cluster, step).await;
    }
    for ((name, role, address, is_postgres), former) in ports.iter().zip(&before) {
        let certificate = presented(&cluster, *role, address, *is_postgres).await;
        assert_eq!(certificate, issued(&cluster.certs(name)), "{name} after the rotation");
        assert_ne!(certificate, *former, "{name} has its former certificate");
    }
    statements.is_over.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    statements.check(&cluster, STEPS.len());
    let rows = statements.rows.load(Ordering::SeqCst).to_string();
    // The connection of before the rotation still serves, and so do links between processes that are opened now.
    assert_eq!(one(&client, "SELECT count(*) FROM keyed").await, rows);
    let metas = cluster.metas().to_owned();
    let added = cluster.add_frontend(&metas);
    let client = cluster.connect(added).await;
    assert_eq!(count(&cluster, &client, "keyed").await, rows);
    // A certificate of the former authority is refused, also when its holder trusts the new one.
    let former = IdentityFiles {
        authorities: cluster.certs("alice").join("ca.pem"),
        ..IdentityFiles::of(former_dir.path())
    };
    let former = Identity::read(&former).unwrap();
    let former = former.client_config(Role::Meta, &TlsOptions::default()).unwrap();
    let stream = TcpStream::connect(cluster.peer("meta1")).await.unwrap();
    // With TLS 1.3 the client's handshake ends before it is refused.
    let mut stream = former.connect(stream).await.unwrap();
    let mut bytes = Vec::new();
    assert!(stream.read_to_end(&mut bytes).await.is_err(), "the former authority is trusted");
}
