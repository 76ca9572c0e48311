//! The only error that crosses between services.
//!
//! Variants are named by what the caller does about them. [`Error::is_retryable`] tells whether the same request may
//! succeed when it is repeated; a write then keeps its request identity, so that it takes effect once.

use crate::id::{Epoch, NodeId, PartitionId, TableId};
use crate::materialized::Position;

/// Error of a request to a service.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The request is invalid; repeating it does not help.
    #[error("{0}")]
    InvalidInput(String),
    /// The request names an object that does not exist.
    #[error("{kind} \"{name}\" does not exist")]
    NotFound {
        /// Kind of the object: "table", "database", "column", "column family", "index", "partition", "capture".
        kind: &'static str,
        /// Name or number of the object.
        name: String,
    },
    /// The request would create an object that exists.
    #[error("{kind} \"{name}\" already exists")]
    AlreadyExists {
        /// Kind of the object: "table", "database", "column", "index".
        kind: &'static str,
        /// Name of the object.
        name: String,
    },
    /// The identity lacks a right; the request fails until the right is granted.
    #[error("{0}")]
    NotAllowed(String),
    /// The session or the token is no longer valid; authenticate again.
    #[error("{0}")]
    Unauthenticated(String),
    /// Well-formed, but not supported by this version.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// The sender's route is older than the partition: refresh it and send again.
    #[error("partition {partition} is at epoch {current}, the request was for epoch {requested}")]
    StaleRoute {
        /// Partition of the request.
        partition: PartitionId,
        /// Epoch in the request.
        requested: Epoch,
        /// Current epoch of the partition.
        current: Epoch,
    },
    /// The partition's schema is not the one that the request was made for.
    #[error("table {table} has another schema version than the request")]
    StaleSchema {
        /// Table of the request.
        table: TableId,
    },
    /// The partition is closed, never took the write, and never will: cut its rows by the newest catalog.
    #[error("partition {partition} is closed and never took the write")]
    NeverTaken {
        /// Partition of the request.
        partition: PartitionId,
    },
    /// This replica does not lead its group.
    #[error("this replica of partition {partition} is not the leader")]
    NotLeader {
        /// Partition of the request.
        partition: PartitionId,
        /// The leader's node, if it is known.
        leader: Option<NodeId>,
    },
    /// A bound was reached; send again later.
    #[error("{0}")]
    Overloaded(String),
    /// The request would exceed a limit on a number of objects; it fails until some are removed.
    #[error("{message}")]
    LimitReached {
        /// Message that names the limit.
        message: String,
        /// Hint about what to do.
        hint: String,
    },
    /// The object cannot be dropped because others depend on it; it fails until they are gone.
    #[error("{message}")]
    Dependents {
        /// Message that names the object.
        message: String,
        /// Hint about what to do.
        hint: String,
    },
    /// Changes of a source partition are lost to its copy; repeating does not help.
    #[error("changes of partition {partition} are no longer known")]
    Gap {
        /// Partition of the source.
        partition: PartitionId,
    },
    /// Rows for a copy overlap those that it took: send them again, cut at the position.
    #[error(
        "rows of the source were taken up to part {} of entry {}, in the middle of those sent",
        .stored.part,
        .stored.index
    )]
    ShipAhead {
        /// Position up to which the rows were taken.
        stored: Position,
    },
    /// The rows of a conditional write may have changed since they were read: read them again.
    #[error("rows of partition {partition} have changed since they were read")]
    Changed {
        /// Partition of the request.
        partition: PartitionId,
    },
    /// The storage device is full; reads continue, writes are refused until there is space.
    #[error("no space left on device: {0}")]
    DiskFull(String),
    /// Not reachable, starting or stopping; send again.
    #[error("{0}")]
    Unavailable(String),
    /// The request's deadline passed; a write may or may not have taken effect.
    #[error("timed out: {0}")]
    Timeout(String),
    /// The user cancelled the request.
    #[error("canceled")]
    Cancelled,
    /// A storage device failed a read, a write or a sync. Other replicas may have the data.
    #[error("storage failed: {0}")]
    Storage(String),
    /// Stored bytes failed their checksum; they were not served.
    #[error("corrupted data: {0}")]
    Corrupted(String),
    /// A part of a query failed on its rows, as it would have on any node; or a change was refused with an SQLSTATE of
    /// its own.
    #[error("{message}")]
    Query {
        /// SQLSTATE of the error.
        sqlstate: String,
        /// Error message.
        message: String,
        /// Hint about what to do, if any.
        hint: Option<String>,
    },
    /// An unexpected failure that the caller cannot handle.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Error {
    /// True if the same request may succeed when it is sent again.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::StaleRoute { .. }
                | Self::StaleSchema { .. }
                | Self::NeverTaken { .. }
                | Self::NotLeader { .. }
                | Self::Overloaded(_)
                | Self::DiskFull(_)
                | Self::Unavailable(_)
                | Self::Timeout(_)
        )
    }

    /// True if an attempt to write that ended with this error may have taken effect, now or later. All others were refused
    /// before the log, or by the entry itself. Only [`Self::NeverTaken`] says something about earlier attempts, too.
    #[must_use]
    pub fn leaves_write_unknown(&self) -> bool {
        match self {
            Self::Unavailable(_)
            | Self::Timeout(_)
            | Self::Cancelled
            | Self::Storage(_)
            | Self::Corrupted(_)
            | Self::Internal(_) => true,
            Self::InvalidInput(_)
            | Self::NotFound { .. }
            | Self::AlreadyExists { .. }
            | Self::NotAllowed(_)
            | Self::Unauthenticated(_)
            | Self::Unsupported(_)
            | Self::StaleRoute { .. }
            | Self::StaleSchema { .. }
            | Self::NeverTaken { .. }
            | Self::NotLeader { .. }
            | Self::Overloaded(_)
            | Self::LimitReached { .. }
            | Self::Dependents { .. }
            | Self::Gap { .. }
            | Self::ShipAhead { .. }
            | Self::Changed { .. }
            | Self::DiskFull(_)
            | Self::Query { .. } => false,
        }
    }

    /// The SQLSTATE reported to PostgreSQL clients.
    pub fn sqlstate(&self) -> &str {
        match self {
            Self::InvalidInput(_) => "22023",
            Self::NotFound { kind, .. } => match *kind {
                "table" | "sequence" => "42P01",
                "column" => "42703",
                "database" => "3F000",
                _ => "42704",
            },
            Self::AlreadyExists { kind, .. } => match *kind {
                "table" | "index" => "42P07",
                "column" => "42701",
                "database" => "42P06",
                _ => "42710",
            },
            Self::NotAllowed(_) => "42501",
            // 28P01 is for a wrong secret.
            Self::Unauthenticated(_) => "28000",
            Self::Unsupported(_) => "0A000",
            Self::StaleRoute { .. }
            | Self::StaleSchema { .. }
            | Self::NeverTaken { .. }
            | Self::NotLeader { .. }
            | Self::Changed { .. } => "40001",
            Self::Overloaded(_) => "53400",
            Self::LimitReached { .. } => "54000",
            Self::Dependents { .. } => "2BP01",
            Self::DiskFull(_) => "53100",
            Self::Unavailable(_) => "57P03",
            Self::Timeout(_) | Self::Cancelled => "57014",
            Self::Storage(_) => "58030",
            Self::Corrupted(_) => "XX001",
            Self::Query { sqlstate, .. } => sqlstate,
            Self::Internal(_) | Self::Gap { .. } | Self::ShipAhead { .. } => "XX000",
        }
    }
}
