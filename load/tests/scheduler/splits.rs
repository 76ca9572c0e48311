//! Hot partitions: loads that are split, loads that never are, and the outcomes.

use partita_load::{Class, Remedy, SplitWhy, Step, TableFacts, TableId, Tail};

use crate::flows::{even, is_split, key, skewed, tail};
use crate::fluid::{Oracle, START_MS, World};

fn three(_: u32) -> Vec<u32> {
    vec![0, 1, 2]
}

#[test]
fn a_hot_partition_spreads_until_its_lanes_serve_all() {
    let mut world = World::new(6, 8.0, 1);
    world.add_table(1, TableFacts::default(), Oracle::Halves, 1, three, skewed(4.0, 0.3));
    world.run(15);
    let (first_ms, _) =
        world.log.iter().find(|(_, action)| is_split(SplitWhy::Load)(&action.step)).unwrap();
    assert!(*first_ms - START_MS <= 12_000, "cut after {} ms", first_ms - START_MS);
    world.run(585);
    assert!(world.served(1) > 0.999, "{}", world.served(1));
    let judged: Vec<_> =
        world.outcomes.iter().filter(|outcome| outcome.why == SplitWhy::Load).collect();
    assert!(judged.len() >= 6, "{judged:?}");
    for outcome in judged {
        assert!(!outcome.in_vain, "{outcome:?}");
        assert!(outcome.actual_share.is_some_and(|share| share < 0.65), "{outcome:?}");
    }
    // It came to rest: nothing is cut any more.
    let before = world.log.len();
    world.run(600);
    assert_eq!(
        world.count(world.now_ms - 600_000, is_split(SplitWhy::Load)),
        0,
        "{:?}",
        &world.log[before..]
    );
    world.assert_known();
}

#[test]
fn a_useful_split_lets_its_table_go_on_faster() {
    let mut world = World::new(16, 8.0, 1);
    world.add_table(1, TableFacts::default(), Oracle::Halves, 1, three, even(24.0));
    let mut minutes = Vec::new();
    while world.served(1) < 0.95 {
        world.run(60);
        minutes.push(world.parts_of(1).len());
        assert!(minutes.len() < 12, "{minutes:?}");
    }
    println!("partitions after each minute: {minutes:?}");
    // Two a minute alone would need eleven minutes and more.
    assert!(minutes.len() <= 8, "{minutes:?}");
}

#[test]
fn what_no_cut_helps_is_never_cut_by_load() {
    for class in
        [Class::MovingRight, Class::MovingLeft, Class::Sweep, Class::ScanBound, Class::Unsplittable]
    {
        let mut world = World::new(3, 8.0, 1);
        let facts = TableFacts { partition_bytes: 50 << 20, ..TableFacts::default() };
        world.add_table(1, facts, Oracle::Says(class), 1, three, tail(3.0));
        world.run(1_800);
        let by_load =
            |step: &Step| is_split(SplitWhy::Load)(step) || is_split(SplitWhy::IsolateKey)(step);
        assert_eq!(world.count(0, by_load), 0, "{class:?}");
        assert!(
            world.scheduler.hot(world.now_ms).iter().any(|hot| hot.refused.is_some()),
            "{class:?}"
        );
    }
}

#[test]
fn a_tail_rolls_by_size_and_its_leader_goes_round() {
    let mut world = World::new(3, 8.0, 1);
    let facts =
        TableFacts { partition_bytes: 60 << 20, tail: Tail::Right, ..TableFacts::default() };
    world.add_table(1, facts, Oracle::Says(Class::MovingRight), 1, three, tail(0.9));
    world.run(600);
    let leaders: Vec<u64> = world
        .log
        .iter()
        .filter_map(|(_, action)| match &action.step {
            Step::Split { why: SplitWhy::RightEdge, right_leader, .. } => {
                right_leader.map(|node| node.0)
            }
            _ => None,
        })
        .collect();
    // 0.9 MB a second fill 60 MiB in 70 s.
    assert!((7..=9).contains(&leaders.len()), "{leaders:?}");
    for (number, leader) in (1..).zip(&leaders) {
        assert_eq!(*leader, number % 3, "{leaders:?}");
    }
    let transfers = world.count(0, |step| matches!(step, Step::TransferLeader { .. }));
    assert_eq!(transfers, 0, "a tail was left to the balancer");
    // What is full stays full, and is no larger than asked for but by what came until it was seen.
    for (_, part) in world.parts_of(1).iter().rev().skip(1) {
        assert!((60e6..70e6).contains(&part.bytes), "{part:?}");
    }
}

