//! Samples of the rows that statements write and read, sent to meta by each frontend every few seconds.
//!
//! Invariants: bounded ([`CAUSES_MAX`], [`SECONDS_MAX`], [`SAMPLES_MAX`]); statements have no literals; a lost report
//! loses a few seconds of samples and nothing else.

use partita_load::Intaken;

/// Maximum causes of one report.
pub const CAUSES_MAX: usize = 256;
/// Maximum entries of one report: ten seconds of writes and of reads.
pub const SECONDS_MAX: usize = 20;
/// Maximum samples of one entry.
pub const SAMPLES_MAX: usize = 512;
/// Maximum length of each text of a cause, in bytes.
pub const TEXT_BYTES_MAX: usize = 512;

/// Request of [`crate::service::MetaService::blame`].
#[derive(Clone, Debug, PartialEq)]
pub struct BlameReport {
    /// Random number of the process that took the samples.
    pub source: u64,
    /// Sampled rows of the last seconds, with their causes.
    pub taken: Intaken,
}
