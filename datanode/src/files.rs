//! Storage of a datanode's replica files: a local directory, or a replacement in simulations.
//!
//! On disk: `CATALOG`, the catalog that the node follows; `OLDER`, the replicas of an older copy; `ASIDE`, the replicas
//! that were put aside; `partitions/<id>/` for each replica. To drop a replica, its directory is first renamed to `<id>.dropped`; once its log is gone, that
//! directory moves to the trash (`trash.rs`). So a crash in the middle leaves either the whole replica or a directory
//! that tells the next start that the replica was dropped; a directory that is missing without it was not dropped. A
//! damaged replica's directory becomes `<id>.damaged-<n>` and stays.

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

/// Directory of the replicas, below the node's directory.
const PARTITIONS: &str = "partitions";
/// File with the position of the catalog that the node follows.
const CATALOG: &str = "CATALOG";
/// File that lists the replicas of an older copy.
const OLDER: &str = "OLDER";
/// File that lists the replicas that were put aside.
const ASIDE: &str = "ASIDE";
/// Suffix of a replica's directory while it is being dropped.
const DROPPED: &str = "dropped";

/// Partitions of which files exist.
#[derive(Debug, Default)]
pub struct Found {
    /// Partitions with files, complete or not.
    pub here: BTreeSet<PartitionId>,
    /// Partitions whose removal has begun.
    pub dropped: BTreeSet<PartitionId>,
}

/// Files of a node's replicas. The files of a replica lie below its partition's number.
pub trait Files: Send + Sync {
    /// Object store for the replicas' files. A put that has returned survives a power cut.
    fn store(&self) -> Arc<dyn ObjectStore>;

    /// Partitions of which any file exists.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when they cannot be listed.
    fn partitions(&self) -> Result<Found, Error>;

    /// Moves all files of a partition out of use, if there are any, and records durably that it was dropped, so that
    /// its log may be removed too. [`Files::remove`] completes the removal.
    ///
    /// # Errors
    /// [`Error::Unavailable`] on failure; the call may be repeated.
    fn begin_removal(&self, partition: PartitionId) -> Result<(), Error>;

    /// Removes all files of a partition, durably, if there are any, and those left by [`Files::begin_removal`].
    ///
    /// # Errors
    /// [`Error::Unavailable`] on failure; the call may be repeated.
    fn remove(&self, partition: PartitionId) -> Result<(), Error>;

    /// As [`Files::remove`], for a replica dropped at `now_ms`: its files may be kept for a while, for people to
    /// inspect.
    ///
    /// # Errors
    /// As [`Files::remove`].
    fn discard(&self, partition: PartitionId, now_ms: i64) -> Result<(), Error> {
        let _not_kept = now_ms;
        self.remove(partition)
    }

    /// Removes files that [`Files::discard`] has kept for at least `keep_ms`, and more where space is short. Call it
    /// often.
    ///
    /// # Errors
    /// [`Error::Unavailable`] on failure; the next call continues.
    fn sweep(&self, now_ms: i64, keep_ms: i64) -> Result<(), Error> {
        let _nothing_kept = (now_ms, keep_ms);
        Ok(())
    }

    /// Moves the files of a partition out of use, to where an operator can inspect them; returns that path.
    ///
    /// # Errors
    /// [`Error::Unavailable`] on failure.
    fn put_aside(&self, partition: PartitionId) -> Result<String, Error>;

    /// The text last saved by [`Files::keep_followed`].
    ///
    /// # Errors
    /// [`Error::Unavailable`] when it cannot be read.
    fn followed(&self) -> Result<Option<String>, Error>;

    /// Saves the position of the catalog that the node follows: atomically and durably.
    ///
    /// # Errors
    /// [`Error::DiskFull`] or [`Error::Unavailable`] on failure.
    fn keep_followed(&self, text: &str) -> Result<(), Error>;

    /// The text last saved by [`Files::keep_older`].
    ///
    /// # Errors
    /// [`Error::Unavailable`] when it cannot be read.
    fn older(&self) -> Result<Option<String>, Error>;

