//! The samples of a window, divided into an older and a newer half, and statistics over them.
//!
//! Invariants: each sample is weighted by the number of operations that it represents, so a busy second weighs more
//! than a quiet one; shares add up to 1. A half without weight has no shares: callers check [`Half::samples`] first.

use std::collections::BTreeMap;

use crate::sample::Sketch;

/// A sampled operation with its weight and the ends of its columns.
#[derive(Clone, Debug)]
pub(crate) struct Row<'s> {
    pub(crate) second: u64,
    pub(crate) key: &'s [u8],
    /// End of a scan; empty for "to the end".
    pub(crate) end: Option<&'s [u8]>,
    pub(crate) above: bool,
    pub(crate) below: bool,
    /// Number of operations that the sample represents.
    pub(crate) weight: f64,
    /// Ends of the columns of the key, ascending; the last one is the length of the key.
    pub(crate) ends: Vec<usize>,
}

impl<'s> Row<'s> {
    /// The first `depth` columns; `None` if there are fewer.
    pub(crate) fn prefix(&self, depth: usize) -> Option<&'s [u8]> {
        let end = *self.ends.get(depth.checked_sub(1)?)?;
        self.key.get(..end)
    }

    /// The column with a number (from 0).
    fn column(&self, column: usize) -> Option<&'s [u8]> {
        let end = *self.ends.get(column)?;
        let start = if column == 0 { 0 } else { self.ends[column - 1] };
        self.key.get(start..end)
    }

    /// True if all keys of the operation begin with `prefix`, the first columns of its key.
    fn stays_within(&self, prefix: &[u8]) -> bool {
        self.end.is_none_or(|end| end.starts_with(prefix))
    }
}

/// All samples of a sketch, ascending by second.
pub(crate) fn rows_of<'s>(
    sketch: &'s Sketch,
    ends_of: &dyn Fn(&[u8]) -> Vec<usize>,
) -> Vec<Row<'s>> {
    let mut rows = Vec::new();
    // A tick without operations would only cause a division by zero.
    for tick in sketch.ticks.iter().filter(|tick| tick.count > 0) {
        let weight = tick.count as f64 / tick.samples.len().max(1) as f64;
        for sample in &tick.samples {
            let mut ends = ends_of(&sample.key);
            ends.retain(|end| (1..sample.key.len()).contains(end));
            if !sample.key.is_empty() {
                ends.push(sample.key.len());
            }
            let (key, end) = (&*sample.key, sample.end.as_deref());
            rows.push(Row {
                second: tick.second,
                key,
                end,
                above: sample.above,
                below: sample.below,
                weight,
                ends,
            });
        }
    }
    rows
}

/// Division of a half's operations by a cut: shares that add up to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sides {
    pub(crate) left: f64,
    pub(crate) right: f64,
    /// Share of scans that both sides have to serve.
    pub(crate) contained: f64,
}

impl Sides {
    /// Share that the busier side has to serve.
    pub(crate) fn larger(self) -> f64 {
        self.left.max(self.right) + self.contained
    }
}

/// One half of a window.
#[derive(Clone, Debug)]
pub(crate) struct Half<'r, 's> {
    pub(crate) rows: &'r [Row<'s>],
    /// Rows in key order, each with the cumulative weight up to and including it.
    sorted: Vec<(&'r Row<'s>, f64)>,
    scans: Vec<&'r Row<'s>>,
    total: f64,
}

