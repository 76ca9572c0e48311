//! The measures of a partition: merged from the footers of its files, with the rows of its memtables.
//!
//! No row of a file is read. The merged measures of the files are kept until these change, and those of all rows until
//! the partition changes. They count the rows of a file until compaction or expiry removes them, and those outside the
//! range of a partition that was split until its files are rewritten.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use partita_proto::id::ColumnId;
use partita_proto::index::IndexKind;
use partita_proto::measure::{IndexBuild, LargeRows, PartitionMeasures};
use partita_proto::schema::TableSchema;

use crate::error::{EngineError, Result};
use crate::file::FileEntry;
use crate::file::footer::Footer;
use crate::index::Indexed;
use crate::state::partition::Partition;
use crate::state::reported::Reported;
use crate::state::version::Version;

impl Partition {
    /// Measures of all rows and indexes; the same value until the partition changes.
    ///
    /// # Errors
    /// When the store fails. A damaged file counts as one without measures.
    pub async fn measures(&self) -> Result<Arc<PartitionMeasures>> {
        let version = self.version();
        let folded = self.folded.load(Ordering::Relaxed);
        if let Some(reported) = &*self.measures.lock()
            && let Some(report) = reported.of(&version)
            && report.folded == folded
        {
            return Ok(Arc::clone(report));
        }
        let mut report = self.measures_of_files(&version).await?.as_ref().clone();
        report.indexes = builds(&version, &report.indexes);
        report.folded = folded;
        let source = Arc::clone(&version);
        let work = move || {
            let layout = &source.layout;
            let sealed = source.sealed.iter().flat_map(|sealed| &sealed.memtable.runs);
            for run in sealed.chain(&source.active.runs) {
                // A column that was added since the rows were written has its default in them.
                let stored = layout.file_schema(run.has_op());
                let rows = layout.adapt(&run.sorted.batch, &stored)?;
                report.measures.add_rows(&layout.config.schema, &rows)?;
            }
            Ok::<_, EngineError>(report)
        };
        let work = partita_proto::blocking::spawn(work);
        let report = work.await.map_err(|error| EngineError::Internal(error.to_string()))??;
        let report = Arc::new(report);
        *self.measures.lock() = Some(Reported::new(&version, &report));
        Ok(report)
    }

    /// The largest rows of a wide table, by what its files have.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn large_rows(&self) -> Result<LargeRows> {
        let version = self.version();
        Ok(self.measures_of_files(&version).await?.measures.large_rows.clone())
    }

    /// Measures by the footers; of the indexes, all that files have, with the number of these files and their bytes.
    async fn measures_of_files(&self, version: &Version) -> Result<Arc<PartitionMeasures>> {
        if let Some((changes, measures)) = &*self.files_measures.lock()
            && *changes == version.files_changes
        {
            return Ok(Arc::clone(measures));
        }
        let mut merged = PartitionMeasures::default();
        for entry in counted_files(version) {
            let footer = match self.footers.of(&self.store, &entry.handle).await {
                Ok(footer) => Some(footer),
                Err(EngineError::Corrupted(_)) => None,
                Err(error) => return Err(error),
            };
            match footer {
                Some(footer) => merged.merge(&of_footer(&footer, &version.layout.config.schema)),
                None => merged.measures.add_unmeasured(),
            }
        }
        let merged = Arc::new(merged);
        *self.files_measures.lock() = Some((version.files_changes, Arc::clone(&merged)));
        Ok(merged)
    }
}

/// Files with rows of the partition.
fn counted_files(version: &Version) -> impl Iterator<Item = &FileEntry> {
    version.files.values().filter(|entry| !entry.is_outside())
}

/// Measures of one file.
fn of_footer(footer: &Footer, schema: &TableSchema) -> PartitionMeasures {
    let mut report = PartitionMeasures::default();
    match footer.measures() {
        Some(measures) => report.measures = measures,
        None => report.measures.add_unmeasured(),
    }
    for listed in &footer.indexes().indexes {
        report.indexes.push(IndexBuild {
            column: listed.index.column,
            kind: listed.index.options.kind(),
            files: 1,
            files_done: 1,
            bytes: listed.segments.iter().map(|(_, length)| u64::from(*length)).sum(),
        });
    }
    let ids: BTreeMap<&str, ColumnId> =
        schema.columns.iter().map(|column| (column.storage_name.as_str(), column.id)).collect();
    for group in footer.metadata.metadata().row_groups() {
        for chunk in group.columns() {
            let Some(column) = ids.get(chunk.column_descr().name()) else { continue };
            let bytes = u64::try_from(chunk.compressed_size()).unwrap_or(0);
            *report.column_bytes.entry(*column).or_default() += bytes;
        }
    }
    report
}

/// Progress of the indexes that the schema has: a file is done when it has the index with the same options. `stored` is
/// what the files have.
fn builds(version: &Version, stored: &[IndexBuild]) -> Vec<IndexBuild> {
    let files = counted_files(version).count() as u64;
    let bytes_of = |column: ColumnId, kind: IndexKind| {
        let build = stored.iter().find(|build| (build.column, build.kind) == (column, kind));
        build.map_or(0, |build| build.bytes)
    };
    let build = |(_, index): &(String, Indexed)| {
        let (column, kind) = (index.column, index.options.kind());
        let complete = counted_files(version).filter(|entry| entry.meta().indexed.contains(index));
        let (files_done, bytes) = (complete.count() as u64, bytes_of(column, kind));
        IndexBuild { column, kind, files, files_done, bytes }
    };
    version.layout.indexes.iter().map(build).collect()
}
