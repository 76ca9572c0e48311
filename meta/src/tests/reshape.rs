//! Splits and merges in the catalog: refusals, dependencies, and ends.

use std::collections::BTreeMap;
use std::time::Duration;

use partita_proto::history::{Cause, Reason, ReshapeOutcome};
use partita_proto::id::{Epoch, PartitionId, ReplicaId};
use partita_proto::label::Labels;
use partita_proto::member::Registration;
use partita_proto::partitioning::Partitioning;
use partita_proto::range::TypedRange;

use super::*;
use crate::catalog::{Edit, PartitionRecord};
use crate::plan;
use crate::reshape::Reshapes;
use crate::reshape::{Reshaping, Stage};
use crate::transition::Progress;

/// Five nodes, and a table "t" of three partitions on the first three: ... 100 ... (200, 5) ...
fn three() -> (World, Vec<PartitionId>) {
    let mut world = World::new();
    for identity in 1..=5 {
        let address = "a".to_owned();
        let labels = Labels::default();
        let wish = Registration { identity, node: None, address, labels };
        world.command(&Command::Register(wish)).unwrap();
    }
    let places = vec![(1..=3).map(NodeId).collect(); 3];
    let ddl = create(new_table("t"));
    world.command(&Command::Change { ddl, places, id: None, tables_max: None }).unwrap();
    world.settle();
    let ids = world.table("t").partitions.clone();
    (world, ids)
}

fn at(value: i64) -> Bound {
    cut(&[Value::Int(value)])
}

fn record(world: &World, id: PartitionId) -> Arc<PartitionRecord> {
    Arc::clone(world.state.partition(id).unwrap())
}

fn split(world: &mut World, partition: PartitionId, at: Bound) -> Result<Reply, Error> {
    world.command(&Command::Split { partition, at, reason: Reason::by_hand(), leader: None })
}

fn merge(world: &mut World, left: PartitionId, right: PartitionId) -> Result<Reply, Error> {
    world.command(&Command::Merge { left, right, reason: Reason::by_hand() })
}

/// Advances the change of a partition to a stage.
fn advance(world: &mut World, partition: PartitionId, progress: Progress) -> Reply {
    let step = record(world, partition).reshaping.as_ref().unwrap().step();
    world.command(&Command::Advance { partition, step, progress }).unwrap()
}

fn unavailable(result: Result<Reply, Error>) -> String {
    match result {
        Err(Error::Unavailable(why)) => why,
        other => panic!("expected that it may pass, got {other:?}"),
    }
}

fn is_busy(result: &Result<Reply, Error>) -> bool {
    matches!(result, Ok(Reply::Busy { .. }))
}

fn truncate() -> Ddl {
    Ddl::TruncateTable { database: "public".to_owned(), name: "t".to_owned() }
}

#[test]
fn a_split_makes_two_of_one_and_nothing_is_seen_before() {
    let (mut world, ids) = three();
    split(&mut world, ids[1], at(150)).unwrap();
    assert_eq!(world.table("t").partitions, ids);
    let Some(Reshaping::Split(splitting)) = record(&world, ids[1]).reshaping.clone() else {
        panic!("it is not being split");
    };
    assert!(world.state.partition(splitting.child).is_none());
    let nodes: BTreeSet<NodeId> = splitting.replicas.values().copied().collect();
    assert_eq!(nodes, (1..=3).map(NodeId).collect());
    for (replica, node) in &splitting.replicas {
        assert!(world.state.is_known(splitting.child, *replica, *node), "it is nobody's");
        assert!(!world.state.is_known(splitting.child, *replica, NodeId(5)));
    }
    advance(&mut world, ids[1], Progress::Cut);
    let child = record(&world, splitting.child);
    let parent = record(&world, ids[1]);
    assert_eq!(world.table("t").partitions, [ids[0], ids[1], child.id, ids[2]]);
    assert_eq!((parent.epoch, child.epoch), (Epoch(2), Epoch(2)));
    assert_eq!(parent.range, TypedRange { start: at(100), end: at(150) });
    assert_eq!(child.range.start, at(150));
    assert_eq!(child.range.end, cut(&[Value::Int(200), Value::Timestamp(5)]));
    assert_eq!(child.replicas, splitting.replicas);
    // Again, and of the child.
    split(&mut world, child.id, cut(&[Value::Int(200)])).unwrap();
    advance(&mut world, child.id, Progress::Cut);
    assert_eq!(world.table("t").partitions.len(), 5);
}

