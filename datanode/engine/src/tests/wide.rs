//! Wide tables: garbage among the cells of a partition is hidden by scans at once, and removed by compaction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use partita_proto::measure::LargeRows;
use partita_proto::partitioning::Partitioning;
use partita_proto::rule::Comparison;
use partita_proto::wide::{self, Family, GcRule, Version, Wide};
use proptest::prelude::*;

use super::*;

const ALL: [&str; 5] = ["row_key", "family", "qualifier", "cell_ts", "value"];
const KEY: [&str; 4] = ["row_key", "family", "qualifier", "cell_ts"];

fn schema(families: Vec<Family>) -> TableSchema {
    TableSchema {
        version: SchemaVersion(1),
        columns: wide::columns(ColumnType::String),
        key: (0..4).map(ColumnId).collect(),
        options: TableOptions {
            partitioning: Partitioning { keep_together: 1, ..Partitioning::default() },
            wide: Some(Wide { families, ..Wide::default() }),
            ..TableOptions::default()
        },
        next_column: ColumnId(5),
        schema_on_write: false,
        checks: Vec::new(),
        view: None,
    }
}

fn family(name: &str, gc: Option<GcRule>) -> Family {
    Family { name: name.to_owned(), gc, aggregate: None }
}

async fn fixture(families: Vec<Family>) -> Fixture {
    Fixture::new(config(schema(families), Placement::Range)).await
}

fn key((row_key, family, qualifier): (&str, &str, &str), timestamp: i64) -> Row {
    let qualifier = Value::Binary(qualifier.as_bytes().to_vec());
    vec![text(row_key), text(family), qualifier, Value::Timestamp(timestamp)]
}

fn cell(column: (&str, &str, &str), timestamp: i64, value: &str) -> Row {
    let mut cell = key(column, timestamp);
    cell.push(Value::Binary(value.as_bytes().to_vec()));
    cell
}

/// Timestamps of cells, in the order of a scan's rows.
fn times(rows: &[Row]) -> Vec<i64> {
    let time = |row: &Row| match row[3] {
        Value::Timestamp(time) => time,
        _ => panic!("{row:?} has no timestamp"),
    };
    rows.iter().map(time).collect()
}

async fn uncollected(fixture: &Fixture) -> Vec<Row> {
    let scan = Scan { uncollected: true, ..fixture.scan(&ALL, &[]) };
    collect(&fixture.partition, scan).await.unwrap().rows
}

#[tokio::test]
async fn old_versions_are_hidden_at_once_and_removed_by_compaction() {
    let mut fixture = fixture(vec![family("f", Some(GcRule::MaxVersions(3)))]).await;
    let column = ("row", "f", "q");
    for time in [1, 5, 3, 4, 2] {
        fixture.put(&ALL, &[cell(column, time, "v")]);
        fixture.flush().await.unwrap();
    }
    fixture.put(&ALL, &[cell(("row", "f", "r"), 9, "v"), cell(("row2", "f", "q"), 1, "v")]);
    let newest = [3, 4, 5, 9, 1];
    assert_eq!(times(&fixture.read(&ALL).await), newest);
    assert_eq!(uncollected(&fixture).await.len(), 7);
    // A predicate on times brings back nothing that is garbage.
    let old = Domain::compare(Comparison::LessOrEqual, Value::Timestamp(3));
    let read = fixture.read_where(&ALL, &[("cell_ts", old)]).await.unwrap();
    assert_eq!(times(&read), [3, 1]);
    // Neither does a projection without the columns of the key, nor a limit.
    assert_eq!(fixture.read(&["value"]).await.len(), 5);
    let limited = Scan { limit: Some(4), ..fixture.scan(&ALL, &[]) };
    let limited = collect(&fixture.partition, limited).await.unwrap();
    assert_eq!(times(&limited.streams.concat()), [5, 4, 3, 9], "in key order, newest first");
    // The newest cell of one column, and the cells of some times.
    let (row_key, qualifier) = (Value::String("row".to_owned()), Value::Binary(b"q".to_vec()));
    let column = [("row_key", Domain::point(row_key)), ("qualifier", Domain::point(qualifier))];
    let order = Some(KeyOrder::ASCENDING);
    let limited = Scan { limit: Some(1), order, ..fixture.scan(&ALL, &column) };
    let limited = collect(&fixture.partition, limited).await.unwrap();
    assert_eq!(times(&limited.streams.concat()), [5]);
    let points = Domain::points([1, 4].map(Value::Timestamp));
    let [row_key, qualifier] = column;
    let read = fixture.read_where(&ALL, &[row_key, qualifier, ("cell_ts", points)]).await.unwrap();
    assert_eq!(times(&read), [4], "the other is garbage");
    fixture.flush().await.unwrap();
    assert!(fixture.partition.compact(true).await.unwrap());
    assert_eq!(times(&uncollected(&fixture).await), newest);
}

