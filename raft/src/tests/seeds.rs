//! Groups that are seeded with another group's state.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::calm::{ensure, undisturbed};
use super::cluster::{Cluster, replica};
use super::recorder::Recorder;
use crate::{GroupId, Mark, NodeId, RaftError, ReplicaId, Start};

const PARENT: GroupId = GroupId(5);
const CHILD: GroupId = GroupId(6);

fn row(number: usize) -> Bytes {
    Bytes::from(format!("row {number}"))
}

fn children(nodes: u64) -> BTreeMap<NodeId, ReplicaId> {
    (1..=nodes).map(NodeId).map(|node| (node, replica(CHILD, node))).collect()
}

/// A group of three with ten rows that all have applied; the mark that its child begins with.
async fn grown(seed: u64) -> (Cluster, Mark) {
    let cluster = Cluster::of_three(PARENT, seed).await;
    for number in 0..10 {
        cluster.propose(PARENT, &row(number)).await;
    }
    cluster.converge(PARENT, &[0, 1, 2]).await;
    let mark = cluster.nodes[0].machine(PARENT).mark().unwrap();
    (cluster, mark.child(&children(3), None).unwrap())
}

impl Cluster {
    async fn seed(&self, node: usize, mark: &Mark) -> Result<bool, RaftError> {
        let node = &self.nodes[node];
        node.host.seed_group(CHILD, replica(CHILD, node.id), mark).await
    }

    fn child_machine(&self, node: usize, mark: &Mark) -> Arc<Recorder> {
        Recorder::seeded(self.nodes[node].machine(PARENT), mark.clone())
    }

    async fn bear(&mut self, node: usize, mark: &Mark) {
        assert!(self.seed(node, mark).await.unwrap());
        let machine = self.child_machine(node, mark);
        self.start(node, CHILD, machine, Start::Seeded).await;
    }

    fn rows_of_child(&self, node: usize) -> Vec<Bytes> {
        self.nodes[node].machine(CHILD).rows()
    }
}

