//! What meta knows and everybody reads: databases, tables and their partition maps.
//!
//! A [`Catalog`] is an immutable snapshot. Meta publishes a new one with every change, in order;
//! frontends watch it. Its version never goes back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::id::{DatabaseId, TableId};
use crate::placement::Placement;
use crate::route::PartitionMap;
use crate::schema::TableSchema;

/// The database that a session is in unless it says otherwise.
pub const DEFAULT_DATABASE: &str = "public";

/// A name space of tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// Its id.
    pub id: DatabaseId,
    /// Its name, case-sensitive.
    pub name: String,
    /// The `ttl` of tables that have none of their own.
    pub ttl: Option<Duration>,
}

/// A table, ready for use.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its id.
    pub id: TableId,
    /// The database it is in.
    pub database: String,
    /// Its name, case-sensitive.
    pub name: String,
    /// Columns, key and options.
    pub schema: Arc<TableSchema>,
    /// How a row finds its place in the key space.
    pub placement: Placement,
    /// Which partition owns which range.
    pub partitions: Arc<PartitionMap>,
    /// The table that keeps the rows from before its rows were placed otherwise: they are its rows too. All that is
    /// written since lies in its own partitions.
    pub former: Option<TableId>,
    /// The table that takes over from this one. As long as that one does not name this one as its former table, rows
    /// are written here, and the other one's are this one's too.
    pub succeeded_by: Option<TableId>,
}

impl Table {
    /// Whether the rows of the same tables are this one's. If not, a plan made for the one is none for the other.
    #[must_use]
    pub fn reads_as(&self, other: &Self) -> bool {
        (self.former, self.succeeded_by) == (other.former, other.succeeded_by)
    }
}

/// Everything at one version.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Grows with every change.
    pub version: u64,
    /// By name.
    pub databases: BTreeMap<String, Arc<Database>>,
    /// By database name, then table name.
    pub tables: BTreeMap<String, BTreeMap<String, Arc<Table>>>,
}

impl Catalog {
    /// A table by its names.
    pub fn table(&self, database: &str, name: &str) -> Option<&Arc<Table>> {
        self.tables.get(database)?.get(name)
    }

    /// The other table whose rows are a table's too, if there is one: its former table, or the one that is about to take
    /// over from it.
    pub fn read_along(&self, table: &Table) -> Option<&Arc<Table>> {
        if let Some(former) = table.former {
            return self.table_by_id(former);
        }
        let next = self.table_by_id(table.succeeded_by?)?;
        next.former.is_none().then_some(next)
    }

    /// A table by its id.
    pub fn table_by_id(&self, id: TableId) -> Option<&Arc<Table>> {
        self.tables.values().flat_map(BTreeMap::values).find(|table| table.id == id)
    }
}
