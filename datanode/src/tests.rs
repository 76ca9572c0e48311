//! A whole node in one process: log, groups, engine, service.

mod captures;
mod cluster;
mod conditions;
mod crash;
mod damage;
mod followers;
mod late;
mod merge;
mod replicas;
mod shipping;
mod split;
mod stops;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{AsArray, Int32Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use futures::TryStreamExt;
use partita_engine::EngineOptions;
use partita_proto::clock::Clock;
use partita_proto::domain::Domains;
use partita_proto::error::Error;
use partita_proto::id::{ColumnId, Epoch, NodeId, PartitionId, ReplicaId, SchemaVersion, TableId};
use partita_proto::index::{Blooms, Index, IndexKind, IndexOptions};
use partita_proto::placement::Placement;
use partita_proto::range::TypedRange;
use partita_proto::schema::{Column, ColumnType, Semantic, TableOptions, TableSchema};
use partita_proto::service::{
    DataService, PartitionSpec, ReadFrom, RequestId, ScanRequest, WriteKind, WriteRequest,
};
use partita_raft::{Host, HostOptions};

use crate::{Datanode, NodeOptions};

const PARTITION: PartitionId = PartitionId(7);

#[derive(Debug)]
struct StoppedClock;

impl Clock for StoppedClock {
    fn now_ms(&self) -> i64 {
        1_767_268_800_000
    }
}

fn column(id: u32, name: &str, semantic: Semantic) -> Column {
    Column {
        id: ColumnId(id),
        name: name.to_owned(),
        storage_name: name.to_owned(),
        column_type: ColumnType::Int64,
        nullable: true,
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

pub(crate) fn schema(append_mode: bool) -> TableSchema {
    TableSchema {
        version: SchemaVersion(1),
        columns: vec![column(1, "id", Semantic::Tag), column(2, "v", Semantic::Field)],
        key: vec![ColumnId(1)],
        options: TableOptions { append_mode, ..TableOptions::default() },
        next_column: ColumnId(3),
        schema_on_write: false,
        checks: Vec::new(),
        view: None,
    }
}

fn spec(append_mode: bool) -> PartitionSpec {
    PartitionSpec {
        partition: PARTITION,
        table: TableId(1),
        epoch: Epoch(1),
        replica: ReplicaId(1),
        members: BTreeMap::from([(ReplicaId(1), NodeId(1))]),
        range: TypedRange::default(),
        placement: Placement::Range,
        schema: Arc::new(schema(append_mode)),
        join: false,
    }
}

struct Running {
    host: Arc<Host>,
    node: Arc<Datanode>,
}

impl Running {
    async fn start(dir: &Path) -> Self {
        Self::start_aged(dir, false, &[]).await
    }

    /// Starts over a directory that is an older copy, or not; the older replicas of `accepted` are served as they are.
    async fn start_aged(dir: &Path, older: bool, accepted: &[PartitionId]) -> Self {
        let options = HostOptions {
            segment_bytes: 1 << 20,
            log_budget_bytes: 8 << 20,
            ..HostOptions::new(dir.join("log"), NodeId(1))
        };
        let host = Host::open(options).await.unwrap();
        let options = NodeOptions {
            node: NodeId(1),
            dir: dir.to_owned(),
            memtables_bytes_max: 1 << 20,
            engine: EngineOptions::default(),
            put_aside: false,
            older,
            accepted: accepted.iter().copied().collect(),
            trash_keep: std::time::Duration::from_secs(3600),
            partition_rows_per_s: None,
        };
        let node =
            Datanode::open(options, Arc::clone(&host), Arc::new(StoppedClock)).await.unwrap();
        Self { host, node }
    }

    async fn stop(self) {
        self.node.shutdown().await.unwrap();
        self.host.shutdown().await.unwrap();
    }

    /// Ends without a flush, and with all work in the background: the directory is then only the next node's.
    async fn crash(self) {
        self.node.abandon().await;
        self.host.shutdown().await.unwrap();
    }

    async fn write(&self, sequence: u64, rows: &[(i64, i64)]) -> Result<u64, Error> {
        write(&self.node, sequence, rows).await
    }

    async fn rows(&self) -> Vec<(i64, i64)> {
        rows(&self.node).await.unwrap()
    }
}

/// Rows of the table, as a write sends them.
fn batch(rows: &[(i64, i64)]) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("v", DataType::Int64, true),
    ]);
    let ids = Int64Array::from_iter_values(rows.iter().map(|row| row.0));
    let values = Int64Array::from_iter_values(rows.iter().map(|row| row.1));
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(ids), Arc::new(values)]).unwrap()
}

