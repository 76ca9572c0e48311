//! Makes the published catalog from meta's state.
//!
//! A new [`Catalog`] shares everything with the previous one except what a log entry changed, so publishing copies
//! a map of pointers instead of ten thousand partition maps.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::sync::Arc;

use partita_proto::catalog::{Catalog, Database, Table};
use partita_proto::error::Error;
use partita_proto::id::{DatabaseId, NodeId, SequenceId, TableId, TaskId};
use partita_proto::key::KeyCodec;
use partita_proto::placement::Placement;
use partita_proto::route::{PartitionMap, Route};
use partita_proto::schema::TableSchema;

use crate::catalog::{DatabaseRecord, Edit, PartitionRecord, Phase, State, TableRecord, Work};

/// Publishes the whole catalog.
///
/// # Errors
/// If a table's key or partition map cannot be built: the catalog is broken.
pub(crate) fn catalog(state: &State) -> Result<Catalog, Error> {
    let access = Arc::new(state.access().clone());
    let entries = state.tasks().filter_map(|task| Some((task.id, Arc::new(state.task(task.id)?))));
    let tasks = Arc::new(entries.collect());
    let sequences = state.sequences().map(|sequence| (sequence.id, Arc::clone(sequence)));
    let sequences = Arc::new(sequences.collect());
    let version = state.version();
    let mut catalog = Catalog { version, access, tasks, sequences, ..Catalog::default() };
    for record in state.databases() {
        put_database(&mut catalog, record);
    }
    for record in state.tables().filter(|record| record.is_published()) {
        put_table(&mut catalog, state, record)?;
    }
    Ok(catalog)
}

/// Removes the databases and tables that edits are about to change; `state` is from before the edits.
pub(crate) fn take_out(catalog: &mut Catalog, state: &State, edits: &[Edit]) {
    let touched = Touched::new(edits);
    for id in &touched.databases {
        if let Some(record) = state.database(*id) {
            catalog.databases.remove(&record.name);
        }
    }
    for id in &touched.tables {
        if let Some(record) = state.table(*id).filter(|record| record.is_published()) {
            remove_table(catalog, state, record);
        }
    }
}

/// Adds the databases and tables that edits have changed; `state` is from after the edits.
///
/// # Errors
/// As [`catalog`].
pub(crate) fn put_in(catalog: &mut Catalog, state: &State, edits: &[Edit]) -> Result<(), Error> {
    catalog.version = state.version();
    if edits.iter().any(Edit::is_access) {
        catalog.access = Arc::new(state.access().clone());
    }
    let touched = Touched::new(edits);
    if !touched.tasks.is_empty() {
        let tasks = Arc::make_mut(&mut catalog.tasks);
        for id in &touched.tasks {
            match state.task(*id) {
                Some(entry) => drop(tasks.insert(*id, Arc::new(entry))),
                None => drop(tasks.remove(id)),
            }
        }
    }
    if !touched.sequences.is_empty() {
        let sequences = Arc::make_mut(&mut catalog.sequences);
        for id in &touched.sequences {
            match state.sequence(*id) {
                Some(sequence) => drop(sequences.insert(*id, Arc::clone(sequence))),
                None => drop(sequences.remove(id)),
            }
        }
    }
    for id in &touched.databases {
        if let Some(record) = state.database(*id) {
            put_database(catalog, record);
        }
    }
    for id in &touched.tables {
        if let Some(record) = state.table(*id).filter(|record| record.is_published()) {
            put_table(catalog, state, record)?;
        }
    }
    Ok(())
}

#[derive(Default)]
struct Touched {
    databases: BTreeSet<DatabaseId>,
    tables: BTreeSet<TableId>,
    tasks: BTreeSet<TaskId>,
    sequences: BTreeSet<SequenceId>,
}

