//! Gives `array_agg` and `string_agg` over a sorted subquery the order of its rows.
//!
//! ```text
//!   SELECT string_agg(g, ',') FROM (SELECT g FROM t ORDER BY k DESC) AS s
//!   SELECT string_agg(g, ',' ORDER BY "order:1" DESC) FROM (SELECT g, k AS "order:1" FROM t ORDER BY k DESC) AS s
//! ```
//!
//! PostgreSQL reads the rows of such a subquery in its order, and many queries rely on that; the planner drops an order
//! that nothing above it asks for. Only a subquery that is the whole FROM clause has an order to keep. One with DISTINCT
//! or set operations has none here: its keys cannot be added to its columns.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArgumentClause, FunctionArguments, Ident, ObjectNamePart, OrderByExpr,
    OrderByKind, Query, Select, SelectItem, SetExpr, TableFactor, Visit, VisitMut, Visitor,
    VisitorMut,
};

use super::shown_names::{folded, given_name};
use super::sort_keys::item;

/// Aggregates whose result depends on the order of their rows.
const ORDERED: [&str; 2] = ["array_agg", "string_agg"];

/// The statement with the order of subqueries in the aggregates that read them; `None` if there is none to give.
pub fn order_aggregates(statement: &PlannerStatement) -> Option<PlannerStatement> {
    let PlannerStatement::Statement(tree) = statement else { return None };
    if Visit::visit(tree, &mut Finder).is_continue() {
        return None;
    }
    let mut tree = tree.clone();
    let mut orderer = Orderer { found: false };
    let _: ControlFlow<()> = VisitMut::visit(&mut tree, &mut orderer);
    orderer.found.then_some(PlannerStatement::Statement(tree))
}

/// Finds an aggregate that may be given an order.
struct Finder;

impl Visitor for Finder {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(call) if is_ordered(call) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Finds an expression that is the name of the subquery itself, which stands for a row with all columns.
struct RowFinder<'a>(&'a str);

impl Visitor for RowFinder<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) if folded(name) == self.0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

struct Orderer {
    found: bool,
}

impl VisitorMut for Orderer {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if select.projection.iter().all(is_one)
            && has_aggregate(select)
            && let Some(keys) = exposed_keys(select)
        {
            self.found = true;
            for item in &mut select.projection {
                if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
                {
                    each_aggregate(expr, &mut |list| {
                        list.push(FunctionArgumentClause::OrderBy(keys.clone()));
                    });
                }
            }
        }
        ControlFlow::Continue(())
    }
}

fn has_aggregate(select: &mut Select) -> bool {
    let mut has_one = false;
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            each_aggregate(expr, &mut |_| has_one = true);
        }
    }
    has_one
}

/// Visits the clauses of each ordered aggregate that names no order itself, but those of subqueries.
fn each_aggregate(expr: &mut Expr, visit: &mut dyn FnMut(&mut Vec<FunctionArgumentClause>)) {
    let _: ControlFlow<()> = VisitMut::visit(expr, &mut Aggregates { visit, depth: 0 });
}

struct Aggregates<'a> {
    visit: &'a mut dyn FnMut(&mut Vec<FunctionArgumentClause>),
    /// Number of subqueries around the expression.
    depth: usize,
}

impl VisitorMut for Aggregates<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Function(call) = expr
            && is_ordered(call)
            && let FunctionArguments::List(list) = &mut call.args
            && list.duplicate_treatment.is_none()
            && list.clauses.is_empty()
        {
            (self.visit)(&mut list.clauses);
        }
        ControlFlow::Continue(())
    }
}

fn is_ordered(call: &Function) -> bool {
    let name = call.name.0.last().and_then(ObjectNamePart::as_ident).map(folded);
    call.over.is_none() && name.is_some_and(|name| ORDERED.contains(&name.as_str()))
}

