//! Writes and orders.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;
use futures::{StreamExt, TryStreamExt, stream};
use partita_proto::Error;
use partita_proto::catalog_history::{CatalogHistory, LEADERSHIPS_MAX, Leadership};
use partita_proto::id::{Epoch, NodeId, PartitionId, ReplicaId, TableId};
use partita_proto::materialized::{Capture, CaptureOrder, ChangesRequest};
use partita_proto::placement::Placement;
use partita_proto::range::{Bound, TypedRange};
use partita_proto::reshape::{Freeze, Reshape, Reshaped};
use partita_proto::service::{
    DataService, KeyOrder, PartitionSpec, ReplicaStatus, RequestId, ScanReply, WriteReply,
};
use partita_proto::value::Value;
use partita_tls::Links;
use tokio_util::sync::CancellationToken;

use super::status::every_error;
use super::{
    FakeNode, NODE, PATIENCE, changes, client, eventually, relay, replica_status, reserved, rows,
    scan_request, schema, silent, within, write_request,
};
use crate::DataClient;

const PARTITION: PartitionId = PartitionId(9);

fn spec() -> PartitionSpec {
    PartitionSpec {
        partition: PARTITION,
        table: TableId(1),
        epoch: Epoch(2),
        replica: ReplicaId(3),
        members: [(ReplicaId(3), NODE), (ReplicaId(4), NodeId(8))].into(),
        range: TypedRange {
            start: Bound { placement: None, key: vec![Value::Int(17)] },
            end: Bound::default(),
        },
        placement: Placement::Range,
        schema: Arc::new(schema()),
        join: true,
    }
}

#[tokio::test]
async fn every_call_arrives_as_it_was_made() {
    let node = Arc::new(FakeNode::default());
    let served = node.serve().await;
    let client = client(&served);
    let voters: BTreeMap<_, _> = [(ReplicaId(1), NodeId(2)), (ReplicaId(3), NodeId(4))].into();
    let id = RequestId { client: 1, sequence: 2 };

    let request = write_request(rows(0..3, 20));
    let owed = vec![TableId(12), TableId(13)];
    assert_eq!(client.write(request.clone()).await, Ok(WriteReply { index: 11, owed }));
    client.open_partition(spec()).await.unwrap();
    client.drop_partition(PARTITION, ReplicaId(2)).await.unwrap();
    client.reconfigure(PARTITION, voters.clone()).await.unwrap();
    client.transfer_leader(PARTITION, NodeId(3)).await.unwrap();
    let freeze = Freeze { partition: PARTITION, epoch: Epoch(4), on: true };
    let reshaped = client.reshape(Reshape::Freeze(freeze.clone())).await.unwrap();
    assert_eq!(reshaped, Reshaped { index: 7, stall: Duration::from_micros(9) });
    assert_eq!(client.middle_key(PARTITION).await, Ok(Some(Bound::placed(3))));
    client.truncate_partition(PARTITION, id).await.unwrap();
    client.alter_partition(PARTITION, Arc::new(schema())).await.unwrap();
    client.flush_partition(PARTITION).await.unwrap();
    client.compact_partition(PARTITION).await.unwrap();
    assert_eq!(client.status().await, Ok(vec![replica_status()]));
    let with_series = client.series_status().await.unwrap().remove(0);
    let figures = with_series.series.as_ref().map(|sketch| sketch.cardinality());
    assert_eq!(figures.map(|figures| figures.series), Some(1));
    assert_eq!(ReplicaStatus { series: None, ..with_series }, replica_status());
    let measured = client.measured_status().await.unwrap().remove(0);
    assert_eq!(measured.measures.as_ref().map(|measures| measures.folded), Some(20));
    assert_eq!(ReplicaStatus { measures: None, ..measured }, replica_status());

    let expected = [
        format!("{request:?}"),
        format!("{:?}", spec()),
        "drop 9 2".to_owned(),
        format!("reconfigure 9 {voters:?}"),
        "transfer 9 3".to_owned(),
        format!("{:?}", Reshape::Freeze(freeze)),
        "middle 9".to_owned(),
        format!("truncate 9 {id:?}"),
        format!("alter 9 {:?}", schema()),
        "flush 9".to_owned(),
        "compact 9".to_owned(),
        "status".to_owned(),
        "series status".to_owned(),
        "measured status".to_owned(),
    ];
    assert_eq!(*node.asked.lock(), expected);
}

