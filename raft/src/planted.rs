//! Bugs that a simulation plants, to check that it would notice real ones: those of this crate and of the crates above
//! it. `partita_engine::planted` has the one of storage.
//!
//! Invariant: without the feature `planted-bugs`, which only the simulation's own builds have, no bug exists: the check
//! is a compile-time constant.

#[cfg(feature = "planted-bugs")]
use std::sync::atomic::{AtomicU8, Ordering};

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Entries are written to the log, but not synced.
    SkipSync = 1,
    /// A vote is kept in memory only, until the process ends.
    ForgetVote = 2,
    /// A leader counts replicas that it could not reach.
    EarlyAck = 3,
    /// A member that lost its data is accepted under its old identity.
    Stranger = 4,
    /// A bad record at the end of a log counts as an incomplete write, never as damage.
    TrustRot = 5,
    /// A failure of the log is not reported to the process.
    KeepFailed = 6,
    /// An older copy of a data directory is accepted as the current one.
    TrustOld = 7,
    /// A batch that waits for a file which the log cannot open is acknowledged unwritten.
    AckUnopened = 8,
    /// A sync of the log that fails counts as done.
    IgnoreSync = 9,
    /// An empty data directory is registered under the number of a node that has another one.
    TakeOver = 10,
    /// An order is carried out whatever its catalog lacks.
    AnyCatalog = 11,
    /// Terms and indexes of other nodes are taken unchecked.
    TrustNumbers = 12,
    /// A follower answers reads without asking the leader for a read point.
    ReadUnasked = 13,
    /// A write takes effect whatever its condition says.
    LoseUpdates = 14,
    /// A partition does not know the writes again that it has taken.
    ForgetWrites = 15,
}

#[cfg(feature = "planted-bugs")]
static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Plants a bug in this process.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Plant) {
    PLANTED.store(bug as u8, Ordering::Relaxed);
}

/// True if the bug is planted. Crates above this one ask it too.
#[cfg(feature = "planted-bugs")]
#[must_use]
pub fn is(bug: Plant) -> bool {
    PLANTED.load(Ordering::Relaxed) == bug as u8
}

/// Always false: without the feature no bug is planted.
#[cfg(not(feature = "planted-bugs"))]
#[must_use]
pub const fn is(_bug: Plant) -> bool {
    false
}
