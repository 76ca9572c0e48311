//! Filters that stay above aggregates.
//!
//! An aggregate has a group of all rows even without input rows: one without GROUP BY, and one with the empty set
//! among its GROUPING SETS. A filter above that names no column, as in `WHERE (SELECT max(n) FROM u) > 0`, removes
//! that group. DataFusion's rule pushes it below the aggregate, because it needs no column that is absent there, and
//! the group stays. [`KeptFilters`] is that rule, except for such filters.

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Aggregate, Expr, Filter, GroupingSet, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Pushes filters down; see the head of the file.
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

/// Returns true if a filter without columns is above an aggregate that has a group of all rows, possibly with other
/// filters in between.
fn stays(filter: &Filter) -> bool {
    let mut names_none = false;
    let mut filter = filter;
    loop {
        names_none |= split_conjunction(&filter.predicate)
            .iter()
            .any(|predicate| predicate.column_refs().is_empty());
        match filter.input.as_ref() {
            LogicalPlan::Filter(input) => filter = input,
            LogicalPlan::Aggregate(input) => return names_none && has_group_of_all(input),
            _ => return false,
        }
    }
}

/// Returns true if an aggregate has a group even without input rows.
fn has_group_of_all(aggregate: &Aggregate) -> bool {
    match aggregate.group_expr.as_slice() {
        [] => true,
        [Expr::GroupingSet(GroupingSet::GroupingSets(sets))] => sets.iter().any(Vec::is_empty),
        [Expr::GroupingSet(_)] => true,
        _ => false,
    }
}
