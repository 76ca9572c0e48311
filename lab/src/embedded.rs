//! A cluster for the duration of a run: one meta, three datanodes and a frontend as separate processes on loopback,
//! with their data in a temporary folder. Or a server of one process, in the same way.
//!
//! Invariants: when it is dropped, all processes end and the folder is removed. If this process is killed, they end
//! as well, because the standard input of each is a pipe from here; only the folder stays. If a process ends by
//! itself, the error contains the end of its log.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::door::postgres::{self, rows};

/// Number of datanodes.
pub(crate) const NODES: usize = 3;
/// Maximum time for a process to become ready, and for the cluster to know all its nodes.
const PATIENCE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(50);
/// Number of log lines in an error.
const LOG_LINES: usize = 15;
/// Tells a process to end when its standard input closes (`src/orphan.rs`). An environment variable and not an
/// option, so that binaries that do not know it can be started, too.
const ENDS_WITH_STDIN: &str = "PARTITA_ENDS_WITH_STDIN";

struct Process {
    name: String,
    child: Child,
}

/// A running cluster of processes on this machine.
pub(crate) struct Embedded {
    dir: PathBuf,
    binary: PathBuf,
    processes: Vec<Process>,
    /// PostgreSQL address of the frontend.
    pub(crate) postgres: String,
    /// HTTP address of the frontend.
    pub(crate) http: String,
}

impl Embedded {
    /// Starts a cluster of this binary, with its data below a folder, and a maximum rate of rows per second for
    /// each partition.
    ///
    /// # Errors
    /// If a process does not start.
    pub(crate) async fn start(
        binary: &Path,
        folder: &Path,
        partition_rate: Option<f64>,
    ) -> anyhow::Result<Self> {
        let mut cluster =
            Self::empty(binary, folder.join(format!("partita-lab-{}", std::process::id())))?;
        // Meta's members must know their addresses before any of them runs.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let meta = format!("127.0.0.1:{port}");
        let peers = format!("1={meta}");
        cluster.run("meta", &["meta", "--node", "1", "--peers", &peers, "--listen", &meta])?;
        cluster.ready("meta").await?;
        let rate = partition_rate.map(|rate| rate.to_string());
        for node in 1..=NODES {
            let mut options =
                vec!["datanode", "--meta", &meta, "--listen", "127.0.0.1:0", "--memtable-mb", "64"];
            if let Some(rate) = &rate {
                options.extend(["--partition-rate", rate]);
            }
            let name = format!("datanode{node}");
            cluster.run(&name, &options)?;
            cluster.ready(&name).await?;
        }
        let any_port = "127.0.0.1:0";
        let spill = cluster.dir.join("spill").display().to_string();
        let options =
            ["--meta", &meta, "--http", any_port, "--postgres", any_port, "--spill-dir", &spill];
        cluster.run("frontend", &[&["frontend"][..], &options[..]].concat())?;
        let output = cluster.ready("frontend").await?;
        (cluster.postgres, cluster.http) = doors(&output)
            .with_context(|| format!("unexpected output of the frontend: {output}"))?;
        cluster.until_live().await?;
        Ok(cluster)
    }

    /// Starts a server of one process, with its data below a folder; `name` tells it from others of this process.
    ///
    /// # Errors
    /// If it does not start.
    pub(crate) async fn standalone(
        binary: &Path,
        folder: &Path,
        name: &str,
    ) -> anyhow::Result<Self> {
        let dir = folder.join(format!("partita-lab-{}-{name}", std::process::id()));
        let mut server = Self::empty(binary, dir)?;
        let any_port = "127.0.0.1:0";
        server.run("standalone", &["standalone", "--http", any_port, "--postgres", any_port])?;
        let output = server.ready("standalone").await?;
        (server.postgres, server.http) =
            doors(&output).with_context(|| format!("unexpected output of the server: {output}"))?;
        Ok(server)
    }

