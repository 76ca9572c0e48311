//! Transfer of a partition's files between replicas: the engine's state as Raft sends and receives it.
//!
//! Invariants:
//! - a snapshot consists of files and manifest, with the mark and the remembered requests that belong to them;
//! - an installed snapshot replaces rows and remembered requests together.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use partita_engine::{Arrival, Partition, Pinned};
use partita_raft::{Incoming, MachineError, Mark, Offer, Snapshot, SnapshotFile};

use crate::machine::{failed, remembered};
use crate::requests::Requests;

/// The partition's durable state, ready to be sent.
pub(crate) struct Outgoing {
    mark: Mark,
    pinned: Pinned,
}

impl Outgoing {
    pub(crate) fn new(pinned: Pinned) -> Result<Self, MachineError> {
        let mark = read_mark(&pinned.mark())?;
        Ok(Self { mark, pinned })
    }
}

fn read_mark(bytes: &[u8]) -> Result<Mark, MachineError> {
    Mark::from_bytes(bytes).map_err(|error| MachineError(error.to_string()))
}

#[async_trait]
impl Snapshot for Outgoing {
    fn mark(&self) -> Mark {
        self.mark.clone()
    }

    fn state(&self) -> Bytes {
        self.pinned.state()
    }

    fn files(&self) -> Vec<SnapshotFile> {
        let files = self.pinned.files().into_iter();
        files.map(|(name, bytes)| SnapshotFile { name, bytes }).collect()
    }

    async fn read(&self, file: usize, offset: u64, bytes: usize) -> Result<Bytes, MachineError> {
        self.pinned.read(file, offset, bytes).await.map_err(failed)
    }
}

/// Another replica's state while it is received.
pub(crate) struct Arriving {
    arrival: Arrival,
    /// The requests that come with the state.
    offered: Requests,
    /// The requests of this replica, to be replaced at the end.
    requests: Arc<Mutex<Requests>>,
}

impl Arriving {
    pub(crate) async fn begin(
        partition: &Arc<Partition>,
        requests: &Arc<Mutex<Requests>>,
        offer: Offer,
    ) -> Result<Self, MachineError> {
        let files: Vec<_> = offer.files.into_iter().map(|file| (file.name, file.bytes)).collect();
        let arrival = partition.receive(offer.from, &offer.state, &files).await.map_err(failed)?;
        if read_mark(&arrival.mark())? != offer.mark {
            return Err(MachineError(
                "the offered state has another mark than the offer".to_owned(),
            ));
        }
        let offered = remembered(&arrival.state())?;
        Ok(Self { arrival, offered, requests: Arc::clone(requests) })
    }
}

#[async_trait]
impl Incoming for Arriving {
    fn have(&self) -> Vec<u64> {
        self.arrival.have()
    }

    async fn write(&mut self, file: usize, offset: u64, data: Bytes) -> Result<(), MachineError> {
        self.arrival.write(file, offset, &data).await.map_err(failed)
    }

    /// No entry is applied meanwhile; if the memtable is sealed between the two steps, it is empty, so that nothing is
    /// saved with the old requests.
    async fn install(self: Box<Self>) -> Result<(), MachineError> {
        let Self { arrival, offered, requests } = *self;
        arrival.install().await.map_err(failed)?;
        *requests.lock() = offered;
        Ok(())
    }
}
