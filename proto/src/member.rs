//! The nodes that hold replicas, as meta knows them: identity, address, liveness. And the state of meta's own members,
//! as they report it.
//!
//! A node's number is assigned once, to one data directory, and never to another: a directory without its data cannot
//! come back under its number, nor can a node that was removed. The directory is identified by a random number.

use std::collections::BTreeMap;

use crate::beat::{FollowerReads, LoadBeat};
use crate::generation::Claim;
use crate::id::NodeId;
use crate::label::Labels;
use crate::service::ReplicaStatus;

/// All nodes, by number.
pub type Members = BTreeMap<NodeId, Member>;

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Address of its service, `host:port`; empty for a node in meta's own process.
    pub address: String,
    /// True if its heartbeats have arrived recently.
    pub live: bool,
    /// True if all replicas are to be moved off the node.
    pub draining: bool,
    /// Number of replicas that it reported.
    pub replicas: u64,
    /// Number of partitions that it reported to lead.
    pub leaders: u64,
    /// Bytes of the files of its replicas.
    pub bytes: u64,
    /// Number of replicas that it should have and did not report.
    pub missing: u64,
    /// Labels that describe its location.
    pub labels: Labels,
}

/// State of a member of meta's own group, as it reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaStanding {
    /// Node id.
    pub node: NodeId,
    /// True if it leads, and has every acknowledged change.
    pub leads: bool,
    /// The leader, as far as the member knows.
    pub leader: Option<NodeId>,
    /// The group's term, as far as the member knows.
    pub term: u64,
    /// Index of the last applied entry of the group's log.
    pub applied: u64,
}

/// A member of meta's group, as a request to it shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaMember {
    /// Address to which the request was sent, `host:port`; empty in meta's own process.
    pub address: String,
    /// The state that it reported; `None` if it did not answer.
    pub standing: Option<MetaStanding>,
}

/// Registration request of a node, sent before its first start and after a change of address or labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Random number of the node's data directory.
    pub identity: u64,
    /// The number that it has or that its owner requests; `None`: any.
    pub node: Option<NodeId>,
    /// Address of its service, `host:port`.
    pub address: String,
    /// Labels that describe its location.
    pub labels: Labels,
}

/// Report of a node, sent about once a second.
#[derive(Clone, Debug, PartialEq)]
pub struct Heartbeat {
    /// Node id.
    pub node: NodeId,
    /// Random number of the node's data directory.
    pub identity: u64,
    /// Address of its service, `host:port`.
    pub address: String,
    /// Status of its replicas.
    pub replicas: Vec<ReplicaStatus>,
    /// Load of the partitions that it leads.
    pub loads: Vec<LoadBeat>,
    /// Labels that describe its location.
    pub labels: Labels,
    /// CPU time used by its process so far, in milliseconds, if it is known.
    pub cpu_ms: Option<u64>,
    /// Generations of its data directory.
    pub claim: Claim,
    /// Reads of the partitions that it does not lead.
    pub follower_reads: Vec<FollowerReads>,
    /// True if its replicas of a new partition begin under the leader that the split names.
    pub names_leader: bool,
}
