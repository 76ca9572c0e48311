//! HTTP/1.1 with keep-alive.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::{Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::Failure;

/// Maximum bytes that are kept of an error's text.
const MESSAGE_BYTES_MAX: usize = 500;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// One connection, opened when needed.
pub(crate) struct HttpDoor {
    client: Client<HttpConnector, Full<Bytes>>,
    base: String,
}

impl HttpDoor {
    /// A door to `http://host:port`.
    pub(crate) fn new(base: &str) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let client =
            Client::builder(TokioExecutor::new()).pool_max_idle_per_host(1).build(connector);
        Self { client, base: base.trim_end_matches('/').to_owned() }
    }

    /// Posts a body to a path with query string; returns the response body.
    ///
    /// # Errors
    /// If the server cannot be reached or its status is not a success.
    pub(crate) async fn post(
        &self,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> Result<Bytes, Failure> {
        let request = Request::post(format!("{}{path}", self.base))
            .header(CONTENT_TYPE, content_type)
            .body(Full::new(body));
        self.send(request).await
    }

    /// Gets a path with query string; returns the response body.
    ///
    /// # Errors
    /// If the server cannot be reached or its status is not a success.
    pub(crate) async fn get(&self, path: &str) -> Result<Bytes, Failure> {
        self.send(Request::get(format!("{}{path}", self.base)).body(Full::default())).await
    }

    async fn send(
        &self,
        request: Result<Request<Full<Bytes>>, hyper::http::Error>,
    ) -> Result<Bytes, Failure> {
        let request = request.map_err(|error| Failure::refused(error.to_string()))?;
        let response = self.client.request(request).await.map_err(|error| {
            Failure::lost(format!("cannot reach {}: {}", self.base, causes(&error)))
        })?;
        let status = response.status();
        let has_retry_after = response.headers().contains_key(RETRY_AFTER);
        let body = response.into_body().collect().await;
        let body = body.map_err(|error| Failure::lost(causes(&error)))?.to_bytes();
        if status.is_success() {
            return Ok(body);
        }
        let text = String::from_utf8_lossy(&body[..body.len().min(MESSAGE_BYTES_MAX)]);
        let retryable = has_retry_after
            || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        Err(Failure { message: format!("{status}: {}", text.trim()), retryable, lost: false })
    }
}

/// Text of an error with its causes.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// Encodes a value for a query string or a form; a space becomes `+`.
pub(crate) fn escape(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A server that answers one request with these bytes.
    async fn answering(answer: &'static str) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4_096];
            assert!(stream.read(&mut request).await.unwrap() > 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            // Unread bytes would cause a reset of the connection before the answer is read.
            tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.ok();
        });
        format!("http://{address}")
    }

    #[tokio::test]
    async fn only_what_the_server_calls_so_is_retryable() {
        for (answer, retryable) in [
            ("HTTP/1.1 503 x\r\ncontent-length: 4\r\n\r\nbusy", true),
            ("HTTP/1.1 429 x\r\ncontent-length: 4\r\n\r\nbusy", true),
            ("HTTP/1.1 500 x\r\nretry-after: 1\r\ncontent-length: 4\r\n\r\nbusy", true),
            ("HTTP/1.1 500 x\r\ncontent-length: 4\r\n\r\nbusy", false),
            ("HTTP/1.1 400 x\r\ncontent-length: 4\r\n\r\nbusy", false),
        ] {
            let door = HttpDoor::new(&answering(answer).await);
            let failure = door.get("/").await.unwrap_err();
            assert_eq!((failure.retryable, failure.lost), (retryable, false), "{failure}");
            assert!(failure.message.contains("busy"));
        }
        let door = HttpDoor::new(&answering("HTTP/1.1 204 x\r\n\r\n").await);
        assert!(door.post("/write", "text/plain", "x".into()).await.unwrap().is_empty());
        let door = HttpDoor::new(&answering("").await);
        assert!(door.get("/").await.unwrap_err().lost);
    }

    #[test]
    fn values_are_escaped() {
        assert_eq!(escape("a b='ä'"), "a+b%3D%27%C3%A4%27");
    }
}
