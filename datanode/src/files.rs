//! Where a datanode keeps the files of its replicas: a directory, or whatever a simulation puts in its place.
//!
//! On disk: `<id>/` for each replica. A replica is dropped by renaming its directory to `<id>.dropped` first, which goes
//! when its log is gone: so a crash in the middle leaves either the whole replica or something that says to the next start
//! that it was dropped, and a directory that is missing was not. A damaged one becomes `<id>.damaged-<n>` and stays.

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

/// Of which partitions there are files.
#[derive(Debug, Default)]
pub struct Found {
    /// Those that have files, or had begun to.
    pub here: BTreeSet<PartitionId>,
    /// Those whose removal has begun.
    pub dropped: BTreeSet<PartitionId>,
}

/// The files of a node's replicas. A replica's are below its partition's number.
pub trait Files: Send + Sync {
    /// Where they are read and written. A put that was answered survives a power cut.
    fn store(&self) -> Arc<dyn ObjectStore>;

    /// The partitions of which there is something.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when they cannot be listed.
    fn partitions(&self) -> Result<Found, Error>;

    /// Takes all files of a partition away, if there are any, and makes durable that it was dropped: what there is of it
    /// elsewhere may go too. [`Files::remove`] ends it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when that did not work; it may be ordered again.
    fn begin_removal(&self, partition: PartitionId) -> Result<(), Error>;

    /// Removes all files of a partition, durably, if there are any, and what [`Files::begin_removal`] has left.
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

    fn dropped(&self, partition: PartitionId) -> PathBuf {
        self.root.join(format!("{partition}.{DROPPED}"))
    }
}

impl Files for LocalFiles {
    fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::<LocalStore>::clone(&self.store)
    }

    fn partitions(&self) -> Result<Found, Error> {
        let mut found = Found::default();
        for entry in std::fs::read_dir(&self.root).map_err(|error| io_error(&self.root, &error))? {
            let entry = entry.map_err(|error| io_error(&self.root, &error))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let (number, extension) = name.split_once('.').unwrap_or((&name, ""));
            match (number.parse::<u64>(), extension) {
                (Ok(id), "") => drop(found.here.insert(PartitionId(id))),
                (Ok(id), DROPPED) => drop(found.dropped.insert(PartitionId(id))),
                _ => warn!(path = %entry.path().display(), "not a partition; left alone"),
            }
        }
        Ok(found)
    }

    fn begin_removal(&self, partition: PartitionId) -> Result<(), Error> {
        let from = self.root.join(partition.to_string());
        if !from.try_exists().map_err(|error| io_error(&from, &error))? {
            return Ok(());
        }
        let to = self.dropped(partition);
        // What an earlier removal has left would be in the way.
        remove_dir(&to)?;
        std::fs::rename(&from, &to).map_err(|error| io_error(&from, &error))?;
        std::fs::File::open(&self.root)
            .and_then(|dir| dir.sync_all())
            .map_err(|error| io_error(&self.root, &error))
    }

    fn remove(&self, partition: PartitionId) -> Result<(), Error> {
        self.begin_removal(partition)?;
        remove_dir(&self.dropped(partition))
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

/// Removes a directory and what is in it, if it is there.
fn remove_dir(path: &Path) -> Result<(), Error> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error(path, &error)),
        _ => Ok(()),
    }
}

fn io_error(path: &Path, error: &std::io::Error) -> Error {
    let message = format!("{}: {error}", path.display());
    match error.kind() {
        std::io::ErrorKind::StorageFull => Error::DiskFull(message),
        _ => Error::Unavailable(message),
    }
}
