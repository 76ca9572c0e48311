//! Scans: streams, frames, and what ends them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::AsArray;
use arrow::compute::concat_batches;
use arrow::datatypes::{Int64Type, Schema};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use partita_proto::Error;
use partita_proto::id::PartitionId;
use partita_proto::index::IndexKind;
use partita_proto::service::{
    DataService, FragmentRequest, FragmentService, IndexUse, KeyOrder, RowStream, ScanReply,
    ScanStats,
};
use partita_proto::wire::pb;
use partita_proto::wire::pb::data_client::DataClient as Generated;
use partita_tls::{Links, Role};
use tonic::service::Routes;

use super::status::every_error;
use super::{
    Alive, FakeNode, NODE, PATIENCE, Served, client, columns, eventually, rows, scan_request,
    served, write_request,
};
use crate::DataServer;
use crate::channel::channel;
use crate::frames::cut;
use crate::parked::Parked;

fn stream_of(batches: Vec<Result<RecordBatch, Error>>) -> RowStream {
    stream::iter(batches).boxed()
}

fn reply(streams: Vec<RowStream>) -> ScanReply {
    ScanReply { streams, order: None, stats: Arc::default(), index: 0 }
}

/// Streams that never end; each counts as long as it lives, and the batches that were asked of it.
fn endless(count: usize, alive: &Arc<AtomicUsize>, made: &Arc<AtomicUsize>) -> Vec<RowStream> {
    let endless = |_| -> RowStream {
        let (alive, made) = (Alive::new(alive), Arc::clone(made));
        stream::repeat_with(move || {
            let _alive = &alive;
            made.fetch_add(1, Ordering::SeqCst);
            Ok(rows(0..10, 100_000))
        })
        .boxed()
    };
    (0..count).map(endless).collect()
}

async fn numbers(stream: RowStream) -> Vec<i64> {
    let batches: Vec<RecordBatch> = stream.try_collect().await.unwrap();
    let of = |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().to_vec();
    batches.iter().flat_map(of).collect()
}

#[tokio::test]
async fn every_stream_of_a_scan_arrives_with_what_was_counted() {
    let node = Arc::new(FakeNode::default());
    let served = node.serve().await;
    let client = client(&served);
    let stats = Arc::new(ScanStats::default());
    let streams = vec![
        stream_of(vec![Ok(rows(0..3, 1)), Ok(rows(3..3, 1)), Ok(rows(3..5, 20))]),
        stream_of(vec![]),
        stream_of(vec![Ok(rows(5..9, 1))]),
    ];
    let counted = Arc::clone(&stats);
    node.scans.lock().push_back(ScanReply {
        streams,
        order: Some(KeyOrder::ASCENDING),
        stats,
        index: 17,
    });
    let answer = client.scan(scan_request()).await.unwrap();
    assert_eq!(*node.asked.lock(), [format!("{:?}", scan_request())]);
    assert_eq!(answer.order, Some(KeyOrder::ASCENDING));
    assert_eq!((answer.streams.len(), answer.index), (3, 17));
    counted.rows_scanned.store(9, Ordering::SeqCst);
    counted.files_pruned.store(4, Ordering::SeqCst);
    let key = ("text".to_owned(), IndexKind::Inverted);
    let used = IndexUse { examined: 8, skipped: 6 };
    counted.indexes.lock().insert(key.clone(), used);
    let mut all = Vec::new();
    // Not in the order they were made.
    for stream in answer.streams.into_iter().rev() {
        all.push(numbers(stream).await);
    }
    assert_eq!(all, [vec![5, 6, 7, 8], vec![], vec![0, 1, 2, 3, 4]]);
    assert_eq!(answer.stats.rows_scanned.load(Ordering::SeqCst), 9);
    assert_eq!(answer.stats.files_pruned.load(Ordering::SeqCst), 4);
    assert_eq!(answer.stats.indexes.lock().get(&key), Some(&used));
}

