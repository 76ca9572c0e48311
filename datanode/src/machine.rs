//! State machine of a partition: applies committed commands to the engine.
//!
//! Invariants:
//! - commands take effect in log order, each once, however much is replayed at the start;
//! - rows sent for another epoch have no effect: the partition's range may be another then;
//! - the remembered requests, the captured changes and the memtable change together, under one lock, and are sealed
//!   together, so that a flush never separates a row from the request that brought it;
//! - another replica's state brings its remembered requests with it (`transfer.rs`);
//! - the tail has what the engine was given, and nothing else: no write that was repeated, came for another epoch, or was
//!   refused by its condition;
//! - every failure is returned, and stops the group: no entry is skipped.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use partita_engine::{EngineError, Partition};
use partita_proto::error::Error;
use partita_proto::id::{Epoch, PartitionId, TableId};
use partita_proto::materialized::{Capture, CaptureOrder};
use partita_proto::reshape::{Reshape, Reshaped};
use partita_proto::wire::{Command, WriteCommand};
use partita_raft::{Committed, Incoming, Machine, MachineError, Mark, Offer, Snapshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::capture::{TAIL_BYTES_MAX, Tail};
use crate::effect::{Effect, decide, plain, tracked_keys};
use crate::load::Load;
use crate::replica::is_changed;
use crate::reply::Outcome;
use crate::requests::{Known, Requests};
use crate::surroundings::Surroundings;
use crate::transfer::{Arriving, Outgoing};

/// Applies a group's log to a partition of the engine.
pub(crate) struct PartitionMachine {
    pub(crate) partition: Arc<Partition>,
    /// Held while an entry is applied and while the memtable is sealed.
    pub(crate) requests: Arc<Mutex<Requests>>,
    /// The newest changes, while something is captured. Locked after `requests`, and changed only while both are.
    pub(crate) tail: Arc<Mutex<Tail>>,
    pub(crate) near: Arc<Surroundings>,
    /// Ends all waiting for disk space when it is cancelled.
    pub(crate) stop: CancellationToken,
    /// Result of the last order that changed the partition's range since the replica was opened.
    pub(crate) last: Mutex<Reshaped>,
    /// The partition's durable mark, as last decoded.
    durable: Mutex<Option<Mark>>,
    rows_written: AtomicU64,
    bytes_written: AtomicU64,
    pub(crate) load: Arc<Load>,
}

impl PartitionMachine {
    /// Creates the machine of an open partition, with the requests remembered with its files.
    pub(crate) fn new(
        partition: Arc<Partition>,
        near: Arc<Surroundings>,
        load: Arc<Load>,
        stop: CancellationToken,
    ) -> Result<Self, MachineError> {
        let requests = remembered(&partition.state())?;
        let durable = partition
            .durable_mark()
            .map(|(_, mark)| Mark::from_bytes(&mark))
            .transpose()
            .map_err(|error| MachineError(error.to_string()))?;
        // The log is applied from the durable mark on; changes before it are in files only.
        let base = durable.as_ref().map_or(0, Mark::index);
        let tail = Tail::new(base, requests.last_change(), TAIL_BYTES_MAX);
        Ok(Self {
            partition,
            requests: Arc::new(Mutex::new(requests)),
            tail: Arc::new(Mutex::new(tail)),
            near,
            stop,
            last: Mutex::default(),
            durable: Mutex::new(durable),
            rows_written: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            load,
        })
    }

    /// Seals the memtable, so that a flush covers everything applied so far.
    pub(crate) fn seal(&self) {
        let requests = self.requests.lock();
        self.partition.seal(|| requests.encode());
    }

    /// True if the partition refuses requests, because a neighbour is to absorb it.
    pub(crate) fn is_frozen(&self) -> bool {
        self.requests.lock().is_frozen()
    }

    /// True if the partition refuses requests, because a copy is to take its place.
    pub(crate) fn is_closed(&self) -> bool {
        self.requests.lock().captures().is_closed()
    }

    /// Description of the known damage to another partition's files here; `None` if none is known.
    pub(crate) fn damage_of(&self, partition: PartitionId) -> Option<String> {
        let damage = self.near.partition(partition)?.damage();
        (!damage.is_empty()).then(|| damage.join("; "))
    }

    /// True if the keys of writes are kept, so that conditions can be decided.
    pub(crate) fn tracks(&self) -> bool {
        self.requests.lock().tracks()
    }

    /// Rows and bytes applied since the replica was opened.
    pub(crate) fn written(&self) -> (u64, u64) {
        (self.rows_written.load(Relaxed), self.bytes_written.load(Relaxed))
    }

    /// Applies entries up to the next order that changes the partition's range, which is returned, or to the end.
    fn apply_plain(
        &self,
        entries: &mut impl Iterator<Item = Committed>,
        replies: &mut Vec<Bytes>,
    ) -> Result<Option<(u64, Mark, Reshape)>, MachineError> {
        let mut requests = self.requests.lock();
        for Committed { index, mark, payload } in entries {
            match payload {
                Some(payload) => {
                    let bytes = payload.len() as u64;
                    let command = Command::decode(payload)
                        .map_err(|error| MachineError(error.to_string()))?;
                    if let Command::Reshape(order) = command {
                        return Ok(Some((index, mark, order)));
                    }
                    let outcome = self.apply_command(&mut requests, index, mark, command, bytes)?;
                    replies.push(outcome.encode());
                }
                // Membership and blank entries only move the mark.
                None => self.pass(index, &mark)?,
            }
            if self.partition.wants_seal() {
                self.partition.seal(|| requests.encode());
            }
        }
        Ok(None)
    }

    /// Moves the mark past an entry that has no effect here.
    pub(crate) fn pass(&self, index: u64, mark: &Mark) -> Result<(), MachineError> {
        self.partition.apply(index, mark.to_bytes(), &[]).map(drop).map_err(failed)
    }

    fn apply_command(
        &self,
        requests: &mut Requests,
        index: u64,
        mark: Mark,
        command: Command,
        bytes: u64,
    ) -> Result<Outcome, MachineError> {
        match command {
            Command::Write(write) => self.apply_write(requests, index, mark, write, bytes),
            Command::Schema(schema) => {
                if index > self.partition.applied() {
                    requests.forget_keys(index);
                }
                self.partition.apply_schema(index, mark.to_bytes(), schema).map_err(failed)?;
                Ok(Outcome::At(vec![Some(index)]))
            }
            Command::Truncate(id) => {
                let first = match requests.known(id, &[]) {
                    Known::New => None,
                    Known::Taken(first) => Some(first),
                    // Meta gives one order after another: an order later than this one has taken effect, so this one
                    // has too.
                    Known::Perhaps => Some(index),
                };
                if first.is_some() {
                    self.pass(index, &mark)?;
                    return Ok(Outcome::At(vec![first]));
                }
                if requests.is_frozen() || requests.captures().is_closed() {
                    // A neighbour or a copy takes over the state as of then.
                    self.pass(index, &mark)?;
                    return Ok(Outcome::Stale { current: self.partition.config().epoch });
                }
                requests.insert(id, index);
                self.partition.apply_truncate(index, mark.to_bytes()).map_err(failed)?;
                requests.truncate(&mut self.tail.lock(), index);
                Ok(Outcome::At(vec![Some(index)]))
            }
            Command::Copy(order) => self.apply_capture(requests, index, &mark, order),
            Command::Track => {
                let is_applied = index <= self.partition.applied();
                self.pass(index, &mark)?;
                if requests.is_frozen() {
                    return Ok(Outcome::Stale { current: self.partition.config().epoch });
                }
                if !is_applied {
                    requests.track(index);
                }
                Ok(Outcome::At(vec![Some(index)]))
            }
            Command::Reshape(order) => {
                Err(MachineError(format!("{order:?} was applied as a plain entry")))
            }
        }
    }

    /// Compares the epoch under which a command was accepted with the partition's: `None` if they agree, or the current
    /// epoch if the command is stale.
    pub(crate) fn check_epoch(&self, accepted: Epoch) -> Result<Option<Epoch>, MachineError> {
        let config = self.partition.config();
        match accepted.cmp(&config.epoch) {
            Ordering::Equal => Ok(None),
            Ordering::Less if !config.join => Ok(Some(config.epoch)),
            // The replica was given the partition's range, but not the entry from which it holds.
            Ordering::Less => Err(MachineError(format!(
                "this replica was created for epoch {}, but receives entries of epoch {accepted} without earlier files",
                config.epoch
            ))),
            Ordering::Greater => Err(MachineError(format!(
                "an entry of epoch {accepted} arrived while the partition is at epoch {}",
                config.epoch
            ))),
        }
    }

    fn apply_write(
        &self,
        requests: &mut Requests,
        index: u64,
        mark: Mark,
        write: WriteCommand,
        bytes: u64,
    ) -> Result<Outcome, MachineError> {
        let refuses = requests.is_frozen() || requests.captures().is_closed();
        let refused = refuses.then(|| self.partition.config().epoch);
        if let Some(current) = self.check_epoch(write.epoch)?.or(refused) {
            self.pass(index, &mark)?;
            return Ok(Outcome::Stale { current });
        }
        let is_applied = index <= self.partition.applied();
        let has_conditions = write.parts.iter().any(|part| part.condition.is_some());
        let Effect { writes, results, rows } = match has_conditions {
            true => decide(&self.partition, requests, index, write, is_applied)?,
            false => plain(requests, index, write)?,
        };
        let keys = self.partition.apply(index, mark.to_bytes(), &writes).map_err(failed)?;
        if !is_applied {
            requests.change(&mut self.tail.lock(), index, &writes);
            if !has_conditions && requests.tracks() {
                let (config, codec) = (self.partition.config(), self.partition.codec());
                for keys in &keys {
                    requests.wrote(index, &tracked_keys(&config, &codec, keys)?);
                }
            }
        }
        keys.iter().for_each(|keys| self.load.wrote(keys));
        self.load.applied(rows, bytes, results.len() as u64);
        self.rows_written.fetch_add(rows, Relaxed);
        self.bytes_written.fetch_add(bytes, Relaxed);
        Ok(Outcome::of_parts(results))
    }

    /// Applies an order about a capture. For a beginning the outcome has the index with which the capture began: 0 if
    /// that was in the log of the partition's parent.
    fn apply_capture(
        &self,
        requests: &mut Requests,
        index: u64,
        mark: &Mark,
        order: CaptureOrder,
    ) -> Result<Outcome, MachineError> {
        let is_applied = index <= self.partition.applied();
        self.pass(index, mark)?;
        if requests.is_frozen() {
            return Ok(Outcome::Stale { current: self.partition.config().epoch });
        }
        if !is_applied && !requests.capture(&mut self.tail.lock(), order, index) {
            return Ok(Outcome::Absent);
        }
        let begin = requests.captures().get(order.copy).map(|capture| capture.begin);
        Ok(Outcome::At(vec![match order.capture {
            Capture::Begin => begin.filter(|begin| *begin > 0),
            Capture::Sync
            | Capture::Shipped(_)
            | Capture::Close
            | Capture::End
            | Capture::Reopen
            | Capture::Detach => Some(index),
        }]))
    }

    /// Notes that a copy has all changes up to an index.
    ///
    /// # Errors
    /// [`Error::NotFound`] without a capture for the copy, [`Error::InvalidInput`] for an index that is not applied
    /// here. Both may pass if this replica has not applied the whole log.
    pub(crate) fn report(&self, copy: TableId, shipped: u64) -> Result<(), Error> {
        let mut requests = self.requests.lock();
        let applied = self.partition.applied();
        if shipped > applied {
            return Err(Error::InvalidInput(format!(
                "a copy has no changes up to entry {shipped}: the last one is {applied}"
            )));
        }
        match requests.report(&mut self.tail.lock(), copy, shipped) {
            true => Ok(()),
            false => Err(no_capture(copy)),
        }
    }

    /// True if copies depend on the positions of a partition here, or it on those of their sources.
    pub(crate) fn is_bound(&self, partition: PartitionId) -> bool {
        if partition == self.partition.config().partition {
            return self.requests.lock().is_bound();
        }
        let state = self.near.partition(partition).map(|neighbour| neighbour.state());
        state.and_then(|state| remembered(&state).ok()).is_some_and(|requests| requests.is_bound())
    }
}

/// Error for a copy whose changes are not captured.
pub(crate) fn no_capture(copy: TableId) -> Error {
    Error::NotFound { kind: "capture", name: copy.to_string() }
}

#[async_trait]
impl Machine for PartitionMachine {
    fn durable_mark(&self) -> Option<Mark> {
        let (index, bytes) = self.partition.durable_mark()?;
        let mut durable = self.durable.lock();
        if durable.as_ref().is_none_or(|mark| mark.index() != index) {
            // This process encoded these bytes; if they do not parse, the older mark is safe.
            if let Ok(mark) = Mark::from_bytes(&bytes) {
                *durable = Some(mark);
            }
        }
        durable.clone()
    }

    /// True if the replica was created with the partition's current range and schema: the beginning of the log may refer
    /// to earlier ones.
    fn begins_with_files(&self) -> bool {
        let config = self.partition.config();
        config.join && is_changed(&config) && self.partition.applied() == 0
    }

    async fn apply(&self, entries: Vec<Committed>) -> Result<Vec<Bytes>, MachineError> {
        let started = Instant::now();
        let mut replies = Vec::with_capacity(entries.len());
        let mut entries = entries.into_iter();
        while let Some((index, mark, order)) = self.apply_plain(&mut entries, &mut replies)? {
            replies.push(self.reshape(index, mark, order).await?.encode());
        }
        self.load.worked(started.elapsed());
        Ok(replies)
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>, MachineError> {
        let pinned = match self.partition.pin().await.map_err(failed)? {
            Some(pinned) => Some(pinned),
            None => {
                self.seal();
                self.partition.flush().await.map_err(failed)?;
                self.partition.pin().await.map_err(failed)?
            }
        };
        let pinned = pinned.ok_or_else(|| {
            MachineError("no rows are in files yet, so there is no state to send".to_owned())
        })?;
        Ok(Arc::new(Outgoing::new(pinned)?))
    }

    async fn receive(&self, offer: Offer) -> Result<Box<dyn Incoming>, MachineError> {
        let arriving = Arriving::begin(self, offer).await?;
        Ok(Box::new(arriving))
    }
}

/// Decodes the requests that the state of a partition remembers.
pub(crate) fn remembered(state: &[u8]) -> Result<Requests, MachineError> {
    if state.is_empty() {
        return Ok(Requests::default());
    }
    Requests::decode(state).ok_or_else(|| {
        MachineError("the remembered requests in the manifest cannot be decoded".to_owned())
    })
}

pub(crate) fn failed(error: EngineError) -> MachineError {
    MachineError(error.to_string())
}
