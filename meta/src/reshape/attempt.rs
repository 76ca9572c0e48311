//! Carries out a recorded split or merge: sends the orders to the leaders of the partitions, and records what their
//! logs decided.
//!
//! Invariants:
//! - a step is recorded before the order that it allows is sent, so that the next leader of meta knows what may
//!   have been ordered; every order may be sent again, and gets the same answer;
//! - an order that may have been sent is given up only after the partition's epoch was raised through its log: an
//!   order still in flight then finds another epoch, and sending it again shows whether it took effect.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use partita_proto::error::Error;
use partita_proto::history::ReshapeOutcome;
use partita_proto::id::{Epoch, PartitionId};
use partita_proto::reshape::{Freeze, Reshape, Reshaped, Split};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use super::events::event_of;
use super::state::{Reshaping, Splitting};
use crate::catalog::{PartitionRecord, Phase, Step};
use crate::core::Core;
use crate::transition::{Command, Progress};

/// Maximum time to flush memtables ahead, so that less is left to do while writes wait. An optimisation only.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);
/// Maximum epochs that a thaw tries before it fails.
const EPOCHS_MAX: usize = 4;

/// State of a split or merge that is kept between attempts.
pub(super) struct Attempt {
    pub(super) step: Step,
    pub(super) began: Instant,
    pub(super) flushed: bool,
    /// Time from which the right neighbour may be frozen.
    pub(super) frozen: Option<Instant>,
    /// Reason for giving up.
    why: Option<String>,
}

/// Final result of an order that is being given up.
pub(super) enum Settled {
    /// The order took effect.
    TookEffect(Reshaped),
    /// The order did not take effect and never will: the partition is at this epoch.
    Never(Epoch),
}