#[test]
fn a_cut_that_leaves_nothing_on_one_side_is_refused() {
    let (mut world, ids) = three();
    let whys = [
        (at(100), "left side would be empty"),
        (cut(&[Value::Int(200), Value::Timestamp(5)]), "right side would be empty"),
        (at(99), "is outside"),
        (at(201), "is outside"),
        (Bound::default(), "at least one value"),
        (Bound::placed(3), "placement"),
        (cut(&[const { Value::Int(1) }; 3]), "3 values"),
        (cut(&[Value::String("x".to_owned())]), ""),
    ];
    for (at, expected) in whys {
        let why = invalid(split(&mut world, ids[1], at));
        assert!(why.contains(expected), "{why}");
    }
    let nowhere = split(&mut world, PartitionId(99), at(150));
    assert!(matches!(nowhere, Err(Error::NotFound { kind: "partition", .. })), "{nowhere:?}");
    // Nothing is below NULL; something is below the least number.
    let why = invalid(split(&mut world, ids[0], cut(&[Value::Null])));
    assert!(why.contains("left side would be empty"), "{why}");
    split(&mut world, ids[0], at(i64::MIN)).unwrap();
}

#[test]
fn a_partition_of_a_hashed_table_is_cut_anywhere_and_merged_across_buckets() {
    let mut world = World::new();
    let placement = Placement::Hash { columns: vec![ColumnId(1)] };
    let cuts = vec![Bound::placed(100)];
    world.done(create(NewTable { placement, cuts, ..new_table("t") })).unwrap();
    let ids = world.table("t").partitions.clone();
    let inside = Bound { key: vec![Value::Int(5)], ..Bound::placed(100) };
    split(&mut world, ids[1], inside.clone()).unwrap();
    let why = invalid(split(&mut world, ids[0], at(5)));
    assert!(why.contains("placement"), "{why}");
    advance(&mut world, ids[1], Progress::Cut);
    let child = world.table("t").partitions[2];
    assert_eq!(record(&world, child).range.start, inside);
    merge(&mut world, ids[0], ids[1]).unwrap();
    absorb(&mut world, ids[0]);
    assert_eq!(world.table("t").partitions, [ids[0], child]);
    assert_eq!(record(&world, ids[0]).range.end, inside);
}

/// Takes a recorded merge through all its stages.
fn absorb(world: &mut World, left: PartitionId) {
    advance(world, left, Progress::Freezing);
    advance(world, left, Progress::Frozen { index: 30 });
    advance(world, left, Progress::Absorbed);
}

#[test]
fn a_merge_makes_one_of_two_and_the_right_ones_replicas_stay_until_nobody_needs_them() {
    let (mut world, ids) = three();
    merge(&mut world, ids[0], ids[1]).unwrap();
    let before = record(&world, ids[1]);
    assert_eq!(before.target, None, "its replicas are where they are needed");
    advance(&mut world, ids[0], Progress::Freezing);
    advance(&mut world, ids[0], Progress::Frozen { index: 30 });
    let routes = |world: &World| {
        let table = Arc::clone(world.catalog.table("public", "t").unwrap());
        table.partitions.routes().iter().map(|one| (one.partition, one.epoch.0)).collect::<Vec<_>>()
    };
    assert_eq!(routes(&world), [(ids[0], 1), (ids[1], 1), (ids[2], 1)]);
    advance(&mut world, ids[0], Progress::Absorbed);
    assert_eq!(routes(&world), [(ids[0], 2), (ids[2], 1)]);
    assert_eq!(record(&world, ids[0]).range.end, before.range.end);
    for (replica, node) in &before.replicas {
        assert!(world.state.is_known(ids[1], *replica, *node));
    }
    // What is left of it hinders nothing.
    split(&mut world, ids[0], at(50)).unwrap();
    advance(&mut world, ids[0], Progress::Cut);
    world.done(alter("t", add(vec![tag("host")]))).unwrap();
    assert!(record(&world, ids[1]).is_leaving());
    for _ in 0..2 {
        let step = Step(before.reshaping.as_ref().unwrap().step().0);
        let gone = Command::Advance { partition: ids[1], step, progress: Progress::Left };
        world.command(&gone).unwrap();
        assert!(world.state.partition(ids[1]).is_none());
    }
}

