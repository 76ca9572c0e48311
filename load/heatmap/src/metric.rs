//! The metrics of load.

use serde::{Deserialize, Serialize};

/// Number of metrics kept for every cell.
pub const METRICS: usize = 4;

/// A metric of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Rows written, per second.
    WriteRows,
    /// Rows read, per second.
    ReadRows,
    /// Bytes written, per second.
    WriteBytes,
    /// Share of the time in which a partition's serial write lane is busy, 0 to 1.
    Busy,
}

impl Metric {
    /// All metrics, in the order of their values in a load.
    pub const ALL: [Metric; METRICS] =
        [Metric::WriteRows, Metric::ReadRows, Metric::WriteBytes, Metric::Busy];

    /// Index in [`Metric::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Self::WriteRows => 0,
            Self::ReadRows => 1,
            Self::WriteBytes => 2,
            Self::Busy => 3,
        }
    }

    /// Name in URLs and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WriteRows => "write_rows",
            Self::ReadRows => "read_rows",
            Self::WriteBytes => "write_bytes",
            Self::Busy => "busy",
        }
    }

    /// The metric with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// Title with the unit, for people.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::WriteRows => "rows written/s",
            Self::ReadRows => "rows read/s",
            Self::WriteBytes => "bytes written/s",
            Self::Busy => "busy share of the write lane",
        }
    }

    /// True if samples of reads, not of writes, give the metric's distribution inside a partition.
    pub(crate) fn is_of_reads(self) -> bool {
        self == Self::ReadRows
    }
}
