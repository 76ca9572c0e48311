//! Both sides over real sockets, with services that are made for it.

mod data;
mod directory;
mod meta;
mod rights;
mod scan;
mod server;
mod status;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use parking_lot::Mutex;
use partita_proto::Error;
use partita_proto::cardinality::SeriesSketch;
use partita_proto::catalog_history::CatalogHistory;
use partita_proto::domain::Domains;
use partita_proto::id::{ColumnId, Epoch, NodeId, PartitionId, ReplicaId, SchemaVersion, TableId};
use partita_proto::materialized::{CaptureOrder, Change, Changes, ChangesRequest, Position, Ship};
use partita_proto::measure::PartitionMeasures;
use partita_proto::probe::{ColumnTest, Probe};
use partita_proto::range::Bound;
use partita_proto::reshape::{Reshape, Reshaped};
use partita_proto::schema::{Column, ColumnType, Semantic, TableOptions, TableSchema};
use partita_proto::service::{
    Condition, DataService, FirstByTime, KeyOrder, PartitionSpec, ReadFrom, ReplicaStatus,
    RequestId, ScanReply, ScanRequest, WriteKind, WriteReply, WriteRequest,
};
use partita_tls::Links;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::{DataClient, DataServer, serve};

const NODE: NodeId = NodeId(7);
/// Maximum time that a test waits for an expected event, on slow and busy machines.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server on a port of its own; dropped, its connections are cut.
struct Served {
    address: String,
    stop: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn served(routes: Routes) -> Served {
    served_at("127.0.0.1:0", routes).await
}

/// A port without a listener, which no other socket gets while this is kept.
fn reserved() -> (TcpSocket, String) {
    let socket = TcpSocket::new_v4().unwrap();
    // Whoever says so too may listen there.
    socket.set_reuseport(true).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}

async fn served_at(address: &str, routes: Routes) -> Served {
    served_over(Links::plain(), address, routes)
}

fn served_over(links: Links, address: &str, routes: Routes) -> Served {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.set_reuseport(true).unwrap();
    socket.bind(address.parse().unwrap()).unwrap();
    let listener = socket.listen(1024).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let stop = CancellationToken::new();
    let task = tokio::spawn(serve(listener, links, routes, stop.clone()));
    Served { address, stop, task }
}

/// Accepts connections and never answers.
async fn silent() -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let task = tokio::spawn(async move {
        let mut kept = Vec::new();
        loop {
            kept.push(listener.accept().await.unwrap());
        }
    });
    (address, task)
}

/// Passes connections on to an address; from the stop on it keeps them and passes nothing on, as a
/// process does that is stopped.
async fn relay(to: &str, stop: CancellationToken) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let to = to.to_owned();
    tokio::spawn(async move {
        loop {
            let (mut from, _) = listener.accept().await.unwrap();
            let (to, stop) = (to.clone(), stop.clone());
            tokio::spawn(async move {
                let mut to = TcpStream::connect(to).await.unwrap();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                    () = stop.cancelled() => std::future::pending().await,
                }
            });
        }
    });
    address
}

/// Waits until a condition holds.
async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not so: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Measures something that takes less than this, unless the machine stands still just then: in one of some attempts.
async fn within(most: Duration, attempt: impl AsyncFn() -> Duration) {
    let mut took = Vec::new();
    for _ in 0..10 {
        took.push(attempt().await);
        if took.last().is_some_and(|took| *took < most) {
            return;
        }
    }
    panic!("not within {most:?}: {took:?}");
}

/// A node's service that records requests, and returns the configured answers.
#[derive(Default)]
struct FakeNode {
    asked: Mutex<Vec<String>>,
    fails: Mutex<Option<Error>>,
    scans: Mutex<VecDeque<ScanReply>>,
    /// Never answers; counts the requests that wait.
    hangs: AtomicBool,
    waiting: Arc<AtomicUsize>,
}

/// Counts as long as it lives.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl FakeNode {
    async fn note(&self, asked: String) -> Result<(), Error> {
        self.asked.lock().push(asked);
        if self.hangs.load(Ordering::SeqCst) {
            let _alive = Alive::new(&self.waiting);
            std::future::pending::<()>().await;
        }
        let fails = self.fails.lock().clone();
        fails.map_or(Ok(()), Err)
    }

    async fn serve(self: &Arc<Self>) -> Served {
        let service = DataServer::server(NODE, Arc::clone(self) as Arc<dyn DataService>);
        served(Routes::new(service)).await
    }
}