/// Adds the sort keys of the subquery that is a SELECT's whole FROM clause to its columns. Returns them as keys over
/// these columns; `None` if there is no such subquery, or its keys cannot be added.
fn exposed_keys(select: &mut Select) -> Option<Vec<OrderByExpr>> {
    let [from] = select.from.as_mut_slice() else { return None };
    if !from.joins.is_empty() {
        return None;
    }
    let TableFactor::Derived { subquery, alias, sample: None, .. } = &mut from.relation else {
        return None;
    };
    if let Some(alias) = alias {
        let name = folded(&alias.name);
        let names_row = select
            .projection
            .iter()
            .any(|item| Visit::visit(item, &mut RowFinder(&name)).is_break());
        // A list of names is one of all columns, too.
        if names_row || !alias.columns.is_empty() {
            return None;
        }
    }
    let Query { body, order_by, .. } = subquery.as_mut();
    let OrderByKind::Expressions(keys) = &order_by.as_ref()?.kind else { return None };
    let SetExpr::Select(inner) = body.as_mut() else { return None };
    if inner.distinct.is_some() || inner.into.is_some() {
        return None;
    }
    let exposed: Vec<(OrderByExpr, Expr)> = keys
        .iter()
        .enumerate()
        .map(|(number, key)| {
            let name = Ident::with_quote('"', format!("order:{}", number + 1));
            let outer = OrderByExpr { expr: Expr::Identifier(name), ..key.clone() };
            Some((outer, sorted_by(&key.expr, &inner.projection)?))
        })
        .collect::<Option<_>>()?;
    let mut outer = Vec::with_capacity(exposed.len());
    for (key, expr) in exposed {
        if let Expr::Identifier(alias) = &key.expr {
            inner.projection.push(SelectItem::ExprWithAlias { expr, alias: alias.clone() });
        }
        outer.push(key);
    }
    Some(outer)
}

/// The expression over tables that a sort key stands for; `None` for a position that may be a wildcard's.
fn sorted_by(key: &Expr, items: &[SelectItem]) -> Option<Expr> {
    match key {
        Expr::Nested(inner) => sorted_by(inner, items),
        Expr::Value(_) => item(key, items).cloned(),
        Expr::Identifier(name) => {
            let name = folded(name);
            let output = items.iter().find_map(|item| match item {
                SelectItem::ExprWithAlias { expr, alias } if folded(alias) == name => Some(expr),
                SelectItem::UnnamedExpr(expr) if given_name(expr).as_ref() == Some(&name) => {
                    Some(expr)
                }
                _ => None,
            });
            Some(output.unwrap_or(key).clone())
        }
        key => Some(key.clone()),
    }
}

fn is_one(item: &SelectItem) -> bool {
    matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Statement, parse};

    fn ordered(sql: &str) -> String {
        let Some(Statement::Query(query)) = parse(sql).unwrap().pop() else { panic!("{sql}") };
        order_aggregates(&query.statement).unwrap_or(query.statement).to_string()
    }

    #[test]
    fn an_aggregate_has_the_order_of_the_subquery_that_it_reads() {
        for (sql, expected) in [
            (
                "SELECT count(*), string_agg(g, ',') FROM (SELECT g FROM t ORDER BY k DESC LIMIT 3) AS s",
                "SELECT count(*), string_agg(g, ',' ORDER BY \"order:1\" DESC) FROM \
                 (SELECT g, k AS \"order:1\" FROM t ORDER BY k DESC LIMIT 3) AS s",
            ),
            (
                "SELECT upper(array_agg(x)::TEXT) AS a FROM (SELECT -k AS x, max(v) FROM t GROUP BY k ORDER BY 2, x) AS s",
                "SELECT upper(array_agg(x ORDER BY \"order:1\", \"order:2\")::TEXT) AS a FROM \
                 (SELECT -k AS x, max(v), max(v) AS \"order:1\", -k AS \"order:2\" FROM t GROUP BY k ORDER BY 2, x) AS s",
            ),
            (
                "SELECT array_agg(max) FROM (SELECT g, max(v) FROM t GROUP BY g ORDER BY max) AS s",
                "SELECT array_agg(max ORDER BY \"order:1\") FROM \
                 (SELECT g, max(v), max(v) AS \"order:1\" FROM t GROUP BY g ORDER BY max) AS s",
            ),
        ] {
            assert_eq!(ordered(sql), expected);
        }
    }

    #[test]
    fn other_queries_stay() {
        for sql in [
            "SELECT string_agg(g, ',' ORDER BY g) FROM (SELECT g FROM t ORDER BY k) AS s",
            "SELECT array_agg(DISTINCT g) FROM (SELECT g FROM t ORDER BY k) AS s",
            "SELECT sum(k) FROM (SELECT k FROM t ORDER BY k) AS s",
            "SELECT array_agg(g) FROM (SELECT g FROM t) AS s",
            "SELECT array_agg(g) FROM (SELECT DISTINCT g FROM t ORDER BY g) AS s",
            "SELECT array_agg(g) FROM (SELECT * FROM t ORDER BY 1) AS s",
            "SELECT array_agg(a) FROM (SELECT g FROM t ORDER BY k) AS s (a)",
            "SELECT array_agg(s) FROM (SELECT g FROM t ORDER BY k) AS s",
            "SELECT (SELECT array_agg(h) FROM u) FROM (SELECT g FROM t ORDER BY k) AS s",
        ] {
            assert_eq!(ordered(sql), sql);
        }
    }
}
