//! Load is neither lost nor added, the memory is bounded, and pictures show the load that was reported.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::metric::Metric;
use crate::picture::Heatmap;

const START: u64 = 1_790_000_000;

fn key(number: u64) -> Key {
    Key::from(number.to_be_bytes())
}

fn partition(
    id: u64,
    start: Option<u64>,
    end: Option<u64>,
    rate: f32,
    samples: &[u64],
) -> PartitionLoad {
    PartitionLoad {
        id,
        leader: Some(id % 3),
        start: start.map_or_else(|| Key::from([]), key),
        end: end.map(key),
        rates: [rate, rate / 2.0, rate * 100.0, 0.5],
        writes: Shares::of_samples(samples.iter().copied().map(key).collect()),
        reads: Shares::default(),
    }
}

fn report(start: u64, partitions: Vec<PartitionLoad>) -> Report {
    Report { from: start, seconds: 1, partitions }
}

fn view(start: u64, end: u64) -> View {
    View {
        table: "t".to_owned(),
        metric: Metric::WriteRows,
        from: start,
        to: end,
        columns_max: 240,
        rows_max: 256,
        keys: None,
        capacity: Some(1000.0),
    }
}

fn label(key: &[u8]) -> String {
    key.iter().take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)).to_string()
}

/// Total amount of a metric in a history: rate times seconds.
fn mass(history: &History, metric: usize) -> f64 {
    let columns = history.blocks().flat_map(|block| &block.columns);
    columns.flat_map(|column| &column.cells).map(|cell| f64::from(cell[metric])).sum()
}

/// Total amount in a picture all of whose seconds were reported.
fn shown(picture: &Heatmap) -> f64 {
    picture.cells.iter().flatten().map(|rate| f64::from(*rate) * f64::from(picture.step)).sum()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-3 * a.abs().max(b.abs()).max(1.0)
}

fn numbers(seed: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(seed | 1), |last| {
        Some(last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    })
    .map(|state| state >> 33)
}

/// Layers so small that columns run through all of them within a test, and so long that nothing is forgotten.
const SMALL: [Layer; 3] = [
    Layer { step: 1, columns: 5 },
    Layer { step: 4, columns: 3 },
    Layer { step: 8, columns: 1000 },
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn load_is_kept_while_columns_are_added_up_and_partitions_split_and_merge(
        steps in prop::collection::vec((prop::collection::btree_set(1_u64..10_000, 0..6), 0_f32..500.0, any::<u64>(), 1_u32..4), 1..40)
    ) {
        let mut history = History::new(&SMALL);
        let (mut at, mut pushed) = (START, 0.0);
        for (cuts, rate, seed, seconds) in &steps {
            let starts: Vec<Option<u64>> = std::iter::once(None).chain(cuts.iter().copied().map(Some)).collect();
            let mut partitions = Vec::new();
            for (index, start) in starts.iter().enumerate() {
                let end = starts.get(index + 1).copied().flatten();
                let (low, high) = (start.unwrap_or(0), end.unwrap_or(20_000));
                let samples: Vec<u64> =
                    numbers(seed + index as u64).take(index * 11).map(|number| low + number % (high - low)).collect();
                partitions.push(partition(index as u64, *start, end, *rate, &samples));
                pushed += f64::from(*rate) * f64::from(*seconds);
            }
            history.push(&Report { from: at, seconds: *seconds, partitions });
            at += u64::from(*seconds);
        }
        prop_assert!(near(mass(&history, 0), pushed), "{} of {pushed}", mass(&history, 0));
        prop_assert!(near(mass(&history, 1), pushed / 2.0));
        // Aligned to the coarsest layer, so that all seconds of all columns but those at the ends were reported.
        let picture = history.view(&view(START - 8, at + 8), label);
        let covered: f64 = shown(&picture);
        prop_assert!(covered >= pushed * 0.999, "{covered} of {pushed}");
        let heights: f32 = picture.rows.iter().map(|row| row.height).sum();
        prop_assert!((heights - 1.0).abs() < 1e-3);
        prop_assert!(picture.rows.len() <= 256 && picture.times.len() <= 240);
        prop_assert!(picture.bounds.iter().all(|bound| bound.row < picture.rows.len() && bound.from < bound.to));
    }

    #[test]
    fn a_picture_shows_the_load_of_its_time(rates in prop::collection::vec(0_f32..900.0, 90..91), rows_max in 1_usize..64) {
        let mut history = History::default();
        for (second, rate) in rates.iter().enumerate() {
            let samples: Vec<u64> = numbers(second as u64).take(24).map(|number| number % 9000).collect();
            history.push(&report(START + second as u64, vec![
                partition(1, None, Some(5000), *rate, &samples.iter().copied().filter(|key| *key < 5000).collect::<Vec<_>>()),
                partition(2, Some(5000), None, *rate, &[]),
            ]));
        }
        let picture = history.view(&View { rows_max, ..view(START + 30, START + 90) }, label);
        let wanted: f64 = rates[30..].iter().map(|rate| f64::from(*rate) * 2.0).sum();
        prop_assert!(near(shown(&picture), wanted), "{} of {wanted}", shown(&picture));
        prop_assert!(picture.rows.len() <= rows_max.max(1));
    }
}

