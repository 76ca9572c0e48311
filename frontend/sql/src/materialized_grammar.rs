//! Grammar of statements about materialized copies.
//!
//! ```text
//! CREATE MATERIALIZED COPY [IF NOT EXISTS] [database.]name OF [database.]table PRIMARY KEY (column, ..)
//!     [PARTITION BY RANGE (..) | PARTITION BY HASH (..) PARTITIONS n | PARTITION ON COLUMNS (..) (rule, ..)]
//!     [SPLIT AT ((value, ..), ..)]
//! DROP MATERIALIZED COPY [IF EXISTS] [database.]name, ..
//! ```
//!
//! This file parses; `materialized_statement.rs` checks.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::statement::{CreateCopy, DropCopy, KeyLayout, Partitioning, Statement};
use super::tokens::Tokens;
use crate::error::{INVALID_PARAMETER_VALUE, SqlError};

impl Tokens<'_> {
    /// Takes what follows CREATE MATERIALIZED COPY.
    pub(super) fn create_copy(&mut self) -> Result<Statement, SqlError> {
        let if_not_exists = self.if_not_exists();
        let name = self.table_name()?;
        self.expect("of")?;
        let source = self.table_name()?;
        let layout = self.key_layout()?;
        let create = CreateCopy { name, source, layout, if_not_exists };
        Ok(Statement::CreateCopy(Box::new(create)))
    }

    /// Takes PRIMARY KEY and the clauses that divide the rows in its order.
    pub(super) fn key_layout(&mut self) -> Result<KeyLayout, SqlError> {
        if !self.take(&["primary", "key"]) {
            return Err(self.unexpected("PRIMARY KEY"));
        }
        let key = self.key_columns()?;
        let partitioning = self.copy_partitioning()?;
        let cuts = if self.take(&["split", "at"]) {
            let position = self.position();
            let cuts = self.tuples()?;
            if cuts.iter().any(|cut| cut.values.is_empty()) {
                let error = SqlError::syntax("a partition boundary must have at least one value");
                return Err(error.with_position(position));
            }
            Some(cuts)
        } else {
            None
        };
        Ok(KeyLayout { key, partitioning, cuts })
    }

    /// Takes the PARTITION clause; without one, the rows are placed by range.
    fn copy_partitioning(&mut self) -> Result<Partitioning, SqlError> {
        if self.take(&["partition", "on", "columns"]) {
            let columns = self.columns()?;
            let rules = self.list(Self::expression)?;
            if rules.is_empty() {
                return Err(self.located(SqlError::syntax(
                    "PARTITION ON COLUMNS requires at least one expression",
                )));
            }
            return Ok(Partitioning::Rules { columns, rules });
        }
        if self.take(&["partition", "by", "hash"]) {
            let columns = self.columns()?;
            if !self.take(&["partitions"]) {
                let error = SqlError::syntax("PARTITION BY HASH requires PARTITIONS and a number");
                return Err(self.located(error));
            }
            let position = self.position();
            let number = self.unsigned("a number of partitions")?;
            let partitions = u16::try_from(number).ok().filter(|number| *number > 0);
            let partitions = partitions.ok_or_else(|| {
                let message = "PARTITIONS takes a number from 1 to 65535";
                SqlError::new(INVALID_PARAMETER_VALUE, message).with_position(position)
            })?;
            return Ok(Partitioning::Hash { columns, partitions });
        }
        if self.take(&["partition", "by", "range"]) {
            return Ok(Partitioning::Range { columns: self.columns()? });
        }
        if self.at("partition") {
            self.take(&["partition", "by"]);
            return Err(self.unexpected("BY RANGE, BY HASH or ON COLUMNS"));
        }
        Ok(Partitioning::Range { columns: Vec::new() })
    }

    /// Takes what follows DROP MATERIALIZED COPY.
    pub(super) fn drop_copy(&mut self) -> Result<Statement, SqlError> {
        let if_exists = self.if_exists();
        let mut names = vec![self.table_name()?];
        while self.take_mark(&Token::Comma) {
            names.push(self.table_name()?);
        }
        // Nothing depends on a copy.
        let _ = self.take(&["cascade"]) || self.take(&["restrict"]);
        Ok(Statement::DropCopy(DropCopy { names, if_exists }))
    }
}
