//! Samples of the rows that statements write and read, and the times for which writes were held up, sent to meta by each
//! frontend every few seconds.
//!
//! Invariants: bounded ([`CAUSES_MAX`], [`SECONDS_MAX`], [`SAMPLES_MAX`], [`STALLS_MAX`]); statements have no literals; a
//! lost report loses a few seconds of samples and nothing else.

use std::time::Duration;

use partita_load::Intaken;

use crate::id::PartitionId;

/// Maximum causes of one report.
pub const CAUSES_MAX: usize = 256;
/// Maximum entries of one report: ten seconds of writes and of reads.
pub const SECONDS_MAX: usize = 20;
/// Maximum samples of one entry.
pub const SAMPLES_MAX: usize = 512;
/// Maximum stalls of one report.
pub const STALLS_MAX: usize = 256;
/// Maximum length of each text of a cause, in bytes.
pub const TEXT_BYTES_MAX: usize = 512;

/// Request of [`crate::service::MetaService::blame`].
#[derive(Clone, Debug, PartialEq)]
pub struct BlameReport {
    /// Random number of the process that took the samples.
    pub source: u64,
    /// Sampled rows of the last seconds, with their causes.
    pub taken: Intaken,
    /// Writes that were held up by changes of their partitions.
    pub stalls: Vec<Stall>,
}

/// A write that was sent again because its partition was split, merged, or led by another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Partition that took it in the end.
    pub partition: PartitionId,
    /// Time from its first request until it had taken effect.
    pub time: Duration,
    /// Time since it had taken effect.
    pub ago: Duration,
}
