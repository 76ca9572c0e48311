//! A partition's state machine: committed commands into the engine.
//!
//! Invariants:
//! - commands take effect in log order, each once, whatever is replayed at start;
//! - the remembered requests and the memtable change together, under one lock, and are sealed
//!   together, so that a flush never separates a row from the request that brought it;
//! - another replica's state brings its remembered requests with it (`transfer.rs`);
//! - any failure is returned, and stops the group: nothing is skipped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use partita_engine::{EngineError, Partition};
use partita_proto::service::WriteKind;
use partita_proto::wire::{Command, WriteCommand, ipc};
use partita_raft::{Committed, Incoming, Machine, MachineError, Mark, Offer, Snapshot};

use crate::requests::Requests;
use crate::transfer::{Arriving, Outgoing};

/// Applies a group's log to a partition of the engine.
pub(crate) struct PartitionMachine {
    partition: Arc<Partition>,
    /// Held while an entry is applied and while the memtable is sealed.
    requests: Arc<Mutex<Requests>>,
    /// The partition's durable mark as it was last read back from its bytes.
    durable: Mutex<Option<Mark>>,
    rows_written: AtomicU64,
    bytes_written: AtomicU64,
}

impl PartitionMachine {
    /// The machine of an open partition, with the requests remembered as of its files.
    pub(crate) fn new(partition: Arc<Partition>) -> Result<Self, MachineError> {
        let requests = remembered(&partition.state())?;
        let durable = partition
            .durable_mark()
            .map(|(_, mark)| Mark::from_bytes(&mark))
            .transpose()
            .map_err(|error| MachineError(error.to_string()))?;
        Ok(Self {
            partition,
            requests: Arc::new(Mutex::new(requests)),
            durable: Mutex::new(durable),
            rows_written: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
        })
    }

    /// Seals the memtable, so that a flush covers everything applied until now.
    pub(crate) fn seal(&self) {
        let requests = self.requests.lock();
        self.partition.seal(|| requests.encode());
    }

    /// Rows and bytes applied since the replica was opened.
    pub(crate) fn written(&self) -> (u64, u64) {
        (self.rows_written.load(Ordering::Relaxed), self.bytes_written.load(Ordering::Relaxed))
    }

    fn apply_command(
        &self,
        requests: &mut Requests,
        index: u64,
        mark: Mark,
        payload: Bytes,
    ) -> Result<Bytes, MachineError> {
        let bytes = payload.len() as u64;
        let command = Command::decode(payload).map_err(|error| MachineError(error.to_string()))?;
        match command {
            Command::Write(write) => self.apply_write(requests, index, mark, write, bytes),
            Command::Schema(schema) => {
                self.partition.apply_schema(index, mark.to_bytes(), schema).map_err(failed)?;
                Ok(reply(&[index]))
            }
            Command::Truncate(id) => {
                if let Some(first) = requests.get(id) {
                    self.partition.apply(index, mark.to_bytes(), &[]).map_err(failed)?;
                    return Ok(reply(&[first]));
                }
                requests.insert(id, index);
                self.partition.apply_truncate(index, mark.to_bytes()).map_err(failed)?;
                Ok(reply(&[index]))
            }
        }
    }

