//! A few columns of time over common rows.
//!
//! Invariants: each column has one cell per row; there are at most [`ROWS_MAX`] rows; a cell holds an amount (rate
//! times seconds), so that columns can be added up.

use std::collections::VecDeque;
use std::sync::Arc;

use super::axis::{divide, gather, offsets, row_of, spread, union, whole};
use super::report::{Key, PartitionLoad, Report, Shares};
use crate::metric::{METRICS, Metric};
use crate::number::narrow;

/// Maximum number of rows in a block.
pub const ROWS_MAX: usize = 512;

/// Keys longer than this begin no row, which bounds the memory: 512 keys of 256 bytes are an eighth of a megabyte
/// per block.
const KEY_BYTES_MAX: usize = 256;

/// With more partitions than this, a row can hold several of them, and their bounds are not kept.
pub(crate) const BOUNDS_MAX: usize = ROWS_MAX / 2;

/// Weight that is divided evenly among all rows, relative to the load of one metric, so that quiet ranges keep some
/// rows.
const BASE_WEIGHT: f64 = 0.1;

/// Amounts of every metric, in the order of [`Metric::KEPT`].
pub(crate) type Cell = [f32; METRICS];

/// The load of one span of time.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// Start, seconds since the Unix epoch.
    pub(crate) from: u64,
    /// Length in seconds.
    pub(crate) seconds: u32,
    /// Seconds of the column that reports cover.
    pub(crate) covered: u32,
    /// Rows that begin a partition at the end of the column, ascending; empty if there were too many partitions.
    pub(crate) bounds: Vec<u16>,
    /// Amounts by row.
    pub(crate) cells: Vec<Cell>,
}

/// Columns over common rows.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// First keys of the rows.
    pub(crate) axis: Vec<Key>,
    /// Ascending by time.
    pub(crate) columns: VecDeque<Column>,
}

impl Block {
    pub(crate) fn empty() -> Self {
        Self { axis: whole(), columns: VecDeque::new() }
    }

    /// A block with one column of one second that holds the rates of a report.
    pub(crate) fn of_report(report: &Report) -> Self {
        let mut axis = whole();
        let long = |key: &&Key| key.len() <= KEY_BYTES_MAX;
        for partition in &report.partitions {
            let ends = [Some(&partition.start), partition.end.as_ref()].into_iter().flatten();
            let inside = |key: &&Key| {
                **key > partition.start && partition.end.as_ref().is_none_or(|end| *key < end)
            };
            let buckets = partition.writes.0.iter().chain(&partition.reads.0).map(|(key, _)| key);
            axis.extend(ends.chain(buckets.filter(inside)).filter(long).cloned());
        }
        axis.sort_unstable();
        axis.dedup();
        let mut cells = vec![[0.0; METRICS]; axis.len()];
        for partition in &report.partitions {
            place(&axis, &mut cells, partition);
        }
        let row = |load: &PartitionLoad| axis.binary_search(&load.start).ok();
        let mut bounds = Vec::new();
        if report.partitions.len() <= BOUNDS_MAX {
            bounds.extend(
                report.partitions.iter().filter_map(row).filter_map(|row| u16::try_from(row).ok()),
            );
        }
        let column = Column { from: report.from, seconds: 1, covered: 1, bounds, cells };
        let mut block = Self { axis, columns: VecDeque::from([column]) };
        block.reduce();
        block
    }

    /// Appends the columns of another block.
    pub(crate) fn append(&mut self, block: &Self) {
        let mut columns = block.columns_on(&self.take_axis(&block.axis));
        self.columns.append(&mut columns);
        self.reduce();
    }

    /// Adds the last column of another block to the last column here; both cover the same time.
    pub(crate) fn add(&mut self, block: &Self) {
        let columns = block.columns_on(&self.take_axis(&block.axis));
        if let (Some(ours), Some(theirs)) = (self.columns.back_mut(), columns.back()) {
            ours.covered = (ours.covered + theirs.covered).min(ours.seconds);
            ours.bounds.clone_from(&theirs.bounds);
            sum_into(&mut ours.cells, &theirs.cells);
        }
        self.reduce();
    }

    /// A block over the same rows whose only column is the sum of all columns.
    pub(crate) fn compacted(&self, start: u64, seconds: u32) -> Self {
        let mut cells = vec![[0.0; METRICS]; self.axis.len()];
        let mut covered = 0;
        for column in &self.columns {
            covered += column.covered;
            sum_into(&mut cells, &column.cells);
        }
        let bounds = self.columns.back().map_or_else(Vec::new, |last| last.bounds.clone());
        let column = Column { from: start, seconds, covered: covered.min(seconds), bounds, cells };
        Self { axis: self.axis.clone(), columns: VecDeque::from([column]) }
    }

    /// Upper bound of the memory in use, bytes.
    pub(crate) fn bytes(&self) -> usize {
        // A key is a fat pointer to an allocation with two counters.
        let key = |key: &Key| key.len() + 2 * size_of::<Key>();
        let cells: usize = self.columns.iter().map(|column| column.cells.capacity()).sum();
        let bounds =
            |column: &Column| column.bounds.capacity() * size_of::<u16>() + size_of::<Column>();
        let columns: usize = self.columns.iter().map(bounds).sum();
        self.axis.iter().map(key).sum::<usize>() + cells * size_of::<Cell>() + columns
    }

