//! The price of a design: shares of partitions in the load, and the cost of reads.
//!
//! A statement reads the rows that agree with its conditions on the leading columns of the order; other conditions are
//! tested row by row. From the share of rows that this is, today and in another design, follow the rows that the same
//! statement would read there.
//!
//! Invariant: with `n` rows, squared shares are those of pairs of different rows, which is free of the bias of a sample.

use std::collections::BTreeMap;

use super::layout::{Layout, key};
use super::{
    FanOut, PROBES_MAX, Question, ReadShape, Reads, SampledRow, ShapeBound, ShapeCost, whole,
};

/// Rows whose reading costs as much as a visit to one more partition.
const ROWS_PER_VISIT: f64 = 1_000.0;

/// Shares of partitions in some rows.
pub(super) struct Shares {
    /// Rows of each partition.
    pub(super) counts: Vec<usize>,
    /// Share of the busiest partition.
    pub(super) max: f64,
    /// Number of equal partitions over which the rows would be as concentrated.
    pub(super) effective: f64,
}

impl Shares {
    pub(super) fn of(layout: &Layout<'_>, rows: &[SampledRow]) -> Self {
        let mut counts = vec![0_usize; layout.partitions];
        for row in rows {
            counts[layout.place(row)] += 1;
        }
        let judged = rows.len() as f64;
        let most = counts.iter().max().copied().unwrap_or_default();
        let max = if rows.is_empty() { 1.0 } else { most as f64 / judged };
        let meet: f64 = counts.iter().map(|count| *count as f64 * (*count as f64 - 1.0)).sum();
        let partitions = layout.partitions as f64;
        let effective = match (rows.is_empty(), meet > 0.0) {
            (true, _) => 1.0,
            (false, true) => judged * (judged - 1.0) / meet,
            (false, false) => partitions,
        };
        Self { counts, max, effective: effective.clamp(1.0, partitions) }
    }
}

/// Rows with which reads are tried, and the share of rows that each statement reads today.
pub(super) struct Priced<'q> {
    pub(super) probes: Vec<&'q SampledRow>,
    /// Values of each column that a statement bounds by a range, in order.
    sorted: BTreeMap<usize, Vec<&'q [u8]>>,
    today: Vec<f64>,
}

impl<'q> Priced<'q> {
    pub(super) fn new(question: &'q Question<'_>) -> Self {
        let step = question.rows.len().div_ceil(PROBES_MAX).max(1);
        let probes: Vec<&SampledRow> = question.rows.iter().step_by(step).collect();
        let mut sorted: BTreeMap<usize, Vec<&[u8]>> = BTreeMap::new();
        for (column, bound) in question.shapes.iter().flat_map(|shape| &shape.bounds) {
            if matches!(bound, ShapeBound::Range(_)) && *column < question.columns {
                sorted.entry(*column).or_insert_with(|| {
                    let values = probes.iter().map(|row| row[*column].as_slice());
                    let mut values: Vec<&[u8]> = values.collect();
                    values.sort_unstable();
                    values
                });
            }
        }
        let mut priced = Self { probes, sorted, today: Vec::new() };
        let layout = Layout::of(question, &question.today);
        let visits = question.shapes.iter().map(|shape| priced.visited(&layout, shape));
        priced.today = visits.map(|(_, read)| read).collect();
        priced
    }

    /// Cost of each statement in a design.
    pub(super) fn shapes(&self, question: &Question<'_>, layout: &Layout<'_>) -> Vec<ShapeCost> {
        let statements = question.shapes.iter().zip(&self.today);
        statements
            .map(|(shape, today)| {
                let (partitions, read) = self.visited(layout, shape);
                let rows = shape.rows * read / today.max(f64::MIN_POSITIVE);
                ShapeCost { partitions, rows: rows.max(shape.rows.min(1.0)) }
            })
            .collect()
    }

