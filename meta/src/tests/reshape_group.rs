//! Splits and merges while members of meta's group, or nodes, fail and return.

use futures::FutureExt;
use partita_proto::beat::LoadBeat;
use partita_proto::history::ReshapeOutcome;
use partita_proto::id::PartitionId;
use partita_proto::load::{Instant as At, LoadRequest};
use partita_proto::member::Heartbeat;
use partita_proto::service::{ClusterService, MetaService};

use super::changes::PATIENCE;
use super::nodes::Kind;
use super::site::{away, merge, split};
use super::trio::{LOST_AFTER, Trio};
use super::*;
use crate::node::Meta;
use crate::reshape::holder;

/// A table's partitions in the state of the leader.
async fn partitions(trio: &Trio, name: &str) -> Vec<PartitionId> {
    let state = trio.known().await;
    let database = state.database_named("public").unwrap().id;
    state.table_named(database, name).unwrap().partitions.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leader_of_meta_goes_on_with_what_was_ordered() {
    let mut trio = Trio::start(3).await;
    let mut expected = 3;
    trio.change(create(new_table("t"))).await.unwrap();
    // Before an order took effect, and after it.
    let cases = [
        (Kind::Split, true),
        (Kind::Absorb, false),
        (Kind::Split, false),
        (Kind::Freeze, true),
        (Kind::Absorb, true),
    ];
    for (kind, after) in cases {
        let ids = partitions(&trio, "t").await;
        if after {
            trio.nodes.lose_answers(kind, usize::MAX);
        } else {
            trio.nodes.fail(kind, usize::MAX, away());
        }
        let order = match kind {
            Kind::Split => split(ids[0], 50 - expected),
            _ => merge(ids[0], ids[1]),
        };
        expected += if kind == Kind::Split { 1 } else { -1 };
        let ask = |meta: Arc<Meta>| {
            let order = order.clone();
            async move { meta.administer(order).await }.boxed()
        };
        let (leader, asked) = trio.begin(kind, ask).await;
        trio.kill(leader).await;
        asked.abort();
        drop(asked.await);
        trio.nodes.heal();
        trio.leader_that_hears().await;
        let over = |state: &State| state.reshaping().next().is_none();
        trio.until("it is over", || trio.holds(over)).await;
        let count = partitions(&trio, "t").await.len();
        assert_eq!(i64::try_from(count), Ok(expected), "{kind:?}, after it: {after}");
        trio.open(leader).await;
        trio.agree().await;
    }
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_leads_next_knows_what_was_split_and_how_busy_partitions_are() {
    let mut trio = Trio::start(3).await;
    trio.change(create(new_table("t"))).await.unwrap();
    let ids = partitions(&trio, "t").await;
    // After an election in between, the waiting caller does not learn the result.
    drop(trio.administer(split(ids[0], 50)).await);
    trio.until("it is over", || trio.holds(|state| state.reshaping().next().is_none())).await;
    trio.agree().await;
    for at in trio.running() {
        let events = trio.meta(at).reshape_events();
        let known: Vec<_> = events.iter().map(|event| (event.partition, event.at_ms)).collect();
        assert_eq!(known, [(ids[0], NOW_MS)], "member {at}");
        assert_eq!(events[0].outcome, ReshapeOutcome::Done, "member {at}");
    }
    let load = LoadBeat { partition: ids[1], term: 1, queue_depth: 7, ..LoadBeat::default() };
    let beat = Heartbeat { loads: vec![load], ..trio.nodes.heartbeats().remove(0) };
    let knows = |at: usize| {
        let keeper = trio.meta(at).core.load.lock();
        keeper.watched(ids[1]).is_some_and(|watched| watched.queue_depth == 7)
    };
    // A member hears of partitions that it knows of.
    let deadline = std::time::Instant::now() + PATIENCE;
    while !trio.running().into_iter().all(knows) {
        assert!(std::time::Instant::now() < deadline, "not all members hear of the load");
        for at in trio.running() {
            // Only the leader accepts it.
            drop(trio.meta(at).heartbeat(beat.clone()).await);
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let leader = trio.leader().await;
    trio.kill(leader).await;
    trio.leader_that_hears().await;
    let request = LoadRequest { history_since: Some(At(0)), ..LoadRequest::default() };
    let report = trio.ask(async |meta| meta.load(request).await).await.unwrap();
    let queues: Vec<u64> = report
        .partitions
        .iter()
        .filter(|load| load.partition == ids[1])
        .map(|load| load.queue)
        .collect();
    assert_eq!((queues, report.splits.len()), (vec![7], 1));
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_replica_is_made_anew_before_its_partition_is_split_or_merged() {
    let trio = Trio::start_with(4, LOST_AFTER).await;
    trio.leader_that_hears_of(4).await;
    trio.change(create(new_table("t"))).await.unwrap();
    let ids = partitions(&trio, "t").await;
    for kind in [Kind::Split, Kind::Absorb] {
        trio.nodes.fail(kind, usize::MAX, away());
    }
    let mut orders = Vec::new();
    for (kind, order) in [(Kind::Split, split(ids[0], 50)), (Kind::Absorb, merge(ids[1], ids[2]))] {
        let ask = |meta: Arc<Meta>| {
            let order = order.clone();
            async move { meta.administer(order).await }.boxed()
        };
        orders.push(trio.begin(kind, ask).await.1);
    }
    // A node with replicas of all three, if there is one; at least with some.
    let state = trio.known().await;
    let holds = |node: u64| {
        let on = |one: &&PartitionId| {
            state.partition(**one).unwrap().replicas.values().any(|at| at.0 == node)
        };
        ids.iter().filter(on).count()
    };
    let leads = |node: u64| ids.iter().any(|id| trio.nodes.leads(node, *id));
    let lost = (1..=4).filter(|node| !leads(*node)).max_by_key(|node| holds(*node)).unwrap();
    assert!(holds(lost) > 0);
    trio.nodes.one(lost).silence(true);
    // Long before any time limit, and only for partitions with a lost replica.
    let given_up = |state: &State| {
        ids.iter().all(|id| {
            let one = state.partition(*id).unwrap();
            let concerned = one.replicas.values().any(|at| at.0 == lost);
            !concerned || holder(state, *id).is_none()
        })
    };
    trio.until("it is given up", || trio.holds(given_up)).await;
    trio.nodes.heal();
    for order in orders {
        drop(order.await);
    }
    let clean = |state: &State| {
        let on_it = |node: &NodeId| node.0 == lost;
        let clean = state.partitions().all(|one| !one.all_replicas().values().any(on_it));
        clean && state.reshaping().next().is_none()
    };
    trio.until("nothing is on the lost node", || trio.holds(clean)).await;
    trio.agree().await;
    trio.end().await;
}
