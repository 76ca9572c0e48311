//! Receives another replica's state, which replaces the local state.
//!
//! ```text
//!   receive ──> Arrival ── write, write, ... ──> install: one edit of the manifest
//!      ^           │ (ends early)
//!      └── Kept ───┘
//! ```
//!
//! Files are received under file ids of this replica, in the directory of its own files: like the files of a flush that
//! has not reached the manifest yet. So the two replicas' ids never collide, no file has to be moved, and files left by
//! a crash are removed when the partition is opened.
//!
//! Invariants:
//! - a file is complete only if its bytes have the checksum from the other replica's manifest;
//! - the state changes by one edit of the manifest: the old state before it, the offered one after it;
//! - a flush or compaction that began before the install cannot bring rows of the old state into the new one;
//! - the state never goes back behind an entry that was applied.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use object_store::{MultipartUpload, ObjectStoreExt};
use partita_proto::id::ReplicaId;
use partita_proto::service::PartitionSpec;

use crate::error::{EngineError, Result};
use crate::file::{FileHandle, FileId, FileMeta, file_name, file_path};
use crate::rows::layout::Layout;
use crate::state::manifest::{Durable, Edit, Recorded};
use crate::state::partition::Partition;
use crate::state::version::Version;
use crate::write::rewrite::discard;
use crate::write::sink::PART_BYTES;

/// Maximum time that the files of a broken transfer are kept. A disconnected sender retries within seconds.
const KEPT_MS_MAX: i64 = 10 * 60 * 1000;

/// Another replica's state while it is received. The local state stays in use. If it is dropped before it is installed,
/// the received files are kept for the next transfer from the same replica.
#[derive(Debug)]
pub struct Arrival {
    partition: Arc<Partition>,
    from: ReplicaId,
    offered: Recorded,
    durable: Durable,
    /// Files in the order of the offer; `None` for one that is being written, or whose write failed.
    files: Vec<Option<ArrivingFile>>,
}

/// Files received of a replica before its transfer ended early.
#[derive(Debug)]
pub(crate) struct Kept {
    from: ReplicaId,
    since_ms: i64,
    files: Vec<ArrivingFile>,
}

/// A received state that is durable and not in effect yet.
pub struct Switch<'a> {
    partition: &'a Partition,
    next: Version,
}

impl Switch<'_> {
    /// Lets the state take effect: scans that begin from now on read its rows.
    ///
    /// # Errors
    /// As [`Arrival::install`].
    pub fn take_effect(self) -> Result<()> {
        let Self { partition, next } = self;
        let _applying = partition.applying.lock();
        partition.update(|current| Ok(current.installed(next)))
    }
}

impl std::fmt::Debug for Switch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Switch").field("partition", &self.partition).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct ArrivingFile {
    /// Metadata of the file at the other replica.
    offered: FileMeta,
    /// File id on this replica.
    id: FileId,
    /// Bytes received. A complete file is also in the store.
    bytes: u64,
    /// CRC32C of the bytes received.
    sum: u32,
    /// Bytes received and not yet passed to the store.
    part: BytesMut,
    upload: Option<Box<dyn MultipartUpload>>,
}

impl Partition {
    /// Begins to receive another replica's pinned state: its [`Pinned::state`](crate::Pinned::state) and its
    /// [`files`](crate::Pinned::files). Files of an earlier transfer from the same replica are reused; all other
    /// received files are deleted.
    ///
    /// # Errors
    /// [`EngineError::Corrupted`] when the state cannot be read, [`EngineError::InvalidInput`] when it belongs to
    /// another partition, or when the partition has stopped.
    pub async fn receive(
        self: &Arc<Self>,
        sender: ReplicaId,
        state: &[u8],
        files: &[(String, u64)],
    ) -> Result<Arrival> {
        let (offered, durable) = self.check_offer(state, files)?;
        let mut manifest = self.manifest.lock().await;
        self.check_running()?;
        // No await from here to the arrival: at any time the kept files belong to one of the two.
        let leftovers = self.kept.lock().take();
        let mut leftovers =
            leftovers.map_or_else(Vec::new, |leftovers| match leftovers.from == sender {
                true => leftovers.files.into_iter().map(|file| (true, file)).collect(),
                false => leftovers.files.into_iter().map(|file| (false, file)).collect::<Vec<_>>(),
            });
        let mut arriving = |meta: &FileMeta| {
            let position =
                leftovers.iter().position(|(usable, file)| *usable && file.offered == *meta);
            match position {
                Some(position) => leftovers.swap_remove(position).1,
                None => ArrivingFile::new(meta.clone(), manifest.allocate()),
            }
        };
        let files = offered.files.values().map(|meta| Some(arriving(meta))).collect();
        drop(manifest);
        let arrival =
            Arrival { partition: Arc::clone(self), from: sender, offered, durable, files };
        for (_, file) in leftovers {
            self.throw_away(file).await;
        }
        Ok(arrival)
    }

