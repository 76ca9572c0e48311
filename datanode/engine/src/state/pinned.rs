//! A partition's durable state at one moment, to be sent to another replica.
//!
//! It consists of the manifest's current state and the files that it names. Nothing is copied: the files stay as long
//! as this value lives, even if flush and compaction replace them.
//!
//! Invariant: bytes that fail their checksum are never returned.

use std::sync::Arc;

use bytes::Bytes;
use object_store::ObjectStore;

use crate::error::{EngineError, Result};
use crate::file::blocks::read_through;
use crate::file::footer::Footers;
use crate::file::{FileHandle, file_name};
use crate::state::manifest::{Durable, Recorded};
use crate::state::partition::Partition;

/// A partition's durable state, pinned.
#[derive(Debug)]
pub struct Pinned {
    store: Arc<dyn ObjectStore>,
    footers: Arc<Footers>,
    durable: Durable,
    state: Bytes,
    /// Files in the order of the state.
    files: Vec<Arc<FileHandle>>,
}

impl Partition {
    /// Pins the durable state; `None` if there is none yet.
    ///
    /// # Errors
    /// When the partition has stopped.
    pub async fn pin(&self) -> Result<Option<Pinned>> {
        let (recorded, files) = self.pin_files().await?;
        let Some(durable) = recorded.durable.clone() else { return Ok(None) };
        Ok(Some(Pinned {
            store: Arc::clone(&self.store),
            footers: Arc::clone(&self.footers),
            durable,
            state: recorded.to_bytes(),
            files,
        }))
    }

    /// The manifest's state, and the files that it names, which stay as long as their handles live.
    pub(crate) async fn pin_files(&self) -> Result<(Recorded, Vec<Arc<FileHandle>>)> {
        // While the manifest is locked, the version agrees with it.
        let manifest = self.manifest.lock().await;
        self.check_running()?;
        let recorded = manifest.recorded().clone();
        let version = self.version();
        let files = recorded.files.keys().map(|id| {
            version.handle(*id).ok_or_else(|| {
                EngineError::Internal(format!("file {id} of {} is in no version", self.root))
            })
        });
        let files = files.collect::<Result<_>>()?;
        Ok((recorded, files))
    }
}

impl Pinned {
    /// The mark of the last log entry in the state.
    pub fn mark(&self) -> Bytes {
        self.durable.mark.clone()
    }

    /// The state besides the files, as bytes for [`Partition::receive`].
    pub fn state(&self) -> Bytes {
        self.state.clone()
    }

    /// Names and sizes of the files. The content under a name never changes.
    pub fn files(&self) -> Vec<(String, u64)> {
        self.files.iter().map(|file| (file_name(file.meta.id), file.meta.bytes)).collect()
    }

    /// Bytes of a file, given by its position in [`Pinned::files`].
    ///
    /// # Errors
    /// [`EngineError::Corrupted`] when they are not the bytes written, [`EngineError::InvalidInput`] when there are no
    /// such bytes, or when the store fails.
    pub async fn read(&self, file: usize, offset: u64, bytes: usize) -> Result<Bytes> {
        let file = self.files.get(file).ok_or_else(|| {
            EngineError::InvalidInput(format!("file {file} of {}", self.files.len()))
        })?;
        let footer = self.footers.of(&self.store, file).await?;
        let range = offset..offset.saturating_add(bytes as u64);
        read_through(&self.store, file, &footer, range).await
    }
}
