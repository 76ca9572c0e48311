//! Errors of a partition's storage; variants are named by what the owner can do.
//!
//! [`EngineError::DiskFull`] leaves everything unchanged: try again when there is space. After any other error of the
//! disk, stop the partition; but what changes nothing before it is recorded, such as a flush, may be tried again after
//! [`EngineError::OutOfFiles`].

use std::error::Error as StdError;
use std::io;

use arrow::error::ArrowError;
use parquet::errors::ParquetError;
use partita_proto::Error;

/// Errors of the operating system for too many open files: of the system (ENFILE) and of the process (EMFILE).
const TOO_MANY_FILES: [i32; 2] = [23, 24];

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
    /// The process or the system has too many open files.
    #[error("storage: {0}")]
    OutOfFiles(String),
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
            EngineError::OutOfFiles(message) | EngineError::Storage(message) => {
                Self::Storage(message)
            }
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
        if is_out_of_files(error) {
            return Self::OutOfFiles(format!("{place}: {error}"));
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
    system_errors(error).any(|error| {
        matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    })
}

fn is_out_of_files(error: &(dyn StdError + 'static)) -> bool {
    system_errors(error)
        .any(|error| error.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code)))
}

/// Errors of the operating system within a chain of wrapping errors.
fn system_errors<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a io::Error> {
    chain(error).filter_map(|error| error.downcast_ref::<io::Error>())
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
        let wrapped = |source: io::Error| {
            let error = object_store::Error::Generic { store: "test", source: Box::new(source) };
            EngineError::store(&"a", &error)
        };
        let full = wrapped(io::ErrorKind::StorageFull.into());
        assert!(matches!(full, EngineError::DiskFull(_)));
        for code in TOO_MANY_FILES {
            let out_of_files = wrapped(io::Error::from_raw_os_error(code));
            assert!(matches!(out_of_files, EngineError::OutOfFiles(_)));
        }
        let broken = wrapped(io::ErrorKind::BrokenPipe.into());
        assert!(matches!(broken, EngineError::Storage(_)));
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
