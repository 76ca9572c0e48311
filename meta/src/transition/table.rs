//! Commands on tables: each moves its table into a phase in which nodes get orders, except a rename, which
//! concerns no node.

use std::collections::BTreeSet;
use std::sync::Arc;

use partita_proto::catalog::DEFAULT_DATABASE;
use partita_proto::error::Error;
use partita_proto::id::{ColumnId, Epoch, NodeId, PartitionId, TableId};
use partita_proto::range::TypedRange;
use partita_proto::schema::{TableSchema, validate_name};
use partita_proto::service::{NewTable, TableChange};

use super::copy::{CheckedNew, check_alter, check_copy, has_copies, is_copy};
use super::database::database;
use super::draft::{Draft, Outcome, Reply, check_owner, next_version};
use super::rekey::{check_no_retired, check_not_switching};
use super::repartition::{check_change, fencing, former, in_succession, repartition};
use super::view;
use crate::alter::{Altered, altered};
use crate::catalog::{DatabaseRecord, Edit, PartitionRecord, Phase, State, TableRecord, Work};
use crate::create::{CheckedTable, check_table};
use crate::publish::partition_map;

/// Maximum tables, including those being dropped: every frontend keeps them in memory, and meta rebuilds them at a
/// start.
const TABLES_MAX: usize = 10_000;

/// Checks that one more table is allowed.
pub(super) fn check_room(state: &State) -> Result<(), Error> {
    if state.table_count() < TABLES_MAX {
        return Ok(());
    }
    Err(Error::InvalidInput(format!("there are {TABLES_MAX} tables, which is the limit")))
}

/// Checks that no sequence has the name of a new table.
fn check_free_name(state: &State, database: &DatabaseRecord, name: &str) -> Result<(), Error> {
    if !state.is_sequence(database.id, name) {
        return Ok(());
    }
    Err(Error::AlreadyExists { kind: "table", name: shown_name(&database.name, name) })
}

/// Checks that the database may have one more table: line protocol creates a table for every name that it receives.
fn check_count(
    state: &State,
    database: &DatabaseRecord,
    tables_max: Option<u32>,
) -> Result<(), Error> {
    let Some(tables_max) = tables_max else { return Ok(()) };
    if state.tables_of(database.id).count() < tables_max as usize {
        return Ok(());
    }
    Err(Error::LimitReached {
        message: format!(
            "database \"{}\" has {tables_max} tables, which is the limit",
            database.name
        ),
        hint: "Drop tables, use another database, or start meta (or the standalone server) with a larger --tables-per-database."
            .to_owned(),
    })
}

pub(super) fn create_table(
    state: &State,
    new: &NewTable,
    if_not_exists: bool,
    places: &[Vec<NodeId>],
    tables_max: Option<u32>,
) -> Result<Outcome, Error> {
    let database = database(state, &new.database)?;
    // A name that is taken, or is about to be.
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
    // Line protocol makes tables that more columns may be added to.
    if database.explicit && new.schema.schema_on_write {
        return Err(Error::InvalidInput(format!(
            "measurement \"{}\" not allowed by schema",
            new.name
        )));
    }
    check_free_name(state, database, &new.name)?;
    if let Some(busy) = new.copy_of.and_then(|source| in_change_or_succession(state, source)) {
        return Ok(busy);
    }
    let CheckedNew { schema, dropped_names, ranges, copy } = match new.copy_of {
        Some(source) => check_copy(state, database, new, source)?,
        None => {
            let CheckedTable { schema, ranges } = check_table(new)?;
            CheckedNew { schema, dropped_names: BTreeSet::new(), ranges, copy: None }
        }
    };
    let places: &[Vec<NodeId>] = match &schema.view {
        Some(definition) => {
            view::check_reads(state, definition, None)?;
            &[]
        }
        None => places,
    };
    check_room(state)?;
    check_count(state, database, tables_max)?;
    check_owner(state, new.owner)?;
    // The table begins with all its partitions, and is published when its replicas are open.
    let mut draft = Draft::new(state);
    let id = draft.new_table();
    // A copy keeps its partitions, unless it takes the place of its source.
    let by_hand = new.copy_of.is_none() || new.rekeys;
    let partitions = draft.new_partitions(id, ranges, places, by_hand)?;
    let ordered_ttl = state.ttl(database.id, &schema);
    let table = TableRecord {
        id,
        database: database.id,
        name: new.name.clone(),
        phase: Phase::Creating,
        step: draft.step(),
        schema: Arc::new(schema),
        placement: new.placement.clone(),
        dropped_names,
        ordered_ttl,
        partitions,
        former: None,
        succeeded_by: None,
        owner: new.owner,
        copy: copy.map(Arc::new),
    };
    draft.create_sequences(&table, &new.sequences)?;
    draft.enter(table, Phase::Creating);
    Ok(draft.done())
}

