//! The catalog: databases, tables and their partition maps.
//!
//! A [`Catalog`] is an immutable snapshot. Meta publishes a new one with every change, in order; frontends watch it.
//! Its version never decreases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::access::Access;
use crate::id::{DatabaseId, RoleId, SequenceId, TableId, TaskId};
use crate::materialized::{CopyOf, CopyState};
use crate::placement::Placement;
use crate::route::PartitionMap;
use crate::schema::TableSchema;
use crate::sequence::Sequence;
use crate::task::TaskEntry;

/// Database of a session that names none.
pub const DEFAULT_DATABASE: &str = "public";

/// A name space of tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// Database id.
    pub id: DatabaseId,
    /// Database name, case-sensitive.
    pub name: String,
    /// Default `ttl` of the database's tables.
    pub ttl: Option<Duration>,
    /// Owning role; 0 for the bootstrap superuser.
    pub owner: RoleId,
    /// True if the tables are made ahead, as InfluxDB's explicit schemas: line protocol creates neither tables nor
    /// columns. Never changes back.
    pub explicit: bool,
    /// Owner's comment.
    pub comment: Option<String>,
}

/// A table, ready for use.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Table id.
    pub id: TableId,
    /// Name of its database.
    pub database: String,
    /// Table name, case-sensitive.
    pub name: String,
    /// Columns, key and options.
    pub schema: Arc<TableSchema>,
    /// Function that maps a row to its place in the key space.
    pub placement: Placement,
    /// Routes: the partitions and their ranges.
    pub partitions: Arc<PartitionMap>,
    /// Former table, which keeps the rows from before a change of the placement: queries include them. All later rows
    /// are in this table's own partitions.
    pub former: Option<TableId>,
    /// Table that is about to succeed this one. Until that table names this one as its former table, rows are written
    /// here, and queries include the other table's rows.
    pub succeeded_by: Option<TableId>,
    /// Owning role; 0 for the bootstrap superuser.
    pub owner: RoleId,
    /// Source and state, if the table is a copy.
    pub copy: Option<Arc<CopyOf>>,
}

impl Table {
    /// True if both tables include the rows of the same other tables. If not, a plan made for one is not valid for the
    /// other.
    #[must_use]
    pub fn reads_as(&self, other: &Self) -> bool {
        (self.former, self.succeeded_by) == (other.former, other.succeeded_by)
    }

    /// True if both tables have one order of the key and one placement. Those of a table change when it is re-keyed.
    #[must_use]
    pub fn has_layout_of(&self, table: &Self) -> bool {
        self.schema.key == table.schema.key && self.placement == table.placement
    }
}

/// Snapshot of all databases and tables, and of who may do what with them.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Version; grows with every change.
    pub version: u64,
    /// Databases by name.
    pub databases: BTreeMap<String, Arc<Database>>,
    /// Tables by database name, then table name.
    pub tables: BTreeMap<String, BTreeMap<String, Arc<Table>>>,
    /// Roles, grants, tokens and organisations. By default there are none, and nobody may do anything.
    pub access: Arc<Access>,
    /// Tasks of all owners, with their progress. Whoever shows one checks the right to it.
    pub tasks: Arc<BTreeMap<TaskId, Arc<TaskEntry>>>,
    /// Sequences of all owners, with their counters. Whoever uses one checks the right to it.
    pub sequences: Arc<BTreeMap<SequenceId, Arc<Sequence>>>,
}

impl Catalog {
    /// A table by database name and table name.
    pub fn table(&self, database: &str, name: &str) -> Option<&Arc<Table>> {
        self.tables.get(database)?.get(name)
    }

    /// The other table whose rows queries of this table include, if there is one: its former table, or its successor.
    pub fn read_along(&self, table: &Table) -> Option<&Arc<Table>> {
        if let Some(former) = table.former {
            return self.table_by_id(former);
        }
        let next = self.table_by_id(table.succeeded_by?)?;
        next.former.is_none().then_some(next)
    }

    /// The task with this name in a database.
    pub fn task(&self, database: DatabaseId, name: &str) -> Option<&Arc<TaskEntry>> {
        let mut entries = self.tasks.values();
        entries.find(|entry| entry.task.database == database && entry.task.name == name)
    }

    /// The sequence with this name in a database.
    pub fn sequence(&self, database: DatabaseId, name: &str) -> Option<&Arc<Sequence>> {
        let mut sequences = self.sequences.values();
        sequences.find(|sequence| sequence.database == database && sequence.name == name)
    }

    /// The sequences of a table's columns.
    pub fn sequences_of(&self, table: TableId) -> impl Iterator<Item = &Arc<Sequence>> {
        let of_table = move |sequence: &&Arc<Sequence>| {
            sequence.column.is_some_and(|column| column.table == table)
        };
        self.sequences.values().filter(of_table)
    }

    /// Searches all databases for a table.
    pub fn table_by_id(&self, id: TableId) -> Option<&Arc<Table>> {
        self.tables.values().flat_map(BTreeMap::values).find(|table| table.id == id)
    }

    /// The materialized copies of a table, in the order of their names, without those that are retired: these have only
    /// the partitions that the table had before it was re-keyed.
    pub fn copies_of(&self, source: TableId) -> impl Iterator<Item = &Arc<Table>> {
        let tables = self.tables.values().flat_map(BTreeMap::values);
        tables.filter(move |table| {
            let copy = table.copy.as_ref();
            copy.is_some_and(|copy| copy.source == source && copy.state != CopyState::Retired)
        })
    }

    /// True if a table was re-keyed a short while ago: its former partitions, which a retired copy has, still tell which
    /// writes they took.
    #[must_use]
    pub fn was_rekeyed(&self, source: TableId) -> bool {
        let mut copies = self.tables.values().flat_map(BTreeMap::values);
        copies.any(|table| {
            let copy = table.copy.as_ref();
            copy.is_some_and(|copy| copy.source == source && copy.state == CopyState::Retired)
        })
    }

    /// The re-keying of a table that is under way: the copy that is to take its place.
    pub fn rekeying_of(&self, source: TableId) -> Option<&Arc<Table>> {
        self.copies_of(source)
            .find(|table| table.copy.as_ref().is_some_and(|copy| copy.is_rekeying()))
    }

    /// The views whose queries name a table or view, in the order of their names.
    pub fn views_of<'a>(
        &'a self,
        database: &'a str,
        name: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Table>> {
        let tables = self.tables.values().flat_map(BTreeMap::values);
        tables.filter(move |table| {
            table.schema.view.as_ref().is_some_and(|view| view.reads(database, name))
        })
    }
}
