//! Sends orders to nodes.
//!
//! Invariant: an order for a partition's leader is carried out by the leader that the group elected, or not at all;
//! the nodes report who leads.

use std::sync::Arc;

use partita_proto::error::Error;
use partita_proto::id::{NodeId, PartitionId};
use partita_proto::reshape::{Freeze, Reshape};
use partita_proto::service::{DataService, PartitionSpec};
use tokio::time::timeout;

use crate::catalog::PartitionRecord;
use crate::core::Core;
use crate::plan::{Action, Order};

/// Maximum nodes tried in turn to find the leader of a partition.
const HOPS_MAX: usize = 8;

impl Core {
    /// Sends an order to its node, or to the leader among its nodes; true if it was carried out.
    pub(crate) async fn send(&self, order: &Order) -> Result<bool, Error> {
        let outcome = match order.nodes.as_slice() {
            [] => self.send_to(order.node, order).await,
            nodes => self.send_to_leader(nodes, order).await,
        };
        match outcome {
            // When the node returns, its report shows a replica that the catalog does not know, and the plan has it
            // removed.
            Err(Error::Unavailable(_) | Error::Timeout(_))
                if order.action == Action::Drop && self.is_away(order.node) =>
            {
                Ok(true)
            }
            result => result.map(|()| true),
        }
    }

    /// True if a registered node's lease has expired.
    fn is_away(&self, node: NodeId) -> bool {
        let registered = self.machine.state().node(node).is_some();
        registered && !self.presence.reports().is_live(node)
    }

    /// Sends an order to the leader of its partition.
    async fn send_to_leader(&self, nodes: &[NodeId], order: &Order) -> Result<(), Error> {
        self.with_leader(order.partition, nodes, |node| self.send_to(node, order)).await
    }

    /// Sends a request to the leader of a partition.
    ///
    /// # Errors
    /// The leader's error; [`Error::Timeout`] if it does not answer.
    pub(crate) async fn ask_leader<T, A>(
        &self,
        record: &PartitionRecord,
        ask: impl Fn(Arc<dyn DataService>) -> A,
    ) -> Result<T, Error>
    where
        A: Future<Output = Result<T, Error>>,
    {
        let nodes: Vec<NodeId> = record.replicas.values().copied().collect();
        self.with_leader(record.id, &nodes, |node| self.ask(node, record.id, &ask)).await
    }

    /// Sends a request about a partition to one node.
    pub(crate) async fn ask<T, A>(
        &self,
        node: NodeId,
        partition: PartitionId,
        ask: impl Fn(Arc<dyn DataService>) -> A,
    ) -> Result<T, Error>
    where
        A: Future<Output = Result<T, Error>>,
    {
        let service = self.nodes.ordering(node, &self.catalog_history()?)?;
        timeout(self.patience.order, ask(service)).await.unwrap_or_else(|_| {
            Err(Error::Timeout(format!("node {node} did not answer for partition {partition}")))
        })
    }

    /// Sends a request to the leader of a partition: to the node that reported to lead, to the nodes named by
    /// answers, and to the other nodes in turn.
    async fn with_leader<T, S>(
        &self,
        partition: PartitionId,
        nodes: &[NodeId],
        send: impl Fn(NodeId) -> S,
    ) -> Result<T, Error>
    where
        S: Future<Output = Result<T, Error>>,
    {
        let first = self.leader_of(partition);
        let mut waiting: Vec<NodeId> = nodes.iter().rev().copied().chain(first).collect();
        let mut tried: Vec<NodeId> = Vec::new();
        let mut last = None;
        while let Some(node) = waiting.pop() {
            if tried.len() >= HOPS_MAX {
                break;
            }
            if tried.contains(&node) {
                continue;
            }
            tried.push(node);
            match send(node).await {
                Err(Error::NotLeader { partition, leader }) => {
                    waiting.extend(leader);
                    // Another node's error is more informative.
                    last.get_or_insert(Error::NotLeader { partition, leader });
                }
                // Unreachable, or without the replica: another node may know more.
                Err(
                    error @ (Error::Unavailable(_)
                    | Error::Timeout(_)
                    | Error::NotFound { kind: "partition", .. }),
                ) => last = Some(error),
                result => return result,
            }
        }
        let nobody = || Error::Unavailable("no node is known to hold a replica".to_owned());
        Err(last.unwrap_or_else(nobody))
    }

    /// Node that leads a partition, as far as replicas reported; of several the one with the newest term.
    fn leader_of(&self, partition: PartitionId) -> Option<NodeId> {
        let reports = self.presence.reports();
        let leading = reports.reports.iter().filter_map(|(node, report)| {
            let mut mine = report.replicas.iter();
            let status = mine.find(|status| status.partition == partition && status.leader)?;
            Some((status.term, *node))
        });
        leading.max().map(|(_, node)| node)
    }

    async fn send_to(&self, node: NodeId, order: &Order) -> Result<(), Error> {
        let partition = order.partition;
        let action = &order.action;
        let request = |service: Arc<dyn DataService>| async move {
            match action {
                Action::Open(spec) => service.open_partition(PartitionSpec::clone(spec)).await,
                Action::Drop => match service.drop_partition(partition, order.replica).await {
                    Err(Error::NotFound { kind: "partition", .. }) => Ok(()),
                    result => result,
                },
                Action::Alter(schema) => {
                    service.alter_partition(partition, Arc::clone(schema)).await
                }
                Action::Truncate(id) => service.truncate_partition(partition, *id).await,
                Action::Reconfigure(voters) => service.reconfigure(partition, voters.clone()).await,
                Action::Transfer(destination) => {
                    service.transfer_leader(partition, *destination).await
                }
                Action::Fence(epoch) => {
                    let fence = Freeze { partition, epoch: *epoch, on: false };
                    service.reshape(Reshape::Freeze(fence)).await.map(drop)
                }
            }
        };
        self.ask(node, partition, request).await
    }
}
