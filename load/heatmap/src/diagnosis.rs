//! Named diagnoses of a picture, each with the threshold from which it is made.
//!
//! ```text
//!   HIGH_WRITE_PRESSURE   a partition's write lane is busy for 70 % of the time now
//!   HOT_RANGE             one row has 30 % of the load, and 4 times what its height lets expect
//!   DIAGONAL              the middle of the load moves through the keys in one direction, over a quarter of them
//!   BURSTS                times of 4 times the mean, again and again
//!   EVEN                  the partitions bear nearly the same, and none of the above
//! ```
//!
//! They say what a reader sees in the map, whatever its metric. Whether a partition is hot, and what helps, is the
//! detector's verdict: it looks at samples of keys second by second.
//!
//! Invariants: pure; columns without reports count for nothing; a picture without load has no diagnosis.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::number::narrow;
use crate::picture::Heatmap;
use crate::wording::percent;

/// Minimum busy share of a write lane under high pressure.
const PRESSURE: f32 = 0.7;
/// Minimum share of the load in a hot row.
const HOT_SHARE: f64 = 0.3;
/// Minimum share of the load in a hot row, as a multiple of its share of the height.
const HOT_DENSITY: f64 = 4.0;
/// Minimum share of the steps of a moving load that go in its direction.
const STEADY: f64 = 0.9;
/// Minimum number of such steps.
const STEPS_MIN: usize = 5;
/// Minimum distance that a moving load covers, as a share of the picture's height.
const DISTANCE: f64 = 0.25;
/// Minimum load of a burst, as a multiple of the mean.
const BURST: f64 = 4.0;
/// Minimum number of bursts, and of columns in which they may come.
const BURSTS_MIN: usize = 3;
const COLUMNS_MIN: usize = 12;
/// Minimum effective number of partitions under an even load, as a share of their number.
const EVEN: f64 = 0.8;

/// Name of a diagnosis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DiagnosisKind {
    /// The write lane of a partition is busy nearly all the time.
    HighWritePressure,
    /// Few keys have much of the load.
    HotRange,
    /// The load moves through the keys in one direction.
    Diagonal,
    /// The load comes in bursts.
    Bursts,
    /// The load is spread evenly over the partitions.
    Even,
}

/// A diagnosis of a picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// Name of the diagnosis.
    pub kind: DiagnosisKind,
    /// The measured figure, in the unit of the threshold.
    pub value: f32,
    /// Value from which the diagnosis is made.
    pub threshold: f32,
    /// First row that it is about, an index in [`Heatmap::rows`].
    pub from_row: usize,
    /// The row after the last that it is about.
    pub to_row: usize,
    /// Description for people.
    pub text: String,
}

/// Diagnoses of a picture. `busy`: the present busy share of the write lane of each partition, by its id.
pub(crate) fn diagnose(heatmap: &Heatmap, busy: &BTreeMap<u64, f32>) -> Vec<Diagnosis> {
    let load = Load::of(heatmap);
    let mut diagnoses = pressures(heatmap, busy);
    if load.total > 0.0 {
        diagnoses.extend(hot_range(heatmap, &load));
        diagnoses.extend(diagonal(heatmap, &load));
        diagnoses.extend(bursts(heatmap, &load));
        if diagnoses.is_empty() {
            diagnoses.extend(even(heatmap));
        }
    }
    diagnoses
}

/// Sums of a picture's cells, without the columns that no report covers.
struct Load {
    /// By row.
    rows: Vec<f64>,
    /// By covered column.
    columns: Vec<f64>,
    /// Middle of the load of each covered column with load, as a share of the picture's height.
    middles: Vec<f64>,
    total: f64,
}

impl Load {
    fn of(heatmap: &Heatmap) -> Self {
        let mut middle = 0.0;
        let mut places = Vec::with_capacity(heatmap.rows.len());
        for row in &heatmap.rows {
            let height = f64::from(row.height);
            places.push(middle + height / 2.0);
            middle += height;
        }
        let mut load = Self {
            rows: vec![0.0; heatmap.rows.len()],
            columns: Vec::new(),
            middles: Vec::new(),
            total: 0.0,
        };
        let is_covered = |column: &usize| heatmap.gaps.binary_search(column).is_err();
        for column in (0..heatmap.times.len()).filter(is_covered) {
            let (mut sum, mut weighted) = (0.0, 0.0);
            for ((row, place), cells) in load.rows.iter_mut().zip(&places).zip(&heatmap.cells) {
                let rate = f64::from(cells[column]);
                *row += rate;
                sum += rate;
                weighted += rate * place;
            }
            load.columns.push(sum);
            load.total += sum;
            if sum > 0.0 {
                load.middles.push(weighted / sum);
            }
        }
        load
    }
}

