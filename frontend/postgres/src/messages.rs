//! The message loop of one connection: read a message, answer it, read the next.
//!
//! A client must complete the startup within [`STARTUP_TIMEOUT`]. When the server stops, a connection ends between two
//! messages with SQLSTATE 57P01. When the identity of the session ends (the role is dropped, its password changed, its
//! time over), the connection ends with SQLSTATE 28000, also within a statement; when another session terminates it, with
//! 57P01. While a statement runs, the socket is watched, and the statement is cancelled when the client disconnects.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{SinkExt, StreamExt};
use partita_frontend::access::authenticator::Lifetime;
use pgwire::api::{ClientInfo, DefaultClient, ErrorHandler, PgWireConnectionState};
use pgwire::error::{ErrorInfo, PgWireError};
use pgwire::messages::copy::CopyFail;
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use pgwire::tokio::server::{PgWireMessageServerCodec, process_error, process_message};
use tokio::net::TcpStream;
use tokio_util::codec::Framed;
use tokio_util::sync::CancellationToken;

use crate::check::Fault;
use crate::connection::Connection;
use crate::error::{Errors, fatal, fatal_of, protocol};
use crate::frames::{Frames, Socket};
use crate::options::PostgresOptions;
use crate::shared::Shared;
use crate::sign_in::SignIn;
use crate::startup::{STARTUP_TIMEOUT, start};
use crate::stream::negotiate;

/// Time that a client gets to take the last error of a session whose identity has ended.
const END_PATIENCE: Duration = Duration::from_secs(1);
/// Statements that end sooner are not watched.
const WATCH_AFTER: Duration = Duration::from_millis(20);
/// Interval of attempts to cancel the statement of a disconnected client.
const CANCEL_AGAIN: Duration = Duration::from_millis(100);
/// Attempts before the statement is given up.
const CANCELS_MAX: u32 = 100;

/// Serves a connection until it ends.
pub(crate) async fn serve(
    socket: TcpStream,
    connection: &Arc<Connection>,
    options: &PostgresOptions,
    stop: &CancellationToken,
) -> io::Result<()> {
    let connected = Instant::now();
    socket.set_nodelay(true)?;
    let address = socket.peer_addr()?;
    let shared = Shared::new(socket);
    let peer = Peer { socket: shared.clone(), message_timeout: options.message_timeout };
    // The certificate is the newest one when a client connects.
    let tls = options.tls.as_ref().map(|tls| tls.current());
    let negotiation = Box::pin(negotiate(shared, tls));
    let opening = tokio::time::timeout(STARTUP_TIMEOUT, negotiation).await;
    // A client that says nothing is told nothing: it may wait for another protocol.
    let Ok(opening) = opening else { return Ok(()) };
    let Some((stream, encryption)) = opening? else { return Ok(()) };
    let client = DefaultClient::new(address, encryption.is_some());
    let mut socket: Socket =
        Framed::new(Frames::new(stream), PgWireMessageServerCodec::new(client));
    socket.set_state(PgWireConnectionState::AwaitingStartup);
    let startup = Box::pin(start(&mut socket, connection, encryption, options, connected));
    let remaining = STARTUP_TIMEOUT.saturating_sub(connected.elapsed());
    match tokio::time::timeout(remaining, startup).await {
        Ok(Ok(Some(number))) => converse(&mut socket, &peer, connection, number, stop).await,
        Ok(Ok(None)) => Ok(()),
        Ok(Err(error)) => end_soon(&mut socket, error).await,
        Err(_) => end_soon(&mut socket, fatal_of(SignIn::timeout())).await,
    }
}

/// The next event of a connection.
enum Event {
    Message(PgWireFrontendMessage),
    /// The rows of a COPY did not arrive in time.
    CopyTimedOut,
}

/// The client's end of a connection.
struct Peer {
    socket: Shared,
    message_timeout: Duration,
}

impl Peer {
    /// Waits until the client has disconnected, and cancels the running statement.
    async fn gone(&self, connection: &Connection) -> io::Error {
        tokio::time::sleep(WATCH_AFTER).await;
        self.socket.closed().await;
        for _ in 0..CANCELS_MAX {
            connection.cancel();
            tokio::time::sleep(CANCEL_AGAIN).await;
        }
        io::Error::new(io::ErrorKind::ConnectionAborted, "the client disconnected")
    }

    /// The next message, if it arrives in time; `None` when the client has disconnected.
    async fn next(
        &self,
        socket: &mut Socket,
        connection: &Connection,
    ) -> Option<Result<Event, PgWireError>> {
        let mut previous = None;
        let idle = connection.idle_timeout(socket.state(), socket.transaction_status());
        let began = Instant::now();
        loop {
            let remaining = idle.map(|(timeout, _)| timeout.saturating_sub(began.elapsed()));
            let wait = remaining
                .map_or(self.message_timeout, |remaining| remaining.min(self.message_timeout));
            if let Ok(message) = tokio::time::timeout(wait, socket.next()).await {
                return message.map(|message| message.map(Event::Message));
            }
            match socket.get_ref().midway() {
                // No byte of it has arrived since the last check.
                midway @ Some(_) if midway == previous => {
                    return Some(Err(fatal("08P01", "timed out inside of a message")));
                }
                midway @ Some(_) => previous = midway,
                None => {
                    if let Some((timeout, state)) = idle
                        && began.elapsed() >= timeout
                    {
                        return Some(match state.termination() {
                            Some((sqlstate, message)) => Err(fatal(sqlstate, message)),
                            None => Ok(Event::CopyTimedOut),
                        });
                    }
                }
            }
        }
    }
}

