//! Commands on materialized copies: from the request, through the states that frontends report, to the replacement.
//!
//! ```text
//!   create ─▶ Filling ──finish──▶ InStep
//!                │ lose              │ lose
//!                └──────▶ Lost ◀─────┘ ──replace──▶ dropped; a new table has the name, Filling
//! ```
//!
//! Invariants (see [`State::check`]):
//! - a copy has the columns and the key columns of its source, and every change of these is told to both in one step;
//! - a copy that is lost stays so for ever, and ids are never used again: a frontend with an older catalog cannot take
//!   the table that replaces it for the one that was lost;
//! - a copy is in step only if its filler proved it for every partition that its source has.

use std::collections::BTreeSet;
use std::sync::Arc;

use partita_proto::error::Error;
use partita_proto::id::{NodeId, PartitionId, TableId};
use partita_proto::materialized::{
    COPIES_MAX, CopyChange, CopyOf, CopyState, Rekeying, copy_key_fits, is_first_key,
    with_first_key,
};
use partita_proto::range::TypedRange;
use partita_proto::schema::{Column, Semantic, TableOptions, TableSchema, validate_name};
use partita_proto::service::{Ddl, NewTable, TableChange};

use super::draft::{Draft, Outcome, Reply, refusal};
use super::rekey::{check_not_switching, check_single, discard, exchange, reopened, steer, switch};
use crate::catalog::{DatabaseRecord, Edit, Phase, State, TableRecord, Work};
use crate::create::check_partitions;

/// SQLSTATE of a statement on the wrong kind of object.
const WRONG_OBJECT: &str = "42809";
/// SQLSTATE of a definition that is not valid.
const INVALID_DEFINITION: &str = "42P16";
/// SQLSTATE of what is not supported.
const UNSUPPORTED: &str = "0A000";
/// Maximum bytes of the reason of a loss; longer ones are cut.
const REASON_BYTES_MAX: usize = 512;

/// A new table, or a copy of one, as it will be recorded.
pub(super) struct CheckedNew {
    pub(super) schema: TableSchema,
    pub(super) dropped_names: BTreeSet<String>,
    /// One range for each partition, in ascending order.
    pub(super) ranges: Vec<TypedRange>,
    pub(super) copy: Option<CopyOf>,
}

/// Checks a new copy of a table.
///
/// # Errors
/// [`Error::NotFound`] without such a table, [`Error::StaleSchema`] when its columns are others by now, and errors that
/// name what does not fit.
pub(super) fn check_copy(
    state: &State,
    database: &DatabaseRecord,
    new: &NewTable,
    source: TableId,
) -> Result<CheckedNew, Error> {
    validate_name("table", &new.name)?;
    let record = state.table(source);
    let record = record.filter(|record| record.is_visible() && record.database == database.id);
    let Some(record) = record else {
        return Err(Error::NotFound { kind: "table", name: source.to_string() });
    };
    let name = &record.name;
    let action = if new.rekeys { "re-keying" } else { "a copy of" };
    if record.copy.is_some() {
        return Err(Error::Unsupported(format!("{action} a materialized copy")));
    }
    if record.schema.view.is_some() {
        return Err(Error::Unsupported(format!("{action} a view")));
    }
    if record.schema.options.wide.is_some() {
        return Err(Error::Unsupported(format!("{action} a wide table")));
    }
    let follows = |table: &Arc<TableRecord>| table.is_named() && table.former == Some(source);
    if record.former.is_some() || state.tables().any(follows) {
        return Err(Error::Unsupported(format!(
            "{action} table \"{name}\", which was repartitioned,"
        )));
    }
    check_not_switching(state, record)?;
    if new.rekeys {
        check_single(state, record)?;
    } else if state.copies_of(source).filter(|copy| !copy.is_rekeying()).count() >= COPIES_MAX {
        return Err(Error::LimitReached {
            message: format!(
                "table \"{name}\" has {COPIES_MAX} materialized copies, which is the limit"
            ),
            hint: "Drop a materialized copy that is not needed.".to_owned(),
        });
    }
    let key = &new.schema.key;
    let is_first_key = new.rekeys && is_first_key(&record.schema, key);
    if !is_first_key && !copy_key_fits(&record.schema, key) {
        let columns = record.schema.key_columns().map(|column| column.name.as_str());
        let columns = columns.collect::<Vec<_>>().join(", ");
        let whose = if new.rekeys { "new key" } else { "key of a copy" };
        let message =
            format!("the {whose} must have the key columns of table \"{name}\": {columns}");
        return Err(refusal(INVALID_DEFINITION, message));
    }
    if *key == record.schema.key && new.placement == record.placement {
        let whose = if new.rekeys { "new key" } else { "key of the copy" };
        let message = format!("the {whose} is that of table \"{name}\"");
        return Err(refusal(INVALID_DEFINITION, message));
    }
    let schema = match is_first_key {
        true => with_first_key(&record.schema, key),
        false => TableSchema { key: key.clone(), ..TableSchema::clone(&record.schema) },
    };
    if schema != new.schema {
        return Err(Error::StaleSchema { table: source });
    }
    schema.validate()?;
    let ranges = check_partitions(&schema, &new.placement, &new.cuts)?;
    let copy = CopyOf::new(source, new.rekeys.then(Rekeying::default));
    let dropped_names = record.dropped_names.clone();
    Ok(CheckedNew { schema, dropped_names, ranges, copy: Some(copy) })
}

