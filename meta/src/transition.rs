//! What a command does to the catalog: a pure function from state and command to edits. It decides
//! the same on every replica and at every replay, so it sees no clock, no node and no chance; what
//! needs those (which nodes get a new table) is in the command.
//!
//! Invariants: a refused command changes nothing; a command that changes something raises the
//! version by one; ids are taken from the counters here and nowhere else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use partita_proto::catalog::DEFAULT_DATABASE;
use partita_proto::error::Error;
use partita_proto::id::{ColumnId, DatabaseId, Epoch, NodeId, PartitionId, ReplicaId, TableId};
use partita_proto::range::TypedRange;
use partita_proto::schema::{TableSchema, validate_name};
use partita_proto::service::{Ddl, NewTable, TableChange};

use crate::alter::altered;
use crate::catalog::{
    Counters, DatabaseRecord, Edit, PartitionRecord, Phase, State, Step, TableRecord, Work,
};
use crate::create::{CheckedTable, check_table, check_ttl};
use crate::publish::partition_map;

/// Databases that a catalog may hold. A bound, not a measured limit.
const DATABASES_MAX: usize = 1000;
/// Tables that a catalog may hold, those being dropped included: what every frontend keeps in memory
/// and meta rebuilds at a start.
const TABLES_MAX: usize = 10_000;
/// Names of schemas that the SQL layer makes up.
const RESERVED_DATABASES: [&str; 3] = ["information_schema", "pg_catalog", "sys"];

/// An entry of meta's log.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// Somebody's wish.
    Change {
        /// What is to change.
        ddl: Ddl,
        /// For a new table: the node of each partition.
        nodes: Vec<NodeId>,
    },
    /// All nodes have carried out what a table's step asked of them.
    Finish {
        /// The table.
        table: TableId,
        /// Its step.
        step: Step,
    },
    /// A table could not be made and is to go again.
    Abort {
        /// The table.
        table: TableId,
        /// Its step.
        step: Step,
    },
}

/// What became of a command that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// There was nothing to do.
    Unchanged,
    /// It is recorded.
    Changed {
        /// The work that follows from it.
        steps: Vec<(TableId, Step)>,
    },
    /// The table is in the middle of another change; try again after that.
    Busy {
        /// The table.
        table: TableId,
        /// The step to wait for.
        step: Step,
    },
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) edits: Vec<Edit>,
    pub(crate) reply: Reply,
}

impl Outcome {
    fn without_edits(reply: Reply) -> Self {
        Self { edits: Vec::new(), reply }
    }
}

/// Decides a command.
///
/// # Errors
/// What the one who sent it is told; the state stays as it is.
pub(crate) fn decide(state: &State, command: &Command) -> Result<Outcome, Error> {
    match command {
        Command::Change { ddl, nodes } => change(state, ddl, nodes),
        Command::Finish { table, step } => Ok(finish(state, *table, *step)),
        Command::Abort { table, step } => Ok(abort(state, *table, *step)),
    }
}

fn change(state: &State, ddl: &Ddl, nodes: &[NodeId]) -> Result<Outcome, Error> {
    match ddl {
        Ddl::CreateDatabase { name, if_not_exists, ttl } => {
            create_database(state, name, *if_not_exists, *ttl)
        }
        Ddl::AlterDatabase { name, ttl } => alter_database(state, name, *ttl),
        Ddl::DropDatabase { name, if_exists } => drop_database(state, name, *if_exists),
        Ddl::CreateTable { table, if_not_exists } => {
            create_table(state, table, *if_not_exists, nodes)
        }
        Ddl::DropTable { database, name, if_exists } => {
            drop_table(state, database, name, *if_exists)
        }
        Ddl::TruncateTable { database, name } => truncate_table(state, database, name),
        Ddl::AlterTable { database, name, change } => alter_table(state, database, name, change),
    }
}

/// Edits in the making.
struct Draft<'a> {
    state: &'a State,
    counters: Counters,
    edits: Vec<Edit>,
    steps: Vec<(TableId, Step)>,
}

impl<'a> Draft<'a> {
    fn new(state: &'a State) -> Self {
        let mut counters = state.counters();
        counters.version += 1;
        Self { state, counters, edits: Vec::new(), steps: Vec::new() }
    }

