//! Commands on re-keyings: a copy that takes the place of its source.
//!
//! ```text
//!   t, key (a, b)          "t$rekeyed", key (b, a), Filling ──▶ InStep
//!                              │ switch: nobody may cut either of them any more
//!                          "t$rekeyed", Switching: frontends close the partitions of t, and ship their last changes
//!                              │ exchange, in one step
//!   t, key (b, a), with    "t$rekeyed", Retired, with the closed partitions of before, until discard ──▶ dropped
//!   the partitions of the copy, which are told so
//!
//!   Switching ──lose──▶ Reopening: frontends open the partitions of t again ──reopened──▶ Lost, as any
//! ```
//!
//! Until the exchange, it is a copy as any (`copy.rs`): it may be lost, and is filled again then; to give it up is to drop
//! it. The table keeps its id: rights, tasks, options and copies of it are those of before; other copies are filled anew,
//! because they count on the positions of partitions that the table no longer has.
//!
//! Invariants:
//! - while a copy switches, neither table is cut, altered or truncated: the closed partitions are all of the table;
//! - the exchange names the partitions whose last changes are in the copy, and these are all that the table has;
//! - a version of a schema belongs to one order of the key: the exchanged schema is newer than those of both tables, and
//!   the replicas are told of the one after it, as by any ALTER TABLE.

use std::collections::BTreeSet;
use std::sync::Arc;

use partita_proto::error::Error;
use partita_proto::id::{NodeId, PartitionId, TableId};
use partita_proto::materialized::{CopyOf, CopyState, Rekeying, Steering};
use partita_proto::schema::TableSchema;

use super::draft::{Draft, Outcome, Reply, next_version, refusal};
use crate::catalog::{Edit, PartitionRecord, Phase, State, TableRecord};

/// SQLSTATE of an object that is not in the state that a statement needs.
const NOT_IN_STATE: &str = "55000";

/// The re-keying of a table that is under way.
fn rekeying_of(state: &State, source: TableId) -> Option<&Arc<TableRecord>> {
    state.copies_of(source).find(|table| table.is_rekeying())
}

/// Checks that a table is not being re-keyed.
pub(super) fn check_single(state: &State, source: &TableRecord) -> Result<(), Error> {
    match rekeying_of(state, source.id) {
        None => Ok(()),
        Some(_) => {
            let message = format!("table \"{}\" is already being re-keyed", source.name);
            Err(refusal(NOT_IN_STATE, message))
        }
    }
}

/// True if partitions of a copy's source may be closed: then it is too late for orders about the re-keying.
fn is_past_steering(state: CopyState) -> bool {
    matches!(state, CopyState::Switching | CopyState::Reopening | CopyState::Retired)
}

/// Checks that no copy is about to take the place of this table, and that it is none that is about to, or has done so.
pub(super) fn check_not_switching(state: &State, table: &TableRecord) -> Result<(), Error> {
    let switches =
        |table: &TableRecord| table.copy.as_ref().is_some_and(|copy| is_past_steering(copy.state));
    if switches(table) || state.copies_of(table.id).any(|copy| switches(copy)) {
        return Err(Error::Unavailable(format!(
            "table \"{}\" is being switched to another key",
            table.name
        )));
    }
    Ok(())
}

/// Checks that a table has no former partitions from before it was re-keyed, which belong to it.
pub(super) fn check_no_retired(state: &State, table: &TableRecord) -> Result<(), Error> {
    if state.dependents_of(table.id).any(|copy| copy.is_retired()) {
        return Err(Error::Unavailable(format!(
            "the former partitions of table \"{}\" are about to be dropped",
            table.name
        )));
    }
    Ok(())
}

/// Decides an order about a re-keying.
pub(super) fn steer(state: &State, record: &TableRecord, steering: Steering) -> Outcome {
    let unchanged = Outcome::without_edits(Reply::Unchanged);
    let Some(copy) = record.copy.as_deref() else { return unchanged };
    let Some(rekeying) = copy.rekeying else { return unchanged };
    if is_past_steering(copy.state) {
        return unchanged;
    }
    let next = match steering {
        Steering::Pause => Rekeying { is_paused: true, ..rekeying },
        Steering::Resume => Rekeying { is_paused: false, ..rekeying },
        Steering::Throttle(rows_per_second) => Rekeying { rows_per_second, ..rekeying },
        Steering::Cancel => return dropped(state, record),
    };
    with_state(state, record, CopyOf { rekeying: Some(next), ..copy.clone() })
}

/// Records that the partitions of a table may be closed, because a copy is to take its place.
pub(super) fn switch(state: &State, record: &TableRecord) -> Outcome {
    let unchanged = Outcome::without_edits(Reply::Unchanged);
    let Some(copy) = record.copy.as_deref() else { return unchanged };
    let may_switch = copy.state == CopyState::InStep
        && copy.rekeying.is_some_and(|rekeying| !rekeying.is_paused);
    let Some(source) = state.table(copy.source).filter(|_| may_switch) else { return unchanged };
    // Another copy that is being made would be replaced, and its client told that it is gone.
    let is_making = state.copies_of(source.id).any(|table| table.phase == Phase::Creating);
    if is_making || !is_still(state, record) || !is_still(state, source) {
        return unchanged;
    }
    with_state(state, record, CopyOf { state: CopyState::Switching, ..copy.clone() })
}

