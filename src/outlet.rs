//! Sends rows of tasks to other servers, as line protocol by HTTP/1.1.
//!
//! Invariants: a token goes to a server by https only after the server has proved its host name, and redirections are not
//! followed; errors contain the host and the status only, neither token, path, query nor answer.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use partita_frontend::{Outlet, SqlError};
use partita_proto::task::Remote;

use crate::client::{Connector, Tls};

/// Timeout of a request.
const WAIT: Duration = Duration::from_secs(10);

/// SQLSTATE of a server that cannot be reached.
const UNREACHABLE: &str = "08001";
/// SQLSTATE of a server that refuses.
const REFUSED: &str = "08004";

/// Options of the ways to other servers.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Options {
    /// Authorities of the servers that tasks send rows to by https.
    #[arg(long, env = "PARTITA_TASK_CA", value_name = "FILE")]
    task_ca: Option<PathBuf>,
}

impl Options {
    /// The way to other servers.
    ///
    /// # Errors
    /// If the file of authorities cannot be used.
    pub(crate) fn open(&self) -> anyhow::Result<Arc<dyn Outlet>> {
        let client = |tls: Tls| -> anyhow::Result<HttpClient> {
            Ok(Client::builder(TokioExecutor::new()).build(tls.connector(b"http/1.1")?))
        };
        let secured = match &self.task_ca {
            Some(file) => Some(client(Tls::new(Some(file.clone())))?),
            None => None,
        };
        Ok(Arc::new(HttpOutlet { plain: client(Tls::new(None))?, secured }))
    }
}

type HttpClient = Client<Connector, Full<Bytes>>;

/// Clients without and with TLS.
struct HttpOutlet {
    plain: HttpClient,
    secured: Option<HttpClient>,
}

#[async_trait::async_trait]
impl Outlet for HttpOutlet {
    async fn send(&self, remote: &Remote, lines: String) -> Result<(), SqlError> {
        let origin = remote.origin();
        let client = if remote.is_secure() { self.secured.as_ref() } else { Some(&self.plain) };
        let client = client.ok_or_else(|| {
            let message = format!("could not verify {origin}: the frontend has no --task-ca");
            SqlError::new(UNREACHABLE, message)
        })?;
        let invalid =
            || SqlError::new(REFUSED, format!("the address or token for {origin} is not valid"));
        let mut request =
            Request::post(&remote.url).header(CONTENT_TYPE, "text/plain; charset=utf-8");
        if let Some(token) = &remote.token {
            let mut value =
                HeaderValue::from_str(&format!("Token {token}")).map_err(|_| invalid())?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let request = request.body(Full::new(Bytes::from(lines))).map_err(|_| invalid())?;
        let response = tokio::time::timeout(WAIT, client.request(request)).await;
        let response = response
            .map_err(|_| SqlError::new(UNREACHABLE, format!("{origin} did not answer in time")))?
            .map_err(|_| SqlError::new(UNREACHABLE, format!("could not reach {origin}")))?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        Err(SqlError::new(REFUSED, format!("{origin} answered {status}")))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A server that answers one request; returns its address, and what it was sent.
    async fn answering(answer: &'static str) -> (String, tokio::task::JoinHandle<String>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"v=1i 7\n") {
                assert!(stream.read_buf(&mut request).await.unwrap() > 0);
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            String::from_utf8(request).unwrap()
        });
        (format!("http://{address}/api/v2/write?bucket=b"), served)
    }

    fn remote(url: &str) -> Remote {
        Remote {
            url: url.to_owned(),
            token: Some("secret".to_owned()),
            measurement: "m".to_owned(),
            tags: Vec::new(),
        }
    }

    #[tokio::test]
    async fn lines_are_posted_with_the_token() {
        let outlet = Options { task_ca: None }.open().unwrap();
        let (url, served) = answering("HTTP/1.1 204 No Content\r\n\r\n").await;
        outlet.send(&remote(&url), "m v=1i 7\n".to_owned()).await.unwrap();
        let request = served.await.unwrap().to_ascii_lowercase();
        assert!(request.starts_with("post /api/v2/write?bucket=b http/1.1\r\n"), "{request}");
        assert!(request.contains("authorization: token secret\r\n"), "{request}");
        assert!(request.ends_with("\r\n\r\nm v=1i 7\n"), "{request}");
    }

    #[tokio::test]
    async fn errors_contain_no_secret() {
        let outlet = Options { task_ca: None }.open().unwrap();
        let answer = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 6\r\n\r\nsecret";
        let (url, _served) = answering(answer).await;
        let line = || "m v=1i 7\n".to_owned();
        let error = outlet.send(&remote(&url), line()).await.unwrap_err();
        assert!(error.sqlstate == REFUSED && error.message.contains("401"), "{error:?}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        let error = outlet.send(&remote("https://127.0.0.1:1/w"), line()).await.unwrap_err();
        assert!(error.message.contains("--task-ca"), "{error:?}");
    }
}
