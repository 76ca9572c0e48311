//! Reads the newest row of each series without reading the others.
//!
//! ```text
//!   ends of files (kept) ──┐
//!   ends of runs ──────────┴─ newest per series ── these rows, merged ── rows
//!                                                     └─ deleted ones: their series read as usual
//! ```
//!
//! If a source holds a version of a series' newest key, that version is the last row of the series in this source. So
//! the highest key among the last rows of all sources is the newest one, and the last rows with that key are all its
//! versions. If the newest version is a delete, an older row is the newest, and the rest of the series is read.
//!
//! This is not possible when rows that share a key are kept, when the time index is not the last column of the key,
//! when a domain on the time index has an upper end (the newest row within it is not the series' last), or when domains
//! apply to fields.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{AsArray, UInt32Array};
use arrow::compute::{filter_record_batch, take};
use arrow::datatypes::{SchemaRef, UInt32Type};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use partita_proto::domain::Domain;
use partita_proto::range::KeyRange;
use partita_proto::service::RowStream;

use crate::error::Result;
use crate::file::{FileEntry, overlaps};
use crate::read::plan::{Sources, sources};
use crate::read::scan::Reading;
use crate::read::series::{SeriesCache, SeriesEnds, newest, of_file, series};
use crate::read::source::{file_rows_input, taken};
use crate::rows::fold::DELETE;
use crate::rows::merge::{Input, Merge, settle};
use crate::rows::run::{Run, ops, own_bytes};

/// Maximum series whose newest row is deleted; with more of them, all rows are read.
const DELETED_MAX: usize = 64;

/// Stream of the newest rows; `None` if they cannot be read in this way.
pub(crate) fn stream(reading: &Reading, cache: &Arc<SeriesCache>) -> Option<RowStream> {
    let Reading { version, domains, exact, .. } = reading;
    let layout = &version.layout;
    let tail = layout.time_tail()?;
    let time = layout.time.as_ref().and_then(|time| domains.get(&time.name));
    let is_possible = layout.policy.folds()
        && reading.limit.is_none()
        && domains.iter().all(|(name, _)| layout.is_key(name))
        && time.is_none_or(has_no_end);
    let mut sources = sources(version, domains, exact);
    sources.files.sort_by_key(|file| (file.meta().run, file.meta().id));
    let mut spans =
        sources.files.iter().map(FileEntry::span).chain(sources.runs.iter().map(|run| run.span()));
    // Ends of series are kept within the partition's range only, so a narrower range must contain all sources.
    let is_contained = *exact == layout.range
        || spans.all(|(first, last)| exact.contains(first) && exact.contains(last));
    if !is_possible || !is_contained {
        return None;
    }
    let search = Search { reading: reading.clone(), cache: Arc::clone(cache), sources, tail };
    let rows = async move { search.rows().await.map_err(partita_proto::Error::from) };
    Some(futures::stream::once(rows).try_flatten().boxed())
}

/// True if the domain is one interval without an upper end.
fn has_no_end(domain: &Domain) -> bool {
    matches!(domain.intervals(), [interval] if interval.high == Bound::Unbounded)
}

struct Search {
    reading: Reading,
    cache: Arc<SeriesCache>,
    sources: Sources,
    tail: usize,
}

impl Search {
    async fn rows(self) -> Result<RowStream> {
        let reading = &self.reading;
        let Some(ends) = self.ends().await? else { return Ok(self.all()) };
        let pruned = self.sources.files_pruned;
        reading.reader.counters.scan.files_pruned.fetch_add(pruned, Ordering::Relaxed);
        let schema = self.schema();
        let inputs = self.inputs(&ends, &schema)?;
        let merge = Merge::new(&reading.version.layout, schema, inputs, false);
        let (rows, deleted) = self.merge(merge).await?;
        if deleted.len() > DELETED_MAX {
            return Ok(self.all());
        }
        let mut older_rows = Vec::new();
        for key in deleted {
            let start = Bytes::copy_from_slice(series(&key, self.tail));
            let older = KeyRange { start, end: Some(key) };
            let exact = reading.exact.intersect(&older);
            let (streams, _) = Reading { exact, parallelism: 1, ..reading.clone() }.streams();
            older_rows.extend(streams);
        }
        let rows = futures::stream::iter(rows.into_iter().map(Ok));
        Ok(rows.chain(futures::stream::iter(older_rows).flatten()).boxed())
    }

