//! Nodes that report their addresses, and nodes that are removed for good.

use std::time::Duration;

use partita_proto::id::ReplicaId;
use partita_proto::label::Labels;
use partita_proto::member::Registration;
use partita_proto::service::{AdminOrder, ClusterService, MetaService};

use super::model::hex;
use super::trio::Trio;
use super::*;
use crate::catalog::Edit;
use crate::{plan, record};

fn wish(identity: u64, node: Option<u64>, labels: &str) -> Registration {
    let (node, address) = (node.map(NodeId), format!("host{identity}:1"));
    Registration { identity, node, address, labels: labels.parse().unwrap() }
}

/// Registers directories with these zones, as nodes 1 and on.
fn world(zones: &[&str]) -> World {
    let mut world = World::new();
    for (identity, zone) in (1..).zip(zones) {
        let wish = wish(identity, None, &format!("zone={zone}"));
        world.command(&Command::Register(wish)).unwrap();
    }
    world
}

fn remove(world: &mut World, node: u64) -> Result<Reply, Error> {
    world.command(&Command::RemoveNode { node: NodeId(node) })
}

fn table_on(world: &mut World, name: &str, nodes: &[u64]) {
    let ddl = create(NewTable { cuts: vec![], ..new_table(name) });
    let places = vec![nodes.iter().copied().map(NodeId).collect()];
    world.command(&Command::Change { ddl, places, id: None, tables_max: None }).unwrap();
    world.settle();
}

/// The catalog's state, read from the records of its current one.
fn read_again(world: &World) -> State {
    let records = record::changes(&world.state.all_edits());
    let records = records.into_iter().map(|one| (one.key, one.value.unwrap())).collect();
    record::state(records).unwrap()
}

#[test]
fn a_node_that_comes_back_with_other_labels_has_those() {
    let mut world = world(&["a"]);
    let labels = |world: &World| world.state.node(NodeId(1)).unwrap().labels.to_string();
    assert_eq!(labels(&world), "zone=a");
    world.command(&Command::Drain { node: NodeId(1), on: true }).unwrap();
    let same = world.command(&Command::Register(wish(1, Some(1), "zone=a")));
    assert_eq!(same, Ok(Reply::Unchanged));
    world.command(&Command::Register(wish(1, None, "zone=b,rack=r1"))).unwrap();
    assert_eq!(labels(&world), "rack=r1,zone=b");
    assert!(world.state.node(NodeId(1)).unwrap().draining, "it is the same node");
    world.command(&Command::Register(wish(1, None, ""))).unwrap();
    assert_eq!(labels(&world), "");
    assert_eq!(read_again(&world), world.state);
}

#[test]
fn the_replicas_of_new_partitions_are_in_as_many_zones_as_there_are() {
    let chosen = |zones: &[&str], count: usize, replicas: usize| {
        let world = world(zones);
        let all: Vec<_> = world.state.nodes().map(|node| node.id).collect();
        let places = plan::View::new(&world.state, all).choose_many(count, replicas).unwrap();
        places.into_iter().map(|nodes| nodes.iter().map(|node| node.0).collect()).collect()
    };
    let places: Vec<Vec<u64>> = chosen(&["a", "a", "b", "c"], 6, 3);
    for nodes in &places {
        assert!(nodes.contains(&3) && nodes.contains(&4), "{places:?}");
        assert!(nodes.contains(&1) != nodes.contains(&2), "{places:?}");
    }
    let on = |node: u64| places.iter().filter(|nodes| nodes.contains(&node)).count();
    assert_eq!((on(1), on(2)), (3, 3), "evenly within the zone");
    // Two zones for three replicas: two of them share one, and which one changes.
    let places: Vec<Vec<u64>> = chosen(&["a", "a", "b", "b"], 4, 3);
    for nodes in &places {
        let in_a = nodes.iter().filter(|node| **node <= 2).count();
        assert!((1..=2).contains(&in_a), "{places:?}");
    }
    let places: Vec<Vec<u64>> = chosen(&["a", "a", "b"], 1, 1);
    assert_eq!(places, [[1]]);
}

#[test]
fn a_node_that_holds_nothing_goes_and_neither_its_number_nor_its_directory_comes_back() {
    let mut world = world(&["a", "b", "c"]);
    assert_eq!(remove(&mut world, 3), Ok(Reply::Changed { steps: vec![] }));
    assert!(world.state.node(NodeId(3)).is_none());
    let version = world.state.version();
    assert_eq!(remove(&mut world, 3), Ok(Reply::Unchanged), "asked again");
    assert_eq!(world.state.version(), version);
    for node in [None, Some(3), Some(9)] {
        let why = invalid(world.command(&Command::Register(wish(3, node, "zone=c"))));
        assert!(why.contains("node 3, which was removed") && why.contains("new data dir"), "{why}");
    }
    let why = invalid(world.command(&Command::Register(wish(9, Some(3), ""))));
    assert!(why.contains("node 3 was removed") && why.contains("not given again"), "{why}");
    world.command(&Command::Register(wish(9, None, ""))).unwrap();
    assert_eq!(world.state.node_of(9).unwrap().id, NodeId(4));
    for command in
        [Command::Drain { node: NodeId(3), on: true }, Command::RemoveNode { node: NodeId(7) }]
    {
        let refused = world.command(&command);
        assert!(matches!(refused, Err(Error::NotFound { kind: "node", .. })), "{refused:?}");
    }
    assert_eq!(read_again(&world), world.state);
}