/// Writes rows with an identity of this number; returns the index at which they took effect.
async fn write(node: &Datanode, sequence: u64, rows: &[(i64, i64)]) -> Result<u64, Error> {
    write_to(node, (PARTITION, Epoch(1)), sequence, rows).await
}

async fn write_to(
    node: &Datanode,
    (partition, epoch): (PartitionId, Epoch),
    sequence: u64,
    rows: &[(i64, i64)],
) -> Result<u64, Error> {
    let id = RequestId { client: 1, sequence };
    write_part(node, (partition, epoch), (id, Vec::new()), rows).await
}

async fn write_part(
    node: &Datanode,
    (partition, epoch): (PartitionId, Epoch),
    (id, earlier): (RequestId, Vec<RequestId>),
    rows: &[(i64, i64)],
) -> Result<u64, Error> {
    let (kind, rows) = (WriteKind::Put, batch(rows));
    let request =
        WriteRequest { partition, epoch, id, earlier, kind, rows, ship: None, condition: None };
    node.write(request).await.map(|reply| reply.index)
}

/// All rows, sorted.
async fn rows(node: &Datanode) -> Result<Vec<(i64, i64)>, Error> {
    rows_of(node, (PARTITION, Epoch(1))).await
}

async fn rows_of(node: &Datanode, target: (PartitionId, Epoch)) -> Result<Vec<(i64, i64)>, Error> {
    scan_of(node, target, ReadFrom::Leader).await.map(|(rows, _)| rows)
}