/// Partitions whose write lanes are busy, with the rows that they have in the picture.
fn pressures(heatmap: &Heatmap, busy: &BTreeMap<u64, f32>) -> Vec<Diagnosis> {
    let mut diagnoses = Vec::new();
    let mut from_row = 0;
    for rows in heatmap.rows.chunk_by(|row, next| row.partition == next.partition) {
        let to_row = from_row + rows.len();
        let partition = rows.first().and_then(|row| row.partition);
        let share = partition.and_then(|id| Some((id, *busy.get(&id)?)));
        if let Some((id, share)) = share.filter(|(_, share)| *share >= PRESSURE) {
            diagnoses.push(Diagnosis {
                kind: DiagnosisKind::HighWritePressure,
                value: share,
                threshold: PRESSURE,
                from_row,
                to_row,
                text: format!(
                    "the write lane of partition {id} is busy for {} of the time",
                    percent(f64::from(share))
                ),
            });
        }
        from_row = to_row;
    }
    diagnoses
}

/// The row with the greatest load, if it has much of it for its height.
fn hot_range(heatmap: &Heatmap, load: &Load) -> Option<Diagnosis> {
    let (row, most) =
        load.rows.iter().enumerate().max_by(|first, second| first.1.total_cmp(second.1))?;
    let share = most / load.total;
    let hot_row = heatmap.rows.get(row)?;
    let is_hot = share >= HOT_SHARE && share >= HOT_DENSITY * f64::from(hot_row.height);
    is_hot.then(|| Diagnosis {
        kind: DiagnosisKind::HotRange,
        value: narrow(share),
        threshold: narrow(HOT_SHARE),
        from_row: row,
        to_row: row + 1,
        text: format!("{} of the load is on the keys from {}", percent(share), hot_row.start),
    })
}

/// A load whose middle moves in one direction.
fn diagonal(heatmap: &Heatmap, load: &Load) -> Option<Diagnosis> {
    let (first, last) = (load.middles.first()?, load.middles.last()?);
    let steps = load.middles.windows(2).map(|pair| pair[1] - pair[0]);
    let (mut rising, mut falling) = (0, 0);
    for step in steps {
        rising += usize::from(step > 0.0);
        falling += usize::from(step < 0.0);
    }
    let (distance, rises) = ((last - first).abs(), last > first);
    let steady = if rises { rising } else { falling };
    let is_steady = steady >= STEPS_MIN && steady as f64 >= STEADY * (rising + falling) as f64;
    (is_steady && distance >= DISTANCE).then(|| Diagnosis {
        kind: DiagnosisKind::Diagonal,
        value: narrow(distance),
        threshold: narrow(DISTANCE),
        from_row: 0,
        to_row: heatmap.rows.len(),
        text: format!(
            "the load moves {} through {} of the keys shown",
            if rises { "upwards" } else { "downwards" },
            percent(distance)
        ),
    })
}

/// Times of much load between times of little.
fn bursts(heatmap: &Heatmap, load: &Load) -> Option<Diagnosis> {
    if load.columns.len() < COLUMNS_MIN {
        return None;
    }
    let mean = load.total / load.columns.len() as f64;
    let is_burst = |sum: &f64| *sum >= BURST * mean;
    // Neighbouring columns are one burst.
    let groups = load.columns.chunk_by(|sum, next| is_burst(sum) == is_burst(next));
    let count = groups.filter(|group| group.first().is_some_and(is_burst)).count();
    let most = load.columns.iter().copied().fold(0.0, f64::max) / mean;
    (count >= BURSTS_MIN).then(|| Diagnosis {
        kind: DiagnosisKind::Bursts,
        value: narrow(most),
        threshold: narrow(BURST),
        from_row: 0,
        to_row: heatmap.rows.len(),
        text: format!("the load comes in {count} bursts of up to {most:.1} times the mean"),
    })
}

