//! The cluster as one session or request sees it.
//!
//! ```text
//!   Identity ──┐
//!              ├─▶ Viewer ──┬── catalog: what the identity may see; names resolve here only
//!   catalog ───┘            ├── sight:   rows of a table that it may see
//!                           └── check:   needs of a statement ─▶ Permit
//! ```
//!
//! Visible catalogs are shared by all viewers of an identity and forgotten with the catalog that they were made from.
//! That of a superuser is the catalog itself.
//!
//! Invariants:
//! - every answer is by the newest catalog, so that a right that was revoked is gone for open sessions too;
//! - without a viewer, a table of the system has no rows but an error.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use datafusion::catalog::Session;
use parking_lot::Mutex;
use partita_proto::Error;
use partita_proto::access::{
    Access, Action, Denied, Identity, Need, Object, Permit, Sight, check, sight, visible,
};
use partita_proto::catalog::{Catalog, Database, Table};
use partita_proto::id::{RoleId, TableId};

use crate::access::peer;
use crate::audit::Origin;
use crate::error::SqlError;
use crate::view::ClusterView;

/// SQLSTATE of an action that is not permitted.
const INSUFFICIENT_PRIVILEGE: &str = "42501";
/// Maximum identities whose visible catalogs are kept.
const IDENTITIES_MAX: usize = 1_024;

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}

/// The catalog as one identity sees it.
struct Seen {
    catalog: Arc<Catalog>,
    /// By table, computed when they are first needed.
    sights: OnceLock<HashMap<TableId, Sight>>,
}

/// Visible catalogs of the newest catalog, by identity.
#[derive(Default)]
pub(crate) struct VisibleCatalogs(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    source: Option<Arc<Catalog>>,
    seen: HashMap<Identity, Arc<Seen>>,
}

impl VisibleCatalogs {
    fn get(&self, source: &Arc<Catalog>, identity: &Identity) -> Arc<Seen> {
        let is_source =
            |kept: &Kept| kept.source.as_ref().is_some_and(|former| Arc::ptr_eq(former, source));
        {
            let kept = self.0.lock();
            if is_source(&kept)
                && let Some(seen) = kept.seen.get(identity)
            {
                return Arc::clone(seen);
            }
        }
        // Computed without the lock: a large catalog takes a while.
        let catalog = visible(source, &source.access, identity, now_ms());
        let seen = Arc::new(Seen { catalog, sights: OnceLock::new() });
        let mut kept = self.0.lock();
        if !is_source(&kept) || kept.seen.len() >= IDENTITIES_MAX {
            kept.source = Some(Arc::clone(source));
            kept.seen.clear();
        }
        kept.seen.insert(*identity, Arc::clone(&seen));
        seen
    }
}

/// What one session or request sees: its identity, and catalog and rights as of now.
pub struct Viewer {
    view: Arc<ClusterView>,
    shared: Arc<VisibleCatalogs>,
    identity: Mutex<Identity>,
    /// Address of the client for which it was made.
    peer: Option<IpAddr>,
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
        Arc::new(Self { view, shared, identity: Mutex::new(identity), peer: peer::current() })
    }

    /// The identity, with the current role.
    pub fn identity(&self) -> Identity {
        *self.identity.lock()
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
        self.shared.get(&self.view.catalog(), &self.identity())
    }

    /// The part of a table that the identity sees.
    pub fn sight(&self, database: &Database, table: &Table) -> Sight {
        sight(&self.access(), &self.identity(), now_ms(), database, table)
    }

    /// The part of a table of the newest catalog that the identity sees; nothing of a table that does not exist.
    pub fn sight_of(&self, table: TableId) -> Sight {
        let (newest, identity) = (self.view.catalog(), self.identity());
        let seen = self.shared.get(&newest, &identity);
        let sights = seen.sights.get_or_init(|| sights(&newest, &identity));
        sights.get(&table).cloned().unwrap_or(Sight::None)
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
        check(&self.view.catalog().access, &self.identity(), now_ms(), needs)
            .map(|permit| permit.at_peer(self.peer))
            .map_err(|refusal| Error::from(self.shown(refusal)).into())
    }

    /// The refusal, with the name of a database in which the identity sees a table: it is not hidden then.
    fn shown(&self, refusal: Denied) -> Denied {
        match refusal {
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

fn sights(catalog: &Catalog, identity: &Identity) -> HashMap<TableId, Sight> {
    let now = now_ms();
    let mut sights = HashMap::new();
    for (name, tables) in &catalog.tables {
        let Some(database) = catalog.databases.get(name) else { continue };
        let of_table =
            |table: &Arc<Table>| (table.id, sight(&catalog.access, identity, now, database, table));
        sights.extend(tables.values().map(of_table));
    }
    sights
}

/// The viewer of the session whose state this is.
///
/// # Errors
/// Fails for a state without a session: nothing is known about who reads then.
pub fn viewer_of(state: &dyn Session) -> Result<Arc<Viewer>, SqlError> {
    let viewer = state.config().get_extension::<Viewer>();
    viewer.ok_or_else(|| SqlError::internal("a system table was read without a session"))
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
    if !permit.covers(table.id, Action::Select) {
        return Err(denied());
    }
    match permit.rows(table.id) {
        None => Ok(()),
        Some(_) => Err(denied().with_detail("the token is restricted to some rows of the table")),
    }
}
