//! Bugs that a simulation plants, to see whether it would notice real ones.
//!
//! Invariant: without the feature `planted-bugs`, which only the simulation's own builds have, there are none: the
//! question whether one is planted is answered by the compiler.

#[cfg(feature = "planted-bugs")]
use std::sync::atomic::{AtomicU8, Ordering};

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Entries are written to the log, but not synced.
    SkipSync = 1,
    /// A vote is remembered until the end of the process only.
    ForgetVote = 2,
    /// A leader counts replicas that it could not reach.
    EarlyAck = 3,
    /// A member that lost its data is taken for the one that it was.
    Stranger = 4,
    /// A bad record at the end of a log counts as one that was never written whole.
    TrustRot = 5,
    /// Nobody is told that the log has failed.
    KeepFailed = 6,
    /// An older copy of a data directory is taken for the directory.
    TrustOld = 7,
    /// What waits for a file that the log cannot open counts as written.
    AckUnopened = 8,
}

#[cfg(feature = "planted-bugs")]
static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Plants a bug in this process.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Plant) {
    PLANTED.store(bug as u8, Ordering::Relaxed);
}

/// Whether a bug is planted.
#[cfg(feature = "planted-bugs")]
pub(crate) fn is(bug: Plant) -> bool {
    PLANTED.load(Ordering::Relaxed) == bug as u8
}

/// Whether a bug is planted.
#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn is(_bug: Plant) -> bool {
    false
}