/// Decides a change about a copy. One that does not fit what is recorded changes nothing.
///
/// # Errors
/// [`Error::Unavailable`] when the copy to replace has more partitions than nodes were chosen for.
pub(super) fn change_copy(
    state: &State,
    change: &CopyChange,
    places: &[Vec<NodeId>],
) -> Result<Outcome, Error> {
    let unchanged = Outcome::without_edits(Reply::Unchanged);
    let record = state.table(change.copy()).filter(|record| record.is_named());
    let Some((record, copy)) = record.and_then(|record| Some((record, record.copy.as_ref()?)))
    else {
        return Ok(unchanged);
    };
    match change {
        CopyChange::Steer { steering, .. } => return Ok(steer(state, record, *steering)),
        CopyChange::Switch { .. } => return Ok(switch(state, record)),
        CopyChange::Exchange { partitions, .. } => {
            return exchange(state, record, partitions, places);
        }
        CopyChange::Reopened { partitions, .. } => return Ok(reopened(state, record, partitions)),
        CopyChange::Discard { .. } => return Ok(discard(state, record)),
        CopyChange::Take { .. }
        | CopyChange::Beat { .. }
        | CopyChange::Finish { .. }
        | CopyChange::Lose { .. }
        | CopyChange::Replace { .. } => {}
    }
    let mut draft = Draft::new(state);
    if is_replaced(record, copy, change) {
        let reason = match copy.state {
            CopyState::Lost => copy.reason.clone(),
            _ => Some("its filler has stopped".to_owned()),
        };
        let mut places = places;
        draft.renew_copy(record, copy, reason, &mut places)?;
        // Nobody waits for the new table: it is to be filled in any case.
        draft.steps.clear();
    } else {
        let Some(next) = changed(state, record, copy, change) else { return Ok(unchanged) };
        // The phase and its step stay: nodes hear nothing of the states of copies.
        let next = TableRecord { copy: Some(Arc::new(next)), ..TableRecord::clone(record) };
        draft.edits.push(Edit::Table(Arc::new(next)));
    }
    Ok(draft.done())
}

/// True if the change replaces the copy: a lost one, or one whose filler has given no sign of life.
fn is_replaced(record: &TableRecord, copy: &CopyOf, change: &CopyChange) -> bool {
    let CopyChange::Replace { beat, .. } = change else { return false };
    let is_replaceable = match copy.state {
        CopyState::Lost => true,
        CopyState::Filling => copy.filler != 0 && *beat == Some(copy.beat),
        CopyState::InStep | CopyState::Switching | CopyState::Reopening | CopyState::Retired => {
            false
        }
    };
    record.is_visible() && is_replaceable
}

