//! Carries out a recorded merge: moves the right neighbour's replicas to the left one's nodes, freezes it, makes
//! sure that every replica of it has all rows in files, and has the left one take the rows over.
//!
//! Invariant: from the freeze on, the right neighbour serves no reads or writes, so the rest is done or given up
//! soon.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use partita_proto::error::Error;
use partita_proto::history::ReshapeOutcome;
use partita_proto::id::{NodeId, PartitionId, ReplicaId};
use partita_proto::reshape::{Absorb, Freeze, Reshape};
use tokio::time::{Instant, timeout_at};
use tracing::info;

use super::attempt::{Attempt, Settled};
use super::state::{Merging, Reshaping, Stage};
use crate::catalog::{PartitionRecord, State, Step};
use crate::cluster::Reports;
use crate::core::Core;
use crate::transition::Progress;

/// Maximum time to move the right neighbour's replicas to the left one's nodes.
const GATHER_MAX: Duration = Duration::from_secs(600);

impl Core {
    pub(super) async fn merge(
        &self,
        owner: &PartitionRecord,
        merge: &Merging,
        attempt: &mut Attempt,
    ) -> Result<(), Error> {
        let right = self.machine.state().partition(merge.right).map(Arc::clone);
        let missing = || Error::Internal(format!("partition {} is gone", merge.right));
        let right = right.ok_or_else(missing)?;
        match merge.stage {
            Stage::Gathering => self.gather(owner, &right, attempt).await,
            Stage::Freezing => self.freeze(owner, &right, attempt).await,
            Stage::Frozen(index) => {
                self.absorb(owner, &right, index, merge.given_up, attempt).await
            }
        }
    }

    async fn gather(
        &self,
        owner: &PartitionRecord,
        right: &PartitionRecord,
        attempt: &mut Attempt,
    ) -> Result<(), Error> {
        let nodes =
            |record: &PartitionRecord| record.replicas.values().copied().collect::<BTreeSet<_>>();
        let gathered = right.target.is_none() && nodes(owner) == nodes(right);
        if gathered {
            self.flush_ahead(right, attempt).await;
            return self.advance(owner, attempt, Progress::Freezing).await;
        }
        let why = format!("the replicas of partition {} are still moving", right.id);
        if right.target.is_some() && attempt.began.elapsed() < GATHER_MAX {
            return Err(Error::Unavailable(why));
        }
        self.reshapes.ended(attempt.step, ReshapeOutcome::GivenUp(why.clone()));
        self.give_up(owner, attempt, why).await
    }

    async fn freeze(
        &self,
        owner: &PartitionRecord,
        right: &PartitionRecord,
        attempt: &mut Attempt,
    ) -> Result<(), Error> {
        let deadline = self.frozen_until(attempt);
        let (partition, epoch) = (right.id, right.epoch);
        let order = Reshape::Freeze(Freeze { partition, epoch, on: true });
        let error = match self.order_until(right, &order, deadline).await {
            Ok(reshaped) if reshaped.index > 0 => {
                let progress = Progress::Frozen { index: reshaped.index };
                return self.advance(owner, attempt, progress).await;
            }
            // Without that index, it is unknown up to where the rows must be in files.
            Ok(_) => Error::Internal(format!("partition {partition} froze at an unknown index")),
            Err(error) => error,
        };
        let given_up = self.tried(owner, attempt, error, deadline).await;
        if given_up.is_ok() {
            self.reshapes.ended(attempt.step, attempt.given_up());
        }
        given_up
    }

