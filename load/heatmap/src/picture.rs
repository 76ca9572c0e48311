//! The picture: input of all renderers and of the page, and the answer to `GET /v1/heatmap.json`.
//!
//! # The contract
//!
//! `GET /v1/heatmap.json?table=NAME&metric=METRIC&since=SECONDS` answers one [`Heatmap`] as JSON. Parameters:
//!
//! | name | is | default |
//! |---|---|---|
//! | `table` | the table, as `/v1/tables.json` names it | must be given |
//! | `metric` | `write_rows`, `read_rows`, `write_bytes`, `busy`, `operations` | `write_rows` |
//! | `since` | how many seconds the picture reaches back from `until` | 900 |
//! | `until` | its end, seconds since the Unix epoch | now |
//! | `mode` | `absolute` or `relative`: how the reader colours it; the server may ignore it | `absolute` |
//! | `rows`, `columns` | maximum number of each | 256, 240 |
//! | `from_key`, `to_key` | only keys in this range, in hexadecimal as in [`Row::key`] | all |
//!
//! `GET /v1/tables.json` answers `{"tables": [TableSummary, ...]}`.
//! An error is answered with a status of 400 or more and `{"error": "text"}`.
//!
//! Invariants of a [`Heatmap`]: rows ascend by key; `cells` has a line for each row and in it a number for each of
//! `times`, a rate per second, summed over the row's keys; the rows that marks, verdicts and bounds refer to exist.

use serde::{Deserialize, Serialize, Serializer};

use crate::diagnosis::Diagnosis;
use crate::matrix::MarkKind;
use crate::metric::Metric;
use crate::number::{narrow, round};

/// The load of a table over keys and time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Heatmap {
    /// The table's name.
    pub table: String,
    /// The metric shown.
    pub metric: Metric,
    /// Capacity of one partition in the metric's unit; `None` if unknown.
    pub capacity: Option<f32>,
    /// Start of each column, seconds since the Unix epoch, ascending; all columns are `step` long.
    pub times: Vec<u64>,
    /// Length of a column, seconds.
    pub step: u32,
    /// Columns that no report covers.
    pub gaps: Vec<usize>,
    /// Ranges of keys, ascending.
    pub rows: Vec<Row>,
    /// By row, then by column: rate per second.
    #[serde(serialize_with = "short")]
    pub cells: Vec<Vec<f32>>,
    /// Starts of partitions, each with the columns in which it holds.
    pub bounds: Vec<Bound>,
    /// Changes to partitions: splits, merges, moves, leader transfers.
    pub marks: Vec<Mark>,
    /// The detector's verdicts.
    pub verdicts: Vec<VerdictNote>,
    /// Patterns of the load, by name.
    #[serde(default)]
    pub diagnoses: Vec<Diagnosis>,
    /// Distribution of the current load among the partitions.
    pub balance: Balance,
}

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// First key, in SQL values.
    pub start: String,
    /// End of the keys, exclusive, in SQL values.
    pub end: String,
    /// First key in hexadecimal, for a request of a smaller range.
    pub key: String,
    /// Share of the picture's height; all shares add up to 1.
    pub height: f32,
    /// The partition that contains the first key now.
    pub partition: Option<u64>,
    /// The node of that partition's leader.
    pub leader: Option<u64>,
    /// Number of partitions in the row's range now; more than one if there are more partitions than rows.
    pub partitions: u32,
}

/// A partition that begins at this row, in these columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// Index in [`Heatmap::rows`].
    pub row: usize,
    /// Index of the first column.
    pub from: usize,
    /// Index of the column after the last.
    pub to: usize,
}

/// A change to a partition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Time of the change, seconds since the Unix epoch.
    pub at: u64,
    /// The row that contains the key.
    pub row: usize,
    /// The kind of change.
    pub kind: MarkKind,
    /// The key, in SQL values.
    pub key: String,
    /// Description for people.
    pub text: String,
}

/// A verdict of the detector about a partition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerdictNote {
    /// The partition's id, if known.
    #[serde(default)]
    pub partition: Option<u64>,
    /// Start, seconds since the Unix epoch.
    pub since: u64,
    /// End, seconds since the Unix epoch; `None` while it holds.
    pub until: Option<u64>,
    /// The first row of the partition.
    pub from_row: usize,
    /// The row after the partition's last one.
    pub to_row: usize,
    /// The class, for example `MOVING_RIGHT`.
    pub class: String,
    /// The partition's range in SQL values.
    pub range: String,
    /// The reason, in words and numbers.
    pub evidence: String,
    /// The advice; empty without any.
    pub advice: String,
}

/// Distribution of the load among partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Balance {
    /// Number of partitions.
    pub partitions: u32,
    /// Effective number of partitions: with this many equally loaded ones, the distribution would be equally
    /// uneven. 1 / sum of squared shares; 0 without load.
    pub n_eff: f32,
    /// The load of the most loaded partition over the mean. 0 without load.
    pub max_over_mean: f32,
    /// The table's rate per second: the sum of all partitions.
    pub total: f32,
    /// The rate of the most loaded partition.
    pub max: f32,
}

/// One line of the answer to `GET /v1/tables.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableSummary {
    /// The table's name: what `table=` takes.
    pub name: String,
    /// Distribution of the rows written per second among the partitions.
    pub balance: Balance,
    /// The class of the worst verdict that holds; `None` without any.
    pub verdict: Option<String>,
}

/// The answer to `GET /v1/tables.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableList {
    /// All tables that have load.
    pub tables: Vec<TableSummary>,
}

impl Balance {
    /// The distribution of these rates, one per partition.
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

    /// The column that contains a time; times outside belong to the first or the last.
    #[must_use]
    pub fn column_of(&self, time: u64) -> usize {
        self.times.partition_point(|start| *start <= time).saturating_sub(1)
    }

    /// The groups of rows that were one partition in a column: first row and row after the last.
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

/// Serializes rates with three digits, which is more than a colour shows, to keep answers small.
fn short<S: Serializer>(cells: &[Vec<f32>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(
        cells.iter().map(|row| row.iter().map(|rate| Short(*rate)).collect::<Vec<_>>()),
    )
}

struct Short(f32);

impl Serialize for Short {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rate = f64::from(self.0);
        if !rate.is_finite() || rate <= 0.0 {
            return serializer.serialize_u8(0);
        }
        let unit = 10f64.powf(rate.log10().floor() - 2.0);
        if unit >= 1.0 {
            serializer.serialize_u64((round(rate / unit) * round(unit)) as u64)
        } else {
            let digits = (1.0 / unit).round();
            serializer.serialize_f64((rate * digits).round() / digits)
        }
    }
}
