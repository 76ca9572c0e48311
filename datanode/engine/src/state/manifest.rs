//! The manifest: the durable record of a partition's configuration, files and log position.
//!
//! It is a sequence of edits, each an object of its own (`manifest/<number>.edit`), numbered without a gap. Now and
//! then a checkpoint (`manifest/<number>.checkpoint`) replaces everything up to and including its number, and older
//! objects are removed. An edit is put atomically, so it took effect or it did not; the state of the partition is the
//! newest checkpoint and the edits after it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutOptions};
use partita_proto::service::PartitionSpec;

use crate::error::{EngineError, Result};
use crate::file::store::After;
use crate::file::{FileId, FileMeta};
pub(crate) use crate::state::edit::{Durable, Edit, Origin};
use crate::state::edit::{encode, parse};

/// Maximum edits between checkpoints: a start reads that many, and the removal of old objects is spread over them.
const EDITS_MAX: u64 = 64;

/// The state that results from all edits.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) config: Arc<PartitionSpec>,
    pub(crate) files: BTreeMap<FileId, FileMeta>,
    pub(crate) durable: Option<Durable>,
    pub(crate) width: Option<i64>,
    /// Next id of a file or a run.
    pub(crate) next_id: u64,
    /// Parent of a partition that was split off; `None` if it was created empty.
    pub(crate) origin: Option<Origin>,
}

impl Recorded {
    /// The state of a new partition.
    fn new(config: Arc<PartitionSpec>) -> Self {
        let files = BTreeMap::new();
        Self { config, files, durable: None, width: None, next_id: 1, origin: None }
    }

    /// Applies an edit.
    fn apply(&mut self, edit: &Edit, next_id: u64) {
        for id in &edit.removed {
            self.files.remove(id);
        }
        for meta in &edit.added {
            self.files.insert(meta.id, meta.clone());
        }
        if let Some(durable) = &edit.durable {
            self.durable = Some(durable.clone());
        }
        if let Some(config) = &edit.config {
            self.config = Arc::clone(config);
        }
        self.width = edit.width.or(self.width);
        self.origin = edit.origin.or(self.origin);
        self.next_id = self.next_id.max(next_id);
    }

    /// Encodes the state with a checksum: everything besides the files that another replica needs.
    pub(crate) fn to_bytes(&self) -> Bytes {
        encode(&self.as_edit(), self.next_id)
    }

    /// Decodes the result of [`Recorded::to_bytes`].
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let read = parse(bytes).and_then(|(edit, next_id)| {
            let config = edit.config.clone().ok_or_else(|| "has no configuration".to_owned())?;
            let mut recorded = Self::new(config);
            recorded.apply(&edit, next_id);
            Ok(recorded)
        });
        read.map_err(|problem| EngineError::Corrupted(format!("the state of a replica: {problem}")))
    }

    fn as_edit(&self) -> Edit {
        Edit {
            added: self.files.values().cloned().collect(),
            removed: Vec::new(),
            durable: self.durable.clone(),
            config: Some(Arc::clone(&self.config)),
            width: self.width,
            origin: self.origin,
        }
    }
}

/// The manifest of an open partition. One writer at a time.
#[derive(Debug)]
pub(crate) struct Manifest {
    store: Arc<dyn ObjectStore>,
    directory: Path,
    recorded: Recorded,
    /// Number of the last object.
    last: u64,
    /// Number of the last checkpoint.
    checkpoint: u64,
}

impl Manifest {
    /// Creates the manifest of a new partition.
    pub(crate) async fn create(
        store: Arc<dyn ObjectStore>,
        root: &Path,
        config: Arc<PartitionSpec>,
    ) -> Result<Self> {
        Self::begin(store, root, Recorded::new(config), Vec::new()).await
    }

    /// Creates the manifest of a partition with an initial state, atomically. The objects in `prerequisites`, which may
    /// not be durable yet, become durable before it ([`After`]).
    pub(crate) async fn begin(
        store: Arc<dyn ObjectStore>,
        root: &Path,
        recorded: Recorded,
        prerequisites: Vec<Path>,
    ) -> Result<Self> {
        let directory = directory(root);
        if !list(&store, &directory).await?.is_empty() {
            return Err(EngineError::AlreadyExists(root.to_string()));
        }
        let mut manifest = Self { store, directory, recorded, last: 0, checkpoint: 0 };
        manifest.write_checkpoint(prerequisites).await?;
        Ok(manifest)
    }

    /// Reads the manifest of a partition.
    pub(crate) async fn open(store: Arc<dyn ObjectStore>, root: &Path) -> Result<Self> {
        let directory = directory(root);
        // Begin with the newest checkpoint.
        let objects = list(&store, &directory).await?;
        let Some(checkpoint) = objects.iter().filter(|o| o.checkpoint).map(|o| o.number).max()
        else {
            return match objects.is_empty() {
                true => Err(EngineError::NotFound(root.to_string())),
                false => {
                    Err(EngineError::Corrupted(format!("manifest {directory} has no checkpoint")))
                }
            };
        };
        let path = object_path(&directory, checkpoint, true);
        let (edit, next_id) = read(&store, &path).await?;
        let config = edit.config.clone().ok_or_else(|| {
            EngineError::Corrupted(format!("checkpoint {path} has no configuration"))
        })?;
        let mut recorded = Recorded::new(config);
        recorded.apply(&edit, next_id);
        // Then apply the edits after it, in order; a gap means that one was lost.
        let mut last = checkpoint;
        for object in objects.iter().filter(|o| !o.checkpoint && o.number > checkpoint) {
            if object.number != last + 1 {
                return Err(EngineError::Corrupted(format!(
                    "manifest {directory}: edit {} is missing",
                    last + 1
                )));
            }
            let (edit, next_id) =
                read(&store, &object_path(&directory, object.number, false)).await?;
            recorded.apply(&edit, next_id);
            last = object.number;
        }
        Ok(Self { store, directory, recorded, last, checkpoint })
    }

