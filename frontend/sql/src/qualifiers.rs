//! Columns that are named with their database: `database.table.column`.
//!
//! The planner compares only the last part of such a qualifier with a table that FROM names by itself, and takes
//! `nothing.t.k` for the column of `t`. Here the whole qualifier is compared. A name of three parts may also be a field
//! of a structure (`table.column.field`), so only a name whose second part is a table of the statement is refused.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectNamePart, Select, SelectItem, SelectItemQualifiedWildcardKind, TableAlias,
    TableFactor, Visit, Visitor,
};

use super::shown_names::folded;
use crate::error::{CATALOG, FEATURE_NOT_SUPPORTED, SqlError, UNDEFINED_TABLE};

/// Checks the qualifiers of columns; `database` is that of tables that are named without one.
///
/// # Errors
/// 42P01 when a column is qualified by another database than its table, 0A000 when by another catalog.
pub fn check(statement: &PlannerStatement, database: &str) -> Result<(), SqlError> {
    let tree = match statement {
        PlannerStatement::Statement(tree) => tree,
        PlannerStatement::Explain(explain) => return check(&explain.statement, database),
        _ => return Ok(()),
    };
    let mut tables = FromItems { database, full: HashSet::new(), names: HashSet::new() };
    let _nothing_breaks: ControlFlow<()> = tree.visit(&mut tables);
    match tree.visit(&mut Qualified { tables: &tables }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// The items of all FROM clauses of a statement.
struct FromItems<'a> {
    database: &'a str,
    /// Database and name of tables without an alias.
    full: HashSet<(String, String)>,
    /// Names by which columns may be qualified.
    names: HashSet<String>,
}

impl Visitor for FromItems<'_> {
    type Break = ();

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<()> {
        let alias: Option<&TableAlias> = match table {
            TableFactor::Table { name, alias: None, .. } => {
                let parts: Vec<String> =
                    name.0.iter().filter_map(ObjectNamePart::as_ident).map(folded).collect();
                if let Some((table, qualifier)) = parts.split_last() {
                    let database =
                        qualifier.last().cloned().unwrap_or_else(|| self.database.to_owned());
                    self.full.insert((database, table.clone()));
                    self.names.insert(table.clone());
                }
                None
            }
            TableFactor::Table { alias, .. }
            | TableFactor::Derived { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::UNNEST { alias, .. }
            | TableFactor::NestedJoin { alias, .. } => alias.as_ref(),
            _ => None,
        };
        self.names.extend(alias.map(|alias| folded(&alias.name)));
        ControlFlow::Continue(())
    }
}

struct Qualified<'a> {
    tables: &'a FromItems<'a>,
}

impl Qualified<'_> {
    /// Checks a name without its last part: the qualifier of a column or a wildcard.
    fn check(&self, qualifier: &[&Ident]) -> Result<(), SqlError> {
        let [catalog @ .., database, table] = qualifier else { return Ok(()) };
        let (database, table) = (folded(database), folded(table));
        let names = &self.tables.names;
        let first = catalog.first().map_or_else(|| database.clone(), |catalog| folded(catalog));
        // A field of a structure, or no table at all, which the planner says.
        if !names.contains(&table) || names.contains(&first) {
            return Ok(());
        }
        if !catalog.is_empty() && first != CATALOG {
            let message = format!(
                "cross-database references are not implemented: {first}.{database}.{table}"
            );
            return Err(SqlError::new(FEATURE_NOT_SUPPORTED, message));
        }
        if self.tables.full.contains(&(database, table.clone())) {
            return Ok(());
        }
        let message = format!("invalid reference to FROM-clause entry for table \"{table}\"");
        let hint = format!(
            "There is an entry for table \"{table}\", but it cannot be referenced from this part of the query."
        );
        Err(SqlError::new(UNDEFINED_TABLE, message).with_hint(hint))
    }
}

impl Visitor for Qualified<'_> {
    type Break = Box<SqlError>;

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Self::Break> {
        for item in &select.projection {
            if let SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(name),
                _,
            ) = item
            {
                let parts: Vec<&Ident> =
                    name.0.iter().filter_map(ObjectNamePart::as_ident).collect();
                if let Err(error) = self.check(&parts) {
                    return ControlFlow::Break(Box::new(error));
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Self::Break> {
        if let Expr::CompoundIdentifier(parts) = expr
            && let Some((_, qualifier)) = parts.split_last()
            && let Err(error) = self.check(&qualifier.iter().collect::<Vec<_>>())
        {
            return ControlFlow::Break(Box::new(error));
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::statement::Statement;

    /// The SQLSTATE of a query in the database `public`; empty when its qualifiers are right.
    fn refusal(sql: &str) -> String {
        let Some(Statement::Query(query)) = crate::parse(sql).unwrap().pop() else {
            panic!("{sql}")
        };
        check(&query.statement, "public").map_or_else(|error| error.sqlstate, |()| String::new())
    }

    #[test]
    fn a_column_is_qualified_by_the_database_of_its_table() {
        for (sql, sqlstate) in [
            ("SELECT t.k, public.t.k, partita.public.t.k, Public.T.* FROM t", ""),
            ("SELECT other.t.k FROM other.t WHERE other.t.k > 1", ""),
            ("SELECT public.t.k, u.k FROM partita.public.t, other.u", ""),
            (
                "SELECT 1 FROM t WHERE EXISTS (SELECT 1 FROM other.u WHERE other.u.k = public.t.k)",
                "",
            ),
            // A field of a structure, and a table that does not exist.
            ("SELECT d.s.field FROM (SELECT named_struct('field', k) AS s FROM t) AS d, s", ""),
            ("SELECT nope.u.k FROM t", ""),
            ("SELECT nope.t.k FROM t", "42P01"),
            ("SELECT nope.t.* FROM t", "42P01"),
            ("SELECT k FROM t ORDER BY nope.t.k", "42P01"),
            ("SELECT k FROM other.t WHERE public.t.k = 1", "42P01"),
            ("SELECT public.t.k FROM t AS t", "42P01"),
            ("SELECT (SELECT max(k) FROM u WHERE nope.t.k = u.k) FROM t", "42P01"),
            ("SELECT nope.public.t.k FROM t", "0A000"),
        ] {
            assert_eq!(refusal(sql), sqlstate, "{sql}");
        }
    }
}
