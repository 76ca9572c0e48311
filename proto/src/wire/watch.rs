//! Transfers the catalog to its watchers: complete at first, then by changes.
//!
//! ```text
//!   catalog before ─┐
//!   catalog now ────┴─ parts_between ─▶ parts ─▶ Follower ─▶ the same catalog now
//! ```
//!
//! A change is cut into parts of bounded size, the last of which carries the version; only then is the catalog complete
//! again, and only then does [`Follower::take`] return it. Databases and tables that two catalogs share are shared
//! pointers, so that finding the changes among ten thousand tables takes ten thousand comparisons of pointers. So are
//! roles, grants, organisations, tokens, tasks and sequences, of which only those that changed are sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message;

use super::{Wire, pb};
use crate::access::{Access, Grant, Org, Role, Secrets, Target, Token};
use crate::catalog::{Catalog, Database, Table};
use crate::error::Error;
use crate::id::{OrgId, RoleId, SequenceId, TaskId, TokenId};
use crate::sequence::Sequence;
use crate::task::TaskEntry;

/// Size at which a part is closed. A table is never cut, so a part may be larger by one table: 4096 partitions are
/// below 1 MiB.
const PART_BYTES: usize = 256 << 10;

/// The parts that turn the `previous` catalog into the `current` one; without a previous one, all of it.
pub fn parts_between(previous: Option<&Catalog>, current: &Catalog) -> Vec<pb::CatalogPart> {
    let mut parts = public_parts(previous, current);
    // A catalog that starts anew includes the access, even if it is empty.
    if !previous.is_some_and(|previous| same(&previous.access, &current.access)) {
        let nothing = Access::default();
        let earlier = previous.map(|previous| previous.access.as_ref());
        put_access(&mut parts, earlier.unwrap_or(&nothing), &current.access);
    }
    put_tasks(&mut parts, previous, current);
    put_sequences(&mut parts, previous, current);
    parts.finish(current.version)
}

/// As [`parts_between`], without access, tasks and sequences: for processes that check no rights and are to hold no secrets.
pub fn public_parts_between(previous: Option<&Catalog>, current: &Catalog) -> Vec<pb::CatalogPart> {
    public_parts(previous, current).finish(current.version)
}

/// The parts of databases and tables, unfinished.
fn public_parts(previous: Option<&Catalog>, current: &Catalog) -> Parts {
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
    parts
}

/// Adds tasks that differ between two catalogs.
fn put_tasks(parts: &mut Parts, previous: Option<&Catalog>, current: &Catalog) {
    let earlier = previous.map(|previous| &previous.tasks);
    if earlier.is_some_and(|earlier| Arc::ptr_eq(earlier, &current.tasks)) {
        return;
    }
    let ids = earlier.into_iter().flat_map(|earlier| earlier.keys());
    for id in ids.filter(|id| !current.tasks.contains_key(*id)) {
        parts.grow(5).tasks_gone.push(id.0);
    }
    for (id, entry) in current.tasks.iter() {
        let twin = earlier.and_then(|earlier| earlier.get(id));
        if !twin.is_some_and(|twin| same(twin, entry)) {
            let message = entry.to_wire();
            parts.grow(message.encoded_len()).tasks.push(message);
        }
    }
}

/// Adds sequences that differ between two catalogs.
fn put_sequences(parts: &mut Parts, previous: Option<&Catalog>, current: &Catalog) {
    let earlier = previous.map(|previous| &previous.sequences);
    if earlier.is_some_and(|earlier| Arc::ptr_eq(earlier, &current.sequences)) {
        return;
    }
    let ids = earlier.into_iter().flat_map(|earlier| earlier.keys());
    for id in ids.filter(|id| !current.sequences.contains_key(*id)) {
        parts.grow(5).sequences_gone.push(id.0);
    }
    for (id, sequence) in current.sequences.iter() {
        let twin = earlier.and_then(|earlier| earlier.get(id));
        if !twin.is_some_and(|twin| same(twin, sequence)) {
            let message = sequence.to_wire();
            parts.grow(message.encoded_len()).sequences.push(message);
        }
    }
}

