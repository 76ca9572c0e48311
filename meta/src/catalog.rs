//! The catalog as meta keeps it: databases, tables and partitions by id, with the work that is
//! still to be done on them.
//!
//! ```text
//!   Creating ──finish──▶ Ready ──change──▶ Altering ──finish──▶ Ready
//!      │ abort             │ drop             │ drop
//!      └──────────────▶ Dropping ◀────────────┘      ──finish──▶ gone
//! ```
//!
//! A [`State`] only changes by [`Edit`]s, which [`crate::transition`] decides; the same edits go to
//! the store. Invariants (checked by [`State::check`] when a catalog is loaded, and in tests):
//! - ids are below the counters that allocate them, so no id is ever given twice;
//! - a name belongs to at most one database, and within a database to at most one table that is not
//!   being dropped;
//! - the partitions of a table tile its key space, in order, and each has one table;
//! - only tables that are ready or being altered are published.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use partita_proto::catalog::DEFAULT_DATABASE;
use partita_proto::id::{DatabaseId, Epoch, NodeId, PartitionId, ReplicaId, TableId};
use partita_proto::placement::Placement;
use partita_proto::range::{Bound, TypedRange};
use partita_proto::schema::TableSchema;

/// The catalog version at which a table came into its present phase. What was planned for one step
/// is void at another, so a late answer never finishes the wrong work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Step(pub(crate) u64);

/// What is being done with a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its replicas are being opened; nobody sees it yet.
    Creating,
    /// Nothing.
    Ready,
    /// Its partitions are being told of something; everybody goes on seeing it as it was.
    Altering(Work),
    /// Its replicas are being removed; nobody sees it any more and its name is free.
    Dropping,
}

/// What the partitions of a table are being told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A new schema; it is published when all of them have it.
    Schema(Arc<TableSchema>),
    /// To remove all rows.
    Truncate,
}

/// A database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DatabaseRecord {
    pub(crate) id: DatabaseId,
    pub(crate) name: String,
    pub(crate) ttl: Option<Duration>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableRecord {
    pub(crate) id: TableId,
    pub(crate) database: DatabaseId,
    pub(crate) name: String,
    pub(crate) phase: Phase,
    pub(crate) step: Step,
    /// What is published.
    pub(crate) schema: Arc<TableSchema>,
    pub(crate) placement: Placement,
    /// Storage names of dropped columns: never given out again.
    pub(crate) dropped_names: BTreeSet<String>,
    /// The `ttl` that the nodes were told (or are being told) last: the table's own or its
    /// database's. When it is no longer what it should be, the table is altered.
    pub(crate) told_ttl: Option<Duration>,
    /// In the order of their ranges.
    pub(crate) partitions: Vec<PartitionId>,
}

impl TableRecord {
    /// Whether frontends see it.
    pub(crate) fn is_visible(&self) -> bool {
        matches!(self.phase, Phase::Ready | Phase::Altering(_))
    }

    /// Whether it holds its name.
    pub(crate) fn is_named(&self) -> bool {
        self.phase != Phase::Dropping
    }

    /// Whether nodes are to be told something.
    pub(crate) fn is_pending(&self) -> bool {
        self.phase != Phase::Ready
    }
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartitionRecord {
    pub(crate) id: PartitionId,
    pub(crate) table: TableId,
    pub(crate) range: TypedRange,
    pub(crate) epoch: Epoch,
    pub(crate) replicas: BTreeMap<ReplicaId, NodeId>,
}

/// The version, and the ids that come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Grows with every change.
    pub(crate) version: u64,
    pub(crate) database: DatabaseId,
    pub(crate) table: TableId,
    pub(crate) partition: PartitionId,
    pub(crate) replica: ReplicaId,
}

/// One record that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    Counters(Counters),
    Database(Arc<DatabaseRecord>),
    DatabaseGone(DatabaseId),
    Table(Arc<TableRecord>),
    TableGone(TableId),
    Partition(Arc<PartitionRecord>),
    PartitionGone(PartitionId),
}