impl<'r, 's> Half<'r, 's> {
    pub(crate) fn new(rows: &'r [Row<'s>]) -> Self {
        let mut sorted: Vec<(&Row<'_>, f64)> = rows.iter().map(|row| (row, 0.0)).collect();
        sorted.sort_unstable_by_key(|(row, _)| row.key);
        let mut total = 0.0;
        for (row, upto) in &mut sorted {
            total += row.weight;
            *upto = total;
        }
        let scans = rows.iter().filter(|row| row.end.is_some()).collect();
        Self { rows, sorted, scans, total }
    }

    pub(crate) fn samples(&self) -> u32 {
        u32::try_from(self.rows.len()).unwrap_or(u32::MAX)
    }

    /// The keys of all rows, ascending.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'s [u8]> {
        self.sorted.iter().map(|(row, _)| row.key)
    }

    /// Number of samples of equal weight with the same significance (Kish's effective sample size).
    pub(crate) fn effective(&self) -> f64 {
        let squares: f64 = self.rows.iter().map(|row| row.weight * row.weight).sum();
        self.total * self.total / squares.max(f64::MIN_POSITIVE)
    }

    /// The row at whose key a share of the operations has begun.
    pub(crate) fn quantile(&self, share: f64) -> Option<&'r Row<'s>> {
        let index = self.sorted.partition_point(|(_, upto)| *upto < share * self.total);
        self.sorted.get(index).map(|(row, _)| *row)
    }

    pub(crate) fn sides(&self, cut: &[u8]) -> Sides {
        let index = self.sorted.partition_point(|(row, _)| row.key < cut);
        let begin_left = index.checked_sub(1).map_or(0.0, |last| self.sorted[last].1) / self.total;
        let is_contained = |row: &&&Row<'_>| {
            row.key < cut && row.end.is_some_and(|end| end.is_empty() || end > cut)
        };
        let contained: f64 = self.scans.iter().filter(is_contained).map(|row| row.weight).sum();
        // An empty sum is -0, which would be printed like that.
        let contained = contained / self.total + 0.0;
        Sides { left: begin_left - contained, right: 1.0 - begin_left, contained }
    }
}

/// The share of operations that satisfy `test`.
pub(crate) fn share_of(rows: &[Row<'_>], test: impl Fn(&Row<'_>) -> bool) -> f64 {
    let total: f64 = rows.iter().map(|row| row.weight).sum();
    let weight: f64 = rows.iter().filter(|row| test(row)).map(|row| row.weight).sum();
    weight / total.max(f64::MIN_POSITIVE) + 0.0
}

/// Sorts keys and replaces each weight by the cumulative sum; returns the total.
fn accumulate(keys: &mut [(&[u8], f64)]) -> f64 {
    keys.sort_unstable_by_key(|(key, _)| *key);
    let mut sum = 0.0;
    for (_, weight) in keys.iter_mut() {
        sum += *weight;
        *weight = sum;
    }
    sum
}

/// The weight of all keys below `key`, in a list prepared by [`accumulate`].
fn weight_below(sorted: &[(&[u8], f64)], key: &[u8]) -> f64 {
    let index = sorted.partition_point(|(candidate, _)| *candidate < key);
    index.checked_sub(1).map_or(0.0, |last| sorted[last].1)
}

/// The probability that a newer value is greater than an older one (equal ones count half); 0.5 if one side is empty.
fn probability_greater<'s>(
    old: impl Iterator<Item = (&'s [u8], f64)>,
    new: impl Iterator<Item = (&'s [u8], f64)>,
) -> f64 {
    let mut old: Vec<_> = old.collect();
    let old_total = accumulate(&mut old);
    let (mut greater, mut new_total) = (0.0, 0.0);
    for (key, weight) in new {
        let lower = weight_below(&old, key);
        let upto = old.partition_point(|(candidate, _)| *candidate <= key);
        let upto = upto.checked_sub(1).map_or(0.0, |last| old[last].1);
        greater += weight * f64::midpoint(lower, upto);
        new_total += weight;
    }
    if old_total * new_total > 0.0 { greater / (old_total * new_total) } else { 0.5 }
}

/// Drift of keys from the older half to the newer one: up (1), down (0) or none (0.5).
pub(crate) fn drift_of_keys(old: &Half<'_, '_>, new: &Half<'_, '_>) -> f64 {
    // Both are sorted already: one pass over each.
    let (mut lower, mut upto) = (0, 0);
    let weight = |end: usize| end.checked_sub(1).map_or(0.0, |last| old.sorted[last].1);
    let mut greater = 0.0;
    for (row, _) in &new.sorted {
        while old.sorted.get(lower).is_some_and(|(candidate, _)| candidate.key < row.key) {
            lower += 1;
        }
        upto = upto.max(lower);
        while old.sorted.get(upto).is_some_and(|(candidate, _)| candidate.key <= row.key) {
            upto += 1;
        }
        greater += row.weight * f64::midpoint(weight(lower), weight(upto));
    }
    greater / (old.total * new.total)
}

/// As [`drift_of_keys`], for the values of one column (from 0) alone.
pub(crate) fn drift_of_column(old: &Half<'_, '_>, new: &Half<'_, '_>, column: usize) -> f64 {
    fn values<'h>(half: &'h Half<'_, '_>, column: usize) -> impl Iterator<Item = (&'h [u8], f64)> {
        half.rows.iter().filter_map(move |row| Some((row.column(column)?, row.weight)))
    }
    probability_greater(values(old, column), values(new, column))
}

