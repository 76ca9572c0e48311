//! Carries out recorded changes of partitions' replicas: opens the new ones, has the Raft group reconfigure itself,
//! and records the result.
//!
//! Invariants:
//! - one change of a partition is carried out at a time; a change that was replaced is aborted before the next
//!   order is sent;
//! - every order may be sent again, to any node, by any leader of meta's group: the partition's group decides its
//!   own membership in its own log;
//! - the group hears of a new replica only after its creation is recorded; from then on no order creates it again.
//!   A node that put the replica aside meanwhile would create it empty, while the group counts on its entries;
//! - replicas that are no longer wanted are not removed here: once the change is recorded, no record names them,
//!   and the plan has them removed, also those of a node that comes back after days.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use partita_proto::error::Error;
use partita_proto::id::{NodeId, PartitionId, ReplicaId};
use tokio::task::{AbortHandle, JoinSet};
use tracing::{info, warn};

use crate::catalog::{PartitionRecord, Step, Target};
use crate::core::{Core, raft_error};
use crate::plan::{self, Action, Order};
use crate::transition::Command;

/// The changes under way.
pub(crate) struct Mover {
    core: Arc<Core>,
    running: BTreeMap<PartitionId, (Step, AbortHandle)>,
    tasks: JoinSet<(PartitionId, Step)>,
}

impl Mover {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, running: BTreeMap::new(), tasks: JoinSet::new() }
    }

    /// Begins recorded changes, and aborts those that were replaced.
    pub(crate) fn keep_up(&mut self) {
        // Forget tasks that have ended.
        while let Some(ended) = self.tasks.try_join_next() {
            if let Ok((partition, step)) = ended
                && self.running.get(&partition).is_some_and(|(current, _)| *current == step)
            {
                self.running.remove(&partition);
            }
        }
        // Abort changes that the catalog no longer wants, then start the missing ones.
        let moves: BTreeMap<PartitionId, Step> = {
            let state = self.core.machine.state();
            let moving = state.moving();
            moving.filter_map(|record| Some((record.id, record.target.as_ref()?.step))).collect()
        };
        self.running.retain(|partition, (step, task)| {
            let current = moves.get(partition) == Some(step) && !task.is_finished();
            if !current {
                task.abort();
            }
            current
        });
        for (partition, step) in moves {
            self.running.entry(partition).or_insert_with(|| {
                let core = Arc::clone(&self.core);
                let task = self.tasks.spawn(async move {
                    core.carry_out_move(partition, step).await;
                    (partition, step)
                });
                (step, task)
            });
        }
    }

    /// Aborts all changes; the next leader of meta's group begins them again.
    pub(crate) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

impl Core {
    /// Retries, with backoff, until the change is done or replaced.
    async fn carry_out_move(&self, partition: PartitionId, step: Step) {
        let mut pause = self.patience.pause_min;
        let mut last_error = String::new();
        while let Some((record, target)) = self.recorded_move(partition, step) {
            match self.attempt_move(&record, &target).await {
                Ok(()) => {
                    info!(%partition, replicas = ?target.replicas, "replicas changed");
                    return;
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != last_error {
                        warn!(%partition, %error, "changing replicas failed; it will be retried");
                        last_error = text;
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(self.patience.pause_max.min(Duration::from_secs(1)));
        }
    }

    fn recorded_move(
        &self,
        partition: PartitionId,
        step: Step,
    ) -> Option<(Arc<PartitionRecord>, Target)> {
        let state = self.machine.state();
        let record = state.partition(partition)?;
        let target = record.target.clone().filter(|target| target.step == step)?;
        Some((Arc::clone(record), target))
    }

    async fn attempt_move(&self, record: &PartitionRecord, target: &Target) -> Result<(), Error> {
        self.create_replicas(record, target).await?;
        self.tell_leader(record, Action::Reconfigure(target.replicas.clone())).await?;
        self.propose(&Command::Moved { partition: record.id, step: target.step }).await?;
        Ok(())
    }

    /// Creates the new replicas of a target that are not recorded as created, and records them.
    async fn create_replicas(
        &self,
        record: &PartitionRecord,
        target: &Target,
    ) -> Result<(), Error> {
        let is_due = |replica: &ReplicaId| !target.created.contains(replica);
        let due: Vec<(ReplicaId, NodeId)> =
            record.new_replicas(target).filter(|(replica, _)| is_due(replica)).collect();
        if due.is_empty() {
            return Ok(());
        }
        let (partition, step) = (record.id, target.step);
        let replaced = || {
            Error::Unavailable(format!(
                "the change of partition {partition} was replaced meanwhile"
            ))
        };
        // The catalog of a deposed leader may not know yet that a replica was created.
        self.group.read_barrier().await.map_err(raft_error)?;
        let (_, current) = self.recorded_move(partition, step).ok_or_else(replaced)?;
        if current != *target {
            return Err(replaced());
        }
        for (replica, node) in &due {
            let spec = plan::joining(&self.machine.state(), record, target, *replica)?;
            let (replica, node) = (*replica, *node);
            let action = Action::Open(Box::new(spec));
            self.send(&Order { partition, replica, node, nodes: Vec::new(), action }).await?;
        }
        self.propose(&Command::Created { partition, step }).await?;
        let (_, current) = self.recorded_move(partition, step).ok_or_else(replaced)?;
        let are_recorded = due.iter().all(|(replica, _)| current.created.contains(replica));
        if are_recorded { Ok(()) } else { Err(replaced()) }
    }

    /// Sends an action to the leader of a partition, trying its replicas in turn.
    pub(crate) async fn tell_leader(
        &self,
        record: &PartitionRecord,
        action: Action,
    ) -> Result<(), Error> {
        let order = plan::to_group(record, action);
        let order = order
            .ok_or_else(|| Error::Internal(format!("partition {} has no replica", record.id)))?;
        self.send(&order).await.map(drop)
    }
}
