//! Renames tables that have the name of a column of an inner query.
//!
//! In `SELECT 1 FROM t AS x WHERE EXISTS (SELECT 1 FROM u WHERE x.k = u.k)`, where `u` has a column `x`, the planner
//! reads `x.k` as a field of that column, which has no fields. A query that cannot be planned for that reason is planned
//! again with other names of its tables, in all its parts, so that each name keeps its meaning.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, Select, SelectItem, SelectItemQualifiedWildcardKind,
    TableAlias, TableFactor, Visit, VisitMut, Visitor, VisitorMut,
};

use super::shown_names::folded;

/// Prefix of the new names.
const RENAMED: &str = "__table_";

/// Renames all tables that qualify columns; returns false when there are none, or a name has a schema.
pub fn rename_tables(statement: &mut PlannerStatement) -> bool {
    let PlannerStatement::Statement(tree) = statement else { return false };
    let mut qualifiers = Qualifiers::default();
    if Visit::visit(tree.as_ref(), &mut qualifiers).is_break() || qualifiers.names.is_empty() {
        return false;
    }
    let mut renaming = Renaming { names: qualifiers.names };
    let _: ControlFlow<()> = VisitMut::visit(tree.as_mut(), &mut renaming);
    true
}

/// Names of tables that qualify columns.
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

/// Gives tables with these names, and what they qualify, new names.
struct Renaming {
    names: HashSet<String>,
}

impl Renaming {
    fn renamed(&self, name: &Ident) -> Option<Ident> {
        let name = folded(name);
        self.names.contains(&name).then(|| Ident::with_quote('"', format!("{RENAMED}{name}")))
    }
}

impl VisitorMut for Renaming {
    type Break = ();

    fn post_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        match table {
            TableFactor::Table { name, alias, .. } => match alias {
                Some(alias) => {
                    if let Some(renamed) = self.renamed(&alias.name) {
                        alias.name = renamed;
                    }
                }
                None => {
                    let own_name = name.0.last().and_then(ObjectNamePart::as_ident);
                    if let Some(renamed) = own_name.and_then(|own_name| self.renamed(own_name)) {
                        *alias = Some(TableAlias {
                            explicit: true,
                            name: renamed,
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
                if let Some(renamed) = self.renamed(&alias.name) {
                    alias.name = renamed;
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::CompoundIdentifier(path) = expr
            && let Some(table) = path.first_mut()
            && let Some(renamed) = self.renamed(table)
        {
            *table = renamed;
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
                && let Some(renamed) = self.renamed(table)
            {
                *table = renamed;
            }
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Statement, parse};

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