#[test]
fn only_neighbours_of_one_table_are_merged() {
    let (mut world, ids) = three();
    world.done(create(new_table("u"))).unwrap();
    let other = world.table("u").partitions[1];
    let why = invalid(merge(&mut world, ids[0], ids[2]));
    assert!(why.contains("does not begin where"), "{why}");
    let why = invalid(merge(&mut world, ids[1], ids[0]));
    assert!(why.contains("in the other order"), "{why}");
    assert!(invalid(merge(&mut world, ids[0], other)).contains("two tables"));
    assert!(invalid(merge(&mut world, ids[0], ids[0])).contains("itself"));
    let nowhere = merge(&mut world, ids[0], PartitionId(99));
    assert!(matches!(nowhere, Err(Error::NotFound { kind: "partition", .. })), "{nowhere:?}");
}

#[test]
fn a_right_neighbour_that_is_elsewhere_is_to_come_where_the_left_one_is() {
    let (mut world, ids) = three();
    let third = *record(&world, ids[1]).replicas.iter().find(|(_, node)| node.0 == 3).unwrap().0;
    let (partition, add) = (ids[1], vec![NodeId(5)]);
    world.command(&Command::Move { partition, add, remove: vec![third], replaces: None }).unwrap();
    let why = unavailable(merge(&mut world, ids[0], ids[1]));
    assert!(why.contains("being moved"), "{why}");
    world.settle_moves();
    merge(&mut world, ids[0], ids[1]).unwrap();
    let target = record(&world, ids[1]).target.clone().unwrap();
    let nodes: BTreeSet<u64> = target.replicas.values().map(|node| node.0).collect();
    assert_eq!(nodes, BTreeSet::from([1, 2, 3]));
    let back = target.replicas.iter().find(|(_, node)| node.0 == 3).unwrap().0;
    assert!(*back > third, "a replica that was gone came back");
    world.settle_moves();
    assert!(record(&world, ids[1]).reshaping.is_some());
    absorb(&mut world, ids[0]);
    assert_eq!(world.table("t").partitions, [ids[0], ids[2]]);
}

#[test]
fn a_partition_is_in_one_change_at_a_time_and_its_replicas_stay_meanwhile() {
    let (mut world, ids) = three();
    let moved = |partition| {
        let add = vec![NodeId(4)];
        Command::Move { partition, add, remove: vec![], replaces: None }
    };
    split(&mut world, ids[0], at(50)).unwrap();
    assert!(unavailable(split(&mut world, ids[0], at(60))).contains("being split already"));
    assert!(unavailable(merge(&mut world, ids[0], ids[1])).contains("being split"));
    let why = unavailable(world.command(&moved(ids[0])));
    assert!(why.contains("being split"), "{why}");
    merge(&mut world, ids[1], ids[2]).unwrap();
    for id in [ids[1], ids[2]] {
        let inside = if id == ids[1] { at(150) } else { at(500) };
        assert!(unavailable(split(&mut world, id, inside)).contains("being merged"));
        assert!(unavailable(world.command(&moved(id))).contains("being merged"));
    }
    advance(&mut world, ids[0], Progress::Cut);
    world.command(&moved(ids[0])).unwrap();
    let why = unavailable(split(&mut world, ids[0], at(10)));
    assert!(why.contains("being moved"), "{why}");
}

#[test]
fn a_right_neighbour_is_frozen_only_when_its_replicas_are_on_the_left_ones_nodes() {
    let (mut world, ids) = three();
    let add = vec![NodeId(4)];
    let remove = vec![*record(&world, ids[0]).replicas.keys().next().unwrap()];
    world.command(&Command::Move { partition: ids[0], add, remove, replaces: None }).unwrap();
    world.settle_moves();
    merge(&mut world, ids[0], ids[1]).unwrap();
    let early = [Progress::Freezing, Progress::Frozen { index: 30 }, Progress::Absorbed];
    for progress in early {
        assert_eq!(advance(&mut world, ids[0], progress), Reply::Unchanged);
    }
    world.settle_moves();
    absorb(&mut world, ids[0]);
    assert_eq!(world.table("t").partitions, [ids[0], ids[2]]);
}

