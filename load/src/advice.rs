//! Predicts the effect of another key design on a table: sampled rows are replayed through each candidate; the result
//! is the share of the busiest partition, the number of partitions over which the load would spread, and the cost of
//! reads.
//!
//! Ranges are cut by the older half of the sample and judged on the newer, so that a key that moves is recognized: its
//! cuts all lie behind it. Buckets are judged on all rows.
//!
//! Invariants: a pure function of the question; columns are bytes that compare as their values do, and nothing else is
//! known about them; rendering DDL is left to the caller. Shares are those of a sample: with `n` rows over `b` equal
//! buckets the greatest is overestimated by about `sqrt(2 ln(b) b / n)` of itself. The effective number is corrected
//! for that.

use std::collections::BTreeMap;

use crate::shape::Shape;

/// Target busy share of a bucket: leaves room for skew, and for a node that fails.
const BUCKET_BUSY: f64 = 0.4;
/// Maximum busy share of the busiest partition in a design that carries the load.
const CARRIES_BUSY: f64 = 0.7;
/// Minimum sampled rows per bucket; fewer are not significant.
const ROWS_PER_BUCKET: usize = 20;
/// Share of the newest rows in one partition from which a key counts as moving.
const TAIL_SHARE: f64 = 0.9;

/// One sampled row: the columns of its key, in today's order.
pub type SampledRow = Vec<Vec<u8>>;

/// Placement of rows. Columns are given by their numbers in today's key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Design {
    /// Ranges of the key with its columns in this order.
    Range {
        /// Order of the key's columns.
        order: Vec<usize>,
    },
    /// Buckets by hash, and the key in this order within each.
    Hash {
        /// Hashed columns.
        of: Vec<usize>,
        /// Number of buckets.
        buckets: u32,
        /// Order of the key's columns within a bucket.
        order: Vec<usize>,
    },
}

/// Frequencies of the kinds of reads of a table, in any unit. All zero: one of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reads {
    /// Reads by the whole key.
    pub point: f64,
    /// Reads by the value of one column, for each column (missing ones: 0).
    pub by_column: Vec<f64>,
    /// Reads by a range of the time column alone.
    pub time_range: f64,
    /// Reads of the newest row of one series.
    pub last_point: f64,
    /// Reads of all rows.
    pub full_scan: f64,
}

/// Input of an advice.
#[derive(Clone, Debug, PartialEq)]
pub struct Question<'a> {
    /// Sampled rows, in order of arrival.
    pub rows: &'a [SampledRow],
    /// The number of key columns.
    pub columns: usize,
    /// Number of the time column, if any.
    pub time: Option<usize>,
    /// Today's placement of rows.
    pub today: Design,
    /// Number of leading key columns by which rows are kept together in one partition, in another design too; 0: rows
    /// may be separated anywhere.
    pub keep_together: usize,
    /// Number of partitions today.
    pub partitions: usize,
    /// Number of nodes that can lead.
    pub nodes: usize,
    /// Rows written per second, or offered if some are refused.
    pub rows_per_s: f64,
    /// Rows per second that one partition can take, as measured: rows per second over rho.
    pub capacity_rows_per_s: f64,
    /// Part of a table's time span that a read by time range covers, 0 to 1.
    pub time_range_share: f64,
    /// Frequencies of reads.
    pub reads: Reads,
}

/// Mean number of partitions that each kind of read visits, over the sampled values.
#[derive(Clone, Debug, PartialEq)]
pub struct FanOut {
    /// Reads by the whole key.
    pub point: f64,
    /// Reads by the value of one column, for each column of the key.
    pub by_column: Vec<f64>,
    /// Reads by a range of the time.
    pub time_range: f64,
    /// Reads of the newest row of one series.
    pub last_point: f64,
    /// Reads of all rows.
    pub full_scan: f64,
}

/// Warning about a design.
#[derive(Clone, Debug, PartialEq)]
pub enum Warning {
    /// The newest rows all go to one partition, whatever the number of partitions.
    OneTail,
    /// One value of the leading (or hashed) column bears more than an equal part.
    TopValue {
        /// Number of the column in today's key.
        column: usize,
        /// The value's share of the rows.
        share: f64,
        /// Share of equal partitions.
        equal_share: f64,
    },
    /// The leading (or hashed) column has fewer values than there are partitions to fill.
    FewValues {
        /// Number of the column in today's key.
        column: usize,
        /// Number of distinct values in the sample.
        values: usize,
    },
    /// The sample is too small for this number of partitions.
    SmallSample {
        /// Number of sampled rows.
        rows: usize,
    },
}

