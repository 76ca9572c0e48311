//! Merges sorted batches of several sources into one sorted stream.
//!
//! Sources are given oldest first. Rows with one key are returned in that order (append), or folded into one row.
//! Within a source of a table that folds, keys are unique.
//!
//! The merge avoids going row by row: as long as one source is ahead of all others it takes whole slices of it, found
//! by galloping. A source is opened when the merge reaches its first key, so that only sources that overlap are in
//! memory.

use std::borrow::Cow;
use std::cell::LazyCell;
use std::cmp::Ordering;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as Memory};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt8Array};
use arrow::compute::{concat, filter_record_batch, interleave};
use arrow::datatypes::{DataType, SchemaRef, UInt8Type};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use partita_proto::key::Keys;

use crate::error::Result;
use crate::rows::collector::Collector;
use crate::rows::fold::{DELETE, PUT, Policy, fold};
use crate::rows::layout::{Layout, OP_COLUMN, SEQ_COLUMN};
use crate::sizes::BATCH_ROWS;

/// Slices with fewer rows on average than this are gathered row by row.
const SLICE_ROWS_MIN: usize = 16;
/// Slices are concatenated if they have at least this many rows on average for each buffer that they reference.
const BUFFER_ROWS_MIN: usize = 4;

/// Rows in key order, with their keys.
#[derive(Clone, Debug)]
pub(crate) struct Sorted {
    pub(crate) batch: RecordBatch,
    pub(crate) keys: Keys,
}

impl Sorted {
    /// A run of rows, without copying.
    pub(crate) fn slice(&self, start: usize, end: usize) -> Self {
        Self { batch: self.batch.slice(start, end - start), keys: self.keys.slice(start..end) }
    }
}

/// Sorted batches of one source, in key order.
pub(crate) type SortedStream = BoxStream<'static, Result<Sorted>>;

/// One source.
pub(crate) struct Input {
    /// Lower bound of the source's keys.
    pub(crate) first: Bytes,
    pub(crate) batches: SortedStream,
}

/// The rows to be returned next, by batch and position, and the values folded into them.
#[derive(Default)]
pub(crate) struct Gather {
    buffers: Vec<RecordBatch>,
    segments: Vec<Segment>,
    rows: usize,
    patches: Vec<Patch>,
    /// Rows whose operation differs from that of their newest version.
    ops: Vec<(usize, u8)>,
}

struct Segment {
    buffer: usize,
    start: usize,
    rows: usize,
}

/// A value that comes from an older version.
struct Patch {
    row: usize,
    column: usize,
    buffer: usize,
    from: usize,
}

impl Gather {
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Adds a batch to take rows from; returns its number.
    pub(crate) fn add(&mut self, batch: &RecordBatch) -> usize {
        self.buffers.push(batch.clone());
        self.buffers.len() - 1
    }

    /// Takes a run of rows.
    pub(crate) fn take(&mut self, buffer: usize, start: usize, rows: usize) {
        self.rows += rows;
        if let Some(last) = self.segments.last_mut()
            && last.buffer == buffer
            && last.start + last.rows == start
        {
            last.rows += rows;
            return;
        }
        self.segments.push(Segment { buffer, start, rows });
    }

    /// Takes the fold of the versions of one key, each given by buffer and row, oldest first.
    pub(crate) fn take_folded(
        &mut self,
        policy: Policy,
        versions: &[(usize, usize)],
        fields: &[usize],
        op_column: Option<usize>,
    ) {
        let Self { buffers, patches, .. } = self;
        let op_of = |(buffer, row): (usize, usize)| match op_column {
            Some(column) => buffers[buffer].column(column).as_primitive::<UInt8Type>().value(row),
            None => PUT,
        };
        // Fold; values of older versions become patches of the output row.
        let ops: Vec<u8> = versions.iter().map(|version| op_of(*version)).collect();
        let row = self.rows;
        let op = fold(
            policy,
            &ops,
            fields,
            |version, field| {
                let (buffer, row) = versions[version];
                buffers[buffer].column(field).is_null(row)
            },
            |column, version| {
                let (buffer, source_row) = versions[version];
                patches.push(Patch { row, column, buffer, from: source_row });
            },
        );
        // The row itself is the newest version.
        let newest = versions.len() - 1;
        if op != ops[newest] {
            self.ops.push((row, op));
        }
        let (buffer, source_row) = versions[newest];
        self.take(buffer, source_row, 1);
    }

