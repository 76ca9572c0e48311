//! The one gRPC server of a process.
//!
//! A stop is graceful within a bound: no new connections, a moment for what is under way, then every
//! connection that is left is cut. So a peer that hangs, or watches for ever, does not keep a process
//! from ending.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{Stream, stream};
use partita_proto::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::CONNECTION_WINDOW_BYTES;

/// Connections at a time; others wait to be accepted. A peer has up to three, and raft's links.
const CONNECTIONS_MAX: usize = 4096;
/// Requests under way on a connection; others wait at the peer. Scans that are read slowly count.
const REQUESTS_MAX: u32 = 8192;
/// What a request may have under way before it is read: a whole write of a frontend.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// The largest piece in which a message is sent. Requests take turns after each, so that a small one
/// waits for 64 KiB of a large one: half a millisecond at 1 Gbit/s.
const PIECE_BYTES: u32 = 64 << 10;
/// Requests that a peer dropped before they were looked at. HTTP/2 takes twenty for an attack; here
/// it is a query with a limit over many partitions.
const DROPPED_REQUESTS_MAX: usize = 8192;
/// When nothing was heard from a peer for this long, it is asked whether it lives ...
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// ... and when it does not say so within this, its scans end.
const PING_WAIT: Duration = Duration::from_secs(10);
/// How long requests may go on after the stop.
const DRAIN_WAIT: Duration = Duration::from_secs(5);
/// How long the cut connections get to be gone.
const CUT_WAIT: Duration = Duration::from_secs(1);
/// After a failure to accept (no more files may be open, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves a set of tonic services until the stop, and a moment longer for what is under way. Dropping
/// the future cuts all connections.
///
/// # Errors
/// [`Error::Internal`] when the server ends by itself.
pub async fn serve(
    listener: TcpListener,
    routes: Routes,
    stop: CancellationToken,
) -> Result<(), Error> {
    let cut = CancellationToken::new();
    let _cut_when_dropped = cut.clone().drop_guard();
    let serving = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(REQUESTS_MAX)
        .max_frame_size(PIECE_BYTES)
        .http2_max_pending_accept_reset_streams(Some(DROPPED_REQUESTS_MAX))
        .http2_keepalive_interval(Some(PING_INTERVAL))
        .http2_keepalive_timeout(Some(PING_WAIT))
        .add_routes(routes)
        .serve_with_incoming_shutdown(
            accept(listener, cut.clone()),
            stop.clone().cancelled_owned(),
        );
    let mut serving = Box::pin(serving);
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

/// Connections as they come.
fn accept(
    listener: TcpListener,
    cut: CancellationToken,
) -> impl Stream<Item = io::Result<Connection>> {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    stream::unfold((listener, permits, cut), |(listener, permits, cut)| async move {
        // The semaphore is never closed.
        let permit = Arc::clone(&permits).acquire_owned().await.ok()?;
        let stream = loop {
            match listener.accept().await {
                Ok((stream, _)) => break stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        };
        let prepared = stream.set_nodelay(true).map(|()| Connection {
            stream,
            // Of its own, so that connections do not share a lock.
            cut: Box::pin(cut.child_token().cancelled_owned()),
            _permit: permit,
        });
        Some((prepared, (listener, permits, cut)))
    })
}

/// A connection that can be cut.
struct Connection {
    stream: TcpStream,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    _permit: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Reading is enough: HTTP/2 reads all the time.
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
