//! Encodes sorted rows as Parquet.
//!
//! The layout of a file: pages of about [`PAGE_ROWS`] rows, or [`INDEXED_PAGE_ROWS`] in a file with indexes, row groups
//! of about [`ROW_GROUP_ROWS`]; integers and times delta-encoded, strings with a dictionary; statistics for each page and
//! column. Behind each row group lie the segments of the columns' indexes ([`crate::index`]), which other readers of
//! Parquet skip. Blocks of 64 KiB up to the end of the last segment are checksummed; their CRC32C are kept in the
//! footer. The footer also has the directory of the segments, a sketch of the file's series ([`series`]) and measures of
//! its rows ([`measures`]).
//! The rest (page index, footer) has one checksum, kept in the manifest. So no byte of a file is ever decoded
//! unchecked, and a point query checks only what it reads.
//!
//! Writers wait for flushes, and indexes of texts take about as long as all else: a flush builds indexes on a second
//! thread, batch by batch. A compaction, for which nobody waits, leaves the other cores to queries.

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use partita_proto::cardinality::SeriesSketch;
use partita_proto::measure::TableMeasures;
use partita_proto::range::Bound;

use crate::error::{EngineError, Result};
use crate::file::{FileId, FileMeta, measures, series};
use crate::index::build::IndexBuilder;
use crate::parquet::row_group::{GroupWriter, Purpose};
use crate::rows::layout::Layout;
use crate::rows::run::{needs_op, seq_span, span, ticks, tombstones};
use crate::sizes::{
    BLOCKS_KEY, INDEXED_PAGE_ROWS, INDEXES_KEY, MEASURES_KEY, PAGE_ROWS, ROW_GROUP_ROWS, SERIES_KEY,
};
use crate::write::sink::Sink;

/// Minimum rows of a batch whose indexes are built on a second thread, which starts within tens of microseconds.
const ASIDE_ROWS_MIN: usize = if cfg!(test) { 3 } else { 1024 };

/// Writes one file.
pub(crate) struct FileWriter {
    id: FileId,
    run: u64,
    window: Option<(i64, i64)>,
    groups: GroupWriter<Sink>,
    rows: u64,
    first: Option<Bytes>,
    last: Bytes,
    splits: Vec<Bytes>,
    time: Option<(i64, i64)>,
    seq: Option<(u64, u64)>,
    tombstones: u64,
    has_op: bool,
    series: SeriesSketch,
    indexes: IndexBuilder,
    /// True if indexes are built on a second thread.
    indexes_aside: bool,
    measures: TableMeasures,
}

impl FileWriter {
    pub(crate) fn new(
        layout: &Layout,
        schema: SchemaRef,
        purpose: Purpose,
        (id, run): (FileId, u64),
        window: Option<(i64, i64)>,
        sink: Sink,
    ) -> Result<Self> {
        let indexes = IndexBuilder::new(&layout.indexes, &schema);
        let page_rows = if indexes.is_empty() { PAGE_ROWS } else { INDEXED_PAGE_ROWS };
        // A simulation runs nothing concurrently.
        let indexes_aside = purpose == Purpose::Flush && !partita_proto::blocking::is_in_place();
        let groups = GroupWriter::new(schema, purpose, page_rows, sink)
            .map_err(|error| EngineError::writing(&id, &error))?;
        Ok(Self {
            id,
            run,
            window,
            groups,
            rows: 0,
            first: None,
            last: Bytes::new(),
            splits: Vec::new(),
            time: None,
            seq: None,
            tombstones: 0,
            has_op: false,
            series: SeriesSketch::default(),
            indexes,
            indexes_aside,
            measures: TableMeasures::default(),
        })
    }

    /// Appends rows whose keys go from `first` to `last`.
    pub(crate) fn write(
        &mut self,
        layout: &Layout,
        batch: &RecordBatch,
        first: &Bytes,
        last: &Bytes,
    ) -> Result<()> {
        debug_assert!(self.first.is_none() || self.last <= *first, "rows are in key order");
        if self.groups.rows() + batch.num_rows() > ROW_GROUP_ROWS {
            self.end_group()?;
        }
        if self.first.is_none() {
            self.first = Some(first.clone());
        } else if self.groups.rows() == 0 {
            self.splits.push(first.clone());
        }
        self.last = last.clone();
        self.rows += batch.num_rows() as u64;
        if let Some(time) = &layout.time {
            self.time = union(self.time, span(&ticks(batch, time)?));
        }
        self.seq = union(self.seq, seq_span(batch));
        self.tombstones += tombstones(batch) as u64;
        self.has_op |= needs_op(batch);
        let has_thread = self.indexes_aside
            && !self.indexes.is_empty()
            && batch.num_rows() >= ASIDE_ROWS_MIN
            && self.add_aside(layout, batch)?;
        if !has_thread {
            self.indexes.add(batch)?;
            encode(
                self.id,
                layout,
                batch,
                (&mut self.series, &mut self.measures, &mut self.groups),
            )?;
        }
        Ok(())
    }