#[test]
fn changes_of_a_table_wait_for_its_splits_and_they_for_those() {
    let (mut world, ids) = three();
    split(&mut world, ids[0], at(50)).unwrap();
    let step = record(&world, ids[0]).reshaping.as_ref().unwrap().step();
    let alter_it = || alter("t", add(vec![field("x")]));
    for ddl in [alter_it(), truncate()] {
        let table = world.table("t").id;
        assert_eq!(world.change(ddl), Ok(Reply::Busy { table, step }));
        assert!(world.state.is_reshaping(table, step));
    }
    // A name is none of the nodes' business.
    world.change(alter("t", TableChange::Rename("u".to_owned()))).unwrap();
    world.change(alter("u", TableChange::Rename("t".to_owned()))).unwrap();
    advance(&mut world, ids[0], Progress::Cut);
    assert!(!world.state.is_reshaping(world.table("t").id, step));
    world.change(alter_it()).unwrap();
    assert!(is_busy(&split(&mut world, ids[1], at(150))));
    assert!(is_busy(&merge(&mut world, ids[1], ids[2])));
    world.settle();
    merge(&mut world, ids[1], ids[2]).unwrap();
    assert!(is_busy(&world.change(truncate())));
    absorb(&mut world, ids[1]);
    assert!(!is_busy(&world.change(truncate())));
}

#[test]
fn a_ttl_of_the_database_reaches_a_table_when_its_split_is_over() {
    let (mut world, ids) = three();
    split(&mut world, ids[0], at(50)).unwrap();
    split(&mut world, ids[1], at(150)).unwrap();
    let ttl = Some(Duration::from_secs(60));
    world.change(Ddl::AlterDatabase { name: "public".to_owned(), ttl }).unwrap();
    assert_eq!(world.phase("t"), Phase::Ready);
    advance(&mut world, ids[0], Progress::Cut);
    assert_eq!(world.phase("t"), Phase::Ready, "the other one is still under way");
    let epoch = Epoch(2);
    advance(&mut world, ids[1], Progress::GiveUp);
    advance(&mut world, ids[1], Progress::NotCut { epoch });
    assert_ne!(world.phase("t"), Phase::Ready);
    assert_eq!(world.table("t").ordered_ttl, ttl);
    assert_eq!(world.table("t").partitions.len(), 4);
    world.settle();
}

#[test]
fn a_dropped_table_takes_along_what_its_partitions_are_in() {
    let (mut world, ids) = three();
    merge(&mut world, ids[0], ids[1]).unwrap();
    absorb(&mut world, ids[0]);
    split(&mut world, ids[0], at(150)).unwrap();
    split(&mut world, ids[2], at(500)).unwrap();
    let steps: Vec<_> =
        [ids[0], ids[2]].map(|id| record(&world, id).reshaping.as_ref().unwrap().step()).into();
    world.change(drop_table("t")).unwrap();
    let orders = plan::orders(&world.state, world.state.tables().next().unwrap());
    let dropped: BTreeSet<(PartitionId, ReplicaId)> =
        orders.iter().map(|order| (order.partition, order.replica)).collect();
    // The three former replicas, the one that left, and the two that may have begun.
    assert_eq!(dropped.len(), 5 * 3, "{dropped:?}");
    assert!(orders.iter().all(|order| order.action == plan::Action::Drop));
    for (id, step) in [ids[0], ids[2]].into_iter().zip(steps) {
        let late = Command::Advance { partition: id, step, progress: Progress::Cut };
        assert_eq!(world.command(&late), Ok(Reply::Unchanged));
    }
    world.settle();
    assert_eq!(world.state.partitions().count(), 0);
}

