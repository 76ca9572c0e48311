//! Replicas over zones: as far apart as there is room for, never at the price of a replica, and at rest in the end.

use super::*;

/// Puts nodes into zones, from node 1 on; a dot is a node without one.
fn zoned(view: &mut View, zones: &str) {
    for (node, zone) in (1..).zip(zones.chars()) {
        let node = view.nodes.get_mut(&NodeId(node)).unwrap();
        node.zone = (zone != '.').then(|| zone.to_string());
    }
}

/// The zone of a node; one without is its own.
fn zone(view: &View, node: NodeId) -> String {
    view.nodes[&node].zone.clone().unwrap_or_else(|| format!("node {node}"))
}

/// Number of a partition's replicas in each zone.
fn per_zone(view: &View, partition: &PartitionView) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for node in partition.replicas.values() {
        *counts.entry(zone(view, *node)).or_insert(0) += 1;
    }
    counts
}

fn pairs_of(counts: &BTreeMap<String, usize>) -> usize {
    counts.values().map(|count| count * (count - 1) / 2).sum()
}

/// Pairs of replicas of one partition in one zone.
fn pairs(view: &View) -> usize {
    view.partitions.iter().map(|one| pairs_of(&per_zone(view, one))).sum()
}

/// The fewest pairs that a partition can have on the nodes that may take replicas: each goes where the fewest are.
fn fewest_pairs(view: &View, replicas: usize) -> usize {
    let mut room: BTreeMap<String, usize> = BTreeMap::new();
    for (node, seen) in &view.nodes {
        if seen.live && !seen.draining {
            *room.entry(zone(view, *node)).or_insert(0) += 1;
        }
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..replicas {
        let count = |zone: &String| counts.get(zone).copied().unwrap_or(0);
        let open = room.iter().filter(|(zone, room)| count(zone) < **room);
        let Some((zone, _)) = open.min_by_key(|(zone, _)| count(zone)) else { break };
        *counts.entry(zone.clone()).or_insert(0) += 1;
    }
    pairs_of(&counts)
}

/// As [`settle`], and looks at each step that only balances.
fn settle_watched(view: &mut View) {
    for _ in 0..10_000 {
        let steps = plan(view);
        if steps.is_empty() {
            return;
        }
        for step in &steps {
            let Step::Move { partition, why, .. } = step else { continue };
            let of = |view: &View| {
                let one = view.partitions.iter().find(|one| one.id == *partition).unwrap();
                pairs_of(&per_zone(view, one))
            };
            let before = of(view);
            let mut after = view.clone();
            carry_out(&mut after, std::slice::from_ref(step));
            match why {
                Why::Zone => assert!(of(&after) < before, "{step:?}"),
                Why::Balance => assert!(of(&after) <= before, "{step:?}"),
                Why::Lost | Why::Draining | Why::TooFew | Why::TooMany => {}
            }
        }
        carry_out(view, &steps);
    }
    panic!("the plan never comes to rest");
}

#[test]
fn a_cluster_that_is_given_labels_node_by_node_moves_no_more_than_it_must() {
    let mut view = view(6, &[&[1, 2, 3], &[4, 5, 6], &[1, 3, 5], &[2, 4, 6]]);
    for zones in ["a.....", "aa....", "aab...", "aabb..", "aabbc.", "aabbcc"] {
        zoned(&mut view, zones);
        settle_watched(&mut view);
        assert_eq!(pairs(&view), 0, "{zones}");
    }
    zoned(&mut view, "a.....");
    assert_eq!(plan(&view), [], "a node without a zone is a zone of its own");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_cluster_comes_to_rest_with_replicas_as_far_apart_as_there_are_zones(
        zones in "[abcd.]{3,9}",
        on in prop::collection::vec(
            (prop::collection::btree_set(1..10_u64, 1..5), 1..5_usize, 0..3_u64), 0..25
        ),
        lost in prop::collection::btree_set(1..10_u64, 0..3),
        draining in prop::option::of(1..10_u64),
    ) {
        let count = zones.len() as u64;
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
        zoned(&mut view, &zones);
        if let Some(node) = draining.and_then(|node| view.nodes.get_mut(&NodeId(node))) {
            node.draining = true;
        }
        let works = |view: &View, one: &PartitionView| {
            let live = one.replicas.values().filter(|node| view.nodes[node].live).count();
            2 * live > one.replicas.len()
        };
        let hopeful: Vec<bool> = view.partitions.iter().map(|one| works(&view, one)).collect();
        settle_watched(&mut view);
        let able = |node: &NodeId| view.nodes[node].live && !view.nodes[node].draining;
        let ables = view.nodes.keys().filter(|node| able(node)).count();
        for (partition, hopeful) in view.partitions.iter().zip(hopeful) {
            if !hopeful {
                continue;
            }
            let good = partition.replicas.values().filter(|node| able(node)).count();
            // Zones never stand in the way of a replica.
            prop_assert!(good >= partition.wanted.min(ables), "{partition:?}");
            if good == partition.replicas.len() {
                let found = per_zone(&view, partition);
                prop_assert_eq!(pairs_of(&found), fewest_pairs(&view, good), "{:?}", found);
            }
        }
    }
}
