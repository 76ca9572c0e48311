//! Behaviours of a partition, one test each.

use std::sync::atomic::Ordering;

use futures::TryStreamExt;
use partita_proto::rule::Comparison;
use partita_proto::schema::TableSchema;
use partita_proto::service::{FirstByTime, KeyOrder};

use super::*;

const ALL: [&str; 4] = ["host", "ts", "a", "b"];

fn row(host: &str, millis: i64, a: i64) -> Row {
    vec![text(host), ts(millis), int(a)]
}

fn at_least(value: Value) -> Domain {
    Domain::compare(Comparison::GreaterOrEqual, value)
}

/// Rows of one host, one a minute.
fn minutes(host: &str, count: i64) -> Vec<Row> {
    (0..count).map(|minute| row(host, minute * 60_000, minute)).collect()
}

#[tokio::test]
async fn two_half_written_rows_in_two_files_read_as_one_before_and_after_compaction() {
    let expected = [
        (last_row(), vec![text("host1"), ts(0), Value::Null, text("ten")]),
        (last_non_null(), vec![text("host1"), ts(0), int(0), text("ten")]),
    ];
    for (options, row) in expected {
        let mut fixture = Fixture::series(options).await;
        fixture.put(&["host", "ts", "a"], &[vec![text("host1"), ts(0), int(0)]]);
        fixture.flush().await.unwrap();
        fixture.put(&["host", "ts", "b"], &[vec![text("host1"), ts(0), text("ten")]]);
        fixture.flush().await.unwrap();
        assert_eq!(fixture.partition.stats().rows, 2);
        assert_eq!(fixture.read(&ALL).await, std::slice::from_ref(&row));
        assert!(fixture.partition.compact(true).await.unwrap());
        assert_eq!(fixture.partition.stats().rows, 1);
        assert_eq!(fixture.read(&ALL).await, [row]);
    }
}

#[tokio::test]
async fn a_field_predicate_does_not_bring_an_overwritten_row_back() {
    let mut fixture = Fixture::series(last_row()).await;
    fixture.put(&ALL[..3], &[row("h", 0, 5)]);
    fixture.flush().await.unwrap();
    fixture.put(&ALL[..3], &[row("h", 0, 1)]);
    let found = fixture.read_where(&["a"], &[("a", at_least(int(3)))]).await.unwrap();
    assert!(found.is_empty(), "{found:?}");
    fixture.flush().await.unwrap();
    let found = fixture.read_where(&["a"], &[("a", at_least(int(3)))]).await.unwrap();
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test]
async fn a_deleted_row_stays_deleted_through_compaction_and_restart() {
    let mut fixture = Fixture::series(last_row()).await;
    fixture.put(&ALL[..3], &[row("h", 0, 1), row("h", 1, 2)]);
    fixture.flush().await.unwrap();
    fixture.write(WriteKind::Delete, &["host", "ts"], &[vec![text("h"), ts(0)]]);
    let left = [vec![ts(1)]];
    assert_eq!(fixture.read(&["ts"]).await, left);
    fixture.flush().await.unwrap();
    assert_eq!(fixture.read(&["ts"]).await, left);
    fixture.reopen().await;
    assert_eq!(fixture.read(&["ts"]).await, left);
    fixture.partition.compact(true).await.unwrap();
    assert_eq!(fixture.partition.stats().rows, 1, "neither the row nor its tombstone is left");
    fixture.reopen().await;
    assert_eq!(fixture.read(&["ts"]).await, left);
}

#[tokio::test]
async fn deleting_everything_leaves_no_file() {
    let mut fixture = Fixture::series(last_non_null()).await;
    fixture.put(&ALL[..3], &[row("h", 0, 1)]);
    fixture.flush().await.unwrap();
    fixture.write(WriteKind::Delete, &["host", "ts"], &[vec![text("h"), ts(0)]]);
    fixture.flush().await.unwrap();
    fixture.partition.compact(true).await.unwrap();
    assert_eq!(fixture.partition.stats().files, 0);
    fixture.reopen().await;
    assert!(fixture.read(&ALL).await.is_empty());
}

