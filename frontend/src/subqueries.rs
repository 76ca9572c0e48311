//! Rewrites subqueries in predicates so that joins give the right results.
//!
//! DataFusion plans EXISTS, IN, ANY and ALL as joins, and loses some of their meaning: a mark join is never NULL, a
//! null-aware join supports only one key, a global aggregate has a row even without input rows, and an OFFSET is
//! dropped. Columns of the outer query and of the subquery with the same name are confused.
//!
//! ```text
//!   EXISTS (SELECT count(*) ..)             true: a global aggregate always has one row
//!   EXISTS (S OFFSET n)                     (SELECT count(*) FROM S) > n
//!   x IN (SELECT count(*) ..)               x = (SELECT count(*) ..)
//! x NOT IN (S), a conjunct of a filter    NOT EXISTS (SELECT FROM S WHERE (x = y) IS NOT FALSE), unless a null-aware
//! join is right
//!   x IN (S) elsewhere                      CASE WHEN EXISTS (.. WHERE x = y) THEN true
//!                                                WHEN EXISTS (.. WHERE (x = y) IS NULL) THEN NULL ELSE false END
//!   x > ALL (S)                             the same with another name for S
//! ```
//!
//! Invariant: a reference to the outer query below a LIMIT, or above an aggregate without groups, is an error that
//! names it.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, ScalarValue, not_impl_err};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, merge_schema, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Case, Expr, FetchType, LogicalPlan, LogicalPlanBuilder, Operator, SkipType,
    Subquery, lit,
};
use datafusion::optimizer::AnalyzerRule;

/// Rewrites the subqueries of predicates; see the head of the file. Apply it once types are coerced.
#[derive(Debug)]
pub(crate) struct ExactSubqueries;

impl AnalyzerRule for ExactSubqueries {
    fn name(&self) -> &'static str {
        "exact_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(rewritten)?.data)
    }
}

fn rewritten(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    if let LogicalPlan::Filter(mut filter) = plan {
        let conjuncts = split_conjunction_owned(filter.predicate);
        let conjuncts = conjuncts.into_iter().map(|part| {
            let top = conjunct(part, &schema)?;
            // DataFusion plans a subquery that is still at the top correctly.
            if matches!(top, Expr::InSubquery(_) | Expr::Exists(_)) {
                Ok(top)
            } else {
                inner(top, &schema)
            }
        });
        let conjuncts: Vec<Expr> = conjuncts.collect::<Result<_>>()?;
        filter.predicate = conjunction(conjuncts).unwrap_or_else(|| lit(true));
        return Ok(Transformed::yes(LogicalPlan::Filter(filter)));
    }
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expression| {
        if !has_subquery(&expression)? {
            return Ok(Transformed::no(expression));
        }
        let name = names.save(&expression);
        Ok(Transformed::yes(name.restore(inner(expression, &schema)?)))
    })
}

fn has_subquery(expression: &Expr) -> Result<bool> {
    expression.exists(|part| {
        Ok(matches!(part, Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_)))
    })
}

/// A conjunct of a filter, where NULL has the effect of false.
fn conjunct(expression: Expr, schema: &DFSchema) -> Result<Expr> {
    let expression = match expression {
        Expr::Not(inner) => match *inner {
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                Expr::InSubquery(InSubquery::new(expr, subquery, !negated))
            }
            Expr::Exists(Exists { subquery, negated }) => {
                Expr::Exists(Exists { subquery, negated: !negated })
            }
            operand => Expr::Not(Box::new(operand)),
        },
        expression => expression,
    };
    match expression {
        Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
            match of_one_row(&expr, Operator::Eq, &subquery, negated)? {
                Some(single) => Ok(single),
                None if !negated => Ok(Expr::InSubquery(InSubquery::new(expr, subquery, false))),
                // A null-aware join is right if its one key has columns of both sides.
                None if subquery.outer_ref_columns.is_empty() && is_of_columns(&expr)? => {
                    Ok(Expr::InSubquery(InSubquery::new(expr, subquery, true)))
                }
                None => {
                    let equal = Compared::new(*expr, Operator::Eq, &subquery, schema)?;
                    equal.exists(|equal| equal.is_not_false(), true)
                }
            }
        }
        Expr::Exists(subquery) => exists(subquery),
        expression => Ok(expression),
    }
}

