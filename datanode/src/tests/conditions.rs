//! Writes under a condition: whether they take effect, once, whatever happens to the node between.

use arrow::array::BooleanArray;
use partita_proto::array::array_of;
use partita_proto::partitioning::Partitioning;
use partita_proto::schema::MergeMode;
use partita_proto::service::{Condition, REMOVED_COLUMN};
use partita_proto::value::Value;
use partita_proto::wide::{self, Family, Wide};

use super::cluster::{Cluster, replicas};
use super::*;

const FIRST: (PartitionId, Epoch) = (PARTITION, Epoch(1));

/// Raft index of a scan for an update.
async fn read(node: &Datanode, target: (PartitionId, Epoch)) -> u64 {
    try_read(node, target).await.unwrap()
}

async fn try_read(node: &Datanode, (partition, epoch): (PartitionId, Epoch)) -> Result<u64, Error> {
    let request = ScanRequest {
        partition,
        epoch,
        columns: schema(false).storage(),
        domains: Domains::default(),
        limit: None,
        parallelism: 1,
        newest_only: false,
        probes: Vec::new(),
        read_from: ReadFrom::Leader,
        first_by_time: None,
        order: None,
        for_update: true,
        uncollected: false,
    };
    node.scan(request).await.map(|reply| reply.index)
}

fn as_of(index: u64) -> Condition {
    Condition { epoch: Epoch(1), index, bulk: None, schema: SchemaVersion(1), by_row: false }
}

async fn write_if(
    node: &Datanode,
    condition: Condition,
    sequence: u64,
    rows: RecordBatch,
) -> Result<u64, Error> {
    write_rows(node, Some(condition), (sequence, &[]), rows).await
}

/// Writes rows with an identity of a number; `earlier`: numbers of the identities under which they were sent before.
async fn write_rows(
    node: &Datanode,
    condition: Option<Condition>,
    (sequence, earlier): (u64, &[u64]),
    rows: RecordBatch,
) -> Result<u64, Error> {
    let (partition, epoch) = FIRST;
    let id = |sequence| RequestId { client: 1, sequence };
    let request = WriteRequest {
        partition,
        epoch,
        id: id(sequence),
        earlier: earlier.iter().copied().map(id).collect(),
        kind: WriteKind::Put,
        rows,
        ship: None,
        condition,
    };
    node.write(request).await.map(|reply| reply.index)
}

