//! Nodes, the replicas of partitions on them, and repeated requests for changes.

use std::collections::BTreeMap;

use partita_proto::generation::{Claim, Generation, Renewal};
use partita_proto::id::{Epoch, PartitionId, ReplicaId};
use partita_proto::label::Labels;
use partita_proto::member::Registration;
use partita_proto::range::TypedRange;
use partita_proto::service::RequestId;

use super::model::hex;
use super::*;
use crate::catalog::{PartitionRecord, REMEMBERED_MAX, Target, Work};
use crate::plan;
use crate::record;

/// Registers a data directory; returns its node id.
fn register(
    world: &mut World,
    identity: u64,
    node: Option<u64>,
    address: &str,
) -> Result<u64, Error> {
    let address = address.to_owned();
    let labels = Labels::default();
    let wish = Registration { identity, node: node.map(NodeId), address, labels };
    world.command(&Command::Register(wish))?;
    Ok(world.state.node_of(identity).unwrap().id.0)
}

/// A table of one partition on nodes 1, 2 and 3, of five.
fn replicated() -> World {
    let mut world = World::new();
    for identity in 1..=5 {
        register(&mut world, identity, None, "a").unwrap();
    }
    let ddl = create(NewTable { cuts: vec![], ..new_table("t") });
    let places = vec![(1..=3).map(NodeId).collect()];
    world.command(&Command::Change { ddl, places, id: None, tables_max: None }).unwrap();
    world.settle();
    world
}

fn partition(world: &World) -> Arc<PartitionRecord> {
    Arc::clone(world.state.partitions().next().unwrap())
}

fn replica_on(world: &World, node: u64) -> ReplicaId {
    let partition = partition(world);
    let all = partition.all_replicas();
    *all.iter().find(|(_, at)| at.0 == node).unwrap().0
}

fn nodes_of(replicas: &BTreeMap<ReplicaId, NodeId>) -> Vec<u64> {
    let mut nodes: Vec<_> = replicas.values().map(|node| node.0).collect();
    nodes.sort_unstable();
    nodes
}

/// The nodes of the target replicas, if a change is in progress.
fn target(world: &World) -> Option<Vec<u64>> {
    partition(world).target.as_ref().map(|target| nodes_of(&target.replicas))
}

fn step(world: &World) -> Option<Step> {
    partition(world).target.as_ref().map(|target| target.step)
}

/// Moves replicas; replaces the change in progress, if there is one.
fn move_to(world: &mut World, add: &[u64], remove: &[ReplicaId]) -> Result<Reply, Error> {
    let (partition, replaces) = (partition(world).id, step(world));
    let add = add.iter().copied().map(NodeId).collect();
    world.command(&Command::Move { partition, add, remove: remove.to_vec(), replaces })
}

fn moved(world: &mut World) -> Result<Reply, Error> {
    let record = partition(world);
    let step = record.target.as_ref().unwrap().step;
    world.command(&Command::Moved { partition: record.id, step })
}

fn not_found(result: Result<Reply, Error>, kind: &str) {
    let found = match &result {
        Err(Error::NotFound { kind, .. }) => Some(*kind),
        _ => None,
    };
    assert_eq!(found, Some(kind), "{result:?}");
}

#[test]
fn a_directory_gets_one_number_and_no_other_gets_it_again() {
    let mut world = World::new();
    assert_eq!(register(&mut world, 70, None, "a:1"), Ok(1));
    assert_eq!(register(&mut world, 80, None, "b:1"), Ok(2));
    let version = world.state.version();
    assert_eq!(register(&mut world, 70, None, "a:1"), Ok(1));
    assert_eq!(register(&mut world, 70, Some(1), "a:1"), Ok(1));
    assert_eq!(world.state.version(), version, "nothing was new");
    let why = invalid(register(&mut world, 90, Some(1), "c:1"));
    assert!(
        why.contains("node 1 is registered with another data directory") && why.contains("a:1"),
        "{why}"
    );
    let why = invalid(register(&mut world, 70, Some(2), "a:1"));
    assert!(why.contains("belongs to node 1, not to node 2"), "{why}");
    assert_eq!(register(&mut world, 90, None, "a:1"), Ok(3), "two may say one address");
}

