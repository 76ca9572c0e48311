//! A cluster of server processes on loopback: three metas, three datanodes, two frontends, and ways to
//! break them. Everything ends when it is dropped.
//!
//! Ports are chosen before anything starts, below those that the system gives to outgoing connections:
//! a process that is down gets its port again.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::certs::{Authority, secret_file};
use crate::trust::Trust;

/// How long a test waits for what must come, on machines that do other things besides.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// How often it is looked.
const POLL: Duration = Duration::from_millis(50);
/// The first of the ports that are given out, and how many there are.
const PORT_FIRST: u16 = 20_000;
const PORTS: u16 = 12_000;

/// The superuser's password in a cluster with certificates.
const PASSWORD: &str = "correct horse";
/// File of it, beside the members' directories.
const PASSWORD_FILE: &str = "password";

/// Two cores carry one cluster at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// Waits until no other cluster runs in this process.
pub(super) async fn turn() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().await
}

/// A process of the cluster.
struct Member {
    arguments: Vec<String>,
    /// None: it is down.
    child: Option<Child>,
    /// Environment variables of the next start.
    environment: Vec<(&'static str, PathBuf)>,
}

/// A cluster.
pub(super) struct Cluster {
    dir: TempDir,
    members: BTreeMap<String, Member>,
    /// The PostgreSQL ports of the frontends.
    doors: Vec<u16>,
    metas: String,
    /// Where each member is asked for its health.
    peers: BTreeMap<String, u16>,
    /// Issuer of the members' certificates; none: nothing has TLS.
    authority: Option<Authority>,
    _turn: MutexGuard<'static, ()>,
}

/// The PostgreSQL port of a frontend, for clients that outlive a borrow of the cluster.
#[derive(Clone)]
pub(super) struct Entrance {
    config: String,
    /// File of the authorities that are trusted; none: no TLS.
    bundle: Option<PathBuf>,
}

impl Entrance {
    /// A new connection, which trusts the authorities that the file has now.
    pub(super) async fn connect(&self) -> Result<Client, tokio_postgres::Error> {
        let Some(bundle) = &self.bundle else {
            let (client, connection) = tokio_postgres::connect(&self.config, NoTls).await?;
            tokio::spawn(connection);
            return Ok(client);
        };
        let trust = Trust::of(bundle);
        let (client, connection) = tokio_postgres::connect(&self.config, trust).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}

/// A row of a query, as text; `None` is NULL.
pub(super) type Row = Vec<Option<String>>;

impl Cluster {
    /// Starts one, in which what is lost is made anew after so many seconds.
    pub(super) async fn start(repair_after_s: u64) -> Self {
        Self::start_in(repair_after_s, &["", "", ""]).await
    }

    /// Starts one whose datanodes have these labels, one after another from node 1 on.
    pub(super) async fn start_in(repair_after_s: u64, labels: &[&str]) -> Self {
        Self::start_with(repair_after_s, labels, false).await
    }

    /// Starts one with TLS at every port, a certificate for every member and a password for clients.
    pub(super) async fn start_secured(repair_after_s: u64) -> Self {
        Self::start_with(repair_after_s, &["", "", ""], true).await
    }

    async fn start_with(repair_after_s: u64, labels: &[&str], is_secured: bool) -> Self {
        let turn = turn().await;
        let ports: Vec<u16> = (0..3).map(|_| free_port()).collect();
        let address = |port: &u16| format!("127.0.0.1:{port}");
        let peers: Vec<_> =
            (1..).zip(&ports).map(|(id, port)| format!("{id}={}", address(port))).collect();
        let metas: Vec<_> = ports.iter().map(address).collect();
        let dir = tempfile::tempdir().unwrap();
        let authority = is_secured.then(|| {
            secret_file(&dir.path().join(PASSWORD_FILE), PASSWORD);
            Authority::create(dir.path().join("ca"))
        });
        let mut cluster = Self {
            dir,
            authority,
            members: BTreeMap::new(),
            doors: Vec::new(),
            metas: metas.join(","),
            peers: BTreeMap::new(),
            _turn: turn,
        };
        for (id, port) in (1..).zip(&ports) {
            let name = format!("meta{id}");
            let repair = repair_after_s.to_string();
            let (node, peers, listen) = (format!("{id}"), peers.join(","), address(port));
            let options = ["--node", &node, "--peers", &peers, "--repair-after-s", &repair];
            let listen = ["--listen", &listen];
            cluster.add(&name, "meta", &[&options[..], &listen[..]].concat());
            cluster.peers.insert(name, *port);
        }
        // One after another: the first to be known is node 1.
        for (id, labels) in (1..).zip(labels) {
            cluster.add_datanode_in(id, labels).await;
        }
        for _ in 0..2 {
            cluster.add_frontend(&cluster.metas.clone());
        }
        cluster.until_live(labels.len()).await;
        cluster
    }

