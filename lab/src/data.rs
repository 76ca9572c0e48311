//! Options that select a data set: the same for generating, loading and querying.

use std::time::Duration;

use crate::civil::{self, SECOND_NS};
use crate::cpu::Spec;

/// Options that select a data set.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Data {
    /// Number of hosts, which are series.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) hosts: u32,
    /// Time from the first row to the end: 10m, 24h, 2d.
    #[arg(long, default_value = "24h", value_parser = civil::parse_span)]
    pub(crate) span: Duration,
    /// Interval between two rows of a host.
    #[arg(long, default_value = "10s", value_parser = civil::parse_span)]
    pub(crate) interval: Duration,
    /// Time of the first row.
    #[arg(long, default_value = "2016-01-01T00:00:00Z", value_parser = civil::parse)]
    pub(crate) start: i64,
    /// Seed of the data set.
    #[arg(long, default_value_t = 123)]
    pub(crate) seed: u64,
}

impl Data {
    /// Number of rows in the whole span.
    pub(crate) fn rows(&self) -> u64 {
        let intervals = self.span.as_secs().div_ceil(self.interval.as_secs().max(1));
        intervals.saturating_mul(u64::from(self.hosts))
    }

    /// Specification for the generator; `rows` overrides the number of rows in the span.
    pub(crate) fn spec(&self, rows: Option<u64>) -> Spec {
        Spec {
            hosts: self.hosts,
            start_ns: self.start.saturating_mul(SECOND_NS),
            interval: self.interval,
            rows: rows.unwrap_or_else(|| self.rows()),
            seed: self.seed,
        }
    }
}
