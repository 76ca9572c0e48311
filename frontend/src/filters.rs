//! Filters that stay above aggregates.
//!
//! An aggregate has a group of all rows also where there are none: one without GROUP BY, and one with the empty set among its
//! GROUPING SETS. A filter above that names no column, as `WHERE (SELECT max(n) FROM u) > 0` does, takes that group away.
//! DataFusion's rule moves it below, because it needs no column that is not there, and the group stays. [`KeptFilters`]
//! is that rule, but for such filters.

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Aggregate, Expr, Filter, GroupingSet, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Moves filters towards the rows; see the head of the file.
#[derive(Debug, Default)]
pub(crate) struct KeptFilters {
    inner: PushDownFilter,
}

impl OptimizerRule for KeptFilters {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.inner.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Filter(filter) if stays(filter) => Ok(Transformed::no(plan)),
            _ => self.inner.rewrite(plan, config),
        }
    }
}

/// Whether a filter without a column is right above an aggregate of all rows, or above others that are.
fn stays(filter: &Filter) -> bool {
    let mut names_none = false;
    let mut filter = filter;
    loop {
        names_none |= split_conjunction(&filter.predicate)
            .iter()
            .any(|predicate| predicate.column_refs().is_empty());
        match filter.input.as_ref() {
            LogicalPlan::Filter(below) => filter = below,
            LogicalPlan::Aggregate(below) => return names_none && has_group_of_all(below),
            _ => return false,
        }
    }
}

/// Whether an aggregate has a group where there are no rows.
fn has_group_of_all(aggregate: &Aggregate) -> bool {
    match aggregate.group_expr.as_slice() {
        [] => true,
        [Expr::GroupingSet(GroupingSet::GroupingSets(sets))] => sets.iter().any(Vec::is_empty),
        [Expr::GroupingSet(_)] => true,
        _ => false,
    }
}
