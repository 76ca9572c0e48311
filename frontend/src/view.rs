//! The cluster as this frontend sees it: the catalog and the members that meta publishes, the nodes, the last known
//! leaders, the answers of replicas, and estimated row counts.
//!
//! ```text
//!   meta ── catalog, members ──┐
//!   nodes ── answers, reports ─┴─ ClusterView ──┬── scans
//!                                               ├── virtual tables
//!                                               └── router (writes)
//! ```
//!
//! Invariant: no result depends on the view being up to date. A node refuses a request by an old route, and the caller
//! looks up the new one; row counts only order joins.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::SessionState;
use partita_proto::Error;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::{NodeId, PartitionId};
use partita_proto::member::Members;
use partita_proto::route::Route;
use partita_proto::service::DataNodes;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::error::SqlError;
use crate::ingest::plan::{TablePlan, TablePlans};
use crate::leaders::Leaders;
use crate::metrics::FrontendMetrics;
use crate::quorum;
use crate::replicas::Replicas;
use crate::row_counts::RowCounts;

/// Maximum wait for a newer catalog; the caller tries again by whatever catalog there is then.
const CATALOG_WAIT_MAX: Duration = Duration::from_millis(200);
/// Maximum wait for the first answer of a node; it is asked again when meta reports of the nodes the next time.
const GREET_WAIT: Duration = Duration::from_secs(1);

/// The cluster as this frontend sees it, and what every request to it needs.
pub(crate) struct ClusterView {
    nodes: Arc<dyn DataNodes>,
    catalog: watch::Receiver<Arc<Catalog>>,
    members: watch::Receiver<Arc<Members>>,
    plans: TablePlans,
    leaders: Leaders,
    replicas: Arc<Replicas>,
    row_counts: Arc<RowCounts>,
    metrics: Arc<FrontendMetrics>,
    timeout: Duration,
    home: Handle,
}

impl ClusterView {
    pub(crate) fn new(
        nodes: Arc<dyn DataNodes>,
        (catalog, members): (watch::Receiver<Arc<Catalog>>, watch::Receiver<Arc<Members>>),
        timeout: Duration,
        metrics: Arc<FrontendMetrics>,
        home: Handle,
    ) -> Self {
        Self {
            nodes,
            catalog,
            members,
            plans: TablePlans::default(),
            leaders: Leaders::default(),
            replicas: Arc::new(Replicas::new(Arc::clone(&metrics))),
            row_counts: Arc::default(),
            metrics,
            timeout,
            home,
        }
    }

    /// Runtime of requests and of tasks that outlive a statement.
    pub(crate) fn home(&self) -> &Handle {
        &self.home
    }

    /// The nodes, reached from the home runtime.
    pub(crate) fn nodes(&self) -> &Arc<dyn DataNodes> {
        &self.nodes
    }

    /// Last known leaders of partitions.
    pub(crate) fn leaders(&self) -> &Leaders {
        &self.leaders
    }

    /// Replicas by their answers to scans.
    pub(crate) fn replicas(&self) -> &Arc<Replicas> {
        &self.replicas
    }

    /// Counters of the frontend.
    pub(crate) fn metrics(&self) -> &Arc<FrontendMetrics> {
        &self.metrics
    }

    /// The newest catalog.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.borrow())
    }

    /// The nodes as meta sees them.
    pub(crate) fn members(&self) -> Arc<Members> {
        Arc::clone(&self.members.borrow())
    }

    /// Final error of a partition: the last error, or that too few replicas are available.
    pub(crate) fn explained(&self, table: &Table, route: &Route, error: Error) -> Error {
        let newest = self.newest(table);
        let newest = newest.as_ref().and_then(|table| table.partitions.route(route.partition));
        quorum::lost(&table.name, newest.unwrap_or(route), &self.members(), &error).unwrap_or(error)
    }

    /// Time for which a request to a node is retried.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Estimated rows of partitions, a few seconds old: for the order of joins, never for a result.
    pub(crate) fn row_counts(&self) -> Arc<HashMap<PartitionId, u64>> {
        self.row_counts.get(&self.nodes, &self.home)
    }

    /// Ingest plan of a table at its schema version.
    pub(crate) fn plan(
        &self,
        state: &Arc<SessionState>,
        table: &Table,
    ) -> Result<Arc<TablePlan>, SqlError> {
        self.plans.get(state, &self.catalog.borrow(), table)
    }

    /// Newest version of a table; `None` if it was dropped.
    pub(crate) fn newest(&self, table: &Table) -> Option<Arc<Table>> {
        newest_in(&self.catalog.borrow(), table)
    }

    /// Returns true if a partition has another epoch than a route, or no longer exists.
    pub(crate) fn has_changed(&self, table: &Table, route: &Route) -> bool {
        let newest = self.newest(table);
        let newest_route =
            newest.as_ref().and_then(|table| table.partitions.route(route.partition));
        newest_route.is_none_or(|newest| newest.epoch != route.epoch)
    }

    /// Contacts each live node once, so that later requests find a connection; returns when meta is gone.
    pub(crate) async fn meet_nodes(&self) {
        let mut members = self.members.clone();
        let mut greeted: BTreeSet<NodeId> = BTreeSet::new();
        loop {
            let live: BTreeSet<NodeId> = {
                let current = members.borrow_and_update();
                current.iter().filter(|(_, member)| member.live).map(|(node, _)| *node).collect()
            };
            greeted.retain(|node| live.contains(node));
            for node in live {
                if !greeted.contains(&node) && self.answers(node).await {
                    greeted.insert(node);
                }
            }
            if members.changed().await.is_err() {
                return;
            }
        }
    }

    async fn answers(&self, node: NodeId) -> bool {
        let Ok(service) = self.nodes.node(node) else { return false };
        matches!(tokio::time::timeout(GREET_WAIT, service.status()).await, Ok(Ok(_)))
    }

    /// Waits until the catalog is newer than a version, for at most [`CATALOG_WAIT_MAX`]; returns at once if it is
    /// newer already.
    pub(crate) async fn newer_catalog(&self, version: u64, deadline: Instant) {
        let mut catalog = self.catalog.clone();
        let wait_end = deadline.min(Instant::now() + CATALOG_WAIT_MAX);
        let newer = catalog.wait_for(|catalog| catalog.version > version);
        // The caller looks at the catalog in any case, so a timeout does not matter.
        let _waited = tokio::time::timeout_at(wait_end, newer).await.is_ok();
    }
}

/// Version of a table in a catalog; `None` if it was dropped.
pub(crate) fn newest_in(catalog: &Catalog, table: &Table) -> Option<Arc<Table>> {
    let of_name = catalog.table(&table.database, &table.name);
    let same = of_name.filter(|newest| newest.id == table.id);
    same.or_else(|| catalog.table_by_id(table.id)).map(Arc::clone)
}
