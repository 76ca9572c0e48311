//! LOCK TABLE, which tools of PostgreSQL send before they read tables: grammar only.
//!
//! ```text
//! LOCK [TABLE] [ONLY] table, .. IN ACCESS SHARE MODE [NOWAIT]
//! ```
//!
//! There are no locks. ACCESS SHARE only keeps others from changing or dropping the table, of which a statement that
//! reads it learns anyway; a stronger mode would promise something, so it is refused.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::statement::{Lock, Statement};
use super::tokens::Tokens;
use crate::error::SqlError;

impl Tokens<'_> {
    /// Takes LOCK.
    pub(super) fn lock(&mut self) -> Result<Statement, SqlError> {
        self.expect("lock")?;
        self.take(&["table"]);
        self.take(&["only"]);
        let mut tables = vec![self.table_name()?];
        while self.take_mark(&Token::Comma) {
            self.take(&["only"]);
            tables.push(self.table_name()?);
        }
        if !self.take(&["in", "access", "share", "mode"]) {
            return Err(self
                .unsupported("LOCK TABLE in a mode other than ACCESS SHARE")
                .with_hint("a statement is atomic in each partition without a lock"));
        }
        self.take(&["nowait"]);
        Ok(Statement::Lock(Lock { tables }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    #[test]
    fn only_the_mode_that_keeps_nobody_out_is_taken() {
        for (text, tables) in [
            ("LOCK TABLE public.t IN ACCESS SHARE MODE", 1),
            ("lock t, only u in access share mode nowait", 2),
        ] {
            let Some(Statement::Lock(lock)) = parse(text).unwrap().pop() else { panic!("{text}") };
            assert_eq!(lock.tables.len(), tables, "{text}");
        }
        for text in ["LOCK TABLE t", "LOCK t IN ACCESS EXCLUSIVE MODE"] {
            assert_eq!(parse(text).unwrap_err().sqlstate, "0A000", "{text}");
        }
        assert_eq!(parse("LOCK TABLE").unwrap_err().sqlstate, "42601");
    }
}
