//! The fake's copies: captured changes, rows by position, and the states that meta records.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::record_batch::RecordBatch;
use partita_proto::Error;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::{Epoch, NodeId, PartitionId, TableId};
use partita_proto::key::PLACEMENT_COLUMN;
use partita_proto::materialized::{
    Capture, CaptureOrder, Change, Changes, ChangesRequest, CopyChange, CopyOf, CopyState,
    Position, Rekeying, Ship, Steering,
};
use partita_proto::schema::TableSchema;
use partita_proto::sequence::Sequence;
use partita_proto::service::{NewTable, WriteKind, WriteReply};
use partita_proto::size::batch_bytes;

use super::{Fake, Partition, none};

/// The capture of a partition's changes for one copy.
#[derive(Clone, Copy, Debug, Default)]
struct CaptureState {
    begin: u64,
    shipped: u64,
    sync: bool,
    closes: bool,
    parent: Option<(PartitionId, u64)>,
}

/// Captures of one partition, its changes since the first of them, and the positions up to which it took rows itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Captures {
    by_copy: BTreeMap<TableId, CaptureState>,
    tail: Vec<Change>,
    /// Index up to which changes were forgotten, by a test.
    forgotten: u64,
    taken: HashMap<PartitionId, Position>,
}

impl Captures {
    /// Keeps the rows of an entry.
    pub(super) fn push(&mut self, index: u64, kind: WriteKind, rows: &RecordBatch) {
        if self.by_copy.is_empty() {
            return;
        }
        let mut rows = rows.clone();
        if let Ok(placement) = rows.schema_ref().index_of(PLACEMENT_COLUMN) {
            rows.remove_column(placement);
        }
        self.tail.push(Change { index, kind, rows });
    }

    /// True if the partition is closed, because a copy is to take its place.
    pub(super) fn is_closed(&self) -> bool {
        self.by_copy.values().any(|state| state.closes)
    }

    /// The copies that lack an entry, of those that writes wait for.
    pub(super) fn owed(&self, index: u64) -> Vec<TableId> {
        let owed = self.by_copy.iter().filter(|(_, state)| state.sync && state.shipped < index);
        owed.map(|(copy, _)| *copy).collect()
    }

    /// The captures of a partition that is split off by the entry of an index.
    pub(super) fn of_child(&self, parent: PartitionId, index: u64) -> Self {
        let of_child = |state: &CaptureState| CaptureState {
            sync: state.sync,
            parent: Some((parent, index)),
            ..CaptureState::default()
        };
        let by_copy = self.by_copy.iter().map(|(copy, state)| (*copy, of_child(state)));
        Self { by_copy: by_copy.collect(), taken: self.taken.clone(), ..Self::default() }
    }

    fn get(&self, copy: TableId) -> Result<&CaptureState, Error> {
        self.by_copy.get(&copy).ok_or_else(|| none("capture", &copy.to_string()))
    }
}

impl Partition {
    /// Takes rows of a source partition by their position.
    pub(super) fn take(
        &mut self,
        ship: &Ship,
        kind: WriteKind,
        rows: &RecordBatch,
    ) -> Result<WriteReply, Error> {
        let stored = self.captures.taken.get(&ship.source).copied().unwrap_or_default();
        if stored < ship.to {
            if stored > ship.from {
                return Err(Error::ShipAhead { stored });
            }
            self.writes += 1;
            self.apply(kind, rows)?;
            self.captures.taken.insert(ship.source, ship.to);
        }
        Ok(WriteReply { index: self.writes, owed: Vec::new() })
    }
}

impl Fake {
    /// Fails while meta is silent.
    pub(super) fn check_meta(&self) -> Result<(), Error> {
        match self.is_meta_silent.load(Ordering::Relaxed) {
            true => Err(Error::Unavailable("meta is silent".to_owned())),
            false => Ok(()),
        }
    }

    /// Has all partitions of a table forget the changes that they captured, as after a restart.
    pub fn forget_changes(&self, table: &Table) {
        let mut partitions = self.partitions.lock();
        for route in table.partitions.routes() {
            if let Some(partition) = partitions.get_mut(&route.partition) {
                partition.captures.tail.clear();
                partition.captures.forgotten = partition.writes;
            }
        }
    }

    /// Copies for which a table's partitions capture changes, each with the partitions.
    pub fn captured(&self, table: &Table) -> BTreeMap<TableId, usize> {
        let partitions = self.partitions.lock();
        let mut counts = BTreeMap::new();
        for route in table.partitions.routes() {
            let Some(partition) = partitions.get(&route.partition) else { continue };
            for copy in partition.captures.by_copy.keys() {
                *counts.entry(*copy).or_default() += 1;
            }
        }
        counts
    }