    /// Cuts the rows where rows of another axis begin. Returns the new axis.
    fn take_axis(&mut self, axis: &[Key]) -> Vec<Key> {
        let joined = union(&self.axis, axis);
        if joined.len() != self.axis.len() {
            self.columns = self.columns_on(&joined);
            self.axis.clone_from(&joined);
        }
        joined
    }

    fn columns_on(&self, axis: &[Key]) -> VecDeque<Column> {
        let offsets = offsets(&self.axis, axis);
        let moved = |column: &Column| Column {
            bounds: moved_bounds(&column.bounds, |row| offsets.get(row).copied()),
            cells: spread(&column.cells, &offsets),
            ..*column
        };
        self.columns.iter().map(moved).collect()
    }

    /// Marks rows that must not be joined with the row before: those where partitions begin, and the empty space
    /// above the last known key of a partition and below its first one. If a moving tail were joined with that
    /// space, its load would appear over all keys to come.
    fn forced(&self, sums: &[Cell]) -> Vec<bool> {
        let mut bounds = vec![false; sums.len()];
        for row in self.columns.back().iter().flat_map(|last| &last.bounds) {
            bounds[usize::from(*row)] = true;
        }
        let is_empty = |row: usize| sums[row].iter().all(|amount| *amount <= 0.0);
        let is_first = |row: usize| row == 0 || bounds[row];
        let is_last = |row: usize| bounds.get(row + 1).copied().unwrap_or(true);
        let edge = |row: usize| {
            is_first(row)
                || (is_last(row) && is_empty(row))
                || (is_first(row - 1) && is_empty(row - 1))
        };
        let edges: Vec<bool> = (0..sums.len()).map(edge).collect();
        let few = edges.iter().filter(|edge| **edge).count() <= ROWS_MAX / 2;
        if few { edges } else { bounds }
    }

    fn reduce(&mut self) {
        if self.axis.len() <= ROWS_MAX {
            return;
        }
        let mut sums = vec![[0.0; METRICS]; self.axis.len()];
        for column in &self.columns {
            sum_into(&mut sums, &column.cells);
        }
        let forced = self.forced(&sums);
        let groups = divide(&heat(&sums), &forced, ROWS_MAX);
        for column in &mut self.columns {
            column.bounds = moved_bounds(&column.bounds, |row| groups.binary_search(&row).ok());
            column.cells = gather(&column.cells, &groups);
        }
        self.axis = groups.into_iter().map(|row| Arc::clone(&self.axis[row])).collect();
    }
}

/// Bounds as indexes of other rows; a bound that begins no row any more is dropped.
fn moved_bounds(bounds: &[u16], row: impl Fn(usize) -> Option<usize>) -> Vec<u16> {
    let moved = |bound: &u16| row(usize::from(*bound)).and_then(|row| u16::try_from(row).ok());
    bounds.iter().filter_map(moved).collect()
}

/// The weight of each row: the sum of its shares of the metrics in use, plus its part of the base weight.
fn heat(sums: &[Cell]) -> Vec<f64> {
    let mut weights = vec![BASE_WEIGHT / sums.len() as f64; sums.len()];
    for metric in 0..METRICS {
        let total: f64 = sums.iter().map(|cell| f64::from(cell[metric])).sum();
        if total > 0.0 {
            for (weight, cell) in weights.iter_mut().zip(sums) {
                *weight += f64::from(cell[metric]) / total;
            }
        }
    }
    weights
}

fn sum_into(sums: &mut [Cell], cells: &[Cell]) {
    for (sum, cell) in sums.iter_mut().zip(cells) {
        for (whole, part) in sum.iter_mut().zip(cell) {
            *whole += part;
        }
    }
}

/// Adds one partition's load to the rows of its range, divided by its shares.
fn place(axis: &[Key], cells: &mut [Cell], partition: &PartitionLoad) {
    // A key that is too long to begin a row counts as the row that contains it.
    let first = row_of(axis, &partition.start);
    let end =
        partition.end.as_ref().map_or(axis.len(), |end| axis.partition_point(|start| start < end));
    let end = end.clamp(first + 1, axis.len());
    let rows = (first, end);
    let (writes, reads) =
        (spots(axis, rows, &partition.writes), spots(axis, rows, &partition.reads));
    for metric in Metric::KEPT {
        let metric_index = metric.index();
        let rate = f64::from(partition.rates[metric_index]);
        if !rate.is_finite() || rate <= 0.0 {
            continue;
        }
        for (start, stop, share) in if metric.is_of_reads() { &reads } else { &writes } {
            let amount = narrow(rate * share / (stop - start) as f64);
            for cell in &mut cells[*start..*stop] {
                cell[metric_index] += amount;
            }
        }
    }
}

/// Positions of a partition's buckets in the rows: first row, row after the last, share. The shares add up to 1.
fn spots(axis: &[Key], (first, end): (usize, usize), shares: &Shares) -> Vec<(usize, usize, f64)> {
    let weight = |share: f32| f64::from(share.max(0.0));
    let total: f64 = shares.0.iter().map(|(_, share)| weight(*share)).sum();
    if !total.is_finite() || total <= 0.0 {
        return vec![(first, end, 1.0)];
    }
    // A key outside the partition counts as the nearest row.
    let row = |key: &Key| first + row_of(&axis[first..end], key);
    let mut ranges = Vec::with_capacity(shares.0.len());
    let mut stop = end;
    for (key, share) in shares.0.iter().rev() {
        let start = row(key);
        if weight(*share) > 0.0 {
            ranges.push((start, stop.max(start + 1), weight(*share) / total));
        }
        stop = start;
    }
    ranges
}
