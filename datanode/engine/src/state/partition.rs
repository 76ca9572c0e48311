//! The storage of an open partition: the only place where its state changes.
//!
//! ```text
//!   apply, seal (one at a time, in log order) ──┐
//!   flush, compact, expire ── manifest ─────────┼──> version ──> scan (any number, any time)
//!   install (another replica's state) ──────────┤
//!   resize (another range) ─────────────────────┘
//! ```
//!
//! A change computes the new state without the version's lock, makes durable what has to be, and swaps the version
//! under the lock, which is never held for longer than that. Readers take the current version; nothing ever waits for
//! them.
//!
//! Invariants:
//! - entries are applied in order of index, each once;
//! - edits of the manifest are made one at a time, each before the version that needs it is current;
//! - after a failure that leaves the manifest's content unknown, nothing is changed any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::{Mutex, RwLock};
use partita_proto::cardinality::SeriesSketch;
use partita_proto::clock::Clock;
use partita_proto::id::{Epoch, SchemaVersion};
use partita_proto::key::Keys;
use partita_proto::measure::PartitionMeasures;
use partita_proto::schema::TableSchema;
use partita_proto::service::{PartitionSpec, WriteKind};

use crate::change::compaction::{Aim, Flushes};
use crate::error::{EngineError, Result};
use crate::file::footer::{Footers, verify};
use crate::file::{FileEntry, FileHandle, FileId, FileMeta, Garbage, file_path, files_directory};
use crate::options::EngineOptions;
use crate::parquet::row_group::Purpose;
use crate::planted;
use crate::read::series::SeriesCache;
use crate::rows::layout::Layout;
use crate::rows::memtable::{LogPosition, Sealed};
use crate::rows::run::Run;
use crate::state::arrival::Kept;
use crate::state::manifest::{Edit, Manifest, Origin, Recorded, delete};
use crate::state::reported::Reported;
use crate::state::version::Version;
use crate::write::rewrite::{Output, discard};

/// Reason with which a closed partition refuses changes.
const CLOSED: &str = "it was closed";

/// Configuration of a partition: its table, range and replica. Kept in the manifest.
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
    /// Versions that flush and compaction have folded into newer ones.
    pub(crate) folded: Arc<AtomicU64>,
    /// Held by the task that changes memtables.
    pub(crate) applying: Mutex<()>,
    version: RwLock<Arc<Version>>,
    /// Number of times that the version was swapped.
    changes: AtomicU64,
    pub(crate) manifest: Arc<tokio::sync::Mutex<Manifest>>,
    /// Parent of the partition, if it was split off; never changes.
    pub(crate) origin: Option<Origin>,
    /// Held by a flush.
    pub(crate) flushing: Arc<tokio::sync::Mutex<()>>,
    /// Held by the task that replaces files.
    pub(crate) compacting: tokio::sync::Mutex<()>,
    /// Files received of another replica, if its transfer ended early.
    pub(crate) kept: Mutex<Option<Kept>>,
    /// Cached decision whether files should be merged, with the number of file changes, the schema and the conditions
    /// for which it holds.
    pub(crate) compaction_due: Mutex<Option<((u64, SchemaVersion, Aim), bool)>>,
    /// Epoch of the current range, and the clock's time in milliseconds at which a compaction first saw it.
    pub(crate) range_since: Mutex<Option<(Epoch, i64)>>,
    /// Merged sketch of the series of the files, with the number of file changes for which it holds.
    pub(crate) files_sketch: Mutex<Option<(u64, Arc<SeriesSketch>)>>,
    /// Measures of the files, with the number of file changes for which they hold.
    pub(crate) files_measures: Mutex<Option<(u64, Arc<PartitionMeasures>)>>,
    /// Sketch of the series of files and memtables.
    pub(crate) sketch: Mutex<Option<Reported<SeriesSketch>>>,
    /// Measures of files and memtables.
    pub(crate) measures: Mutex<Option<Reported<PartitionMeasures>>>,
    /// Times of the last flushes, on which the number of runs worth merging depends.
    pub(crate) flushes: Mutex<Flushes>,
    /// Reason why nothing may be changed any more.
    stopped: Mutex<Option<String>>,
}

