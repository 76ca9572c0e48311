//! Checks for an interruption inside of running plans.
//!
//! An operator that multiplies rows (a join, a series of numbers) may compute for minutes within one call, without a
//! check for a timeout or a cancel request. So such operators are wrapped before a plan runs: their streams check the
//! statement's lane before each batch, and the filters of their joins before each evaluation; a nested-loop join
//! evaluates its filter for each pair of a row and a batch. The optimizer's rules check between nodes.
//!
//! Joins and `unnest`, with their inputs, are wrapped for the memory of the rows that they repeat, too
//! (`repeated_values.rs`).
//!
//! A wrapped operator looks like the inner one, also in EXPLAIN ANALYZE.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema};
use arrow::record_batch::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{ColumnarValue, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::{PhysicalOptimizerContext, PhysicalOptimizerRule};
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{NestedLoopJoinExec, NestedLoopJoinExecBuilder};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::StreamExt;
use partita_lanes::interrupt;

use crate::repeated_values::Repeats;

/// Fails if the statement of this thread is interrupted.
fn check() -> Result<()> {
    interrupt::check().map_err(|reason| DataFusionError::External(Box::new(reason)))
}

/// Wraps the operators of a plan that may compute for a long time within one call.
///
/// # Errors
/// Fails if an operator does not accept its wrapped inputs.
pub(crate) fn guarded(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        if !multiplies(node.as_ref()) {
            return Ok(Transformed::no(node));
        }
        let inner = match node.downcast_ref::<NestedLoopJoinExec>() {
            Some(join) => with_checked_filter(join)?.unwrap_or(node),
            None => node,
        };
        Ok(Transformed::yes(with_bounded_memory(inner)?))
    })
    .data()
}

/// Wraps an operator, and its inputs if it repeats their rows.
fn with_bounded_memory(inner: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(repeats) = Repeats::of(inner.as_ref()) else {
        return Ok(Arc::new(Guarded { inner, role: Role::Alone }));
    };
    let inputs: Vec<_> = inner.children().into_iter().map(Arc::clone).collect();
    let probe = inputs.len() - 1;
    let inputs = inputs.into_iter().enumerate().map(|(position, input)| {
        let repeats = Arc::clone(&repeats);
        let role = if position == probe { Role::Probe(repeats) } else { Role::Build(repeats) };
        Arc::new(Guarded { inner: input, role }) as Arc<dyn ExecutionPlan>
    });
    let inputs = inputs.collect();
    let inner = replace_children_if_necessary(inner, inputs)?;
    Ok(Arc::new(Guarded { inner, role: Role::Repeats(repeats) }))
}

/// Returns true for operators that return more rows than they read, or compute rows without reading any. Scans of
/// tables wait for nodes and check by themselves.
fn multiplies(node: &dyn ExecutionPlan) -> bool {
    let name = node.name();
    name.ends_with("JoinExec")
        || ["UnnestExec", "RecursiveQueryExec", "LazyMemoryExec", "WindowAggExec"].contains(&name)
        || name == "BoundedWindowAggExec"
}

fn with_checked_filter(join: &NestedLoopJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(filter) = join.filter() else { return Ok(None) };
    let expression = Arc::new(CheckedExpr { inner: Arc::clone(filter.expression()) });
    let filter =
        JoinFilter::new(expression, filter.column_indices().to_vec(), Arc::clone(filter.schema()));
    let (build, probe) = (Arc::clone(join.left()), Arc::clone(join.right()));
    let join = NestedLoopJoinExecBuilder::new(build, probe, *join.join_type())
        .with_filter(Some(filter))
        .with_projection_ref(join.projection().clone())
        .build()?;
    Ok(Some(Arc::new(join)))
}

/// The part that a wrapped operator has in bounding memory.
#[derive(Clone, Debug)]
enum Role {
    /// The operator repeats no rows.
    Alone,
    /// The operator repeats rows of its inputs.
    Repeats(Arc<Repeats>),
    /// Input that a join reads first.
    Build(Arc<Repeats>),
    /// Input whose batches a join or `unnest` reads one by one.
    Probe(Arc<Repeats>),
}

/// An operator whose streams check for an interruption before each batch.
#[derive(Debug)]
struct Guarded {
    inner: Arc<dyn ExecutionPlan>,
    role: Role,
}

impl DisplayAs for Guarded {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_as(kind, f)
    }
}

impl ExecutionPlan for Guarded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.inner.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.inner.children()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.inner.maintains_input_order()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.inner.benefits_from_input_partitioning()
    }

    fn apply_expressions(
        &self,
        visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner.apply_expressions(visit)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let inner = replace_children_if_necessary(Arc::clone(&self.inner), children)?;
        Ok(Arc::new(Self { inner, role: self.role.clone() }))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let inner = Arc::clone(&self.inner).reset_state()?;
        Ok(Arc::new(Self { inner, role: self.role.clone() }))
    }

    // A recursive query passes its working table to the operators below it.
    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn ExecutionPlan>> {
        let inner = self.inner.with_new_state(state)?;
        Some(Arc::new(Self { inner, role: self.role.clone() }))
    }

    fn execute(
        &self,
        output: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = match &self.role {
            Role::Alone => self.inner.execute(output, context)?,
            Role::Repeats(repeats) => self.inner.execute(output, repeats.enter(context))?,
            Role::Build(repeats) => {
                let rows = self.inner.execute(output, repeats.leave(context))?;
                return Ok(repeats.measured(rows));
            }
            Role::Probe(repeats) => {
                let batch_rows = context.session_config().batch_size();
                let pool = Arc::clone(context.memory_pool());
                let rows = self.inner.execute(output, repeats.leave(context))?;
                return Ok(repeats.claimed(rows, batch_rows, &pool));
            }
        };
        let schema = rows.schema();
        let rows = rows.map(|batch| check().and(batch));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.inner.metrics()
    }
}

/// An expression that checks for an interruption before each evaluation.
#[derive(Debug, Eq)]
struct CheckedExpr {
    inner: Arc<dyn PhysicalExpr>,
}

impl PartialEq for CheckedExpr {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Hash for CheckedExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl fmt::Display for CheckedExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.inner)
    }
}

impl PhysicalExpr for CheckedExpr {
    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.inner.return_field(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        check()?;
        self.inner.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let inner = children.pop().unwrap_or_else(|| Arc::clone(&self.inner));
        Ok(Arc::new(Self { inner }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}

/// An optimizer, analyzer or physical optimizer rule that checks for an interruption before it runs.
#[derive(Debug)]
pub(crate) struct CheckedRule<R: ?Sized>(pub(crate) Arc<R>);

impl OptimizerRule for CheckedRule<dyn OptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        check()?;
        self.0.rewrite(plan, config)
    }
}

impl AnalyzerRule for CheckedRule<dyn AnalyzerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        check()?;
        self.0.analyze(plan, config)
    }
}

impl PhysicalOptimizerRule for CheckedRule<dyn PhysicalOptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        check()?;
        self.0.optimize(plan, config)
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        check()?;
        self.0.optimize_with_context(plan, context)
    }
}
