//! One HTTP request to a server, for tools.

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::Method;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
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
    send(options, server, path, (Method::GET, None)).await
}

/// Response body of a request with a method, and a JSON body or none.
///
/// # Errors
/// As [`get`].
pub(crate) async fn send(
    options: &client::Options,
    server: &str,
    path: &str,
    (method, body): (Method, Option<&serde_json::Value>),
) -> anyhow::Result<Bytes> {
    let uri = options.tls().url(server, path)?;
    let client: Client<Connector, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).build(options.tls().connector(b"http/1.1")?);
    let mut request = hyper::Request::builder().method(method).uri(&uri);
    if let Some(value) = options.authorization()? {
        request = request.header(AUTHORIZATION, value);
    }
    if body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
    let request =
        request.body(Full::new(body)).with_context(|| format!("{uri} is not an address"))?;
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
    let message = body.get("error").or_else(|| body.get("message"))?;
    Some(message.as_str()?.to_owned())
}