impl Core {
    /// Repeats attempts until the split or merge is done or given up.
    pub(super) async fn reshape(&self, partition: PartitionId, step: Step) {
        let began = Instant::now();
        let mut attempt = Attempt { step, began, flushed: false, frozen: None, why: None };
        let mut pause = self.patience.pause_min;
        let mut last_error = String::new();
        let mut previous = None;
        // Each attempt begins from what is recorded, since a step may have been recorded meanwhile.
        while let Some(record) = self.recorded_reshaping(partition, step) {
            let result = match &record.reshaping {
                Some(Reshaping::Split(split)) => self.split(&record, split, &mut attempt).await,
                Some(Reshaping::Merge(merge)) => self.merge(&record, merge, &mut attempt).await,
                Some(Reshaping::Thawing { .. }) => self.thaw(&record, step).await,
                _ => return,
            };
            // Progress is followed up at once; the same record again, or an error, waits with backoff.
            match result {
                Ok(()) if previous.as_ref() != Some(&record) => {
                    pause = self.patience.pause_min;
                    previous = Some(record);
                    continue;
                }
                Ok(()) => {}
                Err(error) => {
                    let text = error.to_string();
                    if text != last_error {
                        warn!(%partition, %error, "a split or merge failed; it will be retried");
                        last_error = text;
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(self.patience.pause_max.min(Duration::from_secs(1)));
        }
    }

    fn recorded_reshaping(
        &self,
        partition: PartitionId,
        step: Step,
    ) -> Option<Arc<PartitionRecord>> {
        let state = self.machine.state();
        let record = state.partition(partition)?;
        state.table(record.table).filter(|table| table.phase == Phase::Ready)?;
        record.reshaping.as_ref().filter(|change| change.step() == step)?;
        if let Some(event) = event_of(&state, record, self.options.clock.now_ms()) {
            self.reshapes.began(event);
        }
        Some(Arc::clone(record))
    }

    async fn split(
        &self,
        record: &PartitionRecord,
        split: &Splitting,
        attempt: &mut Attempt,
    ) -> Result<(), Error> {
        // The cut as the partition's leader gets it.
        let order = Reshape::Split(Split {
            partition: record.id,
            epoch: record.epoch,
            at: split.at.clone(),
            child: split.child,
            replicas: split.replicas.iter().map(|(replica, node)| (*node, *replica)).collect(),
            leader: split.leader,
        });
        // A split that is given up is settled first: the order may have taken effect already.
        let reshaped = if split.given_up {
            match self.settle(record, &order).await? {
                Settled::TookEffect(reshaped) => reshaped,
                Settled::Never(epoch) => {
                    self.reshapes.ended(attempt.step, attempt.given_up());
                    info!(partition = %record.id, "a split was given up");
                    return self.advance(record, attempt, Progress::NotCut { epoch }).await;
                }
            }
        } else {
            self.flush_ahead(record, attempt).await;
            let deadline = attempt.began + self.patience.reshape;
            match self.order_until(record, &order, deadline).await {
                Ok(reshaped) => reshaped,
                Err(error) => return self.tried(record, attempt, error, deadline).await,
            }
        };
        // The child exists: record how long writes stalled, and the end.
        self.reshapes.stalled(attempt.step, reshaped.stall);
        self.reshapes.ended(attempt.step, ReshapeOutcome::Done);
        info!(partition = %record.id, child = %split.child, at = %split.at, ?reshaped.stall, "partition split");
        self.advance(record, attempt, Progress::Cut).await
    }

    /// Unfreezes a partition, if it is frozen.
    async fn thaw(&self, record: &PartitionRecord, step: Step) -> Result<(), Error> {
        let mut epoch = record.epoch;
        for _ in 0..EPOCHS_MAX {
            let free = Reshape::Freeze(Freeze { partition: record.id, epoch, on: false });
            match self.order(record, &free).await {
                Ok(_) => {
                    let progress = Progress::Thawed { epoch: epoch.next() };
                    return self.advance_at(record.id, step, progress).await;
                }
                Err(Error::StaleRoute { current, .. }) if current > epoch => epoch = current,
                Err(error) => return Err(error),
            }
        }
        Err(Error::Unavailable(format!("the epoch of partition {} keeps changing", record.id)))
    }

    /// Finds out whether an order took effect, and makes sure that it never will if it did not.
    pub(super) async fn settle(
        &self,
        record: &PartitionRecord,
        order: &Reshape,
    ) -> Result<Settled, Error> {
        let (partition, epoch) = (record.id, record.epoch);
        let fence = Reshape::Freeze(Freeze { partition, epoch, on: false });
        match self.order(record, &fence).await {
            // At another epoch already: by the order, or by an earlier fence.
            Ok(_) | Err(Error::StaleRoute { .. }) => {}
            Err(error) => return Err(error),
        }
        match self.order(record, order).await {
            Ok(reshaped) => Ok(Settled::TookEffect(reshaped)),
            Err(Error::StaleRoute { current, .. }) if current > epoch => {
                Ok(Settled::Never(current))
            }
            Err(error) => Err(error),
        }
    }

    /// Handles a failed attempt: returns the error for a retry, or gives up if the error is final or the deadline
    /// has passed.
    pub(super) async fn tried(
        &self,
        record: &PartitionRecord,
        attempt: &mut Attempt,
        error: Error,
        deadline: Instant,
    ) -> Result<(), Error> {
        if !is_final(&error) && Instant::now() < deadline {
            return Err(error);
        }
        warn!(partition = %record.id, %error, "giving up a split or merge");
        self.give_up(record, attempt, error.to_string()).await
    }

    pub(super) async fn give_up(
        &self,
        record: &PartitionRecord,
        attempt: &mut Attempt,
        why: String,
    ) -> Result<(), Error> {
        attempt.why = Some(why);
        self.advance(record, attempt, Progress::GiveUp).await
    }

    /// Flushes memtables on all replicas, as far as that succeeds in time.
    pub(super) async fn flush_ahead(&self, record: &PartitionRecord, attempt: &mut Attempt) {
        if attempt.flushed {
            return;
        }
        let partition = record.id;
        let flushes =
            record.replicas.values().map(|node| {
                self.ask(*node, partition, |service| async move {
                    service.flush_partition(partition).await
                })
            });
        attempt.flushed = timeout(FLUSH_PATIENCE, join_all(flushes)).await.is_ok();
    }

    /// Sends an order to a partition's leader.
    pub(super) async fn order(
        &self,
        record: &PartitionRecord,
        order: &Reshape,
    ) -> Result<Reshaped, Error> {
        let request = |service: Arc<dyn partita_proto::service::DataService>| {
            let order = order.clone();
            async move { service.reshape(order).await }
        };
        self.ask_leader(record, request).await
    }

    /// As [`Core::order`], but fails at the deadline.
    pub(super) async fn order_until(
        &self,
        record: &PartitionRecord,
        order: &Reshape,
        deadline: Instant,
    ) -> Result<Reshaped, Error> {
        timeout_at(deadline, self.order(record, order)).await.unwrap_or_else(|_| {
            Err(Error::Timeout(format!("the leader of partition {} did not answer", record.id)))
        })
    }

    pub(super) async fn advance(
        &self,
        record: &PartitionRecord,
        attempt: &Attempt,
        progress: Progress,
    ) -> Result<(), Error> {
        self.advance_at(record.id, attempt.step, progress).await
    }

    pub(crate) async fn advance_at(
        &self,
        partition: PartitionId,
        step: Step,
        progress: Progress,
    ) -> Result<(), Error> {
        self.propose(&Command::Advance { partition, step, progress }).await.map(drop)
    }
}

impl Attempt {
    /// Outcome of a split or merge that was given up.
    pub(super) fn given_up(&self) -> ReshapeOutcome {
        let unknown = || "a replica was lost, or meta changed its leader".to_owned();
        ReshapeOutcome::GivenUp(self.why.clone().unwrap_or_else(unknown))
    }
}

/// True if sending an order again is useless.
pub(super) fn is_final(error: &Error) -> bool {
    // A partition that no node holds may be about to be opened.
    let absent = matches!(error, Error::NotFound { kind: "partition", .. });
    !absent && (!error.is_retryable() || matches!(error, Error::StaleRoute { .. }))
}
