//! Changes of a partition's range, applied as entries of its log.
//!
//! ```text
//!   split at S:   flush ── own range and epoch ── child's files ── child's group in the log ── start child; S: one edit
//!                 a replica that installs a state from after S: an empty child ── the state: one edit ── start child
//!   freeze at F:  flush ── own epoch and F, and that it is frozen: one edit
//!   absorb at A:  flush ── the frozen neighbour's files ── own range, epoch and A: one edit
//! ```
//!
//! No entry is applied during a change, but a split waits for no sync: the files that its child needs after a crash,
//! and the edit of the parent's manifest, are made while entries are applied again.
//!
//! Invariants:
//! - the entry and the entries before it alone decide whether an order takes effect, so that all replicas do the same;
//!   the state that a replica finds of the child on its own disk decides only which steps are left to do;
//! - the partition's own durable mark passes the entry only with the last step: after a crash before that all steps are
//!   repeated, and those already done have no effect;
//! - an order that took effect is not carried out again: it is remembered, and its epoch is outdated;
//! - every replica that was a member at a split makes its replica of the child, once: by applying the split, or empty
//!   by installing a state from after it. So the child never has fewer replicas than the parent has left, and a replica
//!   that is made empty has acknowledged nothing before;
//! - a frozen partition has the same rows on all replicas until it is unfrozen: no applied entry changes them.

use partita_engine::{EngineError, Origin, PartitionConfig, Place, Settled, Unrecorded};
use partita_proto::id::{Epoch, PartitionId};
use partita_proto::range::TypedRange;
use partita_proto::reshape::{Absorb, Reshape, Reshaped, Split};
use partita_raft::{MachineError, Mark};
use tokio::time::Instant;
use tracing::debug;

use crate::machine::{PartitionMachine, failed};
use crate::reply::Outcome;
use crate::requests::Child;
use crate::surroundings::{Birth, root_of};

/// Reason why two partitions do not become one: copies count on the positions in their logs.
pub(crate) fn bound_to_copies(left: PartitionId, right: PartitionId) -> String {
    format!(
        "partition {left} cannot absorb partition {right}: their table has materialized copies, or is one"
    )
}

/// Epoch that follows `epoch`.
fn after(epoch: Epoch) -> Epoch {
    Epoch(epoch.0 + 1)
}

impl PartitionMachine {
    /// Result of an order, if it is the last one that took effect.
    pub(crate) fn done(&self, order: &Reshape) -> Option<Reshaped> {
        let index = self.requests.lock().reshaped_by(order)?;
        let last = *self.last.lock();
        Some(if last.index == index { last } else { Reshaped { index, ..Reshaped::default() } })
    }

    /// Applies an order, the log entry at `index`. One that has no effect still moves the mark past its entry.
    pub(crate) async fn reshape(
        &self,
        index: u64,
        mark: Mark,
        order: Reshape,
    ) -> Result<Outcome, MachineError> {
        // A repeated order, or one for an older epoch, has no effect.
        if let Some(result) = self.done(&order) {
            self.pass(index, &mark)?;
            return Ok(Outcome::Reshaped(result));
        }
        if let Some(current) = self.check_epoch(order.epoch())? {
            self.pass(index, &mark)?;
            return Ok(Outcome::Stale { current });
        }
        let started = Instant::now();
        let refusal = match &order {
            Reshape::Split(split) => self.split(index, &mark, &order, split).await?,
            Reshape::Freeze(_) => self.freeze(index, &mark, &order).await?,
            Reshape::Absorb(absorb) => self.absorb(index, &mark, &order, absorb).await?,
        };
        if let Some(reason) = refusal {
            self.pass(index, &mark)?;
            return Ok(Outcome::Unfit(reason));
        }
        self.load.resized(&self.partition.range());
        let reshaped = Reshaped { index, stall: started.elapsed() };
        *self.last.lock() = reshaped;
        Ok(Outcome::Reshaped(reshaped))
    }

    /// Freezes the partition, so that it refuses requests, or unfreezes it.
    async fn freeze(
        &self,
        index: u64,
        mark: &Mark,
        order: &Reshape,
    ) -> Result<Option<String>, MachineError> {
        let settled = self.settle().await?;
        let range = self.partition.config().range.clone();
        if let Some(mut unrecorded) = self.resize(settled, index, mark, order, &range, None)? {
            self.near
                .record(&mut unrecorded, self.partition.config().partition, &self.stop)
                .await?;
        }
        Ok(None)
    }