#[test]
fn a_split_that_was_given_up_leaves_the_partition_at_the_epoch_that_its_log_has() {
    let (mut world, ids) = three();
    split(&mut world, ids[0], at(50)).unwrap();
    let first = record(&world, ids[0]).splitting().unwrap().clone();
    advance(&mut world, ids[0], Progress::GiveUp);
    assert_eq!(advance(&mut world, ids[0], Progress::GiveUp), Reply::Unchanged);
    assert!(record(&world, ids[0]).splitting().unwrap().given_up);
    advance(&mut world, ids[0], Progress::NotCut { epoch: Epoch(2) });
    let after = record(&world, ids[0]);
    assert_eq!((after.epoch, after.reshaping.clone()), (Epoch(2), None));
    // A late answer has no effect.
    let late = Command::Advance { partition: ids[0], step: first.step, progress: Progress::Cut };
    assert_eq!(world.command(&late), Ok(Reply::Unchanged));
    split(&mut world, ids[0], at(50)).unwrap();
    assert_eq!(world.command(&late), Ok(Reply::Unchanged));
    let second = record(&world, ids[0]).splitting().unwrap().clone();
    assert!(
        second.child > first.child && second.replicas.keys().min() > first.replicas.keys().max()
    );
    // A split that took effect before it was aborted is valid.
    advance(&mut world, ids[0], Progress::GiveUp);
    advance(&mut world, ids[0], Progress::Cut);
    assert_eq!(record(&world, ids[0]).epoch, Epoch(3));
    assert_eq!(world.table("t").partitions.len(), 4);
}

#[test]
fn a_merge_that_was_given_up_leaves_both_partitions_free_at_every_stage() {
    for stage in 0..3 {
        let (mut world, ids) = three();
        merge(&mut world, ids[0], ids[1]).unwrap();
        let stages = [Progress::Freezing, Progress::Frozen { index: 30 }];
        for progress in &stages[..stage] {
            advance(&mut world, ids[0], *progress);
        }
        advance(&mut world, ids[0], Progress::GiveUp);
        if stage == 2 {
            let change = record(&world, ids[0]).reshaping.clone();
            let Some(Reshaping::Merge(merging)) = change else { panic!("{change:?}") };
            assert!(merging.given_up && merging.stage == Stage::Frozen(30));
            advance(&mut world, ids[0], Progress::NotAbsorbed { epoch: Epoch(2) });
            assert_eq!(record(&world, ids[0]).epoch, Epoch(2));
        }
        assert_eq!(record(&world, ids[0]).reshaping, None);
        if stage > 0 {
            assert!(is_busy(&world.change(truncate())), "the right one may be frozen");
            advance(&mut world, ids[1], Progress::Thawed { epoch: Epoch(3) });
            assert_eq!(record(&world, ids[1]).epoch, Epoch(3));
        }
        assert_eq!(record(&world, ids[1]).reshaping, None);
        assert_eq!(world.table("t").partitions, ids);
        merge(&mut world, ids[0], ids[1]).unwrap();
        absorb(&mut world, ids[0]);
    }
}

#[test]
fn a_merge_that_was_absorbed_after_all_is_done() {
    let (mut world, ids) = three();
    merge(&mut world, ids[0], ids[1]).unwrap();
    advance(&mut world, ids[0], Progress::Freezing);
    advance(&mut world, ids[0], Progress::Frozen { index: 30 });
    advance(&mut world, ids[0], Progress::GiveUp);
    advance(&mut world, ids[0], Progress::Absorbed);
    assert_eq!(world.table("t").partitions, [ids[0], ids[2]]);
    assert!(record(&world, ids[1]).is_leaving());
}

#[test]
fn stages_come_in_their_order() {
    let (mut world, ids) = three();
    merge(&mut world, ids[0], ids[1]).unwrap();
    let ahead = [
        Progress::Frozen { index: 30 },
        Progress::Absorbed,
        Progress::NotAbsorbed { epoch: Epoch(2) },
        Progress::Cut,
        Progress::Left,
    ];
    for progress in ahead {
        assert_eq!(advance(&mut world, ids[0], progress), Reply::Unchanged);
        assert_eq!(advance(&mut world, ids[1], progress), Reply::Unchanged);
    }
    absorb(&mut world, ids[0]);
    let thawed = Progress::Thawed { epoch: Epoch(5) };
    assert_eq!(advance(&mut world, ids[1], thawed), Reply::Unchanged);
}