fn changed() -> Result<u64, Error> {
    Err(Error::Changed { partition: PARTITION })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conditional_write_takes_effect_once_unless_its_keys_were_written_since_they_were_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path()).await;
    running.node.open_partition(spec(false)).await.unwrap();
    let untracked = running.write(1, &[(1, 10), (2, 20)]).await.unwrap();
    let refused = write_if(&running.node, as_of(untracked), 2, batch(&[(1, 11)])).await;
    assert_eq!(refused, changed(), "no scan for an update came before");
    let index = read(&running.node, FIRST).await;
    let first = write_if(&running.node, as_of(index), 3, batch(&[(1, 11)])).await.unwrap();
    assert_eq!(write_if(&running.node, as_of(index), 3, batch(&[(1, 11)])).await, Ok(first));
    // The same rows by another request: the key was written since.
    assert_eq!(write_if(&running.node, as_of(index), 4, batch(&[(1, 12)])).await, changed());
    // All or nothing.
    assert_eq!(
        write_if(&running.node, as_of(index), 5, batch(&[(2, 21), (1, 12)])).await,
        changed()
    );
    assert_eq!(running.rows().await, [(1, 11), (2, 20)]);
    // Unconditional writes count too.
    let index = read(&running.node, FIRST).await;
    running.write(6, &[(2, 22)]).await.unwrap();
    assert_eq!(write_if(&running.node, as_of(index), 7, batch(&[(2, 23)])).await, changed());
    for flushed in [false, true] {
        if flushed {
            running.node.flush_partition(PARTITION).await.unwrap();
        }
        running.crash().await;
        running = Running::start(dir.path()).await;
        let node = &running.node;
        assert_eq!(write_if(node, as_of(index), 3, batch(&[(1, 11)])).await, Ok(first));
        assert_eq!(write_if(node, as_of(index), 7, batch(&[(2, 23)])).await, changed());
        assert_eq!(running.rows().await, [(1, 11), (2, 22)]);
    }
    assert!(write_if(&running.node, as_of(index), 8, batch(&[(1, 13)])).await.is_ok());
    assert_eq!(running.rows().await, [(1, 13), (2, 22)]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_writers_that_read_the_same_row_one_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    running.node.open_partition(spec(false)).await.unwrap();
    running.write(1, &[(1, 0)]).await.unwrap();
    let index = read(&running.node, FIRST).await;
    let writes = (0..32).map(|writer| {
        let node = Arc::clone(&running.node);
        async move { write_if(&node, as_of(index), 100 + writer, batch(&[(1, 1)])).await.is_ok() }
    });
    let outcomes = futures::future::join_all(writes).await;
    assert_eq!(outcomes.into_iter().filter(|is_done| *is_done).count(), 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_moved_and_fields_set_to_null() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    let mut folding = schema(false);
    folding.options.merge_mode = MergeMode::LastNonNull;
    let spec = PartitionSpec { schema: Arc::new(folding), ..spec(false) };
    running.node.open_partition(spec).await.unwrap();
    running.write(1, &[(1, 10), (2, 20)]).await.unwrap();
    let index = read(&running.node, FIRST).await;
    // Row 1 moves to key 3, and the field of row 2 becomes NULL.
    let fields = [
        Field::new("id", DataType::Int64, true),
        Field::new("v", DataType::Int64, true),
        Field::new(REMOVED_COLUMN, DataType::Boolean, false),
    ];
    let rows = RecordBatch::try_new(
        Arc::new(Schema::new(fields.to_vec())),
        vec![
            Arc::new(Int64Array::from(vec![3, 1, 2])),
            Arc::new(Int64Array::from(vec![Some(10), None, None])),
            Arc::new(BooleanArray::from(vec![false, true, false])),
        ],
    );
    write_if(&running.node, as_of(index), 2, rows.unwrap()).await.unwrap();
    let request = ScanRequest {
        partition: PARTITION,
        epoch: Epoch(1),
        columns: schema(false).storage(),
        domains: Domains::default(),
        limit: None,
        parallelism: 1,
        newest_only: false,
        probes: Vec::new(),
        read_from: ReadFrom::Leader,
        first_by_time: None,
        order: None,
        for_update: false,
        uncollected: false,
    };
    let mut found = Vec::new();
    for stream in running.node.scan(request).await.unwrap().streams {
        let batches: Vec<RecordBatch> = stream.try_collect().await.unwrap();
        for batch in batches {
            let (ids, values) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(1));
            let values = values.as_primitive::<Int64Type>();
            found.extend(ids.iter().zip(values.iter()));
        }
    }
    found.sort_unstable();
    assert_eq!(found, [(Some(2), None), (Some(3), Some(10))]);
    running.stop().await;
}

/// A cluster whose partition was written under conditions, and another schema for it.
async fn updated(seed: u64) -> (Cluster, Arc<TableSchema>) {
    let cluster = Cluster::of_three(4, seed, false).await;
    cluster.write(1, &[(1, 10), (2, 20)]).await;
    let scan = async |_, node: Arc<Datanode>| try_read(&node, FIRST).await;
    let index = cluster.anywhere("a scan for an update", scan).await;
    let rows = batch(&[(1, 11)]);
    let update =
        async |_, node: Arc<Datanode>| write_if(&node, as_of(index), 2, rows.clone()).await;
    cluster.anywhere("a write", update).await;
    let schema = TableSchema { version: SchemaVersion(2), ..schema(false) };
    (cluster, Arc::new(schema))
}

async fn alter(cluster: &Cluster, schema: &Arc<TableSchema>) {
    let order =
        async |_, node: Arc<Datanode>| node.alter_partition(PARTITION, Arc::clone(schema)).await;
    cluster.anywhere("another schema", order).await;
}

/// Creates a replica on node 4, which is to join under a schema.
async fn open(cluster: &Cluster, schema: &Arc<TableSchema>) {
    let spec = PartitionSpec {
        replica: ReplicaId(4),
        members: replicas(&[1, 2, 4]),
        schema: Arc::clone(schema),
        join: true,
        ..spec(false)
    };
    cluster.node(4).open_partition(spec).await.unwrap();
}

/// The log has conditions from before the schema with which the replica begins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_joins_under_a_later_schema_has_what_was_written_under_an_earlier_one() {
    let (mut cluster, schema) = updated(41).await;
    alter(&cluster, &schema).await;
    open(&cluster, &schema).await;
    cluster.reconfigure(&[1, 2, 4]).await;
    assert_eq!(cluster.rows_at(4).await, [(1, 11), (2, 20)]);
    cluster.kill(4).await;
    cluster.start(4).await;
    assert_eq!(cluster.rows_at(4).await, [(1, 11), (2, 20)]);
    cluster.stop().await;
}

