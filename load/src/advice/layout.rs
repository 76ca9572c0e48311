//! A design as it would place sampled rows: partitions of rows, and the partitions that reads visit.
//!
//! Invariant: ranges are cut by the older half of the sample; their rows are judged from the newer half on.

use std::collections::BTreeMap;

use super::{Design, FanOut, Question, SampledRow, Warning, needed_partitions};
use crate::verdict::Class;

/// Minimum sampled rows per bucket; fewer are not significant.
const ROWS_PER_BUCKET: usize = 20;
/// Share of the newest rows in one partition from which a key counts as moving.
const TAIL_SHARE: f64 = 0.9;
/// Minimum number of ranges: with one alone, all designs look alike.
const RANGES_MIN: usize = 2;
/// Share of a value from which it is named as the one that makes a key hot.
const HOT_SHARE: f64 = 0.2;

/// Evaluator of a design: assigns rows to partitions.
pub(super) struct Layout<'a> {
    pub(super) order: &'a [usize],
    /// Hashed columns; empty for ranges.
    pub(super) hashed: &'a [usize],
    pub(super) partitions: usize,
    /// First keys of all ranges except the first.
    pub(super) bounds: Vec<Vec<&'a [u8]>>,
    /// Position of the first row on which shares are judged.
    pub(super) judged_from: usize,
}

impl<'a> Layout<'a> {
    pub(super) fn of(question: &'a Question<'_>, design: &'a Design) -> Self {
        match design {
            Design::Hash { of: hashed, buckets, order } => {
                let partitions = usize::try_from(*buckets).unwrap_or(usize::MAX).max(1);
                Self { order, hashed, partitions, bounds: Vec::new(), judged_from: 0 }
            }
            Design::Range { order } => {
                let count = question.partitions.max(needed_partitions(question)).max(RANGES_MIN);
                let half = question.rows.len() / 2;
                let cut_columns = match question.keep_together {
                    0 => order.len(),
                    columns => columns.min(order.len()),
                };
                let mut older: Vec<Vec<&[u8]>> = question.rows[..half]
                    .iter()
                    .map(|row| key(row, &order[..cut_columns]))
                    .collect();
                older.sort_unstable();
                // Without older rows there is nothing to cut by.
                let bound = |cut: usize| older.get(cut * half / count).cloned();
                let mut bounds: Vec<Vec<&[u8]>> = (1..count).filter_map(bound).collect();
                bounds.dedup();
                Self { order, hashed: &[], partitions: bounds.len() + 1, bounds, judged_from: half }
            }
        }
    }

    pub(super) fn place(&self, row: &SampledRow) -> usize {
        if self.hashed.is_empty() {
            let key = key(row, self.order);
            self.bounds.partition_point(|bound| *bound <= key)
        } else {
            bucket(row, self.hashed, self.partitions)
        }
    }

    /// True if fixed values of these columns give the bucket.
    pub(super) fn is_pruned(&self, fixed: &[usize]) -> bool {
        !self.hashed.is_empty() && self.hashed.iter().all(|column| fixed.contains(column))
    }

    /// Number of leading columns of the order that are fixed.
    pub(super) fn depth(&self, fixed: &[usize]) -> usize {
        self.order.iter().take_while(|column| fixed.contains(column)).count()
    }

    /// Number of partitions that a read with fixed values of these columns must visit.
    pub(super) fn touched(&self, row: &SampledRow, fixed: &[usize]) -> f64 {
        if !self.hashed.is_empty() {
            return if self.is_pruned(fixed) { 1.0 } else { self.partitions as f64 };
        }
        let depth = self.depth(fixed);
        let prefix = key(row, &self.order[..depth]);
        let full = depth == self.order.len();
        let inside = self
            .bounds
            .iter()
            .filter(|bound| !full && bound.get(..depth) == Some(prefix.as_slice()))
            .count();
        (1 + inside) as f64
    }

    /// Number of ranges that a read must visit which fixes these columns as a row has them, and the next column of the
    /// order between two values.
    pub(super) fn touched_between(
        &self,
        row: &SampledRow,
        depth: usize,
        (low, high): (&[u8], &[u8]),
    ) -> f64 {
        let prefix = key(row, &self.order[..depth]);
        let key_of = |value| prefix.iter().copied().chain([value]).collect::<Vec<&[u8]>>();
        let (low, high) = (key_of(low), key_of(high));
        let inside = self.bounds.iter().filter(|bound| {
            let leading = &bound[..bound.len().min(depth + 1)];
            bound.as_slice() > low.as_slice() && leading <= high.as_slice()
        });
        (1 + inside.count()) as f64
    }

    pub(super) fn fan_out(&self, question: &Question<'_>, probes: &[&SampledRow]) -> FanOut {
        let mean = |fixed: &[usize]| {
            let sum: f64 = probes.iter().map(|row| self.touched(row, fixed)).sum();
            sum / probes.len().max(1) as f64
        };
        let columns: Vec<usize> = (0..question.columns).collect();
        let series: Vec<usize> =
            columns.iter().copied().filter(|column| Some(*column) != question.time).collect();
        let partitions = self.partitions as f64;
        let time_leads = self.hashed.is_empty()
            && question.time.is_some()
            && self.order.first() == question.time.as_ref();
        let time_range = if time_leads {
            (1.0 + question.time_range_share * partitions).min(partitions)
        } else {
            partitions
        };
        FanOut {
            point: mean(&columns),
            by_column: columns.iter().map(|column| mean(&[*column])).collect(),
            time_range,
            last_point: mean(&series),
            full_scan: partitions,
        }
    }

    pub(super) fn warnings(&self, question: &Question<'_>, max_share: f64) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let rows = question.rows;
        if rows.len() - self.judged_from < ROWS_PER_BUCKET * self.partitions {
            warnings.push(Warning::SmallSample { rows: rows.len() });
        }
        if self.hashed.is_empty() && self.partitions > 1 && max_share >= TAIL_SHARE {
            warnings.push(Warning::OneTail);
        }
        let decisive: &[usize] =
            if self.hashed.is_empty() { &self.order[..1] } else { self.hashed };
        if let [column] = decisive
            && Some(*column) != question.time
        {
            let mut counts: BTreeMap<&[u8], usize> = BTreeMap::new();
            for row in rows {
                *counts.entry(&row[*column]).or_default() += 1;
            }
            let share = counts.values().max().map_or(0.0, |max| *max as f64 / rows.len() as f64);
            let equal_share = 1.0 / self.partitions as f64;
            let makes_hot = question.hot == Some(Class::HotKey) && share >= HOT_SHARE;
            if share > equal_share || makes_hot {
                warnings.push(Warning::TopValue { column: *column, share, equal_share });
            }
            if counts.len() < self.partitions {
                warnings.push(Warning::FewValues { column: *column, values: counts.len() });
            }
        }
        warnings
    }
}

/// The columns of a row's key in an order.
pub(super) fn key<'r>(row: &'r SampledRow, order: &[usize]) -> Vec<&'r [u8]> {
    order.iter().map(|column| row[*column].as_slice()).collect()
}

/// FNV-1a over the columns, each with its length, then mixed: any even hash gives the same shares as the real one.
fn bucket(row: &SampledRow, hashed: &[usize], buckets: usize) -> usize {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    let mut feed = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    for column in hashed {
        (row[*column].len() as u64).to_be_bytes().into_iter().for_each(&mut feed);
        row[*column].iter().copied().for_each(&mut feed);
    }
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    usize::try_from((mixed * buckets as u64) >> 32).unwrap_or(0)
}
