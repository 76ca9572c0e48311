//! What keeps meta from opening or going on.

use std::io;
use std::sync::Arc;

use partita_raft::RaftError;

/// Why meta cannot open, stop cleanly or go on. Errors of single changes are
/// [`partita_proto::Error`]s.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MetaError {
    /// What is stored is not what was written.
    #[error("the catalog is damaged: {0}")]
    Corrupted(String),
    /// It was written by a version of Partita that this one does not understand.
    #[error("the catalog was written by another version: {0}")]
    Incompatible(String),
    /// The disk failed.
    #[error("{context}: {source}")]
    Io {
        /// What was tried.
        context: String,
        /// What came of it.
        source: Arc<io::Error>,
    },
    /// Meta's Raft group failed.
    #[error("meta's group: {0}")]
    Raft(#[from] RaftError),
}

impl MetaError {
    /// Whether there was no space on the disk.
    pub(crate) fn is_disk_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            Self::Raft(error) => matches!(error, RaftError::DiskFull(_)),
            Self::Corrupted(_) | Self::Incompatible(_) => false,
        }
    }

    /// Whether what is stored is not what was written: nothing that is tried again changes that.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Corrupted(_) | Self::Raft(RaftError::Corrupted(_)))
    }

    pub(crate) fn io(context: impl Into<String>, source: io::Error) -> Self {
        Self::Io { context: context.into(), source: Arc::new(source) }
    }
}