/// A design with its predicted effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Placement of rows that is judged.
    pub design: Design,
    /// True for today's design.
    pub is_today: bool,
    /// Assumed number of partitions.
    pub partitions: usize,
    /// Share of the busiest partition.
    pub max_share: f64,
    /// Number of equal partitions over which the load would be as concentrated.
    pub effective_partitions: f64,
    /// The same for nodes, with leaders distributed evenly.
    pub effective_nodes: f64,
    /// Rows per second at which the busiest partition is full.
    pub ceiling_rows_per_s: f64,
    /// True if that leaves room above the present rate.
    pub carries: bool,
    /// Partitions that reads visit.
    pub fan_out: FanOut,
    /// Mean of the fan-out, weighted by the frequencies of reads.
    pub read_cost: f64,
    /// Warnings about the design.
    pub warnings: Vec<Warning>,
}

/// Number of buckets for a load: each 40 % busy, at least 2, at most two for each node. Without a measured capacity,
/// the maximum.
pub fn buckets_for(rows_per_s: f64, capacity_rows_per_s: f64, nodes: usize) -> u32 {
    let most = u32::try_from(nodes.saturating_mul(2)).unwrap_or(u32::MAX).max(2);
    let buckets = rows_per_s / (BUCKET_BUSY * capacity_rows_per_s);
    if !buckets.is_finite() || buckets < 0.0 { most } else { whole(buckets.ceil()).clamp(2, most) }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the range before"
)]
fn whole(value: f64) -> u32 {
    value.clamp(0.0, f64::from(u32::MAX)) as u32
}

/// The designs worth considering, the best first. Designs that carry the load come before those that do not: by the
/// cost of reads, then today's, ranges before buckets, few partitions before many. The others follow by the evenness of
/// their spread. Empty without at least two rows.
pub fn advise(question: &Question<'_>) -> Vec<Choice> {
    if question.rows.len() < 2 || question.columns == 0 {
        return Vec::new();
    }
    let mut choices: Vec<Choice> =
        candidates(question).into_iter().map(|design| evaluate(question, design)).collect();
    choices.sort_by(|a, b| {
        // Costs that differ by less than a tenth of a partition count as equal.
        let tenths = |choice: &Choice| whole((choice.read_cost * 10.0).round());
        let by_cost = || tenths(a).cmp(&tenths(b));
        let by_share = || a.max_share.total_cmp(&b.max_share);
        let by_effort = || {
            let hashed = |choice: &Choice| matches!(choice.design, Design::Hash { .. });
            let effort = |choice: &Choice| (!choice.is_today, hashed(choice), choice.partitions);
            effort(a).cmp(&effort(b)).then_with(|| a.design.cmp(&b.design))
        };
        if a.carries && b.carries {
            by_cost().then_with(by_effort)
        } else {
            b.carries.cmp(&a.carries).then_with(by_share).then_with(by_cost).then_with(by_effort)
        }
    });
    choices
}

fn candidates(question: &Question<'_>) -> Vec<Design> {
    let columns: Vec<usize> = (0..question.columns).collect();
    let series: Vec<usize> =
        columns.iter().copied().filter(|column| Some(*column) != question.time).collect();
    let fewest = buckets_for(question.rows_per_s, question.capacity_rows_per_s, question.nodes);
    let most = u32::try_from(question.nodes * 2).unwrap_or(u32::MAX).max(fewest);
    let mut designs = vec![question.today.clone()];
    let mut add = |design: Design| {
        if !designs.contains(&design) && keeps_together(question, &design) {
            designs.push(design);
        }
    };
    for column in &series {
        add(Design::Range { order: leading(&columns, &[*column], question.time) });
    }
    for buckets in [fewest, fewest.saturating_mul(2).min(most)] {
        for column in &series {
            let order = leading(&columns, &[*column], question.time);
            add(Design::Hash { of: vec![*column], buckets, order });
        }
        if series.len() > 1 {
            let order = leading(&columns, &series, question.time);
            add(Design::Hash { of: series.clone(), buckets, order });
        }
        add(Design::Hash { of: columns.clone(), buckets, order: columns.clone() });
    }
    designs
}

/// True if the design keeps rows with equal values of the kept-together columns together, and places them alike.
fn keeps_together(question: &Question<'_>, design: &Design) -> bool {
    let group = ..question.keep_together;
    let (order, hashed) = match design {
        Design::Range { order } => (order, &[][..]),
        Design::Hash { of: hashed, order, .. } => (order, &hashed[..]),
    };
    let leads = order.iter().take(question.keep_together).all(|column| group.contains(column));
    let placed = question.keep_together == 0 || hashed.iter().all(|column| group.contains(column));
    leads && placed
}

/// The order with the columns `first` at the front, the time last, and all others between in their present order.
fn leading(columns: &[usize], first: &[usize], time: Option<usize>) -> Vec<usize> {
    let middle = columns.iter().filter(|column| !first.contains(column) && Some(**column) != time);
    first.iter().chain(middle).copied().chain(time).collect()
}

