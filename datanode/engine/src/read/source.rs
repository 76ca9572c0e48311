//! Files and runs as sources of a merge.

use std::sync::Arc;

use arrow::array::UInt32Array;
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use partita_proto::domain::Domains;
use partita_proto::range::KeyRange;

use crate::error::{EngineError, Result};
use crate::file::FileEntry;
use crate::file::footer::Counters;
use crate::read::reader::{FileReader, Read};
use crate::read::wanted::Wanted;
use crate::rows::layout::Layout;
use crate::rows::merge::{Input, Sorted, SortedStream};
use crate::rows::run::{Run, own_bytes, ticks};
use crate::sizes::BATCH_ROWS;

/// A file as a source. The schema has the key's columns; rows outside of `bounds` are left out.
pub(crate) fn file_input(
    reader: FileReader,
    file: FileEntry,
    read: Read,
    layout: Arc<Layout>,
    bounds: Option<KeyRange>,
) -> Input {
    some_rows_input(reader, file, (read, None), layout, bounds)
}

/// As [`file_input`], restricted to some rows if these are known.
pub(crate) fn some_rows_input(
    reader: FileReader,
    file: FileEntry,
    (read, wanted): (Read, Option<Wanted>),
    layout: Arc<Layout>,
    bounds: Option<KeyRange>,
) -> Input {
    let first = match read.groups.start {
        0 => file.first.clone(),
        group => file.splits[group - 1].clone(),
    };
    let batches = async move {
        let batches = match wanted {
            None => reader.open(&file, read).await?,
            wanted => reader.open_with(&file, read, wanted).await?,
        };
        Ok::<_, EngineError>(batches.and_then(move |batch| {
            futures::future::ready(with_keys(&layout, batch, bounds.as_ref()))
        }))
    };
    Input { first, batches: futures::stream::once(batches).try_flatten().boxed() }
}

/// Some rows of a file as a source, given by ascending row numbers; `first` is the key of the first of them. The schema
/// has the key's columns.
pub(crate) fn file_rows_input(
    reader: FileReader,
    file: FileEntry,
    schema: SchemaRef,
    layout: Arc<Layout>,
    rows: UInt32Array,
    first: Bytes,
) -> Input {
    let batches = async move {
        let batches = reader.open_rows(&file, schema, rows.values()).await?;
        Ok::<_, EngineError>(
            batches.and_then(move |batch| futures::future::ready(with_keys(&layout, batch, None))),
        )
    };
    Input { first, batches: futures::stream::once(batches).try_flatten().boxed() }
}

/// Adds their keys to sorted rows, and leaves out rows outside of `bounds`.
pub(crate) fn with_keys(
    layout: &Layout,
    batch: RecordBatch,
    bounds: Option<&KeyRange>,
) -> Result<Sorted> {
    let keys = layout.codec.encode_ordered(&batch)?;
    debug_assert!(keys.is_sorted(), "files are sorted");
    let sorted = Sorted { batch, keys };
    let Some(bounds) = bounds else { return Ok(sorted) };
    let (start, end) = sorted.keys.within(bounds);
    Ok(sorted.slice(start, end))
}

/// A part of a run.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) run: Arc<Run>,
    /// Key ranges to keep, sorted and disjoint.
    pub(crate) ranges: Arc<[KeyRange]>,
    /// Values of the time index to keep, half-open (the end of time is included).
    pub(crate) time: Option<(i64, i64)>,
}

impl Piece {
    /// A whole run.
    pub(crate) fn whole(run: &Arc<Run>) -> Self {
        Self { run: Arc::clone(run), ranges: Arc::from([KeyRange::all()]), time: None }
    }

    /// First and last time that its rows may have; `None` without a time index.
    pub(crate) fn time_span(&self) -> Option<(i64, i64)> {
        let (first, last) = self.run.time?;
        Some(match self.time {
            None => (first, last),
            Some((start, i64::MAX)) => (first.max(start), last),
            Some((start, end)) => (first.max(start), last.min(end.saturating_sub(1))),
        })
    }

    /// The rows of the piece that match `filter`, in batches of the given schema and of limited size.
    pub(crate) fn read(
        self,
        layout: Arc<Layout>,
        schema: SchemaRef,
        filter: Domains,
        counters: Option<Counters>,
    ) -> SortedStream {
        let slices = self.run.within(&self.ranges).into_iter().flat_map(|slice| {
            let rows = slice.batch.num_rows();
            (0..rows)
                .step_by(BATCH_ROWS)
                .map(move |start| slice.slice(start, rows.min(start + BATCH_ROWS)))
        });
        let time = self.time;
        let batches = slices.map(move |slice| -> Result<Sorted> {
            let mut sorted = slice;
            // Cut to the time span, then to the domains.
            if let (Some(span), Some(column)) = (time, &layout.time) {
                let inside = |tick: &i64| span.0 <= *tick && (*tick < span.1 || span.1 == i64::MAX);
                let ticks = ticks(&sorted.batch, column)?;
                let rows = (0_u32..).zip(ticks.values()).filter(|(_, tick)| inside(tick));
                let rows = UInt32Array::from_iter_values(rows.map(|(row, _)| row));
                sorted = taken(&sorted, &rows)?;
            }
            if let Some(counters) = &counters {
                counters.rows(sorted.batch.num_rows());
            }
            if !filter.is_all()
                && let Some(mask) = filter.mask(&sorted.batch)?
                && mask.true_count() < mask.len()
            {
                let rows = mask.values().set_indices_u32();
                let keys = sorted.keys.take(&UInt32Array::from_iter_values(rows))?;
                sorted = Sorted { batch: filter_record_batch(&sorted.batch, &mask)?, keys };
            }
            sorted.batch = layout.adapt(&sorted.batch, &schema)?;
            if let Some(counters) = &counters {
                counters.bytes(own_bytes(&sorted.batch) as u64);
            }
            Ok(sorted)
        });
        futures::stream::iter(batches).boxed()
    }

    /// The piece as a source.
    pub(crate) fn input(
        self,
        layout: Arc<Layout>,
        schema: SchemaRef,
        filter: Domains,
        counters: Option<Counters>,
    ) -> Input {
        let first = self.ranges.first().map_or_else(Bytes::new, |range| range.start.clone());
        let first = first.max(Bytes::copy_from_slice(self.run.span().0));
        Input { first, batches: self.read(layout, schema, filter, counters) }
    }
}

/// Some rows of a batch.
pub(crate) fn taken(sorted: &Sorted, rows: &UInt32Array) -> Result<Sorted> {
    if rows.len() == sorted.keys.len() {
        return Ok(sorted.clone());
    }
    let batch = arrow::compute::take_record_batch(&sorted.batch, rows)?;
    Ok(Sorted { batch, keys: sorted.keys.take(rows)? })
}
