//! The bug that a simulation plants in storage, to check that it would notice a real one. `partita_raft::planted` has the
//! others.
//!
//! Invariant: without the feature `planted-bugs`, which only the simulation's own builds have, the bug does not exist:
//! the check is a compile-time constant.

#[cfg(feature = "planted-bugs")]
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(feature = "planted-bugs")]
static LEAVES_OUT: AtomicBool = AtomicBool::new(false);

/// From now on a partition that is opened serves its rows without those of damaged files, and reports no damage.
#[cfg(feature = "planted-bugs")]
pub fn leave_out() {
    LEAVES_OUT.store(true, Ordering::Relaxed);
}

/// True if damaged files are left out.
#[cfg(feature = "planted-bugs")]
pub(crate) fn leaves_out() -> bool {
    LEAVES_OUT.load(Ordering::Relaxed)
}

/// Always false: without the feature no bug is planted.
#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn leaves_out() -> bool {
    false
}
