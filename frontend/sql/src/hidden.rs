//! Tables that the queries of statements that change rows read in place of a stored one: with its hidden columns, or with
//! rows that the statement itself supplies.
//!
//! The name of such a table ends in a character that no table's name has, and a client's query that has it is refused
//! (`refused.rs`).

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectNamePart, TableAlias, TableFactor, TableWithJoins, Visit, visit_expressions,
};
use partita_proto::schema::ROW_COLUMN;

use crate::error::SqlError;

/// End of the name of a table with its hidden columns.
pub const WITH_HIDDEN: &str = "\u{1}";
/// End of the name of a table with the rows that the statement supplies.
pub const SUPPLIED: &str = "\u{2}";

/// Has a query read a table with its hidden columns, under the name or alias that it had.
pub fn show_hidden(table: &mut TableWithJoins) {
    replace(table, WITH_HIDDEN);
}

/// Has a query read the rows that the statement supplies, under the name or alias that the table had.
pub(super) fn supply(table: &mut TableWithJoins) {
    replace(table, SUPPLIED);
}

/// Checks that no expression of a client names the hidden column, which the query of its statement can see.
///
/// # Errors
/// 42703.
pub fn check_unnamed(tree: &impl Visit, table: &str) -> Result<(), SqlError> {
    let flow = visit_expressions(tree, |expr| {
        let name = match expr {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(parts) => parts.last(),
            _ => None,
        };
        match name.is_some_and(|name| name.value.eq_ignore_ascii_case(ROW_COLUMN)) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    match flow {
        ControlFlow::Break(()) => Err(SqlError::undefined_column(ROW_COLUMN, table)),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The text of a plan, with the names of tables as clients know them.
pub fn with_known_names(plan: &str) -> String {
    plan.replace(WITH_HIDDEN, "").replace(SUPPLIED, "")
}

fn replace(table: &mut TableWithJoins, end: &str) {
    let TableFactor::Table { name, alias, .. } = &mut table.relation else { return };
    let Some(ObjectNamePart::Identifier(ident)) = name.0.last_mut() else { return };
    if alias.is_none() {
        let name = Ident::with_quote('"', &ident.value);
        *alias = Some(TableAlias { explicit: true, name, columns: Vec::new(), at: None });
    }
    ident.value.push_str(end);
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::Statement as PlannerStatement;
    use datafusion::sql::sqlparser::ast::{SetExpr, Statement as Ast};

    use super::*;
    use crate::statement::Statement;

    #[test]
    fn a_table_keeps_the_name_by_which_its_columns_are_called() {
        for (text, expected) in [
            ("SELECT 1 FROM a.t", "\"t\""),
            ("SELECT 1 FROM \"a\".\"T\"", "\"T\""),
            ("SELECT 1 FROM a.t AS x", "x"),
        ] {
            let Some(Statement::Query(query)) = crate::parse(text).unwrap().pop() else { panic!() };
            let PlannerStatement::Statement(mut statement) = query.statement else { panic!() };
            let Ast::Query(query) = statement.as_mut() else { panic!() };
            let SetExpr::Select(select) = query.body.as_mut() else { panic!() };
            show_hidden(&mut select.from[0]);
            let TableFactor::Table { name, alias, .. } = &select.from[0].relation else { panic!() };
            assert!(name.to_string().contains(WITH_HIDDEN), "{name}");
            assert_eq!(alias.as_ref().unwrap().name.to_string(), expected);
        }
    }

    #[test]
    fn no_client_names_such_a_table() {
        for end in [WITH_HIDDEN, SUPPLIED] {
            for text in
                ["SELECT 1 FROM \"t{}\"", "DELETE FROM u WHERE k IN (SELECT k FROM a.\"t{}\")"]
            {
                let error = crate::parse(&text.replace("{}", end)).unwrap_err();
                assert_eq!(error.sqlstate, "42P01", "{text}");
            }
        }
    }
}