#[test]
fn what_nobody_ordered_is_bound_by_what_the_owner_of_the_table_says() {
    let (mut world, ids) = three();
    let set = |world: &mut World, partitioning: Partitioning| {
        let options = TableOptions { partitioning, ..TableOptions::default() };
        world.done(alter("t", TableChange::SetOptions(Box::new(options))))
    };
    let base = Partitioning { min_partitions: 3, max_partitions: 4, ..Partitioning::default() };
    assert_eq!(set(&mut world, base), Ok(true));
    let by = |cause| Reason { cause, ..Reason::by_hand() };
    let split = |world: &mut World, user, cause| {
        let (partition, at) = (ids[0], at(user));
        world.command(&Command::Split { partition, at, reason: by(cause), leader: None })
    };
    let idle = |world: &mut World| {
        let (left, right) = (ids[1], ids[2]);
        world.command(&Command::Merge { left, right, reason: by(Cause::Idle) })
    };
    let why = unavailable(idle(&mut world));
    assert!(why.contains("from 3 to") && why.contains("would have 2"), "{why}");
    split(&mut world, 50, Cause::Load).unwrap();
    advance(&mut world, ids[0], Progress::Cut);
    for cause in [Cause::Load, Cause::Size] {
        let why = unavailable(split(&mut world, 20, cause));
        assert!(why.contains("would have 5"), "{why}");
    }
    split(&mut world, 20, Cause::ByHand).unwrap();
    advance(&mut world, ids[0], Progress::Cut);
    let off = Partitioning { by_load: false, ..Partitioning::default() };
    assert_eq!(set(&mut world, off), Ok(true));
    let why = unavailable(split(&mut world, 10, Cause::Load));
    assert!(why.contains("by load"), "{why}");
    split(&mut world, 10, Cause::Size).unwrap();
    idle(&mut world).unwrap();
    advance(&mut world, ids[0], Progress::Cut);
    absorb(&mut world, ids[1]);
    let wrong = Partitioning { min_partitions: 5, ..base };
    invalid(set(&mut world, wrong));
    // More than a table may have.
    let wrong = Partitioning { min_partitions: 4_097, max_partitions: 0, ..base };
    invalid(set(&mut world, wrong));
}