#[test]
fn a_wanted_number_is_given_when_it_is_free_and_leaves_no_number_to_be_given_twice() {
    let mut world = World::new();
    assert_eq!(register(&mut world, 10, Some(5), "a"), Ok(5));
    assert_eq!(register(&mut world, 20, None, "a"), Ok(6));
    assert_eq!(register(&mut world, 30, Some(3), "a"), Ok(3));
    assert_eq!(register(&mut world, 40, None, "a"), Ok(7));
    for bad in [0, 10_001, u64::MAX] {
        let why = invalid(register(&mut world, 50, Some(bad), "a"));
        assert!(why.contains("from 1 to 10000"), "{why}");
    }
    assert_eq!(register(&mut world, 50, Some(10_000), "a"), Ok(10_000));
    invalid(register(&mut world, 60, None, "a"));
    assert_eq!(register(&mut world, 60, Some(4), "a"), Ok(4));
}

#[test]
fn a_node_that_comes_back_elsewhere_is_the_same_node() {
    let mut world = World::new();
    register(&mut world, 10, None, "a:1").unwrap();
    world.command(&Command::Drain { node: NodeId(1), on: true }).unwrap();
    assert_eq!(register(&mut world, 10, None, "b:2"), Ok(1));
    let node = world.state.node(NodeId(1)).unwrap();
    assert_eq!((node.address.as_str(), node.draining), ("b:2", true));
}

#[test]
fn a_drain_begins_and_ends_once() {
    let mut world = World::new();
    register(&mut world, 10, None, "a").unwrap();
    let mut drain = |node, on| world.command(&Command::Drain { node: NodeId(node), on });
    assert_eq!(drain(1, false), Ok(Reply::Unchanged));
    assert_eq!(drain(1, true), Ok(Reply::Changed { steps: vec![] }));
    assert_eq!(drain(1, true), Ok(Reply::Unchanged));
    assert_eq!(drain(1, false), Ok(Reply::Changed { steps: vec![] }));
    not_found(drain(2, true), "node");
}

#[test]
fn a_move_is_wanted_first_and_then_so() {
    let mut world = replicated();
    let before = partition(&world);
    let gone = replica_on(&world, 3);
    move_to(&mut world, &[4], &[gone]).unwrap();
    assert_eq!(partition(&world).replicas, before.replicas, "until the group has it");
    assert_eq!(target(&world), Some(vec![1, 2, 4]));
    let new = replica_on(&world, 4);
    assert!(!before.replicas.contains_key(&new), "a number of its own");
    let route = |world: &World| {
        let table = Arc::clone(world.catalog.table("public", "t").unwrap());
        nodes_of(&table.partitions.routes()[0].replicas)
    };
    assert_eq!(route(&world), [1, 2, 3]);
    moved(&mut world).unwrap();
    assert_eq!(target(&world), None);
    assert_eq!(nodes_of(&partition(&world).replicas), [1, 2, 4]);
    assert_eq!(route(&world), [1, 2, 4]);
    assert_eq!(partition(&world).epoch, before.epoch, "routes stay as they are");
    // Node 3 may have one again, under a new number.
    let leaving = replica_on(&world, 4);
    move_to(&mut world, &[3], &[leaving]).unwrap();
    assert!(replica_on(&world, 3) > new);
}

#[test]
fn another_move_takes_the_place_of_the_one_before_and_goes_on_with_what_it_made() {
    let mut world = replicated();
    let gone = replica_on(&world, 3);
    move_to(&mut world, &[4], &[gone]).unwrap();
    let half = replica_on(&world, 4);
    let first = partition(&world).target.as_ref().unwrap().step;
    let id = partition(&world).id;
    move_to(&mut world, &[4, 5], &[gone]).unwrap();
    assert_eq!(replica_on(&world, 4), half);
    assert_eq!(target(&world), Some(vec![1, 2, 4, 5]));
    // What is said of the first move is too late.
    let late = world.command(&Command::Moved { partition: id, step: first });
    assert_eq!(late, Ok(Reply::Unchanged));
    move_to(&mut world, &[5], &[gone]).unwrap();
    assert_eq!(target(&world), Some(vec![1, 2, 5]));
    // Back to no change at all: the group may have any of these members by now, and gets an order for the former ones.
    move_to(&mut world, &[], &[]).unwrap();
    assert_eq!(target(&world), Some(vec![1, 2, 3]));
    moved(&mut world).unwrap();
    assert_eq!(nodes_of(&partition(&world).replicas), [1, 2, 3]);
    assert_eq!(move_to(&mut world, &[], &[]), Ok(Reply::Unchanged));
    // A node that it no longer wants anything of gets another number.
    move_to(&mut world, &[4], &[gone]).unwrap();
    assert_ne!(replica_on(&world, 4), half);
}