#[tokio::test]
async fn an_append_table_keeps_equal_rows_and_refuses_deletes() {
    let mut fixture = Fixture::series(append()).await;
    for _ in 0..3 {
        fixture.put(&ALL[..3], &[row("h", 0, 1), row("h", 0, 1)]);
        fixture.flush().await.unwrap();
    }
    assert_eq!(fixture.read(&["a"]).await.len(), 6);
    fixture.partition.compact(true).await.unwrap();
    assert_eq!(fixture.read(&["a"]).await.len(), 6);
    let keys = fixture.rows(&["host", "ts"], &[vec![text("h"), ts(0)]]);
    let refused = fixture.apply(&[(WriteKind::Delete, keys)]).unwrap_err();
    assert_eq!(refused.to_string(), "DELETE from an append-mode table is not supported");
}

#[tokio::test]
async fn series_are_counted_from_footers_and_memtables() {
    async fn counts(fixture: &Fixture) -> (u64, u64, u64) {
        let figures = fixture.partition.series_sketch().await.unwrap().cardinality();
        (figures.tag_sets, figures.series, figures.unsketched)
    }
    let mut fixture = Fixture::series(last_non_null()).await;
    assert_eq!(counts(&fixture).await, (0, 0, 0));
    fixture.put(&ALL[..3], &[row("g", 0, 1), row("h", 0, 1)]);
    assert_eq!(counts(&fixture).await, (2, 2, 0));
    fixture.flush().await.unwrap();
    assert_eq!(counts(&fixture).await, (2, 2, 0));
    fixture.put(&["host", "ts", "b"], &[vec![text("h"), ts(1), text("x")]]);
    assert_eq!(counts(&fixture).await, (2, 3, 0), "the same series, and another field");
    fixture.flush().await.unwrap();
    fixture.reopen().await;
    assert_eq!(counts(&fixture).await, (2, 3, 0));
    fixture.write(WriteKind::Delete, &["host", "ts"], &[vec![text("g"), ts(0)]]);
    fixture.flush().await.unwrap();
    fixture.partition.compact(true).await.unwrap();
    assert_eq!(counts(&fixture).await, (1, 2, 0), "compaction forgets what was deleted");
}

#[tokio::test]
async fn expired_rows_are_hidden_at_once_and_their_files_dropped_later() {
    let mut options = last_row();
    options.ttl = Some(std::time::Duration::from_secs(3600));
    let mut fixture = Fixture::series(options).await;
    let hour = 3_600_000;
    fixture.clock.0.store(10 * hour, Ordering::Relaxed);
    fixture.put(&ALL[..3], &[row("h", 9 * hour - 1, 1), row("h", 9 * hour, 2)]);
    assert_eq!(fixture.read(&["a"]).await, [vec![int(2)]]);
    fixture.flush().await.unwrap();
    assert_eq!(fixture.read(&["a"]).await, [vec![int(2)]]);
    assert_eq!(fixture.partition.stats().files, 2, "one in each window");
    assert!(fixture.partition.expire().await.unwrap());
    assert!(!fixture.partition.expire().await.unwrap());
    assert_eq!(fixture.partition.stats().files, 1);
    fixture.clock.0.store(10 * hour + 1, Ordering::Relaxed);
    assert!(fixture.read(&["a"]).await.is_empty(), "hidden before anything is dropped");
    assert!(fixture.partition.expire().await.unwrap());
    assert_eq!(fixture.partition.stats().files, 0);
    fixture.reopen().await;
    assert_eq!(fixture.partition.stats().files, 0);
}

#[tokio::test]
async fn files_row_groups_and_pages_that_cannot_match_are_not_read() {
    let mut fixture = Fixture::series(last_row()).await;
    // Two hosts over five hours: five windows, so five files of 120 rows.
    let mut rows = minutes("h1", 300);
    rows.extend(minutes("h2", 300));
    fixture.put(&ALL[..3], &rows);
    fixture.flush().await.unwrap();
    assert_eq!(fixture.partition.stats().files, 5);
    let hour = Domain::points([ts(60 * 60_000)]);
    let scan = fixture.scan(&["a"], &[("ts", hour), ("host", Domain::point(text("h2")))]);
    let found = collect(&fixture.partition, scan).await.unwrap();
    assert_eq!(found.rows, [vec![int(60)]]);
    let stats = &found.stats;
    assert_eq!(stats.files_pruned.load(Ordering::Relaxed), 4);
    assert_eq!(stats.files_read.load(Ordering::Relaxed), 1);
    assert!(stats.row_groups_pruned.load(Ordering::Relaxed) >= 1);
    let scanned = stats.rows_scanned.load(Ordering::Relaxed);
    assert!((1..=4).contains(&scanned), "rows of one page before they are filtered: {scanned}");
    let scan = fixture.scan(&["a"], &[("a", at_least(int(299)))]);
    let found = collect(&fixture.partition, scan).await.unwrap();
    assert_eq!(found.rows.len(), 2);
    assert!(found.stats.rows_scanned.load(Ordering::Relaxed) <= 16, "pages of four rows");
}

