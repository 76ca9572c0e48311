//! The leaf of every plan that reads a table: its partitions, each read at its leader.
//!
//! ```text
//!   partition of the table ── scan request ── streams 0..k ──┐
//!   partition of the table ── scan request ── streams 0..k ──┴── slots, dealt to the plan's outputs
//! ```
//!
//! Invariants:
//! - each partition is opened once, and each of its streams is read by one output of the plan, so
//!   every row comes exactly once;
//! - a partition that moved or was split before it was opened is found again; one that fails after
//!   the first row fails the statement;
//! - with a limit, no output gives more rows than it.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, RecordBatchOptions};
use arrow::datatypes::{FieldRef, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, StatisticsArgs,
};
use futures::{Stream, StreamExt, TryStreamExt};
use parking_lot::Mutex;
use partita_proto::Error;
use partita_proto::catalog::Table;
use partita_proto::domain::Domains;
use partita_proto::id::{NodeId, TableId};
use partita_proto::range::KeyRange;
use partita_proto::route::Route;
use partita_proto::service::{RowStream, ScanReply, ScanRequest, ScanStats};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::error::SqlError;
use crate::newest::Within;
use crate::router::Router;

/// Partitions that one output opens ahead of the one it reads.
const OPEN_AHEAD: usize = 4;
/// A guess, for how many rows a scan gives that needs one of each series.
const ROWS_PER_SERIES: usize = 256;
/// The pause before a partition is asked again.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(5);
/// The longest pause.
const PAUSE_MAX: std::time::Duration = std::time::Duration::from_millis(200);

/// What a scan wants of a table.
#[derive(Clone, Debug)]
pub(crate) struct ScanSpec {
    pub(crate) table: Arc<Table>,
    /// The columns it gives, by SQL name.
    pub(crate) schema: SchemaRef,
    /// The columns it asks for, by storage name: the same, or one that is not given but counts rows.
    pub(crate) columns: SchemaRef,
    pub(crate) domains: Domains,
    /// The partitions that can hold rows of the domains, as positions in the table's map.
    pub(crate) touched: Vec<usize>,
    pub(crate) limit: Option<usize>,
    /// How many outputs the plan has.
    pub(crate) outputs: usize,
    /// Into how many streams each partition is split.
    pub(crate) streams: usize,
    /// About how many rows the partitions have, if anybody said.
    pub(crate) rows: Option<usize>,
    /// Whether the newest row of each series is all that is needed.
    pub(crate) newest_only: bool,
}

/// A scan of some of a table's partitions.
pub(crate) struct PartitionScanExec {
    spec: ScanSpec,
    router: Arc<Router>,
    parts: Vec<Arc<Part>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// One partition of a scan.
struct Part {
    route: Route,
    opened: OnceCell<Mutex<Vec<Option<RowStream>>>>,
    stats: Mutex<Vec<Arc<ScanStats>>>,
}

/// What scans cost; see [`PartitionScanExec::usage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) scans: u64,
    pub(crate) partitions_total: u64,
    pub(crate) partitions_touched: u64,
    pub(crate) rows_scanned: u64,
    pub(crate) bytes_scanned: u64,
    pub(crate) files_read: u64,
    pub(crate) files_pruned: u64,
    pub(crate) row_groups_pruned: u64,
}

impl Usage {
    pub(crate) fn add(&mut self, other: &Self) {
        self.scans += other.scans;
        self.partitions_total += other.partitions_total;
        self.partitions_touched += other.partitions_touched;
        self.rows_scanned += other.rows_scanned;
        self.bytes_scanned += other.bytes_scanned;
        self.files_read += other.files_read;
        self.files_pruned += other.files_pruned;
        self.row_groups_pruned += other.row_groups_pruned;
    }

    /// What all scans of a plan cost so far.
    pub(crate) fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let mut usage = Self::default();
        for scan in scans(plan) {
            usage.add(&as_scan(&scan).map(PartitionScanExec::usage).unwrap_or_default());
        }
        usage
    }

    /// Whether the statement needed one partition at most.
    pub(crate) fn fast_path(&self) -> bool {
        self.partitions_touched <= 1
    }
}

