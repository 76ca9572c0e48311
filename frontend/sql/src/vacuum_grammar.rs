//! VACUUM and ANALYZE, which tools of PostgreSQL send: grammar only. Files are merged and measured in the background, so
//! nothing is left to do.
//!
//! ```text
//! VACUUM [(option, ..)] [FULL] [FREEZE] [VERBOSE] [ANALYZE] [table, ..]
//! ANALYZE [(option, ..)] [VERBOSE] [table, ..]
//! ```

use datafusion::sql::sqlparser::tokenizer::Token;

use super::statement::{Statement, Vacuum};
use super::tokens::Tokens;
use crate::error::SqlError;

/// Options without a value.
const OPTIONS: [&str; 6] = ["full", "freeze", "verbose", "analyze", "analyse", "skip_locked"];

impl Tokens<'_> {
    /// Takes VACUUM or ANALYZE.
    pub(super) fn vacuum(&mut self) -> Result<Statement, SqlError> {
        let only_analyzes = !self.take(&["vacuum"]);
        if only_analyzes && !self.take(&["analyse"]) {
            self.expect("analyze")?;
        }
        if matches!(self.peek().token, Token::LParen) {
            self.list(Self::vacuum_option)?;
        } else {
            for option in OPTIONS.iter().filter(|option| **option != "skip_locked") {
                let _ = self.take(&[*option]);
            }
        }
        let mut tables = Vec::new();
        if !self.at_end() {
            tables.push(self.table_name()?);
            while self.take_mark(&Token::Comma) {
                tables.push(self.table_name()?);
            }
        }
        Ok(Statement::Vacuum(Vacuum { only_analyzes, tables }))
    }

    fn vacuum_option(&mut self) -> Result<(), SqlError> {
        let position = self.position();
        let name = self.name("an option")?;
        if OPTIONS.contains(&name.as_str()) {
            return Ok(());
        }
        let option = name.to_ascii_uppercase();
        Err(SqlError::unsupported(format!("option {option} of VACUUM")).with_position(position))
    }
}