#[tokio::test]
async fn calls_about_copies_arrive_as_they_were_made() {
    let node = Arc::new(FakeNode::default());
    let served = node.serve().await;
    let client = client(&served);
    let order = CaptureOrder { copy: TableId(3), capture: Capture::Shipped(u64::MAX) };
    assert_eq!(client.capture(PARTITION, Epoch(4), order).await, Ok(21));
    let request = ChangesRequest {
        partition: PARTITION,
        epoch: Epoch(4),
        copy: TableId(3),
        after: 30,
        bytes_max: 1 << 20,
    };
    assert_eq!(client.changes(request).await, Ok(changes()));
    let stream = stream::iter([Ok(rows(0..3, 20)), Ok(rows(3..5, 20))]).boxed();
    let order_of_rows = Some(KeyOrder::DESCENDING);
    let stats = Arc::default();
    let reply = ScanReply { streams: vec![stream], order: order_of_rows, stats, index: 0 };
    node.scans.lock().push_back(reply);
    let (index, filled) = client.fill(TableId(3), scan_request()).await.unwrap();
    assert_eq!((index, filled.streams.len()), (22, 1));
    assert_eq!(filled.order, Some(KeyOrder::DESCENDING));
    let streams = stream::iter(filled.streams).flatten();
    let batches: Vec<RecordBatch> = streams.try_collect().await.unwrap();
    assert_eq!(batches, [rows(0..3, 20), rows(3..5, 20)]);
    let expected = [
        format!("capture 9 4 {order:?}"),
        format!("{request:?}"),
        format!("fill 3 {:?}", scan_request()),
    ];
    assert_eq!(*node.asked.lock(), expected);

    let gap = Error::Gap { partition: PARTITION };
    *node.fails.lock() = Some(gap.clone());
    assert_eq!(client.capture(PARTITION, Epoch(4), order).await, Err(gap.clone()));
    assert_eq!(client.changes(request).await, Err(gap.clone()));
    assert_eq!(client.fill(TableId(3), scan_request()).await.err(), Some(gap));
}

#[tokio::test]
async fn every_error_arrives_as_it_was_sent() {
    let node = Arc::new(FakeNode::default());
    let served = node.serve().await;
    let client = client(&served);
    for error in every_error() {
        *node.fails.lock() = Some(error.clone());
        assert_eq!(client.write(write_request(rows(0..1, 1))).await, Err(error.clone()));
        assert_eq!(client.flush_partition(PARTITION).await, Err(error.clone()));
        assert_eq!(client.scan(scan_request()).await.err(), Some(error));
    }
}

#[tokio::test]
async fn a_large_write_arrives_and_one_too_large_is_refused_for_good() {
    let node = Arc::new(FakeNode::default());
    let served = node.serve().await;
    let client = client(&served);
    client.write(write_request(rows(0..8, 1 << 20))).await.unwrap();
    let error = client.write(write_request(rows(0..65, 1 << 20))).await.unwrap_err();
    assert!(matches!(error, Error::InvalidInput(_)), "{error}");
    // And the connection goes on.
    client.write(write_request(rows(0..2, 1 << 20))).await.unwrap();
}

