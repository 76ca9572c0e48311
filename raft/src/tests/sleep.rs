//! Idle groups: they cost next to nothing, and wake when they are needed.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::calm::{ensure, undisturbed};
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
    undisturbed(async |attempt| {
        let cluster = Cluster::of_three(GROUP, 20 + attempt).await;
        let woken = woken(&cluster).await;
        cluster.shutdown().await;
        woken
    })
    .await;
}

async fn woken(cluster: &Cluster) -> Result<(), String> {
    cluster.propose(GROUP, &row(0)).await;
    fall_asleep(cluster, &[0, 1, 2]).await;
    let leader = cluster.leader(GROUP).await;
    let term = cluster.nodes[leader].group(GROUP).status().term;
    // Longer than any lease or patience.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let group = cluster.nodes[leader].group(GROUP);
    let begun = Instant::now();
    group.read_barrier().await.map_err(|error| error.to_string())?;
    group.propose(row(1)).await.map_err(|error| error.to_string())?;
    let took = begun.elapsed();
    ensure(took < Duration::from_secs(1), || format!("woken after {took:?}"))?;
    ensure(group.status().term == term, || "an election was needed".to_owned())?;
    cluster.converge(GROUP, &[0, 1, 2]).await;
    fall_asleep(cluster, &[0, 1, 2]).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sleeping_leader_hands_over_when_it_is_asked_once() {
    undisturbed(async |attempt| {
        let cluster = Cluster::of_three(GROUP, 80 + attempt).await;
        let handed = handed_over(&cluster).await;
        cluster.shutdown().await;
        handed
    })
    .await;
}

async fn handed_over(cluster: &Cluster) -> Result<(), String> {
    cluster.propose(GROUP, &row(0)).await;
    fall_asleep(cluster, &[0, 1, 2]).await;
    let old = cluster.leader(GROUP).await;
    // Longer than its lease: it has to ask whether it still leads.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let next = (old + 1) % 3;
    let to = cluster.nodes[next].group(GROUP).replica();
    let asked = cluster.nodes[old].group(GROUP).transfer_leadership(to).await;
    asked.map_err(|error| format!("not handed over: {error}"))?;
    ensure(cluster.leader(GROUP).await == next, || "another one leads".to_owned())?;
    cluster.propose(GROUP, &row(1)).await;
    cluster.converge(GROUP, &[0, 1, 2]).await;
    fall_asleep(cluster, &[0, 1, 2]).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_node_of_a_sleeping_leader_dies_its_followers_wake_and_elect() {
    undisturbed(async |attempt| {
        let mut cluster = Cluster::of_three(GROUP, 40 + attempt).await;
        let elected = elected(&mut cluster).await;
        cluster.shutdown().await;
        elected
    })
    .await;
}

async fn elected(cluster: &mut Cluster) -> Result<(), String> {
    cluster.propose(GROUP, &row(0)).await;
    fall_asleep(cluster, &[0, 1, 2]).await;
    let old = cluster.leader(GROUP).await;
    cluster.kill(old, || false).await;
    let begun = Instant::now();
    let left: Vec<_> = (0..3).filter(|node| *node != old).collect();
    cluster.leader_among(GROUP, &left).await;
    let took = begun.elapsed();
    cluster.propose_among(GROUP, &row(1), &left).await;
    cluster.converge(GROUP, &left).await;
    for node in left {
        assert_eq!(cluster.nodes[node].machine(GROUP).rows(), [row(0), row(1)]);
    }
    // The one that comes back learns of it, and all can sleep again.
    cluster.restart(old).await;
    cluster.converge(GROUP, &[0, 1, 2]).await;
    fall_asleep(cluster, &[0, 1, 2]).await;
    ensure(took < Duration::from_secs(6), || format!("another led after {took:?}"))
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
    cluster.propose_among(GROUP, &row(1), &left).await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_restarts_does_not_depose_a_sleeping_leader() {
    undisturbed(async |attempt| {
        let mut cluster = Cluster::of_three(GROUP, 60 + attempt).await;
        let left_alone = left_alone(&mut cluster).await;
        cluster.shutdown().await;
        left_alone
    })
    .await;
}

async fn left_alone(cluster: &mut Cluster) -> Result<(), String> {
    cluster.propose(GROUP, &row(0)).await;
    fall_asleep(cluster, &[0, 1, 2]).await;
    let leader = cluster.leader(GROUP).await;
    let term = cluster.nodes[leader].group(GROUP).status().term;
    let follower = (leader + 1) % 3;
    cluster.kill(follower, || true).await;
    cluster.restart(follower).await;
    cluster.converge(GROUP, &[0, 1, 2]).await;
    fall_asleep(cluster, &[0, 1, 2]).await;
    let status = cluster.nodes[leader].group(GROUP).status();
    ensure(status.is_leader && status.term == term, || format!("{status:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_deposed_in_its_sleep_serves_nothing() {
    let cluster = Cluster::of_three(GROUP, 24).await;
    cluster.propose(GROUP, &row(0)).await;
    fall_asleep(&cluster, &[0, 1, 2]).await;
    let old = cluster.leader(GROUP).await;
    cluster.network.isolate(cluster.nodes[old].id);
    let left: Vec<_> = (0..3).filter(|node| *node != old).collect();
    cluster.propose_among(GROUP, &row(1), &left).await;
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