    /// All rows, one stream after the other.
    fn all(&self) -> RowStream {
        let reading = Reading { parallelism: 1, ..self.reading.clone() };
        let (streams, _) = reading.streams();
        futures::stream::iter(streams).flatten().boxed()
    }

    /// Ends of the series of all files, then of all runs; `None` if a file has too many series.
    async fn ends(&self) -> Result<Option<Vec<Arc<SeriesEnds>>>> {
        let layout = &self.reading.version.layout;
        let mut ends = Vec::with_capacity(self.sources.files.len() + self.sources.runs.len());
        for file in &self.sources.files {
            let file_ends =
                of_file(&self.cache, &self.reading.reader, file, layout, self.tail).await?;
            let Some(file_ends) = file_ends else { return Ok(None) };
            ends.push(file_ends);
        }
        for run in &self.sources.runs {
            ends.push(Arc::new(SeriesEnds::of(&run.sorted.keys, self.tail)?));
        }
        Ok(Some(ends))
    }

    /// The schema of the columns that are read.
    fn schema(&self) -> SchemaRef {
        let Sources { files, runs, .. } = &self.sources;
        let has_op =
            files.iter().any(|file| file.meta().has_op) || runs.iter().any(|run| run.has_op());
        self.reading.schema(true, has_op)
    }

    /// The newest rows of each source, oldest source first.
    fn inputs(&self, ends: &[Arc<SeriesEnds>], schema: &SchemaRef) -> Result<Vec<Input>> {
        let Sources { files, runs, ranges, .. } = &self.sources;
        let mut inputs = Vec::new();
        for (source, chosen) in newest(ends, self.tail).into_iter().enumerate() {
            let ends = &ends[source];
            let is_in_range = |position: &usize| {
                overlaps((ends.keys.get(*position), ends.keys.get(*position)), ranges)
            };
            let chosen: Vec<usize> = chosen.into_iter().filter(is_in_range).collect();
            let Some(first) = chosen.first() else { continue };
            let first = Bytes::copy_from_slice(ends.keys.get(*first));
            let places = chosen.iter().map(|position| u32::try_from(*position).unwrap_or(u32::MAX));
            let rows = take(&ends.rows, &UInt32Array::from_iter_values(places), None)?;
            let rows = rows.as_primitive::<UInt32Type>().clone();
            inputs.push(match files.get(source) {
                Some(file) => self.file_input(file, schema, rows, first),
                None => self.run_input(&runs[source - files.len()], schema, &rows, first)?,
            });
        }
        Ok(inputs)
    }

    fn file_input(
        &self,
        file: &FileEntry,
        schema: &SchemaRef,
        rows: UInt32Array,
        first: Bytes,
    ) -> Input {
        let Reading { reader, version, .. } = &self.reading;
        let layout = Arc::clone(&version.layout);
        file_rows_input(reader.clone(), file.clone(), Arc::clone(schema), layout, rows, first)
    }

    fn run_input(
        &self,
        run: &Run,
        schema: &SchemaRef,
        rows: &UInt32Array,
        first: Bytes,
    ) -> Result<Input> {
        let mut sorted = taken(&run.sorted, rows)?;
        sorted.batch = self.reading.version.layout.adapt(&sorted.batch, schema)?;
        let counters = &self.reading.reader.counters;
        counters.rows(rows.len());
        counters.bytes(own_bytes(&sorted.batch) as u64);
        Ok(Input { first, batches: futures::stream::iter([Ok(sorted)]).boxed() })
    }

    /// The rows that remain after the merge, and the deleted keys.
    async fn merge(&self, mut merge: Merge) -> Result<(Vec<RecordBatch>, Vec<Bytes>)> {
        let Reading { version, columns, domains, .. } = &self.reading;
        let (mut rows, mut deleted) = (Vec::new(), Vec::new());
        while let Some(merged) = merge.next().await? {
            let batch = merged.batch;
            if let Some(ops) = ops(&batch)
                && ops.values().contains(&DELETE)
            {
                let keys = version.layout.codec.encode(&batch)?;
                let deleted_rows = (0..keys.len()).filter(|row| ops.value(*row) == DELETE);
                deleted.extend(deleted_rows.map(|row| Bytes::copy_from_slice(keys.get(row))));
            }
            let batch = settle(batch)?;
            let mask = domains.mask(&batch)?;
            let batch = version.layout.adapt(&batch, columns)?;
            rows.push(match mask {
                Some(mask) => filter_record_batch(&batch, &mask)?,
                None => batch,
            });
        }
        rows.retain(|batch| batch.num_rows() > 0);
        Ok((rows, deleted))
    }
}
