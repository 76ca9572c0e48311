//! Record of leaders and replicas that were moved because of load.
//!
//! Invariant: the last [`BALANCES_MAX`] are kept, the oldest first.

use std::collections::VecDeque;

use partita_proto::id::{NodeId, PartitionId};

/// Maximum remembered moves.
const BALANCES_MAX: usize = 1_000;

/// Kind of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BalanceKind {
    /// Only the leadership moves.
    Leader,
    /// A replica moves to another node.
    Replica,
}

/// A move for balance, with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Balance {
    /// Start, in milliseconds since the Unix epoch.
    pub(crate) at_ms: u64,
    pub(crate) kind: BalanceKind,
    pub(crate) partition: PartitionId,
    pub(crate) from: Option<NodeId>,
    pub(crate) to: NodeId,
    /// Reason, in words.
    pub(crate) note: String,
    /// Error of a move that failed.
    pub(crate) error: Option<String>,
}

/// The last moves, up to [`BALANCES_MAX`].
#[derive(Debug, Default)]
pub(crate) struct Balances(VecDeque<Balance>);

impl Balances {
    pub(super) fn push(&mut self, balance: Balance) {
        if self.0.len() == BALANCES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(balance);
    }

    /// All moves, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Balance> {
        self.0.iter()
    }
}
