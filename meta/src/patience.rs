//! Timeouts and intervals of meta's work.

use std::time::Duration;

/// Timeouts and intervals. Constants in production; shorter in tests.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    /// Timeout of one order. Longer than opening a replica on a busy disk takes.
    pub(crate) order: Duration,
    /// Time to create a table whose nodes do not answer; then it is given up.
    pub(crate) create: Duration,
    /// Time after which a waiting client gets a timeout while the change continues in the background. Longer than
    /// `create`, so that the cause is known by then.
    pub(crate) change: Duration,
    /// Time to wait for nodes to remove a table that is no longer visible.
    pub(crate) drop: Duration,
    /// Time to wait for orders in flight when meta stops. They are sent again after the start.
    pub(crate) drain: Duration,
    /// Backoff of a failed job: first and maximum.
    pub(crate) pause_min: Duration,
    pub(crate) pause_max: Duration,
    /// Number of entries after which the store is synced and the log before them released. Replaying as many takes
    /// well below a second.
    pub(crate) undurable_max: u64,
    /// Time for a split, or for a merge whose right neighbour is frozen, until it is given up; and until a client
    /// that waits for either gets a timeout.
    pub(crate) reshape: Duration,
    /// Time for which a node counts as live after a heartbeat.
    pub(crate) lease: Duration,
    /// Interval between inspections of the cluster.
    pub(crate) tick: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            order: Duration::from_secs(30),
            create: Duration::from_secs(20),
            change: Duration::from_secs(60),
            drop: Duration::from_secs(10),
            drain: Duration::from_secs(5),
            pause_min: Duration::from_millis(50),
            pause_max: Duration::from_secs(10),
            undurable_max: 1024,
            reshape: Duration::from_secs(30),
            lease: Duration::from_secs(5),
            tick: Duration::from_secs(1),
        }
    }
}
