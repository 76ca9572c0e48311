//! A store in memory: for tests and simulations, and as the model for tests of the store on disk.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::error::MetaError;
use crate::store::{Applied, Change, StateStore};

/// A store that loses everything when it is dropped.
#[derive(Debug, Default)]
pub struct MemoryStore {
    contents: Mutex<Contents>,
    /// Contents that survive a power failure.
    synced: Mutex<Contents>,
}

#[derive(Clone, Debug, Default)]
struct Contents {
    applied: Option<Applied>,
    records: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl MemoryStore {
    /// A new store with the contents that survive a power failure; later calls on this one do not affect it.
    #[must_use]
    pub fn survivor(&self) -> Self {
        let synced = self.synced.lock().clone();
        Self { contents: Mutex::new(synced.clone()), synced: Mutex::new(synced) }
    }

    /// Drops everything that was not synced.
    pub fn cut_power(&self) {
        let synced = self.synced.lock().clone();
        *self.contents.lock() = synced;
    }
}

impl StateStore for MemoryStore {
    fn applied(&self) -> Result<Option<Applied>, MetaError> {
        Ok(self.contents.lock().applied.clone())
    }

    fn load_kinds(&self, first: u8, last: u8) -> Result<Vec<(Vec<u8>, Vec<u8>)>, MetaError> {
        let records = self.contents.lock().records.clone().into_iter();
        let is_wanted = |key: &[u8]| key.first().is_some_and(|kind| (first..=last).contains(kind));
        Ok(records.filter(|(key, _)| is_wanted(key)).collect())
    }

    fn commit(&self, changes: &[Change], applied: Option<&Applied>) -> Result<(), MetaError> {
        let mut contents = self.contents.lock();
        for change in changes {
            match &change.value {
                Some(value) => drop(contents.records.insert(change.key.clone(), value.clone())),
                None => drop(contents.records.remove(&change.key)),
            }
        }
        if let Some(applied) = applied {
            contents.applied = Some(applied.clone());
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), MetaError> {
        let contents = self.contents.lock().clone();
        *self.synced.lock() = contents;
        Ok(())
    }
}
