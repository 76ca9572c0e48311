//! Errors of a partition's storage; variants are named by what the owner can do.
//!
//! [`EngineError::DiskFull`] leaves everything unchanged: try again when there is space. After any other error of the
//! disk, stop the partition.

use std::error::Error as StdError;
use std::io;

use arrow::error::ArrowError;
use parquet::errors::ParquetError;
use partita_proto::Error;

/// An error of a partition's storage.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineError {
    /// The caller's rows or request are wrong; nothing was changed.
    #[error("{0}")]
    InvalidInput(String),
    /// Well-formed, but not supported by the table.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// There is no partition at this place.
    #[error("no partition at {0}")]
    NotFound(String),
    /// There is a partition at this place already.
    #[error("a partition exists at {0}")]
    AlreadyExists(String),
    /// The device is full. Nothing was changed or lost: memtables stay in memory.
    #[error("no space left on device: {0}")]
    DiskFull(String),
    /// Stored bytes fail their checksum or are invalid; they were not served.
    #[error("corrupted data: {0}")]
    Corrupted(String),
    /// The store failed.
    #[error("storage: {0}")]
    Storage(String),
    /// An earlier failure left the stored state unknown; only reopening the partition helps.
    #[error("the partition has stopped: {0}")]
    Stopped(String),
    /// An unexpected failure that no caller can handle.
    #[error("internal error: {0}")]
    Internal(String),
}

/// The crate's result.
pub(crate) type Result<T> = std::result::Result<T, EngineError>;

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::InvalidInput(message) => Self::InvalidInput(message),
            EngineError::Unsupported(message) => Self::Unsupported(message),
            EngineError::NotFound(name) => Self::NotFound { kind: "partition", name },
            EngineError::AlreadyExists(name) => Self::AlreadyExists { kind: "partition", name },
            EngineError::DiskFull(message) => Self::DiskFull(message),
            EngineError::Corrupted(message) => Self::Corrupted(message),
            EngineError::Stopped(message) => Self::Unavailable(message),
            EngineError::Storage(message) => Self::Storage(message),
            EngineError::Internal(message) => Self::Internal(message),
        }
    }
}

impl From<Error> for EngineError {
    fn from(error: Error) -> Self {
        match error {
            Error::InvalidInput(message) => Self::InvalidInput(message),
            Error::Unsupported(message) => Self::Unsupported(message),
            Error::DiskFull(message) => Self::DiskFull(message),
            Error::Corrupted(message) => Self::Corrupted(message),
            Error::Storage(message) => Self::Storage(message),
            error => Self::Internal(error.to_string()),
        }
    }
}

/// A failed operation on in-memory columns.
impl From<ArrowError> for EngineError {
    fn from(error: ArrowError) -> Self {
        find(&error).unwrap_or_else(|| Self::Internal(error.to_string()))
    }
}

impl EngineError {
    /// An error of the object store about the object `place`.
    pub(crate) fn store(place: &impl std::fmt::Display, error: &object_store::Error) -> Self {
        if disk_is_full(error) {
            return Self::DiskFull(format!("{place}: {error}"));
        }
        Self::Storage(format!("{place}: {error}"))
    }

    /// An error of reading a file: the error of the reader below, or bytes that do not decode.
    pub(crate) fn reading(file: &impl std::fmt::Display, error: &ParquetError) -> Self {
        find(error).unwrap_or_else(|| Self::Corrupted(format!("file {file}: {error}")))
    }

    /// An error of writing a file.
    pub(crate) fn writing(file: &impl std::fmt::Display, error: &ParquetError) -> Self {
        find(error).unwrap_or_else(|| Self::Internal(format!("file {file}: {error}")))
    }
}

/// The engine's own error within a chain of wrapping errors.
fn find(error: &(dyn StdError + 'static)) -> Option<EngineError> {
    chain(error).find_map(|error| error.downcast_ref::<EngineError>().cloned())
}

fn disk_is_full(error: &(dyn StdError + 'static)) -> bool {
    chain(error).filter_map(|error| error.downcast_ref::<io::Error>()).any(|error| {
        matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    })
}

fn chain<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_other_failures_however_deep_it_is_wrapped() {
        let full = object_store::Error::Generic {
            store: "test",
            source: Box::new(io::Error::from(io::ErrorKind::StorageFull)),
        };
        assert!(matches!(EngineError::store(&"a", &full), EngineError::DiskFull(_)));
        let broken = object_store::Error::Generic {
            store: "test",
            source: Box::new(io::Error::from(io::ErrorKind::BrokenPipe)),
        };
        assert!(matches!(EngineError::store(&"a", &broken), EngineError::Storage(_)));
    }

    #[test]
    fn an_engine_error_comes_through_parquet_unchanged() {
        let inner = EngineError::Corrupted("block 3".to_owned());
        let wrapped = ParquetError::External(Box::new(inner.clone()));
        assert_eq!(EngineError::reading(&"f", &wrapped), inner);
        let own = ParquetError::General("bad page".to_owned());
        assert!(matches!(EngineError::reading(&"f", &own), EngineError::Corrupted(_)));
    }
}
