//! How a server stops.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use partita_proto::Error;
use partita_proto::id::PartitionId;
use partita_proto::service::DataService;

use super::{FakeNode, client, eventually};

const PARTITION: PartitionId = PartitionId(1);

#[tokio::test]
async fn an_idle_server_stops_at_once() {
    let node = Arc::new(FakeNode::default());
    let mut served = node.serve().await;
    let client = client(&served);
    client.flush_partition(PARTITION).await.unwrap();
    served.stop.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(2), &mut served.task).await;
    assert_eq!(ended.unwrap().unwrap(), Ok(()));
    let error = client.flush_partition(PARTITION).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
}

#[tokio::test]
async fn what_is_under_way_ends_and_what_hangs_is_cut() {
    let node = Arc::new(FakeNode::default());
    let mut served = node.serve().await;
    let client = Arc::new(client(&served));
    node.hangs.store(true, Ordering::SeqCst);
    let hangs = tokio::spawn({
        let client = Arc::clone(&client);
        async move { client.flush_partition(PARTITION).await }
    });
    eventually("the order arrived", || node.waiting.load(Ordering::SeqCst) == 1).await;
    served.stop.cancel();
    let begun = Instant::now();
    assert_eq!((&mut served.task).await.unwrap(), Ok(()));
    let took = begun.elapsed();
    assert!((Duration::from_secs(4)..Duration::from_secs(8)).contains(&took), "{took:?}");
    let error = hangs.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
    eventually("the order was dropped", || node.waiting.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn a_server_that_is_dropped_cuts_its_connections() {
    let node = Arc::new(FakeNode::default());
    let served = node.serve().await;
    let client = client(&served);
    node.hangs.store(true, Ordering::SeqCst);
    let hangs = tokio::spawn(async move { client.flush_partition(PARTITION).await });
    eventually("the order arrived", || node.waiting.load(Ordering::SeqCst) == 1).await;
    drop(served);
    let ended = tokio::time::timeout(Duration::from_secs(2), hangs).await.unwrap().unwrap();
    assert!(matches!(ended, Err(Error::Unavailable(_))), "{ended:?}");
}