#[tokio::test]
async fn a_scan_reads_only_the_bytes_of_its_columns() {
    let mut schema = series_schema(last_row());
    for id in 10..60 {
        schema.columns.push(column(id, &format!("f{id}"), ColumnType::Float64, Semantic::Field));
    }
    let mut fixture = Fixture::new(config(schema, Placement::Range)).await;
    let fields: Vec<String> = (10..60).map(|id| format!("f{id}")).collect();
    let mut names = vec!["host", "ts"];
    names.extend(fields.iter().map(String::as_str));
    let rows: Vec<Row> = (0..200)
        .map(|minute| {
            let mut row = vec![text("h"), ts(minute * 1000)];
            row.extend(fields.iter().zip(1_u8..).map(|(_, n)| {
                Value::Float(f64::from(n) * 0.1 + f64::from(u32::try_from(minute).unwrap()).sqrt())
            }));
            row
        })
        .collect();
    fixture.put(&names, &rows);
    fixture.flush().await.unwrap();
    let bytes = async |names: &[&str]| {
        let found = collect(&fixture.partition, fixture.scan(names, &[])).await.unwrap();
        assert_eq!(found.rows.len(), 200);
        found.stats.bytes_scanned.load(Ordering::Relaxed)
    };
    let (one, all, none) = (bytes(&["f10"]).await, bytes(&names).await, bytes(&[]).await);
    assert!(one * 10 < all, "{one} of {all} bytes");
    assert_eq!(none, 0, "counting rows reads nothing but the footer");
}

#[tokio::test]
async fn a_scan_sees_the_moment_it_began_at() {
    let mut fixture = Fixture::series(last_row()).await;
    fixture.put(&ALL[..3], &minutes("h", 50));
    fixture.flush().await.unwrap();
    fixture.put(&ALL[..3], &[row("h", 0, 1000)]);
    let scanned = fixture.partition.scan(fixture.scan(&["a"], &[])).unwrap();
    fixture.put(&ALL[..3], &[row("h", 0, 2000)]);
    fixture.flush().await.unwrap();
    fixture.index += 1;
    fixture.partition.apply_truncate(fixture.index, mark(fixture.index)).unwrap();
    fixture.flush().await.unwrap();
    fixture.partition.compact(true).await.unwrap();
    assert!(fixture.read(&ALL).await.is_empty());
    let mut found = Vec::new();
    for stream in scanned.streams {
        let batches: Vec<_> = stream.try_collect().await.unwrap();
        found.extend(batches.iter().flat_map(rows_of));
    }
    assert_eq!(found.len(), 50);
    assert!(found.contains(&vec![int(1000)]));
    assert_eq!(fixture.partition.stats().files, 0);
    fixture.partition.compact(false).await.unwrap();
    let files = std::fs::read_dir(fixture.directory.path().join("partitions/7/files")).unwrap();
    assert_eq!(files.count(), 0, "files go when their last reader has gone");
}

#[tokio::test]
async fn a_range_restricts_a_scan_exactly() {
    for flushed in [false, true] {
        let mut fixture = Fixture::series(last_row()).await;
        fixture.put(&ALL[..3], &minutes("h", 50));
        fixture.put(&ALL[..3], &[row("h", 0, 77)]);
        if flushed {
            fixture.flush().await.unwrap();
            fixture.put(&ALL[..3], &[row("h", 60_000, 78)]);
        }
        let config = fixture.partition.config();
        let codec = partita_proto::key::KeyCodec::new(&config.schema, &config.placement).unwrap();
        let bound = |millis| partita_proto::range::Bound {
            placement: None,
            key: vec![text("h"), ts(millis)],
        };
        let range = TypedRange { start: bound(60_000), end: bound(180_000) };
        let mut scan = fixture.scan(&["ts"], &[]);
        scan.range = Some(codec.range(&range).unwrap());
        let found = collect(&fixture.partition, scan).await.unwrap();
        assert_eq!(found.rows, [[ts(60_000)], [ts(120_000)]]);
    }
}

