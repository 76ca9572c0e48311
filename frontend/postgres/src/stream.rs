//! The stream of a connection: plain, or encrypted by TLS as the client chooses with its first bytes.
//!
//! ```text
//!   first bytes        TLS on                     TLS off
//!   SSLRequest         'S', then the handshake    'N', then the next message
//!   GSSENCRequest      'N', then the next message
//!   0x16               the handshake at once      closed
//!   anything else      the startup or a cancel request, which is read again behind this
//! ```
//!
//! Invariants:
//! - no byte that came before the handshake is read as one that came through it: a request is read to its last byte and
//!   not further;
//! - a client that begins with the handshake names the protocol `postgresql` by ALPN, so that bytes that a browser was
//!   tricked into sending are not taken for messages.
//!
//! Source: PostgreSQL's documentation, SSL Session Encryption.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use partita_tls::rustls::ServerConfig;
use partita_tls::tokio_rustls::TlsAcceptor;
use partita_tls::tokio_rustls::server::TlsStream;
use partita_tls::{Door, TlsError, TlsOptions, common_name, end_point_hash};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

/// Name of the protocol in ALPN.
const PROTOCOL: &[u8] = b"postgresql";
/// Code of a request for TLS, in place of a version.
pub(crate) const SSL_REQUEST: u32 = 80_877_103;
/// Code of a request for encryption by GSSAPI.
pub(crate) const GSS_REQUEST: u32 = 80_877_104;
/// Length of both requests.
const REQUEST_BYTES: u32 = 8;
/// Type of the first record of a TLS handshake. No message begins with it: its length would be over 300 MB.
const HANDSHAKE: u8 = 0x16;
const ACCEPTED: &[u8] = b"S";
const REFUSED: &[u8] = b"N";

/// TLS of the door, from its certificate.
#[derive(Clone)]
pub struct PostgresTls {
    config: Arc<ServerConfig>,
    /// Hash of the certificate to which clients bind SCRAM; none if the certificate has no such hash.
    end_point_hash: Option<Vec<u8>>,
}

impl PostgresTls {
    /// Configuration with TLS 1.2 and 1.3, as libpq has by default.
    ///
    /// # Errors
    /// If rustls refuses the certificates.
    pub fn new(door: &Door) -> Result<Self, TlsError> {
        let options = TlsOptions { tls12: true, alpn: vec![PROTOCOL.to_vec()] };
        let config = door.server_config(&options)?;
        Ok(Self { config, end_point_hash: door.certificate().and_then(end_point_hash) })
    }
}

impl fmt::Debug for PostgresTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgresTls")
    }
}

/// Properties of an encrypted connection that authentication needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Encryption {
    /// Hash of the server's certificate, for channel binding.
    pub(crate) end_point_hash: Option<Vec<u8>>,
    /// Common name of the client's certificate, which was verified.
    pub(crate) common_name: Option<String>,
}

/// A stream whose first bytes were read before, and are read again.
pub(crate) struct Reread<S> {
    first: [u8; REQUEST_BYTES as usize],
    /// Range of `first` that is still to be read.
    start: usize,
    end: usize,
    inner: S,
}

/// The stream of a connection whose encryption is decided.
pub(crate) enum Stream<S> {
    Plain(Reread<S>),
    Encrypted(Box<TlsStream<Reread<S>>>),
}

/// Answers the requests for encryption at the beginning of a connection, and shakes hands if it is encrypted. `None`
/// when the client disconnects or begins with a handshake that is not supported.
///
/// # Errors
/// When the connection breaks, or the handshake fails.
pub(crate) async fn negotiate<S>(
    mut inner: S,
    tls: Option<PostgresTls>,
) -> io::Result<Option<(Stream<S>, Option<Encryption>)>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut asked_ssl, mut asked_gss) = (false, false);
    loop {
        let mut first = [0; REQUEST_BYTES as usize];
        // The end between two messages is no error.
        if inner.read(&mut first[..1]).await? == 0 {
            return Ok(None);
        }
        if first[0] == HANDSHAKE && !asked_ssl && !asked_gss {
            let Some(tls) = tls else { return Ok(None) };
            let reread = Reread { first, start: 0, end: 1, inner };
            let connection = accept(reread, tls).await?;
            check_protocol(&connection.0)?;
            return Ok(Some(connection));
        }
        inner.read_exact(&mut first[1..]).await?;
        let [a, b, c, d, code @ ..] = first;
        let length = u32::from_be_bytes([a, b, c, d]);
        match (length, u32::from_be_bytes(code)) {
            (REQUEST_BYTES, SSL_REQUEST) if !asked_ssl => {
                asked_ssl = true;
                let Some(tls) = &tls else {
                    send(&mut inner, REFUSED).await?;
                    continue;
                };
                send(&mut inner, ACCEPTED).await?;
                let reread = Reread { first, start: 0, end: 0, inner };
                return accept(reread, tls.clone()).await.map(Some);
            }
            (REQUEST_BYTES, GSS_REQUEST) if !asked_gss => {
                asked_gss = true;
                send(&mut inner, REFUSED).await?;
            }
            _ => {
                let reread = Reread { first, start: 0, end: first.len(), inner };
                return Ok(Some((Stream::Plain(reread), None)));
            }
        }
    }
}

