//! File access of the log, behind one small trait.
//!
//! [`StdDisk`] is used in production. Tests replace it by a disk that loses unsynced bytes.
//!
//! Invariants:
//! - a file's length never changes after [`Disk::create`], so that syncing data never has to sync metadata;
//! - names are durable only after [`Disk::sync_names`], contents only after [`DiskFile::sync`].

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::error::RaftError;

const LOCK_FILE: &str = "LOCK";
/// Zeros are written in pieces of this size.
const ZEROS_BYTES: usize = 1 << 20;

/// A directory of files of fixed length.
pub(crate) trait Disk: Send + Sync + 'static {
    /// The names of all files, sorted.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Opens an existing file.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Makes a file of `bytes` zeros, written (not only reserved) and synced. Leaves nothing behind if it fails.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames a file, replacing any file of the new name.
    fn rename(&self, name: &str, new_name: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes all names durable.
    fn sync_names(&self) -> io::Result<()>;
    /// Location of the file `name`, for messages.
    fn describe(&self, name: &str) -> String;
    /// Lets others use the directory from now on.
    fn release(&self);
    /// Delay before the next write, where time is simulated.
    fn pause(&self) -> Duration {
        Duration::ZERO
    }
}

/// An open file of fixed length in a [`Disk`].
pub(crate) trait DiskFile: Send + Sync + 'static {
    /// Length of the file in bytes.
    fn bytes(&self) -> io::Result<u64>;
    /// Fills `buffer` from `offset` on.
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `data` at `offset`.
    fn write(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// Makes everything written so far durable.
    fn sync(&self) -> io::Result<()>;
}

/// A directory of the real file system, held exclusively.
pub(crate) struct StdDisk {
    dir: PathBuf,
    /// The directory itself, kept open so that names can be synced when the process may open no more files.
    names: File,
    /// Locked until released, or for as long as the value lives.
    lock: File,
}

impl StdDisk {
    /// Opens the directory, creating it if it does not exist, and locks it.
    pub(crate) fn open(dir: &Path) -> Result<Self, RaftError> {
        let failed =
            |context: &str, error| RaftError::io(format!("{context} {}", dir.display()), error);
        std::fs::create_dir_all(dir).map_err(|error| failed("make the directory", error))?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(dir.join(LOCK_FILE))
            .map_err(|error| failed("open the lock file in", error))?;
        match lock.try_lock() {
            Ok(()) => {
                let names = File::open(dir).map_err(|error| failed("open", error))?;
                Ok(Self { dir: dir.to_owned(), names, lock })
            }
            Err(std::fs::TryLockError::WouldBlock) => Err(RaftError::InvalidInput(format!(
                "{} is in use by another process",
                dir.display()
            ))),
            Err(std::fs::TryLockError::Error(error)) => Err(failed("lock", error)),
        }
    }
}

impl Disk for StdDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            // A name that is not UTF-8 is not a file of the log.
            if let Ok(name) = entry?.file_name().into_string()
                && name != LOCK_FILE
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.dir.join(name))?;
        Ok(Arc::new(StdFile(file)))
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
        let path = self.dir.join(name);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
        if let Err(error) = write_zeros(&mut file, bytes) {
            // Give the space back at once: the log waits for space.
            if let Err(second) = std::fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), error = %second, "cannot remove an unfinished file");
            }
            return Err(error);
        }
        Ok(Arc::new(StdFile(file)))
    }

    fn rename(&self, name: &str, new_name: &str) -> io::Result<()> {
        std::fs::rename(self.dir.join(name), self.dir.join(new_name))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.dir.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        self.names.sync_all()
    }

    fn describe(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    fn release(&self) {
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(dir = %self.dir.display(), %error, "cannot release the lock");
        }
    }
}

fn write_zeros(file: &mut File, bytes: u64) -> io::Result<()> {
    let zeros = vec![0; ZEROS_BYTES];
    let mut remaining = bytes;
    while remaining > 0 {
        let length =
            usize::try_from(remaining).map_or(ZEROS_BYTES, |remaining| remaining.min(ZEROS_BYTES));
        file.write_all(&zeros[..length])?;
        remaining -= length as u64;
    }
    file.sync_all()
}

struct StdFile(File);

impl DiskFile for StdFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_held_by_one_process_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = StdDisk::open(dir.path()).unwrap();
        let error = StdDisk::open(dir.path()).err().unwrap();
        assert!(error.to_string().contains("in use by another process"), "{error}");
        drop(first);
        StdDisk::open(dir.path()).unwrap();
    }

    #[test]
    fn a_created_file_has_its_full_length_and_keeps_what_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let disk = StdDisk::open(dir.path()).unwrap();
        let file = disk.create("a", 3 << 20).unwrap();
        assert_eq!(file.bytes().unwrap(), 3 << 20);
        file.write(b"here", 100).unwrap();
        file.sync().unwrap();
        disk.rename("a", "b").unwrap();
        disk.sync_names().unwrap();
        let mut back = [0; 6];
        disk.open("b").unwrap().read(&mut back, 99).unwrap();
        assert_eq!(&back, b"\0here\0");
        assert_eq!(disk.names().unwrap(), ["b"]);
    }
}
