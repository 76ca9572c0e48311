//! Rewrites sort keys that the planner does not accept.
//!
//! - Keys that an ORDER BY repeats: DISTINCT ON counts keys, and the planner drops repeated ones.
//! - Numbers of select items that are made of aggregates, as in `SELECT k, max(v) - min(v) FROM t GROUP BY k ORDER BY
//!   2`: the planner searches GROUP BY for a column of that name. It accepts the item itself, and the number of an item
//!   with a name.
//! - Items of SELECT DISTINCT that are no columns, as in `SELECT DISTINCT v + 1 FROM t ORDER BY v + 1`: the planner
//!   searches the result for the columns of the key. It accepts the number of the item.
//!
//! Invariant: the order of the rows stays the same. A repeated key, and a constant, have no effect on it.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, Ident, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, Value,
    VisitMut, VisitorMut, visit_expressions_mut,
};

use super::shown_names::folded;

/// Drops repeated keys.
pub(super) fn drop_repeated(tree: &mut impl VisitMut) {
    let _: ControlFlow<()> = tree.visit(&mut each(|keys, select| {
        let items = &select.projection;
        let mut distinct: Vec<Expr> = Vec::new();
        keys.retain(|key| {
            let expr = item(&key.expr, items).unwrap_or(&key.expr);
            let is_new = !distinct.contains(expr);
            if is_new {
                distinct.push(expr.clone());
            }
            is_new
        });
    }));
}

/// Replaces keys of SELECT DISTINCT that are items, but no columns, by the numbers of these.
pub(super) fn number_distinct(tree: &mut impl VisitMut) {
    let _: ControlFlow<()> = tree.visit(&mut each(|keys, select| {
        if !matches!(select.distinct, Some(Distinct::Distinct)) {
            return;
        }
        for key in keys {
            if let Some(number) = number_of(&key.expr, &select.projection) {
                key.expr = Expr::Value(Value::Number(number.to_string(), false).into());
            }
        }
    }));
}

/// The number of the item that is the same expression as a key, if the key is no column and no wildcard precedes the item.
fn number_of(key: &Expr, items: &[SelectItem]) -> Option<usize> {
    if matches!(key, Expr::Value(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
        return None;
    }
    let key = compared(key);
    for (position, item) in items.iter().enumerate() {
        match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                if compared(expr) == key {
                    return Some(position + 1);
                }
            }
            _ => return None,
        }
    }
    None
}

/// An expression in the form in which equal ones are compared: without the parentheses around it, and with folded names.
fn compared(expr: &Expr) -> Expr {
    let mut inner = expr;
    while let Expr::Nested(nested) = inner {
        inner = nested;
    }
    let mut form = inner.clone();
    let _: ControlFlow<()> = visit_expressions_mut(&mut form, |part| {
        let names = match part {
            Expr::Identifier(name) => std::slice::from_mut(name),
            Expr::CompoundIdentifier(names) => names.as_mut_slice(),
            _ => return ControlFlow::Continue(()),
        };
        for name in names {
            *name = Ident::with_quote('"', folded(name));
        }
        ControlFlow::Continue(())
    });
    form
}

/// Replaces numbers in ORDER BY by their items, or names these where rows are distinct; returns false when there are none.
pub fn name_numbered(statement: &mut PlannerStatement) -> bool {
    let mut has_numbers = false;
    if let PlannerStatement::Statement(tree) = statement {
        let _: ControlFlow<()> = tree.visit(&mut each(|keys, select| {
            if matches!(select.distinct, Some(Distinct::Distinct)) {
                for key in keys {
                    has_numbers |= name_item(&key.expr, &mut select.projection);
                }
                return;
            }
            keys.retain_mut(|key| {
                let Some(expr) = item(&key.expr, &select.projection) else { return true };
                has_numbers = true;
                let is_constant = matches!(expr, Expr::Value(_));
                if !is_constant {
                    key.expr = Expr::Nested(Box::new(expr.clone()));
                }
                !is_constant
            });
        }));
    }
    has_numbers
}

/// Names the item that a key refers to by number, if it has no name; returns false when there is no such item.
fn name_item(key: &Expr, items: &mut [SelectItem]) -> bool {
    let Some(position) = position(key, items) else { return false };
    let SelectItem::UnnamedExpr(expr) = &items[position] else { return false };
    let alias = Ident::with_quote('"', format!("{} {expr}", position + 1));
    items[position] = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
    true
}

/// Visits the sort keys of every SELECT, with the SELECT.
struct Keys<F>(F);

fn each<F: FnMut(&mut Vec<OrderByExpr>, &mut Select)>(visit: F) -> Keys<F> {
    Keys(visit)
}

