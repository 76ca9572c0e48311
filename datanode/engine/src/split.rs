//! A smaller range for a partition: its right half becomes a partition of its own. (`absorb.rs` is the way back.)
//!
//! ```text
//!   [a ............. z)   files: 1 2 3 4
//!   [a ...... m)          files: 1 2 3        resize: one edit of the manifest (`settled.rs`)
//!            [m .... z)   files:     3 4      offspring: the same bytes under a second name
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
use crate::file::{FileEntry, FileHandle, file_path};
use crate::layout::Layout;
use crate::manifest::{Durable, Manifest, Origin, Recorded};
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

    /// What the partition was cut off from, if it was. Never waits: the partition may be waiting for space itself.
    pub fn origin(&self) -> Option<Origin> {
        self.origin
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

/// A partition that is to be cut off: what it begins with, and where. It may be made while its parent goes on, as long
/// as that is not recorded ([`crate::Unrecorded`]): until then nobody removes the files.
pub struct Offspring {
    parent: Arc<Partition>,
    root: Path,
    recorded: Recorded,
    files: Vec<Arc<FileHandle>>,
}

impl Settled {
    /// What a partition below `root`, in the same store, is made of that gets what this one has in the range that
    /// `config` says, as of `place` in its own log.
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
    /// Makes it: durable when this answers.
    ///
    /// # Errors
    /// [`EngineError::AlreadyExists`] when there is one; [`EngineError::DiskFull`], or when the store fails: remove what
    /// is below the root, and try again.
    pub async fn make(&self) -> Result<()> {
        let Self { parent, root, recorded, files } = self;
        let names =
            files.iter().map(|handle| (handle.path.clone(), file_path(root, handle.meta.id)));
        let copied = parent.copy(names.collect()).await?;
        Manifest::begin(Arc::clone(&parent.store), root, recorded.clone(), copied).await.map(drop)
    }
}
