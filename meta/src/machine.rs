//! The catalog as the state machine of meta's group.
//!
//! ```text
//!   committed entry ─▶ decide ─▶ edits ─▶ store (one commit, with the mark) ─▶ state ─▶ published
//! ```
//!
//! Invariants:
//! - store, state and published catalog change in this order, in the group's only apply task;
//! - the durable mark is never ahead of what the store has synced;
//! - a copy is kept of what the store has synced, and the log is kept as long as the older copy needs it;
//! - another replica's state replaces the local one in one commit of the store, including the mark;
//! - roles and tokens may be loaded after the machine was opened (`identities.rs`); entries that concern them wait;
//! - an entry that cannot be decoded, and any failure of the store, stops the group: a catalog that skipped an
//!   entry would silently differ from the other replicas'.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use partita_proto::access::Arrival;
use partita_proto::catalog::Catalog;
use partita_proto::id::NodeId;
use partita_raft::{Committed, Incoming, Machine, MachineError, Mark, Offer, Snapshot};
use tokio::sync::watch;
use tracing::warn;

use crate::catalog::State;
use crate::command::encode_reply;
use crate::copies::Copies;
use crate::error::MetaError;
use crate::publish;
use crate::record;
use crate::reshape::{Reshapes, steps_before};
use crate::store::{Applied, Change, StateStore, Stored};
use crate::transfer::{CatalogCopy, CatalogIncoming, encode_records};
use crate::transition::{Command, Reply, decide};

/// Applies meta's log to the catalog.
pub(crate) struct CatalogMachine {
    me: Weak<Self>,
    store: Arc<dyn StateStore>,
    copies: Option<Copies>,
    state: RwLock<State>,
    catalog: watch::Sender<Arc<Catalog>>,
    marks: Mutex<Marks>,
    /// Number of applied batches; wakes tasks that wait for a change.
    applied: watch::Sender<u64>,
    /// Held while entries are applied, so that a reader sees state and mark of the same moment.
    applying: Mutex<()>,
    reshapes: Arc<Reshapes>,
}

#[derive(Default)]
struct Marks {
    applied: Option<Mark>,
    durable: Option<Mark>,
    /// Reason why the machine has stopped applying entries.
    failure: Option<MetaError>,
}

/// Input of the loader of a machine's roles and tokens.
pub(crate) struct Unloaded {
    /// Index of the last entry in the store.
    pub(crate) index: u64,
    /// The opened state, without roles and tokens.
    pub(crate) state: State,
    pub(crate) arrival: Arrival,
}

impl CatalogMachine {
    /// Opens the machine over a store, at the store's position, without copies.
    ///
    /// # Errors
    /// As [`CatalogMachine::open_copied`].
    pub(crate) fn open(store: Arc<dyn StateStore>) -> Result<Arc<Self>, MetaError> {
        Self::open_copied(store, None)
    }

    /// Opens the machine over a store, at the store's position, and keeps copies of the catalog.
    ///
    /// # Errors
    /// Those of the store; [`MetaError::Corrupted`] if the catalog is inconsistent.
    pub(crate) fn open_copied(
        store: Arc<dyn StateStore>,
        copies: Option<Copies>,
    ) -> Result<Arc<Self>, MetaError> {
        let Stored { applied, records } = store.load()?;
        let state = if records.is_empty() {
            let first = State::first_edits();
            store.commit(&record::changes(&first), None)?;
            let mut state = State::empty();
            state.apply(&first);
            state
        } else {
            record::state(records)?
        };
        Self::assemble(store, copies, state, applied.as_ref())
    }

