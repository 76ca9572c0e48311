//! Connections of the tools to a server's doors: user, password, TLS.
//!
//! Invariant: with `--tls-ca` nothing is sent before the server has proved its host name.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::{Context as _, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use partita_tls::rustls::ClientConfig;
use partita_tls::rustls::pki_types::ServerName;
use partita_tls::tokio_rustls::TlsConnector;
use partita_tls::tokio_rustls::client::TlsStream;
use partita_tls::{LinkStream, TlsOptions, door_client};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};

use crate::password;

/// Variable with the password, which is no flag: other users of the machine see those.
const PASSWORD_VARIABLE: &str = "PARTITA_PASSWORD";

/// User, password and TLS of a tool.
#[derive(clap::Args, Clone, Debug)]
// Flattened into the options of several commands: the groups would have the same name.
#[group(skip)]
pub(crate) struct Options {
    /// User to connect as.
    #[arg(long, env = "PARTITA_USER", default_value = "partita", global = true)]
    user: String,
    /// File with the user's password or with a token; otherwise the variable `PARTITA_PASSWORD` is used.
    #[arg(long, env = "PARTITA_PASSWORD_FILE", value_name = "FILE", global = true)]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    tls: Tls,
}

/// TLS of a tool.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct Tls {
    /// Connect by TLS, to a server whose certificate is of an authority in this file.
    #[arg(long, env = "PARTITA_TLS_CA", value_name = "FILE", global = true)]
    tls_ca: Option<PathBuf>,
}

impl Tls {
    /// TLS to servers whose certificates are of an authority in a file; none without one.
    pub(crate) fn new(tls_ca: Option<PathBuf>) -> Self {
        Self { tls_ca }
    }

    /// Connector to HTTP of one version; with TLS if there is an authority.
    ///
    /// # Errors
    /// If the file of authorities cannot be used.
    pub(crate) fn connector(&self, protocol: &[u8]) -> anyhow::Result<Connector> {
        Ok(Connector { tls: self.config(vec![protocol.to_vec()])? })
    }

    fn config(&self, alpn: Vec<Vec<u8>>) -> anyhow::Result<Option<Arc<ClientConfig>>> {
        let Some(authorities) = &self.tls_ca else { return Ok(None) };
        let options = TlsOptions { alpn, ..TlsOptions::default() };
        Ok(Some(door_client(authorities, &options).context("--tls-ca")?))
    }

    /// Address of a path at `host:port`, with or without a scheme.
    ///
    /// # Errors
    /// If the scheme asks for TLS, but there is no authority.
    pub(crate) fn url(&self, server: &str, path: &str) -> anyhow::Result<String> {
        let server = server.trim_end_matches('/');
        let is_https = server.starts_with("https://");
        if is_https && self.tls_ca.is_none() {
            bail!("{server} needs --tls-ca, the authorities of its certificate");
        }
        let host = server.strip_prefix("https://").or_else(|| server.strip_prefix("http://"));
        let scheme = if self.tls_ca.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}{path}", host.unwrap_or(server)))
    }
}

impl Options {
    /// TLS of the tool.
    pub(crate) fn tls(&self) -> &Tls {
        &self.tls
    }

    fn password(&self) -> anyhow::Result<Option<String>> {
        match &self.password_file {
            Some(file) => password::text_of(file).map(Some),
            None => Ok(std::env::var(PASSWORD_VARIABLE).ok().filter(|text| !text.is_empty())),
        }
    }

    /// Value of the header `Authorization`, if there is a password.
    ///
    /// # Errors
    /// If the password cannot be read.
    pub(crate) fn authorization(&self) -> anyhow::Result<Option<String>> {
        let password = self.password()?;
        Ok(password.map(|password| {
            format!("Basic {}", STANDARD.encode(format!("{}:{password}", self.user)))
        }))
    }

    /// TLS of the connections that cancel statements.
    ///
    /// # Errors
    /// If the file of authorities cannot be used.
    pub(crate) fn cancelling(&self) -> anyhow::Result<PostgresTls> {
        Ok(PostgresTls { tls: self.tls.config(Vec::new())? })
    }

