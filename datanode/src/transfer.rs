//! Transfer of a partition's files between replicas: the engine's state as Raft sends and receives it.
//!
//! Invariants:
//! - a snapshot consists of files and manifest, with the mark and the remembered requests that belong to them;
//! - an installed snapshot replaces rows, remembered requests and captured changes together, under the lock of the
//!   requests;
//! - a replica whose snapshot is from after a split makes its replica of the child first, empty: it will never apply the
//!   split, and without it the child may have too few replicas for a quorum.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use partita_engine::{Arrival, Partition, Pinned};
use partita_raft::{Incoming, MachineError, Mark, Offer, Snapshot, SnapshotFile};
use tokio_util::sync::CancellationToken;

use crate::capture::Tail;
use crate::machine::{PartitionMachine, failed, remembered};
use crate::requests::Requests;
use crate::surroundings::Surroundings;

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
    /// The changes captured here, which end with the state that they belong to.
    tail: Arc<Mutex<Tail>>,
    partition: Arc<Partition>,
    near: Arc<Surroundings>,
    stop: CancellationToken,
}

impl Arriving {
    pub(crate) async fn begin(
        machine: &PartitionMachine,
        offer: Offer,
    ) -> Result<Self, MachineError> {
        let partition = Arc::clone(&machine.partition);
        let files: Vec<_> = offer.files.into_iter().map(|file| (file.name, file.bytes)).collect();
        let arrival = partition.receive(offer.from, &offer.state, &files).await.map_err(failed)?;
        if read_mark(&arrival.mark())? != offer.mark {
            return Err(MachineError(
                "the offered state has another mark than the offer".to_owned(),
            ));
        }
        let offered = remembered(&arrival.state())?;
        let (requests, tail) = (Arc::clone(&machine.requests), Arc::clone(&machine.tail));
        let (near, stop) = (Arc::clone(&machine.near), machine.stop.clone());
        Ok(Self { arrival, offered, requests, tail, partition, near, stop })
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

    /// No entry is applied meanwhile.
    async fn install(self: Box<Self>) -> Result<(), MachineError> {
        let Self { arrival, offered, requests, tail, partition, near, stop } = *self;
        // The children first: once the state is installed, nothing tells that they are missing.
        let (replica, parent) = (partition.config().replica, arrival.config());
        for (child, replica) in offered.skipped(replica, partition.applied()) {
            near.create_empty(child.empty(replica, &parent), child.origin(), &stop).await?;
        }
        let base = read_mark(&arrival.mark())?.index();
        let installed = arrival.install_with(move |switch| {
            let mut requests = requests.lock();
            switch.take_effect()?;
            tail.lock().reopen(base, offered.last_change());
            *requests = offered;
            Ok(())
        });
        installed.await.map_err(failed)
    }
}