    /// Encodes rows while a second thread adds them to the indexes; false if the system has no thread, and nothing was
    /// done.
    fn add_aside(&mut self, layout: &Layout, batch: &RecordBatch) -> Result<bool> {
        let Self { id, series, indexes, measures, groups, .. } = self;
        let added = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("indexes".to_owned());
            let indexing = thread.spawn_scoped(scope, || indexes.add(batch)).ok()?;
            let encoded = encode(*id, layout, batch, (series, measures, groups));
            let indexed = indexing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Some(encoded.and(indexed))
        });
        match added {
            Some(result) => result.map(|()| true),
            None => Ok(false),
        }
    }

    /// Ends the row group in progress and writes the segments of its indexes behind it.
    fn end_group(&mut self) -> Result<()> {
        let id = self.id;
        self.groups.end().map_err(|error| EngineError::writing(&id, &error))?;
        let writer = &mut self.groups.writer;
        self.indexes.end_group(|segment| {
            let offset = writer.bytes_written() as u64;
            writer
                .write_all(segment)
                .map_err(|error| EngineError::writing(&id, &ParquetError::from(error)))?;
            Ok(offset)
        })
    }

    /// Approximate bytes of the file so far.
    pub(crate) fn bytes(&self) -> u64 {
        (self.groups.bytes() + self.indexes.bytes()) as u64
    }

    /// Writes indexes and footer; returns the file's metadata.
    pub(crate) fn finish(mut self, layout: &Layout) -> Result<FileMeta> {
        let id = self.id;
        let failed = |error: ParquetError| EngineError::writing(&id, &error);
        self.end_group()?;
        let directory = self.indexes.finish();
        let writer = &mut self.groups.writer;
        // The writer buffers: all bytes so far must have passed the sink.
        writer.flush().map_err(|error| failed(error.into()))?;
        let sums = writer.inner_mut().begin_tail();
        let text = sums.iter().map(|sum| format!("{sum:08x}")).collect::<String>();
        writer.append_key_value_metadata(KeyValue::new(BLOCKS_KEY.to_owned(), text));
        if layout.time.is_some()
            && let Some(text) = series::to_text(&self.series)
        {
            writer.append_key_value_metadata(KeyValue::new(SERIES_KEY.to_owned(), text));
        }
        if !directory.indexes.is_empty()
            && let Some(text) = directory.to_text()
        {
            writer.append_key_value_metadata(KeyValue::new(INDEXES_KEY.to_owned(), text));
        }
        if let Some(text) = measures::to_text(&self.measures) {
            writer.append_key_value_metadata(KeyValue::new(MEASURES_KEY.to_owned(), text));
        }
        let sink = self.groups.writer.into_inner().map_err(failed)?;
        let written = sink.finish().map_err(|error| failed(error.into()))?;
        let decode = |key: &Bytes| -> Result<Bound> { Ok(layout.codec.decode(key)?) };
        Ok(FileMeta {
            id,
            run: self.run,
            bytes: written.bytes,
            rows: self.rows,
            checksum: written.checksum,
            tail: written.tail,
            tail_checksum: written.tail_checksum,
            key: layout.config.schema.key.clone(),
            first: decode(&self.first.unwrap_or_default())?,
            last: decode(&self.last)?,
            splits: self.splits.iter().map(decode).collect::<Result<_>>()?,
            time: self.time,
            window: self.window,
            seq: self.seq.unwrap_or_default(),
            tombstones: self.tombstones,
            has_op: self.has_op,
            within: None,
            index_bytes: directory.bytes(),
            // Also where the directory has become too large for a text: such a file would be written again for ever.
            indexed: directory.indexes.into_iter().map(|listed| listed.index).collect(),
        })
    }
}

/// Adds rows to everything but the indexes.
fn encode(
    id: FileId,
    layout: &Layout,
    batch: &RecordBatch,
    (series, measures, groups): (&mut SeriesSketch, &mut TableMeasures, &mut GroupWriter<Sink>),
) -> Result<()> {
    series.add_rows(&layout.config.schema, batch)?;
    measures.add_rows(&layout.config.schema, batch)?;
    groups.write(batch).map_err(|error| EngineError::writing(&id, &error))
}

/// The union of two spans.
fn union<T: Ord>(a: Option<(T, T)>, b: Option<(T, T)>) -> Option<(T, T)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (a, b) => a.or(b),
    }
}
