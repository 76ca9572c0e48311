//! The cost of a row in the storage of a partition.
//!
//! | group | step |
//! |---|---|
//! | apply | sorting into the memtable |
//! | flush | writing sealed memtables to a Parquet file and the manifest; CPU, and time with the sync |
//! | compact | merging four runs into one file |
//! | scan | reading: from one run (plain), from four that overlap in keys but share none (merged), and from two of
//!   which the newer overwrites all of the older (deduplicated); from the memtable and from files |
//! | lookup | reading a row of one host and time: from a partition just opened, of which nothing is in memory (cold,
//!   apart from the operating system's cache), and again (warm) |

use std::hint::black_box;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use criterion::Criterion;
use criterion::measurement::Measurement;
use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::path::Path;
use partita_bench::sample::{BATCH_ROWS, HOSTS, Sample, schema};
use partita_bench::{CpuTime, cpu, stage, wall};
use partita_engine::{EngineOptions, LocalStore, Partition, PartitionConfig, Scan};
use partita_proto::clock::Clock;
use partita_proto::domain::{Domain, Domains};
use partita_proto::id::{Epoch, PartitionId, ReplicaId, TableId};
use partita_proto::placement::Placement;
use partita_proto::range::TypedRange;
use partita_proto::service::{FirstByTime, KeyOrder, WriteKind};
use partita_proto::value::Value;
use partita_tsbs::cpu::{FIELDS, TAGS, TIME};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Batches of a flush: about what a memtable of 64 MiB holds.
const FLUSH_BATCHES: usize = 40;
/// Batches of each run that scans read.
const RUN_BATCHES: usize = 20;
/// Rows of scans in an order.
const FEW: usize = 10;
/// Time of every other row that lookups find; 2016-01-01 in nanoseconds.
const START_NS: i64 = 1_451_606_400_000_000_000;

struct Still;

impl Clock for Still {
    fn now_ms(&self) -> i64 {
        0
    }
}

/// A partition in a folder of its own.
struct Storage {
    partition: Arc<Partition>,
    folder: TempDir,
}

fn config() -> PartitionConfig {
    PartitionConfig {
        partition: PartitionId(1),
        table: TableId(1),
        schema: Arc::new(schema()),
        placement: Placement::Range,
        range: TypedRange::default(),
        epoch: Epoch(1),
        replica: ReplicaId(1),
        members: [].into(),
        join: false,
    }
}

fn store(folder: &TempDir) -> Arc<dyn ObjectStore> {
    Arc::new(LocalStore::open(folder.path()).expect("a folder that is there"))
}

impl Storage {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (root, options) = (Path::from("p"), EngineOptions::default());
        let partition = Partition::create(store(&folder), root, config(), options, Arc::new(Still));
        Self { partition: partition.await.expect("a new partition"), folder }
    }

    /// Opens the same files again, with nothing of them in memory.
    async fn opened_again(&self) -> Arc<Partition> {
        let (root, options) = (Path::from("p"), EngineOptions::default());
        let opened = Partition::open(store(&self.folder), root, options, Arc::new(Still));
        opened.await.expect("the partition that was made")
    }

    fn apply(&self, batch: RecordBatch) {
        let index = self.partition.applied() + 1;
        let keys = self.partition.apply(index, Bytes::new(), &[(WriteKind::Put, batch)]);
        black_box(keys.expect("rows of the table"));
    }

    async fn flush(&self) {
        self.partition.seal(Bytes::new);
        assert!(self.partition.flush().await.expect("a disk with space"), "nothing was flushed");
    }

    /// A partition with these runs in files, each given by its batches.
    async fn with_runs(runs: &[Vec<RecordBatch>]) -> Self {
        let storage = Self::new().await;
        for run in runs {
            run.iter().for_each(|batch| storage.apply(batch.clone()));
            storage.flush().await;
        }
        storage
    }
}

fn main() {
    let runtime = Runtime::new().expect("a runtime");
    let mut criterion = cpu();
    apply(&mut criterion, &runtime);
    flush(&mut criterion, &runtime, "flush");
    compact(&mut criterion, &runtime);
    scan(&mut criterion, &runtime);
    lookup(&mut criterion, &runtime, "lookup");
    criterion.final_summary();
    let mut criterion = wall();
    flush(&mut criterion, &runtime, "flush time");
    lookup(&mut criterion, &runtime, "lookup time");
    criterion.final_summary();
}

fn batches(count: usize) -> Vec<RecordBatch> {
    let mut sample = Sample::new(HOSTS);
    (0..count).map(|_| sample.batch()).collect()
}

fn apply(criterion: &mut Criterion<CpuTime>, runtime: &Runtime) {
    let batches = batches(FLUSH_BATCHES);
    let set_up = || (runtime.block_on(Storage::new()), batches.clone());
    // As many as a memtable takes: the cost of a row depends on the rows before it.
    stage(
        criterion,
        ("apply", "batch"),
        BATCH_ROWS * FLUSH_BATCHES,
        set_up,
        |(storage, batches)| {
            batches.into_iter().for_each(|batch| storage.apply(batch));
            storage
        },
    );
}

