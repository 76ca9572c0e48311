//! Other names for tables that are called what a column nearer by is called.
//!
//! In `SELECT 1 FROM t AS x WHERE EXISTS (SELECT 1 FROM u WHERE x.k = u.k)`, where `u` has a column `x`, the planner takes
//! `x.k` for a field of that column, which it has none of. A query that does not plan for that is planned again with
//! tables that are called otherwise; all its parts name them so, so that each name means what it meant.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, Select, SelectItem, SelectItemQualifiedWildcardKind,
    TableAlias, TableFactor, Visit, VisitMut, Visitor, VisitorMut,
};

use super::shown_names::folded;

/// The beginning of the other names.
const OTHER: &str = "__table_";

/// Calls all tables otherwise that columns are qualified by; false when there are none, or names with a schema.
pub(crate) fn rename_tables(statement: &mut PlannerStatement) -> bool {
    let PlannerStatement::Statement(tree) = statement else { return false };
    let mut qualifiers = Qualifiers::default();
    if Visit::visit(tree.as_ref(), &mut qualifiers).is_break() || qualifiers.names.is_empty() {
        return false;
    }
    let mut renaming = Renaming { names: qualifiers.names };
    let _: ControlFlow<()> = VisitMut::visit(tree.as_mut(), &mut renaming);
    true
}

/// The names that columns are qualified by.
#[derive(Default)]
struct Qualifiers {
    names: HashSet<String>,
}

impl Visitor for Qualifiers {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::CompoundIdentifier(path) => match path.as_slice() {
                [table, _] => {
                    self.names.insert(folded(table));
                    ControlFlow::Continue(())
                }
                _ => ControlFlow::Break(()),
            },
            _ => ControlFlow::Continue(()),
        }
    }
}

struct Renaming {
    names: HashSet<String>,
}

impl Renaming {
    fn other(&self, name: &Ident) -> Option<Ident> {
        let name = folded(name);
        self.names.contains(&name).then(|| Ident::with_quote('"', format!("{OTHER}{name}")))
    }
}

impl VisitorMut for Renaming {
    type Break = ();

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        match table {
            TableFactor::Table { name, alias, .. } => match alias {
                Some(alias) => {
                    if let Some(other) = self.other(&alias.name) {
                        alias.name = other;
                    }
                }
                None => {
                    let own = name.0.last().and_then(ObjectNamePart::as_ident);
                    if let Some(other) = own.and_then(|own| self.other(own)) {
                        *alias = Some(TableAlias {
                            explicit: true,
                            name: other,
                            columns: Vec::new(),
                            at: None,
                        });
                    }
                }
            },
            TableFactor::Derived { alias: Some(alias), .. }
            | TableFactor::Function { alias: Some(alias), .. }
            | TableFactor::TableFunction { alias: Some(alias), .. }
            | TableFactor::UNNEST { alias: Some(alias), .. }
            | TableFactor::NestedJoin { alias: Some(alias), .. } => {
                if let Some(other) = self.other(&alias.name) {
                    alias.name = other;
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(path) = expr
            && let Some(table) = path.first_mut()
            && let Some(other) = self.other(table)
        {
            *table = other;
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            if let SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(ObjectName(path)),
                _,
            ) = item
                && let [ObjectNamePart::Identifier(table)] = path.as_mut_slice()
                && let Some(other) = self.other(table)
            {
                *table = other;
            }
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{Statement, parse};

    fn renamed(sql: &str) -> Option<String> {
        let Some(Statement::Query(mut query)) = parse(sql).unwrap().pop() else { panic!("{sql}") };
        rename_tables(&mut query.statement).then(|| query.statement.to_string())
    }

    #[test]
    fn tables_and_what_they_qualify_are_renamed_alike() {
        assert_eq!(
            renamed(
                "SELECT X.*, x.k FROM t AS x WHERE EXISTS (SELECT 1 FROM u, v WHERE x.k = u.k)"
            )
            .unwrap(),
            "SELECT \"__table_x\".*, \"__table_x\".k FROM t AS \"__table_x\" WHERE EXISTS \
             (SELECT 1 FROM u AS \"__table_u\", v WHERE \"__table_x\".k = \"__table_u\".k)"
        );
    }

    #[test]
    fn what_is_qualified_by_a_schema_is_left_alone() {
        assert_eq!(renamed("SELECT public.t.k, x.k FROM t, x"), None);
        assert_eq!(renamed("SELECT k FROM t"), None);
    }
}
