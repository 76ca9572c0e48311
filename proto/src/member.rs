//! The nodes that hold replicas, as meta knows them: who they are, where they listen, whether they
//! are heard of.
//!
//! A node's number is given once, to one data directory, and never to another: what its directory
//! lost cannot come back under its number. The directory is known by a random identity.

use std::collections::BTreeMap;

use crate::id::NodeId;
use crate::service::ReplicaStatus;

/// All nodes, by number.
pub type Members = BTreeMap<NodeId, Member>;

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Where its service listens, `host:port`; empty for a node in meta's own process.
    pub address: String,
    /// Whether it was heard of lately.
    pub live: bool,
    /// Whether everything is to leave it.
    pub draining: bool,
    /// Replicas that it said it has.
    pub replicas: u64,
    /// Partitions that it said it leads.
    pub leaders: u64,
    /// Bytes of the files of its replicas.
    pub bytes: u64,
    /// Replicas that it should have and did not name.
    pub missing: u64,
}

/// What a node asks for before its first start, and after it moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Its data directory's random number.
    pub identity: u64,
    /// The number that it has or that its owner wants for it; `None`: any.
    pub node: Option<NodeId>,
    /// Where its service listens, `host:port`.
    pub address: String,
}

/// What a node says of itself, about once a second.
#[derive(Clone, Debug, PartialEq)]
pub struct Heartbeat {
    /// The node.
    pub node: NodeId,
    /// Its data directory's random number.
    pub identity: u64,
    /// Where its service listens, `host:port`.
    pub address: String,
    /// Its replicas.
    pub replicas: Vec<ReplicaStatus>,
}
