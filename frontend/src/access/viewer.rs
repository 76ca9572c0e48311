//! The cluster as one session or request sees it.
//!
//! ```text
//!   Identity ──┐
//!              ├─▶ Viewer ──┬── catalog: what the identity may see; names resolve here only
//!   catalog ───┘            ├── sight:   rows of a table that it may see
//!                           └── check:   needs of a statement ─▶ Permit
//! ```
//!
//! A materialized copy has the rows of its source, so the rights on the source decide who may read either, and an
//! identity that sees the source sees its copies.
//!
//! Visible catalogs are shared by all viewers of an identity and forgotten with the catalog that they were made from.
//! That of a superuser is the catalog itself. Those that viewers have looked at stay, as many as there are viewers; of
//! the others `IDENTITIES_MAX` stay, and a new one takes the place of any.
//!
//! Invariants:
//! - every answer is by the newest catalog, so that a right that was revoked is gone for open sessions too;
//! - without a viewer, a table of the system has no rows but an error.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use datafusion::catalog::Session;
use parking_lot::Mutex;
use partita_proto::Error;
use partita_proto::access::{
    Access, Action, Denied, Identity, Need, Object, Permit, RowPredicate, Sight, check,
    check_through, sight, sight_through, sights, visible,
};
use partita_proto::catalog::{Catalog, Database, Table};
use partita_proto::id::{RoleId, TableId};
use partita_proto::materialized::CopyOf;

use crate::access::peer;
use crate::audit::Origin;
use crate::error::SqlError;
use crate::held::Held;
use crate::temporary::TemporaryTables;
use crate::view::ClusterView;

/// SQLSTATE of an action that is not permitted.
const INSUFFICIENT_PRIVILEGE: &str = "42501";
/// Maximum identities whose visible catalogs are kept, unless their viewers are.
const IDENTITIES_MAX: usize = 1_024;

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}

/// The catalog as one identity sees it.
struct Seen {
    source: Arc<Catalog>,
    identity: Identity,
    catalog: Arc<Catalog>,
    /// By table, computed when they are first needed.
    sights: OnceLock<HashMap<TableId, Sight>>,
}

impl Seen {
    fn new(source: &Arc<Catalog>, identity: &Identity) -> Self {
        let catalog = visible(source, &source.access, identity, now_ms());
        let catalog = with_copies(source, catalog);
        let sights = OnceLock::new();
        Self { source: Arc::clone(source), identity: *identity, catalog, sights }
    }

    fn is_of(&self, source: &Arc<Catalog>, identity: &Identity) -> bool {
        Arc::ptr_eq(&self.source, source) && self.identity == *identity
    }

    fn sight_of(&self, table: TableId) -> Sight {
        let all = || {
            let catalog = &self.source;
            let mut sights = sights(catalog, &catalog.access, &self.identity, now_ms());
            for table in catalog.tables.values().flat_map(BTreeMap::values) {
                if let Some(copy) = &table.copy {
                    let of_source = sights.get(&copy.source).cloned().unwrap_or(Sight::None);
                    sights.insert(table.id, of_source);
                }
            }
            sights
        };
        self.sights.get_or_init(all).get(&table).cloned().unwrap_or(Sight::None)
    }
}

/// A visible catalog with the copies of the tables in it. `source` is the catalog that it was reduced from.
fn with_copies(source: &Arc<Catalog>, visible: Arc<Catalog>) -> Arc<Catalog> {
    if Arc::ptr_eq(source, &visible) {
        return visible;
    }
    let tables_of = |catalog: &Arc<Catalog>| {
        let tables = catalog.tables.values().flat_map(BTreeMap::values);
        tables.map(Arc::clone).collect::<Vec<_>>()
    };
    let visible_ids: HashSet<TableId> = tables_of(&visible).iter().map(|table| table.id).collect();
    let mut missing = tables_of(source);
    missing.retain(|table| {
        let is_of_visible = |copy: &Arc<CopyOf>| visible_ids.contains(&copy.source);
        table.copy.as_ref().is_some_and(is_of_visible) && !visible_ids.contains(&table.id)
    });
    if missing.is_empty() {
        return visible;
    }
    let mut extended = Catalog::clone(&visible);
    for table in missing {
        let tables = extended.tables.entry(table.database.clone()).or_default();
        tables.insert(table.name.clone(), table);
    }
    Arc::new(extended)
}