impl Draft<'_> {
    /// The partitions of a new table, one for each range, on the nodes chosen for it. `by_hand`: an operator chose the
    /// boundaries; those of buckets and rules are kept apart for what they are.
    pub(super) fn new_partitions(
        &mut self,
        table: TableId,
        ranges: Vec<TypedRange>,
        places: &[Vec<NodeId>],
        by_hand: bool,
    ) -> Result<Vec<PartitionId>, Error> {
        if places.len() != ranges.len() {
            return Err(Error::Internal(format!(
                "nodes were chosen for {} partitions instead of {}",
                places.len(),
                ranges.len()
            )));
        }
        // The nodes were chosen before this entry was applied.
        let mut nodes = places.iter().flatten();
        if let Some(removed) = nodes.find(|node| self.state.is_removed(**node)) {
            return Err(Error::Unavailable(format!("node {removed} was removed meanwhile")));
        }
        let mut partitions = Vec::with_capacity(ranges.len());
        for (range, nodes) in ranges.into_iter().zip(places) {
            let is_cut_by_hand = by_hand && !range.start.key.is_empty();
            let partition = PartitionRecord {
                id: self.new_partition(),
                table,
                range,
                epoch: Epoch(1),
                replicas: nodes.iter().map(|node| (self.new_replica(), *node)).collect(),
                target: None,
                reshaping: None,
                first_leader: None,
                cut_by_hand_ms: is_cut_by_hand.then_some(0),
            };
            partitions.push(partition.id);
            self.edits.push(Edit::Partition(Arc::new(partition)));
        }
        Ok(partitions)
    }
}

pub(super) fn drop_table(
    state: &State,
    database: &str,
    name: &str,
    if_exists: bool,
    cascade: bool,
) -> Result<Outcome, Error> {
    let table = match table(state, database, name) {
        Ok(table) => table,
        Err(Error::NotFound { .. }) if if_exists => {
            return Ok(Outcome::without_edits(Reply::Unchanged));
        }
        Err(error) => return Err(error),
    };
    // A table being altered can be dropped: the way out if a node cannot be reached.
    if !table.is_published() || table.phase == Phase::Altering(Work::Succeed) {
        return Ok(busy(table));
    }
    // The same for a table whose partitions get new epochs; before that, its successor may turn out to be
    // impossible.
    let next = fencing(state, table);
    if let Some(busy) = in_succession(state, table).filter(|_| next.is_none()) {
        return Ok(busy);
    }
    // A retired copy goes by itself, when it has answered the last writes.
    if table.copy.is_some() {
        check_not_switching(state, table)?;
    }
    let copies: Vec<_> = state.dependents_of(table.id).collect();
    // A re-keying is a part of the table.
    if !copies.iter().all(|copy| copy.is_rekeying()) && !cascade {
        return Err(has_copies(table));
    }
    let views = view::dependent_views(state, table);
    if let Some(view) = views.first().filter(|_| !cascade) {
        return Err(view::has_views("drop", &format!("\"{}\"", table.name), view));
    }
    if let Some(pending) = views.iter().find(|view| view.is_pending()) {
        return Ok(busy(pending));
    }
    let mut draft = Draft::new(state);
    draft.forget_former(table.id);
    draft.enter(TableRecord { former: None, ..TableRecord::clone(table) }, Phase::Dropping);
    if let Some(former) = former(state, table) {
        draft.enter(TableRecord::clone(former), Phase::Dropping);
    }
    if let Some(next) = next {
        draft.enter(TableRecord { former: None, ..TableRecord::clone(next) }, Phase::Dropping);
    }
    for dependent in copies.into_iter().chain(views) {
        draft.enter(TableRecord::clone(dependent), Phase::Dropping);
    }
    Ok(draft.done())
}

