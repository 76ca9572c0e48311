//! Splits of partitions, on three nodes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use partita_proto::range::Bound;
use partita_proto::reshape::{Reshape, Reshaped, Split};

use super::cluster::{Cluster, MANY_ROWS, others, row, rows_to};
use super::table::{Table, bound, replica};
use super::*;

const CHILD: PartitionId = PartitionId(8);

pub(super) fn rows_from(start: i64, end: i64) -> Vec<(i64, i64)> {
    (start..end).map(row).collect()
}

async fn reshape(cluster: &Cluster, id: u64, split: &Split) -> Result<Reshaped, Error> {
    cluster.node(id).reshape(Reshape::Split(split.clone())).await
}

/// Waits until nodes have the replicas of a partition that was cut off.
async fn until_born(cluster: &Cluster, partition: PartitionId, nodes: &[u64]) {
    let all_there = async || {
        let mut all = true;
        for id in nodes {
            all &= cluster.status_of(*id, partition).await.is_some();
        }
        all
    };
    cluster.until("the child is not everywhere", all_there).await;
}

/// Waits until every replica of a partition has so many rows.
pub(super) async fn until_everywhere(
    cluster: &Cluster,
    table: &Table,
    partition: PartitionId,
    rows: usize,
) {
    let nodes = table.route(partition).nodes;
    until_born(cluster, partition, &nodes).await;
    let equal = async || {
        let contents = table.contents(cluster, partition).await;
        contents.values().all(|count| *count == rows)
    };
    cluster.until("not all replicas have all rows", equal).await;
}

/// The refusal of a request with a stale route; nodes that do not lead are skipped.
pub(super) fn stale_route<T: fmt::Debug>(answer: Result<T, Error>) -> Result<Error, Error> {
    match answer {
        Err(error @ Error::StaleRoute { .. }) => Ok(error),
        Err(error) => Err(error),
        Ok(done) => panic!("an old route was taken: {done:?}"),
    }
}

/// A partition that was cut at 40, with rows up to 100.
struct Halved {
    cluster: Cluster,
    table: Table,
    order: Split,
    done: Reshaped,
}

