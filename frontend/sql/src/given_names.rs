//! The names that PostgreSQL gives to columns, where a query uses them itself.
//!
//! `SELECT count FROM (SELECT count(*) FROM t) AS q` and `SELECT date_trunc('day', ts), max(v) FROM t GROUP BY 1 ORDER
//! BY max` use names that the planner does not give. Tools write such queries around the text of their users. A query
//! that fails to plan because of an unknown column is planned again with these names as aliases.
//!
//! Invariant: existing aliases stay, and no two items of a SELECT get one name.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{Expr, Ident, Select, SelectItem, VisitMut, VisitorMut};

use super::shown_names::{folded, given_name};

/// Gives select items the names that they have in PostgreSQL; returns false when there is nothing to name.
pub fn give_names(statement: &mut PlannerStatement) -> bool {
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
        let name_of = |item: &SelectItem| match item {
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(folded(name)),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path)) => path.last().map(folded),
            SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
            _ => None,
        };
        let mut names: HashSet<String> = select.projection.iter().filter_map(name_of).collect();
        for item in &mut select.projection {
            let SelectItem::UnnamedExpr(expr) = item else { continue };
            if matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
                continue;
            }
            let Some(name) = given_name(expr).filter(|name| names.insert(name.clone())) else {
                continue;
            };
            *item = SelectItem::ExprWithAlias {
                expr: expr.clone(),
                alias: Ident::with_quote('"', name),
            };
            self.found = true;
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Statement, parse};

    fn named(sql: &str) -> String {
        let Some(Statement::Query(mut query)) = parse(sql).unwrap().pop() else { panic!("{sql}") };
        give_names(&mut query.statement);
        query.statement.to_string()
    }

    #[test]
    fn items_without_an_alias_get_the_names_that_postgresql_gives_them() {
        assert_eq!(
            named("SELECT count FROM (SELECT count(*), v + 1, w FROM t) AS q"),
            "SELECT count FROM (SELECT count(*) AS \"count\", v + 1, w FROM t) AS q"
        );
        assert_eq!(
            named("WITH c AS (SELECT max(v)::TEXT FROM t) SELECT min(max) AS low FROM c"),
            "WITH c AS (SELECT max(v)::TEXT AS \"max\" FROM t) SELECT min(max) AS low FROM c"
        );
    }

    #[test]
    fn no_name_is_given_twice() {
        assert_eq!(
            named("SELECT max(a), max(b), v AS min, min(v), sum, sum(v) FROM t"),
            "SELECT max(a) AS \"max\", max(b), v AS min, min(v), sum, sum(v) FROM t"
        );
    }
}
