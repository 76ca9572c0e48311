//! A partition's storage, open: the one place where its state changes.
//!
//! ```text
//!   apply, seal (one at a time, in log order) ──┐
//!   flush, compact, expire ── manifest ─────────┼──> version ──> scan (any number, any time)
//!   install (another replica's state) ──────────┤
//!   resize (another range) ─────────────────────┘
//! ```
//!
//! A change computes what it needs without the version's lock, makes durable what has to be, and
//! swaps the version under the lock, which is never held for longer than that. Readers take the
//! version that is current and are never waited for.
//!
//! Invariants:
//! - entries are applied in order of index, each once;
//! - edits of the manifest are made one at a time, each before the version that needs it is current;
//! - after a failure that leaves unknown what the manifest says, nothing is changed any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::{Mutex, RwLock};
use partita_proto::clock::Clock;
use partita_proto::id::Epoch;
use partita_proto::key::Keys;
use partita_proto::schema::TableSchema;
use partita_proto::service::{PartitionSpec, WriteKind};

use crate::arrival::Kept;
use crate::compaction::{Aim, Flushes};
use crate::error::{EngineError, Result};
use crate::file::{FileEntry, FileHandle, FileId, FileMeta, Garbage, file_path, files_directory};
use crate::footer::{Footers, verify};
use crate::layout::Layout;
use crate::manifest::{Edit, Manifest, Origin, Recorded, delete};
use crate::memtable::{LogPosition, Sealed};
use crate::options::EngineOptions;
use crate::rewrite::{Output, discard};
use crate::run::Run;
use crate::series::SeriesCache;
use crate::version::Version;
use crate::writer::Purpose;

/// Why a partition that its owner closed takes nothing more.
const CLOSED: &str = "it was closed";

/// What a partition is: which table's, which range, which replica. Kept in the manifest.
pub type PartitionConfig = PartitionSpec;

/// The storage of one partition.
pub struct Partition {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) root: Path,
    pub(crate) options: EngineOptions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) footers: Arc<Footers>,
    pub(crate) series: Arc<SeriesCache>,
    pub(crate) garbage: Garbage,
    pub(crate) rows_scanned: Arc<AtomicU64>,
    /// Held by whoever changes memtables.
    pub(crate) applying: Mutex<()>,
    version: RwLock<Arc<Version>>,
    /// How often the version was swapped.
    changes: AtomicU64,
    pub(crate) manifest: Arc<tokio::sync::Mutex<Manifest>>,
    /// As the manifest has it, which never changes.
    pub(crate) origin: Option<Origin>,
    /// Held by a flush.
    pub(crate) flushing: Arc<tokio::sync::Mutex<()>>,
    /// Held by whoever replaces files.
    pub(crate) compacting: tokio::sync::Mutex<()>,
    /// What came in of another replica's files when its transfer ended early.
    pub(crate) kept: Mutex<Option<Kept>>,
    /// Whether files should be merged, as of a number of changes of the files and of what is worth merging.
    pub(crate) compaction_due: Mutex<Option<((u64, Aim), bool)>>,
    /// Since when, in milliseconds of the clock, the range has been that of an epoch, as far as somebody looked.
    pub(crate) range_since: Mutex<Option<(Epoch, i64)>>,
    /// When memtables were flushed: how many runs are worth merging depends on it.
    pub(crate) flushes: Mutex<Flushes>,
    /// Why nothing may be changed any more.
    stopped: Mutex<Option<String>>,
}

/// Sizes of a partition. Of files that reach beyond its range, what lies in it is estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionStats {
    /// Rows in files and memtables, versions and tombstones included.
    pub rows: u64,
    /// Files.
    pub files: u64,
    /// Bytes in files.
    pub file_bytes: u64,
    /// Bytes in memtables.
    pub memtable_bytes: u64,
    /// Rows in memtables.
    pub memtable_rows: u64,
    /// Rows decoded by scans since the partition was opened.
    pub rows_scanned: u64,
}