#[test]
fn the_past_of_a_split_range_is_spread_evenly_over_its_children() {
    let mut history = History::default();
    for second in 0..10 {
        history.push(&report(START + second, vec![partition(1, None, None, 100.0, &[])]));
    }
    for second in 10..20 {
        let children =
            vec![partition(1, None, Some(50), 80.0, &[]), partition(2, Some(50), None, 20.0, &[])];
        history.push(&report(START + second, children));
    }
    let picture = history.view(&view(START, START + 20), label);
    assert_eq!(picture.rows.len(), 2);
    let column = |column: usize| [picture.cells[0][column], picture.cells[1][column]];
    assert!(
        near(f64::from(column(0)[0]), 50.0) && near(f64::from(column(0)[1]), 50.0),
        "{:?}",
        column(0)
    );
    assert!(
        near(f64::from(column(19)[0]), 80.0) && near(f64::from(column(19)[1]), 20.0),
        "{:?}",
        column(19)
    );
    // The bound is there from the split on, and the parent was one partition before.
    assert_eq!(picture.partitions_in(9), [(0, 2)]);
    assert_eq!(picture.partitions_in(10), [(0, 1), (1, 2)]);
}

#[test]
fn memory_has_a_bound_however_many_partitions_and_keys_there_are() {
    let mut history = History::default();
    let mut random = numbers(3);
    // Reports that are hours apart fill every layer with few of them.
    for step in 0..700_u64 {
        let mut starts: Vec<u64> = (0..18).map(|part| part * 1_000_000).collect();
        starts.sort_unstable();
        let partitions = starts.iter().enumerate().map(|(index, start)| {
            let samples: Vec<u64> =
                random.by_ref().take(32).map(|number| start + number % 1_000_000).collect();
            let first_key = (index > 0).then_some(*start);
            partition(index as u64, first_key, starts.get(index + 1).copied(), 10.0, &samples)
        });
        let partitions = partitions.collect();
        history.push(&report(START + step * 7200, partitions));
        history.mark(Event {
            at: START,
            key: key(step),
            kind: MarkKind::Split,
            text: "x".repeat(9000),
        });
    }
    let columns: usize = history.blocks().map(|block| block.columns.len()).sum();
    assert!(columns >= 600, "only {columns} columns");
    assert!(history.blocks().all(|block| block.axis.len() <= ROWS_MAX));
    // The layers make 7 MB, and notes at most one more.
    assert!(history.bytes() < 8_000_000, "{} bytes", history.bytes());
}

#[test]
fn what_leaves_the_last_layer_is_forgotten() {
    let mut history = History::new(&[Layer { step: 1, columns: 4 }, Layer { step: 2, columns: 3 }]);
    for second in 0..100 {
        history.push(&report(START + second, vec![partition(1, None, None, 1.0, &[])]));
    }
    let remaining = mass(&history, 0);
    assert!((10.0..=12.0).contains(&remaining), "{remaining}");
}

#[test]
fn a_report_from_before_the_newest_column_is_not_lost() {
    let mut history = History::default();
    history.push(&report(START + 10, vec![partition(1, None, None, 5.0, &[])]));
    history.push(&report(START, vec![partition(1, None, None, 7.0, &[])]));
    assert!(near(mass(&history, 0), 12.0));
}

