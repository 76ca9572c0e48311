//! Joins for subqueries that are values, or correlated by other conditions than `=`.
//!
//! DataFusion plans a join for a subquery that stands alone in WHERE, and for a scalar subquery that is an aggregate
//! correlated by equality. All other subqueries become joins here, in one way. The outer columns that a subquery
//! names are its **domain**; the subquery is computed once for all their values, which become columns of its result,
//! and joined to its outer query by them:
//!
//! ```text
//!   SELECT k, (SELECT max(y) FROM u WHERE u.k < t.k) FROM t
//!
//!   SELECT k, s.max FROM t LEFT JOIN (
//!     SELECT d.k, max(y) FROM (SELECT DISTINCT k FROM t) d LEFT JOIN u ON u.k < d.k GROUP BY d.k
//!   ) s ON t.k IS NOT DISTINCT FROM s.k
//! ```
//!
//! A LATERAL subquery is joined in the same way, unless it reads no table (`beside.rs`). An aggregate is grouped by the
//! domain, a LIMIT counts rows for each of its values, and EXISTS tests whether a row is there; `x IN (S)` is NULL if no
//! row is equal and the comparison is NULL for some.
//!
//! A subquery may name columns of a query more than one level up. Such a column is passed to the query between them
//! (`far.rs`), so that every subquery names only columns of the next query.
//!
//! Invariants:
//! - columns keep their names and types, and rows of the outer query are neither lost nor duplicated;
//! - a subquery that cannot become a join (in a set operation or in a FULL JOIN with an outer column) is an error
//!   that names it.

mod beside;
mod far;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, DFSchema, ExprSchema, JoinType, NullEquality, ScalarValue, TableReference, not_impl_err,
};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::{count, first_value};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::{
    AggregateFunction, Exists, InSubquery, SetComparison, SetQuantifier,
};
use datafusion::logical_expr::utils::{conjunction, split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Case, Distinct, DistinctOn, Expr, ExprFunctionExt, FetchType, Filter, Join,
    LogicalPlan, LogicalPlanBuilder, Operator, SkipType, SortExpr, Subquery, lit,
};
use datafusion::optimizer::AnalyzerRule;
use partita_worker::only_row;

/// Turns subqueries into joins; see the head of the file. Apply it before types are coerced.
#[derive(Debug, Default)]
pub(crate) struct UnnestedSubqueries {
    /// Next number for the column names of a subquery.
    numbers: AtomicUsize,
}

impl AnalyzerRule for UnnestedSubqueries {
    fn name(&self) -> &'static str {
        "unnested_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(|node| self.rewritten(node))?.data)
    }
}

fn is_subquery(expression: &Expr) -> bool {
    matches!(
        expression,
        Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_) | Expr::ScalarSubquery(_)
    )
}

