//! Rows in the order of their keys, from the first or from the last one, in one stream.
//!
//! ```text
//!   units ── of one series: by time ──┬── by key ── stages, one after the other: a unit, or several that are merged
//!         ── of several series ───────┘
//! ```
//!
//! Units whose keys do not overlap follow each other. Of one series the units of different times do, too. What overlaps
//! is merged. Each source that is open buffers some rows: if there are too many, a scan of few rows selects these from one
//! source after the other, and one of many rows has no order.
//!
//! Keys have NULL first. If NULLs of the first column that orders anything are wanted at the other end, the range of their
//! keys is read before or behind that of all others.
//!
//! From the last key on, a file is read in chunks of rows, from its end, and each chunk is reversed: a scan that ends
//! early has decoded little. A merge of versions is divided into parts of a few row groups, which are read whole. Keys
//! of reversed rows are complemented: no key is a prefix of another, so complements are in the opposite order.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::UInt32Array;
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use partita_proto::domain::{Domain, Domains};
use partita_proto::key::{Keys, only_placement};
use partita_proto::placement::Placement;
use partita_proto::range::KeyRange;
use partita_proto::service::KeyOrder;

use crate::error::{EngineError, Result};
use crate::file::{FileEntry, parts_within};
use crate::read::plan::Unit;
use crate::read::reader::Read;
use crate::read::scan::{Opened, Reading, Task, cut};
use crate::read::wanted::Wanted;
use crate::rows::layout::Layout;
use crate::rows::merge::{Input, Merge, Sorted, merged};
use crate::sizes::BATCH_ROWS;

/// Maximum number of sources that overlap where they are merged.
const DEPTH_MAX: usize = if cfg!(test) { 6 } else { 32 };
/// Maximum limit of a scan that selects its rows from more sources.
const SELECTED_MAX: usize = 10_000;
/// Maximum rows of a chunk; the first chunk of a file has a batch, and each is twice as long as the one before.
const CHUNK_ROWS_MAX: usize = 4 * BATCH_ROWS;

/// Number of parts into which a merge of versions is divided at most: from the last key on, each is read whole.
pub(crate) fn parts(order: KeyOrder) -> usize {
    if order.descending { usize::MAX } else { 1 }
}

/// The units of a scan in stages that follow each other in key order; units of one stage are to be merged. `None` if too
/// many of them overlap.
pub(crate) fn stages(
    units: &[Unit],
    reading: &Reading,
    order: KeyOrder,
) -> Option<VecDeque<Vec<Unit>>> {
    let is_one_series = is_one_series(&reading.version.layout, &reading.domains);
    let by_time = if is_one_series { by_time(units) } else { None };
    let clusters = by_time.unwrap_or_else(|| vec![units.to_vec()]);
    let mut stages: VecDeque<Vec<Unit>> = clusters.into_iter().flat_map(by_key).collect();
    let selects = reading.limit.is_some_and(|limit| limit <= SELECTED_MAX);
    if !selects && stages.iter().any(|stage| depth(stage) > DEPTH_MAX) {
        return None;
    }
    if order.descending {
        stages.make_contiguous().reverse();
    }
    Some(stages)
}

/// The parts of a scan's range in which its rows come in an order, one after the other; `None` if NULLs are apart and the
/// rows may have several placements.
pub(crate) fn ranges(reading: &Reading, order: KeyOrder) -> Option<Vec<KeyRange>> {
    let Reading { version, domains, exact, .. } = reading;
    let layout = &version.layout;
    let unbound = |name: &&String| !is_bound(domains, name);
    let first = layout.codec.key_columns().iter().find(unbound).filter(|_| order.nulls_apart);
    let Some(first) = first else { return Some(vec![exact.clone()]) };
    let config = &layout.config;
    let key_ranges = |domains: &Domains| {
        let ranges = layout.codec.key_ranges(&config.schema, &config.placement, domains);
        parts_within(&ranges, exact).collect::<Vec<KeyRange>>()
    };
    // Each placement has its own NULLs.
    let is_placed = !matches!(config.placement, Placement::Range);
    if is_placed && only_placement(exact, &key_ranges(domains)).is_none() {
        return None;
    }
    // Behind the values of the columns that are bound, all keys with NULL come before all others.
    let mut domains = domains.clone();
    domains.restrict(first, Domain::null_only());
    let ranges = key_ranges(&domains);
    let (Some(start), Some(end)) = (ranges.first(), ranges.last()) else {
        return Some(vec![exact.clone()]);
    };
    let (start, end) = (start.start.clone(), end.end.clone()?);
    let values = KeyRange { start: end.clone(), end: exact.end.clone() };
    let nulls = KeyRange { start, end: Some(end) };
    Some(if order.descending { vec![nulls, values] } else { vec![values, nulls] })
}

