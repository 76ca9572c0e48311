//! A node that stops while orders are carried out.

use std::time::Duration;

use super::*;

const SECOND: PartitionId = PartitionId(8);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_in_progress_does_not_fail_the_stop() {
    for steps in 0..24 {
        let dir = tempfile::tempdir().unwrap();
        let running = Running::start(dir.path()).await;
        for partition in [PARTITION, SECOND] {
            running.node.open_partition(PartitionSpec { partition, ..spec(false) }).await.unwrap();
            write_to(&running.node, (partition, Epoch(1)), 1, &[(1, 1)]).await.unwrap();
        }
        // The caller leaves; the order goes on.
        let node = Arc::clone(&running.node);
        let order = tokio::spawn(async move { node.drop_partition(SECOND, ReplicaId(1)).await });
        tokio::time::sleep(Duration::from_micros(250 * steps)).await;
        order.abort();
        running.stop().await;
        let running = Running::start(dir.path()).await;
        let rows = rows_of(&running.node, (PARTITION, Epoch(1))).await.unwrap();
        assert_eq!(rows, [(1, 1)], "after {steps} steps");
        // The order is given again until it is carried out.
        running.node.drop_partition(SECOND, ReplicaId(1)).await.unwrap();
        assert_eq!(running.node.status().await.unwrap().len(), 1);
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_has_stopped_refuses_orders() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    let spec = || PartitionSpec { partition: SECOND, ..spec(false) };
    running.node.open_partition(spec()).await.unwrap();
    running.node.shutdown().await.unwrap();
    for refused in [
        running.node.open_partition(spec()).await,
        running.node.drop_partition(SECOND, ReplicaId(1)).await,
    ] {
        assert!(matches!(&refused, Err(Error::Unavailable(_))), "{refused:?}");
    }
    running.host.shutdown().await.unwrap();
}