fn evaluate(question: &Question<'_>, design: Design) -> Choice {
    let layout = Layout::of(question, &design);
    let mut counts = vec![0_usize; layout.partitions];
    for row in &question.rows[layout.judged_from..] {
        counts[layout.place(row)] += 1;
    }
    let judged = (question.rows.len() - layout.judged_from) as f64;
    let max_share = counts.iter().max().map_or(1.0, |max| *max as f64 / judged);
    // Counts pairs of rows in one partition, which is free of the bias of squared shares of a sample.
    let meet: f64 = counts.iter().map(|count| *count as f64 * (*count as f64 - 1.0)).sum();
    let partitions = layout.partitions as f64;
    let effective = if meet > 0.0 { judged * (judged - 1.0) / meet } else { partitions };
    let ceiling_rows_per_s = question.capacity_rows_per_s / max_share;
    let fan_out = layout.fan_out(question);
    Choice {
        is_today: design == question.today,
        partitions: layout.partitions,
        max_share,
        effective_partitions: effective.clamp(1.0, partitions),
        effective_nodes: over_nodes(&counts, question.nodes),
        ceiling_rows_per_s,
        carries: question.rows_per_s <= ceiling_rows_per_s * CARRIES_BUSY,
        read_cost: read_cost(&question.reads, &fan_out),
        fan_out,
        warnings: layout.warnings(question, max_share),
        design,
    }
}

/// The effective number of nodes when partitions are assigned to nodes, the busiest first, each to the least busy node.
fn over_nodes(counts: &[usize], nodes: usize) -> f64 {
    let mut sorted: Vec<usize> = counts.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let mut loads = vec![0_usize; nodes.max(1)];
    for count in sorted {
        if let Some(least) = loads.iter_mut().min() {
            *least += count;
        }
    }
    Shape::of(loads.into_iter().map(|load| load as f64)).effective
}

fn read_cost(reads: &Reads, fan_out: &FanOut) -> f64 {
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

/// Evaluator of a design: assigns rows to partitions.
struct Layout<'a> {
    order: &'a [usize],
    /// Hashed columns; empty for ranges.
    hashed: &'a [usize],
    partitions: usize,
    /// First keys of all ranges except the first.
    bounds: Vec<Vec<&'a [u8]>>,
    /// Position of the first row on which shares are judged.
    judged_from: usize,
}

impl<'a> Layout<'a> {
    fn of(question: &'a Question<'_>, design: &'a Design) -> Self {
        match design {
            Design::Hash { of: hashed, buckets, order } => {
                let partitions = usize::try_from(*buckets).unwrap_or(usize::MAX).max(1);
                Self { order, hashed, partitions, bounds: Vec::new(), judged_from: 0 }
            }
            Design::Range { order } => {
                let count =
                    buckets_for(question.rows_per_s, question.capacity_rows_per_s, question.nodes);
                let count = question.partitions.max(count as usize);
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
                let mut bounds: Vec<Vec<&[u8]>> =
                    (1..count).map(|cut| older[cut * half / count].clone()).collect();
                bounds.dedup();
                Self { order, hashed: &[], partitions: bounds.len() + 1, bounds, judged_from: half }
            }
        }
    }

    fn place(&self, row: &SampledRow) -> usize {
        if self.hashed.is_empty() {
            let key = key(row, self.order);
            self.bounds.partition_point(|bound| *bound <= key)
        } else {
            bucket(row, self.hashed, self.partitions)
        }
    }

    /// Number of partitions that a read with fixed values of these columns must visit.
    fn touched(&self, row: &SampledRow, fixed: &[usize]) -> f64 {
        if !self.hashed.is_empty() {
            let pruned = self.hashed.iter().all(|column| fixed.contains(column));
            return if pruned { 1.0 } else { self.partitions as f64 };
        }
        let depth = self.order.iter().take_while(|column| fixed.contains(column)).count();
        let prefix = key(row, &self.order[..depth]);
        let full = depth == self.order.len();
        let inside =
            self.bounds.iter().filter(|bound| !full && bound.get(..depth) == Some(&prefix)).count();
        (1 + inside) as f64
    }

    fn fan_out(&self, question: &Question<'_>) -> FanOut {
        let mean = |fixed: &[usize]| {
            let sum: f64 = question.rows.iter().map(|row| self.touched(row, fixed)).sum();
            sum / question.rows.len() as f64
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

    fn warnings(&self, question: &Question<'_>, max_share: f64) -> Vec<Warning> {
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
            if share > equal_share {
                warnings.push(Warning::TopValue { column: *column, share, equal_share });
            }
            if counts.len() < self.partitions {
                warnings.push(Warning::FewValues { column: *column, values: counts.len() });
            }
        }
        warnings
    }
}

fn key<'a>(row: &'a SampledRow, order: &[usize]) -> Vec<&'a [u8]> {
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

#[cfg(test)]
mod tests;
