//! Connections to other processes: opened when first needed, and reopened after a failure.
//!
//! A channel waits for its connection with one request at a time, and each waiting request tries again when that fails.
//! So that a thousand requests to an unreachable host do not fail one second after another, a failure is cached for a
//! moment.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use partita_tls::{LinkStream, Links, Role};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};

use crate::{CONNECTION_WINDOW_BYTES, PIECE_BYTES};

/// Maximum time to establish a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(1);
/// Time for which a failure to connect is returned without another attempt.
const FAILURE_HOLDS: Duration = Duration::from_millis(100);
/// Idle time after which the peer is pinged ...
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// ... and maximum time for its answer.
const PING_WAIT: Duration = Duration::from_secs(2);
/// Window of a scan's stream, maximum unread bytes: with a millisecond to the peer, 2 GB/s; with a hundred unread
/// streams, 200 MiB.
const STREAM_WINDOW_BYTES: u32 = 2 << 20;
/// Maximum dropped streams that may still get frames. HTTP/2 counts more than this as errors of the peer; the limit is
/// high because queries with a limit drop streams all the time.
const DROPPED_STREAMS_MAX: usize = 1024;

/// A channel to a server with a role at an address, `host:port`; connects at its first use. Must be called in a tokio
/// runtime.
pub(crate) fn channel(links: &Links, role: Role, address: &str) -> Channel {
    let links = links.clone();
    let dialer = Dialer { address: address.into(), links, role, failed: Arc::default() };
    // The dialer has the address; this is only the authority in requests.
    Endpoint::from_static("http://partita")
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(PIECE_BYTES)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_WAIT)
        .keep_alive_while_idle(true)
        .http2_max_concurrent_reset_streams(DROPPED_STREAMS_MAX)
        .http2_max_local_error_reset_streams(None)
        .connect_with_connector_lazy(tower::service_fn(move |_| dialer.clone().dial()))
}

/// Dials one address.
#[derive(Clone)]
struct Dialer {
    address: Arc<str>,
    links: Links,
    /// Role that the server must have.
    role: Role,
    /// Time and reason of the last failure.
    failed: Arc<Mutex<Option<(Instant, Arc<str>)>>>,
}

impl Dialer {
    async fn dial(self) -> io::Result<TokioIo<LinkStream>> {
        let failed = self.failed.lock().clone();
        if let Some((time, why)) = failed
            && time.elapsed() < FAILURE_HOLDS
        {
            return Err(io::Error::other(why.to_string()));
        }
        let connected =
            async { self.links.connect(connect(&self.address).await?, self.role).await };
        let connected = connected.await;
        *self.failed.lock() = match &connected {
            Ok(_) => None,
            Err(error) => Some((Instant::now(), error.to_string().into())),
        };
        connected.map(TokioIo::new)
    }
}

async fn connect(address: &str) -> io::Result<TcpStream> {
    let stream = tokio::time::timeout(CONNECT_WAIT, TcpStream::connect(address))
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "connecting took too long"))??;
    stream.set_nodelay(true)?;
    Ok(stream)
}
