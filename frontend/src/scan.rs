//! Leaf operator that reads a table: its partitions, each at its leader.
//!
//! ```text
//!   partition of the table ── scan request ── streams 0..k ──┐
//!   partition of the table ── scan request ── streams 0..k ──┴── slots, dealt to the plan's outputs
//! ```
//!
//! Invariants:
//! - each partition is opened once, and each of its streams is read by one output of the plan, so every row is
//!   returned exactly once;
//! - a partition that moved or was split before it was opened is looked up again; one that fails after the first row
//!   fails the statement;
//! - with a limit, no output returns more rows than the limit;
//! - with an order, each output returns its rows in it (`ordered.rs`);
//! - with a row predicate ([`RowFilter`]), no other row leaves the scan, whether as a row, in a result of pushed-down
//!   operators, or in a figure: neither statistics nor costs count the rows of others.
//!
//! Operators that were pushed down to the partitions ([`AtData`]) run there: the leaf is then an `AtDataExec`, which
//! returns their result for each stream.

mod opener;
mod ordered;
mod row_filter;
mod shape;
mod spec;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::datatypes::FieldRef;
use arrow::record_batch::RecordBatch;
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, LexOrdering, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::statistics::StatisticsContext;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, StatisticsArgs,
};
use futures::{StreamExt, TryStreamExt};
use partita_lanes::interrupt;
use partita_proto::domain::Domain;
use partita_proto::index::IndexKind;
use partita_proto::key::KeyCodec;
use partita_proto::service::{FirstByTime, IndexKey, IndexUse};
use partita_worker::LeafExec;

use self::opener::{Opener, Part};
pub(crate) use self::row_filter::RowFilter;
use self::shape::{Shape, limited};
pub(crate) use self::spec::{AtData, Reading, ScanSpec, Within};
use crate::error::SqlError;
use crate::predicate;
use crate::query_log::kind_bit;
use crate::reads::Reads;
use crate::view::ClusterView;

/// Partitions that one output opens before it reads them.
const OPEN_AHEAD: usize = 4;
/// The same with operators pushed down, where each partition returns little after some time.
const OPEN_AHEAD_AT_DATA: usize = 16;
/// Assumed rows per series, to estimate a scan of the newest row of each series.
const ROWS_PER_SERIES: usize = 256;

/// Operator that scans some of a table's partitions.
pub(crate) struct PartitionScanExec {
    spec: ScanSpec,
    view: Arc<ClusterView>,
    parts: Vec<Arc<Part>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

/// Cost of scans; see [`PartitionScanExec::usage`].
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
    /// Rows about which indexes were asked.
    pub(crate) index_rows_examined: u64,
    /// Rows that indexes excluded.
    pub(crate) index_rows_skipped: u64,
    /// Kinds of the indexes that were asked, as bits: see [`kind_bit`].
    pub(crate) index_kinds: u8,
    /// Scans of partitions that followers answered.
    pub(crate) by_followers: u64,
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
        self.index_rows_examined += other.index_rows_examined;
        self.index_rows_skipped += other.index_rows_skipped;
        self.index_kinds |= other.index_kinds;
        self.by_followers += other.by_followers;
    }

    /// Returns true if at most one partition was touched.
    pub(crate) fn fast_path(&self) -> bool {
        self.partitions_touched <= 1
    }
}

/// Metric of an operator that used an index of a kind.
const fn index_used(kind: IndexKind) -> &'static str {
    match kind {
        IndexKind::Inverted => "index_used_inverted",
        IndexKind::Skipping => "index_used_skipping",
        IndexKind::Fulltext => "index_used_fulltext",
    }
}