/// Exchanges key, placement and partitions of a copy and its source. `places`: the nodes of the partitions of other
/// copies of the source, which are filled anew.
///
/// # Errors
/// [`Error::Unavailable`] when those copies have more partitions than nodes were chosen for.
pub(super) fn exchange(
    state: &State,
    record: &TableRecord,
    closed: &[PartitionId],
    places: &[Vec<NodeId>],
) -> Result<Outcome, Error> {
    let unchanged = Outcome::without_edits(Reply::Unchanged);
    let copy = record.copy.as_deref().filter(|copy| copy.state == CopyState::Switching);
    let Some(copy) = copy else { return Ok(unchanged) };
    let Some(source) = state.table(copy.source) else { return Ok(unchanged) };
    let closed: BTreeSet<_> = closed.iter().collect();
    let are_all = source.partitions.iter().all(|partition| closed.contains(partition));
    if !are_all || !is_still(state, record) || !is_still(state, source) {
        return Ok(unchanged);
    }
    let mut draft = Draft::new(state);
    let mut places = places;
    for dependent in state.copies_of(source.id).filter(|table| table.id != record.id) {
        if let Some(copy) = &dependent.copy {
            let reason = Some("its table was re-keyed".to_owned());
            draft.renew_copy(dependent, copy, reason, &mut places)?;
        }
    }
    let version = source.schema.version.max(record.schema.version).next();
    let rekeyed = TableRecord {
        schema: Arc::new(TableSchema { version, ..TableSchema::clone(&record.schema) }),
        placement: record.placement.clone(),
        ordered_ttl: record.ordered_ttl,
        partitions: record.partitions.clone(),
        ..TableRecord::clone(source)
    };
    let retired = TableRecord {
        schema: Arc::new(TableSchema { version, ..TableSchema::clone(&source.schema) }),
        placement: source.placement.clone(),
        ordered_ttl: source.ordered_ttl,
        partitions: source.partitions.clone(),
        copy: Some(Arc::new(CopyOf { state: CopyState::Retired, ..copy.clone() })),
        ..TableRecord::clone(record)
    };
    draft.give(record, source.id);
    draft.give(source, record.id);
    // Replicas that do not know the version would take all reads for newer than themselves, and ask their leader. They are
    // told of the next one: a replica that joins meanwhile knows this one, and must not answer for the others.
    let next = next_version(&rekeyed.schema);
    draft.tell(rekeyed, next);
    draft.edits.push(Edit::Table(Arc::new(retired)));
    // The table is used meanwhile, and the new copies are to be filled in any case: nobody waits.
    draft.steps.clear();
    Ok(draft.done())
}

/// Records that the partitions of a table are open again, after a switch was given up.
pub(super) fn reopened(state: &State, record: &TableRecord, open: &[PartitionId]) -> Outcome {
    let unchanged = Outcome::without_edits(Reply::Unchanged);
    let copy = record.copy.as_deref().filter(|copy| copy.state == CopyState::Reopening);
    let Some(copy) = copy else { return unchanged };
    let Some(source) = state.table(copy.source) else { return unchanged };
    let open: BTreeSet<_> = open.iter().collect();
    match source.partitions.iter().all(|partition| open.contains(partition)) {
        true => with_state(state, record, CopyOf { state: CopyState::Lost, ..copy.clone() }),
        false => unchanged,
    }
}

/// Drops a retired copy.
pub(super) fn discard(state: &State, record: &TableRecord) -> Outcome {
    let is_retired = record.copy.as_ref().is_some_and(|copy| copy.state == CopyState::Retired);
    match is_retired && record.is_visible() {
        true => dropped(state, record),
        false => Outcome::without_edits(Reply::Unchanged),
    }
}

fn dropped(state: &State, record: &TableRecord) -> Outcome {
    let mut draft = Draft::new(state);
    draft.enter(record.clone(), Phase::Dropping);
    // Nobody waits for the nodes.
    draft.steps.clear();
    draft.done()
}

fn with_state(state: &State, record: &TableRecord, copy: CopyOf) -> Outcome {
    let mut draft = Draft::new(state);
    // The phase and its step stay: nodes hear nothing of the states of copies.
    let next = TableRecord { copy: Some(Arc::new(copy)), ..record.clone() };
    draft.edits.push(Edit::Table(Arc::new(next)));
    draft.done()
}

/// True if no change of a table or of a partition's range is under way.
fn is_still(state: &State, table: &TableRecord) -> bool {
    table.phase == Phase::Ready
        && state.partitions_of(table).all(|partition| partition.reshaping.is_none())
        && state.leaving(table.id).next().is_none()
}

impl Draft<'_> {
    /// Gives the partitions of a table to another one.
    fn give(&mut self, table: &TableRecord, owner: TableId) {
        for partition in self.state.partitions_of(table) {
            let record = PartitionRecord { table: owner, ..PartitionRecord::clone(partition) };
            self.edits.push(Edit::Partition(Arc::new(record)));
        }
    }
}
