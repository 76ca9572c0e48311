//! Groups of three: elections, replication, changes of leader and members, restarts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::calm::{ensure, undisturbed};
use super::cluster::{Cluster, passing, replica};
use super::recorder::Recorder;
use crate::{Group, GroupId, RaftError, Start};

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
    let proposed: Vec<Bytes> = (0..300).map(row).collect();
    let writers = proposed.iter().map(|row| cluster.propose(GROUP, row));
    futures::future::join_all(writers).await;
    cluster.converge(GROUP, &[0, 1, 2]).await;
    let rows = cluster.nodes[0].machine(GROUP).rows();
    assert_eq!(rows.len(), 300);
    assert_eq!(rows.iter().collect::<BTreeSet<_>>(), proposed.iter().collect());
    for node in &cluster.nodes {
        assert_eq!(node.machine(GROUP).rows(), rows, "node {}", node.id);
    }
    undisturbed(async |_| {
        let leader = cluster.leader(GROUP).await;
        let follower = cluster.nodes[others(leader)[0]].group(GROUP);
        let refused = follower.propose(row(0)).await.map(drop);
        let at = cluster.nodes[leader].id;
        let told = matches!(
            &refused,
            Err(RaftError::NotLeader { leader: Some(known) }) if *known == (replica(GROUP, at), at)
        );
        ensure(told, || format!("{refused:?}"))
    })
    .await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_is_replaced_and_serves_nothing_stale() {
    undisturbed(async |attempt| {
        let cluster = Cluster::of_three(GROUP, 2 + attempt).await;
        let replaced = replaced(&cluster).await;
        cluster.shutdown().await;
        replaced
    })
    .await;
}

async fn replaced(cluster: &Cluster) -> Result<(), String> {
    cluster.propose(GROUP, &row(1)).await;
    let old = cluster.leader(GROUP).await;
    cluster.network.isolate(cluster.nodes[old].id);
    let begun = Instant::now();
    cluster.propose_among(GROUP, &row(2), &others(old)).await;
    let took = begun.elapsed();
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
    ensure(took < Duration::from_secs(6), || format!("it was replaced after {took:?}"))
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
    undisturbed(async |attempt| {
        let cluster = Cluster::of_three(GROUP, 5 + attempt).await;
        let handed_over = handed_over(&cluster).await;
        cluster.shutdown().await;
        handed_over
    })
    .await;
}