impl PartitionScanExec {
    pub(crate) fn new(spec: ScanSpec, view: Arc<ClusterView>) -> Self {
        let routes = spec.table.partitions.routes();
        let parts = spec
            .touched
            .iter()
            .map(|position| Arc::new(Part::new(routes[*position].clone())))
            .collect();
        let equivalences = match &spec.order {
            Some(order) => EquivalenceProperties::new_with_orderings(
                spec.output_schema(),
                [order.ordering.clone()],
            ),
            None => EquivalenceProperties::new(spec.output_schema()),
        };
        let properties = PlanProperties::new(
            equivalences,
            Partitioning::UnknownPartitioning(spec.outputs.max(1)),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            spec,
            view,
            parts,
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    /// The scan for a query of the newest row of each series, and the knowledge about its columns within one series;
    /// `None` if the table has no such order, or the domains may exclude the newest row.
    pub(crate) fn newest_only(&self) -> Option<(Self, Vec<Within>)> {
        let schema = &self.spec.table.schema;
        let time = schema.time_index()?;
        if schema.options.append_mode
            || schema.key.last() != Some(&time.id)
            || self.spec.limit.is_some()
            || self.spec.at_data.is_some()
            || self.spec.first_by_time.is_some()
            || self.spec.order.is_some()
            || !self.keeps_newest(&time.storage_name)
        {
            return None;
        }
        let knowledge = |field: &FieldRef| match schema.column(field.name()) {
            Some(column) if column.id == time.id => Within::Time,
            Some(column) if schema.key.contains(&column.id) => Within::Same,
            _ => Within::Other,
        };
        let columns = self.spec.schema.fields().iter().map(knowledge).collect();
        let spec = ScanSpec {
            newest_only: true,
            // An index could leave out the newest row of a series, and an older one would take its place.
            probes: Vec::new(),
            outputs: self.parts.len().min(self.spec.outputs).max(1),
            streams: 1,
            rows: self.spec.rows.map(|rows| rows.div_ceil(ROWS_PER_SERIES)),
            ..self.spec.clone()
        };
        Some((Self::new(spec, Arc::clone(&self.view)), columns))
    }

    /// Returns true if the domains include the newest row of every series of which they include any: they restrict
    /// the key, and the time only from below.
    fn keeps_newest(&self, time: &str) -> bool {
        let schema = &self.spec.table.schema;
        let no_end = |domain: &Domain| matches!(domain.intervals(), [interval] if interval.high == Bound::Unbounded);
        self.spec.domains.iter().all(|(name, domain)| {
            let column = schema.columns.iter().find(|column| column.storage_name == name);
            column.is_none_or(|column| {
                schema.key.contains(&column.id) && (name != time || no_end(domain))
            })
        })
    }

    /// The scan restricted to its first rows by time; `None` if the column at that position is not the time index, or
    /// the rows of the request are not those of the scan.
    pub(crate) fn first_by_time(&self, column: usize, first: FirstByTime) -> Option<Self> {
        let spec = &self.spec;
        let time = spec.table.schema.time_index()?;
        let field = spec.schema.fields().get(column)?;
        let is_time = *field.name() == time.name && !time.nullable;
        if !is_time
            || spec.newest_only
            || spec.row_filter.is_some()
            || spec.at_data.is_some()
            || spec.limit.is_some()
            || spec.order.is_some()
        {
            return None;
        }
        let spec = ScanSpec { first_by_time: Some(first), ..spec.clone() };
        Some(Self::new(spec, Arc::clone(&self.view)))
    }

    /// The scan in an order of its columns, of which the first `fetch` rows are needed; `None` if keys do not give that
    /// order, or the scan leaves out rows already.
    ///
    /// # Errors
    /// Fails if the table's key is not valid.
    pub(crate) fn in_order(
        &self,
        sort: &LexOrdering,
        fetch: Option<usize>,
    ) -> Result<Option<Self>, SqlError> {
        if self.is_empty() {
            return Ok(None);
        }
        let spec = ordered::in_order(&self.spec, sort, fetch)?;
        Ok(spec.map(|spec| Self::new(spec, Arc::clone(&self.view))))
    }

    /// Domain of the time index; `None`: all of it.
    pub(crate) fn time_domain(&self) -> Option<&Domain> {
        let time = self.spec.table.schema.time_index()?;
        self.spec.domains.get(&time.storage_name)
    }

    /// The scan restricted to a domain of the time index; `None` if the scan has a limit, an order, pushed-down
    /// operators, or reads newest rows only.
    ///
    /// # Errors
    /// Fails if the table's key is not valid.
    pub(crate) fn within_time(&self, span: &Domain) -> Result<Option<Self>, SqlError> {
        let spec = &self.spec;
        let table = &spec.table;
        let Some(time) = table.schema.time_index() else { return Ok(None) };
        if spec.newest_only
            || spec.at_data.is_some()
            || spec.limit.is_some()
            || spec.order.is_some()
        {
            return Ok(None);
        }
        let mut domains = spec.domains.clone();
        domains.restrict(&time.storage_name, span.clone());
        let codec = KeyCodec::new(&table.schema, &table.placement)?;
        let ranges = codec.key_ranges(&table.schema, &table.placement, &domains);
        let touched = table.partitions.prune(&ranges);
        let outputs = spec.outputs.min(touched.len() * spec.streams).max(1);
        let spec = ScanSpec { domains, touched, outputs, ..spec.clone() };
        Ok(Some(Self::new(spec, Arc::clone(&self.view))))
    }

    /// The scan with operators pushed down to its partitions.
    pub(crate) fn with_at_data(&self, at_data: AtData) -> Self {
        let spec = ScanSpec { at_data: Some(at_data), ..self.spec.clone() };
        Self::new(spec, Arc::clone(&self.view))
    }

    /// The placeholder of the scan in a fragment, below the operators of which the row filter is.
    pub(crate) fn placeholder(&self) -> Result<Arc<dyn ExecutionPlan>> {
        match &self.spec.row_filter {
            Some(filter) => filter.over(Arc::new(LeafExec::new(Arc::clone(filter.schema()), 1))),
            None => Ok(Arc::new(LeafExec::new(Arc::clone(&self.spec.schema), 1))),
        }
    }

    /// Returns true if operators may be pushed down to the partitions. Requests without a limit return more rows than
    /// the scan, which operators below must not see; results of operators there are in no order.
    pub(crate) fn accepts_operators(&self) -> bool {
        let spec = &self.spec;
        spec.at_data.is_none() && spec.order.is_none() && spec.request_limit() == spec.limit
    }

    pub(crate) fn spec(&self) -> &ScanSpec {
        &self.spec
    }

    /// Returns true if no partition can hold a row.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns true if the scan reads one key.
    pub(crate) fn is_lookup(&self) -> bool {
        let mut key = self.spec.table.schema.key_columns().peekable();
        let bound = |storage_name: &str| {
            self.spec.domains.get(storage_name).is_some_and(|domain| domain.as_points(1).is_some())
        };
        key.peek().is_some() && key.all(|column| bound(&column.storage_name))
    }

    /// Returns true if the rows come from other processes.
    pub(crate) fn is_remote(&self) -> bool {
        self.view.nodes().remote()
    }

    /// Cost of the scan so far. With a row predicate it is not shown: files and partitions hold the rows of others.
    pub(crate) fn usage(&self) -> Usage {
        if self.spec.row_filter.is_some() {
            return Usage { scans: 1, ..Usage::default() };
        }
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
                usage.by_followers += stats.by_followers.load(Ordering::Relaxed);
            }
        }
        for ((_, kind), used) in self.index_use() {
            usage.index_rows_examined += used.examined;
            usage.index_rows_skipped += used.skipped;
            usage.index_kinds |= kind_bit(kind);
        }
        usage
    }