/// How many partitions each scan of a plan asks, and of which table.
pub(crate) fn fan_out(plan: &Arc<dyn ExecutionPlan>) -> Vec<(TableId, u64)> {
    let scans = scans(plan);
    let of = |scan: &PartitionScanExec| (scan.spec.table.id, scan.parts.len() as u64);
    scans.iter().filter_map(|scan| as_scan(scan).map(of)).collect()
}

fn as_scan(plan: &Arc<dyn ExecutionPlan>) -> Option<&PartitionScanExec> {
    let plan: &dyn Any = plan.as_ref();
    plan.downcast_ref()
}

/// The scans of a plan.
fn scans(plan: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn ExecutionPlan>> {
    let mut found = Vec::new();
    let mut stack = vec![Arc::clone(plan)];
    while let Some(plan) = stack.pop() {
        stack.extend(plan.children().into_iter().map(Arc::clone));
        if as_scan(&plan).is_some() {
            found.push(plan);
        }
    }
    found
}

/// Opens all scans of a table in a plan now, so that they do not see what is written from now on.
pub(crate) async fn pin_scans(
    plan: &Arc<dyn ExecutionPlan>,
    table: &Table,
) -> Result<(), SqlError> {
    for scan in scans(plan) {
        let Some(scan) = as_scan(&scan) else { continue };
        if scan.spec.table.id != table.id {
            continue;
        }
        for part in &scan.parts {
            scan.opener().open(part).await?;
        }
    }
    Ok(())
}

impl PartitionScanExec {
    pub(crate) fn new(spec: ScanSpec, router: Arc<Router>) -> Self {
        let routes = spec.table.partitions.routes();
        let parts = spec
            .touched
            .iter()
            .map(|position| {
                Arc::new(Part {
                    route: routes[*position].clone(),
                    opened: OnceCell::new(),
                    stats: Mutex::new(Vec::new()),
                })
            })
            .collect();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&spec.schema)),
            Partitioning::UnknownPartitioning(spec.outputs.max(1)),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            spec,
            router,
            parts,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The scan for a query that needs the newest row of each series only, and what is known of its
    /// columns within one series; `None` if the table has no such order, or some rows will do.
    pub(crate) fn newest_only(&self) -> Option<(Self, Vec<Within>)> {
        let schema = &self.spec.table.schema;
        let time = schema.time_index()?;
        if schema.options.append_mode
            || schema.key.last() != Some(&time.id)
            || self.spec.limit.is_some()
        {
            return None;
        }
        let within = |field: &FieldRef| match schema.column(field.name()) {
            Some(column) if column.id == time.id => Within::Time,
            Some(column) if schema.key.contains(&column.id) => Within::Same,
            _ => Within::Other,
        };
        let columns = self.spec.schema.fields().iter().map(within).collect();
        let spec = ScanSpec {
            newest_only: true,
            outputs: self.parts.len().min(self.spec.outputs).max(1),
            streams: 1,
            rows: self.spec.rows.map(|rows| rows.div_ceil(ROWS_PER_SERIES)),
            ..self.spec.clone()
        };
        Some((Self::new(spec, Arc::clone(&self.router)), columns))
    }

    /// What the scan cost so far.
    pub(crate) fn usage(&self) -> Usage {
        let mut usage = Usage {
            scans: 1,
            partitions_total: self.spec.table.partitions.routes().len() as u64,
            partitions_touched: self.parts.len() as u64,
            ..Usage::default()
        };
        for part in &self.parts {
            for stats in part.stats.lock().iter() {
                usage.rows_scanned += stats.rows_scanned.load(Ordering::Relaxed);
                usage.bytes_scanned += stats.bytes_scanned.load(Ordering::Relaxed);
                usage.files_read += stats.files_read.load(Ordering::Relaxed);
                usage.files_pruned += stats.files_pruned.load(Ordering::Relaxed);
                usage.row_groups_pruned += stats.row_groups_pruned.load(Ordering::Relaxed);
            }
        }
        usage
    }

    fn opener(&self) -> Opener {
        Opener { spec: self.spec.clone(), router: Arc::clone(&self.router) }
    }

    fn describe(&self) -> String {
        let spec = &self.spec;
        let columns: Vec<_> =
            spec.schema.fields().iter().map(|field| field.name().as_str()).collect();
        let mut text = format!(
            "table={}.{}, partitions={}/{}, fast_path={}, projection=[{}]",
            spec.table.database,
            spec.table.name,
            self.parts.len(),
            spec.table.partitions.routes().len(),
            self.parts.len() <= 1,
            columns.join(", "),
        );
        if !spec.domains.is_all() {
            let domains: Vec<_> = spec
                .domains
                .iter()
                .map(|(column, domain)| self.describe_domain(column, domain))
                .collect();
            text.push_str(", domains=[");
            text.push_str(&domains.join(", "));
            text.push(']');
        }
        if spec.newest_only {
            text.push_str(", newest_only=true");
        }
        if let Some(limit) = spec.limit {
            text.push_str(&format!(", fetch={limit}"));
        }
        text
    }

    fn describe_domain(
        &self,
        storage_name: &str,
        domain: &partita_proto::domain::Domain,
    ) -> String {
        let columns = &self.spec.table.schema.columns;
        let column = columns.iter().find(|column| column.storage_name == storage_name);
        let name = column.map_or(storage_name, |column| column.name.as_str());
        let mut text = format!("{name} in {domain}");
        if text.len() > DOMAIN_TEXT_MAX {
            text.truncate(text.floor_char_boundary(DOMAIN_TEXT_MAX));
            text.push_str("..");
        }
        text
    }
}

