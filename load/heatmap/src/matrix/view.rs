//! From a history to a picture: the choice of columns and rows, and the contents of the cells.
//!
//! Rows are chosen for each picture, from all rows of the columns that it shows.
//!
//! Invariant: apart from rounding, the sum of rates times covered seconds equals the history's amount for that time
//! and those keys.

use std::collections::{BTreeMap, BTreeSet};

use super::axis::{offsets, row_of, union};
use super::block::{Block, Column};
use super::history::History;
use super::notes::Notes;
use super::report::Key;
use super::rows::choose;
use crate::diagnosis::diagnose;
use crate::metric::Metric;
use crate::number::narrow;
use crate::picture::{Balance, Bound, Heatmap};

/// Usual column lengths, in seconds; longer ones are whole days.
const STEPS: [u64; 17] =
    [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200];

const DAY: u64 = 86_400;

/// Maximum rows and columns of a picture: more are not visible, and a request from the network can ask for any
/// number.
const SIDE_MAX: usize = 1000;

/// The part of a history to show.
#[derive(Clone, Debug)]
pub struct View {
    /// The table's name, for the title.
    pub table: String,
    /// The metric to show.
    pub metric: Metric,
    /// Start, seconds since the Unix epoch.
    pub from: u64,
    /// End, seconds since the Unix epoch.
    pub to: u64,
    /// Maximum number of columns, clamped to 1 to 1,000.
    pub columns_max: usize,
    /// Maximum number of rows, clamped likewise.
    pub rows_max: usize,
    /// Range of keys to show: the first key and the exclusive end; `None` shows all.
    pub keys: Option<(Key, Option<Key>)>,
    /// Capacity of one partition in the metric's unit, if known.
    pub capacity: Option<f32>,
}

impl History {
    /// The picture of a part of this history. `label` turns an encoded key into SQL values; it is not called for
    /// the empty key.
    pub fn view(&self, view: &View, label: impl Fn(&[u8]) -> String) -> Heatmap {
        // The columns of the picture, and the parts of the history that fall into them.
        let times = Times::of(view, self.blocks().flat_map(|block| &block.columns));
        let visible = |block| -> (&Block, Vec<&Column>) {
            (
                block,
                block
                    .columns
                    .iter()
                    .filter(|column| times.parts(column).next().is_some())
                    .collect(),
            )
        };
        let blocks: Vec<_> =
            self.blocks().map(visible).filter(|(_, columns)| !columns.is_empty()).collect();
        // All rows known there are candidates; the hottest and the widest get the most rows of the picture.
        let keys = Keys::of(&blocks, self, view);
        let heat = keys.heat(&blocks, &times, view.metric);
        let (groups, heights) = choose(
            &keys.fine,
            keys.end.as_ref(),
            &heat,
            self.present(),
            view.rows_max.clamp(1, SIDE_MAX),
        );
        let axis: Vec<Key> = groups.iter().map(|row| Key::clone(&keys.fine[*row])).collect();
        let mut heatmap = Heatmap {
            table: view.table.clone(),
            metric: view.metric,
            capacity: view.capacity,
            times: (0..times.count).map(|column| times.from + column as u64 * times.step).collect(),
            step: u32::try_from(times.step).unwrap_or(u32::MAX),
            gaps: Vec::new(),
            rows: Vec::new(),
            cells: Vec::new(),
            bounds: Vec::new(),
            marks: Vec::new(),
            verdicts: Vec::new(),
            diagnoses: Vec::new(),
            balance: self.balance(view.metric),
        };
        // Cells come first: bounds need their gaps, and notes need both.
        keys.fill(&mut heatmap, &blocks, &times, &groups);
        heatmap.bounds = bounds(&blocks, &times, &axis, &heatmap.gaps);
        let notes = Notes { axis: &axis, end: keys.end.as_ref(), label: &label };
        notes.add(self, &mut heatmap, &heights);
        let busy = self.present().values();
        let busy = busy.map(|partition| (partition.id, Metric::Busy.of(&partition.rates)));
        heatmap.diagnoses = diagnose(&heatmap, &busy.collect());
        heatmap
    }

