//! A store in memory: for tests and simulations, and as the model that the one on disk is tested against.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::error::MetaError;
use crate::store::{Applied, Change, StateStore, Stored};

/// A store that forgets everything when it is dropped.
#[derive(Debug, Default)]
pub struct MemoryStore {
    contents: Mutex<Contents>,
    /// What a power cut leaves.
    synced: Mutex<Contents>,
}

#[derive(Clone, Debug, Default)]
struct Contents {
    applied: Option<Applied>,
    records: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl MemoryStore {
    /// What a power cut leaves, for the next life: nothing that this one still does reaches it.
    #[must_use]
    pub fn survivor(&self) -> Self {
        let synced = self.synced.lock().clone();
        Self { contents: Mutex::new(synced.clone()), synced: Mutex::new(synced) }
    }

    /// Forgets what was not synced.
    pub fn cut_power(&self) {
        let synced = self.synced.lock().clone();
        *self.contents.lock() = synced;
    }
}

impl StateStore for MemoryStore {
    fn load(&self) -> Result<Stored, MetaError> {
        let contents = self.contents.lock();
        Ok(Stored {
            applied: contents.applied.clone(),
            records: contents.records.clone().into_iter().collect(),
        })
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
