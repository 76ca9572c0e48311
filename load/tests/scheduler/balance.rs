//! Busy nodes: leaders and replicas move until the load is spread, and then rest.

use partita_load::{Class, Step, TableFacts};

use crate::flows::{even, whole};
use crate::fluid::{Oracle, START_MS, World};

fn is_transfer(step: &Step) -> bool {
    matches!(step, Step::TransferLeader { .. })
}

fn is_move(step: &Step) -> bool {
    matches!(step, Step::MoveReplica { .. })
}

fn max_over_mean(loads: &[f64]) -> f64 {
    let mean = loads.iter().sum::<f64>() / loads.len() as f64;
    loads.iter().copied().fold(0.0, f64::max) / mean
}

#[test]
fn many_lukewarm_partitions_on_one_node_are_spread() {
    let mut world = World::new(10, 4.0, 1);
    // 200 leaders of 0.02 on node 0; replicas of each on two others.
    let voters = |part: u32| vec![0, 1 + part % 9, 1 + (part / 9 + part + 4) % 9];
    let voters = move |part: u32| {
        let mut chosen: Vec<u32> = voters(part);
        chosen.dedup();
        if chosen[1..].iter().any(|node| *node == chosen[0])
            || chosen.len() < 3
            || chosen[1] == chosen[2]
        {
            chosen = vec![0, 1 + part % 9, 1 + (part + 1) % 9];
        }
        chosen
    };
    world.add_table(1, TableFacts::default(), Oracle::Halves, 200, voters, even(4.0));
    assert!(max_over_mean(&world.node_loads()) > 4.0);
    world.run(2_400);
    let loads = world.node_loads();
    assert!(max_over_mean(&loads) < 1.2, "{loads:?}");
    assert!(world.scheduler.hot(world.now_ms).is_empty());
    assert_eq!(world.count(0, |step| matches!(step, Step::Split { .. })), 0);
    // Leaders first; but 200 followers at 0.4 of their leaders' work are too much for a node as well.
    let first =
        |which: fn(&Step) -> bool| world.log.iter().position(|(_, action)| which(&action.step));
    assert!(first(is_transfer) < first(is_move), "{:?} {:?}", first(is_transfer), first(is_move));
    let since = world.now_ms;
    world.run(1_200);
    assert_eq!(world.count(since, |step| is_transfer(step) || is_move(step)), 0);
    assert_eq!(world.thrashed, 0);
    let (transfers, moves) = (world.count(0, is_transfer), world.count(0, is_move));
    println!("transfers {transfers}, moves {moves}, max/mean {:.3}", max_over_mean(&loads));
}

#[test]
fn noisy_random_loads_come_to_rest_without_thrash() {
    for seed in 0..5 {
        let mut world = World::new(12, 4.0, seed);
        world.noise = 0.3;
        let mut densities = Vec::new();
        for _ in 0..240 {
            densities.push(world.draw().powi(4) * 0.2);
        }
        let flow = move |_: f64, low: f64, high: f64| {
            densities[usize::try_from(whole(f64::midpoint(low, high) * 240.0 - 0.5)).unwrap()]
        };
        let lot = whole(world.draw() * 1e6);
        let voters = move |part: u32| {
            let first = u32::try_from((u64::from(part) * 7 + lot) % 12).unwrap();
            let step = 1 + part % 5;
            vec![first / 3, (first / 3 + step) % 12, (first / 3 + 2 * step) % 12]
        };
        let facts = TableFacts { by_load: false, by_size: false, ..TableFacts::default() };
        world.add_table(1, facts, Oracle::Says(Class::Unsplittable), 240, voters, Box::new(flow));
        let before = max_over_mean(&world.node_loads());
        world.run(2_400);
        let after = max_over_mean(&world.node_loads());
        let since = world.now_ms;
        world.run(1_200);
        let restless = world.count(since, |step| is_transfer(step) || is_move(step));
        println!(
            "seed {seed}: max/mean {before:.2} -> {after:.3}, transfers {}, moves {}, in the last 20 min {restless}",
            world.count(0, is_transfer),
            world.count(0, is_move)
        );
        assert!(before > 2.0, "seed {seed}: nothing to do");
        assert!(after < 1.2, "seed {seed}");
        assert_eq!(world.thrashed, 0, "seed {seed}");
        assert!(restless <= 3, "seed {seed}: {restless}");
    }
}

