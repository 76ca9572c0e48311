//! Limits that stay above what they are of.
//!
//! `SELECT DISTINCT x .. ORDER BY x LIMIT 3` needs three groups. Where an aggregate takes rows in order, DataFusion's rule
//! for orders moves the sort below it, and the limit along: three rows of one group are then all that is left.
//! [`KeptLimits`] runs before that rule. It makes two operators of such a sort, a sort and a limit, of which only the
//! first is moved; a later rule puts the limit where it may be.
//!
//! The other way round, a limit may be moved into an aggregate that is of any order then, and gets one later: it would
//! not run. [`LostLimits`] takes such a limit out again; the limit above is still there. So it does with a limit that is
//! too high: an aggregate that keeps the first groups only allocates tables of ten times the limit before it reads a
//! row, past every memory pool, and an allocation that fails ends the process.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode};

/// Keeps limits above aggregates; see the head of the file.
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
            let all = Arc::new(sort.with_fetch(None));
            let first: Arc<dyn ExecutionPlan> = Arc::new(GlobalLimitExec::new(all, 0, Some(fetch)));
            Ok(Transformed::yes(first))
        })
        .data()
    }
}

/// The highest limit for which an aggregate may allocate at once: some megabytes.
const FIRST_GROUPS_MAX: usize = 10_000;

/// Takes limits out of aggregates that do not run with them, or would allocate too much for them; see the head of the file.
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

/// Whether rows come from an aggregate that takes them in order.
fn is_in_order(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return *aggregate.input_order_mode() != InputOrderMode::Linear
            || aggregate.children().iter().any(|input| is_in_order(input));
    }
    let children = plan.children();
    matches!(children.as_slice(), [only] if is_in_order(only))
}
