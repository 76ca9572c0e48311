//! Numbers select items that would have the same name, as in `SELECT 1, 1`, `SELECT v, v::text`, `SELECT *, v` or
//! `SELECT v AS x, w AS x`.
//!
//! DataFusion refuses two columns of one name in a SELECT; SQL allows them. The first keeps its name, and later ones
//! get a number, `v:2`, so that clients that read columns by name find all of them. PostgreSQL's clients see the names
//! without numbers (`shown_names.rs`).

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, VisitMut, VisitorMut,
    visit_expressions_mut,
};

use super::shown_names::folded;

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
        // Only the planner knows the columns of a wildcard.
        let first = if select.projection.iter().any(is_wildcard) { 2 } else { 1 };
        let mut numbers: HashMap<String, usize> = HashMap::new();
        for item in &mut select.projection {
            // An alias that a column of a wildcard has, too: see `number_hiding`.
            let (name, first) = match item {
                SelectItem::UnnamedExpr(expr) => (name(expr), first),
                SelectItem::ExprWithAlias { alias, .. } => (folded(alias), 1),
                _ => continue,
            };
            let number = *numbers.entry(name.clone()).and_modify(|n| *n += 1).or_insert(first);
            if number > 1 {
                give_number(item, &name, number);
                self.found = true;
            }
        }
        ControlFlow::Continue(())
    }
}

fn give_number(item: &mut SelectItem, name: &str, number: usize) {
    let numbered = Ident::with_quote('"', format!("{name}:{number}"));
    match item {
        SelectItem::UnnamedExpr(expr) => {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: numbered };
        }
        SelectItem::ExprWithAlias { alias, .. } => *alias = numbered,
        _ => {}
    }
}

/// Names computed items by their texts; returns false when there are none. For items of different texts that have the same
/// name for the planner, which computes quotients of constants first: `SELECT 10.0 / 4, 10 / 4.0`.
pub fn name_by_text(statement: &mut PlannerStatement) -> bool {
    let mut naming = Naming { found: false };
    if let PlannerStatement::Statement(tree) = statement {
        let _: ControlFlow<()> = tree.visit(&mut naming);
    }
    naming.found
}

struct Naming {
    found: bool,
}

impl VisitorMut for Naming {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if select.projection.iter().filter(|item| is_computed(item)).count() < 2 {
            return ControlFlow::Continue(());
        }
        for item in select.projection.iter_mut().filter(|item| is_computed(item)) {
            if let SelectItem::UnnamedExpr(expr) = item {
                let alias = Ident::with_quote('"', name(expr));
                *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                self.found = true;
            }
        }
        ControlFlow::Continue(())
    }
}

/// Returns true for an item without an alias that is no column.
fn is_computed(item: &SelectItem) -> bool {
    match item {
        SelectItem::UnnamedExpr(expr) => {
            !matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        }
        _ => false,
    }
}

/// Numbers the aliases `name` that stand beside a wildcard, of which only the planner knows that it has a column of this
/// name; returns false when there are none.
pub fn number_hiding(statement: &mut PlannerStatement, name: &str) -> bool {
    let mut hiding = Hiding { name, found: false };
    if let PlannerStatement::Statement(tree) = statement {
        let _: ControlFlow<()> = tree.visit(&mut hiding);
    }
    hiding.found
}

struct Hiding<'a> {
    name: &'a str,
    found: bool,
}

impl VisitorMut for Hiding<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        // The name by itself would be one of two columns.
        if !is_sorted_by(query, self.name) {
            self.number(&mut query.body);
        }
        ControlFlow::Continue(())
    }
}

impl Hiding<'_> {
    fn number(&mut self, body: &mut SetExpr) {
        let select = match body {
            SetExpr::Select(select) => select,
            SetExpr::SetOperation { left, right, .. } => {
                self.number(left);
                self.number(right);
                return;
            }
            _ => return,
        };
        if !select.projection.iter().any(is_wildcard) {
            return;
        }
        let aliases: HashSet<String> = select.projection.iter().filter_map(alias).collect();
        let is_free = |number: &usize| !aliases.contains(&format!("{}:{number}", self.name));
        let mut free = (2..).filter(is_free);
        for item in &mut select.projection {
            if alias(item).as_deref() == Some(self.name)
                && let Some(number) = free.next()
            {
                give_number(item, self.name, number);
                self.found = true;
            }
        }
    }
}