#[test]
fn a_moving_tail_is_a_line_that_rises() {
    let mut history = History::default();
    for second in 0..60_u64 {
        let samples: Vec<u64> = (0..32).map(|sample| second * 1000 + sample * 30).collect();
        history.push(&report(START + second, vec![partition(1, None, None, 900.0, &samples)]));
    }
    let picture = history.view(&view(START, START + 60), label);
    assert!(picture.rows.len() > 100, "{} rows", picture.rows.len());
    let centre = |column: usize| {
        let line = picture.cells.iter().map(|row| f64::from(row[column]));
        let sum: f64 = line.clone().sum();
        line.enumerate().map(|(row, rate)| row as f64 * rate).sum::<f64>() / sum
    };
    for column in 3..60 {
        assert!(centre(column) > centre(column - 3), "column {column}");
    }
    // Above the tail there is nothing, though all of it is one partition.
    let rate =
        picture.cells.iter().skip(picture.rows.len() / 2).map(|row| row[10]).fold(0.0, f32::max);
    assert!(rate < 5.0, "{rate} rows/s above the tail");
}

#[test]
fn a_hot_key_is_thin_and_bright() {
    let mut history = History::default();
    for second in 0..30_u64 {
        let mut samples: Vec<u64> = numbers(second).take(8).map(|number| number % 10_000).collect();
        samples.extend([4711; 24]);
        history.push(&report(START + second, vec![partition(1, None, None, 900.0, &samples)]));
    }
    let picture = history.view(&view(START, START + 30), label);
    let row = picture.rows.iter().position(|row| row.start == "4711" && row.end == "4711").unwrap();
    let sum = |row: usize| picture.cells[row].iter().sum::<f32>();
    let total: f32 = (0..picture.rows.len()).map(sum).sum();
    assert!(sum(row) / total > 0.7, "{}", sum(row) / total);
    assert!((0.02..0.08).contains(&picture.rows[row].height), "{}", picture.rows[row].height);
}

#[test]
fn a_picture_of_fewer_keys_has_finer_rows_and_only_their_load() {
    let mut history = History::default();
    for second in 0..60 {
        let samples: Vec<u64> = numbers(second).take(64).map(|number| number % 10_000).collect();
        history.push(&report(START + second, vec![partition(1, None, None, 640.0, &samples)]));
    }
    let rows_max = 32;
    let whole = history.view(&View { rows_max, ..view(START, START + 60) }, label);
    let keys = Some((key(2000), Some(key(4000))));
    let part = history.view(&View { rows_max, keys, ..view(START, START + 60) }, label);
    let inside =
        |row: &&crate::picture::Row| (2000..4000).contains(&row.start.parse::<u64>().unwrap_or(0));
    assert!(part.rows.len() > 2 * whole.rows.iter().filter(inside).count());
    assert_eq!(
        (part.rows[0].start.as_str(), part.rows.last().unwrap().end.as_str()),
        ("2000", "4000")
    );
    let share = shown(&part) / shown(&whole);
    assert!((0.15..0.25).contains(&share), "{share}");
}

#[test]
fn marks_and_findings_stand_where_they_belong() {
    let mut history = History::default();
    for second in 0..20 {
        let children =
            vec![partition(1, None, Some(50), 80.0, &[]), partition(2, Some(50), None, 20.0, &[])];
        history.push(&report(START + second, children));
    }
    // One mark inside the time of the picture, one after it.
    history.mark(Event {
        at: START + 5,
        key: key(50),
        kind: MarkKind::Split,
        text: "cut".to_owned(),
    });
    history.mark(Event {
        at: START + 500,
        key: key(50),
        kind: MarkKind::Merge,
        text: "later".to_owned(),
    });
    // The second finding about the same partition replaces the first.
    let finding = |evidence: &str| Finding {
        partition: Some(4),
        since: START + 6,
        until: None,
        start: key(50),
        end: None,
        class: "HOT_KEY".to_owned(),
        evidence: evidence.to_owned(),
        advice: String::new(),
    };
    history.find(finding("first"));
    history.find(finding("second"));
    let picture = history.view(&view(START, START + 20), label);
    assert_eq!(picture.marks.len(), 1);
    assert_eq!((picture.marks[0].row, picture.marks[0].key.as_str()), (1, "50"));
    let [verdict] = &picture.verdicts[..] else { panic!("{:?}", picture.verdicts) };
    assert_eq!((verdict.from_row, verdict.to_row, verdict.evidence.as_str()), (1, 2, "second"));
    // A cleared finding keeps its place and gets an end.
    history.clear(&key(50), START + 9);
    assert_eq!(history.view(&view(START, START + 20), label).verdicts[0].until, Some(START + 9));
    assert!((picture.balance.n_eff - 1.470_6).abs() < 0.01, "{}", picture.balance.n_eff);
}