    /// Returns the rows in one batch of this schema (which is also that of all buffers).
    pub(crate) fn finish(self, schema: &SchemaRef) -> Result<RecordBatch> {
        // Computed at most once, and the same for all columns except for patches.
        let places = LazyCell::new(|| self.places());
        let columns = (0..schema.fields().len()).map(|column| self.column(schema, column, &places));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
    }

    /// Number of buffers that the slices of a column reference together: each slice references all buffers of its
    /// batch, even those that another slice references too. Runs that are merged repeatedly would otherwise come to
    /// have millions.
    fn brought(&self, column: usize) -> usize {
        let buffer_counts: Vec<usize> =
            self.buffers.iter().map(|batch| view_buffers(batch.column(column))).collect();
        self.segments.iter().map(|segment| buffer_counts[segment.buffer]).sum()
    }

    /// Source of each row: a buffer, and a row of it.
    fn places(&self) -> Vec<(usize, usize)> {
        let mut places = Vec::with_capacity(self.rows);
        for segment in &self.segments {
            places.extend((0..segment.rows).map(|row| (segment.buffer, segment.start + row)));
        }
        places
    }

    fn column(
        &self,
        schema: &SchemaRef,
        column: usize,
        places: &impl Deref<Target = Vec<(usize, usize)>>,
    ) -> Result<ArrayRef> {
        let patches = self.patches.iter().filter(|patch| patch.column == column);
        let patched = patches.clone().next().is_some();
        let slice = |segment: &Segment| {
            self.buffers[segment.buffer].column(column).slice(segment.start, segment.rows)
        };
        // Long slices are concatenated. Short ones, scattered buffers or patches are gathered row by row.
        let array = match self.segments.as_slice() {
            [] => arrow::array::new_empty_array(schema.field(column).data_type()),
            [segment] if !patched => slice(segment),
            segments
                if !patched
                    && self.rows >= segments.len() * SLICE_ROWS_MIN
                    && self.rows >= self.brought(column) * BUFFER_ROWS_MIN =>
            {
                let slices: Vec<ArrayRef> = segments.iter().map(slice).collect();
                concat(&slices.iter().map(AsRef::as_ref).collect::<Vec<_>>())?
            }
            _ => {
                let mut places = Cow::Borrowed(places.as_slice());
                for patch in patches {
                    places.to_mut()[patch.row] = (patch.buffer, patch.from);
                }
                let arrays = self.buffers.iter().map(|batch| batch.column(column).as_ref());
                interleave(&arrays.collect::<Vec<_>>(), &places)?
            }
        };
        // The operation column gets the operations that folding has changed.
        if self.ops.is_empty() || schema.field(column).name() != OP_COLUMN {
            return Ok(array);
        }
        let mut values = array.as_primitive::<UInt8Type>().values().to_vec();
        for (row, op) in &self.ops {
            values[*row] = *op;
        }
        Ok(Arc::new(UInt8Array::from(values)))
    }
}

/// Number of buffers that the views of a column reference.
pub(crate) fn view_buffers(column: &dyn Array) -> usize {
    match column.data_type() {
        DataType::Utf8View => column.as_string_view().data_buffers().len(),
        DataType::BinaryView => column.as_binary_view().data_buffers().len(),
        _ => 0,
    }
}

/// Positions of the columns whose values folding may take from older versions.
pub(crate) fn field_columns(layout: &Layout, schema: &SchemaRef) -> Vec<usize> {
    let is_field = |name: &str| !layout.is_key(name) && name != SEQ_COLUMN && name != OP_COLUMN;
    let fields = schema.fields().iter().enumerate();
    fields.filter(|(_, field)| is_field(field.name())).map(|(index, _)| index).collect()
}

/// Drops deleted keys and the operation column, for a merge that no older version is left out of.
pub(crate) fn settle(batch: RecordBatch) -> Result<RecordBatch> {
    let Ok(column) = batch.schema().index_of(OP_COLUMN) else { return Ok(batch) };
    let ops = batch.column(column).as_primitive::<UInt8Type>();
    let deleted = ops.values().contains(&DELETE);
    let mut batch = if deleted {
        let alive: BooleanArray = ops.values().iter().map(|op| Some(*op != DELETE)).collect();
        filter_record_batch(&batch, &alive)?
    } else {
        batch
    };
    batch.remove_column(column);
    Ok(batch)
}