    /// No processes yet, over a new folder.
    fn empty(binary: &Path, dir: PathBuf) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self {
            dir,
            binary: binary.to_owned(),
            processes: Vec::new(),
            postgres: String::new(),
            http: String::new(),
        })
    }

    fn run(&mut self, name: &str, options: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(&self.binary);
        command.args(options);
        if options[0] != "frontend" {
            command.arg("--data-dir").arg(self.dir.join(name));
        }
        let (stdout, log) =
            (File::create(self.file(name, "out"))?, File::create(self.file(name, "log"))?);
        // The pipe's other end closes when this process ends.
        command.env(ENDS_WITH_STDIN, "1").stdin(Stdio::piped());
        let child = command.stdout(stdout).stderr(log).spawn();
        let child = child.with_context(|| format!("cannot run {}", self.binary.display()))?;
        self.processes.push(Process { name: name.to_owned(), child });
        Ok(())
    }

    fn file(&self, name: &str, kind: &str) -> PathBuf {
        self.dir.join(format!("{name}.{kind}"))
    }

    /// Waits until a process is ready; returns its standard output.
    async fn ready(&mut self, name: &str) -> anyhow::Result<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let output = std::fs::read_to_string(self.file(name, "out")).unwrap_or_default();
            if output.contains("is ready") && output.ends_with('\n') {
                return Ok(output);
            }
            self.check()?;
            if Instant::now() > deadline {
                bail!("{name} did not start:\n{}", self.log(name));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Process ids of the datanodes.
    pub(crate) fn datanodes(&self) -> Vec<u32> {
        let datanodes =
            self.processes.iter().filter(|process| process.name.starts_with("datanode"));
        datanodes.map(|process| process.child.id()).collect()
    }

    /// Process ids of all processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(|process| process.child.id()).collect()
    }

    /// Checks that all processes run.
    ///
    /// # Errors
    /// If one has ended.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        let mut ended = None;
        for process in &mut self.processes {
            if let Some(status) = process.child.try_wait()? {
                ended = Some((process.name.clone(), status));
            }
        }
        match ended {
            Some((name, status)) => bail!("{name} ended ({status}):\n{}", self.log(&name)),
            None => Ok(()),
        }
    }

    fn log(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.file(name, "log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    async fn until_live(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let client = postgres::connect(&postgres::connection(&self.postgres)?, "public").await?;
        loop {
            let live = rows(&client, "SELECT node FROM sys.nodes WHERE live").await;
            if live.as_ref().is_ok_and(|live| live.len() == NODES) {
                return Ok(());
            }
            self.check()?;
            if Instant::now() > deadline {
                bail!("not all datanodes became live: {live:?}");
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Parses the PostgreSQL and the HTTP address from a frontend's output.
fn doors(output: &str) -> Option<(String, String)> {
    let line = |word: &str| output.lines().map(str::trim).find(|line| line.starts_with(word));
    let words: Vec<&str> = line("postgres")?.split_whitespace().collect();
    let (host, port) = (words.get(3)?, words.get(5)?);
    let http = line("http ")?.split("http://").nth(1)?;
    Some((format!("{host}:{port}"), http.to_owned()))
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // No data are needed any more, so no memtable has to be flushed.
        for process in &mut self.processes {
            drop(process.child.kill());
        }
        for process in &mut self.processes {
            drop(process.child.wait());
        }
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frontend_says_where_its_doors_are() {
        let output = "partita 0.1.0 is ready\n  postgres  psql -h 127.0.0.1 -p 4003 -U partita public\n  \
                    load      http://127.0.0.1:4000/heatmap\n  http      http://127.0.0.1:4000\n";
        let (postgres, http) = doors(output).unwrap();
        assert_eq!((postgres.as_str(), http.as_str()), ("127.0.0.1:4003", "127.0.0.1:4000"));
        assert_eq!(doors("partita is ready"), None);
    }
}
