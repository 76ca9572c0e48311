//! Load of the partitions that a node leads, and reads of those that it follows, sent to meta with each heartbeat.
//!
//! Invariants: counters are sums since the beginning of the leader's term, so the next beat makes up for a lost one;
//! samples are those of the last few seconds, so each second is sent several times, and counts once.

use bytes::Bytes;
use partita_load::{Counters, Sketch};

use crate::id::PartitionId;

/// Load of one partition, as counted by its leader.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadBeat {
    /// Partition that the node leads.
    pub partition: PartitionId,
    /// The leader's term.
    pub term: u64,
    /// Beginning of the counters, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// Time of the beat: `since_ms` plus the time passed since, by a monotonic clock.
    pub at_ms: u64,
    /// Sums since `since_ms`.
    pub counters: Counters,
    /// Bytes of files and memtables.
    pub size_bytes: u64,
    /// Number of waiting writes.
    pub queue_depth: u32,
    /// Latency of writes that ended since the previous beat.
    pub writes: Latency,
    /// Latency of opening scans, for those opened since the previous beat.
    pub reads: Latency,
    /// The highest key written since the replica was opened.
    pub highest: Option<Bytes>,
    /// Sketch of written keys.
    pub write_keys: Sketch,
    /// Sketch of read keys and ranges.
    pub read_keys: Sketch,
}

/// Reads of one partition that a replica answered while it did not lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowerReads {
    /// Partition that the node does not lead.
    pub partition: PartitionId,
    /// Beginning of the counters, in milliseconds since the Unix epoch: when the replica began to follow.
    pub since_ms: u64,
    /// Sums since `since_ms`; zero for everything but reads.
    pub counters: Counters,
}

/// Quantiles of a duration, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Number of samples.
    pub count: u64,
    /// The median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Maximum.
    pub max: u64,
}
