//! Keeps dropped replicas for a while: after a drop by mistake the directory can still be inspected.
//!
//! On disk: `trash/<partition>.<when>` below the node's directory, with the replica's files as they were; `<when>` in
//! milliseconds since the Unix epoch. Its Parquet files have every row and version that was flushed.
//!
//! Invariants:
//! - no replica stays longer than the configured time, and none where the disk is short of space: the oldest goes
//!   first;
//! - the trash never prevents a drop: a replica that cannot be moved here is removed.

use std::path::{Path, PathBuf};

use partita_proto::error::Error;
use partita_proto::id::PartitionId;
use tracing::{info, warn};

use crate::files::{io_error, remove_dir, sync_dir};

/// Directory of the trash, below the node's directory.
const TRASH: &str = "trash";
/// Free bytes below which nothing is kept.
const FREE_BYTES_MIN: u64 = 1 << 30;
/// Reciprocal of the share of the disk that must be free for anything to be kept.
const FREE_SHARE_MIN: u64 = 10;

/// Trash of one node.
pub(crate) struct Trash {
    dir: PathBuf,
}

/// A dropped replica.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Dropped {
    at_ms: i64,
    path: PathBuf,
}

impl Trash {
    pub(crate) fn new(node_dir: &Path) -> Self {
        Self { dir: node_dir.join(TRASH) }
    }

    /// Moves the directory of a replica dropped at `now_ms` into the trash; its name is free afterwards, durably.
    pub(crate) fn take(
        &self,
        dir: &Path,
        partition: PartitionId,
        now_ms: i64,
    ) -> Result<(), Error> {
        let is_empty =
            std::fs::read_dir(dir).map_err(|error| io_error(dir, &error))?.next().is_none();
        if is_empty {
            return remove_dir(dir);
        }
        let moved = std::fs::create_dir_all(&self.dir).and_then(|()| {
            let free = |at_ms: &i64| !self.place(partition, *at_ms).exists();
            let at_ms = (now_ms..).find(free).unwrap_or(now_ms);
            std::fs::rename(dir, self.place(partition, at_ms))?;
            sync_dir(&self.dir)?;
            dir.parent().map_or(Ok(()), sync_dir)
        });
        if let Err(error) = moved {
            warn!(%partition, %error, "removing a dropped replica that could not be moved to the trash");
            return remove_dir(dir);
        }
        Ok(())
    }

    fn place(&self, partition: PartitionId, at_ms: i64) -> PathBuf {
        self.dir.join(format!("{partition}.{at_ms}"))
    }

    /// Removes replicas that have been here for `keep_ms`, and, while the disk is short of space, the oldest ones.
    pub(crate) fn sweep(&self, now_ms: i64, keep_ms: i64) -> Result<(), Error> {
        let mut dropped = self.dropped()?;
        dropped.sort();
        let short = || is_short(&self.dir);
        let remove = |dropped: &Dropped| {
            let removed = remove_dir(&dropped.path);
            if removed.is_ok() {
                info!(path = %dropped.path.display(), "removed a dropped replica from the trash");
            }
            removed
        };
        sweep(&dropped, now_ms.saturating_sub(keep_ms), short, remove)
    }

    fn dropped(&self) -> Result<Vec<Dropped>, Error> {
        let entries = match std::fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io_error(&self.dir, &error)),
        };
        let mut dropped = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| io_error(&self.dir, &error))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // Directories with other names belong to people.
            let at_ms = name.split_once('.').and_then(|(partition, at_ms)| {
                partition.parse::<u64>().ok()?;
                at_ms.parse().ok()
            });
            dropped.extend(at_ms.map(|at_ms| Dropped { at_ms, path }));
        }
        Ok(dropped)
    }
}

/// Removes replicas dropped at `oldest_ms` or before, and more, the oldest first, until the disk is no longer short of
/// space.
fn sweep(
    dropped: &[Dropped],
    oldest_ms: i64,
    short: impl Fn() -> bool,
    mut remove: impl FnMut(&Dropped) -> Result<(), Error>,
) -> Result<(), Error> {
    for replica in dropped {
        if replica.at_ms > oldest_ms && !short() {
            return Ok(());
        }
        remove(replica)?;
    }
    Ok(())
}

/// True if the disk of a directory is too full to keep dropped replicas. A disk whose space cannot be read does not
/// count as full.
fn is_short(dir: &Path) -> bool {
    rustix::fs::statvfs(dir).is_ok_and(|disk| {
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let total = disk.f_blocks.saturating_mul(disk.f_frsize);
        free < FREE_BYTES_MIN || free < total / FREE_SHARE_MIN
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn dropped(at_ms: i64) -> Dropped {
        Dropped { at_ms, path: PathBuf::from(format!("7.{at_ms}")) }
    }

    #[test]
    fn what_is_old_goes_and_what_is_oldest_while_the_disk_is_short() {
        let all: Vec<_> = [10, 20, 30, 40].map(dropped).into();
        let swept = |oldest_ms: i64, too_many: usize| {
            let left = Cell::new(all.len());
            let mut removed = Vec::new();
            let short = || left.get() > 4 - too_many;
            sweep(&all, oldest_ms, short, |one| {
                left.set(left.get() - 1);
                removed.push(one.at_ms);
                Ok(())
            })
            .unwrap();
            removed
        };
        assert_eq!(swept(5, 0), Vec::<i64>::new());
        assert_eq!(swept(20, 0), [10, 20]);
        assert_eq!(swept(5, 1), [10]);
        assert_eq!(swept(20, 3), [10, 20, 30]);
        assert_eq!(swept(5, 4), [10, 20, 30, 40]);
    }

    #[test]
    fn a_replica_comes_here_whole_and_goes_by_the_clock() {
        let dir = tempfile::tempdir().unwrap();
        let trash = Trash::new(dir.path());
        trash.sweep(0, 1).unwrap();
        for _twice in 0..2 {
            let replica = dir.path().join("7.dropped");
            std::fs::create_dir_all(replica.join("files")).unwrap();
            std::fs::write(replica.join("files/1.parquet"), "rows").unwrap();
            trash.take(&replica, PartitionId(7), 1000).unwrap();
            assert!(!replica.exists());
        }
        std::fs::write(dir.path().join("trash/notes.txt"), "a person's").unwrap();
        let here = |name: &str| dir.path().join("trash").join(name).exists();
        let rows = std::fs::read(dir.path().join("trash/7.1000/files/1.parquet")).unwrap();
        assert_eq!(rows, b"rows");
        assert!(here("7.1001"), "the same moment is no reason to lose one");
        // A clock that was put back keeps it.
        trash.sweep(500, 100).unwrap();
        if !is_short(dir.path()) {
            assert!(here("7.1000") && here("7.1001"));
        }
        trash.sweep(1100, 100).unwrap();
        assert!(!here("7.1000"));
        trash.sweep(1101, 100).unwrap();
        assert!(!here("7.1001") && here("notes.txt"));
    }
}
