//! Meta's load reports: requested for the load tables of `sys`, and cached for some seconds to explain errors of
//! overload.
//!
//! ```text
//!   sys.partition_load, ...  ── ask ──▶ meta
//!   sys.hot_partitions       ── ask ──▶ meta, and again with sampled keys if a partition is hot
//!   EXPLAIN HOTSPOT          ── ask ──▶ meta (with sampled keys)
//!   an overload error        ── recent ▶ a report of the last 5 s, or meta within a short wait
//! ```

pub(crate) mod advice;
pub(crate) mod balance;
pub(crate) mod overload;
pub(crate) mod stats;
pub(crate) mod tables;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::{PartitionId, TableId};
use partita_proto::load::{LoadReport, LoadRequest};
use partita_proto::service::MetaService;
use tokio::time::Instant;

use crate::error::SqlError;

/// Time for which a report explains errors.
const KEPT: Duration = Duration::from_secs(5);
/// Maximum wait of an error for its explanation.
const EXPLAIN_WAIT: Duration = Duration::from_millis(300);

/// Client of meta's load reports.
pub(crate) struct Loads {
    meta: Arc<dyn MetaService>,
    /// Time of the last request, and the last report; `None` if meta did not answer.
    last: Mutex<Option<(Instant, Option<Arc<LoadReport>>)>>,
}

impl Loads {
    pub(crate) fn new(meta: Arc<dyn MetaService>) -> Arc<Self> {
        Arc::new(Self { meta, last: Mutex::new(None) })
    }

    /// The current load report of meta.
    ///
    /// # Errors
    /// Fails if no meta answers.
    pub(crate) async fn ask(&self, request: LoadRequest) -> Result<Arc<LoadReport>, SqlError> {
        let report = Arc::new(self.meta.load(request).await?);
        if request == LoadRequest::default() {
            *self.last.lock() = Some((Instant::now(), Some(Arc::clone(&report))));
        }
        Ok(report)
    }

    /// The current load report, with sampled keys of these tables, if there are any: designs are compared by them.
    ///
    /// # Errors
    /// Fails if no meta answers.
    pub(crate) async fn ask_with_samples(
        &self,
        report: Arc<LoadReport>,
        tables: &BTreeSet<TableId>,
    ) -> Result<Arc<LoadReport>, SqlError> {
        let mut ids = tables.iter();
        let table = match (ids.next(), ids.next()) {
            (None, _) => return Ok(report),
            (Some(only), None) => Some(*only),
            // Meta bounds the samples of a report, whatever the number of tables.
            (Some(_), Some(_)) => None,
        };
        self.ask(LoadRequest { table, samples: true, ..LoadRequest::default() }).await
    }

    /// A load report of the last seconds; `None` if meta does not answer soon. Concurrent callers cause one request.
    pub(crate) async fn recent(&self) -> Option<Arc<LoadReport>> {
        {
            let mut last = self.last.lock();
            if let Some((requested, report)) = last.as_ref()
                && requested.elapsed() < KEPT
            {
                return report.clone();
            }
            // Concurrent callers use the previous report.
            let previous = last.take().and_then(|(_, report)| report);
            *last = Some((Instant::now(), previous));
        }
        let report = self.ask(LoadRequest::default());
        tokio::time::timeout(EXPLAIN_WAIT, report).await.ok()?.ok()
    }
}

/// Looks up tables by id and by partition.
pub(crate) struct Names<'c> {
    catalog: &'c Catalog,
}

impl<'c> Names<'c> {
    pub(crate) fn new(catalog: &'c Catalog) -> Self {
        Self { catalog }
    }

    /// A table by id; `None` if it was dropped.
    pub(crate) fn table(&self, id: TableId) -> Option<&'c Arc<Table>> {
        self.catalog.table_by_id(id)
    }

    /// The table of a partition; `None` if it was dropped.
    pub(crate) fn table_of(&self, partition: PartitionId) -> Option<&'c Arc<Table>> {
        let mut tables = self.catalog.tables.values().flat_map(|tables| tables.values());
        tables.find(|table| table.partitions.route(partition).is_some())
    }
}