    /// Distribution of a metric's current load among the partitions.
    #[must_use]
    pub fn balance(&self, metric: Metric) -> Balance {
        let rates: Vec<f32> =
            self.present().values().map(|partition| metric.of(&partition.rates)).collect();
        Balance::of(&rates)
    }
}

/// The columns of a picture.
struct Times {
    from: u64,
    step: u64,
    count: usize,
}

impl Times {
    fn of<'a>(view: &View, columns: impl Iterator<Item = &'a Column>) -> Self {
        let span = view.to.saturating_sub(view.from).max(1);
        let columns_max = view.columns_max.clamp(1, SIDE_MAX);
        let least = span.div_ceil(columns_max as u64).max(common_step(view, columns));
        let listed = STEPS.into_iter().find(|step| *step >= least);
        let step = listed.unwrap_or_else(|| least.div_ceil(DAY) * DAY);
        let end = (view.from + span).div_ceil(step) * step;
        let count = usize::try_from((end - view.from / step * step) / step).unwrap_or(columns_max);
        let count = count.clamp(1, columns_max);
        Self { from: end - count as u64 * step, step, count }
    }

    /// The picture's columns that overlap a column of the history, each with the fraction of that column inside it.
    fn parts(&self, column: &Column) -> impl Iterator<Item = (usize, f64)> {
        let (column_start, column_end) = (column.from, column.from + u64::from(column.seconds));
        let clip = |time: u64| time.saturating_sub(self.from).div_euclid(self.step);
        let count = self.count as u64;
        let span = if column_end <= self.from {
            0..0
        } else {
            clip(column_start).min(count)..(clip(column_end - 1) + 1).min(count)
        };
        let (start, step, seconds) = (self.from, self.step, f64::from(column.seconds));
        span.map(move |index| {
            let begin = start + index * step;
            let overlap = column_end.min(begin + step) - column_start.max(begin);
            (usize::try_from(index).unwrap_or(usize::MAX), overlap as f64 / seconds)
        })
    }
}

/// The column length of the history that covers at least three quarters of the time shown. A finer one would show
/// noise where the history is fine, next to smooth areas where it is coarse.
fn common_step<'a>(view: &View, columns: impl Iterator<Item = &'a Column>) -> u64 {
    let mut seconds: BTreeMap<u64, u64> = BTreeMap::new();
    for column in columns {
        let end = (column.from + u64::from(column.seconds)).min(view.to);
        let overlap = end.saturating_sub(column.from.max(view.from));
        *seconds.entry(u64::from(column.seconds)).or_default() += overlap;
    }
    let whole: u64 = seconds.values().sum();
    let mut sum = 0;
    let enough = |(_, amount): &(&u64, &u64)| {
        sum += **amount;
        sum * 4 >= whole * 3
    };
    seconds.iter().find(enough).map_or(1, |(step, _)| *step)
}

type Seen<'a> = (&'a Block, Vec<&'a Column>);

/// The rows of all blocks in the picture.
struct Keys {
    all: Vec<Key>,
    /// Index of the start of `fine` in `all`.
    first: usize,
    fine: Vec<Key>,
    end: Option<Key>,
}

