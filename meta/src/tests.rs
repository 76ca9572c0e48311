//! Tests of the crate as a whole, and the tools that they share.

mod access;
mod changes;
mod copies;
mod ddl;
mod forecasts;
mod generations;
mod group;
mod groups;
mod identities;
mod leaving;
mod loads;
mod members;
mod membership;
mod model;
mod nodes;
mod objects;
mod quiet;
mod rekey;
mod repartition;
mod reshape;
mod reshape_forms;
mod reshape_group;
mod reshape_storm;
mod reshaper;
mod restart;
mod sequences;
mod site;
mod stores;
mod tasks;
mod trio;
mod views;

use std::collections::BTreeSet;
use std::sync::Arc;

use partita_proto::catalog::Catalog;
use partita_proto::clock::Clock;
use partita_proto::error::Error;
use partita_proto::id::{BOOTSTRAP_ROLE, ColumnId, NodeId, PartitionId, SchemaVersion, TableId};
use partita_proto::placement::Placement;
use partita_proto::range::Bound;
use partita_proto::schema::{
    Column, ColumnType, MergeMode, Semantic, TableOptions, TableSchema, Unit,
};
use partita_proto::service::{Ddl, NewTable, TableChange};
use partita_proto::value::Value;

use crate::catalog::{Counters, Edit, Phase, State, Step, TableRecord, Work};
use crate::publish;
use crate::reshape::{Reshaping, Stage};
use crate::transition::{Command, Progress, Reply, decide, renewed_partitions};

/// A clock that stands still.
struct TestClock;

/// Time that the clock shows.
const NOW_MS: i64 = 1_700_000_000_000;

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        NOW_MS
    }
}

/// A simple column; the catalog assigns the id.
fn column(name: &str, column_type: ColumnType, semantic: Semantic) -> Column {
    Column {
        id: ColumnId(0),
        name: name.to_owned(),
        storage_name: name.to_owned(),
        column_type,
        nullable: semantic != Semantic::TimeIndex,
        semantic,
        default: None,
        generated: None,
        missing: None,
        length: None,
        json: None,
        indexes: Vec::new(),
        comment: None,
    }
}

fn field(name: &str) -> Column {
    column(name, ColumnType::Float64, Semantic::Field)
}

fn tag(name: &str) -> Column {
    column(name, ColumnType::String, Semantic::Tag)
}

/// A schema of these columns: tags, then the time index make the key.
fn schema(columns: Vec<Column>) -> TableSchema {
    let mut next = ColumnId(1);
    let mut columns = columns;
    for column in &mut columns {
        column.id = next;
        next = ColumnId(next.0 + 1);
    }
    let of = |semantic| columns.iter().filter(move |c| c.semantic == semantic).map(|c| c.id);
    let key = of(Semantic::Tag).chain(of(Semantic::TimeIndex)).collect();
    TableSchema {
        version: SchemaVersion(1),
        key,
        columns,
        options: TableOptions::default(),
        next_column: next,
        schema_on_write: false,
        checks: Vec::new(),
        view: None,
    }
}

/// (userid BIGINT tag, ts, value DOUBLE), which most tests use.
pub(crate) fn readings() -> TableSchema {
    schema(vec![
        column("userid", ColumnType::Int64, Semantic::Tag),
        column("ts", ColumnType::Timestamp(Unit::Millisecond, false), Semantic::TimeIndex),
        field("value"),
    ])
}

fn new_table(name: &str) -> NewTable {
    NewTable {
        database: "public".to_owned(),
        name: name.to_owned(),
        schema: readings(),
        placement: Placement::Range,
        cuts: vec![cut(&[Value::Int(100)]), cut(&[Value::Int(200), Value::Timestamp(5)])],
        owner: BOOTSTRAP_ROLE,
        copy_of: None,
        rekeys: false,
        sequences: Vec::new(),
    }
}

fn cut(key: &[Value]) -> Bound {
    Bound { placement: None, key: key.to_vec() }
}

fn create(table: NewTable) -> Ddl {
    Ddl::CreateTable { table: Box::new(table), if_not_exists: false }
}

