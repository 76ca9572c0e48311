//! Partial aggregates that look up a group once for adjacent rows.
//!
//! ```text
//!   AggregateExec: mode=Partial        GroupRunsExec: mode=Partial
//!     rows in key order           ->     ├─ batches of long runs: a group is looked up once per run
//!                                        └─ other batches: DataFusion's AggregateExec
//! ```
//!
//! DataFusion hashes the group of every row and compares it with the one in its table. Rows come in key order, so those
//! of one group (a host's rows of one hour) are mostly adjacent and form a **run**: finding where the next run begins
//! is a comparison of two columns with themselves, a tenth of the cost. The rows of a run are added to the accumulator
//! of one group, which `runs.rs` makes cheap too.
//!
//! Invariants:
//! - the output has the schema of the replaced operator's partial states; a group may occur more than once, as it does
//!   when DataFusion's operator runs short of memory, and the final aggregate combines them;
//! - the table is bounded by a batch of groups and by `BYTES_MAX`, plus one batch of rows: when either is reached, all
//!   groups are emitted. Aggregates that need more memory are left to DataFusion, under its rules;
//! - rows form a run only if their groups are not distinct by SQL's rules; DataFusion's table of groups decides whether
//!   two runs belong to one group.

use std::fmt;
use std::sync::Arc;
use std::task::Poll;

use arrow::array::{ArrayRef, AsArray, BooleanArray, UInt32Array};
use arrow::compute::{partition, take};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::group_values::{GroupValues, new_group_values};
use datafusion::physical_plan::aggregates::order::GroupOrdering;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, Metric, MetricBuilder, MetricValue, MetricsSet,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputOrderMode, PlanProperties,
};
use futures::StreamExt;
use parking_lot::Mutex;

/// Minimum average rows of a run: with fewer, finding runs costs more than it saves.
const ROWS_PER_RUN_MIN: usize = if cfg!(test) { 3 } else { 8 };
/// Minimum rows of a batch: the cost of smaller ones is not per row.
const ROWS_MIN: usize = if cfg!(test) { 6 } else { 512 };
/// Where batches have no long runs, at least one in so many is examined.
const UNSEEN_MAX: u32 = 64;
/// Maximum memory of one stream's groups, before a batch of rows is added; it is not accounted to a pool.
const BYTES_MAX: usize = if cfg!(test) { 64 << 10 } else { 4 << 20 };
/// Functions whose states are no larger than a value, whatever their input, and do not depend on the order of rows.
const FUNCTIONS: [&str; 5] = ["avg", "count", "max", "min", "sum"];

/// Replaces partial aggregates in plans; must be the last rule.
#[derive(Debug)]
pub struct GroupRuns;

impl PhysicalOptimizerRule for GroupRuns {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        by_runs(plan)
    }

    fn name(&self) -> &'static str {
        "GroupRuns"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Replaces the partial aggregates of a plan where runs can be used.
pub(crate) fn by_runs(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|plan| {
        if !plan.downcast_ref::<AggregateExec>().is_some_and(can_be_done) {
            return Ok(Transformed::no(plan));
        }
        Ok(Transformed::yes(Arc::new(GroupRunsExec::new(plan))))
    })
    .data()
}

/// Returns true for a partial aggregate of functions in `FUNCTIONS` over groups that can be compared.
fn can_be_done(aggregate: &AggregateExec) -> bool {
    // Runs are found by comparing adjacent values, which not all types allow.
    let groups = aggregate.group_expr();
    let schema = aggregate.input_schema();
    let comparable = |expr: &Arc<dyn PhysicalExpr>| {
        expr.data_type(&schema).is_ok_and(|data_type| {
            data_type.is_primitive()
                || matches!(
                    data_type,
                    DataType::Boolean
                        | DataType::Utf8
                        | DataType::LargeUtf8
                        | DataType::Utf8View
                        | DataType::Binary
                        | DataType::LargeBinary
                        | DataType::BinaryView
                )
        })
    };
    // Grouping sets, limits, distinct arguments and ordered ones are left to DataFusion.
    *aggregate.mode() == AggregateMode::Partial
        && *aggregate.input_order_mode() == InputOrderMode::Linear
        && aggregate.limit_options().is_none()
        && groups.is_single()
        && !groups.expr().is_empty()
        && groups.expr().iter().all(|(expr, _)| comparable(expr))
        && aggregate.aggr_expr().iter().all(|function| {
            FUNCTIONS.contains(&function.fun().name())
                && !function.is_distinct()
                && function.order_bys().is_empty()
                && function.groups_accumulator_supported()
        })
}

