//! Receives the body of a request: with a size limit and timeouts, decompressed.
//!
//! Memory is claimed as bytes arrive, not for the announced length: a request that announces much and sends nothing
//! does not delay others. A body that arrives too slowly is abandoned, however much of it has arrived.

use std::io::Read;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use axum::http::{HeaderMap, StatusCode};
use flate2::read::MultiGzDecoder;
use futures::StreamExt;

use crate::door::{BodyShare, Door};
use crate::error::ApiError;
use crate::options::HttpOptions;

/// Approximate ratio by which line protocol inflates, used for claims of memory.
pub(crate) const GZIP_RATIO: usize = 8;
/// Minimum step in which memory is claimed, in bytes.
const CLAIM_BYTES: usize = 64 << 10;

/// A complete body, and its claim on the memory for bodies.
pub(crate) struct ReceivedBody {
    pub(crate) bytes: Vec<u8>,
    pub(crate) share: BodyShare,
}

fn too_large() -> ApiError {
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "request too large")
}

/// Reads a whole body.
///
/// # Errors
/// 400 when it is cut off or cannot be decompressed, 408 when it makes no progress, 413 when it is too large, 415 for
/// an unknown encoding, 503 when too many bodies are in flight.
pub(crate) async fn take(
    door: &Door,
    headers: &HeaderMap,
    body: Body,
) -> Result<ReceivedBody, ApiError> {
    let options = &door.options;
    let gzip = match headers.get(CONTENT_ENCODING).map(|value| value.as_bytes()) {
        None | Some(b"" | b"identity") => false,
        Some(b"gzip" | b"x-gzip") => true,
        Some(encoding) => {
            return Err(ApiError::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!(
                    "Content-Encoding \"{}\" is not supported; use gzip or identity",
                    String::from_utf8_lossy(encoding)
                ),
            ));
        }
    };
    let length =
        headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > options.body_bytes_max) {
        return Err(too_large());
    }
    let mut share = door.body_share().await?;
    let mut bytes = Vec::new();
    let mut frames = body.into_data_stream();
    let began = Instant::now();
    loop {
        let time_left = patience(options, bytes.len()).saturating_sub(began.elapsed());
        let frame = tokio::time::timeout(options.body_timeout.min(time_left), frames.next())
            .await
            .map_err(|_| {
                ApiError::new(StatusCode::REQUEST_TIMEOUT, "timed out while reading the body")
            })?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| {
            ApiError::new(StatusCode::BAD_REQUEST, format!("the body is incomplete: {error}"))
        })?;
        let len = bytes.len() + frame.len();
        if len > options.body_bytes_max {
            return Err(too_large());
        }
        if len > share.bytes() {
            // By doubling, as the allocation itself grows, but not beyond the announced length.
            let promised = length.unwrap_or(options.body_bytes_max).max(len);
            let claim = (2 * len).max(CLAIM_BYTES).min(promised);
            door.grow(&mut share, claim).await?;
            bytes.reserve_exact(claim - bytes.len());
        }
        bytes.extend_from_slice(&frame);
    }
    door.metrics.body_bytes(bytes.len());
    if gzip {
        let limit = options.inflated_bytes_max;
        let claim = bytes.len().saturating_mul(GZIP_RATIO).min(limit);
        door.grow(&mut share, bytes.len().saturating_add(claim)).await?;
        bytes = tokio::task::spawn_blocking(move || inflate(&bytes, limit))
            .await
            .map_err(|error| ApiError::internal(format!("decompression failed: {error}")))??;
    }
    Ok(ReceivedBody { bytes, share })
}

/// The time that a body may take until `received` bytes have arrived.
fn patience(options: &HttpOptions, received: usize) -> Duration {
    let received = u32::try_from(received).unwrap_or(u32::MAX);
    let rate = u32::try_from(options.body_rate_min.max(1)).unwrap_or(u32::MAX);
    options.body_timeout + Duration::from_secs_f64(f64::from(received) / f64::from(rate))
}

fn inflate(bytes: &[u8], limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut inflated = Vec::with_capacity(bytes.len().saturating_mul(4).min(limit));
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    MultiGzDecoder::new(bytes).take(bound).read_to_end(&mut inflated).map_err(|error| {
        ApiError::new(StatusCode::BAD_REQUEST, format!("the body is not valid gzip: {error}"))
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
    fn a_body_has_to_come_faster_than_a_trickle() {
        let options = HttpOptions {
            body_timeout: Duration::from_secs(30),
            body_rate_min: 1000,
            ..HttpOptions::default()
        };
        assert_eq!(patience(&options, 0), Duration::from_secs(30));
        assert_eq!(patience(&options, 10_000), Duration::from_secs(40));
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