    /// Opens the machine without roles and tokens. The caller delivers them, from the copy of the store's position or
    /// from the store; until then, requests that need them wait.
    ///
    /// # Errors
    /// As [`CatalogMachine::open_copied`]; [`MetaError::Corrupted`] if nothing is applied yet.
    pub(crate) fn open_unloaded(
        store: Arc<dyn StateStore>,
        copies: Option<Copies>,
    ) -> Result<(Arc<Self>, Unloaded), MetaError> {
        let applied = store
            .applied()?
            .ok_or_else(|| MetaError::Corrupted("no entry is applied yet".to_owned()))?;
        let mut records = Vec::new();
        for (first, last) in record::OBJECTS {
            records.extend(store.load_kinds(first, last)?);
        }
        let objects = record::objects(records)?;
        let mut state = objects.clone();
        let arrival = state.await_identities();
        let machine = Self::assemble(store, copies, state, Some(&applied))?;
        Ok((machine, Unloaded { index: applied.index, state: objects, arrival }))
    }

    fn assemble(
        store: Arc<dyn StateStore>,
        copies: Option<Copies>,
        state: State,
        applied: Option<&Applied>,
    ) -> Result<Arc<Self>, MetaError> {
        let mark = applied.map(|applied| Mark::from_bytes(&applied.mark)).transpose()?;
        // The data read may be in the page cache only. After this sync they are durable.
        store.sync()?;
        let catalog = publish::catalog(&state)
            .map_err(|error| MetaError::Corrupted(format!("it cannot be published: {error}")))?;
        Ok(Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            store,
            copies,
            state: RwLock::new(state),
            catalog: watch::Sender::new(Arc::new(catalog)),
            marks: Mutex::new(Marks { applied: mark.clone(), durable: mark, failure: None }),
            applied: watch::Sender::new(0),
            applying: Mutex::new(()),
            reshapes: Arc::default(),
        }))
    }

    /// The published catalog, and its changes.
    pub(crate) fn catalog(&self) -> watch::Receiver<Arc<Catalog>> {
        self.catalog.subscribe()
    }

    /// Splits and merges since this process began.
    pub(crate) fn reshapes(&self) -> Arc<Reshapes> {
        Arc::clone(&self.reshapes)
    }

    /// The current state, locked for reading.
    pub(crate) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    /// Changes whenever entries have been applied, after the catalog was published.
    pub(crate) fn applied(&self) -> watch::Receiver<u64> {
        self.applied.subscribe()
    }

    /// True if the store belongs to the member with this number and data directory, or is from before identities
    /// were recorded.
    pub(crate) fn belongs(&self, node: NodeId, identity: u64) -> bool {
        let state = self.state();
        let recorded = state.meta_identity(node);
        self.has_applied() && (recorded == Some(identity) || state.metas().next().is_none())
    }

    /// True if the store has applied any entry of the log.
    pub(crate) fn has_applied(&self) -> bool {
        self.marks.lock().applied.is_some()
    }

    /// Index of the last entry in the store; `None`: no entry was applied yet.
    pub(crate) fn applied_index(&self) -> Option<u64> {
        self.marks.lock().applied.as_ref().map(Mark::index)
    }

    /// The store, for reading.
    pub(crate) fn store(&self) -> &dyn StateStore {
        &*self.store
    }

    /// The copies of the catalog, if they are kept.
    pub(crate) fn copies(&self) -> Option<&Copies> {
        self.copies.as_ref()
    }

    /// Stops the machine: nothing more is applied.
    pub(crate) fn fail(&self, failure: MetaError) {
        self.marks.lock().failure = Some(failure);
    }

    /// True if the store's disk has room for more.
    pub(crate) fn has_room(&self) -> bool {
        self.store.has_room()
    }

    /// Number of entries that would have to be applied again after a power failure; 0 after a failure, when nothing
    /// is applied any more.
    pub(crate) fn undurable(&self) -> u64 {
        let marks = self.marks.lock();
        if marks.failure.is_some() {
            return 0;
        }
        let index = |mark: &Option<Mark>| mark.as_ref().map_or(0, Mark::index);
        index(&marks.applied).saturating_sub(index(&marks.durable))
    }

    /// Error that stopped the machine, unless the disk was full.
    pub(crate) fn failure(&self) -> Option<String> {
        let marks = self.marks.lock();
        marks.failure.as_ref().filter(|failure| !failure.is_disk_full()).map(ToString::to_string)
    }

    /// Makes everything applied so far durable, and keeps a copy of it. Blocks on the disk.
    ///
    /// # Errors
    /// Those of the store. Nothing more is applied then: after a failed sync the disk's contents are unknown. A
    /// copy that cannot be kept is not an error: the log stays available to the earlier copy.
    pub(crate) fn sync(&self) -> Result<(), MetaError> {
        let Some(copies) = &self.copies else { return self.sync_store() };
        let (edits, mark) = {
            let _applying = self.applying.lock();
            (self.state.read().all_edits(), self.marks.lock().applied.clone())
        };
        self.sync_store()?;
        if let Some(mark) = mark
            && let Err(error) = copies.keep(&mark, &encode_records(&record::changes(&edits)))
        {
            warn!(%error, "keeping a copy of the catalog failed; its log is kept until a copy succeeds");
        }
        Ok(())
    }

    fn sync_store(&self) -> Result<(), MetaError> {
        let mark = {
            let marks = self.marks.lock();
            if let Some(failure) = &marks.failure {
                return Err(failure.clone());
            }
            marks.applied.clone()
        };
        let synced = self.store.sync();
        let mut marks = self.marks.lock();
        match &synced {
            Ok(()) => marks.durable = mark,
            Err(error) => marks.failure = Some(error.clone()),
        }
        synced
    }

    /// Applies one entry; `catalog` collects what will be published. The group's own entries have no reply.
    fn apply_one(
        &self,
        entry: &Committed,
        catalog: &mut Option<Catalog>,
    ) -> Result<Option<Bytes>, MetaError> {
        // Also an entry without a command moves the mark.
        let applied = Applied { index: entry.index, mark: entry.mark.to_bytes() };
        let Some(payload) = &entry.payload else {
            self.store.commit(&[], Some(&applied))?;
            return Ok(None);
        };
        let command = Command::decode(payload.clone()).map_err(|error| {
            MetaError::Incompatible(format!("entry {} of its log: {error}", entry.index))
        })?;
        // The decision is made before anything changes; a refused command has no edits.
        let decided = decide(&self.state.read(), &command);
        // Roles and tokens that cannot be loaded count as absent. A decision without them is not recorded.
        if let Some(failure) = &self.marks.lock().failure {
            return Err(failure.clone());
        }
        let edits = decided.as_ref().map_or(&[][..], |outcome| &outcome.edits);
        self.store.commit(&record::changes(edits), Some(&applied))?;
        // Store first, then state and the catalog to be published.
        if !edits.is_empty() {
            let catalog = catalog.get_or_insert_with(|| Catalog::clone(&self.catalog.borrow()));
            let mut state = self.state.write();
            publish::take_out(catalog, &state, edits);
            let earlier = steps_before(&state, edits);
            state.apply(edits);
            self.reshapes.follow(&state, edits, &earlier, command.ends_as_wanted());
            publish::put_in(catalog, &state, edits).map_err(|error| {
                MetaError::Corrupted(format!("entry {} of its log: {error}", entry.index))
            })?;
        }
        let reply: Result<Reply, _> = decided.map(|outcome| outcome.reply);
        Ok(Some(encode_reply(&reply)))
    }
}