    /// Adds a frontend that finds the metas at these addresses; its number for [`Cluster::connect`].
    pub(super) fn add_frontend(&mut self, metas: &str) -> usize {
        let number = self.doors.len();
        let (postgres, spill) = (free_port(), self.dir.path().join(format!("spill{number}")));
        let (door, spill) = (format!("127.0.0.1:{postgres}"), spill.display().to_string());
        let options = ["--http", "127.0.0.1:0", "--postgres", &door, "--meta", metas];
        let options = [&options[..], &["--spill-dir", &spill]].concat();
        self.add(&format!("frontend{}", number + 1), "frontend", &options);
        self.doors.push(postgres);
        number
    }

    /// Where the metas are.
    pub(super) fn metas(&self) -> &str {
        &self.metas
    }

    /// Adds a datanode, which is to get this number, and waits until it has it.
    pub(super) async fn add_datanode(&mut self, id: u64) {
        self.add_datanode_in(id, "").await;
    }

    async fn add_datanode_in(&mut self, id: u64, labels: &str) {
        let (name, port) = (format!("datanode{id}"), free_port());
        let (listen, metas) = (format!("127.0.0.1:{port}"), self.metas.clone());
        let options = ["--listen", &listen, "--meta", &metas];
        let small = ["--memtable-mb", "8", "--log-mb", "64", "--label", labels];
        self.add(&name, "datanode", &[&options[..], &small[..]].concat());
        self.peers.insert(name.clone(), port);
        self.until_ready(&name).await;
    }

    fn add(&mut self, name: &str, role: &str, options: &[&str]) {
        let mut arguments = vec![role.to_owned()];
        if role != "frontend" {
            arguments.extend(["--data-dir".to_owned(), self.data(name).display().to_string()]);
        }
        arguments.extend(options.iter().map(|option| (*option).to_owned()));
        if let Some(authority) = &self.authority {
            arguments.extend(["--certs".to_owned(), authority.issue(role, name)]);
            if role == "frontend" {
                let password = self.dir.path().join(PASSWORD_FILE).display().to_string();
                arguments
                    .extend(["--require-tls".to_owned(), "--initial-password-file".to_owned()]);
                arguments.push(password);
            }
        }
        self.members
            .insert(name.to_owned(), Member { arguments, child: None, environment: Vec::new() });
        self.start_again(name);
    }

    /// Where a member has its data.
    pub(super) fn data(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, name: &str, kind: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.{kind}"))
    }

    /// Starts a member that is down, and does not wait for it.
    pub(super) fn start_again(&mut self, name: &str) {
        let open = |kind: &str| {
            File::options().create(true).append(true).open(self.file(name, kind)).unwrap()
        };
        let (out, log) = (open("out"), open("log"));
        let member = self.members.get_mut(name).unwrap();
        assert!(member.child.is_none(), "{name} runs");
        let child = Command::new(env!("CARGO_BIN_EXE_partita"))
            .args(&member.arguments)
            .envs(member.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(log)
            .spawn()
            .expect("the binary can be run");
        member.child = Some(child);
    }

    /// Sets environment variables of a member, from its next start on.
    pub(super) fn set_environment(&mut self, name: &str, variables: &[(&'static str, PathBuf)]) {
        self.members.get_mut(name).unwrap().environment = variables.to_vec();
    }

    /// Ends a member without warning.
    pub(super) fn kill(&mut self, name: &str) {
        let mut child = self.members.get_mut(name).unwrap().child.take().expect(name);
        child.kill().expect("it was running");
        child.wait().expect("a child can be waited for");
        // The next start says again that it is ready.
        std::fs::remove_file(self.file(name, "out")).ok();
    }

    /// Waits until a member has ended by itself; whether it ended well, and what it logged last.
    pub(super) async fn until_ended(&mut self, name: &str) -> (bool, String) {
        let (status, log) = self.until_exit(name).await;
        (status.success(), log)
    }

    /// Waits until a member has ended by itself; how it ended, and what it logged last.
    pub(super) async fn until_exit(&mut self, name: &str) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let child = self.members.get_mut(name).unwrap().child.as_mut().expect(name);
            if let Some(status) = child.try_wait().expect("a child can be waited for") {
                self.members.get_mut(name).unwrap().child = None;
                std::fs::remove_file(self.file(name, "out")).ok();
                return (status, self.log(name));
            }
            assert!(Instant::now() < deadline, "{name} goes on:\n{}", self.log(name));
            tokio::time::sleep(POLL).await;
        }
    }

    /// Makes a member stand still, or go on.
    pub(super) fn signal(&self, name: &str, signal: &str) {
        let id = self.members[name].child.as_ref().expect(name).id().to_string();
        let done = Command::new("kill").args([format!("-{signal}"), id]).status();
        assert!(done.expect("kill can be run").success(), "{name} is gone: {}", self.log(name));
    }

    /// Removes the data of a member that is down.
    pub(super) fn wipe(&self, name: &str) {
        assert!(self.members[name].child.is_none(), "{name} runs");
        std::fs::remove_dir_all(self.data(name)).unwrap();
    }

    /// All members, by name.
    pub(super) fn names(&self) -> Vec<String> {
        self.members.keys().cloned().collect()
    }

    /// The port for peers of a meta or a datanode.
    pub(super) fn peer(&self, name: &str) -> String {
        format!("127.0.0.1:{}", self.peers[name])
    }

    /// The PostgreSQL address of a frontend, from 0 on.
    pub(super) fn door(&self, frontend: usize) -> String {
        format!("127.0.0.1:{}", self.doors[frontend])
    }

    /// The HTTP address of a frontend, from 0 on, once it is ready.
    pub(super) async fn http(&mut self, frontend: usize) -> String {
        let name = format!("frontend{}", frontend + 1);
        self.until_ready(&name).await;
        // All addresses are written at once.
        let text = std::fs::read_to_string(self.file(&name, "out")).unwrap_or_default();
        let url = text.lines().find_map(|line| line.trim().strip_prefix("http "));
        let address = url.and_then(|url| url.trim().split_once("://"));
        address.unwrap_or_else(|| panic!("{name} announced {text:?}")).1.to_owned()
    }

    /// The authority of a cluster with certificates.
    pub(super) fn authority(&self) -> &Authority {
        self.authority.as_ref().expect("the cluster has certificates")
    }

    /// Certificates and keys of a member, which it reads again when they change.
    pub(super) fn certs(&self, name: &str) -> PathBuf {
        self.authority().member(name)
    }

    /// How often a text is in the log of a member.
    pub(super) fn logged(&self, name: &str, text: &str) -> usize {
        let log = std::fs::read_to_string(self.file(name, "log")).unwrap_or_default();
        log.matches(text).count()
    }

    /// The end of what a member logged.
    fn log(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.file(name, "log")).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        format!("{name}:\n{}\n", lines[lines.len().saturating_sub(25)..].join("\n"))
    }

