//! Sends rows of a source partition to the partitions of a materialized copy.
//!
//! Each partition of the copy gets one request with all of its rows, and takes it by its position: nothing is split into
//! several requests or sent together with others. A copy never lacks a column that rows of its source have: the catalog
//! shows a new column when all partitions of both have it. Columns that were dropped since are ignored by the node.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use datafusion::execution::SessionState;
use futures::future::join_all;
use partita_proto::catalog::Table;
use partita_proto::materialized::Ship;
use partita_proto::service::WriteKind;
use tokio::time::Instant;

use super::{Identities, Router, without_placement};
use crate::error::SqlError;

/// Reason for which rows are not in every partition of a copy.
#[derive(Debug)]
pub(crate) enum Unshipped {
    /// A partition has some of the rows already: they are to be sent one change at a time.
    Ahead,
    /// Any other error.
    Failed(SqlError),
}

impl From<SqlError> for Unshipped {
    fn from(error: SqlError) -> Self {
        Self::Failed(error)
    }
}

impl Router {
    /// Sends rows of a source partition, with columns by storage name, to the partitions of a copy. Returns when all of
    /// them have taken the rows, also by an earlier request. Call it in the home runtime.
    ///
    /// # Errors
    /// [`Unshipped::Ahead`] if some rows were taken together with others, or the error of the first partition that did
    /// not take them until the deadline.
    pub(crate) async fn ship(
        &self,
        state: &Arc<SessionState>,
        copy: &Arc<Table>,
        (kind, rows): (WriteKind, RecordBatch),
        ship: Ship,
        deadline: Instant,
    ) -> Result<(), Unshipped> {
        let plan = self.view.plan(state, copy)?;
        let rows = without_placement(rows)?;
        let parts = self.cut(copy, &plan, &kind.into(), rows, Identities::Shipped(ship))?;
        let results =
            join_all(parts.into_iter().map(|part| self.send(state, part, deadline))).await;
        let mut is_ahead = false;
        for result in results {
            match result {
                // A copy has no copies.
                Ok(_) => {}
                Err(failed) if failed.is_ahead => is_ahead = true,
                Err(failed) => return Err(failed.error.into()),
            }
        }
        if is_ahead { Err(Unshipped::Ahead) } else { Ok(()) }
    }
}
