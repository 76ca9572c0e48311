//! The PostgreSQL door: the wire protocol on top of a frontend session.
//!
//! ```text
//!   serve ── messages.rs ── Connection ─┬─ query.rs      the simple protocol
//!   shared.rs (frames.rs, check.rs)     ├─ extended.rs   the extended protocol
//!                                       │    joined.rs   INSERTs of one pipeline as one write
//!                                       ├─ copy.rs       COPY in and out
//!                                       ├─ encode/       rows to messages
//!                                       ├─ parameters/   messages to values
//!                                       └─ error.rs      SQLSTATEs
//!   sign_in.rs: the messages before a session, with scram.rs for passwords
//!   pg_catalog/: the tables and functions that psql, drivers and ORMs look things up with
//! ```
//!
//! Each connection has a session of its own; connections share only the frontend and the table of sessions that cancel
//! requests refer to. A connection handles one message at a time.

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
#[allow(dead_code, reason = "connections do not authenticate yet")]
mod scram;
mod settings;
mod shared;
#[allow(dead_code, reason = "connections do not authenticate yet")]
mod sign_in;
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

/// Default limit of concurrent connections.
const CONNECTIONS_MAX: usize = 512;
/// Further connections that are accepted for a moment, to refuse them with an error or to take a cancel request.
const TURNED_AWAY_MAX: usize = 64;
/// Maximum time without progress inside of a message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(60);
/// Delay after accept() failed, as it does when the process is out of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Time that running statements get to end after the server stops; then they are cancelled.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// Time that a cancelled statement gets to end.
const CANCEL_PATIENCE: Duration = Duration::from_secs(5);

/// Options of the PostgreSQL door.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Maximum concurrent connections; further ones get SQLSTATE 53300.
    pub max_connections: usize,
    /// Maximum time without progress inside of a message, before the connection is closed.
    pub message_timeout: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { max_connections: CONNECTIONS_MAX, message_timeout: MESSAGE_TIMEOUT }
    }
}

/// Serves connections until `stop` is cancelled, then waits for running statements to end.
///
/// # Errors
/// When `pg_catalog` cannot be created; an error of a connection ends only that connection.
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
        // A listener that fails for lack of file descriptors recovers.
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
        // A connection without a place is still served far enough to be refused.
        let place = Arc::clone(&places).try_acquire_owned().ok();
        let has_place = place.is_some();
        let Some(place) = place.or_else(|| Arc::clone(&turned_away).try_acquire_owned().ok())
        else {
            warn!("closed a connection: too many connections are waiting to be refused");
            continue;
        };
        // Each connection is a task of its own, and keeps its place to its end.
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

/// Serves one connection until the client disconnects or the server stops.
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
        // Clients may disconnect at any time.
        debug!(%error, "a connection ended");
    }
}
