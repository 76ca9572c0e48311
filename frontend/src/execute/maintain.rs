//! `ADMIN flush_table` and `ADMIN compact_table`: orders to every replica of a table.
//!
//! A replica may not run yet (its partition was split off a moment ago), may have moved, or be gone with a partition that
//! was merged. Such failures are retried over the newest catalog for a while; what is done already is not done again.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::future::join_all;
use partita_proto::catalog::Table;
use partita_proto::error::Error;
use partita_proto::id::{NodeId, PartitionId};
use partita_sql::statement::TableName;

use crate::copies::refused::check_stored;
use crate::error::SqlError;
use crate::session::Session;

/// Maximum time for which failures are retried.
const RETRY_TIME: Duration = Duration::from_secs(5);
/// Pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Work that a replica does on its files.
#[derive(Clone, Copy)]
pub(super) enum Maintenance {
    /// Rows in memory are written to files.
    Flush,
    /// Files are merged.
    Compact,
}

impl Session {
    /// Has every replica of a table do some maintenance.
    ///
    /// # Errors
    /// The first failure that is not transient, or the last transient one after [`RETRY_TIME`].
    pub(super) async fn maintain(
        &self,
        name: &TableName,
        maintenance: Maintenance,
    ) -> Result<(), SqlError> {
        check_stored(&*self.table(name)?)?;
        let deadline = Instant::now() + RETRY_TIME;
        let mut finished_replicas = BTreeSet::new();
        loop {
            let replicas = replicas(&*self.table(name)?);
            let open = replicas.difference(&finished_replicas).copied();
            let orders = open.map(|replica| async move {
                (replica, self.maintain_replica(replica, maintenance).await)
            });
            let mut failure = None;
            for (replica, result) in join_all(orders).await {
                match result {
                    Ok(()) => drop(finished_replicas.insert(replica)),
                    Err(error) if is_transient(&error) => failure = Some(error),
                    Err(error) => return Err(error.into()),
                }
            }
            let Some(failure) = failure else { return Ok(()) };
            if Instant::now() + RETRY_PAUSE >= deadline {
                return Err(failure.into());
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    async fn maintain_replica(
        &self,
        (partition, node): (PartitionId, NodeId),
        maintenance: Maintenance,
    ) -> Result<(), Error> {
        let service = self.frontend().view().nodes().node(node)?;
        match maintenance {
            Maintenance::Flush => service.flush_partition(partition).await,
            Maintenance::Compact => service.compact_partition(partition).await,
        }
    }
}

/// Replicas of a table's partitions, with their nodes.
fn replicas(table: &Table) -> BTreeSet<(PartitionId, NodeId)> {
    let routes = table.partitions.routes().iter();
    routes
        .flat_map(|route| {
            let nodes = route.replicas.values().chain(&route.leader);
            nodes.map(|node| (route.partition, *node))
        })
        .collect()
}

/// True if the next attempt may succeed: the replica is starting, or the catalog is about to say where it is.
fn is_transient(error: &Error) -> bool {
    error.is_retryable() || matches!(error, Error::NotFound { kind: "partition", .. })
}
