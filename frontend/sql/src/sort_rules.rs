//! Refuses sort keys of queries that SQL refuses and the planner takes for something else, or refuses in its own words.
//!
//! A key that is a number is a position in the select list, and one that is a name is first of all a column of the
//! result; other constants mean nothing. After UNION, INTERSECT and EXCEPT there are no other columns.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, OrderByKind, Query, SelectItem, SetExpr, UnaryOperator, Value, Visit, Visitor,
};

use super::shown_names::{folded, given_name};
use super::unique_names;
use crate::error::{AMBIGUOUS_COLUMN, SqlError, UNDEFINED_COLUMN};

/// SQLSTATE of a number that is no position in the select list.
const INVALID_COLUMN_REFERENCE: &str = "42P10";

/// Checks the sort keys of all queries of a statement.
///
/// # Errors
/// 42601 for a constant that is no position, 42P10 for a position that the select list has not, 42702 for a name that
/// different columns of the result have, and 42703 for a name that a set operation has no column of.
pub fn check_sort_keys(statement: &PlannerStatement) -> Result<(), SqlError> {
    let PlannerStatement::Statement(tree) = statement else { return Ok(()) };
    match Visit::visit(tree, &mut Checker) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Checker;

impl Visitor for Checker {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        match check(query) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

fn check(query: &Query) -> Result<(), SqlError> {
    let Some(order) = &query.order_by else { return Ok(()) };
    let OrderByKind::Expressions(keys) = &order.kind else { return Ok(()) };
    let items = items(&query.body);
    let is_select = matches!(query.body.as_ref(), SetExpr::Select(_));
    for key in keys {
        check_constant(&key.expr, items)?;
        if let (Expr::Identifier(name), Some(items)) = (bare(&key.expr), items) {
            let name = folded(name);
            check_ambiguity(&name, items)?;
            if !is_select {
                check_existence(&name, items)?;
            }
        }
    }
    Ok(())
}

/// The select list that names the columns of a query.
fn items(body: &SetExpr) -> Option<&[SelectItem]> {
    match body {
        SetExpr::Select(select) => Some(&select.projection),
        SetExpr::SetOperation { left, .. } => items(left),
        _ => None,
    }
}

fn check_constant(key: &Expr, items: Option<&[SelectItem]>) -> Result<(), SqlError> {
    let (value, sign) = match bare(key) {
        Expr::Value(value) => (&value.value, ""),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
            Expr::Value(value) if matches!(value.value, Value::Number(..)) => (&value.value, "-"),
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    let digits = match value {
        // Its value is not known yet, and is no position.
        Value::Placeholder(_) => return Ok(()),
        Value::Number(digits, _) => Some(digits),
        _ => None,
    };
    let Some(number) = digits.and_then(|digits| format!("{sign}{digits}").parse::<i32>().ok())
    else {
        return Err(SqlError::syntax("non-integer constant in ORDER BY"));
    };
    // Only the planner knows how many columns a wildcard has.
    let columns = items.filter(|items| items.iter().all(is_one)).map(<[SelectItem]>::len);
    let position = usize::try_from(number).unwrap_or_default();
    if position == 0 || columns.is_some_and(|columns| position > columns) {
        let message = format!("ORDER BY position {number} is not in select list");
        return Err(SqlError::new(INVALID_COLUMN_REFERENCE, message));
    }
    Ok(())
}

/// Refuses a name that two columns of the result have which are not the same. Names that PostgreSQL gives to computed
/// columns do not count: `SELECT k, k::text .. ORDER BY k` has the order of the column.
fn check_ambiguity(name: &str, items: &[SelectItem]) -> Result<(), SqlError> {
    let mut previous: Option<&Expr> = None;
    for item in items {
        let (expr, item_name) = match item {
            SelectItem::UnnamedExpr(expr) => (bare(expr), column(bare(expr))),
            SelectItem::ExprWithAlias { expr, alias } => (bare(expr), Some(folded(alias))),
            _ => continue,
        };
        if item_name.as_deref() != Some(name) {
            continue;
        }
        match previous {
            Some(earlier) if !may_be_same(earlier, expr) => {
                let message = format!("ORDER BY \"{name}\" is ambiguous");
                return Err(SqlError::new(AMBIGUOUS_COLUMN, message));
            }
            _ => previous = Some(expr),
        }
    }
    Ok(())
}

/// Returns true if two expressions are the same, or columns that may be: only the planner knows the tables of columns.
fn may_be_same(first: &Expr, second: &Expr) -> bool {
    first == second || matches!((column(first), column(second)), (Some(a), Some(b)) if a == b)
}

fn column(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(name) => Some(folded(name)),
        Expr::CompoundIdentifier(path) => path.last().map(folded),
        _ => None,
    }
}

/// Refuses a name that no column of a set operation has.
fn check_existence(name: &str, items: &[SelectItem]) -> Result<(), SqlError> {
    let is_named = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) => {
            given_name(expr).as_deref() == Some(name) || unique_names::name(expr) == name
        }
        SelectItem::ExprWithAlias { alias, .. } => folded(alias) == name,
        _ => true,
    };
    if items.iter().any(is_named) {
        return Ok(());
    }
    Err(SqlError::new(UNDEFINED_COLUMN, format!("column \"{name}\" does not exist")))
}

