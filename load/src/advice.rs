//! Predicts the effect of another key design on a table: sampled rows are replayed through each candidate; the result
//! is the share of the busiest partition, the number of partitions over which the load would spread, and the cost of
//! reads.
//!
//! Ranges are cut by the older half of the sample and judged on the newer, so that a key that moves is recognized: its
//! cuts all lie behind it. Buckets are judged on all rows. Reads are priced by the statements of the table, if they are
//! known ([`Question::shapes`]), otherwise by kinds of reads.
//!
//! Invariants: a pure function of the question; columns are bytes that compare as their values do, and nothing else is
//! known about them; rendering DDL is left to the caller. Shares are those of a sample: with `n` rows over `b` equal
//! buckets the greatest is overestimated by about `sqrt(2 ln(b) b / n)` of itself. The effective number is corrected
//! for that.

mod layout;
mod price;

use crate::shape::Shape;
use crate::verdict::Class;
use layout::Layout;
use price::{Priced, Shares};

/// Target busy share of a bucket: leaves room for skew, and for a node that fails.
const BUCKET_BUSY: f64 = 0.4;
/// Maximum busy share of the busiest partition in a design that carries the load.
const CARRIES_BUSY: f64 = 0.7;
/// Maximum key columns from which designs are made.
const COLUMNS_MAX: usize = 6;
/// Maximum number of designs.
const DESIGNS_MAX: usize = 64;
/// Maximum number of partitions that a load is said to need.
const NEEDED_MAX: usize = 256;
/// Maximum number of sampled rows with which reads are tried.
const PROBES_MAX: usize = 512;
/// Share of the cost of reads from which the partitions that a statement visits decide about a design.
const DECISIVE_COST: f64 = 0.2;
/// Factor of the partitions that a statement visits from which a hash counts as one that scatters it.
const SCATTERED: f64 = 2.0;

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

/// Condition of a statement on one key column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ShapeBound {
    /// Equality with a value.
    Value,
    /// This number of values.
    Values(f64),
    /// Values between two, over this share of the column's values, 0 to 1.
    Range(f64),
}

/// Statements that differ in their literals only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadShape {
    /// Conditions by the number of the column in today's key; other columns have none.
    pub bounds: Vec<(usize, ShapeBound)>,
    /// Statements per second.
    pub per_s: f64,
    /// Rows that one of them reads today.
    pub rows: f64,
}

/// Predicted cost of one statement of a [`ReadShape`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShapeCost {
    /// Mean number of partitions that it visits.
    pub partitions: f64,
    /// Mean number of rows that it reads.
    pub rows: f64,
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
    /// Frequencies of kinds of reads, for a table of whose statements nothing is known.
    pub reads: Reads,
    /// Statements that read the table; empty: not known.
    pub shapes: Vec<ReadShape>,
    /// Class of the table's hot partition, if it has one.
    pub hot: Option<Class>,
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
    /// Mean cost of a read, in partitions visited, weighted by the frequencies of reads.
    pub read_cost: f64,
    /// Predicted cost of each of [`Question::shapes`].
    pub shapes: Vec<ShapeCost>,
    /// Minimum number of equal partitions that the load needs.
    pub needed_partitions: usize,
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

/// Number of equal partitions that a load needs, each 40 % busy; at least 1. Without a measured capacity, 1.
fn needed_partitions(question: &Question<'_>) -> usize {
    let partitions = question.rows_per_s / (BUCKET_BUSY * question.capacity_rows_per_s);
    let partitions = if partitions.is_finite() { whole(partitions.ceil()) } else { 1 };
    usize::try_from(partitions).unwrap_or(usize::MAX).clamp(1, NEEDED_MAX)
}

