//! Tests of a whole partition, over a store in a temporary directory.

mod added;
mod ahead;
mod behaviour;
mod failure;
mod indexed_files;
mod indexes;
mod measures;
mod model;
mod runs;
mod split;
mod together;
mod transfer;
mod types;
mod wide;
mod widened;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema, SchemaRef};
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::path::Path;
use partita_proto::array::array_of;
use partita_proto::clock::Clock;
use partita_proto::domain::{Domain, Domains};
use partita_proto::id::{ColumnId, Epoch, NodeId, PartitionId, ReplicaId, SchemaVersion, TableId};
use partita_proto::key::PLACEMENT_COLUMN;
use partita_proto::placement::Placement;
use partita_proto::range::TypedRange;
use partita_proto::schema::{
    Column, ColumnType, MergeMode, Semantic, TableOptions, TableSchema, Unit,
};
use partita_proto::service::{KeyOrder, WriteKind};
use partita_proto::value::Value;

use crate::{EngineError, EngineOptions, LocalStore, Partition, PartitionConfig, Scan};

pub(super) const MILLIS: ColumnType = ColumnType::Timestamp(Unit::Millisecond, false);

/// A row as the values of the columns that a test has named.
pub(super) type Row = Vec<Value>;

pub(super) struct TestClock(pub(super) AtomicI64);

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

pub(super) fn column(id: u32, name: &str, column_type: ColumnType, semantic: Semantic) -> Column {
    Column {
        id: ColumnId(id),
        name: name.to_owned(),
        storage_name: format!("{name}_{id}"),
        column_type,
        nullable: semantic != Semantic::TimeIndex,
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

/// `host` (tag), `ts` (time index), `a` (BIGINT), `b` (STRING); key (host, ts).
pub(super) fn series_schema(options: TableOptions) -> TableSchema {
    TableSchema {
        version: SchemaVersion(1),
        columns: vec![
            column(1, "host", ColumnType::String, Semantic::Tag),
            column(2, "ts", MILLIS, Semantic::TimeIndex),
            column(3, "a", ColumnType::Int64, Semantic::Field),
            column(4, "b", ColumnType::String, Semantic::Field),
        ],
        key: vec![ColumnId(1), ColumnId(2)],
        options,
        next_column: ColumnId(5),
        schema_on_write: false,
        checks: Vec::new(),
        view: None,
    }
}

pub(super) fn last_row() -> TableOptions {
    TableOptions::default()
}

pub(super) fn last_non_null() -> TableOptions {
    TableOptions { merge_mode: MergeMode::LastNonNull, ..TableOptions::default() }
}

pub(super) fn append() -> TableOptions {
    TableOptions { append_mode: true, ..TableOptions::default() }
}

pub(super) fn config(schema: TableSchema, placement: Placement) -> PartitionConfig {
    PartitionConfig {
        partition: PartitionId(7),
        table: TableId(3),
        schema: Arc::new(schema),
        placement,
        range: TypedRange::default(),
        epoch: Epoch(1),
        replica: ReplicaId(1),
        members: BTreeMap::from([(ReplicaId(1), NodeId(1))]),
        join: false,
    }
}

/// A partition that can be closed and opened again.
pub(super) struct Fixture {
    pub(super) directory: tempfile::TempDir,
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) clock: Arc<TestClock>,
    pub(super) options: EngineOptions,
    pub(super) root: Path,
    pub(super) partition: Arc<Partition>,
    pub(super) index: u64,
}

pub(super) fn root() -> Path {
    Path::from("partitions/7")
}

impl Fixture {
    pub(super) async fn new(config: PartitionConfig) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store: Arc<dyn ObjectStore> = Arc::new(LocalStore::open(directory.path()).unwrap());
        Self::over(directory, store, config, EngineOptions::default()).await
    }

    pub(super) async fn series(options: TableOptions) -> Self {
        Self::new(config(series_schema(options), Placement::Range)).await
    }

    pub(super) async fn over(
        directory: tempfile::TempDir,
        store: Arc<dyn ObjectStore>,
        config: PartitionConfig,
        options: EngineOptions,
    ) -> Self {
        let clock = Arc::new(TestClock(AtomicI64::new(0)));
        let as_clock: Arc<dyn Clock> = Arc::<TestClock>::clone(&clock);
        let partition =
            Partition::create(Arc::clone(&store), root(), config, options.clone(), as_clock)
                .await
                .unwrap();
        Self { directory, store, clock, options, root: root(), partition, index: 0 }
    }

    /// Drops the partition as a crash would and opens what is durable.
    pub(super) async fn reopen(&mut self) {
        let clock: Arc<dyn Clock> = Arc::<TestClock>::clone(&self.clock);
        let store: Arc<dyn ObjectStore> =
            Arc::new(LocalStore::open(self.directory.path()).unwrap());
        self.store = Arc::clone(&store);
        let (root, options) = (self.root.clone(), self.options.clone());
        self.partition = Partition::open(store, root, options, clock).await.unwrap();
    }

    pub(super) fn rows(&self, names: &[&str], rows: &[Row]) -> RecordBatch {
        batch(&self.partition.config(), names, rows)
    }

    /// Applies rows as the next entry.
    pub(super) fn write(&mut self, kind: WriteKind, names: &[&str], rows: &[Row]) {
        let rows = self.rows(names, rows);
        self.apply(&[(kind, rows)]).unwrap();
    }

    pub(super) fn put(&mut self, names: &[&str], rows: &[Row]) {
        self.write(WriteKind::Put, names, rows);
    }

    pub(super) fn apply(&mut self, writes: &[(WriteKind, RecordBatch)]) -> Result<(), EngineError> {
        self.index += 1;
        self.partition.apply(self.index, mark(self.index), writes).map(drop)
    }

    pub(super) async fn flush(&self) -> Result<bool, EngineError> {
        self.partition.seal(|| Bytes::from(format!("state {}", self.partition.applied())));
        self.partition.flush().await
    }

    pub(super) async fn read(&self, names: &[&str]) -> Vec<Row> {
        self.read_where(names, &[]).await.unwrap()
    }

    pub(super) async fn read_where(
        &self,
        names: &[&str],
        domains: &[(&str, Domain)],
    ) -> Result<Vec<Row>, partita_proto::Error> {
        let scan = self.scan(names, domains);
        Ok(collect(&self.partition, scan).await?.rows)
    }

    pub(super) fn scan(&self, names: &[&str], domains: &[(&str, Domain)]) -> Scan {
        let schema = Arc::clone(&self.partition.config().schema);
        let mut by_storage = Domains::default();
        for (name, domain) in domains {
            by_storage.restrict(&schema.column(name).unwrap().storage_name, domain.clone());
        }
        Scan {
            columns: columns(&schema, names),
            domains: by_storage,
            limit: None,
            parallelism: 3,
            range: None,
            newest_only: false,
            probes: Vec::new(),
            first_by_time: None,
            order: None,
            uncollected: false,
        }
    }
}