#[test]
fn a_new_replica_that_was_created_and_lost_gets_another_number() {
    let mut world = replicated();
    let gone = replica_on(&world, 3);
    move_to(&mut world, &[4], &[gone]).unwrap();
    let (id, half, first) = (partition(&world).id, replica_on(&world, 4), step(&world).unwrap());
    let created = |world: &World| -> BTreeSet<ReplicaId> {
        let target = partition(world).target.clone();
        target.map(|target| target.created).unwrap_or_default()
    };
    let note = |step| Command::Created { partition: id, step };
    assert_eq!(world.command(&note(Step(1))), Ok(Reply::Unchanged));
    assert_eq!(created(&world), BTreeSet::new());
    world.command(&note(first)).unwrap();
    assert_eq!((created(&world), step(&world)), (BTreeSet::from([half]), Some(first)));
    assert_eq!(world.command(&note(first)), Ok(Reply::Unchanged));
    // Another change goes on with the replica, which exists already.
    move_to(&mut world, &[4, 5], &[gone]).unwrap();
    assert_eq!((replica_on(&world, 4), created(&world)), (half, BTreeSet::from([half])));
    let second = step(&world).unwrap();
    let member = replica_on(&world, 1);
    let lose = |step, replica| Command::Renumber { partition: id, step, replicas: vec![replica] };
    assert_eq!(world.command(&lose(first, half)), Ok(Reply::Unchanged), "of an earlier change");
    assert_eq!(world.command(&lose(second, member)), Ok(Reply::Unchanged), "a member");
    world.command(&lose(second, half)).unwrap();
    let new = replica_on(&world, 4);
    assert!(new > half && !world.state.is_known(id, half, NodeId(4)));
    assert_eq!((target(&world), created(&world)), (Some(vec![1, 2, 4, 5]), BTreeSet::new()));
    assert_eq!(world.command(&note(second)), Ok(Reply::Unchanged), "of the lost one");
    assert_eq!(
        world.command(&Command::Moved { partition: id, step: second }),
        Ok(Reply::Unchanged)
    );
    let third = step(&world).unwrap();
    world.command(&note(third)).unwrap();
    assert_eq!(created(&world), BTreeSet::from([new, replica_on(&world, 5)]));
    moved(&mut world).unwrap();
    assert_eq!(replica_on(&world, 4), new);
}

/// As with the other entries and records: this fails if a form changes; then the old bytes belong into a test that
/// reads them.
#[test]
fn created_replicas_and_new_numbers_keep_their_form() {
    let (partition, step) = (PartitionId(7), Step(300));
    let (old, new) = ((ReplicaId(9), NodeId(1)), (ReplicaId(10), NodeId(2)));
    let created = Command::Created { partition, step };
    assert_eq!(hex(&created.encode()), "920105080710ac02");
    let renumber = Command::Renumber { partition, step, replicas: vec![old.0, new.0] };
    assert_eq!(hex(&renumber.encode()), "9a0109080710ac021a02090a");
    let replicas = BTreeMap::from([old, new]);
    let edit = Edit::Partition(Arc::new(PartitionRecord {
        id: partition,
        table: TableId(2),
        range: TypedRange::default(),
        epoch: Epoch(4),
        replicas: BTreeMap::from([old]),
        target: Some(Target { replicas, step, created: BTreeSet::from([new.0]) }),
        reshaping: None,
        first_leader: None,
        cut_by_hand_ms: None,
    }));
    let changes = record::changes(&[edit]);
    assert_eq!(
        hex(changes[0].value.as_ref().unwrap()),
        "080710021a040a00120020042a040809100132120a04080910010a04080a100210ac021a010a"
    );
}

