//! Carries out a recorded split or merge: tells the leaders of the partitions, and records what their logs made of it.
//!
//! Invariants:
//! - a step is recorded before the order that it allows is sent, so that whoever leads meta next knows what may have
//!   been ordered; every order may be sent again, and is answered as before;
//! - what may have been ordered is given up only after the epoch of the partition was raised through its log: an order
//!   that is still on its way finds another epoch then, and asking for it once more tells whether it took effect.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use partita_proto::error::Error;
use partita_proto::history::ReshapeOutcome;
use partita_proto::id::{Epoch, PartitionId};
use partita_proto::reshape::{Freeze, Reshape, Reshaped, Split};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use crate::catalog::{PartitionRecord, Phase, Step};
use crate::node::Core;
use crate::reshapes::event_of;
use crate::reshaping::{Reshaping, Splitting};
use crate::transition::{Command, Progress};

/// For how long memtables are flushed ahead, so that less is left to do while writes wait. Of no other use.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);
/// How often the epoch of a partition that is to be free again may turn out to be another one.
const EPOCHS_MAX: usize = 4;

/// What is known of a split or merge from one attempt to the next.
pub(super) struct Attempt {
    pub(super) step: Step,
    pub(super) began: Instant,
    pub(super) flushed: bool,
    /// Since when the right neighbour may be frozen.
    pub(super) frozen: Option<Instant>,
    /// Why it was given up.
    why: Option<String>,
}

/// What became of an order that nobody waits for any longer.
pub(super) enum Settled {
    /// It took effect.
    TookEffect(Reshaped),
    /// It did not and never will: the partition is at this epoch.
    Never(Epoch),
}

impl Core {
    /// Goes on until it is over, one way or the other.
    pub(super) async fn reshape(&self, partition: PartitionId, step: Step) {
        let began = Instant::now();
        let mut attempt = Attempt { step, began, flushed: false, frozen: None, why: None };
        let mut pause = self.patience.pause_min;
        let mut said = String::new();
        let mut before = None;
        while let Some(record) = self.recorded_reshaping(partition, step) {
            let went = match &record.reshaping {
                Some(Reshaping::Split(split)) => self.split(&record, split, &mut attempt).await,
                Some(Reshaping::Merge(merge)) => self.merge(&record, merge, &mut attempt).await,
                Some(Reshaping::Thawing { .. }) => self.thaw(&record, step).await,
                _ => return,
            };
            match went {
                Ok(()) if before.as_ref() != Some(&record) => {
                    pause = self.patience.pause_min;
                    before = Some(record);
                    continue;
                }
                Ok(()) => {}
                Err(error) => {
                    let text = error.to_string();
                    if text != said {
                        warn!(%partition, %error, "a split or merge will be tried again");
                        said = text;
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
        let order = Reshape::Split(Split {
            partition: record.id,
            epoch: record.epoch,
            at: split.at.clone(),
            child: split.child,
            replicas: split.replicas.iter().map(|(replica, node)| (*node, *replica)).collect(),
        });
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
        self.reshapes.stalled(attempt.step, reshaped.stall);
        self.reshapes.ended(attempt.step, ReshapeOutcome::Done);
        info!(partition = %record.id, child = %split.child, at = %split.at, ?reshaped.stall, "partition split");
        self.advance(record, attempt, Progress::Cut).await
    }

    /// Has a partition give up being frozen, if it is.
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
        Err(Error::Unavailable(format!("the epoch of partition {} does not stay", record.id)))
    }

    /// Finds out whether an order took effect, and sees to it that it does not any more if it did not.
    pub(super) async fn settle(
        &self,
        record: &PartitionRecord,
        order: &Reshape,
    ) -> Result<Settled, Error> {
        let (partition, epoch) = (record.id, record.epoch);
        let fence = Reshape::Freeze(Freeze { partition, epoch, on: false });
        match self.order(record, &fence).await {
            // It is at another epoch already: by the order, or by an earlier fence.
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

    /// What follows from an attempt that failed: another one, or none.
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
        warn!(partition = %record.id, %error, "a split or merge is to be given up");
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

    /// Writes memtables to files where they are, as far as that goes.
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
        let ask = |service: Arc<dyn partita_proto::service::DataService>| {
            let order = order.clone();
            async move { service.reshape(order).await }
        };
        self.ask_leader(record, ask).await
    }

    /// As [`Core::order`], without waiting for longer than a moment after the deadline.
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

    pub(super) async fn advance_at(
        &self,
        partition: PartitionId,
        step: Step,
        progress: Progress,
    ) -> Result<(), Error> {
        self.propose(&Command::Advance { partition, step, progress }).await.map(drop)
    }
}

impl Attempt {
    /// How it ended when it did not go well.
    pub(super) fn given_up(&self) -> ReshapeOutcome {
        let unknown = || "a replica was lost, or meta changed its leader".to_owned();
        ReshapeOutcome::GivenUp(self.why.clone().unwrap_or_else(unknown))
    }
}

/// Whether sending an order again would be of no use.
pub(super) fn is_final(error: &Error) -> bool {
    // One that nobody holds may be about to be opened.
    let absent = matches!(error, Error::NotFound { kind: "partition", .. });
    !absent && (!error.is_retryable() || matches!(error, Error::StaleRoute { .. }))
}