    fn step(&self) -> Step {
        Step(self.counters.version)
    }

    fn new_database(&mut self) -> DatabaseId {
        let id = self.counters.database;
        self.counters.database = DatabaseId(id.0 + 1);
        id
    }

    fn new_table(&mut self) -> TableId {
        let id = self.counters.table;
        self.counters.table = TableId(id.0 + 1);
        id
    }

    fn new_partition(&mut self) -> PartitionId {
        let id = self.counters.partition;
        self.counters.partition = PartitionId(id.0 + 1);
        id
    }

    fn new_replica(&mut self) -> ReplicaId {
        let id = self.counters.replica;
        self.counters.replica = ReplicaId(id.0 + 1);
        id
    }

    /// Brings a table into a phase.
    fn enter(&mut self, mut table: TableRecord, phase: Phase) {
        table.phase = phase;
        table.step = self.step();
        if table.is_pending() {
            self.steps.push((table.id, table.step));
        }
        self.edits.push(Edit::Table(Arc::new(table)));
    }

    /// Starts to tell a table's partitions of a schema.
    fn tell(&mut self, mut table: TableRecord, schema: TableSchema) {
        table.told_ttl = self.state.ttl(table.database, &schema);
        self.enter(table, Phase::Altering(Work::Schema(Arc::new(schema))));
    }

    /// Ends a table's work; unless its database's `ttl` has changed meanwhile, it is ready then.
    fn settle(&mut self, table: TableRecord) {
        if self.state.ttl(table.database, &table.schema) == table.told_ttl {
            self.enter(table, Phase::Ready);
        } else {
            let schema = next_version(&table.schema);
            self.tell(table, schema);
        }
    }

    fn done(mut self) -> Outcome {
        self.edits.push(Edit::Counters(self.counters));
        Outcome { edits: self.edits, reply: Reply::Changed { steps: self.steps } }
    }
}

fn next_version(schema: &TableSchema) -> TableSchema {
    TableSchema { version: schema.version.next(), ..schema.clone() }
}

fn create_database(
    state: &State,
    name: &str,
    if_not_exists: bool,
    ttl: Option<Duration>,
) -> Result<Outcome, Error> {
    validate_name("database", name)?;
    check_ttl(ttl)?;
    if RESERVED_DATABASES.iter().any(|reserved| reserved.eq_ignore_ascii_case(name)) {
        return Err(Error::InvalidInput(format!("database name \"{name}\" is reserved")));
    }
    if state.database_named(name).is_some() {
        if if_not_exists {
            return Ok(Outcome::without_edits(Reply::Unchanged));
        }
        return Err(Error::AlreadyExists { kind: "database", name: name.to_owned() });
    }
    if state.databases().count() >= DATABASES_MAX {
        return Err(Error::InvalidInput(format!(
            "there are {DATABASES_MAX} databases, which is the limit"
        )));
    }
    let mut draft = Draft::new(state);
    let id = draft.new_database();
    let record = DatabaseRecord { id, name: name.to_owned(), ttl };
    draft.edits.push(Edit::Database(Arc::new(record)));
    Ok(draft.done())
}

fn alter_database(state: &State, name: &str, ttl: Option<Duration>) -> Result<Outcome, Error> {
    check_ttl(ttl)?;
    let old = database(state, name)?;
    if old.ttl == ttl {
        return Ok(Outcome::without_edits(Reply::Unchanged));
    }
    let record = Edit::Database(Arc::new(DatabaseRecord { ttl, ..DatabaseRecord::clone(old) }));
    let mut after = state.clone();
    after.apply(std::slice::from_ref(&record));
    // Decided against the state with the new ttl. Tables in the middle of another change find out
    // when they settle.
    let mut draft = Draft::new(&after);
    draft.edits.push(record);
    for table in after.tables_of(old.id).filter(|table| table.phase == Phase::Ready) {
        draft.settle_if_told_otherwise(table);
    }
    Ok(draft.done())
}

impl Draft<'_> {
    fn settle_if_told_otherwise(&mut self, table: &TableRecord) {
        if self.state.ttl(table.database, &table.schema) != table.told_ttl {
            self.settle(table.clone());
        }
    }
}