    pub(super) fn capture(
        &self,
        node: NodeId,
        partition: PartitionId,
        epoch: Epoch,
        order: CaptureOrder,
    ) -> Result<u64, Error> {
        self.check_leader(node, partition)?;
        let mut partitions = self.partitions.lock();
        let entry = partitions
            .get_mut(&partition)
            .ok_or_else(|| none("partition", &partition.to_string()))?;
        entry.check_epoch(partition, epoch)?;
        if let Capture::Sync | Capture::Shipped(_) | Capture::Close = order.capture {
            entry.captures.get(order.copy)?;
        }
        entry.writes += 1;
        let index = entry.writes;
        let by_copy = &mut entry.captures.by_copy;
        match order.capture {
            Capture::Begin => {
                let begun = CaptureState { begin: index, ..CaptureState::default() };
                return Ok(by_copy.entry(order.copy).or_insert(begun).begin);
            }
            Capture::End => by_copy.retain(|copy, state| *copy != order.copy || state.closes),
            Capture::Reopen => drop(by_copy.remove(&order.copy)),
            Capture::Close => by_copy.entry(order.copy).or_default().closes = true,
            Capture::Detach => {}
            Capture::Sync => by_copy.entry(order.copy).or_default().sync = true,
            Capture::Shipped(shipped) => {
                let state = by_copy.entry(order.copy).or_default();
                state.shipped = state.shipped.max(shipped);
            }
        }
        Ok(index)
    }

    pub(super) fn changes(&self, node: NodeId, request: &ChangesRequest) -> Result<Changes, Error> {
        self.check_leader(node, request.partition)?;
        let partitions = self.partitions.lock();
        let entry = partitions
            .get(&request.partition)
            .ok_or_else(|| none("partition", &request.partition.to_string()))?;
        entry.check_epoch(request.partition, request.epoch)?;
        let captures = &entry.captures;
        let state = captures.get(request.copy)?;
        let start = request.after.max(state.begin).max(state.shipped);
        if start < captures.forgotten {
            return Err(Error::Gap { partition: request.partition });
        }
        let mut entries: Vec<Change> = Vec::new();
        let (mut end, mut bytes) = (entry.writes.max(start), 0);
        for change in captures.tail.iter().filter(|change| change.index > start) {
            let previous = entries.last().map_or(start, |last| last.index);
            if bytes >= request.bytes_max && change.index != previous {
                end = previous;
                break;
            }
            bytes += batch_bytes(&change.rows);
            entries.push(change.clone());
        }
        Ok(Changes {
            to: end,
            last: captures.tail.last().map_or(0, |last| last.index),
            shipped: state.shipped,
            sync: state.sync,
            after: state.parent.filter(|_| state.shipped == 0),
            entries,
        })
    }

    /// Index up to which the rows of a partition include all changes.
    pub(super) fn filled(&self, copy: TableId, partition: PartitionId) -> Result<u64, Error> {
        let partitions = self.partitions.lock();
        let entry =
            partitions.get(&partition).ok_or_else(|| none("partition", &partition.to_string()))?;
        entry.captures.get(copy)?;
        Ok(entry.writes)
    }

    pub(super) fn change_copy(
        &self,
        catalog: &mut Catalog,
        change: CopyChange,
    ) -> Result<bool, Error> {
        let Some(table) = catalog.table_by_id(change.copy()).map(Arc::clone) else {
            return Ok(false);
        };
        let Some(copy) = &table.copy else { return Ok(false) };
        let is_filling = copy.state == CopyState::Filling;
        let mut next = CopyOf::clone(copy);
        match change {
            CopyChange::Take { filler, .. } if is_filling && copy.filler == 0 => {
                next.filler = filler;
            }
            CopyChange::Beat { filler, beat, rows, .. } if is_filling && copy.filler == filler => {
                next.beat = beat;
                next.rekeying = copy.rekeying.map(|rekeying| Rekeying { rows, ..rekeying });
            }
            CopyChange::Finish { filler, partitions, .. }
                if is_filling && copy.filler == filler =>
            {
                let source = catalog.table_by_id(copy.source);
                let mut routes = source.iter().flat_map(|source| source.partitions.routes());
                if !routes.all(|route| partitions.contains(&route.partition)) {
                    return Ok(false);
                }
                next.state = CopyState::InStep;
            }
            CopyChange::Lose { reason, .. }
                if !copy.state.is_given_up() && copy.state != CopyState::Retired =>
            {
                next.state = match copy.state {
                    CopyState::Switching => CopyState::Reopening,
                    _ => CopyState::Lost,
                };
                next.reason = Some(reason);
            }
            CopyChange::Replace { beat, .. } => {
                let is_silent = is_filling && beat == Some(copy.beat);
                if copy.state != CopyState::Lost && !is_silent {
                    return Ok(false);
                }
                self.renew_copy(catalog, &table, copy.reason.clone())?;
                return Ok(true);
            }
            CopyChange::Steer { steering, .. } => {
                let is_late = matches!(
                    copy.state,
                    CopyState::Switching | CopyState::Reopening | CopyState::Retired
                );
                let Some(rekeying) = next.rekeying.as_mut().filter(|_| !is_late) else {
                    return Ok(false);
                };
                match steering {
                    Steering::Pause => rekeying.is_paused = true,
                    Steering::Resume => rekeying.is_paused = false,
                    Steering::Throttle(rows_per_second) => {
                        rekeying.rows_per_second = rows_per_second;
                    }
                    Steering::Cancel => return drop_table(catalog, &table, false),
                }
            }
            CopyChange::Switch { .. }
                if copy.state == CopyState::InStep
                    && copy.rekeying.is_some_and(|rekeying| !rekeying.is_paused) =>
            {
                next.state = CopyState::Switching;
            }
            CopyChange::Exchange { partitions, .. } if copy.state == CopyState::Switching => {
                return Ok(exchange(catalog, &table, next, &partitions));
            }
            CopyChange::Reopened { .. } if copy.state == CopyState::Reopening => {
                next.state = CopyState::Lost;
            }
            CopyChange::Discard { .. } if copy.state == CopyState::Retired => {
                return drop_table(catalog, &table, false);
            }
            _ => return Ok(false),
        }
        let mut changed = Table::clone(&table);
        changed.copy = Some(Arc::new(next));
        super::put_table(catalog, changed);
        Ok(true)
    }