/// Id of the table whose rights decide who may read a table: that of its source for a copy.
pub(crate) fn readable_as(table: &Table) -> TableId {
    table.copy.as_ref().map_or(table.id, |copy| copy.source)
}

/// Visible catalogs of the newest catalog, by identity.
#[derive(Default)]
pub(crate) struct VisibleCatalogs(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// Catalog that all of them were made from.
    source: Option<Arc<Catalog>>,
    seen: HashMap<Identity, Arc<Seen>>,
}

impl VisibleCatalogs {
    fn get(&self, source: &Arc<Catalog>, identity: &Identity) -> Arc<Seen> {
        if let Some(seen) = self.0.lock().find(source, identity) {
            return seen;
        }
        // Computed without the lock: a large catalog takes a while.
        let seen = Arc::new(Seen::new(source, identity));
        self.0.lock().keep(&seen);
        seen
    }
}

impl Kept {
    fn find(&self, source: &Arc<Catalog>, identity: &Identity) -> Option<Arc<Seen>> {
        self.seen.get(identity).filter(|seen| seen.is_of(source, identity)).map(Arc::clone)
    }

    fn keep(&mut self, seen: &Arc<Seen>) {
        match &self.source {
            Some(source) if Arc::ptr_eq(source, &seen.source) => {}
            // Computed while a newer catalog came.
            Some(source) if source.version > seen.source.version => return,
            _ => {
                self.source = Some(Arc::clone(&seen.source));
                self.seen.clear();
            }
        }
        if !self.seen.contains_key(&seen.identity) {
            self.make_room();
        }
        self.seen.insert(seen.identity, Arc::clone(seen));
    }

    /// Forgets any of those that no viewer has looked at last, until there is room for one more or none is left. The
    /// least recently used one would be a bad choice: requests of more identities in turn would find none.
    fn make_room(&mut self) {
        let excess = (self.seen.len() + 1).saturating_sub(IDENTITIES_MAX);
        if excess == 0 {
            return;
        }
        let is_idle = |(_, seen): &(&Identity, &Arc<Seen>)| Arc::weak_count(seen) == 0;
        let idle = self.seen.iter().filter(is_idle).take(excess);
        let idle: Vec<Identity> = idle.map(|(identity, _)| *identity).collect();
        for identity in idle {
            self.seen.remove(&identity);
        }
    }
}

/// What one session or request sees: its identity, and catalog and rights as of now.
pub struct Viewer {
    view: Arc<ClusterView>,
    shared: Arc<VisibleCatalogs>,
    identity: Mutex<Identity>,
    /// The visible catalog of its last look, while that is kept: an idle session must not hold an old catalog.
    last: Mutex<Weak<Seen>>,
    /// Address of the client for which it was made.
    peer: Option<IpAddr>,
    temporary: TemporaryTables,
    held: Arc<Held>,
}

impl fmt::Debug for Viewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Viewer").field(&self.identity()).finish()
    }
}

impl Viewer {
    pub(crate) fn new(
        view: Arc<ClusterView>,
        shared: Arc<VisibleCatalogs>,
        identity: Identity,
    ) -> Arc<Self> {
        let (identity, last) = (Mutex::new(identity), Mutex::default());
        let (temporary, held) = (TemporaryTables::default(), Arc::default());
        Arc::new(Self { view, shared, identity, last, peer: peer::current(), temporary, held })
    }

    /// The identity, with the current role.
    pub fn identity(&self) -> Identity {
        *self.identity.lock()
    }

    /// The temporary tables of the session.
    pub(crate) fn temporary(&self) -> &TemporaryTables {
        &self.temporary
    }

    /// Prepared statements and cursors of the session.
    pub fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// The identity, and the address of its client.
    pub(crate) fn origin(&self) -> Origin {
        Origin { identity: self.identity(), peer: self.peer }
    }

