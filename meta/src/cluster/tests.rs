//! Plans, checked against an operator's expectations.

mod scripts;
mod zones;

use std::collections::{BTreeMap, BTreeSet};

use partita_proto::id::{NodeId, PartitionId, ReplicaId};
use proptest::prelude::*;

use super::plan::{NodeView, PartitionView, Step, View, Why, plan};

const GIB: u64 = 1 << 30;

/// Live nodes without replicas.
fn nodes(count: u64) -> BTreeMap<NodeId, NodeView> {
    let node = NodeView { live: true, reported: true, ..NodeView::default() };
    (1..=count).map(|id| (NodeId(id), node.clone())).collect()
}

/// A view in which nodes have the replicas of these partitions; the first replica of each leads.
fn view(count: u64, partitions: &[&[u64]]) -> View {
    let mut view = View { nodes: nodes(count), ..View::default() };
    for (at, on) in (1..).zip(partitions) {
        let replicas: BTreeMap<_, _> =
            on.iter().map(|node| (ReplicaId(at * 100 + node), NodeId(*node))).collect();
        view.partitions.push(PartitionView {
            id: PartitionId(at),
            wanted: replicas.len(),
            leader: on.first().map(|node| NodeId(*node)),
            settling: false,
            replicas,
            target: None,
            missing: BTreeSet::new(),
            vanished: BTreeSet::new(),
            bytes: 0,
            in_use: true,
            reshaping: false,
        });
    }
    report(&mut view);
    view
}

/// Makes every live node report the replicas recorded for it.
fn report(view: &mut View) {
    for partition in &view.partitions {
        for (replica, node) in &partition.replicas {
            if let Some(node) = view.nodes.get_mut(node).filter(|node| node.live) {
                node.has.insert(partition.id, *replica);
            }
        }
    }
}

fn lose(view: &mut View, node: u64) {
    let lost = NodeView { lost: true, ..NodeView::default() };
    view.nodes.insert(NodeId(node), lost);
    for partition in &mut view.partitions {
        if partition.leader == Some(NodeId(node)) {
            partition.leader = None;
        }
    }
}

fn moves(steps: &[Step]) -> Vec<(u64, Vec<u64>, Vec<u64>, Why)> {
    let of = |step: &Step| match step {
        Step::Move { partition, add, remove, why } => Some((
            partition.0,
            add.iter().map(|node| node.0).collect(),
            remove.iter().map(|replica| replica.0).collect(),
            *why,
        )),
        _ => None,
    };
    steps.iter().filter_map(of).collect()
}

/// Carries out a plan at once, as if every node had obeyed.
fn carry_out(view: &mut View, steps: &[Step]) {
    let known = view.partitions.iter().flat_map(|one| one.replicas.keys().copied());
    let mut next = known.max().unwrap_or_default().0;
    for step in steps {
        match step {
            Step::Move { partition, add, remove, .. } => {
                let one = view.partitions.iter_mut().find(|one| one.id == *partition).unwrap();
                one.replicas.retain(|replica, _| !remove.contains(replica));
                for node in add {
                    next += 1;
                    one.replicas.insert(ReplicaId(next), *node);
                }
                let nodes: BTreeSet<_> = one.replicas.values().collect();
                assert_eq!(nodes.len(), one.replicas.len(), "two replicas on one node: {step:?}");
                assert!(!one.replicas.is_empty());
                if one.leader.is_none_or(|leader| !nodes.contains(&leader)) {
                    let live = one.replicas.values().find(|node| view.nodes[node].live);
                    one.leader = live.copied();
                }
            }
            Step::Transfer { partition, to, .. } => {
                let one = view.partitions.iter_mut().find(|one| one.id == *partition).unwrap();
                assert!(one.replicas.values().any(|node| node == to));
                one.leader = Some(*to);
            }
            Step::Renumber { partition, replicas } => {
                let one = view.partitions.iter_mut().find(|one| one.id == *partition).unwrap();
                let target = one.target.as_mut().unwrap();
                for replica in replicas {
                    next += 1;
                    let node = target.remove(replica).unwrap();
                    target.insert(ReplicaId(next), node);
                    assert!(one.vanished.remove(replica));
                }
            }
            Step::GiveUp { partition } => {
                let one = view.partitions.iter_mut().find(|one| one.id == *partition).unwrap();
                assert!(one.reshaping);
                one.reshaping = false;
            }
            Step::Remove { partition, replica, node } => {
                let has = &mut view.nodes.get_mut(node).unwrap().has;
                assert_eq!(has.remove(partition), Some(*replica));
            }
        }
    }
    for node in view.nodes.values_mut() {
        node.has.clear();
    }
    report(view);
}

/// Plans until no steps are left.
fn settle(view: &mut View) -> usize {
    for round in 0..10_000 {
        let steps = plan(view);
        if steps.is_empty() {
            return round;
        }
        carry_out(view, &steps);
    }
    panic!("the plan never comes to rest");
}

#[test]
fn a_group_that_cannot_decide_is_left_alone_and_keeps_nobody_waiting() {
    // Ten partitions were being changed when they lost two of three nodes, and one lost one of three.
    let mut on: Vec<&[u64]> = vec![&[3, 4, 5]; 10];
    on.push(&[1, 2, 3]);
    let mut view = view(6, &on);
    for partition in &mut view.partitions[..10] {
        let mut target = partition.replicas.clone();
        target.insert(ReplicaId(partition.id.0 * 100 + 6), NodeId(6));
        partition.target = Some(target);
    }
    lose(&mut view, 3);
    lose(&mut view, 4);
    assert_eq!(moves(&plan(&view)), [(11, vec![5], vec![1103], Why::Lost)]);
    for partition in &mut view.partitions[..10] {
        partition.target = None;
    }
    assert_eq!(moves(&plan(&view)).iter().map(|step| step.0).collect::<Vec<_>>(), [11]);
}