#[test]
fn a_node_that_holds_or_is_to_hold_something_stays() {
    let mut world = world(&["a", "b", "c", "d"]);
    table_on(&mut world, "t", &[1, 2, 3]);
    let why = invalid(remove(&mut world, 3));
    assert!(why.contains("1 replica in the catalog (partition 1)"), "{why}");
    assert!(why.contains("ADMIN drain_node(3)"), "{why}");
    world.command(&Command::Drain { node: NodeId(3), on: true }).unwrap();
    let partition = Arc::clone(world.state.partitions().next().unwrap());
    let gone: ReplicaId = *partition.replicas.iter().find(|(_, node)| node.0 == 3).unwrap().0;
    let partition = partition.id;
    let add = vec![NodeId(4)];
    world.command(&Command::Move { partition, add, remove: vec![gone], replaces: None }).unwrap();
    // Neither the node that the replica leaves nor the node that it goes to can be removed.
    let why = invalid(remove(&mut world, 3));
    assert!(why.contains("is being drained") && !why.contains("ADMIN"), "{why}");
    invalid(remove(&mut world, 4));
    world.settle_moves();
    assert!(matches!(remove(&mut world, 3), Ok(Reply::Changed { .. })));
    invalid(remove(&mut world, 4));
    let add = vec![NodeId(3)];
    let back = Command::Move { partition, add, remove: vec![], replaces: None };
    let refused = world.command(&back);
    assert!(matches!(refused, Err(Error::NotFound { kind: "node", .. })), "{refused:?}");
    // A place that was chosen before it went.
    let ddl = create(NewTable { cuts: vec![], ..new_table("u") });
    let places = vec![vec![NodeId(1), NodeId(3)]];
    let late = world.command(&Command::Change { ddl, places, id: None, tables_max: None });
    assert!(matches!(late, Err(Error::Unavailable(_))), "{late:?}");
}

#[test]
fn the_process_that_keeps_the_catalog_is_not_removed() {
    let mut world = World::new();
    let alone = Registration { address: String::new(), ..wish(1, Some(1), "") };
    world.command(&Command::Register(alone)).unwrap();
    world.command(&Command::Drain { node: NodeId(1), on: true }).unwrap();
    let why = invalid(remove(&mut world, 1));
    assert!(why.contains("keeps the catalog"), "{why}");
}

#[test]
fn a_table_that_is_being_dropped_neither_keeps_a_node_nor_waits_for_it_once_it_is_removed() {
    let mut world = world(&["a", "b"]);
    table_on(&mut world, "t", &[1, 2]);
    world.change(drop_table("t")).unwrap();
    let told = |world: &World| -> Vec<u64> {
        let table = Arc::clone(world.state.tables().next().unwrap());
        plan::orders(&world.state, &table).iter().map(|order| order.node.0).collect()
    };
    assert_eq!(told(&world), [1, 2]);
    remove(&mut world, 2).unwrap();
    assert_eq!(told(&world), [1]);
    assert_eq!(read_again(&world), world.state);
    world.settle();
    assert_eq!(world.state.table_count(), 0);
}

/// As with the other entries and records: this fails if a form changes; then the old bytes belong into a test that
/// reads them.
#[test]
fn labels_and_removals_keep_their_form() {
    let register = Command::Register(wish(77, Some(4), "zone=a,rack=r1"));
    let gone = Command::RemoveNode { node: NodeId(4) };
    let mut world = World::new();
    world.command(&register).unwrap();
    let node = Edit::Node(Arc::clone(world.state.node(NodeId(4)).unwrap()));
    world.command(&gone).unwrap();
    let mut forms = vec![
        format!("register {}", hex(&register.encode())),
        format!("remove node {}", hex(&gone.encode())),
    ];
    let changes = record::changes(&[node, Edit::NodeGone(NodeId(4)), Edit::Removed(NodeId(4), 77)]);
    forms.extend(changes.iter().map(|change| match &change.value {
        Some(value) => format!("record {} {}", hex(&change.key), hex(value)),
        None => format!("record {} goes", hex(&change.key)),
    }));
    let forms = forms.join("\n") + "\n";
    assert_eq!(forms, include_str!("leaving.golden"), "got:\n{forms}");
}

