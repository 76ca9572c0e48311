//! Merges of partitions, on three nodes.

use partita_proto::reshape::{Absorb, Freeze, Reshape};

use super::cluster::{Cluster, others, rows_to};
use super::split::{rows_from, stale_route, under_writes, until_everywhere};
use super::table::{Table, bound};
use super::*;

const CHILD: PartitionId = PartitionId(8);

/// A table of two partitions, cut at 30, with rows up to 50.
async fn two(seed: u64, append_mode: bool) -> (Cluster, Table) {
    let cluster = Cluster::of_three(3, seed, append_mode).await;
    let table = Table::new(&[1, 2, 3]);
    table.write(&cluster, 1, &rows_to(50)).await;
    table.split(&cluster, PARTITION, 30, CHILD.0).await;
    until_everywhere(&cluster, &table, CHILD, 20).await;
    (cluster, table)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neighbours_become_one_with_all_rows_and_requests_of_both() {
    let (mut cluster, table) = two(41, true).await;
    table.write(&cluster, 2, &rows_from(50, 60)).await;
    table.write(&cluster, 3, &rows_from(-10, 0)).await;
    table.merge(&cluster, PARTITION).await;
    assert_eq!(table.routes().len(), 1);
    assert_eq!(table.rows(&cluster).await, rows_from(-10, 60));
    // What either has taken is known.
    table.write(&cluster, 2, &rows_from(50, 60)).await;
    table.write(&cluster, 3, &rows_from(-10, 0)).await;
    table.write(&cluster, 4, &rows_from(60, 65)).await;
    until_everywhere(&cluster, &table, PARTITION, 75).await;
    for id in 1..=3 {
        assert!(cluster.status_of(id, CHILD).await.is_none());
        cluster.kill(id).await;
    }
    for id in 1..=3 {
        cluster.start(id).await;
    }
    assert_eq!(table.rows(&cluster).await, rows_from(-10, 65));
    until_everywhere(&cluster, &table, PARTITION, 75).await;
    for id in 1..=3 {
        cluster.node(id).compact_partition(PARTITION).await.unwrap();
    }
    assert_eq!(table.rows(&cluster).await, rows_from(-10, 65));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn splits_and_merges_under_writes_lose_no_row_and_double_none() {
    let cluster = Cluster::of_three(3, 42, true).await;
    let table = Table::new(&[1, 2, 3]);
    under_writes(&cluster, &table, async |traffic| {
        traffic.goes_on().await;
        table.split(&cluster, PARTITION, 20_000, 8).await;
        traffic.goes_on().await;
        table.split(&cluster, PartitionId(8), 30_000, 9).await;
        traffic.goes_on().await;
        table.merge(&cluster, PartitionId(8)).await;
        traffic.goes_on().await;
        for id in 1..=3 {
            cluster.node(id).compact_partition(PARTITION).await.unwrap();
        }
        table.merge(&cluster, PARTITION).await;
        traffic.goes_on().await;
        table.split(&cluster, PARTITION, 10_000, 10).await;
        table.merge(&cluster, PARTITION).await;
        traffic.goes_on().await;
    })
    .await;
    assert_eq!(table.routes().len(), 1);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_half_did_is_not_taken_for_the_others_when_they_are_one_again() {
    let (cluster, table) = two(46, true).await;
    // A write of both halves that was cut: one part took effect, the other one did not get through.
    let whole = RequestId { client: 5, sequence: 1 };
    let [left, right] = [2, 3].map(|sequence| (RequestId { client: 5, sequence }, vec![whole]));
    let send = async |target, ids: &(RequestId, Vec<RequestId>), rows: Vec<(i64, i64)>| {
        let ask =
            async |_, node: Arc<Datanode>| write_part(&node, target, ids.clone(), &rows).await;
        cluster.anywhere("a write", ask).await
    };
    let first = send((PARTITION, Epoch(2)), &left, rows_from(20, 30)).await;
    table.merge(&cluster, PARTITION).await;
    let one = (PARTITION, Epoch(3));
    assert_eq!(send(one, &left, rows_from(20, 30)).await, first, "it took effect");
    let second = send(one, &right, rows_from(30, 40)).await;
    assert!(second > first, "it takes effect now");
    assert_eq!(send(one, &right, rows_from(30, 40)).await, second);
    // As one it would be a third: it never took effect as one.
    let mut expected = [rows_to(50), rows_from(20, 40)].concat();
    expected.sort_unstable();
    let mut found = table.rows(&cluster).await;
    found.sort_unstable();
    assert_eq!(found, expected);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_partition_is_not_read_or_written_until_it_is_given_free() {
    let (cluster, table) = two(43, false).await;
    let order = table.freeze(&cluster, PARTITION).await;
    let again = table.freeze(&cluster, PARTITION).await;
    assert_eq!(order, again, "the same order is answered as before");
    let child = async |epoch| {
        let ask = async |_, node: Arc<Datanode>| match rows_of(&node, (CHILD, epoch)).await {
            Err(error @ Error::NotLeader { .. }) => Err(error),
            other => Ok(other),
        };
        cluster.anywhere("an answer", ask).await
    };
    assert!(matches!(child(Epoch(2)).await, Err(Error::StaleRoute { current: Epoch(3), .. })));
    assert!(matches!(child(Epoch(3)).await, Err(Error::Unavailable(_))));
    for id in 1..=3 {
        let node = cluster.node(id);
        let old = write_to(node, (CHILD, Epoch(2)), 9, &rows_from(30, 31)).await;
        assert!(matches!(old, Err(Error::StaleRoute { .. })), "{old:?}");
        let new = write_to(node, (CHILD, Epoch(3)), 9, &rows_from(30, 31)).await;
        assert!(matches!(new, Err(Error::Unavailable(_))), "{new:?}");
        let truncated = node.truncate_partition(CHILD, RequestId { client: 5, sequence: 5 }).await;
        assert!(matches!(truncated, Err(Error::Unavailable(_))), "{truncated:?}");
    }
    // To give a merge up, first make sure that it can no longer happen.
    let fence = Freeze { partition: PARTITION, epoch: order.epoch, on: false };
    Table::order_anywhere(&cluster, &Reshape::Freeze(fence)).await;
    let late = Reshape::Absorb(order);
    let ask = async |_, node: Arc<Datanode>| stale_route(node.reshape(late.clone()).await);
    let refused = cluster.anywhere("a refusal", ask).await;
    assert!(matches!(refused, Error::StaleRoute { current: Epoch(3), .. }), "{refused:?}");
    let free = Freeze { partition: CHILD, epoch: Epoch(3), on: false };
    Table::order_anywhere(&cluster, &Reshape::Freeze(free)).await;
    table.set_epoch(PARTITION, Epoch(3));
    table.set_epoch(CHILD, Epoch(4));
    table.write(&cluster, 9, &rows_from(50, 60)).await;
    assert_eq!(table.rows(&cluster).await, rows_to(60));
    // And now it does come about.
    table.merge(&cluster, PARTITION).await;
    assert_eq!(table.rows(&cluster).await, rows_to(60));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_was_away_takes_its_neighbour_over_when_it_gets_there() {
    let (mut cluster, table) = two(44, true).await;
    let order = table.freeze(&cluster, PARTITION).await;
    let away = others(cluster.leader_of(PARTITION, &table).await)[0];
    cluster.kill(away).await;
    Table::order_anywhere(&cluster, &Reshape::Absorb(order.clone())).await;
    table.merged(&order);
    table.write(&cluster, 5, &rows_from(50, 60)).await;
    assert_eq!(table.rows(&cluster).await, rows_to(60));
    cluster.start(away).await;
    until_everywhere(&cluster, &table, PARTITION, 60).await;
    cluster.kill(others(away)[0]).await;
    table.write(&cluster, 6, &rows_from(60, 70)).await;
    assert_eq!(table.rows(&cluster).await, rows_to(70));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_to_merge_that_do_not_fit_are_refused_and_change_nothing() {
    let (cluster, table) = two(45, false).await;
    let (_, absorb) = table.merge_orders(PARTITION);
    for unfit in [
        Absorb { end: bound(20), ..absorb.clone() },
        Absorb { partition: CHILD, epoch: Epoch(2), ..absorb.clone() },
    ] {
        let ask =
            async |_, node: Arc<Datanode>| match node.reshape(Reshape::Absorb(unfit.clone())).await
            {
                Err(error @ Error::InvalidInput(_)) => Ok(error),
                Err(error) => Err(error),
                Ok(done) => panic!("{unfit:?} was done: {done:?}"),
            };
        cluster.anywhere("a refusal", ask).await;
    }
    assert_eq!(table.rows(&cluster).await, rows_to(50));
    cluster.stop().await;
}