pub(super) fn mark(index: u64) -> Bytes {
    Bytes::from(format!("mark {index}"))
}

pub(super) fn columns(schema: &TableSchema, names: &[&str]) -> SchemaRef {
    let fields = names.iter().map(|name| schema.column(name).unwrap().storage_field());
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Rows as a write brings them.
pub(super) fn batch(config: &PartitionConfig, names: &[&str], rows: &[Row]) -> RecordBatch {
    let schema = columns(&config.schema, names);
    let arrays = names.iter().enumerate().map(|(at, name)| {
        let values: Vec<Value> = rows.iter().map(|row| row[at].clone()).collect();
        array_of(config.schema.column(name).unwrap().column_type, &values).unwrap()
    });
    let rows = RecordBatch::try_new(schema, arrays.collect()).unwrap();
    let placed = config.placement.place(&config.schema, &rows).unwrap();
    let Some(placed) = placed else { return rows };
    let mut fields =
        vec![Arc::new(Field::new(PLACEMENT_COLUMN, arrow::datatypes::DataType::UInt16, false))];
    fields.extend(rows.schema().fields().iter().cloned());
    let mut arrays: Vec<ArrayRef> = vec![Arc::new(placed)];
    arrays.extend(rows.columns().iter().cloned());
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

/// Result of a scan.
pub(super) struct Collected {
    /// Of all streams, sorted by value.
    pub(super) rows: Vec<Row>,
    pub(super) streams: Vec<Vec<Row>>,
    pub(super) order: Option<KeyOrder>,
    pub(super) stats: Arc<partita_proto::service::ScanStats>,
}

pub(super) async fn collect(
    partition: &Partition,
    scan: Scan,
) -> Result<Collected, partita_proto::Error> {
    let wanted = Arc::clone(&scan.columns);
    let scanned = partition.scan(scan)?;
    // The streams run at the same time, as they do in a query.
    let streams = scanned.streams.into_iter().map(|stream| async {
        let batches: Vec<RecordBatch> = stream.try_collect().await?;
        let mut rows = Vec::new();
        for batch in batches {
            assert_eq!(batch.schema(), wanted);
            rows.extend(rows_of(&batch));
        }
        Ok::<_, partita_proto::Error>(rows)
    });
    let streams = futures::future::try_join_all(streams).await?;
    let mut rows: Vec<Row> = streams.concat();
    rows.sort();
    Ok(Collected { rows, streams, order: scanned.order, stats: scanned.stats })
}

pub(super) fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    let value = |array: &ArrayRef, row| Value::from_array(array.as_ref(), row).unwrap();
    (0..batch.num_rows())
        .map(|row| batch.columns().iter().map(|array| value(array, row)).collect())
        .collect()
}

pub(super) fn text(value: &str) -> Value {
    Value::String(value.to_owned())
}

pub(super) fn ts(millis: i64) -> Value {
    Value::Timestamp(millis)
}

pub(super) fn int(value: i64) -> Value {
    Value::Int(value)
}