/// A partial aggregate that looks groups up by runs.
#[derive(Debug)]
struct GroupRunsExec {
    /// The operator that this one replaces.
    replaced: Arc<dyn ExecutionPlan>,
    /// The replaced operator over the batches without long runs, for each partition that runs; kept for its metrics.
    fallbacks: Mutex<Vec<Arc<dyn ExecutionPlan>>>,
    metrics: ExecutionPlanMetricsSet,
}

impl GroupRunsExec {
    fn new(replaced: Arc<dyn ExecutionPlan>) -> Self {
        Self { replaced, fallbacks: Mutex::default(), metrics: ExecutionPlanMetricsSet::new() }
    }

    fn aggregate(&self) -> Result<&AggregateExec> {
        self.replaced.downcast_ref::<AggregateExec>().ok_or_else(|| {
            DataFusionError::Internal("GroupRunsExec does not replace an aggregate".to_owned())
        })
    }
}

impl DisplayAs for GroupRunsExec {
    fn fmt_as(&self, form: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Replaced<'a>(&'a dyn ExecutionPlan, DisplayFormatType);
        impl fmt::Display for Replaced<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt_as(self.1, f)
            }
        }
        let text = Replaced(self.replaced.as_ref(), form).to_string();
        match text.strip_prefix(self.replaced.name()) {
            Some(rest) => write!(f, "{}{rest}", self.name()),
            // In the tree format the name is elsewhere.
            None => f.write_str(&text),
        }
    }
}

impl ExecutionPlan for GroupRunsExec {
    fn name(&self) -> &'static str {
        "GroupRunsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.replaced.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.replaced.children()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let replaced = replace_children_if_necessary(Arc::clone(&self.replaced), children)?;
        Ok(Arc::new(Self::new(replaced)))
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.replaced.apply_expressions(visit)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        let mut metrics = self.metrics.clone_inner();
        for fallback in self.fallbacks.lock().iter().filter_map(|fallback| fallback.metrics()) {
            // Output rows are counted by this operator.
            let worked = |metric: &&Arc<Metric>| {
                matches!(metric.value(), MetricValue::ElapsedCompute(_))
                    || metric.value().name() == "skipped_aggregation_rows"
            };
            fallback.iter().filter(worked).for_each(|metric| metrics.push(Arc::clone(metric)));
        }
        Some(metrics)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        // Batches with long runs go into the table.
        let aggregate = self.aggregate()?;
        let schema = aggregate.schema();
        let groups_max = context.session_config().batch_size();
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let in_runs = MetricBuilder::new(&self.metrics).counter("rows_in_runs", partition);
        let table = Arc::new(Mutex::new(Table::new(aggregate, groups_max)?));

        // DataFusion's operator aggregates the remaining batches.
        let rows = aggregate.input().execute(partition, Arc::clone(&context))?;
        let rest = left_over(rows, Arc::clone(&table), metrics.clone(), in_runs);
        let rest = Once { schema: aggregate.input().schema(), rows: Mutex::new(Some(rest)) };
        let rest = StreamingTableExec::try_new(
            Arc::clone(&rest.schema),
            vec![Arc::new(rest)],
            None,
            None,
            false,
            None,
        )?;
        let fallback =
            replace_children_if_necessary(Arc::clone(&self.replaced), vec![Arc::new(rest)])?;
        self.fallbacks.lock().push(Arc::clone(&fallback));
        let mut fallback = fallback.execute(0, context)?;

        // The fallback's states come first; the table is emitted when it is full and at the end.
        let mut ended = false;
        let states = futures::stream::poll_fn(move |context| {
            let next = match ended {
                true => Poll::Ready(None),
                false => fallback.poll_next_unpin(context),
            };
            let next = match next {
                Poll::Ready(Some(states)) => Poll::Ready(Some(states)),
                Poll::Ready(None) => {
                    ended = true;
                    Poll::Ready(table.lock().last().transpose())
                }
                Poll::Pending => match table.lock().full.take() {
                    Some(full) => Poll::Ready(Some(Ok(full))),
                    None => Poll::Pending,
                },
            };
            metrics.record_poll(next)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, states)))
    }
}