#[test]
fn splits_in_vain_rest_longer_and_longer_until_one_is_useful() {
    let mut world = World::new(3, 8.0, 1);
    world.add_table(1, TableFacts::default(), Oracle::Lies, 1, three, tail(0.8));
    world.run(4 * 3_600);
    let times: Vec<u64> = world
        .log
        .iter()
        .filter(|(_, action)| is_split(SplitWhy::Load)(&action.step))
        .map(|(at, _)| (at - START_MS) / 1_000)
        .collect();
    println!("splits in vain at seconds {times:?}");
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(times.len() <= 10, "{times:?}");
    // From its judgement, a minute after: 1, 2, 4 ... minutes.
    for (at, gap) in gaps.iter().enumerate().skip(1).take(5) {
        let minutes = 1_u64 << at;
        assert!(*gap >= minutes * 60, "{gaps:?}");
    }
    assert!(gaps.windows(2).all(|pair| pair[1] + 60 >= pair[0]), "{gaps:?}");
    assert!(world.scheduler.totals().in_vain + 1 >= times.len() as u64);
    assert!(world.scheduler.hot(world.now_ms).iter().any(|hot| hot.in_vain >= 5));

    // The load becomes one that can be divided, and the detector right.
    let table = world.tables.get_mut(&1).unwrap();
    (table.flow, table.oracle) = (even(1.6), Oracle::Halves);
    while world.scheduler.totals().useful == 0 {
        world.run(10);
        assert!(world.now_ms - START_MS < 6 * 3_600_000);
    }
    let hot = world.scheduler.hot(world.now_ms);
    assert!(hot.iter().any(|hot| hot.in_vain == 0), "{hot:?}");
}

#[test]
fn a_hot_key_is_isolated_by_two_cuts_and_then_left_alone() {
    let mut world = World::new(3, 8.0, 1);
    let hot = 0.4;
    let flow = move |_: f64, low: f64, high: f64| {
        let key = if low <= hot && hot < high { 0.7 } else { 0.0 };
        key + 0.3 * (high - low)
    };
    let facts = TableFacts { by_size: false, ..TableFacts::default() };
    world.add_table(1, facts, Oracle::HotKey(hot, 0.7), 1, three, Box::new(flow));
    world.run(1_800);
    assert_eq!(world.count(0, is_split(SplitWhy::IsolateKey)), 2);
    assert_eq!(world.parts_of(1).len(), 3);
    let (_, alone) = world.parts_of(1)[1];
    assert!(alone.low <= hot && alone.high - alone.low < 1e-9, "{alone:?}");
    assert_eq!(key(alone.low), key(hot));
    assert_eq!(world.scheduler.totals().in_vain, 0);
}

/// Numbers of buckets that table 1 was given.
fn buckets_given(world: &World) -> Vec<u32> {
    let steps = world.log.iter().map(|(_, action)| &action.step);
    let buckets = steps.filter_map(|step| match step {
        Step::Rekey { table: TableId(1), buckets, .. } => Some(*buckets),
        _ => None,
    });
    buckets.collect()
}

