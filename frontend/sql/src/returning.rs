//! RETURNING: its grammar, and the query over the rows that a statement has written or removed.
//!
//! ```text
//!   RETURNING {* | expression [[AS] name]}, ..
//! ```
//!
//! The query is a SELECT over rows that the statement supplies, so expressions, names and types are those of any query.

use std::sync::Arc;

use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::parser::Parser;
use partita_proto::catalog::Table;

use super::counts;
use super::grouped_casts;
use super::hidden::supply;
use super::joined_subqueries;
use super::refused::check_query;
use super::rewritten::rewrite;
use super::statement::{Query, Returning};
use super::tokens::Tokens;
use super::update_rows::{from_item, select_of, source, tables_of};
use super::weight;
use crate::error::SqlError;

impl Tokens<'_> {
    /// Takes RETURNING with its items, if it comes next.
    pub(super) fn returning(&mut self) -> Result<Option<Returning>, SqlError> {
        let position = self.position();
        if !self.take(&["returning"]) {
            return Ok(None);
        }
        let items =
            self.bounded(|parser| parser.parse_comma_separated(Parser::parse_select_item))?;
        let mut source = source(items, Vec::new(), None)?;
        grouped_casts::keep_apart(&mut source);
        check_query(&source)
            .and_then(|()| counts::check(&mut source))
            .and_then(|()| joined_subqueries::rewrite(&mut source))
            .and_then(|()| rewrite(&mut source))
            .and_then(|()| weight::check(&source))
            .map_err(|error| error.with_position(position))?;
        Ok(Some(Returning { source }))
    }
}

impl Returning {
    /// The query over the rows that the statement supplies; `alias` is that of the table. Those of the other tables of
    /// `found`, the query that finds the rows, stand beside them.
    ///
    /// # Errors
    /// Errors of the parser, which do not occur.
    pub fn query(
        &self,
        table: &Table,
        alias: Option<&str>,
        found: Option<&ast::Query>,
        text: &Arc<str>,
    ) -> Result<Query, SqlError> {
        let mut query = self.source.clone();
        let mut rows = from_item(table, alias)?;
        supply(&mut rows);
        let tables = &mut select_of(&mut query)?.from;
        tables.push(rows);
        if let Some(found) = found {
            tables.extend_from_slice(tables_of(found));
            query.with.clone_from(&found.with);
        }
        let statement = Box::new(ast::Statement::Query(query));
        Ok(Query { text: Arc::clone(text), statement: PlannerStatement::Statement(statement) })
    }
}
