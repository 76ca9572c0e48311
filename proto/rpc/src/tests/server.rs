//! Stopping a server.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use partita_proto::Error;
use partita_proto::id::PartitionId;
use partita_proto::service::DataService;

use super::{FakeNode, PATIENCE, client, eventually, within};

const PARTITION: PartitionId = PartitionId(1);

#[tokio::test]
async fn an_idle_server_stops_at_once() {
    // What is under way would be waited for that long.
    within(Duration::from_secs(2), async || {
        let node = Arc::new(FakeNode::default());
        let mut served = node.serve().await;
        let client = client(&served);
        client.flush_partition(PARTITION).await.unwrap();
        let begun = Instant::now();
        served.stop.cancel();
        assert_eq!((&mut served.task).await.unwrap(), Ok(()));
        let took = begun.elapsed();
        let error = client.flush_partition(PARTITION).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error}");
        took
    })
    .await;
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
    assert!((Duration::from_secs(1)..PATIENCE).contains(&took), "{took:?}");
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
    let ended = tokio::time::timeout(PATIENCE, hangs).await.unwrap().unwrap();
    assert!(matches!(ended, Err(Error::Unavailable(_))), "{ended:?}");
}
