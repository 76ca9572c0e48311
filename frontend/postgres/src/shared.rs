//! A socket that its connection reads and writes while another task watches for the client's disconnect.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// Interval of checks while there are unread bytes, because then the kernel does not report what comes after them.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A handle of a socket, which is closed when the last handle is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<TcpStream>);

impl Shared {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self(Arc::new(socket))
    }

    /// Waits until the client has closed its end, or the connection is broken. Bytes that it sent before remain to be
    /// read.
    pub(crate) async fn closed(&self) {
        loop {
            match self.0.ready(Interest::READABLE).await {
                Ok(ready) if !ready.is_read_closed() && !ready.is_error() => {}
                Ok(_) | Err(_) => return,
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

impl AsyncRead for Shared {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read_buf(buf) {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Shared {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// All bytes have been sent; the connection ends with its handles.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (TcpStream, Shared) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, Shared::new(listener.accept().await.unwrap().0))
    }

    #[tokio::test]
    async fn a_client_that_goes_is_noticed_even_behind_what_it_sent() {
        let (mut client, mut shared) = pair().await;
        client.write_all(b"some").await.unwrap();
        let watch = shared.clone();
        let early = tokio::time::timeout(Duration::from_millis(300), watch.closed()).await;
        assert!(early.is_err(), "it is there");
        client.write_all(b" more").await.unwrap();
        drop(client);
        tokio::time::timeout(Duration::from_secs(20), watch.closed()).await.expect("noticed");
        let mut text = String::new();
        shared.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "some more");
    }

    #[tokio::test]
    async fn bytes_go_both_ways() {
        let (mut client, mut shared) = pair().await;
        let payload = vec![7; 4 << 20];
        let writer = async {
            shared.write_all(&payload).await.unwrap();
            drop(shared);
        };
        let mut received = Vec::new();
        let (_, read) = tokio::join!(writer, client.read_to_end(&mut received));
        assert_eq!(read.unwrap(), payload.len());
        assert_eq!(received, payload);
    }
}