    fn check_offer(&self, state: &[u8], files: &[(String, u64)]) -> Result<(Recorded, Durable)> {
        let mut offered = Recorded::from_bytes(state)?;
        let local = self.config();
        let config = &offered.config;
        // The table may be another one: a copy that takes the place of its source exchanges its partitions with it.
        if config.partition != local.partition {
            return Err(EngineError::InvalidInput(format!(
                "partition {} is offered to partition {}",
                config.partition, local.partition
            )));
        }
        let Some(durable) = offered.durable.clone() else {
            return Err(EngineError::InvalidInput("the offered state has no mark".to_owned()));
        };
        let listed = offered.files.values().map(|meta| (file_name(meta.id), meta.bytes));
        if !listed.eq(files.iter().cloned()) || files.iter().any(|(_, bytes)| *bytes == 0) {
            return Err(EngineError::InvalidInput(format!(
                "the offered files {files:?} are not those of the offered state"
            )));
        }
        // The local replica id and members stay.
        offered.config = Arc::new(PartitionSpec {
            replica: local.replica,
            members: local.members.clone(),
            // From here on it has everything that the group has.
            join: false,
            ..PartitionSpec::clone(config)
        });
        // Also checks that range and key fit together.
        Layout::new(Arc::clone(&offered.config))?;
        Ok((offered, durable))
    }

    /// Deletes the files of a broken transfer that has not been resumed for long.
    pub(crate) async fn tidy_arrivals(&self) {
        let oldest = self.clock.now_ms().saturating_sub(KEPT_MS_MAX);
        let leftovers = self.kept.lock().take_if(|leftovers| leftovers.since_ms < oldest);
        for file in leftovers.into_iter().flat_map(|leftovers| leftovers.files) {
            self.throw_away(file).await;
        }
    }

    async fn throw_away(&self, mut file: ArrivingFile) {
        file.abort().await;
        if file.is_whole() {
            discard(&self.store, &self.root, &[file.here()]).await;
        }
    }

    /// Replaces the local state with another replica's, whose files have all been received.
    async fn install(
        &self,
        state: Recorded,
        durable: Durable,
        files: Vec<FileMeta>,
        owner: impl FnOnce(Switch<'_>) -> Result<()> + Send,
    ) -> Result<()> {
        // The state must not go back behind an applied entry.
        let mut manifest = self.manifest.lock().await;
        self.check_running()?;
        let current = self.version();
        if durable.index < current.applied.index {
            discard(&self.store, &self.root, &files).await;
            return Err(EngineError::InvalidInput(format!(
                "a state as of entry {} cannot replace a state as of entry {}",
                durable.index, current.applied.index
            )));
        }
        let layout = Arc::new(Layout::new(Arc::clone(&state.config))?);
        let mark = Some(durable.clone());
        let next = Version::opened(layout, self.handles(&files), mark, state.width)?;
        let old: Vec<Arc<FileHandle>> =
            manifest.recorded().files.keys().filter_map(|id| current.handle(*id)).collect();
        drop(current);
        // Runs keep their numbers; later runs get higher ones.
        manifest.allocate_from(state.next_id);
        let edit = Edit {
            removed: old.iter().map(|handle| handle.meta.id).collect(),
            added: files.clone(),
            durable: Some(durable),
            config: Some(state.config),
            width: state.width,
            origin: None,
        };
        self.record(&mut manifest, edit, &files).await?;
        owner(Switch { partition: self, next })?;
        drop(manifest);
        self.retire(&old);
        drop(old);
        if let Err(error) = self.collect_garbage().await {
            // The files stay in the list of garbage.
            tracing::warn!(partition = %self.root, %error, "cannot remove files of the old state yet");
        }
        Ok(())
    }
}

impl Arrival {
    /// The state that the owner of the other replica passed to [`Partition::seal`].
    pub fn state(&self) -> Bytes {
        self.durable.state.clone()
    }

    /// Specification that the partition will have after the install.
    pub fn config(&self) -> Arc<PartitionSpec> {
        Arc::clone(&self.offered.config)
    }

    /// The mark of the offered state, which the partition will have after the install.
    pub fn mark(&self) -> Bytes {
        self.durable.mark.clone()
    }

    /// Bytes received of each file, in the order of the offer.
    pub fn have(&self) -> Vec<u64> {
        self.files.iter().map(|file| file.as_ref().map_or(0, |file| file.bytes)).collect()
    }