fn rows(end: usize) -> Vec<Bytes> {
    (0..end).map(row).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seeded_group_is_led_by_its_parents_leader_without_an_election() {
    undisturbed(async |attempt| {
        let (mut cluster, mark) = grown(1 + attempt).await;
        let inherited = inherited(&mut cluster, &mark).await;
        cluster.shutdown().await;
        inherited
    })
    .await;
}

async fn inherited(cluster: &mut Cluster, mark: &Mark) -> Result<(), String> {
    let leader = cluster.leader(PARENT).await;
    let term = cluster.nodes[leader].group(PARENT).status().term;
    for node in 0..3 {
        cluster.bear(node, mark).await;
    }
    let child = cluster.nodes[leader].group(CHILD);
    let status = child.status();
    ensure(status.is_leader, || format!("{status:?}"))?;
    let applied = child.propose(row(10)).await.map_err(|error| error.to_string())?;
    // The first entry comes right after the seed.
    ensure(applied.index == mark.index() + 1, || format!("{applied:?} after {}", mark.index()))?;
    child.read_barrier().await.map_err(|error| error.to_string())?;
    cluster.converge(CHILD, &[0, 1, 2]).await;
    for node in 0..3 {
        assert_eq!(cluster.rows_of_child(node), rows(11));
        assert_eq!(cluster.nodes[node].machine(CHILD).installed.load(Ordering::Relaxed), 0);
        let status = cluster.nodes[node].group(CHILD).status();
        ensure(status.term == term, || format!("somebody was elected: {status:?}"))?;
    }
    // The parent goes on by itself.
    cluster.propose(PARENT, &row(99)).await;
    assert_eq!(cluster.rows_of_child(leader), rows(11));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seeded_group_is_led_at_once_by_the_replica_that_its_mark_names() {
    undisturbed(async |attempt| {
        let (mut cluster, _) = grown(40 + attempt).await;
        let led = led_by_another(&mut cluster).await;
        cluster.shutdown().await;
        led
    })
    .await;
}

async fn led_by_another(cluster: &mut Cluster) -> Result<(), String> {
    let leader = cluster.leader(PARENT).await;
    let term = cluster.nodes[leader].group(PARENT).status().term;
    let named_node = (leader + 1) % 3;
    let mark = cluster.nodes[leader].machine(PARENT).mark().unwrap();
    let mark = mark.child(&children(3), Some(cluster.nodes[named_node].id)).unwrap();
    // It begins before the others do, and asks them again until they are there.
    for node in [named_node, leader, (leader + 2) % 3] {
        cluster.bear(node, &mark).await;
    }
    let child = cluster.nodes[named_node].group(CHILD);
    let status = child.status();
    ensure(status.is_leader, || format!("{status:?}"))?;
    let applied = child.propose(row(10)).await.map_err(|error| error.to_string())?;
    ensure(applied.index == mark.index() + 1, || format!("{applied:?} after {}", mark.index()))?;
    child.read_barrier().await.map_err(|error| error.to_string())?;
    cluster.converge(CHILD, &[0, 1, 2]).await;
    for node in 0..3 {
        assert_eq!(cluster.rows_of_child(node), rows(11));
        let status = cluster.nodes[node].group(CHILD).status();
        ensure(status.term == term, || format!("somebody was elected: {status:?}"))?;
    }
    Ok(())
}

/// A parent of three, the node that leads it, another one, and the mark of a child that this one is to lead.
async fn naming(seed: u64) -> (Cluster, usize, usize, Mark) {
    let (cluster, _) = grown(seed).await;
    let leader = cluster.leader(PARENT).await;
    let named_node = (leader + 1) % 3;
    let mark = cluster.nodes[leader].machine(PARENT).mark().unwrap();
    let mark = mark.child(&children(3), Some(cluster.nodes[named_node].id)).unwrap();
    (cluster, leader, named_node, mark)
}

/// Checks that all replicas have the rows before `end`, and were led in a higher term than the mark's.
async fn check_elected(cluster: &Cluster, mark: &Mark, end: usize) {
    cluster.converge(CHILD, &[0, 1, 2]).await;
    for node in 0..3 {
        assert_eq!(cluster.rows_of_child(node), rows(end));
        let status = cluster.nodes[node].group(CHILD).status();
        assert!(status.term > mark.position().term, "{status:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_a_mark_names_and_that_begins_late_overwrites_nothing() {
    let (mut cluster, leader, named_node, mark) = naming(7).await;
    // It is not there: the others elect one of them, and go on.
    let others = [leader, (leader + 2) % 3];
    for node in others {
        cluster.bear(node, &mark).await;
    }
    for number in 10..20 {
        cluster.propose_among(CHILD, &row(number), &others).await;
    }
    // By its mark it leads, but in a term that is over.
    cluster.bear(named_node, &mark).await;
    cluster.propose(CHILD, &row(20)).await;
    check_elected(&cluster, &mark, 21).await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_a_mark_names_does_not_lead_by_it_once_more_after_a_crash() {
    let (mut cluster, _, named_node, mark) = naming(8).await;
    for node in 0..3 {
        cluster.bear(node, &mark).await;
    }
    cluster.propose(CHILD, &row(10)).await;
    cluster.kill(named_node, || false).await;
    cluster.restart(named_node).await;
    assert!(!cluster.seed(named_node, &mark).await.unwrap(), "it is there");
    cluster.propose(CHILD, &row(11)).await;
    check_elected(&cluster, &mark, 12).await;
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_of_one_is_seeded_and_leads() {
    let mut cluster = Cluster::new(1, 2).await;
    cluster.create(PARENT, &[0]).await;
    cluster.propose(PARENT, &row(0)).await;
    let mark = cluster.nodes[0].machine(PARENT).mark().unwrap().child(&children(1), None).unwrap();
    cluster.bear(0, &mark).await;
    assert!(cluster.nodes[0].group(CHILD).status().is_leader);
    cluster.nodes[0].group(CHILD).propose(row(1)).await.unwrap();
    assert_eq!(cluster.rows_of_child(0), rows(2));
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_is_in_the_log_is_not_seeded_again() {
    let (mut cluster, mark) = grown(3).await;
    assert!(cluster.seed(0, &mark).await.unwrap());
    assert!(!cluster.seed(0, &mark).await.unwrap(), "it is there, though it does not run");
    for node in 0..3 {
        if node > 0 {
            cluster.seed(node, &mark).await.unwrap();
        }
        let machine = cluster.child_machine(node, &mark);
        cluster.start(node, CHILD, machine, Start::Seeded).await;
    }
    cluster.propose(CHILD, &row(10)).await;
    assert!(!cluster.seed(0, &mark).await.unwrap(), "it runs");
    cluster.converge(CHILD, &[0, 1, 2]).await;
    cluster.kill(0, || false).await;
    cluster.restart(0).await;
    assert!(!cluster.seed(0, &mark).await.unwrap(), "it has gone on");
    cluster.propose(CHILD, &row(11)).await;
    cluster.converge(CHILD, &[0, 1, 2]).await;
    assert_eq!(cluster.rows_of_child(0), rows(12));
    let foreign = cluster.nodes[0].host.seed_group(GroupId(7), ReplicaId(1), &mark).await;
    assert!(matches!(foreign, Err(RaftError::InvalidInput(_))), "{foreign:?}");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_whose_nodes_crashed_before_it_was_started_elects_a_leader() {
    let (mut cluster, mark) = grown(4).await;
    for node in 0..3 {
        cluster.seed(node, &mark).await.unwrap();
        let machine = cluster.child_machine(node, &mark);
        cluster.nodes[node].machine(PARENT).flush();
        cluster.give_machine(node, CHILD, machine);
    }
    for node in 0..3 {
        cluster.kill(node, || false).await;
    }
    for node in 0..3 {
        cluster.restart(node).await;
    }
    cluster.propose(CHILD, &row(10)).await;
    cluster.converge(CHILD, &[0, 1, 2]).await;
    for node in 0..3 {
        assert_eq!(cluster.rows_of_child(node), rows(11));
        let term = cluster.nodes[node].group(CHILD).status().term;
        assert!(term > mark.position().term, "nobody leads by a seed from before a crash");
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_seeded_late_gets_the_log_and_no_files() {
    let (mut cluster, mark) = grown(5).await;
    let leader = cluster.leader(PARENT).await;
    let late = (leader + 1) % 3;
    for node in (0..3).filter(|node| *node != late) {
        cluster.bear(node, &mark).await;
    }
    for number in 10..30 {
        cluster.propose(CHILD, &row(number)).await;
    }
    cluster.bear(late, &mark).await;
    cluster.converge(CHILD, &[0, 1, 2]).await;
    assert_eq!(cluster.rows_of_child(late), rows(30));
    assert_eq!(cluster.nodes[late].machine(CHILD).installed.load(Ordering::Relaxed), 0);
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_leader_that_a_seed_names_is_lost_another_is_elected() {
    let (mut cluster, mark) = grown(6).await;
    let leader = cluster.leader(PARENT).await;
    for node in (0..3).filter(|node| *node != leader) {
        cluster.bear(node, &mark).await;
    }
    cluster.kill(leader, || false).await;
    let others: Vec<usize> = (0..3).filter(|node| *node != leader).collect();
    cluster.propose_among(CHILD, &row(10), &others).await;
    cluster.converge(CHILD, &others).await;
    for node in others {
        assert_eq!(cluster.rows_of_child(node), rows(11));
    }
    for node in cluster.nodes.iter().filter(|node| node.id != NodeId(leader as u64 + 1)) {
        node.host.shutdown().await.unwrap();
    }
}
