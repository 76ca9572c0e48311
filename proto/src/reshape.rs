//! Changes of partitions' ranges: splits and merges, as orders to nodes and as entries of partitions' logs.
//!
//! ```text
//!   Split   a log:  w w w S w w        left half goes on as `a`, right half begins as `child`, seeded at S
//!   Merge   b log:  w w w F            frozen at F: nothing is read or written any more
//!           a log:  w w w w A w w      A comes after every replica of `b` beside one of `a` has applied F
//! ```
//!
//! Invariants: each change raises the epoch of the partitions concerned by one, so that older routes are refused; meta
//! decides beforehand which replicas exist, so that every replica does the same at the same log position.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::id::{Epoch, NodeId, PartitionId, ReplicaId};
use crate::range::Bound;

/// Splits a partition in two. It keeps the rows below the split key; a new partition owns the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Partition to be split.
    pub partition: PartitionId,
    /// Epoch of the partition before the split. Afterwards both have the next one.
    pub epoch: Epoch,
    /// First key of the right half; inside the partition's range, and not its start.
    pub at: Bound,
    /// Id of the new partition.
    pub child: PartitionId,
    /// The new partition's replica on the node of each replica of the old one. If the group has other members when the
    /// entry is applied, the order has no effect.
    pub replicas: BTreeMap<NodeId, ReplicaId>,
    /// Node that leads the new partition from its first entry; `None`: the node of the replica that proposed the split.
    /// The partition's leader clears it for a node that could not lead at once.
    pub leader: Option<NodeId>,
}

/// Freezes a partition, which then refuses reads and writes because its left neighbour is to absorb its rows; or
/// unfreezes it. Unfreezing raises the epoch even if the partition is not frozen: this voids an order for the previous
/// epoch that may still be in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// Partition to be frozen or unfrozen.
    pub partition: PartitionId,
    /// Epoch of the partition before; afterwards it has the next one.
    pub epoch: Epoch,
    /// True to freeze, false to unfreeze.
    pub on: bool,
}

/// Makes a partition absorb its right neighbour's range and rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absorb {
    /// Partition that absorbs.
    pub partition: PartitionId,
    /// Epoch of the partition before; afterwards it has the next one.
    pub epoch: Epoch,
    /// Right neighbour, which is frozen. Every node with a replica of the partition also has one of the neighbour,
    /// which has applied everything up to the freeze and has it in files.
    pub right: PartitionId,
    /// Index at which the neighbour was frozen.
    pub frozen: u64,
    /// End of the neighbour's range.
    pub end: Bound,
}

/// An order to the leader of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reshape {
    /// Split the partition.
    Split(Split),
    /// Freeze or unfreeze the partition.
    Freeze(Freeze),
    /// Let the partition absorb its neighbour.
    Absorb(Absorb),
}

impl Reshape {
    /// The partition that the order is for.
    #[must_use]
    pub fn partition(&self) -> PartitionId {
        match self {
            Self::Split(Split { partition, .. })
            | Self::Freeze(Freeze { partition, .. })
            | Self::Absorb(Absorb { partition, .. }) => *partition,
        }
    }

    /// True if both orders make the same change, whoever is to lead what it creates.
    #[must_use]
    pub fn is_same(&self, order: &Self) -> bool {
        match (self, order) {
            (Self::Split(split), Self::Split(twin)) => {
                *split == Split { leader: split.leader, ..twin.clone() }
            }
            _ => self == order,
        }
    }

    /// The epoch of the partition before the order.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        match self {
            Self::Split(Split { epoch, .. })
            | Self::Freeze(Freeze { epoch, .. })
            | Self::Absorb(Absorb { epoch, .. }) => *epoch,
        }
    }
}

/// Result of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reshaped {
    /// The Raft index at which it took effect; 0 when it took effect earlier and the index is not known any more.
    pub index: u64,
    /// Time for which the leader could apply no write because of the order.
    pub stall: Duration,
}
