//! Drops `COLLATE "C"`: texts are compared by their bytes, which is that collation.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{Expr, ObjectName, ObjectNamePart, VisitMut, VisitorMut};

use super::shown_names::folded;
use crate::error::{SqlError, UNDEFINED_OBJECT};

/// Collations by bytes, the default one among them.
const BY_BYTES: [&str; 4] = ["C", "POSIX", "default", "ucs_basic"];
/// The schema of collations, as a qualifier.
const SCHEMA: &str = "pg_catalog.";

/// Drops collations by bytes.
///
/// # Errors
/// 42704 for another collation.
pub fn drop_collations(statement: &mut PlannerStatement) -> Result<(), SqlError> {
    let PlannerStatement::Statement(tree) = statement else { return Ok(()) };
    match VisitMut::visit(tree, &mut Collations) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Collations;

impl VisitorMut for Collations {
    type Break = Box<SqlError>;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        let Expr::Collate { expr: operand, collation } = expr else {
            return ControlFlow::Continue(());
        };
        let name = name(collation);
        if !BY_BYTES.contains(&name.strip_prefix(SCHEMA).unwrap_or(&name)) {
            let message = format!("collation \"{name}\" for encoding \"UTF8\" does not exist");
            let error = SqlError::new(UNDEFINED_OBJECT, message)
                .with_hint("texts are compared by their bytes, which is COLLATE \"C\"");
            return ControlFlow::Break(Box::new(error));
        }
        let operand = operand.as_ref().clone();
        *expr = operand;
        ControlFlow::Continue(())
    }
}

fn name(collation: &ObjectName) -> String {
    let parts = collation.0.iter().filter_map(ObjectNamePart::as_ident).map(folded);
    parts.collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Statement, parse};

    fn dropped(sql: &str) -> Result<String, SqlError> {
        let Some(Statement::Query(mut query)) = parse(sql).unwrap().pop() else { panic!("{sql}") };
        drop_collations(&mut query.statement)?;
        Ok(query.statement.to_string())
    }

    #[test]
    fn a_collation_by_bytes_is_dropped_wherever_it_stands() {
        assert_eq!(
            dropped(
                "SELECT max(a COLLATE \"C\") FROM t WHERE b COLLATE pg_catalog.\"default\" < 'x' \
                 GROUP BY c ORDER BY c COLLATE \"POSIX\" DESC, d || 'x' COLLATE ucs_basic"
            )
            .as_deref(),
            Ok("SELECT max(a) FROM t WHERE b < 'x' GROUP BY c ORDER BY c DESC, d || 'x'")
        );
    }

    #[test]
    fn other_collations_are_refused_by_name() {
        for (name, shown) in [("\"de_DE\"", "de_DE"), ("C", "c"), ("public.\"C\"", "public.C")] {
            let error = dropped(&format!("SELECT a FROM t ORDER BY a COLLATE {name}")).unwrap_err();
            assert_eq!(error.sqlstate, "42704");
            let expected = format!("collation \"{shown}\" for encoding \"UTF8\" does not exist");
            assert_eq!(error.message, expected);
        }
    }
}
