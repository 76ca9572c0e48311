//! Plans, checked against an operator's expectations.

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
fn a_cluster_in_order_is_left_alone() {
    assert_eq!(plan(&view(3, &[&[1, 2, 3], &[2, 3, 1], &[3, 1, 2]])), []);
    assert_eq!(plan(&View::default()), []);
}

#[test]
fn a_lost_replica_is_made_anew_where_there_is_least() {
    let mut view = view(5, &[&[1, 2, 3], &[1, 2, 4]]);
    lose(&mut view, 3);
    assert_eq!(moves(&plan(&view)), [(1, vec![5], vec![103], Why::Lost)]);
}

#[test]
fn with_nowhere_to_go_a_lost_replica_stays_in_the_group() {
    let mut view = view(3, &[&[1, 2, 3]]);
    lose(&mut view, 3);
    assert_eq!(moves(&plan(&view)), []);
}

#[test]
fn what_has_no_replica_left_that_works_is_left_as_it_is() {
    let mut view = view(3, &[&[1], &[2]]);
    lose(&mut view, 1);
    view.partitions[1].missing.insert(ReplicaId(202));
    assert_eq!(moves(&plan(&view)), []);
}

#[test]
fn a_node_that_was_silent_for_a_moment_loses_nothing() {
    let mut view = view(5, &[&[1, 2, 3]]);
    view.nodes.get_mut(&NodeId(3)).unwrap().live = false;
    assert_eq!(moves(&plan(&view)), []);
}

