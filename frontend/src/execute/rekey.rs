//! ALTER TABLE ... PRIMARY KEY, PARTITION BY of tables that keep one row per key, and the orders about such a change.
//!
//! The statement returns when the new partitions exist; rows follow in the background (`frontend/src/copies.rs`).

use partita_proto::access::{Action, Permit};
use partita_proto::catalog::Table;
use partita_proto::materialized::{CopyChange, Steering};
use partita_proto::service::{Ddl, NewTable};
use partita_sql::{Notice, Rekey, RekeyChange};

use crate::copies::refused::check_no_copy;
use crate::error::{SqlError, UNDEFINED_TABLE};
use crate::output::Output;
use crate::session::Session;

const TAG: &str = "ALTER TABLE";
/// SQLSTATE of an object that is not in the state that a statement needs.
const NOT_IN_STATE: &str = "55000";

impl Session {
    pub(super) async fn rekey(&self, rekey: &Rekey, permit: &Permit) -> Result<Output, SqlError> {
        let table = match self.table(&rekey.table) {
            Err(error) if rekey.if_exists && error.sqlstate == UNDEFINED_TABLE => {
                let name = &rekey.table.name;
                let notice =
                    Notice::notice(format!("relation \"{name}\" does not exist, skipping"));
                return Ok(Output::done_with(TAG, vec![notice]));
            }
            result => result?,
        };
        self.check_covered(&rekey.table, Action::Own, permit)?;
        check_no_copy(&self.catalog(), &table)?;
        match &rekey.change {
            RekeyChange::Begin(layout) => {
                let new = layout.to_rekeyed(&table, &self.rekeyed_name(&table))?;
                self.begin_rekeying(&table, new, permit).await
            }
            RekeyChange::Steer(steering) => self.steer_rekeying(&table, *steering, permit).await,
        }
    }

    /// A free name for the table that is to take another one's place.
    pub(super) fn rekeyed_name(&self, table: &Table) -> String {
        let catalog = self.frontend().catalog();
        let is_free = |name: &String| catalog.table(&table.database, name).is_none();
        let first = format!("{}$rekeyed", table.name);
        let numbered = (2..).map(|number| format!("{}$rekeyed{number}", table.name));
        std::iter::once(first.clone()).chain(numbered).find(is_free).unwrap_or(first)
    }

    /// Has a new table filled, which takes the place of `table` then.
    pub(super) async fn begin_rekeying(
        &self,
        table: &Table,
        new: NewTable,
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        let ddl = Ddl::CreateTable { table: Box::new(new), if_not_exists: false };
        self.frontend().change(permit, ddl).await?;
        let message = format!(
            "table \"{}\" is being re-keyed in the background; sys.rekeyings shows its progress",
            table.name
        );
        Ok(Output::done_with(TAG, vec![Notice::notice(message)]))
    }

    async fn steer_rekeying(
        &self,
        table: &Table,
        steering: Steering,
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        let copy = self.frontend().catalog().rekeying_of(table.id).map(|copy| copy.id);
        let not_rekeyed = || {
            let message = format!("table \"{}\" is not being re-keyed", table.name);
            SqlError::new(NOT_IN_STATE, message)
        };
        let ddl = Ddl::Copy(CopyChange::Steer { copy: copy.ok_or_else(not_rekeyed)?, steering });
        match self.frontend().change(permit, ddl).await? {
            true => Ok(Output::done(TAG)),
            false => Err(not_rekeyed()
                .with_detail("It is being switched to its new key, or has been switched.")),
        }
    }
}
