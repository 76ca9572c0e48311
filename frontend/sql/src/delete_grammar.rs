//! Grammar of DELETE.
//!
//! ```text
//! DELETE FROM [ONLY] table [[AS] alias] [USING table, ..] [WHERE condition] [RETURNING item, ..]
//! ```

use std::sync::Arc;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::statement::Delete;
use super::tokens::Tokens;
use super::update_grammar::finish;
use super::update_rows::source;
use crate::error::SqlError;

impl Tokens<'_> {
    /// Takes a DELETE statement.
    pub(super) fn delete(&mut self) -> Result<Delete, SqlError> {
        self.expect("delete")?;
        self.expect("from")?;
        self.take(&["only"]);
        let table = self.table_name()?;
        let alias = if self.take(&["as"])
            || (matches!(self.peek().token, Token::Word(_))
                && !["where", "using", "returning", "order", "limit"]
                    .iter()
                    .any(|word| self.at(word)))
        {
            Some(self.name("an alias")?)
        } else {
            None
        };
        let tables = if self.take(&["using"]) { self.tables()? } else { Vec::new() };
        let mut position = self.position();
        let predicate = if self.take(&["where"]) {
            position = self.position();
            if self.take(&["current", "of"]) {
                return Err(self.unsupported("WHERE CURRENT OF"));
            }
            Some(self.expression()?)
        } else {
            None
        };
        let mut source = source(Vec::new(), tables, predicate)?;
        finish(&mut source).map_err(|error| error.with_position(position))?;
        // Clauses after the predicate are refused by name.
        for (word, clause) in [("limit", "DELETE ... LIMIT"), ("order", "DELETE ... ORDER BY")] {
            if self.at(word) {
                return Err(self.unsupported(clause));
            }
        }
        let returning = self.returning()?;
        Ok(Delete { text: Arc::from(self.text), table, alias, source, returning })
    }
}
