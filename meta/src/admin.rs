//! Administrative orders: drain and remove nodes, move replicas and leaders, split and merge partitions.
//!
//! Invariant: an order that cannot be carried out is refused before it is recorded, with a reason that the operator
//! can act on.

use std::sync::Arc;

use partita_proto::error::Error;
use partita_proto::history::{Reason, ReshapeOutcome};
use partita_proto::id::{NodeId, PartitionId};
use partita_proto::range::Bound;
use partita_proto::service::{AdminOrder, DataService};
use tokio::time::Instant;

use crate::catalog::{NodeRecord, PartitionRecord, Step};
use crate::core::{Core, raft_error};
use crate::plan::Action;
use crate::progress::Job;
use crate::transition::{Command, Reply, decide};

impl Core {
    /// Carries an order out, or records it for the tasks that do so.
    pub(crate) async fn administer(&self, order: AdminOrder) -> Result<(), Error> {
        // The order is checked against everything that was acknowledged.
        self.group.read_barrier().await.map_err(raft_error)?;
        match order {
            // Nodes.
            AdminOrder::Drain { node, on: draining } => {
                if draining {
                    self.check_drain(node)?;
                }
                self.propose(&Command::Drain { node, on: draining }).await.map(drop)
            }
            AdminOrder::RemoveNode { node } => self.remove_node(node).await,
            // Replicas and leaders.
            AdminOrder::MoveReplica { partition, from: source, to: destination } => {
                self.move_replica(partition, source, destination).await
            }
            AdminOrder::TransferLeader { partition, to: destination } => {
                let record = self.partition(partition)?;
                if !record.replicas.values().any(|node| *node == destination) {
                    return Err(Error::InvalidInput(format!(
                        "partition {partition} has no replica on node {destination}"
                    )));
                }
                self.tell_leader(&record, Action::Transfer(destination)).await
            }
            // Splits and merges: the caller waits for the end.
            AdminOrder::SplitPartition { partition, at: cut } => {
                let cut = match cut {
                    Some(cut) => cut,
                    None => self.middle_of(partition).await?,
                };
                let reason = self.by_hand();
                self.reshape_and_wait(&Command::Split { partition, at: cut, reason, leader: None })
                    .await
                    .map(drop)
            }
            AdminOrder::MergePartitions { left: owner, right } => {
                let reason = self.by_hand();
                self.reshape_and_wait(&Command::Merge { left: owner, right, reason })
                    .await
                    .map(drop)
            }
        }
    }

    fn by_hand(&self) -> Reason {
        Reason { at_ms: Some(self.options.clock.now_ms()), ..Reason::by_hand() }
    }

    /// Refuses to drain a node if the remaining nodes, live or not, are too few to hold its replicas: the node
    /// would never become empty.
    fn check_drain(&self, node: NodeId) -> Result<(), Error> {
        let state = self.machine.state();
        // Draining nodes take no replicas, so they do not count.
        let takes = |candidate: &&Arc<NodeRecord>| candidate.id != node && !candidate.draining;
        let takers = state.nodes().filter(takes).count();
        let serving = state.node(node).is_some_and(|record| !record.draining);
        if !serving {
            return Ok(());
        }
        if takers == 0 {
            return Err(Error::InvalidInput(format!(
                "node {node} is the only node that takes replicas; start another node before draining it"
            )));
        }
        // Each of the node's partitions needs as many other nodes as it keeps replicas.
        for partition in state.held_by(node) {
            let table = state.table(partition.table);
            let factor = table.map_or(1, |table| self.options.replicas_of(&table.schema.options));
            let copies = factor.min(partition.replicas.len());
            if copies > takers {
                let name = table.map_or("", |table| table.name.as_str());
                return Err(Error::InvalidInput(format!(
                    "node {node} cannot be drained: partition {} of table \"{name}\" keeps {copies} replicas, and only \
                     {takers} other nodes take replicas; start another node or lower the table's replication_factor",
                    partition.id
                )));
            }
        }
        Ok(())
    }

    /// Removes a node for good. A live node must be draining first, so that no replica is placed on it meanwhile
    /// and no other node is removed by mistake.
    async fn remove_node(&self, node: NodeId) -> Result<(), Error> {
        let command = Command::RemoveNode { node };
        {
            let state = self.machine.state();
            if decide(&state, &command)?.edits.is_empty() {
                return Ok(());
            }
            let draining = state.node(node).is_some_and(|record| record.draining);
            if !draining && self.presence.reports().is_live(node) {
                return Err(Error::InvalidInput(format!(
                    "node {node} is live and is not being drained; stop it or run ADMIN drain_node({node}) before \
                     removing it"
                )));
            }
        }
        self.propose(&command).await?;
        self.presence.forget(node);
        self.publish_members();
        Ok(())
    }