/// Returns true if a column has one value in all wanted rows.
fn is_bound(domains: &Domains, name: &str) -> bool {
    let points = domains.get(name).and_then(|domain| domain.as_points(1));
    points.is_some_and(|points| points.len() == 1)
}

/// Returns true if all wanted rows have the same placement and differ in the time index only, which is the last column
/// of the key.
fn is_one_series(layout: &Layout, domains: &Domains) -> bool {
    let config = &layout.config;
    let placed_alike = config.placement.columns().iter().all(|id| {
        let column = config.schema.column_by_id(*id);
        column.is_some_and(|column| is_bound(domains, &column.storage_name))
    });
    let tags = layout.codec.key_columns().split_last().map_or(&[][..], |(_, tags)| tags);
    placed_alike && layout.time_tail().is_some() && tags.iter().all(|name| is_bound(domains, name))
}

/// Clusters of units that overlap in time, in order of time; `None` if a time is not known.
fn by_time(units: &[Unit]) -> Option<Vec<Vec<Unit>>> {
    let timed = units.iter().map(|unit| Some((unit.time()?, unit.clone())));
    let mut timed: Vec<((i64, i64), Unit)> = timed.collect::<Option<_>>()?;
    timed.sort_by_key(|(time, _)| *time);
    let mut clusters: Vec<(i64, Vec<Unit>)> = Vec::new();
    for ((first, last), unit) in timed {
        match clusters.last_mut() {
            Some((end, cluster)) if first <= *end => {
                *end = last.max(*end);
                cluster.push(unit);
            }
            _ => clusters.push((last, vec![unit])),
        }
    }
    Some(clusters.into_iter().map(|(_, cluster)| cluster).collect())
}

/// Clusters of units whose keys overlap, in key order; the units of each by their first keys.
fn by_key(mut units: Vec<Unit>) -> Vec<Vec<Unit>> {
    units.sort_by(|a, b| a.range.start.cmp(&b.range.start));
    let mut clusters: Vec<(Option<Bytes>, Vec<Unit>)> = Vec::new();
    for unit in units {
        let unit_end = unit.range.end.clone();
        match clusters.last_mut() {
            Some((end, cluster)) if end.as_ref().is_none_or(|end| unit.range.start < *end) => {
                *end = match (end.take(), unit_end) {
                    (Some(end), Some(unit_end)) => Some(end.max(unit_end)),
                    _ => None,
                };
                cluster.push(unit);
            }
            _ => clusters.push((unit_end, vec![unit])),
        }
    }
    clusters.into_iter().map(|(_, cluster)| cluster).collect()
}

/// Maximum number of units, sorted by their first keys, that overlap in one place.
fn depth(units: &[Unit]) -> usize {
    // Units without an end come last.
    let mut ends: BinaryHeap<Reverse<(bool, &[u8])>> = BinaryHeap::new();
    let mut depth = 0;
    for unit in units {
        let start: &[u8] = &unit.range.start;
        while ends.peek().is_some_and(|Reverse((endless, end))| !endless && *end <= start) {
            ends.pop();
        }
        let end = unit.range.end.as_ref();
        ends.push(Reverse((end.is_none(), end.map_or(&[][..], |end| &end[..]))));
        depth = depth.max(ends.len());
    }
    depth
}

/// Lower bound of a unit's keys.
fn lower_bound(unit: &Unit) -> Bytes {
    let start = unit.ranges.first().map(|range| range.start.clone()).unwrap_or_default();
    start.max(unit.range.start.clone())
}

/// Lower bound of a unit's keys, or of their complements.
fn first_bound(unit: &Unit, order: KeyOrder) -> Bytes {
    if order.descending { complement_bound(unit) } else { lower_bound(unit) }
}