    /// Saves the list of replicas of an older copy: atomically and durably.
    ///
    /// # Errors
    /// [`Error::DiskFull`] or [`Error::Unavailable`] on failure.
    fn keep_older(&self, text: &str) -> Result<(), Error>;

    /// The text last saved by [`Files::keep_aside`].
    ///
    /// # Errors
    /// [`Error::Unavailable`] when it cannot be read.
    fn aside(&self) -> Result<Option<String>, Error>;

    /// Saves the list of replicas that were put aside: atomically and durably.
    ///
    /// # Errors
    /// [`Error::DiskFull`] or [`Error::Unavailable`] on failure.
    fn keep_aside(&self, text: &str) -> Result<(), Error>;
}

/// Files in a directory.
pub(crate) struct LocalFiles {
    dir: PathBuf,
    /// Directory of the replicas.
    root: PathBuf,
    store: Arc<LocalStore>,
    trash: Trash,
}

impl LocalFiles {
    /// Opens a node's directory; creates it if it does not exist.
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

    /// Text of a file in the node's directory; `None` if it does not exist.
    fn small_file(&self, name: &str) -> Result<Option<String>, Error> {
        let path = self.dir.join(name);
        match std::fs::read(&path) {
            // Bytes that are not UTF-8 fail to parse later.
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io_error(&path, &error)),
        }
    }

    /// Replaces the text of a file in the node's directory atomically.
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
        let mut partitions = Found::default();
        for entry in std::fs::read_dir(&self.root).map_err(|error| io_error(&self.root, &error))? {
            let entry = entry.map_err(|error| io_error(&self.root, &error))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let (number, extension) = name.split_once('.').unwrap_or((&name, ""));
            match (number.parse::<u64>(), extension) {
                (Ok(id), "") => drop(partitions.here.insert(PartitionId(id))),
                (Ok(id), DROPPED) => drop(partitions.dropped.insert(PartitionId(id))),
                _ => {
                    warn!(path = %entry.path().display(), "ignoring an entry that is not a partition")
                }
            }
        }
        Ok(partitions)
    }

    fn begin_removal(&self, partition: PartitionId) -> Result<(), Error> {
        let source = self.root.join(partition.to_string());
        if !source.try_exists().map_err(|error| io_error(&source, &error))? {
            return Ok(());
        }
        let target = self.dropped(partition);
        // The directory of an earlier removal would block the rename.
        remove_dir(&target)?;
        std::fs::rename(&source, &target).map_err(|error| io_error(&source, &error))?;
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
        let source = self.dropped(partition);
        match source.try_exists() {
            Ok(true) => self.trash.take(&source, partition, now_ms),
            Ok(false) => Ok(()),
            Err(error) => Err(io_error(&source, &error)),
        }
    }

    fn sweep(&self, now_ms: i64, keep_ms: i64) -> Result<(), Error> {
        self.trash.sweep(now_ms, keep_ms)
    }

    fn put_aside(&self, partition: PartitionId) -> Result<String, Error> {
        let source = self.root.join(partition.to_string());
        let mut free = (1..1000).map(|number| format!("{partition}.damaged-{number}"));
        let name = free.find(|name| !self.root.join(name).exists()).ok_or_else(|| {
            Error::Unavailable(format!(
                "{} has been put aside a thousand times already",
                source.display()
            ))
        })?;
        let target = self.root.join(name);
        std::fs::rename(&source, &target)
            .and_then(|()| std::fs::File::open(&self.root)?.sync_all())
            .map_err(|error| io_error(&source, &error))?;
        Ok(target.display().to_string())
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

    fn aside(&self) -> Result<Option<String>, Error> {
        self.small_file(ASIDE)
    }

    fn keep_aside(&self, text: &str) -> Result<(), Error> {
        self.keep_small_file(ASIDE, text)
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(path: &Path) -> std::io::Result<()> {
    std::fs::File::open(path)?.sync_all()
}

/// Removes a directory and its content, if it exists.
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
