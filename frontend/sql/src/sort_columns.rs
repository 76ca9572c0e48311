//! Tells columns of the tables from columns of the result in ORDER BY, where both have one name.
//!
//! ```text
//!   SELECT k::text FROM t ORDER BY k           SELECT k::text FROM t ORDER BY 1
//!   SELECT -k AS k FROM t ORDER BY t.k, k + 1  SELECT "item:1" AS k FROM (SELECT -k AS "item:1", t.k AS "key:1",
//!                                              k + 1 AS "key:2" FROM t) AS "sorted" ORDER BY "key:1", "key:2"
//! ```
//!
//! In SQL a sort key that is a name by itself is a column of the result if there is one of that name; a name that is
//! qualified, or part of an expression, is a column of the tables. The planner looks at the result first in expressions
//! too, and refuses a qualified column, or one whose cast is an item, because of the name.
//!
//! Invariant: columns of the result keep their order and names.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, Statement, TableFactor, Value,
    Visit, VisitMut, Visitor, VisitorMut,
};
use datafusion::sql::sqlparser::parser::Parser;

use super::dialect::POSTGRES;
use super::shown_names::folded;
use super::unique_names;

/// The statement with every sort key told apart; `None` if all mean the same to the planner.
pub fn tell_sort_columns(statement: &PlannerStatement) -> Option<PlannerStatement> {
    let PlannerStatement::Statement(tree) = statement else { return None };
    if Visit::visit(tree, &mut Finder).is_continue() {
        return None;
    }
    let mut tree = tree.clone();
    let _: ControlFlow<()> = VisitMut::visit(&mut tree, &mut Teller);
    Some(PlannerStatement::Statement(tree))
}

struct Finder;

impl Visitor for Finder {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        match meanings(query) {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    }
}

struct Teller;

impl VisitorMut for Teller {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(meanings) = meanings(query) {
            rewrite(query, &meanings);
        }
        ControlFlow::Continue(())
    }
}

/// What a sort key is.
enum Meaning {
    /// What the planner takes it for.
    AsWritten,
    /// The item of this position in the select list, from 0.
    Item(usize),
    /// An expression over the tables.
    Hidden,
}

/// An item of a select list.
struct Item<'a> {
    expr: &'a Expr,
    /// Its name, if that is an alias or the name of a column.
    name: Option<String>,
    has_alias: bool,
}

impl Item<'_> {
    fn is_named(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name)
    }

    /// Returns true if the planner may confuse the item with another column of its name.
    fn hides(&self, column: &Expr) -> bool {
        if last_name(self.expr).is_none() || last_name(self.expr) != self.name {
            return true;
        }
        // Without an alias it keeps the name of its table.
        let are_qualified = |a: &Expr, b: &Expr| {
            matches!((a, b), (Expr::CompoundIdentifier(_), Expr::CompoundIdentifier(_)))
        };
        self.has_alias && are_qualified(self.expr, column) && self.expr != column
    }
}

/// The meanings of a query's sort keys, if the planner takes one for something else.
fn meanings(query: &Query) -> Option<Vec<Meaning>> {
    let OrderByKind::Expressions(keys) = &query.order_by.as_ref()?.kind else { return None };
    let (select, is_plain) = naming(&query.body)?;
    let items = items(&select.projection);
    let can_hide = is_plain
        && items.len() == select.projection.len()
        && select.distinct.is_none()
        && select.into.is_none()
        && query.locks.is_empty();
    let mut meanings: Vec<Meaning> = keys.iter().map(|key| meaning(&key.expr, &items)).collect();
    if !can_hide {
        meanings.retain(|meaning| !matches!(meaning, Meaning::Hidden));
        if meanings.len() < keys.len() {
            return None;
        }
    }
    if meanings.iter().any(|meaning| matches!(meaning, Meaning::Hidden)) {
        // The other keys have to be columns of the inner query as well.
        for (key, meaning) in keys.iter().zip(&mut meanings) {
            if let Meaning::AsWritten = meaning {
                *meaning = told(bare(&key.expr), &items);
            }
        }
        return Some(meanings);
    }
    meanings.iter().any(|meaning| matches!(meaning, Meaning::Item(_))).then_some(meanings)
}

/// The SELECT that names the columns of a query, and whether it is the whole query.
fn naming(body: &SetExpr) -> Option<(&Select, bool)> {
    match body {
        SetExpr::Select(select) => Some((select, true)),
        SetExpr::SetOperation { left, .. } => naming(left).map(|(select, _)| (select, false)),
        _ => None,
    }
}