/// Sizes of a partition. For files that reach beyond its range, the share inside is estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionStats {
    /// Rows in files and memtables, versions and tombstones included.
    pub rows: u64,
    /// Number of files.
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
    /// Creates a partition below `root`, empty and durable.
    ///
    /// # Errors
    /// [`EngineError::AlreadyExists`] when there is one, [`EngineError::InvalidInput`] when schema, placement and range
    /// do not fit together, or when the store fails.
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

    /// Opens the partition below `root` as of its durable mark; the log has to be applied from there. Files that the
    /// manifest does not name are removed. [`Partition::damage`] lists files that are missing or have another size than
    /// recorded: reading them fails, and they are never merged with others.
    ///
    /// # Errors
    /// [`EngineError::NotFound`] when there is none (or its creation was never finished), [`EngineError::Corrupted`]
    /// when its manifest cannot be trusted, or when the store fails.
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
        // Compare the files in the store with the manifest's: remove those that it does not name, and mark damaged
        // ones.
        let sizes = stored_files(&store, &root, &files).await?;
        let handles: Vec<_> = files
            .into_values()
            .map(|meta| Arc::new(opened_file(meta, &root, &garbage, &sizes)))
            .filter(|handle| handle.damage().is_none() || !planted::leaves_out())
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
            folded: Arc::default(),
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
            files_sketch: Mutex::new(None),
            files_measures: Mutex::new(None),
            sketch: Mutex::new(None),
            measures: Mutex::new(None),
            flushes: Mutex::default(),
            stopped: Mutex::new(None),
        }))
    }

    /// The configuration, with the schema as of the last applied entry.
    pub fn config(&self) -> Arc<PartitionConfig> {
        Arc::clone(&self.version().layout.config)
    }

    /// Log position of files and manifest, with the owner's mark: everything up to it is durable without the log.
    /// `None` before the first flush.
    pub fn durable_mark(&self) -> Option<(u64, Bytes)> {
        let version = self.version();
        version.durable.as_ref().map(|durable| (durable.index, durable.mark.clone()))
    }

    /// The state that the owner passed to [`Partition::seal`] for the durable mark; empty before the first flush.
    pub fn state(&self) -> Bytes {
        let version = self.version();
        version.durable.as_ref().map_or_else(Bytes::new, |durable| durable.state.clone())
    }

    /// Index of the last applied entry.
    pub fn applied(&self) -> u64 {
        self.version().applied.index
    }

    /// Checks rows as [`Partition::apply`] will, so that rows that would stop the partition there can be refused before
    /// they are in the log.
    ///
    /// # Errors
    /// [`EngineError::InvalidInput`] or [`EngineError::Unsupported`], with the reason.
    pub fn check(&self, kind: WriteKind, rows: &RecordBatch) -> Result<()> {
        Run::check_write(&self.version().layout, kind, rows)
    }

    /// Applies an entry of the log: `writes` in order, all or none. An entry that was applied already is ignored.
    /// Columns are named by storage name; rows of a placed table contain their placement
    /// ([`partita_proto::key::PLACEMENT_COLUMN`]); columns that the table does not have are ignored, because they may
    /// have been dropped since the entry was made. Never waits for a disk. Returns the keys of the written rows, in the
    /// order of each batch. They include rows that a later row of the same batch replaces.
    ///
    /// # Errors
    /// As [`Partition::check`]. Nothing is changed then, and the entry must not be skipped.
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
            let (run, written) = Run::of_write(&version.layout, index, *kind, rows)?;
            keys.push(written);
            active = active.with(&version.layout, run, now_ms)?;
        }
        // Only the holder of `applying` changes memtables and layout, so these are still the current ones.
        self.update(|current| Ok(current.applied(LogPosition { index, mark }, active)))?;
        Ok(keys)
    }

    /// Applies an entry with a schema. A schema that is not newer changes nothing but the position.
    ///
    /// # Errors
    /// [`EngineError::InvalidInput`] when existing rows cannot be converted: append mode does not change, and the key
    /// only gains columns.
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
            return self.update(|current| Ok(current.applied(position, version.active.clone())));
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
        self.update(|current| current.reshaped(position, layout, active, &sealed))
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
        self.update(|current| Ok(current.truncated(LogPosition { index, mark })))
    }

    /// Seals the memtable, so that the next flush covers everything applied so far. `state` returns the owner's state,
    /// to be found again with it ([`Partition::state`]); the owner makes sure that no entry is applied meanwhile.
    pub fn seal(&self, state: impl FnOnce() -> Bytes) {
        let _one_at_a_time = self.applying.lock();
        let version = self.version();
        if version.applied.index > version.sealed_index {
            let state = state();
            let mut current = self.version.write();
            *current = Arc::new(current.sealed(state));
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// True if the memtable is full and should be sealed.
    pub fn wants_seal(&self) -> bool {
        self.version().active.bytes >= self.options.memtable_bytes_max
    }

    /// True if there is a memtable that should be sealed (if it is not yet) and flushed.
    pub fn wants_flush(&self) -> bool {
        let version = self.version();
        let age =
            version.active.since_ms.map(|start_ms| self.clock.now_ms().saturating_sub(start_ms));
        let age_max = i64::try_from(self.options.flush_age.as_millis()).unwrap_or(i64::MAX);
        !version.sealed.is_empty() || self.wants_seal() || age.is_some_and(|age| age >= age_max)
    }

    /// Descriptions of files that were found damaged when the partition was opened, and that it still has.
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
    /// [`EngineError::Corrupted`] that names the first damaged file.
    pub async fn verify(&self) -> Result<()> {
        for entry in self.version().files.values() {
            verify(&self.store, &entry.handle).await?;
        }
        Ok(())
    }

    /// Current sizes.
    pub fn stats(&self) -> PartitionStats {
        let version = self.version();
        let sealed: u64 = version.sealed.iter().map(|sealed| sealed.memtable.rows).sum();
        let memtable_rows = version.active.rows + sealed;
        let sum = |size: fn(&FileEntry) -> u64| version.files.values().map(size).sum();
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

    /// A counter that grows with every change of memtables, files and range. While it stays the same, only time changes
    /// the results of [`Partition::wants_flush`] and [`Partition::wants_compaction`], besides files that no scan needs
    /// any more.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Ends all writing: after it returns, no flush and no compaction runs or begins, so that the files can be removed.
    /// Scans continue as long as the files exist.
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

    /// Replaces the current version by the one that `change` derives from it.
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
            folded: &self.folded,
        }
    }

    /// Makes an edit durable. If that fails and the manifest certainly does not name the files in `written`, they are
    /// removed; if that is uncertain, the partition stops.
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

    /// Makes an edit durable; the objects in `prerequisites`, some of which are perhaps not durable yet, become durable
    /// before it ([`crate::After`]). If that fails for another reason than lack of space, the partition stops.
    pub(crate) async fn record_after(
        &self,
        manifest: &mut Manifest,
        edit: Edit,
        prerequisites: Vec<Path>,
    ) -> Result<()> {
        self.check_running()?;
        let recorded = manifest.record(edit, prerequisites).await;
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

    /// Marks files as no longer named by the manifest: each is deleted after its last reader.
    pub(crate) fn retire(&self, files: &[Arc<FileHandle>]) {
        for file in files {
            file.retire();
            self.footers.remove(file.meta.id);
            self.series.remove(file.meta.id);
        }
    }

    /// Deletes files without readers.
    pub(crate) async fn collect_garbage(&self) -> Result<()> {
        loop {
            let Some(path) = self.garbage.lock().last().cloned() else { return Ok(()) };
            delete(&self.store, &path).await?;
            self.garbage.lock().retain(|queued| *queued != path);
        }
    }

    /// Reason why the partition has stopped, if its storage failed: the stored state is unknown.
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

/// Removes files that the manifest does not name; returns the sizes of the others that exist.
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
    let recorded: BTreeSet<Path> = files.keys().map(|id| file_path(root, *id)).collect();
    for orphan in sizes.keys().filter(|path| !recorded.contains(*path)) {
        tracing::info!(file = %orphan, "removing a file that the manifest does not name");
        delete(store, orphan).await?;
    }
    sizes.retain(|path, _| recorded.contains(path));
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

/// Checks that rows can be carried over from one schema to the next.
fn check_change(old: &TableSchema, new: &TableSchema) -> Result<()> {
    new.validate()?;
    if old.options.append_mode != new.options.append_mode {
        return Err(EngineError::InvalidInput("append mode cannot be changed".to_owned()));
    }
    // Columns added to the key are NULL in all existing rows, so rows stay in order if the old key's columns keep
    // theirs.
    let common: Vec<_> = new.key.iter().filter(|id| old.key.contains(id)).collect();
    if !common.into_iter().eq(old.key.iter()) {
        return Err(EngineError::InvalidInput("the key can only gain columns".to_owned()));
    }
    Ok(())
}