/// A domain of many points is cut to this in EXPLAIN.
const DOMAIN_TEXT_MAX: usize = 200;

impl fmt::Debug for PartitionScanExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartitionScanExec({})", self.describe())
    }
}

impl DisplayAs for PartitionScanExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match kind {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "PartitionScanExec: {}", self.describe())
            }
            DisplayFormatType::TreeRender => {
                let table = &self.spec.table;
                let total = table.partitions.routes().len();
                writeln!(f, "table={}.{}", table.database, table.name)?;
                writeln!(f, "partitions={}/{total}", self.parts.len())
            }
        }
    }
}

impl ExecutionPlan for PartitionScanExec {
    fn name(&self) -> &'static str {
        "PartitionScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    /// A plan that runs again opens its partitions again.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(self.spec.clone(), Arc::clone(&self.router))))
    }

    /// An estimate, for the order of joins.
    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.spec.schema);
        if let Some(rows) = self.spec.rows {
            let rows = rows.min(self.spec.limit.unwrap_or(usize::MAX));
            let outputs = args.partition().map_or(1, |_| self.spec.outputs.max(1));
            statistics.num_rows = Precision::Inexact(rows.div_ceil(outputs));
        }
        Ok(Arc::new(statistics))
    }

    fn fetch(&self) -> Option<usize> {
        self.spec.limit
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        if self.spec.newest_only {
            return None;
        }
        let spec = ScanSpec { limit, ..self.spec.clone() };
        Some(Arc::new(Self::new(spec, Arc::clone(&self.router))))
    }

    fn execute(&self, output: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let outputs = self.spec.outputs.max(1);
        let opener = Arc::new(self.opener());
        let slots: Vec<(Arc<Part>, usize)> = self
            .parts
            .iter()
            .flat_map(|part| (0..self.spec.streams).map(move |stream| (Arc::clone(part), stream)))
            .enumerate()
            .filter(|(slot, _)| slot % outputs == output)
            .map(|(_, slot)| slot)
            .collect();
        let converter = Converter::new(&self.spec);
        let baseline = BaselineMetrics::new(&self.metrics, output);
        let rows = futures::stream::iter(slots)
            .map(move |(part, stream)| {
                let opener = Arc::clone(&opener);
                async move { opener.stream(&part, stream).await }
            })
            .buffered(OPEN_AHEAD)
            .try_flatten()
            .map(move |batch| {
                let timer = baseline.elapsed_compute().timer();
                let batch = converter.convert(batch?)?;
                timer.done();
                Ok(batch.record_output(&baseline))
            });
        let rows = limited(rows, self.spec.limit);
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.spec.schema), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        let usage = self.usage();
        let extra = ExecutionPlanMetricsSet::new();
        let count = |name: &'static str, value: u64| {
            let value = usize::try_from(value).unwrap_or(usize::MAX);
            MetricBuilder::new(&extra).global_counter(name).add(value);
        };
        count("partitions_touched", usage.partitions_touched);
        count("partitions_total", usage.partitions_total);
        count("rows_scanned", usage.rows_scanned);
        count("bytes_scanned", usage.bytes_scanned);
        count("files_read", usage.files_read);
        count("files_pruned", usage.files_pruned);
        count("row_groups_pruned", usage.row_groups_pruned);
        let mut all = self.metrics.clone_inner();
        for metric in extra.clone_inner().iter() {
            all.push(Arc::clone(metric));
        }
        Some(all)
    }
}

