//! The way of a task's rows to another server, which the process provides: the frontend knows no client of HTTP.

use async_trait::async_trait;
use partita_proto::task::Remote;

use crate::error::SqlError;

/// Sends line protocol to other servers.
#[async_trait]
pub trait Outlet: Send + Sync {
    /// Posts lines to a server; returns when it has accepted all of them.
    ///
    /// # Errors
    /// Fails if the server cannot be reached in time, or refuses. The error contains neither the token nor the path and
    /// query of the address.
    async fn send(&self, remote: &Remote, lines: String) -> Result<(), SqlError>;
}
