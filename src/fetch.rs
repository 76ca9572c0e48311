//! One HTTP request to a server, for tools that show something.

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::header::AUTHORIZATION;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use crate::client::{self, Connector};

/// Timeout of the request.
const WAIT: std::time::Duration = std::time::Duration::from_secs(30);
/// Maximum bytes of an answer; a longer one is an error.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Response body for a path; `server` is `host:port`, with or without a scheme.
///
/// # Errors
/// If the server cannot be reached in time, or refuses: with the server's message.
pub(crate) async fn get(
    options: &client::Options,
    server: &str,
    path: &str,
) -> anyhow::Result<Bytes> {
    let uri = options.tls().url(server, path)?;
    let client: Client<Connector, Empty<Bytes>> =
        Client::builder(TokioExecutor::new()).build(options.tls().connector(b"http/1.1")?);
    let mut request = hyper::Request::get(&uri);
    if let Some(value) = options.authorization()? {
        request = request.header(AUTHORIZATION, value);
    }
    let request = request.body(Empty::new()).with_context(|| format!("{uri} is not an address"))?;
    let request = async {
        let response = client
            .request(request)
            .await
            .with_context(|| format!("cannot reach {server}; is the server running?"))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("{server} broke off: {error}"))?.to_bytes();
        if !status.is_success() {
            bail!("{}", said(&body).unwrap_or_else(|| format!("{server} answered {status}")));
        }
        Ok(body)
    };
    tokio::time::timeout(WAIT, request).await.with_context(|| format!("{server} did not answer"))?
}

/// Message of an error response.
fn said(body: &[u8]) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    Some(body.get("error")?.as_str()?.to_owned())
}
