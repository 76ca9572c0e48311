//! Actions that the scheduler proposes, and their results.
//!
//! Invariants: an action is a proposal with a number that is never reused; it holds its partitions until the owner
//! reports its end, or until it has expired.

use std::fmt;

use crate::facts::{HashOf, NodeId, PartitionId, TableId};
use crate::verdict::{Class, Verdict};

/// Number of a proposal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionId(pub u64);

/// Position of a split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// At this key: the first of the right half.
    Key(Box<[u8]>),
    /// At the key that leaves half of the bytes on either side, as the leader finds it.
    Middle,
    /// Just above the highest key that the leader has: the left half stays full, the right one begins empty.
    HighWater,
    /// At the lowest key that the leader has: the mirror image.
    LowWater,
}

/// Reason of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SplitWhy {
    /// The partition is too busy, and a split divides its load.
    Load,
    /// The partition is too large.
    Size,
    /// The partition is too large and grows at its right end.
    RightEdge,
    /// The partition is too large and grows at its left end.
    LeftEdge,
    /// One key is hot: the split separates the others from it.
    IsolateKey,
    /// The forecast expects a peak, and a split divides it.
    Forecast,
}

impl SplitWhy {
    /// All reasons.
    pub const ALL: [Self; 6] =
        [Self::Load, Self::Size, Self::RightEdge, Self::LeftEdge, Self::IsolateKey, Self::Forecast];

    /// The reason in words, with which the note of a split begins.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Load => "its write lane or its reads are busy, and a split divides the load",
            Self::Size => "it exceeds the partition size",
            Self::RightEdge => "it exceeds the partition size and grows at its right end",
            Self::LeftEdge => "it exceeds the partition size and grows at its left end",
            Self::IsolateKey => "one key is hot, and the split separates the others from it",
            Self::Forecast => "a peak is expected, and a split divides it",
        }
    }

    /// The reason that a note gives: its words, then `; ` and the evidence, if there is any. `None` for a note of
    /// another origin.
    #[must_use]
    pub fn of_note(note: &str) -> Option<Self> {
        let (words, _) = note.split_once("; ").unwrap_or((note, ""));
        Self::ALL.into_iter().find(|why| why.words() == words)
    }
}

impl fmt::Display for SplitWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// Reason of a move of a leader or a replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoveWhy {
    /// Load over capacity of the source node, before the move.
    pub from_load: f64,
    /// Load over capacity of the target node, before the move.
    pub to_load: f64,
    /// Mean load over capacity of all nodes.
    pub mean_load: f64,
    /// Load that moves, in cores.
    pub moved: f64,
}

/// Reason of a merge of two partitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MergeWhy {
    /// Sum of both maxima of rho over five minutes.
    pub rho_max: f64,
    /// Sum of both sizes, bytes.
    pub size_bytes: u64,
}

/// Content of an action.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Split a partition in two; the left part keeps its number.
    Split {
        /// Partition to be split.
        partition: PartitionId,
        /// Position of the split.
        at: At,
        /// Reason of the split.
        why: SplitWhy,
        /// The detector's verdict, if one was requested.
        verdict: Option<Box<Verdict>>,
        /// Predicted share of the load for the busier part, for splits that divide load.
        predicted_share: Option<f64>,
        /// Intended leader of the right part.
        right_leader: Option<NodeId>,
    },
    /// Merge two neighbours; the left one's number stays.
    Merge {
        /// Left partition.
        left: PartitionId,
        /// Right partition.
        right: PartitionId,
        /// Reason of the merge.
        why: MergeWhy,
    },
    /// Hand a partition's leadership over.
    TransferLeader {
        /// Partition whose leader changes.
        partition: PartitionId,
        /// New leader's node.
        to: NodeId,
        /// Reason of the move.
        why: MoveWhy,
    },
    /// Move a replica, and the leadership if it has it.
    MoveReplica {
        /// Partition whose replica moves.
        partition: PartitionId,
        /// Source node.
        from: NodeId,
        /// Target node.
        to: NodeId,
        /// Reason of the move.
        why: MoveWhy,
    },
    /// Place the new rows of a table by hash.
    Rekey {
        /// Table to be re-keyed.
        table: TableId,
        /// Number of buckets.
        buckets: u32,
        /// Columns that are hashed.
        hash: HashOf,
        /// Class of the hotspot.
        class: Class,
    },
}

/// A proposal.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// Number of the action, for reporting its end.
    pub id: ActionId,
    /// Content of the action.
    pub step: Step,
}

impl Step {
    /// The partitions that must not be changed otherwise meanwhile.
    pub fn partitions(&self) -> Vec<PartitionId> {
        match self {
            Self::Split { partition, .. }
            | Self::TransferLeader { partition, .. }
            | Self::MoveReplica { partition, .. } => vec![*partition],
            Self::Merge { left: owner, right, .. } => vec![*owner, *right],
            Self::Rekey { .. } => Vec::new(),
        }
    }
}

/// Result of an action that was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The partition was split.
    Split {
        /// The new right part.
        right: PartitionId,
    },
    /// Merged, transferred, moved or re-keyed as proposed.
    AsProposed,
}

/// Result of an action without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The split key lay at the partition's edge: one side would be empty.
    AtEdge,
    /// Any other failure; the action may be tried again after a while.
    Other,
}

/// Judgement of a split, a minute after it.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitOutcome {
    /// Number of the action.
    pub action: ActionId,
    /// Table of both parts.
    pub table: TableId,
    /// The partition that was split, now the left part.
    pub left: PartitionId,
    /// The right part.
    pub right: PartitionId,
    /// Reason of the split.
    pub why: SplitWhy,
    /// Time of the split, milliseconds.
    pub done_ms: u64,
    /// Predicted share of the load for the busier part.
    pub predicted_share: Option<f64>,
    /// Measured share of the busier part in the minute after; `None` when there was too little load to measure.
    pub actual_share: Option<f64>,
    /// True if a split that was to divide load did not.
    pub in_vain: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_gives_its_reason_with_and_without_evidence() {
        for why in SplitWhy::ALL {
            assert_eq!(SplitWhy::of_note(&why.to_string()), Some(why));
            assert_eq!(SplitWhy::of_note(&format!("{why}; HOT_KEY: p_out 0.90")), Some(why));
        }
        assert_eq!(SplitWhy::of_note(""), None);
        assert_eq!(SplitWhy::of_note("by an operator"), None);
    }
}
