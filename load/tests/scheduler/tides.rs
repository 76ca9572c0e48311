//! Loads that come and go: partitions are not made and joined again and again.

use std::collections::BTreeSet;

use partita_load::{PartitionId, SplitWhy, Step, TableFacts};

use crate::flows::is_split;
use crate::fluid::{Oracle, World};

fn three(part: u32) -> Vec<u32> {
    vec![part % 6, (part + 1) % 6, (part + 2) % 6]
}

fn is_merge(step: &Step) -> bool {
    matches!(step, Step::Merge { .. })
}

#[test]
fn a_daily_tide_keeps_the_partitions_it_needs() {
    const DAY: u64 = 24 * 3_600;
    let mut world = World::new(6, 8.0, 1);
    // From 0.3 lanes at night to 3 by day.
    let flow = |now: f64, low: f64, high: f64| {
        let phase = now / DAY as f64 * std::f64::consts::TAU;
        (high - low) * (1.65 - 1.35 * phase.cos())
    };
    world.add_table(1, TableFacts::default(), Oracle::Halves, 1, three, Box::new(flow));
    world.tables.get_mut(&1).unwrap().bytes_per_s = 10.0;
    let mut days = Vec::new();
    for _ in 0..4 {
        let since = world.now_ms;
        world.run(DAY);
        days.push((world.count(since, is_split(SplitWhy::Load)), world.count(since, is_merge)));
    }
    println!("splits and merges of each day: {days:?}");
    assert_eq!(world.flaps, 0);
    assert!(world.served(1) > 0.99);
    // Once the night's hold has grown long enough the day finds its partitions again.
    assert!(days[3].0 <= days[0].0 / 2, "{days:?}");
    assert_eq!(world.scheduler.totals().in_vain, 0);
    world.assert_known();
}

#[test]
fn a_flash_crowd_that_comes_back_finds_its_partitions() {
    let mut world = World::new(6, 8.0, 1);
    // 0.2 lanes, and every two hours 4 of them for a quarter of an hour, within ten seconds.
    let flow = |now: f64, low: f64, high: f64| {
        let into = now % 7_200.0 - 600.0;
        let crowd = if (0.0..900.0).contains(&into) { (into / 10.0).min(1.0) } else { 0.0 };
        (high - low) * (0.2 + 3.8 * crowd)
    };
    world.add_table(1, TableFacts::default(), Oracle::Halves, 1, three, Box::new(flow));
    world.tables.get_mut(&1).unwrap().bytes_per_s = 10.0;
    let mut crowds = Vec::new();
    for _ in 0..6 {
        let since = world.now_ms;
        world.run(7_200);
        crowds.push((world.count(since, is_split(SplitWhy::Load)), world.count(since, is_merge)));
    }
    println!("splits and merges of each two hours: {crowds:?}");
    assert_eq!(world.flaps, 0);
    assert!(crowds[0].0 >= 7, "{crowds:?}");
    let later: usize = crowds[3..].iter().map(|(splits, _)| splits).sum();
    assert!(later <= crowds[0].0, "{crowds:?}");
}

#[test]
fn what_stays_cold_is_joined_down_to_the_least_that_a_table_keeps() {
    let mut world = World::new(6, 8.0, 1);
    let flow = |now: f64, low: f64, high: f64| {
        if now < 1_200.0 { 4.0 * (high - low) } else { 0.02 * (high - low) }
    };
    let facts = TableFacts { partitions_min: 2, ..TableFacts::default() };
    world.add_table(1, facts, Oracle::Halves, 1, three, Box::new(flow));
    world.tables.get_mut(&1).unwrap().bytes_per_s = 10.0;
    world.run(1_200);
    let most = world.parts_of(1).len();
    assert!(most >= 8, "{most}");
    world.run(3_600 * 5);
    assert_eq!(world.flaps, 0);
    assert_eq!(world.parts_of(1).len(), 2);
    world.assert_known();
}

#[test]
fn what_has_failed_is_nobodys_neighbour_until_it_is_well_again() {
    let mut world = World::new(6, 8.0, 1);
    let flow = |_: f64, low: f64, high: f64| (high - low) * 0.01;
    world.add_table(1, TableFacts::default(), Oracle::Halves, 6, three, Box::new(flow));
    let failed = PartitionId(3);
    let concerns = |step: &Step| match step {
        Step::Merge { left, right, .. } => [*left, *right].contains(&failed),
        Step::Split { partition, .. } => *partition == failed,
        _ => false,
    };
    world.scheduler.set_failed(BTreeSet::from([failed]));
    world.run(6 * 3_600);
    assert_eq!(world.count(0, concerns), 0);
    assert!(world.count(0, is_merge) >= 2, "the others are merged");
    let since = world.now_ms;
    world.scheduler.set_failed(BTreeSet::new());
    world.run(6 * 3_600);
    assert!(world.count(since, concerns) >= 1);
    world.assert_known();
}
