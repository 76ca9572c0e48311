//! What a node tells meta of the load of the partitions that it leads, with each heartbeat.
//!
//! Invariants: counters are sums since the leader's term began, so a beat that is lost is made up for by the next;
//! samples are those of the last few seconds, so a second comes more than once, and counts once.

use bytes::Bytes;
use partita_load::{Counters, Sketch};

use crate::id::PartitionId;

/// The load of one partition, as its leader has counted it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadBeat {
    /// The partition.
    pub partition: PartitionId,
    /// The leader's term.
    pub term: u64,
    /// When it began to count, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// When it said this: `since_ms` and what passed since, by a clock that does not go back.
    pub at_ms: u64,
    /// The sums.
    pub counters: Counters,
    /// Bytes of files and memtables.
    pub size_bytes: u64,
    /// Writes that wait.
    pub queue_depth: u32,
    /// How long writes took that ended since the beat before.
    pub writes: Latency,
    /// How long scans took to open that ended since the beat before.
    pub reads: Latency,
    /// The highest key that was written since the replica was opened.
    pub highest: Option<Bytes>,
    /// Keys of writes.
    pub write_keys: Sketch,
    /// Keys and ranges of reads.
    pub read_keys: Sketch,
}

/// Quantiles of a duration, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// The median.
    pub p50: u64,
    /// One of a hundred took longer.
    pub p99: u64,
    /// One of a thousand took longer.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}