fn remove_order(node: u64) -> AdminOrder {
    AdminOrder::RemoveNode { node: NodeId(node) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_drained_then_removed_and_told_so_when_it_comes_back() {
    let mut trio = Trio::start(4).await;
    let leader = trio.leader_that_hears().await;
    let meta = Arc::clone(trio.meta(leader));
    trio.until("four are live", || meta.core.presence.reports().reports.len() == 4).await;
    meta.change(create(new_table("t"))).await.unwrap();
    let why = invalid(meta.administer(remove_order(1)).await);
    assert!(why.contains("ADMIN drain_node(1)"), "{why}");
    let drain = |node| AdminOrder::Drain { node: NodeId(node), on: true };
    meta.administer(drain(1)).await.unwrap();
    trio.until("node 1 is empty", || trio.state(leader).held_by(NodeId(1)).next().is_none()).await;
    trio.until("what it has is gone", || trio.nodes.one(1).held.lock().is_empty()).await;
    meta.administer(remove_order(1)).await.unwrap();
    meta.administer(remove_order(1)).await.unwrap();
    assert!(!meta.members().borrow().contains_key(&NodeId(1)));
    // The removed node still sends requests, and each is refused with the reason.
    let told = |result: Result<(), Error>| {
        let why = invalid(result);
        assert!(why.contains("node 1, which was removed"), "{why}");
    };
    let beat = trio.nodes.heartbeats().remove(0);
    assert_eq!(beat.node, NodeId(1));
    told(meta.heartbeat(beat.clone()).await);
    told(meta.register(wish(1, None, "")).await.map(drop));
    // Another member knows it as well.
    drop(meta);
    trio.agree().await;
    trio.kill(leader).await;
    let next = trio.leader_that_hears().await;
    let meta = trio.meta(next);
    told(meta.heartbeat(beat).await);
    assert_eq!(meta.register(wish(50, None, "")).await, Ok(NodeId(5)));
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_replicas_that_lives_is_removed_only_when_it_is_drained() {
    let trio = Trio::start(3).await;
    let leader = trio.leader_that_hears().await;
    let meta = trio.meta(leader);
    let why = invalid(meta.administer(remove_order(2)).await);
    assert!(why.contains("ADMIN drain_node(2)"), "{why}");
    let nowhere = meta.administer(remove_order(9)).await;
    assert!(matches!(nowhere, Err(Error::NotFound { kind: "node", .. })), "{nowhere:?}");
    // A node without heartbeats need not be drained.
    trio.nodes.one(2).silence(true);
    let live = || meta.core.presence.reports().is_live(NodeId(2));
    trio.until("it is not live", || !live()).await;
    meta.administer(remove_order(2)).await.unwrap();
    assert!(trio.state(leader).is_removed(NodeId(2)));
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_not_drained_when_the_others_could_not_hold_what_it_has() {
    let trio = Trio::start(3).await;
    let leader = trio.leader_that_hears_of(3).await;
    let meta = trio.meta(leader);
    meta.change(create(new_table("t"))).await.unwrap();
    let drain = |node| AdminOrder::Drain { node: NodeId(node), on: true };
    let why = invalid(meta.administer(drain(2)).await);
    assert!(why.contains("keeps 3 replicas") && why.contains("only 2 other nodes"), "{why}");
    meta.change(drop_table("t")).await.unwrap();
    // With nothing on them, all but the last one may go.
    meta.administer(drain(1)).await.unwrap();
    meta.administer(drain(2)).await.unwrap();
    meta.administer(drain(2)).await.unwrap();
    let why = invalid(meta.administer(drain(3)).await);
    assert!(why.contains("is the only node that takes replicas"), "{why}");
    trio.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_go_apart_when_nodes_say_in_which_zones_they_are() {
    let trio = Trio::start_with(4, Duration::from_secs(600)).await;
    let leader = trio.leader_that_hears().await;
    let meta = trio.meta(leader);
    trio.until("four are live", || meta.core.presence.reports().reports.len() == 4).await;
    for name in ["t", "u"] {
        meta.change(create(new_table(name))).await.unwrap();
    }
    for (node, zone) in [(1, "a"), (2, "a"), (3, "b"), (4, "c")] {
        *trio.nodes.one(node).labels.lock() = format!("zone={zone}").parse().unwrap();
    }
    let labels = |node: u64| -> Labels {
        let members = meta.members();
        let members = members.borrow();
        members.get(&NodeId(node)).map(|member| member.labels.clone()).unwrap_or_default()
    };
    trio.until("the labels are known", || (1..=4).all(|node| !labels(node).is_empty())).await;
    assert_eq!(labels(4).to_string(), "zone=c");
    trio.until("no partition has two replicas in a zone", || {
        let apart =
            |nodes: &BTreeSet<NodeId>| !(nodes.contains(&NodeId(1)) && nodes.contains(&NodeId(2)));
        let state = trio.state(leader);
        state.moving().next().is_none()
            && state.partitions().all(|one| apart(&one.replicas.values().copied().collect()))
    })
    .await;
    // What is made from now on is right at once.
    meta.change(create(new_table("v"))).await.unwrap();
    let state = trio.state(leader);
    let table = state.table_named(state.database_named("public").unwrap().id, "v").unwrap();
    for partition in state.partitions_of(table) {
        let nodes: BTreeSet<_> = partition.replicas.values().map(|node| node.0).collect();
        assert!(nodes.contains(&3) && nodes.contains(&4) && nodes.len() == 3, "{nodes:?}");
    }
    trio.end().await;
}