/// Returns the batches without long runs; the others go into the table.
fn left_over(
    rows: SendableRecordBatchStream,
    table: Arc<Mutex<Table>>,
    metrics: BaselineMetrics,
    in_runs: Count,
) -> SendableRecordBatchStream {
    let schema = rows.schema();
    let rest = rows.filter_map(move |batch| {
        let remaining = batch.and_then(|batch| {
            let _timer = metrics.elapsed_compute().timer();
            let grouped = table.lock().take(&batch)?;
            in_runs.add(if grouped { batch.num_rows() } else { 0 });
            Ok((!grouped).then_some(batch))
        });
        async move {
            let remaining = remaining.transpose();
            if remaining.is_none() {
                // Yields, so that the consumer can take a full table before the next batch is read.
                tokio::task::yield_now().await;
            }
            remaining
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rest))
}

/// A stream as the only partition of a leaf.
struct Once {
    schema: SchemaRef,
    rows: Mutex<Option<SendableRecordBatchStream>>,
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a stream")
    }
}

impl PartitionStream for Once {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        self.rows.lock().take().unwrap_or_else(|| {
            let twice = DataFusionError::Internal("stream read twice".to_owned());
            let failed = futures::stream::once(async { Err(twice) });
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), failed))
        })
    }
}

/// A function of an aggregate, with the states of all groups.
struct Function {
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    filter: Option<Arc<dyn PhysicalExpr>>,
    groups: Box<dyn GroupsAccumulator>,
}

/// Groups of runs, and the states of the functions for each.
struct Table {
    /// Schema of the partial states: columns of groups, then of functions.
    schema: SchemaRef,
    group_exprs: Vec<Arc<dyn PhysicalExpr>>,
    groups: Box<dyn GroupValues>,
    functions: Vec<Function>,
    groups_max: usize,
    attention: Attention,
    /// States of a table that was full, until they are emitted.
    full: Option<RecordBatch>,
    /// Group of each run, and of each row of a batch; kept to reuse the memory.
    run_groups: Vec<usize>,
    row_groups: Vec<usize>,
}

impl Table {
    fn new(aggregate: &AggregateExec, groups_max: usize) -> Result<Self> {
        let group_by = aggregate.group_expr();
        let groups = new_group_values(
            group_by.group_schema(&aggregate.input_schema())?,
            &GroupOrdering::None,
        )?;
        let functions = aggregate.aggr_expr().iter().zip(aggregate.filter_expr());
        let functions = functions.map(|(function, filter)| {
            Ok(Function {
                arguments: function.expressions(),
                filter: filter.clone(),
                groups: function.create_groups_accumulator()?,
            })
        });
        Ok(Self {
            schema: aggregate.schema(),
            group_exprs: group_by.expr().iter().map(|(expr, _)| Arc::clone(expr)).collect(),
            groups,
            functions: functions.collect::<Result<_>>()?,
            groups_max: groups_max.max(1),
            attention: Attention::default(),
            full: None,
            run_groups: Vec::new(),
            row_groups: Vec::new(),
        })
    }

    /// Adds rows to their groups and returns true if their runs are long; otherwise does nothing.
    fn take(&mut self, batch: &RecordBatch) -> Result<bool> {
        let rows = batch.num_rows();
        // Until a full table has been emitted, all batches take the other path.
        if rows < ROWS_MIN || self.full.is_some() || !self.attention.looks() {
            return Ok(false);
        }
        let keys = evaluated(&self.group_exprs, batch)?;
        let runs = partition(&keys)?;
        let long = rows / ROWS_PER_RUN_MIN >= runs.len();
        self.attention.saw(long);
        if !long {
            return Ok(false);
        }
        let runs = runs.ranges();
        // The table must not outgrow its bounds.
        if self.groups.len() + runs.len() > self.groups_max || self.bytes() > BYTES_MAX {
            self.full = self.given_out()?;
        }
        // Look up the group of each run by its first row.
        let heads: UInt32Array = runs.iter().map(|run| u32::try_from(run.start).ok()).collect();
        let heads = keys.iter().map(|column| take(column, &heads, None));
        let heads = heads.collect::<std::result::Result<Vec<_>, _>>()?;
        self.groups.intern(&heads, &mut self.run_groups)?;
        self.row_groups.clear();
        for (run, group) in runs.iter().zip(&self.run_groups) {
            self.row_groups.resize(run.end, *group);
        }
        // Update each function with the group of each row.
        for function in &mut self.functions {
            let arguments = evaluated(&function.arguments, batch)?;
            let filter = function.filter.iter().map(|filter| evaluated_one(filter, batch));
            let filter = filter.collect::<Result<Vec<_>>>()?;
            let filter: Option<&BooleanArray> = filter.first().map(|filter| filter.as_boolean());
            let total = self.groups.len();
            function.groups.update_batch(&arguments, &self.row_groups, filter, total)?;
        }
        Ok(true)
    }

