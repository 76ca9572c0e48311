//! Memory of gRPC calls: each claims what it holds of the memory for bodies, as other requests do.
//!
//! ```text
//!   frames ── received: unread ──▶ tonic decodes a message ──▶ a claim, until the handler is done with it
//! ```
//!
//! A call has one message, whose bytes are claimed until it is answered, or a stream of them. A stream may be of any length,
//! so what counts is what is held at a time: the bytes that are not decoded yet, and the messages that are worked on, with
//! what is made of them. One connection may send many large requests at once.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use tonic::Status;

use crate::body::GZIP_RATIO;
use crate::door::{BodyShare, Door};
use crate::error::ApiError;

/// Bytes of a call for which no memory is claimed.
const FREE_BYTES: usize = 64 << 10;

/// Bytes that a call holds.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Bytes that have come and are not decoded.
    unread: usize,
    /// Bytes of the last frame.
    frame: usize,
    /// Bytes of messages that are worked on.
    decoded: usize,
}

impl Counts {
    fn total(self) -> usize {
        self.unread.saturating_add(self.decoded)
    }
}

/// Memory of one call. Everything that works for the call has a reference; the last one releases the memory.
pub(crate) struct CallMemory {
    door: Arc<Door>,
    /// Maximum bytes of a message, decompressed.
    message_bytes_max: usize,
    is_gzip: bool,
    counts: Mutex<Counts>,
    /// `None` while the call holds little.
    share: tokio::sync::Mutex<Option<BodyShare>>,
}

impl CallMemory {
    /// Memory of a call that has none yet.
    pub(crate) fn new(door: &Arc<Door>, message_bytes_max: usize, is_gzip: bool) -> Arc<Self> {
        Arc::new(Self {
            door: Arc::clone(door),
            message_bytes_max,
            is_gzip,
            counts: Mutex::default(),
            share: tokio::sync::Mutex::new(None),
        })
    }

    /// The memory of a call; `None` if it did not pass the middleware.
    pub(crate) fn of<T>(request: &tonic::Request<T>) -> Option<Arc<Self>> {
        request.extensions().get::<Arc<Self>>().map(Arc::clone)
    }

    /// Claims memory for a frame that has come, and for the message that is made of it.
    ///
    /// # Errors
    /// UNAVAILABLE when other requests occupy the memory for too long.
    pub(crate) async fn received(&self, frame: usize) -> Result<(), Status> {
        let unread = {
            let mut counts = self.counts.lock();
            counts.frame = frame;
            counts.unread = counts.unread.saturating_add(frame);
            counts.unread
        };
        let ratio = if self.is_gzip { GZIP_RATIO } else { 1 };
        self.cover(unread.saturating_mul(ratio).min(self.message_bytes_max)).await
    }

    /// Claims memory for a message that was decoded: `bytes`, with what is made of it.
    ///
    /// # Errors
    /// Those of [`Self::received`].
    pub(crate) async fn decoded(self: &Arc<Self>, bytes: usize) -> Result<Claim, Status> {
        let claim = Claim { call: Arc::clone(self), bytes };
        {
            let mut counts = self.counts.lock();
            // The decoder takes another frame only when it has no complete message.
            counts.unread = counts.unread.min(counts.frame);
            counts.decoded = counts.decoded.saturating_add(bytes);
        }
        self.cover(0).await?;
        Ok(claim)
    }

    /// Claims what the call holds; if that takes a larger share, with `spare` more.
    async fn cover(&self, spare: usize) -> Result<(), Status> {
        let busy = |error: ApiError| Status::unavailable(error.message);
        let mut slot = self.share.lock().await;
        let total = self.counts.lock().total();
        if total <= FREE_BYTES {
            return Ok(());
        }
        let present = slot.take();
        let mut share = match present {
            Some(share) => share,
            None => self.door.body_share().await.map_err(busy)?,
        };
        if total > share.bytes() {
            self.door.grow(&mut share, total.saturating_add(spare)).await.map_err(busy)?;
        }
        *slot = Some(share);
        Ok(())
    }