    /// Use of each index so far; empty with a row predicate, as [`PartitionScanExec::usage`].
    pub(crate) fn index_use(&self) -> BTreeMap<IndexKey, IndexUse> {
        let mut sums = BTreeMap::<IndexKey, IndexUse>::new();
        if self.spec.row_filter.is_some() {
            return sums;
        }
        for part in &self.parts {
            for stats in part.stats.lock().iter() {
                for (key, used) in stats.indexes.lock().iter() {
                    sums.entry(key.clone()).or_default().add(used);
                }
            }
        }
        sums
    }

    /// Rows that the scan has returned so far.
    pub(crate) fn rows_returned(&self) -> u64 {
        self.metrics.clone_inner().output_rows().map_or(0, |rows| rows as u64)
    }

    /// Opens all partitions, so that the scan does not see later writes. With `reads`, the rows are read to be written
    /// under a condition.
    ///
    /// # Errors
    /// As of reading; 0A000 if a node of an earlier version has to be read for an update.
    pub(crate) async fn pin(&self, reads: Option<&Reads>) -> Result<(), SqlError> {
        let opener = Opener { for_update: reads.is_some(), ..self.opener() };
        for part in &self.parts {
            opener.open(part).await?;
            let Some(reads) = reads else { continue };
            for (partition, epoch, index) in part.positions.lock().iter() {
                if *index == 0 {
                    return Err(SqlError::unsupported(format!(
                        "UPDATE of partition {partition}, whose node has an earlier version,"
                    )));
                }
                reads.note(*partition, *epoch, *index);
            }
        }
        Ok(())
    }

    fn opener(&self) -> Opener {
        Opener { spec: self.spec.clone(), view: Arc::clone(&self.view), for_update: false }
    }

