//! The one error that crosses between services.
//!
//! Variants are named by what the caller does about them. [`Error::is_retryable`] says whether the
//! same request may succeed when it is sent again; a write keeps its request identity then, so that
//! it takes effect once.

use crate::id::{Epoch, NodeId, PartitionId, TableId};

/// What can go wrong with a request to a service.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The request is wrong and stays wrong.
    #[error("{0}")]
    InvalidInput(String),
    /// It names something that does not exist.
    #[error("{kind} \"{name}\" does not exist")]
    NotFound {
        /// "table", "database", "column", "partition".
        kind: &'static str,
        /// Its name or number.
        name: String,
    },
    /// It would create something that exists.
    #[error("{kind} \"{name}\" already exists")]
    AlreadyExists {
        /// "table", "database", "column".
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// Well-formed, but not something this version does.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// The sender's route is older than the partition: refresh it and send again.
    #[error("partition {partition} is at epoch {current}, the request was for epoch {requested}")]
    StaleRoute {
        /// The partition asked.
        partition: PartitionId,
        /// The epoch that the request bore.
        requested: Epoch,
        /// The partition's epoch.
        current: Epoch,
    },
    /// The partition's schema is not the one that the request was made for.
    #[error("table {table} has another schema version than the request")]
    StaleSchema {
        /// The table.
        table: TableId,
    },
    /// This replica does not lead its group.
    #[error("this replica of partition {partition} is not the leader")]
    NotLeader {
        /// The partition asked.
        partition: PartitionId,
        /// Who leads, when known.
        leader: Option<NodeId>,
    },
    /// A bound was reached; send again later.
    #[error("{0}")]
    Overloaded(String),
    /// It would make more of something than there may be; stays wrong until some go.
    #[error("{message}")]
    LimitReached {
        /// What there is too much of.
        message: String,
        /// What to do about it.
        hint: String,
    },
    /// The storage device is full; reads go on, writes are refused until there is space.
    #[error("no space left on device: {0}")]
    DiskFull(String),
    /// Not reachable, starting or stopping; send again.
    #[error("{0}")]
    Unavailable(String),
    /// The request's deadline passed; a write may or may not have taken effect.
    #[error("timed out: {0}")]
    Timeout(String),
    /// The user cancelled it.
    #[error("canceled")]
    Cancelled,
    /// A storage device failed: a read, a write or a sync was refused by it. Others may have the data.
    #[error("storage failed: {0}")]
    Storage(String),
    /// Stored bytes failed their checksum; they were not served.
    #[error("corrupted data: {0}")]
    Corrupted(String),
    /// A part of a query failed on the rows that it was given, as it would have anywhere.
    #[error("{message}")]
    Query {
        /// The SQLSTATE.
        sqlstate: String,
        /// What is wrong.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// A failure that the caller can do nothing about.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Error {
    /// Whether the same request may succeed when it is sent again.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::StaleRoute { .. }
                | Self::StaleSchema { .. }
                | Self::NotLeader { .. }
                | Self::Overloaded(_)
                | Self::DiskFull(_)
                | Self::Unavailable(_)
                | Self::Timeout(_)
        )
    }

    /// The SQLSTATE that PostgreSQL's clients know it by.
    pub fn sqlstate(&self) -> &str {
        match self {
            Self::InvalidInput(_) => "22023",
            Self::NotFound { kind, .. } => match *kind {
                "table" => "42P01",
                "column" => "42703",
                "database" => "3F000",
                _ => "42704",
            },
            Self::AlreadyExists { kind, .. } => match *kind {
                "table" => "42P07",
                "column" => "42701",
                "database" => "42P06",
                _ => "42710",
            },
            Self::Unsupported(_) => "0A000",
            Self::StaleRoute { .. } | Self::StaleSchema { .. } | Self::NotLeader { .. } => "40001",
            Self::Overloaded(_) => "53400",
            Self::LimitReached { .. } => "54000",
            Self::DiskFull(_) => "53100",
            Self::Unavailable(_) => "57P03",
            Self::Timeout(_) | Self::Cancelled => "57014",
            Self::Storage(_) => "58030",
            Self::Corrupted(_) => "XX001",
            Self::Query { sqlstate, .. } => sqlstate,
            Self::Internal(_) => "XX000",
        }
    }
}
