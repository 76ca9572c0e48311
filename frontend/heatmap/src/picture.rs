//! The picture itself: what all renderers and the page take, and what `GET /v1/heatmap.json` answers.
//!
//! # The contract
//!
//! `GET /v1/heatmap.json?table=NAME&metric=METRIC&since=SECONDS` answers one [`Heatmap`] as JSON. Parameters:
//!
//! | name | is | default |
//! |---|---|---|
//! | `table` | the table, as `/v1/tables.json` names it | must be given |
//! | `metric` | `write_rows`, `read_rows`, `write_bytes`, `busy` | `write_rows` |
//! | `since` | how many seconds the picture reaches back from `until` | 900 |
//! | `until` | its end, seconds since the Unix epoch | now |
//! | `mode` | `absolute` or `relative`: how the reader colours it; the server may ignore it | `absolute` |
//! | `rows`, `columns` | at most so many of them | 256, 240 |
//! | `from_key`, `to_key` | only these keys, in hexadecimal as in [`Row::key`] | all |
//!
//! `GET /v1/tables.json` answers `{"tables": [TableSummary, ...]}`.
//! An error is answered with a status of 400 or more and `{"error": "text"}`.
//!
//! Invariants of a [`Heatmap`]: rows ascend by key; `cells` has a line for each row and in it a number for each of
//! `times`, a rate per second, summed over the row's keys; rows that marks, verdicts, bounds name exist.

use serde::{Deserialize, Serialize, Serializer};

use crate::matrix::MarkKind;
use crate::metric::Metric;
use crate::number::{narrow, round};

/// The load of a table over keys and time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Heatmap {
    /// The table's name.
    pub table: String,
    /// What is counted.
    pub metric: Metric,
    /// The rate that one partition can bear, in the metric's unit; nothing when that is not known.
    pub capacity: Option<f32>,
    /// When each column begins, seconds since the Unix epoch, ascending; all columns are `step` long.
    pub times: Vec<u64>,
    /// Length of a column, seconds.
    pub step: u32,
    /// Columns that no report speaks of.
    pub gaps: Vec<usize>,
    /// Ranges of keys, ascending.
    pub rows: Vec<Row>,
    /// By row, then by column: rate per second.
    #[serde(serialize_with = "short")]
    pub cells: Vec<Vec<f32>>,
    /// Where partitions begin, and from when to when.
    pub bounds: Vec<Bound>,
    /// What happened.
    pub marks: Vec<Mark>,
    /// What the detector says.
    pub verdicts: Vec<VerdictNote>,
    /// How evenly partitions share the load now.
    pub balance: Balance,
}

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its first key in SQL values.
    pub start: String,
    /// The key after its last, likewise.
    pub end: String,
    /// Its first key in hexadecimal: for asking again for less.
    pub key: String,
    /// Its share of the picture's height; all add up to 1.
    pub height: f32,
    /// The partition that its first key lies in now.
    pub partition: Option<u64>,
    /// The node that leads it.
    pub leader: Option<u64>,
    /// How many partitions it touches now; more than one if there are more of them than rows.
    pub partitions: u32,
}

/// A partition begins at this row, in these columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// The row.
    pub row: usize,
    /// First column.
    pub from: usize,
    /// Column after the last.
    pub to: usize,
}

/// Something that happened to a partition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Seconds since the Unix epoch.
    pub at: u64,
    /// Where.
    pub row: usize,
    /// What.
    pub kind: MarkKind,
    /// The key in SQL values.
    pub key: String,
    /// In words.
    pub text: String,
}

/// What the detector said of a partition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerdictNote {
    /// The partition, if it is known by a number.
    #[serde(default)]
    pub partition: Option<u64>,
    /// Seconds since the Unix epoch.
    pub since: u64,
    /// Likewise; nothing while it holds.
    pub until: Option<u64>,
    /// The first row of the partition.
    pub from_row: usize,
    /// The row after its last.
    pub to_row: usize,
    /// For example `MOVING_RIGHT`.
    pub class: String,
    /// The partition's range in SQL values.
    pub range: String,
    /// Why.
    pub evidence: String,
    /// What to do.
    pub advice: String,
}

/// How evenly partitions share the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Balance {
    /// Number of partitions.
    pub partitions: u32,
    /// How many partitions, equally loaded, would be as uneven: 1 / sum of squared shares. 0 without load.
    pub n_eff: f32,
    /// The largest partition's load over the mean. 0 without load.
    pub max_over_mean: f32,
    /// The table's rate per second, all partitions together.
    pub total: f32,
    /// The largest partition's rate.
    pub max: f32,
}

/// One line of the answer to `GET /v1/tables.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableSummary {
    /// The table's name: what `table=` takes.
    pub name: String,
    /// How evenly its partitions share the rows written per second.
    pub balance: Balance,
    /// The class of the worst verdict that holds.
    pub verdict: Option<String>,
}

/// The answer to `GET /v1/tables.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableList {
    /// All tables that have load.
    pub tables: Vec<TableSummary>,
}

impl Balance {
    /// What the partitions' rates say.
    #[must_use]
    pub fn of(rates: &[f32]) -> Self {
        let total: f64 = rates.iter().copied().map(f64::from).sum();
        let max = rates.iter().copied().fold(0.0, f32::max);
        let squares: f64 = rates.iter().map(|rate| (f64::from(*rate) / total).powi(2)).sum();
        let busy = total > 0.0;
        Self {
            partitions: u32::try_from(rates.len()).unwrap_or(u32::MAX),
            n_eff: if busy { narrow(1.0 / squares) } else { 0.0 },
            max_over_mean: if busy {
                narrow(f64::from(max) * rates.len() as f64 / total)
            } else {
                0.0
            },
            total: narrow(total),
            max,
        }
    }
}

impl Heatmap {
    /// The end of the last column, seconds since the Unix epoch.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.times.last().map_or(0, |last| last + u64::from(self.step))
    }

    /// The column that a time lies in; times outside belong to the first or the last.
    #[must_use]
    pub fn column_of(&self, at: u64) -> usize {
        self.times.partition_point(|start| *start <= at).saturating_sub(1)
    }

    /// The groups of rows that were one partition in a column: first row and the row after the last.
    #[must_use]
    pub fn partitions_in(&self, column: usize) -> Vec<(usize, usize)> {
        let alive = |bound: &&Bound| bound.from <= column && column < bound.to;
        let mut starts: Vec<usize> =
            self.bounds.iter().filter(alive).map(|bound| bound.row).collect();
        starts.sort_unstable();
        if starts.first() != Some(&0) {
            starts.insert(0, 0);
        }
        let ends = starts.iter().skip(1).copied().chain([self.rows.len()]);
        starts.iter().copied().zip(ends).filter(|(start, end)| start < end).collect()
    }
}

/// Writes rates with three digits, which is more than a colour shows, so that an answer stays small.
fn short<S: Serializer>(cells: &[Vec<f32>], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(cells.iter().map(|row| row.iter().map(|rate| Short(*rate)).collect::<Vec<_>>()))
}

struct Short(f32);

impl Serialize for Short {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let rate = f64::from(self.0);
        if !rate.is_finite() || rate <= 0.0 {
            return to.serialize_u8(0);
        }
        let unit = 10f64.powf(rate.log10().floor() - 2.0);
        if unit >= 1.0 {
            to.serialize_u64((round(rate / unit) * round(unit)) as u64)
        } else {
            let digits = (1.0 / unit).round();
            to.serialize_f64((rate * digits).round() / digits)
        }
    }
}
