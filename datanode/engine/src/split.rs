//! A smaller range for a partition: its right half becomes a partition of its own. (`absorb.rs` is the way back.)
//!
//! ```text
//!   [a ............. z)   files: 1 2 3 4
//!   [a ...... m)          files: 1 2 3        resize: one edit of the manifest (`settled.rs`)
//!            [m .... z)   files:     3 4      split_off: the same bytes under a second name
//! ```
//!
//! No row is copied. A file that reaches over the cut belongs to both; whoever reads it leaves out what lies outside,
//! and compaction writes it again without.
//!
//! Invariants:
//! - everything that was applied is in files before a partition's range changes, so that a range and the place in the log
//!   from which on it holds are one edit of the manifest;
//! - a new partition is there as a whole or not at all: its manifest is written last.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use partita_proto::range::{Bound, TypedRange};

use crate::error::{EngineError, Result};
use crate::file::{FileEntry, file_path};
use crate::layout::Layout;
use crate::manifest::{Durable, Manifest, Origin};
use crate::partition::{Partition, PartitionConfig};
use crate::settled::Settled;

/// Files that get their second name at the same time.
const COPIES_MAX: usize = 8;

/// A place in the log, and what the owner keeps with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The index of the last entry.
    pub index: u64,
    /// The owner's mark of it.
    pub mark: Bytes,
    /// What [`Partition::state`] gives as of it.
    pub state: Bytes,
}

impl From<Place> for Durable {
    fn from(place: Place) -> Self {
        Self { index: place.index, mark: place.mark, state: place.state }
    }
}

impl Partition {
    /// Where the partition below a root comes from; `None` when there is none, or its creation was never finished.
    /// The outer `Some` says that there is one.
    ///
    /// # Errors
    /// [`EngineError::Corrupted`] when its manifest cannot be trusted, or when the store fails.
    pub async fn origin_at(
        store: &Arc<dyn ObjectStore>,
        root: &Path,
    ) -> Result<Option<Option<Origin>>> {
        match Manifest::open(Arc::clone(store), root).await {
            Ok(manifest) => Ok(Some(manifest.recorded().origin)),
            Err(EngineError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the partition was cut off from, if it was.
    pub async fn origin(&self) -> Option<Origin> {
        self.manifest.lock().await.recorded().origin
    }

    /// What is left and right of a key of the partition's range; `None` if it is not inside of it, or not a key.
    pub fn halves(&self, at: &Bound) -> Option<(TypedRange, TypedRange)> {
        let version = self.version();
        let layout = &version.layout;
        let exact = layout.codec.coerce_bound(at).is_ok_and(|coerced| *coerced == *at);
        let key = layout.codec.encode_bound(at).ok()?;
        if !exact || key <= layout.range.start || !layout.range.contains(&key) {
            return None;
        }
        let TypedRange { start, end } = layout.config.range.clone();
        let left = TypedRange { start, end: at.clone() };
        Some((left, TypedRange { start: at.clone(), end }))
    }

    /// Gives files second names, and answers these. They are durable with what is put after them ([`crate::After`]).
    pub(crate) async fn copy(&self, files: Vec<(Path, Path)>) -> Result<Vec<Path>> {
        let copies = files.into_iter().map(|(from, to)| async move {
            let copied = self.store.copy(&from, &to).await;
            copied.map_err(|error| EngineError::store(&to, &error)).map(|()| to)
        });
        futures::stream::iter(copies).buffer_unordered(COPIES_MAX).try_collect().await
    }

    pub(crate) fn check_flushed(&self) -> Result<()> {
        if self.version().is_flushed() {
            return Ok(());
        }
        Err(EngineError::Internal(format!("{} has rows that are in no file", self.root)))
    }
}

impl Settled {
    /// Makes a partition below `root`, in the same store, of what this one has in the range that `config` says: durable
    /// when this answers, as of `place` in its own log.
    ///
    /// # Errors
    /// [`EngineError::AlreadyExists`] when there is one, [`EngineError::InvalidInput`] when the range does not fit the
    /// key; [`EngineError::DiskFull`], or when the store fails: remove what is below the root, and try again.
    pub async fn split_off(
        &self,
        root: &Path,
        config: PartitionConfig,
        place: Place,
        origin: Origin,
    ) -> Result<()> {
        let layout = Arc::new(Layout::new(Arc::new(config))?);
        let partition = self.partition();
        let mut files = BTreeMap::new();
        let mut copied = Vec::new();
        for handle in self.files() {
            let entry = FileEntry::new(Arc::clone(handle), &layout)?;
            if !entry.is_outside() {
                files.insert(handle.meta.id, handle.meta.clone());
                copied.push((handle.path.clone(), file_path(root, handle.meta.id)));
            }
        }
        let copied = partition.copy(copied).await?;
        let recorded = self.begins(Arc::clone(&layout.config), files, place.into(), origin);
        Manifest::begin(Arc::clone(&partition.store), root, recorded, copied).await.map(drop)
    }
}
