//! What became of splits and merges, and why they were wanted: what operators and the scheduler by load look back at.
//!
//! Invariants: shares are per thousand, so that what is decided, stored and compared is exact; an event keeps its
//! number for ever, and of two events the one with the larger number was recorded later.

use std::fmt;
use std::time::Duration;

use crate::id::{PartitionId, TableId};
use crate::range::Bound;

/// A share of a whole, in thousandths: 0 to 1,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PerMille(u16);

impl PerMille {
    /// A share; what is above the whole is the whole.
    #[must_use]
    pub fn new(thousandths: u16) -> Self {
        Self(thousandths.min(1000))
    }

    /// The thousandths.
    #[must_use]
    pub fn get(self) -> u16 {
        self.0
    }
}

/// Who or what wanted a split or a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// An operator.
    ByHand,
    /// A partition had more load than one should have.
    Load,
    /// A partition had more bytes than one should have.
    Size,
    /// Two neighbours had so little that one partition is enough.
    Idle,
}

impl Cause {
    /// Its name, as tables of the system show it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ByHand => "by hand",
            Self::Load => "load",
            Self::Size => "size",
            Self::Idle => "idle",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a split or a merge is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// What wanted it.
    pub cause: Cause,
    /// The share of the load that the right side of the cut was expected to get; for a merge, what the right
    /// neighbour had. `None`: nobody said.
    pub predicted_larger: Option<PerMille>,
    /// The evidence, in words; may be empty.
    pub note: String,
    /// When it was wanted, milliseconds since 1970 by the clock of meta's leader; versions before did not say.
    pub at_ms: Option<i64>,
}

impl Reason {
    /// An operator's wish.
    #[must_use]
    pub fn by_hand() -> Self {
        Self { cause: Cause::ByHand, predicted_larger: None, note: String::new(), at_ms: None }
    }
}

/// Which of the two it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReshapeKind {
    /// One partition became two.
    Split,
    /// Two became one.
    Merge,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReshapeOutcome {
    /// Not yet.
    UnderWay,
    /// As was wanted.
    Done,
    /// It did not happen, and this is why.
    GivenUp(String),
}

/// A split or a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReshapeEvent {
    /// Its number: the version of the catalog that recorded it.
    pub id: u64,
    /// When it was wanted, milliseconds since 1970 by the clock of meta's leader.
    pub at_ms: i64,
    /// The table.
    pub table: TableId,
    /// Split or merge.
    pub kind: ReshapeKind,
    /// The partition that was cut, or that took over its neighbour.
    pub partition: PartitionId,
    /// The partition that began, or that went.
    pub other: PartitionId,
    /// The first key of the right side.
    pub key: Bound,
    /// Why.
    pub reason: Reason,
    /// How it ended.
    pub outcome: ReshapeOutcome,
    /// For how long rows could not be written because of it: of the partition, for a split; of the right neighbour,
    /// for a merge.
    pub stall: Duration,
    /// From the beginning to the end, as far as it has come.
    pub duration: Duration,
    /// From the beginning until the new partition was led from where it is meant to be led from; none if it has not come
    /// so far, or was to stay.
    pub relief: Option<Duration>,
    /// The share of the load that the right side really got, once that was looked at.
    pub actual_larger: Option<PerMille>,
    /// Whether it turned out to be of no use, once that was looked at.
    pub in_vain: Option<bool>,
}
