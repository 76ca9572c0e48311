//! Optimizer rule for queries of the first rows in an order of time: their scans need not return what cannot be among
//! these rows.
//!
//! ```text
//!   SortExec(TopK): fetch=10, ts DESC         SortExec(TopK): fetch=10, ts DESC
//!     PartitionScanExec                  ->     PartitionScanExec: first_by_time=10 DESC
//! ```
//!
//! Each partition returns its own first rows, with all rows of the last one's time; the sort stays, over few rows. This
//! holds for every placement and every key: files lie in windows of time, of which the first are read first. It needs
//! operators between sort and scan that return one row for each row: an exact filter is a part of the scan, but the rows
//! that another one drops would count. A table and its former one are restricted separately.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::union::UnionExec;
use partita_proto::service::FirstByTime;

use crate::scan::PartitionScanExec;

/// Maximum fetch for which this rule applies: scans keep so many times in memory.
const ROWS_MAX: usize = 10_000;

/// Restricts scans to the first rows by time; see the head of the file.
#[derive(Debug)]
pub(crate) struct FirstRows;

impl PhysicalOptimizerRule for FirstRows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|plan| {
            let input = plan.downcast_ref::<SortExec>().map(restricted_input).transpose()?;
            Ok(match input.flatten() {
                Some(input) => Transformed::yes(replace_children_if_necessary(plan, vec![input])?),
                None => Transformed::no(plan),
            })
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "FirstRows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The input of a sort, restricted to rows that may be among its first; `None` if the rule does not apply.
fn restricted_input(sort: &SortExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(rows) = sort.fetch().filter(|rows| (1..=ROWS_MAX).contains(rows)) else {
        return Ok(None);
    };
    let key = sort.expr().first();
    let Some(column) = key.expr.downcast_ref::<Column>() else { return Ok(None) };
    if sort.preserve_partitioning() {
        return Ok(None);
    }
    let first = FirstByTime { rows, descending: key.options.descending };
    restricted(sort.input(), column.index(), first)
}

/// A plan whose scans are restricted to their first rows by time, if that is the column of the plan at a position.
fn restricted(
    plan: &Arc<dyn ExecutionPlan>,
    column: usize,
    first: FirstByTime,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = plan.downcast_ref::<PartitionScanExec>() {
        return Ok(scan.first_by_time(column, first).map(|scan| Arc::new(scan) as _));
    }
    let column = match plan.downcast_ref::<ProjectionExec>() {
        Some(projection) => {
            let source = projection.expr().get(column);
            let source = source.and_then(|part| part.expr.downcast_ref::<Column>());
            let Some(source) = source else { return Ok(None) };
            source.index()
        }
        None if keeps_rows(plan.as_ref()) => column,
        None => return Ok(None),
    };
    let mut restricts = false;
    let mut inputs = Vec::new();
    for input in plan.children() {
        let restricted = restricted(input, column, first)?;
        restricts |= restricted.is_some();
        inputs.push(restricted.unwrap_or_else(|| Arc::clone(input)));
    }
    if !restricts {
        return Ok(None);
    }
    replace_children_if_necessary(Arc::clone(plan), inputs).map(Some)
}

/// Returns true if an operator returns the rows of its inputs, with their columns.
fn keeps_rows(plan: &dyn ExecutionPlan) -> bool {
    let unlimited = |plan: &CoalescePartitionsExec| plan.fetch().is_none();
    plan.is::<UnionExec>()
        || plan.is::<RepartitionExec>()
        || plan.downcast_ref::<CoalescePartitionsExec>().is_some_and(unlimited)
}
