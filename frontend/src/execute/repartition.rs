//! ALTER TABLE ... SPLIT and MERGE: one order to meta after another, each waited for.
//!
//! Invariant: it answers when the catalog shows all of it. What was ordered and does not come about in time is an
//! error that says so; meta goes on with it, or has given it up.

use std::sync::Arc;
use std::time::Duration;

use partita_proto::Error;
use partita_proto::catalog::Table;

use crate::error::{SqlError, UNDEFINED_TABLE};
use crate::output::{Notice, Output};
use crate::session::Session;
use crate::sql::{Repartition, Step};

/// How long one cut or merge may take. Meta gives up a merge after 30 s.
const STEP_WAIT: Duration = Duration::from_secs(60);

impl Session {
    pub(super) async fn repartition(&self, change: &Repartition) -> Result<Output, SqlError> {
        const TAG: &str = "ALTER TABLE";
        let table = match self.table(&change.table) {
            Err(error) if change.if_exists && error.sqlstate == UNDEFINED_TABLE => {
                let name = &change.table.name;
                let notice =
                    Notice::notice(format!("relation \"{name}\" does not exist, skipping"));
                return Ok(Output::done_with(TAG, vec![notice]));
            }
            found => found?,
        };
        let mut notices = Vec::new();
        for step in change.steps(&table)? {
            // One that was dropped meanwhile is not cut.
            let table = self.frontend().catalog().table_by_id(table.id).map(Arc::clone);
            let table = table.ok_or_else(|| SqlError::undefined_table(&change.table))?;
            match step.order(&table)? {
                Some(order) => {
                    self.frontend().administer(order).await?;
                    self.wait_for(&step, &table).await?;
                }
                None => notices.push(Notice::notice(match step {
                    Step::Cut(at, _) => format!("a partition begins at {at} already, skipping"),
                    Step::Halve(partition, _) => {
                        format!("partition {partition} was split meanwhile, skipping")
                    }
                    Step::Merge(_, right) => {
                        format!("partition {right} was merged meanwhile, skipping")
                    }
                })),
            }
        }
        Ok(Output::done_with(TAG, notices))
    }

    /// Waits until the catalog shows that a step has been done.
    async fn wait_for(&self, step: &Step, before: &Table) -> Result<(), SqlError> {
        let mut catalog = self.frontend().watch();
        let seen = catalog.wait_for(|catalog| match catalog.table_by_id(before.id) {
            // What cannot be told is not waited for.
            Some(table) => step.order(table).map_or(true, |order| order.is_none()),
            None => true,
        });
        match tokio::time::timeout(STEP_WAIT, seen).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Timeout(format!(
                "table \"{}\" is to be cut or merged, but that is not done after {} s; sys.split_events tells what \
                 becomes of it",
                before.name,
                STEP_WAIT.as_secs()
            ))
            .into()),
        }
    }
}
