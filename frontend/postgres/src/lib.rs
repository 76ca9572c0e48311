//! The PostgreSQL door: the wire protocol on top of a frontend session.
//!
//! ```text
//!   serve ── messages.rs ── Connection ─┬─ query.rs      the simple protocol
//!   stream.rs (TLS over shared.rs)      ├─ extended.rs   the extended protocol
//!   frames.rs, check.rs                 │
//!                                       │    joined.rs   INSERTs of one pipeline as one write
//!                                       ├─ copy.rs       COPY in and out
//!                                       ├─ encode/       rows to messages
//!                                       ├─ parameters/   messages to values
//!                                       ├─ located.rs    positions of names that do not exist
//!                                       └─ error.rs      SQLSTATEs
//!   startup.rs: the messages before a session, decided by sign_in.rs
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
mod located;
mod messages;
mod names;
mod object_types;
mod options;
mod parameters;
mod pg_catalog;
mod query;
mod settings;
mod shared;
mod sign_in;
mod startup;
mod stream;
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
pub use crate::options::PostgresOptions;
pub use crate::stream::PostgresTls;

/// Further connections that are accepted for a moment, to refuse them with an error or to take a cancel request.
const TURNED_AWAY_MAX: usize = 64;
/// Delay after accept() failed, as it does when the process is out of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Time that running statements get to end after the server stops; then they are cancelled.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// Time that a cancelled statement gets to end.
const CANCEL_PATIENCE: Duration = Duration::from_secs(5);

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
    let options = Arc::new(options);
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
        let options = Arc::clone(&options);
        let stop = stop.clone();
        tasks.spawn(async move {
            let _place = place;
            Box::pin(run(socket, connection, &options, stop)).await;
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
    options: &PostgresOptions,
    stop: CancellationToken,
) {
    let stopping = async {
        stop.cancelled().await;
        tokio::time::sleep(STOP_PATIENCE).await;
        connection.cancel();
        tokio::time::sleep(CANCEL_PATIENCE).await;
    };
    let served = tokio::select! {
        served = messages::serve(socket, &connection, options, &stop) => served,
        () = stopping => Err(io::Error::other("a statement did not end when the server stopped")),
    };
    connection.close();
    if let Err(error) = served {
        // Clients may disconnect at any time.
        debug!(%error, "a connection ended");
    }
}
