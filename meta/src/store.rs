//! Where meta's applied state is kept: a small trait, so that tests and simulations can keep it in
//! memory.
//!
//! Invariants:
//! - a commit is atomic: after a crash a store has all of it or nothing, and of several commits the
//!   first ones;
//! - what [`StateStore::sync`] returned for survives a power cut. What was committed later may be
//!   lost, and is then applied again from the log.

use bytes::Bytes;

use crate::error::MetaError;

/// How far the log is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Applied {
    /// The index of the last entry.
    pub(crate) index: u64,
    /// The same as the group wants it.
    pub(crate) mark: Bytes,
}

/// A record that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// Its key.
    pub(crate) key: Vec<u8>,
    /// Its new value; `None`: it goes.
    pub(crate) value: Option<Vec<u8>>,
}

/// All that a store holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    /// How far the log is in it; `None`: not begun.
    pub(crate) applied: Option<Applied>,
    /// By key.
    pub(crate) records: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Keeps records, and how far the log is in them.
pub(crate) trait StateStore: Send + Sync + 'static {
    /// Reads everything.
    fn load(&self) -> Result<Stored, MetaError>;

    /// Makes changes, each of another record, and notes how far the log is in them by now.
    fn commit(&self, changes: &[Change], applied: Option<&Applied>) -> Result<(), MetaError>;

    /// Returns when all commits until now survive a power cut.
    fn sync(&self) -> Result<(), MetaError>;

    /// Whether there is room on its disk for what a few commits write.
    fn has_room(&self) -> bool {
        true
    }
}