    fn apply_write(
        &self,
        requests: &mut Requests,
        index: u64,
        mark: Mark,
        write: WriteCommand,
        bytes: u64,
    ) -> Result<Bytes, MachineError> {
        let mut batches = Rows::decode(write.rows)?;
        let mut writes: Vec<(WriteKind, RecordBatch)> = Vec::new();
        let mut indexes = Vec::with_capacity(write.parts.len());
        // Neighbours of one kind, counted before they are cut out: a thousand single-row writes that
        // share a proposal reach the memtable as the one batch that they were decoded as.
        let mut fresh: Option<(WriteKind, usize)> = None;
        let mut rows = 0;
        for part in write.parts {
            let count = part.rows as usize;
            if let Some(first) = requests.get(part.id) {
                indexes.push(first);
                writes.extend(batches.take_fresh(fresh.take())?);
                batches.take(count)?;
                continue;
            }
            requests.insert(part.id, index);
            indexes.push(index);
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
        self.partition.apply(index, mark.to_bytes(), &writes).map_err(failed)?;
        self.rows_written.fetch_add(rows, Ordering::Relaxed);
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
        Ok(reply(&indexes))
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

    async fn apply(&self, entries: Vec<Committed>) -> Result<Vec<Bytes>, MachineError> {
        let mut requests = self.requests.lock();
        let mut replies = Vec::with_capacity(entries.len());
        for entry in entries {
            match entry.payload {
                Some(payload) => replies.push(self.apply_command(
                    &mut requests,
                    entry.index,
                    entry.mark,
                    payload,
                )?),
                // Membership and blank entries: only the mark moves.
                None => {
                    self.partition
                        .apply(entry.index, entry.mark.to_bytes(), &[])
                        .map_err(failed)?;
                }
            }
            if self.partition.wants_seal() {
                self.partition.seal(|| requests.encode());
            }
        }
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

/// The rows of one command, handed out part by part.
struct Rows {
    batches: std::collections::VecDeque<RecordBatch>,
}

impl Rows {
    fn decode(rows: Bytes) -> Result<Self, MachineError> {
        let batches = ipc::decode(rows).map_err(|error| MachineError(error.to_string()))?;
        Ok(Self { batches: batches.into() })
    }

    /// The next rows of one kind, if there are any.
    fn take_fresh(
        &mut self,
        fresh: Option<(WriteKind, usize)>,
    ) -> Result<Vec<(WriteKind, RecordBatch)>, MachineError> {
        let Some((kind, rows)) = fresh else { return Ok(Vec::new()) };
        Ok(self.take(rows)?.into_iter().map(|batch| (kind, batch)).collect())
    }

    /// The next `rows` rows, as slices of the decoded batches.
    fn take(&mut self, mut rows: usize) -> Result<Vec<RecordBatch>, MachineError> {
        let mut taken = Vec::with_capacity(1);
        while rows > 0 {
            let Some(batch) = self.batches.pop_front() else {
                return Err(MachineError(
                    "a write command has fewer rows than its parts say".to_owned(),
                ));
            };
            if batch.num_rows() <= rows {
                rows -= batch.num_rows();
                taken.push(batch);
            } else {
                self.batches.push_front(batch.slice(rows, batch.num_rows() - rows));
                taken.push(batch.slice(0, rows));
                rows = 0;
            }
        }
        Ok(taken)
    }

    fn finish(&self) -> Result<(), MachineError> {
        if self.batches.iter().any(|batch| batch.num_rows() > 0) {
            return Err(MachineError(
                "a write command has more rows than its parts say".to_owned(),
            ));
        }
        Ok(())
    }
}

/// The reply of a command: the index at which each of its parts took effect.
fn reply(indexes: &[u64]) -> Bytes {
    let mut bytes = Vec::with_capacity(indexes.len() * 8);
    for index in indexes {
        bytes.extend_from_slice(&index.to_le_bytes());
    }
    bytes.into()
}

/// Reads [`reply`]: the index of the part at a position.
pub(crate) fn reply_at(reply: &[u8], position: usize) -> Option<u64> {
    let bytes = reply.get(position * 8..position * 8 + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

pub(crate) fn failed(error: EngineError) -> MachineError {
    MachineError(error.to_string())
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn batch(values: &[i64]) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]));
        RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(values.to_vec()))]).unwrap()
    }

    #[test]
    fn parts_take_their_rows_across_batches() {
        let mut rows = Rows { batches: vec![batch(&[1, 2, 3]), batch(&[4, 5])].into() };
        let sizes = |batches: Vec<RecordBatch>| -> Vec<usize> {
            batches.iter().map(RecordBatch::num_rows).collect()
        };
        assert_eq!(sizes(rows.take(2).unwrap()), [2]);
        assert_eq!(sizes(rows.take(2).unwrap()), [1, 1]);
        assert!(rows.finish().is_err());
        assert_eq!(sizes(rows.take(1).unwrap()), [1]);
        rows.finish().unwrap();
        assert!(rows.take(1).is_err());
    }

    #[test]
    fn neighbours_of_one_kind_are_taken_as_one_batch() {
        let mut rows = Rows { batches: vec![batch(&[1, 2, 3, 4])].into() };
        let taken = rows.take_fresh(Some((WriteKind::Put, 3))).unwrap();
        let shape: Vec<_> = taken.iter().map(|(kind, batch)| (*kind, batch.num_rows())).collect();
        assert_eq!(shape, [(WriteKind::Put, 3)]);
        assert!(rows.take_fresh(None).unwrap().is_empty());
        assert_eq!(rows.take_fresh(Some((WriteKind::Delete, 1))).unwrap().len(), 1);
        rows.finish().unwrap();
    }

    #[test]
    fn a_reply_gives_each_part_its_index() {
        let bytes = reply(&[7, 9]);
        assert_eq!((reply_at(&bytes, 0), reply_at(&bytes, 1)), (Some(7), Some(9)));
        assert_eq!(reply_at(&bytes, 2), None);
    }
}
