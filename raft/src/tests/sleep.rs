//! Groups in which nothing happens: they cost next to nothing, and are there when they are needed.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::cluster::Cluster;
use crate::{GroupId, RaftError};

const GROUP: GroupId = GroupId(7);

fn row(number: usize) -> Bytes {
    Bytes::from(format!("row {number}"))
}

fn all_asleep(cluster: &Cluster, nodes: &[usize]) -> bool {
    nodes.iter().all(|at| cluster.nodes[*at].group(GROUP).pace().is_asleep())
}

async fn fall_asleep(cluster: &Cluster, nodes: &[usize]) {
    cluster.until(|| all_asleep(cluster, nodes), || "they do not fall asleep".to_owned()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_group_sleeps_and_a_write_wakes_it() {
    let cluster = Cluster::of_three(GROUP, 20).await;
    cluster.propose(GROUP, &row(0)).await;
    fall_asleep(&cluster, &[0, 1, 2]).await;
    let leader = cluster.leader(GROUP).await;
    let term = cluster.nodes[leader].group(GROUP).status().term;
    // Longer than any lease or patience.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let group = cluster.nodes[leader].group(GROUP);
    let begun = Instant::now();
    group.read_barrier().await.unwrap();
    group.propose(row(1)).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(group.status().term, term, "no election was needed");
    cluster.converge(GROUP, &[0, 1, 2]).await;
    fall_asleep(&cluster, &[0, 1, 2]).await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_node_of_a_sleeping_leader_dies_its_followers_wake_and_elect() {
    let mut cluster = Cluster::of_three(GROUP, 21).await;
    cluster.propose(GROUP, &row(0)).await;
    fall_asleep(&cluster, &[0, 1, 2]).await;
    let old = cluster.leader(GROUP).await;
    cluster.kill(old, || false).await;
    let begun = Instant::now();
    let left: Vec<_> = (0..3).filter(|node| *node != old).collect();
    let new = cluster.leader_among(GROUP, &left).await;
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    cluster.nodes[new].group(GROUP).propose(row(1)).await.unwrap();
    assert_eq!(cluster.nodes[new].machine(GROUP).rows(), [row(0), row(1)]);
    // The one that comes back learns of it, and all can sleep again.
    cluster.restart(old).await;
    cluster.converge(GROUP, &[0, 1, 2]).await;
    fall_asleep(&cluster, &[0, 1, 2]).await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_only_the_sleeping_leader_ends_its_followers_notice() {
    let cluster = Cluster::of_three(GROUP, 22).await;
    cluster.propose(GROUP, &row(0)).await;
    fall_asleep(&cluster, &[0, 1, 2]).await;
    let old = cluster.leader(GROUP).await;
    // Its node lives on, and beats.
    cluster.nodes[old].host.destroy_group(GROUP).await.unwrap();
    let left: Vec<_> = (0..3).filter(|node| *node != old).collect();
    let new = cluster.leader_among(GROUP, &left).await;
    cluster.nodes[new].group(GROUP).propose(row(1)).await.unwrap();
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_restarts_does_not_depose_a_sleeping_leader() {
    let mut cluster = Cluster::of_three(GROUP, 23).await;
    cluster.propose(GROUP, &row(0)).await;
    fall_asleep(&cluster, &[0, 1, 2]).await;
    let leader = cluster.leader(GROUP).await;
    let term = cluster.nodes[leader].group(GROUP).status().term;
    let follower = (leader + 1) % 3;
    cluster.kill(follower, || true).await;
    cluster.restart(follower).await;
    cluster.converge(GROUP, &[0, 1, 2]).await;
    fall_asleep(&cluster, &[0, 1, 2]).await;
    let status = cluster.nodes[leader].group(GROUP).status();
    assert!(status.is_leader && status.term == term, "{status:?}");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_deposed_in_its_sleep_serves_nothing() {
    let cluster = Cluster::of_three(GROUP, 24).await;
    cluster.propose(GROUP, &row(0)).await;
    fall_asleep(&cluster, &[0, 1, 2]).await;
    let old = cluster.leader(GROUP).await;
    cluster.network.isolate(cluster.nodes[old].id);
    let left: Vec<_> = (0..3).filter(|node| *node != old).collect();
    let new = cluster.leader_among(GROUP, &left).await;
    cluster.nodes[new].group(GROUP).propose(row(1)).await.unwrap();
    let stale = cluster.nodes[old].group(GROUP);
    let error = stale.read_barrier().await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    let error = stale.propose(row(2)).await.unwrap_err();
    assert!(matches!(error, RaftError::NotLeader { .. }), "{error}");
    cluster.network.heal();
    cluster.converge(GROUP, &[0, 1, 2]).await;
    assert_eq!(cluster.nodes[old].machine(GROUP).rows(), [row(0), row(1)]);
    cluster.shutdown().await;
}