#[tokio::test]
async fn cells_grow_old_without_a_write() {
    let hour = Duration::from_secs(3600);
    let rules = vec![family("f", Some(GcRule::MaxAge(hour))), family("g", None)];
    let mut fixture = fixture(rules).await;
    let rows = [
        cell(("a", "f", "q"), 0, ""),
        cell(("a", "f", "q"), 1_000_000, ""),
        cell(("a", "g", "q"), 0, ""),
    ];
    fixture.put(&ALL, &rows);
    fixture.flush().await.unwrap();
    assert_eq!(fixture.read(&ALL).await.len(), 3);
    fixture.clock.0.store(3_600_001, Ordering::Relaxed);
    let read = fixture.read(&ALL).await;
    assert_eq!(read, [rows[1].clone(), rows[2].clone()]);
    assert_eq!(uncollected(&fixture).await.len(), 3);
    fixture.partition.compact(true).await.unwrap();
    assert_eq!(uncollected(&fixture).await, read);
}

#[tokio::test]
async fn cells_of_a_family_that_is_gone_are_garbage() {
    let mut fixture = fixture(vec![family("f", None)]).await;
    fixture.put(&ALL, &[cell(("a", "f", "q"), 1, ""), cell(("a", "gone", "q"), 1, "")]);
    assert_eq!(fixture.read(&ALL).await, [cell(("a", "f", "q"), 1, "")]);
    assert_eq!(uncollected(&fixture).await.len(), 2);
}

#[tokio::test]
async fn partitions_are_cut_between_rows() {
    let mut fixture = fixture(vec![family("f", None)]).await;
    let cells = |row_key| (0..50).map(move |time| cell((row_key, "f", "q"), time, ""));
    let rows: Vec<Row> = cells("a").chain(cells("b")).collect();
    fixture.put(&ALL, &rows);
    fixture.flush().await.unwrap();
    let middle = fixture.partition.middle().await.unwrap().unwrap();
    assert_eq!(middle.key, [text("b")]);
}

#[tokio::test]
async fn the_sizes_of_rows_in_files_are_known() {
    let mut fixture = fixture(vec![family("f", Some(GcRule::MaxVersions(1)))]).await;
    let value = "v".repeat(1000);
    for time in [1, 2] {
        fixture
            .put(&ALL, &[cell(("big", "f", "q"), time, &value), cell(("small", "f", "q"), 1, "")]);
        fixture.flush().await.unwrap();
    }
    let sizes = |rows: LargeRows| {
        let rows = rows.iter().map(|(row_key, size)| (row_key.clone(), size.bytes, size.cells));
        rows.collect::<Vec<_>>()
    };
    let both = sizes(fixture.partition.large_rows().await.unwrap());
    assert_eq!(both, [(text("big"), 2 * 1013, 2), (text("small"), 2 * 15, 2)]);
    fixture.partition.compact(true).await.unwrap();
    let merged = sizes(fixture.partition.large_rows().await.unwrap());
    assert_eq!(merged, [(text("big"), 1013, 1), (text("small"), 15, 1)]);
}

