//! Identifiers of the system's objects.
//!
//! Every id is a newtype, so that a partition's number is never mistaken for a node's. All of them are allocated by
//! meta and never reused. Most are numbers that grow; those that InfluxDB's clients see are shown as 16 hexadecimal
//! digits and are never 0.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use crate::error::Error;

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

id!(
    /// A role: a user, or a group of users. Role 0 is the bootstrap superuser.
    RoleId,
    u32
);
id!(
    /// A task: a statement that runs on a schedule.
    TaskId,
    u32
);
id!(
    /// A sequence: a counter that is taken in blocks.
    SequenceId,
    u32
);

macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(NonZeroU64);

        impl $name {
            /// The id with this number; `None` for 0.
            #[must_use]
            pub fn new(number: u64) -> Option<Self> {
                NonZeroU64::new(number).map(Self)
            }

            /// The number of the id; never 0.
            #[must_use]
            pub fn get(self) -> u64 {
                self.0.get()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0.get())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl FromStr for $name {
            type Err = Error;

            /// Parses exactly 16 hexadecimal digits, not all of them 0.
            fn from_str(text: &str) -> Result<Self, Error> {
                let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
                let number = u64::from_str_radix(text, 16).ok().filter(|_| digits);
                number.and_then(Self::new).ok_or_else(|| {
                    Error::InvalidInput(format!(
                        "invalid id \"{text}\": it must have 16 hexadecimal digits, not all 0"
                    ))
                })
            }
        }
    };
}

hex_id!(
    /// An organisation.
    OrgId
);
hex_id!(
    /// An API token.
    TokenId
);

/// The superuser that exists from the start. It owns every object that has no other owner.
pub const BOOTSTRAP_ROLE: RoleId = RoleId(0);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_for_influxdb_clients_is_its_sixteen_digits() {
        let org = OrgId::new(0xab).unwrap();
        assert_eq!(org.to_string(), "00000000000000ab");
        assert_eq!(format!("{org:?}"), "OrgId(00000000000000ab)");
        assert_eq!("00000000000000AB".parse::<OrgId>(), Ok(org));
        assert_eq!("ffffffffffffffff".parse::<TokenId>().unwrap().get(), u64::MAX);
        assert_eq!(TokenId::new(0), None);
        for text in [
            "",
            "ab",
            "0000000000000000",
            "+0000000000000ab",
            "00000000000000abc",
            "é00000000000000",
        ] {
            assert!(text.parse::<OrgId>().is_err(), "{text}");
        }
    }
}