/// An expression in any other place, where an unknown result must be NULL.
fn inner(expression: Expr, schema: &DFSchema) -> Result<Expr> {
    let rewritten = expression.transform_up(|part| {
        Ok(Transformed::yes(match part {
            Expr::Exists(subquery) => exists(subquery)?,
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                match of_one_row(&expr, Operator::Eq, &subquery, negated)? {
                    Some(single) => single,
                    None => {
                        let equal = Compared::new(*expr, Operator::Eq, &subquery, schema)?;
                        let is_member = equal.any()?;
                        if negated { Expr::Not(Box::new(is_member)) } else { is_member }
                    }
                }
            }
            Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
                match of_one_row(&expr, op, &subquery, false)? {
                    Some(single) => single,
                    None => {
                        let subquery = aliased(&subquery)?;
                        Expr::SetComparison(SetComparison::new(expr, subquery, op, quantifier))
                    }
                }
            }
            part => return Ok(Transformed::no(part)),
        }))
    })?;
    Ok(rewritten.data)
}

/// Returns true if the value of an expression depends on its row.
fn is_of_columns(expression: &Expr) -> Result<bool> {
    let mut columns = false;
    // Other functions may be NULL for constants, and cannot be keys of a join then.
    let mut plain = true;
    expression.apply(|part| {
        columns |= matches!(part, Expr::Column(_));
        plain &= matches!(
            part,
            Expr::Column(_)
                | Expr::Cast(_)
                | Expr::BinaryExpr(_)
                | Expr::Literal(..)
                | Expr::ScalarFunction(_)
        );
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(columns && plain)
}

/// Number of rows of a subquery, as far as its shape determines it.
enum Rows {
    /// Exactly one, whatever its input.
    One,
    /// Depends on the rows.
    Any,
}

/// Shape of a subquery, through operators that keep the number of rows.
fn rows(plan: &LogicalPlan) -> Rows {
    match plan {
        LogicalPlan::Projection(projection) => rows(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => rows(&alias.input),
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => rows(&sort.input),
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => Rows::One,
        _ => Rows::Any,
    }
}

/// Refuses references to the outer query in places where a join would give a wrong result.
fn check(subquery: &Subquery) -> Result<()> {
    if subquery.outer_ref_columns.is_empty() {
        return Ok(());
    }
    // The error names the construct, since a wrong result would be silent.
    let mut refused = None;
    subquery.subquery.apply(|node| {
        let depends = || node.inputs().iter().any(|input| input.contains_outer_reference_within());
        match node {
            LogicalPlan::Limit(_) if depends() => {
                refused = Some("LIMIT or OFFSET in a correlated subquery of IN, ANY or ALL");
            }
            LogicalPlan::Filter(filter) => {
                let above_one_row = matches!(rows(&filter.input), Rows::One);
                if above_one_row
                    && (depends()
                        || !filter.predicate.column_refs().is_empty()
                            && node.contains_outer_reference())
                {
                    refused = Some("HAVING without GROUP BY in a correlated subquery");
                }
            }
            _ => {}
        }
        Ok(if refused.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    match refused {
        Some(construct) => not_impl_err!("{construct}"),
        None => Ok(()),
    }
}

/// Test for references to the outer query at any depth of a plan.
trait Depends {
    fn contains_outer_reference_within(&self) -> bool;
}

impl Depends for LogicalPlan {
    fn contains_outer_reference_within(&self) -> bool {
        self.exists(|node| Ok(node.contains_outer_reference())).unwrap_or(true)
    }
}

fn exists(Exists { subquery, negated }: Exists) -> Result<Expr> {
    // A subquery of exactly one row always exists.
    if matches!(rows(&subquery.subquery), Rows::One) {
        return Ok(lit(!negated));
    }
    let correlated = !subquery.outer_ref_columns.is_empty();
    // The join of a correlated subquery ignores its LIMIT: fetch and skip become conditions here.
    if let LogicalPlan::Limit(limit) = subquery.subquery.as_ref()
        && correlated
    {
        let (skip, fetch) = (limit.get_skip_type()?, limit.get_fetch_type()?);
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) = (skip, fetch) else {
            return not_impl_err!("a parameter as LIMIT or OFFSET of a correlated subquery");
        };
        if fetch == Some(0) {
            return Ok(lit(negated));
        }
        if skip == 0 {
            let inner = subquery.with_plan(Arc::clone(&limit.input));
            return exists(Exists { subquery: inner, negated });
        }
        let inner = subquery.with_plan(Arc::clone(&limit.input));
        check(&inner)?;
        let counted = LogicalPlanBuilder::from(limit.input.as_ref().clone())
            .aggregate(Vec::<Expr>::new(), vec![count(lit(1_i64))])?
            .build()?;
        let number = Expr::ScalarSubquery(subquery.with_plan(Arc::new(counted)));
        let skip = lit(i64::try_from(skip).unwrap_or(i64::MAX));
        return Ok(if negated { number.lt_eq(skip) } else { number.gt(skip) });
    }
    check(&subquery)?;
    Ok(Expr::Exists(Exists { subquery, negated }))
}

/// Turns a comparison with a subquery of one row into a comparison with its value.
fn of_one_row(
    expr: &Expr,
    op: Operator,
    subquery: &Subquery,
    negated: bool,
) -> Result<Option<Expr>> {
    if subquery.outer_ref_columns.is_empty() || !matches!(rows(&subquery.subquery), Rows::One) {
        check(subquery)?;
        return Ok(None);
    }
    let value = Expr::ScalarSubquery(subquery.clone());
    let op = if negated { op.negate().unwrap_or(op) } else { op };
    Ok(Some(Expr::BinaryExpr(BinaryExpr::new(Box::new(expr.clone()), op, Box::new(value)))))
}

/// A subquery whose column has a name that no outer column has.
fn aliased(subquery: &Subquery) -> Result<Subquery> {
    let plan = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone());
    let (qualifier, field) = subquery.subquery.schema().qualified_field(0);
    let column = Expr::Column(Column::from((qualifier, field)));
    let plan = plan.project([column.alias(VALUE)])?.build()?;
    Ok(subquery.with_plan(Arc::new(plan)))
}

/// Name of the subquery's column in a comparison.
const VALUE: &str = "__value";

/// Comparison of an outer expression with each row of a subquery.
struct Compared {
    subquery: Subquery,
    comparison: Expr,
}

impl Compared {
    fn new(expr: Expr, op: Operator, subquery: &Subquery, schema: &DFSchema) -> Result<Self> {
        let outer = expr.transform_up(|part| match part {
            Expr::Column(column) => {
                let field = schema.field_from_column(&column)?;
                Ok(Transformed::yes(Expr::OuterReferenceColumn(Arc::clone(field), column)))
            }
            part => Ok(Transformed::no(part)),
        })?;
        let value = Expr::Column(Column::new_unqualified(VALUE));
        let comparison = BinaryExpr::new(Box::new(outer.data), op, Box::new(value));
        Ok(Self { subquery: aliased(subquery)?, comparison: Expr::BinaryExpr(comparison) })
    }

    /// EXISTS over the rows for which the comparison has a property.
    fn exists(&self, property: impl FnOnce(Expr) -> Expr, negated: bool) -> Result<Expr> {
        let plan = LogicalPlanBuilder::from(self.subquery.subquery.as_ref().clone())
            .filter(property(self.comparison.clone()))?
            .build()?;
        let subquery = Subquery {
            outer_ref_columns: plan.all_out_ref_exprs(),
            subquery: Arc::new(plan),
            spans: self.subquery.spans.clone(),
        };
        Ok(Expr::Exists(Exists { subquery, negated }))
    }

    /// True if the comparison is true for any row; NULL if it is true for none and NULL for some.
    fn any(&self) -> Result<Expr> {
        let is_true = self.exists(|equal| equal, false)?;
        let is_null = self.exists(Expr::is_null, false)?;
        let cases = vec![
            (Box::new(is_true), Box::new(lit(true))),
            (Box::new(is_null), Box::new(lit(ScalarValue::Boolean(None)))),
        ];
        Ok(Expr::Case(Case::new(None, cases, Some(Box::new(lit(false))))))
    }
}