/// Cuts a partition: whoever leads it leads the child, without an election. If an election came in between, because the
/// machine is busy, that shows in the terms, and another one is cut.
async fn inherited() -> Halved {
    for attempt in 0..10 {
        let cluster = Cluster::of_three(3, 210 + attempt, false).await;
        let table = Table::new(&[1, 2, 3]);
        table.write(&cluster, 1, &rows_to(100)).await;
        let leader = cluster.leader().await;
        let before = cluster.status(leader).await;
        let order = table.order(PARTITION, 40, CHILD.0);
        let done = table.split(&cluster, PARTITION, 40, CHILD.0).await;
        assert!(done.index > 0);
        until_born(&cluster, CHILD, &[leader]).await;
        let (parent, child) =
            (cluster.status(leader).await, cluster.status_of(leader, CHILD).await.unwrap());
        assert_eq!(parent.epoch, child.epoch);
        assert_eq!(child.replica, replica(CHILD, leader));
        // The same one said the same before and after: what it wrote, its child must have begun with.
        let same = before.leader && parent.leader && before.term == parent.term;
        if same && child.leader {
            assert_eq!(child.term, parent.term, "{child:?}");
            return Halved { cluster, table, order, done };
        }
        println!("attempt {attempt}: {before:?}, then {parent:?} and {child:?}");
        cluster.stop().await;
    }
    panic!("a child was never led by its parent's leader");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_halves_are_read_and_written_at_once_and_old_routes_are_refused() {
    let Halved { mut cluster, table, order, done } = inherited().await;
    // A request with a stale route is refused.
    let stale = Error::StaleRoute { partition: PARTITION, requested: Epoch(1), current: Epoch(2) };
    let ask = async |_, node: Arc<Datanode>| stale_route(write(&node, 2, &[row(1)]).await);
    assert_eq!(cluster.anywhere("a refusal", ask).await, stale);
    let ask = async |_, node: Arc<Datanode>| stale_route(rows(&node).await);
    assert_eq!(cluster.anywhere("a refusal", ask).await, stale);
    let ask = async |_, node: Arc<Datanode>| rows_of(&node, (PARTITION, Epoch(2))).await;
    assert_eq!(cluster.anywhere("a scan", ask).await, rows_to(40));
    table.write(&cluster, 3, &rows_from(100, 120)).await;
    table.write(&cluster, 4, &rows_from(-20, 0)).await;
    assert_eq!(table.rows(&cluster).await, rows_from(-20, 120));
    // The same order again is answered as before, and changes nothing.
    let again = cluster.anywhere("an order", async |id, _| reshape(&cluster, id, &order).await);
    assert_eq!(again.await.index, done.index);
    until_everywhere(&cluster, &table, CHILD, 80).await;
    until_everywhere(&cluster, &table, PARTITION, 60).await;
    // Any replica can take either over, also after a restart of all.
    for id in 1..=3 {
        cluster.kill(id).await;
    }
    for id in 1..=3 {
        cluster.start(id).await;
    }
    assert_eq!(table.rows(&cluster).await, rows_from(-20, 120));
    let again = cluster.anywhere("an order", async |id, _| reshape(&cluster, id, &order).await);
    assert_eq!(
        again.await.index,
        done.index,
        "how long it took is forgotten, but not that it was done"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_child_is_led_at_once_by_the_replica_that_the_order_names() {
    for attempt in 0..10 {
        let cluster = Cluster::of_three(3, 310 + attempt, false).await;
        let table = Table::new(&[1, 2, 3]);
        table.write(&cluster, 1, &rows_to(100)).await;
        let leader = cluster.leader().await;
        let before = cluster.status(leader).await;
        let named = others(leader)[0];
        let order = table.order(PARTITION, 40, CHILD.0);
        let order = Split { leader: Some(NodeId(named)), ..order };
        let done = table.split_by(&cluster, &order, 40).await;
        table.write(&cluster, 2, &rows_from(100, 110)).await;
        table.write(&cluster, 3, &rows_from(-5, 0)).await;
        assert_eq!(table.rows(&cluster).await, rows_from(-5, 110));
        // An order that names nobody is the same change.
        let again = Split { leader: None, ..order };
        let again = cluster.anywhere("an order", async |id, _| reshape(&cluster, id, &again).await);
        assert_eq!(again.await.index, done.index);
        until_born(&cluster, CHILD, &[named]).await;
        let parent = cluster.status(leader).await;
        let child = cluster.status_of(named, CHILD).await.unwrap();
        cluster.stop().await;
        // Unless an election came in between, because the machine is busy.
        let same = before.leader && parent.leader && before.term == parent.term;
        if same && child.leader {
            assert_eq!(child.term, parent.term, "{child:?}");
            return;
        }
        println!("attempt {attempt}: {before:?}, then {parent:?} and {child:?}");
    }
    panic!("a child was never led by the replica that was named");
}

/// Writes and reads continue while the partitions of an append-mode table are changed: no row is hidden, lost or
/// doubled.
pub(super) async fn under_writes(
    cluster: &Cluster,
    table: &Table,
    change: impl AsyncFnOnce(&Traffic<'_>),
) {
    let stop = AtomicBool::new(false);
    // Each writer writes ids of its own over the whole range, one row or many.
    let begun: Vec<AtomicI64> = (0..4).map(|_| AtomicI64::new(0)).collect();
    let acknowledged: Vec<AtomicI64> = (0..4).map(|_| AtomicI64::new(0)).collect();
    let id_of = |writer: i64, number: i64| (number * 7919 % 10_000) * 4 + writer;
    let rows_of_write = |writer: usize, number: i64| -> Vec<(i64, i64)> {
        let writer = i64::try_from(writer).unwrap();
        let count = 1 + number % 5;
        (0..count).map(|at| (id_of(writer, number * 5 + at), number)).collect()
    };
    let expected = |upto: &[AtomicI64]| -> Vec<(i64, i64)> {
        let of = |(writer, upto): (usize, &AtomicI64)| {
            let upto = upto.load(Ordering::Acquire);
            (0..upto).flat_map(move |number| rows_of_write(writer, number)).collect::<Vec<_>>()
        };
        upto.iter().enumerate().flat_map(of).collect()
    };
    let writers = (0..4).map(|writer| {
        let stop = &stop;
        let (begun, acknowledged) = (&begun[writer], &acknowledged[writer]);
        async move {
            let mut number = 0;
            while !stop.load(Ordering::Acquire) {
                begun.store(number + 1, Ordering::Release);
                let sequence = (writer as u64) << 32 | number.cast_unsigned();
                table.write(cluster, sequence, &rows_of_write(writer, number)).await;
                number += 1;
                acknowledged.store(number, Ordering::Release);
            }
        }
    });
    let reads = AtomicI64::new(0);
    let reader = async {
        while !stop.load(Ordering::Acquire) {
            let before: BTreeSet<(i64, i64)> = expected(&acknowledged).into_iter().collect();
            let found = table.rows(cluster).await;
            let after: BTreeSet<(i64, i64)> = expected(&begun).into_iter().collect();
            let distinct: BTreeSet<(i64, i64)> = found.iter().copied().collect();
            assert_eq!(distinct.len(), found.len(), "a row is doubled");
            let lost: Vec<_> = before.difference(&distinct).collect();
            assert!(lost.is_empty(), "rows are hidden: {lost:?}");
            let invented: Vec<_> = distinct.difference(&after).collect();
            assert!(invented.is_empty(), "rows come from nowhere: {invented:?}");
            reads.fetch_add(1, Ordering::Release);
        }
    };
    let changes = async {
        change(&Traffic { cluster, acknowledged: &acknowledged, reads: &reads }).await;
        stop.store(true, Ordering::Release);
    };
    tokio::join!(futures::future::join_all(writers), reader, changes);
    let mut expected = expected(&acknowledged);
    expected.sort_unstable();
    let mut found = table.rows(cluster).await;
    found.sort_unstable();
    assert_eq!(found, expected);
}

/// Reads and writes that run in the background of a test.
pub(super) struct Traffic<'a> {
    cluster: &'a Cluster,
    acknowledged: &'a [AtomicI64],
    reads: &'a AtomicI64,
}

impl Traffic<'_> {
    /// Waits until every writer has written more, and everything was read once more.
    pub(super) async fn goes_on(&self) {
        let now = |counts: &[AtomicI64]| -> Vec<i64> {
            counts.iter().map(|count| count.load(Ordering::Acquire)).collect()
        };
        let (written, read) = (now(self.acknowledged), self.reads.load(Ordering::Acquire));
        let gone_on = async || {
            let more = now(self.acknowledged);
            let mut writers = more.iter().zip(&written);
            writers.all(|(now, before)| *now >= before + 5)
                && self.reads.load(Ordering::Acquire) > read
        };
        self.cluster.until("writes and reads do not go on", gone_on).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn splits_under_writes_lose_no_row_and_double_none() {
    let cluster = Cluster::of_three(3, 22, true).await;
    let table = Table::new(&[1, 2, 3]);
    under_writes(&cluster, &table, async |traffic| {
        traffic.goes_on().await;
        for (partition, at, child) in
            [(7, 20_000, 8), (8, 30_000, 9), (7, 10_000, 10), (7, 5_000, 11), (9, 35_000, 12)]
        {
            table.split(&cluster, PartitionId(partition), at, child).await;
            traffic.goes_on().await;
        }
    })
    .await;
    assert_eq!(table.routes().len(), 6);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_was_away_is_cut_when_it_gets_there_and_has_both_halves_then() {
    let mut cluster = Cluster::of_three(3, 23, false).await;
    let table = Table::new(&[1, 2, 3]);
    table.write(&cluster, 1, &rows_to(50)).await;
    let leader = cluster.leader().await;
    cluster.converge(&[1, 2, 3]).await;
    let away = others(leader)[0];
    cluster.kill(away).await;
    table.write(&cluster, 2, &rows_from(50, 60)).await;
    table.split(&cluster, PARTITION, 30, CHILD.0).await;
    // Two in a row, and the child sends to one that does not know it.
    table.split(&cluster, CHILD, 45, 9).await;
    table.write(&cluster, 3, &rows_from(60, 80)).await;
    table.write(&cluster, 4, &rows_from(20, 50)).await;
    cluster.start(away).await;
    for (partition, rows) in [(PARTITION, 30), (CHILD, 15), (PartitionId(9), 35)] {
        until_everywhere(&cluster, &table, partition, rows).await;
    }
    // Once it is back, one of the others is not needed.
    let gone = others(leader)[1];
    cluster.kill(gone).await;
    table.write(&cluster, 5, &rows_from(80, 90)).await;
    assert_eq!(table.rows(&cluster).await, rows_to(90));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_gets_the_parents_files_from_after_the_cut_begins_the_child_empty() {
    let mut cluster = Cluster::of_three(3, 24, false).await;
    let table = Table::new(&[1, 2, 3]);
    table.write(&cluster, 1, &rows_to(50)).await;
    cluster.converge(&[1, 2, 3]).await;
    let away = others(cluster.leader().await)[0];
    cluster.kill(away).await;
    table.split(&cluster, PARTITION, 30, CHILD.0).await;
    until_born(&cluster, CHILD, &others(away)).await;
    // The parent's log is given up, so that its files have to be sent.
    let mut sequence = 10;
    while !others(away).iter().all(|id| cluster.group(*id).status().purged > Some(5)) {
        let many: Vec<_> = (0..MANY_ROWS).map(|number| row(-1 - number)).collect();
        for _ in 0..5 {
            sequence += 1;
            table.write(&cluster, sequence, &many).await;
        }
        for id in others(away) {
            cluster.flush(id).await;
        }
    }
    // One of the two that made the child by the split is lost: the other one cannot decide alone.
    let gone = others(away)[0];
    cluster.kill(gone).await;
    cluster.start(away).await;
    let narrower = async || cluster.status(away).await.epoch == Epoch(2);
    cluster.until("the parent's files never came", narrower).await;
    let content = cluster.node(away).content(PARTITION).await.unwrap();
    let rows: usize = content.rows.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, usize::try_from(MANY_ROWS).unwrap() + 30);
    until_born(&cluster, CHILD, &[away]).await;
    let child = cluster.status_of(away, CHILD).await.unwrap();
    assert_eq!((child.replica, child.failure), (replica(CHILD, away), None));
    // It votes for the one with the rows, which sends it everything.
    assert_eq!(table.rows(&cluster).await, rows_from(-MANY_ROWS, 50));
    table.write(&cluster, sequence + 1, &rows_from(50, 60)).await;
    cluster.kill(away).await;
    cluster.start(gone).await;
    cluster.start(away).await;
    until_everywhere(&cluster, &table, CHILD, 30).await;
    assert_eq!(table.rows(&cluster).await, rows_from(-MANY_ROWS, 60));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_is_sent_again_after_a_split_takes_effect_once_in_each_half() {
    let cluster = Cluster::of_three(3, 25, true).await;
    let table = Table::new(&[1, 2, 3]);
    table.write(&cluster, 1, &rows_to(50)).await;
    let first = cluster.write(1, &rows_to(50)).await;
    let done = table.split(&cluster, PARTITION, 30, CHILD.0).await;
    assert!(first < done.index);
    // Its answer was lost; by the new map it is two requests with one identity.
    table.write(&cluster, 1, &rows_to(50)).await;
    assert_eq!(table.rows(&cluster).await, rows_to(50));
    let child = (CHILD, Epoch(2));
    let again = rows_from(30, 50);
    let ask = async |_, node: Arc<Datanode>| write_to(&node, child, 1, &again).await;
    assert_eq!(cluster.anywhere("a write", ask).await, first);
    // One that came too late for the parent has no effect there, and takes effect where it belongs.
    let late = rows_from(25, 35);
    let ask = async |_, node: Arc<Datanode>| stale_route(write(&node, 2, &late).await);
    cluster.anywhere("a refusal", ask).await;
    table.write(&cluster, 2, &rows_from(25, 35)).await;
    table.write(&cluster, 2, &rows_from(25, 35)).await;
    let mut expected = [rows_to(50), rows_from(25, 35)].concat();
    expected.sort_unstable();
    let mut found = table.rows(&cluster).await;
    found.sort_unstable();
    assert_eq!(found, expected);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_that_do_not_fit_what_the_partition_is_are_refused_and_change_nothing() {
    let cluster = Cluster::of_three(4, 26, false).await;
    let table = Table::new(&[1, 2, 3]);
    table.write(&cluster, 1, &rows_to(50)).await;
    let order = table.order(PARTITION, 30, CHILD.0);
    let other_epoch = Split { epoch: Epoch(5), ..order.clone() };
    let refused_elsewhere = async || {
        let elsewhere = others(cluster.leader().await)[0];
        matches!(reshape(&cluster, elsewhere, &other_epoch).await, Err(Error::NotLeader { .. }))
    };
    cluster.until("a follower takes orders", refused_elsewhere).await;
    let ask = async |id, _| stale_route(reshape(&cluster, id, &other_epoch).await);
    let refused = cluster.anywhere("a refusal", ask).await;
    assert!(matches!(refused, Error::StaleRoute { current: Epoch(1), .. }), "{refused:?}");
    let fewer = (1..=2).map(|id| (NodeId(id), replica(CHILD, id))).collect();
    for unfit in [
        Split { replicas: fewer, ..order.clone() },
        Split { at: Bound::default(), ..order.clone() },
        Split { at: bound(0), replicas: BTreeMap::new(), ..order.clone() },
    ] {
        let ask = async |id, _| match reshape(&cluster, id, &unfit).await {
            Err(Error::InvalidInput(_)) => Ok(()),
            Err(error) => Err(error),
            Ok(done) => panic!("{unfit:?} was done: {done:?}"),
        };
        cluster.anywhere("a refusal", ask).await;
    }
    // While a replica is being added, nothing is cut.
    cluster.open(4, &[1, 2, 3, 4], false, true).await.unwrap();
    let add = async |id, _| {
        let added = cluster.group(id).add_learner(ReplicaId(4), NodeId(4)).await;
        added.map_err(|error| crate::raft_error(PARTITION, error))
    };
    cluster.anywhere("a learner", add).await;
    let ask = async |id, _| match reshape(&cluster, id, &order).await {
        Err(Error::Unavailable(why)) if why.contains("are changing their membership") => Ok(()),
        Err(error) => Err(error),
        Ok(done) => panic!("it was cut: {done:?}"),
    };
    cluster.anywhere("a refusal", ask).await;
    assert_eq!(cluster.rows().await, rows_to(50));
    cluster.reconfigure(&[1, 2, 3]).await;
    table.split(&cluster, PARTITION, 30, CHILD.0).await;
    assert_eq!(table.rows(&cluster).await, rows_to(50));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_joins_a_partition_that_was_cut_gets_files() {
    let cluster = Cluster::of_three(4, 27, false).await;
    let table = Table::new(&[1, 2, 3]);
    table.write(&cluster, 1, &rows_to(50)).await;
    table.split(&cluster, PARTITION, 30, CHILD.0).await;
    table.write(&cluster, 2, &rows_from(10, 20)).await;
    let leader = cluster.leader_of(PARTITION, &table).await;
    let spec = {
        let engine = cluster.node(leader).replica(PARTITION).unwrap();
        PartitionSpec::clone(&engine.partition().config())
    };
    let members = cluster::replicas(&[1, 2, 3, 4]);
    let (replica, join) = (ReplicaId(4), true);
    let spec = PartitionSpec { replica, members: members.clone(), join, ..spec };
    cluster.node(4).open_partition(spec).await.unwrap();
    let ask = async |_, node: Arc<Datanode>| node.reconfigure(PARTITION, members.clone()).await;
    cluster.anywhere("a change of members", ask).await;
    table.set_nodes(PARTITION, &[1, 2, 3, 4]);
    until_everywhere(&cluster, &table, PARTITION, 30).await;
    assert!(cluster.status(4).await.files > 0, "it got files");
    // It can be cut again, with all four.
    table.split(&cluster, PARTITION, 10, 9).await;
    until_everywhere(&cluster, &table, PartitionId(9), 20).await;
    assert_eq!(table.rows(&cluster).await, rows_to(50));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parent_and_child_are_dropped_each_by_itself() {
    let mut cluster = Cluster::new(1, 28).await;
    cluster.open(1, &[1], false, false).await.unwrap();
    let table = Table::new(&[1]);
    table.write(&cluster, 1, &rows_to(50)).await;
    table.split(&cluster, PARTITION, 30, CHILD.0).await;
    until_born(&cluster, CHILD, &[1]).await;
    cluster.node(1).drop_partition(PARTITION, ReplicaId(1)).await.unwrap();
    let child = (CHILD, Epoch(2));
    let rows = cluster.anywhere("a scan", async |_, node| rows_of(&node, child).await).await;
    assert_eq!(rows, rows_from(30, 50));
    cluster.kill(1).await;
    cluster.start(1).await;
    let rows = cluster.anywhere("a scan", async |_, node| rows_of(&node, child).await).await;
    assert_eq!(rows, rows_from(30, 50));
    cluster.node(1).drop_partition(CHILD, replica(CHILD, 1)).await.unwrap();
    assert!(cluster.node(1).status().await.unwrap().is_empty());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_middle_of_a_partition_makes_halves_of_about_one_size() {
    let cluster = Cluster::of_three(3, 29, false).await;
    let table = Table::new(&[1, 2, 3]);
    let leader = cluster.leader().await;
    assert_eq!(cluster.node(leader).middle_key(PARTITION).await.unwrap(), None);
    table.write(&cluster, 1, &rows_to(1000)).await;
    let leader = cluster.leader().await;
    let middle = cluster.node(leader).middle_key(PARTITION).await.unwrap().unwrap();
    let partita_proto::value::Value::Int(at) = middle.key[0] else { panic!("{middle}") };
    assert!((400..600).contains(&at), "{at}");
    table.split(&cluster, PARTITION, at, CHILD.0).await;
    assert_eq!(table.rows(&cluster).await, rows_to(1000));
    cluster.stop().await;
}
