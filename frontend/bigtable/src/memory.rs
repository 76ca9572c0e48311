//! Tables in memory, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use parking_lot::Mutex;
use partita_proto::access::Identity;
use partita_proto::wide::{
    CellKey, Family, FamilyChange, ReadModify, RowChange, RowMutation, Version, Wide,
};
use tonic::Status;

use crate::cell::{Cell, Row};
use crate::names::TableName;
use crate::rows::KeySpan;
use crate::status::refused;
use crate::store::{Check, Computation, KeySample, RowStream, Scan, WideStore, WideTable};

/// The time of garbage collection and of new cells, in microseconds.
pub(crate) const NOW_US: i64 = 1_000_000_000;

/// Cells of a row by their place.
type Cells = BTreeMap<CellKey, Vec<u8>>;

#[derive(Default)]
struct Stored {
    wide: Wide,
    cuts: Vec<Bytes>,
    rows: BTreeMap<Bytes, Cells>,
}

/// Tables by instance and name.
#[derive(Default)]
pub(crate) struct Memory {
    tables: Mutex<BTreeMap<(String, String), Stored>>,
    /// Computations that were done.
    pub(crate) computations: AtomicUsize,
}

impl Memory {
    /// Does something with a table.
    fn with<T>(&self, name: &TableName, work: impl FnOnce(&mut Stored) -> T) -> Result<T, Status> {
        let mut tables = self.tables.lock();
        let key = (name.instance.clone(), name.table.clone());
        let stored = tables.get_mut(&key);
        stored
            .map(work)
            .ok_or_else(|| Status::not_found(format!("table \"{name}\" does not exist")))
    }
}

impl Stored {
    /// The row with a key, without garbage.
    fn row(&self, key: &Bytes) -> Row {
        let stored = self.rows.get(key).into_iter().flatten();
        let cells = stored.map(|(place, value)| Cell {
            family: place.family.as_str().into(),
            qualifier: Bytes::copy_from_slice(&place.qualifier),
            timestamp_us: place.timestamp,
            value: Bytes::copy_from_slice(value),
            label: None,
        });
        let mut cells: Vec<Cell> = cells.collect();
        cells.sort_by(|first, second| first.position().cmp(&second.position()));
        let mut number = 0;
        let mut column = None;
        cells.retain(|cell| {
            let present = Some((Arc::clone(&cell.family), cell.qualifier.clone()));
            number = if column == present { number + 1 } else { 1 };
            column = present;
            let rule = self.wide.family(&cell.family).and_then(|family| family.gc.as_ref());
            let version = Version { number, timestamp: cell.timestamp_us };
            !rule.is_some_and(|rule| rule.collects(version, NOW_US))
        });
        Row { key: key.clone(), cells }
    }

    fn apply(&mut self, mutation: &RowMutation) -> Result<(), Status> {
        let cells = self.rows.entry(mutation.row_key.clone().into()).or_default();
        let change = mutation.change(&self.wide, (&*cells, &BTreeSet::new()), NOW_US);
        let RowChange { written, removed } = change.map_err(|error| refused(&error))?;
        cells.retain(|place, _| !removed.contains(place));
        cells.extend(written);
        Ok(())
    }
}

#[async_trait]
impl WideStore for Memory {
    async fn tables(&self, _: Identity, instance: &str) -> Result<Vec<WideTable>, Status> {
        let tables = self.tables.lock();
        let of_instance = tables.iter().filter(|((name, _), _)| name == instance);
        let table = |((_, table), stored): (&(String, String), &Stored)| WideTable {
            table: table.clone(),
            wide: stored.wide.clone(),
        };
        Ok(of_instance.map(table).collect())
    }

    async fn table(&self, _: Identity, name: &TableName) -> Result<WideTable, Status> {
        self.with(name, |stored| WideTable { table: name.table.clone(), wide: stored.wide.clone() })
    }

    async fn create(
        &self,
        _: Identity,
        name: &TableName,
        families: Vec<Family>,
        cuts: Vec<Bytes>,
    ) -> Result<(), Status> {
        let mut tables = self.tables.lock();
        let key = (name.instance.clone(), name.table.clone());
        if tables.contains_key(&key) {
            return Err(Status::already_exists(format!("table \"{name}\" already exists")));
        }
        let wide = Wide { families, ..Wide::default() };
        tables.insert(key, Stored { wide, cuts, rows: BTreeMap::new() });
        Ok(())
    }