    pub(crate) fn partition(&self, partition: PartitionId) -> Result<Arc<PartitionRecord>, Error> {
        let state = self.machine.state();
        let record = state.partition(partition).map(Arc::clone);
        record.ok_or_else(|| Error::NotFound { kind: "partition", name: partition.to_string() })
    }

    pub(crate) async fn move_replica(
        &self,
        partition: PartitionId,
        source: NodeId,
        destination: NodeId,
    ) -> Result<(), Error> {
        // Both replicas would be on one node for a while.
        if source == destination {
            return Err(Error::InvalidInput(format!(
                "partition {partition} cannot move from node {source} to itself"
            )));
        }
        let record = self.partition(partition)?;
        let replica_on = |node| record.replicas.iter().find(|(_, holder)| **holder == node);
        if replica_on(source).is_none() && replica_on(destination).is_some() {
            // A repeated request, after the move.
            return Ok(());
        }
        let replica = replica_on(source);
        let (replica, _) = replica.ok_or_else(|| {
            Error::InvalidInput(format!("partition {partition} has no replica on node {source}"))
        })?;
        if record.target.as_ref().is_some_and(|target| {
            target.replicas.values().any(|node| *node == destination)
                && !target.replicas.contains_key(replica)
        }) {
            // A repeated request, during the move.
            return Ok(());
        }
        let (add, remove) = (vec![destination], vec![*replica]);
        self.propose(&Command::Move { partition, add, remove, replaces: None }).await.map(drop)
    }

    /// Key that divides a partition into halves of about equal size.
    pub(crate) async fn middle_of(&self, partition: PartitionId) -> Result<Bound, Error> {
        let record = self.partition(partition)?;
        let request =
            |service: Arc<dyn DataService>| async move { service.middle_key(partition).await };
        self.ask_leader(&record, request).await?.ok_or_else(|| {
            Error::InvalidInput(format!(
                "partition {partition} has no key that leaves rows on both sides and separates none that must stay \
                 together; give the key at which to split it"
            ))
        })
    }

    /// Records a split or a merge, and waits up to `patience.reshape` for it. Returns its step, or the default step
    /// (0) if there was nothing to do.
    pub(crate) async fn reshape_and_wait(&self, command: &Command) -> Result<Step, Error> {
        self.check_sound(command)?;
        let deadline = Instant::now() + self.patience.reshape;
        let job = loop {
            let on_trial = decide(&self.machine.state(), command)?.reply;
            let reply = match on_trial {
                Reply::Changed { .. } => self.propose(command).await?,
                reply => reply,
            };
            match reply {
                Reply::Changed { steps } => match steps.first() {
                    Some(job) => break *job,
                    None => return Err(Error::Internal("a change without a step".to_owned())),
                },
                Reply::Unchanged => return Ok(Step::default()),
                Reply::Busy { table, step } => {
                    if !self.over((table, step), deadline, |_| false).await {
                        return Err(Error::Timeout(format!(
                            "another change of the table is still running after {} s; the split or merge was not started",
                            self.patience.reshape.as_secs()
                        )));
                    }
                }
            }
        };
        let ended = self.over(job, deadline, |_| false).await;
        self.reshaped(job, ended).map(|()| job.1)
    }

    /// Refuses to split or merge a partition that does not serve all of its rows: rows that cannot be read cannot
    /// be taken over, and the right neighbour would be frozen for nothing.
    fn check_sound(&self, command: &Command) -> Result<(), Error> {
        let (change, concerned) = match command {
            Command::Split { partition, .. } => ("split", vec![*partition]),
            Command::Merge { left: owner, right, .. } => ("merged", vec![*owner, *right]),
            _ => return Ok(()),
        };
        let reports = self.presence.reports();
        let failed = reports.failed();
        match concerned.iter().find_map(|id| Some((id, failed.get(id)?))) {
            None => Ok(()),
            Some((partition, why)) => Err(Error::Storage(format!(
                "partition {partition} cannot be {change} while it is damaged: {why}"
            ))),
        }
    }

    /// Result for the caller that waited for a split or a merge.
    fn reshaped(&self, job: Job, ended: bool) -> Result<(), Error> {
        match self.reshapes.outcome(job.1) {
            Some(ReshapeOutcome::Done) if ended => Ok(()),
            Some(ReshapeOutcome::GivenUp(why)) => {
                Err(Error::Unavailable(format!("given up: {why}")))
            }
            _ if ended => Err(Error::Unavailable(
                "the split or merge has ended with an outcome that this process does not know; see sys.partitions"
                    .to_owned(),
            )),
            _ => Err(Error::Timeout(format!(
                "not done after {} s; still running in the background",
                self.patience.reshape.as_secs()
            ))),
        }
    }
}
