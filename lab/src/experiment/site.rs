//! Where an experiment runs: a cluster that is started here for it, or one that runs.
//!
//! Invariants: a cluster that was started here ends with the [`Site`]; of a cluster that runs only what its owner said is
//! known, also how much a partition of it takes.

use std::path::PathBuf;

use anyhow::{Context, bail};
use tokio_postgres::Client;

use crate::door::postgres::{self, connection, rows};
use crate::embedded::Embedded;
use crate::report::{progress, warn};

/// What all experiments are told.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SiteOptions {
    /// A running cluster's frontends, by their PostgreSQL addresses; without it a cluster of three datanodes is started
    /// here for as long as it takes.
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT")]
    connect: Vec<String>,
    /// Rows a second that one partition of the cluster that is started here takes at most where writes are looked at;
    /// by default 100. Of a running cluster: what its nodes were started with.
    #[arg(long)]
    partition_rate: Option<f64>,
    /// The seed.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Print the result as one line of JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Write the result as JSON into a file.
    #[arg(long)]
    pub(super) out: Option<PathBuf>,
    /// Folder below which the cluster that is started here keeps its data; by default the system's for temporary files.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// The binary that the cluster is made of; by default this one.
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// Rows a second that a partition takes by default. Two cores bear what eight of them take, in single-row writes that
/// three replicas keep.
const PARTITION_RATE: f64 = 100.0;
/// Rows of an INSERT that fills a table.
const FILL_ROWS: u64 = 500;

impl SiteOptions {
    /// Checks them.
    ///
    /// # Errors
    /// When a rate is none.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.partition_rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
            bail!("--partition-rate is rows a second, more than 0");
        }
        Ok(())
    }

    /// Whether a cluster is started here.
    pub(super) fn embedded(&self) -> bool {
        self.connect.is_empty()
    }

    /// What one partition takes where writes are looked at, as far as that is known.
    pub(super) fn bound(&self) -> Option<f64> {
        match self.partition_rate {
            Some(rate) => Some(rate),
            None => self.embedded().then_some(PARTITION_RATE),
        }
    }
}

/// See the head of the file.
pub(super) struct Site {
    /// Connection strings.
    pub(super) servers: Vec<String>,
    embedded: Option<Embedded>,
    client: Client,
}

impl Site {
    /// Starts a cluster whose partitions take so much, or finds the one that runs.
    ///
    /// # Errors
    /// When it does not start, or nobody answers.
    pub(super) async fn open(options: &SiteOptions, bound: Option<f64>) -> anyhow::Result<Self> {
        let (servers, embedded) = if options.embedded() {
            progress("starting a cluster on this machine");
            let binary = match &options.binary {
                Some(binary) => binary.clone(),
                None => std::env::current_exe().context("this binary is not to be found")?,
            };
            let below = options.data_dir.clone().unwrap_or_else(std::env::temp_dir);
            let embedded = Embedded::start(&binary, &below, bound).await?;
            (vec![connection(&embedded.postgres)?], Some(embedded))
        } else {
            let servers: anyhow::Result<Vec<String>> =
                options.connect.iter().map(|address| connection(address)).collect();
            (servers?, None)
        };
        let client = postgres::connect(&servers[0], "public").await?;
        Ok(Self { servers, embedded, client })
    }

    /// What came of a part of the experiment; a process that ended says more than the connection that broke.
    ///
    /// # Errors
    /// When it failed, or a process of the cluster has ended.
    pub(super) fn checked<T>(&mut self, done: anyhow::Result<T>) -> anyhow::Result<T> {
        if let Some(embedded) = &mut self.embedded {
            embedded.check()?;
        }
        done
    }

    /// Runs a statement.
    ///
    /// # Errors
    /// When it is refused.
    pub(super) async fn run(&self, text: &str) -> anyhow::Result<()> {
        let done = self.client.batch_execute(text).await;
        done.map_err(|error| anyhow::anyhow!("{}: {text}", postgres::failure(&error).message))
    }

    /// The cells of a query, as text.
    ///
    /// # Errors
    /// When it fails.
    pub(super) async fn ask(&self, text: &str) -> anyhow::Result<Vec<Vec<Option<String>>>> {
        let cells = rows(&self.client, text).await;
        cells.map_err(|error| anyhow::anyhow!("{}: {text}", postgres::failure(&error).message))
    }

    /// A number that a query gives, if it gives one.
    ///
    /// # Errors
    /// When it fails.
    pub(super) async fn number(&self, text: &str) -> anyhow::Result<Option<f64>> {
        let cells = self.ask(text).await?;
        let cell = cells.first().and_then(|row| row.first()).cloned().flatten();
        Ok(cell.and_then(|cell| cell.parse().ok()))
    }

    /// Makes a table anew.
    ///
    /// # Errors
    /// When it is refused.
    pub(super) async fn make(&self, table: &str, create: &str) -> anyhow::Result<()> {
        self.run(&format!("DROP TABLE IF EXISTS {table}")).await?;
        self.run(create).await
    }

    /// Removes tables; an experiment is not lost for it, but whoever owns the cluster is told what stays.
    pub(super) async fn remove(&self, tables: &[&str]) {
        // What was started here goes as a whole.
        for table in tables.iter().filter(|_| self.embedded.is_none()) {
            if let Err(error) = self.run(&format!("DROP TABLE IF EXISTS {table}")).await {
                warn(&format!("table {table} is left behind: {error}"));
            }
        }
    }

    /// Fills a table: `values` are those of row 0 and on, as they stand in VALUES.
    ///
    /// # Errors
    /// When an INSERT is refused.
    pub(super) async fn fill(
        &self,
        into: &str,
        rows: u64,
        values: impl Fn(u64) -> String,
    ) -> anyhow::Result<()> {
        let mut from = 0;
        while from < rows {
            let until = rows.min(from + FILL_ROWS);
            let some: Vec<String> = (from..until).map(&values).collect();
            self.run(&format!("INSERT INTO {into} VALUES {}", some.join(", "))).await?;
            from = until;
        }
        Ok(())
    }

    /// Partitions of a table.
    ///
    /// # Errors
    /// When the store does not say.
    pub(super) async fn partitions(&self, table: &str) -> anyhow::Result<f64> {
        let text = format!("SELECT count(*) FROM sys.partitions WHERE \"table\" = '{table}'");
        Ok(self.number(&text).await?.unwrap_or(0.0))
    }
}