/// The record of a copy after a change of its state; `None` if the change does not fit.
fn changed(
    state: &State,
    record: &TableRecord,
    copy: &CopyOf,
    change: &CopyChange,
) -> Option<CopyOf> {
    let is_filling = copy.state == CopyState::Filling && record.is_visible();
    let is_filler = |filler: u64| is_filling && filler != 0 && copy.filler == filler;
    let same = || copy.clone();
    match change {
        CopyChange::Take { filler, .. } => {
            let is_free = is_filling && copy.filler == 0 && *filler != 0;
            let is_ready = state.table(copy.source).is_some_and(|table| !table.is_pending());
            (is_free && is_ready).then(|| CopyOf { filler: *filler, ..same() })
        }
        CopyChange::Beat { filler, beat, rows, .. } => {
            let is_newer = is_filler(*filler) && *beat > copy.beat;
            let rekeying = copy.rekeying.map(|rekeying| Rekeying { rows: *rows, ..rekeying });
            is_newer.then(|| CopyOf { beat: *beat, rekeying, ..same() })
        }
        CopyChange::Finish { filler, partitions, .. } => {
            let is_full = is_filler(*filler) && are_all(state, copy.source, partitions);
            is_full.then(|| CopyOf { state: CopyState::InStep, filler: 0, ..same() })
        }
        CopyChange::Lose { reason, .. }
            if !copy.state.is_given_up() && copy.state != CopyState::Retired =>
        {
            let cut = &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)];
            let reason = Some(cut.to_owned());
            // Partitions that are closed have to be opened before another table takes the copy's place.
            let state = match copy.state {
                CopyState::Switching => CopyState::Reopening,
                _ => CopyState::Lost,
            };
            Some(CopyOf { state, filler: 0, reason, ..same() })
        }
        CopyChange::Lose { .. }
        | CopyChange::Replace { .. }
        | CopyChange::Steer { .. }
        | CopyChange::Switch { .. }
        | CopyChange::Exchange { .. }
        | CopyChange::Reopened { .. }
        | CopyChange::Discard { .. } => None,
    }
}

/// True if these include all partitions of a table that is ready, and none of it is being split.
fn are_all(state: &State, source: TableId, partitions: &[PartitionId]) -> bool {
    let Some(table) = state.table(source).filter(|table| table.phase == Phase::Ready) else {
        return false;
    };
    let proven: BTreeSet<_> = partitions.iter().collect();
    table.partitions.iter().all(|partition| proven.contains(partition))
        && state.partitions_of(table).all(|partition| partition.reshaping.is_none())
}

impl Draft<'_> {
    /// Puts a new, empty table in the place of a copy, with as many partitions. Takes the nodes of these from the
    /// beginning of `places`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when these are too few, because the copy was split meanwhile.
    pub(super) fn renew_copy(
        &mut self,
        record: &TableRecord,
        copy: &CopyOf,
        reason: Option<String>,
        places: &mut &[Vec<NodeId>],
    ) -> Result<(), Error> {
        let ranges = self.state.partitions_of(record).map(|partition| partition.range.clone());
        let ranges: Vec<TypedRange> = ranges.collect();
        let available = *places;
        let Some((chosen, remaining)) = available.split_at_checked(ranges.len()) else {
            return Err(Error::Unavailable(format!(
                "the partitions of materialized copy \"{}\" changed meanwhile",
                record.name
            )));
        };
        *places = remaining;
        let id = self.new_table();
        let partitions = self.new_partitions(id, ranges, chosen, false)?;
        // The schema that its source has, or is about to have.
        let schema = match &record.phase {
            Phase::Altering(Work::Schema(next)) => Arc::clone(next),
            _ => Arc::clone(&record.schema),
        };
        let rekeying = copy.rekeying.map(|rekeying| Rekeying { rows: 0, ..rekeying });
        let fills = copy.fills.saturating_add(1);
        let copy = CopyOf { reason, fills, ..CopyOf::new(copy.source, rekeying) };
        let renewed = TableRecord {
            id,
            partitions,
            ordered_ttl: self.state.ttl(record.database, &schema),
            schema,
            copy: Some(Arc::new(copy)),
            ..record.clone()
        };
        self.enter(record.clone(), Phase::Dropping);
        self.enter(renewed, Phase::Creating);
        Ok(())
    }
}