    /// Memory of groups and states, in bytes.
    fn bytes(&self) -> usize {
        let states = self.functions.iter().map(|function| function.groups.size());
        self.groups.size() + states.sum::<usize>()
    }

    /// Returns the states of all groups and clears the table; `None` if it is empty.
    fn given_out(&mut self) -> Result<Option<RecordBatch>> {
        if self.groups.is_empty() {
            return Ok(None);
        }
        let mut columns = self.groups.emit(EmitTo::All)?;
        self.groups.clear_shrink(self.groups_max);
        for function in &mut self.functions {
            columns.extend(function.groups.state(EmitTo::All)?);
        }
        Ok(Some(RecordBatch::try_new(Arc::clone(&self.schema), columns)?))
    }

    /// Returns the remaining states when there are no more rows, batch by batch.
    fn last(&mut self) -> Result<Option<RecordBatch>> {
        match self.full.take() {
            Some(full) => Ok(Some(full)),
            None => self.given_out(),
        }
    }
}

fn evaluated(exprs: &[Arc<dyn PhysicalExpr>], batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
    exprs.iter().map(|expr| evaluated_one(expr, batch)).collect()
}

fn evaluated_one(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<ArrayRef> {
    expr.evaluate(batch)?.into_array(batch.num_rows())
}

/// Selects the batches that are examined: all, until one has no long runs; then fewer and fewer.
#[derive(Debug, Default)]
struct Attention {
    unseen: u32,
    remaining: u32,
}

impl Attention {
    /// Returns true if the next batch is to be examined.
    fn looks(&mut self) -> bool {
        let looks = self.remaining == 0;
        self.remaining = self.remaining.saturating_sub(1);
        looks
    }

    /// Records whether the examined batch had long runs.
    fn saw(&mut self, long: bool) {
        self.unseen = if long { 0 } else { (self.unseen * 2 + 1).min(UNSEEN_MAX - 1) };
        self.remaining = self.unseen;
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int64Array, StringViewArray, TimestampNanosecondArray};
    use arrow::datatypes::{Field, Schema, TimeUnit};
    use arrow::util::pretty::pretty_format_batches;
    use datafusion::datasource::MemTable;
    use datafusion::execution::{FunctionRegistry, SessionStateBuilder};
    use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
    use datafusion::physical_plan::{collect, displayable};
    use datafusion::prelude::{SessionConfig, SessionContext};
    use proptest::prelude::*;

    use super::*;
    use crate::aggregates;

    /// A row: host, seconds, a value.
    type Row = (Option<u8>, i64, Option<i32>);

    const QUERIES: [&str; 8] = [
        "SELECT host, date_trunc('minute', time) AS m, avg(v), sum(v), count(v), count(*) FROM t GROUP BY host, m",
        "SELECT host, min(v), max(v), min(host), max(time) FROM t GROUP BY host",
        "SELECT date_trunc('minute', time) AS m, sum(n), avg(v) FILTER (WHERE n > 10) FROM t GROUP BY m",
        "SELECT DISTINCT host FROM t",
        "SELECT v, count(*) FROM t GROUP BY v",
        "SELECT n, sum(v) FROM t GROUP BY n",
        "SELECT host, count(DISTINCT v), stddev(v) FROM t GROUP BY host",
        "SELECT host, v > 3 AS more, count(*) FROM t WHERE n % 3 <> 1 GROUP BY ROLLUP (host, more)",
    ];

    fn context(streams: &[&[Row]], batch_rows: usize, own: bool) -> SessionContext {
        let schema = Arc::new(Schema::new(vec![
            Field::new("host", DataType::Utf8View, true),
            Field::new("time", DataType::Timestamp(TimeUnit::Nanosecond, None), false),
            Field::new("v", DataType::Float64, true),
            Field::new("n", DataType::Int64, false),
        ]));
        let batch = |rows: &[Row]| {
            let hosts: StringViewArray =
                rows.iter().map(|row| row.0.map(|host| format!("host_{host}"))).collect();
            let times: TimestampNanosecondArray =
                rows.iter().map(|row| Some(row.1 * 1_000_000_000)).collect();
            // Whole numbers: exact in any order.
            let values: Float64Array = rows.iter().map(|row| row.2.map(f64::from)).collect();
            let numbers: Int64Array = (0..).take(rows.len()).map(Some).collect();
            let columns = vec![
                Arc::new(hosts) as ArrayRef,
                Arc::new(times),
                Arc::new(values),
                Arc::new(numbers),
            ];
            RecordBatch::try_new(Arc::clone(&schema), columns).unwrap()
        };
        let streams = streams.iter().map(|rows| rows.chunks(batch_rows).map(batch).collect());
        let config = SessionConfig::new()
            .with_batch_size(batch_rows)
            .with_round_robin_repartition(false)
            .with_target_partitions(2);
        let mut rules = PhysicalOptimizer::new().rules;
        if own {
            rules.push(Arc::new(GroupRuns));
        }
        let mut state = SessionStateBuilder::new()
            .with_config(config)
            .with_default_features()
            .with_physical_optimizer_rules(rules)
            .build();
        for function in aggregates::replaced() {
            let _replaced = state.register_udaf(function).unwrap();
        }
        let context = SessionContext::new_with_state(state);
        let table = MemTable::try_new(Arc::clone(&schema), streams.collect()).unwrap();
        context.register_table("t", Arc::new(table)).unwrap();
        context
    }

    async fn plan(context: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
        context.sql(sql).await.unwrap().create_physical_plan().await.unwrap()
    }

    async fn answer(context: &SessionContext, sql: &str) -> Vec<String> {
        let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
        let table = pretty_format_batches(&batches).unwrap().to_string();
        let mut lines: Vec<String> = table.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }

    fn find(plan: &Arc<dyn ExecutionPlan>) -> Option<&GroupRunsExec> {
        let below = || plan.children().into_iter().find_map(find);
        plan.downcast_ref::<GroupRunsExec>().or_else(below)
    }

    /// Number of a plan's input rows that were added by runs.
    async fn rows_in_runs(context: &SessionContext, sql: &str) -> usize {
        let plan = plan(context, sql).await;
        let _rows = collect(Arc::clone(&plan), context.task_ctx()).await.unwrap();
        let metrics = find(&plan).unwrap().metrics().unwrap();
        metrics.sum_by_name("rows_in_runs").unwrap().as_usize()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn runs_have_the_groups_that_rows_have(
            runs in prop::collection::vec((prop::option::of(0_u8..4), 0_i64..300, 1_usize..30), 0..30),
            batch_rows in 1_usize..60,
            values in prop::collection::vec(prop::option::weighted(0.9, -9_i32..9), 900),
            cut in 0.0..1.0_f64,
        ) {
            let mut rows: Vec<Row> = Vec::new();
            for (host, from, length) in runs {
                let from_value = rows.len();
                rows.extend((0..length).map(|at| {
                    let time = from + i64::try_from(at).unwrap();
                    (host, time, values[(from_value + at) % values.len()])
                }));
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "small")]
            let cut = (rows.len() as f64 * cut) as usize;
            let streams = [&rows[..cut], &rows[cut..]];
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            for sql in QUERIES {
                let own = runtime.block_on(answer(&context(&streams, batch_rows, true), sql));
                let theirs = runtime.block_on(answer(&context(&streams, batch_rows, false), sql));
                prop_assert_eq!(own, theirs, "{}", sql);
            }
        }
    }

    /// Rows of some hosts, one second apart.
    fn rows(hosts: u8, each: i64) -> Vec<Row> {
        let all = (0..hosts).flat_map(|host| (0..each).map(move |at| (Some(host), at, Some(1))));
        all.collect()
    }

    #[tokio::test]
    async fn what_can_be_done_by_runs_is_and_nothing_else() {
        let rows = rows(2, 40);
        let context = context(&[&rows, &rows], 20, true);
        for (sql, done) in QUERIES.iter().zip([true, true, true, true, true, true, false, false]) {
            let plan = plan(&context, sql).await;
            let told = displayable(plan.as_ref()).indent(false).to_string();
            assert_eq!(told.contains("GroupRunsExec: mode=Partial, gby="), done, "{told}");
            assert_eq!(told.contains("AggregateExec: mode=Partial"), !done, "{told}");
        }
    }

    #[tokio::test]
    async fn rows_of_long_runs_are_counted_and_others_are_left_to_datafusion() {
        let rows = rows(4, 50);
        let context = context(&[&rows[..100], &rows[100..]], 20, true);
        assert_eq!(rows_in_runs(&context, "SELECT host, sum(v) FROM t GROUP BY host").await, 200);
        assert_eq!(rows_in_runs(&context, "SELECT n, sum(v) FROM t GROUP BY n").await, 0);
    }

    #[tokio::test]
    async fn groups_beyond_a_batch_are_given_out_before_the_end() {
        // Groups of five rows: a batch of 20 has 4 runs, so that five batches fill it.
        let rows = rows(3, 200);
        let sql = "SELECT host, date_bin(INTERVAL '5 seconds', time) AS b, count(*) AS c FROM t GROUP BY host, b";
        let context = context(&[&rows, &[]], 20, true);
        let plan = plan(&context, sql).await;
        let runs = find(&plan).unwrap();
        let batches = runs.execute(0, context.task_ctx()).unwrap().collect::<Vec<_>>().await;
        let batches = batches.into_iter().collect::<Result<Vec<_>>>().unwrap();
        assert!(batches.len() >= 6, "{} batches", batches.len());
        assert!(batches.iter().all(|batch| batch.num_rows() <= 20));
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 120);
        assert_eq!(runs.metrics().unwrap().output_rows(), Some(120));
        let all = answer(&context, &format!("SELECT count(*), min(c), max(c) FROM ({sql})")).await;
        assert!(all.iter().any(|line| line.contains("120") && line.contains("| 5 ")), "{all:?}");
    }

    #[tokio::test]
    async fn groups_that_take_much_memory_are_given_out_before_the_end() {
        // 20 groups in total, fewer than a batch; each has a text of 8,000 bytes.
        let rows = rows(2, 100);
        let sql = "SELECT host, date_bin(INTERVAL '10 seconds', time) AS b, max(long) AS long FROM \
                   (SELECT host, time, repeat(CAST(n % 10 AS varchar), 8000) AS long FROM t) GROUP BY host, b";
        let context = context(&[&rows, &[]], 50, true);
        let plan = plan(&context, sql).await;
        let runs = find(&plan).unwrap();
        let batches = runs.execute(0, context.task_ctx()).unwrap().collect::<Vec<_>>().await;
        let batches = batches.into_iter().collect::<Result<Vec<_>>>().unwrap();
        assert!(batches.len() > 1, "{batches:?}");
        assert_eq!(runs.metrics().unwrap().sum_by_name("rows_in_runs").unwrap().as_usize(), 200);
        let all = answer(&context, &format!("SELECT count(*), count(DISTINCT host), min(long) = repeat('9', 8000) AS m FROM ({sql})")).await;
        assert!(all.iter().any(|line| line.contains("20") && line.contains("true")), "{all:?}");
    }

    #[tokio::test]
    async fn an_error_of_the_rows_is_the_error_of_the_groups() {
        let rows = rows(2, 60);
        let context = context(&[&rows, &rows], 20, true);
        // The divisor of the last row of each batch is zero.
        let sql = "SELECT host, sum(v) FROM (SELECT host, v, 1 / (n - 19) AS q FROM t) WHERE q < 9 GROUP BY host";
        let failed = context.sql(sql).await.unwrap().collect().await.unwrap_err();
        assert!(failed.to_string().contains("Divide by zero"), "{failed}");
    }

    #[test]
    fn ever_fewer_batches_without_runs_are_looked_at() {
        let mut attention = Attention::default();
        let mut looks = |long| {
            (0..200).filter(|_| attention.looks().then(|| attention.saw(long)).is_some()).count()
        };
        assert_eq!(looks(true), 200);
        // After 1, 3, 7, 15, 31, 63 batches that are not examined, and again 63.
        assert_eq!(looks(false), 8);
        let mut attention = Attention { unseen: UNSEEN_MAX - 1, remaining: 0 };
        assert!(attention.looks());
        attention.saw(true);
        assert!(attention.looks());
    }
}
