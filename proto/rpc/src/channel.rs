//! Connections to other processes: made when first needed, made again when they broke.
//!
//! A channel waits for its connection with one request at a time, and each request that waits tries
//! anew when that fails. So that a thousand requests to a host that is gone do not fail one second
//! after another, a failure holds for a moment.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};

use crate::CONNECTION_WINDOW_BYTES;

/// How long establishing a connection may take.
const CONNECT_WAIT: Duration = Duration::from_secs(1);
/// For how long a failure to connect is the answer to whoever asks.
const FAILURE_HOLDS: Duration = Duration::from_millis(100);
/// When nothing was heard for this long, the peer is asked whether it lives ...
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// ... and has this long to say so.
const PING_WAIT: Duration = Duration::from_secs(2);
/// What a scan's stream may have under way before it is read: with a millisecond to the peer, 2 GB/s;
/// with a hundred streams that nobody reads, 200 MiB.
const STREAM_WINDOW_BYTES: u32 = 2 << 20;
/// Streams that were dropped and may still get frames. Those of more are counted as errors of the
/// peer by HTTP/2, so that is not counted at all: queries with a limit drop streams all the time.
const DROPPED_STREAMS_MAX: usize = 1024;

/// A channel to an address, `host:port`; connects when it is first used. To be called in a tokio
/// runtime.
pub(crate) fn channel(address: &str) -> Channel {
    let dialer = Dialer { address: address.into(), failed: Arc::default() };
    // The dialer knows where to connect to; this is the authority that requests name.
    Endpoint::from_static("http://partita")
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_WAIT)
        .keep_alive_while_idle(true)
        .http2_max_concurrent_reset_streams(DROPPED_STREAMS_MAX)
        .http2_max_local_error_reset_streams(None)
        .connect_with_connector_lazy(tower::service_fn(move |_| dialer.clone().dial()))
}

/// Connects to one address.
#[derive(Clone)]
struct Dialer {
    address: Arc<str>,
    /// When and why it last failed.
    failed: Arc<Mutex<Option<(Instant, Arc<str>)>>>,
}

impl Dialer {
    async fn dial(self) -> io::Result<TokioIo<TcpStream>> {
        let failed = self.failed.lock().clone();
        if let Some((at, why)) = failed
            && at.elapsed() < FAILURE_HOLDS
        {
            return Err(io::Error::other(why.to_string()));
        }
        let connected = connect(&self.address).await;
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
