//! The PostgreSQL door: the wire protocol over a session of the frontend.
//!
//! ```text
//!   serve ── one connection ── pgwire (messages) ── Connection ─┬─ query.rs     simple and extended
//!                                                               ├─ copy.rs      COPY in and out
//!                                                               ├─ encode.rs    rows to messages
//!                                                               ├─ parameters.rs  messages to values
//!                                                               └─ error.rs     SQLSTATEs
//!   pg_catalog.rs: the tables that psql, drivers and ORMs look things up in
//! ```
//!
//! Each connection has a session of its own; nothing is shared but the frontend and the table of
//! sessions that a cancel request may name.

mod connection;
mod copy;
mod encode;
mod error;
mod parameters;
mod pg_catalog;
mod query;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use partita_frontend::Frontend;
use pgwire::tokio::process_socket;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::connection::{Cancellations, Handlers};

/// Connections at once.
const CONNECTIONS_MAX: usize = 512;
/// How long to wait after accept() failed, as it does when the process is out of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Options of the door.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Connections at once; one more gets SQLSTATE 53300.
    pub max_connections: usize,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { max_connections: CONNECTIONS_MAX }
    }
}

/// Serves connections until `stop` is cancelled; then waits for those that run a statement.
///
/// # Errors
/// When the listener's address cannot be read; errors of connections end only them.
pub async fn serve(
    listener: TcpListener,
    frontend: Arc<Frontend>,
    options: PostgresOptions,
    stop: CancellationToken,
) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(options.max_connections));
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
        let handlers =
            Handlers::new(Arc::clone(&frontend), Arc::clone(&cancellations), place.is_some());
        let stop = stop.clone();
        tasks.spawn(async move {
            let _place = place;
            Box::pin(run(socket, handlers, stop)).await;
        });
    }
    tasks.close();
    tasks.wait().await;
    Ok(())
}

/// One connection, until the client leaves or the server stops between two statements.
async fn run(socket: TcpStream, handlers: Handlers, stop: CancellationToken) {
    if let Err(error) = socket.set_nodelay(true) {
        debug!(%error, "a connection ended before it began");
        return;
    }
    let connection = handlers.connection();
    let served = tokio::select! {
        served = process_socket(socket, None, handlers) => served,
        () = async { stop.cancelled().await; connection.idle().await } => Ok(()),
    };
    connection.close();
    if let Err(error) = served {
        // Clients that vanish are not news.
        debug!(%error, "a connection ended");
    }
}