    /// Absorbs the right neighbour's range and rows; returns a reason if the order has no effect.
    async fn absorb(
        &self,
        index: u64,
        mark: &Mark,
        order: &Reshape,
        absorb: &Absorb,
    ) -> Result<Option<String>, MachineError> {
        // No replica absorbs anything if this partition is frozen itself, or does not end before the order's end.
        let config = self.partition.config();
        let range = match self.partition.widened(&absorb.end) {
            Some(range) if !self.is_frozen() => range,
            _ => {
                return Ok(Some(format!(
                    "partition {} with {} cannot absorb the range before {}",
                    config.partition, config.range, absorb.end
                )));
            }
        };
        // The neighbour must be here, frozen at the index that the order names, and adjoin this partition: otherwise
        // this replica differs from the others, and stops.
        self.flush_all().await?;
        let _hold = self.near.making.hold(absorb.right).await;
        let (right, right_requests) = self.near.frozen(absorb.right, absorb.frozen)?;
        if !self.partition.is_left_of(&right, &absorb.end) {
            return Err(MachineError(format!(
                "partition {} with {}, which is to be absorbed, does not lie between {} and {}",
                absorb.right,
                right.config().range,
                config.range.end,
                absorb.end
            )));
        }
        // From now on, this partition remembers the requests of both. If the disk is full, wait for space: a replica
        // cannot skip the order.
        let mut requests = self.requests.lock().clone();
        // Positions of two logs cannot be joined. The leader refuses such an order; here all replicas find the same.
        if requests.is_bound() || right_requests.is_bound() {
            return Ok(Some(bound_to_copies(config.partition, absorb.right)));
        }
        requests.record_reshape(order, index);
        requests.join(&right_requests);
        let place = Place { index, mark: mark.to_bytes(), state: requests.encode() };
        loop {
            let (place, range) = (place.clone(), range.clone());
            match self.partition.absorb(place, range, after(config.epoch), &right).await {
                Ok(()) => break,
                Err(error) => self.wait(error).await?,
            }
        }
        *self.requests.lock() = requests;
        Ok(None)
    }

    /// Splits the partition in two; returns a reason if the order has no effect.
    async fn split(
        &self,
        index: u64,
        mark: &Mark,
        order: &Reshape,
        split: &Split,
    ) -> Result<Option<String>, MachineError> {
        let config = self.partition.config();
        let (left_half, right_half) = match self.partition.halves(&split.at) {
            Some(halves) if !self.is_frozen() && !self.is_closed() => halves,
            _ => {
                return Ok(Some(format!(
                    "partition {} with {} cannot be split at {}",
                    config.partition, config.range, split.at
                )));
            }
        };
        let Some(child) = mark.child(&split.replicas, split.leader) else {
            return Ok(Some(format!(
                "partition {} does not have exactly one voter on each of the nodes {:?}",
                config.partition,
                split.replicas.keys().collect::<Vec<_>>()
            )));
        };
        let parents = mark.members().into_iter().map(|(replica, node)| (node, replica)).collect();
        let split_off = Child { split: split.clone(), index, range: right_half.clone(), parents };
        // Flush, so that the child can share this partition's files.
        let started = Instant::now();
        let settled = self.settle().await?;
        debug!(partition = %config.partition, took = ?started.elapsed(), "flushed for a split");
        let node = mark.members().get(&config.replica).copied();
        let replica = node.and_then(|node| split.replicas.get(&node).copied());
        // A replica that was removed from the group creates no child.
        let birth = match replica {
            Some(replica) => {
                let config = PartitionConfig {
                    partition: split.child,
                    epoch: after(config.epoch),
                    replica,
                    members: child.members(),
                    range: right_half,
                    join: false,
                    ..PartitionConfig::clone(&config)
                };
                let origin = Origin { parent: split.partition, index };
                let state = self.requests.lock().encode_for_child(split.partition, index);
                let place = Place { index, mark: child.to_bytes(), state };
                let root = root_of(split.child);
                Some(Birth {
                    offspring: settled.offspring(&root, config, place, origin).map_err(failed)?,
                    partition: split.child,
                    replica,
                    mark: child,
                    origin,
                    hold: self.near.making.hold(split.child).await,
                })
            }
            None => None,
        };
        // Take the left half at once; make the child and the manifest's edit durable in the background.
        let resized = self.resize(settled, index, mark, order, &left_half, Some(split_off))?;
        if let Some(unrecorded) = resized {
            self.near.record_later(birth, unrecorded, config.partition, self.stop.clone());
        }
        Ok(None)
    }

    /// Writes everything applied so far into files, and keeps other tasks from changing them.
    async fn settle(&self) -> Result<Settled, MachineError> {
        loop {
            self.seal();
            match self.partition.settle().await {
                Ok(settled) => return Ok(settled),
                Err(error) => self.wait(error).await?,
            }
        }
    }

    /// Writes everything applied so far into files.
    async fn flush_all(&self) -> Result<(), MachineError> {
        loop {
            self.seal();
            match self.partition.flush().await {
                Ok(_) => return Ok(()),
                Err(error) => self.wait(error).await?,
            }
        }
    }

    /// Switches to the new range and the next epoch, with the order and its child remembered; returns the change to be recorded
    /// durably, or `None` if the entry was applied already.
    fn resize(
        &self,
        settled: Settled,
        index: u64,
        mark: &Mark,
        order: &Reshape,
        range: &TypedRange,
        child: Option<Child>,
    ) -> Result<Option<Unrecorded>, MachineError> {
        let epoch = after(self.partition.config().epoch);
        let mut requests = self.requests.lock();
        if let Some(child) = child {
            requests.add_child(child);
        }
        let state = requests.encode_after(order, index);
        let place = Place { index, mark: mark.to_bytes(), state };
        let unrecorded = settled.resize(place, range.clone(), epoch).map_err(failed)?;
        requests.record_reshape(order, index);
        Ok(unrecorded)
    }

    async fn wait(&self, error: EngineError) -> Result<(), MachineError> {
        let partition = self.partition.config().partition;
        self.near.wait_for_space(partition, error, &self.stop).await
    }
}