#[test]
fn time_without_reports_is_a_gap() {
    let mut history = History::default();
    for second in (0..10).chain(20..30) {
        history.push(&report(START + second, vec![partition(1, None, None, 1.0, &[])]));
    }
    let picture = history.view(&view(START, START + 30), label);
    assert_eq!(picture.gaps, (10..20).collect::<Vec<_>>());
    assert!(History::default().view(&view(START, START + 5), label).gaps.len() == 5);
}

#[test]
fn one_hot_partition_among_a_thousand_is_seen() {
    let mut history = History::default();
    for second in 0..10 {
        let load = |id: u64| {
            let rate = if id == 617 { 900.0 } else { 1.0 };
            partition(
                id,
                (id > 0).then_some(id * 10),
                (id < 999).then_some(id * 10 + 10),
                rate,
                &[],
            )
        };
        history.push(&report(START + second, (0..1000).map(load).collect()));
    }
    let picture = history.view(&view(START, START + 10), label);
    let shades = picture.intensity(crate::Mode::Absolute);
    let hot = picture.rows.iter().position(|row| row.partition == Some(617)).unwrap();
    assert_eq!(picture.rows[hot].partitions, 1);
    assert!((shades[hot][5] - 0.9).abs() < 0.01, "{}", shades[hot][5]);
    assert!(shades.iter().enumerate().all(|(row, line)| row == hot || line[5] < 0.1));
}

#[test]
fn rows_are_named_in_hexadecimal() {
    let mut history = History::default();
    history.push(&report(
        START,
        vec![partition(1, None, Some(2748), 1.0, &[]), partition(2, Some(2748), None, 1.0, &[])],
    ));
    let picture = history.view(&view(START, START + 1), label);
    assert_eq!(picture.rows[1].key, "0000000000000abc");
    assert_eq!(key_of_hex(&picture.rows[1].key), Some(key(2748)));
    assert_eq!(key_of_hex(""), Some(Key::from([])));
    assert_eq!((key_of_hex("abc"), key_of_hex("zz"), key_of_hex("\u{e4}")), (None, None, None));
}

#[test]
fn a_picture_has_a_largest_size_whoever_asks() {
    let mut history = History::default();
    history.push(&report(START, vec![partition(1, None, None, 1.0, &[])]));
    let request = View { columns_max: usize::MAX, rows_max: usize::MAX, ..view(0, START + 1) };
    let picture = history.view(&request, label);
    assert!(picture.times.len() <= 1000, "{} columns", picture.times.len());
    assert!(near(shown(&picture) / f64::from(picture.step), 1.0));
}

#[test]
fn keys_of_any_length_are_taken_in() {
    let mut history = History::default();
    let long = Key::from(vec![7; 5000]);
    let mut low = partition(1, None, None, 10.0, &[]);
    low.end = Some(Arc::clone(&long));
    low.writes = Shares::of_samples(vec![Key::from(vec![6; 4000]), key(3)]);
    let mut high = partition(2, None, None, 30.0, &[]);
    high.start = long;
    history.push(&report(START, vec![low, high]));
    assert!(near(mass(&history, 0), 40.0));
    assert!(history.bytes() < 100_000);
}

#[test]
fn operations_are_rows_written_and_rows_read() {
    let mut history = History::default();
    for second in 0..20 {
        history.push(&report(START + second, vec![partition(1, None, None, 100.0, &[1, 2, 3])]));
    }
    let drawn =
        |metric| history.view(&View { metric, capacity: None, ..view(START, START + 20) }, label);
    let rates = [Metric::WriteRows, Metric::ReadRows, Metric::Operations].map(|metric| {
        let picture = drawn(metric);
        (shown(&picture), f64::from(picture.balance.total))
    });
    assert!(near(rates[2].0, rates[0].0 + rates[1].0), "{rates:?}");
    assert!(near(rates[2].1, 150.0), "{rates:?}");
    assert_eq!(Metric::ALL.map(Metric::index), [0, 1, 2, 3, 4]);
    assert_eq!(Metric::named("operations"), Some(Metric::Operations));
}
