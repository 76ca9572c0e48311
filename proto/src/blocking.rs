//! Runs work that may block: files, compression.
//!
//! Production hands it to the runtime's blocking threads. A simulation of a whole cluster on one thread must control
//! the order of events, so its thread calls [`stay_in_place`] once: then the work is complete when [`spawn`] returns,
//! and nothing runs concurrently.
//!
//! Invariant: a thread works in place only if it, or the thread that waits for it, has called [`stay_in_place`].

use std::cell::Cell;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinHandle;

thread_local! {
    static IN_PLACE: Cell<bool> = const { Cell::new(false) };
}

/// Makes this thread wait for all work that it spawns from now on.
pub fn stay_in_place() {
    IN_PLACE.set(true);
}

/// True if this thread waits for the work that it spawns. Then no code may depend on a thread of its own.
#[must_use]
pub fn is_in_place() -> bool {
    IN_PLACE.get()
}

/// Spawns work that may block. The handle returns its result.
pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    if !is_in_place() {
        return tokio::task::spawn_blocking(work);
    }
    // On a separate thread nevertheless: this one is inside the runtime, where waiting is not allowed.
    let runtime = Handle::current();
    let entered = runtime.clone();
    let worker = std::thread::spawn(move || {
        stay_in_place();
        let _runtime = entered.enter();
        work()
    });
    let result = worker.join();
    runtime.spawn(async move { result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) })
}

/// Runs work that blocks only briefly on the current thread: if the caller waits for it and all cores are busy, another
/// thread would start later than this one ends.
pub fn at_once<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        // Other tasks of this thread move to another one.
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn work_at_once_is_done_by_the_thread_that_asks_in_any_runtime_and_in_none() {
        let here = || at_once(|| std::thread::current().id()) == std::thread::current().id();
        assert!(here());
        let one = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(one.block_on(async move { here() }));
        let many = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        assert!(many.block_on(async move { tokio::spawn(async move { here() }).await.unwrap() }));
    }

    #[tokio::test]
    async fn work_in_place_is_over_when_it_was_handed_over_and_may_use_the_runtime() {
        let over = Arc::new(AtomicBool::new(false));
        let mine = Arc::clone(&over);
        stay_in_place();
        let handed_over = spawn(move || {
            assert!(is_in_place());
            mine.store(true, Ordering::SeqCst);
            Handle::current().block_on(async { 7 })
        });
        assert!(over.load(Ordering::SeqCst));
        assert_eq!(handed_over.await.unwrap(), 7);
        assert!(spawn::<()>(|| panic!("on purpose")).await.unwrap_err().is_panic());
    }
}