#[test]
fn a_node_that_begins_anew_gets_replicas_under_new_numbers() {
    let mut world = replicated();
    let gone = replica_on(&world, 3);
    move_to(&mut world, &[4], &[gone]).unwrap();
    let (id, half, first) = (partition(&world).id, replica_on(&world, 4), step(&world).unwrap());
    let generation = |number| Some(Generation { number, nonce: number }).filter(|_| number > 0);
    let renew = |acknowledged, pending, set_aside| {
        let claim = Claim { acknowledged: generation(acknowledged), pending: generation(pending) };
        let node = NodeId(4);
        Command::Renew(Renewal { node, identity: 4, claim, set_aside, accepted: Vec::new() })
    };
    world.command(&renew(0, 1, false)).unwrap();
    world.command(&renew(1, 2, false)).unwrap();
    assert_eq!((replica_on(&world, 4), step(&world)), (half, Some(first)));
    // The directory is an older copy: the group may count on the replica, which has forgotten its votes.
    world.command(&renew(1, 3, true)).unwrap();
    assert_eq!(target(&world), Some(vec![1, 2, 4]));
    let new = replica_on(&world, 4);
    assert!(new > half && !world.state.is_known(id, half, NodeId(4)));
    assert_eq!(world.command(&Command::Moved { partition: id, step: first }), Ok(Reply::Unchanged));
    moved(&mut world).unwrap();
    assert_eq!(replica_on(&world, 4), new);
}

#[test]
fn a_move_takes_the_place_of_the_one_it_names_only() {
    let mut world = replicated();
    let (id, gone) = (partition(&world).id, replica_on(&world, 3));
    let instead_of = |world: &mut World, replaces| {
        let (add, remove) = (vec![NodeId(5)], vec![gone]);
        world.command(&Command::Move { partition: id, add, remove, replaces })
    };
    let refused = |result: Result<Reply, Error>| {
        let Err(Error::Unavailable(why)) = &result else { panic!("{result:?}") };
        assert!(why.contains("are being moved; try again afterwards"), "{why}");
    };
    refused(instead_of(&mut world, Some(Step(1))));
    move_to(&mut world, &[4], &[gone]).unwrap();
    let first = step(&world);
    // The group may have dropped the third replica already: only a command that knows of that step may keep it.
    refused(instead_of(&mut world, None));
    instead_of(&mut world, first).unwrap();
    refused(instead_of(&mut world, first));
    assert_eq!(target(&world), Some(vec![1, 2, 5]));
    moved(&mut world).unwrap();
    assert_eq!(nodes_of(&partition(&world).replicas), [1, 2, 5]);
}

#[test]
fn a_move_that_makes_no_sense_is_refused() {
    let mut world = replicated();
    let why = invalid(move_to(&mut world, &[], &[ReplicaId(999)]));
    assert!(why.contains("has no replica 999"), "{why}");
    let why = invalid(move_to(&mut world, &[2], &[]));
    assert!(why.contains("already has a replica on node 2"), "{why}");
    let why = invalid(move_to(&mut world, &[4, 4], &[]));
    assert!(why.contains("already has a replica on node 4"), "{why}");
    let all: Vec<_> = partition(&world).replicas.keys().copied().collect();
    let why = invalid(move_to(&mut world, &[], &all));
    assert!(why.contains("would have no replica"), "{why}");
    not_found(move_to(&mut world, &[9], &[]), "node");
    let (partition, replaces) = (PartitionId(99), None);
    let stranger = Command::Move { partition, add: vec![], remove: vec![], replaces };
    not_found(world.command(&stranger), "partition");
    let stranger = Command::Moved { partition: PartitionId(99), step: Step(1) };
    assert_eq!(world.command(&stranger), Ok(Reply::Unchanged));
}

