//! Takes in a request's body: bounded, in time, decompressed.
//!
//! Memory is claimed before the first byte is read, from what the request says of its length, so that
//! many large requests wait instead of filling the memory together.

use std::io::Read;

use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use axum::http::{HeaderMap, StatusCode};
use flate2::read::MultiGzDecoder;
use futures::StreamExt;

use crate::door::{BodyShare, Door};
use crate::error::ApiError;

/// What line protocol inflates by, about; claims of memory are made by it.
const GZIP_RATIO: usize = 8;

/// A body, and its claim on the memory for bodies.
pub(crate) struct Taken {
    pub(crate) bytes: Vec<u8>,
    pub(crate) share: BodyShare,
}

fn too_large() -> ApiError {
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "request too large")
}

/// Reads a body whole.
///
/// # Errors
/// 400 when it stops in the middle or cannot be decompressed, 408 when it makes no progress, 413 when
/// it is too large, 415 for an encoding that is not known, 503 when too much is being worked on.
pub(crate) async fn take(door: &Door, headers: &HeaderMap, body: Body) -> Result<Taken, ApiError> {
    let options = &door.options;
    let gzip = match headers.get(CONTENT_ENCODING).map(|value| value.as_bytes()) {
        None | Some(b"" | b"identity") => false,
        Some(b"gzip" | b"x-gzip") => true,
        Some(other) => {
            return Err(ApiError::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!(
                    "Content-Encoding \"{}\" is not supported, only gzip and identity are",
                    String::from_utf8_lossy(other)
                ),
            ));
        }
    };
    let length =
        headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > options.body_bytes_max) {
        return Err(too_large());
    }
    let sent = length.unwrap_or(options.body_bytes_max);
    let claim = if gzip {
        sent.saturating_mul(GZIP_RATIO + 1).min(options.inflated_bytes_max)
    } else {
        sent
    };
    let share = door
        .body_share(claim)
        .await
        .ok_or_else(|| ApiError::busy("too many large requests are being worked on; try again"))?;

    let mut bytes = Vec::with_capacity(length.unwrap_or(0));
    let mut frames = body.into_data_stream();
    loop {
        let frame = tokio::time::timeout(options.body_timeout, frames.next())
            .await
            .map_err(|_| ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive"))?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| {
            ApiError::new(StatusCode::BAD_REQUEST, format!("the body ended too early: {error}"))
        })?;
        if bytes.len() + frame.len() > options.body_bytes_max {
            return Err(too_large());
        }
        bytes.extend_from_slice(&frame);
    }
    door.metrics.body_bytes(bytes.len());
    if gzip {
        let limit = options.inflated_bytes_max;
        bytes = tokio::task::spawn_blocking(move || inflate(&bytes, limit))
            .await
            .map_err(|error| ApiError::internal(format!("decompression failed: {error}")))??;
    }
    Ok(Taken { bytes, share })
}

fn inflate(bytes: &[u8], limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut inflated = Vec::with_capacity(bytes.len().saturating_mul(4).min(limit));
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    MultiGzDecoder::new(bytes).take(bound).read_to_end(&mut inflated).map_err(|error| {
        ApiError::new(StatusCode::BAD_REQUEST, format!("the body is not gzip: {error}"))
    })?;
    if inflated.len() > limit { Err(too_large()) } else { Ok(inflated) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn what_inflates_beyond_the_limit_is_refused() {
        let bomb = gzip(&vec![b'x'; 1 << 20]);
        assert!(bomb.len() < 4096);
        assert_eq!(inflate(&bomb, 1 << 20).unwrap().len(), 1 << 20);
        let error = inflate(&bomb, (1 << 20) - 1).unwrap_err();
        assert_eq!(error.status, StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[test]
    fn several_members_are_one_text_and_damage_is_an_error() {
        let mut two = gzip(b"m v=1\n");
        two.extend(gzip(b"m v=2\n"));
        assert_eq!(inflate(&two, 100).unwrap(), b"m v=1\nm v=2\n");
        two.truncate(two.len() - 3);
        assert_eq!(inflate(&two, 100).unwrap_err().status, StatusCode::BAD_REQUEST);
    }
}
