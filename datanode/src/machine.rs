//! A partition's state machine: committed commands into the engine.
//!
//! Invariants:
//! - commands take effect in log order, each once, whatever is replayed at start;
//! - rows that were meant for another epoch have no effect: what the partition owns may be another then;
//! - the remembered requests and the memtable change together, under one lock, and are sealed
//!   together, so that a flush never separates a row from the request that brought it;
//! - another replica's state brings its remembered requests with it (`transfer.rs`);
//! - any failure is returned, and stops the group: nothing is skipped.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use partita_engine::{EngineError, Partition};
use partita_proto::id::{Epoch, PartitionId};
use partita_proto::reshape::{Reshape, Reshaped};
use partita_proto::service::WriteKind;
use partita_proto::wire::{Command, WriteCommand};
use partita_raft::{Committed, Incoming, Machine, MachineError, Mark, Offer, Snapshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::load::Load;
use crate::replica::FIRST_EPOCH;
use crate::reply::Outcome;
use crate::requests::{Known, Requests};
use crate::rows::Rows;
use crate::surroundings::Surroundings;
use crate::transfer::{Arriving, Outgoing};

/// Applies a group's log to a partition of the engine.
pub(crate) struct PartitionMachine {
    pub(crate) partition: Arc<Partition>,
    /// Held while an entry is applied and while the memtable is sealed.
    pub(crate) requests: Arc<Mutex<Requests>>,
    pub(crate) near: Arc<Surroundings>,
    /// Nothing that waits for better times goes on when this is cancelled.
    pub(crate) stop: CancellationToken,
    /// The last order that changed what the partition owns since the replica was opened.
    pub(crate) last: Mutex<Reshaped>,
    /// The partition's durable mark as it was last read back from its bytes.
    durable: Mutex<Option<Mark>>,
    rows_written: AtomicU64,
    bytes_written: AtomicU64,
    pub(crate) load: Arc<Load>,
}

impl PartitionMachine {
    /// The machine of an open partition, with the requests remembered as of its files.
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
        Ok(Self {
            partition,
            requests: Arc::new(Mutex::new(requests)),
            near,
            stop,
            last: Mutex::default(),
            durable: Mutex::new(durable),
            rows_written: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            load,
        })
    }

    /// Seals the memtable, so that a flush covers everything applied until now.
    pub(crate) fn seal(&self) {
        let requests = self.requests.lock();
        self.partition.seal(|| requests.encode());
    }

    /// Whether no requests are taken, because a neighbour is to take the partition over.
    pub(crate) fn is_frozen(&self) -> bool {
        self.requests.lock().is_frozen()
    }

    /// What of the files of another partition here is damaged, as far as that is known.
    pub(crate) fn damage_of(&self, partition: PartitionId) -> Option<String> {
        let damage = self.near.partition(partition)?.damage();
        (!damage.is_empty()).then(|| damage.join("; "))
    }

    /// Rows and bytes applied since the replica was opened.
    pub(crate) fn written(&self) -> (u64, u64) {
        (self.rows_written.load(Relaxed), self.bytes_written.load(Relaxed))
    }

    /// Applies entries up to one that changes what the partition owns, which it answers with, or to the end.
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
                // Membership and blank entries: only the mark moves.
                None => self.pass(index, &mark)?,
            }
            if self.partition.wants_seal() {
                self.partition.seal(|| requests.encode());
            }
        }
        Ok(None)
    }

    /// An entry that has no effect here.
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
                self.partition.apply_schema(index, mark.to_bytes(), schema).map_err(failed)?;
                Ok(Outcome::At(vec![Some(index)]))
            }
            Command::Truncate(id) => {
                let first = match requests.known(id, &[]) {
                    Known::New => None,
                    Known::Taken(first) => Some(first),
                    // Meta gives one order after the other: what it gave after this one was taken, and so was this.
                    Known::Perhaps => Some(index),
                };
                if first.is_some() {
                    self.pass(index, &mark)?;
                    return Ok(Outcome::At(vec![first]));
                }
                if requests.is_frozen() {
                    // What is taken over is what was there when it was frozen.
                    self.pass(index, &mark)?;
                    return Ok(Outcome::Stale { current: self.partition.config().epoch });
                }
                requests.insert(id, index);
                self.partition.apply_truncate(index, mark.to_bytes()).map_err(failed)?;
                Ok(Outcome::At(vec![Some(index)]))
            }
            Command::Reshape(order) => {
                Err(MachineError(format!("{order:?} is applied among writes")))
            }
        }
    }

    /// Whether what was accepted under an epoch concerns the partition now; answers what it is at otherwise.
    pub(crate) fn check_epoch(&self, accepted: Epoch) -> Result<Option<Epoch>, MachineError> {
        let config = self.partition.config();
        match accepted.cmp(&config.epoch) {
            Ordering::Equal => Ok(None),
            Ordering::Less if !config.join => Ok(Some(config.epoch)),
            // It knows from elsewhere what the group came to own, but not when.
            Ordering::Less => Err(MachineError(format!(
                "this replica was made for epoch {}, but gets entries of epoch {accepted} without the files before them",
                config.epoch
            ))),
            Ordering::Greater => Err(MachineError(format!(
                "an entry of epoch {accepted} comes while the partition is at epoch {}",
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
        let frozen = requests.is_frozen().then(|| self.partition.config().epoch);
        if let Some(current) = self.check_epoch(write.epoch)?.or(frozen) {
            self.pass(index, &mark)?;
            return Ok(Outcome::Stale { current });
        }
        let mut batches = Rows::decode(write.rows)?;
        let mut writes: Vec<(WriteKind, RecordBatch)> = Vec::new();
        let mut indexes = Vec::with_capacity(write.parts.len());
        // Neighbours of one kind, counted before they are cut out: a thousand single-row writes that
        // share a proposal reach the memtable as the one batch that they were decoded as.
        let mut fresh: Option<(WriteKind, usize)> = None;
        let mut rows = 0;
        for part in write.parts {
            let count = part.rows as usize;
            let known = requests.known(part.id, &part.earlier);
            if known != Known::New {
                indexes.push(match known {
                    Known::Taken(first) => Some(first),
                    Known::New | Known::Perhaps => None,
                });
                writes.extend(batches.take_fresh(fresh.take())?);
                batches.take(count)?;
                continue;
            }
            requests.insert(part.id, index);
            indexes.push(Some(index));
            rows += u64::from(part.rows);
            fresh = match fresh {
                Some((kind, before)) if kind == part.kind => Some((kind, before + count)),
                before => {
                    writes.extend(batches.take_fresh(before)?);
                    Some((part.kind, count))
                }
            };
        }
        writes.extend(batches.take_fresh(fresh)?);
        batches.finish()?;
        let keys = self.partition.apply(index, mark.to_bytes(), &writes).map_err(failed)?;
        keys.iter().for_each(|keys| self.load.wrote(keys));
        self.load.applied(rows, bytes, indexes.len() as u64);
        self.rows_written.fetch_add(rows, Relaxed);
        self.bytes_written.fetch_add(bytes, Relaxed);
        Ok(Outcome::At(indexes))
    }
}

#[async_trait]
impl Machine for PartitionMachine {
    fn durable_mark(&self) -> Option<Mark> {
        let (index, bytes) = self.partition.durable_mark()?;
        let mut durable = self.durable.lock();
        if durable.as_ref().is_none_or(|mark| mark.index() != index) {
            // These are bytes that this process made; should they not parse, the older mark is safe.
            if let Ok(mark) = Mark::from_bytes(&bytes) {
                *durable = Some(mark);
            }
        }
        durable.clone()
    }

    /// It was made for what the partition owns now, and the log's beginning is about what it owned then.
    fn begins_with_files(&self) -> bool {
        let config = self.partition.config();
        config.join && config.epoch > FIRST_EPOCH && self.partition.applied() == 0
    }

    async fn apply(&self, entries: Vec<Committed>) -> Result<Vec<Bytes>, MachineError> {
        let begun = Instant::now();
        let mut replies = Vec::with_capacity(entries.len());
        let mut entries = entries.into_iter();
        while let Some((index, mark, order)) = self.apply_plain(&mut entries, &mut replies)? {
            replies.push(self.reshape(index, mark, order).await?.encode());
        }
        self.load.worked(begun.elapsed());
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
        let pinned =
            pinned.ok_or_else(|| MachineError("there is nothing in files to send".to_owned()))?;
        Ok(Arc::new(Outgoing::new(pinned)?))
    }

    async fn receive(&self, offer: Offer) -> Result<Box<dyn Incoming>, MachineError> {
        let arriving = Arriving::begin(&self.partition, &self.requests, offer).await?;
        Ok(Box::new(arriving))
    }
}

/// Reads the requests that the state of a partition remembers.
pub(crate) fn remembered(state: &[u8]) -> Result<Requests, MachineError> {
    if state.is_empty() {
        return Ok(Requests::default());
    }
    Requests::decode(state).ok_or_else(|| {
        MachineError("the remembered requests in the manifest cannot be read".to_owned())
    })
}

pub(crate) fn failed(error: EngineError) -> MachineError {
    MachineError(error.to_string())
}
