//! The PostgreSQL door: the wire protocol over a session of the frontend.
//!
//! ```text
//!   serve ── messages.rs ── Connection ─┬─ query.rs      the simple protocol
//!   shared.rs (frames.rs, check.rs)     ├─ extended.rs   the extended protocol
//!                                       │    joined.rs   INSERTs of one pipeline as one write
//!                                       ├─ copy.rs       COPY in and out
//!                                       ├─ encode/       rows to messages
//!                                       ├─ parameters/   messages to values
//!                                       └─ error.rs      SQLSTATEs
//!   pg_catalog/: the tables and functions that psql, drivers and ORMs look things up with
//! ```
//!
//! Each connection has a session of its own; nothing is shared but the frontend and the table of
//! sessions that a cancel request may name. A connection answers one message after the other.

mod check;
mod connection;
mod copy;
mod encode;
mod error;
mod extended;
mod frames;
mod joined;
mod messages;
mod names;
mod object_types;
mod parameters;
mod pg_catalog;
mod query;
mod settings;
mod shared;
#[cfg(test)]
mod tests;
mod types;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use partita_frontend::Frontend;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::connection::{Cancellations, Connection};

/// Connections at once.
const CONNECTIONS_MAX: usize = 512;
/// Connections beyond those, for the time it takes to tell them so, or to take a cancel request.
const TURNED_AWAY_MAX: usize = 64;
/// How long a message that has begun may make no progress.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait after accept() failed, as it does when the process is out of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How long statements that run may take to end once the server stops; then they are cancelled.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// How long a cancelled statement may take to end.
const CANCEL_PATIENCE: Duration = Duration::from_secs(5);

/// Options of the door.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Connections at once; one more gets SQLSTATE 53300.
    pub max_connections: usize,
    /// How long a message that has begun may take to go on, before the connection ends.
    pub message_timeout: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { max_connections: CONNECTIONS_MAX, message_timeout: MESSAGE_TIMEOUT }
    }
}

/// Serves connections until `stop` is cancelled; then lets statements that run end.
///
/// # Errors
/// When `pg_catalog` cannot be made; errors of connections end only them.
pub async fn serve(
    listener: TcpListener,
    frontend: Arc<Frontend>,
    options: PostgresOptions,
    stop: CancellationToken,
) -> io::Result<()> {
    Box::pin(pg_catalog::install(&frontend)).await.map_err(io::Error::other)?;
    let places = Arc::new(Semaphore::new(options.max_connections));
    let turned_away = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
    let cancellations = Arc::new(Cancellations::default());
    let tasks = TaskTracker::new();
    loop {
        let socket = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => socket,
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                }
            },
        };
        let place = Arc::clone(&places).try_acquire_owned().ok();
        let has_place = place.is_some();
        let Some(place) = place.or_else(|| Arc::clone(&turned_away).try_acquire_owned().ok())
        else {
            warn!("a connection was closed at once: too many are being turned away");
            continue;
        };
        let connection =
            Connection::new(Arc::clone(&frontend), Arc::clone(&cancellations), has_place);
        let message_timeout = options.message_timeout;
        let stop = stop.clone();
        tasks.spawn(async move {
            let _place = place;
            Box::pin(run(socket, connection, message_timeout, stop)).await;
        });
    }
    tasks.close();
    tasks.wait().await;
    Ok(())
}

/// One connection, until the client leaves or the server stops.
async fn run(
    socket: TcpStream,
    connection: Arc<Connection>,
    message_timeout: Duration,
    stop: CancellationToken,
) {
    let stopping = async {
        stop.cancelled().await;
        tokio::time::sleep(STOP_PATIENCE).await;
        connection.cancel();
        tokio::time::sleep(CANCEL_PATIENCE).await;
    };
    let served = tokio::select! {
        served = messages::serve(socket, &connection, message_timeout, &stop) => served,
        () = stopping => Err(io::Error::other("a statement did not end when the server stopped")),
    };
    connection.close();
    if let Err(error) = served {
        // Clients that vanish are not news.
        debug!(%error, "a connection ended");
    }
}
