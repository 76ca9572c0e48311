//! Subqueries that are values, or are tied to their outer query in other ways than by `=`, as joins.
//!
//! DataFusion makes a join of a subquery that stands alone in WHERE, and of one that is a value if it is an aggregate
//! and its columns equal outer ones. All others are made joins here, in one way. The outer columns that a subquery names are
//! its **domain**; it is computed once for all their values, with these beside its own columns, and joined to its outer
//! query by them:
//!
//! ```text
//!   SELECT k, (SELECT max(y) FROM u WHERE u.k < t.k) FROM t
//!
//!   SELECT k, s.max FROM t LEFT JOIN (
//!     SELECT d.k, max(y) FROM (SELECT DISTINCT k FROM t) d LEFT JOIN u ON u.k < d.k GROUP BY d.k
//!   ) s ON t.k IS NOT DISTINCT FROM s.k
//! ```
//!
//! A LATERAL subquery is joined in the same way. An aggregate is grouped by the domain, a LIMIT counts its rows for each of its values, and an EXISTS is whether a row is
//! there; `x IN (S)` is NULL where no row is equal and of one nobody knows.
//!
//! A subquery may name columns of a query that is more than one query further out. The query between them is given such a
//! column beside its own (`far.rs`), so that every subquery names columns of the next query only.
//!
//! Invariants:
//! - columns keep their names and types, and rows of the outer query are neither lost nor doubled;
//! - what a join cannot say (a subquery in a set operation or in a FULL JOIN that names an outer column) is refused by name.

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

