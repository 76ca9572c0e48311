//! Termination of a process whose log or catalog is not reliable any more.
//!
//! After a failed write or sync, the contents of the disk are unknown. Such a process ends at once, with an exit
//! code of its own: the other replicas elect leaders as soon as it is silent, and a supervisor restarts it from
//! what is really on the disk. A failure in the files of one partition ends only that replica.
//!
//! A process also ends if the task of a Raft group panics, unless it has only just started: then the panic probably
//! comes from the data on disk and would occur again, so the other groups are served and the panic is logged.

use std::time::{Duration, Instant};

use partita_meta::Meta;
use partita_raft::OnFailure;
use tracing::error;

use crate::doors;

/// The exit code after a failed write or sync of the log or the catalog: `EX_IOERR` of sysexits.h.
const EXIT_IO_ERROR: i32 = 74;
/// The exit code after a panic of a Raft group: `EX_SOFTWARE` of sysexits.h.
const EXIT_SOFTWARE: i32 = 70;
/// A panic within this time of the start is attributed to the data on disk.
const JUST_STARTED: Duration = Duration::from_secs(30);
/// Interval of checks of the catalog for a failure.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Ends the process when its log fails.
pub(crate) fn end_on_log_failure() -> OnFailure {
    OnFailure::new(|error| end("the log", &error.to_string()))
}

/// Ends the process when a group's task panics, unless the process has just started.
pub(crate) fn end_on_panic() -> OnFailure {
    let started = Instant::now();
    OnFailure::new(move |failure| {
        if ends_after_panic(started.elapsed()) {
            error!(
                %failure,
                code = EXIT_SOFTWARE,
                "a Raft group has panicked, and its state in memory is not reliable; ending the process, which must be \
                 restarted"
            );
            exit(EXIT_SOFTWARE);
        }
        error!(%failure, "a Raft group has panicked right after the start; it stays stopped, the others are served");
    })
}

/// True if a panic of a group ends a process that has run for this long.
fn ends_after_panic(uptime: Duration) -> bool {
    uptime >= JUST_STARTED
}

/// Waits for SIGTERM or SIGINT. Ends the process if the catalog fails meanwhile.
///
/// # Errors
/// If the signal handlers cannot be installed.
pub(crate) async fn signalled_or_failed(meta: &Meta) -> anyhow::Result<()> {
    tokio::select! {
        signal = doors::signalled() => signal,
        failure = failed(meta) => end("the catalog", &failure),
    }
}

async fn failed(meta: &Meta) -> String {
    loop {
        if let Some(failure) = meta.failure() {
            return failure;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

fn end(part: &str, failure: &str) -> ! {
    error!(
        failure,
        code = EXIT_IO_ERROR,
        "{part} has failed, and its contents on disk are unknown; ending the process, which must be restarted"
    );
    exit(EXIT_IO_ERROR)
}

#[expect(clippy::exit, reason = "no part of the process may continue with an unknown state")]
fn exit(code: i32) -> ! {
    std::process::exit(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_just_started_outlives_a_panic() {
        assert!(!ends_after_panic(Duration::ZERO));
        assert!(!ends_after_panic(JUST_STARTED - Duration::from_millis(1)));
        assert!(ends_after_panic(JUST_STARTED));
    }
}