/// Ends a stream after so many rows.
fn limited(
    rows: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
    limit: Option<usize>,
) -> futures::stream::BoxStream<'static, Result<RecordBatch>> {
    let Some(limit) = limit else { return rows.boxed() };
    rows.scan(limit, |left, batch| {
        let item = match batch {
            _ if *left == 0 => None,
            Ok(batch) => {
                let rows = batch.num_rows().min(*left);
                *left -= rows;
                Some(Ok(if rows < batch.num_rows() { batch.slice(0, rows) } else { batch }))
            }
            Err(error) => Some(Err(error)),
        };
        futures::future::ready(item)
    })
    .boxed()
}

/// From rows by storage name to rows by SQL name.
struct Converter {
    schema: SchemaRef,
    columns: SchemaRef,
}

impl Converter {
    fn new(spec: &ScanSpec) -> Self {
        Self { schema: Arc::clone(&spec.schema), columns: Arc::clone(&spec.columns) }
    }

    fn convert(&self, batch: RecordBatch) -> Result<RecordBatch, SqlError> {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for (position, field) in self.schema.fields().iter().enumerate() {
            let wanted = self.columns.field(position);
            let array = match batch.schema_ref().index_of(wanted.name()) {
                Ok(at) => Arc::clone(batch.column(at)),
                Err(_) => {
                    return Err(SqlError::internal(format!(
                        "the scan did not return column \"{}\"",
                        field.name()
                    )));
                }
            };
            if !field.is_nullable() && array.null_count() > 0 {
                return Err(SqlError::new(
                    "XX001",
                    format!(
                        "column \"{}\" is NOT NULL but a stored row has no value",
                        field.name()
                    ),
                ));
            }
            columns.push(array);
        }
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

/// Opens partitions.
struct Opener {
    spec: ScanSpec,
    router: Arc<Router>,
}

impl Opener {
    /// One stream of a partition; an empty one if the partition did not need so many.
    async fn stream(
        &self,
        part: &Arc<Part>,
        stream: usize,
    ) -> Result<impl Stream<Item = Result<RecordBatch>> + Send + use<>> {
        let opened = self.open(part).await?;
        // What is more than was asked for is dealt to the first ones again.
        let mine: Vec<RowStream> = {
            let mut streams = opened.lock();
            let count = self.spec.streams;
            (stream..streams.len()).step_by(count).filter_map(|at| streams[at].take()).collect()
        };
        let table = Arc::clone(&self.spec.table);
        let partition = part.route.partition;
        Ok(futures::stream::iter(mine).flatten().map_err(move |error| {
            let error = SqlError::from(error);
            let place = format!("table \"{}\", partition {partition}", table.name);
            let detail = error.detail.as_ref().map_or(place.clone(), |d| format!("{place}: {d}"));
            DataFusionError::from(error.with_detail(detail))
        }))
    }

    async fn open<'a>(
        &self,
        part: &'a Arc<Part>,
    ) -> Result<&'a Mutex<Vec<Option<RowStream>>>, SqlError> {
        part.opened
            .get_or_try_init(|| async {
                let replies = self.scan(&part.route).await?;
                let mut streams = Vec::new();
                for reply in replies {
                    part.stats.lock().push(reply.stats);
                    streams.extend(reply.streams.into_iter().map(Some));
                }
                Ok(Mutex::new(streams))
            })
            .await
    }