/// Makes joins of subqueries; see the head of the file. To be applied before types are coerced.
#[derive(Debug, Default)]
pub(crate) struct UnnestedSubqueries {
    /// Tells the columns of one subquery from those of another.
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
        let mut found = false;
        node.apply_expressions(|expression| {
            found |= expression.exists(|part| Ok(is_subquery(part)))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !found {
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
        // A far column does not leave the node.
        let projected = LogicalPlanBuilder::from(joined).project(columns)?.build()?;
        Ok(Transformed::yes(projected))
    }

    /// A node whose subqueries name columns of its input only.
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

    /// A filter: its conjuncts that are subqueries become joins elsewhere, unless they are tied in other ways.
    fn filter(&self, filter: Filter) -> Result<Transformed<LogicalPlan>> {
        let columns = own_columns(filter.input.schema());
        let mut input = Joined { plan: filter.input.as_ref().clone(), rule: self, changed: false };
        let conjuncts = split_conjunction_owned(filter.predicate.clone());
        let conjuncts: Vec<Expr> = conjuncts
            .into_iter()
            .map(|part| {
                let rewritten = part.transform_up(|part| {
                    let tied = match &part {
                        Expr::ScalarSubquery(of) => is_tied_otherwise(of, true)?,
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

    /// Any other node over one input: all its subqueries are values.
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
            // `with_new_exprs` panics on one with an order.
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
        // What was joined does not leave the node.
        if !passes {
            return Ok(Transformed::yes(node));
        }
        let projected = LogicalPlanBuilder::from(node).project(columns)?.build()?;
        Ok(Transformed::yes(projected))
    }

    /// A join with a LATERAL subquery as one with what it is for all values of its domain.
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

/// The LATERAL subquery that a side of a join is, and its alias.
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

/// Whether a subquery names outer columns in a way that DataFusion's joins do not know.
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
                | LogicalPlan::Distinct(Distinct::On(_))
        );
        Ok(may && depends_below(node))
    })
}

/// Whether a subquery is an aggregate without groups over rows whose columns equal outer ones.
fn is_equal_aggregate(plan: &LogicalPlan, below: bool) -> Result<bool> {
    if below && !depends(plan) {
        return Ok(true);
    }
    Ok(match plan {
        LogicalPlan::Projection(of) => {
            !of.expr.iter().any(Expr::contains_outer) && is_equal_aggregate(&of.input, below)?
        }
        LogicalPlan::SubqueryAlias(of) => is_equal_aggregate(&of.input, below)?,
        LogicalPlan::Aggregate(of) => {
            let plain = !of.aggr_expr.iter().any(Expr::contains_outer);
            !below && of.group_expr.is_empty() && plain && is_equal_aggregate(&of.input, true)?
        }
        LogicalPlan::Filter(of) if below => {
            let equal = |part: &&Expr| match part {
                Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
                    let (outer, own) =
                        if left.contains_outer() { (left, right) } else { (right, left) };
                    matches!(outer.as_ref(), Expr::OuterReferenceColumn(..))
                        && matches!(own.as_ref(), Expr::Column(_))
                }
                _ => false,
            };
            let tied = split_conjunction(&of.predicate);
            let mut tied = tied.into_iter().filter(|part| part.contains_outer());
            tied.all(|part| equal(&part)) && is_equal_aggregate(&of.input, true)?
        }
        _ => false,
    })
}

/// Whether a plan names outer columns at any depth.
fn depends(plan: &LogicalPlan) -> bool {
    plan.exists(|node| Ok(node.contains_outer_reference())).unwrap_or(true)
}

fn depends_below(node: &LogicalPlan) -> bool {
    node.contains_outer_reference() || node.inputs().into_iter().any(depends)
}

/// An input, to which subqueries are joined.
struct Joined<'a> {
    plan: LogicalPlan,
    rule: &'a UnnestedSubqueries,
    changed: bool,
}

impl Joined<'_> {
    /// Whether DataFusion does not answer a subquery as a value.
    fn is_value(&self, subquery: &Expr) -> bool {
        match subquery {
            // Of one row whatever the outer query's, it is computed once.
            Expr::ScalarSubquery(of) => !of.outer_ref_columns.is_empty(),
            _ => true,
        }
    }

    /// A subquery as an expression over the input, which has it joined then.
    fn value(&mut self, expression: Expr) -> Result<Transformed<Expr>> {
        self.changed = true;
        Ok(Transformed::yes(match expression {
            Expr::ScalarSubquery(subquery) => self.scalar(&subquery)?,
            Expr::Exists(Exists { subquery, negated }) => self.exists(&subquery, negated)?,
            Expr::InSubquery(InSubquery { expr, subquery, negated }) => {
                if subquery.outer_ref_columns.is_empty() {
                    self.member(*expr, &subquery, negated)?
                } else {
                    let any = self.any(*expr, Operator::Eq, &subquery)?;
                    if negated { !any } else { any }
                }
            }
            Expr::SetComparison(SetComparison { expr, subquery, op, quantifier }) => {
                match quantifier {
                    SetQuantifier::Any => self.any(*expr, op, &subquery)?,
                    SetQuantifier::All => {
                        let Some(op) = op.negate() else {
                            return not_impl_err!("{op} ALL of a subquery");
                        };
                        !self.any(*expr, op, &subquery)?
                    }
                }
            }
            other => return Ok(Transformed::no(other)),
        }))
    }

    /// The value of a subquery of at most one row; NULL of none.
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

    /// Whether a subquery has a row.
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

    /// Whether a value is among those of a subquery that names no outer column.
    fn member(&mut self, of: Expr, subquery: &Subquery, negated: bool) -> Result<Expr> {
        let number = self.rule.number();
        let (qualifier, field) = subquery.subquery.schema().qualified_field(0);
        let value = || Expr::Column(Column::from((qualifier, field)));
        let [all, known, found, equal] =
            ["rows", "known", "found", "equal"].map(|name| format!("__{name}_{number}"));
        let column = |name: &str| Expr::Column(Column::new_unqualified(name));
        let counts = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone())
            .aggregate(
                Vec::<Expr>::new(),
                [count(lit(1_i64)).alias(&all), count(value()).alias(&known)],
            )?
            .build()?;
        let values = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone())
            .filter(value().is_not_null())?
            .project([value().alias(&equal)])?
            .distinct()?
            .project([column(&equal), lit(true).alias(&found)])?
            .build()?;
        self.plan = LogicalPlanBuilder::from(self.plan.clone())
            .cross_join(counts)?
            .join_on(values, JoinType::Left, [of.clone().eq(column(&equal))])?
            .build()?;
        let unknown =
            column(&all).gt(lit(0_i64)).and(of.is_null()).or(column(&known).lt(column(&all)));
        let cases = vec![
            (Box::new(column(&found).is_not_null()), Box::new(lit(!negated))),
            (Box::new(unknown), Box::new(lit(ScalarValue::Boolean(None)))),
        ];
        Ok(Expr::Case(Case::new(None, cases, Some(Box::new(lit(negated))))))
    }

    /// Whether a comparison is true of any row of a subquery; NULL when it is of none, and of some nobody knows.
    fn any(&mut self, of: Expr, op: Operator, subquery: &Subquery) -> Result<Expr> {
        let schema = Arc::clone(self.plan.schema());
        let outer = of.transform_up(|part| match part {
            Expr::Column(column) => {
                let field = Arc::clone(schema.field_from_column(&column)?);
                Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        let name = format!("__compared_{}", self.rule.number());
        let (qualifier, field) = subquery.subquery.schema().qualified_field(0);
        let value = Expr::Column(Column::from((qualifier, field))).alias(&name);
        let values = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone())
            .project([value])?
            .build()?;
        let value = Expr::Column(Column::new_unqualified(name));
        let compared = Expr::BinaryExpr(BinaryExpr::new(Box::new(outer.data), op, Box::new(value)));
        let of = |predicate: Expr| -> Result<Subquery> {
            let plan = LogicalPlanBuilder::from(values.clone()).filter(predicate)?.build()?;
            Ok(Subquery {
                outer_ref_columns: all_outer(&plan)?,
                subquery: Arc::new(plan),
                spans: subquery.spans.clone(),
            })
        };
        let is_true = self.exists(&of(compared.clone())?, false)?;
        let is_null = self.exists(&of(compared.is_null())?, false)?;
        let cases = vec![
            (Box::new(is_true), Box::new(lit(true))),
            (Box::new(is_null), Box::new(lit(ScalarValue::Boolean(None)))),
        ];
        Ok(Expr::Case(Case::new(None, cases, Some(Box::new(lit(false))))))
    }
}

/// The outer columns that a plan names.
fn all_outer(plan: &LogicalPlan) -> Result<Vec<Expr>> {
    let mut found = Vec::new();
    plan.apply(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                if matches!(part, Expr::OuterReferenceColumn(..)) && !found.contains(part) {
                    found.push(part.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}

/// Whether a subquery has at most one row for each value of its domain.
fn is_single(plan: &LogicalPlan) -> Result<bool> {
    Ok(match plan {
        LogicalPlan::Projection(of) => is_single(&of.input)?,
        LogicalPlan::SubqueryAlias(of) => is_single(&of.input)?,
        LogicalPlan::Filter(of) => is_single(&of.input)?,
        LogicalPlan::Sort(of) => is_single(&of.input)?,
        LogicalPlan::Aggregate(of) => of.group_expr.is_empty(),
        LogicalPlan::Limit(of) => {
            matches!(of.get_fetch_type()?, FetchType::Literal(Some(0 | 1))) || is_single(&of.input)?
        }
        LogicalPlan::EmptyRelation(_) => true,
        _ => false,
    })
}

/// The outer columns that a subquery names, and all their values.
struct Domain {
    number: usize,
    /// What they are called outside.
    outer: Vec<Column>,
    /// What they are called beside the subquery's columns.
    names: Vec<String>,
    /// Each combination of their values, once.
    values: LogicalPlan,
}

impl Domain {
    fn new(number: usize, outer: &LogicalPlan, subquery: &Subquery) -> Result<Self> {
        let mut columns: Vec<Column> = Vec::new();
        for expression in all_outer(&subquery.subquery)? {
            if let Expr::OuterReferenceColumn(_, column) = expression {
                if !outer.schema().has_column(&column) {
                    return not_impl_err!(
                        "a subquery that names {column}, two queries further out,"
                    );
                }
                if !columns.contains(&column) {
                    columns.push(column);
                }
            }
        }
        if columns.is_empty() {
            return not_impl_err!(
                "a subquery in a subquery that names a column two queries further out"
            );
        }
        let names: Vec<String> =
            (0..columns.len()).map(|at| format!("__outer_{number}_{at}")).collect();
        let named = columns.iter().zip(&names);
        let named = named.map(|(column, name)| Expr::Column(column.clone()).alias(name));
        let values = LogicalPlanBuilder::from(outer.clone())
            .project(named.collect::<Vec<_>>())?
            .distinct()?
            .build()?;
        Ok(Self { number, outer: columns, names, values })
    }

    fn columns(&self) -> impl Iterator<Item = Expr> + '_ {
        self.names.iter().map(|name| Expr::Column(Column::new_unqualified(name)))
    }

    /// Joins what was computed for all values to the outer query.
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

    /// An expression with the domain's columns in the place of outer ones.
    fn bound(&self, expression: Expr) -> Result<Expr> {
        let bound = expression.transform_up(|part| match part {
            Expr::OuterReferenceColumn(_, column) => {
                let at = self.outer.iter().position(|outer| *outer == column);
                let Some(name) = at.and_then(|at| self.names.get(at)) else {
                    return not_impl_err!(
                        "a subquery that names {column}, two queries further out,"
                    );
                };
                Ok(Transformed::yes(Expr::Column(Column::new_unqualified(name))))
            }
            other => Ok(Transformed::no(other)),
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

    /// Expressions under the names that they have in a schema.
    fn named<'a>(
        &self,
        expressions: impl Iterator<Item = &'a Expr>,
        schema: &DFSchema,
        from: usize,
    ) -> Result<Vec<Expr>> {
        let fields = schema.iter().skip(from);
        let named = expressions.zip(fields).map(|(expression, (qualifier, field))| {
            let bound = self.bound(expression.clone())?;
            Ok(match bound {
                Expr::Column(_) if bound == *expression => bound,
                bound => bound.unalias().alias_qualified(qualifier.cloned(), field.name()),
            })
        });
        named.collect()
    }

    /// A plan for all values of the domain, with these beside its own columns.
    fn within(&self, plan: &LogicalPlan) -> Result<LogicalPlan> {
        if !depends(plan) {
            return LogicalPlanBuilder::from(self.values.clone()).cross_join(plan.clone())?.build();
        }
        match plan {
            LogicalPlan::Projection(of) => {
                let input = self.within(&of.input)?;
                let own = self.named(of.expr.iter(), &of.schema, 0)?;
                LogicalPlanBuilder::from(input).project(self.columns().chain(own))?.build()
            }
            LogicalPlan::Filter(of) => {
                let input = self.within(&of.input)?;
                LogicalPlanBuilder::from(input).filter(self.bound(of.predicate.clone())?)?.build()
            }
            LogicalPlan::SubqueryAlias(of) => {
                let named = LogicalPlanBuilder::from(self.within(&of.input)?)
                    .alias(of.alias.clone())?
                    .build()?;
                let domain = self.names.iter().map(|name| {
                    Expr::Column(Column::new(Some(of.alias.clone()), name)).alias(name)
                });
                let columns: Vec<Expr> = domain.chain(own_columns(&of.schema)).collect();
                LogicalPlanBuilder::from(named).project(columns)?.build()
            }
            // Without a limit above, the order says nothing.
            LogicalPlan::Sort(of) if of.fetch.is_none() => self.within(&of.input),
            LogicalPlan::Limit(of) => {
                let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
                    (of.get_skip_type()?, of.get_fetch_type()?)
                else {
                    return not_impl_err!(
                        "LIMIT or OFFSET of a parameter in a correlated subquery"
                    );
                };
                self.limited(&of.input, skip, fetch)
            }
            LogicalPlan::Aggregate(of) => {
                let input = self.within(&of.input)?;
                let sets = |group: &Expr| matches!(group, Expr::GroupingSet(_));
                if of.group_expr.iter().any(sets) {
                    return not_impl_err!(
                        "GROUPING SETS, CUBE and ROLLUP in a correlated subquery"
                    );
                }
                let groups = self.named(of.group_expr.iter(), &of.schema, 0)?;
                let values = self.named(of.aggr_expr.iter(), &of.schema, of.group_expr.len())?;
                if !groups.is_empty() {
                    return LogicalPlanBuilder::from(input)
                        .aggregate(self.columns().chain(groups), values)?
                        .build();
                }
                self.aggregated(input, values, &of.aggr_expr, &of.schema)
            }
            LogicalPlan::Distinct(Distinct::All(input)) => {
                LogicalPlanBuilder::from(self.within(input)?).distinct()?.build()
            }
            LogicalPlan::Join(of) => self.joined(of),
            other => not_impl_err!(
                "a correlated subquery that names an outer column below or in {}",
                other.display()
            ),
        }
    }

    /// The rows of each value of the domain that a limit leaves.
    fn limited(
        &self,
        input: &LogicalPlan,
        skip: usize,
        fetch: Option<usize>,
    ) -> Result<LogicalPlan> {
        let (sorted, keys) = match input {
            LogicalPlan::Projection(of) if matches!(of.input.as_ref(), LogicalPlan::Sort(_)) => {
                // A projection has as many rows as its input, which has the columns of the order.
                let below = self.limited(&of.input, skip, fetch)?;
                let own = self.named(of.expr.iter(), &of.schema, 0)?;
                return LogicalPlanBuilder::from(below).project(self.columns().chain(own))?.build();
            }
            LogicalPlan::Sort(of) => (of.input.as_ref(), of.expr.as_slice()),
            other => (other, &[][..]),
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
        let mut kept = number.clone().gt(bound(skip));
        if let Some(fetch) = fetch {
            kept = kept.and(number.lt_eq(bound(skip.saturating_add(fetch))));
        }
        LogicalPlanBuilder::from(rows)
            .window([window])?
            .project(numbered)?
            .filter(kept)?
            .project(columns)?
            .build()
    }

    /// An aggregate without groups, which has a row for each value of the domain, also where no row is.
    fn aggregated(
        &self,
        input: LogicalPlan,
        values: Vec<Expr>,
        calls: &[Expr],
        schema: &DFSchema,
    ) -> Result<LogicalPlan> {
        let present = format!("__present_{}", self.number);
        let names: Vec<String> =
            (0..values.len()).map(|at| format!("__aggregate_{}_{at}", self.number)).collect();
        let named = values.into_iter().zip(&names);
        let named = named.map(|(value, name)| value.unalias().alias(name));
        let named = named.chain([count(lit(1_i64)).alias(&present)]).collect::<Vec<_>>();
        let grouped = LogicalPlanBuilder::from(input).aggregate(self.columns(), named)?.build()?;
        let again = |name: &String| format!("{name}_again");
        let renamed = self
            .names
            .iter()
            .map(|name| Expr::Column(Column::new_unqualified(name)).alias(again(name)));
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
        let lefts = self.names.iter().map(Column::new_unqualified).collect::<Vec<_>>();
        let rights = self.names.iter().map(|name| Column::new_unqualified(again(name)));
        let joined = LogicalPlanBuilder::from(self.values.clone()).join_detailed(
            grouped,
            JoinType::Left,
            (lefts, rights.collect::<Vec<_>>()),
            None,
            NullEquality::NullEqualsNull,
        )?;
        let present = Expr::Column(Column::new_unqualified(present));
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

    fn joined(&self, of: &Join) -> Result<LogicalPlan> {
        let (left, right) = (depends(&of.left), depends(&of.right));
        if left && right {
            return self.joined_on_both_sides(of);
        }
        let (left, right) = match (of.join_type, left, right) {
            (
                JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti,
                _,
                false,
            ) => (self.within(&of.left)?, of.right.as_ref().clone()),
            (JoinType::Inner | JoinType::Right, false, true) => {
                (of.left.as_ref().clone(), self.within(&of.right)?)
            }
            (kind, _, _) => {
                return not_impl_err!("an outer column on this side of {kind} JOIN in a subquery");
            }
        };
        let on = of
            .on
            .iter()
            .map(|(left, right)| Ok((self.bound(left.clone())?, self.bound(right.clone())?)));
        let on = on.collect::<Result<Vec<_>>>()?;
        let filter = of.filter.clone().map(|filter| self.bound(filter)).transpose()?;
        let join = Join::try_new(
            Arc::new(left),
            Arc::new(right),
            on,
            filter,
            of.join_type,
            of.join_constraint,
            of.null_equality,
            of.null_aware,
        )?;
        let join = LogicalPlan::Join(join);
        let columns = self.columns().chain(own_columns(&of.schema)).collect::<Vec<_>>();
        LogicalPlanBuilder::from(join).project(columns)?.build()
    }
}

impl Domain {
    /// A join of which both sides name outer columns: each is computed for all values of the domain, and rows meet those of
    /// the same values.
    fn joined_on_both_sides(&self, of: &Join) -> Result<LogicalPlan> {
        let kinds = [JoinType::Inner, JoinType::Left, JoinType::LeftSemi, JoinType::LeftAnti];
        if !kinds.contains(&of.join_type) {
            return not_impl_err!(
                "outer columns on both sides of {} JOIN in a subquery",
                of.join_type
            );
        }
        let left = self.within(&of.left)?;
        let other = |name: &String| format!("{name}_right");
        let renamed = self
            .names
            .iter()
            .map(|name| Expr::Column(Column::new_unqualified(name)).alias(other(name)));
        let columns: Vec<Expr> = renamed.chain(own_columns(of.right.schema())).collect();
        let right = LogicalPlanBuilder::from(self.within(&of.right)?).project(columns)?.build()?;
        let on = of
            .on
            .iter()
            .map(|(left, right)| Ok((self.bound(left.clone())?, self.bound(right.clone())?)));
        let on = on.collect::<Result<Vec<_>>>()?;
        let same = self.names.iter().map(|name| {
            let own = Box::new(Expr::Column(Column::new_unqualified(name)));
            let other = Box::new(Expr::Column(Column::new_unqualified(other(name))));
            Expr::BinaryExpr(BinaryExpr::new(own, Operator::IsNotDistinctFrom, other))
        });
        let filter = of.filter.clone().map(|filter| self.bound(filter)).transpose()?;
        let join = Join::try_new(
            Arc::new(left),
            Arc::new(right),
            on,
            conjunction(same.chain(filter)),
            of.join_type,
            of.join_constraint,
            of.null_equality,
            of.null_aware,
        )?;
        let columns = self.columns().chain(own_columns(&of.schema)).collect::<Vec<_>>();
        LogicalPlanBuilder::from(LogicalPlan::Join(join)).project(columns)?.build()
    }
}

/// What an aggregate is of no rows.
fn of_nothing(call: &Expr, data_type: &DataType) -> Result<ScalarValue> {
    match call {
        Expr::Alias(alias) => of_nothing(&alias.expr, data_type),
        Expr::AggregateFunction(AggregateFunction { func, .. }) => func.default_value(data_type),
        _ => ScalarValue::try_from(data_type),
    }
}
