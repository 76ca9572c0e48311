//! Writes the result of a merge to files: the common half of flush and compaction.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow::datatypes::SchemaRef;
use object_store::ObjectStore;
use object_store::path::Path;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use crate::error::{EngineError, Result};
use crate::file::{FileMeta, file_path};
use crate::parquet::row_group::Purpose;
use crate::rows::layout::Layout;
use crate::rows::merge::{Merge, Merged};
use crate::state::manifest::{Manifest, delete};
use crate::write::sink::{Sink, write_object, write_small_object};
use crate::write::writer::FileWriter;

/// Destination and format of files.
pub(crate) struct Output<'a> {
    pub(crate) store: &'a Arc<dyn ObjectStore>,
    pub(crate) root: &'a Path,
    /// Allocates file ids.
    pub(crate) manifest: &'a Mutex<Manifest>,
    pub(crate) layout: &'a Arc<Layout>,
    pub(crate) purpose: Purpose,
    pub(crate) bytes_target: u64,
    /// True if files need not be durable ([`crate::Lazy`]).
    pub(crate) lazy: bool,
    /// Counts versions that were folded into newer ones.
    pub(crate) folded: &'a Arc<AtomicU64>,
}

/// Rows that are still to be written.
struct Rest {
    merge: Merge,
    next: Option<Merged>,
}

impl Output<'_> {
    /// Writes all rows as one run of files, with the number `run`. Adds each file to `written` as it is complete, so
    /// that the caller can remove the files if this, or a later step, fails.
    pub(crate) async fn write(
        &self,
        merge: Merge,
        schema: SchemaRef,
        run: u64,
        window: Option<(i64, i64)>,
        written: &mut Vec<FileMeta>,
    ) -> Result<()> {
        // Fetch the first rows where a merge may block: without rows no file is written.
        let mut rest = Some(Rest { merge: merge.counted(self.folded), next: None });
        let fetched = partita_proto::blocking::spawn(move || {
            let mut rest = rest.take();
            if let Some(rest) = &mut rest {
                rest.next = Handle::current().block_on(rest.merge.next())?;
            }
            Ok::<_, EngineError>(rest)
        });
        let mut rest =
            fetched.await.map_err(|error| EngineError::Internal(error.to_string()))??;
        // One file after another, until the merge has ended.
        while let Some(current) = rest.take().filter(|rest| rest.next.is_some()) {
            let id = self.manifest.lock().await.allocate();
            let (layout, schema) = (Arc::clone(self.layout), Arc::clone(&schema));
            let (purpose, bytes_target) = (self.purpose, self.bytes_target);
            let encode = move |sink: Sink| {
                let writer = FileWriter::new(&layout, schema, purpose, (id, run), window, sink)?;
                current.write_file(&layout, writer, bytes_target)
            };
            let (meta, remainder) =
                write_object(self.store, &file_path(self.root, id), self.lazy, encode).await?;
            written.push(meta);
            rest = Some(remainder);
        }
        Ok(())
    }

    /// As [`Output::write`], for few rows that are in memory and fit into one file. They are encoded on the current
    /// thread: on a busy machine that takes no longer than starting another thread.
    pub(crate) async fn write_few(
        &self,
        merge: Merge,
        schema: SchemaRef,
        run: u64,
        window: Option<(i64, i64)>,
        written: &mut Vec<FileMeta>,
    ) -> Result<()> {
        let mut merge = merge.counted(self.folded);
        let mut rows = Vec::new();
        while let Some(merged) = merge.next().await? {
            rows.push(merged);
        }
        if rows.is_empty() {
            return Ok(());
        }
        let id = self.manifest.lock().await.allocate();
        let encode = |sink: Sink| {
            let mut writer =
                FileWriter::new(self.layout, schema, self.purpose, (id, run), window, sink)?;
            for merged in &rows {
                writer.write(self.layout, &merged.batch, &merged.first, &merged.last)?;
            }
            writer.finish(self.layout)
        };
        let path = file_path(self.root, id);
        written.push(write_small_object(self.store, &path, self.lazy, encode).await?);
        Ok(())
    }
}

impl Rest {
    /// Writes rows until the file is large enough. Runs on a blocking thread.
    fn write_file(
        mut self,
        layout: &Layout,
        mut writer: FileWriter,
        bytes_target: u64,
    ) -> Result<(FileMeta, Self)> {
        let runtime = Handle::current();
        while let Some(merged) = self.next.take() {
            writer.write(layout, &merged.batch, &merged.first, &merged.last)?;
            self.next = runtime.block_on(self.merge.next())?;
            if writer.bytes() >= bytes_target {
                break;
            }
        }
        Ok((writer.finish(layout)?, self))
    }
}

/// Removes files that did not reach the manifest. Files that cannot be removed now are removed when the partition is
/// opened next.
pub(crate) async fn discard(store: &Arc<dyn ObjectStore>, root: &Path, files: &[FileMeta]) {
    for file in files {
        if let Err(error) = delete(store, &file_path(root, file.id)).await {
            tracing::warn!(file = file.id, %error, "an unneeded file stays until the next start");
        }
    }
}
