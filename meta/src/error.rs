//! Errors that keep meta from opening, stopping cleanly or continuing.

use std::io;
use std::sync::Arc;

use partita_raft::RaftError;

/// Reasons why meta cannot open, stop cleanly or continue. Errors of single changes are [`partita_proto::Error`]s.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetaError {
    /// Stored data differ from what was written.
    #[error("the catalog is damaged: {0}")]
    Corrupted(String),
    /// The catalog was written by a version of Partita that this one does not understand.
    #[error("the catalog was written by another version: {0}")]
    Incompatible(String),
    /// A disk operation failed.
    #[error("{context}: {source}")]
    Io {
        /// Operation that failed.
        context: String,
        /// Error of the operating system.
        source: Arc<io::Error>,
    },
    /// Meta's Raft group failed.
    #[error("meta's group: {0}")]
    Raft(#[from] RaftError),
}

impl MetaError {
    /// True if the disk is full.
    pub(crate) fn is_disk_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            Self::Raft(error) => matches!(error, RaftError::DiskFull(_)),
            Self::Corrupted(_) | Self::Incompatible(_) => false,
        }
    }

    /// True if stored data are damaged: a retry does not help.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Corrupted(_) | Self::Raft(RaftError::Corrupted(_)))
    }

    pub(crate) fn io(context: impl Into<String>, source: io::Error) -> Self {
        Self::Io { context: context.into(), source: Arc::new(source) }
    }
}