impl UnnestedSubqueries {
    fn rewritten(&self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Join(join) = &node
            && let Some((alias, subquery)) = lateral(&join.right)
        {
            return Ok(match self.lateral(join, alias, subquery)? {
                Some(joined) => Transformed::yes(joined),
                None => Transformed::no(node),
            });
        }
        let mut has_subquery = false;
        node.apply_expressions(|expression| {
            has_subquery |= expression.exists(|part| Ok(is_subquery(part)))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !has_subquery {
            return Ok(Transformed::no(node));
        }
        let node = far::with_outer_columns(node)?;
        let columns = own_columns(node.schema());
        let Some(node) = far::with_far_columns(&node, || self.number())? else {
            return self.joined(node);
        };
        let joined = self.joined(node)?.data;
        if own_columns(joined.schema()) == columns {
            return Ok(Transformed::yes(joined));
        }
        // Passed columns do not leave the node.
        let projected = LogicalPlanBuilder::from(joined).project(columns)?.build()?;
        Ok(Transformed::yes(projected))
    }

    /// Rewrites a node whose subqueries name only columns of its input.
    fn joined(&self, node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        match node {
            LogicalPlan::Filter(filter) => self.filter(filter),
            LogicalPlan::Join(_) => Ok(Transformed::no(node)),
            node => {
                let only = match node.inputs()[..] {
                    [input] => Some(input.clone()),
                    _ => None,
                };
                match only {
                    Some(input) => self.over(node, input),
                    None => Ok(Transformed::no(node)),
                }
            }
        }
    }

    /// Rewrites a filter: DataFusion turns its conjuncts into joins later, except those correlated in other ways.
    fn filter(&self, filter: Filter) -> Result<Transformed<LogicalPlan>> {
        let columns = own_columns(filter.input.schema());
        let mut input = Joined { plan: filter.input.as_ref().clone(), rule: self, changed: false };
        // Only subqueries that DataFusion's joins do not support are joined here.
        let conjuncts = split_conjunction_owned(filter.predicate.clone());
        let conjuncts: Vec<Expr> = conjuncts
            .into_iter()
            .map(|part| {
                let rewritten = part.transform_up(|part| {
                    let tied = match &part {
                        Expr::ScalarSubquery(scalar) => is_tied_otherwise(scalar, true)?,
                        Expr::Exists(Exists { subquery, .. }) => {
                            is_tied_otherwise(subquery, false)?
                        }
                        Expr::InSubquery(InSubquery { subquery, .. })
                        | Expr::SetComparison(SetComparison { subquery, .. }) => {
                            is_tied_otherwise(subquery, false)?
                        }
                        _ => false,
                    };
                    if tied { input.value(part) } else { Ok(Transformed::no(part)) }
                });
                Ok(rewritten?.data)
            })
            .collect::<Result<_>>()?;
        if !input.changed {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        }
        let predicate = conjunction(conjuncts).unwrap_or_else(|| lit(true));
        let plan = LogicalPlanBuilder::from(input.plan).filter(predicate)?.project(columns)?;
        Ok(Transformed::yes(plan.build()?))
    }

    /// Rewrites any other node with one input: all its subqueries are values.
    fn over(&self, node: LogicalPlan, input: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        let columns = own_columns(node.schema());
        let names = datafusion::logical_expr::expr_rewriter::NamePreserver::new(&node);
        let mut joined = Joined { plan: input, rule: self, changed: false };
        let rewritten = node.map_expressions(|expression| {
            let name = names.save(&expression);
            let rewritten = expression.transform_up(|part| {
                if is_subquery(&part) && joined.is_value(&part) {
                    return joined.value(part);
                }
                Ok(Transformed::no(part))
            })?;
            Ok(rewritten.update_data(|expression| name.restore(expression)))
        })?;
        if !joined.changed {
            return Ok(rewritten);
        }
        let node = rewritten.data;
        let passes = matches!(node, LogicalPlan::Sort(_) | LogicalPlan::Window(_));
        let node = match node {
            // `with_new_exprs` panics for DISTINCT ON with an order.
            LogicalPlan::Distinct(Distinct::On(DistinctOn {
                on_expr,
                select_expr,
                sort_expr,
                ..
            })) => {
                let input = Arc::new(joined.plan);
                let first = DistinctOn::try_new(on_expr, select_expr, sort_expr, input)?;
                LogicalPlan::Distinct(Distinct::On(first))
            }
            node => node.with_new_exprs(node.expressions(), vec![joined.plan])?,
        };
        // Joined columns do not leave the node; sorts and windows pass columns on.
        if !passes {
            return Ok(Transformed::yes(node));
        }
        let projected = LogicalPlanBuilder::from(node).project(columns)?.build()?;
        Ok(Transformed::yes(projected))
    }

    /// Replaces a join with a LATERAL subquery by a join with its result for all values of its domain.
    fn lateral(
        &self,
        join: &Join,
        alias: Option<&TableReference>,
        subquery: &Subquery,
    ) -> Result<Option<LogicalPlan>> {
        let kind = join.join_type;
        if subquery.outer_ref_columns.is_empty()
            || !join.on.is_empty()
            || !matches!(kind, JoinType::Inner | JoinType::Left)
        {
            return Ok(None);
        }
        if kind == JoinType::Inner && beside::is_of_one_row(&subquery.subquery) {
            return self.beside(join, alias, subquery).map(Some);
        }
        let domain = Domain::new(self.number(), &join.left, subquery)?;
        let mut right = LogicalPlanBuilder::from(domain.within(&subquery.subquery)?);
        if let Some(alias) = alias {
            right = right.alias(alias.clone())?;
        }
        let names = domain.names.iter().map(|name| Column::new(alias.cloned(), name));
        let joined = LogicalPlanBuilder::from(join.left.as_ref().clone())
            .join_detailed(
                right.build()?,
                kind,
                (domain.outer.clone(), names.collect::<Vec<_>>()),
                join.filter.clone(),
                NullEquality::NullEqualsNull,
            )?
            .project(own_columns(&join.schema))?
            .build()?;
        Ok(Some(joined))
    }

    fn number(&self) -> usize {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

/// LATERAL subquery on a side of a join, and its alias.
fn lateral(plan: &LogicalPlan) -> Option<(Option<&TableReference>, &Subquery)> {
    match plan {
        LogicalPlan::Subquery(subquery) => Some((None, subquery)),
        LogicalPlan::SubqueryAlias(alias) => match alias.input.as_ref() {
            LogicalPlan::Subquery(subquery) => Some((Some(&alias.alias), subquery)),
            _ => None,
        },
        _ => None,
    }
}

fn own_columns(schema: &DFSchema) -> Vec<Expr> {
    schema.columns().into_iter().map(Expr::Column).collect()
}

/// Returns true if a subquery names outer columns in a way that DataFusion's joins do not support.
fn is_tied_otherwise(subquery: &Subquery, is_value: bool) -> Result<bool> {
    if subquery.outer_ref_columns.is_empty() {
        return Ok(false);
    }
    let plan = subquery.subquery.as_ref();
    if is_value {
        return Ok(!is_equal_aggregate(plan, false)?);
    }
    plan.exists(|node| {
        if far::is_of_far_columns(node) {
            return Ok(true);
        }
        let may = matches!(
            node,
            LogicalPlan::Limit(_)
                | LogicalPlan::Aggregate(_)
                | LogicalPlan::Window(_)
                | LogicalPlan::Union(_)
                | LogicalPlan::Unnest(_)
                | LogicalPlan::Distinct(Distinct::On(_))
        );
        Ok(may && depends_below(node))
    })
}

/// Returns true if a subquery is an aggregate without groups over rows that are correlated by equality.
fn is_equal_aggregate(plan: &LogicalPlan, below_aggregate: bool) -> Result<bool> {
    if below_aggregate && !depends(plan) {
        return Ok(true);
    }
    // Only projections, aliases and equality filters may lie around the aggregate.
    Ok(match plan {
        LogicalPlan::Projection(projection) => {
            !projection.expr.iter().any(Expr::contains_outer)
                && is_equal_aggregate(&projection.input, below_aggregate)?
        }
        LogicalPlan::SubqueryAlias(alias) => is_equal_aggregate(&alias.input, below_aggregate)?,
        LogicalPlan::Aggregate(aggregate) => {
            let plain = !aggregate.aggr_expr.iter().any(Expr::contains_outer);
            !below_aggregate
                && aggregate.group_expr.is_empty()
                && plain
                && is_equal_aggregate(&aggregate.input, true)?
        }
        LogicalPlan::Filter(filter) if below_aggregate => {
            let equal = |part: &&Expr| match part {
                Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
                    let (outer, inner) =
                        if left.contains_outer() { (left, right) } else { (right, left) };
                    matches!(outer.as_ref(), Expr::OuterReferenceColumn(..))
                        && matches!(inner.as_ref(), Expr::Column(_))
                }
                _ => false,
            };
            let tied = split_conjunction(&filter.predicate);
            let mut tied = tied.into_iter().filter(|part| part.contains_outer());
            tied.all(|part| equal(&part)) && is_equal_aggregate(&filter.input, true)?
        }
        _ => false,
    })
}

/// Returns true if a plan names outer columns at any depth.
fn depends(plan: &LogicalPlan) -> bool {
    plan.exists(|node| Ok(node.contains_outer_reference())).unwrap_or(true)
}

fn depends_below(node: &LogicalPlan) -> bool {
    node.contains_outer_reference() || node.inputs().into_iter().any(depends)
}

/// An input with subqueries joined to it.
struct Joined<'a> {
    plan: LogicalPlan,
    rule: &'a UnnestedSubqueries,
    changed: bool,
}

impl Joined<'_> {
    /// Returns true if DataFusion does not plan a subquery as a value.
    fn is_value(&self, subquery: &Expr) -> bool {
        match subquery {
            // An uncorrelated scalar subquery is computed once.
            Expr::ScalarSubquery(scalar) => !scalar.outer_ref_columns.is_empty(),
            _ => true,
        }
    }

    /// Joins a subquery to the input, and returns the expression for its value.
    fn value(&mut self, expression: Expr) -> Result<Transformed<Expr>> {
        self.changed = true;
        Ok(Transformed::yes(match expression {
            Expr::ScalarSubquery(subquery) => self.scalar(&subquery)?,
            Expr::Exists(Exists { subquery, negated }) => self.exists(&subquery, negated)?,
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                if subquery.outer_ref_columns.is_empty() {
                    self.member(*expr, &subquery, negated)?
                } else {
                    let is_member = self.any(*expr, Operator::Eq, &subquery)?;
                    if negated { !is_member } else { is_member }
                }
            }
            Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
                match quantifier {
                    SetQuantifier::Any => self.any(*expr, op, &subquery)?,
                    SetQuantifier::All => {
                        let Some(op) = op.negate() else {
                            return not_impl_err!("{op} ALL with a subquery");
                        };
                        !self.any(*expr, op, &subquery)?
                    }
                }
            }
            expression => return Ok(Transformed::no(expression)),
        }))
    }

    /// Value of a subquery of at most one row; NULL without a row.
    fn scalar(&mut self, subquery: &Subquery) -> Result<Expr> {
        let domain = Domain::new(self.rule.number(), &self.plan, subquery)?;
        let inner = domain.within(&subquery.subquery)?;
        let (qualifier, field) = subquery.subquery.schema().qualified_field(0);
        let value = Expr::Column(Column::from((qualifier, field)));
        let name = format!("__value_{}", domain.number);
        let plan = LogicalPlanBuilder::from(inner);
        let column = |name: &str| Expr::Column(Column::new_unqualified(name));
        if is_single(&subquery.subquery)? {
            let columns = domain.columns().chain([value.alias(&name)]);
            let plan = plan.project(columns)?.build()?;
            self.plan = domain.join(&self.plan, plan)?;
            return Ok(column(&name));
        }
        let rows = format!("__rows_{}", domain.number);
        let first = first_value(value, Vec::new()).alias(&name);
        let plan =
            plan.aggregate(domain.columns(), [first, count(lit(1_i64)).alias(&rows)])?.build()?;
        self.plan = domain.join(&self.plan, plan)?;
        only_row(column(&rows), column(&name))
    }

    /// Condition that a subquery has a row.
    fn exists(&mut self, subquery: &Subquery, negated: bool) -> Result<Expr> {
        if subquery.outer_ref_columns.is_empty() {
            let rows = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone())
                .limit(0, Some(1))?
                .aggregate(Vec::<Expr>::new(), [count(lit(1_i64))])?
                .build()?;
            let rows = Expr::ScalarSubquery(subquery.with_plan(Arc::new(rows)));
            return Ok(if negated { rows.eq(lit(0_i64)) } else { rows.gt(lit(0_i64)) });
        }
        let domain = Domain::new(self.rule.number(), &self.plan, subquery)?;
        let inner = domain.within(&subquery.subquery)?;
        let name = format!("__exists_{}", domain.number);
        let plan = LogicalPlanBuilder::from(inner)
            .project(domain.columns())?
            .distinct()?
            .project(domain.columns().chain([lit(true).alias(&name)]))?
            .build()?;
        self.plan = domain.join(&self.plan, plan)?;
        let flag = Expr::Column(Column::new_unqualified(name));
        Ok(if negated { flag.is_null() } else { flag.is_not_null() })
    }

    /// Condition that a value is among those of an uncorrelated subquery.
    fn member(&mut self, operand: Expr, subquery: &Subquery, negated: bool) -> Result<Expr> {
        // Names of the columns that are joined to the input.
        let number = self.rule.number();
        let (qualifier, field) = subquery.subquery.schema().qualified_field(0);
        let value = || Expr::Column(Column::from((qualifier, field)));
        let [total, known_count, is_found, equal] =
            ["rows", "known", "found", "equal"].map(|name| format!("__{name}_{number}"));
        let column = |name: &str| Expr::Column(Column::new_unqualified(name));
        // Count all rows and those that are not NULL, and mark the value that is equal.
        let counts = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone())
            .aggregate(
                Vec::<Expr>::new(),
                [count(lit(1_i64)).alias(&total), count(value()).alias(&known_count)],
            )?
            .build()?;
        let values = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone())
            .filter(value().is_not_null())?
            .project([value().alias(&equal)])?
            .distinct()?
            .project([column(&equal), lit(true).alias(&is_found)])?
            .build()?;
        self.plan = LogicalPlanBuilder::from(self.plan.clone())
            .cross_join(counts)?
            .join_on(values, JoinType::Left, [operand.clone().eq(column(&equal))])?
            .build()?;
        // Without an equal value, the result is NULL if the operand or any value is NULL.
        let unknown = column(&total)
            .gt(lit(0_i64))
            .and(operand.is_null())
            .or(column(&known_count).lt(column(&total)));
        let cases = vec![
            (Box::new(column(&is_found).is_not_null()), Box::new(lit(!negated))),
            (Box::new(unknown), Box::new(lit(ScalarValue::Boolean(None)))),
        ];
        Ok(Expr::Case(Case::new(None, cases, Some(Box::new(lit(negated))))))
    }

    /// Condition that a comparison is true for any row; NULL if it is true for none and NULL for some.
    fn any(&mut self, operand: Expr, op: Operator, subquery: &Subquery) -> Result<Expr> {
        // In the subquery, columns of the operand are outer columns.
        let schema = Arc::clone(self.plan.schema());
        let outer = operand.transform_up(|part| match part {
            Expr::Column(column) => {
                let field = Arc::clone(schema.field_from_column(&column)?);
                Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
            }
            part => Ok(Transformed::no(part)),
        })?;
        let name = format!("__compared_{}", self.rule.number());
        let (qualifier, field) = subquery.subquery.schema().qualified_field(0);
        let value = Expr::Column(Column::from((qualifier, field))).alias(&name);
        let values = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone())
            .project([value])?
            .build()?;
        let value = Expr::Column(Column::new_unqualified(name));
        let compared = Expr::BinaryExpr(BinaryExpr::new(Box::new(outer.data), op, Box::new(value)));
        let rows_where = |predicate: Expr| -> Result<Subquery> {
            let plan = LogicalPlanBuilder::from(values.clone()).filter(predicate)?.build()?;
            Ok(Subquery {
                outer_ref_columns: all_outer(&plan)?,
                subquery: Arc::new(plan),
                spans: subquery.spans.clone(),
            })
        };
        let is_true = self.exists(&rows_where(compared.clone())?, false)?;
        let is_null = self.exists(&rows_where(compared.is_null())?, false)?;
        let cases = vec![
            (Box::new(is_true), Box::new(lit(true))),
            (Box::new(is_null), Box::new(lit(ScalarValue::Boolean(None)))),
        ];
        Ok(Expr::Case(Case::new(None, cases, Some(Box::new(lit(false))))))
    }
}