/// Answers messages until the client disconnects. `number` is that of the next message since the startup.
async fn converse(
    socket: &mut Socket,
    peer: &Peer,
    connection: &Arc<Connection>,
    mut number: u64,
    stop: &CancellationToken,
) -> io::Result<()> {
    let Ok(session) = connection.session() else { return Ok(()) };
    let mut lifetime = connection.frontend().authenticator().lifetime();
    loop {
        let message = tokio::select! {
            message = peer.next(socket, connection) => message,
            error = lifetime.ended(|| session.identity()) => {
                return end_soon(socket, fatal_of(error)).await;
            }
            error = session.until_terminated() => return end_soon(socket, fatal_of(error)).await,
            () = stop.cancelled() => {
                let error = fatal("57P01", "terminating connection due to administrator command");
                return end(socket, error).await;
            }
        };
        let message = match message {
            None => return Ok(()),
            Some(Ok(Event::Message(PgWireFrontendMessage::Terminate(_)))) => return Ok(()),
            Some(Ok(Event::Message(message))) => message,
            Some(Ok(Event::CopyTimedOut)) => {
                let reason = "canceling statement due to statement timeout".to_owned();
                let fail = PgWireFrontendMessage::CopyFail(CopyFail::new(reason));
                answer(socket, peer, connection, &mut lifetime, fail).await?;
                continue;
            }
            Some(Err(PgWireError::IoError(error)))
                if error.kind() != io::ErrorKind::InvalidData =>
            {
                return Err(error);
            }
            Some(Err(error @ PgWireError::UserError(_))) => return end(socket, error).await,
            // The start of the next message is unknown.
            Some(Err(error)) => {
                return end(socket, fatal("08P01", &format!("protocol violation: {error}"))).await;
            }
        };
        match socket.get_mut().fault_of(number) {
            Some(fault) => refuse(socket, connection, &message, &fault).await?,
            None => answer(socket, peer, connection, &mut lifetime, message).await?,
        }
        number += 1;
    }
}

/// Returns true if an error of a message is followed by skipping to the next Sync.
fn is_extended(socket: &Socket, message: &PgWireFrontendMessage) -> bool {
    match socket.state() {
        PgWireConnectionState::CopyInProgress(extended) => extended,
        _ => message.is_extended_query(),
    }
}

/// Reports the fault of a message, unless an earlier error makes the client's messages be skipped.
async fn refuse(
    socket: &mut Socket,
    connection: &Arc<Connection>,
    message: &PgWireFrontendMessage,
    fault: &Fault,
) -> io::Result<()> {
    if matches!(socket.state(), PgWireConnectionState::AwaitingSync) {
        return Ok(());
    }
    let extended = is_extended(socket, message);
    connection.forget_joined(socket).await?;
    fail(socket, protocol(fault.sqlstate, fault.message.as_str()), extended).await
}

async fn answer(
    socket: &mut Socket,
    peer: &Peer,
    connection: &Arc<Connection>,
    lifetime: &mut Lifetime,
    message: PgWireFrontendMessage,
) -> io::Result<()> {
    let extended = is_extended(socket, &message);
    connection.count_time(&message);
    let is_execute = matches!(message, PgWireFrontendMessage::Execute(_));
    // INSERTs of a pipeline wait for each other; any other message ends the wait.
    let more = matches!(
        message,
        PgWireFrontendMessage::Parse(_)
            | PgWireFrontendMessage::Bind(_)
            | PgWireFrontendMessage::Describe(_)
            | PgWireFrontendMessage::Execute(_)
    );
    if !more && let Err(error) = connection.run_joined(socket).await {
        fail(socket, error, true).await?;
    }
    let process = Box::pin(process_message(
        message,
        socket,
        Arc::clone(connection),
        Arc::clone(connection),
        Arc::clone(connection),
        Arc::clone(connection),
        Arc::clone(connection),
    ));
    // Short statements do not look at the identity here: they were checked before they began.
    let identity_end = async {
        tokio::time::sleep(WATCH_AFTER).await;
        let Ok(session) = connection.session() else { return std::future::pending().await };
        lifetime.ended(|| session.identity()).await
    };
    let outcome = tokio::select! {
        biased;
        done = process => done,
        error = peer.gone(connection) => return Err(error),
        error = identity_end => {
            connection.cancel();
            let message = error.to_string();
            end_soon(socket, fatal_of(error)).await?;
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
    };
    if is_execute {
        connection.end_time();
    }
    match outcome {
        Ok(()) => Ok(()),
        // The client has disconnected.
        Err(PgWireError::IoError(error)) => Err(error),
        Err(error) => {
            // The error of a session that was terminated is its last.
            if let Some(error) = connection.session().ok().and_then(|session| session.terminated())
            {
                let message = error.to_string();
                end_soon(socket, fatal_of(error)).await?;
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, message));
            }
            // As in a transaction of PostgreSQL, an error undoes the writes that are still waiting.
            connection.forget_joined(socket).await?;
            fail(socket, error, extended).await
        }
    }
}

/// Reports an error and continues; in the extended protocol after the next Sync.
async fn fail(socket: &mut Socket, mut error: PgWireError, extended: bool) -> io::Result<()> {
    Errors.on_error(socket, &mut error);
    process_error(socket, error, extended).await
}

/// Reports a last error and closes the connection.
async fn end(socket: &mut Socket, mut error: PgWireError) -> io::Result<()> {
    Errors.on_error(socket, &mut error);
    let info: ErrorInfo = error.into();
    socket.send(PgWireBackendMessage::ErrorResponse(info.into())).await?;
    socket.close().await
}

/// Reports a last error and closes the connection, which a client that does not read cannot delay.
async fn end_soon(socket: &mut Socket, error: PgWireError) -> io::Result<()> {
    tokio::time::timeout(END_PATIENCE, end(socket, error)).await.unwrap_or(Ok(()))
}
