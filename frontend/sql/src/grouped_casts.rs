//! Gives casts in GROUP BY and in aggregates names of their own.
//!
//! The planner names a cast after its operand. It refuses `SELECT ts, ts::DATE, count(*) FROM t GROUP BY 1, 2` and
//! `SELECT max(s), max(s::INT)`, in which two expressions have one name, and returns one column twice for `SELECT
//! DISTINCT ON (k) s, s::INT`. An identity function around the cast (`partita_worker::apart`) has a name of its own.
//!
//! Invariant: the cast is wrapped in every place where the SELECT and its ORDER BY have the key or the aggregate.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, GroupByExpr, Ident, ObjectName, ObjectNamePart, OrderByKind, Query, Select,
    SelectItem, SetExpr, Value, Visit, VisitMut, VisitorMut, visit_expressions,
    visit_expressions_mut,
};
use partita_worker::apart;
use partita_worker::functions::is_aggregate;

use super::sort_keys::item;
use super::unique_names::name;

/// Wraps grouped casts that have the name of another key.
pub(super) fn keep_apart(tree: &mut impl VisitMut) {
    let _: ControlFlow<()> = tree.visit(&mut Grouping);
}

struct Grouping;

impl VisitorMut for Grouping {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let SetExpr::Select(select) = query.body.as_mut() else {
            return ControlFlow::Continue(());
        };
        // The sort keys of the query, if they are expressions.
        let mut no_keys = Vec::new();
        let sorted = match &mut query.order_by {
            Some(order) => match &mut order.kind {
                OrderByKind::Expressions(sorted) => sorted,
                OrderByKind::All(_) => &mut no_keys,
            },
            None => &mut no_keys,
        };
        // Keys of groups that have one name.
        let keys = alike(select);
        if !keys.is_empty() {
            wrap(&mut select.projection, &keys, call);
            wrap(&mut select.group_by, &keys, call);
            wrap(&mut select.having, &keys, call);
            wrap(sorted, &keys, call);
        }
        // Aggregates and windows that have one name.
        let mut calls = Vec::new();
        aggregates(&select.projection, &mut calls);
        aggregates(&select.having, &mut calls);
        aggregates(&select.qualify, &mut calls);
        aggregates(&*sorted, &mut calls);
        let calls = of_one_name(calls);
        if !calls.is_empty() {
            wrap(&mut select.projection, &calls, with_casts_apart);
            wrap(&mut select.having, &calls, with_casts_apart);
            wrap(&mut select.qualify, &calls, with_casts_apart);
            wrap(sorted, &calls, with_casts_apart);
        }
        // DISTINCT ON takes first values, which are aggregates for the planner.
        if matches!(select.distinct, Some(Distinct::On(_))) {
            first_values(&mut select.projection);
        }
        ControlFlow::Continue(())
    }
}

/// Collects the aggregates and windows of an expression, each once.
fn aggregates(tree: &impl Visit, calls: &mut Vec<Expr>) {
    let _: ControlFlow<()> = visit_expressions(tree, |part| {
        if let Expr::Function(function) = part {
            let name = function.name.0.last().and_then(ObjectNamePart::as_ident);
            let is_aggregate = function.over.is_some()
                || name.is_some_and(|name| is_aggregate(&name.value.to_ascii_lowercase()));
            if is_aggregate && !calls.contains(part) {
                calls.push(part.clone());
            }
        }
        ControlFlow::Continue(())
    });
}

/// The expressions with casts that have the name of another expression.
fn of_one_name(expressions: Vec<Expr>) -> Vec<Expr> {
    if expressions.len() < 2 || !expressions.iter().any(casts) {
        return Vec::new();
    }
    let names: Vec<String> = expressions.iter().map(name).collect();
    let is_alike = |position: usize| {
        let mut neighbours = names.iter().enumerate();
        casts(&expressions[position])
            && neighbours.any(|(neighbour, name)| neighbour != position && *name == names[position])
    };
    (0..expressions.len())
        .filter(|position| is_alike(*position))
        .map(|position| expressions[position].clone())
        .collect()
}

/// Wraps the casts of the items of DISTINCT ON that have the name of another item.
fn first_values(items: &mut [SelectItem]) {
    let mut expressions = Vec::new();
    for item in items.iter() {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
            && !expressions.contains(expr)
        {
            expressions.push(expr.clone());
        }
    }
    let ambiguous = of_one_name(expressions);
    for item in items {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
            && ambiguous.contains(expr)
        {
            *expr = with_casts_apart(expr);
        }
    }
}

/// An expression with all its casts wrapped.
fn with_casts_apart(expr: &Expr) -> Expr {
    let mut wrapped = expr.clone();
    let _: ControlFlow<()> = visit_expressions_mut(&mut wrapped, |part| {
        if matches!(part, Expr::Cast { .. }) {
            *part = call(part);
        }
        ControlFlow::Continue(())
    });
    wrapped
}

/// The expression that a call of the function wraps.
pub(super) fn of_call(call: &Function) -> Option<&Expr> {
    let FunctionArguments::List(list) = &call.args else { return None };
    match (call.name.0.as_slice(), list.args.as_slice()) {
        (
            [ObjectNamePart::Identifier(name)],
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(wrapped)), _],
        ) if name.value == apart::NAME => Some(wrapped),
        _ => None,
    }
}

