//! Keeps limits above the operators that they limit.
//!
//! `SELECT DISTINCT x .. ORDER BY x LIMIT 3` needs three groups. If an aggregate reads rows in order, DataFusion's
//! rule for orders moves the sort below it together with its limit: three rows of one group may be all that is left.
//! [`KeptLimits`] runs before that rule. It splits such a sort into a sort and a limit, of which only the sort is
//! moved; a later rule places the limit.
//!
//! Conversely, a limit may be moved into an unordered aggregate that becomes an ordered one later, and then would not
//! run. [`LostLimits`] removes such a limit; the limit above is still there. It also removes a limit that is too
//! high: an aggregate that keeps only the first groups allocates tables of ten times the limit before it reads a row,
//! outside of every memory pool, and a failed allocation ends the process.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode};

/// Keeps limits above ordered aggregates; see the head of the file.
#[derive(Debug)]
pub(crate) struct KeptLimits;

impl PhysicalOptimizerRule for KeptLimits {
    fn name(&self) -> &'static str {
        "kept_limits"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let Some(sort) = node.downcast_ref::<SortExec>() else {
                return Ok(Transformed::no(node));
            };
            let Some(fetch) = sort.fetch().filter(|_| is_in_order(sort.input())) else {
                return Ok(Transformed::no(node));
            };
            let unlimited = Arc::new(sort.with_fetch(None));
            let first: Arc<dyn ExecutionPlan> =
                Arc::new(GlobalLimitExec::new(unlimited, 0, Some(fetch)));
            Ok(Transformed::yes(first))
        })
        .data()
    }
}

/// Maximum limit for which an aggregate may allocate at once: some megabytes.
const FIRST_GROUPS_MAX: usize = 10_000;

/// Removes limits from aggregates that cannot apply them, or would allocate too much; see the head of the file.
#[derive(Debug)]
pub(crate) struct LostLimits;

impl PhysicalOptimizerRule for LostLimits {
    fn name(&self) -> &'static str {
        "lost_limits"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let Some(aggregate) = node.downcast_ref::<AggregateExec>() else {
                return Ok(Transformed::no(node));
            };
            let Some(limit) = aggregate.limit_options() else { return Ok(Transformed::no(node)) };
            let is_of_first = limit.descending().is_some() || aggregate.get_minmax_desc().is_some();
            let runs = if is_of_first {
                limit.limit() <= FIRST_GROUPS_MAX
            } else {
                aggregate.is_unordered_unfiltered_group_by_distinct()
            };
            if runs {
                return Ok(Transformed::no(node));
            }
            let unlimited: Arc<dyn ExecutionPlan> =
                Arc::new(aggregate.with_new_limit_options(None));
            Ok(Transformed::yes(unlimited))
        })
        .data()
    }
}

/// Returns true if the rows come from an aggregate that reads its input in order.
fn is_in_order(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return *aggregate.input_order_mode() != InputOrderMode::Linear
            || aggregate.children().iter().any(|input| is_in_order(input));
    }
    let children = plan.children();
    matches!(children.as_slice(), [only] if is_in_order(only))
}
