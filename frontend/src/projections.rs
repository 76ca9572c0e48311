//! Keeps nested projections that look alike.
//!
//! `SELECT b + 1 AS b FROM (SELECT b + 1 AS b FROM (..))` has two projections with the same text. DataFusion takes
//! the second for a repetition of the first and drops it. [`KeptProjections`] runs before that rule and writes one of
//! them differently, with its alias twice. Later the two are merged like any others, and each takes effect.

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::Alias;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Makes equal projections different; see the head of the file.
#[derive(Debug)]
pub(crate) struct KeptProjections;

impl OptimizerRule for KeptProjections {
    fn name(&self) -> &'static str {
        "kept_projections"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Projection(projection) = plan else { return Ok(Transformed::no(plan)) };
        // Bare columns may be dropped: a second projection does not change them.
        let alike = matches!(projection.input.as_ref(), LogicalPlan::Projection(inner)
            if inner.expr == projection.expr
            && inner.expr.iter().any(|expr| matches!(expr, Expr::Alias(_))));
        if !alike {
            return Ok(Transformed::no(LogicalPlan::Projection(projection)));
        }
        let Projection { expr, input, schema, .. } = projection;
        let twice = expr.into_iter().map(|expr| match expr {
            Expr::Alias(Alias { ref relation, ref name, .. }) => {
                let (relation, name) = (relation.clone(), name.clone());
                expr.alias_qualified(relation, name)
            }
            expr => expr,
        });
        let projection = Projection::try_new_with_schema(twice.collect(), input, schema)?;
        Ok(Transformed::yes(LogicalPlan::Projection(projection)))
    }
}