/// The items before the first wildcard.
fn items(projection: &[SelectItem]) -> Vec<Item<'_>> {
    projection
        .iter()
        .map_while(|item| match item {
            SelectItem::UnnamedExpr(expr) => {
                let expr = bare(expr);
                Some(Item { expr, name: last_name(without_casts(expr)), has_alias: false })
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                Some(Item { expr: bare(expr), name: Some(folded(alias)), has_alias: true })
            }
            _ => None,
        })
        .collect()
}

fn meaning(written: &Expr, items: &[Item<'_>]) -> Meaning {
    let key = bare(written);
    if is_number(key) {
        // The planner takes a number in parentheses for a constant.
        let position = position(key).filter(|_| matches!(written, Expr::Nested(_)));
        return position.map_or(Meaning::AsWritten, Meaning::Item);
    }
    if let Expr::Identifier(name) = key {
        let name = folded(name);
        let entry = items.iter().enumerate().find(|(_, item)| item.is_named(&name));
        return match entry {
            // The planner does not find a cast by the name of its column.
            Some((position, item)) if !item.has_alias && last_name(item.expr).is_none() => {
                Meaning::Item(position)
            }
            _ => Meaning::AsWritten,
        };
    }
    let mut columns = Columns { found: Vec::new(), has_query: false };
    let _: ControlFlow<()> = Visit::visit(key, &mut columns);
    let is_hidden = |column: &Expr| {
        let name = last_name(column).unwrap_or_default();
        items.iter().any(|item| item.is_named(&name) && item.hides(column))
    };
    if columns.has_query || !columns.found.iter().any(is_hidden) {
        return Meaning::AsWritten;
    }
    told(key, items)
}

/// The meaning of a key in SQL.
fn told(key: &Expr, items: &[Item<'_>]) -> Meaning {
    let by_name = match key {
        _ if is_number(key) => return Meaning::AsWritten,
        Expr::Identifier(name) => {
            let name = folded(name);
            items.iter().position(|item| item.is_named(&name))
        }
        _ => None,
    };
    match by_name.or_else(|| items.iter().position(|item| item.expr == key)) {
        Some(position) => Meaning::Item(position),
        None => Meaning::Hidden,
    }
}

/// The columns that an expression names.
struct Columns {
    found: Vec<Expr>,
    has_query: bool,
}

impl Visitor for Columns {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if last_name(expr).is_some() {
            self.found.push(expr.clone());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.has_query = true;
        ControlFlow::Break(())
    }
}

fn rewrite(query: &mut Query, meanings: &[Meaning]) {
    let Some(order) = &mut query.order_by else { return };
    let OrderByKind::Expressions(keys) = &mut order.kind else { return };
    let mut hidden = Vec::new();
    for (key, meaning) in keys.iter_mut().zip(meanings) {
        match meaning {
            Meaning::AsWritten => {}
            Meaning::Item(position) => {
                key.expr = Expr::value(Value::Number((position + 1).to_string(), false));
            }
            Meaning::Hidden => {
                let alias = Ident::with_quote('"', format!("key:{}", hidden.len() + 1));
                let expr = std::mem::replace(&mut key.expr, Expr::Identifier(alias.clone()));
                hidden.push(SelectItem::ExprWithAlias { expr, alias });
            }
        }
    }
    if !hidden.is_empty() {
        nest(query, hidden);
    }
}

/// Makes a query's select list and some further items those of a query in FROM, of which the select list is selected.
fn nest(query: &mut Query, further: Vec<SelectItem>) {
    let SetExpr::Select(inner) = query.body.as_mut() else { return };
    let Some(mut outer) = template() else { return };
    let items = std::mem::take(&mut inner.projection).into_iter().enumerate();
    let (inside, outside): (Vec<_>, Vec<_>) = items
        .map(|(position, item)| {
            let number = Ident::with_quote('"', format!("item:{}", position + 1));
            let (expr, name) = match item {
                SelectItem::UnnamedExpr(expr) => {
                    let name = last_name(&expr).unwrap_or_else(|| unique_names::name(&expr));
                    (expr, Ident::with_quote('"', name))
                }
                SelectItem::ExprWithAlias { expr, alias } => (expr, alias),
                wildcard => return (wildcard.clone(), wildcard),
            };
            let item = |expr, alias| SelectItem::ExprWithAlias { expr, alias };
            (item(expr, number.clone()), item(Expr::Identifier(number), name))
        })
        .unzip();
    inner.projection = inside;
    inner.projection.extend(further);
    outer.projection = outside;
    let source = outer.from.first_mut().map(|item| &mut item.relation);
    if let Some(TableFactor::Derived { subquery, .. }) = source {
        std::mem::swap(&mut subquery.body, &mut query.body);
    }
    *query.body = SetExpr::Select(outer);
}

/// A SELECT from another one.
fn template() -> Option<Box<Select>> {
    let statement =
        Parser::parse_sql(&POSTGRES, "SELECT 1 FROM (SELECT 1) AS \"sorted\"").ok()?.pop()?;
    let Statement::Query(query) = statement else { return None };
    let SetExpr::Select(select) = *query.body else { return None };
    Some(select)
}

fn is_number(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if matches!(value.value, Value::Number(..)))
}

/// The position that a number stands for, from 0.
fn position(expr: &Expr) -> Option<usize> {
    let Expr::Value(value) = expr else { return None };
    let Value::Number(number, _) = &value.value else { return None };
    number.parse::<usize>().ok()?.checked_sub(1)
}

/// The name of a column; `None` for other expressions.
fn last_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(name) => Some(folded(name)),
        Expr::CompoundIdentifier(path) => path.last().map(folded),
        _ => None,
    }
}