    /// Changes the current role; `None`: to the role that the session began as. The caller has checked that the
    /// identity may become it.
    pub fn act_as(&self, role: Option<RoleId>) {
        self.identity.lock().acting = role;
    }

    /// Expects that this session is about to change the password of the role that it began as, and goes on. Other
    /// sessions of the role end. The expectation is taken back unless the change is confirmed.
    pub(crate) fn expect_secret(&self) -> ExpectedSecret<'_> {
        self.identity.lock().secret_version += 1;
        ExpectedSecret { viewer: self, is_confirmed: false }
    }

    /// Roles, grants and tokens of the newest catalog.
    pub fn access(&self) -> Arc<Access> {
        Arc::clone(&self.view.catalog().access)
    }

    /// The newest catalog without what the identity may not see.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.seen().catalog)
    }

    fn seen(&self) -> Arc<Seen> {
        let (newest, identity) = (self.view.catalog(), self.identity());
        let last = self.last.lock().upgrade();
        if let Some(seen) = last.filter(|seen| seen.is_of(&newest, &identity)) {
            return seen;
        }
        let seen = self.shared.get(&newest, &identity);
        *self.last.lock() = Arc::downgrade(&seen);
        seen
    }

    /// The part of a table that the identity sees.
    pub fn sight(&self, database: &Database, table: &Table) -> Sight {
        let catalog = self.view.catalog();
        let Some(table) = source_of(&catalog, table) else { return Sight::None };
        sight(&catalog.access, &self.identity(), now_ms(), database, table)
    }

    /// The part of a table of the newest catalog that the identity sees; nothing of a table that does not exist.
    pub fn sight_of(&self, table: TableId) -> Sight {
        self.seen().sight_of(table)
    }

    /// True if the identity may see the work and state of others.
    pub fn monitors(&self) -> bool {
        self.check(&[Need::new(Action::Monitor, Object::Cluster)]).is_ok()
    }

    /// Checks that the identity may do all of these things now.
    ///
    /// # Errors
    /// 42501 when it may not, the error of a missing object when it may not see the object, and 28000 when the identity
    /// is no longer valid.
    pub fn check(&self, needs: &[Need]) -> Result<Permit, SqlError> {
        let catalog = self.view.catalog();
        let needs = with_sources(&catalog, needs)?;
        check(&catalog.access, &self.identity(), now_ms(), &needs)
            .map(|permit| permit.at_peer(self.peer))
            .map_err(|refusal| Error::from(self.shown(refusal, &needs)).into())
    }

    /// The part of a table that the identity sees through a view of `owner`.
    pub(crate) fn sight_through(&self, owner: RoleId, database: &Database, table: &Table) -> Sight {
        let catalog = self.view.catalog();
        let Some(table) = source_of(&catalog, table) else { return Sight::None };
        sight_through(&catalog.access, &self.identity(), now_ms(), owner, database, table)
    }

    /// Checks that the identity may do these things through a view of `owner`, and returns the predicates that the reads
    /// must apply, by table.
    ///
    /// # Errors
    /// 42501 when the owner may not, and 28000 when the identity is no longer valid.
    pub(crate) fn check_through(
        &self,
        owner: RoleId,
        needs: &[Need],
    ) -> Result<BTreeMap<TableId, RowPredicate>, SqlError> {
        let catalog = self.view.catalog();
        let needs = with_sources(&catalog, needs)?;
        check_through(&catalog.access, &self.identity(), now_ms(), owner, &needs)
            .map_err(|refusal| Error::from(refusal).into())
    }

    /// The refusal, with the name of a database in which the identity sees a table: it is not hidden then. Neither is a
    /// copy whose source it sees.
    fn shown(&self, refusal: Denied, needs: &[Need]) -> Denied {
        let catalog = self.catalog();
        let copy_need = |name: &str| {
            needs.iter().find(|need| match &need.object {
                Object::Table { table, .. } => {
                    table.copy.is_some()
                        && table.name == name
                        && catalog.table_by_id(table.id).is_some()
                }
                _ => false,
            })
        };
        match refusal {
            Denied::NotVisible { kind: kind @ "table", name } => match copy_need(&name) {
                Some(need) => Denied::NotAllowed { action: need.action, kind, name },
                None => Denied::NotVisible { kind, name },
            },
            Denied::NotVisible { kind: kind @ "database", name }
                if self.catalog().databases.contains_key(&name) =>
            {
                Denied::NotAllowed { action: Action::Create, kind, name }
            }
            refusal => refusal,
        }
    }

    /// A table as the object of a need.
    ///
    /// # Errors
    /// 42P01 when its database was dropped.
    pub(crate) fn object(&self, table: &Arc<Table>) -> Result<Object, SqlError> {
        let catalog = self.view.catalog();
        let database = catalog.databases.get(&table.database);
        let database = database.ok_or_else(|| SqlError::undefined_table(&table.name))?;
        Ok(Object::Table { database: Arc::clone(database), table: Arc::clone(table) })
    }

    /// Checks that the identity may read these tables, by their newest versions.
    pub(crate) fn check_reads(
        &self,
        tables: impl Iterator<Item = TableId>,
    ) -> Result<(), SqlError> {
        let catalog = self.view.catalog();
        let mut needs = Vec::new();
        for id in tables {
            // A table that was dropped since has no rows to protect.
            let Some(table) = catalog.table_by_id(id) else { continue };
            needs.push(Need::new(Action::Select, self.object(table)?));
        }
        self.check(&needs).map(drop)
    }
}