fn is_one(item: &SelectItem) -> bool {
    matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
}

/// An expression without its parentheses.
fn bare(mut expr: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Statement, parse};

    fn checked(sql: &str) -> Result<(), SqlError> {
        let Some(Statement::Query(query)) = parse(sql).unwrap().pop() else { panic!("{sql}") };
        check_sort_keys(&query.statement)
    }

    #[test]
    fn keys_that_sql_does_not_have_are_refused() {
        for (sql, sqlstate, message) in [
            ("SELECT k FROM t ORDER BY 'k'", "42601", "non-integer constant in ORDER BY"),
            ("SELECT k FROM t ORDER BY NULL", "42601", "non-integer constant in ORDER BY"),
            ("SELECT k FROM t ORDER BY (true)", "42601", "non-integer constant in ORDER BY"),
            ("SELECT * FROM t ORDER BY -1.5", "42601", "non-integer constant in ORDER BY"),
            ("SELECT * FROM t ORDER BY 0", "42P10", "ORDER BY position 0 is not in select list"),
            ("SELECT * FROM t ORDER BY -1", "42P10", "ORDER BY position -1 is not in select list"),
            ("SELECT k FROM t ORDER BY k, 2", "42P10", "ORDER BY position 2 is not in select list"),
            (
                "SELECT 1 FROM (SELECT k FROM t ORDER BY 3) AS s",
                "42P10",
                "ORDER BY position 3 is not in select list",
            ),
            (
                "SELECT k FROM t UNION SELECT 1 ORDER BY 2",
                "42P10",
                "ORDER BY position 2 is not in select list",
            ),
            ("SELECT k, -k AS K FROM t ORDER BY k", "42702", "ORDER BY \"k\" is ambiguous"),
            ("SELECT v AS x, w AS x FROM t ORDER BY x", "42702", "ORDER BY \"x\" is ambiguous"),
            ("SELECT k FROM t UNION SELECT 1 ORDER BY v", "42703", "column \"v\" does not exist"),
        ] {
            let error = checked(sql).unwrap_err();
            assert_eq!((error.sqlstate.as_str(), error.message.as_str()), (sqlstate, message));
        }
    }

    #[test]
    fn other_keys_are_left_to_the_planner() {
        for sql in [
            "SELECT k FROM t ORDER BY 1, 'k'::TEXT, NULL::INT, -k, $1",
            "SELECT * FROM t ORDER BY 7",
            "SELECT v AS x, v AS x, w FROM t ORDER BY x",
            "SELECT t.v, v, w FROM t ORDER BY v",
            "SELECT v, v::TEXT FROM t ORDER BY v",
            "SELECT k, -k AS k FROM t ORDER BY t.k, k + 1",
            "SELECT count(*) FROM t UNION SELECT 1 ORDER BY count",
            "SELECT k + 1 FROM t UNION SELECT 1 ORDER BY \"k + 1\"",
            "SELECT * FROM t UNION SELECT 1 ORDER BY v",
            "VALUES (1) ORDER BY 1",
        ] {
            assert_eq!(checked(sql), Ok(()), "{sql}");
        }
    }
}
