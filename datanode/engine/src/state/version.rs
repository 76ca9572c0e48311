//! The state of a partition as an immutable value, and the functions from one state to the next.
//!
//! Readers take the current version and keep it as long as they like; nothing in it changes. Each function here is one
//! kind of change; [`crate::state::partition`] first makes durable what has to be, and then swaps the version.
//!
//! Invariants:
//! - everything in files is older than everything in sealed memtables, which are oldest first and
//!   older than the active one;
//! - the durable position is not behind a row that is in no file, nor before one that is;
//! - a file is in `files`, or, when a truncation hides it but the manifest still names it, in `doomed`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Result;
use crate::file::{FileEntry, FileHandle, FileId};
use crate::rows::layout::Layout;
use crate::rows::memtable::{LogPosition, Memtable, Sealed};
use crate::state::manifest::Durable;

/// One state of a partition.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) layout: Arc<Layout>,
    pub(crate) active: Memtable,
    /// Sealed memtables, oldest first.
    pub(crate) sealed: Vec<Arc<Sealed>>,
    pub(crate) files: Arc<BTreeMap<FileId, FileEntry>>,
    /// Position of the last applied entry.
    pub(crate) applied: LogPosition,
    /// Index of the last entry when a memtable was last sealed.
    pub(crate) sealed_index: u64,
    pub(crate) seals: u64,
    pub(crate) durable: Option<Durable>,
    /// Width of time windows, once it has been chosen.
    pub(crate) width: Option<i64>,
    /// Index of the last truncation.
    pub(crate) truncated: u64,
    pub(crate) doomed: Vec<Doomed>,
    /// Counter of changes of `files`.
    pub(crate) files_changes: u64,
    /// Counter of installs of another replica's state.
    pub(crate) installs: u64,
}

/// A file hidden by a truncation, until the manifest no longer names it.
#[derive(Clone, Debug)]
pub(crate) struct Doomed {
    /// Index of the truncation.
    pub(crate) truncated: u64,
    pub(crate) handle: Arc<FileHandle>,
}

/// Result of a flush.
pub(crate) struct Flushed {
    /// Numbers of the memtables that were written.
    pub(crate) sealed: Vec<u64>,
    pub(crate) files: Vec<Arc<FileHandle>>,
    pub(crate) durable: Durable,
    pub(crate) width: Option<i64>,
}

impl Version {
    /// The state after opening.
    pub(crate) fn opened(
        layout: Arc<Layout>,
        files: Vec<Arc<FileHandle>>,
        durable: Option<Durable>,
        width: Option<i64>,
    ) -> Result<Self> {
        let applied = durable.as_ref().map_or_else(LogPosition::default, |durable| LogPosition {
            index: durable.index,
            mark: durable.mark.clone(),
        });
        let sealed_index = applied.index;
        Ok(Self {
            files: entries(&layout, files)?,
            layout,
            active: Memtable::default(),
            sealed: Vec::new(),
            applied,
            sealed_index,
            seals: 0,
            durable,
            width,
            truncated: 0,
            doomed: Vec::new(),
            files_changes: 0,
            installs: 0,
        })
    }

    /// The state after another replica's state has replaced this one.
    pub(crate) fn installed(&self, received: Self) -> Self {
        Self {
            seals: self.seals,
            files_changes: self.files_changes + 1,
            installs: self.installs + 1,
            ..received
        }
    }

    /// The state after an entry was applied.
    pub(crate) fn applied(&self, position: LogPosition, active: Memtable) -> Self {
        Self { applied: position, active, ..self.clone() }
    }

    /// The state after the active memtable was sealed.
    pub(crate) fn sealed(&self, state: bytes::Bytes) -> Self {
        let mut next = self.clone();
        let memtable = std::mem::take(&mut next.active);
        next.seals += 1;
        next.sealed_index = next.applied.index;
        next.sealed.push(Arc::new(Sealed {
            number: next.seals,
            memtable,
            position: next.applied.clone(),
            state,
        }));
        next
    }

    /// The state after files have replaced sealed memtables.
    pub(crate) fn flushed(&self, flushed: Flushed) -> Result<Self> {
        let mut next = self.clone();
        next.files_changes += 1;
        next.sealed.retain(|sealed| !flushed.sealed.contains(&sealed.number));
        if self.truncated > flushed.durable.index {
            next.doom(flushed.files);
        } else {
            let files = Arc::make_mut(&mut next.files);
            for handle in flushed.files {
                files.insert(handle.meta.id, FileEntry::new(handle, &next.layout)?);
            }
            next.doomed.retain(|doomed| doomed.truncated > flushed.durable.index);
        }
        next.durable = Some(flushed.durable);
        next.width = flushed.width.or(next.width);
        Ok(next)
    }

