//! The cluster of an experiment: started for it, or already running.
//!
//! Invariants: a cluster that was started here ends with the [`Site`]; of another cluster only what the options say
//! is known, including the limit of a partition.

use std::path::PathBuf;

use anyhow::{Context, bail};
use tokio_postgres::Client;

use crate::door::postgres::{self, connection, rows};
use crate::embedded::Embedded;
use crate::report::{progress, warn};

/// The cluster of an experiment, as options.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SiteOptions {
    /// PostgreSQL addresses of a running cluster's frontends; by default a cluster of three datanodes is started
    /// for the duration of the run.
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT")]
    connect: Vec<String>,
    /// Maximum rows per second of one partition in the cluster started here, for write measurements; by default
    /// 100. For a running cluster: the value that its nodes were started with.
    #[arg(long)]
    partition_rate: Option<f64>,
    /// Seed of all pseudo-random choices.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Folder below which the cluster started here keeps its data; by default the system's folder for temporary
    /// files.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// Binary for the cluster's processes; by default this one.
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// Default maximum rows per second of a partition. Two cores can serve eight such partitions with single-row writes
/// on three replicas.
const PARTITION_RATE: f64 = 100.0;
/// Rows per INSERT when a table is filled.
const FILL_ROWS: u64 = 500;

impl SiteOptions {
    /// The cluster with these addresses, or one that is started here if there are none.
    pub(crate) fn at(connect: Vec<String>) -> Self {
        Self { connect, partition_rate: None, seed: 1, data_dir: None, binary: None }
    }

    /// Checks the options.
    ///
    /// # Errors
    /// If the rate is invalid.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.partition_rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
            bail!("--partition-rate must be above 0 rows per second");
        }
        Ok(())
    }

    /// True if a cluster is started here.
    pub(super) fn embedded(&self) -> bool {
        self.connect.is_empty()
    }

    /// Maximum rate of one partition for write measurements, if known.
    pub(super) fn bound(&self) -> Option<f64> {
        match self.partition_rate {
            Some(rate) => Some(rate),
            None => self.embedded().then_some(PARTITION_RATE),
        }
    }
}

/// The cluster of an experiment.
pub(super) struct Site {
    /// Connection strings.
    pub(super) servers: Vec<String>,
    embedded: Option<Embedded>,
    client: Client,
}

impl Site {
    /// Starts a cluster with this limit for each partition, or connects to the running one.
    ///
    /// # Errors
    /// If it does not start, or cannot be reached.
    pub(super) async fn open(options: &SiteOptions, bound: Option<f64>) -> anyhow::Result<Self> {
        let (servers, embedded) = if options.embedded() {
            progress("starting a cluster on this machine");
            let binary = match &options.binary {
                Some(binary) => binary.clone(),
                None => std::env::current_exe().context("cannot find this binary")?,
            };
            let folder = options.data_dir.clone().unwrap_or_else(std::env::temp_dir);
            let embedded = Embedded::start(&binary, &folder, bound).await?;
            (vec![connection(&embedded.postgres)?], Some(embedded))
        } else {
            let servers: anyhow::Result<Vec<String>> =
                options.connect.iter().map(|address| connection(address)).collect();
            (servers?, None)
        };
        let client = postgres::connect(&servers[0], "public").await?;
        Ok(Self { servers, embedded, client })
    }

    /// Passes a result on, unless a process has ended: that explains more than the broken connection.
    ///
    /// # Errors
    /// If the part failed, or a process of the cluster has ended.
    pub(super) fn checked<T>(&mut self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        if let Some(embedded) = &mut self.embedded {
            embedded.check()?;
        }
        result
    }

    /// Process ids of the datanodes; none of a cluster that was running already.
    pub(super) fn datanodes(&self) -> Vec<u32> {
        self.embedded.as_ref().map(Embedded::datanodes).unwrap_or_default()
    }

    /// Runs a statement.
    ///
    /// # Errors
    /// If it is refused.
    pub(super) async fn run(&self, text: &str) -> anyhow::Result<()> {
        let outcome = self.client.batch_execute(text).await;
        outcome.map_err(|error| anyhow::anyhow!("{}: {text}", postgres::failure(&error).message))
    }

    /// The cells of a query, as text.
    ///
    /// # Errors
    /// If it fails.
    pub(super) async fn ask(&self, text: &str) -> anyhow::Result<Vec<Vec<Option<String>>>> {
        let cells = rows(&self.client, text).await;
        cells.map_err(|error| anyhow::anyhow!("{}: {text}", postgres::failure(&error).message))
    }

    /// The number that a query returns, if any.
    ///
    /// # Errors
    /// If it fails.
    pub(super) async fn number(&self, text: &str) -> anyhow::Result<Option<f64>> {
        let cells = self.ask(text).await?;
        let cell = cells.first().and_then(|row| row.first()).cloned().flatten();
        Ok(cell.and_then(|cell| cell.parse().ok()))
    }

    /// Drops a table if it exists, and creates it.
    ///
    /// # Errors
    /// If it is refused.
    pub(super) async fn make(&self, table: &str, create: &str) -> anyhow::Result<()> {
        self.run(&format!("DROP TABLE IF EXISTS {table}")).await?;
        self.run(create).await
    }

    /// Drops tables; a failure does not end the experiment, but a warning names the table.
    pub(super) async fn remove(&self, tables: &[&str]) {
        // A cluster that was started here is removed as a whole.
        for table in tables.iter().filter(|_| self.embedded.is_none()) {
            if let Err(error) = self.run(&format!("DROP TABLE IF EXISTS {table}")).await {
                warn(&format!("cannot drop table {table}: {error}"));
            }
        }
    }

    /// Fills a table: `values` gives the tuple of each row for VALUES, from row 0.
    ///
    /// # Errors
    /// If an INSERT is refused.
    pub(super) async fn fill(
        &self,
        target: &str,
        rows: u64,
        values: impl Fn(u64) -> String,
    ) -> anyhow::Result<()> {
        let mut start = 0;
        while start < rows {
            let end = rows.min(start + FILL_ROWS);
            let tuples: Vec<String> = (start..end).map(&values).collect();
            self.run(&format!("INSERT INTO {target} VALUES {}", tuples.join(", "))).await?;
            start = end;
        }
        Ok(())
    }

    /// Number of partitions of a table.
    ///
    /// # Errors
    /// If the query fails.
    pub(super) async fn partitions(&self, table: &str) -> anyhow::Result<f64> {
        let text = format!("SELECT count(*) FROM sys.partitions WHERE \"table\" = '{table}'");
        Ok(self.number(&text).await?.unwrap_or(0.0))
    }
}
