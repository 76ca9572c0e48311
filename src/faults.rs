//! How a process ends that cannot trust its own log or catalog any more.
//!
//! After a write or a sync that failed nobody knows what the disk holds. Such a process ends at once, with an exit code
//! of its own: the other replicas elect leaders as soon as it is silent, and a supervisor starts it again over what is
//! really on the disk. What fails in the files of one partition ends only that replica.
//!
//! A process in which the task of a Raft group panics ends alike, unless it has only just started: then the panic probably
//! comes from what is on the disk and would come again, so the other groups are served and this one is named.

use std::time::{Duration, Instant};

use partita_meta::Meta;
use partita_raft::OnFailure;
use tracing::error;

use crate::doors;

/// The exit code after a failed write or sync of the log or the catalog: `EX_IOERR` of sysexits.h.
const EXIT_IO_ERROR: i32 = 74;
/// The exit code after a panic of a Raft group: `EX_SOFTWARE` of sysexits.h.
const EXIT_SOFTWARE: i32 = 70;
/// A panic within this time of the start probably comes from what is on the disk.
const JUST_STARTED: Duration = Duration::from_secs(30);
/// How often the catalog's keeper is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Ends the process when its log fails.
pub(crate) fn end_on_log_failure() -> OnFailure {
    OnFailure::new(|error| end("the log", &error.to_string()))
}

/// Ends the process when the task of a group panics, unless the process has started only just.
pub(crate) fn end_on_panic() -> OnFailure {
    let started = Instant::now();
    OnFailure::new(move |failure| {
        if ends_after_panic(started.elapsed()) {
            error!(
                %failure,
                code = EXIT_SOFTWARE,
                "a group has panicked, and what it holds in memory is not to be trusted: the process ends, to be started \
                 again"
            );
            exit(EXIT_SOFTWARE);
        }
        error!(%failure, "a group has panicked right after the start: it stays stopped, the others are served");
    })
}

/// Whether a process that has run for this long ends when a group panics: not right after its start.
fn ends_after_panic(uptime: Duration) -> bool {
    uptime >= JUST_STARTED
}

/// Waits for SIGTERM or SIGINT. Ends the process when the catalog fails meanwhile.
///
/// # Errors
/// When signals cannot be listened for.
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

fn end(what: &str, failure: &str) -> ! {
    error!(
        failure,
        code = EXIT_IO_ERROR,
        "{what} has failed and what it holds is not known: the process ends, to be started again"
    );
    exit(EXIT_IO_ERROR)
}

#[expect(clippy::exit, reason = "nothing of this process may go on over a state that is not known")]
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