fn drop_database(state: &State, name: &str, if_exists: bool) -> Result<Outcome, Error> {
    if name == DEFAULT_DATABASE {
        return Err(Error::InvalidInput(format!(
            "database \"{DEFAULT_DATABASE}\" is the default database and cannot be dropped"
        )));
    }
    let record = match database(state, name) {
        Ok(record) => record,
        Err(Error::NotFound { .. }) if if_exists => {
            return Ok(Outcome::without_edits(Reply::Unchanged));
        }
        Err(error) => return Err(error),
    };
    let mut draft = Draft::new(state);
    for table in state.tables_of(record.id) {
        draft.enter(TableRecord::clone(table), Phase::Dropping);
    }
    draft.edits.push(Edit::DatabaseGone(record.id));
    Ok(draft.done())
}

fn create_table(
    state: &State,
    new: &NewTable,
    if_not_exists: bool,
    nodes: &[NodeId],
) -> Result<Outcome, Error> {
    let database = database(state, &new.database)?;
    if let Some(table) = state.table_named(database.id, &new.name) {
        if table.phase == Phase::Creating {
            return Ok(busy(table));
        }
        if if_not_exists {
            return Ok(Outcome::without_edits(Reply::Unchanged));
        }
        let name = shown_name(&new.database, &new.name);
        return Err(Error::AlreadyExists { kind: "table", name });
    }
    let CheckedTable { schema, ranges } = check_table(new)?;
    if state.table_count() >= TABLES_MAX {
        return Err(Error::InvalidInput(format!(
            "there are {TABLES_MAX} tables, which is the limit"
        )));
    }
    if nodes.len() != ranges.len() {
        return Err(Error::Internal(format!(
            "{} nodes were chosen for {} partitions",
            nodes.len(),
            ranges.len()
        )));
    }
    let mut draft = Draft::new(state);
    let id = draft.new_table();
    let mut partitions = Vec::with_capacity(ranges.len());
    for (range, node) in ranges.into_iter().zip(nodes) {
        let partition = PartitionRecord {
            id: draft.new_partition(),
            table: id,
            range,
            epoch: Epoch(1),
            replicas: BTreeMap::from([(draft.new_replica(), *node)]),
        };
        partitions.push(partition.id);
        draft.edits.push(Edit::Partition(Arc::new(partition)));
    }
    let told_ttl = state.ttl(database.id, &schema);
    let table = TableRecord {
        id,
        database: database.id,
        name: new.name.clone(),
        phase: Phase::Creating,
        step: draft.step(),
        schema: Arc::new(schema),
        placement: new.placement.clone(),
        dropped_names: std::collections::BTreeSet::new(),
        told_ttl,
        partitions,
    };
    draft.enter(table, Phase::Creating);
    Ok(draft.done())
}

fn drop_table(
    state: &State,
    database: &str,
    name: &str,
    if_exists: bool,
) -> Result<Outcome, Error> {
    let table = match table(state, database, name) {
        Ok(table) => table,
        Err(Error::NotFound { .. }) if if_exists => {
            return Ok(Outcome::without_edits(Reply::Unchanged));
        }
        Err(error) => return Err(error),
    };
    // A table that is being altered may go: that is the way out when a node cannot be told.
    if table.phase == Phase::Creating {
        return Ok(busy(table));
    }
    let mut draft = Draft::new(state);
    draft.enter(TableRecord::clone(table), Phase::Dropping);
    Ok(draft.done())
}

fn truncate_table(state: &State, database: &str, name: &str) -> Result<Outcome, Error> {
    let table = table(state, database, name)?;
    if table.is_pending() {
        return Ok(busy(table));
    }
    let mut draft = Draft::new(state);
    draft.enter(TableRecord::clone(table), Phase::Altering(Work::Truncate));
    Ok(draft.done())
}

fn alter_table(
    state: &State,
    database: &str,
    name: &str,
    change: &TableChange,
) -> Result<Outcome, Error> {
    let table = table(state, database, name)?;
    if table.is_pending() {
        return Ok(busy(table));
    }
    if let TableChange::Rename(to) = change {
        return rename_table(state, database, table, to);
    }
    let Some(altered) = altered(table, change)? else {
        return Ok(Outcome::without_edits(Reply::Unchanged));
    };
    // What cannot be published must not get into the log.
    let partitions = rekeyed_partitions(state, table, &altered.schema);
    partition_map(&altered.schema, &table.placement, partitions)?;
    let mut draft = Draft::new(state);
    let dropped_names = altered.dropped_names;
    draft.tell(TableRecord { dropped_names, ..TableRecord::clone(table) }, altered.schema);
    Ok(draft.done())
}

