//! Enough rows for the sizes of production: many row groups, several files a run, parallel streams.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{
    ArrayRef, AsArray, Float64Array, RecordBatch, StringViewArray, TimestampMillisecondArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Float64Type, Schema, SchemaRef, TimestampMillisecondType};
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::path::Path;
use partita_engine::{EngineOptions, LocalStore, Partition, PartitionConfig, Scan};
use partita_proto::clock::Clock;
use partita_proto::domain::{Domain, Domains};
use partita_proto::id::{ColumnId, Epoch, PartitionId, ReplicaId, SchemaVersion, TableId};
use partita_proto::placement::Placement;
use partita_proto::range::TypedRange;
use partita_proto::schema::{Column, ColumnType, Semantic, TableOptions, TableSchema, Unit};
use partita_proto::service::{ScanStats, WriteKind};
use partita_proto::value::Value;

const HOSTS: i64 = 1000;

struct Still;

impl Clock for Still {
    fn now_ms(&self) -> i64 {
        0
    }
}

fn column(id: u32, name: &str, column_type: ColumnType, semantic: Semantic) -> Column {
    Column {
        id: ColumnId(id),
        name: name.to_owned(),
        storage_name: name.to_owned(),
        column_type,
        nullable: semantic == Semantic::Field,
        semantic,
        default: None,
        generated: None,
        missing: None,
        length: None,
        json: None,
        indexes: Vec::new(),
        comment: None,
    }
}

fn config(append_mode: bool) -> PartitionConfig {
    let time = ColumnType::Timestamp(Unit::Millisecond, false);
    let schema = TableSchema {
        version: SchemaVersion(1),
        columns: vec![
            column(1, "host", ColumnType::String, Semantic::Tag),
            column(2, "ts", time, Semantic::TimeIndex),
            column(3, "usage", ColumnType::Float64, Semantic::Field),
        ],
        key: vec![ColumnId(1), ColumnId(2)],
        options: TableOptions { append_mode, ..TableOptions::default() },
        next_column: ColumnId(4),
        schema_on_write: false,
        checks: Vec::new(),
        view: None,
    };
    PartitionConfig {
        partition: PartitionId(1),
        table: TableId(1),
        schema: Arc::new(schema),
        placement: Placement::Range,
        range: TypedRange::default(),
        epoch: Epoch(1),
        replica: ReplicaId(1),
        members: [].into(),
        join: false,
    }
}

fn name(host: i64) -> String {
    format!("a host with a long name {host:04}")
}

/// One row for each host at a second; `usage` is `round` plus the second.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn rows(second: i64, round: f64) -> RecordBatch {
    let count = usize::try_from(HOSTS).unwrap();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringViewArray::from_iter_values((0..HOSTS).map(name))),
        Arc::new(TimestampMillisecondArray::from_value(second * 1000, count)),
        Arc::new(Float64Array::from_value(round + second as f64, count)),
    ];
    RecordBatch::try_new(config(false).schema.storage(), columns).unwrap()
}

async fn new(append: bool, options: EngineOptions) -> (tempfile::TempDir, Arc<Partition>) {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn ObjectStore> = Arc::new(LocalStore::open(directory.path()).unwrap());
    let root = Path::from("p");
    let partition = Partition::create(store, root, config(append), options, Arc::new(Still));
    (directory, partition.await.unwrap())
}

fn put(partition: &Partition, seconds: Range<i64>, round: f64) {
    for second in seconds {
        let index = partition.applied() + 1;
        let writes = [(WriteKind::Put, rows(second, round))];
        partition.apply(index, Bytes::new(), &writes).unwrap();
    }
}

async fn flush(partition: &Partition) {
    partition.seal(Bytes::new);
    partition.flush().await.unwrap();
}

/// Streams, read at the same time, each as one batch.
struct Read {
    streams: Vec<RecordBatch>,
    stats: Arc<ScanStats>,
    sorted: bool,
}

impl Read {
    fn rows(&self) -> usize {
        self.streams.iter().map(RecordBatch::num_rows).sum()
    }
}