    /// Puts a new, empty table in the place of a copy.
    pub(super) fn renew_copy(
        &self,
        catalog: &mut Catalog,
        table: &Table,
        reason: Option<String>,
    ) -> Result<(), Error> {
        let Some(copy) = &table.copy else { return Ok(()) };
        let starts = table.partitions.routes().iter().skip(1);
        let new = NewTable {
            database: table.database.clone(),
            name: table.name.clone(),
            schema: table.schema.as_ref().clone(),
            placement: table.placement.clone(),
            cuts: starts.map(|route| route.range.start.clone()).collect(),
            owner: table.owner,
            copy_of: Some(copy.source),
            rekeys: copy.is_rekeying(),
            sequences: Vec::new(),
        };
        self.create_table(catalog, new)?;
        let tables = catalog.tables.entry(table.database.clone()).or_default();
        if let Some(renewed) = tables.get_mut(&table.name)
            && let Some(state) = &mut Arc::make_mut(renewed).copy
        {
            let state = Arc::make_mut(state);
            (state.fills, state.reason) = (copy.fills + 1, reason);
        }
        Ok(())
    }
}

/// Exchanges key, placement and partitions of a copy and its source. False if a partition is missing.
fn exchange(
    catalog: &mut Catalog,
    copy: &Table,
    mut state: CopyOf,
    partitions: &[PartitionId],
) -> bool {
    let Some(source) = catalog.table_by_id(state.source).map(Arc::clone) else { return false };
    if !source.partitions.routes().iter().all(|route| partitions.contains(&route.partition)) {
        return false;
    }
    let version = source.schema.version.max(copy.schema.version).next();
    let exchanged = |table: &Table, layout: &Table| Table {
        schema: Arc::new(TableSchema { version, ..TableSchema::clone(&layout.schema) }),
        placement: layout.placement.clone(),
        partitions: Arc::clone(&layout.partitions),
        ..table.clone()
    };
    state.state = CopyState::Retired;
    let retired = Table { copy: Some(Arc::new(state)), ..exchanged(copy, &source) };
    super::put_table(catalog, exchanged(&source, copy));
    super::put_table(catalog, retired);
    true
}

/// State of a copy that is made now.
pub(super) fn new_copy(source: TableId, rekeys: bool) -> Arc<CopyOf> {
    Arc::new(CopyOf::new(source, rekeys.then(Rekeying::default)))
}

/// The copies of a table.
pub(super) fn copies_of(catalog: &Catalog, table: &Table) -> Vec<Arc<Table>> {
    catalog.copies_of(table.id).map(Arc::clone).collect()
}

/// Drops a table, with its copies and the views that read it if it may have any.
pub(super) fn drop_table(
    catalog: &mut Catalog,
    table: &Table,
    cascade: bool,
) -> Result<bool, Error> {
    let copies = copies_of(catalog, table);
    let is_rekeying =
        |table: &Arc<Table>| table.copy.as_ref().is_some_and(|copy| copy.is_rekeying());
    let views = catalog.views_of(&table.database, &table.name);
    let views: Vec<_> = views.map(|view| (view.database.clone(), view.name.clone())).collect();
    let is_free = copies.iter().all(is_rekeying) && views.is_empty();
    if !is_free && !cascade {
        let name = &table.name;
        let message = format!("cannot drop table \"{name}\" because other objects depend on it");
        return Err(Error::Dependents { message, hint: String::new() });
    }
    for (database, name) in views {
        catalog.tables.entry(database).or_default().remove(&name);
    }
    let stays =
        |sequence: &Arc<Sequence>| sequence.column.is_none_or(|column| column.table != table.id);
    Arc::make_mut(&mut catalog.sequences).retain(|_, sequence| stays(sequence));
    let tables = catalog.tables.entry(table.database.clone()).or_default();
    copies.iter().for_each(|copy| drop(tables.remove(&copy.name)));
    Ok(tables.remove(&table.name).is_some())
}
