//! The messages of one connection: read one, answer it, read the next.
//!
//! Until the startup is over a client has [`STARTUP_TIMEOUT`]. Encryption is refused (the client
//! decides whether it goes on without). When the server stops, a connection ends between two
//! messages with SQLSTATE 57P01.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use partita_frontend::Prepared;
use pgwire::api::auth::StartupHandler;
use pgwire::api::{ClientInfo, DefaultClient, ErrorHandler, PgWireConnectionState};
use pgwire::error::{ErrorInfo, PgWireError};
use pgwire::messages::response::{GssEncResponse, SslResponse};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage, SslNegotiationMetaMessage};
use pgwire::tokio::server::{PgWireMessageServerCodec, process_error, process_message};
use tokio::net::TcpStream;
use tokio_util::codec::Framed;
use tokio_util::sync::CancellationToken;

use crate::connection::Connection;
use crate::error::{Errors, fatal};
use crate::frames::Frames;

/// How long a client may take to say who it is.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(10);

type Socket = Framed<Frames<TcpStream>, PgWireMessageServerCodec<Arc<Prepared>>>;

/// Serves a connection to its end.
pub(crate) async fn serve(
    socket: TcpStream,
    connection: &Arc<Connection>,
    stop: &CancellationToken,
) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let client = DefaultClient::new(socket.peer_addr()?, false);
    let mut socket = Framed::new(Frames::new(socket), PgWireMessageServerCodec::new(client));
    let begun = tokio::time::timeout(STARTUP_TIMEOUT, start(&mut socket, connection)).await;
    match begun {
        Ok(Ok(true)) => converse(&mut socket, connection, stop).await,
        Ok(Ok(false)) => Ok(()),
        Ok(Err(error)) => end(&mut socket, error).await,
        Err(_) => end(&mut socket, fatal("08P01", "the startup took too long")).await,
    }
}

/// Takes the messages up to the first ReadyForQuery; whether there is a session then.
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
            // The codec has seen that neither is asked for and reads the startup next.
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

/// Answers messages until the client leaves.
async fn converse(
    socket: &mut Socket,
    connection: &Arc<Connection>,
    stop: &CancellationToken,
) -> io::Result<()> {
    loop {
        let message = tokio::select! {
            message = socket.next() => message,
            () = stop.cancelled() => {
                let error = fatal("57P01", "terminating connection: the server stops");
                return end(socket, error).await;
            }
        };
        let message = match message {
            None => return Ok(()),
            Some(Ok(PgWireFrontendMessage::Terminate(_))) => return Ok(()),
            Some(Ok(message)) => message,
            Some(Err(PgWireError::IoError(error)))
                if error.kind() != io::ErrorKind::InvalidData =>
            {
                return Err(error);
            }
            // Where the next message begins is not known any more.
            Some(Err(error)) => {
                return end(socket, fatal("08P01", &format!("protocol violation: {error}"))).await;
            }
        };
        answer(socket, connection, message).await?;
    }
}

async fn answer(
    socket: &mut Socket,
    connection: &Arc<Connection>,
    message: PgWireFrontendMessage,
) -> io::Result<()> {
    let extended = match socket.state() {
        PgWireConnectionState::CopyInProgress(extended) => extended,
        _ => message.is_extended_query(),
    };
    // INSERTs of a pipeline wait for each other; whatever is not more of them ends the waiting.
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
    let done = Box::pin(process_message(
        message,
        socket,
        Arc::clone(connection),
        Arc::clone(connection),
        Arc::clone(connection),
        Arc::clone(connection),
        Arc::clone(connection),
    ))
    .await;
    match done {
        Ok(()) => Ok(()),
        // Nobody is there to be told.
        Err(PgWireError::IoError(error)) => Err(error),
        Err(error) => {
            // As in a transaction of PostgreSQL, an error undoes what is still to be written.
            connection.forget_joined(socket).await?;
            fail(socket, error, extended).await
        }
    }
}

/// Tells an error and goes on; in the extended protocol behind the next Sync.
async fn fail(socket: &mut Socket, mut error: PgWireError, extended: bool) -> io::Result<()> {
    Errors.on_error(socket, &mut error);
    process_error(socket, error, extended).await
}

/// Tells a last error.
async fn end(socket: &mut Socket, mut error: PgWireError) -> io::Result<()> {
    Errors.on_error(socket, &mut error);
    let info: ErrorInfo = error.into();
    socket.send(PgWireBackendMessage::ErrorResponse(info.into())).await?;
    socket.close().await
}