/// Everything meta knows. Cheap to clone: records are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    counters: Counters,
    databases: BTreeMap<DatabaseId, Arc<DatabaseRecord>>,
    tables: BTreeMap<TableId, Arc<TableRecord>>,
    partitions: BTreeMap<PartitionId, Arc<PartitionRecord>>,
    // Derived from the above.
    database_names: BTreeMap<String, DatabaseId>,
    table_names: BTreeMap<DatabaseId, BTreeMap<String, TableId>>,
    pending: BTreeSet<TableId>,
}

impl State {
    /// Nothing at all.
    pub(crate) fn empty() -> Self {
        // Partitions start at 1 because group 0 is meta's; ids of 0 are left out everywhere, so that
        // a forgotten field is never taken for somebody's id. Replica 1 is meta's own.
        let counters = Counters {
            version: 0,
            database: DatabaseId(1),
            table: TableId(1),
            partition: PartitionId(1),
            replica: ReplicaId(2),
        };
        Self {
            counters,
            databases: BTreeMap::new(),
            tables: BTreeMap::new(),
            partitions: BTreeMap::new(),
            database_names: BTreeMap::new(),
            table_names: BTreeMap::new(),
            pending: BTreeSet::new(),
        }
    }

    /// What a new catalog starts from: the default database.
    pub(crate) fn first_edits() -> Vec<Edit> {
        let mut counters = Self::empty().counters;
        let public =
            DatabaseRecord { id: counters.database, name: DEFAULT_DATABASE.to_owned(), ttl: None };
        counters.version = 1;
        counters.database = DatabaseId(public.id.0 + 1);
        vec![Edit::Counters(counters), Edit::Database(Arc::new(public))]
    }

    /// Makes the changes. They are taken as decided: nothing is refused here.
    pub(crate) fn apply(&mut self, edits: &[Edit]) {
        for edit in edits {
            match edit {
                Edit::Counters(counters) => self.counters = *counters,
                Edit::Database(record) => {
                    self.forget_database(record.id);
                    self.database_names.insert(record.name.clone(), record.id);
                    self.databases.insert(record.id, Arc::clone(record));
                }
                Edit::DatabaseGone(id) => self.forget_database(*id),
                Edit::Table(record) => {
                    self.forget_table(record.id);
                    if record.is_named() {
                        let names = self.table_names.entry(record.database).or_default();
                        names.insert(record.name.clone(), record.id);
                    }
                    if record.is_pending() {
                        self.pending.insert(record.id);
                    }
                    self.tables.insert(record.id, Arc::clone(record));
                }
                Edit::TableGone(id) => self.forget_table(*id),
                Edit::Partition(record) => {
                    self.partitions.insert(record.id, Arc::clone(record));
                }
                Edit::PartitionGone(id) => {
                    self.partitions.remove(id);
                }
            }
        }
    }

    fn forget_database(&mut self, id: DatabaseId) {
        if let Some(old) = self.databases.remove(&id) {
            self.database_names.remove(&old.name);
        }
    }

    fn forget_table(&mut self, id: TableId) {
        self.pending.remove(&id);
        let Some(old) = self.tables.remove(&id) else { return };
        // The name may belong to a newer table by now, if this one was being dropped.
        if let Some(names) = self.table_names.get_mut(&old.database) {
            if names.get(&old.name) == Some(&id) {
                names.remove(&old.name);
            }
            if names.is_empty() {
                self.table_names.remove(&old.database);
            }
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    pub(crate) fn version(&self) -> u64 {
        self.counters.version
    }

    pub(crate) fn databases(&self) -> impl Iterator<Item = &Arc<DatabaseRecord>> {
        self.databases.values()
    }

    pub(crate) fn database(&self, id: DatabaseId) -> Option<&Arc<DatabaseRecord>> {
        self.databases.get(&id)
    }

    pub(crate) fn database_named(&self, name: &str) -> Option<&Arc<DatabaseRecord>> {
        self.databases.get(self.database_names.get(name)?)
    }

    /// All tables, those being dropped too.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<TableRecord>> {
        self.tables.values()
    }

    pub(crate) fn table_count(&self) -> usize {
        self.tables.len()
    }

    pub(crate) fn table(&self, id: TableId) -> Option<&Arc<TableRecord>> {
        self.tables.get(&id)
    }

    /// The table that holds a name: not one that is being dropped.
    pub(crate) fn table_named(
        &self,
        database: DatabaseId,
        name: &str,
    ) -> Option<&Arc<TableRecord>> {
        self.tables.get(self.table_names.get(&database)?.get(name)?)
    }

    /// The tables of a database that hold a name.
    pub(crate) fn tables_of(
        &self,
        database: DatabaseId,
    ) -> impl Iterator<Item = &Arc<TableRecord>> {
        let names = self.table_names.get(&database);
        names.into_iter().flat_map(BTreeMap::values).filter_map(|id| self.tables.get(id))
    }

    /// Tables that nodes are to be told something about.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &Arc<TableRecord>> {
        self.pending.iter().filter_map(|id| self.tables.get(id))
    }