#[async_trait]
impl DataService for FakeNode {
    async fn write(&self, request: WriteRequest) -> Result<WriteReply, Error> {
        self.note(format!("{request:?}")).await?;
        Ok(WriteReply { index: 11, owed: vec![TableId(12), TableId(13)] })
    }

    async fn scan(&self, request: ScanRequest) -> Result<ScanReply, Error> {
        self.note(format!("{request:?}")).await?;
        Ok(self.scans.lock().pop_front().unwrap())
    }

    async fn recognize(&self, catalog: Option<&CatalogHistory>) -> Result<(), Error> {
        match catalog {
            Some(catalog) => self.note(format!("{catalog:?}")).await,
            None => Ok(()),
        }
    }

    async fn open_partition(&self, spec: PartitionSpec) -> Result<(), Error> {
        self.note(format!("{spec:?}")).await
    }

    async fn drop_partition(
        &self,
        partition: PartitionId,
        replica: ReplicaId,
    ) -> Result<(), Error> {
        self.note(format!("drop {partition} {replica}")).await
    }

    async fn reconfigure(
        &self,
        partition: PartitionId,
        voters: BTreeMap<ReplicaId, NodeId>,
    ) -> Result<(), Error> {
        self.note(format!("reconfigure {partition} {voters:?}")).await
    }

    async fn transfer_leader(&self, partition: PartitionId, to: NodeId) -> Result<(), Error> {
        self.note(format!("transfer {partition} {to}")).await
    }

    async fn reshape(&self, order: Reshape) -> Result<Reshaped, Error> {
        self.note(format!("{order:?}")).await?;
        Ok(Reshaped { index: 7, stall: Duration::from_micros(9) })
    }

    async fn middle_key(&self, partition: PartitionId) -> Result<Option<Bound>, Error> {
        self.note(format!("middle {partition}")).await?;
        Ok(Some(Bound::placed(3)))
    }

    async fn capture(
        &self,
        partition: PartitionId,
        epoch: Epoch,
        order: CaptureOrder,
    ) -> Result<u64, Error> {
        self.note(format!("capture {partition} {epoch} {order:?}")).await?;
        Ok(21)
    }

    async fn changes(&self, request: ChangesRequest) -> Result<Changes, Error> {
        self.note(format!("{request:?}")).await?;
        Ok(changes())
    }

    async fn fill(&self, copy: TableId, scan: ScanRequest) -> Result<(u64, ScanReply), Error> {
        self.note(format!("fill {copy} {scan:?}")).await?;
        Ok((22, self.scans.lock().pop_front().unwrap()))
    }

    async fn truncate_partition(&self, partition: PartitionId, id: RequestId) -> Result<(), Error> {
        self.note(format!("truncate {partition} {id:?}")).await
    }

    async fn alter_partition(
        &self,
        partition: PartitionId,
        schema: Arc<TableSchema>,
    ) -> Result<(), Error> {
        self.note(format!("alter {partition} {schema:?}")).await
    }

    async fn flush_partition(&self, partition: PartitionId) -> Result<(), Error> {
        self.note(format!("flush {partition}")).await
    }

    async fn compact_partition(&self, partition: PartitionId) -> Result<(), Error> {
        self.note(format!("compact {partition}")).await
    }

    async fn status(&self) -> Result<Vec<ReplicaStatus>, Error> {
        self.note("status".to_owned()).await?;
        Ok(vec![replica_status()])
    }

    async fn series_status(&self) -> Result<Vec<ReplicaStatus>, Error> {
        self.note("series status".to_owned()).await?;
        let mut sketch = SeriesSketch::default();
        sketch.add(&[(ColumnId(1), Some(7))], &[ColumnId(2)]);
        Ok(vec![ReplicaStatus { series: Some(Arc::new(sketch)), ..replica_status() }])
    }

    async fn measured_status(&self) -> Result<Vec<ReplicaStatus>, Error> {
        self.note("measured status".to_owned()).await?;
        let measures = PartitionMeasures { folded: 20, ..PartitionMeasures::default() };
        Ok(vec![ReplicaStatus { measures: Some(Arc::new(measures)), ..replica_status() }])
    }
}