/// The designs worth considering, the best first. Today's design stays first while it carries the load. Then come
/// others that carry it: by the cost of reads, ranges before buckets, few partitions before many; a hash that scatters
/// what statements read together comes after all that do not. The others follow by the evenness of their spread, and at
/// the end what only collects a hot value in one bucket. Empty without at least two rows.
pub fn advise(question: &Question<'_>) -> Vec<Choice> {
    if question.rows.len() < 2 || question.columns == 0 {
        return Vec::new();
    }
    let priced = Priced::new(question);
    let choices: Vec<Choice> = candidates(question)
        .into_iter()
        .map(|design| evaluate(question, &priced, design))
        .collect();
    let scattered: Vec<bool> = match choices.iter().find(|choice| choice.is_today) {
        Some(today) => choices.iter().map(|choice| scatters(question, today, choice)).collect(),
        None => vec![false; choices.len()],
    };
    let mut ranked: Vec<(Rank, Choice)> = scattered
        .into_iter()
        .zip(choices)
        .map(|(scatters, choice)| (Rank::of(question, &choice, scatters), choice))
        .collect();
    ranked.sort_by(|(a_rank, a), (b_rank, b)| {
        // Costs that differ by less than a tenth of a partition count as equal.
        let tenths = |choice: &Choice| whole((choice.read_cost * 10.0).round());
        let by_cost = || tenths(a).cmp(&tenths(b));
        let by_share = || a.max_share.total_cmp(&b.max_share);
        let by_effort = || {
            let hashed = |choice: &Choice| matches!(choice.design, Design::Hash { .. });
            let effort = |choice: &Choice| (!choice.is_today, hashed(choice), choice.partitions);
            effort(a).cmp(&effort(b)).then_with(|| a.design.cmp(&b.design))
        };
        let by_rank = a_rank.cmp(b_rank);
        if *a_rank < Rank::Overloaded {
            by_rank.then_with(by_cost).then_with(by_effort)
        } else {
            by_rank.then_with(by_share).then_with(by_cost).then_with(by_effort)
        }
    });
    ranked.into_iter().map(|(_, choice)| choice).collect()
}

/// Suitability of a design for its load, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Today's, and it carries the load.
    Kept,
    /// Carries the load.
    Carries,
    /// Carries it, but scatters what many statements read together.
    Scatters,
    /// Does not carry it.
    Overloaded,
    /// Collects a hot value in one bucket.
    Collects,
}

impl Rank {
    fn of(question: &Question<'_>, choice: &Choice, scatters: bool) -> Self {
        let is_of_one = |hashed: &[usize]| hashed.len() == 1 && question.columns > 1;
        let collects = question.hot == Some(Class::HotKey)
            && matches!(&choice.design, Design::Hash { of, .. } if is_of_one(of))
            && choice.warnings.iter().any(|warning| matches!(warning, Warning::TopValue { .. }));
        match (choice.carries, choice.is_today) {
            _ if collects && !choice.is_today => Self::Collects,
            (false, _) => Self::Overloaded,
            (true, true) => Self::Kept,
            (true, false) if scatters => Self::Scatters,
            (true, false) => Self::Carries,
        }
    }
}

/// True if a hash has statements with a good part of the cost of reads visit more than twice as many partitions.
fn scatters(question: &Question<'_>, today: &Choice, choice: &Choice) -> bool {
    if choice.is_today || matches!(choice.design, Design::Range { .. }) {
        return false;
    }
    let costs: Vec<f64> = question
        .shapes
        .iter()
        .zip(&today.shapes)
        .map(|(shape, cost)| shape.per_s * price::cost(cost))
        .collect();
    let total: f64 = costs.iter().sum();
    let visits = today.shapes.iter().zip(&choice.shapes);
    let mut weighed = costs.iter().zip(visits);
    weighed.any(|(cost, (present, changed))| {
        *cost >= DECISIVE_COST * total
            && *cost > 0.0
            && changed.partitions > SCATTERED * present.partitions
    })
}

impl Question<'_> {
    /// Number of equal partitions over which rows that came after the sample are as concentrated, in a design that the
    /// sample led to; 1 without rows.
    pub fn measured(&self, design: &Design, later: &[SampledRow]) -> f64 {
        let layout = Layout::of(self, design);
        Shares::of(&layout, later).effective
    }

    /// Share of such rows that full partitions leave room for, 0 to 1, at the offered rate; 1 without rows.
    pub fn served(&self, design: &Design, later: &[SampledRow]) -> f64 {
        if later.is_empty() || self.rows_per_s <= 0.0 {
            return 1.0;
        }
        let layout = Layout::of(self, design);
        let per_row = self.rows_per_s / later.len() as f64;
        let counts = Shares::of(&layout, later).counts;
        let rates = counts.iter().map(|count| *count as f64 * per_row);
        rates.map(|rate| rate.min(self.capacity_rows_per_s)).sum::<f64>() / self.rows_per_s
    }
}

