//! WITH in front of INSERT, UPDATE and DELETE.
//!
//! sqlparser reads the whole statement as a query, which finds where the clause ends. The rest is read by the grammar of its
//! own statement. The clause goes into the query of an INSERT, or into the one that finds the rows of the others.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{self, SetExpr};

use super::insert;
use super::statement::{Delete, Insert, Statement, Update};
use super::tokens::Tokens;
use super::update_grammar::finish;
use super::update_rows::parsed;
use crate::error::SqlError;

/// The first word of a statement that writes, if a query is one.
fn keyword(body: &SetExpr) -> Option<&AttachedToken> {
    match body {
        SetExpr::Insert(ast::Statement::Insert(insert)) => Some(&insert.insert_token),
        SetExpr::Update(ast::Statement::Update(update)) => Some(&update.update_token),
        SetExpr::Delete(ast::Statement::Delete(delete)) => Some(&delete.delete_token),
        _ => None,
    }
}

/// True for a query that is a statement that writes, behind WITH.
pub(super) fn writes(query: &ast::Query) -> bool {
    query.with.is_some() && keyword(&query.body).is_some()
}

impl Tokens<'_> {
    /// The statement that a query with WITH, which began at a position and an offset, turned out to be.
    pub(super) fn written(
        &self,
        mut query: ast::Query,
        position: usize,
        offset: usize,
    ) -> Result<Statement, SqlError> {
        let Some(location) = keyword(&query.body).map(|token| token.0.span.start) else {
            return Err(SqlError::internal("a query does not write"));
        };
        let mut rest = self.behind(location)?;
        let text = Arc::from(self.text);
        if rest.at("insert") {
            let clause = &self.text[offset..self.text.len() - rest.text.len()];
            let insert = insert::parse_with(clause, rest.text, rest.start())?;
            return Ok(Statement::Insert(Insert { text, position: self.start(), ..insert }));
        }
        // The clause is checked and rewritten with a query of its own.
        let unit = *parsed("SELECT 1")?;
        query.body = unit.body;
        finish(&mut query).map_err(|error| error.with_position(position))?;
        let with = query.with;
        let statement = if rest.at("update") {
            let mut update = rest.update()?;
            update.source.with = with;
            Statement::Update(Update { text, ..update })
        } else {
            let mut delete = rest.delete()?;
            delete.source.with = with;
            Statement::Delete(Delete { text, ..delete })
        };
        rest.expect_end()?;
        Ok(statement)
    }
}
