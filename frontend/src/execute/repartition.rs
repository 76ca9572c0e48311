//! ALTER TABLE ... SPLIT and MERGE: sends orders to meta one by one, and waits for each.
//!
//! Invariant: the statement returns when the catalog shows all of its steps. A step that takes too long is an error;
//! meta may still complete it, or may have given it up.

use std::sync::Arc;
use std::time::Duration;

use partita_proto::Error;
use partita_proto::access::Permit;
use partita_proto::catalog::Table;
use partita_sql::{Notice, Repartition, Step};

use crate::copies::refused::check_stored;
use crate::error::{SqlError, UNDEFINED_TABLE};
use crate::output::Output;
use crate::session::Session;

/// Maximum wait for one cut or merge. Meta gives up a merge after 30 s.
const STEP_WAIT: Duration = Duration::from_secs(60);

impl Session {
    pub(super) async fn repartition(
        &self,
        change: &Repartition,
        permit: &Permit,
    ) -> Result<Output, SqlError> {
        const TAG: &str = "ALTER TABLE";
        let table = match self.table(&change.table) {
            Err(error) if change.if_exists && error.sqlstate == UNDEFINED_TABLE => {
                let name = &change.table.name;
                let notice =
                    Notice::notice(format!("relation \"{name}\" does not exist, skipping"));
                return Ok(Output::done_with(TAG, vec![notice]));
            }
            result => result?,
        };
        check_stored(&table)?;
        let mut notices = Vec::new();
        for step in change.steps(&table)? {
            // The table may have been dropped since the previous step.
            let table = self.frontend().catalog().table_by_id(table.id).map(Arc::clone);
            let table = table.ok_or_else(|| SqlError::undefined_table(&change.table))?;
            match step.order(&table)? {
                Some(order) => {
                    self.frontend().administer(permit, order).await?;
                    self.wait_for(&step, &table).await?;
                }
                None => notices.push(Notice::notice(match step {
                    Step::Cut(bound, _) => {
                        format!("a partition already begins at {bound}, skipping")
                    }
                    Step::Halve(partition, _) => {
                        format!("partition {partition} has been split in the meantime, skipping")
                    }
                    Step::Merge(_, right) => {
                        format!("partition {right} has been merged in the meantime, skipping")
                    }
                })),
            }
        }
        Ok(Output::done_with(TAG, notices))
    }

    /// Waits until the catalog shows that a step is done.
    async fn wait_for(&self, step: &Step, table: &Table) -> Result<(), SqlError> {
        let mut catalog = self.frontend().watch();
        let completion = catalog.wait_for(|catalog| match catalog.table_by_id(table.id) {
            // An order that cannot be computed is not waited for.
            Some(table) => step.order(table).map_or(true, |order| order.is_none()),
            None => true,
        });
        match tokio::time::timeout(STEP_WAIT, completion).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Timeout(format!(
                "SPLIT or MERGE of table \"{}\" did not complete within {} s; see sys.split_events for its \
                outcome",
                table.name,
                STEP_WAIT.as_secs()
            ))
            .into()),
        }
    }
}
