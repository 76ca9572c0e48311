//! The error that crosses between services.

use super::{Wire, missing, pb};
use crate::error::Error;
use crate::id::{Epoch, NodeId, PartitionId, TableId};
use crate::materialized::Position;

/// Kinds of objects that errors name. A kind of a newer version becomes "object" here.
const KINDS: [&str; 20] = [
    "table",
    "database",
    "column",
    "partition",
    "replica",
    "node",
    "group",
    "file",
    "schema",
    "setting",
    "function",
    "view",
    "index",
    "role",
    "token",
    "organisation",
    "task",
    "capture",
    "column family",
    "object",
];

fn known_kind(kind: &str) -> &'static str {
    KINDS.into_iter().find(|candidate| *candidate == kind).unwrap_or("object")
}

impl Wire for Error {
    type Message = pb::Error;

    fn to_wire(&self) -> pb::Error {
        use pb::error::Kind;
        let object =
            |kind: &str, name: &str| pb::Named { kind: kind.to_owned(), name: name.to_owned() };
        let kind = match self {
            // Requests that are wrong or come too late.
            Self::InvalidInput(message) => Kind::InvalidInput(message.clone()),
            Self::NotFound { kind, name } => Kind::NotFound(object(kind, name)),
            Self::AlreadyExists { kind, name } => Kind::AlreadyExists(object(kind, name)),
            Self::NotAllowed(message) => Kind::NotAllowed(message.clone()),
            Self::Unauthenticated(message) => Kind::Unauthenticated(message.clone()),
            Self::Unsupported(feature) => Kind::Unsupported(feature.clone()),
            Self::StaleRoute { partition, requested, current } => {
                Kind::StaleRoute(pb::StaleRoute {
                    partition: partition.0,
                    requested: requested.0,
                    current: current.0,
                })
            }
            Self::StaleSchema { table } => Kind::StaleSchema(table.0),
            Self::NeverTaken { partition } => Kind::NeverTaken(partition.0),
            Self::NotLeader { partition, leader } => Kind::NotLeader(pb::NotLeader {
                partition: partition.0,
                leader: leader.map(|node| node.0),
            }),
            Self::Dependents { message, hint } => {
                Kind::Dependents(pb::Dependents { message: message.clone(), hint: hint.clone() })
            }
            Self::Gap { partition } => Kind::Gap(partition.0),
            Self::ShipAhead { stored } => {
                Kind::ShipAhead(pb::ShipAhead { index: stored.index, part: stored.part })
            }
            Self::Changed { partition } => Kind::Changed(partition.0),
            // Limits, and failures of the process or its storage.
            Self::Overloaded(message) => Kind::Overloaded(message.clone()),
            Self::LimitReached { message, hint } => Kind::LimitReached(pb::LimitReached {
                message: message.clone(),
                hint: hint.clone(),
            }),
            Self::DiskFull(message) => Kind::DiskFull(message.clone()),
            Self::Unavailable(message) => Kind::Unavailable(message.clone()),
            Self::Timeout(message) => Kind::Timeout(message.clone()),
            Self::Cancelled => Kind::Cancelled(true),
            Self::Storage(message) => Kind::Storage(message.clone()),
            Self::Corrupted(message) => Kind::Corrupted(message.clone()),
            Self::Query { sqlstate, message, hint } => Kind::Query(pb::Query {
                sqlstate: sqlstate.clone(),
                message: message.clone(),
                hint: hint.clone(),
            }),
            Self::Internal(message) => Kind::Internal(message.clone()),
        };
        pb::Error { kind: Some(kind) }
    }

    fn from_wire(message: pb::Error) -> Result<Self, Self> {
        use pb::error::Kind;
        Ok(match message.kind.ok_or_else(|| missing("kind of error"))? {
            // Requests that are wrong or come too late.
            Kind::InvalidInput(message) => Self::InvalidInput(message),
            Kind::NotFound(object) => {
                Self::NotFound { kind: known_kind(&object.kind), name: object.name }
            }
            Kind::AlreadyExists(object) => {
                Self::AlreadyExists { kind: known_kind(&object.kind), name: object.name }
            }
            Kind::NotAllowed(message) => Self::NotAllowed(message),
            Kind::Unauthenticated(message) => Self::Unauthenticated(message),
            Kind::Unsupported(feature) => Self::Unsupported(feature),
            Kind::StaleRoute(stale) => Self::StaleRoute {
                partition: PartitionId(stale.partition),
                requested: Epoch(stale.requested),
                current: Epoch(stale.current),
            },
            Kind::StaleSchema(table) => Self::StaleSchema { table: TableId(table) },
            Kind::NeverTaken(partition) => Self::NeverTaken { partition: PartitionId(partition) },
            Kind::NotLeader(not_leader) => Self::NotLeader {
                partition: PartitionId(not_leader.partition),
                leader: not_leader.leader.map(NodeId),
            },
            Kind::Dependents(dependents) => {
                Self::Dependents { message: dependents.message, hint: dependents.hint }
            }
            Kind::Gap(partition) => Self::Gap { partition: PartitionId(partition) },
            Kind::ShipAhead(ahead) => {
                Self::ShipAhead { stored: Position { index: ahead.index, part: ahead.part } }
            }
            Kind::Changed(partition) => Self::Changed { partition: PartitionId(partition) },
            // Limits, and failures of the process or its storage.
            Kind::Overloaded(message) => Self::Overloaded(message),
            Kind::LimitReached(limit) => {
                Self::LimitReached { message: limit.message, hint: limit.hint }
            }
            Kind::DiskFull(message) => Self::DiskFull(message),
            Kind::Unavailable(message) => Self::Unavailable(message),
            Kind::Timeout(message) => Self::Timeout(message),
            Kind::Cancelled(_) => Self::Cancelled,
            Kind::Storage(message) => Self::Storage(message),
            Kind::Corrupted(message) => Self::Corrupted(message),
            Kind::Query(query) => {
                Self::Query { sqlstate: query.sqlstate, message: query.message, hint: query.hint }
            }
            Kind::Internal(message) => Self::Internal(message),
        })
    }
}
