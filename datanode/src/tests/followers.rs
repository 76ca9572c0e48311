//! Scans at followers, on three nodes.

use std::time::{Duration, Instant};

use super::cluster::{Cluster, PATIENCE, row, rows_to};
use super::table::Table;
use super::*;

const CHILD: PartitionId = PartitionId(8);

/// A read by any replica. The version is that of the tests' schema.
fn any_replica(staleness_max: Duration, schema: u32) -> ReadFrom {
    ReadFrom::AnyReplica { staleness_max, schema: SchemaVersion(schema) }
}

/// All rows as one node's replica has them, tried again while the node says that it may pass.
async fn rows_from(
    cluster: &Cluster,
    id: u64,
    target: (PartitionId, Epoch),
    read_from: ReadFrom,
) -> (Vec<(i64, i64)>, bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match scan_of(cluster.node(id), target, read_from).await {
            Ok(answer) => return answer,
            // The replica of a new partition may come later.
            Err(Error::NotFound { kind: "partition", .. }) => {}
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        assert!(Instant::now() < deadline, "node {id} never answers");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_answers_a_scan_with_all_acknowledged_rows_if_any_replica_may() {
    let cluster = Cluster::of_three(3, 510, false).await;
    let target = (PARTITION, Epoch(1));
    let mut by_followers = 0;
    for number in 1..30_i64 {
        cluster.write(number.cast_unsigned(), &[row(number - 1)]).await;
        for id in 1..=3 {
            let read_from = any_replica(Duration::ZERO, 1);
            let (rows, by_follower) = rows_from(&cluster, id, target, read_from).await;
            assert_eq!(rows, rows_to(number), "node {id}");
            by_followers += u64::from(by_follower);
        }
    }
    assert!(by_followers >= 29, "{by_followers} of 87");
    // Without the word of the sender, only the leader answers.
    let leader = cluster.leader().await;
    let refused = async |id: u64| match rows(cluster.node(id)).await {
        Err(Error::NotLeader { .. }) => 1,
        _ => 0,
    };
    let refusals = refused(1).await + refused(2).await + refused(3).await;
    assert!(refusals >= 1, "node {leader} leads, and all answered");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_neither_answers_for_a_range_that_it_gave_up_nor_lacks_what_it_has() {
    let cluster = Cluster::of_three(3, 511, false).await;
    let table = Table::new(&[1, 2, 3]);
    table.write(&cluster, 1, &rows_to(100)).await;
    // Points from before the split: they alone must not be enough after it.
    let long = any_replica(Duration::from_secs(3_600), 1);
    for id in 1..=3 {
        let (rows, _) = rows_from(&cluster, id, (PARTITION, Epoch(1)), long).await;
        assert_eq!(rows, rows_to(100), "node {id}");
    }
    table.split(&cluster, PARTITION, 40, CHILD.0).await;
    for read_from in [long, any_replica(Duration::ZERO, 1)] {
        for id in 1..=3 {
            let (left, _) = rows_from(&cluster, id, (PARTITION, Epoch(2)), read_from).await;
            let (right, _) = rows_from(&cluster, id, (CHILD, Epoch(2)), read_from).await;
            assert_eq!(left, rows_to(40), "node {id}");
            assert_eq!([left, right].concat(), rows_to(100), "node {id}");
            let stale = scan_of(cluster.node(id), (PARTITION, Epoch(1)), read_from).await;
            assert!(matches!(stale, Err(Error::StaleRoute { .. })), "node {id}: {stale:?}");
        }
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_merge_every_node_answers_for_all_of_the_range_and_none_for_what_is_gone() {
    let cluster = Cluster::of_three(3, 513, false).await;
    let table = Table::new(&[1, 2, 3]);
    table.write(&cluster, 1, &rows_to(100)).await;
    table.split(&cluster, PARTITION, 40, CHILD.0).await;
    let long = any_replica(Duration::from_secs(3_600), 1);
    for id in 1..=3 {
        rows_from(&cluster, id, (PARTITION, Epoch(2)), long).await;
        rows_from(&cluster, id, (CHILD, Epoch(2)), long).await;
    }
    table.merge(&cluster, PARTITION).await;
    let target = table.route(PARTITION).target();
    for read_from in [long, any_replica(Duration::ZERO, 1)] {
        for id in 1..=3 {
            let (rows, _) = rows_from(&cluster, id, target, read_from).await;
            assert_eq!(rows, rows_to(100), "node {id}");
        }
    }
    for id in 1..=3 {
        let linearizable = any_replica(Duration::ZERO, 1);
        let answer = scan_of(cluster.node(id), (CHILD, Epoch(2)), linearizable).await;
        assert!(answer.is_err(), "node {id}: {answer:?}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_with_a_bound_sees_all_rows_that_are_older_than_the_bound() {
    let cluster = Cluster::of_three(3, 512, false).await;
    let bound = Duration::from_millis(300);
    for number in 1..6_i64 {
        cluster.write(number.cast_unsigned(), &[row(number - 1)]).await;
        tokio::time::sleep(bound).await;
        for id in 1..=3 {
            let read_from = any_replica(bound, 1);
            let (rows, _) = rows_from(&cluster, id, (PARTITION, Epoch(1)), read_from).await;
            assert_eq!(rows, rows_to(number), "node {id}");
        }
    }
    cluster.stop().await;
}
