//! The state machine of a group: the trait that the datanode and meta implement.
//!
//! ```text
//! log:      1  2  3  4  5  6  7  8  9
//!           [ in files  ]              <- durable mark: 4. The machine keeps it with its files
//!                       [ in memory ]  <- applied: 8. Gone after a crash, applied again from the log
//!
//! a replica that lacks what the log of others no longer holds:
//!   Machine::snapshot -> Snapshot --- its files, piece by piece ---> Incoming <- Machine::receive
//!                                                                   Incoming::install: all or nothing
//! ```

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use partita_proto::id::ReplicaId;

use crate::types::Mark;

/// A committed entry.
#[derive(Clone, Debug)]
pub struct Committed {
    /// Index in the group's log. Indexes grow; some belong to entries that carry no command.
    pub index: u64,
    /// Mark of the log after this entry: the machine keeps it with whatever makes the entry durable.
    pub mark: Mark,
    /// The command. `None` for entries of the group itself (a new leader's first entry, a change of members): the
    /// machine only keeps their mark.
    pub payload: Option<Bytes>,
}

/// Reason why a machine could not apply an entry. It stops the group: no entry is skipped.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MachineError(pub String);

/// The state of one group's replica.
#[async_trait]
pub trait Machine: Send + Sync + 'static {
    /// Mark up to which the machine's own storage is durable; `None` if it is empty. Entries after it are applied after
    /// a start. It must never lie beyond what is durable, and never go back.
    fn durable_mark(&self) -> Option<Mark>;

    /// Mark up to which the machine no longer needs the log; `None`: it needs all of it. Lies below the durable mark
    /// when the machine keeps older states to which it may have to return.
    fn spare_mark(&self) -> Option<Mark> {
        self.durable_mark()
    }

    /// True if the machine is empty and cannot start from the group's first entries: it waits for another replica's
    /// state, and for the log after that.
    fn begins_with_files(&self) -> bool {
        false
    }

    /// Applies committed entries in order. Called by one task per group. Returns one reply per command (entries without
    /// payload have none).
    ///
    /// After a crash, entries after the durable mark come again.
    ///
    /// # Errors
    /// Any error stops the group.
    async fn apply(&self, entries: Vec<Committed>) -> Result<Vec<Bytes>, MachineError>;

    /// Pins the durable state, so that it can be sent to another replica. Cheap: nothing is copied.
    ///
    /// # Errors
    /// When the state cannot be provided now, or ever: the other replica stays as it is.
    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>, MachineError> {
        Err(MachineError("this machine's state cannot be sent to other replicas".to_owned()))
    }

    /// Begins to receive another replica's durable state, beside the local state, which stays in use.
    ///
    /// Called again when the transfer begins anew, after a broken link or with a later state. Bytes received of a file
    /// of the same replica and name may be kept then: a replica never gives one name to two contents. Files of another
    /// replica, and files that are no longer offered, must be discarded.
    ///
    /// # Errors
    /// When the state cannot be received.
    async fn receive(&self, offer: Offer) -> Result<Box<dyn Incoming>, MachineError> {
        let replica = offer.from;
        Err(MachineError(format!("this machine cannot receive the state of replica {replica}")))
    }
}

/// A file of a machine's state, as offered to other replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFile {
    /// File name, unique among the files of its replica.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// A machine's durable state at one moment. Its files stay readable as long as this lives.
#[async_trait]
pub trait Snapshot: Send + Sync + 'static {
    /// Mark up to which the state contains the log.
    fn mark(&self) -> Mark;

    /// State besides the files: a few MiB at most, because it is sent in one message.
    fn state(&self) -> Bytes;

    /// Files of the state.
    fn files(&self) -> Vec<SnapshotFile>;

    /// Bytes of a file, given by its position in [`Snapshot::files`].
    ///
    /// # Errors
    /// When they cannot be read, or are known not to be what was written.
    async fn read(&self, file: usize, offset: u64, bytes: usize) -> Result<Bytes, MachineError>;
}

/// A snapshot that another replica offers.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Replica that offers its state.
    pub from: ReplicaId,
    /// Mark up to which the state contains the log.
    pub mark: Mark,
    /// State besides the files, from [`Snapshot::state`].
    pub state: Bytes,
    /// Files of the state, from [`Snapshot::files`].
    pub files: Vec<SnapshotFile>,
}

/// Another replica's state while it is received. Dropping it ends the transfer, which may begin anew.
#[async_trait]
pub trait Incoming: Send + 'static {
    /// Bytes already received of each file of the offer: only the rest is sent.
    fn have(&self) -> Vec<u64>;

    /// Appends bytes to a file; `offset` equals the bytes already received. Their checksum has been checked.
    ///
    /// # Errors
    /// When they cannot be kept. The transfer is tried again later.
    async fn write(&mut self, file: usize, offset: u64, data: Bytes) -> Result<(), MachineError>;

    /// Replaces the machine's state with the received one, mark included: durably, and all of it or nothing. Called
    /// when every byte of every file has been received; no entry is applied meanwhile.
    ///
    /// # Errors
    /// Any error stops the group.
    async fn install(self: Box<Self>) -> Result<(), MachineError>;
}