/// Rows of a merge, with the first and the last of their keys.
pub(crate) struct Merged {
    pub(crate) batch: RecordBatch,
    pub(crate) first: Bytes,
    pub(crate) last: Bytes,
}

/// The first sixteen bytes of a key as a number with the same order; a shorter key is padded with zeros, so that equal
/// heads need the full comparison. Mostly the heads decide, without access to the keys.
fn head(key: &[u8]) -> u128 {
    if let Some(head) = key.first_chunk() {
        return u128::from_be_bytes(*head);
    }
    let mut head = [0; 16];
    head[..key.len()].copy_from_slice(key);
    u128::from_be_bytes(head)
}

/// A source with a position.
struct Cursor {
    input: Input,
    /// Head of [`Cursor::key`].
    head: u128,
    /// The current batch; `None` before the first one and when the next has to be fetched.
    current: Option<Sorted>,
    row: usize,
    /// Number of the batch in the gather, if rows of it were taken.
    buffer: Option<usize>,
}

impl Cursor {
    fn new(input: Input) -> Self {
        let head = head(&input.first);
        Self { input, head, current: None, row: 0, buffer: None }
    }

    /// The next key, or a lower bound of it when the batch is still to be fetched.
    fn key(&self) -> &[u8] {
        match &self.current {
            Some(sorted) => sorted.keys.get(self.row),
            None => &self.input.first,
        }
    }

    /// Compares the next keys.
    fn compare(&self, other: &Self) -> Ordering {
        self.head.cmp(&other.head).then_with(|| self.key().cmp(other.key()))
    }

    /// Fetches the next batch; false when there is none.
    async fn fetch(&mut self) -> Result<bool> {
        self.buffer = None;
        self.row = 0;
        loop {
            let Some(sorted) = self.input.batches.next().await.transpose()? else {
                return Ok(false);
            };
            if sorted.batch.num_rows() > 0 {
                debug_assert!(sorted.keys.get(0) >= &self.input.first[..], "a source went back");
                self.enter(sorted);
                return Ok(true);
            }
        }
    }

    /// Moves to the first row of a batch.
    fn enter(&mut self, sorted: Sorted) {
        self.head = head(sorted.keys.get(0));
        self.current = Some(sorted);
    }

    /// Skips rows that were taken.
    fn advance(&mut self, rows: usize) {
        self.row += rows;
        if let Some(sorted) = &self.current
            && self.row == sorted.keys.len()
        {
            // The next batch starts here or later; it is fetched when the merge gets here.
            self.input.first = Bytes::copy_from_slice(sorted.keys.get(self.row - 1));
            self.current = None;
        }
        self.head = head(self.key());
    }
}

/// A merge of sources.
pub(crate) struct Merge {
    /// Maximum rows of one result.
    rows_max: usize,
    schema: SchemaRef,
    policy: Policy,
    /// True if the sources cover all older versions of every key.
    covering: bool,
    /// True if each source is the one batch in which its cursor stands.
    whole: bool,
    fields: Vec<usize>,
    op_column: Option<usize>,
    cursors: Vec<Cursor>,
    /// Cursors that are not at their end, by next key, then age.
    order: Vec<usize>,
    /// Counter of older versions that were folded into newer ones.
    folded: Arc<AtomicU64>,
    /// Collector of cells that are left out, for a wide table.
    collector: Option<Collector>,
}

impl Merge {
    /// Merges sources, oldest first, whose batches all have this schema. If they cover every version of every key,
    /// deletes are carried out and the operation column is left out.
    pub(crate) fn new(
        layout: &Layout,
        schema: SchemaRef,
        inputs: Vec<Input>,
        covering: bool,
    ) -> Self {
        let fields = field_columns(layout, &schema);
        let op_column = schema.index_of(OP_COLUMN).ok();
        let cursors: Vec<_> = inputs.into_iter().map(Cursor::new).collect();
        let mut order: Vec<usize> = (0..cursors.len()).collect();
        order.sort_by(|a, b| cursors[*a].compare(&cursors[*b]).then(a.cmp(b)));
        let (rows_max, policy) = (BATCH_ROWS, layout.policy);
        let (whole, folded, collector) = (false, Arc::default(), None);
        Self {
            rows_max,
            schema,
            policy,
            covering,
            whole,
            fields,
            op_column,
            cursors,
            order,
            folded,
            collector,
        }
    }

