//! All randomness of a simulation, from one seed.
//!
//! Libraries take random numbers from the system: hash maps for their keys, tokio for the branch of a `select!`
//! that it polls first, openraft for its election timeouts. [`getrandom`] replaces the C library's function, so
//! that they depend on the seed, too.
//!
//! Invariants:
//! - the same calls in the same order give the same numbers;
//! - the simulation's own random numbers never depend on how often libraries draw.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static SYSTEM: AtomicU64 = AtomicU64::new(0x5eed);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

const fn mix(state: u64) -> u64 {
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Seeds the random numbers that libraries get from the system.
pub(crate) fn seed_system(seed: u64) {
    SYSTEM.store(mix(seed.wrapping_add(STEP)), Ordering::SeqCst);
}

/// Replaces the C library's function in the whole process.
///
/// # Safety
/// As the original: `buffer` has room for `length` bytes.
#[allow(
    unsafe_code,
    reason = "only this symbol lies between the libraries and the system's random numbers"
)]
#[cfg_attr(test, allow(dead_code, reason = "unit tests keep the system's own"))]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    let mut position = 0;
    while position < length {
        let drawn = mix(SYSTEM.fetch_add(STEP, Ordering::SeqCst).wrapping_add(STEP));
        for byte in drawn.to_le_bytes() {
            if position < length {
                // SAFETY: `position` is below `length`, the size of `buffer` as the caller guarantees.
                unsafe { buffer.add(position).write(byte) };
                position += 1;
            }
        }
    }
    isize::try_from(length).unwrap_or(isize::MAX)
}

/// Random numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The sequence for one purpose of one run.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        Self(mix(seed.wrapping_mul(STEP)).wrapping_add(mix(purpose.wrapping_add(STEP))))
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `end`, which must not be 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    /// True with a probability of 1 in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn millis(&mut self, start: u64, end: u64) -> Duration {
        Duration::from_millis(start + self.below(end - start))
    }

    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        let count = u64::try_from(items.len()).unwrap_or(u64::MAX);
        if count == 0 {
            return None;
        }
        items.get(usize::try_from(self.below(count)).unwrap_or_default()).copied()
    }
}