#[tokio::test]
async fn rows_that_do_not_fit_are_refused_and_change_nothing() {
    let mut config = config(series_schema(last_row()), Placement::Range);
    config.range.end.key = vec![text("m")];
    let mut fixture = Fixture::new(config).await;
    let good = fixture.rows(&ALL[..3], &[row("h", 0, 1)]);
    let outside = fixture.rows(&ALL[..3], &[row("z", 0, 1)]);
    let timeless = fixture.rows(&["host", "a"], &[vec![text("h"), int(1)]]);
    let schema = Schema::new(vec![
        Field::new("host_1", arrow::datatypes::DataType::Int32, true),
        Field::new("ts_2", MILLIS.arrow(), true),
    ]);
    let host = Arc::new(arrow::array::Int32Array::from(vec![1]));
    let mistyped =
        RecordBatch::try_new(Arc::new(schema), vec![host, Arc::clone(good.column(1))]).unwrap();
    for (bad, says) in
        [(outside, "outside"), (timeless, "time index"), (mistyped, "column \"host_1\"")]
    {
        let put = WriteKind::Put;
        let error = fixture.partition.check(put, &bad).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        let error = fixture.apply(&[(put, good.clone()), (put, bad)]).unwrap_err();
        assert!(matches!(error, EngineError::InvalidInput(_)));
    }
    assert!(fixture.read(&ALL).await.is_empty());
}

#[tokio::test]
async fn an_entry_takes_effect_once() {
    let mut fixture = Fixture::series(append()).await;
    fixture.put(&ALL[..3], &[row("h", 0, 1)]);
    let rows = fixture.rows(&ALL[..3], &[row("h", 0, 1)]);
    fixture.partition.apply(1, mark(1), &[(WriteKind::Put, rows)]).unwrap();
    assert_eq!(fixture.read(&["a"]).await.len(), 1);
    assert_eq!(fixture.partition.applied(), 1);
}

#[tokio::test]
async fn entries_without_rows_move_the_durable_mark() {
    let mut fixture = Fixture::series(last_row()).await;
    fixture.apply(&[]).unwrap();
    assert!(!fixture.partition.wants_flush());
    assert!(fixture.flush().await.unwrap());
    assert!(!fixture.flush().await.unwrap());
    assert_eq!(fixture.partition.durable_mark(), Some((1, mark(1))));
    fixture.reopen().await;
    assert_eq!(fixture.partition.durable_mark(), Some((1, mark(1))));
    assert_eq!(fixture.partition.state(), "state 1");
}

#[tokio::test]
async fn rows_that_are_written_over_and_over_stay_in_few_buffers() {
    use arrow::array::AsArray;

    // A long text in each of many small writes, some keys more than once.
    let mut fixture = Fixture::series(last_row()).await;
    let mut random = 1_i64;
    for write in 0..6_000_i64 {
        random = random * 75 % 65_537;
        let tick = if write % 20 == 19 { random % write } else { write };
        let row =
            [text("a host"), ts(tick), int(write), text(&format!("a text of some length {write}"))];
        fixture.put(&["host", "ts", "a", "b"], &[row.to_vec()]);
        let version = fixture.partition.version();
        for run in &version.active.runs {
            let rows = run.rows();
            let texts = run.sorted.batch.columns().iter().filter_map(|c| c.as_string_view_opt());
            let buffers = texts.map(|texts| texts.data_buffers().len()).max().unwrap_or(0);
            assert!(buffers <= 40, "write {write}: {rows} rows in {buffers} buffers");
        }
    }
    let rows = fixture.read(&["host", "ts"]).await.len();
    assert!((5_700..6_000).contains(&rows), "{rows} rows");
}

