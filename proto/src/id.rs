//! Identifiers of the system's objects.
//!
//! Every id is a newtype, so that a partition's number is never mistaken for a node's. All of them are allocated by
//! meta, grow, and are never reused.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
            serde::Serialize, serde::Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }
    };
}

id!(
    /// A database: a name space of tables (a "bucket" to InfluxDB's clients, a schema to PostgreSQL's).
    DatabaseId,
    u32
);
id!(
    /// A table.
    TableId,
    u32
);
id!(
    /// A column; unique within its table, never used again after a drop.
    ColumnId,
    u32
);
id!(
    /// A partition of a table: one contiguous range of its key space.
    PartitionId,
    u64
);
id!(
    /// A Raft group. Group 0 is meta's own; every other group bears its partition's number.
    GroupId,
    u64
);
id!(
    /// One replica of a group. Never a node's number: a replica that comes back to a node is a new one.
    ReplicaId,
    u64
);
id!(
    /// A process that holds replicas, or a meta or frontend process.
    NodeId,
    u64
);
id!(
    /// A partition's routing version: grows with every change of its range or placement.
    Epoch,
    u64
);
id!(
    /// A version of a table's schema: grows with every change of its columns or options.
    SchemaVersion,
    u32
);

/// The group that keeps the cluster's catalog.
pub const META_GROUP: GroupId = GroupId(0);

impl From<PartitionId> for GroupId {
    fn from(partition: PartitionId) -> Self {
        Self(partition.0)
    }
}

impl Epoch {
    /// The epoch after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl SchemaVersion {
    /// The version after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
