//! Options of a partition for its owner.

use std::sync::Arc;
use std::time::Duration;

use crate::file::blocks::BlockCache;
use crate::index::cache::IndexCache;

const MIB: u64 = 1024 * 1024;

/// Options of a partition. Not stored: they may differ from one start to the next.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Bytes at which a memtable is due to be sealed. Default 64 MiB: large enough that a flush writes files worth
    /// reading, small enough that a node holds many partitions.
    pub memtable_bytes_max: u64,
    /// Maximum age of a memtable with rows before it is due to be flushed, so that a table that is seldom written does
    /// not pin the log. Default 10 minutes.
    pub flush_age: Duration,
    /// Bytes after which a file is closed at the next new key. Default 256 MiB.
    pub file_bytes_target: u64,
    /// Maximum bytes that one compaction reads, except a compaction of all files. Default 2 GiB: bounds its duration
    /// and the additional space that it needs.
    pub compaction_bytes_max: u64,
    /// Number of sorted runs of about one size in one window that are merged into one. Default 4; at most 16, here and
    /// below.
    pub compaction_runs: usize,
    /// The same number while memtables are flushed in quick succession: during a bulk load rows would otherwise be
    /// merged several times. Default 12.
    pub compaction_runs_busy: usize,
    /// Maximum bytes of decoded file footers that a partition keeps in memory. Default 32 MiB.
    pub footer_bytes_max: u64,
    /// Maximum bytes that a partition keeps in memory to find the rows of some series, or the newest row of each, in
    /// its files. Default 16 MiB: a hundred thousand series, or a thousand of them in each of a hundred files.
    pub series_bytes_max: u64,
    /// Cache of the file blocks of small reads. Partitions whose options are clones of each other share one. Default 64
    /// MiB.
    pub blocks: Arc<BlockCache>,
    /// Cache of decoded index segments, shared as the one of blocks. Default 64 MiB.
    pub indexes: Arc<IndexCache>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            memtable_bytes_max: 64 * MIB,
            flush_age: Duration::from_mins(10),
            file_bytes_target: 256 * MIB,
            compaction_bytes_max: 2048 * MIB,
            compaction_runs: 4,
            compaction_runs_busy: 12,
            footer_bytes_max: 32 * MIB,
            series_bytes_max: 16 * MIB,
            blocks: Arc::new(BlockCache::new(64 * MIB)),
            indexes: Arc::new(IndexCache::new(64 * MIB)),
        }
    }
}
