//! Extends a partition's range: it absorbs the rows of its right neighbour.
//!
//! ```text
//!   [a ...... m)  files: 1 2        [m .... z)  files: 1 3      (1: cut once, and not written again since)
//!   [a ................... z)  files: 1' 2 4' 5                 1': the part of 1 before m; 4', 5: the neighbour's
//! ```
//!
//! No row is copied: the neighbour's files get second names among this partition's. The two partitions have no key in
//! common, so it does not matter which file is older.
//!
//! Invariants:
//! - rows outside of a partition's earlier range never come back when the range grows: a file with such rows records
//!   the part that counts ([`crate::file::Within`]);
//! - files, range and log position change in one edit of the manifest.

use std::collections::BTreeMap;
use std::sync::Arc;

use partita_proto::id::Epoch;
use partita_proto::range::{Bound, TypedRange};
use partita_proto::service::PartitionSpec;

use crate::change::split::Place;
use crate::error::{EngineError, Result};
use crate::file::{FileEntry, FileHandle, FileId, FileMeta, file_path};
use crate::rows::layout::Layout;
use crate::state::manifest::{Durable, Edit, Manifest};
use crate::state::partition::Partition;
use crate::write::rewrite::discard;

/// A file of the neighbour, with its metadata in this partition.
struct Coming {
    from: Arc<FileHandle>,
    /// Metadata of the file in this partition.
    meta: FileMeta,
}

impl Partition {
    /// The range extended to `end`; `None` if `end` does not lie behind its present end, or is no valid bound.
    pub fn widened(&self, end: &Bound) -> Option<TypedRange> {
        let version = self.version();
        let layout = &version.layout;
        let exact = layout.codec.coerce_bound(end).is_ok_and(|coerced| *coerced == *end);
        let key = layout.codec.encode_bound(end).ok()?;
        let current_end = layout.range.end.as_ref()?;
        let is_behind = end.is_empty() || key > *current_end;
        let start = layout.config.range.start.clone();
        (exact && is_behind).then(|| TypedRange { start, end: end.clone() })
    }

    /// True if `right` begins where this partition ends, and itself ends at `end`.
    pub fn is_left_of(&self, right: &Self, end: &Bound) -> bool {
        let (local, neighbour) = (self.version(), right.version());
        let end_of = |layout: &Layout| (!end.is_empty()).then(|| layout.codec.encode_bound(end));
        local.layout.range.end.as_ref() == Some(&neighbour.layout.range.start)
            && end_of(&neighbour.layout).transpose() == Ok(neighbour.layout.range.end.clone())
    }

    /// Applies a log entry that transfers the files of `right`, a partition in the same store that begins where this
    /// one ends, to this partition, with a new range and epoch; durable on return. All earlier entries must be in
    /// files, and so must all rows that `right` ever had. An entry that was applied already is ignored.
    ///
    /// # Errors
    /// [`EngineError::InvalidInput`] when the range does not fit the key, [`EngineError::DiskFull`]: nothing was
    /// changed. Anything else: stop the partition.
    pub async fn absorb(
        &self,
        place: Place,
        range: TypedRange,
        epoch: Epoch,
        right: &Self,
    ) -> Result<()> {
        // Hold the neighbour's files, and keep flushes and manifest edits away. Both sides must have all rows in files.
        let (theirs, handles) = right.pin_files().await?;
        let _no_flush = self.flushing.lock().await;
        let mut manifest = self.manifest.lock().await;
        self.check_running()?;
        let version = self.version();
        if place.index <= version.applied.index {
            return Ok(());
        }
        self.check_flushed()?;
        right.check_no_rows_in_memory()?;
        let old = Arc::clone(&version.layout);
        let config =
            PartitionSpec { range, epoch, join: false, ..PartitionSpec::clone(&old.config) };
        let layout = Arc::new(Layout::new(Arc::new(config))?);
        // Files that reach beyond the present range record the part that counts, before the range grows.
        let mut clipped = Vec::new();
        for entry in version.files.values().filter(|entry| entry.is_clipped()) {
            clipped.push(Arc::new(entry.handle.with_meta(entry.kept_within(&old)?)));
        }
        let doomed: Vec<_> = version.doomed.iter().map(|file| Arc::clone(&file.handle)).collect();
        drop(version);
        // Give the neighbour's files second names. They may become durable as late as the edit that names them.
        let coming = coming(&mut manifest, &handles, &right.version().layout)?;
        let added: Vec<FileMeta> = coming.iter().map(|file| file.meta.clone()).collect();
        let copies =
            coming.iter().map(|file| (file.from.path.clone(), file_path(&self.root, file.meta.id)));
        let copied = match self.copy(copies.collect()).await {
            Ok(copied) => copied,
            Err(error) => {
                discard(&self.store, &self.root, &added).await;
                return Err(error);
            }
        };
        // One edit of the manifest records files, range and log position; without space nothing has changed.
        let width = self.version().width.max(theirs.width);
        let durable = Durable::from(place);
        let forgotten: Vec<FileId> = doomed.iter().map(|handle| handle.meta.id).collect();
        let changed = clipped.iter().map(|handle| handle.meta.clone());
        let edit = Edit {
            added: changed.chain(added.iter().cloned()).collect(),
            removed: forgotten.clone(),
            durable: Some(durable.clone()),
            config: Some(Arc::clone(&layout.config)),
            width,
            origin: None,
        };
        let recorded = self.record_after(&mut manifest, edit, copied).await;
        if let Err(EngineError::DiskFull(_)) = &recorded {
            discard(&self.store, &self.root, &added).await;
        }
        recorded?;
        // Switch to the new version. Files that the edit removed are deleted with their last reader.
        let replaced = clipped.iter().map(|handle| handle.meta.id);
        let removed: Vec<FileId> = replaced.chain(forgotten).collect();
        let files = clipped.into_iter().chain(self.handles(&added)).collect();
        {
            let _applying = self.applying.lock();
            self.update(|current| {
                let position = durable.position();
                Ok(current.resized(layout, &removed, files, position, width)?.recorded(durable))
            })?;
        }
        drop(manifest);
        self.retire(&doomed);
        Ok(())
    }
}

impl Partition {
    fn check_no_rows_in_memory(&self) -> Result<()> {
        match self.stats().memtable_rows {
            0 => Ok(()),
            rows => Err(EngineError::Internal(format!(
                "{} has {rows} rows that are in no file",
                self.root
            ))),
        }
    }
}

/// Metadata of the neighbour's files in this partition: new ids; runs stay runs, and older ones stay older.
fn coming(
    manifest: &mut Manifest,
    handles: &[Arc<FileHandle>],
    theirs: &Layout,
) -> Result<Vec<Coming>> {
    let runs: std::collections::BTreeSet<u64> = handles.iter().map(|file| file.meta.run).collect();
    let runs: BTreeMap<u64, u64> = runs.into_iter().map(|run| (run, manifest.allocate())).collect();
    let mut coming = Vec::with_capacity(handles.len());
    for handle in handles {
        let entry = FileEntry::new(Arc::clone(handle), theirs)?;
        if entry.is_outside() {
            continue;
        }
        let run = runs.get(&handle.meta.run).copied();
        let run = run.ok_or_else(|| EngineError::Internal("a file without a run".to_owned()))?;
        let meta = FileMeta { id: manifest.allocate(), run, ..entry.kept_within(theirs)? };
        coming.push(Coming { from: Arc::clone(handle), meta });
    }
    Ok(coming)
}