/// As [`drift_of_keys`], for the first `depth` columns of the keys on one side of a cut.
pub(crate) fn drift_beside(
    old: &Half<'_, '_>,
    new: &Half<'_, '_>,
    depth: usize,
    side: impl Fn(&[u8]) -> bool + Copy,
) -> f64 {
    fn values<'h>(
        half: &'h Half<'_, '_>,
        depth: usize,
        side: impl Fn(&[u8]) -> bool,
    ) -> impl Iterator<Item = (&'h [u8], f64)> {
        let rows = half.rows.iter().filter(move |row| side(row.key));
        rows.map(move |row| (row.prefix(depth).unwrap_or(row.key), row.weight))
    }
    probability_greater(values(old, depth, side), values(new, depth, side))
}

/// Drift of keys within the same first `depth` columns; `None` if too few of these were seen in both halves.
pub(crate) fn drift_within(old: &Half<'_, '_>, new: &Half<'_, '_>, depth: usize) -> Option<f64> {
    /// Minimum comparisons; fewer are not significant.
    const PAIRS_MIN: u32 = 64;
    /// Maximum older keys compared for each prefix.
    const OLDER_MAX: usize = 4;
    let mut older: BTreeMap<&[u8], Vec<&[u8]>> = BTreeMap::new();
    for row in old.rows {
        if let Some(prefix) = row.prefix(depth) {
            let keys = older.entry(prefix).or_default();
            if keys.len() < OLDER_MAX {
                keys.push(row.key);
            }
        }
    }
    let (mut greater, mut pairs) = (0.0, 0_u32);
    for row in new.rows {
        let older_keys = row.prefix(depth).and_then(|prefix| older.get(prefix));
        for key in older_keys.into_iter().flatten() {
            pairs += 1;
            greater += match row.key.cmp(key) {
                std::cmp::Ordering::Greater => 1.0,
                std::cmp::Ordering::Equal => 0.5,
                std::cmp::Ordering::Less => 0.0,
            };
        }
    }
    (pairs >= PAIRS_MIN).then(|| greater / f64::from(pairs))
}

/// The most frequent value of the first `depth` columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Top<'s> {
    pub(crate) prefix: &'s [u8],
    /// Share of both halves together.
    pub(crate) share: f64,
    /// Share in the half where it is lower: the value has had at least that all along.
    pub(crate) lasting: f64,
    /// Number of distinct values.
    pub(crate) distinct: u32,
}

/// Finds the most frequent value. Scans count for the prefixes within which they stay, and for no full key.
pub(crate) fn top<'s>(
    old: &Half<'_, 's>,
    new: &Half<'_, 's>,
    depth: usize,
    columns: usize,
) -> Top<'s> {
    let counted = |(row, _): &(&Row<'s>, f64)| {
        let prefix = row.prefix(depth)?;
        let whole = depth == columns;
        let counts = row.stays_within(prefix) && (row.end.is_none() || !whole);
        counts.then_some((prefix, row.weight))
    };
    // Keys are sorted, so equal prefixes are adjacent.
    let mut olds = old.sorted.iter().filter_map(counted).peekable();
    let mut news = new.sorted.iter().filter_map(counted).peekable();
    let mut most = Top::default();
    let mut distinct = 0;
    loop {
        let next =
            [olds.peek(), news.peek()].into_iter().flatten().map(|(prefix, _)| *prefix).min();
        let Some(prefix) = next else { break };
        let (mut old_share, mut new_share) = (0.0, 0.0);
        while let Some((_, weight)) = olds.next_if(|(candidate, _)| *candidate == prefix) {
            old_share += weight / old.total;
        }
        while let Some((_, weight)) = news.next_if(|(candidate, _)| *candidate == prefix) {
            new_share += weight / new.total;
        }
        distinct += 1;
        let share = f64::midpoint(old_share, new_share);
        if share > most.share {
            most = Top { prefix, share, lasting: old_share.min(new_share), distinct };
        }
    }
    Top { distinct, ..most }
}
