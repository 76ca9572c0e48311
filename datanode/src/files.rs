//! Where a datanode keeps the files of its replicas: a directory, or whatever a simulation puts in its place.
//!
//! On disk: `CATALOG`, the catalog that the node follows; `OLDER`, the replicas of an older copy; `partitions/<id>/` for
//! each replica. A replica is dropped by renaming its directory to `<id>.dropped` first, which goes when its log is gone,
//! to the trash (`trash.rs`): so a crash in the middle leaves either the whole replica or something that says to the next
//! start that it was dropped, and a directory that is missing was not. A damaged one becomes `<id>.damaged-<n>` and stays.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use partita_engine::LocalStore;
use partita_proto::error::Error;
use partita_proto::id::PartitionId;
use tracing::warn;

use crate::trash::Trash;

/// Where replicas are, below the node's directory.
const PARTITIONS: &str = "partitions";
/// The file that says which catalog the node follows.
const CATALOG: &str = "CATALOG";
/// The file that lists the replicas of an older copy.
const OLDER: &str = "OLDER";
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

    /// As [`Files::remove`], of a replica that was dropped at a time: its files may be kept for a while where people
    /// can look at them.
    ///
    /// # Errors
    /// As [`Files::remove`].
    fn discard(&self, partition: PartitionId, now_ms: i64) -> Result<(), Error> {
        let _not_kept = now_ms;
        self.remove(partition)
    }

    /// Removes what [`Files::discard`] has kept for so long, and more where space is short. To be called often.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when that did not work; the next call goes on.
    fn sweep(&self, now_ms: i64, keep_ms: i64) -> Result<(), Error> {
        let _nothing_kept = (now_ms, keep_ms);
        Ok(())
    }

    /// Puts the files of a partition where nothing looks at them but people; says where.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when that did not work.
    fn put_aside(&self, partition: PartitionId) -> Result<String, Error>;

    /// What [`Files::keep_followed`] kept last.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when it cannot be read.
    fn followed(&self) -> Result<Option<String>, Error>;

    /// Keeps which catalog the node follows, durably, whole or not at all.
    ///
    /// # Errors
    /// [`Error::DiskFull`] or [`Error::Unavailable`] when that did not work.
    fn keep_followed(&self, text: &str) -> Result<(), Error>;

    /// What [`Files::keep_older`] kept last.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when it cannot be read.
    fn older(&self) -> Result<Option<String>, Error>;

    /// Keeps which replicas are of an older copy, durably, whole or not at all.
    ///
    /// # Errors
    /// [`Error::DiskFull`] or [`Error::Unavailable`] when that did not work.
    fn keep_older(&self, text: &str) -> Result<(), Error>;
}

/// Files in a directory.
pub(crate) struct LocalFiles {
    dir: PathBuf,
    /// Where the replicas are.
    root: PathBuf,
    store: Arc<LocalStore>,
    trash: Trash,
}

impl LocalFiles {
    /// Opens a node's directory; makes it if it is not there.
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        let root = dir.join(PARTITIONS);
        std::fs::create_dir_all(&root).map_err(|error| io_error(&root, &error))?;
        let store =
            LocalStore::open(&root).map_err(|error| Error::Unavailable(error.to_string()))?;
        Ok(Self { dir: dir.to_owned(), root, store: Arc::new(store), trash: Trash::new(dir) })
    }

    fn dropped(&self, partition: PartitionId) -> PathBuf {
        self.root.join(format!("{partition}.{DROPPED}"))
    }

    /// The text of a file in the node's directory, if it is there.
    fn small_file(&self, name: &str) -> Result<Option<String>, Error> {
        let path = self.dir.join(name);
        match std::fs::read(&path) {
            // What is no text does not parse.
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error(&path, &error)),
        }
    }

    /// Replaces the text of a file in the node's directory, whole or not at all.
    fn keep_small_file(&self, name: &str, text: &str) -> Result<(), Error> {
        let (path, new) = (self.dir.join(name), self.dir.join(format!("{name}.new")));
        let written = std::fs::File::create(&new).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&new, &path)?;
            std::fs::File::open(&self.dir)?.sync_all()
        });
        written.map_err(|error| io_error(&path, &error))
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

    fn discard(&self, partition: PartitionId, now_ms: i64) -> Result<(), Error> {
        self.begin_removal(partition)?;
        let from = self.dropped(partition);
        match from.try_exists() {
            Ok(true) => self.trash.take(&from, partition, now_ms),
            Ok(false) => Ok(()),
            Err(error) => Err(io_error(&from, &error)),
        }
    }

    fn sweep(&self, now_ms: i64, keep_ms: i64) -> Result<(), Error> {
        self.trash.sweep(now_ms, keep_ms)
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

    fn followed(&self) -> Result<Option<String>, Error> {
        self.small_file(CATALOG)
    }

    fn keep_followed(&self, text: &str) -> Result<(), Error> {
        self.keep_small_file(CATALOG, text)
    }

    fn older(&self) -> Result<Option<String>, Error> {
        self.small_file(OLDER)
    }

    fn keep_older(&self, text: &str) -> Result<(), Error> {
        self.keep_small_file(OLDER, text)
    }
}

/// Makes durable which names are in a directory.
pub(crate) fn sync_dir(path: &Path) -> std::io::Result<()> {
    std::fs::File::open(path)?.sync_all()
}

/// Removes a directory and what is in it, if it is there.
pub(crate) fn remove_dir(path: &Path) -> Result<(), Error> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error(path, &error)),
        _ => Ok(()),
    }
}

pub(crate) fn io_error(path: &Path, error: &std::io::Error) -> Error {
    let message = format!("{}: {error}", path.display());
    match error.kind() {
        std::io::ErrorKind::StorageFull => Error::DiskFull(message),
        _ => Error::Unavailable(message),
    }
}
