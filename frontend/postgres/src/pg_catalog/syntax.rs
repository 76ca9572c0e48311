//! Pieces of queries over `pg_catalog`: expressions that are made of texts, and the tables that a query names.

use datafusion::sql::sqlparser::ast::{Expr, TableFactor, TableWithJoins};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

/// The expression of a text; `None` if it is none.
pub(super) fn expression_of(text: &str) -> Option<Expr> {
    Parser::new(&PostgreSqlDialect {}).try_with_sql(text).ok()?.parse_expr().ok()
}

/// The tables of a FROM item, with the names by which the query refers to them.
pub(super) fn names(item: &TableWithJoins) -> Vec<(String, String)> {
    let joined = item.joins.iter().map(|join| &join.relation);
    std::iter::once(&item.relation)
        .chain(joined)
        .filter_map(|relation| {
            let TableFactor::Table { name, alias, .. } = relation else { return None };
            let table = name.0.last()?.as_ident()?.value.to_ascii_lowercase();
            let alias = alias.as_ref().map(|alias| alias.name.value.to_ascii_lowercase());
            Some((table.clone(), alias.unwrap_or(table)))
        })
        .collect()
}
