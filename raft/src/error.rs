//! The one error of this crate, by what the caller can do about it.
//!
//! It is `Clone`, because one failed sync answers many waiting writers.

use std::io;
use std::sync::Arc;

use partita_proto::id::{GroupId, NodeId, ReplicaId};

/// What went wrong, named by what the caller does next.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RaftError {
    /// Another replica leads (or none does yet): ask that one.
    #[error("not the leader{}", leader_hint(.leader))]
    NotLeader {
        /// The leader and the node that holds it, when known.
        leader: Option<(ReplicaId, NodeId)>,
    },
    /// Not possible just now, and surely not done: try again.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The command may or may not take effect: try again only with the same request identity.
    #[error("outcome unknown: {0}")]
    OutcomeUnknown(String),
    /// The group has stopped for good in this process (fail-stop), or was shut down.
    #[error("group {group} has stopped: {reason}")]
    Stopped {
        /// Which group.
        group: GroupId,
        /// Why.
        reason: String,
    },
    /// The log found no space for its next segment; nothing was written. It goes on by itself when space returns.
    #[error("disk full: {0}")]
    DiskFull(String),
    /// Bytes on disk are not what was written.
    #[error("corrupted: {0}")]
    Corrupted(String),
    /// A storage operation failed. The log accepts nothing more until the process is started again.
    #[error("storage: {context}: {source}")]
    Io {
        /// What was being done, and to which file.
        context: String,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// The caller asked for something that cannot be.
    #[error("{0}")]
    InvalidInput(String),
    /// The directory was written by a version of Partita that this one does not understand.
    #[error("incompatible: {0}")]
    Incompatible(String),
}

fn leader_hint(leader: &Option<(ReplicaId, NodeId)>) -> String {
    match leader {
        Some((replica, node)) => format!(": replica {replica} on node {node} leads"),
        None => ": no leader is known".to_owned(),
    }
}

impl RaftError {
    /// Whether the same call may succeed later, or elsewhere. True for [`RaftError::OutcomeUnknown`] too: there the
    /// caller must send the same request identity again, so that the command takes effect once.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::NotLeader { .. }
            | Self::Unavailable(_)
            | Self::OutcomeUnknown(_)
            | Self::DiskFull(_) => true,
            Self::Stopped { .. }
            | Self::Corrupted(_)
            | Self::Io { .. }
            | Self::InvalidInput(_)
            | Self::Incompatible(_) => false,
        }
    }

    pub(crate) fn io(context: impl Into<String>, source: io::Error) -> Self {
        Self::Io { context: context.into(), source: Arc::new(source) }
    }

    /// For the traits that speak `io::Error`.
    pub(crate) fn into_io(self) -> io::Error {
        io::Error::other(self)
    }
}