/// Partitions that a change makes for copies that it replaces, and the options of these copies. None for other
/// changes.
pub(crate) fn renewed_partitions(state: &State, ddl: &Ddl) -> (usize, TableOptions) {
    let replaced: Vec<_> = match ddl.body() {
        Ddl::Copy(CopyChange::Replace { copy, .. }) => state.table(*copy).into_iter().collect(),
        // The other copies of the source.
        Ddl::Copy(CopyChange::Exchange { copy, .. }) => {
            let source = state.table(*copy).and_then(|table| Some(table.copy.as_ref()?.source));
            let copies = source.into_iter().flat_map(|source| state.copies_of(source));
            copies.filter(|table| table.id != *copy).collect()
        }
        Ddl::TruncateTable { database, name } => {
            let database = state.database_named(database);
            let table = database.and_then(|database| state.table_named(database.id, name));
            table.into_iter().flat_map(|table| state.copies_of(table.id)).collect()
        }
        _ => Vec::new(),
    };
    let options = replaced.first().map(|copy| copy.schema.options.clone());
    let partitions = replaced.iter().map(|copy| copy.partitions.len()).sum();
    (partitions, options.unwrap_or_default())
}

/// A copy that could not be made, although it had rows before: it is lost, and is to be replaced again. `None` for other
/// tables, which are dropped then.
pub(super) fn unmade(record: &TableRecord) -> Option<TableRecord> {
    let copy = record.copy.as_ref().filter(|copy| copy.fills > 1)?;
    let reason = Some("its partitions could not be created".to_owned());
    let lost = CopyOf { state: CopyState::Lost, reason, ..CopyOf::clone(copy) };
    Some(TableRecord { copy: Some(Arc::new(lost)), ..record.clone() })
}

/// Checks that a copy, or a table with copies, allows a change.
pub(super) fn check_alter(
    state: &State,
    table: &TableRecord,
    change: &TableChange,
) -> Result<(), Error> {
    if matches!(change, TableChange::Rename(_)) {
        return Ok(());
    }
    if table.copy.is_some() {
        return Err(is_copy(table));
    }
    let is_new_tag = |column: &Column| {
        column.semantic == Semantic::Tag && table.schema.column(&column.name).is_none()
    };
    let action = match change {
        TableChange::Repartition { .. } => "repartitioning",
        TableChange::AddColumns { columns, .. } if columns.iter().any(is_new_tag) => {
            "adding a key column to"
        }
        TableChange::SetOptions(options)
            if options.append_mode != table.schema.options.append_mode =>
        {
            "changing 'append_mode' of"
        }
        // A copy learns of it at another moment, with other versions of rows merged by then.
        TableChange::SetOptions(options)
            if options.merge_mode != table.schema.options.merge_mode =>
        {
            "changing 'merge_mode' of"
        }
        _ => return Ok(()),
    };
    match obstacle(state, table) {
        None => Ok(()),
        Some(obstacle) => Err(refusal(
            UNSUPPORTED,
            format!("{action} table \"{}\" is not supported while it {obstacle}", table.name),
        )),
    }
}

/// Reason why the key or the partitions of a table must stay.
fn obstacle(state: &State, table: &TableRecord) -> Option<&'static str> {
    let mut copies = state.copies_of(table.id);
    let first = copies.next()?;
    let is_rekeyed = first.is_rekeying() && copies.next().is_none();
    Some(if is_rekeyed { "is being re-keyed" } else { "has materialized copies" })
}

/// Checks that partitions of a table may be merged: positions in the changes of two cannot be joined.
pub(super) fn check_merge(state: &State, table: &TableRecord) -> Result<(), Error> {
    let name = &table.name;
    if table.copy.is_some() {
        let what = format!("merging partitions of materialized copy \"{name}\"");
        return Err(Error::Unsupported(what));
    }
    match obstacle(state, table) {
        None => Ok(()),
        Some(obstacle) => Err(refusal(
            UNSUPPORTED,
            format!("merging partitions of table \"{name}\" is not supported while it {obstacle}"),
        )),
    }
}

/// Error for a change that a copy gets from its source only.
pub(super) fn is_copy(table: &TableRecord) -> Error {
    refusal(WRONG_OBJECT, format!("\"{}\" is a materialized copy", table.name))
}

/// Error for a table that is to be dropped without its copies.
pub(super) fn has_copies(table: &TableRecord) -> Error {
    Error::Dependents {
        message: format!("cannot drop table \"{}\" because other objects depend on it", table.name),
        hint: "Use DROP ... CASCADE to drop the dependent objects too.".to_owned(),
    }
}
