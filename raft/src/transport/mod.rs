//! How frames get from one node to another.
//!
//! ```text
//!   peer.rs  -- requests -->  Link  ~~~ network ~~~  Host::accept (server.rs)
//!            <-- replies ---
//! ```
//!
//! Two ways exist: [`grpc`] between processes, and [`memory`] within one, which can be told to misbehave.
//!
//! Invariant: of what is sent on a link a prefix arrives, in order. A link that loses anything loses everything
//! after it too.

pub mod grpc;
pub mod memory;

use async_trait::async_trait;
use futures::stream::BoxStream;
use partita_proto::id::NodeId;
use partita_proto::wire::pb::RaftFrame;
use tokio::sync::mpsc;

use crate::error::RaftError;

/// What this version speaks.
pub(crate) const VERSION: u32 = 1;
/// The largest frame that is accepted: an entry can be 16 MiB with segments of 64 MiB, and goes together with others.
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 20;
/// Frames that wait between a link's end and the network.
pub(crate) const FRAMES_WAITING: usize = 4;

/// Frames from a node; an error ends them.
pub type Frames = BoxStream<'static, Result<RaftFrame, RaftError>>;

/// An open way to a node: requests go out, replies come in.
pub struct Link {
    pub(crate) requests: mpsc::Sender<RaftFrame>,
    pub(crate) replies: Frames,
}

/// Opens links.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Opens a link to a node. The caller limits the time.
    ///
    /// # Errors
    /// [`RaftError::Unavailable`] when the node cannot be reached.
    async fn connect(&self, node: NodeId) -> Result<Link, RaftError>;
}

/// No way to anywhere: for a node whose groups all have one member.
pub(crate) struct Nowhere;

#[async_trait]
impl Transport for Nowhere {
    async fn connect(&self, node: NodeId) -> Result<Link, RaftError> {
        Err(RaftError::Unavailable(format!(
            "there is no way to node {node}: this node has no network"
        )))
    }
}
