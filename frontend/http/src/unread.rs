//! The rest of a request's body, when the response is ready before it has come.
//!
//! A request may be answered before its body has come: when the caller has no right, or names what does not exist. hyper
//! then closes the connection while the client still sends, and the client loses the response (over TLS always), or finds
//! its connection closed at the next request. Therefore a short rest is read before the response is sent; after a long one
//! the response says that the connection ends.
//!
//! Invariants:
//! - a handler that still reads keeps the body;
//! - what is read here is bounded, in bytes and in time;
//! - a client that waits for "100 Continue" is not asked for a body that nobody reads.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::header::{CONNECTION, EXPECT};
use axum::http::{HeaderValue, Version};
use axum::response::Response;
use bytes::Bytes;
use futures::StreamExt;
use hyper::body::{Frame, SizeHint};
use tokio::sync::oneshot;

/// Maximum bytes that are read in vain, and time that they may take.
const BYTES_MAX: usize = 256 << 10;
const TIME_MAX: Duration = Duration::from_secs(1);

/// A body that comes back when it is dropped before its end.
struct Lent {
    body: Body,
    is_over: bool,
    back: Option<oneshot::Sender<Body>>,
}

impl HttpBody for Lent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let lent = self.get_mut();
        let frame = Pin::new(&mut lent.body).poll_frame(context);
        lent.is_over |= matches!(frame, Poll::Ready(None | Some(Err(_))));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let is_over = self.is_over || self.body.is_end_stream();
        if let Some(back) = self.back.take().filter(|_| !is_over) {
            // After the response nobody waits for it.
            drop(back.send(std::mem::take(&mut self.body)));
        }
    }
}

/// The rest of a request's body.
pub(crate) struct Unread(Option<oneshot::Receiver<Body>>);

impl Unread {
    /// The same request, and the rest of its body. HTTP/2 ends a request without its connection.
    pub(crate) fn of(request: Request) -> (Request, Self) {
        if request.version() >= Version::HTTP_2
            || request.body().is_end_stream()
            || request.headers().contains_key(EXPECT)
        {
            return (request, Self(None));
        }
        let (back, rest) = oneshot::channel();
        let lend = |body| Body::new(Lent { body, is_over: false, back: Some(back) });
        (request.map(lend), Self(Some(rest)))
    }

    /// Reads the rest, if the handler has dropped the body; the response says when that is too much.
    pub(crate) async fn drain(self, response: &mut Response) {
        let Some(Ok(body)) = self.0.map(|mut rest| rest.try_recv()) else { return };
        let is_drained = tokio::time::timeout(TIME_MAX, has_short_end(body)).await;
        if !is_drained.unwrap_or(false) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// Reads a body; true if it ends within the limit.
async fn has_short_end(body: Body) -> bool {
    let mut frames = body.into_data_stream();
    let mut len = 0;
    while let Some(frame) = frames.next().await {
        let Ok(frame) = frame else { return false };
        len += frame.len();
        if len > BYTES_MAX {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True if a response to a request that was dropped says that the connection ends.
    async fn closes(request: Request) -> bool {
        let (request, unread) = Unread::of(request);
        drop(request);
        let mut response = Response::new(Body::empty());
        unread.drain(&mut response).await;
        response.headers().contains_key(CONNECTION)
    }

    #[tokio::test]
    async fn a_short_rest_is_read_and_a_long_one_ends_the_connection() {
        for (len, is_closed) in [(0, false), (BYTES_MAX, false), (BYTES_MAX + 1, true)] {
            let request = Request::new(Body::from(vec![0_u8; len]));
            assert_eq!(closes(request).await, is_closed, "{len}");
        }
        let mut request = Request::new(Body::from(vec![0_u8; BYTES_MAX + 1]));
        request.headers_mut().insert(EXPECT, HeaderValue::from_static("100-continue"));
        assert!(!closes(request).await);
    }

    #[tokio::test]
    async fn a_handler_that_still_reads_keeps_the_body() {
        let (request, unread) = Unread::of(Request::new(Body::from("abc")));
        let mut response = Response::new(Body::empty());
        unread.drain(&mut response).await;
        let body = axum::body::to_bytes(request.into_body(), 3).await.unwrap();
        assert_eq!(body, "abc");
    }
}
