//! How a process ends that cannot trust its own log or catalog any more.
//!
//! After a write or a sync that failed nobody knows what the disk holds. Such a process ends at once, with an exit code
//! of its own: the other replicas elect leaders as soon as it is silent, and a supervisor starts it again over what is
//! really on the disk. What fails in the files of one partition ends only that replica.

use std::time::Duration;

use partita_meta::Meta;
use partita_raft::OnLogFailure;

use crate::doors;

/// The exit code after a failed write or sync of the log or the catalog: `EX_IOERR` of sysexits.h.
const EXIT_IO_ERROR: i32 = 74;
/// How often the catalog's keeper is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Ends the process when its log fails.
pub(crate) fn end_on_log_failure() -> OnLogFailure {
    OnLogFailure::new(|error| end("the log", &error.to_string()))
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

#[expect(
    clippy::exit,
    reason = "nothing of this process may go on over a log whose state is not known"
)]
fn end(what: &str, failure: &str) -> ! {
    tracing::error!(
        failure,
        code = EXIT_IO_ERROR,
        "{what} has failed and what it holds is not known: the process ends, to be started again"
    );
    std::process::exit(EXIT_IO_ERROR);
}
