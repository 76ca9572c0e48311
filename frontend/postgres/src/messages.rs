//! The message loop of one connection: read a message, answer it, read the next.
//!
//! A client must complete the startup within [`STARTUP_TIMEOUT`]. Encryption is refused (the client decides whether to
//! continue without). When the server stops, a connection ends between two messages with SQLSTATE 57P01. While a
//! statement runs, the socket is watched, and the statement is cancelled when the client disconnects.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{SinkExt, StreamExt};
use partita_frontend::Prepared;
use pgwire::api::auth::StartupHandler;
use pgwire::api::{ClientInfo, DefaultClient, ErrorHandler, PgWireConnectionState};
use pgwire::error::{ErrorInfo, PgWireError};
use pgwire::messages::copy::CopyFail;
use pgwire::messages::response::{GssEncResponse, SslResponse};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage, SslNegotiationMetaMessage};
use pgwire::tokio::server::{PgWireMessageServerCodec, process_error, process_message};
use tokio::net::TcpStream;
use tokio_util::codec::Framed;
use tokio_util::sync::CancellationToken;

use crate::check::Fault;
use crate::connection::Connection;
use crate::error::{Errors, fatal, protocol};
use crate::frames::Frames;
use crate::shared::Shared;

/// Maximum time for the startup.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Statements that end sooner are not watched.
const WATCH_AFTER: Duration = Duration::from_millis(20);
/// Interval of attempts to cancel the statement of a disconnected client.
const CANCEL_AGAIN: Duration = Duration::from_millis(100);
/// Attempts before the statement is given up.
const CANCELS_MAX: u32 = 100;

type Socket = Framed<Frames<Shared>, PgWireMessageServerCodec<Arc<Prepared>>>;

/// Serves a connection until it ends.
pub(crate) async fn serve(
    socket: TcpStream,
    connection: &Arc<Connection>,
    message_timeout: Duration,
    stop: &CancellationToken,
) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let client = DefaultClient::new(socket.peer_addr()?, false);
    let socket = Shared::new(socket);
    let peer = Peer { socket: socket.clone(), message_timeout };
    let mut socket = Framed::new(Frames::new(socket), PgWireMessageServerCodec::new(client));
    let startup = tokio::time::timeout(STARTUP_TIMEOUT, start(&mut socket, connection)).await;
    match startup {
        Ok(Ok(true)) => converse(&mut socket, &peer, connection, stop).await,
        Ok(Ok(false)) => Ok(()),
        Ok(Err(error)) => end(&mut socket, error).await,
        Err(_) => end(&mut socket, fatal("08P01", "startup timed out")).await,
    }
}

/// Takes the messages up to the first ReadyForQuery; returns true if there is a session then.
async fn start(socket: &mut Socket, connection: &Arc<Connection>) -> Result<bool, PgWireError> {
    let (mut asked_ssl, mut asked_gss) = (false, false);
    loop {
        let Some(message) = socket.next().await.transpose()? else { return Ok(false) };
        match message {
            PgWireFrontendMessage::SslNegotiation(SslNegotiationMetaMessage::PostgresSsl(_))
                if !asked_ssl =>
            {
                asked_ssl = true;
                socket.send(PgWireBackendMessage::SslResponse(SslResponse::Refuse)).await?;
            }
            PgWireFrontendMessage::SslNegotiation(SslNegotiationMetaMessage::PostgresGss(_))
                if !asked_gss =>
            {
                asked_gss = true;
                socket.send(PgWireBackendMessage::GssEncResponse(GssEncResponse::Refuse)).await?;
            }
            // The codec has found no negotiation, and reads the startup next.
            PgWireFrontendMessage::SslNegotiation(SslNegotiationMetaMessage::None) => {
                socket.set_state(PgWireConnectionState::AwaitingStartup);
            }
            PgWireFrontendMessage::CancelRequest(request) => {
                connection.cancel_other(&request);
                socket.close().await?;
                return Ok(false);
            }
            message @ PgWireFrontendMessage::Startup(_) => {
                connection.on_startup(socket, message).await?;
                return Ok(true);
            }
            _ => return Err(fatal("08P01", "expected a startup message")),
        }
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

/// Answers messages until the client disconnects.
async fn converse(
    socket: &mut Socket,
    peer: &Peer,
    connection: &Arc<Connection>,
    stop: &CancellationToken,
) -> io::Result<()> {
    // The number of the next message since the startup.
    let mut number = 0;
    loop {
        let message = tokio::select! {
            message = peer.next(socket, connection) => message,
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
                answer(socket, peer, connection, fail).await?;
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
            None => answer(socket, peer, connection, message).await?,
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
    let outcome = tokio::select! {
        biased;
        done = process => done,
        error = peer.gone(connection) => return Err(error),
    };
    if is_execute {
        connection.end_time();
    }
    match outcome {
        Ok(()) => Ok(()),
        // The client has disconnected.
        Err(PgWireError::IoError(error)) => Err(error),
        Err(error) => {
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
