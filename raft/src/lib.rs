//! Replication: the Raft groups of one node and the log they share.
//!
//! ```text
//!   datanode, meta
//!      |  propose, read_barrier, flushed          ^ apply(entries) -> replies
//!      v                                          |
//!   Group (group.rs)  <---- started by ---- Host (host.rs)        Machine (machine.rs)
//!      |                                                              ^
//!   openraft: elections, replication, commit  --- state.rs -----------+
//!      |                 \
//!   store.rs           network.rs -> peer.rs -> transport/  ~~~>  server.rs -> Group
//!      |
//!   log/: one writer, one sync for all groups
//! ```
//!
//! Invariants:
//! - a command is acknowledged when a quorum has it on disk and the leader has applied it;
//! - openraft is named nowhere outside this crate, and none of its types reaches the disk or the wire;
//! - a storage error stops what it affects: one group if its machine fails, the log and all groups if a write or a sync
//!   does. Nothing is retried over an unknown state;
//! - every queue is bounded; when it is full, callers wait or are refused with a retryable error.

mod beat;
mod error;
mod fault;
mod greeting;
mod group;
mod hold;
mod host;
mod log;
mod machine;
mod members;
mod network;
mod pace;
mod peer;
pub mod planted;
mod purge;
mod read_point;
mod sense;
mod server;
mod settings;
mod snapshot;
mod state;
mod store;
#[cfg(test)]
mod tests;
pub mod transport;
mod types;
mod wire;

pub use error::RaftError;
pub use fault::OnFailure;
pub use greeting::{Acquaintances, Greeting, Refusal};
pub use group::{Applied, Group, GroupStatus};
pub use host::{Host, HostOptions, Start};
pub use log::LogStats;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub use log::fuzzing;
pub use log::simulated::SimulatedDisk;
pub use machine::{Committed, Incoming, Machine, MachineError, Offer, Snapshot, SnapshotFile};
pub use members::MemberStatus;
pub use partita_proto::id::{GroupId, NodeId, ReplicaId};
pub use read_point::ReadBy;
pub use types::Mark;