#[test]
fn one_that_was_to_come_stays_until_the_group_has_agreed_to_do_without() {
    // Replica 104 was to come to node 4, and is not any more; the group may have taken it in.
    let mut view = view(4, &[&[1, 2, 3]]);
    view.nodes.get_mut(&NodeId(4)).unwrap().has.insert(PartitionId(1), ReplicaId(104));
    view.partitions[0].target = Some(view.partitions[0].replicas.clone());
    assert_eq!(plan(&view), []);
    // Another replica is to be opened.
    view.partitions[0].target.as_mut().unwrap().insert(ReplicaId(105), NodeId(4));
    let (partition, replica, node) = (PartitionId(1), ReplicaId(104), NodeId(4));
    assert_eq!(plan(&view), [Step::Remove { partition, replica, node }]);
    // The group is done.
    view.partitions[0].target = None;
    assert_eq!(plan(&view), [Step::Remove { partition, replica, node }]);
}

#[test]
fn a_replica_that_returns_late_is_kept_and_not_created_anew() {
    // Node 2 had nothing of the partition, which was to be created there anew; then it split the replica off.
    let mut view = view(3, &[&[1, 2, 3]]);
    let mut target = view.partitions[0].replicas.clone();
    target.remove(&ReplicaId(102));
    target.insert(ReplicaId(104), NodeId(2));
    view.partitions[0].target = Some(target);
    assert_eq!(moves(&plan(&view)), [(1, vec![], vec![], Why::Lost)]);
    // Until then the change goes on.
    view.nodes.get_mut(&NodeId(2)).unwrap().has.clear();
    assert_eq!(plan(&view), []);
}

#[test]
fn a_draining_node_keeps_its_replicas_while_one_is_awaited_there() {
    let mut view = view(5, &[&[1, 2, 3], &[1, 2, 4], &[2, 3, 4]]);
    for node in [1, 3] {
        view.nodes.get_mut(&NodeId(node)).unwrap().draining = true;
    }
    view.awaited = BTreeSet::from([NodeId(1)]);
    let moved = moves(&plan(&view));
    assert!(!moved.is_empty(), "node 3 goes on");
    assert!(moved.iter().all(|(_, _, gone, _)| gone.iter().all(|one| one % 100 == 3)), "{moved:?}");
    view.awaited.clear();
    settle(&mut view);
    assert!(
        view.partitions
            .iter()
            .all(|one| one.replicas.values().all(|at| at.0 % 2 == 0 || at.0 == 5))
    );
}

#[test]
fn a_partition_that_is_split_or_merged_keeps_its_replicas_until_one_is_lost() {
    let mut view = view(5, &[&[1, 2, 3], &[1, 2, 3], &[1, 2, 3]]);
    for partition in &mut view.partitions {
        partition.reshaping = true;
        partition.wanted = 1;
    }
    view.nodes.get_mut(&NodeId(1)).unwrap().draining = true;
    assert_eq!(plan(&view), []);
    for partition in &mut view.partitions[1..] {
        partition.in_use = false;
    }
    view.partitions[0].wanted = 3;
    lose(&mut view, 3);
    assert_eq!(plan(&view), [Step::GiveUp { partition: PartitionId(1) }]);
    view.partitions[0].reshaping = false;
    assert_eq!(moves(&plan(&view)), [(1, vec![4], vec![103], Why::Lost)]);
}

proptest! {
    #[test]
    fn any_cluster_comes_to_rest_with_every_partition_as_it_should_be(
        count in 3..8_u64,
        on in prop::collection::vec(
            (prop::collection::btree_set(1..8_u64, 1..5), 1..4_usize, 0..3_u64), 0..30
        ),
        lost in prop::collection::btree_set(1..8_u64, 0..2),
        draining in prop::option::of(1..8_u64),
    ) {
        let on: Vec<(Vec<u64>, usize, u64)> = on
            .into_iter()
            .map(|(on, wanted, gib)| {
                (on.into_iter().filter(|node| *node <= count).collect::<Vec<_>>(), wanted, gib)
            })
            .filter(|(on, ..)| !on.is_empty())
            .collect();
        let slices: Vec<&[u64]> = on.iter().map(|(on, ..)| on.as_slice()).collect();
        let mut view = view(count, &slices);
        for (partition, (_, wanted, gib)) in view.partitions.iter_mut().zip(&on) {
            partition.wanted = *wanted;
            partition.bytes = gib * GIB;
        }
        for node in lost.iter().filter(|node| **node <= count) {
            lose(&mut view, *node);
        }
        if let Some(node) = draining.and_then(|node| view.nodes.get_mut(&NodeId(node))) {
            node.draining = true;
        }
        let hopeless: BTreeSet<PartitionId> = view
            .partitions
            .iter()
            .filter(|one| {
                let works = one.replicas.values().filter(|node| view.nodes[node].live).count();
                2 * works <= one.replicas.len()
            })
            .map(|one| one.id)
            .collect();
        settle(&mut view);
        let able = view.nodes.values().filter(|node| node.live && !node.draining).count();
        for partition in view.partitions.iter().filter(|one| !hopeless.contains(&one.id)) {
            let good = partition.replicas.values().filter(|node| {
                view.nodes[node].live && !view.nodes[node].draining
            });
            prop_assert!(good.count() >= partition.wanted.min(able), "{partition:?}");
        }
    }
}