    /// Sets user and password of a PostgreSQL connection, and whether it has TLS.
    ///
    /// # Errors
    /// If the password or the file of authorities cannot be used.
    pub(crate) fn postgres(
        &self,
        config: &mut tokio_postgres::Config,
    ) -> anyhow::Result<PostgresTls> {
        config.user(&self.user);
        if let Some(password) = self.password()? {
            config.password(password);
        }
        let tls = self.cancelling()?;
        config.ssl_mode(if tls.tls.is_some() { SslMode::Require } else { SslMode::Disable });
        Ok(tls)
    }
}

/// Makes the TLS of PostgreSQL connections; without a configuration they have none.
#[derive(Clone, Default)]
pub(crate) struct PostgresTls {
    tls: Option<Arc<ClientConfig>>,
}

/// A PostgreSQL connection that is about to begin TLS.
pub(crate) struct PostgresHandshake(Option<(TlsConnector, ServerName<'static>)>);

/// A PostgreSQL connection with TLS.
pub(crate) struct PostgresStream<S>(TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for PostgresTls {
    type Stream = PostgresStream<S>;
    type TlsConnect = PostgresHandshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<PostgresHandshake> {
        let Some(tls) = &self.tls else { return Ok(PostgresHandshake(None)) };
        let name = server_name(host)?;
        Ok(PostgresHandshake(Some((TlsConnector::from(Arc::clone(tls)), name))))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for PostgresHandshake {
    type Stream = PostgresStream<S>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<PostgresStream<S>>>;

    fn connect(self, stream: S) -> Self::Future {
        async move {
            let Some((connector, name)) = self.0 else {
                return Err(io::Error::other("TLS is not configured"));
            };
            connector.connect(name, stream).await.map(PostgresStream)
        }
        .boxed()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> tokio_postgres::tls::TlsStream for PostgresStream<S> {
    // The server's certificate was verified in full: there is nothing to bind against.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for PostgresStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for PostgresStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Opens connections of HTTP clients.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: Option<Arc<ClientConfig>>,
}

impl Connector {
    /// Opens a connection to the host and port of an address.
    ///
    /// # Errors
    /// If the server cannot be reached, or does not prove its name.
    pub(crate) async fn open(self, address: Uri) -> io::Result<LinkStream> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "an address without a host");
        let host = address.host().ok_or_else(invalid)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let usual = if self.tls.is_some() { 443 } else { 80 };
        let stream = TcpStream::connect((host, address.port_u16().unwrap_or(usual))).await?;
        stream.set_nodelay(true)?;
        match self.tls {
            Some(tls) => {
                let connector = TlsConnector::from(tls);
                Ok(Box::new(connector.connect(server_name(host)?, stream).await?))
            }
            None => Ok(Box::new(stream)),
        }
    }
}

fn server_name(host: &str) -> io::Result<ServerName<'static>> {
    let name = ServerName::try_from(host.to_owned());
    name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

impl tower::Service<Uri> for Connector {
    type Response = HttpStream;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<HttpStream>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let connector = self.clone();
        async move { connector.open(address).await.map(|stream| HttpStream(TokioIo::new(stream))) }
            .boxed()
    }
}

/// A connection of an HTTP client.
pub(crate) struct HttpStream(TokioIo<LinkStream>);

impl Connection for HttpStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for HttpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Read::poll_read(Pin::new(&mut self.0), cx, buffer)
    }
}

impl Write for HttpStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Write::poll_write(Pin::new(&mut self.0), cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_flush(Pin::new(&mut self.0), cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_shutdown(Pin::new(&mut self.0), cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_the_scheme_of_its_connection() {
        let plain = Tls::default();
        assert_eq!(plain.url("a:1", "/x").unwrap(), "http://a:1/x");
        assert_eq!(plain.url("http://a:1/", "/x").unwrap(), "http://a:1/x");
        assert!(plain.url("https://a:1", "/x").unwrap_err().to_string().contains("--tls-ca"));
        let secured = Tls { tls_ca: Some(PathBuf::from("ca.pem")) };
        for server in ["a:1", "http://a:1", "https://a:1"] {
            assert_eq!(secured.url(server, "/x").unwrap(), "https://a:1/x");
        }
    }

    #[test]
    fn a_password_of_a_file_is_sent_as_basic() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        std::fs::write(&file, "secret\n").unwrap();
        let options =
            Options { user: "alice".to_owned(), password_file: Some(file), tls: Tls::default() };
        let header = options.authorization().unwrap().unwrap();
        assert_eq!(header, "Basic YWxpY2U6c2VjcmV0");
    }
}