    pub(crate) fn recorded(&self) -> &Recorded {
        &self.recorded
    }

    /// Allocates an id for a file or a run.
    pub(crate) fn allocate(&mut self) -> u64 {
        let id = self.recorded.next_id;
        self.recorded.next_id += 1;
        id
    }

    /// Makes all later ids at least `id`.
    pub(crate) fn allocate_from(&mut self, id: u64) {
        self.recorded.next_id = self.recorded.next_id.max(id);
    }

    /// Makes an edit durable; the objects in `prerequisites`, some of which are perhaps not durable yet, become durable
    /// before it ([`After`]). When this fails with [`EngineError::DiskFull`] nothing was changed; after any other
    /// failure it is unknown whether the edit took effect.
    pub(crate) async fn record(&mut self, edit: Edit, prerequisites: Vec<Path>) -> Result<()> {
        let path = object_path(&self.directory, self.last + 1, false);
        write(&self.store, &path, &edit, self.recorded.next_id, prerequisites).await?;
        self.last += 1;
        self.recorded.apply(&edit, self.recorded.next_id);
        if self.last - self.checkpoint >= EDITS_MAX
            && let Err(error) = self.write_checkpoint(Vec::new()).await
        {
            // The edits are stored; the next one tries again.
            tracing::warn!(manifest = %self.directory, %error, "checkpoint failed");
        }
        Ok(())
    }

    async fn write_checkpoint(&mut self, prerequisites: Vec<Path>) -> Result<()> {
        let path = object_path(&self.directory, self.last, true);
        let edit = self.recorded.as_edit();
        write(&self.store, &path, &edit, self.recorded.next_id, prerequisites).await?;
        self.checkpoint = self.last;
        for object in list(&self.store, &self.directory).await? {
            let old =
                object.number < self.last || (object.number == self.last && !object.checkpoint);
            if old {
                let path = object_path(&self.directory, object.number, object.checkpoint);
                delete(&self.store, &path).await?;
            }
        }
        Ok(())
    }
}

/// Deletes an object; not an error if it is gone already.
pub(crate) async fn delete(store: &Arc<dyn ObjectStore>, path: &Path) -> Result<()> {
    match store.delete(path).await {
        Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(EngineError::store(path, &error)),
    }
}

fn directory(root: &Path) -> Path {
    root.clone().join("manifest")
}

fn object_path(directory: &Path, number: u64, checkpoint: bool) -> Path {
    let kind = if checkpoint { "checkpoint" } else { "edit" };
    directory.clone().join(format!("{number:016}.{kind}"))
}

/// An object of the manifest.
struct Object {
    number: u64,
    checkpoint: bool,
}

/// All objects by number.
async fn list(store: &Arc<dyn ObjectStore>, directory: &Path) -> Result<Vec<Object>> {
    let listed: Vec<_> = store
        .list(Some(directory))
        .try_collect()
        .await
        .map_err(|error| EngineError::store(directory, &error))?;
    let mut objects = Vec::with_capacity(listed.len());
    for meta in listed {
        let name = meta.location.filename().unwrap_or_default();
        let parsed = name.split_once('.').and_then(|(number, kind)| {
            let checkpoint = match kind {
                "checkpoint" => true,
                "edit" => false,
                _ => return None,
            };
            Some(Object { number: number.parse().ok()?, checkpoint })
        });
        match parsed {
            Some(object) => objects.push(object),
            None => {
                tracing::warn!(object = %meta.location, "ignoring an object that is not part of a manifest")
            }
        }
    }
    objects.sort_by_key(|object| object.number);
    Ok(objects)
}

async fn write(
    store: &Arc<dyn ObjectStore>,
    path: &Path,
    edit: &Edit,
    next_id: u64,
    prerequisites: Vec<Path>,
) -> Result<()> {
    let mut options = PutOptions::default();
    if !prerequisites.is_empty() {
        options.extensions.insert(After(prerequisites));
    }
    let put = store.put_opts(path, encode(edit, next_id).into(), options).await;
    put.map(drop).map_err(|error| EngineError::store(path, &error))
}

async fn read(store: &Arc<dyn ObjectStore>, path: &Path) -> Result<(Edit, u64)> {
    let failed = |error| EngineError::store(path, &error);
    let bytes = store.get(path).await.map_err(failed)?.bytes().await.map_err(failed)?;
    parse(&bytes).map_err(|problem| EngineError::Corrupted(format!("{path}: {problem}")))
}
