//! The frontend of one process: what all its sessions share.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::NodeId;
use partita_proto::service::{DataNodes, Ddl, MetaService};
use tokio::sync::watch;

use crate::error::SqlError;
use crate::session::{Session, SessionOptions};

/// Memory that queries may use together before they spill or fail.
const QUERY_MEMORY_BYTES: usize = 1 << 30;
/// Bytes that queries may spill to disk together.
const SPILL_BYTES_MAX: u64 = 16 << 30;
/// How long a write is tried before it fails.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of rows on their way to the nodes; more wait.
const IN_FLIGHT_BYTES_MAX: usize = 256 << 20;
/// Statements that the query log remembers.
const QUERY_LOG_LEN: usize = 1_000;

/// How a frontend runs.
#[derive(Clone, Debug)]
pub struct FrontendOptions {
    /// Its number.
    pub node: NodeId,
    /// Memory that queries may use together before they spill or fail.
    pub query_memory_bytes: usize,
    /// How long a statement may run unless its session says otherwise; `None`: for ever.
    pub statement_timeout: Option<Duration>,
    /// How long a write is tried before it fails.
    pub write_timeout: Duration,
    /// Where queries spill; `None`: they fail instead.
    pub spill_dir: Option<PathBuf>,
    /// Bytes that queries may spill to disk together.
    pub spill_bytes_max: u64,
    /// Bytes of rows on their way to the nodes; more wait.
    pub in_flight_bytes_max: usize,
    /// Threads that one query may keep busy.
    pub query_parallelism: usize,
    /// Statements that the query log remembers.
    pub query_log_len: usize,
}

impl Default for FrontendOptions {
    fn default() -> Self {
        Self {
            node: NodeId(1),
            query_memory_bytes: QUERY_MEMORY_BYTES,
            statement_timeout: None,
            write_timeout: WRITE_TIMEOUT,
            spill_dir: None,
            spill_bytes_max: SPILL_BYTES_MAX,
            in_flight_bytes_max: IN_FLIGHT_BYTES_MAX,
            query_parallelism: std::thread::available_parallelism().map_or(1, usize::from),
            query_log_len: QUERY_LOG_LEN,
        }
    }
}

/// The frontend of one process.
pub struct Frontend {
    options: FrontendOptions,
    meta: Arc<dyn MetaService>,
    nodes: Arc<dyn DataNodes>,
    catalog: watch::Receiver<Arc<Catalog>>,
}

impl Frontend {
    /// A frontend over a catalog's keeper and the nodes that hold the rows.
    ///
    /// # Errors
    /// When the options contradict each other, or the spill directory cannot be used.
    pub fn new(
        options: FrontendOptions,
        meta: Arc<dyn MetaService>,
        nodes: Arc<dyn DataNodes>,
    ) -> Result<Arc<Self>, SqlError> {
        let catalog = meta.catalog();
        Ok(Arc::new(Self { options, meta, nodes, catalog }))
    }

    /// A session of a client.
    pub fn session(self: &Arc<Self>, options: SessionOptions) -> Arc<Session> {
        Session::new(Arc::clone(self), options)
    }

    /// The newest catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.borrow())
    }

    /// How it runs.
    pub fn options(&self) -> &FrontendOptions {
        &self.options
    }

    /// Changes the catalog; when it answers, [`Frontend::catalog`] shows the change. Returns whether
    /// anything changed.
    ///
    /// # Errors
    /// What the catalog's keeper says.
    pub async fn change(&self, ddl: Ddl) -> Result<bool, SqlError> {
        Ok(self.meta.change(ddl).await?)
    }

    /// Writes rows. Columns are found by SQL name; any subset of them, of types that can be cast to
    /// theirs. Fills in defaults and generated columns, checks NOT NULL, places, cuts, sends and
    /// retries. Returns the number of rows.
    ///
    /// # Errors
    /// When a row is not one of the table, or it could not be written within the write timeout.
    pub async fn ingest(&self, table: &Arc<Table>, rows: RecordBatch) -> Result<u64, SqlError> {
        let _unused = (table, rows, &self.nodes);
        Err(SqlError::unsupported("ingest"))
    }

    /// Deletes rows by key: `keys` has the key columns by SQL name. Returns the number of keys.
    ///
    /// # Errors
    /// When the table is in append mode, or the keys could not be deleted within the write timeout.
    pub async fn ingest_delete(
        &self,
        table: &Arc<Table>,
        keys: RecordBatch,
    ) -> Result<u64, SqlError> {
        let _unused = (table, keys);
        Err(SqlError::unsupported("DELETE"))
    }
}
