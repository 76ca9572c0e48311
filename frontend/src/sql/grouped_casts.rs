//! Casts in GROUP BY, apart from what they cast.
//!
//! `SELECT ts, ts::DATE, count(*) FROM t GROUP BY 1, 2` groups by two things that the planner calls by one name, and refuses.
//! A function around such a key, which gives back what it is given (`partita_worker::apart`), has a name of its own.
//!
//! Invariant: the key is written so wherever the SELECT and its ORDER BY name it.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    GroupByExpr, Ident, ObjectName, ObjectNamePart, OrderByKind, Query, Select, SelectItem,
    SetExpr, Value, VisitMut, VisitorMut, visit_expressions, visit_expressions_mut,
};
use partita_worker::apart;

use super::sort_keys::item;
use super::unique_names::name;

/// Puts the function around grouped casts that are called as another key is.
pub(super) fn keep_apart(of: &mut impl VisitMut) {
    let _: ControlFlow<()> = of.visit(&mut Grouping);
}

struct Grouping;

impl VisitorMut for Grouping {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let SetExpr::Select(select) = query.body.as_mut() else {
            return ControlFlow::Continue(());
        };
        let keys = alike(select);
        if keys.is_empty() {
            return ControlFlow::Continue(());
        }
        wrap(&mut select.projection, &keys);
        wrap(&mut select.group_by, &keys);
        wrap(&mut select.having, &keys);
        if let Some(order) = &mut query.order_by
            && let OrderByKind::Expressions(sorted) = &mut order.kind
        {
            wrap(sorted, &keys);
        }
        ControlFlow::Continue(())
    }
}

/// What a call of the function is around.
pub(super) fn of_call(call: &Function) -> Option<&Expr> {
    let FunctionArguments::List(list) = &call.args else { return None };
    match (call.name.0.as_slice(), list.args.as_slice()) {
        (
            [ObjectNamePart::Identifier(name)],
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(of)), _],
        ) if name.value == apart::NAME => Some(of),
        _ => None,
    }
}

/// The keys of a SELECT's groups in which something is cast, and that are called as another.
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
    let named = |key| {
        item(key, &select.projection).or_else(|| aliased(key, &select.projection)).unwrap_or(key)
    };
    let keys: Vec<&Expr> = keys.into_iter().map(named).collect();
    if keys.len() < 2 || !keys.iter().any(|key| casts(key)) {
        return Vec::new();
    }
    let names: Vec<String> = keys.iter().map(|key| name(key)).collect();
    let is_alike = |at: &usize| {
        let same = |(other, key): (usize, &&Expr)| {
            other != *at && names[other] == names[*at] && *key != keys[*at]
        };
        casts(keys[*at]) && keys.iter().enumerate().any(same)
    };
    (0..keys.len()).filter(is_alike).map(|at| keys[at].clone()).collect()
}

/// The expression of the item that has this name.
fn aliased<'a>(key: &Expr, items: &'a [SelectItem]) -> Option<&'a Expr> {
    let Expr::Identifier(name) = key else { return None };
    items.iter().find_map(|item| match item {
        SelectItem::ExprWithAlias { expr, alias } if alias.value == name.value => Some(expr),
        _ => None,
    })
}

fn casts(key: &Expr) -> bool {
    let found = visit_expressions(key, |part| match part {
        Expr::Cast { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

fn wrap(of: &mut impl VisitMut, keys: &[Expr]) {
    let _: ControlFlow<()> = visit_expressions_mut(of, |part| {
        if keys.contains(part) {
            *part = call(part);
        }
        ControlFlow::Continue(())
    });
}

/// The function of the key, and of its text, which tells it from others.
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
    use crate::sql::{Statement, parse};

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
