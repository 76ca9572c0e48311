//! The sketch of a partition's series: merged from the footers of its files, with the rows of its memtables.
//!
//! No row of a file is read. The merged sketch of the files is kept until they change, and that of all rows until the
//! partition changes. It counts series until compaction or expiry removes their last row from the files, and those of
//! rows outside the range of a partition that was split, until its files are rewritten.

use std::sync::Arc;

use partita_proto::cardinality::SeriesSketch;

use crate::error::{EngineError, Result};
use crate::state::partition::Partition;
use crate::state::reported::Reported;
use crate::state::version::Version;

impl Partition {
    /// Sketch of the series of all rows; empty for a table without a time index. The same value until the partition
    /// changes.
    ///
    /// # Errors
    /// When the store fails. A damaged file counts as one without a sketch.
    pub async fn series_sketch(&self) -> Result<Arc<SeriesSketch>> {
        let version = self.version();
        if version.layout.time.is_none() {
            return Ok(Arc::default());
        }
        if let Some(reported) = &*self.sketch.lock()
            && let Some(sketch) = reported.of(&version)
        {
            return Ok(Arc::clone(sketch));
        }
        let mut sketch = self.sketch_of_files(&version).await?.as_ref().clone();
        let source = Arc::clone(&version);
        let work = move || {
            let sealed = source.sealed.iter().flat_map(|sealed| &sealed.memtable.runs);
            for run in sealed.chain(&source.active.runs) {
                sketch.add_rows(&source.layout.config.schema, &run.sorted.batch)?;
            }
            Ok::<_, EngineError>(sketch)
        };
        let work = partita_proto::blocking::spawn(work);
        let sketch = work.await.map_err(|error| EngineError::Internal(error.to_string()))??;
        let sketch = Arc::new(sketch);
        *self.sketch.lock() = Some(Reported::new(&version, &sketch));
        Ok(sketch)
    }

    async fn sketch_of_files(&self, version: &Version) -> Result<Arc<SeriesSketch>> {
        if let Some((changes, sketch)) = &*self.files_sketch.lock()
            && *changes == version.files_changes
        {
            return Ok(Arc::clone(sketch));
        }
        let mut merged = SeriesSketch::default();
        for entry in version.files.values().filter(|entry| !entry.is_outside()) {
            let footer = match self.footers.of(&self.store, &entry.handle).await {
                Ok(footer) => Some(footer),
                Err(EngineError::Corrupted(_)) => None,
                Err(error) => return Err(error),
            };
            match footer.and_then(|footer| footer.series()) {
                Some(sketch) => merged.merge(&sketch),
                None => merged.add_unsketched(),
            }
        }
        let merged = Arc::new(merged);
        *self.files_sketch.lock() = Some((version.files_changes, Arc::clone(&merged)));
        Ok(merged)
    }
}