    async fn absorb(
        &self,
        owner: &PartitionRecord,
        right: &PartitionRecord,
        frozen: u64,
        given_up: bool,
        attempt: &mut Attempt,
    ) -> Result<(), Error> {
        // The left partition takes over all that the right one wrote up to the frozen index.
        let deadline = self.frozen_until(attempt);
        let order = Reshape::Absorb(Absorb {
            partition: owner.id,
            epoch: owner.epoch,
            right: right.id,
            frozen,
            end: right.range.end.clone(),
        });
        // A merge that is given up is settled first: the order may have taken effect already.
        if given_up {
            if let Settled::Never(epoch) = self.settle(owner, &order).await? {
                self.reshapes.ended(attempt.step, attempt.given_up());
                info!(left = %owner.id, right = %right.id, "a merge was given up");
                return self.advance(owner, attempt, Progress::NotAbsorbed { epoch }).await;
            }
        } else {
            let ordered = async {
                self.in_files(right, frozen).await?;
                self.order(owner, &order).await
            };
            let ordered = timeout_at(deadline, ordered).await.unwrap_or_else(|_| {
                Err(Error::Timeout(format!("partition {} has been frozen for too long", right.id)))
            });
            if let Err(error) = ordered {
                return self.tried(owner, attempt, error, deadline).await;
            }
        }
        // The left partition owns the rows now: record how long writes stalled, and the end.
        if let Some(freeze_start) = attempt.frozen {
            self.reshapes.stalled(attempt.step, freeze_start.elapsed());
        }
        self.reshapes.ended(attempt.step, ReshapeOutcome::Done);
        info!(left = %owner.id, right = %right.id, "partitions merged");
        self.advance(owner, attempt, Progress::Absorbed).await
    }

    /// Flushes every replica of a partition; fails if one of them does not have everything up to `frozen` in files.
    async fn in_files(&self, right: &PartitionRecord, frozen: u64) -> Result<(), Error> {
        let partition = right.id;
        let checks = right.replicas.iter().map(|(replica, node)| async move {
            let flushed = self
                .ask(*node, partition, |service| async move {
                    service.flush_partition(partition).await?;
                    service.status().await
                })
                .await?;
            let mut statuses = flushed.into_iter();
            let status = statuses
                .find(|status| status.partition == partition && status.replica == *replica);
            match status {
                Some(status) if status.flushed >= frozen => Ok(()),
                Some(status) => Err(Error::Unavailable(format!(
                    "node {node} has flushed partition {partition} up to index {} only, and it froze at index {frozen}",
                    status.flushed
                ))),
                None => Err(Error::Unavailable(format!(
                    "node {node} does not have replica {replica} of partition {partition}"
                ))),
            }
        });
        try_join_all(checks).await.map(drop)
    }

    /// Deadline of a merge whose right neighbour is frozen.
    fn frozen_until(&self, attempt: &mut Attempt) -> Instant {
        *attempt.frozen.get_or_insert_with(Instant::now) + self.patience.reshape
    }
}

/// The step of a merged partition whose replicas can be removed, because every replica of the owner has the new epoch.
/// `None` while a replica of the owner may still need the files.
pub(crate) fn may_go(
    state: &State,
    reports: &Reports,
    partition: &PartitionRecord,
) -> Option<Step> {
    let Some(Reshaping::Leaving { by: owner_id, epoch, step }) = &partition.reshaping else {
        return None;
    };
    let Some(owner) = state.partition(*owner_id) else { return Some(*step) };
    let has_new_epoch = |(replica, node): (&ReplicaId, &NodeId)| {
        let statuses = reports.replicas(*node).unwrap_or_default();
        let mut statuses = statuses
            .iter()
            .filter(|status| status.partition == *owner_id && status.replica == *replica);
        statuses.any(|status| status.epoch >= *epoch)
    };
    owner.replicas.iter().all(has_new_epoch).then_some(*step)
}

/// The partition whose record describes the split or merge in which `partition` takes part, and the step of that
/// record. `None` if there is no split or merge, or if it is being given up.
pub(crate) fn holder(state: &State, partition: PartitionId) -> Option<(PartitionId, Step)> {
    let record = state.partition(partition)?;
    match record.reshaping.as_ref()? {
        Reshaping::Split(split) => (!split.given_up).then_some((partition, split.step)),
        Reshaping::Merge(merge) => (!merge.given_up).then_some((partition, merge.step)),
        Reshaping::Joins { left: owner, .. } => holder(state, *owner),
        Reshaping::Thawing { .. } | Reshaping::Leaving { .. } => None,
    }
}