async fn send<S: AsyncWrite + Unpin>(stream: &mut S, byte: &[u8]) -> io::Result<()> {
    stream.write_all(byte).await?;
    stream.flush().await
}

async fn accept<S>(
    stream: Reread<S>,
    tls: PostgresTls,
) -> io::Result<(Stream<S>, Option<Encryption>)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let PostgresTls { config, end_point_hash } = tls;
    let stream = TlsAcceptor::from(config).accept(stream).await?;
    let certificates = stream.get_ref().1.peer_certificates();
    let common_name = certificates.and_then(|chain| chain.first()).and_then(common_name);
    let encryption = Encryption { end_point_hash, common_name };
    Ok((Stream::Encrypted(Box::new(stream)), Some(encryption)))
}

/// Requires the protocol of a connection that began with the handshake.
fn check_protocol<S>(stream: &Stream<S>) -> io::Result<()> {
    let protocol = match stream {
        Stream::Encrypted(stream) => stream.get_ref().1.alpn_protocol(),
        Stream::Plain(_) => None,
    };
    if protocol == Some(PROTOCOL) {
        return Ok(());
    }
    let message = "a direct TLS connection without the ALPN protocol \"postgresql\"";
    Err(io::Error::new(io::ErrorKind::InvalidData, message))
}

impl<S: AsyncRead + Unpin> AsyncRead for Reread<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.start == self.end {
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        }
        let stop = self.end.min(self.start + buf.remaining());
        buf.put_slice(&self.first[self.start..stop]);
        self.start = stop;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Reread<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Encrypted(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Encrypted(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Encrypted(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Encrypted(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::DuplexStream;

    use super::*;

    fn request(code: u32) -> Vec<u8> {
        [REQUEST_BYTES.to_be_bytes(), code.to_be_bytes()].concat()
    }

    /// Negotiates without TLS over what a client sends; returns the answers and what is left to read.
    async fn negotiated(sent: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
        let (mut near, far) = tokio::io::duplex(1024);
        near.write_all(sent).await.unwrap();
        near.shutdown().await.unwrap();
        let stream = negotiate::<DuplexStream>(far, None).await.unwrap();
        let rest = match stream {
            Some((mut stream, encryption)) => {
                assert_eq!(encryption, None);
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).await.unwrap();
                Some(rest)
            }
            None => None,
        };
        let mut answers = Vec::new();
        near.read_to_end(&mut answers).await.unwrap();
        (answers, rest)
    }

    #[tokio::test]
    async fn requests_are_refused_once_and_the_rest_is_read_again() {
        let startup = b"\0\0\0\x11\0\x03\0\0user\0me\0\0".to_vec();
        assert_eq!(negotiated(&startup).await, (Vec::new(), Some(startup.clone())));
        for codes in [[SSL_REQUEST, GSS_REQUEST], [GSS_REQUEST, SSL_REQUEST]] {
            let sent = [request(codes[0]), request(codes[1]), startup.clone()].concat();
            assert_eq!(negotiated(&sent).await, (b"NN".to_vec(), Some(startup.clone())));
        }
        let twice = [request(SSL_REQUEST), request(SSL_REQUEST)].concat();
        assert_eq!(negotiated(&twice).await, (b"N".to_vec(), Some(request(SSL_REQUEST))));
    }

    #[tokio::test]
    async fn a_handshake_without_tls_ends_the_connection() {
        assert_eq!(negotiated(b"\x16\x03\x01\0\x05hello").await, (Vec::new(), None));
        assert_eq!(negotiated(b"").await, (Vec::new(), None));
    }

    #[tokio::test]
    async fn a_connection_that_breaks_within_a_request_is_an_error() {
        let (mut near, far) = tokio::io::duplex(1024);
        near.write_all(&request(SSL_REQUEST)[..5]).await.unwrap();
        drop(near);
        assert!(negotiate(far, None).await.is_err());
    }
}