/// Lower bound of the complements of a unit's keys.
fn complement_bound(unit: &Unit) -> Bytes {
    let ends = [unit.range.end.as_ref(), unit.ranges.last().and_then(|range| range.end.as_ref())];
    let Some(end) = ends.into_iter().flatten().min() else { return Bytes::new() };
    // The end may be the successor of the last key, which is that key with a zero behind it.
    let end: &[u8] = end;
    complement(end.strip_suffix(&[0]).unwrap_or(end)).into()
}

fn complement(key: &[u8]) -> Vec<u8> {
    key.iter().map(|byte| !byte).collect()
}

/// Rows of one schema with their keys, or the complements of these.
fn keyed(
    layout: &Layout,
    batch: &RecordBatch,
    schema: &SchemaRef,
    order: KeyOrder,
) -> Result<Sorted> {
    let batch = layout.adapt(batch, schema)?;
    let keys = layout.codec.encode_ordered(&batch)?;
    let keys = match order.descending {
        false => keys,
        true => Keys::from_encoded(keys.iter().map(complement)),
    };
    Ok(Sorted { batch, keys })
}

/// The rows from the last on.
fn reversed(batch: &RecordBatch) -> Result<RecordBatch> {
    let count = u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
    let rows = UInt32Array::from_iter_values((0..count).rev());
    Ok(take_record_batch(batch, &rows)?)
}

impl Task {
    /// The rows of a stage, in the order of the scan.
    pub(crate) async fn open_stage(self: &Arc<Self>, mut stage: Vec<Unit>) -> Result<Opened> {
        if stage.len() > 1 {
            return match self.reading.limit {
                Some(limit) if depth(&stage) > DEPTH_MAX => self.selected(stage, limit).await,
                _ => Ok(self.merged(stage)),
            };
        }
        let Some(unit) = stage.pop() else {
            let batches = futures::stream::empty().boxed();
            return Ok(Opened { batches, in_field_domains: true });
        };
        if self.order.is_some_and(|order| order.descending) {
            return Box::pin(self.open_backward(unit, false)).await;
        }
        self.open(unit, false).await
    }

    /// The rows of units that overlap, and share no key that folds.
    fn merged(self: &Arc<Self>, units: Vec<Unit>) -> Opened {
        let order = self.order.unwrap_or(KeyOrder::ASCENDING);
        let schema = self.reading.schema(true, false);
        let inputs = units.into_iter().map(|unit| self.input(unit, &schema, order)).collect();
        let merge = Merge::new(&self.layout, schema, inputs, false);
        let batches = futures::stream::try_unfold(merge, |mut merge| async move {
            Ok(merge.next().await?.map(|merged| (merged.batch, merge)))
        });
        Opened { batches: batches.boxed(), in_field_domains: false }
    }

    /// A unit as a source of a merge, which opens it when it gets there.
    fn input(self: &Arc<Self>, unit: Unit, schema: &SchemaRef, order: KeyOrder) -> Input {
        let first = first_bound(&unit, order);
        let (task, schema) = (Arc::clone(self), Arc::clone(schema));
        let batches = async move {
            let opened = task.open_keyed(unit, order).await?;
            Ok::<_, EngineError>(opened.batches.and_then(move |batch| {
                futures::future::ready(keyed(&task.layout, &batch, &schema, order))
            }))
        };
        Input { first, batches: futures::stream::once(batches).try_flatten().boxed() }
    }

    /// The first rows of units that overlap, up to a limit. Units are read one after the other, each as far as it may have
    /// one of these rows.
    async fn selected(self: &Arc<Self>, units: Vec<Unit>, limit: usize) -> Result<Opened> {
        let order = self.order.unwrap_or(KeyOrder::ASCENDING);
        let schema = self.reading.schema(true, false);
        let batch = RecordBatch::new_empty(Arc::clone(&schema));
        let mut best = Sorted { batch, keys: Keys::from_encoded(std::iter::empty::<&[u8]>()) };
        for unit in units {
            let bound = first_bound(&unit, order);
            let is_full = best.keys.len() == limit;
            if is_full && best.keys.last().is_some_and(|last| last <= &bound[..]) {
                continue;
            }
            let Opened { mut batches, in_field_domains } = self.open_keyed(unit, order).await?;
            while let Some(batch) = batches.next().await.transpose()? {
                let batch = if in_field_domains { batch } else { self.in_field_domains(batch)? };
                let rows = keyed(&self.layout, &batch, &schema, order)?;
                let end = match best.keys.last() {
                    Some(last) if best.keys.len() == limit => rows.keys.lower_bound(last),
                    _ => rows.keys.len(),
                };
                if end > 0 {
                    let sources = vec![best, rows.slice(0, end)];
                    let joined = merged(&self.layout, &schema, sources)?;
                    best = joined.slice(0, joined.keys.len().min(limit));
                }
                // All further rows of the unit come later.
                if best.keys.len() == limit && best.keys.last() <= rows.keys.last() {
                    break;
                }
            }
        }
        let batches = futures::stream::iter([Ok(best.batch)]).boxed();
        Ok(Opened { batches, in_field_domains: true })
    }