/// A step of a random history; rows and columns are small numbers.
#[derive(Clone, Debug)]
enum Step {
    Put(Vec<(u8, u8, u8, i64)>),
    /// Deletes all cells of a column that were ever written.
    DeleteColumn(u8, u8, u8),
    Flush,
    /// Merges everything, or some neighbours.
    Compact(Option<[usize; 3]>),
    /// Time passes, in milliseconds.
    Wait(i64),
    /// Scans the times before one.
    ReadBefore(i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let cell = || (0_u8..2, 0_u8..3, 0_u8..2, 0_i64..12);
    let step = prop_oneof![
        6 => prop::collection::vec(cell(), 1..5).prop_map(Step::Put),
        1 => (0_u8..2, 0_u8..3, 0_u8..2).prop_map(|(row, family, q)| Step::DeleteColumn(row, family, q)),
        2 => Just(Step::Flush),
        1 => Just(Step::Compact(None)),
        1 => any::<[usize; 3]>().prop_map(|some| Step::Compact(Some(some))),
        1 => (1_i64..3).prop_map(Step::Wait),
        2 => (0_i64..12).prop_map(Step::ReadBefore),
    ];
    prop::collection::vec(step, 1..30)
}

fn rules() -> impl Strategy<Value = GcRule> {
    let leaf = prop_oneof![
        (1_u32..4).prop_map(GcRule::MaxVersions),
        (1_u64..8).prop_map(|millis| GcRule::MaxAge(Duration::from_millis(millis))),
    ];
    leaf.prop_recursive(2, 6, 2, |rule| {
        prop_oneof![
            prop::collection::vec(rule.clone(), 1..3).prop_map(GcRule::Union),
            prop::collection::vec(rule, 1..3).prop_map(GcRule::Intersection),
        ]
    })
}

const ROWS: [&str; 2] = ["a", "b"];
const FAMILIES: [&str; 3] = ["f", "g", "gone"];
const QUALIFIERS: [&str; 2] = ["p", "q"];

/// All cells that were written and not deleted: columns with their times, in milliseconds.
type Model = BTreeMap<(u8, u8, u8), BTreeSet<i64>>;

fn names((row, family, qualifier): (u8, u8, u8)) -> (&'static str, &'static str, &'static str) {
    (ROWS[usize::from(row)], FAMILIES[usize::from(family)], QUALIFIERS[usize::from(qualifier)])
}

/// The cells that a scan returns, with times below a bound.
fn expected(model: &Model, families: &[Family], now_ms: i64, before: i64) -> Vec<Row> {
    let mut rows = Vec::new();
    for (column, cells) in model {
        let (row_key, name, qualifier) = names(*column);
        let Some(family) = families.iter().find(|family| family.name == name) else { continue };
        for (number, time) in (1..).zip(cells.iter().rev()) {
            let version = Version { number, timestamp: time * 1000 };
            let is_garbage =
                family.gc.as_ref().is_some_and(|rule| rule.collects(version, now_ms * 1000));
            if !is_garbage && *time < before {
                rows.push(cell((row_key, name, qualifier), time * 1000, ""));
            }
        }
    }
    rows.sort();
    rows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn cells_are_read_as_from_a_map_of_all_versions(
        first in prop::option::of(rules()),
        second in prop::option::of(rules()),
        steps in steps(),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        runtime.block_on(async {
            let families = vec![family("f", first), family("g", second)];
            let mut fixture = fixture(families.clone()).await;
            let mut model = Model::new();
            for step in steps {
                let now_ms = fixture.clock.0.load(Ordering::Relaxed);
                match step {
                    Step::Put(cells) => {
                        let keys: BTreeSet<_> = cells.into_iter().collect();
                        let rows: Vec<Row> = keys.iter().map(|(row, family, qualifier, time)| {
                            model.entry((*row, *family, *qualifier)).or_default().insert(*time);
                            cell(names((*row, *family, *qualifier)), time * 1000, "")
                        }).collect();
                        fixture.put(&ALL, &rows);
                    }
                    Step::DeleteColumn(row, family, qualifier) => {
                        let column = (row, family, qualifier);
                        let cells = model.remove(&column).unwrap_or_default();
                        let rows: Vec<Row> =
                            cells.iter().map(|time| key(names(column), time * 1000)).collect();
                        if !rows.is_empty() {
                            fixture.write(WriteKind::Delete, &KEY, &rows);
                        }
                    }
                    Step::Flush => {
                        fixture.flush().await.unwrap();
                    }
                    Step::Compact(None) => {
                        fixture.partition.compact(true).await.unwrap();
                    }
                    Step::Compact(Some(some)) => fixture.partition.compact_some(some).await.unwrap(),
                    Step::Wait(millis) => fixture.clock.0.store(now_ms + millis, Ordering::Relaxed),
                    Step::ReadBefore(time) => {
                        let bound = Value::Timestamp(time * 1000);
                        let early = [("cell_ts", Domain::compare(Comparison::Less, bound))];
                        let read = fixture.read_where(&ALL, &early).await.unwrap();
                        assert_eq!(read, expected(&model, &families, now_ms, time));
                    }
                }
                let now_ms = fixture.clock.0.load(Ordering::Relaxed);
                assert_eq!(fixture.read(&ALL).await, expected(&model, &families, now_ms, i64::MAX));
            }
        });
    }
}
