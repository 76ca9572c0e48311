//! The time of a simulation: it stands still while anything can run, and goes on by a millisecond when nothing can.
//!
//! tokio and the libraries ask the C library; [`clock_gettime`] takes the place of its function. tokio's own stopped
//! clock would need a tokio with its test support, and a feature of one member is everybody's. Here the runtime never
//! sleeps instead: a task yields for ever, and tokio runs it again only when nothing else is left to run.
//!
//! Invariants:
//! - time never goes back, and moves only in [`keep`];
//! - whatever follows at once from a timer has happened before the next millisecond.

use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds. Not from 0, so that subtracting a while from the first moment gives a moment.
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

/// The C library's function, for everything in this process, whichever clock is asked for.
///
/// # Safety
/// As the original: `time` can be written to.
#[allow(
    unsafe_code,
    reason = "libraries ask the system for the time, and nothing else stands in between"
)]
#[cfg_attr(test, allow(dead_code, reason = "unit tests keep the system's own"))]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn clock_gettime(_clock: i32, time: *mut Timespec) -> i32 {
    let now = NOW.load(Ordering::SeqCst);
    let part = |part: u64| i64::try_from(part).unwrap_or(i64::MAX);
    let now =
        Timespec { seconds: part(now / 1_000_000_000), nanoseconds: part(now % 1_000_000_000) };
    // SAFETY: the caller vouches for it.
    unsafe { time.write(now) };
    0
}

/// Lets time pass, for ever.
pub(crate) async fn keep() {
    loop {
        // Back from the first, timers have woken their tasks; back from the second, those have come to rest.
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        NOW.fetch_add(TICK, Ordering::SeqCst);
    }
}
