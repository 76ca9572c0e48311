//! Requests to the leader of a source partition.

use std::sync::Arc;
use std::time::Duration;

use partita_proto::Error;
use partita_proto::id::{Epoch, NodeId, PartitionId, TableId};
use partita_proto::route::Route;
use partita_proto::service::DataService;
use tokio::time::Instant;

use super::Copies;
use crate::leaders::is_absent;

/// First pause before a request is sent again; each is twice the previous one.
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// Maximum pause.
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Maximum hints to another leader that are followed before a pause.
const HOPS_MAX: u32 = 3;

/// A partition of a table that has copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SourcePartition {
    pub(super) table: TableId,
    pub(super) partition: PartitionId,
}

impl Copies {
    /// The newest route of a source partition.
    fn route(&self, source: SourcePartition) -> Result<Route, Error> {
        let catalog = self.view.catalog();
        let table = catalog.table_by_id(source.table);
        let route = table.and_then(|table| table.partitions.route(source.partition));
        route.cloned().ok_or_else(|| Error::NotFound {
            kind: "partition",
            name: source.partition.to_string(),
        })
    }

    /// Asks the leader of a source partition, with the newest epoch, until it answers or the deadline has passed. The
    /// request may be sent several times.
    ///
    /// # Errors
    /// The first error that does not pass, or the last one at the deadline; [`Error::NotFound`] of a "partition" that the
    /// catalog does not have.
    pub(super) async fn at_leader<T, F>(
        &self,
        source: SourcePartition,
        deadline: Instant,
        request: impl Fn(Arc<dyn DataService>, Epoch) -> F + Send + Sync,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send,
    {
        let partition = source.partition;
        let leaders = self.view.leaders();
        let mut next: Option<NodeId> = None;
        let mut pause = PAUSE_MIN;
        let mut hops = 0;
        loop {
            let version = self.view.catalog().version;
            let route = self.route(source)?;
            let node = next.take().or_else(|| leaders.first(&route));
            let error = match self.ask(node, &route, deadline, &request).await {
                Ok(answer) => {
                    leaders.answered(partition, node);
                    return Ok(answer);
                }
                Err(error) => error,
            };
            let passes = is_absent(&error) || error.is_retryable();
            if !passes || Instant::now() + pause >= deadline {
                return Err(error);
            }
            if matches!(error, Error::StaleRoute { .. }) {
                self.view.newer_catalog(version, deadline).await;
                continue;
            }
            leaders.failed(partition, node);
            // Follow a hint to the leader at once, but not in circles; otherwise pause and try the next node.
            if let Error::NotLeader { leader: Some(leader), .. } = &error
                && Some(*leader) != node
                && hops < HOPS_MAX
            {
                hops += 1;
                next = Some(*leader);
                continue;
            }
            hops = 0;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
            next = leaders.next(&route, node, &error);
        }
    }

    async fn ask<T, F>(
        &self,
        node: Option<NodeId>,
        route: &Route,
        deadline: Instant,
        request: &(impl Fn(Arc<dyn DataService>, Epoch) -> F + Sync),
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send,
    {
        let node = node.ok_or_else(|| {
            Error::Unavailable(format!("no node is known to hold partition {}", route.partition))
        })?;
        let service = self.view.nodes().node(node)?;
        match tokio::time::timeout_at(deadline, request(service, route.epoch)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Timeout("no answer from the partition's leader".to_owned())),
        }
    }
}
