//! Keeps joins and orders of arrays from filtering by bounds.
//!
//! While it runs, a hash join gives the smallest and the largest of its keys to the operators below, as a filter; so
//! do a sort with a limit and `max` and `min`. DataFusion finds the bounds of arrays with NULL elements last, and
//! compares with them with NULL elements first: `{3,1}` would lie above the bound `{NULL,9}`, and its rows would be
//! lost. [`NestedBounds`] runs the rule that passes such filters on without them where an array is a key.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::sorts::sort::SortExec;

/// A rule that pushes filters down, without those that operators make while they run; see the head of the file.
#[derive(Debug)]
pub(crate) struct NestedBounds(pub(crate) Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for NestedBounds {
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
        let mut is_nested = false;
        plan.apply(|node| {
            is_nested = has_nested_key(node)?;
            Ok(if is_nested { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })?;
        if !is_nested {
            return self.0.optimize(plan, config);
        }
        let mut config = config.clone();
        config.optimizer.enable_dynamic_filter_pushdown = false;
        config.optimizer.enable_join_dynamic_filter_pushdown = false;
        config.optimizer.enable_topk_dynamic_filter_pushdown = false;
        config.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
        self.0.optimize(plan, &config)
    }
}

/// Returns true for an operator that would compare arrays with bounds of its keys.
fn has_nested_key(node: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        let schema = join.left().schema();
        for (key, _) in join.on() {
            if key.data_type(&schema)?.is_nested() {
                return Ok(true);
            }
        }
    } else if let Some(sort) = node.downcast_ref::<SortExec>() {
        let schema = sort.input().schema();
        for key in sort.expr().iter().filter(|_| sort.fetch().is_some()) {
            if key.expr.data_type(&schema)?.is_nested() {
                return Ok(true);
            }
        }
    } else if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        return Ok(aggregate.aggr_expr().iter().any(|value| {
            matches!(value.fun().name(), "max" | "min") && value.field().data_type().is_nested()
        }));
    }
    Ok(false)
}
