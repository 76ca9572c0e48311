//! What meta says of load: asked for by the tables of `sys` that show it, and remembered for some seconds for errors
//! that load explains.
//!
//! ```text
//!   sys.partition_load, ...  ── ask ──▶ meta
//!   EXPLAIN HOTSPOT          ── ask ──▶ meta (with sampled keys)
//!   an overload error        ── recent ▶ what was said less than 5 s ago, or meta, but not for long
//! ```

pub(crate) mod balance;
pub(crate) mod overload;
pub(crate) mod stats;
pub(crate) mod tables;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::{PartitionId, TableId};
use partita_proto::load::{HeatmapRequest, LoadReport, LoadRequest};
use partita_proto::service::MetaService;
use tokio::time::Instant;

use crate::error::SqlError;
use crate::frontend::Frontend;
use crate::hotspot::class::{is_curable, remedy};
use crate::hotspot::shown::advice;

/// How long what meta said explains errors.
const KEPT: Duration = Duration::from_secs(5);
/// How long an error waits for its explanation.
const EXPLAIN_WAIT: Duration = Duration::from_millis(300);

/// Asks meta how busy everything is.
pub(crate) struct Loads {
    meta: Arc<dyn MetaService>,
    /// The last report, or `None` when there was none, and when it was asked for.
    last: Mutex<Option<(Instant, Option<Arc<LoadReport>>)>>,
}

impl Loads {
    pub(crate) fn new(meta: Arc<dyn MetaService>) -> Arc<Self> {
        Arc::new(Self { meta, last: Mutex::new(None) })
    }

    /// What meta says now.
    ///
    /// # Errors
    /// When no meta answers.
    pub(crate) async fn ask(&self, request: LoadRequest) -> Result<Arc<LoadReport>, SqlError> {
        let report = Arc::new(self.meta.load(request).await?);
        if request == LoadRequest::default() {
            *self.last.lock() = Some((Instant::now(), Some(Arc::clone(&report))));
        }
        Ok(report)
    }

    /// What meta said some seconds ago at most; `None` when it does not say anything soon. A storm of errors asks
    /// once.
    pub(crate) async fn recent(&self) -> Option<Arc<LoadReport>> {
        {
            let mut last = self.last.lock();
            if let Some((at, report)) = last.as_ref()
                && at.elapsed() < KEPT
            {
                return report.clone();
            }
            // Others that come meanwhile go on with what there was.
            let before = last.take().and_then(|(_, report)| report);
            *last = Some((Instant::now(), before));
        }
        let asked = self.ask(LoadRequest::default());
        tokio::time::timeout(EXPLAIN_WAIT, asked).await.ok()?.ok()
    }
}

impl Frontend {
    /// How busy everything is, as meta said some seconds ago at most; `None` when it does not say so soon. However often
    /// this is asked, meta is asked once in some seconds.
    pub async fn load(&self) -> Option<Arc<LoadReport>> {
        self.loads().recent().await
    }

    /// The picture of a table's load over keys and time, as JSON.
    ///
    /// # Errors
    /// When there is no such table or metric, or no meta answers.
    pub async fn heatmap(&self, request: HeatmapRequest) -> Result<Bytes, SqlError> {
        Ok(self.meta().heatmap(request).await?)
    }

    /// What would help against what was found of a partition of a table, at any time: statements, as
    /// `sys.hot_partitions` has them, where the same is found still or where they concern the whole table; else words.
    /// `None` if nothing is known or wanted to help.
    pub fn advice(
        &self,
        table: &Table,
        report: &LoadReport,
        partition: Option<u64>,
        class: &str,
    ) -> Option<String> {
        let of_class = report.partitions.iter().filter(|load| load.table == table.id);
        let of_class = of_class.filter_map(|load| {
            Some((load, load.verdict.as_ref().filter(|verdict| verdict.class == class)?))
        });
        let whole_table = is_curable(class);
        let fitting =
            of_class.filter(|(load, _)| whole_table || Some(load.partition.0) == partition);
        let busiest = fitting.max_by(|(a, _), (b, _)| a.busy.s10.total_cmp(&b.busy.s10));
        // Nothing new comes into a former table.
        let catalog = self.catalog();
        let mut tables = catalog.tables.values().flat_map(|tables| tables.values());
        let busiest = busiest.filter(|_| !tables.any(|other| other.former == Some(table.id)));
        let statements = busiest.and_then(|(load, verdict)| advice(table, load, verdict));
        statements.or_else(|| remedy(class).map(str::to_owned))
    }
}

/// Tables by id, and by partition.
pub(crate) struct Names<'c> {
    catalog: &'c Catalog,
}

impl<'c> Names<'c> {
    pub(crate) fn new(catalog: &'c Catalog) -> Self {
        Self { catalog }
    }

    /// A table that is still there.
    pub(crate) fn table(&self, id: TableId) -> Option<&'c Arc<Table>> {
        self.catalog.table_by_id(id)
    }

    /// The table that a partition is of, if it is still there.
    pub(crate) fn table_of(&self, partition: PartitionId) -> Option<&'c Arc<Table>> {
        let mut tables = self.catalog.tables.values().flat_map(|tables| tables.values());
        tables.find(|table| table.partitions.route(partition).is_some())
    }
}
