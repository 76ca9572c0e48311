//! Splits and merges of partitions.

use std::fs;
use std::ops::Range;

use futures::TryStreamExt;
use partita_proto::range::Bound;

use super::failure::{failing, files};
use super::*;
use crate::file::FileEntry;
use crate::{Origin, Place, Settled};

const NAMES: [&str; 3] = ["host", "ts", "a"];

fn place(index: u64) -> Place {
    Place { index, mark: mark(index), state: Bytes::from(format!("state {index}")) }
}

/// Cuts a fixture's partition, whose rows are all in files; the right half comes to lie below `root`.
pub(super) async fn split(
    fixture: &Fixture,
    root: &Path,
    at: &Bound,
    index: u64,
) -> Result<(), EngineError> {
    let config = fixture.partition.config();
    let epoch = Epoch(config.epoch.0 + 1);
    let TypedRange { start, end } = config.range.clone();
    let child = PartitionConfig {
        partition: PartitionId(1000 + index),
        epoch,
        range: TypedRange { start: at.clone(), end },
        ..PartitionConfig::clone(&config)
    };
    let origin = Origin { parent: config.partition, index };
    let settled = fixture.partition.settle().await?;
    settled.offspring(root, child, place(index), origin)?.make().await?;
    resize(settled, TypedRange { start, end: at.clone() }, index, epoch).await
}

/// Gives a partition a range, durably.
async fn resize(
    settled: Settled,
    range: TypedRange,
    index: u64,
    epoch: Epoch,
) -> Result<(), EngineError> {
    match settled.resize(place(index), range, epoch)? {
        Some(mut unrecorded) => unrecorded.record().await,
        None => Ok(()),
    }
}

/// Gives a fixture's partition what its right neighbour has; all rows of both are in files.
pub(super) async fn merge(
    fixture: &Fixture,
    right: &Partition,
    index: u64,
) -> Result<(), EngineError> {
    let (left, end) = (&fixture.partition, right.config().range.end.clone());
    assert!(left.is_left_of(right, &end));
    let range = left.widened(&end).unwrap();
    let epoch = Epoch(left.config().epoch.0 + 1);
    left.absorb(place(index), range, epoch, right).await
}

fn child_root() -> Path {
    Path::from("partitions/8")
}

async fn open(fixture: &Fixture, root: Path) -> Result<Arc<Partition>, EngineError> {
    let clock: Arc<dyn Clock> = Arc::<TestClock>::clone(&fixture.clock);
    Partition::open(Arc::clone(&fixture.store), root, fixture.options.clone(), clock).await
}

fn rows(host: &str, numbers: Range<i64>) -> Vec<Row> {
    numbers.map(|n| vec![text(host), ts(n), int(n)]).collect()
}

fn at(values: &[Value]) -> Bound {
    Bound { placement: None, key: values.to_vec() }
}

async fn read(partition: &Partition) -> Vec<Row> {
    let scan = Scan {
        columns: columns(&partition.config().schema, &NAMES),
        domains: Domains::default(),
        limit: None,
        parallelism: 2,
        range: None,
        newest_only: false,
        probes: Vec::new(),
        first_by_time: None,
        order: None,
        uncollected: false,
    };
    collect(partition, scan).await.unwrap().rows
}

