//! Interruption of a run of several minutes.
//!
//! Invariant: a caller drops what it started when this returns, so that a cluster on this machine ends with it.

use tokio::signal::unix::{SignalKind, signal};

/// Waits for Ctrl-C or SIGTERM.
///
/// # Errors
/// If the signal handlers cannot be installed.
pub(crate) async fn stopped() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminate.recv() => {}
    }
    Ok(())
}