pub(super) fn truncate_table(
    state: &State,
    database: &str,
    name: &str,
    places: &[Vec<NodeId>],
) -> Result<Outcome, Error> {
    let table = table(state, database, name)?;
    if table.copy.is_some() {
        return Err(is_copy(table));
    }
    check_not_switching(state, table)?;
    if table.schema.view.is_some() {
        return Err(Error::InvalidInput(format!("\"{}\" is not a table", table.name)));
    }
    let former = former(state, table);
    let waits = in_change(state, table).or_else(|| in_change(state, former?));
    if let Some(waits) = waits.or_else(|| in_succession(state, table)) {
        return Ok(waits);
    }
    let copies: Vec<_> = state.copies_of(table.id).collect();
    if let Some(creating) = copies.iter().find(|copy| copy.phase == Phase::Creating) {
        return Ok(busy(creating));
    }
    let mut draft = Draft::new(state);
    // A copy without the truncation would keep rows that its source has lost.
    let mut places = places;
    for record in copies {
        if let Some(copy) = &record.copy {
            draft.renew_copy(record, copy, None, &mut places)?;
        }
    }
    // Nobody waits for the new copies: they are to be filled in any case.
    draft.steps.clear();
    for table in std::iter::once(table).chain(former) {
        draft.enter(TableRecord::clone(table), Phase::Altering(Work::Truncate));
    }
    Ok(draft.done())
}

pub(super) fn alter_table(
    state: &State,
    database: &str,
    name: &str,
    change: &TableChange,
    places: &[Vec<NodeId>],
) -> Result<Outcome, Error> {
    let table = table(state, database, name)?;
    if table.is_pending() {
        return Ok(busy(table));
    }
    if let Some(busy) = in_succession(state, table) {
        return Ok(busy);
    }
    if let TableChange::TakePlace(replaced) = change {
        return take_place(state, table, *replaced);
    }
    // The checks below are about all the options that the table is to have.
    if let TableChange::ChangeOptions { base, next } = change {
        let change = TableChange::SetOptions(Box::new(table.schema.options.merged(base, next)));
        return alter_table(state, database, name, &change, places);
    }
    check_alter(state, table, change)?;
    if !matches!(change, TableChange::Rename(_)) {
        check_not_switching(state, table)?;
    }
    if matches!(change, TableChange::Repartition { .. }) {
        check_no_retired(state, table)?;
    }
    view::check_change(state, table, change)?;
    if let TableChange::Repartition { placement, cuts } = change {
        return repartition(state, table, placement, cuts, places);
    }
    check_change(state, table, change)?;
    if let TableChange::Rename(new_name) = change {
        return rename_table(state, database, table, new_name);
    }
    if let Some(busy) = in_change(state, table) {
        return Ok(busy);
    }
    let Some(changed) = altered(table, change)? else {
        return Ok(Outcome::without_edits(Reply::Unchanged));
    };
    check_published(state, table, &changed.schema)?;
    let mut draft = Draft::new(state);
    // Copies have the columns, options and indexes of their source.
    for copy in state.copies_of(table.id) {
        if let Some(busy) = in_change(state, copy) {
            return Ok(busy);
        }
        if let Some(altered) = altered(copy, change)? {
            check_published(state, copy, &altered.schema)?;
            draft.tell_altered(copy, altered);
        }
    }
    // The columns, options and indexes of a table hold for the rows of its former table too.
    if let Some(former) = former(state, table)
        && let Some(altered) = altered_former(table, former, change)?
    {
        view::check_change(state, former, change)?;
        if let Some(busy) = in_change(state, former) {
            return Ok(busy);
        }
        check_published(state, former, &altered.schema)?;
        draft.tell_altered(former, altered);
    }
    // The sequence of a column goes with it.
    if let TableChange::DropColumn(name) = change
        && let Some(column) = table.schema.column(name)
    {
        draft.drop_sequences_of(table.id, Some(column.id));
    }
    draft.tell_altered(table, changed);
    Ok(draft.done())
}

