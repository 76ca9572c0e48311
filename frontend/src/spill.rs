//! The directory to which queries spill, and the removal of what ended processes left there.
//!
//! ```text
//!   LOCK                locked in shared mode by each process that spills here, as long as it runs
//!   datafusion-XXXXXX   one directory for each such process; DataFusion names it
//! ```
//!
//! Invariant: a process removes its own directory, and those of others only if none of these runs: it first locks the
//! file exclusively, and no process makes a directory without the shared lock.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

const LOCK_FILE: &str = "LOCK";
/// Prefix of the directories that DataFusion makes.
const PREFIX: &str = "datafusion-";

/// A directory in which this process may spill.
#[derive(Debug)]
pub(crate) struct SpillDirectory {
    lock: File,
}

impl SpillDirectory {
    /// Creates the directory if it does not exist, and removes what ended processes left in it.
    ///
    /// # Errors
    /// If the directory cannot be created, read or locked.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let path = dir.join(LOCK_FILE);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        match lock.try_lock() {
            Ok(()) => {
                remove_leftovers(dir)?;
                // Another process may remove leftovers before the shared lock: nothing here is ours yet.
                lock.unlock()?;
            }
            // What is there may belong to a running process.
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Waits only while another process removes leftovers.
        lock.lock_shared()?;
        Ok(Self { lock })
    }

    /// Removes these directories of the process, and lets others remove leftovers.
    pub(crate) fn close(&self, directories: &[PathBuf]) {
        for dir in directories {
            remove(dir);
        }
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(%error, "cannot unlock the directory of spilled queries");
        }
    }
}

fn remove_leftovers(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let is_named = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if is_named && entry.file_type()?.is_dir() {
            remove(&entry.path());
        }
    }
    Ok(())
}

/// Removes a directory with its files. What cannot be removed only takes up disk space.
fn remove(dir: &Path) {
    if let Err(error) = std::fs::remove_dir_all(dir)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(dir = %dir.display(), %error, "cannot remove a directory of spilled queries");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FrontendOptions;
    use crate::fake::Fake;

    /// A directory such as DataFusion makes, with a file in it.
    fn spilled(dir: &Path, name: &str) -> PathBuf {
        let path = dir.join(name);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("rows"), b"rows").unwrap();
        path
    }

    #[test]
    fn only_directories_of_ended_processes_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("spill");
        let (leftover, foreign) = (spilled(&root, "datafusion-a"), spilled(&root, "mine"));
        let file = root.join("datafusion-file");
        std::fs::write(&file, b"").unwrap();
        let first = SpillDirectory::open(&root).unwrap();
        assert!(!leftover.exists() && foreign.exists() && file.exists());
        // While a process runs, nothing is removed.
        let running = spilled(&root, "datafusion-b");
        let second = SpillDirectory::open(&root).unwrap();
        let spill = spilled(&root, "datafusion-c");
        second.close(std::slice::from_ref(&spill));
        assert!(running.exists() && !spill.exists());
        // A killed process unlocks the directory and removes nothing.
        drop(first);
        let third = SpillDirectory::open(&root).unwrap();
        assert!(!running.exists() && foreign.exists());
        // It is no error if nothing was spilled.
        third.close(&[root.join("datafusion-d")]);
    }

    #[tokio::test]
    async fn a_frontend_leaves_no_directory_behind() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("spill");
        let leftover = spilled(&root, "datafusion-a");
        let directories = || {
            let entries = std::fs::read_dir(&root).unwrap();
            entries.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
        };
        let options =
            FrontendOptions { spill_dir: Some(root.clone()), ..FrontendOptions::default() };
        let frontend = Fake::new(1).frontend(options).unwrap();
        assert!(!leftover.exists());
        assert_eq!(directories(), 1);
        frontend.remove_spilled();
        assert_eq!(directories(), 0);
    }
}
