//! Options of the door.

use std::sync::Arc;
use std::time::Duration;

use partita_tls::Reloading;

use crate::stream::PostgresTls;

/// Default limit of concurrent connections.
const CONNECTIONS_MAX: usize = 512;
/// Default limit of the time without progress inside of a message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// Options of the PostgreSQL door.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Maximum concurrent connections; further ones get SQLSTATE 53300.
    pub max_connections: usize,
    /// Maximum time without progress inside of a message, before the connection is closed.
    pub message_timeout: Duration,
    /// TLS for clients that want it; `None`: connections are never encrypted.
    pub tls: Option<Arc<Reloading<PostgresTls>>>,
    /// Refuse sessions without TLS with SQLSTATE 28000.
    pub require_tls: bool,
    /// Log a client in without a password if the common name of its certificate is its user. The certificate must be
    /// of one of the authorities that the door was loaded with.
    pub client_certificates: bool,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            max_connections: CONNECTIONS_MAX,
            message_timeout: MESSAGE_TIMEOUT,
            tls: None,
            require_tls: false,
            client_certificates: false,
        }
    }
}
