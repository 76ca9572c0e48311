//! What the scheduler proposes, and what it is told came of it.
//!
//! Invariants: an action is a proposal with a number that is never used again; it holds its partitions until the owner
//! says how it ended, or until it has been forgotten for too long.

use crate::facts::{NodeId, PartitionId, TableId};
use crate::verdict::{Class, Verdict};

/// The number of a proposal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionId(pub u64);

/// Where a partition is to be cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// At this key: the first of the right half.
    Key(Box<[u8]>),
    /// Where the leader finds half of its bytes on either side.
    Middle,
    /// Right above the highest key that the leader has: the left half stays full, the right one begins empty.
    HighWater,
    /// At the lowest key that the leader has: the mirror image.
    LowWater,
}

/// Why a partition is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SplitWhy {
    /// It is too busy, and a cut divides its load.
    Load,
    /// It is too large.
    Size,
    /// It is too large and grows at its right end.
    RightEdge,
    /// It is too large and grows at its left end.
    LeftEdge,
    /// One key is hot: the others are taken away from it.
    IsolateKey,
}

/// Why a leader or a replica moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoveWhy {
    /// Load over capacity of the node it leaves, before.
    pub from_load: f64,
    /// Load over capacity of the node it goes to, before.
    pub to_load: f64,
    /// The mean over all nodes.
    pub mean_load: f64,
    /// Cores that go with it.
    pub moved: f64,
}

/// Why two partitions are merged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MergeWhy {
    /// Sum of both maxima of rho over five minutes.
    pub rho_max: f64,
    /// Sum of both sizes, bytes.
    pub size_bytes: u64,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Cut a partition in two; the left part keeps its number.
    Split {
        /// Which.
        partition: PartitionId,
        /// Where.
        at: At,
        /// Why.
        why: SplitWhy,
        /// What the detector said, when it was asked.
        verdict: Option<Box<Verdict>>,
        /// The share of the load that the busier part is expected to bear, for cuts that divide load.
        predicted_share: Option<f64>,
        /// Who is to lead the right part.
        right_leader: Option<NodeId>,
    },
    /// Join two neighbours; the left one's number stays.
    Merge {
        /// The left one.
        left: PartitionId,
        /// The right one.
        right: PartitionId,
        /// Why.
        why: MergeWhy,
    },
    /// Hand a partition's leadership over.
    TransferLeader {
        /// Which.
        partition: PartitionId,
        /// To whom.
        to: NodeId,
        /// Why.
        why: MoveWhy,
    },
    /// Move a replica, and the leadership if it has it.
    MoveReplica {
        /// Which partition.
        partition: PartitionId,
        /// From where.
        from: NodeId,
        /// To where.
        to: NodeId,
        /// Why.
        why: MoveWhy,
    },
    /// Place the new rows of a table by hash.
    Rekey {
        /// Which.
        table: TableId,
        /// Over how many buckets.
        buckets: u32,
        /// What the hotspot is.
        class: Class,
    },
}

/// A proposal.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// Its number, to say how it ended.
    pub id: ActionId,
    /// What is to be done.
    pub step: Step,
}

impl Step {
    /// The partitions that must be left alone meanwhile.
    pub fn partitions(&self) -> Vec<PartitionId> {
        match self {
            Self::Split { partition, .. }
            | Self::TransferLeader { partition, .. }
            | Self::MoveReplica { partition, .. } => vec![*partition],
            Self::Merge { left, right, .. } => vec![*left, *right],
            Self::Rekey { .. } => Vec::new(),
        }
    }
}

/// How an action ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The partition was cut; this is its new right part.
    Split {
        /// The new partition.
        right: PartitionId,
    },
    /// Merged, transferred, moved or re-keyed as proposed.
    AsProposed,
}

/// How an action ended without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The cut lay at the partition's edge: there is nothing on one side.
    AtEdge,
    /// Anything else; it may be tried again after a while.
    Other,
}

/// What became of a split, a minute later.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitOutcome {
    /// The proposal.
    pub action: ActionId,
    /// The table.
    pub table: TableId,
    /// The partition that was cut, now the left part.
    pub left: PartitionId,
    /// The right part.
    pub right: PartitionId,
    /// Why it was cut.
    pub why: SplitWhy,
    /// When it was done, milliseconds.
    pub done_ms: u64,
    /// The share of the load that the busier part was expected to bear.
    pub predicted_share: Option<f64>,
    /// What it bore in the minute after; nothing when there was too little load to say.
    pub actual_share: Option<f64>,
    /// Whether a cut that was to divide load did not.
    pub in_vain: bool,
}
