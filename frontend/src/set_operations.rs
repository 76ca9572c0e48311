//! EXCEPT ALL and INTERSECT ALL count rows.
//!
//! DataFusion makes one anti or semi join of either, which asks whether a row is on the other side, not how often. Here
//! each of the equal rows of a side gets a number, which is compared along: of three rows on the left and one on the
//! right, EXCEPT ALL then leaves the second and the third, and INTERSECT ALL the first.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, NullEquality};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{
    Distinct, Expr, ExprFunctionExt, Join, JoinType, LogicalPlan, LogicalPlanBuilder,
};
use datafusion::optimizer::AnalyzerRule;

/// The name of the number of a row among its equals.
const NUMBER: &str = "__number_among_equals";

/// Numbers the rows of EXCEPT ALL and INTERSECT ALL; see the head of the file. To be applied once types are coerced,
/// and before subqueries are rewritten.
#[derive(Debug)]
pub(crate) struct CountedSetOperations;

impl AnalyzerRule for CountedSetOperations {
    fn name(&self) -> &'static str {
        "counted_set_operations"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Join(join) if keeps_duplicates(&join) => {
                Ok(Transformed::yes(counted(&join)?))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(rewritten.data)
    }
}

/// No other join of a plan that is not optimized yet takes NULL for a value. Without ALL the rows of the left side are
/// distinct, and one of each is as many as there are.
fn keeps_duplicates(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && !matches!(join.left.as_ref(), LogicalPlan::Distinct(Distinct::All(_)))
}

fn counted(join: &Join) -> Result<LogicalPlan> {
    let columns = join.left.schema().columns();
    let (lefts, rights): (Vec<_>, Vec<_>) = join.on.iter().cloned().unzip();
    let left = numbered(&join.left, &lefts)?;
    let right = numbered(&join.right, &rights)?;
    let number = || Expr::Column(Column::new_unqualified(NUMBER));
    let mut on = join.on.clone();
    on.push((number(), number()));
    let joined = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        join.filter.clone(),
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    let columns = columns.into_iter().map(Expr::Column);
    LogicalPlanBuilder::from(LogicalPlan::Join(joined)).project(columns)?.build()
}

/// A side with the number of each row among those of the same values.
fn numbered(plan: &LogicalPlan, values: &[Expr]) -> Result<LogicalPlan> {
    let number = row_number().partition_by(values.to_vec()).build()?;
    let name = Column::new_unqualified(number.schema_name().to_string());
    let columns = plan.schema().columns().into_iter().map(Expr::Column);
    let columns: Vec<_> = columns.chain([Expr::Column(name).alias(NUMBER)]).collect();
    LogicalPlanBuilder::from(plan.clone()).window([number])?.project(columns)?.build()
}
