//! How the doors of this crate run. What is not here is a constant next to its use.

use std::sync::Arc;
use std::time::Duration;

use partita_proto::health::{Health, Well};

use crate::guard::Guard;

/// How the HTTP and Flight doors run.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Connections at a time; more are told 503 and closed.
    pub connections_max: usize,
    /// Bytes of a request's body as it is sent, perhaps compressed.
    pub body_bytes_max: usize,
    /// Bytes of a request's body when it is not compressed any more.
    pub inflated_bytes_max: usize,
    /// Bytes of all bodies that are being worked on; requests wait for their share of it.
    pub in_flight_bytes_max: usize,
    /// How long a connection may take to send a request's head, and how long it may be idle.
    pub header_timeout: Duration,
    /// How long a request's body may make no progress, and the time after which it has to come faster than
    /// `body_rate_min`.
    pub body_timeout: Duration,
    /// How long a body that has begun to come waits for memory that other bodies have.
    pub body_wait: Duration,
    /// Bytes a second of a body that takes long.
    pub body_rate_min: usize,
    /// How long requests in flight may take to end when the server stops.
    pub drain_timeout: Duration,
    /// What tables made by line protocol call their time index.
    pub time_column: String,
    /// Columns that line protocol may take a table to, the time included.
    pub line_columns_max: usize,
    /// Bytes of one string value of line protocol.
    pub line_string_bytes_max: usize,
    /// Prepared statements of Flight SQL clients that are kept; the longest unused go first.
    pub prepared_max: usize,
    /// Bytes of their texts and values; the longest unused go first.
    pub prepared_bytes_max: usize,
    /// The host names and the origins of pages that are let in.
    pub guard: Guard,
    /// Knows which parts of the process do not serve, for `/health` and `/ready`.
    pub health: Arc<dyn Health>,
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
        }
    }
}