    /// Scans what a route leads to, and if that is an old route, what is there now.
    async fn scan(&self, route: &Route) -> Result<Vec<ScanReply>, SqlError> {
        let deadline = Instant::now() + self.router.timeout();
        let mut replies = Vec::new();
        let mut routes = vec![route.clone()];
        while let Some(route) = routes.pop() {
            let version = self.router.catalog().version;
            match self.scan_route(&route, deadline).await? {
                Ok(reply) => replies.push(reply),
                Err(stale) => {
                    self.router.metrics().scan_retries.add(1);
                    self.router.newer_catalog(version, deadline).await;
                    if Instant::now() >= deadline {
                        return Err(stale.into());
                    }
                    routes.extend(self.newest_routes(&route.keys, stale)?);
                }
            }
        }
        Ok(replies)
    }

    /// The routes that now lead to a range of keys.
    fn newest_routes(&self, keys: &KeyRange, stale: Error) -> Result<Vec<Route>, SqlError> {
        let table = self
            .router
            .newest(&self.spec.table)
            .ok_or_else(|| SqlError::undefined_table(&self.spec.table.name))?;
        if table.schema.version != self.spec.table.schema.version {
            // The columns asked for may not be there any more: the statement is planned again.
            return Err(stale.into());
        }
        let map = &table.partitions;
        let routes: Vec<Route> = map
            .prune(std::slice::from_ref(keys))
            .into_iter()
            .map(|position| map.routes()[position].clone())
            .collect();
        // A partition that now owns more than the range would bring rows that another one of this
        // plan brings too.
        let within = |route: &Route| route.keys.intersect(keys) == route.keys;
        if routes.iter().all(within) { Ok(routes) } else { Err(stale.into()) }
    }

    /// Scans one route's partition, again and again until its leader answers, or the route turns
    /// out to be an old one (the inner error), or time is up.
    async fn scan_route(
        &self,
        route: &Route,
        deadline: Instant,
    ) -> Result<Result<ScanReply, Error>, SqlError> {
        let leaders = self.router.leaders();
        let mut node = leaders.first(route);
        let mut pause = PAUSE;
        let mut hops = 0;
        loop {
            let error = match self.scan_once(node, route, deadline).await {
                Ok(reply) => {
                    leaders.answered(route.partition, node);
                    return Ok(Ok(reply));
                }
                Err(
                    error @ (Error::StaleRoute { .. }
                    | Error::StaleSchema { .. }
                    | Error::NotFound { kind: "partition", .. }),
                ) => return Ok(Err(error)),
                Err(error) => error,
            };
            if !error.is_retryable() || Instant::now() + pause >= deadline {
                let detail =
                    format!("table \"{}\", partition {}", self.spec.table.name, route.partition);
                let error = self.router.explained(&self.spec.table, route, error);
                return Err(SqlError::from(error).with_detail(detail));
            }
            self.router.metrics().scan_retries.add(1);
            leaders.failed(route.partition, node);
            if let Error::NotLeader { leader: Some(leader), .. } = &error
                && Some(*leader) != node
                && hops < 3
            {
                hops += 1;
                node = Some(*leader);
                continue;
            }
            hops = 0;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
            node = self.next_node(route, node, &error);
        }
    }

    fn next_node(&self, route: &Route, asked: Option<NodeId>, error: &Error) -> Option<NodeId> {
        let newest = self.router.newest(&self.spec.table);
        let found = newest.as_ref().and_then(|table| table.partitions.route(route.partition));
        self.router.leaders().next(found.unwrap_or(route), asked, error)
    }

    async fn scan_once(
        &self,
        node: Option<NodeId>,
        route: &Route,
        deadline: Instant,
    ) -> Result<ScanReply, Error> {
        let node = node.ok_or_else(|| {
            Error::Unavailable(format!("no node is known to hold partition {}", route.partition))
        })?;
        let service = self.router.nodes().node(node)?;
        let request = ScanRequest {
            partition: route.partition,
            epoch: route.epoch,
            columns: Arc::clone(&self.spec.columns),
            domains: self.spec.domains.clone(),
            limit: self.spec.limit,
            parallelism: self.spec.streams,
            newest_only: self.spec.newest_only,
        };
        match tokio::time::timeout_at(deadline, service.scan(request)).await {
            Ok(reply) => reply,
            Err(_) => Err(Error::Timeout("no answer from the partition's leader".to_owned())),
        }
    }
}
