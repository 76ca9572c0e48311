//! The start of a session: the startup message, authentication, the session with its settings, and its first report.
//!
//! ```text
//!   stream.rs ──▶ startup message ──▶ SignIn (sign_in.rs) ──▶ Login ──▶ session ──▶ ReadyForQuery
//!                      │ cancel request: cancels and ends    │
//!                      ▼                                     ├─ client certificate, if the option is on
//!                 53300, 28000                               └─ Authenticator::demand: SCRAM, or none while open
//! ```
//!
//! Invariants:
//! - a password in clear text is never requested;
//! - nothing about databases is told, and no session exists, before the user is authenticated.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{SinkExt, StreamExt};
use partita_frontend::SqlError;
use partita_frontend::access::authenticator::{Demand, INVALID_AUTHORIZATION, Login};
use partita_frontend::access::scram::{Failed, Nonce};
use partita_frontend::access::{peer, random};
use partita_proto::access::Door;
use pgwire::api::auth::{protocol_negotiation, save_startup_parameters_to_metadata};
use pgwire::api::{ClientInfo, METADATA_USER, PgWireConnectionState};
use pgwire::error::PgWireError;
use pgwire::messages::startup::PasswordMessageFamily;
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};

use crate::connection::Connection;
use crate::error::{fatal, fatal_of};
use crate::frames::Socket;
use crate::options::PostgresOptions;
use crate::sign_in::{Event, Limits, Method, SignIn, Step};
use crate::stream::Encryption;

/// Maximum time from the connection to the session.
pub(crate) const STARTUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of a SASL message, as in PostgreSQL.
const SASL_BYTES_MAX: usize = 1024;

/// Takes the messages up to the first ReadyForQuery; returns the number of the next message since the
/// startup if there is a session then.
pub(crate) async fn start(
    socket: &mut Socket,
    connection: &Arc<Connection>,
    encryption: Option<Encryption>,
    options: &PostgresOptions,
    connected: Instant,
) -> Result<Option<u64>, PgWireError> {
    let Some(message) = socket.next().await.transpose()? else { return Ok(None) };
    let startup = match message {
        PgWireFrontendMessage::Startup(startup) => startup,
        PgWireFrontendMessage::CancelRequest(request) => {
            connection.cancel_other(&request);
            socket.close().await?;
            return Ok(None);
        }
        _ => return Err(fatal("08P01", "expected a startup message")),
    };
    protocol_negotiation(socket, &startup).await?;
    save_startup_parameters_to_metadata(socket, &startup);
    connection.check_place()?;
    let user = socket.metadata().get(METADATA_USER).cloned().unwrap_or_default();
    if user.is_empty() {
        return Err(fatal("28000", "no PostgreSQL user name specified in startup packet"));
    }
    let authenticator = connection.frontend().authenticator();
    let address = socket.socket_addr().ip();
    if options.require_tls && encryption.is_none() {
        let error = SqlError::new(INVALID_AUTHORIZATION, "connection refused: no encryption")
            .with_hint("Connect with sslmode=require or higher.");
        authenticator.record(Door::Postgres, address, &user, Err(&error));
        return Err(fatal_of(error));
    }
    let encryption = encryption.unwrap_or_default();
    let common_name = encryption.common_name.as_deref().filter(|_| options.client_certificates);
    let certified_login =
        common_name.and_then(|name| authenticator.certified(Door::Postgres, &user, name));
    let demand = match certified_login {
        Some(login) => Demand::Open(login),
        None => authenticator.demand(Door::Postgres, &user),
    };
    let limits = Limits { time: STARTUP_TIMEOUT, message_bytes: SASL_BYTES_MAX };
    let nonce = Nonce::new(random::bytes().map_err(fatal_of)?);
    let sign_in = SignIn::new(limits, connected, encryption.end_point_hash, nonce);
    let Some((login, number)) = authenticate(socket, connection, &user, demand, sign_in).await?
    else {
        return Ok(None);
    };
    peer::within(address, connection.begin(socket, &user, login)).await?;
    socket.get_mut().begin_session();
    Ok(Some(number))
}

/// Runs the sign-in; returns the login and the number of messages that it took, or `None` when the client disconnects.
async fn authenticate(
    socket: &mut Socket,
    connection: &Arc<Connection>,
    user: &str,
    demand: Demand,
    mut sign_in: SignIn,
) -> Result<Option<(Login, u64)>, PgWireError> {
    let authenticator = connection.frontend().authenticator();
    let peer = socket.socket_addr().ip();
    let (method, login) = match demand {
        Demand::Open(login) => (Method::Trust, Some(login)),
        Demand::Proof(credentials, login) => (Method::Scram(credentials), login),
    };
    // From here on messages have a type.
    socket.set_state(PgWireConnectionState::AuthenticationInProgress);
    let (mut is_tested, mut number) = (false, 0);
    let mut step = sign_in.step(Event::Startup { user, method }, Instant::now());
    loop {
        match step {
            Step::Send(message) => {
                socket.send(PgWireBackendMessage::Authentication(message)).await?;
            }
            Step::Session(message) => {
                if is_tested {
                    authenticator.succeeded(peer, user);
                }
                // The identity may have ended since it was looked up.
                let is_valid = |login: &Login| authenticator.ended(&login.identity).is_none();
                let Some(login) = login.filter(is_valid) else {
                    let error = Failed::Password.error(user);
                    authenticator.record(Door::Postgres, peer, user, Err(&error));
                    return Err(fatal_of(error));
                };
                authenticator.record(Door::Postgres, peer, user, Ok(&login.identity));
                if let Some(message) = message {
                    socket.feed(PgWireBackendMessage::Authentication(message)).await?;
                }
                return Ok(Some((login, number)));
            }
            Step::Refuse { error, is_wrong_password } => {
                if is_wrong_password {
                    authenticator.record(Door::Postgres, peer, user, Err(&error));
                }
                return Err(fatal_of(error));
            }
        }
        let Some(message) = socket.next().await.transpose()? else { return Ok(None) };
        number += 1;
        if sign_in.tests_proof_next() {
            let delay = authenticator.admit(peer, user).map_err(|error| {
                authenticator.record(Door::Postgres, peer, user, Err(&error));
                fatal_of(error)
            })?;
            is_tested = true;
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
        }
        let event = match &message {
            PgWireFrontendMessage::PasswordMessageFamily(PasswordMessageFamily::Raw(body)) => {
                Event::Response(body)
            }
            _ => Event::Other,
        };
        step = sign_in.step(event, Instant::now());
    }
}