#[tokio::test]
async fn a_request_that_is_dropped_is_dropped_on_the_other_side() {
    let node = Arc::new(FakeNode::default());
    let served = node.serve().await;
    let client = client(&served);
    node.hangs.store(true, Ordering::SeqCst);
    let waits = tokio::spawn(async move { client.flush_partition(PARTITION).await });
    eventually("the order arrived", || node.waiting.load(Ordering::SeqCst) == 1).await;
    waits.abort();
    eventually("the order was dropped", || node.waiting.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn a_node_that_hangs_is_unavailable_within_seconds() {
    let (address, _task) = silent().await;
    let client = DataClient::new(&Links::plain(), NODE, &address);
    let begun = Instant::now();
    let (small, large, scan) = tokio::join!(
        client.write(write_request(rows(0..1, 1))),
        client.write(write_request(rows(0..1, 1 << 20))),
        client.scan(scan_request()),
    );
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    for error in [small.unwrap_err(), large.unwrap_err(), scan.err().unwrap()] {
        assert!(matches!(error, Error::Unavailable(_)), "{error}");
        assert!(error.to_string().contains(&format!("node 7 at {address}")), "{error}");
    }
}

#[tokio::test]
async fn a_node_that_stops_amid_everything_is_unavailable_within_seconds() {
    let node = Arc::new(FakeNode::default());
    let served = node.serve().await;
    let stop = CancellationToken::new();
    let client =
        DataClient::new(&Links::plain(), NODE, &relay(&served.address, stop.clone()).await);
    client.flush_partition(PARTITION).await.unwrap();
    node.hangs.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    let (under_way, sent_later) = tokio::join!(client.flush_partition(PARTITION), async {
        eventually("the order arrived", || node.waiting.load(Ordering::SeqCst) == 1).await;
        stop.cancel();
        tokio::time::sleep(Duration::from_millis(500)).await;
        client.compact_partition(PARTITION).await
    });
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    for answer in [under_way, sent_later] {
        assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
    }
}

#[tokio::test]
async fn a_node_that_is_not_there_is_unavailable_at_once_and_found_when_it_is_back() {
    let node = Arc::new(FakeNode::default());
    let (_reserved, address) = reserved();
    let serve = async || {
        let service = crate::DataServer::server(NODE, Arc::clone(&node) as Arc<dyn DataService>);
        super::served_at(&address, tonic::service::Routes::new(service)).await
    };
    let served = serve().await;
    let client = DataClient::new(&Links::plain(), NODE, &address);
    client.flush_partition(PARTITION).await.unwrap();
    drop(served);
    // The connection ends a moment later.
    within(Duration::from_secs(3), async || {
        let begun = Instant::now();
        let mut failures = 0;
        while failures < 20 {
            match client.flush_partition(PARTITION).await {
                Err(Error::Unavailable(text)) => {
                    assert!(text.contains(&address), "{text}");
                    failures += 1;
                }
                other => assert_eq!(other, Ok(())),
            }
        }
        begun.elapsed()
    })
    .await;

    let _served = serve().await;
    let deadline = Instant::now() + PATIENCE;
    while client.flush_partition(PARTITION).await.is_err() {
        assert!(Instant::now() < deadline, "not found again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn orders_bear_the_past_of_their_catalog_and_are_refused_for_it_before_they_are_carried_out()
{
    let node = Arc::new(FakeNode::default());
    let served = node.serve().await;
    let leaderships = (1..=LEADERSHIPS_MAX as u64)
        .map(|n| Leadership { first: u64::MAX - 500 + n, term: u64::MAX, nonce: u64::MAX - n })
        .collect();
    let catalog = CatalogHistory { cluster: 5, version: u64::MAX, leaderships };
    let client = client(&served).ordering(&catalog);
    client.drop_partition(PARTITION, ReplicaId(2)).await.unwrap();
    // What is no order does not bear it.
    client.flush_partition(PARTITION).await.unwrap();
    let expected = [format!("{catalog:?}"), "drop 9 2".to_owned(), "flush 9".to_owned()];
    assert_eq!(*node.asked.lock(), expected);

    node.asked.lock().clear();
    let refused = Error::InvalidInput("an older catalog".to_owned());
    *node.fails.lock() = Some(refused.clone());
    let id = RequestId { client: 1, sequence: 2 };
    let freeze = Freeze { partition: PARTITION, epoch: Epoch(4), on: true };
    assert_eq!(client.open_partition(spec()).await, Err(refused.clone()));
    assert_eq!(client.drop_partition(PARTITION, ReplicaId(2)).await, Err(refused.clone()));
    assert_eq!(client.reconfigure(PARTITION, BTreeMap::new()).await, Err(refused.clone()));
    assert_eq!(client.transfer_leader(PARTITION, NodeId(3)).await, Err(refused.clone()));
    assert_eq!(client.reshape(Reshape::Freeze(freeze)).await, Err(refused.clone()));
    assert_eq!(client.truncate_partition(PARTITION, id).await, Err(refused.clone()));
    assert_eq!(client.alter_partition(PARTITION, Arc::new(schema())).await, Err(refused));
    assert_eq!(*node.asked.lock(), vec![format!("{catalog:?}"); 7]);
}
