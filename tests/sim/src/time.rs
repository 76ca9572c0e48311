//! Simulated time: it stands still while any task can run, and advances by a millisecond when none can.
//!
//! tokio and the libraries take the time from the C library; [`clock_gettime`] replaces its function. tokio's own
//! paused clock would need tokio's test features, and a feature that one member of the workspace enables is enabled
//! for all. Here the runtime never sleeps: one task yields for ever, and tokio runs it again only when no other
//! task can run.
//!
//! Invariants:
//! - time never goes backwards, and advances only in [`keep`];
//! - everything that follows at once from a timer happens before the next millisecond.

use std::sync::atomic::{AtomicU64, Ordering};

/// Current time in nanoseconds. It does not start at 0, so that subtracting a duration from the first moment is
/// valid.
static NOW: AtomicU64 = AtomicU64::new(1_000_000_000_000_000);
const TICK: u64 = 1_000_000;

/// The C library's structure.
#[cfg_attr(test, allow(dead_code, reason = "unit tests keep the system's own"))]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

/// Replaces the C library's function in the whole process, for every clock.
///
/// # Safety
/// As the original: `time` can be written to.
#[allow(unsafe_code, reason = "only this symbol lies between the libraries and the system's clock")]
#[cfg_attr(test, allow(dead_code, reason = "unit tests keep the system's own"))]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn clock_gettime(_clock: i32, time: *mut Timespec) -> i32 {
    let nanos = NOW.load(Ordering::SeqCst);
    let part = |part: u64| i64::try_from(part).unwrap_or(i64::MAX);
    let value =
        Timespec { seconds: part(nanos / 1_000_000_000), nanoseconds: part(nanos % 1_000_000_000) };
    // SAFETY: `time` is valid for writes, as the caller guarantees.
    unsafe { time.write(value) };
    0
}

/// Advances the time whenever no other task can run; never returns.
pub(crate) async fn keep() {
    loop {
        // After the first yield, timers have woken their tasks; after the second, these tasks have become idle.
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        NOW.fetch_add(TICK, Ordering::SeqCst);
    }
}