    pub(crate) fn partitions(&self) -> impl Iterator<Item = &Arc<PartitionRecord>> {
        self.partitions.values()
    }

    /// A table's partitions in the order of their ranges.
    pub(crate) fn partitions_of(
        &self,
        table: &TableRecord,
    ) -> impl Iterator<Item = &Arc<PartitionRecord>> {
        table.partitions.iter().filter_map(|id| self.partitions.get(id))
    }

    /// The `ttl` that a table of this schema has in a database: its own, or the database's when its
    /// rows have a time.
    pub(crate) fn ttl(&self, database: DatabaseId, schema: &TableSchema) -> Option<Duration> {
        let inherited = || {
            schema.time_index()?;
            self.database(database)?.ttl
        };
        schema.options.ttl.or_else(inherited)
    }

    /// Checks the invariants of this module.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        let next = self.counters;
        if self.database_names.len() != self.databases.len() {
            return Err("two databases have one name".to_owned());
        }
        if let Some(id) = self.databases.keys().next_back().filter(|id| **id >= next.database) {
            return Err(format!("database {id} is not below the next id {}", next.database));
        }
        if let Some(id) = self.tables.keys().next_back().filter(|id| **id >= next.table) {
            return Err(format!("table {id} is not below the next id {}", next.table));
        }
        if let Some(id) = self.partitions.keys().next_back().filter(|id| **id >= next.partition) {
            return Err(format!("partition {id} is not below the next id {}", next.partition));
        }
        let mut replicas = BTreeSet::new();
        for partition in self.partitions.values() {
            for replica in partition.replicas.keys() {
                if *replica >= next.replica || !replicas.insert(*replica) {
                    return Err(format!("replica {replica} was given twice"));
                }
            }
        }
        let named = self.tables.values().filter(|table| table.is_named()).count();
        if named != self.table_names.values().map(BTreeMap::len).sum::<usize>() {
            return Err("two tables of one database have one name".to_owned());
        }
        let mut owned = 0;
        for table in self.tables.values() {
            self.check_table(table).map_err(|why| format!("table {}: {why}", table.id))?;
            owned += table.partitions.len();
        }
        if owned != self.partitions.len() {
            return Err("a partition belongs to no table".to_owned());
        }
        Ok(())
    }

    fn check_table(&self, table: &TableRecord) -> Result<(), String> {
        if table.step.0 > self.counters.version {
            return Err(format!("its step {} is yet to come", table.step.0));
        }
        if table.is_named() && self.database(table.database).is_none() {
            return Err(format!("its database {} does not exist", table.database));
        }
        table.schema.validate().map_err(|error| error.to_string())?;
        let mut previous = Bound::default();
        let mut last = None;
        for id in &table.partitions {
            let partition = self.partitions.get(id).ok_or(format!("partition {id} is missing"))?;
            if partition.table != table.id {
                return Err(format!("partition {id} belongs to table {}", partition.table));
            }
            if partition.replicas.is_empty() {
                return Err(format!("partition {id} has no replica"));
            }
            if partition.range.start != previous {
                return Err(format!("partition {id} does not start where the one before it ends"));
            }
            previous.clone_from(&partition.range.end);
            last = Some(&partition.range.end);
        }
        match last {
            Some(end) if *end == Bound::default() => Ok(()),
            Some(_) => Err("its last partition does not reach the end".to_owned()),
            None => Err("it has no partition".to_owned()),
        }
    }
}
