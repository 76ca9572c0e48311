//! Keys that `unnest` repeats are no keys.
//!
//! ```text
//!   SELECT k, unnest(l) AS e FROM t        k is a key of t
//!     Projection  k, e                     k determines e?  no: a row of t has become several
//!       Unnest    k, l                     DataFusion hands on what k determines below
//!         TableScan t
//! ```
//!
//! DataFusion's rules leave out columns that others determine: of `ORDER BY k, e` and `GROUP BY k, e` only `k` would remain.
//! [`RepeatedKeys`] takes the dependencies away before each of these rules, because every rule that makes the operator again
//! brings them back.

use std::sync::Arc;

use datafusion::common::FunctionalDependencies;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Names of DataFusion's rules that read which columns determine others.
pub(crate) const READERS: [&str; 4] = [
    "eliminate_duplicated_expr",
    "eliminate_join",
    "optimize_projections",
    "replace_distinct_aggregate",
];

/// Takes dependencies between columns from the rows of `unnest`; see the head of the file.
#[derive(Debug)]
pub(crate) struct RepeatedKeys;

impl OptimizerRule for RepeatedKeys {
    fn name(&self) -> &'static str {
        "repeated_keys"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if !repeats_keys(&plan)? {
            return Ok(Transformed::no(plan));
        }
        plan.transform_up_with_subqueries(|node| {
            if node.schema().functional_dependencies().is_empty() {
                return Ok(Transformed::no(node));
            }
            let LogicalPlan::Unnest(mut unnest) = node else {
                return node.recompute_schema().map(Transformed::yes);
            };
            let none = FunctionalDependencies::empty();
            let schema = unnest.schema.as_ref().clone().with_functional_dependencies(none)?;
            unnest.schema = Arc::new(schema);
            Ok(Transformed::yes(LogicalPlan::Unnest(unnest)))
        })
    }
}

/// True if an `unnest` of a plan has dependencies between its columns.
fn repeats_keys(plan: &LogicalPlan) -> Result<bool> {
    let mut is_found = false;
    plan.apply_with_subqueries(|node| {
        let is_unnest = matches!(node, LogicalPlan::Unnest(_));
        is_found |= is_unnest && !node.schema().functional_dependencies().is_empty();
        Ok(if is_found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(is_found)
}

#[cfg(test)]
mod tests {
    use datafusion::optimizer::Optimizer;

    use super::*;

    #[test]
    fn the_rules_that_read_dependencies_have_their_names_still() {
        let rules = Optimizer::new().rules;
        for reader in READERS {
            assert!(rules.iter().any(|rule| rule.name() == reader), "{reader}");
        }
    }
}
