//! Transfers the catalog to its watchers: complete at first, then by changes.
//!
//! ```text
//!   catalog before ─┐
//!   catalog now ────┴─ parts_between ─▶ parts ─▶ Follower ─▶ the same catalog now
//! ```
//!
//! A change is cut into parts of bounded size, the last of which carries the version; only then is the catalog complete
//! again, and only then does [`Follower::take`] return it. Databases and tables that two catalogs share are shared
//! pointers, so that finding the changes among ten thousand tables takes ten thousand comparisons of pointers.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;

use super::{Wire, pb};
use crate::catalog::{Catalog, Database, Table};
use crate::error::Error;

/// Size at which a part is closed. A table is never cut, so a part may be larger by one table: 4096 partitions are
/// below 1 MiB.
const PART_BYTES: usize = 256 << 10;

/// The parts that turn the `previous` catalog into the `current` one; without a previous one, all of it.
pub fn parts_between(previous: Option<&Catalog>, current: &Catalog) -> Vec<pb::CatalogPart> {
    let mut parts = Parts::new(previous.is_none());
    if let Some(previous) = previous {
        for name in previous.databases.keys().filter(|name| !current.databases.contains_key(*name))
        {
            parts.grow(name.len()).databases_gone.push(name.clone());
        }
        for (database, name) in tables(previous).map(|(names, _)| names) {
            if current.table(database, name).is_none() {
                let message =
                    pb::TableName { database: database.to_owned(), name: name.to_owned() };
                parts.grow(message.encoded_len()).tables_gone.push(message);
            }
        }
    }
    for (name, database) in &current.databases {
        let earlier = previous.and_then(|previous| previous.databases.get(name));
        if !earlier.is_some_and(|earlier| same(earlier, database)) {
            let message = database.to_wire();
            parts.grow(message.encoded_len()).databases.push(message);
        }
    }
    for ((database, name), table) in tables(current) {
        let earlier = previous.and_then(|previous| previous.table(database, name));
        if !earlier.is_some_and(|earlier| same(earlier, table)) {
            let message = table.to_wire();
            parts.grow(message.encoded_len()).tables.push(message);
        }
    }
    parts.finish(current.version)
}

fn same<T: PartialEq>(a: &Arc<T>, b: &Arc<T>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

/// All tables with the names under which they are found.
fn tables(catalog: &Catalog) -> impl Iterator<Item = ((&str, &str), &Arc<Table>)> {
    catalog.tables.iter().flat_map(|(database, tables)| {
        let of_table = |(name, table)| ((database.as_str(), String::as_str(name)), table);
        tables.iter().map(of_table)
    })
}

/// Parts under construction.
struct Parts {
    parts: Vec<pb::CatalogPart>,
    last: pb::CatalogPart,
    bytes: usize,
}

impl Parts {
    fn new(reset: bool) -> Self {
        let last = pb::CatalogPart { reset, ..pb::CatalogPart::default() };
        Self { parts: Vec::new(), last, bytes: 0 }
    }

    /// The part to which an item of this size is added.
    fn grow(&mut self, bytes: usize) -> &mut pb::CatalogPart {
        if self.bytes >= PART_BYTES {
            self.parts.push(std::mem::take(&mut self.last));
            self.bytes = 0;
        }
        self.bytes += bytes;
        &mut self.last
    }

    fn finish(mut self, version: u64) -> Vec<pb::CatalogPart> {
        self.last.version = version;
        self.parts.push(self.last);
        self.parts
    }
}

/// Assembles a catalog from parts.
#[derive(Debug, Default)]
pub struct Follower {
    draft: Catalog,
}

impl Follower {
    /// A follower that already has a catalog.
    pub fn of(catalog: &Catalog) -> Self {
        Self { draft: catalog.clone() }
    }

    /// Applies a part; returns the catalog, when it was the last part of its change.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when it is invalid. Use a new follower then: half of a part may have been applied.
    pub fn take(&mut self, part: pb::CatalogPart) -> Result<Option<Catalog>, Error> {
        if part.reset {
            self.draft = Catalog::default();
        }
        // First remove what is gone, then add or replace; only the last part of a change has a version.
        for name in part.databases_gone {
            self.draft.databases.remove(&name);
        }
        for table in part.tables_gone {
            if let Some(tables) = self.draft.tables.get_mut(&table.database) {
                tables.remove(&table.name);
                if tables.is_empty() {
                    self.draft.tables.remove(&table.database);
                }
            }
        }
        for message in part.databases {
            let database = Database::from_wire(message)?;
            self.draft.databases.insert(database.name.clone(), Arc::new(database));
        }
        for message in part.tables {
            let table = Table::from_wire(message)?;
            let tables: &mut BTreeMap<_, _> =
                self.draft.tables.entry(table.database.clone()).or_default();
            tables.insert(table.name.clone(), Arc::new(table));
        }
        if part.version == 0 {
            return Ok(None);
        }
        self.draft.version = part.version;
        Ok(Some(self.draft.clone()))
    }
}