    async fn alter(
        &self,
        _: Identity,
        name: &TableName,
        changes: Vec<FamilyChange>,
    ) -> Result<(), Status> {
        let missing =
            |name: &str| Status::not_found(format!("column family \"{name}\" does not exist"));
        self.with(name, |stored| -> Result<(), Status> {
            let mut families = stored.wide.families.clone();
            for change in changes {
                match change {
                    FamilyChange::Create(family) => {
                        if families.iter().any(|present| present.name == family.name) {
                            return Err(Status::already_exists("the column family already exists"));
                        }
                        families.push(family);
                    }
                    FamilyChange::Update(family) => {
                        let present =
                            families.iter_mut().find(|present| present.name == family.name);
                        let present = present.ok_or_else(|| missing(&family.name))?;
                        present.gc = family.gc;
                    }
                    FamilyChange::Drop(name) => {
                        let index = families.iter().position(|present| present.name == name);
                        families.remove(index.ok_or_else(|| missing(&name))?);
                        for cells in stored.rows.values_mut() {
                            cells.retain(|place, _| place.family != name);
                        }
                    }
                    FamilyChange::Cleared(_) => {}
                }
            }
            stored.wide.families = families;
            Ok(())
        })?
    }

    async fn drop_table(&self, _: Identity, name: &TableName) -> Result<(), Status> {
        self.with(name, |_| ())?;
        self.tables.lock().remove(&(name.instance.clone(), name.table.clone()));
        Ok(())
    }

    async fn drop_rows(&self, _: Identity, name: &TableName, span: KeySpan) -> Result<(), Status> {
        self.with(name, |stored| stored.rows.retain(|key, _| !span.contains(key)))
    }

    async fn samples(&self, _: Identity, name: &TableName) -> Result<Vec<KeySample>, Status> {
        self.with(name, |stored| {
            let bytes = |end: Option<&Bytes>| {
                let rows = stored.rows.iter().filter(|(key, _)| end.is_none_or(|cut| *key < cut));
                rows.flat_map(|(_, cells)| cells.values())
                    .map(|value| value.len() as u64)
                    .sum::<u64>()
            };
            let cuts = stored.cuts.iter();
            let cuts = cuts.map(|cut| KeySample { key: cut.clone(), bytes: bytes(Some(cut)) });
            cuts.chain([KeySample { key: Bytes::new(), bytes: bytes(None) }]).collect()
        })
    }

    async fn mutate(
        &self,
        _: Identity,
        name: &TableName,
        rows: Vec<RowMutation>,
    ) -> Result<Vec<Result<(), Status>>, Status> {
        self.with(name, |stored| rows.iter().map(|row| stored.apply(row)).collect())
    }

    async fn check_and_mutate(
        &self,
        _: Identity,
        name: &TableName,
        row_key: Bytes,
        check: Check,
    ) -> Result<bool, Status> {
        self.with(name, |stored| -> Result<bool, Status> {
            let decided = check.decide(stored.row(&row_key));
            let (is_matched, mutation) =
                decided.map_err(|error| Status::resource_exhausted(error.to_string()))?;
            if let Some(mutation) = mutation {
                stored.apply(mutation)?;
            }
            Ok(is_matched)
        })?
    }

    async fn read_modify(
        &self,
        _: Identity,
        name: &TableName,
        request: ReadModify,
    ) -> Result<Cells, Status> {
        self.with(name, |stored| -> Result<Cells, Status> {
            let cells = stored.rows.entry(request.row_key.clone().into()).or_default();
            let written = request.change(cells, NOW_US);
            let written = written.map_err(|error| Status::invalid_argument(error.to_string()))?;
            cells.extend(written.clone());
            Ok(written)
        })?
    }

    async fn scan(&self, _: Identity, name: &TableName, scan: Scan) -> Result<RowStream, Status> {
        let mut rows = self.with(name, |stored| {
            let entries = scan.spans.iter().flat_map(|span| {
                let end = span.end.clone().map_or(Bound::Unbounded, Bound::Excluded);
                stored.rows.range((Bound::Included(span.start.clone()), end))
            });
            let keys: Vec<Bytes> = entries.map(|(key, _)| key.clone()).collect();
            keys.iter().map(|key| stored.row(key)).collect::<Vec<Row>>()
        })?;
        rows.retain(|row| !row.cells.is_empty());
        if scan.is_reversed {
            rows.reverse();
        }
        rows.truncate(scan.rows_max.map_or(usize::MAX, |most| usize::try_from(most).unwrap()));
        Ok(stream::iter(rows.into_iter().map(|row| Ok(vec![row]))).boxed())
    }

    async fn compute(&self, work: Computation) -> Result<(), Status> {
        self.computations.fetch_add(1, Ordering::Relaxed);
        work();
        Ok(())
    }
}