#[tokio::test]
async fn both_halves_share_a_file_that_the_cut_goes_through_until_compaction_writes_it_again() {
    let mut fixture = Fixture::series(last_row()).await;
    fixture.put(&NAMES, &rows("a", 0..20));
    fixture.flush().await.unwrap();
    fixture.put(&NAMES, &rows("h", 0..100));
    fixture.flush().await.unwrap();
    fixture.put(&NAMES, &rows("x", 0..20));
    fixture.flush().await.unwrap();
    split(&fixture, &child_root(), &at(&[text("h"), ts(30)]), 4).await.unwrap();
    let child = open(&fixture, child_root()).await.unwrap();
    assert_eq!(child.origin(), Some(Origin { parent: PartitionId(7), index: 4 }));
    let left = [rows("a", 0..20), rows("h", 0..30)].concat();
    let right = [rows("h", 30..100), rows("x", 0..20)].concat();
    assert_eq!((read(&fixture.partition).await, read(&child).await), (left.clone(), right.clone()));
    // What only one half has a share in is not in the other one's files.
    assert_eq!((fixture.partition.stats().files, child.stats().files), (2, 2));
    let total = fixture.partition.stats().rows + child.stats().rows;
    assert!((120..=160).contains(&total), "sizes are about what each half has: {total}");
    for partition in [&fixture.partition, &child] {
        // Unneeded files are deleted; none is rewritten, as another split may follow.
        partition.compact(false).await.unwrap();
        assert!(!partition.wants_compaction());
        assert!(partition.version().files.values().any(FileEntry::is_clipped));
    }
    fixture.clock.0.store(10_000, Ordering::Relaxed);
    for partition in [&fixture.partition, &child] {
        assert!(partition.wants_compaction());
        while partition.compact(false).await.unwrap() {}
        assert!(!partition.wants_compaction());
    }
    assert_eq!((read(&fixture.partition).await, read(&child).await), (left.clone(), right));
    assert_eq!((fixture.partition.stats().rows, child.stats().rows), (50, 90));
    assert_eq!(files(&fixture, "files").len(), 2, "the parent's copy is gone");
    fixture.reopen().await;
    assert_eq!(read(&fixture.partition).await, left);
    assert_eq!(fixture.partition.config().epoch, Epoch(2));
    assert_eq!(fixture.partition.durable_mark(), Some((4, mark(4))));
}

#[tokio::test]
async fn edges_are_keys_that_files_hold() {
    let mut fixture = Fixture::series(last_row()).await;
    let codec = fixture.partition.codec();
    let key = |n: i64| codec.encode_bound(&at(&[text("h"), ts(n)])).unwrap();
    // One row group: the first key of each would be known, too.
    fixture.put(&NAMES, &rows("h", 0..10));
    assert_eq!(fixture.partition.edges(), None, "nothing is in a file yet");
    fixture.flush().await.unwrap();
    assert_eq!(fixture.partition.edges(), Some((key(0), key(9))));
    split(&fixture, &child_root(), &at(&[text("h"), ts(5)]), 2).await.unwrap();
    let child = open(&fixture, child_root()).await.unwrap();
    // Whether the keys at the cut exist is unknown.
    assert_eq!(fixture.partition.edges(), Some((key(0), key(0))));
    assert_eq!(child.edges(), Some((key(9), key(9))));
}

#[tokio::test]
async fn an_open_scan_sees_all_rows_of_before_the_cut_and_says_which_epoch_it_is_of() {
    let mut fixture = Fixture::series(last_row()).await;
    fixture.put(&NAMES, &rows("h", 0..50));
    fixture.flush().await.unwrap();
    let scanned = fixture.partition.scan(fixture.scan(&NAMES, &[])).unwrap();
    assert_eq!(scanned.epoch, Epoch(1));
    split(&fixture, &child_root(), &at(&[text("h"), ts(30)]), 2).await.unwrap();
    while fixture.partition.compact(true).await.unwrap() {}
    let mut count = 0;
    for stream in scanned.streams {
        let batches: Vec<RecordBatch> = stream.try_collect().await.unwrap();
        count += batches.iter().map(RecordBatch::num_rows).sum::<usize>();
    }
    assert_eq!(count, 50);
    assert_eq!(fixture.partition.scan(fixture.scan(&NAMES, &[])).unwrap().epoch, Epoch(2));
    assert_eq!(read(&fixture.partition).await, rows("h", 0..30));
}

#[tokio::test]
async fn the_newest_row_of_a_series_that_was_cut_is_found_in_each_half() {
    for compacted in [false, true] {
        let mut fixture = Fixture::series(last_row()).await;
        for part in 0..3 {
            fixture.put(&NAMES, &rows("h", part * 20..part * 20 + 30));
            fixture.flush().await.unwrap();
        }
        if compacted {
            fixture.partition.compact(true).await.unwrap();
        }
        // The ends of the whole files are known when the cut comes.
        let mut scan = fixture.scan(&NAMES, &[]);
        scan.newest_only = true;
        let newest = collect(&fixture.partition, scan.clone()).await.unwrap();
        assert_eq!(newest.rows, rows("h", 69..70));
        split(&fixture, &child_root(), &at(&[text("h"), ts(45)]), 4).await.unwrap();
        let child = open(&fixture, child_root()).await.unwrap();
        let newest = collect(&fixture.partition, scan.clone()).await.unwrap();
        assert_eq!(newest.rows, rows("h", 44..45));
        assert_eq!(collect(&child, scan).await.unwrap().rows, rows("h", 69..70));
    }
}

