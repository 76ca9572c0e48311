//! What a group is applied to: the trait that the datanode and meta implement.
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
    /// Its index in the group's log. Indexes grow; some are taken by entries that carry no command.
    pub index: u64,
    /// The place in the log after this entry: to be kept with whatever makes it durable.
    pub mark: Mark,
    /// The command. `None` for the group's own entries (a new leader's, a change of members): the machine only keeps
    /// their mark.
    pub payload: Option<Bytes>,
}

/// Why a machine could not apply an entry. It stops the group: nothing is skipped.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MachineError(pub String);

/// The state of one group's replica.
#[async_trait]
pub trait Machine: Send + Sync + 'static {
    /// The mark up to which the machine's own storage is durable; `None` if it is empty. Entries after it are applied
    /// after a start. It must never lie beyond what is durable, and never go back.
    fn durable_mark(&self) -> Option<Mark>;

    /// The mark up to which it does not need the log any more; `None`: it needs all of it. Below its durable mark when it
    /// keeps older states that may have to take the place of the newest one.
    fn spare_mark(&self) -> Option<Mark> {
        self.durable_mark()
    }

    /// Whether it is empty and can make nothing of the group's first entries: it waits for another replica's state, and
    /// for the log behind that.
    fn begins_with_files(&self) -> bool {
        false
    }

    /// Applies committed entries, in order; called by one task per group. Answers with one reply per command
    /// (entries without payload have none).
    ///
    /// After a crash, entries after the durable mark come again.
    ///
    /// # Errors
    /// Any error stops the group.
    async fn apply(&self, entries: Vec<Committed>) -> Result<Vec<Bytes>, MachineError>;

    /// Pins what is durable, to be sent to another replica. Costs little: nothing is copied.
    ///
    /// # Errors
    /// When it cannot be had just now, or ever: the other replica stays as it is.
    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>, MachineError> {
        Err(MachineError("this machine's state cannot be sent to other replicas".to_owned()))
    }

    /// Begins to take up another replica's durable state, next to the own one, which goes on being used.
    ///
    /// Called again when the transfer begins anew, after a broken link or with a later state. What is at hand of a
    /// file of the same replica and name may be kept then: a replica never gives one name to two contents. What is
    /// at hand of another replica's files, or of files that are not offered any more, is to be thrown away.
    ///
    /// # Errors
    /// When it cannot be taken up.
    async fn receive(&self, offer: Offer) -> Result<Box<dyn Incoming>, MachineError> {
        let from = offer.from;
        Err(MachineError(format!("this machine cannot take up the state of replica {from}")))
    }
}

/// A file of a machine, as other replicas see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotFile {
    /// Its name among the files of its replica.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// A machine's durable state at one moment. Its files stay readable as long as this lives.
#[async_trait]
pub trait Snapshot: Send + Sync + 'static {
    /// Up to where the log is in it.
    fn mark(&self) -> Mark;

    /// What belongs to it besides files: a few MiB at most, for it is sent at once.
    fn state(&self) -> Bytes;

    /// Its files.
    fn files(&self) -> Vec<SnapshotFile>;

    /// Bytes of the file at a place in [`Snapshot::files`].
    ///
    /// # Errors
    /// When they cannot be read, or are known not to be what was written.
    async fn read(&self, file: usize, offset: u64, bytes: usize) -> Result<Bytes, MachineError>;
}

/// What another replica has to offer.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Whose state it is.
    pub from: ReplicaId,
    /// Up to where the log is in it.
    pub mark: Mark,
    /// What [`Snapshot::state`] gave.
    pub state: Bytes,
    /// What [`Snapshot::files`] gave.
    pub files: Vec<SnapshotFile>,
}

/// Another replica's state while it comes in. Dropping it ends the transfer, which may begin anew.
#[async_trait]
pub trait Incoming: Send + 'static {
    /// Bytes at hand of each file of the offer: the rest is sent.
    fn have(&self) -> Vec<u64>;

    /// Takes the next bytes of a file; `offset` is what there is of it already. Their checksum was right.
    ///
    /// # Errors
    /// When they cannot be kept. The transfer is tried again later.
    async fn write(&mut self, file: usize, offset: u64, data: Bytes) -> Result<(), MachineError>;

    /// Puts the offered state in the place of the machine's own, mark included: durably, and all of it or nothing.
    /// Every byte of every file was taken. Nothing is applied meanwhile.
    ///
    /// # Errors
    /// Any error stops the group.
    async fn install(self: Box<Self>) -> Result<(), MachineError>;
}
