//! The gRPC server of a process.
//!
//! A stop is graceful within a bound: no new connections, a moment for in-flight requests, then every remaining
//! connection is cut. So a peer that hangs, or watches for ever, does not keep a process from ending.
//!
//! With a certificate every connection is TLS, and every call is checked by the role of its client (`rights.rs`).
//! Handshakes run beside each other, within the bounds of a [`Gate`]: a client that sends nothing delays no other one, and
//! strangers none of the cluster.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use partita_proto::Error;
use partita_tls::{Gate, LinkStream, Links, Place};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::AbortOnDropHandle;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::Connected;

use crate::rights::{Caller, Guard};
use crate::{CONNECTION_WINDOW_BYTES, PIECE_BYTES};

/// Maximum connections, those in a handshake among them; others wait to be accepted. A peer has up to three, and raft's
/// links. The gate allows half as many handshakes.
const CONNECTIONS_MAX: usize = 4096;
/// Maximum in-flight requests on a connection; others wait at the peer. Scans that are read slowly count.
const REQUESTS_MAX: u32 = 8192;
/// Window of a request, maximum unread bytes: a whole write of a frontend.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// Maximum requests that a peer dropped before they were handled. HTTP/2 regards twenty as an attack; here it is a
/// query with a limit over many partitions.
const DROPPED_REQUESTS_MAX: usize = 8192;
/// Idle time after which a peer is pinged ...
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// ... and maximum time for its answer; then its scans end.
const PING_WAIT: Duration = Duration::from_secs(10);
/// Time for in-flight requests after the stop: longer than a write takes, and not much longer, since raft's links to
/// other nodes never end by themselves.
const DRAIN_WAIT: Duration = Duration::from_secs(2);
/// Maximum time for cut connections to end.
const CUT_WAIT: Duration = Duration::from_secs(1);
/// Pause after a failed accept (mostly too many open files).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves a set of tonic services until the stop, and a moment longer for in-flight requests. Dropping the future cuts
/// all connections. With a certificate, clients need one of the cluster too, and may call what their role allows.
///
/// # Errors
/// [`Error::Internal`] when the server ends by itself.
pub async fn serve(
    listener: TcpListener,
    links: Links,
    routes: Routes,
    stop: CancellationToken,
) -> Result<(), Error> {
    let cut = CancellationToken::new();
    let _cut_when_dropped = cut.clone().drop_guard();
    let gate = Gate::default();
    let _reports = AbortOnDropHandle::new(tokio::spawn(gate.clone().report()));
    let serving = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(REQUESTS_MAX)
        .max_frame_size(PIECE_BYTES)
        .http2_max_pending_accept_reset_streams(Some(DROPPED_REQUESTS_MAX))
        .http2_keepalive_interval(Some(PING_INTERVAL))
        .http2_keepalive_timeout(Some(PING_WAIT))
        .layer(Guard { server: links.role() })
        .add_routes(routes)
        .serve_with_incoming_shutdown(
            secure(accept(listener, gate, cut.clone()), links),
            stop.clone().cancelled_owned(),
        );
    let mut serving = Box::pin(serving);
    // After the stop requests may drain for a while; then the rest is cut.
    let drained = async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN_WAIT).await;
    };
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = drained => {
            cut.cancel();
            tokio::time::timeout(CUT_WAIT, serving).await.unwrap_or(Ok(()))
        }
    };
    ended.map_err(|error| Error::Internal(format!("the gRPC server ended: {error}")))
}

/// Accepted connections, before their handshakes.
fn accept(
    listener: TcpListener,
    gate: Gate,
    cut: CancellationToken,
) -> impl Stream<Item = Accepted> {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    stream::unfold((listener, permits, gate, cut), |(listener, permits, gate, cut)| async move {
        // The semaphore is never closed.
        let permit = Arc::clone(&permits).acquire_owned().await.ok()?;
        let (stream, peer) = loop {
            match listener.accept().await {
                Ok(accepted) => break accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        };
        let place = gate.enter(peer);
        // A token per connection, so that connections do not share a lock.
        let accepted = Accepted { stream, place, cut: cut.child_token(), permit };
        Some((accepted, (listener, permits, gate, cut)))
    })
}

/// Connections after their handshakes, in the order in which these end.
fn secure(
    accepted: impl Stream<Item = Accepted>,
    links: Links,
) -> impl Stream<Item = io::Result<Connection>> {
    let handshakes = accepted.map(move |accepted| {
        let shaking = accepted.shake_hands(links.clone());
        AbortOnDropHandle::new(tokio::spawn(shaking))
    });
    handshakes
        .buffer_unordered(CONNECTIONS_MAX)
        .map(|ended| ended.unwrap_or_else(|error| Err(io::Error::other(error))))
}

/// A connection before its handshake.
struct Accepted {
    stream: TcpStream,
    place: Place,
    cut: CancellationToken,
    permit: OwnedSemaphorePermit,
}

impl Accepted {
    async fn shake_hands(self, links: Links) -> io::Result<Connection> {
        self.stream.set_nodelay(true)?;
        let (stream, role) = tokio::select! {
            secured = self.place.run(links.accept(self.stream)) => secured?,
            () = self.cut.cancelled() => return Err(io::ErrorKind::ConnectionAborted.into()),
        };
        let cut = Box::pin(self.cut.cancelled_owned());
        Ok(Connection { stream, caller: Caller(role), cut, _permit: self.permit })
    }
}

/// A connection that can be cut.
struct Connection {
    stream: LinkStream,
    caller: Caller,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    _permit: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Checking in reads is enough: HTTP/2 reads all the time.
        if self.cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
