//! A partition at rest: every applied entry is in files, and no other task changes them. Changes of the partition's
//! range start from here.
//!
//! ```text
//!   settle: sealed memtables -> files ── resize: range, epoch ── a child of the files (`split.rs`) ── record: one edit
//!           no flush, no edit of the manifest ───────────────────────────────────────────────────────▶
//!                                        readers and writers continue from here
//! ```
//!
//! Waits for the disk are avoided: the files become durable with the first manifest that names them, and a new range
//! takes effect before the partition's own manifest has it. It is then like rows in a memtable: until it is recorded,
//! the log brings it back after a crash.
//!
//! Invariants:
//! - the durable mark passes the entry with the range only with the edit that records it;
//! - if that edit is never made, nothing else is recorded either: the manifest has no row of an entry after one that it
//!   does not have.

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::path::Path;
use partita_proto::id::Epoch;
use partita_proto::range::TypedRange;
use partita_proto::service::PartitionSpec;
use tokio::sync::OwnedMutexGuard;

use crate::change::split::Place;
use crate::error::{EngineError, Result};
use crate::file::{FileEntry, FileHandle, FileId, FileMeta};
use crate::rows::layout::Layout;
use crate::state::edit::{Durable, Edit, Origin};
use crate::state::manifest::{Manifest, Recorded};
use crate::state::partition::Partition;
use crate::state::version::Version;
use crate::write::rewrite::discard;

/// A partition at rest. If it is dropped without a resize, its memtables are unchanged, and the files it wrote are
/// removed when the partition is opened next.
pub struct Settled {
    partition: Arc<Partition>,
    /// Version when the partition came to rest; the rows of its sealed memtables are in `added`.
    version: Arc<Version>,
    /// Files that the manifest does not name yet.
    added: Vec<Arc<FileHandle>>,
    /// Width of time windows, in ticks of the time index; `None` without a time index.
    width: Option<i64>,
    manifest: OwnedMutexGuard<Manifest>,
    _no_flush: OwnedMutexGuard<()>,
}

/// A new range that is in effect and still to be recorded: until then nothing else is recorded, and the partition stops
/// if this is dropped before.
pub struct Unrecorded {
    partition: Arc<Partition>,
    edit: Edit,
    durable: Durable,
    /// Files that may not be durable yet.
    prerequisites: Vec<Path>,
    removed: Vec<Arc<FileHandle>>,
    manifest: OwnedMutexGuard<Manifest>,
    _no_flush: OwnedMutexGuard<()>,
    recorded: bool,
}

impl Partition {
    /// Writes every applied entry into files, which need not be durable yet, and keeps other tasks from changing them.
    /// All memtables must be sealed, and no entry may be applied until the result is dropped or resized.
    ///
    /// # Errors
    /// [`EngineError::DiskFull`]: nothing was changed. Anything else: stop the partition.
    pub async fn settle(self: &Arc<Self>) -> Result<Settled> {
        let no_flush = Arc::clone(&self.flushing).lock_owned().await;
        self.check_running()?;
        let sealed = self.version();
        let mut written = Vec::new();
        let width = match self.write_sealed(&sealed, true, &mut written).await {
            Ok(width) => width.or(sealed.width),
            Err(error) => {
                discard(&self.store, &self.root, &written).await;
                return Err(error);
            }
        };
        let manifest = Arc::clone(&self.manifest).lock_owned().await;
        self.check_running()?;
        // Files may have been merged meanwhile; nothing else may have changed.
        let version = self.version();
        let upto = version.sealed.last().map(|last| last.position.index);
        let upto = upto.or(version.durable.as_ref().map(|durable| durable.index));
        let at_rest = version.active.runs.is_empty()
            && upto.unwrap_or_default() == version.applied.index
            && (version.installs, version.seals) == (sealed.installs, sealed.seals);
        if !at_rest {
            discard(&self.store, &self.root, &written).await;
            return Err(EngineError::Internal(format!(
                "{} has rows that are in no file",
                self.root
            )));
        }
        Ok(Settled {
            partition: Arc::clone(self),
            version,
            added: self.handles(&written),
            width,
            manifest,
            _no_flush: no_flush,
        })
    }
}

