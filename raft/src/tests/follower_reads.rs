//! Reads at followers: they see what was acknowledged, or are refused.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::calm::{ensure, undisturbed};
use super::cluster::{Cluster, Node, PATIENCE, passing};
use crate::{GroupId, ReadBy};

const GROUP: GroupId = GroupId(7);

fn row(number: usize) -> Bytes {
    Bytes::from(format!("row {number}"))
}

/// Reads at a node until it is not refused, as clients do while there is an election.
async fn read(node: &Node, staleness_max: Duration) -> ReadBy {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match node.group(GROUP).read_barrier_anywhere(staleness_max).await {
            Ok(by) => return by,
            Err(error) => assert!(passing(&error) && Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_replica_sees_every_command_that_was_acknowledged() {
    let cluster = Cluster::of_three(GROUP, 91).await;
    let mut by_followers = 0;
    for number in 0..40 {
        cluster.propose(GROUP, &row(number)).await;
        for node in &cluster.nodes {
            let by = read(node, Duration::ZERO).await;
            by_followers += usize::from(by == ReadBy::Follower);
            assert!(node.machine(GROUP).contains(&row(number)), "node {}, row {number}", node.id);
        }
    }
    assert!(by_followers >= 40, "{by_followers} of 120 reads were answered by followers");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_is_cut_off_answers_within_the_bound_only() {
    undisturbed(async |attempt| {
        let cluster = Cluster::of_three(GROUP, 92 + attempt).await;
        let answered = cut_off(&cluster).await;
        cluster.shutdown().await;
        answered
    })
    .await;
}

async fn cut_off(cluster: &Cluster) -> Result<(), String> {
    cluster.propose(GROUP, &row(0)).await;
    let leader = cluster.leader(GROUP).await;
    let away = (leader + 1) % 3;
    let node = &cluster.nodes[away];
    let by = read(node, Duration::ZERO).await;
    ensure(by == ReadBy::Follower, || "it leads by now".to_owned())?;
    let begun = Instant::now();
    cluster.network.isolate(node.id);
    let rest: Vec<usize> = (0..3).filter(|other| *other != away).collect();
    cluster.propose_among(GROUP, &row(1), &rest).await;
    let group = node.group(GROUP);
    let refused = group.read_barrier_anywhere(Duration::ZERO).await;
    ensure(refused.as_ref().is_err_and(passing), || format!("{refused:?}"))?;
    assert!(!node.machine(GROUP).contains(&row(1)), "it cannot have heard of it");
    // The point from before is older than this by now.
    let refused = group.read_barrier_anywhere(begun.elapsed()).await;
    ensure(refused.as_ref().is_err_and(passing), || format!("{refused:?}"))?;
    let answered = group.read_barrier_anywhere(PATIENCE * 10).await;
    ensure(matches!(answered, Ok(ReadBy::Follower)), || format!("{answered:?}"))?;
    assert!(node.machine(GROUP).contains(&row(0)));
    cluster.network.heal();
    read(node, Duration::ZERO).await;
    assert!(node.machine(GROUP).contains(&row(1)));
    Ok(())
}