/// The keys of a SELECT's groups that contain a cast and have the name of another key.
fn alike(select: &Select) -> Vec<Expr> {
    let GroupByExpr::Expressions(listed, _) = &select.group_by else { return Vec::new() };
    let mut keys = Vec::new();
    for key in listed {
        match key {
            Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) => {
                keys.extend(sets.iter().flatten());
            }
            key => keys.push(key),
        }
    }
    let resolved = |key| {
        item(key, &select.projection).or_else(|| aliased(key, &select.projection)).unwrap_or(key)
    };
    let keys: Vec<&Expr> = keys.into_iter().map(resolved).collect();
    if keys.len() < 2 || !keys.iter().any(|key| casts(key)) {
        return Vec::new();
    }
    let names: Vec<String> = keys.iter().map(|key| name(key)).collect();
    let is_alike = |position: &usize| {
        let same = |(neighbour, key): (usize, &&Expr)| {
            neighbour != *position
                && names[neighbour] == names[*position]
                && *key != keys[*position]
        };
        casts(keys[*position]) && keys.iter().enumerate().any(same)
    };
    (0..keys.len()).filter(is_alike).map(|position| keys[position].clone()).collect()
}

/// The expression of the item with this alias.
fn aliased<'a>(key: &Expr, items: &'a [SelectItem]) -> Option<&'a Expr> {
    let Expr::Identifier(name) = key else { return None };
    items.iter().find_map(|item| match item {
        SelectItem::ExprWithAlias { expr, alias } if alias.value == name.value => Some(expr),
        _ => None,
    })
}

fn casts(key: &Expr) -> bool {
    let walk = visit_expressions(key, |part| match part {
        Expr::Cast { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    walk.is_break()
}

fn wrap(tree: &mut impl VisitMut, keys: &[Expr], written: fn(&Expr) -> Expr) {
    let _: ControlFlow<()> = visit_expressions_mut(tree, |part| {
        if keys.contains(part) {
            *part = written(part);
        }
        ControlFlow::Continue(())
    });
}

/// A call of the function with the key and its text, which makes the call's name unique.
fn call(key: &Expr) -> Expr {
    let text = Expr::Value(Value::SingleQuotedString(key.to_string()).into());
    let argument = |expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(apart::NAME)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: vec![argument(key.clone()), argument(text)],
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use crate::{Statement, parse};

    fn read(sql: &str) -> String {
        let Some(Statement::Query(query)) = parse(sql).unwrap().pop() else { panic!("{sql}") };
        query.statement.to_string()
    }

    #[test]
    fn a_cast_in_group_by_has_a_name_of_its_own_everywhere() {
        let apart = "kept_apart(ts::DATE, 'ts::DATE')";
        for (sql, expected) in [
            (
                "SELECT ts, ts::DATE, count(*) FROM t GROUP BY 1, 2 ORDER BY 1",
                format!("SELECT ts, {apart}, count(*) FROM t GROUP BY 1, 2 ORDER BY 1"),
            ),
            (
                "SELECT ts FROM t GROUP BY ts, ts::DATE HAVING ts::DATE > 'x' ORDER BY ts::DATE",
                format!(
                    "SELECT ts FROM t GROUP BY ts, {apart} HAVING {apart} > 'x' ORDER BY {apart}"
                ),
            ),
            (
                "SELECT ts::DATE AS d FROM t GROUP BY ROLLUP (ts, d)",
                format!("SELECT {apart} AS d FROM t GROUP BY ROLLUP (ts, d)"),
            ),
        ] {
            assert_eq!(read(sql), expected);
        }
    }

    #[test]
    fn casts_in_aggregates_that_have_one_name_get_names_of_their_own() {
        let apart = "kept_apart(s::INT, 's::INT')";
        for (sql, expected) in [
            (
                "SELECT max(s), max(s::INT) FROM t ORDER BY max(s::INT)",
                format!("SELECT max(s), max({apart}) FROM t ORDER BY max({apart})"),
            ),
            (
                "SELECT max(s) FROM t HAVING max(s::INT) > 1",
                format!("SELECT max(s) FROM t HAVING max({apart}) > 1"),
            ),
            (
                "SELECT lag(s) OVER (ORDER BY k), lag(s::INT) OVER (ORDER BY k) FROM t",
                format!("SELECT lag(s) OVER (ORDER BY k), lag({apart}) OVER (ORDER BY k) FROM t"),
            ),
            (
                "SELECT DISTINCT ON (k) s, s::INT AS n, s || 'a' FROM t ORDER BY k",
                format!("SELECT DISTINCT ON (k) s, {apart} AS n, s || 'a' FROM t ORDER BY k"),
            ),
        ] {
            assert_eq!(read(sql), expected);
        }
        for sql in [
            "SELECT max(s::INT), max(s::INT), min(s) FROM t",
            "SELECT abs(s), abs(s::INT) FROM t",
            "SELECT s, s::INT FROM t",
        ] {
            assert_eq!(read(sql), sql);
        }
    }

    #[test]
    fn keys_that_are_told_apart_already_stay() {
        for sql in [
            "SELECT ts, ts::DATE FROM t GROUP BY ts",
            "SELECT k, ts::DATE FROM t GROUP BY k, ts::DATE",
            "SELECT k FROM t GROUP BY k, k",
            "SELECT ts::DATE FROM t GROUP BY ts::DATE, ts::DATE",
        ] {
            assert_eq!(read(sql), sql);
        }
    }
}
