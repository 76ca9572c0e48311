//! The metrics of load.

use serde::{Deserialize, Serialize};

/// Number of metrics kept for every cell; the others follow from them.
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
    /// Rows written and read, per second.
    Operations,
}

impl Metric {
    /// All metrics.
    pub const ALL: [Metric; METRICS + 1] =
        [Metric::WriteRows, Metric::ReadRows, Metric::WriteBytes, Metric::Busy, Metric::Operations];
    /// The metrics that are kept, in the order of their values in a load.
    pub(crate) const KEPT: [Metric; METRICS] =
        [Metric::WriteRows, Metric::ReadRows, Metric::WriteBytes, Metric::Busy];

    /// Index in [`Metric::ALL`]; for metrics that are kept also that of their value in a load.
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Self::WriteRows => 0,
            Self::ReadRows => 1,
            Self::WriteBytes => 2,
            Self::Busy => 3,
            Self::Operations => 4,
        }
    }

    /// The metric's value in a load.
    pub(crate) fn of(self, values: &[f32; METRICS]) -> f32 {
        match self {
            Self::WriteRows => values[0],
            Self::ReadRows => values[1],
            Self::WriteBytes => values[2],
            Self::Busy => values[3],
            Self::Operations => values[0] + values[1],
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
            Self::Operations => "operations",
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
            Self::Operations => "rows written and read/s",
        }
    }

    /// True if samples of reads, not of writes, give the metric's distribution inside a partition.
    pub(crate) fn is_of_reads(self) -> bool {
        self == Self::ReadRows
    }
}