/// Checks that a schema can be published: one that cannot must not get into the log.
fn check_published(state: &State, table: &TableRecord, schema: &TableSchema) -> Result<(), Error> {
    let partitions = rekeyed_partitions(state, table, schema);
    partition_map(schema, &table.placement, partitions).map(drop)
}

impl Draft<'_> {
    /// Begins to send an altered schema to a table's partitions.
    fn tell_altered(&mut self, table: &TableRecord, altered: Altered) {
        let Altered { schema, dropped_names } = altered;
        self.tell(TableRecord { dropped_names, ..table.clone() }, schema);
    }
}

/// The columns of a former table after a change of `table`, its successor; `None` if they stay the same.
///
/// # Errors
/// As [`altered`], for a column that the former table has too.
fn altered_former(
    table: &TableRecord,
    former: &TableRecord,
    change: &TableChange,
) -> Result<Option<Altered>, Error> {
    let name = match change {
        TableChange::SetOptions(options) => {
            let schema = TableSchema { options: (**options).clone(), ..next_version(&former.schema) };
            let dropped_names = former.dropped_names.clone();
            return Ok(Some(Altered { schema, dropped_names }));
        }
        // The column may have been added since: then the former table is read without the index.
        TableChange::SetIndex { .. } | TableChange::DropIndex { .. } => {
            return Ok(altered(former, change).ok().flatten());
        }
        TableChange::DropColumn(name)
        | TableChange::RenameColumn { from: name, .. }
        | TableChange::SetType { column: name, .. } => name,
        // The rows of the former table stay as they are.
        TableChange::AddColumns { .. }
        | TableChange::DropNotNull(_)
        | TableChange::SetDefault { .. }
        | TableChange::SetView { .. }
        | TableChange::SetComment { .. }
        | TableChange::MoveColumn { .. }
        | TableChange::AddCheck(_)
        | TableChange::DropCheck(_)
        | TableChange::Rename(_)
        | TableChange::TakePlace(_)
        | TableChange::ChangeFamilies(_)
        // A change of options comes here as SetOptions.
        | TableChange::ChangeOptions { .. }
        | TableChange::Repartition { .. } => return Ok(None),
    };
    let column = table.schema.column(name);
    if column.is_none_or(|column| former.schema.column_by_id(column.id).is_none()) {
        return Ok(None);
    }
    // A constraint that was dropped since does not keep a column.
    let mut schema = TableSchema::clone(&former.schema);
    schema.checks.retain(|check| table.schema.checks.contains(check));
    altered(&TableRecord { schema: Arc::new(schema), ..former.clone() }, change)
}

/// Renames a table. Nodes know tables by id, so no node gets an order.
fn rename_table(
    state: &State,
    database: &str,
    table: &TableRecord,
    new_name: &str,
) -> Result<Outcome, Error> {
    validate_name("table", new_name)?;
    if let Some(holder) = state.table_named(table.database, new_name) {
        if holder.phase == Phase::Creating {
            return Ok(busy(holder));
        }
        return Err(Error::AlreadyExists { kind: "table", name: shown_name(database, new_name) });
    }
    if state.is_sequence(table.database, new_name) {
        return Err(Error::AlreadyExists { kind: "table", name: shown_name(database, new_name) });
    }
    let mut draft = Draft::new(state);
    draft.enter(TableRecord { name: new_name.to_owned(), ..table.clone() }, Phase::Ready);
    Ok(draft.done())
}

