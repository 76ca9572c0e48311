//! Changes of a table's placement: new rows go to new partitions, existing rows stay where they are.
//!
//! ```text
//!   events ──repartition──▶ events        "events$next", Creating: its replicas are being opened
//!                              │
//!                         read along ──▶ events             "events$next", Succeed: both are read together, rows are
//!                              │                            written to the old one, whose partitions get new epochs
//!                           finish ──▶ "events$former"      events, with the new placement; former: the other one
//! ```
//!
//! The new table takes over the name in one step, and from then on the former table is read together with it.
//! Nothing is copied or frozen: a row that a frontend with an older catalog still writes goes to the former table
//! and is read there. Both are ordinary tables: each is split, merged, balanced and repaired on its own.
//!
//! A frontend may be cut off from meta for any time, with a catalog that has only one of the tables. So before the
//! first row is written to the new partitions, every old one gets an epoch that no such catalog has: a reader of
//! the old partitions then needs a catalog with both tables. Until all of them have it, the old table is used as
//! before, even if one of them has lost its quorum.
//!
//! Invariants (see [`State::check`]):
//! - only append-only tables have a former table: otherwise two versions of a row could lie in both;
//! - a table has at most one former table, and is the former table of at most one other, never both;
//! - columns with one id are the same column in both. The former table gets no columns; those that are dropped, renamed
//!   or given a wider type are so in both, by one step: in between they may have another name or type in one of the
//!   tables, or be in one only.

use std::sync::Arc;

use partita_proto::error::Error;
use partita_proto::id::{Epoch, NodeId, PartitionId, TableId};
use partita_proto::placement::Placement;
use partita_proto::range::Bound;
use partita_proto::schema::validate_name;
use partita_proto::service::TableChange;

use super::draft::{Draft, Outcome, Reply};
use super::table::check_room;
use crate::catalog::{Edit, PartitionRecord, Phase, State, Step, TableRecord, Work};
use crate::create::check_partitions;

/// Records the successor of a table.
pub(super) fn repartition(
    state: &State,
    table: &TableRecord,
    placement: &Placement,
    cuts: &[Bound],
    places: &[Vec<NodeId>],
) -> Result<Outcome, Error> {
    let name = &table.name;
    // Only tables that keep every row can have rows of one key in two tables.
    if !table.schema.options.append_mode {
        return Err(Error::Unsupported(format!(
            "repartitioning table \"{name}\" without 'append_mode' (two versions of a row could be in two partitions)"
        )));
    }
    // There is at most one former table, and no chain of them.
    if let Some(former) = former(state, table) {
        return Err(Error::Unsupported(format!(
            "repartitioning table \"{name}\" again while its earlier rows are in \"{}\" (DROP TABLE \"{}\" deletes them)",
            former.name, former.name
        )));
    }
    if let Some(successor) = successor(state, table.id) {
        return Err(is_former(table, successor));
    }
    if *placement == table.placement {
        return Err(Error::InvalidInput(format!(
            "table \"{name}\" already has this placement; ALTER TABLE ... SPLIT and MERGE change its partitions"
        )));
    }
    // The successor is a table of its own, under a temporary name until it takes over.
    check_room(state)?;
    let next = format!("{name}$next");
    validate_name("table", &next)?;
    if state.table_named(table.database, &next).is_some() {
        return Err(Error::AlreadyExists { kind: "table", name: next });
    }
    let ranges = check_partitions(&table.schema, placement, cuts)?;
    let mut draft = Draft::new(state);
    let id = draft.new_table();
    let partitions = draft.new_partitions(id, ranges, places, true)?;
    let successor = TableRecord {
        id,
        name: next,
        placement: placement.clone(),
        ordered_ttl: state.ttl(table.database, &table.schema),
        partitions,
        former: Some(table.id),
        succeeded_by: None,
        ..table.clone()
    };
    draft.enter(successor, Phase::Creating);
    Ok(draft.done())
}

/// Records that a successor and its former table are read together. The step stays, because clients wait for the
/// end of the whole change.
pub(super) fn read_along(state: &State, table: TableId, step: Step) -> Outcome {
    let record = state.table(table).filter(|record| record.step == step);
    let record = record.filter(|record| record.phase == Phase::Creating);
    let Some((record, former)) = record.and_then(|record| Some((record, record.former?))) else {
        return Outcome::without_edits(Reply::Unchanged);
    };
    let mut draft = Draft::new(state);
    match state.table(former).filter(|former| former.is_visible()) {
        None => draft.succeed(record, former),
        Some(former) => {
            let phase = Phase::Altering(Work::Succeed);
            draft
                .edits
                .push(Edit::Table(Arc::new(TableRecord { phase, ..TableRecord::clone(record) })));
            let succeeded_by = Some(table);
            let former = TableRecord { succeeded_by, ..TableRecord::clone(former) };
            draft.edits.push(Edit::Table(Arc::new(former)));
            draft.steps.push((table, step));
        }
    }
    draft.done()
}

