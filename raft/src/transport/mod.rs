//! Transport of frames from one node to another.
//!
//! ```text
//!   peer.rs  -- requests -->  Link  ~~~ network ~~~  Host::accept (server.rs)
//!            <-- replies ---
//! ```
//!
//! Two implementations exist: [`grpc`] between processes, and [`memory`] within one process, with faults on demand.
//!
//! Invariant: a prefix of the frames sent on a link arrives, in order. A link that loses a frame loses everything after
//! it too.

pub mod grpc;
pub mod memory;

use async_trait::async_trait;
use futures::stream::BoxStream;
use partita_proto::id::NodeId;
use partita_proto::wire::pb::RaftFrame;
use tokio::sync::mpsc;

use crate::error::RaftError;

/// Version of the replication protocol.
pub(crate) const VERSION: u32 = 1;
/// Maximum bytes of a frame: an entry can be 16 MiB with segments of 64 MiB, and shares its frame with others.
pub(crate) const FRAME_BYTES_MAX: usize = 64 << 20;
/// Frames buffered between a link's end and the network.
pub(crate) const FRAMES_WAITING: usize = 4;

/// Frames from a node; an error ends them.
pub type Frames = BoxStream<'static, Result<RaftFrame, RaftError>>;

/// An open connection to a node: requests out, replies in.
pub struct Link {
    pub(crate) requests: mpsc::Sender<RaftFrame>,
    pub(crate) replies: Frames,
}

/// Opens links to other nodes.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Opens a link to a node. The caller limits the time.
    ///
    /// # Errors
    /// [`RaftError::Unavailable`] when the node cannot be reached.
    async fn connect(&self, node: NodeId) -> Result<Link, RaftError>;
}

/// A transport without links: for a node whose groups all have one member.
pub(crate) struct Nowhere;

#[async_trait]
impl Transport for Nowhere {
    async fn connect(&self, node: NodeId) -> Result<Link, RaftError> {
        Err(RaftError::Unavailable(format!("cannot reach node {node}: this node has no network")))
    }
}