/// Renames a table. Nodes know tables by id: nobody has to be told.
fn rename_table(
    state: &State,
    database: &str,
    table: &TableRecord,
    to: &str,
) -> Result<Outcome, Error> {
    validate_name("table", to)?;
    if let Some(other) = state.table_named(table.database, to) {
        if other.phase == Phase::Creating {
            return Ok(busy(other));
        }
        return Err(Error::AlreadyExists { kind: "table", name: shown_name(database, to) });
    }
    let mut draft = Draft::new(state);
    draft.enter(TableRecord { name: to.to_owned(), ..table.clone() }, Phase::Ready);
    Ok(draft.done())
}

fn finish(state: &State, table: TableId, step: Step) -> Outcome {
    let Some(record) = state.table(table).filter(|record| record.step == step) else {
        return Outcome::without_edits(Reply::Unchanged);
    };
    let mut draft = Draft::new(state);
    match &record.phase {
        Phase::Ready => return Outcome::without_edits(Reply::Unchanged),
        Phase::Creating | Phase::Altering(Work::Truncate) => {
            draft.settle(TableRecord::clone(record));
        }
        Phase::Altering(Work::Schema(schema)) => {
            if schema.key != record.schema.key {
                let partitions = rekeyed_partitions(state, record, schema).map(Arc::new);
                draft.edits.extend(partitions.map(Edit::Partition));
            }
            let schema = Arc::clone(schema);
            draft.settle(TableRecord { schema, ..TableRecord::clone(record) });
        }
        Phase::Dropping => {
            let partitions = record.partitions.iter().copied().map(Edit::PartitionGone);
            draft.edits.extend(partitions);
            draft.edits.push(Edit::TableGone(table));
        }
    }
    draft.done()
}

/// A table's partitions under a schema with more key columns.
fn rekeyed_partitions<'a>(
    state: &'a State,
    table: &'a TableRecord,
    schema: &'a TableSchema,
) -> impl Iterator<Item = PartitionRecord> + 'a {
    state.partitions_of(table).map(|partition| {
        let range = rekeyed(&partition.range, &table.schema.key, &schema.key);
        PartitionRecord { range, ..PartitionRecord::clone(partition) }
    })
}

/// A range after columns have been added to the key.
fn rekeyed(range: &TypedRange, old: &[ColumnId], new: &[ColumnId]) -> TypedRange {
    let added = new.iter().enumerate().filter(|(_, id)| !old.contains(id));
    added.fold(range.clone(), |range, (position, _)| range.with_key_column(position))
}

fn abort(state: &State, table: TableId, step: Step) -> Outcome {
    match state.table(table) {
        Some(record) if record.step == step && record.phase == Phase::Creating => {
            let mut draft = Draft::new(state);
            draft.enter(TableRecord::clone(record), Phase::Dropping);
            draft.done()
        }
        Some(_) | None => Outcome::without_edits(Reply::Unchanged),
    }
}

fn busy(table: &TableRecord) -> Outcome {
    Outcome::without_edits(Reply::Busy { table: table.id, step: table.step })
}

fn database<'a>(state: &'a State, name: &str) -> Result<&'a Arc<DatabaseRecord>, Error> {
    state
        .database_named(name)
        .ok_or_else(|| Error::NotFound { kind: "database", name: name.to_owned() })
}

fn table<'a>(
    state: &'a State,
    database_name: &str,
    name: &str,
) -> Result<&'a Arc<TableRecord>, Error> {
    let database = database(state, database_name)?;
    state
        .table_named(database.id, name)
        .ok_or_else(|| Error::NotFound { kind: "table", name: shown_name(database_name, name) })
}

/// A table's name as its user would write it.
pub(crate) fn shown_name(database: &str, name: &str) -> String {
    if database == DEFAULT_DATABASE { name.to_owned() } else { format!("{database}.{name}") }
}
