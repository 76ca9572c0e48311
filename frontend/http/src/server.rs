//! The accept loop: HTTP/1.1 and HTTP/2 on one port, with TLS if it is configured, and otherwise without (h2c).
//!
//! ```text
//!   TCP ─▶ permit ─▶ TLS handshake ─▶ first bytes: HTTP/2 or HTTP/1.1 ─▶ hyper, with the first bytes again ─▶ routes
//! ```
//!
//! The protocol that a client speaks is detected from its first decrypted bytes, whatever it has negotiated. Nagle's algorithm is off, because small
//! responses would wait for acknowledgements. When the server stops, it accepts no more connections, lets the open ones
//! finish their requests, and waits for them within a bound.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use partita_frontend::Frontend;
use partita_tls::tokio_rustls::TlsAcceptor;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::activity::Activity;
use crate::caller::Peer;
use crate::door::Door;
use crate::options::HttpOptions;
use crate::routes::routes;

/// The first bytes of a client that speaks HTTP/2.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Delay after accept() failed, as it does when the process is out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Maximum requests in flight on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// Bytes that an HTTP/2 client may send ahead: on a stream, and on a connection.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// Interval of pings, and the time without a response after which an HTTP/2 connection is closed.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum time of the handshake and the first bytes together.
const BEGINNING_MAX: Duration = Duration::from_secs(10);
/// Time without a request after which an HTTP/2 connection is closed, unless a request on it had an identity.
const STRANGER_IDLE_MAX: Duration = Duration::from_secs(30);
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\n\
    content-type: application/json\r\ncontent-length: 32\r\nconnection: close\r\n\r\n\
    {\"error\":\"too many connections\"}";

/// Protocols that the port's TLS configuration must offer by ALPN, by preference.
pub fn alpn() -> Vec<Vec<u8>> {
    vec![b"h2".to_vec(), b"http/1.1".to_vec()]
}

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
    let speaks_tls = options.tls.is_some();
    let permits = Arc::new(Semaphore::new(options.connections_max));
    let door = Door::new(frontend, options);
    let app = routes(&door);
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    tracing::info!(%address, tls = speaks_tls, "serving HTTP and Flight");
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
        let (stream, peer) = match accepted {
            Ok((stream, peer)) => (stream, peer),
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
                    peer: Peer { address: peer.ip(), tls: speaks_tls },
                    watcher: graceful.watcher(),
                    _permit: permit,
                };
                connections.spawn(connection.run(stream, stop.clone()));
            }
            Err(_) => {
                door.metrics.connection_refused();
                // A client that expects TLS could not read the response.
                if !speaks_tls {
                    connections.spawn(refuse(stream));
                }
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
    peer: Peer,
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

    async fn serve(self, stream: TcpStream, stop: CancellationToken) -> Result<(), Failure> {
        stream.set_nodelay(true)?;
        let beginning = Instant::now() + BEGINNING_MAX.min(self.door.options.header_timeout);
        let Some(tls) = &self.door.options.tls else {
            return self.talk(stream, beginning, stop).await;
        };
        // Connections keep the certificate with which they were opened.
        let acceptor = TlsAcceptor::from(tls.current());
        let handshake = acceptor.accept(stream);
        let handshake = tokio::time::timeout_at(beginning, handshake);
        let encrypted = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            encrypted = handshake => encrypted??,
        };
        self.talk(encrypted, beginning, stop).await
    }

    /// Serves the requests on a stream of plain bytes, of which the first come until `beginning`.
    async fn talk<S>(
        self,
        mut stream: S,
        beginning: Instant,
        stop: CancellationToken,
    ) -> Result<(), Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let header_timeout = self.door.options.header_timeout;
        let mut first = Vec::with_capacity(HTTP2_PREFACE.len());
        let http2 = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            http2 = tokio::time::timeout_at(beginning, speaks_http2(&mut stream, &mut first)) => http2??,
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
        let peer = self.peer;
        let activity = Activity::new();
        let of_requests = Arc::clone(&activity);
        let app = ServiceExt::<Request<Incoming>>::map_request(
            self.app,
            move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(peer);
                request.extensions_mut().insert(Arc::clone(&of_requests));
                request
            },
        );
        let stream = Replayed { first, position: 0, stream };
        let service = TowerToHyperService::new(app);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let connection = self.watcher.watch(connection);
        if !http2 {
            // The time to read a head limits it.
            return connection.await;
        }
        tokio::select! {
            ended = connection => ended,
            () = activity.idle(STRANGER_IDLE_MAX) => Ok(()),
        }
    }
}

/// The reason for which a connection ended.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Reads a client's first bytes until it is certain whether it begins as HTTP/2 does; `None` when it disconnects before.
async fn speaks_http2(
    stream: &mut (impl AsyncRead + Unpin),
    first: &mut Vec<u8>,
) -> io::Result<Option<bool>> {
    let mut buffer = [0; HTTP2_PREFACE.len()];
    loop {
        let missing = HTTP2_PREFACE.len() - first.len();
        let len = stream.read(&mut buffer[..missing]).await?;
        if len == 0 {
            return Ok(None);
        }
        first.extend_from_slice(&buffer[..len]);
        if !HTTP2_PREFACE.starts_with(first) {
            return Ok(Some(false));
        }
        if first.len() == HTTP2_PREFACE.len() {
            return Ok(Some(true));
        }
    }
}

/// A stream whose first bytes have been read, and are read again.
struct Replayed<S> {
    first: Vec<u8>,
    /// Number of these bytes that were read again.
    position: usize,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Replayed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let remaining = &self.first[self.position..];
        if remaining.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let len = remaining.len().min(buffer.remaining());
        buffer.put_slice(&remaining[..len]);
        self.position += len;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Replayed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_bytes_decide_and_are_read_again() {
        let cases: [(&[u8], Option<bool>); 4] = [
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nrest", Some(true)),
            (b"PRI * HTTP/1.1\r\n\r\n", Some(false)),
            (b"GET / HTTP/1.1\r\n\r\n", Some(false)),
            (b"PRI * ", None),
        ];
        for (bytes, expected) in cases {
            // A client that sends byte by byte.
            let (mut client, mut server) = tokio::io::duplex(1);
            let sent = bytes.to_vec();
            let sending = tokio::spawn(async move { client.write_all(&sent).await });
            let mut first = Vec::new();
            assert_eq!(speaks_http2(&mut server, &mut first).await.unwrap(), expected);
            let mut received = Vec::new();
            let mut replayed = Replayed { first, position: 0, stream: server };
            replayed.read_to_end(&mut received).await.unwrap();
            assert_eq!(received, bytes);
            sending.await.unwrap().unwrap();
        }
    }
}
