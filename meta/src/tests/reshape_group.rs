//! Splits and merges while the members of meta's group, or nodes, come and go.

use std::time::Duration;

use partita_proto::id::PartitionId;
use partita_proto::service::MetaService;

use super::group::Trio;
use super::nodes::Kind;
use super::site::{away, merge, split};
use super::*;
use crate::cluster::bearer;

/// A table's partitions as a member knows them.
fn partitions(trio: &Trio, at: usize, name: &str) -> Vec<PartitionId> {
    let state = trio.state(at);
    let database = state.database_named("public").unwrap().id;
    state.table_named(database, name).unwrap().partitions.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leader_of_meta_goes_on_with_what_was_ordered() {
    let mut trio = Trio::start(3).await;
    let mut expected = 3;
    let leader = trio.leader_that_hears().await;
    trio.meta(leader).change(create(new_table("t"))).await.unwrap();
    // Before an order took effect, and after it.
    let cases = [
        (Kind::Split, true),
        (Kind::Absorb, false),
        (Kind::Split, false),
        (Kind::Freeze, true),
        (Kind::Absorb, true),
    ];
    for (kind, after) in cases {
        let leader = trio.leader_that_hears().await;
        let ids = partitions(&trio, leader, "t");
        let told = trio.nodes.count(kind);
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
        let meta = Arc::clone(trio.meta(leader));
        let asked = tokio::spawn(async move { meta.administer(order).await });
        trio.until("it is ordered", || trio.nodes.count(kind) > told).await;
        trio.kill(leader).await;
        asked.abort();
        drop(asked.await);
        trio.nodes.heal();
        let next = trio.leader_that_hears().await;
        trio.until("it is over", || trio.state(next).reshaping().next().is_none()).await;
        let count = partitions(&trio, next, "t").len();
        assert_eq!(i64::try_from(count), Ok(expected), "{kind:?}, after it: {after}");
        trio.open(leader).await;
        trio.agree().await;
    }
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_replica_is_made_anew_before_its_partition_is_split_or_merged() {
    let trio = Trio::start_with(4, Duration::from_secs(4)).await;
    let leader = trio.leader_that_hears().await;
    let meta = trio.meta(leader);
    trio.until("four are live", || meta.core.presence.reports().reports.len() == 4).await;
    meta.change(create(new_table("t"))).await.unwrap();
    let ids = partitions(&trio, leader, "t");
    for kind in [Kind::Split, Kind::Absorb] {
        trio.nodes.fail(kind, usize::MAX, away());
    }
    let orders = [split(ids[0], 50), merge(ids[1], ids[2])].map(|order| {
        let meta = Arc::clone(meta);
        tokio::spawn(async move { meta.administer(order).await })
    });
    trio.until("all is ordered", || {
        trio.nodes.count(Kind::Split) > 0 && trio.nodes.count(Kind::Absorb) > 0
    })
    .await;
    // A node with replicas of all three, if there is one; at least with some.
    let state = trio.state(leader);
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
    // Long before anybody's patience ends, and only where a replica is lost.
    trio.until("it is given up", || {
        let state = trio.state(leader);
        ids.iter().all(|id| {
            let one = state.partition(*id).unwrap();
            let concerned = one.replicas.values().any(|at| at.0 == lost);
            !concerned || bearer(&state, *id).is_none()
        })
    })
    .await;
    trio.nodes.heal();
    for order in orders {
        drop(order.await);
    }
    trio.until("nothing is on the lost node", || {
        let state = trio.state(leader);
        let on_it = |node: &NodeId| node.0 == lost;
        let clean = state.partitions().all(|one| !one.all_replicas().values().any(on_it));
        clean && state.reshaping().next().is_none()
    })
    .await;
    trio.agree().await;
    trio.end().await;
}
