//! What a group is applied to: the trait that the datanode and meta implement.
//!
//! ```text
//! log:      1  2  3  4  5  6  7  8  9
//!           [ in files  ]              <- durable mark: 4. The machine keeps it with its files
//!                       [ in memory ]  <- applied: 8. Gone after a crash, applied again from the log
//! ```

use async_trait::async_trait;
use bytes::Bytes;

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

    /// Applies committed entries, in order; called by one task per group. Answers with one reply per command
    /// (entries without payload have none).
    ///
    /// After a crash, entries after the durable mark come again.
    ///
    /// # Errors
    /// Any error stops the group.
    async fn apply(&self, entries: Vec<Committed>) -> Result<Vec<Bytes>, MachineError>;
}
