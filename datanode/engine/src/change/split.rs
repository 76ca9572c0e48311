//! Shrinks a partition's range: its right half becomes a partition of its own. (`absorb.rs` is the inverse.)
//!
//! ```text
//!   [a ............. z)   files: 1 2 3 4
//!   [a ...... m)          files: 1 2 3        resize: one edit of the manifest (`settled.rs`)
//!            [m .... z)   files:     3 4      offspring: the same bytes under a second name
//! ```
//!
//! No row is copied. A file that spans the split key belongs to both; readers leave out the rows outside, and
//! compaction rewrites it without them.
//!
//! Invariants:
//! - every applied entry is in files before a partition's range changes, so that a range and the log position from
//!   which it holds are one edit of the manifest;
//! - a new partition exists completely or not at all: its manifest is written last.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use partita_proto::range::{Bound, TypedRange};

use crate::change::settled::Settled;
use crate::error::{EngineError, Result};
use crate::file::{FileEntry, FileHandle, file_path};
use crate::rows::layout::Layout;
use crate::state::manifest::{Durable, Manifest, Origin, Recorded};
use crate::state::partition::{Partition, PartitionConfig};

/// Maximum files that get their second name at the same time.
const COPIES_MAX: usize = 8;

/// A log position, with the owner's data for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the last entry.
    pub index: u64,
    /// The owner's mark of that entry.
    pub mark: Bytes,
    /// The owner's state as of that entry, for [`Partition::state`].
    pub state: Bytes,
}

impl From<Place> for Durable {
    fn from(place: Place) -> Self {
        Self { index: place.index, mark: place.mark, state: place.state }
    }
}

impl Partition {
    /// Reads the origin of the partition below a root. The outer `Option` is `None` when there is no partition, or its
    /// creation was never finished.
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

    /// Parent of the partition, if it was split off. Never waits: the partition itself may be waiting for space.
    pub fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// The ranges left and right of a key; `None` if the key is not inside the partition's range, or not a valid key.
    pub fn halves(&self, bound: &Bound) -> Option<(TypedRange, TypedRange)> {
        let version = self.version();
        let layout = &version.layout;
        let exact = layout.codec.coerce_bound(bound).is_ok_and(|coerced| *coerced == *bound);
        let key = layout.codec.encode_bound(bound).ok()?;
        if !exact || key <= layout.range.start || !layout.range.contains(&key) {
            return None;
        }
        let TypedRange { start, end } = layout.config.range.clone();
        let left_half = TypedRange { start, end: bound.clone() };
        Some((left_half, TypedRange { start: bound.clone(), end }))
    }

    /// Gives files second names, and returns these. They become durable with the object that names them in
    /// [`crate::After`].
    pub(crate) async fn copy(&self, files: Vec<(Path, Path)>) -> Result<Vec<Path>> {
        let copies = files.into_iter().map(|(source, target)| async move {
            let copied = self.store.copy(&source, &target).await;
            copied.map_err(|error| EngineError::store(&target, &error)).map(|()| target)
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

/// A partition to be split off: its initial manifest and its root. It may be made while its parent continues, as long
/// as the parent's new range is not recorded ([`crate::Unrecorded`]): until then its files are not removed.
pub struct Offspring {
    parent: Arc<Partition>,
    root: Path,
    recorded: Recorded,
    files: Vec<Arc<FileHandle>>,
}

impl Settled {
    /// Prepares the partition below `root`, in the same store, that gets this one's rows in the range of `config`, as
    /// of `place` in its own log.
    ///
    /// # Errors
    /// [`EngineError::InvalidInput`] when the range does not fit the key.
    pub fn offspring(
        &self,
        root: &Path,
        config: PartitionConfig,
        place: Place,
        origin: Origin,
    ) -> Result<Offspring> {
        let layout = Arc::new(Layout::new(Arc::new(config))?);
        let mut metas = BTreeMap::new();
        let mut files = Vec::new();
        for handle in self.files() {
            let entry = FileEntry::new(Arc::clone(handle), &layout)?;
            if !entry.is_outside() {
                metas.insert(handle.meta.id, handle.meta.clone());
                files.push(Arc::clone(handle));
            }
        }
        let recorded = self.begins(Arc::clone(&layout.config), metas, place.into(), origin);
        Ok(Offspring { parent: Arc::clone(self.partition()), root: root.clone(), recorded, files })
    }
}

impl Offspring {
    /// Creates the partition; durable on return.
    ///
    /// # Errors
    /// [`EngineError::AlreadyExists`] when there is one; [`EngineError::DiskFull`], or when the store fails: remove
    /// everything below the root, and try again.
    pub async fn make(&self) -> Result<()> {
        let Self { parent, root, recorded, files } = self;
        let names =
            files.iter().map(|handle| (handle.path.clone(), file_path(root, handle.meta.id)));
        let copied = parent.copy(names.collect()).await?;
        Manifest::begin(Arc::clone(&parent.store), root, recorded.clone(), copied).await.map(drop)
    }
}
