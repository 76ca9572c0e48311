//! Changes of what a partition owns: splits and merges, as orders to the nodes and as entries of partitions' logs.
//!
//! ```text
//!   Split   a log:  w w w S w w        left half goes on as `a`, right half begins as `child`, seeded at S
//!   Merge   b log:  w w w F            frozen at F: nothing is read or written any more
//!           a log:  w w w w A w w      A comes after every replica of `b` beside one of `a` has applied F
//! ```
//!
//! Invariants: each raises the epoch of what it touches by one, so that a route from before is refused; which replicas
//! there are is decided by meta before, so that every replica does the same at the same place of the log.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::id::{Epoch, NodeId, PartitionId, ReplicaId};
use crate::range::Bound;

/// A partition is cut in two. It keeps what lies below the cut; a new one owns the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The partition.
    pub partition: PartitionId,
    /// Its epoch before. Afterwards both have the next one.
    pub epoch: Epoch,
    /// The first key of the right half; inside the partition's range, and not its start.
    pub at: Bound,
    /// The new partition.
    pub child: PartitionId,
    /// The replica of the new partition on the node of each replica of the old one. If the group has other members
    /// when the entry is applied, nothing happens.
    pub replicas: BTreeMap<NodeId, ReplicaId>,
}

/// A partition stops to be read and written, because its left neighbour is to take over its rows; or is given free
/// again. One that is given free without being frozen gets its next epoch all the same: that is how an order for the
/// epoch before, which may still be on its way, is made void.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// The partition.
    pub partition: PartitionId,
    /// Its epoch before; afterwards it has the next one.
    pub epoch: Epoch,
    /// Whether it is frozen, or given free.
    pub on: bool,
}

/// A partition takes over what its right neighbour owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absorb {
    /// The partition.
    pub partition: PartitionId,
    /// Its epoch before; afterwards it has the next one.
    pub epoch: Epoch,
    /// Its right neighbour, which is frozen. A replica of it lies on every node that has one of the partition, has
    /// applied everything up to the freeze, and has it in files.
    pub right: PartitionId,
    /// The index at which the neighbour was frozen.
    pub frozen: u64,
    /// Where the neighbour's range ends.
    pub end: Bound,
}

/// An order to the leader of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reshape {
    /// Cut it.
    Split(Split),
    /// Freeze it, or give it free.
    Freeze(Freeze),
    /// Let it take over its neighbour.
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

    /// The epoch that the partition has before.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        match self {
            Self::Split(Split { epoch, .. })
            | Self::Freeze(Freeze { epoch, .. })
            | Self::Absorb(Absorb { epoch, .. }) => *epoch,
        }
    }
}

/// What an order came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reshaped {
    /// The Raft index at which it took effect; 0 when it had before and the index is not known any more.
    pub index: u64,
    /// For how long the leader could apply no write because of it.
    pub stall: Duration,
}