#[test]
fn what_is_not_in_use_is_not_moved() {
    let mut world = World::new();
    register(&mut world, 1, None, "a").unwrap();
    register(&mut world, 2, None, "a").unwrap();
    world.change(create(NewTable { cuts: vec![], ..new_table("t") })).unwrap();
    not_found(move_to(&mut world, &[2], &[]), "partition");
    world.settle();
    move_to(&mut world, &[2], &[]).unwrap();
    world.change(drop_table("t")).unwrap();
    not_found(move_to(&mut world, &[], &[]), "partition");
    // The node that was to get the replica may have it by now.
    let table = Arc::clone(world.state.tables().next().unwrap());
    let told: Vec<_> =
        plan::orders(&world.state, &table).iter().map(|order| order.node.0).collect();
    assert_eq!(told, [1, 2]);
    world.settle();
    assert!(world.state.moving().next().is_none());
}

#[test]
fn a_table_changes_while_its_partitions_move() {
    let mut world = replicated();
    move_to(&mut world, &[4], &[]).unwrap();
    world.change(alter("t", add(vec![tag("host")]))).unwrap();
    assert!(matches!(world.phase("t"), Phase::Altering(Work::Schema(_))));
    world.settle();
    assert_eq!(target(&world), Some(vec![1, 2, 3, 4]));
    moved(&mut world).unwrap();
    assert_eq!(nodes_of(&partition(&world).replicas), [1, 2, 3, 4]);
    assert!(world.table("t").schema.column("host").is_some());
}

fn asked(world: &mut World, id: RequestId, ddl: Ddl) -> Result<Reply, Error> {
    let places = match &ddl {
        Ddl::CreateTable { table, .. } => vec![vec![NodeId(1)]; table.cuts.len() + 1],
        _ => Vec::new(),
    };
    world.command(&Command::Change { ddl, places, id: Some(id), tables_max: None })
}

fn request(sequence: u64) -> RequestId {
    RequestId { client: 7, sequence }
}

#[test]
fn a_change_that_is_asked_for_again_is_answered_as_before() {
    let mut world = World::new();
    let created = asked(&mut world, request(1), create(new_table("t"))).unwrap();
    world.settle();
    let version = world.state.version();
    assert_eq!(asked(&mut world, request(1), create(new_table("t"))), Ok(created.clone()));
    assert_eq!(world.state.version(), version);
    let other = RequestId { client: 8, ..request(1) };
    let refused = asked(&mut world, other, create(new_table("t")));
    assert_eq!(refused.unwrap_err().sqlstate(), "42P07");
    // It stays so when the table is long gone, and what is refused is not remembered.
    world.done(drop_table("t")).unwrap();
    assert_eq!(asked(&mut world, request(1), create(new_table("t"))), Ok(created));
    assert!(!world.visible("t"));
    assert!(matches!(asked(&mut world, other, create(new_table("t"))), Ok(Reply::Changed { .. })));
}

#[test]
fn of_the_changes_that_are_remembered_the_oldest_is_forgotten_first() {
    let mut world = World::new();
    let toggle = |sequence: u64| Ddl::AlterDatabase {
        name: "public".to_owned(),
        ttl: Some(std::time::Duration::from_secs(1 + sequence)),
    };
    asked(&mut world, request(0), create_database("d")).unwrap();
    for sequence in 1..REMEMBERED_MAX {
        asked(&mut world, request(sequence), toggle(sequence)).unwrap();
    }
    let changed = Ok(Reply::Changed { steps: vec![] });
    assert_eq!(asked(&mut world, request(0), create_database("d")), changed);
    asked(&mut world, request(REMEMBERED_MAX), toggle(REMEMBERED_MAX)).unwrap();
    let forgotten = asked(&mut world, request(0), create_database("d"));
    assert_eq!(forgotten.unwrap_err().sqlstate(), "42P06");
    let version = world.state.version();
    assert_eq!(asked(&mut world, request(1), toggle(1)), changed);
    assert_eq!(world.state.version(), version);
    // The records hold all of it.
    let records = record::changes(&world.state.all_edits());
    let records = records.into_iter().map(|one| (one.key, one.value.unwrap())).collect();
    assert_eq!(record::state(records).unwrap(), world.state);
}
