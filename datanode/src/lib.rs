//! The datanode: replicas of partitions and the service that reads and writes them.
//!
//! ```text
//!   node (DataService) ── replica ─┬─ writer: joins waiting writes ── group (raft) ── log
//!        │                         ├─ machine: applies the log ────── engine partition
//!        │                         ├─ changes: rows and captured changes for copies, by captures and their tail (capture)
//!        │                         ├─ transfer: its files to and from other replicas
//!        │                         └─ reshape: a range is cut in two ── surroundings: log, files, neighbours
//!        ├─ start: opens, makes and removes replicas; refuses those of an older copy (older)
//!        ├─ reconfigure: who belongs to a group, by a pure choose()
//!        └─ maintenance: flush, compaction, expiry, by a pure choose()
//! ```

mod aside;
mod audit;
mod capture;
mod changes;
mod closed;
mod effect;
mod files;
mod followed;
mod full_rows;
pub mod generation;
mod lane;
mod leadership;
mod load;
mod machine;
pub mod maintenance;
mod making;
mod metered;
mod node;
mod obstacle;
mod older;
mod reconfigure;
mod replica;
mod reply;
mod requests;
mod reshape;
mod rows;
mod start;
mod surroundings;
#[cfg(test)]
mod tests;
mod tracked;
mod transfer;
mod trash;
mod writer;

pub use audit::Content;
pub use files::{Files, Found};
pub use node::{Datanode, NodeOptions};
pub use partita_engine::{After, EngineOptions, Lazy};
pub use requests::{Known, REQUESTS_MAX, Requests};

use partita_proto::error::Error;
use partita_proto::id::PartitionId;
use partita_raft::{Group, RaftError};

/// Translates a replication error into the error that the client gets.
fn raft_error(partition: PartitionId, error: RaftError) -> Error {
    match error {
        RaftError::NotLeader { leader } => {
            Error::NotLeader { partition, leader: leader.map(|(_, node)| node) }
        }
        RaftError::DiskFull(message) => Error::DiskFull(message),
        RaftError::Corrupted(message) => Error::Corrupted(message),
        RaftError::InvalidInput(message) => Error::InvalidInput(message),
        RaftError::Unavailable(message) => Error::Unavailable(message),
        RaftError::OutcomeUnknown(message) => Error::Timeout(message),
        // Fail-stop: repeating the request does not help until the process is restarted.
        error @ (RaftError::Stopped { .. } | RaftError::Io { .. }) => {
            Error::Storage(format!("partition {partition}: {error}"))
        }
        error @ RaftError::Incompatible(_) => {
            Error::Internal(format!("partition {partition}: {error}"))
        }
    }
}

/// As [`raft_error`], for a replica that runs: if it has stopped and the group has other replicas, one of them will
/// lead soon, so the error is retryable.
fn group_error(group: &Group, error: RaftError) -> Error {
    let partition = PartitionId(group.id().0);
    match error {
        error @ (RaftError::Stopped { .. } | RaftError::Io { .. }) if group.members().len() > 1 => {
            Error::Unavailable(format!("partition {partition}: {error}"))
        }
        error => raft_error(partition, error),
    }
}