impl Keys {
    fn of(blocks: &[Seen<'_>], history: &History, view: &View) -> Self {
        let (low, end) = view.keys.clone().unwrap_or_else(|| (Key::from([]), None));
        let end = end.filter(|end| *end > low);
        let mut axis: Vec<Key> = vec![Key::from([]), Key::clone(&low)];
        axis.extend(end.clone());
        axis.extend(history.present().keys().cloned());
        axis.sort_unstable();
        axis.dedup();
        for (block, _) in blocks {
            axis = union(&axis, &block.axis);
        }
        let first = row_of(&axis, &low);
        let last = end.as_ref().map_or(axis.len(), |end| row_of(&axis, end));
        Self { fine: axis[first..last].to_vec(), all: axis, first, end }
    }

    /// For each row of a block, the fine rows that its load is spread over, each with its share.
    fn shares<'a>(&'a self, axis: &[Key]) -> impl Iterator<Item = (usize, usize, f64)> + 'a {
        let offsets = offsets(axis, &self.all);
        (0..axis.len()).flat_map(move |row| {
            let (start, end) = (offsets[row], offsets[row + 1]);
            let inside = start.max(self.first)..end.min(self.first + self.fine.len());
            inside.map(move |index| (row, index - self.first, 1.0 / (end - start) as f64))
        })
    }

    fn heat(&self, blocks: &[Seen<'_>], times: &Times, metric: Metric) -> Vec<f64> {
        let mut heat = vec![0.0; self.fine.len()];
        for (block, columns) in blocks {
            let mut sums = vec![0.0; block.axis.len()];
            for column in columns {
                let part: f64 = times.parts(column).map(|(_, part)| part).sum();
                for (sum, cell) in sums.iter_mut().zip(&column.cells) {
                    *sum += f64::from(metric.of(cell)) * part;
                }
            }
            for (row, index, share) in self.shares(&block.axis) {
                heat[index] += sums[row] * share;
            }
        }
        heat
    }

    fn fill(&self, heatmap: &mut Heatmap, blocks: &[Seen<'_>], times: &Times, groups: &[usize]) {
        let metric = heatmap.metric;
        let mut cells = vec![vec![0.0_f64; times.count]; groups.len()];
        let mut covered = vec![0.0_f64; times.count];
        for (block, columns) in blocks {
            let mut mapped: BTreeMap<(usize, usize), f64> = BTreeMap::new();
            for (row, index, share) in self.shares(&block.axis) {
                let group = groups.partition_point(|start| *start <= index) - 1;
                *mapped.entry((group, row)).or_default() += share;
            }
            for column in columns {
                for (slot, part) in times.parts(column) {
                    covered[slot] += f64::from(column.covered) * part;
                    for ((group, row), share) in &mapped {
                        let amount = f64::from(metric.of(&column.cells[*row]));
                        cells[*group][slot] += amount * share * part;
                    }
                }
            }
        }
        let rate = |(amount, seconds): (f64, &f64)| {
            if *seconds > 0.0 { narrow(amount / seconds) } else { 0.0 }
        };
        let rates = |row: Vec<f64>| row.into_iter().zip(&covered).map(rate).collect();
        heatmap.cells = cells.into_iter().map(rates).collect();
        heatmap.gaps = (0..times.count).filter(|column| covered[*column] <= 0.0).collect();
    }
}

/// The bounds of partitions in each column. A column without a report takes those of the column before.
fn bounds(blocks: &[Seen<'_>], times: &Times, axis: &[Key], gaps: &[usize]) -> Vec<Bound> {
    let mut newest: Vec<(u64, BTreeSet<usize>)> = vec![(0, BTreeSet::new()); times.count];
    for (block, columns) in blocks {
        for column in columns {
            let row = |bound: &u16| axis.binary_search(&block.axis[usize::from(*bound)]).ok();
            let rows: BTreeSet<usize> = column.bounds.iter().filter_map(row).collect();
            for (slot, _) in times.parts(column) {
                if newest[slot].0 <= column.from {
                    newest[slot] = (column.from, rows.clone());
                }
            }
        }
    }
    for gap in gaps.iter().copied().filter(|gap| *gap > 0) {
        newest[gap] = newest[gap - 1].clone();
    }
    let mut open: BTreeMap<usize, usize> = BTreeMap::new();
    let mut bounds = Vec::new();
    for (column, (_, rows)) in newest.iter().enumerate() {
        let ended: Vec<_> = open.extract_if(.., |row, _| !rows.contains(row)).collect();
        bounds.extend(ended.into_iter().map(|(row, start)| Bound { row, from: start, to: column }));
        for row in rows {
            open.entry(*row).or_insert(column);
        }
    }
    bounds.extend(open.into_iter().map(|(row, start)| Bound { row, from: start, to: times.count }));
    bounds
}
