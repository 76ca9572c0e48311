//! Queries that sqlparser accepts and the planner would run as something else.
//!
//! The planner ignores some words: `TABLESAMPLE` would return all rows, and `FETCH FIRST .. WITH TIES` would omit the
//! ties. Such a query is refused by name.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Fetch, ObjectName, ObjectNamePart, Query, Select, SelectItem, SetExpr, Statement,
    TableFactor, Value, Visit, Visitor,
};

use super::hidden::{SUPPLIED, WITH_HIDDEN};
use crate::error::SqlError;

/// Refuses statements that are queries by their first word only, and words that the planner ignores.
pub(super) fn check_query(query: &Query) -> Result<(), SqlError> {
    match query.visit(&mut Refuse) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Returns true if a query, or an operand of its set operations, is `TABLE` with anything but a name.
fn is_table(body: &SetExpr) -> bool {
    match body {
        SetExpr::Table(_) => true,
        SetExpr::SetOperation { left, right, .. } => is_table(left) || is_table(right),
        _ => false,
    }
}

struct Refuse;

type Flow = ControlFlow<Box<SqlError>>;

fn refuse(feature: &str) -> Flow {
    ControlFlow::Break(Box::new(SqlError::unsupported(feature)))
}

fn refuse_with(feature: &str, hint: &str) -> Flow {
    ControlFlow::Break(Box::new(SqlError::unsupported(feature).with_hint(hint)))
}

impl Visitor for Refuse {
    type Break = Box<SqlError>;

    /// Names that only the program gives.
    fn pre_visit_relation(&mut self, relation: &ObjectName) -> Flow {
        match relation.0.last() {
            Some(ObjectNamePart::Identifier(name))
                if name.value.ends_with(WITH_HIDDEN) || name.value.ends_with(SUPPLIED) =>
            {
                ControlFlow::Break(Box::new(SqlError::undefined_table(&name.value)))
            }
            _ => Flow::Continue(()),
        }
    }

    fn pre_visit_query(&mut self, query: &Query) -> Flow {
        if !query.locks.is_empty() {
            return refuse("SELECT ... FOR UPDATE or FOR SHARE");
        }
        // The others were written out as SELECT.
        if is_table(&query.body) {
            return ControlFlow::Break(Box::new(SqlError::syntax(
                "syntax error in TABLE, expected a table name and the end of the query",
            )));
        }
        match &query.fetch {
            Some(Fetch { with_ties: true, .. }) => {
                return refuse_with(
                    "FETCH FIRST ... WITH TIES",
                    "rank() OVER (ORDER BY ..) finds ties",
                );
            }
            Some(Fetch { percent: true, .. }) => return refuse("FETCH FIRST ... PERCENT"),
            _ => {}
        }
        Flow::Continue(())
    }

    fn pre_visit_statement(&mut self, _: &Statement) -> Flow {
        refuse("a statement that writes inside of a query")
    }

    fn pre_visit_select(&mut self, select: &Select) -> Flow {
        if select.into.is_some() {
            return refuse_with("SELECT ... INTO", "use INSERT INTO ... SELECT");
        }
        // The parser takes the second of two texts for the name of the first.
        for item in &select.projection {
            if let SelectItem::ExprWithAlias { expr: Expr::Value(value), alias } = item
                && alias.quote_style == Some('\'')
                && matches!(value.value, Value::SingleQuotedString(_))
            {
                let message = format!("syntax error at or near \"'{}'\"", alias.value);
                return ControlFlow::Break(Box::new(SqlError::syntax(message)));
            }
        }
        Flow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> Flow {
        match factor {
            TableFactor::Table { sample: Some(_), .. }
            | TableFactor::Derived { sample: Some(_), .. } => {
                refuse_with("TABLESAMPLE", "WHERE random() < 0.1 takes about a tenth of the rows")
            }
            TableFactor::Table { version: Some(_), .. } => refuse("a table as of another time"),
            TableFactor::Table { with_hints, index_hints, .. }
                if !with_hints.is_empty() || !index_hints.is_empty() =>
            {
                refuse("a hint to the planner")
            }
            TableFactor::Table { partitions, .. } if !partitions.is_empty() => {
                refuse_with("FROM ... PARTITION", "a predicate on the key picks partitions")
            }
            _ => Flow::Continue(()),
        }
    }
}