/// An expression without its parentheses.
fn bare(mut expr: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

/// The operand of casts.
fn without_casts(mut expr: &Expr) -> &Expr {
    while let Expr::Cast { expr: inner, .. } | Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use crate::statement::Statement;

    fn told(sql: &str) -> Option<String> {
        let Some(Statement::Query(query)) = parse(sql).unwrap().pop() else { panic!("{sql}") };
        tell_sort_columns(&query.statement).map(|statement| statement.to_string())
    }

    #[test]
    fn a_name_by_itself_is_an_item() {
        for (sql, expected) in [
            ("SELECT *, k FROM t ORDER BY (2), 1", "SELECT *, k FROM t ORDER BY 2, 1"),
            ("SELECT k::TEXT FROM t ORDER BY k DESC", "SELECT k::TEXT FROM t ORDER BY 1 DESC"),
            (
                "SELECT k::TEXT FROM t UNION SELECT '5' ORDER BY k",
                "SELECT k::TEXT FROM t UNION SELECT '5' ORDER BY 1",
            ),
            ("SELECT max(v) AS v FROM t ORDER BY max(v)", "SELECT max(v) AS v FROM t ORDER BY 1"),
            (
                "SELECT (CAST(t.k AS INT)), * FROM t ORDER BY k",
                "SELECT (CAST(t.k AS INT)), * FROM t ORDER BY 1",
            ),
        ] {
            assert_eq!(told(sql).as_deref(), Some(expected));
        }
    }

    #[test]
    fn other_names_are_columns_of_the_tables() {
        for (sql, expected) in [
            (
                "WITH t AS (SELECT 1 AS k) SELECT -k AS k FROM t ORDER BY t.k LIMIT 3",
                "WITH t AS (SELECT 1 AS k) SELECT \"item:1\" AS k FROM (SELECT -k AS \"item:1\", t.k AS \"key:1\" \
                 FROM t) AS \"sorted\" ORDER BY \"key:1\" LIMIT 3",
            ),
            (
                "SELECT k::TEXT, Max(v) FROM t GROUP BY k ORDER BY k + 1, Max(v), 2",
                "SELECT \"item:1\" AS \"k\", \"item:2\" AS \"Max(v)\" FROM (SELECT k::TEXT AS \"item:1\", \
                 Max(v) AS \"item:2\", k + 1 AS \"key:1\" FROM t GROUP BY k) AS \"sorted\" ORDER BY \"key:1\", 2",
            ),
        ] {
            assert_eq!(told(sql).as_deref(), Some(expected));
        }
    }

    #[test]
    fn keys_that_the_planner_understands_stay() {
        for sql in [
            "SELECT k FROM t ORDER BY k, t.k, k + 1",
            "SELECT t.k AS k FROM t ORDER BY t.k, k + 1",
            "SELECT -k AS n FROM t ORDER BY n, k, t.k",
            "SELECT -k AS k FROM t ORDER BY 1, k",
            "SELECT *, -k AS k FROM t ORDER BY t.k",
            "SELECT DISTINCT -k AS k FROM t ORDER BY k + 1",
            "SELECT -k AS k FROM t UNION SELECT 1 ORDER BY k",
            "SELECT 1 UNION SELECT k::TEXT FROM t ORDER BY k",
            "SELECT b.k FROM a, b ORDER BY a.k",
        ] {
            assert_eq!(told(sql), None, "{sql}");
        }
    }
}