fn create_database(name: &str) -> Ddl {
    let owner = BOOTSTRAP_ROLE;
    Ddl::CreateDatabase { name: name.to_owned(), if_not_exists: false, ttl: None, owner }
}

fn drop_table(name: &str) -> Ddl {
    Ddl::DropTable {
        database: "public".to_owned(),
        name: name.to_owned(),
        if_exists: false,
        cascade: false,
    }
}

fn alter(name: &str, change: TableChange) -> Ddl {
    Ddl::AlterTable { database: "public".to_owned(), name: name.to_owned(), change }
}

fn add(columns: Vec<Column>) -> TableChange {
    TableChange::AddColumns { columns, if_not_exists: false }
}

/// A catalog without disk, log or nodes; every step checks the invariants.
struct World {
    state: State,
    catalog: Catalog,
    commands: Vec<Command>,
}

impl World {
    fn new() -> Self {
        let mut state = State::empty();
        state.apply(&State::first_edits());
        let catalog = publish::catalog(&state).unwrap();
        Self { state, catalog, commands: Vec::new() }
    }

    /// Applies a command and its edits.
    fn command(&mut self, command: &Command) -> Result<Reply, Error> {
        let version = self.state.version();
        let decided = Command::decode(command.encode()).and_then(|read| decide(&self.state, &read));
        self.commands.push(command.clone());
        let outcome = decided?;
        publish::take_out(&mut self.catalog, &self.state, &outcome.edits);
        self.state.apply(&outcome.edits);
        publish::put_in(&mut self.catalog, &self.state, &outcome.edits).unwrap();
        self.state.check().unwrap();
        let edited = !outcome.edits.is_empty();
        // A repeated change gets the first answer and is not made again.
        let changed = matches!(outcome.reply, Reply::Changed { .. });
        let again = matches!(command, Command::Change { id: Some(_), .. });
        assert!(changed == edited || changed && again);
        assert_eq!(self.state.version(), version + u64::from(edited));
        assert_same(&self.catalog, &publish::catalog(&self.state).unwrap());
        Ok(outcome.reply)
    }

    fn change(&mut self, ddl: Ddl) -> Result<Reply, Error> {
        let partitions = new_partitions(&self.state, &ddl);
        let places = vec![vec![NodeId(1)]; partitions];
        self.command(&Command::Change { ddl, places, id: None, tables_max: None })
    }

    /// Finishes all pending steps, as if the nodes had carried them out.
    fn settle(&mut self) {
        loop {
            let Some(pending) = self.state.pending().next() else { return };
            let (table, step) = (pending.id, pending.step);
            let command = match (&pending.phase, pending.former) {
                (Phase::Creating, Some(_)) => Command::ReadAlong { table, step },
                _ => self.fence(pending).unwrap_or(Command::Finish { table, step }),
            };
            self.command(&command).unwrap();
        }
    }

    /// Raises the epoch of the next partition that must get another one in a pending table's step.
    fn fence(&self, pending: &TableRecord) -> Option<Command> {
        let (table, step) = (pending.id, pending.step);
        let former = self.state.table(pending.former?)?;
        let fenced = |one: &PartitionId| {
            let fenced = |command: &Command| matches!(command, Command::Fenced { partition, step: of, .. } if (partition, of) == (one, &step));
            self.commands.iter().any(fenced)
        };
        let free = |one: &&PartitionId| {
            self.state.partition(**one).is_some_and(|one| one.reshaping.is_none())
        };
        let partition = *former.partitions.iter().filter(free).find(|one| !fenced(one))?;
        let epoch = self.state.partition(partition)?.epoch.next();
        let succeeds = pending.phase == Phase::Altering(Work::Succeed);
        succeeds.then_some(Command::Fenced { table, step, partition, epoch })
    }

    /// Finishes all moves, as if the groups had made them.
    fn settle_moves(&mut self) {
        loop {
            let moving = self.state.moving().next();
            let target = moving.and_then(|one| Some((one.id, one.target.as_ref()?.step)));
            let Some((partition, step)) = target else { return };
            self.command(&Command::Moved { partition, step }).unwrap();
        }
    }