fn flush<M: Measurement + 'static>(criterion: &mut Criterion<M>, runtime: &Runtime, group: &str) {
    let batches = batches(FLUSH_BATCHES);
    let set_up = || {
        let storage = runtime.block_on(Storage::new());
        batches.iter().for_each(|batch| storage.apply(batch.clone()));
        storage
    };
    stage(criterion, (group, "memtable"), BATCH_ROWS * FLUSH_BATCHES, set_up, |storage| {
        runtime.block_on(storage.flush());
        storage
    });
}

fn compact(criterion: &mut Criterion<CpuTime>, runtime: &Runtime) {
    let runs: Vec<_> = batches(4 * RUN_BATCHES).chunks(RUN_BATCHES).map(<[_]>::to_vec).collect();
    let set_up = || runtime.block_on(Storage::with_runs(&runs));
    stage(criterion, ("compact", "4 runs"), BATCH_ROWS * RUN_BATCHES * 4, set_up, |storage| {
        let compacted = runtime.block_on(storage.partition.compact(true));
        assert!(compacted.expect("a disk with space"), "nothing was compacted");
        storage
    });
}

/// A scan of some columns of the rows in some domains.
fn wanted(columns: &[&str], domains: Domains) -> Scan {
    let stored = schema().storage();
    let fields = columns.iter().map(|name| stored.field_with_name(name).expect("a column").clone());
    let columns: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    Scan {
        columns,
        domains,
        limit: None,
        parallelism: 1,
        range: None,
        newest_only: false,
        probes: Vec::new(),
        first_by_time: None,
        order: None,
        uncollected: false,
    }
}

async fn read(partition: &Partition, scan: Scan) -> usize {
    let scanned = partition.scan(scan).expect("columns of the table");
    let mut rows = 0;
    for stream in scanned.streams {
        let batches: Vec<RecordBatch> = stream.try_collect().await.expect("files that are there");
        rows += black_box(batches).iter().map(RecordBatch::num_rows).sum::<usize>();
    }
    rows
}

fn scan(criterion: &mut Criterion<CpuTime>, runtime: &Runtime) {
    let sample = batches(4 * RUN_BATCHES);
    let rows = BATCH_ROWS * 4 * RUN_BATCHES;
    let whole = vec![sample.clone()];
    let disjoint: Vec<_> = sample.chunks(RUN_BATCHES).map(<[_]>::to_vec).collect();
    let twice = vec![sample.clone(), sample.clone()];
    let all_columns: Vec<&str> = TAGS.into_iter().chain([TIME]).chain(FIELDS).collect();
    for (kind, runs, expected) in
        [("plain", whole, rows), ("merged", disjoint, rows), ("deduplicated", twice, rows)]
    {
        let storage = runtime.block_on(Storage::with_runs(&runs));
        for (width, columns) in [("1 column", &FIELDS[..1]), ("21 columns", &all_columns[..])] {
            let name = format!("{kind}, {width}");
            let scan = || wanted(columns, Domains::default());
            stage(criterion, ("scan", &name), expected, scan, |scan| {
                assert_eq!(runtime.block_on(read(&storage.partition, scan)), expected);
            });
        }
        for (end, order) in [("first", KeyOrder::ASCENDING), ("last", KeyOrder::DESCENDING)] {
            let name = format!("{kind}, {end} {FEW} rows by key");
            let scan = || Scan {
                order: Some(order),
                limit: Some(FEW),
                ..wanted(&all_columns, Domains::default())
            };
            stage(criterion, ("scan", &name), FEW, scan, |scan| {
                assert_eq!(runtime.block_on(read(&storage.partition, scan)), FEW);
            });
        }
        let name = format!("{kind}, last {FEW} rows by time");
        let first_by_time = Some(FirstByTime { rows: FEW, descending: true });
        let scan = || Scan { first_by_time, ..wanted(&all_columns, Domains::default()) };
        stage(criterion, ("scan", &name), FEW, scan, |scan| {
            assert!(runtime.block_on(read(&storage.partition, scan)) >= FEW);
        });
    }
    let storage = runtime.block_on(Storage::new());
    sample.into_iter().for_each(|batch| storage.apply(batch));
    let scan = || wanted(&FIELDS[..1], Domains::default());
    stage(criterion, ("scan", "memtable, 1 column"), rows, scan, |scan| {
        assert_eq!(runtime.block_on(read(&storage.partition, scan)), rows);
    });
}

/// Domains of one host and one time.
fn point() -> Domains {
    let mut domains = Domains::default();
    domains.restrict(TAGS[0], Domain::point(Value::String("host_7".to_owned())));
    domains.restrict(TIME, Domain::point(Value::Timestamp(START_NS)));
    domains
}

fn lookup<M: Measurement + 'static>(criterion: &mut Criterion<M>, runtime: &Runtime, group: &str) {
    let runs: Vec<_> = batches(4 * RUN_BATCHES).chunks(RUN_BATCHES).map(<[_]>::to_vec).collect();
    let storage = runtime.block_on(Storage::with_runs(&runs));
    let scan = || wanted(&FIELDS, point());
    let cold = || (runtime.block_on(storage.opened_again()), scan());
    stage(criterion, (group, "cold"), 1, cold, |(partition, scan)| {
        assert_eq!(runtime.block_on(read(&partition, scan)), 1);
        partition
    });
    stage(criterion, (group, "warm"), 1, scan, |scan| {
        assert_eq!(runtime.block_on(read(&storage.partition, scan)), 1);
    });
}