/// Records the raised epoch of a partition of the former table.
pub(super) fn fenced(
    state: &State,
    (table, step): (TableId, Step),
    partition: PartitionId,
    epoch: Epoch,
) -> Outcome {
    let record = state.table(table).filter(|record| record.step == step);
    let record = record.filter(|record| record.phase == Phase::Altering(Work::Succeed));
    let fenced = state.partition(partition);
    let fenced = fenced.filter(|fenced| fenced.reshaping.is_none() && fenced.epoch < epoch);
    match (record, fenced) {
        (Some(record), Some(fenced)) if record.former == Some(fenced.table) => {
            let mut draft = Draft::new(state);
            let fenced = PartitionRecord { epoch, ..PartitionRecord::clone(fenced) };
            draft.edits.push(Edit::Partition(Arc::new(fenced)));
            draft.steps.push((table, step));
            draft.done()
        }
        _ => Outcome::without_edits(Reply::Unchanged),
    }
}

impl Draft<'_> {
    /// A successor whose replicas are open takes over the name of its former table. It is dropped if the former
    /// table has gone meanwhile (by DROP DATABASE).
    pub(super) fn succeed(&mut self, successor: &TableRecord, former: TableId) {
        let Some(former) = self.state.table(former).filter(|table| table.is_visible()) else {
            let successor = TableRecord { former: None, ..successor.clone() };
            self.enter(successor, Phase::Dropping);
            return;
        };
        let is_taken = |name: &String| {
            self.state.table_named(former.database, name).is_some()
                || self.state.is_sequence(former.database, name)
        };
        let first = format!("{}$former", former.name);
        let numbered = (2..).map(|number| format!("{}$former{number}", former.name));
        let name = std::iter::once(first).chain(numbered).find(|name| !is_taken(name));
        let renamed = TableRecord {
            name: name.unwrap_or_else(|| successor.name.clone()),
            ..TableRecord::clone(former)
        };
        self.edits.push(Edit::Table(Arc::new(renamed)));
        // Who may use the former table may use its successor.
        self.copy_grants(former.id, successor.id);
        self.pass_sequences(former.id, successor.id);
        let (name, owner) = (former.name.clone(), former.owner);
        self.settle(TableRecord { name, owner, ..successor.clone() });
    }

    /// Removes the reference of a dropped table's successor.
    pub(super) fn forget_former(&mut self, table: TableId) {
        if let Some(successor) = successor(self.state, table) {
            let freed = TableRecord { former: None, ..TableRecord::clone(successor) };
            self.edits.push(Edit::Table(Arc::new(freed)));
        }
    }
}

/// The "busy" answer while a successor of the table is being created.
pub(super) fn in_succession(state: &State, table: &TableRecord) -> Option<Outcome> {
    let succeeds = |candidate: &&Arc<TableRecord>| {
        matches!(candidate.phase, Phase::Creating | Phase::Altering(Work::Succeed))
            && candidate.former == Some(table.id)
    };
    let next = state.pending().find(succeeds)?;
    Some(Outcome::without_edits(Reply::Busy { table: next.id, step: next.step }))
}

/// The successor of a table, while the table's partitions get new epochs.
pub(super) fn fencing<'a>(state: &'a State, table: &TableRecord) -> Option<&'a Arc<TableRecord>> {
    let next = state.table(table.succeeded_by?)?;
    (next.phase == Phase::Altering(Work::Succeed)).then_some(next)
}

/// The "busy" answer for a split or merge while the table's partitions get new epochs.
pub(super) fn being_fenced(state: &State, table: &TableRecord) -> Option<Outcome> {
    let next = fencing(state, table)?;
    Some(Outcome::without_edits(Reply::Busy { table: next.id, step: next.step }))
}

/// The former table of a table.
pub(super) fn former<'a>(state: &'a State, table: &TableRecord) -> Option<&'a Arc<TableRecord>> {
    state.table(table.former?).filter(|former| former.is_visible())
}

/// The successor of a table.
pub(super) fn successor(state: &State, former: TableId) -> Option<&Arc<TableRecord>> {
    state.tables().find(|table| table.is_visible() && table.former == Some(former))
}

/// Checks that a table with a former table, or such a former table, allows a change.
pub(super) fn check_change(
    state: &State,
    table: &TableRecord,
    change: &TableChange,
) -> Result<(), Error> {
    if matches!(change, TableChange::Rename(_)) {
        return Ok(());
    }
    if let Some(successor) = successor(state, table.id) {
        return Err(is_former(table, successor));
    }
    let Some(former) = former(state, table) else { return Ok(()) };
    if let TableChange::SetOptions(options) = change
        && !options.append_mode
    {
        return Err(Error::Unsupported(format!(
            "ending 'append_mode' while earlier rows of table \"{}\" are in \"{}\" (DROP TABLE \"{}\" deletes them)",
            table.name, former.name, former.name
        )));
    }
    Ok(())
}

fn is_former(table: &TableRecord, successor: &TableRecord) -> Error {
    Error::InvalidInput(format!(
        "table \"{}\" has the rows of table \"{}\" from before it was repartitioned; change \"{}\" instead",
        table.name, successor.name, successor.name
    ))
}