    /// Mean number of partitions that a statement visits, and the share of all rows that it reads.
    fn visited(&self, layout: &Layout<'_>, shape: &ReadShape) -> (f64, f64) {
        let (mut fixed, mut values) = (Vec::new(), 1.0_f64);
        let mut ranges: BTreeMap<usize, f64> = BTreeMap::new();
        for (column, bound) in &shape.bounds {
            match bound {
                ShapeBound::Value => fixed.push(*column),
                ShapeBound::Values(number) => {
                    fixed.push(*column);
                    values *= number.max(1.0);
                }
                ShapeBound::Range(share) => {
                    ranges.insert(*column, share.clamp(0.0, 1.0));
                }
            }
        }
        let depth = layout.depth(&fixed);
        let range = layout
            .order
            .get(depth)
            .and_then(|column| Some((*column, *ranges.get(column)?, self.sorted.get(column)?)));
        let touched = |row: &SampledRow| match range {
            Some((column, share, sorted)) if layout.hashed.is_empty() => {
                layout.touched_between(row, depth, span(sorted, &row[column], share))
            }
            _ => layout.touched(row, &fixed),
        };
        let sum: f64 = self.probes.iter().map(|row| touched(row)).sum();
        let mean = sum / self.probes.len().max(1) as f64;
        let total = layout.partitions as f64;
        let partitions = (mean * values).min(total);
        let leading = &layout.order[..depth];
        let in_range = range.map_or(1.0, |(_, share, _)| share);
        let mut read = self.equal_share(leading) * values * in_range;
        // A bucket that is found by more columns than the order begins with has fewer of these rows.
        if layout.is_pruned(&fixed) && !layout.hashed.iter().all(|column| leading.contains(column))
        {
            read *= partitions / total;
        }
        (partitions, read.min(1.0))
    }

    /// Mean share of the rows that have the same values of these columns.
    fn equal_share(&self, columns: &[usize]) -> f64 {
        if columns.is_empty() || self.probes.len() < 2 {
            return 1.0;
        }
        let mut counts: BTreeMap<Vec<&[u8]>, usize> = BTreeMap::new();
        for row in &self.probes {
            *counts.entry(key(row, columns)).or_default() += 1;
        }
        let rows = self.probes.len() as f64;
        let pairs: f64 = counts.values().map(|count| *count as f64 * (*count as f64 - 1.0)).sum();
        (pairs / (rows * (rows - 1.0))).max(1.0 / rows)
    }
}

/// The values between which a share of all sorted values lies, from a value on or as near as there is room above.
fn span<'v>(sorted: &[&'v [u8]], start: &[u8], share: f64) -> (&'v [u8], &'v [u8]) {
    let last = sorted.len().saturating_sub(1);
    let length = whole((share * sorted.len() as f64).round());
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(last);
    let begin = sorted.partition_point(|value| *value < start).min(last - length);
    let value = |index: usize| sorted.get(index).copied().unwrap_or_default();
    (value(begin), value(begin + length))
}

/// Price of one statement, in partitions visited.
pub(super) fn cost(cost: &ShapeCost) -> f64 {
    cost.partitions + cost.rows / ROWS_PER_VISIT
}

/// Mean price of a statement, by the frequencies of statements.
pub(super) fn of_shapes(shapes: &[ReadShape], costs: &[ShapeCost]) -> f64 {
    let total: f64 = shapes.iter().map(|shape| shape.per_s).sum();
    let weighed = shapes.iter().zip(costs);
    if total > 0.0 {
        weighed.map(|(shape, of_shape)| shape.per_s * cost(of_shape)).sum::<f64>() / total
    } else {
        costs.iter().map(cost).sum::<f64>() / costs.len().max(1) as f64
    }
}

/// Mean number of partitions that a read visits, by the frequencies of kinds of reads.
pub(super) fn of_kinds(reads: &Reads, fan_out: &FanOut) -> f64 {
    let mut pairs = vec![
        (reads.point, fan_out.point),
        (reads.time_range, fan_out.time_range),
        (reads.last_point, fan_out.last_point),
        (reads.full_scan, fan_out.full_scan),
    ];
    let weights = reads.by_column.iter().copied().chain(std::iter::repeat(0.0));
    pairs.extend(weights.zip(fan_out.by_column.iter().copied()));
    let sum: f64 = pairs.iter().map(|(weight, _)| weight).sum();
    if sum > 0.0 {
        pairs.iter().map(|(weight, touched)| weight * touched).sum::<f64>() / sum
    } else {
        pairs.iter().map(|(_, touched)| touched).sum::<f64>() / pairs.len() as f64
    }
}
