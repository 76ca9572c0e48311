//! Storage of meta's applied state: a small trait, so that tests and simulations can keep it in memory.
//!
//! Invariants:
//! - a commit is atomic: after a crash a store has either all of it or nothing, and of several commits a prefix;
//! - everything committed before [`StateStore::sync`] returned survives a power failure. Later commits may be lost,
//!   and are then applied again from the log.

use bytes::Bytes;

use crate::error::MetaError;

/// Position in the log up to which it is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Applied {
    /// Index of the last applied entry.
    pub(crate) index: u64,
    /// The same position, in the form of the Raft group.
    pub(crate) mark: Bytes,
}

/// A change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Key of the record.
    pub(crate) key: Vec<u8>,
    /// New value; `None`: the record is removed.
    pub(crate) value: Option<Vec<u8>>,
}

/// Contents of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Position in the log; `None`: nothing applied yet.
    pub(crate) applied: Option<Applied>,
    /// Key and value, in order of keys.
    pub(crate) records: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Keeps records, and the position in the log.
pub(crate) trait StateStore: Send + Sync + 'static {
    /// Reads all records and the position in the log.
    fn load(&self) -> Result<Stored, MetaError> {
        Ok(Stored { applied: self.applied()?, records: self.load_kinds(u8::MIN, u8::MAX)? })
    }

    /// Reads the position in the log; `None`: nothing applied yet.
    fn applied(&self) -> Result<Option<Applied>, MetaError>;

    /// Reads the records whose keys begin with a byte from `first` to `last`: key and value, in order of keys.
    fn load_kinds(&self, first: u8, last: u8) -> Result<Vec<(Vec<u8>, Vec<u8>)>, MetaError>;

    /// Commits changes of distinct records, together with the new position in the log.
    fn commit(&self, changes: &[Change], applied: Option<&Applied>) -> Result<(), MetaError>;

    /// Returns when all commits so far survive a power failure.
    fn sync(&self) -> Result<(), MetaError>;

    /// True if the disk has room for a few commits.
    fn has_room(&self) -> bool {
        true
    }
}
