//! A partition's durable state at one moment, to be sent to another replica.
//!
//! It is the manifest as it stands and the files that it names. Nothing is copied: the files stay as
//! long as somebody has this, whatever flush and compaction do meanwhile.
//!
//! Invariant: bytes that fail their checksum are not given out.

use std::sync::Arc;

use bytes::Bytes;
use object_store::ObjectStore;

use crate::blocks::read_through;
use crate::error::{EngineError, Result};
use crate::file::{FileHandle, file_name};
use crate::footer::Footers;
use crate::manifest::{Durable, Recorded};
use crate::partition::Partition;

/// A partition's durable state, pinned.
#[derive(Debug)]
pub struct Pinned {
    store: Arc<dyn ObjectStore>,
    footers: Arc<Footers>,
    durable: Durable,
    state: Bytes,
    /// In the order of the state.
    files: Vec<Arc<FileHandle>>,
}

impl Partition {
    /// Pins what is durable; `None` while nothing is.
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

    /// What the manifest says, and the files that it names, which stay as long as somebody has them.
    pub(crate) async fn pin_files(&self) -> Result<(Recorded, Vec<Arc<FileHandle>>)> {
        // Who holds it sees a version that agrees with the manifest.
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
    /// The mark of the last log entry that is in it.
    pub fn mark(&self) -> Bytes {
        self.durable.mark.clone()
    }

    /// Everything besides the files, as bytes for [`Partition::receive`].
    pub fn state(&self) -> Bytes {
        self.state.clone()
    }

    /// Names and sizes of the files. A name stands for the same bytes for good.
    pub fn files(&self) -> Vec<(String, u64)> {
        self.files.iter().map(|file| (file_name(file.meta.id), file.meta.bytes)).collect()
    }

    /// Bytes of the file at a place in [`Pinned::files`].
    ///
    /// # Errors
    /// [`EngineError::Corrupted`] when they are not what was written, [`EngineError::InvalidInput`] when
    /// there are no such bytes, or when the store fails.
    pub async fn read(&self, file: usize, offset: u64, bytes: usize) -> Result<Bytes> {
        let file = self.files.get(file).ok_or_else(|| {
            EngineError::InvalidInput(format!("file {file} of {}", self.files.len()))
        })?;
        let footer = self.footers.of(&self.store, file).await?;
        let range = offset..offset.saturating_add(bytes as u64);
        read_through(&self.store, file, &footer, range).await
    }
}