#[async_trait]
impl Machine for CatalogMachine {
    fn durable_mark(&self) -> Option<Mark> {
        self.marks.lock().durable.clone()
    }

    fn spare_mark(&self) -> Option<Mark> {
        match &self.copies {
            Some(copies) => copies.oldest(),
            None => self.durable_mark(),
        }
    }

    async fn apply(&self, entries: Vec<Committed>) -> Result<Vec<Bytes>, MachineError> {
        let _applying = self.applying.lock();
        let mut replies = Vec::with_capacity(entries.len());
        let mut catalog = None;
        for entry in entries {
            if let Some(failure) = &self.marks.lock().failure {
                return Err(MachineError(failure.to_string()));
            }
            match self.apply_one(&entry, &mut catalog) {
                Ok(reply) => replies.extend(reply),
                Err(error) => {
                    let message = error.to_string();
                    self.marks.lock().failure = Some(error);
                    return Err(MachineError(message));
                }
            }
            self.marks.lock().applied = Some(entry.mark);
        }
        if let Some(catalog) = catalog {
            self.catalog.send_replace(Arc::new(catalog));
        }
        self.applied.send_modify(|batches| *batches += 1);
        Ok(replies)
    }

    async fn snapshot(&self) -> Result<Arc<dyn Snapshot>, MachineError> {
        let me = self.share()?;
        let copy = partita_proto::blocking::spawn(move || me.copy());
        let copy = copy.await.map_err(|error| MachineError(error.to_string()))?;
        Ok(Arc::new(copy.map_err(|error| MachineError(error.to_string()))?))
    }

