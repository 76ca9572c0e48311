//! A cluster for the length of a run: one meta, three datanodes and a frontend as processes of their own, on loopback,
//! their data in a folder that goes with them.
//!
//! Invariants: everything ends, and the folder is removed, when it is dropped; without that, as when this process is killed
//! outright, the others end all the same, because each has a pipe from here as its standard input, and only the folder
//! stays; a process that ended by itself is told with the end of its log.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::door::postgres::{self, rows};

/// Datanodes.
pub(crate) const NODES: usize = 3;
/// How long a process may take to be ready, and the cluster to know all of its nodes.
const PATIENCE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(50);
/// Lines of a log that are told.
const LOG_LINES: usize = 15;
/// Has a process end when its standard input does (`src/orphan.rs`). Not an option, so that other binaries than this one
/// can be started, which may not know it.
const ENDS_WITH_STDIN: &str = "PARTITA_ENDS_WITH_STDIN";

struct Process {
    name: String,
    child: Child,
}

/// See the head of the file.
pub(crate) struct Embedded {
    dir: PathBuf,
    binary: PathBuf,
    processes: Vec<Process>,
    /// Its PostgreSQL address.
    pub(crate) postgres: String,
    /// Its HTTP address.
    pub(crate) http: String,
}

impl Embedded {
    /// Starts one of this binary, below a folder, with at most so many rows a second for each partition.
    ///
    /// # Errors
    /// When a process does not start.
    pub(crate) async fn start(
        binary: &Path,
        below: &Path,
        partition_rate: Option<f64>,
    ) -> anyhow::Result<Self> {
        let dir = below.join(format!("partita-lab-{}", std::process::id()));
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let mut cluster = Self {
            dir,
            binary: binary.to_owned(),
            processes: Vec::new(),
            postgres: String::new(),
            http: String::new(),
        };
        // Meta's members are known by their addresses before any of them runs.
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
        let any = "127.0.0.1:0";
        let spill = cluster.dir.join("spill").display().to_string();
        let options = ["--meta", &meta, "--http", any, "--postgres", any, "--spill-dir", &spill];
        cluster.run("frontend", &[&["frontend"][..], &options[..]].concat())?;
        let said = cluster.ready("frontend").await?;
        (cluster.postgres, cluster.http) =
            doors(&said).with_context(|| format!("the frontend said only this: {said}"))?;
        cluster.until_live().await?;
        Ok(cluster)
    }

    fn run(&mut self, name: &str, options: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(&self.binary);
        command.args(options);
        if options[0] != "frontend" {
            command.arg("--data-dir").arg(self.dir.join(name));
        }
        let (out, log) =
            (File::create(self.file(name, "out"))?, File::create(self.file(name, "log"))?);
        // The child keeps this end of the pipe as long as it is known here.
        command.env(ENDS_WITH_STDIN, "1").stdin(Stdio::piped());
        let child = command.stdout(out).stderr(log).spawn();
        let child = child.with_context(|| format!("cannot run {}", self.binary.display()))?;
        self.processes.push(Process { name: name.to_owned(), child });
        Ok(())
    }

    fn file(&self, name: &str, kind: &str) -> PathBuf {
        self.dir.join(format!("{name}.{kind}"))
    }

    /// What a process said when it was ready.
    async fn ready(&mut self, name: &str) -> anyhow::Result<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = std::fs::read_to_string(self.file(name, "out")).unwrap_or_default();
            if said.contains("is ready") && said.ends_with('\n') {
                return Ok(said);
            }
            self.check()?;
            if Instant::now() > deadline {
                bail!("{name} does not start:\n{}", self.log(name));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// The datanodes' processes.
    pub(crate) fn datanodes(&self) -> Vec<u32> {
        let datanodes = self.processes.iter().filter(|own| own.name.starts_with("datanode"));
        datanodes.map(|own| own.child.id()).collect()
    }

    /// Whether all run.
    ///
    /// # Errors
    /// When one has ended.
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
                bail!("the datanodes do not all come up: {live:?}");
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// The PostgreSQL and the HTTP address that a frontend says it has.
fn doors(said: &str) -> Option<(String, String)> {
    let line = |word: &str| said.lines().map(str::trim).find(|line| line.starts_with(word));
    let words: Vec<&str> = line("postgres")?.split_whitespace().collect();
    let (host, port) = (words.get(3)?, words.get(5)?);
    let http = line("http ")?.split("http://").nth(1)?;
    Some((format!("{host}:{port}"), http.to_owned()))
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // Nothing of it is wanted any more: no memtable has to be saved.
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
        let said = "partita 0.1.0 is ready\n  postgres  psql -h 127.0.0.1 -p 4003 -U partita public\n  \
                    load      http://127.0.0.1:4000/heatmap\n  http      http://127.0.0.1:4000\n";
        let (postgres, http) = doors(said).unwrap();
        assert_eq!((postgres.as_str(), http.as_str()), ("127.0.0.1:4003", "127.0.0.1:4000"));
        assert_eq!(doors("partita is ready"), None);
    }
}