#[tokio::test]
async fn a_cut_within_a_series_survives_a_column_that_is_added_to_the_key() {
    let mut fixture = Fixture::series(last_row()).await;
    fixture.put(&NAMES, &rows("h", 0..50));
    fixture.flush().await.unwrap();
    split(&fixture, &child_root(), &at(&[text("h"), ts(30)]), 2).await.unwrap();
    let mut schema = TableSchema::clone(&fixture.partition.config().schema);
    schema.columns.push(column(5, "extra", ColumnType::String, Semantic::Tag));
    schema.key.insert(1, ColumnId(5));
    schema.next_column = ColumnId(6);
    schema.version = SchemaVersion(2);
    fixture.index = 3;
    fixture.partition.apply_schema(3, mark(3), Arc::new(schema)).unwrap();
    assert_eq!(read(&fixture.partition).await, rows("h", 0..30));
    fixture.put(&NAMES, &rows("h", 29..30));
    fixture.flush().await.unwrap();
    fixture.reopen().await;
    assert_eq!(read(&fixture.partition).await, rows("h", 0..30));
}

#[tokio::test]
async fn what_was_cut_off_does_not_come_back_twice_when_the_halves_become_one_again() {
    for (compact_left, compact_right) in [(false, false), (true, false), (false, true)] {
        // Rows with one key are kept here, so that each that comes twice shows.
        let mut fixture = Fixture::series(append()).await;
        fixture.put(&NAMES, &rows("h", 0..50));
        fixture.flush().await.unwrap();
        split(&fixture, &child_root(), &at(&[text("h"), ts(30)]), 2).await.unwrap();
        let child = open(&fixture, child_root()).await.unwrap();
        child.apply_truncate(3, mark(3)).unwrap();
        let batch = batch(&child.config(), &NAMES, &rows("h", 40..45));
        child.apply(4, mark(4), &[(WriteKind::Put, batch)]).unwrap();
        child.seal(|| Bytes::from_static(b"child"));
        child.flush().await.unwrap();
        fixture.index = 2;
        fixture.put(&NAMES, &rows("h", 20..25));
        fixture.flush().await.unwrap();
        for (partition, compact) in [(&fixture.partition, compact_left), (&child, compact_right)] {
            if compact {
                partition.compact(true).await.unwrap();
            }
        }
        merge(&fixture, &child, 4).await.unwrap();
        let mut expected = [rows("h", 0..30), rows("h", 20..25), rows("h", 40..45)].concat();
        expected.sort();
        assert_eq!(read(&fixture.partition).await, expected);
        assert_eq!(fixture.partition.config().range, TypedRange::default());
        assert_eq!(fixture.partition.config().epoch, Epoch(3));
        drop(child);
        fs::remove_dir_all(fixture.directory.path().join("partitions/8")).unwrap();
        fixture.reopen().await;
        assert_eq!(read(&fixture.partition).await, expected);
        assert_eq!(fixture.partition.durable_mark(), Some((4, mark(4))));
        // A column that comes into the key later does not move the bounds either.
        let mut schema = TableSchema::clone(&fixture.partition.config().schema);
        schema.columns.push(column(5, "extra", ColumnType::String, Semantic::Tag));
        schema.key.insert(1, ColumnId(5));
        schema.next_column = ColumnId(6);
        schema.version = SchemaVersion(2);
        fixture.partition.apply_schema(5, mark(5), Arc::new(schema)).unwrap();
        assert_eq!(read(&fixture.partition).await, expected);
        fixture.partition.compact(true).await.unwrap();
        assert_eq!(read(&fixture.partition).await, expected);
        assert!(!fixture.partition.wants_compaction());
        fixture.partition.verify().await.unwrap();
    }
}