/// A load that is spread over several partitions.
fn even(heatmap: &Heatmap) -> Option<Diagnosis> {
    let balance = heatmap.balance;
    let share = f64::from(balance.n_eff) / f64::from(balance.partitions.max(1));
    (balance.partitions > 1 && share >= EVEN).then(|| Diagnosis {
        kind: DiagnosisKind::Even,
        value: narrow(share),
        threshold: narrow(EVEN),
        from_row: 0,
        to_row: heatmap.rows.len(),
        text: format!("{} partitions bear nearly the same load", balance.partitions),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;
    use crate::picture::{Balance, Row};

    /// A picture of rows of the same height, each in a partition of its own, with these rates by column and row.
    fn picture(rows: usize, columns: usize, rate: impl Fn(usize, usize) -> f32) -> Heatmap {
        let row = |number: usize| Row {
            start: format!("({number})"),
            end: format!("({})", number + 1),
            key: String::new(),
            height: 1.0 / rows as f32,
            partition: Some(number as u64),
            leader: None,
            partitions: 1,
        };
        let cells: Vec<Vec<f32>> =
            (0..rows).map(|row| (0..columns).map(|column| rate(column, row)).collect()).collect();
        let last: Vec<f32> = cells.iter().filter_map(|row| row.last().copied()).collect();
        Heatmap {
            table: "t".to_owned(),
            metric: Metric::WriteRows,
            capacity: None,
            times: (0..columns as u64).collect(),
            step: 1,
            gaps: Vec::new(),
            rows: (0..rows).map(row).collect(),
            cells,
            bounds: Vec::new(),
            marks: Vec::new(),
            verdicts: Vec::new(),
            diagnoses: Vec::new(),
            balance: Balance::of(&last),
        }
    }

    fn kinds(heatmap: &Heatmap) -> Vec<DiagnosisKind> {
        diagnose(heatmap, &BTreeMap::new()).iter().map(|diagnosis| diagnosis.kind).collect()
    }

    #[test]
    fn a_key_that_begins_with_the_time_is_a_diagonal_and_a_hash_is_even() {
        let moving = picture(20, 20, |column, row| if column == row { 100.0 } else { 0.0 });
        assert_eq!(kinds(&moving), [DiagnosisKind::Diagonal]);
        let falling = picture(20, 20, |column, row| if column + row == 19 { 100.0 } else { 0.0 });
        let found = diagnose(&falling, &BTreeMap::new());
        assert_eq!(found[0].text, "the load moves downwards through 95 % of the keys shown");
        let hashed = picture(8, 20, |column, row| 50.0 + ((column * 7 + row * 3) % 5) as f32);
        assert_eq!(kinds(&hashed), [DiagnosisKind::Even]);
        assert!(kinds(&picture(8, 20, |_, _| 0.0)).is_empty());
    }

    #[test]
    fn a_hot_key_is_named_from_its_share_on() {
        let hot = |share: f32| {
            picture(21, 20, move |_, row| if row == 3 { share } else { (1.0 - share) / 20.0 })
        };
        let found = diagnose(&hot(0.4), &BTreeMap::new());
        assert_eq!((found[0].kind, found[0].from_row), (DiagnosisKind::HotRange, 3));
        assert_eq!(found[0].text, "40 % of the load is on the keys from (3)");
        assert!(kinds(&hot(0.25)).is_empty());
        // Of four rows, one may have a third.
        let few = picture(4, 20, |_, row| if row == 3 { 0.4 } else { 0.2 });
        assert!(!kinds(&few).contains(&DiagnosisKind::HotRange));
    }

    #[test]
    fn minute_ticks_are_bursts_and_a_single_peak_is_none() {
        let ticks = picture(4, 60, |column, _| if column.is_multiple_of(12) { 120.0 } else { 0.0 });
        assert_eq!(kinds(&ticks)[0], DiagnosisKind::Bursts);
        let peak = picture(4, 60, |column, _| if (20..24).contains(&column) { 120.0 } else { 1.0 });
        assert!(!kinds(&peak).contains(&DiagnosisKind::Bursts));
    }

    #[test]
    fn pressure_is_that_of_the_partitions_now() {
        let heatmap = picture(4, 20, |_, _| 1.0);
        let found = diagnose(&heatmap, &BTreeMap::from([(1, 0.69), (2, 0.75)]));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].kind, found[0].from_row), (DiagnosisKind::HighWritePressure, 2));
        assert_eq!(found[0].text, "the write lane of partition 2 is busy for 75 % of the time");
        let json = serde_json::to_value(&found[0]).unwrap();
        assert_eq!(json["kind"], "HIGH_WRITE_PRESSURE");
    }
}