    /// The streams that an output reads, one after the other.
    fn slots(&self, output: usize) -> Vec<(Arc<Part>, usize)> {
        let spec = &self.spec;
        if let Some(order) = &spec.order {
            let parts = order.outputs.get(output).into_iter().flatten();
            return parts.map(|position| (Arc::clone(&self.parts[*position]), 0)).collect();
        }
        // Streams of partitions are dealt round-robin to the outputs.
        let streams = self
            .parts
            .iter()
            .flat_map(|part| (0..spec.streams).map(move |stream| (Arc::clone(part), stream)));
        streams.skip(output).step_by(spec.outputs.max(1)).collect()
    }

    /// Number of partitions that an output opens before it reads them.
    fn open_ahead(&self) -> usize {
        match &self.spec {
            ScanSpec { at_data: Some(_), .. } => OPEN_AHEAD_AT_DATA,
            // The first partition probably has enough rows.
            ScanSpec { order: Some(_), limit: Some(_), .. } => 1,
            _ => OPEN_AHEAD,
        }
    }

    fn describe(&self) -> String {
        let spec = &self.spec;
        let columns: Vec<_> =
            spec.schema.fields().iter().map(|field| field.name().as_str()).collect();
        let source = spec.named();
        let mut text = format!("table={}.{}", source.database, source.name);
        if spec.in_place_of.is_some() {
            text.push_str(&format!(", copy={}", spec.table.name));
        }
        // With a row predicate, the partitions are hidden.
        match &spec.row_filter {
            Some(filter) => text.push_str(&format!(", rows=[{}]", filter.text())),
            None => text.push_str(&format!(
                ", partitions={}/{}, fast_path={}",
                self.parts.len(),
                spec.table.partitions.routes().len(),
                self.parts.len() <= 1,
            )),
        }
        text.push_str(&format!(", projection=[{}]", columns.join(", ")));
        // Optional properties are shown only where they matter.
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
        if !spec.probes.is_empty() {
            let probes: Vec<_> = spec
                .probes
                .iter()
                .map(|probe| cut(predicate::shown(probe, &spec.table.schema)))
                .collect();
            text.push_str(&format!(", probes=[{}]", probes.join(", ")));
        }
        if spec.newest_only {
            text.push_str(", newest_only=true");
        }
        if !spec.reading.staleness_max.is_zero() {
            text.push_str(&format!(", max_staleness={:?}", spec.reading.staleness_max));
        }
        if spec.reading.uncollected && spec.table.schema.options.wide.is_some() {
            text.push_str(", uncollected=true");
        }
        if let Some(FirstByTime { rows, descending }) = spec.first_by_time {
            let direction = if descending { "DESC" } else { "ASC" };
            text.push_str(&format!(", first_by_time={rows} {direction}"));
        }
        if let Some(order) = &spec.order {
            let direction = if order.keys.descending { "DESC" } else { "ASC" };
            let nulls = match (order.keys.nulls_apart, order.keys.descending) {
                (false, _) => "",
                (true, false) => " NULLS LAST",
                (true, true) => " NULLS FIRST",
            };
            text.push_str(&format!(", key_order={direction}{nulls}"));
        }
        if let Some(limit) = spec.limit {
            text.push_str(&format!(", fetch={limit}"));
        }
        text
    }

    fn describe_domain(&self, storage_name: &str, domain: &Domain) -> String {
        let columns = &self.spec.table.schema.columns;
        let column = columns.iter().find(|column| column.storage_name == storage_name);
        let name = column.map_or(storage_name, |column| column.name.as_str());
        cut(format!("{name} in {domain}"))
    }
}

/// Maximum bytes of a domain or probe in EXPLAIN; longer ones are cut.
const DOMAIN_TEXT_MAX: usize = 200;

/// Cuts the text of a domain or probe.
fn cut(mut text: String) -> String {
    if text.len() > DOMAIN_TEXT_MAX {
        text.truncate(text.floor_char_boundary(DOMAIN_TEXT_MAX));
        text.push_str("..");
    }
    text
}

impl fmt::Debug for PartitionScanExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartitionScanExec({})", self.describe())
    }
}