    /// Releases the memory of a message.
    fn release(&self, bytes: usize) {
        let total = {
            let mut counts = self.counts.lock();
            counts.decoded = counts.decoded.saturating_sub(bytes);
            counts.total()
        };
        // A share that grows just now is too large until the next message is released.
        let Ok(mut slot) = self.share.try_lock() else { return };
        if total <= FREE_BYTES {
            *slot = None;
        } else if let Some(share) = slot.as_mut() {
            share.shrink(total);
        }
    }
}

/// Memory of one message, released when it is dropped.
pub(crate) struct Claim {
    call: Arc<CallMemory>,
    bytes: usize,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.call.release(self.bytes);
    }
}

/// Claims memory for the body of a call as it comes. The state has the maximum bytes of a message.
pub(crate) async fn claim_memory(
    State((door, message_bytes_max)): State<(Arc<Door>, usize)>,
    mut request: Request,
    next: Next,
) -> Response {
    let encoding = request.headers().get("grpc-encoding");
    let is_gzip = encoding.is_some_and(|encoding| encoding.as_bytes() == b"gzip");
    let call = CallMemory::new(&door, message_bytes_max, is_gzip);
    request.extensions_mut().insert(Arc::clone(&call));
    let of_body = Arc::clone(&call);
    let request = request.map(|body| {
        let counted = stream::try_unfold(body.into_data_stream(), move |mut frames| {
            let call = Arc::clone(&of_body);
            async move {
                let Some(frame) = frames.next().await else { return Ok(None) };
                let frame: Bytes = frame.map_err(|error| Status::from_error(Box::new(error)))?;
                call.received(frame.len()).await?;
                Ok::<_, Status>(Some((frame, frames)))
            }
        });
        Body::from_stream(counted)
    });
    let response = next.run(request).await;
    drop(call);
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use partita_frontend::FrontendOptions;
    use partita_frontend::fake::Fake;
    use tonic::Code;

    use super::*;
    use crate::HttpOptions;

    const KIB: usize = 1 << 10;

    /// A door with a MiB of memory for bodies.
    fn door() -> Arc<Door> {
        let options = HttpOptions {
            in_flight_bytes_max: KIB * KIB,
            body_wait: Duration::from_millis(10),
            ..HttpOptions::default()
        };
        Door::new(Fake::new(1).frontend(FrontendOptions::default()).unwrap(), options)
    }

    #[tokio::test]
    async fn large_requests_share_the_memory_for_bodies() {
        let door = door();
        let call = || CallMemory::new(&door, 100 * KIB * KIB, false);
        let (first, second) = (call(), call());
        for frame in [1, 300 * KIB, 100 * KIB] {
            first.received(frame).await.unwrap();
        }
        second.received(60 * KIB).await.unwrap();
        let status = second.received(440 * KIB).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        drop((first, second));
        call().received(500 * KIB).await.unwrap();
    }

    #[tokio::test]
    async fn a_stream_holds_the_messages_that_are_worked_on_and_no_others() {
        let door = door();
        let call = || CallMemory::new(&door, 100 * KIB * KIB, false);
        let stream = call();
        for _ in 0..20 {
            for _ in 0..20 {
                stream.received(16 * KIB).await.unwrap();
            }
            drop(stream.decoded(640 * KIB).await.unwrap());
        }
        stream.received(16 * KIB).await.unwrap();
        let claim = stream.decoded(640 * KIB).await.unwrap();
        let status = call().received(500 * KIB).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        drop(claim);
        call().received(500 * KIB).await.unwrap();
    }

    #[tokio::test]
    async fn a_compressed_request_claims_what_it_may_become() {
        let door = door();
        let packed = CallMemory::new(&door, 900 * KIB, true);
        packed.received(100 * KIB).await.unwrap();
        let neighbour = CallMemory::new(&door, 900 * KIB, false);
        assert_eq!(neighbour.received(300 * KIB).await.unwrap_err().code(), Code::Unavailable);
        // Not more than a message may have.
        let limited = CallMemory::new(&door, 50 * KIB, true);
        drop((packed, neighbour));
        limited.received(500 * KIB).await.unwrap();
        CallMemory::new(&door, 50 * KIB, false).received(300 * KIB).await.unwrap();
    }
}
