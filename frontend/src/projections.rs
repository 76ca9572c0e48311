//! Levels of derived tables that look alike.
//!
//! `SELECT b + 1 AS b FROM (SELECT b + 1 AS b FROM (..))` has two projections of one text. DataFusion takes the second
//! for the first done again, and drops it. [`KeptProjections`] runs before the rule that does so, and writes one of them
//! differently: with its alias twice. The two are then merged as others are, each doing its part.

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr::Alias;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Keeps equal projections apart; see the head of the file.
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
        // Bare columns done twice are the same columns.
        let alike = matches!(projection.input.as_ref(), LogicalPlan::Projection(below)
            if below.expr == projection.expr
                && below.expr.iter().any(|expr| matches!(expr, Expr::Alias(_))));
        if !alike {
            return Ok(Transformed::no(LogicalPlan::Projection(projection)));
        }
        let Projection { expr, input, schema, .. } = projection;
        let twice = expr.into_iter().map(|expr| match expr {
            Expr::Alias(Alias { ref relation, ref name, .. }) => {
                let (relation, name) = (relation.clone(), name.clone());
                expr.alias_qualified(relation, name)
            }
            other => other,
        });
        let kept = Projection::try_new_with_schema(twice.collect(), input, schema)?;
        Ok(Transformed::yes(LogicalPlan::Projection(kept)))
    }
}
