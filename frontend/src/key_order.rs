//! Optimizer rule for queries whose order is that of a table's keys: their scans return rows in that order, and later
//! rules replace the sort by a merge of the scan's outputs, or by nothing.
//!
//! ```text
//!   SortExec: a, ts DESC                SortPreservingMergeExec: a, ts DESC
//!     PartitionScanExec          ->       PartitionScanExec: key_order=DESC
//! ```
//!
//! A scan in order reads each partition as one stream, so the rule applies only where nothing between sort and scan
//! drops rows: with a selective filter, parallel streams and a sort of few rows are faster.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;

use crate::scan::PartitionScanExec;

/// Has scans return rows in the order of a sort; see the head of the file.
#[derive(Debug)]
pub(crate) struct KeyOrders;

impl PhysicalOptimizerRule for KeyOrders {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_down(|plan| {
            let input = match plan.downcast_ref::<SortExec>() {
                Some(sort) if !sort.preserve_partitioning() => {
                    in_order(sort.input(), sort.expr(), sort.fetch())?
                }
                _ => None,
            };
            Ok(match input {
                Some(input) => Transformed::yes(replace_children_if_necessary(plan, vec![input])?),
                None => Transformed::no(plan),
            })
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "KeyOrders"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A plan whose scan returns rows in an order of the plan's columns; `None` if keys do not give it.
fn in_order(
    plan: &Arc<dyn ExecutionPlan>,
    sort: &LexOrdering,
    fetch: Option<usize>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = plan.downcast_ref::<PartitionScanExec>() {
        return Ok(scan.in_order(sort, fetch)?.map(|scan| Arc::new(scan) as _));
    }
    let Some(projection) = plan.downcast_ref::<ProjectionExec>() else { return Ok(None) };
    let source = |key: &PhysicalSortExpr| {
        let part = projection.expr().get(key.expr.downcast_ref::<Column>()?.index())?;
        Some(PhysicalSortExpr::new(Arc::clone(&part.expr), key.options))
    };
    let sources: Option<Vec<PhysicalSortExpr>> = sort.iter().map(source).collect();
    let Some(sources) = sources.and_then(LexOrdering::new) else { return Ok(None) };
    let Some(input) = in_order(projection.input(), &sources, fetch)? else { return Ok(None) };
    replace_children_if_necessary(Arc::clone(plan), vec![input]).map(Some)
}