impl<F: FnMut(&mut Vec<OrderByExpr>, &mut Select)> VisitorMut for Keys<F> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let (SetExpr::Select(select), Some(order)) = (query.body.as_mut(), &mut query.order_by)
            && let OrderByKind::Expressions(keys) = &mut order.kind
        {
            (self.0)(keys, select);
            if keys.is_empty() {
                query.order_by = None;
            }
        }
        ControlFlow::Continue(())
    }
}

/// The expression of the item that a key refers to by number, if no wildcard precedes it.
pub(super) fn item<'a>(key: &Expr, items: &'a [SelectItem]) -> Option<&'a Expr> {
    match &items[position(key, items)?] {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

/// The position, from 0, of the item that a key refers to by number, if no wildcard precedes it.
fn position(key: &Expr, items: &[SelectItem]) -> Option<usize> {
    let Expr::Value(value) = key else { return None };
    let Value::Number(number, _) = &value.value else { return None };
    let position = number.parse::<usize>().ok()?.checked_sub(1)?;
    let is_wildcard = |item: &SelectItem| {
        matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
    };
    let has_wildcard = items.get(..=position)?.iter().any(is_wildcard);
    (!has_wildcard).then_some(position)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Statement, parse};

    fn statement(sql: &str) -> PlannerStatement {
        let Some(Statement::Query(query)) = parse(sql).unwrap().pop() else { panic!("{sql}") };
        query.statement
    }

    #[test]
    fn a_key_is_named_once() {
        for (sql, expected) in [
            ("SELECT a FROM t ORDER BY a DESC, b, a", "SELECT a FROM t ORDER BY a DESC, b"),
            ("SELECT a FROM t ORDER BY 1, b, a", "SELECT a FROM t ORDER BY 1, b"),
            (
                "SELECT * FROM (SELECT DISTINCT ON (k) k FROM t ORDER BY k, k DESC) AS q",
                "SELECT * FROM (SELECT DISTINCT ON (k) k FROM t ORDER BY k) AS q",
            ),
            ("SELECT *, a FROM t ORDER BY 2, a", "SELECT *, a FROM t ORDER BY 2, a"),
        ] {
            assert_eq!(statement(sql).to_string(), expected);
        }
    }

    #[test]
    fn keys_of_distinct_rows_are_numbers_of_their_items() {
        for (sql, keys) in [
            ("SELECT DISTINCT v + 1 FROM t ORDER BY v + 1 DESC", "1 DESC"),
            ("SELECT DISTINCT k::TEXT FROM t ORDER BY k::TEXT", "1"),
            ("SELECT DISTINCT k, (V + 1) AS x FROM t ORDER BY v + 1, k", "2, k"),
            ("SELECT DISTINCT k, abs(t.v) FROM t ORDER BY abs(T.v)", "2"),
            // The planner refuses what is no item, and does not need help with columns.
            ("SELECT DISTINCT v + 1 FROM t ORDER BY v + 2", "v + 2"),
            ("SELECT DISTINCT \"V\" + 1 FROM t ORDER BY v + 1", "v + 1"),
            ("SELECT DISTINCT k AS x FROM t ORDER BY k", "k"),
            ("SELECT DISTINCT *, v + 1 FROM t ORDER BY v + 1", "v + 1"),
            ("SELECT v + 1 FROM t ORDER BY v + 1", "v + 1"),
        ] {
            let written = statement(sql).to_string();
            assert_eq!(written.rsplit_once("ORDER BY ").unwrap().1, keys, "{sql}");
        }
    }

    #[test]
    fn numbers_become_the_items_that_they_stand_for() {
        for (sql, expected) in [
            (
                "SELECT k, max(v) - min(v) FROM t GROUP BY k ORDER BY 2 DESC, 1",
                "SELECT k, max(v) - min(v) FROM t GROUP BY k ORDER BY (max(v) - min(v)) DESC, (k)",
            ),
            ("SELECT 1 FROM t GROUP BY k ORDER BY 1", "SELECT 1 FROM t GROUP BY k"),
            (
                "SELECT DISTINCT max(v) - min(v) FROM t GROUP BY k ORDER BY 1",
                "SELECT DISTINCT max(v) - min(v) AS \"1 max(v) - min(v)\" FROM t GROUP BY k ORDER BY 1",
            ),
        ] {
            let mut statement = statement(sql);
            assert!(name_numbered(&mut statement));
            assert_eq!(statement.to_string(), expected);
        }
        for sql in [
            "SELECT k FROM t ORDER BY k",
            "SELECT k FROM t UNION SELECT 1 ORDER BY 1",
            "SELECT *, 1 FROM t ORDER BY 2",
            "SELECT k FROM t ORDER BY 7",
        ] {
            assert!(!name_numbered(&mut statement(sql)), "{sql}");
        }
    }
}