/// Adds what differs between two accesses.
fn put_access(parts: &mut Parts, earlier: &Access, current: &Access) {
    let part = parts.grow_access(80);
    part.version = current.version;
    part.secrets = Some(current.secrets.to_wire());
    let is_gone = |role: &&Arc<Role>| current.role(role.id).is_none();
    for role in earlier.roles().unlike(current.roles()).filter(is_gone) {
        parts.grow_access(5).roles_gone.push(role.id.0);
    }
    let is_gone = |grant: &&Arc<Grant>| current.grant(grant.target()).is_none();
    for grant in earlier.grants_unlike(current).filter(is_gone) {
        parts.grow_access(8).grants_gone.push(grant.target().to_wire());
    }
    for org in earlier.orgs().filter(|org| current.org(org.id).is_none()) {
        parts.grow_access(8).orgs_gone.push(org.id.get());
    }
    for token in earlier.tokens_unlike(current).filter(|token| current.token(token.id).is_none()) {
        parts.grow_access(8).tokens_gone.push(token.id.get());
    }
    for role in current.roles().unlike(earlier.roles()) {
        let message = role.to_wire();
        parts.grow_access(message.encoded_len()).roles.push(message);
    }
    for grant in current.grants_unlike(earlier) {
        let message = grant.to_wire();
        parts.grow_access(message.encoded_len()).grants.push(message);
    }
    let is_new = |org: &&Arc<Org>| !earlier.org(org.id).is_some_and(|twin| same(twin, org));
    for org in current.orgs().filter(is_new) {
        let message = org.to_wire();
        parts.grow_access(message.encoded_len()).orgs.push(message);
    }
    for token in current.tokens_unlike(earlier) {
        let message = token.to_wire();
        parts.grow_access(message.encoded_len()).tokens.push(message);
    }
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

    /// As [`Parts::grow`], for an item of the access.
    fn grow_access(&mut self, bytes: usize) -> &mut pb::AccessPart {
        self.grow(bytes).access.get_or_insert_default()
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
        if let Some(part) = part.access {
            take_access(Arc::make_mut(&mut self.draft.access), part)?;
        }
        if !part.tasks_gone.is_empty() || !part.tasks.is_empty() {
            let tasks = Arc::make_mut(&mut self.draft.tasks);
            for id in part.tasks_gone {
                tasks.remove(&TaskId(id));
            }
            for message in part.tasks {
                let entry = TaskEntry::from_wire(message)?;
                tasks.insert(entry.task.id, Arc::new(entry));
            }
        }
        if !part.sequences_gone.is_empty() || !part.sequences.is_empty() {
            let sequences = Arc::make_mut(&mut self.draft.sequences);
            for id in part.sequences_gone {
                sequences.remove(&SequenceId(id));
            }
            for message in part.sequences {
                let sequence = Sequence::from_wire(message)?;
                sequences.insert(sequence.id, Arc::new(sequence));
            }
        }
        if part.version == 0 {
            return Ok(None);
        }
        self.draft.version = part.version;
        Ok(Some(self.draft.clone()))
    }
}

/// Applies a part of a change of the access. Its version comes with the first part.
fn take_access(access: &mut Access, part: pb::AccessPart) -> Result<(), Error> {
    if let Some(secrets) = part.secrets {
        access.version = part.version;
        access.secrets = Secrets::from_wire(secrets)?;
    }
    for id in part.roles_gone {
        access.drop_role(RoleId(id));
    }
    for target in part.grants_gone {
        access.drop_grant(Target::from_wire(target)?);
    }
    for id in part.orgs_gone.into_iter().filter_map(OrgId::new) {
        access.drop_org(id);
    }
    for id in part.tokens_gone.into_iter().filter_map(TokenId::new) {
        access.drop_token(id);
    }
    for role in part.roles {
        access.put_role(Role::from_wire(role)?);
    }
    for grant in part.grants {
        access.put_grant(Grant::from_wire(grant)?);
    }
    for org in part.orgs {
        access.put_org(Org::from_wire(org)?);
    }
    for token in part.tokens {
        access.put_token(Token::from_wire(token)?);
    }
    Ok(())
}