/// All rows of a partition, sorted, and if a follower has answered.
async fn scan_of(
    node: &Datanode,
    (partition, epoch): (PartitionId, Epoch),
    read_from: ReadFrom,
) -> Result<(Vec<(i64, i64)>, bool), Error> {
    let request = ScanRequest {
        partition,
        epoch,
        columns: schema(false).storage(),
        domains: Domains::default(),
        limit: None,
        parallelism: 2,
        newest_only: false,
        probes: Vec::new(),
        read_from,
        first_by_time: None,
        order: None,
        for_update: false,
        uncollected: false,
    };
    let reply = node.scan(request).await?;
    let by_follower = reply.stats.by_followers.load(Ordering::Relaxed) > 0;
    let mut rows = Vec::new();
    for stream in reply.streams {
        let batches: Vec<RecordBatch> = stream.try_collect().await?;
        for batch in batches {
            let ids = batch.column(0).as_primitive::<Int64Type>();
            let values = batch.column(1).as_primitive::<Int64Type>();
            rows.extend(ids.values().iter().copied().zip(values.values().iter().copied()));
        }
    }
    rows.sort_unstable();
    Ok((rows, by_follower))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn written_rows_are_read_and_survive_a_restart_with_and_without_a_flush() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    running.node.open_partition(spec(false)).await.unwrap();
    running.write(1, &[(1, 10), (2, 20)]).await.unwrap();
    assert_eq!(running.rows().await, [(1, 10), (2, 20)]);
    running.stop().await;

    let running = Running::start(dir.path()).await;
    assert_eq!(running.rows().await, [(1, 10), (2, 20)]);
    running.write(2, &[(2, 21), (3, 30)]).await.unwrap();
    // No flush this time: the process is killed at an arbitrary instruction.
    running.crash().await;

    let running = Running::start(dir.path()).await;
    assert_eq!(running.rows().await, [(1, 10), (2, 21), (3, 30)]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_sent_again_takes_effect_once_also_after_a_flush_and_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    running.node.open_partition(spec(true)).await.unwrap();
    let first = running.write(1, &[(1, 1)]).await.unwrap();
    assert_eq!(running.write(1, &[(1, 1)]).await.unwrap(), first);
    running.node.flush_partition(PARTITION).await.unwrap();
    running.stop().await;

    let running = Running::start(dir.path()).await;
    assert_eq!(running.write(1, &[(1, 1)]).await.unwrap(), first);
    running.write(2, &[(1, 1)]).await.unwrap();
    assert_eq!(running.rows().await, [(1, 1), (1, 1)]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_at_once_share_proposals_and_all_their_rows_arrive() {
    let dir = tempfile::tempdir().unwrap();
    let running = Arc::new(Running::start(dir.path()).await);
    running.node.open_partition(spec(false)).await.unwrap();
    let writers = (0..64i64).map(|writer| {
        let running = Arc::clone(&running);
        tokio::spawn(async move {
            for round in 0..20i64 {
                let id = writer * 20 + round;
                running.write(id.cast_unsigned(), &[(id, id)]).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let rows = running.rows().await;
    assert_eq!(rows.len(), 64 * 20);
    let applied = running.node.status().await.unwrap()[0].applied;
    assert!(applied < 64 * 20, "{applied} proposals for 1280 writes: none were joined");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_another_epoch_or_for_no_partition_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    assert!(matches!(running.write(1, &[(1, 1)]).await, Err(Error::NotFound { .. })));
    let moved = PartitionSpec { epoch: Epoch(2), ..spec(false) };
    running.node.open_partition(moved).await.unwrap();
    let refused = running.write(1, &[(1, 1)]).await.unwrap_err();
    assert!(matches!(refused, Error::StaleRoute { current: Epoch(2), .. }), "{refused}");
    assert!(refused.is_retryable());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_partition_leaves_nothing_behind_and_its_number_can_be_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    running.node.open_partition(spec(false)).await.unwrap();
    running.write(1, &[(1, 1)]).await.unwrap();
    running.node.drop_partition(PARTITION, ReplicaId(1)).await.unwrap();
    running.node.drop_partition(PARTITION, ReplicaId(1)).await.unwrap();
    assert_eq!(std::fs::read_dir(dir.path().join("partitions")).unwrap().count(), 0);
    running.node.open_partition(spec(false)).await.unwrap();
    assert_eq!(running.rows().await, []);
    running.stop().await;
    Running::start(dir.path()).await.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_schema_goes_through_the_log_and_outlives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    running.node.open_partition(spec(false)).await.unwrap();
    running.write(1, &[(1, 1)]).await.unwrap();
    let mut wider = schema(false);
    wider.version = SchemaVersion(2);
    wider.columns.push(column(3, "w", Semantic::Field));
    wider.next_column = ColumnId(4);
    running.node.alter_partition(PARTITION, Arc::new(wider.clone())).await.unwrap();
    running.node.alter_partition(PARTITION, Arc::new(wider)).await.unwrap();
    running.crash().await;
    let running = Running::start(dir.path()).await;
    assert_eq!(running.rows().await, [(1, 1)]);
    running.stop().await;
}

/// Writes rows whose `v` is an INT, as a client sends them that knows no wider type.
async fn write_narrow(node: &Datanode, sequence: u64, rows: &[(i64, i32)]) -> Result<u64, Error> {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("v", DataType::Int32, true),
    ]);
    let ids = Int64Array::from_iter_values(rows.iter().map(|row| row.0));
    let values = Int32Array::from_iter_values(rows.iter().map(|row| row.1));
    let rows =
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(ids), Arc::new(values)]).unwrap();
    let request = WriteRequest {
        partition: PARTITION,
        epoch: Epoch(1),
        id: RequestId { client: 1, sequence },
        earlier: Vec::new(),
        kind: WriteKind::Put,
        rows,
        ship: None,
        condition: None,
    };
    node.write(request).await.map(|reply| reply.index)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_from_before_a_wider_type_are_applied_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    let mut narrow = schema(false);
    narrow.columns[1].column_type = ColumnType::Int32;
    let narrow = PartitionSpec { schema: Arc::new(narrow), ..spec(false) };
    running.node.open_partition(narrow).await.unwrap();
    write_narrow(&running.node, 1, &[(1, 10)]).await.unwrap();
    assert!(matches!(running.write(2, &[(9, 9)]).await, Err(Error::InvalidInput(_))));
    let mut wide = schema(false);
    wide.version = SchemaVersion(2);
    running.node.alter_partition(PARTITION, Arc::new(wide)).await.unwrap();
    write_narrow(&running.node, 3, &[(2, 20)]).await.unwrap();
    running.write(4, &[(3, 1 << 40)]).await.unwrap();
    let expected = [(1, 10), (2, 20), (3, 1 << 40)];
    assert_eq!(running.rows().await, expected);
    running.crash().await;

    let running = Running::start(dir.path()).await;
    assert_eq!(running.rows().await, expected);
    running.node.flush_partition(PARTITION).await.unwrap();
    assert_eq!(running.rows().await, expected);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_comes_with_a_schema_and_measures_only_where_they_are_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    running.node.open_partition(spec(false)).await.unwrap();
    running.write(1, &[(1, 1), (2, 2)]).await.unwrap();
    running.node.flush_partition(PARTITION).await.unwrap();
    let mut indexed = schema(false);
    indexed.version = SchemaVersion(2);
    let options = IndexOptions::Skipping(Blooms::default());
    indexed.columns[1].indexes.push(Index { name: "i".to_owned(), options });
    running.node.alter_partition(PARTITION, Arc::new(indexed)).await.unwrap();
    running.crash().await;

    let running = Running::start(dir.path()).await;
    assert_eq!(running.rows().await, [(1, 1), (2, 2)]);
    let plain = running.node.status().await.unwrap().remove(0);
    assert_eq!((plain.measures, plain.series), (None, None));
    let measured = running.node.measured_status().await.unwrap().remove(0);
    let measures = measured.measures.unwrap();
    assert_eq!(measures.measures.rows, 2);
    let indexes: Vec<_> = measures.indexes.iter().map(|build| (build.column, build.kind)).collect();
    assert_eq!(indexes, [(ColumnId(2), IndexKind::Skipping)]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn truncating_removes_all_rows_once() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    running.node.open_partition(spec(false)).await.unwrap();
    running.write(1, &[(1, 1)]).await.unwrap();
    running.node.flush_partition(PARTITION).await.unwrap();
    let id = RequestId { client: 2, sequence: 1 };
    running.node.truncate_partition(PARTITION, id).await.unwrap();
    assert_eq!(running.rows().await, []);
    running.write(2, &[(2, 2)]).await.unwrap();
    running.node.truncate_partition(PARTITION, id).await.unwrap();
    assert_eq!(running.rows().await, [(2, 2)]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memtables_are_flushed_by_themselves_and_the_log_is_reclaimed() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    running.node.open_partition(spec(false)).await.unwrap();
    for round in 0..100i64 {
        let rows: Vec<_> = (0..5_000).map(|row| (round * 5_000 + row, row)).collect();
        // On a slow machine flushing may not keep up; then writes are refused.
        while let Err(error) = running.write(round.cast_unsigned(), &rows).await {
            assert!(matches!(error, Error::Overloaded(_)), "{error}");
        }
    }
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let status = running.node.status().await.unwrap().remove(0);
        let log = running.host.log_stats();
        if status.flushed > 0 && status.files > 0 && log.bytes < 16 << 20 {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{status:?} {log:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(running.rows().await.len(), 500_000);
    running.stop().await;
}