    async fn receive(&self, offer: Offer) -> Result<Box<dyn Incoming>, MachineError> {
        Ok(Box::new(CatalogIncoming::new(self.share()?, offer)?))
    }
}

impl CatalogMachine {
    /// A strong reference to itself, for tasks that outlive a call.
    fn share(&self) -> Result<Arc<Self>, MachineError> {
        self.me.upgrade().ok_or_else(|| MachineError("meta is stopping".to_owned()))
    }

    /// A copy of everything applied, made durable.
    fn copy(&self) -> Result<CatalogCopy, MetaError> {
        let (edits, mark) = {
            let _applying = self.applying.lock();
            (self.state.read().all_edits(), self.marks.lock().applied.clone())
        };
        let mark = mark.ok_or_else(|| {
            MetaError::Corrupted("no entry is applied yet, so there is no state to send".to_owned())
        })?;
        self.sync_store()?;
        Ok(CatalogCopy::new(mark, &record::changes(&edits)))
    }

    /// Replaces the local state with another replica's. Blocks on the disk.
    ///
    /// # Errors
    /// [`MetaError::Corrupted`] if the state is inconsistent; those of the store.
    pub(super) fn replace(
        &self,
        records: Vec<(Vec<u8>, Vec<u8>)>,
        mark: Mark,
    ) -> Result<(), MetaError> {
        // The loader of the replaced roles and tokens reads store and copies.
        let access = self.state.read().access().clone();
        access.until_loaded();
        let _applying = self.applying.lock();
        let state = record::state(records.clone())?;
        let catalog = publish::catalog(&state)
            .map_err(|error| MetaError::Corrupted(format!("it cannot be published: {error}")))?;
        // One commit removes the records that are gone and writes the others, with the mark.
        let new: BTreeMap<Vec<u8>, Vec<u8>> = records.into_iter().collect();
        let copy: Vec<Change> = new
            .iter()
            .map(|(key, value)| Change { key: key.clone(), value: Some(value.clone()) })
            .collect();
        let old = self.store.load()?.records.into_iter().map(|(key, _)| key);
        let removals =
            old.filter(|key| !new.contains_key(key)).map(|key| Change { key, value: None });
        let mut changes: Vec<Change> = removals.collect();
        changes.extend(new.into_iter().map(|(key, value)| Change { key, value: Some(value) }));
        let applied = Applied { index: mark.index(), mark: mark.to_bytes() };
        let committed =
            self.store.commit(&changes, Some(&applied)).and_then(|()| self.store.sync());
        if let Err(error) = committed {
            self.marks.lock().failure = Some(error.clone());
            return Err(error);
        }
        // The log before it is released at once, so the older copies are useless.
        if let Some(copies) = &self.copies
            && let Err(error) = copies.keep(&mark, &encode_records(&copy))
        {
            warn!(%error, "keeping a copy of the catalog of another member failed");
        }
        self.reshapes.catch_up(&state);
        *self.state.write() = state;
        let mut marks = self.marks.lock();
        marks.applied = Some(mark.clone());
        marks.durable = Some(mark);
        drop(marks);
        self.catalog.send_replace(Arc::new(catalog));
        self.applied.send_modify(|batches| *batches += 1);
        Ok(())
    }
}
