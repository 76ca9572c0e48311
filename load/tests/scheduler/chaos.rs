//! Anything that can go wrong: orders that fail, reports that are lost or late, nodes that come and go, partitions cut
//! by hand, lists told again. What must hold is checked by the model at every tick.

use partita_load::{
    At, Class, Counters, NodeId, Options, PartitionFacts, PartitionId, PartitionReport, Scheduler,
    SplitWhy, TableFacts, TableId, Tail,
};

use crate::flows::{even, skewed, tail, whole};
use crate::fluid::{Oracle, START_MS, World};

fn random_world(seed: u64) -> World {
    let mut world = World::new(7, 4.0, seed);
    world.failing = 0.2;
    world.losing = 0.2;
    world.noise = 0.3;
    let voters = |part: u32| vec![part % 7, (part + 2) % 7, (part + 3) % 7];
    let size = TableFacts { partition_bytes: 200 << 20, ..TableFacts::default() };
    let tailed =
        TableFacts { tail: Tail::Right, partition_bytes: 200 << 20, ..TableFacts::default() };
    world.add_table(1, size.clone(), Oracle::Halves, 2, voters, skewed(3.0, 0.4));
    world.add_table(2, tailed, Oracle::Says(Class::MovingRight), 1, voters, tail(0.9));
    world.add_table(3, size.clone(), Oracle::Lies, 3, voters, even(2.0));
    let burst =
        |now: f64, low: f64, high: f64| (high - low) * if now % 900.0 < 300.0 { 3.0 } else { 0.05 };
    world.add_table(4, size.clone(), Oracle::Halves, 4, voters, Box::new(burst));
    world.add_table(5, size, Oracle::HotKey(0.3, 0.6), 1, voters, even(0.9));
    world
}

fn disturb(world: &mut World) {
    let dice = world.draw();
    if dice < 0.02 {
        let node = usize::try_from(whole(world.draw() * 6.0)).unwrap();
        world.nodes[node].up = !world.nodes[node].up;
        let id = NodeId(node as u64);
        world.scheduler.set_node(id, world.nodes[node].clone());
    } else if dice < 0.04 {
        // An election that nobody asked for.
        let at = whole(world.draw() * (world.partitions.len() - 1) as f64);
        let id = *world.partitions.keys().nth(usize::try_from(at).unwrap()).unwrap();
        let next = world.partitions[&id].voters[1];
        world.elect(id, next);
    } else if dice < 0.05 {
        for table in [1, 2, 3, 4, 5] {
            world.tell_partitions(table);
        }
    } else if dice < 0.06 {
        let id = *world.partitions.keys().next().unwrap();
        let busy = world.scheduler.under_way_actions();
        let free = busy.iter().all(|action| !action.step.partitions().contains(&PartitionId(id)));
        if free && let Some(right) = world.split(id, &At::Middle, SplitWhy::Size, None) {
            world.scheduler.split_by_hand(PartitionId(id), PartitionId(right), world.now_ms);
        }
    }
}

#[test]
fn whatever_happens_no_rule_is_broken() {
    for seed in 0..20 {
        println!("seed {seed}");
        let mut world = random_world(seed);
        for _ in 0..2_400 {
            disturb(&mut world);
            world.second();
        }
        assert_eq!((world.flaps, world.thrashed), (0, 0), "seed {seed}");
        world.assert_known();
        // What is charged to nodes is what their replicas bear, and nothing is left of orders that ended.
        world.failing = 0.0;
        let totals = world.scheduler.totals().clone();
        assert!(
            totals.failed > 0 && totals.useful > 0 && totals.in_vain > 0,
            "seed {seed}: {totals:?}"
        );
        for node in world.scheduler.node_use() {
            assert!(node.load.is_finite() && node.expected >= 0.0, "seed {seed}: {node:?}");
        }
    }
}

#[test]
fn nodes_are_charged_exactly_what_their_partitions_bear() {
    for seed in 0..6 {
        let mut world = random_world(seed);
        for _ in 0..600 {
            disturb(&mut world);
            world.second();
        }
        let charged: f64 = world.scheduler.node_use().iter().map(|node| node.load).sum();
        let borne: f64 = world
            .partitions
            .iter()
            .map(|(id, part)| {
                let rates = world.scheduler.rates(PartitionId(*id), world.now_ms).unwrap();
                let followers = part.voters.len() as f64 - 1.0;
                rates.rho_60 * (1.0 + 0.4 * followers) + rates.reads_60
            })
            .sum();
        assert!(
            (charged - borne).abs() < 1e-4 * world.partitions.len() as f64,
            "seed {seed}: {charged} {borne}"
        );
    }
}

#[test]
fn reports_taken_in_together_or_one_by_one_are_the_same() {
    let mut one = Scheduler::new(Options::default(), 1);
    let mut together = Scheduler::new(Options::default(), 1);
    let facts: Vec<PartitionFacts> = (0..50)
        .map(|id| PartitionFacts {
            id: PartitionId(id),
            voters: vec![NodeId(1)],
            ..PartitionFacts::default()
        })
        .collect();
    for scheduler in [&mut one, &mut together] {
        scheduler.set_table(TableId(1), TableFacts::default());
        scheduler.set_partitions(TableId(1), &facts);
    }
    for second in 1..30 {
        let now_ms = START_MS + second * 1_000;
        // Two of them are unknown.
        let beat: Vec<PartitionReport> = (0..52)
            .map(|id| PartitionReport {
                partition: PartitionId(id),
                term: 1,
                since_ms: START_MS,
                at_ms: now_ms,
                counters: Counters { busy_ns: second * id * 20_000_000, ..Counters::default() },
                size_bytes: 0,
                queue_depth: 3,
            })
            .collect();
        beat.iter().for_each(|report| one.observe(now_ms, NodeId(1), report));
        together.observe_all(now_ms, NodeId(1), &beat);
    }
    let now_ms = START_MS + 30_000;
    assert_eq!(one.node_use(), together.node_use());
    assert_eq!(one.hot(now_ms), together.hot(now_ms));
    assert!(!one.hot(now_ms).is_empty());
    for id in 0..50 {
        let rates = together.rates(PartitionId(id), now_ms);
        assert_eq!(one.rates(PartitionId(id), now_ms), rates);
        assert_eq!(rates.unwrap().queue_depth, 3);
    }
    assert_eq!(one.rates(PartitionId(51), now_ms), None);
}

#[test]
fn the_same_seed_gives_the_same_actions() {
    let run = |seed| {
        let mut world = random_world(seed);
        for _ in 0..900 {
            disturb(&mut world);
            world.second();
        }
        format!("{:?}", world.log)
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}