#[tokio::test]
async fn a_memtable_wants_to_be_flushed_when_it_is_large_or_old() {
    let mut fixture = Fixture::series(last_row()).await;
    fixture.put(&ALL[..3], &[row("h", 0, 1)]);
    assert!(!fixture.partition.wants_flush());
    fixture.clock.0.store(600_000, Ordering::Relaxed);
    assert!(fixture.partition.wants_flush());
    fixture.flush().await.unwrap();
    assert!(!fixture.partition.wants_flush());
    fixture.options.memtable_bytes_max = 100;
    fixture.reopen().await;
    fixture.index = 1;
    fixture.put(&ALL[..3], &minutes("h", 20));
    assert!(fixture.partition.wants_seal() && fixture.partition.wants_flush());
}

#[tokio::test]
async fn many_single_row_inserts_are_cheap_to_hold_and_to_read() {
    let mut fixture = Fixture::series(last_row()).await;
    for minute in 0..2000 {
        let long = format!("some text of more than twelve bytes, number {}", minute % 1000);
        let key = vec![text("h"), ts(minute % 1000), text(&long)];
        fixture.put(&["host", "ts", "b"], &[key]);
    }
    let stats = fixture.partition.stats();
    assert!(stats.memtable_bytes < 600 * 1000, "{} bytes", stats.memtable_bytes);
    assert!(fixture.partition.version().active.runs.len() < 40);
    assert_eq!(fixture.read(&ALL).await.len(), 1000);
}

#[tokio::test]
async fn schema_changes_keep_rows_and_late_writes_of_dropped_columns_are_taken() {
    let mut fixture = Fixture::series(last_row()).await;
    fixture.put(&ALL, &[vec![text("h"), ts(0), int(1), text("x")]]);
    fixture.flush().await.unwrap();
    fixture.put(&ALL, &[vec![text("h"), ts(1), int(2), text("y")]]);
    let late = fixture.rows(&ALL, &[vec![text("h"), ts(2), int(3), text("z")]]);
    let mut schema = TableSchema::clone(&fixture.partition.config().schema);
    schema.version = SchemaVersion(2);
    schema.columns.retain(|column| column.name != "b");
    schema.columns.push(column(5, "b", ColumnType::String, Semantic::Field));
    let schema = Arc::new(schema);
    fixture.index += 1;
    let index = fixture.index;
    fixture.partition.apply_schema(index, mark(index), Arc::clone(&schema)).unwrap();
    fixture.apply(&[(WriteKind::Put, late)]).unwrap();
    let expected: Vec<Row> =
        (0..3).map(|n| vec![text("h"), ts(n), int(n + 1), Value::Null]).collect();
    assert_eq!(
        fixture.read(&ALL).await,
        expected,
        "the new column does not show the old one's values"
    );
    fixture.flush().await.unwrap();
    fixture.reopen().await;
    assert_eq!(fixture.partition.config().schema, schema);
    assert_eq!(fixture.read(&ALL).await, expected);
    let mut other = TableSchema::clone(&schema);
    other.version = SchemaVersion(3);
    other.options = append();
    let refused = fixture.partition.apply_schema(index + 5, mark(9), Arc::new(other));
    assert!(matches!(refused, Err(EngineError::InvalidInput(_))));
}

#[tokio::test]
async fn a_table_without_a_key_keeps_its_rows_in_the_order_they_came() {
    let mut schema = series_schema(append());
    schema.columns.remove(1);
    schema.columns[0].semantic = Semantic::Field;
    schema.key.clear();
    let mut fixture = Fixture::new(config(schema, Placement::Range)).await;
    for part in 0..4 {
        let rows: Vec<Row> = (0..30).map(|n| vec![int(part * 30 + n)]).collect();
        fixture.put(&["a"], &rows);
        if part != 2 {
            fixture.flush().await.unwrap();
        }
    }
    let expected: Vec<Row> = (0..120).map(|n| vec![int(n)]).collect();
    assert_eq!(fixture.read(&["a"]).await, expected);
    fixture.partition.compact(true).await.unwrap();
    let mut scan = fixture.scan(&["a"], &[]);
    scan.parallelism = 1;
    let found = collect(&fixture.partition, scan).await.unwrap();
    assert_eq!(found.streams, [expected]);
}

