//! Numbers select items that would have the same name, as in `SELECT 1, 1`, `SELECT v, v::text` or `SELECT *, v`.
//!
//! DataFusion refuses two columns of one name in a SELECT; SQL allows them. The first keeps its name, and later ones
//! get a number, `v:2`, so that clients that read columns by name find all of them.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Select, SelectItem, VisitMut, VisitorMut, visit_expressions_mut,
};

/// Numbers items that have the same name; returns false when there are none.
pub fn number_alike(statement: &mut PlannerStatement) -> bool {
    let mut numbering = Numbering { found: false };
    if let PlannerStatement::Statement(tree) = statement {
        let _: ControlFlow<()> = tree.visit(&mut numbering);
    }
    numbering.found
}

struct Numbering {
    found: bool,
}

impl VisitorMut for Numbering {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let is_wildcard = |item: &SelectItem| {
            matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
        };
        // Only the planner knows the columns of a wildcard.
        let first = if select.projection.iter().any(is_wildcard) { 2 } else { 1 };
        let mut numbers: HashMap<String, usize> = HashMap::new();
        for item in &mut select.projection {
            let SelectItem::UnnamedExpr(expr) = item else { continue };
            let name = name(expr);
            let number = *numbers.entry(name.clone()).and_modify(|n| *n += 1).or_insert(first);
            if number > 1 {
                let alias = Ident::with_quote('"', format!("{name}:{number}"));
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                self.found = true;
            }
        }
        ControlFlow::Continue(())
    }
}

/// The planner's name of an expression, in which casts have the name of their operand.
pub(super) fn name(expr: &Expr) -> String {
    let mut expr = expr.clone();
    let _: ControlFlow<()> = visit_expressions_mut(&mut expr, |part| {
        *part = without_casts(part);
        ControlFlow::Continue(())
    });
    match &expr {
        Expr::Identifier(column) => column.value.clone(),
        Expr::CompoundIdentifier(path) => {
            path.last().map(|column| column.value.clone()).unwrap_or_default()
        }
        expr => expr.to_string(),
    }
}

fn without_casts(expr: &Expr) -> Expr {
    // Subqueries have the same name whatever they ask.
    let named = |name: String| Expr::Identifier(Ident::new(name));
    match expr {
        Expr::Subquery(_) => named("(<subquery>)".to_owned()),
        Expr::Exists { negated, .. } => named(format!("{negated} EXISTS")),
        Expr::InSubquery { expr, negated, .. } => named(format!("{negated} {expr} IN")),
        Expr::Cast { expr, .. } | Expr::Nested(expr) => without_casts(expr),
        Expr::TypedString(typed) => Expr::Value(typed.value.clone()),
        expr => expr.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Statement, parse};

    fn numbered(sql: &str) -> String {
        let Some(Statement::Query(mut query)) = parse(sql).unwrap().pop() else { panic!("{sql}") };
        number_alike(&mut query.statement);
        query.statement.to_string()
    }

    #[test]
    fn the_first_keeps_its_name_and_others_get_a_number() {
        assert_eq!(numbered("SELECT 1, 1, 2"), "SELECT 1, 1 AS \"1:2\", 2");
        assert_eq!(
            numbered("SELECT v, v::TEXT, (v), w AS v FROM t"),
            "SELECT v, v::TEXT AS \"v:2\", (v) AS \"v:3\", w AS v FROM t"
        );
        assert_eq!(
            numbered("SELECT *, v FROM (SELECT now(), now() FROM t)"),
            "SELECT *, v AS \"v:2\" FROM (SELECT now(), now() AS \"now():2\" FROM t)"
        );
        assert_eq!(
            numbered("SELECT abs(v::INT), abs((v)), abs(v + 1), DATE '2024-01-01', '2024-01-01'"),
            "SELECT abs(v::INT), abs((v)) AS \"abs(v):2\", abs(v + 1), DATE '2024-01-01', \
             '2024-01-01' AS \"'2024-01-01':2\""
        );
        assert_eq!(
            numbered("SELECT (SELECT 1), (SELECT 2), EXISTS (SELECT 1), NOT EXISTS (SELECT 1)"),
            "SELECT (SELECT 1), (SELECT 2) AS \"(<subquery>):2\", EXISTS (SELECT 1), \
             NOT EXISTS (SELECT 1)"
        );
    }
}