#[tokio::test]
async fn a_scan_of_no_streams_or_no_columns_is_one_too() {
    let node = Arc::new(FakeNode::default());
    let served = node.serve().await;
    let client = client(&served);
    node.scans.lock().push_back(reply(Vec::new()));
    assert!(client.scan(scan_request()).await.unwrap().streams.is_empty());

    let options = RecordBatchOptions::new().with_row_count(Some(12));
    let bare = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options);
    node.scans.lock().push_back(reply(vec![stream_of(vec![Ok(bare.unwrap())])]));
    let mut answer = client.scan(scan_request()).await.unwrap();
    let counted: Vec<RecordBatch> = answer.streams.remove(0).try_collect().await.unwrap();
    assert_eq!(counted.iter().map(RecordBatch::num_rows).sum::<usize>(), 12);
}

#[tokio::test]
async fn an_error_within_a_stream_arrives_after_the_rows_before_it() {
    let node = Arc::new(FakeNode::default());
    let served = node.serve().await;
    let client = client(&served);
    for error in every_error() {
        let failing = || stream_of(vec![Ok(rows(0..2, 1)), Err(error.clone())]);
        node.scans.lock().push_back(reply(vec![failing(), failing()]));
        for mut stream in client.scan(scan_request()).await.unwrap().streams {
            assert_eq!(stream.next().await.unwrap().unwrap().num_rows(), 2);
            assert_eq!(stream.next().await.unwrap().unwrap_err(), error);
            assert!(stream.next().await.is_none());
        }
    }
}

/// Scans, and tells what fragment was to run over the rows.
struct Fragments(Arc<FakeNode>);

#[async_trait]
impl FragmentService for Fragments {
    async fn run(&self, request: FragmentRequest) -> Result<ScanReply, Error> {
        self.0.note(format!("{:?}", request.fragment)).await?;
        self.0.scan(request.scan).await
    }
}

#[tokio::test]
async fn a_fragment_is_run_by_those_who_can_and_its_rows_come_as_those_of_a_scan() {
    let request =
        || FragmentRequest { scan: scan_request(), fragment: Bytes::from_static(b"\x00fragment") };
    let node = Arc::new(FakeNode::default());
    let plain = node.serve().await;
    let error = client(&plain).run(request()).await.err();
    assert!(matches!(error, Some(Error::Unsupported(_))), "{error:?}");
    assert!(node.asked.lock().is_empty());

    let fragments = Arc::new(Fragments(Arc::clone(&node)));
    let service = DataServer::with_fragments(NODE, Arc::clone(&node) as _, fragments);
    let served = served(Routes::new(service)).await;
    let failed = Error::Query {
        sqlstate: "22012".to_owned(),
        message: "division by zero".to_owned(),
        hint: None,
    };
    let streams = vec![
        stream_of(vec![Ok(rows(0..3, 1))]),
        stream_of(vec![Ok(rows(3..4, 1)), Err(failed.clone())]),
    ];
    node.scans.lock().push_back(reply(streams));
    let mut answer = client(&served).run(request()).await.unwrap();
    let asked = [format!("{:?}", request().fragment), format!("{:?}", scan_request())];
    assert_eq!(*node.asked.lock(), asked);
    let mut second = answer.streams.remove(1);
    assert_eq!(numbers(answer.streams.remove(0)).await, [0, 1, 2]);
    assert_eq!(second.next().await.unwrap().unwrap().num_rows(), 1);
    assert_eq!(second.next().await.unwrap().unwrap_err(), failed);

    *node.fails.lock() = Some(Error::NotLeader { partition: PartitionId(5), leader: None });
    let error = client(&served).run(request()).await.err();
    assert!(matches!(error, Some(Error::NotLeader { .. })), "{error:?}");
}

#[test]
fn a_batch_is_cut_into_pieces_below_the_bound() {
    let batch = rows(0..100, 1000);
    let mut pieces = VecDeque::new();
    cut(batch.clone(), 10_000, &mut pieces);
    assert!(pieces.iter().all(|piece| piece.num_rows() < 10), "{}", pieces.len());
    assert_eq!(concat_batches(&columns(), &pieces.into_iter().collect::<Vec<_>>()).unwrap(), batch);
    let mut pieces = VecDeque::new();
    cut(rows(0..3, 1000), 10, &mut pieces);
    assert_eq!(pieces.len(), 3);
}

