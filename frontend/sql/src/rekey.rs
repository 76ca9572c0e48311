//! ALTER TABLE ... PRIMARY KEY, and the orders about such a change while it is under way.
//!
//! ```text
//! ALTER TABLE [IF EXISTS] [ONLY] [database.]table PRIMARY KEY (column, ..)
//!     [PARTITION BY RANGE (..) | PARTITION BY HASH (..) PARTITIONS n | PARTITION ON COLUMNS (..) (rule, ..)]
//!     [SPLIT AT ((value, ..), ..)]
//! ALTER TABLE [IF EXISTS] [ONLY] [database.]table {PAUSE | RESUME | CANCEL} REKEYING
//! ALTER TABLE [IF EXISTS] [ONLY] [database.]table THROTTLE REKEYING rows per second
//! ```

use datafusion::sql::sqlparser::tokenizer::Token;
use partita_proto::catalog::Table;
use partita_proto::materialized::Steering;
use partita_proto::service::NewTable;

use super::materialized_statement::Purpose;
use super::statement::{AlterChange, AlterTable, KeyLayout, NewPlacement, Rekey, RekeyChange};
use super::tokens::Tokens;
use crate::error::SqlError;

impl Tokens<'_> {
    /// Takes what follows ALTER TABLE if it is about another key, and nothing otherwise.
    pub(super) fn rekey(&mut self) -> Result<Option<Rekey>, SqlError> {
        // ALTER TABLE [IF EXISTS] [ONLY] [database.]table PRIMARY KEY: the number of tokens before the word.
        let mut ahead = usize::from(self.at("if")) * 2;
        ahead += usize::from(self.at_nth(ahead, "only"));
        ahead += 1;
        while matches!(self.peek_nth(ahead).token, Token::Period) {
            ahead += 2;
        }
        let is_key = self.at_nth(ahead, "primary") && self.at_nth(ahead + 1, "key");
        let orders = ["pause", "resume", "throttle", "cancel"];
        let is_order = self.at_nth(ahead + 1, "rekeying")
            && orders.iter().any(|order| self.at_nth(ahead, order));
        if !is_key && !is_order {
            return Ok(None);
        }
        let if_exists = self.if_exists();
        self.take(&["only"]);
        let table = self.table_name()?;
        let change = if is_key {
            RekeyChange::Begin(Box::new(self.key_layout()?))
        } else if self.take(&["throttle", "rekeying"]) {
            RekeyChange::Steer(Steering::Throttle(self.unsigned("a number of rows per second")?))
        } else if self.take(&["pause", "rekeying"]) {
            RekeyChange::Steer(Steering::Pause)
        } else if self.take(&["resume", "rekeying"]) {
            RekeyChange::Steer(Steering::Resume)
        } else {
            self.take(&["cancel", "rekeying"]);
            RekeyChange::Steer(Steering::Cancel)
        };
        if matches!(self.peek().token, Token::Comma) {
            let action = if is_key { "PRIMARY KEY" } else { "an order about a re-keying" };
            let message = format!("{action} must be the only action of its ALTER TABLE");
            return Err(self.located(SqlError::syntax(message)));
        }
        self.expect_end()?;
        Ok(Some(Rekey { table, if_exists, change }))
    }
}

impl KeyLayout {
    /// The table for meta to create under a name, which takes the place of `source` when it has all of its rows. A key
    /// without the time index ends with it.
    ///
    /// # Errors
    /// When the key does not have the key columns of the table, each once, or nothing would change; when a partition
    /// clause does not fit.
    pub fn to_rekeyed(&self, source: &Table, name: &str) -> Result<NewTable, SqlError> {
        let mut layout = self.clone();
        let time_index = source.schema.time_index().map(|column| column.name.clone());
        if let Some(time_index) = time_index
            && !layout.key.contains(&time_index)
        {
            layout.key.push(time_index);
        }
        layout.to_new_table(source, name, Purpose::Rekeying)
    }
}

impl AlterTable {
    /// The new placement of a table that keeps one row per key, or has materialized copies (`is_copied`): its rows are to
    /// be moved, while those of other tables stay where they are. `None`: the statement does not change the placement, or
    /// moves no rows.
    ///
    /// # Errors
    /// When the placement is not the only change.
    pub fn moving_placement(
        &self,
        table: &Table,
        is_copied: bool,
    ) -> Result<Option<&NewPlacement>, SqlError> {
        if table.schema.options.append_mode && !is_copied {
            return Ok(None);
        }
        let placement = self.changes.iter().find_map(|change| match change {
            AlterChange::Repartition(placement) => Some(placement),
            _ => None,
        });
        if placement.is_some() && self.changes.len() > 1 {
            return Err(SqlError::syntax(
                "PARTITION BY must be the only action of its ALTER TABLE, unless the table keeps every row and has no copies",
            ));
        }
        Ok(placement)
    }
}

impl NewPlacement {
    /// As [`KeyLayout::to_rekeyed`], with the key that the table has.
    ///
    /// # Errors
    /// When nothing would change, or the placement does not fit the table.
    pub fn to_rekeyed(&self, source: &Table, name: &str) -> Result<NewTable, SqlError> {
        Purpose::Rekeying.check_source(source)?;
        let (placement, cuts) = self.resolve(source)?;
        let schema = source.schema.as_ref().clone();
        Purpose::Rekeying.new_table(source, name, (schema, placement, cuts))
    }
}