/// Expectation of a password change; see [`Viewer::expect_secret`].
#[must_use = "the expectation is taken back when it is dropped"]
pub(crate) struct ExpectedSecret<'a> {
    viewer: &'a Viewer,
    is_confirmed: bool,
}

impl ExpectedSecret<'_> {
    /// The password was changed.
    pub(crate) fn confirm(mut self) {
        self.is_confirmed = true;
    }
}

impl Drop for ExpectedSecret<'_> {
    fn drop(&mut self) {
        if !self.is_confirmed {
            self.viewer.identity.lock().secret_version -= 1;
        }
    }
}

/// The viewer of the session whose state this is.
///
/// # Errors
/// Fails for a state without a session: nothing is known about who reads then.
pub fn viewer_of(state: &dyn Session) -> Result<Arc<Viewer>, SqlError> {
    let viewer = state.config().get_extension::<Viewer>();
    viewer.ok_or_else(|| SqlError::internal("a system table was read without a session"))
}

/// The table whose rights decide who may read a table; `None` if the source of a copy is gone.
fn source_of<'a>(catalog: &'a Catalog, table: &'a Table) -> Option<&'a Table> {
    match &table.copy {
        Some(copy) => catalog.table_by_id(copy.source).map(Arc::as_ref),
        None => Some(table),
    }
}

/// The needs, with the sources of the copies that are to be read in their place.
fn with_sources<'a>(catalog: &Catalog, needs: &'a [Need]) -> Result<Cow<'a, [Need]>, SqlError> {
    let read_copy = |need: &Need| match (&need.object, need.action) {
        (Object::Table { table, .. }, Action::Select) => {
            table.copy.as_ref().map(|copy| (copy.source, table.name.clone()))
        }
        _ => None,
    };
    if !needs.iter().any(|need| read_copy(need).is_some()) {
        return Ok(Cow::Borrowed(needs));
    }
    let mut replaced = Vec::with_capacity(needs.len());
    for need in needs {
        let mut need = need.clone();
        if let Some((source, name)) = read_copy(&need)
            && let Object::Table { table, .. } = &mut need.object
        {
            let source = catalog.table_by_id(source);
            *table = Arc::clone(source.ok_or_else(|| SqlError::undefined_table(&name))?);
        }
        replaced.push(need);
    }
    Ok(Cow::Owned(replaced))
}