impl DisplayAs for PartitionScanExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match kind {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                if let Some(at_data) = &self.spec.at_data {
                    write!(f, "AtDataExec: {at_data} <- ")?;
                }
                write!(f, "PartitionScanExec: {}", self.describe())
            }
            DisplayFormatType::TreeRender => {
                let table = &self.spec.table;
                let total = table.partitions.routes().len();
                let source = self.spec.named();
                writeln!(f, "table={}.{}", source.database, source.name)?;
                if self.spec.in_place_of.is_some() {
                    writeln!(f, "copy={}", table.name)?;
                }
                match &self.spec.row_filter {
                    Some(filter) => writeln!(f, "rows={}", filter.text()),
                    None => writeln!(f, "partitions={}/{total}", self.parts.len()),
                }
            }
        }
    }
}

impl ExecutionPlan for PartitionScanExec {
    fn name(&self) -> &'static str {
        if self.spec.at_data.is_some() { "AtDataExec" } else { "PartitionScanExec" }
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

    // A plan that runs again opens its partitions again.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(self.spec.clone(), Arc::clone(&self.view))))
    }

    // An estimate, for the order of joins.
    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        if let Some(at_data) = &self.spec.at_data {
            return StatisticsContext::new().compute(at_data.chain.as_ref(), args);
        }
        let mut statistics = Statistics::new_unknown(&self.spec.schema);
        if let Some(rows) = self.spec.rows {
            let rows = rows.min(self.spec.limit.unwrap_or(usize::MAX));
            let outputs = args.partition().map_or(1, |_| self.spec.outputs.max(1));
            statistics.num_rows = Precision::Inexact(rows.div_ceil(outputs));
        }
        Ok(Arc::new(statistics))
    }

    fn fetch(&self) -> Option<usize> {
        // The limit applies to scanned rows; pushed-down operators return another number of rows.
        if self.spec.at_data.is_some() { None } else { self.spec.limit }
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let spec = &self.spec;
        if spec.newest_only || spec.at_data.is_some() || spec.first_by_time.is_some() {
            return None;
        }
        let spec = ScanSpec { limit, ..self.spec.clone() };
        Some(Arc::new(Self::new(spec, Arc::clone(&self.view))))
    }

    fn execute(
        &self,
        output: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let opener = Arc::new(self.opener());
        let shape = Arc::new(Shape::of(&self.spec));
        let baseline = Arc::new(BaselineMetrics::new(&self.metrics, output));
        let convert = move |batch: Result<RecordBatch>| -> Result<RecordBatch> {
            let timer = baseline.elapsed_compute().timer();
            interrupt::check().map_err(|reason| DataFusionError::External(Box::new(reason)))?;
            let batch = shape.give(&batch?)?;
            timer.done();
            Ok(batch.record_output(&baseline))
        };
        // Open some partitions ahead, and read their streams in order.
        let rows = futures::stream::iter(self.slots(output))
            .map(move |(part, stream)| {
                let (opener, context) = (Arc::clone(&opener), Arc::clone(&context));
                let convert = convert.clone();
                async move {
                    let (rows, in_order) = opener.stream(&part, stream).await?;
                    let rows = rows.map(convert).boxed();
                    match &opener.spec.order {
                        Some(order) if !in_order => {
                            ordered::sorted(rows, &opener.spec, order, &context)
                        }
                        _ => Ok(rows),
                    }
                }
            })
            .buffered(self.open_ahead())
            .try_flatten();
        let rows = limited(rows, self.fetch());
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.spec.output_schema(), rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        if self.spec.row_filter.is_some() {
            return Some(self.metrics.clone_inner());
        }
        let usage = self.usage();
        let extra = ExecutionPlanMetricsSet::new();
        let count = |name: &'static str, value: u64| {
            let value = usize::try_from(value).unwrap_or(usize::MAX);
            MetricBuilder::new(&extra).global_counter(name).add(value);
        };
        count("partitions_touched", usage.partitions_touched);
        count("partitions_total", usage.partitions_total);
        if usage.by_followers > 0 {
            count("partitions_by_followers", usage.by_followers);
        }
        count("rows_scanned", usage.rows_scanned);
        count("bytes_scanned", usage.bytes_scanned);
        count("files_read", usage.files_read);
        count("files_pruned", usage.files_pruned);
        count("row_groups_pruned", usage.row_groups_pruned);
        count("index_rows_examined", usage.index_rows_examined);
        count("index_rows_skipped", usage.index_rows_skipped);
        for kind in IndexKind::ALL {
            if usage.index_kinds & kind_bit(kind) != 0 {
                count(index_used(kind), 1);
            }
        }
        let mut metrics = self.metrics.clone_inner();
        for metric in extra.clone_inner().iter() {
            metrics.push(Arc::clone(metric));
        }
        Some(metrics)
    }
}
