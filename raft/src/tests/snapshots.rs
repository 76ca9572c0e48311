//! Replicas that the log cannot bring up to date any more.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::cluster::{Cluster, replica};
use super::recorder::Recorder;
use crate::{Group, GroupId, Start};

const GROUP: GroupId = GroupId(7);
/// Rows of this size soon fill the half of a log from which on it is given up.
const ROW_BYTES: usize = 20_000;

fn row(number: usize) -> Bytes {
    let mut row = format!("row {number} ").into_bytes();
    row.resize(ROW_BYTES, u8::try_from(number % 251).unwrap());
    row.into()
}

/// The term of the present leader.
async fn term(cluster: &Cluster) -> u64 {
    let leader = cluster.leader(GROUP).await;
    cluster.nodes[leader].group(GROUP).status().term
}

fn others(leader: usize) -> Vec<usize> {
    (0..3).filter(|node| *node != leader).collect()
}

/// Writes rows and flushes everywhere, until none of `nodes` has the beginning of the log any more.
async fn outgrow_the_log(cluster: &Cluster, nodes: &[usize], rows_min: usize) -> usize {
    let mut rows = 0;
    let purged = |at: &usize| cluster.nodes[*at].group(GROUP).status().purged;
    while rows < rows_min || !nodes.iter().all(|at| purged(at) > Some(5)) {
        for _ in 0..10 {
            cluster.propose(GROUP, &row(rows)).await;
            rows += 1;
        }
        for at in nodes {
            cluster.flush(GROUP, *at).await;
        }
        assert!(rows < 2000, "the log is never given up: {:?}", cluster.statuses(GROUP));
    }
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_was_away_too_long_gets_the_files_and_then_the_log() {
    let mut cluster = Cluster::of_three(GROUP, 30).await;
    let leader = cluster.leader(GROUP).await;
    let away = others(leader)[0];
    cluster.converge(GROUP, &[0, 1, 2]).await;
    cluster.kill(away, || false).await;
    let rows = outgrow_the_log(&cluster, &[leader, others(leader)[1]], 0).await;
    // Some that are in no file.
    for number in rows..rows + 5 {
        cluster.propose(GROUP, &row(number)).await;
    }
    let before = term(&cluster).await;
    cluster.restart(away).await;
    cluster.converge(GROUP, &[0, 1, 2]).await;
    let machine = Arc::clone(cluster.nodes[away].machine(GROUP));
    let installed = machine.installed.load(Ordering::Relaxed);
    // Another leader may have given up more of its log than those files cover.
    assert!(installed == 1 || installed > 1 && term(&cluster).await > before, "{installed}");
    assert!(machine.rows() == (0..rows + 5).map(row).collect::<Vec<_>>());
    // It survives a power cut right after, and is a replica like any other.
    cluster.kill(away, || false).await;
    cluster.restart(away).await;
    cluster.converge(GROUP, &[0, 1, 2]).await;
    cluster.hand_over(GROUP, away).await;
    cluster.propose(GROUP, &row(rows + 5)).await;
    cluster.converge(GROUP, &[0, 1, 2]).await;
    let machine = cluster.nodes[away].machine(GROUP);
    assert!(machine.rows() == (0..rows + 6).map(row).collect::<Vec<_>>());
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_was_away_for_a_moment_gets_the_log_though_all_was_flushed() {
    let mut cluster = Cluster::of_three(GROUP, 31).await;
    let leader = cluster.leader(GROUP).await;
    let away = others(leader)[0];
    cluster.kill(away, || false).await;
    for number in 0..10 {
        cluster.propose(GROUP, &row(number)).await;
    }
    for node in [leader, others(leader)[1]] {
        cluster.flush(GROUP, node).await;
    }
    cluster.restart(away).await;
    cluster.converge(GROUP, &[0, 1, 2]).await;
    let machine = cluster.nodes[away].machine(GROUP);
    assert_eq!(machine.installed.load(Ordering::Relaxed), 0);
    assert_eq!(machine.rows().len(), 10);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_that_breaks_goes_on_from_what_arrived() {
    let mut cluster = Cluster::new(4, 32).await;
    cluster.create(GROUP, &[0, 1, 2]).await;
    let rows = outgrow_the_log(&cluster, &[0, 1, 2], 300).await;
    cluster.start(3, GROUP, Recorder::new(), Start::Join).await;
    let machine = Arc::clone(cluster.nodes[3].machine(GROUP));
    let new = cluster.nodes[3].id;
    // At 2 MiB a second the transfer takes some seconds. It is cut off, so that nobody is told, and healed twice.
    let (before, begun) = (term(&cluster).await, Instant::now());
    let add = async |group: Arc<Group>| group.add_learner(replica(GROUP, new), new).await;
    cluster.at_leader(GROUP, add).await;
    let arrived = || machine.taken.load(Ordering::Relaxed);
    for part in 1..3 {
        let goal = part * (1 << 20);
        cluster.until(|| arrived() > goal, || "nothing comes in".to_owned()).await;
        cluster.network.isolate(new);
        tokio::time::sleep(Duration::from_millis(300)).await;
        cluster.network.heal();
    }
    cluster.converge(GROUP, &[0, 1, 2, 3]).await;
    assert!(machine.rows() == (0..rows).map(row).collect::<Vec<_>>());
    let (sent, installed) = (arrived(), machine.installed.load(Ordering::Relaxed));
    let bytes = (rows * ROW_BYTES) as u64;
    // Another leader sends files of its own.
    let elected = term(&cluster).await > before;
    assert!(installed == 1 || installed > 1 && elected, "{installed}");
    assert!(sent < bytes + (2 << 20) || elected, "{sent} bytes for {bytes}");
    let fastest = Duration::from_millis(bytes * 1000 / (2 << 20) - 300);
    assert!(begun.elapsed() > fastest, "{:?}: the budget is kept", begun.elapsed());
    // A learner that came so is as good as any voter.
    let voters = BTreeSet::from([0, 1, 3].map(|at| replica(GROUP, cluster.nodes[at].id)));
    cluster.at_leader(GROUP, async |group| group.set_voters(voters.clone()).await).await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_begins_with_files_waits_until_the_leader_has_given_up_the_logs_beginning() {
    let mut cluster = Cluster::new(4, 34).await;
    cluster.create(GROUP, &[0, 1, 2]).await;
    for number in 0..10 {
        cluster.propose(GROUP, &row(number)).await;
    }
    let machine = Recorder::new();
    machine.begins_with_files.store(true, Ordering::Relaxed);
    cluster.start(3, GROUP, Arc::clone(&machine), Start::Join).await;
    let new = cluster.nodes[3].id;
    let leader = cluster.leader(GROUP).await;
    cluster.nodes[leader].group(GROUP).add_learner(replica(GROUP, new), new).await.unwrap();
    let asked = || machine.asked.load(Ordering::Relaxed);
    cluster.until(|| asked() > 2, || "nobody sends it the log".to_owned()).await;
    assert_eq!(machine.applied(), None, "it makes nothing of the log's beginning");
    // Whoever leads by now has to have less of it.
    for at in 0..3 {
        cluster.nodes[at].machine(GROUP).flush();
        cluster.nodes[at].group(GROUP).give_up_log().await.unwrap();
    }
    cluster.converge(GROUP, &[0, 1, 2, 3]).await;
    assert!(machine.rows() == (0..10).map(row).collect::<Vec<_>>());
    assert_eq!(machine.installed.load(Ordering::Relaxed), 1);
    cluster.propose(GROUP, &row(10)).await;
    cluster.converge(GROUP, &[0, 1, 2, 3]).await;
    assert_eq!(machine.rows().len(), 11);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_between_installing_files_and_giving_up_the_log_for_them_is_survived() {
    let mut cluster = Cluster::of_three(GROUP, 33).await;
    cluster.propose(GROUP, &row(0)).await;
    cluster.converge(GROUP, &[0, 1, 2]).await;
    let leader = cluster.leader(GROUP).await;
    let crashed = others(leader)[0];
    cluster.kill(crashed, || false).await;
    for number in 1..20 {
        cluster.propose(GROUP, &row(number)).await;
    }
    // Its files reach beyond the end of its log.
    let leader = cluster.leader_among(GROUP, &others(crashed)).await;
    cluster.nodes[leader].machine(GROUP).flush();
    cluster.copy_files(GROUP, leader, crashed);
    cluster.restart(crashed).await;
    cluster.propose(GROUP, &row(20)).await;
    cluster.converge(GROUP, &[0, 1, 2]).await;
    assert!(cluster.nodes[crashed].machine(GROUP).rows() == (0..21).map(row).collect::<Vec<_>>());
    cluster.shutdown().await;
}