    /// The merge with a counter to which it adds the versions that it folds into newer ones.
    pub(crate) fn counted(self, folded: &Arc<AtomicU64>) -> Self {
        Self { folded: Arc::clone(folded), ..self }
    }

    /// The merge without the cells that a collector finds.
    pub(crate) fn collecting(self, collector: Option<Collector>) -> Self {
        Self { collector, ..self }
    }

    /// The next rows; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Merged>> {
        loop {
            let mut gather = Gather::default();
            for cursor in &mut self.cursors {
                cursor.buffer = None;
            }
            let (mut first, mut last) = (None, None);
            while gather.rows() < self.rows_max {
                if !self.fetch_due().await? {
                    break;
                }
                if first.is_none() {
                    first = Some(Bytes::copy_from_slice(self.cursors[self.order[0]].key()));
                }
                last = Some(self.step(&mut gather));
            }
            let (Some(first), Some(last)) = (first, last) else { return Ok(None) };
            let last = Bytes::copy_from_slice(self.key_taken(last));
            let mut batch = gather.finish(&self.schema)?;
            if self.covering {
                batch = settle(batch)?;
            }
            if let Some(collector) = &mut self.collector {
                batch = collector.collect(batch)?;
            }
            if batch.num_rows() > 0 {
                return Ok(Some(Merged { batch, first, last }));
            }
        }
    }

    /// Fetches batches until every cursor that may have the smallest key has one; false at the end.
    async fn fetch_due(&mut self) -> Result<bool> {
        loop {
            let Some((first, rest)) = self.order.split_first() else { return Ok(false) };
            let first = &self.cursors[*first];
            let is_same = |cursor: &&usize| self.cursors[**cursor].compare(first).is_eq();
            let is_due = |cursor: &usize| self.cursors[*cursor].current.is_none();
            let due = match &first.current {
                None => Some(0),
                Some(_) => {
                    rest.iter().take_while(is_same).position(is_due).map(|position| position + 1)
                }
            };
            let Some(position) = due else { return Ok(true) };
            let cursor = self.order.remove(position);
            if self.cursors[cursor].fetch().await? {
                self.insert(cursor);
            }
        }
    }

    /// Takes the rows with the smallest key, or all up to the next cursor's key. Returns the position of the last key
    /// taken: a cursor, and a row of its batch.
    fn step(&mut self, gather: &mut Gather) -> (usize, usize) {
        let smallest = self.order[0];
        let cursor = &self.cursors[smallest];
        let is_same = |candidate: &&usize| self.cursors[**candidate].compare(cursor).is_eq();
        let same = self.order[1..].iter().take_while(is_same).count();
        if same > 0 && self.policy.folds() {
            let row = cursor.row;
            let members: Vec<usize> = self.order.drain(..=same).collect();
            let versions: Vec<_> =
                members.iter().map(|member| self.position(*member, gather)).collect();
            gather.take_folded(self.policy, &versions, &self.fields, self.op_column);
            self.folded.fetch_add(same as u64, Memory::Relaxed);
            for member in members {
                self.cursors[member].advance(1);
                self.insert(member);
            }
            return (smallest, row);
        }
        let (buffer, start) = self.position(smallest, gather);
        let Some(Sorted { keys, .. }) = &self.cursors[smallest].current else {
            unreachable!("a cursor is fetched before rows are taken from it");
        };
        let room = self.rows_max - gather.rows();
        let limit = keys.len().min(start.saturating_add(room));
        // Equal keys of a younger source come after all of this one.
        let end = match self.order.get(1) {
            Some(next) => gallop(keys, start, limit, &self.cursors[*next], same > 0),
            None => limit,
        };
        gather.take(buffer, start, end - start);
        self.order.remove(0);
        self.cursors[smallest].advance(end - start);
        self.insert(smallest);
        (smallest, end - 1)
    }

    /// The key of the last row that the last step took.
    fn key_taken(&self, (cursor, row): (usize, usize)) -> &[u8] {
        let cursor = &self.cursors[cursor];
        match &cursor.current {
            Some(sorted) => sorted.keys.get(row),
            // The row was the batch's last one.
            None => &cursor.input.first,
        }
    }

    /// The position of a cursor: the number of its batch in the gather, and the row.
    fn position(&mut self, cursor: usize, gather: &mut Gather) -> (usize, usize) {
        let cursor = &mut self.cursors[cursor];
        let buffer = match (cursor.buffer, &cursor.current) {
            (Some(buffer), _) => buffer,
            (None, Some(sorted)) => gather.add(&sorted.batch),
            (None, None) => unreachable!("a cursor is fetched before rows are taken from it"),
        };
        cursor.buffer = Some(buffer);
        (buffer, cursor.row)
    }

    fn insert(&mut self, cursor: usize) {
        let inserted = &self.cursors[cursor];
        if self.whole && inserted.current.is_none() {
            return;
        }
        let place = self.order.partition_point(|candidate| {
            self.cursors[*candidate].compare(inserted).then(candidate.cmp(&cursor)).is_lt()
        });
        self.order.insert(place, cursor);
    }
}

