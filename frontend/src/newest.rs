//! Optimizer rule for queries of the newest row of each series: their scans read no other rows.
//!
//! A series is all rows whose keys differ only in the time index. If an aggregate groups by tags (or by expressions
//! of tags) and its functions depend only on the newest row of a group, then the newest row of each series is enough,
//! since the newest row of the group is one of them. Examples:
//!
//! ```sql
//!   SELECT DISTINCT ON (host) * FROM cpu ORDER BY host, time DESC
//!   SELECT host, max(time), last_value(usage ORDER BY time) FROM cpu GROUP BY host
//!   SELECT DISTINCT host FROM cpu WHERE time > now() - INTERVAL '1 hour'
//! ```
//!
//! A filter below the aggregate may keep or drop whole series, or exclude rows older than a time: either way it keeps
//! the newest row of a series if it keeps any. The plan above the scan does not change.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;

use crate::scan::{PartitionScanExec, Within};

/// Marks scans that need to return only the newest row of each series.
#[derive(Debug)]
pub(crate) struct NewestRows;

impl PhysicalOptimizerRule for NewestRows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let marked = plan.downcast_ref::<AggregateExec>().and_then(mark);
            match marked {
                Some(input) => {
                    Ok(Transformed::yes(replace_children_if_necessary(plan, vec![input])?))
                }
                None => Ok(Transformed::no(plan)),
            }
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "NewestRows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// An aggregate's input with its scan marked, if the newest rows are enough.
fn mark(aggregate: &AggregateExec) -> Option<Arc<dyn ExecutionPlan>> {
    if aggregate.mode().input_mode() != AggregateInputMode::Raw {
        return None;
    }
    let (input, columns) = marked(aggregate.input())?;
    let group = aggregate.group_expr();
    let by_series = !group.has_grouping_set()
        && group.expr().iter().all(|(expr, _)| within(expr, &columns) == Within::Same);
    let newest = aggregate.aggr_expr().iter().all(|call| needs_newest_only(call, &columns));
    let unfiltered = aggregate.filter_expr().iter().all(Option::is_none);
    (by_series && newest && unfiltered).then_some(input)
}

/// A plan with its scan marked, and the knowledge about its columns; `None` if the plan may drop the newest row of a
/// series but keep another.
fn marked(plan: &Arc<dyn ExecutionPlan>) -> Option<(Arc<dyn ExecutionPlan>, Vec<Within>)> {
    if let Some(scan) = plan.downcast_ref::<PartitionScanExec>() {
        let (scan, columns) = scan.newest_only()?;
        return Some((Arc::new(scan), columns));
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let (input, columns) = marked(filter.input())?;
        let keeps = |part: &&Arc<dyn PhysicalExpr>| keeps_newest(part, &columns);
        if filter.fetch().is_some() || !split_conjunction(filter.predicate()).iter().all(keeps) {
            return None;
        }
        let columns = match filter.projection() {
            Some(projection) => projection.iter().map(|index| columns[*index]).collect(),
            None => columns,
        };
        return Some((replace_children_if_necessary(Arc::clone(plan), vec![input]).ok()?, columns));
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let (input, columns) = marked(projection.input())?;
        let columns = projection.expr().iter().map(|part| within(&part.expr, &columns)).collect();
        return Some((replace_children_if_necessary(Arc::clone(plan), vec![input]).ok()?, columns));
    }
    None
}

/// Knowledge about an expression within one series.
fn within(expr: &Arc<dyn PhysicalExpr>, columns: &[Within]) -> Within {
    let lookup = |column: &Column| columns.get(column.index()).copied().unwrap_or(Within::Other);
    if let Some(column) = expr.downcast_ref::<Column>() {
        return lookup(column);
    }
    let same = collect_columns(expr).iter().all(|column| lookup(column) == Within::Same);
    if same && !is_volatile(expr) { Within::Same } else { Within::Other }
}

/// Returns true if a predicate that holds for any row of a series holds for its newest row.
fn keeps_newest(predicate: &Arc<dyn PhysicalExpr>, columns: &[Within]) -> bool {
    if within(predicate, columns) == Within::Same {
        return true;
    }
    let Some(comparison) = predicate.downcast_ref::<BinaryExpr>() else { return false };
    let (late, early) = match comparison.op() {
        Operator::Gt | Operator::GtEq => (comparison.left(), comparison.right()),
        Operator::Lt | Operator::LtEq => (comparison.right(), comparison.left()),
        _ => return false,
    };
    within(late, columns) == Within::Time && early.downcast_ref::<Literal>().is_some()
}

/// Returns true if an aggregate function depends only on the newest rows of a group's series.
fn needs_newest_only(call: &AggregateFunctionExpr, columns: &[Within]) -> bool {
    let same = |expr: &Arc<dyn PhysicalExpr>| within(expr, columns) == Within::Same;
    let is_time = |expr: &Arc<dyn PhysicalExpr>| within(expr, columns) == Within::Time;
    if call.is_reversed() {
        return false;
    }
    let arguments = call.expressions();
    match call.fun().name() {
        "max" => arguments.iter().all(|argument| same(argument) || is_time(argument)),
        "min" => arguments.iter().all(same),
        name @ ("first_value" | "last_value") if !call.ignore_nulls() && !call.is_distinct() => {
            // Keys that are constant within a series do not order its rows.
            let first = call.order_bys().iter().find(|key| !same(&key.expr));
            first.is_some_and(|key| {
                is_time(&key.expr) && key.options.descending == (name == "first_value")
            })
        }
        _ => false,
    }
}