fn candidates(question: &Question<'_>) -> Vec<Design> {
    let columns: Vec<usize> = (0..question.columns).collect();
    let fewest = buckets_for(question.rows_per_s, question.capacity_rows_per_s, question.nodes);
    let most = u32::try_from(question.nodes * 2).unwrap_or(u32::MAX).max(fewest);
    let sets = column_sets(question);
    let has_time = |set: &[usize]| question.time.is_some_and(|time| set.contains(&time));
    let mut designs = vec![question.today.clone()];
    let mut add = |design: Design| {
        if designs.len() < DESIGNS_MAX
            && !designs.contains(&design)
            && keeps_together(question, &design)
        {
            designs.push(design);
        }
    };
    let ordered = |set: &[usize]| leading(&columns, set, question.time);
    for set in sets.iter().filter(|set| set.len() == 1 && !has_time(set)) {
        add(Design::Range { order: ordered(set) });
    }
    for buckets in [fewest, fewest.saturating_mul(2).min(most)] {
        for set in &sets {
            // In today's order, a table that keeps every row needs no copy.
            add(Design::Hash { of: set.clone(), buckets, order: columns.clone() });
            if !has_time(set) {
                add(Design::Hash { of: set.clone(), buckets, order: ordered(set) });
            }
        }
        for set in sets.iter().filter(|set| set.len() > 1 && !has_time(set)) {
            add(Design::Range { order: ordered(set) });
        }
    }
    designs
}

/// Sets of key columns by which rows may be placed: single ones, leading ones, all of them, and pairs.
fn column_sets(question: &Question<'_>) -> Vec<Vec<usize>> {
    let all: Vec<usize> = (0..question.columns).collect();
    let is_series = |column: &usize| Some(*column) != question.time;
    let series: Vec<usize> = all.iter().copied().filter(is_series).collect();
    let few: Vec<usize> = all.iter().copied().take(COLUMNS_MAX).collect();
    let mut sets: Vec<Vec<usize>> =
        series.iter().take(COLUMNS_MAX).map(|column| vec![*column]).collect();
    // A table that keeps rows together may have no other choice, whatever these columns are.
    let together = question.keep_together.min(question.columns);
    sets.extend((together > 0).then(|| all[..together].to_vec()));
    sets.push(series);
    sets.push(all);
    sets.extend((2..=few.len()).map(|length| few[..length].to_vec()));
    let pairs = few.iter().enumerate().flat_map(|(place, first)| {
        few[place + 1..].iter().map(move |second| vec![*first, *second])
    });
    sets.extend(pairs);
    let mut distinct: Vec<Vec<usize>> = Vec::with_capacity(sets.len());
    for set in sets {
        if !set.is_empty() && !distinct.contains(&set) {
            distinct.push(set);
        }
    }
    distinct
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

fn evaluate(question: &Question<'_>, priced: &Priced<'_>, design: Design) -> Choice {
    let layout = Layout::of(question, &design);
    let shares = Shares::of(&layout, &question.rows[layout.judged_from..]);
    let ceiling_rows_per_s = question.capacity_rows_per_s / shares.max;
    let fan_out = layout.fan_out(question, &priced.probes);
    let shapes = priced.shapes(question, &layout);
    let read_cost = if shapes.is_empty() {
        price::of_kinds(&question.reads, &fan_out)
    } else {
        price::of_shapes(&question.shapes, &shapes)
    };
    Choice {
        is_today: design == question.today,
        partitions: layout.partitions,
        max_share: shares.max,
        effective_partitions: shares.effective,
        effective_nodes: over_nodes(&shares.counts, question.nodes),
        ceiling_rows_per_s,
        carries: question.rows_per_s <= ceiling_rows_per_s * CARRIES_BUSY
            && !moves_past(question, &design),
        read_cost,
        shapes,
        needed_partitions: needed_partitions(question),
        fan_out,
        warnings: layout.warnings(question, shares.max),
        design,
    }
}

/// True if the load moves past every cut of a range design, whatever the sample says: where the time has whole minutes,
/// all of a sample may be of one of them, and looks as if it stayed.
fn moves_past(question: &Question<'_>, design: &Design) -> bool {
    let (Design::Range { order: today }, Design::Range { order }) = (&question.today, design)
    else {
        return false;
    };
    question.hot.is_some_and(Class::is_moving) && today.first() == order.first()
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

#[cfg(test)]
mod tests;