#[tokio::test]
async fn the_configuration_survives_and_a_partition_is_made_once() {
    let fixture = Fixture::series(last_row()).await;
    let clock: Arc<dyn Clock> = Arc::<TestClock>::clone(&fixture.clock);
    let again = Partition::create(
        Arc::clone(&fixture.store),
        root(),
        config(series_schema(append()), Placement::Range),
        EngineOptions::default(),
        Arc::clone(&clock),
    );
    assert!(matches!(again.await, Err(EngineError::AlreadyExists(_))));
    let open = |place: &str| {
        Partition::open(
            Arc::clone(&fixture.store),
            Path::from(place),
            EngineOptions::default(),
            Arc::clone(&clock),
        )
    };
    let opened = open("partitions/7").await.unwrap();
    assert_eq!(opened.config(), fixture.partition.config());
    assert!(matches!(open("partitions/8").await, Err(EngineError::NotFound(_))));
}

#[tokio::test]
async fn a_closed_partition_writes_nothing_any_more() {
    let mut fixture = Fixture::series(append()).await;
    fixture.put(&ALL[..3], &[row("a", 1, 1)]);
    fixture.partition.seal(Bytes::new);
    fixture.partition.close().await;
    assert!(matches!(fixture.partition.flush().await, Err(EngineError::Stopped(_))));
    assert!(matches!(fixture.partition.compact(true).await, Err(EngineError::Stopped(_))));
    assert_eq!(fixture.read(&["host"]).await.len(), 1);
}

#[tokio::test]
async fn whoever_reads_a_partition_that_is_removed_does_not_take_its_files_for_damaged() {
    let mut fixture = Fixture::series(append()).await;
    fixture.put(&ALL[..3], &[row("a", 1, 1)]);
    fixture.flush().await.unwrap();
    let remove = || std::fs::remove_dir_all(fixture.directory.path().join("partitions/7/files"));
    let read = || collect(&fixture.partition, fixture.scan(&ALL, &[]));
    fixture.partition.close().await;
    remove().unwrap();
    let refused = read().await.map(|found| found.rows);
    assert!(matches!(refused, Err(partita_proto::Error::Unavailable(_))), "{refused:?}");
}

#[tokio::test]
async fn the_first_rows_by_time_are_found_near_their_end() {
    for options in [last_row(), append()] {
        let mut fixture = Fixture::series(options).await;
        for host in ["a", "b"] {
            fixture.put(&ALL[..3], &minutes(host, 300));
        }
        fixture.flush().await.unwrap();
        for (descending, minute) in [(true, 299), (false, 0)] {
            let first_by_time = Some(FirstByTime { rows: 2, descending });
            let scan = Scan { first_by_time, parallelism: 1, ..fixture.scan(&ALL, &[]) };
            let found = collect(&fixture.partition, scan).await.unwrap();
            for host in ["a", "b"] {
                let first = vec![text(host), ts(minute * 60_000), int(minute), Value::Null];
                assert!(found.rows.contains(&first), "{first:?} in {:?}", found.rows);
            }
            let scanned = found.stats.rows_scanned.load(Ordering::Relaxed);
            assert!(scanned <= 60, "{scanned} of 600 rows were read");
            assert!(found.rows.len() <= 4, "{:?}", found.rows);
        }
        // Rows that a domain on a field excludes do not count.
        let early = [("a", Domain::compare(Comparison::Less, int(3)))];
        let first_by_time = Some(FirstByTime { rows: 2, descending: true });
        let scan = Scan { first_by_time, ..fixture.scan(&ALL, &early) };
        let found = collect(&fixture.partition, scan).await.unwrap().rows;
        assert_eq!(found.iter().filter(|row| row[2] == int(2)).count(), 2, "{found:?}");
    }
}