/// Outer columns that a plan names, each once.
fn all_outer(plan: &LogicalPlan) -> Result<Vec<Expr>> {
    let mut outer_columns = Vec::new();
    plan.apply(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                if matches!(part, Expr::OuterReferenceColumn(..)) && !outer_columns.contains(part) {
                    outer_columns.push(part.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(outer_columns)
}

/// Returns true if a subquery has at most one row for each value of its domain.
fn is_single(plan: &LogicalPlan) -> Result<bool> {
    Ok(match plan {
        LogicalPlan::Projection(projection) => is_single(&projection.input)?,
        LogicalPlan::SubqueryAlias(alias) => is_single(&alias.input)?,
        LogicalPlan::Filter(filter) => is_single(&filter.input)?,
        LogicalPlan::Sort(sort) => is_single(&sort.input)?,
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Limit(limit) => {
            matches!(limit.get_fetch_type()?, FetchType::Literal(Some(0 | 1)))
                || is_single(&limit.input)?
        }
        LogicalPlan::EmptyRelation(_) => true,
        _ => false,
    })
}

/// Outer columns that a subquery names, and all their values.
struct Domain {
    number: usize,
    /// Columns in the outer query.
    outer: Vec<Column>,
    /// Names beside the subquery's columns.
    names: Vec<String>,
    /// Each combination of the columns' values, once.
    values: LogicalPlan,
}

impl Domain {
    fn new(number: usize, outer: &LogicalPlan, subquery: &Subquery) -> Result<Self> {
        let mut columns: Vec<Column> = Vec::new();
        for expression in all_outer(&subquery.subquery)? {
            if let Expr::OuterReferenceColumn(_, column) = expression {
                if !outer.schema().has_column(&column) {
                    return not_impl_err!("a reference to column {column} two query levels up");
                }
                if !columns.contains(&column) {
                    columns.push(column);
                }
            }
        }
        if columns.is_empty() {
            return not_impl_err!("a reference to a column two query levels up");
        }
        let names: Vec<String> =
            (0..columns.len()).map(|index| format!("__outer_{number}_{index}")).collect();
        let aliased = columns.iter().zip(&names);
        let aliased = aliased.map(|(column, name)| Expr::Column(column.clone()).alias(name));
        let values = LogicalPlanBuilder::from(outer.clone())
            .project(aliased.collect::<Vec<_>>())?
            .distinct()?
            .build()?;
        Ok(Self { number, outer: columns, names, values })
    }

    fn columns(&self) -> impl Iterator<Item = Expr> + '_ {
        self.names.iter().map(|name| Expr::Column(Column::new_unqualified(name)))
    }

    /// Joins a result for all values of the domain to the outer query.
    fn join(&self, outer: &LogicalPlan, computed: LogicalPlan) -> Result<LogicalPlan> {
        let names = self.names.iter().map(Column::new_unqualified).collect::<Vec<_>>();
        LogicalPlanBuilder::from(outer.clone())
            .join_detailed(
                computed,
                JoinType::Left,
                (self.outer.clone(), names),
                None,
                NullEquality::NullEqualsNull,
            )?
            .build()
    }

    /// An expression with outer columns replaced by the domain's columns.
    fn bound(&self, expression: Expr) -> Result<Expr> {
        let bound = expression.transform_up(|part| match part {
            Expr::OuterReferenceColumn(_, column) => {
                let index = self.outer.iter().position(|outer| *outer == column);
                let Some(name) = index.and_then(|index| self.names.get(index)) else {
                    return not_impl_err!("a reference to column {column} two query levels up");
                };
                Ok(Transformed::yes(Expr::Column(Column::new_unqualified(name))))
            }
            part => Ok(Transformed::no(part)),
        })?;
        Ok(bound.data)
    }

    fn bound_keys(&self, keys: &[SortExpr]) -> Result<Vec<SortExpr>> {
        let bound = |key: &SortExpr| {
            let expr = self.bound(key.expr.clone())?;
            Ok(SortExpr { expr, ..key.clone() })
        };
        keys.iter().map(bound).collect()
    }

    /// Bound expressions under the names of a schema's fields from `first` on.
    fn named<'a>(
        &self,
        expressions: impl Iterator<Item = &'a Expr>,
        schema: &DFSchema,
        first: usize,
    ) -> Result<Vec<Expr>> {
        let fields = schema.iter().skip(first);
        let bound_expressions = expressions.zip(fields).map(|(expression, (qualifier, field))| {
            let bound = self.bound(expression.clone())?;
            Ok(match bound {
                Expr::Column(_) if bound == *expression => bound,
                bound => bound.unalias().alias_qualified(qualifier.cloned(), field.name()),
            })
        });
        bound_expressions.collect()
    }

    /// A plan computed for all values of the domain, which precede its own columns.
    fn within(&self, plan: &LogicalPlan) -> Result<LogicalPlan> {
        if !depends(plan) {
            return LogicalPlanBuilder::from(self.values.clone()).cross_join(plan.clone())?.build();
        }
        match plan {
            LogicalPlan::Projection(projection) => {
                let input = self.within(&projection.input)?;
                let columns = self.named(projection.expr.iter(), &projection.schema, 0)?;
                LogicalPlanBuilder::from(input).project(self.columns().chain(columns))?.build()
            }
            LogicalPlan::Filter(filter) => {
                let input = self.within(&filter.input)?;
                LogicalPlanBuilder::from(input)
                    .filter(self.bound(filter.predicate.clone())?)?
                    .build()
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let aliased = LogicalPlanBuilder::from(self.within(&alias.input)?)
                    .alias(alias.alias.clone())?
                    .build()?;
                let domain = self.names.iter().map(|name| {
                    Expr::Column(Column::new(Some(alias.alias.clone()), name)).alias(name)
                });
                let columns: Vec<Expr> = domain.chain(own_columns(&alias.schema)).collect();
                LogicalPlanBuilder::from(aliased).project(columns)?.build()
            }
            // The values of the domain are repeated for each element.
            LogicalPlan::Unnest(unnest) => LogicalPlanBuilder::from(self.within(&unnest.input)?)
                .unnest_columns_with_options(unnest.exec_columns.clone(), unnest.options.clone())?
                .build(),
            // A LATERAL item that begins a FROM clause: its outer columns are those of the query around.
            LogicalPlan::Subquery(subquery) => self.within(&subquery.subquery),
            // Without a limit above, the order does not matter.
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => self.within(&sort.input),
            LogicalPlan::Limit(limit) => {
                let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
                    (limit.get_skip_type()?, limit.get_fetch_type()?)
                else {
                    return not_impl_err!(
                        "a parameter as LIMIT or OFFSET of a correlated subquery"
                    );
                };
                self.limited(&limit.input, skip, fetch)
            }
            LogicalPlan::Aggregate(aggregate) => {
                let input = self.within(&aggregate.input)?;
                let sets = |group: &Expr| matches!(group, Expr::GroupingSet(_));
                if aggregate.group_expr.iter().any(sets) {
                    return not_impl_err!(
                        "GROUPING SETS, CUBE and ROLLUP in a correlated subquery"
                    );
                }
                let groups = self.named(aggregate.group_expr.iter(), &aggregate.schema, 0)?;
                let values = self.named(
                    aggregate.aggr_expr.iter(),
                    &aggregate.schema,
                    aggregate.group_expr.len(),
                )?;
                if !groups.is_empty() {
                    return LogicalPlanBuilder::from(input)
                        .aggregate(self.columns().chain(groups), values)?
                        .build();
                }
                self.aggregated(input, values, &aggregate.aggr_expr, &aggregate.schema)
            }
            LogicalPlan::Distinct(Distinct::All(input)) => {
                LogicalPlanBuilder::from(self.within(input)?).distinct()?.build()
            }
            LogicalPlan::Join(join) => self.joined(join),
            node => not_impl_err!(
                "an outer column in or below {} of a correlated subquery",
                node.display()
            ),
        }
    }

    /// Applies a limit to the rows of each value of the domain.
    fn limited(
        &self,
        input: &LogicalPlan,
        skip: usize,
        fetch: Option<usize>,
    ) -> Result<LogicalPlan> {
        let (sorted, keys) = match input {
            LogicalPlan::Projection(projection)
                if matches!(projection.input.as_ref(), LogicalPlan::Sort(_)) =>
            {
                // The limit moves below the projection, where the columns of the order are.
                let input = self.limited(&projection.input, skip, fetch)?;
                let columns = self.named(projection.expr.iter(), &projection.schema, 0)?;
                return LogicalPlanBuilder::from(input)
                    .project(self.columns().chain(columns))?
                    .build();
            }
            LogicalPlan::Sort(sort) => (sort.input.as_ref(), sort.expr.as_slice()),
            node => (node, &[][..]),
        };
        let rows = self.within(sorted)?;
        let columns = own_columns(rows.schema());
        let mut window = row_number().partition_by(self.columns().collect());
        if !keys.is_empty() {
            window = window.order_by(self.bound_keys(keys)?);
        }
        let window = window.build()?;
        let name = format!("__number_{}", self.number);
        let number = Column::new_unqualified(window.schema_name().to_string());
        let numbered = [Expr::Column(number).alias(&name)];
        let numbered: Vec<Expr> = columns.iter().cloned().chain(numbered).collect();
        let number = Expr::Column(Column::new_unqualified(name));
        let bound = |rows: usize| lit(u64::try_from(rows).unwrap_or(u64::MAX));
        let mut in_limit = number.clone().gt(bound(skip));
        if let Some(fetch) = fetch {
            in_limit = in_limit.and(number.lt_eq(bound(skip.saturating_add(fetch))));
        }
        LogicalPlanBuilder::from(rows)
            .window([window])?
            .project(numbered)?
            .filter(in_limit)?
            .project(columns)?
            .build()
    }

    /// An aggregate without groups: it has a row for each value of the domain, even without input rows.
    fn aggregated(
        &self,
        input: LogicalPlan,
        values: Vec<Expr>,
        calls: &[Expr],
        schema: &DFSchema,
    ) -> Result<LogicalPlan> {
        let present = format!("__present_{}", self.number);
        // Aggregate by the domain: values with input rows get their results, and a mark.
        let names: Vec<String> =
            (0..values.len()).map(|index| format!("__aggregate_{}_{index}", self.number)).collect();
        let aggregates = values.into_iter().zip(&names);
        let aggregates = aggregates.map(|(value, name)| value.unalias().alias(name));
        let aggregates = aggregates.chain([count(lit(1_i64)).alias(&present)]).collect::<Vec<_>>();
        let grouped =
            LogicalPlanBuilder::from(input).aggregate(self.columns(), aggregates)?.build()?;
        // The domain's columns get other names on the right side of the next join.
        let right_name = |name: &String| format!("{name}_again");
        let renamed = self
            .names
            .iter()
            .map(|name| Expr::Column(Column::new_unqualified(name)).alias(right_name(name)));
        let grouped = LogicalPlanBuilder::from(grouped)
            .project(
                renamed
                    .chain(
                        names
                            .iter()
                            .chain([&present])
                            .map(|name| Expr::Column(Column::new_unqualified(name))),
                    )
                    .collect::<Vec<_>>(),
            )?
            .build()?;
        // Values without input rows get a row by the outer join.
        let lefts = self.names.iter().map(Column::new_unqualified).collect::<Vec<_>>();
        let rights = self.names.iter().map(|name| Column::new_unqualified(right_name(name)));
        let joined = LogicalPlanBuilder::from(self.values.clone()).join_detailed(
            grouped,
            JoinType::Left,
            (lefts, rights.collect::<Vec<_>>()),
            None,
            NullEquality::NullEqualsNull,
        )?;
        let present = Expr::Column(Column::new_unqualified(present));
        // Without input rows, the result is the aggregate's default.
        let columns = names.iter().zip(calls).zip(schema.iter());
        let columns = columns.map(|((name, call), (qualifier, field))| {
            let value = Expr::Column(Column::new_unqualified(name));
            let value = match of_nothing(call, field.data_type())? {
                nothing if nothing.is_null() => value,
                nothing => {
                    let cases = vec![(Box::new(present.clone().is_null()), Box::new(lit(nothing)))];
                    Expr::Case(Case::new(None, cases, Some(Box::new(value))))
                }
            };
            Ok(value.alias_qualified(qualifier.cloned(), field.name()))
        });
        let columns: Vec<Expr> = columns.collect::<Result<_>>()?;
        joined.project(self.columns().chain(columns))?.build()
    }

    fn joined(&self, join: &Join) -> Result<LogicalPlan> {
        let (left_depends, right_depends) = (depends(&join.left), depends(&join.right));
        if left_depends && right_depends {
            return self.joined_on_both_sides(join);
        }
        // A side that is kept whole, or both of an inner join, may depend on the domain.
        let (left_input, right_input) = match (join.join_type, left_depends, right_depends) {
            (
                JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti,
                _,
                false,
            ) => (self.within(&join.left)?, join.right.as_ref().clone()),
            (JoinType::Inner | JoinType::Right, false, true) => {
                (join.left.as_ref().clone(), self.within(&join.right)?)
            }
            (kind, _, _) => {
                return not_impl_err!("an outer column on this side of {kind} JOIN in a subquery");
            }
        };
        let keys = join
            .on
            .iter()
            .map(|(outer, inner)| Ok((self.bound(outer.clone())?, self.bound(inner.clone())?)));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        let filter = join.filter.clone().map(|filter| self.bound(filter)).transpose()?;
        let with_domain = LogicalPlan::Join(Join::try_new(
            Arc::new(left_input),
            Arc::new(right_input),
            keys,
            filter,
            join.join_type,
            join.join_constraint,
            join.null_equality,
            join.null_aware,
        )?);
        let columns = self.columns().chain(own_columns(&join.schema)).collect::<Vec<_>>();
        LogicalPlanBuilder::from(with_domain).project(columns)?.build()
    }
}

impl Domain {
    /// A join with outer columns on both sides: each side is computed for all values of the domain, and rows with the
    /// same values are joined.
    fn joined_on_both_sides(&self, join: &Join) -> Result<LogicalPlan> {
        let kinds = [JoinType::Inner, JoinType::Left, JoinType::LeftSemi, JoinType::LeftAnti];
        if !kinds.contains(&join.join_type) {
            return not_impl_err!(
                "outer columns on both sides of {} JOIN in a subquery",
                join.join_type
            );
        }
        // The domain's columns get other names on the right side.
        let left_input = self.within(&join.left)?;
        let right_name = |name: &String| format!("{name}_right");
        let renamed = self
            .names
            .iter()
            .map(|name| Expr::Column(Column::new_unqualified(name)).alias(right_name(name)));
        let columns: Vec<Expr> = renamed.chain(own_columns(join.right.schema())).collect();
        let right_input =
            LogicalPlanBuilder::from(self.within(&join.right)?).project(columns)?.build()?;
        let keys = join
            .on
            .iter()
            .map(|(outer, inner)| Ok((self.bound(outer.clone())?, self.bound(inner.clone())?)));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        // Rows are joined within the same values of the domain.
        let same = self.names.iter().map(|name| {
            let left_value = Box::new(Expr::Column(Column::new_unqualified(name)));
            let right_value = Box::new(Expr::Column(Column::new_unqualified(right_name(name))));
            Expr::BinaryExpr(BinaryExpr::new(left_value, Operator::IsNotDistinctFrom, right_value))
        });
        let filter = join.filter.clone().map(|filter| self.bound(filter)).transpose()?;
        let with_domain = Join::try_new(
            Arc::new(left_input),
            Arc::new(right_input),
            keys,
            conjunction(same.chain(filter)),
            join.join_type,
            join.join_constraint,
            join.null_equality,
            join.null_aware,
        )?;
        let columns = self.columns().chain(own_columns(&join.schema)).collect::<Vec<_>>();
        LogicalPlanBuilder::from(LogicalPlan::Join(with_domain)).project(columns)?.build()
    }
}

/// Value of an aggregate without input rows.
fn of_nothing(call: &Expr, data_type: &DataType) -> Result<ScalarValue> {
    match call {
        Expr::Alias(alias) => of_nothing(&alias.expr, data_type),
        Expr::AggregateFunction(AggregateFunction { func, .. }) => func.default_value(data_type),
        _ => ScalarValue::try_from(data_type),
    }
}