impl Settled {
    pub(crate) fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }

    /// All files with rows of the partition, without those that a truncation hides.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Arc<FileHandle>> {
        self.version.files.values().map(|entry| &entry.handle).chain(&self.added)
    }

    /// The initial manifest of a partition that consists of some of the files.
    pub(crate) fn begins(
        &self,
        config: Arc<PartitionSpec>,
        files: BTreeMap<FileId, FileMeta>,
        durable: Durable,
        origin: Origin,
    ) -> Recorded {
        let (durable, origin) = (Some(durable), Some(origin));
        let recorded = self.manifest.recorded().clone();
        Recorded { config, files, durable, origin, width: self.width, ..recorded }
    }

    /// Applies an entry that changes the partition's range and epoch: in effect on return, and durable when it has been
    /// recorded. `None`: the entry was applied already.
    ///
    /// # Errors
    /// [`EngineError::InvalidInput`] when the range does not fit the key: nothing was changed.
    pub fn resize(
        self,
        place: Place,
        range: TypedRange,
        epoch: Epoch,
    ) -> Result<Option<Unrecorded>> {
        let Self { partition, version, added, width, manifest, _no_flush } = self;
        partition.check_running()?;
        if place.index <= version.applied.index {
            return Ok(None);
        }
        // Files that lie outside of the new range are removed; some of them the manifest has never named.
        let config = PartitionSpec {
            range,
            epoch,
            join: false,
            ..PartitionSpec::clone(&version.layout.config)
        };
        let layout = Arc::new(Layout::new(Arc::new(config))?);
        let mut removed: Vec<Arc<FileHandle>> = Vec::new();
        for entry in version.files.values() {
            if FileEntry::new(Arc::clone(&entry.handle), &layout)?.is_outside() {
                removed.push(Arc::clone(&entry.handle));
            }
        }
        removed.extend(version.doomed.iter().map(|doomed| Arc::clone(&doomed.handle)));
        let removed_ids: Vec<FileId> = removed.iter().map(|handle| handle.meta.id).collect();
        let mut new_files = Vec::with_capacity(added.len());
        for handle in added {
            match FileEntry::new(Arc::clone(&handle), &layout)?.is_outside() {
                // The manifest has never named these files.
                true => removed.push(handle),
                false => new_files.push(handle),
            }
        }
        let durable = Durable::from(place);
        let edit = Edit {
            added: new_files.iter().map(|handle| handle.meta.clone()).collect(),
            removed: removed_ids.clone(),
            durable: Some(durable.clone()),
            config: Some(Arc::clone(&layout.config)),
            width,
            origin: None,
        };
        // The new range takes effect now; the edit that names the new files is recorded later.
        let prerequisites = new_files.iter().map(|handle| handle.path.clone()).collect();
        {
            let _applying = partition.applying.lock();
            let position = durable.position();
            partition.update(|current| {
                current.resized(layout, &removed_ids, new_files, position, width)
            })?;
        }
        Ok(Some(Unrecorded {
            partition,
            edit,
            durable,
            prerequisites,
            removed,
            manifest,
            _no_flush,
            recorded: false,
        }))
    }
}

impl Unrecorded {
    /// Makes the range durable, and everything before it.
    ///
    /// # Errors
    /// [`EngineError::DiskFull`]: try again when there is space. Anything else: the partition has stopped.
    pub async fn record(&mut self) -> Result<()> {
        if self.recorded {
            return Ok(());
        }
        let Self { partition, edit, durable, prerequisites, manifest, .. } = self;
        partition.record_after(manifest, edit.clone(), prerequisites.clone()).await?;
        partition.update(|current| Ok(current.recorded(durable.clone())))?;
        self.recorded = true;
        // They are deleted later.
        self.partition.retire(&self.removed);
        Ok(())
    }
}

impl Drop for Unrecorded {
    fn drop(&mut self) {
        if !self.recorded {
            self.partition.stop("a change of its range was not recorded".to_owned());
        }
    }
}
