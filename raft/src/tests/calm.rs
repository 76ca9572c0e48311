//! Properties that hold unless an election intervenes. Elections come when they are needed, and when the machine stalls
//! for as long as a lease: the latter must not fail a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

/// A machine that never stalled for this long has no reason for an election: a heartbeat comes every 250 ms, and
/// several have to be missed.
const STALL: Duration = Duration::from_millis(100);
/// So many attempts are made.
const ATTEMPTS: u64 = 20;
const TICK: Duration = Duration::from_millis(5);

/// Looks for how long this process stands still.
struct Watch {
    longest_ms: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Watch {
    fn begin() -> Self {
        let longest_ms = Arc::new(AtomicU64::new(0));
        let longest = Arc::clone(&longest_ms);
        let task = tokio::spawn(async move {
            loop {
                let begun = Instant::now();
                tokio::time::sleep(TICK).await;
                let late = begun.elapsed().saturating_sub(TICK).as_millis();
                longest.fetch_max(u64::try_from(late).unwrap(), Ordering::Relaxed);
            }
        });
        Self { longest_ms, task }
    }

    fn longest(&self) -> Duration {
        Duration::from_millis(self.longest_ms.load(Ordering::Relaxed))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Makes attempts, each with a number of its own, until one succeeds. One that fails although the machine never stood
/// still fails the test.
pub(super) async fn undisturbed(attempt: impl AsyncFn(u64) -> Result<(), String>) {
    for number in 0..ATTEMPTS {
        let watch = Watch::begin();
        let Err(why) = attempt(number).await else { return };
        let longest = watch.longest();
        assert!(longest >= STALL, "{why}; and the machine never stood still: {longest:?} at most");
        println!("once more, because the machine stood still for {longest:?}: {why}");
    }
    panic!("disturbed each of {ATTEMPTS} times");
}

/// As `assert!`, for attempts.
pub(super) fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}