/// Refuses what shows keys or figures of all rows of a table to an identity that may read some of them only, or none.
///
/// # Errors
/// 42501 when the permit restricts the rows, or is not one to read the table.
pub(crate) fn check_all_rows(permit: &Permit, table: &Table) -> Result<(), SqlError> {
    let denied = || {
        let message = format!("permission denied for table {}", table.name);
        SqlError::new(INSUFFICIENT_PRIVILEGE, message)
    };
    let source = readable_as(table);
    if !permit.covers(source, Action::Select) {
        return Err(denied());
    }
    match permit.rows(source) {
        None => Ok(()),
        Some(_) => Err(denied().with_detail("the token is restricted to some rows of the table")),
    }
}

#[cfg(test)]
mod tests {
    use partita_proto::access::Door;

    use super::*;

    fn identity(number: usize) -> Identity {
        Identity {
            login: RoleId(u32::try_from(number).unwrap()),
            acting: None,
            token: None,
            secret_version: 0,
            org: None,
            door: Door::Http,
        }
    }

    fn catalog(version: u64) -> Arc<Catalog> {
        Arc::new(Catalog { version, ..Catalog::default() })
    }

    /// Identities that are kept.
    fn kept(catalogs: &VisibleCatalogs) -> usize {
        catalogs.0.lock().seen.len()
    }

    #[test]
    fn a_new_identity_takes_the_place_of_one() {
        let (catalogs, source) = (VisibleCatalogs::default(), catalog(1));
        let pointers = |numbers: std::ops::Range<usize>| -> Vec<*const Seen> {
            numbers.map(|number| Arc::as_ptr(&catalogs.get(&source, &identity(number)))).collect()
        };
        let first = pointers(0..IDENTITIES_MAX);
        assert_eq!(pointers(0..IDENTITIES_MAX), first);
        assert_eq!(kept(&catalogs), IDENTITIES_MAX);
        for number in IDENTITIES_MAX..IDENTITIES_MAX + 7 {
            catalogs.get(&source, &identity(number));
            assert_eq!(kept(&catalogs), IDENTITIES_MAX);
        }
        let remaining = {
            let kept = catalogs.0.lock();
            let is_kept = |number: &usize| kept.find(&source, &identity(*number)).is_some();
            (0..IDENTITIES_MAX).filter(is_kept).count()
        };
        // One that came later may have gone already.
        assert!((IDENTITIES_MAX - 7..IDENTITIES_MAX).contains(&remaining), "{remaining}");
    }

    #[test]
    fn what_viewers_look_at_stays_until_the_catalog_changes() {
        let (catalogs, source) = (VisibleCatalogs::default(), catalog(1));
        let look = |number| Arc::downgrade(&catalogs.get(&source, &identity(number)));
        let looks: Vec<Weak<Seen>> = (0..2 * IDENTITIES_MAX).map(look).collect();
        for number in 2 * IDENTITIES_MAX..3 * IDENTITIES_MAX {
            catalogs.get(&source, &identity(number));
        }
        assert!(looks.iter().all(|seen| seen.strong_count() == 1));
        // There was room for one request beside them.
        assert!(kept(&catalogs) <= 2 * IDENTITIES_MAX + 1);
        // Without the viewers, the bound holds again.
        let last = looks.last().map(Weak::clone).unwrap();
        drop(looks);
        catalogs.get(&source, &identity(0));
        catalogs.get(&source, &identity(3 * IDENTITIES_MAX));
        assert!(kept(&catalogs) <= IDENTITIES_MAX);
        assert_eq!(last.strong_count(), 1);
        catalogs.get(&catalog(2), &identity(0));
        assert_eq!((kept(&catalogs), last.strong_count()), (1, 0));
    }

    #[test]
    fn an_older_catalog_does_not_replace_a_newer_one() {
        let (catalogs, older, newer) = (VisibleCatalogs::default(), catalog(1), catalog(2));
        let view = catalogs.get(&newer, &identity(1));
        assert!(catalogs.get(&older, &identity(1)).is_of(&older, &identity(1)));
        assert!(Arc::ptr_eq(&catalogs.get(&newer, &identity(1)), &view));
    }
}
