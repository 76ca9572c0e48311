//! The nodes that hold replicas, as meta knows them: who they are, where they listen, whether they
//! are heard of. And meta's own members, as they say themselves.
//!
//! A node's number is given once, to one data directory, and never to another: what its directory
//! lost cannot come back under its number, nor can a node that was removed. The directory is known by
//! a random identity.

use std::collections::BTreeMap;

use crate::beat::LoadBeat;
use crate::generation::Claim;
use crate::id::NodeId;
use crate::label::Labels;
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
    /// What its owner says of where it is.
    pub labels: Labels,
}

/// How a member of meta's own group is, as it says itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaStanding {
    /// Its number.
    pub node: NodeId,
    /// Whether it leads, and has everything that was ever acknowledged.
    pub leads: bool,
    /// Who leads, as far as it knows.
    pub leader: Option<NodeId>,
    /// The group's term, as far as it knows.
    pub term: u64,
    /// Index of the last entry of the group's log that it applied.
    pub applied: u64,
}

/// A member of meta's group, as somebody finds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaMember {
    /// Where it was asked, `host:port`; empty in meta's own process.
    pub address: String,
    /// What it said; `None`: nothing.
    pub standing: Option<MetaStanding>,
}

/// What a node asks for before its first start, and after it moved or got other labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Its data directory's random number.
    pub identity: u64,
    /// The number that it has or that its owner wants for it; `None`: any.
    pub node: Option<NodeId>,
    /// Where its service listens, `host:port`.
    pub address: String,
    /// What its owner says of where it is.
    pub labels: Labels,
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
    /// The load of those that lead.
    pub loads: Vec<LoadBeat>,
    /// What its owner says of where it is.
    pub labels: Labels,
    /// CPU time that its process has used since it began, in milliseconds, where that is known.
    pub cpu_ms: Option<u64>,
    /// The generations of its data directory.
    pub claim: Claim,
}
