//! Groups of three: elections, replication, changes of leader and members, restarts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::cluster::{Cluster, passing, replica};
use super::recorder::Recorder;
use crate::{GroupId, RaftError, Start};

const GROUP: GroupId = GroupId(7);

fn row(number: usize) -> Bytes {
    Bytes::from(format!("row {number}"))
}

fn others(leader: usize) -> Vec<usize> {
    (0..3).filter(|node| *node != leader).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_leader_takes_is_applied_everywhere_in_one_order() {
    let cluster = Cluster::of_three(GROUP, 1).await;
    let leader = cluster.leader(GROUP).await;
    let group = cluster.nodes[leader].group(GROUP);
    let writers: Vec<_> = (0..300)
        .map(|number| {
            let group = Arc::clone(&group);
            tokio::spawn(async move { group.propose(row(number)).await.unwrap() })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    cluster.converge(GROUP, &[0, 1, 2]).await;
    let rows = cluster.nodes[leader].machine(GROUP).rows();
    assert_eq!(rows.len(), 300);
    for node in &cluster.nodes {
        assert_eq!(node.machine(GROUP).rows(), rows, "node {}", node.id);
    }
    let follower = cluster.nodes[others(leader)[0]].group(GROUP);
    let error = follower.propose(row(0)).await.unwrap_err();
    let at = cluster.nodes[leader].id;
    assert!(
        matches!(error, RaftError::NotLeader { leader: Some(known) } if known == (replica(GROUP, at), at)),
        "{error}"
    );
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_is_replaced_and_serves_nothing_stale() {
    let cluster = Cluster::of_three(GROUP, 2).await;
    cluster.propose(GROUP, &row(1)).await;
    let old = cluster.leader(GROUP).await;
    cluster.network.isolate(cluster.nodes[old].id);
    let begun = Instant::now();
    let new = cluster.leader_among(GROUP, &others(old)).await;
    cluster.nodes[new].group(GROUP).propose(row(2)).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    // It may still believe that it leads. It must not answer as if it did.
    let error = cluster.nodes[old].group(GROUP).read_barrier().await.unwrap_err();
    assert!(passing(&error), "{error}");
    let error = cluster.nodes[old].group(GROUP).propose(row(3)).await.unwrap_err();
    assert!(passing(&error), "{error}");
    cluster.network.heal();
    cluster.converge(GROUP, &[0, 1, 2]).await;
    for node in &cluster.nodes {
        assert_eq!(node.machine(GROUP).rows(), [row(1), row(2)], "node {}", node.id);
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_was_away_gets_what_it_missed() {
    let mut cluster = Cluster::of_three(GROUP, 3).await;
    cluster.propose(GROUP, &row(0)).await;
    let away = others(cluster.leader(GROUP).await)[0];
    cluster.kill(away, || false).await;
    for number in 1..50 {
        cluster.propose(GROUP, &row(number)).await;
    }
    cluster.restart(away).await;
    cluster.converge(GROUP, &[0, 1, 2]).await;
    assert_eq!(cluster.nodes[away].machine(GROUP).rows(), (0..50).map(row).collect::<Vec<_>>());
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_everywhere_loses_nothing_that_was_acknowledged() {
    let mut cluster = Cluster::of_three(GROUP, 4).await;
    for number in 0..50 {
        cluster.propose(GROUP, &row(number)).await;
    }
    for node in 0..3 {
        cluster.kill(node, || false).await;
    }
    for node in 0..3 {
        cluster.restart(node).await;
    }
    let leader = cluster.leader(GROUP).await;
    assert_eq!(cluster.nodes[leader].machine(GROUP).rows(), (0..50).map(row).collect::<Vec<_>>());
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_is_handed_over_in_moments() {
    let cluster = Cluster::of_three(GROUP, 5).await;
    cluster.propose(GROUP, &row(0)).await;
    for round in 1..6 {
        let leader = cluster.leader(GROUP).await;
        let to = others(leader)[round % 2];
        let begun = Instant::now();
        let group = cluster.nodes[leader].group(GROUP);
        group.transfer_leadership(replica(GROUP, cluster.nodes[to].id)).await.unwrap();
        cluster.nodes[to].group(GROUP).propose(row(round)).await.unwrap();
        // An election after a lease that ran out would take at least 1.9 s.
        assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
        let leader = cluster.nodes[to].group(GROUP);
        let stranger = replica(GROUP, crate::NodeId(9));
        let error = leader.transfer_leadership(stranger).await.unwrap_err();
        assert!(matches!(error, RaftError::InvalidInput(_)), "{error}");
    }
    cluster.converge(GROUP, &[0, 1, 2]).await;
    assert_eq!(cluster.nodes[0].machine(GROUP).rows(), (0..6).map(row).collect::<Vec<_>>());
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_moves_to_another_node_without_a_gap() {
    let mut cluster = Cluster::new(4, 6).await;
    cluster.create(GROUP, &[0, 1, 2]).await;
    for number in 0..20 {
        cluster.propose(GROUP, &row(number)).await;
    }
    let new = cluster.nodes[3].id;
    cluster.start(3, GROUP, Recorder::new(), Start::Join).await;
    let leader = cluster.leader(GROUP).await;
    let group = cluster.nodes[leader].group(GROUP);
    group.add_learner(replica(GROUP, new), new).await.unwrap();
    group.add_learner(replica(GROUP, new), new).await.unwrap();
    cluster.converge(GROUP, &[0, 1, 2, 3]).await;
    let learner = group.members().into_iter().find(|member| member.node == new).unwrap();
    assert!(!learner.voter);
    let voters = |leaving: usize| -> BTreeSet<_> {
        let nodes = cluster.nodes.iter().enumerate().filter(|(at, _)| *at != leaving);
        nodes.map(|(_, node)| replica(GROUP, node.id)).collect()
    };
    // The leader itself leaves last: it hands over first.
    let leaving = others(leader)[0];
    group.set_voters(voters(leaving)).await.unwrap();
    let members = group.members();
    assert_eq!(members.len(), 3);
    assert!(members.iter().all(|member| member.voter), "{members:?}");
    cluster.nodes[leaving].host.destroy_group(GROUP).await.unwrap();
    group.transfer_leadership(replica(GROUP, new)).await.unwrap();
    cluster.nodes[3].group(GROUP).propose(row(20)).await.unwrap();
    assert_eq!(cluster.nodes[3].machine(GROUP).rows(), (0..21).map(row).collect::<Vec<_>>());
    // And a learner can go as it came.
    let error = group.remove_learners(BTreeSet::from([replica(GROUP, new)])).await.unwrap_err();
    assert!(matches!(error, RaftError::NotLeader { .. }), "{error}");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_of_one_grows_to_three_and_shrinks_back() {
    let mut cluster = Cluster::new(3, 7).await;
    cluster.create(GROUP, &[0]).await;
    cluster.propose(GROUP, &row(0)).await;
    let group = cluster.nodes[0].group(GROUP);
    for node in [1, 2] {
        cluster.start(node, GROUP, Recorder::new(), Start::Join).await;
        let id = cluster.nodes[node].id;
        group.add_learner(replica(GROUP, id), id).await.unwrap();
    }
    let all: BTreeSet<_> = cluster.nodes.iter().map(|node| replica(GROUP, node.id)).collect();
    group.set_voters(all).await.unwrap();
    cluster.propose(GROUP, &row(1)).await;
    cluster.converge(GROUP, &[0, 1, 2]).await;
    assert_eq!(cluster.nodes[2].machine(GROUP).rows(), [row(0), row(1)]);
    group.set_voters(BTreeSet::from([replica(GROUP, cluster.nodes[0].id)])).await.unwrap();
    for node in [1, 2] {
        cluster.nodes[node].host.destroy_group(GROUP).await.unwrap();
    }
    cluster.propose(GROUP, &row(2)).await;
    assert_eq!(group.members().len(), 1);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_machine_fails_is_replaced() {
    let cluster = Cluster::of_three(GROUP, 8).await;
    cluster.propose(GROUP, &row(0)).await;
    let old = cluster.leader(GROUP).await;
    cluster.nodes[old].machine(GROUP).failing.store(true, Ordering::Relaxed);
    let error = cluster.nodes[old].group(GROUP).propose(row(1)).await.unwrap_err();
    assert!(matches!(error, RaftError::Stopped { .. }), "{error}");
    let new = cluster.leader_among(GROUP, &others(old)).await;
    cluster.nodes[new].group(GROUP).propose(row(2)).await.unwrap();
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_without_a_majority_says_so_and_goes_on_when_one_returns() {
    let mut cluster = Cluster::of_three(GROUP, 9).await;
    cluster.propose(GROUP, &row(0)).await;
    let leader = cluster.leader(GROUP).await;
    for node in others(leader) {
        cluster.kill(node, || true).await;
    }
    // Long enough for the lease to run out.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let error = cluster.nodes[leader].group(GROUP).propose(row(1)).await.unwrap_err();
    assert!(passing(&error), "{error}");
    let error = cluster.nodes[leader].group(GROUP).read_barrier().await.unwrap_err();
    assert!(passing(&error), "{error}");
    cluster.restart(others(leader)[0]).await;
    cluster.propose(GROUP, &row(2)).await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_bounced_keeps_the_promises_it_has_forgotten() {
    let mut cluster = Cluster::of_three(GROUP, 10).await;
    cluster.propose(GROUP, &row(0)).await;
    let follower = others(cluster.leader(GROUP).await)[0];
    cluster.kill(follower, || true).await;
    let begun = Instant::now();
    cluster.restart(follower).await;
    let group = cluster.nodes[follower].group(GROUP);
    // The leader may serve reads until 1.2 s after the follower's last answer, which was before the restart.
    assert!(group.pace().withholds_vote(false).is_some());
    while group.pace().withholds_vote(false).is_some() {
        assert!(begun.elapsed() < super::cluster::PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(begun.elapsed() >= Duration::from_millis(1200), "{:?}", begun.elapsed());
    cluster.shutdown().await;
}
