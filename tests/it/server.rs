//! A server process of its own for each test: its directory, its ports, ways to end it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};

/// How long a server may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server.
pub(crate) struct Server {
    child: Child,
    pub(crate) http: SocketAddr,
    pub(crate) postgres: SocketAddr,
    log: PathBuf,
}

impl Server {
    /// Starts one over a data directory, on free ports.
    pub(crate) fn start(data: &Path) -> Self {
        Self::try_start(data, &[]).unwrap_or_else(|log| panic!("the server did not start:\n{log}"))
    }

    /// Starts one with more options; the log when it does not come up.
    pub(crate) fn try_start(data: &Path, options: &[&str]) -> Result<Self, String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_partita"));
        command.arg("standalone").arg("--data-dir").arg(data);
        command.args(["--http", "127.0.0.1:0", "--postgres", "127.0.0.1:0"]).args(options);
        // Beside the nearest directory that exists: a test may name one that cannot be made.
        let parent = data.ancestors().skip(1).find(|parent| parent.is_dir());
        Self::spawn(command, &parent.expect("some directory exists").join("server.log"))
    }

    /// Runs a command that becomes a server (directly, or through a shell that prepares something).
    pub(crate) fn spawn(mut command: Command, log: &Path) -> Result<Self, String> {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .expect("the binary can be run");
        let stdout = child.stdout.take().expect("stdout is piped");
        let (mut http, mut postgres) = (None, None);
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some(address) = line.trim().strip_prefix("http      ") {
                http = address.split_once("://").and_then(|(_, address)| address.parse().ok());
            } else if line.trim().starts_with("postgres") {
                let words: Vec<_> = line.split_whitespace().collect();
                postgres = format!("{}:{}", words[3], words[5]).parse().ok();
            }
            if let (Some(http), Some(postgres)) = (http, postgres) {
                return Ok(Self { child, http, postgres, log: log.to_owned() });
            }
        }
        child.wait().expect("the child can be waited for");
        Err(std::fs::read_to_string(log).unwrap_or_default())
    }

    /// A connection of the PostgreSQL protocol.
    pub(crate) async fn connect(&self) -> Client {
        self.try_connect("public")
            .await
            .unwrap_or_else(|error| panic!("cannot connect: {error}\n{}", self.log()))
    }

    /// A connection to a database, or why not.
    pub(crate) async fn try_connect(
        &self,
        database: &str,
    ) -> Result<Client, tokio_postgres::Error> {
        let config = format!(
            "host={} port={} user=test dbname={database}",
            self.postgres.ip(),
            self.postgres.port()
        );
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// The end of what the server logged.
    pub(crate) fn log(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// Ends it without warning, as a power cut of the process would.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("the server was running");
        self.child.wait().expect("the child can be waited for");
    }

    /// Asks it to stop and waits until it has; whether it ended well.
    pub(crate) fn stop(mut self) -> bool {
        self.signal("TERM");
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("the child can be waited for") {
                if !status.success() {
                    // For the reader of the assertion that fails.
                    eprintln!("the server ended with {status}:\n{}", self.log());
                }
                return status.success();
            }
            assert!(started.elapsed() < PATIENCE, "the server did not stop:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until it has ended by itself; its exit code. `None` when it goes on.
    pub(crate) fn ended(&mut self, patience: Duration) -> Option<i32> {
        let started = Instant::now();
        while started.elapsed() < patience {
            if let Some(status) = self.child.try_wait().expect("the child can be waited for") {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }

    /// Sends it a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status()
            .expect("kill can be run");
        assert!(status.success(), "the server is gone:\n{}", self.log());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that failed must not leave a server behind; one that ended already is fine.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// One value of a query's only row and column, as text.
pub(crate) async fn one(client: &Client, sql: &str) -> String {
    let rows = client.simple_query(sql).await.unwrap_or_else(|error| {
        panic!("{sql}: {}", error.as_db_error().map_or(error.to_string(), ToString::to_string))
    });
    rows.iter()
        .find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => {
                Some(row.get(0).unwrap_or("NULL").to_owned())
            }
            _ => None,
        })
        .unwrap_or_else(|| panic!("{sql} returned no row"))
}

/// The SQLSTATE and message of a statement that must fail.
pub(crate) async fn failure(client: &Client, sql: &str) -> (String, String) {
    let error = client.batch_execute(sql).await.expect_err(sql);
    let error = error.as_db_error().unwrap_or_else(|| panic!("{sql}: {error}"));
    (error.code().code().to_owned(), error.message().to_owned())
}

/// A response of plain HTTP/1.1: status and body.
pub(crate) async fn http(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &[u8],
) -> (u16, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("the server listens");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.expect("the server reads");
    stream.write_all(body).await.expect("the server reads");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.expect("the server answers");
    let text = String::from_utf8_lossy(&response).into_owned();
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned();
    (status, body)
}
