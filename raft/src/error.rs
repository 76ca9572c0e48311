//! The only error type of this crate; variants are named by what the caller can do.
//!
//! It is `Clone`, because one failed sync answers many waiting writers.

use std::io;
use std::sync::Arc;

use partita_proto::id::{GroupId, NodeId, ReplicaId};

/// Error of a replication call. Variants are named by what the caller does next.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RaftError {
    /// Another replica leads, or none does yet: send the request to the leader.
    #[error("not the leader{}", leader_hint(.leader))]
    NotLeader {
        /// The leader and the node that holds it, when known.
        leader: Option<(ReplicaId, NodeId)>,
    },
    /// Not possible now, and certainly not done: try again.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The command may or may not take effect: try again only with the same request identity.
    #[error("outcome unknown: {0}")]
    OutcomeUnknown(String),
    /// The group has stopped for good in this process (fail-stop), or was shut down.
    #[error("group {group} has stopped: {reason}")]
    Stopped {
        /// Group id.
        group: GroupId,
        /// Reason, for messages.
        reason: String,
    },
    /// No disk space for the log's next segment; nothing was written. The log continues by itself when space returns.
    #[error("disk full: {0}")]
    DiskFull(String),
    /// Bytes on disk differ from those written.
    #[error("corrupted: {0}")]
    Corrupted(String),
    /// A storage operation failed. The log accepts no more writes until the process is restarted.
    #[error("storage: {context}: {source}")]
    Io {
        /// The operation, and its file.
        context: String,
        /// Error of the operating system.
        source: Arc<io::Error>,
    },
    /// The request is invalid.
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
    /// True if the same call may succeed later, or on another node. True for [`RaftError::OutcomeUnknown`] too: the
    /// caller must then repeat the same request identity, so that the command takes effect once.
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

    /// Converts the error for traits that require `io::Error`.
    pub(crate) fn into_io(self) -> io::Error {
        io::Error::other(self)
    }
}