async fn read(partition: &Partition, names: &[&str], domains: Domains, parallelism: usize) -> Read {
    let all = partition.config().schema.storage();
    let fields = names.iter().map(|name| all.field_with_name(name).unwrap().clone());
    let columns: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<Field>>()));
    let scan = Scan {
        columns: Arc::clone(&columns),
        domains,
        limit: None,
        parallelism,
        range: None,
        newest_only: false,
        probes: Vec::new(),
        first_by_time: None,
        order: None,
        uncollected: false,
    };
    let scanned = partition.scan(scan).unwrap();
    let tasks: Vec<_> = scanned
        .streams
        .into_iter()
        .map(|stream| tokio::spawn(stream.try_collect::<Vec<RecordBatch>>()))
        .collect();
    let mut streams = Vec::new();
    for task in tasks {
        let batches = task.await.unwrap().unwrap();
        streams.push(concat_batches(&columns, &batches).unwrap());
    }
    Read { streams, stats: scanned.stats, sorted: scanned.order.is_some() }
}

/// Every key is there once, with the value of its last round.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn check_once(read: &Read, seconds: i64, round: impl Fn(i64) -> f64) {
    let mut seen = BTreeSet::new();
    for batch in &read.streams {
        let hosts = batch.column(0).as_string_view();
        let ts = batch.column(1).as_primitive::<TimestampMillisecondType>();
        let usage = batch.column(2).as_primitive::<Float64Type>();
        for row in 0..batch.num_rows() {
            let second = ts.value(row) / 1000;
            let expected = round(second) + second as f64;
            assert!((usage.value(row) - expected).abs() < 0.5, "second {second}");
            let fresh = seen.insert((hosts.value(row), second));
            assert!(fresh, "{} {second}", hosts.value(row));
        }
        if read.sorted {
            let key = |row: usize| (hosts.value(row), ts.value(row));
            assert!((1..ts.len()).all(|row| key(row - 1) < key(row)));
        }
    }
    assert_eq!(seen.len(), usize::try_from(seconds * HOSTS).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_files_and_memtables_of_many_row_groups_read_each_key_once() {
    let options = EngineOptions { file_bytes_target: 24 * 1024, ..EngineOptions::default() };
    let (_directory, partition) = new(false, options).await;
    put(&partition, 0..300, 0.0);
    flush(&partition).await;
    put(&partition, 150..400, 1000.0);
    flush(&partition).await;
    put(&partition, 380..390, 2000.0);
    let round = |second: i64| match second {
        380..390 => 2000.0,
        150..400 => 1000.0,
        _ => 0.0,
    };
    let names = ["host", "ts", "usage"];
    for compacted in [false, true] {
        for parallelism in [1, 4] {
            let read = read(&partition, &names, Domains::default(), parallelism).await;
            check_once(&read, 400, round);
            assert!(read.sorted, "in one window all units are in key order");
            assert!(read.streams.len() <= parallelism);
            if parallelism > 1 {
                let busy = read.streams.iter().filter(|batch| batch.num_rows() > 0).count();
                assert!(busy > 1, "{busy} of {parallelism} streams have rows");
            }
            let scanned = read.stats.rows_scanned.load(Ordering::Relaxed);
            let stored = partition.stats().rows;
            // Row groups at the cuts between streams are read by both neighbours.
            assert!(scanned >= stored && scanned <= stored * 2, "{scanned} of {stored}");
        }
        if !compacted {
            assert!(partition.compact(true).await.unwrap());
            assert_eq!(partition.stats().rows, 410_000);
            assert!(partition.stats().files > 1, "{:?}", partition.stats());
        }
    }
    partition.verify().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_series_of_a_thousand_is_read_without_the_others() {
    let (_directory, partition) = new(true, EngineOptions::default()).await;
    put(&partition, 0..400, 0.0);
    flush(&partition).await;
    let mut domains = Domains::default();
    domains.restrict("host", Domain::point(Value::String(name(500))));
    let one = read(&partition, &["ts", "usage"], domains, 2).await;
    assert_eq!(one.rows(), 400);
    // The rows of a series lie in one page, or in two neighbouring ones.
    let scanned = one.stats.rows_scanned.load(Ordering::Relaxed);
    assert!((400..=2 * 8192).contains(&scanned), "{scanned}");
    let bytes = one.stats.bytes_scanned.load(Ordering::Relaxed);
    assert!(bytes * 4 < partition.stats().file_bytes, "{bytes} bytes");
    let all = read(&partition, &[], Domains::default(), 2).await;
    assert_eq!(all.rows(), 400_000);
}