#[tokio::test]
async fn a_scan_in_key_order_reads_little_beyond_its_limit() {
    for options in [last_row(), append()] {
        let mut fixture = Fixture::series(options).await;
        for host in ["a", "b", "c"] {
            fixture.put(&ALL[..3], &minutes(host, 300));
        }
        fixture.flush().await.unwrap();
        fixture.put(&ALL[..3], &[row("b", 300 * 60_000, 300)]);
        let only_b = [("host", Domain::point(text("b")))];
        for (order, ends) in [(KeyOrder::ASCENDING, ["a", "b"]), (KeyOrder::DESCENDING, ["c", "b"])]
        {
            let ordered = |domains: &[(&str, Domain)], limit| Scan {
                order: Some(order),
                limit,
                ..fixture.scan(&ALL, domains)
            };
            // One series lies in windows that follow each other.
            let found = collect(&fixture.partition, ordered(&only_b, Some(2))).await.unwrap();
            assert_eq!(found.order, Some(order));
            let minutes = if order.descending { [300, 299] } else { [0, 1] };
            let expected = minutes.map(|minute| row("b", minute * 60_000, minute));
            let stream: Vec<Row> = found.streams[0].iter().map(|row| row[..3].to_vec()).collect();
            assert_eq!(stream, expected);
            let scanned = found.stats.rows_scanned.load(Ordering::Relaxed);
            assert!(scanned <= 60, "{scanned} of 901 rows were read");
            // All series: windows are merged.
            let found = collect(&fixture.partition, ordered(&[], None)).await.unwrap();
            let stream = &found.streams[0];
            assert_eq!((stream.len(), found.order), (901, Some(order)));
            assert_eq!([&stream[0][0], &stream[300][0]], [&text(ends[0]), &text(ends[1])]);
            let keys: Vec<&[Value]> = stream.iter().map(|row| &row[..2]).collect();
            assert!(match order.descending {
                false => keys.is_sorted(),
                true => keys.iter().rev().is_sorted(),
            });
        }
    }
}

#[tokio::test]
async fn of_many_windows_only_a_few_rows_are_in_key_order() {
    let hour = Some(std::time::Duration::from_secs(3600));
    for options in [last_row(), append()] {
        let options = TableOptions { time_window: hour, ..options };
        let mut fixture = Fixture::series(options).await;
        for host in ["a", "b"] {
            fixture.put(&ALL[..3], &minutes(host, 600));
        }
        fixture.flush().await.unwrap();
        assert_eq!(fixture.partition.stats().files, 10);
        let early = [("a", Domain::compare(Comparison::Less, int(3)))];
        for (order, first, first_early) in [
            (KeyOrder::ASCENDING, [("a", 0), ("a", 1)], [("a", 2), ("b", 0)]),
            (KeyOrder::DESCENDING, [("b", 599), ("b", 598)], [("b", 0), ("a", 2)]),
        ] {
            let ordered = |domains: &[(&str, Domain)], limit| Scan {
                order: Some(order),
                limit,
                ..fixture.scan(&ALL, domains)
            };
            let rows = |rows: [(&str, i64); 2]| {
                rows.map(|(host, minute)| row(host, minute * 60_000, minute)).to_vec()
            };
            let stream = |found: &Collected| -> Vec<Row> {
                found.streams[0].iter().map(|row| row[..3].to_vec()).collect()
            };
            let found = collect(&fixture.partition, ordered(&[], Some(2))).await.unwrap();
            assert_eq!(found.order, Some(order));
            assert_eq!(stream(&found), rows(first));
            // Rows that a domain on a field excludes do not count.
            let found = collect(&fixture.partition, ordered(&early, Some(4))).await.unwrap();
            assert_eq!(found.order, Some(order));
            assert_eq!(stream(&found)[2..], rows(first_early));
            // All rows would have to be merged from too many files.
            let found = collect(&fixture.partition, ordered(&[], None)).await.unwrap();
            assert_eq!((found.order, found.rows.len()), (None, 1200));
        }
    }
}

