//! Options of the HTTP and Flight doors. Other limits are constants next to their use.

use std::sync::Arc;
use std::time::Duration;

use partita_proto::health::{Health, Well};
use partita_tls::Reloading;
use partita_tls::rustls::ServerConfig;

use crate::guard::Guard;

/// Limits and settings of the HTTP and Flight doors.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Maximum concurrent connections; further ones get 503 and are closed.
    pub connections_max: usize,
    /// Maximum bytes of a request's body as sent, possibly compressed.
    pub body_bytes_max: usize,
    /// Maximum bytes of a request's body after decompression.
    pub inflated_bytes_max: usize,
    /// Maximum bytes of all bodies in flight; further requests wait.
    pub in_flight_bytes_max: usize,
    /// Maximum time to send a request's head, and maximum idle time of a connection.
    pub header_timeout: Duration,
    /// Maximum time without progress of a request's body, and the time after which it must arrive faster than
    /// `body_rate_min`.
    pub body_timeout: Duration,
    /// Maximum time that a body waits for memory which other bodies occupy.
    pub body_wait: Duration,
    /// Minimum bytes a second of a body that takes long.
    pub body_rate_min: usize,
    /// Time that requests in flight get to end when the server stops.
    pub drain_timeout: Duration,
    /// Name of the time index in tables that line protocol creates.
    pub time_column: String,
    /// Maximum columns of a table that line protocol may add columns to, the time included.
    pub line_columns_max: usize,
    /// Maximum bytes of a string value of line protocol.
    pub line_string_bytes_max: usize,
    /// Maximum number of prepared statements of Flight SQL clients; the least recently used are dropped first.
    pub prepared_max: usize,
    /// Maximum bytes of their texts and values; the least recently used are dropped first.
    pub prepared_bytes_max: usize,
    /// The host names, and the origins of pages, that are admitted.
    pub guard: Guard,
    /// Reports parts of the process that are out of service, for `/health` and `/ready`.
    pub health: Arc<dyn Health>,
    /// TLS of the port, which then speaks nothing else; `None`: plain text. The configuration must offer
    /// [`crate::alpn`].
    pub tls: Option<Arc<Reloading<Arc<ServerConfig>>>>,
    /// True if `/metrics` needs neither an identity nor MONITOR; without them it names no tables.
    pub metrics_open: bool,
    /// Time after which a page or a client of a Flight handshake has to sign in again.
    pub session_time: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            connections_max: 1_024,
            body_bytes_max: 32 << 20,
            inflated_bytes_max: 64 << 20,
            in_flight_bytes_max: 256 << 20,
            header_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(30),
            body_wait: Duration::from_secs(10),
            body_rate_min: 1 << 10,
            drain_timeout: Duration::from_secs(20),
            time_column: "time".to_owned(),
            line_columns_max: 200,
            line_string_bytes_max: 64 << 10,
            prepared_max: 10_000,
            prepared_bytes_max: 64 << 20,
            guard: Guard::default(),
            health: Arc::new(Well),
            tls: None,
            metrics_open: false,
            session_time: Duration::from_secs(12 * 60 * 60),
        }
    }
}
