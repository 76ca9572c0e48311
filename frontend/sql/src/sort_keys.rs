//! Rewrites sort keys that the planner does not accept.
//!
//! - Keys that an ORDER BY repeats: DISTINCT ON counts keys, and the planner drops repeated ones.
//! - Numbers of select items that are made of aggregates, as in `SELECT k, max(v) - min(v) FROM t GROUP BY k ORDER BY
//!   2`: the planner searches GROUP BY for a column of that name. It accepts the item itself.
//!
//! Invariant: the order of the rows stays the same. A repeated key, and a constant, have no effect on it.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, OrderByExpr, OrderByKind, Query, SelectItem, SetExpr, Value, VisitMut, VisitorMut,
};

/// Drops repeated keys.
pub(super) fn drop_repeated(tree: &mut impl VisitMut) {
    let _: ControlFlow<()> = tree.visit(&mut each(|keys, items| {
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

/// Replaces numbers in ORDER BY by their items; returns false when there are none.
pub fn name_numbered(statement: &mut PlannerStatement) -> bool {
    let mut has_numbers = false;
    if let PlannerStatement::Statement(tree) = statement {
        let _: ControlFlow<()> = tree.visit(&mut each(|keys, items| {
            keys.retain_mut(|key| {
                let Some(expr) = item(&key.expr, items) else { return true };
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

/// Visits the sort keys of every SELECT, with its items.
struct Keys<F>(F);

fn each<F: FnMut(&mut Vec<OrderByExpr>, &[SelectItem])>(visit: F) -> Keys<F> {
    Keys(visit)
}

impl<F: FnMut(&mut Vec<OrderByExpr>, &[SelectItem])> VisitorMut for Keys<F> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let (SetExpr::Select(select), Some(order)) = (query.body.as_ref(), &mut query.order_by)
            && let OrderByKind::Expressions(keys) = &mut order.kind
        {
            (self.0)(keys, &select.projection);
            if keys.is_empty() {
                query.order_by = None;
            }
        }
        ControlFlow::Continue(())
    }
}

/// The expression of the item that a key refers to by number, if no wildcard precedes it.
pub(super) fn item<'a>(key: &Expr, items: &'a [SelectItem]) -> Option<&'a Expr> {
    let Expr::Value(value) = key else { return None };
    let Value::Number(number, _) = &value.value else { return None };
    let position = number.parse::<usize>().ok()?.checked_sub(1)?;
    let leading = items.get(..=position)?;
    let is_wildcard = |item: &SelectItem| {
        matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
    };
    if leading.iter().any(is_wildcard) {
        return None;
    }
    match leading.last()? {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
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
    fn numbers_become_the_items_that_they_stand_for() {
        for (sql, expected) in [
            (
                "SELECT k, max(v) - min(v) FROM t GROUP BY k ORDER BY 2 DESC, 1",
                "SELECT k, max(v) - min(v) FROM t GROUP BY k ORDER BY (max(v) - min(v)) DESC, (k)",
            ),
            ("SELECT 1 FROM t GROUP BY k ORDER BY 1", "SELECT 1 FROM t GROUP BY k"),
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
