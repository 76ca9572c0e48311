//! Scheduling priorities of threads.
//!
//! On Linux a nice value belongs to a thread. Raising a priority again takes a privilege (CAP_SYS_NICE or
//! RLIMIT_NICE), so callers must handle threads that stay at the low one.

use rustix::process::Pid;

/// The nice value of threads of long statements; 0 is that of all others. The kernel gives a thread at 10 about a
/// tenth of the time of one at 0.
const LOW: i32 = 10;

/// The kernel's id of the calling thread.
pub(crate) fn this_thread() -> Pid {
    rustix::thread::gettid()
}

/// Lowers the priority of threads. A thread that has ended is skipped.
pub(crate) fn lower(threads: &[Pid]) {
    for thread in threads {
        if let Err(error) = rustix::process::setpriority_process(Some(*thread), LOW) {
            tracing::debug!(%error, "cannot lower the priority of a thread");
        }
    }
}

/// Restores the normal priority of threads; false if the process lacks the privilege.
pub(crate) fn restore(threads: &[Pid]) -> bool {
    threads.iter().all(|thread| rustix::process::setpriority_process(Some(*thread), 0).is_ok())
}