#[tokio::test]
async fn a_batch_larger_than_a_message_arrives_in_pieces() {
    let node = Arc::new(FakeNode::default());
    let served = node.serve().await;
    let batch = rows(0..100, 1 << 20);
    node.scans.lock().push_back(reply(vec![stream_of(vec![Ok(batch.clone())])]));
    let mut answer = client(&served).scan(scan_request()).await.unwrap();
    let pieces: Vec<RecordBatch> = answer.streams.remove(0).try_collect().await.unwrap();
    assert!(pieces.len() >= 100);
    assert_eq!(concat_batches(&columns(), &pieces).unwrap(), batch);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_not_read_does_not_run_ahead_and_holds_up_nobody() {
    let node = Arc::new(FakeNode::default());
    let served = node.serve().await;
    let client = client(&served);
    let (alive, made) = (Arc::default(), Arc::default());
    let mut kept = Vec::new();
    for _ in 0..5 {
        node.scans.lock().push_back(reply(endless(4, &alive, &made)));
        kept.push(client.scan(scan_request()).await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let ahead = made.load(Ordering::SeqCst);
    // Of a megabyte each: two in the window, a few more in buffers.
    assert!(ahead <= 20 * 6, "20 streams made {ahead} batches that nobody asked for");

    let begun = std::time::Instant::now();
    node.scans.lock().push_back(reply(vec![stream_of(vec![Ok(rows(0..3, 1))])]));
    let mut other = client.scan(scan_request()).await.unwrap();
    assert_eq!(numbers(other.streams.remove(0)).await, [0, 1, 2]);
    client.write(write_request(rows(0..1, 1))).await.unwrap();
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    drop(kept);
    eventually("all streams ended", || alive.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn a_dropped_scan_stops_the_work() {
    let node = Arc::new(FakeNode::default());
    let served = node.serve().await;
    let client = client(&served);
    let (alive, made) = (Arc::default(), Arc::default());
    node.scans.lock().push_back(reply(endless(4, &alive, &made)));
    let mut answer = client.scan(scan_request()).await.unwrap();
    for stream in &mut answer.streams {
        assert!(stream.next().await.unwrap().is_ok());
    }
    assert_eq!(alive.load(Ordering::SeqCst), 4);
    answer.streams.truncate(1);
    eventually("three streams ended", || alive.load(Ordering::SeqCst) == 1).await;
    assert!(answer.streams[0].next().await.unwrap().is_ok());
    drop(answer);
    eventually("the last stream ended", || alive.load(Ordering::SeqCst) == 0).await;

    // Before anything was read.
    node.scans.lock().push_back(reply(endless(100, &alive, &made)));
    drop(client.scan(scan_request()).await.unwrap());
    eventually("no stream is left", || alive.load(Ordering::SeqCst) == 0).await;

    // While the scan is opened.
    node.hangs.store(true, Ordering::SeqCst);
    tokio::select! {
        _ = client.scan(scan_request()) => panic!("it was opened"),
        () = eventually("the scan arrived", || node.waiting.load(Ordering::SeqCst) == 1) => {}
    }
    eventually("the scan was dropped", || node.waiting.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn many_dropped_scans_leave_the_connection_to_others() {
    let node = Arc::new(FakeNode::default());
    let served = node.serve().await;
    let client = client(&served);
    let (alive, made) = (Arc::default(), Arc::default());
    node.scans.lock().push_back(reply(endless(1, &alive, &made)));
    let mut kept = client.scan(scan_request()).await.unwrap().streams.remove(0);
    assert!(kept.next().await.unwrap().is_ok());
    for _ in 0..150 {
        node.scans.lock().push_back(reply(endless(20, &alive, &made)));
        let mut answer = client.scan(scan_request()).await.unwrap();
        assert!(answer.streams[0].next().await.unwrap().is_ok());
    }
    for _ in 0..10 {
        assert!(kept.next().await.unwrap().is_ok());
    }
    eventually("only the kept one is left", || alive.load(Ordering::SeqCst) == 1).await;
}

async fn serve_parked(node: &Arc<FakeNode>, parked: &Arc<Parked>) -> Served {
    let service = Arc::clone(node) as Arc<dyn DataService>;
    served(Routes::new(DataServer::with_parked(NODE, service, None, Arc::clone(parked)))).await
}

#[tokio::test]
async fn streams_that_nobody_fetches_are_dropped_after_a_while() {
    let node = Arc::new(FakeNode::default());
    let parked = Parked::new(Duration::from_secs(3));
    let served = serve_parked(&node, &parked).await;
    let mut client = Generated::new(channel(&Links::plain(), Role::Datanode, &served.address));
    let (alive, made) = (Arc::default(), Arc::default());
    node.scans.lock().push_back(reply(endless(3, &alive, &made)));
    let request = scan_request().to_wire().unwrap();
    let mut frames = client.scan(request.clone()).await.unwrap().into_inner();
    let header = frames.message().await.unwrap().unwrap().header.unwrap();
    assert_eq!((header.streams, parked.len()), (3, 2));
    let fetch = |stream| pb::FetchRequest { scan: header.scan, stream };
    let mut second = client.fetch(fetch(2)).await.unwrap().into_inner();
    assert!(client.fetch(fetch(2)).await.is_err(), "fetched twice");
    assert!(client.fetch(fetch(0)).await.is_err(), "the first is no other");
    eventually("the other was dropped", || alive.load(Ordering::SeqCst) == 2).await;
    assert_eq!(parked.len(), 0);
    assert!(client.fetch(fetch(1)).await.is_err(), "fetched too late");
    // Those that were fetched go on.
    assert!(!frames.message().await.unwrap().unwrap().rows.is_empty());
    assert!(!second.message().await.unwrap().unwrap().rows.is_empty());

    // And they are looked after the next time too.
    node.scans.lock().push_back(reply(endless(3, &alive, &made)));
    let _frames = client.scan(request).await.unwrap();
    eventually("the others were dropped", || alive.load(Ordering::SeqCst) == 3).await;
}

#[tokio::test]
async fn streams_that_nobody_fetched_are_dropped_with_the_first_but_not_at_its_end() {
    let node = Arc::new(FakeNode::default());
    let parked = Parked::new(Duration::from_secs(30));
    let served = serve_parked(&node, &parked).await;
    let mut client = Generated::new(channel(&Links::plain(), Role::Datanode, &served.address));
    let (alive, made) = (Arc::default(), Arc::default());
    let request = scan_request().to_wire().unwrap();
    node.scans.lock().push_back(reply(endless(3, &alive, &made)));
    let frames = client.scan(request.clone()).await.unwrap();
    assert_eq!(parked.len(), 2);
    drop(frames);
    eventually("all were dropped", || alive.load(Ordering::SeqCst) == 0).await;

    node.scans.lock().push_back(reply(vec![stream_of(vec![]), stream_of(vec![Ok(rows(0..2, 1))])]));
    let mut frames = client.scan(request).await.unwrap().into_inner();
    let header = frames.message().await.unwrap().unwrap().header.unwrap();
    while frames.message().await.unwrap().is_some() {}
    drop(frames);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let fetch = pb::FetchRequest { scan: header.scan, stream: 1 };
    let mut frames = client.fetch(fetch).await.unwrap().into_inner();
    assert!(!frames.message().await.unwrap().unwrap().rows.is_empty());
}

#[tokio::test]
async fn a_stream_whose_connection_breaks_is_an_error_not_an_end() {
    let node = Arc::new(FakeNode::default());
    let served = node.serve().await;
    let client = client(&served);
    let (alive, made) = (Arc::default(), Arc::default());
    node.scans.lock().push_back(reply(endless(2, &alive, &made)));
    let mut answer = client.scan(scan_request()).await.unwrap();
    assert!(answer.streams[1].next().await.unwrap().is_ok());
    drop(served);
    for stream in &mut answer.streams {
        let error = loop {
            match stream.next().await.unwrap() {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::Unavailable(_)), "{error}");
    }
    eventually("all streams ended", || alive.load(Ordering::SeqCst) == 0).await;
}
