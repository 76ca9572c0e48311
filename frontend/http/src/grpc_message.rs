//! Messages of gRPC statuses, short enough for every client.
//!
//! A status is sent in the headers of a response, or in the trailers behind its body. Clients refuse both from 8 or 16 KiB
//! on, and then report that limit in place of the error. A message may quote what a client sent (a pattern, a name, a
//! text with a syntax error), so it is cut here, where all statuses of all services pass.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tonic::Status;

/// Header of a message. Bytes that are not printable ASCII are percent-encoded.
const MESSAGE: &str = "grpc-message";
/// Maximum bytes of a message as it is sent, so that other headers have room beside it.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// End of a message that was cut.
const ELLIPSIS: &[u8] = b"...";

/// The response of a gRPC service with a message that every client accepts.
pub(crate) fn shorten(response: axum::http::Response<tonic::body::Body>) -> Response {
    let (mut head, body) = response.into_parts();
    shorten_message(&mut head.headers);
    Response::from_parts(head, Body::new(Shortened { body }))
}

/// A body whose trailers have a short message.
struct Shortened {
    body: tonic::body::Body,
}

impl HttpBody for Shortened {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context).map_ok(with_short_message)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn with_short_message(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            shorten_message(&mut trailers);
            Frame::trailers(trailers)
        }
        Err(frame) => frame,
    }
}

fn shorten_message(headers: &mut HeaderMap) {
    let Some(message) = headers.get_mut(MESSAGE) else { return };
    let text = message.as_bytes();
    if text.len() <= MESSAGE_BYTES_MAX {
        return;
    }
    let beginning = &text[..end_of_beginning(text)];
    let short = HeaderValue::from_bytes(&[beginning, ELLIPSIS].concat());
    if let Ok(short) = short {
        *message = short;
    }
}

/// Length of the beginning of an encoded text that is kept: neither an escaped byte nor a character is cut.
fn end_of_beginning(text: &[u8]) -> usize {
    let mut end = MESSAGE_BYTES_MAX;
    // The last two bytes may begin an escape, which has three.
    if let Some(position) = text[end - 2..end].iter().position(|byte| *byte == b'%') {
        end = end - 2 + position;
    }
    // A character that is not ASCII is dropped: its last bytes may be missing.
    while let [.., b'%', high @ (b'8' | b'9' | b'A'..=b'F'), _] = &text[..end] {
        end -= 3;
        if (b'C'..=b'F').contains(high) {
            break;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message after it was sent.
    fn sent(message: &str) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(MESSAGE, HeaderValue::from_str(message).unwrap());
        let trailers = with_short_message(Frame::trailers(headers.clone())).into_trailers();
        shorten_message(&mut headers);
        assert_eq!(trailers.unwrap(), headers);
        headers[MESSAGE].to_str().unwrap().to_owned()
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        for length in [0, 1, MESSAGE_BYTES_MAX] {
            let message = "x".repeat(length);
            assert_eq!(sent(&message), message);
        }
        let long = sent(&"x".repeat(MESSAGE_BYTES_MAX + 1));
        assert_eq!(long, format!("{}...", "x".repeat(MESSAGE_BYTES_MAX)));
        for letter in ["%C3%A4", "%E2%82%AC", "%F0%9F%98%80", "%22"] {
            for prefix in ["", "x", "xx", "xxx", "xxxx"] {
                let short = sent(&format!("{prefix}{}", letter.repeat(2_000)));
                let letters = short.strip_prefix(prefix).unwrap().strip_suffix("...").unwrap();
                let count = letters.len() / letter.len();
                assert_eq!(letters, letter.repeat(count), "{prefix}{letter}");
                assert!(short.len() > MESSAGE_BYTES_MAX - 3 * letter.len(), "{prefix}{letter}");
            }
        }
    }

    #[test]
    fn data_pass_unchanged() {
        let data = with_short_message(Frame::data(Bytes::from_static(b"data"))).into_data();
        assert_eq!(data.unwrap(), Bytes::from_static(b"data"));
    }
}