    /// The ends of all logs.
    pub(super) fn logs(&self) -> String {
        self.names().iter().map(|name| self.log(name)).collect()
    }

    /// The member of meta's group that leads, once one does.
    pub(super) async fn leading_meta(&self) -> String {
        self.until("a meta leads", async || self.find_leading_meta().is_some()).await;
        self.find_leading_meta().expect("it led just now")
    }

    /// By what they logged.
    fn find_leading_meta(&self) -> Option<String> {
        let count = |name: &str, what: &str| self.logged(name, what);
        let mut metas = self.names().into_iter().filter(|name| name.starts_with("meta"));
        metas.find(|name| {
            let began = count(name, "this process leads meta");
            let ended = count(name, "another process leads meta now")
                + count(name, "confirms that this process leads it");
            let running = self.members[name].child.is_some();
            running && began > ended
        })
    }

    /// Runs one of the binary's tools; whether it ended well, and what it printed.
    pub(super) fn tool(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_partita"));
        let done = command.args(arguments).stdin(Stdio::null()).output().expect("it can be run");
        let text = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// Waits until a member has said that it is ready.
    pub(super) async fn until_ready(&mut self, name: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = std::fs::read_to_string(self.file(name, "out")).unwrap_or_default();
            if said.contains("is ready") {
                return;
            }
            let child = self.members.get_mut(name).unwrap().child.as_mut().expect(name);
            let ended = child.try_wait().expect("a child can be waited for");
            assert!(ended.is_none(), "{name} ended: {ended:?}\n{}", self.log(name));
            assert!(Instant::now() < deadline, "{name} does not start:\n{}", self.logs());
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until as many datanodes are live.
    pub(super) async fn until_live(&self, count: usize) {
        let client = self.connect(0).await;
        let live = async || rows(&client, "SELECT node FROM sys.nodes WHERE live").await;
        self.until("datanodes are live", async || {
            live().await.is_ok_and(|live| live.len() == count)
        })
        .await;
    }

    /// The PostgreSQL port of a frontend, from 0 on.
    pub(super) fn entrance(&self, frontend: usize) -> Entrance {
        let (port, rest) = (self.doors[frontend], "dbname=public connect_timeout=5");
        let Some(authority) = &self.authority else {
            let config = format!("host=127.0.0.1 port={port} user=test {rest}");
            return Entrance { config, bundle: None };
        };
        let user = format!("user=partita password='{PASSWORD}' sslmode=require");
        let config = format!("host=localhost hostaddr=127.0.0.1 port={port} {user} {rest}");
        Entrance { config, bundle: Some(PathBuf::from(authority.bundle())) }
    }

    /// A connection to a frontend, from 0 on, once it can be had.
    pub(super) async fn connect(&self, frontend: usize) -> Client {
        let entrance = self.entrance(frontend);
        let deadline = Instant::now() + PATIENCE;
        loop {
            match entrance.connect().await {
                Ok(client) => return client,
                Err(error) => {
                    assert!(Instant::now() < deadline, "{error}\n{}", self.logs());
                    tokio::time::sleep(POLL).await;
                }
            }
        }
    }

    /// Waits until something holds.
    pub(super) async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds().await {
            assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}\n{}", self.logs());
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until a statement is carried out; how long that took.
    pub(super) async fn until_done(&self, client: &Client, sql: &str) -> Duration {
        let started = Instant::now();
        loop {
            match client.batch_execute(sql).await {
                Ok(()) => return started.elapsed(),
                Err(error) => {
                    let text = error.as_db_error().map_or(error.to_string(), ToString::to_string);
                    let late = started.elapsed() > PATIENCE;
                    assert!(!late && !client.is_closed(), "{sql}: {text}\n{}", self.logs());
                    tokio::time::sleep(POLL).await;
                }
            }
        }
    }

    /// Waits until the replicas of all partitions are in order: so many each, one of them leads, the
    /// others follow, and all have applied the same.
    pub(super) async fn until_in_order(&self, client: &Client, replicas: usize) {
        let sql = "SELECT partition, role, applied_index, failure FROM sys.replicas";
        let mut seen = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(found) = rows(client, sql).await {
                if in_order(&found, replicas) {
                    return;
                }
                seen = found;
            }
            assert!(Instant::now() < deadline, "replicas: {seen:?}\n{}", self.logs());
            tokio::time::sleep(POLL).await;
        }
    }

    /// The nodes that have replicas of a table, as its nodes say, those that only learn left out; with
    /// the partition.
    pub(super) async fn replicas(&self, client: &Client, table: &str) -> Vec<(u64, u64)> {
        let sql = format!(
            "SELECT partition, node FROM sys.replicas WHERE \"table\" = '{table}' \
             AND role IN ('leader', 'follower') ORDER BY partition, node"
        );
        let found = self.query(client, &sql).await;
        found.iter().map(|row| (number(row, 0), number(row, 1))).collect()
    }

    /// What a query returns that may have to be tried again, on machines on which leaders are lost now and then.
    pub(super) async fn query(&self, client: &Client, sql: &str) -> Vec<Row> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match rows(client, sql).await {
                Ok(found) => return found,
                Err(error) => {
                    let text = error.as_db_error().map_or(error.to_string(), ToString::to_string);
                    let late = Instant::now() > deadline;
                    assert!(!late && !client.is_closed(), "{sql}: {text}\n{}", self.logs());
                }
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until one of the binary's tools ends well; what it printed.
    pub(super) async fn until_well(&self, arguments: &[&str]) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (well, said) = self.tool(arguments);
            if well {
                return said;
            }
            assert!(Instant::now() < deadline, "{arguments:?}: {said}\n{}", self.logs());
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.members.values_mut().filter_map(|member| member.child.as_mut()) {
            // A test that failed must leave nothing behind; what ended already is fine.
            drop(child.kill());
        }
        for child in self.members.values_mut().filter_map(|member| member.child.as_mut()) {
            drop(child.wait());
        }
    }
}

fn in_order(found: &[Row], replicas: usize) -> bool {
    let mut partitions: BTreeMap<u64, Vec<&Row>> = BTreeMap::new();
    for row in found {
        partitions.entry(number(row, 0)).or_default().push(row);
    }
    let good = |rows: &Vec<&Row>| {
        let role = |name: &str| rows.iter().filter(|row| row[1].as_deref() == Some(name)).count();
        rows.len() == replicas
            && role("leader") == 1
            && role("follower") == replicas - 1
            && rows.iter().all(|row| row[2] == rows[0][2] && row[3].is_none())
    };
    !partitions.is_empty() && partitions.values().all(good)
}

/// A column of a row as a number.
pub(super) fn number(row: &Row, column: usize) -> u64 {
    row[column].as_deref().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{row:?}"))
}

/// What a query returns.
pub(super) async fn rows(client: &Client, sql: &str) -> Result<Vec<Row>, tokio_postgres::Error> {
    let messages = client.simple_query(sql).await?;
    let row = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect())
        }
        _ => None,
    };
    Ok(messages.iter().filter_map(row).collect())
}

/// A port that nobody listens on.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Processes of tests that run at the same time begin at different ports.
    let spread = u16::try_from(std::process::id() % 1000).unwrap_or(0) * 12;
    for _ in 0..PORTS {
        let port = PORT_FIRST + NEXT.fetch_add(1, Ordering::SeqCst).wrapping_add(spread) % PORTS;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}
