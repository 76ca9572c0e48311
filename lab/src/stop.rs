//! How a run that takes minutes is stopped before its end.
//!
//! Invariant: whoever waits here drops what it started when this returns, so that a cluster on this machine ends with it.

use tokio::signal::unix::{SignalKind, signal};

/// Waits for somebody to stop it: Ctrl-C or SIGTERM.
///
/// # Errors
/// When signals cannot be waited for.
pub(crate) async fn stopped() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminate.recv() => {}
    }
    Ok(())
}