#[test]
fn rows_that_are_to_stay_together_are_not_parted_for_any_reason() {
    let (mut world, ids) = three();
    let set = |world: &mut World, keep_together| {
        let partitioning = Partitioning { keep_together, ..Partitioning::default() };
        let options = TableOptions { partitioning, ..TableOptions::default() };
        world.done(alter("t", TableChange::SetOptions(Box::new(options))))
    };
    assert_eq!(set(&mut world, 1), Ok(true));
    for cause in [Cause::ByHand, Cause::Load, Cause::Size] {
        let reason = Reason { cause, ..Reason::by_hand() };
        let at = cut(&[Value::Int(50), Value::Timestamp(7)]);
        let refused =
            world.command(&Command::Split { partition: ids[0], at, reason, leader: None });
        let Err(Error::InvalidInput(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("'keep_together' keeps"), "{why}");
    }
    split(&mut world, ids[0], at(50)).unwrap();
    advance(&mut world, ids[0], Progress::Cut);
    let Err(Error::InvalidInput(why)) = set(&mut world, 9) else { panic!("a key of 9 columns") };
    assert!(why.contains("but the key has"), "{why}");
    // And none that is there from the beginning.
    let mut wrong = new_table("wrong");
    wrong.schema.options.partitioning.keep_together = 1;
    let Err(Error::InvalidInput(why)) = world.done(create(wrong)) else { panic!("it was parted") };
    assert!(why.contains("'keep_together' keeps"), "{why}");
}

#[test]
fn a_split_names_the_first_leader_of_its_child_if_a_replica_is_there() {
    let (mut world, ids) = three();
    let holders: Vec<NodeId> = record(&world, ids[0]).replicas.values().copied().collect();
    let named = *holders.last().unwrap();
    let stranger = NodeId(holders.iter().map(|node| node.0).max().unwrap() + 1);
    for (partition, user, leader, expected) in
        [(ids[0], 50, Some(named), Some(named)), (ids[0], 20, Some(stranger), None)]
    {
        let (at, reason) = (at(user), Reason::by_hand());
        world.command(&Command::Split { partition, at, reason, leader }).unwrap();
        let splitting = record(&world, partition).splitting().cloned().unwrap();
        assert_eq!(splitting.leader, expected);
        advance(&mut world, partition, Progress::Cut);
        let child = record(&world, splitting.child);
        assert_eq!((child.first_leader, record(&world, partition).first_leader), (expected, None));
        let catalog = publish::catalog(&world.state).unwrap();
        let mut tables = catalog.tables.values().flat_map(|tables| tables.values());
        let route = tables.find_map(|table| table.partitions.route(splitting.child));
        let alone = (holders.len() == 1).then(|| holders[0]);
        assert_eq!(route.unwrap().leader, alone.or(expected));
    }
}

#[test]
fn what_went_on_before_a_whole_state_came_is_known_to_be_over() {
    for (progress, done) in [(Progress::Cut, true), (Progress::NotCut { epoch: Epoch(9) }, false)] {
        let (mut world, ids) = three();
        let reason = Reason { at_ms: Some(7), ..Reason::by_hand() };
        world
            .command(&Command::Split { partition: ids[0], at: at(50), reason, leader: None })
            .unwrap();
        let reshapes = Reshapes::default();
        let begun = Edit::Partition(record(&world, ids[0]));
        reshapes.follow(&world.state, &[begun], &[], false);
        let known = || {
            let events = reshapes.all();
            assert_eq!((events.len(), events[0].at_ms), (1, 7));
            events[0].outcome.clone()
        };
        reshapes.catch_up(&world.state);
        assert_eq!(known(), ReshapeOutcome::UnderWay);
        if !done {
            advance(&mut world, ids[0], Progress::GiveUp);
        }
        advance(&mut world, ids[0], progress);
        reshapes.catch_up(&world.state);
        assert_eq!(known() == ReshapeOutcome::Done, done, "{:?}", known());
        assert_ne!(known(), ReshapeOutcome::UnderWay);
    }
}

#[test]
fn a_state_that_breaks_the_rules_of_splits_and_merges_is_noticed() {
    let (mut world, ids) = three();
    split(&mut world, ids[0], at(50)).unwrap();
    merge(&mut world, ids[1], ids[2]).unwrap();
    let broken = |change: &dyn Fn(&mut BTreeMap<PartitionId, PartitionRecord>)| {
        let mut records: BTreeMap<_, _> =
            ids.iter().map(|id| (*id, PartitionRecord::clone(&record(&world, *id)))).collect();
        change(&mut records);
        let mut state = world.state.clone();
        let edits = records.into_values().map(|one| Edit::Partition(Arc::new(one)));
        state.apply(&edits.collect::<Vec<_>>());
        state.check()
    };
    assert_eq!(broken(&|_| {}), Ok(()));
    let child_is = |child| {
        move |records: &mut BTreeMap<PartitionId, PartitionRecord>| {
            if let Some(Reshaping::Split(split)) =
                records.get_mut(&PartitionId(1)).and_then(|one| one.reshaping.as_mut())
            {
                split.child = child;
            }
        }
    };
    broken(&child_is(ids[1])).unwrap_err();
    broken(&child_is(PartitionId(77))).unwrap_err();
    broken(&|records| records.get_mut(&ids[1]).unwrap().reshaping = None).unwrap_err();
    broken(&|records| records.get_mut(&ids[2]).unwrap().reshaping = None).unwrap_err();
    broken(&|records| {
        let step = Step(2);
        let leaving = Reshaping::Leaving { by: ids[0], epoch: Epoch(1), step };
        records.get_mut(&ids[0]).unwrap().reshaping = Some(leaving);
    })
    .unwrap_err();
    broken(&|records| {
        if let Some(Reshaping::Split(split)) = &mut records.get_mut(&ids[0]).unwrap().reshaping {
            split.at = at(500);
        }
    })
    .unwrap_err();
    broken(&|records| {
        if let Some(Reshaping::Split(split)) = &mut records.get_mut(&ids[0]).unwrap().reshaping {
            split.replicas.pop_first();
        }
    })
    .unwrap_err();
}
