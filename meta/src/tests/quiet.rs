//! Partitions without load, from the moment a process begins to decide about them.

use partita_load::Step as LoadStep;
use partita_proto::beat::LoadBeat;
use partita_proto::history::{Reason, ReshapeEvent};

use super::*;
use crate::load::Keeper;
use crate::reshape::Reshapes;

const START_MS: u64 = 1_700_000_000_000;
const HOUR_MS: u64 = 3_600_000;
/// Minimum age, in seconds, of partitions that are merged.
const AGE_MIN_S: u64 = 600;

/// Second in which a process that begins to decide first merges partitions; their leader reports no load every second.
fn first_merge(
    keeper: &mut Keeper,
    state: &State,
    events: &[ReshapeEvent],
    start_ms: u64,
) -> Option<u64> {
    let ids: Vec<PartitionId> = state.partitions().map(|partition| partition.id).collect();
    let beat = |partition: PartitionId, at_ms| LoadBeat {
        partition,
        term: 1,
        since_ms: start_ms,
        at_ms,
        size_bytes: 1_000_000,
        ..LoadBeat::default()
    };
    (0..2 * 3_600).find(|second| {
        let now_ms = start_ms + second * 1_000;
        keeper.learn(state, events, |_| true, now_ms);
        let beats: Vec<LoadBeat> = ids.iter().map(|id| beat(*id, now_ms)).collect();
        keeper.heard(NodeId(1), &beats, now_ms);
        let actions = keeper.tick(now_ms);
        actions.iter().any(|action| matches!(action.step, LoadStep::Merge { .. }))
    })
}

#[test]
fn a_new_leader_merges_quiet_partitions_only_when_they_are_old_enough_to_its_knowledge() {
    let mut world = World::new();
    world.done(create(new_table("t"))).unwrap();
    let mut keeper = Keeper::new(1);
    assert_eq!(first_merge(&mut keeper, &world.state, &[], START_MS), Some(AGE_MIN_S));
    // Another leadership of the same process knows no more.
    keeper.begin(2);
    assert_eq!(first_merge(&mut keeper, &world.state, &[], START_MS + HOUR_MS), Some(AGE_MIN_S));
}

#[test]
fn a_new_leader_knows_which_partitions_an_operator_has_split() {
    let mut world = World::new();
    world.done(create(NewTable { cuts: vec![], ..new_table("t") })).unwrap();
    let partition = world.state.partitions().next().unwrap().id;
    let at_ms = i64::try_from(START_MS - HOUR_MS / 2).unwrap();
    let reason = Reason { at_ms: Some(at_ms), ..Reason::by_hand() };
    let at = cut(&[Value::Int(100)]);
    world.command(&Command::Split { partition, at, reason, leader: None }).unwrap();
    let reshapes = Reshapes::default();
    let begun = Edit::Partition(Arc::clone(world.state.partition(partition).unwrap()));
    reshapes.follow(&world.state, &[begun], &[], false);
    world.settle_reshapings();
    let mut keeper = Keeper::new(1);
    let half_an_hour = HOUR_MS / 2 / 1_000;
    let first = first_merge(&mut keeper, &world.state, &reshapes.all(), START_MS);
    assert_eq!(first, Some(half_an_hour));
}