#[tokio::test]
async fn only_the_neighbour_on_the_right_is_taken_over_and_only_with_all_its_rows_in_files() {
    let mut fixture = Fixture::series(last_row()).await;
    fixture.put(&NAMES, &rows("h", 0..50));
    fixture.flush().await.unwrap();
    split(&fixture, &child_root(), &at(&[text("h"), ts(30)]), 2).await.unwrap();
    let child = open(&fixture, child_root()).await.unwrap();
    assert_eq!(fixture.partition.widened(&at(&[text("h"), ts(20)])), None);
    assert_eq!(fixture.partition.widened(&at(&[text("h"), ts(30)])), None);
    assert_eq!(child.widened(&Bound::default()), None, "it goes to the end already");
    assert!(!child.is_left_of(&fixture.partition, &at(&[text("h"), ts(30)])));
    assert!(!fixture.partition.is_left_of(&child, &at(&[text("x")])));
    let batch = batch(&child.config(), &NAMES, &rows("h", 40..45));
    child.apply(3, mark(3), &[(WriteKind::Put, batch)]).unwrap();
    let refused = merge(&fixture, &child, 3).await;
    assert!(matches!(refused, Err(EngineError::Internal(_))), "{refused:?}");
    assert_eq!(read(&fixture.partition).await, rows("h", 0..30));
    child.seal(|| Bytes::from_static(b"child"));
    child.flush().await.unwrap();
    merge(&fixture, &child, 3).await.unwrap();
    assert_eq!(read(&fixture.partition).await, rows("h", 0..50));
}

#[tokio::test]
async fn a_crash_at_any_step_of_a_merge_leaves_one_range_or_the_other() {
    let mut completed = false;
    for budget in 0.. {
        let (mut fixture, store) = failing().await;
        for part in 0..3 {
            fixture.put(&NAMES, &rows("h", part * 10..part * 10 + 15));
            fixture.flush().await.unwrap();
        }
        split(&fixture, &child_root(), &at(&[text("h"), ts(17)]), 4).await.unwrap();
        let child = open(&fixture, child_root()).await.unwrap();
        store.budget.store(budget, Ordering::Relaxed);
        completed = merge(&fixture, &child, 5).await.is_ok();
        store.budget.store(usize::MAX, Ordering::Relaxed);
        fixture.reopen().await;
        let done = fixture.partition.durable_mark().unwrap().0 == 5;
        assert!(done || !completed, "what was answered is durable");
        let end = if done { 35 } else { 17 };
        assert_eq!(read(&fixture.partition).await, rows("h", 0..end));
        let named = fixture.partition.version().files.len();
        assert_eq!(files(&fixture, "files").len(), named, "no orphans after open");
        if !done {
            merge(&fixture, &child, 5).await.unwrap();
            assert_eq!(read(&fixture.partition).await, rows("h", 0..35));
        }
        fixture.partition.verify().await.unwrap();
        if completed {
            break;
        }
    }
    assert!(completed);
}

#[tokio::test]
async fn only_a_key_inside_of_the_range_makes_halves() {
    let mut fixture = Fixture::series(last_row()).await;
    assert!(fixture.partition.halves(&at(&[])).is_none());
    let (left, right) = fixture.partition.halves(&at(&[text("h")])).unwrap();
    assert_eq!((&left.end, &right.start), (&at(&[text("h")]), &at(&[text("h")])));
    assert_eq!((left.start, right.end), (Bound::default(), Bound::default()));
    fixture.put(&NAMES, &rows("h", 0..5));
    fixture.flush().await.unwrap();
    split(&fixture, &child_root(), &at(&[text("h"), ts(3)]), 2).await.unwrap();
    let child = open(&fixture, child_root()).await.unwrap();
    for (left, right, cut) in [
        (true, false, at(&[text("h"), ts(2)])),
        (true, false, at(&[text("h")])),
        (false, false, at(&[text("h"), ts(3)])),
        (false, true, at(&[text("h"), ts(4)])),
        (false, false, at(&[int(7)])),
        (false, false, at(&[text("h"), ts(4), int(7)])),
        (false, false, Bound { placement: Some(1), key: vec![text("h")] }),
    ] {
        let found = (fixture.partition.halves(&cut).is_some(), child.halves(&cut).is_some());
        assert_eq!(found, (left, right), "{cut}");
    }
}

#[tokio::test]
async fn rows_in_memory_are_in_the_way_of_a_cut() {
    let mut fixture = Fixture::series(last_row()).await;
    fixture.put(&NAMES, &rows("h", 0..50));
    let refused = split(&fixture, &child_root(), &at(&[text("h")]), 2).await;
    assert!(matches!(refused, Err(EngineError::Internal(_))), "{refused:?}");
    assert_eq!(Partition::origin_at(&fixture.store, &child_root()).await.unwrap(), None);
}

