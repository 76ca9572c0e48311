//! Partitions without load, from the moment a process begins to decide about them.

use partita_load::Step as LoadStep;
use partita_proto::beat::LoadBeat;
use partita_proto::history::Reason;

use super::*;
use crate::load::Keeper;

const START_MS: u64 = 1_700_000_000_000;
const HOUR_MS: u64 = 3_600_000;
const HOUR_S: u64 = 3_600;

/// Second in which a process that begins to decide first merges partitions; their leader reports no load every second.
fn first_merge(keeper: &mut Keeper, state: &State, start_ms: u64) -> Option<u64> {
    let ids: Vec<PartitionId> = state.partitions().map(|partition| partition.id).collect();
    let beat = |partition: PartitionId, at_ms| LoadBeat {
        partition,
        term: 1,
        since_ms: start_ms,
        at_ms,
        size_bytes: 1_000_000,
        ..LoadBeat::default()
    };
    (0..2 * HOUR_S).find(|second| {
        let now_ms = start_ms + second * 1_000;
        keeper.learn(state, |_| true, now_ms);
        let beats: Vec<LoadBeat> = ids.iter().map(|id| beat(*id, now_ms)).collect();
        keeper.heard(NodeId(1), &beats, now_ms);
        let actions = keeper.tick(now_ms);
        actions.iter().any(|action| matches!(action.step, LoadStep::Merge { .. }))
    })
}

/// A table that is cut at these users, whose boundaries by hand stay for some seconds (0: for ever).
fn table(users: &[i64], pin_expiry_s: u32) -> NewTable {
    let cuts = users.iter().map(|user| cut(&[Value::Int(*user)])).collect();
    let mut table = NewTable { cuts, ..new_table("t") };
    table.schema.options.partitioning.pin_expiry_s = pin_expiry_s;
    table
}

#[test]
fn a_new_leader_merges_quiet_partitions_only_after_an_hour_of_its_own() {
    let mut world = World::new();
    world.done(create(table(&[100, 200], 1))).unwrap();
    let mut keeper = Keeper::new(1);
    assert_eq!(first_merge(&mut keeper, &world.state, START_MS), Some(HOUR_S));
    // Another leadership of the same process knows no more.
    keeper.begin(2);
    assert_eq!(first_merge(&mut keeper, &world.state, START_MS + HOUR_MS), Some(HOUR_S));
}

#[test]
fn boundaries_of_a_new_table_stay_unless_its_owner_says_otherwise() {
    let mut world = World::new();
    world.done(create(table(&[100, 200], 0))).unwrap();
    assert_eq!(first_merge(&mut Keeper::new(1), &world.state, START_MS), None);
}

#[test]
fn a_new_leader_knows_which_partitions_an_operator_has_split() {
    let split = |pin_expiry_s| {
        let mut world = World::new();
        world.done(create(table(&[], pin_expiry_s))).unwrap();
        let partition = world.state.partitions().next().unwrap().id;
        let at_ms = i64::try_from(START_MS - HOUR_MS / 2).unwrap();
        let reason = Reason { at_ms: Some(at_ms), ..Reason::by_hand() };
        let at = cut(&[Value::Int(100)]);
        world.command(&Command::Split { partition, at, reason, leader: None }).unwrap();
        world.settle_reshapings();
        first_merge(&mut Keeper::new(1), &world.state, START_MS)
    };
    assert_eq!(split(7_200), Some(HOUR_S + HOUR_S / 2));
    assert_eq!(split(0), None);
}
