//! EXCEPT ALL and INTERSECT ALL by counted rows.
//!
//! DataFusion plans both as an anti or semi join, which checks whether a row is on the other side, not how often.
//! Here equal rows of a side are numbered, and the number is part of the comparison: with three rows on the left and
//! one on the right, EXCEPT ALL returns the second and the third, and INTERSECT ALL the first.

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

/// Name of the column with a row's number among its equals.
const NUMBER: &str = "__number_among_equals";

/// Numbers the rows of EXCEPT ALL and INTERSECT ALL; see the head of the file. Apply it once types are coerced, and
/// before subqueries are rewritten.
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
            node => Ok(Transformed::no(node)),
        })?;
        Ok(rewritten.data)
    }
}

/// Returns true for EXCEPT ALL and INTERSECT ALL: no other join of an unoptimized plan treats NULL as a value.
/// Without ALL, the rows of the left side are distinct and need no numbers.
fn keeps_duplicates(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && !matches!(join.left.as_ref(), LogicalPlan::Distinct(Distinct::All(_)))
}

fn counted(join: &Join) -> Result<LogicalPlan> {
    let columns = join.left.schema().columns();
    let (lefts, rights): (Vec<_>, Vec<_>) = join.on.iter().cloned().unzip();
    let left_side = numbered(&join.left, &lefts)?;
    let right_side = numbered(&join.right, &rights)?;
    let number = || Expr::Column(Column::new_unqualified(NUMBER));
    let mut keys = join.on.clone();
    keys.push((number(), number()));
    let joined = Join::try_new(
        Arc::new(left_side),
        Arc::new(right_side),
        keys,
        join.filter.clone(),
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    let columns = columns.into_iter().map(Expr::Column);
    LogicalPlanBuilder::from(LogicalPlan::Join(joined)).project(columns)?.build()
}

/// A side with each row's number among the rows of the same values.
fn numbered(plan: &LogicalPlan, values: &[Expr]) -> Result<LogicalPlan> {
    let number = row_number().partition_by(values.to_vec()).build()?;
    let name = Column::new_unqualified(number.schema_name().to_string());
    let columns = plan.schema().columns().into_iter().map(Expr::Column);
    let columns: Vec<_> = columns.chain([Expr::Column(name).alias(NUMBER)]).collect();
    LogicalPlanBuilder::from(plan.clone()).window([number])?.project(columns)?.build()
}