#[tokio::test]
async fn a_crash_at_any_step_of_a_split_leaves_one_partition_or_two() {
    let mut completed = false;
    for budget in 0.. {
        let (mut fixture, store) = failing().await;
        for part in 0..3 {
            fixture.put(&NAMES, &rows("h", part * 10..part * 10 + 15));
            fixture.flush().await.unwrap();
        }
        let cut = at(&[text("h"), ts(17)]);
        store.budget.store(budget, Ordering::Relaxed);
        completed = split(&fixture, &child_root(), &cut, 4).await.is_ok();
        fixture.reopen().await;
        let whole = Partition::origin_at(&fixture.store, &child_root()).await.unwrap().is_some();
        let done = fixture.partition.durable_mark().unwrap().0 == 4;
        assert!(whole || !done, "the parent gives nothing up before the child has it");
        assert!(done || !completed, "what was answered is durable");
        if !done {
            // As a start would do it: what is not whole is made anew, the rest is done again.
            assert_eq!(read(&fixture.partition).await, rows("h", 0..35));
            if !whole {
                fs::remove_dir_all(fixture.directory.path().join("partitions/8")).ok();
                split(&fixture, &child_root(), &cut, 4).await.unwrap();
            } else {
                let again = split(&fixture, &child_root(), &cut, 4).await;
                assert!(matches!(again, Err(EngineError::AlreadyExists(_))), "{again:?}");
                let range = TypedRange { start: Bound::default(), end: cut.clone() };
                let settled = fixture.partition.settle().await.unwrap();
                resize(settled, range, 4, Epoch(2)).await.unwrap();
            }
        }
        assert_eq!(read(&fixture.partition).await, rows("h", 0..17));
        let child = open(&fixture, child_root()).await.unwrap();
        assert_eq!(read(&child).await, rows("h", 17..35));
        child.verify().await.unwrap();
        fixture.partition.verify().await.unwrap();
        if completed {
            break;
        }
    }
    assert!(completed);
}

#[tokio::test]
async fn the_middle_parts_no_rows_that_are_to_stay_together() {
    let mut options = last_row();
    options.partitioning.keep_together = 1;
    let mut fixture = Fixture::series(options).await;
    fixture.put(&NAMES, &rows("k", 0..200));
    assert_eq!(fixture.partition.middle().await.unwrap(), None, "one host stays together");
    fixture.put(&NAMES, &rows("h", 0..1));
    assert_eq!(fixture.partition.middle().await.unwrap(), Some(at(&[text("k")])));
    fixture.put(&NAMES, &rows("m", 0..9));
    assert_eq!(fixture.partition.middle().await.unwrap(), Some(at(&[text("m")])));
}

#[tokio::test]
async fn the_middle_is_behind_as_few_columns_as_separate_well() {
    let mut fixture = Fixture::series(last_row()).await;
    assert_eq!(fixture.partition.middle().await.unwrap(), None);
    fixture.put(&NAMES, &rows("h", 0..1));
    assert_eq!(fixture.partition.middle().await.unwrap(), None, "one row cannot be parted");
    // Of two hosts the second one begins the right half, whether in memory or in files.
    fixture.put(&NAMES, &rows("k", 0..2));
    assert_eq!(fixture.partition.middle().await.unwrap(), Some(at(&[text("k")])));
    fixture.flush().await.unwrap();
    assert_eq!(fixture.partition.middle().await.unwrap(), Some(at(&[text("k")])));
    // One that has nearly everything is cut within.
    fixture.put(&NAMES, &rows("k", 2..200));
    let Some(middle) = fixture.partition.middle().await.unwrap() else { panic!("no middle") };
    let [host, Value::Timestamp(tick)] = &middle.key[..] else { panic!("{middle}") };
    assert_eq!(*host, text("k"));
    assert!((60..140).contains(tick), "{middle}");
    // Where there are many row groups, their first keys tell.
    fixture.flush().await.unwrap();
    fixture.put(&NAMES, &rows("m", 0..2000));
    fixture.put(&NAMES, &rows("n", 0..2000));
    fixture.flush().await.unwrap();
    assert_eq!(fixture.partition.middle().await.unwrap(), Some(at(&[text("n")])));
    // In a half, its own rows count.
    split(&fixture, &child_root(), &at(&[text("m"), ts(1000)]), 7).await.unwrap();
    let child = open(&fixture, child_root()).await.unwrap();
    assert_eq!(child.middle().await.unwrap(), Some(at(&[text("n")])));
    let Some(middle) = fixture.partition.middle().await.unwrap() else { panic!("no middle") };
    let [host, Value::Timestamp(tick)] = &middle.key[..] else { panic!("{middle}") };
    assert_eq!(*host, text("m"));
    assert!((300..500).contains(tick), "{middle}");
}