    /// The state after files have replaced other files.
    pub(crate) fn replaced(&self, removed: &[FileId], added: Vec<Arc<FileHandle>>) -> Result<Self> {
        let mut next = self.clone();
        next.files_changes += 1;
        let hidden = !removed.iter().all(|id| next.files.contains_key(id));
        let files = Arc::make_mut(&mut next.files);
        for id in removed {
            files.remove(id);
        }
        next.doomed.retain(|doomed| !removed.contains(&doomed.handle.meta.id));
        if hidden {
            // A truncation came between: the merged files are hidden, and so is their result.
            next.doom(added);
        } else {
            for handle in added {
                files.insert(handle.meta.id, FileEntry::new(handle, &next.layout)?);
            }
        }
        Ok(next)
    }

    /// The state after a truncation.
    pub(crate) fn truncated(&self, position: LogPosition) -> Self {
        let mut next = self.clone();
        next.files_changes += 1;
        next.active = Memtable::default();
        next.sealed.clear();
        next.truncated = position.index;
        next.applied = position;
        let files = std::mem::take(&mut next.files);
        next.doom(files.values().map(|entry| Arc::clone(&entry.handle)).collect());
        next
    }

    /// The state after a change of the schema; `active` and `sealed` (by number) are the memtables under its layout.
    pub(crate) fn reshaped(
        &self,
        position: LogPosition,
        layout: Arc<Layout>,
        active: Memtable,
        sealed: &BTreeMap<u64, Arc<Sealed>>,
    ) -> Result<Self> {
        let handles = self.files.values().map(|entry| Arc::clone(&entry.handle)).collect();
        let sealed = self.sealed.iter().filter_map(|old| sealed.get(&old.number).cloned());
        Ok(Self {
            files: entries(&layout, handles)?,
            layout,
            active,
            sealed: sealed.collect(),
            applied: position,
            ..self.clone()
        })
    }

    /// The state after an entry has changed the partition's range; everything before the entry is in files, some of
    /// which are `removed` and others `added`. The durable position stays.
    pub(crate) fn resized(
        &self,
        layout: Arc<Layout>,
        removed: &[FileId],
        added: Vec<Arc<FileHandle>>,
        position: LogPosition,
        width: Option<i64>,
    ) -> Result<Self> {
        let remaining = self.files.values().map(|entry| Arc::clone(&entry.handle));
        let remaining = remaining.filter(|handle| !removed.contains(&handle.meta.id));
        let mut next = Self {
            files: entries(&layout, remaining.chain(added).collect())?,
            layout,
            files_changes: self.files_changes + 1,
            active: Memtable::default(),
            sealed: Vec::new(),
            sealed_index: position.index,
            applied: position,
            width,
            ..self.clone()
        };
        next.doomed.retain(|doomed| !removed.contains(&doomed.handle.meta.id));
        Ok(next)
    }

    /// The state after the manifest has recorded everything that was applied.
    pub(crate) fn recorded(&self, durable: Durable) -> Self {
        Self { durable: Some(durable), ..self.clone() }
    }

    /// True if every applied entry is in files.
    pub(crate) fn is_flushed(&self) -> bool {
        let upto = self.durable.as_ref().map_or(0, |durable| durable.index);
        self.sealed.is_empty() && self.active.runs.is_empty() && upto == self.applied.index
    }

    fn doom(&mut self, files: Vec<Arc<FileHandle>>) {
        let truncated = self.truncated;
        self.doomed.extend(files.into_iter().map(|handle| Doomed { truncated, handle }));
    }

    /// The handle of a file that the manifest names.
    pub(crate) fn handle(&self, id: FileId) -> Option<Arc<FileHandle>> {
        let doomed = || self.doomed.iter().map(|doomed| &doomed.handle).find(|h| h.meta.id == id);
        self.files.get(&id).map(|entry| &entry.handle).or_else(doomed).cloned()
    }

    /// Bytes in memtables.
    pub(crate) fn memtable_bytes(&self) -> u64 {
        let sealed: u64 = self.sealed.iter().map(|sealed| sealed.memtable.bytes).sum();
        sealed + self.active.bytes
    }
}

fn entries(
    layout: &Layout,
    files: Vec<Arc<FileHandle>>,
) -> Result<Arc<BTreeMap<FileId, FileEntry>>> {
    let entries = files.into_iter().map(|handle| {
        let id = handle.meta.id;
        FileEntry::new(handle, layout).map(|entry| (id, entry))
    });
    Ok(Arc::new(entries.collect::<Result<_>>()?))
}