/// Returns true if a sort key of a query is `name` by itself.
fn is_sorted_by(query: &Query, name: &str) -> bool {
    let Some(order) = &query.order_by else { return false };
    let OrderByKind::Expressions(keys) = &order.kind else { return false };
    keys.iter().any(|key| matches!(&key.expr, Expr::Identifier(key) if folded(key) == name))
}

fn is_wildcard(item: &SelectItem) -> bool {
    matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
}

fn alias(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        _ => None,
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
        Expr::Identifier(column) => folded(column),
        Expr::CompoundIdentifier(path) => path.last().map(folded).unwrap_or_default(),
        expr => expr.to_string(),
    }
}

fn without_casts(expr: &Expr) -> Expr {
    // Subqueries have the same name whatever they ask.
    let identifier = |name: String| Expr::Identifier(Ident::new(name));
    match expr {
        Expr::Subquery(_) => identifier("(<subquery>)".to_owned()),
        Expr::Exists { negated, .. } => identifier(format!("{negated} EXISTS")),
        // DataFusion's name of it does not have the operand.
        Expr::InSubquery { negated, .. } => identifier(format!("{negated} IN")),
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
            "SELECT v, v::TEXT AS \"v:2\", (v) AS \"v:3\", w AS \"v:4\" FROM t"
        );
        assert_eq!(
            numbered("SELECT v AS x, w AS X, w AS \"X\", x FROM t"),
            "SELECT v AS x, w AS \"x:2\", w AS \"X\", x AS \"x:3\" FROM t"
        );
        assert_eq!(numbered("SELECT v, V FROM t"), "SELECT v, V AS \"v:2\" FROM t");
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

    #[test]
    fn computed_items_are_named_by_their_texts() {
        let named = |sql: &str| {
            let Some(Statement::Query(mut query)) = parse(sql).unwrap().pop() else {
                panic!("{sql}")
            };
            let is_renamed = name_by_text(&mut query.statement);
            assert_eq!(is_renamed, query.statement.to_string() != sql);
            query.statement.to_string()
        };
        assert_eq!(
            named("SELECT a, t.b, -a, -b AS c, a + 1 FROM t"),
            "SELECT a, t.b, -a AS \"-a\", -b AS c, a + 1 AS \"a + 1\" FROM t"
        );
        assert_eq!(named("SELECT a, a + 1 FROM t"), "SELECT a, a + 1 FROM t");
    }

    #[test]
    fn an_alias_beside_a_wildcard_gets_a_number_where_it_hides_a_column() {
        let hiding = |sql: &str| {
            let Some(Statement::Query(mut query)) = parse(sql).unwrap().pop() else {
                panic!("{sql}")
            };
            let is_numbered = number_hiding(&mut query.statement, "v");
            assert_eq!(is_numbered, query.statement.to_string() != sql);
            query.statement.to_string()
        };
        for (sql, expected) in [
            ("SELECT *, -v AS v, w AS x FROM t", "SELECT *, -v AS \"v:2\", w AS x FROM t"),
            (
                "SELECT -v AS v, w AS \"v:2\", t.* FROM t",
                "SELECT -v AS \"v:3\", w AS \"v:2\", t.* FROM t",
            ),
            ("SELECT -v AS v FROM t", "SELECT -v AS v FROM t"),
            ("SELECT *, v FROM t", "SELECT *, v FROM t"),
            ("SELECT *, -v AS v FROM t ORDER BY v", "SELECT *, -v AS v FROM t ORDER BY v"),
            (
                "SELECT *, -v AS v FROM t UNION SELECT *, w AS V FROM u ORDER BY t.v",
                "SELECT *, -v AS \"v:2\" FROM t UNION SELECT *, w AS \"v:2\" FROM u ORDER BY t.v",
            ),
        ] {
            assert_eq!(hiding(sql), expected);
        }
    }
}