impl Partition {
    /// Makes a partition below `root`, empty and durable.
    ///
    /// # Errors
    /// [`EngineError::AlreadyExists`] when there is one, [`EngineError::InvalidInput`] when schema,
    /// placement and range do not fit together, or when the store fails.
    pub async fn create(
        store: Arc<dyn ObjectStore>,
        root: Path,
        config: PartitionConfig,
        options: EngineOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>> {
        let config = Arc::new(config);
        config.schema.validate()?;
        // Also checks that the range fits the key.
        Layout::new(Arc::clone(&config))?;
        let manifest = Manifest::create(Arc::clone(&store), &root, config).await?;
        Self::start(store, root, options, clock, manifest).await
    }

    /// Opens the partition below `root` as of its durable mark; the log has to be applied from there.
    /// Files that the manifest does not name are removed. Files that are missing or have another size than it says are
    /// named by [`Partition::damage`]: reading them fails, and they are never merged with others.
    ///
    /// # Errors
    /// [`EngineError::NotFound`] when there is none (or its creation was never finished),
    /// [`EngineError::Corrupted`] when its manifest cannot be trusted, or when the store fails.
    pub async fn open(
        store: Arc<dyn ObjectStore>,
        root: Path,
        options: EngineOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>> {
        let manifest = Manifest::open(Arc::clone(&store), &root).await?;
        Self::start(store, root, options, clock, manifest).await
    }

    async fn start(
        store: Arc<dyn ObjectStore>,
        root: Path,
        options: EngineOptions,
        clock: Arc<dyn Clock>,
        manifest: Manifest,
    ) -> Result<Arc<Self>> {
        let garbage = Garbage::default();
        let Recorded { config, files, durable, width, origin, .. } = manifest.recorded().clone();
        let sizes = stored_files(&store, &root, &files).await?;
        let handles: Vec<_> = files
            .into_values()
            .map(|meta| Arc::new(opened_file(meta, &root, &garbage, &sizes)))
            .collect();
        let layout = Arc::new(Layout::new(config)?);
        let version = Version::opened(layout, handles, durable, width)?;
        Ok(Arc::new(Self {
            footers: Arc::new(Footers::new(options.footer_bytes_max)),
            series: Arc::new(SeriesCache::new(options.series_bytes_max)),
            store,
            root,
            options,
            clock,
            garbage,
            rows_scanned: Arc::default(),
            applying: Mutex::new(()),
            version: RwLock::new(Arc::new(version)),
            changes: AtomicU64::new(0),
            manifest: Arc::new(tokio::sync::Mutex::new(manifest)),
            origin,
            flushing: Arc::default(),
            compacting: tokio::sync::Mutex::new(()),
            kept: Mutex::new(None),
            compaction_due: Mutex::new(None),
            range_since: Mutex::new(None),
            flushes: Mutex::default(),
            stopped: Mutex::new(None),
        }))
    }

    /// The configuration, with the schema as of the last entry applied.
    pub fn config(&self) -> Arc<PartitionConfig> {
        Arc::clone(&self.version().layout.config)
    }

    /// The log position that files and manifest stand at: everything up to it is durable without the
    /// log. `None` before the first flush.
    pub fn durable_mark(&self) -> Option<(u64, Bytes)> {
        let version = self.version();
        version.durable.as_ref().map(|durable| (durable.index, durable.mark.clone()))
    }

    /// What the owner gave to [`Partition::seal`] for the durable mark; empty before the first flush.
    pub fn state(&self) -> Bytes {
        let version = self.version();
        version.durable.as_ref().map_or_else(Bytes::new, |durable| durable.state.clone())
    }

    /// The index of the last entry that was applied.
    pub fn applied(&self) -> u64 {
        self.version().applied.index
    }

    /// Checks rows as [`Partition::apply`] will, so that what would stop the partition there can be
    /// refused before it is in the log.
    ///
    /// # Errors
    /// [`EngineError::InvalidInput`] or [`EngineError::Unsupported`], saying what is wrong.
    pub fn check(&self, kind: WriteKind, rows: &RecordBatch) -> Result<()> {
        Run::check_write(&self.version().layout, kind, rows)
    }

    /// Applies an entry of the log: `writes` in order, all or none. An entry that was applied is
    /// ignored. Columns go by storage name; a placed table's rows have their placement
    /// ([`partita_proto::key::PLACEMENT_COLUMN`]); columns that the table does not have are ignored,
    /// because it may have lost them since the entry was made. Never waits for a disk. Returns the keys
    /// of what was written, each batch's in order.
    ///
    /// # Errors
    /// As [`Partition::check`]; nothing was changed then, and the entry may not be skipped.
    pub fn apply(
        &self,
        index: u64,
        mark: Bytes,
        writes: &[(WriteKind, RecordBatch)],
    ) -> Result<Vec<Keys>> {
        let _one_at_a_time = self.applying.lock();
        self.check_running()?;
        let version = self.version();
        let mut keys = Vec::with_capacity(writes.len());
        if index <= version.applied.index {
            return Ok(keys);
        }
        let now_ms = self.clock.now_ms();
        let mut active = version.active.clone();
        for (kind, rows) in writes {
            let run = Run::of_write(&version.layout, index, *kind, rows)?;
            keys.push(run.keys().clone());
            active = active.with(&version.layout, run, now_ms)?;
        }
        // Only who holds `applying` changes memtables and layout, so these are still the current ones.
        self.update(|now| Ok(now.applied(LogPosition { index, mark }, active)))?;
        Ok(keys)
    }

    /// Applies an entry that brings a schema. One that is not newer changes nothing but the position.
    ///
    /// # Errors
    /// [`EngineError::InvalidInput`] when rows cannot be carried over to it: append mode does not
    /// change, and the key only gains columns.
    pub fn apply_schema(&self, index: u64, mark: Bytes, schema: Arc<TableSchema>) -> Result<()> {
        let _one_at_a_time = self.applying.lock();
        self.check_running()?;
        let version = self.version();
        let position = LogPosition { index, mark };
        if index <= version.applied.index {
            return Ok(());
        }
        let old = &version.layout.config.schema;
        if schema.version <= old.version {
            return self.update(|now| Ok(now.applied(position, version.active.clone())));
        }
        check_change(old, &schema)?;
        let range = version.layout.config.range.rekeyed(&old.key, &schema.key);
        let config =
            PartitionSpec { schema, range, ..PartitionSpec::clone(&version.layout.config) };
        let layout = Arc::new(Layout::new(Arc::new(config))?);
        let active = version.active.rekeyed(&layout)?;
        let mut sealed = BTreeMap::new();
        for old in &version.sealed {
            let memtable = old.memtable.rekeyed(&layout)?;
            let (position, state) = (old.position.clone(), old.state.clone());
            let number = old.number;
            sealed.insert(number, Arc::new(Sealed { number, memtable, position, state }));
        }
        self.update(|now| now.reshaped(position, layout, active, &sealed))
    }

    /// Applies an entry that removes all rows.
    ///
    /// # Errors
    /// When the partition has stopped.
    pub fn apply_truncate(&self, index: u64, mark: Bytes) -> Result<()> {
        let _one_at_a_time = self.applying.lock();
        self.check_running()?;
        if index <= self.version().applied.index {
            return Ok(());
        }
        self.update(|now| Ok(now.truncated(LogPosition { index, mark })))
    }

    /// Closes the memtable, so that the next flush covers all that was applied. `state` is asked for
    /// what the owner wants to find again with it ([`Partition::state`]); the owner makes sure that
    /// nothing is applied meanwhile.
    pub fn seal(&self, state: impl FnOnce() -> Bytes) {
        let _one_at_a_time = self.applying.lock();
        let version = self.version();
        if version.applied.index > version.sealed_index {
            let state = state();
            let mut now = self.version.write();
            *now = Arc::new(now.sealed(state));
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Whether the memtable is full and should be sealed.
    pub fn wants_seal(&self) -> bool {
        self.version().active.bytes >= self.options.memtable_bytes_max
    }

    /// Whether there is a memtable that should be sealed (if it is not yet) and flushed.
    pub fn wants_flush(&self) -> bool {
        let version = self.version();
        let age = version.active.since_ms.map(|since| self.clock.now_ms().saturating_sub(since));
        let age_max = i64::try_from(self.options.flush_age.as_millis()).unwrap_or(i64::MAX);
        !version.sealed.is_empty() || self.wants_seal() || age.is_some_and(|age| age >= age_max)
    }

    /// The files that were found damaged when the partition was opened and that it still has, in words that name each.
    pub fn damage(&self) -> Vec<String> {
        let version = self.version();
        version
            .files
            .values()
            .filter_map(|entry| entry.handle.damage().map(str::to_owned))
            .collect()
    }

    /// Checks every byte of every file.
    ///
    /// # Errors
    /// [`EngineError::Corrupted`] that names the first file that is not as it was written.
    pub async fn verify(&self) -> Result<()> {
        for entry in self.version().files.values() {
            verify(&self.store, &entry.handle).await?;
        }
        Ok(())
    }

    /// Sizes as of now.
    pub fn stats(&self) -> PartitionStats {
        let version = self.version();
        let sealed: u64 = version.sealed.iter().map(|sealed| sealed.memtable.rows).sum();
        let memtable_rows = version.active.rows + sealed;
        let sum = |of: fn(&FileEntry) -> u64| version.files.values().map(of).sum();
        let file_rows: u64 = sum(FileEntry::rows);
        PartitionStats {
            rows: file_rows + memtable_rows,
            files: version.files.len() as u64,
            file_bytes: sum(FileEntry::bytes),
            memtable_bytes: version.memtable_bytes(),
            memtable_rows,
            rows_scanned: self.rows_scanned.load(Ordering::Relaxed),
        }
    }

    /// Bytes in memtables.
    pub fn memtable_bytes(&self) -> u64 {
        self.version().memtable_bytes()
    }

    /// A number that grows with everything that happens to memtables, files and range. While it stays the same, only time
    /// changes what [`Partition::wants_flush`] and [`Partition::wants_compaction`] say, and files that no scan needs
    /// any more.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Ends all writing: when this returns, no flush and no compaction is under way and none begins any
    /// more, so that the files can be removed. Scans go on as long as the files are there.
    pub async fn close(&self) {
        let _no_flush = self.flushing.lock().await;
        let _no_compaction = self.compacting.lock().await;
        let _no_edit = self.manifest.lock().await;
        self.version().files.values().for_each(|entry| entry.handle.close());
        self.stopped.lock().get_or_insert_with(|| CLOSED.to_owned());
    }

    /// The current version.
    pub(crate) fn version(&self) -> Arc<Version> {
        Arc::clone(&self.version.read())
    }

    /// Swaps the version for the one that follows from it.
    pub(crate) fn update(&self, change: impl FnOnce(&Version) -> Result<Version>) -> Result<()> {
        let mut version = self.version.write();
        *version = Arc::new(change(&version)?);
        self.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }

    pub(crate) fn output<'a>(&'a self, layout: &'a Arc<Layout>, purpose: Purpose) -> Output<'a> {
        Output {
            store: &self.store,
            root: &self.root,
            manifest: &self.manifest,
            layout,
            purpose,
            bytes_target: self.options.file_bytes_target,
            lazy: false,
        }
    }

    /// Makes an edit durable. If that fails and `written` are certain not to be named by the manifest,
    /// they are removed; if it is not certain, the partition stops.
    pub(crate) async fn record(
        &self,
        manifest: &mut Manifest,
        edit: Edit,
        written: &[FileMeta],
    ) -> Result<()> {
        let recorded = self.record_after(manifest, edit, Vec::new()).await;
        if let Err(EngineError::DiskFull(_)) = &recorded {
            discard(&self.store, &self.root, written).await;
        }
        recorded
    }

    /// Makes an edit durable, and objects before it that may not be yet ([`crate::After`]). If that fails for another
    /// reason than want of space, the partition stops.
    pub(crate) async fn record_after(
        &self,
        manifest: &mut Manifest,
        edit: Edit,
        after: Vec<Path>,
    ) -> Result<()> {
        self.check_running()?;
        let recorded = manifest.record(edit, after).await;
        if let Err(error) = &recorded
            && !matches!(error, EngineError::DiskFull(_))
        {
            self.stop(error.to_string());
        }
        recorded
    }

    pub(crate) fn handles(&self, files: &[FileMeta]) -> Vec<Arc<FileHandle>> {
        let handle = |meta: &FileMeta| FileHandle::new(meta.clone(), &self.root, &self.garbage);
        files.iter().map(|meta| Arc::new(handle(meta))).collect()
    }

    /// The manifest has forgotten files: they go with their last reader.
    pub(crate) fn retire(&self, files: &[Arc<FileHandle>]) {
        for file in files {
            file.retire();
            self.footers.remove(file.meta.id);
            self.series.remove(file.meta.id);
        }
    }

    /// Deletes files that nobody needs any more.
    pub(crate) async fn collect_garbage(&self) -> Result<()> {
        loop {
            let Some(path) = self.garbage.lock().last().cloned() else { return Ok(()) };
            delete(&self.store, &path).await?;
            self.garbage.lock().retain(|other| *other != path);
        }
    }

    /// Why the partition has stopped, if its storage failed: what is stored is not known any more.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.stopped.lock().clone().filter(|reason| reason != CLOSED)
    }

    pub(crate) fn check_running(&self) -> Result<()> {
        match &*self.stopped.lock() {
            Some(reason) => Err(EngineError::Stopped(reason.clone())),
            None => Ok(()),
        }
    }

    pub(crate) fn stop(&self, reason: String) {
        let mut stopped = self.stopped.lock();
        if stopped.is_none() {
            tracing::error!(partition = %self.root, reason, "partition stopped");
            *stopped = Some(reason);
        }
    }
}

impl std::fmt::Debug for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Partition").field("root", &self.root).finish_non_exhaustive()
    }
}

/// Removes files that the manifest does not name; the sizes of the others that are there.
async fn stored_files(
    store: &Arc<dyn ObjectStore>,
    root: &Path,
    files: &BTreeMap<FileId, FileMeta>,
) -> Result<BTreeMap<Path, u64>> {
    let directory = files_directory(root);
    let listed: Vec<_> = store
        .list(Some(&directory))
        .try_collect()
        .await
        .map_err(|error| EngineError::store(&directory, &error))?;
    let mut sizes: BTreeMap<Path, u64> =
        listed.into_iter().map(|object| (object.location, object.size)).collect();
    let named: BTreeSet<Path> = files.keys().map(|id| file_path(root, *id)).collect();
    for orphan in sizes.keys().filter(|path| !named.contains(*path)) {
        tracing::info!(file = %orphan, "removing a file that the manifest does not name");
        delete(store, orphan).await?;
    }
    sizes.retain(|path, _| named.contains(path));
    Ok(sizes)
}

/// The handle of a file that the manifest names.
fn opened_file(
    meta: FileMeta,
    root: &Path,
    garbage: &Garbage,
    sizes: &BTreeMap<Path, u64>,
) -> FileHandle {
    let expected = meta.bytes;
    let handle = FileHandle::new(meta, root, garbage);
    let path = &handle.path;
    let damage = match sizes.get(path) {
        Some(size) if *size == expected => return handle,
        Some(size) => {
            format!("file {path} of partition {root} has {size} bytes instead of {expected}")
        }
        None => format!("file {path} of partition {root} is missing"),
    };
    tracing::error!(partition = %root, damage, "a file is damaged: queries that need it fail");
    handle.damaged(damage)
}

/// Whether rows can be carried over from one schema to the next.
fn check_change(old: &TableSchema, new: &TableSchema) -> Result<()> {
    new.validate()?;
    if old.options.append_mode != new.options.append_mode {
        return Err(EngineError::InvalidInput("append mode cannot be changed".to_owned()));
    }
    // Columns that are added to the key are NULL in all rows there are, so rows stay in order if the
    // old key's columns do.
    let kept: Vec<_> = new.key.iter().filter(|id| old.key.contains(id)).collect();
    if !kept.into_iter().eq(old.key.iter()) {
        return Err(EngineError::InvalidInput("the key can only gain columns".to_owned()));
    }
    Ok(())
}