/// Drops a table, and gives its name, owner and sequences to another one with the same columns. Views read tables by
/// name: they read the new one from then on.
fn take_place(state: &State, table: &TableRecord, replaced: TableId) -> Result<Outcome, Error> {
    let former = state.table(replaced).filter(|former| former.database == table.database);
    let former = former.filter(|former| former.is_named() && former.id != table.id);
    let former = former.ok_or_else(|| {
        Error::InvalidInput(format!(
            "table \"{}\" cannot take the place of a table that does not exist",
            table.name
        ))
    })?;
    if let Some(busy) = in_change(state, former).or_else(|| in_succession(state, former)) {
        return Ok(busy);
    }
    for table in [table, former.as_ref()] {
        let is_bare = table.copy.is_none() && table.former.is_none() && table.schema.view.is_none();
        if !is_bare || state.dependents_of(table.id).next().is_some() {
            let feature = format!(
                "a primary key for table \"{}\", which is or has a copy or a former table,",
                former.name
            );
            return Err(Error::Unsupported(feature));
        }
    }
    let columns = |table: &TableRecord| -> Vec<String> {
        table.schema.shown().map(|column| column.name.clone()).collect()
    };
    if columns(table) != columns(former) {
        return Err(Error::InvalidInput(format!(
            "table \"{}\" was changed meanwhile",
            former.name
        )));
    }
    let mut draft = Draft::new(state);
    draft.enter(TableRecord::clone(former), Phase::Dropping);
    draft.keep_sequences(former, table);
    let (name, owner) = (former.name.clone(), former.owner);
    draft.enter(TableRecord { name, owner, ..table.clone() }, Phase::Ready);
    Ok(draft.done())
}

/// A table's partitions under a schema with more key columns.
pub(super) fn rekeyed_partitions<'a>(
    state: &'a State,
    table: &'a TableRecord,
    schema: &'a TableSchema,
) -> impl Iterator<Item = PartitionRecord> + 'a {
    state.partitions_of(table).map(|partition| {
        let range = rekeyed(&partition.range, &table.schema.key, &schema.key);
        PartitionRecord { range, ..PartitionRecord::clone(partition) }
    })
}

/// A range after columns were added to the key.
fn rekeyed(range: &TypedRange, old: &[ColumnId], new: &[ColumnId]) -> TypedRange {
    let added = new.iter().enumerate().filter(|(_, id)| !old.contains(id));
    added.fold(range.clone(), |range, (position, _)| range.with_key_column(position))
}

/// The "busy" answer while another change of the table or its partitions is under way.
pub(super) fn in_change(state: &State, table: &TableRecord) -> Option<Outcome> {
    let step = if table.is_pending() { Some(table.step) } else { state.reshaping_of(table.id) };
    step.map(|step| Outcome::without_edits(Reply::Busy { table: table.id, step }))
}

/// The "busy" answer while another change of a table of which a copy is to be made is under way.
fn in_change_or_succession(state: &State, source: TableId) -> Option<Outcome> {
    let source = state.table(source).filter(|source| source.is_named())?;
    in_change(state, source).or_else(|| in_succession(state, source))
}

fn busy(table: &TableRecord) -> Outcome {
    Outcome::without_edits(Reply::Busy { table: table.id, step: table.step })
}

pub(super) fn table<'a>(
    state: &'a State,
    database_name: &str,
    name: &str,
) -> Result<&'a Arc<TableRecord>, Error> {
    let database = database(state, database_name)?;
    state
        .table_named(database.id, name)
        .ok_or_else(|| Error::NotFound { kind: "table", name: shown_name(database_name, name) })
}

/// A table's name as its user would write it: without the default database.
pub(crate) fn shown_name(database: &str, name: &str) -> String {
    if database == DEFAULT_DATABASE { name.to_owned() } else { format!("{database}.{name}") }
}