    /// Finishes all splits and merges, as if the groups had carried them out or aborted them.
    fn settle_reshapings(&mut self) {
        loop {
            self.settle_moves();
            let next = self.state.reshaping().find_map(|one| {
                let change = one.reshaping.as_ref()?;
                let progress = match change {
                    Reshaping::Split(split) if split.given_up => {
                        Progress::NotCut { epoch: one.epoch.next() }
                    }
                    Reshaping::Split(_) => Progress::Cut,
                    Reshaping::Merge(merge) => match merge.stage {
                        Stage::Gathering => Progress::Freezing,
                        Stage::Freezing => Progress::Frozen { index: 7 },
                        Stage::Frozen(_) if merge.given_up => {
                            Progress::NotAbsorbed { epoch: one.epoch.next() }
                        }
                        Stage::Frozen(_) => Progress::Absorbed,
                    },
                    Reshaping::Thawing { .. } => Progress::Thawed { epoch: one.epoch.next() },
                    Reshaping::Leaving { .. } => Progress::Left,
                    Reshaping::Joins { .. } => return None,
                };
                Some(Command::Advance { partition: one.id, step: change.step(), progress })
            });
            let Some(command) = next else { return };
            assert!(matches!(self.command(&command), Ok(Reply::Changed { .. })), "{command:?}");
            // A change of the database may have waited for it.
            self.settle();
        }
    }

    /// Makes a change and finishes all pending steps.
    fn done(&mut self, ddl: Ddl) -> Result<bool, Error> {
        let reply = self.change(ddl)?;
        self.settle();
        Ok(matches!(reply, Reply::Changed { .. }))
    }

    fn table(&self, name: &str) -> Arc<TableRecord> {
        let database = self.state.database_named("public").unwrap();
        Arc::clone(self.state.table_named(database.id, name).unwrap())
    }

    fn job(&self, name: &str) -> (TableId, Step) {
        let table = self.table(name);
        (table.id, table.step)
    }

    fn phase(&self, name: &str) -> Phase {
        self.table(name).phase.clone()
    }

    fn visible(&self, name: &str) -> bool {
        self.catalog.table("public", name).is_some()
    }
}

/// Number of partitions that a change creates.
fn new_partitions(state: &State, ddl: &Ddl) -> usize {
    match ddl.body() {
        Ddl::CreateTable { table, .. } => table.cuts.len() + 1,
        Ddl::AlterTable { change: TableChange::Repartition { cuts, .. }, .. } => cuts.len() + 1,
        _ => renewed_partitions(state, ddl).0,
    }
}

fn assert_same(a: &Catalog, b: &Catalog) {
    assert_eq!(a.version, b.version);
    assert_eq!(a.databases, b.databases);
    assert_eq!(a.access, b.access);
    assert_eq!(a.tasks, b.tasks);
    assert_eq!(a.sequences, b.sequences);
    let names = |catalog: &Catalog| -> BTreeSet<(String, String, TableId)> {
        let tables = catalog.tables.values().flat_map(|tables| tables.values());
        tables.map(|table| (table.database.clone(), table.name.clone(), table.id)).collect()
    };
    assert_eq!(names(a), names(b));
    for table in a.tables.values().flat_map(|tables| tables.values()) {
        let other = b.table(&table.database, &table.name).unwrap();
        assert_eq!(table.schema, other.schema);
        assert_eq!(table.placement, other.placement);
        assert_eq!(table.partitions, other.partitions);
        assert!(table.reads_as(other));
        assert_eq!(table.owner, other.owner);
        assert_eq!(table.copy, other.copy);
    }
}

fn invalid(result: Result<impl std::fmt::Debug, Error>) -> String {
    match result {
        Err(Error::InvalidInput(message)) => message,
        other => panic!("expected invalid input, got {other:?}"),
    }
}

/// The records of a state except those about meta's group: its leaderships and the directories of its members.
fn apart_from_leading(state: &State) -> Vec<Edit> {
    let counters = Counters { version: 0, ..state.counters() };
    let others = state.all_edits().into_iter();
    let of_itself =
        |edit: &Edit| matches!(edit, Edit::Counters(_) | Edit::Leadership(_) | Edit::Meta(..));
    let others = others.filter(|edit| !of_itself(edit));
    std::iter::once(Edit::Counters(counters)).chain(others).collect()
}