#[test]
fn a_table_whose_rows_have_to_move_is_given_buckets_later_and_only_many_more() {
    let tail_right =
        TableFacts { remedy: Remedy::Auto, tail: Tail::Right, ..TableFacts::default() };
    let run = |facts: TableFacts, seconds: u64| {
        let mut world = World::new(8, 8.0, 1);
        world.add_table(1, facts, Oracle::Says(Class::MovingRight), 1, three, tail(3.0));
        world.run(seconds);
        buckets_given(&world)
    };
    let keyed = TableFacts { moves_rows: true, ..tail_right };
    assert_eq!(run(keyed.clone(), 100), [0; 0], "it may end in a moment");
    let buckets = run(keyed.clone(), 1_200);
    assert!(matches!(buckets[..], [7..=9]), "{buckets:?}");
    // It has most of the buckets that it needs.
    let hashed = |facts: TableFacts| TableFacts { buckets: 6, ..facts };
    assert_eq!(run(hashed(keyed), 1_200), [0; 0]);
    let append_only = TableFacts { append_only: true, ..tail_right };
    assert_eq!(run(hashed(append_only), 1_200).len(), 1);
}

#[test]
fn an_append_only_table_is_given_buckets_once_where_that_is_allowed() {
    for (remedy, wanted) in [(Remedy::Auto, 1), (Remedy::Advise, 0), (Remedy::Off, 0)] {
        let mut world = World::new(8, 8.0, 1);
        let facts =
            TableFacts { append_only: true, remedy, tail: Tail::Right, ..TableFacts::default() };
        world.add_table(1, facts, Oracle::Says(Class::MovingRight), 1, three, tail(3.0));
        world.run(1_200);
        let buckets = buckets_given(&world);
        assert_eq!(buckets.len(), wanted, "{remedy:?}: {buckets:?}");
        // Three lanes' load, each bucket 40 % busy.
        assert!(buckets.iter().all(|buckets| (7..=9).contains(buckets)), "{buckets:?}");
    }
}

#[test]
fn buckets_are_for_more_than_a_full_lane_takes_where_requests_wait_for_it() {
    // Three lanes' load of which one lane's is seen: the rest waits, is in nobody's counters, and must fit all the same.
    let mut world = World::new(8, 8.0, 1);
    world.waiting = true;
    let facts = TableFacts {
        append_only: true,
        remedy: Remedy::Auto,
        tail: Tail::Right,
        ..TableFacts::default()
    };
    world.add_table(1, facts, Oracle::Says(Class::MovingRight), 1, three, tail(3.0));
    world.run(120);
    let given = world.log.iter().find_map(|(_, action)| match action.step {
        Step::Rekey { buckets, .. } => Some(buckets),
        _ => None,
    });
    // Four lanes' load, each bucket 40 % busy.
    assert_eq!(given, Some(10));
}

#[test]
fn a_smaller_size_to_split_at_makes_no_wave() {
    let mut world = World::new(3, 8.0, 1);
    world.add_table(1, TableFacts::default(), Oracle::Halves, 100, three, even(1.0));
    world.tables.get_mut(&1).unwrap().bytes_per_s = 1e9;
    world.run(20);
    world.set_facts(1, TableFacts { partition_bytes: 100 << 20, ..TableFacts::default() });
    world.tables.get_mut(&1).unwrap().bytes_per_s = 0.0;
    let mut last = world.parts_of(1).len();
    for _ in 0..10 {
        world.run(60);
        let now = world.parts_of(1).len();
        // 5 % a minute, and the first minute's reserve.
        assert!(now - last <= 5 + last / 20 + 6, "{last} -> {now}");
        last = now;
    }
    assert!(last > 150, "{last}");
    world.run(3_600);
    let largest = world.parts_of(1).iter().map(|(_, part)| part.bytes).fold(0.0, f64::max);
    assert!(largest < f64::from(100 << 20), "{largest}");
}

#[test]
fn options_are_kept_to() {
    let off = TableFacts { by_load: false, by_size: false, ..TableFacts::default() };
    let few = TableFacts { partitions_max: 3, ..TableFacts::default() };
    for (facts, most) in [(off, 1), (few, 3)] {
        let mut world = World::new(3, 8.0, 1);
        world.add_table(1, facts, Oracle::Halves, 1, three, even(8.0));
        world.run(1_200);
        assert_eq!(world.parts_of(1).len(), most);
    }
}