/// Merges in-memory batches, oldest first, which all have this schema, into one. Within a batch of a table that folds,
/// keys are unique.
pub(crate) fn merged(layout: &Layout, schema: &SchemaRef, sources: Vec<Sorted>) -> Result<Sorted> {
    let keys: Vec<Keys> = sources.iter().map(|source| source.keys.clone()).collect();
    let input = |source: &Sorted| Input {
        first: source.keys.first().map(Bytes::copy_from_slice).unwrap_or_default(),
        batches: futures::stream::empty().boxed(),
    };
    let inputs = sources.iter().map(input).collect();
    let mut merge = Merge::new(layout, Arc::clone(schema), inputs, false);
    merge.rows_max = keys.iter().map(Keys::len).sum();
    let mut gather = Gather::default();
    for (cursor, source) in merge.cursors.iter_mut().zip(sources) {
        // Buffers are numbered like the sources.
        cursor.buffer = Some(gather.add(&source.batch));
        if source.batch.num_rows() > 0 {
            cursor.enter(source);
        }
    }
    let Merge { order, cursors, .. } = &mut merge;
    order.retain(|cursor| cursors[*cursor].current.is_some());
    merge.whole = true;
    while !merge.order.is_empty() {
        merge.step(&mut gather);
    }
    // Of folded versions the newest one was taken, whose key is that of all.
    let segments = gather
        .segments
        .iter()
        .map(|segment| (&keys[segment.buffer], segment.start..segment.start + segment.rows));
    let keys = Keys::gather(segments)?;
    Ok(Sorted { batch: gather.finish(schema)?, keys })
}

/// The first row behind `start` (whose row is taken in any case), up to `limit`, whose key is not below that of `bound`
/// (or, with `inclusive`, is above it).
fn gallop(keys: &Keys, start: usize, limit: usize, bound: &Cursor, inclusive: bool) -> usize {
    let is_before = |row: usize| {
        let key = keys.get(row);
        match head(key).cmp(&bound.head).then_with(|| key.cmp(bound.key())) {
            Ordering::Less => true,
            Ordering::Equal => inclusive,
            Ordering::Greater => false,
        }
    };
    let (mut low, mut step) = (start + 1, 1);
    while low < limit && is_before((low + step - 1).min(limit - 1)) {
        low = (low + step).min(limit);
        step *= 2;
    }
    let mut high = (low + step).min(limit);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn galloping_finds_what_a_scan_finds(
            mut values in prop::collection::vec(0_u8..20, 1..60),
            start in any::<prop::sample::Index>(),
            limit in any::<prop::sample::Index>(),
            bound in 0_u8..22,
            inclusive in any::<bool>(),
        ) {
            values.sort_unstable();
            let keys = Keys::from_encoded(values.iter().map(|value| [*value]));
            let start = start.index(values.len());
            let limit = start + 1 + limit.index(values.len() - start);
            let before = |value: u8| if inclusive { value <= bound } else { value < bound };
            let expected = (start + 1..limit).find(|row| !before(values[*row])).unwrap_or(limit);
            let batches = futures::stream::empty().boxed();
            let bound = Cursor::new(Input { first: vec![bound].into(), batches });
            prop_assert_eq!(gallop(&keys, start, limit, &bound, inclusive), expected);
        }
    }
}
