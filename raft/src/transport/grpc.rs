//! Links over gRPC, between processes.
//!
//! One bidirectional stream per pair of nodes and direction. The server side is a tonic service, to be added to the
//! router of the node's port. With a certificate links go to processes of the same role only: groups of meta and groups
//! of partitions do not mix.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::{Stream, StreamExt};
use hyper_util::rt::TokioIo;
use partita_proto::id::NodeId;
use partita_proto::wire::pb::RaftFrame;
use partita_proto::wire::pb::raft_client::RaftClient;
use partita_proto::wire::pb::raft_server::{Raft, RaftServer};
use partita_tls::{LinkStream, Links, Role};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::http::Uri;
use tonic::transport::Endpoint;
use tonic::{Request, Response, Status, Streaming};

use super::{FRAME_BYTES_MAX, FRAMES_WAITING, Link, Transport};
use crate::error::RaftError;
use crate::host::Host;

/// Maximum time to establish a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(1);
/// Maximum unread bytes on their way to a node: enough for a bulk load over a fast network.
const WINDOW_BYTES: u32 = 8 << 20;

/// Address of a node, as `host:port`; `None` when it is not known.
pub type Addresses = Arc<dyn Fn(NodeId) -> Option<String> + Send + Sync>;

/// Opens links by gRPC.
pub struct Grpc {
    addresses: Addresses,
    links: Links,
}

impl Grpc {
    /// Opens links to nodes at these addresses. An address is looked up anew for every link, so it may change.
    #[must_use]
    pub fn new(links: Links, addresses: Addresses) -> Arc<Self> {
        Arc::new(Self { addresses, links })
    }
}

/// Opens a connection to `host:port`, with the handshake of its TLS.
async fn dial(links: Links, address: String) -> io::Result<TokioIo<LinkStream>> {
    let slow = |_| io::Error::new(io::ErrorKind::TimedOut, "connecting took too long");
    let stream = timeout(CONNECT_WAIT, TcpStream::connect(&address)).await.map_err(slow)??;
    stream.set_nodelay(true)?;
    // Without a certificate the role is not looked at.
    let role = links.role().unwrap_or(Role::Datanode);
    links.connect(stream, role).await.map(TokioIo::new)
}

fn unavailable(node: NodeId, subject: &str, error: &dyn std::error::Error) -> RaftError {
    // tonic's own text is only «transport error»; the reason is what it wraps.
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    RaftError::Unavailable(format!("{subject} node {node}: {text}"))
}

#[async_trait]
impl Transport for Grpc {
    async fn connect(&self, node: NodeId) -> Result<Link, RaftError> {
        let address = (self.addresses)(node).ok_or_else(|| {
            RaftError::Unavailable(format!("the address of node {node} is not known"))
        })?;
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| unavailable(node, "the address of", &error))?
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES);
        let links = self.links.clone();
        let dialer = tower::service_fn(move |_: Uri| dial(links.clone(), address.clone()));
        let channel = endpoint
            .connect_with_connector(dialer)
            .await
            .map_err(|error| unavailable(node, "connecting to", &error))?;
        let mut client = RaftClient::new(channel)
            .max_decoding_message_size(FRAME_BYTES_MAX)
            .max_encoding_message_size(FRAME_BYTES_MAX);
        let (requests, outgoing) = mpsc::channel(FRAMES_WAITING);
        let replies = client
            .link(ReceiverStream::new(outgoing))
            .await
            .map_err(|status| unavailable(node, "opening a link to", &status))?
            .into_inner();
        let replies = replies
            .map(move |frame| frame.map_err(|status| unavailable(node, "the link to", &status)));
        Ok(Link { requests, replies: replies.boxed() })
    }
}

/// The server's side of links.
pub struct Service {
    host: Arc<Host>,
}

impl Service {
    /// A service that passes incoming requests to the groups of a host.
    #[must_use]
    pub fn server(host: Arc<Host>) -> RaftServer<Self> {
        RaftServer::new(Self { host })
            .max_decoding_message_size(FRAME_BYTES_MAX)
            .max_encoding_message_size(FRAME_BYTES_MAX)
    }
}

#[async_trait]
impl Raft for Service {
    type LinkStream = Pin<Box<dyn Stream<Item = Result<RaftFrame, Status>> + Send>>;

    async fn link(
        &self,
        request: Request<Streaming<RaftFrame>>,
    ) -> Result<Response<Self::LinkStream>, Status> {
        let frames = request.into_inner().map(|frame| {
            frame.map_err(|status| RaftError::Unavailable(format!("a link broke: {status}")))
        });
        let replies = self.host.accept(frames.boxed());
        Ok(Response::new(Box::pin(ReceiverStream::new(replies).map(Ok))))
    }
}