#[test]
fn one_partition_that_is_all_of_the_load_stays_where_it_is() {
    let mut world = World::new(3, 2.0, 1);
    let flow = |_: f64, low: f64, _: f64| if low > 0.0 { 0.005 } else { 0.9 };
    let facts = TableFacts { by_load: false, by_size: false, ..TableFacts::default() };
    world.add_table(
        1,
        facts,
        Oracle::Says(Class::HotKey),
        9,
        |part| vec![part % 3, (part + 1) % 3, (part + 2) % 3],
        Box::new(flow),
    );
    world.run(1_800);
    let moved_hot = world.count(0, |step| step.partitions().iter().any(|id| id.0 == 1));
    assert_eq!(moved_hot, 0);
    assert_eq!(world.thrashed, 0);
}

#[test]
fn replicas_move_within_their_bytes_only_where_leaders_cannot() {
    let mut world = World::new(6, 4.0, 1);
    // One replica each: there is nobody to transfer to.
    let facts = TableFacts { by_load: false, ..TableFacts::default() };
    world.add_table(1, facts, Oracle::Halves, 60, |_| vec![0], even(3.0));
    for part in world.partitions.values_mut() {
        part.bytes = 400e6;
    }
    world.run(3_600);
    let loads = world.node_loads();
    println!("moves {}, max/mean {:.3}", world.count(0, is_move), max_over_mean(&loads));
    assert_eq!(world.count(0, is_transfer), 0);
    assert!(max_over_mean(&loads) < 1.2, "{loads:?}");
    assert_eq!(world.thrashed, 0);
    // 64 MiB a second, a minute of it in advance, and one that was begun on credit.
    let moves: Vec<u64> =
        world.log.iter().filter(|(_, action)| is_move(&action.step)).map(|(at, _)| *at).collect();
    for (count, at) in moves.iter().enumerate() {
        let passed_s = (at - moves[0]) as f64 / 1_000.0;
        let copied = count as f64 * 400e6;
        assert!(
            copied <= f64::from(64 << 20) * (passed_s + 60.0) + 400e6,
            "{count} after {passed_s} s"
        );
    }
}

#[test]
fn a_split_hands_its_right_part_to_the_least_used_voter() {
    let mut world = World::new(4, 4.0, 1);
    world.add_table(
        1,
        TableFacts { by_load: false, ..TableFacts::default() },
        Oracle::Halves,
        10,
        |_| vec![1, 3, 0],
        even(1.0),
    );
    world.add_table(2, TableFacts::default(), Oracle::Halves, 1, |_| vec![0, 1, 2], even(0.8));
    world.run(14);
    let leader = world.log.iter().find_map(|(_, action)| match &action.step {
        Step::Split { right_leader, .. } => *right_leader,
        _ => None,
    });
    assert_eq!(leader.map(|node| node.0), Some(2));
}

#[test]
fn what_is_under_way_is_expected_until_it_ends_and_leaves_no_trace() {
    let mut world = World::new(3, 4.0, 1);
    let facts = TableFacts { by_load: false, by_size: false, ..TableFacts::default() };
    world.add_table(1, facts, Oracle::Halves, 20, |_| vec![0, 1, 2], even(2.0));
    while world.log.is_empty() {
        world.second();
        assert!(world.now_ms - START_MS < 300_000, "nothing was balanced");
    }
    // Four leaders are on their way off node 0: less is expected there, more on the others, the same in all.
    let nodes = world.scheduler.node_use();
    assert!(nodes[0].expected < nodes[0].load - 0.05, "{nodes:?}");
    assert!(nodes[1..].iter().all(|node| node.expected > node.load), "{nodes:?}");
    let sums =
        nodes.iter().fold((0.0, 0.0), |sums, node| (sums.0 + node.load, sums.1 + node.expected));
    assert!((sums.0 - sums.1).abs() < 1e-4, "{sums:?}");
    world.run(900);
    assert!(world.scheduler.under_way_actions().is_empty());
    for node in world.scheduler.node_use() {
        assert!((node.load - node.expected).abs() < 1e-9, "{node:?}");
    }
}