impl Touched {
    fn new(edits: &[Edit]) -> Self {
        let mut touched = Self::default();
        for edit in edits {
            match edit {
                Edit::Database(record) => drop(touched.databases.insert(record.id)),
                Edit::DatabaseGone(id) => drop(touched.databases.insert(*id)),
                Edit::Table(record) => drop(touched.tables.insert(record.id)),
                Edit::TableGone(id) => drop(touched.tables.insert(*id)),
                Edit::Partition(record) => drop(touched.tables.insert(record.table)),
                Edit::Task(task) => drop(touched.tasks.insert(task.id)),
                Edit::TaskState(state) => drop(touched.tasks.insert(state.task)),
                Edit::TaskGone(id) | Edit::TaskStateGone(id) => drop(touched.tasks.insert(*id)),
                Edit::Sequence(sequence) => drop(touched.sequences.insert(sequence.id)),
                Edit::SequenceGone(id) => drop(touched.sequences.insert(*id)),
                // The edits that remove a partition also remove its table, or change that table's list of partitions.
                // The others concern no table, database, task or sequence.
                Edit::PartitionGone(_)
                | Edit::Counters(_)
                | Edit::Node(_)
                | Edit::NodeGone(_)
                | Edit::Removed(..)
                | Edit::Cluster(_)
                | Edit::Leadership(_)
                | Edit::LeadershipGone(_)
                | Edit::Meta(..)
                | Edit::Role(_)
                | Edit::RoleGone(_)
                | Edit::Grant(_)
                | Edit::GrantGone(_)
                | Edit::Org(_)
                | Edit::OrgGone(_)
                | Edit::Token(_)
                | Edit::TokenGone(_)
                | Edit::Secrets(_)
                | Edit::Remember(..) => {}
            }
        }
        touched
    }
}

fn put_database(catalog: &mut Catalog, record: &DatabaseRecord) {
    let DatabaseRecord { id, name, ttl, owner, explicit, comment } = record.clone();
    let database = Database { id, name, ttl, owner, explicit, comment };
    catalog.databases.insert(record.name.clone(), Arc::new(database));
}

fn remove_table(catalog: &mut Catalog, state: &State, record: &TableRecord) {
    let Some(database) = state.database(record.database) else { return };
    if let Some(tables) = catalog.tables.get_mut(&database.name) {
        tables.remove(&record.name);
        if tables.is_empty() {
            catalog.tables.remove(&database.name);
        }
    }
}

fn put_table(catalog: &mut Catalog, state: &State, record: &TableRecord) -> Result<(), Error> {
    let database = state.database(record.database).ok_or_else(|| {
        Error::Internal(format!(
            "table {} is in database {}, which does not exist",
            record.id, record.database
        ))
    })?;
    let map = partition_map(
        &record.schema,
        &record.placement,
        state.partitions_of(record).map(Arc::as_ref),
    )?;
    let table = Table {
        id: record.id,
        database: database.name.clone(),
        name: record.name.clone(),
        schema: Arc::clone(&record.schema),
        placement: record.placement.clone(),
        partitions: Arc::new(map),
        // Hidden until all partitions of the former table have a new epoch: until then rows are written to that table.
        former: record.former.filter(|_| record.phase != Phase::Altering(Work::Succeed)),
        succeeded_by: record.succeeded_by,
        owner: record.owner,
        copy: record.copy.clone(),
    };
    let tables = catalog.tables.entry(database.name.clone()).or_default();
    tables.insert(record.name.clone(), Arc::new(table));
    Ok(())
}

/// Builds the partition map of a schema.
///
/// # Errors
/// If the partitions do not tile the key space, or do not fit the key.
pub(crate) fn partition_map(
    schema: &TableSchema,
    placement: &Placement,
    partitions: impl IntoIterator<Item = impl Borrow<PartitionRecord>>,
) -> Result<PartitionMap, Error> {
    if schema.view.is_some() {
        return Ok(PartitionMap::none());
    }
    let codec = KeyCodec::new(schema, placement)?;
    let routes = partitions.into_iter().map(|partition| route(&codec, partition.borrow()));
    PartitionMap::new(routes.collect::<Result<_, _>>()?)
}

fn route(codec: &KeyCodec, partition: &PartitionRecord) -> Result<Route, Error> {
    Ok(Route {
        partition: partition.id,
        range: partition.range.clone(),
        keys: codec.range(&partition.range)?,
        epoch: partition.epoch,
        replicas: partition.replicas.clone(),
        leader: likely_leader(partition),
    })
}

/// The node that clients ask first: the only one, or the one that led the partition first. Otherwise they find out.
fn likely_leader(partition: &PartitionRecord) -> Option<NodeId> {
    let mut nodes = partition.replicas.values().copied();
    let only = nodes.next().filter(|_| nodes.next().is_none());
    only.or_else(|| {
        let first = partition.first_leader;
        first.filter(|node| partition.replicas.values().any(|holder| holder == node))
    })
}
