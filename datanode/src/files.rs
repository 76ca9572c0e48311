//! Where a datanode keeps the files of its replicas: a directory, or whatever a simulation puts in its place.
//!
//! On disk: `<id>/` for each replica. A replica is dropped by renaming its directory to `<id>.dropped` first, so that a
//! crash in the middle leaves either the whole replica or something that the next start removes. A damaged one becomes
//! `<id>.damaged-<n>` and stays.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use partita_engine::LocalStore;
use partita_proto::error::Error;
use partita_proto::id::PartitionId;
use tracing::warn;

/// What a replica's directory is called while it is being dropped.
const DROPPED: &str = "dropped";

/// The files of a node's replicas. A replica's are below its partition's number.
pub trait Files: Send + Sync {
    /// Where they are read and written. A put that was answered survives a power cut.
    fn store(&self) -> Arc<dyn ObjectStore>;

    /// The partitions that have files, or had begun to.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when they cannot be listed.
    fn partitions(&self) -> Result<BTreeSet<PartitionId>, Error>;

    /// Removes all files of a partition, durably, if there are any.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when that did not work; it may be ordered again.
    fn remove(&self, partition: PartitionId) -> Result<(), Error>;

    /// Puts the files of a partition where nothing looks at them but people; says where.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when that did not work.
    fn put_aside(&self, partition: PartitionId) -> Result<String, Error>;
}

/// Files in a directory.
pub(crate) struct LocalFiles {
    root: PathBuf,
    store: Arc<LocalStore>,
}

impl LocalFiles {
    /// Opens the directory; makes it if it is not there.
    pub(crate) fn open(root: PathBuf) -> Result<Self, Error> {
        std::fs::create_dir_all(&root).map_err(|error| io_error(&root, &error))?;
        let store =
            LocalStore::open(&root).map_err(|error| Error::Unavailable(error.to_string()))?;
        Ok(Self { root, store: Arc::new(store) })
    }
}

impl Files for LocalFiles {
    fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::<LocalStore>::clone(&self.store)
    }

    fn partitions(&self) -> Result<BTreeSet<PartitionId>, Error> {
        let mut found = BTreeSet::new();
        for entry in std::fs::read_dir(&self.root).map_err(|error| io_error(&self.root, &error))? {
            let entry = entry.map_err(|error| io_error(&self.root, &error))?;
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Ok(id) = name.parse::<u64>() {
                found.insert(PartitionId(id));
            } else if path.extension().is_some_and(|extension| extension == DROPPED) {
                std::fs::remove_dir_all(&path).map_err(|error| io_error(&path, &error))?;
            } else {
                warn!(path = %path.display(), "not a partition; left alone");
            }
        }
        Ok(found)
    }

    fn remove(&self, partition: PartitionId) -> Result<(), Error> {
        let from = self.root.join(partition.to_string());
        let to = self.root.join(format!("{partition}.{DROPPED}"));
        match std::fs::rename(&from, &to) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(io_error(&from, &error)),
        }
        std::fs::File::open(&self.root)
            .and_then(|dir| dir.sync_all())
            .map_err(|error| io_error(&self.root, &error))?;
        std::fs::remove_dir_all(&to).map_err(|error| io_error(&to, &error))
    }

    fn put_aside(&self, partition: PartitionId) -> Result<String, Error> {
        let from = self.root.join(partition.to_string());
        let mut free = (1..1000).map(|number| format!("{partition}.damaged-{number}"));
        let name = free.find(|name| !self.root.join(name).exists()).ok_or_else(|| {
            Error::Unavailable(format!("{} was damaged a thousand times", from.display()))
        })?;
        let to = self.root.join(name);
        std::fs::rename(&from, &to)
            .and_then(|()| std::fs::File::open(&self.root)?.sync_all())
            .map_err(|error| io_error(&from, &error))?;
        Ok(to.display().to_string())
    }
}

fn io_error(path: &Path, error: &std::io::Error) -> Error {
    let message = format!("{}: {error}", path.display());
    match error.kind() {
        std::io::ErrorKind::StorageFull => Error::DiskFull(message),
        _ => Error::Unavailable(message),
    }
}