/// As for a moment after a table was re-keyed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_joins_that_knows_of_a_schema_before_its_leader_does() {
    let (cluster, schema) = updated(42).await;
    open(&cluster, &schema).await;
    let leader = cluster.node(cluster.leader().await);
    let early = leader.reconfigure(PARTITION, replicas(&[1, 2, 4])).await.unwrap_err();
    assert!(early.is_retryable(), "{early}");
    alter(&cluster, &schema).await;
    cluster.reconfigure(&[1, 2, 4]).await;
    assert_eq!(cluster.rows_at(4).await, [(1, 11), (2, 20)]);
    cluster.stop().await;
}

/// A wide table with one family, `f`.
fn wide_schema() -> TableSchema {
    let families = vec![Family { name: "f".to_owned(), gc: None, aggregate: None }];
    TableSchema {
        columns: wide::columns(ColumnType::String),
        key: (0..4).map(ColumnId).collect(),
        options: TableOptions {
            partitioning: Partitioning { keep_together: 1, ..Partitioning::default() },
            wide: Some(Wide { families, ..Wide::default() }),
            ..TableOptions::default()
        },
        next_column: ColumnId(5),
        ..schema(false)
    }
}

/// Cells of a wide table, by row key and qualifier.
fn cells(cells: &[(&str, &str)]) -> RecordBatch {
    let column = |column: &Column, value: &dyn Fn(&(&str, &str)) -> Value| {
        let values: Vec<Value> = cells.iter().map(value).collect();
        (column.storage_name.clone(), array_of(column.column_type, &values).unwrap())
    };
    let columns = wide::columns(ColumnType::String);
    let binary = |text: &str| Value::Binary(text.as_bytes().to_vec());
    RecordBatch::try_from_iter([
        column(&columns[0], &|cell| Value::String(cell.0.to_owned())),
        column(&columns[1], &|_| Value::String("f".to_owned())),
        column(&columns[2], &|cell| binary(cell.1)),
        column(&columns[3], &|_| Value::Timestamp(1)),
        column(&columns[4], &|_| binary("v")),
    ])
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_condition_of_a_row_fails_if_any_of_its_cells_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path()).await;
    let spec = PartitionSpec { schema: Arc::new(wide_schema()), ..spec(false) };
    running.node.open_partition(spec).await.unwrap();
    let of_row = |index| Condition { by_row: true, ..as_of(index) };
    let index = read(&running.node, FIRST).await;
    let node = &running.node;
    assert!(write_if(node, as_of(index), 1, cells(&[("a", "p"), ("a", "q")])).await.is_ok());
    assert!(write_if(node, of_row(index), 2, cells(&[("b", "p")])).await.is_ok(), "another row");
    assert_eq!(write_if(node, of_row(index), 3, cells(&[("a", "new")])).await, changed());
    assert!(write_if(node, as_of(index), 4, cells(&[("a", "new")])).await.is_ok(), "another cell");
    let index = read(node, FIRST).await;
    assert!(write_if(node, of_row(index), 5, cells(&[("a", "r")])).await.is_ok());
    running.crash().await;
    running = Running::start(dir.path()).await;
    assert_eq!(write_if(&running.node, of_row(index), 6, cells(&[("a", "s")])).await, changed());
    assert!(write_if(&running.node, of_row(index), 7, cells(&[("c", "s")])).await.is_ok());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_write_is_answered_as_the_first_one_also_when_its_row_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(dir.path()).await;
    let mut schema = wide_schema();
    let wide = schema.options.wide.take().unwrap_or_default();
    schema.options.wide = Some(Wide { row_bytes_warn: 1, row_bytes_max: 1, ..wide });
    let spec = PartitionSpec { schema: Arc::new(schema), ..spec(false) };
    running.node.open_partition(spec).await.unwrap();
    let (first, second) = (cells(&[("a", "p")]), cells(&[("a", "q")]));
    let index = write_rows(&running.node, None, (1, &[]), first.clone()).await.unwrap();
    running.node.flush_partition(PARTITION).await.unwrap();
    for restarted in [false, true] {
        if restarted {
            running.crash().await;
            running = Running::start(dir.path()).await;
        }
        let node = &running.node;
        node.until_led(vec![PARTITION]).await.unwrap();
        node.replica(PARTITION).unwrap().measure_rows().await.unwrap();
        let refused = write_rows(node, None, (2, &[]), second.clone()).await;
        assert!(matches!(refused, Err(Error::LimitReached { .. })), "{refused:?}");
        assert_eq!(write_rows(node, None, (1, &[]), first.clone()).await, Ok(index));
        assert_eq!(write_rows(node, None, (3, &[1]), first.clone()).await, Ok(index));
        // A repeated write is recognized by its identity, so its condition does not matter.
        let read = as_of(index.saturating_sub(1));
        assert_eq!(write_rows(node, Some(read), (1, &[]), first.clone()).await, Ok(index));
    }
    running.stop().await;
}