fn changes() -> Changes {
    Changes {
        to: 31,
        last: 32,
        shipped: 33,
        sync: true,
        after: Some((PartitionId(34), 35)),
        entries: vec![
            Change { index: 30, kind: WriteKind::Put, rows: rows(0..3, 20) },
            Change { index: 31, kind: WriteKind::Delete, rows: rows(4..5, 0) },
        ],
    }
}

fn replica_status() -> ReplicaStatus {
    ReplicaStatus {
        partition: PartitionId(1),
        table: TableId(2),
        replica: ReplicaId(3),
        leader: true,
        leader_node: Some(NODE),
        term: 4,
        voters: [ReplicaId(3), ReplicaId(5)].into(),
        learners: [ReplicaId(6)].into(),
        epoch: Epoch(7),
        rows: 8,
        file_bytes: 9,
        files: 10,
        memtable_bytes: 11,
        rows_written: 12,
        bytes_written: 13,
        writes: 14,
        scans: 15,
        rows_scanned: 16,
        rejected: 17,
        applied: 18,
        flushed: 19,
        failure: Some("a reason".to_owned()),
        series: None,
        measures: None,
    }
}

fn schema() -> TableSchema {
    let column = |id, name: &str, column_type, semantic| Column {
        id: ColumnId(id),
        name: name.to_owned(),
        storage_name: name.to_owned(),
        column_type,
        nullable: true,
        semantic,
        default: None,
        generated: None,
        missing: None,
        length: None,
        json: None,
        indexes: Vec::new(),
        comment: None,
    };
    TableSchema {
        version: SchemaVersion(1),
        columns: vec![
            column(1, "number", ColumnType::Int64, Semantic::Tag),
            column(2, "text", ColumnType::String, Semantic::Field),
        ],
        key: vec![ColumnId(1)],
        options: TableOptions::default(),
        next_column: ColumnId(3),
        schema_on_write: false,
        checks: Vec::new(),
        view: None,
    }
}

fn columns() -> Arc<Schema> {
    Arc::new(Schema::new(vec![
        Field::new("number", DataType::Int64, true),
        Field::new("text", DataType::Utf8View, true),
    ]))
}

/// Rows with these numbers, and texts of this length.
fn rows(numbers: std::ops::Range<i64>, length: usize) -> RecordBatch {
    let texts = numbers.clone().map(|number| format!("{}{number}", "x".repeat(length)));
    let columns_of_rows: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(numbers)),
        Arc::new(StringViewArray::from_iter_values(texts)),
    ];
    RecordBatch::try_new(columns(), columns_of_rows).unwrap()
}

fn write_request(rows: RecordBatch) -> WriteRequest {
    WriteRequest {
        partition: PartitionId(1),
        epoch: Epoch(2),
        id: RequestId { client: u64::MAX, sequence: 4 },
        earlier: vec![RequestId { client: u64::MAX, sequence: 3 }],
        kind: WriteKind::Delete,
        rows,
        ship: Some(Ship {
            source: PartitionId(3),
            from: Position { index: 4, part: 5 },
            to: Position { index: 6, part: 7 },
        }),
        condition: Some(Condition {
            epoch: Epoch(8),
            index: 9,
            bulk: None,
            schema: SchemaVersion(10),
            by_row: true,
        }),
    }
}

fn scan_request() -> ScanRequest {
    ScanRequest {
        partition: PartitionId(1),
        epoch: Epoch(2),
        columns: columns(),
        domains: Domains::default(),
        limit: Some(5),
        parallelism: 3,
        newest_only: true,
        probes: vec![Probe::Column {
            column: "text".to_owned(),
            test: ColumnTest::Like("%x%".to_owned()),
        }],
        read_from: ReadFrom::AnyReplica {
            staleness_max: Duration::from_millis(1500),
            schema: SchemaVersion(3),
        },
        first_by_time: Some(FirstByTime { rows: 7, descending: true }),
        order: Some(KeyOrder { descending: true, nulls_apart: true }),
        for_update: true,
        uncollected: false,
    }
}

fn client(served: &Served) -> DataClient {
    DataClient::new(&Links::plain(), NODE, &served.address)
}