    /// Appends bytes to a file. A file is checked and made durable with its last bytes.
    ///
    /// # Errors
    /// [`EngineError::Corrupted`] when the file is not the one offered, [`EngineError::DiskFull`], or when the store
    /// fails: the file has to be sent again, in another transfer. [`EngineError::InvalidInput`] when these are not the
    /// next bytes.
    pub async fn write(&mut self, file: usize, offset: u64, data: &[u8]) -> Result<()> {
        let progress =
            |file: Option<&ArrivingFile>| file.map(|file| (file.bytes, file.offered.bytes));
        let slot = self.files.get_mut(file);
        let end = offset.saturating_add(data.len() as u64);
        let fits = |(have, total)| have == offset && end <= total;
        let slot = match slot {
            Some(slot) if progress(slot.as_ref()).is_some_and(fits) => slot,
            slot => {
                let have = slot.and_then(|slot| progress(slot.as_ref()));
                return Err(EngineError::InvalidInput(format!(
                    "bytes {offset} to {end} of file {file} are not the next ones: (received, total) is {have:?}"
                )));
            }
        };
        // Taken out while it changes: if this future is dropped, the stored part of the file is unknown.
        let Some(mut arriving) = slot.take() else { return Ok(()) };
        if let Err(error) = arriving.add(&self.partition, data).await {
            arriving.abort().await;
            return Err(error);
        }
        *slot = Some(arriving);
        Ok(())
    }

    /// Replaces the partition's state with the offered one: durably, all of it or nothing. No entry may be applied
    /// meanwhile. Open scans keep their version; rows in memtables are dropped.
    ///
    /// # Errors
    /// [`EngineError::InvalidInput`] when a file is incomplete, or the state is older than the applied entries;
    /// [`EngineError::DiskFull`]: nothing was changed. Anything else: stop the partition.
    pub async fn install(self) -> Result<()> {
        self.install_with(|switch| switch.take_effect()).await
    }

    /// As [`Arrival::install`], for an owner whose own state changes together with the rows: `owner` is called once the
    /// state is durable, and lets it take effect ([`Switch::take_effect`]) under a lock of its own.
    ///
    /// # Errors
    /// As [`Arrival::install`], and those of `owner`.
    pub async fn install_with(
        mut self,
        owner: impl FnOnce(Switch<'_>) -> Result<()> + Send,
    ) -> Result<()> {
        let missing =
            self.files.iter().filter(|file| !file.as_ref().is_some_and(ArrivingFile::is_whole));
        let missing = missing.count();
        if missing > 0 {
            return Err(EngineError::InvalidInput(format!("{missing} files are incomplete")));
        }
        // Nothing may be kept for a later transfer: from here on the manifest may name these files, so none may be
        // deleted.
        let files = std::mem::take(&mut self.files);
        let files: Vec<FileMeta> = files.into_iter().flatten().map(|file| file.here()).collect();
        let partition = Arc::clone(&self.partition);
        let (bytes, upto) = (files.iter().map(|file| file.bytes).sum::<u64>(), self.durable.index);
        tracing::info!(
            partition = %partition.root, from = %self.from, files = files.len(), bytes, upto,
            "installing another replica's state"
        );
        partition.install(self.offered.clone(), self.durable.clone(), files, owner).await
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let files = std::mem::take(&mut self.files).into_iter().flatten();
        let files: Vec<_> = files.filter(|file| file.bytes > 0).collect();
        let mut leftovers = self.partition.kept.lock();
        // There is one arrival at a time; with two, the files of one would stay until the next start.
        if !files.is_empty() && leftovers.is_none() {
            let since_ms = self.partition.clock.now_ms();
            *leftovers = Some(Kept { from: self.from, since_ms, files });
        }
    }
}

impl ArrivingFile {
    fn new(offered: FileMeta, id: FileId) -> Self {
        Self { offered, id, bytes: 0, sum: 0, part: BytesMut::new(), upload: None }
    }

    fn is_whole(&self) -> bool {
        self.bytes == self.offered.bytes
    }

    /// Metadata of the file on this replica.
    fn here(&self) -> FileMeta {
        FileMeta { id: self.id, ..self.offered.clone() }
    }

    async fn add(&mut self, partition: &Partition, data: &[u8]) -> Result<()> {
        self.bytes += data.len() as u64;
        self.sum = crc32c::crc32c_append(self.sum, data);
        self.part.extend_from_slice(data);
        let whole = self.is_whole();
        if whole && self.sum != self.offered.checksum {
            let name = file_name(self.offered.id);
            return Err(EngineError::Corrupted(format!(
                "the received file {name} fails its checksum"
            )));
        }
        // Bytes are stored in large parts; a file that fits into one part is put at once.
        if !whole && self.part.len() < PART_BYTES {
            return Ok(());
        }
        let path = file_path(&partition.root, self.id);
        let failed = |error| EngineError::store(&path, &error);
        let part = self.part.split().freeze();
        if whole && self.upload.is_none() {
            return partition.store.put(&path, part.into()).await.map(drop).map_err(failed);
        }
        let upload = match &mut self.upload {
            Some(upload) => upload,
            empty => empty.insert(partition.store.put_multipart(&path).await.map_err(failed)?),
        };
        upload.put_part(part.into()).await.map_err(failed)?;
        if whole {
            upload.complete().await.map_err(failed)?;
            self.upload = None;
            self.part = BytesMut::new();
        }
        Ok(())
    }

    async fn abort(&mut self) {
        if let Some(mut upload) = self.upload.take()
            && let Err(error) = upload.abort().await
        {
            tracing::debug!(file = self.id, %error, "an unneeded upload stays until the next start");
        }
    }
}
