//! Workloads: what the clients of a run do, how many there are, and the tables that they need.

use clap::ValueEnum;
use partita_proto::service::Ddl;

use crate::tables::{self, CLAIMS, COUNTERS, EVENTS, KEYED};
use crate::wide_rows::{self, WIDE};

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// Writes, reads and exchanges of keys, and appends.
    Mixed,
    /// Additions to counters, claims of keys, and numbers of a sequence, each to count once.
    Counters,
    /// Increments and check-and-mutates of wide rows, each to count once.
    Wide,
}

impl Workload {
    /// Number of clients.
    pub(crate) fn clients(self) -> u64 {
        match self {
            Self::Mixed => 4,
            Self::Counters | Self::Wide => 32,
        }
    }

    /// Tables that the clients use.
    pub(crate) fn tables(self) -> &'static [&'static str] {
        match self {
            Self::Mixed => &[KEYED, EVENTS],
            Self::Counters => &[COUNTERS],
            Self::Wide => &[WIDE],
        }
    }

    /// Orders that create these tables, by name.
    pub(crate) fn creation(self, replicas: u32) -> Vec<(&'static str, Ddl)> {
        match self {
            Self::Mixed => vec![
                (KEYED, tables::create(KEYED, replicas, &[4])),
                (EVENTS, tables::create(EVENTS, replicas, &[3, 6])),
            ],
            Self::Counters => vec![(COUNTERS, tables::create(COUNTERS, replicas, &[4 * CLAIMS]))],
            Self::Wide => vec![(WIDE, wide_rows::create(replicas))],
        }
    }
}
