//! Materialized copies: tables with the rows of another one, in the order of another key.
//!
//! ```text
//!   write ── source partition ── owed ──▶ drain ── changes ──▶ partitions of the copy ──▶ acknowledged
//!                                           │ not within COPY_WAIT, or never
//!                                           └──▶ meta: lost ──▶ acknowledged; a new table is filled in its place
//! ```
//!
//! The nodes keep the changes of a source partition and number them by its log; a partition of a copy remembers the
//! position up to which it took rows of each source partition. Frontends do the rest: they ship the changes (`ship.rs`),
//! fill new copies (`fill.rs`), look after what others left (`sweep.rs`), and read a copy in place of its source where
//! that touches fewer partitions (`choose.rs`, `confirm.rs`).
//!
//! Invariants:
//! - a write is acknowledged only when each copy that it is owed to has its rows, or meta has recorded that the copy is
//!   lost; a lost copy is never in step again, because another table takes its place;
//! - a copy is read only if meta says, after the statement began, that it is in step;
//! - a capture is ended only for a copy that is lost or gone by meta's word, never by the absence from a catalog.
//!
//! A copy that re-keys its source is paced (`pace.rs`), and switched when it is in step (`switch.rs`). One that gives it
//! its first key is filled by the statement alone (`first_key.rs`).

pub(crate) mod choose;
mod confirm;
mod fill;
pub(crate) mod first_key;
mod leader;
mod pace;
pub(crate) mod refused;
pub(crate) mod rekeyings;
mod ship;
mod sweep;
mod switch;
pub(crate) mod table;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use datafusion::execution::SessionState;
use parking_lot::Mutex;
use partita_proto::catalog::{Catalog, Table};
use partita_proto::id::TableId;
use partita_proto::service::MetaService;
use tokio::sync::Semaphore;

use self::confirm::Confirmations;
use self::ship::Drains;
use crate::router::Router;
use crate::view::ClusterView;

/// Maximum requests with rows for copies in flight, each of a few MiB.
const IN_FLIGHT_MAX: usize = 16;

/// Copies by source.
pub(crate) type BySource = HashMap<TableId, Vec<Arc<Table>>>;

/// The work of one frontend for all copies.
pub(crate) struct Copies {
    view: Arc<ClusterView>,
    router: Arc<Router>,
    meta: Arc<dyn MetaService>,
    /// State for the expressions of tables.
    state: Arc<SessionState>,
    confirmations: Arc<Confirmations>,
    drains: Drains,
    in_flight: Semaphore,
    /// Copies in step, with the catalog that shows them.
    in_step: Mutex<Option<(Weak<Catalog>, Arc<BySource>)>>,
    /// Source partitions whose writes wait for a copy, by the copies that this frontend fills.
    filled: Mutex<HashMap<TableId, u64>>,
    /// Copies that are lost or gone by meta's word, with their sources, whose captures may be left.
    ended: Mutex<HashMap<TableId, TableId>>,
}

impl Copies {
    pub(crate) fn new(
        view: Arc<ClusterView>,
        router: Arc<Router>,
        meta: Arc<dyn MetaService>,
        state: Arc<SessionState>,
    ) -> Arc<Self> {
        let confirmations = Confirmations::new(Arc::clone(&meta), view.home().clone());
        Arc::new(Self {
            view,
            router,
            meta,
            state,
            confirmations,
            drains: Drains::default(),
            in_flight: Semaphore::new(IN_FLIGHT_MAX),
            in_step: Mutex::default(),
            filled: Mutex::default(),
            ended: Mutex::default(),
        })
    }

    /// Copies that the newest catalog shows in step, by source. Meta may know better.
    pub(crate) fn in_step(&self) -> Arc<BySource> {
        let catalog = self.view.catalog();
        let mut last = self.in_step.lock();
        if let Some((of_catalog, copies)) = last.as_ref()
            && Weak::as_ptr(of_catalog) == Arc::as_ptr(&catalog)
        {
            return Arc::clone(copies);
        }
        let mut copies = BySource::new();
        for table in catalog.tables.values().flat_map(BTreeMap::values) {
            let copy = table.copy.as_ref().filter(|copy| copy.is_readable());
            if let Some(copy) = copy {
                copies.entry(copy.source).or_default().push(Arc::clone(table));
            }
        }
        let copies = Arc::new(copies);
        *last = Some((Arc::downgrade(&catalog), Arc::clone(&copies)));
        copies
    }

    /// Source partitions whose writes wait for a copy, by the copies that this frontend fills.
    fn filled(&self) -> HashMap<TableId, u64> {
        self.filled.lock().clone()
    }

    /// States of copies, by meta's word.
    pub(crate) fn confirmations(&self) -> &Arc<Confirmations> {
        &self.confirmations
    }
}
