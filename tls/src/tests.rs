//! Tests with real handshakes over pipes in memory, and real files.

mod door;
mod files;
mod handshake;
mod issue;
mod links;
mod reload;

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio_rustls::TlsAcceptor;

use crate::issue::{Request, init, issue};
use crate::{ClientTls, Identity, Role, TlsOptions};

/// Bytes that a pipe holds: more than a handshake's longest flight.
const PIPE_BYTES: usize = 64 << 10;

fn request(role: Role, name: &str) -> Request {
    Request { role, name: name.to_owned(), hosts: Vec::new(), days: 30 }
}

/// A directory with an authority.
fn authority() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    init(dir.path()).unwrap();
    dir
}

fn identity(dir: &Path, role: Role, name: &str) -> Identity {
    Identity::load(&issue(dir, &request(role, name)).unwrap()).unwrap()
}

fn server(identity: &Identity, allowed: &[Role]) -> Arc<ServerConfig> {
    identity.server_config(allowed, &TlsOptions::default()).unwrap()
}

fn client(identity: &Identity, peer: Role) -> ClientTls {
    identity.client_config(peer, &TlsOptions::default()).unwrap()
}

/// Sends a word and waits until it comes back.
async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> std::io::Result<()> {
    stream.write_all(b"hello").await?;
    stream.flush().await?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await?;
    assert_eq!(&answer, b"hello");
    Ok(())
}

/// Accepts a connection, sends one word back, and returns the role of the client.
async fn answer(config: Arc<ServerConfig>, stream: DuplexStream) -> std::io::Result<Option<Role>> {
    let mut stream = TlsAcceptor::from(config).accept(stream).await?;
    let mut word = [0; 5];
    stream.read_exact(&mut word).await?;
    stream.write_all(&word).await?;
    stream.flush().await?;
    Ok(Role::of_peer(stream.get_ref().1))
}

/// Connects a client with a server: the role that the server sees, and the client's result.
async fn meet(
    config: &Arc<ServerConfig>,
    client: &ClientTls,
) -> (std::io::Result<Option<Role>>, std::io::Result<()>) {
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let asked = async {
        let mut stream = client.connect(near).await?;
        ask(&mut stream).await
    };
    tokio::join!(answer(Arc::clone(config), far), asked)
}

/// Fails unless the two can talk.
async fn talk(config: &Arc<ServerConfig>, client: &ClientTls) {
    let (server, client) = meet(config, client).await;
    client.unwrap();
    server.unwrap();
}

/// The message of a result that must be an error, in lower case.
fn message<T: std::fmt::Debug, E: std::fmt::Display + std::fmt::Debug>(
    result: Result<T, E>,
) -> String {
    result.unwrap_err().to_string().to_lowercase()
}
