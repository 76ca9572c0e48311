//! The accept loop: HTTP/1.1 and HTTP/2 without TLS (h2c) on one port.
//!
//! The protocol that a client speaks is detected from its first bytes. Nagle's algorithm is off, because small
//! responses would wait for acknowledgements. When the server stops, it accepts no more connections, lets the open ones
//! finish their requests, and waits for them within a bound.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use partita_frontend::Frontend;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::door::Door;
use crate::options::HttpOptions;
use crate::routes::routes;

/// The first bytes of a client that speaks HTTP/2.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Delay between checks for the rest of an incomplete preface.
const PREFACE_PAUSE: Duration = Duration::from_millis(5);
/// Delay after accept() failed, as it does when the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Maximum requests in flight on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// Bytes that an HTTP/2 client may send ahead: on a stream, and on a connection.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// Interval of pings, and the time without a response after which an HTTP/2 connection is closed.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n\
    content-type: application/json\r\ncontent-length: 32\r\nconnection: close\r\n\r\n\
    {\"error\":\"too many connections\"}";

/// Serves HTTP and Flight until `stop` is cancelled and the requests in flight have ended.
///
/// # Errors
/// When the listener's address cannot be read.
pub async fn serve(
    listener: TcpListener,
    frontend: Arc<Frontend>,
    options: HttpOptions,
    stop: CancellationToken,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    let drain_timeout = options.drain_timeout;
    let permits = Arc::new(Semaphore::new(options.connections_max));
    let door = Door::new(frontend, options);
    let app = routes(&door);
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    tracing::info!(%address, "serving HTTP and Flight");
    loop {
        // Ended connections are reaped between new ones.
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(ended) = connections.join_next() => {
                report(ended);
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Each connection has a permit; without one it only gets a 503.
        match Arc::clone(&permits).try_acquire_owned() {
            Ok(permit) => {
                let connection = Connection {
                    door: Arc::clone(&door),
                    app: app.clone(),
                    watcher: graceful.watcher(),
                    _permit: permit,
                };
                connections.spawn(connection.run(stream, stop.clone()));
            }
            Err(_) => {
                door.metrics.connection_refused();
                connections.spawn(refuse(stream));
            }
        }
    }
    drop(listener);
    // Open requests get `drain_timeout`; then their connections are dropped.
    let drained = tokio::time::timeout(drain_timeout, async {
        graceful.shutdown().await;
        while let Some(ended) = connections.join_next().await {
            report(ended);
        }
    });
    if drained.await.is_err() {
        tracing::warn!("closing connections that did not end in time");
        connections.shutdown().await;
    }
    Ok(())
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection's task panicked");
    }
}

/// Sends a 503 because of the limit of connections.
async fn refuse(mut stream: TcpStream) {
    let say = async {
        stream.write_all(TOO_MANY).await?;
        stream.shutdown().await
    };
    match tokio::time::timeout(Duration::from_secs(1), say).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a refused client had disconnected"),
        Err(_) => tracing::debug!("a refused client did not read the response"),
    }
}

/// A client's connection, which occupies one permit.
struct Connection {
    door: Arc<Door>,
    app: axum::Router,
    watcher: Watcher,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    async fn run(self, stream: TcpStream, stop: CancellationToken) {
        self.door.metrics.connection_opened();
        let door = Arc::clone(&self.door);
        if let Err(error) = self.serve(stream, stop).await {
            tracing::debug!(%error, "a connection ended");
        }
        door.metrics.connection_closed();
    }

    async fn serve(
        self,
        stream: TcpStream,
        stop: CancellationToken,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        stream.set_nodelay(true)?;
        let header_timeout = self.door.options.header_timeout;
        let http2 = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            http2 = tokio::time::timeout(header_timeout, speaks_http2(&stream)) => http2??,
        };
        let Some(http2) = http2 else { return Ok(()) };
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(header_timeout);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_INTERVAL);
        let builder = if http2 { builder.http2_only() } else { builder.http1_only() };
        let service = TowerToHyperService::new(self.app);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        self.watcher.watch(connection).await
    }
}

/// Returns true if a client begins as HTTP/2 does; `None` when it disconnects before that is certain.
async fn speaks_http2(stream: &TcpStream) -> io::Result<Option<bool>> {
    let mut first = [0; HTTP2_PREFACE.len()];
    loop {
        let len = stream.peek(&mut first).await?;
        if len == 0 {
            return Ok(None);
        }
        if !HTTP2_PREFACE.starts_with(&first[..len]) {
            return Ok(Some(false));
        }
        if len == HTTP2_PREFACE.len() {
            return Ok(Some(true));
        }
        tokio::time::sleep(PREFACE_PAUSE).await;
    }
}
