//! What load is counted in.

use serde::{Deserialize, Serialize};

/// Number of metrics that are kept for every cell.
pub const METRICS: usize = 4;

/// One way to count load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Rows written, per second.
    WriteRows,
    /// Rows read, per second.
    ReadRows,
    /// Bytes written, per second.
    WriteBytes,
    /// Share of the time in which a partition's serial write lane was busy, 0 to 1.
    Busy,
}

impl Metric {
    /// All of them, in the order in which loads are given.
    pub const ALL: [Metric; METRICS] =
        [Metric::WriteRows, Metric::ReadRows, Metric::WriteBytes, Metric::Busy];

    /// Its place in [`Metric::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Self::WriteRows => 0,
            Self::ReadRows => 1,
            Self::WriteBytes => 2,
            Self::Busy => 3,
        }
    }

    /// Its name in addresses and in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WriteRows => "write_rows",
            Self::ReadRows => "read_rows",
            Self::WriteBytes => "write_bytes",
            Self::Busy => "busy",
        }
    }

    /// The metric of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// What a reader is told that it is, with its unit.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::WriteRows => "rows written/s",
            Self::ReadRows => "rows read/s",
            Self::WriteBytes => "bytes written/s",
            Self::Busy => "busy share of the write lane",
        }
    }

    /// Whether the samples of reads, rather than those of writes, say where in a partition it lies.
    pub(crate) fn is_of_reads(self) -> bool {
        self == Self::ReadRows
    }
}