async fn handed_over(cluster: &Cluster) -> Result<(), String> {
    cluster.propose(GROUP, &row(0)).await;
    for round in 1..6 {
        let leader = cluster.leader(GROUP).await;
        let to = others(leader)[round % 2];
        let begun = Instant::now();
        let group = cluster.nodes[leader].group(GROUP);
        let next = cluster.nodes[to].group(GROUP);
        let to = replica(GROUP, cluster.nodes[to].id);
        group.transfer_leadership(to).await.map_err(|error| error.to_string())?;
        next.propose(row(round)).await.map_err(|error| error.to_string())?;
        // An election after a lease that ran out would take at least 1.9 s.
        let took = begun.elapsed();
        ensure(took < Duration::from_millis(1500), || format!("handed over after {took:?}"))?;
        let stranger = replica(GROUP, crate::NodeId(9));
        let refused = next.transfer_leadership(stranger).await;
        ensure(matches!(refused, Err(RaftError::InvalidInput(_))), || format!("{refused:?}"))?;
    }
    cluster.converge(GROUP, &[0, 1, 2]).await;
    assert_eq!(cluster.nodes[0].machine(GROUP).rows(), (0..6).map(row).collect::<Vec<_>>());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_without_a_quorum_is_given_up() {
    let cluster = Cluster::of_three(GROUP, 9).await;
    cluster.propose(GROUP, &row(0)).await;
    let leader = cluster.leader(GROUP).await;
    let group = cluster.nodes[leader].group(GROUP);
    let to = replica(GROUP, cluster.nodes[others(leader)[0]].id);
    // Its lease lasts on: it believes that it leads, and nobody hears of it.
    cluster.network.isolate(cluster.nodes[leader].id);
    let asked = tokio::time::timeout(Duration::from_secs(20), group.transfer_leadership(to)).await;
    let error = asked.expect("it waits for a quorum that does not come").unwrap_err();
    assert!(error.is_retryable(), "{error}");
    cluster.network.heal();
    cluster.propose(GROUP, &row(1)).await;
    cluster.converge(GROUP, &[0, 1, 2]).await;
    assert_eq!(cluster.nodes[leader].machine(GROUP).rows(), [row(0), row(1)]);
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
    let add = async |group: Arc<Group>| group.add_learner(replica(GROUP, new), new).await;
    cluster.at_leader(GROUP, add).await;
    cluster.at_leader(GROUP, add).await;
    cluster.converge(GROUP, &[0, 1, 2, 3]).await;
    let leader = cluster.leader(GROUP).await;
    let members = cluster.nodes[leader].group(GROUP).members();
    let learner = members.into_iter().find(|member| member.node == new).unwrap();
    assert!(!learner.voter);
    let voters = |leaving: usize| -> BTreeSet<_> {
        let nodes = cluster.nodes.iter().enumerate().filter(|(at, _)| *at != leaving);
        nodes.map(|(_, node)| replica(GROUP, node.id)).collect()
    };
    // The leader itself leaves last: it hands over first.
    let leaving = others(leader)[0];
    let wanted = voters(leaving);
    cluster.at_leader(GROUP, async |group| group.set_voters(wanted.clone()).await).await;
    let staying = (0..4).filter(|node| *node != leaving).collect::<Vec<_>>();
    let leader = cluster.leader_among(GROUP, &staying).await;
    let members = cluster.nodes[leader].group(GROUP).members();
    assert_eq!(members.iter().map(|member| member.replica).collect::<BTreeSet<_>>(), wanted);
    assert!(members.iter().all(|member| member.voter), "{members:?}");
    cluster.nodes[leaving].host.destroy_group(GROUP).await.unwrap();
    cluster.hand_over(GROUP, 3).await;
    cluster.propose(GROUP, &row(20)).await;
    cluster.converge(GROUP, &staying).await;
    assert_eq!(cluster.nodes[3].machine(GROUP).rows(), (0..21).map(row).collect::<Vec<_>>());
    // And whoever does not lead changes nothing.
    undisturbed(async |_| {
        let leader = cluster.leader(GROUP).await;
        let other = *staying.iter().find(|node| **node != leader).unwrap();
        let learners = BTreeSet::from([replica(GROUP, new)]);
        let refused = cluster.nodes[other].group(GROUP).remove_learners(learners).await;
        ensure(matches!(refused, Err(RaftError::NotLeader { .. })), || format!("{refused:?}"))
    })
    .await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_of_one_grows_to_three_and_shrinks_back() {
    let mut cluster = Cluster::new(3, 7).await;
    cluster.create(GROUP, &[0]).await;
    cluster.propose(GROUP, &row(0)).await;
    for node in [1, 2] {
        cluster.start(node, GROUP, Recorder::new(), Start::Join).await;
        let id = cluster.nodes[node].id;
        let add = async |group: Arc<Group>| group.add_learner(replica(GROUP, id), id).await;
        cluster.at_leader(GROUP, add).await;
    }
    let all: BTreeSet<_> = cluster.nodes.iter().map(|node| replica(GROUP, node.id)).collect();
    cluster.at_leader(GROUP, async |group| group.set_voters(all.clone()).await).await;
    cluster.propose(GROUP, &row(1)).await;
    cluster.converge(GROUP, &[0, 1, 2]).await;
    assert_eq!(cluster.nodes[2].machine(GROUP).rows(), [row(0), row(1)]);
    let one = BTreeSet::from([replica(GROUP, cluster.nodes[0].id)]);
    cluster.at_leader(GROUP, async |group| group.set_voters(one.clone()).await).await;
    for node in [1, 2] {
        cluster.nodes[node].host.destroy_group(GROUP).await.unwrap();
    }
    cluster.propose(GROUP, &row(2)).await;
    assert_eq!(cluster.nodes[0].group(GROUP).members().len(), 1);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_machine_fails_is_replaced() {
    let cluster = Cluster::of_three(GROUP, 8).await;
    cluster.propose(GROUP, &row(0)).await;
    let old = loop {
        let old = cluster.leader(GROUP).await;
        let failing = &cluster.nodes[old].machine(GROUP).failing;
        failing.store(true, Ordering::Relaxed);
        match cluster.nodes[old].group(GROUP).propose(row(1)).await.unwrap_err() {
            RaftError::Stopped { .. } => break old,
            // An election came in between.
            error => assert!(error.is_retryable(), "{error}"),
        }
        failing.store(false, Ordering::Relaxed);
        if cluster.nodes[old].group(GROUP).status().stopped.is_some() {
            break old;
        }
    };
    cluster.propose_among(GROUP, &row(2), &others(old)).await;
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
    while group.pace().withholds_vote(false).is_some() {
        assert!(begun.elapsed() < super::cluster::PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(begun.elapsed() >= Duration::from_millis(1200), "{:?}", begun.elapsed());
    cluster.shutdown().await;
}