#[test]
fn a_partition_with_fewer_replicas_left_comes_first() {
    let mut view = view(7, &[&[1, 2, 3, 4, 5], &[1, 2, 3]]);
    lose(&mut view, 3);
    assert_eq!(moves(&plan(&view)).iter().map(|step| step.0).collect::<Vec<_>>(), [2, 1]);
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
fn leaders_that_were_just_moved_count_where_they_go_and_are_not_moved_again() {
    let mut view = view(2, &[&[1, 2][..]; 10]);
    let steps = plan(&view);
    let transfers = steps.iter().filter(|step| matches!(step, Step::Transfer { .. })).count();
    assert_eq!(transfers, 5);
    carry_out(&mut view, &steps);
    for partition in view.partitions.iter_mut().filter(|one| one.leader == Some(NodeId(2))) {
        partition.settling = true;
    }
    assert_eq!(plan(&view), []);
}

#[test]
fn a_data_directory_that_lost_a_replica_gets_another() {
    let mut view = view(4, &[&[1, 2, 3]]);
    view.partitions[0].missing.insert(ReplicaId(102));
    assert_eq!(moves(&plan(&view)), [(1, vec![4], vec![102], Why::Lost)]);
}

#[test]
fn a_node_that_lost_a_replica_gets_another_itself_when_there_is_no_other_node() {
    let mut view = view(3, &[&[1, 2, 3]]);
    view.partitions[0].missing.insert(ReplicaId(102));
    view.nodes.get_mut(&NodeId(2)).unwrap().has.clear();
    assert_eq!(moves(&plan(&view)), [(1, vec![2], vec![102], Why::Lost)]);
}

#[test]
fn a_replica_that_failed_makes_room_for_another_on_its_node() {
    let mut view = view(3, &[&[1, 2, 3]]);
    view.partitions[0].missing.insert(ReplicaId(102));
    assert_eq!(moves(&plan(&view)), [(1, vec![], vec![102], Why::Lost)]);
    // Not when too few are left that work.
    view.partitions[0].missing.insert(ReplicaId(103));
    assert_eq!(moves(&plan(&view)), []);
}

#[test]
fn a_change_that_would_leave_too_few_that_work_is_replaced() {
    let mut view = view(3, &[&[1, 2, 3]]);
    let partition = &mut view.partitions[0];
    partition.wanted = 2;
    partition.target = Some([(ReplicaId(101), NodeId(1)), (ReplicaId(102), NodeId(2))].into());
    assert_eq!(moves(&plan(&view)), []);
    view.partitions[0].missing.insert(ReplicaId(102));
    assert_eq!(moves(&plan(&view)), [(1, vec![], vec![102], Why::Lost)]);
}

#[test]
fn a_replica_that_its_node_does_not_have_goes_before_one_that_is_there() {
    let mut view = view(3, &[&[1, 2, 3]]);
    view.partitions[0].wanted = 2;
    view.partitions[0].leader = Some(NodeId(3));
    view.nodes.get_mut(&NodeId(2)).unwrap().has.clear();
    assert_eq!(moves(&plan(&view)), [(1, vec![], vec![102], Why::TooMany)]);
}

#[test]
fn replicas_come_and_go_by_the_factor() {
    let mut view = view(4, &[&[1, 2, 3]]);
    view.partitions[0].wanted = 1;
    // The leader stays.
    assert_eq!(moves(&plan(&view)), [(1, vec![], vec![102, 103], Why::TooMany)]);
    settle(&mut view);
    assert_eq!(view.partitions[0].replicas.values().copied().collect::<Vec<_>>(), [NodeId(1)]);
    view.partitions[0].wanted = 3;
    settle(&mut view);
    assert_eq!(view.partitions[0].replicas.len(), 3);
}

#[test]
fn a_draining_node_loses_its_replicas_and_its_leaders() {
    let mut view = view(4, &[&[1, 2, 3], &[1, 2, 4], &[1, 3, 4]]);
    view.nodes.get_mut(&NodeId(1)).unwrap().draining = true;
    settle(&mut view);
    for partition in &view.partitions {
        assert!(!partition.replicas.values().any(|node| *node == NodeId(1)));
        assert_eq!(partition.replicas.len(), 3);
    }
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
fn a_group_is_not_made_smaller_while_those_that_stay_could_not_decide() {
    // A split's copies, just made: two are wanted, and node 3 has not got its own, or it may never have.
    let mut view = view(3, &[&[1, 2, 3]]);
    view.partitions[0].wanted = 2;
    let mut seen = view.clone();
    for node in [1, 3] {
        view.nodes.get_mut(&NodeId(node)).unwrap().has.clear();
    }
    assert_eq!(moves(&plan(&view)), [], "nobody knows who works");
    seen.nodes.get_mut(&NodeId(3)).unwrap().has.clear();
    assert_eq!(moves(&plan(&seen)), [(1, vec![], vec![103], Why::TooMany)]);
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
fn a_new_node_gets_its_share_and_then_nothing_moves() {
    let mut view = view(4, &[&[1, 2, 3][..]; 12]);
    settle(&mut view);
    let count = |node| {
        let here = |one: &&PartitionView| one.replicas.values().any(|at| *at == NodeId(node));
        view.partitions.iter().filter(here).count()
    };
    assert_eq!((1..=4).map(count).collect::<Vec<_>>(), [9, 9, 9, 9]);
    let leads = |node| view.partitions.iter().filter(|p| p.leader == Some(NodeId(node))).count();
    assert!((1..=4).all(|node| (2..=4).contains(&leads(node))), "{view:?}");
}

#[test]
fn nothing_is_balanced_while_a_replica_is_awaited_but_what_is_lost_is_made_anew() {
    let mut view = view(4, &[&[1, 2, 3], &[1, 2, 3], &[1, 2, 3], &[1, 2, 3]]);
    assert!(!moves(&plan(&view)).is_empty(), "the fourth node gets its share");
    view.awaited = BTreeSet::from([NodeId(2)]);
    assert_eq!(moves(&plan(&view)), []);
    lose(&mut view, 3);
    assert!(moves(&plan(&view)).iter().all(|(.., why)| *why == Why::Lost));
    assert!(!moves(&plan(&view)).is_empty());
}

#[test]
fn bytes_count_where_there_are_many() {
    // As many replicas everywhere, but node 1 has all the large ones.
    let mut view = view(2, &[&[1], &[1], &[2], &[2]]);
    view.partitions[0].bytes = 8 * GIB;
    view.partitions[1].bytes = 8 * GIB;
    let steps = plan(&view);
    assert_eq!(moves(&steps).first().map(|step| step.3), Some(Why::Balance));
    settle(&mut view);
    let bytes = |node| -> u64 {
        let here = |one: &&PartitionView| one.replicas.values().any(|at| *at == NodeId(node));
        view.partitions.iter().filter(here).map(|one| one.bytes).sum()
    };
    assert_eq!((bytes(1), bytes(2)), (8 * GIB, 8 * GIB));
}

#[test]
fn what_is_nobodys_is_removed_and_what_is_being_made_is_not() {
    let mut view = view(4, &[&[1, 2, 3]]);
    let has = &mut view.nodes.get_mut(&NodeId(4)).unwrap().has;
    has.insert(PartitionId(1), ReplicaId(104));
    has.insert(PartitionId(9), ReplicaId(900));
    let remove = |partition, replica| Step::Remove {
        partition: PartitionId(partition),
        replica: ReplicaId(replica),
        node: NodeId(4),
    };
    assert_eq!(plan(&view), [remove(1, 104), remove(9, 900)]);
    let mut target = view.partitions[0].replicas.clone();
    target.insert(ReplicaId(104), NodeId(4));
    view.partitions[0].target = Some(target);
    assert_eq!(plan(&view), [remove(9, 900)]);
}

#[test]
fn what_is_being_born_is_not_removed() {
    let mut view = view(3, &[&[1, 2, 3]]);
    view.nodes.get_mut(&NodeId(2)).unwrap().has.insert(PartitionId(9), ReplicaId(902));
    let born = (PartitionId(9), ReplicaId(902), NodeId(2));
    view.unborn.insert(born);
    assert_eq!(plan(&view), []);
    view.unborn.clear();
    let (partition, replica, node) = born;
    assert_eq!(plan(&view), [Step::Remove { partition, replica, node }]);
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

#[test]
fn a_move_to_a_node_that_got_lost_goes_elsewhere() {
    let mut view = view(5, &[&[1, 2, 3]]);
    let target = BTreeMap::from([
        (ReplicaId(101), NodeId(1)),
        (ReplicaId(102), NodeId(2)),
        (ReplicaId(7), NodeId(4)),
    ]);
    view.partitions[0].target = Some(target);
    assert_eq!(moves(&plan(&view)), []);
    lose(&mut view, 4);
    // Node 3 is well: what was wanted of it is no longer known, so nothing changes after all.
    assert_eq!(moves(&plan(&view)), [(1, vec![], vec![], Why::Lost)]);
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
