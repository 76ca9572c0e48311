//! History of splits and merges, with their reasons, for operators and for the scheduler.
//!
//! Invariants: shares are in thousandths, so that decisions, storage and comparisons are exact; an event never changes
//! its number, and of two events the one with the larger number was recorded later.

use std::fmt;
use std::time::Duration;

use crate::id::{PartitionId, TableId};
use crate::range::Bound;

/// A share of a whole, in thousandths: 0 to 1,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PerMille(u16);

impl PerMille {
    /// A share; values above 1,000 become 1,000.
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

/// Cause of a split or a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// An operator's order.
    ByHand,
    /// A partition exceeded the load for one partition.
    Load,
    /// A partition exceeded the size for one partition.
    Size,
    /// Two neighbours had so little load that one partition suffices.
    Idle,
    /// A peak of the load is expected.
    Forecast,
}

impl Cause {
    /// All causes.
    pub const ALL: [Self; 5] = [Self::ByHand, Self::Load, Self::Size, Self::Idle, Self::Forecast];

    /// Name, as system tables show it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ByHand => "by hand",
            Self::Load => "load",
            Self::Size => "size",
            Self::Idle => "idle",
            Self::Forecast => "forecast",
        }
    }

    /// The cause of this name; `None` if no cause has it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.name() == name)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reason of a split or a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Cause of the change.
    pub cause: Cause,
    /// Predicted share of the load for the right side of the split; for a merge, the right neighbour's share. `None`:
    /// no prediction.
    pub predicted_larger: Option<PerMille>,
    /// Evidence, in words; may be empty.
    pub note: String,
    /// Time of the decision, milliseconds since 1970 by the clock of meta's leader; `None` in records of earlier
    /// versions.
    pub at_ms: Option<i64>,
}

impl Reason {
    /// The reason of an operator's order.
    #[must_use]
    pub fn by_hand() -> Self {
        Self { cause: Cause::ByHand, predicted_larger: None, note: String::new(), at_ms: None }
    }
}

/// Kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReshapeKind {
    /// One partition became two.
    Split,
    /// Two became one.
    Merge,
}

/// State or result of a split or a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReshapeOutcome {
    /// In progress.
    UnderWay,
    /// Completed.
    Done,
    /// Given up, with the reason.
    GivenUp(String),
}

const UNDER_WAY: &str = "under way";
const DONE: &str = "done";
const GIVEN_UP: &str = "given up: ";

impl ReshapeOutcome {
    /// The outcome that is shown as this text; `None` if none is.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            UNDER_WAY => Some(Self::UnderWay),
            DONE => Some(Self::Done),
            text => text.strip_prefix(GIVEN_UP).map(|why| Self::GivenUp(why.to_owned())),
        }
    }
}

impl fmt::Display for ReshapeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnderWay => f.write_str(UNDER_WAY),
            Self::Done => f.write_str(DONE),
            Self::GivenUp(why) => write!(f, "{GIVEN_UP}{why}"),
        }
    }
}

/// A split or a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReshapeEvent {
    /// Number of the event: the version of the catalog that recorded it.
    pub id: u64,
    /// Time of the decision, milliseconds since 1970 by the clock of meta's leader.
    pub at_ms: i64,
    /// Table of the partitions.
    pub table: TableId,
    /// Split or merge.
    pub kind: ReshapeKind,
    /// The partition that was split, or that absorbed its neighbour.
    pub partition: PartitionId,
    /// The partition that was created, or removed.
    pub other: PartitionId,
    /// First key of the right side.
    pub key: Bound,
    /// Reason of the change.
    pub reason: Reason,
    /// State or result of the change.
    pub outcome: ReshapeOutcome,
    /// Time for which rows could not be written because of the change: rows of the partition for a split, of the right
    /// neighbour for a merge.
    pub stall: Duration,
    /// Time from the beginning to the end, or until now while in progress.
    pub duration: Duration,
    /// Time from the beginning until the new partition was led on its intended node; `None` if that has not happened
    /// yet, or if it was to stay.
    pub relief: Option<Duration>,
    /// Measured share of the load for the right side, once it has been measured.
    pub actual_larger: Option<PerMille>,
    /// True if the change turned out to be useless; `None` until that has been judged.
    pub in_vain: Option<bool>,
}
