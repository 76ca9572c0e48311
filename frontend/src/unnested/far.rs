//! Passes columns of queries more than one level up to the queries between.
//!
//! ```text
//!   t: .. EXISTS (SELECT 1 FROM u WHERE EXISTS (SELECT 1 FROM v WHERE v.k = t.k))
//!
//!   t: .. EXISTS (SELECT 1 FROM (SELECT *, t.k AS far FROM u) WHERE EXISTS (SELECT 1 FROM v WHERE v.k = far))
//! ```
//!
//! The value that a subquery is compared with becomes part of it, so an outer column in that value is far too:
//!
//! ```text
//!   t: .. EXISTS (SELECT 1 FROM u WHERE t.x > ALL (SELECT z FROM v))
//!
//!   t: .. EXISTS (SELECT 1 FROM (SELECT *, t.x AS far FROM u) WHERE far > ALL (SELECT z FROM v))
//! ```
//!
//! Inner queries are rewritten first, so that after them each query names only columns of the next one, whatever the
//! distance.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, not_impl_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, LogicalPlanBuilder, Subquery};

use super::{all_outer, own_columns};

/// Prefix of the names of passed columns.
const FAR: &str = "__far_";

/// Returns true if a node adds passed columns to its rows.
pub(super) fn is_of_far_columns(node: &LogicalPlan) -> bool {
    let LogicalPlan::Projection(projection) = node else { return false };
    projection.expr.iter().any(|expr| {
        matches!(expr, Expr::Alias(alias)
            if alias.name.starts_with(FAR) && matches!(*alias.expr, Expr::OuterReferenceColumn(..)))
    })
}

/// A node whose subqueries list the outer columns that they name, including those passed to inner queries.
pub(super) fn with_outer_columns(node: LogicalPlan) -> Result<LogicalPlan> {
    with_subqueries(node, |subquery| {
        let outer_ref_columns = all_outer(&subquery.subquery)?;
        Ok(Subquery { outer_ref_columns, ..subquery })
    })
}