    /// As [`Task::open`] with the columns of the key, in an order.
    async fn open_keyed(self: &Arc<Self>, unit: Unit, order: KeyOrder) -> Result<Opened> {
        match order.descending {
            false => Box::pin(self.open(unit, true)).await,
            true => Box::pin(self.open_backward(unit, true)).await,
        }
    }

    /// As [`Task::open`], from the last row on.
    async fn open_backward(self: &Arc<Self>, mut unit: Unit, keyed: bool) -> Result<Opened> {
        let file = if unit.merge { None } else { unit.files.pop() };
        let Some((file, groups)) = file else {
            let Opened { batches, in_field_domains } = self.open(unit, keyed).await?;
            let batches: Vec<RecordBatch> = batches.try_collect().await?;
            let batches = batches.into_iter().rev().map(|batch| reversed(&batch));
            let batches = futures::stream::iter(batches).boxed();
            return Ok(Opened { batches, in_field_domains });
        };
        let (mut read, bounds) = self.file_read(&file, (groups, unit.ranges), keyed);
        let (rows, domains) = self.reading.reader.rows_by_group(&file, &read).await?;
        read.domains = domains;
        let task = Arc::clone(self);
        let backward = Backward { task, file, read, bounds, rows, chunk: BATCH_ROWS };
        let chunks = futures::stream::try_unfold(backward, |mut backward| async move {
            let batches = backward.next().await?;
            Ok::<_, EngineError>(batches.map(|batches| (batches, backward)))
        });
        let batches = chunks
            .map_ok(|batches| futures::stream::iter(batches.into_iter().map(Ok::<_, EngineError>)));
        let batches = batches.try_flatten().boxed();
        Ok(Opened { batches, in_field_domains: self.files_apply_all })
    }
}

/// A file that is read from its last row on.
struct Backward {
    task: Arc<Task>,
    file: FileEntry,
    read: Read,
    /// Range to which rows must be cut, if any.
    bounds: Option<KeyRange>,
    /// Rows still to be read, by row group; ascending and disjoint.
    rows: Vec<(usize, Range<usize>)>,
    /// Rows of the next chunk.
    chunk: usize,
}

impl Backward {
    /// The batches of the next chunk, each from its last row on; `None` at the beginning of the file.
    async fn next(&mut self) -> Result<Option<Vec<RecordBatch>>> {
        let Some((group, rows)) = self.next_rows() else { return Ok(None) };
        let selected = Wanted { rows, domains: self.read.domains.clone() };
        let read = Read { groups: group..group + 1, ..self.read.clone() };
        let reader = &self.task.reading.reader;
        let batches = reader.open_with(&self.file, read, Some(selected)).await?;
        let batches: Vec<RecordBatch> = batches.try_collect().await?;
        let (layout, bounds) = (&self.task.layout, self.bounds.as_ref());
        let turned = batches.into_iter().rev().map(|batch| reversed(&cut(layout, batch, bounds)?));
        let turned = turned.collect::<Result<_>>()?;
        self.chunk = CHUNK_ROWS_MAX.min(2 * self.chunk);
        Ok(Some(turned))
    }

    /// Takes the last rows that remain: a row group, and some of its rows, ascending.
    fn next_rows(&mut self) -> Option<(usize, Vec<Range<usize>>)> {
        let group = self.rows.last()?.0;
        let mut room = self.chunk;
        let mut chunk = Vec::new();
        while room > 0
            && let Some((last_group, range)) = self.rows.last_mut()
            && *last_group == group
        {
            let start = range.end - range.len().min(room);
            room -= range.end - start;
            chunk.push(start..range.end);
            range.end = start;
            if range.start == range.end {
                self.rows.pop();
            }
        }
        chunk.reverse();
        Some((group, chunk))
    }
}