#[tokio::test]
async fn the_newest_rows_are_found_without_reading_the_others() {
    let mut fixture = Fixture::series(last_non_null()).await;
    for host in ["a", "b", "c"] {
        fixture.put(&ALL[..3], &minutes(host, 300));
    }
    fixture.flush().await.unwrap();
    // Over the newest row of one host, and behind that of another.
    fixture.put(&["host", "ts", "b"], &[vec![text("a"), ts(299 * 60_000), text("new")]]);
    fixture.put(&ALL[..3], &[row("b", 300 * 60_000, -1), row("b", 5, -2)]);
    let newest = async |fixture: &Fixture, domains: &[(&str, Domain)]| {
        let scan = Scan { newest_only: true, ..fixture.scan(&ALL, domains) };
        let found = collect(&fixture.partition, scan).await.unwrap();
        (found.rows, found.stats.rows_scanned.load(Ordering::Relaxed))
    };
    let last = |host: &str, minute: i64, a: i64, b: Value| {
        vec![text(host), ts(minute * 60_000), int(a), b]
    };
    let expected = vec![
        last("a", 299, 299, text("new")),
        last("b", 300, -1, Value::Null),
        last("c", 299, 299, Value::Null),
    ];
    let (found, scanned) = newest(&fixture, &[]).await;
    assert_eq!(found, expected);
    assert_eq!(scanned, 900 + 4, "the file is read once to find where its series end");
    let (found, scanned) = newest(&fixture, &[]).await;
    assert_eq!(found, expected);
    assert_eq!(scanned, 4, "the versions of the newest keys and no more");

    let only_b = [("host", Domain::point(text("b")))];
    assert_eq!(newest(&fixture, &only_b).await, (vec![expected[1].clone()], 1));
    let recent = [("ts", at_least(ts(300 * 60_000)))];
    assert_eq!(newest(&fixture, &recent).await.0, [expected[1].clone()]);

    // The newest row of a host is deleted: the one before it is the newest.
    fixture.write(WriteKind::Delete, &["host", "ts"], &[vec![text("c"), ts(299 * 60_000)]]);
    let (found, _) = newest(&fixture, &[]).await;
    assert_eq!(found[..2], expected[..2]);
    assert_eq!(found.last(), Some(&last("c", 298, 298, Value::Null)));
    fixture.flush().await.unwrap();
    fixture.reopen().await;
    let (found, _) = newest(&fixture, &[]).await;
    assert_eq!(found.last(), Some(&last("c", 298, 298, Value::Null)));
}

#[tokio::test]
async fn once_it_is_known_where_series_end_a_look_at_some_does_not_read_what_tells_them_apart() {
    for options in [last_row(), append()] {
        let mut fixture = Fixture::series(options).await;
        let hosts: Vec<String> = (0..40).map(|host| format!("host{host:03}")).collect();
        let rows: Vec<Row> = hosts.iter().flat_map(|host| minutes(host, 50)).collect();
        fixture.put(&ALL[..3], &rows);
        fixture.flush().await.unwrap();
        let wide = Domain::compare(Comparison::Less, text("host002"));
        let asked = [
            vec![("host", Domain::point(text("host007")))],
            vec![("host", Domain::points(["host007", "host008", "host039", "none"].map(text)))],
            vec![("host", wide.union(&Domain::point(text("host030"))))],
            vec![("host", Domain::compare(Comparison::NotEqual, text("host020")))],
            vec![("host", Domain::point(text("none")))],
            vec![("host", Domain::point(text("host007"))), ("ts", at_least(ts(25 * 60_000)))],
            vec![("host", Domain::point(text("host000"))), ("a", at_least(int(48)))],
        ];
        for domains in asked {
            let held = |row: &&Row| {
                let of = |(name, domain): &(&str, Domain)| {
                    domain.contains(&row[ALL.iter().position(|column| column == name).unwrap()])
                };
                domains.iter().all(of)
            };
            let expected: Vec<i64> = rows.iter().filter(held).map(|row| number(&row[2])).collect();
            let mut bytes = Vec::new();
            fixture.reopen().await;
            for known in [false, true] {
                if known {
                    // Looked at often enough, as a whole.
                    let all = [("host", Domain::compare(Comparison::NotEqual, text("none")))];
                    for _ in 0..2 {
                        assert_eq!(fixture.read_where(&["a"], &all).await.unwrap().len(), 2000);
                    }
                }
                let scan = fixture.scan(&["a"], &domains);
                let found = collect(&fixture.partition, scan).await.unwrap();
                let mut numbers: Vec<i64> = found.rows.iter().map(|row| number(&row[0])).collect();
                let mut expected = expected.clone();
                numbers.sort_unstable();
                expected.sort_unstable();
                assert_eq!(numbers, expected, "{domains:?}");
                bytes.push(found.stats.bytes_scanned.load(Ordering::Relaxed));
            }
            if !expected.is_empty() {
                assert!(bytes[1] < bytes[0], "{domains:?}: {bytes:?}");
            }
        }
    }
}

fn number(value: &Value) -> i64 {
    match value {
        Value::Int(number) => *number,
        other => panic!("{other:?} is no number"),
    }
}