/// Passes far columns so that the node's subqueries name only columns of its input; `None` if they do so already.
pub(super) fn with_far_columns(
    node: &LogicalPlan,
    number: impl FnOnce() -> usize,
) -> Result<Option<LogicalPlan>> {
    let [input] = node.inputs()[..] else { return Ok(None) };
    // Outer columns of subqueries that are not in the input.
    let mut far: Vec<(FieldRef, Column)> = Vec::new();
    node.apply_expressions(|expression| {
        expression.apply(|part| {
            for outer in
                subquery_of(part).into_iter().flat_map(|subquery| &subquery.outer_ref_columns)
            {
                if let Expr::OuterReferenceColumn(field, column) = outer
                    && !input.schema().has_column(column)
                    && !far.iter().any(|(_, far_column)| far_column == column)
                {
                    far.push((Arc::clone(field), column.clone()));
                }
            }
            if let Some(compared) = compared_with(part) {
                compared.apply(|part| {
                    if let Expr::OuterReferenceColumn(field, column) = part
                        && !far.iter().any(|(_, far_column)| far_column == column)
                    {
                        far.push((Arc::clone(field), column.clone()));
                    }
                    Ok(TreeNodeRecursion::Continue)
                })?;
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    if far.is_empty() {
        return Ok(None);
    }
    if matches!(node, LogicalPlan::Distinct(Distinct::On(_))) {
        return not_impl_err!("a reference to a column two query levels up in DISTINCT ON");
    }
    // Add them to the input under new names, and use these in the subqueries.
    let number = number();
    let name = |index: usize| format!("{FAR}{number}_{index}");
    let passed = far.iter().enumerate().map(|(index, (field, column))| {
        Expr::OuterReferenceColumn(Arc::clone(field), column.clone()).alias(name(index))
    });
    let columns: Vec<Expr> = own_columns(input.schema()).into_iter().chain(passed).collect();
    let input = LogicalPlanBuilder::from(input.clone()).project(columns)?.build()?;
    let node = with_passed_columns(node.clone(), &far, name)?;
    let node = with_subqueries(node, |subquery| {
        let plan = renamed(subquery.subquery.as_ref(), &far, name)?;
        Ok(Subquery {
            outer_ref_columns: all_outer(&plan)?,
            subquery: Arc::new(plan),
            spans: subquery.spans,
        })
    })?;
    node.with_new_exprs(node.expressions(), vec![input]).map(Some)
}

/// A subquery's plan with far columns replaced by the passed ones.
fn renamed(
    plan: &LogicalPlan,
    far: &[(FieldRef, Column)],
    name: impl Fn(usize) -> String,
) -> Result<LogicalPlan> {
    let renamed = plan.clone().transform_up(|node| {
        let names = NamePreserver::new(&node);
        node.map_expressions(|expression| {
            let saved = names.save(&expression);
            let renamed = expression.transform_up(|part| match &part {
                Expr::OuterReferenceColumn(field, column) => {
                    match far.iter().position(|(_, far_column)| far_column == column) {
                        Some(index) => {
                            let field = field.as_ref().clone().with_name(name(index));
                            let column = Column::new_unqualified(name(index));
                            let passed = Expr::OuterReferenceColumn(Arc::new(field), column);
                            Ok(Transformed::yes(passed))
                        }
                        None => Ok(Transformed::no(part)),
                    }
                }
                _ => Ok(Transformed::no(part)),
            })?;
            Ok(renamed.update_data(|expression| saved.restore(expression)))
        })
    })?;
    Ok(renamed.data)
}

/// The value that a subquery is compared with.
fn compared_with(expression: &Expr) -> Option<&Expr> {
    match expression {
        Expr::InSubquery(InSubquery { expr, .. })
        | Expr::SetComparison(SetComparison { expr, .. }) => Some(expr),
        _ => None,
    }
}

/// A node whose far columns in values compared with subqueries are replaced by the passed ones, which its input has.
fn with_passed_columns(
    node: LogicalPlan,
    far: &[(FieldRef, Column)],
    name: impl Fn(usize) -> String,
) -> Result<LogicalPlan> {
    let passed = |compared: Box<Expr>| -> Result<Box<Expr>> {
        let passed = compared.transform_up(|part| match &part {
            Expr::OuterReferenceColumn(_, column) => {
                Ok(match far.iter().position(|(_, far_column)| far_column == column) {
                    Some(index) => {
                        Transformed::yes(Expr::Column(Column::new_unqualified(name(index))))
                    }
                    None => Transformed::no(part),
                })
            }
            _ => Ok(Transformed::no(part)),
        })?;
        Ok(Box::new(passed.data))
    };
    let names = NamePreserver::new(&node);
    let node = node.map_expressions(|expression| {
        let saved = names.save(&expression);
        let changed = expression.transform_up(|part| {
            Ok(Transformed::yes(match part {
                Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                    let expr = passed(expr)?;
                    Expr::InSubquery(InSubquery { expr, subquery, negated })
                }
                Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
                    let expr = passed(expr)?;
                    Expr::SetComparison(SetComparison { expr, subquery, op, quantifier })
                }
                plain => return Ok(Transformed::no(plain)),
            }))
        })?;
        Ok(changed.update_data(|expression| saved.restore(expression)))
    })?;
    Ok(node.data)
}

fn subquery_of(expression: &Expr) -> Option<&Subquery> {
    match expression {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}

/// Rewrites the subqueries of a node's expressions; the expressions keep their names.
fn with_subqueries(
    node: LogicalPlan,
    rewrite: impl Fn(Subquery) -> Result<Subquery>,
) -> Result<LogicalPlan> {
    let names = NamePreserver::new(&node);
    let node = node.map_expressions(|expression| {
        let name = names.save(&expression);
        let changed = expression.transform_up(|part| {
            Ok(Transformed::yes(match part {
                Expr::ScalarSubquery(subquery) => Expr::ScalarSubquery(rewrite(subquery)?),
                Expr::Exists(Exists { subquery, negated }) => {
                    Expr::Exists(Exists { subquery: rewrite(subquery)?, negated })
                }
                Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                    Expr::InSubquery(InSubquery { expr, subquery: rewrite(subquery)?, negated })
                }
                Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
                    let subquery = rewrite(subquery)?;
                    Expr::SetComparison(SetComparison { expr, subquery, op, quantifier })
                }
                plain => return Ok(Transformed::no(plain)),
            }))
        })?;
        Ok(changed.update_data(|expression| name.restore(expression)))
    })?;
    Ok(node.data)
}
